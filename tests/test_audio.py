"""From files of every kind to MFCC windows, against a plain rewrite of the notebook's loop."""
import csv
import os
import re
import shutil
import struct

import numpy as np
import pytest
import python_speech_features
import soundfile

from helpers import PROJECT, RATE, speech, write_wav
from util import audio

SEED_FEATURES = os.path.join(PROJECT, 'tests', 'data', 'seed_features.npz')
LDC93S1 = os.path.join(PROJECT, '..', 'shared', 'data', 'ldc93s1', 'LDC93S1.wav')


def notebook_features(samples, numcep, numcontext, rate=RATE, stride=1):
    """What the notebook's audiofile_to_input_vector did, frame by frame."""
    frames = python_speech_features.mfcc(samples, rate, numcep=numcep)[::stride]
    rows = []
    for now in range(len(frames)):
        row = []
        for i in range(now - numcontext, now + numcontext + 1):
            row.extend(frames[i] if 0 <= i < len(frames) else [0.0] * numcep)
        rows.append(row)
    rows = np.array(rows)
    return (rows - np.mean(rows)) / np.std(rows)


def write_header(path, rate=RATE, channels=1, bits=16, data=b''):
    """A WAV file with any header, right or wrong."""
    frame = channels * bits // 8
    header = struct.pack('<4sI4s4sIHHIIHH4sI', b'RIFF', 36 + len(data), b'WAVE', b'fmt ', 16, 1,
                         channels, rate, rate * frame % 2**32, frame, bits, b'data', len(data))
    path.write_bytes(header + data)
    return str(path)


def reason(path, read=audio.read_audio):
    """Message of the AudioError that reading a file raises."""
    with pytest.raises(audio.AudioError) as error:
        read(str(path))
    assert str(path) not in str(error.value)  # the caller names it, as the manifest spells it
    return str(error.value)


def correlation(a, b):
    return np.corrcoef(a.ravel(), b.ravel())[0, 1]


# The notebook's features


@pytest.mark.parametrize('seconds, numcep, numcontext', [
    (1.37, 26, 9), (0.9, 13, 4), (0.31, 5, 3), (0.5, 26, 0), (0.5, 1, 2)])
def test_features_are_the_notebooks(tmp_path, seconds, numcep, numcontext):
    samples = speech(seconds, seed=3)
    features = audio.audiofile_to_input_vector(write_wav(tmp_path / 'a.wav', samples), numcep,
                                               numcontext)
    expected = notebook_features(samples, numcep, numcontext)
    assert features.dtype == np.float32
    assert features.shape == (len(expected), numcep * (2 * numcontext + 1))
    np.testing.assert_allclose(features, expected, atol=1e-5)


@pytest.mark.parametrize('n_samples', [400, 401, 561, 1900])  # 1, 2, 3 and 11 frames
def test_features_of_fewer_frames_than_context(tmp_path, n_samples):
    samples = speech(1, seed=2)[3000:3000 + n_samples]
    features = audio.audiofile_to_input_vector(write_wav(tmp_path / 'a.wav', samples), 4, 9)
    np.testing.assert_allclose(features, notebook_features(samples, 4, 9), atol=1e-5)


@pytest.mark.parametrize('stride', [2, 3])
def test_stride_drops_frames_before_the_context_is_cut(tmp_path, stride):
    samples = speech(0.6, seed=5)  # 59 frames
    features = audio.audiofile_to_input_vector(write_wav(tmp_path / 'a.wav', samples), 7, 2,
                                               stride=stride)
    assert features.shape == ({2: 30, 3: 20}[stride], 35)
    np.testing.assert_allclose(features, notebook_features(samples, 7, 2, stride=stride),
                               atol=1e-5)


def test_features_at_8_khz(tmp_path):
    samples = speech(0.7, seed=1, rate=8000)
    features = audio.audiofile_to_input_vector(write_wav(tmp_path / 'a.wav', samples, 8000), 13,
                                               9, sample_rate=8000)
    assert features.shape == (69, 247)
    np.testing.assert_allclose(features, notebook_features(samples, 13, 9, 8000), atol=1e-5)


@pytest.mark.skipif(not os.path.exists(LDC93S1), reason='LDC93S1.wav may not be redistributed')
def test_features_of_ldc93s1():
    np.testing.assert_allclose(audio.audiofile_to_input_vector(LDC93S1, 26, 9),
                               np.load(SEED_FEATURES)['features_26_9'], atol=1e-5)


