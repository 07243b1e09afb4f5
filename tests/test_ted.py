"""TED-LIUM: STM lines, talks of SPHERE read in parts, releases, the fetching."""

import logging

import numpy as np
import pytest

from corpora import list_corpus, read_corpus, write_lines, write_sphere
from helpers import speech, write_wav
from util import audio, errors
from util.corpora import fetch
from util.importers import ted

pytestmark = pytest.mark.usefixtures('fetched')  # nothing is downloaded

RATE = 16000
# Words of six lines of a talk of 30 s
LINES = [
    ';; a comment line',
    'Ann_2010 1 Ann_2010 0.50 4.25 <o,f0,female> good(2) day <unk> to you',
    'Ann_2010 1 inter_segment_gap 4.25 6.00 <o,,unknown> ignore_time_segment_in_scoring',
    "Ann_2010 1 Ann_2010 6.00 12.10 <o,f0,female> it 's {BREATH} a fine morning",
    'Ann_2010 1 Ann_2010 12.10 20.00 <o,f0,female> and we are glad',
    'Ann_2010 1 Ann_2010 20.00 30.40 <o,f0,female> to be here',
]
WORDS = ['good day to you', "it's a fine morning", 'and we are glad', 'to be here']


def write_stm(folder, set_name, lines, talk='Ann_2010'):
    write_lines(folder / set_name / 'stm' / (talk + '.stm'), lines)


def make_release(folder, **lines_of):
    """Writes a release whose sets have one talk of 30 s with these STM lines; returns `folder`."""
    for set_name, lines in lines_of.items():
        write_sphere(folder / set_name / 'sph/Ann_2010.sph', speech(30), RATE, byte_order='10')
        write_stm(folder, set_name, lines)
    return folder


def read(folder):
    return read_corpus(ted, folder)


def list_all(folder):
    return list_corpus(ted, folder)


def words_of(line):
    return ted.parse_line(line).transcript


def test_a_talk_is_read_in_parts_without_what_is_not_scored(tmp_path, caplog):
    make_release(tmp_path / 'TEDLIUM_release2', train=LINES, dev=LINES[:2], test=LINES[3:5])
    train, dev, test = read(tmp_path)
    assert [example.transcript for example in train.examples] == WORDS
    assert [example.transcript for example in dev.examples] == WORDS[:1]
    assert [example.transcript for example in test.examples] == WORDS[1:3]
    # the last part reaches 0.4 s beyond the audio
    assert [example.seconds for example in train.examples] == pytest.approx(
        [3.75, 6.1, 7.9, 10.0], abs=1e-6
    )
    assert not caplog.messages


def test_the_parts_hold_the_samples_of_their_times(tmp_path):
    make_release(tmp_path, train=LINES)
    samples = speech(30).astype(float)
    for utterance, (start, stop) in zip(
        list_all(tmp_path).train,
        ((8000, 68000), (96000, 193600), (193600, 320000), (320000, 480000)),
    ):
        assert utterance.wav_filename == str(tmp_path / 'train/sph/Ann_2010.sph')
        part = audio.read_audio(
            utterance.wav_filename, RATE, utterance.start_s, utterance.stop_s, utterance.channel
        )
        np.testing.assert_array_equal(part, samples[start:stop])


def test_parts_are_named_by_talk_and_times(tmp_path):
    make_release(tmp_path / 'TEDLIUM_release2', dev=LINES)
    assert [utterance.name for utterance in list_all(tmp_path).dev][:2] == [
        'TEDLIUM_release2/dev/sph/Ann_2010.sph#0.50-4.25',
        'TEDLIUM_release2/dev/sph/Ann_2010.sph#6.00-12.10',
    ]


@pytest.mark.parametrize('label', ('<o,f0,male>', '<o, f0, male>', '<F0_M>', '<o,,unknown>', ''))
def test_the_label_is_no_part_of_the_words_and_may_be_missing(label):
    part = ted.parse_line('Ann_2010 1 Ann_2010 1.50 2.75 %s well then' % label)
    assert (part.recording, part.start_s, part.stop_s) == ('Ann_2010', 1.5, 2.75)
    assert part.transcript == 'well then' and part.channel is None


@pytest.mark.parametrize(
    'line',
    (
        'Ann_2010\t1\tAnn_2010\t1.5\t2.75\t<o,f0,male>\twell then',
        'Ann_2010 A Ann Lee 1.5 2.75 <o,f0,male> well then',
        'Ann_2010 1 Ann Lee the 2nd 1.5 2.75 well then',
        'Ann_2010 1 7 1.5 2.75 <o,f0,male> well then',
    ),
)
def test_speakers_may_hold_spaces(line):
    part = ted.parse_line(line)
    assert (part.recording, part.start_s, part.stop_s, part.transcript) == (
        'Ann_2010',
        1.5,
        2.75,
        'well then',
    )


def test_talks_may_hold_spaces_and_words_may_be_numbers():
    part = ted.parse_line('Ann at home 1 Ann 1.5 2.75 <o,f0,male> 3 4 5')
    assert (part.recording, part.start_s, part.transcript) == ('Ann at home', 1.5, '3 4 5')


