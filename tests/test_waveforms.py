"""util.augmentation.waveforms: what each augmentation does to samples."""

import numpy as np
import pytest

from augment_helpers import augmented, click, decibels, draws_of, frequency, loudest, tone
from helpers import speech
from util import augment_setting as setting
from util.augmentation import waveforms

NAMES = [name for name, kind in setting.AUGMENTATIONS.items() if setting.SIGNAL in kind.domains]


def item_of(name):
    """Returns an item that acts on samples, with defaults and pink noise."""
    written = setting.with_defaults(name)
    return written.replace('domain=spectrogram', 'domain=signal').replace(
        'domain=features', 'domain=signal'
    )


def voice(seconds=0.8):
    return speech(seconds, seed=2).astype(np.float32)


def test_every_name_has_a_function():
    assert set(waveforms.FUNCTIONS) == set(NAMES)


@pytest.mark.parametrize('name', NAMES)
def test_samples_stay_float32_and_what_came_in_stays_as_it_was(name):
    samples = voice()
    samples.setflags(write=False)
    result = augmented(item_of(name), samples)
    assert result.dtype == np.float32 and result.ndim == 1 and np.isfinite(result).all()
    if name not in ('speed', 'tempo'):
        assert len(result) == len(samples)


@pytest.mark.parametrize('name', NAMES)
def test_silence_and_one_window_are_no_problem(name):
    for length in (400, 1234):
        assert np.isfinite(augmented(item_of(name), np.zeros(length, np.float32))).all()


