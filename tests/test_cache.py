"""Caches of headers and features: what is found again, and what is computed anew."""

import hashlib
import os
import pathlib
import sqlite3
import threading
import time

import numpy as np
import pytest

from helpers import speech, write_wav
from util import audio, records
from util.feeding import cache

COLUMNS = 3


def utterance(path, **part):
    return records.Utterance(str(path), 'name', 'text', **part)


def features(steps, seed=0):
    return np.random.default_rng(seed).normal(size=(steps, COLUMNS)).astype(np.float32)


def put(kept, of, matrix):
    kept.put(of, matrix, kept.state(of))


def feature_cache(folder, settings=(1,), limit=10**9):
    return cache.FeatureCache(str(folder), 'a,b', settings, COLUMNS, limit)


@pytest.fixture
def wav(tmp_path):
    return write_wav(tmp_path / 'a.wav', speech(0.5))


def header_cache(folder, *paths):
    headers = cache.HeaderCache(str(folder))
    headers.load(paths)
    return headers


def test_known_headers_are_not_read_again(tmp_path, wav, monkeypatch):
    headers = header_cache(tmp_path / 'c', wav)
    assert headers.info(wav) == (16000, 1, 8000)
    headers.close()
    monkeypatch.setattr(audio, 'audio_info', None)
    assert header_cache(tmp_path / 'c', wav).info(wav) == (16000, 1, 8000)


def test_changed_file_is_read_again(tmp_path, wav):
    headers = header_cache(tmp_path / 'c', wav)
    headers.info(wav)
    headers.close()
    write_wav(wav, speech(0.75))
    assert header_cache(tmp_path / 'c', wav).info(wav).frames == 12000


def test_missing_file_says_why(tmp_path):
    with pytest.raises(audio.AudioError, match='No such file'):
        header_cache(tmp_path / 'c').info(str(tmp_path / 'nowhere.wav'))


def test_damaged_header_table_is_replaced(tmp_path, wav):
    (tmp_path / 'c').mkdir()
    (tmp_path / 'c' / 'headers.sqlite').write_bytes(os.urandom(5000))
    headers = header_cache(tmp_path / 'c', wav)
    assert not headers.broken and headers.info(wav).frames == 8000
    headers.close()
    assert header_cache(tmp_path / 'c', wav).info(wav).frames == 8000


def test_a_run_goes_on_with_a_warning_where_a_cache_cannot_be_made(tmp_path, wav, caplog):
    (tmp_path / 'file').write_text('in the way')
    headers = header_cache(tmp_path / 'file', wav)
    assert headers.info(wav).frames == 8000
    headers.close()
    kept = feature_cache(tmp_path / 'file')
    put(kept, utterance(wav), features(4))
    assert kept.get(utterance(wav)) is None
    kept.close()
    assert len([r for r in caplog.records if 'going on without the cache' in r.message]) == 2


def test_features_come_back_in_the_next_run(tmp_path, wav):
    first = feature_cache(tmp_path / 'c')
    put(first, utterance(wav), features(4))
    put(first, utterance(wav, start_s=0.1, stop_s=0.3), features(2, seed=1))
    put(first, utterance(wav, channel=1), features(7, seed=2))
    first.close()
    second = feature_cache(tmp_path / 'c')
    np.testing.assert_array_equal(second.get(utterance(wav)), features(4))
    np.testing.assert_array_equal(
        second.get(utterance(wav, start_s=0.1, stop_s=0.3)), features(2, seed=1)
    )
    np.testing.assert_array_equal(second.get(utterance(wav, channel=1)), features(7, seed=2))
    assert second.get(utterance(wav, start_s=0.1)) is None


def test_other_settings_have_another_file(tmp_path, wav):
    first = feature_cache(tmp_path / 'c')
    put(first, utterance(wav), features(4))
    first.close()
    assert feature_cache(tmp_path / 'c', settings=(2,)).get(utterance(wav)) is None


def test_features_of_a_changed_file_are_stale(tmp_path, wav):
    kept = feature_cache(tmp_path / 'c')
    put(kept, utterance(wav), features(4))
    kept.flush()
    assert kept.get(utterance(wav)) is not None
    write_wav(wav, speech(0.75))
    assert kept.get(utterance(wav)) is None
    put(kept, utterance(wav), features(5))
    kept.flush()
    np.testing.assert_array_equal(kept.get(utterance(wav)), features(5))


