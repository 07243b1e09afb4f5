"""Finds the text of an utterance with a language model, a lexicon or a grammar.

The score of a text c for the sound x is that of the paper,

    Q(c) = ln P(c|x) + alpha ln P_lm(c) + beta words(c),

where P(c|x) is the sum over all CTC paths and P_lm(c) includes start and end of the sentence.
flashlight-text searches candidates with a beam; the score of each is then computed exactly, and the
best one is the result.
Source: Hannun et al., arXiv:1412.5567, equation 12.
"""

import functools
import logging
import math
from typing import Any, NamedTuple

import numpy as np

from util import config as settings, ctc, errors, text
from util.language import grammar as grammars, lexicon as lexicons, models
from util.language.grammar import Grammar
from util.language.lexicon import SPACE, Lexicon
from util.language.models import LN_10, LanguageModel
from util.language.scores import (
    IMPOSSIBLE,
    NEVER,
    Weights,
    WordScores,
    smeared_scores,
    spelling_model,
    word_model,
)
from util.tf1 import tf

log = logging.getLogger('DeepSpeech')

NEVER_UNKNOWN, SPELL = settings.LM_UNKNOWN_NEVER, 'spell'
BEAM_RANGE = 30.0  # what lies further below the best path at a time step is dropped
WIDER = 8  # factor of the beam width where no path has reached an end that is allowed
WIDEST_RANGE = 1e6  # in place of BEAM_RANGE then
SPELLED_LABELS = 12  # labels of a time step that are tried where words are spelled
RESCORED = 16  # candidates whose score is computed exactly
RESCORED_RANGE = 10.0  # candidates further below the best one are not


class LanguageSettings(NamedTuple):
    """What is decoded with; '' where there is none."""

    lm: str = ''  # path of an ARPA file, also compressed by gzip, or of a binary of KenLM
    alpha: float = settings.LM_ALPHA  # weight of the language model
    beta: float | None = None  # what a word adds; None: config.LM_BETA with an lm, else 0
    lexicon: str = ''  # path of a list of words
    grammar: str = ''  # path of a grammar
    unknown: str = NEVER_UNKNOWN  # or SPELL, or a number that a word outside the lexicon adds
    beam_width: int = settings.Config.lm_beam_width


class Hypothesis(NamedTuple):
    """What a search has found."""

    text: str
    score: float  # Q(c), natural logarithm; minus infinity if no text is allowed


def of_config(config) -> LanguageSettings | None:
    """Returns the LanguageSettings of a Config; None if it asks for none of them."""
    if not (config.lm or config.lm_lexicon or config.lm_grammar):
        return None
    return LanguageSettings(
        config.lm,
        config.lm_alpha,
        config.lm_beta,
        config.lm_lexicon,
        config.lm_grammar,
        config.lm_unknown,
        config.lm_beam_width,
    )


def make_decoder(wanted: LanguageSettings, alphabet: text.Alphabet) -> 'Decoder':
    """Opens what is wanted, and returns a Decoder.

    Args:
      wanted: LanguageSettings.
      alphabet: text.Alphabet of the network.
    Raises:
      ConfigError: the settings do not go together.
      LanguageError: a file cannot be used, or a package is not installed.
    """
    weights = _weights(wanted)
    _check(wanted)
    models.flashlight()
    grammar = grammars.load(wanted.grammar, alphabet) if wanted.grammar else None
    lexicon, model = _lexicon_and_model(wanted, alphabet, grammar)
    return Decoder(alphabet, lexicon, model, grammar, weights, wanted.beam_width)


def _weights(wanted):
    """Returns the Weights of LanguageSettings."""
    beta = wanted.beta
    if beta is None:
        beta = settings.LM_BETA if wanted.lm else 0.0
    return Weights(wanted.alpha if wanted.lm else 0.0, beta, unknown_score(wanted.unknown))


def unknown_score(value: str) -> float | None:
    """Returns what a word outside the lexicon adds to the score, as ds_lm_unknown says it; None if
    there must be none.

    Raises:
      ConfigError: the value is none that it may have.
    """
    if value in (NEVER_UNKNOWN, SPELL):
        return 0.0 if value == SPELL else None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise errors.ConfigError(
            'ds_lm_unknown must be %s, %s or a number such as -5, got %r'
            % (NEVER_UNKNOWN, SPELL, value)
        )
    return number


def _check(wanted):
    """Raises ConfigError if LanguageSettings do not go together."""
    if wanted.grammar and wanted.lexicon:
        raise errors.ConfigError(
            'ds_lm_lexicon has no use with ds_lm_grammar, which has its words, got %s'
            % wanted.lexicon
        )
    if wanted.grammar and wanted.unknown != NEVER_UNKNOWN:
        raise errors.ConfigError(
            'ds_lm_unknown must be %s with ds_lm_grammar, got %s' % (NEVER_UNKNOWN, wanted.unknown)
        )