def test_whitening_is_that_of_the_notebooks_numbers():
    expected = np.load(SEED_FEATURES)['features_26_9']
    whitened, zero = expected[:, 9 * 26:10 * 26].astype(np.float64), expected[0, 0]
    frames = whitened - zero  # but for a factor, which whitening takes away
    features = audio.context_windows(audio.normalise(321.5 * frames, 9), 9)
    np.testing.assert_allclose(features, expected, atol=1e-5)


# Frames and steps


@pytest.mark.parametrize('n_samples, frames', [
    (0, 1), (1, 1), (399, 1), (400, 1), (401, 2), (560, 2), (561, 3), (8000, 49), (16000, 99),
    (32000, 199)])
def test_frame_count_at_16_khz(n_samples, frames):
    assert audio.frame_count(n_samples) == frames


@pytest.mark.parametrize('n_samples, rate, frames', [
    (8000, 8000, 99), (200, 8000, 1), (201, 8000, 2), (281, 8000, 3), (44100, 44100, 99),
    (552, 22050, 2)])  # 551.25 samples are a window of 551
def test_frame_count_at_other_rates(n_samples, rate, frames):
    assert audio.frame_count(n_samples, rate) == frames


@pytest.mark.parametrize('rate', [8000, 11025, 16000])
def test_frame_count_is_what_the_mfcc_has(rate):
    window, step = 25 * rate // 1000, 10 * rate // 1000
    for n_samples in (window + 2, window + step, window + step + 2, 7 * step + 1, rate // 2 + 13):
        frames = audio.mfcc(speech(1, rate=rate)[:n_samples], rate, 3)
        assert frames.shape == (audio.frame_count(n_samples, rate), 3)


@pytest.mark.parametrize('n_samples, stride, steps', [
    (16000, 1, 99), (16000, 2, 50), (16240, 2, 50), (16241, 2, 51), (16000, 3, 33), (400, 2, 1),
    (401, 2, 1), (561, 2, 2), (16000, 10, 10)])
def test_steps_are_every_stride_th_frame(n_samples, stride, steps):
    assert audio.n_steps(n_samples, stride=stride) == steps
    assert len(audio.mfcc(speech(1.1)[:n_samples], numcep=2, stride=stride)) == steps


def test_every_frame_counts_by_default():
    assert audio.n_steps(16000) == len(audio.mfcc(speech(1.0))) == 99


def test_stride_keeps_the_first_frame():
    samples = speech(0.4)
    np.testing.assert_array_equal(audio.mfcc(samples, numcep=5, stride=3),
                                  audio.mfcc(samples, numcep=5)[[0, 3, 6, 9, 12, 15, 18, 21, 24,
                                                                 27, 30, 33, 36]])


def test_first_coefficient_is_the_log_energy():
    samples = speech(0.3).astype(np.float64)
    quiet, loud = audio.mfcc(samples), audio.mfcc(10 * samples)
    np.testing.assert_allclose(loud[:, 0] - quiet[:, 0], np.log(100), atol=1e-6)
    np.testing.assert_allclose(loud[:, 1:], quiet[:, 1:], atol=1e-6)


@pytest.mark.parametrize('rate, window', [(22050, 551), (44100, 1103), (48000, 1200)])
def test_whole_window_counts_at_high_rates(rate, window):
    samples = np.zeros(window)
    samples[-30] = 10000
    assert audio.mfcc(samples, rate, 3)[0, 0] > 0  # log energy; that of silence is -36


# Too short


@pytest.mark.parametrize('n_samples', [0, 1, 160, 399])
def test_less_than_a_window_is_an_error(tmp_path, n_samples):
    path = write_wav(tmp_path / 'a.wav', speech(1)[:n_samples])
    assert len(audio.read_audio(path)) == n_samples
    message = reason(path, lambda path: audio.audiofile_to_input_vector(path, 26, 9))
    assert message == ('too short: %d samples at 16000 Hz, expected one window of 25 ms or more'
                       % n_samples)


def test_one_window_is_one_step(tmp_path):
    path = write_wav(tmp_path / 'a.wav', speech(1)[:400])
    assert audio.audiofile_to_input_vector(path, 26, 9).shape == (1, 494)


@pytest.mark.parametrize('rate, window', [(8000, 200), (16000, 400), (44100, 1103)])
def test_length_is_checked_at_the_rate(rate, window):
    audio.check_length(window, rate)
    with pytest.raises(audio.AudioError, match='%d samples at %d Hz' % (window - 1, rate)):
        audio.check_length(window - 1, rate)


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
        write_wav(tmp_path / 'b.wav', np.stack([samples, 0 * samples], 1)), 26, 9)
    assert duo.shape == mono.shape == (99, 494)
    assert correlation(duo, mono) > 0.99


