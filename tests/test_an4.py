"""AN4: its lists, fillers, variants of audio, and the speakers for validation."""

import os

import numpy as np
import pytest
import soundfile

from corpora import (
    check_against_index,
    list_corpus,
    read_corpus,
    read_index,
    write_lines,
    write_sphere,
)
from helpers import load_config, speech, write_wav
from util import errors, records, text
from util.corpora import fetch
from util.feeding import data_sets
from util.importers import an4

pytestmark = pytest.mark.usefixtures('fetched')  # nothing is downloaded

TRAIN = [
    ('an4_clstk/fash/an251-fash-b', '<s> YES </s> (an251-fash-b)'),
    ('an4_clstk/fash/cen7-fash-b', '<s> ONE ++NOISE++ FIVE <sil> </s> (cen7-fash-b)'),
    ('an4_clstk/mwhw/an152-mwhw-b', '<s> A(2) B </s> (an152-mwhw-b)'),
]
TEST = [('an4test_clstk/fcaw/cen8-fcaw-b', 'ELEVEN TWENTY (cen8-fcaw-b)')]
WORDS = ['YES', 'ONE FIVE', 'A B', 'ELEVEN TWENTY']


def write_lists(root, train=TRAIN, test=TEST):
    """Writes etc/ of AN4 from (file id, line of the transcription)."""
    for name, rows in (('train', train), ('test', test)):
        for ending, column in (('fileids', 0), ('transcription', 1)):
            write_lines(
                root / 'etc' / ('an4_%s.%s' % (name, ending)), [row[column] for row in rows]
            )


def sphere(path, samples):
    """Writes big-endian SPHERE."""
    write_sphere(path, samples, 16000, '10')


def raw(order):
    """Returns a function that writes headerless audio in this byte order."""

    def write(path, samples):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as file:
            file.write(samples.astype(order + 'i2').tobytes())

    return write


def write_audio(root, ending, write, rows=(*TRAIN, *TEST)):
    """Writes the audio of (file id, line), 0.5 s, 0.6 s and so on, with the function `write`."""
    for i, (fileid, _) in enumerate(rows):
        write(str(root / 'wav' / (fileid + ending)), speech(0.5 + 0.1 * i, seed=i))


def listing(folder, cache):
    return list_corpus(an4, folder, cache_dir=cache)


@pytest.mark.parametrize(
    'ending, write', (('.wav', write_wav), ('.sph', sphere), ('.WAV', write_wav))
)
@pytest.mark.parametrize('parent', (False, True))
def test_wav_and_sphere_are_read_in_place(tmp_path, fetched, ending, write, parent):
    root = tmp_path / 'an4'
    write_lists(root)
    write_audio(root, ending, write)
    train, dev, test = listing(tmp_path if parent else root, tmp_path / 'cache')
    assert [utterance.transcript for utterance in train + test] == WORDS and dev == []
    prefix = 'an4/' if parent else ''
    for i, (utterance, (fileid, _)) in enumerate(zip(train + test, TRAIN + TEST)):
        assert utterance.name == prefix + 'wav/' + fileid + ending
        assert utterance.wav_filename == str(root / 'wav' / (fileid + ending))
        assert utterance.exclusion_reason is None
        found, rate = soundfile.read(utterance.wav_filename, dtype='int16')
        assert rate == 16000
        np.testing.assert_array_equal(found, speech(0.5 + 0.1 * i, seed=i))
    assert not (tmp_path / 'cache').exists() and (fetched == []) != parent


@pytest.mark.parametrize(
    'folder, order',
    (('an4', '>'), ('an4', '<'), ('an4_raw.bigendian/an4', '>'), ('an4_raw.littleendian', '<')),
)
def test_headerless_audio_is_read_from_flac_in_the_cache(tmp_path, folder, order):
    root = tmp_path / folder
    write_lists(root)
    write_audio(root, '.raw', raw(order))
    train, _, test = listing(root, tmp_path / 'cache')
    for i, (utterance, (fileid, _)) in enumerate(zip(train + test, TRAIN + TEST)):
        assert utterance.name == 'wav/' + fileid + '.raw'
        assert utterance.wav_filename.startswith(str(tmp_path / 'cache'))
        found, rate = soundfile.read(utterance.wav_filename, dtype='int16')
        assert rate == 16000
        np.testing.assert_array_equal(found, speech(0.5 + 0.1 * i, seed=i))
    sets = data_sets.make_data_sets(
        load_config(), text.Alphabet(), records.Listing(train, [], test)
    )
    assert [len(data_set) for data_set in sets] == [3, 0, 1]


