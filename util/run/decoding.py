"""Runs the beam search of a pass over a data set in a thread beside the pass."""

import collections
import concurrent.futures
from typing import Any, NamedTuple

from util.language import decoder
from util.run import reports
from util.tf1 import tf

MAX_UNDECODED = 16  # limit of the batches whose logits wait for their beam search
TRAINING_POOL, DECODING_POOL = 0, 1  # thread pools of a session; neither waits for the other


def session_config(config):
    """Returns the tf.ConfigProto of a session: its devices, and its two pools of threads."""
    options = tf.ConfigProto(
        allow_soft_placement=True,
        log_device_placement=config.log_device_placement,
        device_count={'CPU': config.towers},
    )
    for _ in (TRAINING_POOL, DECODING_POOL):
        options.session_inter_op_thread_pool.add()
    return options


def second_search(config, alphabet):
    """Opens what the test is searched with a second time, before the training begins.

    Returns:
      language.decoder.Decoder, or None if the settings name no language model, lexicon or grammar.
    Raises:
      ConfigError, LanguageError: as language.decoder.make_decoder.
    """
    wanted = decoder.of_config(config)
    return None if wanted is None else decoder.make_decoder(wanted, alphabet)


class Undecoded(NamedTuple):
    """The results of a tower's B utterances before the beam search, as tensors or as values."""

    total_loss: Any  # float32 [B], CTC losses
    labels: Any  # int32 sparse [B, U]
    logits: Any  # float32 [T, B, n_character]
    seq_len: Any  # int32 [B], time steps
    count: Any  # int32 scalar, utterances that count; 0 in a tower that got none


class Decoded(NamedTuple):
    """The results of a tower's B utterances after the beam search, as tensors or as values."""

    total_loss: Any  # float32 [B], CTC losses
    distance: Any  # float32 [B], edit distance over the number of labels
    decoded: Any  # int64 sparse [B, .], best paths
    labels: Any  # int32 sparse [B, U]
    count: Any  # int32 scalar, as in Undecoded


def undecoded(towers) -> list[Undecoded]:
    """Returns the tensors before the beam search, to fetch them or to feed them to the search.

    Args:
      towers: handles.TowerResult of each tower.
    """
    return [Undecoded(*[getattr(tower, name) for name in Undecoded._fields]) for tower in towers]


class Decoding:
    """Decodes the batches of a pass in a thread, as only the report at its end needs the texts.

    Args:
      session: tf.Session with the thread pools TRAINING_POOL and DECODING_POOL.
      towers: handles.TowerResult of each tower.
      alphabet: text.Alphabet.
      language: language.decoder.Decoder for a second search; None: there is none.
    Attributes:
      language_texts: those of the second search of all batches, once the pass is over.
    """

    def __init__(self, session, towers, alphabet, language=None) -> None:
        self._session, self._alphabet, self._language = session, alphabet, language
        self._inputs = undecoded(towers)
        self._outputs = [
            Decoded(*[getattr(tower, name) for name in Decoded._fields]) for tower in towers
        ]
        self._parts: list[reports.Results] = []
        self.language_texts: list[str] = []
        self._pending: collections.deque = collections.deque()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, 'decoding')

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            while self._pending and kind is None:
                self._collect()
        finally:
            self._thread.shutdown(cancel_futures=True)

    @property
    def results(self) -> reports.Results:
        """Returns the Results of all batches, in their order, once the pass is over."""
        return reports.join_results(self._parts)

    def add(self, towers: list[Undecoded]) -> None:
        """Queues the values of a step for the beam search, one Undecoded for each tower."""
        self._pending.append(self._thread.submit(self._search, towers))
        while len(self._pending) > MAX_UNDECODED or (self._pending and self._pending[0].done()):
            self._collect()

    def _search(self, towers):
        """Decodes the batch of a step, an Undecoded for each tower; returns a Decoded for each, and
        the texts of the second search."""
        feed = {}
        for tensors, values in zip(self._inputs, towers):
            feed.update(zip(tensors, values))
        decoded = self._session.run(
            self._outputs, feed, tf.RunOptions(inter_op_thread_pool=DECODING_POOL)
        )
        return decoded, self._second_search(towers)

    def _second_search(self, towers):
        """Returns the texts of a step's utterances that the second search finds."""
        if self._language is None:
            return []
        return [
            self._language.search(tower.logits[:n_steps, b]).text
            for tower in towers
            if tower.count
            for b, n_steps in enumerate(tower.seq_len)
        ]

    def _collect(self):
        """Waits for the oldest batch and keeps its Results."""
        decoded, texts = self._pending.popleft().result()
        self._parts.append(reports.collect_results(decoded, self._alphabet))
        self.language_texts += texts
