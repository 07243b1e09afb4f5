"""Finds out before the training whether the largest batches fit into memory.

The utterances are sorted by length by default, so that the largest batch comes last. If it is not
far below the memory that is available, a step of its size is tried at the start.
"""

import contextlib
import ctypes
import logging
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from util import config as settings, errors, gpu, records
from util.run import decoding, signals
from util.tf1 import tf

log = logging.getLogger('DeepSpeech')

TRIED_SHARE = 0.25  # of the available memory: a batch that is estimated to need less isn't tried
SAFE_SHARE = 0.8  # of the available memory, for the batch size that an error message suggests
START_LIMIT_S = 120.0  # s, after which a trial that has not begun is given up
STEP_LIMIT_S = 900.0  # s, after which the step of a trial is given up
POLL_S = 0.1  # s, interval at which the waiting process looks for a request to stop
# Values of 4 bytes in a time step for each of the inputs, of the units of layers 1, 2, 3 and 5, of
# the units of layer 4 in a direction, and of the classes; fitted to measured peaks
EVALUATION = (2.5, 0.5, 6.0, 14.0)
TRAINING = {'lstm': (2.5, 1.0, 26.0, 14.0), 'vanilla': (2.5, 1.0, 6.0, 14.0)}
LIMITS = ((resource.RLIMIT_AS, 'VmSize'), (resource.RLIMIT_DATA, 'VmData'))  # and what they limit
RESERVE_BYTES = 1 << 30  # of these limits, which a trial leaves to what it lacks beside a run
PR_SET_PDEATHSIG = 1  # of Linux: a signal for when the parent ends
OUT_OF_MEMORY = 3  # exit status of a trial; mostly a signal ends a process without memory


class LargestBatch(NamedTuple):
    """The largest batch of a data set."""

    set_name: str
    examples: list[records.Example]  # sorted by length

    @property
    def longest(self) -> records.Example:
        """Returns its longest utterance."""
        return self.examples[-1]

    def __str__(self):
        return '%d utterance%s of up to %d time steps (the longest is %s, %.1f s)' % (
            len(self.examples),
            's' * (len(self.examples) > 1),
            self.longest.n_steps,
            self.longest.utterance.name,
            self.longest.seconds,
        )


# The check


def check(config, alphabet, data_sets, build, stop) -> None:
    """Logs the longest training utterance, and tries a step of the largest batch if that may need
    more memory than there is.

    The trial has a session and, on a machine without GPUs, a process of its own: TensorFlow ends
    the process where the CPU's memory runs out. So the run itself is the same with and without it.

    Args:
      config: Config.
      alphabet: text.Alphabet.
      data_sets: DataSets.
      build: function that returns a handles.Model. TensorFlow must not have threads before the
        call: its sessions would wait for them in the child process, which has none of them.
      stop: signals.StopRequest.
    Raises:
      TrainingError: memory runs out; the message names the longest utterance and a batch size.
    """
    parts = [part for stage in data_sets.stages for part in stage.parts]
    found = [largest_batch(part, config.batch_order) for part in parts if len(part)]
    if not config.training_iters or not found:
        return
    longest = max((batch.longest for batch in found), key=lambda example: example.n_steps)
    log.info(
        'the longest training utterance is %s: %.1f s, %d time steps',
        *(longest.utterance.name, longest.seconds, longest.n_steps),
    )
    found += [largest_batch(other) for other in (data_sets.dev, data_sets.test) if len(other)]
    sizes = [step_bytes(config, batch, alphabet.n_character) for batch in found]
    available, needed = available_bytes(), max(sizes)
    batch = found[sizes.index(needed)]
    on_gpus = bool(gpu.get_available_gpus())
    if not on_gpus and needed < TRIED_SHARE * available:
        return
    log.info(
        'trying the largest %s batch: %s; it needs about %.1f GB, of %.1f GB available',
        *(batch.set_name, batch, needed / 1e9, available / 1e9),
    )
    if on_gpus:
        fits = _try_here(config, alphabet, batch, build)
    else:
        fits = _try_in_a_process(config, alphabet, batch, build, stop)
    if not fits:
        raise errors.TrainingError(_message(config, batch, needed, available))


