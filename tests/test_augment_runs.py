"""Runs with augmentation that are stopped or killed in mid-epoch end as uninterrupted ones do."""

import os
import signal

import numpy as np
import pytest

from runs import (
    epochs,
    fails,
    final_line,
    run_deepspeech,
    run_together,
    stop_and_resume,
    weights_of,
)

pytestmark = pytest.mark.run

RECIPE = (
    'speed[p=0.7,factor=1~0.2] pitch[p=0.5] overlay[source=pink,snr=30:5~5,layers=1:3] '
    'vtlp[factor=1:1.1~0.1] warp time_mask frequency_mask[n=0:3] add[stddev=0:1]'
)


def stop_in_the_second_epoch(point, state):
    if point == 'step' and state.epoch == 1 and state.epoch_done == 3:
        os.kill(os.getpid(), signal.SIGINT)


def kill_in_the_second_epoch(point, state):
    if point == 'step' and state.epoch == 1 and state.epoch_done == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def assert_equal_weights(corpus, step):
    """Asserts that the checkpoints of both folders hold the same after this step."""
    whole, resumed = (
        weights_of(corpus / folder / ('model.ckpt-%d' % step)) for folder in ('whole', 'ckpt')
    )
    assert whole.keys() == resumed.keys()
    for name in whole.keys() - {'model/description', 'run_state/run'}:  # of the time of the start
        assert np.array_equal(whole[name], resumed[name]), name


def test_a_stopped_run_draws_what_the_uninterrupted_one_draws(corpus):
    whole, stopped, resumed = stop_and_resume(
        corpus,
        stop_in_the_second_epoch,
        train_batch_size=1,
        augment=RECIPE,
        batch_order='shuffled',
        dropout_rate=0.2,
    )
    assert 'interrupted: saved ckpt/model.ckpt-8: 1 epochs and 3 steps' in stopped.stdout
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert_equal_weights(corpus, 10)


def test_a_killed_run_draws_what_the_uninterrupted_one_draws(corpus):
    settings = dict(train_batch_size=1, augment=RECIPE, checkpoint_steps=1)
    whole, killed = run_together(
        corpus,
        dict(settings, checkpoint_dir='whole'),
        dict(settings, hook=kill_in_the_second_epoch),
    )
    assert killed.returncode == -signal.SIGKILL
    resumed = run_deepspeech(corpus, restore_checkpoint=1, **settings)
    assert '1 epochs done and 3 steps' in resumed.stdout, resumed.stdout
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)
    assert_equal_weights(corpus, 10)


def test_a_mistake_ends_the_run_before_anything_is_read(corpus):
    run = run_deepspeech(corpus, augment='sped', train_files='nowhere.csv')
    fails(run, 'ds_augment: sped is not an augmentation', 'the nearest is speed')
    run = run_deepspeech(corpus, augment='overlay[source=nowhere]', train_files='nowhere.csv')
    fails(run, 'ds_augment: overlay: source must be', 'got nowhere (nowhere: cannot be read')
