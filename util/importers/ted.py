"""TED-LIUM release 2: TED talks, 207 hours, English.

Layout: TEDLIUM_release2/{train,dev,test}/{sph,stm}/TALK.{sph,stm}; `ds_dataset_path` is this
folder or the one that holds it. The folder `legacy` of release 3 has the same layout and can be
read too. A line of an STM, "<talk> <channel> <speaker> <start> <stop> <label> <words>":
    AlGore_2009 1 AlGore_2009 17.82 28.81 <o,f0,male> last year i(2) showed <unk> that it 's
Licence: CC BY-NC-ND 3.0. Size: 35 GB packed, 16 kHz SPHERE. Address: openslr.org/19
"""

import os
import re

from util import config as settings, errors, importers, records
from util.corpora import corpus_files, fetch, stm

RELEASE = 'TEDLIUM_release2'
ARCHIVES = [fetch.Archive('https://www.openslr.org/resources/19/TEDLIUM_release2.tar.gz')]
FORM = '<talk> <channel> <speaker> <start> <stop> <label> <words>'
NOT_SPOKEN = 'ignore_time_segment_in_scoring'

# Talk and speaker may hold spaces; the label is dropped with the other markup. All but the words is
# of bounded length, since the time for a line of another form grows with a power of it.
_LINE = re.compile(
    r'(\S.{0,150}?)\s{1,9}(?:\d{1,9}|[A-Z])\s{1,9}[^<]{1,150}?'
    r'\s{1,9}(-?[\d.]{1,20})\s{1,9}(-?[\d.]{1,20})(?:\s+(.*))?'
)
_MARKUP = re.compile(r'<[^<>]*>|\{[^{}]*\}|\[[^][]*\]|\([^()]*\)')
_SPLIT = re.compile(r"(?<=\w)\s+(['\u2019](?:s|t|re|ve|ll|d|m))(?!\w)", re.IGNORECASE)
_SPLIT_PLURAL = re.compile(r"(?<=s)\s+(['\u2019])(?!\S)", re.IGNORECASE)

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the corpus, which is downloaded if it is missing.

    Raises:
      DataError: the corpus cannot be downloaded, or its folder holds none of its sets.
    """
    folder = _release_folder(config.dataset_path)
    sets = [corpus_files.find_file(folder, name) for name in records.SET_NAMES]
    listing = records.Listing(
        *[_list_set(path, config.dataset_path) if path else [] for path in sets]
    )
    if not any(listing):
        raise errors.DataError(
            '%s holds no {train,dev,test}/{sph,stm} of TED-LIUM; remove it to '
            'download it again' % folder
        )
    return listing


def _release_folder(dataset_path):
    """Returns the folder that holds train, dev and test; the corpus is downloaded if it is
    missing."""
    for folder in (dataset_path, os.path.join(dataset_path, 'legacy')):
        if any(os.path.isdir(os.path.join(folder, name, 'stm')) for name in records.SET_NAMES):
            return folder
    fetch.fetch_corpus(dataset_path, RELEASE, ARCHIVES)
    return os.path.join(dataset_path, RELEASE)


def _list_set(folder, dataset_path):
    """Returns the utterances of one set, which lies in `folder`."""
    recordings = stm.find_recordings(folder, '(.+)')
    utterances = [
        utterance
        for path in corpus_files.find_files(folder, '.stm')
        for utterance in stm.list_parts(path, dataset_path, recordings, parse_line)
    ]
    return utterances + stm.unused(recordings, utterances, dataset_path)


def parse_line(line: str) -> stm.Part | None:
    """Returns the Part that a line stands for; None for a comment or a segment that must not be
    scored.

    Raises:
      ValueError: the line is not of the corpus's form.
    """
    if line.startswith(';;') or NOT_SPOKEN in line:
        return None
    match = _LINE.fullmatch(line)
    if not match:
        raise stm.unexpected(line, FORM)
    talk, start, stop, words = match.groups()
    return stm.Part(talk, *stm.parse_times(start, stop), remove_markup(words or ''))


def remove_markup(words: str) -> str:
    """Returns the words that were spoken.

    The label, noises, unknown words and the numbers of pronunciations are dropped; "it 's"
    becomes "it's".
    """
    words = _SPLIT.sub(r'\1', _MARKUP.sub(' ', words))
    return ' '.join(_SPLIT_PLURAL.sub(r'\1', words).split())
