"""Decodes utterances with many pairs of weights, in several processes if it takes long."""

import contextlib
import logging
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from util import errors, text
from util.language import decoder as decoders

if TYPE_CHECKING:
    from util.language.decoder import Decoder, LanguageSettings

PROCESSES_FROM_S = 30  # s of decoding from which several processes pay
Pair = tuple[float, float]  # alpha, beta


class Decoding:
    """Decodes the same utterances again and again.

    Args:
      decoder: Decoder.
      wanted: LanguageSettings of the decoder, of which each process makes one of its own.
      alphabet: text.Alphabet.
      logits: float32 [n_steps, n_character] of each utterance.
      jobs: the largest number of processes.
    """

    def __init__(
        self,
        decoder: 'Decoder',
        wanted: 'LanguageSettings',
        alphabet: text.Alphabet,
        logits: Sequence[np.ndarray],
        jobs: int,
    ) -> None:
        self._decoder, self._wanted, self._alphabet = decoder, wanted, alphabet
        self._logits, self._jobs = logits, jobs

    def texts(
        self, pairs: Sequence[Pair], progress: Callable[[int], Any] = lambda n: None
    ) -> Iterator[list[str]]:
        """Yields the texts of the utterances for each pair of weights.

        The first pair is decoded by this process, which shows how long the others will take.

        Args:
          pairs: the weights.
          progress: function that is called with the number of utterances that were decoded.
        Raises:
          DeepSpeechError: a process has ended too early.
        """
        started = time.monotonic()
        yield self._own_texts(pairs[0], progress)
        expected_s = (time.monotonic() - started) * (len(pairs) - 1)
        if self._jobs > 1 and expected_s > PROCESSES_FROM_S:
            yield from self._texts_of_processes(pairs[1:], progress)
            return
        for pair in pairs[1:]:
            yield self._own_texts(pair, progress)

    def _own_texts(self, pair, progress):
        """Returns the texts of all utterances, decoded by this process."""
        decoder, texts = self._decoder.with_weights(*pair), []
        for logits in self._logits:
            texts.append(decoder.search(logits).text)
            progress(1)
        return texts

    def _texts_of_processes(self, pairs, progress):
        """Yields the texts of all utterances for each pair, decoded by other processes, each of
        which has its share of the utterances. The logits go to them by a temporary file."""
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            path = os.path.join(folder, 'logits.npy')
            np.save(path, np.concatenate(self._logits), allow_pickle=False)
            bounds = np.cumsum([0, *map(len, self._logits)]).tolist()
            shares = [range(i, len(self._logits), self._jobs) for i in range(self._jobs)]
            arguments = [
                (
                    self._wanted,
                    self._alphabet.labels,
                    path,
                    [bounds[i : i + 2] for i in share],
                    pairs,
                )
                for share in shares
            ]
            connections = [stack.enter_context(_process(each)) for each in arguments]
            for _ in pairs:
                texts = [''] * len(self._logits)
                for share, connection in zip(shares, connections):
                    for i, found in zip(share, _received(connection)):
                        texts[i] = found
                    progress(len(share))
                yield texts


@contextlib.contextmanager
def _process(arguments: tuple) -> Iterator[Connection]:
    """Starts a process that decodes, for the block; yields the connection to it.

    Args:
      arguments: those of `_decode` after the first one.
    """
    context = multiprocessing.get_context('spawn')  # TensorFlow does not survive a fork
    here, there = context.Pipe()
    process = context.Process(target=_decode, args=(there, *arguments), daemon=True)
    process.start()
    there.close()  # so that the end of the process is noticed
    try:
        yield here
    finally:
        process.terminate()
        process.join()
        here.close()


def _received(connection):
    """Returns the next texts of a process."""
    try:
        return connection.recv()
    except (EOFError, OSError):
        raise errors.DeepSpeechError(
            'a process that decodes has ended; fewer --jobs need less memory'
        ) from None


def _decode(connection, wanted, labels, path, bounds, pairs):
    """Sends the texts of utterances for each pair of weights; this is what a process does.

    Args:
      connection: where they go.
      wanted: LanguageSettings.
      labels: those of the alphabet.
      path: file of the logits of all utterances, one after the other.
      bounds: first and last time step of each utterance of this process.
      pairs: the weights.
    """
    for number in (signal.SIGINT, signal.SIGHUP):  # they are for the process that started it
        signal.signal(number, signal.SIG_IGN)
    logging.disable()  # as the same was said there
    decoder = decoders.make_decoder(wanted, text.Alphabet(labels))
    everything = np.load(path, mmap_mode='r')
    with contextlib.suppress(BrokenPipeError):
        for pair in pairs:
            weighted = decoder.with_weights(*pair)
            connection.send([weighted.search(np.array(everything[a:b])).text for a, b in bounds])
