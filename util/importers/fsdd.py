"""Free Spoken Digit Dataset: the ten English digits, spoken by a few people many times.

Layout: recordings/{digit}_{speaker}_{take}.wav at 8 kHz; the name is the transcript:
    recordings/7_jackson_32.wav
In the official split the takes 0 to 4 are the test; here the takes 5 to 9 are for validation.
Alternatively, speakers are held out (`ds_fsdd_test_speakers`, `ds_fsdd_dev_speakers`): all their
takes are for the test or for validation. Held-out test speakers replace the takes 0 to 4, held-out
dev speakers replace the takes 5 to 9.
Licence: CC BY-SA 4.0. Size: 3,000 utterances, 6 speakers, 22 minutes, 20 MB.
Address: github.com/Jakobovski/free-spoken-digit-dataset
"""

import os
import re

from util import config as settings, errors, importers, records
from util.corpora import corpus_files, fetch

ARCHIVES = [
    fetch.Archive(
        'https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/heads/master.zip'
    )
]
UNPACKED = os.path.join('free-spoken-digit-dataset-master', 'recordings')
WORDS = 'zero one two three four five six seven eight nine'.split()
NAME = re.compile(r'(\d)_(.+)_(\d+)\.wav', re.IGNORECASE)  # digit, speaker, take
TEST_TAKES, DEV_TAKES = range(5), range(5, 10)

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the corpus, which is downloaded if it is missing.

    `config.dataset_path` is the folder of the corpus, or its folder `recordings`.

    Raises:
      DataError: the corpus has no such speaker to hold out, or it cannot be downloaded.
    """
    paths = corpus_files.find_files(_recordings(config.dataset_path), '.wav')
    matches = [NAME.fullmatch(os.path.basename(path)) for path in paths]
    held_out = _held_out(config, {match[2] for match in matches if match})
    listing = records.Listing([], [], [])
    for path, match in zip(paths, matches):
        name = os.path.relpath(path, config.dataset_path)
        if match:
            getattr(listing, _set_of(match[2], int(match[3]), held_out)).append(
                records.Utterance(path, name, WORDS[int(match[1])])
            )
        else:
            listing.train.append(
                records.Utterance(
                    path, name, '', 'the name is not of the form {digit}_{speaker}_{take}.wav'
                )
            )
    return listing


def _recordings(dataset_path):
    """Returns the folder of the WAV files, which are downloaded if they are missing."""
    beside = os.path.join(dataset_path, 'recordings')
    if os.path.isdir(beside):
        return beside
    if os.path.isdir(dataset_path) and any(map(NAME.fullmatch, os.listdir(dataset_path))):
        return dataset_path
    fetch.fetch_corpus(dataset_path, UNPACKED, ARCHIVES)
    return os.path.join(dataset_path, UNPACKED)


def _held_out(config, known):
    """Returns {'test': names, 'dev': names} of the speakers that the settings hold out.

    Args:
      config: Config.
      known: the names of all speakers.
    """
    held_out = {}
    for set_name in ('test', 'dev'):
        setting = 'fsdd_%s_speakers' % set_name
        names = {name.strip() for name in getattr(config, setting).split(',')} - {''}
        if names - known:
            raise errors.DataError(
                'ds_%s: no speaker %s in FSDD, expected some of %s'
                % (setting, ', '.join(sorted(names - known)), ', '.join(sorted(known)))
            )
        held_out[set_name] = names
    both = held_out['test'] & held_out['dev']
    if both:
        raise errors.DataError(
            'ds_fsdd_test_speakers and ds_fsdd_dev_speakers must differ, both '
            'name %s' % ', '.join(sorted(both))
        )
    return held_out


def _set_of(speaker, take, held_out):
    """Returns the name of the set to which a take of a speaker belongs."""
    for set_name in ('test', 'dev'):
        if speaker in held_out[set_name]:
            return set_name
    if take in TEST_TAKES and not held_out['test']:
        return 'test'
    return 'dev' if take in DEV_TAKES and not held_out['dev'] else 'train'
