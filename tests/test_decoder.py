"""language.decoder: the score and its maximum against all texts that there are, and TensorFlow's
beam search where nothing is asked for."""

import concurrent.futures
import itertools
import math

import numpy as np
import pytest

from helpers import run_graph
from util import config as settings, errors, text
from util.language import arpa, decoder as decoders
from util.language.decoder import LanguageSettings
from util.tf1 import tf

pytest.importorskip('flashlight.lib.text', reason='flashlight-text is not installed')

ALPHABET = text.Alphabet(' ab')
N_STEPS, LN_10 = 5, math.log(10)
WORDS = ('a', 'ab', 'ba')
MODEL = """\
\\data\\
ngram 1=6
ngram 2=6

\\1-grams:
-1.5\t<unk>\t0
0\t<s>\t-0.4
-0.9\t</s>\t0
-0.5\ta\t-0.3
-0.8\tab\t-0.2
-1.1\tba\t-0.6

\\2-grams:
-0.2\t<s> ab
-0.6\ta a
-0.1\tab ba
-0.3\tba </s>
-0.9\tba ab
-0.4\ta </s>

\\end\\
"""
GRAMMAR = '<utterance> = (a | ba){1,2} ab?;\n'
WIDE = 5000  # paths: more than there are, so that the search is complete


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """{name: path} of a language model, of its words, and of a grammar."""
    folder = tmp_path_factory.mktemp('language')
    found = {'lm': MODEL, 'lexicon': '\n'.join(WORDS), 'grammar': GRAMMAR}
    for name, content in found.items():
        (folder / name).write_text(content)
    return {name: str(folder / name) for name in found}


def logits_of(seed, n_steps=N_STEPS, alphabet=ALPHABET):
    """Random logits, float32 [n_steps, n_character]."""
    values = np.random.RandomState(seed).normal(scale=2, size=(n_steps, alphabet.n_character))
    return values.astype(np.float32)


def all_texts(logits, alphabet=ALPHABET):
    """{text: ln P(text | x)}, by going through all paths."""
    values = logits.astype(np.float64)
    log_probs = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
    found = {}
    for path in itertools.product(range(alphabet.n_character), repeat=len(logits)):
        merged = [label for label, _ in itertools.groupby(path)]
        words = alphabet.decode(label for label in merged if label != alphabet.blank)
        score = sum(log_probs[t, label] for t, label in enumerate(path))
        found[words] = np.logaddexp(found.get(words, -np.inf), score)
    return found


def in_grammar(words):
    """Tells whether GRAMMAR allows the words; written anew."""
    rest = words[:-1] if words[-1:] == ['ab'] else words
    return 1 <= len(rest) <= 2 and set(rest) <= {'a', 'ba'}


def best_of_all(logits, lm=None, alpha=0.0, beta=0.0, grammar=False, unknown=None, words_of=None):
    """(Q, text) of the best of all texts.

    Args:
      unknown: what a word outside of WORDS adds; None: it is not allowed.
    """
    scorer = arpa.Scorer(arpa.read(lm)) if lm else None
    scored = []
    for sentence, score in all_texts(logits).items():
        words = sentence.split(' ') if sentence else []
        outside = [word for word in words if word not in WORDS]
        if '' in words or (outside and unknown is None) or (grammar and not in_grammar(words)):
            continue
        score += beta * len(words) + len(outside) * (unknown or 0.0)
        if scorer:
            score += alpha * LN_10 * scorer.sentence(words)
        scored.append((score, sentence))
    return max(scored)


