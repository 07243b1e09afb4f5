"""Downloads from a server that misbehaves, archives that are evil or damaged, interrupted runs."""
import contextlib
import hashlib
import http.server
import io
import json
import logging
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
import zipfile

import pytest

from conftest import PROJECT
from util import errors, files
from util.corpora import download

WAIT_S = 20  # for what takes milliseconds
CONTENT = bytes(range(256)) * 2000  # 512,000 bytes
MD5 = hashlib.md5(CONTENT).hexdigest()
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
            self.send_header('Content-Range', 'bytes %d-%d/%d' % (
                start + site.shift, len(content) - 1, len(content)))
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
        return int(asked[len('bytes='):-1])

    def send_headers(self, site, length):
        headers = {'Content-Type': 'application/gzip', 'Content-Length': str(length),
                   'Connection': 'close', **site.headers}
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
    """A server on 127.0.0.1.

    Attributes:
      files: {path: bytes}; statuses: of the next answers; cuts: bytes after which the next
      connections end; headers: added to all answers, those that are None left out; asked: (path,
      Range, If-Range) so far; shift: added to the start that is stated.
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


@pytest.fixture
def site(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith('_proxy'):
            monkeypatch.delenv(name)
    monkeypatch.setattr(download, 'RETRY_DELAYS_S', (0, 0, 0))
    monkeypatch.setattr(download, 'TIMEOUTS_S', (WAIT_S, WAIT_S))
    site = Site()
    site.start()
    yield site
    site.stop()


def refused(function, *arguments, says=()):
    """Calls a function that must raise a DataError of one line with these words."""
    with pytest.raises(errors.DataError) as error:
        function(*arguments)
    message = str(error.value)
    assert '\n' not in message
    for words in says:
        assert words in message
    return message


def files_below(folder):
    """{path relative to the folder: content}, hidden ones too."""
    paths = [pathlib.Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


# Download


def test_a_file_is_downloaded_once(site, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    path = str(tmp_path / 'new' / 'a.tgz')
    download.download(site.url + '/a.tgz', path, len(CONTENT), MD5.upper())
    download.download(site.url + '/a.tgz', path, len(CONTENT), MD5)
    assert files_below(tmp_path) == {'new/a.tgz': CONTENT}
    assert site.asked == [('/a.tgz', None, None)]
    assert [record.getMessage().split(' in ')[0] for record in caplog.records] == [
        'downloading %s/a.tgz to %s' % (site.url, path), 'downloaded %s: 0.5 MB' % path]


def test_an_empty_file_is_a_file(site, tmp_path):
    site.files['/none.txt'] = b''
    download.download(site.url + '/none.txt', str(tmp_path / 'none.txt'))
    assert files_below(tmp_path) == {'none.txt': b''}


@pytest.mark.parametrize('headers, condition', (
    ({'ETag': TAG}, TAG),
    ({'ETag': 'W/"weak"', 'Last-Modified': 'Mon, 02 Jan 2017 00:00:00 GMT'},
     'Mon, 02 Jan 2017 00:00:00 GMT'),
    ({}, None)))
def test_after_a_cut_only_the_rest_is_asked_for(site, tmp_path, headers, condition):
    site.headers, site.cuts = headers, [300000]
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'), md5=MD5)
    [first, (_, rest, if_range)] = site.asked
    assert first == ('/a.tgz', None, None)
    assert 300000 - download.CHUNK_BYTES < int(rest[len('bytes='):-1]) <= 300000
    assert if_range == condition
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def fail_part_way(site, tmp_path, cut=300000):
    """A download that is given up; what it leaves. Returns (path, bytes in the part)."""
    site.cuts = [cut, 1, 1, 1]
    path = str(tmp_path / 'a.tgz')
    refused(download.download, site.url + '/a.tgz', path, says=[
        site.url + '/a.tgz', path, 'of 512000 bytes', '4 attempts'])
    assert sorted(os.listdir(tmp_path)) == ['a.tgz.part', 'a.tgz.part.json']
    size = os.path.getsize(path + '.part')
    assert CONTENT.startswith((tmp_path / 'a.tgz.part').read_bytes()) and 0 < size < len(CONTENT)
    site.asked.clear()
    site.cuts.clear()
    return path, size


def test_the_next_run_goes_on_where_one_gave_up(site, tmp_path):
    path, size = fail_part_way(site, tmp_path)
    download.download(site.url + '/a.tgz', path)
    assert site.asked == [('/a.tgz', 'bytes=%d-' % size, TAG)]
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def test_a_server_that_ignores_ranges_starts_from_zero(site, tmp_path):
    site.ranges, site.cuts = False, [300000]
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'))
    assert len(site.asked) == 2
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


@pytest.mark.parametrize('ignores_if_range, requests', ((False, 1), (True, 2)))
def test_a_file_that_has_changed_starts_from_zero(site, tmp_path, ignores_if_range, requests):
    path, _ = fail_part_way(site, tmp_path)
    site.headers, site.files['/a.tgz'] = {'ETag': '"second"'}, CONTENT[::-1]
    site.ignores_if_range = ignores_if_range
    download.download(site.url + '/a.tgz', path)
    assert len(site.asked) == requests
    assert files_below(tmp_path) == {'a.tgz': CONTENT[::-1]}


def test_a_file_that_has_changed_is_told_by_its_length_alone(site, tmp_path):
    site.headers = {}
    path, _ = fail_part_way(site, tmp_path)
    site.files['/a.tgz'] = CONTENT[::-1] + b'more'
    download.download(site.url + '/a.tgz', path)
    assert files_below(tmp_path) == {'a.tgz': CONTENT[::-1] + b'more'}


def test_a_file_that_has_become_shorter_than_the_part_starts_from_zero(site, tmp_path):
    site.headers = {}
    path, _ = fail_part_way(site, tmp_path)
    site.files['/a.tgz'] = b'short'
    download.download(site.url + '/a.tgz', path)
    assert [asked[1] is None for asked in site.asked] == [False, True]
    assert files_below(tmp_path) == {'a.tgz': b'short'}


def test_another_range_than_the_one_asked_for_is_not_appended(site, tmp_path):
    path, _ = fail_part_way(site, tmp_path)
    site.shift = 1
    download.download(site.url + '/a.tgz', path)
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


@pytest.mark.parametrize('notes', (None, '', '[]', '{"url": "http://127.0.0.1/other"}'))
def test_a_part_of_unknown_origin_is_not_used(site, tmp_path, notes):
    (tmp_path / 'a.tgz.part').write_bytes(b'something else')
    if notes is not None:
        (tmp_path / 'a.tgz.part.json').write_text(notes)
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'))
    assert site.asked == [('/a.tgz', None, None)]
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def test_a_part_that_is_whole_needs_no_request(site, tmp_path):
    url = site.url + '/a.tgz'
    (tmp_path / 'a.tgz.part').write_bytes(CONTENT)
    (tmp_path / 'a.tgz.part.json').write_text(json.dumps(
        {'url': url, 'validator': TAG, 'total': len(CONTENT)}))
    download.download(url, str(tmp_path / 'a.tgz'), md5=MD5)
    assert site.asked == []
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def test_what_a_run_leaves_that_is_killed_after_the_renaming_goes(site, tmp_path):
    put(tmp_path, 'a.tgz', CONTENT)
    put(tmp_path, 'a.tgz.part.json', b'{}')
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'))
    assert files_below(tmp_path) == {'a.tgz': CONTENT} and site.asked == []


DOWNLOADER = '''
import sys, types
feeding = types.ModuleType('util.feeding.data_sets')  # without TensorFlow, which takes seconds
errors.DataError = ValueError
sys.modules['util.feeding.data_sets'] = feeding
from util.corpora import download
download.download(*sys.argv[1:])
'''


def test_a_killed_download_is_completed_by_the_next_run(site, tmp_path):
    site.holds, site.cuts, url = True, [300000], site.url + '/a.tgz'
    path = str(tmp_path / 'a.tgz')
    process = subprocess.Popen([sys.executable, '-c', DOWNLOADER, url, path], cwd=PROJECT)
    deadline = time.monotonic() + WAIT_S
    while not (os.path.exists(path + '.part') and os.path.getsize(path + '.part') > 200000):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(WAIT_S) == -signal.SIGKILL
    assert not os.path.exists(path)
    site.release.set()
    size = os.path.getsize(path + '.part')
    download.download(url, path, md5=MD5)
    assert site.asked[1:] == [('/a.tgz', 'bytes=%d-' % size, TAG)]
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


@pytest.mark.parametrize('statuses', ([500, 503], [429, 408]))
def test_a_server_in_trouble_is_asked_again_after_growing_pauses(site, tmp_path, monkeypatch,
                                                                caplog, statuses):
    monkeypatch.setattr(download, 'RETRY_DELAYS_S', (0.1, 0.2))
    site.statuses = statuses
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'))
    first, second, third = site.times
    assert second - first >= 0.1 and third - second >= 0.2
    assert 'next attempt in 0.2 s' in caplog.text
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def test_the_pauses_double():
    assert download.RETRY_DELAYS_S == (1, 2, 4, 8)


def test_a_server_that_stays_in_trouble_is_given_up(site, tmp_path):
    site.statuses = 10 * [500]
    refused(download.download, site.url + '/a.tgz', str(tmp_path / 'a.tgz'),
            says=['HTTP 500', '4 attempts'])
    assert len(site.asked) == 4
    assert os.listdir(tmp_path) == []


def test_attempts_that_get_far_are_not_counted(site, tmp_path, monkeypatch):
    monkeypatch.setattr(download, 'PROGRESS_BYTES', 50000)
    site.cuts = 6 * [70000]
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'))
    assert len(site.asked) == 7
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def test_a_server_that_always_breaks_off_at_the_same_byte_is_given_up(site, tmp_path, monkeypatch):
    monkeypatch.setattr(download, 'PROGRESS_BYTES', 50000)
    site.cuts, site.ranges = 20 * [300000], False
    refused(download.download, site.url + '/a.tgz', str(tmp_path / 'a.tgz'))
    assert len(site.asked) == 4  # though each one got far


def test_a_server_that_falls_silent_is_asked_again(site, tmp_path, monkeypatch):
    monkeypatch.setattr(download, 'TIMEOUTS_S', (0.2, 0.2))
    monkeypatch.setattr(download, 'RETRY_DELAYS_S', (0,))
    site.holds, site.cuts = True, [300000, 1]
    refused(download.download, site.url + '/a.tgz', str(tmp_path / 'a.tgz'), says=['timed out'])
    assert len(site.asked) == 2


@pytest.mark.parametrize('status', (401, 403, 404, 410))
def test_a_file_that_is_not_there_fails_at_once(site, tmp_path, status):
    site.statuses = [status]
    path = str(tmp_path / 'a.tgz')
    refused(download.download, site.url + '/a.tgz', path,
            says=[site.url + '/a.tgz', path, 'HTTP %d' % status])
    assert len(site.asked) == 1
    assert os.listdir(tmp_path) == []


def test_nobody_there_is_a_data_error(site, tmp_path):
    site.stop()
    refused(download.download, site.url + '/a.tgz', str(tmp_path / 'a.tgz'), says=[
        site.url, 'Connection refused', '4 attempts'])


@pytest.mark.parametrize('url', ('no-scheme/a.tgz', 'ftp://127.0.0.1/a.tgz', 'http://'))
def test_an_address_of_another_kind_is_a_data_error(tmp_path, url):
    refused(download.download, url, str(tmp_path / 'a.tgz'), says=[url])


def test_a_web_page_in_the_place_of_the_file_is_refused(site, tmp_path):
    site.headers['Content-Type'] = 'text/html; charset=utf-8'
    refused(download.download, site.url + '/a.tgz', str(tmp_path / 'a.tgz'), says=['web page'])
    assert len(site.asked) == 1
    assert os.listdir(tmp_path) == []


def test_a_web_page_does_not_cost_what_is_there_already(site, tmp_path):
    path, size = fail_part_way(site, tmp_path)
    site.ranges, site.headers = False, {'Content-Type': 'text/html'}
    refused(download.download, site.url + '/a.tgz', path, says=['web page'])
    assert os.path.getsize(path + '.part') == size


def test_another_length_than_the_published_one_is_refused_unread(site, tmp_path):
    refused(download.download, site.url + '/a.tgz', str(tmp_path / 'a.tgz'), 512001,
            says=['512000 bytes', 'expected 512001'])
    assert os.listdir(tmp_path) == []


def test_a_wrong_checksum_removes_the_part(site, tmp_path):
    refused(download.download, site.url + '/a.tgz', str(tmp_path / 'a.tgz'), len(CONTENT),
            32 * '0', says=[MD5, 32 * '0'])
    assert len(site.asked) == 1
    assert os.listdir(tmp_path) == []


def test_a_length_that_is_stated_too_long_is_a_short_read(site, tmp_path):
    site.headers['Content-Length'] = str(len(CONTENT) + 1)
    site.ranges = False
    refused(download.download, site.url + '/a.tgz', str(tmp_path / 'a.tgz'), says=['4 attempts'])
    assert not os.path.exists(tmp_path / 'a.tgz')


CHUNKED = {'Transfer-Encoding': 'chunked', 'Content-Length': None}


def test_a_file_sent_in_chunks_is_whole_at_the_last_one(site, tmp_path):
    site.headers, site.cuts = CHUNKED, [300000]
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'))
    assert len(site.asked) == 2
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


@pytest.mark.parametrize('size_bytes', (511999, 512001))
def test_a_file_sent_in_chunks_must_have_the_published_length(site, tmp_path, size_bytes):
    site.headers = CHUNKED
    refused(download.download, site.url + '/a.tgz', str(tmp_path / 'a.tgz'), size_bytes,
            says=['%d' % size_bytes])
    assert os.listdir(tmp_path) == []


def test_an_answer_of_no_stated_length_is_taken_only_if_the_publisher_states_it(site, tmp_path):
    site.headers = {'Content-Length': None}
    path = str(tmp_path / 'a.tgz')
    refused(download.download, site.url + '/a.tgz', path, says=['no length'])
    download.download(site.url + '/a.tgz', path, len(CONTENT))
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def test_compressed_files_are_kept_as_they_are(site, tmp_path):
    site.headers['Content-Encoding'] = 'x-gzip'  # what some servers say of .tgz
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'))
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def test_a_file_that_is_there_but_wrong_is_kept_and_refused(site, tmp_path):
    path = tmp_path / 'a.tgz'
    path.write_bytes(b'mine')
    refused(download.download, site.url + '/a.tgz', str(path), 512000, says=['remove it'])
    refused(download.download, site.url + '/a.tgz', str(path), None, MD5, says=['remove it'])
    assert path.read_bytes() == b'mine' and site.asked == []


def test_the_proxy_of_the_environment_is_used(site, tmp_path, monkeypatch):
    monkeypatch.setenv('http_proxy', site.url)
    site.files['http://corpus.invalid/b.tgz'] = b'through the proxy'
    download.download('http://corpus.invalid/b.tgz', str(tmp_path / 'b.tgz'))
    assert files_below(tmp_path) == {'b.tgz': b'through the proxy'}


def test_a_full_disk_is_said_at_once_and_the_part_is_kept(site, tmp_path, monkeypatch):
    class FullDisk(io.FileIO):
        def write(self, data):
            if self.tell() >= 200000:
                raise OSError(28, 'No space left on device')
            return super().write(data)

    monkeypatch.setattr(download, 'open', lambda path, mode='r', **options: (
        FullDisk(path, mode) if mode == 'ab' else open(path, mode, **options)), raising=False)
    path = str(tmp_path / 'a.tgz')
    refused(download.download, site.url + '/a.tgz', path, says=['No space left', path])
    monkeypatch.undo()
    assert len(site.asked) == 1
    download.download(site.url + '/a.tgz', path, md5=MD5)
    assert site.asked[1][1] == 'bytes=262144-'


def test_a_folder_that_cannot_be_made_is_a_data_error(site, tmp_path):
    (tmp_path / 'file').write_text('')
    path = str(tmp_path / 'file' / 'a.tgz')
    refused(download.download, site.url + '/a.tgz', path, says=[path])
    assert site.asked == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_is_for_terminals(monkeypatch):
    clock = iter([0.0, 10.0, 10.05, 20.0])
    monkeypatch.setattr(time, 'monotonic', lambda: next(clock))
    stream = Terminal()
    meter = download._Meter('a.tgz', stream)
    meter.start(1000000)
    meter.update(2000000, 4000000)  # 1 MB in 10 s, 2 MB to go
    meter.update(2100000, 4000000)  # too soon to draw again
    meter.update(3000000, None)
    meter.close()
    assert stream.getvalue() == (
        '\r\x1b[Ka.tgz |############------------| 2.0 MB of 4.0 MB  0:00:20 to go'
        '\r\x1b[Ka.tgz 3.0 MB\r\x1b[K')
    plain = io.StringIO()
    monkeypatch.undo()
    meter = download._Meter('a.tgz', plain)
    meter.start(0)
    meter.update(5, 10)
    meter.close()
    assert plain.getvalue() == ''


# Unpacking

GOOD = {'corpus/wav/a.wav': b'first', 'corpus/wav/A.wav': b'other case', 'corpus/b.txt': b'b'}


def tar_bytes(members, mode='w:gz'):
    """A tar file of (name, content) pairs and TarInfo objects, or of a dict."""
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


def zip_bytes(members):
    """A zip file of (name or ZipInfo, content) pairs, or of a dict."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, content)
    return buffer.getvalue()


