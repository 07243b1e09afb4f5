"""Where a run goes on: the loop of the training, schedule and feeder against a simple reference.

The weights are made up: they are the list of the updates that they were trained by, so that two
runs have the same weights only if they took the same utterances in the same order at the same
learning rates. Hypothesis draws settings, corpora and interruptions.
"""

import contextlib
import logging
import math
import types
import zlib
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import assume, given, strategies as st

import DeepSpeech
from helpers import load_config
from util import errors, records, text
from util.feeding import data_sets, feeder, linked
from util.graph import handles
from util.run import checkpoints, reports, schedule, signals

pytestmark = pytest.mark.run

MANY = 10**6  # hook calls that no run makes


class Killed(BaseException):
    """Ends a run at once, as SIGKILL does."""


class Update(NamedTuple):
    """An update of the made-up weights."""

    number: int
    epoch: int
    step: int  # of the epoch, the one that ended the update
    batches: tuple  # of (names of the utterances, weight of their corpus)
    learning_rate: float

    def rounded(self):
        """Returns the update with a learning rate that does not depend on rounding."""
        return self._replace(learning_rate='%.9g' % self.learning_rate)


def dev_loss(weights):
    """Returns a dev loss that makes better, equal and worse validations about equally frequent."""
    rounded = [update.rounded() for update in weights]
    return 1.0 + zlib.crc32(repr(rounded).encode()) % 7


# The reference


