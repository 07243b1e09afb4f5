"""What the tests of util/augmentation share: draws, tones, settings."""

import numpy as np

from helpers import RATE
from util import augment_setting as setting
from util.augmentation import noise, stored_samples, waveforms
from util.augmentation.draws import Draws

SEED_EPOCH_UTTERANCE = [4567, 3, 12345]


def draws_of(written, position=0, share=0.0, key=None):
    """Returns the Draws of an item as it is written."""
    return Draws(setting.parse_item(written), [*(key or SEED_EPOCH_UTTERANCE), position], share)


def augmented(written, samples, rate=RATE, shortest=400, **options):
    """Applies an item that acts on samples."""
    draws = draws_of(written, **options)
    sources = [draws.item.values['source']] if draws.item.name == 'overlay' else []
    noises = noise.Noises(sources, rate, stored_samples.StoredSamples(rate, 1.0))
    around = waveforms.Surroundings(rate, shortest, noises)
    return waveforms.FUNCTIONS[draws.item.name](samples, draws, around)


def tone(frequency, seconds=1.0, rate=RATE):
    """Returns a tone, float32 [n], of amplitude 8000."""
    t = np.arange(round(seconds * rate)) / rate
    return (8000 * np.sin(2 * np.pi * frequency * t)).astype(np.float32)


def click(place, length=8000):
    """Returns silence with one loud sample, float32 [length]."""
    samples = np.zeros(length, np.float32)
    samples[place] = 20000
    return samples


def loudest(samples):
    """Returns the place of the loudest sample."""
    return int(np.abs(samples).argmax())


def frequency(samples, rate=RATE):
    """Returns the strongest frequency, in Hz, to about 0.1 Hz."""
    points = 1 << 18
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), points))
    return spectrum.argmax() * rate / points


def decibels(samples, others):
    """Returns the ratio of the powers of samples and others, in dB."""
    power, other = (float(np.mean(np.square(each, dtype=float))) for each in (samples, others))
    return 10 * np.log10(power / other)
