"""Cuts a long recording at its pauses into parts that a network can recognise one by one.

A recording of up to LONGEST_S is one part, unchanged. A longer one is cut

- at each pause of LONG_PAUSE_S or more, because networks are trained on utterances, and long
  silence within one is something they have not seen;
- otherwise at the longest pause between SHORTEST_S and LONGEST_S;
- without any pause after LONGEST_S; the next part begins OVERLAP_S earlier, and `joining` drops the
  words that both have.

The silence at both ends of a part is left out but for a margin, and so is a part without speech.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from util import audio

SHORTEST_S, LONGEST_S = 5.0, 20.0  # s; a part between two long pauses may be shorter
OVERLAP_S = 2.0  # s that two parts share where there is no pause
LONG_PAUSE_S = 0.4  # s
PAUSE_S = 0.15  # s, shortest pause; the closure of a plosive is shorter
# Silence that a part keeps at its ends. The onset of a consonant may be quiet. The model of
# data/digits, trained on clips without silence, hears letters in more than this at the end.
MARGIN_BEFORE_S, MARGIN_AFTER_S = 0.15, 0.03  # s
SHORTEST_SPEECH_S = 0.1  # s; what is shorter, such as a click, is no word
FRAME_S = 0.01  # s; the energy is measured in frames, and a cut lies between two of them
SMOOTHED_FRAMES = 3  # frames over which the energy is averaged
QUIET_PERCENTILE, LOUD_PERCENTILE = 5, 99  # of the energies in dB: that of pauses, that of speech
QUIET_SHARE = 0.25  # what is quiet lies below this share of the way from the one to the other
QUIET_RANGE_DB = 5.0  # dB by which quiet noise may vary at least
LEAST_ENERGY = 1.0  # mean square of a sample of 16 bits; less counts as digital silence


class Part(NamedTuple):
    """A part of a recording."""

    samples: np.ndarray  # float64 [n_samples], in the range of 16-bit integers
    start_s: float  # s from the start of the recording
    shared_before_s: float = 0.0  # s at its start that the part before holds as well
    shared_after_s: float = 0.0  # s at its end that the next part holds as well


def cut(blocks: Iterable[np.ndarray], sample_rate: int) -> Iterator[Part]:
    """Yields the parts of a recording, in their order.

    Args:
      blocks: the recording, float64 [n_samples] each, in the range of 16-bit integers. It is read
        no further than the next part needs.
      sample_rate: Hz.
    """
    cutter = _Cutter(sample_rate)
    longest, shortest = _frames(LONGEST_S), _frames(SHORTEST_S)
    for block in blocks:
        cutter.append(block)
        while cutter.n_frames > longest + shortest:
            yield from cutter.next_part(longest)
    if cutter.start == 0 and len(cutter.held) <= LONGEST_S * sample_rate:
        yield Part(cutter.held, 0.0)
        return
    while cutter.n_frames > longest:
        yield from cutter.next_part(min(longest, cutter.n_frames - shortest))
    while cutter.n_frames:
        yield from cutter.next_part(cutter.n_frames, is_last=True)


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
        self._energies = np.zeros(0)  # mean square of each whole frame of `held`
        self._shared = 0  # frames at the start of `held` that the part before holds as well

    @property
    def n_frames(self) -> int:
        """Returns the number of whole frames in `held`."""
        return len(self._energies)

    def append(self, block: np.ndarray) -> None:
        """Adds the next block, float64 [n_samples].

        The energy is that of the pre-emphasised samples, on which an offset and hum have little
        influence.
        """
        known = self.n_frames * self._step
        self.held = np.concatenate([self.held, block])
        n_new = len(self.held) // self._step - self.n_frames
        samples = self.held[known : known + n_new * self._step]
        before = self.held[known - 1 : known] if known else samples[:1]
        emphasised = samples - audio.PREEMPHASIS * np.concatenate([before, samples[:-1]])
        new = (emphasised.reshape(-1, self._step) ** 2).mean(axis=1)
        self._energies = np.concatenate([self._energies, new])

    def next_part(self, latest: int, is_last: bool = False) -> list[Part]:
        """Cuts off the next part.

        Args:
          latest: frame at which it ends at the latest.
          is_last: whether the recording ends there.
        Returns:
          A list of the part; an empty one if it has no speech.
        """
        energies = in_decibels(self._energies[:latest])
        is_quiet = energies <= quiet_limit(energies)
        if is_last:
            end = next_start = find_long_pause(is_quiet) or latest
        else:
            end, next_start = find_cut(is_quiet)
        overlap = end - next_start
        loud = np.flatnonzero(~is_quiet[:end])
        parts = []
        if len(loud) and loud[-1] + 1 - loud[0] >= _frames(SHORTEST_SPEECH_S):
            first = 0 if self._shared else max(0, loud[0] - _frames(MARGIN_BEFORE_S))
            stop = end if overlap else min(end, loud[-1] + 1 + _frames(MARGIN_AFTER_S))
            parts.append(self._part(int(first), int(stop), overlap))
        self.held = self.held[next_start * self._step :]
        self.start += next_start * self._step
        self._energies = self._energies[next_start:]
        self._shared = overlap if parts else 0
        return parts

    def _part(self, first, stop, overlap):
        """Returns the Part of some frames; at its end it shares `overlap` frames with the next."""
        frame_s = self._step / self._rate
        return Part(
            self.held[first * self._step : stop * self._step],
            self.start / self._rate + first * frame_s,
            self._shared * frame_s,
            overlap * frame_s,
        )


def in_decibels(energies: np.ndarray) -> np.ndarray:
    """Returns smoothed energies in dB, from 0 for LEAST_ENERGY: float [n_frames] -> float64 of this
    shape."""
    padded = np.pad(energies, SMOOTHED_FRAMES // 2, 'edge')
    smoothed = np.convolve(padded, np.ones(SMOOTHED_FRAMES) / SMOOTHED_FRAMES, 'valid')
    return 10 * np.log10(np.maximum(smoothed, LEAST_ENERGY))


def quiet_limit(energies: np.ndarray) -> float:
    """Returns the energy in dB up to which a frame is quiet, given all energies, float
    [n_frames]."""
    quiet, loud = np.percentile(energies, (QUIET_PERCENTILE, LOUD_PERCENTILE))
    return quiet + max(QUIET_RANGE_DB, QUIET_SHARE * (loud - quiet))


def find_cut(is_quiet: np.ndarray) -> tuple[int, int]:
    """Finds where a part ends and the next one begins.

    Args:
      is_quiet: bool [n_frames], for the frames up to the last one at which the part may end.
    Returns:
      (end, start of the next part), in frames.
    """
    if is_quiet.all():  # speech may begin right behind it, and needs its margin
        return len(is_quiet), len(is_quiet) - _frames(MARGIN_BEFORE_S)
    long_pause = find_long_pause(is_quiet)
    if long_pause:
        return long_pause, long_pause
    earliest = _frames(SHORTEST_S)
    pauses = [(end - begin, begin) for begin, end in _runs(is_quiet[earliest:])]
    length, begin = max(pauses, default=(0, 0))
    if length >= _frames(PAUSE_S):
        middle = earliest + begin + length // 2
        return middle, middle
    return len(is_quiet), len(is_quiet) - _frames(OVERLAP_S)


def find_long_pause(is_quiet: np.ndarray) -> int | None:
    """Returns the middle of the first pause of LONG_PAUSE_S or more that comes after speech, in
    frames; None if there is none.

    Args:
      is_quiet: bool [n_frames].
    """
    for begin, end in _runs(is_quiet):
        if begin and end - begin >= _frames(LONG_PAUSE_S):
            return (begin + end) // 2
    return None


def _runs(values):
    """Lists (begin, end) of each run of True in a bool array."""
    edges = np.diff(np.concatenate([[False], values, [False]]))
    borders = np.flatnonzero(edges).tolist()
    return list(zip(borders[::2], borders[1::2]))
