"""The dense layers and their parts: variables, the clipped ReLU, layer normalisation, dropout and
initial values.

In comments on shapes, R = T*B rows, T = n_steps and B = batch_size.
"""

from typing import Any, NamedTuple

from util.tf1 import tf


NORM_SCOPE = 'layer_norm_%d'  # variable scope of the normalisation of a layer
NORM_EPSILON = 1e-12  # variance that is added in layer normalisation, as in DeepSpeech 0.9


class Dropout(NamedTuple):
    """The switch and the seed of dropout in a training graph."""

    is_training: Any  # bool scalar; if it is False, nothing is dropped
    seed: Any  # int64 [2], seed of the masks of one tower in one step


def variable_on_cpu(name, shape, initializer):
    """Creates or reuses a float32 variable of this shape in CPU memory."""
    with tf.device('/cpu:0'):
        return tf.get_variable(name=name, shape=shape, initializer=initializer)


def dense(x, index, units, config, dropout):
    """Builds layer `index`: float32 [R, n_in] -> [R, units], min(relu(x h + b), relu_clip), then
    layer normalisation if `layer_norm` says so, then dropout."""
    weights, bias = [
        tf.convert_to_tensor(v) for v in layer_variables(index, x.shape[-1], units, config)
    ]
    rate = config.dropout_of_layer(index)
    if config.layer_norm:
        y = clipped_relu(x, weights, bias, config.relu_clip)
        return _normalised(y, index, rate, dropout)
    if dropout is None or rate == 0.0:
        return clipped_relu(x, weights, bias, config.relu_clip)
    keep, scale = dropout_mask(tf.shape(x)[0], units, rate, index, dropout)
    # relu(scale z) = scale relu(z); scaling the weights is cheaper than scaling the activations
    return clipped_relu(x, weights * scale, bias * scale, config.relu_clip * scale, keep)


def _normalised(x, index, rate, dropout):
    """Applies the layer normalisation of layer `index`, then dropout: float32 [R, units] ->
    [R, units]."""
    units = x.shape[1]
    with tf.variable_scope(NORM_SCOPE % index):
        gain, bias = [
            tf.convert_to_tensor(variable_on_cpu(name, [units], initializer()))
            for name, initializer in (('gain', tf.ones_initializer), ('bias', tf.zeros_initializer))
        ]
    if dropout is None or rate == 0.0:
        return layer_norm(x, gain, bias)
    keep, scale = dropout_mask(tf.shape(x)[0], units, rate, index, dropout)
    return layer_norm(x, gain * scale, bias * scale, keep)


def layer_variables(index, n_in, units, config):
    """Creates (h, b) of a dense layer, float32 [n_in, units] and [units], with normally distributed
    initial values."""

    def variable(name, shape):
        stddev = getattr(config, name + '_stddev')
        return variable_on_cpu(name, shape, tf.random_normal_initializer(stddev=stddev))

    return variable('h%d' % index, [n_in, units]), variable('b%d' % index, [units])


def drop(x, rate, index, dropout):
    """Applies the dropout of layer `index`: float32 [R, units] -> [R, units]."""
    if dropout is None or rate == 0.0:
        return x
    keep, scale = dropout_mask(tf.shape(x)[0], x.shape[1], rate, index, dropout)
    return x * keep * scale


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


def layer_norm(x, gain, bias, keep=None):
    """Normalises each row to mean 0 and variance 1, and applies gain and bias: layer
    normalisation, multiplied by `keep` if there is dropout.

    The custom gradient keeps x and two numbers of each row; the automatic one would keep, and pass
    over, five arrays of the size of x. The means over the units are products with a vector, which
    are faster on CPUs than reductions.

    Args:
      x: float32 [R, units].
      gain, bias: float32 [units].
      keep: float32 [R, units] of 0 and 1, or [1, 1]; None: no dropout.
    Returns:
      float32 [R, units].
    Source: Ba et al., arXiv:1607.06450, equation 3; DeepSpeech 0.9 (`--layer_norm`) for its place
      behind the clipped ReLU.
    """
    units = x.shape[1]
    share = tf.fill([units, 1], 1.0 / units)

    @tf.custom_gradient
    def output_and_gradient(x, gain, bias):
        mean = tf.matmul(x, share)  # [R, 1]
        scale = tf.math.rsqrt(tf.matmul(tf.math.squared_difference(x, mean), share) + NORM_EPSILON)
        y = (x - mean) * scale * gain + bias
        if keep is not None:
            y *= keep

        def gradient(d_y):
            if keep is not None:
                d_y = d_y * keep
            with tf.control_dependencies([d_y]):  # computed earlier, it would only take up memory
                normal = (x - mean) * scale
            along = d_y * normal
            d_normal_mean = tf.matmul(d_y, share * gain[:, None])
            along_mean = tf.matmul(along, share * gain[:, None])
            return (
                (d_y * gain - d_normal_mean - normal * along_mean) * scale,
                tf.raw_ops.BiasAddGrad(out_backprop=along),
                tf.raw_ops.BiasAddGrad(out_backprop=d_y),
            )

        return y, gradient

    return output_and_gradient(x, gain, bias)


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
