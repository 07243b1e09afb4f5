"""Data sets: what is excluded, the order of utterances, queues, towers' shares, the feeder."""
import logging
import os
import random
import threading
import time

import numpy as np
import pytest
import soundfile
import tensorflow.compat.v1 as tf

from conftest import load_config, speech, write_wav
from util import audio, errors, records, text
from util.feeding import data_sets as data_sets_module, feeder as feeder_module

HANG_S = 20          # whatever takes longer hangs
ORDERS = ('sorted', 'shuffled', 'bucketed')
LENGTHS = [5, 2, 9, 2, 7, 4, 11, 3, 2, 8, 6, 13, 1]  # steps of 13 utterances, with ties


def within(seconds, function, *arguments):
    """Result of function(*arguments); fails where it takes longer than `seconds`."""
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
    """Names of the utterances of a DataSet or of a Step."""
    return [example.utterance.name for example in of.examples]


def flat(steps):
    return [index for step in steps for index in step]


# Data sets without audio: utterance i is named "u<i>", and `item` gives it the one label i


def make_set(lengths, name='train', **values):
    """DataSet of utterances with these time steps."""
    values = dict(dict(n_input=3, n_context=2), **values)
    examples = [records.Example(records.Utterance('u%d.wav' % i, 'u%d' % i, 'A'), 'a', n, 0.01 * n)
                for i, n in enumerate(lengths)]
    return data_sets_module.DataSet(name, examples, load_config(**values))


def item(data_set, index):
    """What DataSet.read gives, made up for `make_set`: frames filled with the index."""
    steps = data_set.examples[index].n_steps + 4  # n_context 2 on either side
    return np.full([steps, 3], index, np.float32), np.array([index], np.int32)


@pytest.fixture
def no_audio(monkeypatch):
    """Lets DataSet.read make up what it reads."""
    monkeypatch.setattr(data_sets_module.DataSet, 'read', item)


class Graph:
    """A graph with the queue of one data set, its session, and the feeders made with it."""

    def __init__(self, data_set):
        self.data_set, self._feeders = data_set, []
        with tf.Graph().as_default() as graph:
            self._count = tf.placeholder(tf.int32, [])
            self._size = data_set.make_queue().size()
            self._batch = data_set.next_batch(self._count)
        self.session = tf.Session(graph=graph)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for feeder in self._feeders:
            within(HANG_S, feeder.close)
        self.session.close()

    def feed(self, *arguments, **options):
        self._feeders.append(self.data_set.feed(self.session, *arguments, **options))
        return self._feeders[-1]

    def take(self, count):
        """The next utterances of the queue."""
        return self.session.run(self._batch, {self._count: count})

    def take_epoch(self, feeder):
        """The next epoch: (index, names announced, first labels of what was in the queue)."""
        return within(HANG_S, self._take_epoch, feeder)

    def _take_epoch(self, feeder):
        return [(step.index, names(step),
                 self.take(len(step.examples)).labels[:, 0].tolist())
                for step in feeder.epoch()]

    def queued(self):
        """How many utterances the queue holds."""
        return self.session.run(self._size)

    def wait_until_full(self):
        def wait():
            while self.queued() < 2 * self.data_set.step_size:
                time.sleep(0.002)
        within(HANG_S, wait)


def expected_epoch(data_set, epoch, first_step=0):
    """What `Graph.take_epoch` gives of an epoch in the set's order."""
    return [(i, ['u%d' % index for index in step], step)
            for i, step in enumerate(data_set.order(epoch))][first_step:]


# The order


@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('set_name', records.SET_NAMES)
def test_order_of_each_epoch_is_a_permutation(order, set_name):
    data_set = make_set(LENGTHS, set_name, batch_order=order, batch_size=4, numbuckets=3)
    for epoch in range(5):
        assert sorted(flat(data_set.order(epoch))) == list(range(13))


@pytest.mark.parametrize('order', ORDERS)
def test_order_depends_on_seed_and_epoch_alone(order):
    one, other = (make_set(LENGTHS, batch_order=order, batch_size=4) for _ in range(2))
    forward = [one.order(epoch) for epoch in range(4)]
    np.random.seed(1)
    random.seed(1)
    backward = [other.order(epoch) for epoch in (3, 2, 1, 0)][::-1]
    assert forward == backward


@pytest.mark.parametrize('order', ('shuffled', 'bucketed'))
def test_random_orders_differ_between_epochs_and_between_seeds(order):
    a, b = (make_set(LENGTHS, batch_order=order, batch_size=2, numbuckets=3, random_seed=seed)
            for seed in (1, 2))
    assert len({str(data_set.order(epoch)) for data_set in (a, b) for epoch in range(4)}) == 8


def test_sorted_order_is_by_length_with_ties_as_listed_in_every_epoch():
    data_set = make_set([5, 2, 9, 2, 5, 2], batch_order='sorted', batch_size=2)
    assert [data_set.order(epoch) for epoch in (0, 1, 7)] == 3 * [[[1, 3], [5, 0], [4, 2]]]


@pytest.mark.parametrize('set_name', ('dev', 'test'))
@pytest.mark.parametrize('order', ORDERS)
def test_dev_and_test_are_always_by_length(set_name, order):
    data_set = make_set([5, 2, 9, 2, 5, 2], set_name, batch_order=order, batch_size=4)
    assert [data_set.order(epoch) for epoch in (0, 1, 7)] == 3 * [[[1, 3, 5, 0], [4, 2]]]


def test_shuffled_order_is_not_by_length():
    data_set = make_set(range(1, 41), batch_order='shuffled', batch_size=3)
    steps = data_set.order(0)
    assert flat(steps) != sorted(flat(steps))
    assert any(max(step) - min(step) > 10 for step in steps)


def test_many_utterances_of_equal_length_stay_as_listed():
    data_set = make_set([3] * 60 + [2] * 60, 'dev', batch_size=50)
    assert flat(data_set.order(0)) == [*range(60, 120), *range(60)]


