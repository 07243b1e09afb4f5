"""The scripts of data/fsdd_strings: strings of digits, and folds of speakers."""

import csv
import importlib.util
import json
import os

import numpy as np
import pytest
import soundfile

from helpers import PROJECT
from util import config as settings

FOLDER = os.path.join(PROJECT, 'data', 'fsdd_strings')
SPEAKERS = ('ann', 'bob', 'cleo')
RATE = 8000  # Hz, of the recordings


def script(name):
    """The module of a script."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(FOLDER, name + '.py'))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def recordings(tmp_path):
    """A corpus of 3 speakers x 2 digits x 4 takes; each recording has a length of its own."""
    folder = tmp_path / 'fsdd' / 'recordings'
    folder.mkdir(parents=True)
    lengths = {}
    for speaker in SPEAKERS:
        for digit in (3, 7):
            for take in range(4):
                n = 800 + 16 * len(lengths)
                lengths[speaker, n] = digit
                samples = 0.5 * np.ones(n)
                soundfile.write(folder / ('%d_%s_%d.wav' % (digit, speaker, take)), samples, RATE)
    return tmp_path / 'fsdd', lengths


def rows(path):
    """The rows of a manifest."""
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


def test_each_recording_occurs_once_a_pass(recordings, tmp_path):
    corpus, _ = recordings
    out = tmp_path / 'out'
    assert script('make_strings').main([str(corpus), str(out), '--passes', '2']) == 0
    for speaker in SPEAKERS:
        once, training = rows(out / (speaker + '.csv')), rows(out / (speaker + '.train.csv'))
        assert training[: len(once)] == once
        for found, passes in ((once, 1), (training, 2)):
            words = ' '.join(row['transcript'] for row in found).split()
            assert sorted(words) == sorted(4 * passes * ['three', 'seven'])
        for row in training:
            path = out / row['wav_filename']
            assert row['wav_filename'].startswith(speaker + '/')
            assert path.stat().st_size == int(row['wav_filesize'])
            info = soundfile.info(path)
            n_words = len(row['transcript'].split())
            assert (info.samplerate, info.channels, info.subtype) == (16000, 1, 'PCM_16')
            assert 1 <= n_words <= 5


def test_silence_is_between_the_recordings():
    make_strings = script('make_strings')
    parts = [np.full(n, 0.5) for n in (1000, 1500, 700)]
    joined = make_strings.join(parts, np.random.default_rng(3))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], joined, [0]]) != 0))
    speech, silence = np.diff(edges)[::2], np.diff(edges)[1::2]
    assert speech.tolist() == [1000, 1500, 700]
    assert all(0.05 * 16000 <= n <= 0.2 * 16000 for n in silence) and len(set(silence)) == 2


def test_the_same_seed_makes_the_same_strings(recordings, tmp_path):
    corpus, _ = recordings
    make_strings = script('make_strings')
    for name, seed in (('a', '1'), ('b', '1'), ('c', '2')):
        make_strings.main([str(corpus), str(tmp_path / name), '--seed', seed])
    texts = [(tmp_path / name / 'bob.train.csv').read_text() for name in 'abc']
    assert texts[0] == texts[1] != texts[2]


def test_a_folder_without_recordings_is_named(tmp_path, capsys):
    assert script('make_strings').main([str(tmp_path), str(tmp_path / 'out')]) == 1
    assert capsys.readouterr().err == (
        'error: %s has no recordings/DIGIT_SPEAKER_TAKE.wav\n' % tmp_path
    )


def test_the_next_speaker_validates_and_the_others_train(tmp_path):
    found = script('run_folds').fold_settings('s', tmp_path, ['ann', 'bob', 'cleo', 'dan'], 'dan')
    assert (found['ds_test_files'], found['ds_dev_files']) == ('s/dan.csv', 's/ann.csv')
    assert found['ds_train_files'] == 's/bob.train.csv,s/cleo.train.csv'


def test_wrong_arguments_are_named(recordings, tmp_path, capsys):
    corpus, _ = recordings
    script('make_strings').main([str(corpus), str(tmp_path / 'out')])
    run_folds = script('run_folds')
    for arguments, words in (
        ([str(tmp_path), 'runs'], 'has manifests of 0 speakers, a fold needs 3 or more'),
        ([str(tmp_path / 'out'), 'runs', '--speakers', 'eve'], "ann, bob, cleo, got ['eve']"),
        ([str(tmp_path / 'out'), 'runs', 'epochs=3'], "got ['epochs=3']"),
    ):
        with pytest.raises(SystemExit):
            run_folds.main(arguments)
        assert words in capsys.readouterr().err


def test_the_recipe_holds_settings_and_the_word_list_the_ten_digits():
    config, _ = settings.load({'ds_config': os.path.join(FOLDER, 'config.json')})
    assert (config.importer, config.feature_norm, config.best_by) == ('csv', 'coefficient', 'wer')
    with open(os.path.join(FOLDER, 'config.json'), encoding='utf-8') as file:
        assert config.augment == ' '.join(json.load(file)['ds_augment'])
    with open(os.path.join(FOLDER, 'words.txt'), encoding='utf-8') as file:
        assert file.read().split() == list(script('make_strings').WORDS)
