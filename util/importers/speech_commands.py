"""Speech Commands, v0.01 and v0.02: single words of one second, many speakers, 16 kHz.

Layout: WORD/SPEAKER_nohash_N.wav, where the folder's name is the transcript; validation_list.txt
and testing_list.txt are the official split by speaker, what they don't list is for training:
    bed/0c40e715_nohash_0.wav
_background_noise_ holds no words and is left out, as is every folder that begins so.
Licence: CC BY 4.0. Size: 2.3 GB, 105,829 utterances of 35 words (v0.02, which is fetched).
Address: download.tensorflow.org/data/speech_commands_v0.02.tar.gz
"""
import os

from util import corpus, download, feeding

ARCHIVE = ('http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz', 2428923189,
           '6b74f3901214cb2c2934e98196829835')
DEV_LIST, TEST_LIST = 'validation_list.txt', 'testing_list.txt'
NO_WORDS = ('_', '.')


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the corpus in `dataset_path`."""
    return feeding.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """feeding.Listing of the corpus, which is fetched where there is none of it.

    Args:
      dataset_path: the folder of the words.
      config: Config, not needed.
    Raises:
      DataError: the corpus can't be had, or a list is missing.
    """
    del config
    lists = [os.path.join(dataset_path, name) for name in (DEV_LIST, TEST_LIST)]
    words = _words(dataset_path)
    if words and not all(map(os.path.exists, lists)):  # another edition: nothing to unpack over
        raise feeding.DataError('Speech Commands in %s has no %s or no %s, the official split; '
                                'they belong beside the folders of the words'
                                % (dataset_path, DEV_LIST, TEST_LIST))
    download.fetch_corpus(dataset_path, TEST_LIST, [download.Archive(*ARCHIVE)])
    rest = {utterance.name: utterance for word in words or _words(dataset_path)
            for utterance in _list_word(dataset_path, word)}
    dev, test = [_take_listed(path, rest) for path in lists]
    return feeding.Listing(list(rest.values()), dev, test)


def _words(dataset_path):
    """Names of the folders that hold a word's utterances, sorted."""
    if not os.path.isdir(dataset_path):
        return []
    return sorted(entry.name for entry in os.scandir(dataset_path)
                  if entry.is_dir() and not entry.name.startswith(NO_WORDS))


def _list_word(dataset_path, word):
    return [feeding.Utterance(path, '%s/%s' % (word, os.path.basename(path)), word)
            for path in corpus.find_files(os.path.join(dataset_path, word), '.wav')]


def _take_listed(path, rest):
    """Utterances that a list names, in its order; they are taken out of {name: Utterance}."""
    utterances = []
    for name in corpus.read_lines(path):
        name = name.strip()
        wav_filename = os.path.join(os.path.dirname(path), name)
        missing = feeding.Utterance(wav_filename, name, None, 'no such file, but a line for it in '
                                    + os.path.basename(path))
        utterances.append(rest.pop(name, missing))
    return utterances
