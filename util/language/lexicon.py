"""The words that may be recognised: from a file, or from a language model."""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from util import errors, files, text

log = logging.getLogger('DeepSpeech')

SPACE = ' '
SHOWN = 3  # words that a message names


class Lexicon(NamedTuple):
    """Words of an alphabet; all lists have one item a word.

    In an alphabet without a space, each character is a word, as everywhere in this project.
    """

    words: list[str]  # as texts have them
    names: list[str]  # as the language model has them
    indices: dict[str, int]  # {word: position in the lists}


def make(found: Iterable[str], alphabet: text.Alphabet, origin: str) -> Lexicon:
    """Makes a lexicon of words as a file has them.

    The words are mapped to the alphabet as transcripts are. Those that cannot be written as one
    word of the alphabet are left out, which the log says.

    Args:
      found: words; of those that are written alike, the first one counts.
      alphabet: text.Alphabet.
      origin: where the words come from, for messages.
    Raises:
      LanguageError: no word can be used.
    """
    names: dict[str, str] = {}
    left_out = []
    for name in found:
        word, unknown = text.clean_transcript(name, alphabet)
        if unknown or not is_word(word, alphabet):
            left_out.append(name)
        else:
            names.setdefault(word, name)
    if not names:
        raise errors.LanguageError(
            '%s has no word of the alphabet %r' % (origin, ''.join(alphabet.labels))
            + _examples(left_out)
        )
    if left_out:
        log.warning(
            '%s: %d of %d words are left out, as the alphabet cannot write them%s',
            origin,
            len(left_out),
            len(left_out) + len(names),
            _examples(left_out),
        )
    words = list(names)
    return Lexicon(words, list(names.values()), {word: i for i, word in enumerate(words)})


def is_word(word: str, alphabet: text.Alphabet) -> bool:
    """Tells whether a text in the alphabet is one word."""
    if SPACE in alphabet:
        return bool(word) and SPACE not in word
    return len(word) == 1


def split(words: str, alphabet: text.Alphabet) -> list[str]:
    """Returns the words of a text in the alphabet."""
    return words.split(SPACE) if words and SPACE in alphabet else list(words)


def join(words: Iterable[str], alphabet: text.Alphabet) -> str:
    """Returns the text of words."""
    return (SPACE if SPACE in alphabet else '').join(words)


def _examples(words):
    """Returns the end of a message that names some words; '' if there are none."""
    shown = ', '.join(map(repr, words[:SHOWN]))
    return ': %s%s' % (shown, ', ...' if len(words) > SHOWN else '') if words else ''


def read(path: str, setting: str) -> list[str]:
    """Reads a file with a word on each line, in UTF-8.

    Empty lines, and lines that begin with #, are passed over.

    Args:
      path: the file.
      setting: the setting that names it, for the message.
    Raises:
      LanguageError: the file cannot be read.
    """
    lines = read_lines(path, setting)
    return [line for line in lines if line and not line.startswith('#')]


def read_lines(path: str, setting: str) -> list[str]:
    """Returns the lines of a text file in UTF-8, without white space around them.

    Args, Raises: as `read`.
    """
    try:
        with files.open_regular(path, encoding='utf-8-sig') as file:
            return [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, 'strerror', None) or error
        raise errors.LanguageError('%s: cannot read %s: %s' % (setting, path, reason)) from None
