"""Transcribes audio files with a trained model.

    python -m util.tools.transcribe export talk.flac clips/ > texts.tsv

MODEL is an exported model, a folder of checkpoints or one checkpoint, or a frozen graph of
DeepSpeech 0.1 or 0.9. FILE is an audio file in any format that training reads, a folder, of which
all audio files are taken, a manifest (.csv, .json, .jsonl), or - for one audio file from the
standard input. The text of each file goes to the standard output in the order of the files:

    talk.flac<TAB>the text

Of a manifest, the standard error gets the error rates as well. A recording of more than 20 s is
cut at its pauses; memory does not depend on its length. Each file that cannot be transcribed is
named on the standard error, and the exit status is then 1; the others are transcribed.
"""

import argparse
import pathlib
import sys

if not __package__:  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from util import errors
from util.run import command
from util.tools import language_options

BATCH_SIZE = 16
SUBTITLES = ('srt', 'vtt')
EPILOG = """\
--json writes an object a line: file, text, seconds (length of the audio), and words, each with
word, start and end in seconds, and confidence from 0 to 1. start, end and confidence are null if
the model gives no logits, as one exported by version 0.1.

--srt and --vtt write subtitles in place of the texts: to the standard output if FILE is one audio
file, otherwise beside each audio file under its name with the ending .srt or .vtt. An existing
file is not overwritten.
"""


def main(arguments: list[str]) -> int:
    """Runs the command line.

    Returns:
      The exit status: 0, or 1 if a file could not be transcribed or after another error.
    """
    options = _parse(arguments)
    try:
        from util.tools import transcribe_files  # here, as --help can do without TensorFlow

        return transcribe_files.run(options)
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1


def _parse(arguments):
    """Returns the options of the command line; ends the program if they are wrong."""
    parser = argparse.ArgumentParser(
        prog='python -m util.tools.transcribe',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description='Transcribes audio files with a trained model.',
        epilog=EPILOG,
    )
    parser.add_argument(
        'model',
        metavar='MODEL',
        help='exported model, folder of checkpoints, checkpoint, or frozen graph of DeepSpeech '
        '0.1 or 0.9',
    )
    parser.add_argument(
        'files',
        metavar='FILE',
        nargs='+',
        help='audio file, folder of audio files, manifest, or - for the standard input',
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument('--json', action='store_true', help='write words with times as JSON')
    for kind in SUBTITLES:
        form.add_argument(
            '--' + kind,
            dest='subtitles',
            action='store_const',
            const=kind,
            help='write subtitles as ' + {'srt': 'SubRip', 'vtt': 'WebVTT'}[kind],
        )
    parser.add_argument(
        '--beam-width',
        metavar='N',
        type=language_options.positive,
        help="paths of the beam search (default: the model's)",
    )
    language_options.add_to(parser)
    parser.add_argument(
        '--batch-size',
        metavar='N',
        type=language_options.positive,
        default=BATCH_SIZE,
        help='parts of up to 20 s that are recognised together (default: %(default)s); less takes '
        'less memory',
    )
    parser.add_argument(
        '--jobs',
        metavar='N',
        type=language_options.positive,
        help='threads that read files (default: one for each core, at most 4)',
    )
    parser.add_argument(
        '--config',
        metavar='FILE',
        help='settings of the training, in place of ds_* variables, '
        'for a model of version 0.1, which does not describe itself',
    )
    return parser.parse_args(arguments)


if __name__ == '__main__':
    command.run(main)
