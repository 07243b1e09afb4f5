"""Time-marked transcripts: one line an utterance of a long recording, with its times and words.

What the importers of TED-LIUM, Fisher and Switchboard share; each has its own form of line.
"""
import collections
import functools
import math
import os
import re

from util import errors, records
from util.corpora import corpus_files

# The last that is there is used: SPHERE with shorten compression, which libsndfile doesn't read,
# may be converted beside its source.
AUDIO_ENDINGS = ('.sph', '.flac', '.wav')
SHOWN_CHARACTERS = 60  # of a line that can't be parsed

# A line: key of the recording (see `find_recordings`) in any case, times in seconds, transcript
# without the corpus's markup, channel from 0 or None, and why it can't be used
Part = collections.namedtuple('Part', 'recording start_s stop_s transcript channel exclusion_reason',
                              defaults=[None, None])


def find_by_name(folder, ending, name_pattern):
    """(key, path) of the files below a folder, sorted by name; each name counts once.

    Args:
      ending: of the names, such as '.txt'.
      name_pattern: regular expression of a name in lower case, without the ending; its group is
        the key.
    """
    paths = {os.path.basename(path).lower(): path
             for path in reversed(corpus_files.find_files(folder, ending))}
    matches = [(re.fullmatch(name_pattern, name[:-len(ending)]), path)
               for name, path in sorted(paths.items())]
    return [(match.group(1), path) for match, path in matches if match]


def find_recordings(folder, name_pattern):
    """{key: path} of the audio below a folder; as `find_by_name`."""
    return {key: path for ending in AUDIO_ENDINGS
            for key, path in find_by_name(folder, ending, name_pattern)}


@functools.lru_cache(maxsize=16)  # asked anew for every utterance of a recording
def _name(path, folder):
    """A path as a person would spell it."""
    return os.path.relpath(path, folder)


def list_parts(path, folder, recordings, parse_line):
    """Utterances of a transcript file, in its order; bad lines are among them, with a problem.

    Args:
      path: the transcript, UTF-8.
      folder: of the corpus; names in messages are relative to it.
      recordings: {key: path of the audio}.
      parse_line: takes a line without white space around it; returns its Part, or None where it
        is no utterance; raises ValueError with what is wrong.
    """
    name = _name(path, folder)
    try:
        # a byte that is not UTF-8 costs its line, not the file
        with open(path, encoding='utf-8-sig', errors='replace') as file:
            lines = [line.strip() for line in file.read().split('\n')]
    except OSError as error:
        return [records.Utterance(path, name, '', 'cannot be read: %s' % error.strerror)]
    utterances = []
    for number, line in enumerate(lines, 1):
        try:
            part = parse_line(line) if line else None
        except ValueError as error:
            utterances.append(records.Utterance(path, '%s:%d' % (name, number), '',
                                                'line %d: %s' % (number, error)))
            continue
        if part:
            utterances.append(_utterance(part, name, folder, recordings))
    return utterances


def _utterance(part, transcript_name, folder, recordings):
    side = '' if part.channel is None else 'AB'[part.channel] + ':'
    suffix = '#%s%.2f-%.2f' % (side, part.start_s, part.stop_s)
    path = recordings.get(part.recording.lower())
    if path is None:
        return records.Utterance('', transcript_name + suffix, part.transcript,
                                 'no audio file of recording %s' % part.recording)
    return records.Utterance(path, _name(path, folder) + suffix, part.transcript, part.exclusion_reason,
                             part.start_s, part.stop_s, part.channel)


def parse_times(start, stop):
    """(start_s, stop_s) of two texts; ValueError where they are no stretch of time."""
    try:
        start_s, stop_s = float(start), float(stop)
    except ValueError:
        start_s = stop_s = math.nan
    if not 0 <= start_s < stop_s < math.inf:
        raise ValueError('expected seconds in rising order, got %r and %r' % (start, stop))
    return start_s, stop_s


def unexpected(line, form):
    """ValueError of a line that isn't of the corpus's form."""
    return ValueError('expected %r, got %r' % (form, line[:SHOWN_CHARACTERS]))


def unused(recordings, utterances, folder):
    """Utterances with a problem, one for each recording of which no utterance is a part."""
    used = {utterance.wav_filename for utterance in utterances}
    return [records.Utterance(path, _name(path, folder), '',
                              'no utterance of it in the transcripts')
            for _, path in sorted(recordings.items()) if path not in used]


def list_conversations(folder, recordings, transcripts, parse_line):
    """Listing of a corpus without a split of its own, by conversation: of every hundred the last
    is for the test, the one before it for validation. The training set also has what is
    `unused`.

    Args:
      folder, recordings: as of `list_parts`.
      transcripts: list of (key of the conversation, path of a transcript of it).
      parse_line: takes a line and the key; else as of `list_parts`.
    """
    parts = {}
    for key, path in transcripts:
        parse = functools.partial(parse_line, recording=key)
        parts.setdefault(key, []).extend(list_parts(path, folder, recordings, parse))
    split = corpus_files.split_by_position(sorted(parts), dev_every=99, test_every=100)
    train, dev, test = [[part for key in keys for part in parts[key]] for keys in split]
    return records.Listing(train + unused(recordings, train + dev + test, folder), dev, test)


def require_both(recordings, transcripts, folder, corpus_name, how_to_get):
    """Raises DataError where all the audio or all the transcripts of a corpus are missing."""
    missing = [what for what, found in (('audio files', recordings), ('transcripts', transcripts))
               if not found]
    if missing:
        raise errors.DataError('%s: no %s in %s (ds_dataset_path); %s' % (
            corpus_name, ' and no '.join(missing), folder, how_to_get))
