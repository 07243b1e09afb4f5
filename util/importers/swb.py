"""Switchboard-1 release 2: telephone conversations, 260 hours, with the Mississippi State
transcripts (MS98).

Layout, below `ds_dataset_path` at any depth:
    swb1_d1/data/sw02001.sph                                     (LDC97S62)
    swb_ms98_transcriptions/20/2001/sw2001A-ms98-a-trans.text    (openslr.org/5)
A line of a transcript, "<id> <start> <stop> <words>", times in seconds; speaker A is on the first
channel, B on the second:
    sw2001A-ms98-a-0004 4.180000 9.440000 hi um [laughter-yeah] i'd li[ke]- [noise] like to talk
Markup is treated as in most published recipes, so that results compare: see `remove_markup`. As
there is no official split, of every hundred conversations the last is for the test and the one
before it for validation; a speaker may take part in several conversations.

If the files have shorten compression, which libsndfile does not read, convert each to a WAV or
FLAC of both channels beside it or in its place (sph2pipe -f wav IN.sph OUT.wav).
Licence: LDC's; transcripts are free. Size: 14 GB, 8 kHz, two channels of mu-law. Address:
catalog.ldc.upenn.edu/LDC97S62
"""

import re

from util import config as settings, importers, records
from util.corpora import corpus_files, stm

CORPUS = 'Switchboard-1'
HOW_TO_GET = (
    'it is never downloaded: buy LDC97S62 (speech, folders swb1_d1 to swb1_d4) from '
    'catalog.ldc.upenn.edu, get the transcripts (folder swb_ms98_transcriptions) from '
    'openslr.org/5, and put these folders there'
)
FORM = 'sw<conversation><A or B>-ms98-a-<number> <start> <stop> <words>'

_LINE = re.compile(r'sw(\d{4})([AB])-\S*\s+(\S+)\s+(\S+)(?:\s+(.*))?', re.IGNORECASE)
_LAUGHED = re.compile(r'^(-?)\[laughter-(.+)\](-?)$', re.IGNORECASE)
_MISPRONOUNCED = re.compile(r'^\[?(.+)/.+\](-?)$')
_UNSPOKEN = re.compile(r'<[^<>]*>|\[[^][]*\]|(?<=\w)_\d+|[{}]')

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the corpus in `config.dataset_path`.

    Raises:
      DataError: all of the speech or all of the transcripts are missing.
    """
    folder = corpus_files.require_folder(config.dataset_path, CORPUS, HOW_TO_GET)
    recordings = stm.find_recordings(folder, r'sw0?(\d{4})')
    transcripts = stm.find_by_name(folder, '-ms98-a-trans.text', r'sw(\d{4})[ab]')
    stm.require_both(recordings, transcripts, folder, CORPUS, HOW_TO_GET)
    return stm.list_conversations(folder, recordings, transcripts, parse_line)


def parse_line(line: str, recording: str) -> stm.Part | None:
    """Returns the Part that a line of a recording's transcript stands for; None for a stretch
    without words.

    Raises:
      ValueError: the line is not of the corpus's form.
    """
    match = _LINE.fullmatch(line)
    if not match or match.group(1) != recording:
        raise stm.unexpected(line, FORM)
    _, side, start, stop, words = match.groups()
    spoken = remove_markup(words or '')
    if words and not spoken:
        return None
    return stm.Part(recording, *stm.parse_times(start, stop), spoken, 'AB'.index(side.upper()))


def remove_markup(words: str) -> str:
    """Returns the words of a transcript that were spoken.

    [laughter-yes] becomes "yes". [bemember/remember] becomes "bemember", which is what was said.
    The bracketed letters of a partial word were not said, so "th[ey]-" becomes "th-" (and
    `text.clean_transcript` makes it "th"). {yuppiedom} and them_1 are plain words. [noise] and
    <b_aside> are dropped.
    """
    return ' '.join(filter(None, map(_spoken, words.split())))


def _spoken(word):
    """Returns what was spoken of one word, which may be nothing."""
    if word.isalpha():  # nearly all words are: this makes the listing three times as fast
        return word
    word = _LAUGHED.sub(r'\1\2\3', word)
    word = _MISPRONOUNCED.sub(r'\1\2', word)
    return _UNSPOKEN.sub('', word)
