"""Fetching public corpora: downloads that go on where they stopped, archives unpacked safely.

Nothing has its final name before it is whole: a download grows in NAME.part, an archive is
unpacked into a folder of its own and moved from there, and a fetch of several archives keeps
account of those that are done. So each of them can be interrupted anywhere and started again.
"""
import bz2
import collections
import contextlib
import gzip
import hashlib
import json
import logging
import lzma
import os
import pathlib
import shutil
import stat
import sys
import tarfile
import time
import urllib.parse
import zipfile
import zlib

import requests
import urllib3

from util import errors, files, log as run_log
from util.corpora import corpus_files

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

log = logging.getLogger(__name__)

RETRY_DELAYS_S = (1, 2, 4, 8)   # before each new attempt, after which the download has failed
PROGRESS_BYTES = 1 << 20        # an attempt that got that much further doesn't count as failed
TIMEOUTS_S = (30, 60)           # to connect; without a single byte
CHUNK_BYTES = 1 << 16
REDRAW_S = 0.1                  # of the bar
RETRY_STATUSES = (408, 429)     # besides 5xx: the server wants us to come back

# How compressed tar files begin
DECOMPRESSORS = ((b'\x1f\x8b', gzip.open), (b'BZh', bz2.open), (b'\xfd7zXZ\0', lzma.open))
DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError,
           ValueError, RuntimeError)  # RuntimeError: a zip file with a password

# A file to fetch; its size and MD5 (32 hexadecimal digits) where the publisher states them
Archive = collections.namedtuple('Archive', 'url size_bytes md5', defaults=[None, None])

# One entry of an archive: its name as it is there; 'file', 'folder', or what else it is;
# a function that opens its content
Member = collections.namedtuple('Member', 'name kind open')


class _Refused(Exception):
    """What was asked for can't be had; the message says why."""


class _Broken(Exception):
    """An attempt to download failed in a way that the next one may not."""


# Download


def download(url, path, size_bytes=None, md5=None):
    """Downloads a file, unless it is there already; goes on with what a former run has left.

    Args:
      url: http or https; the proxy is the environment's.
      path: the file to make, with its folder.
      size_bytes, md5: what the publisher states, or None.
    Raises:
      DataError: naming URL, path and reason. What was received so far stays in `path`.part,
        unless it turned out wrong.
    """
    try:
        if os.path.exists(path):
            _check_present(path, size_bytes, md5)
            _Part(url, path).remove()  # of a run that was killed after the renaming
            return
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        _download(_Part(url, path), size_bytes, md5)
    except (_Refused, OSError) as error:  # requests' own exceptions are OSErrors
        raise errors.DataError('%s cannot be downloaded to %s: %s' % (url, path, _reason(error))
                                ) from None


def _download(part, size_bytes, md5):
    started, before = time.monotonic(), part.size
    log.info('downloading %s to %s%s', part.url, part.target,
             ', from byte %d on' % before if before else '')
    meter = _Meter(os.path.basename(part.target))
    with requests.Session() as session, contextlib.closing(meter):
        _receive_all(session, part, size_bytes, meter)
    try:
        _check(part.path, size_bytes, md5)
    except _Refused:
        part.remove()
        raise
    size = part.size
    part.finish()
    log.info('downloaded %s: %s in %s', part.target, _megabytes(size),
             files.format_duration(time.monotonic() - started))


def _receive_all(session, part, size_bytes, meter):
    """Attempts until the part is whole."""
    failures, furthest = 0, part.size
    while True:
        try:
            _receive(session, part, size_bytes, meter)
            return
        except _Broken as error:
            # From the furthest point ever: a server that ignores Range and breaks off half-way
            # starts from zero each time and would otherwise never be given up.
            if part.size >= furthest + PROGRESS_BYTES:
                failures = 0
            furthest = max(furthest, part.size)
            if failures == len(RETRY_DELAYS_S):
                raise _Refused('%s (%d attempts)' % (error, failures + 1)) from None
            meter.close()
            log.warning('%s: %s; next attempt in %g s', part.url, error, RETRY_DELAYS_S[failures])
            time.sleep(RETRY_DELAYS_S[failures])
            failures += 1


