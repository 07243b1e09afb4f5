"""util.augmentation.stored_samples: audio that stays in memory."""

import os

import numpy as np
import pytest

from helpers import speech, write_wav
from util import audio, records
from util.augmentation import stored_samples

RATE = 8000


def utterance(path, **part):
    return records.Utterance(str(path), 'x', **part)


@pytest.mark.parametrize('rate', (RATE, 16000))  # 16-bit integers, and after a conversion
def test_samples_are_those_of_the_file_and_are_read_once(tmp_path, rate):
    path = write_wav(tmp_path / 'a.wav', speech(0.3, rate=rate), rate)
    store = stored_samples.StoredSamples(RATE, 1.0)
    expected = audio.read_audio(path, RATE).astype(np.float32)
    for _ in range(2):
        found = store.read(utterance(path))
        assert found.dtype == np.float32 and np.array_equal(found, expected)
        if os.path.exists(path):
            os.remove(path)


def test_parts_and_channels_are_kept_apart(tmp_path):
    path = write_wav(tmp_path / 'a.wav', np.arange(4000).reshape(2000, 2), RATE)
    store = stored_samples.StoredSamples(RATE, 1.0)
    for _ in range(2):
        assert store.read(utterance(path, channel=1))[0] == 1
        assert store.read(utterance(path, start_s=0.1, stop_s=0.2, channel=0))[0] == 1600
        assert len(store.read(utterance(path))) == 2000


def test_no_more_is_kept_than_allowed(tmp_path):
    store = stored_samples.StoredSamples(RATE, 5000e-9)  # 16-bit integers: 2 x 1000, not 3
    paths = [write_wav(tmp_path / ('%d.wav' % i), np.full(1000, i), RATE) for i in range(3)]
    for path in paths:
        store.read(utterance(path))
        os.remove(path)
    assert [store.read(utterance(path))[0] for path in paths[:2]] == [0, 1]
    with pytest.raises(audio.AudioError):
        store.read(utterance(paths[2]))


def test_samples_beyond_full_scale_stay_what_they_are(tmp_path):
    import soundfile

    path = tmp_path / 'loud.wav'
    soundfile.write(path, np.array([0.5, 3.0, -2.0] * 200), RATE, subtype='FLOAT')
    store = stored_samples.StoredSamples(RATE, 1.0)
    for _ in range(2):
        assert store.read(utterance(path))[:3].tolist() == [16384, 98304, -65536]
