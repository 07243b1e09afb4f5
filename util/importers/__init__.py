"""One module a corpus: it finds the files and lists the utterances."""
import importlib
import itertools
import pkgutil

from util import config as settings, errors, records
from util.feeding import data_sets as data_sets_module


def read_data_sets(config, alphabet):
    """DataSets of the importer that the settings name; of several, set by set one after the
    other. A linked corpus with the weight 0 is left out.

    Raises:
      ConfigError: no such importer, or not a dataset path for each.
    """
    names = config.importers
    paths = [path.strip() for path in config.dataset_path.split(',')]
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in names:
        if name not in known:
            raise errors.ConfigError('ds_importer must be one of %s, or several with commas '
                                       'between, got %r' % (', '.join(known), name))
    if len(paths) != len(names):
        raise errors.ConfigError('ds_dataset_path must be as many folders as ds_importer has '
                                   'importers (%d), got %r' % (len(names), config.dataset_path))
    weights = config.linked_weights or [1.0] * len(names)
    listings = [_list(name, path, config, corpus)
                for name, path, corpus, weight in zip(names, paths, config.corpora, weights)
                if weight]
    return data_sets_module.make_data_sets(config, alphabet, *[list(itertools.chain(*part))
                                                      for part in zip(*listings)])


def _list(name, path, config, corpus):
    """Listing of one importer; of several, its utterances get the name of the corpus."""
    listing = importlib.import_module('util.importers.' + name).list_utterances(path, config)
    if len(config.importers) == 1:
        return listing
    return records.Listing(*[[utterance._replace(corpus=corpus) for utterance in part]
                             for part in listing])
