"""Every `ds_*` setting: its name, type, default, unit and meaning, declared once.

This module is the only one that reads the environment. `load` gives the rest one frozen
`Config`. A value comes from, in rising order: the default, the JSON file of `ds_config`
(the static part), the environment. What depends on other values or on the machine (widths,
paths, batch sizes; the dynamic part) is filled in by `_derive`.
"""
import contextlib
import dataclasses
import difflib
import errno
import json
import math
import os
import reprlib
import stat

PROJECT_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PREFIX = 'ds_'
ALIASES = {'ds_epochs': 'ds_training_iters'}
ON, OFF = ('1', 'true', 'yes', 'on'), ('', '0', 'false', 'no', 'off')
SHOWN_CHARACTERS = 60  # of a value in a message
BATCH_ORDERS = ('sorted', 'shuffled', 'bucketed')
RNN_IMPLS = ('auto', 'own', 'block', 'cudnn')


@contextlib.contextmanager
def silenced_tensorflow():
    """Keeps TensorFlow quiet, where it is imported inside; TF_CPP_MIN_LOG_LEVEL=0 undoes that.

    The variable alone is not enough: what TensorFlow 2.21 says while it is loaded goes straight
    to the file descriptor of the standard error.
    """
    if os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3') != '3':
        yield
        return
    try:
        kept = os.dup(2)
    except OSError:  # closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def environment_with(**values):
    """The environment for a run of its own: of settings only these, {field name: value}."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**kept, **{PREFIX + name: str(value) for name, value in values.items()}}


class ConfigError(ValueError):
    """A setting can't be used; the message names it, its value and what was expected."""


def _setting(default, meaning, unit='', low=None, high=None, below=None, choices=None,
             derived=''):
    """Declares a setting. `low` and `high` are inclusive, `below` is not; `derived` says in
    words what the default is where it depends on other settings (default None)."""
    return dataclasses.field(default=default, metadata=dict(
        meaning=meaning, unit=unit, low=low, high=high, below=below, choices=choices,
        derived=derived))


_LARGEST = 2**31 - 1  # integers of the graph have 32 bits
_STDDEV = dict(low=0.0, derived='`ds_default_stddev`')
_WIDTH = dict(low=1, unit='units')


