"""Properties that hold for any input: text, alphabets, manifests, transcripts of corpora, settings.

Hypothesis draws the inputs, the same ones each time; `--hypothesis-profile thorough` draws many.
"""

import csv
import io
import json
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from config_helpers import FIELDS, load
from util import augment_setting, config as settings, errors, text
from util.corpora import manifests, stm
from util.importers import fisher, swb, ted

# Hypothesis's own characters need a table that takes seconds to make
CODE_POINTS = st.integers(0, 0x24F) | st.integers(0, 0xFFFF) | st.integers(0, 0x10FFFF)
ANY_CHARACTERS = CODE_POINTS.map(chr)
UNICODE = ANY_CHARACTERS.filter(lambda char: not '\ud800' <= char <= '\udfff')
CHARACTERS = UNICODE.map(lambda char: unicodedata.normalize('NFC', char)).filter(
    lambda char: len(char) == 1 and char.isprintable() and char != '\ufeff'
)


def texts(characters, min_size=0, max_size=15):
    """Returns a strategy of texts of characters that a strategy draws, or that a text lists."""
    if isinstance(characters, str):
        characters = st.sampled_from(characters)
    return st.lists(characters, min_size=min_size, max_size=max_size).map(''.join)


ALPHABETS = st.one_of(
    st.just(text.Alphabet()), st.lists(CHARACTERS, min_size=1, unique=True).map(text.Alphabet)
)
SPEECH_LIKE = texts('abcéÅß -–/.’\'"\u0301\u0327\t\n\u00a0\u3000')


def is_one_line(message):
    """Tells whether a message can be shown on one line of a terminal."""
    return bool(message) and message.isprintable()


# Text


@given(words=texts(UNICODE) | SPEECH_LIKE, alphabet=ALPHABETS)
def test_a_cleaned_transcript_is_clean_and_stays_so(words, alphabet):
    cleaned, unknown = text.clean_transcript(words, alphabet)
    assert unknown == [char for char in dict.fromkeys(cleaned) if char not in alphabet]
    assert '  ' not in cleaned and cleaned == cleaned.strip(' ')
    assert text.clean_transcript(cleaned, alphabet) == (cleaned, unknown)


@given(data=st.data(), alphabet=ALPHABETS)
def test_labels_are_the_text_again(data, alphabet):
    words = data.draw(texts(st.sampled_from(alphabet.labels)))
    labels = alphabet.encode(words)
    assert labels.dtype == np.int32 and labels.shape == (len(words),)
    assert all(0 <= label < alphabet.blank for label in labels)
    assert alphabet.decode(labels) == words
    with_blanks = [part for label in labels for part in (alphabet.blank, label, -1)]
    assert alphabet.decode(with_blanks) == words
    alone = [label for i, label in enumerate(labels) if not i or label != labels[i - 1]]
    assert text.required_steps(words) == 2 * len(labels) - len(alone)


@given(labels=st.lists(CHARACTERS, min_size=1, unique=True), comment=texts('#a b'))
def test_an_alphabet_is_read_as_it_was_written(tmp_path_factory, labels, comment):
    path = tmp_path_factory.mktemp('alphabet') / 'alphabet.txt'
    lines = ['#' + comment, *('\\#' if char == '#' else char for char in labels), '']
    path.write_text('\n'.join(lines), encoding='utf-8', newline='')
    assert list(text.load_alphabet(str(path)).labels) == labels


# Manifests

NAMES = texts(UNICODE.filter(lambda char: char.isprintable()), 1).filter(str.strip)
TRANSCRIPTS = texts(UNICODE.filter(lambda char: char not in '\n\r\0'))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('properties')


@given(rows=st.lists(st.tuples(NAMES, TRANSCRIPTS)), columns=st.permutations(manifests.COLUMNS))
def test_a_manifest_is_read_as_it_was_written(folder, rows, columns):
    text_of_rows = io.StringIO()
    writer = csv.DictWriter(text_of_rows, columns)
    writer.writeheader()
    writer.writerows({'wav_filename': name, 'transcript': words} for name, words in rows)
    path = folder / 'manifest.csv'
    path.write_text(text_of_rows.getvalue(), encoding='utf-8', newline='')
    found = manifests.read_manifest(str(path))
    assert [(each.name, each.transcript) for each in found] == [
        (name.strip(), words) for name, words in rows
    ]
    assert not any(each.exclusion_reason for each in found)


SECONDS = st.none() | st.floats(0, 1e5, allow_nan=False) | st.integers(0, 10**5)


@given(rows=st.lists(st.tuples(NAMES, texts(UNICODE), SECONDS, SECONDS), min_size=1))
def test_json_lines_are_read_as_they_were_written(folder, rows):
    path = folder / 'manifest.jsonl'
    keys = ('audio_filepath', 'text', 'offset', 'duration')
    path.write_text('\n'.join(json.dumps(dict(zip(keys, row))) for row in rows))
    found = manifests.read_manifest(str(path))
    for each, (name, words, offset, duration) in zip(found, rows, strict=True):
        assert each.exclusion_reason is None
        assert each.wav_filename.endswith(name.strip()) and each.transcript == words
        assert each.start_s == offset
        both = offset is not None and duration is not None
        assert each.stop_s == (offset + duration if both else None)


