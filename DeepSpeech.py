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
import contextlib
import dataclasses
import datetime
import importlib
import itertools
import logging
import math
import os
import pkgutil
import re
import shutil
import signal
import sys
import time

import tensorflow.compat.v1 as tf
from tensorflow.python.client import timeline

import util.importers
from util import checkpoint, config as settings, feeding, gpu, log as run_log, rnn, shared_lib
from util import text, website

log = logging.getLogger('DeepSpeech')

# Switches the dropout of a training graph: bool scalar, and the int64 [2] that seeds the masks
# of one tower in one step.
Dropout = collections.namedtuple('Dropout', 'is_training seed')

# What a tower computes of its batch of B utterances: loss [B] and its mean, edit distance over
# transcript length [B] and its mean, best paths and labels as sparse tensors [B, .], and how
# many of the B utterances count (0 in a tower that had none left).
TowerResult = collections.namedtuple(
    'TowerResult', 'total_loss avg_loss distance label_error_rate decoded labels count')

# What a checkpoint knows of the run besides the weights
State = collections.namedtuple('State', 'epoch epoch_step epoch_loss step_size best_dev_loss')

# Handles of the graph that trains and evaluates
Model = collections.namedtuple(
    'Model', 'graph selector n_utterances is_training towers avg_loss train_op summaries '
    'global_step state state_values assign_state saver best_saver')

# What is passed along in a run
Run = collections.namedtuple('Run', 'session model data_sets config alphabet stop writers')

# Figures of one pass over a data set; rates is a text.ErrorRates, None where nothing was decoded
Outcome = collections.namedtuple('Outcome', 'loss label_error_rate rates wer results seconds')


class TrainingError(RuntimeError):
    """Training can't go on; the message says where it stopped and why."""


class Interrupted(Exception):
    """The user asked for an end (Ctrl-C or SIGTERM)."""


# The network


def variable_on_cpu(name, shape, initializer):
    """A variable in CPU memory, made or shared: float32 of that shape."""
    with tf.device('/cpu:0'):
        return tf.get_variable(name=name, shape=shape, initializer=initializer)


def BiRNN(batch_x, seq_length, *, config, n_character, dropout=None):
    """The network: three dense layers, a bidirectional LSTM, a dense layer, the output layer.

    Args:
      batch_x: float32 [B, T, n_input + 2*n_input*n_context], windows of MFCC.
      seq_length: int32 [B], time steps of each utterance.
      config: Config; the geometry, stddevs, relu_clip and dropout rates.
      n_character: classes, the blank included.
      dropout: Dropout, or None for a graph that never drops (the export).
    Returns:
      float32 [T, B, n_character]: logits, time-major.
    Raises:
      ValueError: batch_x is not rank 3.
    Source: BiRNN of the notebook; Hannun et al., arXiv:1412.5567, equations 1 to 5, with LSTM
      cells in layer 4.
    """
    # B = batch_size, T = n_steps
    if batch_x.shape.rank != 3:
        raise ValueError('batch_x must be [batch, n_steps, n_features], got %s' % batch_x.shape)
    batch_size = tf.shape(batch_x)[0]
    layer = tf.reshape(tf.transpose(batch_x, [1, 0, 2]), [-1, config.n_features])  # [T*B, F]
    for index, units in ((1, config.n_hidden_1), (2, config.n_hidden_2), (3, config.n_hidden_3)):
        layer = _dense(layer, index, units, config, dropout)
    layer = tf.reshape(layer, [-1, batch_size, config.n_hidden_3])  # [T, B, 2*n_cell_dim]
    cells = [_lstm_variables(direction, config) for direction in ('fw', 'bw')]
    layer = rnn.bidirectional_lstm(layer, seq_length, *cells)
    layer = tf.reshape(layer, [-1, 2 * config.n_cell_dim])
    layer = _dense(layer, 5, config.n_hidden_5, config, dropout)
    weights, bias = _layer_variables(6, config.n_hidden_5, n_character, config)
    logits = tf.nn.bias_add(tf.matmul(layer, weights), bias)
    return tf.reshape(logits, [-1, batch_size, n_character])


def _layer_variables(index, n_in, units, config):
    """(h [n_in, units], b [units]) of a dense layer, normally distributed at first."""
    weights, bias = [variable_on_cpu(
        name, shape, tf.random_normal_initializer(stddev=getattr(config, name + '_stddev')))
        for name, shape in (('h%d' % index, [n_in, units]), ('b%d' % index, [units]))]
    return weights, bias


