"""The recurrent layer 4, on TensorFlow's own operations: a bidirectional LSTM, or the clipped-ReLU
layer of the paper.

`tf.compat.v1.nn.rnn_cell` needs the legacy Keras package in TensorFlow 2.21, so the LSTM
is written here. Its variables keep the layout and the names of TensorFlow 1.x's
BasicLSTMCell, so that checkpoints of either kind fit. There are three implementations of one
function of these variables:

own    the fastest on CPUs: the inputs' share of the gates is one product for all steps, and its
       own gradient makes one product a weight matrix where the automatic one adds up steps
block  TensorFlow's BlockLSTM, one operation for all steps of a direction; CPUs and GPUs
cudnn  cuDNN's LSTM; GPUs only
"""
from util.tf1 import tf

FORGET_BIAS = 1.0  # added to the forget gate in the cell, not stored (BasicLSTMCell's default)
IMPLEMENTATIONS = ('own', 'block', 'cudnn')
NEVER = -1e30      # before the activation, where there is no time step
STEPS_A_ROUND = 4  # time steps in a round of tf.while_loop, as a round costs as much as some steps

# T = n_steps, B = batch_size, N = n_cell_dim; gates lie in the order i, j, f, o:
# input gate, cell input, forget gate, output gate. d_x is the gradient of x.


def bidirectional_lstm(inputs, seq_length, forward, backward, implementation='own',
                       is_training=True):
    """Runs an LSTM forward in time and another one backward over the same input.

    The backward chain starts at the last step of each utterance, not at the end of the padding.

    Args:
      inputs: float32 [T, B, n_in], time-major.
      seq_length: int32 [B], steps of each utterance; later steps give 0 and change nothing.
      forward, backward: (kernel, bias) of each direction, float32 [n_in + N, 4*N] and [4*N].
      implementation: one of IMPLEMENTATIONS.
      is_training: whether a gradient will be asked for; else `own` keeps nothing for it.
    Returns:
      float32 [T, B, 2*N]: the outputs of both directions, forward first.
    Source: bidirectional_dynamic_rnn over two BasicLSTMCells, as in the notebook's BiRNN.
    """
    forward, backward = [[tf.convert_to_tensor(w) for w in pair] for pair in (forward, backward)]
    mask = tf.transpose(tf.sequence_mask(seq_length, tf.shape(inputs)[0], dtype=inputs.dtype))
    mask = mask[:, :, None]  # [T, B, 1]
    if implementation == 'own':
        # a loop a direction: the two don't wait for each other
        outputs = [_own(inputs, mask, *forward, reverse=False, is_training=is_training),
                   _own(inputs, mask, *backward, reverse=True, is_training=is_training)]
    else:
        run = {'block': _block, 'cudnn': _cudnn}[implementation]
        reversed_inputs = tf.reverse_sequence(inputs, seq_length, seq_axis=0, batch_axis=1)
        outputs = [run(inputs, seq_length, *forward) * mask, tf.reverse_sequence(
            run(reversed_inputs, seq_length, *backward) * mask, seq_length, seq_axis=0,
            batch_axis=1)]
    return tf.concat(outputs, axis=2)


def _split(kernel):
    """(n_in, N) of a kernel [n_in + N, 4*N]."""
    n_cell = kernel.shape[1] // 4
    return kernel.shape[0] - n_cell, n_cell


# Our own


def _own(inputs, mask, kernel, bias, reverse, is_training):
    """One direction: [T, B, n_in] -> [T, B, N]; mask float32 [T, B, 1]."""
    n_in, n_cell = _split(kernel)

    def output_and_gradient(inputs, mask, kernel, bias):
        flat_inputs = tf.reshape(inputs, [-1, n_in])
        projected = _project(flat_inputs, kernel[:n_in], bias, tf.shape(inputs))
        outputs, before, kept = _run_forward(projected, kernel[n_in:], mask, reverse, is_training)

        def gradient(d_outputs):
            d_gates = _run_backward(d_outputs, kernel[n_in:], kept, reverse)
            d_gates = tf.reshape(d_gates, [-1, 4 * n_cell])
            d_inputs = tf.matmul(d_gates, kernel[:n_in], transpose_b=True)
            d_kernel = tf.concat([
                tf.matmul(flat_inputs, d_gates, transpose_a=True),
                tf.matmul(tf.reshape(before, [-1, n_cell]), d_gates, transpose_a=True)], axis=0)
            d_bias = tf.raw_ops.BiasAddGrad(out_backprop=d_gates)
            return tf.reshape(d_inputs, tf.shape(inputs)), None, d_kernel, d_bias

        return outputs, gradient

    if not is_training:
        return output_and_gradient(inputs, mask, kernel, bias)[0]
    return tf.custom_gradient(output_and_gradient)(inputs, mask, kernel, bias)


