"""util.importers.read_data_sets: one importer, several, an unknown one."""

import pytest

from helpers import load_config, make_corpus, speech, write_wav
from util import errors, importers, text


def joined(tmp_path, importers='csv,ldc93s1', paths=None):
    make_corpus(tmp_path)
    write_wav(tmp_path / 'ldc' / 'LDC93S1.wav', speech(1.5))
    (tmp_path / 'ldc' / 'LDC93S1.txt').write_text('0 24000 She had it.')
    return load_config(
        importer=importers,
        cache_dir=tmp_path / 'cache',
        dataset_path=paths or '%s,%s' % (tmp_path, tmp_path / 'ldc'),
        train_files='train.csv',
        dev_files='dev.csv',
        test_files='test.csv',
    )


def test_several_importers_are_joined_set_by_set(tmp_path):
    data_sets = importers.read_data_sets(joined(tmp_path), text.Alphabet())
    assert [len(data_set) for data_set in data_sets] == [6, 3, 3]
    assert data_sets.test.examples[-1].transcript == 'she had it'


def test_each_importer_needs_its_path(tmp_path):
    with pytest.raises(errors.ConfigError, match='ds_dataset_path must be as many folders'):
        importers.read_data_sets(joined(tmp_path, paths='one'), text.Alphabet())


def test_unknown_importer_is_named(tmp_path):
    with pytest.raises(errors.ConfigError, match="ds_importer .*librivox.* got 'ldc'"):
        importers.read_data_sets(joined(tmp_path, importers='csv,ldc'), text.Alphabet())
