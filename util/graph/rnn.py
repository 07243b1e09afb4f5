"""Builds layer 4, the recurrent one, from TensorFlow's operations: a bidirectional LSTM, or the
clipped-ReLU layer of the paper.

`tf.compat.v1.nn.rnn_cell` needs the legacy Keras package in TensorFlow 2.21, so the LSTM is
written here. It takes variables in the layout of TensorFlow 1.x's BasicLSTMCell, so that
checkpoints of either kind fit. There are three implementations, which compute the same function
of these variables:

own    the fastest on CPUs: one matrix product gives the inputs' share of the gates at all steps,
       and a custom gradient makes one product for each weight matrix, whereas the automatic
       gradient would add up one product for each step
block  TensorFlow's BlockLSTM, one operation for all steps of a direction; on CPUs and GPUs
cudnn  cuDNN's LSTM; on GPUs only
"""

from collections.abc import Sequence

from util.tf1 import tf

FORGET_BIAS = 1.0  # added to the forget gate in the cell, not stored (BasicLSTMCell's default)
IMPLEMENTATIONS = ('own', 'block', 'cudnn')
NEVER = -1e30  # added past an utterance's end before the activation, which is then 0
STEPS_A_ROUND = 4  # time steps in an iteration of tf.while_loop, as each iteration costs time

# T = n_steps, B = batch_size, n_in = size of an input, N = n_cell_dim. All tensors are float32
# unless stated otherwise. The order of the gates is i, j, f, o: input gate, cell input, forget
# gate, output gate. c is the cell state and h the output, [B, N] at each step; d_x is the gradient
# of the loss with respect to x.


def bidirectional_lstm(
    inputs: tf.Tensor,
    seq_length: tf.Tensor,
    forward: Sequence[tf.Tensor],
    backward: Sequence[tf.Tensor],
    implementation: str = 'own',
    is_training: bool = True,
) -> tf.Tensor:
    """Runs an LSTM forward in time and another one backward over the same input.

    The backward chain starts at the last step of each utterance, not at the end of the padding.

    Args:
      inputs: float32 [T, B, n_in], time-major.
      seq_length: int32 [B], time steps of each utterance; later steps give 0 and change nothing.
      forward, backward: (kernel, bias) of each direction, float32 [n_in + N, 4*N] and [4*N].
      implementation: one of IMPLEMENTATIONS.
      is_training: whether gradients will be needed; otherwise `own` keeps nothing for them.
    Returns:
      float32 [T, B, 2*N]: the outputs of both directions, forward first.
    Source: bidirectional_dynamic_rnn over two BasicLSTMCells, as in the notebook's BiRNN.
    """
    (kernel_fw, bias_fw), (kernel_bw, bias_bw) = [
        [tf.convert_to_tensor(w) for w in pair] for pair in (forward, backward)
    ]
    mask = tf.transpose(tf.sequence_mask(seq_length, tf.shape(inputs)[0], dtype=inputs.dtype))
    mask = mask[:, :, None]  # [T, B, 1]
    if implementation == 'own':
        # Each direction has a loop of its own, so that the two do not wait for each other.
        outputs = [
            _own(inputs, mask, kernel_fw, bias_fw, reverse=False, is_training=is_training),
            _own(inputs, mask, kernel_bw, bias_bw, reverse=True, is_training=is_training),
        ]
    else:
        run = {'block': _block, 'cudnn': _cudnn}[implementation]
        reversed_inputs = tf.reverse_sequence(inputs, seq_length, seq_axis=0, batch_axis=1)
        outputs = [
            run(inputs, seq_length, kernel_fw, bias_fw) * mask,
            tf.reverse_sequence(
                run(reversed_inputs, seq_length, kernel_bw, bias_bw) * mask,
                seq_length,
                seq_axis=0,
                batch_axis=1,
            ),
        ]
    return tf.concat(outputs, axis=2)


def _split(kernel):
    """Returns the sizes (n_in, N) of a kernel [n_in + N, 4*N]."""
    n_cell = kernel.shape[1] // 4
    return kernel.shape[0] - n_cell, n_cell


