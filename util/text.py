"""The alphabet, the conversion of transcripts to labels and back, and error rates."""

import operator
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import jiwer
import numpy as np

from util import errors, files
from util.tf1 import tf

DEFAULT_LABELS = " abcdefghijklmnopqrstuvwxyz'"

# Characters that `clean_transcript` changes if they are not in the alphabet. So the apostrophe is
# dropped only with an alphabet that lacks it, such as the notebook's.
APOSTROPHES = '\u2019\u2018\u02bc\u00b4`'  # become '
TO_SPACE = '-\u2010\u2011\u2012\u2013\u2014\u2015_/'  # separate words
DROPPED = '.,?!;:"\u201c\u201d\u201e\u00ab\u00bb\u2026\u00a1\u00bf\''  # are not spoken


class ErrorRates(NamedTuple):
    """Error rates and counts over all recognised texts together."""

    wer: float  # word errors over the words of the references
    cer: float  # character errors over the characters of the references
    words: int  # number of words of the references
    insertions: int  # number of words
    deletions: int  # number of words
    substitutions: int  # number of words


class Alphabet:
    """Characters and their labels: label n is the n-th character, and the last one is the blank.

    The default alphabet is the notebook's: 0 is the space, 1 to 26 are a to z, and 28 is the
    blank. Unlike in the notebook, which dropped apostrophes and did not use 27, 27 is the
    apostrophe.

    Args:
      labels: the characters in the order of their labels.

    Attributes:
      labels: tuple of str.
      characters: frozenset of str.
      cleaned: table for str.translate that maps text to this alphabet.
    """

    def __init__(self, labels: Iterable[str] = DEFAULT_LABELS):
        self.labels = tuple(labels)
        self.characters = frozenset(self.labels)
        self._label_of = {char: label for label, char in enumerate(self.labels)}
        self.cleaned = _Cleaning(self)

    @property
    def blank(self) -> int:
        """Returns the label of the CTC blank."""
        return len(self.labels)

    @property
    def n_character(self) -> int:
        """Returns the number of classes of the output layer: the labels and the blank."""
        return len(self.labels) + 1

    def __contains__(self, char: str) -> bool:
        return char in self._label_of

    def encode(self, text: str) -> np.ndarray:
        """Returns the labels of a text, int32 [len(text)].

        Raises:
          KeyError: a character is not in the alphabet.
        """
        return np.array([self._label_of[char] for char in text], np.int32)

    def decode(self, labels: Iterable[int]) -> str:
        """Returns the text of labels; blanks, and padding below 0, are left out."""
        return ''.join(self.labels[label] for label in labels if 0 <= label < self.blank)


def load_alphabet(filename: str = '') -> Alphabet:
    """Reads an alphabet from a file.

    The file is in UTF-8 and has one character on each line. A line with a space is the space; a
    line that begins with # is a comment (\\# is the character). A byte order mark, CR LF and empty
    lines at the end are allowed.

    Args:
      filename: path of the file; if it is empty, the default alphabet is returned.
    Raises:
      AlphabetError: the file cannot be read, or a line is not one character that is new.
    """
    if not filename:
        return Alphabet()
    try:
        with files.open_regular(filename, encoding='utf-8-sig', newline=None) as file:
            lines = file.read().split('\n')
    except (OSError, UnicodeDecodeError) as error:
        raise errors.AlphabetError('ds_alphabet: cannot read %s: %s' % (filename, error)) from None
    while lines and not lines[-1]:
        lines.pop()
    labels = []
    for number, line in enumerate(lines, 1):
        if line.startswith('#'):
            continue
        char = unicodedata.normalize('NFC', line[1:] if line == '\\#' else line)
        if len(char) != 1 or char in labels:
            raise errors.AlphabetError(
                'ds_alphabet: %s line %d must hold one character that no other line holds, got %r'
                % (filename, number, line)
            )
        labels.append(char)
    if not labels:
        raise errors.AlphabetError('ds_alphabet: %s holds no characters' % filename)
    return Alphabet(labels)


