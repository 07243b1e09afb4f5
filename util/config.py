"""Every `ds_*` setting, declared once: its name, type, default, unit and meaning.

This module is the only one that reads the environment. `load` returns one frozen `Config`, which
is passed on to everything else. The value of a setting comes from the environment; if it is not
set there, from the JSON file that `ds_config` names; otherwise it is the default. Defaults that
depend on other settings or on the machine (widths, paths, batch sizes) are filled in by `_derive`.
"""

import contextlib
import dataclasses
import difflib
import json
import logging
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from util import augment_setting, errors, files

log = logging.getLogger(__name__)

PROJECT_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PREFIX = 'ds_'
TENSORFLOW_LOG_LEVEL = 'TF_CPP_MIN_LOG_LEVEL'
ALIASES = {'ds_epochs': 'ds_training_iters'}  # {another name: the name of the setting}
ON, OFF = ('1', 'true', 'yes', 'on'), ('', '0', 'false', 'no', 'off')
SHOWN_CHARACTERS = 60  # maximum length of a value in a message
BATCH_ORDERS = ('sorted', 'shuffled', 'bucketed')
RNNS = ('lstm', 'vanilla')
RNN_IMPLS = ('auto', 'own', 'block', 'cudnn')
RECURRENT_INITS = ('uniform', 'orthogonal')
LOSS_NORMS = ('utterances', 'labels')
LM_UNKNOWN_NEVER = 'never'  # ds_lm_unknown without words outside the lexicon
# Weights of Mozilla's DeepSpeech 0.9.3 for its model of English, which it found by a search on
# LibriSpeech; util.tools.tune_lm finds those that fit a model
LM_ALPHA, LM_BETA = 0.931, 1.183
LEARNING_RATE_SCHEDULES = ('exponential', 'cosine')
FEATURE_NORMS = ('utterance', 'coefficient')
BEST_BY = ('loss', 'wer', 'cer')
NONFINITE = ('stop', 'skip')
WEIGHT_RANGE = 10**6  # the largest ratio between the weights of two corpora
FULL = 'full'  # stands for all utterances at the end of ds_segment_lengths
# Fields that hold a path, and those that hold several with commas between
PATHS = ('config', 'cache_dir', 'checkpoint_dir', 'export_dir', 'logs_dir', 'alphabet',
         'init_from', 'lm', 'lm_lexicon', 'lm_grammar')  # fmt: skip
PATH_LISTS = ('dataset_path', 'train_files', 'dev_files', 'test_files')
# Names that look like a setting's, written in another way
_OTHER_SPELLING = re.compile('(?:ds|deepspeech)[_-](.+)', re.I)
NEAR = 0.8  # similarity, from 0 to 1, of such a name to the setting that may be meant

# Where a setting comes from: the notebook of November 2016, Mozilla's releases after it, nabu (an
# ASR trainer of TensorFlow 1.8 times, and its fork Nabu-MSSS), the paper (Hannun et al., 2014),
# torchaudio's model of the paper, tacotron-2-explained (a step-by-step trainer), or here
NOTEBOOK, DEEPSPEECH, NABU, PAPER, TORCHAUDIO, TACOTRON, HERE = (
    'notebook',
    'DeepSpeech',
    'nabu',
    'paper',
    'torchaudio',
    'tacotron-2',
    'here',
)


@contextlib.contextmanager
def silenced_tensorflow() -> Iterator[None]:
    """Silences TensorFlow while the block imports it; TF_CPP_MIN_LOG_LEVEL=0 shows its messages.

    The variable alone is not enough: the messages that TensorFlow 2.21 prints while it is loaded
    go straight to the file descriptor of the standard error. TensorFlow reads the variable only
    once, so the environment is left as it was.
    """
    if os.path.expanduser('~') == '~':  # without a home folder, Keras would make a folder ~ here
        os.environ.setdefault('KERAS_HOME', os.path.join(os.devnull, 'keras'))
    given = os.environ.get(TENSORFLOW_LOG_LEVEL)
    if given not in (None, '3'):
        yield
        return
    os.environ[TENSORFLOW_LOG_LEVEL] = '3'
    try:
        with silenced_stderr():
            yield
    finally:
        if given is None:
            del os.environ[TENSORFLOW_LOG_LEVEL]


@contextlib.contextmanager
def silenced_stderr() -> Iterator[None]:
    """Discards what the block writes to the file descriptor of the standard error."""
    try:
        kept = os.dup(2)
    except OSError:  # the standard error is closed
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


