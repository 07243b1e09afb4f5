"""util.run.reports: the WER report, results of towers, figures of a pass, lines of the log."""

import math

import numpy as np
import pytest

from helpers import load_config
from util import records, text
from util.run import decoding, reports, schedule
from util.tf1 import tf


def test_report_has_the_notebooks_form(caplog):
    caplog.set_level('INFO')
    results = (
        ['go', 'turn it on', 'all right', 'stay'],
        ['no', 'turn on', 'all right', 'stay'],
        [1.0, 0.3, 0.0, 0.0],
        [5.5, 2.25, 1.0, 9.0],
    )
    wer = reports.calculate_and_print_wer_report('Test', results, report_count=2)
    assert wer == pytest.approx(2 / 7)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        'Test WER: 0.285714',
        '-' * 80,
        '    WER:    0.333333',
        '    loss:   2.250000',
        '    source: "turn it on"',
        '    result: "turn on"',
        '-' * 80,
        '    WER:    1.000000',
        '    loss:   5.500000',
        '    source: "go"',
        '    result: "no"',
    ]


def test_report_takes_the_lowest_losses(caplog):
    caplog.set_level('INFO')
    results = (['a', 'b', 'c'], ['x', 'y', 'z'], [1.0] * 3, [3.0, 1.0, 2.0])
    reports.calculate_and_print_wer_report('Test', results, report_count=2)
    shown = [r.getMessage() for r in caplog.records if 'source' in r.getMessage()]
    assert shown == ['    source: "b"', '    source: "c"']


def test_idle_towers_add_no_results():
    sparse = tf.SparseTensorValue(np.array([[0, 0]]), np.array([1]), np.array([1, 1]))
    tower = decoding.Decoded(np.array([2.0]), np.array([0.5]), sparse, sparse, 1)
    results = reports.collect_results([tower, tower._replace(count=0)], text.Alphabet())
    assert results == (['a'], ['a'], [0.5], [2.0])


def test_results_are_joined_in_their_order():
    parts = [
        reports.Results(['a', 'b'], ['x', 'y'], [1.0, 0.5], [3.0, 4.0]),
        reports.Results(['c'], ['c'], [0.0], [5.0]),
    ]
    assert reports.join_results(parts) == (
        ['a', 'b', 'c'],
        ['x', 'y', 'c'],
        [1.0, 0.5, 0.0],
        [3.0, 4.0, 5.0],
    )


class Feed:
    waited = 2.0


def step(*corpora):
    return records.Step(
        0,
        [
            records.Example(records.Utterance('', '', corpus=corpus), 'a', 7, 1.5)
            for corpus in corpora
        ],
    )


def test_a_pass_adds_up_corpus_by_corpus():
    tally = reports.Tally(Feed)
    assert math.isnan(tally.loss)
    tally.add(step('one', 'two'), 6.0)
    tally.add(step('one'), 3.0)
    results = reports.Results(
        ['go on', 'stop', 'go'], ['go', 'stop', 'no'], [0.5, 0.0, 1.0], [2.0, 4.0, 3.0]
    )
    outcome = tally.outcome(results)
    assert (outcome.loss, outcome.label_error_rate) == (3.0, 0.5)
    assert outcome.rates.wer == 0.5 and outcome.audio_seconds == 4.5 and outcome.waited == 0
    assert [
        (part.name, part.loss, part.rates.wer, part.n_utterances) for part in outcome.corpora
    ] == [('one', 2.5, pytest.approx(2 / 3), 2), ('two', 4.0, 0.0, 1)]
    assert reports.figures(outcome) == ('loss 3.000000, WER 50.00% [2/4: 0 ins, 1 del, 1 sub]')
    assert not tally.outcome(results, by_corpus=False).corpora


def test_without_decoding_there_are_no_rates():
    tally = reports.Tally(Feed)
    tally.add(step(None), 1.25)
    outcome = tally.outcome(reports.Results([], [], [], []), loss=2.0)
    assert outcome.rates is None and outcome.label_error_rate is None
    assert reports.figures(outcome) == 'loss 2.000000'


@pytest.mark.parametrize(
    'best_by, words',
    [('loss', 'loss (0.650068)'), ('wer', 'WER (18.70 %)'), ('cer', 'CER (18.70 %)')],
)
def test_the_figure_of_the_best_weights(best_by, words):
    state = schedule.with_best_by(load_config(best_by=best_by), schedule.INITIAL_STATE)
    state = state._replace(best_dev_loss=0.6500683, best_rate=0.187)
    assert reports.best_weights(state) == 'best by dev ' + words
    assert reports.average_weights(state) == 'mean of the newest checkpoints, dev ' + words


@pytest.mark.parametrize(
    'kept, outcome', [(True, 'the mean is tested'), (False, 'the best weights are tested')]
)
def test_the_mean_is_compared_with_the_best_weights(caplog, kept, outcome):
    caplog.set_level('INFO')
    config = load_config(best_by='wer')
    state = schedule.with_best_by(config, schedule.INITIAL_STATE)
    state = state._replace(best_dev_loss=2.0, best_rate=0.187)
    reports.log_average(config, state, 5, 1.5, 0.179, kept)
    assert caplog.messages == [
        'mean of the 5 newest checkpoints: dev WER (17.90 %); best by dev WER (18.70 %): ' + outcome
    ]


def test_a_worse_error_rate_names_both(caplog):
    caplog.set_level('INFO')
    config = load_config(best_by='wer', num_tries=3)
    state = schedule.INITIAL_STATE._replace(best_dev_loss=2.0, best_rate=0.1, bad_validations=1)
    reports.log_worse(config, state, 3.0, 0.1)
    assert caplog.messages == [
        'dev WER 10.00 % (loss 3.000000) is not better than 10.00 % (loss 2.000000): patience 1 of '
        '3 used up'
    ]


@pytest.mark.parametrize(
    'values, state, words',
    [
        (
            dict(num_tries=3, valid_adapt=0.5),
            dict(bad_validations=2),
            'dev loss 2.000000 is not below 1.000000: patience 2 of 3 used up, '
            'learning rate times 0.5',
        ),
        (dict(go_back=1), {}, 'dev loss 2.000000 is not below 1.000000'),
        ({}, {}, None),
    ],
)
def test_a_worse_dev_loss_says_what_follows(caplog, values, state, words):
    caplog.set_level('INFO')
    reports.log_worse(
        load_config(**values), schedule.INITIAL_STATE._replace(best_dev_loss=1.0, **state), 2.0
    )
    assert [record.getMessage() for record in caplog.records] == ([words] if words else [])
