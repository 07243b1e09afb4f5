"""Queues of utterances in the graph, and the threads that keep them filled.

Each data set has a `tf.PaddingFIFOQueue`, from which the graph takes one batch for all towers a
step. A `Feeder` reads the utterances of a set ahead of the graph and fills its queue.
"""

import collections
import concurrent.futures
import os
import queue
import threading
import time
from typing import NamedTuple

import numpy as np

from util import errors, records
from util.feeding import linked, readers
from util.tf1 import tf

N_READERS = min(4, os.cpu_count() or 1)  # threads that compute features
MAX_ANNOUNCED = 8  # steps that a feeder may be ahead, if its queue has room for them
CLOSE_LIMIT_S = 10.0  # s, how long `close` waits for the thread, which may be writing to the cache
CHECK_S = 0.1  # s, interval at which whoever waits checks whether to go on waiting


class UtteranceQueue:
    """The queue of one data set in the current graph.

    An element consists of normalised MFCC with the margins of the context windows, float32
    [n_context + n_steps + n_context, n_input]; the number of time steps, int32; labels, int32
    [n_labels]; and their number, int32.

    Args:
      data_set: DataSet.
    """

    def __init__(self, data_set):
        self._n_context, n_input = data_set.n_context, data_set.n_input
        with tf.name_scope('queue_' + data_set.name), tf.device('/cpu:0'):
            self.queue = tf.PaddingFIFOQueue(
                capacity=2 * data_set.step_size,
                dtypes=[tf.float32, tf.int32, tf.int32, tf.int32],
                shapes=[[None, n_input], [], [None], []],
                name='utterances',
            )
            self._elements = [
                tf.placeholder(tf.float32, [None, None, n_input], 'frames'),
                tf.placeholder(tf.int32, [None], 'n_steps'),
                tf.placeholder(tf.int32, [None, None], 'labels'),
                tf.placeholder(tf.int32, [None], 'n_labels'),
            ]
            self._enqueue = self.queue.enqueue_many(self._elements)
            self._close = self.queue.close(cancel_pending_enqueues=True)

    def enqueue(self, session, items):
        """Enqueues utterances, as `DataSet.read` returns them; waits while the queue is full."""
        frames, labels = zip(*items)
        lengths = [len(each) - 2 * self._n_context for each in frames]
        values = (_padded(frames), lengths, _padded(labels), [len(each) for each in labels])
        session.run(self._enqueue, dict(zip(self._elements, values)))

    def close(self, session):
        """Closes the queue, which ends a feeder that waits for room in it."""
        session.run(self._close)


def make_queues(data_sets):
    """Makes the queues of all sets in the current graph.

    Args:
      data_sets: DataSets.
    Returns:
      list of UtteranceQueue, in the order of `queue_index`.
    """
    return [UtteranceQueue(data_set) for data_set in data_sets.with_queues()]


def next_batch(queues, selector, n_utterances):
    """Takes a batch from the queue that `selector` picks.

    Args:
      queues: list of UtteranceQueue.
      selector: int32 scalar, index of the queue.
      n_utterances: int32 scalar, utterances to take.
    Returns:
      records.Batch of frames with margins.
    """
    chosen = tf.QueueBase.from_list(selector, [each.queue for each in queues])
    return records.Batch(*chosen.dequeue_many(n_utterances))


def feed(data_set, queues, session, first_epoch=0, first_step=0, n_epochs=None, stop=None):
    """Starts a feeder, which reads ahead of the graph.

    Args:
      data_set: DataSet or linked.LinkedSets.
      queues: list of UtteranceQueue, as `make_queues` returns it, in the session's graph.
      session: tf.Session.
      first_epoch, first_step: where to begin, counted from 0.
      n_epochs: epochs to read; None: without end.
      stop: object whose `check` raises an exception if the run is to stop, as that of
        signals.StopRequest does; it is called while a step waits for its utterances.
    Returns:
      Feeder or LinkedFeeder.
    """
    kind = LinkedFeeder if isinstance(data_set, linked.LinkedSets) else Feeder
    return kind(data_set, queues, session, first_epoch, first_step, n_epochs, stop)


_LAST = object()  # marks the end of the steps, and of the epochs that are announced


class _Planned(NamedTuple):
    """A step that is to be read."""

    epoch: int  # of the set, from 0
    index: int  # type: ignore[assignment]  # number of the step in its epoch, from 0
    utterances: list[int]  # indices


