"""Unpacks untrusted tar and zip files safely, and either completely or not at all."""

import bz2
import contextlib
import functools
import gzip
import logging
import lzma
import os
import pathlib
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, NamedTuple

from util import errors
from util.corpora import corpus_files

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 16

# The first bytes of compressed tar files, and the functions that open them
DECOMPRESSORS = ((b'\x1f\x8b', gzip.open), (b'BZh', bz2.open), (b'\xfd7zXZ\0', lzma.open))
DAMAGES = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    RuntimeError,
)  # RuntimeError: a zip file with a password


class Member(NamedTuple):
    """One entry of an archive."""

    name: str  # path in the archive
    kind: str  # 'file', 'folder', or another kind in words
    open: Callable[[], IO[bytes]]  # opens the content of a file


class _Refused(Exception):
    """A member of the archive must not be unpacked; the message says which and why."""


def unpack(archive_path: str, folder: str) -> None:
    """Unpacks a tar (plain, gzip, bzip2, xz) or zip file into a folder, which need not be empty.

    The archive is first unpacked into a temporary folder within `folder`, and its content is moved
    into place once it is complete. Files get the modes and the owner of new files. The hidden
    files of macOS are left out.

    Raises:
      DataError: the archive is damaged, or has a member that is neither a file nor a folder below
        `folder`; the message names both. Nothing of the archive is left behind.
    """
    staging = os.path.join(folder, '.unpacking-' + os.path.basename(archive_path))
    try:
        shutil.rmtree(staging, ignore_errors=True)  # left behind by a killed run
        os.makedirs(staging)
        with contextlib.closing(_members(archive_path)) as members:
            n_files = sum(_write_member(member, staging) for member in members)
        _merge(staging, folder)
    except (_Refused, OSError, *DAMAGES) as error:
        raise errors.DataError(_complaint(archive_path, folder, error)) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    log.info('unpacked %s: %d files', archive_path, n_files)


def _complaint(archive_path, folder, error):
    """Returns the message for an archive that cannot be unpacked."""
    if isinstance(error, _Refused):
        return '%s is not unpacked: %s' % (archive_path, error)
    if isinstance(error, OSError) and error.errno:  # gzip and bz2 raise OSError without errno
        return '%s cannot be unpacked into %s: %s' % (archive_path, folder, error.strerror)
    return '%s is damaged or not a tar or zip file: %s; remove it to download it again' % (
        archive_path,
        ' '.join(str(error).split()) or type(error).__name__,
    )


def _members(archive_path):
    """Yields each Member; its content must be read before the next one is taken."""
    # The name decides: by content, a tar file that ends with a zip file would pass for a zip file.
    if archive_path.lower().endswith('.zip'):
        return _zip_members(archive_path)
    return _tar_members(archive_path)


def _tar_members(path):
    """Yields each Member of a tar file."""
    with open(path, 'rb') as file:
        head = file.read(6)
    opener = next((opener for magic, opener in DECOMPRESSORS if head.startswith(magic)), open)
    with opener(path, 'rb') as stream:
        with tarfile.open(fileobj=stream, mode='r|', tarinfo=_Header) as tar:
            for info in iter(tar.next, None):
                yield Member(info.name, _tar_kind(info), functools.partial(tar.extractfile, info))
                tar.members = []  # otherwise tarfile keeps every header in memory
        while stream.read(CHUNK_BYTES):
            pass  # the checksum of a compressed file is verified at its end


class _Header(tarfile.TarInfo):
    """A tar header that raises an error if it is damaged; tarfile would end the archive there."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None


def _tar_kind(info):
    """Returns the kind of a member: 'file', 'folder', or another kind in words."""
    if info.isreg():
        return 'file'
    if info.isdir():
        return 'folder'
    return {
        tarfile.SYMTYPE: 'symbolic link',
        tarfile.LNKTYPE: 'hard link',
        tarfile.FIFOTYPE: 'FIFO',
        tarfile.CHRTYPE: 'device',
        tarfile.BLKTYPE: 'device',
    }.get(info.type, 'member of type %r' % info.type)


def _zip_members(path):
    """Yields each Member of a zip file."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            kind = 'folder' if info.is_dir() else 'file'
            unix_type = stat.S_IFMT(info.external_attr >> 16)
            if unix_type not in (0, stat.S_IFREG, stat.S_IFDIR):
                kind = 'symbolic link' if unix_type == stat.S_IFLNK else 'special file'
            yield Member(info.filename, kind, functools.partial(archive.open, info))


def _write_member(member, staging):
    """Writes a file or makes a folder; returns whether it was a file.

    The rules are the same for tar and zip files, and stricter than tarfile's data filter, which
    lets links within the folder and names with '..' or a leading slash pass.

    Raises:
      _Refused: the member must not be unpacked; the message names it.
    """
    name = member.name if member.name.isprintable() else ascii(member.name)
    path = pathlib.PureWindowsPath(member.name)  # for it, both kinds of slash are separators
    if path.anchor or '..' in path.parts:
        raise _Refused('its member %s would be written outside of the folder' % name)
    if member.kind not in ('file', 'folder'):
        raise _Refused('its member %s is a %s' % (name, member.kind))
    parts = pathlib.PurePosixPath(member.name).parts
    if any(part.startswith(corpus_files.HIDDEN) for part in parts):
        return False
    target = os.path.join(staging, *parts)
    os.makedirs(target if member.kind == 'folder' else os.path.dirname(target), exist_ok=True)
    if member.kind == 'folder':
        return False
    with member.open() as source, open(target, 'wb') as file:
        shutil.copyfileobj(source, file, CHUNK_BYTES)
    return True


def _merge(source, target):
    """Moves the content of a folder into another on the same disk; replaces files of equal name."""
    for name in os.listdir(source):
        old, new = os.path.join(source, name), os.path.join(target, name)
        if os.path.isdir(old) and os.path.isdir(new):
            _merge(old, new)
        else:
            os.replace(old, new)
