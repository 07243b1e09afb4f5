"""util.augmentation.noise: where noise comes from."""

import json
import os

import numpy as np
import pytest

from augment_helpers import augmented, decibels
from helpers import load_config, speech, write_manifest, write_wav
from util import errors, importers, text
from util.augmentation import noise, stored_samples

RATE = 8000


def noises(*sources, gb=1.0):
    return noise.Noises(list(sources), RATE, stored_samples.StoredSamples(RATE, gb))


def rng(seed=1):
    return np.random.default_rng(seed)


def constant(folder, name, value, count, rate=RATE):
    """Writes a WAV file of equal samples; returns its path."""
    return write_wav(folder / name, np.full(count, value), rate)


def test_a_file_begins_at_a_random_place(tmp_path):
    path = write_wav(tmp_path / 'ramp.wav', np.arange(10000), RATE)
    starts = set()
    for seed in range(20):
        found = noises(path).draw(path, rng(seed), 300)
        assert (np.diff(found) == 1).all() and found.dtype == np.float32
        starts.add(int(found[0]))
    assert len(starts) > 15 and max(starts) > 5000


def test_a_short_file_is_repeated(tmp_path):
    path = write_wav(tmp_path / 'short.wav', np.arange(7), RATE)
    found = noises(path).draw(path, rng(), 40)
    assert (np.diff(found) % 7 == 1).all()


def test_a_part_of_a_long_file_is_read(tmp_path):
    path = write_wav(tmp_path / 'long.wav', np.arange(70 * RATE) // 20, RATE)
    store = stored_samples.StoredSamples(RATE, 0.0)
    starts = set()
    for seed in range(5):
        found = noise.Noises([path], RATE, store).draw(path, rng(seed), 2000)
        assert len(found) == 2000 and found[-1] - found[0] == pytest.approx(100, abs=1)
        starts.add(int(found[0]))
    assert len(starts) == 5


def test_another_sample_rate_is_converted(tmp_path):
    path = write_wav(tmp_path / 'a.wav', speech(1.0, rate=16000), 16000)
    assert len(noises(path).draw(path, rng(), 7000)) == 7000


def test_all_files_of_a_folder_are_used(tmp_path):
    for value in (100, 200, 300):
        constant(tmp_path / 'noise' / str(value), 'x.wav', value, 900)
    (tmp_path / 'noise' / 'notes.txt').write_text('mine')
    source = str(tmp_path / 'noise')
    drawn = {int(noises(source).draw(source, rng(seed), 50)[0]) for seed in range(30)}
    assert drawn == {100, 200, 300}


def test_manifests_name_files_and_parts(tmp_path):
    constant(tmp_path, 'a.wav', 100, 900)
    write_wav(tmp_path / 'b.wav', np.repeat([1, 2, 3, 4], RATE), RATE)
    comma = write_manifest(tmp_path / 'a.csv', [('a.wav', '')])
    lines = tmp_path / 'b.json'
    row = {'audio_filepath': 'b.wav', 'offset': 1.0, 'duration': 2.0, 'text': 'x'}
    lines.write_text(json.dumps(row))
    assert set(noises(comma).draw(comma, rng(), 50)) == {100}
    source = str(lines)
    parts = {each for seed in range(9) for each in noises(source).draw(source, rng(seed), 4000)}
    assert parts == {2, 3}


def test_files_of_the_same_name_in_two_folders_are_two(tmp_path):
    write_manifest(tmp_path / 'a.csv', [('x.wav', '')])
    constant(tmp_path, 'x.wav', 100, 900)
    (tmp_path / 'long').mkdir()
    write_manifest(tmp_path / 'long' / 'b.csv', [('x.wav', '')])
    write_wav(tmp_path / 'long' / 'x.wav', np.full(70 * RATE, 7), RATE)
    sources = [str(tmp_path / name) for name in ('a.csv', 'long/b.csv')]
    found = noises(*sources)
    assert [set(found.draw(each, rng(), 1000)) for each in sources] == [{100}, {7}]


def test_a_file_that_cannot_be_read_is_passed_over_and_named_once(tmp_path, caplog):
    constant(tmp_path, 'good.wav', 100, 900)
    (tmp_path / 'bad.wav').write_bytes(b'RIFF nonsense')
    found = noises(str(tmp_path))
    for seed in range(10):
        assert set(found.draw(str(tmp_path), rng(seed), 50)) == {100}
    assert len(caplog.messages) == 1 and 'bad.wav is left out' in caplog.messages[0]


def test_without_a_readable_file_there_is_no_noise(tmp_path, caplog):
    path = constant(tmp_path, 'gone.wav', 100, 900)
    found = noises(path)
    os.remove(path)
    assert not found.draw(path, rng(), 50).any()
    assert len(caplog.messages) == 1


def test_noise_of_a_file_has_the_ratio_that_was_asked_for(tmp_path):
    path = write_wav(tmp_path / 'noise.wav', speech(0.5, seed=9))
    samples = speech(0.8).astype(np.float32)
    found = augmented('overlay[source=%s,snr=6,layers=2]' % path, samples) - samples
    assert decibels(samples, found) == pytest.approx(6, abs=0.1)


def test_pink_noise_falls_by_3_db_an_octave_and_white_noise_does_not():
    for name, slope in (('white', 0), ('pink', -3.01)):
        made = noise.made(name, 16000)
        power = np.abs(np.fft.rfft(made)) ** 2
        octaves = [power[(edge := len(power) // 2**i) : 2 * edge].mean() for i in range(2, 7)]
        steps = np.diff(10 * np.log10(octaves))  # to the octave below
        np.testing.assert_allclose(steps, -slope, atol=0.1)
        assert made.std() == pytest.approx(1, abs=0.01)


# Sources that cannot be used


def test_a_bad_source_gives_one_line_before_anything_is_read(tmp_path):
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'text.wav').write_text('no audio')
    (tmp_path / 'bad.csv').write_text('a,b\n1,2\n')
    gone = write_manifest(tmp_path / 'gone.csv', [('gone.wav', '')])
    for source, words in (
        ('nowhere.wav', 'No such file'),
        ('empty', 'no audio file in it'),
        ('text.wav', 'not an audio file'),
        ('bad.csv', 'must name the columns'),
        (gone, 'gone.wav: cannot be read'),
        ('nowhere.csv', 'cannot be read: No such file'),
    ):
        source = os.path.join(tmp_path, source)
        config = load_config(augment='overlay[source=%s]' % source, train_files='none.csv')
        with pytest.raises(errors.ConfigError) as raised:
            importers.read_data_sets(config, text.Alphabet())
        message = str(raised.value)
        assert message.startswith('ds_augment: overlay: source') and '\n' not in message
        assert words in message and source in message
