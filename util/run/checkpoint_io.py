"""Reads and writes the files of checkpoints by their exact names.

TensorFlow's Saver takes a path for a pattern: `run[2]` stands for `run2` when it looks for a
checkpoint or removes old ones. Here only the operations of a Saver are used, which write the names
that they are given; for reading, links with plain names stand for files whose names hold characters
of patterns.

A checkpoint is written beside its place, and moved there once it is on the disk; then the state
file names it; only then older ones are removed. So at any moment at which a run is killed, or the
power fails, the state file names whole checkpoints only.
"""

import contextlib
import math
import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from util import errors, files
from util.tf1 import tf

BASENAME = 'model.ckpt'
STATE = 'checkpoint'  # the file that lists the checkpoints in a folder, as TensorFlow's Saver does
STATE_LIMIT = 1_000_000  # bytes of it that are read
INDEX_LIMIT = 100_000_000  # bytes of an index; ours have a few thousand
UNFINISHED = '.unfinished'  # folder in which a checkpoint is written
PATTERN = set('*?[\\')  # characters that TensorFlow's file systems take for parts of a pattern
FILE = r'\.(?:index|meta|data-[0-9]{5}-of-[0-9]{5})'  # what follows a checkpoint's name


# Names


def files_of(path: str) -> list[str]:
    """Lists the paths of a checkpoint's files, the index last."""
    folder, name = os.path.split(path)
    with contextlib.suppress(OSError):
        found = [
            each
            for each in os.listdir(folder or '.')
            if re.fullmatch(re.escape(name) + FILE, each, re.S)
        ]
        return [os.path.join(folder, each) for each in sorted(found, key=_is_index)]
    return []


def _is_index(name):
    """Tells whether a file is the index of a checkpoint."""
    return name.endswith('.index')


def remove(path: str) -> None:
    """Removes the files of a checkpoint; the index first, without which there is no checkpoint.

    Raises:
      OSError: a file cannot be removed.
    """
    for file in reversed(files_of(path)):
        os.remove(file)


def size(path: str) -> int:
    """Returns the size of a checkpoint's files in bytes."""
    return sum(map(os.path.getsize, files_of(path)))


# The state file


def listed(directory: str) -> list[str]:
    """Returns the names of the checkpoints that a folder's state file lists, newest first; none if
    it cannot be read. Of names with folders only the last part counts, so that a folder can be
    copied or moved."""
    try:
        with files.open_regular(os.path.join(directory, STATE), mode='rb') as file:
            content = file.read(STATE_LIMIT).decode('utf-8', 'replace')
    except OSError:
        return []
    [newest, names] = [
        [os.path.basename(each) for each in re.findall('^%s: *"(.+)" *$' % key, content, re.M)]
        for key in ('model_checkpoint_path', 'all_model_checkpoint_paths')
    ]
    return list(dict.fromkeys(newest[:1] + names[::-1]))


def write_state(directory: str, names: list[str]) -> None:
    """Writes the state file.

    Args:
      directory: folder of the checkpoints.
      names: their names, oldest first.
    Raises:
      OSError: it cannot be written; an earlier one is left as it was.
    """
    state = tf.train.generate_checkpoint_state_proto('.', names[-1], names)
    files.write_file(os.path.join(directory, STATE), str(state))


# Reading


