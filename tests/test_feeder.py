"""Queues and feeders: batches of the right utterances, files that turn out unreadable, errors
among the threads, the end."""

import os
import random
import threading
import time

import numpy as np
import pytest
import soundfile

from feeding_helpers import (
    HANG_S,
    LENGTHS,
    ORDERS,
    Graph,
    build_sets,
    exclusions,
    expected_epoch,
    flat,
    item,
    make_set,
    names,
    within,
)
from helpers import speech, write_wav
from util import errors, records
from util.feeding import data_sets, feeder, readers
from util.tf1 import tf

# Queues


def test_the_selector_picks_the_queue_and_frames_keep_their_margins(no_audio):
    sets = [
        make_set(lengths, name, batch_size=2)
        for name, lengths in zip(records.SET_NAMES, ([4, 6], [3], [5, 2]))
    ]
    with tf.Graph().as_default(), tf.Session() as session:
        selector, count = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
        queues = feeder.make_queues(data_sets.DataSets(*sets))
        batch = feeder.next_batch(queues, selector, count)
        feeders = [feeder.feed(data_set, queues, session, n_epochs=1) for data_set in sets]
        taken = {}
        for i in (2, 0, 1):
            step = within(HANG_S, lambda i=i: next(feeders[i].epoch()))
            taken[i] = session.run(batch, {selector: i, count: len(step.examples)})
        for each in feeders:
            within(HANG_S, each.close)
    assert [taken[i].seq_len.tolist() for i in range(3)] == [[4, 6], [3], [2, 5]]
    assert [taken[i].labels[:, 0].tolist() for i in range(3)] == [[0, 1], [0], [1, 0]]
    assert [taken[i].features.shape for i in range(3)] == [(2, 10, 3), (1, 7, 3), (2, 9, 3)]


def test_a_subset_has_a_queue_of_its_own(no_audio):
    data_set = make_set([4, 2, 3])
    sets = data_sets.DataSets(
        data_set, make_set([1], 'dev'), make_set([1], 'test'), stages=[data_set.up_to(3), data_set]
    )
    assert [part.queue_index for part in (*sets.stages, sets.dev, sets.test)] == [0, 1, 2, 3]
    with tf.Graph().as_default(), tf.Session() as session:
        selector = tf.placeholder(tf.int32, [])
        queues = feeder.make_queues(sets)
        batch = feeder.next_batch(queues, selector, 1)
        for stage, labels in zip(sets.stages, ([0, 1], [1, 2, 0])):
            with feeder.feed(stage, queues, session, n_epochs=1) as feeding:
                [step] = within(HANG_S, list, feeding.all_steps())
                taken = [
                    session.run(batch, {selector: step.queue_index}).labels[0, 0]
                    for _ in step.examples
                ]
            assert taken == labels


# The feeder


@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('towers', (1, 2))
def test_each_epoch_presents_each_utterance_once_and_in_order(no_audio, order, towers):
    data_set = make_set(LENGTHS, batch_order=order, batch_size=2, numbuckets=3, towers=towers)
    with Graph(data_set) as graph:
        feeding = graph.feed(n_epochs=3)
        for epoch in range(3):
            steps = graph.take_epoch(feeding)
            assert steps == expected_epoch(data_set, epoch)
            assert sorted(flat(labels for _, _, labels in steps)) == list(range(13))


def test_fewer_utterances_than_a_step_takes_are_one_small_step(no_audio):
    data_set = make_set([4, 2, 3], batch_size=16, towers=2)
    with Graph(data_set) as graph:
        feeding = graph.feed()
        for _ in range(4):
            assert graph.take_epoch(feeding) == [(0, ['u1', 'u2', 'u0'], [1, 2, 0])]


def test_slow_and_uneven_readers_do_not_change_the_order(monkeypatch):
    delays = np.random.default_rng(3).choice([0, 0, 0.001, 0.01], size=1000).tolist()

    def read(data_set, index, epoch):
        time.sleep(delays.pop())
        return item(data_set, index)

    monkeypatch.setattr(data_sets.DataSet, 'read', read)
    monkeypatch.setattr(feeder, 'N_READERS', 4)
    data_set = make_set(LENGTHS, batch_order='shuffled', batch_size=3)
    with Graph(data_set) as graph:
        feeding = graph.feed(n_epochs=6)
        for epoch in range(6):
            assert graph.take_epoch(feeding) == expected_epoch(data_set, epoch)


@pytest.mark.parametrize('first_epoch, first_step', ((0, 0), (0, 3), (2, 0), (2, 4)))
def test_a_resumed_feeder_goes_on_with_the_same_sequence(no_audio, first_epoch, first_step):
    data_set = make_set(LENGTHS, batch_order='bucketed', batch_size=3, numbuckets=2)
    with Graph(data_set) as graph:
        feeding = graph.feed(first_epoch, first_step, 2)
        assert graph.take_epoch(feeding) == expected_epoch(data_set, first_epoch, first_step)
        assert graph.take_epoch(feeding) == expected_epoch(data_set, first_epoch + 1)


