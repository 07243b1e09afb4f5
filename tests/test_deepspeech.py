"""Parts of DeepSpeech.py at tiny, unequal sizes; whole runs are in test_train.py."""

import numpy as np
import pytest

import DeepSpeech
from helpers import load_config, run_graph
from util import text
from util.graph import layers
from util.tf1 import tf

B, T, N_INPUT, N_CONTEXT, N_CHARACTER = 3, 11, 4, 1, 7
SIZES = dict(
    n_input=N_INPUT,
    n_context=N_CONTEXT,
    n_hidden_1=6,
    n_hidden_2=8,
    n_hidden_5=9,
    n_cell_dim=5,
    default_stddev=0.5,
)
N_FEATURES = N_INPUT * 3


def batch_x(seed=0):
    return np.random.default_rng(seed).normal(size=(B, T, N_FEATURES)).astype(np.float32)


def logits(x, lengths, **more):
    return lambda: DeepSpeech.BiRNN(
        tf.constant(x),
        tf.constant(lengths),
        config=load_config(**SIZES),
        n_character=N_CHARACTER,
        **more,
    )


def test_logits_are_time_major():
    assert run_graph(logits(batch_x(), [T, T, T])).shape == (T, B, N_CHARACTER)


def test_rank_is_checked_at_the_door():
    with pytest.raises(ValueError, match=r'batch_x must be \[batch, n_steps, n_features\]'):
        run_graph(logits(batch_x()[0], [T]))


def test_padding_changes_no_logits_before_the_end():
    lengths = [11, 7, 2]
    clean, dirty = batch_x(), batch_x()
    for row, length in enumerate(lengths):
        clean[row, length:] = 0
        dirty[row, length:] = 99
    first, second = run_graph(logits(clean, lengths)), run_graph(logits(dirty, lengths))
    alone = run_graph(logits(clean[1:2, :7], [7]))
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(first[:length, row], second[:length, row])
    np.testing.assert_allclose(alone[:, 0], first[:7, 1], atol=1e-6)


def test_order_in_the_batch_does_not_matter():
    x = batch_x()
    forward, backward = run_graph(logits(x, [11, 7, 2])), run_graph(logits(x[::-1], [2, 7, 11]))
    np.testing.assert_allclose(forward[:, ::-1], backward, atol=1e-6)


def test_activation_is_clipped():
    def dense():
        return layers.dense(
            tf.constant([[-1.0], [1.0], [50.0]]),
            1,
            2,
            load_config(b1_stddev=0, h1_stddev=0, relu_clip=20),
            None,
        )

    with tf.Graph().as_default(), tf.Session() as session:
        y = dense()
        session.run(
            tf.global_variables_initializer(),
            {
                v.initial_value: np.ones(v.shape) * (v.op.name == 'h1')
                for v in tf.global_variables()
            },
        )
        np.testing.assert_array_equal(session.run(y), [[0, 0], [1, 1], [20, 20]])


def test_beam_search_keeps_doubled_letters():
    path = [1, 12, 28, 12, 28]  # a l - l -
    scores = np.full((5, 1, 29), -9, np.float32)
    scores[np.arange(5), 0, path] = 9
    decoded = run_graph(lambda: DeepSpeech.decode(tf.constant(scores), [5], 10))
    assert text.sparse_tensor_value_to_texts(decoded) == ['all']


def test_beam_search_of_a_batch_is_that_of_the_operation():
    """Unequal lengths, and one utterance of nothing but blanks."""
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 4, (11, 4, 29)).astype(np.float32)
    logits[:, 2, 28] = 99
    lengths = [11, 3, 7, 8]
    ours, whole = run_graph(
        lambda: [
            DeepSpeech.decode(tf.constant(logits), tf.constant(lengths), 20),
            tf.nn.ctc_beam_search_decoder(
                logits, lengths, beam_width=20, top_paths=1, merge_repeated=False
            )[0][0],
        ]
    )
    for got, expected in zip(ours, whole):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    assert 2 not in ours.indices[:, 0] and {0, 1, 3} <= set(ours.indices[:, 0])


def test_beam_search_that_finds_nothing_at_all():
    logits = np.zeros((3, 2, 5), np.float32)
    logits[:, :, 4] = 50
    found = run_graph(lambda: DeepSpeech.decode(tf.constant(logits), tf.constant([3, 2]), 10))
    assert found.indices.shape == (0, 2) and found.dense_shape.tolist() == [2, 0]


def test_gradients_are_weighted_by_the_towers_utterances():
    def build():
        pairs = [
            [(tf.constant([1.0, 2.0]), 'v'), (tf.constant(3.0), 'w')],
            [(tf.constant([5.0, 6.0]), 'v'), (tf.constant(7.0), 'w')],
        ]
        averaged = DeepSpeech.average_gradients(pairs, [0.75, 0.25])
        plain = DeepSpeech.average_gradients(pairs)
        assert [name for _, name in averaged] == ['v', 'w']
        return [g for g, _ in averaged], [g for g, _ in plain]

    weighted, plain = run_graph(build)
    np.testing.assert_allclose(weighted[0], [2, 3])
    assert weighted[1] == pytest.approx(4)
    np.testing.assert_allclose(plain[0], [3, 4])


