"""Data sets, queues and feeders for the tests of util/feeding."""

import os
import threading
import time

import numpy as np

from helpers import load_config
from util import records, text
from util.feeding import data_sets, feeder
from util.tf1 import tf

HANG_S = 20  # whatever takes longer hangs
ORDERS = ('sorted', 'shuffled', 'bucketed')
LENGTHS = [5, 2, 9, 2, 7, 4, 11, 3, 2, 8, 6, 13, 1]  # steps of 13 utterances, with ties


def within(seconds, function, *arguments):
    """Returns function(*arguments); fails where that takes longer than `seconds`."""
    outcome = []

    def call():
        try:
            outcome.append((function(*arguments), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, '%s has not ended after %g s' % (function.__name__, seconds)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def names(of):
    """Returns the names of the utterances of a DataSet or of a Step."""
    return [example.utterance.name for example in of.examples]


def flat(steps):
    """Returns the indices of all steps in one list."""
    return [index for step in steps for index in step]


def exclusions(caplog):
    """Returns {name: reason} of the utterances that the log says are excluded."""
    found = [
        message[len('excluded ') :].split(': ', 1)
        for message in caplog.messages
        if message.startswith('excluded ')
    ]
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


# Data sets without audio: utterance i is named "u<i>", and `item` gives it the one label i


def make_set(lengths, name='train', **values):
    """Returns a DataSet of utterances with these time steps."""
    values = {'n_input': 3, 'n_context': 2, **values}
    examples = [
        records.Example(records.Utterance('u%d.wav' % i, 'u%d' % i, 'A'), 'a', n, 0.01 * n)
        for i, n in enumerate(lengths)
    ]
    return data_sets.DataSet(name, examples, load_config(**values))


def item(data_set, index, epoch=0):
    """Makes up what DataSet.read gives of `make_set`: frames filled with the index."""
    margins = 2 * data_set.n_context
    frames = np.full([data_set.examples[index].n_steps + margins, 3], index, np.float32)
    return frames, np.array([index], np.int32)


# Data sets with audio


def build_sets(folder, train, dev=(), test=(), **values):
    """Returns DataSets of (file name, transcript) rows; the files lie in `folder`."""
    config = load_config(
        **{'n_input': 4, 'n_context': 2, 'cache_dir': os.path.join(folder, 'cache'), **values}
    )
    listing = [
        [records.Utterance(os.path.join(folder, name), name, words) for name, words in rows]
        for rows in (train, dev, test)
    ]
    return data_sets.make_data_sets(config, text.Alphabet(), records.Listing(*listing))


class Graph:
    """A graph with the queue of one data set, its session, and the feeders made with it."""

    def __init__(self, data_set):
        self.data_set, self._feeders = data_set, []
        with tf.Graph().as_default() as graph:
            self._count = tf.placeholder(tf.int32, [])
            self.queue = feeder.UtteranceQueue(data_set)
            self._size = self.queue.queue.size()
            self._batch = feeder.next_batch([self.queue], 0, self._count)
        self.session = tf.Session(graph=graph)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for each in self._feeders:
            within(HANG_S, each.close)
        self.session.close()

    def feed(self, *arguments, **options):
        """Returns a new Feeder; the arguments behind the session are those of `feeder.feed`."""
        self._feeders.append(
            feeder.feed(self.data_set, [self.queue], self.session, *arguments, **options)
        )
        return self._feeders[-1]

    def take(self, count):
        """Returns the next utterances of the queue."""
        return self.session.run(self._batch, {self._count: count})

    def take_epoch(self, feeding):
        """Returns the next epoch: (index, names announced, first labels of what was in the queue)
        of each step."""
        return within(HANG_S, self._take_epoch, feeding)

    def _take_epoch(self, feeding):
        return [
            (step.index, names(step), self.take(len(step.examples)).labels[:, 0].tolist())
            for step in feeding.epoch()
        ]

    def queued(self):
        """Returns how many utterances the queue holds."""
        return self.session.run(self._size)

    def wait_until_full(self):
        """Waits until the queue has no more room."""
        self.wait_for(2 * self.data_set.step_size)

    def wait_for(self, count):
        """Waits until the queue holds so many utterances."""

        def wait():
            while self.queued() < count:
                time.sleep(0.002)

        within(HANG_S, wait)


def expected_epoch(data_set, epoch, first_step=0):
    """Returns what `Graph.take_epoch` gives of an epoch in the set's order."""
    return [
        (i, ['u%d' % index for index in step], step) for i, step in enumerate(data_set.order(epoch))
    ][first_step:]
