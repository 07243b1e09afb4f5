"""Data sets: which utterances can be used, and their order in each epoch.

`make_data_sets` checks the utterances that an importer lists and leaves out those that cannot be
used. A `DataSet` orders its utterances, divides them into steps, and reads their features and
labels.
"""

import collections
import copy
import functools
import logging
import threading
import zlib

import numpy as np

from util import audio, errors, records, text
from util.feeding import cache, linked

log = logging.getLogger(__name__)

FEATURES_VERSION = 1  # increased when util/audio.py changes, so that old caches are not used
STEPS_OFF = 30  # time steps by which a header may be wrong, as those of MP3 files are
NAMED_EXCLUSIONS = 100  # excluded utterances that the log names; the others are only counted


def make_data_sets(config, alphabet, listing, augmentation=None):
    """Checks the utterances of a listing and returns the three data sets.

    Utterances that cannot be used are left out; their names, exclusion reasons and number are
    logged.

    Args:
      config: Config.
      alphabet: text.Alphabet.
      listing: records.Listing.
      augmentation: augmenter.Augmenter of the training set; None: there is none.
    Returns:
      DataSets.
    Raises:
      DataError: no utterance is left for a stage of the training or for a linked corpus.
    """
    patience = cache.Patience()
    headers = cache.HeaderCache(config.cache_dir, patience)
    headers.load(utterance.wav_filename for part in listing for utterance in part)
    features = _feature_cache(config, patience)
    sets, checked = [], {}
    for set_name, utterances in zip(records.SET_NAMES, listing):
        examples, sources = [], collections.Counter()
        for utterance in _first(utterances, getattr(config, 'limit_' + set_name), config):
            if utterance not in checked:
                checked[utterance] = _check(utterance, headers, config, alphabet)
            example, info = checked[utterance]
            if info:
                examples.append(example)
                sources[info.rate, info.channels] += 1
        sets.append(DataSet(set_name, examples, config, alphabet, features, sources))
    sets[0].augmentation = augmentation
    headers.close()
    excluded = {utterance: reason for utterance, (reason, info) in checked.items() if not info}
    sources = collections.Counter(
        (info.rate, 1 if utterance.channel is not None else info.channels)
        for utterance, (_, info) in checked.items()
        if info
    )
    _log_exclusions(excluded, len(checked))
    _log_conversions(sources, config.sample_rate)
    return DataSets(*sets, excluded, _stages(sets[0], config))


def _first(utterances, limit, config):
    """Returns the first `limit` utterances, or those of each linked corpus; 0: all."""
    if not limit or not config.linked_weights:
        return utterances[: limit or None]
    kept, counts = [], collections.Counter()
    for utterance in utterances:
        counts[utterance.corpus] += 1
        if counts[utterance.corpus] <= limit:
            kept.append(utterance)
    return kept


def _feature_cache(config, patience):
    """Returns the feature cache that all three sets share; None if it is off.

    The patience is shared with the cache of headers."""
    if not config.feature_cache:
        return None
    settings: tuple = (FEATURES_VERSION, config.sample_rate, config.n_input, config.feature_stride)
    if config.dynamic_range:
        settings += (config.dynamic_range,)
    return cache.FeatureCache(
        config.cache_dir,
        config.importer,
        settings,
        config.n_input,
        config.feature_cache_gb * 1e9,
        patience,
    )


# Validation


def _check(utterance, headers, config, alphabet):
    """Checks by its header and its transcript whether an utterance can be used.

    Returns:
      (Example, AudioInfo of its file) if it can, (exclusion reason, None) if it cannot.
    """
    if utterance.exclusion_reason:
        return utterance.exclusion_reason, None
    transcript, unknown = text.clean_transcript(utterance.transcript, alphabet)
    if not transcript:
        return 'empty transcript', None
    if unknown:
        return 'characters outside the alphabet: %s' % ', '.join(
            text.describe_char(char) for char in unknown
        ), None
    try:
        info = headers.info(utterance.wav_filename)
        audio.check_channel(info, utterance.channel)
        _, count = audio.segment(info, utterance.start_s, utterance.stop_s)
        n_samples = audio.resampled_length(count, info.rate, config.sample_rate)
        audio.check_length(n_samples, config.sample_rate)
    except audio.AudioError as error:
        return str(error), None
    steps = audio.n_steps(n_samples, config.sample_rate, config.feature_stride)
    reason = _too_short_for_ctc(steps, transcript)
    if reason:
        return reason, None
    return records.Example(utterance, transcript, steps, count / info.rate), info