def _lexicon_and_model(wanted, alphabet, grammar):
    """Returns (Lexicon, LanguageModel or None)."""
    if not wanted.lm:
        return _listed(wanted, alphabet, grammar), None
    with models.unpacked(wanted.lm, 'ds_lm') as (plain, is_arpa):
        known = models.words_of(plain, is_arpa, wanted.lm)
        if wanted.lexicon or grammar:
            lexicon = _listed(wanted, alphabet, grammar)
            if known is not None:
                lexicon = _as_in_model(lexicon, known, alphabet, wanted)
        elif known is None:
            raise errors.LanguageError(
                'ds_lm: %s is a binary of KenLM that does not list its words, or is damaged; '
                'ds_lm_lexicon must name a file of words' % wanted.lm
            )
        else:
            lexicon = lexicons.make(known, alphabet, 'ds_lm: ' + wanted.lm)
        return lexicon, models.open_model(plain, lexicon.names, wanted.lm, 'ds_lm')


def _listed(wanted, alphabet, grammar):
    """Returns the Lexicon of the grammar or of a list of words."""
    if grammar is not None:
        return lexicons.make(grammar.words, alphabet, 'ds_lm_grammar: ' + wanted.grammar)
    words = lexicons.read(wanted.lexicon, 'ds_lm_lexicon')
    return lexicons.make(words, alphabet, 'ds_lm_lexicon: ' + wanted.lexicon)


def _as_in_model(lexicon, names, alphabet, wanted):
    """Returns a Lexicon with the names that a language model has for the words, which may be in
    upper case there; the log says how many words it does not have."""
    of_model: dict[str, str] = {}
    for name in names:
        of_model.setdefault(text.clean_transcript(name, alphabet)[0], name)
    known = set(names)
    found = [
        name if name in known else of_model.get(word, name)
        for word, name in zip(lexicon.words, lexicon.names)
    ]
    missing = [name for name in found if name not in known]
    if missing:
        log.warning(
            'ds_lm: %s does not have %d of %d words, such as %r; they count as <unk>',
            wanted.lm,
            len(missing),
            len(found),
            missing[0],
        )
    return lexicon._replace(names=found)


