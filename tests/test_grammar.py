"""language.grammar: which sequences of words a grammar allows, and what is said of a wrong one."""

import itertools
import re

import pytest

from util import errors, text
from util.language import grammar

ALPHABET = text.Alphabet()


def parsed(content, alphabet=ALPHABET):
    return grammar.parse(content.splitlines(), alphabet, 'a.grammar')


def allows(found, sentence):
    """Tells whether a Grammar allows the words of a text."""
    state = 0
    for word in sentence.split():
        if word not in found.moves[state]:
            return False
        state = found.moves[state][word]
    return state in found.ends


@pytest.mark.parametrize(
    ('content', 'allowed', 'refused'),
    [
        ('stop\nturn on\n', ['stop', 'turn on'], ['', 'turn', 'stop stop', 'turn on stop']),
        ('# list\nturn on | off\n', ['turn on', 'off'], ['turn off', '# list']),
        ('(turn (on | off))? now', ['now', 'turn on now', 'turn off now'], ['', 'turn now']),
        ('one{2}', ['one one'], ['one', 'one one one']),
        ('one{1,3} two', ['one two', 'one one one two'], ['two', 'one one one one two']),
        ('one{2,}', ['one one', 'one one one one one'], ['one']),
        ('one{0,2}', ['', 'one', 'one one'], ['one one one']),
        ('(one two)*', ['', 'one two', 'one two one two'], ['one', 'one two one']),
        ('(one | two)+', ['one', 'two one two'], ['', 'three']),
        ('(one? two?){2}', ['', 'one one', 'two two', 'one two one two'], ['two one two one']),
        ('one?*+', ['', 'one', 'one one one'], ['two']),
        ("Don't stop, well-known", ["don't stop well known"], ['stop', 'well-known']),
        (
            '<d> = one | two;\n<pair> = <d> <d>;\nutterance = <pair>{1,2} (a | <d>)?;',
            ['one two', 'one two a', 'one two one', 'two two one one a'],
            ['one', 'one two a a', 'a'],
        ),
        ('<utterance>=a;<unused>=b;', ['a'], ['b']),
    ],
)
def test_what_is_allowed(content, allowed, refused):
    found = parsed(content)
    assert all(allows(found, sentence) for sentence in allowed)
    assert not any(allows(found, sentence) for sentence in refused)


@pytest.mark.parametrize(
    ('content', 'pattern'),
    [
        ('(a | b b)* (a b)?', '(a|bb)*(ab)?'),
        ('((a b?)+ | b){1,2}', '((ab?)+|b){1,2}'),
        ('a{0,2} (b | a{2,})* b?', 'a{0,2}(b|a{2,})*b?'),
    ],
)
def test_all_short_sentences_against_regular_expressions(content, pattern):
    found = parsed(content)
    for length in range(6):
        for words in itertools.product('ab', repeat=length):
            expected = re.fullmatch(pattern, ''.join(words)) is not None
            assert allows(found, ' '.join(words)) == expected, words


def test_the_words_of_a_grammar():
    assert parsed('<utterance> = two | one+ two;').words == ['one', 'two']


def test_characters_are_words_in_an_alphabet_without_a_space():
    found = parsed('ab | b', text.Alphabet('ab'))
    assert allows(found, 'a b') and allows(found, 'b') and not allows(found, 'ab')


@pytest.mark.parametrize(
    ('content', 'words'),
    [
        ('', 'line 1: expected a phrase, got the end of the file'),
        ('one\n(two', r'line 2: expected "\)", got the end of the file'),
        ('one two)', r"line 1: expected a word, a rule or a group, got '\)'"),
        ('one | | two', r"line 1: expected a word, a rule or a group, got '\|'"),
        ('* one', 'expected a word, a rule or a group'),
        ('{2} one', "expected a word, a rule or a group, got '.2.'"),
        ('one{3,2}', 'expected {m,n} with m <= n'),
        ('one{0}', 'expected {m,n} with m <= n'),
        ('one{1,9999}', 'n from 1 to 1000'),
        ('one > two', "line 1: '>' is not expected there"),
        ('<a> = one;', 'no rule <utterance>'),
        ('<utterance> = one', 'expected ";", got the end of the file'),
        ('<utterance> = one;\n<utterance> = two;', 'line 2: expected a rule that is not there'),
        ('<utterance> one;', 'expected "=", got \'one\''),
        ('<utterance> = one;\n;', "line 2: expected the name of a rule, got ';'"),
        ('<utterance> = <one>;', 'line 1: there is no rule <one>'),
        (
            '<utterance> = <a>;\n<a> = <b>;\n<b> = x | x <a>;',
            r'line 3: the rule <a> uses itself \(a -> b -> a\)',
        ),
        ('one 2', "line 1: the alphabet .* cannot write the word '2'"),
        ('one !', "cannot write the word '!'"),
    ],
)
def test_a_wrong_grammar(content, words):
    with pytest.raises(errors.LanguageError, match=words) as caught:
        parsed(content)
    assert str(caught.value).startswith('a.grammar ') and '\n' not in str(caught.value)


def test_a_grammar_that_is_too_large(monkeypatch):
    monkeypatch.setattr(grammar, 'MAX_STATES', 60)
    with pytest.raises(errors.LanguageError, match='is too large: it has more than 60 states'):
        parsed('(a b){20}')
    # of n automaton states may come 2^n, as those that remember the last five words
    with pytest.raises(errors.LanguageError, match='is too large: it has more than 60 states'):
        parsed('(a | b)* a (a | b){5}')


def test_a_file(tmp_path):
    path = tmp_path / 'a.grammar'
    path.write_bytes(b'\xef\xbb\xbfone two\r\n')
    assert allows(grammar.load(str(path), ALPHABET), 'one two')
    path.write_bytes(b'\xff')
    with pytest.raises(errors.LanguageError, match='ds_lm_grammar: cannot read'):
        grammar.load(str(path), ALPHABET)
    with pytest.raises(errors.LanguageError, match='cannot read .*: Is a directory'):
        grammar.load(str(tmp_path), ALPHABET)
