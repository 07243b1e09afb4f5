"""Fisher English: transcripts, one channel a speaker, what is missing, the split."""

import numpy as np
import pytest

from corpora import list_corpus, read_corpus, two_voices, write_lines, write_sphere
from helpers import write_wav
from util import audio, errors
from util.importers import fisher

RATE = 8000
CALL = [
    '# fe_03_00001.sph',
    '# Transcribed at the LDC',
    '',
    '0.50 2.10 A: and so i said [laughter] an- anyway',
    '',
    '1.90 3.25 B: [noise] t._v. is fine',
    '3.30 4.00 A: (( that )) is all',
    '4.00 4.50 B: [sigh] [mn]',
    '4.50 5.75 A: bye',
]


@pytest.fixture
def folder(tmp_path):
    """A folder with the conversation 00001 of part 1, in the layout of its discs."""
    put_audio(tmp_path, 1)
    put_transcript(tmp_path, 1, CALL)
    return tmp_path


def put_audio(folder, number, part='p1'):
    """Writes the audio of a conversation; returns its samples [n, 2]."""
    samples = two_voices(RATE)
    write_sphere(
        folder / ('fe_03_%s_sph1/audio/%03d/fe_03_%05d.sph' % (part, number // 100, number)),
        samples,
        RATE,
    )
    return samples


def put_transcript(folder, number, lines, part='p1'):
    write_lines(
        folder / ('fe_03_%s_tran/data/trans/%03d/fe_03_%05d.txt' % (part, number // 100, number)),
        lines,
    )


def read(folder):
    return read_corpus(fisher, folder, sample_rate=RATE)


def list_all(folder):
    return list_corpus(fisher, folder)


def test_a_conversation_is_read_in_parts_and_what_is_uncertain_is_excluded(folder, caplog):
    train, dev, test = read(folder)
    assert [example.transcript for example in train.examples] == [
        'and so i said an anyway',
        't v is fine',
        'bye',
    ]
    assert [example.seconds for example in train.examples] == pytest.approx([1.6, 1.35, 1.25])
    assert (len(dev), len(test)) == (0, 0)
    path = 'fe_03_p1_sph1/audio/000/fe_03_00001.sph'
    assert caplog.messages == [
        'excluded %s#A:3.30-4.00: uncertain words: (( that )) is all' % path,
        'excluded %s#B:4.00-4.50: empty transcript' % path,
        '2 of 5 utterances excluded',
    ]


def test_speaker_a_is_the_first_channel_and_b_the_second(folder):
    samples = put_audio(folder, 1).astype(float)
    utterances = list_all(folder).train
    for utterance, (channel, start, stop) in zip(utterances, ((0, 4000, 16800), (1, 15200, 26000))):
        assert utterance.channel == channel
        part = audio.read_audio(
            utterance.wav_filename, RATE, utterance.start_s, utterance.stop_s, utterance.channel
        )
        np.testing.assert_array_equal(part, samples[start:stop, channel])


@pytest.mark.parametrize(
    'words, spoken, certain',
    (
        ('[laughter] [[skip]] so', 'so', True),
        ('[laughter]', '', True),
        ('', '', True),
        ('so (( ))', 'so (( ))', False),
        ('(( so', '(( so', False),
        ('so))', 'so))', False),
        ('<german ja> so t._v.', 'so t._v.', True),
    ),
)
def test_markup(words, spoken, certain):
    part = fisher.parse_line('1.00 2.50 B: ' + words, 'fe_03_00001')
    assert (part.start_s, part.stop_s, part.channel) == (1.0, 2.5, 1)
    assert part.transcript == spoken and (part.exclusion_reason is None) == certain


@pytest.mark.parametrize(
    'line', ('1.0 2.0 C: words', '1.0 2.0 words', '2.0 1.0 A: words', 'x 2.0 A: words', 'words')
)
def test_a_line_that_cannot_be_parsed_is_excluded_by_file_and_number(folder, caplog, line):
    put_transcript(folder, 1, CALL[:4] + [line] + CALL[-1:])
    assert [example.transcript for example in read(folder).train.examples] == [
        'and so i said an anyway',
        'bye',
    ]
    assert caplog.messages[0].startswith(
        'excluded fe_03_p1_tran/data/trans/000/fe_03_00001.txt:5: line 5: expected '
    )


def test_both_parts_are_read_and_other_text_files_are_not(folder):
    put_audio(folder, 5851, 'p2')
    put_transcript(folder, 5851, ['0.10 3.00 B: hello there'], 'p2')
    write_lines(folder / 'fe_03_p1_tran/doc/readme.txt', ['read me'])
    last = list_all(folder).train[-1]
    assert (last.name, last.transcript) == (
        'fe_03_p2_sph1/audio/058/fe_03_05851.sph#B:0.10-3.00',
        'hello there',
    )
    assert len(list_all(folder).train) == 6


def test_half_a_conversation_is_named(folder, caplog):
    put_transcript(folder, 2, ['1.00 2.00 A: hello'])
    put_audio(folder, 3)
    assert len(read(folder).train) == 3
    assert caplog.messages[2:] == [
        'excluded fe_03_p1_tran/data/trans/000/fe_03_00002.txt#A:1.00-2.00: no audio file of '
        'recording fe_03_00002',
        'excluded fe_03_p1_sph1/audio/000/fe_03_00003.sph: no utterance of it in the transcripts',
        '4 of 7 utterances excluded',
    ]


def test_a_converted_file_beside_its_source_is_used(folder):
    path = write_wav(folder / 'fe_03_p1_sph1/audio/000/fe_03_00001.wav', two_voices(RATE), RATE)
    assert {utterance.wav_filename for utterance in list_all(folder).train} == {path}


def test_the_hundredth_conversation_is_for_the_test_and_the_one_before_for_dev(tmp_path):
    for number in range(1, 102):
        put_transcript(tmp_path, number, ['0.10 3.00 A: words'])
    put_audio(tmp_path, 1)
    train, dev, test = [
        [utterance.name.split('/')[-1] for utterance in part] for part in list_all(tmp_path)
    ]
    assert (len(train), dev, test) == (
        99,
        ['fe_03_00099.txt#A:0.10-3.00'],
        ['fe_03_00100.txt#A:0.10-3.00'],
    )


def test_what_is_missing_altogether_is_said_with_what_to_buy(tmp_path):
    with pytest.raises(errors.DataError, match='not a folder'):
        list_all(tmp_path / 'gone')
    put_transcript(tmp_path / 'a', 1, CALL)
    put_audio(tmp_path / 'b', 1)
    (tmp_path / 'c').mkdir()
    for name, missing in (
        ('a', 'no audio files in '),
        ('b', 'no transcripts in '),
        ('c', 'no audio files and no transcripts in '),
    ):
        with pytest.raises(errors.DataError) as error:
            list_all(tmp_path / name)
        for words in (
            'Fisher English: ' + missing + str(tmp_path / name),
            'LDC2004S13',
            'LDC2004T19',
            'LDC2005S13',
            'LDC2005T19',
            'fe_03_p1_tran',
        ):
            assert words in str(error.value)
