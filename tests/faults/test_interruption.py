"""A run that is asked to end in each of its stages, and outputs that cannot be written.

    python tests/faults/test_interruption.py --seed 7 --count 200

sends a signal after a random time to as many runs, and prints what became of them.
"""

import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

import pytest

if __name__ == '__main__':
    sys.path[:0] = [str(pathlib.Path(__file__).parents[1]), str(pathlib.Path(__file__).parents[2])]

from helpers import PROJECT, make_corpus
from runs import newest_hyper, run_deepspeech, run_forked

pytestmark = pytest.mark.run
LIMIT_S = 200  # a process that takes longer hangs
SMALL = {
    'ds_importer': 'csv',
    'ds_train_files': 'train.csv',
    'ds_dev_files': 'dev.csv',
    'ds_test_files': 'test.csv',
    'ds_n_hidden': '8',
    'ds_epochs': '1',
    'ds_batch_size': '2',
    'ds_checkpoint_dir': 'ckpt',
    'ds_logs_dir': 'logs',
    'ds_cache_dir': 'cache',
    'ds_export_dir': 'export',
}
NOTHING = 'interrupted: nothing was saved'
COMPLETE = 'interrupted: the training is complete'


def environment(**values):
    """The environment of a small run, with more settings."""
    others = {name: value for name, value in os.environ.items() if not name.startswith('ds_')}
    return {**others, **SMALL, **{'ds_' + name: str(value) for name, value in values.items()}}


def signalled(place, number, lost):
    """Runs DeepSpeech.py, which gets a signal when it calls the function `place`.

    Args:
      place: module and name of the function, such as DeepSpeech.export.
      lost: whether the exception of the signal is lost, as in a destructor.
    """
    import DeepSpeech

    def send(*arguments, **options):
        try:
            os.kill(os.getpid(), number)
        except BaseException:
            if not lost:
                raise
        return original(*arguments, **options)

    patch = mock.patch(place, send)
    original = patch.get_original()[0]
    with patch:
        return DeepSpeech.main([])


def run_signalled(folder, place, number=signal.SIGTERM, lost=False, **values):
    return run_forked(
        signalled, place, number, lost, folder=folder, environment=environment(**values)
    )


# Stages


@pytest.mark.parametrize(
    'place, outcome',
    (
        ('util.importers.read_data_sets', NOTHING),
        ('DeepSpeech.build_model', NOTHING),
        ('util.run.checkpoints.Checkpoints.restore', NOTHING),
        ('DeepSpeech.train_step', 'interrupted: saved ckpt/model.ckpt-1: 0 epochs and 1 steps'),
        ('util.run.checkpoints.Checkpoints.load_weights_to_test', COMPLETE),
        ('DeepSpeech.export', COMPLETE),
    ),
)
def test_a_signal_is_remembered_though_its_exception_is_lost(corpus, place, outcome):
    run = run_signalled(corpus, place, lost=True)
    assert run.returncode == 130, run.stdout
    assert run.stdout.splitlines()[-1].startswith(outcome)
    assert 'Traceback' not in run.stdout


def test_a_checkpoint_is_not_damaged_because_a_signal_came_while_it_was_read(corpus):
    assert run_deepspeech(corpus, n_hidden=8).returncode == 0
    run = run_signalled(corpus, 'tensorflow.compat.v1.train.load_checkpoint', restore_checkpoint=1)
    assert run.returncode == 130, run.stdout
    assert run.stdout.splitlines()[-1] == NOTHING and 'damaged' not in run.stdout


def test_a_signal_after_the_results_does_not_make_them_a_failure(corpus):
    run = run_signalled(corpus, 'util.run.reports.log_summary')
    assert run.returncode == 0, run.stdout
    assert newest_hyper(corpus)['results']['test_wer'] == 1.0
    assert run.stdout.splitlines()[-1] == 'Export: export/1'


# Processes as from a shell


