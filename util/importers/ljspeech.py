"""LJ Speech: 24 hours of one voice that reads non-fiction, 22.05 kHz.

Layout: LJSpeech-1.1/metadata.csv and LJSpeech-1.1/wavs/LJ001-0001.wav. A line is the utterance,
its text, and the text with numbers and abbreviations written out, separated by "|" without quotes:
    LJ001-0009|in the 42-line Bible of about 1455,|in the forty-two line Bible of about ...,
There is no official split: of every 20 lines the last is for the test, of every 20 others the
last for validation.
Licence: public domain. Size: 2.7 GB packed, 13,100 utterances.
Address: keithito.com/LJ-Speech-Dataset
"""

import os

from util import config as settings, importers, records
from util.corpora import corpus_files, fetch

HOME, METADATA = 'LJSpeech-1.1', 'metadata.csv'
ARCHIVES = [
    fetch.Archive(
        'https://data.keithito.com/data/speech/LJSpeech-1.1.tar.bz2',
        2748572632,
        'c4763be9595ddfa79c2fc6eaeb3b6c8e',
    )
]
DEV_EVERY = TEST_EVERY = 20

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the corpus, which is downloaded if it is missing.

    `config.dataset_path` is the folder of metadata.csv, or the one that holds it.

    Raises:
      DataError: the corpus cannot be downloaded.
    """
    path = _metadata_path(config.dataset_path)
    cut = len(os.path.join(os.path.abspath(config.dataset_path), ''))
    utterances = [
        _utterance(line, number, os.path.dirname(path), cut)
        for number, line in enumerate(corpus_files.read_lines(path), 1)
    ]
    return records.Listing(*corpus_files.split_by_position(utterances, DEV_EVERY, TEST_EVERY))


def _metadata_path(dataset_path):
    """Returns the path of metadata.csv; the corpus is downloaded if it is missing."""
    above, below = os.path.abspath(dataset_path), os.path.join(HOME, METADATA)
    if os.path.basename(above) == HOME and not os.path.isdir(os.path.join(above, HOME)):
        above = os.path.dirname(above)
    elif os.path.exists(os.path.join(above, METADATA)):
        below = METADATA
    fetch.fetch_corpus(above, below, ARCHIVES)
    return os.path.join(above, below)


def _utterance(line, number, folder, cut):
    """Returns the utterance of a line of metadata.csv.

    Args:
      line: text of the line.
      number: number of the line, from 1.
      folder: folder of metadata.csv.
      cut: number of characters of the audio file's path before the utterance's name.
    """
    utterance_id, *texts = [field.strip() for field in line.split('|')]
    wav_filename, reason = os.path.join(folder, 'wavs', utterance_id + '.wav'), None
    if len(texts) not in (1, 2) or not utterance_id:
        reason = 'line %d of %s must be utterance|text or utterance|text|text in words, got %r' % (
            number,
            METADATA,
            line,
        )
    elif corpus_files.leads_out(utterance_id):
        wav_filename = os.path.join(folder, METADATA)
        reason = 'line %d leads out of the corpus: %.200r' % (number, utterance_id)
    transcript = next((text for text in reversed(texts) if text), '')
    return records.Utterance(wav_filename, wav_filename[cut:], transcript, reason)
