"""Joins the words of the parts of a recording."""

import bisect
from collections.abc import Sequence

from util.recognition.alignment import Word

SAME_TIME_S = 0.3  # s by which the times of one word in two parts may differ
MOST_SHARED = 12  # words that fit into the overlap of two parts


def joint(
    left: Sequence[Word], right: Sequence[Word], shared: tuple[float, float]
) -> tuple[int, int]:
    """Finds where the words of two overlapping parts are joined, so that no word is doubled.

    The joint is at a word that both parts have at the same time, the one nearest to the middle of
    the overlap. So words that the cut has gone through are left out: they come after that word in
    the left part, or before it in the right one. Without such a word, the middle of the overlap
    is the joint. If the words have no times, the joint is found by their text alone.

    Args:
      left, right: the words of the two parts.
      shared: (start, end) of what both parts hold, in seconds of the recording.
    Returns:
      (i, j): the words left[:i] and right[j:] are to be kept.
    """
    if any(word.start_s is None for word in (*left, *right)):
        return _joint_by_text(left, right)
    start, end = shared
    middle = (start + end) / 2
    both = [
        (abs(word.middle_s - middle), i, j)
        for i, word in enumerate(left)
        if word.middle_s > start - SAME_TIME_S
        for j, other in enumerate(right)
        if word.word == other.word and abs(word.middle_s - other.middle_s) <= SAME_TIME_S
    ]
    if both:
        return min(both)[1:]
    return (
        bisect.bisect_left([word.middle_s for word in left], middle),
        bisect.bisect_left([word.middle_s for word in right], middle),
    )


def _joint_by_text(left, right):
    """Finds the joint of words without times: the longest run of words that ends the left part and
    begins the right one is kept once. A further word may stand on either side of the joint, as the
    cut may have gone through it; it is left out."""
    for length in range(min(MOST_SHARED, len(left), len(right)), 0, -1):
        for after, before in ((0, 0), (1, 0), (0, 1), (1, 1)):
            end = len(left) - after
            run = [word.word for word in left[max(0, end - length) : end]]
            if run == [word.word for word in right[before : before + length]]:
                return end, before + length
    return len(left), 0
