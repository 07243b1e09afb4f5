"""Whole runs of DeepSpeech.py, in processes of their own, on a corpus of nine short WAVs."""
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import soundfile
import tensorflow.compat.v1 as tf

from conftest import (PROJECT, make_corpus, run_deepspeech, run_together, speech, write_manifest,
                      write_wav)


def epochs(out, set_name='train'):
    """Losses of the epoch lines: ['383.904034', ...]."""
    return re.findall(r'Epoch \d+ of \d+ finished:.*?\b%s loss ([\d.]+|nan|inf)' % set_name, out)


def started(out):
    return [int(n) for n in re.findall(r'^Epoch (\d+) of \d+ started', out, re.M)]


def final_line(out):
    return re.search(r'^Test: .*$', out, re.M).group()


def sources(report):
    return re.findall(r'source: "(.*)"', report)


def checksums(folder):
    return {name: hashlib.sha256(open(os.path.join(folder, name), 'rb').read()).hexdigest()
            for name in sorted(os.listdir(folder)) if name.startswith('model')}


def read_strict(text):
    def refuse(constant):
        raise ValueError(constant)
    return json.loads(text, parse_constant=refuse)


def newest_hyper(folder):
    path = sorted(glob.glob(str(folder / 'logs' / '*' / 'hyper.json')))[-1]
    return read_strict(open(path).read())


def fails(run, *words):
    """Asserts a clean stop: status 1, no traceback, a line with these words; no step taken."""
    assert run.returncode == 1, run.stdout
    assert 'Traceback' not in run.stdout
    assert 'started' not in run.stdout
    line = [line for line in run.stdout.splitlines() if line.startswith('error: ')]
    assert len(line) == 1, run.stdout
    for word in words:
        assert word in line[0]


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """A corpus and a run of two epochs on it, with an export; not to be changed."""
    folder = make_corpus(tmp_path_factory.mktemp('finished'))
    return folder, run_deepspeech(folder, export_dir='export', dropout_rate=0, fresh=True)


@pytest.fixture
def resumable(finished, tmp_path):
    """A copy of that folder, to go on from."""
    folder = tmp_path / 'copy'
    shutil.copytree(finished[0], folder)
    return folder


def test_run_says_what_it_did_and_where_it_is(finished):
    folder, run = finished
    assert run.returncode == 0, run.stdout
    assert started(run.stdout) == [1, 2]
    assert len(epochs(run.stdout)) == len(epochs(run.stdout, 'dev')) == 2
    assert float(epochs(run.stdout)[1]) < float(epochs(run.stdout)[0])
    last = run.stdout.splitlines()[-4:]
    assert [line.split(':')[0] for line in last] == ['Test', 'Model', 'Logs', 'Export']
    assert os.path.join('export', '1') in last[3]


def test_nothing_of_tensorflow_is_printed(finished):
    assert not re.search(r'oneDNN|cuda|absl|WARNING|deprecat', finished[1].stdout)


def test_reports_count_and_rate_are_those_of_the_printed_pairs(finished):
    report = finished[1].stdout.split('Testing the weights')[1]
    pairs = re.findall(r'source: "(.*)"\n +result: "(.*)"', report)
    import jiwer
    wer = jiwer.wer([s for s, _ in pairs], [r for _, r in pairs])
    assert sorted(s for s, _ in pairs) == ['fine weather', 'last one']
    assert float(re.search(r'Test .*WER: ([\d.]+)', report).group(1)) == pytest.approx(wer, abs=1e-6)


def test_hyper_json_has_the_notebooks_structure(finished):
    content = newest_hyper(finished[0])
    assert set(content) == {'context', 'parameters', 'results'}
    assert {'time_started', 'time_finished', 'git_hash', 'git_branch'} == set(content['context'])
    assert content['parameters']['n_hidden_3'] == 64
    assert content['parameters']['n_character'] == 29
    assert content['parameters']['total_batches_train'] == 3
    assert content['parameters']['data_set']['name'] == 'csv'
    results = content['results']
    assert results['last_train_loss'] == pytest.approx(float(epochs(finished[1].stdout)[1]), abs=1e-5)
    assert results['test_wer'] >= 0 and results['test_cer'] >= 0 and results['duration'] > 0
    merged = open(finished[0] / 'logs' / 'hyper.js').read()
    assert read_strict(merged.split('=', 1)[1].strip().rstrip(';')) == [content]


