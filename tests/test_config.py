"""Settings: defaults, where values come from, checks and their messages."""
import dataclasses
import glob
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import PROJECT, load_config
from util import config as settings, errors

# The list. What depends on other settings is what it is with nothing else set.
DEFAULTS = dict(
    # the notebook's
    importer='digits', learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8,
    training_iters=15, batch_size=64, display_step=1, validation_step=1, checkpoint_step=5,
    restore_checkpoint=False, export_dir='', remove_export=False, use_warpctc=False,
    default_stddev=0.1, dropout_rate=0.05, relu_clip=20.0, do_fulltrace=False, logs_dir='logs',
    b1_stddev=0.1, h1_stddev=0.1, b2_stddev=0.1, h2_stddev=0.1, b3_stddev=0.1, h3_stddev=0.1,
    b5_stddev=0.1, h5_stddev=0.1, b6_stddev=0.1, h6_stddev=0.1,
    # its successor's
    train_batch_size=64, dev_batch_size=64, test_batch_size=64, limit_train=0, limit_dev=0,
    limit_test=0, report_count=10, random_seed=4567, log_device_placement=False,
    log_variables=False, dropout_rate2=0.05, dropout_rate3=0.05, dropout_rate5=0.05,
    # ours
    sample_rate=16000, n_input=26, n_context=9, feature_stride=1, n_hidden=494, n_hidden_1=494,
    n_hidden_2=494, n_hidden_5=494, n_cell_dim=494, alphabet='', beam_width=100, towers=0,
    train_files='', dev_files='', test_files='')
ELSEWHERE = ('config', 'dataset_path', 'checkpoint_dir')  # paths, tested below

FIELDS = {field.name: field for field in dataclasses.fields(settings.Config)}
SWITCHES = [name for name, field in FIELDS.items() if field.type is bool]
NUMBERS = [name for name, field in FIELDS.items() if field.type in (int, float)]


def load(environ=None):
    """What settings.load gives for an environment with the importer csv, which has no recipe."""
    return settings.load({'ds_importer': 'csv', **(environ or {})})


def error_of(environ):
    with pytest.raises(errors.ConfigError) as error:
        load(environ)
    return str(error.value)


def write_json(tmp_path, content):
    path = tmp_path / 'settings.json'
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding='utf-8')
    return str(path)


def file_error(tmp_path, content):
    path = write_json(tmp_path, content)
    with pytest.raises(errors.ConfigError) as error:
        load({'ds_config': path})
    return str(error.value)