# The implementation `own`


def _own(inputs, mask, kernel, bias, reverse, is_training):
    """Runs one direction by a loop with a gradient of its own.

    Args:
      inputs: float32 [T, B, n_in].
      mask: float32 [T, B, 1], 1 up to the end of each utterance, then 0.
      kernel, bias: float32 [n_in + N, 4*N] and [4*N].
      reverse: whether the chain runs backward in time.
      is_training: whether gradients will be needed.
    Returns:
      float32 [T, B, N], the outputs.
    """
    n_in, n_cell = _split(kernel)

    def output_and_gradient(inputs, mask, kernel, bias):
        flat_inputs = tf.reshape(inputs, [-1, n_in])  # [T*B, n_in]
        projected = _project(flat_inputs, kernel[:n_in], bias, tf.shape(inputs))
        outputs, before, kept = _run_forward(projected, kernel[n_in:], mask, reverse, is_training)

        def gradient(d_outputs):
            d_gates = _run_backward(d_outputs, kernel[n_in:], kept, reverse)
            d_gates = tf.reshape(d_gates, [-1, 4 * n_cell])  # [T*B, 4*N]
            d_inputs = tf.matmul(d_gates, kernel[:n_in], transpose_b=True)
            d_kernel = tf.concat(
                [
                    tf.matmul(flat_inputs, d_gates, transpose_a=True),
                    tf.matmul(tf.reshape(before, [-1, n_cell]), d_gates, transpose_a=True),
                ],
                axis=0,
            )
            d_bias = tf.raw_ops.BiasAddGrad(out_backprop=d_gates)
            return tf.reshape(d_inputs, tf.shape(inputs)), None, d_kernel, d_bias

        return outputs, gradient

    if not is_training:
        return output_and_gradient(inputs, mask, kernel, bias)[0]
    return tf.custom_gradient(output_and_gradient)(inputs, mask, kernel, bias)


def _project(flat_inputs, kernel, bias, shape):
    """Returns the inputs' share of the gates before activation, with biases and FORGET_BIAS.

    Args:
      flat_inputs: float32 [T*B, n_in].
      kernel: float32 [n_in, 4*N], the rows of the kernel that belong to the inputs.
      bias: float32 [4*N].
      shape: int32 [3], T, B and n_in.
    Returns:
      list of 4, the gates i, j, f, o, each float32 [T, B, N].
    """
    biases = tf.split(bias, 4)
    biases[2] += FORGET_BIAS
    shape = tf.concat([shape[:2], biases[0].shape], axis=0)
    return [
        tf.reshape(tf.nn.bias_add(tf.matmul(flat_inputs, w), b), shape)
        for w, b in zip(tf.split(kernel, 4, axis=1), biases)
    ]


def _repeat(n_steps, step, state):
    """Repeats state = step(k, *state) for k = 0 to n_steps - 1.

    Args:
      n_steps: int32 scalar.
      step: function of k, an int32 scalar, and of the state that returns the next state.
      state: tuple of tensors and TensorArrays.
    Returns:
      The last state.
    """
    k = tf.constant(0)
    for size in (STEPS_A_ROUND, 1):  # the second loop makes the steps that are left over

        def body(k, *state, size=size):
            for _ in range(size):
                state = step(k, *state)
                k += 1
            return (k, *state)

        k, *state = tf.while_loop(lambda k, *_, size=size: k + size <= n_steps, body, (k, *state))
    return state


