"""util.augmentation.augmenter, and how data sets read with it."""

import concurrent.futures
import itertools
import os

import numpy as np
import pytest

from feeding_helpers import Graph
from helpers import load_config, speech, write_wav
from util import audio, config as settings, errors, records, text
from util.augment_setting import AUGMENTATIONS, with_defaults
from util.augmentation import augmenter, stored_samples
from util.feeding import data_sets, linked

WORDS = ('one two', 'go', 'we all sleep', 'blue sky', 'good day')
RECIPE = (
    'speed[p=0.5,factor=1~0.2] pitch[p=0.5] overlay[source=pink,snr=20~10] vtlp[factor=1~0.15] '
    'frequency_mask time_mask add[p=0.5]'
)


@pytest.fixture(scope='module')
def wavs(tmp_path_factory):
    """A folder with five utterances of unequal length."""
    folder = tmp_path_factory.mktemp('wavs')
    for i in range(len(WORDS)):
        write_wav(folder / ('%d.wav' % i), speech(0.5 + 0.11 * i, seed=i))
    return folder


def sets_of(folder, augment=RECIPE, cache=None, listed=None, **values):
    """Returns DataSets of all utterances in each of the three sets."""
    config = load_config(
        **{'cache_dir': str(cache or folder / 'cache'), 'n_context': 2, **values}, augment=augment
    )
    names = ['%d.wav' % i for i in range(len(WORDS))] if listed is None else listed
    rows = [
        records.Utterance(os.path.join(folder, name), name, WORDS[int(name[0])]) for name in names
    ]
    augmentation = augmenter.Augmenter(config) if augment else None
    listing = records.Listing(rows, rows, rows)
    return data_sets.make_data_sets(config, text.Alphabet(), listing, augmentation)


def read_all(data_set, epoch=0):
    return [data_set.read(index, epoch)[0] for index in range(len(data_set))]


def same(one, other):
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def test_an_epoch_is_the_same_in_any_order_and_in_threads(wavs):
    expected = read_all(sets_of(wavs).train, 3)
    train = sets_of(wavs).train
    backwards = [train.read(index, 3)[0] for index in reversed(range(5))][::-1]
    assert same(backwards, expected)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        pairs = list(itertools.product((2, 3, 4), range(5)))
        found = dict(zip(pairs, pool.map(lambda pair: train.read(pair[1], pair[0])[0], pairs)))
    assert same([found[3, index] for index in range(5)], expected)
    assert not same([found[2, index] for index in range(5)], expected)


def test_another_epoch_and_another_seed_draw_anew(wavs):
    first = read_all(sets_of(wavs).train, 0)
    assert not any(map(np.array_equal, first, read_all(sets_of(wavs).train, 1)))
    assert not any(map(np.array_equal, first, read_all(sets_of(wavs, random_seed=1).train, 0)))


def test_another_place_or_selection_of_the_corpus_draws_the_same(wavs, tmp_path):
    for i in range(1, 5):
        write_wav(tmp_path / ('%d.wav' % i), speech(0.5 + 0.11 * i, seed=i))
    moved = sets_of(tmp_path, listed=['1.wav', '2.wav', '3.wav', '4.wav']).train
    assert same(read_all(moved), read_all(sets_of(wavs).train)[1:])


def test_the_same_utterance_listed_twice_draws_twice(wavs):
    train = sets_of(wavs, listed=['0.wav', '0.wav']).train
    assert not np.array_equal(train.read(0)[0], train.read(1)[0])
    assert same(read_all(train)[:1], read_all(sets_of(wavs).train)[:1])


def test_the_same_item_twice_draws_twice(wavs):
    once, twice = (sets_of(wavs, text).train.read(0)[0] for text in ('add', 'add add'))
    clean = sets_of(wavs, '').train.read(0)[0]
    assert not np.allclose(twice - clean, 2 * (once - clean), atol=0.1)


def test_parts_of_the_set_draw_as_the_whole(wavs):
    train = sets_of(wavs).train
    whole = read_all(train)
    part = train.up_to(train.examples[2].n_steps)
    assert 0 < len(part) < 5
    assert same(read_all(part), whole[: len(part)])


