"""Sums of gradients over several batches: by hand-worked numbers, and against the joined batch."""

import functools

import numpy as np
import pytest

import DeepSpeech
from helpers import load_config, unoptimised
from util import records
from util.graph import gradients as gradients_module
from util.tf1 import tf

N_INPUT, N_CONTEXT, N_CHARACTER = 4, 1, 6
LENGTHS, N_LABELS = [11, 7, 9, 8, 10, 6], [3, 2, 4, 1, 2, 3]
SIZES = {
    'n_input': N_INPUT,
    'n_context': N_CONTEXT,
    'n_hidden_1': 6,
    'n_hidden_2': 8,
    'n_hidden_5': 9,
    'n_cell_dim': 5,
    'default_stddev': 0.1,
    'dropout_rate': 0,
}


def say(what, deviation):
    """The deviations stand in the output of `pytest -s`."""
    print('\ndeviation of %s: %.1e' % (what, deviation))


def batch_of(rows):
    """Batch of utterances of `LENGTHS`, padded to the longest of them."""
    steps, labels = max(LENGTHS[r] for r in rows), max(N_LABELS[r] for r in rows)
    frames = np.zeros((len(rows), steps + 2 * N_CONTEXT, N_INPUT), np.float32)
    transcripts = np.zeros((len(rows), labels), np.int32)
    for row, number in enumerate(rows):
        rng = np.random.default_rng(number)
        length = LENGTHS[number] + 2 * N_CONTEXT
        frames[row, :length] = rng.normal(size=(length, N_INPUT))
        transcripts[row, : N_LABELS[number]] = rng.integers(0, N_CHARACTER - 1, N_LABELS[number])
    return records.Batch(
        frames, [LENGTHS[r] for r in rows], transcripts, [N_LABELS[r] for r in rows]
    )


class Recording:
    """An optimizer that keeps the gradients which it applies."""

    def __init__(self, optimizer, applied):
        self.optimizer, self.applied = optimizer, applied

    def apply_gradients(self, pairs, global_step):
        def keep(*gradients):
            self.applied.append(gradients)

        kept = tf.numpy_function(keep, [gradient for gradient, _ in pairs], [])
        return tf.group(kept, self.optimizer.apply_gradients(pairs, global_step))


class Trainer:
    """A graph with the update of these settings; every one starts with the same weights."""

    def __init__(self, towers, values):
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.set_random_seed(3)
            config = load_config(**{**SIZES, 'towers': towers, **values})
            self.batch = records.Batch(
                tf.placeholder(tf.float32, [None, None, N_INPUT]),
                tf.placeholder(tf.int32, [None]),
                tf.placeholder(tf.int32, [None, None]),
                tf.placeholder(tf.int32, [None]),
            )
            self.optimizer = DeepSpeech.create_optimizer(config)
            n_batches = gradients_module.batch_counter() if config.accumulates else None
            step = tf.train.get_or_create_global_step()
            results = DeepSpeech.get_tower_results(
                self.batch,
                ['/cpu:%d' % i for i in range(towers)],
                config=config,
                n_character=N_CHARACTER,
                optimizer=self.optimizer,
            )
            averaged = DeepSpeech.average_gradients(
                results.gradients, DeepSpeech.tower_weights(results.towers)
            )
            self.gradients = [gradient for gradient, _ in averaged]
            self.applied = []  # the gradients of each update
            recording = Recording(self.optimizer, self.applied)
            if config.accumulates:
                self.update, self.accumulation = DeepSpeech._accumulating_update(
                    recording, averaged, self.batch, results.avg_loss, n_batches, step, config
                )
            else:
                self.update, self.accumulation = (
                    DeepSpeech._update(recording, averaged, results.avg_loss, step, config),
                    None,
                )
            self.weights = tf.trainable_variables()
            self.session = tf.Session(config=unoptimised(towers))
            self.session.run(tf.global_variables_initializer())
            variables = tf.global_variables()
            self.initialisers = [v.initializer for v in variables]
            self.first_values = dict(
                zip([v.initial_value for v in variables], self.session.run(variables))
            )

    def start_again(self):
        """Gives all variables the values that they had at first."""
        self.applied.clear()
        self.session.run(self.initialisers, self.first_values)

    def feed(self, rows):
        return dict(zip(self.batch, batch_of(rows)))

    def train(self, batches, weights=None):
        """One update of these batches; returns its loss."""
        if self.accumulation is None:
            [rows] = batches
            return self.session.run([self.update.number, self.update.loss], self.feed(rows))[1]
        for rows, weight in zip(batches, weights or [1.0] * len(batches)):
            self.session.run(
                self.accumulation.add, {**self.feed(rows), self.accumulation.weight: weight}
            )
        return self.session.run([self.update.number, self.update.loss])[1]

    def gradient(self, rows):
        """Gradients of the mean loss of a batch, without an update."""
        return self.session.run(self.gradients, self.feed(rows))

    def values(self):
        return self.session.run(self.weights)

    def sums(self):
        with self.graph.as_default():
            return {
                v.op.name: self.session.run(v)
                for v in tf.global_variables()
                if v.op.name.startswith('accumulated/')
            }


