"""Settings: defaults, where their values come from, what loading them leaves alone."""

import dataclasses
import glob
import json
import os
import re
import subprocess
import sys

import pytest

from config_helpers import FIELDS, error_of, load, write_json
from helpers import PROJECT, load_config
from util import config as settings, errors

# What depends on other settings is here what it is with nothing else set.
DEFAULTS = {
    # the notebook's
    'importer': 'digits',
    'learning_rate': 0.001,
    'beta1': 0.9,
    'beta2': 0.999,
    'epsilon': 1e-8,
    'training_iters': 15,
    'batch_size': 64,
    'display_step': 1,
    'validation_step': 1,
    'checkpoint_step': 5,
    'restore_checkpoint': False,
    'export_dir': '',
    'remove_export': False,
    'use_warpctc': False,
    'default_stddev': 0.1,
    'dropout_rate': 0.05,
    'relu_clip': 20.0,
    'do_fulltrace': False,
    'logs_dir': 'logs',
    'b1_stddev': 0.1,
    'h1_stddev': 0.1,
    'b2_stddev': 0.1,
    'h2_stddev': 0.1,
    'b3_stddev': 0.1,
    'h3_stddev': 0.1,
    'b5_stddev': 0.1,
    'h5_stddev': 0.1,
    'b6_stddev': 0.1,
    'h6_stddev': 0.1,
    # its successor's
    'train_batch_size': 64,
    'dev_batch_size': 64,
    'test_batch_size': 64,
    'limit_train': 0,
    'limit_dev': 0,
    'limit_test': 0,
    'report_count': 10,
    'random_seed': 4567,
    'log_device_placement': False,
    'log_variables': False,
    'dropout_rate2': 0.05,
    'dropout_rate3': 0.05,
    'dropout_rate5': 0.05,
    # ours
    'sample_rate': 16000,
    'n_input': 26,
    'n_context': 9,
    'feature_stride': 1,
    'n_hidden': 494,
    'n_hidden_1': 494,
    'n_hidden_2': 494,
    'n_hidden_5': 494,
    'n_cell_dim': 494,
    'alphabet': '',
    'beam_width': 100,
    'towers': 0,
    'train_files': '',
    'dev_files': '',
    'test_files': '',
}
ELSEWHERE = ('config', 'dataset_path', 'checkpoint_dir')  # paths, tested below


