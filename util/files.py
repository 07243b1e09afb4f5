"""Files and folders: opening, writing whole files, folders that must be writable, locks."""

import contextlib
import errno
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import filelock

from util import errors, processes

log = logging.getLogger(__name__)


def open_regular(path: str, **options: Any) -> IO[Any]:
    """Opens a file for reading, with the options of `open`.

    Raises:
      OSError: the file cannot be opened, or it is a pipe or a device, which might keep a run
        waiting for ever.
    """
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
        raise OSError(errno.EINVAL, 'not a regular file', path)
    return open(path, **options)


def fingerprint(path: str) -> str:
    """Returns what tells whether a file is still the same one, with the same content: its size,
    its times of modification and of the inode's change, and its inode.

    Nobody can set back the time of the inode's change, as unpacking and copying do with that of
    modification.

    Raises:
      OSError: there is no such file.
    """
    status = os.stat(path)
    return '%d-%d-%d-%d' % (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def write_file(path: str, content: str) -> None:
    """Writes text in UTF-8 to a temporary file and renames it, so that no reader sees half a file.

    When it returns, the file is on the disk under its name, and outlives a loss of power. What
    killed processes left of this file is removed.

    Raises:
      OSError: the file cannot be written; an earlier file of this name is left as it was.
    """
    temporary = '%s.%s.tmp' % (path, processes.mark())  # other runs write hyper.js as well
    try:
        remove_abandoned(path + '.', '.tmp')
        write_synced(temporary, content)
        os.replace(temporary, path)
        sync(os.path.dirname(path) or '.')
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


def write_synced(path: str, content: str, mode: str = 'w') -> None:
    """Writes text in UTF-8 to a file, and waits until it is on the disk.

    Args:
      path: the file.
      content: the text.
      mode: as `open` takes it; 'x' writes a new file only.
    Raises:
      OSError: the file cannot be written.
    """
    with open(path, mode, encoding='utf-8') as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: str) -> None:
    """Waits until a file, or the names in a folder, are on the disk.

    Raises:
      OSError: they cannot be written.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some file systems cannot do that with folders
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: str) -> None:
    """Waits until everything in a folder, and below it, is on the disk.

    Raises:
      OSError: it cannot be written.
    """
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync(os.path.join(place, name))
        sync(place)


def remove_abandoned(start: str, end: str = '') -> None:
    """Removes files and folders that processes of this machine left when they were killed.

    Args:
      start, end: what stands before and behind the mark of the process (processes.mark) in their
        paths. Those of running processes and of other machines stay.
    """
    folder, start = os.path.split(start)
    pattern = re.compile(re.escape(start) + processes.MARK + re.escape(end), re.S)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder or '.'):
            found = pattern.fullmatch(name)
            if found and processes.is_abandoned(found):
                remove(os.path.join(folder, name))


def remove(path: str) -> None:
    """Removes a file, or a folder with all that is in it, if that is possible."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)


def make_dir(path: str, setting: str) -> None:
    """Makes a folder, with those above it, and checks that files can be written into it.

    Args:
      path: the folder.
      setting: the name of the setting that asks for it.
    Raises:
      ConfigError: the folder cannot be made or written to; the message names setting and path.
    """
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise errors.ConfigError(
            '%s: cannot write to %s: %s' % (setting, path, error.strerror)
        ) from None


@contextlib.contextmanager
def locked(path: str, waiting: str) -> Iterator[None]:
    """Keeps other processes that take the same lock waiting until the `with` block ends.

    The lock ends with the process that holds it, even a killed one. If the file system has no
    locks, or the lock's file cannot be written, the block runs without a lock; it will itself
    report what it cannot write.

    Args:
      path: the lock's file, in a folder that exists; it is not removed.
      waiting: the message to log if another process holds the lock.
    """
    # A soft lock consists in the existence of its file, which would outlive a killed process.
    lock = filelock.FileLock(path, fallback_to_soft=False)
    try:
        with open(path, 'ab'):
            pass  # if this fails, filelock may take it for another's lock and wait for ever
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            log.info('%s', waiting)
            lock.acquire()
    except OSError:
        pass
    try:
        yield
    finally:
        lock.release()


def format_duration(seconds: float) -> str:
    """Returns a number of seconds as h:mm:ss."""
    minutes, seconds = divmod(int(seconds), 60)
    return '%d:%02d:%02d' % (minutes // 60, minutes % 60, seconds)
