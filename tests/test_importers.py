"""Importers: manifests as people write them, the digits corpus, LDC93S1 with and without files."""
import http.client
import io
import logging
import os
import urllib.error
import urllib.request

import numpy as np
import pytest

from conftest import PROJECT, load_config, speech, write_manifest, write_wav
from util import feeding, text
from util.importers import csv as csv_importer, digits, ldc93s1

HEADER = 'wav_filename,wav_filesize,transcript'
ROWS = ['wav/a.wav,10,well then', 'wav/b.wav,20,"yes, indeed"', 'wav/c.wav,30,caf\u00e9']
EXPECTED = [('wav/a.wav', 'well then'), ('wav/b.wav', 'yes, indeed'), ('wav/c.wav', 'caf\u00e9')]
BOM = b'\xef\xbb\xbf'


def names_and_words(utterances):
    return [(utterance.name, utterance.transcript) for utterance in utterances]


def read(folder, content):
    """Utterances of a manifest with this content."""
    path = folder / 'train.csv'
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return csv_importer.read_manifest(str(path))


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
        str(tmp_path / name) for name, _ in EXPECTED]
    assert [utterance.problem for utterance in utterances] == [None, None, None]


def test_blank_lines_within_a_manifest_are_skipped(tmp_path):
    content = '\n'.join([HEADER, '', ROWS[0], '', '', *ROWS[1:], ',,', ''])
    assert names_and_words(read(tmp_path, content)) == EXPECTED


def test_a_line_of_white_space_is_a_blank_line(tmp_path):
    assert names_and_words(read(tmp_path, '\n'.join([HEADER, *ROWS, '  \t ', '']))) == EXPECTED


def test_quoted_fields_hold_commas_quotes_and_line_ends(tmp_path):
    content = HEADER + '\n"wav/a, b.wav",0,"she said ""go"", twice"\nc.wav,0,"two\nlines"\n'
    assert names_and_words(read(tmp_path, content)) == [
        ('wav/a, b.wav', 'she said "go", twice'), ('c.wav', 'two\nlines')]


def test_a_quote_inside_an_unquoted_field_is_kept(tmp_path):
    content = HEADER + '\na.wav,0,a 6" nail\nb.wav,0,say "yes"\n'
    assert names_and_words(read(tmp_path, content)) == [('a.wav', 'a 6" nail'),
                                                        ('b.wav', 'say "yes"')]


def test_columns_are_found_by_name_and_the_size_is_not_needed(tmp_path):
    content = 'duration,transcript,wav_filename\n1.5,one,a.wav\n2.5,two,b.wav\n'
    assert names_and_words(read(tmp_path, content)) == [('a.wav', 'one'), ('b.wav', 'two')]


def test_a_row_with_too_many_fields_has_a_problem_and_the_others_have_none(tmp_path):
    content = '\n'.join([HEADER, ROWS[0], 'wav/x.wav,0,well, yes', ROWS[1]])
    utterances = read(tmp_path, content)
    assert [utterance.name for utterance in utterances] == ['wav/a.wav', 'wav/x.wav', 'wav/b.wav']
    assert [bool(utterance.problem) for utterance in utterances] == [False, True, False]
    assert 'quotes' in utterances[1].problem


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
        str(tmp_path / 'lists/../wav/a.wav'), '/data/b.wav']
    assert [utterance.name for utterance in utterances] == ['../wav/a.wav', '/data/b.wav']


def test_a_manifest_beside_the_run_gives_paths_beside_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'train.csv').write_text(HEADER + '\nwav/a.wav,0,one\n')
    assert csv_importer.read_manifest('train.csv')[0].wav_filename == 'wav/a.wav'


def test_a_manifest_with_only_a_header_is_empty(tmp_path):
    assert read(tmp_path, HEADER) == []
    assert read(tmp_path, BOM + HEADER.encode() + b'\r\n') == []


@pytest.mark.parametrize('content', (
    b'', BOM, b'wav_filename,wav_filesize\na.wav,0\n', b'a.wav,0,one two\n',
    b'wav_filename;wav_filesize;transcript\na.wav;0;one\n'))
def test_a_manifest_without_the_columns_is_refused_by_name(tmp_path, content):
    with pytest.raises(feeding.DataError) as error:
        read(tmp_path, content)
    for words in (str(tmp_path / 'train.csv'), 'wav_filename', 'transcript'):
        assert words in str(error.value)


