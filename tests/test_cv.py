"""util.importers.cv: Common Voice's tables of all releases, stray quotes, what is missing."""

import os

import pytest
import soundfile

from corpora import check_against_index, list_corpus, read_corpus, read_index, write_lines
from helpers import load_config, speech
from util import errors, records, text
from util.feeding import data_sets
from util.importers import cv

COLUMNS = 'client_id\tpath\tsentence\tup_votes'
NEW_COLUMNS = 'client_id\tpath\tsentence_id\tsentence\tlocale'


def write_clip(path, rate=48000):
    """Writes an MP3 of 2 s."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, speech(2.0, 1, rate), rate, format='MP3')


def write_table(path, lines, columns=COLUMNS):
    write_lines(path, [columns, *lines])


def write_language(folder, train=('a\tt1.mp3\tone\t2',)):
    """Writes the three tables of a language, dev and test of one row; no clips."""
    write_table(folder / 'train.tsv', train)
    write_table(folder / 'dev.tsv', ['a\td1.mp3\ttwo\t2'])
    write_table(folder / 'test.tsv', ['a\te1.mp3\tthree\t2'])


def listed(path):
    return list_corpus(cv, path)


def test_quotes_are_plain_characters_in_a_tsv(tmp_path):
    sentences = [
        'well then',
        '"Stop there',
        'go on',
        'we see',
        'all day',
        'a "good deal of it',
        '"yes"',
        'well, no',
    ]
    write_language(tmp_path, ['a\tt%d.mp3\t%s\t2' % row for row in enumerate(sentences)])
    for i in range(8):
        write_clip(tmp_path / 'clips' / ('t%d.mp3' % i), 48000 if i % 2 else 32000)
    train = listed(tmp_path).train
    assert [(u.name, u.transcript) for u in train] == [
        ('clips/t%d.mp3' % i, sentence) for i, sentence in enumerate(sentences)
    ]
    sets = data_sets.make_data_sets(load_config(), text.Alphabet(), records.Listing(train, [], []))
    assert {e.utterance.name: e.transcript for e in sets.train.examples} == {
        'clips/t%d.mp3' % i: sentence
        for i, sentence in enumerate(
            [
                'well then',
                'stop there',
                'go on',
                'we see',
                'all day',
                'a good deal of it',
                'yes',
                'well no',
            ]
        )
    }


def test_the_folder_above_the_language_does(tmp_path):
    write_language(tmp_path / 'cv-corpus-17.0-2024-03-15' / 'cy')
    for path, prefix in (
        (tmp_path, 'cv-corpus-17.0-2024-03-15/cy/'),
        (tmp_path / 'cv-corpus-17.0-2024-03-15', 'cy/'),
        (tmp_path / 'cv-corpus-17.0-2024-03-15' / 'cy', ''),
    ):
        train, dev, test = listed(path)
        assert [u.name for u in train + dev + test] == [
            prefix + 'clips/' + name for name in ('t1.mp3', 'd1.mp3', 'e1.mp3')
        ]
        assert train[0].wav_filename == str(path / train[0].name)


def test_two_languages_in_a_folder_are_refused_by_name(tmp_path):
    write_language(tmp_path / 'cy')
    write_language(tmp_path / 'en')
    with pytest.raises(errors.DataError, match='several languages.*cy, .*en'):
        listed(tmp_path)


@pytest.mark.parametrize('name', ['', 'missing'])
def test_where_it_is_missing_the_message_says_where_to_get_it(tmp_path, name):
    with pytest.raises(errors.DataError, match='commonvoice.mozilla.org'):
        listed(tmp_path / name)


def test_columns_go_by_name_and_paths_may_lack_their_ending(tmp_path):
    write_language(tmp_path)
    write_table(tmp_path / 'dev.tsv', ['a\tcommon_voice_cy_1\t9f\tHelo\tcy'], NEW_COLUMNS)
    (utterance,) = listed(tmp_path).dev
    assert (utterance.name, utterance.transcript) == ('clips/common_voice_cy_1.mp3', 'Helo')


def test_bad_rows_are_named_and_the_rest_used(tmp_path):
    write_language(
        tmp_path,
        [
            'a\tt1.mp3\tone\t2',
            'a\tt2.mp3',
            'a',
            'a\tt4.mp3\tx\ty\t2',
            'a\t\tno clip\t2',
            'a\tt6.mp3\t\t2',
        ],
    )
    assert [(u.name, u.transcript, u.exclusion_reason) for u in listed(tmp_path).train] == [
        ('clips/t1.mp3', 'one', None),
        ('clips/t2.mp3', None, 'row 2 of train.tsv: expected 4 columns, got 2'),
        ('train.tsv', None, 'row 3 of train.tsv: expected 4 columns, got 1'),
        ('clips/t4.mp3', None, 'row 4 of train.tsv: expected 4 columns, got 5'),
        ('train.tsv', None, 'row 5 names no clip'),
        ('clips/t6.mp3', '', None),
    ]


def test_a_table_that_is_missing_or_has_no_columns_is_refused(tmp_path):
    write_language(tmp_path)
    os.remove(tmp_path / 'dev.tsv')
    with pytest.raises(errors.DataError, match='dev.tsv cannot be read'):
        listed(tmp_path)
    (tmp_path / 'dev.tsv').write_text('path,sentence\n')
    with pytest.raises(errors.DataError, match='dev.tsv: its first line .* path and sentence'):
        listed(tmp_path)
    (tmp_path / 'dev.tsv').write_text('')
    with pytest.raises(errors.DataError, match='dev.tsv: its first line .* path and sentence'):
        listed(tmp_path)


def test_validated_alone_is_split_by_position(tmp_path):
    write_table(tmp_path / 'validated.tsv', ['a\tv%02d.mp3\tone\t2' % i for i in range(1, 13)])
    write_table(tmp_path / 'other.tsv', ['a\to1.mp3\tone\t2'])
    for name in ('v01.mp3', 'o1.mp3', 'unknown.mp3', '._v01.mp3'):
        write_clip(tmp_path / 'clips' / name)
    train, dev, test = [[u.name[6:-4] for u in part] for part in listed(tmp_path)]
    assert test == ['v10'] and dev == ['v11']  # the 10th; the 10th of the others
    assert train == ['v%02d' % i for i in range(1, 10)] + ['v12', 'unknown']
    assert listed(tmp_path).train[-1].exclusion_reason == 'no row for it in validated.tsv'


@pytest.mark.parametrize('twice', [False, True])
def test_the_first_release(tmp_path, twice):
    names = ['cv-valid-%s' % name for name in ('train', 'dev', 'test')]
    for name in names:
        rows = [
            '%s/sample-000000.mp3,"learn, and ""teach""",1' % name,
            '%s/sample-000001.mp3' % name,
        ]
        write_table(tmp_path / (name + '.csv'), rows, 'filename,text,up_votes')
        folder = os.path.join(name, name) if twice else name
        write_clip(tmp_path / folder / 'sample-000000.mp3')
    for name, utterances in zip(names, listed(tmp_path)):
        folder = '%s/%s' % (name, name) if twice else name
        assert [(u.name, u.transcript, u.exclusion_reason) for u in utterances] == [
            (folder + '/sample-000000.mp3', 'learn, and "teach"', None),
            (
                folder + '/sample-000001.mp3',
                None,
                'row 2 of %s.csv: expected 3 columns, got 1' % name,
            ),
        ]
        assert os.path.isfile(utterances[0].wav_filename)


