"""Caches on disk: the headers of audio files, and features.

Both are SQLite tables beside each other in `ds_cache_dir`. The features themselves lie in one file
for each corpus and each set of settings. An entry is used only as long as the audio file is the
same one, unchanged: see `files.fingerprint`. Damaged entries are computed again. No run depends on
a cache: if one cannot be used, the run logs a warning and goes on without it.
"""

import contextlib
import errno
import hashlib
import logging
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from util import audio, files, records

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 6.0  # s; other runs may write to the same cache
SILENT_S = 1.0  # s; a longer wait is logged before it begins
VERSION = 2  # of the tables; increased when these change, so that each version has its own
ROWS_AT_ONCE = 5000  # headers that are written in one transaction
WRITE_BYTES = 4 << 20  # bytes of features that are written in one transaction


def absolute(path: str) -> str:
    """Returns the absolute path, three times faster than os.path.abspath."""
    return path if path.startswith(os.sep) else os.path.join(os.getcwd(), path)


class Patience:
    """How long a run waits for locked caches, all of them together.

    Attributes:
      left_s: seconds that are left.
    """

    def __init__(self, seconds: float = LOCK_TIMEOUT_S):
        self.left_s = seconds


@contextlib.contextmanager
def _tolerant(cache):
    """Switches a cache off, instead of ending the run, if its files cause an error in the block."""
    try:
        yield
    except (sqlite3.Error, OSError, TypeError, ValueError) as error:  # the last two: broken rows
        if not cache.broken:
            log.warning('going on without the cache %s: %s', cache.path, error)
        cache.broken = True


def _connect(path, schema, patience, dependent=()):
    """Opens the database at `path`, or creates it with the schema; a damaged one is replaced, and
    the files that depend on it are removed."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for attempt in (1, 2):
        connection = sqlite3.connect(path, timeout=0, check_same_thread=False, isolation_level=None)
        try:
            _patiently(connection, schema, path, patience)
            connection.execute('PRAGMA synchronous=NORMAL')
            return connection
        except sqlite3.OperationalError:  # it is locked or not writable, but not damaged
            connection.close()
            raise
        except sqlite3.DatabaseError:
            connection.close()
            if attempt == 2:
                raise
            for damaged in (path, path + '-journal', *dependent):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(damaged)


def _patiently(connection, statement, path, patience):
    """Executes a statement; waits for a locked database as long as the patience lasts."""
    for wait_s in (min(SILENT_S, patience.left_s), None):
        if wait_s is None:
            if patience.left_s <= 0:
                raise sqlite3.OperationalError('another process holds its lock')
            wait_s = patience.left_s
            log.info('waiting up to %.0f s for another process, which has locked %s', wait_s, path)
        started = time.monotonic()
        try:
            connection.execute('PRAGMA busy_timeout=%d' % (1000 * wait_s))
            return connection.execute(statement)
        except sqlite3.OperationalError as error:
            if not _is_locked(error):
                raise
            patience.left_s -= time.monotonic() - started
    patience.left_s = 0
    raise sqlite3.OperationalError('another process holds its lock')


def _is_locked(error):
    """Tells whether an sqlite3.OperationalError means that another process has the lock."""
    return 'locked' in str(error) or 'busy' in str(error)


def _are_valid(row):
    """Tells whether a row of a table is well-formed: a fingerprint and three integers, of which
    none is negative, after the key."""
    state, *numbers = row
    return (
        len(numbers) == 3
        and isinstance(state, str)
        and all(isinstance(value, int) and value >= 0 for value in numbers)
    )


@contextlib.contextmanager
def _transaction(database, path, patience):
    """Runs the block as one transaction of a database."""
    _patiently(database, 'BEGIN IMMEDIATE', path, patience)
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # it may have been rolled back already
            database.execute('ROLLBACK')
        raise
    database.execute('COMMIT')


class HeaderCache:
    """A cache of audio file headers, so that only new files are opened at the start of a run.

    Args:
      directory: `ds_cache_dir`.
      patience: how long to wait for another process.
    """

    def __init__(self, directory: str, patience: Patience | None = None):
        self.path = os.path.join(directory, 'headers.sqlite')
        self.patience = patience or Patience()
        self.broken = False
        self._known: dict[str, list] = {}
        self._new: dict[str, list] = {}
        with _tolerant(self):
            self._database = _connect(
                self.path,
                'CREATE TABLE IF NOT EXISTS headers%d (path TEXT '
                'PRIMARY KEY, state TEXT, rate INT, channels INT, frames INT)' % VERSION,
                self.patience,
            )
            self._database.execute('DROP TABLE IF EXISTS headers')  # of version 1

    def load(self, paths: Iterable[str]) -> None:
        """Loads the entries of these files, all at once."""
        if self.broken:
            return
        with _tolerant(self):
            wanted = {absolute(path) for path in paths}
            for path, *row in self._database.execute('SELECT * FROM headers%d' % VERSION):
                if path in wanted and _are_valid(row):
                    self._known[path] = row

    def info(self, path: str) -> audio.AudioInfo:
        """Returns the header of a file, from the cache or from the file.

        Raises:
          AudioError: as `audio.audio_info`; failures are not cached.
        """
        key = absolute(path)
        try:
            state = files.fingerprint(path)
        except (OSError, ValueError):
            return audio.audio_info(path)  # raises AudioError with the reason
        row = self._known.get(key)
        if row is None or row[0] != state:
            info = audio.audio_info(path)
            self._known[key] = self._new[key] = row = [state, *info]
        return audio.AudioInfo(*row[1:])

    def close(self) -> None:
        """Writes the new entries and closes the database."""
        if not self.broken:
            with _tolerant(self):
                rows = [(path, *row) for path, row in self._new.items()]
                for start in range(0, len(rows), ROWS_AT_ONCE):
                    with _transaction(self._database, self.path, self.patience):
                        self._database.executemany(
                            'INSERT OR REPLACE INTO headers%d VALUES (?, ?, ?, ?, ?)' % VERSION,
                            rows[start : start + ROWS_AT_ONCE],
                        )
                self._database.close()
        self._known, self._new = {}, {}


class _Place(NamedTuple):
    """The place of an utterance's features in the file of features."""

    state: str  # fingerprint of the audio file
    offset: int  # bytes from the start of the file of features
    rows: int  # time steps
    crc: int  # checksum of the features


