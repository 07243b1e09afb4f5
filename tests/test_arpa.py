"""ARPA files: reading, strict checks, writing, and the probabilities of sentences."""

import gzip

import numpy as np
import pytest

from util import errors
from util.language import arpa

SMALL = """\
# a comment
\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.0\t<unk>\t0
0\t<s>\t-0.3
-0.6\t</s>
-0.5\tone\t-0.2
-0.7\tzwölf\t-0.1

\\2-grams:
-0.1\t<s> one
-0.4\tone </s>
-0.25\tone zwölf

\\end\\
"""


def write_arpa(path, content=SMALL):
    """Writes an ARPA file, compressed if its name ends in .gz; returns its path as text."""
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == '.gz' else content)
    return str(path)


@pytest.fixture(params=('small.arpa', 'small.arpa.gz'))
def small(tmp_path, request):
    """Path of SMALL as a file, plain and compressed."""
    return write_arpa(tmp_path / request.param)


def test_unigrams_are_the_words_of_the_file_without_the_special_ones(small):
    assert arpa.unigrams(small) == ['one', 'zwölf']


def test_unigrams_do_not_read_what_follows_them(tmp_path):
    path = write_arpa(tmp_path / 'a.arpa', SMALL[: SMALL.index('-0.1\t<s>')] + 'nonsense')
    assert arpa.unigrams(path) == ['one', 'zwölf']
    with pytest.raises(errors.LanguageError):
        arpa.read(path)


def test_read_has_all_numbers_and_words(small):
    model = arpa.read(small)
    assert model.vocabulary == ['<unk>', '<s>', '</s>', 'one', 'zwölf']
    assert [ngrams.words.shape for ngrams in model.orders] == [(5, 1), (3, 2)]
    assert model.orders[0].backoffs.tolist() == [0, -0.3, 0, -0.2, -0.1]
    assert model.orders[1].words.tolist() == [[1, 3], [3, 2], [3, 4]]
    assert model.orders[1].log_probs.tolist() == [-0.1, -0.4, -0.25]


def test_what_is_written_is_read_again(tmp_path, small):
    model = arpa.read(small)
    for name in ('b.arpa', 'b.arpa.gz'):
        arpa.write(str(tmp_path / name), model)
        again = arpa.read(str(tmp_path / name))
        assert again.vocabulary == model.vocabulary
        for one, other in zip(model.orders, again.orders):
            for column, its in zip(one, other):
                np.testing.assert_array_equal(column, its)
    assert {path.name for path in tmp_path.iterdir()} >= {'b.arpa', 'b.arpa.gz'}
    assert not list(tmp_path.glob('*.tmp'))


def test_equal_models_make_equal_files(tmp_path):
    model = arpa.read(write_arpa(tmp_path / 'a.arpa'))
    for name in ('b.arpa.gz', 'c.arpa.gz'):
        arpa.write(str(tmp_path / name), model)
    assert (tmp_path / 'b.arpa.gz').read_bytes() == (tmp_path / 'c.arpa.gz').read_bytes()


