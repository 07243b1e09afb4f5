"""util.importers.csv: manifests as people write them, comma-separated and of JSON lines."""

import json
import os
import sys

import pytest

from corpora import list_corpus, read_corpus
from helpers import speech, write_manifest, write_wav
from util import errors, records
from util.corpora import manifests
from util.importers import csv as csv_importer

HEADER = 'wav_filename,wav_filesize,transcript'
ROWS = ['wav/a.wav,10,well then', 'wav/b.wav,20,"yes, indeed"', 'wav/c.wav,30,caf\u00e9']
EXPECTED = [('wav/a.wav', 'well then'), ('wav/b.wav', 'yes, indeed'), ('wav/c.wav', 'caf\u00e9')]
BOM = b'\xef\xbb\xbf'


def names_and_words(utterances):
    return [(utterance.name, utterance.transcript) for utterance in utterances]


def read(folder, content):
    """Returns the utterances of a manifest with this content."""
    path = folder / 'train.csv'
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return manifests.read_manifest(str(path))


# Manifests


@pytest.mark.parametrize('line_end', ('\n', '\r\n'))
@pytest.mark.parametrize('bom', (b'', BOM))
@pytest.mark.parametrize('last', ('', 'end', 'blank lines'))
def test_byte_order_mark_line_ends_and_last_line_make_no_difference(tmp_path, line_end, bom, last):
    content = bom + line_end.join([HEADER, *ROWS]).encode()
    content += {'': 0, 'end': 1, 'blank lines': 3}[last] * line_end.encode()
    utterances = read(tmp_path, content)
    assert names_and_words(utterances) == EXPECTED
    assert [utterance.wav_filename for utterance in utterances] == [
        str(tmp_path / name) for name, _ in EXPECTED
    ]
    assert [utterance.exclusion_reason for utterance in utterances] == [None, None, None]


def test_blank_lines_within_a_manifest_are_skipped(tmp_path):
    content = '\n'.join([HEADER, '', ROWS[0], '', '', *ROWS[1:], ',,', ''])
    assert names_and_words(read(tmp_path, content)) == EXPECTED


def test_a_line_of_white_space_is_a_blank_line(tmp_path):
    assert names_and_words(read(tmp_path, '\n'.join([HEADER, *ROWS, '  \t ', '']))) == EXPECTED


def test_quoted_fields_hold_commas_quotes_and_line_ends(tmp_path):
    content = HEADER + '\n"wav/a, b.wav",0,"she said ""go"", twice"\nc.wav,0,"two\nlines"\n'
    assert names_and_words(read(tmp_path, content)) == [
        ('wav/a, b.wav', 'she said "go", twice'),
        ('c.wav', 'two\nlines'),
    ]


def test_a_quote_inside_an_unquoted_field_is_kept(tmp_path):
    content = HEADER + '\na.wav,0,a 6" nail\nb.wav,0,say "yes"\n'
    assert names_and_words(read(tmp_path, content)) == [
        ('a.wav', 'a 6" nail'),
        ('b.wav', 'say "yes"'),
    ]


def test_columns_are_found_by_name_and_the_size_is_not_needed(tmp_path):
    content = 'duration,transcript,wav_filename\n1.5,one,a.wav\n2.5,two,b.wav\n'
    assert names_and_words(read(tmp_path, content)) == [('a.wav', 'one'), ('b.wav', 'two')]


def test_a_row_with_too_many_fields_is_excluded_and_the_others_are_not(tmp_path):
    content = '\n'.join([HEADER, ROWS[0], 'wav/x.wav,0,well, yes', ROWS[1]])
    utterances = read(tmp_path, content)
    assert [utterance.name for utterance in utterances] == ['wav/a.wav', 'wav/x.wav', 'wav/b.wav']
    assert [bool(utterance.exclusion_reason) for utterance in utterances] == [False, True, False]
    assert 'quotes' in utterances[1].exclusion_reason


