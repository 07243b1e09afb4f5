"""Unpacking: every format, archives that are hostile or damaged, an interruption."""

import hashlib
import os
import shutil
import stat
import tarfile
import zipfile

import pytest

from fetching_helpers import Stop, files_below, put, refused, special, stop_at, tar_bytes, zip_bytes
from util.corpora import archives

GOOD = {'corpus/wav/a.wav': b'first', 'corpus/wav/A.wav': b'other case', 'corpus/b.txt': b'b'}
ARCHIVES = {
    'a.tar': tar_bytes(GOOD, 'w'),
    'a.tar.gz': tar_bytes(GOOD),
    'a.tgz': tar_bytes(GOOD),
    'a.tar.bz2': tar_bytes(GOOD, 'w:bz2'),
    'a.tar.xz': tar_bytes(GOOD, 'w:xz'),
    'a.zip': zip_bytes(GOOD),
}


@pytest.mark.parametrize('name', ARCHIVES)
def test_every_format_is_unpacked_beside_what_is_there(tmp_path, name):
    archive = put(tmp_path, name, ARCHIVES[name])
    put(tmp_path / 'data' / 'corpus' / 'wav', 'kept.wav', b'kept')
    put(tmp_path / 'data' / 'corpus', 'b.txt', b'old')
    archives.unpack(archive, str(tmp_path / 'data'))
    assert files_below(tmp_path / 'data') == {**GOOD, 'corpus/wav/kept.wav': b'kept'}
    mode = stat.S_IMODE(os.stat(tmp_path / 'data/corpus/b.txt').st_mode)
    assert mode & 0o600 == 0o600 and not mode & 0o7111
    assert os.listdir(tmp_path / 'data') == ['corpus']
    assert os.path.exists(archive)


@pytest.mark.parametrize('name, make', (('a.tgz', tar_bytes), ('a.zip', zip_bytes)))
def test_what_macos_hides_is_left_out(tmp_path, name, make):
    archive = put(
        tmp_path,
        name,
        make({'c/a.wav': b'a', 'c/._a.wav': b'x', 'c/.DS_Store': b'x', '__MACOSX/c/a.wav': b'x'}),
    )
    archives.unpack(archive, str(tmp_path / 'data'))
    assert files_below(tmp_path / 'data') == {'c/a.wav': b'a'}


def test_names_that_mean_the_same_are_the_same(tmp_path):
    folders = [special(name, tarfile.DIRTYPE) for name in ('./', './c/empty')]
    archive = put(
        tmp_path, 'a.tar', tar_bytes([*folders, ('./c//a.wav', b'1'), ('c/./b', b'2')], 'w')
    )
    archives.unpack(archive, str(tmp_path / 'data'))
    assert files_below(tmp_path / 'data') == {'c/a.wav': b'1', 'c/b': b'2'}
    assert os.path.isdir(tmp_path / 'data/c/empty')


def zip_special(name, mode):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return info


def zip_evil(name):
    return 'a.zip', zip_bytes([('c/good', b'good'), (name, b'evil')])


def tar_evil(*members):
    return 'a.tgz', tar_bytes([('c/good', b'good'), *members])


EVIL = (
    ('../evil', tar_evil(('../evil', b'evil'))),
    ('c/../../evil', tar_evil(('c/../../evil', b'evil'))),
    ('c/../inside', tar_evil(('c/../inside', b'evil'))),
    ('/tmp/evil-of-test-download', tar_evil(('/tmp/evil-of-test-download', b'evil'))),
    ('..\\evil', tar_evil(('..\\evil', b'evil'))),
    ('C:\\evil', tar_evil(('C:\\evil', b'evil'))),
    ('C:evil', tar_evil(('C:evil', b'evil'))),
    ('../evil', tar_evil(special('../evil', tarfile.DIRTYPE))),
    ('../._evil', tar_evil(('../._evil', b'evil'))),
    ('c/link', tar_evil(special('c/link', tarfile.SYMTYPE, '../..'), ('c/link/evil', b'evil'))),
    ('c/link', tar_evil(special('c/link', tarfile.SYMTYPE, 'good'))),
    ('c/hard', tar_evil(special('c/hard', tarfile.LNKTYPE, '../../outside'))),
    ('c/hard', tar_evil(special('c/hard', tarfile.LNKTYPE, 'c/good'))),
    ('c/null', tar_evil(special('c/null', tarfile.CHRTYPE))),
    ('c/disk', tar_evil(special('c/disk', tarfile.BLKTYPE))),
    ('c/pipe', tar_evil(special('c/pipe', tarfile.FIFOTYPE))),
    ("'c/line\\n/../../evil'", tar_evil(('c/line\n/../../evil', b'evil'))),
    ('../evil', zip_evil('../evil')),
    ('/tmp/evil-of-test-download', zip_evil('/tmp/evil-of-test-download')),
    ('..\\evil', zip_evil('..\\evil')),
    ('C:evil', zip_evil('C:evil')),
    ('c/link', zip_evil(zip_special('c/link', stat.S_IFLNK | 0o777))),
    ('c/pipe', zip_evil(zip_special('c/pipe', stat.S_IFIFO | 0o666))),
)