def python(code, tmp_path, **environ):
    """Runs Python code in an empty folder, without a home of its own outside of it."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(('ds_', 'XDG_', 'TF_', 'PYTHON'))
    }
    kept.update(HOME=str(tmp_path), PYTHONPATH=PROJECT, PYTHONDONTWRITEBYTECODE='1', **environ)
    return subprocess.run(
        [sys.executable, '-c', code],
        cwd=tmp_path,
        env=kept,
        timeout=60,
        capture_output=True,
        text=True,
    )


# Defaults


@pytest.mark.parametrize('name', DEFAULTS)
def test_default(name):
    value = getattr(settings.load({'ds_config': ''})[0], name)
    assert value == DEFAULTS[name] and type(value) is type(DEFAULTS[name])


def test_switches_of_the_list_are_on_off():
    switches = {name for name, value in DEFAULTS.items() if isinstance(value, bool)}
    assert {FIELDS[name].type for name in switches} == {bool}


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
    assert load_config(sample_rate=rate, n_input=20).n_input == 20


@pytest.mark.parametrize(
    'values, widths',
    [
        ({'n_input': 7, 'n_context': 2}, (35, 35, 35, 35, 35, 70, 35)),
        ({'n_hidden': 17}, (494, 17, 17, 17, 17, 34, 17)),
        (
            {'n_hidden': 17, 'n_hidden_1': 3, 'n_hidden_2': 5, 'n_hidden_5': 7, 'n_cell_dim': 11},
            (494, 17, 3, 5, 11, 22, 7),
        ),
        ({'n_context': 0}, (26, 26, 26, 26, 26, 52, 26)),
    ],
)
def test_widths_follow_n_input_n_context_and_n_hidden(values, widths):
    config = load_config(**values)
    assert (
        config.n_features,
        config.n_hidden,
        config.n_hidden_1,
        config.n_hidden_2,
        config.n_cell_dim,
        config.n_hidden_3,
        config.n_hidden_5,
    ) == widths


@pytest.mark.parametrize(
    'values, sizes',
    [
        ({'batch_size': 6, 'dev_batch_size': 3}, [6, 3, 6]),
        ({'train_batch_size': 2, 'test_batch_size': 5}, [2, 64, 5]),
    ],
)
def test_batch_sizes_follow_batch_size(values, sizes):
    config = load_config(**values)
    assert [config.set_batch_size(name) for name in ('train', 'dev', 'test')] == sizes


@pytest.mark.parametrize(
    'values, rates',
    [
        ({'dropout_rate': 0.3, 'dropout_rate3': 0}, [0.3, 0.3, 0, 0, 0.3]),
        ({'dropout_rate2': 0.2, 'dropout_rate5': 0.5}, [0.05, 0.2, 0.05, 0, 0.5]),
    ],
)
def test_dropout_rates_follow_dropout_rate(values, rates):
    config = load_config(**values)
    assert [config.dropout_of_layer(i) for i in (1, 2, 3, 4, 5)] == rates


def test_stddevs_follow_default_stddev():
    config = load_config(default_stddev=0.5, h3_stddev=0.25, b6_stddev=0)
    assert (
        config.h1_stddev,
        config.b1_stddev,
        config.h3_stddev,
        config.b3_stddev,
        config.h6_stddev,
        config.b6_stddev,
    ) == (0.5, 0.5, 0.25, 0.5, 0.5, 0)


def test_sources_of_derived_values():
    sources = load({'ds_batch_size': '5', 'ds_dev_batch_size': '2', 'ds_n_input': '3'})[1]
    assert sources['batch_size'] == sources['dev_batch_size'] == 'environment'
    assert sources['n_input'] == sources['importer'] == 'environment'
    assert sources['train_batch_size'] == sources['n_hidden'] == sources['h1_stddev'] == 'derived'
    assert sources['dataset_path'] == sources['checkpoint_dir'] == 'derived'
    assert sources['beta1'] == sources['sample_rate'] == 'default'


@pytest.mark.parametrize(
    'towers, n_gpus, expected', [(0, 0, 1), (0, 3, 3), (3, 0, 3), (2, 3, 2), (3, 3, 3), (1, 3, 1)]
)
def test_towers(towers, n_gpus, expected):
    config = settings.with_towers(load_config(towers=towers, n_context=4), n_gpus)
    assert config.towers == expected and config.n_context == 4


def test_more_towers_than_gpus_are_an_error():
    with pytest.raises(errors.ConfigError, match='ds_towers .* 0 to 2 .* got 3'):
        settings.with_towers(load_config(towers=3), 2)


@pytest.mark.parametrize(
    'asked, n_gpus, chosen',
    [
        ('auto', 0, 'own'),
        ('auto', 2, 'cudnn'),
        ('block', 0, 'block'),
        ('own', 1, 'own'),
        ('cudnn', 1, 'cudnn'),
    ],
)
def test_lstm_implementation_fits_the_devices(asked, n_gpus, chosen):
    assert settings.with_towers(load_config(rnn_impl=asked), n_gpus).rnn_impl == chosen


def test_cudnn_needs_a_gpu():
    with pytest.raises(errors.ConfigError, match='ds_rnn_impl must be .* got cudnn'):
        settings.with_towers(load_config(rnn_impl='cudnn'), 0)


def test_lstm_implementations_are_those_of_the_module():
    from util.graph import rnn

    assert ('auto', *rnn.IMPLEMENTATIONS) == settings.RNN_IMPLS


# Where values come from


def test_file_beats_default_and_environment_beats_file(tmp_path):
    path = write_json(
        tmp_path,
        {'ds_beta1': 0.7, 'ds_n_context': 4, 'ds_remove_export': True, 'ds_logs_dir': 'there'},
    )
    config, sources = load({'ds_config': path, 'ds_n_context': '5', 'ds_remove_export': '0'})
    assert (
        config.beta1,
        config.n_context,
        config.remove_export,
        config.logs_dir,
        config.beta2,
    ) == (0.7, 5, False, 'there', 0.999)
    assert [
        sources[name] for name in ('beta1', 'n_context', 'remove_export', 'logs_dir', 'beta2')
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
        field = settings.ALIASES.get(name, name)[len('ds_') :]
        wanted = ' '.join(value) if isinstance(value, list) else value
        assert getattr(config, field) == wanted
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


# What importing and loading leave alone


SPY = """
import contextlib, dataclasses, difflib, filelock, json, math, os, sys
class Spy(dict):
    def __getattribute__(self, name):
        raise SystemExit('the environment is read')
    __getitem__ = __contains__ = __iter__ = __len__ = __getattribute__
