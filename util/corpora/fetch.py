"""Fetches a corpus that consists of one or more archives.

A file beside the corpus notes which archives are done, so that a fetch that was interrupted
resumes where it stopped.
"""

import json
import os
import urllib.parse
from typing import NamedTuple

from util import errors, files
from util.corpora import archives, download

LOCK_NAME = '.fetching.lock'  # in the corpus's folder


class Archive(NamedTuple):
    """A file to fetch, with its size and checksum if the publisher states them."""

    url: str
    size_bytes: int | None = None
    md5: str | None = None  # 32 hexadecimal digits


def fetch_corpus(folder: str, marker: str, sources: list[Archive]) -> None:
    """Downloads and unpacks the archives of a corpus, unless the corpus is there already.

    An archive that was downloaded here is removed once it is unpacked; one that was there before
    is used and kept. Only one process at a time fetches into a folder.

    Args:
      folder: where the archives and their contents go.
      marker: file or folder below `folder` that exists if the corpus is there.
      sources: the archives, in the order in which they are unpacked.
    Raises:
      DataError: an archive cannot be downloaded or unpacked, or none of them holds `marker`.
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
            if not _is_there(marker_path, notes_path):  # another process may have fetched it
                _fetch(folder, marker_path, sources, notes_path)
    except (errors.DataError, OSError) as error:
        reason = getattr(error, 'strerror', None) or str(error)
        if os.path.exists(marker_path):
            reason += '; if %s is complete all the same, remove %s' % (marker_path, notes_path)
        raise errors.DataError('%s cannot be fetched: %s' % (marker_path, reason)) from None


def _is_there(marker_path, notes_path):
    """Returns whether the marker exists and no notes tell of an unfinished fetch."""
    return os.path.exists(marker_path) and not os.path.exists(notes_path)


def _fetch(folder, marker_path, sources, notes_path):
    """Downloads and unpacks the archives that the notes do not call unpacked; removes the notes."""
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
            'the archives did not hold it: %s; remove %s to fetch them again'
            % (', '.join(notes['unpacked']), notes_path)
        )
    os.remove(notes_path)


def _read_notes(path):
    """Returns the notes: {'downloaded': names of archives to remove, 'unpacked': names}."""
    try:
        with open(path, encoding='utf-8') as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return {'downloaded': [], 'unpacked': []}