def environment_with(**values: object) -> dict[str, str]:
    """Returns this process's environment for a child process, with these settings, {field name:
    value}, and no other ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**kept, **{PREFIX + name: str(value) for name, value in values.items()}}


def _setting(
    default,
    meaning,
    unit='',
    low=None,
    high=None,
    above=None,
    below=None,
    choices=None,
    derived='',
    source=HERE,
    items=False,
) -> Any:
    """Declares a setting.

    Args:
      default: the default value; None if it depends on other settings.
      meaning: what the setting does, in words for the tables of settings.
      unit: its unit, a plural noun or a symbol.
      low, high: the smallest and the largest allowed value; None: no bound.
      above, below: bounds that the value must not equal; None: no bound.
      choices: the values that a text may have.
      derived: a default that depends on other settings, in words.
      source: where the setting comes from.
      items: whether a JSON file may give a list of texts, which are joined with spaces and quotes.
    """
    return dataclasses.field(
        default=default,
        metadata={
            'meaning': meaning,
            'unit': unit,
            'low': low,
            'high': high,
            'above': above,
            'below': below,
            'choices': choices,
            'derived': derived,
            'source': source,
            'items': items,
        },
    )


_LARGEST = 2**31 - 1  # integers of the graph have 32 bits
_STDDEV = {'low': 0.0, 'derived': '`ds_default_stddev`', 'source': NOTEBOOK}
_BATCH = {'low': 1, 'high': 10**6, 'unit': 'utterances'}
_BEAM = {'low': 1, 'high': 10**5, 'unit': 'paths'}
_WIDTH = {'low': 1, 'high': 10**5, 'unit': 'units', 'source': DEEPSPEECH}
_RATE = {'low': 0.0, 'below': 1.0, 'derived': '`ds_dropout_rate`', 'source': DEEPSPEECH}


# Not formatted, so that the settings can be read like a table.
# fmt: off
@dataclasses.dataclass(frozen=True)
class Config:
    """The settings: the field NAME holds the setting `ds_NAME`.

    In a Config that `load` returns, no field is None.
    """
    # Corpus, folders, files
    config: str = _setting(
        None, 'JSON file of settings; the environment overrides it; empty: no file',
        derived='the recipe `data/digits/config.json` for the importer `digits`, else none')
    importer: str = _setting('digits', 'corpus: a module of `util/importers/`; several, '
                             'comma-separated, are joined', source=NOTEBOOK)
    dataset_path: str = _setting(
        None, 'folder of the corpus; for several importers one folder each, comma-separated',
        derived='`./data/<importer>`; for `digits` the one beside `DeepSpeech.py`',
        source=NOTEBOOK)
    train_files: str = _setting('', 'manifests for training, comma-separated (importer `csv`)',
                                source=DEEPSPEECH)
    dev_files: str = _setting('', 'manifests for validation, comma-separated (importer `csv`)',
                              source=DEEPSPEECH)
    test_files: str = _setting('', 'manifests for the test, comma-separated (importer `csv`)',
                               source=DEEPSPEECH)
    cache_dir: str = _setting(
        None, 'folder of the caches: headers of audio files, features, converted audio',
        derived='`deepspeech` in the XDG cache directory')
    feature_cache: bool = _setting(True, 'keep MFCC on disk, so that they are computed only once',
                                   source=DEEPSPEECH)
    feature_cache_gb: float = _setting(100.0, 'largest size of a feature cache file', 'GB', low=0.0)
    checkpoint_dir: str = _setting(
        None, 'folder of the checkpoints', derived='`deepspeech` in the XDG data directory',
        source=NOTEBOOK)
    restore_checkpoint: bool = _setting(False, 'go on from the newest checkpoint', source=NOTEBOOK)
    export_dir: str = _setting('', 'base folder of exported models; empty: no export',
                               source=NOTEBOOK)
    remove_export: bool = _setting(False, 'remove older exported versions after an export',
                                   source=NOTEBOOK)
    logs_dir: str = _setting('logs', 'folder in which each run makes a folder for its logs',
                             source=NOTEBOOK)
    alphabet: str = _setting('', 'file with one character on each line; empty: space, a to z, '
                             'apostrophe', source=DEEPSPEECH)

    # Several corpora, and updates of several batches
    importer_weights: str = _setting(
        '', 'links several corpora: a weight for each importer, comma-separated; an update takes '
        'a batch of each corpus; 0 (not for the first) leaves a corpus out; empty: the corpora '
        'are joined', source=NABU)
    numbatches_to_aggregate: int = _setting(
        1, 'batches (of each linked corpus) whose gradients are summed up for an update',
        'batches', low=1, high=10**6, source=NABU)
    normalize_gradients: bool = _setting(
        False, 'divide the summed gradients of an update by its loss norm, so that every '
        'utterance (or label) counts alike; off: every batch counts alike', source=NABU)
    loss_norm: str = _setting('utterances', 'what the loss norm of an update counts: `utterances` '
                              'or `labels`', choices=LOSS_NORMS, source=NABU)
    clip_grad_value: float = _setting(0.0, 'bound of the absolute value of every element of the '
                                      'gradients, after they are normalised; 0: none', low=0.0,
                                      high=1e30, source=NABU)
    clip_grad_norm: float = _setting(0.0, 'bound of the global norm of the gradients; 0: none',
                                     low=0.0, high=1e30, source=TORCHAUDIO)

    # Learning rate, patience, curriculum
    learning_rate_decay: float = _setting(
        1.0, 'factor of the learning rate at the end of the run, see `ds_learning_rate_schedule`',
        above=0.0, high=1.0, source=NABU)
    learning_rate_schedule: str = _setting(
        'exponential', 'how the learning rate falls to `ds_learning_rate_decay`: `exponential`, or '
        'along half a `cosine`', choices=LEARNING_RATE_SCHEDULES)
    warmup_steps: int = _setting(0, 'number of updates over which the learning rate rises linearly '
                                 'at the start of the run; 0: none', 'updates', low=0)
    best_by: str = _setting(
        'loss', 'figure of the dev set that says which weights are the best, and which validations '
        'count as better: `loss`, `wer` or `cer` (the lower loss decides if they are equal)',
        choices=BEST_BY)
    valid_adapt: float = _setting(
        1.0, 'factor of the learning rate after each validation that is not better than the best '
        '(by `ds_best_by`)', above=0.0, high=1.0, source=NABU)
    num_tries: int = _setting(0, 'patience: stop after n validations that are not better than the '
                              'best (by `ds_best_by`); 0: never', 'validations', low=0,
                              source=NABU)
    go_back: bool = _setting(False, 'go back to the best weights after each validation that is not '
                             'better (by `ds_best_by`)', source=NABU)
    reset_tries: bool = _setting(False, 'start the count of `ds_num_tries` again at 0 after each '
                                 'better validation; off: count over the whole stage', source=NABU)
    average_checkpoints: int = _setting(
        0, 'test and export the mean of the weights of the n newest checkpoints of the run, if it '
        'is not worse on the dev set (by `ds_best_by`) than the best weights; 0: off',
        'checkpoints', low=0, high=1000)
    init_from: str = _setting(
        '', 'weights to start from, which are found by name: a checkpoint, a folder of '
        'checkpoints, or a `.npz` file; empty: random weights', source=NABU)
    segment_lengths: str = _setting(
        '', 'curriculum: the length of the longest utterances of each stage, comma-separated, such '
        'as `100,200,full`; each stage has `ds_training_iters` epochs; empty: one stage of all '
        'utterances', 'time steps', source=NABU)

    # Augmentation
    augment: str = _setting(
        '', 'augmentations of the training utterances, with spaces between (in a JSON file also a '
        'list): `name[p=0.5,key=value,key=value~range,key=from:to]`; see the section Augmentation '
        'of util/README.md; empty: none', source=DEEPSPEECH, items=True)
    augment_cache_gb: float = _setting(1.0, 'memory in which `ds_augment` keeps decoded audio, so '
                                       'that it is decoded only once', 'GB', low=0.0)

    feed_timeout_secs: float = _setting(300.0, 'end the run, with a checkpoint, if reading an '
                                        'utterance takes longer, as from a file server that is '
                                        'gone; 0: never', 's', low=0.0)

    # The splits of corpora whose split can be chosen
    librivox_train: str = _setting('train-clean-100,train-clean-360,train-other-500',
                                   'LibriSpeech subsets to train on, comma-separated')
    librivox_dev: str = _setting('dev-clean', 'LibriSpeech subsets for validation, comma-separated')
    librivox_test: str = _setting('test-clean', 'LibriSpeech subsets for the test, comma-separated')
    fsdd_dev_speakers: str = _setting('', 'FSDD speakers for validation only, comma-separated; '
                                      'empty: recordings 5 to 9 of the speakers who are not held '
                                      'out for the test')
    fsdd_test_speakers: str = _setting('', 'FSDD speakers for the test only, comma-separated; '
                                       'empty: recordings 0 to 4 of all speakers, the official '
                                       'split')
    timit_sa: bool = _setting(False, "use TIMIT's sa sentences, which all speakers read")

    # Training
    training_iters: int = _setting(15, 'epochs to train, in each stage (also `ds_epochs`); 0: '
                                   'only test and export a checkpoint', 'epochs', low=0,
                                   source=NOTEBOOK)
    batch_size: int = _setting(64, 'utterances in a batch of one tower', source=NOTEBOOK, **_BATCH)
    train_batch_size: int = _setting(None, 'utterances in a training batch of one tower',
                                     derived='`ds_batch_size`', source=DEEPSPEECH, **_BATCH)
    dev_batch_size: int = _setting(None, 'utterances in a validation batch of one tower',
                                   derived='`ds_batch_size`', source=DEEPSPEECH, **_BATCH)
    test_batch_size: int = _setting(None, 'utterances in a test batch of one tower',
                                    derived='`ds_batch_size`', source=DEEPSPEECH, **_BATCH)
    batch_order: str = _setting(
        'sorted', 'order of the training utterances: `sorted` by length in every epoch, `bucketed` '
        '(batches of similar length in random order) or `shuffled`', choices=BATCH_ORDERS)
    numbuckets: int = _setting(32, 'number of length buckets of the order `bucketed`', 'buckets',
                               low=1, source=NABU)
    limit_train: int = _setting(0, 'use the first n utterances (of each linked corpus) for '
                               'training; 0: all', 'utterances', low=0, source=DEEPSPEECH)
    limit_dev: int = _setting(0, 'use the first n utterances for validation; 0: all', 'utterances',
                             low=0, source=DEEPSPEECH)
    limit_test: int = _setting(0, 'use the first n utterances for the test; 0: all', 'utterances',
                              low=0, source=DEEPSPEECH)
    learning_rate: float = _setting(0.001, 'step size of Adam', low=0.0, source=NOTEBOOK)
    beta1: float = _setting(0.9, "decay of Adam's first moment", low=0.0, below=1.0,
                            source=NOTEBOOK)
    beta2: float = _setting(0.999, "decay of Adam's second moment", low=0.0, below=1.0,
                            source=NOTEBOOK)
    epsilon: float = _setting(1e-8, "Adam's epsilon", low=0.0, source=NOTEBOOK)
    dropout_rate: float = _setting(0.05, 'dropout after layers 1, 2, 3 and 5', low=0.0, below=1.0,
                                   source=NOTEBOOK)
    dropout_rate1: float = _setting(None, 'dropout after layer 1', **_RATE)
    dropout_rate2: float = _setting(None, 'dropout after layer 2', **_RATE)
    dropout_rate3: float = _setting(None, 'dropout after layer 3', **_RATE)
    dropout_rate4: float = _setting(0.0, 'dropout after layer 4, the recurrent one', low=0.0,
                                    below=1.0, source=DEEPSPEECH)
    dropout_rate5: float = _setting(None, 'dropout after layer 5', **_RATE)
    weight_decay: float = _setting(
        0.0, 'decoupled weight decay: every update also takes this share, times the learning rate, '
        'off the matrices (not off biases and gains)', low=0.0)
    label_smoothing: float = _setting(
        0.0, 'share by which training mixes the targets of CTC at each time step with equal '
        'probabilities of all classes; reported losses are without it', low=0.0, below=1.0)
    use_warpctc: bool = _setting(False, 'compute the CTC loss by the operation `CTCLossV2` '
                                 '(cuDNN; needs a GPU), as TensorFlow no longer has warp-ctc',
                                 source=NOTEBOOK)
    rnn: str = _setting('lstm', 'kind of layer 4: the notebook\'s `lstm`, or `vanilla`, the '
                        'clipped-ReLU recurrent layer of the paper', choices=RNNS, source=PAPER)
    recurrent_init: str = _setting(
        None, "initial recurrent weights: `uniform`, of variance 1 over the matrix's inputs, or "
        '`orthogonal`', choices=RECURRENT_INITS, source=TORCHAUDIO,
        derived='`orthogonal` for `ds_rnn=vanilla`, else `uniform`, the notebook\'s')
    rnn_impl: str = _setting('auto', 'implementation of the LSTM of layer 4; all have the same '
                             'outputs and checkpoints: `own` (fastest on CPUs), `block` '
                             '(BlockLSTM), `cudnn` (GPUs only); `auto`: `cudnn` where there are '
                             'GPUs, else `own`', choices=RNN_IMPLS)
    random_seed: int = _setting(4567, 'seed of the initial weights, the order of the utterances '
                                'and dropout', low=0, high=_LARGEST, source=DEEPSPEECH)
    towers: int = _setting(0, 'number of towers; 0: one for each GPU, or one on the CPU; without '
                           'GPUs, n towers share the CPU as n logical devices', 'towers', low=0,
                           high=64)

    # Reports, checkpoints, logs
    display_step: int = _setting(1, 'report the WER of the training batches every n epochs; 0: '
                                 'never', 'epochs', low=0, source=NOTEBOOK)
    validation_step: int = _setting(1, 'validate every n epochs; 0: never', 'epochs', low=0,
                                    source=NOTEBOOK)
    checkpoint_step: int = _setting(5, 'save a checkpoint every n epochs and after the last; 0: '
                                    'only after the last', 'epochs', low=0, source=NOTEBOOK)
    summary_steps: int = _setting(1, 'write the loss of the step, and summaries, every n steps; '
                                  '0: never', 'steps', low=0, source=TACOTRON)
    checkpoint_steps: int = _setting(0, 'save a checkpoint every n steps as well; 0: never',
                                     'steps', low=0, source=TACOTRON)
    checkpoint_secs: float = _setting(
        600.0, 'save a checkpoint after the update that ends this long after the last one was '
        'saved; it is removed once there is a newer one; 0: never', 's', low=0.0)
    nonfinite: str = _setting(
        'stop', 'what follows if a loss or gradients are not finite, of which no update is made: '
        '`stop`, or `skip` the batch, of which no more than 10 may come in a row',
        choices=NONFINITE)
    report_dropout: bool = _setting(
        True, 'make the report of `ds_display_step` with dropout, by the training itself; off: by '
        'a second pass over each batch without it')
    print_batch_shapes: bool = _setting(False, 'print the shapes of every batch',
                                        source=TACOTRON)
    report_count: int = _setting(10, 'utterances that a WER report shows', 'utterances', low=0,
                                 source=DEEPSPEECH)
    beam_width: int = _setting(100, 'width of the beam search', source=DEEPSPEECH, **_BEAM)
    export_beam_width: int = _setting(
        None, 'width of the beam search in exported models', derived='`ds_beam_width`', **_BEAM)
    lm: str = _setting('', 'language model for a second search of the test: an ARPA file, also '
                       'gzipped, or a binary of KenLM; empty: none', source=DEEPSPEECH)
    lm_alpha: float = _setting(LM_ALPHA, 'weight of the language model', low=0.0, high=1000.0,
                               source=DEEPSPEECH)
    lm_beta: float = _setting(None, 'what each word adds to the score', low=-1000.0, high=1000.0,
                              derived='%g with `ds_lm`, else 0' % LM_BETA, source=DEEPSPEECH)
    lm_lexicon: str = _setting('', 'file with the words of the second search, one a line; empty: '
                               'those of the ARPA file or of the grammar')
    lm_grammar: str = _setting('', 'file with the grammar of the second search; empty: none')
    lm_unknown: str = _setting(
        LM_UNKNOWN_NEVER, 'words outside the lexicon: `never`, `spell` for any, or the number that '
        'each of them adds to the score, such as -5')
    lm_beam_width: int = _setting(100, 'width of the second search', **_BEAM)
    do_fulltrace: bool = _setting(False, 'write run metadata of every step for TensorBoard, and a '
                                  'Chrome trace', source=NOTEBOOK)
    log_device_placement: bool = _setting(False, 'let TensorFlow log on which device each '
                                          'operation runs', source=DEEPSPEECH)
    log_variables: bool = _setting(False, 'write statistics and histograms of variables and '
                                   'gradients', source=DEEPSPEECH)

    # Features and geometry
    sample_rate: int = _setting(16000, 'sample rate to which all audio is converted', 'Hz',
                                low=1000, high=192000, source=DEEPSPEECH)
    n_input: int = _setting(None, 'number of MFCC in a frame', 'coefficients', low=1, high=26,
                            derived='13 at 8 kHz, else 26', source=NOTEBOOK)
    n_context: int = _setting(9, 'frames of context on either side', 'frames', low=0, high=100,
                              source=NOTEBOOK)
    feature_stride: int = _setting(1, "keep every n-th frame (2: as Mozilla's code of December "
                                   '2016)', 'frames', low=1, high=10)
    feature_norm: str = _setting(
        'utterance', 'normalisation of the MFCC of an utterance: `utterance`, one mean and one '
        "deviation of all values, as the notebook's, or `coefficient`, those of each coefficient",
        choices=FEATURE_NORMS)
    dynamic_range: float = _setting(
        0.0, 'raise mel energies that lie more than this below the largest one of the utterance, '
        'so that the noise of the recording does not count; 0: off', 'dB', low=0.0, high=400.0)
    n_hidden: int = _setting(None, 'width of layers 1, 2, 5 and of layer 4 in each direction',
                             **_WIDTH, derived='`n_input + 2*n_input*n_context`')
    n_hidden_1: int = _setting(None, 'width of layer 1', **_WIDTH, derived='`ds_n_hidden`')
    n_hidden_2: int = _setting(None, 'width of layer 2', **_WIDTH, derived='`ds_n_hidden`')
    n_hidden_5: int = _setting(None, 'width of layer 5', **_WIDTH, derived='`ds_n_hidden`')
    n_cell_dim: int = _setting(None, 'width of layer 4 in each direction; layer 3 has twice that '
                               'width, or the same with `ds_rnn=vanilla`', **_WIDTH,
                               derived='`ds_n_hidden`')
    relu_clip: float = _setting(20.0, 'ceiling of the clipped ReLU activation', low=0.0,
                                source=NOTEBOOK)
    layer_norm: bool = _setting(False, 'normalise the output of layers 1, 2, 3 and 5 over the '
                                'units, with a gain and a bias for each (layer normalisation)',
                                source=DEEPSPEECH)
    default_stddev: float = _setting(0.1, 'standard deviation of the initial weights and biases',
                                     low=0.0, source=NOTEBOOK)
    b1_stddev: float = _setting(None, 'standard deviation of the initial values of `b1`', **_STDDEV)
    h1_stddev: float = _setting(None, 'standard deviation of the initial values of `h1`', **_STDDEV)
    b2_stddev: float = _setting(None, 'standard deviation of the initial values of `b2`', **_STDDEV)
    h2_stddev: float = _setting(None, 'standard deviation of the initial values of `h2`', **_STDDEV)
    b3_stddev: float = _setting(None, 'standard deviation of the initial values of `b3`', **_STDDEV)
    h3_stddev: float = _setting(None, 'standard deviation of the initial values of `h3`', **_STDDEV)
    b4_stddev: float = _setting(None, 'standard deviation of the initial values of `b4` '
                              '(`ds_rnn=vanilla`)', **_STDDEV)
    h4_stddev: float = _setting(None, 'standard deviation of the initial values of `h4` '
                              '(`ds_rnn=vanilla`)', **_STDDEV)
    b5_stddev: float = _setting(None, 'standard deviation of the initial values of `b5`', **_STDDEV)
    h5_stddev: float = _setting(None, 'standard deviation of the initial values of `h5`', **_STDDEV)
    b6_stddev: float = _setting(None, 'standard deviation of the initial values of `b6`', **_STDDEV)
    h6_stddev: float = _setting(None, 'standard deviation of the initial values of `h6`', **_STDDEV)
    # fmt: on

    @property
    def n_hidden_3(self) -> int:
        """Returns the width of layer 3 in units: that of layer 4's output."""
        return self.n_hidden_4

    @property
    def n_hidden_4(self) -> int:
        """Returns the width of layer 4's output in units: both directions of the LSTM side by side,
        or their sum with `ds_rnn=vanilla`."""
        return self.n_cell_dim if self.rnn == 'vanilla' else 2 * self.n_cell_dim

    @property
    def n_features(self) -> int:
        """Returns the number of input values of a time step: of the frame and of its context."""
        return self.n_input + 2 * self.n_input * self.n_context

    def set_batch_size(self, set_name: str) -> int:
        """Returns the batch size of one tower, in utterances, for the set train, dev or test."""
        return getattr(self, set_name + '_batch_size')

    def dropout_of_layer(self, index: int) -> float:
        """Returns the dropout rate after layer 1, 2, 3, 4 or 5."""
        return getattr(self, 'dropout_rate%d' % index)

    @property
    def importers(self) -> list[str]:
        """Returns the names of the importers."""
        return [name.strip() for name in self.importer.split(',')]

    @property
    def corpora(self) -> list[str]:
        """Returns a name for each importer: its own, with its position if it occurs repeatedly."""
        names = self.importers
        return [
            name if names.count(name) == 1 else '%s#%d' % (name, index + 1)
            for index, name in enumerate(names)
        ]

    @property
    def linked_weights(self) -> list[float] | None:
        """Returns a weight for each importer, scaled so that the first is 1; None if the corpora
        are not linked."""
        weights = _numbers(self.importer_weights)
        return [weight / weights[0] for weight in weights] or None

    @property
    def stages(self) -> list[int | None]:
        """Returns the longest utterance of each training stage, in time steps; None: no limit."""
        return [
            None if length == FULL else int(length) for length in _items(self.segment_lengths)
        ] or [None]

    @property
    def accumulates(self) -> bool:
        """Returns whether an update sums up the gradients of several batches, or weights them."""
        return bool(
            self.numbatches_to_aggregate > 1 or self.normalize_gradients or self.importer_weights
        )


