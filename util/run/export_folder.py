"""The folder of exported models: versions 1, 2, 3, ..., each complete as soon as it appears."""

import contextlib
import errno
import itertools
import os
import re
import shutil


class Version:
    """A version that is being written.

    Attributes:
      unfinished: folder to write the model into.
      path: folder of the version once it is complete, before that None.
    """

    def __init__(self, unfinished: str):
        self.unfinished = unfinished
        self.path: str | None = None


@contextlib.contextmanager
def new_version(export_dir: str, remove_older: bool):
    """Turns the folder that the block writes into a version, named with the next free whole number.

    If another run takes this number meanwhile, the next one is used.

    Args:
      export_dir: folder of the versions.
      remove_older: whether the older versions are removed afterwards.
    Yields:
      Version.
    Raises:
      OSError: the version cannot be written.
    """
    version = Version(os.path.join(export_dir, '.unfinished-%d' % os.getpid()))
    shutil.rmtree(version.unfinished, ignore_errors=True)
    try:
        yield version
        older = _versions(export_dir)
        for number in itertools.count(max(older, default=0) + 1):
            version.path = os.path.join(export_dir, str(number))
            try:
                os.rename(version.unfinished, version.path)
                break
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
    finally:
        shutil.rmtree(version.unfinished, ignore_errors=True)
    if remove_older:
        for number in older:
            shutil.rmtree(os.path.join(export_dir, older[number]))


def _versions(export_dir):
    """Returns {number: name} of the versions in a folder."""
    return {int(name): name for name in os.listdir(export_dir) if re.fullmatch('[0-9]+', name)}
