"""Downloads from a server that misbehaves: parts, ranges, attempts, what is refused."""

import hashlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time

import pytest

import fetching_helpers
from fetching_helpers import CONTENT, TAG, WAIT_S, files_below, put, refused
from helpers import PROJECT
from util.corpora import download

MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def site(monkeypatch):
    with fetching_helpers.serving(monkeypatch) as site:
        yield site


def test_a_file_is_downloaded_once(site, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    path = str(tmp_path / 'new' / 'a.tgz')
    download.download(site.url + '/a.tgz', path, len(CONTENT), MD5.upper())
    download.download(site.url + '/a.tgz', path, len(CONTENT), MD5)
    assert files_below(tmp_path) == {'new/a.tgz': CONTENT}
    assert site.asked == [('/a.tgz', None, None)]
    assert [record.getMessage().split(' in ')[0] for record in caplog.records] == [
        'downloading %s/a.tgz to %s' % (site.url, path),
        'downloaded %s: 0.5 MB' % path,
    ]


def test_an_empty_file_is_a_file(site, tmp_path):
    site.files['/none.txt'] = b''
    download.download(site.url + '/none.txt', str(tmp_path / 'none.txt'))
    assert files_below(tmp_path) == {'none.txt': b''}


@pytest.mark.parametrize(
    'headers, condition',
    (
        ({'ETag': TAG}, TAG),
        (
            {'ETag': 'W/"weak"', 'Last-Modified': 'Mon, 02 Jan 2017 00:00:00 GMT'},
            'Mon, 02 Jan 2017 00:00:00 GMT',
        ),
        ({}, None),
    ),
)
def test_after_a_cut_only_the_rest_is_asked_for(site, tmp_path, headers, condition):
    site.headers, site.cuts = headers, [300000]
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'), md5=MD5)
    [first, (_, rest, if_range)] = site.asked
    assert first == ('/a.tgz', None, None)
    assert 300000 - download.CHUNK_BYTES < int(rest[len('bytes=') : -1]) <= 300000
    assert if_range == condition
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def fail_part_way(site, tmp_path, cut=300000):
    """A download that is given up; what it leaves. Returns (path, bytes in the part)."""
    site.cuts = [cut, 1, 1, 1]
    path = str(tmp_path / 'a.tgz')
    refused(
        download.download,
        site.url + '/a.tgz',
        path,
        says=[site.url + '/a.tgz', path, 'of 512000 bytes', '4 attempts'],
    )
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
    (tmp_path / 'a.tgz.part.json').write_text(
        json.dumps({'url': url, 'validator': TAG, 'total': len(CONTENT)})
    )
    download.download(url, str(tmp_path / 'a.tgz'), md5=MD5)
    assert site.asked == []
    assert files_below(tmp_path) == {'a.tgz': CONTENT}


def test_what_a_run_leaves_that_is_killed_after_the_renaming_goes(site, tmp_path):
    put(tmp_path, 'a.tgz', CONTENT)
    put(tmp_path, 'a.tgz.part.json', b'{}')
    download.download(site.url + '/a.tgz', str(tmp_path / 'a.tgz'))
    assert files_below(tmp_path) == {'a.tgz': CONTENT} and site.asked == []


DOWNLOADER = 'import sys; from util.corpora import download; download.download(*sys.argv[1:])'


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
def test_a_server_in_trouble_is_asked_again_after_growing_pauses(
    site, tmp_path, monkeypatch, caplog, statuses
):
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
    refused(
        download.download,
        site.url + '/a.tgz',
        str(tmp_path / 'a.tgz'),
        says=['HTTP 500', '4 attempts'],
    )
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
    refused(
        download.download,
        site.url + '/a.tgz',
        path,
        says=[site.url + '/a.tgz', path, 'HTTP %d' % status],
    )
    assert len(site.asked) == 1
    assert os.listdir(tmp_path) == []


def test_nobody_there_is_a_data_error(site, tmp_path):
    site.stop()
    refused(
        download.download,
        site.url + '/a.tgz',
        str(tmp_path / 'a.tgz'),
        says=[site.url, 'Connection refused', '4 attempts'],
    )


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
    refused(
        download.download,
        site.url + '/a.tgz',
        str(tmp_path / 'a.tgz'),
        512001,
        says=['512000 bytes', 'expected 512001'],
    )
    assert os.listdir(tmp_path) == []


def test_a_wrong_checksum_removes_the_part(site, tmp_path):
    refused(
        download.download,
        site.url + '/a.tgz',
        str(tmp_path / 'a.tgz'),
        len(CONTENT),
        32 * '0',
        says=[MD5, 32 * '0'],
    )
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
    refused(
        download.download,
        site.url + '/a.tgz',
        str(tmp_path / 'a.tgz'),
        size_bytes,
        says=['%d' % size_bytes],
    )
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

    def opened(path, mode='r', **options):
        return FullDisk(path, mode) if mode == 'ab' else open(path, mode, **options)

    monkeypatch.setattr(download, 'open', opened, raising=False)
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


@pytest.mark.parametrize('terminal', (True, False))
def test_a_terminal_gets_a_bar_with_the_bytes(site, tmp_path, monkeypatch, capsys, terminal):
    path, size = fail_part_way(site, tmp_path)
    monkeypatch.setattr(sys.stdout, 'isatty', lambda: terminal, raising=False)
    download.download(site.url + '/a.tgz', path)
    out = capsys.readouterr().out
    if terminal:
        assert out.startswith('\ra.tgz |#') and ' %dkB/512kB, ? to go' % round(size / 1000) in out
        assert out.split('\r')[-2:] == [' ' * len(out.split('\r')[-3]), '']  # it is cleared
    else:
        assert out == ''
