"""Checkpoint files: the newest whole one, what damage looks like, names, geometry, descriptions,
restoring."""

import os
import shutil

import numpy as np
import pytest

from helpers import load_config
from util import errors, text
from util.graph import run_state
from util.run import checkpoint_files, description
from util.tf1 import tf

FW, BW = (('bidirectional_rnn/%s/basic_lstm_cell/' % d) for d in ('fw', 'bw'))
NOTEBOOK_FW, NOTEBOOK_BW = (('BiRNN/%s/BasicLSTMCell/Linear/' % d) for d in ('FW', 'BW'))

# n_features 6, n_hidden_1 7, n_hidden_2 8, n_cell_dim 3 (n_hidden_3 6), n_hidden_5 5, 4 labels
SHAPES = {
    'h1': [6, 7],
    'h2': [7, 8],
    'h3': [8, 6],
    'h5': [6, 5],
    'h6': [5, 4],
    FW + 'kernel': [9, 12],
    FW + 'bias': [12],
    BW + 'kernel': [9, 12],
    BW + 'bias': [12],
}
NOTEBOOK_NAME = {
    FW + 'kernel': NOTEBOOK_FW + 'Matrix',
    FW + 'bias': NOTEBOOK_FW + 'Bias',
    BW + 'kernel': NOTEBOOK_BW + 'Matrix',
    BW + 'bias': NOTEBOOK_BW + 'Bias',
}
NOTEBOOK_SHAPES = {NOTEBOOK_NAME.get(name, name): shape for name, shape in SHAPES.items()}
DATA = '.data-00000-of-00001'


def values_of(shapes, number):
    """Returns values that tell variables and checkpoints apart: the number plus a fraction for
    each name."""
    return {
        name: np.full(shape, number + i / 100, np.float32)
        for i, (name, shape) in enumerate(sorted(shapes.items()))
    }


def save(directory, *numbers, shapes=None, relative=True, described=None):
    """Saves checkpoints model.ckpt-NUMBER as the trainer does, with a value of model/description if
    one is given; returns their paths."""
    os.makedirs(directory, exist_ok=True)
    shapes, paths = shapes or SHAPES, []
    with tf.Graph().as_default(), tf.Session() as session:
        variables = {name: tf.get_variable(name, shape) for name, shape in shapes.items()}
        if described is not None:
            start = tf.constant(
                run_state.encoded(described) if isinstance(described, str) else described
            )
            tf.get_variable(
                'model/description', dtype=start.dtype, initializer=start, trainable=False
            ).initializer.run()
        saver = tf.train.Saver(max_to_keep=5, save_relative_paths=relative)
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


def cut(path, part=0.5):
    """Leaves only the first part of a file."""
    os.truncate(path, int(part * os.path.getsize(path)))


def overwrite(path):
    """Replaces the bytes of a file by as many random ones."""
    noise = np.random.default_rng(1).bytes(os.path.getsize(path))
    with open(path, 'wb') as file:
        file.write(noise)


# Which checkpoints there are


def test_candidates_are_listed_newest_first(tmp_path):
    paths = save(str(tmp_path), 8, 9, 10)
    assert paths == [str(tmp_path / ('model.ckpt-%d' % n)) for n in (8, 9, 10)]
    assert checkpoint_files.candidates(str(tmp_path)) == paths[::-1]


def test_candidates_follow_the_state_file_rather_than_the_numbers(tmp_path):
    first, second = save(str(tmp_path), 30, 4)  # a run that started afresh
    assert checkpoint_files.candidates(str(tmp_path)) == [second, first]


@pytest.mark.parametrize('relative', (True, False))
@pytest.mark.parametrize('old_place', ('kept', 'damaged', 'deleted'))
def test_a_copied_directory_is_used_itself_and_not_the_place_it_came_from(
    tmp_path, relative, old_place
):
    here, there = str(tmp_path / 'here'), str(tmp_path / 'there')
    paths = save(there, 1, 2, relative=relative)
    shutil.copytree(there, here)
    state = (tmp_path / 'here/checkpoint').read_text()
    assert (there in state) == (not relative)
    if old_place == 'damaged':
        for path in paths:
            overwrite(path + DATA)
    elif old_place == 'deleted':
        shutil.rmtree(there)
    expected = [os.path.join(here, 'model.ckpt-%d' % number) for number in (2, 1)]
    assert checkpoint_files.candidates(here) == expected
    assert checkpoint_files.newest_whole(here) == expected[0]


