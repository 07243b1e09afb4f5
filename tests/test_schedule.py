"""Stages, epochs, learning rate and plateau as functions of settings and State."""

import math

import pytest

from helpers import load_config
from util import records, text
from util.run import schedule

START = schedule.INITIAL_STATE


def test_a_run_without_stages_has_its_epochs():
    config = load_config(training_iters=3)
    assert schedule.n_epochs(config, START) == schedule.last_epoch(config, START) == 3
    done = [schedule.stage_done(config, START._replace(epoch=n)) for n in range(5)]
    assert done == [False, False, False, True, True]
    assert schedule.next_stage(config, START._replace(epoch=3)) is None


def test_every_stage_has_as_many_epochs():
    config = load_config(training_iters=3, segment_lengths='100,200,full')
    state = START
    ends = []
    while state:
        assert schedule.n_epochs(config, state) == 9
        ends.append(schedule.last_epoch(config, state))
        state = schedule.next_stage(config, state._replace(epoch=ends[-1]))
    assert ends == [3, 6, 9]


def test_a_stopped_stage_leaves_fewer_epochs():
    config = load_config(training_iters=3, segment_lengths='100,full', num_tries=2)
    state = START._replace(epoch=2, bad_validations=2, lr_factor=0.25)
    assert schedule.stopped(config, state) and schedule.stage_done(config, state)
    following = schedule.next_stage(config, state)
    assert (
        following.stage,
        following.stage_start,
        following.bad_validations,
        following.lr_factor,
    ) == (1, 2, 0, 1.0)
    assert schedule.n_epochs(config, following) == 5
    assert following.best_dev_loss == state.best_dev_loss


def test_the_epoch_of_the_best_loss_is_kept():
    state = schedule.after_validation(load_config(), START._replace(epoch=3), 5.0)
    assert (state.best_epoch, state.validated, state.best_dev_loss) == (3, 3, 5.0)
    state = schedule.after_validation(load_config(), state._replace(epoch=4), 5.0)
    assert (state.best_epoch, state.validated, state.best_dev_loss) == (3, 4, 5.0)


def test_what_is_due_is_due_after_the_last_epoch_of_a_stage_too():
    config = load_config(training_iters=5, segment_lengths='100,full')
    assert [n for n in range(1, 6) if schedule.due(2, n, config, START)] == [2, 4, 5]
    second = START._replace(stage=1, stage_start=5)
    assert [n for n in range(6, 11) if schedule.due(3, n, config, second)] == [6, 9, 10]
    assert not any(schedule.due(0, n, config, START) for n in range(1, 6))


def test_a_checkpoint_is_due_every_so_many_epochs_and_at_the_end_of_a_stage():
    config = load_config(training_iters=5, checkpoint_step=2, num_tries=2)
    due = [schedule.checkpoint_due(config, START._replace(epoch=n)) for n in range(1, 6)]
    assert due == [False, True, False, True, True]
    assert schedule.checkpoint_due(config, START._replace(epoch=3, bad_validations=2))
    config = load_config(training_iters=2, checkpoint_step=0)
    assert [schedule.checkpoint_due(config, START._replace(epoch=n)) for n in (1, 2)] == [
        False,
        True,
    ]


def test_steps_add_up_to_their_epoch():
    examples = 3 * [records.Example(records.Utterance('a.wav', 'a', 'A'), 'a', 5, 0.05)]
    state = schedule.after_step(START, records.Step(0, examples), 2.0)
    state = schedule.after_step(state, records.Step(2, examples[:1]), 10.0)  # 1 was unreadable
    assert (state.epoch, state.epoch_step, state.epoch_done, state.epoch_loss) == (0, 3, 4, 16.0)
    done = schedule.after_epoch(state)
    assert done == START._replace(epoch=1, epoch_done=4, epoch_loss=16.0)  # for its report
    assert schedule.epoch_mean(done) == 4.0
    assert schedule.epoch_begun(done) == START._replace(epoch=1)
    assert schedule.epoch_begun(state) == state
    assert math.isnan(schedule.epoch_mean(START))


def test_the_learning_rate_stays_without_settings():
    config = load_config(training_iters=4, learning_rate=0.003)
    for epoch in range(4):
        assert schedule.learning_rate(config, START._replace(epoch=epoch, epoch_step=1), 3) == 0.003


