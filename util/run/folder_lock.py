"""The lock of a checkpoint folder: only one run at a time writes into it.

The lock is a file that says which process has the folder. It works wherever a file can be created
exclusively, also on network folders without locks. A killed run leaves its lock behind; the next
one on the same machine sees that the process has ended, and takes the lock over. A process in
another container cannot be seen; but both have the same kernel, which drops the lock that a process
has on its open file when it ends.
"""

import contextlib
import datetime
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from util import config as settings, errors, files, processes

log = logging.getLogger(__name__)

NAME = 'run.lock'
LIMIT = 10_000  # bytes of a lock's file
YOUNG_S = 10.0  # s, age of a lock below which its process may not have opened it yet


class Holder(NamedTuple):
    """Who has a lock."""

    process: processes.Process
    since: str  # date and time in ISO 8601

    def words(self) -> str:
        """Describes the holder for a message."""
        return 'process %d on %s, running since %s' % (
            self.process.pid,
            self.process.host,
            self.since,
        )


@contextlib.contextmanager
def held(config: settings.Config) -> Iterator[None]:
    """Makes `ds_checkpoint_dir`, and holds its lock while the block runs; a run without training
    only reads, and needs no lock.

    Raises:
      ConfigError: another run has the folder, or it cannot be written.
    """
    if not config.training_iters:
        yield
        return
    files.make_dir(config.checkpoint_dir, 'ds_checkpoint_dir')
    holder = _holder()
    path = os.path.join(config.checkpoint_dir, NAME)
    try:
        _acquire(path, holder)
    except OSError as error:
        raise errors.ConfigError(
            'ds_checkpoint_dir: cannot write to %s: %s' % (path, error.strerror)
        ) from None
    try:
        with _kept_open(path):
            yield
    finally:
        _release(path, holder)


def renew(directory: str) -> None:
    """Makes a checkpoint folder and its lock anew if someone has removed them in mid-run.

    Raises:
      TrainingError: another run has the folder now.
      OSError: they cannot be made.
    """
    path = os.path.join(directory, NAME)
    there = _read(path)
    if there and there.process == processes.this():
        return
    os.makedirs(directory, exist_ok=True)
    if not _create(path, _holder()):
        raise errors.TrainingError(
            'nothing is saved: %s is that of another run now (%s)'
            % (directory, there.words() if there else 'its lock does not say which')
        )
    log.warning('%s was removed; it is made anew', path)


def _acquire(path, holder):
    """Creates the lock's file; takes over that of a process that has ended.

    Raises:
      ConfigError: another process has the lock.
      OSError: the file cannot be written.
    """
    files.remove_abandoned(path + '.', '.tmp')
    if _create(path, holder):
        return
    there = _read(path)
    if there is None or not _has_ended(path, there.process):
        raise _refusal(path, there)
    # Of several runs that find the same ended process, one gets this second lock. It looks again
    # before it takes over, since another one may have done so in between.
    taking_over = path + '.takeover'
    _acquire(taking_over, holder)
    try:
        now_there = _read(path)
        if now_there != there:
            raise _refusal(path, now_there)
        log.info('%s: the run that had the folder has ended (%s)', path, there.words())
        files.write_file(path, _content(holder))
    finally:
        _release(taking_over, holder)


@contextlib.contextmanager
def _kept_open(path):
    """Has the kernel's lock on a file while the block runs, if the file system has locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file = stack.enter_context(open(path, 'rb'))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _has_ended(path, process):
    """Tells whether the process that has a lock is known to have ended."""
    if processes.has_ended(process):
        return True
    if not processes.is_in_another_container(process):
        return False
    with contextlib.suppress(OSError), open(path, 'rb') as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return time.time() - os.fstat(file.fileno()).st_mtime > YOUNG_S
    return False


def _release(path, holder):
    """Removes the lock's file, if it is still that of this holder."""
    with contextlib.suppress(OSError):
        there = _read(path)
        if there and there.process == holder.process:
            os.remove(path)


def _holder():
    """Returns this process as a Holder."""
    now = datetime.datetime.now().astimezone()
    return Holder(processes.this(), now.isoformat(' ', 'seconds'))


def _create(path, holder):
    """Creates the lock's file; returns False if there is one."""
    temporary = '%s.%s.tmp' % (path, processes.mark())
    try:
        files.write_synced(temporary, _content(holder))
        os.link(temporary, path)  # appears with its content, and only if there is no file
    except FileExistsError:
        return False
    except OSError:  # a file system without links, or a full one
        return _create_in_place(path, holder)
    finally:
        files.remove(temporary)
    files.sync(os.path.dirname(path) or '.')
    return True


def _create_in_place(path, holder):
    """Does what `_create` does where there are no hard links."""
    try:
        files.write_synced(path, _content(holder), 'x')
    except FileExistsError:
        return False
    except OSError:
        files.remove(path)
        raise
    return True


def _content(holder):
    """Returns the content of the lock's file."""
    return json.dumps({**holder.process._asdict(), 'since': holder.since}) + '\n'


def _read(path):
    """Returns the Holder that a lock's file names; None if there is none, or it is damaged."""
    try:
        with files.open_regular(path, encoding='utf-8', errors='replace') as file:
            content = json.loads(file.read(LIMIT))
        since = str(content.pop('since'))
        process = processes.Process(**content)
        return Holder(process._replace(pid=int(process.pid)), since)
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ):
        return None


def _refusal(path, there):
    """Returns the ConfigError that tells of a folder that another run has."""
    return errors.ConfigError(
        'ds_checkpoint_dir: another run writes into %s (%s); use another folder, or wait for its '
        'end; if it no longer runs, remove %s'
        % (os.path.dirname(path), there.words() if there else 'its lock does not say which', path)
    )
