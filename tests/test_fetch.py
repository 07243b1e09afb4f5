"""Fetching corpora of several archives: once, after interruptions, two processes at a time."""

import hashlib
import os
import shutil
import threading
import time

import pytest

import fetching_helpers
from fetching_helpers import WAIT_S, Stop, files_below, put, refused, stop_at, tar_bytes, zip_bytes
from util.corpora import archives, download, fetch

PARTS = {
    '/one.tgz': tar_bytes({'c/marker': b'', 'c/1': b'1'}),
    '/files/two.zip': zip_bytes({'c/2': b'2'}),
}
WHOLE = {'c/marker': b'', 'c/1': b'1', 'c/2': b'2', fetch.LOCK_NAME: b''}


@pytest.fixture
def site(monkeypatch):
    with fetching_helpers.serving(monkeypatch) as site:
        yield site


@pytest.fixture
def sources(site):
    """The archives of a corpus that the site has."""
    site.files = dict(PARTS)
    return [
        fetch.Archive(
            site.url + '/one.tgz',
            len(PARTS['/one.tgz']),
            hashlib.md5(PARTS['/one.tgz']).hexdigest(),
        ),
        fetch.Archive(site.url + '/files/two.zip'),
    ]


def paths(site):
    """The paths that were asked for so far."""
    return [asked[0] for asked in site.asked]


def test_a_corpus_is_fetched_once_and_its_archives_are_removed(site, sources, tmp_path):
    folder = str(tmp_path / 'data' / 'corpus')
    fetch.fetch_corpus(folder, 'c/marker', sources)
    assert files_below(folder) == WHOLE
    assert sorted(os.listdir(folder)) == [fetch.LOCK_NAME, 'c']
    fetch.fetch_corpus(folder, 'c/marker', sources)
    assert paths(site) == ['/one.tgz', '/files/two.zip']


def test_an_address_with_a_query_gives_a_name_without_it(site, tmp_path):
    site.files['/x/my%20corpus.zip?download=1'] = zip_bytes({'c/marker': b''})
    archive = fetch.Archive(site.url + '/x/my%20corpus.zip?download=1')
    with pytest.MonkeyPatch.context() as patch:
        names = []
        patch.setattr(archives, 'unpack', lambda path, folder: names.append(path))
        refused(fetch.fetch_corpus, str(tmp_path), 'c/marker', [archive])
    assert names == [str(tmp_path / 'my corpus.zip')]


def test_a_corpus_that_is_there_needs_neither_network_nor_write_access(tmp_path):
    put(tmp_path / 'c', 'marker', b'')
    before = os.stat(tmp_path).st_mtime_ns
    fetch.fetch_corpus(str(tmp_path), 'c', [fetch.Archive('http://127.0.0.1:9/one.tgz')])
    assert os.listdir(tmp_path) == ['c'] and os.stat(tmp_path).st_mtime_ns == before


@pytest.mark.parametrize(
    'module, name, when, again',
    (
        (shutil, 'copyfileobj', 2, ['/files/two.zip']),  # within the first archive
        (os, 'replace', '/.unpacking-one.tgz/c', ['/files/two.zip']),
        (shutil, 'copyfileobj', 3, []),  # within the second one
        (os, 'replace', '/.unpacking-two.zip/c/2', []),  # from its folder c into the first one's
        (os, 'remove', '/one.tgz', ['/files/two.zip']),
        (os, 'remove', '/two.zip', []),
        (os, 'remove', '/.fetching-c-marker.json', []),
        (download, 'download', 2, ['/files/two.zip']),
    ),
)
def test_an_interrupted_fetch_goes_on_where_it_stopped(
    site, sources, tmp_path, monkeypatch, module, name, when, again
):
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, module, name, when)
        fetch.fetch_corpus(str(tmp_path), 'c/marker', sources)
    site.asked.clear()
    fetch.fetch_corpus(str(tmp_path), 'c/marker', sources)
    assert paths(site) == again
    assert files_below(tmp_path) == WHOLE
    assert sorted(os.listdir(tmp_path)) == [fetch.LOCK_NAME, 'c']


def test_an_archive_that_somebody_put_there_is_used_and_kept(site, sources, tmp_path):
    put(tmp_path, 'one.tgz', PARTS['/one.tgz'])
    fetch.fetch_corpus(str(tmp_path), 'c/marker', sources)
    assert paths(site) == ['/files/two.zip']
    assert files_below(tmp_path) == {**WHOLE, 'one.tgz': PARTS['/one.tgz']}


def test_a_corpus_put_there_by_hand_after_a_failed_download_is_taken(site, sources, tmp_path):
    site.files.clear()
    refused(fetch.fetch_corpus, str(tmp_path), 'c/marker', sources, says=['HTTP 404'])
    put(tmp_path / 'c', 'marker', b'')
    site.asked.clear()
    fetch.fetch_corpus(str(tmp_path), 'c/marker', sources)
    assert site.asked == []


def test_a_half_fetched_corpus_that_cannot_be_completed_is_not_taken(site, sources, tmp_path):
    del site.files['/files/two.zip']
    message = refused(fetch.fetch_corpus, str(tmp_path), 'c/marker', sources)
    assert refused(fetch.fetch_corpus, str(tmp_path), 'c/marker', sources) == message
    notes = tmp_path / '.fetching-c-marker.json'
    assert str(notes) in message and 'two.zip' in message
    assert paths(site) == ['/one.tgz', '/files/two.zip', '/files/two.zip']
    os.remove(notes)  # as the message says for a corpus that is whole
    fetch.fetch_corpus(str(tmp_path), 'c/marker', sources)


def test_archives_without_what_was_expected_are_a_data_error(sources, tmp_path):
    refused(
        fetch.fetch_corpus,
        str(tmp_path),
        'c/other',
        sources,
        says=[str(tmp_path / 'c/other'), 'did not hold', 'one.tgz, two.zip'],
    )


@pytest.mark.skipif(os.geteuid() == 0, reason='root may write everywhere')
def test_a_folder_that_cannot_be_written_is_a_data_error_and_no_hang(sources, tmp_path):
    folder = tmp_path / 'data'
    folder.mkdir(mode=0o555)
    refused(
        fetch.fetch_corpus,
        str(folder),
        'c/marker',
        sources,
        says=[sources[0].url, str(folder), 'Permission denied'],
    )
    assert os.listdir(folder) == []


def test_two_runs_at_once_fetch_once(site, sources, tmp_path):
    site.holds = True  # the first request, until both have begun
    threads = [
        threading.Thread(
            target=fetch.fetch_corpus, daemon=True, args=(str(tmp_path), 'c/marker', sources)
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    site.holds = False
    site.release.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert paths(site) == ['/one.tgz', '/files/two.zip']
    assert files_below(tmp_path) == WHOLE
