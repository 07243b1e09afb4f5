"""Audio that can't be read as it is: converted once, to FLAC of 16 bits in the cache.

A result lies in `ds_cache_dir`/converted/KEY/, KEY standing for the reader and its settings; its
name tells the source's path, size and time of change. So it counts only while the source is the
same. A file is written beside its place and renamed: what is there is whole, and work that was
interrupted, even by kill -9, goes on where it stopped. Sources are only read.

Nothing here loads TensorFlow, which the processes that convert don't need.
"""
import collections
import concurrent.futures
import contextlib
import hashlib
import io
import json
import logging
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import types

import numpy as np
import soundfile

from util import audio, config as settings, errors, files, log as run_log

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

log = logging.getLogger(__name__)

TEMPORARY = '.tmp'    # ends the names of files that are being written
WORTH_PROCESSES = 16  # files; fewer are converted before other processes would have started
SAY_EVERY_S = 10      # how far it is
NAME_CHARS = 40       # of the source's name that its result bears, for people

# What became of a source: the path of its FLAC file, or the reason why there is none
Converted = collections.namedtuple('Converted', 'path exclusion_reason')


def converted(sources, cache_dir, read, **options):
    """FLAC copies of audio files; only those that aren't there yet are made.

    Args:
      sources: paths.
      cache_dir: `config.cache_dir`.
      read: function(path, **options) -> (int16 samples [n] or [n, channels], Hz). It may be
        called in other processes, so it has to be at the top level of a module that is not the
        main script.
        AudioError, OSError and ValueError of it are reasons why a source can't be converted.
      options: settings of `read` that JSON can hold; others make other results.
    Returns:
      list of Converted, one a source.
    Raises:
      ConfigError: the cache can't be written.
      DataError: a process that converts was ended from outside.
    """
    folder = os.path.join(cache_dir, 'converted', _key(read, options))
    results = {source: _expected(source, folder) for source in sources}
    todo = _missing(results)
    if todo:
        files.make_dir(folder, 'ds_cache_dir')
        with _locked(folder):
            todo = _missing(results)  # anew, as another run may have held the lock
            _clean(folder, todo.values())
            for source, problem in _convert_all(todo, read, options).items():
                if reason:
                    results[source] = Converted(None, reason)
    return [results[source] for source in sources]


def _key(read, options):
    what = [read.__module__, read.__qualname__, options]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def _expected(source, folder):
    """Converted with the path that a source's result has now, whether it is there or not."""
    try:
        status = os.stat(source)
    except OSError as error:
        return Converted(None, 'cannot be read: %s' % error.strerror)
    stem = os.path.splitext(os.path.basename(source))[0][:NAME_CHARS]
    digest = hashlib.sha256(os.fsencode(os.path.abspath(source))).hexdigest()[:24]
    return Converted(os.path.join(folder, '%s-%s-%d-%d.flac' % (
        stem, digest, status.st_size, status.st_mtime_ns)), None)


def _missing(results):
    """{source: path of its result} of what is still to do."""
    return {source: result.path for source, result in results.items()
            if result.path and not os.path.isfile(result.path)}


@contextlib.contextmanager
def _locked(folder):
    """One run at a time converts into a folder; the lock ends with the process that holds it."""
    with open(os.path.join(folder, 'lock'), 'w', encoding='utf-8') as file:
        if fcntl:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info('waiting for another run, which converts into %s', folder)
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _clean(folder, targets):
    """Removes what interrupted runs left, and results of what these sources were before."""
    stale = {_without_state(target) for target in targets}
    for name in os.listdir(folder):
        if name.endswith(TEMPORARY) or _without_state(name) in stale:
            os.remove(os.path.join(folder, name))


def _without_state(path):
    """A result's name without the size and time of its source."""
    return os.path.basename(path).rsplit('-', 2)[0]


def _convert_all(todo, read, options):
    """Converts {source: target}, many in as many processes as cores; {source: None or the
    reason}."""
    log.info('converting %d files to FLAC', len(todo))
    if len(todo) < WORTH_PROCESSES:
        return {source: _convert_one(source, target, read, options)
                for source, target in todo.items()}
    count = min(len(todo), os.cpu_count() or 1)
    pool = concurrent.futures.ProcessPoolExecutor(
        count, multiprocessing.get_context('spawn'), _start_worker)
    reasons = {}
    try:
        with _hidden_main():
            futures = {pool.submit(_convert_one, source, target, read, options): source
                       for source, target in todo.items()}
        for future in _counted(futures):
            reasons[futures[future]] = future.result()
    except concurrent.futures.process.BrokenProcessPool:
        raise errors.DataError('a process that converts audio was ended from outside, perhaps '
                                'for want of memory, after %d of %d files; the next run goes on'
                                % (len(reasons), len(todo))) from None
    finally:
        pool.shutdown(cancel_futures=True)
    return reasons


def _counted(futures):
    """The futures as they end; says now and then how many have."""
    said = time.monotonic()
    for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
        yield future
        if time.monotonic() - said > SAY_EVERY_S or done == len(futures):
            log.info('converted %d of %d', done, len(futures))
            said = time.monotonic()


@contextlib.contextmanager
def _hidden_main():
    """Processes that start inside don't run the main script's imports again, which would cost
    each of them the seconds and the memory of TensorFlow."""
    main = sys.modules['__main__']
    sys.modules['__main__'] = types.ModuleType('__main__')
    try:
        yield
    finally:
        sys.modules['__main__'] = main


def _start_worker():
    """Ends a worker with its parent, however that ends, and leaves Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)  # not sys.exit, which would end only this thread


def _convert_one(source, target, read, options):
    """Writes the FLAC file of a source; None, or the reason why it can't be converted."""
    content = io.BytesIO()
    try:
        samples, rate = read(source, **options)
        if not len(samples):
            return 'no samples'
        soundfile.write(content, samples, rate, format='FLAC', subtype='PCM_16')
    except OSError as error:
        return 'cannot be read: %s' % (error.strerror or error)
    except (ValueError, soundfile.LibsndfileError) as error:
        return str(error)
    try:
        _write(target, content.getbuffer())
    except OSError as error:
        raise errors.ConfigError('ds_cache_dir: cannot write %s: %s' % (target, error.strerror)
                                   ) from None
    return None


def _write(path, content):
    with open(path + TEMPORARY, 'wb') as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # a power failure mustn't leave a renamed but empty file
    os.replace(path + TEMPORARY, path)


def read_raw(path, rate, byte_order):
    """Samples of a file without a header: 16 bits, one channel.

    Args:
      rate: Hz.
      byte_order: 'big', 'little', or None, where the signal has to tell it: the one in which it
        is smoother.
    Returns:
      (int16 [n], rate).
    Raises:
      AudioError: an odd number of bytes. OSError.
    """
    with open(path, 'rb') as file:
        content = file.read()
    if len(content) % 2:
        raise audio.AudioError('%d bytes, expected two for each sample' % len(content))
    orders = {'big': np.frombuffer(content, '>i2'), 'little': np.frombuffer(content, '<i2')}
    byte_order = byte_order or min(orders, key=lambda order: _roughness(orders[order]))
    return orders[byte_order].astype(np.int16), rate


def _roughness(samples):
    """Mean difference between neighbours: far larger where the bytes are swapped, as then the
    low ones, which are all but noise, weigh most."""
    return np.abs(np.diff(samples.astype(np.int32))).mean() if len(samples) > 1 else 0
