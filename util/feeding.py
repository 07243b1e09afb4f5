"""Data sets of every importer: utterances, their order, and the queues that feed the graph.

An importer lists `Utterance`s; `make_data_sets` checks them and leaves out what can't be used.
A `DataSet` puts its utterances in order, reads them ahead in threads and fills a
`tf.PaddingFIFOQueue`, from which the graph takes one batch for all towers a step.
"""
import collections
import concurrent.futures
import copy
import logging
import os
import queue
import threading
import time
import zlib

import numpy as np
import tensorflow.compat.v1 as tf

from util import audio, cache, linked, text

log = logging.getLogger(__name__)

SET_NAMES = ('train', 'dev', 'test')
N_READERS = min(4, os.cpu_count() or 1)  # threads that compute features
FEATURES_VERSION = 1  # goes up where util/audio.py computes other features: old caches are left
MAX_ANNOUNCED = 8     # steps that a feeder is ahead at most, where the queue doesn't hold it back
CLOSED_CHECK_S = 0.1  # how often a feeder that waits looks whether it is to end
NAMED_EXCLUSIONS = 100                   # said one by one; the rest is counted

# What a batch holds, B utterances padded to the longest of them:
# features float32 [B, n_steps, n_input + 2*n_input*n_context], seq_len int32 [B],
# labels int32 [B, U] padded with 0, label_len int32 [B].
Batch = collections.namedtuple('Batch', 'features seq_len labels label_len')

# An utterance as an importer lists it: the audio file's path, the name it has in messages (the
# manifest's spelling), the transcript as it was found, and why it can't be used where the
# importer knows that already. It may be a part of the file: from start_s to stop_s seconds, and
# one channel of it (from 0). `corpus` is its importer where there are several.
Utterance = collections.namedtuple(
    'Utterance', 'wav_filename name transcript problem start_s stop_s channel corpus',
    defaults=[None, None, None, None, None])

# The utterances of a corpus, as its importer lists them: three lists of Utterance
Listing = collections.namedtuple('Listing', 'train dev test')

# An utterance that can be used: as it was listed, its cleaned transcript, time steps, seconds
Example = collections.namedtuple('Example', 'utterance transcript n_steps seconds')

# One step of an epoch, a batch for all towers, ready in a queue: the examples that it takes, those
# that turned out unreadable left out; index of the queue; weight of its corpus; and whether an
# update of the weights ends with it.
_STEP = collections.namedtuple('Step', 'index examples queue_index weight ends_update',
                               defaults=[0, 1.0, True])


class Step(_STEP):
    """A step, with the length of its audio."""

    @property
    def seconds(self):
        """Length of its audio."""
        return sum(example.seconds for example in self.examples)


class DataError(ValueError):
    """A data set can't be used; the message says what is missing."""


def make_data_sets(config, alphabet, train, dev, test):
    """Checks the utterances of an importer and makes the three data sets of them.

    What can't be used is left out and said: each by name with its reason, and the count.

    Args:
      config: Config.
      alphabet: text.Alphabet.
      train, dev, test: lists of Utterance.
    Returns:
      DataSets.
    """
    listing = Listing(train, dev, test)
    headers = cache.HeaderCache(config.cache_dir)
    headers.load(utterance.wav_filename for part in listing for utterance in part)
    features = _feature_cache(config)
    sets, checked = [], {}
    for set_name, utterances in zip(SET_NAMES, listing):
        examples, sources = [], collections.Counter()
        for utterance in _first(utterances, getattr(config, 'limit_' + set_name), config):
            if utterance not in checked:
                checked[utterance] = _check(utterance, headers, config, alphabet)
            example, info = checked[utterance]
            if info:
                examples.append(example)
                sources[info.rate, info.channels] += 1
        sets.append(DataSet(set_name, examples, config, alphabet, features, sources))
    headers.close()
    excluded = {utterance: reason for utterance, (reason, info) in checked.items() if not info}
    sources = collections.Counter(
        (info.rate, 1 if utterance.channel is not None else info.channels)
        for utterance, (_, info) in checked.items() if info)
    _report(excluded, len(checked), sources, config.sample_rate)
    return DataSets(*sets, excluded, _stages(sets[0], config))


def _first(utterances, limit, config):
    """The first utterances up to a limit, if it isn't 0; of linked corpora the first of each."""
    if not limit or not config.linked_weights:
        return utterances[:limit or None]
    kept, counts = [], collections.Counter()
    for utterance in utterances:
        counts[utterance.corpus] += 1
        if counts[utterance.corpus] <= limit:
            kept.append(utterance)
    return kept


