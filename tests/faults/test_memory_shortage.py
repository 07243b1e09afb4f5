"""Runs whose memory does not suffice: before the training, and in its midst."""

import concurrent.futures
import os
import re
import resource

import pytest

import DeepSpeech
import runs
from helpers import make_corpus, speech, write_wav
from runs import epochs, run_deepspeech
from util import config
from util.run import memory
from util.tf1 import tf

pytestmark = pytest.mark.run

CORPUS = {
    'importer': 'csv',
    'train_files': 'train.csv',
    'dev_files': 'dev.csv',
    'n_hidden': 8,
    'epochs': 1,
    'train_batch_size': 2,
    'cache_dir': 'cache',
    'checkpoint_dir': 'ckpt',
}


def run_as(main, folder, **values):
    """Runs main() of this module in a process with these settings."""
    environment = config.environment_with(**{**CORPUS, **values})
    return runs.run_forked(main, folder=folder, environment=environment)


def main_with_little_memory():
    """Runs DeepSpeech.py in a process that can get little more memory than a trial leaves."""
    used = memory._table('/proc/self/status')['VmSize']
    resource.setrlimit(resource.RLIMIT_AS, (used + memory.RESERVE_BYTES + 2**27,) * 2)
    return DeepSpeech.main([])


def main_that_tries():
    """Runs DeepSpeech.py with a trial, however much memory there is."""
    memory.TRIED_SHARE = 0.0
    return DeepSpeech.main([])


def main_that_tries_here():
    """The same in the process of the run, as on a machine with GPUs."""
    memory._try_in_a_process = lambda *arguments: memory._try_here(*arguments[:4])
    return main_that_tries()


def main_that_does_not_try():
    """Runs DeepSpeech.py without a trial."""
    return DeepSpeech.main([])


def run_out(point, state):
    """Lets the memory run out in the second step of the second epoch."""
    if point == 'step' and (state.epoch, state.epoch_step) == (1, 1):

        def train_step(*arguments):
            raise tf.errors.ResourceExhaustedError(None, None, 'OOM when allocating a tensor')

        DeepSpeech.train_step = train_step


def test_memory_runs_out_before_the_training_and_the_longest_utterance_is_named(tmp_path):
    folder = make_corpus(tmp_path)
    write_wav(folder / 'wav/lecture.wav', speech(300))
    with open(folder / 'train.csv', 'a') as manifest:
        manifest.write('wav/lecture.wav,0,hello\n')
    run = run_as(main_with_little_memory, folder)
    assert run.returncode == 1, run.stdout
    [line] = re.findall('^error: .*', run.stdout, re.M)
    assert 'memory runs out with the largest train batch: 2 utterances of up to 29999' in line
    assert 'wav/lecture.wav, 300.0 s' in line and 'ds_train_batch_size is 2, ' in line
    assert 'wav/lecture.wav: 300.0 s, 29999 time steps' in run.stdout
    assert 'started' not in run.stdout and 'Traceback' not in run.stdout
    assert not [name for name in os.listdir(folder / 'ckpt') if name.startswith('model')]


def test_a_trial_changes_no_figure(tmp_path):
    folder = make_corpus(tmp_path)

    def losses(main):
        values = {'checkpoint_dir': main.__name__, 'numbatches_to_aggregate': 2}
        run = run_as(main, folder, **values)
        assert run.returncode == 0, run.stdout
        tried = 'trying the largest train batch: ' in run.stdout
        assert tried == (main is not main_that_does_not_try) and 'going on' not in run.stdout
        return epochs(run.stdout)

    mains = main_that_tries, main_that_tries_here, main_that_does_not_try
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(losses, mains))
    assert found[0] == found[1] == found[2] != []


def test_memory_that_runs_out_in_mid_run_ends_it_with_a_checkpoint(tmp_path):
    folder = make_corpus(tmp_path)
    run = run_deepspeech(folder, hook=run_out, checkpoint_step=0, validation_step=0)
    assert run.returncode == 1, run.stdout
    [line] = re.findall('^error: .*', run.stdout, re.M)
    assert re.search(r'memory ran out with a batch of 2 utterances .* wav/good\d', line)
    assert line.endswith('OOM when allocating a tensor; saved ckpt/model.ckpt-4')
    resumed = run_deepspeech(folder, restore_checkpoint=1, validation_step=0)
    assert 'restored ckpt/model.ckpt-4: 1 epochs done and 1 steps of the next' in resumed.stdout
    assert resumed.returncode == 0, resumed.stdout