class Row(NamedTuple):
    """A row of the settings table; all its fields are text."""

    name: str  # ds_NAME
    type: str  # on/off, integer, number or text
    default: str  # in words if it depends on other settings
    unit: str  # empty if there is none
    meaning: str
    source: str  # where the setting comes from


_FIELDS = {PREFIX + field.name: field for field in dataclasses.fields(Config)}


def load(environ: Mapping[str, str] | None = None) -> tuple[Config, dict[str, str]]:
    """Reads the settings.

    Args:
      environ: environment variables; None stands for `os.environ`.
    Returns:
      (Config, sources): the effective values, and for each field name the source of its value:
      'default', 'derived', 'environment' or the path of the file.
    Raises:
      ConfigError: a name is unknown, a value has the wrong type or is out of range, or the file
        cannot be read.
    """
    environ = os.environ if environ is None else environ
    from_environment = _parse_all(
        {k: v for k, v in environ.items() if k.startswith(PREFIX)}, 'environment'
    )
    _warn_of_other_spellings(environ)
    path = _checked_path('config', _config_path(from_environment))
    from_file = _parse_all(_read_file(path), path) if path else {}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
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
    for name in (*PATHS, *PATH_LISTS):
        values[name] = _checked_path(name, values[name])
    config = Config(**values)
    _check_lists(config)
    _check_together(config)
    return config, sources


