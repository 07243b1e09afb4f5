"""The measurements of the benchmark. Each function imports what it measures, as it runs in a
process of its own (see benchmark.py)."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from util import config as settings, errors, records


class Size(NamedTuple):
    """The geometry of a training step."""

    n_hidden: int  # width of the layers
    batch_size: int  # utterances
    n_steps: int  # time steps of each utterance


MAIN = Size(494, 16, 300)  # the notebook's network
SIZES = (MAIN, Size(494, 64, 300), Size(128, 16, 300), Size(1024, 16, 100), Size(2048, 8, 50))
VANILLA_SIZES = (MAIN, *SIZES[2:])  # of the paper's network
LONG, SHORT = Size(494, 16, 800), Size(494, 16, 100)  # eight times the time steps
SMALL = Size(494, 8, 300)  # an eighth of the batch of SIZES[1]
REPEATED_FLOP = 1.5e12  # operations for which a measurement is repeated
MIN_TIMES, MAX_TIMES = 4, 100  # limits of the number of repetitions
N_CONTEXT, N_INPUT, N_CHARACTER = 9, 26, 29
N_FEATURES = N_INPUT * (2 * N_CONTEXT + 1)
FRAMES_A_SECOND = 100  # of audio
PEAK_SIZE = 2048  # rows of the square matrices whose product gives the peak
BEAM_WIDTH = 100
EXPORT_SECONDS = (1, 5, 15)  # lengths of the utterances that an exported model decodes


def step_flop(size: Size, vanilla: bool = False) -> int:
    """Returns the floating-point operations of the matrix products of a training step.

    Each frame takes two operations for each weight forward, and twice as many backward, except
    that the gradient of the input is not needed.

    Args:
      size: geometry of the step.
      vanilla: whether the network is the paper's.
    """
    n = size.n_hidden
    weights = N_FEATURES * n + n * n + n * N_CHARACTER
    if vanilla:
        weights += n * n + 3 * n * n + n * n
    else:
        weights += n * 2 * n + 2 * 3 * n * 4 * n + 2 * n * n
    return 2 * size.batch_size * size.n_steps * (3 * weights - N_FEATURES * n)


def _fastest(run, flop):
    """Returns the seconds of the fastest of several calls of `run`, which makes `flop` operations.

    The first call, which includes the preparations, does not count.
    """
    run()
    times = []
    for _ in range(int(min(MAX_TIMES, max(MIN_TIMES, REPEATED_FLOP / flop)))):
        started = time.monotonic()
        run()
        times.append(time.monotonic() - started)
    return min(times)


def _peak_memory_mb():
    """Returns the peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _memory_mb():
    """Returns the memory that this process uses now, in MB."""
    with open('/proc/self/statm', encoding='ascii') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20


def measure_peak() -> float:
    """Returns the GFLOP/s of a large matrix product."""
    from util.tf1 import tf

    with tf.Graph().as_default(), tf.Session() as session:
        a = tf.get_variable('a', [PEAK_SIZE, PEAK_SIZE])
        session.run(a.initializer)
        run = session.make_callable(tf.matmul(a, a).op)
        return 2 * PEAK_SIZE**3 / _fastest(run, 2 * PEAK_SIZE**3) / 1e9


def measure_step(implementation: str, *size: int) -> dict:
    """Measures one training step.

    Args:
      implementation: 'own' or 'block' for the notebook's network, 'vanilla' for the paper's,
        'torch' and 'torch vanilla' for the same in PyTorch.
      size: the fields of a Size.
    Returns:
      The arguments, the seconds of a step, the memory in MB that the steps add to the process at
      its peak, and the memory of the whole process at its peak.
    """
    size = Size(*size)
    vanilla = 'vanilla' in implementation
    if implementation.startswith('torch'):
        run = _torch_step(size, vanilla)
    else:
        run = _own_step(size, {'rnn': 'vanilla'} if vanilla else {'rnn_impl': implementation})
    before = _memory_mb()
    seconds = _fastest(run, step_flop(size, vanilla))
    return {
        'implementation': implementation,
        **size._asdict(),
        'seconds': seconds,
        'memory_mb': _peak_memory_mb() - before,
        'process_mb': _peak_memory_mb(),
    }