@pytest.mark.parametrize(
    'state',
    (
        None,
        b'',
        b'\xff\xfe\x00garbage',
        b'no state file at all',
        b'all_model_checkpoint_paths: "model.ckpt-9',
    ),
)
def test_without_a_readable_state_file_the_numbers_count(tmp_path, state):
    paths = save(str(tmp_path), 8, 9, 10)  # as text, 9 comes after 10
    if state is None:
        os.remove(tmp_path / 'checkpoint')
    else:
        (tmp_path / 'checkpoint').write_bytes(state)
    assert checkpoint_files.candidates(str(tmp_path)) == paths[::-1]
    assert checkpoint_files.newest_whole(str(tmp_path)) == paths[2]


def test_a_directory_whose_name_has_wildcards_is_searched_itself(tmp_path):
    decoy = save(str(tmp_path / 'run1'), 5)[0]
    paths = save(str(tmp_path / 'run[1]'), 3)
    os.remove(tmp_path / 'run[1]/checkpoint')
    assert checkpoint_files.candidates(str(tmp_path / 'run[1]')) == paths
    assert os.path.exists(decoy + '.index')


def test_there_is_nothing_in_an_empty_or_missing_directory(tmp_path):
    (tmp_path / 'notes.txt').write_text('model.ckpt-3')
    for directory in (str(tmp_path), str(tmp_path / 'missing')):
        assert checkpoint_files.candidates(directory) == []
        assert checkpoint_files.newest_whole(directory) is None


def test_the_best_checkpoint_is_apart_from_the_others(tmp_path):
    paths = save(str(tmp_path), 3)
    best = save(str(tmp_path / checkpoint_files.BEST_DIR), 2)
    os.remove(tmp_path / 'checkpoint')
    assert checkpoint_files.candidates(str(tmp_path)) == paths
    assert checkpoint_files.candidates(str(tmp_path / 'best')) == best


@pytest.mark.parametrize(
    'path, expected',
    [
        ('a/model.ckpt-12', 12),
        ('model.ckpt-0', 0),
        ('run-7/model.ckpt-0030', 30),
        ('run-7/model.ckpt', -1),
        ('model.ckpt-', -1),
        ('model.ckpt-3.index', -1),
        ('', -1),
    ],
)
def test_number_at_the_end_of_a_name(path, expected):
    assert checkpoint_files.number(path) == expected


# Damage

DAMAGES = {
    'data cut to half': lambda path: cut(path + DATA),
    'data cut to nothing': lambda path: cut(path + DATA, 0),
    'data short of one byte': lambda path: os.truncate(
        path + DATA, os.path.getsize(path + DATA) - 1
    ),
    'data overwritten': lambda path: overwrite(path + DATA),
    'data deleted': lambda path: os.remove(path + DATA),
    'index deleted': lambda path: os.remove(path + '.index'),
    'index cut to half': lambda path: cut(path + '.index'),
    'index cut to nothing': lambda path: cut(path + '.index', 0),
    'index overwritten': lambda path: overwrite(path + '.index'),
}


def test_a_whole_checkpoint_is_not_damaged(tmp_path):
    [path] = save(str(tmp_path), 1)
    assert checkpoint_files.damage(path) is None


@pytest.mark.parametrize('kind', DAMAGES)
def test_damage_is_told_in_one_line(tmp_path, kind):
    [path] = save(str(tmp_path), 1)
    DAMAGES[kind](path)
    reason = checkpoint_files.damage(path)
    assert reason and '\n' not in reason


