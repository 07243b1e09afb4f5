"""Reads an audio file block by block, so that a recording of any length takes little memory."""

import math
import os
from collections.abc import Iterator

import numpy as np
import scipy.signal
import soundfile

from util import audio, records

BLOCK_S = 30  # s of audio that are read at once
TAPS = 10  # half the length of resample_poly's filter, in samples of the lower of the two rates


def read(utterance: records.Utterance, sample_rate: int) -> Iterator[np.ndarray]:
    """Yields the samples of an utterance as one channel at `sample_rate`, block by block.

    The blocks together are what audio.read_audio returns. An utterance that fits into one block
    has the same samples to the last bit; across the borders of blocks the resampled ones differ by
    rounding.

    Yields:
      float64 [n_samples], in the range of 16-bit integers; one block or more.
    Raises:
      AudioError: as audio.read_audio.
    """
    info = audio.audio_info(utterance.wav_filename)
    audio.check_channel(info, utterance.channel)
    divisor = math.gcd(info.rate, sample_rate)
    up, down = sample_rate // divisor, info.rate // divisor
    blocks = _source_blocks(utterance, info, down)
    return blocks if up == down else resampled(blocks, up, down)


def _source_blocks(utterance, info, multiple):
    """Yields the samples at the rate of the file, float64 [n_samples], one block or more; the
    number of samples of a block is a multiple of `multiple`, but for the last one."""
    first, count = audio.segment(info, utterance.start_s, utterance.stop_s)
    left = math.inf if utterance.stop_s is None else count  # a header's length is not trusted
    size = max(1, min(info.rate * BLOCK_S, audio.BLOCK_SAMPLES // info.channels) // multiple)
    size *= multiple
    try:
        with soundfile.SoundFile(os.open(utterance.wav_filename, os.O_RDONLY)) as file:
            if first:
                file.seek(first)
            while True:
                samples = file.read(min(size, left), dtype='float64', always_2d=True)
                left -= len(samples)
                yield _one_channel(samples, utterance.channel)
                if len(samples) < size or left <= 0:
                    return
    except OSError as error:
        raise audio.AudioError('cannot be read: %s' % error.strerror) from None
    except soundfile.LibsndfileError as error:
        raise audio.AudioError('damaged audio: %s' % error.error_string.strip('. \n')) from None


def _one_channel(samples, channel):
    """Returns one channel, or the mean of all if `channel` is None, in the range of 16-bit
    integers.

    Args:
      samples: float64 [n_samples, channels], from -1 to 1.
    Raises:
      AudioError: samples are not finite.
    """
    mono = samples.mean(axis=1) if channel is None else samples[:, channel]
    if not np.abs(mono).max(initial=0.0) < audio.LOUDEST:  # in this form NaN is found as well
        raise audio.AudioError('samples that are not finite numbers, or absurdly large ones')
    return mono * audio.INT16_SCALE


def resampled(blocks: Iterator[np.ndarray], up: int, down: int) -> Iterator[np.ndarray]:
    """Resamples blocks so that they make what scipy.signal.resample_poly makes of the whole.

    An output sample depends on a limited number of input samples on either side, the margin. A
    block waits until the next one has come, and is resampled between margins, which are cut off.

    Args:
      blocks: float64 [n_samples] each.
      up, down: the ratio of the rates, without a common divisor.
    Yields:
      float64 [n_samples]; one block or more.
    """
    margin = -(-(TAPS * max(up, down) // up + 1) // down) * down  # input samples
    held, before = np.zeros(0), 0  # `before` samples of `held` are the margin before the rest
    for block in blocks:
        ready = (len(held) - before - margin) // down * down
        if ready > 0:
            stop = before + ready
            converted = scipy.signal.resample_poly(held[: stop + margin], up, down)
            yield converted[before * up // down : stop * up // down]
            first = max(0, stop - margin)
            held, before = held[first:], stop - first
        held = np.concatenate([held, block])
    if len(held):
        held = scipy.signal.resample_poly(held, up, down)
    yield held[before * up // down :]
