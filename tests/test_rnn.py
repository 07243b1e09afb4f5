"""The recurrent layers against plain loops in NumPy, and their gradients."""

import functools

import numpy as np
import pytest

from util.graph import rnn
from util.tf1 import tf

T, B, N_IN, N = 7, 3, 6, 5
LENGTHS = [7, 4, 1]
NAMES = ('inputs', 'kernel_fw', 'bias_fw', 'kernel_bw', 'bias_bw')


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(inputs, lengths, kernel, bias, backward=False):
    """BasicLSTMCell, an utterance and a step at a time: [T, B, n_in] -> [T, B, N], 0 past the
    end; the backward chain starts at the last step of each utterance."""
    n_cell = len(bias) // 4
    outputs = np.zeros([len(inputs), len(lengths), n_cell])
    for b, length in enumerate(lengths):
        h = c = np.zeros(n_cell)
        for t in reversed(range(length)) if backward else range(length):
            i, j, f, o = np.split(np.concatenate([inputs[t, b], h]) @ kernel + bias, 4)
            c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
            h = sigmoid(o) * np.tanh(c)
            outputs[t, b] = h
    return outputs


def both(inputs, kernel_fw, bias_fw, kernel_bw, bias_bw, lengths):
    return np.concatenate(
        [
            lstm(inputs, lengths, kernel_fw, bias_fw),
            lstm(inputs, lengths, kernel_bw, bias_bw, backward=True),
        ],
        axis=2,
    )


def draw(n_steps=T, batch=B, n_in=N_IN, n_cell=N, seed=1):
    """float32 values of inputs [T, B, n_in], two kernels and two biases, all different."""
    rng = np.random.default_rng(seed)
    shapes = (
        [n_steps, batch, n_in],
        [n_in + n_cell, 4 * n_cell],
        [4 * n_cell],
        [n_in + n_cell, 4 * n_cell],
        [4 * n_cell],
    )
    return [rng.normal(0, 0.7, shape).astype(np.float32) for shape in shapes]


class Layer:
    """A graph with a layer 4 whose sizes T and B are unknown to it, and its gradients.

    Args:
      build: function(inputs, seq_length, variables) of the outputs.
      names: names of the variables.
      shapes: shape of the inputs' last axis, then of each variable.
      needs_gradients: whether gradients are built.
    """

    def __init__(self, build, names, shapes, needs_gradients=True):
        with tf.Graph().as_default() as graph:
            self.inputs = tf.placeholder(tf.float32, [None, None, *shapes[0]])
            self.seq_length = tf.placeholder(tf.int32, [None])
            variables = [tf.get_variable(name, shape) for name, shape in zip(names, shapes[1:])]
            self.assign = [v.initializer for v in variables]
            self.initial_values = [v.initial_value for v in variables]
            self.outputs = build(self.inputs, self.seq_length, variables)
            self.weights = tf.placeholder(tf.float32, [None, None, None])
            self.gradients = needs_gradients and tf.gradients(
                tf.reduce_sum(self.outputs * self.weights), [self.inputs, *variables]
            )
            self.session = tf.Session(graph=graph)

    def run(self, values, lengths, weights=None):
        """Outputs, for values of the inputs and of each variable; with weights of the outputs'
        shape also the gradients of their product with the outputs, summed, for all values."""
        self.session.run(self.assign, dict(zip(self.initial_values, values[1:])))
        feed = {self.inputs: values[0], self.seq_length: lengths}
        if weights is None:
            return self.session.run(self.outputs, feed)
        return self.session.run([self.outputs, self.gradients], {**feed, self.weights: weights})


def shapes_of(values):
    """Shapes as `Layer` takes them, hashable."""
    return (values[0].shape[2:], *(value.shape for value in values[1:]))


@functools.cache  # building a graph takes longer than running it
def lstm_layer(shapes, implementation):
    def build(inputs, seq_length, variables):
        return rnn.bidirectional_lstm(
            inputs, seq_length, variables[:2], variables[2:], implementation
        )

    return Layer(build, NAMES[1:], shapes)


def run(values, lengths, weights=None, implementation='own'):
    """`Layer.run` of the LSTM: outputs [T, B, 2*N], gradients for all of `NAMES`."""
    return lstm_layer(shapes_of(values), implementation).run(values, lengths, weights)


