"""Starting from other weights: what is read from which file, what fits, what is loaded and said."""

import logging
import os

import numpy as np
import pytest

import DeepSpeech
from helpers import load_config
from util import errors, text
from util.graph import run_state
from util.run import checkpoint_files, description, warm_start
from util.tf1 import tf

# The paper's network with 6 features, layers of 5, 7, 3, 3 and 8 units, 4 classes
SHAPES = {
    'h1': [6, 5],
    'b1': [5],
    'h2': [5, 7],
    'b2': [7],
    'h3': [7, 3],
    'b3': [3],
    'h4': [3, 3],
    'b4': [3],
    'r4_fw': [3, 3],
    'r4_bw': [3, 3],
    'h5': [3, 8],
    'b5': [8],
    'h6': [8, 4],
    'b6': [4],
}
# The notebook's, which has no vanilla layer 4
LSTM = {
    'bidirectional_rnn/%s/basic_lstm_cell/%s' % (direction, kind): shape
    for direction in ('fw', 'bw')
    for kind, shape in (('kernel', [9, 12]), ('bias', [12]))
}
LSTM_SHAPES = {
    **{name: shape for name, shape in SHAPES.items() if '4' not in name},
    'h3': [7, 6],
    'b3': [6],
    'h5': [6, 8],
    **LSTM,
}
# What the trainer saves besides
NO_WEIGHTS = {
    'global_step': [],
    'beta1_power': [],
    'beta2_power': [],
    'h1/Adam': [6, 5],
    'h1/Adam_1': [6, 5],
    'b6/Adam': [4],
    'run_state/epoch': [],
    'run_state/best_dev_loss': [],
    'accumulated/h1': [6, 5],
    'accumulated/loss_norm': [],
}
DATA = '.data-00000-of-00001'
HEAD = ('weight', 'here', 'there', '')


def values_of(shapes, number=1):
    """Values of which each is there only once, in all files of different numbers."""
    rng = np.random.default_rng(number)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def describe(labels='abc', **values):
    """Description of a model with these characters and settings."""
    return description.describe(load_config(**values), text.Alphabet(labels))


def save(directory, *numbers, shapes=None, described=None):
    """Saves checkpoints model.ckpt-NUMBER; returns their paths."""
    os.makedirs(directory, exist_ok=True)
    shapes, paths = {**(shapes or SHAPES), **NO_WEIGHTS}, []
    with tf.Graph().as_default(), tf.Session() as session:
        variables = {name: tf.get_variable(name, shape) for name, shape in shapes.items()}
        if described:
            run_state.description_variable(description.to_json(described)).initializer.run()
        saver = tf.train.Saver()
        for number in numbers:
            for name, value in values_of(shapes, number).items():
                variables[name].load(value, session)
            paths.append(
                saver.save(
                    session,
                    os.path.join(directory, 'model.ckpt'),
                    global_step=number,
                    write_meta_graph=False,
                )
            )
    return paths


def write_npz(folder, weights, name='weights.npz'):
    np.savez(folder / name, **weights)
    return str(folder / name)


def torchs(ours):
    """Weights under torchaudio's names, transposed."""
    layers = {'fc1.fc': '1', 'fc2.fc': '2', 'fc3.fc': '3', 'fc4.fc': '5', 'out': '6'}
    theirs = {name + '.weight': ours['h' + number].T for name, number in layers.items()}
    theirs.update({name + '.bias': ours['b' + number] for name, number in layers.items()})
    for direction, end in (('fw', ''), ('bw', '_reverse')):
        theirs.update(
            {
                'bi_rnn.weight_ih_l0' + end: ours['h4'].T,
                'bi_rnn.weight_hh_l0' + end: ours['r4_' + direction].T,
                'bi_rnn.bias_ih_l0' + end: ours['b4'],
                'bi_rnn.bias_hh_l0' + end: np.zeros_like(ours['b4']),
            }
        )
    return theirs


def overwrite(path):
    """Random bytes in the place of the file's own, as many as there were."""
    noise = np.random.default_rng(1).bytes(os.path.getsize(path))
    with open(path, 'wb') as file:
        file.write(noise)


def assert_equal(got, expected):
    assert sorted(got) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