@pytest.mark.parametrize('row', ('a.wav', 'a.wav,0', 'a.wav,0,', 'a.wav,0,""'))
def test_a_row_without_a_transcript_has_an_empty_one(tmp_path, row):
    assert names_and_words(read(tmp_path, HEADER + '\n' + row + '\n')) == [('a.wav', '')]


def test_white_space_around_a_file_name_is_dropped(tmp_path):
    [utterance] = read(tmp_path, HEADER + '\n wav/a.wav ,0,one\n')
    assert (utterance.name, utterance.wav_filename) == ('wav/a.wav', str(tmp_path / 'wav/a.wav'))


def test_paths_are_relative_to_the_manifest_unless_they_are_absolute(tmp_path):
    (tmp_path / 'lists').mkdir()
    content = '%s\n../wav/a.wav,0,one\n/data/b.wav,0,two\n' % HEADER
    utterances = read(tmp_path / 'lists', content)
    assert [utterance.wav_filename for utterance in utterances] == [
        str(tmp_path / 'lists/../wav/a.wav'),
        '/data/b.wav',
    ]
    assert [utterance.name for utterance in utterances] == ['../wav/a.wav', '/data/b.wav']


def test_a_manifest_beside_the_run_gives_paths_beside_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'train.csv').write_text(HEADER + '\nwav/a.wav,0,one\n')
    assert manifests.read_manifest('train.csv')[0].wav_filename == 'wav/a.wav'


def test_a_manifest_with_only_a_header_is_empty(tmp_path):
    assert read(tmp_path, HEADER) == []
    assert read(tmp_path, BOM + HEADER.encode() + b'\r\n') == []


@pytest.mark.parametrize(
    'content',
    (
        b'',
        BOM,
        b'wav_filename,wav_filesize\na.wav,0\n',
        b'a.wav,0,one two\n',
        b'wav_filename;wav_filesize;transcript\na.wav;0;one\n',
    ),
)
def test_a_manifest_without_the_columns_is_refused_by_name(tmp_path, content):
    with pytest.raises(errors.DataError) as error:
        read(tmp_path, content)
    for words in (str(tmp_path / 'train.csv'), 'wav_filename', 'transcript'):
        assert words in str(error.value)


@pytest.mark.parametrize(
    'content',
    (
        (HEADER + '\na.wav,0,"never closed\nb.wav,0,two\n').encode(),
        (HEADER + '\na.wav,0,caf\u00e9\n').encode('latin-1'),
        (HEADER + '\na.wav,0,one\n').encode('utf-16'),
    ),
)
def test_a_manifest_that_is_not_csv_in_utf8_is_refused_by_name(tmp_path, content):
    with pytest.raises(errors.DataError) as error:
        read(tmp_path, content)
    assert str(tmp_path / 'train.csv') in str(error.value)


def test_a_missing_manifest_and_a_folder_are_refused_by_name(tmp_path):
    for name, reason in (('gone.csv', 'No such file or directory'), ('', 'Is a directory')):
        path = str(tmp_path / name)
        with pytest.raises(errors.DataError) as error:
            manifests.read_manifest(path)
        assert path in str(error.value) and reason in str(error.value)


@pytest.fixture
def two_folders(tmp_path, monkeypatch):
    """The folder that holds run/, where the test works, with a.csv, and corpus/ with a.csv and
    b.csv; with the audio of all."""
    for i, name in enumerate(('run/1.wav', 'corpus/2.wav', 'corpus/3.wav', 'corpus/4.wav')):
        write_wav(tmp_path / name, speech(0.3, i))
    write_manifest(tmp_path / 'run/a.csv', [('1.wav', 'one')])
    write_manifest(tmp_path / 'corpus/a.csv', [('2.wav', 'two')])
    write_manifest(tmp_path / 'corpus/b.csv', [('4.wav', 'four'), ('3.wav', 'three')])
    monkeypatch.chdir(tmp_path / 'run')
    return tmp_path


def read_csv_sets(dataset_path, **values):
    """Returns [[transcripts] of train, dev and test]."""
    sets = read_corpus(csv_importer, dataset_path, **values)
    return [[example.transcript for example in data_set.examples] for data_set in sets]