def _receive(session, part, size_bytes, meter):
    """One attempt to get what the part lacks.

    Raises:
      _Broken, _Refused: with the reason.
    """
    if part.size and part.size == part.total:
        return  # a run was ended between the last byte and the new name
    try:
        with session.get(part.url, headers=part.request_headers(), stream=True,
                         timeout=TIMEOUTS_S) as response:
            _accept(response, part, size_bytes)
            _append(response, part, size_bytes, meter)
    except urllib3.exceptions.ProtocolError:  # in the body; requests wraps those before it
        raise _Broken(part.how_far()) from None
    except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
        raise _Broken(_reason(error)) from None
    if part.total is not None and part.size < part.total:
        raise _Broken(part.how_far())


def _accept(response, part, size_bytes):
    """Checks the head of an answer and makes the part ready for its body."""
    _check_status(response, part)
    if response.headers.get('Content-Type', '').lower().startswith('text/html'):
        raise _Refused('the server sent a web page (text/html) in the place of the file')
    start, total = _extent(response)
    if size_bytes is not None and total not in (None, size_bytes):
        raise _Refused('the file there has %d bytes, expected %d' % (total, size_bytes))
    validator = _validator(response)
    if response.status_code == 200:
        if total is None and size_bytes is None and not _is_chunked(response):
            raise _Refused('the server states no length, so that a part can\'t be told from a '
                           'whole file')
        part.start(validator, total)
    elif start != part.size or _differ(total, part.total) or _differ(validator, part.validator):
        part.remove()
        raise _Broken('the file there has changed; starting from zero')


def _check_status(response, part):
    status = response.status_code
    if status == 416 and part.size:
        part.remove()
        raise _Broken('the server has no bytes after those that are here; starting from zero')
    if status >= 500 or status in RETRY_STATUSES:
        raise _Broken('HTTP %d %s' % (status, response.reason))
    if status not in (200, 206):
        raise _Refused('HTTP %d %s' % (status, response.reason))


def _extent(response):
    """(first byte of the answer, bytes of the whole file or None)."""
    headers = response.headers
    if response.status_code == 200:
        length = headers.get('Content-Length', '')
        return 0, int(length) if length.isdigit() else None
    try:  # Content-Range: bytes 500-999/1000, or /*
        extent, total = headers.get('Content-Range', '').split()[-1].split('/')
        return int(extent.split('-')[0]), None if total == '*' else int(total)
    except (ValueError, IndexError):
        return None, None


def _validator(response):
    """What tells this version of the file from others; None where there is nothing. Weak tags
    (W/"...") may stand for several and must not be used in If-Range."""
    tag = response.headers.get('ETag', '')
    return tag if tag.startswith('"') else response.headers.get('Last-Modified')


def _is_chunked(response):
    return 'chunked' in response.headers.get('Transfer-Encoding', '').lower()


def _differ(a, b):
    return a is not None and b is not None and a != b


def _append(response, part, size_bytes, meter):
    """Adds the body of an answer to the part, as it was sent: what a server calls an encoding
    (x-gzip, of .tar.gz) is the file itself."""
    limit = size_bytes if part.total is None else part.total
    size = part.size
    meter.start(size)
    with open(part.path, 'ab') as file:
        for chunk in response.raw.stream(CHUNK_BYTES, decode_content=False):
            size += len(chunk)
            if limit is not None and size > limit:
                file.close()
                part.remove()
                raise _Refused('the server sends more than the expected %d bytes' % limit)
            file.write(chunk)
            meter.update(size, limit)
        file.flush()
        os.fsync(file.fileno())