def test_the_learning_rate_decays_over_the_run():
    config = load_config(training_iters=4, learning_rate=0.8, learning_rate_decay=0.0625)
    at = [
        schedule.learning_rate(config, START._replace(epoch=e, epoch_step=s), 4)
        for e, s in ((0, 0), (0, 2), (1, 0), (2, 0), (3, 0), (4, 0))
    ]
    assert at == pytest.approx([0.8, 0.8 * 0.5**0.5, 0.4, 0.2, 0.1, 0.05])


def test_the_learning_rate_decays_over_all_stages():
    config = load_config(
        training_iters=2, learning_rate=1, learning_rate_decay=0.0625, segment_lengths='100,full'
    )
    second = START._replace(stage=1, stage_start=1, epoch=1)  # the first was stopped early
    assert schedule.learning_rate(config, second, 7) == pytest.approx(0.25)
    assert schedule.learning_rate(config, second._replace(epoch=2), 7) == pytest.approx(0.125)


def test_a_plateau_worse_halve_better_worse_stop():
    config = load_config(num_tries=2, valid_adapt=0.5, learning_rate=1, training_iters=9)
    state, history = START, []
    for loss in (5.0, 6.0, 4.0, 4.0):
        state = schedule.after_validation(config, state, loss)
        history.append(
            (
                state.best_dev_loss,
                state.bad_validations,
                state.lr_factor,
                schedule.stopped(config, state),
            )
        )
    assert history == [
        (5.0, 0, 1.0, False),
        (5.0, 1, 0.5, False),
        (4.0, 1, 0.5, False),
        (4.0, 2, 0.25, True),
    ]
    assert schedule.learning_rate(config, state, 1) == 0.25


def test_patience_begins_anew_after_a_better_loss_where_that_is_asked_for():
    config = load_config(num_tries=2, reset_tries=1)
    state = START
    for loss in (5.0, 6.0, 4.0, 4.5):
        state = schedule.after_validation(config, state, loss)
    assert state.bad_validations == 1 and not schedule.stopped(config, state)


def test_the_learning_rate_falls_along_half_a_cosine():
    config = load_config(
        training_iters=4, learning_rate=2, learning_rate_decay=0.1, learning_rate_schedule='cosine'
    )
    at = [
        schedule.learning_rate(config, START._replace(epoch=e, epoch_step=s), 4)
        for e, s in ((0, 0), (1, 1), (2, 0), (3, 0), (4, 0), (5, 0))
    ]
    cosines = [1, math.cos(math.pi * 5 / 16), 0, -(0.5**0.5), -1, -1]
    assert at == pytest.approx([2 * (0.1 + 0.9 * (1 + c) / 2) for c in cosines])


def test_the_learning_rate_rises_over_the_warm_up():
    config = load_config(warmup_steps=4)
    factors = [schedule.warmup_factor(config, update) for update in (1, 2, 3, 4, 5, 900)]
    assert factors == [0.25, 0.5, 0.75, 1, 1, 1]
    assert schedule.warmup_factor(load_config(), 1) == 1


# Batches that are left out, and other dev sets


def test_batches_that_are_left_out_are_counted_until_one_is_not():
    examples = 3 * [records.Example(records.Utterance('a.wav', 'a', 'A'), 'a', 5, 0.05)]
    state = schedule.after_left_out(START, records.Step(0, examples))
    state = schedule.after_left_out(state, records.Step(1, examples))
    assert state == START._replace(epoch_step=2, left_out=2, left_out_in_row=2)
    state = schedule.after_step(state, records.Step(2, []), 0.0)  # unreadable
    assert state.left_out_in_row == 2
    state = schedule.after_step(state, records.Step(3, examples), 7.0)
    assert (state.left_out, state.left_out_in_row, state.epoch_done) == (2, 0, 3)
    assert schedule.epoch_mean(state) == 7.0


