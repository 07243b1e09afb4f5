"""Alphabet, clean-up of transcripts, labels and back, error rates, against values by hand."""

import os

import numpy as np
import pytest

from helpers import PROJECT
from util import errors, text
from util.tf1 import tf

SEED_FEATURES = os.path.join(PROJECT, 'tests', 'data', 'seed_features.npz')
ENGLISH = text.Alphabet()


# Alphabet


def test_default_labels():
    assert ENGLISH.labels[0] == ' '
    assert ''.join(ENGLISH.labels[1:27]) == 'abcdefghijklmnopqrstuvwxyz'
    assert ENGLISH.labels[27] == "'"
    assert (ENGLISH.blank, ENGLISH.n_character) == (28, 29)


def test_blank_follows_the_last_label():
    alphabet = text.Alphabet('xyz')
    assert (alphabet.blank, alphabet.n_character) == (3, 4)


def test_alphabet_contains_its_labels_only():
    assert 'a' in ENGLISH and "'" in ENGLISH and ' ' in ENGLISH
    assert 'A' not in ENGLISH and '4' not in ENGLISH and '' not in ENGLISH and 'ab' not in ENGLISH


def test_encode():
    labels = ENGLISH.encode("it's az")
    assert labels.dtype == np.int32
    assert labels.tolist() == [9, 20, 27, 19, 0, 1, 26]


def test_encode_nothing():
    labels = ENGLISH.encode('')
    assert labels.dtype == np.int32 and labels.shape == (0,)


@pytest.mark.parametrize('char', ['4', 'é', 'A', '\u0441'])
def test_encode_refuses_other_characters(char):
    with pytest.raises(KeyError):
        ENGLISH.encode('go ' + char)


def test_decode():
    assert ENGLISH.decode([9, 20, 27, 19, 0, 1, 26]) == "it's az"


def test_decode_leaves_out_blank_and_padding():
    assert ENGLISH.decode([28, 1, -1, 0, 12, 12, 28, 29, -1]) == 'a ll'


def test_labels_round_trip():
    transcript = "the quick brown fox doesn't jump over lazy dogs"
    assert ENGLISH.decode(text.text_to_char_array(transcript)) == transcript
    assert text.Alphabet('cab').decode(text.Alphabet('cab').encode('abcba')) == 'abcba'


def test_text_to_char_array_takes_an_alphabet():
    assert text.text_to_char_array('ba').tolist() == [2, 1]
    assert text.text_to_char_array('ba', text.Alphabet('xab')).tolist() == [2, 1]
    assert text.text_to_char_array('ba', text.Alphabet('bxa')).tolist() == [0, 2]


def test_labels_are_the_notebooks():
    labels = text.text_to_char_array('she had your dark suit in greasy wash water all year')
    np.testing.assert_array_equal(labels, np.load(SEED_FEATURES)['labels'])


# Alphabet files


def load(tmp_path, content):
    path = tmp_path / 'alphabet.txt'
    path.write_bytes(content if isinstance(content, bytes) else content.encode('utf-8'))
    return text.load_alphabet(str(path))


def load_error(tmp_path, content):
    with pytest.raises(errors.AlphabetError) as error:
        load(tmp_path, content)
    message = str(error.value)
    assert 'ds_alphabet' in message and 'alphabet.txt' in message
    return message


def test_no_file_is_the_default_alphabet():
    assert text.load_alphabet('').labels == ENGLISH.labels
    assert text.load_alphabet().labels == ENGLISH.labels


@pytest.mark.parametrize(
    'content',
    [
        ' \nb\na\n',
        b'\xef\xbb\xbf \nb\na\n',
        ' \r\nb\r\na\r\n',
        b'\xef\xbb\xbf \r\nb\r\na\r\n',
        ' \nb\na',
        ' \r\nb\r\na',
        ' \nb\na\n\n\n',
        ' \r\nb\r\na\r\n\r\n\r\n',
        '# made by hand\n \n# two letters\nb\na\n#\n',
        b'\xef\xbb\xbf# made by hand\n \nb\na\n',
    ],
    ids=[
        'plain',
        'BOM',
        'CR LF',
        'BOM and CR LF',
        'no last newline',
        'CR LF, no last newline',
        'blank last lines',
        'blank last CR LF lines',
        'comments',
        'BOM before a comment',
    ],
)
def test_file_variants_give_the_same_labels(tmp_path, content):
    assert load(tmp_path, content).labels == (' ', 'b', 'a')


