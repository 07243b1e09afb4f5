"""Trains a DeepSpeech network: `python DeepSpeech.py`, configured by ds_* variables.

This module builds the graph (network, loss, towers, optimizer, export) and runs it (training,
validation, test). It reproduces Mozilla's DeepSpeech.ipynb of November 2016, which comments call
"the notebook". Utterances come from util/importers by way of util/feeding, the settings from
util/config.py; checkpoints, reports and logs are in util/run.

In comments on shapes, B = batch_size, T = n_steps, F = n_features and R = T*B.
"""

from util.run import command

if __name__ == '__main__':
    command.begin(goes_on=True)  # before the imports, which take seconds

import argparse
import contextlib
import dataclasses
import datetime
import functools
import json
import logging
import math
import sys
from typing import Any, NamedTuple

import util
from util import config as settings, errors, gpu, importers, log as run_log, records
from util import text
from util.feeding import feeder
from util.graph import gradients, handles, layers, regularisation, rnn, run_state, serving
from util.graph.layers import Dropout, variable_on_cpu
from util.graph.variable_summaries import log_grads_and_vars, log_variable  # noqa: F401 - notebook's
from util.run import checkpoint_files, checkpoints, decoding, reports, run_folder, schedule
from util.run import description, export_folder, folder_lock, memory, network_size, preflight
from util.run import signals, summaries, warmup
from util.run.reports import (  # noqa: F401 - names of the notebook
    calculate_and_print_wer_report,
    collect_results,
    print_wer_report,
)
from util.tf1 import tf

log = logging.getLogger('DeepSpeech')

COMPLETE = 'the training is complete; ds_restore_checkpoint=1 tests and exports'
MAX_LEFT_OUT = 10  # batches in a row that are left out before `ds_nonfinite=skip` ends a run
MAX_SEARCHES = 32  # limit of the beam searches of a batch that run at the same time


# The network


def BiRNN(batch_x, seq_length, *, config, n_character, dropout=None, is_training=True):
    """Builds the network: three dense layers, a recurrent layer in both directions, a dense layer,
    the output layer.

    Args:
      batch_x: float32 [B, T, F], windows of MFCC; F = n_input + 2*n_input*n_context.
      seq_length: int32 [B], time steps of each utterance.
      config: Config; the geometry, stddevs, relu_clip and dropout rates.
      n_character: number of classes, including the blank.
      dropout: Dropout, or None for a graph without dropout.
      is_training: whether gradients will be needed; if not, nothing is kept for them.
    Returns:
      float32 [T, B, n_character]: logits, time-major.
    Raises:
      ValueError: batch_x is not rank 3.
    Source: BiRNN of the notebook; Hannun et al., arXiv:1412.5567, equations 1 to 5. Layer 4 has
      LSTM cells as in the notebook, or is that of the paper (`ds_rnn=vanilla`).
    """
    if batch_x.shape.rank != 3:
        raise ValueError('batch_x must be [batch, n_steps, n_features], got %s' % batch_x.shape)
    batch_size = tf.shape(batch_x)[0]
    layer = tf.reshape(tf.transpose(batch_x, [1, 0, 2]), [-1, config.n_features])  # [R, F]
    for index, units in ((1, config.n_hidden_1), (2, config.n_hidden_2), (3, config.n_hidden_3)):
        layer = layers.dense(layer, index, units, config, dropout)
    layer = tf.reshape(layer, [-1, batch_size, config.n_hidden_3])  # [T, B, n_hidden_3]
    layer = _recurrent(layer, seq_length, config, is_training)
    layer = tf.reshape(layer, [-1, config.n_hidden_4])  # [R, n_hidden_4]
    layer = layers.drop(layer, config.dropout_of_layer(4), 4, dropout)
    layer = layers.dense(layer, 5, config.n_hidden_5, config, dropout)
    weights, bias = layers.layer_variables(6, config.n_hidden_5, n_character, config)
    logits = tf.nn.bias_add(tf.matmul(layer, weights), bias)
    return tf.reshape(logits, [-1, batch_size, n_character])


def _recurrent(x, seq_length, config, is_training):
    """Builds layer 4: float32 [T, B, n_hidden_3] -> [T, B, n_hidden_4], which is 0 past the end of
    each utterance."""
    if config.rnn == 'vanilla':
        weights, bias = layers.layer_variables(4, config.n_hidden_3, config.n_cell_dim, config)
        shape, initializer = [config.n_cell_dim] * 2, layers.recurrent_initializer(config)
        recurrent = [variable_on_cpu('r4_' + each, shape, initializer) for each in ('fw', 'bw')]
        return rnn.bidirectional_relu(
            x, seq_length, weights, bias, *recurrent, config.relu_clip, is_training
        )
    cells = [_lstm_variables(direction, config) for direction in ('fw', 'bw')]
    implementation = 'own' if config.rnn_impl == 'auto' else config.rnn_impl
    return rnn.bidirectional_lstm(x, seq_length, *cells, implementation, is_training)


def _lstm_variables(direction, config):
    """Creates (kernel, bias) of one direction, float32 [n_hidden_3 + n_cell_dim, 4*n_cell_dim] and
    [4*n_cell_dim].

    Names and layout are those of TensorFlow 1.x. The initial values are those of TensorFlow 0.12,
    which the notebook used: the kernel is uniform with variance 1/n_in, unless `recurrent_init`
    says otherwise, and the bias is 0.
    """
    shape = [config.n_hidden_3 + config.n_cell_dim, 4 * config.n_cell_dim]
    with tf.variable_scope('bidirectional_rnn/%s/basic_lstm_cell' % direction):
        kernel = variable_on_cpu('kernel', shape, layers.kernel_initializer(config))
        return kernel, variable_on_cpu('bias', shape[1:], tf.zeros_initializer())


# Loss and decoding


