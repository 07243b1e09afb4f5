"""Whole runs of DeepSpeech.py with several corpora, sums of gradients, a plateau, stages, short
steps and the paper's network; the corpus is that of test_train.py."""

import glob
import os
import re
import signal

import numpy as np
import pytest

import DeepSpeech
from helpers import make_corpus, write_broken_flac, write_manifest
from runs import (
    epochs,
    events,
    fails,
    final_line,
    losses,
    run_deepspeech,
    run_together,
    say_and_check,
    started,
    stop_and_resume,
    weights_of,
)
from util.tf1 import tf

pytestmark = pytest.mark.run


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
    """A corpus and a run of two epochs on it without any of these settings."""
    folder = make_corpus(tmp_path_factory.mktemp('plain'))
    return folder, run_deepspeech(folder, dropout_rate=0, export_dir='export')


# Several corpora, updates of several batches


def test_two_batches_an_update_are_one_of_twice_the_size(plain, corpus):
    rounds = run_deepspeech(corpus, dropout_rate=0, train_batch_size=1, numbatches_to_aggregate=2)
    say_and_check('epochs of 2 x 1 against batches of 2', losses(rounds), losses(plain[1]))
    assert final_line(rounds.stdout) == final_line(plain[1].stdout)
    assert weights_of(corpus / 'ckpt')['global_step'] == 6
    steps = events(corpus, 'train')['step_loss']
    say_and_check(
        'losses of the updates',
        [loss for _, loss in steps],
        [loss for _, loss in events(plain[0], 'train')['step_loss']],
    )


def test_a_corpus_with_the_weight_0_is_left_out(plain, corpus):
    run = run_deepspeech(
        corpus, dropout_rate=0, importer='csv,csv', importer_weights='1,0', dataset_path='.,nowhere'
    )
    assert losses(run) == losses(plain[1]) and losses(run, 'dev') == losses(plain[1], 'dev')
    assert final_line(run.stdout) == final_line(plain[1].stdout)


def test_linked_corpora_of_equal_weight_are_the_concatenation(corpus):
    rows = [('wav/good%d.wav' % i, text) for i, text in enumerate('one two six ten'.split())]
    write_manifest(corpus / 'train.csv', rows)  # four lengths, so that their order is one alone
    common = dict(dropout_rate=0, importer='csv,csv', dataset_path='.,.')
    joined, linked = run_together(
        corpus,
        dict(common, logs_dir='logs-joined'),
        dict(
            common,
            importer_weights='3,3',
            train_batch_size=1,
            normalize_gradients=1,
            checkpoint_dir='linked',
        ),
    )
    say_and_check('linked corpora against the concatenation', losses(linked), losses(joined))
    assert final_line(linked.stdout) == final_line(joined.stdout)
    assert re.search(r'; csv#1 loss [\d.]+, WER [\d.]+%; csv#2 loss', linked.stdout)
    report = linked.stdout.split('Test: ')[1]
    lines = re.findall(r'^ +csv#[12] loss [\d.]+, WER [\d.]+%, 2 utterances$', report, re.M)
    assert len(lines) == 2
    assert {'loss_csv#1', 'wer_csv#2'} <= set(events(corpus, 'test'))


def stop_after_three_batches_of_the_second_epoch(point, state):
    if point == 'step' and state.epoch == 1 and state.epoch_step == 3:
        os.kill(os.getpid(), signal.SIGINT)


def test_a_run_goes_on_in_the_middle_of_an_accumulation(corpus):
    whole, stopped, resumed = stop_and_resume(
        corpus,
        stop_after_three_batches_of_the_second_epoch,
        train_batch_size=1,
        numbatches_to_aggregate=2,
        dropout_rate=0.3,
        importer='csv,csv',
        dataset_path='.,.',
        importer_weights='1,0.5',
        normalize_gradients=1,
    )
    assert 'saved ckpt/model.ckpt-3: 1 epochs and 3 steps' in stopped.stdout
    assert weights_of(corpus / 'ckpt' / 'model.ckpt-3')['accumulated/n_batches'] == 3
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]


