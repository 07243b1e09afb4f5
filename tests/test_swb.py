"""Switchboard-1: MS98 transcripts, one channel a speaker, what is missing, the split."""

import numpy as np
import pytest

from corpora import list_corpus, read_corpus, two_voices, write_lines, write_sphere
from util import audio, errors
from util.importers import swb

RATE = 8000
SIDE_A = [
    'sw2001A-ms98-a-0001 0.000000 0.977625 [silence]',
    "sw2001A-ms98-a-0002 0.977625 3.500000 hi um [laughter-yeah] i'd li[ke]- [noise] like",
    'sw2001A-ms98-a-0003 3.500000 4.000000 [noise] <b_aside> [laughter]',
    'sw2001A-ms98-a-0004 4.000000 6.000000 {yuppiedom} for them_1',
]
SIDE_B = ['sw2001B-ms98-a-0001 0.000000 2.250000 uh-huh']


@pytest.fixture
def folder(tmp_path):
    """A folder with the conversation 2001, in the layout of discs and transcripts."""
    put_audio(tmp_path, 2001)
    put_transcript(tmp_path, 2001, 'A', SIDE_A)
    put_transcript(tmp_path, 2001, 'B', SIDE_B)
    return tmp_path


def put_audio(folder, number):
    """Writes the audio of a conversation; returns its samples [n, 2]."""
    samples = two_voices(RATE)
    write_sphere(folder / ('swb1_d1/data/sw0%d.sph' % number), samples, RATE)
    return samples


def put_transcript(folder, number, side, lines):
    """Writes the transcript of one side of a conversation, and a file that is none beside it."""
    path = 'swb_ms98_transcriptions/%d/%d/sw%d%s-ms98-a-%%s.text' % (
        number // 100,
        number,
        number,
        side,
    )
    write_lines(folder / (path % 'trans'), lines)
    write_lines(folder / (path % 'word'), ['not a transcript'])


def read(folder):
    return read_corpus(swb, folder, sample_rate=RATE)


def list_all(folder):
    return list_corpus(swb, folder)


def test_a_conversation_is_read_in_parts_without_its_silences(folder, caplog):
    train, dev, test = read(folder)
    assert [example.transcript for example in train.examples] == [
        "hi um yeah i'd li like",
        'yuppiedom for them',
        'uh huh',
    ]
    assert [example.seconds for example in train.examples] == pytest.approx(
        [2.522375, 2.0, 2.25], abs=1e-9
    )
    assert (len(dev), len(test)) == (0, 0) and not caplog.messages


def test_speaker_a_is_the_first_channel_and_b_the_second(folder):
    samples = put_audio(folder, 2001).astype(float)
    utterances = list_all(folder).train
    assert [utterance.name for utterance in utterances] == [
        'swb1_d1/data/sw02001.sph#' + part for part in ('A:0.98-3.50', 'A:4.00-6.00', 'B:0.00-2.25')
    ]
    for utterance, (channel, start, stop) in zip(
        utterances, ((0, 7821, 28000), (0, 32000, 48000), (1, 0, 18000))
    ):
        part = audio.read_audio(
            utterance.wav_filename, RATE, utterance.start_s, utterance.stop_s, utterance.channel
        )
        np.testing.assert_array_equal(part, samples[start:stop, channel])


@pytest.mark.parametrize(
    'words, spoken',
    (
        ('[silence]', ''),
        ('so [vocalized-noise] what', 'so what'),
        ('<b_aside> come in <e_aside>', 'come in'),
        ('[laughter-yes] [laughter-uh-huh]', 'yes uh-huh'),
        ("[it'n/isn't] so", "it'n so"),
        ('[lem[guini]-/linguini]', 'lem-'),
        ('ex[specially]-/especially]', 'ex-'),
        ('[laughter-th[at]-]', 'th-'),
        ('th[ey]- they', 'th- they'),
        ('-[o]f of', '-f of'),
        ('ammu[n]it-', 'ammuit-'),
        ('{yuppiedom}', 'yuppiedom'),
        ("them_1 them_1's", "them them's"),
        ('and/or', 'and/or'),
    ),
)
def test_markup(words, spoken):
    assert swb.remove_markup(words) == spoken


def test_only_stretches_of_markup_are_no_utterances():
    assert swb.parse_line(SIDE_A[0], '2001') is None
    assert swb.parse_line(SIDE_A[2], '2001') is None
    assert swb.parse_line('sw2001A-ms98-a-0001 0.0 0.9', '2001').transcript == ''


@pytest.mark.parametrize(
    'line',
    (
        'sw2001C-ms98-a-0002 1.0 2.0 no',
        'sw2001A-ms98-a-0002 2.0 1.0 no',
        'sw2002A-ms98-a-0002 1.0 2.0 no',
        'no',
        'sw2001A-ms98-a-0002 1',
    ),
)
def test_a_line_that_cannot_be_parsed_is_excluded_by_file_and_number(folder, caplog, line):
    put_transcript(folder, 2001, 'B', [line] + SIDE_B)
    assert len(read(folder).train) == 3
    assert caplog.messages[0].startswith(
        'excluded swb_ms98_transcriptions/20/2001/sw2001B-ms98-a-trans.text:1: line 1: expected '
    )
    assert caplog.messages[1:] == ['1 of 4 utterances excluded']


def test_half_a_conversation_is_named(folder, caplog):
    put_transcript(folder, 2002, 'A', ['sw2002A-ms98-a-0001 0.0 2.0 hello'])
    put_audio(folder, 2003)
    assert len(read(folder).train) == 3
    assert caplog.messages == [
        'excluded swb_ms98_transcriptions/20/2002/sw2002A-ms98-a-trans.text#A:0.00-2.00: no audio '
        'file of recording 2002',
        'excluded swb1_d1/data/sw02003.sph: no utterance of it in the transcripts',
        '2 of 5 utterances excluded',
    ]


def test_both_sides_of_every_hundredth_conversation_are_for_the_test(tmp_path):
    for number in range(2001, 2102):
        for side in 'AB':
            put_transcript(
                tmp_path,
                number,
                side,
                ['sw%d%s-ms98-a-0001 0.0 2.0 of %d' % (number, side, number)],
            )
    put_audio(tmp_path, 2001)
    train, dev, test = [[utterance.transcript for utterance in part] for part in list_all(tmp_path)]
    assert (len(train), dev, test) == (198, ['of 2099'] * 2, ['of 2100'] * 2)


def test_what_is_missing_altogether_is_said_with_where_to_get_it(tmp_path):
    with pytest.raises(errors.DataError, match='not a folder'):
        list_all(tmp_path / 'gone')
    put_transcript(tmp_path / 'a', 2001, 'A', SIDE_A)
    put_audio(tmp_path / 'b', 2001)
    for name, missing in (('a', 'no audio files in '), ('b', 'no transcripts in ')):
        with pytest.raises(errors.DataError) as error:
            list_all(tmp_path / name)
        for words in (
            'Switchboard-1: ' + missing + str(tmp_path / name),
            'LDC97S62',
            'swb_ms98_transcriptions',
            'openslr.org/5',
        ):
            assert words in str(error.value)
