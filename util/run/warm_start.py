"""Starts a run from the weights of another model (`ds_init_from`).

A weight is loaded if this network has a weight of the same name and shape. The output layer has a
class for each character of the alphabet: with another alphabet it is not loaded; with a longer
alphabet that begins with the model's own, the classes of the known characters and the blank are. A
table in the log says for every weight of both models whether it was loaded, and if not, why.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from util import errors
from util.run import checkpoint_files, checkpoint_io, description as descriptions, torch_weights
from util.tf1 import tf

log = logging.getLogger(__name__)

INDEX = '.index'  # ending of the file that a checkpoint's path stands for
OUTPUT_LAYER = ('h6', 'b6')  # the last dimension of both is the class; the last class is the blank


class SavedModel(NamedTuple):
    """The weights that a file holds, and what it says about their model."""

    weights: dict[str, np.ndarray]  # {name in this project: array}
    description: descriptions.Description | None  # None if the file has none


def load(
    session: tf.Session,
    path: str,
    variables: Sequence[tf.Variable],
    here: descriptions.Description | None = None,
) -> list[str]:
    """Loads weights by name into the session and logs the table.

    Args:
      session: session of the graph that holds the variables.
      path: as in `read`.
      variables: the variables to load.
      here: description of the models of this run; None: features and alphabets are not compared.
    Returns:
      The names of the variables that were not loaded, or only for a part of the labels.
    Raises:
      CheckpointError: there are no weights, they were trained with other features, none of them
        fits, or one that fits has values that are not finite.
    """
    weights, there = read(path)
    if there and here:
        _check_features(path, there, here)
    rows, fitting = compare(
        {v.op.name: v.shape.as_list() for v in variables},
        weights,
        descriptions.labels_kept(there, here),
    )
    log.info('ds_init_from: weights of %s', path)
    difference = descriptions.alphabet_difference(there, here) if there and here else None
    if difference:
        log.info('ds_init_from: %s', difference)
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
    values = {v.op.name: weights[v.op.name] for v in chosen}
    complete = [v.op.name for v in chosen if v.shape.as_list() == list(values[v.op.name].shape)]
    for variable in chosen:
        name = variable.op.name
        if name not in complete:
            values[name] = _with_new_labels(weights[name], session.run(variable))
    # The values are fed in place of the initial values, so that the graph does not grow.
    session.run(
        [v.initializer for v in chosen], {v.initial_value: values[v.op.name] for v in chosen}
    )
    return [v.op.name for v in variables if v.op.name not in complete]


def _check_features(path, there, here):
    """Raises a CheckpointError if the weights in `path` were trained with other features."""
    different = descriptions.feature_differences(there, here)
    if different:
        raise errors.CheckpointError(
            'ds_init_from: %s was trained with other features: %s; set these to the '
            "model's values" % (path, '; '.join(different))
        )


def _with_new_labels(weights, initial):
    """Returns the output layer's weights for an alphabet to which characters were appended.

    Args:
      weights: float [..., old labels + 1], the last class is the blank.
      initial: float32 [..., labels + 1], the initial values, which the new labels keep.
    """
    values, n_labels = initial.copy(), weights.shape[-1] - 1
    values[..., :n_labels] = weights[..., :-1]
    values[..., -1] = weights[..., -1]
    return values


def compare(
    shapes: Mapping[str, list[int]], weights: Mapping[str, np.ndarray], n_labels: int | None = None
) -> tuple[list[tuple[str, str, str, str]], list[str]]:
    """Compares weights with the variables of this network by name and shape.

    Args:
      shapes: {name of a variable: its shape as a list}.
      weights: {name: array}.
      n_labels: number of labels, without the blank, that the output layer takes over, see
        description.labels_kept; None: all of them.
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
        elif n_labels == 0 and name in OUTPUT_LAYER:
            outcome = 'not loaded: another alphabet'
        elif n_labels and name in OUTPUT_LAYER and there == [*here[:-1], n_labels + 1]:
            outcome = 'loaded: %d of %d labels' % (n_labels, here[-1] - 1)
            fitting.append(name)
        elif here != there:
            outcome = 'not loaded: another shape'
        else:
            fitting.append(name)
        rows.append((name, _cell(here), _cell(there), outcome))
    return rows, fitting


def _cell(shape):
    """Returns a shape, or None, as the table shows it."""
    return '-' if shape is None else str(shape)


def read(path: str) -> SavedModel:
    """Reads weights under this project's names, and the description of their model.

    Args:
      path: a checkpoint, a folder of checkpoints, of which the newest undamaged one is read, or an
        .npz file with our names or torchaudio's.
    Raises:
      CheckpointError: there are no weights, or they cannot be read; the message names the path.
    """
    if path.endswith('.npz'):
        try:
            return SavedModel(torch_weights.read_ours(path), None)
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
    reader = checkpoint_io.Reader(path)
    return SavedModel(
        {name: reader.get_tensor(there) for name, there in checkpoint_files.weights_in(reader)},
        checkpoint_files.description(path),
    )
