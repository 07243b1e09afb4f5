"""Applies the augmentations of `ds_augment` to utterances of the training set."""

import functools
from collections.abc import Callable

import numpy as np

from util import audio, augment_setting as setting, errors, records, text
from util.augmentation import frames, noise, waveforms
from util.augmentation.draws import Draws
from util.augmentation.stored_samples import StoredSamples


class Augmenter:
    """Computes augmented features, in the threads that read utterances.

    What acts on the signal comes first, in the order of the setting; then the mel filters are
    warped, then what acts on the spectrogram follows, then what acts on features. Whatever is drawn
    is a function of the seed, the epoch, the utterance and the position in the setting.

    Args:
      config: Config.
      items: list of augment_setting.Item; None: those of `ds_augment`.
    Raises:
      ConfigError: `ds_augment` cannot be used.
    """

    def __init__(self, config, items: list[setting.Item] | None = None):
        self._items = setting.parse(config.augment) if items is None else items
        self._config = config
        self._stored = StoredSamples(config.sample_rate, config.augment_cache_gb)
        sources = [str(item.values['source']) for item in self._items if item.name == 'overlay']
        self._noises = noise.Noises(sources, config.sample_rate, self._stored)
        check_codecs(self._items, config.sample_rate)

    def features(
        self,
        example: records.Example,
        key: tuple[int, int],
        share: float,
        clean: Callable[[], np.ndarray],
    ) -> np.ndarray:
        """Computes the features of an utterance in an epoch.

        Args:
          example: records.Example.
          key: (epoch, number of the utterance), integers of at least 0.
          share: share of the training that is done at the beginning of the epoch, from 0 to 1.
          clean: returns the features without augmentation, float32 [n_steps, n_input].
        Returns:
          float32 [n_steps, n_input]; as many time steps as CTC needs if the utterance has them.
        Raises:
          AudioError: the file cannot be read.
        """
        drawn = [
            Draws(item, [self._config.random_seed, *key, position], share)
            for position, item in enumerate(self._items)
        ]
        drawn = [draws for draws in drawn if draws.happens]
        anew = [draws for draws in drawn if draws.item.domain != setting.FEATURES]
        found = self._computed(example, anew) if anew else None
        found = clean() if found is None else found
        return self.on_frames(found, drawn, setting.FEATURES)

    def _computed(self, example, drawn):
        """Computes features from the augmented signal; None if the utterance is too short."""
        config, rate = self._config, self._config.sample_rate
        samples = self._stored.read(example.utterance)
        shortest = shortest_signal(example.transcript, rate, config.feature_stride)
        if len(samples) < shortest:
            return None
        samples = self.signal(samples, drawn, shortest)
        spectrogram = self.spectrogram(samples, filter_factor(drawn))
        spectrogram = self.on_frames(spectrogram, drawn, setting.SPECTROGRAM)
        return audio.cepstra(spectrogram[:, :-1], spectrogram[:, -1], config.n_input)

    def spectrogram(self, samples: np.ndarray, factor: float = 1.0) -> np.ndarray:
        """Computes the spectrogram on which augmentations act.

        Args:
          samples: float32 [n_samples], in the range of 16-bit integers.
          factor: that of the mel filters' centres.
        Returns:
          float32 [n_steps, N_FILTERS + 1]: natural logarithms of the energies of the mel filters
          and, in the last column, of the frames.
        """
        config = self._config
        energies = audio.log_mel(samples, config.sample_rate, config.feature_stride, factor)
        limited = [audio.limit_range(each, config.dynamic_range) for each in energies]
        return np.column_stack(limited)

    def signal(self, samples: np.ndarray, drawn: list[Draws], shortest: int) -> np.ndarray:
        """Applies what acts on the signal.

        Args:
          samples: float32 [n_samples], in the range of 16-bit integers.
          drawn: list of Draws that happen.
          shortest: samples that must be left.
        Returns:
          float32 [n].
        """
        around = waveforms.Surroundings(self._config.sample_rate, shortest, self._noises)
        for draws in drawn:
            if draws.item.domain == setting.SIGNAL:
                samples = waveforms.FUNCTIONS[draws.item.name](samples, draws, around)
        return samples

    def on_frames(self, values: np.ndarray, drawn: list[Draws], domain: str) -> np.ndarray:
        """Applies what acts on frames.

        Args:
          values: float32 [n_steps, N_FILTERS + 1], logarithms of mel energies and, in the last
            column, of the energies of the frames; or MFCC, float32 [n_steps, n_input].
          drawn: list of Draws that happen.
          domain: SPECTROGRAM or FEATURES.
        Returns:
          float32 of the same shape.
        """
        step_ms = 1000 * audio.WIN_STEP_S * self._config.feature_stride
        bands = audio.N_FILTERS if domain == setting.SPECTROGRAM else values.shape[1]
        for draws in drawn:
            if draws.item.domain == domain:
                function = frames.FUNCTIONS[draws.item.name]
                values = function(values, draws, frames.Layout(step_ms, bands))
        return values


def check_codecs(items, sample_rate: int) -> None:
    """Raises ConfigError if a codec does not have this sample rate, in Hz."""
    for item in items:
        rates = waveforms.CODEC_RATES[item.values['format']] if item.name == 'codec' else None
        if rates and sample_rate not in rates:
            raise errors.ConfigError(
                '%s: codec: format %s needs a ds_sample_rate of %s Hz, got %d'
                % (setting.SETTING, item.values['format'], ', '.join(map(str, rates)), sample_rate)
            )


def filter_factor(drawn: list[Draws]) -> float:
    """Draws the factor of the mel filters' centres: the product of all of them."""
    factor = 1.0
    for draws in drawn:
        if draws.item.domain == setting.FILTERS:
            factor *= draws.number('factor')
    return factor


@functools.lru_cache(maxsize=100000)
def shortest_signal(transcript: str, sample_rate: int, stride: int) -> int:
    """Returns how many samples an utterance must have so that CTC can align its transcript."""
    window, step = audio.window_and_step(sample_rate)
    n_frames = (text.required_steps(transcript) - 1) * stride + 1
    return window if n_frames == 1 else window + (n_frames - 2) * step + 1