def events(folder, set_name):
    """{tag: [(step, value), ...]} of the newest run's event files."""
    found = {}
    run = sorted(glob.glob(str(folder / 'logs' / '2*')))[-1]
    for path in glob.glob(os.path.join(run, set_name, 'events*')):
        for event in tf.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_scalars_for_tensorboard(finished):
    common = {'loss', 'label_error_rate', 'wer', 'cer', 'audio_seconds_per_second',
              'feeding_wait_share'}
    train, dev, test = (events(finished[0], name) for name in ('train', 'dev', 'test'))
    assert set(train) == common | {'step_loss', 'learning_rate'}
    assert set(dev) == set(test) == common
    assert [step for step, _ in train['step_loss']] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in dev['loss']] == [3, 6]
    assert all(0 <= share < 1 for _, share in train['feeding_wait_share'])
    assert train['loss'][1][1] == pytest.approx(float(epochs(finished[1].stdout)[1]), rel=1e-6)


def test_resuming_trains_only_what_is_missing(resumable):
    before = checksums(resumable / 'ckpt')
    again = run_deepspeech(resumable, restore_checkpoint=1, dropout_rate=0)
    assert again.returncode == 0 and started(again.stdout) == []
    assert checksums(resumable / 'ckpt') == before
    more = run_deepspeech(resumable, restore_checkpoint=1, dropout_rate=0, epochs=3)
    assert started(more.stdout) == [3]
    assert 'restored ckpt/model.ckpt-6: 2 epochs done' in more.stdout
    assert os.path.exists(resumable / 'ckpt' / 'model.ckpt-9.index')


def test_resumed_run_equals_the_uninterrupted_one(corpus):
    settings = dict(dropout_rate=0.3, batch_order='bucketed', numbuckets=2)
    whole, _ = run_together(corpus, dict(settings, epochs=3, checkpoint_dir='whole'),
                            dict(settings, epochs=1))
    resumed = run_deepspeech(corpus, epochs=3, restore_checkpoint=1, **settings)
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)


def test_checkpoint_holds_the_whole_state(finished):
    reader = tf.train.load_checkpoint(str(finished[0] / 'ckpt'))
    names = set(reader.get_variable_to_shape_map())
    weights = {'b1', 'h1', 'b2', 'h2', 'b3', 'h3', 'b5', 'h5', 'b6', 'h6'} | {
        'bidirectional_rnn/%s/basic_lstm_cell/%s' % (d, k)
        for d in ('fw', 'bw') for k in ('kernel', 'bias')}
    slots = {name + slot for name in weights for slot in ('/Adam', '/Adam_1')}
    assert weights | slots | {'beta1_power', 'beta2_power', 'global_step'} <= names
    assert reader.get_tensor('global_step') == 6
    assert reader.get_tensor('run_state/epoch') == 2
    assert all(np.isfinite(reader.get_tensor(name)).all() for name in names)


STOPPING = """
import os, signal, sys
sys.argv = ['DeepSpeech.py']
sys.path.insert(0, %r)
import DeepSpeech
%s
sys.exit(DeepSpeech.main([]))
"""
STOP_IN_TRAINING = """
saved = DeepSpeech._saved_on_failure
def stop_in_the_second_epoch(run, state):
    if state.epoch == 1 and state.epoch_step >= 3 and not run.stop.wanted:
        os.kill(os.getpid(), signal.SIGINT)
    return saved(run, state)
DeepSpeech._saved_on_failure = stop_in_the_second_epoch
"""
STOP_IN_VALIDATION = """
validate = DeepSpeech._validate
def stop_in_the_second_validation(run, state, feeder):
    if state.epoch == 2: os.kill(os.getpid(), signal.SIGTERM)
    return validate(run, state, feeder)
DeepSpeech._validate = stop_in_the_second_validation
"""