def test_waiting_for_slow_readers_is_measured_epoch_by_epoch(monkeypatch):
    slow = [True]

    def read(data_set, index, epoch):
        time.sleep(0.2 if slow[0] else 0)
        return item(data_set, index)

    monkeypatch.setattr(data_sets.DataSet, 'read', read)
    monkeypatch.setattr(feeder, 'N_READERS', 1)
    data_set = make_set(LENGTHS[:3], batch_size=3)
    with Graph(data_set) as graph:
        feeding = graph.feed(n_epochs=2)
        time.sleep(0.1)  # the first utterance is being read, which takes 0.2 s
        slow[0] = False
        graph.take_epoch(feeding)
        first = feeding.waited
        graph.wait_for(3)  # the utterances of the second epoch
        time.sleep(0.1)  # their step is announced once they are there
        graph.take_epoch(feeding)
        assert first > 0.05 > feeding.waited - first


def test_a_feeder_ends_after_its_epochs(no_audio):
    data_set, before = make_set(LENGTHS, batch_size=4), set(threading.enumerate())
    with Graph(data_set) as graph:
        feeding = graph.feed(n_epochs=2)
        for epoch in (0, 1):
            assert graph.take_epoch(feeding) == expected_epoch(data_set, epoch)
        for thread in set(threading.enumerate()) - before:  # end without close()
            within(HANG_S, thread.join)
        assert graph.queued() == 0
        within(HANG_S, feeding.close)


def test_an_epoch_after_the_last_one_does_not_wait_for_ever(no_audio):
    data_set = make_set([3, 2], batch_size=2)
    with Graph(data_set) as graph:
        feeding = graph.feed(n_epochs=1)
        graph.take_epoch(feeding)
        try:
            steps = within(2, list, feeding.epoch())
        except (StopIteration, RuntimeError, ValueError):
            steps = []
        assert steps == []


def test_steps_are_announced_once_their_utterances_are_in_the_queue(no_audio):
    data_set = make_set(LENGTHS, batch_size=3)
    with Graph(data_set) as graph:
        feeding = graph.feed()
        for _ in range(3):
            for step in feeding.epoch():
                assert graph.queued() >= len(step.examples)
                graph.take(len(step.examples))


@pytest.mark.parametrize(
    'rounds, ends', [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (3, [3, 5]), (7, [5])]
)
def test_an_update_ends_after_so_many_batches_and_with_the_epoch(no_audio, rounds, ends):
    data_set = make_set(LENGTHS[:9], batch_size=2, numbatches_to_aggregate=rounds)
    with Graph(data_set) as graph:
        feeding = graph.feed(n_epochs=1)
        steps = []
        for step in feeding.all_steps():
            graph.take(len(step.examples))
            steps.append(step)
    assert [step.index + 1 for step in steps if step.ends_update] == ends
    assert {(step.weight, step.queue_index) for step in steps} == {(1.0, 0)}


def test_steps_without_utterances_are_announced_to_those_who_ask(no_audio, monkeypatch):
    monkeypatch.setattr(
        data_sets.DataSet,
        'read',
        lambda data_set, index, epoch: None if index == 1 else item(data_set, index),
    )
    with Graph(make_set([3, 4, 5], batch_size=1)) as graph:
        feeding = graph.feed(n_epochs=2)
        counts = []
        for steps in (feeding.all_steps(), feeding.epoch()):
            for step in steps:
                counts.append((step.index, len(step.examples)))
                if step.examples:
                    graph.take(1)
        assert counts == [(0, 1), (1, 0), (2, 1), (0, 1), (2, 1)]


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
            feeding = graph.feed(n_epochs=n_epochs)
            for _ in range(n_epochs):
                epochs.append(
                    [
                        (step.index, names(step), graph.take(len(step.examples)).seq_len.tolist())
                        for step in feeding.epoch()
                    ]
                )
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


@pytest.mark.parametrize(
    'damage, reason',
    [
        (os.remove, 'cannot be read: No such file or directory'),
        (replace_by_page, 'not an audio file'),
        (truncate_to_header, 'damaged WAV: 0 bytes of samples, its header says 4160'),
    ],
)
def test_a_file_unreadable_at_decoding_is_left_out_by_name_and_its_step_is_smaller(
    tmp_path, caplog, damage, reason
):
    data_set = decode_corpus(tmp_path, train_batch_size=3).train
    damage(tmp_path / 'wav/1.wav')
    epochs = run_epochs(data_set, 2)
    assert epochs == 2 * [
        [(0, ['wav/0.wav', 'wav/2.wav'], [9, 15]), (1, ['wav/3.wav', 'wav/4.wav'], [18, 21])]
    ]
    excluded = exclusions(caplog)  # fails where one is said twice
    assert list(excluded) == ['wav/1.wav'] and reason in excluded['wav/1.wav']
    assert '1 of 5 train utterances excluded while reading' in caplog.messages