def _stages(train, config):
    """What each stage of the training trains on: a DataSet or linked.LinkedSets.

    Raises:
      DataError: nothing is left for a stage.
    """
    if config.linked_weights:
        train = _link(train, config)
    stages = [train if length is None else train.up_to(length) for length in config.stages]
    for stage, length in zip(stages, config.stages):
        if config.training_iters and len(train) and not len(stage):
            raise DataError('ds_segment_lengths: no training utterance has at most %d time steps, '
                            'the shortest has %d' % (length, min(
                                example.n_steps for part in train.parts
                                for example in part.examples)))
    return stages


def _link(train, config):
    """The training set as linked.LinkedSets of its corpora; as it is where only one has a weight.

    Raises:
      DataError: there is nothing of a corpus.
    """
    weights = {name: weight for name, weight in zip(config.corpora, config.linked_weights)
               if weight}
    if len(weights) < 2 or not len(train) or not config.training_iters:
        return train
    sets = []
    for name in weights:
        sets.append(train.subset(lambda example, name=name: example.utterance.corpus == name))
        if not len(sets[-1]):
            raise DataError('ds_importer_weights: no usable training utterance of %s is left; its '
                            'weight must be 0' % name)
    return linked.LinkedSets(sets, list(weights.values()), config)


def _feature_cache(config):
    """The cache that all three sets share; None where it is off."""
    if not config.feature_cache:
        return None
    settings = (FEATURES_VERSION, config.sample_rate, config.n_input, config.feature_stride)
    return cache.FeatureCache(config.cache_dir, config.importer, settings, config.n_input,
                              config.feature_cache_gb * 1e9)


def _check(utterance, headers, config, alphabet):
    """Whether an utterance can be used, from its header and transcript.

    Returns:
      (Example, AudioInfo of its file), or (reason, None).
    """
    if utterance.problem:
        return utterance.problem, None
    transcript, unknown = text.clean_transcript(utterance.transcript, alphabet)
    if not transcript:
        return 'empty transcript', None
    if unknown:
        return 'characters outside the alphabet: %s' % ', '.join(
            text.describe_char(char) for char in unknown), None
    try:
        info = headers.info(utterance.wav_filename)
        audio.check_channel(info, utterance.channel)
        _, count = audio.segment(info, utterance.start_s, utterance.stop_s)
        n_samples = audio.resampled_length(count, info.rate, config.sample_rate)
        audio.check_length(n_samples, config.sample_rate)
    except audio.AudioError as error:
        return str(error), None
    steps = audio.n_steps(n_samples, config.sample_rate, config.feature_stride)
    problem = _ctc_problem(steps, transcript)
    if problem:
        return problem, None
    return Example(utterance, transcript, steps, count / info.rate), info


def _ctc_problem(steps, transcript):
    """Why so many time steps are too few for a transcript, or None."""
    if steps >= 2 * len(transcript) or steps >= text.required_steps(transcript):
        return None
    return 'too short for its transcript: %d time steps, CTC needs %d for %d labels' % (
        steps, text.required_steps(transcript), len(transcript))


def _report(excluded, n_utterances, sources, sample_rate):
    """Says what was left out, and what is resampled or mixed down."""
    for utterance in list(excluded)[:NAMED_EXCLUSIONS]:
        log.warning('excluded %s: %s', utterance.name, excluded[utterance])
    if excluded:
        log.warning('%d of %d utterances excluded', len(excluded), n_utterances)
    other_rates = collections.Counter()
    for (rate, _), count in sources.items():
        other_rates[rate] += count
    del other_rates[sample_rate]
    if other_rates:
        log.info('resampled to %d Hz: %s', sample_rate, ', '.join(
            '%d from %d Hz' % (n, rate) for rate, n in sorted(other_rates.items())))
    several = sum(n for (_, channels), n in sources.items() if channels > 1)
    if several:
        log.info('mixed down to one channel (mean): %d', several)


