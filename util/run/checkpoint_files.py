"""Finds the newest undamaged checkpoint, checks that it fits the settings, and restores it."""

import contextlib
import logging
import os
import re

import numpy as np
from collections.abc import Mapping, Sequence
from typing import Any

from util import config as settings, errors, text
from util.graph import gradients, layers, run_state
from util.run import checkpoint_io, description as descriptions
from util.tf1 import tf

log = logging.getLogger(__name__)

BEST_DIR = 'best'  # folder of the best checkpoint by ds_best_by, below the checkpoint folder
AVERAGED_DIR = 'averaged'  # folder of the mean of the newest checkpoints, below that folder

# Variables that have other names in the notebook (TensorFlow 0.12) than in TensorFlow 1.x and here
NOTEBOOK_NAMES = (
    ('bidirectional_rnn/fw/basic_lstm_cell/kernel', 'BiRNN/FW/BasicLSTMCell/Linear/Matrix'),
    ('bidirectional_rnn/fw/basic_lstm_cell/bias', 'BiRNN/FW/BasicLSTMCell/Linear/Bias'),
    ('bidirectional_rnn/bw/basic_lstm_cell/kernel', 'BiRNN/BW/BasicLSTMCell/Linear/Matrix'),
    ('bidirectional_rnn/bw/basic_lstm_cell/bias', 'BiRNN/BW/BasicLSTMCell/Linear/Bias'),
)
OUR_NAMES = {theirs: ours for ours, theirs in NOTEBOOK_NAMES}

# The settings that determine a network and its widths, as messages name them
GEOMETRY = (
    'ds_rnn',
    'n_input + 2*n_input*n_context (ds_n_input, ds_n_context)',
    'ds_n_hidden_1',
    'ds_n_hidden_2',
    'ds_n_cell_dim',
    'ds_n_hidden_5',
    'n_character (labels of ds_alphabet and the blank)',
    'ds_layer_norm',
)


def best_dir(directory: str) -> str:
    """Returns the folder of the best checkpoint by ds_best_by, below the checkpoint folder."""
    return os.path.join(directory, BEST_DIR)


def averaged_dir(directory: str) -> str:
    """Returns the folder of the mean of the newest checkpoints, below the checkpoint folder."""
    return os.path.join(directory, AVERAGED_DIR)


def remove_all(directory: str) -> None:
    """Removes the checkpoints in a folder, and nothing else in it."""
    for path in candidates(directory):
        checkpoint_io.remove(path)
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(directory, checkpoint_io.STATE))


def take_over(folder: checkpoint_io.Folder, directory: str) -> None:
    """Tells a Folder of the existing checkpoints in it, so that it removes old ones later.

    Where the state file lists checkpoints, only those of the same run join them, which a killed run
    had no time to remove; others are left alone.
    """
    found, listed = candidates(directory), _listed(directory)
    if listed:
        run = run_of(listed[0])
        found = [path for path in found if path in listed or (run and run_of(path) == run)]
    folder.take_over([path for path in found if checkpoint_io.files_of(path)])


def run_of(path: str) -> int:
    """Returns the schedule.State.run of a checkpoint; 0 if it has none, as those of older versions
    and damaged ones."""
    with contextlib.suppress(Exception):  # the reader raises another one for each kind of damage
        return checkpoint_io.Reader(path).number(run_state.SCOPE + '/run') or 0
    return 0


def value(path: str, variable: tf.Variable) -> Any:
    """Returns the value of a scalar variable in a checkpoint; None if the checkpoint lacks it."""
    reader = checkpoint_io.Reader(path)
    name = name_in(reader, variable.op.name)
    return reader.number(name) if name else None


def candidates(directory: str) -> list[str]:
    """Lists the paths of the checkpoints in a folder, newest first.

    The state file gives the order; checkpoints that it does not list follow by their step numbers.
    """
    suffix = '.index'
    with contextlib.suppress(OSError):
        found = [
            os.path.join(directory, name[: -len(suffix)])
            for name in os.listdir(directory)
            if name.startswith(checkpoint_io.BASENAME + '-') and name.endswith(suffix)
        ]
        listed = _listed(directory)
        return listed + sorted(set(found) - set(listed), key=number, reverse=True)
    return []


def _listed(directory):
    """Returns the paths of the checkpoints that the state file of a folder lists, newest first."""
    return [os.path.join(directory, name) for name in checkpoint_io.listed(directory)]


