"""TED-LIUM release 2: TED talks, 207 hours, English.

Layout: TEDLIUM_release2/{train,dev,test}/{sph,stm}/TALK.{sph,stm}; `ds_dataset_path` is the
folder above or that folder itself. The folder `legacy` of release 3 has the same layout and is
read too. A line of an STM, "<talk> <channel> <speaker> <start> <stop> <label> <words>":
    AlGore_2009 1 AlGore_2009 17.82 28.81 <o,f0,male> last year i(2) showed <unk> that it 's
Licence: CC BY-NC-ND 3.0. Size: 35 GB packed, 16 kHz SPHERE. Address: openslr.org/19
"""
import os
import re

from util import errors, records
from util.corpora import corpus_files, download, stm
from util.feeding import data_sets as data_sets_module

RELEASE = 'TEDLIUM_release2'
ARCHIVES = [download.Archive('https://www.openslr.org/resources/19/TEDLIUM_release2.tar.gz')]
FORM = '<talk> <channel> <speaker> <start> <stop> <label> <words>'
NOT_SPOKEN = 'ignore_time_segment_in_scoring'

# Talk and speaker may hold spaces; the label is dropped with the other markup.
_LINE = re.compile(r'(\S.*?)\s+(?:\d+|[A-Z])\s+[^<]+?\s+(-?[\d.]+)\s+(-?[\d.]+)(?:\s+(.*))?')
_MARKUP = re.compile(r'<[^<>]*>|\{[^{}]*\}|\[[^][]*\]|\([^()]*\)')
_SPLIT = re.compile(r"(?<=\w)\s+(['\u2019](?:s|t|re|ve|ll|d|m))(?!\w)", re.IGNORECASE)
_SPLIT_PLURAL = re.compile(r"(?<=s)\s+(['\u2019])(?!\S)", re.IGNORECASE)


def read_data_sets(dataset_path, config, alphabet):
    """DataSets of the corpus in `dataset_path`."""
    return data_sets_module.make_data_sets(config, alphabet, *list_utterances(dataset_path, config))


def list_utterances(dataset_path, config):
    """records.Listing of the corpus in `dataset_path`, which is downloaded where it is missing.

    Raises:
      DataError: it can't be had, or the folder holds none of its sets.
    """
    del config
    folder = _release_folder(dataset_path)
    sets = [corpus_files.find_file(folder, name) for name in records.SET_NAMES]
    listing = records.Listing(*[_list_set(path, dataset_path) if path else [] for path in sets])
    if not any(listing):
        raise errors.DataError('%s holds no {train,dev,test}/{sph,stm} of TED-LIUM; remove it to '
                                'download it anew' % folder)
    return listing


def _release_folder(dataset_path):
    """The folder with train, dev and test."""
    for folder in (dataset_path, os.path.join(dataset_path, 'legacy')):
        if any(os.path.isdir(os.path.join(folder, name, 'stm')) for name in records.SET_NAMES):
            return folder
    download.fetch_corpus(dataset_path, RELEASE, ARCHIVES)
    return os.path.join(dataset_path, RELEASE)


def _list_set(folder, dataset_path):
    recordings = stm.find_recordings(folder, '(.+)')
    utterances = [utterance for path in corpus_files.find_files(folder, '.stm')
                  for utterance in stm.list_parts(path, dataset_path, recordings, parse_line)]
    return utterances + stm.unused(recordings, utterances, dataset_path)


def parse_line(line):
    """stm.Part of a line; None for comments and what must not be scored."""
    if line.startswith(';;') or NOT_SPOKEN in line:
        return None
    match = _LINE.fullmatch(line)
    if not match:
        raise stm.unexpected(line, FORM)
    talk, start, stop, words = match.groups()
    return stm.Part(talk, *stm.parse_times(start, stop), remove_markup(words or ''))


def remove_markup(words):
    """The words that were spoken: without label, noises, unknown words and numbers of
    pronunciations; "it 's" becomes "it's"."""
    words = _SPLIT.sub(r'\1', _MARKUP.sub(' ', words))
    return ' '.join(_SPLIT_PLURAL.sub(r'\1', words).split())