def test_space_may_be_the_last_label(tmp_path):
    assert load(tmp_path, 'a\n \n').labels == ('a', ' ')
    assert load(tmp_path, 'a\n ').labels == ('a', ' ')


def test_hash_is_a_label_behind_a_backslash(tmp_path):
    assert load(tmp_path, '#x\n\\#\n\\\n').labels == ('#', '\\')


def test_decomposed_letter_is_one_label(tmp_path):
    assert load(tmp_path, 'e\u0301\na\n').labels == ('\u00e9', 'a')


@pytest.mark.parametrize(
    'content, line',
    [
        ('a\nb\na\n', 3),
        ('# x\na\nbc\nd\n', 3),
        ('a\n\nb\n', 2),
        ('a\n  \n', 2),
        ('a\n\\\\#\n', 2),
        ('\u00e9\ne\u0301\n', 2),
    ],
    ids=[
        'duplicate',
        'two characters',
        'blank line between',
        'two spaces',
        'escape',
        'duplicate, decomposed',
    ],
)
def test_bad_line_is_named(tmp_path, content, line):
    assert 'line %d ' % line in load_error(tmp_path, content)


def test_bad_line_is_shown(tmp_path):
    assert "'bc'" in load_error(tmp_path, 'a\nbc\n')


@pytest.mark.parametrize('content', ['', '\n\n', '# nothing\n', b'\xef\xbb\xbf'])
def test_file_without_labels_is_an_error(tmp_path, content):
    assert 'holds no characters' in load_error(tmp_path, content)


def test_file_in_another_encoding_is_an_error(tmp_path):
    load_error(tmp_path, b'a\n\xe9\n')


def test_missing_file_and_folder_are_errors(tmp_path):
    for path in (tmp_path / 'none.txt', tmp_path):
        with pytest.raises(errors.AlphabetError, match='ds_alphabet: cannot read') as error:
            text.load_alphabet(str(path))
        assert str(path) in str(error.value)


# Clean-up of transcripts


@pytest.mark.parametrize(
    'transcript, cleaned, unknown',
    [
        ('the caf\u00e9 is open', 'the cafe is open', []),
        ('ten {noise} people', 'ten {noise} people', ['{', '}']),
        ('it\u2019s fine', "it's fine", []),
        ('room 42 please', 'room 42 please', ['4', '2']),
        ('HELLO There', 'hello there', []),
        ('thank you \u0441arol', 'thank you \u0441arol', ['\u0441']),
        ('"and then he left', 'and then he left', []),
        ('he said "go home" twice', 'he said go home twice', []),
        ('"yes"', 'yes', []),
        ('well, yes', 'well yes', []),
    ],
)
def test_field_cases(transcript, cleaned, unknown):
    assert text.clean_transcript(transcript, ENGLISH) == (cleaned, unknown)


@pytest.mark.parametrize(
    'transcript, cleaned',
    [
        ('plain words', 'plain words'),
        ("don\u2019t don\u2018t don\u02bct don\u00b4t don`t don't", ' '.join(["don't"] * 6)),
        ('a-b\u2010c\u2011d\u2012e\u2013f\u2014g\u2015h_i/j', 'a b c d e f g h i j'),
        ('a.b,c?d!e;f:g"h', 'abcdefgh'),
        ('\u201ca\u201d \u201eb\u201c \u00abc\u00bb d\u2026 \u00a1e! \u00bff?', 'a b c d e f'),
        ('\u00c5ngstr\u00f6m \u00d1and\u00fa \u00e7a', 'angstrom nandu ca'),
        ('cafe\u0301', 'cafe'),
        ('PACK MY BOX WITH FIVE DOZEN LIQUOR JUGS', 'pack my box with five dozen liquor jugs'),
        ('\u0130zmir', 'izmir'),
        ('  a\t b\u00a0c \r\n d\n', 'a b c d'),
        ('wait - what', 'wait what'),
        ('-a-', 'a'),
        ('', ''),
        ('    ', ''),
        (' ... ', ''),
        ('-', ''),
    ],
)
def test_cleaning_rules(transcript, cleaned):
    assert text.clean_transcript(transcript, ENGLISH) == (cleaned, [])


