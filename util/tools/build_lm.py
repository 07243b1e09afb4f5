"""Builds an n-gram language model of texts.

    python -m util.tools.build_lm train.csv more.txt digits.arpa --order 3

TEXT is a text file with a sentence a line (also gzipped), a manifest (.csv, .json, .jsonl), whose
transcripts are taken, or - for the standard input. In lines as SphinxTrain writes them, such as
"<s> hello </s> (id)", only the words count. Sentences are mapped to the alphabet as transcripts
are in training: upper case is lowered, accents and punctuation are dropped. A sentence with other
characters outside the alphabet, such as digits, is left out and reported.

OUT is an ARPA file; its name ends in .arpa or, compressed, in .arpa.gz. The smoothing is
interpolated modified Kneser-Ney, as in KenLM's lmplz. One million words take about 6 s and 0.8 GB,
most of it for loading TensorFlow; lmplz is for texts that do not fit into memory.
"""

import argparse
import pathlib
import sys

if not __package__:  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from util import errors, log as run_log
from util.run import command

ENDINGS = ('.arpa', '.arpa.gz')  # of the output, so that no text is overwritten by mistake
ORDERS = range(2, 7)  # those that KenLM reads


def main(arguments: list[str]) -> int:
    """Runs the command line.

    Returns:
      The exit status: 0, or 1 after an error.
    """
    options = _parse(arguments)
    run_log.set_up_logging()
    try:
        for line in _build(options):
            print(line, flush=True)
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    return 0


def _parse(arguments):
    """Returns the options of the command line; ends the program if they are wrong."""
    parser = argparse.ArgumentParser(
        prog='python -m util.tools.build_lm',
        description='Builds an n-gram language model of texts, by modified Kneser-Ney smoothing.',
    )
    parser.add_argument(
        'texts',
        metavar='TEXT',
        nargs='+',
        help='text file with a sentence a line, manifest, or - for the standard input',
    )
    parser.add_argument('out', metavar='OUT', help='ARPA file to write: .arpa or .arpa.gz')
    parser.add_argument(
        '--order',
        metavar='N',
        type=int,
        choices=ORDERS,
        default=3,
        help='words of the longest n-grams, from 2 to 6 (default: %(default)s)',
    )
    parser.add_argument(
        '--alphabet',
        metavar='FILE',
        default='',
        help='alphabet, a character a line (default: space, a to z, apostrophe)',
    )
    parser.add_argument(
        '--vocabulary',
        metavar='FILE',
        help='words of the model, one a line: n-grams with other words are left out, and words '
        'that the texts do not hold are as likely as an unknown one (default: those of the texts)',
    )
    parser.add_argument(
        '--prune',
        metavar='N',
        type=int,
        nargs='+',
        default=(),
        help='for each order from 1, leave out the n-grams that occur N times or less, such as '
        '"0 0 1"; the last number holds for the orders beyond',
    )
    parser.add_argument(
        '--discount-fallback',
        metavar='D',
        type=float,
        nargs=3,
        help='discounts of n-grams that count 1, 2, and 3 and more, for orders whose own cannot be '
        'estimated as the text is small (default: 0.5 1 1.5)',
    )
    parser.add_argument(
        '--perplexity',
        metavar='TEXT',
        nargs='+',
        default=(),
        help='other texts, such as the dev set, whose perplexity is printed',
    )
    return parser.parse_intermixed_args(arguments)


def _build(options):
    """Builds and writes the model; yields the lines of the report."""
    from util import text  # here, as they load TensorFlow, which --help can do without
    from util.language import arpa, kneser_ney
    from util.tools import lm_texts

    if not options.out.endswith(ENDINGS):
        raise errors.ConfigError('OUT must end in .arpa or .arpa.gz, got %s' % options.out)
    alphabet = text.load_alphabet(options.alphabet)
    vocabulary = options.vocabulary and lm_texts.read_vocabulary(options.vocabulary, alphabet)
    sentences = lm_texts.Sentences(options.texts, alphabet)
    read = kneser_ney.read_text(sentences, vocabulary or ())
    yield from sentences.report()
    found = kneser_ney.estimate(
        read,
        options.order,
        vocabulary=vocabulary,
        prune=options.prune,
        fallback=options.discount_fallback or kneser_ney.FALLBACK,
    )
    arpa.write(options.out, found.model)
    yield '%s: %d sentences, %d words (%d different)' % (
        options.out,
        found.n_sentences,
        found.n_words,
        found.n_types,
    )
    for order, ngrams in enumerate(found.model.orders, 1):
        yield '%7d %d-grams, discounts %.4f %.4f %.4f' % (
            len(ngrams.words),
            order,
            *found.discounts[order - 1],
        )
    if options.perplexity:
        others = lm_texts.Sentences(options.perplexity, alphabet)
        yield 'perplexity of %s: %s' % (
            ' '.join(options.perplexity),
            _perplexity(arpa.Scorer(found.model), others),
        )
        yield from others.report()


def _perplexity(scorer, sentences):
    """Returns the perplexity of sentences in words, where each sentence has an end that counts as a
    word, and the number of words that the model does not know."""
    total, n_words, n_unknown, n_sentences = 0.0, 0, 0, 0
    for words in sentences:
        total += scorer.sentence(words)
        n_words += len(words)
        n_sentences += 1
        n_unknown += sum(word not in scorer for word in words)
    if not n_sentences:
        return 'no sentence'
    return '%.2f (%d words, %d of them unknown; %d sentences)' % (
        10 ** (-total / (n_words + n_sentences)),
        n_words,
        n_unknown,
        n_sentences,
    )


if __name__ == '__main__':
    command.run(main)
