"""Computes windows of MFCC from audio files, independently of TensorFlow and of the model."""

import contextlib
import functools
import math
import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.signal
import scipy.sparse
import soundfile
from python_speech_features import base, sigproc

from util import audio_headers, records

SAMPLE_RATE = 16000  # Hz, the default
WIN_LENGTH_S = 0.025  # s, analysis window of a frame
WIN_STEP_S = 0.01  # s, from the start of a frame to the start of the next one
PREEMPHASIS = 0.97  # this and the next three are the defaults of python_speech_features.mfcc
N_FFT = 512  # points of the Fourier transform of a frame
N_FILTERS = 26  # mel filters
LIFTER = 22  # parameter of the liftering of the cepstrum
WARP_BOUNDARY = 4800.0  # Hz, up to which `warped` multiplies frequencies by the factor
WARP_BOUNDARY_SHARE = 0.8  # largest share of the highest frequency that this boundary may have
MIN_DEVIATION = 1e-3  # of an MFCC that is normalised by itself; below, it is constant
NEPERS_PER_DB = math.log(10) / 10  # natural logarithm of a ratio of energies of 1 dB
INT16_SCALE = 32768  # full scale of 16-bit integers, from which the notebook's features are made
LOUDEST = 1e9  # limit of a sample's absolute value; full scale is 1, but floats may be integers
SPHERE_HEADER_BYTES = 1024
SOURCE_RATES = (4000, 384000)  # Hz; a header with a rate outside this range counts as damaged
BLOCK_SAMPLES = 1 << 22  # samples read at once, as the length in a header is never trusted
COUNTED_SAMPLES = 4096  # samples read at once to find where damage begins
UNKNOWN_FRAMES = 1 << 62  # libsndfile states this many samples or more if a header states none
MP3_SLACK = 2304  # samples, two frames, by which the length that an MP3 file states may be wrong


class AudioInfo(NamedTuple):
    """The header of an audio file."""

    rate: int  # Hz
    channels: int
    frames: int  # samples of a channel


class AudioError(ValueError):
    """An audio file cannot be used; the message is the reason, without the name of the file."""


def audio_info(filename: str) -> AudioInfo:
    """Reads the header of an audio file.

    Raises:
      AudioError: the file cannot be opened, is not audio, its rate is outside SOURCE_RATES, or it
        holds fewer samples than its header says, or another file behind the first.
    """
    with open_audio(filename) as file:
        info = _checked_info(file, filename)
        if file.format == 'FLAC':
            _check_flac_end(file, filename)
        return info