def stop_after_the_first_batch(point, state):
    if point == 'step' and state.epoch_step == 1:
        os.kill(os.getpid(), signal.SIGINT)


def test_other_settings_of_an_update_begin_the_unfinished_epoch_anew(corpus):
    run_deepspeech(
        corpus, hook=stop_after_the_first_batch, numbatches_to_aggregate=2, train_batch_size=1
    )
    values = dict(numbatches_to_aggregate=3, train_batch_size=1, dropout_rate=0, epochs=1)
    resumed, fresh = run_together(
        corpus, dict(values, restore_checkpoint=1), dict(values, checkpoint_dir='fresh')
    )
    assert 'the unfinished epoch starts anew' in resumed.stdout
    assert losses(resumed) == losses(fresh)  # nothing of the first batch was left in the sums


# Learning rate, plateau, curriculum, warm start

DEV_LOSSES = {1: 500.0, 2: 600.0, 3: 400.0, 4: 450.0, 5: 700.0}
run_inference = DeepSpeech.run_inference


def make_up_dev_losses(point, state):
    """Lets the validations find the losses of DEV_LOSSES."""

    def found(*arguments):
        DeepSpeech.run_inference = run_inference
        return run_inference(*arguments)._replace(loss=DEV_LOSSES[state.epoch])

    if point == 'validation':
        DeepSpeech.run_inference = found


def make_up_dev_losses_and_stop_after_the_second(point, state):
    make_up_dev_losses(point, state)
    if point == 'step' and state.epoch == 2:
        os.kill(os.getpid(), signal.SIGINT)


def test_plateau_worse_halve_go_back_stop_and_resume_in_its_midst(corpus):
    values = dict(
        epochs=9,
        num_tries=3,
        valid_adapt=0.5,
        go_back=1,
        dropout_rate=0.2,
        learning_rate=0.004,
        checkpoint_step=0,
    )

    def run(hook, **more):
        return run_deepspeech(corpus, hook=hook, **values, **more)

    whole = run(make_up_dev_losses, checkpoint_dir='whole')
    assert started(whole.stdout) == [1, 2, 3, 4, 5]
    wanted = [
        'dev loss 600.000000 is not below 500.000000: patience 1 of 3 used up, learning '
        'rate times 0.5',
        'went back to the weights of whole/best/model.ckpt-3',
        'learning rate 0.002; ',
        'dev loss 450.000000 is not below 400.000000: patience 2 of 3',
        'went back to the weights of whole/best/model.ckpt-9',
        'dev loss 700.000000 is not below 400.000000: patience 3 of 3',
        'learning rate 0.001; ',
        'training stops after epoch 5: the patience of 3 validations is used up',
        'best by dev loss (400.000000)',
    ]
    found = [whole.stdout.find(words) for words in wanted]
    assert -1 not in found and found == sorted(found), whole.stdout
    rates = [rate for _, rate in events(corpus, 'train')['learning_rate']]
    assert rates == pytest.approx([0.004, 0.004, 0.002, 0.002, 0.001])

    stopped = run(make_up_dev_losses_and_stop_after_the_second)
    assert stopped.returncode == 130, stopped.stdout
    there, best = weights_of(corpus / 'ckpt'), weights_of(corpus / 'ckpt' / 'best')
    assert there['global_step'] == 6 and best['global_step'] == 3
    for name in ('h1', 'b6', 'h3/Adam', 'h3/Adam_1', 'beta2_power'):
        np.testing.assert_array_equal(there[name], best[name])
    assert (there['run_state/tries'], there['run_state/lr_factor']) == (1, 0.5)
    resumed = run(make_up_dev_losses, restore_checkpoint=1)
    assert 'going on with epoch 3 at learning rate 0.002' in resumed.stdout
    assert epochs(resumed.stdout) == epochs(whole.stdout)[2:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)
    again = run(make_up_dev_losses, restore_checkpoint=1)
    assert started(again.stdout) == []
    assert 'training stops after epoch 5: the patience' in again.stdout


