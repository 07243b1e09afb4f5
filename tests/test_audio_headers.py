"""Audio files that are not as long as their headers say, or whose headers say nothing."""

import contextlib
import os
import re
import struct

import numpy as np
import pytest
import soundfile

from helpers import RATE, speech, write_wav
from util import audio, audio_headers
from util.recognition import audio_blocks
from util.records import Utterance

SECONDS = 0.3
FRAMES = 4800


def write(path, container, subtype=None):
    """Writes an audio file of FRAMES samples; returns its content."""
    soundfile.write(str(path), speech(SECONDS), RATE, format=container, subtype=subtype)
    return path.read_bytes()


def reasons(path):
    """The messages of everything that opens or reads a file."""
    found = []
    for read in (
        audio.audio_info,
        audio.read_audio,
        lambda path: audio.read_audio(path, stop_s=SECONDS / 10),
        lambda path: list(audio_blocks.read(Utterance(path, 'name'), RATE)),
    ):
        with pytest.raises(audio.AudioError) as error:
            read(str(path))
        found.append(str(error.value))
    return found


@pytest.mark.parametrize(
    'container, header_bytes, kept',
    [
        ('WAV', 44, 1500),
        ('WAVEX', 80, 1500),
        ('RF64', 104, 1500),
        ('W64', 104, 1500),
        ('AIFF', 54, 1500),
        ('AU', 24, 1500),
        ('NIST', 1024, 1500),
        ('WAV', 44, 4799),
    ],
)
def test_cut_files_are_named_with_both_lengths(tmp_path, container, header_bytes, kept):
    path = tmp_path / 'a.wav'
    content = write(path, container, 'PCM_16')
    assert audio.audio_info(str(path)) == (RATE, 1, FRAMES)
    path.write_bytes(content[: header_bytes + 2 * kept + 1])
    name = {'NIST': 'SPHERE'}.get(container, container)
    expected = 'damaged %s: %d samples, its header says 4800' % (name, kept)
    assert set(reasons(path)) == {expected}