def python(code, tmp_path, **environ):
    """Runs Python code in an empty folder, without a home of its own outside of it."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(('ds_', 'XDG_', 'TF_', 'PYTHON'))}
    kept.update(HOME=str(tmp_path), PYTHONPATH=PROJECT, PYTHONDONTWRITEBYTECODE='1', **environ)
    return subprocess.run([sys.executable, '-c', code], cwd=tmp_path, env=kept, timeout=60,
                          capture_output=True, text=True)


# Defaults


@pytest.mark.parametrize('name', DEFAULTS)
def test_default(name):
    value = getattr(settings.load({'ds_config': ''})[0], name)
    assert value == DEFAULTS[name] and type(value) is type(DEFAULTS[name])


def test_every_setting_of_the_list_is_a_field():
    assert set(DEFAULTS) | set(ELSEWHERE) <= set(FIELDS)


def test_no_value_is_left_open():
    config, sources = load()
    assert None not in dataclasses.asdict(config).values()
    assert set(sources) == set(FIELDS)


def test_dataset_path_is_below_data():
    assert load()[0].dataset_path == './data/csv'
    assert settings.load({'ds_importer': 'ldc93s1'})[0].dataset_path == './data/ldc93s1'
    assert load({'ds_dataset_path': '/else/where'})[0].dataset_path == '/else/where'


def test_digits_are_found_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = settings.load({})[0].dataset_path
    assert os.path.samefile(path, os.path.join(PROJECT, 'data', 'digits'))


def test_checkpoints_go_to_the_xdg_data_directory(tmp_path):
    code = 'from util import config; print(config.load()[0].checkpoint_dir)'
    done = python(code, tmp_path, XDG_DATA_HOME=str(tmp_path / 'share'))
    assert done.stdout.strip() == str(tmp_path / 'share' / 'deepspeech')
    done = python(code, tmp_path)
    assert done.stdout.strip() == str(tmp_path / '.local' / 'share' / 'deepspeech')
    assert os.listdir(tmp_path) == []


# Derived values


@pytest.mark.parametrize('rate, n_input', [(8000, 13), (16000, 26), (44100, 26), (8001, 26)])
def test_n_input_follows_the_sample_rate(rate, n_input):
    config = load_config(sample_rate=rate)
    assert config.n_input == n_input
    assert config.n_hidden == config.n_features == n_input * 19


def test_n_input_that_is_set_counts():
    assert load_config(sample_rate=8000, n_input=20).n_input == 20


def test_widths_follow_n_input_and_n_context():
    config = load_config(n_input=7, n_context=2)
    assert (config.n_hidden, config.n_hidden_1, config.n_hidden_2, config.n_hidden_5,
            config.n_cell_dim, config.n_hidden_3, config.n_features) == (35, 35, 35, 35, 35, 70, 35)


def test_widths_follow_n_hidden():
    config = load_config(n_hidden=17)
    assert (config.n_hidden_1, config.n_hidden_2, config.n_hidden_5, config.n_cell_dim,
            config.n_hidden_3, config.n_features) == (17, 17, 17, 17, 34, 494)


def test_widths_of_their_own():
    config = load_config(n_hidden=17, n_hidden_1=3, n_hidden_2=5, n_hidden_5=7, n_cell_dim=11)
    assert (config.n_hidden_1, config.n_hidden_2, config.n_hidden_3, config.n_hidden_5,
            config.n_cell_dim) == (3, 5, 22, 7, 11)


def test_n_context_may_be_0():
    config = load_config(n_context=0)
    assert config.n_features == config.n_hidden == 26


def test_batch_sizes_follow_batch_size():
    config = load_config(batch_size=6, dev_batch_size=3)
    assert [config.set_batch_size(name) for name in ('train', 'dev', 'test')] == [6, 3, 6]
    config = load_config(train_batch_size=2, test_batch_size=5)
    assert [config.set_batch_size(name) for name in ('train', 'dev', 'test')] == [2, 64, 5]


def test_dropout_rates_follow_dropout_rate():
    config = load_config(dropout_rate=0.3, dropout_rate3=0)
    assert [config.dropout_of_layer(i) for i in (1, 2, 3, 4, 5)] == [0.3, 0.3, 0, 0, 0.3]
    config = load_config(dropout_rate2=0.2, dropout_rate5=0.5)
    assert [config.dropout_of_layer(i) for i in (1, 2, 3, 4, 5)] == [0.05, 0.2, 0.05, 0, 0.5]


def test_stddevs_follow_default_stddev():
    config = load_config(default_stddev=0.5, h3_stddev=0.25, b6_stddev=0)
    assert (config.h1_stddev, config.b1_stddev, config.h3_stddev, config.b3_stddev,
            config.h6_stddev, config.b6_stddev) == (0.5, 0.5, 0.25, 0.5, 0.5, 0)


def test_sources_of_derived_values():
    sources = load({'ds_batch_size': '5', 'ds_dev_batch_size': '2', 'ds_n_input': '3'})[1]
    assert sources['batch_size'] == sources['dev_batch_size'] == 'environment'
    assert sources['n_input'] == sources['importer'] == 'environment'
    assert sources['train_batch_size'] == sources['n_hidden'] == sources['h1_stddev'] == 'derived'
    assert sources['dataset_path'] == sources['checkpoint_dir'] == 'derived'
    assert sources['beta1'] == sources['sample_rate'] == 'default'


@pytest.mark.parametrize('towers, n_gpus, expected', [
    (0, 0, 1), (0, 3, 3), (3, 0, 3), (2, 3, 2), (3, 3, 3), (1, 3, 1)])
def test_towers(towers, n_gpus, expected):
    config = settings.with_towers(load_config(towers=towers, n_context=4), n_gpus)
    assert config.towers == expected and config.n_context == 4


def test_more_towers_than_gpus_are_an_error():
    with pytest.raises(errors.ConfigError, match='ds_towers .* 0 to 2 .* got 3'):
        settings.with_towers(load_config(towers=3), 2)


# Where values come from


def test_file_beats_default_and_environment_beats_file(tmp_path):
    path = write_json(tmp_path, {'ds_beta1': 0.7, 'ds_n_context': 4, 'ds_remove_export': True,
                                 'ds_logs_dir': 'there'})
    config, sources = load({'ds_config': path, 'ds_n_context': '5', 'ds_remove_export': '0'})
    assert (config.beta1, config.n_context, config.remove_export, config.logs_dir,
            config.beta2) == (0.7, 5, False, 'there', 0.999)
    assert [sources[name] for name in ('beta1', 'n_context', 'remove_export', 'logs_dir', 'beta2')
            ] == [path, 'environment', 'environment', path, 'default']
    assert config.config == path


def test_derived_values_use_the_file(tmp_path):
    path = write_json(tmp_path, {'ds_n_hidden': 12, 'ds_batch_size': 3, 'ds_n_cell_dim': 9})
    config, sources = load({'ds_config': path, 'ds_batch_size': '4'})
    assert (config.n_hidden_1, config.n_cell_dim, config.dev_batch_size) == (12, 9, 4)
    assert (sources['n_hidden_1'], sources['n_cell_dim']) == ('derived', path)


def test_environment_may_set_back_to_the_default(tmp_path):
    path = write_json(tmp_path, {'ds_export_dir': 'out', 'ds_training_iters': 3})
    config, sources = load({'ds_config': path, 'ds_export_dir': '', 'ds_training_iters': '15'})
    assert (config.export_dir, config.training_iters) == ('', 15)
    assert sources['export_dir'] == sources['training_iters'] == 'environment'


def test_alias(tmp_path):
    assert load({'ds_epochs': '3'})[0].training_iters == 3
    assert load({'ds_training_iters': '4'})[0].training_iters == 4
    path = write_json(tmp_path, {'ds_epochs': 5})
    assert load({'ds_config': path})[0].training_iters == 5
    assert load({'ds_config': path, 'ds_training_iters': '6'})[0].training_iters == 6
    path = write_json(tmp_path, {'ds_training_iters': 7})
    config, sources = load({'ds_config': path, 'ds_epochs': '8'})
    assert (config.training_iters, sources['training_iters']) == (8, 'environment')


def test_alias_and_name_must_agree():
    assert load({'ds_epochs': '3', 'ds_training_iters': '3'})[0].training_iters == 3
    message = error_of({'ds_epochs': '3', 'ds_training_iters': '4'})
    assert all(part in message for part in ('ds_epochs', 'ds_training_iters', "'3'", "'4'"))


def test_os_environ_is_the_default(monkeypatch):
    for name in [name for name in os.environ if name.startswith('ds_')]:
        monkeypatch.delenv(name)
    monkeypatch.setenv('ds_importer', 'csv')
    monkeypatch.setenv('ds_beam_width', '7')
    assert settings.load()[0].beam_width == 7
    assert settings.load({'ds_importer': 'csv'})[0].beam_width == 100


def test_other_variables_are_none_of_our_business():
    load({'HOME': '/home/me', 'DS_EPOCHS': 'ten', 'xds_epochs': 'ten', 'dsepochs': 'ten'})


def test_recipe_is_that_of_the_digits():
    config, sources = settings.load({})
    recipe = os.path.join(PROJECT, 'data', 'digits', 'config.json')
    assert config.importer == 'digits' and os.path.samefile(config.config, recipe)
    with open(recipe, encoding='utf-8') as file:
        values = json.load(file)
    assert values
    for name, value in values.items():
        field = settings.ALIASES.get(name, name)[len('ds_'):]
        assert getattr(config, field) == value
        assert sources[field] == config.config
    assert settings.load({'ds_importer': 'digits'})[0] == config


def test_environment_beats_the_recipe():
    config, sources = settings.load({'ds_n_hidden': '31', 'ds_epochs': '1'})
    assert (config.n_hidden, config.training_iters) == (31, 1)
    assert sources['n_hidden'] == sources['training_iters'] == 'environment'


@pytest.mark.parametrize('importer', ['csv', 'ldc93s1'])
def test_other_importers_have_no_recipe(importer):
    config, sources = settings.load({'ds_importer': importer})
    assert config.config == '' and config.n_hidden == 494 and config.training_iters == 15
    assert set(sources.values()) == {'default', 'derived', 'environment'}


def test_own_file_takes_the_place_of_the_recipe(tmp_path):
    path = write_json(tmp_path, {'ds_n_context': 3})
    config, _ = settings.load({'ds_config': path})
    assert (config.importer, config.n_context, config.n_hidden) == ('digits', 3, 182)
    assert settings.load({'ds_config': ''})[0].n_hidden == 494


def test_file_may_name_the_importer(tmp_path):
    path = write_json(tmp_path, {'ds_importer': 'ldc93s1'})
    config, sources = settings.load({'ds_config': path})
    assert (config.importer, config.dataset_path) == ('ldc93s1', './data/ldc93s1')
    assert sources['importer'] == path


# Values


@pytest.mark.parametrize('name', SWITCHES)
@pytest.mark.parametrize('words, on', [
    (('1', 'true', 'True', 'TRUE', 'yes', 'Yes', 'YES', 'on', 'On', 'ON', ' on '), True),
    (('', '0', 'false', 'False', 'FALSE', 'no', 'No', 'NO', 'off', 'Off', 'OFF', ' '), False)])
def test_switch_words(name, words, on):
    for word in words:
        assert getattr(load({'ds_' + name: word})[0], name) is on, word


def test_switches_of_the_list_are_on_off():
    assert {name for name, value in DEFAULTS.items() if isinstance(value, bool)} <= set(SWITCHES)


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


@pytest.mark.parametrize('name', NUMBERS)
def test_negative_number(name):
    for word in ('-1', '-0.5', '-1e-9'):
        assert repr(word) in error_of({'ds_' + name: word})


@pytest.mark.parametrize('name', [name for name in NUMBERS if FIELDS[name].type is int])
def test_fraction_is_no_integer(name):
    for word in ('1.5', '1.0', '1e1'):
        assert 'ds_%s must be an integer' % name in error_of({'ds_' + name: word})


@pytest.mark.parametrize('name, inside, outside', [
    ('training_iters', '0 1 1000', '-1'), ('batch_size', '1 512', '0 -1'),
    ('train_batch_size', '1', '0'), ('dev_batch_size', '1', '0'), ('test_batch_size', '1', '0'),
    ('limit_train', '0 5', '-1'), ('limit_dev', '0', '-1'), ('limit_test', '0', '-1'),
    ('display_step', '0 1', '-1'), ('validation_step', '0', '-1'), ('checkpoint_step', '0', '-1'),
    ('report_count', '0', '-1'), ('beam_width', '1', '0'), ('random_seed', '0 2147483647', '-1'),
    ('random_seed', '1', '2147483648'), ('towers', '0 8', '-1'), ('n_input', '1 26', '0 27'),
    ('n_context', '0 9', '-1'), ('feature_stride', '1 2', '0'), ('n_hidden', '1', '0'),
    ('n_hidden_1', '1', '0'), ('n_hidden_2', '1', '0'), ('n_hidden_5', '1', '0'),
    ('n_cell_dim', '1', '0'), ('sample_rate', '8000 48000', '0 -8000'),
    ('learning_rate', '1e-5 .5 1e30', '-0.001'), ('beta1', '0 0.99', '1 1.5'),
    ('beta2', '0 0.9999', '1'), ('epsilon', '1e-8', '-1e-8'),
    ('dropout_rate', '0 0.999', '1 1.1'), ('dropout_rate2', '0 .9', '1'),
    ('dropout_rate3', '0', '1'), ('dropout_rate5', '0', '1'), ('relu_clip', '0.5 20', '-1'),
    ('default_stddev', '0 0.046875', '-0.1'), ('h5_stddev', '0 1', '-0.1')])
def test_range(name, inside, outside):
    for word in inside.split():
        assert getattr(load({'ds_' + name: word})[0], name) == float(word)
    for word in outside.split():
        message = error_of({'ds_' + name: word})
        assert message.startswith('ds_%s must be ' % name) and message.endswith('got %r' % word)


def test_messages_say_what_is_expected():
    assert error_of({'ds_epochs': 'ten'}) == (
        "ds_epochs must be an integer of at least 0, got 'ten'")
    assert error_of({'ds_n_input': '27'}) == (
        "ds_n_input must be an integer from 1 to 26, got '27'")
    assert error_of({'ds_beta1': '1'}) == (
        "ds_beta1 must be a number of at least 0.0 and below 1.0, got '1'")
    assert error_of({'ds_batch_order': 'any'}) == (
        "ds_batch_order must be one of sorted, shuffled, bucketed, got 'any'")
    assert error_of({'ds_remove_export': 'maybe'}) == (
        'ds_remove_export must be on or off (1, true, yes, on / 0, false, no, off or empty), '
        "got 'maybe'")


def test_numbers_may_have_spaces_and_signs():
    config = load_config(epochs=' 7 ', learning_rate=' 2e-3 ', limit_dev='+3')
    assert (config.training_iters, config.learning_rate, config.limit_dev) == (7, 0.002, 3)


def test_text_is_stripped():
    assert load_config(train_files=' a.csv, b.csv ').train_files == 'a.csv, b.csv'


@pytest.mark.parametrize('name, nearest', [
    ('ds_learnig_rate', 'ds_learning_rate'), ('ds_batchsize', 'ds_batch_size'),
    ('ds_epoch', 'ds_epochs'), ('ds_training_iter', 'ds_training_iters'),
    ('ds_n_cell_dims', 'ds_n_cell_dim'), ('ds_dropout_rate6', 'ds_dropout_rate'),
    ('ds_LEARNING_RATE', 'ds_learning_rate')])
def test_unknown_name_offers_the_nearest(name, nearest):
    message = error_of({name: '1'})
    assert message.startswith(name + ' (environment) is not a setting')
    assert re.search(r'nearest is %s\d? ' % nearest, message)


@pytest.mark.parametrize('name', ['ds_', 'ds_zzzzzzzzzz', 'ds_b7_stddev', 'ds_n_hidden_3'])
def test_every_unknown_name_is_an_error_with_an_offer(name):
    offered = re.search('nearest is (ds_[a-z0-9_]+) ', error_of({name: '1'})).group(1)
    assert offered in settings.ALIASES or offered[len('ds_'):] in FIELDS


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


@pytest.mark.parametrize('content', [
    '', 'ds_epochs=3', '{"ds_epochs": 3,}', '{"ds_epochs": 3', "{'ds_epochs': 3}"])
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


@pytest.mark.parametrize('name, value', [
    ('ds_epochs', True), ('ds_epochs', False), ('ds_epochs', 1.5), ('ds_epochs', None),
    ('ds_epochs', [3]), ('ds_epochs', {}),
    ('ds_epochs', 'ten'), ('ds_epochs', -1),
    ('ds_beta1', True), ('ds_learning_rate', True), ('ds_beta1', None), ('ds_beta1', [0.5]),
    ('ds_beta1', 1.0),
    ('ds_log_variables', 'maybe'), ('ds_log_variables', 2), ('ds_log_variables', None),
    ('ds_log_variables', []), ('ds_logs_dir', 5), ('ds_logs_dir', None), ('ds_logs_dir', True),
    ('ds_logs_dir', ['logs']), ('ds_batch_order', 'any'), ('ds_batch_order', 1)])
def test_wrong_type_in_a_file(tmp_path, name, value):
    message = file_error(tmp_path, {name: value})
    assert message.startswith(name + ' must be ') and message.endswith('got %r' % (value,))


@pytest.mark.parametrize('value', ['NaN', 'Infinity', '1e999', '1' + 400 * '0'])
@pytest.mark.parametrize('name', ['ds_learning_rate', 'ds_n_context'])
def test_numbers_of_a_file_that_are_out_of_reach(tmp_path, name, value):
    assert file_error(tmp_path, '{"%s": %s}' % (name, value)).startswith(name + ' must be ')


@pytest.mark.parametrize('name, value, expected', [
    ('ds_epochs', 3, 3), ('ds_epochs', 3.0, 3), ('ds_epochs', '3', 3), ('ds_beta1', 0, 0.0),
    ('ds_beta1', 0.25, 0.25), ('ds_log_variables', True, True), ('ds_log_variables', False, False),
    ('ds_log_variables', 1, True), ('ds_log_variables', 'off', False),
    ('ds_logs_dir', 'caf\u00e9', 'caf\u00e9')])
def test_value_of_a_file(tmp_path, name, value, expected):
    config, _ = load({'ds_config': write_json(tmp_path, {name: value})})
    found = getattr(config, settings.ALIASES.get(name, name)[len('ds_'):])
    assert found == expected and type(found) is type(expected)


# Help


def test_help_names_every_setting():
    lines = settings.help_text().splitlines()
    for name, field in FIELDS.items():
        line, = [line for line in lines if line.startswith('ds_%s ' % name)]
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


# What importing and loading leave alone


SPY = '''
import contextlib, dataclasses, difflib, json, math, os, sys
class Spy(dict):
    def __getattribute__(self, name):
        raise SystemExit('the environment is read')
    __getitem__ = __contains__ = __iter__ = __len__ = __getattribute__
os.environ = Spy()
os.getenv = Spy.__getattribute__
import util.config
assert 'tensorflow' not in sys.modules
'''


def test_importing_reads_no_environment_and_makes_no_file(tmp_path):
    done = python(SPY, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
    assert os.listdir(tmp_path) == []


def test_loading_makes_no_file(tmp_path):
    done = python('from util import config; config.load()', tmp_path, ds_checkpoint_dir='ckpt',
                  ds_export_dir='export')
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
    assert os.listdir(tmp_path) == []


def test_no_other_module_reads_the_environment():
    paths = [os.path.join(PROJECT, 'DeepSpeech.py')]
    paths += glob.glob(os.path.join(PROJECT, 'util', '**', '*.py'), recursive=True)
    assert len(paths) > 5
    readers = []
    for path in paths:
        with open(path, encoding='utf-8') as file:
            if re.search(r'\b(environ|getenv|environb|expandvars)\b', file.read()):
                readers.append(os.path.relpath(path, PROJECT))
    assert readers == [os.path.join('util', 'config.py')]


# TensorFlow's start-up noise


def test_silenced_tensorflow(monkeypatch, capfd):
    monkeypatch.delenv('TF_CPP_MIN_LOG_LEVEL', raising=False)
    os.write(2, b'before ')
    with settings.silenced_tensorflow():
        assert os.environ['TF_CPP_MIN_LOG_LEVEL'] == '3'
        os.write(2, b'inside ')
        os.write(1, b'output')
    os.write(2, b'after')
    assert capfd.readouterr() == ('output', 'before after')


def test_stderr_comes_back_after_an_error(monkeypatch, capfd):
    monkeypatch.delenv('TF_CPP_MIN_LOG_LEVEL', raising=False)
    with pytest.raises(ImportError):
        with settings.silenced_tensorflow():
            raise ImportError('no tensorflow')
    os.write(2, b'after')
    assert capfd.readouterr().err == 'after'


@pytest.mark.parametrize('level, heard', [('0', 'inside'), ('1', 'inside'), ('3', '')])
def test_log_level_that_is_set_is_respected(monkeypatch, capfd, level, heard):
    monkeypatch.setenv('TF_CPP_MIN_LOG_LEVEL', level)
    with settings.silenced_tensorflow():
        os.write(2, b'inside')
    assert os.environ['TF_CPP_MIN_LOG_LEVEL'] == level
    assert capfd.readouterr().err == heard


@pytest.mark.skipif(not os.path.isdir('/proc/self/fd'), reason='no list of file descriptors')
def test_silence_leaves_no_file_open(monkeypatch):
    monkeypatch.delenv('TF_CPP_MIN_LOG_LEVEL', raising=False)
    before = len(os.listdir('/proc/self/fd'))
    with settings.silenced_tensorflow():
        pass
    assert len(os.listdir('/proc/self/fd')) == before


def test_silence_works_without_a_standard_error(tmp_path):
    code = 'from util import config\nwith config.silenced_tensorflow(): print("inside")'
    shell = 'import os, sys; os.close(2); os.execv(sys.executable, [sys.executable, "-c", %r])'
    assert python(shell % code, tmp_path).stdout == 'inside\n'


@pytest.mark.parametrize('asked, n_gpus, chosen', [
    ('auto', 0, 'own'), ('auto', 2, 'cudnn'), ('block', 0, 'block'), ('own', 1, 'own'),
    ('cudnn', 1, 'cudnn')])
def test_lstm_implementation_fits_the_devices(asked, n_gpus, chosen):
    assert settings.with_towers(load_config(rnn_impl=asked), n_gpus).rnn_impl == chosen


def test_cudnn_needs_a_gpu():
    with pytest.raises(errors.ConfigError, match='ds_rnn_impl must be .* got cudnn'):
        settings.with_towers(load_config(rnn_impl='cudnn'), 0)


def test_lstm_implementations_are_those_of_the_module():
    from util.graph import rnn
    assert settings.RNN_IMPLS == ('auto', *rnn.IMPLEMENTATIONS)


# Settings that hold lists, and that depend on each other


def test_weights_are_scaled_so_that_the_first_is_1():
    config = load_config(importer='csv, an4,fsdd', importer_weights='2, 1,0', dataset_path='a,b,c')
    assert config.linked_weights == [1.0, 0.5, 0.0]
    assert config.importers == config.corpora == ['csv', 'an4', 'fsdd']
    assert load_config(importer='csv,an4').linked_weights is None


def test_a_corpus_that_occurs_again_gets_its_place_as_a_name():
    assert load_config(importer='csv,an4,csv').corpora == ['csv#1', 'an4', 'csv#3']


@pytest.mark.parametrize('weights', ['1', '1,2,3', '0,1', '1,-1', '1,x', '1,', ',', '1,nan',
                                     '1,inf', '-1,1', '1;2', '1e-40,1', '1,2e6'])
def test_weights_must_be_a_number_for_each_importer(weights):
    message = error_of({'ds_importer': 'csv,an4', 'ds_importer_weights': weights})
    assert message.startswith('ds_importer_weights must be ') and repr(weights) in message
    assert '(2)' in message and '\n' not in message


@pytest.mark.parametrize('text, stages', [
    ('', [None]), ('full', [None]), ('100,200,full', [100, 200, None]), ('7', [7]),
    (' 90 , full ', [90, None])])
def test_segment_lengths(text, stages):
    assert load_config(segment_lengths=text).stages == stages


@pytest.mark.parametrize('text', ['100,100', '200,100', 'full,100', '0,100', '-5', 'x', '1.5', ',',
                                  '100,,200', 'full,full', '99999999999', '0100,100'])
def test_segment_lengths_must_rise(text):
    message = error_of({'ds_segment_lengths': text})
    assert message.startswith('ds_segment_lengths must be rising ') and repr(text) in message


@pytest.mark.parametrize('values, accumulates', [
    ({}, False), ({'numbatches_to_aggregate': 2}, True), ({'normalize_gradients': 1}, True),
    ({'importer': 'csv,an4', 'importer_weights': '1,1'}, True),
    ({'clip_grad_norm': 5, 'clip_grad_value': 1}, False)])
def test_what_needs_sums_of_gradients(values, accumulates):
    assert load_config(**values).accumulates is accumulates


@pytest.mark.parametrize('values, names', [
    ({'num_tries': 3}, ['ds_num_tries']), ({'go_back': 1}, ['ds_go_back']),
    ({'valid_adapt': 0.5, 'num_tries': 1}, ['ds_valid_adapt', 'ds_num_tries'])])
def test_what_acts_on_the_dev_loss_needs_validation(values, names):
    assert settings.uses_dev_loss(load_config(**values)) == names
    message = error_of({'ds_' + name: str(value) for name, value in (
        *values.items(), ('validation_step', 0))})
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
    assert set(sources.values()) == {'notebook', 'DeepSpeech', 'nabu', 'paper', 'torchaudio',
                                     'tacotron-2', 'here'}


def test_a_loss_norm_that_nothing_is_divided_by_is_refused():
    assert error_of({'ds_loss_norm': 'labels'}).startswith('ds_normalize_gradients must be on')