def calculate_accuracy_and_loss(batch, count, *, config, n_character, dropout=None):
    """Runs the network on a batch and compares its output with the transcripts.

    What the notebook called accuracy is an error rate: the mean over utterances of the edit
    distance between best path and labels, divided by the number of labels.

    Args:
      batch: records.Batch with windows.
      count: int32 scalar, number of its utterances that count, see `tower_batch`.
      config, n_character, dropout: as in `BiRNN`.
    Returns:
      handles.TowerResult.
    Source: the notebook's function of that name; Graves et al., ICML 2006, for CTC.
    """
    labels = text.ctc_label_dense_to_sparse(batch.labels, batch.label_len)
    logits = BiRNN(
        batch.features, batch.seq_len, config=config, n_character=n_character, dropout=dropout
    )
    total_loss = _ctc_loss(logits, labels, batch.seq_len, config.use_warpctc)
    decoded = decode(logits, batch.seq_len, config.beam_width)
    distance = tf.edit_distance(tf.cast(decoded, tf.int32), labels)
    return handles.TowerResult(
        total_loss=total_loss,
        avg_loss=tf.reduce_mean(total_loss),
        distance=distance,
        label_error_rate=tf.reduce_mean(distance),
        decoded=decoded,
        labels=labels,
        logits=logits,
        seq_len=batch.seq_len,
        count=count,
    )


def _ctc_loss(logits, labels, seq_len, accelerated):
    """Computes the CTC loss of each utterance; the blank is the last class.

    Args:
      logits: float32 [T, B, n_character].
      labels: int32 sparse [B, U].
      seq_len: int32 [B].
      accelerated: whether to use the operation CTCLossV2, which has a cuDNN kernel.
    Returns:
      float32 [B].
    """
    if not accelerated:
        return tf.nn.ctc_loss(labels, logits, seq_len)
    # CTCLossV2 expects the blank as the first class.
    logits = tf.concat([logits[:, :, -1:], logits[:, :, :-1]], axis=2)
    loss, _ = tf.raw_ops.CTCLossV2(
        inputs=logits,
        labels_indices=labels.indices,
        labels_values=labels.values + 1,
        sequence_length=seq_len,
    )
    return loss


def decode(logits, seq_len, beam_width):
    """Finds the best path of each utterance by `beam_search`; int64 sparse [B, .]."""
    return beam_search(logits, seq_len, beam_width)[0]


def beam_search(logits, seq_len, beam_width):
    """Finds the best path of each utterance by a beam search.

    Each utterance is searched by itself, so that all cores have work; the operation searches a
    batch on one. merge_repeated stays off: on, it would merge "all" to "al" a second time.

    Args:
      logits: float32 [T, B, n_character].
      seq_len: int32 [B], time steps.
      beam_width: number of paths to follow.
    Returns:
      (int64 sparse [B, .], the labels of the paths; float32 [B], the natural logarithms of their
      probabilities).
    """
    seq_len = tf.convert_to_tensor(seq_len)

    def search(b, labels, lengths, scores):
        decoded, score = tf.nn.ctc_beam_search_decoder(
            logits[:, b : b + 1],
            seq_len[b : b + 1],
            beam_width=beam_width,
            top_paths=1,
            merge_repeated=False,
        )
        path = decoded[0].values
        written = (
            labels.write(b, path),
            lengths.write(b, tf.size(path)),
            scores.write(b, score[0, 0]),
        )
        return b + 1, *written

    with tf.device('/cpu:0'):  # there is no beam search elsewhere
        batch_size = tf.shape(seq_len)[0]
        arrays = (
            tf.TensorArray(tf.int64, batch_size, infer_shape=False, element_shape=[None]),
            tf.TensorArray(tf.int32, batch_size, element_shape=[]),
            tf.TensorArray(tf.float32, batch_size, element_shape=[]),
        )
        _, labels, lengths, scores = tf.while_loop(
            lambda b, *_: b < batch_size, search, (0, *arrays), parallel_iterations=MAX_SEARCHES
        )
        lengths = lengths.stack()
        shape = tf.cast(tf.stack([batch_size, tf.reduce_max(lengths)]), tf.int64)
        indices = tf.where(tf.sequence_mask(lengths))
        return tf.SparseTensor(indices, labels.concat(), shape), scores.stack()


# Towers and optimizer


def create_optimizer(config, learning_rate=None):
    """Returns the Adam optimizer, as in the notebook (Kingma and Ba, arXiv:1412.6980), with
    `weight_decay` if it is set.

    Args:
      config: Config.
      learning_rate: float32 scalar; None: that of `config`.
    """
    if learning_rate is None:
        learning_rate = config.learning_rate
    options = {'beta1': config.beta1, 'beta2': config.beta2, 'epsilon': config.epsilon}
    if config.weight_decay:
        return regularisation.DecayingAdam(config.weight_decay, learning_rate, **options)
    return tf.train.AdamOptimizer(learning_rate=learning_rate, **options)


def tower_devices(config):
    """Returns the device of each tower: the GPUs, or logical CPU devices if there are none."""
    gpus = gpu.get_available_gpus()
    return (gpus or ['/cpu:%d' % i for i in range(config.towers)])[: config.towers]


def get_tower_results(batch, devices, *, config, n_character, dropout=None, optimizer=None):
    """Divides a step's batch among the towers and runs the network in each.

    Args:
      batch: records.Batch of frames with margins, for all towers.
      devices: list of the device of each tower.
      config, n_character, dropout: as in `BiRNN`.
      optimizer: optimizer that computes the gradients; None: no gradients.
    Returns:
      handles.TowerResults.
    Source: the notebook's function of that name, which took the mean of the towers' means.
    """
    results, tower_gradients = [], []
    for tower, device in enumerate(devices):
        with (
            tf.device(device),
            tf.name_scope('tower_%d' % tower),
            tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE),
        ):
            share, count = tower_batch(batch, tower, len(devices), config.n_context)
            own = dropout and dropout._replace(seed=dropout.seed + [0, tower << 8])
            results.append(
                calculate_accuracy_and_loss(
                    share, count, config=config, n_character=n_character, dropout=own
                )
            )
            if optimizer is not None:
                loss = _training_loss(results[-1], config)
                tower_gradients.append(optimizer.compute_gradients(loss))
    weights = tower_weights(results)
    return handles.TowerResults(
        results,
        tower_gradients,
        label_error_rate=_weighted([result.label_error_rate for result in results], weights),
        avg_loss=_weighted([result.avg_loss for result in results], weights),
    )


