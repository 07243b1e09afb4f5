"""N-gram models, which KenLM reads and flashlight-text brings along: opening and asking them."""

import contextlib
import gzip
import math
import mmap
import os
import re
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from util import config as settings, errors, files
from util.language import arpa

INSTALL = 'pip install -r requirements-lm.txt (Python 3.10 to 3.12)'
LN_10 = math.log(10.0)  # KenLM's logarithms have the base 10
MAGIC_OF_GZIP, MAGIC_OF_BINARY = b'\x1f\x8b', b'mmap lm http://kheafield.com/code'
# Of a binary's header: whether it lists its words, and their number with <s>, </s> and <unk>
BINARY_HEADER, BINARY_HEADER_AT = '<?7xQ', 100
SHORTEST_BINARY = BINARY_HEADER_AT + struct.calcsize(BINARY_HEADER)  # bytes
ARPA_BEGINS = re.compile(rb'\s*(#.*\s*)*\\data\\|\s*#')  # comments may come before


def flashlight() -> Any:
    """Returns the module flashlight.lib.text.decoder.

    Raises:
      LanguageError: it is not installed.
    """
    try:
        from flashlight.lib.text import decoder
    except ImportError as error:
        raise errors.LanguageError(
            'a language model, a lexicon or a grammar needs flashlight-text: %s (%s)'
            % (INSTALL, errors.first_line(error))
        ) from None
    return decoder


class LanguageModel:
    """An n-gram model of KenLM. Its logarithms are natural. Several threads may use it, each with
    states of its own.

    Args:
      handle: flashlight's KenLM, made with a dictionary of the words and <unk>.
      n_words: number of the words, whose indices are 0 to n_words - 1.
    Attributes:
      handle: as above.
      unknown: index of <unk>.
    """

    def __init__(self, handle: Any, n_words: int) -> None:
        self.handle, self.unknown = handle, n_words

    def start(self) -> Any:
        """Returns the state at the start of a sentence."""
        return self.handle.start(False)

    def word(self, state: Any, index: int) -> tuple[Any, float]:
        """Returns the state behind a word, and the logarithm of the probability of the word."""
        after, score = self.handle.score(state, index)
        return after, LN_10 * score

    def finish(self, state: Any) -> float:
        """Returns the logarithm of the probability that the sentence ends."""
        return LN_10 * self.handle.finish(state)[1]

    def alone(self, index: int) -> float:
        """Returns the logarithm of the probability of a word without a history."""
        return LN_10 * self.handle.score(self.handle.start(True), index)[1]


@contextlib.contextmanager
def unpacked(path: str, setting: str) -> Iterator[tuple[str, bool]]:
    """Yields (path of the plain file, whether it is an ARPA file) of a language model.

    A file that is compressed by gzip is unpacked to a temporary file for the block.

    Raises:
      LanguageError: the file cannot be read, or it is neither an ARPA file nor a binary of KenLM.
    """
    with contextlib.ExitStack() as stack:
        try:
            with files.open_regular(path, mode='rb') as file:
                packed = file.read(len(MAGIC_OF_GZIP)) == MAGIC_OF_GZIP
            plain = stack.enter_context(_unzipped(path)) if packed else path
            with files.open_regular(plain, mode='rb') as file:
                begin = file.read(4096)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, 'strerror', None) or error
            raise errors.LanguageError('%s: cannot read %s: %s' % (setting, path, reason)) from None
        is_arpa = bool(ARPA_BEGINS.match(begin))
        if not is_arpa and not (
            begin.startswith(MAGIC_OF_BINARY) and len(begin) >= SHORTEST_BINARY
        ):
            raise errors.LanguageError(
                '%s: %s is neither an ARPA file, which begins with \\data\\, nor a binary of KenLM'
                % (setting, path)
            )
        yield plain, is_arpa


@contextlib.contextmanager
def _unzipped(path):
    """Yields the path of a temporary file with the content of a gzip file."""
    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, 'model.arpa')
        with gzip.open(path) as packed, open(plain, 'wb') as file:
            shutil.copyfileobj(packed, file)
        yield plain


def words_of(plain: str, is_arpa: bool, path: str) -> list[str] | None:
    """Returns the words of a model, without <s>, </s> and <unk>; None if it is a binary that does
    not list them.

    Args:
      plain, is_arpa: as `unpacked` yields them.
      path: the file as the user knows it.
    Raises:
      LanguageError: the ARPA file is damaged.
    """
    if not is_arpa:
        return _words_of_binary(plain)
    try:
        return arpa.unigrams(plain)
    except errors.LanguageError as error:
        raise errors.LanguageError(str(error).replace(plain, path)) from None


def _words_of_binary(path):
    """Returns the words of a binary, which stand at its end, each with a 0 behind it; None if they
    do not."""
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        has_words, n_words = struct.unpack_from(BINARY_HEADER, content, BINARY_HEADER_AT)
        begin = content.rfind(arpa.UNKNOWN.encode() + b'\0') if has_words else -1
        words = content[begin:].split(b'\0')[:-1] if begin >= 0 else []
    if len(words) != n_words:
        return None
    with contextlib.suppress(UnicodeDecodeError):
        return [word for word in map(bytes.decode, words) if word not in arpa.SPECIAL]
    return None


def open_model(plain: str, words: Sequence[str], path: str, setting: str) -> LanguageModel:
    """Opens a model.

    Args:
      plain: path of the file, not compressed.
      words: words as the model has them, in the order of their indices; those that it does not have
        count as <unk>.
      path: the file as the user knows it.
      setting: the setting that names it.
    Raises:
      LanguageError: KenLM cannot read the file, or is not installed.
    """
    flashlight()
    try:
        from flashlight.lib.text.decoder.kenlm import KenLM
        from flashlight.lib.text.dictionary import Dictionary
    except ImportError as error:
        raise errors.LanguageError(
            '%s: this flashlight-text has no KenLM: %s (%s)'
            % (setting, INSTALL, errors.first_line(error))
        ) from None
    dictionary = Dictionary()
    for word in (*words, arpa.UNKNOWN):
        dictionary.add_entry(word)
    try:
        with settings.silenced_stderr():  # KenLM draws a progress bar
            return LanguageModel(KenLM(plain, dictionary), len(words))
    except RuntimeError as error:
        raise errors.LanguageError(
            '%s: KenLM cannot read %s: %s' % (setting, path, _reason(error).replace(plain, path))
        ) from None


def _reason(error):
    """Returns the reason in a message of KenLM as one line, without the place in its source."""
    message = ' '.join(str(error).split())
    return re.sub(r'^\S+ in .*? threw \w+( because `.*?\'\.?)?\.? ?', '', message) or message
