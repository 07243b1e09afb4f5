"""util.recognition.frozen_graphs: graphs of DeepSpeech 0.1.1 and 0.9.3 against what these versions
made of the same speech."""

import pathlib
import struct

import numpy as np
import pytest

import DeepSpeech
from util import audio, errors, text
from util.recognition import alignment, frozen_graphs
from util.recognition.network import ModelError
from util.tf1 import tf

DATA = pathlib.Path(__file__).with_name('data')
GRAPH_01, GRAPH_09 = (
    DATA / name / 'output_graph.pb' for name in ('deepspeech_011', 'deepspeech_093')
)
DEVIATION = 2e-5  # of logits


def opened(path, beam_width=None, alphabet=None):
    """The network of a graph."""
    return frozen_graphs.open_graph(
        str(path), DeepSpeech.decode, lambda: alphabet or text.Alphabet(), beam_width
    )


def values(path):
    """What the version that wrote the graph measured."""
    return np.load(path.with_name('values.npz'))


@pytest.fixture
def samples(shared_data):
    """The samples of LDC93S1."""
    return audio.read_audio(str(shared_data('ldc93s1', 'LDC93S1.wav')))


@pytest.fixture(scope='module')
def graph_01():
    return opened(GRAPH_01)


@pytest.fixture(scope='module')
def graph_09():
    return opened(GRAPH_09)


def frames_of(windows, n_input, n_context):
    """The frames with margins from which context windows were cut."""
    before = windows[0].reshape(-1, n_input)[:n_context]
    after = windows[-1].reshape(-1, n_input)[n_context + 1 :]
    middle = windows[:, n_context * n_input : (n_context + 1) * n_input]
    return np.concatenate([before, middle, after])


def test_features_of_011(graph_01, samples):
    expected = frames_of(values(GRAPH_01)['features'], 26, 9)
    np.testing.assert_allclose(graph_01.features(samples), expected, atol=1e-5)
    assert (graph_01.sample_rate, graph_01.step_s) == (16000, 0.02)


def test_logits_and_labels_of_011(graph_01):
    expected = values(GRAPH_01)
    whole = frames_of(expected['features'], 26, 9)
    windows = expected['features'][: expected['lengths'][1]]
    found = graph_01.recognise([whole, frames_of(windows, 26, 9)])
    for b, (each, length) in enumerate(zip(found, expected['lengths'])):
        logits = expected['logits'][:length, b]
        np.testing.assert_allclose(each.logits, logits, atol=DEVIATION)
        labels = expected['outputs'][0, b]
        assert each.labels == labels[: len(each.labels)].tolist()
        assert not labels[len(each.labels) :].any()  # its padding is 0, which is the space, too


def test_features_of_093(graph_09, samples):
    found = graph_09.features(samples)
    expected = values(GRAPH_09)['features']
    assert len(found) == 9 + len(expected) + 1 + 9  # the client adds a window of what is left
    np.testing.assert_allclose(found[9:-10], expected, atol=1e-4)
    assert not found[:9].any() and not found[-9:].any()


def test_logits_of_093(graph_09):
    expected = values(GRAPH_09)
    margin = np.zeros((9, 26), np.float32)
    whole, beginning = (
        np.concatenate([margin, expected['features'][:length], margin])
        for length in expected['lengths']
    )
    found = graph_09.recognise([whole, beginning])
    for b, (each, length) in enumerate(zip(found, expected['lengths'])):
        # there the windows of the beginning reach into the rest of the utterance
        length -= 9 * b
        logits = expected['logits'][:length, b]
        np.testing.assert_allclose(each.logits[:length], logits, atol=DEVIATION)


def test_the_transcript_of_093_is_at_least_as_probable_as_that_of_the_native_client(
    graph_09, samples
):
    # The client's own beam search leaves out other paths than TensorFlow's.
    [found] = graph_09.recognise([graph_09.features(samples)])
    log_probs = alignment.log_softmax(found.logits)
    transcript = str(values(GRAPH_09)['transcript'])
    theirs, ours = (
        alignment.loss(log_probs, labels, graph_09.alphabet.blank)
        for labels in (graph_09.alphabet.encode(transcript), found.labels)
    )
    assert ours <= theirs
    assert text.error_rates([transcript], [graph_09.alphabet.decode(found.labels)]).cer < 0.2


def test_what_093_says_of_itself(graph_09):
    assert graph_09.alphabet.labels == text.Alphabet().labels
    assert (graph_09.sample_rate, graph_09.step_s) == (16000, 0.02)


def test_less_than_a_window_of_audio(graph_01, graph_09):
    for network in (graph_01, graph_09):
        with pytest.raises(audio.AudioError, match='too short'):
            network.features(np.zeros(100))
    assert len(graph_09.features(np.zeros(450))) == 9 + 1 + 9


def test_another_beam_width():
    expected = values(GRAPH_01)
    narrow = opened(GRAPH_01, beam_width=1)
    [found] = narrow.recognise([frames_of(expected['features'], 26, 9)])
    assert found.labels != [label for label in expected['outputs'][0, 0] if label]


def test_another_alphabet_than_that_of_the_graph():
    with pytest.raises(ModelError, match='29 classes, but the alphabet has 3 labels and the blank'):
        opened(GRAPH_01, alphabet=text.Alphabet('abc'))


def test_other_files_are_named(tmp_path):
    another = tf.GraphDef()
    another.node.add(name='x', op='Placeholder')
    contents = {
        'empty.pb': b'',
        'page.pb': b'<html>',
        'cut.pb': GRAPH_01.read_bytes()[:100_000],
        'another.pb': another.SerializeToString(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        kind = 'another kind of graph' if name == 'another.pb' else 'is not a model'
        with pytest.raises(ModelError, match=kind) as raised:
            opened(tmp_path / name)
        assert name in str(raised.value)


def test_a_changed_graph_is_named(tmp_path):
    definition = tf.GraphDef()
    definition.ParseFromString(GRAPH_09.read_bytes())
    for node in definition.node:
        if node.name == 'metadata_alphabet':
            node.attr['value'].tensor.string_val[:] = [struct.pack('<HHH', 2, 0, 1) + b'a']
    (tmp_path / 'changed.pb').write_bytes(definition.SerializeToString())
    with pytest.raises(errors.DeepSpeechError, match='changed.pb cannot be used'):
        opened(tmp_path / 'changed.pb')