def _items(text):
    """Returns the items of a comma-separated list; an empty text has none."""
    return [item.strip() for item in text.split(',')] if text else []


def _numbers(text):
    """Returns the items of a list as numbers.

    Raises:
      ValueError: an item is not a finite number of at least 0.
    """
    numbers = [float(item) for item in _items(text)]
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError(text)
    return numbers


def _check_lists(config):
    """Raises ConfigError if a setting that holds a list cannot be used."""
    augment_setting.parse(config.augment)
    try:
        weights = _numbers(config.importer_weights)
        fine = not weights or (
            len(weights) == len(config.importers)
            and weights[0] > 0
            and all(
                weight == 0 or 1 / WEIGHT_RANGE <= weight / weights[0] <= WEIGHT_RANGE
                for weight in weights
            )
        )
    except ValueError:
        fine = False
    if not fine:
        raise errors.ConfigError(
            'ds_importer_weights must be a number of at least 0 for each importer of ds_importer '
            '(%d), the first above 0, the others 0 or within a factor of %d of it, with commas '
            'between, got %s'
            % (len(config.importers), WEIGHT_RANGE, _shown(config.importer_weights))
        )
    lengths = _items(config.segment_lengths)
    numbers = [int(length) for length in lengths if re.fullmatch('0*[1-9][0-9]{0,8}', length)]
    if len(numbers) + lengths[-1:].count(FULL) != len(lengths) or (numbers != sorted(set(numbers))):
        raise errors.ConfigError(
            'ds_segment_lengths must be rising numbers of time steps with commas between, the last '
            'of which may be %s, got %s' % (FULL, _shown(config.segment_lengths))
        )


