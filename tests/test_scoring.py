"""util.recognition.scoring: the figures of a manifest, as the training reports them."""

import math

from util import records
from util.recognition import scoring
from util.recognition.inputs import Task
from util.recognition.pipeline import Transcript

UTTERANCE = records.Utterance('a.wav', 'a.wav')


def scored(*rows):
    """A Score of (reference, text, loss) rows, and what `add` returned for each."""
    score = scoring.Score()
    return score, [
        score.add(Task(UTTERANCE, 'm.csv', reference, 'why not'), Transcript(text, 1.0, [], loss))
        for reference, text, loss in rows
    ]


def test_figures():
    score, returned = scored(('one two', 'one too', 2.0), ('three', 'three four', 4.0))
    assert returned == [None, None]
    assert score.figures() == ('loss 3.000000, WER 66.67% [2/3: 1 ins, 0 del, 1 sub], CER 50.00%')


def test_the_loss_is_left_out_unless_it_is_known_of_all():
    score, _ = scored(('one', 'one', None), ('two', 'two', 1.0))
    assert score.figures() == 'WER 0.00% [0/2: 0 ins, 0 del, 0 sub], CER 0.00%'


def test_what_training_would_not_use_does_not_count():
    score, returned = scored((None, 'x', None), ('much too long', 'x', math.inf), ('a', 'a', 1.0))
    assert returned == ['why not', 'too short for its transcript', None]
    assert 'WER 0.00% [0/1:' in score.figures()


def test_nothing_to_compare():
    score, _ = scored((None, 'x', None))
    assert score.figures() == 'no text could be compared with its transcript'
