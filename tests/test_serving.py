"""util.graph.serving: features and resampling in the graph against util.audio and SciPy, texts, and
what an exported model makes of good and of bad requests."""

import io
import json
import math
import struct

import numpy as np
import pytest
import scipy.signal
import soundfile

import DeepSpeech
from helpers import load_config, run_graph, speech
from util import audio, text
from util.graph import serving
from util.tf1 import tf

RATE = 16000
SMALL = {'n_hidden': 8, 'n_context': 2, 'default_stddev': 0.5}
DEVIATION = 1e-4  # of the features, whose standard deviation is 1


def wav(samples, rate=RATE, subtype='PCM_16'):
    """A WAV file of int16 samples [n] or [n, channels], as bytes."""
    file = io.BytesIO()
    soundfile.write(file, np.asarray(samples, np.int16), rate, format='WAV', subtype=subtype)
    return file.getvalue()


class Graph:
    """The features of WAV files, computed in the graph, and its resampling."""

    def __init__(self, **values):
        self.config = load_config(**values)
        with tf.Graph().as_default() as graph:
            self.contents = tf.placeholder(tf.string, [None])
            samples, lengths, self.seconds = serving.decode_wavs(
                self.contents, self.config.sample_rate
            )
            batch = serving.features(samples, lengths, self.config)
            self.batch = DeepSpeech.cut_windows(batch, self.config.n_context)
            self.samples = tf.placeholder(tf.float64, [None])
            self.rate = tf.placeholder(tf.int32, [])
            self.resampled = serving.resample(self.samples, self.rate, self.config.sample_rate)
        self.session = tf.Session(graph=graph)

    def features(self, *files):
        """[windows of each file], without padding."""
        windows, n_steps = self.session.run(
            [self.batch.features, self.batch.seq_len], {self.contents: list(files)}
        )
        assert not windows[np.arange(windows.shape[1]) >= n_steps[:, None]].any()
        return [each[:count] for each, count in zip(windows, n_steps)]

    def expected(self, content, folder):
        (folder / 'one.wav').write_bytes(content)
        config = self.config
        return audio.audiofile_to_input_vector(
            str(folder / 'one.wav'),
            config.n_input,
            config.n_context,
            config.sample_rate,
            config.feature_stride,
            config.feature_norm,
            config.dynamic_range,
        )


@pytest.fixture(scope='module')
def graph():
    return Graph()


@pytest.fixture(
    scope='module',
    params=[
        {},
        {'sample_rate': 8000, 'n_context': 3},
        {'feature_norm': 'coefficient', 'dynamic_range': 40},
    ],
)
def any_graph(request):
    return Graph(feature_stride=2, **request.param)


def clicks():
    samples = np.zeros(20000)
    samples[[5, 4000, 4001, 19999]] = [32767, -32768, 32767, -1]
    return samples


@pytest.mark.parametrize(
    'samples',
    [
        speech(1.2),
        np.zeros(16000),
        np.full(16000, 1000),
        clicks(),
        speech(0.025),
        speech(0.0251),
        np.stack([speech(0.7, seed=1), speech(0.7, seed=2)], axis=1),
    ],
    ids=['speech', 'silence', 'constant', 'clicks', 'a window', 'a window and 2', 'stereo'],
)
def test_features_are_those_of_the_training(any_graph, samples, tmp_path):
    content = wav(samples)
    [got] = any_graph.features(content)
    np.testing.assert_allclose(got, any_graph.expected(content, tmp_path), atol=DEVIATION)


def test_an_utterance_in_a_padded_batch_is_as_it_would_be_alone(any_graph):
    files = [wav(speech(0.5)), wav(np.zeros(40000)), wav(speech(1.1, seed=3), rate=44100)]
    for together, file in zip(any_graph.features(*files), files):
        [alone] = any_graph.features(file)
        np.testing.assert_array_equal(together, alone)


CORPORA = ('fsdd', 'timit_nltk_sample', 'an4', 'LibriSpeech', 'ljspeech_sample')


