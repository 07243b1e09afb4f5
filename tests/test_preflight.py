"""util.run.preflight: the warning where the disk has too little room."""

import collections
import shutil

import pytest

from helpers import load_config
from util.graph import handles
from util.run import preflight
from util.tf1 import tf

WEIGHTS = 4 * 50  # bytes
CHECKPOINT = WEIGHTS + 8 + 3 * 8  # with the step and three numbers of the state
Usage = collections.namedtuple('Usage', 'total used free')


@pytest.fixture
def model():
    """A handles.Model that has no more than a graph, weights and savers: five newest, one best."""
    with tf.Graph().as_default() as graph:
        weights = [tf.get_variable('h1', [5, 10])]
        tf.get_variable('step', dtype=tf.int64, initializer=tf.constant(0, tf.int64))
        tf.get_variable('state', dtype=tf.float64, initializer=tf.zeros([3], tf.float64))
        savers = handles.Savers(
            tf.train.Saver(max_to_keep=5), tf.train.Saver(max_to_keep=1), *[None] * 2
        )
    empty = dict.fromkeys(handles.Model._fields)
    return handles.Model(**{**empty, 'graph': graph, 'weights': weights, 'savers': savers})


@pytest.fixture
def place(tmp_path):
    """The folders that preflight.check makes."""
    (tmp_path / 'ckpt' / 'best').mkdir(parents=True)
    (tmp_path / 'export').mkdir()
    return tmp_path


def warning(place, model, free, monkeypatch, caplog, **values):
    """The warning of a run where so many bytes are free; '' if there is none."""
    monkeypatch.setattr(shutil, 'disk_usage', lambda folder: Usage(10**9, 0, free))
    caplog.clear()
    config = load_config(checkpoint_dir=place / 'ckpt', **values)
    preflight.check_space(config, model)
    return '\n'.join(caplog.messages)


def test_checkpoints_and_export_of_one_disk_are_added_up(place, model, monkeypatch, caplog):
    """One checkpoint more than is kept: it is written before the oldest one is removed."""
    export = dict(export_dir=place / 'export')
    tools = monkeypatch, caplog
    assert warning(place, model, 8 * CHECKPOINT, *tools) == ''
    assert warning(place, model, 8 * CHECKPOINT + WEIGHTS, *tools, **export) == ''
    assert warning(place, model, 8 * CHECKPOINT - 1, *tools).startswith('ds_checkpoint_dir: ')
    assert warning(place, model, 8 * CHECKPOINT + WEIGHTS - 1, *tools, **export) == (
        'ds_checkpoint_dir, ds_export_dir: the run will take about 0.0 MB of the disk of %s, of '
        'which 0.0 MB are free' % (place / 'ckpt')
    )


def test_existing_checkpoints_are_replaced_and_a_run_that_only_tests_writes_none(
    place, model, monkeypatch, caplog
):
    for end, size in (('.index', CHECKPOINT), ('.data-00000-of-00001', 2 * CHECKPOINT)):
        (place / 'ckpt' / ('model.ckpt-7' + end)).write_bytes(bytes(size))
    tools = monkeypatch, caplog
    assert warning(place, model, 5 * CHECKPOINT, *tools) == ''
    assert warning(place, model, 5 * CHECKPOINT - 1, *tools)
    assert warning(place, model, 0, *tools, training_iters=0) == ''
