"""Runs whose losses, gradients or weights are not finite: what is left out, what is kept, and where
they go on."""

import os
import re
import shutil
import signal

import numpy as np
import pytest

import DeepSpeech
from helpers import make_corpus, write_manifest
from runs import (
    checksums,
    epochs,
    events,
    final_line,
    newest_hyper,
    run_deepspeech,
    run_together,
    started,
    stop_and_resume,
    weights_of,
)

pytestmark = pytest.mark.run


def error_of(run):
    """Returns the line with which a run ended that could not go on."""
    assert run.returncode == 1 and 'Traceback' not in run.stdout, run.stdout
    [line] = [line for line in run.stdout.splitlines() if line.startswith('error: ')]
    return line


# What is not finite


@pytest.fixture(scope='module')
def ruined_run(tmp_path_factory):
    """The folder of `ruined`; not to be changed."""
    folder = make_corpus(tmp_path_factory.mktemp('ruined'))
    values = dict(validation_step=0, display_step=0, train_batch_size=5)
    run_deepspeech(folder, epochs=2, **values)
    last = run_deepspeech(folder, epochs=3, restore_checkpoint=1, learning_rate=1e33, **values)
    assert last.returncode == 0, last.stdout
    assert np.isfinite(weights_of(folder / 'ckpt' / 'model.ckpt-3')['h1']).all()
    return folder


@pytest.fixture
def ruined(ruined_run, tmp_path):
    """A corpus with the checkpoints of two epochs, and of a third whose last update ruined the
    weights, though its loss was finite; there is no validation that could tell."""
    return shutil.copytree(ruined_run, tmp_path / 'copy')


def test_a_run_goes_back_before_a_ruined_checkpoint(ruined):
    values = dict(validation_step=0, display_step=0, train_batch_size=5, epochs=4)
    run, whole = run_together(
        ruined, dict(values, restore_checkpoint=1), dict(values, checkpoint_dir='whole')
    )
    assert 'ckpt/model.ckpt-3 is ruined, going back to ckpt/model.ckpt-2' in run.stdout
    assert run.stdout.count('the loss is inf in epoch 4, step 1') == 1
    assert started(run.stdout) == [4, 3, 4]
    assert final_line(run.stdout) == final_line(whole.stdout)


def test_a_run_without_an_earlier_checkpoint_says_so(ruined):
    for number in (1, 2):
        for path in (ruined / 'ckpt').glob('model.ckpt-%d.*' % number):
            path.unlink()
    before = checksums(ruined / 'ckpt')
    run = run_deepspeech(
        ruined, restore_checkpoint=1, epochs=4, validation_step=0, train_batch_size=5
    )
    assert 'ckpt/model.ckpt-3 is ruined, and ckpt has no checkpoint before it' in error_of(run)
    assert checksums(ruined / 'ckpt') == before


def test_ruined_weights_are_not_exported(ruined):
    run = run_deepspeech(ruined, restore_checkpoint=1, epochs=0, export_dir='export')
    assert 'are not exported, as the test loss is inf' in error_of(run)
    assert os.listdir(ruined / 'export') == []


def test_weights_with_a_dev_loss_that_is_not_finite_are_not_saved(corpus):
    run_deepspeech(corpus, epochs=1, display_step=0, train_batch_size=5)
    before = checksums(corpus / 'ckpt'), checksums(corpus / 'ckpt' / 'best')
    values = dict(epochs=3, display_step=0, train_batch_size=5, restore_checkpoint=1)
    run = run_deepspeech(corpus, learning_rate=1e33, **values)
    line = error_of(run)
    assert 'the dev loss is inf after 2 epochs' in line
    assert 'ds_restore_checkpoint=1 goes on from ckpt/model.ckpt-1' in line
    assert (checksums(corpus / 'ckpt'), checksums(corpus / 'ckpt' / 'best')) == before
    context = newest_hyper(corpus)['context']
    assert 'error: ' + context['ended'] == line and context['epochs_done'] == 2
    assert started(run_deepspeech(corpus, **values).stdout) == [2, 3]


def test_weights_that_are_not_finite_are_not_saved(corpus):
    run = run_deepspeech(
        corpus, learning_rate=3e38, epochs=2, validation_step=0, train_batch_size=5, beta1=0.1
    )
    assert 'the weights are not finite after 1 epochs' in error_of(run)
    assert not (corpus / 'ckpt' / 'checkpoint').exists()


