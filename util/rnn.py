"""The bidirectional LSTM of layer 4, on TensorFlow's own operations.

`tf.compat.v1.nn.rnn_cell` needs the legacy Keras package in TensorFlow 2.21, so the layer
is written here. Its variables keep the layout and the names of TensorFlow 1.x's
BasicLSTMCell, so that checkpoints of either kind fit.
"""
import tensorflow.compat.v1 as tf

FORGET_BIAS = 1.0  # added to the forget gate in the cell, not stored (BasicLSTMCell's default)

# T = n_steps, B = batch_size, N = n_cell_dim; gates lie in the order i, j, f, o:
# input gate, cell input, forget gate, output gate.


def bidirectional_lstm(inputs, seq_length, forward, backward):
    """Runs an LSTM forward in time and another one backward over the same input.

    The backward chain starts at the last step of each utterance, not at the end of the padding.

    Args:
      inputs: float32 [T, B, n_in], time-major.
      seq_length: int32 [B], steps of each utterance; later steps give 0 and change nothing.
      forward, backward: (kernel, bias) of each direction, float32 [n_in + N, 4*N] and [4*N].
    Returns:
      float32 [T, B, 2*N]: the outputs of both directions, forward first.
    Source: bidirectional_dynamic_rnn over two BasicLSTMCells, as in the notebook's BiRNN.
    """
    mask = tf.transpose(tf.sequence_mask(seq_length, tf.shape(inputs)[0], dtype=inputs.dtype))
    mask = mask[:, :, None]  # [T, B, 1]
    weights = [tf.convert_to_tensor(w) for w in (*forward, *backward)]
    return _lstm_pair(inputs, mask, *weights)


@tf.custom_gradient
def _lstm_pair(inputs, mask, kernel_fw, bias_fw, kernel_bw, bias_bw):
    """Both directions, with a gradient of their own.

    The automatic gradient of the loop adds up the gradients of the weights step by step;
    this one keeps the gates' gradients of all steps and makes one large product of them.
    """
    kernels, biases = (kernel_fw, kernel_bw), (bias_fw, bias_bw)
    n_cell = kernel_fw.shape[1] // 4
    n_in = kernel_fw.shape[0] - n_cell
    projected = [_project(inputs, kernel[:n_in], bias) for kernel, bias in zip(kernels, biases)]
    recurrent = [kernel[n_in:] for kernel in kernels]
    outputs, cells, gates = _run_forward(projected, recurrent, mask, n_cell)

    def grad(d_outputs):
        transposed = [tf.transpose(w) for w in recurrent]
        d_gates = _run_backward(tf.split(d_outputs, 2, axis=2), transposed, mask, cells, gates)
        flat_inputs = tf.reshape(inputs, [-1, n_in])
        d_inputs, d_weights = 0.0, []
        # h before each step: the outputs one step earlier in the direction's own time
        h_before = (_shift(outputs[0], forward=True), _shift(outputs[1], forward=False))
        for d_gate, h, kernel in zip(d_gates, h_before, kernels):
            d_flat = tf.reshape(d_gate, [-1, 4 * n_cell])
            d_inputs += tf.matmul(d_flat, kernel[:n_in], transpose_b=True)
            d_weights.append(tf.concat([
                tf.matmul(flat_inputs, d_flat, transpose_a=True),
                tf.matmul(tf.reshape(h, [-1, n_cell]), d_flat, transpose_a=True)], axis=0))
            d_weights.append(tf.reduce_sum(d_flat, axis=0))
        return (tf.reshape(d_inputs, tf.shape(inputs)), None, *d_weights)

    return tf.concat(outputs, axis=2), grad


def _project(inputs, kernel, bias):
    """[T, B, n_in] -> [T, B, 4*N]: the input's share of the gates, for all steps at once."""
    flat = tf.nn.bias_add(tf.matmul(tf.reshape(inputs, [-1, kernel.shape[0]]), kernel), bias)
    return tf.reshape(flat, tf.concat([tf.shape(inputs)[:2], [kernel.shape[1]]], axis=0))