def _dense(x, index, units, config, dropout):
    """[N, n_in] -> [N, units]: min(relu(x h + b), relu_clip), then dropout."""
    weights, bias = _layer_variables(index, x.shape[-1], units, config)
    y = tf.minimum(tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), bias)), config.relu_clip)
    rate = config.dropout_of_layer(index)
    if dropout is None or rate == 0.0:
        return y
    return y * _dropout_mask(tf.shape(y), rate, index, dropout)


def _dropout_mask(shape, rate, layer, dropout):
    """1/(1 - rate) with probability 1 - rate, else 0; a 1 where the graph isn't training.

    The random numbers depend on seed, step, tower and layer alone, so that a resumed run drops
    what the run would have dropped that it resumes.
    """
    def draw():
        uniform = tf.random.stateless_uniform(shape, dropout.seed + [0, layer])
        return tf.cast(uniform >= rate, tf.float32) / (1.0 - rate)
    return tf.cond(dropout.is_training, draw, lambda: tf.ones([1, 1]))


def _lstm_variables(direction, config):
    """(kernel, bias) of one direction, with TensorFlow 1.x's names, layout and, as in the
    notebook, TensorFlow 0.12's initial values: uniform of variance 1/n_in, and 0."""
    n_cell = config.n_cell_dim
    with tf.variable_scope('bidirectional_rnn/%s/basic_lstm_cell' % direction):
        return (variable_on_cpu('kernel', [config.n_hidden_3 + n_cell, 4 * n_cell],
                                tf.variance_scaling_initializer(1.0, 'fan_in', 'uniform')),
                variable_on_cpu('bias', [4 * n_cell], tf.zeros_initializer()))


# Loss and decoding


def calculate_accuracy_and_loss(batch, *, config, n_character, dropout=None):
    """Runs the network on a batch and compares the outcome with the transcripts.

    What the notebook called accuracy is an error rate: the mean over utterances of the edit
    distance between best path and labels, divided by the number of labels.

    Args:
      batch: feeding.Batch.
      config, n_character, dropout: as in `BiRNN`.
    Returns:
      (total_loss [B], avg_loss, distance [B], label_error_rate, decoded, labels): the CTC loss
      is the negative natural logarithm of the transcript's probability; decoded and labels are
      sparse, [B, .], and decoded is the best path of the beam search.
    Source: the notebook's function of that name; Graves et al., ICML 2006, for CTC.
    """
    labels = text.ctc_label_dense_to_sparse(batch.labels, batch.label_len)
    logits = BiRNN(batch.features, batch.seq_len, config=config, n_character=n_character,
                   dropout=dropout)
    total_loss = _ctc_loss(logits, labels, batch.seq_len, config.use_warpctc)
    decoded = decode(logits, batch.seq_len, config.beam_width)
    distance = tf.edit_distance(tf.cast(decoded, tf.int32), labels)
    return (total_loss, tf.reduce_mean(total_loss), distance, tf.reduce_mean(distance), decoded,
            labels)


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
    """Best path of the beam search, int64 sparse [B, .].

    merge_repeated stays off: on, it would merge "all" to "al" a second time.
    """
    decoded, _ = tf.nn.ctc_beam_search_decoder(logits, seq_len, beam_width=beam_width,
                                               top_paths=1, merge_repeated=False)
    return decoded[0]


# Towers and optimizer


def create_optimizer(config):
    """Adam, as in the notebook (Kingma and Ba, arXiv:1412.6980)."""
    return tf.train.AdamOptimizer(learning_rate=config.learning_rate, beta1=config.beta1,
                                  beta2=config.beta2, epsilon=config.epsilon)


def tower_devices(config):
    """Device of each tower: the GPUs, or logical CPU devices where there are none."""
    gpus = gpu.get_available_gpus()
    return (gpus or ['/cpu:%d' % i for i in range(config.towers)])[:config.towers]


