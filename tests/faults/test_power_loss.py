"""What is on the disk when the power fails: a file system of its own, whose disk is copied at each
step of saving; what was not synced is not in the copy."""

import os
import shutil
import stat
import subprocess

import pytest

from util.run import checkpoint_files, checkpoint_io
from util.tf1 import tf

pytestmark = pytest.mark.run

OPTIONS = 'loop,data=writeback,commit=300'  # nothing gets to the disk by itself during the test


def run(*command):
    """The exit status of a command."""
    return subprocess.run(list(map(str, command)), capture_output=True).returncode


@pytest.fixture
def disk(tmp_path):
    """(image of a disk, the folder in which it is mounted)."""
    image, folder = tmp_path / 'image', tmp_path / 'disk'
    folder.mkdir()
    if run('mkfs.ext4', '-q', '-F', '-b', '1024', '-J', 'size=1', image, '8M'):
        pytest.skip('there is no mkfs.ext4')
    if run('mount', '-o', OPTIONS, image, folder):
        pytest.skip('no permission to mount a file system')
    yield image, folder
    run('umount', folder)


def save_and_copy_the_disk(image, folder, copies, monkeypatch, sync_files):
    """Saves four checkpoints, of which two are kept and the number of one is used twice; copies the
    disk before each system call that the order depends on, and at the end."""

    def copying(function):
        def call(*arguments):
            copy()
            is_file = function is fsync and stat.S_ISREG(os.fstat(arguments[0]).st_mode)
            if sync_files or not is_file:
                function(*arguments)

        return call

    def copy():
        if run('cp', '--sparse=always', image, copies / ('%03d' % len(os.listdir(copies)))):
            raise OSError('the disk cannot be copied')

    fsync = os.fsync
    with tf.Graph().as_default(), tf.Session() as session:
        weights = tf.get_variable('h1', [50, 100])
        session.run(weights.initializer)
        saver = checkpoint_io.Folder(str(folder), tf.train.Saver(max_to_keep=2))
        for name in ('fsync', 'replace', 'remove'):
            monkeypatch.setattr(os, name, copying(getattr(os, name)))
        for number in (1, 2, 2, 3):
            saver.save(session, number)
    copy()
    monkeypatch.undo()


def after_the_power_came_back(copy, folder):
    """(names that the state file lists, newest first; what is wrong with each, or None)."""
    assert not run('mount', '-o', 'loop', copy, folder)
    try:
        checkpoint_io.clean_up(str(folder))  # as the next run does first
        names = checkpoint_io.listed(str(folder))
        return names, [checkpoint_files.damage(str(folder / name)) for name in names]
    finally:
        run('umount', folder)


@pytest.mark.parametrize('sync_files', (True, False), ids=('synced', 'only folders synced'))
def test_the_state_file_never_names_what_is_not_on_the_disk(
    disk, tmp_path, monkeypatch, sync_files
):
    """Without the syncs of the files, the same test finds damage."""
    image, folder = disk
    copies, again = tmp_path / 'copies', tmp_path / 'again'
    copies.mkdir()
    again.mkdir()
    save_and_copy_the_disk(image, folder, copies, monkeypatch, sync_files)
    found = [after_the_power_came_back(copies / name, again) for name in sorted(os.listdir(copies))]
    shutil.rmtree(copies)
    damaged = [(names, damage) for names, damage in found if any(damage)]
    print('\n%d moments, %d with damage' % (len(found), len(damaged)))
    assert len(found) > 30
    if not sync_files:
        assert damaged
        return
    # The oldest of the list may be gone if the power fails while it is removed: the list that no
    # longer has it is on the disk by then.
    assert not damaged
    newest = [int(names[0].rpartition('-')[2]) if names else 0 for names, _ in found]
    assert newest == sorted(newest) and set(newest) == {0, 1, 2, 3}
