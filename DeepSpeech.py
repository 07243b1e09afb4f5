"""Trains a DeepSpeech network: `python DeepSpeech.py`, configured by ds_* variables.

This module builds the graph (network, loss, towers, optimizer, export) and runs it (training,
validation, test, checkpoints). It does what Mozilla's DeepSpeech.ipynb of November 2016 did;
"the notebook" in comments is that one. The data come from util/importers by way of
util/feeding.py, the settings from util/config.py.
"""
if __name__ == '__main__':
    from util import config as settings
    with settings.silenced_tensorflow():
        import tensorflow

import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import errno
import itertools
import logging
import math
import os
import re
import shutil
import signal
import sys
import time

import tensorflow.compat.v1 as tf
from tensorflow.python.client import timeline

import util.importers
from util import config as settings, errors, files, gpu, log as run_log, records
from util.feeding import data_sets as data_sets_module, feeder as feeder_module
from util.graph import accumulation, rnn
from util.run import checkpoint_files, run_folder
from util import shared_lib, text, website
from util.run import schedule, warm_start

log = logging.getLogger('DeepSpeech')

# Switches the dropout of a training graph: bool scalar, and the int64 [2] that seeds the masks
# of one tower in one step.
Dropout = collections.namedtuple('Dropout', 'is_training seed')

# What a tower computes of its batch of B utterances: loss [B] and its mean, edit distance over
# transcript length [B] and its mean, best paths and labels as sparse tensors [B, .], logits
# [T, B, n_character] and steps of each utterance [B], and how many of the B utterances count (0
# in a tower that had none left).
TowerResult = collections.namedtuple(
    'TowerResult', 'total_loss avg_loss distance label_error_rate decoded labels logits seq_len '
    'count')

# Of that, what is there before the beam search, from which it and the report can be made later
Undecoded = collections.namedtuple('Undecoded', 'total_loss labels logits seq_len count')

# What a step with an update gives: the step's number, the loss, and summaries or None. Where an
# update takes several batches it is an operation apart; `accumulate` then adds a batch times
# `weight`, `n_batches` counts them and `reset` forgets them. Else these four are None.
Update = collections.namedtuple('Update', 'step loss summaries accumulate weight n_batches reset')

# Handles of the graph that trains and evaluates
Model = collections.namedtuple(
    'Model', 'graph selector n_utterances is_training learning_rate shapes towers avg_loss update '
    'global_step state state_values assign_state saver best_saver back_saver')

# Handles of the graph that only runs the network, for an export
InferenceModel = collections.namedtuple('InferenceModel', 'graph input input_length outputs')

# What is passed along in a run
Run = collections.namedtuple('Run', 'session model data_sets config alphabet stop writers')

# Of each utterance of a pass: transcript, decoded text, edit distance over length, CTC loss
Results = collections.namedtuple('Results', 'sources texts distances losses')

# Figures of one corpus of a joined data set
CorpusOutcome = collections.namedtuple('CorpusOutcome', 'name loss rates n_utterances')

# Figures of one pass over a data set, how long it took for how much audio, and how much of that
# was waiting for the feeder; without decoding label_error_rate and rates, a text.ErrorRates, are
# None; `corpora` holds a CorpusOutcome for each of several corpora
Outcome = collections.namedtuple(
    'Outcome', 'loss label_error_rate rates results seconds audio_seconds waited corpora')

MAX_SEARCHES = 32   # beam searches at a time in one batch, where there are as many cores
MAX_UNDECODED = 16  # batches whose logits wait for their beam search
TRAINING_POOL, DECODING_POOL = 0, 1  # of a session's threads, so that neither waits for the other


class TrainingError(RuntimeError):
    """Training can't go on; the message says where it stopped and why."""


class LogError(TrainingError):
    """The logs can't be written; the message names the folder and the reason."""


class Interrupted(Exception):
    """The user asked for an end (Ctrl-C or SIGTERM)."""


# The network


def variable_on_cpu(name, shape, initializer):
    """A variable in CPU memory, made or shared: float32 of that shape."""
    with tf.device('/cpu:0'):
        return tf.get_variable(name=name, shape=shape, initializer=initializer)


def BiRNN(batch_x, seq_length, *, config, n_character, dropout=None, is_training=True):
    """The network: three dense layers, a recurrent layer in both directions, a dense layer, the
    output layer.

    Args:
      batch_x: float32 [B, T, n_input + 2*n_input*n_context], windows of MFCC.
      seq_length: int32 [B], time steps of each utterance.
      config: Config; the geometry, stddevs, relu_clip and dropout rates.
      n_character: classes, the blank included.
      dropout: Dropout, or None for a graph that never drops.
      is_training: whether the graph is to train; without, it keeps nothing for a gradient.
    Returns:
      float32 [T, B, n_character]: logits, time-major.
    Raises:
      ValueError: batch_x is not rank 3.
    Source: BiRNN of the notebook; Hannun et al., arXiv:1412.5567, equations 1 to 5, in layer 4
      with LSTM cells as in the notebook, or as they are (`ds_rnn=vanilla`).
    """
    # B = batch_size, T = n_steps
    if batch_x.shape.rank != 3:
        raise ValueError('batch_x must be [batch, n_steps, n_features], got %s' % batch_x.shape)
    batch_size = tf.shape(batch_x)[0]
    layer = tf.reshape(tf.transpose(batch_x, [1, 0, 2]), [-1, config.n_features])  # [T*B, F]
    for index, units in ((1, config.n_hidden_1), (2, config.n_hidden_2), (3, config.n_hidden_3)):
        layer = _dense(layer, index, units, config, dropout)
    layer = tf.reshape(layer, [-1, batch_size, config.n_hidden_3])  # [T, B, n_hidden_3]
    layer = _recurrent(layer, seq_length, config, is_training)
    layer = _dropped(tf.reshape(layer, [-1, config.n_hidden_4]), 4, config, dropout)
    layer = _dense(layer, 5, config.n_hidden_5, config, dropout)
    weights, bias = _layer_variables(6, config.n_hidden_5, n_character, config)
    logits = tf.nn.bias_add(tf.matmul(layer, weights), bias)
    return tf.reshape(logits, [-1, batch_size, n_character])


def _recurrent(x, seq_length, config, is_training):
    """Layer 4: float32 [T, B, n_hidden_3] -> [T, B, n_hidden_4], 0 past an utterance's end."""
    if config.rnn == 'vanilla':
        weights, bias = _layer_variables(4, config.n_hidden_3, config.n_cell_dim, config)
        recurrent = [variable_on_cpu('r4_' + direction, [config.n_cell_dim] * 2,
                                     _recurrent_initializer(config)) for direction in ('fw', 'bw')]
        return rnn.bidirectional_relu(x, seq_length, weights, bias, *recurrent, config.relu_clip,
                                      is_training)
    cells = [_lstm_variables(direction, config) for direction in ('fw', 'bw')]
    implementation = 'own' if config.rnn_impl == 'auto' else config.rnn_impl
    return rnn.bidirectional_lstm(x, seq_length, *cells, implementation, is_training)


def _layer_variables(index, n_in, units, config):
    """(h [n_in, units], b [units]) of a dense layer, normally distributed at first."""
    weights, bias = [variable_on_cpu(
        name, shape, tf.random_normal_initializer(stddev=getattr(config, name + '_stddev')))
        for name, shape in (('h%d' % index, [n_in, units]), ('b%d' % index, [units]))]
    return weights, bias


def _dense(x, index, units, config, dropout):
    """[R, n_in] -> [R, units]: min(relu(x h + b), relu_clip), then dropout."""
    weights, bias = [tf.convert_to_tensor(v) for v in
                     _layer_variables(index, x.shape[-1], units, config)]
    rate = config.dropout_of_layer(index)
    if dropout is None or rate == 0.0:
        return _clipped_relu(x, weights, bias, config.relu_clip)
    keep, scale = _dropout_mask(tf.shape(x)[0], units, rate, index, dropout)
    # relu(scale z) = scale relu(z), and the weights are smaller than the activations
    return _clipped_relu(x, weights * scale, bias * scale, config.relu_clip * scale, keep)


