"""Runs that go on with another dev set: which weights are the best is decided on the new one."""

import math
import re

import pytest

from helpers import write_manifest
from runs import epochs, final_line, run_deepspeech, started, weights_of

pytestmark = pytest.mark.run

OTHER = [('wav/good7.wav', 'fine weather'), ('wav/good8.wav', 'last one')]
VALUES = dict(dropout_rate=0, learning_rate=0.004)


def best(out):
    """Returns the path of the tested checkpoint."""
    return re.search(r'^Testing the weights best by dev .*, (\S+)$', out, re.M).group(1)


@pytest.mark.parametrize('more', [{}, {'num_tries': 2, 'go_back': 1}])
def test_the_best_weights_are_measured_on_the_new_dev_set(corpus, more):
    write_manifest(corpus / 'easy.csv', [('wav/good0.wav', 'one two')])
    first = run_deepspeech(corpus, dev_files='easy.csv', epochs=3, **VALUES)
    assert best(first.stdout) == 'ckpt/best/model.ckpt-9'
    before = weights_of(corpus / 'ckpt')
    measured = run_deepspeech(corpus, init_from='ckpt', epochs=0, checkpoint_dir='none')

    write_manifest(corpus / 'dev.csv', OTHER)
    values = dict(VALUES, restore_checkpoint=1, epochs=5, **more)
    run = run_deepspeech(corpus, **values)
    assert run.returncode == 0, run.stdout
    [line] = re.findall(r'^the dev set is another one than before.*$', run.stdout, re.M)
    old, new = re.findall(r'loss \(([\d.]+)\)', line)
    assert old == epochs(first.stdout, 'dev')[-1] and 'ckpt/best/model.ckpt-9' in line
    assert 'Test: loss %s' % new in measured.stdout  # the test set has the same two utterances
    assert started(run.stdout) == [4, 5]
    assert best(run.stdout) == 'ckpt/best/model.ckpt-15'
    after = weights_of(corpus / 'ckpt')
    assert 0 < after['run_state/dev_set'] != before['run_state/dev_set'] > 0

    again = run_deepspeech(corpus, **values)
    assert 'the dev set is another one' not in again.stdout
    assert final_line(again.stdout) == final_line(run.stdout)


def test_the_old_best_stays_the_best_where_it_is_better_on_the_new_set(corpus):
    run_deepspeech(corpus, epochs=2, **VALUES)
    write_manifest(corpus / 'dev.csv', OTHER)
    values = {**VALUES, 'restore_checkpoint': 1, 'learning_rate': 0.1}
    worse = run_deepspeech(corpus, epochs=3, **values)
    [new] = re.findall(r'on this one it has dev loss \(([\d.]+)\)$', worse.stdout, re.M)
    assert float(epochs(worse.stdout, 'dev')[0]) > float(new)
    assert best(worse.stdout) == 'ckpt/best/model.ckpt-6'
    again = run_deepspeech(corpus, epochs=3, **values)  # the figures in the checkpoints differ
    assert best(again.stdout) == 'ckpt/best/model.ckpt-6'


def test_without_a_validation_the_newest_weights_are_tested(corpus):
    run_deepspeech(corpus, epochs=2, **VALUES)
    write_manifest(corpus / 'dev.csv', OTHER)
    run = run_deepspeech(corpus, epochs=3, restore_checkpoint=1, validation_step=0, **VALUES)
    assert 'it is not compared with what follows' in run.stdout
    assert 'Testing the weights of epoch 3' in run.stdout
    assert math.isinf(weights_of(corpus / 'ckpt')['run_state/best_dev_loss'])