class _Part:
    """The file that a download grows in, and beside it what tells whether its rest fits.

    Attributes:
      size: bytes so far.
      total: bytes of the whole file; None where the server did not say.
      validator: ETag or Last-Modified of the version that it is a part of, or None.
    """

    def __init__(self, url, target):
        self.url, self.target = url, target
        self.path, self._notes_path = target + '.part', target + '.part.json'
        self.validator = self.total = None
        try:
            with open(self._notes_path, encoding='utf-8') as file:
                notes = json.load(file)
            if notes['url'] != url:
                raise ValueError('a part of another file')
            self.validator, self.total = notes['validator'], notes['total']
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            self.remove()

    @property
    def size(self):
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def how_far(self):
        return 'the connection ended after %d of %s bytes' % (
            self.size, '?' if self.total is None else self.total)

    def request_headers(self):
        headers = {'Accept-Encoding': 'identity'}  # else ranges would be those of another file
        if self.size:
            headers['Range'] = 'bytes=%d-' % self.size
            if self.validator:
                headers['If-Range'] = self.validator
        return headers

    def start(self, validator, total):
        """Begins from zero."""
        self.remove()
        self.validator, self.total = validator, total
        files.write_file(self._notes_path, json.dumps(
            {'url': self.url, 'validator': validator, 'total': total}))

    def remove(self):
        self.validator = self.total = None
        for path in (self.path, self._notes_path):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)

    def finish(self):
        """Gives the whole file its name."""
        os.replace(self.path, self.target)
        os.remove(self._notes_path)


def _check_present(path, size_bytes, md5):
    try:
        _check(path, size_bytes, md5)
    except _Refused as error:
        raise _Refused('it is there, but %s; remove it to download it anew' % error) from None


def _check(path, size_bytes, md5):
    """Raises _Refused for a file that is not what the publisher states."""
    size = os.path.getsize(path)
    if _differ(size, size_bytes):
        raise _Refused('it has %d bytes, expected %d' % (size, size_bytes))
    if md5 is None:
        return
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, 'rb') as file:
        for chunk in iter(lambda: file.read(CHUNK_BYTES), b''):
            digest.update(chunk)
    if digest.hexdigest() != md5.lower():
        raise _Refused('its MD5 is %s, expected %s' % (digest.hexdigest(), md5))


def _reason(error):
    """One line on the innermost of the errors that requests and urllib3 wrap in each other."""
    while True:
        inner = getattr(error, 'reason', None) or (error.args and error.args[0])
        if not isinstance(inner, Exception):
            break
        error = inner
    said = getattr(error, 'strerror', None) or (inner if isinstance(inner, str) else str(error))
    return ' '.join(said.split()) or type(error).__name__


class _Meter:
    """A bar with the bytes so far and the time to go, on a terminal only."""

    def __init__(self, caption, stream=None):
        self._caption, self._stream = caption, stream or sys.stdout
        self._shown = self._stream.isatty()
        self._drawn_at = self._first = self._started = 0

    def start(self, done):
        """Counts speed from here, `done` bytes."""
        self._first, self._started = done, time.monotonic()

    def update(self, done, total):
        """Draws the bar for `done` of `total` bytes; `total` may be None."""
        now = time.monotonic()
        if not self._shown or now - self._drawn_at < REDRAW_S and done != total:
            return
        self._drawn_at = now
        line = '%s %s' % (self._caption, _megabytes(done))
        if total:
            full = run_log.BAR_WIDTH * done // total
            to_go = (now - self._started) * (total - done) / (done - self._first)
            line = '%s |%s%s| %s of %s  %s to go' % (
                self._caption, '#' * full, '-' * (run_log.BAR_WIDTH - full), _megabytes(done),
                _megabytes(total), files.format_duration(to_go))
        self._stream.write('\r\x1b[K' + line)
        self._stream.flush()

    def close(self):
        """Clears the line, so that the next message starts on it."""
        if self._shown:
            self._stream.write('\r\x1b[K')
            self._stream.flush()