def signal(rate, seconds=1.0):
    """The same sound at any rate, below 4 kHz: gliding harmonics and 60 steady tones."""
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
    expected = audio.audiofile_to_input_vector(
        write_wav(tmp_path / 'b.wav', signal(16000)), 26, 9)
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


@pytest.mark.parametrize('container, subtype, off', [
    ('WAV', 'PCM_24', 0.001), ('WAV', 'PCM_32', 0.001), ('WAV', 'FLOAT', 0.001),
    ('WAV', 'DOUBLE', 0.001), ('WAVEX', 'PCM_16', 0.001), ('WAVEX', 'FLOAT', 0.001),
    ('RF64', 'PCM_16', 0.001), ('FLAC', 'PCM_16', 0.001), ('WAV', 'PCM_U8', 257),
    ('NIST', 'PCM_16', 0.001)])
def test_formats_under_the_name_wav(tmp_path, container, subtype, off):
    samples, path = speech(0.5), str(tmp_path / 'a.wav')
    soundfile.write(path, samples / 32768, RATE, format=container, subtype=subtype)
    assert audio.audio_info(path) == (RATE, 1, 8000)
    np.testing.assert_allclose(audio.read_audio(path), samples, atol=off)


@pytest.mark.parametrize('name', ['a.flac', 'a.mp3', 'a', 'a.raw', 'name with space.wav',
                                  'caf\u00e9.wav'])
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


@pytest.mark.parametrize('start_s, stop_s, first, last', [
    (None, None, 0, 1000), (0.1, None, 100, 1000), (None, 0.25, 0, 250), (0.1, 0.25, 100, 250),
    (0.0, 0.0, 0, 0), (0.25, 0.1, 0, 0), (0.9, 1.4, 900, 1000), (1.2, None, 0, 0),
    (1.2, 1.4, 0, 0), (None, 5, 0, 1000)])
def test_part_of_a_file(tmp_path, monkeypatch, start_s, stop_s, first, last):
    samples = np.stack([np.arange(4000), -7 * np.arange(4000) // 2], 1)
    path = write_wav(tmp_path / 'a.wav', samples, 4000)
    at = 4  # samples a millisecond
    for block in (1 << 22, 64):
        monkeypatch.setattr(audio, 'BLOCK_SAMPLES', block)
        read = audio.read_audio(path, 4000, start_s, stop_s)
        np.testing.assert_allclose(read, samples[at * first:at * last].mean(axis=1))
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
        np.testing.assert_array_equal(audio.read_audio(path, channel=channel),
                                      channels[:, channel])
    assert '3' in reason(path, lambda path: audio.read_audio(path, channel=3))


def test_other_channels_may_be_broken(tmp_path):
    samples = np.full((500, 2), 0.25, np.float32)
    samples[7, 1] = np.nan
    path = str(tmp_path / 'a.wav')
    soundfile.write(path, samples, RATE, subtype='FLOAT')
    np.testing.assert_array_equal(audio.read_audio(path, channel=0), np.full(500, 8192))
    assert 'not finite' in reason(path, lambda path: audio.read_audio(path, channel=1))


# Damaged files


def test_text_is_not_audio(tmp_path):
    (tmp_path / 'a.wav').write_text('<html><body>' + 'not found ' * 30)
    for read in (audio.audio_info, audio.read_audio):
        assert 'not an audio file' in reason(tmp_path / 'a.wav', read)


def test_text_under_the_name_raw_is_not_audio(tmp_path):
    (tmp_path / 'a.raw').write_text('not found ' * 30)
    reason(tmp_path / 'a.raw', audio.audio_info)


def test_empty_file(tmp_path):
    (tmp_path / 'a.wav').write_bytes(b'')
    for read in (audio.audio_info, audio.read_audio):
        assert 'not an audio file' in reason(tmp_path / 'a.wav', read)


def test_missing_file(tmp_path):
    for read in (audio.audio_info, audio.read_audio):
        assert reason(tmp_path / 'a.wav', read) == 'cannot be read: No such file or directory'


def test_folder(tmp_path):
    for read in (audio.audio_info, audio.read_audio):
        assert reason(tmp_path, read) == 'not a regular file'


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


def test_cut_samples_are_those_that_are_there(tmp_path):
    path, samples = tmp_path / 'a.wav', speech(0.1)
    write_wav(path, samples)
    path.write_bytes(path.read_bytes()[:44 + 2 * 700 + 1])
    np.testing.assert_array_equal(audio.read_audio(str(path)), samples[:700])


def test_cut_flac_is_damaged(tmp_path):
    path = tmp_path / 'a.flac'
    soundfile.write(str(path), speech(1.0), RATE)
    path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])
    assert audio.audio_info(str(path)) == (RATE, 1, 16000)
    assert 'damaged audio' in reason(path)


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


