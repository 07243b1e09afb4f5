"""util.run.folder_lock: who gets the lock of a checkpoint folder."""

import fcntl
import json
import logging
import multiprocessing
import os
import shutil
import stat

import pytest

from helpers import load_config
from util import errors, processes
from util.run import folder_lock

ENDED = processes.this()._replace(start='1')  # a process whose number this one has now
N_RIVALS = 6
HUGE = json.dumps({**ENDED._asdict(), 'pid': 0, 'since': ''}).replace(': 0', ': 1e400')


def lock_of(folder, process=ENDED, since='2026-12-01 13:00:00+00:00'):
    """Writes the lock of a process into a folder; returns its path."""
    path = folder / folder_lock.NAME
    path.write_text(json.dumps({**process._asdict(), 'since': since}))
    return path


def settings_of(folder, **values):
    """The Config of a run with this checkpoint folder."""
    return load_config(checkpoint_dir=folder, **values)


def refusal(folder):
    """The message with which a run is refused."""
    with pytest.raises(errors.ConfigError) as error, folder_lock.held(settings_of(folder)):
        pass
    assert '\n' not in str(error.value)
    return str(error.value)


def test_the_lock_is_there_for_as_long_as_the_run(tmp_path):
    folder = tmp_path / 'new' / 'ckpt'
    before = os.umask(0o027)
    try:
        with folder_lock.held(settings_of(folder)):
            assert os.listdir(folder) == ['run.lock']
            assert stat.S_IMODE((folder / 'run.lock').stat().st_mode) == 0o640
            assert json.loads((folder / 'run.lock').read_text())['pid'] == os.getpid()
    finally:
        os.umask(before)
    assert os.listdir(folder) == []


def test_the_lock_of_a_run_that_fails_is_removed(tmp_path):
    with pytest.raises(errors.Interrupted), folder_lock.held(settings_of(tmp_path)):
        raise errors.Interrupted('')
    assert os.listdir(tmp_path) == []


def test_a_second_run_is_refused_and_told_who_has_the_folder(tmp_path):
    with folder_lock.held(settings_of(tmp_path)):
        message = refusal(tmp_path)
        assert message.startswith(
            'ds_checkpoint_dir: another run writes into %s (process %d on %s, running since 20'
            % (tmp_path, os.getpid(), processes.this().host)
        )
        assert message.endswith('if it no longer runs, remove %s/run.lock' % tmp_path)
        assert os.listdir(tmp_path) == ['run.lock']
    assert os.listdir(tmp_path) == []


def test_a_run_without_training_needs_no_lock(tmp_path):
    lock_of(tmp_path, processes.this())
    with folder_lock.held(settings_of(tmp_path, training_iters=0)):
        pass
    assert os.listdir(tmp_path) == ['run.lock']
    with folder_lock.held(settings_of(tmp_path / 'none', training_iters=0)):
        assert not (tmp_path / 'none').exists()


def test_the_lock_of_a_process_that_has_ended_is_taken_over(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    path = lock_of(tmp_path)
    lock_of(tmp_path).rename(tmp_path / 'run.lock.takeover')  # its taker was killed as well
    lock_of(tmp_path)
    with folder_lock.held(settings_of(tmp_path)):
        assert json.loads(path.read_text())['start'] == processes.this().start
        assert os.listdir(tmp_path) == ['run.lock']
    assert caplog.messages[-1] == (
        '%s: the run that had the folder has ended (process %d on %s, running since '
        '2026-12-01 13:00:00+00:00)' % (path, os.getpid(), processes.this().host)
    )
    assert os.listdir(tmp_path) == []


def test_the_lock_of_another_machine_is_respected(tmp_path):
    lock_of(tmp_path, ENDED._replace(host='elsewhere', pid=7))
    assert '(process 7 on elsewhere, running since 2026-12-01' in refusal(tmp_path)


def test_the_lock_of_another_container_is_free_when_the_kernel_says_so(tmp_path):
    elsewhere = ENDED._replace(namespace='12345', host='pod-1', pid=7)
    path = lock_of(tmp_path, elsewhere)
    assert 'process 7 on pod-1' in refusal(tmp_path)  # it may have been made just now
    os.utime(path, (0, 0))
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as the other run does
        assert 'process 7 on pod-1' in refusal(tmp_path)
    with folder_lock.held(settings_of(tmp_path)):
        assert json.loads(path.read_text())['pid'] == os.getpid()
        with open(path) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    'content',
    ('', '{', '[]', '{"pid": 3}', '[' * 9000, '\x00' * 20_000, '{"since": 1, "x": 2}', HUGE),
)
def test_a_lock_that_says_nothing_is_respected(tmp_path, content):
    (tmp_path / 'run.lock').write_text(content)
    assert 'its lock does not say which' in refusal(tmp_path)
    assert (tmp_path / 'run.lock').read_text() == content