def test_features_of_fifty_real_utterances(graph, shared_data, tmp_path):
    worst = 0.0
    for corpus in CORPORA:
        endings = ('*.wav', '*.flac')
        paths = sorted(path for each in endings for path in shared_data(corpus).rglob(each))
        for path in paths[:: max(1, len(paths) // 10)][:10]:
            samples, rate = soundfile.read(path, dtype='int16')
            content = wav(samples, rate)
            [got] = graph.features(content)
            expected = graph.expected(content, tmp_path)
            assert got.shape == expected.shape
            worst = max(worst, np.abs(got - expected).max())
    print('\nlargest deviation of the features of real utterances: %.1e' % worst)
    assert worst < DEVIATION


@pytest.mark.parametrize('rate', [8000, 11025, 22050, 44100, 48000, 16001, 192000])
def test_resampling_is_that_of_scipy(graph, rate):
    samples = np.random.default_rng(rate).normal(size=rate // 3 + 17)
    got = graph.session.run(graph.resampled, {graph.samples: samples, graph.rate: rate})
    divisor = math.gcd(rate, RATE)
    expected = scipy.signal.resample_poly(samples, RATE // divisor, rate // divisor)
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_texts_are_those_of_the_alphabet():
    alphabet = text.Alphabet(' aбc\u00e9')
    labels = [[1, 2, 0, 4], [3, -1, -1, -1], [-1, -1, -1, -1]]
    got = run_graph(lambda: serving.texts(tf.constant(labels, tf.int64), alphabet))
    assert [each.decode() for each in got] == ['aб \u00e9', 'c', '']


# Requests to an exported model


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    """(session, signatures, path) of a small model with random weights."""
    folder = tmp_path_factory.mktemp('exported')
    config = load_config(export_dir=folder, **SMALL)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(3)
        DeepSpeech.BiRNN(tf.zeros([1, 1, config.n_features]), [1], config=config, n_character=29)
        session.run(tf.global_variables_initializer())
        weights = session.run({v.op.name: v for v in tf.trainable_variables()})
    path = DeepSpeech.export(config, text.Alphabet(), weights)
    with tf.Graph().as_default() as graph:
        session = tf.Session(graph=graph)
        loaded = tf.saved_model.load(session, [tf.saved_model.SERVING], path)
    return session, loaded.signature_def, path


def request(exported, signature, **inputs):
    """{name: value} of the outputs."""
    session, signatures, _ = exported
    definition = signatures[signature]
    return session.run(
        {name: info.name for name, info in definition.outputs.items()},
        {definition.inputs[name].name: value for name, value in inputs.items()},
    )


def windows(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def samples(*shape):
    return np.random.default_rng(2).normal(0, 0.1, size=shape).astype(np.float32)


N_FEATURES = 26 * 5


@pytest.mark.parametrize('count', [1, 2, 3])
def test_every_output_has_a_row_for_each_utterance(exported, count):
    files = [wav(speech(0.3 + 0.2 * i, seed=i), rate=8000 * (i + 1)) for i in range(count)]
    lengths = np.arange(60, 60 - 7 * count, -7)
    with_length = {'input': windows(count, 60, N_FEATURES), 'input_length': lengths}
    answers = [
        request(exported, 'features', **with_length),
        request(exported, 'logits', **with_length),
        request(exported, 'audio', audio_bytes=files),
        request(exported, 'waveform', samples=samples(count, 9000), sample_length=lengths * 100),
    ]
    assert [set(each) for each in answers] == [
        {'transcripts', 'log_probabilities', 'labels'},
        {'logits', 'output_length'},
        {'transcripts', 'log_probabilities', 'seconds'},
        {'transcripts', 'log_probabilities', 'seconds'},
    ]
    for answer in answers:
        assert {len(value) for value in answer.values()} == {count}
    assert request(exported, 'with_length', **with_length)['outputs'].shape[:2] == (1, count)


def test_the_signatures_agree(exported, tmp_path):
    content = wav(speech(1.0))
    (tmp_path / 'one.wav').write_bytes(content)
    features = audio.audiofile_to_input_vector(str(tmp_path / 'one.wav'), 26, 2)[None]
    length = [features.shape[1]]
    [expected] = request(exported, 'serving_default', input=features)['outputs'][0]
    by_features = request(exported, 'features', input=features, input_length=length)
    by_file = request(exported, 'audio', audio_bytes=[content])
    by_samples = request(
        exported, 'waveform', samples=speech(1.0)[None] / np.float32(32768), sample_length=[RATE]
    )
    transcript = text.Alphabet().decode(expected)
    assert len(transcript) > 3
    np.testing.assert_array_equal(by_features['labels'][0], expected)
    for answer in (by_features, by_file, by_samples):
        assert answer['transcripts'][0].decode() == transcript
        assert answer['log_probabilities'][0] == pytest.approx(
            by_features['log_probabilities'][0], abs=1e-3
        )
    assert by_file['seconds'] == by_samples['seconds'] == [1.0]
    logits = request(exported, 'logits', input=features, input_length=length)
    assert logits['logits'].shape == (1, length[0], 29) and logits['output_length'] == length


def header(**fields):
    """A WAV file of half a second with some fields of its header replaced."""
    content = bytearray(wav(speech(0.5)))
    places = {'channels': (22, '<H'), 'rate': (24, '<I'), 'data': (40, '<I')}
    for name, value in fields.items():
        struct.pack_into(places[name][1], content, places[name][0], value)
    return bytes(content)


@pytest.mark.parametrize(
    'content, words',
    [
        (b'', 'Data too short'),
        (b'<html>404</html>' * 9, 'Expected RIFF'),
        (wav(speech(0.5), subtype='PCM_24'), 'received 24'),
        (wav(speech(0.5), subtype='FLOAT'), 'Expected 1 .PCM.'),
        (header(data=0xFFFFFFF0), 'too large'),
        (header(data=0xFFFFFFFF), 'too large'),
        (header(data=40000), 'Data too short'),
        (header(channels=0), 'channels'),
        (header(rate=0), 'bytes per second'),
        (wav(speech(0.5), rate=1000), 'sample rate must be from 4000 to 384000'),
        (wav([]), '400 samples or more at 16000 Hz'),
        (wav(speech(0.02)), '400 samples or more at 16000 Hz'),
    ],
)
def test_bad_audio_is_an_error_that_says_what_is_wrong(exported, content, words):
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        request(exported, 'audio', audio_bytes=[content])
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        request(exported, 'audio', audio_bytes=[wav(speech(0.5)), content])


NAN = samples(2, 9000)
NAN[1, 7] = np.nan
ONE_HOUR_PAST = [9000, 9001]


@pytest.mark.parametrize(
    'values, lengths, words',
    [
        (NAN, [9000, 9000], 'finite'),
        (samples(2, 9000) * 1e10, [9000, 9000], 'finite'),
        (samples(2, 9000), [0, 9000], '400 samples'),
        (samples(2, 9000), [-5, 9000], '400 samples'),
        (samples(2, 9000), ONE_HOUR_PAST, 'larger than samples has'),
        (samples(2, 9000), [9000], 'a length for each utterance'),
        (samples(0, 9000), [], r'one utterance or more; their shape is\] \[0 9000\]'),
        (samples(0, 0), [], 'one utterance or more'),
        (samples(2, 0), [0, 0], '400 samples'),
        (samples(2, 0), [], 'a length for each utterance'),
    ],
)
def test_bad_samples_are_an_error_that_says_what_is_wrong(exported, values, lengths, words):
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        request(exported, 'waveform', samples=values, sample_length=lengths)


INFINITE = windows(2, 30, N_FEATURES)
INFINITE[0, 3, 4] = np.inf


@pytest.mark.parametrize(
    'values, lengths, words',
    [
        (windows(2, 30, N_FEATURES), [31, 3], 'from 1 to the steps'),
        (windows(2, 30, N_FEATURES), [0, 3], 'from 1 to the steps'),
        (windows(2, 30, N_FEATURES), [-1, 3], 'from 1 to the steps'),
        (windows(2, 30, N_FEATURES), [3], 'a length for each utterance'),
        (windows(0, 30, N_FEATURES), [], 'at least one step'),
        (windows(2, 0, N_FEATURES), [0, 0], 'at least one step'),
        (INFINITE, [30, 30], 'finite'),
    ],
)
@pytest.mark.parametrize('signature', ['features', 'logits', 'with_length'])
def test_bad_features_are_an_error_that_says_what_is_wrong(
    exported, signature, values, lengths, words
):
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        request(exported, signature, input=values, input_length=lengths)


@pytest.mark.parametrize('shape', [(0, 30), (0, 0), (2, 0)])
def test_an_empty_batch_is_an_error_for_the_notebooks_signature(exported, shape):
    words = r'at least one step; its shape is\] \[%d %d ' % shape
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        request(exported, 'serving_default', input=windows(*shape, N_FEATURES))


def test_no_files_are_an_error(exported):
    with pytest.raises(tf.errors.InvalidArgumentError, match='must hold one file or more'):
        request(exported, 'audio', audio_bytes=[])


def test_the_model_says_what_it_is(exported):
    session, _, path = exported
    with open(path + '/assets.extra/model.json', encoding='utf-8') as file:
        told = json.load(file)
    assert told['features'] == {
        'sample_rate': RATE,
        'n_input': 26,
        'n_context': 2,
        'feature_stride': 1,
        'feature_norm': 'utterance',
        'dynamic_range': 0.0,
    }
    assert ''.join(told['alphabet']) == text.DEFAULT_LABELS
    assert told['network']['n_cell_dim'] == 8 and told['version']
    assert json.loads(session.run('model_description:0')) == told


def test_the_model_brings_a_request_for_each_signature(exported):
    session, signatures, path = exported
    pytest.importorskip('tensorflow_serving', reason='tensorflow-serving-api is not installed')
    from tensorflow_serving.apis import prediction_log_pb2

    seen = []
    for record in tf.io.tf_record_iterator(path + '/assets.extra/tf_serving_warmup_requests'):
        sent = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        name = sent.model_spec.signature_name
        assert set(sent.inputs) == set(signatures[name].inputs)
        request(exported, name, **{key: tf.make_ndarray(sent.inputs[key]) for key in sent.inputs})
        seen.append(name)
    assert sorted(seen) == sorted(set(signatures) - {'__saved_model_init_op'})
