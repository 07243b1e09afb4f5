"""Weights of torchaudio.models.DeepSpeech: conversion value by value, the command line, and the
converted network against one of torch.nn, where PyTorch is installed."""
import errno
import io
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import DeepSpeech
from helpers import PROJECT, load_config
from util import errors
from util.run import torch_weights, warm_start

# 4 features, layers of 5, 6, 7, 3 and 8 units, 9 classes; torchaudio's layer 3 has the width of
# layer 4, but nothing depends on it here
SHAPES = {'fc1.fc.weight': (5, 4), 'fc1.fc.bias': (5,), 'fc2.fc.weight': (6, 5),
          'fc2.fc.bias': (6,), 'fc3.fc.weight': (7, 6), 'fc3.fc.bias': (7,),
          'bi_rnn.weight_ih_l0': (3, 7), 'bi_rnn.weight_hh_l0': (3, 3),
          'bi_rnn.bias_ih_l0': (3,), 'bi_rnn.bias_hh_l0': (3,),
          'bi_rnn.weight_ih_l0_reverse': (3, 7), 'bi_rnn.weight_hh_l0_reverse': (3, 3),
          'bi_rnn.bias_ih_l0_reverse': (3,), 'bi_rnn.bias_hh_l0_reverse': (3,),
          'fc4.fc.weight': (8, 3), 'fc4.fc.bias': (8,), 'out.weight': (9, 8), 'out.bias': (9,)}
DENSE_LAYERS = [('1', 'fc1.fc'), ('2', 'fc2.fc'), ('3', 'fc3.fc'), ('5', 'fc4.fc'), ('6', 'out')]
N_WEIGHTS = 4 * 5 + 5 + 5 * 6 + 6 + 6 * 7 + 7 + 7 * 3 + 3 + 2 * 9 + 3 * 8 + 8 + 8 * 9 + 9


def state_dict():
    """Whole numbers, each only once; but the directions of layer 4 have the same input weights,
    and biases of the same sum."""
    values, first = {}, 1
    for name, shape in SHAPES.items():
        n = int(np.prod(shape))
        values[name] = np.arange(first, first + n, dtype=np.float32).reshape(shape)
        first += n
    values['bi_rnn.weight_ih_l0_reverse'] = values['bi_rnn.weight_ih_l0'].copy()
    values['bi_rnn.bias_hh_l0_reverse'] = (
        values['bi_rnn.bias_ih_l0'] + values['bi_rnn.bias_hh_l0']
        - values['bi_rnn.bias_ih_l0_reverse'])
    return values


def assert_converted(ours, theirs):
    """Whether each weight is where it belongs, an element at a time."""
    expected = {name: (matrix, bias) for name, matrix, bias in [
        (number, theirs[layer + '.weight'], theirs[layer + '.bias'])
        for number, layer in DENSE_LAYERS]}
    expected['4'] = (theirs['bi_rnn.weight_ih_l0'],
                     theirs['bi_rnn.bias_ih_l0'] + theirs['bi_rnn.bias_hh_l0'])
    assert sorted(ours) == sorted([kind + number for number in expected for kind in 'hb']
                                  + ['r4_fw', 'r4_bw'])
    for number, (matrix, bias) in expected.items():
        assert_transposed(ours['h' + number], matrix)
        np.testing.assert_array_equal(ours['b' + number], bias)
    assert_transposed(ours['r4_fw'], theirs['bi_rnn.weight_hh_l0'])
    assert_transposed(ours['r4_bw'], theirs['bi_rnn.weight_hh_l0_reverse'])


def assert_transposed(ours, theirs):
    units, n_in = theirs.shape
    assert ours.shape == (n_in, units)
    assert all(ours[i, j] == theirs[j, i] for i in range(n_in) for j in range(units))