def _training_loss(tower, config):
    """Returns the loss of a tower, float32 scalar, whose gradients train the network."""
    if config.label_smoothing:
        return regularisation.smoothed_loss(tower, config.label_smoothing)
    return tower.avg_loss


def tower_batch(batch, tower, n_towers, n_context):
    """Cuts the share of one tower out of a step's batch.

    The utterances are divided in order and as evenly as possible. A tower for which none is left
    gets the first one, because its operations need an input, but counts with the weight 0.

    Args:
      batch: records.Batch of frames with margins, for all towers.
      tower: index of the tower.
      n_towers: number of towers.
      n_context: frames of context on either side.
    Returns:
      (records.Batch with windows, its padding cut to its own longest utterance; int32 scalar, the
      number of utterances that count).
    """
    count = tf.shape(batch.seq_len)[0]
    if n_towers == 1:
        return cut_windows(batch, n_context), count
    base, extra = count // n_towers, count % n_towers
    size = base + tf.cast(tower < extra, tf.int32)
    start = tf.where(size > 0, tower * base + tf.minimum(tower, extra), 0)
    share = records.Batch(*[part[start : start + tf.maximum(size, 1)] for part in batch])
    share = share._replace(
        features=share.features[:, : tf.reduce_max(share.seq_len) + 2 * n_context],
        labels=share.labels[:, : tf.reduce_max(share.label_len)],
    )
    return cut_windows(share, n_context), size


def cut_windows(batch, n_context):
    """Cuts the context windows of a batch of frames with margins.

    The queue holds frames, as the windows are 2*n_context + 1 times larger.

    Args:
      batch: records.Batch with features float32 [B, n_context + T + n_context, n_input].
      n_context: frames of context on either side.
    Returns:
      records.Batch with features float32 [B, T, F], 0 past seq_len.
    """
    n_steps = tf.shape(batch.features)[1] - 2 * n_context
    windows = tf.concat(
        [batch.features[:, i : i + n_steps] for i in range(2 * n_context + 1)], axis=2
    )
    mask = tf.sequence_mask(batch.seq_len, n_steps, dtype=tf.float32)
    return batch._replace(features=windows * mask[:, :, None])


def tower_weights(results):
    """Returns the share of each tower in the utterances of a step: float32 scalars that add up
    to 1."""
    counts = tf.cast(tf.stack([result.count for result in results]), tf.float32)
    return tf.unstack(counts / tf.reduce_sum(counts), len(results))


def _weighted(values, weights):
    """Returns the weighted sum of the towers' values, float32 tensors of one shape; the weights are
    float32 scalars.

    The value of a tower with the weight 0 does not count, even if it is not finite.
    """
    return tf.add_n(
        [tf.math.multiply_no_nan(value, weight) for value, weight in zip(values, weights)]
    )


def average_gradients(tower_gradients, weights=None):
    """Averages the towers' gradients, variable by variable.

    Args:
      tower_gradients: for each tower a list of (gradient, variable), each gradient float32 of its
        variable's shape.
      weights: list of float32 scalars, the share of each tower; None: all are equal, as in the
        notebook.
    Returns:
      List of (gradient, variable).
    """
    if len(tower_gradients) == 1:
        return tower_gradients[0]
    weights = weights or [1.0 / len(tower_gradients)] * len(tower_gradients)
    return [
        (_weighted([gradient for gradient, _ in pairs], weights), pairs[0][1])
        for pairs in zip(*tower_gradients)
    ]


def apply_gradients(optimizer, average_grads, global_step=None):
    """Returns the operation that applies (gradient, variable) pairs and counts the update."""
    return optimizer.apply_gradients(average_grads, global_step=global_step)


# The graphs


def build_model(config, alphabet, is_training, data_sets=None):
    """Builds the graph that trains and evaluates, or the one that only runs the network.

    Args:
      config: Config.
      alphabet: text.Alphabet.
      is_training: True builds a graph with queues, loss, gradients and updates, in which the
        placeholders `selector` and `is_training` choose a data set and switch dropout. False
        builds a graph for an export, without any of these and without random operations.
      data_sets: DataSets, needed for training only.
    Returns:
      handles.Model or handles.InferenceModel; the weights of both have the same names and shapes.
    Source: the notebook's single graph, with its queue selector and its dropout placeholder.
    """
    with tf.Graph().as_default() as graph, tf.device('/cpu:0'):
        if is_training:
            return _training_model(graph, config, alphabet, data_sets)
        return _inference_model(graph, config, alphabet)


def _training_model(graph, config, alphabet, data_sets):
    """Builds the graph that trains and evaluates; returns its handles.Model."""
    # The order of these lines matters: an initial value depends on the seed and on the number of
    # operations that were created before.
    tf.set_random_seed(config.random_seed)
    global_step = tf.train.get_or_create_global_step()
    selector = tf.placeholder_with_default(0, [], 'selector')
    n_utterances = tf.placeholder(tf.int32, [], 'n_utterances')
    is_training = tf.placeholder_with_default(False, [], 'is_training')
    learning_rate = tf.placeholder_with_default(config.learning_rate, [], 'learning_rate')
    optimizer = create_optimizer(config, learning_rate)
    queues = feeder.make_queues(data_sets)
    batch = feeder.next_batch(queues, selector, n_utterances)
    n_batches = gradients.batch_counter() if config.accumulates else None
    dropout = Dropout(is_training, _dropout_seed(config, global_step, n_batches))
    towers, tower_gradients, _, avg_loss = get_tower_results(
        batch,
        tower_devices(config),
        config=config,
        n_character=alphabet.n_character,
        dropout=dropout,
        optimizer=optimizer,
    )
    averaged = average_gradients(tower_gradients, tower_weights(towers))
    if config.accumulates:
        update, sums = _accumulating_update(
            optimizer, averaged, batch, avg_loss, n_batches, global_step, config
        )
    else:
        update, sums = _update(optimizer, averaged, avg_loss, global_step, config), None
    of_the_run = checkpoint_files.of_the_run
    trained = [
        v
        for v in tf.global_variables()
        if v.dtype.base_dtype == tf.float32 and not of_the_run(v.op.name)
    ]
    run_state.description_variable(description.to_json(description.describe(config, alphabet)))
    return handles.Model(
        graph=graph,
        queues=queues,
        batch=batch,
        selector=selector,
        n_utterances=n_utterances,
        is_training=is_training,
        learning_rate=learning_rate,
        shapes=_shapes(batch, towers),
        towers=towers,
        weights=tf.trainable_variables(),
        avg_loss=avg_loss,
        finite_weights=gradients.all_finite(trained),
        update=update,
        accumulation=sums,
        global_step=global_step,
        state=run_state.state_variables(schedule.INITIAL_STATE, schedule.VARIABLE_NAMES),
        initializer=tf.global_variables_initializer(),
        savers=_savers(config, global_step),
    )


