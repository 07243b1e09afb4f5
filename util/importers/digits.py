"""Digits: strings of 1 to 5 English digit words, spoken by espeak-ng; comes with the project.

Layout: train.csv, dev.csv, test.csv and FLAC files of 16 kHz in data/digits. A row:
    train/en-us+m3_0007.flac,21533,four nine zero
Licence: CC0. Size: 8 MB. The script data/digits/make_digits.py made it.
"""

import os

from util import config as settings, importers, records
from util.corpora import manifests

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the corpus in `config.dataset_path`.

    Raises:
      DataError: a manifest is missing or cannot be used.
    """
    return records.Listing(
        *[
            manifests.read_manifest(os.path.join(config.dataset_path, name + '.csv'))
            for name in records.SET_NAMES
        ]
    )
