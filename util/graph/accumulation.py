"""Updates made of several batches: sums of gradients, loss and loss norm in variables that are not
trained, and what becomes of the gradients before they are applied.

A batch gives a loss, its gradients and a norm, all times the weight w of its corpus. The update is
made of sum(w gradient) / sum(w norm). With `ds_normalize_gradients` loss and norm are sums over
utterances and the number of these, or of their labels, so that the result is a weighted mean over
them whatever the sizes of the batches. Without, a batch gives its mean and the norm 1.

Source: the trainer of Nabu-MSSS.
"""
import collections


from util import records
from util.run import checkpoint_files
from util.tf1 import tf

# What the batches of an update added up to: list of (gradient, variable), and the loss
Mean = collections.namedtuple('Mean', 'gradients loss')


def batch_counter():
    """Variable that counts the batches since the last update, int64."""
    with tf.variable_scope(checkpoint_files.SUMS), tf.device('/cpu:0'):
        return _zeros('n_batches', [], tf.int64)


class Accumulators:
    """The sums of an update; they are part of a checkpoint.

    Args:
      variables: those whose gradients are summed up.
      n_batches: `batch_counter`.
    """

    def __init__(self, variables, n_batches):
        self._variables, self._n_batches = variables, n_batches
        with tf.variable_scope(checkpoint_files.SUMS), tf.device('/cpu:0'):
            self._sums = [_zeros(v.op.name, v.shape, v.dtype.base_dtype) for v in variables]
            self._loss = _zeros('loss', [], tf.float64)
            self._norm = _zeros('norm', [], tf.float64)

    def reset(self):
        """One operation that sets all sums to 0."""
        return tf.group(*[tf.assign(total, tf.zeros_like(total)) for total in (
            *self._sums, self._loss, self._norm, self._n_batches)], name='reset')

    def add(self, gradients, loss, weight, norm, scale):
        """Operation that adds a batch.

        Args:
          gradients: list of (gradient, variable) of the batch's mean loss.
          loss: scalar, that mean loss.
          weight: scalar, weight of the batch's corpus.
          norm: scalar, the batch's share in the loss norm.
          scale: scalar that makes the batch's loss of its mean loss: 1, or its utterances.
        """
        of_variable = {variable.ref(): gradient for gradient, variable in gradients}
        factor = tf.cast(weight, tf.float32) * tf.cast(scale, tf.float32)
        sums = [tf.assign_add(total, factor * of_variable[variable.ref()])
                for total, variable in zip(self._sums, self._variables)]
        with tf.control_dependencies(sums):  # the batch's dropout has read the number by then
            counted = tf.assign_add(self._n_batches, 1)
        return tf.group(
            *sums, tf.assign_add(self._loss, tf.cast(factor * loss, tf.float64)),
            tf.assign_add(self._norm, tf.cast(weight, tf.float64) * tf.cast(norm, tf.float64)),
            counted)

    def mean(self):
        """The sums over the norm, as a Mean; not a number where nothing was added."""
        norm = self._norm.read_value()
        gradients = [(total.read_value() / tf.cast(norm, total.dtype.base_dtype), variable)
                     for total, variable in zip(self._sums, self._variables)]
        return Mean(gradients, self._loss.read_value() / norm)


def _zeros(name, shape, dtype):
    return tf.get_variable(name, shape, dtype, tf.zeros_initializer(), trainable=False)


def norm_and_scale(batch, config):
    """(norm, scale) of a batch, as `Accumulators.add` takes them.

    Args:
      batch: records.Batch of all towers.
      config: Config; its normalize_gradients and loss_norm.
    """
    if not config.normalize_gradients:
        return 1.0, 1.0
    n_utterances = tf.size(batch.seq_len)
    if config.loss_norm == 'labels':
        return tf.reduce_sum(batch.label_len), n_utterances
    return n_utterances, n_utterances


def clip(gradients, config):
    """Bounds every element, then the norm of all gradients together, where the settings say so.

    Args:
      gradients: list of (gradient, variable).
      config: Config; its clip_grad_value and clip_grad_norm.
    Returns:
      The same with clipped gradients.
    """
    values, variables = zip(*gradients)
    if config.clip_grad_value:
        values = [tf.clip_by_value(value, -config.clip_grad_value, config.clip_grad_value)
                  for value in values]
    if config.clip_grad_norm:
        values, _ = tf.clip_by_global_norm(values, config.clip_grad_norm)
    return list(zip(values, variables))
