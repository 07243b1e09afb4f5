"""Whole runs on bad input: utterances, settings, folders, disks."""

import os
import re
import subprocess

import numpy as np
import pytest

from helpers import make_corpus, speech, write_broken_flac, write_manifest, write_wav
from runs import epochs, fails, final_line, newest_hyper, read_strict, run_deepspeech
from util.tf1 import tf

pytestmark = pytest.mark.run


def test_bad_utterances_are_named_and_change_nothing(corpus):
    good = run_deepspeech(corpus, checkpoint_dir='good', dropout_rate=0)
    write_wav(corpus / 'wav/fast.wav', speech(0.5))
    write_wav(corpus / 'wav/none.wav', [])
    write_wav(corpus / 'wav/tick.wav', speech(0.01))
    write_wav(corpus / 'wav/fine.wav', speech(1.0))
    (corpus / 'wav/page.wav').write_text('<html>404</html>')
    bad = [
        ('wav/fast.wav', 'a bee ' * 10),
        ('wav/none.wav', 'hello there'),
        ('wav/tick.wav', 'hello there'),
        ('wav/page.wav', 'hello there'),
        ('wav/missing.wav', 'hello there'),
        ('wav/fine.wav', 'thank you \u0441arol'),
        ('wav/fine.wav', 'room 42'),
        ('wav/fine.wav', ''),
        ('wav/fine.wav', '    '),
    ]
    for name in ('train', 'dev', 'test'):
        lines = (corpus / (name + '.csv')).read_text().splitlines()[1:]
        rows = [(line.split(',')[0], line.split(',')[2]) for line in lines]
        write_manifest(corpus / (name + '.csv'), rows[:1] + bad + rows[1:])
    run = run_deepspeech(corpus, dropout_rate=0)
    assert run.returncode == 0, run.stdout
    for name, _ in bad:
        assert 'excluded %s: ' % name in run.stdout
    assert 'U+0441' in run.stdout and "'4' (U+0034)" in run.stdout
    assert '9 of 18 utterances excluded' in run.stdout
    assert epochs(run.stdout) == epochs(good.stdout)
    assert final_line(run.stdout) == final_line(good.stdout)


def test_empty_dev_set_skips_validation_and_says_so(corpus):
    write_manifest(corpus / 'dev.csv', [])
    run = run_deepspeech(corpus)
    assert run.returncode == 0 and 'the dev set is empty: no validation' in run.stdout
    hyper = newest_hyper(corpus)
    assert hyper['results']['last_validation_wer'] is None
    assert hyper['results']['last_validation_loss'] is None


def test_nothing_usable_left_stops_cleanly(corpus):
    write_wav(corpus / 'wav/none.wav', [])
    write_manifest(corpus / 'train.csv', [('wav/none.wav', 'hello')])
    fails(run_deepspeech(corpus), 'no usable training utterance')


@pytest.fixture(scope='module')
def odd(tmp_path_factory):
    """Output of a run on audio that is broken in its midst, has other rates or two channels, is
    silent or constant."""
    folder = make_corpus(tmp_path_factory.mktemp('odd'))
    write_broken_flac(folder / 'wav/half.flac', 3.0, 0.5)
    for rate in (8000, 22050, 44100):
        write_wav(folder / ('wav/r%d.wav' % rate), speech(1.5, rate=rate), rate)
    write_wav(folder / 'wav/duo.wav', np.stack([speech(1.0), speech(1.0)], axis=1))
    write_wav(folder / 'wav/mute.wav', np.zeros(32000))
    write_wav(folder / 'wav/flat.wav', np.full(32000, 1000))
    with open(folder / 'train.csv', 'a') as manifest:
        for name in (
            'half.flac',
            'r8000.wav',
            'r22050.wav',
            'r44100.wav',
            'duo.wav',
            'mute.wav',
            'flat.wav',
        ):
            manifest.write('wav/%s,0,good morning\n' % name)
    run = run_deepspeech(folder, epochs=3)
    assert run.returncode == 0, run.stdout
    return run.stdout


def test_undecodable_audio_is_left_out_when_it_is_read(odd):
    assert odd.count('excluded wav/half.flac: ') == 1


