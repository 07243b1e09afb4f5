"""`build_lm`: what it reads, what it leaves out, what it says and writes."""

import gzip
import io
import json

import pytest

from helpers import write_manifest
from util.language import arpa
from util.tools import build_lm

TEXT = 'one two\nTwo, three!\n\none\n'


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """A function that runs the command line in tmp_path and returns (exit status, standard output,
    standard error)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = build_lm.main([str(each) for each in arguments])
        return status, *capsys.readouterr()

    return run


def ngrams(path, order):
    """Returns the n-grams of an order of an ARPA file as a set of texts."""
    model = arpa.read(str(path))
    return {
        ' '.join(model.vocabulary[i] for i in words)
        for words in model.orders[order - 1].words.tolist()
    }


def test_a_text_becomes_a_model(run, tmp_path):
    (tmp_path / 'a.txt').write_text(TEXT)
    status, output, error = run('a.txt', 'a.arpa', '--order', 2)
    assert (status, error) == (0, '')
    assert output == (
        '2-grams: the text is too small to estimate the discounts; taken: 0.5 1 1.5\n'
        'a.arpa: 3 sentences, 5 words (3 different)\n'
        '      6 1-grams, discounts 0.5000 0.5000 3.0000\n'
        '      7 2-grams, discounts 0.5000 1.0000 1.5000\n'
    )
    assert arpa.unigrams('a.arpa') == ['one', 'two', 'three']
    # as it would be upper case and punctuation taken away
    assert ngrams('a.arpa', 2) == {
        *('<s> one', '<s> two', 'one two', 'two three'),
        *('one </s>', 'two </s>', 'three </s>'),
    }


def test_texts_manifests_and_the_standard_input_are_read_together(run, tmp_path, monkeypatch):
    (tmp_path / 'a.txt.gz').write_bytes(gzip.compress(b'\xef\xbb\xbfa text\r\n'))
    write_manifest('b.csv', [('b.wav', 'of a manifest'), ('c.wav', '')])
    (tmp_path / 'c.jsonl').write_text(json.dumps({'audio_filepath': 'x.wav', 'text': 'json'}))
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO('wörds\n'.encode())))
    status, output, _ = run('a.txt.gz', 'b.csv', 'c.jsonl', '-', 'd.arpa.gz')
    assert status == 0
    assert 'd.arpa.gz: 4 sentences, 7 words (6 different)' in output
    assert ngrams('d.arpa.gz', 3) == {
        *('<s> a text', 'a text </s>'),
        *('<s> of a', 'of a manifest', 'a manifest </s>'),
        *('<s> json </s>', '<s> words </s>'),
    }


def test_transcriptions_of_sphinxtrain(run, tmp_path):
    lines = ['<s> HELLO </s> (an1-a)', 'GO ++um++ ON(2) (x/an2-b)', 'really (yes)', '<s> SO </s>']
    (tmp_path / 'a.transcription').write_text('\n'.join(lines))
    status, output, _ = run('a.transcription', 'a.arpa')
    assert 'left out: 1 sentences' in output and status == 0  # brackets are no punctuation
    assert ngrams('a.arpa', 3) == {'<s> hello </s>', '<s> go on', 'go on </s>', '<s> so </s>'}


def test_sentences_outside_the_alphabet_are_left_out_and_reported(run, tmp_path):
    (tmp_path / 'a.txt').write_text('good\n4 you\n2 and 4\nжук\n', encoding='utf-8')
    status, output, _ = run('a.txt', 'a.arpa')
    assert status == 0
    assert output.startswith(
        'left out: 3 sentences\n'
        "      2 character outside the alphabet: '4' (U+0034), as in a.txt line 2, a.txt line 3\n"
        "      1 character outside the alphabet: '2' (U+0032), as in a.txt line 3\n"
    )
    assert 'a.arpa: 1 sentences, 1 words (1 different)' in output
    (tmp_path / 'letters').write_text(' \nж\nу\nк\n', encoding='utf-8')
    assert run('a.txt', 'b.arpa', '--alphabet', 'letters')[0] == 0
    assert arpa.unigrams('b.arpa') == ['жук']


def test_vocabulary_pruning_discounts_and_perplexity(run, tmp_path):
    (tmp_path / 'a.txt').write_text('a b\na b\na c\n')
    (tmp_path / 'words').write_text('A\nb\nd\n')
    options = ['--order', 2, '--vocabulary', 'words', '--prune', 0, 1]
    options += ['--discount-fallback', 0.25, 0.5, 0.75, '--perplexity', 'a.txt']
    status, output, _ = run('a.txt', 'a.arpa', *options)
    assert status == 0
    assert set(arpa.unigrams('a.arpa')) == {'a', 'b', 'd'}
    assert ngrams('a.arpa', 2) == {'<s> a', 'a b', 'b </s>'}
    assert '1-grams, discounts 0.2500 0.5000 0.7500' in output
    scorer = arpa.Scorer(arpa.read('a.arpa'))
    total = 2 * scorer.sentence(['a', 'b']) + scorer.sentence(['a', 'c'])
    line = 'perplexity of a.txt: %.2f (6 words, 1 of them unknown; 3 sentences)'
    assert line % 10 ** (-total / 9) in output.splitlines()


def test_without_a_space_in_the_alphabet_each_character_is_a_word(run, tmp_path):
    (tmp_path / 'a.txt').write_text('ab\nb a\n')
    (tmp_path / 'letters').write_text('a\nb\n')
    assert run('a.txt', 'a.arpa', '--alphabet', 'letters', '--order', 2)[0] == 0
    assert ngrams('a.arpa', 2) == {'<s> a', '<s> b', 'a b', 'b a', 'a </s>', 'b </s>'}


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (('a.txt', 'b.txt'), 'OUT must end in .arpa or .arpa.gz, got b.txt'),
        (('none.txt', 'b.arpa'), 'none.txt cannot be read: No such file or directory'),
        (('latin.txt', 'b.arpa'), 'latin.txt line 2 is not text in UTF-8'),
        (('none.csv', 'b.arpa'), 'manifest none.csv cannot be read'),
        (('plain.gz', 'b.arpa'), 'plain.gz cannot be read'),
        (('empty.txt', 'b.arpa'), 'the text has no sentence, expected at least one'),
        (('a.txt', 'no/b.arpa'), 'no/b.arpa cannot be written: No such file'),
        (('a.txt', 'b.arpa', '--alphabet', 'none'), 'cannot read none'),
        (('a.txt', 'b.arpa', '--prune', '1'), 'prune: expected'),
        (('a.txt', 'b.arpa', '--vocabulary', 'none'), '--vocabulary: cannot read none: No such'),
        (
            ('a.txt', 'b.arpa', '--vocabulary', 'empty.txt'),
            '--vocabulary: empty.txt has no word of the alphabet',
        ),
    ],
)
def test_bad_input_gets_one_line(run, tmp_path, arguments, message):
    (tmp_path / 'a.txt').write_text(TEXT)
    (tmp_path / 'b.txt').write_text('kept')
    (tmp_path / 'empty.txt').write_text('\n')
    (tmp_path / 'plain.gz').write_text('text')
    (tmp_path / 'latin.txt').write_bytes(b'good\n\xfc\n')
    status, _, error = run(*arguments)
    assert status == 1
    assert error.startswith('error: ') and error.count('\n') == 1
    assert message in error
    assert (tmp_path / 'b.txt').read_text() == 'kept'
    assert not (tmp_path / 'b.arpa').exists()


def test_options_between_texts_and_a_wrong_order(run, tmp_path, capsys):
    (tmp_path / 'a.txt').write_text(TEXT)
    assert run('a.txt', '--order', 2, 'a.txt', 'a.arpa')[0] == 0
    assert len(arpa.read('a.arpa').orders) == 2
    for order in ('1', 'x', '7'):
        with pytest.raises(SystemExit):
            run('a.txt', 'a.arpa', '--order', order)
        assert 'argument --order' in capsys.readouterr().err
