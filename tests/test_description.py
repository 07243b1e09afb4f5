"""The description of a model: what is in it, how two differ, and what runs make of that."""

import json
import os
import shutil

import numpy as np
import pytest

from helpers import load_config, make_corpus
from runs import fails, final_line, run_deepspeech, started, weights_of
from util import text
from util.run import checkpoint_files, description
from util.tf1 import tf


def describe(labels='abc', **values):
    return description.describe(load_config(**values), text.Alphabet(labels))


# What is in it


def test_it_has_the_alphabet_the_features_and_the_network():
    described = describe(
        'a\u00e4', n_input=4, n_context=1, n_hidden=6, n_cell_dim=5, feature_stride=2, beam_width=7
    )
    assert described['alphabet'] == ['a', '\u00e4']
    assert described['features'] == {
        'sample_rate': 16000,
        'n_input': 4,
        'n_context': 1,
        'feature_stride': 2,
        'feature_norm': 'utterance',
        'dynamic_range': 0.0,
    }
    assert described['network'] == {
        'rnn': 'lstm',
        'n_hidden_1': 6,
        'n_hidden_2': 6,
        'n_hidden_5': 6,
        'n_cell_dim': 5,
        'relu_clip': 20.0,
        'layer_norm': False,
    }
    assert (described['corpus'], described['beam_width']) == ('csv', 7)


def test_its_settings_make_a_network_of_the_same_description():
    first = describe(
        rnn='vanilla', sample_rate=8000, n_hidden=6, n_hidden_2=9, relu_clip=7.5, layer_norm=1
    )
    values = description.settings_of(first)
    again = describe(**{name.removeprefix('ds_'): value for name, value in values.items()})
    for part in ('features', 'network'):
        assert again[part] == first[part]


def test_a_model_of_an_older_version_has_the_notebooks_normalisation():
    older, here = describe(), describe(feature_norm='coefficient')
    del older['features']['feature_norm']
    assert description.feature_differences(older, describe()) == []
    words = ['ds_feature_norm is %s there and %s here']
    names = ('utterance', 'coefficient')
    assert description.feature_differences(older, here) == [words[0] % names]
    assert description.feature_differences(here, older) == [words[0] % names[::-1]]


def test_json_keeps_it():
    described = describe('a\u00e4\u4e2d\u0301 \\"')
    content = description.to_json(described)
    assert '\n' not in content
    assert description.from_json(content) == described
    assert description.from_json(content.encode()) == described


@pytest.mark.parametrize(
    'content',
    (
        '',
        'no JSON',
        b'\xff',
        '[' * 10**6,
        '7',
        '[]',
        '{}',
        {'alphabet': None},
        {'alphabet': 'abc'},
        {'alphabet': [1, 2]},
        {'features': [16000]},
        {'network': None},
    ),
)
def test_damaged_json_is_no_description(content):
    if isinstance(content, dict):
        content = json.dumps({**describe(), **content})
    assert description.from_json(content) is None


def test_parts_that_a_version_does_not_know_are_no_damage():
    described = {**describe(), 'licence': 'unknown'}
    del described['beam_width']
    assert description.from_json(description.to_json(described)) == described


# How two differ


def test_features_that_differ_are_named_with_both_values():
    there = describe(sample_rate=16000, n_input=26, n_context=9, beam_width=5)
    here = describe(sample_rate=8000, n_input=26, n_context=9, feature_stride=2)
    assert description.feature_differences(there, there) == []
    assert description.feature_differences(there, here) == [
        'ds_sample_rate is 16000 there and 8000 here',
        'ds_feature_stride is 1 there and 2 here',
    ]


def test_a_feature_that_one_version_lacks_is_no_difference():
    there, here = describe(), describe(n_context=8)
    del there['features']['feature_stride']
    there['features']['later'] = 3
    assert description.feature_differences(there, here) == ['ds_n_context is 9 there and 8 here']