@pytest.mark.parametrize(
    'folder, order', (('an4_raw.bigendian/an4', '<'), ('an4_raw.littleendian', '>'))
)
def test_the_byte_order_that_the_folder_tells_is_believed(tmp_path, folder, order):
    write_lists(tmp_path / folder)
    write_audio(tmp_path / folder, '.raw', raw(order))
    utterance = listing(tmp_path / folder, tmp_path / 'cache').train[0]
    found, _ = soundfile.read(utterance.wav_filename, dtype='int16')
    np.testing.assert_array_equal(found, speech(0.5).byteswap())


def test_headerless_audio_that_cannot_be_converted_has_a_reason(tmp_path):
    write_lists(tmp_path)
    write_audio(tmp_path, '.raw', raw('>'))
    with open(tmp_path / 'wav' / (TRAIN[1][0] + '.raw'), 'ab') as file:
        file.write(b'x')
    train = listing(tmp_path, tmp_path / 'cache').train
    assert [utterance.exclusion_reason for utterance in train] == [
        None,
        '19201 bytes, expected two for each sample',
        None,
    ]


def test_an_utterance_in_several_variants_is_listed_once_and_read_in_place(tmp_path):
    write_lists(tmp_path)
    write_audio(tmp_path, '.raw', raw('>'))
    write_audio(tmp_path, '.sph', sphere)
    train = listing(tmp_path, tmp_path / 'cache').train
    assert [utterance.name for utterance in train] == [
        'wav/' + fileid + '.sph' for fileid, _ in TRAIN
    ]


def test_a_file_id_without_audio_is_named_and_hidden_files_are_no_audio(tmp_path):
    write_lists(tmp_path)
    write_audio(tmp_path, '.sph', sphere)
    path = tmp_path / 'wav' / (TRAIN[1][0] + '.sph')
    path.rename(path.with_name('._' + path.name))
    train = listing(tmp_path, tmp_path / 'cache').train
    assert [utterance.exclusion_reason for utterance in train] == [None, 'no audio file', None]
    assert train[1].name == 'wav/an4_clstk/fash/cen7-fash-b'


def test_audio_that_is_not_listed_is_left_out(tmp_path):
    write_lists(tmp_path, train=TRAIN[:1])
    write_audio(tmp_path, '.sph', sphere)
    assert [len(part) for part in listing(tmp_path, tmp_path / 'cache')] == [1, 0, 1]


@pytest.mark.parametrize(
    'line, expected',
    (
        ('<s> YES </s> (an251-fash-b)', ('YES', 'an251-fash-b')),
        ('RUBOUT G M E F THREE NINE (an406-fcaw-b)', ('RUBOUT G M E F THREE NINE', 'an406-fcaw-b')),
        ('  <s>  ++BREATH++ THE(2)  <sil>END </s>  (x-1)  ', ('THE END', 'x-1')),
        ("<s> O'CLOCK </s>\t(x-1)\r", ("O'CLOCK", 'x-1')),
        ('<s> </s> (x-1)', ('', 'x-1')),
        ('GO', ('GO', None)),
    ),
)
def test_fillers_variants_and_ids_are_no_words(line, expected):
    assert an4.parse_line(line) == expected


