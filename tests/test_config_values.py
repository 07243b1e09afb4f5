"""Settings: which values they take, files of settings, lists, what fits together, the help."""

import dataclasses
import re

import pytest

from config_helpers import FIELDS, error_of, file_error, load, write_json
from helpers import load_config
from util import config as settings, errors

SWITCHES = [name for name, field in FIELDS.items() if field.type is bool]
NUMBERS = [name for name, field in FIELDS.items() if field.type in (int, float)]

# Values


@pytest.mark.parametrize('name', SWITCHES)
@pytest.mark.parametrize(
    'words, on',
    [
        (('1', 'true', 'True', 'TRUE', 'yes', 'Yes', 'YES', 'on', 'On', 'ON', ' on '), True),
        (('', '0', 'false', 'False', 'FALSE', 'no', 'No', 'NO', 'off', 'Off', 'OFF', ' '), False),
    ],
)
def test_switch_words(name, words, on):
    for word in words:
        assert getattr(load({'ds_' + name: word})[0], name) is on, word


@pytest.mark.parametrize('name', SWITCHES)
def test_other_words_are_no_switch(name):
    for word in ('maybe', '2', '-1', '00', 'y', 'truee', '1.0', 'None'):
        message = error_of({'ds_' + name: word})
        assert message.startswith('ds_%s must be on or off' % name) and repr(word) in message


@pytest.mark.parametrize('name', NUMBERS)
def test_no_number(name):
    for word in ('ten', '', ' ', '1,5', '0x10', '1 2', 'nan', 'inf', '-inf', 'true', '--1'):
        message = error_of({'ds_' + name: word})
        kind = 'an integer' if FIELDS[name].type is int else 'a number'
        assert message.startswith('ds_%s must be %s' % (name, kind))
        assert message.endswith('got %r' % word)


@pytest.mark.parametrize('name', [name for name in NUMBERS if name != 'lm_beta'])
def test_negative_number(name):
    for word in ('-1', '-0.5', '-1e-9'):
        assert repr(word) in error_of({'ds_' + name: word})


@pytest.mark.parametrize('name', [name for name in NUMBERS if FIELDS[name].type is int])
def test_fraction_is_no_integer(name):
    for word in ('1.5', '1.0', '1e1'):
        assert 'ds_%s must be an integer' % name in error_of({'ds_' + name: word})


@pytest.mark.parametrize(
    'name, inside, outside',
    [
        ('training_iters', '0 1 1000', '-1'),
        ('batch_size', '1 512 1000000', '0 -1 1000001 1073741824'),
        ('train_batch_size', '1', '0 1073741824'),
        ('dev_batch_size', '1', '0 1073741824'),
        ('test_batch_size', '1', '0 1073741824'),
        ('limit_train', '0 5', '-1'),
        ('limit_dev', '0', '-1'),
        ('limit_test', '0', '-1'),
        ('display_step', '0 1', '-1'),
        ('validation_step', '0', '-1'),
        ('checkpoint_step', '0', '-1'),
        ('report_count', '0', '-1'),
        ('beam_width', '1 100000', '0 100001'),
        ('random_seed', '0 2147483647', '-1'),
        ('random_seed', '1', '2147483648'),
        ('towers', '0 8', '-1'),
        ('n_input', '1 26', '0 27'),
        ('n_context', '0 9', '-1'),
        ('feature_stride', '1 2', '0'),
        ('n_hidden', '1 100000', '0 100001'),
        ('n_hidden_1', '1', '0'),
        ('n_hidden_2', '1', '0'),
        ('n_hidden_5', '1', '0'),
        ('n_cell_dim', '1', '0'),
        ('sample_rate', '8000 48000', '0 -8000'),
        ('learning_rate', '1e-5 .5 1e30', '-0.001'),
        ('beta1', '0 0.99', '1 1.5'),
        ('beta2', '0 0.9999', '1'),
        ('epsilon', '1e-8', '-1e-8'),
        ('dropout_rate', '0 0.999', '1 1.1'),
        ('dropout_rate2', '0 .9', '1'),
        ('dropout_rate3', '0', '1'),
        ('dropout_rate5', '0', '1'),
        ('relu_clip', '0.5 20', '-1'),
        ('default_stddev', '0 0.046875', '-0.1'),
        ('h5_stddev', '0 1', '-0.1'),
    ],
)
def test_range(name, inside, outside):
    for word in inside.split():
        assert getattr(load({'ds_' + name: word})[0], name) == float(word)
    for word in outside.split():
        message = error_of({'ds_' + name: word})
        assert message.startswith('ds_%s must be ' % name) and message.endswith('got %r' % word)


