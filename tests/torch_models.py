"""Weights of torchaudio.models.DeepSpeech in a small size, files of them, and their conversion."""

import io
import pickle
import zipfile
from collections.abc import Callable

import numpy as np

# 4 features, layers of 5, 6, 7, 3 and 8 units, 9 classes. In torchaudio layer 3 is as wide as
# layer 4, but nothing depends on that here.
SHAPES = {
    'fc1.fc.weight': (5, 4),
    'fc1.fc.bias': (5,),
    'fc2.fc.weight': (6, 5),
    'fc2.fc.bias': (6,),
    'fc3.fc.weight': (7, 6),
    'fc3.fc.bias': (7,),
    'bi_rnn.weight_ih_l0': (3, 7),
    'bi_rnn.weight_hh_l0': (3, 3),
    'bi_rnn.bias_ih_l0': (3,),
    'bi_rnn.bias_hh_l0': (3,),
    'bi_rnn.weight_ih_l0_reverse': (3, 7),
    'bi_rnn.weight_hh_l0_reverse': (3, 3),
    'bi_rnn.bias_ih_l0_reverse': (3,),
    'bi_rnn.bias_hh_l0_reverse': (3,),
    'fc4.fc.weight': (8, 3),
    'fc4.fc.bias': (8,),
    'out.weight': (9, 8),
    'out.bias': (9,),
}
DENSE_LAYERS = [('1', 'fc1.fc'), ('2', 'fc2.fc'), ('3', 'fc3.fc'), ('5', 'fc4.fc'), ('6', 'out')]
N_WEIGHTS = 4 * 5 + 5 + 5 * 6 + 6 + 6 * 7 + 7 + 7 * 3 + 3 + 2 * 9 + 3 * 8 + 8 + 8 * 9 + 9


def state_dict() -> dict[str, np.ndarray]:
    """Returns weights of whole numbers, {name: float32 array}, that can be converted.

    Each number occurs once, except that the directions of layer 4 have the same input weights,
    and biases with the same sum.
    """
    values, first = {}, 1
    for name, shape in SHAPES.items():
        n = int(np.prod(shape))
        values[name] = np.arange(first, first + n, dtype=np.float32).reshape(shape)
        first += n
    values['bi_rnn.weight_ih_l0_reverse'] = values['bi_rnn.weight_ih_l0'].copy()
    values['bi_rnn.bias_hh_l0_reverse'] = (
        values['bi_rnn.bias_ih_l0']
        + values['bi_rnn.bias_hh_l0']
        - values['bi_rnn.bias_ih_l0_reverse']
    )
    return values


def assert_converted(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Asserts that each weight of a state dict is where it belongs among ours, element by
    element."""
    expected = {
        name: (matrix, bias)
        for name, matrix, bias in [
            (number, theirs[layer + '.weight'], theirs[layer + '.bias'])
            for number, layer in DENSE_LAYERS
        ]
    }
    expected['4'] = (
        theirs['bi_rnn.weight_ih_l0'],
        theirs['bi_rnn.bias_ih_l0'] + theirs['bi_rnn.bias_hh_l0'],
    )
    assert sorted(ours) == sorted(
        [kind + number for number in expected for kind in 'hb'] + ['r4_fw', 'r4_bw']
    )
    for number, (matrix, bias) in expected.items():
        _assert_transposed(ours['h' + number], matrix)
        np.testing.assert_array_equal(ours['b' + number], bias)
    _assert_transposed(ours['r4_fw'], theirs['bi_rnn.weight_hh_l0'])
    _assert_transposed(ours['r4_bw'], theirs['bi_rnn.weight_hh_l0_reverse'])


def _assert_transposed(ours, theirs):
    units, n_in = theirs.shape
    assert ours.shape == (n_in, units)
    assert all(ours[i, j] == theirs[j, i] for i in range(n_in) for j in range(units))


# Files


def npz_bytes(save: Callable = np.savez, **arrays: np.ndarray) -> bytes:
    """Returns the content of an .npz file of these arrays."""
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def _npy_bytes():
    """Returns the content of an .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


def _with_byte(content, at, value):
    """Returns a content with one byte changed."""
    assert content[at] != value
    return content[:at] + bytes([value]) + content[at + 1 :]


def _zip_of_text():
    """Returns the content of a zip archive that holds a text."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w') as file:
        file.writestr('notes.txt', 'no array')
    return buffer.getvalue()


HEADER = b'PK\1\2'  # stands before a file's entry in the directory of a zip archive
WHOLE = npz_bytes(**state_dict())
PACKED = npz_bytes(np.savez_compressed, **state_dict())
DAMAGED = {
    'empty': b'',
    'text': b'no weights at all',
    'cut': WHOLE[: len(WHOLE) // 2],
    'short of a byte': WHOLE[:-1],
    'a value changed': _with_byte(WHOLE, WHOLE.index(np.float32([1, 2, 3]).tobytes()), 9),
    'no deflate stream': _with_byte(PACKED, 30 + PACKED[26] + PACKED[28], 7),
    'encrypted': _with_byte(WHOLE, WHOLE.index(HEADER) + 8, 1),
    'unknown compression': _with_byte(WHOLE, WHOLE.index(HEADER) + 10, 99),
    'pickle': pickle.dumps(state_dict()),
    'npy': _npy_bytes(),
    'zip of text': _zip_of_text(),
    'pickled objects': npz_bytes(h1=np.array([{}, 'a'], object)),
}
