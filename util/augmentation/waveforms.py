"""Augmentations of samples.

All functions take and return float32 [n_samples] in the range of 16-bit integers, and leave what
they are given as it is. Changes of speed are rounded to hundredths, so that the filters of few
ratios are needed.
"""

import fractions
import functools
import io
import math
from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.signal
import soundfile

from util import audio
from util.augment_setting import FULL_SCALE_DB
from util.augmentation.draws import Draws
from util.augmentation.noise import Noises

STRETCH_WINDOW_S = 0.032  # s, about the length of a window of the phase vocoder
OVERLAP = 4  # windows of the phase vocoder over each sample
FILTER_ZEROS = 10  # zero crossings of the resampling filter on either side, as scipy has them
ALMOST_NOTHING = np.float32(1e-20)  # in the place of 0 where one divides by it
KAISER_BETA = 5.0  # of its window, as scipy has it
RATE_STEP = 100  # Hz, to which the rates of `resample` are rounded
ECHO_PERIODS = (17, 19, 23, 29, 31)  # relative delays of the five echoes; primes, as in DeepSpeech
ECHO_END_DB = 60.0  # dB, loss after which an echo is left out
# Bit/s from the quietest to the loudest setting of libsndfile: of MP3 by sample rate (MPEG-2.5, 2
# and 1), of Opus for a channel
MP3_BITRATES = ((12000, (8000, 64000)), (24000, (8000, 160000)), (48000, (32000, 320000)))
OPUS_BITRATES = (6000, 256000)
# Samples that LAME and the decoder put in front. At low bit rates the file has no room for the tag
# that says so, and is decoded with them; otherwise the decoder has cut them off.
MP3_DELAY = 576 + 529
CODEC_RATES = {  # Hz
    'mp3': (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000),
    'opus': (8000, 12000, 16000, 24000, 48000),
}
CODEC_FORMATS = {'mp3': ('MP3', 'MPEG_LAYER_III'), 'opus': ('OGG', 'OPUS')}


class Surroundings(NamedTuple):
    """What an augmentation needs to know besides the samples."""

    sample_rate: int  # Hz
    shortest: int  # samples that an utterance must keep so that CTC can align its transcript
    noises: Noises


