"""Runs that are stopped, killed, resumed, moved: what is kept, and where they go on."""

import glob
import os
import shutil
import signal
import time

import pytest

from helpers import PROJECT, write_broken_flac
from runs import (
    checksums,
    epochs,
    fails,
    final_line,
    run_deepspeech,
    run_together,
    sources,
    started,
    stop_and_resume,
)
from util.run import signals

pytestmark = pytest.mark.run


def stop_in_the_second_epoch(point, state):
    if point == 'step' and state.epoch == 1 and state.epoch_done == 3:
        os.kill(os.getpid(), signal.SIGINT)


def stop_in_the_second_validation(point, state):
    if point == 'validation' and state.epoch == 2:
        os.kill(os.getpid(), signal.SIGTERM)


def kill_after_the_fifth_epoch(point, state):
    if point == 'saved' and state.epoch == 5:
        os.kill(os.getpid(), signal.SIGKILL)


def test_resuming_trains_only_what_is_missing(resumable):
    before = checksums(resumable / 'ckpt')
    again = run_deepspeech(resumable, restore_checkpoint=1, dropout_rate=0)
    assert again.returncode == 0 and started(again.stdout) == []
    assert checksums(resumable / 'ckpt') == before
    more = run_deepspeech(resumable, restore_checkpoint=1, dropout_rate=0, epochs=3)
    assert started(more.stdout) == [3]
    assert 'restored ckpt/model.ckpt-6: 2 epochs done' in more.stdout
    assert os.path.exists(resumable / 'ckpt' / 'model.ckpt-9.index')


def test_resumed_run_equals_the_uninterrupted_one(corpus):
    settings = dict(dropout_rate=0.3, batch_order='bucketed', numbuckets=2)
    whole, _ = run_together(
        corpus, dict(settings, epochs=3, checkpoint_dir='whole'), dict(settings, epochs=1)
    )
    resumed = run_deepspeech(corpus, epochs=3, restore_checkpoint=1, **settings)
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)


def test_sigint_saves_and_the_rest_of_the_epoch_follows(corpus):
    whole, stopped, resumed = stop_and_resume(corpus, stop_in_the_second_epoch, train_batch_size=1)
    assert 'interrupted: saved ckpt/model.ckpt-8: 1 epochs and 3 steps' in stopped.stdout
    assert started(resumed.stdout) == [2]
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]


def test_epoch_loss_is_exact_with_late_exclusions_before_the_stop(corpus):
    for name in ('wav/bad1.flac', 'wav/bad2.flac'):
        write_broken_flac(corpus / name, 1.25, 0.5)
    with open(corpus / 'train.csv', 'a') as manifest:
        manifest.write('wav/bad1.flac,0,one\nwav/bad2.flac,0,two\n')
    whole, _, resumed = stop_and_resume(corpus, stop_in_the_second_epoch, train_batch_size=1)
    assert '1 epochs done and 5 steps' in resumed.stdout  # two of them without an utterance
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]


def test_interrupted_validation_is_done_by_the_resumed_run(corpus):
    whole, stopped, resumed = stop_and_resume(corpus, stop_in_the_second_validation)
    assert 'interrupted: saved ckpt/model.ckpt-6: 2 epochs' in stopped.stdout
    assert started(resumed.stdout) == []
    assert 'best/model.ckpt-6' in resumed.stdout


def stop_twice_in_the_first_validation(point, state):
    if point == 'validation':
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.2 * signals.TOGETHER_S)
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_ctrl_c_ends_a_validation_at_once(corpus):
    run = run_deepspeech(corpus, hook=stop_twice_in_the_first_validation)
    assert run.returncode == 130, run.stdout
    assert 'interrupted: nothing was saved' in run.stdout
    assert not (corpus / 'ckpt' / 'checkpoint').exists()


def test_unfinished_epoch_starts_anew_where_its_order_is_another(corpus):
    run_deepspeech(corpus, hook=stop_in_the_second_epoch, train_batch_size=1)
    resumed = run_deepspeech(corpus, restore_checkpoint=1, train_batch_size=1, limit_train=2)
    assert 'the unfinished epoch starts anew' in resumed.stdout
    report = resumed.stdout.split('Training loss')[1].split('Validation loss')[0]
    assert len(sources(report)) == 2


