"""The schedule of a run: stages, epochs, learning rate, patience.

All functions depend only on the settings and the State, which is part of every checkpoint, so that
a resumed run does the same as an uninterrupted one.
"""

import math
from typing import NamedTuple


class State(NamedTuple):
    """The state of a run, which a checkpoint holds besides the weights and the optimizer."""

    epoch: int  # number of epochs that are done
    epoch_step: int  # number of steps that are done of the next epoch
    epoch_done: int  # number of utterances of these steps
    epoch_loss: float  # sum of the CTC losses of these utterances
    order: int  # checksum of the order of the utterances in this epoch
    validated: int  # last epoch whose validation is done, or was not due
    best_dev_loss: float  # lowest dev loss; infinite before the first validation
    best_epoch: int  # epoch with the lowest dev loss
    bad_validations: int  # validations that have used up patience, see `after_validation`
    lr_factor: float  # factor of the learning rate, see `after_validation`
    stage: int  # stage of the training, from 0
    stage_start: int  # number of epochs that were done when the stage began


INITIAL_STATE = State(0, 0, 0, 0.0, 0, 0, math.inf, 0, 0, 1.0, 0, 0)

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
    """Returns the learning rate of the next step.

    It is ds_learning_rate * ds_learning_rate_decay^p * lr_factor, where p is the share of the run
    that is done.

    Args:
      n_steps: number of steps of an epoch.
    """
    epochs = (
        state.stage * config.training_iters
        + state.epoch
        - state.stage_start
        + state.epoch_step / n_steps
    )
    share = epochs / (len(config.stages) * config.training_iters)
    return config.learning_rate * config.learning_rate_decay**share * state.lr_factor


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
    )


def after_epoch(state: State) -> State:
    """Returns the State after the last step of an epoch."""
    return state._replace(epoch=state.epoch + 1, epoch_step=0, epoch_done=0, epoch_loss=0.0)


def after_validation(config, state: State, dev_loss: float) -> State:
    """Returns the State after a validation.

    A dev loss below the lowest one so far takes its place. Any other dev loss uses up patience and
    lowers the learning rate.
    """
    state = state._replace(validated=state.epoch)
    if dev_loss < state.best_dev_loss:
        return state._replace(
            best_dev_loss=dev_loss,
            best_epoch=state.epoch,
            bad_validations=0 if config.reset_tries else state.bad_validations,
        )
    return state._replace(
        bad_validations=state.bad_validations + (config.num_tries > 0),
        lr_factor=state.lr_factor * config.valid_adapt,
    )
