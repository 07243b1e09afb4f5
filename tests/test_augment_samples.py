"""util.tools.augment_samples: what a person hears and sees of augmentations."""

import re

import numpy as np
import pytest
import soundfile

from helpers import load_config, speech, write_manifest, write_wav
from util.tools import augment_samples, augment_views


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A working folder with a manifest of two utterances; the settings name it."""
    for i in range(2):
        write_wav(tmp_path / ('%d.wav' % i), speech(0.4 + 0.3 * i, seed=i))
    write_manifest(tmp_path / 'train.csv', [('0.wav', 'go'), ('1.wav', 'good day')])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('ds_importer', 'csv')
    monkeypatch.setenv('ds_train_files', 'train.csv')
    monkeypatch.setenv('ds_cache_dir', 'cache')
    return tmp_path


def read(path):
    samples, rate = soundfile.read(path, dtype='int16')
    assert rate == 16000
    return samples


def test_each_item_gives_a_file_and_all_a_picture(corpus, monkeypatch, capsys):
    pytest.importorskip('matplotlib')
    monkeypatch.setenv(
        'ds_augment', 'speed[p=0,factor=0.8] vtlp[factor=1.1] volume[dbfs=-20:-10] add'
    )
    assert augment_samples.main(['out']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        ' 1 speed: factor 0.8: 01-speed.wav',
        ' 2 vtlp: factor 1.1',
        ' 3 volume: dbfs -15 dB: 03-volume.wav',
        ' 4 add (features): stddev 1',
        'picture of all: out/spectrograms.png',
    ]
    names = sorted(path.name for path in (corpus / 'out').iterdir())
    assert names == ['01-speed.wav', '03-volume.wav', 'before.wav', 'spectrograms.png']
    before = read(corpus / 'out' / 'before.wav')
    assert np.array_equal(before, read(corpus / '0.wav'))  # the first of the training set
    assert len(read(corpus / 'out' / '01-speed.wav')) == len(before) / 0.8
    assert abs(read(corpus / 'out' / '03-volume.wav')).max() == round(32768 * 10 ** (-18.0103 / 20))
    assert (corpus / 'out' / 'spectrograms.png').read_bytes().startswith(b'\x89PNG')


def test_another_file_and_another_epoch_may_be_chosen(corpus, monkeypatch, capsys):
    monkeypatch.setattr(augment_views, 'draw', lambda *_: None)
    monkeypatch.setenv('ds_augment', 'speed')
    for epoch in ('0', '1'):
        assert augment_samples.main(['1.wav', 'out', '--epoch', epoch]) == 0
    first, second = re.findall('factor ([0-9.]+)', capsys.readouterr().out)
    assert first != second
    assert np.array_equal(read(corpus / 'out' / 'before.wav'), read(corpus / '1.wav'))


def test_without_a_setting_every_augmentation_is_shown(corpus, monkeypatch, capsys):
    views = []
    monkeypatch.setattr(augment_views, 'draw', lambda found, *_: views.extend(found))
    assert augment_samples.main(['out']) == 0
    assert len(capsys.readouterr().out.splitlines()) == 15 + 1
    assert len(views) == 15 and all(np.isfinite(view.after).all() for view in views)


def test_the_speed_is_measured(corpus, monkeypatch, capsys):
    monkeypatch.setenv('ds_augment', 'speed[p=0.5] add')
    assert augment_samples.main(['--measure']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith('2 utterances, 1.1 s, at 16000 Hz')
    assert [line.split(None, 1)[1] for line in lines[1:]] == [
        'features only',
        'speed[p=0.5]',
        'add',
        'all together, with their probabilities',
    ]
    assert all(int(line.split()[0]) > 0 for line in lines[1:])


@pytest.mark.parametrize(
    'arguments, words',
    (
        (['nowhere.wav', 'out'], ('nowhere.wav: cannot be read',)),
        (['train.csv', 'out'], ('train.csv: not an audio file',)),
        (['short.wav', 'out'], ('short.wav: too short',)),
        (['train.csv'], ('OUT_DIR: cannot write to train.csv',)),
    ),
)
def test_a_mistake_gives_one_line(corpus, capsys, arguments, words):
    write_wav(corpus / 'short.wav', [1, 2, 3])
    assert augment_samples.main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('error: ')
    for word in words:
        assert word in line


def test_the_setting_is_checked(corpus, monkeypatch, capsys):
    monkeypatch.setenv('ds_augment', 'sped')
    assert augment_samples.main(['out']) == 1
    assert capsys.readouterr().err.startswith('error: ds_augment: sped is not an augmentation')


def test_the_help_lists_all_augmentations(capsys):
    with pytest.raises(SystemExit):
        augment_samples.main(['--help'])
    out = capsys.readouterr().out
    assert 'frequency_mask[n=3,size=2]: replaces' in out and out.count('[') > 15


def test_bands_are_marked_where_their_centres_are():
    config = load_config()
    assert augment_views._band(0, config.sample_rate / 2) == -1
    assert augment_views._band(8000, 8000) == pytest.approx(26)
