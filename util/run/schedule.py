"""How a run goes on: stages, epochs, learning rate, plateau. Functions of the settings and of the
State, which is part of every checkpoint, so that a resumed run does what the run would have done.
"""
import collections
import math

# What a checkpoint knows of the run besides the weights: epochs that are done; of the one after
# them the steps, the utterances, the sum of their losses, and a checksum of its order; the last
# epoch whose validation is done or wasn't due, the lowest dev loss and the epoch that had it;
# validations that counted as a try and the factor of the learning rate that came of them; the
# stage and the epochs that were done when it began
State = collections.namedtuple(
    'State', 'epoch epoch_step epoch_done epoch_loss order validated best_dev_loss best_epoch '
    'tries lr_factor stage stage_start')
INITIAL_STATE = State(0, 0, 0, 0.0, 0, 0, math.inf, 0, 0, 1.0, 0, 0)


def last_epoch(config, state):
    """The epoch with which the stage ends unless it is stopped."""
    return state.stage_start + config.training_iters


def n_epochs(config, state):
    """Epochs of the run in all, if no stage is stopped from now on."""
    return last_epoch(config, state) + (
        len(config.stages) - 1 - state.stage) * config.training_iters


def due(every, epoch, config, state):
    """Whether what happens every so many epochs, and after the last one of a stage, happens after
    this one."""
    return every > 0 and (epoch % every == 0 or epoch == last_epoch(config, state))


def stopped(config, state):
    """Whether the plateau ends the stage."""
    return 0 < config.num_tries <= state.tries


def stage_done(config, state):
    """Whether the stage is at its end."""
    return state.epoch >= last_epoch(config, state) or stopped(config, state)


def next_stage(config, state):
    """The State with which the next stage begins; None after the last one."""
    if state.stage + 1 >= len(config.stages):
        return None
    return state._replace(stage=state.stage + 1, stage_start=state.epoch, tries=0, lr_factor=1.0,
                          epoch_step=0, epoch_done=0, epoch_loss=0.0)


def learning_rate(config, state, n_steps):
    """The learning rate of the next step: ds_learning_rate * ds_learning_rate_decay^p * the factor
    of the plateau, p being the share of the run that is done.

    Args:
      n_steps: steps of an epoch.
    """
    epochs = (state.stage * config.training_iters + state.epoch - state.stage_start
              + state.epoch_step / n_steps)
    share = epochs / (len(config.stages) * config.training_iters)
    return config.learning_rate * config.learning_rate_decay**share * state.lr_factor


def after_validation(config, state, dev_loss):
    """The State after a validation: a better dev loss is the best from now on, another counts as
    a try and lowers the learning rate."""
    state = state._replace(validated=state.epoch)
    if dev_loss < state.best_dev_loss:
        return state._replace(best_dev_loss=dev_loss, best_epoch=state.epoch,
                              tries=0 if config.reset_tries else state.tries)
    return state._replace(tries=state.tries + (config.num_tries > 0),
                          lr_factor=state.lr_factor * config.valid_adapt)
