"""Several corpora linked for training: each has a weight and a queue of its own."""
import zlib


def ends_update(index, total_batches, n_parts, config):
    """Whether an update ends with a step of an epoch: after so many rounds, and with the last.

    Args:
      index: the step's.
      total_batches: steps of an epoch.
      n_parts: batches of a round.
    """
    return ((index + 1) % (n_parts * config.numbatches_to_aggregate) == 0
            or index + 1 == total_batches)


class LinkedSets:
    """Training sets of several corpora, each with a weight and a queue of its own, for one network.

    A round takes a batch of each set. An epoch has as many rounds as the set with the most batches
    has batches; the others begin again where they end, so that every utterance comes at least once
    an epoch. An update takes `numbatches_to_aggregate` rounds.

    Source: the linked sets of Nabu-MSSS, which has no epochs.
    """

    def __init__(self, sets, weights, config):
        self.parts, self._weights, self._config = sets, weights, config

    def __len__(self):
        return sum(map(len, self.parts))

    @property
    def rounds(self):
        """Rounds of an epoch."""
        return max(part.total_batches for part in self.parts)

    @property
    def total_batches(self):
        """Steps of an epoch, a batch of one set each."""
        return self.rounds * len(self.parts)

    def ends_update(self, index):
        """Whether an update ends with this step of an epoch."""
        return ends_update(index, self.total_batches, len(self.parts), self._config)

    def up_to(self, length):
        """LinkedSets of the utterances of at most so many time steps; without a set that has
        none."""
        pairs = [(part.up_to(length), weight) for part, weight in zip(self.parts, self._weights)]
        return LinkedSets([part for part, _ in pairs if len(part)],
                          [weight for part, weight in pairs if len(part)], self._config)

    def order_checksum(self, epoch):
        """As that of a DataSet."""
        sums = [part.order_checksum(self.position(part, epoch * self.rounds)[0])
                for part in self.parts]
        return zlib.crc32(repr(sums).encode())

    @staticmethod
    def position(part, n_batches):
        """(epoch, step) of a set after so many of its batches."""
        return divmod(n_batches, part.total_batches)

    def feed(self, session, first_epoch=0, first_step=0, n_epochs=None):
        """Starts to read ahead; returns a LinkedFeeder."""
        return LinkedFeeder(self, self._weights, session, first_epoch, first_step, n_epochs)


class LinkedFeeder:
    """Feeds LinkedSets, as a Feeder does a DataSet, by a Feeder for each set."""

    def __init__(self, linked, weights, session, first_epoch, first_step, n_epochs):
        del n_epochs  # the epochs of the sets are others
        self._linked, self._weights, self._next = linked, weights, first_step
        self._feeders = []
        done, further = divmod(first_step, len(linked.parts))
        for index, part in enumerate(linked.parts):
            n_batches = first_epoch * linked.rounds + done + (index < further)
            self._feeders.append(part.feed(session, *linked.position(part, n_batches)))
        self._batches = [_without_end(feeder) for feeder in self._feeders]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    @property
    def waited(self):
        """Seconds in which steps had to wait for their utterances so far."""
        return sum(feeder.waited for feeder in self._feeders)

    def all_steps(self):
        """Yields the Steps of the next epoch, a round after the other."""
        first, self._next = self._next, 0
        for index in range(first, self._linked.total_batches):
            which = index % len(self._batches)
            yield next(self._batches[which])._replace(
                index=index, weight=self._weights[which],
                ends_update=self._linked.ends_update(index))

    def close(self):
        """Ends the threads of all sets."""
        for feeder in self._feeders:
            feeder.close()


def _without_end(feeder):
    """Yields the steps of one epoch after the other."""
    while not feeder.ended:
        yield from feeder.all_steps()
