"""Finds the weights of a language model, alpha and beta, by the word error rate.

    python -m util.tools.tune_lm export dev.csv --lm digits.arpa

MODEL is a model as for `transcribe`; it must give logits. MANIFEST lists the utterances to tune
on, the dev set rather than the test set; without one, they are the dev set of the ds_ settings. The
network recognises them once. Then they are decoded with each pair of weights, by the score

    log P(text | audio) + alpha log P_lm(text) + beta words,

and a table of the WER is printed, and the best pair; of equal ones it is that of the smallest
weights.
"""

import argparse
import math
import os
import pathlib
import sys

if not __package__:  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from util import errors
from util.run import command
from util.tools import language_options

ALPHAS, BETAS = '0:3:0.5', '-1:6:1'
MAX_WEIGHTS = 50  # values of one weight
BATCH_SIZE = 16


def main(arguments: list[str]) -> int:
    """Runs the command line.

    Returns:
      The exit status: 0, or 1 after an error.
    """
    options = _parse(arguments)
    try:
        from util.tools import tune_lm_search  # here, as --help can do without TensorFlow

        tune_lm_search.run(options)
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    return 0


def _parse(arguments):
    """Returns the options of the command line; ends the program if they are wrong."""
    parser = argparse.ArgumentParser(
        prog='python -m util.tools.tune_lm',
        description='Finds the weights of a language model by the word error rate.',
        epilog='WEIGHTS are numbers with commas between, or FIRST:LAST:STEP; write --betas=-1,0,1 '
        'if the first one is negative.',
    )
    parser.add_argument('model', metavar='MODEL', help='model, as for transcribe')
    parser.add_argument(
        'manifests',
        metavar='MANIFEST',
        nargs='*',
        help='manifest of the utterances (default: the dev set of the ds_ settings)',
    )
    for name, default in (('alphas', ALPHAS), ('betas', BETAS)):
        parser.add_argument(
            '--' + name,
            metavar='WEIGHTS',
            type=weights,
            default=default,
            help='the %s to try (default: %%(default)s)' % name,
        )
    parser.add_argument('--picture', metavar='FILE', help='file for a picture of the table, a PNG')
    parser.add_argument(
        '--limit',
        metavar='N',
        type=language_options.positive,
        help='use the first N utterances (default: all)',
    )
    parser.add_argument(
        '--batch-size',
        metavar='N',
        type=language_options.positive,
        default=BATCH_SIZE,
        help='utterances that the network recognises together (default: %(default)s)',
    )
    parser.add_argument(
        '--jobs',
        metavar='N',
        type=language_options.positive,
        default=os.cpu_count() or 1,
        help='processes that decode, if it takes long (default: one for each core)',
    )
    parser.add_argument(
        '--config', metavar='FILE', help='settings of the training, in place of ds_* variables'
    )
    language_options.add_to(parser, weights=False)
    return parser.parse_args(arguments)


def weights(value: str) -> list[float]:
    """Returns the numbers of an option, in rising order.

    Args:
      value: numbers with commas between, or first:last:step.
    Raises:
      ValueError: they are not finite numbers, or too many.
    """
    if ':' in value:
        first, last, step = map(float, value.split(':'))
        if not (step > 0 and 0 <= (last - first) / step < MAX_WEIGHTS):  # nor is NaN or infinity
            raise ValueError
        found = [first + i * step for i in range(math.floor((last - first) / step + 1e-6) + 1)]
    else:
        found = [float(each) for each in value.split(',')]
    if not all(map(math.isfinite, found)) or len(found) > MAX_WEIGHTS:
        raise ValueError
    return sorted({round(each, 6) + 0.0 for each in found})


weights.__name__ = 'weights'  # for argparse's message


if __name__ == '__main__':
    command.run(main)
