"""TIMIT: upper- and lower-case trees, SPHERE and WAV, sa sentences, who is in which set."""

import collections
import os
import shutil

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
from helpers import speech, write_wav
from util import errors
from util.importers import timit

SENTENCES = ('SA1', 'SI648', 'SX18')
WORDS = {
    'SA1': 'She had your dark suit.',
    'SI648': 'A sailboat may have a bone.',
    'SX18': 'Critical equipment needs proper maintenance.',
}
DIALECT_OF = {'FCJF0': 'DR1', 'MDAB0': 'DR1', 'FAKS0': 'DR1', 'FELC0': 'DR1', 'MTAS1': 'DR2'}


def write_timit_sphere(path, samples):
    """Writes a SPHERE file with the header fields that TIMIT's have."""
    write_sphere(
        path,
        samples,
        16000,
        coding='',
        extra=[
            'database_id -s5 TIMIT',
            'database_version -s3 1.0',
            'utterance_id -s8 cjf0_sa1',
            'sample_min -i %d' % samples.min(),
            'sample_max -i %d' % samples.max(),
        ],
    )


def write_speaker(root, tree, speaker, lower=False, sentences=SENTENCES):
    """Writes a speaker's sentences in the disc's layout; returns the speaker's folder."""
    place = os.path.join(tree, DIALECT_OF.get(speaker, 'DR8'), speaker)
    folder = root / (place.lower() if lower else place)
    for i, sentence in enumerate(sentences):
        names = [sentence + ending for ending in ('.WAV', '.TXT', '.PHN')]
        wav, txt, phn = [name.lower() if lower else name for name in names]
        write_timit_sphere(folder / wav, speech(1 + 0.1 * i, seed=i))
        write_lines(folder / txt, ['0 %d %s ' % (16000, WORDS[sentence])])
        write_lines(folder / phn, ['0 2260 h#'])
    return folder


def listing(folder, **values):
    return list_corpus(timit, folder, **values)


def names(utterances):
    return [utterance.name for utterance in utterances]


def speakers(utterances):
    return sorted({utterance.name.split('/')[-2].upper() for utterance in utterances})


@pytest.mark.parametrize('place', ('', 'TIMIT', 'timit', 'data', 'timit/TIMIT'))
@pytest.mark.parametrize('lower', (False, True))
def test_both_cases_of_the_tree_are_found_below_the_folder(tmp_path, place, lower):
    write_speaker(tmp_path / place, 'TRAIN', 'FCJF0', lower)
    write_speaker(tmp_path / place, 'TEST', 'MDAB0', lower)
    train, dev, test = listing(tmp_path)
    expected = ['TRAIN/DR1/FCJF0/SI648.WAV', 'TRAIN/DR1/FCJF0/SX18.WAV']
    assert names(train) == [
        os.path.join(place, name.lower() if lower else name) for name in expected
    ]
    assert [utterance.transcript.strip() for utterance in train] == [WORDS['SI648'], WORDS['SX18']]
    assert speakers(test) == ['MDAB0'] and len(test) == 2 and dev == []
    samples, rate = soundfile.read(train[1].wav_filename, dtype='int16')
    assert rate == 16000
    np.testing.assert_array_equal(samples, speech(1.2, seed=2))


def test_sa_sentences_come_with_the_setting_only(tmp_path):
    write_speaker(tmp_path, 'TRAIN', 'FCJF0')
    assert names(listing(tmp_path, timit_sa=True).train) == [
        'TRAIN/DR1/FCJF0/SA1.WAV',
        'TRAIN/DR1/FCJF0/SI648.WAV',
        'TRAIN/DR1/FCJF0/SX18.WAV',
    ]
    assert len(listing(tmp_path).train) == 2


@pytest.mark.parametrize('copy', ('SX18.WAV.wav', 'SX18.wav', 'A_SX18'))
def test_of_several_copies_the_wav_one_is_taken_once(tmp_path, copy):
    folder = write_speaker(tmp_path, 'TRAIN', 'FCJF0', sentences=('SX18',))
    if copy == 'A_SX18':  # the other way round: the first name holds WAV
        os.rename(folder / 'SX18.WAV', folder / 'SX18.WAV.wav')
        copy = 'SX18.WAV'
    write_wav(folder / copy, speech(1))
    write_wav(folder / '._SX18.WAV', speech(1))
    assert len(list(folder.glob('SX18*'))) == 4
    assert names(listing(tmp_path).train) == ['TRAIN/DR1/FCJF0/' + copy]