def test_a_file_that_cannot_be_written_is_named_and_an_older_one_stays(tmp_path, monkeypatch):
    path = tmp_path / 'a.arpa'
    model = arpa.read(write_arpa(path))

    def no_space(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(arpa.os, 'replace', no_space)
    with pytest.raises(errors.LanguageError, match='a.arpa cannot be written: No space'):
        arpa.write(str(path), model)
    assert [each.name for each in tmp_path.iterdir()] == ['a.arpa']
    assert path.read_text(encoding='utf-8') == SMALL
    with pytest.raises(errors.LanguageError, match='nowhere/b.arpa cannot be written: No such'):
        arpa.write(str(tmp_path / 'nowhere' / 'b.arpa'), model)


def test_sentences_are_scored_with_backoff(tmp_path):
    scorer = arpa.Scorer(arpa.read(write_arpa(tmp_path / 'a.arpa')))
    # p(one|<s>) p(zwölf|one) b(zwölf) p(</s>)
    assert scorer.sentence(['one', 'zwölf']) == pytest.approx(-0.1 - 0.25 - 0.1 - 0.6)
    # b(<s>) p(<unk>), b(<unk>) p(one), p(</s>|one)
    assert scorer.sentence(['two', 'one']) == pytest.approx(-0.3 - 1.0 + 0 - 0.5 - 0.4)
    assert scorer.sentence([]) == pytest.approx(-0.3 - 0.6)
    assert 'zwölf' in scorer and 'two' not in scorer


def test_unknown_words_have_a_probability_in_models_without_unk(tmp_path):
    content = SMALL.replace('-1.0\t<unk>\t0\n', '').replace('1=5', '1=4')
    scorer = arpa.Scorer(arpa.read(write_arpa(tmp_path / 'a.arpa', content)))
    assert scorer.log_prob(['<s>'], 'two') == pytest.approx(-0.3 - 100)


@pytest.mark.parametrize(
    ('old', 'new', 'message'),
    [
        (SMALL, '', r'line 0: expected \\data\\, .* got the end of the file'),
        ('# a comment', 'a comment', r"line 1: expected \\data\\, .* got 'a comment'"),
        ('ngram 2=3', 'ngram 3=3', r"line 4: expected ngram 2=COUNT, got 'ngram 3=3'"),
        ('ngram 1=5\nngram 2=3', '', r'expected ngram 1=COUNT, got'),
        ('\\1-grams:', '1-grams', r"line 6: expected \\1-grams:, got '1-grams'"),
        ('1=5', '1=6', r"line 13: expected another of 6 1-grams, got '\\\\2-grams:'"),
        ('1=5', '1=4', r"line 11: expected \\2-grams: after 4 1-grams, got '-0.7"),
        ('2=3', '2=2', r"line 16: expected \\end\\ after 2 2-grams, got '-0.25"),
        ('-0.5\tone', 'x\tone', r'line 10: expected a log10 probability of at most 0, a word and'),
        ('-0.5\tone', '0.5\tone', r'line 10: expected a log10 probability of at most 0'),
        ('-0.5\tone', 'nan\tone', r'line 10: expected a log10 probability of at most 0'),
        ('one\t-0.2', 'one\tinf', r'line 10: expected .* perhaps a log10 backoff weight'),
        ('one\t-0.2', 'one\t0\t0', r'line 10: expected .* perhaps a log10 backoff weight'),
        ('<s> one', '<s> one\t0', r'line 14: expected .* at most 0, 2 words, got'),
        ('<s> one', '<s>', r'line 14: expected .* at most 0, 2 words, got'),
        ('<s> one', '<s> two', r"line 14: expected words that are among the unigrams, got 'two'"),
        ('-0.7\tzwölf', '-0.7\tone', r"the unigram 'one' is listed twice, expected once"),
        ('\\end\\', '', r'line \d+: expected \\end\\ after 3 2-grams, got the end of the file'),
        ('\\end\\', '\\end\\\nmore', r"line 19: expected nothing after \\end\\, got 'more'"),
    ],
)
def test_a_malformed_file_is_named_with_the_line(tmp_path, old, new, message):
    path = write_arpa(tmp_path / 'bad.arpa', SMALL.replace(old, new))
    with pytest.raises(errors.LanguageError, match=r'bad\.arpa.*' + message) as caught:
        arpa.read(path)
    assert '\n' not in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(errors.LanguageError, match='none.arpa cannot be read: No such file'):
        arpa.read(str(tmp_path / 'none.arpa'))
    with pytest.raises(errors.LanguageError, match='cannot be read'):
        arpa.unigrams(str(tmp_path))
    whole = gzip.compress(SMALL.encode() * 50)
    (tmp_path / 'cut.arpa.gz').write_bytes(whole[: len(whole) // 2])
    (tmp_path / 'plain.arpa.gz').write_bytes(SMALL.encode())
    for name in ('cut.arpa.gz', 'plain.arpa.gz'):
        with pytest.raises(errors.LanguageError, match=name + ' cannot be read'):
            arpa.read(str(tmp_path / name))
    latin = write_arpa(tmp_path / 'latin.arpa', SMALL.encode('latin-1'))
    with pytest.raises(errors.LanguageError, match='line 11: expected a word in UTF-8'):
        arpa.unigrams(latin)


def test_kenlm_reads_the_same(tmp_path):
    kenlm = pytest.importorskip('kenlm', reason='kenlm is not installed')
    model = arpa.read(write_arpa(tmp_path / 'a.arpa'))
    arpa.write(str(tmp_path / 'b.arpa'), model)
    scorer, other = arpa.Scorer(model), kenlm.Model(str(tmp_path / 'b.arpa'))
    for sentence in ('one', 'one zwölf one', 'two zwölf', ''):
        expected = other.score(sentence, bos=True, eos=True)
        assert scorer.sentence(sentence.split()) == pytest.approx(expected, abs=1e-5)