def _shift(outputs, forward):
    """[T, B, N]: outputs one step earlier (forward) or later in time; zeros come in."""
    zeros = tf.zeros_like(outputs[:1])
    return tf.concat([zeros, outputs[:-1]] if forward else [outputs[1:], zeros], axis=0)


def _time_indices(t, n_steps):
    """Where loop round t reads and writes: forward at t, backward from the end."""
    return t, n_steps - 1 - t


def _run_forward(projected, recurrent, mask, n_cell):
    """Steps both chains through time side by side, so that two cores share the work.

    Returns, each a pair (forward, backward): outputs [T, B, N], cell states [T, B, N], and
    activated gates i, j, f, o as [T, B, 4*N].
    """
    n_steps, batch = tf.shape(mask)[0], tf.shape(mask)[1]
    zero = tf.zeros([batch, n_cell], mask.dtype)

    def body(t, state, arrays):
        new_state, new_arrays = [], []
        for d, at in enumerate(_time_indices(t, n_steps)):
            c, h = state[d]
            z = projected[d][at] + tf.matmul(h, recurrent[d])
            c, h, gate = _cell(z, c, mask[at])
            new_state.append((c, h))
            new_arrays.append([a.write(at, v) for a, v in zip(arrays[d], (h, c, gate))])
        return t + 1, new_state, new_arrays

    arrays = [[_array(mask, n_steps) for _ in range(3)] for _ in range(2)]
    _, _, arrays = tf.while_loop(lambda t, *_: t < n_steps, body,
                                 (0, [(zero, zero), (zero, zero)], arrays))
    outputs, cells, gates = zip(*[[a.stack() for a in pair] for pair in arrays])
    return outputs, cells, gates


def _cell(z, c, mask):
    """One step of BasicLSTMCell; z [B, 4*N] before activation, c [B, N], mask [B, 1]."""
    i, j, f, o = tf.split(z, 4, axis=1)
    i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + FORGET_BIAS), tf.sigmoid(o)
    # State 0 outside an utterance is right for both directions: the backward chain starts
    # from it, and what the forward chain does after the end is seen by nobody.
    c = (c * f + i * j) * mask
    return c, tf.tanh(c) * o * mask, tf.concat([i, j, f, o], axis=1)


def _run_backward(d_outputs, transposed, mask, cells, gates):
    """Back-propagation through time: gradients of the gates before activation, [T, B, 4*N] each."""
    n_steps = tf.shape(mask)[0]
    zero = tf.zeros_like(cells[0][0])
    cells_before = (_shift(cells[0], forward=True), _shift(cells[1], forward=False))

    def body(t, state, arrays):
        new_state, new_arrays = [], []
        for d, at in enumerate(reversed(_time_indices(t, n_steps))):
            d_c, d_h = state[d]
            d_z, d_c = _cell_gradient(d_h + d_outputs[d][at], d_c, gates[d][at], cells[d][at],
                                      cells_before[d][at], mask[at])
            new_state.append((d_c, tf.matmul(d_z, transposed[d])))
            new_arrays.append(arrays[d].write(at, d_z))
        return t + 1, new_state, new_arrays

    arrays = [_array(mask, n_steps) for _ in range(2)]
    _, _, arrays = tf.while_loop(lambda t, *_: t < n_steps, body,
                                 (0, [(zero, zero), (zero, zero)], arrays))
    return [a.stack() for a in arrays]


def _cell_gradient(d_h, d_c, gates, c, c_before, mask):
    """Gradient of `_cell`: d_z [B, 4*N] and d_c [B, N] of the state before the step."""
    i, j, f, o = tf.split(gates, 4, axis=1)
    tanh_c = tf.tanh(c)
    d_h *= mask
    d_c = (d_c + d_h * o * (1 - tanh_c * tanh_c)) * mask
    d_z = tf.concat([d_c * j * i * (1 - i), d_c * i * (1 - j * j),
                     d_c * c_before * f * (1 - f), d_h * tanh_c * o * (1 - o)], axis=1)
    return d_z, d_c * f


def _array(like, n_steps):
    return tf.TensorArray(like.dtype, size=n_steps, element_shape=None, clear_after_read=False)
