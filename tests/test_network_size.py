"""util.run.network_size: the number of weights, and whether they fit into memory."""

import pytest

import DeepSpeech
from helpers import load_config
from util import config as settings, errors, text
from util.run import memory, network_size

ALPHABET = text.Alphabet()


@pytest.mark.parametrize('more', [{}, {'rnn': 'vanilla', 'layer_norm': 1}])
def test_the_weights_are_those_of_the_graph(more):
    widths = dict(n_context=2, n_hidden_1=5, n_hidden_2=7, n_hidden_5=11, n_cell_dim=3)
    config = settings.with_towers(load_config(**widths, **more), 0)
    model = DeepSpeech.build_model(config, ALPHABET, is_training=False)
    weights = model.graph.get_collection('variables')
    expected = sum(weight.shape.num_elements() for weight in weights)
    assert network_size.n_weights(config, ALPHABET.n_character) == expected > 1000


def test_a_network_that_does_not_fit_is_refused_by_name(monkeypatch):
    network_size.check(load_config(), ALPHABET.n_character)
    monkeypatch.setattr(memory, 'available_bytes', lambda: 4096000.0)
    with pytest.raises(errors.ConfigError, match='ds_n_cell_dim=494 .*0.0041 GB .*got 0.1.. GB'):
        network_size.check(load_config(), ALPHABET.n_character)


def test_the_largest_widths_are_refused_here():
    with pytest.raises(errors.ConfigError, match='ds_n_hidden_1=100000'):
        network_size.check(load_config(n_hidden=10**5), ALPHABET.n_character)
