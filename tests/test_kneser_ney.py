"""Modified Kneser-Ney smoothing against values worked out by hand, kenlm and lmplz."""

import logging
import shutil
import subprocess

import numpy as np
import pytest

from util import errors
from util.language import arpa, kneser_ney

SENTENCES = [['a', 'b'], ['a']]


def estimate(sentences, order, vocabulary=None, **options):
    """Returns the Estimate of sentences, each a list of words or a text."""
    lists = [each.split() if isinstance(each, str) else each for each in sentences]
    read = kneser_ney.read_text(lists, vocabulary or ())
    return kneser_ney.estimate(read, order, vocabulary=vocabulary, **options)


def probabilities(model, order):
    """Returns {words: (probability, backoff weight)} of the n-grams of an order."""
    ngrams = model.orders[order - 1]
    return {
        ' '.join(model.vocabulary[i] for i in words): (10**log_prob, 10**backoff)
        for words, log_prob, backoff in zip(*(column.tolist() for column in ngrams))
    }


def random_sentences(n, seed=0):
    """Returns n sentences of 0 to 7 of 13 words, the first of which are frequent."""
    rng = np.random.default_rng(seed)
    return [
        ['w%d' % min(word, 12) for word in rng.geometric(0.25, rng.integers(0, 8))]
        for _ in range(n)
    ]


def test_two_sentences_by_hand():
    # "a b" and "a" have the bigrams <s> a (twice), a b, b </s> and a </s>. The unigrams count by
    # the words before them: a 1 (<s>), b 1 (a), </s> 2 (a, b), in all 4. No n-gram counts 3, so
    # that the discounts are 0.5, 1 and 1.5. The unigrams save (0.5 + 0.5 + 1) / 4 = 0.5, which is
    # shared by a, b, </s> and <unk>: 0.125 each.
    model = estimate(SENTENCES, 2).model
    assert probabilities(model, 1) == {
        '<unk>': pytest.approx((0.125, 1)),
        '<s>': pytest.approx((1, 1 / 2)),  # after <s>: a 2, of which 1 is saved
        '</s>': pytest.approx((1 / 4 + 0.125, 1)),
        'a': pytest.approx((0.5 / 4 + 0.125, 1 / 2)),  # after a: b 1, </s> 1; 0.5 of each is saved
        'b': pytest.approx((0.5 / 4 + 0.125, 1 / 2)),  # after b: </s> 1; 0.5 is saved
    }
    assert probabilities(model, 2) == {
        '<s> a': pytest.approx((1 / 2 + 1 / 2 * 0.25, 1)),
        'a b': pytest.approx((0.5 / 2 + 1 / 2 * 0.25, 1)),
        'a </s>': pytest.approx((0.5 / 2 + 1 / 2 * 0.375, 1)),
        'b </s>': pytest.approx((0.5 + 1 / 2 * 0.375, 1)),
    }


def test_discounts_by_hand():
    # n1 = 4, n2 = 3, n3 = 2, n4 = 1: Y = 4 / (4 + 2 * 3) = 0.4,
    # D1 = 1 - 2 Y 3/4, D2 = 2 - 3 Y 2/3, D3 = 3 - 4 Y 1/2
    counts = np.array([1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 7, 0])
    assert kneser_ney.discounts(counts) == pytest.approx((0.4, 1.2, 2.2))
    assert kneser_ney.discounts(np.array([1, 1, 2, 2, 4])) is None  # no count of 3
    # n = 1, 9, 1, 1: D1 = 1 - 2/19 * 9/1 = 1/19, D2 = 2 - 3/19 / 9, D3 = 3 - 4/19
    counts = np.repeat([1, 2, 3, 4], [1, 9, 1, 1])
    assert kneser_ney.discounts(counts) == pytest.approx((1 / 19, 2 - 1 / 57, 3 - 4 / 19))
    assert kneser_ney.discounts(np.repeat([1, 2, 3, 4], [1, 1, 9, 1])) is None  # D2 = 2 - 9


def test_shorter_ngrams_count_by_what_comes_before_them():
    text = kneser_ney.read_text([['a', 'b'], ['c', 'b'], ['a', 'b'], ['a']])
    unigrams, bigrams, trigrams = kneser_ney.count(text, 3)

    def table(order, names):
        return dict(zip(names, order.counts.tolist(), strict=True))

    expected = dict(zip(('<unk>', '<s>', '</s>', 'a', 'b', 'c'), (0, 0, 2, 1, 2, 1)))
    assert table(unigrams, text.vocabulary) == expected  # </s> comes after b and a, b after a and c
    names = ['%s %s' % tuple(text.vocabulary[i] for i in each) for each in zip(*bigrams[::2][:2])]
    begin = {'<s> a': 3, '<s> c': 1}  # as often as they occur
    other = {'a </s>': 1, 'a b': 1, 'b </s>': 2, 'c b': 1}  # b </s> comes after a and c
    assert table(bigrams, names) == begin | other
    assert sorted(trigrams.counts.tolist()) == [1, 1, 1, 2, 2]  # <s> a b and a b </s> occur twice


