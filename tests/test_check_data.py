"""The report on a corpus, as a command of its own."""

import logging
import os
import subprocess
import sys
from unittest import mock

import pytest
import soundfile

from helpers import PROJECT, speech, write_manifest, write_wav
from util import config as settings
from util.tools import check_data


def environment(**values):
    """The environment for `make_corpus` with more settings."""
    return settings.environment_with(
        **{
            'importer': 'csv',
            'train_files': 'train.csv',
            'dev_files': 'dev.csv',
            'test_files': 'test.csv',
            'cache_dir': 'cache',
            **values,
        }
    )


@pytest.fixture
def check(corpus, monkeypatch, capsys):
    """A function that runs the command line in the folder of `corpus`, in this process, and
    returns its exit status and what it prints."""
    loggers = [logging.getLogger(name) for name in (None, 'tensorflow', 'util.feeding.data_sets')]
    kept = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    monkeypatch.chdir(corpus)

    def run(*arguments, **values):
        with mock.patch.dict(os.environ, environment(**values), clear=True):
            status = check_data.main([*arguments])
        out, err = capsys.readouterr()
        return status, out + err

    yield run
    for logger, level, handlers in kept:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.mark.run
def test_report_of_a_corpus_with_faults_by_the_file_as_a_program(corpus):
    write_wav(corpus / 'wav/r8.wav', speech(1.5, rate=8000), 8000)
    (corpus / 'wav/page.wav').write_text('<html>')
    with open(corpus / 'train.csv', 'a') as manifest:
        manifest.write('wav/r8.wav,0,last one\nwav/page.wav,0,hello\nwav/r8.wav,0,room 42 4\n')
    program = os.path.join(PROJECT, 'util', 'tools', 'check_data.py')
    done = subprocess.run(
        [sys.executable, program, 'lengths.png'],
        cwd=corpus,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    # 1.2, 1.3, 1.4, 1.5, 1.2 and the added 1.5 s
    assert lines[0] == (
        'train 6 utterances, 8.1 s (0.00 hours); shortest 1.20 s, median 1.35 s, longest 1.50 s'
    )
    # of 6 times 150 (or 149) frames; lengths 120, 130, 140, 150, 120, 150 in one batch
    assert lines[1].strip() == '10.1 % of the frames in batches of 64 are padding'
    assert lines[2].strip() == (
        '15 words; 1 at 8000 Hz with 1 channel, 5 at 16000 Hz with 1 channel'
    )
    assert 'excluded: 2 utterances' in lines
    assert '      1 not an audio file' in lines
    assert "      2 '4' (U+0034), as in wav/r8.wav: room 42 4" in lines
    assert "      1 '2' (U+0032), as in wav/r8.wav: room 42 4" in lines
    assert 'test utterances whose transcript also occurs in training: 1 of 2' in lines
    assert lines[-1] == 'training could start'
    with open(corpus / 'lengths.png', 'rb') as picture:
        assert picture.read(4) == b'\x89PNG'


def test_status_says_that_training_could_not_start(corpus, check):
    write_manifest(corpus / 'train.csv', [('wav/good0.wav', '')])
    status, printed = check()
    assert status == 1
    assert printed.splitlines()[-1].startswith('training could not start')


def test_wrong_setting_is_one_line(check):
    assert check(limit_dev='x') == (
        1,
        "error: ds_limit_dev must be an integer of at least 0, got 'x'\n",
    )


@pytest.mark.parametrize('picture', ('nowhere/lengths.png', 'lengths.nonsense'))
def test_a_picture_that_cannot_be_written_is_one_line_after_the_report(corpus, check, picture):
    status, printed = check(picture)
    assert status == 1
    assert printed.startswith('train 5 utterances')
    assert printed.splitlines()[-1].startswith('error: %s cannot be written: ' % picture)


def test_audio_that_is_not_as_long_as_its_header_says(corpus, check):
    flac = corpus / 'wav/streamed.flac'
    soundfile.write(flac, speech(2.0), 16000)
    content = bytearray(flac.read_bytes())
    content[21] &= 0xF0  # the last 36 bits that end here are the number of samples: unknown
    content[22:26] = bytes(4)
    flac.write_bytes(content)
    write_wav(corpus / 'wav/cut.wav', speech(3.0))
    os.truncate(corpus / 'wav/cut.wav', 44 + 2 * 12000)
    soundfile.write(corpus / 'wav/joined.mp3', speech(1.0), 16000)
    (corpus / 'wav/joined.mp3').write_bytes((corpus / 'wav/joined.mp3').read_bytes() * 2)
    write_manifest(
        corpus / 'train.csv',
        [(name, 'hello') for name in ('wav/streamed.flac', 'wav/cut.wav', 'wav/joined.mp3')],
    )
    status, said = check()
    assert status == 0
    assert 'wav/cut.wav: damaged WAV: 12000 samples, its header says 48000' in said
    assert 'wav/joined.mp3: several files one behind the other' in said
    assert 'train 1 utterances, 2.0 s' in said