@functools.cache  # building a graph takes longer than an update
def _built(towers, settings):
    return Trainer(towers, dict(settings))


def trainer(towers=1, **values):
    """A Trainer with its first weights; the tests share one for the same settings."""
    built = _built(towers, tuple(values.items()))
    built.start_again()
    return built


def deviation(got, expected):
    """Largest difference, relative to the largest value of each."""
    return max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(got, expected))


def applied(built, *args):
    """(loss, gradients) of an update by a Trainer."""
    built.applied.clear()
    return built.train(*args), built.applied[-1]


@pytest.mark.run  # as long as ten others
@pytest.mark.parametrize('towers', (1, 2))
@pytest.mark.parametrize(
    'settings, normalised', [({}, {}), ({}, {'normalize_gradients': 1}), ({'rnn': 'vanilla'}, {})]
)
def test_three_rounds_of_two_are_one_batch_of_six(settings, normalised, towers):
    joined = trainer(towers, **settings)
    rounds = trainer(towers, numbatches_to_aggregate=3, **settings, **normalised)
    worst = 0.0
    for rows in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4], [2, 4, 0, 1, 5, 3]):
        expected = joined.train([rows])
        loss = rounds.train([rows[0:2], rows[2:4], rows[4:6]])
        worst = max(worst, abs(loss / expected - 1))
        worst = max(worst, deviation(rounds.values(), joined.values()))
    say(
        '3 rounds against the joined batch, %d towers, %s' % (towers, {**settings, **normalised}),
        worst,
    )
    assert worst < 1e-6


def test_normalised_batches_of_unequal_size_are_the_joined_batch():
    joined, rounds = trainer(), trainer(numbatches_to_aggregate=2, normalize_gradients=1)
    loss, expected = applied(joined, [[0, 1, 2, 3, 4]])
    got_loss, got = applied(rounds, [[0, 1, 2, 3], [4]])
    say('unequal batches, normalised, against the joined one', deviation(got, expected))
    assert deviation(got, expected) < 1e-6 and got_loss == pytest.approx(loss, rel=1e-6)


def test_without_normalising_batches_count_alike():
    rounds = trainer(numbatches_to_aggregate=2)
    large, small = rounds.gradient([0, 1, 2, 3]), rounds.gradient([4])
    _, got = applied(rounds, [[0, 1, 2, 3], [4]])
    assert deviation(got, [(a + b) / 2 for a, b in zip(large, small)]) < 1e-6


def test_the_label_norm_is_the_sum_of_losses_over_the_sum_of_labels():
    rounds = trainer(numbatches_to_aggregate=2, normalize_gradients=1, loss_norm='labels')
    alone = [rounds.gradient([row]) for row in range(5)]
    labels = sum(N_LABELS[:5])  # 3 + 2 + 4 + 1 + 2
    assert labels == 12
    _, got = applied(rounds, [[0, 1, 2], [3, 4]])
    expected = [sum(parts) / labels for parts in zip(*alone)]
    say('the label norm against single utterances', deviation(got, expected))
    assert deviation(got, expected) < 1e-6


def test_weights_make_a_weighted_mean_of_utterances():
    rounds = trainer(importer='csv,csv', importer_weights='1,0.5', normalize_gradients=1)
    first, second = rounds.gradient([0, 1, 2]), rounds.gradient([3, 4])
    _, got = applied(rounds, [[0, 1, 2], [3, 4]], [1.0, 0.5])
    expected = [(3 * a + 0.5 * 2 * b) / (3 + 0.5 * 2) for a, b in zip(first, second)]
    say('weights 1 and 0.5 against the weighted mean', deviation(got, expected))
    assert deviation(got, expected) < 1e-6


def test_a_batch_with_the_weight_0_changes_nothing():
    rounds = trainer(importer='csv,csv', importer_weights='1,0.5')
    alone = rounds.gradient([0, 1, 2])
    _, got = applied(rounds, [[0, 1, 2], [3, 4]], [1.0, 0.0])
    assert deviation(got, alone) < 1e-6