@pytest.mark.parametrize('member, archive', EVIL, ids=[evil[1][0] + ' ' + evil[0] for evil in EVIL])
def test_evil_members_are_refused_by_name_and_nothing_is_written(tmp_path, member, archive):
    path = put(tmp_path / 'in', *archive)
    put(tmp_path, 'outside', b'mine')
    put(tmp_path / 'deep' / 'data', 'kept', b'kept')
    before = files_below(tmp_path)
    refused(archives.unpack, path, str(tmp_path / 'deep' / 'data'), says=[path, member + ' '])
    assert files_below(tmp_path) == before
    assert os.listdir(tmp_path / 'deep') == ['data']
    assert os.listdir(tmp_path / 'deep' / 'data') == ['kept']
    assert not os.path.exists('/tmp/evil-of-test-download')


def without(content, at):
    """The content with the byte at this place turned round."""
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


NOISE = hashlib.sha512(b'noise').digest() * 100
NOISY = {'c/%d' % i: hashlib.sha512(b'%d' % i).digest() * 32 for i in range(8)}  # 2 kB each


@pytest.mark.parametrize(
    'name, content',
    (
        ('cut-data.tar', tar_bytes(NOISY, 'w')[:5000]),
        ('cut-header.tar', tar_bytes(NOISY, 'w')[: 3 * 2560 + 100]),
        ('cut-between.tar', tar_bytes(NOISY, 'w')[: 3 * 2560]),
        ('header.tar', without(tar_bytes(NOISY, 'w'), 3 * 2560 + 3)),
        ('cut.tar.gz', tar_bytes(NOISY)[:-300]),
        ('cut-end.tar.gz', tar_bytes(NOISY)[:-4]),
        ('checksum.tar.gz', without(tar_bytes(NOISY), -6)),
        ('data.tar.gz', without(tar_bytes(NOISY), 200)),
        ('cut.tar.bz2', tar_bytes(NOISY, 'w:bz2')[:-20]),
        ('data.tar.bz2', without(tar_bytes(NOISY, 'w:bz2'), 200)),
        ('cut.tar.xz', tar_bytes(NOISY, 'w:xz')[:-20]),
        ('data.tar.xz', without(tar_bytes(NOISY, 'w:xz'), 200)),
        ('cut.zip', zip_bytes(NOISY)[:-30]),
        ('data.zip', without(zip_bytes(NOISY), 60)),
        ('empty.tar.gz', b''),
        ('empty.zip', b''),
        ('page.tar.gz', b'<!DOCTYPE html><html><body>moved</body></html>' * 30),
        ('noise.tgz', NOISE),
    ),
)
def test_a_damaged_archive_is_refused_by_name(tmp_path, name, content):
    path = put(tmp_path, name, content)
    refused(archives.unpack, path, str(tmp_path / 'data'), says=[path, 'damaged'])
    assert os.listdir(tmp_path / 'data') == []


def test_a_missing_archive_and_a_folder_that_is_a_file_are_data_errors(tmp_path):
    refused(archives.unpack, str(tmp_path / 'a.tgz'), str(tmp_path / 'data'), says=['a.tgz'])
    archive = put(tmp_path, 'a.tgz', tar_bytes(GOOD))
    put(tmp_path / 'data', 'corpus', b'a file')
    refused(archives.unpack, archive, str(tmp_path / 'data' / 'corpus'), says=[archive])


def test_an_interrupted_unpack_leaves_nothing(tmp_path, monkeypatch):
    archive = put(tmp_path, 'a.tgz', tar_bytes(GOOD))
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, shutil, 'copyfileobj', 3)
        archives.unpack(archive, str(tmp_path / 'data'))
    assert os.listdir(tmp_path / 'data') == []
    put(tmp_path / 'data' / '.unpacking-a.tgz' / 'corpus', 'stale', b'of a run that was killed')
    archives.unpack(archive, str(tmp_path / 'data'))
    assert files_below(tmp_path / 'data') == GOOD
