"""LDC93S1: one TIMIT utterance, the smallest set that trains end to end.

LDC93S1.txt has the form of TIMIT, "<first sample> <last sample> <transcript>":
    0 46797 She had your dark suit in greasy wash water all year.
Licence: LDC's free sample. Size: 92 kB. Address: catalog.ldc.upenn.edu/LDC93S1
"""

import os

from util import audio, config as settings, errors, importers, records
from util.corpora import download
from util.importers import timit

BASE_URL = 'https://catalog.ldc.upenn.edu/desc/addenda/'
NAME = 'LDC93S1'

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the same utterance in all three sets.

    Its files are downloaded into `config.dataset_path` if they are missing there.

    Raises:
      DataError: a file cannot be downloaded, or is not what its name says.
    """
    wav, txt = (_fetched(config.dataset_path, NAME + ending) for ending in ('.wav', '.txt'))
    try:
        audio.audio_info(wav)
    except audio.AudioError as error:
        raise errors.DataError('%s: %s; remove it to download it again' % (wav, error)) from None
    utterances = [records.Utterance(wav, wav, timit.parse_transcript(txt))]
    return records.Listing(utterances, utterances, utterances)


def _fetched(folder, name):
    """Returns the path of a file, which is downloaded if it is missing."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        download.download(BASE_URL + name, path)
    return path