@pytest.mark.parametrize('rate', (8000, 16000))
@pytest.mark.parametrize(
    'item, length, heard',
    (
        ('speed[factor=2]', 0.5, 2000),
        ('speed[factor=0.8]', 1.25, 800),
        ('speed[factor=1.15]', 1 / 1.15, 1150),
        ('tempo[factor=2]', 0.5, 1000),
        ('tempo[factor=0.8]', 1.25, 1000),
        ('tempo[factor=1.15]', 1 / 1.15, 1000),
        ('pitch[pitch=2]', 1, 2000),
        ('pitch[pitch=0.5]', 1, 500),
        ('pitch[pitch=1.06]', 1, 1060),
    ),
)
def test_tempo_and_pitch_of_a_tone(item, length, heard, rate):
    result = augmented(item, tone(1000, 1.0, rate), rate)
    assert abs(len(result) - length * rate) <= 1
    assert frequency(result, rate) == pytest.approx(heard, abs=0.5)
    middle = result[len(result) // 4 : -len(result) // 4]
    assert abs(decibels(middle, tone(1000))) < 1.5


@pytest.mark.parametrize('item', ('speed[factor=1]', 'tempo[factor=1]', 'pitch[pitch=1]'))
def test_factor_1_changes_nothing(item):
    assert np.array_equal(augmented(item, voice()), voice())


@pytest.mark.parametrize('factor', (0.8, 0.95, 1.25))
def test_events_move_to_their_place(factor):
    result = augmented('tempo[factor=%g]' % factor, click(4000))
    assert loudest(result) == pytest.approx(4000 / factor, abs=160)
    result = augmented('speed[factor=%g]' % factor, click(4000))
    assert loudest(result) == pytest.approx(4000 / factor, abs=1)
    assert loudest(augmented('pitch[pitch=%g]' % factor, click(4000))) == pytest.approx(
        4000, abs=200
    )


@pytest.mark.parametrize('item', ('speed[factor=2]', 'tempo[factor=2]'))
@pytest.mark.parametrize('shortest', (5000, 7999, 8000, 9000))
def test_ctc_gets_the_samples_that_it_needs(item, shortest):
    result = augmented(item, voice(0.5), shortest=shortest)
    assert min(shortest, 8000) <= len(result) < min(shortest, 8000) * 1.02


def test_white_and_pink_noise_have_the_ratio_that_was_asked_for():
    samples = voice()
    for source in ('white', 'pink'):
        for snr, layers in ((20, 1), (-5, 3)):
            item = 'overlay[source=%s,snr=%g,layers=%d]' % (source, snr, layers)
            noise = augmented(item, samples) - samples
            assert decibels(samples, noise) == pytest.approx(snr, abs=0.1)


def test_silence_gets_no_noise():
    assert not augmented('overlay[source=white,snr=0]', np.zeros(500, np.float32)).any()


def test_echoes_fall_by_the_decay_after_each_delay():
    response = waveforms.echoes(20, 12, 8000)  # periods 160, 179, 216, 273, 292 samples
    assert response[0] == pytest.approx(6)
    for period in (160, 179, 216, 273, 292):
        assert response[period] == pytest.approx(10 ** (-12 / 20))
        assert response[2 * period] == pytest.approx(10 ** (-24 / 20))
    assert np.count_nonzero(response) == 1 + 5 * 5  # five echoes of 12 dB are 60 dB


def test_reverb_keeps_the_level_and_begins_with_the_sound_itself():
    result = augmented('reverb[delay=20,decay=6]', click(1000))
    assert loudest(result) == 1000 and result[1000] == pytest.approx(20000, rel=1e-4)
    assert result[1320] == pytest.approx(20000 / 6 * 10 ** (-6 / 20), rel=1e-3)
    assert abs(result[:1000]).max() < 0.1


def test_resampling_takes_away_what_is_above_half_the_rate():
    low, high = tone(1000), tone(6000)
    result = augmented('resample[rate=8000]', low + high)
    assert decibels(result - low, high) < -30
    assert np.array_equal(augmented('resample[rate=16000]', low + high), low + high)


@pytest.mark.parametrize('rate', (8000, 16000, 22050))
@pytest.mark.parametrize('bitrate', (8000, 16000, 64000))
def test_mp3_keeps_every_thing_at_its_place(rate, bitrate):
    result = augmented('codec[bitrate=%d]' % bitrate, click(3000), rate)
    assert len(result) == 8000 and loudest(result) == 3000
    assert not np.array_equal(result, click(3000))


@pytest.mark.parametrize('rate', waveforms.CODEC_RATES['opus'])
def test_opus_keeps_every_thing_at_its_place(rate):
    result = augmented('codec[format=opus,bitrate=16000]', click(3000), rate)
    assert len(result) == 8000 and abs(loudest(result) - 3000) <= 1


def test_a_lower_bitrate_loses_more():
    samples = voice(0.4)
    losses = [
        decibels(augmented('codec[bitrate=%d]' % rate, samples) - samples, samples)
        for rate in (8000, 32000, 160000)
    ]
    assert losses == sorted(losses, reverse=True) and losses[-1] < -15


def test_samples_beyond_full_scale_go_through_a_codec():
    samples = 5 * voice(0.3)
    result = augmented('codec[bitrate=64000]', samples)
    assert decibels(result, samples) == pytest.approx(0, abs=1)


def test_volume_sets_the_level_of_the_loudest_sample():
    assert abs(augmented('volume', voice())).max() == pytest.approx(32768)
    quiet = augmented('volume[dbfs=-16.9897]', voice())  # 20 dB below full scale
    np.testing.assert_allclose(quiet, voice() * (3276.8 / 12000), rtol=1e-3)


def test_time_masks_are_silent_for_their_time():
    masked = augmented('time_mask[n=1,size=50,domain=signal]', np.ones(8000, np.float32))
    assert np.flatnonzero(masked == 0).tolist() == list(
        range(int(np.argmin(masked)), int(np.argmin(masked)) + 800)
    )
    assert (masked == 1).sum() == 8000 - 800
    everything = augmented('time_mask[n=1,size=9999,domain=signal]', np.ones(500, np.float32))
    assert everything.sum() == 1  # never all


def test_random_numbers_have_the_spread_that_was_asked_for():
    ones = np.ones(20000, np.float32)
    assert augmented('dropout[rate=0.3,domain=signal]', ones).mean() == pytest.approx(0.7, abs=0.01)
    added = augmented('add[stddev=0.01,domain=signal]', ones) - ones
    assert added.std() == pytest.approx(327.68, rel=0.02) and abs(added.mean()) < 10
    product = augmented('multiply[stddev=0.2,domain=signal]', 100 * ones)
    assert product.std() == pytest.approx(20, rel=0.02)
    assert product.mean() == pytest.approx(100, rel=0.01)


def test_values_are_drawn_from_their_range_and_move_over_the_training():
    factors = [draws_of('speed[factor=1~0.2]', position=i).number('factor') for i in range(300)]
    assert 0.8 <= min(factors) < 0.82 and 1.18 < max(factors) <= 1.2
    sizes = [draws_of('frequency_mask[size=2~2]', position=i).integer('size') for i in range(300)]
    assert np.bincount(sizes).min() > 40 and set(sizes) == {0, 1, 2, 3, 4}
    moving = [
        draws_of('overlay[source=pink,snr=30:10]', share=s).number('snr') for s in (0, 0.5, 1)
    ]
    assert moving == [30, 20, 10]


def test_as_many_happen_as_the_probability_says():
    happened = [draws_of('speed[p=0.25]', position=i).happens for i in range(2000)]
    assert np.mean(happened) == pytest.approx(0.25, abs=0.03)
    assert not any(draws_of('speed[p=0]', position=i).happens for i in range(100))
    assert all(draws_of('speed[p=1]', position=i).happens for i in range(100))
