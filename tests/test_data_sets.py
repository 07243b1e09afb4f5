"""Data sets: the order of utterances, what is excluded, limits, stages, linked corpora."""

import dataclasses
import logging
import random

import numpy as np
import pytest

from feeding_helpers import LENGTHS, ORDERS, build_sets, exclusions, flat, make_set, names
from helpers import load_config, speech, write_wav
from util import audio, errors, records, text
from util.feeding import data_sets

# The order


@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('set_name', records.SET_NAMES)
def test_order_of_each_epoch_is_a_permutation(order, set_name):
    data_set = make_set(LENGTHS, set_name, batch_order=order, batch_size=4, numbuckets=3)
    for epoch in range(5):
        assert sorted(flat(data_set.order(epoch))) == list(range(13))


@pytest.mark.parametrize('order', ORDERS)
def test_order_depends_on_seed_and_epoch_alone(order):
    one, other = (make_set(LENGTHS, batch_order=order, batch_size=4) for _ in range(2))
    forward = [one.order(epoch) for epoch in range(4)]
    np.random.seed(1)
    random.seed(1)
    backward = [other.order(epoch) for epoch in (3, 2, 1, 0)][::-1]
    assert forward == backward


@pytest.mark.parametrize('order', ('shuffled', 'bucketed'))
def test_random_orders_differ_between_epochs_and_between_seeds(order):
    a, b = (
        make_set(LENGTHS, batch_order=order, batch_size=2, numbuckets=3, random_seed=seed)
        for seed in (1, 2)
    )
    assert len({str(data_set.order(epoch)) for data_set in (a, b) for epoch in range(4)}) == 8


def test_sorted_order_is_by_length_with_ties_as_listed_in_every_epoch():
    data_set = make_set([5, 2, 9, 2, 5, 2], batch_order='sorted', batch_size=2)
    assert [data_set.order(epoch) for epoch in (0, 1, 7)] == 3 * [[[1, 3], [5, 0], [4, 2]]]


@pytest.mark.parametrize('set_name', ('dev', 'test'))
@pytest.mark.parametrize('order', ORDERS)
def test_dev_and_test_are_always_by_length(set_name, order):
    data_set = make_set([5, 2, 9, 2, 5, 2], set_name, batch_order=order, batch_size=4)
    assert [data_set.order(epoch) for epoch in (0, 1, 7)] == 3 * [[[1, 3, 5, 0], [4, 2]]]


def test_shuffled_order_is_not_by_length():
    data_set = make_set(range(1, 41), batch_order='shuffled', batch_size=3)
    steps = data_set.order(0)
    assert flat(steps) != sorted(flat(steps))
    assert any(max(step) - min(step) > 10 for step in steps)


def test_many_utterances_of_equal_length_stay_as_listed():
    data_set = make_set([3] * 60 + [2] * 60, 'dev', batch_size=50)
    assert flat(data_set.order(0)) == [*range(60, 120), *range(60)]


