"""What of an audio file is sent to a model server."""

import io
import struct
import wave
from typing import Any

import numpy as np

from util import audio, files
from util.serving.server import ServerError, Signature

# RIFF header of 16-bit PCM without other chunks: sizes, format, channels, rate, bytes per second
# and per frame, bits, bytes of the samples
PLAIN_HEADER = struct.Struct('<4sI4s4sIHHIIHH4sI')
WHOLE_FILES = frozenset(['audio_bytes'])  # inputs of a signature that takes files
SAMPLES = frozenset(['samples', 'sample_length'])  # inputs of a signature that takes samples


def message(filename: str, signature: Signature, sample_rate: int) -> dict[str, Any]:
    """Returns the inputs of a signature for a batch of one audio file.

    Args:
      filename: file in any format of libsndfile.
      signature: one with the inputs WHOLE_FILES or SAMPLES.
      sample_rate: Hz, the model's, for SAMPLES.
    Returns:
      As `Connection.predict` takes them.
    Raises:
      AudioError: the file cannot be used.
      OSError: it cannot be read.
    """
    if signature.inputs == WHOLE_FILES:
        return {'audio_bytes': [wav_content(filename)]}
    samples = audio.read_audio(filename, sample_rate) / audio.INT16_SCALE
    return {
        'samples': samples.astype(np.float32)[None],
        'sample_length': np.array([len(samples)], np.int32),
    }


def check_signature(name: str, signature: Signature) -> None:
    """Raises ServerError if a signature takes something else than audio or returns no text."""
    if signature.inputs not in (WHOLE_FILES, SAMPLES):
        raise ServerError(
            'signature %r takes %s, which are not audio: use one that takes audio_bytes, or '
            'samples and sample_length' % (name, ' and '.join(sorted(signature.inputs)))
        )
    if 'transcripts' not in signature.outputs:
        raise ServerError('signature %r returns no transcripts' % name)


def wav_content(filename: str) -> bytes:
    """Returns an audio file as the content of a WAV file of 16-bit PCM.

    A file that is such a WAV file is returned as it is, with all channels; of any other the
    channels are averaged, at the file's own rate.

    Raises:
      AudioError, OSError: as `message`.
    """
    with files.open_regular(filename, mode='rb') as file:
        header = file.read(PLAIN_HEADER.size)
        if _is_plain(header):
            content = header + file.read()
            if PLAIN_HEADER.unpack(header)[-1] == len(content) - PLAIN_HEADER.size:
                return content
    rate = audio.audio_info(filename).rate
    samples = np.rint(audio.read_audio(filename, rate))
    return encode_wav(np.clip(samples, -audio.INT16_SCALE, audio.INT16_SCALE - 1), rate)


def encode_wav(samples: np.ndarray, rate: int) -> bytes:
    """Returns the content of a WAV file of 16-bit PCM with one channel.

    Args:
      samples: [n], whole numbers in the range of 16-bit integers, of any dtype.
      rate: Hz.
    """
    content = io.BytesIO()
    with wave.open(content, 'wb') as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype('<i2').tobytes())
    return content.getvalue()


def _is_plain(header):
    """Tells whether the first bytes of a file are a PLAIN_HEADER of 16-bit PCM."""
    if len(header) < PLAIN_HEADER.size:
        return False
    riff, _, form, chunk, size, code, channels, rate, _, frame, bits, data, _ = PLAIN_HEADER.unpack(
        header
    )
    return (
        (riff, form, chunk, data) == (b'RIFF', b'WAVE', b'fmt ', b'data')
        and (size, code, bits) == (16, 1, 16)
        and frame == 2 * channels
    )
