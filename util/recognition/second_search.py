"""A network whose texts come from a search with a language model, a lexicon or a grammar."""

from collections.abc import Sequence

import numpy as np

from util.language.decoder import Decoder
from util.recognition.network import Network, Recognised


class SearchedNetwork(Network):
    """A network of which the logits are searched by a Decoder.

    Args:
      network: Network that gives logits.
      decoder: Decoder of its alphabet.
    """

    def __init__(self, network: Network, decoder: Decoder) -> None:
        self._network, self._decoder = network, decoder
        self.alphabet = network.alphabet
        self.sample_rate, self.step_s = network.sample_rate, network.step_s
        self.gives_logits = True

    def features(self, samples: np.ndarray) -> np.ndarray:
        """Computes the features of the network."""
        return self._network.features(samples)

    def recognise(self, features: Sequence[np.ndarray]) -> list[Recognised]:
        """Recognises utterances; the labels are those of the Decoder's texts."""
        return [self._searched(found) for found in self._network.recognise(features)]

    def _searched(self, found):
        """Returns a Recognised with the labels of the Decoder's text."""
        assert found.logits is not None
        text = self._decoder.search(found.logits).text
        return found._replace(labels=self.alphabet.encode(text).tolist())