def special(name, kind, target=''):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def put(folder, name, content):
    os.makedirs(folder, exist_ok=True)
    (folder / name).write_bytes(content)
    return str(folder / name)


ARCHIVES = {'a.tar': tar_bytes(GOOD, 'w'), 'a.tar.gz': tar_bytes(GOOD), 'a.tgz': tar_bytes(GOOD),
            'a.tar.bz2': tar_bytes(GOOD, 'w:bz2'), 'a.tar.xz': tar_bytes(GOOD, 'w:xz'),
            'a.zip': zip_bytes(GOOD)}


@pytest.mark.parametrize('name', ARCHIVES)
def test_every_format_is_unpacked_beside_what_is_there(tmp_path, name):
    archive = put(tmp_path, name, ARCHIVES[name])
    put(tmp_path / 'data' / 'corpus' / 'wav', 'kept.wav', b'kept')
    put(tmp_path / 'data' / 'corpus', 'b.txt', b'old')
    download.unpack(archive, str(tmp_path / 'data'))
    assert files_below(tmp_path / 'data') == {**GOOD, 'corpus/wav/kept.wav': b'kept'}
    mode = stat.S_IMODE(os.stat(tmp_path / 'data/corpus/b.txt').st_mode)
    assert mode & 0o600 == 0o600 and not mode & 0o7111
    assert os.listdir(tmp_path / 'data') == ['corpus']
    assert os.path.exists(archive)


