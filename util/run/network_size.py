"""The size of the network, before it is built."""

from util import errors
from util.run import memory

COPIES = 4  # the weights, their gradients, and two slots of Adam
WEIGHT_BYTES = 4  # float32


def n_weights(config, n_character: int) -> int:
    """Returns the number of weights of the network that `DeepSpeech.BiRNN` builds, biases and the
    gains of `ds_layer_norm` included."""
    cell, h3, h4 = config.n_cell_dim, config.n_hidden_3, config.n_hidden_4
    dense = [config.n_features, config.n_hidden_1, config.n_hidden_2, h3]
    dense_5 = [h4, config.n_hidden_5, n_character]
    total = sum(
        (n_in + 1) * n_out for widths in (dense, dense_5) for n_in, n_out in zip(widths, widths[1:])
    )
    if config.layer_norm:
        total += 2 * (sum(dense[1:]) + config.n_hidden_5)
    if config.rnn == 'vanilla':
        return total + (h3 + 1) * cell + 2 * cell**2
    return total + 2 * (h3 + cell + 1) * 4 * cell


def check(config, n_character: int) -> None:
    """Checks that the weights of a network that is trained fit into the memory that is available.

    Raises:
      ConfigError: they do not.
    """
    needed = COPIES * WEIGHT_BYTES * n_weights(config, n_character)
    available = memory.available_bytes()
    if needed > available:
        raise errors.ConfigError(
            'ds_n_hidden_1=%d, ds_n_hidden_2=%d, ds_n_cell_dim=%d and ds_n_hidden_5=%d must make a '
            'network that fits into the %.3g GB of memory that are available, got %.3g GB for its '
            "weights, gradients and Adam's slots"
            % (
                config.n_hidden_1,
                config.n_hidden_2,
                config.n_cell_dim,
                config.n_hidden_5,
                available / 1e9,
                needed / 1e9,
            )
        )
