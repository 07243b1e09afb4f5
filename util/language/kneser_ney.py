"""Estimates n-gram language models by interpolated modified Kneser-Ney smoothing.

Each word of a sentence is predicted from the n - 1 words before it, <s> being before the first one
and </s> behind the last one. An n-gram of the highest order counts as often as it occurs; a shorter
one as often as there are different words before it, except where it begins with <s>. A discount is
taken off each count, and what is saved in a context is distributed over all words as the next lower
order has it, below the unigrams evenly. So every word has a probability after every context,
<unk> as well, which stands for all words that the model does not know.

Source: Chen and Goodman, An empirical study of smoothing techniques for language modeling, Harvard
TR-10-98, 1998, sections 2.7 and 3; Heafield et al., Scalable modified Kneser-Ney language model
estimation, ACL 2013, whose program lmplz has the same special cases: <unk> is a word that occurs
zero times, and the mass of pruned n-grams goes to the next lower order.

All is done by NumPy on arrays with an element for each word of the text or for each n-gram.
"""

import logging
from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from util import errors
from util.language import arpa

log = logging.getLogger(__name__)

FALLBACK = (0.5, 1.0, 1.5)  # discounts for texts that are too small to estimate them, lmplz's
UNKNOWN, BEGIN, END = 0, 1, 2  # indices of the special words
LOWEST = -99.0  # log10 of a probability of 0
NONE = -1  # index of no n-gram


class Estimate(NamedTuple):
    """A language model and what it was estimated from."""

    model: arpa.Model
    discounts: list[tuple[float, ...]]  # of each order: of the counts 1, 2, and 3 and more
    fell_back: list[bool]  # of each order: whether the discounts were given, not estimated
    n_sentences: int
    n_words: int  # without <s> and </s>
    n_types: int  # different words


class Text(NamedTuple):
    """A text as numbers."""

    vocabulary: list[str]
    tokens: np.ndarray  # int64 [n], indices of the vocabulary: <s> words </s> <s> words </s> ...
    n_sentences: int


class _Counts(NamedTuple):
    """The n-grams of one order, in the order of their contexts."""

    prefix: np.ndarray  # int64 [count], index of the n-gram of the next lower order before the last
    # word; 0 for unigrams
    suffix: np.ndarray  # int64 [count], index of the n-gram without its first word; 0 for unigrams
    word: np.ndarray  # int64 [count], the last word
    begins: np.ndarray  # bool [count], whether <s> is the first word
    occurrences: np.ndarray  # int64 [count], how often it occurs in the text
    counts: np.ndarray  # int64 [count], as Kneser-Ney counts it


def read_text(sentences: Iterable[Sequence[str]], vocabulary: Iterable[str] = ()) -> Text:
    """Returns the words of sentences as numbers.

    Args:
      sentences: the words of each sentence; none of them is <s>, </s> or <unk>.
      vocabulary: further words of the vocabulary.
    Raises:
      LanguageError: there is no sentence, or a word cannot stand in a model.
    """
    indices = {arpa.UNKNOWN: UNKNOWN, arpa.BEGIN: BEGIN, arpa.END: END}
    tokens, n_sentences = array('q'), 0
    for words in sentences:
        tokens.append(BEGIN)
        tokens.extend([indices.setdefault(word, len(indices)) for word in words])
        tokens.append(END)
        n_sentences += 1
    if not n_sentences:
        raise errors.LanguageError('the text has no sentence, expected at least one')
    for word in vocabulary:
        indices.setdefault(word, len(indices))
    text = Text(list(indices), np.frombuffer(tokens, np.int64), n_sentences)
    _check_special(text)
    return text


def _check_special(text):
    """Checks that special words stand only where `read_text` puts them."""
    expected = {UNKNOWN: 0, BEGIN: text.n_sentences, END: text.n_sentences}
    for index, count in expected.items():
        if np.count_nonzero(text.tokens == index) != count:
            raise errors.LanguageError(
                'the text holds the word %s, which a language model uses itself'
                % text.vocabulary[index]
            )


