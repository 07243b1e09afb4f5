"""The command line `transcribe`: what it prints, writes and names, with a small random model."""

import io
import json
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest
import soundfile

from helpers import PROJECT, speech, write_broken_flac, write_manifest, write_wav
from serving_helpers import export_small
from util import config as settings
from util.recognition import models
from util.tf1 import tf
from util.tools import transcribe

COMMAND = [sys.executable, '-m', 'util.tools.transcribe']
LIMIT_S = 100  # for a process
GRAPH_01 = pathlib.Path(__file__).parent / 'data' / 'deepspeech_011' / 'output_graph.pb'


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    """Folder of the versions of a small model, whose texts are its own invention."""
    folder = tmp_path_factory.mktemp('model')
    export_small(folder)
    return str(folder)


@pytest.fixture(scope='module')
def opened(model):
    """The model, opened once for all tests."""
    tools = models.Tools(None, None, None)
    return models.open_model(model, tools)


@pytest.fixture
def run(tmp_path, model, monkeypatch, capsys, opened):
    """A function that runs the command line in the test's folder and returns (status, stdout,
    stderr); the model is not loaded anew each time."""
    loggers = [logging.getLogger(name) for name in (None, 'tensorflow')]
    kept = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    monkeypatch.chdir(tmp_path)
    open_model = models.open_model

    def open_once(path, tools, beam_width=None):
        known = path == model and beam_width is None
        return opened if known else open_model(path, tools, beam_width)

    monkeypatch.setattr(models, 'open_model', open_once)

    def call(*arguments, settings_given=None):
        with mock.patch.dict(os.environ, settings.environment_with(**(settings_given or {}))):
            status = transcribe.main([*arguments])
        return status, *capsys.readouterr()

    yield call
    for logger, level, handlers in kept:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def clips(tmp_path):
    """Three clips and a manifest of them, in the test's folder."""
    for i in range(3):
        write_wav(tmp_path / ('clips/c%d.wav' % i), speech(0.5 + 0.4 * i, i))
    rows = [('c%d.wav' % i, words) for i, words in enumerate(('one two', 'three', 'room 42'))]
    write_manifest(tmp_path / 'clips' / 'test.csv', rows)
    return ['clips/c%d.wav' % i for i in range(3)]


def rows(out):
    """{name: text} of the lines of the standard output."""
    return dict(line.split('\t') for line in out.splitlines())


def test_a_line_for_each_file_in_the_order_given(run, model, clips):
    status, out, err = run(model, clips[2], clips[0], clips[1])
    assert (status, err) == (0, '')
    assert list(rows(out)) == [clips[2], clips[0], clips[1]]
    assert len({*rows(out).values()}) == 3
    assert rows(run(model, 'clips')[1]) == rows(out)
    for batch in ('1', '2'):
        assert rows(run(model, 'clips', '--batch-size', batch, '--jobs', '1')[1]) == rows(out)


def test_a_manifest_gets_its_error_rates(run, model, clips):
    status, out, err = run(model, 'clips/test.csv')
    assert status == 0
    assert list(rows(out)) == ['c0.wav', 'c1.wav', 'c2.wav']
    assert list(rows(out).values()) == list(rows(run(model, *clips)[1]).values())
    not_compared, figures = err.splitlines()
    assert not_compared.startswith('not compared: c2.wav: characters outside the alphabet')
    assert re.fullmatch(
        r'clips/test\.csv: loss \d+\.\d{6}, WER \d+\.\d\d% \[\d/3: \d ins, \d del, \d sub\], '
        r'CER \d+\.\d\d%',
        figures,
    )


def test_json(run, model, clips):
    status, out, _ = run(model, *clips, '--json')
    texts = rows(run(model, *clips)[1])
    assert status == 0
    for line, (name, words) in zip(out.splitlines(), texts.items(), strict=True):
        found = json.loads(line)
        assert list(found) == ['file', 'text', 'seconds', 'words']
        assert (found['file'], found['text']) == (name, words)
        assert [word['word'] for word in found['words']] == words.split()
        last = 0.0
        for word in found['words']:
            assert list(word) == ['word', 'start', 'end', 'confidence']
            assert last <= word['start'] < word['end'] <= found['seconds'] + 0.02
            assert 0 < word['confidence'] <= 1
            last = word['start']
    assert json.loads(out.splitlines()[1])['seconds'] == 0.9


