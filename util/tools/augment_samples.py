"""Lets a person hear and see what augmentations do.

    ds_augment='speed[factor=1~0.2] time_mask' python -m util.tools.augment_samples samples

takes one utterance through each item of `ds_augment`, whatever its probability, one item at a time.
In OUT_DIR it writes before.wav, a WAV file for each item that acts on the signal, and
spectrograms.png, which shows all items. With --measure it prints how many seconds of audio a core
augments in a second instead.
"""

import argparse
import pathlib
import sys

if not __package__:  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from util import augment_setting, errors
from util.run import command


def main(arguments: list[str]) -> int:
    """Runs the command line and returns the exit status."""
    options = _parse(arguments)
    try:
        from util.tools import augment_views  # here, as --help can do without TensorFlow

        augment_views.run(options)
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    return 0


def _parse(arguments):
    """Returns the options of the command line; ends the program if they are wrong."""
    parser = argparse.ArgumentParser(
        prog='python -m util.tools.augment_samples',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description='Lets a person hear and see what augmentations do.',
        epilog='\n'.join(_help_lines()),
    )
    parser.add_argument(
        'audio',
        metavar='AUDIO',
        nargs='?',
        help='audio file (default: the first utterance of the training set of the ds_ settings)',
    )
    parser.add_argument('out_dir', metavar='OUT_DIR', nargs='?', help='folder for the files')
    parser.add_argument(
        '--measure', action='store_true', help='print how fast each item is; needs no OUT_DIR'
    )
    parser.add_argument(
        '--share',
        metavar='S',
        type=_share,
        default=0.5,
        help='share of the training that is done, from 0 to 1, for values that move over the '
        'training (default: %(default)s)',
    )
    parser.add_argument(
        '--epoch',
        metavar='N',
        type=_whole,
        default=0,
        help='draw the values of this epoch, from 0 (default: %(default)s)',
    )
    options = parser.parse_args(arguments)
    if options.out_dir is None and not options.measure:  # the only argument is the folder
        options.audio, options.out_dir = None, options.audio
        if options.out_dir is None:
            parser.error('OUT_DIR is missing')
    return options


def _share(value):
    """Returns an option as a number from 0 to 1."""
    number = float(value)
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _whole(value):
    """Returns an option as a whole number of at least 0."""
    number = int(value)
    if number < 0:
        raise ValueError
    return number


_share.__name__ = 'number from 0 to 1'  # for argparse's messages
_whole.__name__ = 'whole number of at least 0'


def _help_lines():
    """Yields the lines of the help that list the augmentations."""
    yield 'Items of ds_augment (default here: each, with its defaults):'
    yield ''
    for name, augmentation in augment_setting.AUGMENTATIONS.items():
        yield '%s: %s' % (augment_setting.with_defaults(name), augmentation.meaning)


if __name__ == '__main__':
    command.run(main)
