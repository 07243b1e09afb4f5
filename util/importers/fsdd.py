"""Free Spoken Digit Dataset: the ten English digits, spoken by a few people many times.

Layout: recordings/{digit}_{speaker}_{take}.wav at 8 kHz; the name is the transcript:
    recordings/7_jackson_32.wav
The official split: takes 0 to 4 are the test; takes 5 to 9 are for validation here. Or some
speakers are held out (`ds_fsdd_test_speakers`, `ds_fsdd_dev_speakers`): all their takes are for
the test or validation. Held-out test speakers take the place of the takes 0 to 4, held-out dev
speakers that of the takes 5 to 9.
Licence: CC BY-SA 4.0. Size: 3,000 utterances, 6 speakers, 22 minutes, 20 MB.
Address: github.com/Jakobovski/free-spoken-digit-dataset
"""
import os
import re

from util import errors, records
from util.corpora import corpus_files, download
from util.feeding import data_sets as data_sets_module

ARCHIVES = [download.Archive('https://github.com/Jakobovski/free-spoken-digit-dataset/archive/'
                             'refs/heads/master.zip', None, None)]
UNPACKED = os.path.join('free-spoken-digit-dataset-master', 'recordings')
WORDS = 'zero one two three four five six seven eight nine'.split()
NAME = re.compile(r'(\d)_(.+)_(\d+)\.wav', re.IGNORECASE)  # digit, speaker, take
TEST_TAKES, DEV_TAKES = range(0, 5), range(5, 10)


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the corpus in `dataset_path`."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing of the corpus; `dataset_path` is its folder, or `recordings` itself.

    Raises:
      DataError: a held-out speaker who isn't there, or the corpus can't be fetched.
    """
    paths = corpus_files.find_files(_recordings(dataset_path), '.wav')
    matches = [NAME.fullmatch(os.path.basename(path)) for path in paths]
    held_out = _held_out(config, {match[2] for match in matches if match})
    listing = records.Listing([], [], [])
    for path, match in zip(paths, matches):
        name = os.path.relpath(path, dataset_path)
        if match:
            getattr(listing, _set_of(match[2], int(match[3]), held_out)).append(
                records.Utterance(path, name, WORDS[int(match[1])]))
        else:
            listing.train.append(records.Utterance(
                path, name, '', 'the name is not of the form {digit}_{speaker}_{take}.wav'))
    return listing


def _recordings(dataset_path):
    """The folder with the WAV files, fetched where it isn't there."""
    beside = os.path.join(dataset_path, 'recordings')
    if os.path.isdir(beside):
        return beside
    if os.path.isdir(dataset_path) and any(map(NAME.fullmatch, os.listdir(dataset_path))):
        return dataset_path
    download.fetch_corpus(dataset_path, UNPACKED, ARCHIVES)
    return os.path.join(dataset_path, UNPACKED)


def _held_out(config, known):
    """{'test': names, 'dev': names} of the settings, empty where one isn't set."""
    held_out = {}
    for set_name in ('test', 'dev'):
        setting = 'fsdd_%s_speakers' % set_name
        names = {name.strip() for name in getattr(config, setting).split(',')} - {''}
        if names - known:
            raise errors.DataError('ds_%s: no speaker %s in FSDD, expected some of %s' % (
                setting, ', '.join(sorted(names - known)), ', '.join(sorted(known))))
        held_out[set_name] = names
    both = held_out['test'] & held_out['dev']
    if both:
        raise errors.DataError('ds_fsdd_test_speakers and ds_fsdd_dev_speakers must differ, both '
                                'name %s' % ', '.join(sorted(both)))
    return held_out


def _set_of(speaker, take, held_out):
    """'train', 'dev' or 'test'."""
    for set_name in ('test', 'dev'):
        if speaker in held_out[set_name]:
            return set_name
    if take in TEST_TAKES and not held_out['test']:
        return 'test'
    return 'dev' if take in DEV_TAKES and not held_out['dev'] else 'train'