@pytest.mark.parametrize('subtype', ['GSM610', 'IMA_ADPCM', 'MS_ADPCM', 'ULAW', 'FLOAT'])
def test_cut_wavs_of_any_kind_are_damaged(tmp_path, subtype):
    path = tmp_path / 'a.wav'
    content = write(path, 'WAV', subtype)
    path.write_bytes(content[: len(content) // 2])
    for message in reasons(path):
        assert re.fullmatch(r'damaged WAV: \d+ samples, its header says \d+', message)


@pytest.mark.parametrize(
    'cut, expected',
    [
        (1000, 'damaged CAF: 4296 samples, its header says 4800'),
        (9000, 'damaged audio: 600 bytes of samples, its header says 9600'),
    ],
)
def test_cut_caf_which_libsndfile_may_refuse_to_open(tmp_path, cut, expected):
    path = tmp_path / 'a.caf'
    content = write(path, 'CAF', 'PCM_16')
    path.write_bytes(content[:-cut])
    assert set(reasons(path)) == {expected}


def test_cut_flac(tmp_path):
    path = tmp_path / 'a.flac'
    content = write(path, 'FLAC')
    path.write_bytes(content[: len(content) - 30])
    with pytest.raises(audio.AudioError, match='damaged FLAC: 4096 samples, its header says 4800'):
        audio.audio_info(str(path))
    with pytest.raises(audio.AudioError, match='damaged audio: .'):
        audio.read_audio(str(path))


def test_cut_mp3(tmp_path):
    path = tmp_path / 'a.mp3'
    soundfile.write(str(path), np.tile(speech(1.0), 3), RATE, format='MP3')
    assert audio.audio_info(str(path)).frames == 48000
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    for message in reasons(path):
        assert re.fullmatch(r'damaged MP3: 2\d{4} samples, its header says 48000', message)


def test_samples_that_are_missing_altogether(tmp_path):
    path = tmp_path / 'a.wav'
    path.write_bytes(write(path, 'WAV')[:44])
    assert set(reasons(path)) == {'damaged WAV: 0 bytes of samples, its header says 9600'}


@pytest.mark.parametrize(
    'container, position, form, value',
    [
        *(('WAV', 40, '<I', value) for value in (0xFFFFFFFF, 0x7FFFF000, 0x80000000)),
        ('AU', 8, '>I', 0xFFFFFFFF),
        ('AIFF', 42, '>I', 0x7F000008),
        ('W64', 96, '<Q', 0),
    ],
)
def test_unknown_lengths_are_read_in_full(tmp_path, container, position, form, value):
    path = tmp_path / 'a'
    content = bytearray(write(path, container, 'PCM_16'))
    struct.pack_into(form, content, position, value)
    path.write_bytes(content)
    assert audio.audio_info(str(path)) == (RATE, 1, FRAMES)
    np.testing.assert_array_equal(audio.read_audio(str(path)), speech(SECONDS))


def streamed(content):
    """Content of a FLAC file whose header says nothing of the length: 36 bits are 0."""
    return content[:21] + bytes([content[21] & 0xF0]) + bytes(4) + content[26:]


def test_flac_of_unknown_length_is_used_in_full(tmp_path):
    path, samples = tmp_path / 'a.flac', speech(SECONDS)
    path.write_bytes(streamed(write(path, 'FLAC')))
    assert audio.audio_info(str(path)) == (RATE, 1, FRAMES)
    np.testing.assert_array_equal(audio.read_audio(str(path)), samples)
    np.testing.assert_array_equal(
        audio.read_audio(str(path), start_s=0.1, stop_s=0.2), samples[1600:3200]
    )
    utterance = Utterance(str(path), 'name', start_s=0.26)
    np.testing.assert_array_equal(
        np.concatenate(list(audio_blocks.read(utterance, RATE))), samples[4160:]
    )


def test_cut_flac_of_unknown_length(tmp_path):
    path = tmp_path / 'a.flac'
    path.write_bytes(streamed(write(path, 'FLAC'))[:-30])
    assert set(reasons(path)) == {'damaged FLAC after 4096 samples'}


@pytest.mark.parametrize('container, subtype', [('MP3', None), ('OGG', 'VORBIS'), ('OGG', 'OPUS')])
def test_joined_files_are_named(tmp_path, container, subtype):
    path = tmp_path / 'a'
    content = write(path, container, subtype)
    assert audio.audio_info(str(path)).frames == FRAMES
    path.write_bytes(content + content)
    assert set(reasons(path)) == {audio_headers.JOINED}


def test_tags_behind_an_mp3_are_no_other_file(tmp_path):
    path = tmp_path / 'a.mp3'
    content = write(path, 'MP3')
    for tag in (b'TAG' + bytes(125), b'APETAGEX' + bytes(5000)):
        path.write_bytes(content + tag)
        assert len(audio.read_audio(str(path))) == audio.audio_info(str(path)).frames == FRAMES


@pytest.mark.parametrize('subtype', ['GSM610', 'IMA_ADPCM', 'MS_ADPCM'])
def test_parts_of_files_in_which_libsndfile_cannot_seek(tmp_path, subtype):
    path = tmp_path / 'a.wav'
    write(path, 'WAV', subtype)
    whole = audio.read_audio(str(path))
    for start_s, stop_s in ((0.0, 0.1), (0.1, 0.2), (0.1234, None)):
        start, stop = round(start_s * RATE), round((stop_s or 9) * RATE)
        part = audio.read_audio(str(path), start_s=start_s, stop_s=stop_s)
        np.testing.assert_array_equal(part, whole[start:stop])
        utterance = Utterance(str(path), 'name', start_s=start_s, stop_s=stop_s)
        np.testing.assert_array_equal(
            np.concatenate(list(audio_blocks.read(utterance, RATE))), part
        )


def test_compressed_samples_that_are_missing_altogether(tmp_path):
    path = tmp_path / 'a.wav'
    soundfile.write(path, speech(0.5) / 32768, 16000, subtype='GSM610')
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b'data') + 8])
    with pytest.raises(audio.AudioError, match='damaged WAV: 0 bytes of samples'):
        audio.audio_info(str(path))


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    path = write_wav(tmp_path / 'a.wav', speech(SECONDS))
    with audio.open_audio(path) as file:
        os.truncate(path, 44 + 2 * 1000)
        with pytest.raises(
            audio.AudioError, match='damaged WAV: 1000 samples, its header says 4800'
        ):
            list(audio.read_blocks(file, 0, FRAMES, 700))


def test_descriptors_are_closed_whatever_the_file(tmp_path):
    paths = [write_wav(tmp_path / 'good.wav', speech(0.1)), str(tmp_path), '/dev/null']
    (tmp_path / 'bad.wav').write_bytes(b'RIFF' + bytes(100))
    paths.append(str(tmp_path / 'bad.wav'))
    before = len(os.listdir('/proc/self/fd'))
    for path in paths:
        with contextlib.suppress(audio.AudioError):
            audio.audio_info(path)
    assert len(os.listdir('/proc/self/fd')) == before


def test_hostile_chunks_end_soon(tmp_path):
    path = tmp_path / 'a.wav'
    path.write_bytes(b'RIFF\xff\xff\xff\xffWAVE' + b'LIST\0\0\0\0' * 200_000)
    with open(path, 'rb') as file:
        assert audio_headers.promise(file.fileno()) is None
    path.write_bytes(b'RIFF\xff\xff\xff\xffWAVEfmt \xf0\xff\xff\x7f' + bytes(100))
    assert all(message.startswith('not an audio file') for message in reasons(path))


@pytest.mark.parametrize(
    'content',
    [
        b'.snd',
        b'dns.\0\0\0',
        b'RIFF',
        b'OggS\0',
        b'ID3\4',
        b'\xff\xfb',
        b'riff' + b'\xff' * 60,
        b'riff' + bytes(36) + b'junk' + bytes(12) + b'\xff' * 7 + b'\x7f' + bytes(100),
        b'caff' + bytes(4) + b'junk\x7f' + b'\xff' * 7 + bytes(20),
        b'caff' + bytes(4) + b'junk' + b'\xff' * 8 + bytes(20),
    ],
)
def test_headers_that_are_cut_or_lead_far_beyond_the_file(tmp_path, content):
    path = tmp_path / 'a.wav'
    path.write_bytes(content)
    with open(path, 'rb') as file:
        assert audio_headers.promise(file.fileno()) is None
    assert len(reasons(path)) == 4
