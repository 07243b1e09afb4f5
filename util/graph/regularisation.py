"""What makes a network fit its training set less closely, so that it recognises other speech
better: decoupled weight decay and the label smoothing of CTC."""

import math
from collections.abc import Sequence
from typing import Any

from util.graph import handles
from util.tf1 import tf


class DecayingAdam(tf.train.AdamOptimizer):
    """Adam with decoupled weight decay: an update changes a matrix w by Adam's step and by
    -learning_rate * weight_decay * w. Biases and gains do not decay.

    Args:
      weight_decay: the number.
      learning_rate: float32 scalar or number.
      options: as those of tf.train.AdamOptimizer.
    Source: Loshchilov and Hutter, arXiv:1711.05101, algorithm 2. The schedule multiplier there is
      part of the learning rate here.
    """

    def __init__(self, weight_decay: float, learning_rate: Any, **options: Any) -> None:
        super().__init__(learning_rate=learning_rate, **options)
        self._share = weight_decay * learning_rate

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[tf.Tensor, tf.Variable]],
        global_step: Any = None,
        name: str | None = None,
    ) -> tf.Operation:
        """Returns the operation that applies (gradient, variable) pairs and counts the update."""
        matrices = [variable for _, variable in grads_and_vars if variable.shape.rank == 2]
        # All gradients have read the weights by then, and Adam's step has not changed them yet.
        with tf.control_dependencies([gradient for gradient, _ in grads_and_vars]):
            decays = [tf.assign_sub(v, self._share * v.read_value()) for v in matrices]
        with tf.control_dependencies(decays):
            return super().apply_gradients(grads_and_vars, global_step, name)


def smoothed_loss(tower: handles.TowerResult, smoothing: float) -> tf.Tensor:
    """Computes the loss that training minimises with label smoothing.

    It is the mean over the utterances of (1 - smoothing) * CTC + smoothing * sum over the time
    steps of KL(uniform || softmax). Its gradient by the logits of a time step is that of CTC whose
    targets, the posterior probabilities of the labels at that step, are mixed with the share
    `smoothing` of the uniform distribution; therefore the sum, as CTC sums over the steps, too.

    Args:
      tower: the results of a tower.
      smoothing: share of the uniform distribution, from 0 to below 1.
    Returns:
      float32 scalar.
    Source: Szegedy et al., arXiv:1512.00567, section 7; Kim et al., arXiv:1711.02212, for CTC.
    """
    n_steps, n_character = tf.shape(tower.logits)[0], tower.logits.shape[2]
    divergence = (  # [T, B]
        tf.reduce_logsumexp(tower.logits, axis=2)
        - tf.reduce_mean(tower.logits, axis=2)
        - math.log(n_character)
    )
    inside = tf.transpose(tf.sequence_mask(tower.seq_len, n_steps, tf.float32))
    mean = tf.reduce_mean(tf.reduce_sum(divergence * inside, axis=0))
    return (1 - smoothing) * tower.avg_loss + smoothing * mean