def _run_forward(projected, recurrent, mask, reverse, is_training):
    """Steps the chain through time.

    Args:
      projected: list of 4, the inputs' share of the gates i, j, f, o, each float32 [T, B, N].
      recurrent: float32 [N, 4*N], the rows of the kernel that belong to h.
      mask: float32 [T, B, 1], 1 up to the end of each utterance, then 0.
      reverse: whether the chain runs backward in time.
      is_training: whether gradients will be needed.
    Returns:
      (h, h_before, kept): the outputs, float32 [T, B, N]; the output that each step started from,
      float32 [T, B, N], which for a chain that runs backward in time is that of step t + 1; and
      for `_run_backward` the list of the last cell state, float32 [B, N], and of a tensor list
      that holds c before the step and i, j, f, o after activation of every step, each [B, N].
      The tensor list is missing if no gradients are needed.
    """
    n_steps, batch = tf.shape(mask)[0], tf.shape(mask)[1]
    zero = tf.zeros([batch, recurrent.shape[0]], mask.dtype)
    # Four products a step cost less than one whose result has to be split.
    weights = tf.split(recurrent, 4, axis=1)

    def step(k, c, h, outputs, *kept):
        t = n_steps - 1 - k if reverse else k
        i, j, f, o = [p[t] + tf.matmul(h, w) for p, w in zip(projected, weights)]
        # With i and f at 0 the cell state is 0 past an utterance's end, and so are the outputs
        # and the gradients there. So the backward chain starts from 0 at an utterance's last step.
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
    """Back-propagates through time.

    Args:
      d_outputs: float32 [T, B, N].
      recurrent: float32 [N, 4*N], the rows of the kernel that belong to h.
      kept: last cell state and tensor list of `_run_forward`.
      reverse: whether the chain ran backward in time.
    Returns:
      float32 [T, B, 4*N], the gradients of the gates before activation.
    """
    n_steps, n_cell = tf.shape(d_outputs)[0], recurrent.shape[0]
    transposed = tf.transpose(recurrent)
    zero, no_peephole = tf.zeros_like(d_outputs[0]), tf.zeros([n_cell])
    # LSTMBlockCellGrad is the cell's gradient in one operation. These inputs only give it shapes,
    # or serve peepholes, which BasicLSTMCell does not have.
    unused = {
        'x': zero[:, :0],
        'cs': zero,
        'h_prev': zero,
        'w': recurrent,
        'wci': no_peephole,
        'wcf': no_peephole,
        'wco': no_peephole,
        'b': tf.zeros([4 * n_cell]),
        'use_peephole': False,
    }

    def step(k, c, kept, d_c, d_h, d_gates):
        t = k if reverse else n_steps - 1 - k
        kept, (c_before, i, j, f, o) = _pop(kept, 5, zero.shape)
        d_c, d_z, *_ = tf.raw_ops.LSTMBlockCellGrad(
            cs_prev=c_before,
            i=i,
            f=f,
            o=o,
            ci=j,
            co=tf.tanh(c),
            cs_grad=d_c,
            h_grad=d_h + d_outputs[t],
            **unused,
        )
        return c_before, kept, d_c, tf.matmul(d_z, transposed), d_gates.write(t, d_z)

    return _repeat(n_steps, step, (*kept, zero, zero, _array(n_steps)))[-1].stack()


def _array(size):
    """Returns an empty TensorArray for `size` float32 tensors; `size` is an int32 scalar."""
    return tf.TensorArray(tf.float32, size=size, element_shape=None)


# What the gradient needs is kept in a tensor list that is used as a stack. The gradient takes the
# steps in the opposite order, and what it has taken is freed, which leaves room for the gradients
# of the gates.


def _empty_list():
    """Returns a tensor list, variant scalar, for float32 tensors of any shape."""
    return tf.raw_ops.EmptyTensorList(
        element_shape=-1, max_num_elements=-1, element_dtype=tf.float32
    )


def _push(steps, tensors):
    """Returns the tensor list `steps` with these float32 tensors added at its end, in order."""
    for tensor in tensors:
        steps = tf.raw_ops.TensorListPushBack(input_handle=steps, tensor=tensor)
    return steps


def _pop(steps, count, shape):
    """Takes tensors from the end of a tensor list.

    Args:
      steps: variant scalar, the tensor list.
      count: how many tensors to take.
      shape: the static shape of each.
    Returns:
      (the rest of the tensor list; the float32 tensors in the order in which they were added).
    """
    tensors = []
    for _ in range(count):
        steps, tensor = tf.raw_ops.TensorListPopBack(
            input_handle=steps, element_shape=-1, element_dtype=tf.float32
        )
        tensor.set_shape(shape)
        tensors.insert(0, tensor)
    return steps, tensors