def loss_weights(n_steps=T, batch=B, n_cell=N):
    """A weight for each output, those past the end included: these must not count."""
    return np.random.default_rng(2).normal(size=[n_steps, batch, 2 * n_cell]).astype(np.float32)


def difference_quotients(values, lengths, weights, step=1e-5):
    """Gradients of the NumPy loop by central differences in float64."""
    values = [value.astype(np.float64) for value in values]
    gradients = []
    for value in values:
        gradient = np.zeros_like(value)
        for index in np.ndindex(*value.shape):
            kept, ends = value[index], []
            for moved in (kept + step, kept - step):
                value[index] = moved
                ends.append((weights * both(*values, lengths)).sum())
            value[index] = kept
            gradient[index] = (ends[0] - ends[1]) / (2 * step)
        gradients.append(gradient)
    return gradients


def assert_close(got, expected, tolerance=1e-5):
    """Deviations within `tolerance` of the largest value."""
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_one_cell_by_hand():
    # no input counts: gates from the biases alone, sigmoid(i) = 3/4, tanh(j) = 1/2,
    # sigmoid(f + 1) = 1/2, sigmoid(o) = 1/4
    bias = np.float32([np.log(3), np.arctanh(0.5), -1, -np.log(3)])
    values = [
        np.ones([3, 2, 1], np.float32),
        np.zeros([2, 4], np.float32),
        bias,
        np.zeros([2, 4], np.float32),
        bias,
    ]
    h1, h2, h3 = (np.tanh(c) / 4 for c in (0.375, 0.5625, 0.65625))  # c = c/2 + 3/8
    outputs = run(values, [3, 2])
    np.testing.assert_allclose(outputs[:, 0], [[h1, h3], [h2, h2], [h3, h1]], atol=1e-7)
    np.testing.assert_allclose(outputs[:, 1], [[h1, h2], [h2, h1], [0, 0]], atol=1e-7)


def test_the_forget_bias_is_one():
    assert rnn.FORGET_BIAS == 1.0


HERE = [
    name
    for name in rnn.IMPLEMENTATIONS
    if name != 'cudnn' or tf.config.list_physical_devices('GPU')
]  # what runs here


@pytest.mark.parametrize('implementation', HERE)
@pytest.mark.parametrize('lengths', ([7, 4, 1], [2, 7, 5], [3, 3, 3]))
def test_outputs_equal_the_plain_loop(lengths, implementation):
    values = draw()
    outputs = run(values, lengths, implementation=implementation)
    assert outputs.dtype == np.float32 and outputs.shape == (T, B, 2 * N)
    np.testing.assert_allclose(outputs, both(*values, lengths), rtol=0, atol=1e-6)


def test_outputs_past_the_end_are_exactly_zero():
    outputs = run(draw(), LENGTHS)
    for b, length in enumerate(LENGTHS):
        assert not outputs[length:, b].any()
        assert outputs[:length, b].all()


def test_the_two_directions_use_weights_of_their_own():
    values = draw()
    outputs = run(values, LENGTHS)
    swapped = run([values[0], *values[3:], *values[1:3]], LENGTHS)
    assert np.abs(outputs[0, :, :N] - swapped[0, :, :N]).min() > 1e-4
    changed = list(values)
    changed[3] = values[3] + 1  # the backward kernel
    other = run(changed, LENGTHS)
    np.testing.assert_array_equal(other[:, :, :N], outputs[:, :, :N])
    assert (other[0, :, N:] != outputs[0, :, N:]).all()


@pytest.mark.parametrize('implementation', HERE)
@pytest.mark.parametrize('lengths', ([7, 4, 1], [2, 7, 5]))
def test_gradients_equal_difference_quotients_of_the_plain_loop(lengths, implementation):
    values, weights = draw(), loss_weights()
    _, gradients = run(values, lengths, weights, implementation)
    for got, expected in zip(gradients, difference_quotients(values, lengths, weights)):
        assert_close(got, expected)


