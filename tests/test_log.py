"""Messages, progress bar, run folder, hyper.json and hyper.js."""
import io
import json
import logging
import os
import shutil
import sys
import time

import numpy as np
import pytest

from util import config as settings, errors, files, log as run_log
from util.run import run_folder

NOON = time.struct_time((2026, 3, 4, 12, 5, 6, 2, 63, 0))
HASH = '0123456789abcdef0123456789abcdef01234567'


def strict(text):
    """JSON as a strict reader takes it."""
    def refuse(word):
        raise ValueError(word)
    return json.loads(text, parse_constant=refuse)


# Progress and messages


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_progress_is_silent_where_there_is_no_terminal():
    stream = io.StringIO()
    progress = run_log.Progress('train', 8, stream)
    progress.update(4, 1.5)
    progress.close()
    assert stream.getvalue() == ''


def test_progress_draws_on_a_terminal(monkeypatch):
    clock = iter([100.0, 130.0, 160.0])
    monkeypatch.setattr(run_log.time, 'monotonic', lambda: next(clock))
    stream = Terminal()
    progress = run_log.Progress('train', 8, stream)
    progress.update(2, 1.25)
    drawn = stream.getvalue()
    assert drawn.startswith('\r') and '\n' not in drawn
    assert 'train |######------------------| 2/8' in drawn
    assert 'loss 1.2500' in drawn
    assert '0:01:30 to go' in drawn  # 30 s for 2 of 8
    progress.update(8, 0.5)
    last = stream.getvalue()[len(drawn):]
    assert '|########################| 8/8' in last
    assert '0:00:00 to go' in last


def test_progress_leaves_an_empty_line_behind():
    stream = Terminal()
    progress = run_log.Progress('dev', 3, stream)
    progress.update(3, 0.5)
    drawn = len(stream.getvalue())
    progress.close()
    assert stream.getvalue()[drawn:] == '\r\x1b[K'


def test_progress_goes_to_the_standard_output(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, 'isatty', lambda: True, raising=False)
    run_log.Progress('test', 1).update(1, 0.25)
    assert 'test |' in capsys.readouterr().out


@pytest.mark.parametrize('seconds, text', [
    (0, '0:00:00'), (0.99, '0:00:00'), (59, '0:00:59'), (60, '0:01:00'), (61.5, '0:01:01'),
    (3599, '0:59:59'), (3600, '1:00:00'), (3661, '1:01:01'), (360000, '100:00:00')])
def test_format_duration(seconds, text):
    assert files.format_duration(seconds) == text


def test_messages_are_plain_lines_of_the_standard_output(capsys):
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        run_log.set_up_logging()
        logging.getLogger('util.feeding.data_sets').info('2 of 7 utterances excluded')
        logging.getLogger('util.feeding.data_sets').debug('not said')
        logging.getLogger('tensorflow').warning('not said either')
        assert capsys.readouterr() == ('2 of 7 utterances excluded\n', '')
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger('tensorflow').setLevel(logging.NOTSET)


# Folders and files


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
    def full(*_):
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr('builtins.open', full)
    with pytest.raises(errors.ConfigError, match='ds_logs_dir: .*: No space left on device'):
        files.make_dir(str(tmp_path), 'ds_logs_dir')


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


# JSON


def test_strict_json_has_null_for_numbers_that_do_not_exist():
    value = {'loss': float('nan'), 'best': [float('inf'), -float('inf'), 0.5], 'wer': None,
             'deep': {'x': (np.float32('nan'), 1)}}
    assert strict(run_log.strict_json(value)) == {
        'loss': None, 'best': [None, None, 0.5], 'wer': None, 'deep': {'x': [None, 1]}}


