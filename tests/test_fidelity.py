"""The networks against numbers of other implementations (tests/data): the notebook's own, under
TensorFlow 0.12.1, and for the paper's network those of torchaudio.models.DeepSpeech."""

import os
from typing import Any, NamedTuple

import numpy as np
import pytest

import DeepSpeech
from helpers import PROJECT, load_config
from util import records
from util.graph import rnn
from util.run import checkpoint_files, torch_weights, warm_start
from util.tf1 import tf

DATA = os.path.join(PROJECT, 'tests', 'data')
SEED = np.load(os.path.join(DATA, 'seed_graph.npz'))
N_CHARACTER, N_INPUT, N_CONTEXT = 29, 26, 2
HERE = [
    name
    for name in rnn.IMPLEMENTATIONS
    if name != 'cudnn' or tf.config.list_physical_devices('GPU')
]  # what runs here
NAMES = [key[len('init/') :] for key in SEED.files if key.startswith('init/')]


def seed_config(**more):
    return load_config(
        n_context=N_CONTEXT,
        n_hidden_1=32,
        n_hidden_2=30,
        n_hidden_5=28,
        n_cell_dim=24,
        dropout_rate=0,
        **more,
    )


def seed_batch():
    """Returns the batch as it comes from a queue: frames with margins instead of windows."""
    windows, lengths = SEED['batch_x'], SEED['batch_seq_len']
    frames = np.zeros((3, windows.shape[1] + 2 * N_CONTEXT, N_INPUT), np.float32)
    for row, steps in enumerate(lengths):
        frames[row, :steps] = windows[row, :steps, :N_INPUT]
        frames[row, steps : steps + 2 * N_CONTEXT] = windows[row, steps - 1, N_INPUT:].reshape(
            -1, N_INPUT
        )
    return records.Batch(
        *[tf.constant(part) for part in (frames, lengths, SEED['batch_y'], SEED['batch_y_len'])]
    )


class Values(NamedTuple):
    """What the towers give of the batch."""

    avg_loss: Any
    label_error_rate: Any
    gradients: Any
    towers: Any


class Trained:
    """The graph of n towers, with the notebook's initial weights, and its Values with these."""

    def __init__(self, n_towers, implementation='own'):
        with tf.Graph().as_default() as graph:
            config = seed_config(towers=n_towers, rnn_impl=implementation)
            optimizer = DeepSpeech.create_optimizer(config)
            results = DeepSpeech.get_tower_results(
                seed_batch(),
                ['/cpu:%d' % i for i in range(n_towers)],
                config=config,
                n_character=N_CHARACTER,
                optimizer=optimizer,
            )
            self.gradients = DeepSpeech.average_gradients(
                results.gradients, DeepSpeech.tower_weights(results.towers)
            )
            self._avg_loss = results.avg_loss
            self._train_op = DeepSpeech.apply_gradients(optimizer, self.gradients)
            self.variables = tf.trainable_variables()
            self._initialise = tf.global_variables_initializer()
            self._initial_values = {
                variable.initial_value: SEED['init/' + notebook_name(variable)]
                for variable in self.variables
            }
        self.session = tf.Session(
            graph=graph, config=tf.ConfigProto(device_count={'CPU': n_towers})
        )
        self.reset()
        self.values = self.session.run(  # in one run, as other fetches take a second
            Values(
                results.avg_loss,
                results.label_error_rate,
                [gradient for gradient, _ in self.gradients],
                results.towers,
            )
        )

    def reset(self):
        """Goes back to the initial weights and to the optimizer's initial state."""
        self.session.run(self._initialise, self._initial_values)

    def step(self):
        """Takes a training step; returns the loss before it."""
        return self.session.run([self._avg_loss, self._train_op])[0]


def notebook_name(variable):
    return dict(checkpoint_files.NOTEBOOK_NAMES).get(variable.op.name, variable.op.name)