@pytest.mark.parametrize('name, make', (('a.tgz', tar_bytes), ('a.zip', zip_bytes)))
def test_what_macos_hides_is_left_out(tmp_path, name, make):
    archive = put(tmp_path, name, make({
        'c/a.wav': b'a', 'c/._a.wav': b'x', 'c/.DS_Store': b'x', '__MACOSX/c/a.wav': b'x'}))
    download.unpack(archive, str(tmp_path / 'data'))
    assert files_below(tmp_path / 'data') == {'c/a.wav': b'a'}


def test_names_that_mean_the_same_are_the_same(tmp_path):
    folders = [special(name, tarfile.DIRTYPE) for name in ('./', './c/empty')]
    archive = put(tmp_path, 'a.tar', tar_bytes(
        [*folders, ('./c//a.wav', b'1'), ('c/./b', b'2')], 'w'))
    download.unpack(archive, str(tmp_path / 'data'))
    assert files_below(tmp_path / 'data') == {'c/a.wav': b'1', 'c/b': b'2'}
    assert os.path.isdir(tmp_path / 'data/c/empty')


def zip_special(name, mode):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return info


def zip_evil(name):
    return 'a.zip', zip_bytes([('c/good', b'good'), (name, b'evil')])


def tar_evil(*members):
    return 'a.tgz', tar_bytes([('c/good', b'good'), *members])


