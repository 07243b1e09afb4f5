"""language.lexicon: which words of a file are used, and how they are written."""

import logging

import pytest

from util import errors, text
from util.language import lexicon

ALPHABET = text.Alphabet()


def test_words_are_written_as_transcripts_are(caplog):
    found = lexicon.make(['One', 'café', 'one', "o'clock", 'TWO'], ALPHABET, 'w')
    assert found.words == ['one', 'cafe', "o'clock", 'two']
    assert found.names == ['One', 'café', "o'clock", 'TWO']  # the first of those written alike
    assert found.indices == {'one': 0, 'cafe': 1, "o'clock": 2, 'two': 3}
    assert not caplog.records


def test_words_that_the_alphabet_cannot_write_are_left_out_and_counted(caplog):
    with caplog.at_level(logging.WARNING):
        found = lexicon.make(['1st', 'one', 'well-known', '!', 'ж', 'two'], ALPHABET, 'file w')
    assert found.words == ['one', 'two']
    assert caplog.messages == [
        'file w: 4 of 6 words are left out, as the alphabet cannot write them: '
        "'1st', 'well-known', '!', ..."
    ]


def test_no_usable_word():
    with pytest.raises(errors.LanguageError, match="^w has no word of the alphabet .*: '1', '2'$"):
        lexicon.make(['1', '2'], ALPHABET, 'w')
    with pytest.raises(errors.LanguageError, match="^w has no word of the alphabet 'ab'$"):
        lexicon.make([], text.Alphabet('ab'), 'w')


def test_characters_are_words_in_an_alphabet_without_a_space():
    alphabet = text.Alphabet('xyz')
    assert lexicon.make(['x', 'yz', 'z'], alphabet, 'w').words == ['x', 'z']
    assert lexicon.split('xyx', alphabet) == ['x', 'y', 'x']
    assert lexicon.join(['x', 'y'], alphabet) == 'xy'


def test_splitting_and_joining():
    assert lexicon.split('', ALPHABET) == []
    assert lexicon.split('one two', ALPHABET) == ['one', 'two']
    assert lexicon.join(['one', 'two'], ALPHABET) == 'one two'


def test_a_file_of_words(tmp_path):
    path = tmp_path / 'words'
    path.write_bytes('\ufeff# words\r\none\r\n\r\n  two \r\n'.encode())
    assert lexicon.read(str(path), 'ds_lm_lexicon') == ['one', 'two']
    path.write_bytes(b'\xff')
    with pytest.raises(errors.LanguageError, match='^ds_lm_lexicon: cannot read .*utf-8'):
        lexicon.read(str(path), 'ds_lm_lexicon')
