"""Weights of torchaudio.models.DeepSpeech: the conversion, value by value, and .npz files."""

import io
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from torch_models import (
    DAMAGED,
    N_WEIGHTS,
    PACKED,
    SHAPES,
    WHOLE,
    assert_converted,
    npz_bytes,
    state_dict,
)
from util import errors
from util.run import torch_weights

# Conversion


def test_every_weight_is_converted_and_every_matrix_transposed():
    theirs = state_dict()
    ours = torch_weights.from_torch(theirs)
    assert_converted(ours, theirs)
    assert ours['h1'][3, 1] == theirs['fc1.fc.weight'][1, 3] == 8
    assert sum(value.size for value in ours.values()) == N_WEIGHTS


def test_converted_weights_are_contiguous_float32():
    theirs = {name: value.astype(np.float64) for name, value in state_dict().items()}
    for value in torch_weights.from_torch(theirs).values():
        assert value.dtype == np.float32 and value.flags['C_CONTIGUOUS']


def test_both_biases_of_layer_4_are_added_up_and_only_the_sums_have_to_agree():
    theirs = state_dict()
    theirs.update(
        {
            'bi_rnn.bias_ih_l0': np.float32([1, 2, 3]),
            'bi_rnn.bias_hh_l0': np.float32([10, 20, -30]),
            'bi_rnn.bias_ih_l0_reverse': np.float32([11, 0, -13]),
            'bi_rnn.bias_hh_l0_reverse': np.float32([0, 22, -14]),
        }
    )
    np.testing.assert_array_equal(torch_weights.from_torch(theirs)['b4'], [11, 22, -27])


def test_converting_leaves_what_it_is_given_as_it_was():
    theirs = state_dict()
    torch_weights.from_torch(theirs)
    assert list(theirs) == list(SHAPES)
    for name, value in state_dict().items():
        np.testing.assert_array_equal(theirs[name], value)


@pytest.mark.parametrize('prefix', ('param/', 'module.', 'param/module.'))
def test_prefixes_of_the_names_are_left_out(prefix):
    theirs = state_dict()
    prefixed = {prefix + name: value for name, value in theirs.items()}
    assert torch_weights.is_torch(prefixed)
    assert_converted(torch_weights.from_torch(prefixed), theirs)


def test_what_is_no_weight_of_the_model_is_left_out():
    theirs = state_dict()
    more = {'grad/' + name: value + 1 for name, value in theirs.items()}
    assert_converted(torch_weights.from_torch({**theirs, **more, 'h1': np.ones([4, 5])}), theirs)


def test_torchs_names_are_told_from_ours():
    assert torch_weights.is_torch(state_dict())
    assert not torch_weights.is_torch(torch_weights.from_torch(state_dict()))
    assert not torch_weights.is_torch({})


@pytest.mark.parametrize('name', SHAPES)
def test_a_missing_weight_is_named_and_no_other(name):
    theirs = state_dict()
    del theirs[name]
    with pytest.raises(errors.WeightsError) as error:
        torch_weights.from_torch(theirs)
    assert str(error.value).endswith('missing here: ' + name)


def test_all_missing_weights_are_named():
    theirs = {
        name: value for name, value in state_dict().items() if not name.endswith('_reverse')
    }  # a model of one direction
    with pytest.raises(errors.WeightsError) as error:
        torch_weights.from_torch(theirs)
    for name in SHAPES:
        assert (name in str(error.value).split(': ')[1].split(', ')) == name.endswith('_reverse')


@pytest.mark.parametrize(
    'name, what',
    [
        ('weight_ih_l0', 'input weights'),
        ('weight_ih_l0_reverse', 'input weights'),
        ('bias_ih_l0', 'biases'),
        ('bias_hh_l0', 'biases'),
        ('bias_ih_l0_reverse', 'biases'),
        ('bias_hh_l0_reverse', 'biases'),
    ],
)
def test_directions_that_differ_are_refused_with_the_largest_difference(name, what):
    theirs = state_dict()
    changed = theirs['bi_rnn.' + name].reshape(-1)  # a view
    changed[0] += 0.25
    changed[-1] -= 2.5
    with pytest.raises(errors.WeightsError) as error:
        torch_weights.from_torch(theirs)
    assert 'same %s,' % what in str(error.value)
    assert str(error.value).endswith('differ by up to 2.5')


# .npz files


def test_read_npz_gives_every_array_by_name(tmp_path):
    path = str(tmp_path / 'weights.npz')
    for content in (WHOLE, PACKED):
        (tmp_path / 'weights.npz').write_bytes(content)
        weights = torch_weights.read_npz(path)
        assert sorted(weights) == sorted(SHAPES)
        for name, value in state_dict().items():
            np.testing.assert_array_equal(weights[name], value)


@pytest.mark.parametrize('kind', DAMAGED)
def test_an_npz_file_that_is_none_is_told_in_one_line(tmp_path, kind):
    path = tmp_path / 'weights.npz'
    path.write_bytes(DAMAGED[kind])
    with pytest.raises(errors.WeightsError) as error:
        torch_weights.read_npz(str(path))
    assert str(error.value) == '%s cannot be read: it is not an .npz file of arrays' % path


def test_an_object_that_is_pickled_in_an_npz_file_is_not_made(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / 'sprung'),)

    for content in (pickle.dumps(Trap()), npz_bytes(h1=np.array([Trap()], object))):
        (tmp_path / 'weights.npz').write_bytes(content)
        with pytest.raises(errors.WeightsError):
            torch_weights.read_npz(str(tmp_path / 'weights.npz'))
    assert os.listdir(tmp_path) == ['weights.npz']


def header_of(shape, dtype='<f4'):
    """An .npy file's header, without the values that it promises."""
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(
        file, {'descr': dtype, 'fortran_order': False, 'shape': shape}
    )
    return file.getvalue()


@pytest.mark.parametrize(
    'content',
    (
        header_of((10**6, 10**6)),
        header_of((2**62, 2**62)),
        header_of((2**23,)) + bytes(2**25),  # a bomb: 32 MiB of zeros take 33 kB
    ),
    ids=('huge', 'beyond 64 bits', 'bomb'),
)
def test_arrays_larger_than_their_file_are_refused_before_memory_is_taken(tmp_path, content):
    path = tmp_path / 'weights.npz'
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('h1.npy', content)
    del content
    tracemalloc.start()
    try:
        with pytest.raises(errors.WeightsError) as error:
            torch_weights.read_npz(str(path))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert str(error.value) == '%s cannot be read: it is not an .npz file of arrays' % path