def _dropped(x, index, config, dropout):
    """[R, units] after the dropout of a layer."""
    rate = config.dropout_of_layer(index)
    if dropout is None or rate == 0.0:
        return x
    keep, scale = _dropout_mask(tf.shape(x)[0], x.shape[1], rate, index, dropout)
    return x * keep * scale


def _clipped_relu(x, weights, bias, ceiling, keep=None):
    """min(relu(x weights + bias), ceiling), times `keep` where there is dropout.

    Its own gradient needs only the result: it goes where that lies between 0 and the ceiling,
    which Relu6Grad asks in one pass over memory if the ceiling is scaled to 6. The automatic
    gradient takes five.
    """
    @tf.custom_gradient
    def output_and_gradient(x, weights, bias):
        y = tf.minimum(tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), bias)), ceiling)
        if keep is not None:
            y *= keep

        def gradient(d_y):
            # a little more than to 6, so that no rounding opens the clip
            to_six = tf.math.divide_no_nan(6 * (1 + 1e-6), tf.cast(ceiling, tf.float32))
            with tf.control_dependencies([d_y]):  # not before, as it would only take up memory
                features = y * to_six
            d_z = tf.raw_ops.Relu6Grad(gradients=d_y, features=features)
            return (tf.matmul(d_z, weights, transpose_b=True),
                    tf.matmul(x, d_z, transpose_a=True),
                    tf.raw_ops.BiasAddGrad(out_backprop=d_z))

        return y, gradient

    return output_and_gradient(x, weights, bias)