def test_bucketed_steps_hold_utterances_of_similar_length_in_random_order():
    data_set = make_set(range(1, 25), batch_order='bucketed', batch_size=3, numbuckets=4)
    buckets = [set(range(start, start + 6)) for start in (0, 6, 12, 18)]  # 2 steps of each
    epochs = [data_set.order(epoch) for epoch in range(3)]
    for steps in epochs:
        assert all(any(set(step) <= bucket for bucket in buckets) for step in steps)
        places = [step[0] // 6 for step in steps]  # the bucket of each step
        assert places != sorted(places)
        assert any(step != sorted(step) for step in steps)
    as_sets = [sorted(sorted(step) for step in steps) for steps in epochs]
    assert as_sets[0] != as_sets[1]  # who shares a step changes within the bucket


@pytest.mark.parametrize('order', ORDERS)
def test_one_step_of_an_epoch_is_smaller_and_none_is_refilled(order):
    data_set = make_set(LENGTHS, batch_order=order, batch_size=5, numbuckets=2)
    sizes = [len(step) for step in data_set.order(3)]
    assert sorted(sizes) == [3, 5, 5]
    if order != 'bucketed':
        assert sizes[-1] == 3
    assert data_set.total_batches == 3


@pytest.mark.parametrize('order', ORDERS)
def test_order_of_few_or_no_utterances(order):
    values = dict(batch_order=order, batch_size=4, numbuckets=16)
    assert make_set([], **values).order(0) == []
    assert make_set([7], **values).order(0) == [[0]]
    assert sorted(flat(make_set([7, 3, 5], **values).order(2))) == [0, 1, 2]


def test_a_step_is_a_batch_for_each_tower():
    values = dict(train_batch_size=2, dev_batch_size=3, test_batch_size=4, towers=3)
    for name, size, steps in (('train', 6, 3), ('dev', 9, 2), ('test', 12, 2)):
        data_set = make_set(LENGTHS, name, **values)
        assert data_set.step_size == size
        assert data_set.total_batches == steps == len(data_set.order(0))
    assert make_set(LENGTHS, train_batch_size=2, towers=0).step_size == 2


def test_length_and_seconds_of_a_set():
    data_set = make_set([5, 2, 9])
    assert len(data_set) == 3
    assert data_set.seconds == pytest.approx(0.16)
    assert make_set([]).total_batches == 0


# Which utterances are used


def build_sets(folder, train, dev=(), test=(), **values):
    """DataSets of (file name, transcript) rows, named as given and found in `folder`."""
    values = dict(dict(n_input=4, n_context=2, cache_dir=os.path.join(folder, 'cache')), **values)
    config = load_config(**values)
    sets = [[records.Utterance(os.path.join(folder, name), name, words) for name, words in rows]
            for rows in (train, dev, test)]
    return data_sets_module.make_data_sets(config, text.Alphabet(), *sets)


def exclusions(caplog):
    """{name: reason} of the utterances that the log says are excluded."""
    found = [message[len('excluded '):].split(': ', 1) for message in caplog.messages
             if message.startswith('excluded ')]
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


def test_what_cannot_be_used_is_excluded_by_name_with_the_reason(tmp_path, caplog):
    write_wav(tmp_path / 'wav/a.wav', speech(0.4))
    write_wav(tmp_path / 'wav/b.wav', speech(0.5))
    for name, n in (('none', 0), ('blip', 1), ('tick', 160), ('almost', 399)):
        write_wav(tmp_path / ('wav/%s.wav' % name), speech(0.1)[:n])
    (tmp_path / 'wav/page.wav').write_text('<!DOCTYPE html><html>not found</html>')
    (tmp_path / 'wav/folder.wav').mkdir()
    rows = [('wav/a.wav', 'one two'), ('wav/gone.wav', 'x'), ('wav/page.wav', 'x'),
            ('wav/folder.wav', 'x'), ('wav/none.wav', 'x'), ('wav/blip.wav', 'x'),
            ('wav/tick.wav', 'x'), ('wav/almost.wav', 'x'), ('./wav/b.wav', 'good day')]
    sets = build_sets(tmp_path, rows)
    assert names(sets.train) == ['wav/a.wav', './wav/b.wav']
    reasons = exclusions(caplog)
    assert set(reasons) == {row[0] for row in rows[1:-1]}
    assert reasons['wav/gone.wav'] == 'cannot be read: No such file or directory'
    assert reasons['wav/folder.wav'] == 'not a regular file'
    assert 'not an audio file' in reasons['wav/page.wav']
    for name, n in (('none', 0), ('blip', 1), ('tick', 160), ('almost', 399)):
        assert 'too short: %d samples' % n in reasons['wav/%s.wav' % name]
    assert '7 of 9 utterances excluded' in caplog.messages
    assert str(tmp_path) not in caplog.text  # names as the manifest spells them


def test_a_file_name_with_a_zero_byte_is_excluded(tmp_path, caplog):
    write_wav(tmp_path / 'a.wav', speech(0.4))
    sets = build_sets(tmp_path, [('a\0.wav', 'x'), ('a.wav', 'x')])
    assert names(sets.train) == ['a.wav']
    assert list(exclusions(caplog)) == ['a\0.wav']


def test_empty_transcripts_are_excluded(tmp_path, caplog):
    for name in 'abcd':
        write_wav(tmp_path / (name + '.wav'), speech(0.4))
    sets = build_sets(tmp_path, [('a.wav', ''), ('b.wav', '    '), ('c.wav', '?!'), ('d.wav', 'x')])
    assert names(sets.train) == ['d.wav']
    assert exclusions(caplog) == {name: 'empty transcript' for name in ('a.wav', 'b.wav', 'c.wav')}
    assert caplog.messages[-1] == '3 of 4 utterances excluded'


def test_characters_outside_the_alphabet_are_named_with_their_code_points(tmp_path, caplog):
    for name in 'abc':
        write_wav(tmp_path / (name + '.wav'), speech(0.5))
    sets = build_sets(tmp_path, [('a.wav', 'thank you \u0441arol'), ('b.wav', 'room 42'),
                                 ('c.wav', 'it\u2019s HELLO caf\u00e9')])
    assert [example.transcript for example in sets.train.examples] == ["it's hello cafe"]
    reasons = exclusions(caplog)
    assert set(reasons) == {'a.wav', 'b.wav'}
    assert 'U+0441' in reasons['a.wav'] and '\u0441' in reasons['a.wav']
    assert 'U+0034' in reasons['b.wav'] and 'U+0032' in reasons['b.wav']
    labels = sets.train.read(0)[1].tolist()
    assert labels == [9, 20, 27, 19, 0, 8, 5, 12, 12, 15, 0, 3, 1, 6, 5]


@pytest.mark.parametrize('samples, words, stride, kept', [
    (400, 'a', 1, True),        # 1 step
    (400, 'ab', 1, False),
    (1040, 'abcde', 1, True),   # 5 steps: 400 samples, then 4 times 160
    (881, 'abcde', 1, True),    # a begun step counts
    (880, 'abcde', 1, False),
    (1040, 'aabc', 1, True),    # 4 labels and a blank between the two a
    (1040, 'aabb', 1, False),   # 6
    (1200, 'aabb', 1, True),
    (1040, 'aaa', 1, True),     # a blank a blank a
    (880, 'aaa', 1, False),
    (1040, 'abc', 2, True),     # 3 of the 5 steps are left
    (1040, 'abcd', 2, False),
    (1200, 'abc', 2, True),     # 3 of 6
    (1201, 'abcd', 2, True)])   # 4 of 7
def test_utterances_need_a_step_for_each_label_and_for_each_repeat(tmp_path, caplog, samples,
                                                                   words, stride, kept):
    write_wav(tmp_path / 'a.wav', speech(0.2)[:samples])
    sets = build_sets(tmp_path, [('a.wav', words)], feature_stride=stride)
    assert names(sets.train) == (['a.wav'] if kept else [])
    if not kept:
        assert 'too short for its transcript' in exclusions(caplog)['a.wav']


def test_too_few_steps_are_reported_with_both_numbers(tmp_path, caplog):
    write_wav(tmp_path / 'a.wav', speech(0.2)[:880])  # 4 steps
    build_sets(tmp_path, [('a.wav', 'aabbc')])        # 5 labels, 2 repeats
    reason = exclusions(caplog)['a.wav']
    assert '4 time steps' in reason and 'needs 7' in reason and '5 labels' in reason


def test_stereo_has_the_steps_of_one_channel(tmp_path):
    one = speech(1.0)  # 99 steps; read as one row of samples it would have 199
    write_wav(tmp_path / 'duo.wav', np.stack([one, 0 * one], axis=1))
    sets = build_sets(tmp_path, [('duo.wav', 'ab' * 70)], [('duo.wav', 'good morning')])
    assert len(sets.train) == 0
    assert [example.n_steps for example in sets.dev.examples] == [99]


@pytest.mark.parametrize('rate', (8000, 11025, 16000, 22050, 44100))
@pytest.mark.parametrize('stride', (1, 2))
def test_steps_foreseen_from_the_header_are_the_steps_that_are_read(tmp_path, rate, stride):
    rows = []
    for i, seconds in enumerate((0.05, 0.1234, 0.205, 0.3001)):
        rows.append(('%d.wav' % i, 'a'))
        write_wav(tmp_path / rows[-1][0], speech(seconds, i, rate), rate)
    data_set = build_sets(tmp_path, rows, feature_stride=stride).train
    assert [len(data_set.read(i)[0]) - 2 * 2 for i in range(4)] == [
        example.n_steps for example in data_set.examples]


def test_an_example_knows_its_cleaned_transcript_and_seconds(tmp_path):
    path = write_wav(tmp_path / 'a.wav', speech(0.5, rate=8000), 8000)
    [example] = build_sets(tmp_path, [('a.wav', ' One\ttwo, ')]).train.examples
    assert example.utterance[:3] == (path, 'a.wav', ' One\ttwo, ')
    assert example.transcript == 'one two'
    assert example.seconds == 0.5
    assert example.n_steps == 49  # 8000 samples at 16 kHz: 1 + (8000 - 400) / 160, rounded up


def test_a_problem_that_the_importer_found_excludes_the_utterance(tmp_path, caplog):
    path = write_wav(tmp_path / 'a.wav', speech(0.4))
    good, bad = records.Utterance(path, 'a', 'x'), records.Utterance(path, 'b', 'x', 'torn page')
    config = load_config(cache_dir=tmp_path / 'cache')
    sets = data_sets_module.make_data_sets(config, text.Alphabet(), [bad, good], [], [])
    assert names(sets.train) == ['a']
    assert exclusions(caplog) == {'b': 'torn page'}
    assert sets.excluded == {bad: 'torn page'}


def test_two_of_seven_excluded_over_three_sets(tmp_path, caplog):
    for name in 'abcdefg':
        write_wav(tmp_path / (name + '.wav'), speech(0.4))
    sets = build_sets(tmp_path, [(name + '.wav', 'x') for name in 'abc'] + [('d.wav', '')],
                      [('e.wav', '7'), ('f.wav', 'y')], [('g.wav', 'z')])
    assert [names(data_set) for data_set in sets] == [['a.wav', 'b.wav', 'c.wav'], ['f.wav'],
                                                      ['g.wav']]
    assert [message for message in caplog.messages if 'utterances excluded' in message] == [
        '2 of 7 utterances excluded']


def test_an_utterance_in_all_sets_is_checked_and_counted_once(tmp_path, caplog, monkeypatch):
    write_wav(tmp_path / 'a.wav', speech(0.4))
    opened, audio_info = [], audio.audio_info
    monkeypatch.setattr(audio, 'audio_info', lambda path: opened.append(path) or audio_info(path))
    rows = [('a.wav', 'x'), ('gone.wav', 'x')]
    sets = build_sets(tmp_path, rows, rows, rows)
    assert [names(data_set) for data_set in sets] == 3 * [['a.wav']]
    assert sorted(opened) == [str(tmp_path / name) for name, _ in rows]
    assert list(exclusions(caplog)) == ['gone.wav']
    assert caplog.messages[-1] == '1 of 2 utterances excluded'


def test_nothing_is_said_where_nothing_is_excluded_or_converted(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_wav(tmp_path / 'a.wav', speech(0.4))
    build_sets(tmp_path, [('a.wav', 'x')])
    assert caplog.messages == []


def test_of_many_exclusions_a_hundred_are_named_and_all_are_counted(tmp_path, caplog):
    build_sets(tmp_path, [('%d.wav' % i, '') for i in range(103)])
    assert len(exclusions(caplog)) == 100
    assert caplog.messages[-1] == '103 of 103 utterances excluded'


def test_other_rates_and_channels_are_said_once_with_a_count(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    rows = []
    kinds = [(16000, 1), (8000, 1), (44100, 2), (8000, 1), (16000, 2)]
    for i, (rate, channels) in enumerate(kinds):
        rows.append(('%d.wav' % i, 'x'))
        samples = np.stack(channels * [speech(0.2, i, rate)], axis=1)
        write_wav(tmp_path / rows[-1][0], samples if channels > 1 else samples[:, 0], rate)
    build_sets(tmp_path, rows[:3], rows[3:])
    assert caplog.messages == ['resampled to 16000 Hz: 2 from 8000 Hz, 1 from 44100 Hz',
                               'mixed down to one channel (mean): 2']


def test_what_is_excluded_is_not_counted_as_resampled(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_wav(tmp_path / 'a.wav', speech(0.4, rate=8000), 8000)
    build_sets(tmp_path, [('a.wav', '42')])
    assert not any('resampled' in message for message in caplog.messages)


def test_a_file_in_all_three_sets_is_counted_as_resampled_once(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_wav(tmp_path / 'a.wav', np.stack(2 * [speech(0.4, rate=8000)], axis=1), 8000)
    rows = [('a.wav', 'x')]
    build_sets(tmp_path, rows, rows, rows)
    assert caplog.messages == ['resampled to 16000 Hz: 1 from 8000 Hz',
                               'mixed down to one channel (mean): 1']


def test_limits_take_the_first_utterances_of_each_list(tmp_path, caplog):
    rows = [('%d.wav' % i, 'x') for i in range(5)]
    for name, _ in rows:
        write_wav(tmp_path / name, speech(0.1))
    bad = [('gone.wav', 'x')]
    sets = build_sets(tmp_path, rows[:3] + bad, bad + rows, rows, limit_train=2, limit_dev=3)
    assert [names(data_set) for data_set in sets] == [
        ['0.wav', '1.wav'], ['0.wav', '1.wav'], ['%d.wav' % i for i in range(5)]]
    assert caplog.messages[-1] == '1 of 6 utterances excluded'


def test_sets_without_a_usable_utterance_are_empty(tmp_path):
    sets = build_sets(tmp_path, [('gone.wav', 'x')])
    assert [len(data_set) for data_set in sets] == [0, 0, 0]


# Features, queues and batches


@pytest.mark.parametrize('n_context, stride', ((0, 1), (2, 1), (2, 2)))
def test_next_batch_hands_out_the_input_vectors_of_the_files(tmp_path, n_context, stride):
    rows = [('a.wav', 'hi'), ('b.wav', 'you'), ('c.wav', 'a')]
    for i, (name, seconds, rate) in enumerate((('a.wav', 0.31, 16000), ('b.wav', 0.125, 16000),
                                               ('c.wav', 0.2, 8000))):
        write_wav(tmp_path / name, speech(seconds, i, rate), rate)
    data_set = build_sets(tmp_path, rows, n_context=n_context, feature_stride=stride,
                          train_batch_size=3).train
    for _ in range(2):  # the second time from the cache
        check_input_vectors(data_set, n_context, stride)


def check_input_vectors(data_set, n_context, stride):
    with Graph(data_set) as graph:
        feeder = graph.feed(n_epochs=1)
        step = within(HANG_S, lambda: next(feeder.epoch()))
        batch = graph.take(3)
    assert names(step) == ['b.wav', 'c.wav', 'a.wav']
    n_steps = {(0.125, 1): 11, (0.2, 1): 19, (0.31, 1): 30, (0.125, 2): 6, (0.2, 2): 10,
               (0.31, 2): 15}
    assert batch.seq_len.tolist() == [n_steps[s, stride] for s in (0.125, 0.2, 0.31)]
    assert batch.features.shape == (3, n_steps[0.31, stride], 4 + 2 * 4 * n_context)
    assert batch.features.dtype == np.float32 and batch.seq_len.dtype == np.int32
    for row, example in enumerate(step.examples):
        expected = audio.audiofile_to_input_vector(example.utterance.wav_filename, 4,
                                                   n_context, stride=stride)
        np.testing.assert_allclose(batch.features[row, :len(expected)], expected, rtol=0, atol=1e-5)
        assert not batch.features[row, len(expected):].any()
    assert batch.label_len.tolist() == [3, 1, 2]
    assert batch.labels.tolist() == [[25, 15, 21], [1, 0, 0], [8, 9, 0]]


def test_the_selector_picks_the_queue_and_frames_keep_their_margins(no_audio):
    sets = [make_set(lengths, name, batch_size=2)
            for name, lengths in zip(records.SET_NAMES, ([4, 6], [3], [5, 2]))]
    with tf.Graph().as_default(), tf.Session() as session:
        selector, count = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
        batch = data_sets_module.DataSets(*sets).next_batch(selector, count)
        feeders = [data_set.feed(session, n_epochs=1) for data_set in sets]
        taken = {}
        for i in (2, 0, 1):
            step = within(HANG_S, lambda i=i: next(feeders[i].epoch()))
            taken[i] = session.run(batch, {selector: i, count: len(step.examples)})
        for feeder in feeders:
            within(HANG_S, feeder.close)
    assert [taken[i].seq_len.tolist() for i in range(3)] == [[4, 6], [3], [2, 5]]
    assert [taken[i].labels[:, 0].tolist() for i in range(3)] == [[0, 1], [0], [1, 0]]
    assert [taken[i].features.shape for i in range(3)] == [(2, 10, 3), (1, 7, 3), (2, 9, 3)]


def test_data_sets_are_iterated_in_the_order_of_the_selector():
    train, dev, test = (make_set([4], name) for name in records.SET_NAMES)
    sets = data_sets_module.DataSets(train, dev, test)
    assert list(sets) == [train, dev, test] and sets.stages == [train]
    assert [data_set.queue_index for data_set in sets] == [0, 1, 2]
    assert records.SET_NAMES == ('train', 'dev', 'test')


# Batches as frames with margins, and the shares of the towers

TOWER_LENGTHS = [3, 5, 11, 4, 6, 2, 7]
TOWER_LABELS = [1, 2, 4, 3, 5, 1, 2]


def frames_batch(count, n_input=3, n_context=2):
    """(values of a Batch of `count` utterances, windows [B, T, F] cut by hand from them)."""
    rng = np.random.default_rng(7)
    lengths, label_lengths = TOWER_LENGTHS[:count], TOWER_LABELS[:count]
    n_steps, size = max(lengths), 2 * n_context + 1
    features = np.zeros([count, n_steps + 2 * n_context, n_input], np.float32)
    labels = np.zeros([count, max(label_lengths)], np.int32)
    windows = np.zeros([count, n_steps, n_input * size], np.float32)
    for b, (length, n_labels) in enumerate(zip(lengths, label_lengths)):
        features[b, :length + 2 * n_context] = rng.normal(size=[length + 2 * n_context, n_input])
        labels[b, :n_labels] = rng.integers(1, 28, n_labels)
        for t in range(length):
            windows[b, t] = np.concatenate([features[b, t + k] for k in range(size)])
    return records.Batch(features, np.int32(lengths), labels, np.int32(label_lengths)), windows


def run_towers(values, n_towers, n_context=2):
    """[(Batch, count) of each tower], from placeholders of unknown sizes."""
    with tf.Graph().as_default(), tf.Session() as session:
        shapes = records.Batch([None, None, values.features.shape[2]], [None], [None, None], [None])
        batch = records.Batch(*[tf.placeholder(value.dtype, shape)
                                for value, shape in zip(values, shapes)])
        towers = [feeder_module.tower_batch(batch, i, n_towers, n_context) for i in range(n_towers)]
        return session.run(towers, dict(zip(batch, values)))


@pytest.mark.parametrize('n_context', (0, 1, 2))
def test_windows_are_cut_in_the_graph_and_zero_past_the_end(n_context):
    values, windows = frames_batch(4, n_context=n_context)
    [(batch, count)] = run_towers(values, 1, n_context)
    np.testing.assert_array_equal(batch.features, windows)
    assert count == 4
    for got, given in zip(batch[1:], values[1:]):
        np.testing.assert_array_equal(got, given)


@pytest.mark.parametrize('count, n_towers, shares', [
    (7, 3, [[0, 1, 2], [3, 4], [5, 6]]),
    (6, 3, [[0, 1], [2, 3], [4, 5]]),
    (5, 2, [[0, 1, 2], [3, 4]]),
    (2, 2, [[0], [1]])])
def test_utterances_are_dealt_out_evenly_and_padding_is_cut(count, n_towers, shares):
    values, windows = frames_batch(count)
    towers = run_towers(values, n_towers)
    assert [n for _, n in towers] == [len(share) for share in shares]
    for (batch, _), share in zip(towers, shares):
        n_steps = max(TOWER_LENGTHS[i] for i in share)
        n_labels = max(TOWER_LABELS[i] for i in share)
        assert batch.features.shape == (len(share), n_steps, 15)
        np.testing.assert_array_equal(batch.features, windows[share, :n_steps])
        assert batch.seq_len.tolist() == [TOWER_LENGTHS[i] for i in share]
        np.testing.assert_array_equal(batch.labels, values.labels[share, :n_labels])
        assert batch.label_len.tolist() == [TOWER_LABELS[i] for i in share]


@pytest.mark.parametrize('count, n_towers, counts', [(1, 2, [1, 0]), (2, 3, [1, 1, 0]),
                                                     (1, 4, [1, 0, 0, 0])])
def test_an_idle_tower_gets_the_first_utterance_and_counts_nothing(count, n_towers, counts):
    values, windows = frames_batch(count)
    towers = run_towers(values, n_towers)
    assert [n for _, n in towers] == counts
    for batch, _ in towers[count:]:
        np.testing.assert_array_equal(batch.features, windows[:1, :TOWER_LENGTHS[0]])
        assert batch.seq_len.tolist() == TOWER_LENGTHS[:1]
        assert batch.labels.tolist() == values.labels[:1, :TOWER_LABELS[0]].tolist()


# The feeder


@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('towers', (1, 2))
def test_each_epoch_presents_each_utterance_once_and_in_order(no_audio, order, towers):
    data_set = make_set(LENGTHS, batch_order=order, batch_size=2, numbuckets=3, towers=towers)
    with Graph(data_set) as graph:
        feeder = graph.feed(n_epochs=3)
        for epoch in range(3):
            steps = graph.take_epoch(feeder)
            assert steps == expected_epoch(data_set, epoch)
            assert sorted(flat(labels for _, _, labels in steps)) == list(range(13))


def test_fewer_utterances_than_a_step_takes_are_one_small_step(no_audio):
    data_set = make_set([4, 2, 3], batch_size=16, towers=2)
    with Graph(data_set) as graph:
        feeder = graph.feed()
        for _ in range(4):
            assert graph.take_epoch(feeder) == [(0, ['u1', 'u2', 'u0'], [1, 2, 0])]


def test_slow_and_uneven_readers_do_not_change_the_order(monkeypatch):
    delays = np.random.default_rng(3).choice([0, 0, 0.001, 0.01], size=1000).tolist()

    def read(data_set, index):
        time.sleep(delays.pop())
        return item(data_set, index)

    monkeypatch.setattr(data_sets_module.DataSet, 'read', read)
    monkeypatch.setattr(feeding, 'N_READERS', 4)
    data_set = make_set(LENGTHS, batch_order='shuffled', batch_size=3)
    with Graph(data_set) as graph:
        feeder = graph.feed(n_epochs=6)
        for epoch in range(6):
            assert graph.take_epoch(feeder) == expected_epoch(data_set, epoch)


@pytest.mark.parametrize('first_epoch, first_step', ((0, 0), (0, 3), (2, 0), (2, 4)))
def test_a_resumed_feeder_goes_on_with_the_same_sequence(no_audio, first_epoch, first_step):
    data_set = make_set(LENGTHS, batch_order='bucketed', batch_size=3, numbuckets=2)
    with Graph(data_set) as graph:
        feeder = graph.feed(first_epoch, first_step, 2)
        assert graph.take_epoch(feeder) == expected_epoch(data_set, first_epoch, first_step)
        assert graph.take_epoch(feeder) == expected_epoch(data_set, first_epoch + 1)


def test_waiting_for_slow_readers_is_measured_epoch_by_epoch(monkeypatch):
    slow = [True]

    def read(data_set, index):
        time.sleep(0.2 if slow[0] else 0)
        return item(data_set, index)

    monkeypatch.setattr(data_sets_module.DataSet, 'read', read)
    monkeypatch.setattr(feeding, 'N_READERS', 1)
    data_set = make_set(LENGTHS[:3], batch_size=3)
    with Graph(data_set) as graph:
        feeder = graph.feed(n_epochs=2)
        time.sleep(0.1)  # the first utterance is being read, which takes 0.2 s
        slow[0] = False
        graph.take_epoch(feeder)
        first = feeder.waited
        time.sleep(1)    # the second epoch lies ready
        graph.take_epoch(feeder)
        assert first > 0.05 > feeder.waited - first


def test_padding_is_the_share_of_frames_that_are_none():
    # 3 utterances a step: of lengths 2 3 5 -> 5 frames each, 7 7 -> none padded
    data_set = make_set([5, 2, 7, 3, 7], batch_size=3)
    assert data_set.padding(0) == pytest.approx((3 + 2) / (15 + 14))


def test_a_feeder_ends_after_its_epochs(no_audio):
    data_set, before = make_set(LENGTHS, batch_size=4), set(threading.enumerate())
    with Graph(data_set) as graph:
        feeder = graph.feed(n_epochs=2)
        for epoch in (0, 1):
            assert graph.take_epoch(feeder) == expected_epoch(data_set, epoch)
        for thread in set(threading.enumerate()) - before:  # end without close()
            within(HANG_S, thread.join)
        assert graph.queued() == 0
        within(HANG_S, feeder.close)


def test_an_epoch_after_the_last_one_does_not_wait_for_ever(no_audio):
    data_set = make_set([3, 2], batch_size=2)
    with Graph(data_set) as graph:
        feeder = graph.feed(n_epochs=1)
        graph.take_epoch(feeder)
        try:
            steps = within(2, list, feeder.epoch())
        except (StopIteration, RuntimeError, ValueError):
            steps = []
        assert steps == []


def test_steps_are_announced_once_their_utterances_are_in_the_queue(no_audio):
    data_set = make_set(LENGTHS, batch_size=3)
    with Graph(data_set) as graph:
        feeder = graph.feed()
        for _ in range(3):
            for step in feeder.epoch():
                assert graph.queued() >= len(step.examples)
                graph.take(len(step.examples))


# Files that turn out unreadable only when they are decoded


def decode_corpus(folder, **values):
    """DataSets with 5 train utterances of rising length; all are fine so far."""
    rows = [('wav/%d.wav' % i, 'ab') for i in range(5)]
    for i, (name, _) in enumerate(rows):
        write_wav(folder / name, speech(0.1 + 0.03 * i, i))
    return build_sets(folder, rows, **values)


def run_epochs(data_set, n_epochs):
    """[[(names, seq_len)] of each epoch]."""
    def run():
        epochs = []
        with Graph(data_set) as graph:
            feeder = graph.feed(n_epochs=n_epochs)
            for _ in range(n_epochs):
                epochs.append([(step.index, names(step),
                                graph.take(len(step.examples)).seq_len.tolist())
                               for step in feeder.epoch()])
        return epochs
    return within(HANG_S, run)


def replace_by_page(path):
    path.write_text('<html>moved</html>')


def truncate_to_header(path):
    with open(path, 'r+b') as file:
        file.truncate(44)


def truncate_to_one_step(path):
    with open(path, 'r+b') as file:
        file.truncate(44 + 2 * 500)  # 2 steps need more than 560 samples of 2 bytes


@pytest.mark.parametrize('damage, reason', [
    (os.remove, 'cannot be read: No such file or directory'),
    (replace_by_page, 'not an audio file'),
    (truncate_to_header, 'too short')])
def test_a_file_unreadable_at_decoding_is_left_out_by_name_and_its_step_is_smaller(
        tmp_path, caplog, damage, reason):
    data_set = decode_corpus(tmp_path, train_batch_size=3).train
    damage(tmp_path / 'wav/1.wav')
    epochs = run_epochs(data_set, 2)
    assert epochs == 2 * [[(0, ['wav/0.wav', 'wav/2.wav'], [9, 15]),
                           (1, ['wav/3.wav', 'wav/4.wav'], [18, 21])]]
    excluded = exclusions(caplog)  # fails where one is said twice
    assert list(excluded) == ['wav/1.wav'] and reason in excluded['wav/1.wav']
    assert '1 of 5 train utterances excluded while reading' in caplog.messages


def test_a_file_cut_shorter_than_its_transcript_is_left_out(tmp_path, caplog):
    write_wav(tmp_path / 'a.wav', speech(0.3))
    write_wav(tmp_path / 'b.wav', speech(0.4))
    data_set = build_sets(tmp_path, [('a.wav', 'abc'), ('b.wav', 'abc')], train_batch_size=2).train
    truncate_to_one_step(tmp_path / 'b.wav')
    assert run_epochs(data_set, 1) == [[(0, ['a.wav'], [29])]]
    assert 'CTC needs 3' in exclusions(caplog)['b.wav']


def test_a_flac_damaged_in_the_middle_is_left_out_by_name(tmp_path, caplog):
    write_wav(tmp_path / 'a.wav', speech(0.3))
    soundfile.write(tmp_path / 'b.flac', speech(2.0), 16000)
    data_set = build_sets(tmp_path, [('a.wav', 'abc'), ('b.flac', 'abc')], train_batch_size=2).train
    assert len(data_set) == 2
    os.truncate(tmp_path / 'b.flac', os.path.getsize(tmp_path / 'b.flac') // 2)
    assert run_epochs(data_set, 1) == [[(0, ['a.wav'], [29])]]
    assert 'damaged audio' in exclusions(caplog)['b.flac']


def test_a_step_of_unreadable_files_is_left_out_as_a_whole(tmp_path):
    data_set = decode_corpus(tmp_path, train_batch_size=2).train
    for i in (2, 3):
        os.remove(tmp_path / ('wav/%d.wav' % i))
    assert run_epochs(data_set, 2) == 2 * [[(0, ['wav/0.wav', 'wav/1.wav'], [9, 12]),
                                            (2, ['wav/4.wav'], [21])]]


def test_an_epoch_without_a_readable_file_has_no_steps(tmp_path, caplog):
    data_set = decode_corpus(tmp_path, train_batch_size=2).train
    for i in range(5):
        os.remove(tmp_path / ('wav/%d.wav' % i))
    assert run_epochs(data_set, 2) == [[], []]
    assert len(exclusions(caplog)) == 5


def test_nothing_readable_does_not_let_the_feeder_run_ahead_without_bound(monkeypatch):
    reads = []
    monkeypatch.setattr(data_sets_module.DataSet, 'read', lambda data_set, index: reads.append(index))
    data_set = make_set([3, 2], 'dev', batch_size=2)  # 1 step an epoch, as many epochs as asked
    with Graph(data_set) as graph:
        feeder = graph.feed()
        assert graph.take_epoch(feeder) == []
        time.sleep(0.3)
        assert len(reads) < 200  # 100 epochs ahead of the one that was asked for


# Errors and the end


def read_or_fail(data_set, index):
    if index == 5:
        raise RuntimeError('reader broke at %d' % index)
    return item(data_set, index)


def test_an_exception_in_a_reader_reaches_the_caller_after_the_steps_before_it(monkeypatch):
    monkeypatch.setattr(data_sets_module.DataSet, 'read', read_or_fail)
    data_set = make_set(range(1, 9), batch_size=2)  # utterance 5 is in the third step
    with Graph(data_set) as graph:
        feeder = graph.feed()
        seen = []

        def consume():
            for step in feeder.epoch():
                graph.take(len(step.examples))
                seen.append(step.index)

        with pytest.raises(RuntimeError, match='reader broke at 5'):
            within(5, consume)
        assert seen == [0, 1]


def test_an_exception_in_a_reader_ends_every_one_of_many_runs(monkeypatch):
    monkeypatch.setattr(data_sets_module.DataSet, 'read', read_or_fail)
    monkeypatch.setattr(feeding, 'N_READERS', 4)
    for repetition in range(20):
        data_set = make_set(range(1, 9), batch_order='shuffled', batch_size=1 + repetition % 5,
                            random_seed=repetition)
        with Graph(data_set) as graph:
            feeder = graph.feed()
            with pytest.raises(RuntimeError, match='reader broke'):
                while True:
                    graph.take_epoch(feeder)


def test_an_exception_in_the_enqueueing_thread_reaches_the_caller(no_audio, monkeypatch):
    def enqueue(data_set, session, items):
        raise MemoryError('queue')

    monkeypatch.setattr(data_sets_module.DataSet, 'enqueue', enqueue)
    with Graph(make_set([3, 2])) as graph:
        feeder = graph.feed()
        with pytest.raises(MemoryError):
            within(5, list, feeder.epoch())


def test_a_session_closed_under_the_feeder_is_an_error_and_no_hang(no_audio):
    data_set = make_set(LENGTHS, batch_size=2)
    graph = Graph(data_set)
    feeder = graph.feed()
    graph.wait_until_full()
    graph.session.close()

    def consume():
        while True:
            for _ in feeder.epoch():
                pass

    with pytest.raises((tf.errors.OpError, RuntimeError)):
        within(5, consume)


def test_a_queue_closed_under_the_feeder_is_an_error_and_no_hang(no_audio):
    data_set = make_set(LENGTHS, batch_size=2)
    with Graph(data_set) as graph:
        feeder = graph.feed()
        graph.wait_until_full()
        data_set.close_queue(graph.session)

        def consume():
            while True:
                for _ in feeder.epoch():
                    pass

        with pytest.raises(tf.errors.CancelledError):
            within(5, consume)


def test_closing_while_the_queue_is_full_does_not_hang(no_audio):
    data_set, before = make_set(LENGTHS, batch_size=2), set(threading.enumerate())
    with Graph(data_set) as graph:
        feeder = graph.feed()
        graph.wait_until_full()
        assert set(threading.enumerate()) > before
        within(5, feeder.close)
        assert set(threading.enumerate()) <= before


def test_closing_at_any_moment_leaves_no_thread_behind(no_audio):
    rng = random.Random(5)
    before = set(threading.enumerate())
    for repetition in range(40):
        data_set = make_set(LENGTHS, batch_order='shuffled', batch_size=1 + repetition % 4)
        with Graph(data_set) as graph:
            feeder = graph.feed()
            for _ in range(rng.randrange(4)):
                step = within(HANG_S, next, feeder.epoch())
                graph.take(len(step.examples))
            time.sleep(rng.choice([0, 0, 0.001, 0.01]))
            within(5, feeder.close)
    assert set(threading.enumerate()) <= before


def test_leaving_the_with_block_by_an_error_closes_the_feeder(no_audio):
    data_set, before = make_set(LENGTHS, batch_size=2), set(threading.enumerate())
    with Graph(data_set) as graph:
        def leave():
            with graph.feed():
                raise KeyError('the caller')

        with pytest.raises(KeyError):
            within(5, leave)
        assert set(threading.enumerate()) <= before


# Updates of several batches, stages, linked corpora


@pytest.mark.parametrize('rounds, ends', [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (3, [3, 5]),
                                          (7, [5])])
def test_an_update_ends_after_so_many_batches_and_with_the_epoch(no_audio, rounds, ends):
    data_set = make_set(LENGTHS[:9], batch_size=2, numbatches_to_aggregate=rounds)
    with Graph(data_set) as graph:
        feeder = graph.feed(n_epochs=1)
        steps = []
        for step in feeder.all_steps():
            graph.take(len(step.examples))
            steps.append(step)
    assert [step.index + 1 for step in steps if step.ends_update] == ends
    assert {(step.weight, step.queue_index) for step in steps} == {(1.0, 0)}


def test_steps_without_utterances_are_announced_to_those_who_ask(no_audio, monkeypatch):
    monkeypatch.setattr(data_sets_module.DataSet, 'read', lambda data_set, index: (
        None if index == 1 else item(data_set, index)))
    with Graph(make_set([3, 4, 5], batch_size=1)) as graph:
        feeder = graph.feed(n_epochs=2)
        counts = []
        for steps in (feeder.all_steps(), feeder.epoch()):
            for step in steps:
                counts.append((step.index, len(step.examples)))
                if step.examples:
                    graph.take(1)
        assert counts == [(0, 1), (1, 0), (2, 1), (0, 1), (2, 1)]


def test_a_stage_holds_the_utterances_up_to_its_length():
    data_set = make_set(LENGTHS)
    short = data_set.up_to(4)
    assert sorted(example.n_steps for example in short.examples) == [1, 2, 2, 2, 3, 4]
    assert len(data_set) == len(LENGTHS) and short.total_batches == 1
    assert flat(short.order(0)) != flat(data_set.order(0))


def test_a_subset_has_a_queue_of_its_own(no_audio):
    data_set = make_set([4, 2, 3])
    sets = data_sets_module.DataSets(data_set, make_set([1], 'dev'), make_set([1], 'test'),
                            stages=[data_set.up_to(3), data_set])
    assert [part.queue_index for part in (*sets.stages, sets.dev, sets.test)] == [0, 1, 2, 3]
    with tf.Graph().as_default(), tf.Session() as session:
        selector = tf.placeholder(tf.int32, [])
        batch = sets.next_batch(selector, 1)
        for stage, labels in zip(sets.stages, ([0, 1], [1, 2, 0])):
            with stage.feed(session, n_epochs=1) as feeder:
                [step] = within(HANG_S, list, feeder.all_steps())
                taken = [session.run(batch, {selector: step.queue_index}).labels[0, 0]
                         for _ in step.examples]
            assert taken == labels


def corpora(tmp_path, **values):
    """DataSets of two corpora of 3 and 2 training utterances, and one each to validate and test."""
    made = []
    for folder, lengths in (('one', [1.0, 1.1, 1.2]), ('two', [1.05, 1.3])):
        rows = []
        for i, seconds in enumerate(lengths):
            write_wav(tmp_path / folder / ('%d.wav' % i), speech(seconds, i))
            rows.append(records.Utterance(str(tmp_path / folder / ('%d.wav' % i)),
                                          '%s/%d' % (folder, i), 'a', corpus=folder))
        made.append(rows)
    config = load_config(importer='csv,csv', cache_dir=tmp_path / 'cache', **values)
    object.__setattr__(config, 'importer', 'one,two')
    both = made[0] + made[1]
    return data_sets_module.make_data_sets(config, text.Alphabet(), both, both[2:4], both[:1])


def test_linked_corpora_are_parts_of_the_training_set_with_their_weights(tmp_path):
    sets = corpora(tmp_path, importer_weights='2,1')
    [stage] = sets.stages
    assert [names(part) for part in stage.parts] == [['one/0', 'one/1', 'one/2'],
                                                     ['two/0', 'two/1']]
    assert names(sets.train) == names(stage.parts[0]) + names(stage.parts[1])
    assert [part.queue_index for part in (*stage.parts, sets.dev, sets.test)] == [0, 1, 2, 3]
    assert stage._weights == [1.0, 0.5]


def test_without_weights_corpora_are_joined(tmp_path):
    sets = corpora(tmp_path)
    assert sets.stages == [sets.train] and len(sets.train) == 5


def test_a_limit_is_that_of_each_linked_corpus(tmp_path):
    sets = corpora(tmp_path, importer_weights='1,1', limit_train=2, limit_dev=1)
    assert names(sets.train) == ['one/0', 'one/1', 'two/0', 'two/1']
    assert names(sets.dev) == ['one/2', 'two/0']
    assert names(corpora(tmp_path, limit_train=2).train) == ['one/0', 'one/1']


def test_a_linked_corpus_of_which_nothing_is_left_is_named(tmp_path, monkeypatch):
    check = data_sets_module._check
    monkeypatch.setattr(feeding, '_check', lambda utterance, *more: (
        ('torn', None) if utterance.corpus == 'two' else check(utterance, *more)))
    with pytest.raises(errors.DataError, match='ds_importer_weights: .* of two is left'):
        corpora(tmp_path, importer_weights='1,1')


def test_a_stage_without_utterances_is_an_error_with_the_shortest_length(tmp_path):
    with pytest.raises(errors.DataError, match='at most 50 time steps, the shortest has 99'):
        corpora(tmp_path, segment_lengths='50,full')
    stages = corpora(tmp_path, segment_lengths='105,full').stages
    assert [len(stage) for stage in stages] == [2, 5]
