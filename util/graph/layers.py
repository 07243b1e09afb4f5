"""Parts of the layers: the clipped ReLU, dropout and initial values.

In comments on shapes, R = T*B rows, T = n_steps and B = batch_size.
"""

from typing import Any, NamedTuple

from util.tf1 import tf


class Dropout(NamedTuple):
    """The switch and the seed of dropout in a training graph."""

    is_training: Any  # bool scalar; if it is False, nothing is dropped
    seed: Any  # int64 [2], seed of the masks of one tower in one step


def clipped_relu(x, weights, bias, ceiling, keep=None):
    """Computes min(relu(x weights + bias), ceiling), multiplied by `keep` if there is dropout.

    The custom gradient needs only the result: it passes where the result lies between 0 and the
    ceiling. With the ceiling scaled to 6, Relu6Grad computes it in one pass over memory; the
    automatic gradient takes five passes.

    Args:
      x: float32 [R, n_in].
      weights, bias: float32 [n_in, units] and [units].
      ceiling: float32 scalar or number, at which the activation is clipped.
      keep: float32 [R, units] of 0 and 1, or [1, 1]; None: no dropout.
    Returns:
      float32 [R, units].
    """

    @tf.custom_gradient
    def output_and_gradient(x, weights, bias):
        y = tf.minimum(tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), bias)), ceiling)
        if keep is not None:
            y *= keep

        def gradient(d_y):
            # slightly more than 6, so that rounding never takes a clipped value below the ceiling
            to_six = tf.math.divide_no_nan(6 * (1 + 1e-6), tf.cast(ceiling, tf.float32))
            with tf.control_dependencies([d_y]):  # computed earlier, it would only take up memory
                features = y * to_six
            d_z = tf.raw_ops.Relu6Grad(gradients=d_y, features=features)
            return (
                tf.matmul(d_z, weights, transpose_b=True),
                tf.matmul(x, d_z, transpose_a=True),
                tf.raw_ops.BiasAddGrad(out_backprop=d_z),
            )

        return y, gradient

    return output_and_gradient(x, weights, bias)


def dropout_mask(rows, units, rate, layer, dropout):
    """Draws the dropout mask of a layer.

    The random numbers depend on seed, step, tower and layer alone, so that a resumed run drops the
    same units as an uninterrupted one. They have only 16 bits, as the cost of drawing them is
    proportional to their bits.

    Args:
      rows: R, int32 scalar.
      units: width of the layer.
      rate: dropout rate, the probability that a unit is dropped.
      layer: index of the layer.
      dropout: Dropout.
    Returns:
      (keep, scale): the mask, float32 [R, units] of 0 and 1; and float32 scalar 1/(1 - rate), which
      makes up for the units that are dropped. If the graph is not training, keep is float32 [1, 1],
      and both are 1.
    """
    dropped = min(round(rate * 2**16), 2**16 - 1)  # of the 2**16 values of a random number

    def draw():
        pairs = tf.random.stateless_uniform(
            [rows, -(-units // 2)],
            dropout.seed + [0, layer],
            minval=None,
            maxval=None,
            dtype=tf.uint32,
        )
        values = tf.reshape(tf.bitcast(pairs, tf.uint16), [rows, -1])[:, :units]
        return tf.cast(values >= tf.constant(dropped, tf.uint16), tf.float32)

    keep = tf.cond(dropout.is_training, draw, lambda: tf.ones([1, 1]))
    return keep, tf.where(dropout.is_training, 1 / (1 - dropped / 2**16), 1.0)


def recurrent_initializer(config):
    """Returns the initializer of a recurrent matrix, float32 [N, N]: uniform, which keeps the
    variance of its inputs, or orthogonal, which keeps their norm (Saxe et al., arXiv:1312.6120)."""
    return tf.orthogonal_initializer() if config.recurrent_init == 'orthogonal' else _uniform()


def _uniform():
    """Returns the initializer of uniform values with the variance 1/n_in."""
    return tf.variance_scaling_initializer(1.0, 'fan_in', 'uniform')


def kernel_initializer(config):
    """Returns the initializer of an LSTM's kernel, float32 [n_in + N, 4*N]; it makes the recurrent
    matrix [N, N] of each gate orthogonal if `recurrent_init` says so."""
    if config.recurrent_init == 'uniform':
        return _uniform()

    def initialise(shape, dtype=tf.float32, partition_info=None):
        del partition_info
        n_cell = shape[1] // 4
        recurrent = [tf.orthogonal_initializer()([n_cell, n_cell], dtype) for _ in range(4)]
        return tf.concat([_uniform()(shape, dtype)[:-n_cell], tf.concat(recurrent, axis=1)], axis=0)

    return initialise