def rubbish(characters):
    """Returns a strategy of bytes, of any kind or of these characters."""
    return st.binary(max_size=80) | texts(characters, max_size=80).map(str.encode)


PIECES = (*'",\n\r\0\t\x1b[{}:', 'wav_filename', 'transcript', '"audio_filepath"', '"a"')
RUBBISH = rubbish(st.sampled_from(PIECES))


@given(content=RUBBISH, ending=st.sampled_from(manifests.ENDINGS))
@example(content=b'"a\nb",c', ending='.csv')
@example(content=b'\xff', ending='.jsonl')
@example(content=b'[' * 10000, ending='.json')
@example(content=b'{"audio_filepath": "a.wav", "text": "a", "offset": 1e999}', ending='.json')
@example(content=b'wav_filename,transcript\n\x1b[2J\x07.wav,a', ending='.csv')
def test_rubbish_in_place_of_a_manifest_is_excluded_or_ends_in_one_line(folder, content, ending):
    path = folder / ('rubbish' + ending)
    path.write_bytes(content)
    try:
        found = manifests.read_manifest(str(path))
    except errors.DataError as error:
        assert is_one_line(str(error)) and str(path) in str(error)
    else:
        assert all(isinstance(each.transcript, str) for each in found)
        assert all(each.exclusion_reason is None or each.exclusion_reason for each in found)


# Time-marked transcripts

TIMES = st.tuples(st.integers(0, 10**7), st.integers(1, 10**6))  # ms: start, length
PARSERS = {
    'ted': ted.parse_line,
    'fisher': lambda line: fisher.parse_line(line, recording='00001'),
    'swb': lambda line: swb.parse_line(line, recording='2001'),
}


@given(times=TIMES, words=st.lists(texts('abc', 1), min_size=1))
def test_a_line_of_an_stm_is_read_as_it_was_written(times, words):
    start_s, stop_s = times[0] / 1000, sum(times) / 1000
    line = 'Talk_2009 1 Talk_2009 %.3f %.3f <o,f0,male> %s' % (start_s, stop_s, ' '.join(words))
    part = ted.parse_line(line)
    assert part[:4] == ('Talk_2009', start_s, stop_s, ' '.join(words))


@given(content=rubbish('ab1. :AB<>;-\n\x1b(){}[]'), kind=st.sampled_from(sorted(PARSERS)))
def test_rubbish_in_place_of_a_transcript_excludes_its_lines(folder, content, kind):
    path = folder / 'talk.stm'
    path.write_bytes(content)
    lines = content.decode('utf-8-sig', 'replace').replace('\r\n', '\n').replace('\r', '\n')
    found = stm.list_parts(str(path), str(folder), {}, PARSERS[kind])
    assert len(found) <= sum(bool(line.strip()) for line in lines.split('\n'))
    assert all(each.exclusion_reason for each in found)  # as there are no recordings


# Settings

ENVIRONMENT = texts(ANY_CHARACTERS.filter(lambda char: char != '\0'))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts(ANY_CHARACTERS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts('ab'), inner, max_size=3),
    max_leaves=4,
)
NUMBER_LIKE = texts('0123456789+-.eE_ ,infat', max_size=8)


def check_loaded(environ):
    """Asserts that settings give a Config without a field that is None, or end in one line."""
    try:
        config, sources = load(environ)
    except errors.ConfigError as error:
        assert is_one_line(str(error)), str(error)
    else:
        for name, field in FIELDS.items():
            assert type(getattr(config, name)) is field.type, name
        assert sources.keys() == FIELDS.keys()
        assert is_one_line(settings.show(1)) and settings.effective_text(config, sources)


@given(name=st.sampled_from(sorted(FIELDS)), value=ENVIRONMENT | NUMBER_LIKE)
def test_any_text_of_a_setting_is_used_or_ends_in_one_line(name, value):
    check_loaded({'ds_' + name: value})


@given(content=st.dictionaries(st.sampled_from(sorted(FIELDS)), JSON_VALUES, max_size=3))
def test_any_file_of_settings_is_used_or_ends_in_one_line(folder, content):
    path = folder / 'settings.json'
    path.write_text(json.dumps({'ds_' + name: value for name, value in content.items()}))
    check_loaded({'ds_config': str(path)})


@given(content=rubbish('{}[]":,ds_0e'))
def test_rubbish_in_place_of_a_file_of_settings_ends_in_one_line(folder, content):
    path = folder / 'rubbish.json'
    path.write_bytes(content)
    check_loaded({'ds_config': str(path)})


@given(name=texts('abdeilnrstz_BS'))
def test_an_unknown_setting_ends_in_one_line_that_names_it(name):
    if name not in FIELDS and 'ds_' + name not in settings.ALIASES:
        with pytest.raises(errors.ConfigError, match='ds_%s' % name) as error:
            load({'ds_' + name: '1'})
        assert is_one_line(str(error.value))


AUGMENTATION = (*'[],~ \n', 'speed', 'warp', 'p=0.5', 'n=0:3', 'factor=1e999', 'add')


@given(items=texts(st.sampled_from(AUGMENTATION)))
def test_any_augmentation_is_used_or_ends_in_one_line(items):
    try:
        augment_setting.parse(items)
    except errors.ConfigError as error:
        assert is_one_line(str(error))
