"""ARPA files: n-gram language models as text, the format that all toolkits read and write.

An ARPA file lists the n-grams of each order with the logarithm to base 10 of their probability and,
below the highest order, of their backoff weight:
    \\data\\
    ngram 1=4
    ngram 2=2

    \\1-grams:
    -1.2	<unk>	0
    0	<s>	-0.3
    -0.5	</s>	0
    -0.4	one	-0.2

    \\2-grams:
    -0.1	<s> one
    -0.2	one </s>

    \\end\\
Empty lines, and lines before \\data\\ that begin with #, are passed over. A file whose name ends in
.gz is compressed.
"""

import collections
import contextlib
import gzip
import math
import os
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from util import errors, files

BEGIN, END, UNKNOWN = '<s>', '</s>', '<unk>'
SPECIAL = (BEGIN, END, UNKNOWN)
GZIPPED = '.gz'  # ending of names
MISSING_UNKNOWN = -100.0  # log10 probability of unknown words in a model without <unk>, as KenLM's
MAX_ORDER = 20
DECIMALS = 7  # of the numbers that are written; the float32 of KenLM holds about as much
CHUNK = 10000  # n-grams that are written at once
COUNT_LINE = re.compile(rb'ngram\s+(\d+)\s*=\s*(\d+)')


class Ngrams(NamedTuple):
    """The n-grams of one order."""

    words: np.ndarray  # int32 [count, order], indices of the vocabulary
    log_probs: np.ndarray  # float64 [count], log10 of the probability of the last word
    backoffs: np.ndarray  # float64 [count], log10 of the backoff weight; 0 at the highest order


class Model(NamedTuple):
    """An n-gram language model; orders[n - 1] are its n-grams."""

    vocabulary: list[str]
    orders: list[Ngrams]


def is_gzipped(path: str) -> bool:
    """Tells whether a file is compressed, by its name."""
    return path.lower().endswith(GZIPPED)


# Reading


def unigrams(path: str) -> list[str]:
    """Returns the words of an ARPA file in its order, without <s>, </s> and <unk>.

    What comes after the unigrams is not read.

    Raises:
      LanguageError: the file cannot be read or is not an ARPA file; the message names file and
        line.
    """
    with _reading(path) as lines:
        counts = lines.header()
        found = [lines.decoded(words[0]) for _, words, _ in lines.section(1, counts)]
        lines.distinct(found)
    return [word for word in found if word not in SPECIAL]


def read(path: str) -> Model:
    """Reads an ARPA file.

    Raises:
      LanguageError: as `unigrams`.
    """
    with _reading(path) as lines:
        counts = lines.header()
        vocabulary: list[str] = []
        indices: dict[bytes, int] = {}
        orders = []
        for order in range(1, len(counts) + 1):
            columns = array('i'), array('d'), array('d')
            for log_prob, words, backoff in lines.section(order, counts):
                if order == 1:
                    indices[words[0]] = len(vocabulary)
                    vocabulary.append(lines.decoded(words[0]))
                columns[0].extend(lines.indices(words, indices))
                columns[1].append(log_prob)
                columns[2].append(backoff)
            if order == 1:
                lines.distinct(vocabulary)
            orders.append(_ngrams(order, *columns))
        lines.end()
    return Model(vocabulary, orders)


def _ngrams(order, words, log_probs, backoffs):
    """Returns arrays as Ngrams."""
    return Ngrams(
        np.array(words, np.int32).reshape(-1, order), np.array(log_probs), np.array(backoffs)
    )


@contextlib.contextmanager
def _reading(path: str) -> 'Iterator[_Lines]':
    """Opens an ARPA file for the block; errors of reading become LanguageErrors."""
    try:
        with files.open_regular(path, mode='rb') as raw, contextlib.ExitStack() as stack:
            file: Any = raw
            if is_gzipped(path):
                file = stack.enter_context(gzip.GzipFile(fileobj=raw))
            yield _Lines(path, file)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, 'strerror', None) or error
        raise errors.LanguageError('%s cannot be read: %s' % (path, reason)) from None


