"""util.graph.regularisation: weight decay and label smoothing, against values worked out by hand or
by NumPy."""

import numpy as np
import pytest

import DeepSpeech
from helpers import load_config, run_graph, unoptimised
from util.graph import handles, regularisation
from util.tf1 import tf

WEIGHTS = np.array([[2.0, -4.0, 1.0], [0.5, 8.0, -1.0]], np.float32)
BIAS = np.array([3.0, -5.0], np.float32)


def updates(weight_decay, gradients, rate=0.1):
    """(matrix, bias, names of all variables) after an update with each of (gradient of the matrix,
    gradient of the bias)."""
    with tf.Graph().as_default(), tf.Session(config=unoptimised()) as session:
        w, b = tf.get_variable('w', initializer=WEIGHTS), tf.get_variable('b', initializer=BIAS)
        learning_rate = tf.placeholder_with_default(9.0, [])
        config = load_config(weight_decay=weight_decay)
        optimizer = DeepSpeech.create_optimizer(config, learning_rate)
        fed = tf.placeholder(tf.float32, [2, 3]), tf.placeholder(tf.float32, [2])
        step = tf.train.get_or_create_global_step()
        update = DeepSpeech.apply_gradients(optimizer, list(zip(fed, (w, b))), step)
        session.run(tf.global_variables_initializer())
        for values in gradients:
            session.run(update, {**dict(zip(fed, values)), learning_rate: rate})
        names = sorted(v.op.name for v in tf.global_variables())
        assert session.run(step) == len(gradients)
        return (*session.run([w, b]), names)


def test_without_a_gradient_only_the_matrix_decays():
    nothing = (np.zeros([2, 3]), np.zeros(2))
    matrix, bias, _ = updates(0.5, [nothing, nothing])
    np.testing.assert_allclose(matrix, WEIGHTS * 0.95**2, rtol=1e-6)  # 1 - 0.1 * 0.5
    np.testing.assert_array_equal(bias, BIAS)


def test_the_decay_is_added_to_the_step_of_adam():
    rng = np.random.default_rng(1)
    gradients = [(rng.normal(size=(2, 3)), rng.normal(size=2))]
    plain, plain_bias, names = updates(0, gradients)
    decayed, bias, decayed_names = updates(0.5, gradients)
    # Adam's step is that of the plain update, as the gradients and its moments are the same
    np.testing.assert_allclose(decayed - plain, -0.1 * 0.5 * WEIGHTS, atol=1e-6)
    np.testing.assert_array_equal(bias, plain_bias)
    assert decayed_names == names and 'w/Adam_1' in names


def test_the_decay_waits_for_all_gradients():
    """A gradient that is read from the matrix must see it as it was."""
    with tf.Graph().as_default(), tf.Session(config=unoptimised()) as session:
        w, b = tf.get_variable('w', initializer=WEIGHTS), tf.get_variable('b', initializer=BIAS)
        seen = []

        def slow(value):
            seen.append(value.copy())
            return np.zeros(2, np.float32)

        gradient = tf.numpy_function(slow, [w.read_value()], tf.float32)
        gradient.set_shape([2])
        optimizer = regularisation.DecayingAdam(0.5, 0.1)
        update = optimizer.apply_gradients([(tf.zeros([2, 3]), w), (gradient, b)])
        session.run(tf.global_variables_initializer())
        session.run(update)
        session.run(update)
    np.testing.assert_array_equal(seen[0], WEIGHTS)
    np.testing.assert_allclose(seen[1], 0.95 * WEIGHTS, rtol=1e-6)


# Label smoothing

T, B, N_CHARACTER = 7, 3, 5
LENGTHS, LABELS = [7, 4, 2], [[0, 1, 1], [2, 3, 0], [3, 0, 0]]
LABEL_LENGTHS = [3, 2, 1]


def tower(logits):
    """handles.TowerResult of logits, float32 [T, B, N_CHARACTER]."""
    labels = DeepSpeech.text.ctc_label_dense_to_sparse(
        tf.constant(LABELS, tf.int32), tf.constant(LABEL_LENGTHS, tf.int32)
    )
    seq_len = tf.constant(LENGTHS)
    losses = DeepSpeech._ctc_loss(logits, labels, seq_len, False)
    values = dict.fromkeys(handles.TowerResult._fields)
    values.update(
        total_loss=losses, avg_loss=tf.reduce_mean(losses), logits=logits, seq_len=seq_len
    )
    return handles.TowerResult(**values)


def smoothed(logits, smoothing):
    """(smoothed loss, its gradient, CTC loss, its gradient) of logits."""

    def build():
        given = tf.constant(logits)
        result = tower(given)
        loss = regularisation.smoothed_loss(result, smoothing)
        return (
            loss,
            tf.gradients(loss, given)[0],
            result.avg_loss,
            tf.gradients(result.avg_loss, given)[0],
        )

    return run_graph(build)


def log_softmax(logits):
    shifted = logits - logits.max(axis=2, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))


def random_logits():
    return np.random.default_rng(5).normal(0, 2, (T, B, N_CHARACTER)).astype(np.float32)


def test_the_divergence_from_the_uniform_distribution_is_added_up_over_the_steps():
    logits = random_logits()
    loss, _, ctc, _ = smoothed(logits, 0.2)
    divergence = 0.0
    for b, length in enumerate(LENGTHS):
        for t in range(length):
            q = log_softmax(logits.astype(float))[t, b]
            divergence += sum((np.log(1 / 5) - q[c]) / 5 for c in range(5)) / B
    assert loss == pytest.approx(0.8 * ctc + 0.2 * divergence, rel=1e-6)


def test_the_gradient_is_that_of_smoothed_targets():
    logits = random_logits()
    _, gradient, _, of_ctc = smoothed(logits, 0.2)
    softmax = np.exp(log_softmax(logits.astype(float)))
    expected = np.zeros_like(softmax)
    for b, length in enumerate(LENGTHS):
        targets = softmax[:length, b] - B * of_ctc[:length, b]  # CTC's posterior probabilities
        np.testing.assert_allclose(targets.sum(axis=1), 1, atol=1e-5)
        expected[:length, b] = (softmax[:length, b] - (0.8 * targets + 0.2 / 5)) / B
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_equal_logits_need_no_smoothing():
    loss, _, ctc, _ = smoothed(np.zeros((T, B, N_CHARACTER), np.float32), 0.25)
    assert loss == pytest.approx(0.75 * ctc, rel=1e-6)


def test_only_what_is_differentiated_changes():
    config = load_config(label_smoothing=0.3)
    plain, trained = run_graph(
        lambda: [
            DeepSpeech._training_loss(tower(tf.constant(random_logits())), each)
            for each in (load_config(), config)
        ]
    )
    loss, _, ctc, _ = smoothed(random_logits(), 0.3)
    assert (plain, trained) == (pytest.approx(ctc), pytest.approx(loss))