def get_tower_results(batch, devices, *, config, n_character, dropout=None, optimizer=None):
    """Deals a step's batch out to the towers and runs the network in each.

    Args:
      batch: feeding.Batch with the utterances of all towers.
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
            share, count = feeding.tower_batch(batch, tower, len(devices), config.n_context)
            own = dropout and dropout._replace(seed=dropout.seed + [0, tower << 8])
            result = TowerResult(*calculate_accuracy_and_loss(
                share, config=config, n_character=n_character, dropout=own), count)
            results.append(result)
            if optimizer is not None:
                gradients.append(optimizer.compute_gradients(result.avg_loss))
    weights = tower_weights(results)
    label_error_rate = tf.add_n([r.label_error_rate * w for r, w in zip(results, weights)])
    avg_loss = tf.add_n([r.avg_loss * w for r, w in zip(results, weights)])
    return results, gradients, label_error_rate, avg_loss


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
    return [(tf.add_n([gradient * weight for (gradient, _), weight in zip(pairs, weights)]),
             pairs[0][1]) for pairs in zip(*tower_gradients)]


def apply_gradients(optimizer, average_grads, global_step=None):
    """Operation that updates the variables, and counts the step."""
    return optimizer.apply_gradients(average_grads, global_step=global_step)


def log_variable(variable, gradient=None):
    """Summaries of a variable: mean, standard deviation, extremes, histogram; of its gradient
    the histogram."""
    name = variable.op.name
    mean = tf.reduce_mean(variable)
    tf.summary.scalar(name + '/mean', mean)
    tf.summary.scalar(name + '/stddev', tf.sqrt(tf.reduce_mean(tf.square(variable - mean))))
    tf.summary.scalar(name + '/max', tf.reduce_max(variable))
    tf.summary.scalar(name + '/min', tf.reduce_min(variable))
    tf.summary.histogram(name + '/histogram', variable)
    if gradient is not None:
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        tf.summary.histogram(name + '/gradients', values)


def log_grads_and_vars(grads_and_vars):
    """`log_variable` of each pair."""
    for gradient, variable in grads_and_vars:
        log_variable(variable, gradient=gradient)


def build_model(data_sets, config, n_character):
    """The graph that trains and evaluates: `selector` picks the queue of train, dev or test.

    Returns:
      Model.
    Source: the notebook's one graph, with its queue selector and its dropout placeholder.
    """
    graph = tf.Graph()
    with graph.as_default(), tf.device('/cpu:0'):
        tf.set_random_seed(config.random_seed)
        global_step = tf.train.get_or_create_global_step()
        selector = tf.placeholder_with_default(0, [], 'selector')
        n_utterances = tf.placeholder(tf.int32, [], 'n_utterances')
        is_training = tf.placeholder_with_default(False, [], 'is_training')
        seed = tf.stack([tf.cast(config.random_seed, tf.int64), global_step * 2**16])
        optimizer = create_optimizer(config)
        towers, gradients, _, avg_loss = get_tower_results(
            data_sets.next_batch(selector, n_utterances), tower_devices(config), config=config,
            n_character=n_character, dropout=Dropout(is_training, seed), optimizer=optimizer)
        averaged = average_gradients(gradients, tower_weights(towers))
        if config.log_variables:
            log_grads_and_vars(averaged)
        train_op = apply_gradients(optimizer, averaged, global_step)
        return Model(graph, selector, n_utterances, is_training, towers, avg_loss, train_op,
                     tf.summary.merge_all(), global_step, *_state_variables(),
                     tf.train.Saver(max_to_keep=5, save_relative_paths=True),
                     tf.train.Saver(max_to_keep=1, save_relative_paths=True))


def _state_variables():
    """Variables for a State, placeholders for new values and the operation that sets them."""
    initial = State(0, 0, 0.0, 0, math.inf)
    types = State(tf.int64, tf.int64, tf.float64, tf.int64, tf.float64)
    state = State(*[tf.get_variable('run_state/' + name, trainable=False, dtype=dtype,
                                    initializer=tf.constant(value, dtype))
                    for name, value, dtype in zip(State._fields, initial, types)])
    values = State(*[tf.placeholder(dtype, []) for dtype in types])
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
      results_tuple: (sources, results, distances, losses), a list each, as `collect_results`
        fills them.
      report_count: utterances to print, ordered by their WER.
    Returns:
      The WER over all words.
    """
    sources, results, _, losses = results_tuple
    rates, wer = text.wers(sources, results)
    items = [item for item in zip(sources, results, rates, losses) if item[2] > 0]
    items = sorted(items, key=lambda item: item[3])[:report_count]
    print_wer_report(caption, wer, sorted(items, key=lambda item: item[2]))
    return wer


def collect_results(results_tuple, returns, alphabet):
    """Adds the values of the towers of one step to (sources, results, distances, losses)."""
    for tower in returns:
        if tower.count:
            results_tuple[0].extend(text.sparse_tensor_value_to_texts(tower.labels, alphabet))
            results_tuple[1].extend(text.sparse_tensor_value_to_texts(tower.decoded, alphabet))
            results_tuple[2].extend(tower.distance.tolist())
            results_tuple[3].extend(tower.total_loss.tolist())


