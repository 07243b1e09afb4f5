"""Files and folders: opening, writing whole files, folders that must be writable, locks."""

import contextlib
import errno
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import filelock

from util import errors

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

    Raises:
      OSError: the file cannot be written; an earlier file of this name is left as it was.
    """
    temporary = '%s.%d.tmp' % (path, os.getpid())  # other runs write hyper.js as well
    try:
        with open(temporary, 'w', encoding='utf-8') as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


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