@pytest.fixture(
    scope='module',
    ids=lambda param: '%d by %s' % param,
    params=[(n, 'own') for n in (1, 2, 3)] + [(1, name) for name in HERE[1:]],
)
def built(request):
    """Trained of so many towers, by an implementation of the LSTM."""
    made = Trained(*request.param)
    yield made
    made.session.close()


@pytest.fixture
def trained(built):
    """`built` with the initial weights, for tests that change them."""
    built.reset()
    return built


def say(what, deviation):
    """Prints a largest deviation; `pytest -s` shows them, and the README cites them."""
    print('\nlargest deviation of %s: %.1e' % (what, deviation))


@pytest.mark.parametrize('is_training', [True, False])
@pytest.mark.parametrize('implementation', HERE)
def test_logits(implementation, is_training):
    with tf.Graph().as_default(), tf.Session() as session:
        logits = DeepSpeech.BiRNN(
            tf.constant(SEED['batch_x']),
            SEED['batch_seq_len'],
            config=seed_config(rnn_impl=implementation),
            n_character=N_CHARACTER,
            is_training=is_training,
        )
        session.run(tf.global_variables_initializer())
        for variable in tf.trainable_variables():
            variable.load(SEED['init/' + notebook_name(variable)], session)
        deviation = np.abs(session.run(logits) - SEED['logits']).max()
    say('the logits', deviation)
    assert deviation < 1e-6


def test_batch_of_the_queue_is_the_notebooks():
    with tf.Graph().as_default(), tf.Session() as session:
        batch, count = session.run(DeepSpeech.tower_batch(seed_batch(), 0, 1, N_CONTEXT))
    np.testing.assert_array_equal(batch.features, SEED['batch_x'])
    assert count == 3


def test_loss_and_gradients(built):
    loss, rate, gradients, towers = built.values
    assert loss == pytest.approx(float(SEED['avg_loss']), rel=1e-6)
    assert rate == pytest.approx(float(SEED['label_error_rate']), rel=1e-6)
    total = np.concatenate([tower.total_loss for tower in towers])
    np.testing.assert_allclose(total, SEED['total_loss'], rtol=1e-6)
    worst = 0.0
    for gradient, (_, variable) in zip(gradients, built.gradients):
        wanted = SEED['grad/' + notebook_name(variable)]
        worst = max(worst, np.abs(gradient - wanted).max() / np.abs(wanted).max())
    say('the gradients, of their largest value', worst)
    assert worst < 1e-4


def test_decoded_labels(built):
    towers = built.values.towers
    paths = [row for tower in towers for row in rows_of(tower.decoded, tower.count)]
    wanted = [SEED['decoded_values'][SEED['decoded_indices'][:, 0] == row] for row in range(3)]
    assert len(paths) == 3
    for path, right in zip(paths, wanted):
        np.testing.assert_array_equal(path, right)


def rows_of(sparse, count):
    """Returns the labels of each of the first `count` rows of a sparse tensor."""
    return [sparse.values[sparse.indices[:, 0] == row] for row in range(count)]


def test_twenty_adam_steps(trained):
    losses = [trained.step() for _ in range(20)]
    worst = np.abs(losses / SEED['losses_before_step'] - 1).max()
    say('20 losses, relative', worst)
    assert worst < 1e-4
    reader = tf.train.load_checkpoint(os.path.join(DATA, 'seed_checkpoint', 'model.ckpt-14'))
    worst = 0.0
    for variable, value in zip(trained.variables, trained.session.run(trained.variables)):
        name = notebook_name(variable)
        worst = max(worst, np.abs(value - reader.get_tensor(name)).max())
    say('the variables after 20 steps', worst)
    assert worst < 1e-4
    assert len(trained.variables) == len(NAMES)