@pytest.mark.parametrize(
    'there, here, expected',
    [
        ('abc', 'abc', None),
        ('abc', 'acb', "is 'abc' there and 'acb' here"),
        ('abc', 'abcd', "is 'abc' there and 'abcd' here"),
        ('ab', "a'", "is 'ab' there and \"a'\" here"),
    ],
)
def test_alphabets_are_compared_in_their_order(there, here, expected):
    difference = description.alphabet_difference(describe(there), describe(here))
    assert difference == (expected and 'the alphabet (ds_alphabet) ' + expected)


@pytest.mark.parametrize(
    'there, here, expected',
    [([], ['x'], ('', 'x')), (['x'], [], ('x', '')), (['x', 'y'], ['z', 'y'], ('xy', 'zy'))],
)
def test_long_alphabets_are_shown_from_where_they_differ(there, here, expected):
    same = [chr(0x4E00 + i) for i in range(3000)]
    difference = description.alphabet_difference(describe(same + there), describe(same + here))
    shown = 'the alphabet (ds_alphabet) from label 3000 on is %r there and %r here' % expected
    assert difference == shown
    whole = description.alphabet_difference(describe('ab'), describe(same))
    assert whole == 'the alphabet (ds_alphabet) is %r there and %r here' % (
        'ab',
        ''.join(same[: description.SHOWN_LABELS]),
    )


@pytest.mark.parametrize(
    'there, here, expected',
    [('abc', 'abc', None), ('abc', 'abcde', 3), ('abc', 'bacde', 0), ('abc', 'ab', 0)],
)
def test_labels_are_kept_that_have_the_same_place(there, here, expected):
    assert description.labels_kept(describe(there), describe(here)) == expected
    assert description.labels_kept(None, describe(here)) is None
    assert description.labels_kept(describe(there), None) is None


# Whole runs

OTHER_FEATURES = [
    ({'feature_stride': 2}, ['ds_feature_stride is 1 there and 2 here']),
    ({'sample_rate': 8000, 'n_input': 26}, ['ds_sample_rate is 16000 there and 8000 here']),
    (
        {'n_input': 13, 'n_context': 18},
        ['ds_n_input is 26 there and 13 here', 'ds_n_context is 9 there and 18 here'],
    ),
]


def write_alphabet(path, labels):
    path.write_text('\n'.join(labels) + '\n')


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A corpus, alphabet files, and a run of one epoch on it; not to be changed."""
    folder = make_corpus(tmp_path_factory.mktemp('trained'))
    write_alphabet(folder / 'same.txt', text.DEFAULT_LABELS)
    write_alphabet(folder / 'turned.txt', text.DEFAULT_LABELS[::-1])
    write_alphabet(folder / 'longer.txt', text.DEFAULT_LABELS + '\u00e4\u00f6')
    run = run_deepspeech(folder, epochs=1, dropout_rate=0)
    assert run.returncode == 0, run.stdout
    return folder, run


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the folder of `trained`, whose checkpoints are in `renamed`."""
    folder = tmp_path / 'copy'
    shutil.copytree(trained[0], folder)
    os.rename(folder / 'ckpt', folder / 'renamed')
    return folder


def description_in(folder):
    path = checkpoint_files.newest_whole(str(folder))
    return checkpoint_files.description(path)


@pytest.mark.run
@pytest.mark.parametrize('epochs', (0, 3))
@pytest.mark.parametrize('values, words', OTHER_FEATURES)
def test_a_checkpoint_of_other_features_is_neither_tested_nor_resumed(
    trained, epochs, values, words
):
    run = run_deepspeech(trained[0], restore_checkpoint=1, epochs=epochs, **values)
    fails(run, 'ds_restore_checkpoint: ckpt/model.ckpt-3 was trained with other features', *words)


@pytest.mark.run
def test_weights_of_other_features_are_not_loaded(trained, tmp_path):
    values, words = OTHER_FEATURES[0]
    run = run_deepspeech(
        trained[0], init_from='ckpt', checkpoint_dir=tmp_path / 'new', epochs=1, **values
    )
    fails(run, 'ds_init_from: ckpt was trained with other features', *words)