def test_a_csv_with_a_quote_left_open(tmp_path):
    write_table(tmp_path / 'cv-valid-train.csv', ['a.mp3,"one,1'], 'filename,text,up_votes')
    with pytest.raises(errors.DataError, match='cv-valid-train.csv is not CSV'):
        listed(tmp_path)


def test_real_speech_agrees_with_its_index(tmp_path, shared_data, caplog):
    name = 'common_voice_sample'
    sets = read_corpus(cv, shared_data(name), cache_dir=tmp_path / 'cache')
    assert [len(data_set) for data_set in sets] == [3, 0, 0]
    check_against_index(sets, read_index(shared_data, name, name))
    assert 'excluded en/clips/common_voice_en_651325.mp3: no row for it' in caplog.text


@pytest.mark.parametrize('clip', ['../../../etc/passwd', '/etc/passwd', 'a/../../b'])
def test_a_path_that_leads_out_of_the_corpus_is_excluded(tmp_path, clip):
    write_language(tmp_path, ['a\t%s\tone\t2' % clip, 'a\tt1.mp3\ttwo\t2'])
    bad, good = listed(tmp_path).train[:2]
    assert bad.exclusion_reason == 'row 1 leads out of the corpus: %r' % clip
    assert good.exclusion_reason is None
    assert not {bad.wav_filename, good.wav_filename} & {'/etc/passwd'}