EVIL = (
    ('../evil', tar_evil(('../evil', b'evil'))),
    ('c/../../evil', tar_evil(('c/../../evil', b'evil'))),
    ('c/../inside', tar_evil(('c/../inside', b'evil'))),
    ('/tmp/evil-of-test-download', tar_evil(('/tmp/evil-of-test-download', b'evil'))),
    ('..\\evil', tar_evil(('..\\evil', b'evil'))),
    ('C:\\evil', tar_evil(('C:\\evil', b'evil'))),
    ('../evil', tar_evil(special('../evil', tarfile.DIRTYPE))),
    ('../._evil', tar_evil(('../._evil', b'evil'))),
    ('c/link', tar_evil(special('c/link', tarfile.SYMTYPE, '../..'), ('c/link/evil', b'evil'))),
    ('c/link', tar_evil(special('c/link', tarfile.SYMTYPE, 'good'))),
    ('c/hard', tar_evil(special('c/hard', tarfile.LNKTYPE, '../../outside'))),
    ('c/hard', tar_evil(special('c/hard', tarfile.LNKTYPE, 'c/good'))),
    ('c/null', tar_evil(special('c/null', tarfile.CHRTYPE))),
    ('c/disk', tar_evil(special('c/disk', tarfile.BLKTYPE))),
    ('c/pipe', tar_evil(special('c/pipe', tarfile.FIFOTYPE))),
    ("'c/line\\n/../../evil'", tar_evil(('c/line\n/../../evil', b'evil'))),
    ('../evil', zip_evil('../evil')),
    ('/tmp/evil-of-test-download', zip_evil('/tmp/evil-of-test-download')),
    ('..\\evil', zip_evil('..\\evil')),
    ('c/link', zip_evil(zip_special('c/link', stat.S_IFLNK | 0o777))),
    ('c/pipe', zip_evil(zip_special('c/pipe', stat.S_IFIFO | 0o666))),
)