@pytest.mark.run
def test_a_renamed_checkpoint_folder_still_knows_alphabet_and_features(copied):
    run = run_deepspeech(
        copied,
        restore_checkpoint=1,
        epochs=0,
        checkpoint_dir='renamed',
        alphabet='turned.txt',
        feature_stride=2,
    )
    fails(
        run,
        'renamed/model.ckpt-3 was trained with other features and another alphabet',
        'ds_feature_stride is 1 there and 2 here',
        'the alphabet (ds_alphabet) is %r there and %r here'
        % (text.DEFAULT_LABELS, text.DEFAULT_LABELS[::-1]),
    )


@pytest.mark.run
def test_an_alphabet_file_with_the_same_characters_is_the_same_alphabet(trained):
    run = run_deepspeech(trained[0], restore_checkpoint=1, epochs=0, alphabet='same.txt')
    assert run.returncode == 0, run.stdout
    assert final_line(run.stdout) == final_line(trained[1].stdout)


@pytest.mark.run
def test_a_resumed_run_describes_itself_in_the_next_checkpoint(copied):
    before = description_in(copied / 'renamed')
    values = dict(restore_checkpoint=1, checkpoint_dir='renamed', beam_width=50, epochs=2)
    run = run_deepspeech(copied, num_tries=5, go_back=1, **values)
    assert run.returncode == 0 and started(run.stdout) == [2], run.stdout
    after = description_in(copied / 'renamed')
    assert (before['beam_width'], after['beam_width']) == (100, 50)
    assert before['created'] < after['created']
    for part in ('alphabet', 'features', 'network', 'corpus'):
        assert after[part] == before[part]


@pytest.mark.run
def test_a_checkpoint_of_an_older_version_without_a_description_resumes(copied):
    values = weights_of(checkpoint_files.newest_whole(str(copied / 'renamed')))
    del values['model/description']
    with tf.Graph().as_default(), tf.Session() as session:
        variables = [
            tf.get_variable(name, initializer=np.asarray(value)) for name, value in values.items()
        ]
        session.run([v.initializer for v in variables])
        path = str(copied / 'older' / 'model.ckpt')
        os.mkdir(copied / 'older')
        tf.train.Saver(save_relative_paths=True).save(session, path, 3, write_meta_graph=False)
    run = run_deepspeech(copied, restore_checkpoint=1, checkpoint_dir='older', epochs=2)
    assert run.returncode == 0 and started(run.stdout) == [2], run.stdout
    assert 'restored older/model.ckpt-3: 1 epochs done' in run.stdout
    assert description_in(copied / 'older')['features']['feature_stride'] == 1


@pytest.mark.run
def test_a_longer_alphabet_begins_with_the_known_labels(copied):
    values = dict(init_from='renamed', alphabet='longer.txt')
    run = run_deepspeech(copied, epochs=1, learning_rate=0, checkpoint_dir='new', **values)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count('loaded: 28 of 30 labels') == 2
    assert 'not loaded' not in run.stdout
    old, new = weights_of(copied / 'renamed'), weights_of(copied / 'new')
    for name in ('h6', 'b6'):
        np.testing.assert_array_equal(new[name][..., :28], old[name][..., :28])
        np.testing.assert_array_equal(new[name][..., -1], old[name][..., -1])
    assert new['h6'].shape == (32, 31)
    refused = run_deepspeech(copied, epochs=0, checkpoint_dir='none', **values)
    fails(refused, 'ds_training_iters=0', 'renamed lacks h6, b6')


@pytest.mark.run
def test_weights_of_another_alphabet_are_loaded_without_the_output_layer(copied):
    values = dict(init_from='renamed', alphabet='turned.txt')
    run = run_deepspeech(copied, epochs=1, checkpoint_dir='new', **values)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count('not loaded: another alphabet') == 2
    fails(
        run_deepspeech(copied, epochs=0, checkpoint_dir='none', **values),
        'ds_training_iters=0',
        'renamed lacks h6, b6',
    )