def test_summaries_of_variables_do_not_hide_the_loss(corpus):
    run = run_deepspeech(corpus, learning_rate=1e30, log_variables=1)
    line = error_of(run)
    assert 'the loss is ' in line and 'in epoch ' in line and 'wav/good' in line
    assert 'model.ckpt' not in line  # there is none to go on from


# Updates that are left out


WITHOUT_THE_SECOND_BATCH = (0, 'one two'), (3, 'we all sleep'), (4, 'blue sky')
batch_feed = DeepSpeech._batch_feed


def spoilt(model, step):
    """Feeds a batch of infinite frames in the place of the one in the queue."""
    DeepSpeech._batch_feed = batch_feed
    frames = max(example.n_steps for example in step.examples) + 2 * 9
    infinite = np.full([len(step.examples), frames, 26], np.inf)
    return {**batch_feed(model, step), model.batch.features: infinite}


def spoil_the_second_step(point, state):
    if point == 'step' and (state.epoch, state.epoch_step) == (0, 1):
        DeepSpeech._batch_feed = spoilt


def spoil_all(point, state):
    if point == 'step':
        DeepSpeech._batch_feed = spoilt


def spoil_until_the_second_epoch_is_stopped(point, state):
    spoil_all(point, state)
    if point == 'step' and (state.epoch, state.epoch_step) == (1, 1):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize('more', [{}, {'numbatches_to_aggregate': 3, 'normalize_gradients': 1}])
def test_a_batch_that_is_left_out_changes_nothing(corpus, more):
    without = [('wav/good%d.wav' % i, text) for i, text in WITHOUT_THE_SECOND_BATCH]
    write_manifest(corpus / 'without.csv', without)
    common = dict(nonfinite='skip', dropout_rate=0, epochs=1, **more)
    skipped, whole = run_together(
        corpus,
        dict(common, hook=spoil_the_second_step),
        dict(common, train_files='without.csv', checkpoint_dir='whole'),
    )
    assert epochs(skipped.stdout) == epochs(whole.stdout)
    assert re.search(
        r'the gradients are not finite \(the loss is \d+\.\d+\) in epoch 1, step 2; utterances of '
        'this step: wav/good1.wav, wav/good2.wav; left out, 1 in a row, 1 in all',
        skipped.stdout,
    )
    found, expected = weights_of(corpus / 'ckpt'), weights_of(corpus / 'whole')
    assert found['run_state/left_out'] == 1 and found['global_step'] == expected['global_step']
    trained = [name for name in found if not name.startswith(('run_state/', 'model/'))]
    for name in trained:  # Adam's slots and powers as well
        np.testing.assert_array_equal(found[name], expected[name])


def test_ten_in_a_row_end_the_run_wherever_it_was_interrupted(corpus):
    values = dict(nonfinite='skip', validation_step=0, train_batch_size=1, epochs=3)
    stopped = run_deepspeech(corpus, hook=spoil_until_the_second_epoch_is_stopped, **values)
    assert stopped.returncode == 130, stopped.stdout
    run = run_deepspeech(corpus, hook=spoil_all, restore_checkpoint=1, **values)
    assert '; left out, 9 in a row, 9 in all' in run.stdout
    assert 'in epoch 2, step 5' in error_of(run) and 'ckpt/model.ckpt-0 is ruined' in run.stdout


def test_by_default_the_first_ends_the_run(corpus):
    whole, run = run_together(
        corpus, dict(checkpoint_dir='whole'), dict(hook=spoil_the_second_step, display_step=0)
    )
    assert 'in epoch 1, step 2; utterances of this step: wav/good1.wav' in error_of(run)
    assert 'ds_restore_checkpoint=1 goes on from ckpt/model.ckpt-1' in run.stdout
    resumed = run_deepspeech(corpus, restore_checkpoint=1)  # saved though no checkpoint was due
    assert final_line(resumed.stdout) == final_line(whole.stdout)


# Checkpoints by time, and what a run reports that was interrupted


def kill_in_the_second_epoch(point, state):
    if point == 'step' and (state.epoch, state.epoch_step) == (1, 4):
        os.kill(os.getpid(), signal.SIGKILL)


