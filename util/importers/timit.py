"""TIMIT: 630 speakers of eight American dialects, each reading ten sentences.

Layout: TIMIT/{TRAIN,TEST}/DRn/SPEAKER/SENTENCE.{WAV,TXT}, in upper or lower case. The audio is
SPHERE or WAV at 16 kHz; if a copy of the corpus holds WAV files beside SPHERE ones
(SA1.WAV.wav), the WAV files are used. A .TXT:
    0 46797 She had your dark suit in greasy wash water all year.
The sentences sa1 and sa2, which everyone reads, are left out unless `ds_timit_sa` is on.
The core test set (24 speakers) is for the test, the other TEST speakers are for validation. The
two have sentences in common, but none with TRAIN. If all TEST speakers belong to the core
test set, or none does (parts of the corpus, other corpora in its layout), all of TEST is for the
test, and one TRAIN speaker in ten for validation.
Licence: LDC user agreement. Size: 6,300 utterances, 5.4 h, 630 MB.
Address: catalog.ldc.upenn.edu/LDC93S1. It is never downloaded.
"""

import os
import re

from util import config as settings, errors, files, importers, records
from util.corpora import corpus_files

HOW_TO_GET = 'it can be had from catalog.ldc.upenn.edu/LDC93S1 (LDC93S1) and is never fetched'
CORE_TEST = frozenset(
    """
    mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0
    mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0""".split()
)
SENTENCE = re.compile(r's[aix]\d+')
DEV_EVERY = 10  # TRAIN speakers

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the corpus.

    `config.dataset_path` is the folder of TRAIN and TEST, or the one that holds it as TIMIT.

    Raises:
      DataError: there is no such folder.
    """
    root = _root(config.dataset_path)
    train, test = (
        _read_tree(corpus_files.find_file(root, name), config) for name in ('train', 'test')
    )
    speakers = {_speaker(utterance) for utterance in test}
    if speakers & CORE_TEST and speakers - CORE_TEST:
        dev, test = _split(test, speakers - CORE_TEST)
    else:
        everyone = sorted({_speaker(utterance) for utterance in train})
        dev, train = _split(train, everyone[DEV_EVERY - 1 :: DEV_EVERY])
    return records.Listing(train, dev, test)


def _split(utterances, speakers):
    """Returns the utterances of these speakers, and those of the others."""
    return (
        [utterance for utterance in utterances if _speaker(utterance) in speakers],
        [utterance for utterance in utterances if _speaker(utterance) not in speakers],
    )


def _speaker(utterance):
    """Returns the name of the speaker's folder, in lower case."""
    return os.path.basename(os.path.dirname(utterance.wav_filename)).lower()


def _root(dataset_path):
    """Returns the folder that holds TRAIN or TEST."""
    folder = corpus_files.require_folder(dataset_path, 'TIMIT', HOW_TO_GET)
    while not (corpus_files.find_file(folder, 'train') or corpus_files.find_file(folder, 'test')):
        folder = corpus_files.find_file(folder, 'timit') or corpus_files.find_file(folder, 'data')
        if not (folder and os.path.isdir(folder)):
            raise errors.DataError(
                '%s (ds_dataset_path) holds neither TRAIN nor TEST of TIMIT; '
                '%s' % (dataset_path, HOW_TO_GET)
            )
    return folder


def _read_tree(tree, config):
    """Returns the utterances of TRAIN or TEST, in the order of their paths.

    Args:
      tree: path of TRAIN or TEST; None if there is no such folder.
      config: Config.
    """
    sentences = {}
    for path in corpus_files.find_files(tree, '.wav', '.txt') if tree else ():
        name = os.path.basename(path).split('.')[0].lower()
        if SENTENCE.fullmatch(name) and (config.timit_sa or not name.startswith('sa')):
            sentences.setdefault((os.path.dirname(path), name), []).append(path)
    return [_utterance(paths, config.dataset_path) for _, paths in sorted(sentences.items())]


def parse_transcript(path: str) -> str:
    """Returns the words of a .TXT file, which holds "<first sample> <last sample> <words>".

    Raises:
      DataError: the file cannot be read or holds something else.
    """
    try:
        with files.open_regular(path, encoding='utf-8-sig') as file:
            parts = file.read().split(maxsplit=2)
    except (OSError, UnicodeDecodeError) as error:
        raise errors.DataError('%s cannot be read: %s' % (path, error)) from None
    if len(parts) < 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        raise errors.DataError('%s must hold "<first sample> <last sample> <words>"' % path)
    return parts[2]


def _utterance(paths, dataset_path):
    """Returns the utterance of a sentence's files: the transcript's and one or more of audio."""
    audio_paths = [path for path in paths if path.lower().endswith('.wav')]
    texts = [path for path in paths if path not in audio_paths]
    transcript, reason = '', None
    if not texts:
        reason = 'no transcript (.TXT) beside it'
    else:
        try:
            transcript = parse_transcript(texts[0])
        except errors.DataError as error:
            reason = str(error)
    if not audio_paths:
        reason = 'no audio (.WAV) beside it'
    path = max(audio_paths, key=_is_riff) if len(audio_paths) > 1 else (audio_paths or texts)[0]
    return records.Utterance(path, os.path.relpath(path, dataset_path), transcript, reason)


def _is_riff(path):
    """Tells whether a file is a WAV file; SPHERE files may have the ending .WAV, too."""
    try:
        with files.open_regular(path, mode='rb') as file:
            return file.read(4) == b'RIFF'
    except OSError:
        return False