@pytest.mark.parametrize('kind', DAMAGES)
def test_the_one_before_is_taken_where_the_newest_is_damaged_and_that_is_said(
    tmp_path, caplog, kind
):
    paths = save(str(tmp_path), 1, 2, 3)
    DAMAGES[kind](paths[2])
    assert checkpoint_files.newest_whole(str(tmp_path)) == paths[1]
    assert len(caplog.messages) == 1
    assert paths[2] in caplog.messages[0] and 'damaged' in caplog.messages[0]


def test_the_one_before_is_taken_without_a_state_file_too(tmp_path):
    paths = save(str(tmp_path), 1, 2, 3)
    os.remove(tmp_path / 'checkpoint')
    overwrite(paths[2] + DATA)
    assert checkpoint_files.newest_whole(str(tmp_path)) == paths[1]
    os.remove(paths[1] + '.index')
    assert checkpoint_files.newest_whole(str(tmp_path)) == paths[0]


@pytest.mark.parametrize('with_state', (True, False))
def test_where_all_are_damaged_each_is_named(tmp_path, with_state):
    paths = save(str(tmp_path), 1, 2, 3)
    for path, damage in zip(paths, ('data overwritten', 'data deleted', 'index cut to half')):
        DAMAGES[damage](path)
    if not with_state:
        os.remove(tmp_path / 'checkpoint')
    with pytest.raises(errors.CheckpointError) as error:
        checkpoint_files.newest_whole(str(tmp_path))
    message = str(error.value)
    assert all(path in message for path in paths)
    assert 'ds_restore_checkpoint' in message and 'damaged' in message and '\n' not in message


# Names


def test_variables_are_found_by_our_names_and_by_the_notebooks(tmp_path):
    (ours,) = save(str(tmp_path / 'ours'), 1)
    (theirs,) = save(
        str(tmp_path / 'theirs'),
        1,
        shapes=dict(
            NOTEBOOK_SHAPES,
            **{NOTEBOOK_FW + 'Matrix/Adam': [9, 12], NOTEBOOK_BW + 'Bias/Adam_1': [12]},
        ),
    )
    our_reader, their_reader = (tf.train.load_checkpoint(path) for path in (ours, theirs))
    for name in SHAPES:
        assert checkpoint_files.name_in(our_reader, name) == name
    assert checkpoint_files.name_in(their_reader, 'h1') == 'h1'
    for name, theirs in NOTEBOOK_NAME.items():
        assert checkpoint_files.name_in(their_reader, name) == theirs
    assert checkpoint_files.name_in(their_reader, FW + 'kernel/Adam') == NOTEBOOK_FW + 'Matrix/Adam'
    assert checkpoint_files.name_in(their_reader, BW + 'bias/Adam_1') == NOTEBOOK_BW + 'Bias/Adam_1'


def test_a_variable_that_the_checkpoint_lacks_has_no_name_in_it(tmp_path):
    [path] = save(str(tmp_path), 1, shapes=NOTEBOOK_SHAPES)
    reader = tf.train.load_checkpoint(path)
    for name in ('global_step', 'h4', FW + 'kernel/Adam', FW + 'kernels', 'run_state/epoch'):
        assert checkpoint_files.name_in(reader, name) is None


# Geometry


def test_widths_are_read_from_the_shapes():
    geometry = checkpoint_files.geometry_of(SHAPES)
    by_setting = {name: units for name, units in geometry.items() if name.startswith('ds_')}
    assert by_setting == {
        'ds_rnn': 'lstm',
        'ds_n_hidden_1': 7,
        'ds_n_hidden_2': 8,
        'ds_n_cell_dim': 3,
        'ds_n_hidden_5': 5,
        'ds_layer_norm': False,
    }
    [features] = [units for name, units in geometry.items() if 'ds_n_context' in name]
    [labels] = [units for name, units in geometry.items() if 'ds_alphabet' in name]
    assert (features, labels, len(geometry)) == (6, 4, 8)


@pytest.mark.parametrize('shapes', (SHAPES, NOTEBOOK_SHAPES))
def test_the_same_geometry_passes(tmp_path, shapes):
    [path] = save(str(tmp_path), 1, shapes=shapes)
    checkpoint_files.check_geometry(path, checkpoint_files.geometry_of(SHAPES))


