"""Which GPUs there are."""
from util.tf1 import tf


def get_available_gpus():
    """Device names of the GPUs that TensorFlow can use, ['/gpu:0', ...]; none gives []."""
    return ['/gpu:%d' % i for i, _ in enumerate(tf.config.list_physical_devices('GPU'))]