def test_every_format_that_training_reads(run, model, tmp_path):
    samples = speech(0.6, rate=44100) / 32768
    stereo = np.stack([samples, samples], axis=1)
    for name, options in (
        ('a24.wav', {'subtype': 'PCM_24'}),
        ('float.wav', {'subtype': 'FLOAT'}),
        ('a.flac', {}),
        ('a.ogg', {}),
        ('a.mp3', {}),
        ('a.aiff', {}),
    ):
        soundfile.write(tmp_path / name, stereo, 44100, **options)
    status, out, err = run(model, '.')
    assert (status, err) == (0, '')
    texts = rows(out)
    assert len(texts) == 6
    assert texts['./a24.wav'] == texts['./float.wav'] == texts['./a.aiff']


def test_each_failure_is_named_in_one_line_and_the_rest_is_done(run, model, tmp_path, clips):
    (tmp_path / 'empty.wav').touch()
    (tmp_path / 'page.wav').write_text('<html>')
    (tmp_path / 'texts').mkdir()
    os.mkfifo(tmp_path / 'pipe.wav')
    write_wav(tmp_path / 'nothing.wav', [])
    write_broken_flac(tmp_path / 'half.flac', 3.0, 0.5)
    (tmp_path / 'bad.csv').write_text('audio,text\n')
    (tmp_path / 'new\nline.wav').touch()
    bad = {
        'empty.wav': 'not an audio file',
        'page.wav': 'not an audio file',
        'texts': 'a folder without audio files',
        'pipe.wav': 'not a regular file',
        'nothing.wav': 'too short: 0 samples at 16000 Hz',
        'half.flac': 'damaged audio',
        'bad.csv': 'manifest bad.csv: its first line must name the columns',
        'absent.wav': 'cannot be read: No such file or directory',
        'new\nline.wav': 'not an audio file',
    }
    status, out, err = run(model, clips[0], *bad, clips[1])
    assert status == 1
    assert list(rows(out)) == clips[:2]
    lines = err.splitlines()
    assert len(lines) == len(bad)
    for line, (name, reason) in zip(lines, bad.items()):
        assert line.startswith('error: %s: %s' % (name.replace('\n', '\\n'), reason))


def test_a_long_recording_is_cut(run, model, tmp_path):
    pieces = [piece for i in range(12) for piece in (speech(1.5, i), np.zeros(16000))]
    write_wav(tmp_path / 'long.wav', np.concatenate(pieces))
    status, out, _ = run(model, 'long.wav', '--json')
    found = json.loads(out)
    assert status == 0 and found['seconds'] == 30
    starts = [word['start'] for word in found['words']]
    assert starts == sorted(starts) and starts[-1] > 27
    assert rows(run(model, 'long.wav')[1]) == {'long.wav': found['text']}


def test_20_s_are_recognised_as_one(run, model, opened, tmp_path):
    pieces = [speech(9, 1), np.zeros(2 * 16000), speech(9, 2)]
    write_wav(tmp_path / 'a.wav', np.concatenate(pieces))
    [recognised] = opened.recognise([opened.features(np.concatenate(pieces).astype(float))])
    _, out, _ = run(model, 'a.wav')
    assert out == 'a.wav\t%s\n' % opened.alphabet.decode(recognised.labels)


# Subtitles


def test_subtitles_of_one_file_go_to_the_standard_output(run, model, clips):
    _, srt, _ = run(model, clips[2], '--srt')
    assert srt.startswith('1\n00:00:0')
    _, vtt, _ = run(model, clips[2], '--vtt')
    assert vtt.startswith('WEBVTT\n\n00:00:0')
    words = rows(run(model, clips[2])[1])[clips[2]].split()
    assert [word for line in srt.split('\n')[2:-2] for word in line.split()] == words


