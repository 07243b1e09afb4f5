"""Variables in which a checkpoint keeps more than weights: the state of the run, and the
description of its model."""

import numpy as np

from util.graph import handles
from util.tf1 import tf

SCOPE = 'run_state'  # of the variables that hold a schedule.State
DESCRIPTION = 'model/description'


def state_variables(initial, names):
    """Creates the variables of a record of numbers.

    Args:
      initial: record, such as a schedule.State; integers become int64 scalars, the others float64.
      names: {field: name of its variable}, for fields whose variable has another name.
    Returns:
      handles.StateVariables.
    """
    kind = type(initial)
    types = [tf.int64 if isinstance(value, int) else tf.float64 for value in initial]
    variables = []
    for field, value, dtype in zip(initial._fields, initial, types):
        name = '%s/%s' % (SCOPE, names.get(field, field))
        start = tf.constant(value, dtype)
        variables.append(tf.get_variable(name, trainable=False, dtype=dtype, initializer=start))
    values = kind(*[tf.placeholder(dtype, []) for dtype in types])
    assign = tf.group(*[tf.assign(v, new) for v, new in zip(variables, values)])
    return handles.StateVariables(kind(*variables), values, assign)


def description_variable(text):
    """Creates the variable with which each checkpoint describes its model: the bytes of a text in
    UTF-8, uint8 [n], so that every value of a checkpoint is a number."""
    start = tf.constant(encoded(text))
    return tf.get_variable(DESCRIPTION, trainable=False, dtype=tf.uint8, initializer=start)


def encoded(text):
    """Returns a text as its bytes in UTF-8, uint8 [n]."""
    return np.frombuffer(text.encode(), np.uint8)
