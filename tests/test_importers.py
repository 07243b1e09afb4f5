"""util.importers: what all importers offer, and what several together read."""

import importlib
import inspect
import pkgutil

import pytest

from helpers import load_config, speech, write_manifest, write_wav
from util import importers, text
from util.importers import csv as csv_importer


@pytest.mark.parametrize(
    'name', [module.name for module in pkgutil.iter_modules(importers.__path__)]
)
def test_each_importer_offers_the_same_two_functions(name):
    importer = importlib.import_module('util.importers.' + name)
    for function, parameters in (
        (importer.list_utterances, ['config']),
        (importer.read_data_sets, ['config', 'alphabet']),
    ):
        assert list(inspect.signature(function).parameters) == parameters


@pytest.mark.parametrize(
    'importer, weights',
    (('digits', ''), ('csv', ''), ('nothing', ''), ('digits,csv', ''), ('digits,csv', '1,2')),
)
def test_an_importer_reads_its_corpus_whatever_the_settings_name(tmp_path, importer, weights):
    write_wav(tmp_path / 'a.wav', speech(0.5))
    write_manifest(tmp_path / 'train.csv', [('a.wav', 'one')])
    config = load_config(
        dataset_path=tmp_path, train_files='train.csv', importer=importer, importer_weights=weights
    )
    sets = csv_importer.read_data_sets(config, text.Alphabet())
    assert [[example.utterance.name for example in data_set.examples] for data_set in sets] == [
        ['a.wav'],
        [],
        [],
    ]
    assert sets.train.examples[0].utterance.corpus is None and sets.stages == [sets.train]


def test_each_of_several_importers_reads_its_own_folder(tmp_path):
    for name in 'ab':
        write_wav(tmp_path / name / (name + '.wav'), speech(0.5))
        write_manifest(tmp_path / name / 'train.csv', [(name + '.wav', 'one')])
    config = load_config(
        importer='csv,csv',
        train_files='train.csv',
        dataset_path='%s, %s' % (tmp_path / 'a', tmp_path / 'b'),
    )
    sets = importers.read_data_sets(config, text.Alphabet())
    assert [example.utterance[:2] for example in sets.train.examples] == [
        (str(tmp_path / name / (name + '.wav')), name + '.wav') for name in 'ab'
    ]
    assert [example.utterance.corpus for example in sets.train.examples] == ['csv#1', 'csv#2']
