"""Files of a corpus: each once, whatever links lead to it."""

import os

import pytest

from util.corpora import corpus_files


@pytest.fixture
def corpus(tmp_path):
    """A corpus of two speakers with three files; returns its folder."""
    folder = tmp_path / 'sets' / 'corpus'
    for name in ('1/a.wav', '1/b.WAV', '2/c.wav', '2/c.txt', '._x/d.wav'):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'')
    (tmp_path / 'sets' / 'other.wav').write_bytes(b'')
    return folder


def found(corpus):
    return [os.path.relpath(path, corpus) for path in corpus_files.find_files(str(corpus), '.wav')]


ALL = ['1/a.wav', '1/b.WAV', '2/c.wav']


@pytest.mark.parametrize('target', ['.', '..', '../..', '../../..', '/', '../2'])
def test_links_to_folders_above_or_beside_add_nothing(corpus, target):
    os.symlink(target, corpus / '1' / 'back')
    os.symlink(os.path.join('1', target), corpus / '0back')
    assert found(corpus) == ALL


def test_links_to_one_another_end(corpus):
    os.symlink('../2', corpus / '1' / 'two')
    os.symlink('../1', corpus / '2' / 'one')
    os.symlink('self', corpus / 'self')
    assert found(corpus) == ALL


def test_links_to_other_places_are_followed_each_folder_once(corpus, tmp_path):
    disk = tmp_path / 'disk'
    (disk / '3').mkdir(parents=True)
    (disk / '3' / 'e.wav').write_bytes(b'')
    os.symlink(disk / '3', corpus / '3')
    os.symlink(disk / '3', corpus / '4')
    os.symlink(disk, disk / '3' / 'up')
    os.symlink(corpus, disk / '3' / 'back')
    assert found(corpus) == [*ALL, '3/e.wav']


def test_a_folder_is_listed_by_its_own_name_rather_than_by_a_link_s(corpus):
    os.symlink('2', corpus / '0')
    assert found(corpus) == ALL


def test_the_corpus_itself_may_be_a_link(corpus, tmp_path):
    os.symlink(corpus, tmp_path / 'link')
    assert found(tmp_path / 'link') == ALL


@pytest.mark.parametrize(
    'name, leads',
    [('a.wav', False), ('a..b/c', False), ('../a', True), ('/a', True), ('a/..', True)],
)
def test_names_that_lead_out_of_a_corpus(name, leads):
    assert corpus_files.leads_out(name) == leads