def _outcome(results, loss, seconds):
    """Outcome of the collected results of one pass."""
    sources, texts, distances, _ = results
    if not sources:
        return Outcome(loss, None, None, None, results, seconds)
    rates = text.error_rates(sources, texts)
    return Outcome(loss, sum(distances) / len(distances), rates, rates.wer, results, seconds)


def _report(caption, outcome, config):
    """Prints the WER report of a pass that was decoded."""
    if outcome.rates:
        title = '%s loss=%.9f label_error_rate=%.9f CER: %f' % (
            caption, outcome.loss, outcome.label_error_rate, outcome.rates.cer)
        calculate_and_print_wer_report(title, outcome.results, config.report_count)


# Training and evaluation


def run_inference(run, data_set, feeder):
    """One pass over the dev or test set, without training.

    Args:
      run: Run.
      data_set: its DataSet.
      feeder: its feeding.Feeder.
    Returns:
      Outcome; its loss is the mean CTC loss of an utterance.
    """
    model, results = run.model, ([], [], [], [])
    started = time.monotonic()
    progress = run_log.Progress(data_set.name, data_set.total_batches)
    for step in feeder.epoch():
        run.stop.check()
        towers = run.session.run(model.towers, {
            model.selector: feeding.SET_NAMES.index(data_set.name),
            model.n_utterances: len(step.examples)})
        collect_results(results, towers, run.alphabet)
        progress.update(step.index + 1, sum(results[3]) / len(results[3]))
    progress.close()
    loss = sum(results[3]) / len(results[3]) if results[3] else math.nan
    return _outcome(results, loss, time.monotonic() - started)


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
    train_outcome = dev_outcome = dev_feeder = None
    with contextlib.ExitStack() as feeders:
        if state.epoch < config.training_iters:
            feeder = feeders.enter_context(data_sets.train.feed(
                run.session, state.epoch, state.epoch_step, config.training_iters - state.epoch))
        for epoch in range(state.epoch + 1, config.training_iters + 1):
            last = epoch == config.training_iters
            log.info('Epoch %d of %d started', epoch, config.training_iters)
            state, train_outcome = _train_epoch(run, state, feeder,
                                                _due(config.display_step, epoch, last))
            _report('Training', train_outcome, config)
            new_dev = None
            if len(data_sets.dev) and _due(config.validation_step, epoch, last):
                dev_feeder = dev_feeder or feeders.enter_context(data_sets.dev.feed(run.session))
                state, new_dev = _validate(run, state, dev_feeder)
            dev_outcome = new_dev or dev_outcome
            if _due(config.checkpoint_step, epoch, last) or last:
                _save(run, state)
            _log_epoch(run, epoch, train_outcome, new_dev)
    return state, train_outcome, dev_outcome


def _due(every, epoch, last):
    return every > 0 and (epoch % every == 0 or last)


def _train_epoch(run, state, feeder, query_report):
    """Trains over what is left of an epoch.

    Returns:
      (State after the epoch, Outcome). The loss is the mean over all utterances of the epoch,
      those before an interruption included.
    """
    model, results, done = run.model, ([], [], [], []), 0
    data_set = run.data_sets.train
    done = state.epoch_step * data_set.step_size
    started = time.monotonic()
    progress = run_log.Progress('train', data_set.total_batches)
    for step in feeder.epoch():
        if run.stop.wanted:
            progress.close()
            path = _save(run, state)
            raise Interrupted('saved %s: %d epochs and %d steps; ds_restore_checkpoint=1 goes on '
                              'from there' % (path, state.epoch, state.epoch_step))
        loss, towers = _train_step(run, state, step, query_report)
        if not math.isfinite(loss):
            progress.close()
            raise TrainingError(_not_finite(loss, state, step, run.config))
        collect_results(results, towers or (), run.alphabet)
        state = state._replace(epoch_step=step.index + 1,
                               epoch_loss=state.epoch_loss + loss * len(step.examples))
        done += len(step.examples)
        progress.update(step.index + 1, state.epoch_loss / done)
    progress.close()
    if not done:
        raise feeding.DataError('no usable training utterance is left')
    outcome = _outcome(results, state.epoch_loss / done, time.monotonic() - started)
    return state._replace(epoch=state.epoch + 1, epoch_step=0, epoch_loss=0.0), outcome