def test_the_core_test_set_is_the_test_and_the_other_test_speakers_validate(tmp_path):
    for tree, speaker in (
        ('TRAIN', 'FCJF0'),
        ('TEST', 'FAKS0'),
        ('TEST', 'MDAB0'),
        ('TEST', 'FELC0'),
        ('TEST', 'MTAS1'),
    ):
        write_speaker(tmp_path, tree, speaker)
    train, dev, test = listing(tmp_path)
    assert (speakers(train), speakers(dev), speakers(test)) == (
        ['FCJF0'],
        ['FAKS0'],
        ['FELC0', 'MDAB0', 'MTAS1'],
    )
    assert [len(part) for part in (train, dev, test)] == [2, 2, 6]


@pytest.mark.parametrize('tested', (['MDAB0', 'FELC0'], ['FAKS0', 'MAAA0']))
@pytest.mark.parametrize('n_train, held_out', ((9, []), (10, ['M009']), (20, ['M009', 'M019'])))
def test_where_test_cannot_be_divided_training_speakers_validate(
    tmp_path, tested, n_train, held_out
):
    for i in range(n_train):
        write_speaker(tmp_path, 'TRAIN', 'M%03d' % i, sentences=['SX18'])
    for speaker in tested:
        write_speaker(tmp_path, 'TEST', speaker, sentences=['SX18'])
    train, dev, test = listing(tmp_path)
    assert speakers(dev) == held_out and len(train) == n_train - len(held_out)
    assert not set(speakers(train)) & set(held_out) and speakers(test) == sorted(tested)


def test_the_core_test_set_has_two_men_and_a_woman_of_each_of_eight_dialects():
    assert collections.Counter(name[0] for name in timit.CORE_TEST) == {'m': 16, 'f': 8}


def test_sentences_without_audio_or_transcript_are_named_and_the_others_stay(tmp_path):
    folder = write_speaker(tmp_path, 'TRAIN', 'FCJF0')
    os.remove(folder / 'SX18.WAV')
    os.remove(folder / 'SI648.TXT')
    (folder / 'SA1.TXT').write_text('<html>')
    (folder / 'notes.txt').write_text('no sentence')
    train = listing(tmp_path, timit_sa=True).train
    assert [(utterance.name.split('/')[-1], utterance.exclusion_reason) for utterance in train] == [
        ('SA1.WAV', '%s must hold "<first sample> <last sample> <words>"' % (folder / 'SA1.TXT')),
        ('SI648.WAV', 'no transcript (.TXT) beside it'),
        ('SX18.TXT', 'no audio (.WAV) beside it'),
    ]


@pytest.mark.parametrize(
    'folder, words', (('nowhere', 'which is not a folder'), ('', 'holds neither TRAIN nor TEST'))
)
def test_it_is_never_fetched_and_the_message_says_where_it_can_be_had(tmp_path, folder, words):
    with pytest.raises(errors.DataError) as error:
        listing(tmp_path / folder)
    for expected in (words, 'LDC93S1', 'ds_dataset_path', str(tmp_path / folder)):
        assert expected in str(error.value)


def test_real_recordings_in_the_disc_s_layout_agree_with_their_index(tmp_path, shared_data):
    corpus, rows = 'timit_nltk_sample', {}
    for path, row in read_index(shared_data, corpus, corpus).items():
        # dr1-fvmh0/sa1.wav becomes TIMIT/TEST/DR1/FVMH0/SA1.WAV
        place = tmp_path.joinpath('TIMIT', 'TEST', *os.path.dirname(path).upper().split('-'))
        place.mkdir(parents=True, exist_ok=True)
        for file in (path, path.replace('.wav', '.txt')):
            shutil.copy(shared_data(corpus, file), place / os.path.basename(file).upper())
        rows[str(place.relative_to(tmp_path) / os.path.basename(path).upper())] = row
    for with_sa, count in ((True, 160), (False, 128)):
        sets = read_corpus(timit, tmp_path, timit_sa=with_sa, cache_dir=tmp_path / 'cache')
        assert [len(data_set) for data_set in sets] == [0, 0, count]
        check_against_index(
            sets,
            {
                name: row
                for name, row in rows.items()
                if with_sa or not os.path.basename(name).startswith('SA')
            },
        )