# The implementations `block` and `cudnn`


def _block(inputs, seq_length, kernel, bias):
    """Runs one direction forward in time by TensorFlow's BlockLSTM.

    Args:
      inputs: float32 [T, B, n_in].
      seq_length: int32 [B], time steps of each utterance.
      kernel, bias: float32 [n_in + N, 4*N] and [4*N].
    Returns:
      float32 [T, B, N]; the outputs past an utterance's end are meaningless.
    """
    del seq_length  # the padding after an utterance does not change its outputs
    _, n_cell = _split(kernel)
    zero, no_peephole = tf.zeros([tf.shape(inputs)[1], n_cell]), tf.zeros([n_cell])
    return tf.raw_ops.BlockLSTM(
        seq_len_max=tf.shape(inputs, out_type=tf.int64)[0],
        x=inputs,
        cs_prev=zero,
        h_prev=zero,
        w=kernel,
        wci=no_peephole,
        wcf=no_peephole,
        wco=no_peephole,
        b=bias,
        forget_bias=FORGET_BIAS,
        cell_clip=-1.0,
    ).h


def _cudnn(inputs, seq_length, kernel, bias):
    """Runs one direction forward in time by cuDNN. Arguments and result are those of `_block`."""
    zero = tf.zeros([1, tf.shape(inputs)[1], _split(kernel)[1]])
    return tf.raw_ops.CudnnRNNV3(
        input=inputs,
        input_h=zero,
        input_c=zero,
        params=_cudnn_params(kernel, bias),
        sequence_lengths=seq_length,
        rnn_mode='lstm',
        is_training=True,
        time_major=True,
    ).output


def _cudnn_params(kernel, bias):
    """Returns a kernel and a bias in the layout of cuDNN.

    Args:
      kernel, bias: float32 [n_in + N, 4*N] and [4*N].
    Returns:
      float32 [4*N*(n_in + N) + 8*N]: the inputs' matrices of the gates i, f, j, o, each [N, n_in];
      their recurrent matrices, each [N, N]; the biases of the gates, each [N], which include
      FORGET_BIAS; and a second bias for each gate, which is 0.
    """
    n_in, _ = _split(kernel)

    def in_order(tensor):
        """Splits [..., 4*N] into cuDNN's order of the gates, each [..., N]."""
        i, j, f, o = tf.split(tensor, 4, axis=-1)
        return i, f, j, o

    i, f, j, o = in_order(bias)
    biases = [i, f + FORGET_BIAS, j, o]
    matrices = [tf.transpose(w) for part in (kernel[:n_in], kernel[n_in:]) for w in in_order(part)]
    return tf.concat(
        [tf.reshape(w, [-1]) for w in matrices] + biases + [tf.zeros_like(b) for b in biases],
        axis=0,
    )


# The paper's layer


