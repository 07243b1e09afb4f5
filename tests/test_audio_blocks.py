"""util.recognition.audio_blocks: block by block, a file is what util.audio makes of the whole."""

import numpy as np
import pytest
import scipy.signal
import soundfile

from helpers import speech, write_broken_flac, write_wav
from util import audio, records
from util.recognition import audio_blocks

DEVIATION = 1e-6  # of samples in the range of 16-bit integers


def blocks(path, sample_rate=16000, **part):
    """The blocks of a file, or of a part of it."""
    return list(audio_blocks.read(records.Utterance(str(path), 'x', **part), sample_rate))


@pytest.fixture
def short_blocks(monkeypatch):
    """Blocks of 1 s, so that short files have several."""
    monkeypatch.setattr(audio_blocks, 'BLOCK_S', 1)


@pytest.mark.parametrize('rate', (8000, 11025, 16000, 22050, 44100, 48000, 15999))
def test_resampled_blocks_are_the_resampled_whole(tmp_path, short_blocks, rate):
    path = write_wav(tmp_path / 'a.wav', speech(3.456, rate=rate), rate)
    found = blocks(path)
    assert len(found) > 2
    whole = audio.read_audio(path)
    assert sum(map(len, found)) == len(whole)
    np.testing.assert_allclose(np.concatenate(found), whole, atol=DEVIATION)


@pytest.mark.parametrize('n_samples', (0, 1, 9, 160, 1601))
def test_blocks_of_any_length_are_resampled(n_samples):
    samples = np.random.default_rng(0).normal(0, 1000, n_samples)
    for size in (1, 7, 100, 2000):
        parts = [samples[i : i + size] for i in range(0, n_samples, size)] or [samples]
        found = np.concatenate(list(audio_blocks.resampled(iter(parts), 160, 441)))
        if not n_samples:
            assert len(found) == 0
            continue
        whole = scipy.signal.resample_poly(samples, 160, 441)
        np.testing.assert_allclose(found, whole, atol=DEVIATION)


@pytest.mark.parametrize('rate', (16000, 44100))
def test_one_block_is_the_whole_to_the_last_bit(tmp_path, rate):
    samples = np.stack([speech(1.5, 1, rate), speech(1.5, 2, rate)], axis=1)
    path = write_wav(tmp_path / 'a.wav', samples, rate)
    [found] = blocks(path)
    np.testing.assert_array_equal(found, audio.read_audio(path))


def test_a_part_and_a_channel(tmp_path, short_blocks):
    samples = np.stack([speech(4, 1), speech(4, 2)], axis=1)
    path = write_wav(tmp_path / 'a.wav', samples)
    found = blocks(path, start_s=0.5, stop_s=3.25, channel=1)
    assert len(found) == 3
    np.testing.assert_array_equal(np.concatenate(found), samples[8000:52000, 1])
    with pytest.raises(audio.AudioError, match='no channel 2: it has 2'):
        blocks(path, channel=2)
    [nothing] = blocks(path, start_s=9.0)
    assert len(nothing) == 0


def test_other_formats(tmp_path, short_blocks):
    for name, options in (('a.flac', {'subtype': 'PCM_24'}), ('a.ogg', {}), ('a.mp3', {})):
        soundfile.write(tmp_path / name, speech(2.5) / 32768, 16000, **options)
        whole = audio.read_audio(str(tmp_path / name))
        np.testing.assert_allclose(np.concatenate(blocks(tmp_path / name)), whole, atol=DEVIATION)


def test_what_cannot_be_read(tmp_path, short_blocks):
    (tmp_path / 'page.wav').write_text('<html>')
    write_broken_flac(tmp_path / 'half.flac', 3.0, 0.5)
    bad = np.ones(40000, np.float32)
    bad[30000] = np.nan
    soundfile.write(tmp_path / 'nan.wav', bad, 16000, subtype='FLOAT')
    for name, words in (
        ('page.wav', 'not an audio file'),
        ('absent.wav', 'cannot be read: No such file'),
        ('half.flac', 'damaged audio'),
        ('nan.wav', 'not finite numbers'),
    ):
        with pytest.raises(audio.AudioError, match=words):
            blocks(tmp_path / name)
