"""Digits: strings of 1 to 5 English digit words, spoken by espeak-ng; comes with the project.

Layout: train.csv, dev.csv, test.csv and FLAC files of 16 kHz in data/digits. A row:
    train/en-us+m3_0007.flac,21533,four nine zero
Licence: CC0. Size: 8 MB. Made by data/digits/make_digits.py.
"""
import os

from util import records
from util.feeding import data_sets as data_sets_module
from util.importers import csv


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the corpus in `dataset_path`."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing of the corpus in `dataset_path`."""
    del config
    return records.Listing(*[csv.read_manifest(os.path.join(dataset_path, name + '.csv'))
                             for name in records.SET_NAMES])