def test_subtitles_of_several_files_are_written_beside_them(run, model, clips, tmp_path):
    status, out, err = run(model, 'clips', '--srt')
    assert (status, out, err) == (0, '', '')
    names = sorted(path.name for path in (tmp_path / 'clips').glob('*.srt'))
    assert names == ['c0.srt', 'c1.srt', 'c2.srt']
    (tmp_path / 'clips' / 'c1.srt').write_text("somebody's own")
    (tmp_path / 'clips' / 'c0.srt').unlink()
    status, _, err = run(model, *clips, '--srt')
    assert status == 1
    assert err.splitlines() == [
        'error: clips/c%d.wav: clips/c%d.srt exists, and is not overwritten' % (i, i)
        for i in (1, 2)
    ]
    assert (tmp_path / 'clips' / 'c1.srt').read_text() == "somebody's own"
    assert (tmp_path / 'clips' / 'c0.srt').exists()


def test_subtitles_of_two_files_of_one_name(run, model, clips, tmp_path):
    soundfile.write(tmp_path / 'clips' / 'c0.flac', speech(1.0), 16000)
    status, _, err = run(model, 'clips/c0.wav', 'clips/c0.flac', '--vtt')
    assert status == 1
    assert err == 'error: clips/c0.flac: clips/c0.vtt exists, and is not overwritten\n'


def test_subtitles_have_no_place_for_manifests_and_the_standard_input_among_others(
    run, model, clips
):
    for arguments, words in (
        (['clips/test.csv', '--srt'], 'not the manifest clips/test.csv'),
        (['-', clips[0], '--vtt'], '- must be the only FILE'),
        (['-', '-'], '- can be given only once'),
    ):
        status, out, err = run(model, *arguments)
        assert (status, out) == (1, '') and words in err and err.startswith('error: ')


# Models and options


def test_a_model_that_cannot_be_used_is_named_in_one_line(run, clips, tmp_path):
    (tmp_path / 'cut').mkdir()
    (tmp_path / 'cut' / 'saved_model.pb').write_bytes(b'\x08\x01\x12')
    for path, words in (
        ('absent', 'there is no absent; a model is'),
        ('clips', 'clips holds no model'),
        (clips[0], '%s is not a model' % clips[0]),
        ('cut', 'cut cannot be loaded'),
    ):
        status, out, err = run(path, clips[0])
        assert (status, out) == (1, '')
        [line] = err.splitlines()
        assert line.startswith('error: ' + words)


def test_settings_for_a_model_that_does_not_describe_itself(run, clips, tmp_path):
    assert run(str(GRAPH_01), clips[2])[0] == 0
    (tmp_path / 'abc.txt').write_text('a\nb\nc\n')
    (tmp_path / 'abc.json').write_text('{"ds_alphabet": "abc.txt"}')
    for arguments, given in (((), {'alphabet': 'abc.txt'}), (('--config', 'abc.json'), {})):
        status, _, err = run(str(GRAPH_01), clips[2], *arguments, settings_given=given)
        assert status == 1 and 'the alphabet has 3 labels and the blank' in err
    status, _, err = run(str(GRAPH_01), clips[2], '--config', 'absent.json')
    assert status == 1 and 'ds_config: cannot read absent.json' in err


def test_a_model_that_describes_itself_ignores_the_settings(run, model, clips):
    given = {'n_hidden': 3, 'nonsense': 1}
    assert run(model, clips[0], settings_given=given)[0] == 0


def test_an_error_of_tensorflow_is_one_line(run, model, clips, opened, monkeypatch):
    def fail(features):
        raise tf.errors.ResourceExhaustedError(None, None, 'OOM when allocating\n\nmore')

    monkeypatch.setattr(opened, 'recognise', fail)
    status, out, err = run(model, *clips)
    assert (status, out) == (1, '')
    assert err == (
        'error: the model cannot be run: OOM when allocating; a smaller --batch-size needs less '
        'memory\n'
    )