@pytest.mark.parametrize('filtered', (True, False), ids=('', 'old Python'))
@pytest.mark.parametrize('member, archive', EVIL, ids=[evil[1][0] + ' ' + evil[0] for evil in EVIL])
def test_evil_members_are_refused_by_name_and_nothing_is_written(tmp_path, monkeypatch, member,
                                                                archive, filtered):
    if not filtered:
        monkeypatch.delattr(tarfile, 'data_filter', raising=False)
    path = put(tmp_path / 'in', *archive)
    put(tmp_path, 'outside', b'mine')
    put(tmp_path / 'deep' / 'data', 'kept', b'kept')
    before = files_below(tmp_path)
    refused(download.unpack, path, str(tmp_path / 'deep' / 'data'), says=[path, member + ' '])
    assert files_below(tmp_path) == before
    assert os.listdir(tmp_path / 'deep') == ['data']
    assert os.listdir(tmp_path / 'deep' / 'data') == ['kept']
    assert not os.path.exists('/tmp/evil-of-test-download')


def without(content, at):
    """The content with the byte at this place turned round."""
    return content[:at] + bytes([content[at] ^ 0xff]) + content[at + 1:]


NOISE = hashlib.sha512(b'noise').digest() * 100
NOISY = {'c/%d' % i: hashlib.sha512(b'%d' % i).digest() * 32 for i in range(8)}  # 2 kB each


