"""Whole runs of DeepSpeech.py in processes of their own, and what they print and write."""

import concurrent.futures
import contextlib
import glob
import hashlib
import json
import multiprocessing
import multiprocessing.forkserver
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from unittest import mock

import numpy as np

from helpers import PROJECT
from util.tf1 import tf

RUN_LIMIT_S = 300  # a run of DeepSpeech.py that takes longer hangs
FORKS = multiprocessing.get_context('forkserver')  # processes of a server that loads TensorFlow
FORKS.set_forkserver_preload(['pytest', 'soundfile', 'DeepSpeech', 'runs'])
_marked = False  # whether the test that runs now is marked as one that may start DeepSpeech.py


@contextlib.contextmanager
def allowed(marked: bool):
    """Tells `run_deepspeech` whether the test that runs inside has the marker `run`."""
    global _marked
    _marked = marked
    try:
        yield
    finally:
        _marked = False


# Running


def run_deepspeech(
    folder: str | os.PathLike,
    *arguments: str,
    hook: Callable | None = None,
    script: str | None = None,
    fresh: bool = False,
    **values,
) -> subprocess.CompletedProcess:
    """Runs DeepSpeech.py in `folder` on its manifests, small and quick, with more settings, in a
    process of its own.

    Args:
      folder: working folder of the process.
      arguments: arguments of the command line.
      hook: function hook(point, state) of a test module, which DeepSpeech.main calls at certain
        points of the run; it must be picklable.
      script: path of the script to start in the place of DeepSpeech.py, with `fresh` only.
      fresh: whether the process starts as from a shell; otherwise it is forked from a server that
        has loaded TensorFlow already, which saves seconds.
      values: settings without ds_; None removes one of the small run's.
    Returns:
      CompletedProcess; its stdout holds both output streams.
    Raises:
      RuntimeError: the test that runs now has no marker `run`.
    """
    if not _marked:
        raise RuntimeError('a test that runs DeepSpeech.py needs the marker @pytest.mark.run')
    environment = small_environment(**values)
    if fresh:
        command = [sys.executable, script or os.path.join(PROJECT, 'DeepSpeech.py'), *arguments]
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_LIMIT_S,
        )
    return run_forked(_main, arguments, hook, folder=folder, environment=environment)


def small_environment(**values) -> dict[str, str]:
    """Returns the environment of a small, quick run on train.csv, dev.csv and test.csv.

    Args:
      values: more settings without ds_; None removes one of the small run's.
    """
    small = {
        'importer': 'csv',
        'train_files': 'train.csv',
        'dev_files': 'dev.csv',
        'test_files': 'test.csv',
        'n_hidden': 32,
        'epochs': 2,
        'train_batch_size': 2,
        'dev_batch_size': 2,
        'test_batch_size': 2,
        'display_step': 1,
        'validation_step': 1,
        'checkpoint_step': 1,
        'report_count': 100,
        'random_seed': 4567,
        'checkpoint_dir': 'ckpt',
        'logs_dir': 'logs',
        'cache_dir': 'cache',
    }
    small.update(values)
    environment = {k: v for k, v in os.environ.items() if not k.startswith('ds_')}
    environment.update({'ds_' + k: str(v) for k, v in small.items() if v is not None})
    return environment


def run_together(folder: str | os.PathLike, *runs: dict) -> list[subprocess.CompletedProcess]:
    """Runs DeepSpeech.py several times in one folder, two runs at a time.

    Args:
      folder: working folder of the processes.
      runs: arguments of `run_deepspeech` by name; each run needs a checkpoint folder of its own.
    """
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda values: run_deepspeech(folder, **values), runs))


def stop_and_resume(
    corpus: pathlib.Path, hook: Callable, **values
) -> tuple[subprocess.CompletedProcess, ...]:
    """Returns (whole run, run that `hook` stops, run that resumes it) of two epochs."""
    whole, stopped = run_together(
        corpus, dict(values, checkpoint_dir='whole'), dict(values, hook=hook)
    )
    assert stopped.returncode == 130, stopped.stdout
    resumed = run_deepspeech(corpus, restore_checkpoint=1, **values)
    assert resumed.returncode == 0, resumed.stdout
    assert final_line(resumed.stdout) == final_line(whole.stdout)
    return whole, stopped, resumed


