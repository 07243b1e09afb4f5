"""Reads a corpus as training would and reports on it, without training.

    ds_importer=cv ds_dataset_path=en python -m util.tools.check_data [picture.png]

takes the settings of a training run. It prints for each set hours, utterances, rates and lengths,
then what is excluded by reason, characters outside the alphabet, and transcripts that occur both
in training and in the test. With a file name it draws a histogram of the lengths. The exit status
is 0 where training could start, else 1.
"""
import collections
import logging
import sys

from util import config as settings, errors

with settings.silenced_tensorflow():
    import tensorflow  # noqa: F401

import numpy as np  # noqa: E402

from util import importers, log as run_log, text  # noqa: E402

N_EXAMPLES = 3  # utterances named for each reason or character
BINS = 40       # of the histogram


def main(arguments):
    """The command line; returns the exit status."""
    run_log.set_up_logging()
    logging.getLogger('util.feeding.data_sets').setLevel(logging.ERROR)  # the report says it in its own way
    try:
        config, _ = settings.load()
        alphabet = text.load_alphabet(config.alphabet)
        data_sets = importers.read_data_sets(config, alphabet)
    except (errors.ConfigError, errors.AlphabetError, errors.DataError) as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    print('\n'.join(report(data_sets, alphabet)))
    if arguments:
        draw_lengths(data_sets, arguments[0])
        print('histogram of the lengths: %s' % arguments[0])
    can_start = len(data_sets.train) > 0
    print('training could start' if can_start else 'training could not start: no usable training '
          'utterance is left')
    return 0 if can_start else 1


def report(data_sets, alphabet):
    """Lines of the report."""
    for data_set in data_sets:
        yield from _set_lines(data_set)
    yield from _exclusion_lines(data_sets.excluded)
    yield from _character_lines(data_sets.excluded, alphabet)
    yield from _overlap_lines(data_sets)


def _set_lines(data_set):
    if not len(data_set):
        yield '%-5s empty' % data_set.name
        return
    lengths = np.array([example.seconds for example in data_set.examples])
    yield ('%-5s %d utterances, %.1f s (%.2f hours); shortest %.2f s, median %.2f s, longest %.2f '
           's') % (data_set.name, len(lengths), lengths.sum(), lengths.sum() / 3600, lengths.min(),
                   np.median(lengths), lengths.max())
    words = sum(len(example.transcript.split()) for example in data_set.examples)
    yield '      %.1f %% of the frames in batches of %d are padding' % (
        100 * data_set.padding(), data_set.step_size)
    yield '      %d words; %s' % (words, ', '.join(
        '%d at %d Hz with %d channel%s' % (count, rate, channels, 's' * (channels > 1))
        for (rate, channels), count in sorted(data_set.sources.items())))


def _exclusion_lines(excluded):
    """Counts of what is excluded by kind of reason, with examples."""
    by_kind = collections.defaultdict(list)
    for utterance, reason in excluded.items():
        by_kind[reason.split(':')[0]].append((utterance.name, reason))
    yield 'excluded: %d utterances' % len(excluded)
    for kind, found in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        yield '%7d %s' % (len(found), kind)
        for name, reason in found[:N_EXAMPLES]:
            yield '        %s: %s' % (name, reason)


def _character_lines(excluded, alphabet):
    """Characters that the alphabet doesn't hold, with counts and examples."""
    counts, examples = collections.Counter(), collections.defaultdict(list)
    for utterance in excluded:
        cleaned, unknown = text.clean_transcript(utterance.transcript or '', alphabet)
        for char in unknown:
            counts[char] += cleaned.count(char)
            examples[char].append(utterance)
    yield 'characters outside the alphabet: %d' % len(counts)
    for char, count in counts.most_common():
        utterance = examples[char][0]
        yield '%7d %s, as in %s: %s' % (count, text.describe_char(char), utterance.name,
                                        utterance.transcript)


def _overlap_lines(data_sets):
    """Transcripts that the test set shares with the training set."""
    known = {example.transcript for example in data_sets.train.examples}
    shared = [example for example in data_sets.test.examples if example.transcript in known]
    yield 'test utterances whose transcript also occurs in training: %d of %d' % (
        len(shared), len(data_sets.test))
    for example in shared[:N_EXAMPLES]:
        yield '        %s: %s' % (example.utterance.name, example.transcript)


def draw_lengths(data_sets, path):
    """Draws the histogram of the utterances' lengths into a picture file."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(8, 4))
    lengths = [[example.seconds for example in data_set.examples] for data_set in data_sets]
    axes.hist(lengths, bins=BINS, stacked=True,
              label=['%s (%d)' % (data_set.name, len(data_set)) for data_set in data_sets])
    axes.set(xlabel='length of an utterance in s', ylabel='utterances')
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
