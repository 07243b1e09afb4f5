"""The mean of the weights of a run's newest checkpoints (`ds_average_checkpoints`).

Source: Polyak and Juditsky, SIAM Journal on Control and Optimization 30 (1992), for the mean of
  the iterates; over the last checkpoints of a run it is common in speech recognition.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from util import errors
from util.graph import run_state
from util.run import checkpoint_files, checkpoint_io


def newest_of_run(directory: str, run: int, count: int | None = None) -> list[str]:
    """Returns the paths of the newest undamaged checkpoints of a run, newest first.

    Args:
      directory: folder of the checkpoints, which may hold those of an earlier run, too.
      run: schedule.State.run.
      count: the largest number of checkpoints to return; None: all.
    """
    found: list[str] = []
    for path in checkpoint_files.candidates(directory):
        if len(found) == count:
            break
        if checkpoint_files.damage(path) is None and checkpoint_files.run_of(path) == run:
            found.append(path)
    return found


class Best(NamedTuple):
    """What a checkpoint, or the state of a run, says of the best weights."""

    best_dev_loss: float | None
    dev_set: int | None
    run: int | None
    best_epoch: int | None


def best_of(state: Any) -> Best:
    """Returns what a schedule.State says of the best weights."""
    return Best(*[getattr(state, name) for name in Best._fields])


def best_in(path: str) -> Best:
    """Returns what a checkpoint says of the best weights; None where it does not."""
    reader = checkpoint_io.Reader(path)
    names = ['%s/%s' % (run_state.SCOPE, name) for name in Best._fields]
    return Best(*map(reader.number, names))


def is_best_of(path: str, best: Best) -> bool:
    """Tells whether a checkpoint of best weights is the one that a later state of the run means.

    Checkpoints of older versions do not tell runs apart; their dev losses do.
    """
    there = best_in(path)
    if there.run and best.run:
        return (there.run, there.best_epoch) == (best.run, best.best_epoch)
    return there.best_dev_loss == best.best_dev_loss


def averaged_in(directory: str, setting: str = 'ds_restore_checkpoint') -> str | None:
    """Returns the path of the mean that is kept in a folder of checkpoints; None if there is none,
    or it is of another run or step than the newest checkpoint.

    Args:
      directory: folder of the checkpoints.
      setting: as in checkpoint_files.newest_whole.
    """
    try:
        path = checkpoint_files.newest_whole(checkpoint_files.averaged_dir(directory), setting)
    except errors.CheckpointError:  # the damage was logged
        return None
    newest = path and checkpoint_files.newest_whole(directory, setting)
    return path if newest and _place(path) == _place(newest) else None


def _place(path):
    """Returns the run of a checkpoint, and the number of its last update."""
    return checkpoint_files.run_of(path), checkpoint_files.number(path)


def mean_weights(paths: Sequence[str], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Computes the mean of weights over checkpoints.

    Args:
      paths: the checkpoints, which all hold these weights.
      names: names of the weights.
    Returns:
      {name: float32 array}; the sums are float64.
    """
    sums: dict[str, np.ndarray] = {}
    for path in paths:
        reader = checkpoint_io.Reader(path)
        for name in names:
            there = checkpoint_files.name_in(reader, name) or name
            value = reader.get_tensor(there).astype(np.float64)
            sums[name] = sums[name] + value if name in sums else value
    return {name: (total / len(paths)).astype(np.float32) for name, total in sums.items()}