class DataSets:
    """The three data sets of an importer, and the selector that takes a batch of one.

    `excluded` holds the utterances that can't be used: {Utterance: reason}. `stages` holds what
    is trained on, stage by stage: DataSets or linked.LinkedSets made of `train`.
    """

    def __init__(self, train, dev, test, excluded=None, stages=None):
        self.train, self.dev, self.test = train, dev, test
        self.excluded = excluded or {}
        self.stages = stages or [train]
        for index, data_set in enumerate(self._with_queues()):
            data_set.queue_index = index

    def __iter__(self):
        return iter((self.train, self.dev, self.test))

    def next_batch(self, selector, n_utterances):
        """A batch from the queue that `selector` picks.

        Args:
          selector: int32 scalar; the `queue_index` of a DataSet.
          n_utterances: int32 scalar, utterances to take.
        Returns:
          Batch, its features not yet cut into windows: see `DataSet.next_batch`.
        """
        queues = [data_set.make_queue() for data_set in self._with_queues()]
        return Batch(*tf.QueueBase.from_list(selector, queues).dequeue_many(n_utterances))

    def _with_queues(self):
        """The DataSets that have a queue each."""
        return [data_set for stage in self.stages for data_set in stage.parts] + [
            self.dev, self.test]


class DataSet:
    """Utterances of one set, their order in each epoch, and their queue in the graph."""

    def __init__(self, name, examples, config, alphabet=None, features=None, sources=None):
        self.name = name
        self.examples = examples
        self.features = features
        self.sources = sources or collections.Counter()  # {(rate in Hz, channels): utterances}
        self.step_size = config.set_batch_size(name) * max(1, config.towers)
        self._config = config
        self._alphabet = alphabet or text.Alphabet()
        self.queue_index = 0
        self._unreadable, self._excluding = set(), threading.Lock()
        self._queue = None

    def __len__(self):
        return len(self.examples)

    @property
    def parts(self):
        """The DataSets that this is made of: itself."""
        return [self]

    def subset(self, belongs):
        """A DataSet, with a queue of its own, of those examples for which `belongs` is true."""
        part = copy.copy(self)
        part.examples = [example for example in self.examples if belongs(example)]
        part._queue = None
        return part

    def up_to(self, length):
        """The `subset` of utterances of at most so many time steps."""
        return self.subset(lambda example: example.n_steps <= length)

    @property
    def total_batches(self):
        """Steps of an epoch: batches for all towers together."""
        return -(-len(self.examples) // self.step_size)

    @property
    def seconds(self):
        """Length of the audio of all utterances."""
        return sum(example.seconds for example in self.examples)

    def make_queue(self):
        """The queue in the current graph; its elements are whitened MFCC with the margins of
        the context windows, time steps, labels and their number."""
        n_input = self._config.n_input
        with tf.name_scope('queue_' + self.name), tf.device('/cpu:0'):
            self._queue = tf.PaddingFIFOQueue(
                capacity=2 * self.step_size, dtypes=[tf.float32, tf.int32, tf.int32, tf.int32],
                shapes=[[None, n_input], [], [None], []], name='utterances')
            self._elements = [tf.placeholder(tf.float32, [None, None, n_input], 'frames'),
                              tf.placeholder(tf.int32, [None], 'n_steps'),
                              tf.placeholder(tf.int32, [None, None], 'labels'),
                              tf.placeholder(tf.int32, [None], 'n_labels')]
            self._enqueue = self._queue.enqueue_many(self._elements)
            self._close = self._queue.close(cancel_pending_enqueues=True)
        return self._queue

    def next_batch(self, n_utterances):
        """The next utterances of the queue as a Batch, with context windows cut.

        Args:
          n_utterances: int32 scalar.
        """
        made = self._queue is not None and (
            self._queue.queue_ref.graph is tf.get_default_graph())
        batch = Batch(*(self._queue if made else self.make_queue()).dequeue_many(n_utterances))
        return cut_windows(batch, self._config.n_context)

    def order(self, epoch):
        """Indices of the utterances in the order of an epoch, a list for each step.

        A function of the seed and the epoch alone. dev and test keep the order by length.
        """
        rng = np.random.default_rng([self._config.random_seed, epoch])
        by_length = np.argsort([example.n_steps for example in self.examples], kind='stable')
        order = self._config.batch_order if self.name == 'train' else 'sorted'
        if order == 'shuffled':
            by_length = rng.permutation(by_length)
        elif order == 'bucketed':
            buckets = np.array_split(by_length, min(self._config.numbuckets, len(by_length)) or 1)
            by_length = np.concatenate([rng.permutation(bucket) for bucket in buckets])
        steps = [by_length[start:start + self.step_size]
                 for start in range(0, len(by_length), self.step_size)]
        if order == 'bucketed':
            steps = [steps[i] for i in rng.permutation(len(steps))]
        return [step.tolist() for step in steps]

    def ends_update(self, index):
        """Whether an update ends with this step of an epoch."""
        return linked.ends_update(index, self.total_batches, 1, self._config)

    def padding(self, epoch=0):
        """Share of the frames of an epoch that only fill up their batch."""
        lengths = [[self.examples[i].n_steps for i in step] for step in self.order(epoch)]
        padded = sum(len(step) * max(step) for step in lengths)
        return 1 - sum(map(sum, lengths)) / padded if padded else 0.0

    def order_checksum(self, epoch):
        """A number that differs where an epoch has other utterances, or others in a step or in an
        update."""
        names = [[self.examples[i].utterance.name for i in step] for step in self.order(epoch)]
        return zlib.crc32((repr(names) + _update_settings(self._config)).encode())

    def feed(self, session, first_epoch=0, first_step=0, n_epochs=None):
        """Starts to read ahead; returns a Feeder. The queue has to be in the session's graph."""
        return Feeder(self, session, first_epoch, first_step, n_epochs)

    def read(self, index):
        """What the queue takes of an utterance: (float32 [n_context + n_steps + n_context,
        n_input], labels); None where it turns out unreadable, which is said once."""
        example, config = self.examples[index], self._config
        frames = self.features and self.features.get(example.utterance)
        if frames is None:
            state = self.features and self.features.state(example.utterance)
            try:
                frames = _compute_features(example.utterance, config)
            except audio.AudioError as error:
                return self._exclude(index, str(error))
            if state:
                self.features.put(example.utterance, frames, state)
        problem = _ctc_problem(len(frames), example.transcript)
        if problem:  # its header promised more
            return self._exclude(index, problem)
        return audio.whiten(frames, config.n_context), self._alphabet.encode(example.transcript)

    def _exclude(self, index, reason):
        with self._excluding:  # both are shared with every `subset`
            if self.examples[index].utterance not in self._unreadable:
                self._unreadable.add(self.examples[index].utterance)
                log.warning('excluded %s: %s', self.examples[index].utterance.name, reason)
                log.warning('%d of %d %s utterances excluded while reading',
                            len(self._unreadable), len(self.examples), self.name)

    def enqueue(self, session, items):
        """Puts utterances, as `read` gives them, into the queue; waits while it is full."""
        frames, labels = zip(*items)
        lengths = [len(each) - 2 * self._config.n_context for each in frames]
        values = (_padded(frames), lengths, _padded(labels), [len(each) for each in labels])
        session.run(self._enqueue, dict(zip(self._elements, values)))

    def close_queue(self, session):
        """Ends the queue, so that a feeder waiting for room in it ends too."""
        session.run(self._close)


def _update_settings(config):
    """What an update is made of beyond a batch, as text; empty where it is one batch."""
    if not config.accumulates:
        return ''
    return repr((config.numbatches_to_aggregate, config.linked_weights,
                 config.normalize_gradients and config.loss_norm))


_LAST = object()  # stands behind the last step, and behind the last epoch that is announced


class Feeder:
    """Fills the queue of a data set ahead of the graph, epoch after epoch, in the set's order.

    Reader threads compute the features, one thread enqueues them in order and announces each
    step once its utterances are in the queue. So a step that is run never waits for data, and
    an error among the threads reaches the caller instead of leaving it waiting.
    """

    def __init__(self, data_set, session, first_epoch, first_step, n_epochs):
        self._data_set, self._session = data_set, session
        self._first_epoch, self._first_step, self._n_epochs = first_epoch, first_step, n_epochs
        self._ready = queue.Queue(MAX_ANNOUNCED)
        self._closed, self._ended = threading.Event(), False
        self.waited = 0.0  # seconds in which steps had to wait for their utterances so far
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='feeder-' + data_set.name)
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
        """Whether no more steps will come."""
        return self._ended

    def all_steps(self):
        """Yields all Steps of the next epoch, also those of which nothing could be read."""
        while not self._ended:
            started = time.monotonic()
            item = self._ready.get()
            self.waited += time.monotonic() - started
            if isinstance(item, BaseException):
                self._ended = True
                raise item
            self._ended = item is _LAST
            if item is _LAST or item is None:
                return
            yield item

    def close(self):
        """Ends the threads; the queue can't be fed again."""
        self._closed.set()
        self._ended = True
        self._data_set.close_queue(self._session)
        self._thread.join()
        if self._data_set.features:
            self._data_set.features.flush()

    def _run(self):
        try:
            with concurrent.futures.ThreadPoolExecutor(N_READERS, 'reader') as readers:
                self._feed(readers)
            self._announce_when_there_is_room(_LAST)
        except BaseException as error:  # whatever it is, it must reach the caller
            self._announce_when_there_is_room(error)

    def _announce_when_there_is_room(self, item):
        while not self._closed.is_set():
            try:
                return self._ready.put(item, timeout=CLOSED_CHECK_S)
            except queue.Full:
                pass

    def _feed(self, readers):
        pending = collections.deque()
        steps = self._steps()
        while not self._closed.is_set():
            while len(pending) < 2 + N_READERS // self._data_set.step_size:
                step = next(steps, _LAST)
                if step is _LAST:
                    break
                pending.append(step and (step[0], step[1], [
                    readers.submit(self._read_all, part) for part in _parts(step[1])]))
            if not pending:
                return
            self._announce(pending.popleft())
        for step in pending:
            for future in step[2] if step else ():
                future.cancel()

    def _read_all(self, indices):
        return [self._data_set.read(index) for index in indices]

    def _steps(self):
        """(index, utterance indices) of each step, None at the end of each epoch."""
        epoch, first = self._first_epoch, self._first_step
        while self._n_epochs is None or epoch < self._first_epoch + self._n_epochs:
            yield from list(enumerate(self._data_set.order(epoch)))[first:]
            yield None
            epoch, first = epoch + 1, 0

    def _announce(self, step):
        if step is None:
            if self._data_set.features:
                self._data_set.features.flush()
            self._announce_when_there_is_room(None)
            return
        index, utterances, futures = step
        items = [item for future in futures for item in future.result()]
        read = [i for i, item in zip(utterances, items) if item is not None]
        try:
            if read:
                self._data_set.enqueue(self._session, [item for item in items if item is not None])
        except tf.errors.CancelledError:
            if self._closed.is_set():
                return
            raise
        data_set = self._data_set
        self._announce_when_there_is_room(
            Step(index, [data_set.examples[i] for i in read], data_set.queue_index, 1.0,
                 data_set.ends_update(index)))