def refusal(path, call=warm_start.read):
    """The message of the error that a path gives."""
    with pytest.raises(errors.CheckpointError) as error:
        call(path)
    message = str(error.value)
    assert message.startswith('ds_init_from: ') and '\n' not in message
    return message


# Reading


def test_weights_are_read_from_an_npz_file_with_our_names(tmp_path):
    weights = values_of({**SHAPES, **LSTM})  # slashes in some names
    assert_equal(warm_start.read(write_npz(tmp_path, weights)).weights, weights)


@pytest.mark.parametrize('prefix', ('', 'param/', 'module.'))
def test_weights_are_read_from_an_npz_file_with_torchs_names(tmp_path, prefix):
    weights = values_of(SHAPES)
    theirs = {prefix + name: value for name, value in torchs(weights).items()}
    assert_equal(warm_start.read(write_npz(tmp_path, theirs)).weights, weights)


def test_weights_are_read_from_the_checkpoint_that_is_asked_for(tmp_path):
    for number, path in zip((7, 8, 9), save(str(tmp_path), 7, 8, 9)):
        everything = values_of({**SHAPES, **NO_WEIGHTS}, number)
        assert_equal(warm_start.read(path).weights, {name: everything[name] for name in SHAPES})


def test_weights_are_read_from_the_newest_whole_checkpoint_of_a_folder(tmp_path, caplog):
    paths = save(str(tmp_path), 8, 9, 10)
    assert_equal(warm_start.read(str(tmp_path)).weights, warm_start.read(paths[2]).weights)
    assert not caplog.messages
    overwrite(paths[2] + DATA)
    assert_equal(warm_start.read(str(tmp_path)).weights, warm_start.read(paths[1]).weights)
    assert len(caplog.messages) == 1 and paths[2] in caplog.messages[0]


def test_weights_of_a_checkpoint_of_the_notebook_have_our_names(tmp_path):
    theirs = dict(checkpoint_files.NOTEBOOK_NAMES)
    shapes = {theirs.get(name, name): shape for name, shape in LSTM_SHAPES.items()}
    shapes.update(
        {name + slot: shapes[name] for name in theirs.values() for slot in ('/Adam', '/Adam_1')}
    )
    [path] = save(str(tmp_path), 3, shapes=shapes)
    saved = values_of({**shapes, **NO_WEIGHTS}, 3)
    assert not set(LSTM) & set(saved)
    assert_equal(
        warm_start.read(path).weights, {name: saved[theirs.get(name, name)] for name in LSTM_SHAPES}
    )


def test_what_training_adds_to_a_checkpoint_is_not_among_the_weights(tmp_path):
    config = load_config(
        rnn='vanilla',
        n_input=2,
        n_context=1,
        n_hidden_1=5,
        n_hidden_2=7,
        n_cell_dim=3,
        n_hidden_5=8,
    )
    with tf.Graph().as_default(), tf.Session() as session:
        logits = DeepSpeech.BiRNN(
            tf.ones([1, 4, 6]), tf.constant([4]), config=config, n_character=4
        )
        optimizer, step = DeepSpeech.create_optimizer(config), tf.train.get_or_create_global_step()
        optimizer.minimize(tf.reduce_sum(logits), step)
        tf.get_variable('run_state/epoch', initializer=tf.constant(7), trainable=False)
        tf.get_variable('accumulated/h1', [6, 5], trainable=False)
        run_state.description_variable('{}')
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(
            session, str(tmp_path / 'model.ckpt'), step, write_meta_graph=False
        )
        names = [variable.op.name for variable in tf.global_variables()]
        expected = {v.op.name: session.run(v) for v in tf.trainable_variables()}
    assert {'h1/Adam', 'r4_bw/Adam_1', 'beta1_power', 'beta2_power', 'global_step'} < set(names)
    assert {name: list(value.shape) for name, value in expected.items()} == SHAPES
    assert_equal(warm_start.read(path).weights, expected)


@pytest.mark.parametrize('name', ('absent.npz', 'absent', 'absent/model.ckpt-3', 'model.ckpt-4'))
def test_an_absent_path_is_named(tmp_path, name):
    save(str(tmp_path), 3)
    assert str(tmp_path / name) in refusal(str(tmp_path / name))


