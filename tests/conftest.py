"""What several tests use: speech-like WAVs, settings, runs of DeepSpeech.py."""
import concurrent.futures
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import wave

import numpy as np
import pytest

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, PROJECT)

from util import config as settings, errors  # noqa: E402

with settings.silenced_tensorflow():
    import tensorflow  # noqa: E402, F401

from util.corpora import download  # noqa: E402

RATE = 16000        # Hz
RUN_LIMIT_S = 300   # a run of DeepSpeech.py that takes longer hangs
FORKS = multiprocessing.get_context('forkserver')  # processes of a server that loads TensorFlow
FORKS.set_forkserver_preload(['conftest', 'DeepSpeech'])


def speech(seconds, seed=0, rate=RATE):
    """A voiced-like signal: 15 harmonics of a gliding 140 Hz, a slow envelope, some noise.

    Returns:
      int16 [seconds * rate], peak 12000.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * rate)) / rate
    pitch = 140 + 20 * np.sin(2 * np.pi * 0.7 * t + seed)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    signal = sum(np.sin(k * phase) / k for k in range(1, 16))
    signal *= 0.6 + 0.4 * np.sin(2 * np.pi * 3 * t + 0.5 * seed)
    signal += rng.normal(0, 0.03, len(t))
    return np.int16(12000 * signal / np.abs(signal).max())


def write_wav(path, samples, rate=RATE):
    """Writes int16 samples [n] or [n, channels] as a WAV file; returns the path as text."""
    samples = np.asarray(samples, np.int16)
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with wave.open(str(path), 'wb') as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype('<i2').tobytes())
    return str(path)


def write_manifest(path, rows):
    """Writes (wav_filename, transcript) rows as a manifest with the usual columns."""
    lines = ['wav_filename,wav_filesize,transcript']
    lines += ['%s,0,%s' % row for row in rows]
    with open(path, 'w', encoding='utf-8', newline='') as file:
        file.write('\n'.join(lines) + '\n')
    return str(path)


def load_config(**values):
    """Config with these settings (field names without ds_), the importer `csv` by default."""
    values.setdefault('importer', 'csv')
    values.setdefault('cache_dir', os.path.join(tempfile.gettempdir(), 'deepspeech-test-cache'))
    return settings.load({'ds_' + name: str(value) for name, value in values.items()})[0]


def make_corpus(folder):
    """train.csv, dev.csv, test.csv and wav/ in a folder: 5, 2 and 2 good utterances."""
    words = ['one two', 'the red door', 'go home now', 'we all sleep', 'blue sky',
             'good day', 'open it', 'fine weather', 'last one']
    rows = [('wav/good%d.wav' % i, text) for i, text in enumerate(words)]
    for i, (name, _) in enumerate(rows):
        write_wav(folder / name, speech(1.2 + 0.1 * (i % 4), seed=i))
    for name, part in (('train', rows[:5]), ('dev', rows[5:7]), ('test', rows[7:])):
        write_manifest(folder / (name + '.csv'), part)
    return folder


@pytest.fixture
def corpus(tmp_path):
    """`make_corpus` in a folder of the test's own."""
    return make_corpus(tmp_path)


@pytest.fixture
def fetched(monkeypatch):
    """What the importer asks download.fetch_corpus for; a marker that is missing is an error."""
    asked = []

    def fetch_corpus(folder, marker, archives):
        asked.append((str(folder), marker, archives))
        if not os.path.exists(os.path.join(folder, marker)):
            raise errors.DataError('no network')

    monkeypatch.setattr(download, 'fetch_corpus', fetch_corpus)
    return asked


def run_deepspeech(folder, *arguments, script=None, fresh=False, **values):
    """Runs DeepSpeech.py in `folder` on its manifests, small and quick, with more settings, in a
    process of its own.

    Args:
      folder: working folder of the process.
      arguments: of the command line.
      script: what to run in the place of DeepSpeech.py.
      fresh: whether the process starts as from a shell; else it is forked from one that has
        TensorFlow loaded, which takes seconds.
      values: settings.
    Returns:
      CompletedProcess; its stdout holds both output streams.
    """
    small = dict(importer='csv', train_files='train.csv', dev_files='dev.csv',
                 test_files='test.csv', n_hidden=32, epochs=2, train_batch_size=2,
                 dev_batch_size=2, test_batch_size=2, display_step=1, validation_step=1,
                 checkpoint_step=1, report_count=100, random_seed=4567, checkpoint_dir='ckpt',
                 logs_dir='logs', cache_dir='cache')
    small.update(values)
    environment = {k: v for k, v in os.environ.items() if not k.startswith('ds_')}
    environment.update({'ds_' + k: str(v) for k, v in small.items() if v is not None})
    command = [script or os.path.join(PROJECT, 'DeepSpeech.py'), *arguments]
    if fresh:
        return subprocess.run(
            [sys.executable, *command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_LIMIT_S)
    return _run_forked(command, str(folder), environment)


def run_together(folder, *runs):
    """Runs of DeepSpeech.py in one folder, two at a time; a dict of `run_deepspeech`'s settings
    each, with checkpoint folders of their own."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda values: run_deepspeech(folder, **values), runs))


def _run_forked(command, folder, environment):
    with tempfile.TemporaryDirectory() as place:
        output = os.path.join(place, 'output')
        process = FORKS.Process(target=_forked, args=(command, folder, environment, output))
        process.start()
        process.join(RUN_LIMIT_S)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, RUN_LIMIT_S)
        with open(output, encoding='utf-8', errors='replace') as file:
            return subprocess.CompletedProcess(command, process.exitcode, file.read())


def _forked(command, folder, environment, output):
    """What runs in the forked process, as if it had been started with these."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for stream, opened in ((0, os.open(os.devnull, os.O_RDONLY)),
                           (1, os.open(output, os.O_WRONLY | os.O_CREAT))):
        os.dup2(opened, stream)
    os.dup2(1, 2)
    sys.stdout, sys.stderr = (open(stream, 'w', buffering=1, encoding='utf-8', closefd=False)
                              for stream in (1, 2))
    sys.argv = command
    if os.path.basename(command[0]) != 'DeepSpeech.py':
        runpy.run_path(command[0], run_name='__main__')
    import DeepSpeech
    sys.exit(DeepSpeech.main(command[1:]))