class _Lines:
    """The lines of an ARPA file.

    Args:
      path: for messages.
      file: the lines as bytes.
    """

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self._path, self._file = path, file
        self._number = 0

    def error(self, expected: str, line: bytes | None) -> errors.LanguageError:
        """Returns the error for a line; None stands for the end of the file."""
        found = 'the end of the file' if line is None else '%.60r' % line.decode('utf-8', 'replace')
        return errors.LanguageError(
            '%s line %d: expected %s, got %s' % (self._path, self._number, expected, found)
        )

    def next(self) -> bytes | None:
        """Returns the next line that is not empty, without its end; None at the end."""
        for line in self._file:
            self._number += 1
            line = line.strip()
            if line:
                return line
        return None

    def header(self) -> list[int]:
        """Reads up to the heading of the unigrams; returns the number of n-grams of each order."""
        line = self.next()
        while line is not None and line.startswith(b'#'):
            line = self.next()
        if line != b'\\data\\':
            raise self.error('\\data\\, with which an ARPA file begins', line)
        counts: list[int] = []
        while True:
            line = self.next()
            match = COUNT_LINE.fullmatch(line or b'')
            if not match:
                break
            if int(match[1]) != len(counts) + 1 or len(counts) == MAX_ORDER:
                raise self.error('ngram %d=COUNT' % (len(counts) + 1), line)
            counts.append(int(match[2]))
        if not counts or not counts[0]:
            raise self.error('ngram 1=COUNT', line)
        if line != b'\\1-grams:':
            raise self.error('\\1-grams:', line)
        return counts

    def section(self, order: int, counts: list[int]) -> Iterator[tuple[float, list[bytes], float]]:
        """Yields (log10 probability, words, log10 backoff weight) of the n-grams of an order, and
        reads the heading of what follows."""
        has_backoff = order < len(counts)
        expected = 'a log10 probability of at most 0, %s%s' % (
            'a word' if order == 1 else '%d words' % order,
            ' and perhaps a log10 backoff weight' if has_backoff else '',
        )
        for _ in range(counts[order - 1]):
            line = self.next()
            if line is None or line.startswith(b'\\'):
                raise self.error('another of %d %d-grams' % (counts[order - 1], order), line)
            fields = line.split()
            width = len(fields) - 1 - order
            if width != 0 and not (width == 1 and has_backoff):
                raise self.error(expected, line)
            log_prob, backoff = _number(fields[0]), _number(fields[-1]) if width else 0.0
            if not log_prob <= 0 or not math.isfinite(backoff):  # NaN is not, either
                raise self.error(expected, line)
            yield log_prob, fields[1 : order + 1], backoff
        heading = '\\%d-grams:' % (order + 1) if has_backoff else '\\end\\'
        line = self.next()
        if line != heading.encode():
            raise self.error('%s after %d %d-grams' % (heading, counts[order - 1], order), line)

    def decoded(self, word: bytes) -> str:
        """Returns a word as text."""
        try:
            return word.decode('utf-8')
        except UnicodeDecodeError:
            raise self.error('a word in UTF-8', word) from None

    def indices(self, words: list[bytes], known: dict[bytes, int]) -> list[int]:
        """Returns the index of each word; all must be among the unigrams."""
        try:
            return [known[word] for word in words]
        except KeyError as error:
            raise self.error('words that are among the unigrams', error.args[0]) from None

    def distinct(self, words: list[str]) -> None:
        """Checks that no word occurs twice among the unigrams."""
        if len(set(words)) < len(words):
            twice = collections.Counter(words).most_common(1)[0][0]
            raise errors.LanguageError(
                '%s: the unigram %r is listed twice, expected once' % (self._path, twice)
            )

    def end(self) -> None:
        """Checks that nothing follows."""
        line = self.next()
        if line is not None:
            raise self.error('nothing after \\end\\', line)


