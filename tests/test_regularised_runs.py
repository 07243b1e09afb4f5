"""Whole runs with the settings that lower the error on other speech: how the best weights are
chosen, the mean of checkpoints, and that a resumed run ends as an uninterrupted one."""

import os
import re
import signal

import numpy as np
import pytest

import DeepSpeech
from runs import (
    epochs,
    events,
    fails,
    final_line,
    losses,
    run_deepspeech,
    run_together,
    started,
    weights_of,
)
from util.tf1 import tf
from util.tools import transcribe

pytestmark = pytest.mark.run
ALL = dict(
    epochs=3,
    best_by='wer',
    feature_norm='coefficient',
    average_checkpoints=3,
    warmup_steps=4,
    learning_rate_schedule='cosine',
    learning_rate_decay=0.1,
    weight_decay=0.05,
    label_smoothing=0.1,
    layer_norm=1,
    dropout_rate=0.2,
    towers=2,
    clip_grad_norm=5,
    numbatches_to_aggregate=2,
    train_batch_size=1,
)
run_inference = DeepSpeech.run_inference


def kill_in_the_second_epoch(point, state):
    if point == 'step' and (state.epoch, state.epoch_step) == (1, 2):
        os.kill(os.getpid(), signal.SIGKILL)


def test_with_everything_on_a_killed_run_ends_as_the_one_that_was_not_killed(corpus):
    whole, killed = run_together(
        corpus,
        dict(ALL, checkpoint_dir='whole', checkpoint_steps=1),
        dict(ALL, hook=kill_in_the_second_epoch, checkpoint_steps=1, logs_dir='logs-killed'),
    )
    assert killed.returncode == -signal.SIGKILL and whole.returncode == 0, whole.stdout
    rates = [rate for _, rate in events(corpus, 'train')['learning_rate']]
    resumed = run_deepspeech(corpus, restore_checkpoint=1, checkpoint_steps=1, **ALL)
    assert started(resumed.stdout) == [2, 3], resumed.stdout
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)
    means = [re.search('^mean of the 3 .*', run.stdout, re.M) for run in (whole, resumed)]
    assert means[0].group() == means[1].group()
    # there are two updates an epoch; the rate is that of the next one, and the warm-up has four
    expected = [0.001 * (0.1 + 0.9 * cosine) for cosine in (0.75, 0.25, 0)]
    expected[0] *= 0.75
    assert rates == pytest.approx(expected)
    there, whole_there = weights_of(corpus / 'ckpt'), weights_of(corpus / 'whole')
    for name in ('h1', 'layer_norm_5/gain', 'b6', 'h3/Adam', 'h3/Adam_1'):
        np.testing.assert_array_equal(there[name], whole_there[name])


def test_an_updates_rate_rises_over_the_warm_up(corpus):
    """The first update of Adam moves a weight by the learning rate, whatever its gradient is."""
    values = dict(epochs=1, checkpoint_steps=1, validation_step=0, dropout_rate=0)
    still, warm = run_together(
        corpus,
        dict(values, learning_rate=0, checkpoint_dir='still'),
        dict(values, learning_rate=0.01, warmup_steps=8, logs_dir='logs-warm'),
    )
    assert still.returncode == warm.returncode == 0, warm.stdout
    start, first = [weights_of(corpus / each / 'model.ckpt-1') for each in ('still', 'ckpt')]
    assert np.abs(first['b6'] - start['b6']).max() == pytest.approx(0.01 / 8, rel=1e-3)
    assert 'learning rate 0.005; ' in warm.stdout  # of the next update, the fourth of eight


FIGURES = {1: (5.0, 0.5), 2: (4.0, 0.75), 3: (9.0, 0.25), 4: (3.0, 0.25), 5: (2.0, 0.5)}


def make_up_dev_figures(point, state):
    """Lets the validations find the (loss, WER) of FIGURES."""

    def found(*arguments):
        DeepSpeech.run_inference = run_inference
        outcome = run_inference(*arguments)
        loss, wer = FIGURES[state.epoch]
        return outcome._replace(loss=loss, rates=outcome.rates._replace(wer=wer))

    if point == 'validation':
        DeepSpeech.run_inference = found


def test_the_best_weights_by_wer(corpus):
    run = run_deepspeech(
        corpus, hook=make_up_dev_figures, best_by='wer', epochs=5, num_tries=9, valid_adapt=0.5
    )
    assert run.returncode == 0, run.stdout
    assert re.findall('^dev .*', run.stdout, re.M) == [
        'dev WER 75.00 % (loss 4.000000) is not better than 50.00 % (loss 5.000000): patience 1 of '
        '9 used up, learning rate times 0.5',
        'dev WER 50.00 % (loss 2.000000) is not better than 25.00 % (loss 3.000000): patience 2 of '
        '9 used up, learning rate times 0.5',
    ]
    assert 'tested: best by dev WER (25.00 %), ckpt/best/model.ckpt-12)' in run.stdout
    best = weights_of(corpus / 'ckpt' / 'best')
    assert [best['run_state/best_' + name] for name in ('by', 'rate', 'dev_loss')] == [1, 0.25, 3.0]


