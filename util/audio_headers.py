"""Compares what the header of an audio file promises with what the file holds.

libsndfile reads a file that was cut off as far as it goes, and of files that were joined only the
first, without a word.
"""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

MAX_CHUNKS = 1000  # before the samples; a file with more is taken as it is
PLACEHOLDER = 0x7F000000  # bytes; programs that write to a pipe state this or more for "unknown"
LONGEST = 1 << 62  # bytes; the same for sizes of 64 bits
MP3_SLACK = 3000  # bytes, two frames; encoders differ in whether they count the first and tags
MP3_HEAD = 4096  # bytes from the first frame that are searched for the frame with the length
OGG_HEAD = struct.Struct('<4sBBqIIIB')  # of a page
OGG_FIRST = 2  # flag of the first page of a stream
JOINED = 'several files one behind the other, of which only the first would be read; convert it'


class Promise(NamedTuple):
    """The length of the samples as they are stored, in bytes."""

    held: int  # what the file holds
    said: int  # what its header says
    joined: bool = False  # whether another file begins behind it


def promise(descriptor: int) -> Promise | None:
    """Returns what the header of an open file promises; None if it says nothing of the length, or
    if the format has no such check here. The file's position stays as it is.

    Checked are WAV, RF64, W64, AIFF, AU, CAF, MP3 and Ogg; of Ogg only whether files are joined.
    """
    head, size = os.pread(descriptor, 40, 0), os.fstat(descriptor).st_size
    for magics, find in _FINDERS:
        if head.startswith(magics):
            return find(descriptor, head, size)
    return None


def _in_chunks(descriptor, head, size):
    """Returns the Promise of a file that consists of chunks: WAV, RF64, W64, AIFF, CAF."""
    said_elsewhere = None
    for name, start, length in _chunks(descriptor, head, size):
        if name == b'ds64':  # of RF64: the size of the file, and of its samples
            said_elsewhere = int.from_bytes(os.pread(descriptor, 16, start)[8:], 'little')
        if name in (b'data', b'SSND', b'BODY'):
            extra = {b'SSND': 8, b'data': 4 if head.startswith(b'caff') else 0}.get(name, 0)
            return _checked(descriptor, head, start + extra, length - extra, said_elsewhere, size)
    return None


def _chunks(descriptor, head, size) -> Iterator[tuple[bytes, int, int]]:
    """Yields name, start and length in bytes of each chunk's content."""
    if head.startswith(b'riff'):
        form, position, counted, step = '<16sQ', 40, 24, 8  # the length counts name and length
    elif head.startswith(b'caff'):
        form, position, counted, step = '>4sq', 8, 0, 1
    else:
        form = '<4sI' if head.startswith((b'RIFF', b'RF64')) else '>4sI'
        position, counted, step = 12, 0, 2
    header = struct.Struct(form)
    for _ in range(MAX_CHUNKS):
        content = os.pread(descriptor, header.size, position)
        if len(content) < header.size:
            return
        name, length = header.unpack(content)
        length -= counted
        yield name[:4], position + header.size, length
        position += header.size + -(-length // step) * step
        if length < 0 or position > size:
            return


def _checked(descriptor, head, start, said, said_elsewhere, size):
    """Returns the Promise of samples from `start` on; None if their length is unknown."""
    long = head.startswith((b'riff', b'caff'))
    if head.startswith(b'RF64') and said == 0xFFFFFFFF and said_elsewhere is not None:
        said, long = said_elsewhere, True
    if not 0 < said < (LONGEST if long else PLACEHOLDER):
        return None
    joined = False
    if start + said < size:
        behind = os.pread(descriptor, 5, start + said)  # a byte may fill up an odd length
        joined = head[:4] in (behind[:4], behind[1:])
    return Promise(max(0, min(said, size - start)), said, joined)


def _au(descriptor, head, size):
    """Returns the Promise of an AU file."""
    if len(head) < 12:
        return None
    start, said = struct.unpack('>II' if head.startswith(b'.snd') else '<II', head[4:12])
    return _checked(descriptor, head, start, said, None, size)


def _mp3(descriptor, head, size):
    """Returns the Promise of an MP3 file; None if it has no frame that states its length."""
    start = _behind_tag(head)
    first = os.pread(descriptor, MP3_HEAD, start)
    at = next((at for at in map(first.find, (b'Xing', b'Info')) if 0 < at < 64), None)
    if at is None or len(first) < at + 16 or first[:1] != b'\xff':
        return None
    flags = int.from_bytes(first[at + 4 : at + 8], 'big')
    if flags & 3 != 3:  # the numbers of frames and of bytes
        return None
    said = int.from_bytes(first[at + 12 : at + 16], 'big')
    held = min(said, size - start)
    if held + MP3_SLACK > said:
        held = said
    behind = os.pread(descriptor, 40, start + said)
    if behind.startswith(b'ID3'):
        behind = os.pread(descriptor, 2, start + said + _behind_tag(behind))
    return Promise(held, said, behind[:2] == first[:2])


def _behind_tag(head):
    """Returns the length in bytes of an ID3 tag; 0 if the bytes begin with none."""
    if not head.startswith(b'ID3') or len(head) < 10:
        return 0
    a, b, c, d = head[6:10]  # of 7 bits each
    return 10 + (a << 21 | b << 14 | c << 7 | d)


def _ogg(descriptor, head, size):
    """Returns the Promise of an Ogg file, which tells only whether streams follow one another."""
    position, begun = 0, False
    while position < size:
        content = os.pread(descriptor, OGG_HEAD.size + 255, position)
        if len(content) < OGG_HEAD.size or content[:4] != b'OggS':
            return None
        _, _, flags, _, _, _, _, segments = OGG_HEAD.unpack_from(content)
        first = bool(flags & OGG_FIRST)
        if first and begun:
            return Promise(size, size, joined=True)
        begun = begun or not first
        lengths = content[OGG_HEAD.size : OGG_HEAD.size + segments]
        position += OGG_HEAD.size + segments + sum(lengths)
    return None


_FINDERS = (
    ((b'RIFF', b'RIFX', b'RF64', b'riff', b'FORM', b'caff'), _in_chunks),
    ((b'.snd', b'dns.'), _au),
    ((b'ID3', b'\xff'), _mp3),
    ((b'OggS',), _ogg),
)
