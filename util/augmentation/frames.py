"""Augmentations of frames: of the logarithms of mel energies, and of MFCC.

All functions take and return float32 [n_steps, n] and leave what they are given as it is. Of a
spectrogram, the last column is the logarithm of the energy of the whole frame. It takes part in
what happens along the time, but not in what happens to bands.
"""

from typing import NamedTuple

import numpy as np

from util.augmentation.draws import Draws


class Layout(NamedTuple):
    """What the rows and columns of frames are."""

    step_ms: float  # ms from one time step to the next
    bands: int  # number of the columns that are bands or coefficients, from the first


def warp(frames: np.ndarray, draws: Draws, layout: Layout) -> np.ndarray:
    """Shifts points in time and in frequency, with what is around them.

    Source: time warping of SpecAugment (Park et al., arXiv:1904.08779), and the warp of DeepSpeech
      0.9, whose points are a grid, whereas here time and frequency are warped one after the other.
    """
    bands = layout.bands
    warped = _interpolated(frames, _places(len(frames), draws, 'nt', 'wt'))
    return np.hstack(
        [_interpolated(warped[:, :bands].T, _places(bands, draws, 'nf', 'wf')).T, warped[:, bands:]]
    )


def _places(size, draws, points, strength):
    """Draws where the values of a warped axis come from: float [size], rising from 0 to size - 1.

    Both ends stay, as do the places if there is nothing to shift.
    """
    n, strength = draws.integer(points), draws.number(strength)
    scale = strength * size / (2 * (n + 1))
    shifts = np.pad(scale * draws.rng.standard_normal(n), 1)
    places = np.arange(size) + np.interp(np.arange(size), np.linspace(0, size - 1, n + 2), shifts)
    return np.maximum.accumulate(np.clip(places, 0, size - 1))


def _interpolated(rows, places):
    """Returns rows, float32 [n, m], at other places, float [n], by linear interpolation."""
    index = np.minimum(places.astype(int), max(len(rows) - 2, 0))
    weight = (places - index).astype(np.float32)[:, None]
    return (1 - weight) * rows[index] + weight * rows[np.minimum(index + 1, len(rows) - 1)]


def frequency_mask(frames: np.ndarray, draws: Draws, layout: Layout) -> np.ndarray:
    """Replaces groups of neighbouring bands by their mean over the utterance.

    Source: SpecAugment (Park et al., arXiv:1904.08779), where the mean is 0.
    """
    masked, means = frames.copy(), frames.mean(axis=0)
    for _ in range(draws.integer('n')):
        size = min(draws.integer('size'), layout.bands - 1)
        first = int(draws.rng.integers(layout.bands - size + 1))
        masked[:, first : first + size] = means[first : first + size]
    return masked


def time_mask(frames: np.ndarray, draws: Draws, layout: Layout) -> np.ndarray:
    """Replaces parts of the utterance by the mean frame.

    Source: as `frequency_mask`.
    """
    masked, mean = frames.copy(), frames.mean(axis=0)
    for _ in range(draws.integer('n')):
        size = min(round(draws.number('size') / layout.step_ms), len(frames) - 1)
        first = int(draws.rng.integers(len(frames) - size + 1))
        masked[first : first + size] = mean
    return masked


def dropout(frames: np.ndarray, draws: Draws, layout: Layout) -> np.ndarray:
    """Replaces single values by the mean of their column."""
    rate, result = draws.number('rate'), frames.copy()
    bands = result[:, : layout.bands]
    dropped = draws.rng.random(bands.shape, np.float32) < rate
    np.copyto(bands, bands.mean(axis=0), where=dropped)
    return result


def add(frames: np.ndarray, draws: Draws, layout: Layout) -> np.ndarray:
    """Adds normally distributed numbers."""
    scale, result = np.float32(draws.number('stddev')), frames.copy()
    bands = result[:, : layout.bands]
    bands += scale * draws.rng.standard_normal(bands.shape, np.float32)
    return result


def multiply(frames: np.ndarray, draws: Draws, layout: Layout) -> np.ndarray:
    """Multiplies by normally distributed numbers around 1."""
    scale, result = np.float32(draws.number('stddev')), frames.copy()
    bands = result[:, : layout.bands]
    bands *= 1 + scale * draws.rng.standard_normal(bands.shape, np.float32)
    return result


FUNCTIONS = {
    'warp': warp,
    'frequency_mask': frequency_mask,
    'time_mask': time_mask,
    'dropout': dropout,
    'add': add,
    'multiply': multiply,
}
