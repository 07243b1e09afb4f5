"""Downloads files over HTTP; a download that was interrupted resumes where it stopped.

A file gets its name only when it is complete. Until then it grows in NAME.part, and NAME.part.json
beside it says which version of which file it is a part of.
"""

import contextlib
import hashlib
import json
import logging
import os
import time
import urllib.parse

import requests
import urllib3

from util import errors, files, log as run_log

log = logging.getLogger(__name__)

RETRY_DELAYS_S = (1, 2, 4, 8)  # before each further attempt; then the download has failed
PROGRESS_BYTES = 1 << 20  # an attempt that gets this much further does not count as a failure
TIMEOUTS_S = (30, 60)  # to connect; to wait for the next byte
CHUNK_BYTES = 1 << 16
RETRY_STATUSES = (408, 429)  # besides 5xx: a later attempt may succeed


class _Refused(Exception):
    """The file cannot be downloaded; the message says why."""


class _Broken(Exception):
    """An attempt failed, but the next one may succeed."""


class _Session(requests.Session):
    """A session that follows no redirect from https to http, where anybody could change the
    file."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Returns where a response redirects to; None if it doesn't."""
        target = super().get_redirect_target(resp)
        if target and resp.url.lower().startswith('https:'):
            full = urllib.parse.urljoin(resp.url, target)
            if not full.lower().startswith('https:'):
                raise _Refused('the server redirects from https to %s' % full)
        return target


def download(url: str, path: str, size_bytes: int | None = None, md5: str | None = None) -> None:
    """Downloads a file, unless it exists already, and resumes what an earlier run left unfinished.

    Args:
      url: http or https; the proxy is the environment's.
      path: the file to make; its folder is made as well.
      size_bytes: the size of the file that the publisher states, or None.
      md5: the checksum that the publisher states, 32 hexadecimal digits, or None.
    Raises:
      DataError: the download failed; the message names URL, path and reason. The part received so
        far stays in `path`.part, unless it turned out to be wrong.
    """
    try:
        if os.path.exists(path):
            _check_present(path, size_bytes, md5)
            _Part(url, path).remove()  # left behind by a run that was killed after the renaming
            return
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        _download(_Part(url, path), size_bytes, md5)
    except (_Refused, OSError) as error:  # requests' own exceptions are OSErrors
        raise errors.DataError(
            '%s cannot be downloaded to %s: %s' % (url, path, _reason(error))
        ) from None


def _download(part, size_bytes, md5):
    """Downloads what a part lacks, checks the file and gives it its name."""
    started, before = time.monotonic(), part.size
    log.info(
        'downloading %s to %s%s',
        part.url,
        part.target,
        ', from byte %d on' % before if before else '',
    )
    with _Session() as session:
        _receive_all(session, part, size_bytes)
    try:
        _check(part.path, size_bytes, md5)
    except _Refused:
        part.remove()
        raise
    size = part.size
    part.finish()
    log.info(
        'downloaded %s: %s in %s',
        part.target,
        _megabytes(size),
        files.format_duration(time.monotonic() - started),
    )


def _receive_all(session, part, size_bytes):
    """Makes attempts until the part is complete.

    Raises:
      _Refused: several attempts have failed, or one in a way that a repetition cannot change.
    """
    failures, furthest = 0, part.size
    while True:
        try:
            _receive(session, part, size_bytes)
            return
        except _Broken as error:
            # Progress counts from the furthest point so far: with a server that ignores Range and
            # always breaks off half-way, the attempts would otherwise never end.
            if part.size >= furthest + PROGRESS_BYTES:
                failures = 0
            furthest = max(furthest, part.size)
            if failures == len(RETRY_DELAYS_S):
                raise _Refused('%s (%d attempts)' % (error, failures + 1)) from None
            log.warning('%s: %s; next attempt in %g s', part.url, error, RETRY_DELAYS_S[failures])
            time.sleep(RETRY_DELAYS_S[failures])
            failures += 1


def _receive(session, part, size_bytes):
    """Makes one attempt to download what the part lacks.

    Raises:
      _Broken, _Refused: with the reason.
    """
    if part.size and part.size == part.total:
        return  # an earlier run ended between the last byte and the renaming
    try:
        with session.get(
            part.url, headers=part.request_headers(), stream=True, timeout=TIMEOUTS_S
        ) as response:
            _accept(response, part, size_bytes)
            _append(response, part, size_bytes)
    except urllib3.exceptions.ProtocolError:  # in the body; requests wraps those before it
        raise _Broken(part.how_far()) from None
    except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
        raise _Broken(_reason(error)) from None
    if part.total is not None and part.size < part.total:
        raise _Broken(part.how_far())