def estimate(
    text: Text,
    order: int,
    *,
    vocabulary: Collection[str] | None = None,
    prune: Sequence[int] = (),
    fallback: Sequence[float] = FALLBACK,
) -> Estimate:
    """Estimates a language model.

    Args:
      text: Text.
      order: length of the longest n-grams.
      vocabulary: the words of the model; n-grams with other words are left out of it. None: all.
      prune: for each order from 1, n-grams that occur so often or less are left out; the last
        number holds for the orders beyond. It must begin with 0 and must not fall.
      fallback: discounts of the counts 1, 2, and 3 and more for an order whose own cannot be
        estimated, for the text is too small.
    Returns:
      Estimate.
    Raises:
      ConfigError: an argument cannot be used.
    """
    prune = _thresholds(prune, order)
    _check_fallback(fallback)
    orders = count(text, order)
    discounts, fell_back = _all_discounts(orders, fallback)
    kept = _kept(orders, prune, _allowed(text, vocabulary))
    model = _interpolated(text, orders, discounts, kept)
    n_words = len(text.tokens) - 2 * text.n_sentences
    n_types = int(np.count_nonzero(np.bincount(text.tokens))) - 2
    return Estimate(model, discounts, fell_back, text.n_sentences, n_words, n_types)


def _thresholds(prune, order):
    """Returns the threshold of each order."""
    full = [*prune, *[prune[-1] if prune else 0] * (order - len(prune))]
    if len(full) > order or full[0] != 0 or full != sorted(full):
        raise errors.ConfigError(
            'prune: expected up to %d numbers, the first 0 and none less than the one before, got '
            '%s' % (order, ' '.join(map(str, prune)))
        )
    return full


def _check_fallback(fallback):
    """Checks that discounts are in their range."""
    if len(fallback) != 3 or not all(0 <= value <= k for k, value in enumerate(fallback, 1)):
        raise errors.ConfigError(
            'discount fallback: expected three numbers, of 0 to 1, 0 to 2 and 0 to 3, got %s'
            % ' '.join(map(str, fallback))
        )


def _allowed(text, vocabulary):
    """Returns whether each word of the text may be in the model, bool [n]."""
    if vocabulary is None:
        return np.ones(len(text.vocabulary), bool)
    words = {*vocabulary, *arpa.SPECIAL}
    return np.array([word in words for word in text.vocabulary])


# Counts


def count(text: Text, order: int) -> list[_Counts]:
    """Counts the n-grams of a text; returns those of each order from 1."""
    found = [_unigrams(text)]
    at = text.tokens  # index of the n-gram that ends at each token, or NONE
    for _ in range(1, order):
        at = _add_order(found, at, text)
    for lower, higher in zip(found, found[1:]):
        _count_extensions(lower, higher)
    return found


def _unigrams(text):
    """Returns the unigrams, with a place for each word of the vocabulary."""
    n = len(text.vocabulary)
    occurrences = np.bincount(text.tokens, minlength=n)
    words, zeros = np.arange(n), np.zeros(n, np.int64)
    counts = np.where(words == BEGIN, 0, occurrences)  # <s> is never predicted
    return _Counts(zeros, zeros, words, words == BEGIN, occurrences, counts)


def _add_order(found, at, text):
    """Adds the n-grams of the next order to the list of _Counts.

    Args:
      found: list of _Counts; the new ones are appended.
      at: int64 [n], index of the n-gram of the last order that ends at each token, or NONE.
      text: Text.
    Returns:
      int64 [n], as `at`, of the new order.
    """
    n = len(text.vocabulary)
    # the context ends before the token, which is not <s>
    whole = (at[:-1] != NONE) & (text.tokens[1:] != BEGIN)
    keys = at[:-1][whole] * n + text.tokens[1:][whole]
    keys, first, indices, occurrences = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    prefix, word = np.divmod(keys, n)
    suffix = at[1:][whole][first]
    found.append(
        _Counts(prefix, suffix, word, found[-1].begins[prefix], occurrences, occurrences.copy())
    )
    following = np.full(len(at), NONE)
    following[1:][whole] = indices
    return following


def _count_extensions(lower, higher):
    """Sets the counts of n-grams to the number of different words before them; those that begin
    with <s>, which nothing comes before, keep theirs."""
    extensions = np.bincount(higher.suffix, minlength=len(lower.word))
    np.copyto(lower.counts, extensions, where=~lower.begins)


