"""The command line that converts weights of torchaudio.models.DeepSpeech, and the converted network
against one of torch.nn, where PyTorch is installed."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

import DeepSpeech
from helpers import PROJECT, load_config
from torch_models import DAMAGED, N_WEIGHTS, WHOLE, assert_converted, npz_bytes, state_dict
from util.run import warm_start
from util.tf1 import tf
from util.tools import torch_weights


def read(path):
    """Arrays of an .npz file by name."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


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


def test_the_file_is_a_program_with_exit_status_for_any_folder(tmp_path):
    (tmp_path / 'model.npz').write_bytes(WHOLE)
    for source, status in (('model.npz', 0), ('absent.npz', 1)):
        done = subprocess.run(
            [
                sys.executable,
                os.path.join(PROJECT, 'util', 'tools', 'torch_weights.py'),
                source,
                'weights.npz',
            ],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
        )
        assert done.returncode == status
        assert len(done.stderr.splitlines()) == status
    assert_converted(read(tmp_path / 'weights.npz'), state_dict())


@pytest.mark.parametrize('arguments', ([], ['model.npz'], ['model.npz', 'weights.npz', 'more']))
def test_another_number_of_arguments_gets_the_usage(tmp_path, monkeypatch, capfd, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'model.npz').write_bytes(WHOLE)
    with pytest.raises(SystemExit) as end:
        torch_weights.main(arguments)
    assert end.value.code == 2
    out, err = capfd.readouterr()
    usage, error = err.splitlines()
    assert out == ''
    assert usage == 'usage: python -m util.tools.torch_weights [-h] model.pt weights.npz'
    assert error.startswith('python -m util.tools.torch_weights: error: ')
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
    assert line == 'error: %s cannot be read: %s' % (
        tmp_path / 'absent.npz',
        os.strerror(errno.ENOENT),
    )
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


@pytest.mark.parametrize(
    'target',
    [
        a_folder,
        lambda tmp_path: tmp_path / 'nowhere/weights.npz',
        lambda tmp_path: tmp_path / 'model.npz/weights.npz',
    ],
    ids=['a folder', 'in an absent folder', 'in a file'],
)
def test_a_target_that_cannot_be_written_is_named_and_nothing_left_behind(tmp_path, capfd, target):
    (tmp_path / 'model.npz').write_bytes(WHOLE)
    target = target(tmp_path)
    before = sorted(os.listdir(tmp_path))
    line = failure(capfd, tmp_path / 'model.npz', target)
    reason = line[len('error: %s cannot be written: ' % target) :]
    assert line == 'error: %s cannot be written: %s' % (target, reason)
    assert reason in [os.strerror(n) for n in (errno.EISDIR, errno.ENOENT, errno.ENOTDIR)]
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    'error, reason',
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), os.strerror(errno.ENOSPC)),
        (OSError('9 requested and 4 written'), '9 requested and 4 written'),
    ],
)
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
    assert line == (
        'error: %s: reading it needs PyTorch, which is not installed' % (tmp_path / 'model.pt')
    )
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
    torch.save(
        {prefix + name: torch.tensor(value) for name, value in state_dict().items()},
        tmp_path / 'model.pt',
    )
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
    torch.save(
        {name: torch.tensor(value).to(getattr(torch, kind)) for name, value in theirs.items()},
        tmp_path / 'model.pt',
    )
    assert torch_weights.main([str(tmp_path / 'model.pt'), str(tmp_path / 'weights.npz')]) == 0
    ours = read(tmp_path / 'weights.npz')
    assert_converted(ours, theirs)
    assert all(value.dtype == np.float32 for value in ours.values())


PT_FILES = {
    'absent': None,
    'empty': lambda torch, path: path.write_bytes(b''),
    'text': lambda torch, path: path.write_bytes(b'no weights at all'),
    'cut': lambda torch, path: (torch.save(torch.ones(5), path), os.truncate(path, 200)),
    'a tensor': lambda torch, path: torch.save(torch.ones(5), path),
    'nested': lambda torch, path: torch.save({'epoch': 3, 'model': {'w': torch.ones(5)}}, path),
    'a whole model': lambda torch, path: torch.save(torch.nn.Linear(3, 2), path),
}


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
    state = {
        name: torch.tensor(
            rng.normal(0, 0.2 if 'hh' in name else 0.6, value.shape), dtype=torch.float32
        )
        for name, value in model.state_dict().items()
    }
    for kind in ('weight_ih_l0', 'bias_ih_l0', 'bias_hh_l0'):
        state['bi_rnn.%s_reverse' % kind] = state['bi_rnn.' + kind]
    model.load_state_dict(state)
    return model


def test_converted_weights_give_the_log_probabilities_of_torch(tmp_path):
    torch = pytest.importorskip('torch')
    n_steps, n_character, clip = 11, 9, 3.5
    config = load_config(
        rnn='vanilla',
        n_input=3,
        n_context=1,
        n_hidden_1=5,
        n_hidden_2=7,
        n_cell_dim=6,
        n_hidden_5=8,
        relu_clip=clip,
        dropout_rate=0,
    )
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
        logits = DeepSpeech.BiRNN(
            tf.constant(windows[None]),
            tf.constant([n_steps]),
            config=config,
            n_character=n_character,
            is_training=False,
        )
        session.run(tf.global_variables_initializer())
        warm_start.load(session, str(tmp_path / 'weights.npz'), tf.trainable_variables())
        ours = session.run(tf.nn.log_softmax(logits[:, 0]))
    assert ours.shape == (n_steps, n_character)
    assert np.ptp(expected.numpy(), axis=0).max() > 0.5  # it depends on the input
    np.testing.assert_allclose(ours, expected.numpy(), rtol=0, atol=1e-5)