def _labels(size):
    """Returns random labels, int64 [batch_size, n_labels]."""
    n_labels = min(60, size.n_steps // 3)
    return np.random.default_rng(1).integers(0, N_CHARACTER - 1, (size.batch_size, n_labels))


def _own_step(size, values):
    """Returns a function that makes a training step of this project.

    Args:
      size: Size.
      values: settings of the network, {name without ds_: text}.
    """
    import DeepSpeech
    from util.tf1 import tf

    config, _ = settings.load(
        {
            'ds_importer': 'csv',
            'ds_n_hidden': str(size.n_hidden),
            **{'ds_' + name: value for name, value in values.items()},
        }
    )
    config = settings.with_towers(config, 0)
    labels = _labels(size)
    frames = np.random.default_rng(0).normal(
        size=(size.batch_size, size.n_steps + 2 * N_CONTEXT, N_INPUT)
    )
    with tf.Graph().as_default() as graph:
        batch = records.Batch(
            *[
                tf.placeholder(kind, shape)
                for kind, shape in (
                    (tf.float32, [None, None, N_INPUT]),
                    (tf.int32, [None]),
                    (tf.int32, [None, None]),
                    (tf.int32, [None]),
                )
            ]
        )
        optimizer = DeepSpeech.create_optimizer(config)
        dropout = DeepSpeech.Dropout(tf.constant(True), tf.constant([1, 0], tf.int64))
        results = DeepSpeech.get_tower_results(
            batch,
            ['/cpu:0'],
            config=config,
            n_character=N_CHARACTER,
            dropout=dropout,
            optimizer=optimizer,
        )
        update = DeepSpeech.apply_gradients(
            optimizer, DeepSpeech.average_gradients(results.gradients)
        )
        session = tf.Session(graph=graph)
        session.run(tf.global_variables_initializer())
    run = session.make_callable([results.avg_loss, update], list(batch))
    fed = (
        frames.astype(np.float32),
        np.full(size.batch_size, size.n_steps, np.int32),
        labels.astype(np.int32),
        np.full(size.batch_size, labels.shape[1], np.int32),
    )
    return lambda: run(*fed)


def _torch_step(size, vanilla):
    """Returns a function that makes a training step of the same network in PyTorch."""
    import torch

    n = size.n_hidden
    n_4 = n if vanilla else 2 * n  # width of layer 4's input, and of its output
    widths = ((N_FEATURES, n), (n, n), (n, n_4), (n_4, n), (n, N_CHARACTER))
    dense = torch.nn.ModuleList(torch.nn.Linear(*pair) for pair in widths)
    recurrent = (
        torch.nn.RNN(n_4, n, nonlinearity='relu', bidirectional=True)
        if vanilla
        else torch.nn.LSTM(n_4, n, bidirectional=True)
    )
    optimizer = torch.optim.Adam([*dense.parameters(), *recurrent.parameters()], fused=True)
    labels = torch.tensor(_labels(size))
    windows = torch.randn(size.n_steps, size.batch_size, N_FEATURES)
    lengths = [torch.full((size.batch_size,), n) for n in (size.n_steps, labels.shape[1])]

    def layer(index, x):
        x = torch.clamp(dense[index](x), 0, 20)
        return torch.nn.functional.dropout(x, 0.05)

    def run():
        optimizer.zero_grad()
        x, _ = recurrent(layer(2, layer(1, layer(0, windows))))
        if vanilla:
            x = x[:, :, :n] + x[:, :, n:]
        logits = dense[4](layer(3, x))
        loss = torch.nn.functional.ctc_loss(
            torch.log_softmax(logits, 2), labels, *lengths, blank=N_CHARACTER - 1
        )
        loss.backward()
        optimizer.step()

    return run


def measure_decoding() -> dict:
    """Measures the beam search of a batch of MAIN's size, by `DeepSpeech.decode` and by
    TensorFlow's single operation.

    Returns:
      The seconds of both, whether their labels are identical, and the seconds of audio decoded.
    """
    import DeepSpeech
    from util.tf1 import tf

    logits = (
        np.random.default_rng(0)
        .normal(0, 3, (MAIN.n_steps, MAIN.batch_size, N_CHARACTER))
        .astype(np.float32)
    )
    with tf.Graph().as_default(), tf.Session() as session:
        fed, lengths = tf.placeholder(tf.float32, logits.shape), [MAIN.n_steps] * MAIN.batch_size
        ours = DeepSpeech.decode(fed, tf.constant(lengths), BEAM_WIDTH).values
        alone = tf.nn.ctc_beam_search_decoder(
            fed, lengths, beam_width=BEAM_WIDTH, top_paths=1, merge_repeated=False
        )[0][0].values
        seconds = {}
        for name, values in (('ours', ours), ('one_operation', alone)):
            run = session.make_callable(values, [fed])
            seconds[name] = _fastest(lambda run=run: run(logits), REPEATED_FLOP)
        same = np.array_equal(*session.run([ours, alone], {fed: logits}))
    return {
        'seconds': seconds,
        'identical': bool(same),
        'audio_seconds': MAIN.batch_size * MAIN.n_steps / FRAMES_A_SECOND,
    }


def measure_feeding() -> dict:
    """Measures the feeding of the digits without a network, from the reader threads through the
    queue.

    Returns:
      The seconds of a first epoch, in which the features are computed, and of a second one, which
      finds them in the cache; and the seconds of audio in an epoch.
    """
    from util import importers, text
    from util.feeding import feeder
    from util.tf1 import tf

    with tempfile.TemporaryDirectory() as cache_dir:
        config, _ = settings.load({'ds_cache_dir': cache_dir})
        data_sets = importers.read_data_sets(config, text.load_alphabet(config.alphabet))
        train = data_sets.train
        with tf.Graph().as_default(), tf.Session() as session:
            queues = feeder.make_queues(data_sets)
            count = tf.placeholder(tf.int32, [])
            batch = feeder.next_batch(queues, tf.constant(train.queue_index), count)
            run = session.make_callable(batch.features.op, [count])
            seconds = []
            with feeder.feed(train, queues, session, n_epochs=2) as feeding:
                for _ in range(2):
                    started = time.monotonic()
                    for step in feeding.epoch():
                        run(len(step.examples))
                    seconds.append(time.monotonic() - started)
    return {'seconds': dict(zip(('computed', 'cached'), seconds)), 'audio_seconds': train.seconds}


def measure_start() -> dict:
    """Measures the time from `python DeepSpeech.py` to the end of its first training step, on the
    digits.

    Of the training set only the 16 utterances of that step are listed and checked; to do so for
    all 630 takes another 0.1 to 0.2 s.

    Returns:
      The seconds.
    Raises:
      DeepSpeechError: the run failed; it has printed why.
    """
    with tempfile.TemporaryDirectory() as folder:
        folders = {
            name + '_dir': os.path.join(folder, name) for name in ('checkpoint', 'cache', 'logs')
        }
        variables = settings.environment_with(
            limit_train=16, training_iters=1, validation_step=0, export_dir='', **folders
        )
        script = os.path.join(settings.PROJECT_DIR, 'DeepSpeech.py')
        seconds = None
        started = time.monotonic()
        with subprocess.Popen(
            [sys.executable, script], env=variables, text=True, stdout=subprocess.PIPE
        ) as run:
            assert run.stdout is not None  # it is a pipe
            for line in run.stdout:
                if line.startswith('Epoch 1 of 1 finished'):
                    seconds = time.monotonic() - started
    if run.returncode or seconds is None:
        raise errors.DeepSpeechError(
            'DeepSpeech.py ended with exit status %d before the end of '
            'its first epoch' % run.returncode
        )
    return {'seconds': seconds}


def measure_export() -> dict:
    """Measures an exported model of MAIN's width on one utterance, beam search included.

    Returns:
      The seconds by the utterance's length in seconds.
    """
    import DeepSpeech
    from util import text
    from util.tf1 import tf

    with tempfile.TemporaryDirectory() as folder:
        config, _ = settings.load({'ds_importer': 'csv', 'ds_export_dir': folder})
        with tf.Graph().as_default(), tf.Session() as session:
            DeepSpeech.BiRNN(
                tf.zeros([1, 1, N_FEATURES]), [1], config=config, n_character=N_CHARACTER
            )
            session.run(tf.global_variables_initializer())
            weights = session.run({v.op.name: v for v in tf.trainable_variables()})
        path = DeepSpeech.export(config, text.Alphabet(), weights)
        seconds = {}
        with tf.Graph().as_default(), tf.Session() as session:
            loaded = tf.saved_model.load(session, [tf.saved_model.SERVING], path)
            signature = loaded.signature_def['serving_default']
            run = session.make_callable(
                signature.outputs['outputs'].name, [signature.inputs['input'].name]
            )
            for length in EXPORT_SECONDS:
                windows = (
                    np.random.default_rng(0)
                    .normal(size=(1, length * FRAMES_A_SECOND, N_FEATURES))
                    .astype(np.float32)
                )
                seconds[str(length)] = _fastest(lambda windows=windows: run(windows), 1e11)
    return {'seconds': seconds}


MEASUREMENTS: dict[str, Callable] = {
    'peak': measure_peak,
    'step': measure_step,
    'decoding': measure_decoding,
    'feeding': measure_feeding,
    'start': measure_start,
    'export': measure_export,
}
