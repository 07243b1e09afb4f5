"""Reading audio files of every kind: channels, rates, formats, parts, damage."""

import csv
import os
import re
import shutil
import struct

import numpy as np
import pytest
import soundfile

from helpers import RATE, speech, write_wav
from util import audio


def write_header(path, rate=RATE, channels=1, bits=16, data=b''):
    """Writes a WAV file with any header, right or wrong; returns its path."""
    frame = channels * bits // 8
    header = struct.pack(
        '<4sI4s4sIHHIIHH4sI',
        b'RIFF',
        36 + len(data),
        b'WAVE',
        b'fmt ',
        16,
        1,
        channels,
        rate,
        rate * frame % 2**32,
        frame,
        bits,
        b'data',
        len(data),
    )
    path.write_bytes(header + data)
    return str(path)


def reason(path, read=audio.read_audio):
    """Returns the message of the AudioError that reading a file raises."""
    with pytest.raises(audio.AudioError) as error:
        read(str(path))
    assert str(path) not in str(error.value)  # the caller names it, as the manifest spells it
    return str(error.value)


def correlation(a, b):
    return np.corrcoef(a.ravel(), b.ravel())[0, 1]


# Channels, rates, formats


def test_samples_are_in_the_range_of_16_bit_integers(tmp_path):
    samples = np.int16([-32768, -1, 0, 1, 12345, 32767])
    read = audio.read_audio(write_wav(tmp_path / 'a.wav', samples))
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read, samples)


def test_channels_are_averaged(tmp_path):
    channels = np.int16([[100, 300, -100], [-32768, 0, 1], [9, 9, 9], [0, 3, 0]])
    path = write_wav(tmp_path / 'a.wav', channels)
    assert audio.audio_info(path) == (RATE, 3, 4)
    np.testing.assert_allclose(audio.read_audio(path), [100, -32767 / 3, 9, 1])


def test_stereo_with_a_silent_channel_has_the_features_of_mono(tmp_path):
    samples = speech(1.0)
    mono = audio.audiofile_to_input_vector(write_wav(tmp_path / 'a.wav', samples), 26, 9)
    duo = audio.audiofile_to_input_vector(
        write_wav(tmp_path / 'b.wav', np.stack([samples, 0 * samples], 1)), 26, 9
    )
    assert duo.shape == mono.shape == (99, 494)
    assert correlation(duo, mono) > 0.99


def signal(rate, seconds=1.0):
    """Returns the same sound at any rate, below 4 kHz: gliding harmonics and 60 steady tones."""
    t = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * 140 * t + 30 * np.sin(4 * t)
    sound = sum(np.sin(k * phase) / k for k in range(1, 16)) * (0.6 + 0.4 * np.sin(19 * t))
    rng = np.random.default_rng(1)
    for frequency, start in rng.uniform(100, 3600, (60, 2)):
        sound += 0.02 * np.sin(2 * np.pi * frequency * t + start)
    return np.int16(3000 * sound)


@pytest.mark.parametrize('rate', [8000, 22050, 44100])
def test_other_rates_are_resampled(tmp_path, rate):
    path = write_wav(tmp_path / 'a.wav', signal(rate), rate)
    samples = audio.read_audio(path)
    assert len(samples) == 16000
    assert correlation(samples, signal(16000)) > 0.999
    features = audio.audiofile_to_input_vector(path, 26, 9)
    expected = audio.audiofile_to_input_vector(write_wav(tmp_path / 'b.wav', signal(16000)), 26, 9)
    assert features.shape == expected.shape
    assert correlation(features, expected) > 0.99


def test_audio_is_brought_down_to_8_khz(tmp_path):
    samples = audio.read_audio(write_wav(tmp_path / 'a.wav', signal(16000)), 8000)
    assert len(samples) == 8000
    assert correlation(samples, signal(8000)) > 0.999


def test_level_survives_resampling(tmp_path):
    tone = np.int16(8000 * np.sin(2 * np.pi * 440 * np.arange(22050) / 22050))
    samples = audio.read_audio(write_wav(tmp_path / 'a.wav', tone, 22050))
    assert np.abs(samples[1000:-1000]).max() == pytest.approx(8000, rel=0.01)


