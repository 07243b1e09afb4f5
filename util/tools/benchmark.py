"""Measures the trainer on this machine, beside its alternatives.

    python -m util.tools.benchmark [--json FILE] [--picture FILE]

Training steps (forward, CTC, backward, Adam) of the notebook's network in several sizes, with our
LSTM, with BlockLSTM and, where PyTorch is installed, of the same network in PyTorch; those of the
paper's network (`ds_rnn=vanilla`), against torch.nn.RNN; the beam search; feeding; the start of a
run; the latency of an exported model. Each measurement runs in a process of its own, one after the
other; the fastest repetition counts. It takes some ten minutes on two cores, which should have
nothing else to do.
"""
import argparse
import collections
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

from util import config as settings, files, log as run_log, records

# Geometry of a step: width of the layers, utterances in a batch, time steps
Size = collections.namedtuple('Size', 'n_hidden batch_size n_steps')

MAIN = Size(494, 16, 300)  # the notebook's network
SIZES = (MAIN, Size(494, 64, 300), Size(128, 16, 300), Size(1024, 16, 100), Size(2048, 8, 50))
VANILLA_SIZES = (MAIN, *SIZES[2:])  # of the paper's network
LONG, SHORT = Size(494, 16, 800), Size(494, 16, 100)   # eight times the steps
SMALL = Size(494, 8, 300)                              # an eighth of the batch of SIZES[1]
ROUNDS = {MAIN: 3}        # measurements of a size; 1 if it isn't here
REPEATED_FLOP = 1.5e12    # what is measured is repeated until it has made so many operations ...
MIN_TIMES, MAX_TIMES = 4, 100                          # ... within these numbers
N_CONTEXT, N_INPUT, N_CHARACTER = 9, 26, 29
N_FEATURES = N_INPUT * (2 * N_CONTEXT + 1)
FRAMES_A_SECOND = 100     # of audio
PEAK_SIZE = 2048          # rows of the square matrices whose product is the peak
EXPORT_SECONDS = (1, 5, 15)
NOTEBOOK_STEP_S = 8.1     # MAIN under TensorFlow 0.12.1, on the two cores of the first figures
COLUMNS = ('measurement', 'ms', 'audio s/s', 'GFLOP/s', 'of peak', 'memory')


def main(arguments):
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog='python -m util.tools.benchmark',
                                     description='Measures the trainer on this machine.')
    parser.add_argument('--json', metavar='FILE', help='where to write the figures')
    parser.add_argument('--picture', metavar='FILE', help='where to draw the steps')
    parser.add_argument('--measure', metavar='SPEC', help=argparse.SUPPRESS)  # in its own process
    options = parser.parse_args(arguments)
    if options.measure:
        name, values = json.loads(options.measure)
        print(json.dumps(MEASUREMENTS[name](*values)))
        return 0
    for path in filter(None, (options.json, options.picture)):  # before minutes of measuring
        if not os.access(os.path.dirname(path) or '.', os.W_OK):
            parser.error('%s cannot be written: its folder must exist and be writable' % path)
    figures = measure_all()
    print(table(figures))
    if options.json:
        files.write_file(options.json, run_log.strict_json(figures))
    if options.picture:
        draw(figures, options.picture)
    return 0


def measure_all():
    """All figures, as the JSON file has them."""
    figures = {'cores': os.cpu_count(), 'peak_gflops': _measure('peak'), 'steps': []}
    torch = ['torch'] * _has_torch()
    for size in (*SIZES, SMALL, SHORT, LONG):
        chosen = ['own'] + ['block'] * (size == MAIN) + torch * (size in SIZES)
        if size in VANILLA_SIZES:
            chosen += ['vanilla'] + ['torch vanilla'] * len(torch)
        rounds = [[_measure('step', name, *size) for name in chosen]  # by turns
                  for _ in range(ROUNDS.get(size, 1))]
        for results in zip(*rounds):
            figures['steps'].append(min(results, key=lambda result: result['seconds']))
    for name in ('decoding', 'feeding', 'start', 'export'):
        figures[name] = _measure(name)
    figures['ratios'] = _ratios(figures)
    return figures