def _dropout_seed(config, global_step, n_batches):
    """Computes the dropout seed, int64 [2], which differs for every update and for every batch of
    an update.

    Args:
      config: Config.
      global_step, n_batches: int64 scalars; n_batches is None if an update is one batch.
    """
    seed = tf.constant(config.random_seed, tf.int64)
    if n_batches is not None:
        seed += n_batches * 2**32
    return tf.stack([seed, global_step * 2**16])


def _update(optimizer, pairs, loss, global_step, config, last=None):
    """Builds the update of the variables, which is left out if the loss or the gradients are not
    finite.

    Args:
      pairs: list of (gradient, variable), each gradient float32 of its variable's shape.
      loss: float32 or float64 scalar, the loss that the update reports.
      last: function that returns an operation to run after the update; None: no such operation.
    Returns:
      handles.Update.
    """
    finite = gradients.finite(pairs, loss)
    pairs = gradients.clip(pairs, config)
    if config.log_variables:
        log_grads_and_vars(pairs)
    update = gradients.applied_if(finite, lambda: apply_gradients(optimizer, pairs, global_step))
    with tf.control_dependencies([update, loss]):
        done = [update, loss] if last is None else [last()]
    with tf.control_dependencies(done):
        number = global_step.read_value()
    return handles.Update(number, loss, tf.summary.merge_all(), finite)


def _accumulating_update(optimizer, pairs, batch, loss, n_batches, global_step, config):
    """Builds the update of the variables from the sums of several batches.

    Args:
      pairs: list of (gradient, variable) of the step's batch, each gradient float32 of its
        variable's shape.
      batch: records.Batch of all towers.
      loss: float32 scalar, mean CTC loss of the batch.
      n_batches: int64 scalar variable, number of batches in the sums.
    Returns:
      (handles.Update, handles.Accumulation).
    """
    sums = gradients.Accumulators([variable for _, variable in pairs], n_batches)
    weight = tf.placeholder_with_default(1.0, [], 'weight')
    finite, norms = gradients.finite(pairs, loss), gradients.norm_and_scale(batch, config)
    add = gradients.applied_if(finite, lambda: sums.add(pairs, loss, weight, *norms))
    reset = sums.reset()
    mean = sums.mean()
    # The reset comes last, as the mean and its loss are read from the sums.
    update = _update(optimizer, mean.gradients, mean.loss, global_step, config, last=sums.reset)
    return update, handles.Accumulation(add, weight, n_batches, reset, finite)


def _shapes(batch, towers):
    """Returns the handles.Shapes of a records.Batch and of the towers' logits, int32 tensors."""
    return handles.Shapes(
        tf.shape(batch.features),
        batch.seq_len,
        tf.shape(batch.labels),
        batch.label_len,
        [tf.shape(tower.logits) for tower in towers],
    )


def _inference_model(graph, config, alphabet):
    """Builds the graph of an exported model: the network behind each kind of input.

    The beam width is that of `config`.
    """

    def recognise(batch):
        getter = _without_random_initial_values
        with tf.variable_scope('', reuse=tf.AUTO_REUSE, custom_getter=getter):
            logits = BiRNN(
                batch.features,
                batch.seq_len,
                config=config,
                n_character=alphabet.n_character,
                is_training=False,
            )
        paths, log_probabilities = beam_search(logits, batch.seq_len, config.beam_width)
        labels = tf.sparse_tensor_to_dense(paths, default_value=-1)
        return handles.Recognised(logits, labels, log_probabilities)

    def recognise_frames(batch):
        return recognise(cut_windows(batch, config.n_context))

    inputs, recognised, of_features = serving.features_signatures(config, alphabet, recognise)
    of_audio = serving.audio_signatures(config, alphabet, recognise_frames)
    return handles.InferenceModel(graph, *inputs, recognised, {**of_features, **of_audio})


def _without_random_initial_values(getter, name, **options):
    """Creates a variable that is 0 until the weights are loaded."""
    return getter(name, **dict(options, initializer=tf.zeros_initializer()))


# Savers and export


def _savers(config, global_step):
    """Returns the handles.Savers of the current graph; the one for going back leaves out the state
    of the run."""

    def saver(n_kept):
        return tf.train.Saver(max_to_keep=n_kept, save_relative_paths=True)

    newest, best = saver(max(checkpoints.KEPT, config.average_checkpoints)), saver(1)
    weights = averaged = None
    if config.go_back or config.num_tries:
        of_the_run = checkpoint_files.of_the_run
        weights = tf.train.Saver(
            [v for v in tf.global_variables() if v is not global_step and not of_the_run(v.op.name)]
        )
    if config.average_checkpoints:
        averaged = saver(1)
    return handles.Savers(newest, best, weights, averaged)


