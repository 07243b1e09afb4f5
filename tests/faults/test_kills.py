"""Kills of small runs at drawn moments: ten here, 200 by tests/faults/kills.py."""

import numpy as np
import pytest

import kills

SEED = 1
DESIGNS = ('average', 'linked', 'plateau')  # checkpoints, positions in the data, the best weights
LEFT = kills.Left(
    checkpoints={'ckpt/model.ckpt-3': {'b1': np.float32([0.5, -0.25]), 'global_step': np.int64(3)}},
    exported={'b1': np.float32([0.5, -0.25])},
    losses={'1': ('383.904034', '301.5'), '2': ('201.25', '299.75')},
    test='Test: loss 300.0',
    litter=[],
    files=['ckpt/checkpoint', 'ckpt/model.ckpt-3.index'],
)


@pytest.mark.run
def test_killed_runs_end_as_those_that_were_not_killed(tmp_path):
    outcomes = kills.campaign(tmp_path, 10, SEED, designs=DESIGNS)
    assert sum(len(outcome.kills) for outcome in outcomes) >= 10
    assert not [outcome for outcome in outcomes if outcome.differences]


def test_a_case_that_leaves_the_same_does_not_differ():
    of_its_own = {'run_state/run': np.int64(1), 'model/description': np.uint8([123, 125])}
    [path] = LEFT.checkpoints
    checkpoints = {path: {**LEFT.checkpoints[path], **of_its_own}}
    one_epoch = {'2': LEFT.losses['2']}  # the other one's line was lost with the killed run
    assert LEFT._replace(checkpoints=checkpoints, losses=one_epoch).differences(LEFT) == []


def test_each_difference_is_found():
    [path] = LEFT.checkpoints
    bit = np.nextafter(np.float32(0.5), np.float32(1))
    other = {**LEFT.checkpoints[path], 'b1': np.float32([bit, -0.25])}
    for changed, words in (
        ({'checkpoints': {path: other}}, 'ckpt/model.ckpt-3: b1'),
        ({'checkpoints': {path: {'global_step': np.int64(3)}}}, 'ckpt/model.ckpt-3: b1'),
        ({'exported': {'b1': np.float32([bit, -0.25])}}, 'export: b1'),
        ({'losses': {'2': ('201.25', '299.76')}}, 'epoch 2: '),
        ({'test': 'Test: loss 300.1'}, 'Test: loss 300.1'),
        ({'litter': ['export/.unfinished-7']}, 'left export/.unfinished-7'),
        ({'files': ['ckpt/checkpoint']}, 'files '),
    ):
        [difference] = LEFT._replace(**changed).differences(LEFT)
        assert words in difference


def test_the_seed_alone_says_when_runs_are_killed():
    figures = {kills.WHOLE: [3.0], kills.FILES: [0.0] * 40, 'export': [0.4], 'average': []}
    drawn = [
        [kills.draw_moment(kills.random.Random(seed), figures) for seed in range(50)]
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
    assert {moment.part for moment in drawn[0]} == {kills.WHOLE, kills.FILES, 'export'}
    assert max(moment.index for moment in drawn[0]) > 30
