"""Converts weights of torchaudio.models.DeepSpeech to an .npz file for `ds_init_from`.

    python -m util.tools.torch_weights model.pt weights.npz

writes the weights under this project's names. `util.run.torch_weights` says which models can be
converted.
"""

import argparse
import contextlib
import os
import pathlib
import sys

import numpy as np

if not __package__:  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from util import errors
from util.run import command, torch_weights


def main(arguments: list[str]) -> int:
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog='python -m util.tools.torch_weights',
        description='Converts weights of torchaudio.models.DeepSpeech to an .npz file for '
        'ds_init_from.',
    )
    parser.add_argument(
        'source',
        metavar='model.pt',
        help="state dict of PyTorch, or an .npz file with PyTorch's names",
    )
    parser.add_argument('target', metavar='weights.npz', help='file to write')
    options = parser.parse_args(arguments)
    try:
        weights = torch_weights.read_ours(options.source)
        if 'b6' not in weights:
            raise errors.WeightsError(
                '%s: these are not the weights of torchaudio.models.DeepSpeech' % options.source
            )
        _save(options.target, weights)
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    print(
        '%s: %d weights, %d labels and the blank'
        % (options.target, sum(value.size for value in weights.values()), weights['b6'].size - 1)
    )
    return 0


def _save(path, weights):
    """Writes weights, {name: array}, to a temporary file and renames it.

    Raises:
      WeightsError: the file cannot be written; an earlier file of this name is left as it was.
    """
    temporary = '%s.%d.tmp.npz' % (path, os.getpid())
    try:
        np.savez(temporary, **weights)
        os.replace(temporary, path)
    except OSError as error:
        raise errors.WeightsError(
            '%s cannot be written: %s' % (path, error.strerror or error)
        ) from None
    finally:
        with contextlib.suppress(OSError):  # the file exists only if the renaming failed
            os.remove(temporary)


if __name__ == '__main__':
    command.run(main)