def export(config, alphabet, weights, model_description=None, example=None):
    """Exports a model for TensorFlow Serving.

    The version is the next free whole number in `config.export_dir`. The model is written
    under another name and renamed once it is complete; only then `remove_export` removes the
    versions before it. util/README.md has a table of the signatures.

    Args:
      config: Config.
      alphabet: text.Alphabet.
      weights: {name of the variable: value}.
      model_description: dict that JSON can hold, for assets.extra/model.json and for a constant of
        the graph; None: that of description.describe.
      example: float [n], samples at `config.sample_rate` in the range of 16-bit integers, for the
        requests with which a server warms up; None: a second of silence.
    Returns:
      Path of the exported version.
    Raises:
      TrainingError: the model cannot be written, or a weight is not finite.
    Source: the notebook's export, which had no lengths and padded with 0, the space's label.
    """
    export_folder.check_finite(config.export_dir, weights)
    if config.rnn_impl == 'cudnn':  # the exported model runs everywhere
        config = dataclasses.replace(config, rnn_impl='own')
    config = dataclasses.replace(config, beam_width=config.export_beam_width)
    model_description = model_description or description.describe(config, alphabet)
    try:
        with export_folder.new_version(config.export_dir, config.remove_export) as version:
            _write_saved_model(version.unfinished, config, alphabet, weights, model_description)
            requests = warmup.requests(config, example)
            export_folder.write_extras(version.unfinished, model_description, requests)
        return version.path
    except (tf.errors.OpError, OSError) as error:
        raise errors.TrainingError(
            'the model cannot be exported to %s: %s' % (config.export_dir, errors.first_line(error))
        ) from None


def _write_saved_model(path, config, alphabet, weights, model_description):
    """Writes the SavedModel of an inference graph with these weights."""
    model = build_model(config, alphabet, is_training=False)
    with model.graph.as_default(), tf.device('/cpu:0'), tf.Session() as session:
        tf.constant(json.dumps(model_description), name='model_description')
        values = {v.initial_value: weights[v.op.name] for v in tf.global_variables()}
        session.run(tf.global_variables_initializer(), values)
        signatures = {
            name: tf.saved_model.predict_signature_def(*ends)
            for name, ends in model.signatures.items()
        }
        builder = tf.saved_model.Builder(path)
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.SERVING], signatures, clear_devices=True
        )
        builder.save()


# The run


class Run(NamedTuple):
    """The objects of a run, which its functions share."""

    config: settings.Config
    alphabet: text.Alphabet
    data_sets: Any  # data_sets.DataSets
    model: handles.Model
    events: summaries.EventFiles
    record: run_folder.RunRecord
    stop: signals.StopRequest
    hook: Any  # as in `main`
    language: Any  # language.decoder.Decoder for a second search of the test, or None
    session: Any  # tf.Session
    checkpoints: checkpoints.Checkpoints

    def learning_rate(self, state, number):
        """Returns the learning rate of the next step.

        Args:
          number: number of the update that it belongs to, from 1.
        """
        n_steps = self.data_sets.stages[state.stage].total_batches
        rate = schedule.learning_rate(self.config, state, n_steps)
        return rate * schedule.warmup_factor(self.config, number)

    def global_step(self):
        """Returns the number of updates made so far."""
        return int(self.session.run(self.model.global_step))


def train(run: Run, state: schedule.State) -> schedule.State:
    """Trains to the last epoch of the last stage.

    An epoch consists of its steps and, if they are due, a validation and a checkpoint.

    Args:
      run: Run.
      state: schedule.State before the training.
    Returns:
      schedule.State after the training.
    Raises:
      TrainingError: a loss is not finite, or a checkpoint cannot be written.
      DataError: no utterance could be read; as `train_epoch` and `validate`.
      Interrupted: the user asked the run to stop, and a checkpoint was saved.
    """
    config = run.config
    with _feed_dev(run) as dev_feed:
        state = _on_dev_set(run, state, dev_feed)
        if state.validated < state.epoch:  # the earlier run was interrupted during validation
            state = _end_epoch(run, state, reports.earlier_outcome(state), dev_feed)
        for stage in range(state.stage, len(config.stages)):
            if stage > state.stage:
                state = _begin_stage(run, state)
            with _feed_stage(run, state) as feed:
                while not schedule.stage_done(config, state):
                    state, train_outcome = train_epoch(run, state, feed)
                    state = _end_epoch(run, state, train_outcome, dev_feed)
            reports.log_stopped(config, state)
        if config.average_checkpoints:
            average(run, state, dev_feed)
    return state


def _end_epoch(run, state, train_outcome, dev_feed):
    """Does what is due after the steps of an epoch, and logs its line; returns the State.

    Args:
      train_outcome: reports.Outcome of the steps; None if it is unknown.
    """
    run.record.add('last_train', train_outcome, state.epoch)
    learning_rate = run.learning_rate(state, run.global_step() + 1)
    state, dev_outcome = validate(run, state, dev_feed)
    if schedule.checkpoint_due(run.config, state) and not schedule.is_best(state):
        run.checkpoints.save(state)  # the best was saved by the validation
    if train_outcome:
        _log_epoch(run, state, train_outcome, dev_outcome, learning_rate)
    return state


def _on_dev_set(run, state, feed):
    """Returns the State for the dev set of this run; measures the best weights on it if they were
    chosen by another one."""
    config, data_set = run.config, run.data_sets.dev
    if schedule.complete(config, state) and not config.average_checkpoints:
        return state  # nothing is compared any more

    def measure():
        if not feed or not len(data_set):
            return math.nan, math.nan
        outcome = run_inference(run, data_set, feed)
        return outcome.loss, schedule.rate_of(config, outcome.rates)

    dev_set = schedule.dev_checksum(config, data_set.examples)
    return run.checkpoints.on_dev_set(state, dev_set, measure)


def average(run: Run, state: schedule.State, feed) -> None:
    """Evaluates the mean of the newest checkpoints on the dev set, and keeps it for the test if it
    is not worse than the best weights.

    Args:
      run: Run.
      state: schedule.State after the training.
      feed: Feeder of the dev set.
    Raises:
      TrainingError: the mean cannot be saved.
      Interrupted: the user asked the run to stop.
    """
    run.stop.outcome = COMPLETE
    paths = run.checkpoints.load_average(state)
    if not paths:
        log.warning('ds_average_checkpoints: there is no checkpoint of this run')
        return
    outcome = run_inference(run, run.data_sets.dev, feed)
    rate = schedule.rate_of(run.config, outcome.rates)
    kept = schedule.is_better(state, outcome.loss, rate, or_equal=True)
    reports.log_average(run.config, state, len(paths), outcome.loss, rate, kept)
    if kept:
        run.checkpoints.keep_average(state, outcome.loss, rate)
    else:
        run.checkpoints.drop_average()