def unrolled(inputs, lengths, kernel, bias, backward):
    """The plain loop on TensorFlow's operations, for its automatic gradient."""
    outputs = []
    for b, length in enumerate(lengths):
        h = c = tf.zeros([1, N])
        steps = [tf.zeros([1, N])] * T
        for t in reversed(range(length)) if backward else range(length):
            z = tf.matmul(tf.concat([inputs[t, b : b + 1], h], axis=1), kernel) + bias
            i, j, f, o = tf.split(z, 4, axis=1)
            c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
            h = tf.sigmoid(o) * tf.tanh(c)
            steps[t] = h
        outputs.append(tf.concat(steps, axis=0))
    return tf.stack(outputs, axis=1)


def test_gradients_equal_the_automatic_ones_of_an_unrolled_graph():
    values, weights = draw(seed=3), loss_weights()
    outputs, gradients = run(values, LENGTHS, weights)
    with tf.Graph().as_default(), tf.Session() as session:
        tensors = [tf.constant(value) for value in values]
        plain = tf.concat(
            [
                unrolled(tensors[0], LENGTHS, *tensors[1:3], backward=False),
                unrolled(tensors[0], LENGTHS, *tensors[3:], backward=True),
            ],
            axis=2,
        )
        loss = tf.reduce_sum(plain * weights)
        expected_outputs, expected = session.run([plain, tf.gradients(loss, tensors)])
    np.testing.assert_allclose(outputs, expected_outputs, rtol=0, atol=1e-6)
    for got, wanted in zip(gradients, expected):
        assert_close(got, wanted)


def test_padding_content_changes_neither_outputs_nor_gradients():
    values, weights = draw(), loss_weights()
    outputs, gradients = run(values, LENGTHS, weights)
    padding = np.arange(T)[:, None] >= np.array(LENGTHS)
    other = [values[0].copy(), *values[1:]]
    other[0][padding] = 50 * np.random.default_rng(4).normal(size=[padding.sum(), N_IN])
    other_outputs, other_gradients = run(other, LENGTHS, weights)
    np.testing.assert_array_equal(other_outputs, outputs)
    assert_close(other_gradients[0], gradients[0], 1e-6)
    for got, expected in zip(other_gradients[1:], gradients[1:]):
        assert_close(got, expected, 1e-6)
    assert not gradients[0][padding].any() and not other_gradients[0][padding].any()
    assert gradients[0][~padding].all()


def test_more_padding_changes_nothing():
    values, weights = draw(), loss_weights()
    longer = [np.pad(values[0], [(0, 4), (0, 0), (0, 0)], constant_values=3), *values[1:]]
    outputs, gradients = run(values, LENGTHS, weights)
    more, more_gradients = run(longer, LENGTHS, np.pad(weights, [(0, 4), (0, 0), (0, 0)]))
    np.testing.assert_allclose(more[:T], outputs, rtol=0, atol=1e-7)
    assert not more[T:].any() and not more_gradients[0][T:].any()
    for got, expected in zip([more_gradients[0][:T], *more_gradients[1:]], gradients):
        assert_close(got, expected, 1e-6)


def test_each_utterance_comes_out_as_it_does_alone():
    values = draw()
    outputs = run(values, LENGTHS)
    for b, length in enumerate(LENGTHS):
        alone = run([values[0][:length, b : b + 1], *values[1:]], [length])
        np.testing.assert_allclose(outputs[:length, b], alone[:, 0], rtol=0, atol=1e-6)


def test_one_time_step():
    values, weights = draw(n_steps=1), loss_weights(n_steps=1)
    lengths = [1, 1, 1]
    outputs, gradients = run(values, lengths, weights)
    np.testing.assert_allclose(outputs, both(*values, lengths), rtol=0, atol=1e-6)
    for got, expected in zip(gradients, difference_quotients(values, lengths, weights)):
        assert_close(got, expected)
    assert not gradients[1][N_IN:].any()  # nothing was recurrent


@pytest.mark.parametrize('n_steps', range(1, 10))
def test_rounds_of_the_loop_leave_no_step_out(n_steps):
    assert rnn.STEPS_A_ROUND == 4
    values, weights = draw(n_steps, 2), loss_weights(n_steps, 2)
    lengths = [n_steps, max(1, n_steps - 3)]
    outputs, gradients = run(values, lengths, weights)
    np.testing.assert_allclose(outputs, both(*values, lengths), rtol=0, atol=1e-6)
    _, expected = run(values, lengths, weights, 'block')
    for got, wanted in zip(gradients, expected):
        assert_close(got, wanted)


