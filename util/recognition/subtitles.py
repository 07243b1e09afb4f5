"""Writes words with times as subtitles, SubRip (.srt) or WebVTT (.vtt)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from util.recognition.alignment import Word

FORMATS = ('srt', 'vtt')
LONGEST_CUE_S = 6.0  # s that a line is shown
LONGEST_LINE = 42  # characters of a line; a cue has two
PAUSE_S = 1.0  # s without a word that end a cue
SHORTEST_CUE_S = 0.7  # s; a shorter cue stays on the screen, up to the next one


class Cue(NamedTuple):
    """A text that is shown from one time to another."""

    start_s: float
    end_s: float
    lines: list[str]


def cues(words: Sequence[Word], separator: str = ' ') -> list[Cue]:
    """Divides words into cues of at most two lines.

    A cue ends before a pause of PAUSE_S, before it would last longer than LONGEST_CUE_S, and
    before its text would need a third line. A word that is longer than a line has one of its own.

    Args:
      words: words with times, in their order.
      separator: what stands between two words of a line.
    """
    found: list[Cue] = []
    for word in words:
        assert word.start_s is not None and word.end_s is not None
        lines = found and _with_word(found[-1].lines, word.word, separator)
        if (
            lines
            and word.start_s - found[-1].end_s < PAUSE_S
            and word.end_s - found[-1].start_s <= LONGEST_CUE_S
        ):
            found[-1] = Cue(found[-1].start_s, word.end_s, lines)
        else:
            found.append(Cue(word.start_s, word.end_s, [word.word]))
    starts = [cue.start_s for cue in found[1:]] + [float('inf')]
    return [
        cue._replace(end_s=max(cue.end_s, min(cue.start_s + SHORTEST_CUE_S, start)))
        for cue, start in zip(found, starts)
    ]


def _with_word(lines, word, separator):
    """Returns the lines of a cue with a further word; None if they do not hold it."""
    longer = lines[-1] + separator + word
    if len(longer) <= LONGEST_LINE:
        return [*lines[:-1], longer]
    return [*lines, word] if len(lines) == 1 else None


def write(words: Sequence[Word], kind: str, separator: str = ' ') -> str:
    """Returns the text of a file of subtitles.

    Args:
      words, separator: as in `cues`.
      kind: one of FORMATS.
    """
    return ''.join(_file_lines(cues(words, separator), kind))


def _file_lines(found: list[Cue], kind: str) -> Iterator[str]:
    """Yields the lines of a file of subtitles, each with its end."""
    if kind == 'vtt':
        yield 'WEBVTT\n\n'
    for number, cue in enumerate(found, 1):
        if kind == 'srt':
            yield '%d\n' % number
        yield '%s --> %s\n' % (_time(cue.start_s, kind), _time(cue.end_s, kind))
        for line in cue.lines:
            yield (_escaped(line) if kind == 'vtt' else line) + '\n'
        yield '\n'


def _time(seconds, kind):
    """Returns a time as hh:mm:ss and milliseconds, which SubRip sets off by a comma."""
    whole, ms = divmod(round(1000 * seconds), 1000)
    return '%02d:%02d:%02d%s%03d' % (
        whole // 3600,
        whole // 60 % 60,
        whole % 60,
        ',' if kind == 'srt' else '.',
        ms,
    )


def _escaped(line):
    """Returns a line in which the characters that WebVTT reserves are escaped."""
    return line.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')