# Layer normalisation


@pytest.mark.parametrize('rnn', ('lstm', 'vanilla'))
def test_layer_norm_is_in_layers_1_2_3_and_5(rnn):
    with tf.Graph().as_default():
        for layer_norm in (0, 1):
            with tf.variable_scope('on' if layer_norm else 'off'):
                DeepSpeech.BiRNN(
                    tf.zeros([B, T, N_FEATURES]),
                    tf.constant([T] * B),
                    n_character=N_CHARACTER,
                    config=load_config(**SIZES, rnn=rnn, layer_norm=layer_norm),
                )
        shapes = {v.op.name: v.shape.as_list() for v in tf.trainable_variables()}
    on, off = [
        {name[len(scope) :] for name in shapes if name.startswith(scope)} for scope in ('on', 'off')
    ]
    assert on - off == {
        '/layer_norm_%d/%s' % (i, n) for i in (1, 2, 3, 5) for n in ('gain', 'bias')
    }
    units = {1: 6, 2: 8, 3: 10 if rnn == 'lstm' else 5, 5: 9}
    for index, width in units.items():
        assert shapes['on/layer_norm_%d/gain' % index] == [width]


def test_layer_norm_comes_behind_the_activation_and_before_the_dropout():
    x = np.random.default_rng(4).normal(size=(6, 3)).astype(np.float32)
    values = dict(h1_stddev=2, b1_stddev=1, relu_clip=3, layer_norm=1)

    def build(rate, training):
        dropout = DeepSpeech.Dropout(tf.constant(training), tf.constant([7, 0], tf.int64))
        config = load_config(**values, dropout_rate=rate)
        y = layers.dense(tf.constant(x), 1, 5, config, dropout)
        weights = {v.op.name: v for v in tf.trainable_variables()}
        return y, weights['h1'], weights['b1']

    (y, h, b), (off, *_), (on, *_) = [
        run_graph(lambda a=a: build(*a)) for a in ((0, True), (0.5, False), (0.5, True))
    ]
    active = np.clip(x @ h + b, 0, 3)
    assert (active == 0).any() and (active == 3).any()
    mean, deviation = active.mean(axis=1, keepdims=True), active.std(axis=1, keepdims=True)
    np.testing.assert_allclose(y, (active - mean) / deviation, atol=1e-5)
    np.testing.assert_array_equal(off, y)
    kept = on != 0
    assert 5 < kept.sum() < 25
    np.testing.assert_allclose(on[kept], 2 * y[kept], rtol=1e-5)


# The paper's network and the settings of layer 4


def initial_values(**values):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        DeepSpeech.BiRNN(
            tf.zeros([1, 1, 494]), [1], n_character=29, config=load_config(n_hidden=40, **values)
        )
        session.run(tf.global_variables_initializer())
        return session.run({v.op.name: v for v in tf.trainable_variables()})


def assert_orthogonal(matrix):
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=1e-5)


def test_recurrent_weights_are_orthogonal_or_uniform():
    vanilla = initial_values(rnn='vanilla', h4_stddev=0.3)
    for name in ('r4_fw', 'r4_bw'):
        assert_orthogonal(vanilla[name])
    assert np.abs(vanilla['r4_fw'] - vanilla['r4_bw']).max() > 0.1
    assert vanilla['h4'].std() == pytest.approx(0.3, rel=0.1)
    uniform = initial_values(rnn='vanilla', recurrent_init='uniform')['r4_fw']
    assert uniform.std() == pytest.approx(1 / np.sqrt(40), rel=0.1)
    assert np.abs(uniform).max() <= np.sqrt(3 / 40)


def test_an_lstms_gates_are_orthogonal_each_where_that_is_asked_for():
    name = 'bidirectional_rnn/fw/basic_lstm_cell/kernel'
    kernel = initial_values(recurrent_init='orthogonal')[name]
    assert kernel.shape == (80 + 40, 160)
    for gate in np.split(kernel[80:], 4, axis=1):
        assert_orthogonal(gate)
    assert kernel[:80].std() == pytest.approx(1 / np.sqrt(120), rel=0.1)
    assert initial_values()[name].std() == pytest.approx(1 / np.sqrt(120), rel=0.1)


def test_layer_4_has_a_dropout_of_its_own():
    x = batch_x()

    def build(rate, training=True):
        dropout = DeepSpeech.Dropout(tf.constant(training), tf.constant([7, 0], tf.int64))
        return DeepSpeech.BiRNN(
            tf.constant(x),
            tf.constant([T] * B),
            n_character=N_CHARACTER,
            dropout=dropout,
            config=load_config(**SIZES, dropout_rate=0, dropout_rate4=rate),
        )

    without, off, on = (run_graph(lambda a=a: build(*a)) for a in ((0,), (0.5, False), (0.5,)))
    np.testing.assert_array_equal(off, without)
    assert np.abs(on - without).max() > 0.01
