"""The schedule of a run: stages, epochs, learning rate, patience.

All functions depend only on the settings and the State, which is part of every checkpoint, so that
a resumed run does the same as an uninterrupted one.
"""

import math
import os
import zlib
from typing import NamedTuple

from util import config as settings


class State(NamedTuple):
    """The state of a run, which a checkpoint holds besides the weights and the optimizer."""

    epoch: int  # number of epochs that are done
    epoch_step: int  # number of steps that are done of the next epoch
    # of these steps, or until they begin, of all steps of the epoch that has just ended
    epoch_done: int  # number of utterances, without those that were left out
    epoch_loss: float  # sum of the CTC losses of these utterances
    order: int  # checksum of the order of the utterances in this epoch
    validated: int  # last epoch whose validation is done, or was not due
    best_dev_loss: float  # dev loss of the best weights; infinite before the first validation
    best_epoch: int  # epoch with the best weights
    bad_validations: int  # validations that have used up patience, see `after_validation`
    lr_factor: float  # factor of the learning rate, see `after_validation`
    stage: int  # stage of the training, from 0
    stage_start: int  # number of epochs that were done when the stage began
    best_by: int  # figure that the best weights are chosen by, an index of config.BEST_BY
    best_rate: float  # WER or CER of the best weights on the dev set; 0 if they go by the loss
    run: int  # time at which the run started afresh, ns since 1970, which no other run has
    left_out: int  # batches that were left out of the training, as they were not finite
    left_out_in_row: int  # the last ones of these, without another batch between
    dev_set: int  # `dev_checksum` of the dev set of `best_dev_loss`; 0: unknown
    passing: int  # 1 in a checkpoint that is removed once there is a newer one, else 0


INITIAL_STATE = State(0, 0, 0, 0.0, 0, 0, math.inf, 0, 0, 1.0, 0, 0, 0, 0.0, 0, 0, 0, 0, 0)

# Fields whose variables keep another name in checkpoints, the one of version 0.1
VARIABLE_NAMES = {'bad_validations': 'tries'}


def last_epoch(config, state: State) -> int:
    """Returns the last epoch of the stage, unless the stage ends early."""
    return state.stage_start + config.training_iters


def n_epochs(config, state: State) -> int:
    """Returns the number of epochs of the whole run, if no further stage ends early."""
    return (
        last_epoch(config, state) + (len(config.stages) - 1 - state.stage) * config.training_iters
    )


def due(every: int, epoch: int, config, state: State) -> bool:
    """Tells whether something is due after this epoch, if it is due every `every` epochs and after
    the last epoch of a stage; it is never due if `every` is 0."""
    return every > 0 and (epoch % every == 0 or epoch == last_epoch(config, state))


def checkpoint_due(config, state: State) -> bool:
    """Tells whether a checkpoint is due after the epoch that has just ended."""
    return due(config.checkpoint_step, state.epoch, config, state) or stage_done(config, state)


def is_best(state: State) -> bool:
    """Tells whether the weights after the epoch that has just ended are the best so far."""
    return state.best_epoch == state.epoch


def stopped(config, state: State) -> bool:
    """Tells whether the stage ends early because the patience is used up."""
    return 0 < config.num_tries <= state.bad_validations


def stage_done(config, state: State) -> bool:
    """Tells whether the stage is at its end."""
    return state.epoch >= last_epoch(config, state) or stopped(config, state)


def complete(config, state: State) -> bool:
    """Tells whether nothing is left to train or to validate."""
    return state.validated == state.epoch >= n_epochs(config, state)


def next_stage(config, state: State) -> State | None:
    """Returns the State at the start of the next stage; None after the last one."""
    if state.stage + 1 >= len(config.stages):
        return None
    return state._replace(
        stage=state.stage + 1,
        stage_start=state.epoch,
        bad_validations=0,
        lr_factor=1.0,
        epoch_step=0,
        epoch_done=0,
        epoch_loss=0.0,
    )


def learning_rate(config, state: State, n_steps: int) -> float:
    """Returns the learning rate of the next step, without the warm-up.

    It is ds_learning_rate * d(p) * lr_factor, where p is the share of the run that is done, and d
    falls from 1 to ds_learning_rate_decay = D: D^p, or D + (1 - D) (1 + cos(pi p)) / 2.

    Args:
      n_steps: number of steps of an epoch.
    Source: Loshchilov and Hutter, arXiv:1608.03983, equation 5, for the cosine.
    """
    epochs = (
        state.stage * config.training_iters
        + state.epoch
        - state.stage_start
        + state.epoch_step / n_steps
    )
    share = epochs / (len(config.stages) * config.training_iters)
    final = config.learning_rate_decay
    decay = final**share
    if config.learning_rate_schedule == 'cosine':
        decay = final + (1 - final) * (1 + math.cos(math.pi * min(share, 1.0))) / 2
    return config.learning_rate * decay * state.lr_factor


