"""Fisher English, parts 1 and 2: telephone conversations of strangers, 1,960 hours.

Layout, below `ds_dataset_path` at any depth:
    fe_03_p1_sph1/audio/000/fe_03_00001.sph       (LDC2004S13; LDC2005S13: fe_03_p2_sph...)
    fe_03_p1_tran/data/trans/000/fe_03_00001.txt  (LDC2004T19; LDC2005T19: fe_03_p2_tran)
A line of a transcript, times in seconds; speaker A is on the first channel, B on the second:
    12.34 15.67 A: and so i said [laughter] (( that ))
The words between (( and )) are a guess, so an utterance with them is excluded. Partial words
("th-") stay, as they were spoken. As there is no official split, of every hundred conversations
the last is for the test and the one before it for validation.

The files are sold with shorten compression, which libsndfile does not read: convert each to a WAV
or FLAC of both channels beside it or in its place (sph2pipe -f wav IN.sph OUT.wav).
Licence: LDC's. Size: 8 kHz, two channels of mu-law, 11,699 files. Address: catalog.ldc.upenn.edu
"""

import re

from util import config as settings, importers, records
from util.corpora import corpus_files, stm

CORPUS = 'Fisher English'
HOW_TO_GET = (
    'it is never downloaded: buy LDC2004S13 and LDC2005S13 (speech, folders '
    'fe_03_p1_sph1 and so on), LDC2004T19 and LDC2005T19 (transcripts, folders '
    'fe_03_p1_tran and fe_03_p2_tran) from catalog.ldc.upenn.edu and put their folders '
    'there'
)
FORM = '<start> <stop> <A or B>: <words>'
NAME = r'(fe_03_\d+)'

_LINE = re.compile(r'(\S+)\s+(\S+)\s+([AB])\s*:\s*(.*)')
_MARKUP = re.compile(r'\[{1,9}[^][]*\]{1,9}|<[^<>]*>')

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the corpus in `config.dataset_path`.

    Raises:
      DataError: all of the speech or all of the transcripts are missing.
    """
    folder = corpus_files.require_folder(config.dataset_path, CORPUS, HOW_TO_GET)
    recordings = stm.find_recordings(folder, NAME)
    transcripts = stm.find_by_name(folder, '.txt', NAME)
    stm.require_both(recordings, transcripts, folder, CORPUS, HOW_TO_GET)
    return stm.list_conversations(folder, recordings, transcripts, parse_line)


def parse_line(line: str, recording: str) -> stm.Part | None:
    """Returns the Part that a line of a recording's transcript stands for; None for a comment.

    Raises:
      ValueError: the line is not of the corpus's form.
    """
    if line.startswith('#'):
        return None
    match = _LINE.fullmatch(line)
    if not match:
        raise stm.unexpected(line, FORM)
    start, stop, speaker, words = match.groups()
    reason = 'uncertain words: %s' % words if '((' in words or '))' in words else None
    return stm.Part(
        recording, *stm.parse_times(start, stop), remove_markup(words), 'AB'.index(speaker), reason
    )


def remove_markup(words: str) -> str:
    """Returns the words that were spoken, without [laughter] and other noises."""
    return ' '.join(_MARKUP.sub(' ', words).split())