def read(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


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
    theirs.update({'bi_rnn.bias_ih_l0': np.float32([1, 2, 3]),
                   'bi_rnn.bias_hh_l0': np.float32([10, 20, -30]),
                   'bi_rnn.bias_ih_l0_reverse': np.float32([11, 0, -13]),
                   'bi_rnn.bias_hh_l0_reverse': np.float32([0, 22, -14])})
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
    theirs = {name: value for name, value in state_dict().items()
              if not name.endswith('_reverse')}  # a model of one direction
    with pytest.raises(errors.WeightsError) as error:
        torch_weights.from_torch(theirs)
    for name in SHAPES:
        assert (name in str(error.value).split(': ')[1].split(', ')) == name.endswith('_reverse')


@pytest.mark.parametrize('name, what', [
    ('weight_ih_l0', 'input weights'), ('weight_ih_l0_reverse', 'input weights'),
    ('bias_ih_l0', 'biases'), ('bias_hh_l0', 'biases'),
    ('bias_ih_l0_reverse', 'biases'), ('bias_hh_l0_reverse', 'biases')])
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


def npz_bytes(save=np.savez, **arrays):
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def npy_bytes():
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


def with_byte(content, at, value):
    assert content[at] != value
    return content[:at] + bytes([value]) + content[at + 1:]


def zip_of_text():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w') as file:
        file.writestr('notes.txt', 'no array')
    return buffer.getvalue()


HEADER = b'PK\1\2'  # of a file in the directory of a zip archive
WHOLE = npz_bytes(**state_dict())
PACKED = npz_bytes(np.savez_compressed, **state_dict())
DAMAGED = {'empty': b'', 'text': b'no weights at all', 'cut': WHOLE[:len(WHOLE) // 2],
           'short of a byte': WHOLE[:-1],
           'a value changed': with_byte(WHOLE, WHOLE.index(np.float32([1, 2, 3]).tobytes()), 9),
           'no deflate stream': with_byte(PACKED, 30 + PACKED[26] + PACKED[28], 7),
           'encrypted': with_byte(WHOLE, WHOLE.index(HEADER) + 8, 1),
           'unknown compression': with_byte(WHOLE, WHOLE.index(HEADER) + 10, 99),
           'pickle': pickle.dumps(state_dict()), 'npy': npy_bytes(), 'zip of text': zip_of_text(),
           'pickled objects': npz_bytes(h1=np.array([{}, 'a'], object))}


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


# Command line


def failure(capfd, *arguments):
    """The one line on the standard error of a command line that fails."""
    assert torch_weights.main([str(argument) for argument in arguments]) == 1
    out, err = capfd.readouterr()
    assert out == '' and err.endswith('\n') and err.count('\n') == 1
    return err[:-1]


@pytest.mark.parametrize('target', ('weights.npz', 'weights.of.mine', 'a b [1]%d.npz'))
def test_an_npz_file_is_converted_to_exactly_the_target(tmp_path, capfd, target):
    (tmp_path / 'model.npz').write_bytes(WHOLE)
    (tmp_path / target).write_bytes(b'what was there before')
    assert torch_weights.main([str(tmp_path / 'model.npz'), str(tmp_path / target)]) == 0
    assert_converted(read(tmp_path / target), state_dict())
    assert sorted(os.listdir(tmp_path)) == sorted(['model.npz', target])
    out, err = capfd.readouterr()
    assert out == '%s: %d weights, 8 labels and the blank\n' % (tmp_path / target, N_WEIGHTS)
    assert err == ''


def test_a_file_can_be_converted_in_place(tmp_path):
    path = tmp_path / 'model.npz'
    path.write_bytes(WHOLE)
    assert torch_weights.main([str(path), str(path)]) == 0
    assert_converted(read(path), state_dict())
    assert os.listdir(tmp_path) == ['model.npz']


def test_the_module_is_a_program_with_exit_status(tmp_path):
    (tmp_path / 'model.npz').write_bytes(WHOLE)
    for source, status in (('model.npz', 0), ('absent.npz', 1)):
        done = subprocess.run(
            [sys.executable, '-m', 'util.tools.torch_weights', str(tmp_path / source),
             str(tmp_path / 'weights.npz')], cwd=PROJECT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
        assert done.returncode == status
        assert len(done.stderr.splitlines()) == status
    assert_converted(read(tmp_path / 'weights.npz'), state_dict())


@pytest.mark.parametrize('arguments', ([], ['model.npz'], ['model.npz', 'weights.npz', 'more']))
def test_another_number_of_arguments_gets_the_usage(tmp_path, monkeypatch, capfd, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'model.npz').write_bytes(WHOLE)
    line = failure(capfd, *arguments)
    assert line == 'usage: python -m util.tools.torch_weights model.pt weights.npz'
    assert os.listdir(tmp_path) == ['model.npz']


@pytest.mark.parametrize('kind', DAMAGED)
def test_a_damaged_npz_file_leaves_the_target_as_it_was(tmp_path, capfd, kind):
    source, target = tmp_path / 'model.npz', tmp_path / 'weights.npz'
    source.write_bytes(DAMAGED[kind])
    target.write_bytes(b'what was there before')
    line = failure(capfd, source, target)
    assert line == 'error: %s cannot be read: it is not an .npz file of arrays' % source
    assert target.read_bytes() == b'what was there before'
    assert sorted(os.listdir(tmp_path)) == ['model.npz', 'weights.npz']


def test_an_absent_npz_file_is_named(tmp_path, capfd):
    line = failure(capfd, tmp_path / 'absent.npz', tmp_path / 'weights.npz')
    assert line == 'error: %s cannot be read: %s' % (tmp_path / 'absent.npz',
                                                     os.strerror(errno.ENOENT))
    assert os.listdir(tmp_path) == []


def test_a_folder_in_the_place_of_an_npz_file_is_named(tmp_path, capfd):
    (tmp_path / 'model.npz').mkdir()
    line = failure(capfd, tmp_path / 'model.npz', tmp_path / 'weights.npz')
    assert line.startswith('error: %s cannot be read: ' % (tmp_path / 'model.npz'))
    assert os.listdir(tmp_path) == ['model.npz']


def test_a_model_that_cannot_be_converted_is_told_in_one_line(tmp_path, capfd):
    theirs = state_dict()
    del theirs['fc4.fc.bias']
    (tmp_path / 'model.npz').write_bytes(npz_bytes(**theirs))
    line = failure(capfd, tmp_path / 'model.npz', tmp_path / 'weights.npz')
    assert line.startswith('error: ') and line.endswith('missing here: fc4.fc.bias')
    assert os.listdir(tmp_path) == ['model.npz']


def a_folder(tmp_path):
    (tmp_path / 'target.npz').mkdir()
    return tmp_path / 'target.npz'


@pytest.mark.parametrize('target', [
    a_folder, lambda tmp_path: tmp_path / 'nowhere/weights.npz',
    lambda tmp_path: tmp_path / 'model.npz/weights.npz'], ids=[
        'a folder', 'in an absent folder', 'in a file'])
def test_a_target_that_cannot_be_written_is_named_and_nothing_left_behind(tmp_path, capfd, target):
    (tmp_path / 'model.npz').write_bytes(WHOLE)
    target = target(tmp_path)
    before = sorted(os.listdir(tmp_path))
    line = failure(capfd, tmp_path / 'model.npz', target)
    reason = line[len('error: %s cannot be written: ' % target):]
    assert line == 'error: %s cannot be written: %s' % (target, reason)
    assert reason in [os.strerror(n) for n in (errno.EISDIR, errno.ENOENT, errno.ENOTDIR)]
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize('error, reason', [
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), os.strerror(errno.ENOSPC)),
    (OSError('9 requested and 4 written'), '9 requested and 4 written')])
def test_a_full_disk_leaves_no_part_behind(tmp_path, monkeypatch, capfd, error, reason):
    def full(path, **weights):
        with open(path, 'wb') as file:
            file.write(WHOLE[:100])
        raise error

    (tmp_path / 'model.npz').write_bytes(WHOLE)
    (tmp_path / 'weights.npz').write_bytes(b'what was there before')
    monkeypatch.setattr(np, 'savez', full)
    line = failure(capfd, tmp_path / 'model.npz', tmp_path / 'weights.npz')
    assert line == 'error: %s cannot be written: %s' % (tmp_path / 'weights.npz', reason)
    assert sorted(os.listdir(tmp_path)) == ['model.npz', 'weights.npz']
    assert (tmp_path / 'weights.npz').read_bytes() == b'what was there before'


def test_a_pt_file_without_torch_is_told_in_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, 'torch', None)
    (tmp_path / 'model.pt').write_bytes(b'anything')
    line = failure(capfd, tmp_path / 'model.pt', tmp_path / 'weights.npz')
    assert line == ('error: %s: reading it needs PyTorch, which is not installed'
                    % (tmp_path / 'model.pt'))
    assert os.listdir(tmp_path) == ['model.pt']