def train_epoch(run: Run, state: schedule.State, feed) -> tuple[schedule.State, reports.Outcome]:
    """Trains on the rest of an epoch.

    Args:
      run, state: as in `train`.
      feed: Feeder or LinkedFeeder of the stage's data set.
    Returns:
      (schedule.State after the epoch, reports.Outcome). The loss is the mean over all utterances
      of the epoch, including those before an interruption; the error rates cover only those after
      it.
    Raises:
      DataError: no utterance of the epoch could be read.
      TrainingError, Interrupted: as `train`.
    """
    config, data_set = run.config, run.data_sets.stages[state.stage]
    log.info('Epoch %d of %d started', state.epoch + 1, schedule.n_epochs(config, state))
    query_report = schedule.due(config.display_step, state.epoch + 1, config, state)
    state = schedule.epoch_begun(state)._replace(order=data_set.order_checksum(state.epoch))
    number, tally, left_out = run.global_step(), reports.Tally(feed), state.left_out
    progress = run_log.Progress('train', data_set.total_batches, already=state.epoch_step)
    with (
        run.checkpoints.saved_on_shortage(lambda: state),
        contextlib.closing(progress),
        memory.shortage_named('train'),  # of the threads that read and decode
        decoding.Decoding(run.session, run.model.towers, run.alphabet) as decoded,
    ):
        for step in feed.all_steps():
            run.hook('step', state)
            if run.stop.wanted:
                progress.close()
                raise run.checkpoints.interruption(state)
            with memory.shortage_named('train', step):
                batch, update, trace, fault = train_step(run, state, step, number + 1, query_report)
            if batch and batch.shapes:
                progress.close()
                reports.log_shapes('train', step, batch.shapes)
            tally.add(step)
            if fault:
                progress.close()
                state = _leave_out(run, state, step, fault)
            else:
                if batch:
                    run.checkpoints.trust()
                    if query_report:
                        decoded.add(batch.towers)
                state = schedule.after_step(state, step, float(batch.loss) if batch else 0.0)
            if update:
                number = int(update.number)
                _log_update(run, state, update, trace, progress)
            if state.epoch_done:
                progress.update(step.index + 1, schedule.epoch_mean(state))
    if not state.epoch_done and state.left_out == left_out:
        raise errors.DataError('no usable training utterance is left')
    outcome = tally.outcome(decoded.results, schedule.epoch_mean(state), by_corpus=False)
    reports.report('Training', outcome, config.report_count, reports.dropout_words(config))
    return schedule.after_epoch(state), outcome


def _leave_out(run, state, step, fault):
    """Returns the State after a step that was left out, as it was not finite.

    Raises:
      TrainingError: `ds_nonfinite` says so, or there were too many in a row; as
        Checkpoints.failure.
    """
    message, before = reports.not_finite(fault.words, state, step), state
    state = schedule.after_left_out(state, step)
    if run.config.nonfinite == 'stop' or state.left_out_in_row >= MAX_LEFT_OUT:
        unchanged = fault.finite_loss and not run.model.accumulation
        raise run.checkpoints.failure(message, before if unchanged else None)
    log.warning(
        '%s; left out, %d in a row, %d in all', message, state.left_out_in_row, state.left_out
    )
    return state


def train_step(run, state, step, number, query_report):
    """Runs one batch, and the update if the step ends one.

    Args:
      run: Run.
      state: schedule.State before the step.
      step: records.Step; if it has no utterances, only the update is run.
      number: number that the next update will have, from 1.
      query_report: whether to fetch the towers' results for the WER report.
    Returns:
      handles.StepResult. A batch, or an update, whose loss or gradients are not finite was left
      out: nothing has changed.
    """
    model, config = run.model, run.config
    sums = model.accumulation
    rate = {model.learning_rate: run.learning_rate(state, number)}
    update_fetches = _update_fetches(model.update, number, config.summary_steps)
    batch = update = trace = options = fault = None
    if config.do_fulltrace and step.examples and step.ends_update:
        options, trace = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    if step.examples:
        values, batch_fetches, plain = _batch_to_train(run, step, query_report)
        if sums:
            values[sums.weight] = step.weight
            fetches = (batch_fetches, sums.finite, sums.add)
            batch, finite, _ = run.session.run(fetches, values, options, trace)
            fault = reports.fault(finite, batch.loss)
        else:
            values.update(rate)
            batch, update = run.session.run((batch_fetches, update_fetches), values, options, trace)
        if plain:
            batch = batch._replace(towers=plain)
    if sums and step.ends_update:
        in_sums = (step.examples and not fault) or run.session.run(sums.n_batches)
        update = run.session.run(update_fetches, rate) if in_sums else None
    if update and not update.finite:
        fault, update = fault or reports.fault(update.finite, update.loss), None
    return handles.StepResult(batch, update, trace, fault)


def _batch_to_train(run, step, query_report):
    """Returns the values to feed for a batch and the tensors to fetch; and, if a report without
    dropout is due, what the towers make of the batch before the step, else None."""
    model = run.model
    fetches, values, plain = _batch_fetches(run, query_report), _batch_feed(model, step), None
    if query_report and not run.config.report_dropout:
        plain, same = run.session.run((fetches.towers, model.batch), values)
        values.update(zip(model.batch, same))
        fetches = fetches._replace(towers=())
    return {**values, model.is_training: True}, fetches, plain


def _batch_feed(model, step):
    """Returns the values to feed so that the graph takes the batch of a records.Step."""
    return {model.selector: step.queue_index, model.n_utterances: len(step.examples)}


def _batch_fetches(run, query_report):
    """Returns the tensors to fetch for a batch, as a handles.BatchResult."""
    towers = decoding.undecoded(run.model.towers) if query_report else ()
    shapes = run.model.shapes if run.config.print_batch_shapes else ()
    return handles.BatchResult(run.model.avg_loss, towers, shapes)