def _check_together(config):
    """Raises ConfigError if settings do not fit together."""
    if config.rnn == 'vanilla' and config.rnn_impl not in ('auto', 'own'):
        raise errors.ConfigError(
            'ds_rnn_impl must be auto or own where ds_rnn is vanilla, got %s' % config.rnn_impl
        )
    if config.loss_norm == 'labels' and not config.normalize_gradients:
        raise errors.ConfigError(
            'ds_normalize_gradients must be on for ds_loss_norm=labels, got off'
        )
    if uses_dev_loss(config) and config.training_iters and not config.validation_step:
        raise errors.ConfigError(
            'ds_validation_step must be at least 1 for %s, got 0' % ', '.join(uses_dev_loss(config))
        )


def uses_dev_loss(config: Config) -> list[str]:
    """Returns the names of the settings in use that depend on the loss, or another figure, of the
    dev set."""
    return [
        PREFIX + name
        for name, used in (
            ('valid_adapt', config.valid_adapt < 1),
            ('num_tries', config.num_tries),
            ('go_back', config.go_back),
            ('average_checkpoints', config.average_checkpoints),
        )
        if used
    ]


def with_towers(config: Config, n_gpus: int) -> Config:
    """Fills in the settings that depend on the devices.

    Args:
      config: the settings as loaded.
      n_gpus: number of GPUs of this machine.
    Returns:
      The Config, in which the number of towers replaces `towers` 0, and an implementation replaces
      `rnn_impl` 'auto'.
    Raises:
      ConfigError: there are more towers than GPUs, or a setting needs a GPU and there is none.
    """
    if n_gpus and config.towers > n_gpus:
        raise errors.ConfigError(
            'ds_towers must be an integer from 0 to %d on this machine with '
            '%d GPUs, got %d' % (n_gpus, n_gpus, config.towers)
        )
    if config.rnn_impl == 'cudnn' and not n_gpus:
        raise errors.ConfigError(
            'ds_rnn_impl must be auto, own or block on a machine without GPUs, got cudnn'
        )
    rnn_impl = config.rnn_impl
    if rnn_impl == 'auto':
        rnn_impl = 'cudnn' if n_gpus and config.rnn == 'lstm' else 'own'
    return dataclasses.replace(config, towers=config.towers or n_gpus or 1, rnn_impl=rnn_impl)


