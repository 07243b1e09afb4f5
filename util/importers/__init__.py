"""One module a corpus: it finds the files and lists the utterances."""
import importlib
import itertools
import pkgutil

from util import config as settings, feeding


def read_data_sets(config, alphabet):
    """DataSets of the importer that the settings name; of several, set by set one after the
    other.

    Raises:
      ConfigError: no such importer, or not a dataset path for each.
    """
    names = [name.strip() for name in config.importer.split(',')]
    paths = [path.strip() for path in config.dataset_path.split(',')]
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in names:
        if name not in known:
            raise settings.ConfigError('ds_importer must be one of %s, or several with commas '
                                       'between, got %r' % (', '.join(known), name))
    if len(paths) != len(names):
        raise settings.ConfigError('ds_dataset_path must be as many folders as ds_importer has '
                                   'importers (%d), got %r' % (len(names), config.dataset_path))
    listings = [importlib.import_module('util.importers.' + name).list_utterances(path, config)
                for name, path in zip(names, paths)]
    return feeding.make_data_sets(config, alphabet, *[list(itertools.chain(*part))
                                                      for part in zip(*listings)])