def test_a_graph_for_inference_alone_gives_the_same_and_keeps_nothing():
    values = draw()
    with tf.Graph().as_default() as graph, tf.Session() as session:
        args = (tf.constant(values[0]), tf.constant(LENGTHS), values[1:3], values[3:])
        alone = rnn.bidirectional_lstm(*args, is_training=False)
        assert not [op for op in graph.get_operations() if op.type == 'EmptyTensorList']
        np.testing.assert_array_equal(*session.run([alone, rnn.bidirectional_lstm(*args)]))


def test_cudnn_gets_the_weights_in_its_own_order():
    """The vector of weights, taken apart as cuDNN documents it: of the gates i, f, cell input, o
    the input matrices, the recurrent ones, and two biases each; all matrices [N, columns]."""
    inputs, kernel, bias = draw()[:3]
    with tf.Graph().as_default(), tf.Session() as session:
        rest = session.run(rnn._cudnn_params(tf.constant(kernel), tf.constant(bias)))

    def take(*shape):
        nonlocal rest
        taken, rest = rest[: np.prod(shape)].reshape(shape), rest[np.prod(shape) :]
        return taken

    w_in, w_h = [take(N, N_IN) for _ in range(4)], [take(N, N) for _ in range(4)]
    b_in, b_h = [take(N) for _ in range(4)], [take(N) for _ in range(4)]
    assert rest.size == 0
    h = c = np.zeros(N)
    for x in inputs[:, 0]:
        i, f, j, o = [w @ x + r @ h + p + q for w, r, p, q in zip(w_in, w_h, b_in, b_h)]
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(j)
        h = sigmoid(o) * np.tanh(c)
    np.testing.assert_allclose(h, lstm(inputs, [T, 1, 1], kernel, bias)[-1, 0], rtol=0, atol=1e-6)


def test_the_same_graph_takes_batches_of_any_size():
    values = draw()
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.float32, [None, None, N_IN])
        seq_length = tf.placeholder(tf.int32, [None])
        outputs = rnn.bidirectional_lstm(inputs, seq_length, values[1:3], values[3:])
        for n_steps, lengths in ((7, [7, 4, 1]), (2, [1, 2]), (5, [3])):
            part = values[0][:n_steps, : len(lengths)]
            np.testing.assert_allclose(
                session.run(outputs, {inputs: part, seq_length: lengths}),
                both(part, *values[1:], lengths),
                rtol=0,
                atol=1e-6,
            )


# The paper's layer

VANILLA = ('inputs', 'weights', 'bias', 'forward', 'backward')
CEILING = 1.5  # so that some activations reach it


def relu_layer(inputs, lengths, weights, bias, forward, backward, ceiling=CEILING):
    """The paper's equations, an utterance and a step at a time: [T, B, n_in] -> [T, B, N]."""
    outputs = np.zeros([len(inputs), len(lengths), len(bias)])
    for b, length in enumerate(lengths):
        for recurrent, steps in ((forward, range(length)), (backward, reversed(range(length)))):
            h = np.zeros(len(bias))
            for t in steps:
                h = np.clip(inputs[t, b] @ weights + bias + h @ recurrent, 0, ceiling)
                outputs[t, b] += h
    return outputs


def draw_vanilla(n_steps=T, batch=B, seed=5):
    rng = np.random.default_rng(seed)
    shapes = ([n_steps, batch, N_IN], [N_IN, N], [N], [N, N], [N, N])
    return [rng.normal(0, 0.6, shape).astype(np.float32) for shape in shapes]


@functools.cache
def vanilla_layer(shapes, ceiling, is_training):
    def build(inputs, seq_length, variables):
        return rnn.bidirectional_relu(inputs, seq_length, *variables, ceiling, is_training)

    return Layer(build, VANILLA[1:], shapes, needs_gradients=is_training)


def run_vanilla(values, lengths, weights=None, ceiling=CEILING, is_training=True):
    """`Layer.run` of the paper's layer: outputs [T, B, N], gradients for all of `VANILLA`."""
    return vanilla_layer(shapes_of(values), ceiling, is_training).run(values, lengths, weights)