@dataclasses.dataclass(frozen=True)
class Config:
    """One field a setting; `ds_NAME` in the environment and in files is the field NAME.

    After `load` no field with a derived default is None.
    """
    # Where things are
    config: str = _setting(
        None, 'JSON file of settings; the environment overrides it; empty: no file',
        derived='the recipe `data/digits/config.json` for the importer `digits`, else none')
    importer: str = _setting('digits', 'corpus: a module of `util/importers/`; several with '
                             'commas between are joined')
    dataset_path: str = _setting(
        None, 'folder of the corpus; of several, as many with commas between',
        derived='`./data/<importer>`; for `digits` the one beside `DeepSpeech.py`')
    train_files: str = _setting('', 'manifests for training, comma-separated (importer `csv`)')
    dev_files: str = _setting('', 'manifests for validation, comma-separated (importer `csv`)')
    test_files: str = _setting('', 'manifests for the test, comma-separated (importer `csv`)')
    cache_dir: str = _setting(
        None, 'folder of what need not be computed twice: headers, features, converted audio',
        derived='`deepspeech` in the XDG cache directory')
    feature_cache: bool = _setting(True, 'keep MFCC on disk, so that they are computed once')
    feature_cache_gb: float = _setting(100.0, 'limit of one feature cache file', 'GB', low=0.0)
    checkpoint_dir: str = _setting(
        None, 'folder of the checkpoints', derived='`deepspeech` in the XDG data directory')
    restore_checkpoint: bool = _setting(False, 'go on from the newest checkpoint')
    export_dir: str = _setting('', 'base folder of exported models; empty: no export')
    remove_export: bool = _setting(False, 'remove older exported versions after an export')
    logs_dir: str = _setting('logs', 'folder of the run folders with logs')
    alphabet: str = _setting('', 'file with one label a line; empty: space, a to z, apostrophe')

    # What goes into which set, of corpora that leave a choice
    librivox_train: str = _setting('train-clean-100,train-clean-360,train-other-500',
                                   'LibriSpeech subsets to train on, comma-separated')
    librivox_dev: str = _setting('dev-clean', 'the same for validation')
    librivox_test: str = _setting('test-clean', 'the same for the test')
    fsdd_dev_speakers: str = _setting('', 'FSDD speakers for validation only, comma-separated; '
                                      'empty: takes 5 to 9 of the others')
    fsdd_test_speakers: str = _setting('', 'FSDD speakers for the test only, comma-separated; '
                                       'empty: takes 0 to 4 of all, the official split')
    timit_sa: bool = _setting(False, "use TIMIT's sa sentences, which all speakers read")

    # Training
    training_iters: int = _setting(15, 'epochs to train in all (also `ds_epochs`); 0: only test '
                                   'and export a checkpoint', 'epochs', low=0)
    batch_size: int = _setting(64, 'utterances in a batch of one tower', 'utterances', low=1)
    train_batch_size: int = _setting(None, 'the same, for training', 'utterances', low=1,
                                     derived='`ds_batch_size`')
    dev_batch_size: int = _setting(None, 'the same, for validation', 'utterances', low=1,
                                   derived='`ds_batch_size`')
    test_batch_size: int = _setting(None, 'the same, for the test', 'utterances', low=1,
                                    derived='`ds_batch_size`')
    batch_order: str = _setting('sorted', 'order of the training utterances: by length every '
                                'epoch, batches of similar length in random order, or random',
                                choices=BATCH_ORDERS)
    numbuckets: int = _setting(32, 'length buckets of the order `bucketed`', 'buckets', low=1)
    limit_train: int = _setting(0, 'use the first n training utterances; 0: all', 'utterances',
                                low=0)
    limit_dev: int = _setting(0, 'the same for validation', 'utterances', low=0)
    limit_test: int = _setting(0, 'the same for the test', 'utterances', low=0)
    learning_rate: float = _setting(0.001, 'step size of Adam', low=0.0)
    beta1: float = _setting(0.9, "decay of Adam's first moment", low=0.0, below=1.0)
    beta2: float = _setting(0.999, "decay of Adam's second moment", low=0.0, below=1.0)
    epsilon: float = _setting(1e-8, "Adam's epsilon", low=0.0)
    dropout_rate: float = _setting(0.05, 'dropout after layers 1, 2, 3 and 5', low=0.0, below=1.0)
    dropout_rate2: float = _setting(None, 'dropout after layer 2', low=0.0, below=1.0,
                                    derived='`ds_dropout_rate`')
    dropout_rate3: float = _setting(None, 'dropout after layer 3', low=0.0, below=1.0,
                                    derived='`ds_dropout_rate`')
    dropout_rate5: float = _setting(None, 'dropout after layer 5', low=0.0, below=1.0,
                                    derived='`ds_dropout_rate`')
    use_warpctc: bool = _setting(False, "CTC loss by the `CTCLossV2` operation (cuDNN; needs a "
                                 'GPU); warp-ctc left TensorFlow with contrib')
    rnn_impl: str = _setting('auto', 'LSTM of layer 4, the same function and checkpoints: `own` '
                             '(fastest on CPUs), `block` (BlockLSTM), `cudnn` (GPUs only); '
                             '`auto`: `cudnn` where there are GPUs, else `own`',
                             choices=RNN_IMPLS)
    random_seed: int = _setting(4567, 'seed of weights, order and dropout', low=0, high=_LARGEST)
    towers: int = _setting(0, 'towers; 0: one a GPU, or one on the CPU; n on a machine without '
                           'GPUs: n logical CPU devices', 'towers', low=0, high=64)

    # Reports, checkpoints, logs
    display_step: int = _setting(1, 'WER of the training batches every n epochs; 0: never',
                                 'epochs', low=0)
    validation_step: int = _setting(1, 'validation every n epochs; 0: never', 'epochs', low=0)
    checkpoint_step: int = _setting(5, 'checkpoint every n epochs and after the last; 0: only '
                                    'after the last', 'epochs', low=0)
    report_count: int = _setting(10, 'utterances in a WER report', 'utterances', low=0)
    beam_width: int = _setting(100, 'width of the beam search', 'paths', low=1)
    do_fulltrace: bool = _setting(False, 'run metadata of every step for TensorBoard, and a '
                                  'Chrome trace')
    log_device_placement: bool = _setting(False, "TensorFlow's log of where operations run")
    log_variables: bool = _setting(False, 'statistics and histograms of variables and gradients')

    # Features and geometry
    sample_rate: int = _setting(16000, 'rate that audio is brought to', 'Hz', low=1000,
                                high=192000)
    n_input: int = _setting(None, 'MFCC a frame', 'coefficients', low=1, high=26,
                            derived='13 at 8 kHz, else 26')
    n_context: int = _setting(9, 'frames of context on either side', 'frames', low=0, high=100)
    feature_stride: int = _setting(1, 'keep every n-th frame (2: as from December 2016)', 'frames',
                                   low=1, high=10)
    n_hidden: int = _setting(None, 'width of layers 1, 2, 5 and of the LSTM cell', **_WIDTH,
                             derived='`n_input + 2*n_input*n_context`')
    n_hidden_1: int = _setting(None, 'width of layer 1', **_WIDTH, derived='`ds_n_hidden`')
    n_hidden_2: int = _setting(None, 'width of layer 2', **_WIDTH, derived='`ds_n_hidden`')
    n_hidden_5: int = _setting(None, 'width of layer 5', **_WIDTH, derived='`ds_n_hidden`')
    n_cell_dim: int = _setting(None, 'width of the LSTM cell; layer 3 has twice that', **_WIDTH,
                               derived='`ds_n_hidden`')
    relu_clip: float = _setting(20.0, 'ceiling of the activation', low=0.0)
    default_stddev: float = _setting(0.1, 'standard deviation of the initial weights and biases',
                                     low=0.0)
    b1_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)
    h1_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)
    b2_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)
    h2_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)
    b3_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)
    h3_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)
    b5_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)
    h5_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)
    b6_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)
    h6_stddev: float = _setting(None, 'the same for one variable', **_STDDEV)

    @property
    def n_hidden_3(self):
        """Width of layer 3, which feeds the LSTM."""
        return 2 * self.n_cell_dim

    @property
    def n_features(self):
        """Values that a time step of the network's input has: the frame and its context."""
        return self.n_input + 2 * self.n_input * self.n_context

    def set_batch_size(self, set_name):
        """Utterances in a batch of one tower of the set 'train', 'dev' or 'test'."""
        return getattr(self, set_name + '_batch_size')

    def dropout_of_layer(self, index):
        """Dropout rate after layer 1, 2, 3 or 5."""
        return self.dropout_rate if index == 1 else getattr(self, 'dropout_rate%d' % index)