def read_audio(
    filename: str,
    sample_rate: int = SAMPLE_RATE,
    start_s: float | None = None,
    stop_s: float | None = None,
    channel: int | None = None,
) -> np.ndarray:
    """Reads an audio file, or a part of it, as one channel at `sample_rate`.

    The channels are averaged; a different rate is converted by a polyphase filter.

    Args:
      filename: a file in any format of libsndfile: WAV, FLAC, Ogg, MP3, SPHERE, ...
      sample_rate: Hz.
      start_s, stop_s: the part to read, in seconds; None stands for the start or the end of the
        file. Times beyond the end of the file stand for its end.
      channel: the channel to read, from 0; None stands for the mean of all.
    Returns:
      float64 [n_samples], in the range of 16-bit integers.
    Raises:
      AudioError: as `audio_info`; or the data are damaged, or samples are not finite.
    """
    with open_audio(filename) as file:
        info = _checked_info(file, filename)
        check_channel(info, channel)
        first, count = segment(info, start_s, stop_s)
        size = max(1, min(count, BLOCK_SAMPLES // file.channels))
        blocks = list(read_blocks(file, first, count, size))
    samples = one_channel(blocks[0] if len(blocks) == 1 else np.concatenate(blocks), channel)
    if info.rate != sample_rate and len(samples):
        divisor = math.gcd(info.rate, sample_rate)
        samples = scipy.signal.resample_poly(samples, sample_rate // divisor, info.rate // divisor)
    return samples


def read_utterance(utterance: records.Utterance, sample_rate: int) -> np.ndarray:
    """Reads the audio of an utterance, as `read_audio` does."""
    return read_audio(
        utterance.wav_filename, sample_rate, utterance.start_s, utterance.stop_s, utterance.channel
    )


def segment(
    info: AudioInfo, start_s: float | None = None, stop_s: float | None = None
) -> tuple[int, int]:
    """Returns (first sample, number of samples) of a part of a file, at the file's rate."""
    first = min(info.frames, round((start_s or 0) * info.rate))
    stop = info.frames if stop_s is None else min(info.frames, round(stop_s * info.rate))
    return first, max(0, stop - first)


def check_channel(info: AudioInfo, channel: int | None) -> None:
    """Raises AudioError if a file has no channel of this index, from 0; None is always valid."""
    if channel is not None and channel >= info.channels:
        raise AudioError('no channel %d: it has %d, counted from 0' % (channel, info.channels))


class AudioFile(soundfile.SoundFile):
    """An open audio file that is read from the front.

    After each block, soundfile seeks to where the reading has come to, which libsndfile refuses
    where a length is unknown (FLAC).
    """

    def seekable(self) -> bool:
        """Returns False, so that soundfile reads without seeking."""
        return False

    def skip(self, count: int) -> None:
        """Skips samples from the start of the file; reads them where seeking is impossible, as in
        GSM 6.10 and in FLAC of unknown length."""
        if super().seekable() and self.frames < UNKNOWN_FRAMES:
            self.seek(count)
            return
        while count > 0:
            skipped = len(self.read(min(count, BLOCK_SAMPLES // self.channels)))
            count = count - skipped if skipped else 0


def open_audio(filename: str) -> AudioFile:
    """Returns the open AudioFile of a regular file.

    Raises:
      AudioError: as `audio_info`.
    """
    try:  # O_NONBLOCK, as opening a pipe could block for ever
        descriptor = os.open(filename, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise AudioError('cannot be read: %s' % error.strerror) from None
    except ValueError as error:  # a null character in the name
        raise AudioError('cannot be read: %s' % error) from None
    try:  # by descriptor, so that libsndfile takes the format from the content, not from the name
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise AudioError('not a regular file')
        return AudioFile(os.dup(descriptor))
    except OSError as error:
        raise AudioError('cannot be read: %s' % error.strerror) from None
    except soundfile.LibsndfileError as error:
        raise AudioError(_why_not_audio(descriptor, error)) from None
    finally:
        os.close(descriptor)


def _why_not_audio(descriptor, error):
    """Returns the reason, in words, why libsndfile cannot open a file."""
    with contextlib.suppress(OSError):
        header = os.pread(descriptor, SPHERE_HEADER_BYTES, 0)
        if header.startswith(b'NIST_1A') and b'embedded-shorten' in header:
            return (
                'SPHERE compressed by shorten, which libsndfile cannot read; convert it: sph2pipe '
                '-f wav IN.sph OUT.wav'
            )
        promise = audio_headers.promise(descriptor)
        if promise and promise.held < promise.said:
            return 'damaged audio: %d bytes of samples, its header says %d' % promise[:2]
    return 'not an audio file: %s' % error.error_string.strip('. \n')


def _checked_info(file, filename):
    """Returns the AudioInfo of an open file, with its true length.

    Raises:
      AudioError: the rate is outside SOURCE_RATES, or the file is not as long as its header says.
    """
    low, high = SOURCE_RATES
    if not low <= file.samplerate <= high:
        raise AudioError('sample rate of %d Hz, expected %d to %d' % (file.samplerate, low, high))
    try:
        if file.format == 'NIST':
            _check_sphere(file)
        _check_promise(file, audio_headers.promise(file.name))
    except OSError as error:
        raise AudioError('cannot be read: %s' % error.strerror) from None
    frames = file.frames
    if frames >= UNKNOWN_FRAMES:
        frames, damage = _count_samples(filename)
        if damage:
            raise AudioError('damaged %s after %d samples' % (file.format, frames))
    return AudioInfo(file.samplerate, file.channels, frames)


def _check_sphere(file):
    """Raises AudioError if the sample count in a SPHERE header is not that of the file, as happens
    after a transfer in text mode."""
    header = os.pread(file.name, SPHERE_HEADER_BYTES, 0)
    promised = re.search(rb'sample_count -i (\d{1,18})', header)
    if promised:
        _check_count(file, file.frames, int(promised.group(1)), 'SPHERE')


def _check_count(file, count, promised, kind=None):
    """Raises AudioError if a file has not as many samples as its header says."""
    if count != promised:
        raise AudioError(
            'damaged %s: %d samples, its header says %d' % (kind or file.format, count, promised)
        )


def _check_promise(file, promise):
    """Raises AudioError if a file is not what its audio_headers.Promise (or None) says."""
    if promise is None:
        return
    if promise.joined:
        raise AudioError(audio_headers.JOINED)
    if promise.held < promise.said and file.format == 'MP3':  # libsndfile counts what is stated
        _check_count(file, file.frames * promise.held // promise.said, file.frames)
    elif file.frames and 0 < promise.held < promise.said:
        width = promise.held // file.frames  # bytes; 0 if samples are compressed
        promised = promise.said // width if width else file.frames * promise.said // promise.held
        _check_count(file, file.frames, promised)
    elif promise.held < promise.said:
        raise AudioError(
            'damaged %s: %d bytes of samples, its header says %d' % (file.format, *promise[:2])
        )


def _check_flac_end(file, filename):
    """Raises AudioError if an open FLAC file does not end with the last sample of its header."""
    if not 0 < file.frames < UNKNOWN_FRAMES:
        return
    try:
        file.seek(file.frames - 1)
        complete = len(file.read(1)) == 1
    except soundfile.LibsndfileError:
        complete = False
    if not complete:
        _check_count(file, _count_samples(filename)[0], file.frames)


def _count_samples(filename):
    """Returns how many samples can be read, and whether damage ends them rather than the end."""
    count = 0
    with open_audio(filename) as file:
        size = COUNTED_SAMPLES
        try:
            while True:
                found = len(file.read(size, dtype='int16'))
                count += found
                if found < size:
                    return count, False
        except soundfile.LibsndfileError:
            return count, True


def read_blocks(file: AudioFile, first: int, count: int, size: int) -> Iterator[np.ndarray]:
    """Yields the samples of an open file in blocks, one or more.

    Args:
      file: an open file.
      first: the first sample to read.
      count: number of samples to read.
      size: samples of a block, but for the last one.
    Yields:
      float64 [n_samples, channels], from -1 to 1.
    Raises:
      AudioError: the data are damaged, or there are fewer samples than `count`.
    """
    left = count
    try:
        if first:
            file.skip(first)
        while True:
            wanted = min(size, left)
            block = file.read(wanted, dtype='float64', always_2d=True)
            left -= len(block)
            if len(block) < wanted and not (file.format == 'MP3' and left <= MP3_SLACK):
                _check_count(file, first + count - left, first + count)
            yield block
            if len(block) < wanted or left <= 0:
                return
    except soundfile.LibsndfileError as error:
        raise AudioError(
            'damaged audio: %s' % (error.error_string.strip('. \n') or 'it cannot be decoded')
        ) from None


def one_channel(samples: np.ndarray, channel: int | None) -> np.ndarray:
    """Returns one channel, or the mean of all if `channel` is None.

    Args:
      samples: float64 [n_samples, channels], from -1 to 1.
      channel: counted from 0.
    Returns:
      float64 [n_samples], in the range of 16-bit integers.
    Raises:
      AudioError: samples are not finite.
    """
    mono = samples.mean(axis=1) if channel is None else samples[:, channel]
    if not np.abs(mono).max(initial=0.0) < LOUDEST:  # in this form NaN is found as well
        raise AudioError('samples that are not finite numbers, or absurdly large ones')
    return mono * INT16_SCALE


def resampled_length(n_samples: int, rate: int, sample_rate: int) -> int:
    """Returns the number of samples after resampling `n_samples` from `rate` to `sample_rate`."""
    return -(-n_samples * sample_rate // rate)


def frame_count(n_samples: int, sample_rate: int = SAMPLE_RATE) -> int:
    """Returns the number of MFCC frames of `n_samples` samples: one every 10 ms, the last of which
    is padded with zeros."""
    window, step = window_and_step(sample_rate)
    return 1 if n_samples <= window else 1 + -(-(n_samples - window) // step)


@functools.lru_cache(maxsize=None)
def window_and_step(sample_rate):
    """Returns the length of a window and the distance between two windows, in samples, rounded as
    in python_speech_features."""
    return tuple(int(math.floor(s * sample_rate + 0.5)) for s in (WIN_LENGTH_S, WIN_STEP_S))


def n_steps(n_samples: int, sample_rate: int = SAMPLE_RATE, stride: int = 1) -> int:
    """Returns the number of time steps of `n_samples` samples: every `stride`-th frame is one."""
    return -(-frame_count(n_samples, sample_rate) // stride)


def mfcc(
    samples: np.ndarray,
    sample_rate: int = SAMPLE_RATE,
    numcep: int = 26,
    stride: int = 1,
    dynamic_range: float = 0.0,
) -> np.ndarray:
    """Computes mel-frequency cepstral coefficients.

    Args:
      samples: float [n_samples], in the range of 16-bit integers.
      sample_rate: Hz.
      numcep: coefficients of a frame, at most 26.
      stride: every stride-th frame is kept.
      dynamic_range: dB, see `limit_range`; 0: no limit.
    Returns:
      float64 [n_steps, numcep]; the first coefficient is the log energy of the frame.
    Raises:
      AudioError: there are fewer samples than one window (25 ms) has.
    Source: python_speech_features.mfcc with its defaults, as in the notebook, but in a form that
      is three times faster. The stride came to Mozilla's code in December 2016.
    """
    energies, energy = log_mel(samples, sample_rate, stride)
    return cepstra(limit_range(energies, dynamic_range), limit_range(energy, dynamic_range), numcep)


def log_mel(
    samples: np.ndarray, sample_rate: int, stride: int = 1, warp: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the logarithms of the energies of the mel filters.

    Args:
      samples: float32 or float64 [n_samples], in the range of 16-bit integers.
      sample_rate: Hz.
      stride: every stride-th frame is kept.
      warp: factor of the filters' centres, see `warped`; to two decimals.
    Returns:
      (natural logarithms of the energies, [n_steps, N_FILTERS]; of the energies of the whole
      frames, [n_steps]), both of the type of the samples.
    Raises:
      AudioError: there are fewer samples than one window has.
    """
    check_length(len(samples), sample_rate)
    window, step = window_and_step(sample_rate)
    frames = _frames(sigproc.preemphasis(samples, PREEMPHASIS), window, step)[::stride]
    n_fft = fft_points(window)
    spectrum = scipy.fft.rfft(frames, n_fft)
    power = (spectrum.real**2 + spectrum.imag**2) / n_fft
    filters = _filters_of(n_fft, sample_rate, round(warp, 2), power.dtype.char)
    return _log((filters @ power.T).T), _log(power.sum(axis=1))


def limit_range(log_energies: np.ndarray, decibels: float) -> np.ndarray:
    """Raises the energies that lie more than so many dB below the largest one of the utterance.

    What lies deeper is the noise of the recording, or the silence of a computer, and tells nothing
    about the speech.

    Args:
      log_energies: natural logarithms of energies, float of any shape.
      decibels: 0: no limit.
    Returns:
      The same shape and type.
    Source: the features of Whisper (Radford et al., arXiv:2212.04356), whose limit is 80 dB.
    """
    if not decibels:
        return log_energies
    lowest = log_energies.max() - decibels * NEPERS_PER_DB
    return np.maximum(log_energies, lowest.astype(log_energies.dtype))


def cepstra(log_energies: np.ndarray, log_energy: np.ndarray, numcep: int) -> np.ndarray:
    """Computes the cepstral coefficients of what `log_mel` returns.

    Returns:
      [n_steps, numcep], of the type of the arguments; the first coefficient is `log_energy`.
    """
    coefficients = base.lifter(scipy.fft.dct(log_energies, norm='ortho')[:, :numcep], LIFTER)
    coefficients[:, 0] = log_energy
    return coefficients.astype(log_energies.dtype, copy=False)


def _frames(samples, window, step):
    """Cuts samples, float [n_samples], into frames, float [n_frames, window], zero-padded."""
    count = 1 if len(samples) <= window else 1 + -(-(len(samples) - window) // step)
    padded = np.pad(samples, (0, (count - 1) * step + window - len(samples)))
    return np.lib.stride_tricks.sliding_window_view(padded, window)[::step]


def fft_points(window: int) -> int:
    """Returns the points of the Fourier transform of a window of so many samples: N_FFT, or more
    as the transform would cut a longer window."""
    return max(N_FFT, 1 << (window - 1).bit_length())


@functools.lru_cache(maxsize=None)
def filterbank(n_fft: int, sample_rate: int) -> scipy.sparse.csr_array:
    """Returns the mel filters, a sparse matrix [N_FILTERS, n_fft/2 + 1].

    It is sparse because each frequency is in two filters at most, and because a dense product
    would start threads of BLAS beside those of TensorFlow.
    """
    return scipy.sparse.csr_array(base.get_filterbanks(N_FILTERS, n_fft, sample_rate))


@functools.lru_cache(maxsize=None)
def _filters_of(n_fft, sample_rate, factor, kind):
    """Returns the mel filters with their centres warped by a factor, a sparse matrix of the type
    `kind` (of NumPy); the caller rounds the factor, so that there are few."""
    if factor == 1.0:
        return filterbank(n_fft, sample_rate).astype(kind)
    centers = base.mel2hz(np.linspace(0, base.hz2mel(sample_rate / 2), N_FILTERS + 2))
    edges = np.floor((n_fft + 1) * warped(centers, factor, sample_rate) / sample_rate)
    bins = np.arange(n_fft // 2 + 1)
    with np.errstate(divide='ignore', invalid='ignore'):  # edges of narrow filters may coincide
        rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    below, above = edges[1:-1, None] > bins, edges[2:, None] > bins
    filters = np.where(below, np.maximum(rising, 0), np.where(above, falling, 0))
    return scipy.sparse.csr_array(filters.astype(kind))


def warped(frequencies: np.ndarray, factor: float, sample_rate: int) -> np.ndarray:
    """Warps frequencies piecewise linearly: they are multiplied by the factor up to a boundary,
    above which a straight line leads to half the sample rate, which stays where it is.

    Args:
      frequencies: float [n], in Hz.
      factor: above 0.
      sample_rate: Hz.
    Returns:
      float [n], in Hz.
    Source: vocal-tract-length perturbation, Jaitly and Hinton, ICML 2013 (workshop on deep learning
      for audio, speech and language processing), the equation of section 2. Its boundary is
      4800 Hz; at low sample rates it is 0.8 of the highest frequency.
    """
    highest = sample_rate / 2
    reached = min(WARP_BOUNDARY, WARP_BOUNDARY_SHARE * highest) * min(factor, 1.0)
    boundary = reached / factor
    slope = (highest - reached) / (highest - boundary)
    return np.where(
        frequencies <= boundary, frequencies * factor, highest - slope * (highest - frequencies)
    )


def _log(power):
    """Returns the natural logarithm of `power`, in which zeros are replaced by the machine epsilon,
    as in python_speech_features."""
    return np.log(np.where(power == 0, float(np.finfo(float).eps), power))


def check_length(n_samples: int, sample_rate: int) -> None:
    """Raises AudioError if there is less than one analysis window of audio."""
    if n_samples < window_and_step(sample_rate)[0]:
        raise AudioError(
            'too short: %d samples at %d Hz, expected one window of %d ms or more'
            % (n_samples, sample_rate, 1000 * WIN_LENGTH_S)
        )


def normalise(frames: np.ndarray, numcontext: int, norm: str = 'utterance') -> np.ndarray:
    """Applies per-utterance normalisation to MFCC: mean 0 and standard deviation 1 over all values
    of all windows that will be cut from them.

    The windows at both ends reach beyond the utterance into frames of zeros, which count too.

    Args:
      frames: float [n_steps, numcep].
      numcontext: frames of context on either side.
      norm: one of config.FEATURE_NORMS; `coefficient` stands for `normalise_coefficients`.
    Returns:
      float32 [numcontext + n_steps + numcontext, numcep]; the margins are the normalised frames of
      zeros, so that `context_windows` only has to cut.
    Source: the end of the notebook's audiofile_to_input_vector, which normalised the windows
      [n_steps, 494] themselves.
    """
    if norm == 'coefficient':
        return normalise_coefficients(frames, numcontext)
    steps, numcep = frames.shape
    padded = np.pad(frames, ((numcontext, numcontext), (0, 0)))
    # row r is part of the windows max(0, r - 2*numcontext) ... min(r, steps - 1)
    rows = np.arange(len(padded))
    uses = (np.minimum(rows, steps - 1) - np.maximum(rows - 2 * numcontext, 0) + 1)[:, None]
    n_values = steps * (2 * numcontext + 1) * numcep
    mean = (padded * uses).sum() / n_values
    deviation = math.sqrt(((padded - mean) ** 2 * uses).sum() / n_values)
    return ((padded - mean) / (deviation or 1.0)).astype(np.float32)


def normalise_coefficients(frames: np.ndarray, numcontext: int) -> np.ndarray:
    """Brings each coefficient to mean 0 and standard deviation 1 over the frames of an utterance,
    so that a speaker's or a microphone's constant share of the spectrum cancels out.

    Args:
      frames: float [n_steps, numcep].
      numcontext: frames of context on either side.
    Returns:
      float32 [numcontext + n_steps + numcontext, numcep]; the margins are 0, the mean. A
      coefficient that is constant, but for rounding, is 0.
    Source: cepstral mean and variance normalisation, Viikki and Laurila, Speech Communication 25
      (1998).
    """
    centred = frames - frames.mean(axis=0, dtype=np.float64)
    deviation = np.sqrt((centred**2).mean(axis=0))
    constant = deviation < MIN_DEVIATION
    normal = np.where(constant, 0.0, centred / np.where(constant, 1.0, deviation))
    return np.pad(normal, ((numcontext, numcontext), (0, 0))).astype(np.float32)


def context_windows(padded: np.ndarray, numcontext: int) -> np.ndarray:
    """Cuts a window of 2*numcontext + 1 frames for each time step.

    Args:
      padded: float32 [numcontext + n_steps + numcontext, numcep], as `normalise` returns it.
      numcontext: frames of context on either side.
    Returns:
      float32 [n_steps, (2*numcontext + 1)*numcep]; the earliest frame of a window comes first.
    """
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * numcontext + 1, axis=0)
    return windows.transpose(0, 2, 1).reshape(len(windows), -1)


def audiofile_to_input_vector(
    filename: str,
    numcep: int,
    numcontext: int,
    sample_rate: int = SAMPLE_RATE,
    stride: int = 1,
    norm: str = 'utterance',
    dynamic_range: float = 0.0,
) -> np.ndarray:
    """Computes the network's input for one audio file.

    Args:
      filename: a file of any rate and number of channels.
      numcep: coefficients of a frame.
      numcontext: frames of context on either side.
      sample_rate: Hz, the rate to which the audio is converted.
      stride: every stride-th frame is kept.
      norm: as in `normalise`.
      dynamic_range: as in `mfcc`.
    Returns:
      float32 [n_steps, numcep + 2*numcep*numcontext], normalised windows.
    Raises:
      AudioError: as `read_audio` and `mfcc`.
    Source: the notebook's util.audio.audiofile_to_input_vector.
    """
    samples = read_audio(filename, sample_rate)
    frames = mfcc(samples, sample_rate, numcep, stride, dynamic_range)
    return context_windows(normalise(frames, numcontext, norm), numcontext)