def test_several_manifests_make_one_set_in_their_order(two_folders):
    assert read_csv_sets(
        '../corpus', train_files='b.csv, ../corpus/a.csv', dev_files='a.csv', test_files=''
    ) == [['four', 'three', 'two'], ['one'], []]


def test_manifests_are_sought_in_the_working_folder_first(two_folders):
    assert read_csv_sets('../corpus', train_files='a.csv,b.csv,')[0] == ['one', 'four', 'three']
    os.remove('a.csv')
    assert read_csv_sets('../corpus', train_files='a.csv,b.csv')[0] == ['two', 'four', 'three']


def test_a_manifest_that_is_nowhere_is_refused_by_the_name_that_was_set(two_folders):
    with pytest.raises(errors.DataError, match='lists/gone.csv'):
        read_csv_sets('../corpus', train_files='b.csv', test_files='lists/gone.csv')


def test_bad_rows_of_a_manifest_are_excluded_by_name(two_folders, caplog):
    (two_folders / 'run/a.csv').write_text(
        '\n'.join(
            [HEADER, '1.wav,0,one', '../run/1.wav,0,two, three', '././1.wav', 'gone.wav,0,four']
        )
    )
    assert read_csv_sets('.', train_files='a.csv')[0] == ['one']
    excluded = dict(message[len('excluded ') :].split(': ', 1) for message in caplog.messages[:-1])
    assert set(excluded) == {'../run/1.wav', '././1.wav', 'gone.wav'}
    assert excluded['././1.wav'] == 'empty transcript'
    assert caplog.messages[-1] == '3 of 4 utterances excluded'


def test_a_row_without_a_file_name_is_excluded_and_its_manifest_is_named(two_folders, caplog):
    (two_folders / 'run/a.csv').write_text(HEADER + '\n,0,one\n1.wav,0,two\n')
    assert read_csv_sets('.', train_files='a.csv')[0] == ['two']
    assert caplog.messages[-1] == '1 of 2 utterances excluded'
    assert 'a.csv' in caplog.messages[0]


# Manifests of JSON lines


def read_json(folder, content, name='train.jsonl'):
    """Returns the utterances of a JSON-lines manifest with these lines, objects or text."""
    path = folder / name
    lines = [line if isinstance(line, str) else json.dumps(line) for line in content]
    path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return manifests.read_manifest(str(path))


def row(name='a.wav', words='one', **fields):
    """Returns the object of a line."""
    return dict(audio_filepath=name, text=words, **fields)


@pytest.mark.parametrize('name', ('train.jsonl', 'train.json', 'TRAIN.JSON'))
def test_json_lines_are_read_by_the_manifest_s_ending(tmp_path, name):
    utterances = read_json(
        tmp_path,
        [row('wav/a.wav', 'well then', duration=1.5, lang='en'), row(' /data/b.wav', 'caf\u00e9')],
        name,
    )
    assert utterances == [
        records.Utterance(str(tmp_path / 'wav/a.wav'), 'wav/a.wav', 'well then'),
        records.Utterance('/data/b.wav', '/data/b.wav', 'caf\u00e9'),
    ]


def test_json_lines_in_raw_utf8_with_bom_crlf_and_blank_lines(tmp_path):
    lines = [
        '',
        '{"audio_filepath": "a.wav", "text": "caf\u00e9 \u2028 one"}',
        ' ',
        '{"text": "two", "audio_filepath": "b.wav"}',
        '',
    ]
    (tmp_path / 'm.json').write_bytes(BOM + '\r\n'.join(lines).encode())
    assert names_and_words(manifests.read_manifest(str(tmp_path / 'm.json'))) == [
        ('a.wav', 'caf\u00e9 \u2028 one'),
        ('b.wav', 'two'),
    ]


