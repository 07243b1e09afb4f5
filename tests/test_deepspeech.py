"""Parts of DeepSpeech.py at tiny, unequal sizes; whole runs are in test_train.py."""
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import DeepSpeech
from conftest import load_config, make_corpus, speech, write_wav
from util import audio, config as settings, errors, importers, text

B, T, N_INPUT, N_CONTEXT, N_CHARACTER = 3, 11, 4, 1, 7
SIZES = dict(n_input=N_INPUT, n_context=N_CONTEXT, n_hidden_1=6, n_hidden_2=8, n_hidden_5=9,
             n_cell_dim=5, default_stddev=0.5)
N_FEATURES = N_INPUT * 3


def run(build, feed=None, seed=1):
    """Values of what build() puts into a new graph, its variables initialised."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(seed)
        fetches = build()
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feed)


def batch_x(seed=0):
    return np.random.default_rng(seed).normal(size=(B, T, N_FEATURES)).astype(np.float32)


def logits(x, lengths, **more):
    return lambda: DeepSpeech.BiRNN(tf.constant(x), tf.constant(lengths),
                                    config=load_config(**SIZES), n_character=N_CHARACTER, **more)


def test_logits_are_time_major():
    assert run(logits(batch_x(), [T, T, T])).shape == (T, B, N_CHARACTER)


def test_rank_is_checked_at_the_door():
    with pytest.raises(ValueError, match=r'batch_x must be \[batch, n_steps, n_features\]'):
        run(logits(batch_x()[0], [T]))


def test_padding_changes_no_logits_before_the_end():
    lengths = [11, 7, 2]
    clean, dirty = batch_x(), batch_x()
    for row, length in enumerate(lengths):
        clean[row, length:] = 0
        dirty[row, length:] = 99
    first, second = run(logits(clean, lengths)), run(logits(dirty, lengths))
    alone = run(logits(clean[1:2, :7], [7]))
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(first[:length, row], second[:length, row])
    np.testing.assert_allclose(alone[:, 0], first[:7, 1], atol=1e-6)


def test_order_in_the_batch_does_not_matter():
    x = batch_x()
    forward, backward = run(logits(x, [11, 7, 2])), run(logits(x[::-1], [2, 7, 11]))
    np.testing.assert_allclose(forward[:, ::-1], backward, atol=1e-6)


def test_activation_is_clipped():
    def dense():
        return DeepSpeech._dense(tf.constant([[-1.0], [1.0], [50.0]]), 1, 2,
                                 load_config(b1_stddev=0, h1_stddev=0, relu_clip=20), None)
    with tf.Graph().as_default(), tf.Session() as session:
        y = dense()
        session.run(tf.global_variables_initializer(), {
            v.initial_value: np.ones(v.shape) * (v.op.name == 'h1')
            for v in tf.global_variables()})
        np.testing.assert_array_equal(session.run(y), [[0, 0], [1, 1], [20, 20]])


def test_gradient_of_the_clipped_layer_is_the_automatic_one():
    """4 x 3 -> 5 units: some below 0, some clipped at 0.8, some dropped."""
    rng = np.random.default_rng(1)
    x, weights, bias = [rng.normal(size=shape).astype(np.float32) for shape in
                        ((4, 3), (3, 5), (5,))]
    keep = (rng.random((4, 5)) < 0.8).astype(np.float32)
    d_y = rng.normal(size=(4, 5)).astype(np.float32)

    def build():
        tensors = [tf.constant(value) for value in (x, weights, bias)]
        own = DeepSpeech._clipped_relu(*tensors, 0.8, keep)
        plain = tf.minimum(tf.nn.relu(tf.matmul(*tensors[:2]) + tensors[2]), 0.8) * keep
        return [(y, *tf.gradients(y, tensors, grad_ys=d_y)) for y in (own, plain)]

    own, plain = run(build)
    y = plain[0]
    for there in (y == np.float32(0.8), (y == 0) & (keep > 0), (y > 0) & (y < 0.8)):
        assert there.any()
    for got, expected in zip(own, plain):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_the_ceiling_is_closed_to_gradients_however_it_rounds():
    def build():
        gradients = []
        for ceiling in (20.0, 0.7, 3.3, 1e-3, 12345.67, 20 / 0.95, 0.0):
            x = tf.constant([[2 * ceiling]])
            y = DeepSpeech._clipped_relu(x, tf.ones([1, 1]), tf.zeros([1]), ceiling)
            gradients.append(tf.gradients(y, x)[0])
        return gradients
    assert not np.any(run(build))


def mask(layer=1, step=0, tower=0, training=True, rate=0.25, seed=7, units=50):
    dropout = DeepSpeech.Dropout(tf.constant(training), tf.constant(
        [seed, (step << 16) + (tower << 8)], tf.int64))
    return DeepSpeech._dropout_mask(100, units, rate, layer, dropout)


def test_dropout_depends_on_seed_step_tower_and_layer_alone():
    values = run(lambda: [keep for keep, _ in (
        mask(), mask(), mask(layer=2), mask(step=1), mask(tower=1), mask(seed=8))])
    np.testing.assert_array_equal(values[0], values[1])
    for other in values[2:]:
        assert (values[0] != other).any()


@pytest.mark.parametrize('rate', (0.25, 0.05, 0.9))
def test_dropout_keeps_the_mean_and_is_off_outside_training(rate):
    (keep, scale), off, odd = run(lambda: [mask(rate=rate), mask(rate=rate, training=False),
                                           mask(rate=rate, units=51)[0]])
    assert keep.shape == (100, 50) and odd.shape == (100, 51)
    assert set(np.unique(keep)) == set(np.unique(odd)) == {0, 1}
    assert abs((keep * scale).mean() - 1) < 4 * np.sqrt(rate / (1 - rate) / keep.size)
    assert scale == pytest.approx(1 / (1 - rate), rel=2e-4)  # 16 bits at 0.9
    assert abs(np.corrcoef(keep[:, ::2].ravel(), keep[:, 1::2].ravel())[0, 1]) < 0.06
    np.testing.assert_array_equal(off[0], [[1]])
    assert off[1] == 1


def test_dropout_of_nearly_everything_leaves_something():
    keep, scale = run(lambda: mask(rate=0.999999))
    assert np.isfinite(scale) and set(np.unique(keep)) <= {0, 1}


def test_beam_search_keeps_doubled_letters():
    path = [1, 12, 28, 12, 28]  # a l - l -
    scores = np.full((5, 1, 29), -9, np.float32)
    scores[np.arange(5), 0, path] = 9
    decoded = run(lambda: DeepSpeech.decode(tf.constant(scores), [5], 10))
    assert text.sparse_tensor_value_to_texts(decoded) == ['all']


def test_beam_search_of_a_batch_is_that_of_the_operation():
    """Unequal lengths, and one utterance of nothing but blanks."""
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 4, (11, 4, 29)).astype(np.float32)
    logits[:, 2, 28] = 99
    lengths = [11, 3, 7, 8]
    ours, whole = run(lambda: [
        DeepSpeech.decode(tf.constant(logits), tf.constant(lengths), 20),
        tf.nn.ctc_beam_search_decoder(logits, lengths, beam_width=20, top_paths=1,
                                      merge_repeated=False)[0][0]])
    for got, expected in zip(ours, whole):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    assert 2 not in ours.indices[:, 0] and {0, 1, 3} <= set(ours.indices[:, 0])


def test_beam_search_that_finds_nothing_at_all():
    logits = np.zeros((3, 2, 5), np.float32)
    logits[:, :, 4] = 50
    found = run(lambda: DeepSpeech.decode(tf.constant(logits), tf.constant([3, 2]), 10))
    assert found.indices.shape == (0, 2) and found.dense_shape.tolist() == [2, 0]


def test_gradients_are_weighted_by_the_towers_utterances():
    def build():
        pairs = [[(tf.constant([1.0, 2.0]), 'v'), (tf.constant(3.0), 'w')],
                 [(tf.constant([5.0, 6.0]), 'v'), (tf.constant(7.0), 'w')]]
        averaged = DeepSpeech.average_gradients(pairs, [0.75, 0.25])
        plain = DeepSpeech.average_gradients(pairs)
        assert [name for _, name in averaged] == ['v', 'w']
        return [g for g, _ in averaged], [g for g, _ in plain]
    weighted, plain = run(build)
    np.testing.assert_allclose(weighted[0], [2, 3])
    assert weighted[1] == pytest.approx(4)
    np.testing.assert_allclose(plain[0], [3, 4])


def test_report_has_the_notebooks_form(caplog):
    caplog.set_level('INFO')
    results = (['go', 'turn it on', 'all right', 'stay'], ['no', 'turn on', 'all right', 'stay'],
               [1.0, 0.3, 0.0, 0.0], [5.5, 2.25, 1.0, 9.0])
    wer = DeepSpeech.calculate_and_print_wer_report('Test', results, report_count=2)
    assert wer == pytest.approx(2 / 7)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        'Test WER: 0.285714',
        '-' * 80, '    WER:    0.333333', '    loss:   2.250000',
        '    source: "turn it on"', '    result: "turn on"',
        '-' * 80, '    WER:    1.000000', '    loss:   5.500000',
        '    source: "go"', '    result: "no"']


def test_report_takes_the_lowest_losses(caplog):
    caplog.set_level('INFO')
    results = (['a', 'b', 'c'], ['x', 'y', 'z'], [1.0] * 3, [3.0, 1.0, 2.0])
    DeepSpeech.calculate_and_print_wer_report('Test', results, report_count=2)
    shown = [r.getMessage() for r in caplog.records if 'source' in r.getMessage()]
    assert shown == ['    source: "b"', '    source: "c"']


def test_idle_towers_add_no_results():
    sparse = tf.SparseTensorValue(np.array([[0, 0]]), np.array([1]), np.array([1, 1]))
    tower = DeepSpeech.TowerResult(np.array([2.0]), 2.0, np.array([0.5]), 0.5, sparse, sparse,
                                   (), (), 1)
    results = ([], [], [], [])
    DeepSpeech.collect_results(results, [tower, tower._replace(count=0)], text.Alphabet())
    assert results == (['a'], ['a'], [0.5], [2.0])


def joined(tmp_path, importers='csv,ldc93s1', paths=None):
    make_corpus(tmp_path)
    write_wav(tmp_path / 'ldc' / 'LDC93S1.wav', speech(1.5))
    (tmp_path / 'ldc' / 'LDC93S1.txt').write_text('0 24000 She had it.')
    return load_config(importer=importers, cache_dir=tmp_path / 'cache',
                       dataset_path=paths or '%s,%s' % (tmp_path, tmp_path / 'ldc'),
                       train_files='train.csv', dev_files='dev.csv', test_files='test.csv')


def test_several_importers_are_joined_set_by_set(tmp_path):
    data_sets = importers.read_data_sets(joined(tmp_path), text.Alphabet())
    assert [len(data_set) for data_set in data_sets] == [6, 3, 3]
    assert data_sets.test.examples[-1].transcript == 'she had it'


def test_each_importer_needs_its_path(tmp_path):
    with pytest.raises(errors.ConfigError, match='ds_dataset_path must be as many folders'):
        importers.read_data_sets(joined(tmp_path, paths='one'), text.Alphabet())


def test_unknown_importer_is_named(tmp_path):
    with pytest.raises(errors.ConfigError, match="ds_importer .*librivox.* got 'ldc'"):
        importers.read_data_sets(joined(tmp_path, importers='csv,ldc'), text.Alphabet())


def test_interrupted_export_leaves_no_version(tmp_path, monkeypatch):
    config = load_config(export_dir=tmp_path, **SIZES)

    def fail(self, *arguments, **options):
        raise RuntimeError('disk full')
    monkeypatch.setattr(tf.saved_model.Builder, 'save', fail)
    with tf.Graph().as_default():
        logits(batch_x(), [T, T, T])()
        names = {v.op.name: np.zeros(v.shape, np.float32) for v in tf.global_variables()}
    with pytest.raises(RuntimeError, match='disk full'):
        DeepSpeech.export(config, N_CHARACTER, names)
    assert not [name for name in os.listdir(tmp_path) if name.isdigit()]


def test_importing_defines_and_does_nothing(tmp_path):
    import subprocess
    import sys
    from conftest import PROJECT
    code = ('import os, sys; sys.path.insert(0, %r); before = dict(os.environ)\n'
            'import DeepSpeech, threading\n'
            'assert threading.active_count() == 1\n'
            'assert dict(os.environ) == before' % PROJECT)
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True,
                          text=True, env=dict(os.environ, ds_nonsense='1'))
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == []


# Both graphs from one function

RANDOM = ('Random', 'Uniform', 'Normal', 'Multinomial', 'Shuffle', 'Qr')
QUEUES = ('Queue', 'Dequeue', 'Enqueue')
GRADIENTS = ('Grad', 'Adam', 'CTCLoss', 'EmptyTensorList')


@pytest.fixture(scope='module')
def data_sets(tmp_path_factory):
    folder = make_corpus(tmp_path_factory.mktemp('graphs'))
    config = load_config(train_files=folder / 'train.csv', dev_files=folder / 'dev.csv',
                         test_files=folder / 'test.csv')
    return importers.read_data_sets(config, text.Alphabet())


def types_of(graph, *parts):
    """Types of the operations, those in functions included, that have one of these parts."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function
                                 for node in function.node_def)]
    return {node.op for node in nodes if any(part in node.op for part in parts)}


