"""A trained network as everything in this folder sees it, whatever kind of file it came from."""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from util import audio, errors, text


class ModelError(errors.DeepSpeechError, ValueError):
    """A model cannot be used."""


class Features(NamedTuple):
    """The settings of the features that a network takes."""

    sample_rate: int  # Hz
    n_input: int  # coefficients of a frame
    n_context: int  # frames of context on either side
    feature_stride: int  # every stride-th frame is kept
    feature_norm: str = 'utterance'  # one of config.FEATURE_NORMS
    dynamic_range: float = 0.0  # dB, see audio.limit_range

    @property
    def n_features(self) -> int:
        """Returns the number of values of a window."""
        return self.n_input * (2 * self.n_context + 1)

    def frames(self, samples: np.ndarray) -> np.ndarray:
        """Computes normalised MFCC with the margins of the context windows, as training does.

        Args:
          samples: float64 [n_samples], at `sample_rate`, in the range of 16-bit integers.
        Returns:
          float32 [n_context + n_steps + n_context, n_input].
        Raises:
          AudioError: there are too few samples.
        """
        mfcc = audio.mfcc(
            samples, self.sample_rate, self.n_input, self.feature_stride, self.dynamic_range
        )
        return audio.normalise(mfcc.astype(np.float32), self.n_context, self.feature_norm)


class Recognised(NamedTuple):
    """What a network makes of an utterance."""

    labels: list[int]  # of the best path of the beam search
    logits: np.ndarray | None  # float32 [n_steps, n_character]; None if the model does not give it


class Network(abc.ABC):
    """A network that can be run, with its own features and alphabet.

    Attributes:
      alphabet: text.Alphabet.
      sample_rate: Hz.
      step_s: s from a time step to the next one.
      gives_logits: whether `recognise` returns logits, from which the times of words come.
    """

    alphabet: text.Alphabet
    sample_rate: int
    step_s: float
    gives_logits: bool

    @abc.abstractmethod
    def features(self, samples: np.ndarray) -> np.ndarray:
        """Computes the features of an utterance, of which `recognise` takes several together.

        Args:
          samples: float64 [n_samples], at `sample_rate`, in the range of 16-bit integers.
        Returns:
          float32 [n_frames, n_input].
        Raises:
          AudioError: there are too few samples.
        """

    @abc.abstractmethod
    def recognise(self, features: Sequence[np.ndarray]) -> list[Recognised]:
        """Recognises utterances; several threads may call it at the same time.

        Args:
          features: those of each utterance, as `features` returns them.
        """


class WindowNetwork(Network):
    """A network that takes a batch of windows of MFCC, as the one that is trained here.

    Args:
      session: tf.Session.
      inputs, lengths: placeholders, float32 [B, T, n_features] and int32 [B].
      labels: int64 tensor [B, n], the labels of the best paths, padded with -1.
      logits: float32 tensor [T, B, n_character], or None.
      features: Features.
      alphabet: text.Alphabet.
    """

    def __init__(
        self,
        session: Any,
        inputs: Any,
        lengths: Any,
        labels: Any,
        logits: Any,
        features: Features,
        alphabet: text.Alphabet,
    ) -> None:
        self._session, self._inputs, self._lengths = session, inputs, lengths
        self._fetches = (
            {'labels': labels} if logits is None else {'labels': labels, 'logits': logits}
        )
        self._features = features
        self.alphabet = alphabet
        self.sample_rate = features.sample_rate
        self.step_s = features.feature_stride * audio.WIN_STEP_S
        self.gives_logits = logits is not None

    def features(self, samples: np.ndarray) -> np.ndarray:
        """Computes normalised MFCC with the margins of the context windows, as training does."""
        return self._features.frames(samples)

    def recognise(self, features: Sequence[np.ndarray]) -> list[Recognised]:
        """Recognises utterances as one batch."""
        n_context = self._features.n_context
        lengths = [len(frames) - 2 * n_context for frames in features]
        batch = np.zeros((len(features), max(lengths), self._features.n_features), np.float32)
        for row, frames, length in zip(batch, features, lengths):
            row[:length] = audio.context_windows(frames, n_context)
        results = self._session.run(self._fetches, {self._inputs: batch, self._lengths: lengths})
        logits = results.get('logits')
        return [
            Recognised(
                [label for label in labels if label >= 0],
                None if logits is None else logits[:length, b].copy(),
            )
            for b, (labels, length) in enumerate(zip(results['labels'].tolist(), lengths))
        ]


def check_fit(
    path: str,
    shape_of_windows: int,
    n_character: int | None,
    features: Features,
    alphabet: text.Alphabet,
) -> None:
    """Checks that settings from elsewhere fit a model that does not describe itself.

    Args:
      path: the model, for the message.
      shape_of_windows: values of a window that the model takes.
      n_character: classes of its output; None if that is not known.
      features, alphabet: from the settings.
    Raises:
      ModelError: they do not fit; the message names the settings and both values.
    """
    if features.n_features != shape_of_windows:
        raise ModelError(
            '%s takes %d values a time step, but ds_n_input=%d and ds_n_context=%d make %d; set '
            'them, or name the settings of the training with --config'
            % (path, shape_of_windows, features.n_input, features.n_context, features.n_features)
        )
    if n_character is not None and alphabet.n_character != n_character:
        raise ModelError(
            '%s has %d classes, but the alphabet has %d labels and the blank; name the file of its '
            'alphabet by ds_alphabet' % (path, n_character, len(alphabet.labels))
        )