def _megabytes(n_bytes):
    return '%.1f MB' % (n_bytes / 1e6)


# Unpacking


def unpack(archive_path, folder):
    """Unpacks a tar (plain, gzip, bzip2, xz) or zip file into a folder, beside what is there.

    All is unpacked into a folder within `folder` first and moved into place when it is whole.
    Files get the modes and the owner of new files. What macOS hides in archives is left out.

    Raises:
      DataError: naming the archive, if it is damaged, or holds anything but files and folders
        below `folder` (then naming that); nothing of it is left.
    """
    staging = os.path.join(folder, '.unpacking-' + os.path.basename(archive_path))
    try:
        shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
        os.makedirs(staging)
        with contextlib.closing(_members(archive_path, staging)) as members:
            n_files = sum(_write_member(member, staging) for member in members)
        _merge(staging, folder)
    except (_Refused, OSError, *DAMAGES) as error:
        raise errors.DataError(_complaint(archive_path, folder, error)) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    log.info('unpacked %s: %d files', archive_path, n_files)


def _complaint(archive_path, folder, error):
    if isinstance(error, _Refused):
        return '%s is not unpacked: %s' % (archive_path, error)
    if isinstance(error, OSError) and error.errno:  # gzip and bz2 raise it without a number
        return '%s cannot be unpacked into %s: %s' % (archive_path, folder, error.strerror)
    return '%s is damaged or no tar or zip file: %s; remove it to download it anew' % (
        archive_path, _reason(error))


def _members(archive_path, staging):
    # By name: a tar file that ends with a zip file would pass for the latter by content.
    if archive_path.lower().endswith('.zip'):
        return _zip_members(archive_path)
    return _tar_members(archive_path, staging)


def _tar_members(path, staging):
    """Yields each Member; its content must be read before the next one is taken."""
    with open(path, 'rb') as file:
        head = file.read(6)
    opener = next((opener for magic, opener in DECOMPRESSORS if head.startswith(magic)), open)
    with opener(path, 'rb') as stream:
        with tarfile.open(fileobj=stream, mode='r|', tarinfo=_Header) as tar:
            for info in iter(tar.next, None):
                yield Member(info.name, _tar_kind(info), lambda: _open_tar(tar, info, staging))
                tar.members = []  # else it keeps every header until the end
        while stream.read(CHUNK_BYTES):
            pass  # checksums of compressed files come last


def _open_tar(tar, info, staging):
    if hasattr(tarfile, 'data_filter'):  # Python's security releases since 2023
        tarfile.data_filter(info, staging)
    return tar.extractfile(info)


class _Header(tarfile.TarInfo):
    """A header whose damage is an error; for tarfile it would be the end of the archive."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None


def _tar_kind(info):
    if info.isreg():
        return 'file'
    if info.isdir():
        return 'folder'
    return {tarfile.SYMTYPE: 'symbolic link', tarfile.LNKTYPE: 'hard link',
            tarfile.FIFOTYPE: 'FIFO', tarfile.CHRTYPE: 'device', tarfile.BLKTYPE: 'device',
            }.get(info.type, 'member of type %r' % info.type)


def _zip_members(path):
    """Yields each Member."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            kind = 'folder' if info.is_dir() else 'file'
            unix_type = stat.S_IFMT(info.external_attr >> 16)
            if unix_type not in (0, stat.S_IFREG, stat.S_IFDIR):
                kind = 'symbolic link' if unix_type == stat.S_IFLNK else 'special file'
            yield Member(info.filename, kind, lambda: archive.open(info))


