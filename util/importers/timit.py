"""TIMIT: 630 speakers of eight American dialects, each reading ten sentences.

Layout: TIMIT/{TRAIN,TEST}/DRn/SPEAKER/SENTENCE.{WAV,TXT}, in either case; the audio is SPHERE at
16 kHz, or WAV; some copies hold WAV beside it, as SA1.WAV.wav, which is used then. A .TXT:
    0 46797 She had your dark suit in greasy wash water all year.
The sentences sa1 and sa2, which everyone reads, are left out unless `ds_timit_sa` is on.
The core test set (24 speakers) is for the test, the other TEST speakers for validation; these
share sentences, but none with TRAIN. Where TEST has no core speaker or no other (parts of the
corpus, trees of one's own), all of it is for the test, and one TRAIN speaker in ten for
validation.
Licence: LDC user agreement. Size: 6,300 utterances, 5.4 h, 630 MB.
Address: catalog.ldc.upenn.edu/LDC93S1 (never fetched)
"""
import os
import re

from util import errors, records
from util.corpora import corpus_files
from util.feeding import data_sets as data_sets_module
from util.importers import ldc93s1

HOW_TO_GET = 'it can be had from catalog.ldc.upenn.edu/LDC93S1 (LDC93S1) and is never fetched'
CORE_TEST = frozenset('''
    mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0
    mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0'''.split())
SENTENCE = re.compile(r's[aix]\d+')
DEV_EVERY = 10  # TRAIN speakers


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the corpus in `dataset_path`."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing of the corpus; `dataset_path` holds TRAIN and TEST, or TIMIT with them.

    Raises:
      DataError: there is no such folder.
    """
    root = _root(dataset_path)
    train, test = (_read_tree(corpus_files.find_file(root, name), dataset_path, config.timit_sa)
                   for name in ('train', 'test'))
    speakers = {_speaker(utterance) for utterance in test}
    if speakers & CORE_TEST and speakers - CORE_TEST:
        dev, test = _split(test, speakers - CORE_TEST)
    else:
        everyone = sorted({_speaker(utterance) for utterance in train})
        dev, train = _split(train, everyone[DEV_EVERY - 1::DEV_EVERY])
    return records.Listing(train, dev, test)


def _split(utterances, speakers):
    """(those of these speakers, those of the others)."""
    return ([utterance for utterance in utterances if _speaker(utterance) in speakers],
            [utterance for utterance in utterances if _speaker(utterance) not in speakers])


def _speaker(utterance):
    return os.path.basename(os.path.dirname(utterance.wav_filename)).lower()


def _root(dataset_path):
    """The folder that holds TRAIN or TEST."""
    folder = corpus_files.require_folder(dataset_path, 'TIMIT', HOW_TO_GET)
    while not (corpus_files.find_file(folder, 'train') or corpus_files.find_file(folder, 'test')):
        folder = corpus_files.find_file(folder, 'timit') or corpus_files.find_file(folder, 'data')
        if not (folder and os.path.isdir(folder)):
            raise errors.DataError('%s (ds_dataset_path) holds neither TRAIN nor TEST of TIMIT; '
                                    '%s' % (dataset_path, HOW_TO_GET))
    return folder


def _read_tree(tree, dataset_path, with_sa):
    """Utterances below TRAIN or TEST, in the order of their paths; none where tree is None."""
    sentences = {}
    for path in corpus_files.find_files(tree, '.wav', '.txt') if tree else ():
        name = os.path.basename(path).split('.')[0].lower()
        if SENTENCE.fullmatch(name) and (with_sa or not name.startswith('sa')):
            sentences.setdefault((os.path.dirname(path), name), []).append(path)
    return [_utterance(paths, dataset_path) for _, paths in sorted(sentences.items())]


def _utterance(paths, dataset_path):
    """Utterance of a sentence's files: one or more with audio, one with the transcript."""
    audio_paths = [path for path in paths if path.lower().endswith('.wav')]
    texts = [path for path in paths if path not in audio_paths]
    transcript, problem = '', None
    if not texts:
        reason = 'no transcript (.TXT) beside it'
    else:
        try:
            transcript = ldc93s1.read_transcript(texts[0])
        except errors.DataError as error:
            reason = str(error)
    if not audio_paths:
        reason = 'no audio (.WAV) beside it'
    path = max(audio_paths, key=_is_riff) if len(audio_paths) > 1 else (audio_paths or texts)[0]
    return records.Utterance(path, os.path.relpath(path, dataset_path), transcript, reason)


def _is_riff(path):
    try:
        with open(path, 'rb') as file:
            return file.read(4) == b'RIFF'
    except OSError:
        return False
