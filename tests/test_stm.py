"""Time-marked transcripts: finding files, times, lines that cannot be parsed, the split."""

import pytest

from corpora import write_lines
from helpers import write_wav
from util import records
from util.corpora import stm

KEY = r'call(\d+)'


def parse(line, recording='7'):
    """Returns the Part of a line "<start> <stop> <words>"."""
    start, stop, words = line.split(' ', 2)
    return stm.Part(recording, *stm.parse_times(start, stop), words)


def write_files(folder, *names):
    for name in names:
        write_lines(folder / name, [])


def test_files_are_found_at_any_depth_by_their_names_in_any_case(tmp_path):
    write_files(
        tmp_path, 'b/CALL2.TXT', 'a/x/call10.txt', 'a/call.txt', 'call3.text', 'b/._call4.txt'
    )
    assert stm.find_by_name(str(tmp_path), '.txt', KEY) == [
        ('10', str(tmp_path / 'a/x/call10.txt')),
        ('2', str(tmp_path / 'b/CALL2.TXT')),
    ]


def test_a_copy_of_a_transcript_does_not_count_again(tmp_path):
    write_files(tmp_path, 'trans/call1.txt', 'orig/call1.txt')
    assert stm.find_by_name(str(tmp_path), '.txt', KEY) == [('1', str(tmp_path / 'orig/call1.txt'))]


def test_a_converted_recording_is_used_instead_of_its_sphere_source(tmp_path):
    write_files(
        tmp_path, 'z/call1.sph', 'a/call1.flac', 'z/call2.sph', 'a/call2.wav', 'a/call3.sph'
    )
    assert stm.find_recordings(str(tmp_path), KEY) == {
        '1': str(tmp_path / 'a/call1.flac'),
        '2': str(tmp_path / 'a/call2.wav'),
        '3': str(tmp_path / 'a/call3.sph'),
    }


@pytest.mark.parametrize(
    'start, stop',
    (
        ('2', '1'),
        ('1', '1'),
        ('-1', '2'),
        ('nan', '2'),
        ('1', 'nan'),
        ('1', 'inf'),
        ('1', 'x'),
        ('', '2'),
        ('1.2.3', '2'),
    ),
)
def test_times_that_do_not_rise_are_refused_with_both(start, stop):
    with pytest.raises(ValueError) as error:
        stm.parse_times(start, stop)
    assert repr(start) in str(error.value) and repr(stop) in str(error.value)


def test_times_are_seconds():
    assert stm.parse_times('0', '1.25') == (0.0, 1.25)


def list_parts(folder, content, recordings):
    """Returns the parts of a transcript with this content, as bytes or text."""
    path = folder / 'text/call7.txt'
    path.parent.mkdir()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return stm.list_parts(str(path), str(folder), recordings, parse)


def test_parts_are_named_by_recording_and_times(tmp_path):
    audio = str(tmp_path / 'audio/call7.wav')
    [part] = list_parts(tmp_path, '\ufeff1.5 2.25 well then\r\n\r\n', {'7': audio})
    assert part == records.Utterance(
        audio, 'audio/call7.wav#1.50-2.25', 'well then', None, 1.5, 2.25, None
    )


def test_a_bad_line_is_named_by_file_and_number_and_the_others_stay(tmp_path):
    parts = list_parts(tmp_path, '0 1 one\n\n3 2 two\n4 5 four', {'7': 'call7.wav'})
    assert [part.transcript for part in parts] == ['one', '', 'four']
    assert [bool(part.exclusion_reason) for part in parts] == [False, True, False]
    assert parts[1].name == 'text/call7.txt:3' and 'line 3: ' in parts[1].exclusion_reason


def test_a_byte_that_is_not_utf8_leaves_the_other_lines_as_they_are(tmp_path):
    parts = list_parts(tmp_path, b'0 1 caf\xe9\n1 2 two\n', {'7': 'call7.wav'})
    assert [part.transcript for part in parts] == ['caf\ufffd', 'two']


def test_a_part_without_recording_has_an_exclusion_reason_that_names_it(tmp_path):
    [part] = list_parts(tmp_path, '1 2 one', {'8': 'call8.wav'})
    assert part.name == 'text/call7.txt#1.00-2.00'
    assert part.exclusion_reason == 'no audio file of recording 7'


def test_a_transcript_that_cannot_be_read_is_one_excluded_utterance(tmp_path):
    [part] = stm.list_parts(str(tmp_path / 'gone.txt'), str(tmp_path), {}, parse)
    assert (part.name, part.exclusion_reason) == (
        'gone.txt',
        'cannot be read: No such file or directory',
    )


def make_conversations(folder, numbers):
    """Writes transcripts of calls, one utterance each; returns [(key, path)] and {key: path of the
    audio}, which is not written."""
    keys = ['%03d' % number for number in numbers]
    paths = [
        (key, write_lines(folder / ('call%s.txt' % key), ['0 1 words of %s' % key])) for key in keys
    ]
    return paths, {key: str(folder / ('call%s.wav' % key)) for key in keys}


def test_of_a_hundred_conversations_the_last_two_are_for_dev_and_test(tmp_path):
    transcripts, recordings = make_conversations(tmp_path, range(1, 206))
    listing = stm.list_conversations(str(tmp_path), recordings, transcripts[::-1], parse)
    words = [[part.transcript for part in parts] for parts in listing]
    assert words[1] == ['words of 099', 'words of 199']
    assert words[2] == ['words of 100', 'words of 200']
    assert len(words[0]) == 201 and words[0][97:100] == [
        'words of 098',
        'words of 101',
        'words of 102',
    ]


def test_a_recording_without_transcript_is_named_in_the_training_set(tmp_path):
    transcripts, recordings = make_conversations(tmp_path, (1, 2))
    write_wav(tmp_path / 'call003.wav', [0])
    recordings['003'] = str(tmp_path / 'call003.wav')
    listing = stm.list_conversations(str(tmp_path), recordings, transcripts, parse)
    assert [len(parts) for parts in listing] == [3, 0, 0]
    assert listing.train[-1].name == 'call003.wav'
    assert listing.train[-1].exclusion_reason == 'no utterance of it in the transcripts'


def test_transcripts_of_one_conversation_stay_in_one_set(tmp_path):
    transcripts, recordings = make_conversations(tmp_path, range(1, 101))
    other = ('100', write_lines(tmp_path / 'b/call100.txt', ['2 3 the other speaker']))
    listing = stm.list_conversations(str(tmp_path), recordings, transcripts + [other], parse)
    assert [part.transcript for part in listing.test] == ['words of 100', 'the other speaker']
    assert len(listing.train) == 98 and len(listing.dev) == 1
