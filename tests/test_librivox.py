"""util.importers.librivox: LibriSpeech's tree, its subsets, what is missing in it."""
import csv
import os

import pytest
import soundfile
from conftest import PROJECT, RATE, load_config, speech

from util import errors, text
from util.importers import librivox

SHARED = os.path.join(PROJECT, '..', 'shared', 'data')


def write_chapter(above, subset, chapter, transcripts, audio=None):
    """LibriSpeech/SUBSET/SPEAKER/CHAPTER below `above`, with a FLAC of 2 s an utterance.

    Args:
      chapter: 'SPEAKER-CHAPTER'.
      transcripts: lines of the transcript file without the chapter.
      audio: numbers of the utterances that have a FLAC; None is those of the transcripts.
    """
    folder = above / 'LibriSpeech' / subset / chapter.replace('-', os.sep)
    folder.mkdir(parents=True)
    lines = ['%s-%s\n' % (chapter, line) for line in transcripts]
    (folder / (chapter + '.trans.txt')).write_text(''.join(lines))
    for number in [line[:4] for line in transcripts] if audio is None else audio:
        soundfile.write(folder / ('%s-%s.flac' % (chapter, number)), speech(2.0, seed=1), RATE)
    return folder


def settings(tmp_path, train='train-clean-100', dev='dev-clean', test='test-clean'):
    return load_config(importer='librivox', cache_dir=tmp_path / 'cache', librivox_train=train,
                       librivox_dev=dev, librivox_test=test)


def read_index(corpus_name):
    """{file: row} of a corpus in the shared speech data; skips the test where it is absent."""
    path = os.path.join(SHARED, 'index.tsv')
    if not os.path.exists(path):
        pytest.skip('no shared speech data')
    with open(path, encoding='utf-8') as file:
        rows = csv.DictReader(file, delimiter='\t', quoting=csv.QUOTE_NONE)
        return {row['file']: row for row in rows if row['set'] == corpus_name}


@pytest.fixture
def tree(tmp_path, fetched):
    """A corpus of four subsets in a folder of the test's own."""
    write_chapter(tmp_path, 'train-clean-100', '84-121123', ['0000 GO DO YOU HEAR', '0001 BUT IN'])
    write_chapter(tmp_path, 'train-clean-100', '19-198', ['0000 NORTHANGER ABBEY'])
    write_chapter(tmp_path, 'train-other-500', '20-205', ["0000 IT'S THERE"])
    write_chapter(tmp_path, 'dev-clean', '174-50561', ['0000 FORGOTTEN TOO'])
    write_chapter(tmp_path, 'test-clean', '61-70968', ['0000 HE BEGAN'])
    return tmp_path


def test_subsets_and_transcripts(tree):
    listing = librivox.list_utterances(str(tree), settings(
        tree, train='train-other-500, train-clean-100'))
    assert [(u.name, u.transcript) for u in listing.train] == [
        ('LibriSpeech/train-other-500/20/205/20-205-0000.flac', "IT'S THERE"),
        ('LibriSpeech/train-clean-100/19/198/19-198-0000.flac', 'NORTHANGER ABBEY'),
        ('LibriSpeech/train-clean-100/84/121123/84-121123-0000.flac', 'GO DO YOU HEAR'),
        ('LibriSpeech/train-clean-100/84/121123/84-121123-0001.flac', 'BUT IN')]
    assert [u.transcript for u in listing.dev] == ['FORGOTTEN TOO']
    assert [u.transcript for u in listing.test] == ['HE BEGAN']
    for utterance in sum(listing, []):
        assert utterance.exclusion_reason is None
        assert os.path.samefile(utterance.wav_filename, tree / utterance.name)


def test_the_folder_librispeech_itself_does(tree, fetched):
    listing = librivox.list_utterances(str(tree / 'LibriSpeech'), settings(tree))
    assert [u.name for u in listing.dev] == ['dev-clean/174/50561/174-50561-0000.flac']
    assert os.path.isfile(listing.dev[0].wav_filename)
    assert all(folder == str(tree) for folder, _, _ in fetched)  # an archive holds LibriSpeech


def test_so_does_a_folder_of_subsets_with_another_name(tree):
    os.rename(tree / 'LibriSpeech', tree / 'libri')
    listing = librivox.list_utterances(str(tree / 'libri'), settings(tree))
    assert [u.name for u in listing.test] == ['test-clean/61/70968/61-70968-0000.flac']


def test_a_subset_in_two_sets_and_an_empty_setting(tree):
    listing = librivox.list_utterances(str(tree), settings(
        tree, train='dev-clean,dev-clean', test=''))
    assert listing.train == listing.dev and len(listing.train) == 1
    assert listing.test == []


def test_only_what_is_asked_for_is_fetched(tree, fetched):
    librivox.list_utterances(str(tree), settings(tree, train='train-other-500'))
    assert [(folder, marker) for folder, marker, _ in fetched] == [
        (str(tree), os.path.join('LibriSpeech', subset))
        for subset in ('train-other-500', 'dev-clean', 'test-clean')]
    archive, = fetched[1][2]
    assert archive.url == 'https://www.openslr.org/resources/12/dev-clean.tar.gz'
    assert archive.size_bytes == 337926286 and len(archive.md5) == 32