class Feeder:
    """Fills the queue of a data set ahead of the graph, epoch after epoch, in the set's order.

    Reader threads compute the features; one thread enqueues them in order and announces each
    step once its utterances are in the queue. So a step that is run never waits for data, and
    an error in one of the threads reaches the caller instead of leaving it waiting.

    The iterators of steps raise FeedingError if an utterance is not read within
    `ds_feed_timeout_secs`, if reading it fails for a reason that is not the file's, or if more than
    half of the utterances of an epoch were readable before and are not now.

    Attributes:
      waited: seconds that steps have waited for their utterances so far.
    """

    def __init__(self, data_set, queues, session, first_epoch, first_step, n_epochs, stop=None):
        self._data_set, self._session, self._stop = data_set, session, stop
        self._queue = queues[data_set.queue_index]
        self._first_epoch, self._first_step, self._n_epochs = first_epoch, first_step, n_epochs
        self._ready = queue.Queue(MAX_ANNOUNCED)
        self._closed, self._ended = threading.Event(), False
        self._losses = _Losses(data_set)
        self.waited = 0.0
        self._readers = readers.Readers(self._read, N_READERS)
        self._thread = threading.Thread(
            target=self._run, daemon=True, name='feeder-' + data_set.name
        )
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def epoch(self):
        """Yields the Steps of the next epoch that have utterances, each when they are in the
        queue."""
        return (step for step in self.all_steps() if step.examples)

    @property
    def ended(self):
        """Returns whether no more steps will come."""
        return self._ended

    def all_steps(self):
        """Yields all Steps of the next epoch, including those without a readable utterance."""
        while not self._ended:
            started = time.monotonic()
            item = self._next_item()
            self.waited += time.monotonic() - started
            if isinstance(item, BaseException):
                self._ended = True
                raise item
            self._ended = item is _LAST
            if item is _LAST or item is None:
                return
            yield item

    def _next_item(self):
        """Waits for what is announced next; meanwhile it looks whether the run is to stop."""
        while True:
            try:
                return self._ready.get(timeout=CHECK_S)
            except queue.Empty:
                if self._stop is not None:
                    self._stop.check()

    def close(self):
        """Ends the threads and closes the queue, which cannot be fed again.

        A thread in which a file hangs is left behind, and ends with the process.
        """
        self._closed.set()
        self._ended = True
        self._queue.close(self._session)
        self._thread.join(CLOSE_LIMIT_S)
        ended = self._readers.close() and not self._thread.is_alive()
        if ended and self._data_set.features:
            self._data_set.features.flush()

    def _run(self):
        """Feeds all epochs, and announces the end or the error; this is the feeder's thread."""
        try:
            self._feed()
            self._announce_when_there_is_room(_LAST)
        except concurrent.futures.CancelledError:
            pass  # the feeder was closed
        except BaseException as error:  # whatever it is, it must reach the caller
            self._announce_when_there_is_room(error)
        finally:
            self._readers.end()

    def _announce_when_there_is_room(self, item):
        """Announces a Step, an end or an error; waits for room unless the feeder is closed."""
        while not self._closed.is_set():
            try:
                return self._ready.put(item, timeout=CHECK_S)
            except queue.Full:
                pass

    def _feed(self):
        """Hands the utterances to the reader threads and announces the steps in order."""
        pending = collections.deque()
        steps = self._steps()
        while not self._closed.is_set():
            while len(pending) < 2 + N_READERS // self._data_set.step_size:
                step = next(steps, _LAST)
                if step is _LAST:
                    break
                pending.append(step and (step.index, step.utterances, self._submit(step)))
            if not pending:
                return
            self._announce(pending.popleft())

    def _submit(self, step):
        """Hands the utterances of a step to the reader threads; returns the futures."""
        return [
            self._readers.submit([(step.epoch, index) for index in part])
            for part in _parts(step.utterances)
        ]

    def _read(self, item):
        """Returns the result of `DataSet.read` for (epoch, index of the utterance).

        Raises:
          FeedingError: an error for which the audio file is not to blame.
        """
        epoch, index = item
        try:
            return self._data_set.read(index, epoch)
        except errors.DeepSpeechError:
            raise
        except Exception as error:
            words = '%s: %s' % (type(error).__name__, errors.first_line(error))
            raise errors.FeedingError(
                '%s cannot be read: %s' % (self._name(index), words)
            ) from error

    def _name(self, index):
        """Returns the name of an utterance."""
        return self._data_set.examples[index].utterance.name

    def _result(self, future):
        """Waits for the utterances of a part of a step; returns what `_read` returned for each.

        Raises:
          FeedingError: reading an utterance takes longer than `ds_feed_timeout_secs`.
          CancelledError: the feeder was closed.
        """
        seconds = collections.Counter()  # that this part was waited for while an item was read
        while not future.done():
            concurrent.futures.wait([future], CHECK_S)
            if self._closed.is_set():
                raise concurrent.futures.CancelledError
            # Counted, so that the time while the whole process is stopped doesn't count.
            seconds.update(dict.fromkeys(self._readers.reading(), CHECK_S))
            for (_, index), waited in seconds.most_common(1):
                if 0 < self._data_set.timeout_s < waited:
                    raise errors.FeedingError(
                        'reading %s takes longer than %g s (ds_feed_timeout_secs)'
                        % (self._name(index), self._data_set.timeout_s)
                    )
        return future.result()

    def _steps(self):
        """Yields a _Planned for each step, None at the end of each epoch."""
        epoch, first = self._first_epoch, self._first_step
        while self._n_epochs is None or epoch < self._first_epoch + self._n_epochs:
            for index, utterances in list(enumerate(self._data_set.order(epoch)))[first:]:
                yield _Planned(epoch, index, utterances)
            yield None
            epoch, first = epoch + 1, 0

    def _announce(self, step):
        """Enqueues the utterances of a step and announces it; None is the end of an epoch."""
        data_set = self._data_set
        if step is None:
            self._losses.end_epoch()
            if data_set.features:
                data_set.features.flush()
            self._announce_when_there_is_room(None)
            return
        index, utterances, futures = step
        items = [item for future in futures for item in self._result(future)]
        self._losses.add(utterances, items)
        read = [i for i, item in zip(utterances, items) if item is not None]
        try:
            if read:
                self._queue.enqueue(self._session, [item for item in items if item is not None])
        except tf.errors.CancelledError:
            if self._closed.is_set():
                return
            raise
        self._announce_when_there_is_room(
            records.Step(
                index,
                [data_set.examples[i] for i in read],
                data_set.queue_index,
                1.0,
                data_set.ends_update(index),
            )
        )