def test_transcripts_belong_to_the_ids_that_they_bear():
    fileids = ['d/a/u1', 'd/a/u2', 'd/b/u3']
    lines = ['ONE (u1)', 'TWO (u2)', 'THREE (u3)']
    assert an4.match_transcripts(lines, fileids) == ['ONE', 'TWO', 'THREE']
    assert an4.match_transcripts(lines[1:], fileids) == [None, 'TWO', 'THREE']
    assert an4.match_transcripts(lines, fileids[2:]) == ['THREE']
    assert an4.match_transcripts(['ONE (u1)', 'TWO', 'THREE (u3)'], fileids) == [
        'ONE',
        None,
        'THREE',
    ]
    # an id that two lines bear: the one in its place, or none
    assert an4.match_transcripts(['ONE (u1)', 'OTHER (u1)'], fileids[:2]) == ['ONE', None]
    assert an4.match_transcripts(['TWO (u2)', 'ONE (u1)', 'OTHER (u1)'], fileids[:1]) == [None]


def test_an_utterance_without_a_line_of_its_own_is_named(tmp_path):
    write_lists(tmp_path, train=[TRAIN[0], (TRAIN[1][0], 'FIVE (cen6-fash-b)'), TRAIN[2]])
    write_audio(tmp_path, '.sph', sphere)
    train = listing(tmp_path, tmp_path / 'cache').train
    assert [utterance.exclusion_reason for utterance in train] == [
        None,
        'no line of its own in etc/an4_train.transcription',
        None,
    ]
    assert [utterance.transcript for utterance in train] == ['YES', '', 'A B']


@pytest.mark.parametrize('n_speakers, held_out', ((9, []), (10, ['s09']), (23, ['s09', 's19'])))
def test_one_training_speaker_in_ten_is_for_validation(tmp_path, n_speakers, held_out):
    rows = [
        ('an4_clstk/s%02d/u%d-s%02d-b' % (i, take, i), 'GO (u%d-s%02d-b)' % (take, i))
        for take in range(2)
        for i in reversed(range(n_speakers))
    ]
    write_lists(tmp_path, train=rows)
    train, dev, test = listing(tmp_path, tmp_path / 'cache')
    assert sorted({utterance.name.split('/')[2] for utterance in dev}) == held_out
    assert len(dev) == 2 * len(held_out) and len(train) == len(rows) - len(dev)
    assert not {u.name.split('/')[2] for u in train} & set(held_out) and len(test) == 1


def test_it_is_fetched_where_there_is_none(tmp_path, fetched, monkeypatch):
    def put_lists(folder, marker, archives):
        fetched.append((folder, marker, [archive.url for archive in archives]))
        write_lists(tmp_path / 'data' / 'an4')
        assert os.path.isfile(os.path.join(folder, marker))

    monkeypatch.setattr(fetch, 'fetch_corpus', put_lists)
    assert len(listing(tmp_path / 'data', tmp_path / 'cache').train) == 3
    assert fetched == [
        (
            str(tmp_path / 'data'),
            'an4/etc/an4_train.fileids',
            ['http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz'],
        )
    ]


def test_a_missing_list_is_named(tmp_path):
    write_lists(tmp_path)
    os.remove(tmp_path / 'etc' / 'an4_test.fileids')
    with pytest.raises(errors.DataError, match='an4_test.fileids'):
        listing(tmp_path, tmp_path / 'cache')


@pytest.mark.parametrize(
    'folder, corpus, counts',
    (
        ('an4', 'an4', [67, 12]),
        ('an4_mini_sph', 'an4_mini_sph', [5, 2]),
        ('an4_mini_sph/an4', 'an4_mini_sph', [5, 2]),
    ),
)
def test_real_recordings_agree_with_their_index(tmp_path, shared_data, folder, corpus, counts):
    sets = read_corpus(an4, shared_data(folder), cache_dir=tmp_path / 'cache')
    assert [len(sets.train) + len(sets.dev), len(sets.test)] == counts
    rows = read_index(shared_data, corpus, folder)
    check_against_index(sets, rows)
    for example in sets.train.examples + sets.dev.examples + sets.test.examples:
        assert os.path.samefile(
            example.utterance.wav_filename, shared_data(rows[example.utterance.name]['file'])
        )
    speakers = [
        {rows[example.utterance.name]['speaker'] for example in data_set.examples}
        for data_set in sets
    ]
    assert sum(map(len, speakers)) == len(set.union(*speakers))
    assert sorted(speakers[1]) == (['mblw', 'mrcb'] if corpus == 'an4' else [])
