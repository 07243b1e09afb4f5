"""From samples to windows of MFCC, against a plain rewrite of the notebook's loop."""

import os

import numpy as np
import pytest
import python_speech_features

from helpers import PROJECT, RATE, speech, write_wav
from util import audio

SEED_FEATURES = os.path.join(PROJECT, 'tests', 'data', 'seed_features.npz')


def notebook_features(samples, numcep, numcontext, rate=RATE, stride=1):
    """Computes what the notebook's audiofile_to_input_vector did, frame by frame."""
    frames = python_speech_features.mfcc(samples, rate, numcep=numcep)[::stride]
    rows = []
    for now in range(len(frames)):
        row = []
        for i in range(now - numcontext, now + numcontext + 1):
            row.extend(frames[i] if 0 <= i < len(frames) else [0.0] * numcep)
        rows.append(row)
    rows = np.array(rows)
    return (rows - np.mean(rows)) / np.std(rows)


# The notebook's features


@pytest.mark.parametrize(
    'seconds, numcep, numcontext',
    [(1.37, 26, 9), (0.9, 13, 4), (0.31, 5, 3), (0.5, 26, 0), (0.5, 1, 2)],
)
def test_features_are_the_notebooks(tmp_path, seconds, numcep, numcontext):
    samples = speech(seconds, seed=3)
    features = audio.audiofile_to_input_vector(
        write_wav(tmp_path / 'a.wav', samples), numcep, numcontext
    )
    expected = notebook_features(samples, numcep, numcontext)
    assert features.dtype == np.float32
    assert features.shape == (len(expected), numcep * (2 * numcontext + 1))
    np.testing.assert_allclose(features, expected, atol=1e-5)


@pytest.mark.parametrize('n_samples', [400, 401, 561, 1900])  # 1, 2, 3 and 11 frames
def test_features_of_fewer_frames_than_context(tmp_path, n_samples):
    samples = speech(1, seed=2)[3000 : 3000 + n_samples]
    features = audio.audiofile_to_input_vector(write_wav(tmp_path / 'a.wav', samples), 4, 9)
    np.testing.assert_allclose(features, notebook_features(samples, 4, 9), atol=1e-5)


@pytest.mark.parametrize('stride', [2, 3])
def test_stride_drops_frames_before_the_context_is_cut(tmp_path, stride):
    samples = speech(0.6, seed=5)  # 59 frames
    features = audio.audiofile_to_input_vector(
        write_wav(tmp_path / 'a.wav', samples), 7, 2, stride=stride
    )
    assert features.shape == ({2: 30, 3: 20}[stride], 35)
    np.testing.assert_allclose(features, notebook_features(samples, 7, 2, stride=stride), atol=1e-5)


def test_features_at_8_khz(tmp_path):
    samples = speech(0.7, seed=1, rate=8000)
    features = audio.audiofile_to_input_vector(
        write_wav(tmp_path / 'a.wav', samples, 8000), 13, 9, sample_rate=8000
    )
    assert features.shape == (69, 247)
    np.testing.assert_allclose(features, notebook_features(samples, 13, 9, 8000), atol=1e-5)


def test_features_of_ldc93s1(shared_data):
    path = shared_data('ldc93s1', 'LDC93S1.wav')
    np.testing.assert_allclose(
        audio.audiofile_to_input_vector(str(path), 26, 9),
        np.load(SEED_FEATURES)['features_26_9'],
        atol=1e-5,
    )


def test_normalisation_is_that_of_the_notebooks_numbers():
    expected = np.load(SEED_FEATURES)['features_26_9']
    normalised, zero = expected[:, 9 * 26 : 10 * 26].astype(np.float64), expected[0, 0]
    frames = normalised - zero  # but for a factor, which the normalisation takes away
    features = audio.context_windows(audio.normalise(321.5 * frames, 9), 9)
    np.testing.assert_allclose(features, expected, atol=1e-5)


# Frames and steps


@pytest.mark.parametrize(
    'n_samples, frames',
    [
        (0, 1),
        (1, 1),
        (399, 1),
        (400, 1),
        (401, 2),
        (560, 2),
        (561, 3),
        (8000, 49),
        (16000, 99),
        (32000, 199),
    ],
)
def test_frame_count_at_16_khz(n_samples, frames):
    assert audio.frame_count(n_samples) == frames


