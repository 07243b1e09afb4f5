"""Cuts a long recording at its pauses into parts that a network can recognise one by one.

A recording of up to LONGEST_S is one part. A longer one is cut in the middle of a pause; where
there is no pause, two parts overlap, and `joining` drops the words that both have.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from util import audio

SHORTEST_S, LONGEST_S = 5.0, 20.0  # s, length of a part of a longer recording
OVERLAP_S = 2.0  # s that two parts share where there is no pause
FRAME_S = 0.01  # s; the energy is measured in frames, and a cut lies between two of them
SMOOTHED_FRAMES = 3  # frames over which the energy is averaged
PAUSE_S = 0.15  # s, shortest pause; the closure of a plosive is shorter
GOOD_PAUSE_S = 0.4  # s; the first pause of this length is taken, otherwise the longest one
PAUSE_SHARE = 0.25  # a pause is below this share of the way from the quietest to the loudest, in dB
SPEECH_RANGE_DB = 5.0  # between the quietest and the loudest frames; less is noise without speech
LEAST_ENERGY = 1.0  # mean square of a sample of 16 bits; less counts as digital silence


class Part(NamedTuple):
    """A part of a recording."""

    samples: np.ndarray  # float64 [n_samples], in the range of 16-bit integers
    start_s: float  # s from the start of the recording
    shared_before_s: float = 0.0  # s at its start that the part before holds as well
    shared_after_s: float = 0.0  # s at its end that the next part holds as well


class _Cut(NamedTuple):
    """Where a part ends and the next one begins, in frames."""

    end: int
    next_start: int  # less than `end` if the parts overlap


def cut(blocks: Iterable[np.ndarray], sample_rate: int) -> Iterator[Part]:
    """Yields the parts of a recording, in their order; of a long one, parts without speech are left
    out.

    Args:
      blocks: the recording, float64 [n_samples] each, in the range of 16-bit integers. No more of
        it is read than the next part needs.
      sample_rate: Hz.
    """
    step = round(FRAME_S * sample_rate)
    longest, lookahead = _frames(LONGEST_S), _frames(LONGEST_S + SHORTEST_S)
    held, start, shared = np.zeros(0), 0, 0  # samples; `shared` of them were in the part before
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) > lookahead * step:
            part, next_start = _next_part(held, start, shared, longest, sample_rate)
            yield from part
            shared = part[0].shared_after_s if part else 0.0
            held, start = held[next_start:], start + next_start
    if start == 0 and len(held) <= LONGEST_S * sample_rate:
        yield Part(held, 0.0)
        return
    while len(held) > longest * step:
        latest = min(longest, len(held) // step - _frames(SHORTEST_S))
        part, next_start = _next_part(held, start, shared, latest, sample_rate)
        yield from part
        shared = part[0].shared_after_s if part else 0.0
        held, start = held[next_start:], start + next_start
    if not _is_silent(_energies(held, step)):
        yield Part(held, start / sample_rate, shared)


def _frames(seconds):
    """Returns a length in frames."""
    return round(seconds / FRAME_S)


def _next_part(held, start, shared, latest, sample_rate):
    """Cuts the next part off.

    Args:
      held: float64 [n_samples] from the start of the part on.
      start: the first of them, counted from the start of the recording.
      shared: s at the start that the part before holds as well.
      latest: frame at which the part ends at the latest.
      sample_rate: Hz.
    Returns:
      (list of the Part, empty if it has no speech; the sample of `held` at which the next part
      begins).
    """
    step = round(FRAME_S * sample_rate)
    energies = _energies(held[: latest * step], step)
    place = find_cut(energies, _frames(SHORTEST_S), latest)
    next_start = place.next_start * step
    if _is_silent(energies[: place.end]):
        return [], next_start
    after = (place.end - place.next_start) * step / sample_rate
    return [Part(held[: place.end * step], start / sample_rate, shared, after)], next_start


def find_cut(energies: np.ndarray, earliest: int, latest: int) -> _Cut:
    """Finds where to cut.

    Args:
      energies: float [n_frames], dB.
      earliest, latest: frames between which to cut.
    Returns:
      The middle of the first pause of GOOD_PAUSE_S or more, otherwise that of the longest pause;
      without any pause, the latest place and an overlap before it.
    """
    quiet, loud = np.percentile(energies, (5, 95))
    is_quiet = energies <= quiet + PAUSE_SHARE * (loud - quiet)
    changes = np.flatnonzero(np.diff(np.concatenate([[False], is_quiet[earliest:latest], [False]])))
    pauses = [
        (begin + earliest, end + earliest)
        for begin, end in zip(changes[::2].tolist(), changes[1::2].tolist())
        if end - begin >= _frames(PAUSE_S)
    ]
    if not pauses:
        return _Cut(latest, max(1, latest - _frames(OVERLAP_S)))
    good = [pause for pause in pauses if pause[1] - pause[0] >= _frames(GOOD_PAUSE_S)]
    begin, end = good[0] if good else max(pauses, key=lambda pause: pause[1] - pause[0])
    return _Cut((begin + end) // 2, (begin + end) // 2)


def _energies(samples, step):
    """Measures the energy of each frame.

    It is that of the pre-emphasised samples, on which an offset and hum have little influence.

    Args:
      samples: float64 [n_samples], in the range of 16-bit integers.
      step: samples of a frame.
    Returns:
      float64 [n_samples // step], dB, 0 for LEAST_ENERGY or less.
    """
    emphasised = samples[1:] - audio.PREEMPHASIS * samples[:-1]
    padded = np.concatenate([emphasised[:1], emphasised])  # one value for each sample
    frames = padded[: len(padded) // step * step].reshape(-1, step)
    power = np.convolve((frames**2).mean(axis=1), np.ones(SMOOTHED_FRAMES) / SMOOTHED_FRAMES, 'same')
    return 10 * np.log10(np.maximum(power, LEAST_ENERGY))


def _is_silent(energies):
    """Tells whether the energies in dB, float64 [n_frames], vary too little for speech."""
    return not len(energies) or energies.max() - np.percentile(energies, 10) < SPEECH_RANGE_DB