def _parts(indices):
    """The indices of a step, cut for the reader threads: each in its own part, but few parts, as
    handing a part over costs more than reading a short utterance from the cache."""
    size = -(-len(indices) // N_READERS)
    return [indices[start:start + size] for start in range(0, len(indices), size)]


def _padded(arrays):
    """Arrays of unequal length as one, [len(arrays), longest, ...], padded with zeros."""
    padded = np.zeros((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]),
                      arrays[0].dtype)
    for row, array in zip(padded, arrays):
        row[:len(array)] = array
    return padded


def _compute_features(utterance, config):
    """MFCC of an utterance, float32 [n_steps, n_input]; AudioError where it can't be read."""
    samples = audio.read_audio(utterance.wav_filename, config.sample_rate, utterance.start_s,
                               utterance.stop_s, utterance.channel)
    return audio.mfcc(samples, config.sample_rate, config.n_input,
                      config.feature_stride).astype(np.float32)


def cut_windows(batch, n_context):
    """Cuts the context windows of a batch of frames with margins, in the graph.

    The bare frames travel through the queue, as the windows are 2*n_context + 1 times larger.

    Args:
      batch: Batch with features float32 [B, n_context + n_steps + n_context, n_input].
      n_context: frames on either side.
    Returns:
      Batch with features float32 [B, n_steps, n_input + 2*n_input*n_context], 0 past seq_len.
    """
    n_steps = tf.shape(batch.features)[1] - 2 * n_context
    windows = tf.concat([batch.features[:, i:i + n_steps] for i in range(2 * n_context + 1)],
                        axis=2)
    mask = tf.sequence_mask(batch.seq_len, n_steps, dtype=tf.float32)
    return batch._replace(features=windows * mask[:, :, None])


def tower_batch(batch, tower, n_towers, n_context):
    """The share of one tower in a step's batch.

    The utterances are dealt out in order, as evenly as they go. A tower for which none is left
    gets the first one, so that its operations have something to work on, and the weight 0.

    Args:
      batch: Batch of frames with margins, for all towers.
      tower, n_towers: its index, their number.
      n_context: frames on either side.
    Returns:
      (Batch with windows, its padding cut to its own longest utterance; int32 scalar, the
      number of utterances that count).
    """
    count = tf.shape(batch.seq_len)[0]
    if n_towers == 1:
        return cut_windows(batch, n_context), count
    base, extra = count // n_towers, count % n_towers
    size = base + tf.cast(tower < extra, tf.int32)
    start = tf.where(size > 0, tower * base + tf.minimum(tower, extra), 0)
    share = Batch(*[part[start:start + tf.maximum(size, 1)] for part in batch])
    share = share._replace(
        features=share.features[:, :tf.reduce_max(share.seq_len) + 2 * n_context],
        labels=share.labels[:, :tf.reduce_max(share.label_len)])
    return cut_windows(share, n_context), size
