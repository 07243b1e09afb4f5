"""util.importers.ljspeech: metadata.csv and its columns, the split, the fetch."""

import os

import pytest

from corpora import check_against_index, list_corpus, read_corpus, read_index, write_lines
from helpers import load_config, speech, write_wav
from util import errors, text
from util.feeding import data_sets
from util.importers import ljspeech

RATE = 22050  # Hz


def write_corpus(folder, lines):
    """Writes metadata.csv into `folder`, and a WAV of 1 s for each line."""
    for line in lines:
        write_wav(folder / 'wavs' / (line.split('|')[0] + '.wav'), speech(1.0, 1, RATE), RATE)
    write_lines(folder / 'metadata.csv', lines)


def listed(path):
    return list_corpus(ljspeech, path)


def test_the_last_column_with_text_is_the_transcript(tmp_path, fetched):
    write_corpus(
        tmp_path / 'LJSpeech-1.1',
        [
            'LJ001-0009|the 42-line "Bible" of 1455,|the forty-two line "Bible '
            'of fourteen fifty-five,',
            'LJ001-0010|Two columns',
            'LJ001-0011|Empty third.|',
            'LJ001-0012||',
        ],
    )
    train, dev, test = listed(tmp_path)
    assert [(u.name, u.transcript, u.exclusion_reason) for u in train] == [
        (
            'LJSpeech-1.1/wavs/LJ001-0009.wav',
            'the forty-two line "Bible of fourteen fifty-five,',
            None,
        ),
        ('LJSpeech-1.1/wavs/LJ001-0010.wav', 'Two columns', None),
        ('LJSpeech-1.1/wavs/LJ001-0011.wav', 'Empty third.', None),
        ('LJSpeech-1.1/wavs/LJ001-0012.wav', '', None),
    ]
    assert all(os.path.samefile(u.wav_filename, tmp_path / u.name) for u in train)
    assert dev == test == []


@pytest.mark.parametrize('name', ['LJSpeech-1.1', 'voice'])
def test_the_folder_of_metadata_does(tmp_path, fetched, name):
    write_corpus(tmp_path / name, ['LJ001-0001|well|well'])
    (utterance,) = listed(tmp_path / name).train
    assert utterance.name == 'wavs/LJ001-0001.wav' and os.path.isfile(utterance.wav_filename)


def test_what_is_not_there_is_fetched_to_where_it_is_looked_for(tmp_path, fetched):
    for path in (tmp_path, tmp_path / 'LJSpeech-1.1'):
        with pytest.raises(errors.DataError, match='no network'):
            listed(path)
    assert [asked[:2] for asked in fetched] == 2 * [
        (str(tmp_path), os.path.join('LJSpeech-1.1', 'metadata.csv'))
    ]
    assert fetched[0][2][0].url == 'https://data.keithito.com/data/speech/LJSpeech-1.1.tar.bz2'


def test_bad_lines_are_named_and_the_rest_used(tmp_path, fetched):
    write_corpus(tmp_path, ['LJ001-0001|good|good'])
    with open(tmp_path / 'metadata.csv', 'a') as file:
        file.write('LJ001-0002\nLJ001-0003|a|b|c\n|text|text\nLJ001-0005|no file|no file\n')
    sets = data_sets.make_data_sets(load_config(), text.Alphabet(), listed(tmp_path))
    assert [e.transcript for e in sets.train.examples] == ['good']
    reasons = [(u.name, u.exclusion_reason) for u in listed(tmp_path).train if u.exclusion_reason]
    expected = 'of metadata.csv must be utterance|text or utterance|text|text in words, got '
    assert reasons == [
        ('wavs/LJ001-0002.wav', "line 2 %s'LJ001-0002'" % expected),
        ('wavs/LJ001-0003.wav', "line 3 %s'LJ001-0003|a|b|c'" % expected),
        ('wavs/.wav', "line 4 %s'|text|text'" % expected),
    ]


def test_lines_are_split_by_position(tmp_path, fetched):
    names = ['LJ001-%04d' % number for number in range(1, 43)]
    write_lines(tmp_path / 'metadata.csv', ['%s|a|a' % name for name in names])
    train, dev, test = [[u.name[5:-4] for u in part] for part in listed(tmp_path)]
    assert test == ['LJ001-0020', 'LJ001-0040']
    assert dev == ['LJ001-0021', 'LJ001-0042']  # the 20th and the 40th of the others
    assert train == [name for name in names if name not in dev + test]


def test_real_speech_agrees_with_its_index(tmp_path, shared_data, fetched):
    name = 'ljspeech_sample'
    sets = read_corpus(ljspeech, shared_data(name), cache_dir=tmp_path / 'cache')
    assert [len(data_set) for data_set in sets] == [5, 0, 0]
    check_against_index(sets, read_index(shared_data, name, name))


def test_a_path_that_leads_out_of_the_corpus_is_excluded(tmp_path, fetched):
    write_corpus(tmp_path, ['../../secret|one', '/etc/passwd|two', 'LJ001-0001|three'])
    found = listed(tmp_path)
    reasons = [each.exclusion_reason for part in found for each in part]
    assert [bool(reason) and 'leads out of the corpus' in reason for reason in reasons] == [
        True,
        True,
        False,
    ]
