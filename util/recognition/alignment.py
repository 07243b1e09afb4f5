"""Aligns labels with the output of the network by CTC: when each word was said, and how surely.

CTC puts a blank between any two labels and at both ends, here the states 0, 2, 4, ...; the states
1, 3, 5, ... are the labels. A path is in one state at each time step. It stays there, goes on to
the next state, or passes over a blank between two different labels.

T = time steps, L = number of labels, S = 2*L + 1 states in comments on shapes.
Source: Graves et al., ICML 2006, section 4.1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from util import text
from util.ctc import log_probabilities, log_softmax, states_of

SPACE = ' '


class Word(NamedTuple):
    """A recognised word; its times are those of the recording."""

    word: str
    start_s: float | None  # s; None if the model gives no times
    end_s: float | None  # s
    confidence: float | None  # from 0 to 1, geometric mean of the probabilities along its path

    @property
    def middle_s(self) -> float:
        """Returns the time of the middle of the word in seconds; the word must have times."""
        assert self.start_s is not None and self.end_s is not None
        return (self.start_s + self.end_s) / 2


def align(log_probs: np.ndarray, labels: Sequence[int], blank: int) -> np.ndarray:
    """Finds the most probable path through labels, by Viterbi's algorithm.

    Args:
      log_probs: float [T, n_character], as `log_softmax` returns them.
      labels: L labels.
      blank: the label of the blank.
    Returns:
      int [T]: the state of each time step; state 2*i + 1 is labels[i].
    Raises:
      ValueError: there are fewer time steps than CTC needs for the labels.
    """
    states, passes_blank = states_of(labels, blank)
    scores = _first_scores(log_probs[:, states])
    backwards = np.empty((len(log_probs), len(states)), np.int8)  # steps back of the best way here
    for t, emission in enumerate(log_probs[1:, states], 1):
        ways = np.stack([scores, *_earlier(scores, passes_blank)])
        backwards[t] = ways.argmax(axis=0)
        scores = ways.max(axis=0) + emission
    state = len(states) - 1  # the path ends in the last blank or the last label
    if len(states) > 1 and scores[-2] > scores[-1]:
        state -= 1
    if scores[state] == -np.inf:
        raise ValueError('%d time steps are too few for %d labels' % (len(log_probs), len(labels)))
    path = np.empty(len(log_probs), int)
    for t in range(len(path) - 1, -1, -1):
        path[t] = state
        state -= int(backwards[t, state]) if t else 0
    return path


def loss(log_probs: np.ndarray, labels: Sequence[int], blank: int) -> float:
    """Computes the CTC loss: -ln of the probability of the labels, summed over all paths.

    Args:
      log_probs, labels, blank: as in `align`.
    Returns:
      The loss; infinity if there are too few time steps for the labels.
    """
    return -float(log_probabilities(log_probs, [labels], blank)[0])


def _first_scores(emissions):
    """Returns the logarithm of the probability of each state at the first time step, float64 [S]:
    a path begins in the first blank or the first label.

    Args:
      emissions: float [T, S].
    """
    scores = np.full(emissions.shape[1], -np.inf)
    scores[:2] = emissions[0, :2]
    return scores


def _earlier(scores, passes_blank):
    """Returns, for each state, the scores of the state before it and of the one before that, from
    which a path may come; both float64 [S]."""
    one_back = np.concatenate([[-np.inf], scores[:-1]])
    two_back = np.concatenate([[-np.inf, -np.inf], scores[:-2]])[: len(scores)]
    return one_back, np.where(passes_blank, two_back, -np.inf)


def words(
    labels: Sequence[int],
    logits: np.ndarray | None,
    alphabet: text.Alphabet,
    step_s: float,
    start_s: float = 0.0,
) -> list[Word]:
    """Splits labels into words and finds their times.

    A word begins with the first time step of its first label and ends with the last time step of
    its last label. The labels of CTC come in short peaks, so that these times may lie somewhat
    inside the spoken word. In an alphabet without a space, each character is a word.

    Args:
      labels: the labels of the text.
      logits: float [T, n_character] of the network; None: the words get no times.
      alphabet: text.Alphabet.
      step_s: s from a time step to the next one.
      start_s: s, the time of the first step in the recording.
    """
    groups = _group(labels, alphabet)
    if logits is None or not groups:
        return [Word(alphabet.decode(labels[i] for i in group), *[None] * 3) for group in groups]
    log_probs = log_softmax(logits)
    path = align(log_probs, labels, alphabet.blank)
    states, _ = states_of(labels, alphabet.blank)
    along_path = log_probs[np.arange(len(path)), states[path]]
    found = []
    for group in groups:
        first = int(np.searchsorted(path, 2 * group[0] + 1))  # a path never goes back
        stop = int(np.searchsorted(path, 2 * group[-1] + 1, 'right'))
        found.append(
            Word(
                alphabet.decode(labels[i] for i in group),
                start_s + first * step_s,
                start_s + stop * step_s,
                float(np.exp(along_path[first:stop].mean())),
            )
        )
    return found


def _group(labels, alphabet):
    """Returns the positions of the labels of each word, a list of lists."""
    if SPACE not in alphabet:
        return [[i] for i in range(len(labels))]
    groups: list[list[int]] = [[]]
    for i, label in enumerate(labels):
        if alphabet.labels[label] == SPACE:
            groups.append([])
        else:
            groups[-1].append(i)
    return [group for group in groups if group]
