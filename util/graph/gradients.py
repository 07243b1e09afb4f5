"""Makes one update from several batches: gradients, loss and loss norm are summed up in variables
that are not trained, and the gradients are clipped before they are applied.

A batch gives a loss, its gradients and a norm, each multiplied by the weight w of the batch's
corpus. The update applies sum(w gradient) / sum(w norm). With `ds_normalize_gradients` the loss is
the sum over the batch's utterances, and the norm their number or the number of their labels, so
that the update is a weighted mean over all of them whatever the sizes of the batches. Without it,
the loss is the batch's mean and the norm is 1, so that large and small batches count alike.

Source: the trainer of Nabu-MSSS.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from util import config as settings, records
from util.tf1 import tf

SCOPE = 'accumulated'  # variable scope of the sums: their names in checkpoints begin with it


class Mean(NamedTuple):
    """The gradients and the loss of an update: sums over its batches, divided by the loss norm."""

    gradients: list[tuple[tf.Tensor, tf.Variable]]  # each float32 of its variable's shape
    loss: tf.Tensor  # float64 scalar


def batch_counter() -> tf.Variable:
    """Creates the variable, int64 scalar, that counts the batches since the last update."""
    with tf.variable_scope(SCOPE), tf.device('/cpu:0'):
        return _zeros('n_batches', [], tf.int64)


class Accumulators:
    """The sums of an update. Their variables are part of a checkpoint.

    Args:
      variables: the trained variables, float32, whose gradients are summed up.
      n_batches: int64 scalar, the variable that `batch_counter` returns.
    """

    def __init__(self, variables: Sequence[tf.Variable], n_batches: tf.Variable) -> None:
        self._variables, self._n_batches = variables, n_batches
        with tf.variable_scope(SCOPE), tf.device('/cpu:0'):
            self._sums = [_zeros(v.op.name, v.shape, v.dtype.base_dtype) for v in variables]
            self._loss = _zeros('loss', [], tf.float64)
            self._norm = _zeros('norm', [], tf.float64)

    def reset(self) -> tf.Operation:
        """Returns one operation that sets all sums, and the number of batches, to 0."""
        return tf.group(
            *[
                tf.assign(total, tf.zeros_like(total))
                for total in (*self._sums, self._loss, self._norm, self._n_batches)
            ],
            name='reset',
        )

    def add(
        self,
        gradients: Sequence[tuple[tf.Tensor, tf.Variable]],
        loss: tf.Tensor,
        weight: tf.Tensor | float,
        norm: tf.Tensor | float,
        scale: tf.Tensor | float,
    ) -> tf.Operation:
        """Returns the operation that adds a batch to the sums.

        Args:
          gradients: gradient of the batch's mean loss and its variable, for all variables in any
            order; each gradient is float32 of its variable's shape.
          loss: float32 scalar, mean loss of the batch's utterances.
          weight: float scalar, weight of the batch's corpus.
          norm: scalar of any number type, what the batch adds to the loss norm.
          scale: scalar of any number type by which the mean loss is multiplied to give the
            batch's loss: 1, or its number of utterances.
        """
        of_variable = {variable.ref(): gradient for gradient, variable in gradients}
        factor = tf.cast(weight, tf.float32) * tf.cast(scale, tf.float32)
        sums = [
            tf.assign_add(total, factor * of_variable[variable.ref()])
            for total, variable in zip(self._sums, self._variables)
        ]
        # The number of batches is part of this batch's dropout seed, so it must not change before
        # the gradients are computed.
        with tf.control_dependencies(sums):
            counted = tf.assign_add(self._n_batches, 1)
        return tf.group(
            *sums,
            tf.assign_add(self._loss, tf.cast(factor * loss, tf.float64)),
            tf.assign_add(self._norm, tf.cast(weight, tf.float64) * tf.cast(norm, tf.float64)),
            counted,
        )

    def mean(self) -> Mean:
        """Returns the sums divided by the norm; they are NaN if no batch was added."""
        norm = self._norm.read_value()
        gradients = [
            (total.read_value() / tf.cast(norm, total.dtype.base_dtype), variable)
            for total, variable in zip(self._sums, self._variables)
        ]
        return Mean(gradients, self._loss.read_value() / norm)


def _zeros(name, shape, dtype):
    """Returns a new variable of this shape and dtype that is not trained and starts at 0."""
    return tf.get_variable(name, shape, dtype, tf.zeros_initializer(), trainable=False)


def finite(gradients: Sequence[tuple[tf.Tensor, tf.Variable]], loss: tf.Tensor) -> tf.Tensor:
    """Returns whether a loss and gradients are finite numbers.

    Gradients whose squares overflow count as not finite, as Adam and the clipping square them.

    Args:
      gradients: (gradient, variable), each gradient float32 of its variable's shape.
      loss: float scalar.
    Returns:
      bool scalar.
    """
    norm = tf.linalg.global_norm([value for value, _ in gradients])
    return tf.math.is_finite(norm) & tf.math.is_finite(loss)


def applied_if(fine: tf.Tensor, apply: Callable[[], tf.Operation]) -> tf.Operation:
    """Returns an operation that does what `apply` builds if `fine`, a bool scalar, is true."""

    def applied():
        with tf.control_dependencies([apply()]):
            return tf.constant(True)

    return tf.cond(fine, applied, lambda: tf.constant(False)).op


def all_finite(variables: Sequence[tf.Variable]) -> tf.Tensor:
    """Returns whether all values of float variables are finite numbers, a bool scalar."""
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(v)) for v in variables])


def norm_and_scale(batch: records.Batch, config: settings.Config) -> tuple[Any, Any]:
    """Returns the norm and the scale of a batch for `Accumulators.add`.

    Args:
      batch: the batch of all towers together.
      config: its normalize_gradients and loss_norm are used.
    Returns:
      (norm, scale), each a float or an int32 scalar.
    """
    if not config.normalize_gradients:
        return 1.0, 1.0
    n_utterances = tf.size(batch.seq_len)
    if config.loss_norm == 'labels':
        return tf.reduce_sum(batch.label_len), n_utterances
    return n_utterances, n_utterances


def clip(
    gradients: Sequence[tuple[tf.Tensor, tf.Variable]], config: settings.Config
) -> list[tuple[tf.Tensor, tf.Variable]]:
    """Clips every element of the gradients, then the norm of all gradients together.

    Args:
      gradients: (gradient, variable), each gradient float32 of its variable's shape.
      config: its clip_grad_value and clip_grad_norm are the limits; 0 is no limit.
    Returns:
      The same pairs with clipped gradients.
    """
    values = [value for value, _ in gradients]
    if config.clip_grad_value:
        values = [
            tf.clip_by_value(value, -config.clip_grad_value, config.clip_grad_value)
            for value in values
        ]
    if config.clip_grad_norm:
        values, _ = tf.clip_by_global_norm(values, config.clip_grad_norm)
    return [(value, variable) for value, (_, variable) in zip(values, gradients)]
