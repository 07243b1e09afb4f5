"""Starts a run from the weights of another model (`ds_init_from`): what has the same name and shape
is loaded, and a table says what was and what wasn't."""
import logging
import os

import numpy as np

from util import errors
from util.run import checkpoint_files, torch_weights
from util.tf1 import tf

log = logging.getLogger(__name__)

INDEX = '.index'  # ending of the file that a checkpoint's path stands for


def load(session, path, variables):
    """Loads weights by name into the session and prints the table.

    Args:
      session: tf.Session.
      path: as for `read`.
      variables: those to load.
    Returns:
      Names of the variables that were not loaded.
    Raises:
      CheckpointError: there are no weights, none that fits, or some that are no finite numbers.
    """
    weights = read(path)
    rows, fitting = compare({v.op.name: v.shape.as_list() for v in variables}, weights)
    log.info('ds_init_from: weights of %s', path)
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        log.info('  %s', '  '.join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip())
    if not fitting:
        raise errors.CheckpointError('ds_init_from: no weight of %s has name and shape of one '
                                         'of this network' % path)
    for name in fitting:
        if weights[name].dtype.kind not in 'fiu' or not np.isfinite(weights[name]).all():
            raise errors.CheckpointError('ds_init_from: %s of %s must hold finite numbers'
                                             % (name, path))
    chosen = [v for v in variables if v.op.name in fitting]
    # by the initial values' tensors, so that the graph doesn't grow
    session.run([v.initializer for v in chosen],
                {v.initial_value: weights[v.op.name] for v in chosen})
    return [v.op.name for v in variables if v.op.name not in fitting]


def compare(shapes, weights):
    """What of some weights fits variables.

    Args:
      shapes: {name of a variable: shape as a list}.
      weights: {name: array}.
    Returns:
      (rows of the table: name, shape here, shape there, what becomes of it; names to load).
    """
    rows, fitting = [('weight', 'here', 'there', '')], []
    for name in [*shapes, *sorted(set(weights) - set(shapes))]:
        here, there = shapes.get(name), name in weights and list(weights[name].shape)
        outcome = 'loaded'
        if here is None:
            outcome = 'not loaded: unknown here'
        elif there is False:
            outcome = 'not loaded: missing there'
        elif here != there:
            outcome = 'not loaded: another shape'
        else:
            fitting.append(name)
        rows.append((name, '-' if here is None else str(here),
                     '-' if there is False else str(there), outcome))
    return rows, fitting


def read(path):
    """{name of this project: array} of the weights of a checkpoint (path, or a folder whose newest
    whole one is taken), or of an .npz file with our names or torchaudio's.

    Raises:
      CheckpointError.
    """
    if path.endswith('.npz'):
        try:
            return torch_weights.read_ours(path)
        except errors.WeightsError as error:
            raise errors.CheckpointError('ds_init_from: %s' % error) from None
    if os.path.isdir(path):
        found = checkpoint_files.newest_whole(path, 'ds_init_from')
        if found is None:
            raise errors.CheckpointError('ds_init_from: there is no checkpoint in %s' % path)
        path = found
    path = path[:-len(INDEX)] if path.endswith(INDEX) else path
    problem = checkpoint_files.damage(path) if os.path.exists(path + INDEX) else 'there is no such file'
    if problem:
        raise errors.CheckpointError('ds_init_from: %s must be a checkpoint, a folder of some '
                                         'or an .npz file, but: %s' % (path, problem))
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(there) for name, there in checkpoint_files.weights_in(reader)}
