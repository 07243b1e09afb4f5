"""util.importers.speech_commands: words, the official lists, what is left out."""

import collections
import os

import pytest

from corpora import check_against_index, list_corpus, read_corpus, read_index
from helpers import speech, write_wav
from util import errors
from util.importers import speech_commands

NAMES = [
    'bed/0c40e715_nohash_0.wav',
    'bed/0c40e715_nohash_1.wav',
    'bed/3bb68054_nohash_0.wav',
    'cat/00b01445_nohash_0.wav',
    'cat/0c40e715_nohash_0.wav',
]


@pytest.fixture
def tree(tmp_path, fetched):
    """Five utterances of two words, one of them in each list; and background noise."""
    for name in NAMES + ['_background_noise_/doing_the_dishes.wav', '.cache/bed/x_nohash_0.wav']:
        write_wav(tmp_path / name, speech(1.0, 1))
    (tmp_path / 'bed' / '._3bb68054_nohash_0.wav').write_bytes(b'\0\5\26\7')
    (tmp_path / 'README.md').write_text('Speech Commands')
    (tmp_path / 'validation_list.txt').write_text('cat/00b01445_nohash_0.wav\n')
    (tmp_path / 'testing_list.txt').write_text(
        'cat/0c40e715_nohash_0.wav\r\nbed/0c40e715_nohash_1.wav\r\n'
    )
    return tmp_path


def listed(path):
    return list_corpus(speech_commands, path)


def test_official_split_and_transcripts(tree):
    train, dev, test = listed(tree)
    assert [(u.name, u.transcript) for u in train] == [(NAMES[0], 'bed'), (NAMES[2], 'bed')]
    assert [(u.name, u.transcript) for u in dev] == [(NAMES[3], 'cat')]
    assert [(u.name, u.transcript) for u in test] == [(NAMES[4], 'cat'), (NAMES[1], 'bed')]
    for utterance in train + dev + test:
        assert utterance.exclusion_reason is None
        assert os.path.samefile(utterance.wav_filename, tree / utterance.name)


def test_a_listed_file_that_is_missing_is_named(tree):
    os.remove(tree / NAMES[1])
    test = listed(tree).test
    assert [(u.name, u.exclusion_reason) for u in test] == [
        (NAMES[4], None),
        (NAMES[1], 'no such file, but a line for it in testing_list.txt'),
    ]


@pytest.mark.parametrize('name', ['validation_list.txt', 'testing_list.txt'])
def test_without_a_list_it_stops_and_fetches_nothing(tree, fetched, name):
    os.remove(tree / name)
    with pytest.raises(errors.DataError, match='%s cannot be read: .*No such file' % name):
        listed(tree)
    assert not fetched


@pytest.mark.parametrize('name', ['', 'new'])
def test_an_empty_or_missing_folder_is_fetched(tmp_path, fetched, name):
    with pytest.raises(errors.DataError, match='no network'):
        listed(tmp_path / name)
    ((folder, marker, (archive,)),) = fetched
    assert folder == str(tmp_path / name / 'speech_commands_v0.02')
    assert marker == 'testing_list.txt'
    assert archive.url.endswith('/speech_commands_v0.02.tar.gz')


def test_the_folder_above_what_was_fetched_does(tree, fetched):
    words = tree / 'corpora' / 'speech_commands_v0.02'
    words.mkdir(parents=True)
    for name in ('bed', 'validation_list.txt', 'testing_list.txt'):
        os.rename(tree / name, words / name)
    train, dev, test = listed(tree / 'corpora')
    prefix = 'speech_commands_v0.02/'
    assert [u.name for u in train] == [prefix + NAMES[0], prefix + NAMES[2]]
    assert [u.name for u in test if not u.exclusion_reason] == [prefix + NAMES[1]]
    assert [u.name for u in dev + test if u.exclusion_reason] == [
        prefix + NAMES[3],
        prefix + NAMES[4],
    ]
    assert os.path.isfile(train[0].wav_filename)
    # it is asked for all the same, so that a fetch that was interrupted goes on
    assert fetched[0][:2] == (str(words), 'testing_list.txt')


def test_real_speech_agrees_with_its_index(tmp_path, shared_data, fetched):
    name = 'speech_commands_v0.01_sample'
    sets = read_corpus(speech_commands, shared_data(name), cache_dir=tmp_path / 'cache')
    assert [len(data_set) for data_set in sets] == [120, 35, 45]
    rows = read_index(shared_data, name, name)
    check_against_index(sets, rows)
    sets_of = collections.defaultdict(set)
    for data_set in sets:
        for example in data_set.examples:
            sets_of[rows[example.utterance.name]['speaker']].add(data_set.name)
    assert all(len(names) == 1 for names in sets_of.values())
