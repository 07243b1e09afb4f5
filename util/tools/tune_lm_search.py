"""The work of `tune_lm`: recognises the utterances once, and decodes them with each pair of
weights."""

import argparse
import concurrent.futures
import contextlib
import logging
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import DeepSpeech
from util import audio, config as settings, errors, importers, log as run_log, text
from util.corpora import manifests
from util.language import decoder as decoders
from util.recognition import audio_blocks, inputs, models
from util.recognition.inputs import Task
from util.recognition.network import ModelError, Network
from util.tf1 import tf
from util.tools import language_options, tune_lm_table
from util.tools.tune_lm_decoding import Decoding

LONGEST_S = 120  # s; a longer utterance would take too much memory as a whole
READERS = 4  # threads that read audio
WINDOW_BATCHES = 8  # batches that are read, and sorted by length, together


class Utterances(NamedTuple):
    """What the network made of the utterances, in their order."""

    references: list[str]  # cleaned transcripts
    logits: list[np.ndarray]  # float32 [n_steps, n_character] each
    texts: list[str]  # of the beam search without a language model


def run(options: argparse.Namespace) -> None:
    """Tunes the weights as the command line says, and prints the table.

    Raises:
      DeepSpeechError: the options do not go together, or the model, the language model or the
        utterances cannot be used.
    """
    logging.basicConfig(level=logging.WARNING, format='%(message)s', stream=sys.stderr, force=True)
    logging.getLogger('tensorflow').setLevel(logging.ERROR)
    _check(options)
    wanted = language_options.settings_of(options) or decoders.of_config(_load_settings(options))
    if wanted is None:
        raise errors.ConfigError('expected --lm, --lexicon or --grammar: there is nothing to tune')
    network = _open(options)
    decoder = decoders.make_decoder(wanted, network.alphabet)
    utterances = recognise(network, _tasks(options, network.alphabet), options)
    table = _fill(decoder, wanted, network.alphabet, utterances, options)
    print('\n'.join(tune_lm_table.report(table, language_options.command(wanted))), flush=True)
    if options.picture:
        tune_lm_table.draw(table, options.picture)
        print('picture: %s' % options.picture)


def _fill(decoder, wanted, alphabet, utterances, options):
    """Returns the tune_lm_table.Table of the utterances."""
    references = utterances.references
    alphas = options.alphas if wanted.lm else [0.0]
    pairs = [(alpha, beta) for alpha in alphas for beta in options.betas]
    bar = run_log.Bar('decoded', len(pairs) * len(references), stream=sys.stderr)
    decoding = Decoding(decoder, wanted, alphabet, utterances.logits, options.jobs)
    with contextlib.closing(bar), contextlib.closing(decoding.texts(pairs, bar.update)) as found:
        rates = [text.error_rates(references, texts) for texts in found]
    width = len(options.betas)
    return tune_lm_table.Table(
        alphas,
        options.betas,
        [rates[start : start + width] for start in range(0, len(rates), width)],
        text.error_rates(references, utterances.texts),
        len(references),
    )


def _check(options):
    """Raises ConfigError if an option cannot be used."""
    for path in options.manifests:
        if not path.lower().endswith(manifests.ENDINGS):  # manifests alone have transcripts
            raise errors.ConfigError(
                'MANIFEST must end in %s, got %s' % (' or '.join(manifests.ENDINGS), path)
            )
    if options.alphas[0] < 0:
        raise errors.ConfigError('--alphas must be at least 0, got %g' % options.alphas[0])


# The utterances


def _load_settings(options):
    """Returns the Config of the ds_ settings, or of the file that the command line names."""
    return settings.load(*[{'ds_config': options.config}] if options.config else [])[0]


def _open(options):
    """Returns the Network of the model that the command line names."""
    tools = models.Tools(DeepSpeech.build_model, DeepSpeech.decode, lambda: _load_settings(options))
    network = models.open_model(options.model, tools)
    if not network.gives_logits:
        raise ModelError(
            '%s gives no logits, without which there is nothing to decode; models exported by '
            'version 0.1 are of this kind' % options.model
        )
    return network


def _tasks(options, alphabet):
    """Returns a Task for each utterance to tune on."""
    if options.manifests:
        tasks = inputs.list_tasks(options.manifests, alphabet)
    else:
        dev = importers.read_data_sets(_load_settings(options), alphabet).dev
        tasks = [
            Task(example.utterance, reference=example.transcript)
            for example in sorted(dev.examples, key=lambda example: example.utterance.name)
        ]
    return tasks[: options.limit]


def recognise(network: Network, tasks: Sequence[Task], options: argparse.Namespace) -> Utterances:
    """Runs the network on utterances, each as a whole; those that cannot be used are named on the
    standard error and left out.

    Args:
      network: Network.
      tasks: the utterances.
      options: those of the command line; its batch_size is read.
    Raises:
      DataError: no utterance is left.
    """
    found = Utterances([], [], [])
    bar = run_log.Bar('recognised', len(tasks), stream=sys.stderr)
    window = WINDOW_BATCHES * options.batch_size
    with (
        contextlib.closing(bar),
        concurrent.futures.ThreadPoolExecutor(READERS, 'reader') as readers,
    ):
        for start in range(0, len(tasks), window):
            part = tasks[start : start + window]
            read = list(readers.map(lambda task: _features(network, task), part))
            _recognise_window(network, part, read, options.batch_size, found, bar)
    if not found.references:
        raise errors.DataError('no usable utterance with a transcript is left')
    return found


def _features(network, task):
    """Returns the features of an utterance, or why it is left out."""
    utterance = task.utterance
    if utterance.exclusion_reason or task.reference is None:
        return utterance.exclusion_reason or task.no_reference
    blocks, seconds = [], 0.0
    try:
        for block in audio_blocks.read(utterance, network.sample_rate):
            blocks.append(block)
            seconds += len(block) / network.sample_rate
            if seconds > LONGEST_S:
                return 'longer than %d s' % LONGEST_S
        return network.features(np.concatenate(blocks))
    except audio.AudioError as error:
        return str(error)


def _recognise_window(network, tasks, read, batch_size, found, bar):
    """Recognises the utterances of a window, in batches of similar length, and adds them.

    Args:
      network, batch_size, bar: as in `recognise`.
      tasks, read: the Tasks and what `_features` returned of each.
      found: Utterances, to which they are added in their order.
    """
    usable = [i for i, features in enumerate(read) if not isinstance(features, str)]
    usable.sort(key=lambda i: len(read[i]))
    recognised: dict[int, Any] = {}
    for start in range(0, len(usable), batch_size):
        batch = usable[start : start + batch_size]
        try:
            results = network.recognise([read[i] for i in batch])
        except tf.errors.OpError as error:
            raise errors.DeepSpeechError(
                'the model cannot be run: %s; a smaller --batch-size needs less memory'
                % errors.first_line(error)
            ) from None
        recognised.update(zip(batch, results))
        bar.update(len(batch))
    for i, task in enumerate(tasks):
        reason = read[i] if i not in recognised else _too_short(task, recognised[i])
        if reason:
            bar.clear()
            print('left out: %s: %s' % (task.utterance.name, reason), file=sys.stderr, flush=True)
            continue
        found.references.append(task.reference)
        found.logits.append(recognised[i].logits)
        found.texts.append(network.alphabet.decode(recognised[i].labels))


def _too_short(task, recognised):
    """Returns why an utterance would not be used in training: it has too few time steps for its
    transcript; None if it would."""
    short = len(recognised.logits) < text.required_steps(task.reference)
    return 'too short for its transcript' if short else None