def _project(flat_inputs, kernel, bias, shape):
    """The inputs' share of the gates i, j, f, o before activation, each [T, B, N]."""
    biases = tf.split(bias, 4)
    biases[2] += FORGET_BIAS
    shape = tf.concat([shape[:2], biases[0].shape], axis=0)
    return [tf.reshape(tf.nn.bias_add(tf.matmul(flat_inputs, w), b), shape)
            for w, b in zip(tf.split(kernel, 4, axis=1), biases)]


def _repeat(n_steps, step, state):
    """state = step(k, *state) for k = 0 to n_steps - 1."""
    k = tf.constant(0)
    for size in (STEPS_A_ROUND, 1):  # the second loop does what the first leaves
        def body(k, *state, size=size):
            for _ in range(size):
                state = step(k, *state)
                k += 1
            return (k, *state)
        k, *state = tf.while_loop(lambda k, *_, size=size: k + size <= n_steps, body, (k, *state))
    return state


def _run_forward(projected, recurrent, mask, reverse, is_training):
    """Steps the chain through time.

    Returns:
      (outputs h [T, B, N]; h before each step [T, B, N]; for the gradient: the last cell state
      and a list of what it needs of each step). A chain that runs backward in time has the step
      before t at t + 1.
    """
    n_steps, batch = tf.shape(mask)[0], tf.shape(mask)[1]
    zero = tf.zeros([batch, recurrent.shape[0]], mask.dtype)
    weights = tf.split(recurrent, 4, axis=1)  # gates apart cost less than splitting them each step

    def step(k, c, h, outputs, *kept):
        t = n_steps - 1 - k if reverse else k
        i, j, f, o = [p[t] + tf.matmul(h, w) for p, w in zip(projected, weights)]
        # With i and f at 0 the state is 0 past an utterance's end, and so are the gradients:
        # the backward chain starts from it, and what the forward chain gives there is 0 as well.
        i, f = tf.sigmoid(i) * mask[t], tf.sigmoid(f) * mask[t]
        j, o = tf.tanh(j), tf.sigmoid(o)
        kept = [_push(steps, (c, i, j, f, o)) for steps in kept]
        c = c * f + i * j
        h = tf.tanh(c) * o
        return (c, h, outputs.write(t if reverse else t + 1, h), *kept)

    outputs = _array(n_steps + 1).write(n_steps if reverse else 0, zero)
    kept = [_empty_list()] if is_training else []
    c, _, outputs, *kept = _repeat(n_steps, step, (zero, zero, outputs, *kept))
    outputs = outputs.stack()
    early, late = outputs[:-1], outputs[1:]
    return (early, late, [c, *kept]) if reverse else (late, early, [c, *kept])


def _run_backward(d_outputs, recurrent, kept, reverse):
    """Back-propagation through time: gradients of the gates before activation, [T, B, 4*N].

    Of LSTMBlockCellGrad, which is the cell's gradient in one operation, the inputs that only
    give it shapes or serve peepholes are zeros.
    """
    n_steps, n_cell = tf.shape(d_outputs)[0], recurrent.shape[0]
    transposed = tf.transpose(recurrent)
    zero, no_peephole = tf.zeros_like(d_outputs[0]), tf.zeros([n_cell])
    unused = dict(x=zero[:, :0], cs=zero, h_prev=zero, w=recurrent, wci=no_peephole,
                  wcf=no_peephole, wco=no_peephole, b=tf.zeros([4 * n_cell]), use_peephole=False)

    def step(k, c, kept, d_c, d_h, d_gates):
        t = k if reverse else n_steps - 1 - k
        kept, (c_before, i, j, f, o) = _pop(kept, 5, zero.shape)
        d_c, d_z, *_ = tf.raw_ops.LSTMBlockCellGrad(
            cs_prev=c_before, i=i, f=f, o=o, ci=j, co=tf.tanh(c), cs_grad=d_c,
            h_grad=d_h + d_outputs[t], **unused)
        return c_before, kept, d_c, tf.matmul(d_z, transposed), d_gates.write(t, d_z)

    return _repeat(n_steps, step, (*kept, zero, zero, _array(n_steps)))[-1].stack()