def _accept(response, part, size_bytes):
    """Checks the headers of a response and prepares the part for its body."""
    _check_status(response, part)
    if response.headers.get('Content-Type', '').lower().startswith('text/html'):
        raise _Refused('the server sent a web page (text/html) instead of the file')
    start, total = _extent(response)
    if size_bytes is not None and total not in (None, size_bytes):
        raise _Refused("the server's file has %d bytes, expected %d" % (total, size_bytes))
    validator = _validator(response)
    if response.status_code == 200:
        if total is None and size_bytes is None and not _is_chunked(response):
            raise _Refused(
                "the server states no length, so that a part can't be told from a whole file"
            )
        part.start(validator, total)
    elif start != part.size or _differ(total, part.total) or _differ(validator, part.validator):
        part.remove()
        raise _Broken("the server's file has changed; starting from zero")


def _check_status(response, part):
    """Checks that the body of a response is the file or the rest of it."""
    status = response.status_code
    if status == 416 and part.size:
        part.remove()
        raise _Broken('the server has no bytes after those received so far; starting from zero')
    if status >= 500 or status in RETRY_STATUSES:
        raise _Broken('HTTP %d %s' % (status, response.reason))
    if status not in (200, 206):
        raise _Refused('HTTP %d %s' % (status, response.reason))


def _extent(response):
    """Returns (first byte of the body, bytes of the whole file); a value is None if unknown."""
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
    """Returns the ETag or Last-Modified that identifies this version of the file, or None.

    A weak tag (W/"...") may stand for several versions and must not be used in If-Range.
    """
    tag = response.headers.get('ETag', '')
    return tag if tag.startswith('"') else response.headers.get('Last-Modified')


def _is_chunked(response):
    return 'chunked' in response.headers.get('Transfer-Encoding', '').lower()


def _differ(a, b):
    """Returns whether two values differ, as far as both are known."""
    return a is not None and b is not None and a != b


def _append(response, part, size_bytes):
    """Appends the body of a response to the part, exactly as it was sent.

    It is not decoded: the encoding that servers declare for .tar.gz (x-gzip) is the file's own.
    """
    limit = size_bytes if part.total is None else part.total
    size = part.size
    with (
        open(part.path, 'ab') as file,
        run_log.Bar(os.path.basename(part.target), limit, size, unit='B', unit_scale=True) as bar,
    ):
        for chunk in response.raw.stream(CHUNK_BYTES, decode_content=False):
            size += len(chunk)
            if limit is not None and size > limit:
                file.close()
                part.remove()
                raise _Refused('the server sends more than the expected %d bytes' % limit)
            file.write(chunk)
            bar.update(len(chunk))
        file.flush()
        os.fsync(file.fileno())


class _Part:
    """The file in which a download grows, and the notes on the file that it is a part of.

    Attributes:
      url: where the file comes from.
      target: path of the whole file.
      path: path of the part.
      size: bytes so far.
      total: bytes of the whole file; None if the server did not say.
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
        """Returns the bytes received so far."""
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def how_far(self):
        """Returns the message for a connection that ended too early."""
        return 'the connection ended after %d of %s bytes' % (
            self.size,
            '?' if self.total is None else self.total,
        )

    def request_headers(self):
        """Returns the headers of a request for what the part lacks."""
        headers = {'Accept-Encoding': 'identity'}  # ranges of an encoded file would not fit
        if self.size:
            headers['Range'] = 'bytes=%d-' % self.size
            if self.validator:
                headers['If-Range'] = self.validator
        return headers

    def start(self, validator, total):
        """Starts from zero with this version of the file."""
        self.remove()
        self.validator, self.total = validator, total
        files.write_file(
            self._notes_path, json.dumps({'url': self.url, 'validator': validator, 'total': total})
        )

    def remove(self):
        """Removes the part and its notes, if they exist."""
        self.validator = self.total = None
        for path in (self.path, self._notes_path):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)

    def finish(self):
        """Gives the complete file its name and removes the notes."""
        os.replace(self.path, self.target)
        os.remove(self._notes_path)


def _check_present(path, size_bytes, md5):
    """Checks a file that existed before the download."""
    try:
        _check(path, size_bytes, md5)
    except _Refused as error:
        raise _Refused('it exists, but %s; remove it to download it again' % error) from None


def _check(path, size_bytes, md5):
    """Checks size and MD5 of a file.

    Raises:
      _Refused: it is not what the publisher states.
    """
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
    """Returns the message of the innermost error that requests and urllib3 wrap, as one line."""
    while True:
        inner = getattr(error, 'reason', None) or (error.args and error.args[0])
        if not isinstance(inner, Exception):
            break
        error = inner
    said = getattr(error, 'strerror', None) or (inner if isinstance(inner, str) else str(error))
    return ' '.join(said.split()) or type(error).__name__


def _megabytes(n_bytes):
    return '%.1f MB' % (n_bytes / 1e6)