def _config_path(from_environment):
    """Returns the path of the file of settings; '' or None if there is none."""
    if 'config' in from_environment:
        return from_environment['config']
    if from_environment.get('importer', Config.importer) == 'digits':
        return _project_file('data', 'digits', 'config.json')
    return None


def _checked_path(name, value):
    """Returns the value of a setting in PATHS or PATH_LISTS, in which a ~ at the start of a path
    is replaced by the home folder, as a shell does it.

    Raises:
      ConfigError: the home folder is not known, or the path is not in UTF-8, for which TensorFlow
        takes all paths.
    """
    if not value:
        return value
    given = _items(value) if name in PATH_LISTS else [value]
    paths = [os.path.expanduser(path) for path in given]
    for path in paths:
        if path.startswith('~'):
            raise errors.ConfigError(
                '%s%s must be a path whose home folder is known, got %s (HOME is not set, or there '
                'is no such user); ./~ is a folder of that name' % (PREFIX, name, path)
            )
        try:
            path.encode()
        except UnicodeEncodeError:
            raise errors.ConfigError(
                '%s%s must be a path in UTF-8, got %s' % (PREFIX, name, path)
            ) from None
    return value if paths == given else ','.join(paths)


def _project_file(*parts):
    """Returns the path of a file that comes with the project, relative to the working folder."""
    path = os.path.join(PROJECT_DIR, *parts)
    try:
        return os.path.relpath(path)
    except FileNotFoundError:  # the working folder was removed
        return path


