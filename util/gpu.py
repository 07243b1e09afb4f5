"""Lists the GPUs of this machine."""

from util.tf1 import tf


def get_available_gpus() -> list[str]:
    """Returns the device names of the GPUs that TensorFlow can use, ['/gpu:0', '/gpu:1', ...].

    Source: the notebook's function of that name.
    """
    return ['/gpu:%d' % i for i, _ in enumerate(tf.config.list_physical_devices('GPU'))]