def test_a_file_that_is_no_checkpoint_is_named_with_what_was_expected(tmp_path):
    (tmp_path / 'notes.txt').write_text('no weights')
    message = refusal(str(tmp_path / 'notes.txt'))
    assert (
        '%s must be a checkpoint, a folder of checkpoints or an .npz file'
        % (tmp_path / 'notes.txt')
        in message
    )


def test_a_folder_without_checkpoints_is_named(tmp_path):
    (tmp_path / 'notes.txt').write_text('model.ckpt-3')
    assert refusal(str(tmp_path)) == 'ds_init_from: there is no checkpoint in %s' % tmp_path


@pytest.mark.parametrize('content', (b'', b'no weights at all', b'PK\3\4 and no more'))
def test_a_damaged_npz_file_is_named(tmp_path, content):
    (tmp_path / 'weights.npz').write_bytes(content)
    assert str(tmp_path / 'weights.npz') in refusal(str(tmp_path / 'weights.npz'))


def test_a_cut_npz_file_is_named(tmp_path):
    path = write_npz(tmp_path, values_of(SHAPES))
    os.truncate(path, os.path.getsize(path) // 2)
    assert path in refusal(path)


@pytest.mark.parametrize('end', (DATA, '.index'))
def test_a_damaged_checkpoint_is_named(tmp_path, end):
    first, second = save(str(tmp_path), 1, 2)
    overwrite(second + end)
    assert second in refusal(second)
    assert len(warm_start.read(first).weights) == len(SHAPES)


def test_where_every_checkpoint_of_a_folder_is_damaged_each_is_named(tmp_path):
    paths = save(str(tmp_path), 1, 2)
    for path in paths:
        overwrite(path + DATA)
    message = refusal(str(tmp_path))
    assert all(path in message for path in paths) and 'ds_restore_checkpoint' not in message


def test_torchs_weights_that_cannot_be_converted_are_refused_with_the_reason(tmp_path):
    theirs = torchs(values_of(SHAPES))
    missing = {name: value for name, value in theirs.items() if name != 'fc3.fc.bias'}
    assert 'fc3.fc.bias' in refusal(write_npz(tmp_path, missing))
    differ = {**theirs, 'bi_rnn.bias_hh_l0': np.float32([0, -0.5, 0])}
    assert 'biases' in refusal(write_npz(tmp_path, differ))


# Comparing


def test_the_table_says_of_each_weight_what_becomes_of_it():
    shapes = {'h6': [8, 4], 'h1': [6, 5], 'b6': [4], 'h2': [5, 7], 'step': []}
    weights = {
        'z': np.zeros([2, 3]),
        'h1': np.zeros([6, 5]),
        'h6': np.zeros([8, 9]),
        'h2': np.zeros([7, 5]),
        'step': np.zeros([]),
        'a': np.zeros([]),
    }
    assert warm_start.compare(shapes, weights) == (
        [
            HEAD,
            ('h6', '[8, 4]', '[8, 9]', 'not loaded: another shape'),
            ('h1', '[6, 5]', '[6, 5]', 'loaded'),
            ('b6', '[4]', '-', 'not loaded: missing there'),
            ('h2', '[5, 7]', '[7, 5]', 'not loaded: another shape'),
            ('step', '[]', '[]', 'loaded'),
            ('a', '-', '[]', 'not loaded: unknown here'),
            ('z', '-', '[2, 3]', 'not loaded: unknown here'),
        ],
        ['h1', 'step'],
    )


@pytest.mark.parametrize('there', ([5], [5, 6, 1], [1, 5], [6, 5], []))
def test_a_shape_has_to_be_the_very_same(there):
    rows, fitting = warm_start.compare({'h2': [5, 6]}, {'h2': np.zeros(there)})
    assert rows[1:] == [('h2', '[5, 6]', str(there), 'not loaded: another shape')]
    assert fitting == []


@pytest.mark.parametrize(
    'n_labels, h6, b6, outcomes, fitting',
    [
        (None, [8, 6], [6], ['loaded'] * 4, ['h5', 'h6', 'b6', 'b1']),
        (0, [8, 6], [6], ['loaded', *['not loaded: another alphabet'] * 2, 'loaded'], ['h5', 'b1']),
        (
            3,
            [8, 4],
            [4],
            ['loaded', *['loaded: 3 of 5 labels'] * 2, 'loaded'],
            ['h5', 'h6', 'b6', 'b1'],
        ),
        (
            3,
            [7, 4],
            [4],
            ['loaded', 'not loaded: another shape', 'loaded: 3 of 5 labels', 'loaded'],
            ['h5', 'b6', 'b1'],
        ),
        (3, [8, 3], [2], ['loaded', *['not loaded: another shape'] * 2, 'loaded'], ['h5', 'b1']),
    ],
)
def test_the_table_says_what_another_alphabet_means(n_labels, h6, b6, outcomes, fitting):
    shapes = {'h5': [3, 8], 'h6': [8, 6], 'b6': [6], 'b1': [4]}
    weights = {name: np.zeros(shape) for name, shape in {**shapes, 'h6': h6, 'b6': b6}.items()}
    rows, names = warm_start.compare(shapes, weights, n_labels)
    assert [row[3] for row in rows[1:]] == outcomes
    assert names == fitting


def test_nothing_fits_where_there_is_nothing():
    assert warm_start.compare({}, {}) == ([HEAD], [])
    assert warm_start.compare({'b1': [5]}, {})[1] == []
    assert warm_start.compare({}, {'b1': np.zeros(5)})[1] == []


# Loading


class Network:
    """Variables of some shapes with values of their own, in a session."""

    def __init__(self, session, shapes):
        self.session = session
        self.variables = [
            tf.get_variable(name, shape, initializer=tf.random_normal_initializer(seed=1))
            for name, shape in shapes.items()
        ]
        session.run(tf.global_variables_initializer())

    def load(self, path, here=None):
        return warm_start.load(self.session, path, self.variables, here)

    def values(self):
        return {
            v.op.name: value for v, value in zip(self.variables, self.session.run(self.variables))
        }


@pytest.fixture
def network():
    with tf.Graph().as_default(), tf.Session() as session:
        yield Network(session, SHAPES)


@pytest.mark.parametrize('kind', ('ours', 'torchs', 'checkpoint', 'folder'))
def test_load_puts_every_value_into_its_variable(tmp_path, network, kind):
    weights = values_of({**SHAPES, **NO_WEIGHTS}, 3)
    weights = {name: weights[name] for name in SHAPES}
    path = str(tmp_path)
    if kind == 'ours':
        path = write_npz(tmp_path, weights)
    elif kind == 'torchs':
        path = write_npz(tmp_path, torchs(weights))
    else:
        saved = save(path, 3)
        path = saved[0] if kind == 'checkpoint' else path
    network.load(path)
    assert_equal(network.values(), weights)


def test_load_takes_a_checkpoint_of_the_notebook(tmp_path):
    theirs = dict(checkpoint_files.NOTEBOOK_NAMES)
    shapes = {theirs.get(name, name): shape for name, shape in LSTM_SHAPES.items()}
    [path] = save(str(tmp_path), 3, shapes=shapes)
    saved = values_of({**shapes, **NO_WEIGHTS}, 3)
    with tf.Graph().as_default(), tf.Session() as session:
        network = Network(session, LSTM_SHAPES)
        network.load(path)
        values = network.values()
    assert_equal(values, {name: saved[theirs.get(name, name)] for name in LSTM_SHAPES})


def test_load_puts_exactly_what_fits_and_leaves_the_rest_as_it_was(tmp_path, network):
    weights = values_of({**SHAPES, 'h6': [8, 9], 'b6': [9], 'h2': [7, 5], 'more': [3]})
    del weights['r4_fw']
    before = network.values()
    network.load(write_npz(tmp_path, weights))
    kept = ('h6', 'b6', 'h2', 'r4_fw')
    assert_equal(
        network.values(), {name: before[name] if name in kept else weights[name] for name in SHAPES}
    )


def test_load_touches_only_the_variables_it_is_given(tmp_path, network):
    weights, before = values_of(SHAPES), network.values()
    given = [v for v in network.variables if v.op.name in ('h3', 'b5')]
    warm_start.load(network.session, write_npz(tmp_path, weights), given)
    assert_equal(network.values(), {**before, 'h3': weights['h3'], 'b5': weights['b5']})


def test_load_takes_variables_that_have_no_value_yet(tmp_path):
    weights = values_of({'h1': [6, 5]})
    with tf.Graph().as_default(), tf.Session() as session:
        h1, b1 = tf.get_variable('h1', [6, 5]), tf.get_variable('b1', [5])
        warm_start.load(session, write_npz(tmp_path, weights), [h1, b1])
        np.testing.assert_array_equal(session.run(h1), weights['h1'])
        assert session.run(tf.report_uninitialized_variables()).tolist() == [b'b1']


def test_load_takes_values_of_another_precision(tmp_path, network):
    weights = {name: value.astype(np.float64) / 3 for name, value in values_of(SHAPES).items()}
    network.load(write_npz(tmp_path, weights))
    assert_equal(network.values(), {name: np.float32(value) for name, value in weights.items()})


def test_load_adds_no_operation_to_the_graph(tmp_path, network):
    paths = [write_npz(tmp_path, values_of(SHAPES)), *save(str(tmp_path / 'ckpt'), 3)]
    graph = network.session.graph
    count = len(graph.get_operations())
    graph.finalize()  # adding one would be an error
    for path in paths:
        network.load(path)
    assert len(graph.get_operations()) == count


def test_load_logs_the_path_and_the_table_in_columns(tmp_path, caplog):
    path = write_npz(tmp_path, values_of({'h1': [6, 5], 'b1': [12], 'b7': [2]}))
    caplog.set_level(logging.INFO, 'util.run.warm_start')
    with tf.Graph().as_default(), tf.Session() as session:
        Network(session, {'h1': [6, 5], 'r4_fw': [3, 3], 'b1': [5]}).load(path)
    assert caplog.messages == [
        'ds_init_from: weights of ' + path,
        '  weight  here    there',
        '  h1      [6, 5]  [6, 5]  loaded',
        '  r4_fw   [3, 3]  -       not loaded: missing there',
        '  b1      [5]     [12]    not loaded: another shape',
        '  b7      -       [2]     not loaded: unknown here',
    ]
    assert {record.levelno for record in caplog.records} == {logging.INFO}


@pytest.mark.parametrize('there', ({'h1': [5, 6], 'b1': [6]}, {'other': [6, 5]}, {}))
def test_load_refuses_where_nothing_fits_after_the_table(tmp_path, network, caplog, there):
    path = write_npz(tmp_path, values_of(there))
    before = network.values()
    caplog.set_level(logging.INFO, 'util.run.warm_start')
    message = refusal(path, network.load)
    assert message == (
        'ds_init_from: no weight of %s has the name and shape of a weight of this network' % path
    )
    assert len(caplog.messages) == 2 + len({**SHAPES, **there})
    assert_equal(network.values(), before)


def test_load_of_a_damaged_file_leaves_every_variable_as_it_was(tmp_path, network):
    [path] = save(str(tmp_path), 3)
    overwrite(path + DATA)
    before = network.values()
    assert path in refusal(path, network.load)
    assert_equal(network.values(), before)


@pytest.mark.parametrize('value', [np.full([6, 5], np.nan, np.float32), np.full([6, 5], 'abc')])
def test_weights_that_are_no_finite_numbers_are_refused_by_name(tmp_path, value):
    path = write_npz(tmp_path, {'h1': value})
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable('h1', [6, 5])
        with pytest.raises(errors.CheckpointError, match='h1 of .* must hold finite numbers'):
            warm_start.load(session, path, [variable])


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / 'x.npz')
    with pytest.raises(errors.CheckpointError, match='x.npz'):
        warm_start.read(str(tmp_path / 'x.npz'))