def test_messages_say_what_is_expected():
    assert error_of({'ds_epochs': 'ten'}) == (
        "ds_epochs must be an integer of at least 0, got 'ten'"
    )
    assert error_of({'ds_n_input': '27'}) == (
        "ds_n_input must be an integer from 1 to 26, got '27'"
    )
    assert error_of({'ds_beta1': '1'}) == (
        "ds_beta1 must be a number of at least 0.0 and below 1.0, got '1'"
    )
    assert error_of({'ds_batch_order': 'any'}) == (
        "ds_batch_order must be one of sorted, shuffled, bucketed, got 'any'"
    )
    assert error_of({'ds_remove_export': 'maybe'}) == (
        'ds_remove_export must be on or off (1, true, yes, on / 0, false, no, off or empty), '
        "got 'maybe'"
    )


def test_numbers_may_have_spaces_and_signs():
    config = load_config(epochs=' 7 ', learning_rate=' 2e-3 ', limit_dev='+3')
    assert (config.training_iters, config.learning_rate, config.limit_dev) == (7, 0.002, 3)


def test_text_is_stripped():
    assert load_config(train_files=' a.csv, b.csv ').train_files == 'a.csv, b.csv'


@pytest.mark.parametrize(
    'name, nearest',
    [
        ('ds_learnig_rate', 'ds_learning_rate'),
        ('ds_batchsize', 'ds_batch_size'),
        ('ds_epoch', 'ds_epochs'),
        ('ds_training_iter', 'ds_training_iters'),
        ('ds_n_cell_dims', 'ds_n_cell_dim'),
        ('ds_dropout_rate6', 'ds_dropout_rate'),
        ('ds_LEARNING_RATE', 'ds_learning_rate'),
    ],
)
def test_unknown_name_offers_the_nearest(name, nearest):
    message = error_of({name: '1'})
    assert message.startswith(name + ' (environment) is not a setting')
    assert re.search(r'nearest is %s\d? ' % nearest, message)


@pytest.mark.parametrize('name', ['ds_', 'ds_zzzzzzzzzz', 'ds_b7_stddev', 'ds_n_hidden_3'])
def test_every_unknown_name_is_an_error_with_an_offer(name):
    offered = re.search('nearest is (ds_[a-z0-9_]+) ', error_of({name: '1'})).group(1)
    assert offered in settings.ALIASES or offered[len('ds_') :] in FIELDS


def test_config_is_frozen():
    config = load_config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.n_hidden = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        del config.n_hidden


# Files


def test_missing_file(tmp_path):
    path = str(tmp_path / 'none.json')
    with pytest.raises(errors.ConfigError, match='cannot read .*No such file') as error:
        load({'ds_config': path})
    assert str(error.value).startswith('ds_config: cannot read %s: ' % path)


def test_folder_is_no_file_of_settings(tmp_path):
    with pytest.raises(errors.ConfigError, match='ds_config: cannot read .*Is a directory'):
        load({'ds_config': str(tmp_path)})


@pytest.mark.parametrize(
    'content', ['', 'ds_epochs=3', '{"ds_epochs": 3,}', '{"ds_epochs": 3', "{'ds_epochs': 3}"]
)
def test_file_that_is_not_json(tmp_path, content):
    message = file_error(tmp_path, content)
    assert 'ds_config' in message and 'settings.json is not JSON' in message


def test_file_that_is_not_utf_8(tmp_path):
    path = tmp_path / 'settings.json'
    path.write_bytes(b'{"ds_logs_dir": "caf\xe9"}')
    with pytest.raises(errors.ConfigError, match='settings.json is not JSON'):
        load({'ds_config': str(path)})


@pytest.mark.parametrize('content', ['[]', '[{"ds_epochs": 3}]', '3', '"ds_epochs"', 'null'])
def test_file_that_is_not_an_object(tmp_path, content):
    assert 'settings.json must hold one JSON object' in file_error(tmp_path, content)


def test_file_may_be_empty_and_have_a_byte_order_mark(tmp_path):
    assert load({'ds_config': write_json(tmp_path, '{}')})[0].n_context == 9
    path = write_json(tmp_path, '\ufeff{"ds_n_context": 2}\r\n')
    assert load({'ds_config': path})[0].n_context == 2


@pytest.mark.parametrize('name', ['ds_epoch', 'epochs', 'n_hidden', ''])
def test_unknown_key(tmp_path, name):
    message = file_error(tmp_path, {name: 3})
    assert message.startswith(name + ' (') and 'settings.json) is not a setting' in message


def test_nested_file(tmp_path):
    message = file_error(tmp_path, {'ds_config': 'other.json'})
    assert 'ds_config' in message and 'cannot name another file' in message