def _number(field):
    """Returns a field as a number; NaN if it is none."""
    try:
        return float(field)
    except ValueError:
        return math.nan


# Writing


def write(path: str, model: Model) -> None:
    """Writes an ARPA file beside its place and renames it; compressed if its name ends in .gz.

    Raises:
      LanguageError: the file cannot be written; an earlier file of this name is left as it was.
    """
    temporary = '%s.%d.tmp' % (path, os.getpid())
    try:
        try:
            with open(temporary, 'wb') as raw, contextlib.ExitStack() as stack:
                file: Any = raw
                if is_gzipped(path):  # without a time, so that equal models make equal files
                    file = stack.enter_context(gzip.GzipFile('', 'wb', fileobj=raw, mtime=0))
                for part in _parts(model):
                    file.write(part.encode('utf-8'))
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
    except OSError as error:
        raise errors.LanguageError('%s cannot be written: %s' % (path, error.strerror)) from None


def _parts(model):
    """Yields the text of an ARPA file in parts."""
    yield '\\data\\\n'
    for order, ngrams in enumerate(model.orders, 1):
        yield 'ngram %d=%d\n' % (order, len(ngrams.words))
    vocabulary = np.array(model.vocabulary, object)
    for order, ngrams in enumerate(model.orders, 1):
        yield '\n\\%d-grams:\n' % order
        for start in range(0, len(ngrams.words), CHUNK):
            chunk = Ngrams(*[column[start : start + CHUNK] for column in ngrams])
            yield ''.join(_lines(chunk, vocabulary, order < len(model.orders)))
    yield '\n\\end\\\n'


def _lines(ngrams, vocabulary, has_backoff):
    """Yields the lines of n-grams."""
    rows = zip(vocabulary[ngrams.words].tolist(), *(_texts(each) for each in ngrams[1:]))
    for words, log_prob, backoff in rows:
        end = '\t' + backoff if has_backoff else ''
        yield '%s\t%s%s\n' % (log_prob, ' '.join(words), end)


def _texts(values):
    """Returns each number as text with up to seven decimals."""
    rounded = np.round(values, DECIMALS) + 0.0  # so that there is no -0
    return ['%.*f' % (DECIMALS, value) if value else '0' for value in rounded.tolist()]


# Scoring


class Scorer:
    """Computes the probability of sentences.

    Args:
      model: Model.
    """

    def __init__(self, model: Model) -> None:
        self._indices = {word: index for index, word in enumerate(model.vocabulary)}
        self._order = len(model.orders)
        self._ngrams = {
            tuple(words): values
            for ngrams in model.orders
            for words, *values in zip(*(column.tolist() for column in ngrams))
        }

    def __contains__(self, word: str) -> bool:
        """Tells whether the model knows a word."""
        return word in self._indices

    def log_prob(self, context: Sequence[str], word: str) -> float:
        """Returns log10 of the probability of a word after other words, the first of which is <s>
        at the start of a sentence.

        The longest known n-gram counts, times the backoff weights of the longer contexts.
        """
        unknown = self._indices.get(UNKNOWN, -1)
        words = tuple(self._indices.get(each, unknown) for each in (*context, word))
        words = words[-self._order :]
        total = 0.0
        while words not in self._ngrams:
            if len(words) == 1:
                return total + MISSING_UNKNOWN
            total += self._ngrams.get(words[:-1], (0.0, 0.0))[1]
            words = words[1:]
        return total + self._ngrams[words][0]

    def sentence(self, words: Sequence[str]) -> float:
        """Returns log10 of the probability of a sentence, with its start and its end."""
        sequence = [BEGIN, *words, END]
        return sum(self.log_prob(sequence[:i], sequence[i]) for i in range(1, len(sequence)))
