"""util.run.export_folder: numbers of versions, and what is removed with the older ones."""

import os
import re

import numpy as np
import pytest

from util import errors, processes
from util.run import export_folder


def make_version(folder):
    """A folder with what every exported model has."""
    folder.mkdir()
    (folder / 'saved_model.pb').write_text('a model')


def publish(folder, remove_older=False):
    """The name of a new version."""
    with export_folder.new_version(str(folder), remove_older) as version:
        os.makedirs(version.unfinished)
        (folder / os.path.basename(version.unfinished) / 'saved_model.pb').write_text('a new one')
    return os.path.relpath(version.path, folder)


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_weights_that_are_not_finite_are_named(value):
    weights = {'h1': np.ones([2, 3], np.float32), 'b1': np.array([1, value], np.float32)}
    with pytest.raises(errors.TrainingError, match='as not all values of b1 are finite numbers'):
        export_folder.check_finite('export', weights)
    export_folder.check_finite('export', {'h1': weights['h1']})


def test_a_number_that_was_taken_is_passed_over(tmp_path):
    for name in ('1', '7'):
        make_version(tmp_path / name)
    assert publish(tmp_path) == '8'
    assert sorted(os.listdir(tmp_path)) == ['1', '7', '8']


def test_a_version_that_fails_leaves_nothing(tmp_path):
    def fail():
        with export_folder.new_version(str(tmp_path), True) as version:
            os.makedirs(version.unfinished)
            raise OSError('no room')

    with pytest.raises(OSError, match='no room'):
        fail()
    assert os.listdir(tmp_path) == []


def test_what_killed_exports_left_is_removed(tmp_path):
    """That of running processes and of other machines stays."""
    gone, running, host = 2**22 + 1, os.getppid(), processes.mark().partition('-')[2]
    names = ['%d' % gone, '%d-%s' % (gone, host), '%d-%s' % (running, host), '%d-1-else' % gone]
    for name in names:
        (tmp_path / ('.unfinished-' + name) / 'variables').mkdir(parents=True)
    (tmp_path / '.unfinished-symphony').mkdir()
    assert publish(tmp_path) == '1'
    left = {'.unfinished-' + name for name in names[2:]} | {'.unfinished-symphony', '1'}
    assert set(os.listdir(tmp_path)) == left


def test_a_version_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done, fsync, rename = [], os.fsync, os.rename

    def traced_fsync(descriptor):
        place = os.readlink('/proc/self/fd/%d' % descriptor)
        done.append(re.sub('.unfinished-[^/]*', 'new', os.path.relpath(place, tmp_path)))
        fsync(descriptor)

    def traced_rename(source, target):
        done.append('renamed')
        rename(source, target)

    monkeypatch.setattr(os, 'fsync', traced_fsync)
    monkeypatch.setattr(os, 'rename', traced_rename)
    publish(tmp_path)
    assert done == ['new/saved_model.pb', 'new', 'renamed', '.']


def test_only_exported_models_are_removed(tmp_path, caplog):
    """A corpus, notes, a plain file, links and other names are not this project's to remove."""
    for name in ('1', '03'):
        make_version(tmp_path / name)
    (tmp_path / '84' / '121123').mkdir(parents=True)
    (tmp_path / '84' / '121123' / '84-121123-0000.txt').write_text('GO')
    (tmp_path / '2025').mkdir()
    (tmp_path / '2025' / 'notes.txt').write_text('mine')
    (tmp_path / '7').write_text('a plain file')
    make_version(tmp_path / 'keep')
    (tmp_path / '9').symlink_to(tmp_path / 'keep')
    assert publish(tmp_path, remove_older=True) == '2026'
    left = sorted(os.listdir(tmp_path))
    assert left == ['2025', '2026', '7', '84', '9', 'keep']
    assert (tmp_path / '84' / '121123' / '84-121123-0000.txt').read_text() == 'GO'
    assert (tmp_path / 'keep' / 'saved_model.pb').exists()
    for name in ('7', '84', '2025', '9'):
        assert 'ds_remove_export leaves %s, ' % (tmp_path / name) in caplog.text
