"""util.graph.layers: the clipped ReLU, layer normalisation, their gradients, dropout masks."""

import numpy as np
import pytest

from helpers import run_graph
from util.graph import layers
from util.tf1 import tf


def test_gradient_of_the_clipped_layer_is_the_automatic_one():
    """4 x 3 -> 5 units: some below 0, some clipped at 0.8, some dropped."""
    rng = np.random.default_rng(1)
    x, weights, bias = [
        rng.normal(size=shape).astype(np.float32) for shape in ((4, 3), (3, 5), (5,))
    ]
    keep = (rng.random((4, 5)) < 0.8).astype(np.float32)
    d_y = rng.normal(size=(4, 5)).astype(np.float32)

    def build():
        tensors = [tf.constant(value) for value in (x, weights, bias)]
        own = layers.clipped_relu(*tensors, 0.8, keep)
        plain = tf.minimum(tf.nn.relu(tf.matmul(*tensors[:2]) + tensors[2]), 0.8) * keep
        return [(y, *tf.gradients(y, tensors, grad_ys=d_y)) for y in (own, plain)]

    own, plain = run_graph(build)
    y = plain[0]
    for there in (y == np.float32(0.8), (y == 0) & (keep > 0), (y > 0) & (y < 0.8)):
        assert there.any()
    for got, expected in zip(own, plain):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_the_ceiling_is_closed_to_gradients_however_it_rounds():
    def build():
        gradients = []
        for ceiling in (20.0, 0.7, 3.3, 1e-3, 12345.67, 20 / 0.95, 0.0):
            x = tf.constant([[2 * ceiling]])
            y = layers.clipped_relu(x, tf.ones([1, 1]), tf.zeros([1]), ceiling)
            gradients.append(tf.gradients(y, x)[0])
        return gradients

    assert not np.any(run_graph(build))


def normalise(x, gain, bias, keep):
    """Layer normalisation by NumPy in float64."""
    x = x.astype(float)
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return ((x - mean) / np.sqrt(variance) * gain + bias) * keep


def norm_values(rows=4, units=5):
    """(x, gain, bias, keep, gradient of the output)."""
    rng = np.random.default_rng(2)
    x, gain, bias, d_y = [
        rng.normal(1, 2, shape).astype(np.float32)
        for shape in ((rows, units), units, units, (rows, units))
    ]
    return x, gain, bias, (rng.random((rows, units)) < 0.7).astype(np.float32), d_y


def test_layer_norm_by_hand():
    # means 2 and 0; deviations sqrt(2/3) * 3 and 1
    x, gain, bias = [[5.0, 2.0, -1.0, 2.0], [1.0, -1.0, 1.0, -1.0]], [1, 2, 1, 1], [0, 0, 7, 0]
    y = run_graph(lambda: layers.layer_norm(*[tf.constant(v, tf.float32) for v in (x, gain, bias)]))
    root = np.sqrt(2)
    np.testing.assert_allclose(y, [[root, 0, 7 - root, 0], [1, -2, 8, -1]], atol=1e-6)


@pytest.mark.parametrize('dropped', (False, True))
def test_gradient_of_layer_norm_is_the_numeric_one(dropped):
    x, gain, bias, keep, d_y = norm_values()
    keep = keep if dropped else np.ones_like(keep)

    def build():
        tensors = [tf.constant(value) for value in (x, gain, bias)]
        y = layers.layer_norm(*tensors, tf.constant(keep) if dropped else None)
        return (y, *tf.gradients(y, tensors, grad_ys=d_y))

    y, *got = run_graph(build)
    np.testing.assert_allclose(y, normalise(x, gain, bias, keep), atol=1e-5)
    values = [value.astype(float) for value in (x, gain, bias)]
    for value, gradient in zip(values, got):
        for index in np.ndindex(value.shape):
            kept, ends = value[index], []
            for change in (1e-5, -1e-5):
                value[index] = kept + change
                ends.append((normalise(*values, keep) * d_y).sum())
            value[index] = kept
            assert gradient[index] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-4)


def test_layer_norm_of_equal_units_is_the_bias():
    def build():
        x = tf.constant([[0.0] * 3, [20.0] * 3])
        y = layers.layer_norm(x, tf.ones([3]), tf.constant([1.0, 2.0, 3.0]))
        return y, tf.gradients(y, x, grad_ys=tf.ones([2, 3]))[0]

    y, gradient = run_graph(build)
    np.testing.assert_allclose(y, [[1, 2, 3]] * 2, atol=1e-6)
    assert np.isfinite(gradient).all()


def mask(layer=1, step=0, tower=0, training=True, rate=0.25, seed=7, units=50):
    dropout = layers.Dropout(
        tf.constant(training), tf.constant([seed, (step << 16) + (tower << 8)], tf.int64)
    )
    return layers.dropout_mask(100, units, rate, layer, dropout)


def test_dropout_depends_on_seed_step_tower_and_layer_alone():
    values = run_graph(
        lambda: [
            keep
            for keep, _ in (
                mask(),
                mask(),
                mask(layer=2),
                mask(step=1),
                mask(tower=1),
                mask(seed=8),
            )
        ]
    )
    np.testing.assert_array_equal(values[0], values[1])
    for other in values[2:]:
        assert (values[0] != other).any()


@pytest.mark.parametrize('rate', (0.25, 0.05, 0.9))
def test_dropout_keeps_the_mean_and_is_off_outside_training(rate):
    (keep, scale), off, odd = run_graph(
        lambda: [mask(rate=rate), mask(rate=rate, training=False), mask(rate=rate, units=51)[0]]
    )
    assert keep.shape == (100, 50) and odd.shape == (100, 51)
    assert set(np.unique(keep)) == set(np.unique(odd)) == {0, 1}
    assert abs((keep * scale).mean() - 1) < 4 * np.sqrt(rate / (1 - rate) / keep.size)
    assert scale == pytest.approx(1 / (1 - rate), rel=2e-4)  # 16 bits at 0.9
    assert abs(np.corrcoef(keep[:, ::2].ravel(), keep[:, 1::2].ravel())[0, 1]) < 0.06
    np.testing.assert_array_equal(off[0], [[1]])
    assert off[1] == 1


def test_dropout_of_nearly_everything_leaves_something():
    keep, scale = run_graph(lambda: mask(rate=0.999999))
    assert np.isfinite(scale) and set(np.unique(keep)) <= {0, 1}