# Whitening and windows


@pytest.mark.parametrize('value', [0, 1000, -32768, 32767])
@pytest.mark.parametrize('n_samples', [400, 2000, 32000])
def test_constant_audio_has_finite_features(tmp_path, value, n_samples):
    path = write_wav(tmp_path / 'a.wav', np.full(n_samples, value, np.int16))
    assert np.isfinite(audio.audiofile_to_input_vector(path, 26, 9)).all()


@pytest.mark.parametrize('steps, numcontext', [(1, 2), (3, 2), (5, 2), (6, 0), (40, 9), (7, 9)])
def test_windows_have_mean_0_and_deviation_1(steps, numcontext):
    frames = np.random.default_rng(steps).normal(-7, 5, (steps, 3))
    windows = audio.context_windows(audio.normalise(frames, numcontext), numcontext)
    assert windows.shape == (steps, 3 * (2 * numcontext + 1))
    assert windows.mean(dtype=np.float64) == pytest.approx(0, abs=1e-6)
    assert windows.std(dtype=np.float64) == pytest.approx(1, abs=1e-6)


def test_whiten_by_hand():
    # windows (0, 1), (1, 3), (3, 0) to either side: 0 1 3, 1 3 0 -> mean 8/6, of squares 20/6
    padded = audio.normalise(np.array([[1.0], [3.0]]), 1)
    mean, deviation = 8 / 6, np.sqrt(20 / 6 - (8 / 6)**2)
    assert padded.dtype == np.float32
    np.testing.assert_allclose(padded[:, 0], (np.array([0, 1, 3, 0]) - mean) / deviation,
                               rtol=1e-6)


def test_whitened_margins_are_the_zeros_around_the_frames():
    frames = np.random.default_rng(0).normal(4, 2, (5, 2))
    padded = audio.normalise(frames, 3)
    assert padded.shape == (11, 2)
    zero = padded[0, 0]
    assert zero < 0
    np.testing.assert_array_equal(padded[[0, 1, 2, 8, 9, 10]], np.full((6, 2), zero))
    np.testing.assert_allclose(np.corrcoef(padded[3:8].ravel(), frames.ravel())[0, 1], 1)


def test_whiten_leaves_its_argument_alone():
    frames = np.arange(6.0).reshape(3, 2)
    audio.normalise(frames, 1)
    np.testing.assert_array_equal(frames, np.arange(6.0).reshape(3, 2))


def test_frames_of_zeros_stay_zeros():
    np.testing.assert_array_equal(audio.normalise(np.zeros((4, 3)), 2), np.zeros((8, 3)))


def test_windows_hold_the_earliest_frame_first():
    padded = np.array([[0, 0], [1, 2], [3, 4], [5, 6], [0, 0]])
    np.testing.assert_array_equal(audio.context_windows(padded, 1), [
        [0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 0, 0]])


def test_windows_without_context_are_the_frames():
    frames = np.arange(8).reshape(4, 2)
    np.testing.assert_array_equal(audio.context_windows(frames, 0), frames)


ODD_WAVS = os.path.join(PROJECT, '..', 'shared', 'data', 'odd_wavs')


@pytest.mark.skipif(not os.path.isdir(ODD_WAVS), reason='the odd WAVs are not here')
def test_odd_wavs_are_read_whole_or_refused_with_a_reason():
    with open(os.path.join(ODD_WAVS, 'odd_wavs.tsv')) as table:
        rows = list(csv.DictReader(table, delimiter='\t', quoting=csv.QUOTE_NONE))
    read = {}
    for row in rows:
        path = os.path.join(ODD_WAVS, row['file'])
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
    assert {'nltk_timit/sa1_sphere.wav', 'derived/data_size_ffffffff.wav', 'derived/ulaw.wav',
            'lhotse/stereo.opus', 'derived/mp3_as.wav', 'derived/rf64.wav'} <= set(read)


def test_pipes_and_devices_are_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / 'pipe.wav')
    for path in (tmp_path / 'pipe.wav', '/dev/zero'):
        with pytest.raises(audio.AudioError, match='not a regular file'):
            audio.audio_info(str(path))