class Decoder:
    """Finds texts. Several threads may use it.

    Args:
      alphabet: text.Alphabet.
      lexicon: Lexicon.
      model: LanguageModel, or None.
      grammar: Grammar, or None.
      weights: Weights.
      beam_width: paths that the search follows.
      trie: flashlight's Trie of the lexicon; None: it is made when it is needed.
    Attributes:
      alphabet: as above.
    """

    def __init__(
        self,
        alphabet: text.Alphabet,
        lexicon: Lexicon,
        model: LanguageModel | None,
        grammar: Grammar | None,
        weights: Weights,
        beam_width: int,
        trie: Any = None,
    ) -> None:
        self.alphabet, self._lexicon, self._model = alphabet, lexicon, model
        self._grammar, self._weights, self._beam_width = grammar, weights, beam_width
        self._scores = WordScores(lexicon.words, model, grammar, weights)
        self._spells = weights.unknown is not None or SPACE not in alphabet
        if trie is None and not self._spells:
            trie = _make_trie(alphabet, lexicon, None if grammar else model)
        self._trie = trie

    def with_weights(self, alpha: float, beta: float) -> 'Decoder':
        """Returns a Decoder with other weights, which shares the language model and the lexicon."""
        return Decoder(
            self.alphabet,
            self._lexicon,
            self._model,
            self._grammar,
            Weights(alpha if self._model else 0.0, beta, self._weights.unknown),
            self._beam_width,
            self._trie,
        )

    def search(self, logits: np.ndarray) -> Hypothesis:
        """Finds the text with the highest score.

        Args:
          logits: float32 [n_steps, n_character], the blank last, as the network gives them.
        """
        if self._is_free():
            return self._plain(logits)
        log_probs = ctc.log_softmax(logits)
        for beam in ((self._beam_width, BEAM_RANGE), (self._beam_width * WIDER, WIDEST_RANGE)):
            candidates = (self._spelled if self._spells else self._of_lexicon)(log_probs, *beam)
            if candidates:
                return self._best(candidates, log_probs)
        return Hypothesis('', -math.inf)

    def _is_free(self):
        """Tells whether every text is allowed, and its score is ln P(c|x) alone."""
        return self._weights == (0.0, 0.0, 0.0) and self._grammar is None

    def _plain(self, logits):
        """Searches without any of this, by TensorFlow, so that the text is that of the plain beam
        search."""
        labels, score = _plain_search(self.alphabet.n_character, self._beam_width)(logits)
        return Hypothesis(self.alphabet.decode(labels), score)

    def _of_lexicon(self, log_probs, beam_width, beam_range):
        """Returns the best word sequences, tuples of indices, in an alphabet with a space.

        The spelling of each word ends with the space. One more time step, which is surely a space,
        ends the last word.
        """
        flashlight = models.flashlight()
        weights, space = self._weights, int(self.alphabet.encode(SPACE)[0])
        emissions = np.full((len(log_probs) + 1, log_probs.shape[1]), NEVER, np.float32)
        emissions[:-1] = log_probs
        emissions[-1, space] = 0.0
        if self._grammar is not None:
            model, alpha, beta = word_model(flashlight, self._scores), 1.0, 0.0
        else:
            model = self._model.handle if self._model else flashlight.ZeroLM()
            alpha, beta = weights.alpha * LN_10, weights.beta
        options = flashlight.LexiconDecoderOptions(
            beam_size=beam_width,
            beam_size_token=log_probs.shape[1],
            beam_threshold=beam_range,
            lm_weight=alpha,
            word_score=beta,
            unk_score=-math.inf,
            sil_score=0.0,
            log_add=True,
            criterion_type=flashlight.CriterionType.CTC,
        )
        search = flashlight.LexiconDecoder(
            options, self._trie, model, space, self.alphabet.blank, -1, [], False
        )
        found = search.decode(emissions.ctypes.data, *emissions.shape)
        return _distinct(
            (tuple(word for word in each.words if word >= 0), each.score) for each in found
        )

    def _spelled(self, log_probs, beam_width, beam_range):
        """Returns the best texts as tuples of words' indices, of the words outside the lexicon as
        text."""
        flashlight = models.flashlight()
        labels, indices = self.alphabet.labels, self._lexicon.indices
        options = flashlight.LexiconFreeDecoderOptions(
            beam_size=beam_width,
            beam_size_token=min(SPELLED_LABELS, log_probs.shape[1]),
            beam_threshold=beam_range,
            lm_weight=1.0,
            sil_score=0.0,
            log_add=True,
            criterion_type=flashlight.CriterionType.CTC,
        )
        model = spelling_model(flashlight, self._scores, labels, indices)
        search = flashlight.LexiconFreeDecoder(options, model, -1, self.alphabet.blank, [])
        emissions = log_probs.astype(np.float32)
        found = search.decode(emissions.ctypes.data, *emissions.shape)
        return _distinct((self._words_of(each.tokens), each.score) for each in found)

    def _words_of(self, path):
        """Returns the words of a path of labels and blanks, with a label before and one behind it;
        the index of a word in the lexicon, or the text of one that is not there."""
        labels = np.array(path[1:-1])
        begins = np.concatenate([[True], labels[1:] != labels[:-1]])
        words = lexicons.split(self.alphabet.decode(labels[begins]), self.alphabet)
        return tuple(self._lexicon.indices.get(word, word) for word in words)

    def _best(self, candidates, log_probs):
        """Returns the Hypothesis of the candidate with the highest score, computed exactly."""
        texts, extra = [], []
        n_words = len(self._lexicon.words)
        for words in candidates:
            names = [word if isinstance(word, str) else self._lexicon.words[word] for word in words]
            texts.append(lexicons.join(names, self.alphabet))
            indices = [n_words if isinstance(word, str) else word for word in words]
            extra.append(self._scores.total(indices))
        labels = [self.alphabet.encode(each) for each in texts]
        totals = ctc.log_probabilities(log_probs, labels, self.alphabet.blank) + extra
        best = int(np.argmax(totals))
        return Hypothesis(texts[best], float(totals[best]))


def _distinct(found):
    """Returns the distinct candidates of (candidate, score) in falling order of score that are to
    be scored exactly; an empty list if none is possible."""
    found = list(found)
    if not found or found[0][1] < IMPOSSIBLE:
        return []
    least = max(found[0][1] - RESCORED_RANGE, IMPOSSIBLE)
    return list(dict.fromkeys(words for words, score in found if score >= least))[:RESCORED]


def _make_trie(alphabet, lexicon, model):
    """Returns flashlight's Trie of a lexicon; each node knows the most probable word behind it."""
    flashlight = models.flashlight()
    trie = flashlight.Trie(alphabet.n_character, 0)
    scores = smeared_scores(model, len(lexicon.words))
    for index, (word, score) in enumerate(zip(lexicon.words, scores)):
        trie.insert(alphabet.encode(word + SPACE).tolist(), index, score)
    trie.smear(flashlight.SmearingMode.MAX)
    return trie


@functools.cache
def _plain_search(n_character, beam_width):
    """Returns a function of logits, float32 [n_steps, n_character], that returns (labels, score) of
    TensorFlow's beam search."""
    graph = tf.Graph()
    with graph.as_default(), tf.device('/cpu:0'):
        logits = tf.placeholder(tf.float32, [None, n_character])
        paths, scores = tf.nn.ctc_beam_search_decoder(
            logits[:, None],
            tf.shape(logits)[:1],
            beam_width=beam_width,
            top_paths=1,
            merge_repeated=False,
        )
        fetches = paths[0].values, scores[0, 0]
        session = tf.Session(graph=graph)

    def search(values):
        labels, score = session.run(fetches, {logits: values})
        return labels.tolist(), float(score)

    return search