def test_a_lock_that_is_a_pipe_or_a_folder_is_respected(tmp_path):
    os.mkfifo(tmp_path / 'run.lock')
    assert 'its lock does not say which' in refusal(tmp_path)
    os.remove(tmp_path / 'run.lock')
    os.mkdir(tmp_path / 'run.lock')
    assert 'its lock does not say which' in refusal(tmp_path)


def test_without_hard_links_the_lock_is_created_in_its_place(tmp_path, monkeypatch):
    def link(*_):
        raise PermissionError(1, 'Operation not permitted')

    monkeypatch.setattr(os, 'link', link)
    with folder_lock.held(settings_of(tmp_path)):
        assert 'process %d on' % os.getpid() in refusal(tmp_path)
    lock_of(tmp_path)
    with folder_lock.held(settings_of(tmp_path)):
        assert os.listdir(tmp_path) == ['run.lock']
    assert os.listdir(tmp_path) == []


def test_a_lock_that_another_run_has_by_now_is_not_removed(tmp_path):
    with folder_lock.held(settings_of(tmp_path)):
        os.remove(tmp_path / 'run.lock')  # as the message tells the user to
        lock_of(tmp_path)
    assert os.listdir(tmp_path) == ['run.lock']


def test_a_folder_that_was_removed_is_made_anew_with_its_lock(tmp_path, caplog):
    folder = tmp_path / 'ckpt'
    with folder_lock.held(settings_of(folder)):
        folder_lock.renew(str(folder))
        assert not caplog.messages
        shutil.rmtree(folder)
        folder_lock.renew(str(folder))
        assert caplog.messages == ['%s was removed; it is made anew' % (folder / 'run.lock')]
        assert 'process %d on' % os.getpid() in refusal(folder)
    assert os.listdir(folder) == []


def test_nothing_is_saved_into_a_folder_that_another_run_has_by_now(tmp_path):
    with folder_lock.held(settings_of(tmp_path)):
        os.remove(tmp_path / 'run.lock')
        lock_of(tmp_path, ENDED._replace(pid=7))
        with pytest.raises(errors.TrainingError, match='nothing is saved: .* of another run now'):
            folder_lock.renew(str(tmp_path))
    assert os.listdir(tmp_path) == ['run.lock']


def rival(folder, barrier, outcomes):
    """Tries to get the lock, at the same time as others; keeps it until all have tried."""
    config = settings_of(folder)
    barrier.wait()
    try:
        with folder_lock.held(config):
            outcomes.put('got it')
            barrier.wait()
    except errors.ConfigError:
        outcomes.put('refused')
        barrier.wait()


@pytest.mark.parametrize('stale', (False, True), ids=('free', 'stale'))
def test_of_rivals_exactly_one_gets_the_lock(tmp_path, stale):
    forks = multiprocessing.get_context('fork')
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if stale:
            lock_of(folder, ENDED._replace(pid=2**22 + 1))
        barrier, outcomes = forks.Barrier(N_RIVALS), forks.SimpleQueue()
        rivals = [
            forks.Process(target=rival, args=(folder, barrier, outcomes)) for _ in range(N_RIVALS)
        ]
        for process in rivals:
            process.start()
        for process in rivals:
            process.join(60)
        found = sorted(outcomes.get() for _ in rivals)
        assert found == ['got it'] + ['refused'] * (N_RIVALS - 1)
        assert os.listdir(folder) == []