def test_dev_and_test_are_as_without(wavs, tmp_path):
    clean = read_all(sets_of(wavs, '', tmp_path / 'a').dev)
    sets = sets_of(wavs, RECIPE, tmp_path / 'b')
    for epoch in (0, 1):
        assert not any(map(np.array_equal, read_all(sets.train, epoch), clean))
    assert same(read_all(sets.dev, 1), clean) and same(read_all(sets.test), clean)


@pytest.mark.parametrize('augment', (RECIPE, 'add', 'time_mask[domain=features]', 'speed[p=0.5]'))
def test_no_augmented_features_get_into_the_cache(wavs, tmp_path, augment):
    sets = sets_of(wavs, augment, tmp_path)
    for epoch in range(3):
        read_all(sets.train, epoch)
    sets.train.features.flush()
    clean = read_all(sets_of(wavs, '', feature_cache=False).train)
    assert same(read_all(sets_of(wavs, '', tmp_path).train), clean)


def test_what_acts_on_features_uses_the_cache(wavs, tmp_path, monkeypatch):
    sets_of(wavs, '', tmp_path)
    first = sets_of(wavs, 'add multiply[domain=features]', tmp_path).train
    expected = read_all(first)
    first.features.flush()
    monkeypatch.setattr(audio, 'read_audio', None)
    assert same(read_all(sets_of(wavs, 'add multiply[domain=features]', tmp_path).train), expected)


def test_audio_is_decoded_once(wavs, monkeypatch):
    train = sets_of(wavs, 'volume[dbfs=-10]').train
    expected = read_all(train)
    monkeypatch.setattr(audio, 'read_audio', None)
    assert same(read_all(train, 1), expected)


def test_what_does_not_happen_changes_nothing(wavs):
    never = ' '.join('%s[p=0%s]' % (n, ',source=pink' * (n == 'overlay')) for n in AUGMENTATIONS)
    assert same(read_all(sets_of(wavs, never).train), read_all(sets_of(wavs, '').train))


def test_without_changes_computed_features_are_the_clean_ones_in_single_precision(wavs):
    for same_as in ('vtlp[factor=1]', 'speed[factor=1]', 'frequency_mask[n=0]'):
        for one, other in zip(
            read_all(sets_of(wavs, same_as).train), read_all(sets_of(wavs, '').train)
        ):
            np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize('name', AUGMENTATIONS)
def test_each_augmentation_alone_changes_the_features_and_leaves_them_usable(wavs, name):
    written = {'volume': 'volume[dbfs=-30]'}.get(name, with_defaults(name))
    clean, found = (read_all(sets_of(wavs, augment).train) for augment in ('', written))
    assert not any(map(np.array_equal, clean, found))
    assert all(np.isfinite(each).all() and each.dtype == np.float32 for each in found)


@pytest.mark.parametrize('written', ('speed[factor=2.5]', 'tempo[factor=2.5] speed[factor=2]'))
@pytest.mark.parametrize('stride', (1, 2, 3))
def test_no_utterance_becomes_too_short_for_its_transcript(tmp_path, caplog, written, stride):
    need = text.required_steps('aabbcc')
    window, step = audio.window_and_step(16000)
    longest = window + (need * stride + 4) * step
    shortest = augmenter.shortest_signal('aabbcc', 16000, stride)
    for name, length in (('a.wav', longest), ('b.wav', shortest)):
        write_wav(tmp_path / name, speech(1.0)[:length])
    config = load_config(augment=written, feature_stride=stride, cache_dir=str(tmp_path / 'cache'))
    rows = [records.Utterance(str(tmp_path / name), name, 'aabbcc') for name in ('a.wav', 'b.wav')]
    train = data_sets.make_data_sets(
        config, text.Alphabet(), records.Listing(rows, [], []), augmenter.Augmenter(config)
    ).train
    lengths = [len(train.read(index)[0]) - 18 for index in (0, 1)]
    assert lengths == [need, need] or (need <= lengths[0] <= need + 1 and lengths[1] == need)
    assert not caplog.messages


