"""Summaries of variables and gradients for TensorBoard (`ds_log_variables`)."""

from util.tf1 import tf


def log_variable(variable, gradient=None):
    """Adds summaries of a float32 variable of any shape and of its gradient: mean, standard
    deviation, maximum, minimum, histogram."""
    _log_statistics(variable.op.name, variable)
    if gradient is not None:
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        _log_statistics(variable.op.name + '/gradients', values)


def _log_statistics(name, values):
    """Adds summaries of float32 values of any shape."""
    mean = tf.reduce_mean(values)
    tf.summary.scalar(name + '/mean', mean)
    tf.summary.scalar(name + '/stddev', tf.sqrt(tf.reduce_mean(tf.square(values - mean))))
    tf.summary.scalar(name + '/max', tf.reduce_max(values))
    tf.summary.scalar(name + '/min', tf.reduce_min(values))
    # a value that is not finite would be an error here, and hide the loss that is not
    tf.summary.histogram(name + '/histogram', tf.boolean_mask(values, tf.math.is_finite(values)))


def log_grads_and_vars(grads_and_vars):
    """Adds the summaries of `log_variable` for each (gradient, variable)."""
    for gradient, variable in grads_and_vars:
        log_variable(variable, gradient=gradient)