@pytest.mark.parametrize(
    'transcript, unknown',
    [
        ('caf\u00e9 4 {two} 24', ['4', '{', '}', '2']),
        ('stra\u00dfe', ['\u00df']),
        ('\u0416 \u0436', ['\u0416', '\u0436']),
        ('a\u200bb', ['\u200b']),
        ('\u4f60\u597d', ['\u4f60', '\u597d']),
        ('\uac01', ['\uac01']),
        ('\u00bd', ['\u00bd']),
        ('50%', ['5', '0', '%']),
        ('a\x00b', ['\x00']),
    ],
)
def test_other_characters_are_reported_once_each_in_order(transcript, unknown):
    cleaned, found = text.clean_transcript(transcript, ENGLISH)
    assert found == unknown
    assert set(unknown) <= set(cleaned)


def test_accents_without_a_composed_letter_are_folded():
    assert text.clean_transcript('x\u0301 e\u0323\u0301', ENGLISH) == ('x e', [])


@pytest.mark.parametrize('transcript', ["don't", 'don\u2019t', 'don`t'])
def test_apostrophe_is_dropped_where_the_alphabet_has_none(transcript):
    assert text.clean_transcript(transcript, text.Alphabet('dont ')) == ('dont', [])


def test_character_of_the_alphabet_is_kept():
    alphabet = text.Alphabet(' -.4AaB\u00e9\u2019c')
    assert text.clean_transcript('A-a. 4B\u00e9\u2019', alphabet) == ('A-a. 4B\u00e9\u2019', [])


def test_upper_case_is_lowered_only_to_letters_of_the_alphabet():
    alphabet = text.Alphabet('Aab ')
    assert text.clean_transcript('AaBb', alphabet) == ('Aabb', [])
    assert text.clean_transcript('ab', text.Alphabet('AB ')) == ('ab', ['a', 'b'])


def test_accented_letter_of_the_alphabet_is_not_folded():
    alphabet = text.Alphabet('\u00e9e ')
    assert text.clean_transcript('\u00e9 \u00c9 e\u0301 \u00ea \u00ca', alphabet) == (
        '\u00e9 \u00e9 \u00e9 e e',
        [],
    )


def test_upper_case_accent_folds_to_upper_case_first():
    assert text.clean_transcript('\u00c9', text.Alphabet('Ee')) == ('E', [])


def test_spaces_are_dropped_where_the_alphabet_has_none():
    assert text.clean_transcript(' a b-a ', text.Alphabet('ab')) == ('aba', [])


def test_cleaned_transcript_encodes():
    cleaned, unknown = text.clean_transcript('\u201cIt\u2019s caf\u00e9-TIME!\u201d', ENGLISH)
    assert not unknown
    labels = text.text_to_char_array(cleaned)
    assert labels.min() >= 0 and labels.max() < ENGLISH.blank
    assert ENGLISH.decode(labels) == "it's cafe time"


def test_cleaning_twice_changes_nothing():
    once, _ = text.clean_transcript('  \u201cWell\u2014no\u201d, {caf\u00e9} ', ENGLISH)
    assert text.clean_transcript(once, ENGLISH) == (once, ['{', '}'])


def test_character_is_described_with_its_code_point():
    assert text.describe_char('\u0441') == "'\u0441' (U+0441)"
    assert text.describe_char('{') == "'{' (U+007B)"
    assert text.describe_char('\U0001f600').endswith('(U+1F600)')


# Labels for CTC


@pytest.mark.parametrize(
    'transcript, steps',
    [('', 0), ('a', 1), ('ab', 2), ('aa', 3), ('aaa', 5), ('aba', 3), ('all  three', 13)],
)
def test_required_steps(transcript, steps):
    assert text.required_steps(ENGLISH.encode(transcript)) == steps


def test_required_steps_of_a_list():
    assert text.required_steps([3, 3, 1]) == 4


def dense_to_sparse(labels, lengths):
    labels = np.array(labels, np.int32).reshape(len(lengths), -1)
    with tf.Graph().as_default(), tf.Session() as session:
        sparse = text.ctc_label_dense_to_sparse(
            tf.placeholder_with_default(labels, [None, None]),
            tf.placeholder_with_default(np.array(lengths, np.int32), [None]),
        )
        return session.run(sparse)


