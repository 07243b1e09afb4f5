"""Messages, progress bars, strict JSON and hyper.js."""

import io
import json
import logging
import os
import sys
import types

import numpy as np
import pytest
import tqdm

from util import config as settings, log as run_log


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

    def line(self):
        """The text on the line of the cursor; each carriage return goes back to its start."""
        line = ''
        for part in self.getvalue().split('\n')[-1].split('\r'):
            line = part + line[len(part) :]
        return line.rstrip()


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 60 columns in the place of the standard output."""
    terminal = Terminal()
    monkeypatch.setenv('COLUMNS', '60')
    # not sys.stdout itself, which pytest sets anew when the test begins
    monkeypatch.setattr(run_log, 'sys', types.SimpleNamespace(stdout=terminal))
    return terminal


@pytest.fixture
def clock(monkeypatch):
    """[seconds], the time that the bars see."""
    clock = [100.0]
    monkeypatch.setattr(tqdm.std, 'time', lambda: clock[0])
    return clock


def test_progress_is_silent_where_there_is_no_terminal(capsys):
    progress = run_log.Progress('train', 8)
    progress.update(4, 1.5)
    progress.close()
    del progress
    assert capsys.readouterr() == ('', '')


def test_progress_draws_on_a_terminal(terminal, clock):
    progress = run_log.Progress('train', 8)
    clock[0] += 30
    progress.update(2, 1.25)  # 30 s for 2 of 8
    assert terminal.line() == 'train |#####----------------| 2/8, loss 1.2500, 01:30 to go'
    clock[0] += 0.01  # every step is drawn
    progress.update(8, 0.5)
    assert terminal.line() == 'train |#####################| 8/8, loss 0.5000, 00:00 to go'
    assert '\n' not in terminal.getvalue()


def test_steps_of_an_earlier_run_do_not_count_for_the_time_left(terminal, clock):
    progress = run_log.Progress('train', 10, already=4)
    clock[0] += 3600
    progress.update(6, 0.5)  # 2 steps in an hour, 4 to go
    assert terminal.line().endswith('| 6/10, loss 0.5000, 2:00:00 to go')


def test_progress_leaves_an_empty_line_behind(terminal):
    progress = run_log.Progress('dev', 3)
    progress.update(3, 0.5)
    assert terminal.line()
    progress.close()
    assert terminal.line() == '' and '\n' not in terminal.getvalue()
    assert terminal.getvalue().endswith('\r')
    del progress
    assert terminal.line() == ''


def test_progress_goes_on_after_a_message(terminal):
    progress = run_log.Progress('dev', 3)
    progress.update(1, 0.5)
    progress.close()
    terminal.write('a message\n')
    assert terminal.line() == ''
    progress.update(2, 0.25)
    assert terminal.line().startswith('dev |') and '| 2/3, loss 0.2500' in terminal.line()
    assert terminal.getvalue().count('a message') == 1


def test_progress_goes_to_the_standard_output(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, 'isatty', lambda: True, raising=False)
    run_log.Progress('test', 1).update(1, 0.25)
    assert 'test |' in capsys.readouterr().out


@pytest.mark.parametrize('columns, width', (('30', 29), ('79', 78), ('200', 79), ('0', 79)))
def test_a_bar_keeps_to_one_line(terminal, monkeypatch, columns, width):
    monkeypatch.setenv('COLUMNS', columns)
    run_log.Progress('train', 8).update(8, 0.5)
    assert max(map(len, terminal.getvalue().split('\r'))) == width


def test_a_bar_of_bytes(terminal, clock):
    with run_log.Bar('a.tgz', 4000000, 1000000, unit='B', unit_scale=True) as bar:
        clock[0] += 10
        bar.update(1000000)  # 1 MB in 10 s, 2 MB to go
        drawn = terminal.line()
        clock[0] += 0.05
        bar.update(100000)  # too soon to draw again
        assert (
            terminal.line()
            == drawn
            == ('a.tgz |############------------| 2.00MB/4.00MB, 00:20 to go')
        )
    assert terminal.line() == ''


def test_a_bar_of_unknown_length_counts(terminal, clock):
    with run_log.Bar('a.tgz', None, unit='B', unit_scale=True) as bar:
        clock[0] += 10
        bar.update(3000000)
        assert terminal.line() == 'a.tgz 3.00MB'
    assert terminal.line() == ''


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


# JSON


def test_strict_json_has_null_for_numbers_that_do_not_exist():
    value = {
        'loss': float('nan'),
        'best': [float('inf'), -float('inf'), 0.5],
        'wer': None,
        'deep': {'x': (np.float32('nan'), 1)},
    }
    assert strict(run_log.strict_json(value)) == {
        'loss': None,
        'best': [None, None, 0.5],
        'wer': None,
        'deep': {'x': [None, 1]},
    }


@pytest.mark.parametrize(
    'value, text',
    [
        (np.float32(0.5), '0.5'),
        (np.float64(0.25), '0.25'),
        (np.int64(7), '7'),
        (np.int32(-7), '-7'),
        (np.bool_(True), 'true'),
        (np.float64('inf'), 'null'),
        (np.float32('nan'), 'null'),
        (np.array(3), '3'),
        (True, 'true'),
        (None, 'null'),
        (15, '15'),
        ('NaN', '"NaN"'),
        ('', '""'),
    ],
)
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
    return strict(text[len('var hyper = ') : -2])


def test_merge_logs_collects_runs_in_order(tmp_path):
    write_run(tmp_path, '20260304-120507', '{"results": {"test_wer": 0.5}}')
    write_run(tmp_path, '20260304-120506', '{"results": {"test_wer": null}}')
    (tmp_path / 'without').mkdir()
    (tmp_path / 'hyper.json').write_text('{"not": "of a run"}')
    run_log.merge_logs(str(tmp_path))
    assert merged(tmp_path) == [{'results': {'test_wer': None}}, {'results': {'test_wer': 0.5}}]
    assert not list(tmp_path.glob('**/*.tmp'))


def test_merge_logs_removes_what_killed_runs_left(tmp_path):
    (tmp_path / '20260101-120000').mkdir()
    (tmp_path / '20260101-120000' / ('hyper.json.%d.tmp' % (2**22 + 1))).write_text('{')
    run_log.merge_logs(str(tmp_path))
    assert os.listdir(tmp_path / '20260101-120000') == []


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


def test_merge_logs_orders_runs_of_one_second_by_their_number(tmp_path):
    for n, name in enumerate(('-1', '-1-2', '-1-10', '-2')):
        write_run(tmp_path, '20260304-12050' + name, '{"n": %d}' % n)
    run_log.merge_logs(str(tmp_path))
    assert [run['n'] for run in merged(tmp_path)] == [0, 1, 2, 3]


def test_merge_logs_leaves_out_what_is_no_log(tmp_path, caplog):
    for name, content in (
        ('deep', '[' * 100000),
        ('nested', '{"a":' * 100000 + '1' + '}' * 100000),
        ('number', '5'),
        ('digits', '{"n": %s}' % ('9' * 5000)),
        ('large', '{"n": "%s"}' % ('a' * run_log.LARGEST_LOG)),
    ):
        write_run(tmp_path, name, content)
    (tmp_path / 'pipe').mkdir()
    os.mkfifo(tmp_path / 'pipe' / 'hyper.json')
    write_run(tmp_path, 'good', '{"n": 1}')
    run_log.merge_logs(str(tmp_path))
    assert merged(tmp_path) == [{'n': 1}]
    assert len(caplog.messages) == 6


def test_merge_logs_sees_a_run_that_ends_meanwhile(tmp_path, monkeypatch):
    write_file = run_log.files.write_file

    def write_while_another_run_ends(path, content):
        if not (tmp_path / 'b').exists():
            write_run(tmp_path, 'b', '{"n": 2}')
            run_log.merge_logs(str(tmp_path))  # by the other run
        write_file(path, content)

    monkeypatch.setattr(run_log.files, 'write_file', write_while_another_run_ends)
    write_run(tmp_path, 'a', '{"n": 1}')
    run_log.merge_logs(str(tmp_path))
    assert merged(tmp_path) == [{'n': 1}, {'n': 2}]


def test_messages_show_control_characters_of_data(capsys):
    handlers = logging.getLogger().handlers[:]
    level = logging.getLogger().level
    try:
        run_log.set_up_logging()
        log = logging.getLogger('util.feeding.data_sets')
        log.warning('%s is excluded', 'a\x1b[2J\nb\u202e.wav')
        log.info('two\nlines of caf\xe9')
        assert capsys.readouterr().out == (
            'a\\x1b[2J\\nb\\u202e.wav is excluded\ntwo\nlines of caf\xe9\n'
        )
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
        logging.getLogger('tensorflow').setLevel(logging.NOTSET)
