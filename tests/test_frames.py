"""util.augmentation.frames: what each augmentation does to spectrograms and MFCC."""

import numpy as np
import pytest

from augment_helpers import draws_of
from util import augment_setting as setting
from util.augmentation import frames

T, BANDS = 11, 7


def values():
    """Returns a spectrogram, float32 [11, 8], whose last column is the energy."""
    return np.random.default_rng(5).normal(3, 2, (T, BANDS + 1)).astype(np.float32)


def augmented(written, given=None, bands=BANDS, **options):
    """Applies an item that acts on frames; a step has 10 ms."""
    draws = draws_of(written, **options)
    given = values() if given is None else given
    given.setflags(write=False)
    return frames.FUNCTIONS[draws.item.name](given, draws, frames.Layout(10.0, bands))


def test_every_name_has_a_function():
    names = {
        name
        for name, kind in setting.AUGMENTATIONS.items()
        if {setting.SPECTROGRAM, setting.FEATURES} & set(kind.domains)
    }
    assert set(frames.FUNCTIONS) == names


@pytest.mark.parametrize('name', frames.FUNCTIONS)
@pytest.mark.parametrize('steps', (1, 2, T))
def test_shape_and_type_stay(name, steps):
    result = augmented(name, values()[:steps])
    assert result.shape == (steps, BANDS + 1) and result.dtype == np.float32
    assert np.isfinite(result).all()


def test_a_frequency_mask_is_the_mean_of_its_bands_and_nothing_else():
    result = augmented('frequency_mask[n=1,size=3]')
    columns = np.flatnonzero((result != values()).any(axis=0))
    assert columns.tolist() == list(range(columns[0], columns[0] + 3)) and columns[-1] < BANDS
    for column in columns:
        np.testing.assert_allclose(result[:, column], values()[:, column].mean(), rtol=1e-6)


def test_frequency_masks_reach_every_band_but_the_energy():
    masked = [
        set(
            np.flatnonzero((augmented('frequency_mask[n=1,size=2]', position=i) != values()).any(0))
        )
        for i in range(100)
    ]
    assert set.union(*masked) == set(range(BANDS)) and {len(each) for each in masked} == {2}


@pytest.mark.parametrize('size', (20, 25))
def test_a_time_mask_is_the_mean_frame_for_its_time(size):
    result = augmented('time_mask[n=1,size=%d]' % size)
    rows = np.flatnonzero((result != values()).any(axis=1))
    assert rows.tolist() == [rows[0], rows[0] + 1]  # 25 ms are two steps and a half, two are even
    np.testing.assert_allclose(result[rows], np.tile(values().mean(axis=0), (2, 1)), rtol=1e-6)


def test_masks_leave_something():
    assert (augmented('frequency_mask[n=1,size=25]') == values())[:, :BANDS].all(0).sum() == 1
    assert (augmented('time_mask[n=1,size=9999]') == values()).all(1).sum() == 1


def test_several_masks_have_their_own_places():
    found = augmented('time_mask[n=3,size=10]') != values()
    assert 1 < found.any(axis=1).sum() <= 3


def test_no_mask_and_no_noise_change_nothing():
    for written in (
        'frequency_mask[n=0]',
        'time_mask[size=0]',
        'dropout[rate=0]',
        'add[stddev=0]',
        'multiply[stddev=0]',
        'warp[wt=0,wf=0]',
        'warp[nt=0,nf=0,wt=1,wf=1]',
    ):
        assert np.array_equal(augmented(written), values()), written


def test_dropout_takes_the_mean_of_the_column():
    given = np.tile(np.arange(8, dtype=np.float32), (1000, 1))
    given[::2] += 1
    result = augmented('dropout[rate=0.25]', given)
    dropped = result != given
    assert dropped[:, :BANDS].mean() == pytest.approx(0.25, abs=0.02)
    assert not dropped[:, BANDS].any()
    np.testing.assert_allclose(result[dropped], (given * 0 + given.mean(axis=0))[dropped])


def test_added_and_multiplied_numbers_have_the_spread_that_was_asked_for():
    given = np.full((3000, BANDS + 1), 10, np.float32)
    added = augmented('add[stddev=2]', given)
    assert (added - given)[:, :BANDS].std() == pytest.approx(2, rel=0.03)
    product = augmented('multiply[stddev=0.3]', given)
    assert product[:, :BANDS].std() == pytest.approx(3, rel=0.03)
    for result in (added, product):
        assert result[:, :BANDS].mean() == pytest.approx(10, abs=0.1)
        assert (result[:, BANDS] == 10).all()  # the energy


def ramp():
    """Returns frames whose values say where they come from: 100 times the row, plus the column."""
    return (100 * np.arange(41)[:, None] + np.arange(BANDS + 1)).astype(np.float32)


def test_a_warp_in_time_moves_whole_frames_in_order_and_keeps_the_ends():
    result = augmented('warp[nt=2,wt=0.8]', ramp())
    rows = result[:, 0] / 100
    assert np.allclose(result - result[:, :1], np.arange(BANDS + 1), atol=1e-3)
    assert (np.diff(rows) >= 0).all() and rows[0] == 0 and rows[-1] == 40
    assert abs(rows - np.arange(41)).max() > 1


def test_a_warp_in_frequency_moves_bands_and_not_the_energy():
    result = augmented('warp[wt=0,nf=1,wf=0.5]', ramp())
    moved = result[:, :BANDS] - 100 * np.arange(41)[:, None]
    assert np.allclose(moved, moved[0], atol=1e-3) and (result[:, BANDS] == ramp()[:, BANDS]).all()
    assert (np.diff(moved[0]) >= 0).all()
    assert moved[0, 0] == 0 and moved[0, -1] == BANDS - 1
    assert abs(moved[0] - np.arange(BANDS)).max() > 0.1