@pytest.mark.parametrize('content', (
    (HEADER + '\na.wav,0,"never closed\nb.wav,0,two\n').encode(),
    (HEADER + '\na.wav,0,caf\u00e9\n').encode('latin-1'),
    (HEADER + '\na.wav,0,one\n').encode('utf-16')))
def test_a_manifest_that_is_not_csv_in_utf8_is_refused_by_name(tmp_path, content):
    with pytest.raises(feeding.DataError) as error:
        read(tmp_path, content)
    assert str(tmp_path / 'train.csv') in str(error.value)


def test_a_missing_manifest_and_a_folder_are_refused_by_name(tmp_path):
    for name, reason in (('gone.csv', 'No such file or directory'), ('', 'Is a directory')):
        path = str(tmp_path / name)
        with pytest.raises(feeding.DataError) as error:
            csv_importer.read_manifest(path)
        assert path in str(error.value) and reason in str(error.value)


@pytest.fixture
def two_folders(tmp_path, monkeypatch):
    """Working folder run/ with a.csv; corpus/ with a.csv, b.csv and the audio of both."""
    for i, name in enumerate(('run/1.wav', 'corpus/2.wav', 'corpus/3.wav', 'corpus/4.wav')):
        write_wav(tmp_path / name, speech(0.3, i))
    write_manifest(tmp_path / 'run/a.csv', [('1.wav', 'one')])
    write_manifest(tmp_path / 'corpus/a.csv', [('2.wav', 'two')])
    write_manifest(tmp_path / 'corpus/b.csv', [('4.wav', 'four'), ('3.wav', 'three')])
    monkeypatch.chdir(tmp_path / 'run')
    return tmp_path


def read_csv_sets(dataset_path, **values):
    """[[transcripts] of train, dev and test]."""
    sets = csv_importer.read_data_sets(dataset_path, load_config(**values), text.Alphabet())
    return [[example.transcript for example in data_set.examples] for data_set in sets]


def test_several_manifests_make_one_set_in_their_order(two_folders):
    assert read_csv_sets('../corpus', train_files='b.csv, ../corpus/a.csv', dev_files='a.csv',
                         test_files='') == [['four', 'three', 'two'], ['one'], []]


def test_manifests_are_sought_in_the_working_folder_first(two_folders):
    assert read_csv_sets('../corpus', train_files='a.csv,b.csv,')[0] == ['one', 'four', 'three']
    os.remove('a.csv')
    assert read_csv_sets('../corpus', train_files='a.csv,b.csv')[0] == ['two', 'four', 'three']


def test_a_manifest_that_is_nowhere_is_refused_by_the_name_that_was_set(two_folders):
    with pytest.raises(feeding.DataError, match='lists/gone.csv'):
        read_csv_sets('../corpus', train_files='b.csv', test_files='lists/gone.csv')


def test_bad_rows_of_a_manifest_are_excluded_by_name(two_folders, caplog):
    (two_folders / 'run/a.csv').write_text('\n'.join([
        HEADER, '1.wav,0,one', '../run/1.wav,0,two, three', '././1.wav', 'gone.wav,0,four']))
    assert read_csv_sets('.', train_files='a.csv')[0] == ['one']
    excluded = dict(message[len('excluded '):].split(': ', 1) for message in caplog.messages[:-1])
    assert set(excluded) == {'../run/1.wav', '././1.wav', 'gone.wav'}
    assert excluded['././1.wav'] == 'empty transcript'
    assert caplog.messages[-1] == '3 of 4 utterances excluded'


def test_a_row_without_a_file_name_is_excluded_and_its_manifest_is_named(two_folders, caplog):
    (two_folders / 'run/a.csv').write_text(HEADER + '\n,0,one\n1.wav,0,two\n')
    assert read_csv_sets('.', train_files='a.csv')[0] == ['two']
    assert caplog.messages[-1] == '1 of 2 utterances excluded'
    assert 'a.csv' in caplog.messages[0]


# Digits