def small_config(**values):
    return settings.with_towers(load_config(n_hidden=6, dropout_rate=0.3, **values), 0)


@pytest.mark.parametrize('values', [{}, {'rnn': 'vanilla'}, {'rnn_impl': 'block'},
                                    {'recurrent_init': 'orthogonal'}])
def test_training_and_inference_graph_share_every_weight(data_sets, values):
    config = small_config(dropout_rate4=0.2, **values)
    training = DeepSpeech.build_model(config, 29, True, data_sets)
    inference = DeepSpeech.build_model(config, 29, False)
    shapes = [{v.op.name: v.shape.as_list() for v in model.graph.get_collection(key)}
              for model, key in ((training, 'trainable_variables'), (inference, 'variables'))]
    assert shapes[0] == shapes[1] and len(shapes[0]) == 14
    for kind in (RANDOM, QUEUES, GRADIENTS):
        assert types_of(training.graph, *kind)  # so that the names are those that occur
        assert not types_of(inference.graph, *kind)


@pytest.mark.parametrize('values', [{}, {'rnn': 'vanilla'}])
def test_both_graphs_give_the_same_labels(data_sets, values):
    config = small_config(**values)
    training = DeepSpeech.build_model(config, 29, True, data_sets)
    inference = DeepSpeech.build_model(config, 29, False)
    with tf.Session(graph=training.graph) as session:
        session.run([v.initializer for v in training.graph.get_collection('variables')])
        weights = session.run({v.op.name: v for v in
                               training.graph.get_collection('trainable_variables')})
        with data_sets.test.feed(session, n_epochs=1) as feeder:
            [step] = feeder.epoch()
            tower = session.run(DeepSpeech.reports(training.towers) + training.towers, {
                training.selector: step.queue_index,
                training.n_utterances: len(step.examples)})[0]
    expected = [tower.decoded.values[tower.decoded.indices[:, 0] == b].tolist()
                for b in range(len(step.examples))]
    with tf.Session(graph=inference.graph) as session:
        for variable in inference.graph.get_collection('variables'):
            session.run(variable.initializer, {variable.initial_value: weights[variable.op.name]})
        for example, labels in zip(step.examples, expected):
            vector = audio.audiofile_to_input_vector(example.utterance.wav_filename, 26, 9)
            outputs = session.run(inference.outputs, {inference.input: vector[None]})
            assert outputs[0, 0].tolist() == labels and len(labels) > 1


