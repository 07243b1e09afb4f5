"""Linked corpora: rounds, weights, epochs of unequal sets, where a resumed run goes on."""

import contextlib

import pytest

from feeding_helpers import item
from helpers import load_config
from util import errors, records
from util.feeding import data_sets, feeder, linked
from util.tf1 import tf

pytestmark = pytest.mark.usefixtures('no_audio')

WEIGHTS = [1.0, 0.5]


def make_part(name, lengths, queue_index, **values):
    """Returns a DataSet whose utterances are named NAME0, NAME1, ... with these time steps."""
    examples = [
        records.Example(records.Utterance(name, '%s%d' % (name, i), 'A'), 'a', n, 0.01 * n)
        for i, n in enumerate(lengths)
    ]
    data_set = data_sets.DataSet('train', examples, load_config(**values))
    data_set.queue_index = queue_index
    return data_set


def make_linked(sizes=(5, 2), **values):
    """Returns LinkedSets of the sets a, b, ... of these sizes, which have the queues 0, 1, ...

    The utterances come in batches of 1, in the order of their numbers.
    """
    values = {
        'n_input': 3,
        'n_context': 1,
        'train_batch_size': 1,
        'importer': 'csv,csv',
        'importer_weights': '1,0.5',
        **values,
    }
    parts = [
        make_part(name, range(2, 2 + size), index, **values)
        for index, (name, size) in enumerate(zip('abc', sizes))
    ]
    return linked.LinkedSets(parts, [*WEIGHTS, 0.25][: len(parts)], load_config(**values))


@contextlib.contextmanager
def feeding_of(sets, *arguments):
    """Feeds linked sets; gives a function that takes whole epochs from their queues."""
    with tf.Graph().as_default(), tf.Session() as session:
        queues = [feeder.UtteranceQueue(part) for part in sets.parts]
        utterances = [each.queue.dequeue() for each in queues]
        feeding = feeder.feed(sets, queues, session, *arguments)

        def take(n_epochs):
            """Returns [(name, weight, whether an update ends), ...] of each epoch."""
            taken = []
            for _ in range(n_epochs):
                taken.append([])
                for step in feeding.all_steps():
                    if not step.examples:
                        continue
                    [example] = step.examples
                    label = session.run(utterances[step.queue_index])[2]
                    assert example.utterance.name.endswith(str(label[0]))
                    taken[-1].append((example.utterance.name, step.weight, step.ends_update))
            return taken

        try:
            yield take
        finally:
            feeding.close()


def names(taken):
    return [[name for name, _, _ in epoch] for epoch in taken]


EPOCHS = [
    ['a0', 'b0', 'a1', 'b1', 'a2', 'b0', 'a3', 'b1', 'a4', 'b0'],
    ['a0', 'b1', 'a1', 'b0', 'a2', 'b1', 'a3', 'b0', 'a4', 'b1'],
]


def test_a_round_takes_a_batch_of_each_set_and_the_shorter_one_begins_again():
    with feeding_of(make_linked()) as take:
        taken = take(2)
    assert names(taken) == EPOCHS
    assert [weight for _, weight, _ in taken[0]] == WEIGHTS * 5


def test_the_longer_set_may_be_the_second():
    with feeding_of(make_linked((2, 3))) as take:
        assert names(take(1)) == [['a0', 'b0', 'a1', 'b1', 'a0', 'b2']]


@pytest.mark.parametrize(
    'rounds, ends', [(1, [2, 4, 6, 8, 10]), (2, [4, 8, 10]), (3, [6, 10]), (9, [10])]
)
def test_an_update_takes_so_many_rounds_and_the_last_of_an_epoch_what_is_left(rounds, ends):
    sets = make_linked(numbatches_to_aggregate=rounds)
    with feeding_of(sets) as take:
        [epoch] = take(1)
    assert [i + 1 for i, (_, _, end) in enumerate(epoch) if end] == ends
    assert sets.total_batches == 10 and sets.rounds == 5


@pytest.mark.parametrize('step', range(10))
@pytest.mark.parametrize('epoch', (0, 1))
def test_a_resumed_feeder_goes_on_with_the_very_batch(epoch, step):
    with feeding_of(make_linked(), epoch, step) as take:
        taken = names(take(1))
    assert taken == [EPOCHS[epoch][step:]]


def test_three_sets():
    with feeding_of(
        make_linked((1, 2, 3), importer='csv,csv,csv', importer_weights='1,0.5,0.25')
    ) as take:
        [epoch] = take(1)
    assert names([epoch]) == [['a0', 'b0', 'c0', 'a0', 'b1', 'c1', 'a0', 'b0', 'c2']]
    assert [weight for _, weight, _ in epoch[:3]] == [1.0, 0.5, 0.25]


def test_the_checksum_differs_for_other_utterances_and_other_updates():
    sums = [
        make_linked(*arguments, **values).order_checksum(1)
        for arguments, values in (
            ([], {}),
            ([(5, 3)], {}),
            ([], {'importer_weights': '1,0.25'}),
            ([], {'numbatches_to_aggregate': 2}),
            ([], {'normalize_gradients': 1}),
        )
    ]
    assert len(set(sums)) == len(sums)
    assert make_linked().order_checksum(1) == sums[0]


def test_only_short_utterances_of_each_set():
    sets = make_linked().up_to(3)
    with feeding_of(sets) as take:
        assert names(take(1)) == [['a0', 'b0', 'a1', 'b1']]
    assert len(sets) == 4


def test_a_set_without_short_utterances_is_left_out_of_the_stage():
    sets = make_linked()
    sets.parts[1] = make_part('b', [9, 8], 1, n_input=3, n_context=1, train_batch_size=1)
    short = sets.up_to(4)
    assert [part.examples[0].utterance.name for part in short.parts] == ['a0']
    assert short.total_batches == 3 and len(sets.up_to(1)) == 0


def test_a_set_of_which_nothing_can_be_read_is_an_error_that_names_it(monkeypatch):
    def read(data_set, index, epoch):
        return None if data_set.title == 'b train' else item(data_set, index)

    monkeypatch.setattr(data_sets.DataSet, 'read', read)
    sets = make_linked()
    sets.parts[1].title = 'b train'
    with (
        feeding_of(sets) as take,
        pytest.raises(errors.DataError, match='no utterance of the b train set .* weight must be'),
    ):
        take(1)
