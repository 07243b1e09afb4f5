"""util.run.checkpoint_io: the order in which a checkpoint is written, what is kept, what an
interrupted write leaves, and files that are not what they claim to be."""

import errno
import os
import stat

import numpy as np
import pytest

from util import errors
from util.run import checkpoint_files, checkpoint_io
from util.tf1 import tf

DATA = '.data-00000-of-00001'
REPLACE, REMOVE, FSYNC = os.replace, os.remove, os.fsync


class Trainer:
    """A graph with one variable, float32 [3], its saver, and the folder of its checkpoints."""

    def __init__(self, directory, n_kept=2):
        self.directory = str(directory)
        with tf.Graph().as_default() as graph:
            self.variable = tf.get_variable('v', [3])
            self._value = tf.placeholder(tf.float32, [3])
            self._assign = tf.assign(self.variable, self._value)
            self.saver = tf.train.Saver(max_to_keep=n_kept)
        self.session = tf.Session(graph=graph)
        self.folder = checkpoint_io.Folder(self.directory, self.saver)

    def set(self, value):
        """Gives the variable this value."""
        self.session.run(self._assign, {self._value: [value] * 3})

    def save(self, number, value=None):
        """Saves a checkpoint whose values are its number, unless another value is given."""
        self.set(number if value is None else value)
        return self.folder.save(self.session, number)


@pytest.fixture
def trainer(tmp_path):
    (tmp_path / 'ckpt').mkdir()
    return Trainer(tmp_path / 'ckpt')


def value_in(path):
    """The first value of the variable in a checkpoint."""
    return checkpoint_io.Reader(path).get_tensor('v')[0]


def content(directory):
    """{name: bytes} of the files in a folder."""
    return {
        name: open(os.path.join(directory, name), 'rb').read() for name in os.listdir(directory)
    }


# Writing


def test_each_step_is_on_the_disk_before_the_next_one_relies_on_it(trainer, monkeypatch):
    trainer.save(1)
    trainer.save(2)
    done = []

    def relative(path):
        return os.path.relpath(path, trainer.directory)

    def fsync(descriptor):
        done.append('sync ' + relative(os.readlink('/proc/self/fd/%d' % descriptor)))
        FSYNC(descriptor)

    def replace(source, target):
        done.append('move to ' + relative(target))
        REPLACE(source, target)

    def remove(path):
        done.append('remove ' + relative(path))
        REMOVE(path)

    for function in (fsync, replace, remove):
        monkeypatch.setattr(os, function.__name__, function)
    trainer.save(3)
    temporary = [step for step in done if step.endswith('.tmp')]
    assert temporary == ['sync ' + temporary[0][5:]]
    assert done[:2] in (
        ['sync .unfinished/model.ckpt-3' + end for end in ends]
        for ends in ((DATA, '.index'), ('.index', DATA))
    )
    assert done[2:] == [
        'sync .unfinished',
        'move to model.ckpt-3' + DATA,
        'sync .',
        'move to model.ckpt-3.index',
        'sync .',
        *temporary,
        'move to checkpoint',
        'sync .',
        'remove model.ckpt-1.index',
        'remove model.ckpt-1' + DATA,
    ]


def test_the_newest_are_kept_and_other_files_are_left_alone(trainer):
    for name in ('model.ckpt-1.index.copy', 'model.ckpt-11.index', 'notes', 'model.ckpt-1.txt'):
        with open(os.path.join(trainer.directory, name), 'w') as file:
            file.write('mine')
    for number in (30, 1, 2, 30, 3):
        path = trainer.save(number)
        assert value_in(path) == number
        assert tf.train.latest_checkpoint(trainer.directory) == path
    assert sorted(os.listdir(trainer.directory)) == [
        'checkpoint',
        'model.ckpt-1.index.copy',
        'model.ckpt-1.txt',
        'model.ckpt-11.index',
        'model.ckpt-3' + DATA,
        'model.ckpt-3.index',
        'model.ckpt-30' + DATA,
        'model.ckpt-30.index',
        'notes',
    ]
    assert checkpoint_io.listed(trainer.directory) == ['model.ckpt-3', 'model.ckpt-30']
    names = tf.train.get_checkpoint_state(trainer.directory).all_model_checkpoint_paths
    assert [os.path.basename(name) for name in names] == ['model.ckpt-30', 'model.ckpt-3']


def test_the_umask_decides_who_may_read(trainer):
    before = os.umask(0o027)
    try:
        trainer.save(1)
    finally:
        os.umask(before)
    for name in os.listdir(trainer.directory):
        mode = os.stat(os.path.join(trainer.directory, name)).st_mode
        assert stat.S_IMODE(mode) == 0o640, name


def test_folders_that_cannot_be_synced_are_no_obstacle(trainer, monkeypatch):
    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, 'Invalid argument')

    monkeypatch.setattr(os, 'fsync', fsync)
    assert value_in(trainer.save(1)) == 1


