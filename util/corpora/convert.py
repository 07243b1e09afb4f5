"""Converts audio that cannot be read directly, such as headerless files, to FLAC in the cache.

A result lies in `ds_cache_dir`/converted/KEY/, where KEY stands for the reader and its settings.
Its name is made from the source's path and fingerprint, so that it is used only as long as the
source is unchanged. A result is written under a temporary name and renamed: a file
that exists is complete, and a conversion that was interrupted, even by kill -9, resumes where it
stopped. Sources are never changed.

This module does not load TensorFlow, which the converting processes do not need.
"""

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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import soundfile

from util import audio, errors, files, log as run_log

log = logging.getLogger(__name__)

TEMPORARY = '.tmp'  # ends the names of files that are being written
LOCK_NAME = '.lock'  # in the folder of the results
WORTH_PROCESSES = 16  # files; with fewer, starting more processes takes longer than converting
SAY_EVERY_S = 10  # seconds between two lines of the log on the progress
NAME_CHARS = 40  # characters of the source's name that a result's name begins with


class Converted(NamedTuple):
    """The result of converting a source: a path or an exclusion reason."""

    path: str | None  # path of its FLAC file
    exclusion_reason: str | None  # why it cannot be converted


def converted(
    sources: Sequence[str],
    cache_dir: str,
    read: Callable[..., tuple[np.ndarray, int]],
    **options: Any,
) -> list[Converted]:
    """Returns 16-bit FLAC copies of audio files, and makes those that do not exist yet.

    Args:
      sources: paths.
      cache_dir: `config.cache_dir`.
      read: function(path, **options) -> (int16 samples [n] or [n, channels], Hz). It may be
        called in other processes, so it has to be at the top level of a module that is not the
        main script. An AudioError, OSError or ValueError that it raises is the reason why a
        source cannot be converted.
      options: settings of `read` that JSON can hold; other settings make other results.
    Returns:
      one Converted for each source, in their order.
    Raises:
      ConfigError: the cache cannot be written.
      DataError: a converting process was killed.
    """
    folder = os.path.join(cache_dir, 'converted', _key(read, options))
    results = {source: _expected(source, folder) for source in sources}
    todo = _missing(results)
    if todo:
        files.make_dir(folder, 'ds_cache_dir')
        with files.locked(
            os.path.join(folder, LOCK_NAME),
            'waiting for another run, which converts into %s' % folder,
        ):
            todo = _missing(results)  # again, as another run may have converted some meanwhile
            _clean(folder, todo.values())
            for source, reason in _convert_all(todo, read, options).items():
                if reason:
                    results[source] = Converted(None, reason)
    return [results[source] for source in sources]


def _key(read, options):
    """Returns the name of the folder for the results of a reader with these settings."""
    what = [read.__module__, read.__qualname__, options]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def _expected(source, folder):
    """Returns a Converted with the path of a source's result, whether or not the file exists."""
    try:
        state = files.fingerprint(source)
    except OSError as error:
        return Converted(None, 'cannot be read: %s' % error.strerror)
    stem = os.path.splitext(os.path.basename(source))[0][:NAME_CHARS]
    digest = hashlib.sha256(os.fsencode(os.path.abspath(source))).hexdigest()[:24]
    size, _, times = state.partition('-')
    times = hashlib.sha256(times.encode()).hexdigest()[:16]
    return Converted(os.path.join(folder, '%s-%s-%s-%s.flac' % (stem, digest, size, times)), None)


def _missing(results):
    """Returns {source: path of its result} for the results that do not exist yet."""
    return {
        source: result.path
        for source, result in results.items()
        if result.path and not os.path.isfile(result.path)
    }


def _clean(folder, targets):
    """Removes unfinished files of interrupted runs, and results of the sources' earlier states."""
    stale = {_without_state(target) for target in targets}
    for name in os.listdir(folder):
        if name.endswith(TEMPORARY) or _without_state(name) in stale:
            os.remove(os.path.join(folder, name))