def stop_and_resume(corpus, where, **values):
    """(whole run, stopped run, resumed run) of two epochs."""
    (corpus / 'stopped.py').write_text(STOPPING % (PROJECT, where))
    whole, stopped = run_together(corpus, dict(values, checkpoint_dir='whole'),
                                  dict(values, script='stopped.py'))
    assert stopped.returncode == 130, stopped.stdout
    resumed = run_deepspeech(corpus, restore_checkpoint=1, **values)
    assert resumed.returncode == 0, resumed.stdout
    assert final_line(resumed.stdout) == final_line(whole.stdout)
    return whole, stopped, resumed


def test_sigint_saves_and_the_rest_of_the_epoch_follows(corpus):
    whole, stopped, resumed = stop_and_resume(corpus, STOP_IN_TRAINING, train_batch_size=1)
    assert 'interrupted: saved ckpt/model.ckpt-8: 1 epochs and 3 steps' in stopped.stdout
    assert started(resumed.stdout) == [2]
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]


def test_epoch_loss_is_exact_with_late_exclusions_before_the_stop(corpus):
    for name in ('wav/bad1.flac', 'wav/bad2.flac'):
        soundfile.write(corpus / name, speech(1.25), 16000)
        content = (corpus / name).read_bytes()
        (corpus / name).write_bytes(content[:len(content) // 2] + bytes(2000))
    with open(corpus / 'train.csv', 'a') as manifest:
        manifest.write('wav/bad1.flac,0,one\nwav/bad2.flac,0,two\n')
    whole, _, resumed = stop_and_resume(corpus, STOP_IN_TRAINING, train_batch_size=1)
    assert '1 epochs done and 5 steps' in resumed.stdout  # two of them without an utterance
    assert epochs(resumed.stdout) == epochs(whole.stdout)[1:]


def test_interrupted_validation_is_done_by_the_resumed_run(corpus):
    whole, stopped, resumed = stop_and_resume(corpus, STOP_IN_VALIDATION)
    assert 'interrupted: saved ckpt/model.ckpt-6: 2 epochs' in stopped.stdout
    assert started(resumed.stdout) == []
    assert 'best/model.ckpt-6' in resumed.stdout


def test_unfinished_epoch_starts_anew_where_its_order_is_another(corpus):
    (corpus / 'stopped.py').write_text(STOPPING % (PROJECT, STOP_IN_TRAINING))
    run_deepspeech(corpus, script='stopped.py', train_batch_size=1)
    resumed = run_deepspeech(corpus, restore_checkpoint=1, train_batch_size=1, limit_train=2)
    assert 'the unfinished epoch starts anew' in resumed.stdout
    report = resumed.stdout.split('Training loss')[1].split('Validation loss')[0]
    assert len(sources(report)) == 2


def test_killed_run_ends_as_the_one_that_was_not_killed(corpus):
    settings = dict(epochs=12, display_step=0, dropout_rate=0.2)
    kill = ('save = DeepSpeech._save\n'
            'def kill_after_the_fifth_epoch(run, state, **more):\n'
            '    path = save(run, state, **more)\n'
            '    if state.epoch == 5: os.kill(os.getpid(), signal.SIGKILL)\n'
            '    return path\n'
            'DeepSpeech._save = kill_after_the_fifth_epoch')
    (corpus / 'killed.py').write_text(STOPPING % (PROJECT, kill))
    whole, killed = run_together(corpus, dict(settings, checkpoint_dir='whole'),
                                 dict(settings, script='killed.py'))
    assert killed.returncode == -signal.SIGKILL
    resumed = run_deepspeech(corpus, restore_checkpoint=1, **settings)
    assert started(resumed.stdout) == list(range(6, 13))
    assert epochs(resumed.stdout) == epochs(whole.stdout)[5:]
    assert final_line(resumed.stdout) == final_line(whole.stdout)


def test_a_best_of_another_run_is_not_taken_for_this_ones(resumable):
    shutil.copytree(resumable / 'ckpt', resumable / 'other')
    run_deepspeech(resumable, epochs=3, checkpoint_dir='other', restore_checkpoint=1,
                   dropout_rate=0)
    shutil.rmtree(resumable / 'ckpt' / 'best')
    shutil.copytree(resumable / 'other' / 'best', resumable / 'ckpt' / 'best')
    run = run_deepspeech(resumable, restore_checkpoint=1, epochs=0)
    assert run.returncode == 0, run.stdout
    assert 'are no longer in ckpt/best' in run.stdout
    assert 'Testing the weights of epoch 2' in run.stdout


def test_test_set_without_readable_audio_ends_cleanly(corpus):
    soundfile.write(corpus / 'wav/bad.flac', speech(2), 16000)
    content = (corpus / 'wav/bad.flac').read_bytes()
    (corpus / 'wav/bad.flac').write_bytes(content[:len(content) // 4] + bytes(2000))
    write_manifest(corpus / 'test.csv', [('wav/bad.flac', 'one')])
    run = run_deepspeech(corpus, export_dir='export')
    assert run.returncode == 0, run.stdout
    assert 'no utterance of the test set could be read' in run.stdout
    assert os.path.isdir(corpus / 'export' / '1')


def test_moved_checkpoints_are_read_where_they_are_now(resumable):
    shutil.copytree(resumable / 'ckpt', resumable / 'moved')
    for path in glob.glob(str(resumable / 'ckpt' / 'model*')):
        open(path, 'wb').write(os.urandom(100))
    run = run_deepspeech(resumable, checkpoint_dir='moved', restore_checkpoint=1, epochs=3)
    assert run.returncode == 0 and started(run.stdout) == [3], run.stdout
    assert 'restored moved/model.ckpt-6' in run.stdout


def test_damaged_newest_checkpoint_is_named_and_passed_over(resumable):
    path = resumable / 'ckpt' / 'model.ckpt-6.data-00000-of-00001'
    path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])
    good = checksums(resumable / 'ckpt')['model.ckpt-3.data-00000-of-00001']
    run = run_deepspeech(resumable, restore_checkpoint=1, epochs=2)
    assert run.returncode == 0, run.stdout
    assert 'checkpoint ckpt/model.ckpt-6 is damaged' in run.stdout
    assert started(run.stdout) == [2]
    assert checksums(resumable / 'ckpt')['model.ckpt-3.data-00000-of-00001'] == good


def test_another_geometry_is_refused_with_both_values(resumable):
    before = checksums(resumable / 'ckpt')
    fails(run_deepspeech(resumable, restore_checkpoint=1, n_hidden=48), 'ds_n_hidden', '32', '48')
    assert checksums(resumable / 'ckpt') == before


def test_five_checkpoints_are_kept_over_resumes_and_nothing_else_is_touched(corpus):
    (corpus / 'ckpt' / 'keep').mkdir(parents=True)
    (corpus / 'ckpt' / 'notes.txt').write_text('mine')
    for total in (6, 8):
        run_deepspeech(corpus, epochs=total, restore_checkpoint=1, display_step=0,
                       validation_step=0)
        kept = glob.glob(str(corpus / 'ckpt' / 'model*.index'))
        assert len(kept) == 5
        assert str(corpus / 'ckpt' / ('model.ckpt-%d.index' % (3 * total))) in kept
    assert (corpus / 'ckpt' / 'keep').is_dir() and (corpus / 'ckpt' / 'notes.txt').exists()


LOAD = '''
import sys, numpy as np, tensorflow as tf
path, features = sys.argv[1], np.load(sys.argv[2])
model = tf.saved_model.load(path)
whole = model.signatures['serving_default'](input=tf.constant(features[:1]))['outputs']
lengths = tf.constant([features.shape[1], 40, 70], tf.int32)
padded = model.signatures['with_length'](input=tf.constant(features), input_length=lengths)
single = model.signatures['serving_default'](input=tf.constant(features[1:2, :40]))
np.savez(sys.argv[3], whole=whole, padded=padded['outputs'], single=single['outputs'])
'''


def test_export_decodes_as_the_report_did(finished, tmp_path):
    folder, run = finished
    from util import audio, text
    wav = str(folder / 'wav' / 'good7.wav')  # "fine weather"
    features = audio.audiofile_to_input_vector(wav, 26, 9)
    np.save(tmp_path / 'in.npy', np.stack([features, features[::-1], features * 0.5]))
    done = subprocess.run([sys.executable, '-c', LOAD, str(folder / 'export' / '1'),
                           str(tmp_path / 'in.npy'), str(tmp_path / 'out.npz')],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out = np.load(tmp_path / 'out.npz')
    report = run.stdout.split('Testing the weights')[1]
    result = re.search(r'source: "fine weather"\n +result: "(.*)"', report).group(1)
    assert out['whole'].dtype == np.int64 and out['whole'].shape[:2] == (1, 1)
    assert text.Alphabet().decode(out['whole'][0, 0]) == result
    row = out['padded'][0, 1]
    np.testing.assert_array_equal(row[row >= 0], out['single'][0, 0])
    assert set(out['padded'].flatten()) <= set(range(-1, 28))


def test_export_has_no_random_operation_and_no_queue(finished):
    with tf.Graph().as_default(), tf.Session() as session:
        meta = tf.saved_model.load(session, ['serve'], str(finished[0] / 'export' / '1'))
        operations = {node.op for node in meta.graph_def.node}
        for function in meta.graph_def.library.function:
            operations |= {node.op for node in function.node_def}
    assert set(meta.signature_def) >= {'serving_default', 'with_length'}
    default = meta.signature_def['serving_default']
    assert default.method_name == 'tensorflow/serving/predict'
    assert [d.size for d in default.inputs['input'].tensor_shape.dim] == [-1, -1, 494]
    assert 'input_length' in meta.signature_def['with_length'].inputs
    assert not {op for op in operations if 'Random' in op or 'Queue' in op}


def test_versions_are_counted_up_and_removed_only_on_demand(resumable):
    run = run_deepspeech(resumable, restore_checkpoint=1, epochs=0, export_dir='export')
    assert run.returncode == 0, run.stdout
    assert sorted(os.listdir(resumable / 'export')) == ['1', '2']
    run_deepspeech(resumable, restore_checkpoint=1, epochs=0, export_dir='export',
                   remove_export=1)
    assert os.listdir(resumable / 'export') == ['3']


def test_each_utterance_once_an_epoch_with_any_number_of_towers(corpus):
    for run in run_together(corpus, *[
            dict(epochs=1, towers=towers, train_batch_size=1, checkpoint_dir='ckpt%d' % towers)
            for towers in (1, 2, 3)]):
        assert run.returncode == 0, run.stdout
        report = run.stdout.split('Training loss')[1].split('Validation loss')[0]
        assert sorted(sources(report)) == ['blue sky', 'go home now', 'one two', 'the red door',
                                           'we all sleep']


def test_two_towers_train_as_one_with_twice_the_batch(corpus):
    settings = dict(dropout_rate=0, epochs=2, validation_step=0)
    one, two = run_together(
        corpus, dict(settings, train_batch_size=4, checkpoint_dir='one'),
        dict(settings, train_batch_size=2, towers=2, checkpoint_dir='two'))
    assert [float(loss) for loss in epochs(two.stdout)] == pytest.approx(
        [float(loss) for loss in epochs(one.stdout)], rel=1e-6)


def test_fewer_utterances_than_the_batch_holds(corpus):
    for name, rows in (('train', 3), ('dev', 1), ('test', 1)):
        lines = (corpus / (name + '.csv')).read_text().splitlines()[:1 + rows]
        (corpus / (name + '.csv')).write_text('\n'.join(lines) + '\n')
    run = run_deepspeech(corpus, train_batch_size=16, dev_batch_size=16, test_batch_size=16)
    assert run.returncode == 0, run.stdout
    report = run.stdout.split('Training loss')[1].split('Validation loss')[0]
    losses = [float(loss) for loss in re.findall(r'loss: +([\d.]+)', report)]
    assert len(losses) == 3
    assert float(epochs(run.stdout)[0]) == pytest.approx(np.mean(losses), rel=1e-5)
    assert os.path.exists(corpus / 'ckpt' / 'model.ckpt-2.index')


def test_empty_dev_set_skips_validation_and_says_so(corpus):
    write_manifest(corpus / 'dev.csv', [])
    run = run_deepspeech(corpus)
    assert run.returncode == 0 and 'the dev set is empty: no validation' in run.stdout
    hyper = newest_hyper(corpus)
    assert hyper['results']['last_validation_wer'] is None
    assert hyper['results']['last_validation_loss'] is None


def test_bad_utterances_are_named_and_change_nothing(corpus):
    good = run_deepspeech(corpus, checkpoint_dir='good', dropout_rate=0)
    write_wav(corpus / 'wav/fast.wav', speech(0.5))
    write_wav(corpus / 'wav/none.wav', [])
    write_wav(corpus / 'wav/tick.wav', speech(0.01))
    write_wav(corpus / 'wav/fine.wav', speech(1.0))
    (corpus / 'wav/page.wav').write_text('<html>404</html>')
    bad = [('wav/fast.wav', 'a bee ' * 10), ('wav/none.wav', 'hello there'),
           ('wav/tick.wav', 'hello there'), ('wav/page.wav', 'hello there'),
           ('wav/missing.wav', 'hello there'), ('wav/fine.wav', 'thank you \u0441arol'),
           ('wav/fine.wav', 'room 42'), ('wav/fine.wav', ''), ('wav/fine.wav', '    ')]
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


def test_nothing_usable_left_stops_cleanly(corpus):
    write_wav(corpus / 'wav/none.wav', [])
    write_manifest(corpus / 'train.csv', [('wav/none.wav', 'hello')])
    fails(run_deepspeech(corpus), 'no usable training utterance')


def test_undecodable_audio_is_left_out_when_it_is_read(corpus):
    soundfile.write(corpus / 'wav/half.flac', speech(3.0), 16000)
    content = (corpus / 'wav/half.flac').read_bytes()
    (corpus / 'wav/half.flac').write_bytes(content[:len(content) // 2] + bytes(2000))
    with open(corpus / 'train.csv', 'a') as manifest:
        manifest.write('wav/half.flac,0,half a file\n')
    run = run_deepspeech(corpus)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count('excluded wav/half.flac: ') == 1
    assert not re.search('nan|inf', ' '.join(epochs(run.stdout)))


def test_other_rates_and_channels_are_brought_over_and_said(corpus):
    for rate in (8000, 22050, 44100):
        write_wav(corpus / ('wav/r%d.wav' % rate), speech(1.5, rate=rate), rate)
    write_wav(corpus / 'wav/duo.wav', np.stack([speech(1.0), speech(1.0)], axis=1))
    with open(corpus / 'train.csv', 'a') as manifest:
        for name in ('r8000', 'r22050', 'r44100', 'duo'):
            manifest.write('wav/%s.wav,0,good morning\n' % name)
    run = run_deepspeech(corpus, epochs=1)
    assert run.returncode == 0
    assert ('resampled to 16000 Hz: 1 from 8000 Hz, 1 from 22050 Hz, 1 from 44100 Hz'
            in run.stdout)
    assert 'mixed down to one channel (mean): 1' in run.stdout
    assert 'frame length' not in run.stdout


def test_silence_trains_with_finite_losses(corpus):
    write_wav(corpus / 'wav/mute.wav', np.zeros(32000))
    write_wav(corpus / 'wav/flat.wav', np.full(32000, 1000))
    with open(corpus / 'train.csv', 'a') as manifest:
        manifest.write('wav/mute.wav,0,the room is quiet\nwav/flat.wav,0,the room is flat\n')
    run = run_deepspeech(corpus, epochs=3)
    assert run.returncode == 0 and len(epochs(run.stdout)) == 3
    assert not re.search('nan|inf', ' '.join(epochs(run.stdout)))


def test_loss_that_is_not_finite_stops_the_run_and_names_the_utterances(corpus):
    run = run_deepspeech(corpus, learning_rate=1e30)
    assert run.returncode == 1 and 'Traceback' not in run.stdout
    line = [line for line in run.stdout.splitlines() if line.startswith('error: ')][0]
    assert re.search(r'epoch \d, step \d', line) and 'wav/good' in line
    hyper = newest_hyper(corpus)
    assert hyper['results']['test_wer'] is None
    read_strict((corpus / 'logs' / 'hyper.js').read_text().split('=', 1)[1].strip()[:-1])


def test_same_seed_same_figures_another_seed_others(corpus):
    settings = dict(dropout_rate=0.2, batch_order='shuffled')
    one, two, other = run_together(corpus, *[
        dict(settings, checkpoint_dir=name, random_seed=seed)
        for name, seed in (('a', 7), ('b', 7), ('c', 8))])
    assert epochs(one.stdout) == epochs(two.stdout)
    assert final_line(one.stdout) == final_line(two.stdout)
    assert epochs(one.stdout) != epochs(other.stdout)


def test_dropout_is_off_in_tests(resumable):
    with_dropout, without = (run_deepspeech(resumable, restore_checkpoint=1, epochs=0,
                                            dropout_rate=rate) for rate in (0.9, 0))
    assert final_line(with_dropout.stdout) == final_line(without.stdout)


@pytest.mark.parametrize('name', ['checkpoint_dir', 'logs_dir', 'export_dir'])
def test_a_file_where_a_folder_should_be_stops_before_training(corpus, name):
    (corpus / 'plain').write_text('a file')
    fails(run_deepspeech(corpus, **{name: 'plain'}), 'ds_' + name, 'plain')


SPACE_TAKEN = dict(checkpoint_dir=700_000, logs_dir=1_036_000, export_dir=950_000)  # of 1 MiB


@pytest.fixture
def small_disk(corpus):
    """A folder of `corpus` on a file system of its own that holds 1 MiB."""
    (corpus / 'small').mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', corpus / 'small'],
                      capture_output=True).returncode:
        pytest.skip('no permission to mount')
    yield corpus / 'small'
    subprocess.run(['umount', corpus / 'small'], check=True)


@pytest.mark.parametrize('name', ['checkpoint_dir', 'logs_dir', 'export_dir'])
def test_full_disk_ends_the_run_with_the_reason(corpus, small_disk, name):
    (small_disk / 'filling').write_bytes(bytes(SPACE_TAKEN[name]))
    run = run_deepspeech(corpus, epochs=3, **{name: 'small/x'})
    assert run.returncode == 1, run.stdout
    assert 'Traceback' not in run.stdout or name == 'logs_dir'  # TensorFlow's writer prints one
    error = [line for line in run.stdout.splitlines() if line.startswith('error: ')][0]
    assert 'small/x' in error and 'No space left on device' in error
    if name != 'checkpoint_dir':
        more = run_deepspeech(corpus, epochs=3, restore_checkpoint=1)
        assert more.returncode == 0 and 'restored ckpt/model.ckpt-' in more.stdout


def test_missing_test_manifest_is_found_before_training(corpus):
    fails(run_deepspeech(corpus, test_files='nowhere.csv'), 'nowhere.csv')


@pytest.mark.parametrize('name, value, words', [
    ('use_warpctc', '1', ['ds_use_warpctc', 'GPU']),
    ('restore_checkpoint', 'maybe', ['ds_restore_checkpoint', 'maybe']),
    ('training_iters', '0', ['ds_training_iters', 'ds_restore_checkpoint']),
    ('importer', 'cvs', ['ds_importer', 'csv', 'cvs']),
])
def test_settings_that_cannot_work_stop_cleanly(corpus, name, value, words):
    if name == 'training_iters':
        fails(run_deepspeech(corpus, epochs=None, training_iters=0), *words)
    elif name == 'use_warpctc' and tf.config.list_physical_devices('GPU'):
        pytest.skip('runs on a GPU')
    else:
        fails(run_deepspeech(corpus, **{name: value}), *words)


@pytest.mark.skipif(not tf.config.list_physical_devices('GPU'), reason='needs a GPU')
def test_accelerated_ctc_has_the_same_losses(corpus):
    plain = run_deepspeech(corpus, dropout_rate=0, checkpoint_dir='plain')
    fast = run_deepspeech(corpus, dropout_rate=0, checkpoint_dir='fast', use_warpctc=1)
    assert [float(loss) for loss in epochs(fast.stdout)] == pytest.approx(
        [float(loss) for loss in epochs(plain.stdout)], rel=1e-4)


def test_help_and_show_config_need_no_data(tmp_path):
    shown = run_deepspeech(tmp_path, '--show-config', learning_rate='0.5')
    assert shown.returncode == 0
    assert re.search(r'^ds_learning_rate +0.5 +environment$', shown.stdout, re.M)
    assert re.search(r'^ds_beta1 +0.9 +default$', shown.stdout, re.M)
    helped = run_deepspeech(tmp_path, '--help')
    assert helped.returncode == 0 and 'ds_learning_rate' in helped.stdout
    assert os.listdir(tmp_path) == []


def test_full_trace_and_variable_summaries(corpus):
    run = run_deepspeech(corpus, epochs=1, do_fulltrace=1, log_variables=1)
    assert run.returncode == 0, run.stdout
    folder = glob.glob(str(corpus / 'logs' / '*' / 'train'))[0]
    assert json.load(open(os.path.join(folder, 'trace.json')))['traceEvents']
    tags = set(events(corpus, 'train'))
    assert {'h1/histogram', 'h1/mean', 'h1/stddev', 'h1/min', 'h1/max',
            'h1/gradients/histogram', 'h1/gradients/mean',
            'bidirectional_rnn/fw/basic_lstm_cell/kernel/mean'} <= tags
    tagged = [event.tagged_run_metadata.tag
              for path in glob.glob(os.path.join(folder, 'events*'))
              for event in tf.train.summary_iterator(path)
              if event.HasField('tagged_run_metadata')]
    assert len(tagged) == 3


def test_archive_without_git_runs_and_has_no_revision(corpus, tmp_path):
    copy = tmp_path / 'archive'
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns(
        '.git', '__pycache__', 'digits', 'tests', 'images', 'logs', 'export', '.venv'))
    run = run_deepspeech(corpus, epochs=1, script=str(copy / 'DeepSpeech.py'), fresh=True)
    assert run.returncode == 0, run.stdout
    context = newest_hyper(corpus)['context']
    assert context['git_hash'] is None and context['git_branch'] is None


def test_notebooks_checkpoint_is_restored(corpus):
    geometry = dict(n_hidden=None, n_context=2, n_hidden_1=32, n_hidden_2=30, n_hidden_5=28,
                    n_cell_dim=24)
    shutil.copytree(os.path.join(PROJECT, 'tests', 'data', 'seed_checkpoint'), corpus / 'ckpt')
    run = run_deepspeech(corpus, restore_checkpoint=1, epochs=16, export_dir='export', **geometry)
    assert run.returncode == 0, run.stdout
    assert 'restored ckpt/model.ckpt-14: 15 epochs done' in run.stdout
    assert started(run.stdout) == [16]


def test_ldc93s1_of_2016_gives_the_reference_loss(tmp_path):
    data = os.path.join(PROJECT, '..', 'shared', 'data', 'ldc93s1')
    if not os.path.exists(os.path.join(data, 'LDC93S1.wav')):
        pytest.skip('LDC93S1 is not here')
    run = run_deepspeech(
        tmp_path, importer='ldc93s1', dataset_path=data, n_hidden=None, n_context=2,
        n_hidden_1=32, n_hidden_2=30, n_hidden_5=28, n_cell_dim=24, restore_checkpoint=1,
        epochs=0, checkpoint_dir=os.path.join(PROJECT, 'tests', 'data', 'seed_checkpoint'))
    loss = re.search(r'^Test: loss ([\d.]+)', run.stdout, re.M).group(1)
    assert float(loss) == pytest.approx(684.89, abs=0.005)


def test_a_terminal_gets_a_progress_bar(corpus):
    pty = pytest.importorskip('pty')
    primary, secondary = pty.openpty()
    environment = dict(os.environ, **{'ds_' + k: v for k, v in dict(
        importer='csv', train_files='train.csv', test_files='test.csv', n_hidden='16', epochs='1',
        batch_size='2', checkpoint_dir='ckpt', cache_dir='cache').items()})
    process = subprocess.Popen([sys.executable, os.path.join(PROJECT, 'DeepSpeech.py')],
                               cwd=corpus, env=environment, stdout=secondary, stderr=secondary)
    os.close(secondary)
    shown, deadline = b'', time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            part = os.read(primary, 4096)
        except OSError:
            break
        shown += part
    assert process.wait() == 0
    assert b'train |' in shown and b'3/3' in shown and b'to go' in shown