@pytest.mark.parametrize(
    'n_samples, rate, frames',
    [
        (8000, 8000, 99),
        (200, 8000, 1),
        (201, 8000, 2),
        (281, 8000, 3),
        (44100, 44100, 99),
        (552, 22050, 2),
    ],
)  # 551.25 samples are a window of 551
def test_frame_count_at_other_rates(n_samples, rate, frames):
    assert audio.frame_count(n_samples, rate) == frames


@pytest.mark.parametrize('rate', [8000, 11025, 16000])
def test_frame_count_is_what_the_mfcc_has(rate):
    window, step = 25 * rate // 1000, 10 * rate // 1000
    for n_samples in (window + 2, window + step, window + step + 2, 7 * step + 1, rate // 2 + 13):
        frames = audio.mfcc(speech(1, rate=rate)[:n_samples], rate, 3)
        assert frames.shape == (audio.frame_count(n_samples, rate), 3)


@pytest.mark.parametrize(
    'n_samples, stride, steps',
    [
        (16000, 1, 99),
        (16000, 2, 50),
        (16240, 2, 50),
        (16241, 2, 51),
        (16000, 3, 33),
        (400, 2, 1),
        (401, 2, 1),
        (561, 2, 2),
        (16000, 10, 10),
    ],
)
def test_steps_are_every_stride_th_frame(n_samples, stride, steps):
    assert audio.n_steps(n_samples, stride=stride) == steps
    assert len(audio.mfcc(speech(1.1)[:n_samples], numcep=2, stride=stride)) == steps


def test_every_frame_counts_by_default():
    assert audio.n_steps(16000) == len(audio.mfcc(speech(1.0))) == 99


def test_stride_keeps_the_first_frame():
    samples = speech(0.4)
    np.testing.assert_array_equal(
        audio.mfcc(samples, numcep=5, stride=3),
        audio.mfcc(samples, numcep=5)[[0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36]],
    )


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


# Normalisation and windows


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


def test_normalisation_by_hand():
    # windows (0, 1), (1, 3), (3, 0) to either side: 0 1 3, 1 3 0 -> mean 8/6, of squares 20/6
    padded = audio.normalise(np.array([[1.0], [3.0]]), 1)
    mean, deviation = 8 / 6, np.sqrt(20 / 6 - (8 / 6) ** 2)
    assert padded.dtype == np.float32
    np.testing.assert_allclose(padded[:, 0], (np.array([0, 1, 3, 0]) - mean) / deviation, rtol=1e-6)


def test_normalised_margins_are_the_zeros_around_the_frames():
    frames = np.random.default_rng(0).normal(4, 2, (5, 2))
    padded = audio.normalise(frames, 3)
    assert padded.shape == (11, 2)
    zero = padded[0, 0]
    assert zero < 0
    np.testing.assert_array_equal(padded[[0, 1, 2, 8, 9, 10]], np.full((6, 2), zero))
    np.testing.assert_allclose(np.corrcoef(padded[3:8].ravel(), frames.ravel())[0, 1], 1)


def test_normalisation_leaves_its_argument_alone():
    frames = np.arange(6.0).reshape(3, 2)
    audio.normalise(frames, 1)
    np.testing.assert_array_equal(frames, np.arange(6.0).reshape(3, 2))


def test_frames_of_zeros_stay_zeros():
    np.testing.assert_array_equal(audio.normalise(np.zeros((4, 3)), 2), np.zeros((8, 3)))


def test_coefficients_are_normalised_each_by_itself():
    # means 2 and 10, deviations sqrt(2/3) and 0
    padded = audio.normalise(np.array([[1, 10], [2, 10], [3, 10]], np.float32), 2, 'coefficient')
    root = np.sqrt(1.5)
    assert padded.dtype == np.float32
    np.testing.assert_allclose(padded[:, 0], [0, 0, -root, 0, root, 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(padded[:, 1], np.zeros(7))


def test_a_gain_for_each_coefficient_cancels_out():
    frames = np.random.default_rng(6).normal(4, 2, (11, 3))
    expected = audio.normalise(frames, 1, 'coefficient')
    other = audio.normalise(frames * [2, 30, 5] + [7, -100, 0.1], 1, 'coefficient')
    np.testing.assert_allclose(other, expected, atol=1e-5)
    np.testing.assert_allclose(expected[1:-1].std(axis=0), 1, rtol=1e-6)


def test_a_constant_coefficient_is_0_however_it_rounds():
    frames = np.full((13, 2), np.float32(-36.04365), np.float32)
    assert not audio.normalise(frames, 1, 'coefficient').any()


def test_low_energies_are_raised_to_the_limit():
    # 20 dB are a factor of 100: ln 100 = 4.605 below the largest, 7
    energies = np.array([[7, 2.3], [2.4, -36]], np.float32)
    limited = audio.limit_range(energies, 20)
    assert limited.dtype == np.float32
    np.testing.assert_allclose(limited, [[7, 2.39483], [2.4, 2.39483]], rtol=1e-6)
    assert audio.limit_range(energies, 0) is energies


def test_digital_silence_is_as_low_as_quiet_noise_within_the_dynamic_range():
    rng = np.random.default_rng(7)
    speech = 3000 * rng.standard_normal(4000)
    silence, noise = np.zeros(3000), 0.3 * rng.standard_normal(3000)
    silent, noisy = [
        audio.mfcc(np.concatenate([speech, tail]), 16000, 13, dynamic_range=50)
        for tail in (silence, noise)
    ]
    np.testing.assert_allclose(silent[-10:], noisy[-10:], atol=1e-9)
    assert np.ptp(silent[-10:, 0]) == 0 and (silent[:20, 0] > silent[-1, 0] + 10).all()


def test_windows_hold_the_earliest_frame_first():
    padded = np.array([[0, 0], [1, 2], [3, 4], [5, 6], [0, 0]])
    np.testing.assert_array_equal(
        audio.context_windows(padded, 1),
        [[0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 0, 0]],
    )


def test_windows_without_context_are_the_frames():
    frames = np.arange(8).reshape(4, 2)
    np.testing.assert_array_equal(audio.context_windows(frames, 0), frames)


# Warped filters


def test_warped_filters_of_the_factor_1_give_the_plain_features_bit_for_bit():
    samples = speech(0.7).astype(float)
    plain = audio.mfcc(samples, 16000, 26, 2)
    assert np.array_equal(audio.cepstra(*audio.log_mel(samples, 16000, 2, 1.0), 26), plain)
    assert np.array_equal(audio.cepstra(*audio.log_mel(samples, 16000, 2, 1.004), 26), plain)


@pytest.mark.parametrize('rate, boundary', ((8000, 3200), (16000, 4800)))
@pytest.mark.parametrize('factor', (0.8, 0.93, 1.2))
def test_frequencies_are_warped_by_the_factor_up_to_the_boundary(rate, boundary, factor):
    last = boundary * min(factor, 1) / factor  # Jaitly and Hinton's boundary
    low = np.linspace(0, last, 7)
    np.testing.assert_allclose(audio.warped(low, factor, rate), factor * low)
    high = audio.warped(np.linspace(last, rate / 2, 9), factor, rate)
    np.testing.assert_allclose(np.diff(high, 2), 0, atol=1e-9)  # a straight line
    assert high[0] == pytest.approx(factor * last) and high[-1] == rate / 2


def test_a_tone_moves_to_the_filter_whose_warped_centre_it_meets():
    t = np.arange(16000) / 16000
    centers = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 28) / 2595) - 1)
    for factor in (0.85, 1.0, 1.15):
        for index in (8, 14):
            tone = 8000 * np.sin(2 * np.pi * factor * centers[index + 1] * t)
            energies, _ = audio.log_mel(tone, 16000, 1, factor)
            assert set(energies[2:-2].argmax(axis=1)) == {index}


@pytest.mark.parametrize('rate', (8000, 16000, 44100))
def test_single_precision_gives_nearly_the_same(rate):
    samples = speech(0.5, rate=rate)
    single = audio.log_mel(samples.astype(np.float32), rate, 1, 0.9)
    assert single[0].dtype == single[1].dtype == np.float32
    assert audio.cepstra(*single, 13).dtype == np.float32
    for one, other in zip(single, audio.log_mel(samples.astype(float), rate, 1, 0.9)):
        np.testing.assert_allclose(one, other, atol=1e-3)
