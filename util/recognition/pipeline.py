"""From audio files to transcripts: reads ahead, recognises in batches, returns in order.

Reader threads cut each utterance into parts and compute their features. The parts of a window,
several batches, are sorted by length, so that batches need little padding. Two batches are
recognised at the same time, so that all cores have work while one of them ends its beam search.
The results are put together in the order of the utterances. What is read ahead is limited, so that
the memory does not depend on the length of a recording or the number of utterances.
"""

import collections
import concurrent.futures
import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from util import audio
from util.recognition import alignment, audio_blocks, joining, segments
from util.recognition.alignment import SPACE, Word
from util.recognition.inputs import Task
from util.recognition.network import Network, Recognised

WINDOW_BATCHES = 4  # batches of a window
RUNNERS = 2  # batches that are recognised at the same time
READ_AHEAD_PARTS = 16  # parts of an utterance that wait to be recognised
CLOSED_CHECK_S = 0.1  # s, interval at which a waiting reader checks whether it was closed


class Transcript(NamedTuple):
    """The transcript of an utterance."""

    text: str
    seconds: float  # s, length of the audio
    words: list[Word]  # with times if they were asked for and the model gives them
    loss: float | None  # CTC loss of the reference; None without one, or for a cut recording


class Failure(NamedTuple):
    """An utterance that cannot be transcribed."""

    reason: str


class _ReadPart(NamedTuple):
    """A part of an utterance that is ready to be recognised."""

    features: np.ndarray  # as Network.features returns them
    seconds: float
    start_s: float
    shared_before_s: float  # see segments.Part
    shared_after_s: float


class _End(NamedTuple):
    """What comes after the last part of an utterance."""

    task: Task
    outcome: float | Failure  # s, length of its audio


def transcribe(
    network: Network,
    tasks: Sequence[Task],
    *,
    batch_size: int,
    jobs: int,
    with_times: bool = False,
    progress: Callable[[float], Any] = lambda seconds: None,
) -> Iterator[tuple[Task, Transcript | Failure]]:
    """Yields each task with its Transcript or its Failure, in their order.

    Args:
      network: Network.
      tasks: utterances.
      batch_size: parts that are recognised together.
      jobs: reader threads.
      with_times: whether the words get times.
      progress: function that is called with the seconds of audio of each part that is done.
    """
    with (
        concurrent.futures.ThreadPoolExecutor(jobs, 'reader') as readers,
        concurrent.futures.ThreadPoolExecutor(RUNNERS, 'runner') as runners,
    ):
        closed = threading.Event()
        ahead = WINDOW_BATCHES * batch_size
        items = _read_ahead(network, tasks, readers, ahead, closed)
        pending: collections.deque = collections.deque()
        assembly = _Assembly(network, with_times)
        try:
            for window in _windows(items, ahead):
                pending.append(_Window(network, window, batch_size, runners))
                if len(pending) > 1:
                    yield from assembly.add_all(pending.popleft(), progress)
            while pending:
                yield from assembly.add_all(pending.popleft(), progress)
        finally:
            closed.set()
            for executor in (readers, runners):
                executor.shutdown(wait=False, cancel_futures=True)


# Reading


def _read_ahead(network, tasks, readers, ahead, closed):
    """Yields the _ReadParts of all tasks and the _End of each, in their order; up to `ahead` tasks
    are read ahead."""
    left = iter(tasks)
    begun: collections.deque = collections.deque()
    while True:
        while len(begun) < ahead:
            task = next(left, None)
            if task is None:
                break
            reading = _Reading(network, task, closed)
            readers.submit(reading.run)  # in order, so that the first one is never kept waiting
            begun.append(reading)
        if not begun:
            return
        yield from begun.popleft().items()


