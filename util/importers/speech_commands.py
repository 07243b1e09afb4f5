"""Speech Commands, v0.01 and v0.02: single words of one second, many speakers, 16 kHz.

Layout: WORD/SPEAKER_nohash_N.wav, where the folder's name is the transcript; validation_list.txt
and testing_list.txt are the official split by speaker, what they don't list is for training:
    bed/0c40e715_nohash_0.wav
_background_noise_ holds no words and is left out, as is every folder whose name begins so.
Licence: CC BY 4.0. Size: 2.4 GB packed, 105,829 utterances of 35 words (v0.02, which is fetched).
Address: download.tensorflow.org/data/speech_commands_v0.02.tar.gz
"""
import os

from util import records
from util.corpora import corpus_files, download
from util.feeding import data_sets as data_sets_module

RELEASE = 'speech_commands_v0.02'  # folder of what is fetched; the archive has none
ARCHIVE = ('http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz', 2428923189,
           '6b74f3901214cb2c2934e98196829835')
DEV_LIST, TEST_LIST = 'validation_list.txt', 'testing_list.txt'
NO_WORDS = ('_', '.')


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the corpus in `dataset_path`."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing of the corpus, which is fetched where there is none of it.

    Args:
      dataset_path: the folder of the words, or one that holds speech_commands_v0.02.
      config: Config, not needed.
    Raises:
      DataError: the corpus can't be had, or a list is missing.
    """
    del config
    folder, cut = _have(dataset_path), len(os.path.join(dataset_path, ''))
    rest = {utterance.wav_filename: utterance for word in _words(folder)
            for utterance in _list_word(os.path.join(folder, word), cut)}
    dev, test = [_take_listed(folder, name, cut, rest) for name in (DEV_LIST, TEST_LIST)]
    return records.Listing(list(rest.values()), dev, test)


def _have(dataset_path):
    """The folder of the words, after a download where there is none."""
    folder = os.path.join(dataset_path, RELEASE)
    if os.path.isdir(folder) or not _words(dataset_path):
        download.fetch_corpus(folder, TEST_LIST, [download.Archive(*ARCHIVE)])
        return folder
    return dataset_path


def _words(folder):
    """Names of the folders that hold a word's utterances, sorted."""
    if not os.path.isdir(folder):
        return []
    return sorted(entry.name for entry in os.scandir(folder)
                  if entry.is_dir() and not entry.name.startswith(NO_WORDS))


def _list_word(folder, cut):
    return [records.Utterance(path, path[cut:], os.path.basename(folder))
            for path in corpus_files.find_files(folder, '.wav')]


def _take_listed(folder, list_name, cut, rest):
    """Utterances that a list names, in its order.

    Args:
      folder: folder of the list.
      list_name: the list's name.
      cut: characters of a path before the name of an utterance.
      rest: {path: Utterance}, from which they are taken out.
    """
    utterances = []
    for line in corpus_files.read_lines(os.path.join(folder, list_name)):
        path = os.path.join(folder, line.strip())
        missing = records.Utterance(path, path[cut:], None, 'no such file, but a line for it in '
                                    + list_name)
        utterances.append(rest.pop(path, missing))
    return utterances
