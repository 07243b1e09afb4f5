"""Both graphs of DeepSpeech.py, for training and for inference, from one function."""

import pytest

import DeepSpeech
from helpers import load_config, make_corpus
from util import audio, config as settings, importers, text
from util.feeding import feeder
from util.tf1 import tf

RANDOM = ('Random', 'Uniform', 'Normal', 'Multinomial', 'Shuffle', 'Qr')
QUEUES = ('Queue', 'Dequeue', 'Enqueue')
GRADIENTS = ('Grad', 'Adam', 'CTCLoss', 'EmptyTensorList')


@pytest.fixture(scope='module')
def data_sets(tmp_path_factory):
    folder = make_corpus(tmp_path_factory.mktemp('graphs'))
    config = load_config(
        train_files=folder / 'train.csv',
        dev_files=folder / 'dev.csv',
        test_files=folder / 'test.csv',
    )
    return importers.read_data_sets(config, text.Alphabet())


def types_of(graph, *parts):
    """Types of the operations, those in functions included, that have one of these parts."""
    definition = graph.as_graph_def()
    nodes = [
        *definition.node,
        *(node for function in definition.library.function for node in function.node_def),
    ]
    return {node.op for node in nodes if any(part in node.op for part in parts)}


def small_config(**values):
    return settings.with_towers(load_config(n_hidden=6, dropout_rate=0.3, **values), 0)


@pytest.mark.parametrize(
    'values', [{}, {'rnn': 'vanilla'}, {'rnn_impl': 'block'}, {'recurrent_init': 'orthogonal'}]
)
def test_training_and_inference_graph_share_every_weight(data_sets, values):
    config = small_config(dropout_rate4=0.2, **values)
    training = DeepSpeech.build_model(config, text.Alphabet(), True, data_sets)
    inference = DeepSpeech.build_model(config, text.Alphabet(), False)
    shapes = [
        {v.op.name: v.shape.as_list() for v in model.graph.get_collection(key)}
        for model, key in ((training, 'trainable_variables'), (inference, 'variables'))
    ]
    assert shapes[0] == shapes[1] and len(shapes[0]) == 14
    for kind in (RANDOM, QUEUES, GRADIENTS):
        assert types_of(training.graph, *kind)  # so that the names are those that occur
        assert not types_of(inference.graph, *kind)


@pytest.mark.parametrize('values', [{}, {'rnn': 'vanilla'}])
def test_both_graphs_give_the_same_labels(data_sets, values):
    config = small_config(**values)
    training = DeepSpeech.build_model(config, text.Alphabet(), True, data_sets)
    inference = DeepSpeech.build_model(config, text.Alphabet(), False)
    with tf.Session(graph=training.graph) as session:
        session.run([v.initializer for v in training.graph.get_collection('variables')])
        weights = session.run(
            {v.op.name: v for v in training.graph.get_collection('trainable_variables')}
        )
        with feeder.feed(data_sets.test, training.queues, session, n_epochs=1) as feed:
            [step] = feed.epoch()
            [decoded] = session.run(
                [tower.decoded for tower in training.towers],
                {training.selector: step.queue_index, training.n_utterances: len(step.examples)},
            )
    expected = [
        decoded.values[decoded.indices[:, 0] == b].tolist() for b in range(len(step.examples))
    ]
    with tf.Session(graph=inference.graph) as session:
        for variable in inference.graph.get_collection('variables'):
            session.run(variable.initializer, {variable.initial_value: weights[variable.op.name]})
        for example, labels in zip(step.examples, expected):
            vector = audio.audiofile_to_input_vector(example.utterance.wav_filename, 26, 9)
            found = session.run(inference.recognised.labels, {inference.input: vector[None]})
            assert found[0].tolist() == labels and len(labels) > 1
