"""Runs whose disk gets full, or can no longer be written, on small file systems of their own."""

import contextlib
import glob
import os
import re
import resource
import subprocess

import pytest

from runs import checksums, run_deepspeech, started

pytestmark = pytest.mark.run

QUICK = dict(beam_width=1, display_step=0, dropout_rate=0, test_files='', epochs=4)


@pytest.fixture
def small_disk(corpus):
    """A folder of `corpus` on a file system of its own that holds 3 MiB: three checkpoints and
    the best one."""
    (corpus / 'small').mkdir()
    if mount('-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', corpus / 'small'):
        pytest.skip('no permission to mount a file system')
    yield corpus / 'small'
    subprocess.run(['umount', corpus / 'small'], check=True)


def mount(*arguments):
    """The exit status of `mount` with these arguments."""
    return subprocess.run(['mount', *arguments], capture_output=True).returncode


def fill_the_disk(point, state):
    """Takes what is free of the disk in the third epoch."""
    if point == 'step' and state.epoch == 2 and not os.path.exists('small/filling'):
        with contextlib.suppress(OSError), open('small/filling', 'wb', buffering=0) as file:
            while True:
                file.write(bytes(4096))


def make_the_disk_read_only(point, state):
    if point == 'step' and state.epoch == 2:
        mount('-o', 'remount,ro', 'small')


def let_no_file_grow(point, state):
    """Allows files of less than the events have by now, but not less than a checkpoint."""
    if point == 'step' and state.epoch == 1:
        [path] = glob.glob('logs/*/train/events*')
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path),) * 2)


def test_an_event_file_that_is_too_large_ends_the_run_with_a_checkpoint(corpus):
    run = run_deepspeech(corpus, hook=let_no_file_grow, **QUICK)
    assert run.returncode == 1, run.stdout
    [line] = re.findall('^error: (.*)', run.stdout, re.M)
    assert 'the logs cannot be written' in line and 'saved ckpt/model.ckpt-' in line
    assert 'Traceback' not in run.stdout


@pytest.mark.parametrize(
    'hook, reason',
    [
        (fill_the_disk, 'No space left on device'),
        (make_the_disk_read_only, 'Read-only file system'),
    ],
)
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    corpus, small_disk, hook, reason
):
    values = dict(QUICK, checkpoint_dir='small/ckpt')
    run = run_deepspeech(corpus, hook=hook, **values)
    assert run.returncode == 1 and 'Traceback' not in run.stdout, run.stdout
    warning = re.search(r'^.*ds_checkpoint_dir: the run will take about .*$', run.stdout, re.M)
    assert 'MB of the disk of small/ckpt, of which 3.1 MB are free' in warning.group(), run.stdout
    assert warning.start() < run.stdout.index('Epoch 1 of 4 started')
    [error] = [line for line in run.stdout.splitlines() if line.startswith('error: ')]
    assert error.startswith('error: the checkpoint cannot be written to small/ckpt: '), error
    assert reason in error
    mount('-o', 'remount,rw', small_disk)
    left = set(os.listdir(small_disk / 'ckpt')) - {'run.lock'}
    assert left == {'best', 'checkpoint'} | set(checksums(small_disk / 'ckpt'))
    with contextlib.suppress(FileNotFoundError):
        os.remove(small_disk / 'filling')
    os.makedirs(corpus / 'more')
    subprocess.run(['cp', '-r', small_disk / 'ckpt', corpus / 'more'], check=True)
    resumed = run_deepspeech(
        corpus, restore_checkpoint=1, **dict(values, checkpoint_dir='more/ckpt')
    )
    assert resumed.returncode == 0 and started(resumed.stdout) == [3, 4], resumed.stdout


def test_logs_that_cannot_be_written_end_the_run_with_a_checkpoint(corpus, small_disk):
    values = dict(QUICK, log_variables=1)  # more to write than the file's last block has room for
    run = run_deepspeech(corpus, hook=fill_the_disk, logs_dir='small/logs', **values)
    assert run.returncode == 1 and 'Traceback' not in run.stdout, run.stdout
    [error] = [line for line in run.stdout.splitlines() if line.startswith('error: ')]
    assert 'the logs cannot be written to small/logs/' in error
    assert 'No space left on device' in error and 'saved ckpt/model.ckpt-' in error
    resumed = run_deepspeech(corpus, restore_checkpoint=1, **QUICK)
    assert resumed.returncode == 0 and started(resumed.stdout)[-1] == 4, resumed.stdout


def test_an_export_that_does_not_fit_leaves_nothing(corpus, small_disk):
    values = dict(QUICK, export_dir='small/export')
    (small_disk / 'filling').write_bytes(bytes(3_100_000))
    run = run_deepspeech(corpus, **dict(values, epochs=1))
    assert run.returncode == 1 and 'Traceback' not in run.stdout, run.stdout
    assert 'ds_export_dir: the run will take about' in run.stdout
    assert 'error: the model cannot be exported to small/export: ' in run.stdout
    assert os.listdir(small_disk / 'export') == []


def test_a_cache_that_does_not_fit_is_done_without(corpus, small_disk):
    (small_disk / 'filling').write_bytes(bytes(3_100_000))
    run = run_deepspeech(corpus, cache_dir='small/cache', **dict(QUICK, epochs=1))
    assert run.returncode == 0 and 'Traceback' not in run.stdout, run.stdout
    plain = run_deepspeech(corpus, checkpoint_dir='plain', **dict(QUICK, epochs=1))
    lines = [re.search('^Epoch 1 of 1 finished.*', each.stdout, re.M) for each in (run, plain)]
    figures = [re.findall(r'loss ([\d.]+)', line.group()) for line in lines]
    assert figures[0] == figures[1] and figures[0]
    assert not glob.glob(str(small_disk / '*' / '*.tmp'))