@pytest.mark.parametrize('shapes', (SHAPES, NOTEBOOK_SHAPES))
@pytest.mark.parametrize(
    'variable, wanted, setting, there, here',
    [
        ('h1', [6, 70], 'ds_n_hidden_1', 7, 70),
        ('h2', [7, 80], 'ds_n_hidden_2', 8, 80),
        ('h5', [6, 50], 'ds_n_hidden_5', 5, 50),
        ('h6', [5, 40], 'ds_alphabet', 4, 40),
        ('h1', [60, 7], 'ds_n_context', 6, 60),
        (FW + 'kernel', [9, 120], 'ds_n_cell_dim', 3, 30),
    ],
)
def test_another_geometry_is_an_error_with_both_values(
    tmp_path, shapes, variable, wanted, setting, there, here
):
    [path] = save(str(tmp_path), 1, shapes=shapes)
    with pytest.raises(errors.CheckpointError) as error:
        checkpoint_files.check_geometry(
            path, checkpoint_files.geometry_of(dict(SHAPES, **{variable: wanted}))
        )
    message = str(error.value)
    assert path in message and setting in message and '\n' not in message
    assert '%d there and %d here' % (there, here) in message
    assert message.count(' there and ') == 1  # the widths that agree are not named


def test_a_network_with_layer_normalisation_is_another_one(tmp_path):
    normalised = dict(SHAPES, **{'layer_norm_1/gain': [7], 'layer_norm_1/bias': [7]})
    [path] = save(str(tmp_path), 1, shapes=normalised)
    checkpoint_files.check_geometry(path, checkpoint_files.geometry_of(normalised))
    with pytest.raises(errors.CheckpointError, match='ds_layer_norm is on there and off here'):
        checkpoint_files.check_geometry(path, checkpoint_files.geometry_of(SHAPES))


def test_all_widths_that_differ_are_named(tmp_path):
    [path] = save(str(tmp_path), 1)
    asked_for = dict(SHAPES, h1=[6, 32], h2=[32, 48])
    with pytest.raises(errors.CheckpointError) as error:
        checkpoint_files.check_geometry(path, checkpoint_files.geometry_of(asked_for))
    assert 'ds_n_hidden_1 is 7 there and 32 here' in str(error.value)
    assert 'ds_n_hidden_2 is 8 there and 48 here' in str(error.value)


def test_a_checkpoint_of_another_network_is_refused_by_name(tmp_path):
    [path] = save(str(tmp_path), 1, shapes={'conv1': [3, 3], 'h1': [6, 7]})
    with pytest.raises(errors.CheckpointError) as error:
        checkpoint_files.check_geometry(path, checkpoint_files.geometry_of(SHAPES))
    assert path in str(error.value)
    assert checkpoint_files.geometry_of({'h1': [6, 7]}) is None


# Descriptions


def settings_of_shapes(directory, **values):
    """Returns the Config of a network with the widths of SHAPES, whose alphabet has 3 labels."""
    widths = dict(n_hidden_1=7, n_hidden_2=8, n_cell_dim=3, n_hidden_5=5)
    features = dict(n_input=2, n_context=1)
    return load_config(**{**widths, **features, 'checkpoint_dir': directory, **values})


def save_described(directory, labels='abc', **values):
    """Saves model.ckpt-6 of a run with these characters and settings; returns its path."""
    config = settings_of_shapes(directory, **values)
    described = description.describe(config, text.Alphabet(labels))
    return save(str(directory), 6, described=description.to_json(described))[0]


def refusal(directory, labels='abc', **values):
    """Returns the message with which a run with these settings refuses the newest checkpoint."""
    with pytest.raises(errors.CheckpointError) as error:
        checkpoint_files.check_newest(
            settings_of_shapes(directory, **values), text.Alphabet(labels)
        )
    assert '\n' not in str(error.value)
    return str(error.value)


