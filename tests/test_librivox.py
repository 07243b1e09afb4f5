"""util.importers.librivox: LibriSpeech's tree, its subsets, what is missing in it."""

import os

import pytest
import soundfile

from corpora import check_against_index, list_corpus, read_corpus, read_index, write_lines
from helpers import PROJECT, RATE, load_config, speech
from util import errors
from util.importers import librivox


def write_chapter(above, subset, chapter, transcripts, audio=None):
    """Writes LibriSpeech/SUBSET/SPEAKER/CHAPTER below `above`, with a FLAC of 2 s an utterance.

    Args:
      chapter: 'SPEAKER-CHAPTER'.
      transcripts: lines of the transcript file without the chapter.
      audio: numbers of the utterances that have a FLAC; None is those of the transcripts.
    """
    folder = above / 'LibriSpeech' / subset / chapter.replace('-', os.sep)
    write_lines(
        folder / (chapter + '.trans.txt'), ['%s-%s' % (chapter, line) for line in transcripts]
    )
    for number in [line[:4] for line in transcripts] if audio is None else audio:
        soundfile.write(folder / ('%s-%s.flac' % (chapter, number)), speech(2.0, seed=1), RATE)
    return folder


def subsets(train='train-clean-100', dev='dev-clean', test='test-clean'):
    """Returns the settings that name the subsets of each set."""
    return dict(librivox_train=train, librivox_dev=dev, librivox_test=test)


def listed(folder, **names):
    return list_corpus(librivox, folder, **subsets(**names))


@pytest.fixture
def tree(tmp_path, fetched):
    """A folder with a corpus of four subsets."""
    write_chapter(tmp_path, 'train-clean-100', '84-121123', ['0000 GO DO YOU HEAR', '0001 BUT IN'])
    write_chapter(tmp_path, 'train-clean-100', '19-198', ['0000 NORTHANGER ABBEY'])
    write_chapter(tmp_path, 'train-other-500', '20-205', ["0000 IT'S THERE"])
    write_chapter(tmp_path, 'dev-clean', '174-50561', ['0000 FORGOTTEN TOO'])
    write_chapter(tmp_path, 'test-clean', '61-70968', ['0000 HE BEGAN'])
    return tmp_path


def test_subsets_and_transcripts(tree):
    listing = listed(tree, train='train-other-500, train-clean-100')
    assert [(u.name, u.transcript) for u in listing.train] == [
        ('LibriSpeech/train-other-500/20/205/20-205-0000.flac', "IT'S THERE"),
        ('LibriSpeech/train-clean-100/19/198/19-198-0000.flac', 'NORTHANGER ABBEY'),
        ('LibriSpeech/train-clean-100/84/121123/84-121123-0000.flac', 'GO DO YOU HEAR'),
        ('LibriSpeech/train-clean-100/84/121123/84-121123-0001.flac', 'BUT IN'),
    ]
    assert [u.transcript for u in listing.dev] == ['FORGOTTEN TOO']
    assert [u.transcript for u in listing.test] == ['HE BEGAN']
    for utterance in sum(listing, []):
        assert utterance.exclusion_reason is None
        assert os.path.samefile(utterance.wav_filename, tree / utterance.name)


def test_the_folder_librispeech_itself_does(tree, fetched):
    listing = listed(tree / 'LibriSpeech')
    assert [u.name for u in listing.dev] == ['dev-clean/174/50561/174-50561-0000.flac']
    assert os.path.isfile(listing.dev[0].wav_filename)
    assert all(folder == str(tree) for folder, _, _ in fetched)  # an archive holds LibriSpeech


def test_so_does_a_folder_of_subsets_with_another_name(tree):
    os.rename(tree / 'LibriSpeech', tree / 'libri')
    listing = listed(tree / 'libri')
    assert [u.name for u in listing.test] == ['test-clean/61/70968/61-70968-0000.flac']


def test_a_subset_in_two_sets_and_an_empty_setting(tree):
    listing = listed(tree, train='dev-clean,dev-clean', test='')
    assert listing.train == listing.dev and len(listing.train) == 1
    assert listing.test == []


def test_only_what_is_asked_for_is_fetched(tree, fetched):
    listed(tree, train='train-other-500')
    assert [(folder, marker) for folder, marker, _ in fetched] == [
        (str(tree), os.path.join('LibriSpeech', subset))
        for subset in ('train-other-500', 'dev-clean', 'test-clean')
    ]
    (archive,) = fetched[1][2]
    assert archive.url == 'https://www.openslr.org/resources/12/dev-clean.tar.gz'
    assert archive.size_bytes == 337926286 and len(archive.md5) == 32