def _train_step(run, state, step, query_report):
    """One update; returns (mean loss of the step, TowerResult values or None)."""
    model, config, writer = run.model, run.config, run.writers['train']
    fetches = {'loss': model.avg_loss, 'train': model.train_op, 'step': model.global_step}
    if query_report:
        fetches['towers'] = model.towers
    if model.summaries is not None:
        fetches['summaries'] = model.summaries
    extra, metadata = {}, None
    if config.do_fulltrace:
        metadata = tf.RunMetadata()
        extra = dict(options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
                     run_metadata=metadata)
    values = run.session.run(fetches, {model.n_utterances: len(step.examples),
                                       model.is_training: True}, **extra)
    number = _global_step(run)
    _write_scalars(writer, number, step_loss=values['loss'])
    if 'summaries' in values:
        writer.add_summary(values['summaries'], number)
    if metadata is not None:
        writer.add_run_metadata(metadata, 'epoch%d_step%d' % (state.epoch + 1, number), number)
        run_log.write_file(os.path.join(writer.get_logdir(), 'trace.json'), timeline.Timeline(
            metadata.step_stats).generate_chrome_trace_format())
    return float(values['loss']), values.get('towers')


def _global_step(run):
    return int(run.session.run(run.model.global_step))


def _not_finite(loss, state, step, config):
    names = ', '.join(example.utterance.name for example in step.examples)
    return ('the loss is %f in epoch %d, step %d; utterances of this step: %s. A smaller '
            'ds_learning_rate than %g may help' % (loss, state.epoch + 1, step.index + 1, names,
                                                   config.learning_rate))


def _validate(run, state, feeder):
    """Evaluates the dev set and keeps the weights if they are the best so far.

    Returns:
      (State, Outcome).
    """
    try:
        outcome = run_inference(run, run.data_sets.dev, feeder)
    except Interrupted:
        _save(run, state)
        raise
    _report('Validation', outcome, run.config)
    if outcome.loss < state.best_dev_loss:
        state = state._replace(best_dev_loss=outcome.loss)
        _save(run, state, best=True)
    return state, outcome


def _log_epoch(run, epoch, outcome, dev_outcome):
    """The line of an epoch and its scalars."""
    speed = run.data_sets.train.seconds / outcome.seconds
    parts = ['train ' + _figures(outcome)]
    if dev_outcome:
        parts.append('dev ' + _figures(dev_outcome))
    parts.append('%.1f s, %.0f s of audio a second' % (outcome.seconds, speed))
    log.info('Epoch %d of %d finished: %s', epoch, run.config.training_iters, '; '.join(parts))
    step = _global_step(run)
    _write_outcome(run.writers['train'], step, outcome, run.data_sets.train,
                   learning_rate=run.config.learning_rate)
    if dev_outcome:
        _write_outcome(run.writers['dev'], step, dev_outcome, run.data_sets.dev)


def _figures(outcome):
    """'loss 1.2345, WER 8.42% [77/914: 5 ins, 12 del, 60 sub]'"""
    words = 'loss %.6f' % outcome.loss
    if outcome.rates:
        rates = outcome.rates
        errors = rates.insertions + rates.deletions + rates.substitutions
        words += ', WER %.2f%% [%d/%d: %d ins, %d del, %d sub]' % (
            100 * rates.wer, errors, rates.words, rates.insertions, rates.deletions,
            rates.substitutions)
    return words


def _write_outcome(writer, step, outcome, data_set, **scalars):
    scalars.update(loss=outcome.loss,
                   audio_seconds_per_second=data_set.seconds / outcome.seconds)
    if outcome.rates:
        scalars.update(label_error_rate=outcome.label_error_rate, wer=outcome.rates.wer,
                       cer=outcome.rates.cer)
    _write_scalars(writer, step, **scalars)
    writer.flush()


def _write_scalars(writer, step, **scalars):
    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value)
                                         for tag, value in scalars.items()]), step)


