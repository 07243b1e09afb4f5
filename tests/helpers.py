"""Functions that many tests share: speech-like audio, manifests, a small corpus, settings."""

import os
import pathlib
import tempfile
import wave
from collections.abc import Callable, Iterable

import numpy as np
import soundfile

from util import config as settings
from util.tf1 import tf

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RATE = 16000  # Hz


def speech(seconds: float, seed: int = 0, rate: int = RATE) -> np.ndarray:
    """Returns a voiced-like signal: 15 harmonics of a gliding 140 Hz, a slow envelope, some noise.

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


def write_wav(path: str | os.PathLike, samples: np.ndarray, rate: int = RATE) -> str:
    """Writes int16 samples [n] or [n, channels] as a WAV file; returns the path as text."""
    samples = np.asarray(samples, np.int16)
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with wave.open(str(path), 'wb') as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype('<i2').tobytes())
    return str(path)


def write_broken_flac(path: pathlib.Path, seconds: float, whole: float) -> None:
    """Writes a FLAC file of `seconds` of audio, of which only the share `whole` can be decoded, as
    what follows is damaged; the end, which is looked at before the training, is not."""
    soundfile.write(path, speech(seconds), RATE)
    content = bytearray(path.read_bytes())
    damaged = slice(int(len(content) * whole), int(len(content) * (whole + 0.3)))
    content[damaged] = bytes(damaged.stop - damaged.start)
    path.write_bytes(content)


def write_manifest(path: str | os.PathLike, rows: Iterable[tuple[str, str]]) -> str:
    """Writes (wav_filename, transcript) rows as a manifest with the usual columns."""
    lines = ['wav_filename,wav_filesize,transcript']
    lines += ['%s,0,%s' % row for row in rows]
    with open(path, 'w', encoding='utf-8', newline='') as file:
        file.write('\n'.join(lines) + '\n')
    return str(path)


def load_config(**values) -> settings.Config:
    """Returns the Config with these settings (without ds_); the importer is `csv` by default."""
    values.setdefault('importer', 'csv')
    values.setdefault('cache_dir', os.path.join(tempfile.gettempdir(), 'deepspeech-test-cache'))
    return settings.load({'ds_' + name: str(value) for name, value in values.items()})[0]


def make_corpus(folder: pathlib.Path) -> pathlib.Path:
    """Writes train.csv, dev.csv, test.csv and wav/ into a folder: 5, 2 and 2 good utterances."""
    words = [
        'one two',
        'the red door',
        'go home now',
        'we all sleep',
        'blue sky',
        'good day',
        'open it',
        'fine weather',
        'last one',
    ]
    rows = [('wav/good%d.wav' % i, text) for i, text in enumerate(words)]
    for i, (name, _) in enumerate(rows):
        write_wav(folder / name, speech(1.2 + 0.1 * (i % 4), seed=i))
    for name, part in (('train', rows[:5]), ('dev', rows[5:7]), ('test', rows[7:])):
        write_manifest(folder / (name + '.csv'), part)
    return folder


def unoptimised(cpus: int = 1) -> tf.ConfigProto:
    """Returns the options of a session that runs its graph as it was built; to optimise it takes
    longer than to run it once. For comparisons of our own graphs with each other only.

    Args:
      cpus: logical CPU devices.
    """
    options = tf.ConfigProto(device_count={'CPU': cpus})
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    return options


def run_graph(build: Callable, feed: dict | None = None, seed: int = 1):
    """Returns the values of what build() puts into a new graph, its variables initialised."""
    with tf.Graph().as_default(), tf.Session(config=unoptimised()) as session:
        tf.set_random_seed(seed)
        fetches = build()
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feed)
