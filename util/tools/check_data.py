"""Reads a corpus as training would and reports on it, without training.

    ds_importer=cv ds_dataset_path=en python -m util.tools.check_data [lengths.png]

takes the settings of a training run from the environment. For each set it prints the hours, the
number of utterances, their lengths and the sample rates; then the excluded utterances by reason,
the characters outside the alphabet, and the transcripts that occur both in training and in the
test. With a file name it also draws a histogram of the lengths. The exit status is 0 if training
could start, otherwise 1.
"""

import argparse
import collections
import logging
import pathlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if not __package__:  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from util import config as settings, errors, log as run_log
from util.run import command
from util.tools import pictures

if TYPE_CHECKING:
    from util.feeding.data_sets import DataSets
    from util.text import Alphabet

N_EXAMPLES = 3  # utterances named for each reason or character
BINS = 40  # of the histogram


def main(arguments: list[str]) -> int:
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog='python -m util.tools.check_data',
        description='Reads the corpus of the ds_ settings as training would and reports on it.',
    )
    parser.add_argument(
        'picture',
        metavar='PICTURE',
        nargs='?',
        help='file for a histogram of the lengths, such as lengths.png',
    )
    options = parser.parse_args(arguments)
    from util import importers, text  # here, as they load TensorFlow, which --help can do without

    run_log.set_up_logging()
    # The report names the excluded utterances itself, by reason.
    logging.getLogger('util.feeding.data_sets').setLevel(logging.ERROR)
    try:
        config, _ = settings.load()
        alphabet = text.load_alphabet(config.alphabet)
        data_sets = importers.read_data_sets(config, alphabet)
        print('\n'.join(report(data_sets, alphabet)))
        if options.picture:
            draw_lengths(data_sets, options.picture)
            print('histogram of the lengths: %s' % options.picture)
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    can_start = len(data_sets.train) > 0
    print(
        'training could start'
        if can_start
        else 'training could not start: no usable training utterance is left'
    )
    return 0 if can_start else 1


def report(data_sets: 'DataSets', alphabet: 'Alphabet') -> Iterator[str]:
    """Yields the lines of the report on the data sets of a run."""
    for data_set in data_sets:
        yield from _set_lines(data_set)
    yield from _exclusion_lines(data_sets.excluded)
    yield from _character_lines(data_sets.excluded, alphabet)
    yield from _overlap_lines(data_sets)


def _set_lines(data_set):
    """Yields the lines on one DataSet: its size, its lengths, its words and its sample rates."""
    if not len(data_set):
        yield '%-5s empty' % data_set.name
        return
    lengths = np.array([example.seconds for example in data_set.examples])
    yield (
        '%-5s %d utterances, %.1f s (%.2f hours); shortest %.2f s, median %.2f s, longest %.2f s'
    ) % (
        data_set.name,
        len(lengths),
        lengths.sum(),
        lengths.sum() / 3600,
        lengths.min(),
        np.median(lengths),
        lengths.max(),
    )
    words = sum(len(example.transcript.split()) for example in data_set.examples)
    yield '      %.1f %% of the frames in batches of %d are padding' % (
        100 * data_set.padding(),
        data_set.step_size,
    )
    yield '      %d words; %s' % (
        words,
        ', '.join(
            '%d at %d Hz with %d channel%s' % (count, rate, channels, 's' * (channels > 1))
            for (rate, channels), count in sorted(data_set.sources.items())
        ),
    )


def _exclusion_lines(excluded):
    """Yields how many utterances are excluded for each kind of reason, with examples.

    Args:
      excluded: {Utterance: exclusion reason}.
    """
    by_kind = collections.defaultdict(list)
    for utterance, reason in excluded.items():
        by_kind[reason.split(':')[0]].append((utterance.name, reason))
    yield 'excluded: %d utterances' % len(excluded)
    for kind, found in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        yield '%7d %s' % (len(found), kind)
        for name, reason in found[:N_EXAMPLES]:
            yield '        %s: %s' % (name, reason)


def _character_lines(excluded, alphabet):
    """Yields the characters that the alphabet does not hold, with counts and examples.

    Args:
      excluded: {Utterance: exclusion reason}.
      alphabet: text.Alphabet.
    """
    from util import text

    counts, examples = collections.Counter(), collections.defaultdict(list)
    for utterance in excluded:
        cleaned, unknown = text.clean_transcript(utterance.transcript or '', alphabet)
        for char in unknown:
            counts[char] += cleaned.count(char)
            examples[char].append(utterance)
    yield 'characters outside the alphabet: %d' % len(counts)
    for char, count in counts.most_common():
        utterance = examples[char][0]
        yield '%7d %s, as in %s: %s' % (
            count,
            text.describe_char(char),
            utterance.name,
            utterance.transcript,
        )


def _overlap_lines(data_sets):
    """Yields how many transcripts the test set shares with the training set, with examples."""
    known = {example.transcript for example in data_sets.train.examples}
    shared = [example for example in data_sets.test.examples if example.transcript in known]
    yield 'test utterances whose transcript also occurs in training: %d of %d' % (
        len(shared),
        len(data_sets.test),
    )
    for example in shared[:N_EXAMPLES]:
        yield '        %s: %s' % (example.utterance.name, example.transcript)


def draw_lengths(data_sets: 'DataSets', path: str) -> None:
    """Draws a histogram of the utterances' lengths in seconds into a picture file.

    Raises:
      DeepSpeechError: the file cannot be written, or its ending names no format of pictures.
    """
    figure, axes = pictures.pyplot().subplots(figsize=(8, 4))
    lengths = [[example.seconds for example in data_set.examples] for data_set in data_sets]
    axes.hist(
        lengths,
        bins=BINS,
        stacked=True,
        label=['%s (%d)' % (data_set.name, len(data_set)) for data_set in data_sets],
    )
    axes.set(xlabel='length of an utterance in s', ylabel='utterances')
    axes.legend()
    figure.tight_layout()
    pictures.save(figure, path, dpi=100)


if __name__ == '__main__':
    command.run(main)