def test_an_npz_file_is_read_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'torch', None)
    (tmp_path / 'model.npz').write_bytes(WHOLE)
    assert torch_weights.main([str(tmp_path / 'model.npz'), str(tmp_path / 'weights.npz')]) == 0
    assert_converted(read(tmp_path / 'weights.npz'), state_dict())


# With PyTorch


@pytest.mark.parametrize('prefix', ('', 'module.'))
def test_a_state_dict_of_torch_is_converted(tmp_path, capfd, prefix):
    torch = pytest.importorskip('torch')
    torch.save({prefix + name: torch.tensor(value) for name, value in state_dict().items()},
               tmp_path / 'model.pt')
    assert torch_weights.main([str(tmp_path / 'model.pt'), str(tmp_path / 'weights.npz')]) == 0
    assert_converted(read(tmp_path / 'weights.npz'), state_dict())
    assert sorted(os.listdir(tmp_path)) == ['model.pt', 'weights.npz']
    assert capfd.readouterr().err == ''


@pytest.mark.parametrize('kind', ('float64', 'float16', 'bfloat16'))
def test_weights_of_another_precision_become_float32(tmp_path, kind):
    torch = pytest.importorskip('torch')
    theirs = {name: value % 32 for name, value in state_dict().items()}  # exact in 8 bits
    for end in ('ih', 'hh'):
        theirs['bi_rnn.bias_%s_l0_reverse' % end] = theirs['bi_rnn.bias_%s_l0' % end]
    torch.save({name: torch.tensor(value).to(getattr(torch, kind))
                for name, value in theirs.items()}, tmp_path / 'model.pt')
    assert torch_weights.main([str(tmp_path / 'model.pt'), str(tmp_path / 'weights.npz')]) == 0
    ours = read(tmp_path / 'weights.npz')
    assert_converted(ours, theirs)
    assert all(value.dtype == np.float32 for value in ours.values())