@pytest.mark.parametrize(
    'words, spoken',
    (
        ('the(2) red(3) door', 'the red door'),
        ('<unk> <sil> so <unk>', 'so'),
        ('{BREATH} so {UH} [applause] then <<noise>>', 'so then < >'),
        ("it 's what they 're n't", "it's what they're n't"),
        ("i 'd 've said we 'll", "i'd've said we'll"),
        ("don 't I 'M", "don't I'M"),
        ('it \u2019s', 'it\u2019s'),
        ("it(2) 's the <unk> 's", "it's the's"),
        ("tell 'em 'cause it 'tis 'til", "tell 'em 'cause it 'tis 'til"),
        ("the workers ' rights", "the workers' rights"),
        ("say ' yes '", "say ' yes'"),
        ('end of it (Ann_2010-12.10-20.00-F0_F-S3)', 'end of it'),
        ('', ''),
    ),
)
def test_markup_is_removed_and_contractions_are_joined(words, spoken):
    assert words_of('a 1 a 1 2 <o,f0,male> ' + words) == spoken


def test_lines_that_are_no_utterances():
    for line in (
        ';; words',
        ';;',
        'a 1 a 1 2 ignore_time_segment_in_scoring',
        'a 1 excluded_region 1 2 <o,,unknown> ignore_time_segment_in_scoring',
    ):
        assert ted.parse_line(line) is None


@pytest.mark.parametrize(
    'line',
    ('a 1 a 1.5', 'a 1 a 5.0 4.0 <o,f0,male> no', 'nonsense', 'a 1 a x 4.0 <o,f0,male> 3 4 no'),
)
def test_a_line_that_cannot_be_parsed_is_excluded_by_file_and_number(tmp_path, caplog, line):
    make_release(tmp_path, train=LINES[:2] + [line] + LINES[3:4])
    assert [example.transcript for example in read(tmp_path).train.examples] == WORDS[:2]
    assert caplog.messages[0].startswith('excluded train/stm/Ann_2010.stm:3: line 3: expected ')
    assert caplog.messages[1] == '1 of 3 utterances excluded'


@pytest.mark.parametrize('line', ['a 1 ' * 20000, 'a 1 b 3.4 ' * 9000 + 'x', 'a' + ' ' * 90000])
def test_a_long_line_of_another_form_is_refused_at_once(line):
    with pytest.raises(ValueError):
        ted.parse_line(line)  # which would take hours if the time grew with a power of the length


def test_an_utterance_of_markup_alone_is_excluded_by_name(tmp_path, caplog):
    make_release(tmp_path, train=LINES + ['Ann_2010 1 Ann_2010 4.25 6.00 <o,f0,female> <unk>'])
    assert len(read(tmp_path).train) == 4
    assert caplog.messages[0] == ('excluded train/sph/Ann_2010.sph#4.25-6.00: empty transcript')


def test_a_talk_without_audio_and_audio_without_words_are_excluded(tmp_path, caplog):
    make_release(tmp_path, train=LINES)
    write_stm(tmp_path, 'train', [line.replace('Ann', 'Bob') for line in LINES[:2]], 'Bob_2010')
    write_sphere(tmp_path / 'train/sph/Eve_2010.sph', speech(1), RATE)
    assert len(read(tmp_path).train) == 4
    assert caplog.messages == [
        'excluded train/stm/Bob_2010.stm#0.50-4.25: no audio file of recording Bob_2010',
        'excluded train/sph/Eve_2010.sph: no utterance of it in the transcripts',
        '2 of 6 utterances excluded',
    ]


def test_a_part_that_lies_beyond_the_audio_is_excluded(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    make_release(tmp_path, train=LINES + ['Ann_2010 1 Ann_2010 31 32 <o,f0,male> gone'])
    assert len(read(tmp_path).train) == 4
    assert caplog.messages[0].startswith('excluded train/sph/Ann_2010.sph#31.00-32.00: too short')


@pytest.mark.parametrize('inside', ('TEDLIUM_release2', '', 'legacy'))
def test_the_release_is_found_in_or_as_the_folder(tmp_path, fetched, inside):
    make_release(tmp_path / inside, train=LINES, dev=LINES[:2], test=LINES[3:5])
    assert [len(utterances) for utterances in list_all(tmp_path)] == [4, 1, 2]
    for folder, marker, archives in fetched:
        assert (folder, marker) == (str(tmp_path), 'TEDLIUM_release2')
        assert [archive.url for archive in archives] == [
            'https://www.openslr.org/resources/19/TEDLIUM_release2.tar.gz'
        ]
    assert len(fetched) == (inside == 'TEDLIUM_release2')


def test_a_release_that_is_missing_is_fetched(tmp_path, monkeypatch):
    def put_release(folder, marker, archives):
        make_release(tmp_path / 'data' / marker, dev=LINES)

    monkeypatch.setattr(fetch, 'fetch_corpus', put_release)
    assert [len(utterances) for utterances in list_all(tmp_path / 'data')] == [0, 4, 0]


def test_a_release_folder_without_sets_is_refused_by_name(tmp_path):
    (tmp_path / 'TEDLIUM_release2').mkdir()
    with pytest.raises(errors.DataError, match='TEDLIUM_release2 holds no'):
        list_all(tmp_path)


def test_talks_converted_to_wav_and_hidden_files(tmp_path, caplog):
    write_wav(tmp_path / 'dev/sph/Ann_2010.wav', speech(30))
    write_stm(tmp_path, 'dev', LINES)
    write_stm(tmp_path, 'dev', ['nonsense'], '._Ann_2010')
    assert len(read(tmp_path).dev) == 4 and not caplog.messages
