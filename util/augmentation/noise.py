"""Sources of noise for `overlay`: audio files, folders and manifests of them, and made noise."""

import functools
import logging
import os
import threading

import numpy as np
import scipy.fft

from util import audio, errors, records
from util.augment_setting import NOISES, SETTING
from util.augmentation.stored_samples import StoredSamples
from util.corpora import corpus_files, manifests

log = logging.getLogger(__name__)

MADE_SAMPLES = 1 << 20  # samples of made noise before it repeats itself
MADE_SEED = 20161
WHOLE_FILE_S = 60.0  # s, up to which a file is read as a whole and kept; parts of longer ones are
LOWEST_PINK = 20.0  # Hz, below which pink noise has no more power than there


class Noises:
    """All sources of noise of a recipe.

    Args:
      sources: texts of the keys `source`.
      sample_rate: Hz.
      stored: StoredSamples, which keeps the files.
    Raises:
      ConfigError: a source does not exist or has no audio.
    """

    def __init__(self, sources: list[str], sample_rate: int, stored: StoredSamples):
        self._sample_rate, self._stored = sample_rate, stored
        self._files = {each: find_files(each) for each in sources if each not in NOISES}
        self._lengths: dict[tuple, float] = {}
        self._unreadable: set[str] = set()
        self._lock = threading.Lock()

    def draw(self, source: str, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws noise.

        It begins at a random place of a random file, and repeats itself if it is too short.

        Args:
          source: one of `sources`.
          rng: np.random.Generator.
          count: samples.
        Returns:
          float32 [count]; zeros if no file of the source can be read.
        """
        place = rng.random()
        if source in NOISES:
            return _part(made(source, self._sample_rate), place, count)
        files = self._files[source]
        first = int(rng.integers(len(files)))
        for index in range(len(files)):
            found = self._read(files[(first + index) % len(files)], place, count)
            if found is not None:
                return found
        return np.zeros(count, np.float32)

    def _read(self, utterance, place, count):
        """Returns noise of one file, or None if it cannot be read, which is logged once."""
        try:
            seconds = self._seconds(utterance)
            if seconds > WHOLE_FILE_S:
                needed = count / self._sample_rate
                start = (utterance.start_s or 0.0) + place * max(0.0, seconds - needed)
                utterance = utterance._replace(start_s=start, stop_s=start + needed + 0.01)
                samples = audio.read_utterance(utterance, self._sample_rate)
                return _part(samples.astype(np.float32), 0.0, count)
            samples = self._stored.read(utterance)
            if not len(samples):
                raise audio.AudioError('no samples')
            return _part(samples, place, count)
        except audio.AudioError as error:
            with self._lock:
                if utterance.wav_filename not in self._unreadable:
                    self._unreadable.add(utterance.wav_filename)
                    log.warning('noise %s is left out: %s', utterance.wav_filename, error)
            return None

    def _seconds(self, utterance):
        """Returns the length of a file or of the part of it that an utterance is, in seconds."""
        place = (utterance.wav_filename, utterance.start_s, utterance.stop_s)
        if place not in self._lengths:
            info = audio.audio_info(utterance.wav_filename)
            _, count = audio.segment(info, utterance.start_s, utterance.stop_s)
            self._lengths[place] = count / info.rate
        return self._lengths[place]


def find_files(source: str) -> list[records.Utterance]:
    """Lists what a source consists of.

    Args:
      source: path of an audio file, a folder or a manifest.
    Returns:
      list of records.Utterance, at least one.
    Raises:
      ConfigError: the source does not exist, or has no audio file that can be opened.
    """
    try:
        found = _utterances(os.path.expanduser(source))
    except errors.DataError as error:
        raise errors.ConfigError('%s: overlay: source: %s' % (SETTING, error)) from None
    problem = 'there is no audio file in it'
    for utterance in found:
        try:
            audio.audio_info(utterance.wav_filename)
            return found
        except audio.AudioError as error:
            problem = '%s: %s' % (utterance.wav_filename, error)
    raise errors.ConfigError(
        '%s: overlay: source must be audio, a manifest or a folder with audio, or %s, got %s (%s)'
        % (SETTING, ' or '.join(NOISES), source, problem)
    )


def _utterances(source):
    """Returns the utterances of a source, as far as it says."""
    if os.path.isdir(source):
        paths = corpus_files.find_files(source, *corpus_files.AUDIO)
        return [records.Utterance(path, path) for path in paths]
    if source.lower().endswith(manifests.ENDINGS):
        return [each for each in manifests.read_manifest(source) if not each.exclusion_reason]
    return [records.Utterance(source, source)]


def _part(noise, place, count):
    """Cuts `count` samples out of noise, float32 [n]; place, from 0 to 1, says where. Noise that is
    too short is repeated."""
    if len(noise) > count:
        first = round(place * (len(noise) - count))
        return noise[first : first + count]
    return np.resize(np.roll(noise, -int(place * len(noise))), count)


@functools.lru_cache(maxsize=None)
def made(name: str, sample_rate: int) -> np.ndarray:
    """Makes noise that does not depend on any seed.

    Args:
      name: one of NOISES. The power of white noise is the same at all frequencies; that of pink
        noise falls by 3 dB an octave.
      sample_rate: Hz.
    Returns:
      float32 [MADE_SAMPLES], of standard deviation 1.
    """
    noise = np.random.default_rng(MADE_SEED).standard_normal(MADE_SAMPLES, np.float32)
    if name == 'pink':
        frequencies = np.fft.rfftfreq(MADE_SAMPLES, 1 / sample_rate)
        shape = 1 / np.sqrt(np.maximum(frequencies, LOWEST_PINK))
        noise = scipy.fft.irfft(scipy.fft.rfft(noise) * shape.astype(np.float32))
    noise /= noise.std()
    noise.setflags(write=False)
    return noise