PT_FILES = {
    'absent': None, 'empty': lambda torch, path: path.write_bytes(b''),
    'text': lambda torch, path: path.write_bytes(b'no weights at all'),
    'cut': lambda torch, path: (torch.save(torch.ones(5), path), os.truncate(path, 200)),
    'a tensor': lambda torch, path: torch.save(torch.ones(5), path),
    'nested': lambda torch, path: torch.save({'epoch': 3, 'model': {'w': torch.ones(5)}}, path),
    'a whole model': lambda torch, path: torch.save(torch.nn.Linear(3, 2), path)}


@pytest.mark.parametrize('kind', PT_FILES)
def test_a_pt_file_that_is_no_state_dict_is_told_in_one_line(tmp_path, capfd, kind):
    torch = pytest.importorskip('torch')
    path = tmp_path / 'model.pt'
    if PT_FILES[kind]:
        PT_FILES[kind](torch, path)
    before = os.listdir(tmp_path)
    line = failure(capfd, path, tmp_path / 'weights.npz')
    start = 'error: %s is not a state dict of PyTorch: ' % path
    assert line.startswith(start) and len(line) > len(start)
    assert os.listdir(tmp_path) == before


def torch_model(torch, n_features, n_character, clip, n1=5, n2=7, n_cell=6, n5=8):
    """The paper's network of torch.nn, with torchaudio's names and random weights."""
    class Dense(torch.nn.Module):
        def __init__(self, n_in, units):
            super().__init__()
            self.fc = torch.nn.Linear(n_in, units)

        def forward(self, x):
            return torch.clamp(torch.relu(self.fc(x)), max=clip)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = Dense(n_features, n1), Dense(n1, n2)
            self.fc3, self.fc4 = Dense(n2, n_cell), Dense(n_cell, n5)
            self.bi_rnn = torch.nn.RNN(n_cell, n_cell, nonlinearity='relu', bidirectional=True)
            self.out = torch.nn.Linear(n5, n_character)

        def forward(self, x):
            """[T, n_features] -> log-probabilities; and what the clipped layers gave."""
            dense = [self.fc1(x)]
            for layer in (self.fc2, self.fc3):
                dense.append(layer(dense[-1]))
            outputs, _ = self.bi_rnn(dense[-1][:, None])
            forward, backward = torch.split(outputs[:, 0], n_cell, dim=1)
            dense.append(self.fc4(forward + backward))
            return torch.log_softmax(self.out(dense[-1]), dim=1), dense, (forward, backward)

    model, rng = Model(), np.random.default_rng(32)
    state = {name: torch.tensor(rng.normal(0, 0.2 if 'hh' in name else 0.6, value.shape),
                                dtype=torch.float32)
             for name, value in model.state_dict().items()}
    for kind in ('weight_ih_l0', 'bias_ih_l0', 'bias_hh_l0'):
        state['bi_rnn.%s_reverse' % kind] = state['bi_rnn.' + kind]
    model.load_state_dict(state)
    return model