def expected_weights(config, corpora, unreadable):
    """Trains made-up weights in plain loops, without interruption; returns their updates.

    Args:
      corpora: {name: lengths of its utterances in time steps}.
      unreadable: names of utterances.
    """
    weights, best_weights, best, number, epoch = (), (), math.inf, 0, 0
    n_stages = len(config.stages)
    for stage, limit in enumerate(config.stages):
        parts = [part.up_to(limit or MANY) for part in make_parts(config, corpora)]
        shares = [share for part, share in zip(parts, config.linked_weights or [1.0]) if len(part)]
        parts = [part for part in parts if len(part)]
        rounds = max(part.total_batches for part in parts)
        n_bad, factor = 0, 1.0
        for epoch_of_stage in range(config.training_iters):
            batches = []
            for index in range(rounds * len(parts)):
                part = parts[index % len(parts)]
                lap, batch = divmod(epoch * rounds + index // len(parts), part.total_batches)
                names = [part.examples[i].utterance.name for i in part.order(lap)[batch]]
                names = tuple(name for name in names if name not in unreadable)
                if names:
                    batches.append((names, shares[index % len(parts)]))
                n_steps = rounds * len(parts)
                is_full = (index + 1) % (len(parts) * config.numbatches_to_aggregate) == 0
                if batches and (is_full or index + 1 == n_steps):
                    number += 1
                    share = stage * config.training_iters + epoch_of_stage + index / n_steps
                    share /= n_stages * config.training_iters
                    rate = config.learning_rate * factor * decay(config, share)
                    rate *= min(1, number / (config.warmup_steps or 1))
                    weights += (Update(number, epoch, index, tuple(batches), rate),)
                    batches = []
            epoch += 1
            is_last = epoch_of_stage + 1 == config.training_iters
            if epoch % config.validation_step == 0 or is_last:
                if dev_loss(weights) < best:
                    best, best_weights = dev_loss(weights), weights
                    n_bad = 0 if config.reset_tries else n_bad
                else:
                    factor *= config.valid_adapt
                    n_bad += 1
                    if config.go_back:
                        weights = best_weights
            if 0 < config.num_tries <= n_bad:
                if stage + 1 < n_stages:
                    weights = best_weights
                break
    return weights


def decay(config, share):
    """Returns the factor of the learning rate after a share of the run."""
    final = config.learning_rate_decay
    if config.learning_rate_schedule == 'cosine':
        return final + (1 - final) * (0.5 + 0.5 * math.cos(math.pi * share))
    return math.exp(share * math.log(final))


# The runs


def make_parts(config, corpora):
    """Returns a DataSet for each corpus."""
    return [
        data_sets.DataSet(
            'train',
            [
                records.Example(records.Utterance('', '%s%d' % (name, i), 'a'), 'a', n, 1.0)
                for i, n in enumerate(lengths)
            ],
            config,
        )
        for name, lengths in corpora.items()
    ]


def make_sets(config, corpora):
    """Returns the DataSets of a run, with a dev set of one utterance."""
    train, *others = make_parts(config, corpora)
    if others:
        train = linked.LinkedSets([train, *others], config.linked_weights, config)
    stages = [train.up_to(limit or MANY) for limit in config.stages]
    dev = data_sets.DataSet('dev', make_parts(config, {'dev': [1]})[0].examples, config)
    return data_sets.DataSets(train, dev, dev, stages=stages)


_QUEUE = types.SimpleNamespace(enqueue=lambda *_: None, close=lambda *_: None)


def record(kind, **values):
    """Returns a NamedTuple with these values; its other fields are None."""
    return kind(**{**dict.fromkeys(kind._fields), **values})


class Disk:
    """What outlives a run: the newest and the best checkpoint, each (State, weights, sums)."""

    newest = best = None


class Machine(checkpoints.Checkpoints):
    """Made-up weights and sums, and checkpoints of them on a Disk; stands in for a session, too."""

    _newest, _best, _best_dir = 'newest', 'best', ''
    _doubted = _last = _saved = None

    def __init__(self, config, sets, disk, hook):
        self._config, self._data_sets, self._hook, self._disk = config, sets, hook, disk
        self._session = self
        self.weights, self.sums, self.number = (), (), 0
        self._model = types.SimpleNamespace(
            accumulation=types.SimpleNamespace(reset='reset') if config.accumulates else None,
            savers=types.SimpleNamespace(newest='newest', best='best'),
            global_step='number',
            queues=[_QUEUE] * len(sets.with_queues()),
            towers=[],
        )

    @property
    def model(self):
        """Returns what stands in for the handles.Model."""
        return self._model

    def run(self, fetch):
        """Does what a session does with the handles of `_model`."""
        if fetch == 'reset':
            self.sums = ()
        return self.number

    def save(self, state, passing=False):
        return self._save('newest', state)

    def due_by_time(self):
        return False

    def _save(self, saver, state):
        setattr(self._disk, saver, (state, self.weights, self.sums, self.number))
        self._hook('saved', state)
        return saver

    def _find_best(self, state):
        best = self._disk.best
        return 'best' if best and best[0].best_dev_loss == state.best_dev_loss else None

    def go_back(self, state):
        if self._find_best(state):
            self.weights = self._disk.best[1]
            return True
        return False

    def restore(self):
        """Returns the State of the newest checkpoint after loading it, or the initial one."""
        if not self._disk.newest:
            return schedule.INITIAL_STATE
        state, self.weights, self.sums, self.number = self._disk.newest
        return self._go_on(state, 'newest')

    def train_step(self, run, state, step, number, query_report):
        """Does what DeepSpeech.train_step does."""
        batch = update = None
        if step.examples:
            names = tuple(example.utterance.name for example in step.examples)
            self.sums += ((names, step.weight),)
            batch = record(handles.BatchResult, loss=float(len(names)), shapes=())
        if step.ends_update and self.sums:
            rate = run.learning_rate(state, number)
            self.weights += (Update(number, state.epoch, step.index, self.sums, rate),)
            self.sums, self.number = (), self.number + 1
            update = record(handles.UpdateResult, number=self.number, loss=1.0)
        return record(handles.StepResult, batch=batch, update=update)

    def run_inference(self, run, data_set, feed):
        """Does what DeepSpeech.run_inference does."""
        rates = text.ErrorRates(0.5, 0.5, 2, 0, 0, 1)
        results = reports.Results([], [], [], [])
        return reports.Outcome(dev_loss(self.weights), None, rates, results, 1.0, 1.0, 0.0, [])


def train(config, corpora, unreadable, disk, interruption=(MANY, Killed)):
    """Runs DeepSpeech.train, which goes on from a Disk, until its end or the interruption.

    Args:
      interruption: (number of the call of the hook, Killed or Interrupted as after Ctrl-C).
    Returns:
      The weights.
    Raises:
      Killed, Interrupted: the run was interrupted.
    """
    calls, stop = iter(range(MANY)), signals.StopRequest()

    def hook(point, state):
        if next(calls) == interruption[0]:
            if interruption[1] is Killed:
                raise Killed
            stop.wanted = True

    def read(data_set, index, epoch):
        return None if data_set.examples[index].utterance.name in unreadable else 'features'

    sets = make_sets(config, corpora)
    machine = Machine(config, sets, disk, hook)
    nothing = mock.MagicMock()
    run = DeepSpeech.Run(
        *(config, None, sets, machine.model, nothing, nothing, stop, hook, None),
        *(machine, machine),
    )
    with (
        mock.patch.multiple(
            DeepSpeech,
            train_step=machine.train_step,
            run_inference=machine.run_inference,
            _feed_dev=contextlib.nullcontext,
        ),
        mock.patch.object(data_sets.DataSet, 'read', read),
        mock.patch.object(data_sets.log, 'warning'),
        mock.patch.object(feeder, 'CHECK_S', 0.002),
    ):
        DeepSpeech.train(run, machine.restore())
    return machine.weights


# Strategies

LENGTHS = st.lists(st.integers(2, 9), min_size=1, max_size=5)


@st.composite
def plans(draw):
    """Draws (settings, corpora, names of unreadable utterances)."""
    corpora = dict(zip('abc', draw(st.lists(LENGTHS, min_size=1, max_size=3))))
    if len(corpora) > 1:
        importers = {
            'importer': ','.join(['csv'] * len(corpora)),
            'importer_weights': ','.join(('1', '0.5', '0.25')[: len(corpora)]),
        }
    else:
        importers = {}
    values = dict(
        importers,
        display_step=0,
        epochs=draw(st.integers(1, 4)),
        train_batch_size=draw(st.integers(1, 3)),
        numbatches_to_aggregate=draw(st.integers(1, 3)),
        batch_order=draw(st.sampled_from(['sorted', 'shuffled', 'bucketed'])),
        validation_step=draw(st.integers(1, 2)),
        checkpoint_step=draw(st.integers(0, 2)),
        checkpoint_steps=draw(st.integers(0, 3)),
        learning_rate_decay=draw(st.sampled_from([1.0, 0.3])),
        learning_rate_schedule=draw(st.sampled_from(['exponential', 'cosine'])),
        warmup_steps=draw(st.integers(0, 5)),
        valid_adapt=draw(st.sampled_from([1.0, 0.5])),
        num_tries=draw(st.integers(0, 2)),
        reset_tries=int(draw(st.booleans())),
        go_back=int(draw(st.booleans())),
        segment_lengths=draw(st.sampled_from(['', '5,full', '4,7'])),
    )
    names = ['%s%d' % (name, i) for name, lengths in corpora.items() for i in range(len(lengths))]
    unreadable = draw(st.sets(st.sampled_from(names), max_size=2))
    limits = [limit or MANY for limit in load_config(**values).stages]
    assume(all(_mostly_readable(corpora, unreadable, limit) for limit in limits))
    return values, corpora, unreadable


def _mostly_readable(corpora, unreadable, limit):
    """Tells whether a stage has utterances, and more than half of those of each corpus are
    readable; other runs end with an error."""
    counts = []
    for name, lengths in corpora.items():
        names = ['%s%d' % (name, i) for i, length in enumerate(lengths) if length <= limit]
        counts.append((len(names), len(unreadable.intersection(names))))
    return any(n for n, _ in counts) and all(2 * n_bad < n for n, n_bad in counts if n)


INTERRUPTIONS = st.lists(
    st.tuples(st.integers(0, 25), st.sampled_from([Killed, errors.Interrupted])), max_size=4
)


@pytest.fixture(scope='module', autouse=True)
def _quiet():
    """Keeps the lines of the runs out of the log."""
    with mock.patch.object(logging.getLogger('DeepSpeech'), 'disabled', True):
        yield


@given(plan=plans(), interruptions=INTERRUPTIONS)
def test_interrupted_runs_train_the_same_weights_as_plain_loops(plan, interruptions):
    plan = (load_config(**plan[0]), *plan[1:])
    expected = [update.rounded() for update in expected_weights(*plan)]
    whole = train(*plan, Disk())
    assert [update.rounded() for update in whole] == expected
    disk = Disk()
    for interruption in interruptions:
        with contextlib.suppress(Killed, errors.Interrupted):
            train(*plan, disk, interruption)
    assert train(*plan, disk) == whole


@pytest.mark.parametrize('kind', [Killed, errors.Interrupted])
def test_a_run_may_be_interrupted_wherever_it_is(kind):
    """The run has linked corpora, sums of two rounds and two stages, and goes back."""
    values = {
        'importer': 'csv,csv',
        'importer_weights': '1,0.5',
        'numbatches_to_aggregate': 2,
        'train_batch_size': 2,
        'segment_lengths': '5,full',
        'epochs': 2,
        'display_step': 0,
        'go_back': 1,
        'learning_rate_decay': 0.3,
    }
    plan = load_config(**values), {'a': [3, 5, 2, 2, 9], 'b': [4, 4, 3, 8, 2, 5]}, {'b5'}
    whole = train(*plan, Disk())
    assert [update.rounded() for update in whole] == [
        update.rounded() for update in expected_weights(*plan)
    ]
    for call in range(MANY):
        disk = Disk()
        try:
            train(*plan, disk, (call, kind))
            break
        except (Killed, errors.Interrupted):
            pass
        assert train(*plan, disk) == whole, call
    assert call > 25
