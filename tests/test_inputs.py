"""util.recognition.inputs: what a command line names."""

import pathlib

import pytest

from helpers import write_manifest
from util import text
from util.recognition import inputs


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """A function that lists the tasks of arguments in the test's folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: inputs.list_tasks([*arguments], text.Alphabet(), 'copy')


def touch(*paths):
    """Makes empty files, and the folders they are in."""
    for path in paths:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).touch()


def test_files_folders_and_the_standard_input_in_the_order_given(listed):
    touch('in/b.wav', 'in/deep/a.FLAC', 'in/notes.txt', 'in/._b.wav', 'in/c.m4a', 'z.wav')
    tasks = listed('z.wav', 'in', '-', 'absent.wav', 'z.wav')
    assert [task.utterance.name for task in tasks] == [
        *('z.wav', 'in/b.wav', 'in/c.m4a', 'in/deep/a.FLAC', '-', 'absent.wav', 'z.wav')
    ]
    assert [task.utterance.wav_filename for task in tasks][4] == 'copy'
    assert not any(task.utterance.exclusion_reason or task.manifest for task in tasks)


def test_a_folder_without_audio(listed):
    touch('texts/a.txt')
    [task] = listed('texts')
    assert task.utterance.name == 'texts'
    assert task.utterance.exclusion_reason == 'a folder without audio files'


def test_a_folder_may_be_called_like_a_manifest(listed):
    touch('digits.csv/a.wav')
    [task] = listed('digits.csv')
    assert task.utterance.name == 'digits.csv/a.wav' and task.manifest is None


def test_manifests(listed):
    touch('m/a.wav')
    write_manifest('m/test.csv', [('a.wav', 'Well then'), ('b.wav', ''), ('c.wav', 'room 42')])
    pathlib.Path('m/parts.jsonl').write_text(
        '{"audio_filepath": "a.wav", "offset": 1, "duration": 2.5, "text": "one"}\nnonsense\n'
    )
    first, second, third, part, broken = listed('m/test.csv', 'm/parts.jsonl')
    assert first.utterance.wav_filename == 'm/a.wav' and first.utterance.name == 'a.wav'
    assert first[1:] == ('m/test.csv', 'well then', None)
    assert second[1:] == ('m/test.csv', None, 'empty transcript')
    assert third.reference is None
    assert third.no_reference.startswith("characters outside the alphabet: '4' (U+0034)")
    assert (part.utterance.start_s, part.utterance.stop_s) == (1, 3.5)
    assert part.reference == 'one'
    assert broken.utterance.exclusion_reason.startswith('not JSON')


@pytest.mark.parametrize(
    'content, reason',
    (
        (b'audio,text\n', 'its first line must name the columns'),
        (b'wav_filename,transcript\n', 'a manifest without utterances'),
        (b'\xff\xfe', 'is not CSV in UTF-8'),
        (None, 'cannot be read'),
    ),
)
def test_a_manifest_that_cannot_be_used_is_named_and_the_rest_is_listed(listed, content, reason):
    if content is not None:
        pathlib.Path('bad.csv').write_bytes(content)
    bad, good = listed('bad.csv', 'a.wav')
    assert bad.utterance.name == 'bad.csv' and reason in bad.utterance.exclusion_reason
    assert good.utterance.exclusion_reason is None