class Reader:
    """Reads the values of a checkpoint; a tf.train.load_checkpoint whose path is no pattern, and
    that does not believe an index that promises more than there is.

    Args:
      path: the checkpoint.
    Raises:
      CheckpointError: there is no such checkpoint, its files are not regular files, or they are
        too small for the values that the index promises.
      tf.errors.OpError: it cannot be read.
    """

    def __init__(self, path: str):
        self._path, links = path, contextlib.ExitStack()
        weakref.finalize(self, links.close)
        _check_files(path)
        self._reader = tf.train.load_checkpoint(links.enter_context(plain(path)))
        self._check_sizes()

    def _check_sizes(self):
        """Raises a CheckpointError if the index promises more than the files hold."""
        dtypes = self._reader.get_variable_to_dtype_map()
        promised = sum(
            math.prod(shape) * (1 if dtypes[name] == tf.string else dtypes[name].size)
            for name, shape in self.get_variable_to_shape_map().items()
        )
        if promised > size(self._path):
            raise errors.CheckpointError(
                'its index promises %d bytes of values, but its files have %d'
                % (promised, size(self._path))
            )

    def has_tensor(self, name: str) -> bool:
        """Tells whether the checkpoint holds a variable of this name."""
        return self._reader.has_tensor(name)

    def get_tensor(self, name: str) -> Any:
        """Returns the value of a variable, an array of its dtype and shape."""
        return self._reader.get_tensor(name)

    def number(self, name: str) -> Any:
        """Returns the value of a scalar variable; None if it is missing, or something else."""
        if self.get_variable_to_shape_map().get(name) != []:
            return None
        value = self.get_tensor(name)
        return value.item() if isinstance(value, np.generic) else None

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns {name: shape} of all variables."""
        return self._reader.get_variable_to_shape_map()

    def get_variable_to_dtype_map(self) -> dict[str, tf.DType]:
        """Returns {name: dtype} of all variables."""
        return self._reader.get_variable_to_dtype_map()


def _check_files(path):
    """Raises a CheckpointError if there is no such checkpoint, or reading it would not end."""
    found = files_of(path)
    if not found or not _is_index(found[-1]):
        raise errors.CheckpointError('there is no file %s.index' % path)
    if not all(stat.S_ISREG(os.stat(file).st_mode) for file in found):
        raise errors.CheckpointError('it has files that are not regular files')
    if os.path.getsize(found[-1]) > INDEX_LIMIT:
        raise errors.CheckpointError('its index has %d bytes' % os.path.getsize(found[-1]))


@contextlib.contextmanager
def plain(path: str) -> Iterator[str]:
    """Gives the path of a checkpoint, or, if TensorFlow would take that for a pattern, a path of
    links to its files, which exist while the block runs."""
    if not PATTERN & set(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, BASENAME)
        for file in files_of(path):
            os.symlink(os.path.abspath(file), link + file[len(path) :])
        yield link


@contextlib.contextmanager
def plain_folder(path: str) -> Iterator[str]:
    """Does for a folder, such as that of an exported model, what `plain` does for a checkpoint."""
    if not PATTERN & set(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, 'linked')
        os.symlink(os.path.abspath(path), link)
        yield link


def restore(session: tf.Session, saver: tf.train.Saver, path: str) -> None:
    """Restores the variables of a Saver from a checkpoint.

    Raises:
      tf.errors.OpError: it cannot be read, or a variable is missing or has another shape.
    """
    definition = saver.saver_def
    with plain(path) as there:
        session.run(definition.restore_op_name, {definition.filename_tensor_name: there})


# Writing


class Folder:
    """The folder of the newest checkpoints of a run, as many as its saver keeps.

    Attributes:
      directory: the folder.

    Args:
      saver: tf.train.Saver of which the operation that saves and the number to keep are used.
    """

    def __init__(self, directory: str, saver: tf.train.Saver):
        self.directory, self._saver = directory, saver
        self._names: list[str] = []  # oldest first

    def take_over(self, paths: list[str]) -> None:
        """Counts existing checkpoints, newest first, among those of which the older ones are
        removed."""
        self._names = [os.path.basename(path) for path in reversed(paths)]

    def path(self, number: int) -> str:
        """Returns the path of the checkpoint with this number in its name."""
        return os.path.join(self.directory, '%s-%d' % (BASENAME, number))

    def kept(self) -> set[str]:
        """Returns the paths of the checkpoints that are kept at present."""
        return {os.path.join(self.directory, name) for name in self._names}

    def save(self, session: tf.Session, number: int, passing: Collection[str] = ()) -> str:
        """Saves a checkpoint, and removes the oldest if there are more than the saver keeps.

        Args:
          session: session of the graph of the saver.
          number: the number in its name.
          passing: paths of checkpoints that are removed then, and do not count.
        Returns:
          Its path.
        Raises:
          OSError, tf.errors.OpError: it cannot be written; what is in the folder is left as it was.
        """
        path = self.path(number)
        name, passed = os.path.basename(path), {os.path.basename(each) for each in passing}
        _write(session, self._saver, self.directory, name)
        others = [each for each in self._names if each not in {name, *passed}]
        first = max(0, len(others) + 1 - self._saver.saver_def.max_to_keep)
        self._names = [*others[first:], name]
        write_state(self.directory, self._names)
        for old in {*others[:first], *passed} - {name}:
            remove(os.path.join(self.directory, old))
        return path


def _write(session, saver, directory, name):
    """Writes a checkpoint beside its place, and moves it there."""
    unfinished, definition = os.path.join(directory, UNFINISHED), saver.saver_def
    try:
        _finish(directory)
        os.makedirs(unfinished)
        path = os.path.join(unfinished, name)
        session.run(definition.save_tensor_name, {definition.filename_tensor_name: path})
        files.sync_tree(unfinished)
        for file in files_of(path):  # the index comes last, see _finish
            os.replace(file, os.path.join(directory, os.path.basename(file)))
            files.sync(directory)
    finally:
        _finish(directory)


def _finish(directory):
    """Completes a checkpoint of which all is moved to its place but the index, or removes what was
    not yet moved.

    Raises:
      OSError: the folder of unfinished files cannot be changed.
    """
    unfinished = os.path.join(directory, UNFINISHED)
    if not os.path.isdir(unfinished):
        return
    names = os.listdir(unfinished)
    if len(names) == 1 and _is_index(names[0]):
        os.replace(os.path.join(unfinished, names[0]), os.path.join(directory, names[0]))
        files.sync(directory)
    shutil.rmtree(unfinished)


def _remove_data_without_index(directory):
    """Removes the data of checkpoints whose index is gone, which a run leaves that is killed while
    it removes one."""
    with contextlib.suppress(OSError):
        names = os.listdir(directory)
        for name in names:
            match = re.fullmatch('(%s-[0-9]+)[.]data-[0-9]+-of-[0-9]+' % re.escape(BASENAME), name)
            if match and match[1] + '.index' not in names:
                files.remove(os.path.join(directory, name))


def clean_up(directory: str) -> None:
    """Completes, or removes, what a killed run left unfinished in a folder of checkpoints."""
    with contextlib.suppress(OSError):
        _finish(directory)
    files.remove_abandoned(os.path.join(directory, STATE + '.'), '.tmp')
    _remove_tempstates(directory)
    _remove_data_without_index(directory)


def _remove_tempstates(directory):
    """Removes the temporary files that TensorFlow's own Saver leaves when it is killed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if re.fullmatch(re.escape(BASENAME) + r'-\d+' + FILE + r'\.tempstate\d+', name):
                files.remove(os.path.join(directory, name))