def _message(config, batch, needed, available):
    """Returns the message for a batch that needs `needed` bytes, but gets `available` at most."""
    share = SAFE_SHARE * available / max(needed, available)
    size = int(len(batch.examples) * share) // config.towers
    return 'memory runs out with the largest %s batch: %s; ds_%s_batch_size is %d, %s' % (
        batch.set_name,
        batch,
        batch.set_name,
        config.set_batch_size(batch.set_name),
        'and %d may fit' % size
        if size
        else 'but not even 1 is likely to fit: leave this utterance out, or divide it into parts',
    )


@contextlib.contextmanager
def shortage_named(set_name: str, step: records.Step | None = None) -> Iterator[None]:
    """Turns an error of the block for want of memory into one that names the longest utterance.

    Args:
      set_name: 'train', 'dev' or 'test'.
      step: records.Step that the block runs; None: it may be any.
    Raises:
      MemoryShortage: memory ran out.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        examples = sorted(step.examples, key=lambda each: each.n_steps) if step else []
        where = ' with a batch of ' + str(LargestBatch(set_name, examples)) if examples else ''
        raise errors.MemoryShortage(
            'memory ran out%s; a smaller ds_%s_batch_size may help: %s'
            % (where, set_name, errors.first_line(error))
        ) from None


# The largest batch and its memory


def largest_batch(data_set, order: str = 'sorted') -> LargestBatch:
    """Returns the largest batch of a data set in frames, padding included.

    Args:
      data_set: DataSet that has utterances.
      order: 'sorted': the batches are always the same ones; otherwise: the longest utterances may
        meet in a batch.
    """
    by_length = sorted(data_set.examples, key=lambda example: example.n_steps)
    size = data_set.step_size
    batches = [by_length[-size:]]
    if order == 'sorted':
        batches = [by_length[start : start + size] for start in range(0, len(by_length), size)]
    largest = max(batches, key=lambda batch: len(batch) * batch[-1].n_steps)
    return LargestBatch(data_set.name, largest)


def step_bytes(config, batch: LargestBatch, n_character: int) -> float:
    """Estimates the memory of a step, in bytes."""
    factors = TRAINING[config.rnn] if batch.set_name == 'train' else EVALUATION
    widths = config.n_hidden_1 + config.n_hidden_2 + config.n_hidden_3 + config.n_hidden_5
    values = np.dot(factors, (config.n_features, widths, config.n_cell_dim, n_character))
    return 4.0 * len(batch.examples) * batch.longest.n_steps * float(values)


# The trial


def _try_in_a_process(config, alphabet, batch, build, stop):
    """Tries a step in a child process; returns whether its memory suffices.

    Raises:
      Interrupted: the user asked the run to stop.
    """
    context = multiprocessing.get_context('fork')
    started = context.Event()
    child = context.Process(
        target=_trial_process, args=(config, alphabet, batch, build, started), daemon=True
    )
    # A signal in the child before it ignores them would count as one of the parent's.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)
    try:
        child.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
    begun = time.monotonic()
    try:
        while child.exitcode is None and time.monotonic() - begun < (
            STEP_LIMIT_S if started.is_set() else START_LIMIT_S
        ):
            child.join(POLL_S)
            stop.check()
        status = child.exitcode
    finally:
        child.kill()
        child.join()
    if status in (None, 1):
        log.warning('the trial failed for another reason than memory, or took too long; going on')
    return status in (None, 0, 1)


def _trial_process(config, alphabet, batch, build, started):
    """Tries a step, and ends the process with OUT_OF_MEMORY if memory runs out; this is all that
    the child process does."""
    with contextlib.suppress(AttributeError, OSError):  # a killed parent cannot end it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    signals.ignore()  # the parent process ends it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
    with contextlib.suppress(OSError), open('/proc/self/oom_score_adj', 'w') as file:
        file.write('1000')  # if the kernel ends a process for want of memory, then this one
    for limit, _ in LIMITS:  # the threads that read utterances will need memory, too
        soft, hard = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(limit, (max(0, soft - RESERVE_BYTES), hard))
    with settings.silenced_stderr():
        fits = _try_here(config, alphabet, batch, build, started=started)
        os._exit(0 if fits else OUT_OF_MEMORY)


def _try_here(config, alphabet, batch, build, started=None):
    """Tries a step in a session of its own; returns whether its memory suffices."""
    try:
        model = build()
        with tf.Session(config=decoding.session_config(config), graph=model.graph) as session:
            session.run(model.initializer)
            if started:
                started.set()
            session.run(_fetches(model, batch), _feed(config, alphabet, model, batch))
    except tf.errors.InvalidArgumentError:
        raise
    except (tf.errors.OpError, MemoryError, RuntimeError):  # the libraries have names of their own
        return False
    return True


def _fetches(model, batch):
    """Returns what the session runs for a batch."""
    if batch.set_name != 'train':
        return [tower.total_loss for tower in model.towers]
    return model.accumulation.add if model.accumulation else model.update.number


def _feed(config, alphabet, model, batch) -> dict[Any, Any]:
    """Returns a batch of these lengths and transcripts, without a sound, in the place of what the
    queue would give."""
    lengths = [example.n_steps for example in batch.examples]
    labels = [alphabet.encode(example.transcript) for example in batch.examples]
    padded = np.zeros([len(labels), max(map(len, labels))], np.int32)
    for row, each in zip(padded, labels):
        row[: len(each)] = each
    n_frames = max(lengths) + 2 * config.n_context
    values = records.Batch(
        np.zeros([len(lengths), n_frames, config.n_input], np.float32),
        lengths,
        padded,
        [len(each) for each in labels],
    )
    return {**dict(zip(model.batch, values)), model.is_training: batch.set_name == 'train'}


# The available memory


def available_bytes() -> float:
    """Returns how much memory this process can still get, in bytes: the least of what the machine,
    the process's control groups and its own limits (`ulimit`) leave it; infinity if nothing says
    so."""
    meminfo, status = _table('/proc/meminfo'), _table('/proc/self/status')
    left = [meminfo.get('MemAvailable', float('inf')), *_of_control_groups()]
    for limit, used in LIMITS:
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            left.append(soft - status.get(used, 0))
    return max(0.0, min(left))


def _table(path):
    """Returns {name: bytes} of a file of lines like 'MemAvailable:  123 kB'; {} if it is absent."""
    found = {}
    for line in _lines(path):
        name, _, value = line.partition(':')
        if value.endswith(' kB') and value.split()[0].isdigit():
            found[name] = 1024 * int(value.split()[0])
    return found


def _of_control_groups(root='/sys/fs/cgroup', groups='/proc/self/cgroup'):
    """Yields the bytes that each control group of this process leaves it, of both versions."""
    for line in _lines(groups):
        _, controllers, group = line.split(':', 2)
        if controllers in ('', 'memory'):
            place = os.path.join(root, controllers)
            names = ('memory.max', 'memory.current', 'inactive_file')
            if controllers:
                names = ('memory.limit_in_bytes', 'memory.usage_in_bytes', 'total_inactive_file')
            parts = group.strip('/').split('/')
            for depth in range(len(parts) + 1):
                yield from _left(os.path.join(place, *parts[:depth]), *names)


def _left(folder, limit_name, usage_name, reclaimable_name):
    """Yields the bytes that a control group leaves, if it has a limit; files that are only kept in
    memory don't count as used."""
    [limit] = _lines(os.path.join(folder, limit_name)) or ['max']
    [usage] = _lines(os.path.join(folder, usage_name)) or ['0']
    statistics = dict(line.split() for line in _lines(os.path.join(folder, 'memory.stat')))
    if limit != 'max':
        yield int(limit) - int(usage) + int(statistics.get(reclaimable_name, 0))


def _lines(path):
    """Returns the lines of a file; none if it cannot be read."""
    try:
        with open(path, encoding='ascii', errors='replace') as file:
            return file.read().splitlines()
    except OSError:
        return []