# Discounts


def _all_discounts(orders, fallback):
    """Returns the discounts of each order, and whether they are the fallback."""
    estimated = [discounts(each.counts) for each in orders]
    for order, found in enumerate(estimated, 1):
        if found is None:
            log.info(
                '%d-grams: the text is too small to estimate the discounts; taken: %s',
                order,
                ' '.join('%g' % value for value in fallback),
            )
    return [found or tuple(fallback) for found in estimated], [not found for found in estimated]


def discounts(counts: np.ndarray) -> tuple[float, float, float] | None:
    """Estimates the discounts of the counts 1, 2, and 3 and more.

    Args:
      counts: int64 [count], those of the n-grams of an order.
    Returns:
      The discounts; None if they cannot be estimated, for there is no n-gram of the count 1, 2 or
      3, or if one is out of its range.
    Source: Chen and Goodman, 1998, equation 26.
    """
    n = np.bincount(np.minimum(counts, 5), minlength=6).tolist()
    if not all(n[1:4]):
        return None
    share = n[1] / (n[1] + 2 * n[2])
    found = [k - (k + 1) * share * n[k + 1] / n[k] for k in (1, 2, 3)]
    if not all(0 <= value <= k for k, value in enumerate(found, 1)):
        return None
    return found[0], found[1], found[2]


# Probabilities


def _kept(orders, prune, allowed):
    """Returns which n-grams stay in the model, bool [count] for each order.

    With an n-gram its beginning and its end stay as well, as they occur at least as often.
    """
    kept = [allowed]
    for each, threshold in zip(orders[1:], prune[1:]):
        kept.append((each.occurrences > threshold) & allowed[each.word] & kept[-1][each.prefix])
    return kept


def _interpolated(text, orders, discounts, kept):
    """Returns the arpa.Model.

    Args:
      text: Text.
      orders: list of _Counts.
      discounts: those of each order.
      kept: as `_kept` returns it.
    Source: Chen and Goodman, 1998, section 2.8, with pruning as in Heafield et al., 2013.
    """
    numbers = np.cumsum(kept[0]) - 1  # of the words that stay
    probabilities = np.array([1 / numbers[-1]])  # of all words but <s>, below the unigrams
    words, columns, backoffs = np.zeros((1, 0), np.int64), [], []
    for each, own, stays in zip(orders, discounts, kept):
        probabilities, weights = _next_order(each, own, stays, probabilities)
        if not columns:
            probabilities[BEGIN] = 1.0  # as it stands at the start of every sentence
        words = np.column_stack([words[each.prefix], numbers[each.word]])
        columns.append((words[stays].astype(np.int32), _logs(probabilities[stays])))
        backoffs.append(_logs(weights))
    backoffs = [weights[stays] for weights, stays in zip(backoffs[1:], kept)]
    backoffs.append(np.zeros(len(columns[-1][1])))
    vocabulary = [word for word, stays in zip(text.vocabulary, kept[0]) if stays]
    return arpa.Model(vocabulary, [arpa.Ngrams(*each, own) for each, own in zip(columns, backoffs)])


def _next_order(counted, discounts, stays, lower):
    """Interpolates an order with the one below.

    Args:
      counted: _Counts.
      discounts: of the counts 1, 2, and 3 and more.
      stays: bool [count], whether the n-gram is not pruned.
      lower: float64 [n], probabilities of the n-grams of the order below.
    Returns:
      (float64 [count], probabilities; float64 [n], the backoff weight of each n-gram of the order
      below: the share of its mass that is not given to n-grams of this order).
    """
    total = np.bincount(counted.prefix, counted.counts, len(lower))
    discount = np.array([0, *discounts])[np.minimum(counted.counts, 3)]
    saved = np.where(stays, discount, counted.counts)
    saved = np.bincount(counted.prefix, saved, len(lower))
    weights = np.divide(saved, total, out=np.ones(len(total)), where=total > 0)
    probabilities = (counted.counts - discount) / total[counted.prefix]
    return probabilities + weights[counted.prefix] * lower[counted.suffix], weights


def _logs(values):
    """Returns the logarithms to base 10, at least LOWEST."""
    return np.log10(np.clip(values, 10.0**LOWEST, 1.0))