def test_the_mini_subsets_come_from_another_place(tree, fetched):
    write_chapter(tree, 'dev-clean-2', '1-2', ['0000 A B'])
    listing = librivox.list_utterances(str(tree), settings(tree, train='', dev='dev-clean-2'))
    assert [u.transcript for u in listing.dev] == ['A B']
    assert fetched[0][2][0].url == 'https://www.openslr.org/resources/31/dev-clean-2.tar.gz'


def test_a_subset_that_cannot_be_had(tree, fetched):
    with pytest.raises(errors.DataError, match='subset test-other cannot be had: no network'):
        librivox.list_utterances(str(tree), settings(tree, test='test-other'))


@pytest.mark.parametrize('set_name', ['train', 'dev', 'test'])
def test_an_unknown_subset_is_refused_before_anything_is_fetched(tree, fetched, set_name):
    with pytest.raises(errors.DataError, match=r"ds_librivox_%s .*train-clean-5.*got 'dev-clear'"
                       % set_name):
        librivox.list_utterances(str(tree), settings(tree, **{set_name: 'dev-clean,dev-clear'}))
    assert not fetched


def test_a_subset_without_transcripts(tree):
    for path in (tree / 'LibriSpeech' / 'dev-clean').rglob('*.trans.txt'):
        path.unlink()
    with pytest.raises(errors.DataError, match='dev-clean holds no .trans.txt files'):
        librivox.list_utterances(str(tree), settings(tree))


def problems(listing):
    return {u.name: u.exclusion_reason for u in sum(listing, []) if u.exclusion_reason}


def test_what_is_missing_is_named_and_the_rest_used(tree):
    folder = write_chapter(tree, 'dev-other', '7-8',
                           ['0000 HERE', '0001 NO AUDIO', '0003', '0000 AGAIN'],
                           audio=['0000', '0002', '0003'])
    (folder / '._7-8-0000.flac').write_bytes(b'\0\5\26\7')
    listing = librivox.list_utterances(str(tree), settings(tree, dev='dev-other'))
    where = 'LibriSpeech/dev-other/7/8/7-8'
    assert [(u.name, u.transcript, u.exclusion_reason) for u in listing.dev] == [
        (where + '-0000.flac', 'HERE', None),
        (where + '-0001.flac', 'NO AUDIO', 'no such file, but a line for it in %s.trans.txt'
         % where),
        (where + '-0003.flac', '', None),
        (where + '-0000.flac', 'AGAIN', 'a second line for it in %s.trans.txt' % where),
        (where + '-0002.flac', None, 'no line for it in a .trans.txt file')]


def test_a_transcript_file_that_is_not_text_costs_its_chapter_only(tree):
    chapter = 'LibriSpeech/train-clean-100/84/121123/84-121123'
    (tree / (chapter + '.trans.txt')).write_bytes(b'84-121123-0000 \xff\xfe\n')
    listing = librivox.list_utterances(str(tree), settings(tree))
    assert [u.transcript for u in listing.train if not u.exclusion_reason] == ['NORTHANGER ABBEY']
    assert set(problems(listing)) == {chapter + ending for ending in (
        '.trans.txt', '-0000.flac', '-0001.flac')}


def test_data_sets(tree, caplog):
    os.remove(tree / 'LibriSpeech/train-clean-100/84/121123/84-121123-0001.flac')
    sets = librivox.read_data_sets(str(tree), settings(tree), text.Alphabet())
    assert [e.transcript for e in sets.train.examples] == ['northanger abbey', 'go do you hear']
    assert sets.train.seconds == 4.0
    assert 'excluded LibriSpeech/train-clean-100/84/121123/84-121123-0001.flac: no such file' in (
        caplog.text)


def test_real_speech_agrees_with_its_index(tmp_path, fetched):
    rows = read_index('LibriSpeech')
    config = settings(tmp_path, train='test-other')
    sets = librivox.read_data_sets(SHARED, config, text.Alphabet())
    assert [len(data_set) for data_set in sets] == [50, 2, 1] and len(rows) == 53
    found = {e.utterance.name: e for data_set in sets for e in data_set.examples}
    assert {name: e.transcript for name, e in found.items()} == {
        name: row['text'] for name, row in rows.items()}
    for name, row in rows.items():
        assert found[name].seconds == pytest.approx(float(row['seconds']), abs=0.01)


def test_the_recipe_for_the_papers_network_holds_settings():
    config = load_config(importer='librivox',
                         config=os.path.join(PROJECT, 'data', 'librivox', 'config.json'))
    assert (config.rnn, config.n_hidden, config.n_features, config.dropout_rate) == (
        'vanilla', 2048, 494, 0)
    assert (config.clip_grad_norm, config.learning_rate) == (400, 0.0003)