def test_the_index_file_stands_for_its_checkpoint(tmp_path):
    [path] = save(str(tmp_path), 3)
    assert set(warm_start.read(path + '.index').weights) == set(warm_start.read(path).weights)


# The description of the other model


def test_a_checkpoint_has_its_description_and_an_npz_file_none(tmp_path):
    described = describe()
    [path] = save(str(tmp_path), 3, described=described)
    [older] = save(str(tmp_path / 'older'), 3)
    assert warm_start.read(path).description == described
    assert warm_start.read(str(tmp_path)).description == described
    assert 'model/description' not in warm_start.read(path).weights
    assert warm_start.read(older).description is None
    assert warm_start.read(write_npz(tmp_path, values_of(SHAPES))).description is None


def test_the_same_features_and_alphabet_load_everything(tmp_path, network):
    [path] = save(str(tmp_path), 3, described=describe(dropout_rate=0.1, importer='csv'))
    assert network.load(path, describe(dropout_rate=0.2, beam_width=7)) == []
    saved = values_of({**SHAPES, **NO_WEIGHTS}, 3)
    assert_equal(network.values(), {name: saved[name] for name in SHAPES})


def test_other_features_are_refused_with_both_values(tmp_path, network):
    [path] = save(str(tmp_path), 3, described=describe(sample_rate=16000, feature_stride=1))
    here = describe(sample_rate=8000, n_input=26, feature_stride=2)
    before = network.values()
    message = refusal(path, lambda path: network.load(path, here))
    assert message == (
        'ds_init_from: %s was trained with other features: ds_sample_rate is 16000 there and 8000 '
        "here; ds_feature_stride is 1 there and 2 here; set these to the model's values" % path
    )
    assert_equal(network.values(), before)


