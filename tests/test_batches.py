"""The batch on its way from the queue into the towers: windows cut in the graph, even shares."""

import numpy as np
import pytest

import DeepSpeech
from feeding_helpers import HANG_S, Graph, build_sets, names, within
from helpers import speech, write_wav
from util import audio, records
from util.tf1 import tf


@pytest.mark.parametrize('n_context, stride', ((0, 1), (2, 1), (2, 2)))
def test_next_batch_hands_out_the_input_vectors_of_the_files(tmp_path, n_context, stride):
    rows = [('a.wav', 'hi'), ('b.wav', 'you'), ('c.wav', 'a')]
    for i, (name, seconds, rate) in enumerate(
        (('a.wav', 0.31, 16000), ('b.wav', 0.125, 16000), ('c.wav', 0.2, 8000))
    ):
        write_wav(tmp_path / name, speech(seconds, i, rate), rate)
    data_set = build_sets(
        tmp_path, rows, n_context=n_context, feature_stride=stride, train_batch_size=3
    ).train
    for _ in range(2):  # the second time from the cache
        check_input_vectors(data_set, n_context, stride)


def check_input_vectors(data_set, n_context, stride):
    with Graph(data_set) as graph:
        feeding = graph.feed(n_epochs=1)
        step = within(HANG_S, lambda: next(feeding.epoch()))
        batch = graph.take(3)
    with tf.Graph().as_default(), tf.Session() as session:
        batch = session.run(
            DeepSpeech.cut_windows(records.Batch(*map(tf.constant, batch)), n_context)
        )
    assert names(step) == ['b.wav', 'c.wav', 'a.wav']
    n_steps = {
        (0.125, 1): 11,
        (0.2, 1): 19,
        (0.31, 1): 30,
        (0.125, 2): 6,
        (0.2, 2): 10,
        (0.31, 2): 15,
    }
    assert batch.seq_len.tolist() == [n_steps[s, stride] for s in (0.125, 0.2, 0.31)]
    assert batch.features.shape == (3, n_steps[0.31, stride], 4 + 2 * 4 * n_context)
    assert batch.features.dtype == np.float32 and batch.seq_len.dtype == np.int32
    for row, example in enumerate(step.examples):
        expected = audio.audiofile_to_input_vector(
            example.utterance.wav_filename, 4, n_context, stride=stride
        )
        np.testing.assert_allclose(
            batch.features[row, : len(expected)], expected, rtol=0, atol=1e-5
        )
        assert not batch.features[row, len(expected) :].any()
    assert batch.label_len.tolist() == [3, 1, 2]
    assert batch.labels.tolist() == [[25, 15, 21], [1, 0, 0], [8, 9, 0]]


# Batches made by hand, and the shares of the towers

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
        features[b, : length + 2 * n_context] = rng.normal(size=[length + 2 * n_context, n_input])
        labels[b, :n_labels] = rng.integers(1, 28, n_labels)
        for t in range(length):
            windows[b, t] = np.concatenate([features[b, t + k] for k in range(size)])
    return records.Batch(features, np.int32(lengths), labels, np.int32(label_lengths)), windows


def run_towers(values, n_towers, n_context=2):
    """[(Batch, count) of each tower], from placeholders of unknown sizes."""
    with tf.Graph().as_default(), tf.Session() as session:
        shapes = records.Batch([None, None, values.features.shape[2]], [None], [None, None], [None])
        batch = records.Batch(
            *[tf.placeholder(value.dtype, shape) for value, shape in zip(values, shapes)]
        )
        towers = [DeepSpeech.tower_batch(batch, i, n_towers, n_context) for i in range(n_towers)]
        return session.run(towers, dict(zip(batch, values)))


@pytest.mark.parametrize('n_context', (0, 1, 2))
def test_windows_are_cut_in_the_graph_and_zero_past_the_end(n_context):
    values, windows = frames_batch(4, n_context=n_context)
    [(batch, count)] = run_towers(values, 1, n_context)
    np.testing.assert_array_equal(batch.features, windows)
    assert count == 4
    for got, given in zip(batch[1:], values[1:]):
        np.testing.assert_array_equal(got, given)


@pytest.mark.parametrize(
    'count, n_towers, shares',
    [
        (7, 3, [[0, 1, 2], [3, 4], [5, 6]]),
        (6, 3, [[0, 1], [2, 3], [4, 5]]),
        (5, 2, [[0, 1, 2], [3, 4]]),
        (2, 2, [[0], [1]]),
    ],
)
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


@pytest.mark.parametrize(
    'count, n_towers, counts', [(1, 2, [1, 0]), (2, 3, [1, 1, 0]), (1, 4, [1, 0, 0, 0])]
)
def test_an_idle_tower_gets_the_first_utterance_and_counts_nothing(count, n_towers, counts):
    values, windows = frames_batch(count)
    towers = run_towers(values, n_towers)
    assert [n for _, n in towers] == counts
    for batch, _ in towers[count:]:
        np.testing.assert_array_equal(batch.features, windows[:1, : TOWER_LENGTHS[0]])
        assert batch.seq_len.tolist() == TOWER_LENGTHS[:1]
        assert batch.labels.tolist() == values.labels[:1, : TOWER_LABELS[0]].tolist()