def _update_fetches(update, number, summary_steps):
    """Returns the tensors to fetch for an update, as a handles.UpdateResult."""
    due = summary_steps and number % summary_steps == 0 and update.summaries is not None
    summary = update.summaries if due else ()
    return handles.UpdateResult(update.number, update.loss, summary, update.finite)


def validate(
    run: Run, state: schedule.State, feed
) -> tuple[schedule.State, reports.Outcome | None]:
    """Evaluates the dev set if that is due, and keeps the weights if they are the best so far.

    Args:
      run, state: as in `train`.
      feed: Feeder of the dev set.
    Returns:
      (schedule.State after the validation, reports.Outcome or None if no validation was due).
    Raises:
      DataError: no utterance of the dev set can be read, but a setting needs the dev loss.
      TrainingError, Interrupted: as `train`.
    """
    config = run.config
    due = schedule.due(config.validation_step, state.epoch, config, state)
    if not due or not len(run.data_sets.dev):
        return state._replace(validated=state.epoch), None
    run.hook('validation', state)
    with run.checkpoints.saved_on_shortage(lambda: state):
        outcome = run_inference(run, run.data_sets.dev, feed)
    reports.report('Validation', outcome, config.report_count)
    needed_by = ', '.join(settings.uses_dev_loss(config))
    if not outcome.rates and needed_by:
        path = run.checkpoints.save(state, passing=True)
        raise errors.DataError(
            '%s: no utterance of the dev set could be read; saved %s' % (needed_by, path)
        )
    rate = schedule.rate_of(config, outcome.rates)
    after = schedule.after_validation(config, state, outcome.loss, rate)
    if schedule.is_best(after):
        run.checkpoints.save_best(after)
    else:
        reports.log_worse(config, after, outcome.loss, rate)
        went_back = config.go_back and run.checkpoints.go_back(after)
        if outcome.rates and not math.isfinite(outcome.loss) and not went_back:
            words = 'the dev loss is %f %s' % (outcome.loss, reports.place(state))
            raise run.checkpoints.failure(words)
    return after, outcome


def run_inference(run: Run, data_set, feed) -> reports.Outcome:
    """Makes one pass over the dev or test set, without training.

    Args:
      run: Run.
      data_set: the DataSet.
      feed: its Feeder.
    Returns:
      reports.Outcome; its loss is NaN if no utterance could be read.
    Raises:
      Interrupted: between two batches.
    """
    model, tally = run.model, reports.Tally(feed)
    fetches = _batch_fetches(run, query_report=True)
    progress = run_log.Progress(data_set.name, data_set.total_batches)
    language = run.language if data_set is run.data_sets.test else None
    with (
        contextlib.closing(progress),
        memory.shortage_named(data_set.name),
        decoding.Decoding(run.session, model.towers, run.alphabet, language) as decoded,
    ):
        for step in feed.epoch():
            run.stop.check()
            with memory.shortage_named(data_set.name, step):
                batch = run.session.run(fetches, _batch_feed(model, step))
            if batch.shapes:
                progress.close()
                reports.log_shapes(data_set.name, step, batch.shapes)
            decoded.add(batch.towers)
            losses = [float(tower.total_loss.sum()) for tower in batch.towers if tower.count]
            tally.add(step, sum(losses))
            progress.update(step.index + 1, tally.loss)
    return tally.outcome(decoded.results, language_texts=decoded.language_texts)


def test(run: Run) -> reports.Outcome | None:
    """Evaluates the test set; returns None if there is nothing to test."""
    if not len(run.data_sets.test):
        return None
    with _feed(run, run.data_sets.test, n_epochs=1) as feed:
        outcome = run_inference(run, run.data_sets.test, feed)
    if not outcome.rates:
        log.warning('no utterance of the test set could be read')
        return None
    reports.report('Test', outcome, run.config.report_count)
    run.events.write_outcome('test', run.global_step(), outcome)
    return outcome


def _from_a_good_checkpoint(parts):
    """Does `_train_test_export` in a session, and again in another one from an earlier checkpoint
    each time that the one it went on from turns out to be ruined.

    Args:
      parts: the fields of a Run but the last two.
    """
    config, _, data_sets, model, *_, stop, hook, _ = parts
    ruined = None
    while True:
        with tf.Session(config=decoding.session_config(config), graph=model.graph) as session:
            keeper = checkpoints.Checkpoints(config, session, model, data_sets, hook, stop, ruined)
            try:
                return _train_test_export(Run(*parts, session, keeper))
            except checkpoints.RuinedCheckpoint as error:
                ruined = error


def _train_test_export(run):
    """Restores, trains, tests and exports.

    Returns:
      (description of the tested weights, reports.Outcome of the test or None, path of the exported
      model or None).
    Raises:
      RuinedCheckpoint: the run must go on from an earlier checkpoint, in a new session, as queues
        cannot be fed again.
    """
    config, data_sets = run.config, run.data_sets
    state = run.checkpoints.restore()
    run.model.graph.finalize()  # an operation added in each step would be a leak
    run.stop.check()
    run.record.epochs_done = state.epoch
    if config.training_iters:
        with run.stop.deferred():
            state = train(run, state)
    if config.training_iters:
        run.stop.outcome = COMPLETE
    run.stop.check()
    tested = run.checkpoints.load_weights_to_test(state)
    log.info('Testing the weights %s', tested)
    run.stop.check()
    outcome = test(run)
    run.record.add('test', outcome)
    if not config.export_dir:
        return tested, outcome, None
    if outcome and not math.isfinite(outcome.loss):
        raise errors.TrainingError(
            'ds_export_dir: the weights %s are not exported, as the test loss is %f'
            % (tested, outcome.loss)
        )
    exported = export(
        config,
        run.alphabet,
        run.session.run({v.op.name: v for v in run.model.weights}),
        description.of_tested(config, run.alphabet, tested, outcome),
        warmup.example(data_sets, config),
    )
    return tested, outcome, exported


