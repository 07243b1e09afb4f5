"""util.recognition.subtitles: cues and both kinds of files."""

from util.recognition import subtitles
from util.recognition.alignment import Word


def spoken(sentence, start_s=0.0, word_s=0.5):
    """Words that follow one another without a pause."""
    return [
        Word(word, start_s + i * word_s, start_s + (i + 1) * word_s, 0.5)
        for i, word in enumerate(sentence.split())
    ]


def test_srt():
    words = [*spoken('one two', 1.0), Word('three', 3661.2345, 3662.5, 1.0)]
    assert subtitles.write(words, 'srt') == (
        '1\n00:00:01,000 --> 00:00:02,000\none two\n\n2\n01:01:01,234 --> 01:01:02,500\nthree\n\n'
    )


def test_vtt_escapes_what_it_reserves():
    assert subtitles.write(spoken('a<b & c>'), 'vtt') == (
        'WEBVTT\n\n00:00:00.000 --> 00:00:01.500\na&lt;b &amp; c&gt;\n\n'
    )


def test_without_words_there_are_no_cues():
    assert subtitles.write([], 'srt') == ''
    assert subtitles.write([], 'vtt') == 'WEBVTT\n\n'


def test_a_cue_has_two_lines_of_limited_length():
    found = subtitles.cues(spoken('incomprehensibilities ' * 5, word_s=0.1))
    assert [len(cue.lines) for cue in found] == [2, 2, 1]
    found = subtitles.cues(spoken('abcdefghi ' * 9, word_s=0.1))
    assert [cue.lines for cue in found] == [
        ['abcdefghi abcdefghi abcdefghi abcdefghi'] * 2,
        ['abcdefghi'],
    ]


def test_a_word_longer_than_a_line_is_not_cut():
    found = subtitles.cues(spoken('a %s b' % ('x' * 50)))
    assert [cue.lines for cue in found] == [['a', 'x' * 50], ['b']]


def test_a_cue_ends_at_a_pause_and_after_some_seconds():
    words = [*spoken('one two', 0.0), *spoken('three four', 2.1)]
    assert [cue.lines for cue in subtitles.cues(words)] == [['one two'], ['three four']]
    found = subtitles.cues(spoken('a ' * 20, word_s=0.5))
    assert [cue.end_s - cue.start_s for cue in found] == [6.0, 4.0]


def test_a_short_cue_stays_up_to_the_next_one():
    words = [Word('a', 0.0, 0.1, 1.0), Word('b', 1.2, 1.3, 1.0)]
    assert [(cue.start_s, cue.end_s) for cue in subtitles.cues(words)] == [(0.0, 0.7), (1.2, 1.9)]


def test_an_alphabet_without_spaces():
    assert [cue.lines for cue in subtitles.cues(spoken('x y z'), '')] == [['xyz']]