_FIELDS = {PREFIX + field.name: field for field in dataclasses.fields(Config)}


def load(environ=None):
    """Reads the settings.

    Args:
      environ: mapping of environment variables; None is `os.environ`.
    Returns:
      (Config, sources): the effective values, and for each field name where its value came
      from: 'default', 'derived', 'environment' or the path of the file.
    Raises:
      ConfigError: an unknown name, a value of the wrong type or out of range, an unreadable
        file.
    """
    environ = os.environ if environ is None else environ
    from_environment = _parse_all({k: v for k, v in environ.items() if k.startswith(PREFIX)},
                                  'environment')
    path = _config_path(from_environment)
    from_file = _parse_all(_read_file(path), path) if path else {}
    values, sources = {}, {}
    for field in dataclasses.fields(Config):
        values[field.name], sources[field.name] = field.default, 'default'
        for origin, found in ((path, from_file), ('environment', from_environment)):
            if field.name in found:
                values[field.name], sources[field.name] = found[field.name], origin
    values['config'] = path or ''
    if 'config' not in from_environment:
        sources['config'] = 'derived'
    for name, value in _derive(values).items():
        if values[name] is None:
            values[name], sources[name] = value, 'derived'
    return Config(**values), sources


def with_towers(config, n_gpus):
    """The dynamic part that needs the devices: `towers` 0 becomes the number of towers, and
    `rnn_impl` 'auto' the implementation for them.

    Raises:
      ConfigError: more towers asked for than there are GPUs, or what only GPUs can do.
    """
    if n_gpus and config.towers > n_gpus:
        raise ConfigError('ds_towers must be an integer from 0 to %d on this machine with %d '
                          'GPUs, got %d' % (n_gpus, n_gpus, config.towers))
    if config.rnn_impl == 'cudnn' and not n_gpus:
        raise ConfigError('ds_rnn_impl must be auto, own or block on a machine without GPUs, '
                          'got cudnn')
    rnn_impl = config.rnn_impl
    if rnn_impl == 'auto':
        rnn_impl = 'cudnn' if n_gpus else 'own'
    return dataclasses.replace(config, towers=config.towers or n_gpus or 1, rnn_impl=rnn_impl)