def _dropout_mask(rows, units, rate, layer, dropout):
    """Whom to keep, float32 0 or 1, and the scale that makes up for the rest, 1/(1 - rate).

    Where the graph isn't training, both are 1. The random numbers depend on seed, step, tower
    and layer alone, so that a resumed run drops what the run would have dropped that it resumes.
    They have 16 bits, as a mask costs as much as its bits.
    """
    dropped = min(round(rate * 2**16), 2**16 - 1)  # of as many values

    def draw():
        pairs = tf.random.stateless_uniform([rows, -(-units // 2)], dropout.seed + [0, layer],
                                            minval=None, maxval=None, dtype=tf.uint32)
        values = tf.reshape(tf.bitcast(pairs, tf.uint16), [rows, -1])[:, :units]
        return tf.cast(values >= tf.constant(dropped, tf.uint16), tf.float32)

    keep = tf.cond(dropout.is_training, draw, lambda: tf.ones([1, 1]))
    return keep, tf.where(dropout.is_training, 1 / (1 - dropped / 2**16), 1.0)


def _lstm_variables(direction, config):
    """(kernel, bias) of one direction, with TensorFlow 1.x's names and layout and, unless
    `recurrent_init` says otherwise, TensorFlow 0.12's initial values, which the notebook had:
    uniform of variance 1/n_in, and 0."""
    n_cell = config.n_cell_dim
    with tf.variable_scope('bidirectional_rnn/%s/basic_lstm_cell' % direction):
        return (variable_on_cpu('kernel', [config.n_hidden_3 + n_cell, 4 * n_cell],
                                _kernel_initializer(config)),
                variable_on_cpu('bias', [4 * n_cell], tf.zeros_initializer()))


def _recurrent_initializer(config):
    """Initial values of a recurrent matrix, whose outputs then have the variance of its inputs
    or, orthogonal, their very length (Saxe et al., arXiv:1312.6120)."""
    return tf.orthogonal_initializer() if config.recurrent_init == 'orthogonal' else _uniform()


def _uniform():
    """Initial values with the variance 1/n_in."""
    return tf.variance_scaling_initializer(1.0, 'fan_in', 'uniform')


def _kernel_initializer(config):
    """Initial values of an LSTM's kernel; orthogonal are its last rows, gate by gate."""
    if config.recurrent_init == 'uniform':
        return _uniform()

    def initialise(shape, dtype=tf.float32, partition_info=None):
        del partition_info
        n_cell = shape[1] // 4
        recurrent = [tf.orthogonal_initializer()([n_cell, n_cell], dtype) for _ in range(4)]
        return tf.concat([_uniform()(shape, dtype)[:-n_cell], tf.concat(recurrent, axis=1)], axis=0)

    return initialise


# Loss and decoding


def calculate_accuracy_and_loss(batch, *, config, n_character, dropout=None):
    """Runs the network on a batch and compares the outcome with the transcripts.

    What the notebook called accuracy is an error rate: the mean over utterances of the edit
    distance between best path and labels, divided by the number of labels.

    Args:
      batch: records.Batch.
      config, n_character, dropout: as in `BiRNN`.
    Returns:
      (total_loss [B], avg_loss, distance [B], label_error_rate, decoded, labels, logits): the
      CTC loss is the negative natural logarithm of the transcript's probability; decoded and
      labels are sparse, [B, .], and decoded is the best path of the beam search.
    Source: the notebook's function of that name; Graves et al., ICML 2006, for CTC.
    """
    labels = text.ctc_label_dense_to_sparse(batch.labels, batch.label_len)
    logits = BiRNN(batch.features, batch.seq_len, config=config, n_character=n_character,
                   dropout=dropout)
    total_loss = _ctc_loss(logits, labels, batch.seq_len, config.use_warpctc)
    decoded = decode(logits, batch.seq_len, config.beam_width)
    distance = tf.edit_distance(tf.cast(decoded, tf.int32), labels)
    return (total_loss, tf.reduce_mean(total_loss), distance, tf.reduce_mean(distance), decoded,
            labels, logits)


def _ctc_loss(logits, labels, seq_len, accelerated):
    """CTC loss of each utterance, float32 [B]; the blank is the last class."""
    if not accelerated:
        return tf.nn.ctc_loss(labels, logits, seq_len)
    # The operation that has a cuDNN kernel wants the blank first.
    logits = tf.concat([logits[:, :, -1:], logits[:, :, :-1]], axis=2)
    loss, _ = tf.raw_ops.CTCLossV2(inputs=logits, labels_indices=labels.indices,
                                   labels_values=labels.values + 1, sequence_length=seq_len)
    return loss


def decode(logits, seq_len, beam_width):
    """Best paths of the beam search, int64 sparse [B, .].

    Each utterance is searched by itself, so that all cores have work; the operation searches a
    batch on one. merge_repeated stays off: on, it would merge "all" to "al" a second time.

    Args:
      logits: float32 [T, B, n_character].
      seq_len: int32 [B].
      beam_width: paths to follow.
    """
    seq_len = tf.convert_to_tensor(seq_len)

    def search(b, labels, lengths):
        decoded, _ = tf.nn.ctc_beam_search_decoder(
            logits[:, b:b + 1], seq_len[b:b + 1], beam_width=beam_width, top_paths=1,
            merge_repeated=False)
        path = decoded[0].values
        return b + 1, labels.write(b, path), lengths.write(b, tf.size(path))

    with tf.device('/cpu:0'):  # there is no beam search elsewhere
        batch_size = tf.shape(seq_len)[0]
        labels = tf.TensorArray(tf.int64, batch_size, infer_shape=False, element_shape=[None])
        lengths = tf.TensorArray(tf.int32, batch_size, element_shape=[])
        _, labels, lengths = tf.while_loop(lambda b, *_: b < batch_size, search,
                                           (0, labels, lengths), parallel_iterations=MAX_SEARCHES)
        lengths = lengths.stack()
        return tf.SparseTensor(tf.where(tf.sequence_mask(lengths)), labels.concat(), tf.cast(
            tf.stack([batch_size, tf.reduce_max(lengths)]), tf.int64))


# Towers and optimizer


def create_optimizer(config, learning_rate=None):
    """Adam, as in the notebook (Kingma and Ba, arXiv:1412.6980).

    Args:
      config: Config.
      learning_rate: scalar; None is that of `config`.
    """
    if learning_rate is None:
        learning_rate = config.learning_rate
    return tf.train.AdamOptimizer(learning_rate=learning_rate, beta1=config.beta1,
                                  beta2=config.beta2, epsilon=config.epsilon)


def tower_devices(config):
    """Device of each tower: the GPUs, or logical CPU devices where there are none."""
    gpus = gpu.get_available_gpus()
    return (gpus or ['/cpu:%d' % i for i in range(config.towers)])[:config.towers]


def get_tower_results(batch, devices, *, config, n_character, dropout=None, optimizer=None):
    """Deals a step's batch out to the towers and runs the network in each.

    Args:
      batch: records.Batch with the utterances of all towers.
      devices: device of each tower.
      config, n_character, dropout: as in `BiRNN`.
      optimizer: None, or what computes the gradients.
    Returns:
      (results, gradients, label_error_rate, avg_loss): a TowerResult a tower; a list of
      (gradient, variable) a tower; the means over all utterances.
    Source: the notebook's function of that name, which took the mean of the towers' means.
    """
    results, gradients = [], []
    for tower, device in enumerate(devices):
        with tf.device(device), tf.name_scope('tower_%d' % tower), \
                tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
            share, count = feeder_module.tower_batch(batch, tower, len(devices), config.n_context)
            own = dropout and dropout._replace(seed=dropout.seed + [0, tower << 8])
            result = TowerResult(*calculate_accuracy_and_loss(
                share, config=config, n_character=n_character, dropout=own), share.seq_len, count)
            results.append(result)
            if optimizer is not None:
                gradients.append(optimizer.compute_gradients(result.avg_loss))
    weights = tower_weights(results)
    label_error_rate = _weighted([result.label_error_rate for result in results], weights)
    avg_loss = _weighted([result.avg_loss for result in results], weights)
    return results, gradients, label_error_rate, avg_loss


def _weighted(values, weights):
    """Sum of the towers' values; what an idle tower made of its stand-in counts for nothing, even
    if it isn't finite."""
    return tf.add_n([tf.math.multiply_no_nan(value, weight)
                     for value, weight in zip(values, weights)])


def tower_weights(results):
    """Share of each tower in the utterances of a step, float32 scalars that add up to 1."""
    counts = tf.cast(tf.stack([result.count for result in results]), tf.float32)
    return tf.unstack(counts / tf.reduce_sum(counts), len(results))


def average_gradients(tower_gradients, weights=None):
    """Averages the towers' gradients, variable by variable.

    Args:
      tower_gradients: a list of (gradient, variable) a tower.
      weights: share of each tower; None is the notebook's plain mean.
    Returns:
      List of (gradient, variable).
    """
    if len(tower_gradients) == 1:
        return tower_gradients[0]
    weights = weights or [1.0 / len(tower_gradients)] * len(tower_gradients)
    return [(_weighted([gradient for gradient, _ in pairs], weights), pairs[0][1])
            for pairs in zip(*tower_gradients)]


def apply_gradients(optimizer, average_grads, global_step=None):
    """Operation that updates the variables, and counts the step."""
    return optimizer.apply_gradients(average_grads, global_step=global_step)


def log_variable(variable, gradient=None):
    """Summaries of a variable and of its gradient: mean, standard deviation, extremes,
    histogram."""
    _log_statistics(variable.op.name, variable)
    if gradient is not None:
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        _log_statistics(variable.op.name + '/gradients', values)


def _log_statistics(name, values):
    mean = tf.reduce_mean(values)
    tf.summary.scalar(name + '/mean', mean)
    tf.summary.scalar(name + '/stddev', tf.sqrt(tf.reduce_mean(tf.square(values - mean))))
    tf.summary.scalar(name + '/max', tf.reduce_max(values))
    tf.summary.scalar(name + '/min', tf.reduce_min(values))
    tf.summary.histogram(name + '/histogram', values)


def log_grads_and_vars(grads_and_vars):
    """`log_variable` of each pair."""
    for gradient, variable in grads_and_vars:
        log_variable(variable, gradient=gradient)


def build_model(config, n_character, is_training, data_sets=None):
    """The graph that trains and evaluates, or the one that only runs the network.

    Args:
      config: Config.
      n_character: classes, the blank included.
      is_training: True for a graph with queues, loss, gradients and updates, in which the
        placeholders `selector` and `is_training` choose a data set and switch dropout; False for
        one with neither these nor random operations, for an export.
      data_sets: data_sets_module.DataSets, for training.
    Returns:
      Model or InferenceModel; the weights of both have the same names and shapes.
    Source: the notebook's one graph, with its queue selector and its dropout placeholder.
    """
    with tf.Graph().as_default() as graph, tf.device('/cpu:0'):
        if is_training:
            return _training_model(graph, config, n_character, data_sets)
        return _inference_model(graph, config, n_character)


def _training_model(graph, config, n_character, data_sets):
    tf.set_random_seed(config.random_seed)
    global_step = tf.train.get_or_create_global_step()
    selector = tf.placeholder_with_default(0, [], 'selector')
    n_utterances = tf.placeholder(tf.int32, [], 'n_utterances')
    is_training = tf.placeholder_with_default(False, [], 'is_training')
    learning_rate = tf.placeholder_with_default(config.learning_rate, [], 'learning_rate')
    optimizer = create_optimizer(config, learning_rate)
    batch = data_sets.next_batch(selector, n_utterances)
    n_batches = accumulation.batch_counter() if config.accumulates else None
    towers, gradients, _, avg_loss = get_tower_results(
        batch, tower_devices(config), config=config, n_character=n_character,
        dropout=Dropout(is_training, _dropout_seed(config, global_step, n_batches)),
        optimizer=optimizer)
    averaged = average_gradients(gradients, tower_weights(towers))
    update = _update(optimizer, averaged, batch, avg_loss, n_batches, global_step, config)
    state, state_values, assign_state = _state_variables()
    return Model(
        graph=graph, selector=selector, n_utterances=n_utterances, is_training=is_training,
        learning_rate=learning_rate, shapes=_shapes(batch, towers), towers=towers,
        avg_loss=avg_loss, update=update, global_step=global_step, state=state,
        state_values=state_values, assign_state=assign_state,
        saver=tf.train.Saver(max_to_keep=5, save_relative_paths=True),
        best_saver=tf.train.Saver(max_to_keep=1, save_relative_paths=True),
        back_saver=_back_saver(global_step) if config.go_back or config.num_tries else None)


def _back_saver(global_step):
    """Saver of the weights and of what the optimizer keeps of each."""
    return tf.train.Saver([v for v in tf.global_variables() if v is not global_step
                           and not checkpoint_files.of_the_run(v.op.name)])


def _dropout_seed(config, global_step, n_batches):
    """int64 [2]: other for every step, and for every batch of one."""
    seed = tf.constant(config.random_seed, tf.int64)
    if n_batches is not None:
        seed += n_batches * 2**32
    return tf.stack([seed, global_step * 2**16])


def _update(optimizer, gradients, batch, loss, n_batches, global_step, config):
    """Update of the variables by the gradients of a batch, or by those of several."""
    sums = accumulate = weight = reset = None
    if config.accumulates:
        sums = accumulation.Accumulators([variable for _, variable in gradients], n_batches)
        weight = tf.placeholder_with_default(1.0, [], 'weight')
        accumulate = sums.add(gradients, loss, weight, *accumulation.norm_and_scale(batch, config))
        reset = sums.reset()
        gradients, loss = sums.mean()
    gradients = accumulation.clip(gradients, config)
    if config.log_variables:
        log_grads_and_vars(gradients)
    with tf.control_dependencies([apply_gradients(optimizer, gradients, global_step), loss]):
        with tf.control_dependencies([sums.reset()] if sums else []):
            step = global_step.read_value()  # to run it trains
    return Update(step, loss, tf.summary.merge_all(), accumulate, weight, n_batches, reset)


def _shapes(batch, towers):
    """What `print_batch_shapes` shows, by name: shapes, and numbers of steps and labels."""
    return {'features': tf.shape(batch.features), 'seq_len': batch.seq_len,
            'labels': tf.shape(batch.labels), 'label_len': batch.label_len,
            'logits': [tf.shape(tower.logits) for tower in towers]}


def _inference_model(graph, config, n_character):
    inputs = tf.placeholder(tf.float32, [None, None, config.n_features], 'input')
    whole = tf.fill([tf.shape(inputs)[0]], tf.shape(inputs)[1])
    length = tf.placeholder_with_default(whole, [None], 'input_length')
    with tf.variable_scope('', custom_getter=_without_random_initial_values):
        logits = BiRNN(inputs, length, config=config, n_character=n_character, is_training=False)
    best = decode(logits, length, config.beam_width)
    return InferenceModel(graph, inputs, length,
                          tf.sparse_tensor_to_dense(best, default_value=-1)[None])


def _without_random_initial_values(getter, name, **options):
    """Here the variables get their values from a checkpoint."""
    return getter(name, **dict(options, initializer=tf.zeros_initializer()))


def _state_variables():
    """Variables for a State, placeholders for new values and the operation that sets them."""
    initial = schedule.INITIAL_STATE
    types = [tf.int64 if isinstance(value, int) else tf.float64 for value in initial]
    state = schedule.State(*[
        tf.get_variable('%s/%s' % (checkpoint_files.STATE, name), trainable=False, dtype=dtype,
                        initializer=tf.constant(value, dtype))
        for name, value, dtype in zip(initial._fields, initial, types)])
    values = schedule.State(*[tf.placeholder(dtype, []) for dtype in types])
    return state, values, tf.group(*[tf.assign(v, new) for v, new in zip(state, values)])


# Reports


def print_wer_report(caption, wer, items):
    """Prints the notebook's report: the WER, then items of (source, result, WER, loss)."""
    log.info('%s WER: %f', caption, wer)
    for source, result, item_wer, loss in items:
        log.info('-' * 80)
        log.info('    WER:    %f', item_wer)
        log.info('    loss:   %f', loss)
        log.info('    source: "%s"', source)
        log.info('    result: "%s"', result)


def calculate_and_print_wer_report(caption, results_tuple, report_count=10):
    """Reports the WER of results, and of those with errors the ones with the lowest loss.

    Args:
      caption: text before the figures.
      results_tuple: Results, as `collect_results` fills them.
      report_count: utterances to print, ordered by their WER.
    Returns:
      The WER over all words.
    """
    results = Results(*results_tuple)
    rates, wer = text.wers(results.sources, results.texts)
    items = [item for item in zip(results.sources, results.texts, rates, results.losses)
             if item[2] > 0]
    items = sorted(items, key=lambda item: item[3])[:report_count]
    print_wer_report(caption, wer, sorted(items, key=lambda item: item[2]))
    return wer


def collect_results(results_tuple, returns, alphabet):
    """Adds the values of the towers of one step, TowerResults, to Results."""
    results = Results(*results_tuple)
    for tower in returns:
        if tower.count:
            results.sources.extend(text.sparse_tensor_value_to_texts(tower.labels, alphabet))
            results.texts.extend(text.sparse_tensor_value_to_texts(tower.decoded, alphabet))
            results.distances.extend(tower.distance.tolist())
            results.losses.extend(tower.total_loss.tolist())


def _outcome(results, loss, started, audio_seconds, waited, corpora=()):
    """Outcome of the collected results of one pass; without any there are no rates.

    Args:
      corpora: name of the corpus of each utterance, where these are to be told apart.
    """
    label_error_rate = rates = None
    if results.sources:
        label_error_rate = sum(results.distances) / len(results.distances)
        rates = text.error_rates(results.sources, results.texts)
    return Outcome(loss, label_error_rate, rates, results, time.monotonic() - started,
                   audio_seconds, waited, _by_corpus(results, corpora))


def _by_corpus(results, corpora):
    """A CorpusOutcome for each corpus, if there are several."""
    found, names = [], list(dict.fromkeys(corpora))
    for name in names if len(names) > 1 else ():
        chosen = [i for i, corpus in enumerate(corpora) if corpus == name]
        sources, texts, losses = [[part[i] for i in chosen] for part in (
            results.sources, results.texts, results.losses)]
        found.append(CorpusOutcome(name, sum(losses) / len(losses),
                                   text.error_rates(sources, texts), len(chosen)))
    return found


def _report(caption, outcome, config):
    """Prints the WER report of a pass that was decoded."""
    if outcome.rates:
        title = '%s loss=%.9f label_error_rate=%.9f CER: %f' % (
            caption, outcome.loss, outcome.label_error_rate, outcome.rates.cer)
        calculate_and_print_wer_report(title, outcome.results, config.report_count)


class Decoding:
    """Beam search of the batches of a pass, in a thread beside it, as only the report at the end
    of the pass needs it. `results` then holds all of them, in the order in which they came."""

    def __init__(self, run, results):
        self._run, self._results = run, results
        self._pending = collections.deque()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, 'decoding')

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            while self._pending and kind is None:
                self._collect()
        finally:
            self._thread.shutdown(cancel_futures=True)

    def add(self, towers):
        """Takes over what a step gave, an Undecoded a tower."""
        self._pending.append(self._thread.submit(self._decode, towers))
        while len(self._pending) > MAX_UNDECODED or (
                self._pending and self._pending[0].done()):
            self._collect()

    def _decode(self, towers):
        feed = {}
        for tensors, values in zip(undecoded(self._run.model.towers), towers):
            feed.update(zip(tensors, values))
        return self._run.session.run(reports(self._run.model.towers), feed,
                                     tf.RunOptions(inter_op_thread_pool=DECODING_POOL))

    def _collect(self):
        collect_results(self._results, self._pending.popleft().result(), self._run.alphabet)


def undecoded(towers):
    """Of TowerResults what there is before the beam search: to fetch, or to feed to it."""
    return [Undecoded(*[getattr(tower, name) for name in Undecoded._fields]) for tower in towers]


def reports(towers):
    """Of TowerResults what a report needs: without logits."""
    return [tower._replace(logits=(), seq_len=()) for tower in towers]


# Training and evaluation


def run_inference(run, data_set, feeder):
    """One pass over the dev or test set, without training.

    Args:
      run: Run.
      data_set: its DataSet.
      feeder: its feeder_module.Feeder.
    Returns:
      Outcome; its loss is the mean CTC loss of an utterance, NaN where none could be read.
    Raises:
      Interrupted: between two batches.
    """
    model, results, corpora = run.model, Results([], [], [], []), []
    started, audio_seconds, total, n_utterances = time.monotonic(), 0.0, 0.0, 0
    waited = feeder.waited
    progress = run_log.Progress(data_set.name, data_set.total_batches)
    with Decoding(run, results) as decoding:
        for step in feeder.epoch():
            run.stop.check()
            fetches = {'towers': undecoded(model.towers)}
            if run.config.print_batch_shapes:
                fetches['shapes'] = model.shapes
            values = run.session.run(fetches, {
                model.selector: step.queue_index, model.n_utterances: len(step.examples)})
            towers = values['towers']
            _print_shapes(data_set.name, step, values, progress)
            decoding.add(towers)
            corpora += [example.utterance.corpus for example in step.examples]
            audio_seconds += step.seconds
            n_utterances += len(step.examples)
            total += sum(float(tower.total_loss.sum()) for tower in towers if tower.count)
            progress.update(step.index + 1, total / n_utterances)
    progress.close()
    loss = total / n_utterances if n_utterances else math.nan
    return _outcome(results, loss, started, audio_seconds, feeder.waited - waited, corpora)


def train(run, state):
    """Trains from `state` to the last epoch; validates and saves where due.

    Returns:
      (State, train Outcome of the last epoch or None, dev Outcome of the last validation or
      None).
    Raises:
      TrainingError: a loss that is not finite, a checkpoint that can't be written.
      Interrupted: after a checkpoint was saved.
    """
    config, data_sets = run.config, run.data_sets
    train_outcome = dev_outcome = None
    with contextlib.ExitStack() as feeders:
        dev_feeder = None
        if config.validation_step:
            dev_feeder = feeders.enter_context(data_sets.dev.feed(run.session))
        if config.training_iters and state.validated < state.epoch:
            # the run before was interrupted in its validation
            state, dev_outcome = _validate(run, state, dev_feeder)
            if state.best_epoch < state.epoch:
                _save(run, state)
        while config.training_iters:
            if not schedule.stage_done(config, state):
                state, train_outcome, new_dev = _train_stage(run, state, dev_feeder)
                dev_outcome = new_dev or dev_outcome
            _say_stopped(config, state)
            if schedule.next_stage(config, state) is None:
                break
            state = _begin_stage(run, state)
    return state, train_outcome, dev_outcome


def _say_stopped(config, state):
    """Says where the plateau ended a stage before its last epoch."""
    if schedule.stopped(config, state) and state.epoch < schedule.last_epoch(config, state):
        log.info('%s after epoch %d: %d of %d tries without a better dev loss',
                 'training stops' if schedule.next_stage(config, state) is None
                 else 'the stage ends', state.epoch, state.tries, config.num_tries)


def _begin_stage(run, state):
    """The State at the begin of the next stage; where the one before was stopped, it starts from
    the best weights."""
    if schedule.stopped(run.config, state) and not run.config.go_back:
        _go_back(run, state)
    return schedule.next_stage(run.config, state)


def _say_stage(run, state):
    """Says what a stage trains on, where there are several."""
    length, n_stages = run.config.stages[state.stage], len(run.config.stages)
    if n_stages > 1:
        log.info('Stage %d of %d: %s, %d of %d', state.stage + 1, n_stages, 'all utterances'
                 if length is None else 'utterances of up to %d time steps' % length,
                 len(run.data_sets.stages[state.stage]), len(run.data_sets.train))


def _train_stage(run, state, dev_feeder):
    """Trains to the last epoch of a stage, or until the plateau ends it.

    Returns:
      (State, train Outcome of the last epoch, dev Outcome of the last validation or None).
    """
    config, dev_outcome = run.config, None
    data_set = run.data_sets.stages[state.stage]
    n_left = schedule.last_epoch(config, state) - state.epoch
    _say_stage(run, state)
    with data_set.feed(run.session, state.epoch, state.epoch_step, n_left) as feeder:
        while not schedule.stage_done(config, state):
            epoch = state.epoch + 1
            log.info('Epoch %d of %d started', epoch, schedule.n_epochs(config, state))
            state, train_outcome = _train_epoch(run, state, data_set, feeder)
            _report('Training', train_outcome, config)
            learning_rate = _learning_rate(run, state)
            state, new_dev = _validate(run, state, dev_feeder)
            dev_outcome = new_dev or dev_outcome
            due = schedule.due(config.checkpoint_step, epoch, config, state)
            if (due or schedule.stage_done(config, state)) and state.best_epoch < epoch:
                _save(run, state)  # else the validation did
            with _saved_on_failure(run, state):
                _log_epoch(run, state, train_outcome, new_dev, learning_rate)
    return state, train_outcome, dev_outcome


def _learning_rate(run, state):
    return schedule.learning_rate(run.config, state,
                                  run.data_sets.stages[state.stage].total_batches)


def _train_epoch(run, state, data_set, feeder):
    """Trains over what is left of an epoch.

    Returns:
      (State after the epoch, Outcome). The loss is the mean over all utterances of the epoch,
      those before an interruption included; error rates cover those after it.
    """
    results, config = Results([], [], [], []), run.config
    query_report = schedule.due(config.display_step, state.epoch + 1, config, state)
    state = state._replace(order=data_set.order_checksum(state.epoch))
    started, audio_seconds, waited = time.monotonic(), 0.0, feeder.waited
    number = _global_step(run)
    progress = run_log.Progress('train', data_set.total_batches,
                                already=state.epoch_step)
    with Decoding(run, results) as decoding:
        for step in feeder.all_steps():
            if run.stop.wanted:
                progress.close()
                _save_and_interrupt(run, state)
            values = _train_step(run, state, step, number + 1, query_report)
            _print_shapes('train', step, values, progress)
            loss = float(values.get('loss', 0.0))
            if not math.isfinite(loss):
                progress.close()
                raise TrainingError(_not_finite(loss, state, step, _learning_rate(run, state)))
            if query_report and step.examples:
                decoding.add(values['towers'])
            audio_seconds += step.seconds
            state = state._replace(epoch_step=step.index + 1,
                                   epoch_done=state.epoch_done + len(step.examples),
                                   epoch_loss=state.epoch_loss + loss * len(step.examples))
            if 'step' in values:
                number = int(values['step'])
                _after_update(run, state, values, progress)
            if state.epoch_done:
                progress.update(step.index + 1, state.epoch_loss / state.epoch_done)
    progress.close()
    if not state.epoch_done:
        raise errors.DataError('no usable training utterance is left')
    outcome = _outcome(results, state.epoch_loss / state.epoch_done, started, audio_seconds,
                       feeder.waited - waited)
    state = state._replace(epoch=state.epoch + 1, epoch_step=0, epoch_done=0, epoch_loss=0.0)
    return state, outcome


def _after_update(run, state, values, progress):
    """Logs and saves what is due after an update."""
    every, number = run.config.checkpoint_steps, int(values['step'])
    with _saved_on_failure(run, state):
        _log_step(run, state.epoch + 1, values)
    if every and number % every == 0:
        path = _save(run, state)
        progress.close()
        log.info('Step %d: loss%s %f, saved %s', number, ' per label' if (
            run.config.loss_norm == 'labels') else '', values['step_loss'], path)


@contextlib.contextmanager
def _saved_on_failure(run, state):
    """Saves what was learned where the logs fail."""
    try:
        yield
    except LogError as error:
        raise LogError('%s; saved %s' % (error, _save(run, state))) from None


def _save_and_interrupt(run, state):
    path = _save(run, state)
    raise Interrupted('saved %s: %d epochs%s; ds_restore_checkpoint=1 goes on from there' % (
        path, state.epoch, ' and %d steps' % state.epoch_step if state.epoch_step else ''))


def _train_step(run, state, step, number, query_report):
    """One batch, and the update with which it ends, if any.

    Args:
      run: Run.
      state: State before it.
      step: records.Step; where it has no utterances, there is only the update.
      number: the number of the update, counted from 1.
      query_report: whether the towers' results are asked for.
    Returns:
      dict: 'loss', mean of the batch's utterances, if there are any; 'towers', an Undecoded a
      tower; after an update 'step', its number, and 'step_loss', what it was made of; 'summaries'
      and 'trace' where the settings ask for them.
    """
    model, values = run.model, {}
    one_run = model.update.accumulate is None
    if step.examples:
        fetches = {'loss': model.avg_loss}
        if query_report:
            fetches['towers'] = undecoded(model.towers)
        if run.config.print_batch_shapes:
            fetches['shapes'] = model.shapes
        feed = {model.selector: step.queue_index, model.n_utterances: len(step.examples),
                model.is_training: True}
        if one_run:
            fetches.update(_update_fetches(run, number))
            feed[model.learning_rate] = _learning_rate(run, state)
        else:
            fetches['accumulated'] = model.update.accumulate
            feed[model.update.weight] = step.weight
        values = _run_traced(run, fetches, feed, step.ends_update)
    if not one_run and step.ends_update and (
            step.examples or run.session.run(model.update.n_batches)):
        values.update(run.session.run(_update_fetches(run, number),
                                      {model.learning_rate: _learning_rate(run, state)}))
    return values


def _update_fetches(run, number):
    """What to run for an update."""
    update, every = run.model.update, run.config.summary_steps
    fetches = {'step': update.step, 'step_loss': update.loss}
    if update.summaries is not None and every and number % every == 0:
        fetches['summaries'] = update.summaries
    return fetches


def _run_traced(run, fetches, feed, ends_update):
    """Session.run, with a 'trace' in the values where the settings ask for it; one an update."""
    if not run.config.do_fulltrace or not ends_update:
        return run.session.run(fetches, feed)
    trace = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    return dict(run.session.run(fetches, feed, options, trace), trace=trace)


def _print_shapes(set_name, step, values, progress):
    """Prints the shapes of a batch, where they were asked for."""
    if 'shapes' in values:
        shapes = values['shapes']
        progress.close()
        log.info('%s batch %d: features %s, seq_len [%d] of %d to %d, labels %s, label_len [%d] of '
                 '%d to %d, logits %s', set_name, step.index + 1, shapes['features'].tolist(),
                 *_extent(shapes['seq_len']), shapes['labels'].tolist(),
                 *_extent(shapes['label_len']),
                 ' and '.join(str(shape.tolist()) for shape in shapes['logits']))


def _extent(values):
    """(how many, least, greatest)"""
    return len(values), values.min(), values.max()


def _log_step(run, epoch, values):
    """Writes what `_train_step` gave to the logs."""
    writer, number, every = run.writers['train'], int(values['step']), run.config.summary_steps
    if every and number % every == 0:
        _write_scalars(writer, number, step_loss=values['step_loss'])
    with _writing(writer):
        if 'summaries' in values:
            writer.add_summary(values['summaries'], number)
        if 'trace' in values:
            trace = values['trace']
            writer.add_run_metadata(trace, 'epoch%d_step%d' % (epoch, number), number)
            files.write_file(os.path.join(writer.get_logdir(), 'trace.json'), timeline.Timeline(
                trace.step_stats).generate_chrome_trace_format())


@contextlib.contextmanager
def _writing(writer):
    """Turns failures of the logs into one line."""
    try:
        yield
    except (RuntimeError, OSError, tf.errors.OpError) as error:
        raise LogError('the logs cannot be written to %s: %s' % (
            writer.get_logdir(), _first_line(error))) from None


def _not_finite(loss, state, step, learning_rate):
    names = ', '.join(example.utterance.name for example in step.examples)
    return ('the loss is %f in epoch %d, step %d; utterances of this step: %s. A smaller '
            'ds_learning_rate than %g may help' % (loss, state.epoch + 1, step.index + 1, names,
                                                   learning_rate))


def _validate(run, state, feeder):
    """Evaluates the dev set where that is due, and keeps the weights if they are the best so far.

    Returns:
      (State, Outcome or None).
    Raises:
      DataError: nothing of the dev set can be read, but its loss is needed.
    """
    config = run.config
    due = schedule.due(config.validation_step, state.epoch, config, state)
    if not due or not len(run.data_sets.dev):
        return state._replace(validated=state.epoch), None
    try:
        outcome = run_inference(run, run.data_sets.dev, feeder)
    except Interrupted:
        _save_and_interrupt(run, state)
    _report('Validation', outcome, config)
    if not outcome.rates and settings.uses_dev_loss(config):
        raise errors.DataError('%s: no utterance of the dev set could be read; saved %s' % (
            ', '.join(settings.uses_dev_loss(config)), _save(run, state)))
    if not math.isfinite(outcome.loss):
        log.warning('the dev loss is %f; these weights are not kept as the best', outcome.loss)
    after = schedule.after_validation(config, state, outcome.loss)
    if after.best_epoch == after.epoch:
        _save(run, after)  # first, so that best/ is never ahead of what a resume finds
        _save(run, after, best=True)
    else:
        _say_worse(config, after, outcome.loss)
        if config.go_back:
            _go_back(run, after)
    return after, outcome


def _say_worse(config, state, loss):
    """Says what follows from a dev loss that is no better, where something does."""
    consequences = []
    if config.num_tries:
        consequences.append('try %d of %d' % (state.tries, config.num_tries))
    if config.valid_adapt < 1:
        consequences.append('learning rate times %g' % config.valid_adapt)
    if consequences or config.go_back:
        log.info('dev loss %.6f is not below %.6f%s', loss, state.best_dev_loss,
                 ': ' + ', '.join(consequences) if consequences else '')


def _go_back(run, state):
    """Restores the best weights and the optimizer's state that belongs to them.

    Raises:
      TrainingError: they can't be read.
    """
    path = _best_path(run, state)
    if path:
        try:
            run.model.back_saver.restore(run.session, path)
        except tf.errors.OpError as error:
            raise TrainingError('the best weights, %s, cannot be restored: %s' % (
                path, _first_line(error))) from None
        log.info('went back to the weights of %s', path)


def _log_epoch(run, state, outcome, dev_outcome, learning_rate):
    """The line of an epoch and its scalars."""
    config, parts = run.config, ['train ' + _figures(outcome)]
    if dev_outcome:
        parts.append('dev ' + _figures(dev_outcome))
        parts += [_corpus_figures(corpus) for corpus in dev_outcome.corpora]
    if config.learning_rate_decay < 1 or config.valid_adapt < 1:
        parts.append('learning rate %.3g' % learning_rate)
    parts.append('%.1f s, %.0f s of audio a second' % (
        outcome.seconds, outcome.audio_seconds / outcome.seconds))
    log.info('Epoch %d of %d finished: %s', state.epoch, schedule.n_epochs(config, state),
             '; '.join(parts))
    step = _global_step(run)
    _write_outcome(run.writers['train'], step, outcome, learning_rate=learning_rate)
    if dev_outcome:
        _write_outcome(run.writers['dev'], step, dev_outcome)


def _global_step(run):
    return int(run.session.run(run.model.global_step))


def _figures(outcome):
    """'loss 1.234500, WER 8.42% [77/914: 5 ins, 12 del, 60 sub]'"""
    words = 'loss %.6f' % outcome.loss
    if outcome.rates:
        rates = outcome.rates
        errors = rates.insertions + rates.deletions + rates.substitutions
        words += ', WER %.2f%% [%d/%d: %d ins, %d del, %d sub]' % (
            100 * rates.wer, errors, rates.words, rates.insertions, rates.deletions,
            rates.substitutions)
    return words


def _corpus_figures(corpus):
    """'fsdd loss 1.234500, WER 8.42%'"""
    return '%s loss %.6f, WER %.2f%%' % (corpus.name, corpus.loss, 100 * corpus.rates.wer)


def _write_outcome(writer, step, outcome, **scalars):
    scalars.update(loss=outcome.loss, feeding_wait_share=outcome.waited / outcome.seconds,
                   audio_seconds_per_second=outcome.audio_seconds / outcome.seconds)
    if outcome.rates:
        scalars.update(label_error_rate=outcome.label_error_rate, wer=outcome.rates.wer,
                       cer=outcome.rates.cer)
    for corpus in outcome.corpora:
        scalars.update({'loss_' + corpus.name: corpus.loss, 'wer_' + corpus.name: corpus.rates.wer})
    _write_scalars(writer, step, **scalars)
    with _writing(writer):
        writer.flush()


def _write_scalars(writer, step, **scalars):
    with _writing(writer):
        writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value)
                                             for tag, value in scalars.items()]), step)