@pytest.mark.parametrize('name, content', (
    ('cut-data.tar', tar_bytes(NOISY, 'w')[:5000]),
    ('cut-header.tar', tar_bytes(NOISY, 'w')[:3 * 2560 + 100]),
    ('cut-between.tar', tar_bytes(NOISY, 'w')[:3 * 2560]),
    ('header.tar', without(tar_bytes(NOISY, 'w'), 3 * 2560 + 3)),
    ('cut.tar.gz', tar_bytes(NOISY)[:-300]),
    ('cut-end.tar.gz', tar_bytes(NOISY)[:-4]),
    ('checksum.tar.gz', without(tar_bytes(NOISY), -6)),
    ('data.tar.gz', without(tar_bytes(NOISY), 200)),
    ('cut.tar.bz2', tar_bytes(NOISY, 'w:bz2')[:-20]),
    ('data.tar.bz2', without(tar_bytes(NOISY, 'w:bz2'), 200)),
    ('cut.tar.xz', tar_bytes(NOISY, 'w:xz')[:-20]),
    ('data.tar.xz', without(tar_bytes(NOISY, 'w:xz'), 200)),
    ('cut.zip', zip_bytes(NOISY)[:-30]),
    ('data.zip', without(zip_bytes(NOISY), 60)),
    ('empty.tar.gz', b''), ('empty.zip', b''),
    ('page.tar.gz', b'<!DOCTYPE html><html><body>moved</body></html>' * 30),
    ('noise.tgz', NOISE),
))
def test_a_damaged_archive_is_refused_by_name(tmp_path, name, content):
    path = put(tmp_path, name, content)
    refused(download.unpack, path, str(tmp_path / 'data'), says=[path, 'damaged'])
    assert os.listdir(tmp_path / 'data') == []