@pytest.mark.parametrize('failing', range(1, 7))
def test_a_write_that_fails_leaves_the_folder_as_it_was(trainer, monkeypatch, failing):
    """Each file and folder is the one that the disk has no room for."""
    trainer.save(1)
    trainer.save(2)
    before, n_syncs = content(trainer.directory), 0

    def fsync(descriptor):
        nonlocal n_syncs
        n_syncs += 1
        if n_syncs == failing:
            raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(os, 'fsync', fsync)
    with pytest.raises(OSError, match='No space left on device'):
        trainer.save(3)
    after = content(trainer.directory)
    whole = {'model.ckpt-3' + DATA, 'model.ckpt-3.index'} if failing > 3 else set()
    assert set(after) - set(before) <= whole  # the write failed after the files were in place
    assert {name: after[name] for name in before} == before
    assert checkpoint_files.newest_whole(trainer.directory).endswith('model.ckpt-2')
    monkeypatch.undo()
    assert value_in(trainer.save(4)) == 4
    assert checkpoint_io.listed(trainer.directory)[0] == 'model.ckpt-4'


@pytest.mark.parametrize('n_moved', (0, 1))
def test_a_run_that_is_killed_while_it_replaces_a_checkpoint_leaves_one_of_the_two(
    trainer, monkeypatch, n_moved
):
    """The number is the same: one checkpoint was saved before a validation, one after it."""
    path, moved = trainer.save(1, value=10), []

    def replace(source, target):
        if len(moved) == n_moved:
            raise KeyboardInterrupt  # what runs after it, does not run in a killed process:
        moved.append(target)
        REPLACE(source, target)

    monkeypatch.setattr(os, 'replace', replace)
    monkeypatch.setattr(checkpoint_io, '_finish', lambda directory: None)
    with pytest.raises(KeyboardInterrupt):
        trainer.save(1, value=20)
    monkeypatch.undo()
    assert os.path.isdir(os.path.join(trainer.directory, '.unfinished'))
    checkpoint_io.clean_up(trainer.directory)
    assert value_in(path) == (20 if n_moved else 10)
    assert sorted(os.listdir(trainer.directory)) == [
        'checkpoint',
        'model.ckpt-1' + DATA,
        'model.ckpt-1.index',
    ]


def test_an_exception_while_files_are_moved_leaves_a_whole_checkpoint(trainer, monkeypatch):
    path, moved = trainer.save(1, value=10), []

    def replace(source, target):
        moved.append(target)
        if len(moved) == 2:
            raise errors.Interrupted('a second Ctrl-C')
        REPLACE(source, target)

    monkeypatch.setattr(os, 'replace', replace)
    with pytest.raises(errors.Interrupted):
        trainer.save(1, value=20)
    assert value_in(path) == 20


def test_what_was_left_when_a_run_was_killed_is_removed(trainer):
    trainer.save(1)
    before = set(os.listdir(trainer.directory))
    remains = ('.index.tempstate123', DATA + '.tempstate9', DATA)  # the last without its index
    left = ['model.ckpt-2' + each for each in remains]
    for name in [*left, 'checkpoint.%d.tmp' % (2**22 + 1)]:
        with open(os.path.join(trainer.directory, name), 'w') as file:
            file.write('half')
    checkpoint_io.clean_up(trainer.directory)
    assert set(os.listdir(trainer.directory)) == before


@pytest.mark.parametrize('run, kept', [(7, [2, 3]), (8, [1, 2, 3])])
def test_what_a_killed_run_did_not_remove_is_removed_later(trainer, monkeypatch, run, kept):
    """The state file no longer lists it; where it is of another run, it stays."""
    trainer.save(1)
    trainer.save(2)
    checkpoint_io.write_state(trainer.directory, ['model.ckpt-2'])
    monkeypatch.setattr(checkpoint_files, 'run_of', lambda path: run if path[-1] == '1' else 7)
    folder = checkpoint_io.Folder(trainer.directory, trainer.saver)
    checkpoint_files.take_over(folder, trainer.directory)
    folder.save(trainer.session, 3)
    left = [name for name in os.listdir(trainer.directory) if name.endswith('.index')]
    assert sorted(left) == ['model.ckpt-%d.index' % number for number in kept]


# The state file


@pytest.mark.parametrize(
    'text, names',
    [
        ('', []),
        ('model_checkpoint_path: "b"\nall_model_checkpoint_paths: "a"\n', ['b', 'a']),
        (
            'all_model_checkpoint_paths: "/else/where/a"\nall_model_checkpoint_paths: "../../b"\n',
            ['b', 'a'],
        ),
        ('model_checkpoint_path: "a"\n\x00\xff{{{\nall_model_checkpoint_paths: "b"', ['a', 'b']),
        ('all_model_checkpoint_paths: "' + 2_000_000 * 'x', []),
    ],
)
def test_the_names_are_read_from_whatever_is_left_of_the_state_file(tmp_path, text, names):
    (tmp_path / 'checkpoint').write_bytes(text.encode('latin-1'))
    assert checkpoint_io.listed(str(tmp_path)) == names