@pytest.mark.parametrize(
    'fields, start_s, stop_s, part',
    (
        (dict(duration=2), None, None, ''),
        (dict(duration=2, offset=None), None, None, ''),
        (dict(duration=2.25, offset=12.3), 12.3, 14.55, '#12.30-14.55'),
        (dict(duration=2, offset=0), 0, 2, '#0.00-2.00'),
        (dict(offset=1.5), 1.5, None, '#1.50-'),
        (dict(offset=1.5, duration=None), 1.5, None, '#1.50-'),
    ),
)
def test_an_offset_makes_an_utterance_a_part_of_its_file(tmp_path, fields, start_s, stop_s, part):
    [utterance] = read_json(tmp_path, [row('a.wav', 'one', **fields)])
    assert utterance.name == 'a.wav' + part
    assert utterance.wav_filename == str(tmp_path / 'a.wav') and utterance.channel is None
    assert (utterance.start_s, utterance.stop_s) == pytest.approx((start_s, stop_s))


@pytest.mark.parametrize(
    'line, reason',
    (
        ('{"audio_filepath": "b.wav", "text": "two"', 'not JSON'),
        ('[' * 100000, 'not JSON'),
        ('b.wav,10,two', 'not JSON'),
        ('["b.wav", "two"]', 'expected a JSON object'),
        ('null', 'expected a JSON object'),
        (dict(text='two'), 'audio_filepath must be the path of a file, got None'),
        (row(''), "audio_filepath must be the path of a file, got ''"),
        (row(['b.wav']), 'audio_filepath must be'),
        (row('b\0.wav'), 'audio_filepath must be'),
        (row('b\ud800.wav'), 'audio_filepath must be'),
        (dict(audio_filepath='b.wav'), 'text must be the transcript of b.wav, got None'),
        (row('b.wav', 2), 'text must be the transcript of b.wav, got 2'),
        (row(offset=-1), 'offset must be a number of seconds, got -1'),
        (row(offset='1'), 'offset must be a number'),
        (row(offset=True), 'offset must be a number'),
        (row(offset=0, duration=float('nan')), 'duration must be a number'),
        (row(offset=10**400), 'offset must be a number'),
    ),
)
def test_a_json_line_that_cannot_be_used_is_named_and_the_others_stay(tmp_path, line, reason):
    utterances = read_json(tmp_path, [row(), '', line, row('c.wav', 'three')])
    assert [utterance.name for utterance in utterances] == [
        'a.wav',
        '%s line 3' % (tmp_path / 'train.jsonl'),
        'c.wav',
    ]
    assert [bool(utterance.exclusion_reason) for utterance in utterances] == [False, True, False]
    assert reason in utterances[1].exclusion_reason and '\n' not in utterances[1].exclusion_reason


def test_a_json_manifest_without_a_usable_line_is_refused_by_file_and_line(tmp_path):
    path = tmp_path / 'm.json'
    for content in (json.dumps([row()], indent=4), HEADER + '\na,0,b\n'):
        path.write_text('\n' + content)
        with pytest.raises(errors.DataError, match='%s.* line 2: not JSON' % path):
            manifests.read_manifest(str(path))


def test_a_json_manifest_that_is_missing_or_in_another_encoding_is_refused(tmp_path):
    (tmp_path / 'latin.json').write_bytes('{"text": "caf\u00e9"}'.encode('latin-1'))
    for name in ('latin.json', 'missing.jsonl'):
        with pytest.raises(errors.DataError, match=name):
            manifests.read_manifest(str(tmp_path / name))


def test_an_empty_json_manifest_is_empty(tmp_path):
    assert read_json(tmp_path, ['']) == []


def test_both_kinds_of_manifest_make_the_sets_together(tmp_path):
    write_wav(tmp_path / 'long.wav', speech(3))
    write_manifest(tmp_path / 'a.csv', [('long.wav', 'all of it')])
    read_json(
        tmp_path,
        [
            row('long.wav', 'some', offset=0.5, duration=1.25),
            row('long.wav', 'rest', offset=2, duration=9),
        ],
        'b.json',
    )
    sets = read_corpus(csv_importer, tmp_path, train_files='a.csv,b.json')
    assert [(example.utterance.name, example.seconds) for example in sets.train.examples] == [
        ('long.wav', 3),
        ('long.wav#0.50-1.75', 1.25),
        ('long.wav#2.00-11.00', 1),
    ]