def test_a_missing_archive_and_a_folder_that_is_a_file_are_data_errors(tmp_path):
    refused(download.unpack, str(tmp_path / 'a.tgz'), str(tmp_path / 'data'), says=['a.tgz'])
    archive = put(tmp_path, 'a.tgz', tar_bytes(GOOD))
    put(tmp_path / 'data', 'corpus', b'a file')
    refused(download.unpack, archive, str(tmp_path / 'data' / 'corpus'), says=[archive])


class Stop(BaseException):
    """An interruption: nothing but the test catches it."""


def stop_at(monkeypatch, module, name, when):
    """Makes the n-th call of a function an interruption, or the first one whose first argument
    ends with a text."""
    function, calls = getattr(module, name), []

    def counted(*arguments, **options):
        calls.append(arguments)
        if when == len(calls) or isinstance(when, str) and arguments[0].endswith(when):
            raise Stop
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, counted)


def test_an_interrupted_unpack_leaves_nothing(tmp_path, monkeypatch):
    archive = put(tmp_path, 'a.tgz', tar_bytes(GOOD))
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, download, '_write_member', 3)
        download.unpack(archive, str(tmp_path / 'data'))
    assert os.listdir(tmp_path / 'data') == []
    put(tmp_path / 'data' / '.unpacking-a.tgz' / 'corpus', 'stale', b'of a run that was killed')
    download.unpack(archive, str(tmp_path / 'data'))
    assert files_below(tmp_path / 'data') == GOOD


# Corpora


PARTS = {'/one.tgz': tar_bytes({'c/marker': b'', 'c/1': b'1'}),
         '/files/two.zip': zip_bytes({'c/2': b'2'})}
WHOLE = {'c/marker': b'', 'c/1': b'1', 'c/2': b'2'}


@pytest.fixture
def archives(site):
    site.files = dict(PARTS)
    return [download.Archive(site.url + '/one.tgz', len(PARTS['/one.tgz']),
                             hashlib.md5(PARTS['/one.tgz']).hexdigest()),
            download.Archive(site.url + '/files/two.zip')]


def paths(site):
    return [asked[0] for asked in site.asked]


def test_a_corpus_is_fetched_once_and_its_archives_are_removed(site, archives, tmp_path):
    folder = str(tmp_path / 'data' / 'corpus')
    download.fetch_corpus(folder, 'c/marker', archives)
    assert files_below(folder) == WHOLE
    assert sorted(os.listdir(folder)) == ['c']
    download.fetch_corpus(folder, 'c/marker', archives)
    assert paths(site) == ['/one.tgz', '/files/two.zip']