@pytest.mark.parametrize('rate', [4000, 8000, 11025, 22050, 44100, 48000])
@pytest.mark.parametrize('n_samples', [1, 777, 1000])
def test_resampled_length_is_known_from_the_header(tmp_path, rate, n_samples):
    path = write_wav(tmp_path / 'a.wav', speech(1, rate=rate)[:n_samples], rate)
    length = audio.resampled_length(audio.audio_info(path).frames, rate, RATE)
    assert length == -(-n_samples * 16000 // rate) == len(audio.read_audio(path))


def test_no_samples_at_another_rate(tmp_path):
    assert audio.read_audio(write_wav(tmp_path / 'a.wav', [], 22050)).shape == (0,)


@pytest.mark.parametrize(
    'container, subtype, off',
    [
        ('WAV', 'PCM_24', 0.001),
        ('WAV', 'PCM_32', 0.001),
        ('WAV', 'FLOAT', 0.001),
        ('WAV', 'DOUBLE', 0.001),
        ('WAVEX', 'PCM_16', 0.001),
        ('WAVEX', 'FLOAT', 0.001),
        ('RF64', 'PCM_16', 0.001),
        ('FLAC', 'PCM_16', 0.001),
        ('WAV', 'PCM_U8', 257),
        ('NIST', 'PCM_16', 0.001),
    ],
)
def test_formats_under_the_name_wav(tmp_path, container, subtype, off):
    samples, path = speech(0.5), str(tmp_path / 'a.wav')
    soundfile.write(path, samples / 32768, RATE, format=container, subtype=subtype)
    assert audio.audio_info(path) == (RATE, 1, 8000)
    np.testing.assert_allclose(audio.read_audio(path), samples, atol=off)


@pytest.mark.parametrize(
    'name', ['a.flac', 'a.mp3', 'a', 'a.raw', 'name with space.wav', 'caf\u00e9.wav']
)
def test_content_counts_not_the_name(tmp_path, name):
    samples = speech(0.2)
    shutil.copy(write_wav(tmp_path / 'source.wav', samples), tmp_path / name)
    assert audio.audio_info(str(tmp_path / name)) == (RATE, 1, 3200)
    np.testing.assert_array_equal(audio.read_audio(str(tmp_path / name)), samples)


def test_long_audio_is_read_in_blocks(tmp_path, monkeypatch):
    samples = np.stack([speech(0.3), speech(0.3, seed=1)], 1)
    path = write_wav(tmp_path / 'a.wav', samples)
    whole = audio.read_audio(path)
    for block in (2, 1600, 9599, 9600):  # values; 4800 frames of two channels
        monkeypatch.setattr(audio, 'BLOCK_SAMPLES', block)
        np.testing.assert_array_equal(audio.read_audio(path), whole)


# Parts of files


@pytest.mark.parametrize(
    'start_s, stop_s, first, last',
    [
        (None, None, 0, 1000),
        (0.1, None, 100, 1000),
        (None, 0.25, 0, 250),
        (0.1, 0.25, 100, 250),
        (0.0, 0.0, 0, 0),
        (0.25, 0.1, 0, 0),
        (0.9, 1.4, 900, 1000),
        (1.2, None, 0, 0),
        (1.2, 1.4, 0, 0),
        (None, 5, 0, 1000),
    ],
)
def test_part_of_a_file(tmp_path, monkeypatch, start_s, stop_s, first, last):
    samples = np.stack([np.arange(4000), -7 * np.arange(4000) // 2], 1)
    path = write_wav(tmp_path / 'a.wav', samples, 4000)
    at = 4  # samples a millisecond
    for block in (1 << 22, 64):
        monkeypatch.setattr(audio, 'BLOCK_SAMPLES', block)
        read = audio.read_audio(path, 4000, start_s, stop_s)
        np.testing.assert_allclose(read, samples[at * first : at * last].mean(axis=1))
    start, count = audio.segment(audio.audio_info(path), start_s, stop_s)
    assert count == len(read)
    assert start == at * first or not count


def test_part_is_cut_at_the_rate_of_the_file(tmp_path):
    path = write_wav(tmp_path / 'a.wav', signal(8000, 2.0), 8000)
    part = audio.read_audio(path, 16000, 0.5, 1.25)
    assert len(part) == 12000
    assert correlation(part, audio.read_audio(path, 16000)[8000:20000]) > 0.999


def test_one_channel(tmp_path):
    channels = np.int16([[100, 300, -100], [5, 0, 1], [9, 8, 7], [0, 3, 0]])
    path = write_wav(tmp_path / 'a.wav', channels)
    for channel in range(3):
        np.testing.assert_array_equal(audio.read_audio(path, channel=channel), channels[:, channel])
    assert '3' in reason(path, lambda path: audio.read_audio(path, channel=3))


def test_other_channels_may_be_broken(tmp_path):
    samples = np.full((500, 2), 0.25, np.float32)
    samples[7, 1] = np.nan
    path = str(tmp_path / 'a.wav')
    soundfile.write(path, samples, RATE, subtype='FLOAT')
    np.testing.assert_array_equal(audio.read_audio(path, channel=0), np.full(500, 8192))
    assert 'not finite' in reason(path, lambda path: audio.read_audio(path, channel=1))


# Too short


@pytest.mark.parametrize('n_samples', [0, 1, 160, 399])
def test_less_than_a_window_is_an_error(tmp_path, n_samples):
    path = write_wav(tmp_path / 'a.wav', speech(1)[:n_samples])
    assert len(audio.read_audio(path)) == n_samples
    message = reason(path, lambda path: audio.audiofile_to_input_vector(path, 26, 9))
    assert message == (
        'too short: %d samples at 16000 Hz, expected one window of 25 ms or more' % n_samples
    )


def test_one_window_is_one_step(tmp_path):
    path = write_wav(tmp_path / 'a.wav', speech(1)[:400])
    assert audio.audiofile_to_input_vector(path, 26, 9).shape == (1, 494)


@pytest.mark.parametrize('rate, window', [(8000, 200), (16000, 400), (44100, 1103)])
def test_length_is_checked_at_the_rate(rate, window):
    audio.check_length(window, rate)
    with pytest.raises(audio.AudioError, match='%d samples at %d Hz' % (window - 1, rate)):
        audio.check_length(window - 1, rate)


# Damaged files


@pytest.mark.parametrize('read', [audio.audio_info, audio.read_audio])
@pytest.mark.parametrize(
    'name, content, message',
    [
        ('a.wav', b'<html><body>' + b'not found ' * 30, 'not an audio file: .+'),
        ('a.raw', b'not found ' * 30, 'not an audio file: .+'),
        ('a.wav', b'', 'not an audio file: .+'),
        ('a.wav', None, 'cannot be read: No such file or directory'),
        ('', None, 'not a regular file'),
    ],
)
def test_what_is_no_audio_file(tmp_path, read, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert re.fullmatch(message, reason(tmp_path / name, read))


@pytest.mark.skipif(os.geteuid() == 0, reason='root may read everything')
def test_file_without_permission(tmp_path):
    path = write_wav(tmp_path / 'a.wav', speech(0.1))
    os.chmod(path, 0)
    assert reason(path) == 'cannot be read: Permission denied'


def test_name_with_a_null_character(tmp_path):
    for read in (audio.audio_info, audio.read_audio):
        reason(tmp_path / 'a\0.wav', read)


@pytest.mark.parametrize('rate', [0, 1, 3999, 384001, 2**31])
def test_absurd_rate(tmp_path, rate):
    path = write_header(tmp_path / 'a.wav', rate, data=speech(0.1).tobytes())
    for read in (audio.audio_info, audio.read_audio):
        reason(path, read)


@pytest.mark.parametrize('rate', [4000, 384000])
def test_extreme_rate(tmp_path, rate):
    path = write_header(tmp_path / 'a.wav', rate, data=speech(0.1).tobytes())
    assert audio.audio_info(path) == (rate, 1, 1600)


def test_rate_is_named(tmp_path):
    path = write_header(tmp_path / 'a.wav', 1234, data=speech(0.1).tobytes())
    assert reason(path) == 'sample rate of 1234 Hz, expected 4000 to 384000'


def test_no_channels(tmp_path):
    reason(write_header(tmp_path / 'a.wav', channels=0, data=speech(0.1).tobytes()))


def test_cut_header(tmp_path):
    path = tmp_path / 'a.wav'
    write_header(path, data=speech(0.1).tobytes())
    path.write_bytes(path.read_bytes()[:20])
    reason(path)


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite(tmp_path, value):
    samples = speech(0.5) / np.float32(32768)
    samples[4321] = value
    soundfile.write(str(tmp_path / 'a.wav'), samples, RATE, subtype='FLOAT')
    assert reason(tmp_path / 'a.wav').startswith('samples that are not finite numbers')


@pytest.mark.parametrize('factor', [1e200, 1e303])
def test_absurdly_loud_samples_are_an_error_or_finite(tmp_path, factor):
    path = str(tmp_path / 'a.wav')
    soundfile.write(path, factor * speech(0.1), RATE, subtype='DOUBLE')
    with np.errstate(all='ignore'):
        try:
            features = audio.audiofile_to_input_vector(path, 26, 9)
        except audio.AudioError:
            return
    assert np.isfinite(features).all()


# Real files, pipes and devices


def test_odd_wavs_are_read_whole_or_refused_with_a_reason(shared_data):
    folder = shared_data('odd_wavs')
    with open(folder / 'odd_wavs.tsv') as table:
        rows = list(csv.DictReader(table, delimiter='\t', quoting=csv.QUOTE_NONE))
    read = {}
    for row in rows:
        path = str(folder / row['file'])
        try:
            samples = audio.read_audio(path, audio.audio_info(path).rate)
            audio.mfcc(samples, audio.audio_info(path).rate)
            read[row['file']] = len(samples)
        except audio.AudioError as error:
            assert str(error), row['file']
    assert len(rows) == 77
    for row in rows:
        known = re.search(r'(\d+) frames', row['soundfile_reads'])
        if row['file'] in read:
            assert read[row['file']] == int(known.group(1)), row['file']
    assert not {name for name in read if '_shn' in name or 'early-eof' in name or 'nan' in name}
    assert 'nltk_timit/sa1_sphere_damaged.wav' not in read
    assert {
        'nltk_timit/sa1_sphere.wav',
        'derived/data_size_ffffffff.wav',
        'derived/ulaw.wav',
        'lhotse/stereo.opus',
        'derived/mp3_as.wav',
        'derived/rf64.wav',
    } <= set(read)


def test_pipes_and_devices_are_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / 'pipe.wav')
    for path in (tmp_path / 'pipe.wav', '/dev/zero'):
        with pytest.raises(audio.AudioError, match='not a regular file'):
            audio.audio_info(str(path))