def train_and_test(config, stop, started, hook):
    """Does the whole run: restores, trains, tests and exports.

    Args:
      config: Config.
      stop: signals.StopRequest.
      started: datetime of the start.
      hook: as in `main`.
    Raises:
      DeepSpeechError: the run cannot go on.
      Interrupted: the user asked the run to stop.
    """
    alphabet = text.load_alphabet(config.alphabet)
    network_size.check(config, alphabet.n_character)
    language = decoding.second_search(config, alphabet)
    stop.check()
    data_sets = importers.read_data_sets(config, alphabet)
    stop.check()
    preflight.check(config, data_sets)
    record = run_folder.RunRecord(config, alphabet, data_sets, started)
    build, events = functools.partial(build_model, config, alphabet, True, data_sets), None
    try:
        # before TensorFlow has threads, which the process of a trial would lack
        memory.check(config, alphabet, data_sets, build, stop)
        if config.restore_checkpoint:
            checkpoint_files.check_newest(config, alphabet)
        with stop.deferred():  # TensorFlow turns an exception in its midst into another one
            model = build()
        stop.check()
        preflight.check_space(config, model)
        events = summaries.EventFiles(record.run_dir, model.graph, data_sets, config.summary_steps)
        parts = (config, alphabet, data_sets, model, events, record, stop, hook, language)
        tested, outcome, exported = _from_a_good_checkpoint(parts)
        stop.finish()
        record.ended = 'complete'
        reports.log_summary(config, data_sets, record.run_dir, tested, outcome, exported)
        events.close()  # after the result, which is to be seen even if this fails
    except BaseException as error:
        record.ended = run_folder.ended_by(error)
        if events:
            with contextlib.suppress(errors.LogError):
                events.close()
        raise
    finally:  # a run that ends early has a hyper.json, too
        record.write()


def main(arguments: list[str], hook=None) -> int:
    """Runs the command line.

    Args:
      arguments: the arguments after the program's name.
      hook: function for tests that inspect or stop a run, called as hook(point, state); `point` is
        'step' before each step, 'validation' before each validation and 'saved' after each
        checkpoint, and `state` is the schedule.State at that point. None: there is no hook.
    Returns:
      The exit status: 0, 1 after an error, 130 after an interruption.
    """
    started = datetime.datetime.now(datetime.timezone.utc)
    options = _parse(arguments)
    run_log.set_up_logging()
    stop = signals.StopRequest()
    try:
        config, sources = settings.load()
        config = settings.with_towers(config, len(gpu.get_available_gpus()))
        if options.show_config:
            print(settings.effective_text(config, sources))
            return 0
        with stop.installed(), folder_lock.held(config), summaries.quiet_writers():
            train_and_test(config, stop, started, hook or (lambda point, state: None))
    except errors.Interrupted as interruption:
        print('interrupted: %s' % interruption, file=sys.stderr)
        return signals.STATUS
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    return 0


def _parse(arguments):
    """Returns the options of the command line; ends the program for --help and --version."""
    parser = argparse.ArgumentParser(
        prog='DeepSpeech.py',
        usage='[ds_NAME=VALUE ...] python DeepSpeech.py [--help | --version | --show-config]',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description='Trains a DeepSpeech network, with nothing set on the digits corpus in '
        'data/digits.',
        epilog=settings.help_text(),
    )
    parser.add_argument('--version', action='version', version='DeepSpeech ' + util.__version__)
    parser.add_argument(
        '--show-config',
        action='store_true',
        help='print every setting and where its value came from',
    )
    return parser.parse_args(arguments)


def _feed(run, data_set, *arguments, **options):
    """Starts the feeder of a data set; the arguments are those of `feeder.feed` behind the
    session."""
    return feeder.feed(
        data_set, run.model.queues, run.session, *arguments, stop=run.stop, **options
    )


def _feed_dev(run):
    """Returns a context manager of the Feeder of the dev set, or of None without validation."""
    if not run.config.validation_step:
        return contextlib.nullcontext()
    return _feed(run, run.data_sets.dev)


def _feed_stage(run, state):
    """Returns a context manager of the feeder of the rest of a stage, or of None if it is done."""
    config, data_set = run.config, run.data_sets.stages[state.stage]
    if schedule.stage_done(config, state):
        return contextlib.nullcontext()
    reports.log_stage(config, state, len(data_set), len(run.data_sets.train))
    return _feed(
        run,
        data_set,
        state.epoch,
        state.epoch_step,
        schedule.last_epoch(config, state) - state.epoch,
    )


def _begin_stage(run, state):
    """Returns the schedule.State at the start of the next stage; restores the best weights if the
    stage before ended early, and begins the sums of an update anew, as a run that was stopped
    within an update and goes on with fewer epochs has something in them."""
    if run.model.accumulation:
        run.session.run(run.model.accumulation.reset)
    if schedule.stopped(run.config, state) and not run.config.go_back:
        run.checkpoints.go_back(state)
    return schedule.next_stage(run.config, state)


def _log_update(run, state, update, trace, progress):
    """Writes the results of an update to the logs; saves a checkpoint if one is due by steps."""
    every, number, keeper = run.config.checkpoint_steps, int(update.number), run.checkpoints
    with run.checkpoints.saved_on_failure(state):
        run.events.write_update(update, state.epoch + 1, trace)
    due = every and number % every == 0
    if due or keeper.due_by_time():
        path = keeper.save(state, passing=not due)
        progress.close()
        log.info(
            'Step %d: loss%s %f, saved %s',
            number,
            ' per label' if (run.config.loss_norm == 'labels') else '',
            update.loss,
            path,
        )


def _log_epoch(run, state, train_outcome, dev_outcome, learning_rate):
    """Logs the line of an epoch, and adds its figures to TensorBoard's files and to hyper.json."""
    config = run.config
    changes = config.learning_rate_decay < 1 or config.valid_adapt < 1 or config.warmup_steps
    log.info(
        '%s',
        reports.epoch_line(
            state.epoch,
            schedule.n_epochs(config, state),
            train_outcome,
            dev_outcome,
            learning_rate if changes else None,
        ),
    )
    run.record.add('last_validation', dev_outcome)
    with run.checkpoints.saved_on_failure(state):
        run.events.write_outcome(
            'train', run.global_step(), train_outcome, learning_rate=learning_rate
        )
        if dev_outcome:
            run.events.write_outcome('dev', run.global_step(), dev_outcome)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