def _derive(values):
    """Returns {field name: default} of the settings whose default depends on other settings or on
    the machine.

    Args:
      values: {field name: value}; the value is None if a setting is not set.
    """
    n_input = values['n_input'] or (13 if values['sample_rate'] == 8000 else 26)
    n_hidden = values['n_hidden'] or n_input + 2 * n_input * values['n_context']
    derived = {
        'dataset_path': ','.join(
            _default_dataset_path(name.strip()) for name in values['importer'].split(',')
        ),
        'checkpoint_dir': os.path.join(_xdg('xdg_data_home'), 'deepspeech'),
        'cache_dir': os.path.join(_xdg('xdg_cache_home'), 'deepspeech'),
        'recurrent_init': 'orthogonal' if values['rnn'] == 'vanilla' else 'uniform',
        'n_input': n_input,
        'n_hidden': n_hidden,
        'n_cell_dim': n_hidden,
        'export_beam_width': values['beam_width'],
        'lm_beta': LM_BETA if values['lm'] else 0.0,
    }
    derived.update({'n_hidden_%d' % i: n_hidden for i in (1, 2, 5)})
    derived.update(
        {name + '_batch_size': values['batch_size'] for name in ('train', 'dev', 'test')}
    )
    derived.update({'dropout_rate%d' % i: values['dropout_rate'] for i in (1, 2, 3, 5)})
    derived.update(
        {
            '%s%d_stddev' % (kind, i): values['default_stddev']
            for kind in 'bh'
            for i in (1, 2, 3, 4, 5, 6)
        }
    )
    return derived


def _default_dataset_path(importer):
    """Returns the default folder of an importer's corpus."""
    if importer == 'digits':
        return _project_file('data', 'digits')
    return os.path.join('.', 'data', importer)


def _xdg(directory):
    """Returns the XDG base directory 'xdg_data_home' or 'xdg_cache_home'."""
    from xdg import BaseDirectory  # here, because the import reads the environment

    return getattr(BaseDirectory, directory)


def _read_file(path):
    """Returns the JSON object in a file of settings."""
    try:
        with files.open_regular(path, encoding='utf-8-sig') as file:
            found = json.load(file)
    except OSError as error:
        raise errors.ConfigError('ds_config: cannot read %s: %s' % (path, error.strerror)) from None
    except (ValueError, RecursionError) as error:
        raise errors.ConfigError('ds_config: %s is not JSON: %s' % (path, error)) from None
    if not isinstance(found, dict):
        raise errors.ConfigError('ds_config: %s must hold one JSON object of ds_ settings' % path)
    if PREFIX + 'config' in found:
        raise errors.ConfigError('ds_config: %s cannot name another file of settings' % path)
    return found


def _parse_all(raw, origin):
    """Parses the settings of one origin, {'ds_name': text or JSON value}: {field name: value}."""
    values = {}
    for name, value in raw.items():
        known = ALIASES.get(name, name)
        if known not in _FIELDS:
            raise errors.ConfigError('%s (%s) is not a setting%s' % (name, origin, _nearest(name)))
        if known != name and known in raw and str(raw[known]) != str(value):
            raise errors.ConfigError(
                '%s and %s are two names of one setting, got %r and %r (%s)'
                % (name, known, value, raw[known], origin)
            )
        values[known[len(PREFIX) :]] = parse(name, value, _FIELDS[known])
    return values


def _warn_of_other_spellings(environ):
    """Warns of variables that are no settings but seem to be meant as such, as DS_Batch_Size; a
    setting's name starts with ds_ in small letters."""
    for name in environ:
        other = not name.startswith(PREFIX) and _OTHER_SPELLING.fullmatch(name)
        if not other:
            continue
        meant = PREFIX + other[1].lower().replace('-', '_')
        near = difflib.get_close_matches(meant, [*_FIELDS, *ALIASES], n=1, cutoff=NEAR)
        if near:
            log.warning('%s (environment) is not a setting and has no effect; the nearest is %s',
                        name, near[0])