def bidirectional_relu(
    inputs: tf.Tensor,
    seq_length: tf.Tensor,
    weights: tf.Tensor,
    bias: tf.Tensor,
    forward: tf.Tensor,
    backward: tf.Tensor,
    ceiling: float,
    is_training: bool = True,
) -> tf.Tensor:
    """Runs a clipped-ReLU layer forward and backward in time and adds up the two outputs.

    With g(z) = min(max(0, z), ceiling) and p_t = x_t weights + bias, which both directions share,
    f_t = g(p_t + f_(t-1) forward) and b_t = g(p_t + b_(t+1) backward); the output is f_t + b_t.

    Args:
      inputs: float32 [T, B, n_in], time-major.
      seq_length: int32 [B], time steps of each utterance; the backward chain starts at the last
        of them, and later steps give 0.
      weights, bias: float32 [n_in, N] and [N] (W4 and b4 of the paper).
      forward, backward: float32 [N, N], the recurrent weights of each direction.
      ceiling: value at which the activation is clipped.
      is_training: whether gradients will be needed.
    Returns:
      float32 [T, B, N].
    Source: Hannun et al., arXiv:1412.5567, the equations of the fourth layer in section 2.
    """
    n_in, n_cell = weights.shape
    mask = tf.transpose(tf.sequence_mask(seq_length, tf.shape(inputs)[0], dtype=inputs.dtype))
    # Everything before the activation is scaled so that the ceiling c becomes 6, because
    # TensorFlow has relu6 and its gradient as one operation each: 6/c g(z) = relu6(6/c z).
    to_six, from_six = (6 / ceiling if ceiling else 0.0), ceiling / 6

    def output_and_gradient(inputs, weights, bias, forward, backward):
        flat_inputs, scaled = tf.reshape(inputs, [-1, n_in]), weights * to_six  # [T*B, n_in]
        projected = tf.nn.bias_add(tf.matmul(flat_inputs, scaled), bias * to_six)
        projected = tf.reshape(projected, tf.concat([tf.shape(inputs)[:2], [n_cell]], axis=0))
        projected += (1 - mask[:, :, None]) * NEVER
        chains = [
            _relu_forward(projected, forward, reverse=False),
            _relu_forward(projected, backward, reverse=True),
        ]

        def gradient(d_outputs):
            d_outputs *= from_six
            d_forward, d_f = _relu_backward(d_outputs, forward, *chains[0], reverse=False)
            d_backward, d_b = _relu_backward(d_outputs, backward, *chains[1], reverse=True)
            d_projected = tf.reshape(d_f + d_b, [-1, n_cell])  # [T*B, N]
            d_inputs = tf.matmul(d_projected, scaled, transpose_b=True)
            return (
                tf.reshape(d_inputs, tf.shape(inputs)),
                tf.matmul(flat_inputs, d_projected, transpose_a=True) * to_six,
                tf.raw_ops.BiasAddGrad(out_backprop=d_projected) * to_six,
                d_forward,
                d_backward,
            )

        return (chains[0][0] + chains[1][0]) * from_six, gradient

    if not is_training:
        return output_and_gradient(inputs, weights, bias, forward, backward)[0]
    return tf.custom_gradient(output_and_gradient)(
        inputs, *[tf.convert_to_tensor(w) for w in (weights, bias, forward, backward)]
    )


def _relu_forward(projected, recurrent, reverse):
    """Steps one chain through time.

    Args:
      projected: float32 [T, B, N], the inputs' share of the values before activation.
      recurrent: float32 [N, N], recurrent weights of the direction.
      reverse: whether the chain runs backward in time.
    Returns:
      (h, h_before): the outputs, and the output that each step started from, float32 [T, B, N].
    """
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
    """Back-propagates through one chain.

    Args:
      d_outputs: float32 [T, B, N].
      recurrent: float32 [N, N], recurrent weights of the direction.
      outputs, before: float32 [T, B, N], the two results of `_relu_forward`.
      reverse: whether the chain ran backward in time.
    Returns:
      (d_recurrent, d_projected): the gradients of the recurrent weights, float32 [N, N], and of
      the inputs' share before activation, float32 [T, B, N].
    """
    n_steps, n_cell = tf.shape(d_outputs)[0], recurrent.shape[0]
    transposed = tf.transpose(recurrent)

    def step(k, d_h, d_projected):
        t = k if reverse else n_steps - 1 - k
        d_z = tf.raw_ops.Relu6Grad(gradients=d_outputs[t] + d_h, features=outputs[t])
        return tf.matmul(d_z, transposed), d_projected.write(t, d_z)

    d_projected = _repeat(n_steps, step, (tf.zeros_like(d_outputs[0]), _array(n_steps)))[-1]
    d_projected = d_projected.stack()
    d_recurrent = tf.matmul(
        tf.reshape(before, [-1, n_cell]), tf.reshape(d_projected, [-1, n_cell]), transpose_a=True
    )
    return d_recurrent, d_projected
