"""FSDD: words from names, the official split, held-out speakers."""

import os

import pytest

from corpora import check_against_index, list_corpus, read_corpus, read_index
from helpers import speech, write_wav
from util import errors
from util.corpora import fetch
from util.importers import fsdd

SPEAKERS = ('george', 'jackson', 'theo')


@pytest.fixture
def folder(tmp_path):
    """Digits 3 and 7 by three speakers, takes 0 to 11 of each."""
    samples = speech(0.4, rate=8000)
    for digit in (3, 7):
        for speaker in SPEAKERS:
            for take in range(12):
                write_wav(
                    tmp_path / 'recordings' / ('%d_%s_%d.wav' % (digit, speaker, take)),
                    samples,
                    8000,
                )
    return tmp_path


def listing(folder, **values):
    return list_corpus(fsdd, folder, **values)


def takes(utterances):
    """Returns {speaker: takes} of utterances; each take has to be there with both digits."""
    found = {}
    for utterance in utterances:
        digit, speaker, take = os.path.basename(utterance.name)[:-4].split('_')
        assert utterance.transcript == {'3': 'three', '7': 'seven'}[digit]
        found.setdefault(speaker, []).append(int(take))
    assert all(sorted(some) == sorted(2 * list(set(some))) for some in found.values())
    return {speaker: sorted(set(some)) for speaker, some in found.items()}


def of_all(some):
    return {speaker: list(some) for speaker in SPEAKERS}


def test_the_official_split(folder):
    assert [takes(part) for part in listing(folder)] == [
        of_all(range(10, 12)),
        of_all(range(5, 10)),
        of_all(range(5)),
    ]


def test_held_out_test_speakers(folder):
    train, dev, test = (
        takes(part) for part in listing(folder, fsdd_test_speakers=' theo, jackson')
    )
    assert test == {'theo': list(range(12)), 'jackson': list(range(12))}
    assert dev == {'george': list(range(5, 10))}
    assert train == {'george': [0, 1, 2, 3, 4, 10, 11]}


def test_held_out_test_and_dev_speakers(folder):
    train, dev, test = (
        takes(part)
        for part in listing(folder, fsdd_test_speakers='theo', fsdd_dev_speakers='jackson')
    )
    assert (train, dev, test) == (
        {'george': list(range(12))},
        {'jackson': list(range(12))},
        {'theo': list(range(12))},
    )


def test_held_out_dev_speakers(folder):
    train, dev, test = (takes(part) for part in listing(folder, fsdd_dev_speakers='george,'))
    assert dev == {'george': list(range(12))}
    assert test == {'jackson': list(range(5)), 'theo': list(range(5))}
    assert train == {'jackson': list(range(5, 12)), 'theo': list(range(5, 12))}


@pytest.mark.parametrize('setting', ('fsdd_test_speakers', 'fsdd_dev_speakers'))
def test_an_unknown_speaker_is_refused_and_the_known_ones_are_named(folder, setting):
    with pytest.raises(errors.DataError) as error:
        listing(folder, **{setting: 'theo,thea'})
    for words in ('ds_' + setting, 'thea', 'george, jackson, theo'):
        assert words in str(error.value)


def test_a_speaker_cannot_be_held_out_twice(folder):
    with pytest.raises(errors.DataError, match='both name theo'):
        listing(folder, fsdd_test_speakers='theo', fsdd_dev_speakers='george,theo')


@pytest.mark.parametrize('below, prefix', (('', 'recordings/'), ('recordings', '')))
def test_the_folder_is_the_repository_or_its_recordings(folder, below, prefix):
    test = listing(folder / below).test
    assert len(test) == 30
    assert test[0].name == prefix + '3_george_0.wav'
    assert test[0].wav_filename == str(folder / 'recordings' / '3_george_0.wav')


def test_files_with_other_names_are_named_and_hidden_ones_ignored(folder):
    write_wav(folder / 'recordings' / 'noise.wav', speech(0.4, rate=8000), 8000)
    write_wav(folder / 'recordings' / '._3_theo_0.wav', speech(0.4, rate=8000), 8000)
    utterances = [utterance for part in listing(folder) for utterance in part]
    assert len(utterances) == 73
    assert {
        utterance.name: utterance.exclusion_reason
        for utterance in utterances
        if utterance.exclusion_reason
    } == {'recordings/noise.wav': 'the name is not of the form {digit}_{speaker}_{take}.wav'}


def test_speakers_may_have_underscores_and_takes_many_digits(tmp_path):
    write_wav(tmp_path / 'recordings' / '0_a_b_104.wav', speech(0.4, rate=8000), 8000)
    train, dev, test = listing(tmp_path)
    assert [utterance.transcript for utterance in train] == ['zero'] and dev + test == []
    assert len(listing(tmp_path, fsdd_test_speakers='a_b').test) == 1


def test_it_is_fetched_where_there_is_none(tmp_path, monkeypatch):
    asked = []

    def put_recording(folder, marker, archives):
        asked.append((folder, marker, [archive.url for archive in archives]))
        write_wav(os.path.join(folder, marker, '9_theo_3.wav'), speech(0.4, rate=8000), 8000)

    monkeypatch.setattr(fetch, 'fetch_corpus', put_recording)
    [utterance] = listing(tmp_path / 'data').test
    assert utterance.name == 'free-spoken-digit-dataset-master/recordings/9_theo_3.wav'
    assert utterance.transcript == 'nine'
    assert asked == [
        (
            str(tmp_path / 'data'),
            'free-spoken-digit-dataset-master/recordings',
            [
                'https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/heads/master.zip'
            ],
        )
    ]


def test_real_recordings_agree_with_their_index(tmp_path, shared_data):
    sets = read_corpus(fsdd, shared_data('fsdd'), sample_rate=8000, cache_dir=tmp_path / 'cache')
    assert [len(data_set) for data_set in sets] == [1200, 300, 300]
    check_against_index(sets, read_index(shared_data, 'fsdd', 'fsdd'))
