"""Conversion to FLAC in the cache: what is converted, when again, and after kill -9."""

import concurrent.futures
import hashlib
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import soundfile

from helpers import PROJECT, speech
from util import audio, errors
from util.corpora import convert

RAW = {'rate': 16000, 'byte_order': 'big'}
WAIT_S = 60  # for another process to do something

SLOW_READER = """
    import os, time
    from util.corpora import convert

    def read(path, pause_s):
        with open('reads.txt', 'a') as file:
            file.write('%d %s\\n' % (os.getpid(), os.path.basename(path)))
        time.sleep(pause_s)
        return convert.read_raw(path, 16000, 'big')
    """

MAIN = """
    import glob, sys
    import slow_reader
    from util.corpora import convert

    if __name__ == '__main__':
        open('main.txt', 'a').write('run\\n')
        results = convert.converted(sorted(glob.glob('source/*.raw')), 'cache',
                                    slow_reader.read, pause_s=0.15)
        for path, reason in results:
            print(path, reason)
    else:
        open('main.txt', 'a').write('imported again\\n')
    """


def write_raw(path, samples, byte_order='>'):
    """Writes int16 samples without a header; returns the path as text."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as file:
        file.write(np.asarray(samples).astype(byte_order + 'i2').tobytes())
    return str(path)


def converted(sources, folder, **options):
    return convert.converted(sources, str(folder / 'cache'), convert.read_raw, **{**RAW, **options})


def flac_files(folder):
    return sorted(str(path) for path in (folder / 'cache').rglob('*.flac'))


@pytest.fixture
def read_count(caplog):
    """Function: how many files were to be converted since it was last called."""
    caplog.set_level(logging.INFO)

    def count():
        counts = [
            record.args[0] for record in caplog.records if record.msg.startswith('converting')
        ]
        caplog.clear()
        return sum(counts)

    return count


def test_results_are_16_bit_flac_of_the_same_samples_in_the_order_of_the_sources(tmp_path):
    samples = [speech(0.1 + 0.05 * i, seed=i) for i in range(3)]
    sources = [
        write_raw(tmp_path / 'raw' / name, samples[i])
        for i, name in enumerate(('b.raw', 'a.raw', 'sub/b.raw'))
    ]
    results = converted(sources + sources[:1], tmp_path)
    assert [result.exclusion_reason for result in results] == 4 * [None]
    assert results[0] == results[3] and len(flac_files(tmp_path)) == 3
    for result, expected in zip(results, samples):
        found, rate = soundfile.read(result.path, dtype='int16')
        assert rate == 16000 and soundfile.info(result.path).subtype == 'PCM_16'
        np.testing.assert_array_equal(found, expected)
        assert result.path.startswith(str(tmp_path / 'cache' / 'converted') + os.sep)


def test_what_is_there_is_not_converted_again_and_starts_no_processes(tmp_path, read_count):
    sources = [write_raw(tmp_path / 'raw' / ('%d.raw' % i), speech(0.1, i)) for i in range(2)]
    first = converted(sources, tmp_path)
    assert read_count() == 2
    assert converted(sources, tmp_path) == first
    assert read_count() == 0


def test_a_changed_source_is_converted_anew_and_its_old_result_is_removed(tmp_path, read_count):
    sources = [write_raw(tmp_path / 'raw' / ('%d.raw' % i), speech(0.1, i)) for i in range(2)]
    before = converted(sources, tmp_path)
    read_count()
    write_raw(sources[1], speech(0.1, seed=7))  # of the same size
    os.utime(sources[1], ns=(1, 1_000_000_007))
    after = converted(sources, tmp_path)
    assert read_count() == 1
    assert after[0] == before[0]
    np.testing.assert_array_equal(soundfile.read(after[1].path, dtype='int16')[0], speech(0.1, 7))
    assert flac_files(tmp_path) == sorted([after[0].path, after[1].path])


def test_other_settings_make_other_results_beside_the_old_ones(tmp_path):
    source = write_raw(tmp_path / 'raw' / 'a.raw', speech(0.1))
    [big], [little] = (
        converted([source], tmp_path),
        converted([source], tmp_path, byte_order='little'),
    )
    assert flac_files(tmp_path) == sorted([big.path, little.path])
    np.testing.assert_array_equal(
        soundfile.read(little.path, dtype='int16')[0], speech(0.1).byteswap()
    )


@pytest.mark.parametrize('worth_processes', (1, 16))
def test_sources_that_cannot_be_converted_have_reasons_and_the_others_are(
    tmp_path, monkeypatch, worth_processes
):
    monkeypatch.setattr(convert, 'WORTH_PROCESSES', worth_processes)
    folder = tmp_path / 'raw'
    good = write_raw(folder / 'good.raw', speech(0.1))
    empty = write_raw(folder / 'empty.raw', [])
    odd = write_raw(folder / 'odd.raw', speech(0.1))
    with open(odd, 'ab') as file:
        file.write(b'x')
    (folder / 'folder.raw').mkdir()
    results = converted(
        [str(folder / 'missing.raw'), empty, odd, str(folder / 'folder.raw'), good], tmp_path
    )
    assert [result.exclusion_reason for result in results] == [
        'cannot be read: No such file or directory',
        'no samples',
        '3201 bytes, expected two for each sample',
        'cannot be read: Is a directory',
        None,
    ]
    assert [bool(result.path) for result in results] == [False, False, False, False, True]
    assert flac_files(tmp_path) == [results[4].path]


def test_left_over_temporary_files_are_removed_and_nothing_else(tmp_path):
    source = write_raw(tmp_path / 'raw' / 'a.raw', speech(0.1))
    other = write_raw(tmp_path / 'raw' / 'b.raw', speech(0.1))
    [kept] = converted([other], tmp_path)
    left = kept.path + convert.TEMPORARY
    with open(left, 'wb') as file:
        file.write(b'fLaC half')
    [result] = converted([source], tmp_path)
    assert not os.path.exists(left) and flac_files(tmp_path) == sorted([kept.path, result.path])


def test_a_cache_that_cannot_be_written_is_named_with_its_setting(tmp_path):
    source = write_raw(tmp_path / 'raw' / 'a.raw', speech(0.1))
    (tmp_path / 'cache').write_text('not a folder')
    with pytest.raises(errors.ConfigError, match='ds_cache_dir: cannot write to .*cache'):
        converted([source], tmp_path)


def test_a_result_that_cannot_be_written_stops_and_is_no_reason_to_exclude(tmp_path):
    source = write_raw(tmp_path / 'raw' / 'a.raw', speech(0.1))
    target = str(tmp_path / 'nowhere' / 'a.flac')
    with pytest.raises(errors.ConfigError, match='ds_cache_dir: cannot write .*a.flac'):
        convert._convert_one(source, target, convert.read_raw, RAW)


@pytest.mark.parametrize('terminal', (True, False))
def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch, capsys, caplog, terminal):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(convert, 'SAY_EVERY_S', -1)  # at each file
    monkeypatch.setattr(sys.stdout, 'isatty', lambda: terminal, raising=False)
    futures = [concurrent.futures.Future() for _ in range(3)]
    for future in futures:
        future.set_result(None)
    assert set(convert._counted(futures)) == set(futures)
    assert caplog.messages == ['converted %d of 3' % i for i in ((3,) if terminal else (1, 2, 3))]
    out = capsys.readouterr().out
    assert out.startswith('\rconverting |--') if terminal else out == ''


def exit_at_once(path):
    os._exit(3)


@pytest.mark.run
def test_a_process_that_is_ended_from_outside_is_an_error_and_no_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(convert, 'WORTH_PROCESSES', 1)
    source = write_raw(tmp_path / 'raw' / 'a.raw', speech(0.1))
    with pytest.raises(errors.DataError, match='after 0 of 1 files'):
        convert.converted([source], str(tmp_path / 'cache'), exit_at_once)
    assert flac_files(tmp_path) == []


def test_nothing_to_convert_makes_no_folder(tmp_path):
    assert converted([], tmp_path) == []
    assert os.listdir(tmp_path) == []


def test_two_runs_at_once_convert_once(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    source = write_raw(tmp_path / 'raw' / 'a.raw', speech(0.1))
    reads, release = [], threading.Event()

    def read(path):
        reads.append(path)
        release.wait(WAIT_S)
        return convert.read_raw(path, **RAW)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(convert.converted, [source], str(tmp_path / 'cache'), read)
            for _ in range(2)
        ]
        wait_until(lambda: any('waiting for another run' in said for said in caplog.messages))
        release.set()
    assert runs[0].result() == runs[1].result() and runs[0].result()[0].path
    assert reads == [source]


# kill -9


def start(folder):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([PROJECT, str(folder)]))
    return subprocess.Popen(
        [sys.executable, 'main.py'],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def wait_until(condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, 'nothing happened for %d s' % WAIT_S
        time.sleep(0.01)


def checksums(folder):
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
    }


def reads(folder):
    """(process, file) of each call of the reader."""
    lines = (folder / 'reads.txt').read_text().splitlines()
    return [(int(line.split()[0]), line.split()[1]) for line in lines]


def is_running(process):
    try:
        with open('/proc/%d/stat' % process, encoding='utf-8') as file:
            return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except FileNotFoundError:
        return False


@pytest.mark.run
def test_work_interrupted_by_kill_9_goes_on_where_it_stopped(tmp_path):
    samples = {'%02d.raw' % i: speech(0.2 + 0.01 * i, seed=i) for i in range(20)}
    for name in samples:
        write_raw(tmp_path / 'source' / name, samples[name])
    (tmp_path / 'slow_reader.py').write_text(textwrap.dedent(SLOW_READER))
    (tmp_path / 'main.py').write_text(textwrap.dedent(MAIN))
    before = checksums(tmp_path / 'source')

    first = start(tmp_path)
    wait_until(lambda: len(flac_files(tmp_path)) >= 5 or first.poll() is not None)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=WAIT_S)
    assert first.returncode == -signal.SIGKILL
    wait_until(lambda: not any(is_running(process) for process, _ in reads(tmp_path)))
    done = flac_files(tmp_path)
    assert 5 <= len(done) < 20
    for path in done:
        np.testing.assert_array_equal(
            soundfile.read(path, dtype='int16')[0], samples[os.path.basename(path)[:2] + '.raw']
        )
    stamps = [os.stat(path).st_mtime_ns for path in done]

    (tmp_path / 'reads.txt').write_text('')
    second = start(tmp_path)
    said = second.communicate(timeout=WAIT_S)[0].splitlines()
    assert second.returncode == 0, said
    assert sorted(name for _, name in reads(tmp_path)) == sorted(
        set(samples) - {os.path.basename(path)[:2] + '.raw' for path in done}
    )
    assert [os.stat(path).st_mtime_ns for path in done] == stamps
    assert len(said) == 20 and all(line.endswith('.flac None') for line in said)
    for name, line in zip(sorted(samples), said):
        found, _ = soundfile.read(tmp_path / line.split()[0], dtype='int16')
        np.testing.assert_array_equal(found, samples[name])
    assert not list((tmp_path / 'cache').rglob('*' + convert.TEMPORARY))

    (tmp_path / 'reads.txt').write_text('')
    third = start(tmp_path)
    assert third.communicate(timeout=WAIT_S)[0].splitlines() == said
    assert reads(tmp_path) == []
    assert checksums(tmp_path / 'source') == before
    # the main script, which imports TensorFlow in a real run, is not loaded by the workers
    assert (tmp_path / 'main.txt').read_text() == 'run\n' * 3


# Files without a header


@pytest.mark.parametrize('byte_order, sign', (('big', '>'), ('little', '<')))
@pytest.mark.parametrize('seed', (0, 1))
def test_byte_order_is_that_of_the_smoother_signal(tmp_path, byte_order, sign, seed):
    path = write_raw(tmp_path / 'raw' / 'a.raw', speech(0.3, seed), sign)
    for told in (byte_order, None):
        samples, rate = convert.read_raw(path, 16000, told)
        assert rate == 16000 and samples.dtype == np.int16
        np.testing.assert_array_equal(samples, speech(0.3, seed))


@pytest.mark.parametrize('sign', '<>')
def test_byte_order_of_very_quiet_signals(tmp_path, sign):
    quiet = np.random.default_rng(3).integers(-3, 4, 1600)
    path = write_raw(tmp_path / 'raw' / 'a.raw', quiet, sign)
    np.testing.assert_array_equal(convert.read_raw(path, 16000, None)[0], quiet)


def test_a_byte_order_that_is_told_counts_more_than_the_signal(tmp_path):
    path = write_raw(tmp_path / 'raw' / 'a.raw', speech(0.1), '<')
    np.testing.assert_array_equal(convert.read_raw(path, 16000, 'big')[0], speech(0.1).byteswap())


def test_raw_files_of_no_or_one_sample_are_read_and_half_samples_refused(tmp_path):
    assert len(convert.read_raw(write_raw(tmp_path / 'r' / '0.raw', []), 16000, None)[0]) == 0
    one = write_raw(tmp_path / 'r' / '1.raw', [258])
    assert convert.read_raw(one, 16000, 'big')[0].tolist() == [258]
    with open(one, 'ab') as file:
        file.write(b'\0')
    with pytest.raises(audio.AudioError, match='3 bytes'):
        convert.read_raw(one, 16000, None)