def test_killed_run_ends_as_the_one_that_was_not_killed(corpus):
    settings = dict(epochs=12, display_step=0, dropout_rate=0.2)
    whole, killed = run_together(
        corpus,
        dict(settings, checkpoint_dir='whole'),
        dict(settings, hook=kill_after_the_fifth_epoch),
    )
    assert killed.returncode == -signal.SIGKILL
    resumed = run_deepspeech(corpus, restore_checkpoint=1, **settings)
    assert started(resumed.stdout) == list(range(6, 13))
    assert epochs(resumed.stdout) == epochs(whole.stdout)[5:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)


def test_a_best_of_another_run_is_not_taken_for_this_ones(resumable):
    shutil.copytree(resumable / 'ckpt', resumable / 'other')
    run_deepspeech(
        resumable, epochs=3, checkpoint_dir='other', restore_checkpoint=1, dropout_rate=0
    )
    shutil.rmtree(resumable / 'ckpt' / 'best')
    shutil.copytree(resumable / 'other' / 'best', resumable / 'ckpt' / 'best')
    run = run_deepspeech(resumable, restore_checkpoint=1, epochs=0)
    assert run.returncode == 0, run.stdout
    assert 'are no longer in ckpt/best' in run.stdout
    assert 'Testing the weights of epoch 2' in run.stdout


def test_moved_checkpoints_are_read_where_they_are_now(resumable):
    shutil.copytree(resumable / 'ckpt', resumable / 'moved')
    for path in glob.glob(str(resumable / 'ckpt' / 'model*')):
        open(path, 'wb').write(os.urandom(100))
    run = run_deepspeech(resumable, checkpoint_dir='moved', restore_checkpoint=1, epochs=3)
    assert run.returncode == 0 and started(run.stdout) == [3], run.stdout
    assert 'restored moved/model.ckpt-6' in run.stdout


def test_damaged_newest_checkpoint_is_named_and_passed_over(resumable):
    path = resumable / 'ckpt' / 'model.ckpt-6.data-00000-of-00001'
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    good = checksums(resumable / 'ckpt')['model.ckpt-3.data-00000-of-00001']
    run = run_deepspeech(resumable, restore_checkpoint=1, epochs=2)
    assert run.returncode == 0, run.stdout
    assert 'checkpoint ckpt/model.ckpt-6 is damaged' in run.stdout
    assert started(run.stdout) == [2]
    assert checksums(resumable / 'ckpt')['model.ckpt-3.data-00000-of-00001'] == good


def test_another_geometry_is_refused_with_both_values(resumable):
    before = checksums(resumable / 'ckpt')
    fails(run_deepspeech(resumable, restore_checkpoint=1, n_hidden=48), 'ds_n_hidden', '32', '48')
    assert checksums(resumable / 'ckpt') == before


def test_five_checkpoints_are_kept_over_resumes_and_nothing_else_is_touched(corpus):
    (corpus / 'ckpt' / 'keep').mkdir(parents=True)
    (corpus / 'ckpt' / 'notes.txt').write_text('mine')
    for total in (6, 8):
        run_deepspeech(
            corpus, epochs=total, restore_checkpoint=1, display_step=0, validation_step=0
        )
        kept = glob.glob(str(corpus / 'ckpt' / 'model*.index'))
        assert len(kept) == 5
        assert str(corpus / 'ckpt' / ('model.ckpt-%d.index' % (3 * total))) in kept
    assert (corpus / 'ckpt' / 'keep').is_dir() and (corpus / 'ckpt' / 'notes.txt').exists()


def test_notebooks_checkpoint_is_restored(corpus):
    geometry = dict(
        n_hidden=None, n_context=2, n_hidden_1=32, n_hidden_2=30, n_hidden_5=28, n_cell_dim=24
    )
    shutil.copytree(os.path.join(PROJECT, 'tests', 'data', 'seed_checkpoint'), corpus / 'ckpt')
    run = run_deepspeech(corpus, restore_checkpoint=1, epochs=16, export_dir='export', **geometry)
    assert run.returncode == 0, run.stdout
    assert 'restored ckpt/model.ckpt-14: 15 epochs done' in run.stdout
    assert started(run.stdout) == [16]