def test_bucketed_steps_hold_utterances_of_similar_length_in_random_order():
    data_set = make_set(range(1, 25), batch_order='bucketed', batch_size=3, numbuckets=4)
    buckets = [set(range(start, start + 6)) for start in (0, 6, 12, 18)]  # 2 steps of each
    epochs = [data_set.order(epoch) for epoch in range(3)]
    for steps in epochs:
        assert all(any(set(step) <= bucket for bucket in buckets) for step in steps)
        places = [step[0] // 6 for step in steps]  # the bucket of each step
        assert places != sorted(places)
        assert any(step != sorted(step) for step in steps)
    as_sets = [sorted(sorted(step) for step in steps) for steps in epochs]
    assert as_sets[0] != as_sets[1]  # the utterances that share a step change within the bucket


@pytest.mark.parametrize('order', ORDERS)
def test_one_step_of_an_epoch_is_smaller_and_none_is_refilled(order):
    data_set = make_set(LENGTHS, batch_order=order, batch_size=5, numbuckets=2)
    sizes = [len(step) for step in data_set.order(3)]
    assert sorted(sizes) == [3, 5, 5]
    if order != 'bucketed':
        assert sizes[-1] == 3
    assert data_set.total_batches == 3


@pytest.mark.parametrize('order', ORDERS)
def test_order_of_few_or_no_utterances(order):
    values = {'batch_order': order, 'batch_size': 4, 'numbuckets': 16}
    assert make_set([], **values).order(0) == []
    assert make_set([7], **values).order(0) == [[0]]
    assert sorted(flat(make_set([7, 3, 5], **values).order(2))) == [0, 1, 2]


def test_a_step_is_a_batch_for_each_tower():
    values = {'train_batch_size': 2, 'dev_batch_size': 3, 'test_batch_size': 4, 'towers': 3}
    for name, size, steps in (('train', 6, 3), ('dev', 9, 2), ('test', 12, 2)):
        data_set = make_set(LENGTHS, name, **values)
        assert data_set.step_size == size
        assert data_set.total_batches == steps == len(data_set.order(0))
    assert make_set(LENGTHS, train_batch_size=2, towers=0).step_size == 2


def test_length_and_seconds_of_a_set():
    data_set = make_set([5, 2, 9])
    assert len(data_set) == 3
    assert data_set.seconds == pytest.approx(0.16)
    assert make_set([]).total_batches == 0


def test_padding_is_the_share_of_frames_that_are_none():
    # 3 utterances a step: of lengths 2 3 5 -> 5 frames each, 7 7 -> none padded
    data_set = make_set([5, 2, 7, 3, 7], batch_size=3)
    assert data_set.padding(0) == pytest.approx((3 + 2) / (15 + 14))


# Which utterances are used


def test_what_cannot_be_used_is_excluded_by_name_with_the_reason(tmp_path, caplog):
    write_wav(tmp_path / 'wav/a.wav', speech(0.4))
    write_wav(tmp_path / 'wav/b.wav', speech(0.5))
    for name, n in (('none', 0), ('blip', 1), ('tick', 160), ('almost', 399)):
        write_wav(tmp_path / ('wav/%s.wav' % name), speech(0.1)[:n])
    (tmp_path / 'wav/page.wav').write_text('<!DOCTYPE html><html>not found</html>')
    (tmp_path / 'wav/folder.wav').mkdir()
    rows = [
        ('wav/a.wav', 'one two'),
        ('wav/gone.wav', 'x'),
        ('wav/page.wav', 'x'),
        ('wav/folder.wav', 'x'),
        ('wav/none.wav', 'x'),
        ('wav/blip.wav', 'x'),
        ('wav/tick.wav', 'x'),
        ('wav/almost.wav', 'x'),
        ('./wav/b.wav', 'good day'),
    ]
    sets = build_sets(tmp_path, rows)
    assert names(sets.train) == ['wav/a.wav', './wav/b.wav']
    reasons = exclusions(caplog)
    assert set(reasons) == {row[0] for row in rows[1:-1]}
    assert reasons['wav/gone.wav'] == 'cannot be read: No such file or directory'
    assert reasons['wav/folder.wav'] == 'not a regular file'
    assert 'not an audio file' in reasons['wav/page.wav']
    for name, n in (('none', 0), ('blip', 1), ('tick', 160), ('almost', 399)):
        assert 'too short: %d samples' % n in reasons['wav/%s.wav' % name]
    assert '7 of 9 utterances excluded' in caplog.messages
    assert str(tmp_path) not in caplog.text  # names as the manifest spells them


def test_a_file_name_with_a_zero_byte_is_excluded(tmp_path, caplog):
    write_wav(tmp_path / 'a.wav', speech(0.4))
    sets = build_sets(tmp_path, [('a\0.wav', 'x'), ('a.wav', 'x')])
    assert names(sets.train) == ['a.wav']
    assert list(exclusions(caplog)) == ['a\0.wav']


def test_empty_transcripts_are_excluded(tmp_path, caplog):
    for name in 'abcd':
        write_wav(tmp_path / (name + '.wav'), speech(0.4))
    sets = build_sets(tmp_path, [('a.wav', ''), ('b.wav', '    '), ('c.wav', '?!'), ('d.wav', 'x')])
    assert names(sets.train) == ['d.wav']
    assert exclusions(caplog) == dict.fromkeys(('a.wav', 'b.wav', 'c.wav'), 'empty transcript')
    assert caplog.messages[-1] == '3 of 4 utterances excluded'


def test_characters_outside_the_alphabet_are_named_with_their_code_points(tmp_path, caplog):
    for name in 'abc':
        write_wav(tmp_path / (name + '.wav'), speech(0.5))
    sets = build_sets(
        tmp_path,
        [
            ('a.wav', 'thank you \u0441arol'),
            ('b.wav', 'room 42'),
            ('c.wav', 'it\u2019s HELLO caf\u00e9'),
        ],
    )
    assert [example.transcript for example in sets.train.examples] == ["it's hello cafe"]
    reasons = exclusions(caplog)
    assert set(reasons) == {'a.wav', 'b.wav'}
    assert 'U+0441' in reasons['a.wav'] and '\u0441' in reasons['a.wav']
    assert 'U+0034' in reasons['b.wav'] and 'U+0032' in reasons['b.wav']
    labels = sets.train.read(0)[1].tolist()
    assert labels == [9, 20, 27, 19, 0, 8, 5, 12, 12, 15, 0, 3, 1, 6, 5]


@pytest.mark.parametrize(
    'samples, words, stride, kept',
    [
        (400, 'a', 1, True),  # 1 step
        (400, 'ab', 1, False),
        (1040, 'abcde', 1, True),  # 5 steps: 400 samples, then 4 times 160
        (881, 'abcde', 1, True),  # a begun step counts
        (880, 'abcde', 1, False),
        (1040, 'aabc', 1, True),  # 4 labels and a blank between the two a
        (1040, 'aabb', 1, False),  # 6
        (1200, 'aabb', 1, True),
        (1040, 'aaa', 1, True),  # a blank a blank a
        (880, 'aaa', 1, False),
        (1040, 'abc', 2, True),  # 3 of the 5 steps are left
        (1040, 'abcd', 2, False),
        (1200, 'abc', 2, True),  # 3 of 6
        (1201, 'abcd', 2, True),
    ],
)  # 4 of 7
def test_utterances_need_a_step_for_each_label_and_for_each_repeat(
    tmp_path, caplog, samples, words, stride, kept
):
    write_wav(tmp_path / 'a.wav', speech(0.2)[:samples])
    sets = build_sets(tmp_path, [('a.wav', words)], feature_stride=stride)
    assert names(sets.train) == (['a.wav'] if kept else [])
    if not kept:
        assert 'too short for its transcript' in exclusions(caplog)['a.wav']


def test_too_few_steps_are_reported_with_both_numbers(tmp_path, caplog):
    write_wav(tmp_path / 'a.wav', speech(0.2)[:880])  # 4 steps
    build_sets(tmp_path, [('a.wav', 'aabbc')])  # 5 labels, 2 repeats
    reason = exclusions(caplog)['a.wav']
    assert '4 time steps' in reason and 'needs 7' in reason and '5 labels' in reason


def test_stereo_has_the_steps_of_one_channel(tmp_path):
    one = speech(1.0)  # 99 steps; read as one row of samples it would have 199
    write_wav(tmp_path / 'duo.wav', np.stack([one, 0 * one], axis=1))
    sets = build_sets(tmp_path, [('duo.wav', 'ab' * 70)], [('duo.wav', 'good morning')])
    assert len(sets.train) == 0
    assert [example.n_steps for example in sets.dev.examples] == [99]


@pytest.mark.parametrize('rate', (8000, 11025, 16000, 22050, 44100))
@pytest.mark.parametrize('stride', (1, 2))
def test_steps_foreseen_from_the_header_are_the_steps_that_are_read(tmp_path, rate, stride):
    rows = []
    for i, seconds in enumerate((0.05, 0.1234, 0.205, 0.3001)):
        rows.append(('%d.wav' % i, 'a'))
        write_wav(tmp_path / rows[-1][0], speech(seconds, i, rate), rate)
    data_set = build_sets(tmp_path, rows, feature_stride=stride).train
    assert [len(data_set.read(i)[0]) - 2 * 2 for i in range(4)] == [
        example.n_steps for example in data_set.examples
    ]


def test_an_example_knows_its_cleaned_transcript_and_seconds(tmp_path):
    path = write_wav(tmp_path / 'a.wav', speech(0.5, rate=8000), 8000)
    [example] = build_sets(tmp_path, [('a.wav', ' One\ttwo, ')]).train.examples
    assert example.utterance[:3] == (path, 'a.wav', ' One\ttwo, ')
    assert example.transcript == 'one two'
    assert example.seconds == 0.5
    assert example.n_steps == 49  # 8000 samples at 16 kHz: 1 + (8000 - 400) / 160, rounded up


def test_an_exclusion_reason_of_the_importer_excludes_the_utterance(tmp_path, caplog):
    path = write_wav(tmp_path / 'a.wav', speech(0.4))
    good, bad = records.Utterance(path, 'a', 'x'), records.Utterance(path, 'b', 'x', 'torn page')
    config = load_config(cache_dir=tmp_path / 'cache')
    sets = data_sets.make_data_sets(config, text.Alphabet(), records.Listing([bad, good], [], []))
    assert names(sets.train) == ['a']
    assert exclusions(caplog) == {'b': 'torn page'}
    assert sets.excluded == {bad: 'torn page'}


def test_two_of_seven_excluded_over_three_sets(tmp_path, caplog):
    for name in 'abcdefg':
        write_wav(tmp_path / (name + '.wav'), speech(0.4))
    sets = build_sets(
        tmp_path,
        [(name + '.wav', 'x') for name in 'abc'] + [('d.wav', '')],
        [('e.wav', '7'), ('f.wav', 'y')],
        [('g.wav', 'z')],
    )
    assert [names(data_set) for data_set in sets] == [
        ['a.wav', 'b.wav', 'c.wav'],
        ['f.wav'],
        ['g.wav'],
    ]
    assert [message for message in caplog.messages if 'utterances excluded' in message] == [
        '2 of 7 utterances excluded'
    ]


def test_an_utterance_in_all_sets_is_checked_and_counted_once(tmp_path, caplog, monkeypatch):
    write_wav(tmp_path / 'a.wav', speech(0.4))
    opened, audio_info = [], audio.audio_info
    monkeypatch.setattr(audio, 'audio_info', lambda path: opened.append(path) or audio_info(path))
    rows = [('a.wav', 'x'), ('gone.wav', 'x')]
    sets = build_sets(tmp_path, rows, rows, rows)
    assert [names(data_set) for data_set in sets] == 3 * [['a.wav']]
    assert sorted(opened) == [str(tmp_path / name) for name, _ in rows]
    assert list(exclusions(caplog)) == ['gone.wav']
    assert caplog.messages[-1] == '1 of 2 utterances excluded'


def test_nothing_is_said_where_nothing_is_excluded_or_converted(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_wav(tmp_path / 'a.wav', speech(0.4))
    build_sets(tmp_path, [('a.wav', 'x')])
    assert caplog.messages == []


def test_of_many_exclusions_a_hundred_are_named_and_all_are_counted(tmp_path, caplog):
    build_sets(tmp_path, [('%d.wav' % i, '') for i in range(103)])
    assert len(exclusions(caplog)) == 100
    assert caplog.messages[-1] == '103 of 103 utterances excluded'


def test_other_rates_and_channels_are_said_once_with_a_count(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    rows = []
    kinds = [(16000, 1), (8000, 1), (44100, 2), (8000, 1), (16000, 2)]
    for i, (rate, channels) in enumerate(kinds):
        rows.append(('%d.wav' % i, 'x'))
        samples = np.stack(channels * [speech(0.2, i, rate)], axis=1)
        write_wav(tmp_path / rows[-1][0], samples if channels > 1 else samples[:, 0], rate)
    build_sets(tmp_path, rows[:3], rows[3:])
    assert caplog.messages == [
        'resampled to 16000 Hz: 2 from 8000 Hz, 1 from 44100 Hz',
        'mixed down to one channel (mean): 2',
    ]


def test_what_is_excluded_is_not_counted_as_resampled(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_wav(tmp_path / 'a.wav', speech(0.4, rate=8000), 8000)
    build_sets(tmp_path, [('a.wav', '42')])
    assert not any('resampled' in message for message in caplog.messages)


def test_a_file_in_all_three_sets_is_counted_as_resampled_once(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_wav(tmp_path / 'a.wav', np.stack(2 * [speech(0.4, rate=8000)], axis=1), 8000)
    rows = [('a.wav', 'x')]
    build_sets(tmp_path, rows, rows, rows)
    assert caplog.messages == [
        'resampled to 16000 Hz: 1 from 8000 Hz',
        'mixed down to one channel (mean): 1',
    ]


def test_limits_take_the_first_utterances_of_each_list(tmp_path, caplog):
    rows = [('%d.wav' % i, 'x') for i in range(5)]
    for name, _ in rows:
        write_wav(tmp_path / name, speech(0.1))
    bad = [('gone.wav', 'x')]
    sets = build_sets(tmp_path, rows[:3] + bad, bad + rows, rows, limit_train=2, limit_dev=3)
    assert [names(data_set) for data_set in sets] == [
        ['0.wav', '1.wav'],
        ['0.wav', '1.wav'],
        ['%d.wav' % i for i in range(5)],
    ]
    assert caplog.messages[-1] == '1 of 6 utterances excluded'


def test_sets_without_a_usable_utterance_are_empty(tmp_path):
    sets = build_sets(tmp_path, [('gone.wav', 'x')])
    assert [len(data_set) for data_set in sets] == [0, 0, 0]


def test_data_sets_are_iterated_in_the_order_of_the_selector():
    train, dev, test = (make_set([4], name) for name in records.SET_NAMES)
    sets = data_sets.DataSets(train, dev, test)
    assert list(sets) == [train, dev, test] and sets.stages == [train]
    assert [data_set.queue_index for data_set in sets] == [0, 1, 2]
    assert records.SET_NAMES == ('train', 'dev', 'test')


# Stages and linked corpora


def test_a_stage_holds_the_utterances_up_to_its_length():
    data_set = make_set(LENGTHS)
    short = data_set.up_to(4)
    assert sorted(example.n_steps for example in short.examples) == [1, 2, 2, 2, 3, 4]
    assert len(data_set) == len(LENGTHS) and short.total_batches == 1
    assert flat(short.order(0)) != flat(data_set.order(0))


def corpora(tmp_path, torn='', **values):
    """Returns DataSets of two corpora, `one` of 3 and `two` of 2 training utterances.

    One utterance is in dev, and one in test. Those of the corpus `torn` have an exclusion reason.
    """
    listed = []
    for folder, lengths in (('one', [1.0, 1.1, 1.2]), ('two', [1.05, 1.3])):
        for i, seconds in enumerate(lengths):
            path = write_wav(tmp_path / folder / ('%d.wav' % i), speech(seconds, i))
            listed.append(
                records.Utterance(
                    path,
                    '%s/%d' % (folder, i),
                    'a',
                    corpus=folder,
                    exclusion_reason='torn' if torn == folder else None,
                )
            )
    config = load_config(importer='csv,csv', cache_dir=tmp_path / 'cache', **values)
    config = dataclasses.replace(config, importer='one,two')
    return data_sets.make_data_sets(
        config, text.Alphabet(), records.Listing(listed, listed[2:4], listed[:1])
    )


def test_linked_corpora_are_parts_of_the_training_set_with_their_weights(tmp_path):
    sets = corpora(tmp_path, importer_weights='2,1')
    [stage] = sets.stages
    assert [names(part) for part in stage.parts] == [
        ['one/0', 'one/1', 'one/2'],
        ['two/0', 'two/1'],
    ]
    assert names(sets.train) == names(stage.parts[0]) + names(stage.parts[1])
    assert [part.queue_index for part in (*stage.parts, sets.dev, sets.test)] == [0, 1, 2, 3]
    assert stage.weights == [1.0, 0.5]


def test_without_weights_corpora_are_joined(tmp_path):
    sets = corpora(tmp_path)
    assert sets.stages == [sets.train] and len(sets.train) == 5


def test_a_limit_is_that_of_each_linked_corpus(tmp_path):
    sets = corpora(tmp_path, importer_weights='1,1', limit_train=2, limit_dev=1)
    assert names(sets.train) == ['one/0', 'one/1', 'two/0', 'two/1']
    assert names(sets.dev) == ['one/2', 'two/0']
    assert names(corpora(tmp_path, limit_train=2).train) == ['one/0', 'one/1']


def test_a_linked_corpus_of_which_nothing_is_left_is_named(tmp_path):
    with pytest.raises(errors.DataError, match='ds_importer_weights: .* of two is left'):
        corpora(tmp_path, torn='two', importer_weights='1,1')


def test_each_linked_corpus_counts_its_own_exclusions_over_all_stages(tmp_path, caplog):
    sets = corpora(tmp_path, importer_weights='1,1', segment_lengths='105,full', feature_cache=0)
    for name in ('one/0', 'one/2', 'two/1'):
        (tmp_path / (name + '.wav')).unlink()
    for stage in sets.stages:
        for part in stage.parts:
            for index in range(len(part)):
                part.read(index)
    assert [message for message in caplog.messages if 'while reading' in message] == [
        '1 of 3 one train utterances excluded while reading',
        '2 of 3 one train utterances excluded while reading',
        '1 of 2 two train utterances excluded while reading',
    ]
    assert sets.n_unreadable() == {'train': 3, 'dev': 0, 'test': 0}


def test_a_stage_without_utterances_is_an_error_with_the_shortest_length(tmp_path):
    with pytest.raises(errors.DataError, match='at most 50 time steps, the shortest has 99'):
        corpora(tmp_path, segment_lengths='50,full')
    stages = corpora(tmp_path, segment_lengths='105,full').stages
    assert [len(stage) for stage in stages] == [2, 5]
