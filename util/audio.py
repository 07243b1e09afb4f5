"""From an audio file to MFCC windows; nothing here knows of TensorFlow or of the model."""
import collections
import functools
import math
import os
import re
import stat

import numpy as np
import scipy.fft
import scipy.signal
import scipy.sparse
import soundfile
from python_speech_features import base, sigproc

SAMPLE_RATE = 16000   # Hz, where no other is asked for
WIN_LENGTH_S = 0.025  # analysis window of one frame
WIN_STEP_S = 0.01     # from one frame to the next
PREEMPHASIS = 0.97    # this and the next three: the defaults of python_speech_features.mfcc
N_FFT = 512
N_FILTERS = 26        # mel filters
LIFTER = 22           # of the cepstrum
INT16_SCALE = 32768   # the notebook's features are of 16-bit integer samples
LOUDEST = 1e9         # full scale is 1; float files may hold integers' values
SPHERE_HEADER_BYTES = 1024
SOURCE_RATES = (4000, 384000)  # Hz; headers with others are taken for damaged
BLOCK_SAMPLES = 1 << 22        # read at once: a header's length is never trusted

# What a header says: source rate in Hz, channels, frames (samples a channel)
AudioInfo = collections.namedtuple('AudioInfo', 'rate channels frames')


class AudioError(ValueError):
    """An audio file that can't be used; the message is the reason, without the file's name."""


def audio_info(filename):
    """Reads a file's header.

    Raises:
      AudioError: no such file, no permission, not audio, an absurd rate.
    """
    with _open(filename) as file:
        return _checked_info(file, filename)