def test_equal_weights_and_batches_are_the_concatenation():
    for normalised in (0, 1):
        rounds = trainer(importer='csv,csv', importer_weights='2,2', normalize_gradients=normalised)
        joined = trainer()
        _, expected = applied(joined, [[0, 2, 4, 1, 3, 5]])
        _, got = applied(rounds, [[0, 2, 4], [1, 3, 5]])
        say('linked sets of equal weight against the concatenation', deviation(got, expected))
        assert deviation(got, expected) < 1e-6


def test_an_update_resets_the_sums_and_one_operation_does_too():
    rounds = trainer(numbatches_to_aggregate=2)
    for end in (rounds.update.number, rounds.accumulation.reset):
        rounds.session.run(rounds.accumulation.add, rounds.feed([0, 1]))
        sums = rounds.sums()
        assert sums['accumulated/n_batches'] == sums['accumulated/norm'] == 1
        assert all(value.any() for value in sums.values())
        rounds.session.run(end)
        assert not any(value.any() for value in rounds.sums().values())
    assert isinstance(rounds.accumulation.reset, tf.Operation)


def test_a_batch_is_counted_only_after_its_gradients():
    """The number seeds the batch's dropout, which therefore must have read it."""
    with tf.Graph().as_default():
        variable = tf.get_variable('w', [2])
        sums = gradients_module.Accumulators([variable], gradients_module.batch_counter())
        added = sums.add([(tf.constant([1.0, 2.0]), variable)], tf.constant(1.0), 1.0, 1.0, 1.0)
        updates = {op.inputs[0].op.name: op for op in added.control_inputs}
    before, waiting = set(), [updates['accumulated/n_batches']]
    while waiting:
        op = waiting.pop()
        before.add(op.name)
        waiting += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    assert updates['accumulated/w'].name in before


def test_sums_are_not_trained():
    rounds = trainer(numbatches_to_aggregate=2)
    assert not any(v.op.name.startswith('accumulated/') for v in rounds.weights)
    assert len(rounds.sums()) == len(rounds.weights) + 3


def by_hand(build, batches, **values):
    """Mean gradients of hand-worked batches (gradient [2], mean loss, weight, utterances, labels)
    for one variable."""
    with tf.Graph().as_default(), tf.Session(config=unoptimised()) as session:
        variable = tf.get_variable('w', [2])
        sums = gradients_module.Accumulators([variable], gradients_module.batch_counter())
        config = load_config(**values)
        adding = []
        for gradient, loss, weight, utterances, labels in batches:
            lengths = [1] * (utterances - 1) + [labels - utterances + 1]
            batch = records.Batch(None, tf.constant([9] * utterances), None, tf.constant(lengths))
            adding.append(
                sums.add(
                    [(tf.constant(gradient), variable)],
                    tf.constant(loss),
                    weight,
                    *gradients_module.norm_and_scale(batch, config),
                )
            )
        mean = sums.mean()
        fetches = [gradients_module.clip(mean.gradients, config)[0][0], mean.loss]
        session.run(tf.global_variables_initializer())
        for operation in adding:
            session.run(operation)
        return build(*session.run(fetches))


BATCHES = [([2.0, -8.0], 3.0, 1.0, 4, 10), ([6.0, 4.0], 5.0, 0.5, 2, 6)]


@pytest.mark.parametrize(
    'values, gradient, loss',
    [
        # (2 + 0.5*6) / 1.5, (-8 + 0.5*4) / 1.5; (3 + 0.5*5) / 1.5
        ({}, [10 / 3, -4.0], 11 / 3),
        # (4*2 + 0.5*2*6) / (4 + 0.5*2), (4*-8 + 0.5*2*4) / 5; (4*3 + 0.5*2*5) / 5
        ({'normalize_gradients': 1}, [14 / 5, -28 / 5], 17 / 5),
        # the same sums over 10 + 0.5*6 labels
        ({'normalize_gradients': 1, 'loss_norm': 'labels'}, [14 / 13, -28 / 13], 17 / 13),
    ],
)
def test_the_mean_by_hand(values, gradient, loss):
    got, got_loss = by_hand(lambda *pair: pair, BATCHES, **values)
    np.testing.assert_allclose(got, gradient, rtol=1e-6)
    assert got_loss == pytest.approx(loss, rel=1e-6)


