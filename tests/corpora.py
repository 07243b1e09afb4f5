"""What the tests of importers share: reading a corpus, writing one in its form, real speech."""

import csv
import os
import pathlib
import types
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest

from helpers import load_config, speech
from util import records, text
from util.feeding import data_sets

HEADER_BYTES = 1024


def list_corpus(
    importer: types.ModuleType, folder: str | os.PathLike, /, **values
) -> records.Listing:
    """Returns what an importer lists of the corpus in a folder, with these settings."""
    return importer.list_utterances(_config(importer, folder, values))


def read_corpus(
    importer: types.ModuleType, folder: str | os.PathLike, /, **values
) -> data_sets.DataSets:
    """Returns the DataSets of the corpus in a folder, with these settings."""
    return importer.read_data_sets(_config(importer, folder, values), text.Alphabet())


def _config(importer, folder, values):
    name = importer.__name__.rpartition('.')[2]
    return load_config(**{'importer': name, 'dataset_path': folder, **values})


def write_lines(path: pathlib.Path, lines: Iterable[str]) -> str:
    """Writes a text file of these lines, with its folder; returns its path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(line + '\n' for line in lines), encoding='utf-8')
    return str(path)


def two_voices(rate: int) -> np.ndarray:
    """Returns a conversation of 6 s, another voice on each channel: int16 [6 * rate, 2]."""
    return np.stack([speech(6, 1, rate), speech(6, 2, rate)], axis=1)


def write_sphere(
    path: str | os.PathLike,
    samples: np.ndarray,
    rate: int,
    byte_order: str = '01',
    extra: Sequence[str] = (),
    coding: str = 'pcm',
) -> None:
    """Writes int16 samples [n] or [n, channels] as an uncompressed NIST SPHERE file.

    Args:
      byte_order: '01' little-endian, '10' big-endian, as the header says it.
      extra: more fields of the header.
      coding: of the samples, as the header says it; empty: the header leaves it out.
    """
    samples = np.asarray(samples, np.int16)
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    fields = [
        'NIST_1A',
        '   %d' % HEADER_BYTES,
        *extra,
        'channel_count -i %d' % channels,
        'sample_count -i %d' % len(samples),
        'sample_rate -i %d' % rate,
        'sample_n_bytes -i 2',
        'sample_byte_format -s2 %s' % byte_order,
        'sample_sig_bits -i 16',
    ]
    if coding:
        fields.append('sample_coding -s%d %s' % (len(coding), coding))
    header = ('\n'.join([*fields, 'end_head']) + '\n').encode().ljust(HEADER_BYTES, b' ')
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with open(path, 'wb') as file:
        file.write(header + samples.astype('<i2' if byte_order == '01' else '>i2').tobytes())


def read_index(
    shared_data: Callable[..., pathlib.Path], corpus: str, folder: str = '.'
) -> dict[str, dict[str, str]]:
    """Returns what the index of the shared speech data says of a corpus.

    Args:
      shared_data: the fixture.
      corpus: its name in the index.
      folder: path, below the shared data, to which the keys are relative.
    Returns:
      {path of an audio file: row of the index}.
    """
    shared_data(corpus)  # where it is absent, the reason of the skip names it
    with open(shared_data('index.tsv'), encoding='utf-8', newline='') as file:
        rows = csv.DictReader(file, delimiter='\t', quoting=csv.QUOTE_NONE)
        return {os.path.relpath(row['file'], folder): row for row in rows if row['set'] == corpus}


def check_against_index(sets: Iterable[data_sets.DataSet], rows: dict[str, dict[str, str]]) -> None:
    """Checks that the sets hold the utterances of the index, each once, as they are there.

    Args:
      rows: {name of the utterance: row of the index}.
    """
    examples = [example for data_set in sets for example in data_set.examples]
    assert sorted(example.utterance.name for example in examples) == sorted(rows)
    for example in examples:
        row = rows[example.utterance.name]
        assert example.transcript == row['text']
        assert example.seconds == pytest.approx(float(row['seconds']), abs=0.01)