def test_checkpoints_by_time_are_resumed_exactly_and_leave_nothing(corpus):
    values = dict(train_batch_size=1, numbatches_to_aggregate=2, dropout_rate=0.3, epochs=3)
    whole, killed = run_together(
        corpus,
        dict(values, checkpoint_dir='whole'),
        dict(values, checkpoint_secs=1e-3, hook=kill_in_the_second_epoch),
    )
    assert killed.returncode == -signal.SIGKILL
    assert sorted(checksums(corpus / 'ckpt')) == names(3, 5)  # of epoch 1, and after 4 batches
    resumed = run_deepspeech(corpus, restore_checkpoint=1, checkpoint_secs=1e-3, **values)
    assert 'restored ckpt/model.ckpt-5: 1 epochs done and 4 steps' in resumed.stdout
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert sorted(checksums(corpus / 'ckpt')) == sorted(checksums(corpus / 'whole'))
    found, expected = weights_of(corpus / 'ckpt'), weights_of(corpus / 'whole')
    for name in found:
        if name not in ('run_state/run', 'model/description'):
            np.testing.assert_array_equal(found[name], expected[name])


def names(*numbers):
    """Returns the names of the files of checkpoints, sorted."""
    ends = 'data-00000-of-00001', 'index'
    return ['model.ckpt-%d.%s' % (number, end) for number in numbers for end in ends]


def stop_in_the_second_validation(point, state):
    if point == 'validation' and state.epoch == 2:
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_epoch_whose_validation_was_interrupted_is_reported(corpus):
    whole, stopped, resumed = stop_and_resume(corpus, stop_in_the_second_validation)
    assert epochs(stopped.stdout) == epochs(whole.stdout)[:1]
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert epochs(resumed.stdout, 'dev') == epochs(whole.stdout, 'dev')[1:]
    [(step, loss)] = events(corpus, 'train')['loss']
    assert step == 6 and '%.3f' % loss == '%.3f' % float(epochs(whole.stdout)[1])
    assert events(corpus, 'dev')['loss'][0][0] == 6
    hyper = newest_hyper(corpus)
    assert hyper['context']['ended'] == 'complete' and hyper['context']['epochs_done'] == 2
    assert '%.6f' % hyper['results']['last_train_loss'] == epochs(whole.stdout)[1]


def test_hyper_json_of_an_interrupted_run_has_the_figures_so_far(corpus):
    run = run_deepspeech(corpus, hook=stop_in_the_second_validation)
    hyper = newest_hyper(corpus)
    assert hyper['context']['ended'] == 'interrupted' and hyper['context']['epochs_done'] == 2
    assert '%.6f' % hyper['results']['last_validation_loss'] == epochs(run.stdout, 'dev')[0]
    assert hyper['results']['last_train_loss'] < float(epochs(run.stdout)[0])


def stop_within_an_update(point, state):
    if point == 'step' and (state.epoch, state.epoch_step) == (1, 1):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_stage_begins_without_the_sums_of_the_stage_before(corpus):
    values = dict(segment_lengths='135,full', train_batch_size=1, numbatches_to_aggregate=2)
    whole, stopped = run_together(
        corpus,
        dict(values, epochs=1, checkpoint_dir='whole'),
        dict(values, epochs=2, hook=stop_within_an_update),
    )
    assert weights_of(corpus / 'ckpt')['accumulated/n_batches'] == 1
    resumed = run_deepspeech(corpus, restore_checkpoint=1, epochs=1, **values)
    assert started(resumed.stdout) == [2]
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)


# The report on the training batches


def test_the_report_says_how_it_was_made_and_changes_no_figure(corpus):
    common = dict(dropout_rate=0.5, numbatches_to_aggregate=2, train_batch_size=1, towers=2)
    plain, without = run_together(
        corpus, dict(common, checkpoint_dir='plain'), dict(common, report_dropout=0)
    )
    assert plain.stdout.count('(with dropout) WER: ') == 2
    assert without.stdout.count('Training loss=') == 2 and '(with dropout)' not in without.stdout
    assert epochs(plain.stdout) == epochs(without.stdout)
    assert final_line(plain.stdout) == final_line(without.stdout)
    assert train_report(plain.stdout) != train_report(without.stdout)


def train_report(out):
    """Returns the losses of the utterances in the reports on the training batches."""
    parts = [part.split('Validation')[0] for part in out.split('Training loss=')[1:]]
    return [re.findall(r'loss:   ([\d.]+)', part) for part in parts]