@pytest.mark.parametrize('labels', ('cba', 'abd', 'bc\u00e4'))
def test_another_alphabet_of_the_same_size_keeps_the_output_layer_as_it_was(
    tmp_path, network, caplog, labels
):
    caplog.set_level(logging.INFO, 'util.run.warm_start')
    [path] = save(str(tmp_path), 3, described=describe('abc'))
    before, saved = network.values(), values_of({**SHAPES, **NO_WEIGHTS}, 3)
    assert network.load(path, describe(labels)) == ['h6', 'b6']
    kept = ('h6', 'b6')
    assert_equal(
        network.values(), {name: before[name] if name in kept else saved[name] for name in SHAPES}
    )
    assert (
        "ds_init_from: the alphabet (ds_alphabet) is 'abc' there and %r here" % labels
        in caplog.messages
    )
    for line in caplog.messages[-len(SHAPES) :]:
        end = 'not loaded: another alphabet' if line.split()[0] in kept else ' loaded'
        assert line.endswith(end)


def test_a_shorter_alphabet_keeps_the_output_layer_as_it_was(tmp_path, network):
    shapes = {**SHAPES, 'h6': [8, 6], 'b6': [6]}
    [path] = save(str(tmp_path), 3, shapes=shapes, described=describe('abcde'))
    assert network.load(path, describe('abc')) == ['h6', 'b6']