def _array(size):
    return tf.TensorArray(tf.float32, size=size, element_shape=None)


# What the gradient needs lies on a stack: it takes the steps in the opposite order, and what is
# taken is freed, so that the gradients of the gates find room.


def _empty_list():
    return tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=-1,
                                      element_dtype=tf.float32)


def _push(steps, tensors):
    for tensor in tensors:
        steps = tf.raw_ops.TensorListPushBack(input_handle=steps, tensor=tensor)
    return steps


def _pop(steps, count, shape):
    """The list without the last `count` tensors, which all have that shape; and those."""
    tensors = []
    for _ in range(count):
        steps, tensor = tf.raw_ops.TensorListPopBack(input_handle=steps, element_shape=-1,
                                                     element_dtype=tf.float32)
        tensor.set_shape(shape)
        tensors.insert(0, tensor)
    return steps, tensors


# TensorFlow's and cuDNN's


def _block(inputs, seq_length, kernel, bias):
    """One direction by BlockLSTM, from the first step on: [T, B, n_in] -> [T, B, N]."""
    del seq_length  # what comes after an utterance doesn't change its outputs
    _, n_cell = _split(kernel)
    zero, no_peephole = tf.zeros([tf.shape(inputs)[1], n_cell]), tf.zeros([n_cell])
    return tf.raw_ops.BlockLSTM(
        seq_len_max=tf.shape(inputs, out_type=tf.int64)[0], x=inputs, cs_prev=zero, h_prev=zero,
        w=kernel, wci=no_peephole, wcf=no_peephole, wco=no_peephole, b=bias,
        forget_bias=FORGET_BIAS, cell_clip=-1.0).h


def _cudnn(inputs, seq_length, kernel, bias):
    """One direction by cuDNN, from the first step on: [T, B, n_in] -> [T, B, N]."""
    zero = tf.zeros([1, tf.shape(inputs)[1], _split(kernel)[1]])
    return tf.raw_ops.CudnnRNNV3(
        input=inputs, input_h=zero, input_c=zero, params=_cudnn_params(kernel, bias),
        sequence_lengths=seq_length, rnn_mode='lstm', is_training=True, time_major=True).output


def _cudnn_params(kernel, bias):
    """A kernel and bias as cuDNN takes them: the gates' matrices in the order i, f, j, o, each
    [N, n_in], then the recurrent ones, [N, N]; then two biases a gate, of which one is enough."""
    n_in, _ = _split(kernel)

    def in_order(tensor):
        i, j, f, o = tf.split(tensor, 4, axis=-1)
        return i, f, j, o

    i, f, j, o = in_order(bias)
    biases = [i, f + FORGET_BIAS, j, o]
    matrices = [tf.transpose(w) for part in (kernel[:n_in], kernel[n_in:]) for w in in_order(part)]
    return tf.concat([tf.reshape(w, [-1]) for w in matrices] + biases +
                     [tf.zeros_like(b) for b in biases], axis=0)


# The paper's layer


