"""Reads the weights of torchaudio.models.DeepSpeech, PyTorch's model of the paper's network, for
`ds_rnn=vanilla`.

The model's classes have to be in the order of `ds_alphabet`, with the blank last. Reading a .pt
file needs PyTorch, which this project does not otherwise use; .npz files with PyTorch's names are
read without it.

PyTorch's layer 4 has separate input weights and biases for each direction, whereas the paper's
directions share them: a model can be used if both directions have the same. PyTorch does not clip
that layer either, which makes a difference only above `ds_relu_clip`.
"""

import math
import os
import zipfile
from collections.abc import Mapping

import numpy as np

from util import errors, files

# (number of a dense layer here, its name in torchaudio). Matrices are [n_in, units] in this project
# and [units, n_in] in PyTorch.
DENSE = (('1', 'fc1.fc'), ('2', 'fc2.fc'), ('3', 'fc3.fc'), ('5', 'fc4.fc'), ('6', 'out'))
LAYER_4 = 'bi_rnn.'
BACKWARD = '_reverse'
# Arrays of an .npz file may be this many times as large as the file, and as many bytes larger
MAX_EXPANSION, EXPANSION_FREE = 100, 20_000_000
PREFIXES = ('param/', 'module.')  # of the names in the tests' .npz files, in DataParallel models


def is_torch(weights: Mapping[str, np.ndarray]) -> bool:
    """Tells whether weights, {name: array}, have PyTorch's names."""
    return LAYER_4 + 'weight_hh_l0' in _without_prefixes(weights)


def from_torch(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Converts weights with PyTorch's names to those of this project.

    Args:
      weights: {name in torchaudio.models.DeepSpeech's state dict: float array}.
    Returns:
      {name of a variable of BiRNN: float32 array}; matrices are [n_in, units], biases [units].
    Raises:
      WeightsError: a weight is missing, or the two directions of layer 4 differ in weights that
        the paper's directions share.
    Source: torchaudio.models.DeepSpeech for the names; Hannun et al., arXiv:1412.5567, section 2,
      for the weights that both directions share.
    """
    weights = _without_prefixes(weights)
    expected = ['%s.%s' % (theirs, kind) for _, theirs in DENSE for kind in ('weight', 'bias')]
    expected += [
        LAYER_4 + kind + end
        for end in ('', BACKWARD)
        for kind in ('weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0')
    ]
    missing = [name for name in expected if name not in weights]
    if missing:
        raise errors.WeightsError(
            'torchaudio.models.DeepSpeech has weights that are missing here: '
            '%s' % ', '.join(missing)
        )
    ours = {}
    for number, theirs in DENSE:
        ours['h' + number] = weights[theirs + '.weight'].T
        ours['b' + number] = weights[theirs + '.bias']
    ours['h4'] = _shared(
        'input weights', *[weights[LAYER_4 + 'weight_ih_l0' + end].T for end in ('', BACKWARD)]
    )
    ours['b4'] = _shared(
        'biases',
        *[
            weights[LAYER_4 + 'bias_ih_l0' + end] + weights[LAYER_4 + 'bias_hh_l0' + end]
            for end in ('', BACKWARD)
        ],
    )
    ours['r4_fw'], ours['r4_bw'] = [
        weights[LAYER_4 + 'weight_hh_l0' + end].T for end in ('', BACKWARD)
    ]
    return {name: np.ascontiguousarray(value, np.float32) for name, value in ours.items()}


def _without_prefixes(weights):
    """Returns the weights, {name: array}, without `PREFIXES` in their names."""
    for prefix in PREFIXES:
        weights = {
            name[len(prefix) :] if name.startswith(prefix) else name: value
            for name, value in weights.items()
        }
    return weights


def _shared(what, forward, backward):
    """Returns the array that both directions of layer 4 share.

    Raises:
      WeightsError: the two are not the same; `what` names them.
    """
    if not np.array_equal(forward, backward):
        raise errors.WeightsError(
            'the two directions of layer 4 must have the same %s, as in the paper, but they '
            'differ by up to %g' % (what, np.abs(forward - backward).max())
        )
    return forward


def read_npz(path: str) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file, {name: array}.

    Raises:
      WeightsError: the file cannot be read; the message names it.
    """
    try:
        with (
            files.open_regular(path, mode='rb') as opened,
            np.load(opened, allow_pickle=False) as file,
        ):
            _check_sizes(opened)
            weights = {name: file[name] for name in file.files}
        if not all(isinstance(value, np.ndarray) for value in weights.values()):
            raise ValueError('some other file in the archive')
    except Exception as error:  # NumPy has an exception for each kind of damage
        reason = getattr(error, 'strerror', None) or 'it is not an .npz file of arrays'
        raise errors.WeightsError('%s cannot be read: %s' % (path, reason)) from None
    return weights


def _check_sizes(file):
    """Raises a ValueError if the arrays of an opened .npz file are larger than what it holds, or
    than such a file of weights can reasonably hold."""
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                version = np.lib.format.read_magic(member)
                read_header = np.lib.format.read_array_header_2_0
                if version == (1, 0):
                    read_header = np.lib.format.read_array_header_1_0
                shape, _, dtype = read_header(member)
            if math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError('an array is larger than its file')
        total = sum(info.file_size for info in archive.infolist())
    if total > EXPANSION_FREE + MAX_EXPANSION * os.fstat(file.fileno()).st_size:
        raise ValueError('the arrays are too large')


def read_ours(path: str) -> dict[str, np.ndarray]:
    """Reads a file of weights under this project's names, {name: array}.

    Args:
      path: an .npz file with our names or PyTorch's, or a state dict that PyTorch saved.
    Raises:
      WeightsError: the weights cannot be read or converted; the message names the file.
    """
    weights = read_npz(path) if path.endswith('.npz') else _read_pt(path)
    try:
        return from_torch(weights) if is_torch(weights) else weights
    except errors.WeightsError as error:
        raise errors.WeightsError('%s: %s' % (path, error)) from None


def _read_pt(path):
    """Reads a state dict that PyTorch saved, {name: float32 array}.

    Raises:
      WeightsError: PyTorch is not installed, or the file is not a state dict.
    """
    try:
        import torch
    except ImportError:
        raise errors.WeightsError(
            '%s: reading it needs PyTorch, which is not installed' % path
        ) from None
    try:
        state = torch.load(path, map_location='cpu', weights_only=True)
        return {name: value.float().numpy() for name, value in state.items()}
    except Exception as error:  # PyTorch has an exception for each kind of damage
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise errors.WeightsError(
            '%s is not a state dict of PyTorch: %s' % (path, reason)
        ) from None