def test_other_rates_and_channels_are_brought_over_and_said(odd):
    assert 'resampled to 16000 Hz: 1 from 8000 Hz, 1 from 22050 Hz, 1 from 44100 Hz' in odd
    assert 'mixed down to one channel (mean): 1' in odd
    assert 'frame length' not in odd


def test_silence_and_broken_audio_train_with_finite_losses(odd):
    assert len(epochs(odd)) == 3 and not re.search('nan|inf', ' '.join(epochs(odd)))


def test_test_set_without_readable_audio_ends_cleanly(corpus):
    write_broken_flac(corpus / 'wav/bad.flac', 2.0, 0.25)
    write_manifest(corpus / 'test.csv', [('wav/bad.flac', 'one')])
    run = run_deepspeech(corpus, export_dir='export')
    assert run.returncode == 0, run.stdout
    assert 'no utterance of the test set could be read' in run.stdout
    assert os.path.isdir(corpus / 'export' / '1')


def test_loss_that_is_not_finite_stops_the_run_and_names_the_utterances(corpus):
    run = run_deepspeech(corpus, learning_rate=1e30)
    assert run.returncode == 1 and 'Traceback' not in run.stdout
    line = [line for line in run.stdout.splitlines() if line.startswith('error: ')][0]
    assert re.search(r'epoch \d, step \d', line) and 'wav/good' in line
    hyper = newest_hyper(corpus)
    assert hyper['results']['test_wer'] is None
    read_strict((corpus / 'logs' / 'hyper.js').read_text().split('=', 1)[1].strip()[:-1])


@pytest.mark.parametrize('name', ['checkpoint_dir', 'logs_dir', 'export_dir'])
def test_a_file_where_a_folder_should_be_stops_before_training(corpus, name):
    (corpus / 'plain').write_text('a file')
    fails(run_deepspeech(corpus, **{name: 'plain'}), 'ds_' + name, 'plain')


SPACE_TAKEN = dict(checkpoint_dir=700_000, logs_dir=1_036_000, export_dir=950_000)  # of 1 MiB


@pytest.fixture
def small_disk(corpus):
    """A folder of `corpus` on a file system of its own that holds 1 MiB."""
    (corpus / 'small').mkdir()
    if subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', corpus / 'small'], capture_output=True
    ).returncode:
        pytest.skip('no permission to mount')
    yield corpus / 'small'
    subprocess.run(['umount', corpus / 'small'], check=True)


@pytest.mark.parametrize('name', ['checkpoint_dir', 'logs_dir', 'export_dir'])
def test_full_disk_ends_the_run_with_the_reason(corpus, small_disk, name):
    (small_disk / 'filling').write_bytes(bytes(SPACE_TAKEN[name]))
    run = run_deepspeech(corpus, epochs=3, **{name: 'small/x'})
    assert run.returncode == 1, run.stdout
    assert 'Traceback' not in run.stdout
    error = [line for line in run.stdout.splitlines() if line.startswith('error: ')][0]
    assert 'small/x' in error and 'No space left on device' in error
    if name != 'checkpoint_dir':
        more = run_deepspeech(corpus, epochs=3, restore_checkpoint=1)
        assert more.returncode == 0 and 'restored ckpt/model.ckpt-' in more.stdout


def test_missing_test_manifest_is_found_before_training(corpus):
    fails(run_deepspeech(corpus, test_files='nowhere.csv'), 'nowhere.csv')


@pytest.mark.parametrize(
    'name, value, words',
    [
        ('use_warpctc', '1', ['ds_use_warpctc', 'GPU']),
        ('restore_checkpoint', 'maybe', ['ds_restore_checkpoint', 'maybe']),
        ('training_iters', '0', ['ds_training_iters', 'ds_restore_checkpoint']),
        ('importer', 'cvs', ['ds_importer', 'csv', 'cvs']),
    ],
)
def test_settings_that_cannot_work_stop_cleanly(corpus, name, value, words):
    if name == 'training_iters':
        fails(run_deepspeech(corpus, epochs=None, training_iters=0), *words)
    elif name == 'use_warpctc' and tf.config.list_physical_devices('GPU'):
        pytest.skip('runs on a GPU')
    else:
        fails(run_deepspeech(corpus, **{name: value}), *words)