def _write_member(member, staging):
    """Writes a file or makes a folder; whether it was a file.

    Raises:
      _Refused: a member that may not be there, named.
    """
    name = member.name if member.name.isprintable() else ascii(member.name)
    path = pathlib.PureWindowsPath(member.name)  # takes both slashes for what they may be
    if path.root or '..' in path.parts:
        raise _Refused('its member %s would be written outside of the folder' % name)
    if member.kind not in ('file', 'folder'):
        raise _Refused('its member %s is a %s' % (name, member.kind))
    parts = pathlib.PurePosixPath(member.name).parts
    if any(part.startswith(corpus_files.HIDDEN) for part in parts):
        return False
    target = os.path.join(staging, *parts)
    os.makedirs(target if member.kind == 'folder' else os.path.dirname(target), exist_ok=True)
    if member.kind == 'folder':
        return False
    with member.open() as source, open(target, 'wb') as file:
        shutil.copyfileobj(source, file, CHUNK_BYTES)
    return True


def _merge(source, target):
    """Moves what is in one folder into another on the same disk, over files of the same name."""
    for name in os.listdir(source):
        old, new = os.path.join(source, name), os.path.join(target, name)
        if os.path.isdir(old) and os.path.isdir(new):
            _merge(old, new)
        else:
            os.replace(old, new)


# Corpora of one or more archives


def fetch_corpus(folder, marker, archives):
    """Downloads and unpacks the archives of a corpus, unless it is there already.

    An archive is removed once it is unpacked, if it was downloaded here; one that somebody put
    there is used and kept. What is done is noted in `folder`, until all is.

    Args:
      folder: where the archives and their contents go.
      marker: file or folder below `folder` that tells that the corpus is there.
      archives: list of Archive.
    Raises:
      DataError: an archive that can't be had or unpacked, or without what was expected.
    """
    marker_path = os.path.join(folder, marker)
    notes_path = os.path.join(folder, '.fetching-%s.json' % marker.replace('/', '-'))
    if _is_there(marker_path, notes_path):
        return
    try:
        os.makedirs(folder, exist_ok=True)
        with _only_one(folder):
            if not _is_there(marker_path, notes_path):  # another process may have brought it
                _fetch(folder, marker_path, archives, notes_path)
    except (errors.DataError, OSError) as error:
        reason = _reason(error)
        if os.path.exists(marker_path):
            reason += '; if %s is whole nevertheless, remove %s' % (marker_path, notes_path)
        raise errors.DataError('%s cannot be fetched: %s' % (marker_path, reason)) from None


def _is_there(marker_path, notes_path):
    """Whether the marker is there, and not just from the first of several archives."""
    return os.path.exists(marker_path) and not os.path.exists(notes_path)


def _fetch(folder, marker_path, archives, notes_path):
    notes = _read_notes(notes_path)
    for archive in archives:
        name = urllib.parse.unquote(os.path.basename(urllib.parse.urlsplit(archive.url).path))
        path = os.path.join(folder, name)
        if name not in notes['unpacked']:
            if not os.path.exists(path):
                notes['downloaded'].append(name)
            download(archive.url, path, archive.size_bytes, archive.md5)
            files.write_file(notes_path, json.dumps(notes))
            unpack(path, folder)
            notes['unpacked'].append(name)
            files.write_file(notes_path, json.dumps(notes))
        if name in notes['downloaded'] and os.path.exists(path):
            os.remove(path)
    if not os.path.exists(marker_path):
        raise errors.DataError('the archives did not hold it: %s; remove %s to fetch them anew' % (
            ', '.join(notes['unpacked']), notes_path))
    os.remove(notes_path)


def _read_notes(path):
    """{'downloaded': names of archives that are ours to remove, 'unpacked': names}."""
    try:
        with open(path, encoding='utf-8') as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return {'downloaded': [], 'unpacked': []}


@contextlib.contextmanager
def _only_one(folder):
    """Keeps other processes from fetching into the same folder until this one is done."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info('another process fetches into %s; waiting for it', folder)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            pass  # a network disk without locks
        yield
    finally:
        os.close(handle)