def read_audio(filename, sample_rate=SAMPLE_RATE, start_s=None, stop_s=None, channel=None):
    """Reads an audio file, or a part of it, as mono at `sample_rate`.

    Channels are averaged; another rate is brought to `sample_rate` by a polyphase filter.

    Args:
      filename: any format of libsndfile: WAV, FLAC, Ogg, MP3, SPHERE, ...
      sample_rate: Hz.
      start_s, stop_s: the part to read, in seconds; None is the file's begin or end, and what
        lies beyond the end is left out.
      channel: the one to read, from 0; None is the mean of all.
    Returns:
      float64 [n_samples], in the range of 16-bit integers.
    Raises:
      AudioError: as `audio_info`, or damaged data, or samples that are not finite.
    """
    with _open(filename) as file:
        info = _checked_info(file, filename)
        check_channel(info, channel)
        first, count = segment(info, start_s, stop_s)
        samples = _read_blocks(file, first, count if stop_s is not None else None)
    samples = samples.mean(axis=1) if channel is None else samples[:, channel]
    if not np.abs(samples).max(initial=0.0) < LOUDEST:  # so that NaN is found as well
        raise AudioError('samples that are not finite numbers, or absurdly large ones')
    samples = samples * INT16_SCALE
    if info.rate != sample_rate and len(samples):
        divisor = math.gcd(info.rate, sample_rate)
        samples = scipy.signal.resample_poly(samples, sample_rate // divisor, info.rate // divisor)
    return samples


def segment(info, start_s=None, stop_s=None):
    """Where a part of a file lies, in samples of the file: (first, count)."""
    first = min(info.frames, round((start_s or 0) * info.rate))
    stop = info.frames if stop_s is None else min(info.frames, round(stop_s * info.rate))
    return first, max(0, stop - first)


def check_channel(info, channel):
    """Raises AudioError where a file lacks a channel, counted from 0; None is always there."""
    if channel is not None and channel >= info.channels:
        raise AudioError('no channel %d: it has %d, counted from 0' % (channel, info.channels))


def _open(filename):
    try:  # by descriptor, so that the content decides and not the name
        if not stat.S_ISREG(os.stat(filename).st_mode):
            raise AudioError('not a regular file')  # a pipe would wait for ever
        return soundfile.SoundFile(os.open(filename, os.O_RDONLY))
    except OSError as error:
        raise AudioError('cannot be read: %s' % error.strerror) from None
    except soundfile.LibsndfileError as error:
        raise AudioError(_why_not_audio(filename, error)) from None
    except AudioError:
        raise
    except ValueError as error:  # a null character in the name
        raise AudioError('cannot be read: %s' % error) from None


def _why_not_audio(filename, error):
    """The reason in words."""
    header = _sphere_header(filename)
    if header.startswith(b'NIST_1A') and b'embedded-shorten' in header:
        return ('SPHERE compressed by shorten, which libsndfile cannot read; convert it: sph2pipe '
                '-f wav IN.sph OUT.wav')
    return 'not an audio file: %s' % error.error_string.strip('. \n')


def _sphere_header(filename):
    """First bytes of a file; none where it can't be read again."""
    try:
        with open(filename, 'rb') as file:
            return file.read(SPHERE_HEADER_BYTES)
    except OSError:
        return b''


def _checked_info(file, filename):
    low, high = SOURCE_RATES
    if not low <= file.samplerate <= high:
        raise AudioError('sample rate of %d Hz, expected %d to %d' % (file.samplerate, low, high))
    if file.format == 'NIST':
        _check_sphere(file, filename)
    return AudioInfo(file.samplerate, file.channels, file.frames)


def _check_sphere(file, filename):
    """Raises AudioError where a SPHERE header counts other samples than there are, as after a
    transfer that took the file for text."""
    promised = re.search(rb'sample_count -i (\d+)', _sphere_header(filename))
    if promised and int(promised.group(1)) != file.frames:
        raise AudioError('damaged SPHERE: %d samples, its header says %d'
                         % (file.frames, int(promised.group(1))))


def _read_blocks(file, first, count):
    """Samples of an open file from `first` on, float64 [n_samples, channels] from -1 to 1; as
    many as there are where count is None."""
    left = math.inf if count is None else count
    size = max(1, min(file.frames if count is None else count, BLOCK_SAMPLES // file.channels))
    blocks = []
    try:
        if first:
            file.seek(first)
        while True:
            blocks.append(file.read(min(size, left), dtype='float64', always_2d=True))
            left -= len(blocks[-1])
            if len(blocks[-1]) < size or left <= 0:
                return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    except soundfile.LibsndfileError as error:
        raise AudioError('damaged audio: %s' % error.error_string.strip('. \n')) from None


def resampled_length(n_samples, rate, sample_rate):
    """Samples that there are at `sample_rate` of so many at `rate`."""
    return -(-n_samples * sample_rate // rate)


def frame_count(n_samples, sample_rate=SAMPLE_RATE):
    """MFCC frames of that many samples: one a step, and the last window padded with zeros."""
    window, step = _window_and_step(sample_rate)
    return 1 if n_samples <= window else 1 + -(-(n_samples - window) // step)


@functools.lru_cache(maxsize=None)
def _window_and_step(sample_rate):
    """Samples of a window and from one to the next, rounded as python_speech_features does."""
    return [int(math.floor(s * sample_rate + 0.5)) for s in (WIN_LENGTH_S, WIN_STEP_S)]


def n_steps(n_samples, sample_rate=SAMPLE_RATE, stride=1):
    """Time steps the network sees: the frames, every `stride`-th of them."""
    return -(-frame_count(n_samples, sample_rate) // stride)


def mfcc(samples, sample_rate=SAMPLE_RATE, numcep=26, stride=1):
    """Mel-frequency cepstral coefficients.

    Args:
      samples: float [n_samples], in the range of 16-bit integers.
      sample_rate: Hz.
      numcep: coefficients a frame, at most 26.
      stride: keep every stride-th frame.
    Returns:
      float64 [n_steps, numcep]; the first coefficient is the log energy of the frame.
    Raises:
      AudioError: fewer samples than one window (25 ms).
    Source: python_speech_features.mfcc with its defaults, as in the notebook. Its steps stand
      here in a form that is three times faster; the stride is of December 2016.
    """
    check_length(len(samples), sample_rate)
    window, step = _window_and_step(sample_rate)
    frames = _frames(sigproc.preemphasis(samples, PREEMPHASIS), window, step)[::stride]
    n_fft = max(N_FFT, 1 << (window - 1).bit_length())  # a longer window would be cut
    spectrum = scipy.fft.rfft(frames, n_fft)
    power = (spectrum.real**2 + spectrum.imag**2) / n_fft
    cepstrum = scipy.fft.dct(_log((_filterbank(n_fft, sample_rate) @ power.T).T),
                              norm='ortho')
    coefficients = base.lifter(cepstrum[:, :numcep], LIFTER)
    coefficients[:, 0] = _log(power.sum(axis=1))
    return coefficients


def _frames(samples, window, step):
    """[n_samples] -> [n_frames, window], a view; the last frame is filled with zeros."""
    count = 1 if len(samples) <= window else 1 + -(-(len(samples) - window) // step)
    padded = np.pad(samples, (0, (count - 1) * step + window - len(samples)))
    return np.lib.stride_tricks.sliding_window_view(padded, window)[::step]


@functools.lru_cache(maxsize=None)
def _filterbank(n_fft, sample_rate):
    """The mel filters, [N_FILTERS, n_fft/2 + 1]. Sparse, as each frequency is in two of them at
    most, and as a dense product would call up BLAS's threads beside those of TensorFlow."""
    return scipy.sparse.csr_array(base.get_filterbanks(N_FILTERS, n_fft, sample_rate))


def _log(power):
    """Natural logarithm; the smallest number instead of 0, as python_speech_features has it."""
    return np.log(np.where(power == 0, np.finfo(float).eps, power))


def check_length(n_samples, sample_rate):
    """Raises AudioError where there is less than one analysis window of audio."""
    if n_samples < _window_and_step(sample_rate)[0]:
        raise AudioError('too short: %d samples at %d Hz, expected one window of %d ms or more'
                         % (n_samples, sample_rate, 1000 * WIN_LENGTH_S))


def normalise(frames, numcontext):
    """Brings MFCC to mean 0 and deviation 1, over all windows that will be cut from them.

    The windows at the edges reach over the utterance into frames of zeros; these count too.

    Args:
      frames: float [n_steps, numcep].
      numcontext: frames of context on either side.
    Returns:
      float32 [numcontext + n_steps + numcontext, numcep]: with the whitened context of both
      edges, so that `context_windows` only has to cut.
    Source: the end of audiofile_to_input_vector, which whitened [n_steps, 494] at once.
    """
    steps, numcep = frames.shape
    padded = np.pad(frames, ((numcontext, numcontext), (0, 0)))
    # row r is part of the windows max(0, r - 2*numcontext) ... min(r, steps - 1)
    rows = np.arange(len(padded))
    uses = (np.minimum(rows, steps - 1) - np.maximum(rows - 2 * numcontext, 0) + 1)[:, None]
    n_values = steps * (2 * numcontext + 1) * numcep
    mean = (padded * uses).sum() / n_values
    deviation = math.sqrt(((padded - mean)**2 * uses).sum() / n_values)
    return ((padded - mean) / (deviation or 1.0)).astype(np.float32)


def context_windows(padded, numcontext):
    """Cuts a window of 2*numcontext + 1 frames for each time step.

    Args:
      padded: [n_steps + 2*numcontext, numcep], as `normalise` gives it.
    Returns:
      [n_steps, numcep*(2*numcontext + 1)]: earliest frame first.
    """
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * numcontext + 1, axis=0)
    return windows.transpose(0, 2, 1).reshape(len(windows), -1)


def audiofile_to_input_vector(filename, numcep, numcontext, sample_rate=SAMPLE_RATE, stride=1):
    """The network's input for one audio file.

    Args:
      filename: audio of any rate and number of channels.
      numcep: coefficients a frame.
      numcontext: frames of context on either side.
    Returns:
      float32 [n_steps, numcep + 2*numcep*numcontext], whitened.
    Raises:
      AudioError: as `read_audio` and `mfcc`.
    Source: the notebook's util.audio.audiofile_to_input_vector.
    """
    frames = mfcc(read_audio(filename, sample_rate), sample_rate, numcep, stride)
    return context_windows(normalise(frames, numcontext), numcontext)
