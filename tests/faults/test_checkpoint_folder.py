"""Checkpoint folders of real runs: names with characters of patterns, the lock, what killed runs
leave."""

import os
import re

import pytest

from runs import checksums, losses, run_deepspeech, started

pytestmark = pytest.mark.run

# A run that ends within seconds
QUICK = dict(n_hidden=8, beam_width=1, display_step=0, dropout_rate=0, test_files='')


def index_files(folder):
    """The names of the checkpoints in a folder, by their numbers."""
    names = [name[:-6] for name in os.listdir(folder) if name.endswith('.index')]
    return sorted(names, key=lambda name: int(name.rpartition('-')[2]))


# Names


def test_a_folder_with_brackets_in_its_name_leaves_the_one_it_could_stand_for_alone(corpus):
    """run[2] is a pattern that run2 fits."""
    assert run_deepspeech(corpus, checkpoint_dir='run2', epochs=2, **QUICK).returncode == 0
    before = checksums(corpus / 'run2'), checksums(corpus / 'run2' / 'best')
    values = dict(QUICK, checkpoint_dir='run[2]', test_files='test.csv')
    first = run_deepspeech(corpus, epochs=6, **values)
    assert len(losses(first)) == 6
    assert index_files(corpus / 'run[2]') == ['model.ckpt-%d' % n for n in (6, 9, 12, 15, 18)]
    second = run_deepspeech(corpus, epochs=7, restore_checkpoint=1, export_dir='ex[1]', **values)
    assert started(second.stdout) == [7]
    assert 'run[2]/best/model.ckpt-' in second.stdout.partition('Testing the weights')[2]
    assert (checksums(corpus / 'run2'), checksums(corpus / 'run2' / 'best')) == before
    third = run_deepspeech(corpus, epochs=1, init_from='run[2]', **dict(values, checkpoint_dir='c'))
    assert re.search(r'^ +h1 .* loaded$', third.stdout, re.M), third.stdout


def test_any_name_will_do(corpus):
    name = 'w*x?[1]\\ my "own", it\'s n\u00e4me\n'
    values = dict(QUICK, checkpoint_dir=name, logs_dir='l' + name, cache_dir='c' + name)
    assert run_deepspeech(corpus, epochs=1, **values).returncode == 0
    second = run_deepspeech(corpus, epochs=2, restore_checkpoint=1, **values)
    assert second.returncode == 0 and started(second.stdout) == [2], second.stdout
