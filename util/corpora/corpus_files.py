"""What importers share: finding and reading the files of a corpus, splitting it."""
import os

from util import config as settings, errors, files, records

HIDDEN = ('._', '.DS_Store', '__MACOSX')  # what macOS leaves in folders and archives


def require_folder(path, corpus, how_to_get):
    """The path, if it is a folder.

    Raises:
      DataError: saying where the corpus is expected and how to get it.
    """
    if not os.path.isdir(path):
        raise errors.DataError('%s is expected in %s (ds_dataset_path), which is not a folder; '
                                '%s' % (corpus, path, how_to_get))
    return path


def find_files(folder, *endings):
    """Paths of all files below a folder with one of these endings, in any case, sorted.

    What is hidden is no part of a corpus.
    """
    endings, found = tuple(ending.lower() for ending in endings), []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith(HIDDEN))
        found += [os.path.join(parent, name) for name in names
                  if name.lower().endswith(endings) and not name.startswith(HIDDEN)]
    return sorted(found)


def find_file(folder, name):
    """Path of a file or folder directly below `folder`, whatever the case of its name; None
    where there is none."""
    for found in sorted(os.listdir(folder)):
        if found.lower() == name.lower():
            return os.path.join(folder, found)
    return None


def read_lines(path, encoding='utf-8-sig'):
    """Lines of a text file without their ends; empty lines are left out.

    Raises:
      DataError: naming the file.
    """
    try:
        with files.open_regular(path, encoding=encoding) as file:
            return [line for line in file.read().split('\n') if line.strip()]
    except OSError as error:
        raise errors.DataError('%s cannot be read: %s' % (path, error.strerror)) from None
    except UnicodeDecodeError as error:
        raise errors.DataError('%s is not text in UTF-8: %s' % (path, error)) from None


def split_by_position(items, dev_every, test_every):
    """Listing of a list without a split of its own.

    The n-th of every `test_every` items is for the test, the n-th of every `dev_every` of the
    others for validation, the rest for training; a short list has neither.
    """
    test = items[test_every - 1::test_every]
    rest = [item for i, item in enumerate(items) if (i + 1) % test_every]
    dev = rest[dev_every - 1::dev_every]
    return records.Listing([item for i, item in enumerate(rest) if (i + 1) % dev_every], dev, test)