def _without_state(path):
    """Returns a result's name without the size and time of its source."""
    return os.path.basename(path).rsplit('-', 2)[0]


def _convert_all(todo, read, options):
    """Converts {source: target}; many files are converted by one process for each core.

    Returns:
      {source: None, or the reason why it cannot be converted}.
    """
    log.info('converting %d files to FLAC', len(todo))
    if len(todo) < WORTH_PROCESSES:
        return {
            source: _convert_one(source, target, read, options) for source, target in todo.items()
        }
    count = min(len(todo), os.cpu_count() or 1)
    pool = concurrent.futures.ProcessPoolExecutor(
        count, multiprocessing.get_context('spawn'), _start_worker
    )
    reasons = {}
    try:
        with _hidden_main():
            futures = {
                pool.submit(_convert_one, source, target, read, options): source
                for source, target in todo.items()
            }
        for future in _counted(futures):
            reasons[futures[future]] = future.result()
    except concurrent.futures.process.BrokenProcessPool:
        raise errors.DataError(
            'a process that converts audio was killed, perhaps because memory '
            'ran out, after %d of %d files; the next run goes on from there'
            % (len(reasons), len(todo))
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
    return reasons


def _counted(futures):
    """Yields the futures as they end, and shows how many have ended.

    A terminal gets a progress bar, any other output a line of the log every SAY_EVERY_S seconds.
    """
    said = time.monotonic()
    with run_log.Bar('converting', len(futures)) as bar:
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            yield future
            bar.update()
            if bar.disable and time.monotonic() - said > SAY_EVERY_S and done < len(futures):
                log.info('converted %d of %d', done, len(futures))
                said = time.monotonic()
    log.info('converted %d of %d', len(futures), len(futures))


@contextlib.contextmanager
def _hidden_main():
    """Keeps processes that start in the `with` block from importing the main script again.

    Its imports would cost each of them the seconds and the memory of TensorFlow.
    """
    main = sys.modules['__main__']
    sys.modules['__main__'] = types.ModuleType('__main__')
    try:
        yield
    finally:
        sys.modules['__main__'] = main


def _start_worker():
    """Makes a worker end with its parent, even a killed one, and leave Ctrl-C and other signals to
    the parent."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
    """Waits until the parent ends, and then ends this process."""
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)  # not sys.exit, which would end only this thread


def _convert_one(source, target, read, options):
    """Writes the FLAC file of a source.

    Returns:
      None, or the reason why it cannot be converted.
    Raises:
      ConfigError: the cache cannot be written.
    """
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
        raise errors.ConfigError(
            'ds_cache_dir: cannot write %s: %s' % (target, error.strerror)
        ) from None
    return None


def _write(path, content):
    """Writes a file under a temporary name and renames it."""
    with open(path + TEMPORARY, 'wb') as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # a power failure mustn't leave a renamed but empty file
    os.replace(path + TEMPORARY, path)


def read_raw(path: str, rate: int, byte_order: str | None) -> tuple[np.ndarray, int]:
    """Returns the samples of a file without a header, of 16 bits and one channel.

    Args:
      path: the file.
      rate: Hz, for the result.
      byte_order: 'big', 'little', or None for the one in which the signal is smoother.
    Returns:
      (int16 [n], rate).
    Raises:
      AudioError: the file has an odd number of bytes.
      OSError: it cannot be read.
    """
    with files.open_regular(path, mode='rb') as file:
        content = file.read()
    if len(content) % 2:
        raise audio.AudioError('%d bytes, expected two for each sample' % len(content))
    orders = {'big': np.frombuffer(content, '>i2'), 'little': np.frombuffer(content, '<i2')}
    byte_order = byte_order or min(orders, key=lambda order: _roughness(orders[order]))
    return orders[byte_order].astype(np.int16), rate


def _roughness(samples):
    """Returns the mean difference between neighbouring samples.

    It is far larger if the bytes are swapped, as the low bytes, which are nearly noise, then weigh
    most.
    """
    return np.abs(np.diff(samples.astype(np.int32))).mean() if len(samples) > 1 else 0