class StopRequest:
    """Ctrl-C and SIGTERM: they end a run at once, but training only at the next step, so that
    what was learned can be saved."""

    def __init__(self):
        self.wanted = False
        self.outcome = 'nothing was saved'  # what to tell the user where a run ends at once
        self._deferred = False

    @contextlib.contextmanager
    def installed(self):
        """Takes over both signals meanwhile."""
        before = {number: signal.signal(number, self._receive)
                  for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def deferred(self):
        """Meanwhile the first signal only sets `wanted`."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _receive(self, number, frame):
        del frame
        if self.wanted or not self._deferred:
            raise Interrupted(self.outcome)
        self.wanted = True
        log.warning('%s: stopping after this step; once more to stop at once',
                    signal.Signals(number).name)

    def check(self):
        """Raises Interrupted where an end was asked for."""
        if self.wanted:
            raise Interrupted(self.outcome)


# Checkpoints


def _save(run, state, best=False):
    """Saves weights, optimizer and state; returns the checkpoint's path.

    Raises:
      TrainingError: it can't be written. The checkpoints before it stay as they are.
    """
    model, directory = run.model, run.config.checkpoint_dir
    if best:
        directory = checkpoint_files.best_dir(directory)
    run.session.run(model.assign_state, dict(zip(model.state_values, state)))
    try:
        return (model.best_saver if best else model.saver).save(
            run.session, os.path.join(directory, checkpoint_files.BASENAME),
            global_step=_global_step(run), write_meta_graph=False)
    except (tf.errors.OpError, OSError, ValueError) as error:  # the latter: no such folder
        raise TrainingError('the checkpoint cannot be written to %s: %s' % (
            directory, _first_line(error))) from None


def _first_line(error):
    """What an exception says, without TensorFlow's account of where in the graph it arose."""
    message = str(getattr(error, 'message', error))
    behind_the_account = re.search(r'^Node: .*\n(.+)', message, re.M)
    lines = [behind_the_account.group(1)] if behind_the_account else message.splitlines()
    return (lines or [type(error).__name__])[0]


def _restore(run):
    """Restores the newest whole checkpoint, or initialises the variables.

    Returns:
      State.
    Raises:
      CheckpointError: damaged checkpoints only, or another network; or nothing to test.
    """
    model, config = run.model, run.config
    with model.graph.as_default():
        run.session.run(tf.global_variables_initializer())
        path = None
        if config.restore_checkpoint:
            path = checkpoint_files.newest_whole(config.checkpoint_dir)
        if config.training_iters:
            checkpoint_files.take_over(model.saver, config.checkpoint_dir)
            checkpoint_files.take_over(model.best_saver, checkpoint_files.best_dir(config.checkpoint_dir))
        if path is None:
            _say_afresh(config)
            if config.init_from:
                _start_from(run)
            return schedule.INITIAL_STATE
        missing = checkpoint_files.restore(run.session, path, tf.global_variables())
        state = schedule.State(*[value.item() for value in run.session.run(model.state)])
        if model.state.epoch in missing:  # one of the notebook's; its number is the epoch's index
            epoch = checkpoint_files.number(path) + 1
            state = schedule.INITIAL_STATE._replace(epoch=epoch, validated=epoch)
            run.session.run(tf.assign(model.global_step,
                                      epoch * _updates_of_an_epoch(run.data_sets.stages[0])))
    return _resumed(run, state, path)


def _start_from(run):
    """Loads the weights of another model.

    Raises:
      CheckpointError: it has none, or lacks some where the run is only to test.
    """
    config = run.config
    missing = warm_start.load(run.session, config.init_from, tf.trainable_variables())
    if missing and not config.training_iters:
        raise errors.CheckpointError('ds_training_iters=0 tests the weights of ds_init_from, '
                                         'but %s lacks %s' % (config.init_from, ', '.join(missing)))


def _updates_of_an_epoch(data_set):
    return sum(map(data_set.ends_update, range(data_set.total_batches)))


def _resumed(run, state, path):
    """The State to go on with; says what that is."""
    config, n_stages = run.config, len(run.config.stages)
    state = state._replace(stage=min(state.stage, n_stages - 1))
    data_set = run.data_sets.stages[state.stage]
    if config.training_iters and state.epoch_step and (
            state.order != data_set.order_checksum(state.epoch)):
        log.info('other utterances, or another order, batch size or update than before: the '
                 'unfinished epoch starts anew')
        state = state._replace(epoch_step=0, epoch_done=0, epoch_loss=0.0)
    if run.model.update.reset is not None and not state.epoch_step:
        run.session.run(run.model.update.reset)
    log.info('restored %s: %d epochs done%s', path, state.epoch,
             ' and %d steps of the next' % state.epoch_step if state.epoch_step else '')
    if config.init_from:
        log.info('ds_init_from is not used, as the run goes on from its own checkpoint')
    if config.training_iters:
        _mend_best(run, state)
    if config.training_iters and state.validated < state.epoch:
        log.info('going on with the validation of epoch %d', state.epoch)
    elif config.training_iters and not schedule.stage_done(config, state):
        log.info('going on with epoch %d at learning rate %g%s', state.epoch + 1,
                 _learning_rate(run, state),
                 ', stage %d of %d' % (state.stage + 1, n_stages) if n_stages > 1 else '')
    return state


def _mend_best(run, state):
    """Makes up for the save of the best weights where a run ended just before it."""
    is_best = 0 < state.best_epoch == state.epoch and not state.epoch_step
    if is_best and not _find_best(run, state):
        _save(run, state, best=True)


def _say_afresh(config):
    """Says that the run starts afresh, and what becomes of checkpoints that are there.

    Raises:
      CheckpointError: where the run was to test a checkpoint.
    """
    if not config.training_iters and not config.init_from:
        raise errors.CheckpointError(
            'ds_training_iters=0 tests a checkpoint, but %s' % (
                'there is none in ' + config.checkpoint_dir if config.restore_checkpoint
                else 'ds_restore_checkpoint is off, and ds_init_from empty'))
    if not config.training_iters:
        return
    found = checkpoint_files.candidates(config.checkpoint_dir)
    if config.restore_checkpoint:
        log.info('no checkpoint in %s: starting afresh', config.checkpoint_dir)
    elif found:
        log.info('starting afresh; the checkpoints of an earlier run in %s will be replaced '
                 '(ds_restore_checkpoint=1 would go on from %s)', config.checkpoint_dir, found[0])
    else:
        log.info('starting afresh')


def _load_best(run, state):
    """Puts the weights to test and export into the session: the best ones by dev loss where a
    validation ran, else those of the last step. Returns what they are, in words."""
    path = _best_path(run, state)
    if path:
        with run.model.graph.as_default():
            checkpoint_files.restore(run.session, path, tf.trainable_variables())
        return 'best by dev loss (%.6f), %s' % (state.best_dev_loss, path)
    if not state.epoch and not state.epoch_step and run.config.init_from:
        return 'of ' + run.config.init_from
    return 'of epoch %d%s' % (state.epoch, ' and %d steps' % state.epoch_step
                              if state.epoch_step else '')


def _best_path(run, state):
    """The checkpoint with the best weights by dev loss; None where no validation ran, or where it
    is gone, which is said."""
    path = _find_best(run, state)
    if not path and math.isfinite(state.best_dev_loss):
        log.warning('the best weights, with the dev loss %.6f, are no longer in %s',
                    state.best_dev_loss, checkpoint_files.best_dir(run.config.checkpoint_dir))
    return path


def _find_best(run, state):
    """As `_best_path`, but says nothing."""
    with contextlib.suppress(errors.CheckpointError):  # what is damaged was named
        path = checkpoint_files.newest_whole(checkpoint_files.best_dir(run.config.checkpoint_dir))
        if path and checkpoint_files.value(path, run.model.state.best_dev_loss) == state.best_dev_loss:
            return path
    return None


# Export


def export(config, n_character, weights):
    """Exports a model for TensorFlow Serving.

    The version is the next free whole number in `config.export_dir`. The model is written
    under another name and renamed once it is complete; only then `remove_export` removes the
    versions before it.

    Signatures: `serving_default` takes `input` float32 [batch, n_steps, n_features] and gives
    `outputs` int64 [1, batch, labels], padded with -1; `with_length` also takes `input_length`
    int32 [batch], for batches padded to one length.

    Args:
      config: Config.
      n_character: classes, the blank included.
      weights: {name of the variable: value}.
    Returns:
      Path of the exported version.
    Raises:
      TrainingError: it can't be written.
    Source: the notebook's export, which had no lengths and padded with 0, the space's label.
    """
    unfinished = os.path.join(config.export_dir, '.unfinished-%d' % os.getpid())
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        _write_export(unfinished, config, n_character, weights)
        return _publish_export(unfinished, config)
    except (tf.errors.OpError, OSError) as error:
        raise TrainingError('the model cannot be exported to %s: %s' % (
            config.export_dir, _first_line(error))) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write_export(path, config, n_character, weights):
    if config.rnn_impl == 'cudnn':  # the exported model runs everywhere
        config = dataclasses.replace(config, rnn_impl='own')
    model = build_model(config, n_character, is_training=False)
    with model.graph.as_default(), tf.device('/cpu:0'), tf.Session() as session:
        session.run(tf.global_variables_initializer(),
                    {v.initial_value: weights[v.op.name] for v in tf.global_variables()})
        signature = tf.saved_model.predict_signature_def
        builder = tf.saved_model.Builder(path)
        builder.add_meta_graph_and_variables(session, [tf.saved_model.SERVING], {
            tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY:
                signature({'input': model.input}, {'outputs': model.outputs}),
            'with_length':
                signature({'input': model.input, 'input_length': model.input_length},
                          {'outputs': model.outputs})},
            clear_devices=True)
        builder.save()


def _publish_export(unfinished, config):
    """Gives a finished export its number; another run may take the same one meanwhile."""
    older = [int(name) for name in os.listdir(config.export_dir) if re.fullmatch('[0-9]+', name)]
    for version in itertools.count(max(older, default=0) + 1):
        path = os.path.join(config.export_dir, str(version))
        try:
            os.rename(unfinished, path)
            break
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
    if config.remove_export:
        for name in os.listdir(config.export_dir):
            if re.fullmatch('[0-9]+', name) and int(name) in older:
                shutil.rmtree(os.path.join(config.export_dir, name))
    return path


# The run


def _check_before_training(config, data_sets):
    """Finds before the first step what would otherwise fail after hours.

    Raises:
      ConfigError, DataError.
    """
    if config.use_warpctc and not gpu.get_available_gpus():
        raise errors.ConfigError('ds_use_warpctc must be off on a machine without GPUs: the '
                                   'CTCLossV2 operation runs on GPUs only')
    if config.training_iters:
        files.make_dir(config.checkpoint_dir, 'ds_checkpoint_dir')
        files.make_dir(checkpoint_files.best_dir(config.checkpoint_dir), 'ds_checkpoint_dir')
    if config.export_dir:
        files.make_dir(config.export_dir, 'ds_export_dir')
    if config.training_iters and not len(data_sets.train):
        raise errors.DataError('no usable training utterance is left')
    if config.training_iters and settings.uses_dev_loss(config) and not len(data_sets.dev):
        raise errors.DataError('%s needs a dev set, but it is empty' % ', '.join(
            settings.uses_dev_loss(config)))
    for data_set, purpose in ((data_sets.dev, 'validation'), (data_sets.test, 'test')):
        if not len(data_set):
            log.info('the %s set is empty: no %s', data_set.name, purpose)
    if config.do_fulltrace:
        shared_lib.check_cupti()


def test(run):
    """Evaluates the test set; returns its Outcome, None where there is nothing to test."""
    if not len(run.data_sets.test):
        return None
    with run.data_sets.test.feed(run.session, n_epochs=1) as feeder:
        outcome = run_inference(run, run.data_sets.test, feeder)
    if not outcome.rates:
        log.warning('no utterance of the test set could be read')
        return None
    _report('Test', outcome, run.config)
    _write_outcome(run.writers['test'], _global_step(run), outcome)
    return outcome


def train_and_test(config, alphabet, data_sets, stop, run_dir, results):
    """The whole run: restore, train, test, export.

    Args:
      config, alphabet, data_sets: what to do.
      stop: StopRequest.
      run_dir: folder of the logs.
      results: dict, filled with the figures for hyper.json as they come.
    """
    if config.restore_checkpoint:  # before the graph is built, which takes longer
        checkpoint_files.check_newest(config, alphabet.n_character)
    model = build_model(config, alphabet.n_character, True, data_sets)
    session_config = tf.ConfigProto(allow_soft_placement=True,
                                    log_device_placement=config.log_device_placement,
                                    device_count={'CPU': config.towers})
    for _ in (TRAINING_POOL, DECODING_POOL):
        session_config.session_inter_op_thread_pool.add()
    with model.graph.as_default():
        writers = {name: tf.summary.FileWriter(os.path.join(run_dir, name), graph)
                   for name, graph in (('train', model.graph), ('dev', None), ('test', None))
                   if len(getattr(data_sets, name))}
    with tf.Session(config=session_config, graph=model.graph) as session:
        run = Run(session, model, data_sets, config, alphabet, stop, writers)
        state = _restore(run)
        with stop.deferred():
            state, train_outcome, dev_outcome = train(run, state)
        stop.outcome = 'training was done; ds_restore_checkpoint=1 tests and exports'
        _add_results(results, last_train=train_outcome, last_validation=dev_outcome)
        weights = _load_best(run, state)
        log.info('Testing the weights %s', weights)
        test_outcome = test(run)
        _add_results(results, test=test_outcome)
        exported = None
        if config.export_dir:
            exported = export(config, alphabet.n_character, session.run(
                {v.op.name: v for v in model.graph.get_collection('trainable_variables')}))
    for writer in writers.values():
        with _writing(writer):
            writer.close()
    _summarise(config, run_dir, weights, test_outcome, exported)


def _add_results(results, **outcomes):
    for name, outcome in outcomes.items():
        if outcome is not None:
            results[name + '_loss'] = outcome.loss
            results[name + '_wer'] = outcome.rates and outcome.rates.wer
            results[name + '_cer'] = outcome.rates and outcome.rates.cer


def _summarise(config, run_dir, weights, outcome, exported):
    """The last lines of a run: the result and where everything is."""
    if outcome:
        log.info('Test: %s, CER %.2f%%', _figures(outcome), 100 * outcome.rates.cer)
        for corpus in outcome.corpora:
            log.info('      %s, %d utterances', _corpus_figures(corpus), corpus.n_utterances)
    log.info('Model:  %s (tested: %s)', config.checkpoint_dir, weights)
    log.info('Logs:   %s (tensorboard --logdir %s)', run_dir, config.logs_dir)
    log.info('Export: %s', exported or 'none, as ds_export_dir is not set')


def _write_hyper(config, alphabet, data_sets, run_dir, context, results):
    """hyper.json in the notebook's structure, null for what there isn't; and hyper.js."""
    finished = datetime.datetime.now(datetime.timezone.utc)
    started = datetime.datetime.fromisoformat(context['time_started'])
    names = ('last_train_wer', 'last_train_loss', 'last_validation_wer', 'last_validation_loss',
             'test_wer', 'test_loss', 'test_cer')
    content = {
        'context': {**context, 'time_finished': finished.isoformat()},
        'parameters': {
            **dataclasses.asdict(config), 'epochs': config.training_iters,
            'n_hidden_3': config.n_hidden_3, 'n_hidden_6': alphabet.n_character,
            'n_character': alphabet.n_character,
            'total_batches_train': data_sets.stages[-1].total_batches,
            'total_batches_validation': data_sets.dev.total_batches,
            'total_batches_test': data_sets.test.total_batches,
            'data_set': {'name': config.importer}},
        'results': {'duration': (finished - started).total_seconds(),
                    **{name: results.get(name) for name in names}}}
    try:
        files.write_file(os.path.join(run_dir, 'hyper.json'), run_log.strict_json(content))
        run_log.merge_logs(config.logs_dir)
    except OSError as error:  # must not hide what ended the run
        log.warning('hyper.json cannot be written to %s: %s', run_dir, error.strerror)
    website.maybe_publish(config.logs_dir)


def main(arguments):
    """The command line; returns the exit status."""
    started = datetime.datetime.now(datetime.timezone.utc)
    run_log.set_up_logging()
    stop = StopRequest()
    try:
        if arguments == ['--help']:
            print(settings.help_text())
            return 0
        if arguments not in ([], ['--show-config']):
            raise errors.ConfigError('arguments must be none, --help or --show-config, got %s; '
                                       'settings are ds_ variables of the environment'
                                       % ' '.join(arguments))
        config, sources = settings.load()
        config = settings.with_towers(config, len(gpu.get_available_gpus()))
        if arguments:
            print(settings.effective_text(config, sources))
            return 0
        with stop.installed():
            _run(config, stop, started)
    except Interrupted as interruption:
        print('interrupted: %s' % interruption, file=sys.stderr)
        return 130
    except (errors.ConfigError, errors.AlphabetError, errors.DataError,
            errors.CheckpointError, TrainingError) as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    return 0


def _run(config, stop, started):
    alphabet = text.load_alphabet(config.alphabet)
    data_sets = util.importers.read_data_sets(config, alphabet)
    _check_before_training(config, data_sets)
    run_dir, results = run_folder.make_run_dir(config.logs_dir), {}
    git_hash, git_branch = run_folder.git_revision()
    context = {'time_started': started.isoformat(), 'git_hash': git_hash, 'git_branch': git_branch}
    try:
        train_and_test(config, alphabet, data_sets, stop, run_dir, results)
    finally:  # a run that ends early still says what it was
        _write_hyper(config, alphabet, data_sets, run_dir, context, results)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
