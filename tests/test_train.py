"""Whole runs of DeepSpeech.py: what a finished one says and writes, towers, seeds, logs."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from helpers import PROJECT
from runs import (
    epochs,
    events,
    final_line,
    newest_hyper,
    read_strict,
    run_deepspeech,
    run_together,
    sources,
    started,
)
from util.tf1 import tf

pytestmark = pytest.mark.run


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
    assert float(re.search(r'Test .*WER: ([\d.]+)', report).group(1)) == pytest.approx(
        wer, abs=1e-6
    )


def test_hyper_json_has_the_notebooks_structure(finished):
    content = newest_hyper(finished[0])
    assert set(content) == {'context', 'parameters', 'results'}
    assert set(content['context']) == {
        'time_started',
        'time_finished',
        'git_hash',
        'git_branch',
        'version',
        'ended',
        'epochs_done',
    }
    assert (content['context']['ended'], content['context']['epochs_done']) == ('complete', 2)
    assert content['parameters']['n_hidden_3'] == 64
    assert content['parameters']['n_character'] == 29
    assert content['parameters']['total_batches_train'] == 3
    assert content['parameters']['data_set']['name'] == 'csv'
    results = content['results']
    assert results['last_train_loss'] == pytest.approx(
        float(epochs(finished[1].stdout)[1]), abs=1e-5
    )
    assert results['test_wer'] >= 0 and results['test_cer'] >= 0 and results['duration'] > 0
    merged = open(finished[0] / 'logs' / 'hyper.js').read()
    assert read_strict(merged.split('=', 1)[1].strip().rstrip(';')) == [content]


def test_scalars_for_tensorboard(finished):
    common = {
        'loss',
        'label_error_rate',
        'wer',
        'cer',
        'audio_seconds_per_second',
        'feeding_wait_share',
    }
    train, dev, test = (events(finished[0], name) for name in ('train', 'dev', 'test'))
    assert set(train) == common | {'step_loss', 'learning_rate'}
    assert set(dev) == set(test) == common
    assert [step for step, _ in train['step_loss']] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in dev['loss']] == [3, 6]
    assert all(0 <= share < 1 for _, share in train['feeding_wait_share'])
    assert train['loss'][1][1] == pytest.approx(float(epochs(finished[1].stdout)[1]), rel=1e-6)


def test_checkpoint_holds_the_whole_state(finished):
    reader = tf.train.load_checkpoint(str(finished[0] / 'ckpt'))
    names = set(reader.get_variable_to_shape_map())
    weights = {'b1', 'h1', 'b2', 'h2', 'b3', 'h3', 'b5', 'h5', 'b6', 'h6'} | {
        'bidirectional_rnn/%s/basic_lstm_cell/%s' % (d, k)
        for d in ('fw', 'bw')
        for k in ('kernel', 'bias')
    }
    slots = {name + slot for name in weights for slot in ('/Adam', '/Adam_1')}
    assert weights | slots | {'beta1_power', 'beta2_power', 'global_step'} <= names
    assert reader.get_tensor('global_step') == 6
    assert reader.get_tensor('run_state/epoch') == 2
    assert all(np.isfinite(reader.get_tensor(name)).all() for name in names)


def test_each_utterance_once_an_epoch_with_any_number_of_towers(corpus):
    for run in run_together(
        corpus,
        *[
            dict(epochs=1, towers=towers, train_batch_size=1, checkpoint_dir='ckpt%d' % towers)
            for towers in (1, 2, 3)
        ],
    ):
        assert run.returncode == 0, run.stdout
        report = run.stdout.split('Training loss')[1].split('Validation loss')[0]
        assert sorted(sources(report)) == [
            'blue sky',
            'go home now',
            'one two',
            'the red door',
            'we all sleep',
        ]


def test_two_towers_train_as_one_with_twice_the_batch(corpus):
    settings = dict(dropout_rate=0, epochs=2, validation_step=0)
    one, two = run_together(
        corpus,
        dict(settings, train_batch_size=4, checkpoint_dir='one'),
        dict(settings, train_batch_size=2, towers=2, checkpoint_dir='two'),
    )
    assert [float(loss) for loss in epochs(two.stdout)] == pytest.approx(
        [float(loss) for loss in epochs(one.stdout)], rel=1e-6
    )


def test_fewer_utterances_than_the_batch_holds(corpus):
    for name, rows in (('train', 3), ('dev', 1), ('test', 1)):
        lines = (corpus / (name + '.csv')).read_text().splitlines()[: 1 + rows]
        (corpus / (name + '.csv')).write_text('\n'.join(lines) + '\n')
    run = run_deepspeech(corpus, train_batch_size=16, dev_batch_size=16, test_batch_size=16)
    assert run.returncode == 0, run.stdout
    report = run.stdout.split('Training loss')[1].split('Validation loss')[0]
    losses = [float(loss) for loss in re.findall(r'loss: +([\d.]+)', report)]
    assert len(losses) == 3
    assert float(epochs(run.stdout)[0]) == pytest.approx(np.mean(losses), rel=1e-5)
    assert os.path.exists(corpus / 'ckpt' / 'model.ckpt-2.index')


def test_same_seed_same_figures_another_seed_others(corpus):
    settings = dict(dropout_rate=0.2, batch_order='shuffled')
    one, two, other = run_together(
        corpus,
        *[
            dict(settings, checkpoint_dir=name, random_seed=seed)
            for name, seed in (('a', 7), ('b', 7), ('c', 8))
        ],
    )
    assert epochs(one.stdout) == epochs(two.stdout)
    assert final_line(one.stdout) == final_line(two.stdout)
    assert epochs(one.stdout) != epochs(other.stdout)


def test_dropout_is_off_in_tests(resumable):
    with_dropout, without = (
        run_deepspeech(resumable, restore_checkpoint=1, epochs=0, dropout_rate=rate)
        for rate in (0.9, 0)
    )
    assert final_line(with_dropout.stdout) == final_line(without.stdout)


@pytest.mark.skipif(not tf.config.list_physical_devices('GPU'), reason='needs a GPU')
def test_accelerated_ctc_has_the_same_losses(corpus):
    plain = run_deepspeech(corpus, dropout_rate=0, checkpoint_dir='plain')
    fast = run_deepspeech(corpus, dropout_rate=0, checkpoint_dir='fast', use_warpctc=1)
    assert [float(loss) for loss in epochs(fast.stdout)] == pytest.approx(
        [float(loss) for loss in epochs(plain.stdout)], rel=1e-4
    )


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
    assert {
        'h1/histogram',
        'h1/mean',
        'h1/stddev',
        'h1/min',
        'h1/max',
        'h1/gradients/histogram',
        'h1/gradients/mean',
        'bidirectional_rnn/fw/basic_lstm_cell/kernel/mean',
    } <= tags
    tagged = [
        event.tagged_run_metadata.tag
        for path in glob.glob(os.path.join(folder, 'events*'))
        for event in tf.train.summary_iterator(path)
        if event.HasField('tagged_run_metadata')
    ]
    assert len(tagged) == 3


def test_archive_without_git_runs_and_has_no_revision(corpus, tmp_path):
    copy = tmp_path / 'archive'
    shutil.copytree(
        PROJECT,
        copy,
        ignore=shutil.ignore_patterns(
            '.git', '__pycache__', 'digits', 'tests', 'images', 'logs', 'export', '.venv'
        ),
    )
    run = run_deepspeech(corpus, epochs=1, script=str(copy / 'DeepSpeech.py'), fresh=True)
    assert run.returncode == 0, run.stdout
    context = newest_hyper(corpus)['context']
    assert context['git_hash'] is None and context['git_branch'] is None


def test_ldc93s1_of_2016_gives_the_reference_loss(tmp_path, shared_data):
    data = shared_data('ldc93s1', 'LDC93S1.wav').parent
    run = run_deepspeech(
        tmp_path,
        importer='ldc93s1',
        dataset_path=data,
        n_hidden=None,
        n_context=2,
        n_hidden_1=32,
        n_hidden_2=30,
        n_hidden_5=28,
        n_cell_dim=24,
        restore_checkpoint=1,
        epochs=0,
        checkpoint_dir=os.path.join(PROJECT, 'tests', 'data', 'seed_checkpoint'),
    )
    loss = re.search(r'^Test: loss ([\d.]+)', run.stdout, re.M).group(1)
    assert float(loss) == pytest.approx(684.89, abs=0.005)


def test_a_terminal_gets_a_progress_bar(corpus):
    pty = pytest.importorskip('pty')
    primary, secondary = pty.openpty()
    environment = dict(
        os.environ,
        **{
            'ds_' + k: v
            for k, v in dict(
                importer='csv',
                train_files='train.csv',
                test_files='test.csv',
                n_hidden='16',
                epochs='1',
                batch_size='2',
                checkpoint_dir='ckpt',
                cache_dir='cache',
            ).items()
        },
    )
    process = subprocess.Popen(
        [sys.executable, os.path.join(PROJECT, 'DeepSpeech.py')],
        cwd=corpus,
        env=environment,
        stdout=secondary,
        stderr=secondary,
    )
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
