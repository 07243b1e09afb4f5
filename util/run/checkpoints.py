"""The policy of checkpoints: which one a run goes on from, what it keeps, what it tests."""

import contextlib
import logging
import math
import time
from collections.abc import Callable

from util import errors
from util.graph import run_state
from util.run import averaging, checkpoint_files, checkpoint_io, folder_lock, reports, schedule
from util.run import description as descriptions, warm_start
from util.tf1 import tf

log = logging.getLogger('DeepSpeech')

KEPT = 5  # number of newest checkpoints that are kept, unless more are to be averaged


class RuinedCheckpoint(errors.TrainingError):
    """No loss was finite since a checkpoint, `path`, was restored: an earlier one is needed."""

    def __init__(self, path, message):
        super().__init__(message)
        self.path = path


class Checkpoints:
    """The checkpoints of a run: `ds_checkpoint_dir` and, in best/, the best by `ds_best_by`.

    Args:
      config: Config.
      session: tf.Session.
      model: handles.Model.
      data_sets: data_sets.DataSets.
      hook: as in DeepSpeech.main; called with 'saved'.
      stop: signals.StopRequest, which is told what there is to go on from.
      ruined: RuinedCheckpoint, before which the run is to go on; None: there is none.
    """

    def __init__(self, config, session, model, data_sets, hook, stop, ruined=None):
        self._config, self._session, self._model = config, session, model
        self._data_sets, self._hook, self._stop, self._ruined = data_sets, hook, stop, ruined
        self._doubted = None  # the restored checkpoint, until its weights have given a finite loss
        self._saved = None  # schedule.State of the checkpoint that was restored or saved last
        self._last = None  # path of the checkpoint that was restored or saved last
        self._passing: set[str] = set()  # paths that are removed once there is a newer checkpoint
        self._saved_at = time.monotonic()
        self._best_dir = checkpoint_files.best_dir(config.checkpoint_dir)
        self._averaged_dir = checkpoint_files.averaged_dir(config.checkpoint_dir)
        self._newest = checkpoint_io.Folder(config.checkpoint_dir, model.savers.newest)
        self._best = checkpoint_io.Folder(self._best_dir, model.savers.best)
        self._averaged = checkpoint_io.Folder(self._averaged_dir, model.savers.averaged)

    # Saving

    def save(self, state: schedule.State, passing: bool = False) -> str:
        """Saves weights, optimizer and state.

        Args:
          passing: whether no setting asks for a checkpoint at this step; it is removed once there
            is a newer one, so that neither the clock nor an interruption decides which are kept and
            averaged.
        Returns:
          Path of the checkpoint.
        Raises:
          TrainingError: it cannot be written, or the weights are not finite. Earlier checkpoints
            are left as they are.
        """
        if not self._session.run(self._model.finite_weights):
            raise self.failure('the weights are not finite %s' % reports.place(state))
        number = int(self._session.run(self._model.global_step))
        passing = passing and self._newest.path(number) not in self._newest.kept() - self._passing
        state, earlier = state._replace(passing=int(passing)), self._passing
        self._last = self._save(self._newest, state, earlier)
        self._saved = state
        self._passing = {self._last} if passing else set()
        self._saved_at = time.monotonic()
        self._say_what_there_is()
        return self._last

    def _say_what_there_is(self):
        """Tells the StopRequest what a run that ends at once can go on from."""
        self._stop.outcome = 'ds_restore_checkpoint=1 goes on from %s' % self._last

    def due_by_time(self) -> bool:
        """Tells whether the last checkpoint was saved `ds_checkpoint_secs` ago."""
        limit = self._config.checkpoint_secs
        return 0 < limit <= time.monotonic() - self._saved_at

    def save_best(self, state: schedule.State) -> None:
        """Saves a checkpoint twice: as the newest one and as the best one.

        Raises:
          TrainingError: as `save`.
        """
        self.save(state)  # first, so that best/ is never ahead of what a resumed run finds
        self._save(self._best, state)

    def interruption(self, state: schedule.State) -> errors.Interrupted:
        """Saves a checkpoint, and returns the exception that ends the run and names it.

        Raises:
          TrainingError: as `save`.
        """
        steps = ' and %d steps' % state.epoch_step if state.epoch_step else ''
        path = self._last if self._is_saved(state) else self.save(state, passing=True)
        return errors.Interrupted(
            'saved %s: %d epochs%s; ds_restore_checkpoint=1 goes on from there'
            % (path, state.epoch, steps)
        )

    def _is_saved(self, state):
        """Tells whether a run that goes on from the last checkpoint begins with the next epoch, as
        one would from this State."""
        last = self._saved
        if last is None or state.epoch_step or last.epoch_step:
            return False
        there, here = [(each.epoch, each.validated, each.stage) for each in (last, state)]
        return there == here

    @contextlib.contextmanager
    def saved_on_failure(self, state: schedule.State):
        """Saves a checkpoint if the block fails to write the logs.

        Raises:
          LogError: the logs cannot be written; the message names the checkpoint.
        """
        try:
            yield
        except errors.LogError as error:
            path = self.save(state, passing=True)
            raise errors.LogError('%s; saved %s' % (error, path)) from None

    @contextlib.contextmanager
    def saved_on_shortage(self, current: Callable[[], schedule.State]):
        """Saves a checkpoint if the block is asked to stop while it waits for utterances, or if it
        lacks memory or utterances. Where memory ran out within an update, a part of it may be in
        the weights already.

        Args:
          current: function that returns the State to save.
        Raises:
          Interrupted: the user asked the run to stop.
          MemoryShortage, FeedingError: the message names the checkpoint.
        """
        try:
            yield
        except errors.StopWanted:
            raise self.interruption(current()) from None
        except (errors.MemoryShortage, errors.FeedingError) as error:
            path = self.save(current(), passing=True)
            raise type(error)('%s; saved %s' % (error, path)) from error

    def _save(self, folder, state, passing=()):
        """Saves a checkpoint into a folder and returns its path; `passing` is as in
        checkpoint_io.Folder.save."""
        model = self._model
        self._session.run(model.state.assign, dict(zip(model.state.values, state)))
        try:
            number = int(self._session.run(model.global_step))
            folder_lock.renew(self._config.checkpoint_dir)
            path = folder.save(self._session, number, passing)
        except (tf.errors.OpError, OSError) as error:
            raise errors.TrainingError(
                'the checkpoint cannot be written to %s: %s'
                % (folder.directory, errors.first_line(error))
            ) from None
        self._hook('saved', state)
        return path

    # Going on

    def restore(self) -> schedule.State:
        """Restores the newest undamaged checkpoint, or initialises the variables.

        Returns:
          The State with which the run starts.
        Raises:
          CheckpointError: all checkpoints are damaged, or the network is another one; or the run
            is without training, and there is nothing to test.
          RuinedCheckpoint: the weights to go on with are not finite.
        """
        config, session, model = self._config, self._session, self._model
        with model.graph.as_default():
            session.run(model.initializer)
            path = None
            if self._ruined:
                path = self._before(self._ruined)
                self._passing = {self._ruined.path}
            elif config.restore_checkpoint:
                path = checkpoint_files.newest_whole(config.checkpoint_dir)
            if config.training_iters:
                checkpoint_files.take_over(self._newest, config.checkpoint_dir)
                checkpoint_files.take_over(self._best, self._best_dir)
                if model.savers.averaged:
                    checkpoint_files.take_over(self._averaged, self._averaged_dir)
            if path is None:
                self._start_afresh()
                state = schedule.INITIAL_STATE._replace(run=time.time_ns())
                return schedule.with_best_by(config, state)
            # The description is left out, as checkpoints of this run describe this run.
            restored = [v for v in tf.global_variables() if v.op.name != run_state.DESCRIPTION]
            missing = checkpoint_files.restore(session, path, restored)
            state = schedule.State(*[value.item() for value in session.run(model.state.variables)])
            if model.state.variables.epoch in missing:
                state = self._state_of_the_notebook(path)
        self._doubted = self._last = path
        self._say_what_there_is()
        self._passing.update([path] if state.passing else [])
        self._saved = state = state._replace(passing=0)
        if config.training_iters and not session.run(model.finite_weights):
            raise self.failure('the weights are not finite %s' % reports.place(state))
        return self._go_on(state, path)

    def _start_afresh(self):
        """Logs that the run starts afresh, and loads the weights of `ds_init_from`, if it is set.

        Raises:
          CheckpointError: there are no weights to load; or the run is without training, and there
            is no checkpoint, or weights are missing in `ds_init_from`; or these were trained with
            other features.
        """
        config = self._config
        if config.training_iters:
            self._log_fresh_start()
        elif not config.init_from:
            raise errors.CheckpointError(
                'ds_training_iters=0 tests a checkpoint, but %s'
                % (
                    'there is none in ' + config.checkpoint_dir
                    if config.restore_checkpoint
                    else 'ds_restore_checkpoint is off, and ds_init_from empty'
                )
            )
        if config.init_from:
            missing = warm_start.load(
                self._session, config.init_from, tf.trainable_variables(), self._description()
            )
            if missing and not config.training_iters:
                raise errors.CheckpointError(
                    'ds_training_iters=0 tests the weights of ds_init_from, but %s lacks %s'
                    % (config.init_from, ', '.join(missing))
                )

    def _description(self):
        """Returns the description of the models of this run, which the graph holds."""
        [variable] = [v for v in tf.global_variables() if v.op.name == run_state.DESCRIPTION]
        return descriptions.from_json(self._session.run(variable).tobytes())

    def _log_fresh_start(self):
        """Logs that the run starts afresh, and what happens to existing checkpoints."""
        config = self._config
        found = checkpoint_files.candidates(config.checkpoint_dir)
        if config.restore_checkpoint:
            log.info('no checkpoint in %s: starting afresh', config.checkpoint_dir)
        elif found:
            log.info(
                'starting afresh; the checkpoints of an earlier run in %s will be replaced '
                '(ds_restore_checkpoint=1 would go on from %s)',
                config.checkpoint_dir,
                found[0],
            )
        else:
            log.info('starting afresh')

    def _state_of_the_notebook(self, path):
        """Returns the State for a checkpoint of the notebook, whose number is the index of its
        epoch, and sets the number of updates accordingly."""
        epoch = checkpoint_files.number(path) + 1
        data_set = self._data_sets.stages[0]
        updates = sum(map(data_set.ends_update, range(data_set.total_batches)))
        step = self._model.global_step
        self._session.run(step.initializer, {step.initial_value: epoch * updates})
        return schedule.INITIAL_STATE._replace(epoch=epoch, validated=epoch)

    def _go_on(self, state, path):
        """Returns the State with which the run goes on, and logs it."""
        config, n_stages = self._config, len(self._config.stages)
        state = state._replace(stage=min(state.stage, n_stages - 1))
        data_set = self._data_sets.stages[state.stage]
        if (
            config.training_iters
            and state.epoch_step
            and (state.order != data_set.order_checksum(state.epoch))
        ):
            log.info(
                'the utterances, their order, the batch size or the update differ from before: '
                'the unfinished epoch starts anew'
            )
            state = schedule.epoch_begun(state._replace(epoch_step=0))
        if self._model.accumulation and not state.epoch_step:
            self._session.run(self._model.accumulation.reset)
        log.info(
            'restored %s: %d epochs done%s',
            path,
            state.epoch,
            ' and %d steps of the next' % state.epoch_step if state.epoch_step else '',
        )
        if config.init_from:
            log.info('ds_init_from is not used, as the run goes on from its own checkpoint')
        if config.training_iters:
            state = self._with_best_by(state)
            self._mend_best(state)
            if state.validated < state.epoch:
                log.info('going on with the validation of epoch %d', state.epoch)
            elif not schedule.stage_done(config, state):
                number = int(self._session.run(self._model.global_step))
                log.info(
                    'going on with epoch %d at learning rate %g%s',
                    state.epoch + 1,
                    schedule.learning_rate(config, state, data_set.total_batches)
                    * schedule.warmup_factor(config, number + 1),
                    ', stage %d of %d' % (state.stage + 1, n_stages) if n_stages > 1 else '',
                )
        return state

    def _with_best_by(self, state):
        """Returns the State for the figure that the best weights are chosen by, if training goes
        on; logs it if it was another one before."""
        if schedule.complete(self._config, state):
            return state
        after = schedule.with_best_by(self._config, state)
        if after != state and math.isfinite(state.best_dev_loss):
            log.info(
                'ds_best_by is %s; what was %s is not compared with what follows',
                self._config.best_by,
                reports.best_weights(state),
            )
        return after

    def _mend_best(self, state):
        """Saves the best weights if the earlier run ended just before it could save them."""
        is_best = 0 < state.best_epoch == state.epoch and not state.epoch_step
        if is_best and not self._find_best(state):
            self._save(self._best, state)

    # Numbers that are not finite

    def trust(self) -> None:
        """Notes that the weights have given a finite loss."""
        self._doubted = None

    def failure(self, message: str, good: schedule.State | None = None) -> errors.TrainingError:
        """Returns the error that ends a run whose numbers are not finite.

        It is a RuinedCheckpoint if no loss was finite since a checkpoint was restored.

        Args:
          message: what is not finite, and where.
          good: State to save first, if the weights are those that gave a finite loss.
        """
        if self._doubted:
            return RuinedCheckpoint(self._doubted, message)
        if good and not self._is_saved(good):
            self.save(good, passing=True)
        return errors.TrainingError(
            '%s. A smaller ds_learning_rate than %g may help%s'
            % (
                message,
                self._config.learning_rate,
                '; ds_restore_checkpoint=1 goes on from %s' % self._last if self._last else '',
            )
        )

    def _before(self, ruined):
        """Returns the path of the newest checkpoint of a run before the one that is ruined.

        Raises:
          TrainingError: there is none.
        """
        directory = self._config.checkpoint_dir
        paths = averaging.newest_of_run(directory, checkpoint_files.run_of(ruined.path))
        earlier = paths[paths.index(ruined.path) + 1 :]
        if not earlier:
            raise errors.TrainingError(
                '%s: %s is ruined, and %s has no checkpoint before it; train afresh with a smaller '
                'ds_learning_rate than %g'
                % (ruined, ruined.path, directory, self._config.learning_rate)
            )
        log.warning('%s: %s is ruined, going back to %s', ruined, ruined.path, earlier[0])
        return earlier[0]

    # The best weights

    def go_back(self, state: schedule.State) -> bool:
        """Restores the best weights and the optimizer's slots that belong to them.

        Returns:
          Whether there are any.
        Raises:
          TrainingError: they cannot be read.
        """
        path = self._best_path(state)
        if path:
            try:
                checkpoint_io.restore(self._session, self._model.savers.weights, path)
            except tf.errors.OpError as error:
                raise errors.TrainingError(
                    'the best weights, %s, cannot be restored: %s'
                    % (path, errors.first_line(error))
                ) from None
            log.info('went back to the weights of %s', path)
        return bool(path)

    def on_dev_set(self, state: schedule.State, dev_set: int, measure) -> schedule.State:
        """Returns the State for the dev set of this run. If the best weights were chosen by another
        one, they are measured on this one, so that later weights are compared with them fairly.

        Args:
          dev_set: schedule.dev_checksum of the dev set.
          measure: function without arguments that evaluates the dev set and returns (loss, rate),
            as in schedule.after_validation; not finite if there is no validation.
        """
        if state.dev_set in (0, dev_set) or math.isinf(state.best_dev_loss):
            return state._replace(dev_set=dev_set)
        path, loss, rate = self._best_path(state), math.nan, math.nan
        if path:
            self._restore_weights(path)
            loss, rate = measure()
            self._restore_weights(self._last)
        after = schedule.with_dev_set(state, dev_set, loss, rate)
        reports.log_other_dev_set(state, after, path)
        return after

    def load_weights_to_test(self, state: schedule.State) -> str:
        """Restores the weights to test and to export: the mean of the newest checkpoints if it was
        kept, otherwise the best ones by `ds_best_by` if a validation ran, otherwise those of the
        last step.

        Returns:
          A description of these weights, for the log.
        """
        path = self._averaged_path()
        if path:
            self._restore_weights(path)
            return '%s, %s' % (self._average_words(path, state), path)
        path = self._best_path(state)
        if path:
            self._restore_weights(path)
            return '%s, %s' % (reports.best_weights(state), path)
        if not state.epoch and not state.epoch_step and self._config.init_from:
            return 'of ' + self._config.init_from
        return 'of epoch %d%s' % (
            state.epoch,
            ' and %d steps' % state.epoch_step if state.epoch_step else '',
        )

    def _restore_weights(self, path):
        """Restores the weights of a checkpoint, and nothing else."""
        with self._model.graph.as_default():
            checkpoint_files.restore(self._session, path, tf.trainable_variables())

    def _best_path(self, state):
        """Returns the path of the checkpoint with the best weights, or None; warns if it no longer
        exists."""
        path = self._find_best(state)
        if not path and math.isfinite(state.best_dev_loss):
            log.warning(
                'the best weights, %s, are no longer in %s',
                reports.best_weights(state),
                self._best_dir,
            )
        return path

    def _find_best(self, state):
        """Returns the path of the checkpoint with the best weights of this very run, or None."""
        with contextlib.suppress(errors.CheckpointError):  # the damage was logged
            path = checkpoint_files.newest_whole(self._best_dir)
            if path and averaging.is_best_of(path, averaging.best_of(state)):
                return path
        return None

    # The mean of the newest checkpoints

    def load_average(self, state: schedule.State) -> list[str]:
        """Loads the mean of the weights of the newest checkpoints of this run, as many as
        `ds_average_checkpoints` says, or all that there are.

        Returns:
          The paths of these checkpoints, newest first.
        """
        paths = averaging.newest_of_run(
            self._config.checkpoint_dir, state.run, self._config.average_checkpoints
        )
        weights = self._model.weights
        if paths:
            mean = averaging.mean_weights(paths, [v.op.name for v in weights])
            values = {v.initial_value: mean[v.op.name] for v in weights}
            self._session.run([v.initializer for v in weights], values)
        return paths

    def keep_average(self, state: schedule.State, dev_loss: float, rate: float) -> None:
        """Saves the mean, which has been loaded, with its figures on the dev set.

        Raises:
          TrainingError: as `save`.
        """
        state = state._replace(best_dev_loss=dev_loss, best_rate=rate, best_epoch=state.epoch)
        self._save(self._averaged, state)

    def drop_average(self) -> None:
        """Removes an earlier mean, and restores the newest weights in place of the one that has
        been loaded."""
        checkpoint_files.remove_all(self._averaged_dir)
        path = checkpoint_files.newest_whole(self._config.checkpoint_dir)
        if path:
            self._restore_weights(path)

    def _averaged_path(self):
        """Returns the path of the mean of this run's newest checkpoints, or None."""
        return averaging.averaged_in(self._config.checkpoint_dir)

    def _average_words(self, path, state):
        """Returns a description of the mean with its figure on the dev set."""
        variables = self._model.state.variables
        loss, rate = [
            checkpoint_files.value(path, variable)
            for variable in (variables.best_dev_loss, variables.best_rate)
        ]
        return reports.average_weights(state._replace(best_dev_loss=loss, best_rate=rate))