class StopRequest:
    """Ctrl-C and SIGTERM end a run at the next step, so that what was learned can be saved."""

    def __init__(self):
        self.wanted = False

    def install(self):
        """Takes over both signals; the second time they do what they usually do."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, number, frame):
        del frame
        self.wanted = True
        log.warning('%s: stopping after this step', signal.Signals(number).name)

    def check(self):
        """Raises Interrupted where an end was asked for."""
        if self.wanted:
            raise Interrupted('the checkpoints hold what was learned')


# Checkpoints


def _save(run, state, best=False):
    """Saves weights, optimizer and state; returns the checkpoint's path.

    Raises:
      TrainingError: it can't be written. The checkpoints before it stay as they are.
    """
    model = run.model
    directory, saver = run.config.checkpoint_dir, model.saver
    if best:
        directory, saver = os.path.join(directory, checkpoint.BEST_DIR), model.best_saver
    run.session.run(model.assign_state, dict(zip(model.state_values, state)))
    try:
        return saver.save(run.session, os.path.join(directory, checkpoint.BASENAME),
                          global_step=_global_step(run), write_meta_graph=False)
    except (tf.errors.OpError, OSError) as error:
        raise TrainingError('the checkpoint cannot be written to %s: %s' % (
            directory, str(getattr(error, 'message', error)).splitlines()[0])) from None


def _restore(run):
    """Restores the newest whole checkpoint, or initialises the variables.

    Returns:
      State.
    Raises:
      CheckpointError: damaged checkpoints only, or another geometry; or nothing to test.
    """
    model, config = run.model, run.config
    with model.graph.as_default():
        run.session.run(tf.global_variables_initializer())
        path = None
        if config.restore_checkpoint:
            path = checkpoint.newest_whole(config.checkpoint_dir)
        if path is None:
            return _start_afresh(run)
        checkpoint.check_geometry(path, _geometry(model.graph))
        missing = checkpoint.restore(run.session, path, tf.global_variables())
        state = State(*[value.item() for value in run.session.run(model.state)])
        steps = run.data_sets.train.total_batches
        if model.state.epoch in missing:  # one of the notebook's; its number is the epoch's index
            state = state._replace(epoch=checkpoint.number(path) + 1)
            run.session.run(tf.assign(model.global_step, state.epoch * steps))
        if state.epoch_step and state.step_size != run.data_sets.train.step_size:
            log.info('another batch size than before: the unfinished epoch starts anew')
            state = state._replace(epoch_step=0, epoch_loss=0.0)
        log.info('restored %s: %d epochs done%s', path, state.epoch,
                 ' and %d steps of the next' % state.epoch_step if state.epoch_step else '')
        if state.epoch < config.training_iters:
            log.info('going on with epoch %d at learning rate %g', state.epoch + 1,
                     config.learning_rate)
        for saver, directory in ((model.saver, config.checkpoint_dir),
                                 (model.best_saver, _best_dir(config))):
            _take_over(saver, directory)
        return state._replace(step_size=run.data_sets.train.step_size)


def _best_dir(config):
    return os.path.join(config.checkpoint_dir, checkpoint.BEST_DIR)


def _start_afresh(run):
    config = run.config
    if not config.training_iters:
        raise checkpoint.CheckpointError(
            'ds_training_iters=0 tests a checkpoint, but %s' % (
                'there is none in ' + config.checkpoint_dir if config.restore_checkpoint
                else 'ds_restore_checkpoint is off'))
    found = checkpoint.candidates(config.checkpoint_dir)
    if config.restore_checkpoint:
        log.info('no checkpoint in %s: starting afresh', config.checkpoint_dir)
    elif found:
        log.info('starting afresh; the checkpoints of an earlier run in %s will be replaced '
                 '(ds_restore_checkpoint=1 would go on from %s)', config.checkpoint_dir, found[0])
        _take_over(run.model.saver, config.checkpoint_dir)
        _take_over(run.model.best_saver, _best_dir(config))
    else:
        log.info('starting afresh')
    return State(0, 0, 0.0, run.data_sets.train.step_size, math.inf)


def _take_over(saver, directory):
    """Lets a Saver know of the checkpoints that are there, so that it still keeps only a few."""
    paths = [path for path in checkpoint.candidates(directory) if os.path.exists(path + '.index')]
    saver.set_last_checkpoints_with_time(
        [(path, os.path.getmtime(path + '.index')) for path in reversed(paths)])


def _geometry(graph):
    return checkpoint.geometry_of({variable.op.name: variable.shape.as_list()
                                   for variable in graph.get_collection('trainable_variables')})


def _load_best(run, state):
    """Puts the weights to test and export into the session: the best ones by dev loss where a
    validation ran, else those of the last epoch. Returns what they are, in words."""
    if math.isfinite(state.best_dev_loss):
        path = checkpoint.newest_whole(_best_dir(run.config))
        if path is not None:
            with run.model.graph.as_default():
                checkpoint.restore(run.session, path, tf.trainable_variables())
            return 'best by dev loss (%.6f), %s' % (state.best_dev_loss, path)
    return 'of epoch %d' % state.epoch


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
    Source: the notebook's export, which had no lengths and padded with 0, the space's label.
    """
    unfinished = os.path.join(config.export_dir, '.unfinished-%d' % os.getpid())
    shutil.rmtree(unfinished, ignore_errors=True)
    with tf.Graph().as_default(), tf.device('/cpu:0'), tf.Session() as session:
        inputs = tf.placeholder(tf.float32, [None, None, config.n_features], 'input')
        whole = tf.fill([tf.shape(inputs)[0]], tf.shape(inputs)[1])
        length = tf.placeholder_with_default(whole, [None], 'input_length')
        logits = BiRNN(inputs, length, config=config, n_character=n_character)
        best = decode(logits, length, config.beam_width)
        outputs = tf.sparse_tensor_to_dense(best, default_value=-1)[None]
        session.run(tf.global_variables_initializer(),
                    {v.initial_value: weights[v.op.name] for v in tf.global_variables()})
        signature = tf.saved_model.predict_signature_def
        builder = tf.saved_model.Builder(unfinished)
        builder.add_meta_graph_and_variables(session, [tf.saved_model.SERVING], {
            tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY:
                signature({'input': inputs}, {'outputs': outputs}),
            'with_length':
                signature({'input': inputs, 'input_length': length}, {'outputs': outputs})},
            clear_devices=True)
        builder.save()
    return _publish_export(unfinished, config)