def automatic_vanilla(values, lengths, weights):
    """Outputs and gradients of the equations, unrolled, by TensorFlow's automatic gradient."""
    with tf.Graph().as_default(), tf.Session() as session:
        tensors = [tf.constant(value) for value in values]
        x, w, bias, *recurrent = tensors
        rows = []
        for b, length in enumerate(lengths):
            steps = [tf.zeros([1, N])] * len(values[0])
            for matrix, times in zip(recurrent, (range(length), reversed(range(length)))):
                h = tf.zeros([1, N])
                for t in times:
                    h = tf.minimum(
                        tf.nn.relu(tf.matmul(x[t, b : b + 1], w) + bias + tf.matmul(h, matrix)),
                        CEILING,
                    )
                    steps[t] = steps[t] + h
            rows.append(tf.concat(steps, axis=0))
        outputs = tf.stack(rows, axis=1)
        return session.run([outputs, tf.gradients(tf.reduce_sum(outputs * weights), tensors)])


@pytest.mark.parametrize('is_training', (True, False))
@pytest.mark.parametrize('lengths', ([7, 4, 1], [2, 7, 5], [3, 3, 3]))
def test_vanilla_outputs_are_those_of_the_papers_equations(lengths, is_training):
    values = draw_vanilla()
    expected = relu_layer(*values[:1], lengths, *values[1:])
    assert (expected == 0).any() and (expected > CEILING).any()
    outputs = run_vanilla(values, lengths, is_training=is_training)
    assert outputs.shape == (T, B, N) and outputs.dtype == np.float32
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize('lengths', ([7, 4, 1], [2, 7, 5]))
def test_vanilla_gradients_are_the_automatic_ones(lengths):
    values = draw_vanilla()
    weights = loss_weights()[:, :, :N]
    outputs, gradients = run_vanilla(values, lengths, weights)
    expected_outputs, expected = automatic_vanilla(values, lengths, weights)
    assert (np.minimum(expected_outputs, CEILING) == CEILING).any()
    for got, wanted in zip(gradients, expected):
        assert_close(got, wanted)
    padding = np.arange(T)[:, None] >= np.array(lengths)
    assert not gradients[0][padding].any() and gradients[0][~padding].any()


@pytest.mark.parametrize('n_steps', range(1, 10))
def test_vanilla_rounds_of_the_loop_leave_no_step_out(n_steps):
    values, weights = draw_vanilla(n_steps, 2), loss_weights(n_steps, 2)[:, :, :N]
    lengths = [n_steps, max(1, n_steps - 3)]
    outputs, gradients = run_vanilla(values, lengths, weights)
    expected_outputs, expected = automatic_vanilla(values, lengths, weights)
    np.testing.assert_allclose(outputs, expected_outputs, rtol=0, atol=1e-6)
    for got, wanted in zip(gradients, expected):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize('ceiling', (0.0, 1e-3, 20.0, 12345.67))
def test_vanilla_ceiling_is_exact_and_closed_to_gradients(ceiling):
    values = draw_vanilla()
    values[2][:] = 3 * ceiling + 1  # the bias lifts everything over the ceiling
    values[0], values[3], values[4] = (0 * values[i] for i in (0, 3, 4))
    outputs, gradients = run_vanilla(values, LENGTHS, loss_weights()[:, :, :N], ceiling)
    for b, length in enumerate(LENGTHS):
        np.testing.assert_allclose(outputs[:length, b], 2 * ceiling, rtol=1e-6)
        assert not outputs[length:, b].any()
    assert not any(gradient.any() for gradient in gradients)


def test_vanilla_shares_the_input_weights_and_not_the_recurrent_ones():
    values = draw_vanilla()
    swapped = [*values[:3], values[4], values[3]]
    backward = run_vanilla([values[0][::-1], *swapped[1:]], [T] * B)
    np.testing.assert_allclose(backward[::-1], run_vanilla(values, [T] * B), rtol=0, atol=1e-6)
    assert np.abs(run_vanilla(swapped, [T] * B) - run_vanilla(values, [T] * B)).max() > 0.1