def start(folder, *command, **options):
    """Starts DeepSpeech.py, or another command, with signals as they are in a terminal."""
    return subprocess.Popen(
        ['env', '--default-signal=INT,HUP', *(command or [sys.executable, '-u', SCRIPT])],
        cwd=folder,
        text=True,
        **{'env': environment(), 'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options},
    )


SCRIPT = os.path.join(PROJECT, 'DeepSpeech.py')


def wait_until(true, process):
    """Waits until true() or the end of a process."""
    while not true() and process.poll() is None:
        time.sleep(0.01)


def test_ctrl_c_while_tensorflow_is_loaded_is_one_line(corpus):
    process = start(corpus)
    maps = pathlib.Path('/proc/%d/maps' % process.pid)
    wait_until(lambda: 'tensorflow' in maps.read_text(), process)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=LIMIT_S) == ('', NOTHING + '\n')
    assert process.returncode == 130


def test_a_run_goes_on_without_its_readers(corpus):
    leader, follower = os.openpty()
    process = start(corpus, stdout=follower)
    os.close(follower)
    os.read(leader, 1)
    os.close(leader)  # the terminal is gone
    said = process.stderr.read()
    assert process.wait(LIMIT_S) == 0, said
    assert said.splitlines() == [
        'the standard output cannot be written (Input/output error); the run goes on'
    ]
    assert os.path.exists(corpus / 'export' / '1' / 'saved_model.pb')


def test_accents_are_used_and_shown_in_any_locale(corpus):
    (corpus / 'ké').mkdir()
    values = environment(epochs=0, checkpoint_dir='ké/ckpt', init_from='ké/none')
    values.update(LC_ALL='C', PYTHONUTF8='0', PYTHONCOERCECLOCALE='0', PYTHONIOENCODING='ascii')
    process = start(corpus, env=values)
    said = process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 1 and 'Traceback' not in said
    assert said.startswith('error: ds_init_from: ') and r'k\xe9/none' in said


# Tools


@pytest.mark.parametrize('tool', ('build_lm', 'transcribe', 'tune_lm', 'check_data'))
def test_help_for_a_reader_that_leaves_is_quiet(tmp_path, tool):
    reading, writing = os.pipe()
    os.close(reading)
    process = start(
        tmp_path,
        *(sys.executable, '-m', 'util.tools.' + tool, '--help'),
        stdout=writing,
        env=dict(os.environ, PYTHONPATH=PROJECT),
    )
    os.close(writing)
    assert process.communicate(timeout=LIMIT_S)[1] == ''
    assert process.returncode == 0


def test_a_signal_ends_a_tool_with_one_line(tmp_path):
    process = start(
        tmp_path,
        *(sys.executable, '-m', 'util.tools.build_lm', '-', 'out.arpa'),
        stdin=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=PROJECT),
    )
    called = pathlib.Path('/proc/%d/syscall' % process.pid)
    wait_until(lambda: called.read_text().split()[:2] == ['0', '0x0'], process)  # reads its input
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=LIMIT_S) == ('', 'interrupted\n')
    assert process.returncode == 130


# A command for many more


def main(seed, count, longest_s):
    """Sends signals after random times and prints how each run ended."""
    chosen, odd = random.Random(seed), 0
    print('seed %d' % seed)
    for index in range(count):
        after, number = chosen.uniform(0, longest_s), chosen.choice([1, 2, 15])
        with tempfile.TemporaryDirectory() as folder:
            process = start(
                make_corpus(pathlib.Path(folder)), stderr=subprocess.STDOUT, env=environment()
            )
            time.sleep(after)
            process.send_signal(number)
            sent = time.monotonic()
            out = process.communicate(timeout=LIMIT_S)[0]
        seconds, status = time.monotonic() - sent, process.returncode
        last = (out.splitlines() or [''])[-1]
        fine = 'Traceback' not in out and (
            (status == 130 and last.startswith('interrupted: '))
            or (status == 0 and last.startswith('Export: '))
        )
        odd += not fine
        print(
            '%d: %s after %.2f s: status %d %.1f s later: %s%s'
            % (
                index,
                signal.Signals(number).name,
                after,
                status,
                seconds,
                last,
                '' if fine else out,
            ),
            flush=True,
        )
    print('%d of %d ended otherwise than they should' % (odd, count))
    return int(odd > 0)


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--seed', type=int, default=random.randrange(10**6))
    parser.add_argument('--count', type=int, default=200)
    parser.add_argument('--seconds', type=float, default=8.0, help='the longest time')
    options = parser.parse_args()
    sys.exit(main(options.seed, options.count, options.seconds))