def test_a_checkpoint_has_the_description_of_its_model(tmp_path):
    described = description.describe(load_config(feature_stride=2), text.Alphabet('a\u00e4\u4e2d'))
    [path] = save(str(tmp_path), 1, described=description.to_json(described))
    assert checkpoint_files.damage(path) is None
    assert checkpoint_files.description(path) == described


@pytest.mark.parametrize('shapes', (SHAPES, NOTEBOOK_SHAPES))
def test_an_older_checkpoint_has_no_description(tmp_path, caplog, shapes):
    [path] = save(str(tmp_path), 1, shapes=shapes)
    assert checkpoint_files.description(path) is None
    assert not caplog.messages


@pytest.mark.parametrize('content', ('', '{"alphabet": ["a"', '[]', '{}', b'\xff{}', 7, ['{}']))
def test_a_damaged_description_is_said_and_not_used(tmp_path, caplog, content):
    [path] = save(str(tmp_path), 1, described=content)
    assert checkpoint_files.description(path) is None
    assert caplog.messages == [
        '%s: the description of the model is damaged, and is not used' % path
    ]


def test_a_description_is_neither_a_weight_nor_part_of_the_geometry(tmp_path):
    path = save_described(tmp_path)
    reader = tf.train.load_checkpoint(path)
    assert reader.has_tensor('model/description')
    assert checkpoint_files.weights_in(reader) == [(name, name) for name in sorted(SHAPES)]
    assert checkpoint_files.of_the_run('model/description')
    assert not checkpoint_files.of_the_run('h1')
    geometry = checkpoint_files.geometry_of(SHAPES)
    assert checkpoint_files.geometry_of({**SHAPES, 'model/description': []}) == geometry


def test_the_same_features_and_alphabet_pass(tmp_path):
    save_described(tmp_path, dropout_rate=0.1, beam_width=50)
    checkpoint_files.check_newest(settings_of_shapes(tmp_path), text.Alphabet('abc'))


def test_another_frame_step_is_an_error_with_both_values(tmp_path):
    path = save_described(tmp_path)
    assert refusal(tmp_path, feature_stride=2) == (
        'ds_restore_checkpoint: %s was trained with other features: ds_feature_stride is 1 there '
        "and 2 here; set these to the checkpoint's values, or use another ds_checkpoint_dir" % path
    )


@pytest.mark.parametrize(
    'values, words',
    [
        ({'sample_rate': 8000}, ['ds_sample_rate is 16000 there and 8000 here']),
        # of the same width, 6
        (
            {'n_input': 6, 'n_context': 0},
            ['ds_n_input is 2 there and 6 here', 'ds_n_context is 1 there and 0 here'],
        ),
        # of another width
        ({'n_input': 4, 'n_hidden_1': 70}, ['ds_n_input is 2 there and 4 here']),
    ],
)
def test_other_features_are_an_error_with_all_settings_and_both_values(tmp_path, values, words):
    path = save_described(tmp_path)
    message = refusal(tmp_path, **values)
    assert message.startswith(
        'ds_restore_checkpoint: %s was trained with other features: %s; set these'
        % (path, '; '.join(words))
    )


@pytest.mark.parametrize('labels', ('cba', 'abd', 'abcd', 'ab'))
def test_another_alphabet_is_an_error_with_both(tmp_path, labels):
    path = save_described(tmp_path)
    assert refusal(tmp_path, labels).startswith(
        'ds_restore_checkpoint: %s was trained with another alphabet: the alphabet (ds_alphabet) '
        "is 'abc' there and %r here; set these" % (path, labels)
    )


def test_features_and_alphabet_are_named_in_one_error(tmp_path):
    path = save_described(tmp_path)
    assert refusal(tmp_path, 'abd', feature_stride=3).startswith(
        'ds_restore_checkpoint: %s was trained with other features and another alphabet: '
        'ds_feature_stride is 1 there and 3 here; the alphabet (ds_alphabet) '
        "is 'abc' there and 'abd' here; set these" % path
    )


