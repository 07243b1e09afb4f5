"""Starts a run from the weights of another model (`ds_init_from`).

A weight is loaded if this network has a weight of the same name and shape. A table in the log says
for every weight of both models whether it was loaded, and if not, why.
"""

import logging
import os
from collections.abc import Mapping, Sequence

import numpy as np

from util import errors
from util.run import checkpoint_files, torch_weights
from util.tf1 import tf

log = logging.getLogger(__name__)

INDEX = '.index'  # ending of the file that a checkpoint's path stands for


def load(session: tf.Session, path: str, variables: Sequence[tf.Variable]) -> list[str]:
    """Loads weights by name into the session and logs the table.

    Args:
      session: session of the graph that holds the variables.
      path: as in `read`.
      variables: the variables to load.
    Returns:
      The names of the variables that were not loaded.
    Raises:
      CheckpointError: there are no weights, none of them fits, or one that fits has values that are
        not finite.
    """
    weights = read(path)
    rows, fitting = compare({v.op.name: v.shape.as_list() for v in variables}, weights)
    log.info('ds_init_from: weights of %s', path)
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        log.info('  %s', '  '.join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip())
    if not fitting:
        raise errors.CheckpointError(
            'ds_init_from: no weight of %s has the name and shape of a weight of this network'
            % path
        )
    for name in fitting:
        if weights[name].dtype.kind not in 'fiu' or not np.isfinite(weights[name]).all():
            raise errors.CheckpointError(
                'ds_init_from: %s of %s must hold finite numbers' % (name, path)
            )
    chosen = [v for v in variables if v.op.name in fitting]
    # The values are fed in place of the initial values, so that the graph does not grow.
    session.run(
        [v.initializer for v in chosen], {v.initial_value: weights[v.op.name] for v in chosen}
    )
    return [v.op.name for v in variables if v.op.name not in fitting]


def compare(
    shapes: Mapping[str, list[int]], weights: Mapping[str, np.ndarray]
) -> tuple[list[tuple[str, str, str, str]], list[str]]:
    """Compares weights with the variables of this network by name and shape.

    Args:
      shapes: {name of a variable: its shape as a list}.
      weights: {name: array}.
    Returns:
      (rows of the table, header first: name, shape here, shape there, outcome; names of the
      weights to load).
    """
    rows, fitting = [('weight', 'here', 'there', '')], []
    for name in [*shapes, *sorted(set(weights) - set(shapes))]:
        here = shapes.get(name)
        there = list(weights[name].shape) if name in weights else None
        outcome = 'loaded'
        if here is None:
            outcome = 'not loaded: unknown here'
        elif there is None:
            outcome = 'not loaded: missing there'
        elif here != there:
            outcome = 'not loaded: another shape'
        else:
            fitting.append(name)
        rows.append((name, _cell(here), _cell(there), outcome))
    return rows, fitting


def _cell(shape):
    """Returns a shape, or None, as the table shows it."""
    return '-' if shape is None else str(shape)


def read(path: str) -> dict[str, np.ndarray]:
    """Reads weights under this project's names, {name: array}.

    Args:
      path: a checkpoint, a folder of checkpoints, of which the newest undamaged one is read, or an
        .npz file with our names or torchaudio's.
    Raises:
      CheckpointError: there are no weights, or they cannot be read; the message names the path.
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
    path = path[: -len(INDEX)] if path.endswith(INDEX) else path
    problem = (
        checkpoint_files.damage(path) if os.path.exists(path + INDEX) else 'there is no such file'
    )
    if problem:
        raise errors.CheckpointError(
            'ds_init_from: %s must be a checkpoint, a folder of checkpoints '
            'or an .npz file, but: %s' % (path, problem)
        )
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(there) for name, there in checkpoint_files.weights_in(reader)}
