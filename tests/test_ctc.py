"""util.ctc: the probabilities of several texts at once, by going through all paths."""

import itertools
import math

import numpy as np
import pytest

from util import ctc

BLANK = 2  # the labels are 0 and 1


def by_trying(log_probs, labels):
    """ln of the sum of the probabilities of all paths of labels."""
    total = 0.0
    for path in itertools.product(range(3), repeat=len(log_probs)):
        merged = [label for label, _ in itertools.groupby(path) if label != BLANK]
        if merged == labels:
            total += math.exp(sum(log_probs[t, label] for t, label in enumerate(path)))
    return math.log(total) if total else -math.inf


def test_log_softmax():
    found = ctc.log_softmax(np.log(np.float32([[1, 3], [2000, 500]])))
    np.testing.assert_allclose(np.exp(found), [[0.25, 0.75], [0.8, 0.2]], rtol=1e-6)
    assert found.dtype == np.float64


@pytest.mark.parametrize('n_steps', (1, 2, 5))
def test_the_probabilities_of_texts_of_all_lengths(n_steps):
    log_probs = ctc.log_softmax(np.random.RandomState(n_steps).normal(size=(n_steps, 3)))
    texts = [list(each) for n in range(5) for each in itertools.product((0, 1), repeat=n)]
    found = ctc.log_probabilities(log_probs, texts, BLANK)
    np.testing.assert_allclose(found, [by_trying(log_probs, labels) for labels in texts])


def test_the_states_of_labels():
    states, passes_blank = ctc.states_of([0, 0, 1], BLANK)
    assert states.tolist() == [2, 0, 2, 0, 2, 1, 2]
    assert passes_blank.tolist() == [False] * 5 + [True, False]
