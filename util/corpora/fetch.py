"""Fetching a corpus that consists of one or more archives.

What is done is noted in a file beside the corpus, so that a fetch which was interrupted anywhere
can be started again and goes on from there.
"""

import json
import os
import urllib.parse
from typing import NamedTuple

from util import errors, files
from util.corpora import archives, download

LOCK_NAME = '.fetching.lock'  # in the corpus's folder


class Archive(NamedTuple):
    """A file to fetch, with its size and checksum where the publisher states them."""

    url: str
    size_bytes: int | None = None
    md5: str | None = None  # 32 hexadecimal digits


def fetch_corpus(folder: str, marker: str, sources: list[Archive]) -> None:
    """Downloads and unpacks the archives of a corpus, unless it is there already.

    An archive is removed once it is unpacked, if it was downloaded here; one that somebody put
    there is used and kept. Only one process at a time fetches into a folder.

    Args:
      folder: where the archives and their contents go.
      marker: file or folder below `folder` that tells that the corpus is there.
      sources: the archives, in the order in which they are unpacked.
    Raises:
      DataError: an archive cannot be had or unpacked, or `marker` was in none of them.
    """
    marker_path = os.path.join(folder, marker)
    notes_path = os.path.join(folder, '.fetching-%s.json' % marker.replace('/', '-'))
    if _is_there(marker_path, notes_path):
        return
    try:
        os.makedirs(folder, exist_ok=True)
        with files.locked(
            os.path.join(folder, LOCK_NAME),
            'another process fetches into %s; waiting for it' % folder,
        ):
            if not _is_there(marker_path, notes_path):  # another process may have brought it
                _fetch(folder, marker_path, sources, notes_path)
    except (errors.DataError, OSError) as error:
        reason = getattr(error, 'strerror', None) or str(error)
        if os.path.exists(marker_path):
            reason += '; if %s is whole nevertheless, remove %s' % (marker_path, notes_path)
        raise errors.DataError('%s cannot be fetched: %s' % (marker_path, reason)) from None


def _is_there(marker_path, notes_path):
    """Returns whether the marker is there, and not just from the first of several archives."""
    return os.path.exists(marker_path) and not os.path.exists(notes_path)


def _fetch(folder, marker_path, sources, notes_path):
    """Does what the notes do not call done; removes the notes when all is."""
    notes = _read_notes(notes_path)
    for archive in sources:
        name = urllib.parse.unquote(os.path.basename(urllib.parse.urlsplit(archive.url).path))
        path = os.path.join(folder, name)
        if name not in notes['unpacked']:
            if not os.path.exists(path):
                notes['downloaded'].append(name)
            download.download(archive.url, path, archive.size_bytes, archive.md5)
            files.write_file(notes_path, json.dumps(notes))
            archives.unpack(path, folder)
            notes['unpacked'].append(name)
            files.write_file(notes_path, json.dumps(notes))
        if name in notes['downloaded'] and os.path.exists(path):
            os.remove(path)
    if not os.path.exists(marker_path):
        raise errors.DataError(
            'the archives did not hold it: %s; remove %s to fetch them anew'
            % (', '.join(notes['unpacked']), notes_path)
        )
    os.remove(notes_path)


def _read_notes(path):
    """Returns {'downloaded': names of archives that are ours to remove, 'unpacked': names}."""
    try:
        with open(path, encoding='utf-8') as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return {'downloaded': [], 'unpacked': []}