def _config_path(from_environment):
    if 'config' in from_environment:
        return from_environment['config']
    if from_environment.get('importer', Config.importer) == 'digits':
        return os.path.relpath(_project_file('data', 'digits', 'config.json'))
    return None


def _project_file(*parts):
    return os.path.join(PROJECT_DIR, *parts)


def _derive(values):
    """The dynamic part: defaults that depend on other values or on the machine."""
    n_input = values['n_input'] or (13 if values['sample_rate'] == 8000 else 26)
    n_hidden = values['n_hidden'] or n_input + 2 * n_input * values['n_context']
    derived = {
        'dataset_path': ','.join(_default_dataset_path(name.strip())
                                 for name in values['importer'].split(',')),
        'checkpoint_dir': os.path.join(_xdg('xdg_data_home'), 'deepspeech'),
        'cache_dir': os.path.join(_xdg('xdg_cache_home'), 'deepspeech'),
        'n_input': n_input, 'n_hidden': n_hidden, 'n_cell_dim': n_hidden}
    derived.update({'n_hidden_%d' % i: n_hidden for i in (1, 2, 5)})
    derived.update({name + '_batch_size': values['batch_size']
                    for name in ('train', 'dev', 'test')})
    derived.update({'dropout_rate%d' % i: values['dropout_rate'] for i in (2, 3, 5)})
    derived.update({'%s%d_stddev' % (kind, i): values['default_stddev']
                    for kind in 'bh' for i in (1, 2, 3, 5, 6)})
    return derived


def _default_dataset_path(importer):
    if importer == 'digits':
        return os.path.relpath(_project_file('data', 'digits'))
    return os.path.join('.', 'data', importer)


def _xdg(directory):
    from xdg import BaseDirectory  # here, as it reads the environment when it is imported
    return getattr(BaseDirectory, directory)


