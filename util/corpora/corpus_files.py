"""Finds and reads the files of a corpus, and splits a corpus by position."""

import os
from collections.abc import Sequence
from typing import TypeVar

from util import errors, files

# Endings of names of audio files. The last row is of formats that libsndfile cannot read; these
# files are named as failures rather than passed over.
AUDIO = (
    *('.wav', '.wave', '.rf64', '.w64', '.flac', '.ogg', '.oga', '.opus', '.mp3', '.mp2'),
    *('.sph', '.nist', '.aif', '.aiff', '.aifc', '.au', '.snd', '.caf'),
    *('.m4a', '.aac', '.wma', '.amr'),
)
HIDDEN = ('._', '.DS_Store', '__MACOSX')  # what macOS leaves in folders and archives

Item = TypeVar('Item')


def require_folder(path: str, corpus: str, how_to_get: str) -> str:
    """Returns the path of a corpus if it is a folder.

    Args:
      path: the folder.
      corpus: name of the corpus.
      how_to_get: how to get the corpus, for the message.
    Raises:
      DataError: `path` is not a folder; the message says how to get the corpus.
    """
    if not os.path.isdir(path):
        raise errors.DataError(
            '%s is expected in %s (ds_dataset_path), which is not a folder; '
            '%s' % (corpus, path, how_to_get)
        )
    return path


def find_files(folder: str, *endings: str) -> list[str]:
    """Returns the paths of all files below a folder whose names have one of these endings, in
    upper or lower case; sorted.

    Hidden files and folders are left out. Links to folders are followed, but each folder is listed
    once only, by its own name rather than by a link's; a link to a folder above leads nowhere.
    """
    lower, found = tuple(ending.lower() for ending in endings), []
    for parent, names in _folders(folder):
        found += [
            os.path.join(parent, name)
            for name in names
            if name.lower().endswith(lower) and not name.startswith(HIDDEN)
        ]
    return sorted(found)


def _folders(folder):
    """Yields path and names of the files of each folder below a folder, of those behind links
    last."""
    seen, real = set(), os.path.realpath(folder)
    while os.path.dirname(real) != real:
        real = os.path.dirname(real)
        seen.add(_identity(real))
    links = [folder]
    for link in links:  # grows
        for parent, folders, names in os.walk(link):
            identity = _identity(parent)
            if identity in seen or identity is None:
                folders.clear()
                continue
            seen.add(identity)
            folders[:] = sorted(name for name in folders if not name.startswith(HIDDEN))
            paths = [os.path.join(parent, name) for name in folders]
            links += [path for path in paths if os.path.islink(path)]
            yield parent, names


def _identity(path):
    """Returns device and inode of a folder, which are the same by whatever name; None if it is
    gone."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def find_file(folder: str, name: str) -> str | None:
    """Returns the path of a file or folder directly below `folder`, whatever the case of its
    name; None if there is none."""
    for found in sorted(os.listdir(folder)):
        if found.lower() == name.lower():
            return os.path.join(folder, found)
    return None


def leads_out(name: str) -> bool:
    """Tells whether a path that a corpus's own list states would lead out of the corpus, to where
    nobody who downloads it expects a file to be read."""
    return os.path.isabs(name) or '..' in name.split(os.sep) or '\0' in name


def read_lines(path: str) -> list[str]:
    """Returns the lines of a text file in UTF-8 without line ends; empty lines are left out.

    Raises:
      DataError: the file cannot be read; the message names it.
    """
    try:
        with files.open_regular(path, encoding='utf-8-sig') as file:
            return [line for line in file.read().split('\n') if line.strip()]
    except OSError as error:
        raise errors.DataError('%s cannot be read: %s' % (path, error.strerror)) from None
    except UnicodeDecodeError as error:
        raise errors.DataError('%s is not text in UTF-8: %s' % (path, error)) from None


def split_by_position(
    items: Sequence[Item], dev_every: int, test_every: int
) -> tuple[list[Item], list[Item], list[Item]]:
    """Returns the training, dev and test part of a list that has no split of its own.

    The last of every `test_every` items is for the test, the last of every `dev_every` of the
    others for validation, the rest for training. A short list has neither dev nor test.
    """
    test = list(items[test_every - 1 :: test_every])
    rest = [item for i, item in enumerate(items) if (i + 1) % test_every]
    dev = rest[dev_every - 1 :: dev_every]
    return [item for i, item in enumerate(rest) if (i + 1) % dev_every], dev, test