def test_an_address_with_a_query_gives_a_name_without_it(site, tmp_path):
    site.files['/x/my%20corpus.zip?download=1'] = zip_bytes({'c/marker': b''})
    archive = download.Archive(site.url + '/x/my%20corpus.zip?download=1')
    with pytest.MonkeyPatch.context() as patch:
        names = []
        patch.setattr(download, 'unpack', lambda path, folder: names.append(path))
        refused(download.fetch_corpus, str(tmp_path), 'c/marker', [archive])
    assert names == [str(tmp_path / 'my corpus.zip')]


def test_a_corpus_that_is_there_needs_neither_network_nor_write_access(tmp_path):
    put(tmp_path / 'c', 'marker', b'')
    before = os.stat(tmp_path).st_mtime_ns
    download.fetch_corpus(str(tmp_path), 'c', [download.Archive('http://127.0.0.1:9/one.tgz')])
    assert os.listdir(tmp_path) == ['c'] and os.stat(tmp_path).st_mtime_ns == before


@pytest.mark.parametrize('module, name, when, again', (
    (download, '_write_member', 2, ['/files/two.zip']),  # within the first archive
    (download, '_merge', 1, ['/files/two.zip']),
    (download, '_write_member', 3, []),                  # within the second one
    (download, '_merge', 3, []),                         # of its folder c into the first one's
    (os, 'remove', '/one.tgz', ['/files/two.zip']),
    (os, 'remove', '/two.zip', []),
    (os, 'remove', '/.fetching-c-marker.json', []),
    (download, 'download', 2, ['/files/two.zip'])))
def test_an_interrupted_fetch_goes_on_where_it_stopped(site, archives, tmp_path, monkeypatch,
                                                       module, name, when, again):
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, module, name, when)
        download.fetch_corpus(str(tmp_path), 'c/marker', archives)
    site.asked.clear()
    download.fetch_corpus(str(tmp_path), 'c/marker', archives)
    assert paths(site) == again
    assert files_below(tmp_path) == WHOLE
    assert os.listdir(tmp_path) == ['c']


def test_an_archive_that_somebody_put_there_is_used_and_kept(site, archives, tmp_path):
    put(tmp_path, 'one.tgz', PARTS['/one.tgz'])
    download.fetch_corpus(str(tmp_path), 'c/marker', archives)
    assert paths(site) == ['/files/two.zip']
    assert files_below(tmp_path) == {**WHOLE, 'one.tgz': PARTS['/one.tgz']}


def test_a_corpus_put_there_by_hand_after_a_failed_download_is_taken(site, archives, tmp_path):
    site.files.clear()
    refused(download.fetch_corpus, str(tmp_path), 'c/marker', archives, says=['HTTP 404'])
    put(tmp_path / 'c', 'marker', b'')
    site.asked.clear()
    download.fetch_corpus(str(tmp_path), 'c/marker', archives)
    assert site.asked == []


def test_a_half_fetched_corpus_that_cannot_be_completed_is_not_taken(site, archives, tmp_path):
    del site.files['/files/two.zip']
    message = refused(download.fetch_corpus, str(tmp_path), 'c/marker', archives)
    assert refused(download.fetch_corpus, str(tmp_path), 'c/marker', archives) == message
    notes = tmp_path / '.fetching-c-marker.json'
    assert str(notes) in message and 'two.zip' in message
    assert paths(site) == ['/one.tgz', '/files/two.zip', '/files/two.zip']
    os.remove(notes)  # as the message says for a corpus that is whole
    download.fetch_corpus(str(tmp_path), 'c/marker', archives)


def test_archives_without_what_was_expected_are_a_data_error(archives, tmp_path):
    refused(download.fetch_corpus, str(tmp_path), 'c/other', archives,
            says=[str(tmp_path / 'c/other'), 'did not hold', 'one.tgz, two.zip'])


def test_two_runs_at_once_fetch_once(site, archives, tmp_path):
    pytest.importorskip('fcntl')
    site.holds = True  # the first request, until both have begun
    threads = [threading.Thread(target=download.fetch_corpus, daemon=True,
                                args=(str(tmp_path), 'c/marker', archives)) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    site.holds = False
    site.release.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert paths(site) == ['/one.tgz', '/files/two.zip']
    assert files_below(tmp_path) == WHOLE
