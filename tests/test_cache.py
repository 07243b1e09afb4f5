"""Caches of headers and features: what is found again, and what is computed anew."""

import os
import pathlib
import threading

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
