"""LDC93S1: one TIMIT utterance, the smallest set that trains end to end.

LDC93S1.txt is one line, "<first sample> <last sample> <transcript>":
    0 46797 She had your dark suit in greasy wash water all year.
Licence: LDC's free sample. Size: 92 kB. Address: catalog.ldc.upenn.edu/LDC93S1
"""
import os

from util import audio, errors, records
from util.corpora import download
from util.feeding import data_sets as data_sets_module

BASE_URL = 'https://catalog.ldc.upenn.edu/desc/addenda/'
NAME = 'LDC93S1'


def read_data_sets(dataset_path, config, alphabet):
    """DataSets whose three sets are the same utterance."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing with the utterance in each set.

    The files in `dataset_path` are used; those that are missing are downloaded into it.

    Raises:
      DataError: a file that can't be had or isn't what its name says.
    """
    del config
    wav, txt = (_have(dataset_path, NAME + ending) for ending in ('.wav', '.txt'))
    try:
        audio.audio_info(wav)
    except audio.AudioError as error:
        raise errors.DataError('%s: %s; remove it to download it anew' % (wav, error)) from None
    utterances = [records.Utterance(wav, wav, read_transcript(txt))]
    return records.Listing(utterances, utterances, utterances)


def read_transcript(path):
    """The words of a file "<first sample> <last sample> <words>"."""
    try:
        with open(path, encoding='utf-8-sig') as file:
            parts = file.read().split(maxsplit=2)
    except (OSError, UnicodeDecodeError) as error:
        raise errors.DataError('%s cannot be read: %s' % (path, error)) from None
    if len(parts) < 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        raise errors.DataError('%s must hold "<first sample> <last sample> <words>"' % path)
    return parts[2]


def _have(folder, name):
    """Path of the file, after a download where it isn't there yet."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        download.download(BASE_URL + name, path)
    return path