def _publish_export(unfinished, config):
    older = sorted(int(name) for name in os.listdir(config.export_dir)
                   if re.fullmatch('[0-9]+', name))
    path = os.path.join(config.export_dir, str(older[-1] + 1 if older else 1))
    os.rename(unfinished, path)
    if config.remove_export:
        for name in os.listdir(config.export_dir):
            if re.fullmatch('[0-9]+', name) and int(name) in older:
                shutil.rmtree(os.path.join(config.export_dir, name))
    return path


# The run


def read_data_sets(config, alphabet):
    """DataSets of the importer that the settings name; of several, set by set one after the
    other.

    Raises:
      ConfigError: no such importer, or not a dataset path for each.
    """
    names = [name.strip() for name in config.importer.split(',')]
    paths = [path.strip() for path in config.dataset_path.split(',')]
    known = sorted(module.name for module in pkgutil.iter_modules(util.importers.__path__))
    for name in names:
        if name not in known:
            raise settings.ConfigError('ds_importer must be one of %s, or several with commas '
                                       'between, got %r' % (', '.join(known), name))
    if len(paths) != len(names):
        raise settings.ConfigError('ds_dataset_path must be as many folders as ds_importer has '
                                   'importers (%d), got %r' % (len(names), config.dataset_path))
    importers = [importlib.import_module('util.importers.' + name) for name in names]
    if len(importers) == 1:
        return importers[0].read_data_sets(paths[0], config, alphabet)
    listings = [importer.list_utterances(path, config) for importer, path in zip(importers, paths)]
    return feeding.make_data_sets(config, alphabet, *[list(itertools.chain(*part))
                                                      for part in zip(*listings)])


def _check_before_training(config, data_sets):
    """Finds before the first step what would otherwise fail after hours.

    Raises:
      ConfigError, DataError.
    """
    if config.use_warpctc and not gpu.get_available_gpus():
        raise settings.ConfigError('ds_use_warpctc must be off on a machine without GPUs: the '
                                   'CTCLossV2 operation runs on GPUs only')
    if config.training_iters:
        run_log.make_dir(config.checkpoint_dir, 'ds_checkpoint_dir')
        run_log.make_dir(_best_dir(config), 'ds_checkpoint_dir')
    if config.export_dir:
        run_log.make_dir(config.export_dir, 'ds_export_dir')
    if config.training_iters and not len(data_sets.train):
        raise feeding.DataError('no usable training utterance is left')
    for data_set, purpose in ((data_sets.dev, 'validation'), (data_sets.test, 'test')):
        if not len(data_set):
            log.info('the %s set is empty: no %s', data_set.name, purpose)
    if config.do_fulltrace:
        shared_lib.check_cupti()


def test(run):
    """Evaluates the test set; returns its Outcome, None where it is empty."""
    if not len(run.data_sets.test):
        return None
    with run.data_sets.test.feed(run.session, n_epochs=1) as feeder:
        outcome = run_inference(run, run.data_sets.test, feeder)
    _report('Test', outcome, run.config)
    _write_outcome(run.writers['test'], _global_step(run), outcome, run.data_sets.test)
    return outcome


