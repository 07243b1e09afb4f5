"""Opening, writing whole files, folders that must be writable, locks."""

import errno
import logging
import os
import stat
import subprocess
import sys
import threading
import time

import pytest

from helpers import PROJECT
from util import errors, files, processes

WAIT_S = 20  # for what takes milliseconds


# Opening


def test_a_regular_file_is_opened_with_these_options(tmp_path):
    path = tmp_path / 'a.txt'
    path.write_bytes(b'caf\xc3\xa9\r\n')
    with files.open_regular(str(path), encoding='utf-8', newline='') as file:
        assert file.read() == 'caf\u00e9\r\n'
    with files.open_regular(str(path), mode='rb') as file:
        assert file.read() == b'caf\xc3\xa9\r\n'


def test_a_link_to_a_regular_file_is_opened(tmp_path):
    (tmp_path / 'a.txt').write_text('text')
    (tmp_path / 'link').symlink_to('a.txt')
    with files.open_regular(str(tmp_path / 'link')) as file:
        assert file.read() == 'text'


def test_a_pipe_and_a_device_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    for path in (str(tmp_path / 'pipe'), os.devnull):
        with pytest.raises(OSError, match='not a regular file') as error:
            files.open_regular(path)
        assert error.value.strerror == 'not a regular file' and error.value.filename == path


def test_a_folder_and_a_missing_file_have_their_own_errors(tmp_path):
    with pytest.raises(IsADirectoryError):
        files.open_regular(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        files.open_regular(str(tmp_path / 'missing'))


# Writing and folders


def test_write_file_leaves_only_the_file(tmp_path):
    path = tmp_path / 'hyper.json'
    path.write_text('something longer from before')
    files.write_file(str(path), 'caf\u00e9\n')
    assert path.read_bytes() == b'caf\xc3\xa9\n'
    assert os.listdir(tmp_path) == ['hyper.json']


def test_write_file_that_fails_keeps_the_old_file(tmp_path):
    path = tmp_path / 'hyper.json'
    path.write_text('old')
    with pytest.raises(UnicodeEncodeError):
        files.write_file(str(path), 'n\udcff')
    assert path.read_text() == 'old'


def test_write_file_removes_what_killed_processes_left_of_this_file(tmp_path):
    gone, mark = 2**22 + 1, processes.mark().partition('-')[2]  # that of this host
    stays = [
        'a.%d.tmp' % os.getppid(),
        'a.%d-%s-else.tmp' % (gone, mark.partition('-')[0]),
        'b.%d.tmp' % gone,
        'a.b.tmp',
        'a.tmp',
    ]
    for name in (*stays, 'a.%d.tmp' % gone, 'a.%d-%s.tmp' % (gone, mark)):
        (tmp_path / name).write_text('half')
    files.write_file(str(tmp_path / 'a'), 'whole')
    assert sorted(os.listdir(tmp_path)) == sorted(['a', *stays])


def test_write_file_on_a_full_disk_leaves_no_temporary_file(tmp_path, monkeypatch):
    def fsync(_):
        raise OSError(errno.ENOSPC, 'No space left on device')

    (tmp_path / 'a').write_text('old')
    monkeypatch.setattr(os, 'fsync', fsync)
    with pytest.raises(OSError, match='No space left'):
        files.write_file(str(tmp_path / 'a'), 'new')
    assert os.listdir(tmp_path) == ['a'] and (tmp_path / 'a').read_text() == 'old'


def test_write_file_syncs_the_file_before_it_has_its_name_and_the_name_after(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, os.replace

    def traced_fsync(descriptor):
        done.append(os.path.relpath(os.readlink('/proc/self/fd/%d' % descriptor), tmp_path))
        fsync(descriptor)

    def traced_replace(source, target):
        done.append(os.path.relpath(source, tmp_path) + ' becomes a')
        replace(source, target)

    monkeypatch.setattr(os, 'fsync', traced_fsync)
    monkeypatch.setattr(os, 'replace', traced_replace)
    files.write_file(str(tmp_path / 'a'), 'new')
    assert done == [done[0], done[0] + ' becomes a', '.'] and done[0].startswith('a.')


def test_files_get_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_file(str(tmp_path / 'a'), 'text')
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / 'a').stat().st_mode) == 0o640


def test_make_dir_makes_all_folders_and_leaves_them_empty(tmp_path):
    path = tmp_path / 'a' / 'b'
    files.make_dir(str(path), 'ds_logs_dir')
    assert path.is_dir() and os.listdir(path) == []


def test_make_dir_keeps_what_is_there(tmp_path):
    (tmp_path / 'notes.txt').write_text('mine')
    files.make_dir(str(tmp_path), 'ds_logs_dir')
    assert os.listdir(tmp_path) == ['notes.txt']