# The paper's network and the settings of layer 4


def initial_values(**values):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        DeepSpeech.BiRNN(tf.zeros([1, 1, 494]), [1], n_character=29,
                         config=load_config(n_hidden=40, **values))
        session.run(tf.global_variables_initializer())
        return session.run({v.op.name: v for v in tf.trainable_variables()})


def assert_orthogonal(matrix):
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=1e-5)


def test_recurrent_weights_are_orthogonal_or_uniform():
    vanilla = initial_values(rnn='vanilla', h4_stddev=0.3)
    for name in ('r4_fw', 'r4_bw'):
        assert_orthogonal(vanilla[name])
    assert np.abs(vanilla['r4_fw'] - vanilla['r4_bw']).max() > 0.1
    assert vanilla['h4'].std() == pytest.approx(0.3, rel=0.1)
    uniform = initial_values(rnn='vanilla', recurrent_init='uniform')['r4_fw']
    assert uniform.std() == pytest.approx(1 / np.sqrt(40), rel=0.1)
    assert np.abs(uniform).max() <= np.sqrt(3 / 40)


def test_an_lstms_gates_are_orthogonal_each_where_that_is_asked_for():
    name = 'bidirectional_rnn/fw/basic_lstm_cell/kernel'
    kernel = initial_values(recurrent_init='orthogonal')[name]
    assert kernel.shape == (80 + 40, 160)
    for gate in np.split(kernel[80:], 4, axis=1):
        assert_orthogonal(gate)
    assert kernel[:80].std() == pytest.approx(1 / np.sqrt(120), rel=0.1)
    assert initial_values()[name].std() == pytest.approx(1 / np.sqrt(120), rel=0.1)


def test_layer_4_has_a_dropout_of_its_own():
    x = batch_x()

    def build(rate, training=True):
        dropout = DeepSpeech.Dropout(tf.constant(training), tf.constant([7, 0], tf.int64))
        return DeepSpeech.BiRNN(tf.constant(x), tf.constant([T] * B), n_character=N_CHARACTER,
                                dropout=dropout, config=load_config(
                                    **SIZES, dropout_rate=0, dropout_rate4=rate))
    without, off, on = (run(lambda a=a: build(*a)) for a in ((0,), (0.5, False), (0.5,)))
    np.testing.assert_array_equal(off, without)
    assert np.abs(on - without).max() > 0.01
