"""Time-marked transcripts: each line is an utterance of a long recording, with times and words.

The importers of TED-LIUM, Fisher and Switchboard share this module; each parses its own form of
line.
"""

import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import NamedTuple

from util import errors, files, records
from util.corpora import corpus_files

# If a recording has several files, the one with the last of these endings is used: a SPHERE file
# with shorten compression, which libsndfile cannot read, may have a converted copy beside it.
AUDIO_ENDINGS = ('.sph', '.flac', '.wav')
SHOWN_CHARACTERS = 60  # characters that a message shows of a line that cannot be parsed


class Part(NamedTuple):
    """The part of a recording that a line of a transcript stands for."""

    recording: str  # key of the recording (see `find_recordings`), in upper or lower case
    start_s: float  # s, start of the part
    stop_s: float  # s, end of the part
    transcript: str  # without the markup of the corpus
    channel: int | None = None  # counted from 0; None: the mean of all channels
    exclusion_reason: str | None = None  # why it cannot be used


def find_by_name(folder: str, ending: str, name_pattern: str) -> list[tuple[str, str]]:
    """Returns (key, path) of the files below a folder, sorted by name.

    Of several files with the same name, the one whose path comes first is returned.

    Args:
      folder: where to look, at any depth.
      ending: ending of the names, such as '.txt'.
      name_pattern: regular expression of a name in lower case, without the ending; its group is
        the key.
    """
    paths = {
        os.path.basename(path).lower(): path
        for path in reversed(corpus_files.find_files(folder, ending))
    }
    matches = [
        (re.fullmatch(name_pattern, name[: -len(ending)]), path)
        for name, path in sorted(paths.items())
    ]
    return [(match.group(1), path) for match, path in matches if match]


def find_recordings(folder: str, name_pattern: str) -> dict[str, str]:
    """Returns {key: path} of the audio files below a folder; arguments as in `find_by_name`."""
    return {
        key: path
        for ending in AUDIO_ENDINGS
        for key, path in find_by_name(folder, ending, name_pattern)
    }


@functools.lru_cache(maxsize=16)  # each utterance of a recording asks for the same name
def _name(path, folder):
    """Returns a path relative to the corpus's folder, for messages."""
    return os.path.relpath(path, folder)


def list_parts(
    path: str, folder: str, recordings: Mapping[str, str], parse_line: Callable[[str], Part | None]
) -> list[records.Utterance]:
    """Returns the utterances of a transcript file, in its order.

    A line that cannot be parsed is an utterance with an exclusion reason, and so is a file that
    cannot be read.

    Args:
      path: path of the transcript file, in UTF-8.
      folder: folder of the corpus; the names of utterances are relative to it.
      recordings: {key: path of the audio file}.
      parse_line: function of a line without white space around it. It returns the line's Part, or
        None if the line is not an utterance, and raises ValueError if the line is malformed.
    """
    name = _name(path, folder)
    try:
        # errors='replace': a byte that is not UTF-8 excludes its line only, not the file
        with files.open_regular(path, encoding='utf-8-sig', errors='replace') as file:
            lines = [line.strip() for line in file.read().split('\n')]
    except OSError as error:
        return [records.Utterance(path, name, '', 'cannot be read: %s' % error.strerror)]
    utterances = []
    for number, line in enumerate(lines, 1):
        try:
            part = parse_line(line) if line else None
        except ValueError as error:
            utterances.append(
                records.Utterance(
                    path, '%s:%d' % (name, number), '', 'line %d: %s' % (number, error)
                )
            )
            continue
        if part:
            utterances.append(_utterance(part, name, folder, recordings))
    return utterances


def _utterance(part, transcript_name, folder, recordings):
    """Returns the utterance of a Part; its name includes channel and times."""
    side = '' if part.channel is None else 'AB'[part.channel] + ':'
    suffix = '#%s%.2f-%.2f' % (side, part.start_s, part.stop_s)
    path = recordings.get(part.recording.lower())
    if path is None:
        return records.Utterance(
            '',
            transcript_name + suffix,
            part.transcript,
            'no audio file of recording %s' % part.recording,
        )
    return records.Utterance(
        path,
        _name(path, folder) + suffix,
        part.transcript,
        part.exclusion_reason,
        part.start_s,
        part.stop_s,
        part.channel,
    )


def parse_times(start: str, stop: str) -> tuple[float, float]:
    """Parses the start and the stop time of an utterance, in seconds.

    Raises:
      ValueError: they are not numbers of seconds, or the second is not larger.
    """
    try:
        start_s, stop_s = float(start), float(stop)
    except ValueError:
        start_s = stop_s = math.nan
    if not 0 <= start_s < stop_s < math.inf:
        raise ValueError('expected seconds in rising order, got %r and %r' % (start, stop))
    return start_s, stop_s


def unexpected(line: str, form: str) -> ValueError:
    """Returns the error for a line that does not have the corpus's form."""
    return ValueError('expected %r, got %r' % (form, line[:SHOWN_CHARACTERS]))


def unused(
    recordings: Mapping[str, str], utterances: Iterable[records.Utterance], folder: str
) -> list[records.Utterance]:
    """Returns the recordings without any utterance, each as an excluded utterance.

    Args:
      recordings: {key: path of the audio file}.
      utterances: all utterances of these recordings.
      folder: folder of the corpus; the names of utterances are relative to it.
    """
    used = {utterance.wav_filename for utterance in utterances}
    return [
        records.Utterance(path, _name(path, folder), '', 'no utterance of it in the transcripts')
        for _, path in sorted(recordings.items())
        if path not in used
    ]


def list_conversations(
    folder: str,
    recordings: Mapping[str, str],
    transcripts: Iterable[tuple[str, str]],
    parse_line: Callable[..., Part | None],
) -> records.Listing:
    """Lists the utterances of a corpus that has no split of its own, split by conversation.

    Of every hundred conversations the last is for the test, the one before it for validation.
    The training set also gets the recordings that are `unused`.

    Args:
      folder, recordings: as in `list_parts`.
      transcripts: for each transcript, (key of its conversation, path).
      parse_line: as in `list_parts`, but it also takes the key as `recording`.
    """
    parts: dict[str, list[records.Utterance]] = {}
    for key, path in transcripts:
        parse = functools.partial(parse_line, recording=key)
        parts.setdefault(key, []).extend(list_parts(path, folder, recordings, parse))
    split = corpus_files.split_by_position(sorted(parts), dev_every=99, test_every=100)
    train, dev, test = [[part for key in keys for part in parts[key]] for keys in split]
    return records.Listing(train + unused(recordings, train + dev + test, folder), dev, test)


def require_both(
    recordings: Sized, transcripts: Sized, folder: str, corpus_name: str, how_to_get: str
) -> None:
    """Checks that a corpus has both recordings and transcripts.

    Args:
      recordings, transcripts: the recordings and the transcripts that were found.
      folder: folder of the corpus.
      corpus_name: name of the corpus, for the message.
      how_to_get: how to get the corpus, for the message.
    Raises:
      DataError: all of the audio files or all of the transcripts are missing.
    """
    missing = [
        what
        for what, found in (('audio files', recordings), ('transcripts', transcripts))
        if not found
    ]
    if missing:
        raise errors.DataError(
            '%s: no %s in %s (ds_dataset_path); %s'
            % (corpus_name, ' and no '.join(missing), folder, how_to_get)
        )