def speed(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Changes tempo and pitch together, as Ko et al. (Interspeech 2015) did."""
    factor = _allowed(draws.number('factor'), len(samples), around.shortest)
    return _resampled(samples, *_ratio(factor))


def tempo(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Changes the tempo; the pitch stays."""
    factor = _allowed(draws.number('factor'), len(samples), around.shortest)
    length = max(round(len(samples) / factor), around.shortest if factor > 1 else 0)
    return stretched(samples, length, around.sample_rate)


def pitch(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Changes the pitch; the length stays."""
    up, down = _ratio(round(draws.number('pitch'), 2))
    if up == down:
        return samples
    longer = stretched(samples, -(-len(samples) * down // up), around.sample_rate)
    return _resampled(longer, up, down)[: len(samples)]


def _allowed(factor, length, shortest):
    """Returns the factor of the speed, to two decimals, or the largest that leaves an utterance of
    this length long enough; at least 1 is always allowed."""
    return min(round(factor, 2), max(1.0, math.floor(100 * length / shortest) / 100))


def _ratio(factor):
    """Returns (up, down), whole numbers, so that down / up is the factor of the speed."""
    ratio = fractions.Fraction(round(100 * factor), 100)
    return ratio.denominator, ratio.numerator


def _resampled(samples, up, down):
    """Resamples by up / down, to ceil(n_samples * up / down)."""
    if up == down:
        return samples
    return scipy.signal.resample_poly(samples, up, down, window=_low_pass(max(up, down)))


@functools.lru_cache(maxsize=1024)
def _low_pass(ratio):
    """Returns the filter that scipy.signal.resample_poly would design, float32 [n]; to design it
    takes longer than to apply it."""
    n_taps = 2 * FILTER_ZEROS * ratio + 1
    window = scipy.signal.firwin(n_taps, 1.0 / ratio, window=('kaiser', KAISER_BETA))
    return window.astype(np.float32)


def stretched(samples: np.ndarray, length: int, sample_rate: int) -> np.ndarray:
    """Stretches samples to another length at the same pitch, by a phase vocoder.

    Args:
      samples: float32 [n_samples].
      length: samples of the result.
      sample_rate: Hz.
    Returns:
      float32 [length].
    Source: Flanagan and Golden, Phase vocoder, 1966. Windows are analysed as densely as they are
      synthesised, so that the phase from one to the next can be taken over without unwrapping it.
    """
    if length == len(samples):
        return samples
    size = 1 << round(math.log2(STRETCH_WINDOW_S * sample_rate))
    hop, n_windows = size // OVERLAP, -(-length // (size // OVERLAP)) + OVERLAP
    factor = len(samples) / length
    n_read = math.ceil((n_windows - 1) * factor) + 2
    padded = np.zeros((n_read - 1) * hop + size, np.float32)
    first = size - hop  # so that the sample 0 lies in OVERLAP windows
    padded[first : first + len(samples)] = samples[: len(padded) - first]
    window = _hann(size)
    read = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    spectra = scipy.fft.rfft(read * window)
    # the middles of the windows correspond to each other
    places = np.arange(n_windows) * factor + (first - size // 2) / hop * (1 - factor)
    spectra = _vocoded(spectra, np.clip(places, 0, n_read - 1.001))
    frames = scipy.fft.irfft(spectra, size) * window
    return _overlapped(frames, hop)[first : first + length]


@functools.lru_cache(maxsize=None)
def _hann(size):
    """Returns a window, float32 [size], scaled so that the squares of OVERLAP of them, one upon the
    other, add up to 1."""
    window = scipy.signal.windows.hann(size, sym=False)
    return (window / math.sqrt(3 / 8 * OVERLAP)).astype(np.float32)


def _vocoded(spectra, places):
    """Returns the spectra at other places, with phases that fit to each other.

    Args:
      spectra: complex64 [n, bins].
      places: float [m], rising, from 0 to below n - 1: where to take the magnitudes.
    Returns:
      complex64 [m, bins].
    """
    index = places.astype(int)
    weight = (places - index).astype(np.float32)[:, None]
    magnitudes = np.abs(spectra)
    # the changes of the phase from one window to the next, as numbers of magnitude 1
    turns = spectra[1:] * spectra[:-1].conj()
    turns += ALMOST_NOTHING
    turns *= 1 / (magnitudes[1:] * magnitudes[:-1] + ALMOST_NOTHING)  # quicker than to divide them
    phases = np.empty((len(places), spectra.shape[1]), np.complex64)
    phases[0] = spectra[index[0]] + ALMOST_NOTHING
    phases[0] /= np.abs(phases[0])
    phases[1:] = turns[index[:-1]]
    np.cumprod(phases, axis=0, out=phases)
    phases *= (1 - weight) * magnitudes[index] + weight * magnitudes[index + 1]
    return phases


def _overlapped(frames, hop):
    """Adds frames, float32 [n, OVERLAP * hop], each `hop` samples behind the one before."""
    n_frames = len(frames)
    added = np.zeros((n_frames + OVERLAP - 1, hop), np.float32)
    for part in range(OVERLAP):
        added[part : part + n_frames] += frames[:, part * hop : (part + 1) * hop]
    return added.ravel()


def overlay(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Adds noise, the sum of several layers; its power is snr dB below that of the utterance."""
    snr, layers = draws.number('snr'), draws.integer('layers')
    source = draws.text('source')
    noise = around.noises.draw(source, draws.rng, len(samples))
    for _ in range(layers - 1):
        noise = noise + around.noises.draw(source, draws.rng, len(samples))
    power = float(noise @ noise)
    if power == 0:
        return samples
    return samples + noise * np.float32(_gain(-snr) * math.sqrt(float(samples @ samples) / power))


def _gain(decibels):
    """Returns the factor of an amplitude."""
    return 10 ** (decibels / 20)


def reverb(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Adds echoes at the level of the loudest sample; the length stays."""
    response = echoes(draws.number('delay'), draws.number('decay'), around.sample_rate)
    wet = scipy.signal.oaconvolve(samples, response)[: len(samples)]
    return _with_peak(wet, np.abs(samples).max())


def echoes(delay: float, decay: float, sample_rate: int) -> np.ndarray:
    """Makes the impulse response of five series of echoes, each with the sound itself, besides the
    sound once more.

    Args:
      delay: ms between two echoes of the quickest series.
      decay: dB that an echo loses against the one before.
      sample_rate: Hz.
    Returns:
      float32 [n].
    Source: the reverb of DeepSpeech 0.9.
    """
    count = math.floor(ECHO_END_DB / decay)
    periods = [round(delay / 1000 * sample_rate * each / ECHO_PERIODS[0]) for each in ECHO_PERIODS]
    response = np.zeros(count * max(periods) + 1, np.float32)
    response[0] = 1
    for period in periods:
        response[: count * period + 1 : period] += _gain(-decay * np.arange(count + 1))
    return response


def _with_peak(samples, peak):
    """Scales samples so that the loudest has this absolute value; silence stays silence."""
    loudest = np.abs(samples).max()
    return samples * np.float32(peak / loudest) if loudest > 0 else samples


def resample(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Takes a lower sample rate and goes back to the one before."""
    rate = max(1, round(draws.integer('rate') / RATE_STEP)) * RATE_STEP
    if rate >= around.sample_rate:
        return samples
    ratio = fractions.Fraction(rate, around.sample_rate)
    up, down = ratio.numerator, ratio.denominator
    return _resampled(_resampled(samples, up, down), down, up)[: len(samples)]


def codec(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Compresses samples with loss and decompresses them; length and alignment stay."""
    name, rate = draws.text('format'), around.sample_rate
    kind, subtype = CODEC_FORMATS[name]
    level = _compression_level(name, draws.integer('bitrate'), rate)
    loudest = max(1.0, float(np.abs(samples).max()) / audio.INT16_SCALE)  # codecs clip
    packed = io.BytesIO()
    soundfile.write(
        packed,
        samples / np.float32(audio.INT16_SCALE * loudest),
        rate,
        format=kind,
        subtype=subtype,
        compression_level=level,
        **({'bitrate_mode': 'CONSTANT'} if name == 'mp3' else {}),
    )
    packed.seek(0)
    unpacked, _ = soundfile.read(packed, dtype='float32')
    if name == 'mp3' and len(unpacked) > len(samples):
        unpacked = unpacked[MP3_DELAY:]
    result = np.zeros_like(samples)
    result[: len(unpacked)] = unpacked[: len(samples)]
    return result * np.float32(audio.INT16_SCALE * loudest)


def _compression_level(name, bitrate, sample_rate):
    """Returns libsndfile's compression level, from 0 to 1, for a bit rate."""
    low, high = OPUS_BITRATES
    if name == 'mp3':
        low, high = next(bounds for limit, bounds in MP3_BITRATES if sample_rate <= limit)
    return min(max((high - bitrate) / (high - low), 0.0), 0.999)


def volume(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Sets the level of the loudest sample."""
    peak = audio.INT16_SCALE * _gain(draws.number('dbfs') - FULL_SCALE_DB)
    return _with_peak(samples, peak)


def time_mask(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Replaces parts by silence."""
    masked = samples.copy()
    for _ in range(draws.integer('n')):
        size = round(draws.number('size') / 1000 * around.sample_rate)
        size = min(size, len(samples) - 1)
        first = int(draws.rng.integers(len(samples) - size + 1))
        masked[first : first + size] = 0
    return masked


def dropout(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Replaces single samples by 0."""
    kept = draws.rng.random(len(samples), np.float32) >= draws.number('rate')
    return samples * kept


def add(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Adds normally distributed noise."""
    scale = np.float32(draws.number('stddev') * audio.INT16_SCALE)
    return samples + scale * draws.rng.standard_normal(len(samples), np.float32)


def multiply(samples: np.ndarray, draws: Draws, around: Surroundings) -> np.ndarray:
    """Multiplies by normally distributed numbers around 1."""
    scale = np.float32(draws.number('stddev'))
    return samples * (1 + scale * draws.rng.standard_normal(len(samples), np.float32))


FUNCTIONS = {
    'speed': speed,
    'tempo': tempo,
    'pitch': pitch,
    'overlay': overlay,
    'reverb': reverb,
    'resample': resample,
    'codec': codec,
    'volume': volume,
    'time_mask': time_mask,
    'dropout': dropout,
    'add': add,
    'multiply': multiply,
}
