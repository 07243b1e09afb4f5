"""Alphabet, transcripts to labels and back, error rates."""
import collections
import operator
import unicodedata

import jiwer
import numpy as np

from util import config as settings, files
from util.tf1 import tf

DEFAULT_LABELS = " abcdefghijklmnopqrstuvwxyz'"

# What `clean_transcript` changes before it looks at the alphabet. A character that the
# alphabet holds is always kept as it is.
APOSTROPHES = '\u2019\u2018\u02bc\u00b4`'                    # become '
TO_SPACE = '-\u2010\u2011\u2012\u2013\u2014\u2015_/'          # separate words
DROPPED = '.,?!;:"\u201c\u201d\u201e\u00ab\u00bb\u2026\u00a1\u00bf\''  # unspoken
# The apostrophe is dropped only where the alphabet has none, as in the notebook.

# Errors of recognised texts: wer and cer over all texts, counts of words
ErrorRates = collections.namedtuple(
    'ErrorRates', 'wer cer words insertions deletions substitutions')


class AlphabetError(ValueError):
    """An alphabet file can't be used; the message names it and the line."""


class Alphabet:
    """Characters and their labels: label n is the n-th character, the last one the blank.

    The default is the notebook's, 0 = space, 1 to 26 = a to z, but for 27, which the notebook
    left unused (it dropped apostrophes) and which is the apostrophe here. The blank is 28.
    """

    def __init__(self, labels=DEFAULT_LABELS):
        self.labels = tuple(labels)
        self.characters = frozenset(self.labels)
        self._label_of = {char: label for label, char in enumerate(self.labels)}
        self.cleaned = _Cleaning(self)

    @property
    def blank(self):
        """Label of the CTC blank."""
        return len(self.labels)

    @property
    def n_character(self):
        """Classes of the output layer: the labels and the blank."""
        return len(self.labels) + 1

    def __contains__(self, char):
        return char in self._label_of

    def encode(self, text):
        """Labels of a text, int32 [len(text)]; KeyError for a character it doesn't hold."""
        return np.array([self._label_of[char] for char in text], np.int32)

    def decode(self, labels):
        """Text of labels; blanks and padding below 0 are left out."""
        return ''.join(self.labels[label] for label in labels if 0 <= label < self.blank)


def load_alphabet(filename=''):
    """The alphabet of a file, or the default one where the name is empty.

    One character a line, in UTF-8; a line with a space is the space; lines that begin with #
    are comments (\\# is the character). Byte order mark, CR LF and empty last lines are fine.

    Raises:
      AlphabetError: naming file and line.
    """
    if not filename:
        return Alphabet()
    try:
        with files.open_regular(filename, encoding='utf-8-sig', newline=None) as file:
            lines = file.read().split('\n')
    except (OSError, UnicodeDecodeError) as error:
        raise AlphabetError('ds_alphabet: cannot read %s: %s' % (filename, error)) from None
    while lines and not lines[-1]:
        lines.pop()
    labels = []
    for number, line in enumerate(lines, 1):
        if line.startswith('#'):
            continue
        char = unicodedata.normalize('NFC', line[1:] if line == '\\#' else line)
        if len(char) != 1 or char in labels:
            raise AlphabetError('ds_alphabet: %s line %d must hold one character that no other '
                                'line holds, got %r' % (filename, number, line))
        labels.append(char)
    if not labels:
        raise AlphabetError('ds_alphabet: %s holds no characters' % filename)
    return Alphabet(labels)


def clean_transcript(text, alphabet):
    """Brings a transcript to the alphabet; the one place where transcripts are changed.

    In this order, and only for characters that the alphabet doesn't hold: typographic
    apostrophes become plain ones, hyphens, dashes, underscores and slashes become spaces,
    punctuation is dropped, accents are folded, upper case is lowered. Runs of white space
    become one space. Anything else (digits, braces, other scripts) stays and is reported.

    Returns:
      (cleaned text, characters of it that the alphabet doesn't hold, in order of occurrence).
    """
    cleaned = ' '.join(unicodedata.normalize('NFC', text).translate(alphabet.cleaned).split())
    if ' ' not in alphabet:
        cleaned = cleaned.replace(' ', '')
    if alphabet.characters.issuperset(cleaned):
        return cleaned, []
    return cleaned, [char for char in dict.fromkeys(cleaned) if char not in alphabet]


class _Cleaning(dict):
    """A table for str.translate: {code point: cleaned text}, filled as characters come up."""

    def __init__(self, alphabet):
        super().__init__()
        self._alphabet = alphabet

    def __missing__(self, code_point):
        self[code_point] = _clean_char(chr(code_point), self._alphabet)
        return self[code_point]


def _clean_char(char, alphabet):
    if char in alphabet:
        return char
    if char.isspace() or char in TO_SPACE:
        return ' '
    if char in APOSTROPHES:
        return "'" if "'" in alphabet else ''
    if char in DROPPED or unicodedata.combining(char):
        return ''
    folded = ''.join(c for c in unicodedata.normalize('NFD', char) if not unicodedata.combining(c))
    for candidate in (char.lower(), folded, folded.lower()):
        if candidate in alphabet:
            return candidate
    return char


def describe_char(char):
    """A character for messages, with its code point: 'с' (U+0441)."""
    return '%r (U+%04X)' % (char, ord(char))


def text_to_char_array(original, alphabet=None):
    """Labels of a transcript, int32 [n_labels]; the transcript has to be clean.

    Source: the notebook's function of that name.
    """
    return (alphabet or Alphabet()).encode(original)


def required_steps(labels):
    """Time steps that CTC needs for labels or a text: one each, and a blank between equal
    neighbours."""
    return len(labels) + int(sum(map(operator.eq, labels[1:], labels[:-1])))


def ctc_label_dense_to_sparse(labels, label_lengths):
    """Zero-padded labels as the sparse tensor that CTC operations take.

    Args:
      labels: int32 [B, U].
      label_lengths: int32 [B].
    Returns:
      SparseTensor, dense shape [B, U]: the labels before each length.
    Source: the notebook's function of that name, which needed a scan.
    """
    indices = tf.where(tf.sequence_mask(label_lengths, tf.shape(labels)[1]))
    return tf.SparseTensor(indices, tf.gather_nd(labels, indices),
                           tf.shape(labels, out_type=tf.int64))


def sparse_tensor_value_to_texts(value, alphabet=None):
    """Texts of a SparseTensorValue of labels [B, U], one for each of the B rows.

    Source: the notebook's function of that name.
    """
    alphabet = alphabet or Alphabet()
    rows = [[] for _ in range(value.dense_shape[0])]
    for (row, _), label in zip(value.indices, value.values):
        rows[row].append(label)
    return [alphabet.decode(row) for row in rows]


def wers(originals, results):
    """Word error rates, from jiwer.

    Args:
      originals: reference texts, none of them empty.
      results: recognised texts.
    Returns:
      (rates, wer): the rate of each text, and errors over words of all texts together. Unlike
      the notebook's mean of the rates, the latter is what other toolkits report.
    """
    rates = [jiwer.wer(original, result) for original, result in zip(originals, results)]
    return rates, error_rates(originals, results).wer


def error_rates(originals, results):
    """WER and CER over all texts together, with the counts behind the WER, as `ErrorRates`."""
    words = jiwer.process_words(list(originals), list(results))
    return ErrorRates(words.wer, jiwer.cer(list(originals), list(results)),
                      words.hits + words.substitutions + words.deletions,
                      words.insertions, words.deletions, words.substitutions)