@pytest.mark.parametrize('below', ['', 'sub/folder'])
def test_make_dir_names_setting_and_path_of_a_plain_file(tmp_path, below):
    (tmp_path / 'plain').write_text('mine')
    path = os.path.join(tmp_path, 'plain', below).rstrip('/')
    with pytest.raises(errors.ConfigError) as error:
        files.make_dir(path, 'ds_export_dir')
    assert str(error.value).startswith('ds_export_dir: cannot write to %s: ' % path)
    assert (tmp_path / 'plain').read_text() == 'mine'


def test_make_dir_refuses_an_empty_path():
    with pytest.raises(errors.ConfigError, match='ds_logs_dir: cannot write'):
        files.make_dir('', 'ds_logs_dir')


@pytest.mark.skipif(os.geteuid() == 0, reason='root may write everywhere')
@pytest.mark.parametrize('below', ['', 'sub'])
def test_make_dir_in_a_read_only_folder(tmp_path, below):
    folder = tmp_path / 'locked'
    folder.mkdir(mode=0o555)
    with pytest.raises(errors.ConfigError, match='ds_checkpoint_dir.*Permission denied'):
        files.make_dir(str(folder / below), 'ds_checkpoint_dir')


def test_make_dir_on_a_full_disk(tmp_path, monkeypatch):
    def full(**_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('tempfile.TemporaryFile', full)
    with pytest.raises(errors.ConfigError, match='ds_logs_dir: .*: No space left on device'):
        files.make_dir(str(tmp_path), 'ds_logs_dir')


# Locks

HOLDER = """
import sys
from util import files
with files.locked(sys.argv[1], 'waiting'):
    print('held', flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock `tmp_path`/.lock until its standard input ends."""
    command = [sys.executable, '-c', HOLDER, str(tmp_path / '.lock')]
    with subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b'held\n'
        yield process
        process.kill()


@pytest.mark.parametrize(
    'end', (lambda process: process.stdin.close(), subprocess.Popen.kill), ids=('done', 'killed')
)
def test_another_process_is_waited_for_until_it_ends(tmp_path, holder, caplog, end):
    caplog.set_level(logging.INFO, 'util.files')
    entered = threading.Event()

    def wait():
        with files.locked(str(tmp_path / '.lock'), 'another run has it'):
            entered.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    deadline = time.monotonic() + WAIT_S
    while not caplog.messages:
        assert time.monotonic() < deadline and not entered.is_set()
        time.sleep(0.01)
    assert caplog.messages == ['another run has it'] and not entered.wait(0.1)
    end(holder)
    assert entered.wait(WAIT_S)
    thread.join(WAIT_S)
    assert caplog.messages == ['another run has it']  # said once


def test_a_free_lock_is_taken_without_a_word_and_given_back(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(2):
        with pytest.raises(KeyError), files.locked(str(tmp_path / '.lock'), 'waiting'):
            raise KeyError('of the block')
    assert caplog.messages == []
    assert os.listdir(tmp_path) == ['.lock'] and not os.path.getsize(tmp_path / '.lock')


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('number', (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS))
def test_a_file_system_without_locks_has_none(tmp_path, caplog, monkeypatch, number):
    fcntl = pytest.importorskip('fcntl')
    caplog.set_level(logging.INFO)

    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, 'flock', flock)
    path, ran = str(tmp_path / '.lock'), False
    with files.locked(path, 'waiting'), files.locked(path, 'waiting'):
        ran = True  # though the lock's file is there
    assert ran and caplog.messages == [] and os.listdir(tmp_path) == ['.lock']


@pytest.mark.parametrize(
    'folder',
    (
        'missing',
        'file',
        pytest.param(
            'read-only',
            marks=pytest.mark.skipif(os.geteuid() == 0, reason='root may write everywhere'),
        ),
        pytest.param(
            '/proc',
            marks=pytest.mark.skipif(not os.path.isdir('/proc/self'), reason='there is none here'),
        ),
    ),
)
def test_where_no_file_can_be_made_the_block_runs_without_a_lock(tmp_path, caplog, folder):
    caplog.set_level(logging.INFO)
    (tmp_path / 'file').write_text('')
    (tmp_path / 'read-only').mkdir(mode=0o555)
    before, ran = sorted(os.listdir(tmp_path)), False
    with files.locked(str(tmp_path / folder / '.lock'), 'waiting'):
        ran = True
    assert ran and caplog.messages == [] and sorted(os.listdir(tmp_path)) == before


# Durations


@pytest.mark.parametrize(
    'seconds, text',
    [
        (0, '0:00:00'),
        (0.99, '0:00:00'),
        (59, '0:00:59'),
        (60, '0:01:00'),
        (61.5, '0:01:01'),
        (3599, '0:59:59'),
        (3600, '1:00:00'),
        (3661, '1:01:01'),
        (360000, '100:00:00'),
    ],
)
def test_format_duration(seconds, text):
    assert files.format_duration(seconds) == text
