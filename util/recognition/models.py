"""Opens a model: an exported one, a checkpoint, or a frozen graph."""

import dataclasses
import logging
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from util import config as settings, errors, files, text
from util.recognition import frozen_graphs
from util.recognition.network import Features, ModelError, Network, WindowNetwork, check_fit
from util.run import averaging, checkpoint_files, checkpoint_io, export_folder
from util.run import description as descriptions
from util.tf1 import tf

log = logging.getLogger(__name__)

KINDS = (
    'an exported model (a folder with saved_model.pb, or with such folders named 1, 2, ...), '
    'a checkpoint, a folder of checkpoints, or a frozen graph of DeepSpeech 0.1 or 0.9'
)
VARIABLES = os.path.join('variables', 'variables.index')  # of a complete exported model
CHECKPOINT_FILES = re.compile(r'(.*)\.(index|meta|data-\d+-of-\d+)')


class Tools(NamedTuple):
    """What opening a model needs from those who build graphs, which stand above this module."""

    build_model: Callable[..., Any]  # DeepSpeech.build_model
    decode: Callable[..., Any]  # DeepSpeech.decode
    load_settings: Callable[[], settings.Config]  # called for a model that does not describe itself


def open_model(path: str, tools: Tools, beam_width: int | None = None) -> Network:
    """Opens a model of any kind.

    A folder of checkpoints stands for the mean of the newest ones if it was kept, otherwise for the
    best one on the dev set if there is one, otherwise for the newest: it is the one that training
    tests and exports.

    Args:
      path: the model, see KINDS.
      tools: Tools.
      beam_width: paths of the beam search; None: as many as the model says.
    Raises:
      ModelError: there is no model, it is of another kind, or it cannot be loaded.
      CheckpointError: a checkpoint is damaged, or is not one of this network.
      ConfigError, AlphabetError: the settings for a model that does not describe itself.
    """
    if os.path.basename(path) == export_folder.SAVED_MODEL:
        path = os.path.dirname(path) or '.'
    if os.path.isdir(path):
        exported = _newest_version(path)
        if exported:
            return _open_export(exported, tools, beam_width)
        checkpoint = _checkpoint_in(path)
        if checkpoint:
            return _open_checkpoint(checkpoint, tools, beam_width)
        raise ModelError('%s holds no model; a model is %s' % (path, KINDS))
    part = CHECKPOINT_FILES.fullmatch(path)
    checkpoint = part.group(1) if part else path
    if os.path.exists(checkpoint + '.index'):
        return _open_checkpoint(checkpoint, tools, beam_width)
    if not os.path.exists(path):
        raise ModelError('there is no %s; a model is %s' % (path, KINDS))
    return frozen_graphs.open_graph(path, tools.decode, _alphabet_of(tools), beam_width)


def _alphabet_of(tools):
    """Returns a function that loads the alphabet of the settings."""
    return lambda: text.load_alphabet(tools.load_settings().alphabet)


# Exported models


def _newest_version(path):
    """Returns the folder of an exported model: `path` itself, or the newest complete version in it;
    None if there is none."""
    if os.path.exists(os.path.join(path, export_folder.SAVED_MODEL)):
        return path
    try:
        numbers = sorted((int(name), name) for name in os.listdir(path) if name.isdecimal())
    except OSError as error:
        raise ModelError('%s cannot be read: %s' % (path, error.strerror)) from None
    for _, name in reversed(numbers):
        version = os.path.join(path, name)
        if all(
            os.path.isfile(os.path.join(version, part))
            for part in (export_folder.SAVED_MODEL, VARIABLES)
        ):
            return version
    return None


def _open_export(path, tools, beam_width):
    """Opens an exported model; one of version 0.1 gives only labels, and no logits."""
    graph = tf.Graph()
    session = tf.Session(graph=graph)
    try:
        with graph.as_default(), checkpoint_io.plain_folder(path) as there:
            meta = tf.saved_model.load(session, [tf.saved_model.SERVING], there)
    except Exception as error:  # the loader raises another exception for each kind of damage
        raise ModelError('%s cannot be loaded: %s' % (path, errors.first_line(error))) from None
    signatures = meta.signature_def
    if 'with_length' not in signatures:
        raise ModelError(
            '%s is another kind of model: it must have the signature with_length, it has %s'
            % (path, ', '.join(sorted(signatures)) or 'none')
        )

    def tensors(signature):
        inputs, outputs = signatures[signature].inputs, signatures[signature].outputs
        return {
            name: graph.get_tensor_by_name(each.name)
            for part in (inputs, outputs)
            for name, each in part.items()
        }

    found = tensors('with_length')
    gives_logits = 'logits' in signatures
    if beam_width is not None and not gives_logits:
        raise ModelError(
            '--beam-width, --lm, --lexicon, --grammar: %s gives no logits to search; models '
            'exported by version 0.1 are of this kind' % path
        )
    with graph.as_default():
        labels, logits = found['outputs'][0], None
        if gives_logits:
            logits = tf.transpose(tensors('logits')['logits'], [1, 0, 2])  # [T, B, n_character]
        if beam_width is not None:
            labels = _decoded(tools.decode, logits, found['input_length'], beam_width)
    features, alphabet = _described_or_set(path, _description_of_export(path, graph), tools)
    n_character = None if logits is None else logits.shape[-1]
    check_fit(path, found['input'].shape[-1], n_character, features, alphabet)
    return WindowNetwork(
        session, found['input'], found['input_length'], labels, logits, features, alphabet
    )


