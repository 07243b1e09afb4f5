"""What a sequence of words adds to the score of a text: alpha ln P_lm + beta words.

These classes give flashlight's searches what they ask for. Words have the indices of a Lexicon; the
index of a word outside of it is the number of words in it.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from util.language.grammar import Grammar
from util.language.models import LN_10, LanguageModel

# What is added to a score to say never: flashlight calculates with it, which it cannot do with
# minus infinity.
NEVER = -1e9
IMPOSSIBLE = NEVER / 2  # what has a lower score has NEVER in it


class Weights(NamedTuple):
    """The weights of a score."""

    alpha: float  # of ln P_lm
    beta: float  # what each word adds
    unknown: float | None  # what a word outside the lexicon adds besides; None: there is none


class WordScores:
    """Scores words, one after the other.

    A state is (state of the language model, state of the grammar), each None without one.

    Args:
      words: those of the lexicon.
      model: LanguageModel, or None.
      grammar: Grammar, or None.
      weights: Weights.
    """

    def __init__(
        self,
        words: Sequence[str],
        model: LanguageModel | None,
        grammar: Grammar | None,
        weights: Weights,
    ) -> None:
        self._words, self._model, self._grammar, self._weights = words, model, grammar, weights

    def start(self) -> Any:
        """Returns the state before the first word."""
        return self._model and self._model.start(), None if self._grammar is None else 0

    def word(self, state: Any, index: int) -> tuple[Any, float]:
        """Returns (state behind a word, what the word adds to the score)."""
        of_model, of_grammar = state
        score = self._weights.beta
        if index >= len(self._words):
            if self._weights.unknown is None:
                return state, NEVER
            score += self._weights.unknown
        if self._grammar is not None:
            of_grammar = self._grammar.moves[of_grammar].get(self._words[index])
            if of_grammar is None:
                return state, NEVER
        if self._model is not None:
            of_model, log_probability = self._model.word(of_model, index)
            score += self._weights.alpha * log_probability
        return (of_model, of_grammar), score

    def finish(self, state: Any) -> float:
        """Returns what the end of the text adds to the score."""
        of_model, of_grammar = state
        if of_grammar is not None and self._grammar and of_grammar not in self._grammar.ends:
            return NEVER
        if self._model is None:
            return 0.0
        return self._weights.alpha * self._model.finish(of_model)

    def total(self, indices: Sequence[int]) -> float:
        """Returns what all words of a text add to its score."""
        state, total = self.start(), 0.0
        for index in indices:
            state, score = self.word(state, index)
            total += score
        return total + self.finish(state)


def word_model(flashlight: Any, scores: WordScores) -> Any:
    """Returns flashlight's LM of words for one search of a lexicon; its weight is 1.

    It must not be shared by threads.
    """
    return _model_of(flashlight, scores.start(), scores.word, scores.finish)


def spelling_model(flashlight: Any, scores: WordScores, labels: Sequence[str], index: Any) -> Any:
    """Returns flashlight's LM of labels for one search without a lexicon; its weight is 1.

    It scores a word when the space behind it comes, or the text ends. A text has no space at its
    ends, and only one between two words. Without a space among the labels, each label is a word.

    Args:
      flashlight: the module.
      scores: WordScores.
      labels: those of the alphabet.
      index: {word: its index}.
    """
    space = labels.index(' ') if ' ' in labels else None
    outside = len(index)

    def follow(state, label):
        """A state is (state of `scores`, the beginning of a word, None before the first one)."""
        of_words, word = state
        if space is None:
            after, score = scores.word(of_words, index.get(labels[label], outside))
            return (after, None), score
        if label != space:
            return (of_words, (word or '') + labels[label]), 0.0
        if not word:
            return state, NEVER
        after, score = scores.word(of_words, index.get(word, outside))
        return (after, ''), score

    def finish(state):
        of_words, word = state
        if word is None:
            return scores.finish(of_words)
        if not word:  # a space at the end
            return NEVER
        of_words, score = scores.word(of_words, index.get(word, outside))
        return score + scores.finish(of_words)

    return _model_of(flashlight, (scores.start(), None), follow, finish)


def _model_of(flashlight, start, follow, finish):
    """Returns a flashlight LM.

    Args:
      start: the first state.
      follow: function of (state, token), returns (next state, score).
      finish: function of a state, returns a score.
    """
    return _class(flashlight)(start, follow, finish)


@functools.cache
def _class(flashlight):
    """Returns the class of the LMs, which can be defined only where flashlight is there.

    flashlight takes two of its states for the same only if they are the same object, and it asks
    for the same step repeatedly.
    """

    class Model(flashlight.LM):
        def __init__(self, start, follow, finish):
            super().__init__()
            self._start, self._follow, self._finish = start, follow, finish
            self._states = {}  # {flashlight's state: (ours, score of the step there)}

        def start(self, start_with_nothing):
            root = flashlight.LMState()
            self._states = {root: (self._start, 0.0)}
            return root

        def score(self, state, token):
            after = state.child(token)
            found = self._states.get(after)
            if found is None:
                found = self._states[after] = self._follow(self._states[state][0], token)
            return after, found[1]

        def finish(self, state):
            return state.child(-1), self._finish(self._states[state][0])

    return Model


def smeared_scores(model: LanguageModel | None, n_words: int) -> list[float]:
    """Returns the log10 probability of each word without a history, by which the search of a
    lexicon looks ahead."""
    if model is None:
        return [0.0] * n_words
    return [model.alone(index) / LN_10 for index in range(n_words)]
