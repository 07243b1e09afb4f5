"""util.recognition.joining: no word is lost or doubled where two parts overlap."""

import pytest

from util.recognition import joining
from util.recognition.alignment import Word

SHARED = (18.0, 20.0)  # s that both parts hold


def words(**times):
    """Words of 0.2 s whose middles are at these times; the text is the name without digits."""
    return [
        Word(name.rstrip('0123456789'), time - 0.1, time + 0.1, 0.5) for name, time in times.items()
    ]


def without_times(sentence):
    """Words of a model that gives no times."""
    return [Word(word, None, None, None) for word in sentence.split()]


def joined(left, right):
    """The text of both parts."""
    i, j = joining.joint(left, right, SHARED)
    return ' '.join(word.word for word in [*left[:i], *right[j:]])


def test_words_that_both_parts_have_are_kept_once():
    left = words(she=16.0, had=17.0, your=18.4, dark=19.1)
    right = words(your=18.4, dark=19.15, suit=20.4)
    assert joined(left, right) == 'she had your dark suit'


def test_words_that_the_cut_goes_through_are_dropped():
    left = words(she=17.0, your=18.6, dark=19.3, su=19.9)
    right = words(ur=18.1, your=18.65, dark=19.25, suit=20.0)
    assert joined(left, right) == 'she your dark suit'


def test_a_repeated_word_is_told_apart_by_its_time():
    left = words(one=18.2, one2=18.8, one3=19.4)
    right = words(one=18.8, one2=19.4, one3=20.0)
    assert joined(left, right) == 'one one one one'


def test_without_a_common_word_the_middle_of_the_overlap_is_the_joint():
    left = words(a=17.0, b=18.5, c=19.5)
    right = words(d=18.6, e=19.4, f=21.0)
    assert joined(left, right) == 'a b e f'


def test_a_common_word_at_another_time_is_no_joint():
    left = words(a=17.0, x=18.3, c=19.7)
    right = words(b=18.6, x=19.4, d=21.0)
    assert joined(left, right) == 'a x x d'


@pytest.mark.parametrize('left, right', (([], words(a=19.5)), (words(a=18.5), []), ([], [])))
def test_a_part_without_words(left, right):
    assert joined(left, right) == ('a' if left or right else '')


@pytest.mark.parametrize(
    'left, right, expected',
    (
        ('she had your dark', 'your dark suit', 'she had your dark suit'),
        ('she had your dar', 'had your dark suit', 'she had your dark suit'),
        ('she had your', 'ad your dark', 'she had your dark'),
        ('she had your dar', 'ad your dark suit', 'she had your dark suit'),
        ('one two', 'three four', 'one two three four'),
        ('', 'three four', 'three four'),
        ('one two', '', 'one two'),
        ('one', 'one', 'one'),
    ),
)
def test_words_without_times_are_joined_by_their_text(left, right, expected):
    assert joined(without_times(left), without_times(right)) == expected