def test_a_longer_alphabet_keeps_the_known_labels_and_moves_the_blank(tmp_path, caplog):
    caplog.set_level(logging.INFO, 'util.run.warm_start')
    [path] = save(str(tmp_path), 3, described=describe('abc'))
    saved = values_of({**SHAPES, **NO_WEIGHTS}, 3)
    with tf.Graph().as_default(), tf.Session() as session:
        network = Network(session, {**SHAPES, 'h6': [8, 6], 'b6': [6]})
        before = network.values()
        session.graph.finalize()  # it adds no operation either
        assert network.load(path, describe('abcde')) == ['h6', 'b6']
        values = network.values()
    for name in ('h6', 'b6'):
        np.testing.assert_array_equal(values[name][..., :3], saved[name][..., :3])  # a, b, c
        np.testing.assert_array_equal(values[name][..., 3:5], before[name][..., 3:5])  # d, e
        np.testing.assert_array_equal(values[name][..., 5], saved[name][..., 3])  # the blank
    np.testing.assert_array_equal(values['h5'], saved['h5'])
    lines = [line.split(None, 1) for line in caplog.messages[-len(SHAPES) :]]
    [row] = [rest for name, rest in lines if name == 'h6']
    assert row == '[8, 6]  [8, 4]  loaded: 3 of 5 labels'


@pytest.mark.parametrize('there', (None, 'npz'))
def test_without_a_description_shapes_alone_count(tmp_path, network, there):
    saved = values_of({**SHAPES, **NO_WEIGHTS}, 3)
    weights = {name: saved[name] for name in SHAPES}
    path = write_npz(tmp_path, weights) if there else save(str(tmp_path), 3)[0]
    assert network.load(path, describe('xyz', feature_stride=2)) == []
    assert_equal(network.values(), weights)
