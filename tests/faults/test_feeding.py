"""Runs whose audio files are lost, change or hang while they train."""

import concurrent.futures
import os
import random
import re
import signal
import threading
import time

import numpy as np
import pytest

import runs
from helpers import make_corpus, speech, write_manifest, write_wav
from runs import run_deepspeech
from util import config
from util.feeding import data_sets, feeder
from util.graph import run_state
from util.tf1 import tf

pytestmark = pytest.mark.run

UNCACHED = {'feature_cache': 0, 'validation_step': 0, 'train_batch_size': 1}
CORPUS = {
    'importer': 'csv',
    'train_files': 'train.csv',
    'n_hidden': 8,
    'epochs': 1,
    'train_batch_size': 2,
    'cache_dir': 'cache',
}


def weights_of_run(folder):
    """Returns {name: bytes} of the newest checkpoint, without what differs from run to run."""
    values = runs.weights_of(tf.train.latest_checkpoint(str(folder)))
    return {
        name: np.asarray(value).tobytes()
        for name, value in values.items()
        if name not in ('run_state/run', run_state.DESCRIPTION)
    }


def one_error(run, *words):
    """Asserts that a run has ended with one line of an error, which has these words."""
    assert run.returncode == 1, run.stdout
    assert 'Traceback' not in run.stdout
    [line] = [line for line in run.stdout.splitlines() if line.startswith('error: ')]
    for word in words:
        assert word in line
    return line


# Hooks and runs; they run in the process of the run, which must find them by name


def lose_one(point, state):
    """Deletes a file, truncates another and makes a third a pipe as the second epoch begins."""
    if point == 'step' and (state.epoch, state.epoch_step) == (1, 0):
        names = sorted(name for name in os.listdir('wav') if 'long' in name)[20:]
        os.remove('wav/' + names[0])
        os.truncate('wav/' + names[1], 50)
        os.remove('wav/' + names[2])
        os.mkfifo('wav/' + names[2])


def lose_all(point, state):
    """Takes the folder away in the second epoch, as when a disk is unmounted."""
    if point == 'step' and (state.epoch, state.epoch_step) == (1, 2):
        os.rename('wav', 'elsewhere')


def hanging_read(utterance, config):
    """Waits for ever, as a read from a file server that is gone."""
    threading.Event().wait()


def hang(point, state):
    """Lets every read hang from the second epoch on."""
    if point == 'step' and (state.epoch, state.epoch_step) == (1, 0):
        data_sets._compute_features = hanging_read


def hang_and_stop(point, state):
    """The same, and sends SIGTERM while the run waits for an utterance."""
    if point == 'step' and (state.epoch, state.epoch_step) == (1, 0):
        hang(point, state)
        threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGTERM]).start()


def break_reader(point, state):
    """Lets the reader threads run out of memory from the second epoch on."""

    def read(utterance, config):
        raise MemoryError

    if point == 'step' and (state.epoch, state.epoch_step) == (1, 0):
        data_sets._compute_features = read


def long_corpus(folder):
    """Returns a corpus with more utterances than the feeder reads ahead."""
    make_corpus(folder)
    rows = [('wav/long%02d.wav' % i, 'hello') for i in range(30)]
    for i, (name, _) in enumerate(rows):
        write_wav(folder / name, speech(0.5 + 0.01 * i, i))
    write_manifest(folder / 'train.csv', rows)
    return folder


# Tests


def test_files_lost_in_mid_run_are_excluded_by_name(tmp_path):
    run = run_deepspeech(long_corpus(tmp_path), hook=lose_one, epochs=3, **UNCACHED)
    assert run.returncode == 0, run.stdout
    excluded = dict(re.findall(r'^excluded (\S+): (.*)', run.stdout, re.M))
    assert list(excluded) == ['wav/long2%d.wav' % i for i in range(3)]
    reasons = 'No such file', 'damaged WAV: 3 samples', 'not a regular file'
    assert all(reason in said for reason, said in zip(reasons, excluded.values())), excluded
    assert '3 of 30 train utterances excluded while reading' in run.stdout
    assert 'Excluded while reading: 3 train utterances' in run.stdout
    assert runs.newest_hyper(tmp_path)['results']['excluded_while_reading'] == 3


def test_a_disk_that_is_gone_ends_the_run_with_a_checkpoint_to_go_on_from(tmp_path):
    folder = long_corpus(tmp_path)
    values = {**UNCACHED, 'dev_files': '', 'test_files': '', 'epochs': 3}
    lost = run_deepspeech(folder, hook=lose_all, **values)
    line = one_error(lost, 'more than half of the 30 train utterances', 'wav/long')
    assert os.path.exists(os.path.join(folder, re.search(r'saved (\S+)$', line)[1] + '.index'))
    os.rename(folder / 'elsewhere', folder / 'wav')
    resumed = run_deepspeech(folder, restore_checkpoint=1, **values)
    assert resumed.returncode == 0, resumed.stdout


@pytest.mark.parametrize('hook, limit', [(hang, 1), (hang_and_stop, 300)])
def test_a_read_that_hangs_ends_the_run_with_a_checkpoint(tmp_path, hook, limit):
    started = time.monotonic()
    run = run_deepspeech(
        long_corpus(tmp_path), hook=hook, feed_timeout_secs=limit, epochs=2, **UNCACHED
    )
    assert time.monotonic() - started < 60
    if hook is hang:
        line = one_error(run, 'reading wav/long', 'takes longer than 1 s (ds_feed_timeout_secs)')
    else:
        assert run.returncode == 130, run.stdout
        [line] = [each for each in run.stdout.splitlines() if each.startswith('interrupted: ')]
    assert re.search(r'saved (\S+-\d+)', line), line


def test_an_error_in_a_reader_names_the_utterance(tmp_path):
    run = run_deepspeech(long_corpus(tmp_path), hook=break_reader, epochs=2, **UNCACHED)
    one_error(run, 'wav/long', 'cannot be read: MemoryError', 'saved ckpt/model.ckpt-')


def main_with_readers(n_readers, slow):
    """Runs DeepSpeech.py with so many reader threads, which may be slow now and then."""
    import DeepSpeech

    feeder.N_READERS, read = n_readers, data_sets._compute_features

    def uneven(utterance, config):
        time.sleep(0.02 * random.random())
        return read(utterance, config)

    if slow:
        data_sets._compute_features = uneven
    return DeepSpeech.main([])


def test_the_number_of_readers_and_their_speed_change_no_bit(tmp_path):
    folder = make_corpus(tmp_path)

    def weights(n_readers, slow, seed):
        place = 'ckpt-%d-%d' % (n_readers, seed)
        environment = config.environment_with(
            **CORPUS,
            checkpoint_dir=place,
            random_seed=seed,
            batch_order='shuffled',
            augment='pitch tempo[factor=1~0.1]',
        )
        run = runs.run_forked(
            main_with_readers, n_readers, slow, folder=folder, environment=environment
        )
        assert run.returncode == 0, run.stdout
        return weights_of_run(folder / place)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(weights, (1, 2, 8, 1), (False, True, True, False), (1, 1, 1, 2)))
    assert found[0] == found[1] == found[2] != found[3]
