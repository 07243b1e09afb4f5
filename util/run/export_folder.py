"""The folder of exported models: versions 1, 2, 3, ..., each complete as soon as it appears."""

import contextlib
import errno
import itertools
import logging
import os
import re
import shutil
from collections.abc import Mapping

import numpy as np

from util import errors, files, log as run_log, processes
from util.tf1 import tf

log = logging.getLogger('DeepSpeech')

SAVED_MODEL = 'saved_model.pb'  # what every exported model has in its folder


class Version:
    """A version that is being written.

    Attributes:
      unfinished: folder to write the model into.
      path: folder of the version once it is complete, before that None.
    """

    def __init__(self, unfinished: str):
        self.unfinished = unfinished
        self.path: str | None = None


def check_finite(export_dir: str, weights: Mapping[str, np.ndarray]) -> None:
    """Checks that weights can be exported.

    Args:
      export_dir: for the message.
      weights: {name of the variable: float32 array}.
    Raises:
      TrainingError: a value is not finite.
    """
    bad = [name for name, values in weights.items() if not np.isfinite(values).all()]
    if bad:
        raise errors.TrainingError(
            'ds_export_dir: no model is exported to %s, as not all values of %s are finite numbers'
            % (export_dir, ', '.join(sorted(bad)))
        )


@contextlib.contextmanager
def new_version(export_dir: str, remove_older: bool):
    """Turns the folder that the block writes into a version, named with the next free whole number.

    If another run takes this number meanwhile, the next one is used. What killed runs left
    unfinished is removed.

    Args:
      export_dir: folder of the versions.
      remove_older: whether the older versions are removed afterwards.
    Yields:
      Version.
    Raises:
      OSError: the version cannot be written.
    """
    unfinished = os.path.join(export_dir, '.unfinished-')
    files.remove_abandoned(unfinished)
    version = Version(unfinished + processes.mark())
    shutil.rmtree(version.unfinished, ignore_errors=True)
    try:
        yield version
        files.sync_tree(version.unfinished)  # before it has a name that a server may load
        older = _versions(export_dir)
        for number in itertools.count(max(older, default=0) + 1):
            version.path = os.path.join(export_dir, str(number))
            try:
                os.rename(version.unfinished, version.path)
                break
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        files.sync(export_dir)
    finally:
        shutil.rmtree(version.unfinished, ignore_errors=True)
    if remove_older:
        for number in older:
            _remove(os.path.join(export_dir, older[number]))


def write_extras(folder: str, model_description: dict, requests: list[bytes]) -> None:
    """Writes what goes with a SavedModel: assets.extra/model.json, and the requests with which a
    model server warms up.

    Args:
      folder: of the SavedModel.
      model_description: dict that JSON can hold.
      requests: serialised PredictionLogs.
    Raises:
      OSError, tf.errors.OpError.
    """
    extra = os.path.join(folder, 'assets.extra')
    os.makedirs(extra)
    files.write_file(os.path.join(extra, 'model.json'), run_log.strict_json(model_description))
    with tf.io.TFRecordWriter(os.path.join(extra, 'tf_serving_warmup_requests')) as writer:
        for request in requests:
            writer.write(request)


def _versions(export_dir):
    """Returns {number: name} of what has a whole number as its name in a folder."""
    return {int(name): name for name in os.listdir(export_dir) if re.fullmatch('[0-9]+', name)}


def _remove(path):
    """Removes an exported model; what is not one stays, as it may be somebody's only copy."""
    if os.path.isfile(os.path.join(path, SAVED_MODEL)) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        log.warning('ds_remove_export leaves %s, which is no exported model', path)