def clean_transcript(text: str, alphabet: Alphabet) -> tuple[str, list[str]]:
    """Maps a transcript to the characters of the alphabet; no other code changes transcripts.

    Only characters that the alphabet does not hold are changed, in this order: typographic
    apostrophes become plain ones; hyphens, dashes, underscores and slashes become spaces;
    punctuation is dropped; upper case is lowered; accents are removed. Runs of white space become
    one space. Everything else (digits, braces, other scripts) stays and is reported.

    Returns:
      (cleaned text, its characters that the alphabet does not hold, in the order in which they
      occur).
    """
    cleaned = ' '.join(unicodedata.normalize('NFC', text).translate(alphabet.cleaned).split())
    if ' ' not in alphabet:
        cleaned = cleaned.replace(' ', '')
    if alphabet.characters.issuperset(cleaned):
        return cleaned, []
    return cleaned, [char for char in dict.fromkeys(cleaned) if char not in alphabet]


class _Cleaning(dict):
    """A table for str.translate, {code point: cleaned text}, that is filled as characters occur."""

    def __init__(self, alphabet):
        super().__init__()
        self._alphabet = alphabet

    def __missing__(self, code_point):
        self[code_point] = _clean_char(chr(code_point), self._alphabet)
        return self[code_point]


def _clean_char(char, alphabet):
    """Returns the cleaned form of a character; see `clean_transcript`."""
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


def describe_char(char: str) -> str:
    """Returns a character for messages, with its code point: 'с' (U+0441)."""
    return '%r (U+%04X)' % (char, ord(char))


def text_to_char_array(original: str, alphabet: Alphabet | None = None) -> np.ndarray:
    """Returns the labels of a transcript, int32 [n_labels].

    Args:
      original: a cleaned transcript.
      alphabet: None stands for the default one.
    Source: the notebook's function of that name.
    """
    return (alphabet or Alphabet()).encode(original)


def required_steps(labels: Sequence) -> int:
    """Returns the number of time steps that CTC needs for labels or a text: one for each label, and
    one for a blank between two equal neighbours."""
    return len(labels) + int(sum(map(operator.eq, labels[1:], labels[:-1])))


def ctc_label_dense_to_sparse(labels, label_lengths):
    """Turns zero-padded labels into the sparse tensor that CTC operations take.

    Args:
      labels: int32 [B, U].
      label_lengths: int32 [B], number of labels in each row.
    Returns:
      SparseTensor of int32, dense shape [B, U], without the padding.
    Source: the notebook's function of that name, which needed a scan.
    """
    indices = tf.where(tf.sequence_mask(label_lengths, tf.shape(labels)[1]))
    return tf.SparseTensor(
        indices, tf.gather_nd(labels, indices), tf.shape(labels, out_type=tf.int64)
    )


def sparse_tensor_value_to_texts(value, alphabet: Alphabet | None = None) -> list[str]:
    """Returns the text of each of the B rows of labels.

    Args:
      value: SparseTensorValue of integers, dense shape [B, U].
      alphabet: None stands for the default one.
    Source: the notebook's function of that name.
    """
    alphabet = alphabet or Alphabet()
    rows: list[list[int]] = [[] for _ in range(value.dense_shape[0])]
    for (row, _), label in zip(value.indices, value.values):
        rows[row].append(label)
    return [alphabet.decode(row) for row in rows]


def wers(originals: Collection[str], results: Collection[str]) -> tuple[list[float], float]:
    """Computes word error rates, by jiwer.

    Args:
      originals: reference texts, none of them empty.
      results: recognised texts.
    Returns:
      (rates, wer): the rate of each text, and the errors over the words of all texts together.
      The latter is what other toolkits report; the notebook took the mean of the rates instead.
    """
    rates = [jiwer.wer(original, result) for original, result in zip(originals, results)]
    return rates, error_rates(originals, results).wer


def error_rates(originals: Collection[str], results: Collection[str]) -> ErrorRates:
    """Computes the WER and the CER over all texts together, and the counts behind the WER.

    Args:
      originals, results: as in `wers`.
    """
    words = jiwer.process_words(list(originals), list(results))
    return ErrorRates(
        words.wer,
        jiwer.cer(list(originals), list(results)),
        words.hits + words.substitutions + words.deletions,
        words.insertions,
        words.deletions,
        words.substitutions,
    )
