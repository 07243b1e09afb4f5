"""Speech Commands, v0.01 and v0.02: single words of one second, many speakers, 16 kHz.

Layout: WORD/SPEAKER_nohash_N.wav, where the folder's name is the transcript; validation_list.txt
and testing_list.txt are the official split by speaker, and files in neither are for training:
    bed/0c40e715_nohash_0.wav
_background_noise_ holds no words and is left out, as is every folder whose name begins with
_ or with a dot.
Licence: CC BY 4.0. Size: 2.4 GB packed, 105,829 utterances of 35 words (v0.02, which is
downloaded). Address: download.tensorflow.org/data/speech_commands_v0.02.tar.gz
"""

import os

from util import config as settings, importers, records
from util.corpora import corpus_files, fetch

RELEASE = 'speech_commands_v0.02'  # folder to unpack into, as the archive holds no folder
ARCHIVES = [
    fetch.Archive(
        'http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz',
        2428923189,
        '6b74f3901214cb2c2934e98196829835',
    )
]
DEV_LIST, TEST_LIST = 'validation_list.txt', 'testing_list.txt'
NO_WORDS = ('_', '.')  # how the names of folders without words begin

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the corpus, which is downloaded if it is missing.

    `config.dataset_path` is the folder of the words, or one that holds speech_commands_v0.02.

    Raises:
      DataError: the corpus cannot be downloaded, or a list is missing.
    """
    folder = _words_folder(config.dataset_path)
    cut = len(os.path.join(config.dataset_path, ''))
    rest = {
        utterance.wav_filename: utterance
        for word in _words(folder)
        for utterance in _list_word(os.path.join(folder, word), cut)
    }
    dev, test = [_take_listed(folder, name, cut, rest) for name in (DEV_LIST, TEST_LIST)]
    return records.Listing(list(rest.values()), dev, test)


def _words_folder(dataset_path):
    """Returns the folder that holds the words; the corpus is downloaded if it is missing."""
    folder = os.path.join(dataset_path, RELEASE)
    if os.path.isdir(folder) or not _words(dataset_path):
        fetch.fetch_corpus(folder, TEST_LIST, ARCHIVES)
        return folder
    return dataset_path


def _words(folder):
    """Returns the words, sorted; each is the name of the folder with its utterances."""
    if not os.path.isdir(folder):
        return []
    return sorted(
        entry.name
        for entry in os.scandir(folder)
        if entry.is_dir() and not entry.name.startswith(NO_WORDS)
    )


def _list_word(folder, cut):
    """Returns the utterances of one word; `cut` is as in `_take_listed`."""
    return [
        records.Utterance(path, path[cut:], os.path.basename(folder))
        for path in corpus_files.find_files(folder, '.wav')
    ]


def _take_listed(folder, list_name, cut, rest):
    """Returns the utterances that a list names, in its order, and removes them from `rest`.

    Args:
      folder: folder of the list and of the words.
      list_name: name of the list's file.
      cut: number of characters of an audio file's path before the utterance's name.
      rest: {path: Utterance}.
    """
    utterances = []
    for line in corpus_files.read_lines(os.path.join(folder, list_name)):
        path = os.path.join(folder, line.strip())
        missing = records.Utterance(
            path, path[cut:], None, 'no such file, but a line for it in ' + list_name
        )
        utterances.append(rest.pop(path, missing))
    return utterances
