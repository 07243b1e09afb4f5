"""`tune_lm`: the weights that are tried, the best of them, what is printed and drawn."""

from typing import NamedTuple

import numpy as np
import pytest

from util import errors, text
from util.language import arpa, kneser_ney
from util.tools import tune_lm, tune_lm_table
from util.tools.tune_lm_table import Table

ALPHABET = text.Alphabet()


def rates(n_errors, n_words=8):
    """Returns ErrorRates with so many substitutions."""
    return text.ErrorRates(n_errors / n_words, n_errors / 50, n_words, 0, 0, n_errors)


def table_of(counts, alphas=(0, 0.5, 1), betas=(-1, 0, 1, 2)):
    """Returns a Table with these word errors, a row for each alpha."""
    found = [[rates(count) for count in row] for row in counts]
    return Table(list(alphas), list(betas), found, rates(7), 3)


COUNTS = [[6, 5, 4, 4], [5, 1, 4, 4], [5, 4, 1, 1]]


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        ('0:1:0.25', [0, 0.25, 0.5, 0.75, 1]),
        ('-1:1.1:0.7', [-1, -0.3, 0.4, 1.1]),
        ('0:0.3:0.1', [0, 0.1, 0.2, 0.3]),
        ('2,-1,0.5,2', [-1, 0.5, 2]),
        ('-0', [0]),
    ],
)
def test_weights(value, expected):
    assert tune_lm.weights(value) == expected


@pytest.mark.parametrize(
    'value', ('', 'x', '1:0:1', '0:1:0', '0:1:-1', '0:1', '0:1e9:1', 'nan', '0,inf', '0:inf:1')
)
def test_weights_that_cannot_be_used(value, capsys):
    with pytest.raises(ValueError):
        tune_lm.weights(value)
    with pytest.raises(SystemExit):
        tune_lm.main(['model', '--alphas=' + value])
    assert 'argument --alphas: invalid weights value' in capsys.readouterr().err


def test_the_best_of_equal_pairs_has_the_smallest_weights():
    assert tune_lm_table.best(table_of(COUNTS))[:2] == (0.5, 0)
    counts = [[1, 1, 2, 2], [5, 5, 5, 5], [5, 1, 5, 5]]
    assert tune_lm_table.best(table_of(counts))[:2] == (0, 0)
    counts = [[1, 2, 1, 2], [2, 2, 2, 2], [2, 1, 2, 2]]  # the weights -1, 1 and 1 are as small
    assert tune_lm_table.best(table_of(counts))[:2] == (0, -1)


def test_the_report_has_the_table_the_best_pair_and_the_settings():
    assert list(tune_lm_table.report(table_of(COUNTS), 'ds_lm=a.arpa')) == [
        '3 utterances; WER in %:',
        '',
        '   alpha  beta -1   beta 0   beta 1   beta 2',
        '       0   75.00    62.50    50.00    50.00',
        '     0.5   62.50    12.50*   50.00    50.00',
        '       1   62.50    50.00    12.50    12.50',
        '',
        'without: WER 87.50% [7/8: 0 ins, 0 del, 7 sub], CER 14.00%',
        'best:    WER 12.50% [1/8: 0 ins, 0 del, 1 sub], CER 2.00%, alpha 0.5, beta 0',
        'settings: ds_lm=a.arpa ds_lm_alpha=0.5 ds_lm_beta=0',
        'options:  --lm-alpha 0.5 --lm-beta 0',
    ]


def test_a_best_pair_at_the_edge_is_remarked_upon():
    def remarks(counts, **weights):
        lines = tune_lm_table.report(table_of(counts, **weights), '')
        return [line.strip() for line in lines if 'edge' in line]

    last = [[6, 5, 4, 4], [5, 5, 4, 4], [5, 4, 4, 1]]
    assert remarks(last) == [
        'alpha 1 is at the edge of the table; try larger alphas',
        'beta 2 is at the edge of the table; try larger betas',
    ]
    first = [[1, 5, 5, 5], [5, 5, 5, 5], [5, 5, 5, 5]]
    assert remarks(first) == ['beta -1 is at the edge of the table; try smaller betas']
    assert remarks([[2] * 4] * 3) == []
    assert remarks([[3, 1, 2, 2]], alphas=[0]) == []


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip('matplotlib', reason='matplotlib is not installed')
    path = tmp_path / 'table.png'
    tune_lm_table.draw(table_of(COUNTS), str(path))
    assert path.read_bytes().startswith(b'\x89PNG')
    for name in ('table.none', 'no/table.png'):
        with pytest.raises(errors.DeepSpeechError, match='%s cannot be written' % name):
            tune_lm_table.draw(table_of(COUNTS), str(tmp_path / name))


class Found(NamedTuple):
    """What a Decoder finds."""

    text: str


class StandIn:
    """A decoder whose texts say what it was asked for."""

    def __init__(self, weights=None):
        self.weights = weights

    def with_weights(self, alpha, beta):
        return StandIn((alpha, beta))

    def search(self, logits):
        return Found('%g %g %d' % (*self.weights, len(logits)))


def test_every_utterance_is_decoded_with_every_pair():
    from util.tools.tune_lm_decoding import Decoding

    logits, done = [np.zeros((n, 29), np.float32) for n in (5, 3)], []
    decoding = Decoding(StandIn(), None, ALPHABET, logits, 1)
    texts = list(decoding.texts([(0, 1), (0.5, -1)], done.append))
    assert texts == [['0 1 5', '0 1 3'], ['0.5 -1 5', '0.5 -1 3']]
    assert sum(done) == 4


def made_logits(words, seed):
    """Returns logits float32 [n_steps, 29] that are rather sure of some words."""
    labels = [label for each in ALPHABET.encode(words) for label in (ALPHABET.blank, each)]
    logits = np.random.default_rng(seed).normal(0, 0.5, (len(labels), 29)).astype(np.float32)
    logits[np.arange(len(labels)), labels] += 5
    return logits


