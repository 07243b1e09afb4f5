"""util.run.run_folder: the folder of a run and its name, the revision of the code."""

import os
import shutil
import time

import pytest

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