@pytest.mark.parametrize(
    ('wanted', 'values'),
    [
        ({'lexicon': True, 'beta': 0.0}, {}),
        ({'lexicon': True, 'beta': 1.5}, {'beta': 1.5}),
        ({'lm': True, 'alpha': 0.7, 'beta': 0.5}, {'alpha': 0.7, 'beta': 0.5}),
        ({'lm': True, 'alpha': 2.0, 'beta': -1.0}, {'alpha': 2.0, 'beta': -1.0}),
        ({'grammar': True}, {'grammar': True}),
        (
            {'grammar': True, 'lm': True, 'alpha': 1.1, 'beta': 0.3},
            {'grammar': True, 'alpha': 1.1, 'beta': 0.3},
        ),
        (
            {'lm': True, 'alpha': 0.8, 'beta': 1.0, 'unknown': '-2'},
            {'alpha': 0.8, 'beta': 1.0, 'unknown': -2.0},
        ),
        ({'lexicon': True, 'beta': 1.0, 'unknown': 'spell'}, {'beta': 1.0, 'unknown': 0.0}),
    ],
)
def test_the_best_of_all_texts_is_found_and_its_score_is_exact(files, wanted, values):
    paths = {name: files[name] for name in files if wanted.get(name)}
    options = {**{k: v for k, v in wanted.items() if k not in files}, **paths}
    decoder = decoders.make_decoder(LanguageSettings(**options, beam_width=WIDE), ALPHABET)
    texts = set()
    for seed in range(6):
        logits = logits_of(seed)
        score, expected = best_of_all(logits, paths.get('lm'), **values)
        found = decoder.search(logits)
        assert found.text == expected, seed
        assert found.score == pytest.approx(score, abs=1e-5)
        texts.add(found.text)
    assert len(texts) > 1


def test_the_language_model_is_asked_as_kenlm_is(files):
    kenlm = pytest.importorskip('kenlm', reason='kenlm is not installed')
    with settings.silenced_stderr():
        model = kenlm.Model(files['lm'])
    wanted = LanguageSettings(files['lm'], 0.7, 0.5, beam_width=WIDE)
    found = decoders.make_decoder(wanted, ALPHABET).search(logits_of(3))
    of_words = 0.7 * LN_10 * model.score(found.text) + 0.5 * len(found.text.split())
    assert found.score == pytest.approx(all_texts(logits_of(3))[found.text] + of_words, abs=1e-5)


def plain_text(logits, alphabet, beam_width):
    """Text of TensorFlow's beam search."""

    def build():
        return tf.nn.ctc_beam_search_decoder(
            tf.constant(logits[:, None]), [len(logits)], beam_width, 1, merge_repeated=False
        )

    (labels,), score = run_graph(build)
    return alphabet.decode(labels.values), score[0, 0]


def test_without_weights_and_lexicon_it_is_the_plain_beam_search(files):
    wanted = LanguageSettings(files['lm'], 0.0, 0.0, unknown='spell', beam_width=4)
    decoder = decoders.make_decoder(wanted, ALPHABET)
    for seed in range(3):
        logits = logits_of(seed, n_steps=11)
        expected, score = plain_text(logits, ALPHABET, 4)
        assert decoder.search(logits) == (expected, pytest.approx(score))


def test_the_search_without_a_lexicon_finds_the_text_of_the_plain_one(files):
    # a weight so small that it decides nothing keeps the search from being left to TensorFlow
    wanted = LanguageSettings(files['lm'], 0.0, 1e-9, unknown='spell', beam_width=200)
    alphabet = text.Alphabet('ab c'.replace(' ', ''))  # in which each character is a word
    decoder = decoders.make_decoder(wanted, alphabet)
    for seed in range(3):
        logits = logits_of(seed, 7, alphabet)
        assert decoder.search(logits).text == plain_text(logits, alphabet, 2000)[0]


def test_other_weights_share_the_model(files):
    wanted = LanguageSettings(files['lm'], 0.7, 0.5, beam_width=WIDE)
    decoder = decoders.make_decoder(wanted, ALPHABET)
    other = decoders.make_decoder(wanted._replace(alpha=2.0, beta=-1.0), ALPHABET)
    logits = logits_of(4)
    assert decoder.with_weights(2.0, -1.0).search(logits) == other.search(logits)
    assert decoder.search(logits) != other.search(logits)


@pytest.mark.parametrize('kind', ('lm', 'grammar', 'spell'))
def test_threads_share_a_decoder(files, kind):
    wanted = {
        'lm': LanguageSettings(files['lm']),
        'grammar': LanguageSettings(files['lm'], grammar=files['grammar']),
        'spell': LanguageSettings(files['lm'], unknown='-1'),
    }[kind]
    decoder = decoders.make_decoder(wanted, ALPHABET)
    many = [logits_of(seed, n_steps=11) for seed in range(12)]
    expected = [decoder.search(logits) for logits in many]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(decoder.search, many)) == expected


