"""The importers: one module for each corpus, which finds its files and lists its utterances.

Each module of this package offers two functions:
    list_utterances(config) returns the records.Listing of the corpus in `config.dataset_path`;
    read_data_sets(config, alphabet) returns the DataSets of this corpus alone.
"""

import dataclasses
import importlib
import itertools
import pkgutil
from collections.abc import Callable

from util import config as settings, errors, records, text
from util.augmentation import augmenter
from util.feeding import data_sets


def read_data_sets(config: settings.Config, alphabet: text.Alphabet) -> data_sets.DataSets:
    """Returns the DataSets of the corpora that the settings name.

    The sets of several corpora are joined: the training sets one after the other, and so on. A
    linked corpus with the weight 0 is left out.

    Raises:
      ConfigError: `ds_importer` names a module that does not exist, `ds_dataset_path` does not name
        one folder for each importer, or `ds_augment` cannot be used.
      DataError: a corpus cannot be downloaded or used.
    """
    names = config.importers
    paths = [path.strip() for path in config.dataset_path.split(',')]
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in names:
        if name not in known:
            raise errors.ConfigError(
                'ds_importer must be one of %s, or several with commas '
                'between, got %r' % (', '.join(known), name)
            )
    if len(paths) != len(names):
        raise errors.ConfigError(
            'ds_dataset_path must be as many folders as ds_importer has '
            'importers (%d), got %r' % (len(names), config.dataset_path)
        )
    augmentation = augmenter.Augmenter(config) if config.augment else None
    weights = config.linked_weights or [1.0] * len(names)
    listings = [
        _list(name, corpus, dataclasses.replace(config, dataset_path=path))
        for name, path, corpus, weight in zip(names, paths, config.corpora, weights)
        if weight
    ]
    joined = records.Listing(*[list(itertools.chain(*parts)) for parts in zip(*listings)])
    return data_sets.make_data_sets(config, alphabet, joined, augmentation)


def _list(name, corpus, config):
    """Returns the Listing of one importer; if there are several importers, its utterances get the
    name of the corpus."""
    listing = importlib.import_module('%s.%s' % (__name__, name)).list_utterances(config)
    if len(config.importers) == 1:
        return listing
    return records.Listing(
        *[[utterance._replace(corpus=corpus) for utterance in part] for part in listing]
    )


def reader(module_name: str) -> Callable[[settings.Config, text.Alphabet], data_sets.DataSets]:
    """Returns the function `read_data_sets` of an importer.

    Args:
      module_name: the `__name__` of the importer's module.
    Returns:
      A function of the settings and the alphabet. It reads this corpus alone, from
      `config.dataset_path`, whatever `ds_importer` says.
    """
    name = module_name.rpartition('.')[2]

    def read_one(config: settings.Config, alphabet: text.Alphabet) -> data_sets.DataSets:
        """Returns the DataSets of this corpus alone."""
        return read_data_sets(
            dataclasses.replace(config, importer=name, importer_weights=''), alphabet
        )

    return read_one