def stop_in_the_second_stage(point, state):
    if point == 'step' and state.stage == 1 and state.epoch_step == 2:
        os.kill(os.getpid(), signal.SIGINT)


def test_a_run_goes_on_in_the_middle_of_a_stage(corpus):
    whole, stopped, resumed = stop_and_resume(
        corpus,
        stop_in_the_second_stage,
        segment_lengths='125,full',
        train_batch_size=1,
        dropout_rate=0.2,
        learning_rate_decay=0.1,
    )
    assert 'Stage 2 of 2: all utterances, 5 of 5' in whole.stdout
    assert started(whole.stdout) == [1, 2, 3, 4]
    assert 'saved ckpt/model.ckpt-6: 2 epochs and 2 steps' in stopped.stdout  # 2 short utterances
    assert 'going on with epoch 3' in resumed.stdout and 'stage 2 of 2' in resumed.stdout
    assert epochs(resumed.stdout) == epochs(whole.stdout)[2:]
    rates = [rate for _, rate in events(corpus, 'train')['learning_rate']]
    assert rates == pytest.approx([0.001 * 0.1**0.75, 0.0001])


def test_a_warm_start_has_the_weights_of_the_other_model(plain, corpus):
    best = str(plain[0] / 'ckpt' / 'best')
    run = run_deepspeech(corpus, init_from=best, epochs=1, learning_rate=0, dropout_rate=0)
    assert losses(run, 'dev') == losses(plain[1], 'dev')[1:]
    assert run.stdout.count(' loaded') == 14 and 'not loaded' not in run.stdout
    assert final_line(run.stdout) == final_line(plain[1].stdout)
    again = run_deepspeech(corpus, init_from=best, restore_checkpoint=1, epochs=1)
    assert 'ds_init_from is not used' in again.stdout


@pytest.mark.parametrize(
    'path, words',
    [
        ('nowhere', ['ds_init_from', 'nowhere']),
        ('wav', ['ds_init_from', 'no checkpoint in wav']),
        ('train.csv', ['ds_init_from', 'train.csv', 'no such file']),
        ('none.npz', ['ds_init_from', 'none.npz']),
    ],
)
def test_weights_to_start_from_that_are_none(corpus, path, words):
    fails(run_deepspeech(corpus, init_from=path), *words)


def test_weights_from_elsewhere_are_tested_without_training(plain, corpus):
    values = dict(epochs=0, init_from=str(plain[0] / 'ckpt' / 'model.ckpt-6.index'))
    run = run_deepspeech(corpus, export_dir='export', **values)
    assert final_line(run.stdout) == final_line(plain[1].stdout)
    assert 'Testing the weights of ' + values['init_from'] in run.stdout
    assert os.path.isdir(corpus / 'export' / '1')
    fails(run_deepspeech(corpus, n_cell_dim=16, **values), 'ds_training_iters=0', 'lacks')


def kill_before_the_best_is_saved(point, state):
    if point == 'saved' and state.epoch == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def test_best_weights_whose_save_was_cut_off_are_made_up_for(corpus):
    killed = run_deepspeech(corpus, hook=kill_before_the_best_is_saved)
    assert killed.returncode == -signal.SIGKILL
    assert not os.path.exists(corpus / 'ckpt' / 'best' / 'checkpoint')
    run = run_deepspeech(corpus, restore_checkpoint=1, epochs=1)
    assert 'best by dev loss' in run.stdout and 'no longer' not in run.stdout
    assert weights_of(corpus / 'ckpt' / 'best')['global_step'] == 3


