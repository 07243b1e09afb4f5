"""What is drawn for an augmentation of an utterance: a function of seed, epoch and utterance."""

import numpy as np

from util.augment_setting import Item, Range


class Draws:
    """The values of an item for one utterance in one epoch.

    They do not depend on threads, on the order of reading, or on what is drawn for anything else.

    Args:
      item: augment_setting.Item.
      key: integers of at least 0 that say for what is drawn: seed, epoch, utterance, position of
        the item in the setting.
      share: share of the training that is done, from 0 to 1.
    Attributes:
      item: the Item.
      rng: np.random.Generator.
      happens: whether the utterance gets the augmentation, by its probability.
    """

    def __init__(self, item: Item, key: list[int], share: float):
        self.item, self._share = item, share
        self.rng = np.random.default_rng(key)
        self.happens = bool(self.rng.random() < item.p)

    def text(self, key: str) -> str:
        """Returns a value that is a text."""
        value = self.item.values[key]
        assert isinstance(value, str)
        return value

    def number(self, key: str) -> float:
        """Draws a number."""
        center, radius = self._range(key)
        return center if not radius else float(self.rng.uniform(center - radius, center + radius))

    def integer(self, key: str) -> int:
        """Draws a whole number; all of the range are equally probable."""
        center, radius = map(round, self._range(key))
        return center + (int(self.rng.integers(-radius, radius + 1)) if radius else 0)

    def _range(self, key):
        """Returns (middle, radius) of the range of a value."""
        value = self.item.values[key]
        assert isinstance(value, Range)
        return value.center(self._share), value.radius