@pytest.mark.parametrize('value, text', [
    (np.float32(0.5), '0.5'), (np.float64(0.25), '0.25'), (np.int64(7), '7'),
    (np.int32(-7), '-7'), (np.bool_(True), 'true'), (np.float64('inf'), 'null'),
    (np.float32('nan'), 'null'), (np.array(3), '3'), (True, 'true'), (None, 'null'), (15, '15'),
    ('NaN', '"NaN"'), ('', '""')])
def test_strict_json_of_scalars(value, text):
    assert run_log.strict_json(value) == text


def test_strict_json_keeps_text():
    texts = ['caf\u00e9', 'a"b\\', '\udce9', '\u2028', '</script>']
    text = run_log.strict_json(texts)
    assert text.isascii() and strict(text) == texts


def test_strict_json_of_settings():
    config = settings.load({'ds_importer': 'csv'})[0]
    found = strict(run_log.strict_json(dict(vars(config))))
    assert found['epsilon'] == 1e-8 and found['n_hidden'] == 494 and found['use_warpctc'] is False


# hyper.js


def write_run(logs, name, content):
    (logs / name).mkdir(parents=True)
    (logs / name / 'hyper.json').write_text(content, encoding='utf-8')


def merged(logs):
    text = (logs / 'hyper.js').read_text(encoding='utf-8')
    assert text.startswith('var hyper = ') and text.endswith(';\n')
    return strict(text[len('var hyper = '):-2])


def test_merge_logs_collects_runs_in_order(tmp_path):
    write_run(tmp_path, '20260304-120507', '{"results": {"test_wer": 0.5}}')
    write_run(tmp_path, '20260304-120506', '{"results": {"test_wer": null}}')
    (tmp_path / 'without').mkdir()
    (tmp_path / 'hyper.json').write_text('{"not": "of a run"}')
    run_log.merge_logs(str(tmp_path))
    assert merged(tmp_path) == [{'results': {'test_wer': None}}, {'results': {'test_wer': 0.5}}]
    assert not list(tmp_path.glob('**/*.tmp'))


def test_merge_logs_leaves_out_and_names_broken_runs(tmp_path, caplog):
    write_run(tmp_path, 'a', '{"n": 1}')
    write_run(tmp_path, 'b', '{"n": 2')
    write_run(tmp_path, 'c', '')
    (tmp_path / 'd' / 'hyper.json').mkdir(parents=True)
    write_run(tmp_path, 'e', '{"n": 5}')
    (tmp_path / 'f').mkdir()
    (tmp_path / 'f' / 'hyper.json').write_bytes(b'{"n": "\xe9"}')
    run_log.merge_logs(str(tmp_path))
    assert merged(tmp_path) == [{'n': 1}, {'n': 5}]
    assert len(caplog.records) == 4
    for name, message in zip('bcdf', caplog.messages):
        assert os.path.join(str(tmp_path), name, 'hyper.json') in message


def test_merge_logs_is_strict_though_a_run_is_not(tmp_path):
    write_run(tmp_path, 'a', '{"loss": NaN, "best": Infinity, "n": [1, -Infinity]}')
    run_log.merge_logs(str(tmp_path))
    assert merged(tmp_path) == [{'loss': None, 'best': None, 'n': [1, None]}]


def test_merge_logs_without_runs(tmp_path):
    run_log.merge_logs(str(tmp_path))
    assert merged(tmp_path) == []


def test_merge_logs_again_replaces_the_file(tmp_path):
    write_run(tmp_path, 'a', '{"n": 1}')
    run_log.merge_logs(str(tmp_path))
    write_run(tmp_path, 'b', '{"n": 2}')
    run_log.merge_logs(str(tmp_path))
    assert merged(tmp_path) == [{'n': 1}, {'n': 2}]


def test_merge_logs_takes_any_folder_name(tmp_path):
    logs = tmp_path / 'logs [1] *'
    write_run(logs, 'a', '{"n": 1}')
    write_run(tmp_path / 'logs 1 x', 'b', '{"n": 2}')
    run_log.merge_logs(str(logs))
    assert merged(logs) == [{'n': 1}]


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