def run_forked(
    function: Callable, *arguments, folder: str | os.PathLike, environment: dict[str, str]
) -> subprocess.CompletedProcess:
    """Calls function(*arguments) as if a program that does so were started from a shell.

    The process is forked from a server that has loaded TensorFlow, which saves seconds.

    Args:
      function: function of a module whose result is the exit status; it and the arguments must be
        picklable.
      folder: working folder of the process.
      environment: its environment variables.
    Returns:
      CompletedProcess; its stdout holds both output streams.
    """
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        multiprocessing.forkserver.ensure_running()  # it must find what it is to preload
    with tempfile.TemporaryDirectory() as place:
        output = os.path.join(place, 'output')
        process = FORKS.Process(
            target=_forked, args=(function, arguments, str(folder), environment, output)
        )
        process.start()
        process.join(RUN_LIMIT_S)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(function.__name__, RUN_LIMIT_S)
        with open(output, encoding='utf-8', errors='replace') as file:
            return subprocess.CompletedProcess(arguments, process.exitcode, file.read())


def _forked(function, arguments, folder, environment, output):
    """Gives the forked process its folder, environment and streams, and calls the function."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for stream, opened in (
        (0, os.open(os.devnull, os.O_RDONLY)),
        (1, os.open(output, os.O_WRONLY | os.O_CREAT)),
    ):
        os.dup2(opened, stream)
    os.dup2(1, 2)
    sys.stdout, sys.stderr = (
        os.fdopen(stream, 'w', buffering=1, encoding='utf-8', closefd=False) for stream in (1, 2)
    )
    sys.exit(function(*arguments))


def _main(arguments, hook):
    """Runs the command line of DeepSpeech.py; returns the exit status."""
    import DeepSpeech  # not above, as this module is also for tests that start no run

    return DeepSpeech.main(list(arguments), hook)


# What a run prints


def epochs(out: str, set_name: str = 'train') -> list[str]:
    """Returns the losses of the lines that end an epoch: ['383.904034', ...]."""
    return re.findall(r'Epoch \d+ of \d+ finished:.*?\b%s loss ([\d.]+|nan|inf)' % set_name, out)


def losses(run: subprocess.CompletedProcess, set_name: str = 'train') -> list[float]:
    """Returns the losses of the epochs of a run that must have ended well."""
    assert run.returncode == 0, run.stdout
    return [float(loss) for loss in epochs(run.stdout, set_name)]


def started(out: str) -> list[int]:
    """Returns the numbers of the epochs that were started."""
    return [int(n) for n in re.findall(r'^Epoch (\d+) of \d+ started', out, re.M)]


def final_line(out: str) -> str:
    """Returns the line with the outcome of the test."""
    return re.search(r'^Test: .*$', out, re.M).group()


def sources(report: str) -> list[str]:
    """Returns the transcripts that a WER report shows."""
    return re.findall(r'source: "(.*)"', report)


def fails(run: subprocess.CompletedProcess, *words: str) -> None:
    """Asserts a clean stop: status 1, no traceback, a line with these words; no step taken."""
    assert run.returncode == 1, run.stdout
    assert 'Traceback' not in run.stdout
    assert 'started' not in run.stdout
    line = [line for line in run.stdout.splitlines() if line.startswith('error: ')]
    assert len(line) == 1, run.stdout
    for word in words:
        assert word in line[0]


def say_and_check(
    what: str, got: list[float], expected: list[float], tolerance: float = 1e-6
) -> None:
    """Asserts that values are equal up to a relative deviation, which `pytest -s` shows."""
    worst = np.abs(np.divide(got, expected) - 1).max()
    print('\ndeviation of %s: %.1e' % (what, worst))
    assert len(got) == len(expected) and worst < tolerance


# What a run writes


def checksums(folder: str | os.PathLike) -> dict[str, str]:
    """Returns {file name: SHA-256} of the checkpoint files in a folder."""
    return {
        name: hashlib.sha256(pathlib.Path(folder, name).read_bytes()).hexdigest()
        for name in sorted(os.listdir(folder))
        if name.startswith('model')
    }


def weights_of(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns {name: value} of a checkpoint."""
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def read_strict(text: str):
    """Returns the content of a JSON text, which must not hold NaN or Infinity."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def newest_hyper(folder: pathlib.Path) -> dict:
    """Returns the content of hyper.json of the newest run in a folder."""
    path = sorted(glob.glob(str(folder / 'logs' / '*' / 'hyper.json')))[-1]
    return read_strict(pathlib.Path(path).read_text())


def events(folder: pathlib.Path, set_name: str) -> dict[str, list[tuple[int, float]]]:
    """Returns {tag: [(step, value), ...]} of the newest run's event files."""
    found = {}
    run = sorted(glob.glob(str(folder / 'logs' / '2*')))[-1]
    for path in glob.glob(os.path.join(run, set_name, 'events*')):
        for event in tf.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found