def _too_short_for_ctc(steps, transcript):
    """Returns an exclusion reason if `steps` time steps are too few for a transcript, or None."""
    if steps >= 2 * len(transcript) or steps >= text.required_steps(transcript):
        return None
    return 'too short for its transcript: %d time steps, CTC needs %d for %d labels' % (
        steps,
        text.required_steps(transcript),
        len(transcript),
    )


def _log_exclusions(excluded, n_utterances):
    """Logs the excluded utterances, {Utterance: exclusion reason}, and their number."""
    for utterance in list(excluded)[:NAMED_EXCLUSIONS]:
        log.warning('excluded %s: %s', utterance.name, excluded[utterance])
    if excluded:
        log.warning('%d of %d utterances excluded', len(excluded), n_utterances)


def _log_conversions(sources, sample_rate):
    """Logs how many utterances are resampled or mixed down.

    Args:
      sources: {(rate in Hz, channels): number of utterances}.
      sample_rate: Hz, the rate to which audio is converted.
    """
    other_rates = collections.Counter()
    for (rate, _), count in sources.items():
        other_rates[rate] += count
    del other_rates[sample_rate]
    if other_rates:
        log.info(
            'resampled to %d Hz: %s',
            sample_rate,
            ', '.join('%d from %d Hz' % (n, rate) for rate, n in sorted(other_rates.items())),
        )
    several = sum(n for (_, channels), n in sources.items() if channels > 1)
    if several:
        log.info('mixed down to one channel (mean): %d', several)


# Stages and linked corpora


def _stages(train, config):
    """Returns the training data of each stage: a DataSet or linked.LinkedSets.

    Raises:
      DataError: no utterance is left for a stage.
    """
    if config.linked_weights:
        train = _link(train, config)
    stages = [train if length is None else train.up_to(length) for length in config.stages]
    for stage, length in zip(stages, config.stages):
        if config.training_iters and len(train) and not len(stage):
            raise errors.DataError(
                'ds_segment_lengths: no training utterance has at most %d time steps, the '
                'shortest has %d'
                % (
                    length,
                    min(example.n_steps for part in train.parts for example in part.examples),
                )
            )
    return stages


def _link(train, config):
    """Returns the training set as linked.LinkedSets of its corpora, or unchanged if only one of
    them has a weight.

    Raises:
      DataError: no utterance of a corpus can be used.
    """
    weights = {
        name: weight for name, weight in zip(config.corpora, config.linked_weights) if weight
    }
    if len(weights) < 2 or not len(train) or not config.training_iters:
        return train
    sets = []
    for name in weights:
        sets.append(train.of_corpus(name))
        if not len(sets[-1]):
            raise errors.DataError(
                'ds_importer_weights: no usable training utterance of %s is '
                'left; its weight must be 0' % name
            )
    return linked.LinkedSets(sets, list(weights.values()), config)


class DataSets:
    """The three data sets of a run.

    Attributes:
      train, dev, test: DataSet.
      excluded: {Utterance: exclusion reason} of the utterances that cannot be used.
      stages: list of the training data of each stage, a DataSet or linked.LinkedSets.
    """

    def __init__(self, train, dev, test, excluded=None, stages=None):
        self.train, self.dev, self.test = train, dev, test
        self.excluded = excluded or {}
        self.stages = stages or [train]
        for index, data_set in enumerate(self.with_queues()):
            data_set.queue_index = index

    def __iter__(self):
        return iter((self.train, self.dev, self.test))

    def n_unreadable(self):
        """Returns {name of the set: number of utterances that were excluded while reading}."""
        train = [part.unreadable for stage in self.stages for part in stage.parts]
        return {
            self.train.name: len(set().union(*train)),
            **{each.name: len(each.unreadable) for each in (self.dev, self.test)},
        }

    def with_queues(self):
        """Returns the DataSets that need a queue each, in the order of their `queue_index`."""
        return [data_set for stage in self.stages for data_set in stage.parts] + [
            self.dev,
            self.test,
        ]


