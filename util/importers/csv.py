"""Manifests: any corpus whose utterances are listed in files.

A manifest is comma-separated, in UTF-8, with the columns wav_filename, wav_filesize (not needed)
and transcript; the paths of audio files are relative to the manifest:
    wav_filename,wav_filesize,transcript
    clips/0001.wav,64044,well then
A manifest whose name ends in .json or .jsonl has an object on each line. With "offset" the
utterance is the part of the file that begins there and lasts "duration", both in seconds; without
"offset" it is the whole file:
    {"audio_filepath": "clips/0001.wav", "duration": 2.0, "text": "well then"}
`ds_train_files`, `ds_dev_files` and `ds_test_files` name one or more manifests each, with commas
between.
"""

import os

from util import config as settings, importers, records
from util.corpora import manifests

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the manifests that the settings name.

    Raises:
      DataError: a manifest is missing or cannot be used.
    """
    return records.Listing(
        *[_read_set(getattr(config, set_name + '_files'), config) for set_name in records.SET_NAMES]
    )


def _read_set(names, config):
    """Returns the utterances of a comma-separated list of manifests."""
    paths = [path.strip() for path in names.split(',')]
    return [
        utterance
        for path in paths
        if path
        for utterance in manifests.read_manifest(_find(path, config))
    ]


def _find(path, config):
    """Returns the path of a manifest, which is in the working folder or in the corpus's folder.

    The working folder comes first. With several corpora, the corpus's folder comes first, as each
    may have a manifest of the same name.
    """
    beside = os.path.join(config.dataset_path, path)
    first, second = (path, beside) if len(config.importers) == 1 else (beside, path)
    return second if not os.path.exists(first) and os.path.exists(second) else first
