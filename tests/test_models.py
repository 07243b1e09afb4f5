"""util.recognition.models: a model is found, opened and described, whatever kind it is of."""

import dataclasses
import os
import pathlib
import shutil

import numpy as np
import pytest

import DeepSpeech
from helpers import load_config, speech
from util import audio, errors, text
from util.graph import run_state
from util.recognition import models
from util.recognition.network import ModelError
from util.run import description
from util.tf1 import tf

DATA = pathlib.Path(__file__).with_name('data')
ALPHABET = text.Alphabet(" 'abcdefghijklm")
SMALL = {
    'n_input': 5,
    'n_context': 2,
    'n_hidden': 8,
    'feature_stride': 2,
    'sample_rate': 8000,
    'default_stddev': 0.5,
    'beam_width': 12,
}
pytestmark = pytest.mark.run
VARIABLES = 'variables/variables.data-00000-of-00001'


def tools(**values):
    """Tools whose settings are these; they must not be asked for if there are none."""

    def load_settings():
        assert values, 'the model describes itself'
        return load_config(**values)

    return models.Tools(DeepSpeech.build_model, DeepSpeech.decode, load_settings)


def save(folder, config, best_dev_loss=None, described=True, seed=3):
    """Saves a checkpoint with random weights, as the trainer does; returns its path and its
    weights."""
    os.makedirs(folder, exist_ok=True)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(seed)
        DeepSpeech.BiRNN(
            tf.zeros([1, 1, config.n_features]),
            [1],
            config=config,
            n_character=ALPHABET.n_character,
        )
        if described:
            content = description.to_json(description.describe(config, ALPHABET))
            run_state.description_variable(content)
        if best_dev_loss is not None:
            start = tf.constant(best_dev_loss, tf.float64)
            name = 'run_state/best_dev_loss'
            tf.get_variable(name, initializer=start, dtype=tf.float64, trainable=False)
        session.run(tf.global_variables_initializer())
        weights = session.run({v.op.name: v for v in tf.trainable_variables()})
        path = tf.train.Saver().save(session, str(folder / 'model.ckpt'), seed)
    return path, weights


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """(folder, Config, weights): export/1 and checkpoints/model.ckpt-3 with the same weights."""
    folder = tmp_path_factory.mktemp('trained')
    config = load_config(export_dir=folder / 'export', **SMALL)
    _, weights = save(folder / 'checkpoints', config)
    DeepSpeech.export(config, ALPHABET, weights)
    return folder, config, weights


def heard(network, *seconds):
    """(text, logits) of speech of these lengths, recognised as one batch."""
    features = [
        network.features(speech(each, i, network.sample_rate).astype(float))
        for i, each in enumerate(seconds)
    ]
    return [
        (network.alphabet.decode(each.labels), each.logits) for each in network.recognise(features)
    ]


def same(found, expected):
    """Asserts equal texts, and logits but for rounding."""
    assert [words for words, _ in found] == [words for words, _ in expected]
    for (_, ours), (_, theirs) in zip(found, expected):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_export_and_checkpoint_recognise_the_same_alone_and_in_a_batch(trained):
    folder, _, _ = trained
    exported = models.open_model(str(folder / 'export'), tools())
    checkpoint = models.open_model(str(folder / 'checkpoints'), tools())
    batch = heard(exported, 1.0, 0.4, 2.2)
    assert len({words for words, _ in batch}) == 3 and all(words for words, _ in batch)
    same(heard(checkpoint, 1.0, 0.4, 2.2), batch)
    same(heard(exported, 1.0), batch[:1])
    for network in (exported, checkpoint):
        assert network.alphabet.labels == ALPHABET.labels
        assert (network.sample_rate, network.step_s, network.gives_logits) == (8000, 0.02, True)


def test_features_are_those_of_training(trained, tmp_path):
    network = models.open_model(str(trained[0] / 'export'), tools())
    samples = speech(1.0, 0, 8000).astype(float)
    frames = audio.mfcc(samples, 8000, 5, 2).astype(np.float32)
    np.testing.assert_array_equal(network.features(samples), audio.normalise(frames, 2))


@pytest.mark.parametrize('path', ('export/1/saved_model.pb', 'checkpoints/model.ckpt-3.index'))
def test_a_file_of_a_model_stands_for_it(trained, path):
    assert models.open_model(str(trained[0] / path), tools()).alphabet.labels == ALPHABET.labels


