"""Fisher English, parts 1 and 2: telephone conversations of strangers, 1,960 hours.

Layout, below `ds_dataset_path` at any depth:
    fe_03_p1_sph1/audio/000/fe_03_00001.sph       (LDC2004S13; LDC2005S13: fe_03_p2_sph...)
    fe_03_p1_tran/data/trans/000/fe_03_00001.txt  (LDC2004T19; LDC2005T19: fe_03_p2_tran)
A line of a transcript, times in seconds, speaker A on the first channel, B on the second:
    12.34 15.67 A: and so i said [laughter] (( that ))
What lies between (( and )) is a guess, so the utterance is excluded. Partial words ("th-") stay:
they were spoken. As there is no official split, of every hundred conversations the last is for
the test, the one before it for validation.

The files are bought with shorten compression, which libsndfile doesn't read: convert each to a
WAV or FLAC of both channels beside it or in its place (sph2pipe -f wav IN.sph OUT.wav).
Licence: LDC's. Size: 8 kHz, two channels of mu-law, 11,699 files. Address: catalog.ldc.upenn.edu
"""
import re

from util import files, records
from util.corpora import corpus_files, stm
from util.feeding import data_sets as data_sets_module

CORPUS = 'Fisher English'
HOW_TO_GET = ('it is never downloaded: buy LDC2004S13 and LDC2005S13 (speech, folders '
              'fe_03_p1_sph1 and so on), LDC2004T19 and LDC2005T19 (transcripts, folders '
              'fe_03_p1_tran and fe_03_p2_tran) from catalog.ldc.upenn.edu and put their folders '
              'there')
FORM = '<start> <stop> <A or B>: <words>'
NAME = r'(fe_03_\d+)'

_LINE = re.compile(r'(\S+)\s+(\S+)\s+([AB])\s*:\s*(.*)')
_MARKUP = re.compile(r'\[+[^][]*\]+|<[^<>]*>')


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the corpus in `dataset_path`."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing of the corpus in `dataset_path`.

    Raises:
      DataError: speech or transcripts are missing altogether.
    """
    del config
    corpus_files.require_folder(dataset_path, CORPUS, HOW_TO_GET)
    recordings = stm.find_recordings(dataset_path, NAME)
    transcripts = stm.find_by_name(dataset_path, '.txt', NAME)
    stm.require_both(recordings, transcripts, dataset_path, CORPUS, HOW_TO_GET)
    return stm.list_conversations(dataset_path, recordings, transcripts, parse_line)


def parse_line(line, recording):
    """stm.Part of a line; None for comments."""
    if line.startswith('#'):
        return None
    match = _LINE.fullmatch(line)
    if not match:
        raise stm.unexpected(line, FORM)
    start, stop, speaker, words = match.groups()
    reason = 'uncertain words: %s' % words if '((' in words or '))' in words else None
    return stm.Part(recording, *stm.parse_times(start, stop), remove_markup(words),
                    'AB'.index(speaker), reason)


def remove_markup(words):
    """The words that were spoken, without [laughter] and other noises."""
    return ' '.join(_MARKUP.sub(' ', words).split())