def test_dense_to_sparse():
    value = dense_to_sparse([[5, 0, 7, 9], [3, 0, 0, 0], [0, 2, 0, 0]], [4, 1, 2])
    assert value.indices.tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [2, 0], [2, 1]]
    assert value.values.tolist() == [5, 0, 7, 9, 3, 0, 2]
    assert value.dense_shape.tolist() == [3, 4]
    assert (value.indices.dtype, value.values.dtype) == (np.int64, np.int32)


def test_dense_to_sparse_keeps_an_empty_row():
    value = dense_to_sparse([[0, 0, 0], [0, 0, 1]], [0, 3])
    assert value.indices.tolist() == [[1, 0], [1, 1], [1, 2]]
    assert value.values.tolist() == [0, 0, 1]
    assert value.dense_shape.tolist() == [2, 3]


def test_dense_to_sparse_ignores_what_lies_past_the_length():
    value = dense_to_sparse([[1, 2, 3], [4, 5, 6]], [2, 1])
    assert value.values.tolist() == [1, 2, 4]
    assert value.dense_shape.tolist() == [2, 3]


def sparse_value(rows, width):
    indices = [[row, i] for row, labels in enumerate(rows) for i in range(len(labels))]
    return tf.SparseTensorValue(
        np.array(indices, np.int64).reshape(-1, 2),
        np.array(sum(rows, []), np.int64),
        np.array([len(rows), width], np.int64),
    )


def test_sparse_to_texts():
    value = sparse_value([[8, 9], [], [1, 12, 12, 0, 27], []], 6)
    assert text.sparse_tensor_value_to_texts(value) == ['hi', '', "all '", '']


def test_sparse_to_texts_of_nothing():
    assert text.sparse_tensor_value_to_texts(sparse_value([[], []], 0)) == ['', '']
    assert text.sparse_tensor_value_to_texts(sparse_value([], 0)) == []


def test_sparse_to_texts_takes_an_alphabet():
    value = sparse_value([[2, 0], [1]], 2)
    assert text.sparse_tensor_value_to_texts(value, text.Alphabet('xyz')) == ['zx', 'y']


def test_dense_to_sparse_to_texts():
    texts = ['go', 'a b', "it's"]
    labels = [np.pad(ENGLISH.encode(t), (0, 5 - len(t))) for t in texts]
    value = dense_to_sparse(labels, [len(t) for t in texts])
    assert text.sparse_tensor_value_to_texts(value) == texts


# Error rates

LONG = 'turn the kitchen light on now please'  # 7 words, 36 characters


def test_wer_is_over_all_words():
    rates, wer = text.wers(['go', LONG], ['no', LONG])
    assert rates == [1.0, 0.0]
    assert wer == 0.125


@pytest.mark.parametrize(
    'original, result, rate',
    [
        ('a b', 'a b', 0),
        ('a b', 'a c', 0.5),
        ('a b', '', 1),
        ('a', 'a b c', 2),
        ('a b c d', 'b c d', 0.25),
        ('ab', 'a b', 2),
    ],
)
def test_wer_of_one_text(original, result, rate):
    rates, wer = text.wers([original], [result])
    assert rates == [rate] and wer == rate


def test_error_rates_count_words():
    rates = text.error_rates(['a b c', 'd e', 'f', 'go on'], ['a x c', 'e', 'f g h', 'go on'])
    # substituted: b; deleted: d; inserted: g, h
    assert rates.words == 8
    assert (rates.insertions, rates.deletions, rates.substitutions) == (2, 1, 1)
    assert rates.wer == 4 / 8


def test_cer_is_over_all_characters():
    assert text.error_rates(['go', LONG], ['no', LONG]).cer == pytest.approx(1 / 38)


def test_cer_counts_spaces():
    assert text.error_rates(['a b', 'cde'], ['ab', 'cxde']).cer == pytest.approx(2 / 6)


def test_error_rates_of_nothing_recognised():
    rates = text.error_rates(['a b', 'c'], ['', ''])
    assert (rates.wer, rates.cer, rates.deletions, rates.words) == (1, 1, 3, 3)