def test_the_checksum_of_a_dev_set_changes_with_what_its_figures_depend_on():
    def example(name='A', transcript='a', n_steps=5):
        return records.Example(records.Utterance('a.wav', name), transcript, n_steps, 0.05)

    def checksum(*examples, **values):
        return schedule.dev_checksum(load_config(**values), examples)

    usual = checksum(example(), example('B'))
    others = [
        checksum(example()),
        checksum(example(), example('C')),
        checksum(example(), example('B', transcript='b')),
        checksum(example(), example('B', n_steps=6)),
        checksum(example(), example('B'), relu_clip=5),
        checksum(example(), example('B'), best_by='cer'),
        checksum(example(), example('B'), best_by='cer', beam_width=2),
    ]
    assert len({0, usual, *others}) == 9
    assert checksum(example('moved/A'), example('/else/B')) == usual
    assert checksum(example(), example('B'), beam_width=2, epochs=99) == usual


def test_another_dev_set_has_its_own_figures_and_patience():
    old = START._replace(best_dev_loss=0.5, best_epoch=3, bad_validations=2, dev_set=7, epoch=5)
    new = schedule.with_dev_set(old, 8, 90.0, 0.0)
    assert new == old._replace(best_dev_loss=90.0, bad_validations=0, dev_set=8)
    lost = schedule.with_dev_set(old, 8, math.nan, 0.0)
    assert (lost.best_dev_loss, lost.best_epoch, lost.dev_set) == (math.inf, 0, 8)


# The figure that the best weights are chosen by

RATES = text.ErrorRates(0.25, 0.125, 8, 1, 0, 1)


@pytest.mark.parametrize('best_by, rate', [('loss', 0.0), ('wer', 0.25), ('cer', 0.125)])
def test_the_rate_that_counts(best_by, rate):
    assert schedule.rate_of(load_config(best_by=best_by), RATES) == rate
    assert schedule.rate_of(load_config(best_by=best_by), None) == (rate and math.inf)


def test_the_lower_loss_decides_between_equal_rates():
    config = load_config(best_by='wer', num_tries=9)
    state, history = schedule.with_best_by(config, START), []
    for epoch, (loss, rate) in enumerate(
        ((5.0, 0.5), (4.0, 0.6), (6.0, 0.4), (6.0, 0.4), (7.0, 0.4), (5.5, 0.4), (math.nan, 0.1)), 1
    ):
        state = schedule.after_validation(config, state._replace(epoch=epoch), loss, rate)
        history.append((state.best_epoch, state.best_rate, state.best_dev_loss))
    third, sixth = (3, 0.4, 6.0), (6, 0.4, 5.5)
    assert history == [(1, 0.5, 5.0), (1, 0.5, 5.0), third, third, third, sixth, sixth]
    assert state.bad_validations == 4 and state.validated == 7


def test_a_dev_set_without_rates_is_no_better():
    config = load_config(best_by='cer')
    state = schedule.after_validation(
        config, START._replace(epoch=2), 1.0, schedule.rate_of(config, None)
    )
    assert math.isinf(state.best_dev_loss) and state.best_epoch == 0


def test_equal_figures_are_not_better_unless_that_is_asked_for():
    state = START._replace(best_dev_loss=2.0, best_rate=0.5)
    assert not schedule.is_better(state, 2.0, 0.5)
    assert schedule.is_better(state, 2.0, 0.5, or_equal=True)
    assert not schedule.is_better(state, 2.1, 0.5, or_equal=True)


def test_another_figure_starts_the_choice_anew():
    by_loss = START._replace(epoch=4, best_dev_loss=3.0, best_epoch=2, bad_validations=2, run=7)
    assert schedule.with_best_by(load_config(), by_loss) == by_loss
    by_wer = schedule.with_best_by(load_config(best_by='wer'), by_loss)
    assert by_wer == START._replace(epoch=4, best_by=1, run=7)
    assert schedule.with_best_by(load_config(), by_wer).best_by == 0


def test_a_loss_that_is_no_number_is_no_better():
    config = load_config(num_tries=1)
    state = schedule.after_validation(config, START._replace(best_dev_loss=3.0), math.nan)
    assert state.best_dev_loss == 3.0 and schedule.stopped(config, state)


def test_without_the_settings_a_worse_loss_changes_nothing():
    state = START._replace(best_dev_loss=3.0)
    assert schedule.after_validation(load_config(), state, 4.0) == state