def test_a_dev_set_that_cannot_be_read_is_no_plateau(corpus):
    write_broken_flac(corpus / 'wav' / 'bad.flac', 2.0, 0.25)
    write_manifest(corpus / 'dev.csv', [('wav/bad.flac', 'one')])
    run = run_deepspeech(corpus, num_tries=2)
    assert run.returncode == 1
    assert (
        'error: ds_num_tries: no utterance of the dev set could be read; saved ckpt/model.ckpt-3'
    ) in run.stdout


def test_what_acts_on_the_dev_loss_needs_a_dev_set(corpus):
    fails(run_deepspeech(corpus, num_tries=2, dev_files=''), 'ds_num_tries', 'dev set')


# Short steps


def kill_at_step_4(point, state):
    if point == 'saved' and state.epoch == 1 and state.epoch_step == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def test_summaries_and_checkpoints_by_steps_and_shapes(corpus):
    values = dict(
        checkpoint_steps=2,
        summary_steps=3,
        checkpoint_step=0,
        dropout_rate=0.2,
        print_batch_shapes=1,
        log_variables=1,
    )
    whole, killed = run_together(
        corpus,
        dict(values, checkpoint_dir='whole'),
        dict(values, hook=kill_at_step_4, logs_dir='logs-killed'),
    )
    assert re.findall(r'^Step (\d+): loss [\d.]+, saved (\S+)$', whole.stdout, re.M) == [
        (n, 'whole/model.ckpt-' + n) for n in '246'
    ]
    logged = events(corpus, 'train')
    assert [step for step, _ in logged['step_loss']] == [3, 6]
    assert [step for step, _ in logged['h1/mean']] == [3, 6]
    # of the longest of 1.2 s: 119 steps, with 9 frames of margin on either side
    assert (
        'train batch 1: features [2, 137, 26], seq_len [2] of 119 to 119, labels [2, 8], '
        'label_len [2] of 7 to 8, logits [119, 2, 29]'
    ) in whole.stdout
    assert 'dev batch 1: features [2, ' in whole.stdout and 'test batch 1: ' in whole.stdout
    assert killed.returncode == -9
    resumed = run_deepspeech(corpus, restore_checkpoint=1, **values)
    assert 'restored ckpt/model.ckpt-4: 1 epochs done and 1 steps of the next' in resumed.stdout
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)


# The paper's network


def test_the_papers_network_trains_resumes_and_is_exported(corpus):
    values = dict(rnn='vanilla', export_dir='export', dropout_rate=0.1, dropout_rate4=0.1, towers=2)
    whole, _ = run_together(corpus, dict(values, checkpoint_dir='whole'), dict(values, epochs=1))
    assert losses(whole)[1] < losses(whole)[0]
    resumed = run_deepspeech(corpus, restore_checkpoint=1, **values)
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)
    weights = weights_of(corpus / 'ckpt')
    shapes = {name: weights[name].shape for name in ('h3', 'h4', 'b4', 'r4_fw', 'r4_bw', 'h5')}
    assert shapes == {
        'h3': (32, 32),
        'h4': (32, 32),
        'b4': (32,),
        'r4_fw': (32, 32),
        'r4_bw': (32, 32),
        'h5': (32, 32),
    }
    with tf.Graph().as_default(), tf.Session() as session:
        path = sorted(glob.glob(str(corpus / 'export' / '*')))[-1]
        loaded = tf.saved_model.load(session, [tf.saved_model.SERVING], path)
        signature = loaded.signature_def['with_length']
        outputs = session.run(
            signature.outputs['outputs'].name,
            {
                signature.inputs['input'].name: np.zeros((2, 30, 494), np.float32),
                signature.inputs['input_length'].name: [30, 12],
            },
        )
    assert outputs.shape[:2] == (1, 2)


def test_a_checkpoint_of_the_other_network_is_refused(plain):
    run = run_deepspeech(
        plain[0], restore_checkpoint=1, rnn='vanilla', checkpoint_dir='ckpt', epochs=3
    )
    fails(run, 'ds_rnn is lstm there and vanilla here')
    assert os.path.exists(plain[0] / 'ckpt' / 'model.ckpt-6.index')