@pytest.mark.parametrize(
    'arguments',
    (['--jobs', '0'], ['--batch-size', 'x'], ['--beam-width', '-1'], ['--srt', '--vtt']),
)
def test_wrong_options(run, model, clips, arguments):
    with pytest.raises(SystemExit) as raised:
        run(model, clips[0], *arguments)
    assert raised.value.code == 2


def test_subtitles_need_a_model_that_gives_logits(run, model, clips, opened, monkeypatch):
    monkeypatch.setattr(opened, 'gives_logits', False)
    status, out, err = run(model, clips[0], '--srt')
    assert (status, out) == (1, '') and 'gives no logits' in err


def test_the_progress_bar_is_on_the_standard_error_only(run, model, clips, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, 'stderr', terminal)
    status, out, _ = run(model, *clips)
    assert status == 0 and len(rows(out)) == 3
    assert '\r' not in out
    assert re.search(r'transcribed \|.*\| \d s/3 s', terminal.getvalue())
    assert terminal.getvalue().rsplit('\r', 2)[1].strip() == ''  # the line is cleared


# As a program


@pytest.fixture
def long_file(tmp_path):
    """A recording of 10 minutes."""
    pieces = [piece for i in range(20) for piece in (speech(1.5, i), np.zeros(8000))]
    return write_wav(tmp_path / 'long.wav', np.concatenate(pieces * 15))


def started(*arguments, **options):
    """A process of the program in the project's folder."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=PROJECT,
        env=settings.environment_with(),
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.mark.run
def test_the_standard_input(model, tmp_path, clips):
    clip = tmp_path / clips[2]
    process = started(model, '-', str(clip), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, err = process.communicate(clip.read_bytes(), LIMIT_S)
    assert (process.returncode, err) == (0, b'')
    [first, second] = [line.split(b'\t') for line in out.splitlines()]
    assert first[0] == b'-' and second[0] == os.fsencode(clip)
    assert first[1] == second[1] != b''


@pytest.mark.run
def test_a_closed_standard_output_ends_it_quietly(model, tmp_path, clips):
    process = started(model, *[str(tmp_path / clips[0])] * 300, stdout=subprocess.PIPE)
    assert process.stdout.readline().startswith(os.fsencode(tmp_path))
    process.stdout.close()
    assert process.stderr.read() == b''
    assert process.wait(LIMIT_S) == 0


@pytest.mark.run
def test_ctrl_c_ends_it_quietly(model, long_file):
    process = started(model, *[long_file] * 100, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (130, b'interrupted\n')
    assert time.monotonic() - begun < 30


@pytest.mark.run
def test_a_full_disk_is_named(model, tmp_path, clips):
    with open('/dev/full', 'wb') as full:
        process = started(model, str(tmp_path / clips[0]), stdout=full)
        err = process.communicate(timeout=LIMIT_S)[1]
    message = b'error: the standard output cannot be written: No space left on device\n'
    assert (process.returncode, err) == (1, message)


# Against the training


@pytest.mark.run
def test_texts_are_those_of_the_training_s_test(finished, monkeypatch, capsys):
    folder, training = finished
    monkeypatch.chdir(folder)
    report = training.stdout.split('Testing the weights')[1]
    shown = dict(re.findall(r'source: "(.*)"\n +result: "(.*)"', report))
    loss, rates = re.search(r'^Test: loss ([\d.]+), (.*)$', report, re.M).groups()
    for path in ('export', 'ckpt'):
        assert transcribe.main([path, 'test.csv']) == 0
        out, err = capsys.readouterr()
        assert list(rows(out).values()) == [shown['fine weather'], shown['last one']]
        our_loss, ours = re.fullmatch(r'test\.csv: loss ([\d.]+), (.*)\n', err).groups()
        assert ours == rates
        assert float(our_loss) == pytest.approx(float(loss), rel=1e-6)