def bidirectional_relu(inputs, seq_length, weights, bias, forward, backward, ceiling,
                       is_training=True):
    """Runs a clipped-ReLU layer forward and backward in time over the same input and adds up.

    With g(z) = min(max(0, z), ceiling), p_t = x_t weights + bias, which both directions share:
    f_t = g(p_t + f_(t-1) forward), b_t = g(p_t + b_(t+1) backward), output f_t + b_t.

    Args:
      inputs: float32 [T, B, n_in], time-major.
      seq_length: int32 [B]; the backward chain starts at the last step of each utterance, later
        steps give 0.
      weights, bias: float32 [n_in, N] and [N] (W4 and b4 of the paper).
      forward, backward: float32 [N, N], the recurrent weights of each direction.
      ceiling: where the activation is clipped.
      is_training: whether a gradient will be asked for.
    Returns:
      float32 [T, B, N].
    Source: Hannun et al., arXiv:1412.5567, the equations of the fourth layer in section 2.
    """
    n_in, n_cell = weights.shape
    mask = tf.transpose(tf.sequence_mask(seq_length, tf.shape(inputs)[0], dtype=inputs.dtype))
    # Everything before the activation is scaled so that the ceiling is 6, as Relu6 and its
    # gradient are an operation each: 6/c g(z) = relu6(6/c z).
    to_six, from_six = (6 / ceiling if ceiling else 0.0), ceiling / 6

    def output_and_gradient(inputs, weights, bias, forward, backward):
        flat_inputs, scaled = tf.reshape(inputs, [-1, n_in]), weights * to_six
        projected = tf.nn.bias_add(tf.matmul(flat_inputs, scaled), bias * to_six)
        projected = tf.reshape(projected, tf.concat([tf.shape(inputs)[:2], [n_cell]], axis=0))
        projected += (1 - mask[:, :, None]) * NEVER
        chains = [_relu_forward(projected, forward, reverse=False),
                  _relu_forward(projected, backward, reverse=True)]

        def gradient(d_outputs):
            d_outputs *= from_six
            d_forward, d_f = _relu_backward(d_outputs, forward, *chains[0], reverse=False)
            d_backward, d_b = _relu_backward(d_outputs, backward, *chains[1], reverse=True)
            d_projected = tf.reshape(d_f + d_b, [-1, n_cell])
            d_inputs = tf.matmul(d_projected, scaled, transpose_b=True)
            return (tf.reshape(d_inputs, tf.shape(inputs)),
                    tf.matmul(flat_inputs, d_projected, transpose_a=True) * to_six,
                    tf.raw_ops.BiasAddGrad(out_backprop=d_projected) * to_six,
                    d_forward, d_backward)

        return (chains[0][0] + chains[1][0]) * from_six, gradient

    if not is_training:
        return output_and_gradient(inputs, weights, bias, forward, backward)[0]
    return tf.custom_gradient(output_and_gradient)(inputs, *[
        tf.convert_to_tensor(w) for w in (weights, bias, forward, backward)])


def _relu_forward(projected, recurrent, reverse):
    """Steps one chain through time: (its outputs [T, B, N], those before each step)."""
    n_steps = tf.shape(projected)[0]
    zero = tf.zeros_like(projected[0])

    def step(k, h, outputs):
        t = n_steps - 1 - k if reverse else k
        h = tf.nn.relu6(projected[t] + tf.matmul(h, recurrent))
        return h, outputs.write(t if reverse else t + 1, h)

    outputs = _array(n_steps + 1).write(n_steps if reverse else 0, zero)
    outputs = _repeat(n_steps, step, (zero, outputs))[-1].stack()
    return (outputs[:-1], outputs[1:]) if reverse else (outputs[1:], outputs[:-1])


def _relu_backward(d_outputs, recurrent, outputs, before, reverse):
    """Back-propagation through time: gradients of the recurrent weights, and of what the chain
    got, [T, B, N]."""
    n_steps, n_cell = tf.shape(d_outputs)[0], recurrent.shape[0]
    transposed = tf.transpose(recurrent)

    def step(k, d_h, d_projected):
        t = k if reverse else n_steps - 1 - k
        d_z = tf.raw_ops.Relu6Grad(gradients=d_outputs[t] + d_h, features=outputs[t])
        return tf.matmul(d_z, transposed), d_projected.write(t, d_z)

    d_projected = _repeat(n_steps, step, (tf.zeros_like(d_outputs[0]), _array(n_steps)))[-1]
    d_projected = d_projected.stack()
    d_recurrent = tf.matmul(tf.reshape(before, [-1, n_cell]),
                            tf.reshape(d_projected, [-1, n_cell]), transpose_a=True)
    return d_recurrent, d_projected
