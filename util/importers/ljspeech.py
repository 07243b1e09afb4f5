"""LJ Speech: 24 hours of one voice that reads non-fiction, 22.05 kHz.

Layout: LJSpeech-1.1/metadata.csv and LJSpeech-1.1/wavs/LJ001-0001.wav. A line is the utterance,
its text, and the text with numbers and abbreviations written out; "|" between, no quoting:
    LJ001-0009|in the 42-line Bible of about 1455,|in the forty-two line Bible of about ...,
There is no official split: of every 20 lines the last is for the test, of every 20 others the
last for validation.
Licence: public domain. Size: 2.7 GB packed, 13,100 utterances.
Address: keithito.com/LJ-Speech-Dataset
"""
import os

from util import records
from util.corpora import corpus_files, download
from util.feeding import data_sets as data_sets_module

HOME, METADATA = 'LJSpeech-1.1', 'metadata.csv'
ARCHIVE = ('https://data.keithito.com/data/speech/LJSpeech-1.1.tar.bz2', 2748572632,
           'c4763be9595ddfa79c2fc6eaeb3b6c8e')
DEV_EVERY = TEST_EVERY = 20


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the corpus in `dataset_path`."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing of the corpus, which is fetched where it isn't there.

    Args:
      dataset_path: the folder of metadata.csv or the one that holds it.
      config: Config, not needed.
    Raises:
      DataError: the corpus can't be had.
    """
    del config
    path = _have(dataset_path)
    cut = len(os.path.join(os.path.abspath(dataset_path), ''))
    return corpus_files.split_by_position([_utterance(line, number, os.path.dirname(path), cut) for
                                     number, line in enumerate(corpus_files.read_lines(path), 1)],
                                    DEV_EVERY, TEST_EVERY)


def _have(dataset_path):
    """Path of metadata.csv, after a download where it isn't there yet."""
    above, below = os.path.abspath(dataset_path), os.path.join(HOME, METADATA)
    if os.path.basename(above) == HOME and not os.path.isdir(os.path.join(above, HOME)):
        above = os.path.dirname(above)
    elif os.path.exists(os.path.join(above, METADATA)):
        below = METADATA
    download.fetch_corpus(above, below, [download.Archive(*ARCHIVE)])
    return os.path.join(above, below)


def _utterance(line, number, folder, cut):
    """Utterance of the number-th line; its name is the path of its audio from `cut` on."""
    utterance_id, *texts = [field.strip() for field in line.split('|')]
    wav_filename, problem = os.path.join(folder, 'wavs', utterance_id + '.wav'), None
    if len(texts) not in (1, 2) or not utterance_id:
        reason = ('line %d of %s must be utterance|text or utterance|text|text in words, got %r'
                   % (number, METADATA, line))
    transcript = next((text for text in reversed(texts) if text), '')
    return records.Utterance(wav_filename, wav_filename[cut:], transcript, reason)