def test_the_newest_complete_version_is_opened(trained, tmp_path):
    shutil.copytree(trained[0] / 'export', tmp_path / 'export')
    other = load_config(export_dir=tmp_path / 'export', **{**SMALL, 'sample_rate': 16000})
    with_other_rate = DeepSpeech.export(other, ALPHABET, trained[2])
    shutil.move(with_other_rate, tmp_path / 'export' / '10')  # newer than 9 and 2
    for name in ('9', '11', '12', 'notes', '.unfinished-1'):
        (tmp_path / 'export' / name).mkdir()
    (tmp_path / 'export' / '11' / 'saved_model.pb').touch()
    (tmp_path / 'export' / '13').touch()
    assert models.open_model(str(tmp_path / 'export'), tools()).sample_rate == 16000


def test_another_beam_width(trained):
    folder, config, _ = trained
    own, wide, narrow, narrow_checkpoint = (
        heard(models.open_model(str(folder / kind), tools(), width), 1.0, 2.2)
        for kind, width in (
            ('export', None),
            ('export', config.beam_width),
            ('export', 1),
            ('checkpoints', 1),
        )
    )
    same(own, wide)
    same(narrow, narrow_checkpoint)
    assert [words for words, _ in narrow] != [words for words, _ in wide]


@pytest.mark.parametrize('best_dev_loss, taken', ((1.5, 16000), (1.4, 8000)))
def test_the_best_checkpoint_is_taken_if_it_is_of_the_run(tmp_path, best_dev_loss, taken):
    newest, best = (load_config(**{**SMALL, 'sample_rate': rate}) for rate in (8000, 16000))
    save(tmp_path, newest, best_dev_loss=1.5)
    save(tmp_path / 'best', best, best_dev_loss=best_dev_loss)
    assert models.open_model(str(tmp_path), tools()).sample_rate == taken


def test_the_mean_is_taken_if_it_is_of_the_newest_checkpoint(tmp_path):
    newest, mean = (load_config(**{**SMALL, 'sample_rate': rate}) for rate in (8000, 16000))
    save(tmp_path, newest, seed=3)
    save(tmp_path / 'averaged', mean, seed=4)  # of another step
    assert models.open_model(str(tmp_path), tools()).sample_rate == 8000
    shutil.rmtree(tmp_path / 'averaged')
    save(tmp_path / 'averaged', mean, seed=3)
    assert models.open_model(str(tmp_path), tools()).sample_rate == 16000


def test_layer_norm_and_the_features_are_those_of_the_checkpoint(tmp_path):
    config = load_config(**SMALL, layer_norm=1, feature_norm='coefficient')
    path, weights = save(tmp_path / 'described', config)
    DeepSpeech.export(
        dataclasses.replace(config, export_dir=str(tmp_path / 'export')), ALPHABET, weights
    )
    own, exported = (models.open_model(str(each), tools()) for each in (path, tmp_path / 'export'))
    samples = 1000.0 * np.arange(8000) % 7
    frames = audio.mfcc(samples, 8000, config.n_input, config.feature_stride).astype(np.float32)
    np.testing.assert_array_equal(
        own.features(samples), audio.normalise(frames, config.n_context, 'coefficient')
    )
    same(heard(exported, 1.0, 0.4), heard(own, 1.0, 0.4))


def test_a_checkpoint_without_a_description_needs_the_settings_of_its_features(tmp_path, caplog):
    config = load_config(**SMALL)
    path, _ = save(tmp_path / 'described', config)
    bare, _ = save(tmp_path / 'bare', config, described=False)
    (tmp_path / 'alphabet.txt').write_text('\n'.join(ALPHABET.labels) + '\n')
    given = {
        name: SMALL[name] for name in ('n_input', 'n_context', 'feature_stride', 'sample_rate')
    }
    given.update(alphabet=tmp_path / 'alphabet.txt', beam_width=12)
    same(
        heard(models.open_model(bare, tools(**given)), 1.0, 2.2),
        heard(models.open_model(path, tools()), 1.0, 2.2),
    )
    with pytest.raises(
        ModelError, match='takes 25 values.*ds_n_input=5 and ds_n_context=9 make 95'
    ):
        models.open_model(bare, tools(**{**given, 'n_context': 9}))
    with pytest.raises(ModelError, match='has 16 classes, but the alphabet has 28 labels'):
        models.open_model(bare, tools(**{**given, 'alphabet': ''}))


def test_a_checkpoint_of_deepspeech_011_gives_what_its_frozen_graph_gives(tmp_path):
    """The widths come from the weights, the rest is that of 0.1.1."""
    graph = models.open_model(
        str(DATA / 'deepspeech_011' / 'output_graph.pb'), tools(feature_stride=2)
    )
    definition = tf.GraphDef()
    definition.ParseFromString((DATA / 'deepspeech_011' / 'output_graph.pb').read_bytes())
    with tf.Graph().as_default(), tf.Session() as session:
        for node in definition.node:
            if node.op == 'Const' and node.name.startswith(('h', 'b')) and '/' not in node.name[:3]:
                value = tf.make_ndarray(node.attr['value'].tensor)
                if value.dtype == np.float32 and value.ndim:
                    tf.get_variable(node.name, initializer=value)
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / 'model.ckpt'), 7)
    checkpoint = models.open_model(path, tools(feature_stride=2))
    same(heard(checkpoint, 1.0, 0.5), heard(graph, 1.0, 0.5))