def test_words_of_the_model_may_be_written_in_upper_case(files, tmp_path):
    upper = MODEL
    for word in WORDS[::-1]:
        upper = upper.replace('\t%s' % word, '\t%s' % word.upper())
        upper = upper.replace(' %s\n' % word, ' %s\n' % word.upper())
        upper = upper.replace('%s ' % word, '%s ' % word.upper())
    path = tmp_path / 'upper.arpa'
    path.write_text(upper)
    logits = logits_of(2)
    expected = decoders.make_decoder(LanguageSettings(files['lm']), ALPHABET).search(logits)
    for lexicon in ('', files['lexicon']):
        wanted = LanguageSettings(str(path), lexicon=lexicon)
        assert decoders.make_decoder(wanted, ALPHABET).search(logits) == expected


def test_nothing_that_is_allowed_is_no_text(tmp_path):
    path = tmp_path / 'grammar'
    path.write_text('ab ab ab ab')  # needs 11 steps
    decoder = decoders.make_decoder(LanguageSettings(grammar=str(path)), ALPHABET)
    assert decoder.search(logits_of(0)) == ('', -math.inf)
    assert decoder.search(logits_of(0, n_steps=11)).text == 'ab ab ab ab'


def test_words_that_the_model_lacks_count_as_unknown(files, tmp_path, caplog):
    path = tmp_path / 'words'
    path.write_text('# two\n\na\nbb\n')
    wanted = LanguageSettings(files['lm'], 1.0, 0.0, str(path), beam_width=WIDE)
    decoder = decoders.make_decoder(wanted, ALPHABET)
    assert "does not have 1 of 2 words, such as 'bb'" in caplog.text
    logits = np.full((N_STEPS, 4), -20, np.float32)
    logits[np.arange(N_STEPS), [2, 2, 3, 2, 3]] = 0.0  # b b - b -
    # ln 10 (-0.4 - 1.5 - 0.9): backoff of <s>, <unk>, and the end after it
    assert decoder.search(logits) == ('bb', pytest.approx(LN_10 * -2.8, abs=1e-4))


@pytest.mark.parametrize(
    ('values', 'error', 'words'),
    [
        ({'lm': 'none'}, errors.LanguageError, 'ds_lm: cannot read none: No such file'),
        ({'lexicon': 'none'}, errors.LanguageError, 'ds_lm_lexicon: cannot read none'),
        ({'grammar': 'none'}, errors.LanguageError, 'ds_lm_grammar: cannot read none'),
        ({'lm': 'lexicon'}, errors.LanguageError, 'is neither an ARPA file'),
        ({'lexicon': 'lexicon', 'unknown': 'x'}, errors.ConfigError, "such as -5, got 'x'"),
        ({'lexicon': 'lexicon', 'unknown': 'inf'}, errors.ConfigError, 'ds_lm_unknown must be'),
        (
            {'lexicon': 'lexicon', 'grammar': 'grammar'},
            errors.ConfigError,
            'ds_lm_lexicon has no use',
        ),
        ({'grammar': 'grammar', 'unknown': 'spell'}, errors.ConfigError, 'must be never with'),
    ],
)
def test_settings_that_cannot_be_used(files, values, error, words):
    values = {name: files.get(value, value) for name, value in values.items()}
    with pytest.raises(error, match=words) as caught:
        decoders.make_decoder(LanguageSettings(**values), ALPHABET)
    assert '\n' not in str(caught.value)


def test_a_missing_package_is_named(files, monkeypatch):
    monkeypatch.setitem(__import__('sys').modules, 'flashlight.lib.text', None)
    with pytest.raises(errors.LanguageError, match='needs flashlight-text: pip install'):
        decoders.make_decoder(LanguageSettings(lexicon=files['lexicon']), ALPHABET)


def test_settings_of_a_config():
    config = settings.load({'ds_importer': 'csv'})[0]
    assert decoders.of_config(config) is None
    config = settings.load({'ds_importer': 'csv', 'ds_lm_lexicon': 'words'})[0]
    assert decoders.of_config(config) == LanguageSettings(lexicon='words', beta=0.0)
    config = settings.load({'ds_importer': 'csv', 'ds_lm': 'x.arpa', 'ds_lm_alpha': '0.5'})[0]
    found = decoders.of_config(config)
    assert found == LanguageSettings('x.arpa', 0.5, settings.LM_BETA)