def _measure(name, *values):
    """The result of a measurement in a process of its own."""
    command = [sys.executable, '-m', 'util.tools.benchmark', '--measure', json.dumps([name, values])]
    print('measuring %s' % ' '.join(map(str, (name, *values))), file=sys.stderr)
    done = subprocess.run(command, cwd=settings.PROJECT_DIR, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def _has_torch():
    return subprocess.run([sys.executable, '-c', 'import torch'], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


def step_flop(size, vanilla=False):
    """Operations of a training step's matrix products: twice the weights a frame forward, twice
    that backward, but no gradient of the input. Those of the paper's network with `vanilla`."""
    n = size.n_hidden
    weights = N_FEATURES * n + n * n + n * N_CHARACTER
    if vanilla:
        weights += n * n + 3 * n * n + n * n
    else:
        weights += n * 2 * n + 2 * 3 * n * 4 * n + 2 * n * n
    return 2 * size.batch_size * size.n_steps * (3 * weights - N_FEATURES * n)


def _fastest(run, flop):
    """Seconds of the fastest of several runs; the first, which sets things up, doesn't count."""
    run()
    times = []
    for _ in range(int(min(MAX_TIMES, max(MIN_TIMES, REPEATED_FLOP / flop)))):
        started = time.monotonic()
        run()
        times.append(time.monotonic() - started)
    return min(times)


def _memory_mb(peak=True):
    """Memory of this process, at its peak or now."""
    if peak:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with open('/proc/self/statm', encoding='ascii') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20


# What runs in processes of its own. They import what they measure.


def _tensorflow():
    with settings.silenced_tensorflow():
        import tensorflow.compat.v1 as tf
    return tf


def measure_peak():
    """GFLOP/s of a large matrix product."""
    tf = _tensorflow()
    with tf.Graph().as_default(), tf.Session() as session:
        a = tf.get_variable('a', [PEAK_SIZE, PEAK_SIZE])
        session.run(a.initializer)
        run = session.make_callable(tf.matmul(a, a).op)
        return 2 * PEAK_SIZE**3 / _fastest(run, 2 * PEAK_SIZE**3) / 1e9


def measure_step(implementation, *size):
    """One training step; `seconds`, and the MB that it adds to the process at its peak."""
    size = Size(*size)
    vanilla = 'vanilla' in implementation
    run = (_torch_step(size, vanilla) if implementation.startswith('torch') else _own_step(
        {'rnn': 'vanilla'} if vanilla else {'rnn_impl': implementation}, size))
    before = _memory_mb(peak=False)
    seconds = _fastest(run, step_flop(size, vanilla))
    return {'implementation': implementation, **size._asdict(), 'seconds': seconds,
            'memory_mb': _memory_mb() - before, 'process_mb': _memory_mb()}


def _labels(size):
    """Random labels [batch_size, n_labels]."""
    n_labels = min(60, size.n_steps // 3)
    return np.random.default_rng(1).integers(0, N_CHARACTER - 1, (size.batch_size, n_labels))


def _own_step(values, size):
    tf = _tensorflow()
    import DeepSpeech
    config, _ = settings.load({'ds_importer': 'csv', 'ds_n_hidden': str(size.n_hidden),
                               **{'ds_' + name: value for name, value in values.items()}})
    config = settings.with_towers(config, 0)
    labels = _labels(size)
    frames = np.random.default_rng(0).normal(
        size=(size.batch_size, size.n_steps + 2 * N_CONTEXT, N_INPUT))
    with tf.Graph().as_default() as graph:
        batch = records.Batch(*[tf.placeholder(kind, shape) for kind, shape in (
            (tf.float32, [None, None, N_INPUT]), (tf.int32, [None]), (tf.int32, [None, None]),
            (tf.int32, [None]))])
        optimizer = DeepSpeech.create_optimizer(config)
        dropout = DeepSpeech.Dropout(tf.constant(True), tf.constant([1, 0], tf.int64))
        _, gradients, _, loss = DeepSpeech.get_tower_results(
            batch, ['/cpu:0'], config=config, n_character=N_CHARACTER, dropout=dropout,
            optimizer=optimizer)
        update = DeepSpeech.apply_gradients(optimizer, DeepSpeech.average_gradients(gradients))
        session = tf.Session(graph=graph)
        session.run(tf.global_variables_initializer())
    run = session.make_callable([loss, update], list(batch))
    values = (frames.astype(np.float32), np.full(size.batch_size, size.n_steps, np.int32),
              labels.astype(np.int32), np.full(size.batch_size, labels.shape[1], np.int32))
    return lambda: run(*values)


def _torch_step(size, vanilla):
    import torch
    n = size.n_hidden
    n_4 = n if vanilla else 2 * n  # width of layer 4's input, and of its output
    widths = ((N_FEATURES, n), (n, n), (n, n_4), (n_4, n), (n, N_CHARACTER))
    dense = torch.nn.ModuleList(torch.nn.Linear(*pair) for pair in widths)
    recurrent = (torch.nn.RNN(n_4, n, nonlinearity='relu', bidirectional=True) if vanilla
                 else torch.nn.LSTM(n_4, n, bidirectional=True))
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
        loss = torch.nn.functional.ctc_loss(torch.log_softmax(logits, 2), labels, *lengths,
                                            blank=N_CHARACTER - 1)
        loss.backward()
        optimizer.step()

    return run


def measure_decoding():
    """Beam search of a batch of MAIN's size: by our decode, and by the operation alone."""
    tf = _tensorflow()
    import DeepSpeech
    logits = np.random.default_rng(0).normal(
        0, 3, (MAIN.n_steps, MAIN.batch_size, N_CHARACTER)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        fed, lengths = tf.placeholder(tf.float32, logits.shape), [MAIN.n_steps] * MAIN.batch_size
        ours = DeepSpeech.decode(fed, tf.constant(lengths), 100).values
        alone = tf.nn.ctc_beam_search_decoder(fed, lengths, beam_width=100, top_paths=1,
                                              merge_repeated=False)[0][0].values
        seconds = {}
        for name, values in (('ours', ours), ('one_operation', alone)):
            run = session.make_callable(values, [fed])
            seconds[name] = _fastest(lambda run=run: run(logits), REPEATED_FLOP)
        same = np.array_equal(*session.run([ours, alone], {fed: logits}))
    return {'seconds': seconds, 'identical': bool(same),
            'audio_seconds': MAIN.batch_size * MAIN.n_steps / FRAMES_A_SECOND}


def measure_feeding():
    """An epoch of the digits through reader threads and queue, without a network: the first, in
    which the features are computed, and the second, which has them in the cache."""
    tf = _tensorflow()
    from util import importers, text
    with tempfile.TemporaryDirectory() as cache_dir:
        config, _ = settings.load({'ds_cache_dir': cache_dir})
        data_set = importers.read_data_sets(config, text.load_alphabet(config.alphabet)).train
        with tf.Graph().as_default(), tf.Session() as session:
            count = tf.placeholder(tf.int32, [])
            run = session.make_callable(data_set.next_batch(count).features.op, [count])
            seconds = []
            with data_set.feed(session, n_epochs=2) as feeder:
                for _ in range(2):
                    started = time.monotonic()
                    for step in feeder.epoch():
                        run(len(step.examples))
                    seconds.append(time.monotonic() - started)
    return {'seconds': dict(zip(('computed', 'cached'), seconds)),
            'audio_seconds': data_set.seconds}


def measure_start():
    """Seconds from `python DeepSpeech.py` to the end of its first training step, on the digits.

    Of the training set only that step's 16 utterances are listed and checked; to do so for all
    630 takes another 0.1 to 0.2 s.
    """
    with tempfile.TemporaryDirectory() as folder:
        folders = {name + '_dir': os.path.join(folder, name)
                   for name in ('checkpoint', 'cache', 'logs')}
        variables = settings.environment_with(limit_train=16, training_iters=1, validation_step=0,
                                              export_dir='', **folders)
        started = time.monotonic()
        with subprocess.Popen([sys.executable, 'DeepSpeech.py'], cwd=settings.PROJECT_DIR,
                              env=variables, text=True, stdout=subprocess.PIPE) as run:
            for line in run.stdout:
                if line.startswith('Epoch 1 of 1 finished'):
                    seconds = time.monotonic() - started
            if run.wait():
                raise subprocess.CalledProcessError(run.returncode, run.args)
    return {'seconds': seconds}


def measure_export():
    """Seconds that an exported model of MAIN's width takes for one utterance, beam search
    included, by the utterance's length in seconds."""
    tf = _tensorflow()
    import DeepSpeech
    with tempfile.TemporaryDirectory() as folder:
        config, _ = settings.load({'ds_importer': 'csv', 'ds_export_dir': folder})
        with tf.Graph().as_default(), tf.Session() as session:
            DeepSpeech.BiRNN(tf.zeros([1, 1, N_FEATURES]), [1], config=config,
                             n_character=N_CHARACTER)
            session.run(tf.global_variables_initializer())
            weights = session.run({v.op.name: v for v in tf.trainable_variables()})
        path = DeepSpeech.export(config, N_CHARACTER, weights)
        seconds = {}
        with tf.Graph().as_default(), tf.Session() as session:
            loaded = tf.saved_model.load(session, [tf.saved_model.SERVING], path)
            signature = loaded.signature_def['serving_default']
            run = session.make_callable(signature.outputs['outputs'].name,
                                        [signature.inputs['input'].name])
            for length in EXPORT_SECONDS:
                windows = np.random.default_rng(0).normal(
                    size=(1, length * FRAMES_A_SECOND, N_FEATURES)).astype(np.float32)
                seconds[str(length)] = _fastest(lambda windows=windows: run(windows), 1e11)
    return {'seconds': seconds}


MEASUREMENTS = {'peak': measure_peak, 'step': measure_step, 'decoding': measure_decoding,
                'feeding': measure_feeding, 'start': measure_start, 'export': measure_export}


# The report


def _step(figures, size, implementation='own'):
    """The figures of a step; None if it wasn't measured."""
    for step in figures['steps']:
        if step['implementation'] == implementation and all(
                step[name] == value for name, value in size._asdict().items()):
            return step
    return None


def _ratios(figures):
    """{what is compared: ratio}; below 1 ours is faster or smaller."""
    main, found = _step(figures, MAIN), {}
    for size in SIZES:
        ours, other = _step(figures, size), _step(figures, size, 'torch')
        if other:
            found['step, PyTorch, %s' % _words(size)] = ours['seconds'] / other['seconds']
    for size in VANILLA_SIZES:
        ours, other = (_step(figures, size, name) for name in ('vanilla', 'torch vanilla'))
        if ours and other:
            found['step of the paper\'s network, torch.nn.RNN, %s' % _words(size)] = (
                ours['seconds'] / other['seconds'])
    if _step(figures, MAIN, 'torch'):
        found['memory of the step, PyTorch, %s' % _words(MAIN)] = (
            main['memory_mb'] / _step(figures, MAIN, 'torch')['memory_mb'])
    found['step, BlockLSTM, %s' % _words(MAIN)] = (
        main['seconds'] / _step(figures, MAIN, 'block')['seconds'])
    found['step, notebook (%.1f s), %s' % (NOTEBOOK_STEP_S, _words(MAIN))] = (
        main['seconds'] / NOTEBOOK_STEP_S)
    found['8 times the steps'] = (
        _step(figures, LONG)['seconds'] / _step(figures, SHORT)['seconds'])
    found['8 times the batch'] = (
        _step(figures, SIZES[1])['seconds'] / _step(figures, SMALL)['seconds'])
    seconds = figures['decoding']['seconds']
    found['beam search, one operation'] = seconds['ours'] / seconds['one_operation']
    return found


def _words(size):
    return '%d wide, %d x %d' % size


def table(figures):
    """The figures as lines of text."""
    peak = figures['peak_gflops']
    rows = [COLUMNS, ('matrix product', '', '', '%.0f' % peak, '100 %', '')]
    for step in figures['steps']:
        size = Size(*[step[name] for name in Size._fields])
        gflops = step_flop(size, 'vanilla' in step['implementation']) / step['seconds'] / 1e9
        rows.append(('step, %s, %s' % (step['implementation'], _words(size)),
                     '%.1f' % (1e3 * step['seconds']), '%.0f' % (
                         size.batch_size * size.n_steps / FRAMES_A_SECOND / step['seconds']),
                     '%.0f' % gflops, '%.0f %%' % (100 * gflops / peak),
                     '%.0f MB' % step['memory_mb']))
    for name in ('decoding', 'feeding'):
        for kind, seconds in figures[name]['seconds'].items():
            rows.append(('%s, %s' % (name, kind.replace('_', ' ')), '%.1f' % (1e3 * seconds),
                         '%.0f' % (figures[name]['audio_seconds'] / seconds), '', '', ''))
    rows.append(('start to the first step', '%.0f' % (1e3 * figures['start']['seconds']),
                 '', '', '', ''))
    for length, seconds in figures['export']['seconds'].items():
        rows.append(('exported model, %s s of audio' % length, '%.1f' % (1e3 * seconds),
                     '%.0f' % (int(length) / seconds), '', '', ''))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ['  '.join([row[0].ljust(widths[0])] + [
        cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]) for row in rows]
    return '\n'.join(lines + [''] + ['%5.2f  ratio: %s' % (ratio, what)
                                     for what, ratio in figures['ratios'].items()])


def draw(figures, path):
    """Draws the steps of all sizes as bars, PyTorch's step of each size being 1; where PyTorch
    wasn't measured, ours."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(9, 4))
    bars = [(name, index, _step(figures, size, name)['seconds'] / (
        _step(figures, size, 'torch') or _step(figures, size))['seconds'])
            for index, size in enumerate(SIZES) for name in ('own', 'torch', 'block')
            if _step(figures, size, name)]
    styles = {'own': ('this project', '#2a6fbb', -0.27), 'torch': ('PyTorch', '#999999', 0),
              'block': ('TensorFlow, BlockLSTM', '#e0a030', 0.27)}
    for name, (label, color, offset) in styles.items():
        mine = [(index + offset, ratio) for which, index, ratio in bars if which == name]
        if mine:
            drawn = axes.bar(*zip(*mine), width=0.26, color=color, label=label)
            axes.bar_label(drawn, fmt='%.2f', fontsize=8)
    axes.set_xticks(range(len(SIZES)), ['%d wide\n%d x %d' % size for size in SIZES])
    axes.set_ylabel('time of a training step, relative')
    axes.set_title('Training step on %d cores: width, batch x time steps' % figures['cores'])
    axes.spines[['top', 'right']].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
