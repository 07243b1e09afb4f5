"""Files and folders: opening, writing whole files, folders that must be writable, locks."""
import contextlib
import errno
import logging
import os
import stat

import filelock

from util import errors

log = logging.getLogger(__name__)


def open_regular(path, **options):
    """Opens a file for reading as `open` does.

    Raises:
      OSError: also for a pipe or a device, which might keep a run waiting for ever.
    """
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
        raise OSError(errno.EINVAL, 'not a regular file', path)
    return open(path, **options)


def write_file(path, content):
    """Writes a text beside its place and renames it, so that no reader sees a part of it.

    Raises:
      OSError: the file that was there before is still whole.
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


def make_dir(path, setting):
    """Makes a folder and checks that files can be written into it.

    Args:
      path: the folder.
      setting: the name of the setting that asks for it.
    Raises:
      ConfigError: naming the setting, the path and the reason.
    """
    probe = os.path.join(path, '.write-test-%d' % os.getpid())
    try:
        os.makedirs(path, exist_ok=True)
        with open(probe, 'wb'):
            pass
        os.remove(probe)
    except OSError as error:
        raise errors.ConfigError('%s: cannot write to %s: %s' % (setting, path, error.strerror)
                                 ) from None


@contextlib.contextmanager
def locked(path, waiting):
    """Keeps other processes that take the same lock out until this one is done.

    The lock ends with the process that holds it. On a file system without locks there is none.

    Args:
      path: the lock's file; it stays behind.
      waiting: what to log where another process holds the lock.
    """
    lock = filelock.FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            log.info('%s', waiting)
            lock.acquire()
    except (NotImplementedError, OSError):  # such as a network disk without locks
        pass
    try:
        yield
    finally:
        lock.release()


def format_duration(seconds):
    """Returns a number of seconds as h:mm:ss."""
    minutes, seconds = divmod(int(seconds), 60)
    return '%d:%02d:%02d' % (minutes // 60, minutes % 60, seconds)