os.environ = Spy()
os.getenv = Spy.__getattribute__
import util.config
assert 'tensorflow' not in sys.modules
"""


def test_importing_reads_no_environment_and_makes_no_file(tmp_path):
    done = python(SPY, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
    assert os.listdir(tmp_path) == []


def test_loading_makes_no_file(tmp_path):
    done = python(
        'from util import config; config.load()',
        tmp_path,
        ds_checkpoint_dir='ckpt',
        ds_export_dir='export',
    )
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
    assert 'TF_CPP_MIN_LOG_LEVEL' not in os.environ
    os.write(2, b'after')
    assert capfd.readouterr() == ('output', 'before after')


def test_silence_may_be_asked_for_twice(monkeypatch, capfd):
    monkeypatch.delenv('TF_CPP_MIN_LOG_LEVEL', raising=False)
    with settings.silenced_tensorflow():
        with settings.silenced_tensorflow():
            os.write(2, b'inside ')
        os.write(2, b'still inside ')
        assert os.environ['TF_CPP_MIN_LOG_LEVEL'] == '3'
    os.write(2, b'after')
    assert capfd.readouterr().err == 'after'


def test_stderr_comes_back_after_an_error(monkeypatch, capfd):
    monkeypatch.delenv('TF_CPP_MIN_LOG_LEVEL', raising=False)
    with pytest.raises(ImportError), settings.silenced_tensorflow():
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


# Paths, and names in another spelling

SPELLED = (
    ('DS_Batch_Size', 'ds_batch_size'),
    ('Ds_epochs', 'ds_epochs'),
    ('ds-batch-size', 'ds_batch_size'),
    ('DEEPSPEECH_CHECKPOINT_DIR', 'ds_checkpoint_dir'),
    ('DS_BATCHSIZE', 'ds_batch_size'),
)


@pytest.mark.parametrize('name, nearest', SPELLED)
def test_a_variable_in_another_spelling_is_named(caplog, name, nearest):
    assert load({name: '8'})[0].batch_size == 64
    [message] = caplog.messages
    assert name in message and message.endswith('the nearest is %s' % nearest)


def test_other_programs_variables_are_not_named(caplog):
    load({'DS_STORE': '1', 'DEEPSPEECH_TEST_DATA': 'x', 'LDS_EPOCHS': '1', 'EPOCHS': '2'})
    assert not caplog.messages


@pytest.mark.parametrize('name', (*settings.PATHS, *settings.PATH_LISTS))
def test_the_home_folder_is_found_in_every_path(tmp_path, monkeypatch, name):
    monkeypatch.setenv('HOME', '/home/me')
    path = write_json(tmp_path, {} if name == 'config' else {'ds_' + name: '~/a b, ~/c'})
    if name == 'config':
        monkeypatch.setenv('HOME', str(tmp_path))
        assert load({'ds_config': '~/settings.json'})[0].config == path
    else:
        several = name in settings.PATH_LISTS
        expected = '/home/me/a b,/home/me/c' if several else '/home/me/a b, ~/c'
        assert getattr(load({'ds_config': path})[0], name) == expected
        assert getattr(load({'ds_' + name: '~/a'})[0], name) == '/home/me/a'
        assert getattr(load({'ds_' + name: './~/a, b'})[0], name) == './~/a, b'


def test_every_setting_that_holds_a_path_is_known_as_such():
    words = re.compile(r'\b(folder|file|manifests|checkpoint,)\b')
    told = {name for name, field in FIELDS.items() if field.type is str and words.search(
        field.metadata['meaning'])}  # fmt: skip
    assert told - {'augment', 'importer'} <= {*settings.PATHS, *settings.PATH_LISTS}


def test_a_home_folder_that_is_not_known_is_refused():
    message = error_of({'ds_logs_dir': '~nobody-of-this-name/logs'})
    assert message.startswith('ds_logs_dir must be a path whose home folder is known, got ~nobody')


def test_a_default_below_an_unknown_home_folder_is_refused(monkeypatch):
    monkeypatch.setattr(settings, '_xdg', lambda directory: '~nobody-of-this-name/share')
    assert error_of({}).startswith('ds_cache_dir must be a path whose home folder is known')
    assert load({'ds_cache_dir': 'a', 'ds_checkpoint_dir': 'b'})[0].cache_dir == 'a'


@pytest.mark.parametrize('name', (*settings.PATHS[1:], *settings.PATH_LISTS))
def test_a_path_that_tensorflow_cannot_use_is_refused(name):
    message = error_of({'ds_' + name: 'caf\udce9'})
    assert message == 'ds_%s must be a path in UTF-8, got caf\\udce9' % name


def test_a_working_folder_that_was_removed_is_no_matter(tmp_path, monkeypatch):
    (tmp_path / 'gone').mkdir()
    monkeypatch.chdir(tmp_path / 'gone')
    (tmp_path / 'gone').rmdir()
    config, _ = settings.load({})
    assert config.dataset_path == os.path.join(settings.PROJECT_DIR, 'data', 'digits')