@pytest.mark.parametrize('built', [(1, 'own')], indirect=True)
def test_one_step_moves_every_variable(trained):
    before = trained.session.run(trained.variables)
    trained.step()
    after = trained.session.run(trained.variables)
    for old, new, variable in zip(before, after, trained.variables):
        assert (old != new).any(), variable.op.name


# The paper's network

TORCH = np.load(os.path.join(DATA, 'torchaudio_deepspeech.npz'))


@pytest.fixture(scope='module', params=(1, 2, 3))
def vanilla(request):
    """What so many towers of the paper's network give of the batch, with PyTorch's weights."""
    config = load_config(
        n_context=N_CONTEXT, n_hidden=32, rnn='vanilla', dropout_rate=0, towers=request.param
    )
    devices = tf.ConfigProto(device_count={'CPU': request.param})
    with tf.Graph().as_default(), tf.Session(config=devices) as session:
        results = DeepSpeech.get_tower_results(
            seed_batch(),
            ['/cpu:%d' % i for i in range(request.param)],
            config=config,
            n_character=N_CHARACTER,
            optimizer=DeepSpeech.create_optimizer(config),
        )
        gradients = DeepSpeech.average_gradients(
            results.gradients, DeepSpeech.tower_weights(results.towers)
        )
        session.run(tf.global_variables_initializer())
        weights = os.path.join(DATA, 'torchaudio_deepspeech.npz')
        warm_start.load(session, weights, tf.trainable_variables())
        return session.run(
            {
                'log_probabilities': [tf.nn.log_softmax(each.logits) for each in results.towers],
                'total_loss': tf.concat([each.total_loss for each in results.towers], 0),
                'avg_loss': results.avg_loss,
                'gradients': {variable.op.name: gradient for gradient, variable in gradients},
            }
        )


def test_batches_of_both_references_are_the_same():
    np.testing.assert_array_equal(TORCH['batch_x'], SEED['batch_x'])
    np.testing.assert_array_equal(TORCH['batch_seq_len'], SEED['batch_seq_len'])


def test_vanilla_log_probabilities(vanilla):
    utterances = [
        tower[:, b] for tower in vanilla['log_probabilities'] for b in range(tower.shape[1])
    ]
    assert len(utterances) == 3
    worst = max(
        np.abs(ours[:n_steps] - TORCH['log_probs_%d' % b]).max()
        for b, (ours, n_steps) in enumerate(zip(utterances, TORCH['batch_seq_len']))
    )
    say("the log-probabilities of the paper's network", worst)
    assert worst < 1e-5


def test_vanilla_losses_and_gradients(vanilla):
    worst = np.abs(vanilla['total_loss'] / TORCH['total_loss'] - 1).max()
    say("the losses of the paper's network, relative", worst)
    assert worst < 1e-6
    assert vanilla['avg_loss'] == pytest.approx(float(TORCH['avg_loss']), rel=1e-6)
    gradients, wanted = vanilla['gradients'], torch_gradients()
    assert set(gradients) == set(wanted)
    worst = max(
        np.abs(gradients[name] - wanted[name]).max() / np.abs(wanted[name]).max() for name in wanted
    )
    say("the gradients of the paper's network, of their largest value", worst)
    assert worst < 2e-4


def torch_gradients():
    """Returns PyTorch's gradients under our names; that of a shared weight is the sum of those of
    both directions."""
    theirs = {name[len('grad/') :]: TORCH[name] for name in TORCH.files if name.startswith('grad/')}
    shared = {
        kind: theirs[kind] + theirs[kind + '_reverse']
        for kind in ('bi_rnn.weight_ih_l0', 'bi_rnn.bias_ih_l0')
    }
    for kind, gradient in shared.items():
        theirs[kind] = theirs[kind + '_reverse'] = gradient
    for end in ('', '_reverse'):  # the second bias of a direction gets the gradient of the first
        theirs['bi_rnn.bias_hh_l0' + end] = 0 * theirs['bi_rnn.bias_hh_l0' + end]
    return torch_weights.from_torch(theirs)