@pytest.mark.parametrize('damage', ['flipped', 'short'])
def test_damaged_features_are_not_handed_out(tmp_path, wav, damage):
    first = feature_cache(tmp_path / 'c')
    put(first, utterance(wav), features(4))
    first.close()
    path = pathlib.Path(first.path + '.bin')
    content = bytearray(path.read_bytes())
    content[17] ^= 255
    path.write_bytes(content if damage == 'flipped' else content[:20])
    second = feature_cache(tmp_path / 'c')
    assert second.get(utterance(wav)) is None
    put(second, utterance(wav), features(4))
    second.flush()
    np.testing.assert_array_equal(second.get(utterance(wav)), features(4))


def test_the_limit_holds_and_is_logged_once(tmp_path, wav, caplog):
    caplog.set_level('INFO')
    kept = feature_cache(tmp_path / 'c', limit=4 * 4 * COLUMNS)
    put(kept, utterance(wav), features(4))
    put(kept, utterance(wav, channel=0), features(1))
    kept.flush()
    put(kept, utterance(wav, channel=1), features(1))
    kept.close()
    assert os.path.getsize(kept.path + '.bin') == 4 * 4 * COLUMNS
    assert len([r for r in caplog.records if 'limit' in r.message]) == 1


def test_two_runs_append_to_one_file(tmp_path, wav):
    caches = [feature_cache(tmp_path / 'c') for _ in range(2)]

    def fill(which):
        for n in range(30):
            put(caches[which], utterance(wav, channel=100 * which + n), features(3, seed=n))
            caches[which].flush()

    threads = [threading.Thread(target=fill, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in caches:
        assert not each.broken
        each.close()
    together = feature_cache(tmp_path / 'c')
    for which in range(2):
        for n in range(30):
            np.testing.assert_array_equal(
                together.get(utterance(wav, channel=100 * which + n)), features(3, seed=n)
            )


def replaced_in_place(path):
    """Gives a file other samples, but the same size and modification time."""
    before = os.stat(path)
    write_wav(path, speech(0.5, seed=5))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat(path)
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def replaced_by_renaming(path):
    """Puts another file of the same size and modification time in a file's place."""
    before = os.stat(path)
    write_wav(path + '.new', speech(0.5, seed=5))
    os.utime(path + '.new', ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(path + '.new', path)


@pytest.mark.parametrize('replaced', [replaced_in_place, replaced_by_renaming])
def test_a_file_replaced_by_one_of_the_same_size_and_time_is_read_again(
    tmp_path, wav, monkeypatch, replaced
):
    headers, kept = header_cache(tmp_path / 'c', wav), feature_cache(tmp_path / 'c')
    headers.info(wav)
    headers.close()
    put(kept, utterance(wav), features(4))
    kept.flush()
    time.sleep(0.02)  # the kernel counts the time of a change in ticks
    replaced(wav)
    assert kept.get(utterance(wav)) is None
    opened, audio_info = [], audio.audio_info
    monkeypatch.setattr(audio, 'audio_info', lambda path: opened.append(path) or audio_info(path))
    header_cache(tmp_path / 'c', wav).info(wav)
    assert opened == [wav]


def test_caches_of_the_first_version_are_replaced(tmp_path, wav):
    folder = tmp_path / 'c'
    folder.mkdir()
    state = os.stat(wav)
    with sqlite3.connect(folder / 'headers.sqlite') as database:
        database.execute(
            'CREATE TABLE headers (path TEXT PRIMARY KEY, bytes INT, mtime INT, '
            'rate INT, channels INT, frames INT)'
        )
        row = (wav, state.st_size, state.st_mtime_ns, 16000, 1, 7)
        database.execute('INSERT INTO headers VALUES (?, ?, ?, ?, ?, ?)', row)
    database.close()
    name = hashlib.sha256(repr((1,)).encode()).hexdigest()[:16]
    old = [folder / ('features-a+b-%s%s' % (name, end)) for end in ('.bin', '.sqlite')]
    for path in old:
        path.write_bytes(b'old')
    assert header_cache(folder, wav).info(wav).frames == 8000
    kept = feature_cache(folder)
    assert not kept.broken and kept.get(utterance(wav)) is None
    assert not any(path.exists() for path in old)


@pytest.mark.parametrize('table', ['places (utterance TEXT)', 'places (a, b, c, d, e, f, g)'])
def test_a_cache_with_other_columns_is_done_without(tmp_path, wav, caplog, table):
    kept = feature_cache(tmp_path / 'c')
    path = kept.path + '.sqlite'
    kept.close()
    os.remove(path)
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE ' + table)
        database.execute('INSERT INTO places (%s) VALUES (1)' % table.split()[1].strip('(,'))
    database.close()
    other = feature_cache(tmp_path / 'c')
    put(other, utterance(wav), features(4))
    other.close()
    assert 'going on without the cache' in caplog.text


@pytest.mark.parametrize('place', [(0, 0, 0), (0, 2**61, 0), (2**62, 4, 0), (0, -4, 0)])
def test_absurd_places_are_not_read(tmp_path, wav, place):
    kept = feature_cache(tmp_path / 'c')
    put(kept, utterance(wav), features(4))
    kept.close()
    with sqlite3.connect(kept.path + '.sqlite') as database:
        database.execute('UPDATE places SET offset=?, rows=?, crc=?', place)
    database.close()
    assert feature_cache(tmp_path / 'c').get(utterance(wav)) is None


def test_features_that_are_cut_in_mid_run_are_computed_again(tmp_path, wav):
    kept = feature_cache(tmp_path / 'c')
    put(kept, utterance(wav), features(4000))
    kept.flush()
    assert kept.get(utterance(wav)) is not None
    os.truncate(kept.path + '.bin', 5000)  # a mapped file would end the process here
    assert kept.get(utterance(wav)) is None and not kept.broken
    put(kept, utterance(wav), features(3))
    kept.flush()
    np.testing.assert_array_equal(kept.get(utterance(wav)), features(3))


@pytest.mark.parametrize('lock', ['IMMEDIATE', 'EXCLUSIVE'])
def test_locked_caches_are_waited_for_once_and_not_long(tmp_path, wav, caplog, monkeypatch, lock):
    monkeypatch.setattr(cache, 'SILENT_S', 0.1)
    caplog.set_level('INFO')
    header_cache(tmp_path / 'c', wav).close()
    path = feature_cache(tmp_path / 'c').path + '.sqlite'
    others = [sqlite3.connect(each) for each in (tmp_path / 'c' / 'headers.sqlite', path)]
    for other in others:
        other.execute('BEGIN ' + lock)
    started, patience = time.monotonic(), cache.Patience(0.3)
    headers = cache.HeaderCache(str(tmp_path / 'c'), patience)
    headers.load([wav])
    kept = cache.FeatureCache(str(tmp_path / 'c'), 'a,b', (1,), COLUMNS, 10**9, patience)
    assert headers.info(wav).frames == 8000
    headers.close()
    put(kept, utterance(wav), features(4))
    kept.close()
    assert time.monotonic() - started < 4
    said = [record.message for record in caplog.records]
    assert len([line for line in said if line.startswith('waiting up to')]) == 1
    assert len([line for line in said if 'without the cache' in line]) == 2
    for other in others:
        other.close()
    again = feature_cache(tmp_path / 'c')
    put(again, utterance(wav), features(4))
    again.close()
    np.testing.assert_array_equal(feature_cache(tmp_path / 'c').get(utterance(wav)), features(4))


def test_a_full_disk_gives_one_warning(tmp_path, wav, caplog):
    path = feature_cache(tmp_path / 'c').path
    os.remove(path + '.bin')
    os.symlink('/dev/full', path + '.bin')
    kept = feature_cache(tmp_path / 'c')
    for n in range(3):
        put(kept, utterance(wav, channel=n), features(4))
        kept.flush()
        assert kept.get(utterance(wav, channel=n)) is None
    kept.close()
    assert [r.message for r in caplog.records] == [
        'going on without the cache %s: [Errno 28] No space left on device' % path
    ]


def test_a_database_that_breaks_in_mid_run(tmp_path, wav, caplog):
    kept = feature_cache(tmp_path / 'c')
    put(kept, utterance(wav), features(4))
    kept.flush()
    with open(kept.path + '.sqlite', 'r+b') as file:
        file.write(b'x' * 3000)
    for n in range(3):
        put(kept, utterance(wav, channel=n), features(4))
        kept.flush()
    kept.close()
    assert len([r for r in caplog.records if 'going on without' in r.message]) <= 1
    assert not feature_cache(tmp_path / 'c').broken