def test_shortest_signal_has_just_enough_steps():
    for transcript in ('a', 'ab', 'aab', 'hello there'):
        for stride in (1, 2, 3):
            for rate in (8000, 16000, 22050):
                enough = augmenter.shortest_signal(transcript, rate, stride)
                need = text.required_steps(transcript)
                assert audio.n_steps(enough, rate, stride) == need
                assert need == 1 or audio.n_steps(enough - 1, rate, stride) < need


def test_an_utterance_that_cannot_be_read_is_excluded_as_ever(wavs, tmp_path, caplog):
    write_wav(tmp_path / '0.wav', speech(0.5))
    train = sets_of(tmp_path, listed=['0.wav']).train
    os.remove(tmp_path / '0.wav')
    assert train.read(0) is None and train.read(0, 1) is None
    assert [m for m in caplog.messages if m.startswith('excluded 0.wav: cannot be read')]


# The share of the training that is done


def linked_sets(**values):
    """Returns two linked DataSets of 7 and 3 utterances, in batches of 2."""
    config = load_config(batch_size=2, **values)
    examples = [records.Example(records.Utterance('x', 'x%d' % i), 'a', 9, 0.1) for i in range(10)]
    parts = [
        data_sets.DataSet('train', examples[:7], config),
        data_sets.DataSet('train', examples[7:], config),
    ]
    linked.LinkedSets(parts, [1.0, 1.0], config)
    return parts


def test_the_share_is_that_of_the_epochs_of_all_stages():
    config = load_config(epochs=4, segment_lengths='10,full')
    data_set = data_sets.DataSet('train', [], config)
    assert [data_set.share(epoch) for epoch in (0, 2, 4, 8, 99)] == [0, 0.25, 0.5, 1, 1]
    assert data_sets.DataSet('train', [], load_config(epochs=0)).share(0) == 0


def test_the_share_of_a_small_linked_corpus_grows_as_that_of_the_large_one():
    large, small = linked_sets(epochs=3)  # 4 batches and 2: two laps an epoch
    assert [large.share(epoch) for epoch in (0, 1, 2)] == pytest.approx([0, 1 / 3, 2 / 3])
    assert [small.share(epoch) for epoch in (0, 2, 4)] == pytest.approx([0, 1 / 3, 2 / 3])


def test_values_move_with_the_epochs(wavs):
    train = sets_of(wavs, 'volume[dbfs=-3:-43]', epochs=4).train
    levels = []
    for epoch in range(4):
        augmentation = train.augmentation
        frames = augmentation.features(train.examples[0], (epoch, 0), train.share(epoch), None)
        levels.append(frames[:, 0].mean())
    np.testing.assert_allclose(np.diff(levels), -10 * np.log(10) / 10, atol=1e-3)  # 10 dB each


def test_the_feeder_hands_over_the_epoch(wavs):
    train = sets_of(wavs, batch_size=5).train
    with Graph(train) as graph:
        feeding = graph.feed(first_epoch=2, n_epochs=2)
        for epoch in (2, 3):
            (step,) = feeding.epoch()
            batch = graph.take(5)
            order = train.order(epoch)[0]
            for row, length, index in zip(batch.features, batch.seq_len, order):
                expected = train.read(index, epoch)[0]
                assert np.array_equal(row[: length + 4], expected) and not row[length + 4 :].any()


# Checks


def test_a_codec_needs_a_rate_that_it_has():
    for written, words in (('codec', 'mp3 needs'), ('codec[format=opus]', 'opus needs')):
        config = load_config(augment=written, sample_rate=10000)
        with pytest.raises(
            errors.ConfigError, match='^ds_augment: codec: format ' + words
        ) as raised:
            augmenter.Augmenter(config)
        assert '16000' in str(raised.value) and 'got 10000' in str(raised.value)


def test_the_memory_is_that_of_the_setting(monkeypatch):
    given = []
    monkeypatch.setattr(
        stored_samples.StoredSamples, '__init__', lambda self, rate, gb: given.append((rate, gb))
    )
    augmenter.Augmenter(load_config(augment='speed', augment_cache_gb=0.25))
    assert given == [(16000, 0.25)]
    assert settings.Config.augment_cache_gb == 1.0
