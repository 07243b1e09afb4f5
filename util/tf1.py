"""TensorFlow's 1.x interface as `tf`, loaded without the messages that TensorFlow prints."""

from util import config

with config.silenced_tensorflow():
    import tensorflow.compat.v1 as tf

__all__ = ['tf']