class _Losses:
    """Notices that most utterances of a set are lost, as when their disk is gone.

    Args:
      data_set: DataSet.
    """

    def __init__(self, data_set):
        self._data_set, self._any_read = data_set, False
        self._before = self._now = 0  # unreadable utterances of the epoch before and of this one

    def add(self, utterances, items):
        """Counts the utterances of a step, indices, and what was read, None if that failed.

        Raises:
          FeedingError: more than half of the set is unreadable, and was not in the epoch before; in
            the first epoch, all of it could be opened at the start of the run.
        """
        lost = [index for index, item in zip(utterances, items) if item is None]
        self._now += len(lost)
        most = 2 * (self._now - self._before) > len(self._data_set)
        if lost and most and self._any_read:
            raise errors.FeedingError(
                'more than half of the %d %s utterances, which could be opened before, cannot be '
                'read, among them %s: is the disk with the audio still there?'
                % (
                    len(self._data_set),
                    self._data_set.title,
                    self._data_set.examples[lost[-1]].utterance.name,
                )
            )
        self._any_read = self._any_read or len(lost) < len(items)

    def end_epoch(self):
        """Begins to count anew."""
        self._before, self._now = self._now, 0


class LinkedFeeder:
    """Feeds linked.LinkedSets as a Feeder feeds a DataSet, with one Feeder for each set."""

    def __init__(self, linked_sets, queues, session, first_epoch, first_step, n_epochs, stop=None):
        del n_epochs  # the sets have epochs of their own
        self._linked, self._next = linked_sets, first_step
        self._feeders = []
        done, further = divmod(first_step, len(linked_sets.parts))
        for index, part in enumerate(linked_sets.parts):
            n_batches = first_epoch * linked_sets.rounds + done + (index < further)
            epoch, step = linked_sets.position(part, n_batches)
            self._feeders.append(Feeder(part, queues, session, epoch, step, None, stop))
        self._unread = [0] * len(self._feeders)  # steps of each set since one had utterances
        self._batches = [_without_end(feeder) for feeder in self._feeders]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    @property
    def waited(self):
        """Returns the seconds that steps have waited for their utterances so far."""
        return sum(feeder.waited for feeder in self._feeders)

    def all_steps(self):
        """Yields the Steps of the next epoch, round by round.

        Raises:
          DataError: no utterance of a set can be read.
        """
        first, self._next = self._next, 0
        for index in range(first, self._linked.total_batches):
            which = index % len(self._batches)
            step = next(self._batches[which])
            self._check_readable(which, step)
            yield step._replace(
                index=index,
                weight=self._linked.weights[which],
                ends_update=self._linked.ends_update(index),
            )

    def _check_readable(self, which, step):
        """Raises DataError if a set has come round without a readable utterance."""
        part = self._linked.parts[which]
        self._unread[which] = 0 if step.examples else self._unread[which] + 1
        if self._unread[which] >= part.total_batches:
            raise errors.DataError(
                'ds_importer_weights: no utterance of the %s set can be read; its weight must be 0'
                % part.title
            )

    def close(self):
        """Ends the threads of all sets."""
        for feeder in self._feeders:
            feeder.close()


def _without_end(feeder):
    """Yields the steps of all epochs without a break."""
    while not feeder.ended:
        yield from feeder.all_steps()


def _parts(indices):
    """Divides the indices of a step into one part for each reader thread; handing over smaller
    parts would cost more than reading a short utterance from the cache."""
    size = -(-len(indices) // N_READERS)
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def _padded(arrays):
    """Stacks arrays of unequal length, zero-padded, into one of [len(arrays), longest, ...]."""
    padded = np.zeros((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), arrays[0].dtype)
    for row, array in zip(padded, arrays):
        row[: len(array)] = array
    return padded