@pytest.mark.parametrize('order', (1, 2, 3, 4))
@pytest.mark.parametrize(
    'options',
    [
        {},
        {'prune': (0, 1)},
        {'vocabulary': ['w1', 'w2', 'w5', 'never']},
        {'vocabulary': ['w1', 'w2', 'w3', 'w4'], 'prune': (0, 0, 1)},
        {'fallback': (0, 0, 0)},
    ],
)
def test_the_probabilities_of_all_words_sum_to_1_after_every_context(tmp_path, order, options):
    options = {**options, 'prune': options.get('prune', ())[:order]}
    found = estimate(random_sentences(60), order, **options)
    arpa.write(str(tmp_path / 'a.arpa'), found.model)
    model = arpa.read(str(tmp_path / 'a.arpa'))
    assert len(model.orders) == order
    scorer = arpa.Scorer(model)
    words = [word for word in model.vocabulary if word != '<s>']
    contexts = [[], ['w1', 'w11'], ['w7', 'none'], ['none']]
    contexts += [
        [model.vocabulary[i] for i in context]
        for ngrams in model.orders[:-1]
        for context in ngrams.words.tolist()
        if model.vocabulary[context[-1]] != '</s>'
    ]
    sums = [sum(10 ** scorer.log_prob(context, word) for word in words) for context in contexts]
    np.testing.assert_allclose(sums, 1, atol=1e-6)


def test_pruning_leaves_out_ngrams_by_how_often_they_occur():
    sentences = ['a b', 'a b', 'a c', 'a c', 'a c', 'd']
    full, pruned = (estimate(sentences, 3, prune=prune).model for prune in ((), (0, 1, 2)))
    for order, least in ((1, 0), (2, 2), (3, 3)):
        occur = {
            words: sum((' <s> %s </s> ' % each).count(' %s ' % words) for each in sentences)
            for words in probabilities(full, order)
        }
        kept = {words for words, times in occur.items() if times >= least}
        assert set(probabilities(pruned, order)) == kept
    assert '<s> a c' in probabilities(pruned, 3)
    assert 'a b </s>' not in probabilities(pruned, 3)


def test_the_vocabulary_is_that_of_the_model():
    model = estimate(['a b', 'a c', 'b a'], 2, vocabulary=['b', 'a', 'new']).model
    assert set(model.vocabulary) == {'<unk>', '<s>', '</s>', 'a', 'b', 'new'}
    assert probabilities(model, 1)['new'] == pytest.approx(probabilities(model, 1)['<unk>'])
    assert set(probabilities(model, 2)) == {'<s> a', '<s> b', 'a b', 'b a', 'a </s>', 'b </s>'}


def test_a_small_text_takes_given_discounts_and_says_so(caplog):
    caplog.set_level(logging.INFO)
    found = estimate(SENTENCES, 2, fallback=(0.25, 0.75, 1.25))
    assert found.discounts == [(0.25, 0.75, 1.25)] * 2
    assert found.fell_back == [True, True]
    assert (found.n_sentences, found.n_words, found.n_types) == (2, 3, 2)
    assert caplog.messages == [
        '%d-grams: the text is too small to estimate the discounts; taken: 0.25 0.75 1.25' % order
        for order in (1, 2)
    ]


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'prune': (1,)}, 'prune: expected up to 2 numbers, the first 0 .* got 1'),
        ({'prune': (0, 1, 2)}, 'prune: expected up to 2 numbers'),
        ({'prune': (0, -1)}, 'prune: .* none less than the one before, got 0 -1'),
        ({'fallback': (0.5, 1)}, 'discount fallback: expected three numbers'),
        ({'fallback': (1.5, 1, 1)}, 'of 0 to 1, 0 to 2 and 0 to 3, got 1.5 1 1'),
        ({'fallback': (float('nan'), 1, 1)}, 'discount fallback'),
    ],
)
def test_arguments_that_cannot_be_used(options, message):
    with pytest.raises(errors.ConfigError, match=message):
        estimate(SENTENCES, 2, **options)


def test_texts_that_cannot_be_used():
    with pytest.raises(errors.LanguageError, match='the text has no sentence'):
        estimate([], 2)
    for word in arpa.SPECIAL:
        with pytest.raises(errors.LanguageError, match='holds the word %s' % word):
            estimate([['a', word]], 2)


def test_sentences_shorter_than_the_order():
    model = estimate(['a', ''], 4).model
    assert [len(ngrams.words) for ngrams in model.orders] == [4, 3, 1, 0]
    assert set(probabilities(model, 3)) == {'<s> a </s>'}


def test_kenlm_computes_the_same(tmp_path):
    kenlm = pytest.importorskip('kenlm', reason='kenlm is not installed')
    model = estimate(random_sentences(200), 3).model
    arpa.write(str(tmp_path / 'a.arpa'), model)
    scorer, other = arpa.Scorer(model), kenlm.Model(str(tmp_path / 'a.arpa'))
    for words in random_sentences(50, seed=1) + [['w1', 'none', 'w2']]:
        expected = other.score(' '.join(words), bos=True, eos=True)
        assert scorer.sentence(words) == pytest.approx(expected, abs=1e-4)


@pytest.mark.skipif(not shutil.which('lmplz'), reason='lmplz (KenLM) is not installed')
@pytest.mark.parametrize('order', (1, 2, 3, 4))
@pytest.mark.parametrize('prune', ((), (0, 1)))
def test_lmplz_estimates_the_same(tmp_path, order, prune):
    # The text ends in a new word: lmplz counts the last n-grams of its own order by how often they
    # occur, which is the same then.
    sentences = [*random_sentences(300), ['last']]
    text = '\n'.join(' '.join(words) for words in sentences) + '\n'
    prune = prune if order > 1 else ()
    command = ['lmplz', '-o', str(order), '-S', '50M', '-T', str(tmp_path), '--discount_fallback']
    command += ['--prune', *map(str, prune)] if prune else []
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    (tmp_path / 'lmplz.arpa').write_bytes(done.stdout)
    theirs = arpa.read(str(tmp_path / 'lmplz.arpa'))
    ours = estimate(sentences, order, prune=prune).model
    for each in range(1, order + 1):
        expected, found = probabilities(theirs, each), probabilities(ours, each)
        assert found.keys() == expected.keys()
        for words, values in found.items():
            assert np.log10(values) == pytest.approx(np.log10(expected[words]), abs=2e-6)