def warmup_factor(config, update: int) -> float:
    """Returns the factor of the learning rate of an update, counted from 1, which rises linearly
    to 1 over the first ds_warmup_steps updates of the run."""
    return min(1.0, update / config.warmup_steps) if config.warmup_steps else 1.0


def after_step(state: State, step, loss: float) -> State:
    """Returns the State after a step.

    Args:
      step: records.Step.
      loss: mean CTC loss of its utterances.
    """
    return state._replace(
        epoch_step=step.index + 1,
        epoch_done=state.epoch_done + len(step.examples),
        epoch_loss=state.epoch_loss + loss * len(step.examples),
        left_out_in_row=0 if step.examples else state.left_out_in_row,
    )


def after_left_out(state: State, step) -> State:
    """Returns the State after a records.Step whose batch was left out, as it was not finite."""
    return state._replace(
        epoch_step=step.index + 1,
        left_out=state.left_out + 1,
        left_out_in_row=state.left_out_in_row + 1,
    )


def epoch_begun(state: State) -> State:
    """Returns the State before the first step of an epoch; unchanged in the midst of an epoch."""
    return state if state.epoch_step else state._replace(epoch_done=0, epoch_loss=0.0)


def epoch_mean(state: State) -> float:
    """Returns the mean CTC loss of the utterances of an epoch so far; NaN if there are none."""
    return state.epoch_loss / state.epoch_done if state.epoch_done else math.nan


def after_epoch(state: State) -> State:
    """Returns the State after the last step of an epoch."""
    return state._replace(epoch=state.epoch + 1, epoch_step=0)


def rate_of(config, rates) -> float:
    """Returns the error rate that the best weights are chosen by.

    Args:
      rates: text.ErrorRates of the dev set, or None.
    Returns:
      0 if they go by the loss alone, infinite if there are no rates.
    """
    if config.best_by == 'loss':
        return 0.0
    return getattr(rates, config.best_by, math.inf)


def is_better(state: State, dev_loss: float, rate: float, or_equal: bool = False) -> bool:
    """Tells whether a dev loss and a rate (`rate_of`) are better than those of the best weights:
    the rate is lower, or it is the same and the loss is lower.

    Args:
      or_equal: whether the same figures count as better, too.
    """
    if not (math.isfinite(dev_loss) and math.isfinite(rate)):
        return False
    found, best = (rate, dev_loss), (state.best_rate, state.best_dev_loss)
    return math.isinf(state.best_dev_loss) or found < best or (or_equal and found == best)


def with_best_by(config, state: State) -> State:
    """Returns a State whose best weights are chosen by the figure of the settings; if it was
    another one before, there are no best weights yet, and no patience is used up."""
    index = settings.BEST_BY.index(config.best_by)
    if state.best_by == index:
        return state
    start = INITIAL_STATE
    return state._replace(
        best_by=index,
        best_dev_loss=start.best_dev_loss,
        best_rate=start.best_rate,
        best_epoch=start.best_epoch,
        bad_validations=start.bad_validations,
    )


def dev_checksum(config, examples) -> int:
    """Returns a checksum, never 0, of what the figures of the dev set depend on besides the
    weights.

    Args:
      examples: the set's list of records.Example.
    """
    utterances = [  # without folders, as the corpus may have been moved
        (os.path.basename(each.utterance.name), each.transcript, each.n_steps) for each in examples
    ]
    by_loss = config.best_by == 'loss'
    of_settings = (config.relu_clip, None if by_loss else config.beam_width)
    return zlib.crc32(repr((utterances, of_settings)).encode()) or 1


def with_dev_set(state: State, dev_set: int, dev_loss: float, rate: float) -> State:
    """Returns the State for another dev set, on which no patience is used up yet.

    Args:
      dev_set: its `dev_checksum`.
      dev_loss, rate: of the best weights on this set, as in `after_validation`; not finite: there
        are no best weights.
    """
    if not (math.isfinite(dev_loss) and math.isfinite(rate)):
        dev_loss, rate = INITIAL_STATE.best_dev_loss, INITIAL_STATE.best_rate
        state = state._replace(best_epoch=INITIAL_STATE.best_epoch)
    return state._replace(
        dev_set=dev_set, best_dev_loss=dev_loss, best_rate=rate, bad_validations=0
    )


def after_validation(config, state: State, dev_loss: float, rate: float = 0.0) -> State:
    """Returns the State after a validation.

    Figures that are better than the best ones so far take their place. Any others use up patience
    and lower the learning rate.

    Args:
      dev_loss: mean CTC loss of an utterance.
      rate: as `rate_of` returns it.
    """
    state = state._replace(validated=state.epoch)
    if is_better(state, dev_loss, rate):
        return state._replace(
            best_dev_loss=dev_loss,
            best_rate=rate,
            best_epoch=state.epoch,
            bad_validations=0 if config.reset_tries else state.bad_validations,
        )
    return state._replace(
        bad_validations=state.bad_validations + (config.num_tries > 0),
        lr_factor=state.lr_factor * config.valid_adapt,
    )