def train_and_test(config, alphabet, data_sets, run_dir, results):
    """The whole run: restore, train, test, export.

    Args:
      config, alphabet, data_sets: what to do.
      run_dir: folder of the logs.
      results: dict, filled with the figures for hyper.json as they come.
    """
    model = build_model(data_sets, config, alphabet.n_character)
    session_config = tf.ConfigProto(allow_soft_placement=True,
                                    log_device_placement=config.log_device_placement,
                                    device_count={'CPU': config.towers})
    with model.graph.as_default():
        writers = {name: tf.summary.FileWriter(os.path.join(run_dir, name), graph)
                   for name, graph in (('train', model.graph), ('dev', None), ('test', None))
                   if len(getattr(data_sets, name))}
    with tf.Session(config=session_config, graph=model.graph) as session:
        run = Run(session, model, data_sets, config, alphabet, StopRequest(), writers)
        state = _restore(run)
        run.stop.install()
        state, train_outcome, dev_outcome = train(run, state)
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
        writer.close()
    _summarise(config, run_dir, weights, test_outcome, exported)


def _add_results(results, **outcomes):
    for name, outcome in outcomes.items():
        if outcome is not None:
            results[name + '_loss'], results[name + '_wer'] = outcome.loss, outcome.wer
            results[name + '_cer'] = outcome.rates and outcome.rates.cer


def _summarise(config, run_dir, weights, outcome, exported):
    """The last lines of a run: the result and where everything is."""
    if outcome:
        log.info('Test: %s, CER %.2f%%', _figures(outcome), 100 * outcome.rates.cer)
    log.info('Model:  %s (tested: %s)', config.checkpoint_dir, weights)
    log.info('Logs:   %s (tensorboard --logdir %s)', run_dir, config.logs_dir)
    log.info('Export: %s', exported or 'none, as ds_export_dir is not set')


def _write_hyper(config, alphabet, data_sets, run_dir, started, results):
    """hyper.json in the notebook's structure, null for what there isn't; and hyper.js."""
    git_hash, git_branch = run_log.git_revision()
    finished = datetime.datetime.now(datetime.timezone.utc)
    names = ('last_train_wer', 'last_train_loss', 'last_validation_wer', 'last_validation_loss',
             'test_wer', 'test_loss', 'test_cer')
    content = {
        'context': {'time_started': started.isoformat(), 'time_finished': finished.isoformat(),
                    'git_hash': git_hash, 'git_branch': git_branch},
        'parameters': {
            **dataclasses.asdict(config), 'epochs': config.training_iters,
            'n_hidden_3': config.n_hidden_3, 'n_hidden_6': alphabet.n_character,
            'n_character': alphabet.n_character,
            'total_batches_train': data_sets.train.total_batches,
            'total_batches_validation': data_sets.dev.total_batches,
            'total_batches_test': data_sets.test.total_batches,
            'data_set': {'name': config.importer}},
        'results': {'duration': (finished - started).total_seconds(),
                    **{name: results.get(name) for name in names}}}
    run_log.write_file(os.path.join(run_dir, 'hyper.json'), run_log.strict_json(content))
    run_log.merge_logs(config.logs_dir)
    website.maybe_publish(config.logs_dir)


def main(arguments):
    """The command line; returns the exit status."""
    started = datetime.datetime.now(datetime.timezone.utc)
    run_log.set_up_logging()
    try:
        if arguments == ['--help']:
            print(settings.help_text())
            return 0
        if arguments not in ([], ['--show-config']):
            raise settings.ConfigError('arguments must be none, --help or --show-config, got %s; '
                                       'settings are ds_ variables of the environment'
                                       % ' '.join(arguments))
        config, sources = settings.load()
        if arguments:
            print(settings.effective_text(config, sources))
            return 0
        _run(settings.with_towers(config, len(gpu.get_available_gpus())), started)
    except Interrupted as interruption:
        print('interrupted: %s' % interruption, file=sys.stderr)
        return 130
    except (settings.ConfigError, text.AlphabetError, feeding.DataError,
            checkpoint.CheckpointError, TrainingError) as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    return 0


def _run(config, started):
    alphabet = text.load_alphabet(config.alphabet)
    data_sets = read_data_sets(config, alphabet)
    _check_before_training(config, data_sets)
    run_dir, results = run_log.make_run_dir(config.logs_dir), {}
    try:
        train_and_test(config, alphabet, data_sets, run_dir, results)
    finally:  # a run that ends early still says what it was
        _write_hyper(config, alphabet, data_sets, run_dir, started, results)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
