"""The probability of texts under the output of a network, by CTC.

CTC puts a blank between any two labels and at both ends, here the states 0, 2, 4, ...; the states
1, 3, 5, ... are the labels. A path is in one state at each time step. It stays there, goes on to
the next state, or passes over a blank between two different labels.

T = time steps, L = number of labels, S = 2*L + 1 states in comments on shapes.
Source: Graves et al., ICML 2006, section 4.1.
"""

from collections.abc import Sequence

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the logarithms of the probabilities: float [T, n_character] -> float64 of this
    shape."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def states_of(labels: Sequence[int], blank: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the label of each state, int [S], and whether its path may pass over the blank before
    it, bool [S]."""
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    passes_blank = np.zeros(len(states), bool)
    passes_blank[3::2] = states[3::2] != states[1:-2:2]
    return states, passes_blank


def log_probabilities(
    log_probs: np.ndarray, texts: Sequence[Sequence[int]], blank: int
) -> np.ndarray:
    """Computes the natural logarithm of the probability of texts, summed over all paths.

    Args:
      log_probs: float [T, n_character], as `log_softmax` returns them.
      texts: the labels of N texts.
      blank: the label of the blank.
    Returns:
      float64 [N]; minus infinity where there are too few time steps for the labels.
    """
    n_states = [2 * len(labels) + 1 for labels in texts]
    states = np.full((len(texts), max(n_states)), blank)  # what is behind a text's own is not used
    barred = np.full(states.shape, -np.inf)  # 0 where a path may pass over a blank
    for row, labels in enumerate(texts):
        own, passes_blank = states_of(labels, blank)
        states[row, : len(own)] = own
        barred[row, : len(own)][passes_blank] = 0.0
    scores = np.full((len(texts), states.shape[1] + 2), -np.inf)  # two more states before the first
    scores[:, 2:4] = log_probs[0][states[:, :2]]
    for emission in log_probs[1:]:
        moved = np.logaddexp(scores[:, 2:], scores[:, 1:-1])
        scores[:, 2:] = np.logaddexp(moved, scores[:, :-2] + barred) + emission[states]
    ends = np.array(n_states) + 1  # the last blank's state in `scores`
    rows = np.arange(len(texts))
    # the state before the blank of an empty text is outside, and minus infinity
    return np.logaddexp(scores[rows, ends], scores[rows, ends - 1])