class FeatureCache:
    """A cache of the MFCC of utterances, float32 [n_steps, n_input] each, appended to one file.

    Args:
      directory: `ds_cache_dir`.
      name: name of the corpus.
      settings: the settings on which the features depend; other settings have another file.
      columns: n_input, coefficients of a frame.
      limit_bytes: size beyond which the file does not grow.
      patience: how long to wait for another process.
    """

    def __init__(
        self,
        directory: str,
        name: str,
        settings: tuple,
        columns: int,
        limit_bytes: float,
        patience: Patience | None = None,
    ):
        old, self.path = (
            os.path.join(
                directory,
                'features-%s-%s'
                % (name.replace(',', '+'), hashlib.sha256(repr(what).encode()).hexdigest()[:16]),
            )
            for what in (settings, (VERSION, settings))
        )
        self.broken = False
        self.patience = patience or Patience()
        self._columns, self._limit, self._full = columns, limit_bytes, False
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._unwritten: list[tuple] = []
        self._unwritten_bytes = 0
        with _tolerant(self):
            self._database = _connect(
                self.path + '.sqlite',
                'CREATE TABLE IF NOT EXISTS places '
                '(utterance TEXT PRIMARY KEY, state TEXT, offset INT, rows INT, crc INT)',
                self.patience,
                [self.path + '.bin'],
            )
            for ending in ('.bin', '.sqlite'):  # of version 1, which did not notice every change
                with contextlib.suppress(FileNotFoundError):
                    os.remove(old + ending)
            self._file = open(  # noqa: SIM115 - until `close`
                self.path + '.bin', 'a+b', buffering=0
            )
            for key, *place in self._database.execute('SELECT * FROM places'):
                if _are_valid(place):
                    self._places[key] = _Place(*place)

    @staticmethod
    def key(utterance: records.Utterance) -> str:
        """Returns the key of an utterance: its file and the part of it."""
        return '|'.join(
            [
                absolute(utterance.wav_filename),
                *(
                    '' if part is None else str(part)
                    for part in (utterance.start_s, utterance.stop_s, utterance.channel)
                ),
            ]
        )

    def get(self, utterance: records.Utterance) -> np.ndarray | None:
        """Returns the features of an utterance, float32 [n_steps, n_input]; None if they are
        missing, stale or damaged."""
        place = self._places.get(self.key(utterance))
        if self.broken or place is None or self.state(utterance) != place.state:
            return None
        with _tolerant(self):
            data = self._bytes(place.offset, 4 * place.rows * self._columns)
            if data and zlib.crc32(data) == place.crc:
                return np.frombuffer(data, np.float32).reshape(place.rows, self._columns)
        return None

    def _bytes(self, offset, count):
        """Returns `count` bytes of the file; b'' if it is shorter than the table says."""
        # not mapped into memory, as a file that is cut or on a failing disk would end the process
        if offset + count > os.fstat(self._file.fileno()).st_size:
            return b''
        data = os.pread(self._file.fileno(), count, offset)
        return data if len(data) == count else b''

    @staticmethod
    def state(utterance: records.Utterance) -> str | None:
        """Returns the fingerprint of an utterance's file; None if there is no such file."""
        try:
            return files.fingerprint(utterance.wav_filename)
        except (OSError, ValueError):
            return None

    def put(self, utterance: records.Utterance, features: np.ndarray, state: str) -> None:
        """Adds features if there is room. They are written later, by `flush` at the latest.

        Args:
          utterance: records.Utterance.
          features: float32 [n_steps, n_input].
          state: what `state` returned before the file was read.
        """
        if self.broken or self._full:
            return
        data = np.ascontiguousarray(features, np.float32).tobytes()
        with _tolerant(self), self._lock:
            self._unwritten.append((self.key(utterance), state, len(features), data))
            self._unwritten_bytes += len(data)
            if self._unwritten_bytes >= WRITE_BYTES:
                self._write()

    def flush(self) -> None:
        """Writes the features that are not written yet."""
        if not self.broken:
            with _tolerant(self), self._lock:
                self._write()

    def _write(self):
        """Appends the features that are not written yet; no other run appends meanwhile."""
        entries, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        with _transaction(self._database, self.path + '.sqlite', self.patience):
            offset = self._file.seek(0, os.SEEK_END)
            for key, state, rows, data in entries:
                if offset + len(data) > self._limit:
                    self._full = True
                    log.info(
                        'the feature cache %s.bin has reached its limit of %g GB; further '
                        'features are computed each time',
                        self.path,
                        self._limit / 1e9,
                    )
                    break
                if self._file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                place = _Place(state, offset, rows, zlib.crc32(data))
                self._database.execute(
                    'INSERT OR REPLACE INTO places VALUES (?, ?, ?, ?, ?)', (key, *place)
                )
                self._places[key] = place
                offset += len(data)

    def close(self) -> None:
        """Writes the features that are not written yet and closes the files."""
        self.flush()
        if not self.broken:
            with _tolerant(self), self._lock:
                self._database.close()
                self._file.close()
