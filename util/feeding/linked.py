"""Several corpora linked for training: each has a weight and a queue of its own."""

import zlib


def ends_update(index, total_batches, n_parts, config):
    """Tells whether an update ends with a step of an epoch, as it does after every
    `numbatches_to_aggregate` rounds and with the last step.

    Args:
      index: index of the step, from 0.
      total_batches: number of steps of an epoch.
      n_parts: number of batches of a round.
      config: Config; its numbatches_to_aggregate is used.
    """
    return (index + 1) % (
        n_parts * config.numbatches_to_aggregate
    ) == 0 or index + 1 == total_batches


class LinkedSets:
    """Training sets of several corpora, each with a weight and a queue of its own, for one network.

    A round takes a batch of each set. An epoch has as many rounds as the set with the most batches
    has batches; the others start again when they end, so that every utterance comes at least once
    in an epoch. An update takes `numbatches_to_aggregate` rounds.

    Attributes:
      parts: list of DataSet.
      weights: list of float, one for each set.

    Source: the linked sets of Nabu-MSSS, which has no epochs.
    """

    def __init__(self, sets, weights, config):
        self.parts, self.weights, self._config = sets, weights, config
        for part in sets:
            if len(part):
                part.laps = self.rounds / part.total_batches

    def __len__(self):
        return sum(map(len, self.parts))

    @property
    def rounds(self):
        """Returns the number of rounds of an epoch."""
        return max(part.total_batches for part in self.parts)

    @property
    def total_batches(self):
        """Returns the number of steps of an epoch, each a batch of one set."""
        return self.rounds * len(self.parts)

    def ends_update(self, index):
        """Tells whether an update ends with this step of an epoch."""
        return ends_update(index, self.total_batches, len(self.parts), self._config)

    def up_to(self, length):
        """Returns LinkedSets of the utterances of at most `length` time steps, without a set that
        has none of them."""
        pairs = [(part.up_to(length), weight) for part, weight in zip(self.parts, self.weights)]
        return LinkedSets(
            [part for part, _ in pairs if len(part)],
            [weight for part, weight in pairs if len(part)],
            self._config,
        )

    def order_checksum(self, epoch):
        """Returns a checksum like that of DataSet.order_checksum, of all sets together."""
        sums = [
            part.order_checksum(self.position(part, epoch * self.rounds)[0]) for part in self.parts
        ]
        return zlib.crc32(repr(sums).encode())

    @staticmethod
    def position(part, n_batches):
        """Returns (epoch, step) of a set after `n_batches` of its batches."""
        return divmod(n_batches, part.total_batches)