def test_elements_are_clipped_after_normalising():
    got = by_hand(
        lambda gradient, loss: gradient, BATCHES, normalize_gradients=1, clip_grad_value=3
    )
    np.testing.assert_allclose(got, [14 / 5, -3], rtol=1e-6)


def test_the_norm_is_clipped_after_the_elements():
    # [2.8, -3] of the length 4.1037, brought to 1
    got = by_hand(
        lambda gradient, loss: gradient,
        BATCHES,
        normalize_gradients=1,
        clip_grad_value=3,
        clip_grad_norm=1,
    )
    np.testing.assert_allclose(got, np.array([2.8, -3]) / np.sqrt(2.8**2 + 9), rtol=1e-6)


@pytest.mark.parametrize(
    'values, expected',
    [
        ({}, [[3.0, -4.0], [12.0]]),
        ({'clip_grad_value': 3.5}, [[3.0, -3.5], [3.5]]),
        ({'clip_grad_norm': 6.5}, [[1.5, -2.0], [6.0]]),  # the norm of all is 13
        ({'clip_grad_norm': 13.5}, [[3.0, -4.0], [12.0]]),
    ],
)
def test_clipping(values, expected):
    with tf.Graph().as_default(), tf.Session(config=unoptimised()) as session:
        pairs = [(tf.constant([3.0, -4.0]), 'a'), (tf.constant([12.0]), 'b')]
        clipped = gradients_module.clip(pairs, load_config(**values))
        assert [name for _, name in clipped] == ['a', 'b']
        for got, wanted in zip(session.run([value for value, _ in clipped]), expected):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_clipping_that_is_off_adds_nothing():
    with tf.Graph().as_default() as graph:
        pairs = [(tf.constant([3.0]), 'a')]
        before = len(graph.get_operations())
        assert gradients_module.clip(pairs, load_config()) == pairs
        assert len(graph.get_operations()) == before


def test_the_batches_of_an_update_drop_other_units():
    with tf.Graph().as_default(), tf.Session(config=unoptimised()) as session:
        step, n_batches = tf.constant(5, tf.int64), tf.placeholder(tf.int64, [])
        config = load_config(random_seed=7)
        seed = DeepSpeech._dropout_seed(config, step, n_batches)
        seeds = {tuple(session.run(seed, {n_batches: n})) for n in range(4)}
        assert len(seeds) == 4
        np.testing.assert_array_equal(
            session.run(seed, {n_batches: 0}),
            session.run(DeepSpeech._dropout_seed(config, step, None)),
        )


# Numbers that are not finite


@pytest.mark.parametrize(
    'first, second, loss, fine',
    [
        ([3.0, -4.0], 1.0, 2.5, True),
        ([3.0, np.nan], 1.0, 2.5, False),
        ([3.0, -4.0], -np.inf, 2.5, False),
        ([3.0, -4.0], 1.0, np.inf, False),
        ([3.0, -4.0], 1.0, np.nan, False),
        ([3e19, -4.0], 1.0, 2.5, False),  # its square is too large for float32
        ([3e18, -4.0], 1.0, 3e38, True),
    ],
)
def test_what_counts_as_finite(first, second, loss, fine):
    with tf.Graph().as_default(), tf.Session(config=unoptimised()) as session:
        pairs = [(tf.constant(first), 'a'), (tf.constant([[second]]), 'b')]
        assert session.run(gradients_module.finite(pairs, tf.constant(loss))) == fine


def test_an_update_that_is_not_finite_changes_neither_weights_nor_slots():
    with tf.Graph().as_default(), tf.Session(config=unoptimised()) as session:
        variable = tf.get_variable('w', initializer=[1.0, 2.0])
        gradient, number = tf.placeholder(tf.float32, [2]), tf.train.get_or_create_global_step()
        pairs = [(gradient, variable)]
        update = gradients_module.applied_if(
            gradients_module.finite(pairs, tf.constant(1.0)),
            lambda: tf.train.AdamOptimizer(0.5).apply_gradients(pairs, number),
        )
        session.run(tf.global_variables_initializer())
        everything = {v.op.name: v for v in tf.global_variables()}
        assert set(everything) == {
            *('w', 'w/Adam', 'w/Adam_1', 'beta1_power', 'beta2_power', 'global_step')
        }
        session.run(update, {gradient: [1.0, -1.0]})
        before = session.run(everything)
        np.testing.assert_allclose(before['w'], [0.5, 2.5], rtol=1e-6)
        session.run(update, {gradient: [1.0, np.nan]})
        after = session.run(everything)
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value)
        session.run(update, {gradient: [1.0, -1.0]})
        assert session.run(number) == 2