def number(path: str) -> int:
    """Returns the number at the end of a checkpoint's name; -1 if there is none."""
    match = re.search(r'-(\d+)$', path)
    return int(match.group(1)) if match else -1


def newest_whole(directory: str, setting: str = 'ds_restore_checkpoint') -> str | None:
    """Returns the path of the newest undamaged checkpoint; None if there are no checkpoints.

    Args:
      directory: folder of the checkpoints.
      setting: name of the setting that asks for a checkpoint, for the message.
    Raises:
      CheckpointError: there are checkpoints, but all are damaged.
    """
    paths = candidates(directory)
    for path in paths:
        problem = damage(path)
        if problem is None:
            return path
        log.warning('checkpoint %s is damaged: %s', path, problem)
    if paths:
        raise errors.CheckpointError(
            '%s: every checkpoint in %s is damaged: %s; restore them from a copy, or train afresh '
            'in another ds_checkpoint_dir' % (setting, directory, ', '.join(paths))
        )
    return None


def damage(path: str) -> str | None:
    """Returns why a checkpoint cannot be read, or None. Every value is read, so that a truncated
    file is detected."""
    try:
        reader = checkpoint_io.Reader(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except Exception as error:  # the reader raises another exception for each kind of damage
        return errors.first_line(error)
    return None


def name_in(reader: Any, name: str) -> str | None:
    """Returns the name of a variable of the graph in a checkpoint; None if the checkpoint lacks
    it."""
    if reader.has_tensor(name):
        return name
    for ours, theirs in NOTEBOOK_NAMES:
        if name == ours or name.startswith(ours + '/'):
            renamed = theirs + name[len(ours) :]
            return renamed if reader.has_tensor(renamed) else None
    return None


def weights_in(reader: Any) -> list[tuple[str, str]]:
    """Lists (name in this project, name in the checkpoint) of each weight in a checkpoint, without
    the optimizer's slots, the state of the run and the description."""
    return [
        (OUR_NAMES.get(name, name), name)
        for name in sorted(reader.get_variable_to_shape_map())
        if not (
            of_the_run(name)
            or '/Adam' in name
            or 'global_step' in name.lower()
            or name.endswith('_power')
        )
    ]


def of_the_run(name: str) -> bool:
    """Tells by its name whether a variable belongs to the run (its state, its sums of gradients,
    its model's description), and is not a weight."""
    return name == run_state.DESCRIPTION or name.startswith(
        (run_state.SCOPE + '/', gradients.SCOPE + '/')
    )


def description(path: str) -> descriptions.Description | None:
    """Returns the description of the model in a checkpoint, as description.describe gives it; None
    if there is none, as in the checkpoints of older versions, or if it is damaged."""
    reader = checkpoint_io.Reader(path)
    if not reader.has_tensor(run_state.DESCRIPTION):
        return None
    content = reader.get_tensor(run_state.DESCRIPTION)
    is_text = getattr(content, 'dtype', None) == np.uint8
    found = descriptions.from_json(content.tobytes()) if is_text else None
    if found is None:
        log.warning('%s: the description of the model is damaged, and is not used', path)
    return found


def check_newest(config: settings.Config, alphabet: text.Alphabet) -> None:
    """Checks that the checkpoint with which a run with these settings goes on fits them: its
    features, its alphabet and the geometry of its network.

    Raises:
      CheckpointError: as `newest_whole`, `check_description` and `check_geometry`.
    """
    path = newest_whole(config.checkpoint_dir)
    if not path:
        return
    state = os.path.join(config.checkpoint_dir, checkpoint_io.STATE)
    if os.path.lexists(state) and not checkpoint_io.listed(config.checkpoint_dir):
        log.warning('%s is damaged; the newest checkpoint by its number is %s', state, path)
    # The description comes first, as it names settings of which the geometry has only the sum.
    there = description(path)
    if there:
        check_description(path, there, descriptions.describe(config, alphabet))
    geometry = (
        config.rnn,
        config.n_features,
        config.n_hidden_1,
        config.n_hidden_2,
        config.n_cell_dim,
        config.n_hidden_5,
        alphabet.n_character,
        config.layer_norm,
    )
    check_geometry(path, dict(zip(GEOMETRY, geometry)))


def check_description(
    path: str, there: descriptions.Description, here: descriptions.Description
) -> None:
    """Compares the features and the alphabet of the model in a checkpoint with those asked for.

    Args:
      path: the checkpoint, for the message.
      there: its description.
      here: the description of the models of this run.
    Raises:
      CheckpointError: they differ; the message says where, with both values.
    """
    features = descriptions.feature_differences(there, here)
    alphabet = descriptions.alphabet_difference(there, here)
    others = ['other features'] * bool(features) + ['another alphabet'] * bool(alphabet)
    if others:
        raise errors.CheckpointError(
            'ds_restore_checkpoint: %s was trained with %s: %s; set these to the '
            "checkpoint's values, or use another ds_checkpoint_dir"
            % (
                path,
                ' and '.join(others),
                '; '.join([*features, *([alphabet] if alphabet else [])]),
            )
        )


def check_geometry(path: str, geometry: Mapping[str, Any]) -> None:
    """Compares the widths of the network in a checkpoint with those asked for.

    Args:
      path: the checkpoint.
      geometry: {one of GEOMETRY: value}, as `geometry_of` returns it.
    Raises:
      CheckpointError: the geometry differs; the message says where, with both values.
    """
    there = geometry_of(_shapes(path))
    if there is None:
        raise errors.CheckpointError('%s is not a checkpoint of this network' % path)
    different = [
        '%s is %s there and %s here' % (name, settings.show(there[name]), settings.show(units))
        for name, units in geometry.items()
        if there[name] != units
    ]
    if different:
        raise errors.CheckpointError(
            "ds_restore_checkpoint: %s has another geometry: %s; set these to the checkpoint's "
            'values, or use another ds_checkpoint_dir' % (path, ', '.join(different))
        )


def _shapes(path):
    """Returns {name in this project: shape} of the variables in a checkpoint."""
    shapes = checkpoint_io.Reader(path).get_variable_to_shape_map()
    return {OUR_NAMES.get(name, name): shape for name, shape in shapes.items()}


def geometry_of(shapes: Mapping[str, Sequence[int]]) -> dict[str, Any] | None:
    """Returns the geometry of a network, {one of GEOMETRY: value}, from the shapes of its
    variables; None if it is another kind of network."""
    kernel = NOTEBOOK_NAMES[0][0]
    if not {'h1', 'h2', 'h5', 'h6'} <= set(shapes) or not {kernel, 'h4'} & set(shapes):
        return None
    recurrent = kernel if kernel in shapes else 'h4'
    if any(len(shapes[name]) != 2 for name in ('h1', 'h2', 'h5', 'h6', recurrent)):
        return None
    rnn, n_cell = (
        ('lstm', shapes[kernel][1] // 4) if kernel in shapes else ('vanilla', shapes['h4'][1])
    )
    return dict(
        zip(
            GEOMETRY,
            (
                rnn,
                shapes['h1'][0],
                shapes['h1'][1],
                shapes['h2'][1],
                n_cell,
                shapes['h5'][1],
                shapes['h6'][1],
                layers.NORM_SCOPE % 1 + '/gain' in shapes,
            ),
        )
    )


def restore(session: tf.Session, path: str, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Restores variables from a checkpoint of this project or of the notebook.

    Returns:
      The variables that the checkpoint lacks, none of which is a weight; they are left unchanged.
    Raises:
      CheckpointError: a weight is missing.
    """
    reader = checkpoint_io.Reader(path)
    names = {variable.op.name: name_in(reader, variable.op.name) for variable in variables}
    missing = [variable for variable in variables if not names[variable.op.name]]
    weights = [variable.op.name for variable in missing if variable.trainable]
    if weights:
        raise errors.CheckpointError(
            'ds_restore_checkpoint: %s lacks the weights %s' % (path, ', '.join(weights))
        )
    slots = [variable.op.name for variable in missing if '/Adam' in variable.op.name]
    if slots:
        log.warning("%s lacks the optimizer's state: %s; it starts afresh", path, ', '.join(slots))
    found = [variable for variable in variables if variable not in missing]
    _check_shapes(path, reader, {names[variable.op.name]: variable for variable in found})
    # A Saver would add operations, and the graph of a run is finalized.
    values = {v.initial_value: reader.get_tensor(str(names[v.op.name])) for v in found}
    session.run([v.initializer for v in found], values)
    return missing


def _check_shapes(path, reader, variables):
    """Raises a CheckpointError if a variable, {its name in the checkpoint: variable}, has another
    shape or dtype there."""
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    for name, variable in variables.items():
        here = (variable.dtype.base_dtype.name, variable.shape.as_list())
        there = (dtypes[name].name, shapes[name])
        if there != here:
            raise errors.CheckpointError(
                'ds_restore_checkpoint: %s has %s of %s %s, but it must be %s %s'
                % (path, name, *there, *here)
            )
