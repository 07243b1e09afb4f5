"""util.recognition.alignment: CTC paths and losses worked out by hand, times of words."""

import itertools
import math

import numpy as np
import pytest

from helpers import run_graph
from util import text
from util.recognition import alignment
from util.recognition.alignment import Word
from util.tf1 import tf

BLANK = 2  # the labels are 0 and 1


def log_of(*rows):
    """Logarithms of the probabilities of each time step."""
    return np.log(np.array(rows))


def of_path(path, labels):
    """The labels of a path of labels and blanks, if it is one of `labels`."""
    merged = [label for label, _ in itertools.groupby(path)]
    return [label for label in merged if label != BLANK] == labels


def best_by_trying(log_probs, labels):
    """(logarithm of the probability of the best path, -ln of the sum over all paths)."""
    scores = [
        sum(log_probs[t, label] for t, label in enumerate(path))
        for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs))
        if of_path(path, labels)
    ]
    return max(scores), -math.log(sum(map(math.exp, scores)))


def test_the_best_path_through_two_labels():
    log_probs = log_of(
        [0.6, 0.1, 0.3],  # label 0, which is better than the blank
        [0.3, 0.3, 0.4],  # blank
        [0.1, 0.7, 0.2],  # label 1
        [0.2, 0.3, 0.5],  # blank
    )
    assert alignment.align(log_probs, [0, 1], BLANK).tolist() == [1, 2, 3, 4]


def test_two_equal_labels_have_a_blank_between_them_even_where_it_is_improbable():
    log_probs = log_of([0.8, 0.1, 0.1], [0.8, 0.1, 0.1], [0.8, 0.1, 0.1])
    assert alignment.align(log_probs, [0, 0], BLANK).tolist() == [1, 2, 3]
    assert alignment.align(log_probs, [0], BLANK).tolist() == [1, 1, 1]


def test_without_labels_all_is_blank():
    log_probs = log_of([0.8, 0.1, 0.1], [0.3, 0.3, 0.4])
    assert alignment.align(log_probs, [], BLANK).tolist() == [0, 0]
    assert alignment.loss(log_probs, [], BLANK) == pytest.approx(-math.log(0.1 * 0.4))


@pytest.mark.parametrize('labels', ([0], [1, 0], [0, 0], [0, 1, 0], [1, 1, 0]))
def test_path_and_loss_are_those_of_trying_all_paths(labels):
    logits = np.random.default_rng(len(labels)).normal(0, 2, (6, 3))
    log_probs = alignment.log_softmax(logits)
    path = alignment.align(log_probs, labels, BLANK)
    of_states = [BLANK if state % 2 == 0 else labels[state // 2] for state in path]
    best, loss = best_by_trying(log_probs, labels)
    assert of_path(of_states, labels)
    assert log_probs[np.arange(6), of_states].sum() == pytest.approx(best)
    assert alignment.loss(log_probs, labels, BLANK) == pytest.approx(loss)


def test_too_few_time_steps():
    log_probs = log_of([0.3, 0.3, 0.4], [0.3, 0.3, 0.4])
    with pytest.raises(ValueError, match='2 time steps are too few for 2 labels'):
        alignment.align(log_probs, [0, 0], BLANK)
    assert alignment.loss(log_probs, [0, 0], BLANK) == math.inf


def test_the_loss_is_that_of_tensorflow():
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 3, (37, 29)).astype(np.float32)
    labels = text.Alphabet().encode("all's well")

    def build():
        sparse = tf.SparseTensor([[0, i] for i in range(len(labels))], labels, [1, len(labels)])
        return tf.nn.ctc_loss(sparse, logits[:, None], [37])

    [expected] = run_graph(build)
    log_probs = alignment.log_softmax(logits)
    assert alignment.loss(log_probs, labels, 28) == pytest.approx(expected, rel=1e-5)


def test_log_softmax_of_large_logits():
    log_probs = alignment.log_softmax(np.array([[1000.0, 1000.0, -1000.0]], np.float32))
    np.testing.assert_allclose(np.exp(log_probs), [[0.5, 0.5, 0.0]])


# Words


def logits_of(path, alphabet, sure=0.9):
    """Logits whose probabilities are `sure` for each character of a path ('_' is the blank)."""
    n = alphabet.n_character
    rows = np.full((len(path), n), (1 - sure) / (n - 1))
    for row, char in zip(rows, path):
        row[alphabet.blank if char == '_' else alphabet.encode(char)[0]] = sure
    return np.log(rows) + 5  # what is added to all classes makes no difference


def test_words_begin_with_their_first_and_end_with_their_last_label():
    alphabet = text.Alphabet(' abc')
    logits = logits_of('_aa_b_ _cc__', alphabet)
    words = alignment.words(alphabet.encode('ab c'), logits, alphabet, 0.02, 100.0)
    assert [word.word for word in words] == ['ab', 'c']
    np.testing.assert_allclose(words[0][1:], (100.02, 100.10, 0.9))
    np.testing.assert_allclose(words[1][1:], (100.16, 100.20, 0.9))
    assert words[0].middle_s == pytest.approx(100.06)


def test_confidence_is_the_geometric_mean_over_the_frames_of_the_word():
    alphabet = text.Alphabet(' ab')
    logits = np.log(
        [
            [0.1, 0.1, 0.1, 0.7],
            [0.1, 0.8, 0.05, 0.05],  # a
            [0.1, 0.1, 0.3, 0.5],  # blank
            [0.1, 0.2, 0.4, 0.3],  # b
            [0.1, 0.1, 0.1, 0.7],
        ]
    )
    [word] = alignment.words([1, 2], logits, alphabet, 0.01)
    assert word.confidence == pytest.approx((0.8 * 0.5 * 0.4) ** (1 / 3))


def test_spaces_at_the_ends_and_in_a_row_make_no_words():
    alphabet = text.Alphabet(' ab')
    labels = alphabet.encode('  a  b ')
    words = alignment.words(labels, logits_of(' _ a _ b _ ', alphabet), alphabet, 1.0)
    assert [word.word for word in words] == ['a', 'b']
    assert alignment.words([0, 0], logits_of(' _ ', alphabet), alphabet, 1.0) == []
    assert alignment.words([], logits_of('___', alphabet), alphabet, 1.0) == []


def test_each_character_is_a_word_without_a_space_in_the_alphabet():
    alphabet = text.Alphabet('\u4f60\u597d')
    words = alignment.words([0, 1], logits_of('_\u4f60_\u597d', alphabet), alphabet, 0.5)
    assert [(word.word, word.start_s) for word in words] == [('\u4f60', 0.5), ('\u597d', 1.5)]


def test_without_logits_words_have_no_times():
    words = alignment.words(text.Alphabet().encode('one two'), None, text.Alphabet(), 0.02)
    assert words == [Word('one', None, None, None), Word('two', None, None, None)]