@pytest.mark.parametrize(
    'name, value',
    [
        ('ds_epochs', True),
        ('ds_epochs', False),
        ('ds_epochs', 1.5),
        ('ds_epochs', None),
        ('ds_epochs', [3]),
        ('ds_epochs', {}),
        ('ds_epochs', 'ten'),
        ('ds_epochs', -1),
        ('ds_beta1', True),
        ('ds_learning_rate', True),
        ('ds_beta1', None),
        ('ds_beta1', [0.5]),
        ('ds_beta1', 1.0),
        ('ds_log_variables', 'maybe'),
        ('ds_log_variables', 2),
        ('ds_log_variables', None),
        ('ds_log_variables', []),
        ('ds_logs_dir', 5),
        ('ds_logs_dir', None),
        ('ds_logs_dir', True),
        ('ds_logs_dir', ['logs']),
        ('ds_batch_order', 'any'),
        ('ds_batch_order', 1),
    ],
)
def test_wrong_type_in_a_file(tmp_path, name, value):
    message = file_error(tmp_path, {name: value})
    assert message.startswith(name + ' must be ') and message.endswith('got %r' % (value,))


@pytest.mark.parametrize('value', ['NaN', 'Infinity', '1e999', '1' + 400 * '0'])
@pytest.mark.parametrize('name', ['ds_learning_rate', 'ds_n_context'])
def test_numbers_of_a_file_that_are_out_of_reach(tmp_path, name, value):
    assert file_error(tmp_path, '{"%s": %s}' % (name, value)).startswith(name + ' must be ')


@pytest.mark.parametrize(
    'name, value, expected',
    [
        ('ds_epochs', 3, 3),
        ('ds_epochs', 3.0, 3),
        ('ds_epochs', '3', 3),
        ('ds_beta1', 0, 0.0),
        ('ds_beta1', 0.25, 0.25),
        ('ds_log_variables', True, True),
        ('ds_log_variables', False, False),
        ('ds_log_variables', 1, True),
        ('ds_log_variables', 'off', False),
        ('ds_logs_dir', 'caf\u00e9', 'caf\u00e9'),
    ],
)
def test_value_of_a_file(tmp_path, name, value, expected):
    config, _ = load({'ds_config': write_json(tmp_path, {name: value})})
    found = getattr(config, settings.ALIASES.get(name, name)[len('ds_') :])
    assert found == expected and type(found) is type(expected)


# Settings that hold lists, and that depend on each other


def test_weights_are_scaled_so_that_the_first_is_1():
    config = load_config(importer='csv, an4,fsdd', importer_weights='2, 1,0', dataset_path='a,b,c')
    assert config.linked_weights == [1.0, 0.5, 0.0]
    assert config.importers == config.corpora == ['csv', 'an4', 'fsdd']
    assert load_config(importer='csv,an4').linked_weights is None


def test_a_corpus_that_occurs_again_gets_its_place_as_a_name():
    assert load_config(importer='csv,an4,csv').corpora == ['csv#1', 'an4', 'csv#3']


@pytest.mark.parametrize(
    'weights',
    [
        '1',
        '1,2,3',
        '0,1',
        '1,-1',
        '1,x',
        '1,',
        ',',
        '1,nan',
        '1,inf',
        '-1,1',
        '1;2',
        '1e-40,1',
        '1,2e6',
    ],
)
def test_weights_must_be_a_number_for_each_importer(weights):
    message = error_of({'ds_importer': 'csv,an4', 'ds_importer_weights': weights})
    assert message.startswith('ds_importer_weights must be ') and repr(weights) in message
    assert '(2)' in message and '\n' not in message


@pytest.mark.parametrize(
    'text, stages',
    [
        ('', [None]),
        ('full', [None]),
        ('100,200,full', [100, 200, None]),
        ('7', [7]),
        (' 90 , full ', [90, None]),
    ],
)
def test_segment_lengths(text, stages):
    assert load_config(segment_lengths=text).stages == stages


@pytest.mark.parametrize(
    'text',
    [
        '100,100',
        '200,100',
        'full,100',
        '0,100',
        '-5',
        'x',
        '1.5',
        ',',
        '100,,200',
        'full,full',
        '99999999999',
        '0100,100',
    ],
)
def test_segment_lengths_must_rise(text):
    message = error_of({'ds_segment_lengths': text})
    assert message.startswith('ds_segment_lengths must be rising ') and repr(text) in message