def test_converted_weights_give_the_log_probabilities_of_torch(tmp_path):
    torch = pytest.importorskip('torch')
    n_steps, n_character, clip = 11, 9, 3.5
    config = load_config(rnn='vanilla', n_input=3, n_context=1, n_hidden_1=5, n_hidden_2=7,
                         n_cell_dim=6, n_hidden_5=8, relu_clip=clip, dropout_rate=0)
    model = torch_model(torch, config.n_features, n_character, clip)
    windows = np.random.default_rng(6).normal(0, 1.5, [n_steps, config.n_features])
    windows = windows.astype(np.float32)
    with torch.no_grad():
        expected, dense, chains = model(torch.tensor(windows))
    # each clip is reached and each ReLU closed somewhere, but PyTorch's layer 4 is unclipped
    assert all((layer == clip).any() and (layer == 0).any() for layer in dense)
    assert all((chain == 0).any() and 0.3 * clip < chain.max() < clip for chain in chains)
    torch.save(model.state_dict(), tmp_path / 'model.pt')
    assert torch_weights.main([str(tmp_path / 'model.pt'), str(tmp_path / 'weights.npz')]) == 0
    with tf.Graph().as_default(), tf.Session() as session:
        logits = DeepSpeech.BiRNN(tf.constant(windows[None]), tf.constant([n_steps]),
                                  config=config, n_character=n_character, is_training=False)
        session.run(tf.global_variables_initializer())
        warm_start.load(session, str(tmp_path / 'weights.npz'), tf.trainable_variables())
        ours = session.run(tf.nn.log_softmax(logits[:, 0]))
    assert ours.shape == (n_steps, n_character)
    assert np.ptp(expected.numpy(), axis=0).max() > 0.5  # it depends on the input
    np.testing.assert_allclose(ours, expected.numpy(), rtol=0, atol=1e-5)
