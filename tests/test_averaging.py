"""util.run.averaging: the mean of a run's newest checkpoints, and where it is kept."""

import numpy as np
import pytest

from helpers import unoptimised
from util.run import averaging, checkpoint_files
from util.tf1 import tf


@pytest.fixture(scope='module')
def write():
    """Function that writes checkpoints: write(folder, (number, run, value of h1), ...)."""
    with tf.Graph().as_default(), tf.Session(config=unoptimised()) as session:
        weight = tf.get_variable('h1', [2, 3])
        run = tf.get_variable('run_state/run', [], tf.int64, trainable=False)
        fed = tf.placeholder(tf.float32, [2, 3]), tf.placeholder(tf.int64, [])
        assign = tf.group(tf.assign(weight, fed[0]), tf.assign(run, fed[1]))

        def write(folder, *checkpoints):
            saver = tf.train.Saver(max_to_keep=9, save_relative_paths=True)
            folder.mkdir(exist_ok=True)
            paths = []
            for number, of_run, value in checkpoints:
                session.run(assign, {fed[0]: np.full([2, 3], value), fed[1]: of_run})
                path = str(folder / 'model.ckpt')
                paths.append(saver.save(session, path, number, write_meta_graph=False))
            return paths

        yield write


def test_the_newest_undamaged_checkpoints_of_the_run_are_taken(tmp_path, write):
    first, old, second, third, fourth = write(
        tmp_path, (1, 7, 1), (9, 6, 1), (2, 7, 1), (3, 7, 1), (4, 7, 1)
    )
    open(third + '.data-00000-of-00001', 'wb').write(b'x')
    found = averaging.newest_of_run
    assert found(str(tmp_path), 7, 2) == [fourth, second]
    assert found(str(tmp_path), 7, 9) == [fourth, second, first]
    assert found(str(tmp_path), 6, 9) == [old]
    assert found(str(tmp_path / 'nowhere'), 7, 9) == []


def test_the_mean_is_that_of_all_values(tmp_path, write):
    paths = write(tmp_path, (1, 7, 1), (2, 7, 2), (3, 7, 6))
    mean = averaging.mean_weights(paths, ['h1'])
    assert mean['h1'].dtype == np.float32
    np.testing.assert_array_equal(mean['h1'], np.full([2, 3], 3))


@pytest.mark.parametrize(
    'number, run, valid', [(4, 7, True), (3, 7, False), (4, 6, False), (4, 0, False)]
)
def test_a_mean_belongs_to_the_newest_checkpoint(tmp_path, write, number, run, valid):
    write(tmp_path, (3, 7, 1), (4, 7, 1))
    [path] = write(tmp_path / 'averaged', (number, run, 1))
    assert averaging.averaged_in(str(tmp_path)) == (path if valid else None)


def test_without_a_whole_mean_there_is_none(tmp_path, write):
    write(tmp_path, (4, 7, 1))
    assert averaging.averaged_in(str(tmp_path)) is None
    [path] = write(tmp_path / 'averaged', (4, 7, 1))
    open(path + '.data-00000-of-00001', 'wb').write(b'x')
    assert averaging.averaged_in(str(tmp_path)) is None


def test_checkpoints_are_removed_and_nothing_else(tmp_path, write):
    write(tmp_path, (3, 7, 1), (4, 7, 1))
    (tmp_path / 'notes.txt').write_text('mine')
    checkpoint_files.remove_all(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ['notes.txt']
    checkpoint_files.remove_all(str(tmp_path))
    assert checkpoint_files.newest_whole(str(tmp_path)) is None


BEST = averaging.Best(best_dev_loss=2.5, dev_set=7, run=3, best_epoch=4)


@pytest.mark.parametrize(
    'there, same',
    [
        (BEST, True),
        (BEST._replace(run=4), False),
        (BEST._replace(best_dev_loss=2.6), True),  # measured anew, and differs in its last digit
        (BEST._replace(best_dev_loss=0.1, dev_set=6), True),  # on another dev set
        (BEST._replace(best_dev_loss=0.1, dev_set=6, best_epoch=2), False),
        (BEST._replace(dev_set=6, run=2), False),
        (averaging.Best(2.5, None, None, None), True),  # of an older version
        (averaging.Best(2.6, None, None, None), False),
    ],
)
def test_which_best_checkpoint_a_state_means(monkeypatch, there, same):
    monkeypatch.setattr(averaging, 'best_in', {'best/model.ckpt-4': there}.get)
    assert averaging.is_best_of('best/model.ckpt-4', BEST) == same


def test_what_a_checkpoint_says_of_the_best_weights(tmp_path, write):
    [path] = write(tmp_path, (4, 7, 1))
    assert averaging.best_in(path) == averaging.Best(None, None, 7, None)