def _decoded(decode, logits, lengths, beam_width):
    """Returns the labels of the best paths, int64 [B, n], padded with -1."""
    return tf.sparse_tensor_to_dense(decode(logits, lengths, beam_width), default_value=-1)


def _description_of_export(path, graph):
    """Returns the description in the graph of an exported model or beside it; None if there is
    none, as in version 0.1."""
    for node in graph.as_graph_def().node:
        if node.name == 'model_description':
            return descriptions.from_json(tf.make_ndarray(node.attr['value'].tensor).item())
    try:
        with open(os.path.join(path, 'assets.extra', 'model.json'), 'rb') as file:
            return descriptions.from_json(file.read())
    except OSError:
        return None


def _described_or_set(path, description, tools):
    """Returns the Features and the alphabet of a description, or without one of the settings."""
    if description is None:
        config, alphabet = _settings_for(path, tools)
        return _features_of(config), alphabet
    return _features_of(_config_of(path, description)), text.Alphabet(description['alphabet'])


def read_description(path: str) -> tuple[Features, text.Alphabet]:
    """Reads the description of an exported model, its assets.extra/model.json.

    Returns:
      (Features, Alphabet) of the model.
    Raises:
      ModelError: the file cannot be read, or is no description.
    """
    try:
        with files.open_regular(path, mode='rb') as file:
            description = descriptions.from_json(file.read())
    except OSError as error:
        raise ModelError('%s cannot be read: %s' % (path, error.strerror)) from None
    if description is None:
        raise ModelError('%s is not the assets.extra/model.json of an exported model' % path)
    return _features_of(_config_of(path, description)), text.Alphabet(description['alphabet'])


def _settings_for(path, tools):
    """Returns the Config and the alphabet of the settings, for a model that does not describe
    itself. The log names those that no weights can contradict."""
    config = tools.load_settings()
    log.warning(
        '%s does not describe itself; it is used with ds_sample_rate=%d, ds_n_input=%d, '
        'ds_n_context=%d, ds_feature_stride=%d, ds_feature_norm=%s, ds_dynamic_range=%g, '
        'ds_alphabet=%s',
        path,
        *_features_of(config),
        config.alphabet,
    )
    return config, text.load_alphabet(config.alphabet)


def _features_of(config):
    """Returns the Features of a Config."""
    return Features(*[getattr(config, name) for name in Features._fields])


def _config_of(path, description):
    """Returns the Config with which a model of this description is built."""
    try:
        return settings.load({'ds_importer': 'csv', **descriptions.settings_of(description)})[0]
    except errors.ConfigError as error:
        raise ModelError('%s: its description cannot be used: %s' % (path, error)) from None


# Checkpoints


def _checkpoint_in(folder):
    """Returns the path of the checkpoint that a folder stands for; None if there is none."""
    averaged = averaging.averaged_in(folder, 'MODEL')
    if averaged:
        return averaged
    newest = checkpoint_files.newest_whole(folder, 'MODEL')
    best = checkpoint_files.newest_whole(checkpoint_files.best_dir(folder), 'MODEL')
    if best and newest and not averaging.is_best_of(best, averaging.best_in(newest)):
        return newest  # the best one is of an earlier run
    return best or newest


def _open_checkpoint(path, tools, beam_width):
    """Opens a checkpoint: the graph of inference, with the weights of the checkpoint."""
    damage = checkpoint_files.damage(path)
    if damage:
        raise errors.CheckpointError('checkpoint %s is damaged: %s' % (path, damage))
    description = checkpoint_files.description(path)
    if description is None:
        config, alphabet = _set_for_checkpoint(path, tools)
    else:
        config = _config_of(path, description)
        alphabet = text.Alphabet(description['alphabet'])
        config = dataclasses.replace(
            config, beam_width=description.get('beam_width', config.beam_width)
        )
    if beam_width is not None:
        config = dataclasses.replace(config, beam_width=beam_width)
    model = tools.build_model(config, alphabet, is_training=False)
    session = tf.Session(graph=model.graph)
    try:
        with model.graph.as_default():
            checkpoint_files.restore(session, path, tf.trainable_variables())
    except tf.errors.OpError as error:
        raise ModelError('%s cannot be restored: %s' % (path, errors.first_line(error))) from None
    return WindowNetwork(
        session,
        model.input,
        model.input_length,
        model.recognised.labels,
        model.recognised.logits,
        _features_of(config),
        alphabet,
    )


def _set_for_checkpoint(path, tools):
    """Returns the Config and the alphabet for a checkpoint without a description: the widths are
    those of its weights, the rest comes from the settings."""
    reader = checkpoint_io.Reader(path)
    shapes = reader.get_variable_to_shape_map()
    geometry = checkpoint_files.geometry_of(
        {ours: shapes[there] for ours, there in checkpoint_files.weights_in(reader)}
    )
    if geometry is None:
        raise ModelError('%s is not a checkpoint of this network' % path)
    rnn, n_features, n_hidden_1, n_hidden_2, n_cell_dim, n_hidden_5, n_character, layer_norm = (
        geometry.values()
    )
    config, alphabet = _settings_for(path, tools)
    check_fit(path, n_features, n_character, _features_of(config), alphabet)
    config = dataclasses.replace(
        config,
        rnn=rnn,
        n_hidden_1=n_hidden_1,
        n_hidden_2=n_hidden_2,
        n_cell_dim=n_cell_dim,
        n_hidden_5=n_hidden_5,
        layer_norm=layer_norm,
    )
    return config, alphabet