@pytest.mark.skipif(sys.version_info < (3, 11), reason='the csv module refuses the whole file')
def test_a_file_name_with_nul_in_a_csv_manifest_excludes_its_row_only(tmp_path):
    utterances = read(tmp_path, HEADER + '\nb.wav,0,two\na\0.wav,0,one\n')
    assert [bool(utterance.exclusion_reason) for utterance in utterances] == [False, True]
    assert utterances[1].name == '%s line 3' % (tmp_path / 'train.csv')


@pytest.mark.parametrize('length', [131_073, 1_048_570, 3_000_000])
def test_a_row_with_a_huge_field_is_excluded_and_the_others_are_not(tmp_path, length):
    content = HEADER + '\n\na.wav,0,one\nb.wav,0,%s\nc.wav,0,three\n' % ('x' * length)
    first, huge, last = read(tmp_path, content)
    assert (first.transcript, last.transcript) == ('one', 'three')
    assert huge.name == '%s line 4' % (tmp_path / 'train.csv')
    assert huge.exclusion_reason == 'a field of more than 131072 characters'


def test_a_huge_field_over_several_lines_is_a_quote_that_is_not_closed(tmp_path):
    with pytest.raises(errors.DataError, match='line .* is not CSV in UTF-8: field larger than'):
        read(tmp_path, HEADER + '\na.wav,0,"one\n' + 'b.wav,0,two\n' * 20_000)


def test_a_row_with_a_million_fields_is_excluded(tmp_path):
    content = HEADER + '\na.wav,0,one%s\nb.wav,0,two\n' % (',x' * 1_000_000)
    many, other = read(tmp_path, content)
    assert 'more fields than columns' in many.exclusion_reason and other.transcript == 'two'


def test_a_million_columns_are_not_all_shown(tmp_path):
    with pytest.raises(errors.DataError) as error:
        read(tmp_path, 'column,' * 100_000 + '\na.wav\n')
    assert len(str(error.value)) < 500


def test_json_lines_that_are_huge_or_deep_are_excluded(tmp_path):
    path = tmp_path / 'train.json'
    path.write_text(
        '%s\n%s\n%s\n'
        % (
            json.dumps(row('a.wav', 'x' * 1_100_000)),
            '[' * 100_000,
            json.dumps(row('b.wav', 'two')),
        )
    )
    long, deep, good = manifests.read_manifest(str(path))
    assert long.exclusion_reason == 'a line of more than 1048576 characters'
    assert deep.exclusion_reason.startswith('not JSON')
    assert deep.name == '%s line 2' % path and good.transcript == 'two'


def test_line_break_within_a_field_is_named(tmp_path):
    path = tmp_path / 'train.csv'
    path.write_text(
        'wav_filename, wav_filesize, transcript\na.wav,0,"never closed\nb.wav,0,x\n'
        'c.wav,0,five foot" \nd.wav,0,fine\n'.replace('foot" ', 'foot"')
    )
    swallowed, fine = manifests.read_manifest(str(path))
    assert 'a line break within a field that ends in' in swallowed.exclusion_reason
    assert 'line 4' in swallowed.exclusion_reason
    assert fine.transcript == 'fine' and fine.exclusion_reason is None


def test_pipe_as_manifest_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / 'train.csv')
    with pytest.raises(errors.DataError, match='train.csv cannot be read: not a regular file'):
        manifests.read_manifest(str(tmp_path / 'train.csv'))


def test_of_several_corpora_each_has_the_manifest_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'a').mkdir()
    write_manifest(tmp_path / 'train.csv', [('here.wav', 'x')])
    write_manifest(tmp_path / 'a' / 'train.csv', [('a.wav', 'x')])
    for folder, importer, name in (
        ('a', 'csv', 'here.wav'),
        ('a', 'csv,csv', 'a.wav'),
        ('nowhere', 'csv,csv', 'here.wav'),
    ):
        listing = list_corpus(csv_importer, folder, importer=importer, train_files='train.csv')
        assert listing.train[0].name == name