def _read_file(path):
    """The JSON object in a file of settings."""
    try:
        with open_regular(path, encoding='utf-8-sig') as file:
            found = json.load(file)
    except OSError as error:
        raise ConfigError('ds_config: cannot read %s: %s' % (path, error.strerror)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError('ds_config: %s is not JSON: %s' % (path, error)) from None
    if not isinstance(found, dict):
        raise ConfigError('ds_config: %s must hold one JSON object of ds_ settings' % path)
    if PREFIX + 'config' in found:
        raise ConfigError('ds_config: %s cannot name another file of settings' % path)
    return found


def open_regular(path, **options):
    """`open` for reading; OSError for a pipe, which might keep a run waiting for ever."""
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
        raise OSError(errno.EINVAL, 'not a regular file', path)
    return open(path, **options)


def _parse_all(raw, origin):
    """Checks settings of one origin: {'ds_name': text or JSON value} -> {field name: value}."""
    values = {}
    for name, value in raw.items():
        known = ALIASES.get(name, name)
        if known not in _FIELDS:
            raise ConfigError('%s (%s) is not a setting%s' % (name, origin, _nearest(name)))
        if known != name and known in raw and str(raw[known]) != str(value):
            raise ConfigError('%s and %s are two names of one setting, got %r and %r (%s)'
                              % (name, known, value, raw[known], origin))
        values[known[len(PREFIX):]] = parse(name, value, _FIELDS[known])
    return values


def _nearest(name):
    near = difflib.get_close_matches(name.lower(), [*_FIELDS, *ALIASES], n=1, cutoff=0.0)
    return '; the nearest is %s (python DeepSpeech.py --help lists them)' % near[0]


def parse(name, value, field):
    """One value from text (environment) or JSON, checked for type and range.

    Raises:
      ConfigError: naming the setting, the value and what was expected.
    """
    reader = {bool: _parse_switch, int: _parse_int, float: _parse_float, str: _parse_text}
    parsed = reader[field.type](value)
    limits = field.metadata
    if parsed is None or not _within(parsed, limits):
        raise ConfigError('%s must be %s, got %s' % (name, _expected(field), _shown(value)))
    return parsed


def _shown(value):
    """A value in a message, not longer than a line."""
    shown = reprlib.Repr()
    shown.maxstring = shown.maxother = shown.maxlong = SHOWN_CHARACTERS
    return shown.repr(value)


def _within(value, limits):
    return ((limits['low'] is None or value >= limits['low'])
            and (limits['high'] is None or value <= limits['high'])
            and (limits['below'] is None or value < limits['below'])
            and (limits['choices'] is None or value in limits['choices']))


def _expected(field):
    """What a setting takes, in words: 'an integer of at least 1'."""
    limits = field.metadata
    if limits['choices']:
        return 'one of ' + ', '.join(limits['choices'])
    words = {bool: 'on or off (1, true, yes, on / 0, false, no, off or empty)',
             int: 'an integer', float: 'a number', str: 'text'}[field.type]
    if limits['low'] is not None and limits['high'] is not None:
        return '%s from %s to %s' % (words, limits['low'], limits['high'])
    if limits['low'] is not None:
        words += ' of at least %s' % limits['low']
    if limits['below'] is not None:
        words += ' and below %s' % limits['below']
    return words


def _parse_switch(value):
    text = str(value).strip().lower()
    return True if text in ON else False if text in OFF else None


def _parse_int(value):
    if isinstance(value, bool):
        return None
    try:
        number = int(value.strip() if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return None
    whole = isinstance(value, str) or number == value
    return number if whole and abs(number) <= _LARGEST else None


def _parse_float(value):
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _parse_text(value):
    try:
        os.fsencode(value)  # every text may be a path
    except (TypeError, UnicodeEncodeError):
        return None
    return value.strip() if isinstance(value, str) and '\0' not in value else None


def table_rows():
    """The settings table: (name, type, default, unit, meaning) of each, as text."""
    names = {bool: 'on/off', int: 'integer', float: 'number', str: 'text'}
    rows = []
    for name, field in _FIELDS.items():
        default = field.metadata['derived'] or show(field.default)
        rows.append((name, names[field.type], default, field.metadata['unit'] or '',
                     field.metadata['meaning']))
    return rows


def show(value):
    """A value as one would write it in the environment."""
    if isinstance(value, bool):
        return 'on' if value else 'off'
    return str(value)


def help_text():
    """The table for `--help`: a setting a line, its default and unit below its meaning."""
    lines = ['Usage: [ds_NAME=VALUE ...] python DeepSpeech.py [--help | --show-config]', '',
             'With nothing set it trains on the digits corpus in data/digits. Settings:', '']
    for name, kind, default, unit, meaning in table_rows():
        lines.append('%-24s %s' % (name, meaning.replace('`', '')))
        details = '%s, default %s' % (kind, default.replace('`', '') or 'empty')
        lines.append('%-24s   (%s%s)' % ('', details, ', in ' + unit if unit else ''))
    return '\n'.join(lines)


def markdown_table():
    """The settings table of the README."""
    lines = ['| setting | type | default | unit | meaning |', '|---|---|---|---|---|']
    for name, kind, default, unit, meaning in table_rows():
        lines.append('| `%s` | %s | %s | %s | %s |' % (name, kind, default or '(empty)', unit,
                                                       meaning))
    return '\n'.join(lines)


def effective_text(config, sources):
    """The effective values and their origins, a setting a line, for `--show-config`."""
    return '\n'.join('%-24s %-30s %s' % (PREFIX + name, show(getattr(config, name)) or "''",
                                         sources[name])
                     for name in sources)