def old_export(trained, folder):
    """An exported model as version 0.1 wrote it: without logits, transcripts and description."""
    _, config, weights = trained
    model = DeepSpeech.build_model(config, ALPHABET, is_training=False)
    with model.graph.as_default(), tf.Session() as session:
        values = {v.initial_value: weights[v.op.name] for v in tf.global_variables()}
        session.run(tf.global_variables_initializer(), values)
        builder = tf.saved_model.Builder(str(folder))
        signatures = {
            name: tf.saved_model.predict_signature_def(*model.signatures[name])
            for name in ('serving_default', 'with_length')
        }
        builder.add_meta_graph_and_variables(session, ['serve'], signatures)
        builder.save()
    (folder / 'assets.extra').mkdir()
    (folder / 'assets.extra' / 'model.json').write_text('{"version": "0.2.0"}')


def test_an_export_of_version_01_gives_texts_without_times(trained, tmp_path):
    old_export(trained, tmp_path / '1')
    (tmp_path / 'alphabet.txt').write_text('\n'.join(ALPHABET.labels) + '\n')
    given = {
        name: SMALL[name] for name in ('n_input', 'n_context', 'feature_stride', 'sample_rate')
    }
    given['alphabet'] = tmp_path / 'alphabet.txt'
    network = models.open_model(str(tmp_path), tools(**given))
    assert not network.gives_logits
    expected = heard(models.open_model(str(trained[0] / 'export'), tools()), 1.0, 2.2)
    assert heard(network, 1.0, 2.2) == [(words, None) for words, _ in expected]
    with pytest.raises(ModelError, match='takes 25 values a time step'):
        models.open_model(str(tmp_path), tools(**{**given, 'n_input': 26}))
    with pytest.raises(ModelError, match='--beam-width, .* gives no logits'):
        models.open_model(str(tmp_path), tools(**given), 5)


def test_the_description_survives_the_loss_of_model_json(trained, tmp_path):
    shutil.copytree(trained[0] / 'export', tmp_path / 'export')
    shutil.rmtree(tmp_path / 'export' / '1' / 'assets.extra')
    assert models.open_model(str(tmp_path / 'export'), tools()).sample_rate == 8000


@pytest.mark.parametrize('name', ('saved_model.pb', VARIABLES, 'variables/variables.index'))
@pytest.mark.parametrize('kept', (0, 0.5))
def test_a_damaged_export_is_named(trained, tmp_path, name, kept):
    shutil.copytree(trained[0] / 'export' / '1', tmp_path / '1')
    content = (tmp_path / '1' / name).read_bytes()
    (tmp_path / '1' / name).write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(ModelError, match='/1 (cannot be loaded|is another kind)') as raised:
        models.open_model(str(tmp_path / '1'), tools())
    assert '\n' not in str(raised.value)


def test_another_saved_model_is_named(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], 'x')
        builder = tf.saved_model.Builder(str(tmp_path / '1'))
        signatures = {'classify': tf.saved_model.predict_signature_def({'x': x}, {'y': x + 1})}
        builder.add_meta_graph_and_variables(session, ['serve'], signatures)
        builder.save()
    with pytest.raises(ModelError, match='another kind of model: .* it has .*classify'):
        models.open_model(str(tmp_path / '1'), tools())


def test_damaged_and_other_checkpoints_are_named(trained, tmp_path):
    shutil.copytree(trained[0] / 'checkpoints', tmp_path / 'ckpt')
    data = tmp_path / 'ckpt' / 'model.ckpt-3.data-00000-of-00001'
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(errors.CheckpointError, match='is damaged'):
        models.open_model(str(tmp_path / 'ckpt' / 'model.ckpt-3'), tools())
    with pytest.raises(errors.CheckpointError, match='every checkpoint in .* is damaged'):
        models.open_model(str(tmp_path / 'ckpt'), tools())
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable('another', [3])
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / 'model.ckpt'), 1)
    with pytest.raises(ModelError, match='is not a checkpoint of this network'):
        models.open_model(path, tools(n_input=5))


def test_what_is_no_model_is_named(tmp_path):
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'a.txt').write_text('hello')
    for name, words in (
        ('empty', 'holds no model; a model is an exported model'),
        ('absent', 'there is no .*absent; a model is'),
        ('a.txt', 'is not a model'),
    ):
        with pytest.raises(ModelError, match=words):
            models.open_model(str(tmp_path / name), tools())
