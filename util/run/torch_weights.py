"""Weights of torchaudio.models.DeepSpeech, PyTorch's model of the paper's network, for
`ds_rnn=vanilla`:

    python -m util.tools.torch_weights model.pt weights.npz

writes them under this project's names, for `ds_init_from=weights.npz`. The model's classes have to
be in the order of `ds_alphabet`, with the blank last. Reading a .pt file needs PyTorch, which
this project doesn't otherwise use; .npz files with PyTorch's names are read without it.

PyTorch's layer 4 has weights of its own for each direction, the paper's has not: a model is taken
where the two are the same. Nor does PyTorch clip that layer, which shows only above `ds_relu_clip`.
"""
import contextlib
import os
import sys

import numpy as np

from util import config as settings, files

# Ours, torchaudio's; weights are [n_in, units] here and [units, n_in] there
DENSE = (('1', 'fc1.fc'), ('2', 'fc2.fc'), ('3', 'fc3.fc'), ('5', 'fc4.fc'), ('6', 'out'))
LAYER_4 = 'bi_rnn.'
BACKWARD = '_reverse'
PREFIXES = ('param/', 'module.')  # of an .npz of ours, of torch.nn.DataParallel


class WeightsError(ValueError):
    """Weights can't be used; the message names the file or the weight."""


def is_torch(weights):
    """Whether weights, {name: array}, have PyTorch's names."""
    return LAYER_4 + 'weight_hh_l0' in _without_prefixes(weights)


def from_torch(weights):
    """Weights under this project's names.

    Args:
      weights: {name of torchaudio.models.DeepSpeech's state dict: float array}.
    Returns:
      {name of a variable of BiRNN: float32 array}.
    Raises:
      WeightsError: one is missing, or the two directions of layer 4 differ where they may not.
    """
    weights = _without_prefixes(weights)
    expected = ['%s.%s' % (theirs, kind) for _, theirs in DENSE for kind in ('weight', 'bias')]
    expected += [LAYER_4 + kind + end for end in ('', BACKWARD) for kind in (
        'weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0')]
    missing = [name for name in expected if name not in weights]
    if missing:
        raise WeightsError('torchaudio.models.DeepSpeech has weights that are missing here: %s'
                           % ', '.join(missing))
    ours = {}
    for number, theirs in DENSE:
        ours['h' + number] = weights[theirs + '.weight'].T
        ours['b' + number] = weights[theirs + '.bias']
    ours['h4'] = _shared('input weights', *[weights[LAYER_4 + 'weight_ih_l0' + end].T
                                            for end in ('', BACKWARD)])
    ours['b4'] = _shared('biases', *[weights[LAYER_4 + 'bias_ih_l0' + end]
                                     + weights[LAYER_4 + 'bias_hh_l0' + end]
                                     for end in ('', BACKWARD)])
    ours['r4_fw'], ours['r4_bw'] = [weights[LAYER_4 + 'weight_hh_l0' + end].T
                                    for end in ('', BACKWARD)]
    return {name: np.ascontiguousarray(value, np.float32) for name, value in ours.items()}


def _without_prefixes(weights):
    for prefix in PREFIXES:
        weights = {name[len(prefix):] if name.startswith(prefix) else name: value
                   for name, value in weights.items()}
    return weights


def _shared(what, forward, backward):
    """What both directions have in common."""
    if not np.array_equal(forward, backward):
        raise WeightsError('the two directions of layer 4 must have the same %s, as in the paper, '
                           'but they differ by up to %g' % (what, np.abs(forward - backward).max()))
    return forward


def read_npz(path):
    """{name: array} of an .npz file.

    Raises:
      WeightsError.
    """
    try:
        with files.open_regular(path, mode='rb') as opened, np.load(
                opened, allow_pickle=False) as file:
            weights = {name: file[name] for name in file.files}
        if not all(isinstance(value, np.ndarray) for value in weights.values()):
            raise ValueError('some other file in the archive')
    except Exception as error:  # NumPy has an exception for each kind of damage
        reason = getattr(error, 'strerror', None) or 'it is not an .npz file of arrays'
        raise WeightsError('%s cannot be read: %s' % (path, reason)) from None
    return weights


def read_ours(path):
    """{our name: array} of a file: an .npz with our names or PyTorch's, or a PyTorch state dict.

    Raises:
      WeightsError: naming the file.
    """
    weights = read_npz(path) if path.endswith('.npz') else _read_pt(path)
    try:
        return from_torch(weights) if is_torch(weights) else weights
    except WeightsError as error:
        raise WeightsError('%s: %s' % (path, error)) from None


def _read_pt(path):
    try:
        import torch
    except ImportError:
        raise WeightsError('%s: reading it needs PyTorch, which is not installed' % path) from None
    try:
        state = torch.load(path, map_location='cpu', weights_only=True)
        return {name: value.float().numpy() for name, value in state.items()}
    except Exception as error:  # PyTorch has an exception for each kind of damage
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise WeightsError('%s is not a state dict of PyTorch: %s' % (path, reason)) from None


def main(arguments):
    """The command line; returns the exit status."""
    if len(arguments) != 2:
        print('usage: python -m util.tools.torch_weights model.pt weights.npz', file=sys.stderr)
        return 1
    source, target = arguments
    temporary = '%s.%d.tmp.npz' % (target, os.getpid())
    try:
        weights = read_ours(source)
        if 'b6' not in weights:
            raise WeightsError('%s: these are not the weights of torchaudio.models.DeepSpeech'
                               % source)
        np.savez(temporary, **weights)
        os.replace(temporary, target)
    except WeightsError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    except OSError as error:
        print('error: %s cannot be written: %s' % (target, error.strerror or error),
              file=sys.stderr)
        return 1
    finally:
        with contextlib.suppress(OSError):  # it's there only where it couldn't be renamed
            os.remove(temporary)
    print('%s: %d weights, %d labels and the blank' % (
        target, sum(value.size for value in weights.values()), weights['b6'].size - 1))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