def _nearest(name):
    """Returns the end of a message that suggests the setting with the most similar name."""
    near = difflib.get_close_matches(name.lower(), [*_FIELDS, *ALIASES], n=1, cutoff=0.0)
    return '; the nearest is %s (python DeepSpeech.py --help lists them)' % near[0]


def parse(name: str, value: object, field: dataclasses.Field) -> bool | int | float | str:
    """Parses one value and checks its type and range.

    Args:
      name: the setting, for the message.
      value: text from the environment, or a value of a JSON file.
      field: the setting's field of Config.
    Raises:
      ConfigError: the value is not allowed; the message says what was expected.
    """
    reader: dict[Any, Callable] = {
        bool: _parse_switch,
        int: _parse_int,
        float: _parse_float,
        str: _parse_text,
    }
    limits = field.metadata
    if limits['items'] and isinstance(value, list) and all(isinstance(i, str) for i in value):
        value = augment_setting.join(value)
    parsed = reader[field.type](value)
    if parsed is None or not _within(parsed, limits):
        raise errors.ConfigError('%s must be %s, got %s' % (name, _expected(field), _shown(value)))
    return parsed


def _shown(value):
    """Returns a value as a message shows it, shortened if it is long."""
    shown = reprlib.Repr()
    shown.maxstring = shown.maxother = shown.maxlong = SHOWN_CHARACTERS
    return shown.repr(value)


def _within(value, limits):
    """Tells whether a value is within the limits of its setting."""
    return (
        (limits['low'] is None or value >= limits['low'])
        and (limits['high'] is None or value <= limits['high'])
        and (limits['above'] is None or value > limits['above'])
        and (limits['below'] is None or value < limits['below'])
        and (limits['choices'] is None or value in limits['choices'])
    )


def _expected(field):
    """Returns the allowed values of a setting in words, such as 'an integer of at least 1'."""
    limits = field.metadata
    if limits['choices']:
        return 'one of ' + ', '.join(limits['choices'])
    words = {
        bool: 'on or off (1, true, yes, on / 0, false, no, off or empty)',
        int: 'an integer',
        float: 'a number',
        str: 'text',
    }[field.type]
    if limits['low'] is not None and limits['high'] is not None:
        return '%s from %s to %s' % (words, limits['low'], limits['high'])
    if limits['low'] is not None:
        words += ' of at least %s' % limits['low']
    if limits['above'] is not None:
        words += ' above %s' % limits['above']
    if limits['below'] is not None:
        words += ' and below %s' % limits['below']
    if limits['above'] is not None and limits['high'] is not None:
        words += ' and at most %s' % limits['high']
    return words


def _parse_switch(value):
    """Returns a value that must be on or off; None if it is not."""
    text = str(value).strip().lower()
    return True if text in ON else False if text in OFF else None


def _parse_int(value):
    """Returns a value that must be an integer; None if it is not."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value.strip() if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return None
    whole = isinstance(value, str) or number == value
    return number if whole and abs(number) <= _LARGEST else None


def _parse_float(value):
    """Returns a value that must be a finite number; None if it is not."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _parse_text(value):
    """Returns a value that must be text; None if it is not."""
    try:
        os.fsencode(value)  # every text may be a path
    except (TypeError, UnicodeEncodeError):
        return None
    return value.strip() if isinstance(value, str) and '\0' not in value else None


def table_rows() -> list[Row]:
    """Returns the settings table, in the order of the fields of Config."""
    names: dict[Any, str] = {bool: 'on/off', int: 'integer', float: 'number', str: 'text'}
    rows = []
    for name, field in _FIELDS.items():
        default = field.metadata['derived'] or show(field.default)
        rows.append(
            Row(
                name,
                names[field.type],
                default,
                field.metadata['unit'],
                field.metadata['meaning'],
                field.metadata['source'],
            )
        )
    return rows


def show(value: object) -> str:
    """Returns a value as text, in the form that the environment takes."""
    if isinstance(value, bool):
        return 'on' if value else 'off'
    return str(value)


def help_text() -> str:
    """Returns the text of `--help`: each setting with its meaning, type, default and unit."""
    lines = [
        'Exit status: 0 if all is done, 1 after an error, 2 after a wrong argument, 130 after an',
        'interruption (Ctrl-C, SIGTERM, SIGHUP), whose last line says what was saved.',
        '',
        'Settings, in the environment or in the JSON file of ds_config:',
        '',
    ]
    for name, kind, default, unit, meaning, _ in table_rows():
        lines.append('%-24s %s' % (name, meaning.replace('`', '')))
        details = '%s, default %s' % (kind, default.replace('`', '') or 'empty')
        lines.append('%-24s   (%s%s)' % ('', details, ', in ' + unit if unit else ''))
    return '\n'.join(lines)


def markdown_table() -> str:
    """Returns the settings table of util/README.md."""
    lines = ['| setting | type | default | unit | meaning | from |', '|---|---|---|---|---|---|']
    for name, kind, default, unit, meaning, source in table_rows():
        lines.append(
            '| `%s` | %s | %s | %s | %s | %s |'
            % (name, kind, default or '(empty)', unit, meaning, source)
        )
    return '\n'.join(lines)


def effective_text(config: Config, sources: Mapping[str, str]) -> str:
    """Returns the text of `--show-config`: each setting with its effective value and its source.

    Args:
      config, sources: as `load` returns them.
    """
    return '\n'.join(
        '%-24s %-30s %s' % (PREFIX + name, show(getattr(config, name)) or "''", sources[name])
        for name in sources
    )
