"""LibriSpeech: 1,000 hours of LibriVox audio books, read English, 16 kHz FLAC.

Layout: LibriSpeech/SUBSET/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NNNN.flac, and in each chapter's folder
SPEAKER-CHAPTER.trans.txt with a line for each utterance:
    84-121123-0000 GO DO YOU HEAR
`ds_librivox_train`, `ds_librivox_dev` and `ds_librivox_test` name the subsets; named subsets that
are missing are downloaded. Two small ones come from Mini LibriSpeech.
Licence: CC BY 4.0. Size: 61 GB packed, 292,367 utterances. Address: openslr.org/12, openslr.org/31
"""

import itertools
import os

from util import config as settings, errors, importers, records
from util.corpora import corpus_files, fetch

HOME = 'LibriSpeech'  # the folder in each archive
RESOURCES = 'https://www.openslr.org/resources/'
# Resource of openslr.org, bytes, and MD5 as its md5sum.txt states it
ARCHIVES = {
    'train-clean-100': (12, 6387309499, '2a93770f6d5c6c964bc36631d331a522'),
    'train-clean-360': (12, 23049477885, 'c0e676e450a7ff2f54aeade5171606fa'),
    'train-other-500': (12, 30593501606, 'd1a0fd59409feb2c614ce4d30c387708'),
    'dev-clean': (12, 337926286, '42e2234ba48799c1f50f24a7926300a1'),
    'dev-other': (12, 314305928, 'c8d0bcc9cca99d4f8b62fcc847357931'),
    'test-clean': (12, 346663984, '32fa31d27d2e1cad72775fee3f4849a9'),
    'test-other': (12, 328757843, 'fb5a50374b501bb3bac4815ee91d3135'),
    'train-clean-5': (31, 332954390, '5df7d4e78065366204ca6845bb08f490'),
    'dev-clean-2': (31, 126046265, '6d7ab67ac6a1d2c993d050e16d61080d'),
}
AUDIO, TRANSCRIPTS = '.flac', '.trans.txt'

read_data_sets = importers.reader(__name__)


def list_utterances(config: settings.Config) -> records.Listing:
    """Lists the utterances of the subsets that the settings name.

    `config.dataset_path` is the folder LibriSpeech or the one that holds it.

    Raises:
      DataError: a subset is unknown or cannot be downloaded.
    """
    names = [_subset_names(config, set_name) for set_name in records.SET_NAMES]
    listed = {
        subset: _list_subset(_subset_folder(config.dataset_path, subset), config.dataset_path)
        for subset in dict.fromkeys(itertools.chain(*names))
    }
    return records.Listing(
        *[[utterance for subset in subsets for utterance in listed[subset]] for subsets in names]
    )


def _subset_names(config, set_name):
    """Returns the names of the subsets that make up a set, without repetitions."""
    setting = getattr(config, 'librivox_' + set_name)
    subsets = list(dict.fromkeys(name.strip() for name in setting.split(',') if name.strip()))
    for subset in subsets:
        if subset not in ARCHIVES:
            raise errors.DataError(
                'ds_librivox_%s must name subsets of LibriSpeech (%s), got %r'
                % (set_name, ', '.join(ARCHIVES), subset)
            )
    return subsets


def _subset_folder(dataset_path, subset):
    """Returns the folder of a subset, which is downloaded if it is missing."""
    above, below = dataset_path, os.path.join(HOME, subset)
    if not os.path.isdir(os.path.join(dataset_path, HOME)):
        if os.path.basename(os.path.abspath(dataset_path)) == HOME:
            above = os.path.dirname(os.path.abspath(dataset_path))
        elif os.path.isdir(os.path.join(dataset_path, subset)):
            below = subset
    resource, size_bytes, md5 = ARCHIVES[subset]
    url = '%s%d/%s.tar.gz' % (RESOURCES, resource, subset)
    try:
        fetch.fetch_corpus(above, below, [fetch.Archive(url, size_bytes, md5)])
        return corpus_files.require_folder(
            os.path.join(above, below), subset, 'its archive is ' + url
        )
    except errors.DataError as error:
        raise errors.DataError(
            'LibriSpeech subset %s is not available: %s' % (subset, error)
        ) from None


def _list_subset(folder, dataset_path):
    """Returns the utterances of a subset, in the order of its transcripts; files without a
    transcript come last."""
    cut = len(os.path.join(os.path.abspath(dataset_path), ''))  # os.path.relpath is slow
    files = corpus_files.find_files(os.path.abspath(folder), AUDIO, TRANSCRIPTS)
    audio = {path[: -len(AUDIO)]: path for path in files if path.lower().endswith(AUDIO)}
    chapters = [path for path in files if path.lower().endswith(TRANSCRIPTS)]
    if not chapters:
        raise errors.DataError(
            'LibriSpeech subset %s holds no %s files; remove it to fetch it '
            'again' % (folder, TRANSCRIPTS)
        )
    utterances = [utterance for path in chapters for utterance in _list_chapter(path, audio, cut)]
    transcribed = {utterance.wav_filename for utterance in utterances}
    return utterances + [
        records.Utterance(path, path[cut:], None, 'no line for it in a %s file' % TRANSCRIPTS)
        for path in audio.values()
        if path not in transcribed
    ]


def _list_chapter(path, audio, cut):
    """Returns the utterances of one chapter.

    Args:
      path: path of the file with its transcripts.
      audio: {path without its ending: path} of the subset's audio.
      cut: number of characters of an audio file's path before the utterance's name.
    """
    try:
        lines = corpus_files.read_lines(path)
    except errors.DataError as error:
        return [records.Utterance(path, path[cut:], None, str(error))]
    utterances, seen = [], set()
    for line in lines:
        utterance_id, *transcript = line.split(maxsplit=1)
        stem = os.path.join(os.path.dirname(path), utterance_id)
        reason = None
        if stem not in audio:
            reason = 'no such file, but a line for it in %s' % path[cut:]
        elif stem in seen:
            reason = 'a second line for it in %s' % path[cut:]
        seen.add(stem)
        wav_filename = audio.get(stem, stem + AUDIO)
        utterances.append(
            records.Utterance(
                wav_filename, wav_filename[cut:], ''.join(transcript).rstrip(), reason
            )
        )
    return utterances
