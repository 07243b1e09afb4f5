"""util.importers.ldc93s1: with and without its files."""

import os

import numpy as np
import pytest

from corpora import read_corpus
from helpers import speech, write_wav
from util import errors
from util.corpora import download
from util.importers import ldc93s1, timit

SENTENCE = 'She had your dark suit in greasy wash water all year.'
CLEANED = 'she had your dark suit in greasy wash water all year'
WAV_URL, TXT_URL = (
    'https://catalog.ldc.upenn.edu/desc/addenda/LDC93S1.' + ending for ending in ('wav', 'txt')
)
PAGE = '<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>\n'


@pytest.fixture
def no_network(monkeypatch):
    """The addresses that were to be downloaded; every download is refused."""
    asked = []

    def refuse(url, path):
        asked.append(url)
        raise errors.DataError('%s cannot be downloaded to %s: network is off' % (url, path))

    monkeypatch.setattr(download, 'download', refuse)
    return asked


def wav_bytes(folder):
    with open(write_wav(folder / 'source' / 'x.wav', speech(0.8)), 'rb') as file:
        return file.read()


@pytest.fixture
def server(monkeypatch, tmp_path):
    """What can be downloaded, {URL: bytes}, each once; test_download.py tests how."""
    content = {WAV_URL: wav_bytes(tmp_path), TXT_URL: b'0 46797 %s \n' % SENTENCE.encode()}

    def serve(url, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'xb') as file:
            file.write(content.pop(url))

    monkeypatch.setattr(download, 'download', serve)
    return content


def put_ldc93s1(folder, transcript='0 46797 ' + SENTENCE + '\n'):
    """Writes LDC93S1.wav and LDC93S1.txt into `folder`."""
    write_wav(folder / 'LDC93S1.wav', speech(0.8))
    (folder / 'LDC93S1.txt').write_text(transcript)


def read_ldc93s1(folder):
    return read_corpus(ldc93s1, folder, n_input=4, n_context=1)


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
        assert timit.parse_transcript(str(path)).strip() == SENTENCE


@pytest.mark.parametrize('content', (PAGE, '', '0 46797\n', SENTENCE))
def test_ldc93s1_text_of_another_form_is_refused_by_name(tmp_path, no_network, content):
    put_ldc93s1(tmp_path, content)
    with pytest.raises(errors.DataError) as error:
        read_ldc93s1(tmp_path)
    assert str(tmp_path / 'LDC93S1.txt') in str(error.value)


def test_ldc93s1_text_that_is_not_utf8_is_refused_by_name(tmp_path, no_network):
    put_ldc93s1(tmp_path)
    (tmp_path / 'LDC93S1.txt').write_bytes(b'0 46797 caf\xe9\n')
    with pytest.raises(errors.DataError) as error:
        read_ldc93s1(tmp_path)
    assert str(tmp_path / 'LDC93S1.txt') in str(error.value)


def test_ldc93s1_web_page_in_the_place_of_the_audio_is_refused_by_name(tmp_path, no_network):
    put_ldc93s1(tmp_path)
    (tmp_path / 'LDC93S1.wav').write_text(PAGE)
    with pytest.raises(errors.DataError) as error:
        read_ldc93s1(tmp_path)
    assert str(tmp_path / 'LDC93S1.wav') in str(error.value)
    assert 'not an audio file' in str(error.value)


@pytest.mark.parametrize('missing, url', (('LDC93S1.wav', WAV_URL), ('LDC93S1.txt', TXT_URL)))
def test_ldc93s1_without_network_names_the_missing_file_and_its_address(
    tmp_path, no_network, missing, url
):
    put_ldc93s1(tmp_path / 'ldc')
    os.remove(tmp_path / 'ldc' / missing)
    with pytest.raises(errors.DataError) as error:
        read_ldc93s1(tmp_path / 'ldc')
    for words in (str(tmp_path / 'ldc' / missing), url, 'network is off'):
        assert words in str(error.value)
    assert no_network == [url]
    assert missing not in os.listdir(tmp_path / 'ldc')


def test_ldc93s1_is_downloaded_once(tmp_path, server):
    folder = tmp_path / 'data' / 'ldc93s1'
    for _ in range(2):  # each address is served once
        sets = read_ldc93s1(folder)
        assert [data_set.examples[0].transcript for data_set in sets] == 3 * [CLEANED]
    assert sorted(os.listdir(folder)) == ['LDC93S1.txt', 'LDC93S1.wav']
    assert server == {}


def test_ldc93s1_downloads_only_what_is_missing(tmp_path, server):
    put_ldc93s1(tmp_path / 'ldc')
    os.remove(tmp_path / 'ldc/LDC93S1.txt')
    server.pop(WAV_URL)
    before = os.stat(tmp_path / 'ldc/LDC93S1.wav').st_mtime_ns
    assert [len(data_set) for data_set in read_ldc93s1(tmp_path / 'ldc')] == [1, 1, 1]
    assert os.stat(tmp_path / 'ldc/LDC93S1.wav').st_mtime_ns == before


def test_ldc93s1_download_of_a_web_page_is_refused_by_name(tmp_path, server):
    server[WAV_URL] = PAGE.encode()
    with pytest.raises(errors.DataError) as error:
        read_ldc93s1(tmp_path / 'ldc')
    assert str(tmp_path / 'ldc/LDC93S1.wav') in str(error.value)


def test_ldc93s1_at_another_rate_is_read(tmp_path, no_network):
    put_ldc93s1(tmp_path)
    write_wav(tmp_path / 'LDC93S1.wav', np.stack(2 * [speech(0.8, rate=8000)], axis=1), 8000)
    assert [len(data_set) for data_set in read_ldc93s1(tmp_path)] == [1, 1, 1]