def test_the_digits_corpus_is_read_whole_with_its_own_recipe(caplog):
    caplog.set_level(logging.INFO)
    config = load_config(importer='digits', config=os.path.join(PROJECT, 'data/digits/config.json'))
    folder = os.path.join(PROJECT, 'data', 'digits')
    sets = digits.read_data_sets(folder, config, text.Alphabet())
    for data_set, name in zip(sets, feeding.SET_NAMES):
        with open(os.path.join(folder, name + '.csv'), encoding='utf-8') as file:
            assert len(data_set) == len(file.readlines()) - 1 > 0
    assert caplog.messages == []  # nothing excluded, nothing resampled
    words = {word for data_set in sets for example in data_set.examples
             for word in example.transcript.split()}
    assert words == set('zero one two three four five six seven eight nine'.split())
    for data_set, folder in zip(sets, feeding.SET_NAMES):
        assert all(example.utterance.name.startswith(folder + '/')
                   for example in data_set.examples)


def test_a_digits_folder_without_its_manifests_is_refused_by_name(tmp_path):
    with pytest.raises(feeding.DataError) as error:
        digits.read_data_sets(str(tmp_path), load_config(), text.Alphabet())
    assert str(tmp_path / 'train.csv') in str(error.value)


# LDC93S1

SENTENCE = 'She had your dark suit in greasy wash water all year.'
CLEANED = 'she had your dark suit in greasy wash water all year'
WAV_URL, TXT_URL = (
    'https://catalog.ldc.upenn.edu/desc/addenda/LDC93S1.' + ending for ending in ('wav', 'txt'))
PAGE = '<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>\n'


@pytest.fixture
def no_network(monkeypatch):
    """Refuses every download; the list of what was asked for."""
    asked = []

    def urlopen(url, *arguments, **options):
        asked.append(url)
        raise urllib.error.URLError('network is off')

    monkeypatch.setattr(urllib.request, 'urlopen', urlopen)
    return asked


def wav_bytes(folder):
    with open(write_wav(folder / 'source' / 'x.wav', speech(0.8)), 'rb') as file:
        return file.read()


@pytest.fixture
def server(monkeypatch, tmp_path):
    """{URL: bytes, or the exception that reading the answer raises} that urlopen serves."""
    content = {WAV_URL: wav_bytes(tmp_path), TXT_URL: b'0 46797 %s \n' % SENTENCE.encode()}

    class Response(io.BytesIO):
        def read(self, *size):
            if self.error:
                raise self.error
            return super().read(*size)

    def urlopen(url, *arguments, **options):
        answer = content[url]
        response = Response(b'' if isinstance(answer, Exception) else answer)
        response.error = answer if isinstance(answer, Exception) else None
        return response

    monkeypatch.setattr(urllib.request, 'urlopen', urlopen)
    return content


def put_ldc93s1(folder, transcript='0 46797 ' + SENTENCE + '\n'):
    """LDC93S1.wav and LDC93S1.txt in `folder`."""
    write_wav(folder / 'LDC93S1.wav', speech(0.8))
    (folder / 'LDC93S1.txt').write_text(transcript)


def read_ldc93s1(folder):
    config = load_config(importer='ldc93s1', n_input=4, n_context=1)
    return ldc93s1.read_data_sets(str(folder), config, text.Alphabet())


def test_ldc93s1_uses_the_files_that_are_there(tmp_path, no_network):
    put_ldc93s1(tmp_path)
    sets = read_ldc93s1(tmp_path)
    assert no_network == []
    for data_set in sets:
        [example] = data_set.examples
        assert example.utterance.wav_filename == str(tmp_path / 'LDC93S1.wav')
        assert example.transcript == CLEANED
    assert sorted(os.listdir(tmp_path)) == ['LDC93S1.txt', 'LDC93S1.wav']


def test_ldc93s1_transcript_comes_without_its_sample_numbers(tmp_path):
    path = tmp_path / 'LDC93S1.txt'
    for content in ('0 46797 %s', '0 46797 %s\n', '\ufeff0  46797\t%s\r\n'):
        path.write_text(content % SENTENCE, encoding='utf-8')
        assert ldc93s1.read_transcript(str(path)).strip() == SENTENCE


@pytest.mark.parametrize('content', (PAGE, '', '0 46797\n', SENTENCE))
def test_ldc93s1_text_of_another_form_is_refused_by_name(tmp_path, no_network, content):
    put_ldc93s1(tmp_path, content)
    with pytest.raises(feeding.DataError) as error:
        read_ldc93s1(tmp_path)
    assert str(tmp_path / 'LDC93S1.txt') in str(error.value)