@pytest.fixture
def model_file(tmp_path):
    """Path of a small language model."""
    pytest.importorskip('flashlight.lib.text', reason='flashlight-text is not installed')
    read = kneser_ney.read_text([['one', 'two'], ['two', 'one', 'two'], ['one']])
    path = str(tmp_path / 'small.arpa')
    arpa.write(path, kneser_ney.estimate(read, 2).model)
    return path


@pytest.mark.run
def test_several_processes_find_what_one_does(model_file, monkeypatch):
    from util.language import decoder as decoders
    from util.tools import tune_lm_decoding

    wanted = decoders.LanguageSettings(lm=model_file)
    decoder = decoders.make_decoder(wanted, ALPHABET)
    logits = [made_logits(words, i) for i, words in enumerate(('one', 'two one', 'one two two'))]
    pairs = [(0, 0), (1, 0.5), (2, -1)]
    one = list(tune_lm_decoding.Decoding(decoder, wanted, ALPHABET, logits, 1).texts(pairs))
    monkeypatch.setattr(tune_lm_decoding, 'PROCESSES_FROM_S', -1)
    decoding = tune_lm_decoding.Decoding(decoder, wanted, ALPHABET, logits, 2)
    assert list(decoding.texts(pairs)) == one
    assert one[0] == ['one', 'two one', 'one two two']


@pytest.mark.run
def test_a_process_that_fails_gets_one_line(model_file, monkeypatch, tmp_path):
    from util.language import decoder as decoders
    from util.tools import tune_lm_decoding

    monkeypatch.setattr(tune_lm_decoding, 'PROCESSES_FROM_S', -1)
    gone = decoders.LanguageSettings(lm=str(tmp_path / 'none.arpa'))
    logits = [made_logits('one', 0)]
    decoding = tune_lm_decoding.Decoding(StandIn(), gone, ALPHABET, logits, 2)
    with pytest.raises(errors.DeepSpeechError, match='a process that decodes has ended'):
        list(decoding.texts([(0, 0), (1, 0)]))


@pytest.mark.run
def test_the_whole_command(finished, model_file, tmp_path, monkeypatch, capsys):
    folder = finished[0]
    monkeypatch.chdir(folder)
    arguments = ['--lm', model_file, '--alphas', '0,1', '--betas=-1,1', '--lm-beam-width', '20']
    assert (
        tune_lm.main(['export', 'dev.csv', *arguments, '--picture', str(tmp_path / 'a.png')]) == 0
    )
    output = capsys.readouterr().out
    lines = output.splitlines()
    assert lines[0] == '2 utterances; WER in %:'
    assert [line.split() for line in lines[2:3]] == [['alpha', 'beta', '-1', 'beta', '1']]
    assert [line.split()[0] for line in lines[3:5]] == ['0', '1']
    assert 'without: WER' in output and 'best:    WER' in output
    assert 'settings: ds_lm=%s ds_lm_beam_width=20 ds_lm_alpha=' % model_file in output
    assert lines[-1] == 'picture: %s' % (tmp_path / 'a.png')
    # the dev set of the settings is the same one, and so is the language model's setting
    for name, value in (
        ('importer', 'csv'),
        ('dev_files', 'dev.csv'),
        ('train_files', 'train.csv'),
    ):
        monkeypatch.setenv('ds_' + name, value)
    monkeypatch.setenv('ds_cache_dir', str(tmp_path / 'cache'))
    monkeypatch.setenv('ds_lm', model_file)
    monkeypatch.setenv('ds_lm_beam_width', '20')
    assert tune_lm.main(['export', *arguments[2:5]]) == 0
    again = capsys.readouterr().out.splitlines()
    assert again[: len(lines) - 1] == lines[:-1]


@pytest.mark.run
def test_utterances_that_cannot_be_used_are_named(
    finished, model_file, tmp_path, monkeypatch, capsys
):
    folder = finished[0]
    monkeypatch.chdir(folder)
    rows = [
        'wav_filename,transcript',
        'none.wav,one',
        '%s/wav/good5.wav,one two' % folder,
        '%s/wav/good5.wav,4' % folder,
        '%s/wav/good5.wav,%s' % (folder, 'too long ' * 99),
    ]
    manifest = tmp_path / 'some.csv'
    manifest.write_text('\n'.join(rows))
    arguments = ['--lm', model_file, '--alphas', '1', '--betas', '0']
    assert tune_lm.main(['export', str(manifest), *arguments]) == 0
    output, error = capsys.readouterr()
    assert output.startswith('1 utterances')
    assert error.count('left out: ') == 3
    for reason in ('No such file', 'outside the alphabet', 'too short for its transcript'):
        assert reason in error
    manifest.write_text('\n'.join(rows[:2]))
    assert tune_lm.main(['export', str(manifest), *arguments]) == 1
    assert 'error: no usable utterance with a transcript is left' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['model', 'a.wav', '--lm', 'a.arpa'], 'MANIFEST must end in .csv or .json or .jsonl, got'),
        (
            ['model', 'a.csv', '--lm-beam-width', '9'],
            '--lm-beam-width has no use without --lm, --le',
        ),
        (['model', 'a.csv', '--alphas=-1,0'], '--alphas must be at least 0, got -1'),
        (['model', 'a.csv'], 'expected --lm, --lexicon or --grammar: there is nothing to tune'),
        (['none', 'a.csv', '--lm', 'a.arpa'], 'there is no none; a model is'),
    ],
)
def test_options_that_cannot_be_used(arguments, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert tune_lm.main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith('error: ' + message)
    assert error.count('\n') == 1