def test_a_file_cut_shorter_than_its_transcript_is_left_out(tmp_path, caplog):
    write_wav(tmp_path / 'a.wav', speech(0.3))
    write_wav(tmp_path / 'b.wav', speech(0.4))
    data_set = build_sets(tmp_path, [('a.wav', 'abc'), ('b.wav', 'abc')], train_batch_size=2).train
    truncate_to_one_step(tmp_path / 'b.wav')
    assert run_epochs(data_set, 1) == [[(0, ['a.wav'], [29])]]
    assert 'damaged WAV: 500 samples, its header says 6400' in exclusions(caplog)['b.wav']


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
    assert run_epochs(data_set, 2) == 2 * [
        [(0, ['wav/0.wav', 'wav/1.wav'], [9, 12]), (2, ['wav/4.wav'], [21])]
    ]


def test_an_epoch_without_a_readable_file_has_no_steps(tmp_path, caplog):
    data_set = decode_corpus(tmp_path, train_batch_size=2).train
    for i in range(5):
        os.remove(tmp_path / ('wav/%d.wav' % i))
    assert run_epochs(data_set, 2) == [[], []]
    assert len(exclusions(caplog)) == 5


def test_nothing_readable_does_not_let_the_feeder_run_ahead_without_bound(monkeypatch):
    reads = []
    monkeypatch.setattr(
        data_sets.DataSet, 'read', lambda data_set, index, epoch: reads.append(index)
    )
    data_set = make_set([3, 2], 'dev', batch_size=2)  # 1 step an epoch, as many epochs as asked
    with Graph(data_set) as graph:
        feeding = graph.feed()
        assert graph.take_epoch(feeding) == []
        time.sleep(0.3)
        assert len(reads) < 200  # 100 epochs ahead of the one that was asked for


# Errors and the end


def read_or_fail(data_set, index, epoch):
    if index == 5:
        raise RuntimeError('reader broke at %d' % index)
    return item(data_set, index)


def test_an_exception_in_a_reader_reaches_the_caller_after_the_steps_before_it(monkeypatch):
    monkeypatch.setattr(data_sets.DataSet, 'read', read_or_fail)
    data_set = make_set(range(1, 9), batch_size=2)  # utterance 5 is in the third step
    with Graph(data_set) as graph:
        feeding = graph.feed()
        seen = []

        def consume():
            for step in feeding.epoch():
                graph.take(len(step.examples))
                seen.append(step.index)

        with pytest.raises(RuntimeError, match='reader broke at 5'):
            within(5, consume)
        assert seen == [0, 1]


def test_an_exception_in_a_reader_ends_every_one_of_many_runs(monkeypatch):
    monkeypatch.setattr(data_sets.DataSet, 'read', read_or_fail)
    monkeypatch.setattr(feeder, 'N_READERS', 4)
    for repetition in range(20):
        data_set = make_set(
            range(1, 9),
            batch_order='shuffled',
            batch_size=1 + repetition % 5,
            random_seed=repetition,
        )
        with Graph(data_set) as graph:
            feeding = graph.feed()
            with pytest.raises(RuntimeError, match='reader broke'):
                while True:
                    graph.take_epoch(feeding)


def test_an_exception_in_the_enqueueing_thread_reaches_the_caller(no_audio, monkeypatch):
    def enqueue(utterance_queue, session, items):
        raise MemoryError('queue')

    monkeypatch.setattr(feeder.UtteranceQueue, 'enqueue', enqueue)
    with Graph(make_set([3, 2])) as graph:
        feeding = graph.feed()
        with pytest.raises(MemoryError):
            within(5, list, feeding.epoch())


def test_a_session_closed_under_the_feeder_is_an_error_and_no_hang(no_audio):
    data_set = make_set(LENGTHS, batch_size=2)
    graph = Graph(data_set)
    feeding = graph.feed()
    graph.wait_until_full()
    graph.session.close()

    def consume():
        while True:
            for _ in feeding.epoch():
                pass

    with pytest.raises((tf.errors.OpError, RuntimeError)):
        within(5, consume)


def test_a_queue_closed_under_the_feeder_is_an_error_and_no_hang(no_audio):
    data_set = make_set(LENGTHS, batch_size=2)
    with Graph(data_set) as graph:
        feeding = graph.feed()
        graph.wait_until_full()
        graph.queue.close(graph.session)

        def consume():
            while True:
                for _ in feeding.epoch():
                    pass

        with pytest.raises(tf.errors.CancelledError):
            within(5, consume)


