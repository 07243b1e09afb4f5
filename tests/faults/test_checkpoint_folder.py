"""Checkpoint folders of real runs: names with characters of patterns, the lock, what killed runs
leave."""

import concurrent.futures
import functools
import os
import re
import signal
import time

import numpy as np
import pytest

from helpers import make_corpus
from runs import checksums, fails, losses, run_deepspeech, started, weights_of

pytestmark = pytest.mark.run

LIMIT_S = 120  # for what takes seconds

# A run that ends within seconds
QUICK = dict(n_hidden=8, beam_width=1, display_step=0, dropout_rate=0, test_files='')


def index_files(folder):
    """The names of the checkpoints in a folder, by their numbers."""
    names = [name[:-6] for name in os.listdir(folder) if name.endswith('.index')]
    return sorted(names, key=lambda name: int(name.rpartition('-')[2]))


# Names


def test_a_folder_with_brackets_in_its_name_leaves_the_one_it_could_stand_for_alone(corpus):
    """run[2] is a pattern that run2 fits."""
    assert run_deepspeech(corpus, checkpoint_dir='run2', epochs=2, **QUICK).returncode == 0
    before = checksums(corpus / 'run2'), checksums(corpus / 'run2' / 'best')
    values = dict(QUICK, checkpoint_dir='run[2]', test_files='test.csv')
    first = run_deepspeech(corpus, epochs=6, **values)
    assert len(losses(first)) == 6
    assert index_files(corpus / 'run[2]') == ['model.ckpt-%d' % n for n in (6, 9, 12, 15, 18)]
    second = run_deepspeech(corpus, epochs=7, restore_checkpoint=1, export_dir='ex[1]', **values)
    assert started(second.stdout) == [7]
    assert 'run[2]/best/model.ckpt-' in second.stdout.partition('Testing the weights')[2]
    assert (checksums(corpus / 'run2'), checksums(corpus / 'run2' / 'best')) == before
    third = run_deepspeech(corpus, epochs=1, init_from='run[2]', **dict(values, checkpoint_dir='c'))
    assert re.search(r'^ +h1 .* loaded$', third.stdout, re.M), third.stdout


def test_any_name_will_do(corpus):
    name = 'w*x?[1]\\ my "own", it\'s n\u00e4me\n'
    values = dict(QUICK, checkpoint_dir=name, logs_dir='l' + name, cache_dir='c' + name)
    assert run_deepspeech(corpus, epochs=1, **values).returncode == 0
    second = run_deepspeech(corpus, epochs=2, restore_checkpoint=1, **values)
    assert second.returncode == 0 and started(second.stdout) == [2], second.stdout


# The lock


def wait_for(path):
    """Waits until a file exists."""
    deadline = time.monotonic() + LIMIT_S
    while not os.path.exists(path):
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def wait_in_the_second_epoch(point, state):
    if point == 'step' and state.epoch == 1:
        wait_for('go on')


def test_a_second_run_on_the_folder_is_refused_while_the_first_goes_on(corpus):
    lock = corpus / 'ckpt' / 'run.lock'
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(run_deepspeech, corpus, hook=wait_in_the_second_epoch, **QUICK)
        wait_for(corpus / 'ckpt' / 'checkpoint')
        before = checksums(corpus / 'ckpt'), lock.read_text()
        second = run_deepspeech(corpus, restore_checkpoint=1, **QUICK)
        fails(
            second,
            'ds_checkpoint_dir: another run writes into ckpt (process ',
            'remove ckpt/run.lock',
        )
        tested = run_deepspeech(corpus, restore_checkpoint=1, **dict(QUICK, epochs=0))
        assert tested.returncode == 0, tested.stdout  # it only reads
        assert (checksums(corpus / 'ckpt'), lock.read_text()) == before
        (corpus / 'go on').write_text('')
        assert len(losses(first.result())) == 2
    assert not lock.exists()


# Runs that are killed while they write


def kill_at_the_move(number, point, state):
    """Kills the run before the nth file is moved to its place, counted from the second epoch: two
    for each checkpoint, and one for its state file; the dev loss falls, so that the weights are
    saved twice, the second time in best/."""
    if point == 'step' and state.epoch == 1 and not state.epoch_step:
        moved, replace = [], os.replace

        def replace_or_die(source, target):
            moved.append(target)
            if len(moved) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        os.replace = replace_or_die


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
    """(corpus, weights of a run of three epochs on it that nothing interrupted)."""
    folder = make_corpus(tmp_path_factory.mktemp('uninterrupted'))
    assert run_deepspeech(folder, checkpoint_dir='whole', epochs=3, **QUICK).returncode == 0
    return folder, [weights_of(folder / 'whole' / name) for name in ('', 'best')]


@pytest.mark.parametrize('number', (2, 5))
def test_a_run_that_is_killed_while_it_writes_ends_as_if_it_had_not_been(uninterrupted, number):
    folder, expected = uninterrupted
    values = dict(QUICK, epochs=3, checkpoint_dir='killed%d' % number)
    hook = functools.partial(kill_at_the_move, number)
    killed = run_deepspeech(folder, hook=hook, **values)
    assert killed.returncode == -signal.SIGKILL, killed.stdout
    resumed = run_deepspeech(folder, restore_checkpoint=1, **values)
    assert resumed.returncode == 0, resumed.stdout
    assert 'run.lock: the run that had the folder has ended (process ' in resumed.stdout
    place = folder / values['checkpoint_dir']
    for found, whole in zip([weights_of(place), weights_of(place / 'best')], expected):
        for name in whole.keys() - {'run_state/run', 'model/description'}:
            np.testing.assert_array_equal(found[name], whole[name], name)
    assert sorted(os.listdir(place / 'best'))[0] == 'checkpoint'
    assert set(os.listdir(place)) == {'best', 'checkpoint'} | set(checksums(place))