class _Reading:
    """An utterance that a thread reads.

    Args:
      network: Network.
      task: Task.
      closed: threading.Event that ends the thread.
    """

    def __init__(self, network, task, closed):
        self._network, self._task, self._closed = network, task, closed
        self._queue = queue.Queue(READ_AHEAD_PARTS)

    def items(self):
        """Yields the _ReadParts and then the _End, as soon as each is there."""
        while True:
            item = self._queue.get()
            if isinstance(item, BaseException):
                raise item
            yield item
            if isinstance(item, _End):
                return

    def run(self):
        """Reads the utterance; this runs in a thread."""
        try:
            for item in self._read():
                if not self._put(item):
                    return
        except BaseException as error:  # whatever it is, it must reach the caller
            self._put(error)

    def _put(self, item):
        """Hands over an item when there is room; returns False if the reading was closed."""
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=CLOSED_CHECK_S)
                return True
        return False

    def _read(self):
        """Yields the items."""
        utterance, network = self._task.utterance, self._network
        if utterance.exclusion_reason:
            yield _End(self._task, Failure(utterance.exclusion_reason))
            return
        n_samples = 0

        def counted():
            nonlocal n_samples
            for block in audio_blocks.read(utterance, network.sample_rate):
                n_samples += len(block)
                yield block

        try:
            for part in segments.cut(counted(), network.sample_rate):
                features = network.features(part.samples)
                yield _ReadPart(features, len(part.samples) / network.sample_rate, *part[1:])
        except audio.AudioError as error:
            yield _End(self._task, Failure(str(error)))
        else:
            yield _End(self._task, n_samples / network.sample_rate)


# Recognising


def _windows(items, size):
    """Groups items into lists with `size` _ReadParts each, fewer in the last one."""
    window, n_parts = [], 0
    for item in items:
        window.append(item)
        n_parts += isinstance(item, _ReadPart)
        if n_parts == size:
            yield window
            window, n_parts = [], 0
    if window:
        yield window


class _Window:
    """Items whose parts are being recognised, in batches of similar length.

    Args:
      network: Network.
      items: list of _ReadPart and _End.
      batch_size: parts of a batch.
      runners: executor that runs the batches.
    """

    def __init__(self, network, items, batch_size, runners):
        self._items = items
        parts = [i for i, item in enumerate(items) if isinstance(item, _ReadPart)]
        # the longest ones first, so that the last batch is a short one
        parts.sort(key=lambda i: -len(items[i].features))
        self._batches = []
        for start in range(0, len(parts), batch_size):
            batch = parts[start : start + batch_size]
            features = [items[i].features for i in batch]
            self._batches.append((batch, runners.submit(network.recognise, features)))

    def results(self, progress):
        """Returns a list of (item, its Recognised, or None for an _End), when all are done."""
        found: dict[int, Recognised] = {}
        for batch, future in self._batches:
            found.update(zip(batch, future.result()))
            progress(sum(self._items[i].seconds for i in batch))
        return [(item, found.get(i)) for i, item in enumerate(self._items)]


# Putting together


class _Assembly:
    """Puts the parts of utterances together, one utterance after the other.

    Args:
      network: Network.
      with_times: whether the words get times.
    """

    def __init__(self, network, with_times):
        self._network, self._with_times = network, with_times
        self._begin()

    def _begin(self):
        """Begins an utterance."""
        self._words: list[Word] = []
        self._before = 0  # number of words before those of the last part
        self._parts = 0
        self._only: Recognised | None = None  # the first part

    def add_all(self, window, progress):
        """Yields (Task, Transcript or Failure) of each utterance that ends in a _Window."""
        for item, recognised in window.results(progress):
            if isinstance(item, _ReadPart):
                self._add(item, recognised)
                continue
            if isinstance(item.outcome, Failure):
                yield item.task, item.outcome
            else:
                yield item.task, self._transcript(item.task, item.outcome)
            self._begin()

    def _add(self, part, recognised):
        """Adds a part of the present utterance."""
        network = self._network
        needs_times = self._with_times or part.shared_before_s or part.shared_after_s
        words = alignment.words(
            recognised.labels,
            recognised.logits if needs_times else None,
            network.alphabet,
            network.step_s,
            part.start_s,
        )
        if part.shared_before_s:
            shared = part.start_s, part.start_s + part.shared_before_s
            kept, first = joining.joint(self._words[self._before :], words, shared)
            del self._words[self._before + kept :]
            words = words[first:]
        self._before = len(self._words)
        self._words += words
        self._parts += 1
        self._only = recognised if self._parts == 1 else None

    def _transcript(self, task, seconds):
        """Returns the Transcript of the present utterance."""
        alphabet, only = self._network.alphabet, self._only
        if only is None:
            separator = SPACE if SPACE in alphabet else ''
            words = separator.join(word.word for word in self._words)
            return Transcript(words, seconds, self._words, None)
        loss = None
        if task.reference and only.logits is not None:
            reference = alphabet.encode(task.reference)
            log_probs = alignment.log_softmax(only.logits)
            loss = alignment.loss(log_probs, reference, alphabet.blank)
        return Transcript(alphabet.decode(only.labels), seconds, self._words, loss)
