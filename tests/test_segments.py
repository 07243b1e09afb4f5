"""util.recognition.segments: where long recordings are cut, on synthetic audio with pauses."""

import numpy as np
import pytest

from util.recognition import segments

RATE = 16000
TOLERANCE_S = 0.03


def talk(seconds, seed=0, rate=RATE):
    """Audio without pauses: harmonics whose level falls by 12 dB and rises again six
    times a second; it is highest at whole seconds."""
    t = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * (120 + seed) * t
    harmonics = sum(np.sin(k * phase) / k for k in range(1, 16))
    return 3000 * harmonics * (1 + 0.6 * np.cos(2 * np.pi * 6 * t))


def silence(seconds, level=0.0, seed=0):
    """Digital silence, or noise of this root mean square in the range of 16-bit integers."""
    return np.random.default_rng(seed).normal(0, 1, round(seconds * RATE)) * level


def parts_of(*pieces, rate=RATE, block_s=7.0):
    """The parts of the pieces in a row, which come in blocks."""
    whole = np.concatenate(pieces)
    size = round(block_s * rate)
    blocks = (whole[start : start + size] for start in range(0, max(1, len(whole)), size))
    return list(segments.cut(blocks, rate))


def ends(part, rate=RATE):
    """(start, end) of a part in seconds."""
    return part.start_s, part.start_s + len(part.samples) / rate


def check_samples(parts, *pieces, rate=RATE):
    """Asserts that the parts hold the samples of the recording at their times."""
    whole = np.concatenate(pieces)
    for part in parts:
        first = round(part.start_s * rate)
        np.testing.assert_array_equal(part.samples, whole[first : first + len(part.samples)])


@pytest.mark.parametrize('seconds', (0, 0.001, 4, 20))
def test_up_to_20_s_are_one_part_unchanged(seconds):
    whole = np.concatenate([silence(seconds / 2), talk(seconds / 2)])
    [part] = parts_of(whole)
    np.testing.assert_array_equal(part.samples, whole)
    assert part[1:] == (0.0, 0.0, 0.0)


def test_one_sample_more_is_a_long_recording():
    pieces = [silence(10), talk(10, 1), np.zeros(1)]
    [part] = parts_of(*pieces)
    assert ends(part) == pytest.approx((9.85, 20.0), abs=TOLERANCE_S)
    check_samples([part], *pieces)


@pytest.mark.parametrize('level', (0.0, 10.0, 60.0))
def test_long_pauses_divide_and_are_left_out_but_for_a_margin(level):
    pieces, expected, now = [], [], 0.0
    for i, (speech_s, pause_s) in enumerate(((3, 0.6), (1, 1), (8, 0.5), (2, 4), (12, 0.5))):
        pieces += [talk(speech_s, i), silence(pause_s)]
        expected.append((max(0.0, now - 0.15), now + speech_s + 0.03))
        now += speech_s + pause_s
    whole = np.concatenate(pieces)
    whole += silence(len(whole) / RATE, level)
    parts = parts_of(whole)
    assert [ends(part) for part in parts] == pytest.approx(
        [pytest.approx(pair, abs=TOLERANCE_S) for pair in expected]
    )
    check_samples(parts, whole)
    assert not any(part.shared_before_s or part.shared_after_s for part in parts)


def test_the_longest_short_pause_between_5_and_20_s_is_taken():
    pauses = ((3, 0.35), (4, 0.2), (3, 0.3), (4, 0.2), (12, 0.0))  # after 3, 7.35, 10.55, 14.85 s
    pieces = [piece for s, pause in pauses for piece in (talk(s), silence(pause))]
    parts = parts_of(*pieces)
    assert ends(parts[0]) == pytest.approx((0.0, 10.60), abs=TOLERANCE_S)
    assert parts[1].start_s == pytest.approx(10.85 - 0.15, abs=TOLERANCE_S)
    check_samples(parts, *pieces)
    assert not any(part.shared_before_s for part in parts)


def test_parts_overlap_where_there_is_no_pause():
    whole = talk(60)
    parts = parts_of(whole)
    assert [ends(part) for part in parts] == [(0.0, 20.0), (18.0, 38.0), (36.0, 55.0), (53.0, 60.0)]
    assert [part.shared_before_s for part in parts] == [0.0, 2.0, 2.0, 2.0]
    assert [part.shared_after_s for part in parts] == [2.0, 2.0, 2.0, 0.0]
    check_samples(parts, whole)


@pytest.mark.parametrize('seconds', (20.01, 21, 25, 25.01, 26, 37.99, 41))
def test_no_part_without_a_pause_is_shorter_than_5_s_or_longer_than_20(seconds):
    parts = parts_of(talk(seconds))
    lengths = [len(part.samples) / RATE for part in parts]
    assert min(lengths) >= 5 and max(lengths) <= 20
    assert ends(parts[-1])[1] == pytest.approx(seconds, abs=TOLERANCE_S)
    for before, after in zip(parts, parts[1:]):
        assert ends(before)[1] - after.start_s == pytest.approx(after.shared_before_s)


def test_parts_without_speech_are_left_out():
    assert parts_of(silence(60)) == []
    assert parts_of(silence(60, 100.0)) == []
    parts = parts_of(silence(40, 20.0), talk(3) + silence(3, 20.0), silence(40, 20.0))
    [(start, end)] = [ends(part) for part in parts]
    assert (start, end) == pytest.approx((39.85, 43.03), abs=TOLERANCE_S)


def test_a_click_is_no_speech():
    click = silence(30)
    click[RATE * 12 : RATE * 12 + 200] = 20000
    assert parts_of(click, talk(2), silence(1))[0].start_s == pytest.approx(29.85, abs=TOLERANCE_S)


def test_an_offset_and_hum_do_not_hide_pauses():
    pieces = [piece for i in range(8) for piece in (talk(3, i), silence(0.5))]
    whole = np.concatenate(pieces)
    times = np.arange(len(whole)) / RATE
    whole += 3000 + 1000 * np.sin(2 * np.pi * 50 * times)
    assert [part.start_s for part in parts_of(whole)] == pytest.approx(
        [max(0.0, 3.5 * i - 0.15) for i in range(8)], abs=TOLERANCE_S
    )


@pytest.mark.parametrize('rate', (8000, 11025, 44100))
def test_other_rates(rate):
    pieces = []
    for i in range(8):
        pieces += [talk(3, i, rate), np.zeros(round(0.6 * rate))]
    parts = parts_of(*pieces, rate=rate)
    assert [part.start_s for part in parts] == pytest.approx(
        [max(0.0, 3.6 * i - 0.15) for i in range(8)], abs=TOLERANCE_S
    )
    check_samples(parts, *pieces, rate=rate)


@pytest.mark.parametrize('block_s', (0.01, 0.33, 30, 1000))
def test_the_size_of_blocks_makes_no_difference(block_s):
    pieces = [piece for i in range(5) for piece in (talk(6, i), silence(0.1 * i))]
    found = [ends(part) for part in parts_of(*pieces, block_s=block_s)]
    assert found == [ends(part) for part in parts_of(*pieces)]


def test_no_more_is_read_than_the_next_part_needs():
    read = []

    def blocks():
        for i in range(100):
            read.append(i)
            yield np.concatenate([talk(4), silence(1)])

    parts = segments.cut(blocks(), RATE)
    for i in range(20):
        assert len(read) <= i + 6  # 25 s and one block
        next(parts)
