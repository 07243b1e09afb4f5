"""Decoded audio that is kept in memory, so that it is not decoded in every epoch."""

import threading

import numpy as np

from util import audio, records

BYTES_A_GB = 10**9


class StoredSamples:
    """Reads the samples of utterances, and keeps those that fit into memory.

    What is full stays as it is: as every epoch asks for every utterance once, to keep the newest
    would be to keep nothing that is asked for again.

    Args:
      sample_rate: Hz.
      limit_gb: bound of what is kept, in GB.
    """

    def __init__(self, sample_rate: int, limit_gb: float):
        self._sample_rate, self._left = sample_rate, limit_gb * BYTES_A_GB
        self._kept: dict[tuple, np.ndarray] = {}
        self._lock = threading.Lock()

    def read(self, utterance: records.Utterance) -> np.ndarray:
        """Returns the samples of an utterance, float32 [n_samples] in the range of 16-bit integers.

        Raises:
          AudioError: as audio.read_audio.
        """
        place = (utterance.wav_filename, utterance.start_s, utterance.stop_s, utterance.channel)
        kept = self._kept.get(place)
        if kept is not None:
            return kept.astype(np.float32, copy=False)
        samples = audio.read_utterance(utterance, self._sample_rate).astype(np.float32)
        self._keep(place, samples)
        return samples

    def _keep(self, place, samples):
        """Keeps samples if there is room, as 16-bit integers if that is exact."""
        with np.errstate(invalid='ignore'):  # louder than full scale
            short = samples.astype(np.int16)
        kept = short if np.array_equal(short, samples) else samples
        kept.setflags(write=False)
        with self._lock:
            if kept.nbytes <= self._left and place not in self._kept:
                self._kept[place] = kept
                self._left -= kept.nbytes
