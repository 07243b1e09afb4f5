"""Which GPUs there are."""
import tensorflow.compat.v1 as tf


def get_available_gpus():
    """Device names of the GPUs that TensorFlow can use, ['/gpu:0', ...]; none gives []."""
    return ['/gpu:%d' % i for i, _ in enumerate(tf.config.list_physical_devices('GPU'))]
