"""The client's own search: the model server gives logits, and the text is found here."""

import argparse
from typing import Any

import numpy as np

from util import audio, errors
from util.language import decoder as decoders
from util.recognition import models
from util.serving.server import ServerError, Signature
from util.tools import language_options

SIGNATURE = 'logits'
INPUTS, OUTPUT = frozenset(['input', 'input_length']), 'logits'


def of_options(options: argparse.Namespace) -> 'Search | None':
    """Returns the Search that the command line asks for; None if it asks for none.

    Raises:
      DeepSpeechError: the options do not go together, or a file cannot be used.
    """
    wanted = language_options.settings_of(options)
    if wanted is None:
        if options.description:
            raise errors.ConfigError(
                '--description has no use without --lm, --lexicon or --grammar'
            )
        return None
    if not options.description:
        raise errors.ConfigError(
            '--lm, --lexicon and --grammar need --description FILE, the assets.extra/model.json of '
            'the served model, as a server does not tell which features and which alphabet it has'
        )
    features, alphabet = models.read_description(options.description)
    return Search(features, decoders.make_decoder(wanted, alphabet))


class Search:
    """Makes requests for logits of audio files, and texts of the answers.

    Args:
      features: models.Features of the served model.
      decoder: Decoder of its alphabet.
    """

    def __init__(self, features: models.Features, decoder: decoders.Decoder) -> None:
        self._features, self._decoder = features, decoder

    def check_signature(self, name: str, signature: Signature) -> None:
        """Raises ServerError if a signature does not give logits of features."""
        if signature.inputs != INPUTS or OUTPUT not in signature.outputs:
            raise ServerError(
                'signature %r gives no logits, which a search with a language model needs: use %r '
                'of a model exported by version 0.2 or later' % (name, SIGNATURE)
            )

    def message(self, filename: str) -> dict[str, Any]:
        """Returns the inputs of the signature for a batch of one audio file.

        Raises:
          AudioError: the file cannot be used.
          OSError: it cannot be read.
        """
        samples = audio.read_audio(filename, self._features.sample_rate)
        frames = self._features.frames(samples)
        windows = audio.context_windows(frames, self._features.n_context)
        return {
            'input': windows.astype(np.float32)[None],
            'input_length': np.array([len(windows)], np.int32),
        }

    def outputs(self, answer: dict[str, list]) -> dict[str, Any]:
        """Returns {'transcripts': text, 'scores': score} of the answer to a message.

        Raises:
          ServerError: the logits are those of another alphabet.
        """
        logits = np.array(answer[OUTPUT][0], np.float32)
        n_character = self._decoder.alphabet.n_character
        if logits.ndim != 2 or logits.shape[1] != n_character:
            raise ServerError(
                'the model gives logits of the shape %s, but --description has an alphabet of %d '
                'labels and the blank' % (logits.shape, n_character - 1)
            )
        found = self._decoder.search(logits)
        return {'transcripts': found.text, 'scores': found.score}
