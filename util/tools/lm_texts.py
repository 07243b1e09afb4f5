"""The texts that `build_lm` reads: sentences, mapped to an alphabet as transcripts are."""

import collections
import contextlib
import gzip
import re
import sys
import zlib
from collections.abc import Iterator

from util import errors, files, log as run_log, text
from util.corpora import manifests
from util.importers import an4
from util.language import arpa, lexicon as lexicons

STANDARD_INPUT = '-'
N_EXAMPLES = 3  # sentences that are named for each reason
PROGRESS_LINES = 5000
# A line of a transcription as SphinxTrain reads it: <s> at the start, or an id at the end
SPHINX = re.compile(r'\s*<s>.*|.*\([^()\s]*\d[^()\s]*\)\s*', re.I)


class Sentences:
    """The sentences of texts and manifests, as lists of words.

    Those with characters that are not in the alphabet are left out and remembered.

    Args:
      paths: text files with a sentence a line, manifests, and STANDARD_INPUT.
      alphabet: text.Alphabet; without a space in it, each character is a word.
    """

    def __init__(self, paths: list[str], alphabet: text.Alphabet) -> None:
        self._paths, self._alphabet = paths, alphabet
        self._left_out: dict[str, list[str]] = collections.defaultdict(list)  # {reason: examples}
        self._counts: collections.Counter[str] = collections.Counter()  # {reason: sentences}

    def __iter__(self) -> Iterator[list[str]]:
        """Yields the words of each sentence.

        Raises:
          DataError: a text cannot be read; the message names file and line.
        """
        bar = run_log.Bar('reading', None, unit=' lines', stream=sys.stderr)
        with contextlib.closing(bar):
            for path in self._paths:
                for number, line in enumerate(_read(path), 1):
                    if number % PROGRESS_LINES == 0:
                        bar.update(PROGRESS_LINES)
                    words = self._words(line, '%s line %d' % (path, number))
                    if words:
                        yield words

    def _words(self, line, place):
        """Returns the words of a sentence; none if it is empty or left out."""
        cleaned, unknown = text.clean_transcript(line, self._alphabet)
        for char in unknown:
            reason = 'character outside the alphabet: %s' % text.describe_char(char)
            self._counts[reason] += 1
            if len(self._left_out[reason]) < N_EXAMPLES:
                self._left_out[reason].append(place)
        self._counts[''] += bool(unknown)
        return [] if unknown else lexicons.split(cleaned, self._alphabet)

    def report(self) -> Iterator[str]:
        """Yields lines that say what was left out."""
        if self._counts['']:
            yield 'left out: %d sentences' % self._counts['']
            reasons = self._counts.most_common()
            for reason, count in [each for each in reasons if each[0]]:
                yield '%7d %s, as in %s' % (count, reason, ', '.join(self._left_out[reason]))


def _read(path):
    """Yields the sentences of a text or of a manifest as they are written there."""
    if path.lower().endswith(manifests.ENDINGS):
        for utterance in manifests.read_manifest(path):
            yield utterance.transcript or ''
        return
    for line in _lines(path):
        yield an4.parse_line(line)[0] if SPHINX.fullmatch(line) else line


def _lines(path: str) -> Iterator[str]:
    """Yields the lines of a text in UTF-8, without a byte order mark.

    Raises:
      DataError: the text cannot be read.
    """
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, 1):
                yield line.decode('utf-8-sig' if number == 1 else 'utf-8').rstrip('\r\n')
    except UnicodeDecodeError as error:
        raise errors.DataError(
            '%s line %d is not text in UTF-8: %s' % (path, number, error)
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, 'strerror', None) or error
        raise errors.DataError('%s cannot be read: %s' % (path, reason)) from None


@contextlib.contextmanager
def _opened(path):
    """Opens a text for the block, the standard input or a file, which may be gzipped."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with files.open_regular(path, mode='rb') as file:
        if arpa.is_gzipped(path):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield unpacked
        else:
            yield file


def read_vocabulary(path: str, alphabet: text.Alphabet) -> list[str]:
    """Returns the words of a file with a word on each line, mapped to the alphabet.

    Raises:
      LanguageError: the file cannot be read, or holds no word of the alphabet.
    """
    found = lexicons.read(path, '--vocabulary')
    return lexicons.make(found, alphabet, '--vocabulary: ' + path).words