def test_the_mini_subsets_come_from_another_place(tree, fetched):
    write_chapter(tree, 'dev-clean-2', '1-2', ['0000 A B'])
    listing = listed(tree, train='', dev='dev-clean-2')
    assert [u.transcript for u in listing.dev] == ['A B']
    assert fetched[0][2][0].url == 'https://www.openslr.org/resources/31/dev-clean-2.tar.gz'


def test_a_subset_that_cannot_be_had(tree, fetched):
    with pytest.raises(errors.DataError, match='subset test-other is not available: no network'):
        listed(tree, test='test-other')


@pytest.mark.parametrize('set_name', ['train', 'dev', 'test'])
def test_an_unknown_subset_is_refused_before_anything_is_fetched(tree, fetched, set_name):
    with pytest.raises(
        errors.DataError, match=r"ds_librivox_%s .*train-clean-5.*got 'dev-clear'" % set_name
    ):
        listed(tree, **{set_name: 'dev-clean,dev-clear'})
    assert not fetched


def test_a_subset_without_transcripts(tree):
    for path in (tree / 'LibriSpeech' / 'dev-clean').rglob('*.trans.txt'):
        path.unlink()
    with pytest.raises(errors.DataError, match='dev-clean holds no .trans.txt files'):
        listed(tree)


def test_what_is_missing_is_named_and_the_rest_used(tree):
    folder = write_chapter(
        tree,
        'dev-other',
        '7-8',
        ['0000 HERE', '0001 NO AUDIO', '0003', '0000 AGAIN'],
        audio=['0000', '0002', '0003'],
    )
    (folder / '._7-8-0000.flac').write_bytes(b'\0\5\26\7')
    listing = listed(tree, dev='dev-other')
    where = 'LibriSpeech/dev-other/7/8/7-8'
    assert [(u.name, u.transcript, u.exclusion_reason) for u in listing.dev] == [
        (where + '-0000.flac', 'HERE', None),
        (
            where + '-0001.flac',
            'NO AUDIO',
            'no such file, but a line for it in %s.trans.txt' % where,
        ),
        (where + '-0003.flac', '', None),
        (where + '-0000.flac', 'AGAIN', 'a second line for it in %s.trans.txt' % where),
        (where + '-0002.flac', None, 'no line for it in a .trans.txt file'),
    ]


def test_a_transcript_file_that_is_not_text_costs_its_chapter_only(tree):
    chapter = 'LibriSpeech/train-clean-100/84/121123/84-121123'
    (tree / (chapter + '.trans.txt')).write_bytes(b'84-121123-0000 \xff\xfe\n')
    listing = listed(tree)
    assert [u.transcript for u in listing.train if not u.exclusion_reason] == ['NORTHANGER ABBEY']
    assert {u.name for u in sum(listing, []) if u.exclusion_reason} == {
        chapter + ending for ending in ('.trans.txt', '-0000.flac', '-0001.flac')
    }


def test_data_sets_are_made_of_the_files_that_are_there(tree, caplog):
    os.remove(tree / 'LibriSpeech/train-clean-100/84/121123/84-121123-0001.flac')
    sets = read_corpus(librivox, tree, cache_dir=tree / 'cache', **subsets())
    assert [e.transcript for e in sets.train.examples] == ['northanger abbey', 'go do you hear']
    assert sets.train.seconds == 4.0
    assert 'excluded LibriSpeech/train-clean-100/84/121123/84-121123-0001.flac: no such file' in (
        caplog.text
    )


def test_real_speech_agrees_with_its_index(tmp_path, shared_data, fetched):
    folder = shared_data('LibriSpeech').parent
    sets = read_corpus(
        librivox, folder, cache_dir=tmp_path / 'cache', **subsets(train='test-other')
    )
    assert [len(data_set) for data_set in sets] == [50, 2, 1]
    check_against_index(sets, read_index(shared_data, 'LibriSpeech'))


def test_the_recipe_for_the_papers_network_holds_settings():
    config = load_config(
        importer='librivox', config=os.path.join(PROJECT, 'data', 'librivox', 'config.json')
    )
    assert (config.rnn, config.n_hidden, config.n_features, config.dropout_rate) == (
        'vanilla',
        2048,
        494,
        0,
    )
    assert (config.clip_grad_norm, config.learning_rate) == (400, 0.0003)