def test_closing_while_the_queue_is_full_does_not_hang(no_audio):
    data_set, before = make_set(LENGTHS, batch_size=2), set(threading.enumerate())
    with Graph(data_set) as graph:
        feeding = graph.feed()
        graph.wait_until_full()
        assert set(threading.enumerate()) > before
        within(5, feeding.close)
        assert set(threading.enumerate()) <= before


def test_closing_at_any_moment_leaves_no_thread_behind(no_audio):
    rng = random.Random(5)
    before = set(threading.enumerate())
    for repetition in range(40):
        data_set = make_set(LENGTHS, batch_order='shuffled', batch_size=1 + repetition % 4)
        with Graph(data_set) as graph:
            feeding = graph.feed()
            for _ in range(rng.randrange(4)):
                step = within(HANG_S, next, feeding.epoch())
                graph.take(len(step.examples))
            time.sleep(rng.choice([0, 0, 0.001, 0.01]))
            within(5, feeding.close)
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


# Reads that hang, and disks that are gone


@pytest.fixture
def hanging(monkeypatch):
    """Lets reading utterance 5 hang until the test is over."""
    over = threading.Event()

    def read(data_set, index, epoch):
        if index == 5:
            over.wait()
        return item(data_set, index)

    monkeypatch.setattr(data_sets.DataSet, 'read', read)
    monkeypatch.setattr(readers, 'CLOSE_LIMIT_S', 0.1)
    yield
    over.set()


def take_all(graph, feeding):
    """Takes what all epochs bring; returns the indices of the steps."""
    seen = []

    def take():
        while not feeding.ended:
            for step in feeding.epoch():
                graph.take(len(step.examples))
                seen.append(step.index)

    with pytest.raises(BaseException) as caught:
        within(HANG_S, take)
    return seen, caught.value


def test_a_read_that_hangs_is_named_after_its_time_and_keeps_no_one(hanging):
    data_set = make_set(range(1, 9), batch_size=2, feed_timeout_secs=0.2)
    with Graph(data_set) as graph:
        seen, error = take_all(graph, graph.feed())
    assert seen == [0, 1]  # utterance 5 is in the third step
    assert isinstance(error, errors.FeedingError)
    assert str(error) == 'reading u5 takes longer than 0.2 s (ds_feed_timeout_secs)'


def test_a_request_to_stop_is_noticed_while_a_read_hangs(hanging):
    class Stop:
        def check(self):
            if time.monotonic() > wanted:
                raise errors.StopWanted

    data_set = make_set(range(1, 9), batch_size=2, feed_timeout_secs=0)
    wanted = time.monotonic() + 0.3
    with Graph(data_set) as graph:
        seen, error = take_all(graph, graph.feed(stop=Stop()))
    assert seen == [0, 1] and isinstance(error, errors.StopWanted)
    assert time.monotonic() < wanted + 2


def test_slow_reads_are_no_hanging_ones(monkeypatch):
    def read(data_set, index, epoch):
        time.sleep(0.15)
        return item(data_set, index)

    monkeypatch.setattr(data_sets.DataSet, 'read', read)
    monkeypatch.setattr(feeder, 'N_READERS', 1)
    data_set = make_set([3, 4, 5, 6], batch_size=4, feed_timeout_secs=0.4)  # 0.6 s together
    with Graph(data_set) as graph:
        assert graph.take_epoch(graph.feed(n_epochs=1)) == expected_epoch(data_set, 0)


@pytest.mark.parametrize(
    'lost, n_steps',
    [
        ([[], [3]], 8),
        ([[], [1, 2, 3]], 7),  # the third of them is more than half of 4
        ([[1, 2, 3], []], 3),
        ([[0, 1, 2], [0, 1, 2]], 8),  # the last one can be read
        ([[0, 1], [0, 1, 2]], 8),  # one more than in the epoch before
        ([[0, 1, 2, 3], [0, 1, 2, 3]], 8),  # none was ever read
    ],
)
def test_most_utterances_lost_between_epochs_end_the_run(monkeypatch, lost, n_steps):
    monkeypatch.setattr(
        data_sets.DataSet,
        'read',
        lambda data_set, index, epoch: None if index in lost[epoch] else item(data_set, index),
    )
    with Graph(make_set([2, 3, 4, 5], batch_size=1)) as graph:
        feeding, seen = graph.feed(n_epochs=2), []

        def take():
            while not feeding.ended:
                for step in feeding.all_steps():
                    graph.take(len(step.examples))
                    seen.append(step.index)

        if n_steps == 8:
            within(HANG_S, take)
        else:
            with pytest.raises(errors.FeedingError, match='more than half of the 4 train .* u[23]'):
                within(HANG_S, take)
    assert len(seen) == n_steps