def test_a_copied_and_renamed_folder_still_knows(tmp_path):
    save_described(tmp_path / 'old')
    os.rename(tmp_path / 'old', tmp_path / 'new')
    os.remove(tmp_path / 'new' / 'checkpoint')
    assert str(tmp_path / 'new' / 'model.ckpt-6') in refusal(tmp_path / 'new', feature_stride=2)


@pytest.mark.parametrize('described', (None, 'damaged'))
def test_without_a_description_the_geometry_alone_counts(tmp_path, described):
    save(str(tmp_path), 6, described=described)
    other = settings_of_shapes(tmp_path, feature_stride=2, sample_rate=8000)
    checkpoint_files.check_newest(other, text.Alphabet('xyz'))
    assert 'another geometry: n_character' in refusal(tmp_path, 'abcd')


def test_with_a_description_the_geometry_counts_as_well(tmp_path):
    save_described(tmp_path)
    assert 'another geometry: ds_n_hidden_1 is 7 there and 70 here' in refusal(
        tmp_path, n_hidden_1=70
    )


def test_a_damaged_state_file_is_said(tmp_path, caplog):
    path = save_described(tmp_path)
    checkpoint_files.check_newest(settings_of_shapes(tmp_path), text.Alphabet('abc'))
    assert not caplog.messages
    (tmp_path / 'checkpoint').write_bytes(bytes(10))
    checkpoint_files.check_newest(settings_of_shapes(tmp_path), text.Alphabet('abc'))
    assert caplog.messages == [
        '%s/checkpoint is damaged; the newest checkpoint by its number is %s' % (tmp_path, path)
    ]


def test_without_a_checkpoint_there_is_nothing_to_check(tmp_path):
    checkpoint_files.check_newest(settings_of_shapes(tmp_path), text.Alphabet('abc'))


@pytest.mark.parametrize('name', ('h1', 'h6', FW + 'kernel'))
def test_a_checkpoint_of_something_else_is_refused(tmp_path, name):
    [path] = save(str(tmp_path), 6, shapes={**SHAPES, name: [12]})
    assert refusal(tmp_path) == '%s is not a checkpoint of this network' % path


# Restoring


@pytest.mark.parametrize('saved', (SHAPES, NOTEBOOK_SHAPES))
def test_restore_brings_back_every_value_and_returns_what_is_missing(tmp_path, saved):
    path = save(str(tmp_path), 1, 2, shapes=saved)[0]
    with tf.Graph().as_default(), tf.Session() as session:
        variables = {name: tf.get_variable(name, shape) for name, shape in SHAPES.items()}
        extra = tf.get_variable('run_state/epoch', trainable=False, initializer=tf.constant(7))
        session.run(tf.global_variables_initializer())
        missing = checkpoint_files.restore(session, path, tf.global_variables())
        assert missing == [extra]
        assert session.run(extra) == 7
        restored = session.run(variables)
    expected = values_of(saved, 1)
    for name in SHAPES:
        there = name if saved is SHAPES else NOTEBOOK_NAME.get(name, name)
        np.testing.assert_array_equal(restored[name], expected[there])


def test_a_missing_weight_is_an_error(tmp_path):
    [path] = save(str(tmp_path), 3, shapes={k: v for k, v in SHAPES.items() if k != 'h2'})
    with tf.Graph().as_default(), tf.Session() as session:
        variables = [tf.get_variable(name, shape) for name, shape in SHAPES.items()]
        with pytest.raises(errors.CheckpointError, match='lacks the weights h2'):
            checkpoint_files.restore(session, path, variables)


def test_restore_touches_only_the_variables_it_is_given(tmp_path):
    [path] = save(str(tmp_path), 3)
    with tf.Graph().as_default(), tf.Session() as session:
        h1, h2 = tf.get_variable('h1', [6, 7]), tf.get_variable('h2', [7, 8])
        session.run(tf.global_variables_initializer())
        before = session.run(h2)
        assert checkpoint_files.restore(session, path, [h1]) == []
        np.testing.assert_array_equal(session.run(h1), values_of(SHAPES, 3)['h1'])
        np.testing.assert_array_equal(session.run(h2), before)