@pytest.mark.parametrize(
    'values, accumulates',
    [
        ({}, False),
        ({'numbatches_to_aggregate': 2}, True),
        ({'normalize_gradients': 1}, True),
        ({'importer': 'csv,an4', 'importer_weights': '1,1'}, True),
        ({'clip_grad_norm': 5, 'clip_grad_value': 1}, False),
    ],
)
def test_what_needs_sums_of_gradients(values, accumulates):
    assert load_config(**values).accumulates is accumulates


@pytest.mark.parametrize(
    'values, names',
    [
        ({'num_tries': 3}, ['ds_num_tries']),
        ({'go_back': 1}, ['ds_go_back']),
        ({'valid_adapt': 0.5, 'num_tries': 1}, ['ds_valid_adapt', 'ds_num_tries']),
    ],
)
def test_what_acts_on_the_dev_loss_needs_validation(values, names):
    assert settings.uses_dev_loss(load_config(**values)) == names
    message = error_of(
        {'ds_' + name: str(value) for name, value in (*values.items(), ('validation_step', 0))}
    )
    assert message == 'ds_validation_step must be at least 1 for %s, got 0' % ', '.join(names)


@pytest.mark.parametrize('name', ['valid_adapt', 'learning_rate_decay'])
@pytest.mark.parametrize('value', ['0', '-1', '1.01', 'nan'])
def test_factors_are_above_0_and_at_most_1(name, value):
    message = error_of({'ds_' + name: value})
    assert 'ds_%s must be a number above 0.0 and at most 1.0' % name in message


def test_the_papers_layer_has_one_implementation_and_its_own_widths():
    config = load_config(rnn='vanilla', n_cell_dim=7)
    assert (config.n_hidden_3, config.n_hidden_4, config.recurrent_init) == (7, 7, 'orthogonal')
    assert settings.with_towers(config, 2).rnn_impl == 'own'
    config = load_config(n_cell_dim=7)
    assert (config.n_hidden_3, config.n_hidden_4, config.recurrent_init) == (14, 14, 'uniform')
    for implementation in ('block', 'cudnn'):
        message = error_of({'ds_rnn': 'vanilla', 'ds_rnn_impl': implementation})
        assert message.startswith('ds_rnn_impl must be auto or own') and implementation in message


def test_every_setting_says_where_it_comes_from():
    sources = {row[0]: row[5] for row in settings.table_rows()}
    assert sources['ds_relu_clip'] == 'notebook' and sources['ds_num_tries'] == 'nabu'
    assert sources['ds_rnn'] == 'paper' and sources['ds_checkpoint_steps'] == 'tacotron-2'
    assert set(sources.values()) == {
        'notebook',
        'DeepSpeech',
        'nabu',
        'paper',
        'torchaudio',
        'tacotron-2',
        'here',
    }


def test_a_loss_norm_that_nothing_is_divided_by_is_refused():
    assert error_of({'ds_loss_norm': 'labels'}).startswith('ds_normalize_gradients must be on')


# Help


def test_help_names_every_setting():
    lines = settings.help_text().splitlines()
    for name, field in FIELDS.items():
        (line,) = [line for line in lines if line.startswith('ds_%s ' % name)]
        assert field.metadata['meaning'].replace('`', '') in line
    assert 'ds_epochs' in settings.help_text()


def test_help_has_defaults_and_units():
    text = settings.help_text()
    assert re.search(r'ds_training_iters .*\n +\(integer, default 15, in epochs\)', text)
    assert re.search(r'ds_remove_export .*\n +\(on/off, default off\)', text)
    assert re.search(r'ds_learning_rate .*\n +\(number, default 0.001\)', text)
    assert re.search(r'ds_export_dir .*\n +\(text, default empty\)', text)
    assert re.search(r'ds_n_hidden_1 .*\n +\(integer, default ds_n_hidden, in units\)', text)


def test_every_setting_has_a_meaning():
    for row in settings.table_rows():
        assert all(isinstance(part, str) for part in row)
        assert row[1] and row[4]


def test_markdown_table_has_a_row_a_setting():
    rows = settings.markdown_table().splitlines()[2:]
    assert [row.split('`')[1] for row in rows] == ['ds_' + name for name in FIELDS]
    assert {row.count('|') for row in rows} == {7}


def test_effective_values_and_sources(tmp_path):
    path = write_json(tmp_path, {'ds_beta1': 0.5})
    text = settings.effective_text(*load({'ds_config': path, 'ds_log_variables': 'yes'}))
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    assert len(lines) == len(FIELDS)
    assert lines['ds_beta1'] == ['0.5', path]
    assert lines['ds_log_variables'] == ['on', 'environment']
    assert lines['ds_remove_export'] == ['off', 'default']
    assert lines['ds_export_dir'] == ["''", 'default']
    assert lines['ds_n_cell_dim'] == ['494', 'derived']