@pytest.mark.parametrize('make', (os.mkfifo, os.mkdir, lambda path: os.symlink('/dev/zero', path)))
def test_a_state_file_that_is_none_is_passed_over(trainer, make):
    path = trainer.save(3)
    os.remove(os.path.join(trainer.directory, 'checkpoint'))
    make(os.path.join(trainer.directory, 'checkpoint'))
    assert checkpoint_files.newest_whole(trainer.directory) == path


def test_whole_checkpoints_that_the_state_file_does_not_list_are_found(trainer, caplog):
    listed, other = trainer.save(5), trainer.save(9)
    checkpoint_io.write_state(trainer.directory, ['model.ckpt-5', 'model.ckpt-7'])
    os.remove(listed + DATA)
    assert checkpoint_files.newest_whole(trainer.directory) == other
    assert [message.partition(' is damaged')[0] for message in caplog.messages] == [
        'checkpoint %s/model.ckpt-7' % trainer.directory,
        'checkpoint ' + listed,
    ]


# Reading


@pytest.mark.parametrize('name', ('run[2]', 'a*b', 'w?x', 'b\\s', 'q\'" ,\n'))
def test_a_path_is_no_pattern(tmp_path, name):
    for folder, value in (('run2', 7), ('aab', 7), ('wax', 7), ('bs', 7), (name, 1)):
        (tmp_path / folder).mkdir()
        trainer = Trainer(tmp_path / folder)
        path = trainer.save(1, value)
    assert value_in(path) == 1 and checkpoint_files.damage(path) is None
    trainer.set(0)
    checkpoint_io.restore(trainer.session, trainer.saver, path)
    assert trainer.session.run(trainer.variable)[0] == 1
    os.rename(path + '.index', path + '[x].index')  # as users rename them
    os.rename(path + DATA, path + '[x]' + DATA)
    assert value_in(path + '[x]') == 1


def save_slice(directory, full_shape):
    """Saves 2 x 2 values that claim to be a part of a variable of this shape; returns the path."""
    path = os.path.join(str(directory), 'model.ckpt-1')
    with tf.Graph().as_default(), tf.Session() as session:
        shape = '%d %d 0,2:0,2' % tuple(full_shape)
        session.run(tf.raw_ops.SaveV2(
            prefix=path, tensor_names=['h1'], shape_and_slices=[shape], tensors=[np.eye(2)]
        ))  # fmt: skip
    return path


def test_a_huge_shape_is_refused_before_memory_is_taken(tmp_path):
    path = save_slice(tmp_path, [10**6, 10**6])
    damage = checkpoint_files.damage(path)
    assert damage.startswith('its index promises 8000000000000 bytes of values, but its files have')


def test_files_that_are_none_are_damage(trainer):
    path = trainer.save(1)
    assert checkpoint_files.damage(path + '0') == 'there is no file %s0.index' % path
    os.truncate(path + '.index', 200_000_000)
    assert checkpoint_files.damage(path) == 'its index has 200000000 bytes'
    os.remove(path + '.index')
    os.mkfifo(path + '.index')
    assert checkpoint_files.damage(path) == 'it has files that are not regular files'


@pytest.mark.parametrize('dtype, shape', (('string', [3]), ('float64', [3]), ('float32', [4])))
def test_values_of_another_kind_are_refused_in_one_line(tmp_path, dtype, shape):
    values = np.full(shape, b'x' * 9) if dtype == 'string' else np.zeros(shape, dtype)
    path = str(tmp_path / 'model.ckpt-1')
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable('v', initializer=tf.constant(values))
        session.run(variable.initializer)
        tf.train.Saver().save(session, path, write_meta_graph=False)
    trainer = Trainer(tmp_path)
    with trainer.session.graph.as_default(), pytest.raises(errors.CheckpointError) as error:
        checkpoint_files.restore(trainer.session, path, [trainer.variable])
    assert str(error.value) == (
        'ds_restore_checkpoint: %s has v of %s %s, but it must be float32 [3]'
        % (path, dtype, shape)
    )


def test_only_a_scalar_number_is_a_number(tmp_path):
    path = str(tmp_path / 'model.ckpt-1')
    values = {'a': np.int64(5), 'b': np.float64(2.5), 'c': b'text', 'd': [1.0]}
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.raw_ops.SaveV2(
            prefix=path, tensor_names=list(values), shape_and_slices=[''] * 4,
            tensors=list(values.values()),
        ))  # fmt: skip
    reader = checkpoint_io.Reader(path)
    assert [reader.number(name) for name in 'abcde'] == [5, 2.5, None, None, None]
