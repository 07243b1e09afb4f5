"""What the tests of download, archives and fetch share: a server, archives, interruptions."""

import contextlib
import http.server
import io
import os
import pathlib
import tarfile
import threading
import time
import types
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from util import errors
from util.corpora import download

WAIT_S = 20  # for what takes milliseconds
CONTENT = bytes(range(256)) * 2000  # 512,000 bytes
TAG = '"first"'


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the site's attributes say and keeps what it was asked."""

    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        site = self.server.site
        site.asked.append((self.path, self.headers.get('Range'), self.headers.get('If-Range')))
        site.times.append(time.monotonic())
        self.close_connection = True
        status = site.statuses.pop(0) if site.statuses else 200
        content = site.files.get(self.path)
        if content is None or status != 200:
            return self.send_error(404 if status == 200 else status)
        start = self.first_byte(site)
        if start and start >= len(content):
            return self.send_error(416)
        if start is not None:
            self.send_response(206)
            self.send_header(
                'Content-Range',
                'bytes %d-%d/%d' % (start + site.shift, len(content) - 1, len(content)),
            )
            content = content[start:]
        else:
            self.send_response(200)
        self.send_headers(site, len(content))
        self.send_body(site, content)

    def first_byte(self, site):
        """The start of the range that is asked for and given, or None."""
        asked, condition = self.headers.get('Range'), self.headers.get('If-Range')
        if not asked or not site.ranges:
            return None
        if condition and condition not in site.headers.values() and not site.ignores_if_range:
            return None
        return int(asked[len('bytes=') : -1])

    def send_headers(self, site, length):
        headers = {
            'Content-Type': 'application/gzip',
            'Content-Length': str(length),
            'Connection': 'close',
            **site.headers,
        }
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()

    def send_body(self, site, content):
        cut = site.cuts.pop(0) if site.cuts else None
        content = content[:cut]
        if site.headers.get('Transfer-Encoding') == 'chunked':
            content = b'%x\r\n%s\r\n' % (len(content), content) + (b'' if cut else b'0\r\n\r\n')
        with contextlib.suppress(ConnectionError):
            self.wfile.write(content)
            self.wfile.flush()
            if site.holds:
                site.release.wait(WAIT_S)

    def log_message(self, *_):
        pass


class Site:
    """A server on 127.0.0.1, which misbehaves as its attributes say.

    Attributes:
      url: its address, once it is started.
      files: {path: bytes}.
      headers: added to all answers; those that are None are left out.
      statuses: of the next answers.
      cuts: numbers of bytes after which the next connections end.
      asked: (path, Range, If-Range) of each request so far.
      times: when each of them came.
      ranges: whether a part of a file can be had.
      ignores_if_range: whether a part is sent even if the file has changed.
      shift: is added to the first byte that an answer states.
      holds: whether connections stay open after their bytes, until `release` is set.
    """

    def __init__(self):
        self.files, self.headers = {'/a.tgz': CONTENT}, {'ETag': TAG}
        self.statuses, self.cuts, self.asked, self.times = [], [], [], []
        self.ranges, self.ignores_if_range, self.shift = True, False, 0
        self.holds, self.release = False, threading.Event()

    def start(self):
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.site, self.server.daemon_threads = self, True
        self.url = 'http://127.0.0.1:%d' % self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    def stop(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Starts a Site; downloads reach it without a proxy and try again without a pause."""
    for name in list(os.environ):
        if name.lower().endswith('_proxy'):
            monkeypatch.delenv(name)
    monkeypatch.setattr(download, 'RETRY_DELAYS_S', (0, 0, 0))
    monkeypatch.setattr(download, 'TIMEOUTS_S', (WAIT_S, WAIT_S))
    site = Site()
    site.start()
    yield site
    site.stop()


def refused(function: Callable, *arguments: Any, says: Iterable[str] = ()) -> str:
    """Calls a function that must raise a DataError of one line with these words; returns it."""
    with pytest.raises(errors.DataError) as error:
        function(*arguments)
    message = str(error.value)
    assert '\n' not in message
    for words in says:
        assert words in message
    return message


def files_below(folder: str | os.PathLike) -> dict[str, bytes]:
    """Returns {path relative to the folder: content}, with hidden files."""
    paths = [pathlib.Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def tar_bytes(members: dict[str, bytes] | Iterable, mode: str = 'w:gz') -> bytes:
    """Returns a tar file of (name, content) pairs and TarInfo objects, or of a dict."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for member in members.items() if isinstance(members, dict) else members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size, info.mode, info.uid = len(member[1]), 0o4777, 12345
                tar.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


def zip_bytes(members: dict[str, bytes] | Iterable) -> bytes:
    """Returns a zip file of (name or ZipInfo, content) pairs, or of a dict."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, content)
    return buffer.getvalue()


def special(name: str, kind: bytes, target: str = '') -> tarfile.TarInfo:
    """Returns a member of a tar file that is no file, such as a link to `target`."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def put(folder: pathlib.Path, name: str, content: bytes) -> str:
    """Writes a file into a folder, which is made; returns its path."""
    os.makedirs(folder, exist_ok=True)
    (folder / name).write_bytes(content)
    return str(folder / name)


class Stop(BaseException):
    """An interruption: nothing but the test catches it."""


def stop_at(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType, name: str, when: int | str
) -> None:
    """Interrupts a call of a function of a module.

    Args:
      when: the number of the call, from 1, or how its first argument ends.
    """
    function, calls = getattr(module, name), []

    def counted(*arguments, **options):
        calls.append(arguments)
        if when == len(calls) or isinstance(when, str) and arguments[0].endswith(when):
            raise Stop
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, counted)