class DataSet:
    """The utterances of one set, and their order in each epoch.

    Attributes:
      augmentation: augmenter.Augmenter, or None.
      laps: epochs of this set in one epoch of the training.
      title: what messages call the set: its name, and the corpus if it is one of linked ones.
      timeout_s: s, limit of the time in which an utterance is to be read; 0: none.

    Args:
      name: 'train', 'dev' or 'test'.
      examples: list of records.Example.
      config: Config.
      alphabet: text.Alphabet.
      features: cache.FeatureCache, or None.
      sources: {(rate in Hz, channels): number of utterances}, for reports.
    """

    def __init__(self, name, examples, config, alphabet=None, features=None, sources=None):
        self.name = self.title = name
        self.examples = examples
        self.features = features
        self.sources = sources or collections.Counter()
        self.step_size = config.set_batch_size(name) * max(1, config.towers)  # utterances
        self.n_input, self.n_context = config.n_input, config.n_context
        self.queue_index = 0
        self.augmentation, self.laps = None, 1.0
        self.timeout_s = config.feed_timeout_secs
        self._config, self._alphabet = config, alphabet
        self._size, self._unreadable, self._excluding = len(examples), set(), threading.Lock()

    def __len__(self):
        return len(self.examples)

    @property
    def parts(self):
        """Returns the DataSets that this one consists of: itself."""
        return [self]

    def subset(self, belongs):
        """Returns a DataSet, with a queue of its own, of the examples that `belongs` accepts."""
        part = copy.copy(self)
        part.examples = [example for example in self.examples if belongs(example)]
        part.__dict__.pop('_numbers', None)  # those of other examples
        return part

    def of_corpus(self, name):
        """Returns the `subset` of the utterances of a corpus, which counts its own exclusions."""
        part = self.subset(lambda example: example.utterance.corpus == name)
        part.title = '%s %s' % (name, self.name)
        part._size, part._unreadable = len(part), set()
        return part

    def up_to(self, length):
        """Returns the `subset` of the utterances of at most `length` time steps."""
        return self.subset(lambda example: example.n_steps <= length)

    @property
    def unreadable(self):
        """Returns the utterances that turned out to be unusable when they were read, a set."""
        with self._excluding:
            return set(self._unreadable)

    @property
    def total_batches(self):
        """Returns the number of steps of an epoch, each a batch for all towers together."""
        return -(-len(self.examples) // self.step_size)

    @property
    def seconds(self):
        """Returns the length of the audio of all utterances, in seconds."""
        return sum(example.seconds for example in self.examples)

    # Order

    def order(self, epoch):
        """Returns the indices of the utterances in the order of an epoch, a list for each step.

        The order is a function of the seed and the epoch alone. The dev and test sets are always
        ordered by length.
        """
        rng = np.random.default_rng([self._config.random_seed, epoch])
        by_length = np.argsort([example.n_steps for example in self.examples], kind='stable')
        order = self._config.batch_order if self.name == 'train' else 'sorted'
        if order == 'shuffled':
            by_length = rng.permutation(by_length)
        elif order == 'bucketed':
            buckets = np.array_split(by_length, min(self._config.numbuckets, len(by_length)) or 1)
            by_length = np.concatenate([rng.permutation(bucket) for bucket in buckets])
        steps = [
            by_length[start : start + self.step_size]
            for start in range(0, len(by_length), self.step_size)
        ]
        if order == 'bucketed':
            steps = [steps[i] for i in rng.permutation(len(steps))]
        return [step.tolist() for step in steps]

    def order_checksum(self, epoch):
        """Returns a checksum of the utterances of an epoch and of their division into steps and
        updates."""
        names = [[self.examples[i].utterance.name for i in step] for step in self.order(epoch)]
        return zlib.crc32((repr(names) + _update_settings(self._config)).encode())

    def ends_update(self, index):
        """Tells whether an update ends with this step of an epoch."""
        return linked.ends_update(index, self.total_batches, 1, self._config)

    def padding(self, epoch=0):
        """Returns the share of the frames of an epoch that only fill up their batch."""
        lengths = [[self.examples[i].n_steps for i in step] for step in self.order(epoch)]
        padded = sum(len(step) * max(step) for step in lengths)
        return 1 - sum(map(sum, lengths)) / padded if padded else 0.0

    # Reading

    def read(self, index, epoch=0):
        """Reads the features and labels of an utterance; the reader threads call this.

        Args:
          index: index of the utterance.
          epoch: epoch of this set, on which augmentation depends.
        Returns:
          (normalised MFCC with the margins of the context windows, float32 [n_context + n_steps +
          n_context, n_input]; labels, int32 [n_labels]). None if the utterance turns out to be
          unusable, which is logged once.
        """
        example, config = self.examples[index], self._config
        try:
            frames = self._frames(index, epoch)
        except audio.AudioError as error:
            return self._exclude(index, str(error))
        reason = _too_short_for_ctc(len(frames), example.transcript)
        if reason:  # the header claimed more samples than there are
            return self._exclude(index, reason)
        normal = audio.normalise(frames, config.n_context, config.feature_norm)
        return normal, self._alphabet.encode(example.transcript)

    def _frames(self, index, epoch):
        """Returns the MFCC of an utterance in an epoch, float32 [n_steps, n_input].

        Raises:
          AudioError: the file cannot be read.
        """
        example = self.examples[index]
        if self.augmentation is None:
            return self._clean_frames(example)
        return self.augmentation.features(
            example,
            (epoch, self._numbers[index]),
            self.share(epoch),
            lambda: self._clean_frames(example),
        )

    def _clean_frames(self, example):
        """Returns the MFCC of an Example without augmentation, from the cache if they are there."""
        frames = self.features and self.features.get(example.utterance)
        if frames is None:
            state = self.features and self.features.state(example.utterance)
            frames = _compute_features(example.utterance, self._config)
            if abs(len(frames) - example.n_steps) > STEPS_OFF:
                raise audio.AudioError(
                    '%d time steps, but %d when its header was read; the file has changed'
                    % (len(frames), example.n_steps)
                )
            if state:
                self.features.put(example.utterance, frames, state)
        return frames

    def share(self, epoch):
        """Returns the share of the training that is done at the beginning of an epoch of this set,
        if no stage ends early."""
        n_epochs = len(self._config.stages) * self._config.training_iters
        return min(1.0, epoch / self.laps / max(1, n_epochs))

    @functools.cached_property
    def _numbers(self):
        """Returns a number for each utterance, on which its augmentation depends: of its name,
        which is the same wherever the corpus lies, and of how often it was listed before."""
        numbers, listed = [], collections.Counter()
        for example in self.examples:
            name = example.utterance.name
            numbers.append(zlib.crc32(('%s %d' % (name, listed[name])).encode('utf-8', 'replace')))
            listed[name] += 1
        return numbers

    def _exclude(self, index, reason):
        """Notes an utterance that turns out to be unusable, and logs it once; returns None."""
        with self._excluding:  # it and the set are shared with the subsets of the stages
            if self.examples[index].utterance not in self._unreadable:
                self._unreadable.add(self.examples[index].utterance)
                log.warning('excluded %s: %s', self.examples[index].utterance.name, reason)
                log.warning(
                    '%d of %d %s utterances excluded while reading',
                    len(self._unreadable),
                    self._size,
                    self.title,
                )


def _update_settings(config):
    """Returns the settings that combine batches to updates, as text; '' if each batch is one."""
    if not config.accumulates:
        return ''
    return repr(
        (
            config.numbatches_to_aggregate,
            config.linked_weights,
            config.normalize_gradients and config.loss_norm,
        )
    )


def _compute_features(utterance, config):
    """Returns the MFCC of an utterance, float32 [n_steps, n_input].

    Raises:
      AudioError: the file cannot be read.
    """
    samples = audio.read_utterance(utterance, config.sample_rate)
    return audio.mfcc(
        samples, config.sample_rate, config.n_input, config.feature_stride, config.dynamic_range
    ).astype(np.float32)
