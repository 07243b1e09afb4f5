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


def cut(blocks: Iterable[np.ndarray], sample_rate: int) -> Iterator[Part]:
    """Yields the parts of a recording, in their order; of a long one, parts without speech are left
    out.

    Args:
      blocks: the recording, float64 [n_samples] each, in the range of 16-bit integers. It is read
        no further than the next part needs.
      sample_rate: Hz.
    """
    cutter = _Cutter(sample_rate)
    longest, shortest = _frames(LONGEST_S), _frames(SHORTEST_S)
    for block in blocks:
        cutter.held = np.concatenate([cutter.held, block])
        while cutter.n_frames > longest + shortest:
            yield from cutter.next_part(longest)
    if cutter.start == 0 and len(cutter.held) <= LONGEST_S * sample_rate:
        yield Part(cutter.held, 0.0)
        return
    while cutter.n_frames > longest:
        yield from cutter.next_part(min(longest, cutter.n_frames - shortest))
    yield from cutter.last_part()


def _frames(seconds):
    """Returns a length in frames."""
    return round(seconds / FRAME_S)


class _Cutter:
    """Cuts parts off a recording.

    Attributes:
      held: float64 [n_samples], what was read of the recording and is not in a part yet.
      start: the first sample of `held`, counted from the start of the recording.
    """

    def __init__(self, sample_rate: int):
        self.held, self.start = np.zeros(0), 0
        self._rate = sample_rate
        self._step = round(FRAME_S * sample_rate)  # samples of a frame
        self._shared_s = 0.0  # s at the start of `held` that the part before holds as well

    @property
    def n_frames(self) -> int:
        """Returns the number of whole frames in `held`."""
        return len(self.held) // self._step

    def next_part(self, latest: int) -> list[Part]:
        """Cuts off the next part, which ends with the frame `latest` at the latest.

        Returns:
          A list of the part; an empty one if it has no speech.
        """
        energies = _energies(self.held[: latest * self._step], self._step)
        end, next_start = find_cut(energies, _frames(SHORTEST_S), latest)
        shared_s = (end - next_start) * self._step / self._rate
        parts = self._part(self.held[: end * self._step], energies[:end], shared_s)
        self.held = self.held[next_start * self._step :]
        self.start += next_start * self._step
        self._shared_s = shared_s if parts else 0.0
        return parts

    def last_part(self) -> list[Part]:
        """Returns what is left, as `next_part` does."""
        return self._part(self.held, _energies(self.held, self._step), 0.0)

    def _part(self, samples, energies, shared_after_s):
        """Returns a list of the Part of these samples, empty if they have no speech."""
        if _is_silent(energies):
            return []
        return [Part(samples, self.start / self._rate, self._shared_s, shared_after_s)]


def find_cut(energies: np.ndarray, earliest: int, latest: int) -> tuple[int, int]:
    """Finds where a part ends and the next one begins.

    Args:
      energies: float [n_frames], dB.
      earliest, latest: frames between which to cut.
    Returns:
      (end, start of the next part), in frames. Both are the middle of the first pause of
      GOOD_PAUSE_S or more, otherwise that of the longest pause. Without a pause the part ends as
      late as possible, and the next one begins OVERLAP_S before that.
    """
    quiet, loud = np.percentile(energies, (5, 95))
    is_quiet = energies <= quiet + PAUSE_SHARE * (loud - quiet)
    edges = np.diff(np.concatenate([[False], is_quiet[earliest:latest], [False]]))
    borders = (earliest + np.flatnonzero(edges)).tolist()
    pauses = list(zip(borders[::2], borders[1::2]))
    lengths = [end - begin for begin, end in pauses]
    longest = max(lengths, default=0)
    if longest < _frames(PAUSE_S):
        return latest, latest - _frames(OVERLAP_S)
    wanted = min(longest, _frames(GOOD_PAUSE_S))
    begin, end = next(pause for pause, length in zip(pauses, lengths) if length >= wanted)
    return (begin + end) // 2, (begin + end) // 2


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
    power = np.convolve(
        (frames**2).mean(axis=1), np.ones(SMOOTHED_FRAMES) / SMOOTHED_FRAMES, 'same'
    )
    return 10 * np.log10(np.maximum(power, LEAST_ENERGY))


def _is_silent(energies):
    """Tells whether the energies in dB, float64 [n_frames], vary too little for speech."""
    return not len(energies) or energies.max() - np.percentile(energies, 10) < SPEECH_RANGE_DB