def test_ldc93s1_text_that_is_not_utf8_is_refused_by_name(tmp_path, no_network):
    put_ldc93s1(tmp_path)
    (tmp_path / 'LDC93S1.txt').write_bytes(b'0 46797 caf\xe9\n')
    with pytest.raises(feeding.DataError) as error:
        read_ldc93s1(tmp_path)
    assert str(tmp_path / 'LDC93S1.txt') in str(error.value)


def test_ldc93s1_web_page_in_the_place_of_the_audio_is_refused_by_name(tmp_path, no_network):
    put_ldc93s1(tmp_path)
    (tmp_path / 'LDC93S1.wav').write_text(PAGE)
    with pytest.raises(feeding.DataError) as error:
        read_ldc93s1(tmp_path)
    assert str(tmp_path / 'LDC93S1.wav') in str(error.value)
    assert 'not an audio file' in str(error.value)


@pytest.mark.parametrize('missing, url', (('LDC93S1.wav', WAV_URL), ('LDC93S1.txt', TXT_URL)))
def test_ldc93s1_without_network_names_the_missing_file_and_its_address(tmp_path, no_network,
                                                                        missing, url):
    put_ldc93s1(tmp_path / 'ldc')
    os.remove(tmp_path / 'ldc' / missing)
    with pytest.raises(feeding.DataError) as error:
        read_ldc93s1(tmp_path / 'ldc')
    for words in (str(tmp_path / 'ldc' / missing), url, 'network is off'):
        assert words in str(error.value)
    assert no_network == [url]
    assert missing not in os.listdir(tmp_path / 'ldc')


def test_ldc93s1_is_downloaded_beside_and_renamed(tmp_path, server, monkeypatch):
    renamed, replace = [], os.replace

    def watched(source, target):
        with open(source, 'rb') as file:
            renamed.append((os.path.basename(target), os.path.dirname(source),
                            os.path.exists(target), file.read()))
        replace(source, target)

    monkeypatch.setattr(os, 'replace', watched)
    folder = tmp_path / 'data' / 'ldc93s1'  # made where it is missing
    sets = read_ldc93s1(folder)
    assert renamed == [('LDC93S1.wav', str(folder), False, server[WAV_URL]),
                       ('LDC93S1.txt', str(folder), False, server[TXT_URL])]
    assert sorted(os.listdir(folder)) == ['LDC93S1.txt', 'LDC93S1.wav']
    assert [data_set.examples[0].transcript for data_set in sets] == 3 * [CLEANED]


def test_ldc93s1_downloads_only_what_is_missing(tmp_path, server):
    put_ldc93s1(tmp_path / 'ldc')
    os.remove(tmp_path / 'ldc/LDC93S1.txt')
    server.pop(WAV_URL)
    before = os.stat(tmp_path / 'ldc/LDC93S1.wav').st_mtime_ns
    assert [len(data_set) for data_set in read_ldc93s1(tmp_path / 'ldc')] == [1, 1, 1]
    assert os.stat(tmp_path / 'ldc/LDC93S1.wav').st_mtime_ns == before


@pytest.mark.parametrize('broken', (
    TimeoutError('timed out'), ConnectionResetError('reset by peer'),
    http.client.IncompleteRead(b'RIFF', 93000)))
def test_ldc93s1_download_that_breaks_off_is_an_error_and_leaves_no_file(tmp_path, server, broken):
    server[WAV_URL] = broken
    with pytest.raises(feeding.DataError) as error:
        read_ldc93s1(tmp_path / 'ldc')
    assert str(tmp_path / 'ldc/LDC93S1.wav') in str(error.value) and WAV_URL in str(error.value)
    assert not os.path.exists(tmp_path / 'ldc/LDC93S1.wav')


def test_ldc93s1_download_of_a_web_page_is_refused_by_name(tmp_path, server):
    server[WAV_URL] = PAGE.encode()
    with pytest.raises(feeding.DataError) as error:
        read_ldc93s1(tmp_path / 'ldc')
    assert str(tmp_path / 'ldc/LDC93S1.wav') in str(error.value)


def test_ldc93s1_at_another_rate_is_read(tmp_path, no_network):
    put_ldc93s1(tmp_path)
    write_wav(tmp_path / 'LDC93S1.wav', np.stack(2 * [speech(0.8, rate=8000)], axis=1), 8000)
    assert [len(data_set) for data_set in read_ldc93s1(tmp_path)] == [1, 1, 1]
