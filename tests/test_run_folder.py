"""util.run.run_folder: the folder of a run and its name, the revision of the code."""

import datetime
import os
import shutil
import time
import types

import pytest

from helpers import load_config
from util import config as settings, errors
from util.run import run_folder

NOON = time.struct_time((2026, 3, 4, 12, 5, 6, 2, 63, 0))
HASH = '0123456789abcdef0123456789abcdef01234567'


def test_run_dir_is_named_after_the_time(tmp_path):
    path = run_folder.make_run_dir(str(tmp_path / 'logs'), NOON)
    assert path == str(tmp_path / 'logs' / '20260304-120506') and os.path.isdir(path)


def test_run_dir_of_now(tmp_path):
    before = time.time()
    name = os.path.basename(run_folder.make_run_dir(str(tmp_path)))
    made = time.mktime(time.strptime(name, '%Y%m%d-%H%M%S'))
    assert int(before) <= made <= time.time()


def test_run_dirs_of_one_second_differ(tmp_path):
    paths = [run_folder.make_run_dir(str(tmp_path), NOON) for _ in range(3)]
    assert len(set(paths)) == 3
    assert sorted(paths) == paths
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(path) for path in paths]
    assert all(name.startswith('20260304-120506') for name in os.listdir(tmp_path))


def test_run_dir_names_the_setting_of_a_bad_folder(tmp_path):
    (tmp_path / 'logs').write_text('mine')
    with pytest.raises(errors.ConfigError, match='ds_logs_dir: '):
        run_folder.make_run_dir(str(tmp_path / 'logs'))


# Revision


def make_repository(folder, branch='topic', revision=HASH):
    """As much of a repository as `git rev-parse` asks for."""
    git = folder / '.git'
    (git / 'refs' / 'heads').mkdir(parents=True)
    (git / 'objects').mkdir()
    (git / 'HEAD').write_text('ref: refs/heads/%s\n' % branch)
    (git / 'refs' / 'heads' / branch).write_text(revision + '\n')
    return folder


@pytest.fixture
def git(monkeypatch):
    if shutil.which('git') is None:
        pytest.skip('git is not there')
    for name in ('GIT_DIR', 'GIT_WORK_TREE'):
        monkeypatch.delenv(name, raising=False)


def test_git_revision(tmp_path, monkeypatch, git):
    monkeypatch.setattr(settings, 'PROJECT_DIR', str(make_repository(tmp_path)))
    assert run_folder.git_revision() == (HASH, 'topic')


def test_git_revision_outside_of_a_repository(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, 'PROJECT_DIR', str(tmp_path))
    assert run_folder.git_revision() == (None, None)


def test_git_revision_is_not_that_of_a_repository_around(tmp_path, monkeypatch, git):
    (make_repository(tmp_path) / 'project').mkdir()
    monkeypatch.setattr(settings, 'PROJECT_DIR', str(tmp_path / 'project'))
    assert run_folder.git_revision() == (None, None)


def test_git_revision_of_a_damaged_repository_is_not_that_around(tmp_path, monkeypatch, git):
    (make_repository(tmp_path) / 'project' / '.git').mkdir(parents=True)
    monkeypatch.setattr(settings, 'PROJECT_DIR', str(tmp_path / 'project'))
    assert run_folder.git_revision() == (None, None)


def test_git_revision_is_not_that_of_git_dir(tmp_path, monkeypatch, git):
    own, other = tmp_path / 'own', tmp_path / 'other'
    monkeypatch.setattr(settings, 'PROJECT_DIR', str(make_repository(own)))
    make_repository(other, 'else', HASH[::-1])
    monkeypatch.setenv('GIT_DIR', str(other / '.git'))
    assert run_folder.git_revision() == (HASH, 'topic')


def test_git_revision_without_commits(tmp_path, monkeypatch, git):
    make_repository(tmp_path)
    (tmp_path / '.git' / 'refs' / 'heads' / 'topic').unlink()
    monkeypatch.setattr(settings, 'PROJECT_DIR', str(tmp_path))
    assert run_folder.git_revision()[0] is None


def test_git_revision_without_git(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, 'PROJECT_DIR', str(make_repository(tmp_path)))
    monkeypatch.setenv('PATH', str(tmp_path))
    assert run_folder.git_revision() == (None, None)


def test_git_is_asked_once(tmp_path, monkeypatch):
    asked = []

    def run(command, **options):
        asked.append(command)
        return types.SimpleNamespace(stdout=HASH + '\ntopic\n')

    monkeypatch.setattr(settings, 'PROJECT_DIR', str(tmp_path))
    monkeypatch.setattr(run_folder.subprocess, 'run', run)
    assert run_folder.git_revision() == run_folder.git_revision() == (HASH, 'topic')
    assert len(asked) == 1


def test_logs_that_cannot_be_published_do_not_hide_the_result(tmp_path, monkeypatch, caplog):
    def maybe_publish(logs_dir):
        raise TimeoutError('no answer of the server')

    monkeypatch.setattr(run_folder.website, 'maybe_publish', maybe_publish)
    data_set = types.SimpleNamespace(total_batches=3)
    data_sets = types.SimpleNamespace(
        stages=[data_set], dev=data_set, test=data_set, n_unreadable=dict
    )
    record = run_folder.RunRecord(
        load_config(logs_dir=tmp_path / 'logs'),
        types.SimpleNamespace(n_character=29),
        data_sets,
        datetime.datetime.now(datetime.timezone.utc),
    )
    os.rmdir(record.run_dir)  # someone removed it in mid-run
    record.write()
    assert caplog.messages == ['the logs cannot be published: no answer of the server']
    assert os.path.exists(os.path.join(record.run_dir, 'hyper.json'))