def test_another_figure_than_before_starts_the_choice_anew(resumable):
    tested = run_deepspeech(resumable, restore_checkpoint=1, epochs=0, best_by='cer')
    assert 'tested: best by dev loss (' in tested.stdout
    done = run_deepspeech(resumable, restore_checkpoint=1, dropout_rate=0, best_by='cer')
    assert 'tested: best by dev loss (' in done.stdout
    run = run_deepspeech(resumable, restore_checkpoint=1, dropout_rate=0, epochs=3, best_by='cer')
    assert run.returncode == 0, run.stdout
    assert re.search(
        r'^ds_best_by is cer; what was best by dev loss \([\d.]+\) is not compared',
        run.stdout,
        re.M,
    )
    assert re.search(r'tested: best by dev CER \([\d.]+ %\), ckpt/best/model.ckpt-9\)', run.stdout)


def texts_of(capsys, model, manifest='test.csv'):
    """What the transcribe tool prints."""
    assert transcribe.main([str(model), manifest]) == 0
    return capsys.readouterr().out


def test_a_mean_that_is_not_worse_is_tested_exported_and_found(corpus, monkeypatch, capsys):
    values = dict(epochs=3, average_checkpoints=2, learning_rate=0.003, dropout_rate=0)
    run = run_deepspeech(corpus, hook=let_the_mean_win, export_dir='export', **values)
    assert run.returncode == 0, run.stdout
    assert 'mean of the 2 newest checkpoints: dev loss (0.250000); best by dev loss' in run.stdout
    place = 'mean of the newest checkpoints, dev loss (0.250000), ckpt/averaged/model.ckpt-9'
    assert 'tested: %s)' % place in run.stdout
    names = ('model.ckpt-6', 'model.ckpt-9', 'averaged/model.ckpt-9')
    second, third, mean = [weights_of(corpus / 'ckpt' / name) for name in names]
    np.testing.assert_allclose(mean['h1'], (second['h1'] + third['h1']) / 2, rtol=1e-6)
    assert np.abs(mean['h1'] - third['h1']).max() > 1e-4
    again = run_deepspeech(corpus, epochs=0, restore_checkpoint=1)
    assert final_line(again.stdout) == final_line(run.stdout)
    assert place in again.stdout
    monkeypatch.chdir(corpus)
    expected = texts_of(capsys, 'ckpt/averaged/model.ckpt-9')
    assert texts_of(capsys, 'ckpt') == texts_of(capsys, 'export') == expected
    more = run_deepspeech(corpus, restore_checkpoint=1, **dict(values, epochs=4), hook=None)
    assert started(more.stdout) == [4]  # with the weights of the last step, not with the mean
    assert weights_of(corpus / 'ckpt' / 'model.ckpt-12')['h1'].shape == mean['h1'].shape


def let_the_mean_win(point, state):
    """Lets what follows the last validation find the loss 0.25."""

    def found(run, data_set, feed):
        outcome = run_inference(run, data_set, feed)
        finds.append(data_set.name)
        return outcome._replace(loss=0.25) if finds == ['dev', 'dev'] else outcome

    if point == 'validation' and state.epoch == 3:
        finds = []
        DeepSpeech.run_inference = found


def test_a_mean_that_is_worse_is_not_kept(corpus):
    values = dict(learning_rate=0.003, dropout_rate=0)
    plain, run = run_together(
        corpus, dict(values, checkpoint_dir='plain'), dict(values, average_checkpoints=2)
    )
    assert 'the best weights are tested' in run.stdout
    assert final_line(run.stdout) == final_line(plain.stdout)
    assert losses(run, 'dev') == losses(plain, 'dev')
    assert not os.listdir(corpus / 'ckpt' / 'averaged')
    assert not os.path.exists(corpus / 'plain' / 'averaged')


def test_a_network_with_layer_norm_is_exported_and_no_other_run_goes_on_with_it(corpus):
    run = run_deepspeech(corpus, layer_norm=1, export_dir='export', rnn='vanilla')
    assert run.returncode == 0, run.stdout
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, [tf.saved_model.SERVING], str(corpus / 'export' / '1'))
        names = {v.op.name: session.run(v) for v in tf.global_variables()}
    best = weights_of(corpus / 'ckpt' / 'best')
    for index in (1, 2, 3, 5):
        name = 'layer_norm_%d/gain' % index
        np.testing.assert_array_equal(names[name], best[name])
        assert (best[name] != 1).any()
    fails(
        run_deepspeech(corpus, restore_checkpoint=1, rnn='vanilla', epochs=3),
        'ds_layer_norm is on there and off here',
    )
    warm = run_deepspeech(
        corpus, init_from='ckpt', layer_norm=1, rnn='vanilla', epochs=1, checkpoint_dir='other'
    )
    assert warm.returncode == 0 and 'not loaded' not in warm.stdout, warm.stdout


def test_a_mean_that_is_compared_on_the_dev_set_needs_one(corpus):
    fails(
        run_deepspeech(corpus, dev_files='', average_checkpoints=2),
        'ds_average_checkpoints',
        'dev set',
    )


@pytest.mark.parametrize('without', [{'dev_files': ''}, {'validation_step': 0}])
def test_without_a_validation_the_newest_weights_are_tested_whatever_is_best(corpus, without):
    done = run_deepspeech(corpus, best_by='wer', epochs=1, **without)
    assert done.returncode == 0 and '(tested: of epoch 1)' in done.stdout, done.stdout
