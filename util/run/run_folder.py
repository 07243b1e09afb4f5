"""The folder of a run's logs: its name, and hyper.json with settings and results."""

import dataclasses
import datetime
import functools
import logging
import os
import subprocess
import time

import util
from util import config as settings, errors, files, log as run_log, website

log = logging.getLogger(__name__)

RUN_DIR_FORMAT = '%Y%m%d-%H%M%S'
INTERRUPTED = 'interrupted'  # how a run ended that the user stopped
GIT_LIMIT_S = 10  # s, time limit for git
RESULTS = (
    'last_train_wer',
    'last_train_loss',
    'last_validation_wer',
    'last_validation_loss',
    'test_wer',
    'test_loss',
    'test_cer',
    'test_wer_lm',
    'test_cer_lm',
)


def make_run_dir(logs_dir: str, now: time.struct_time | None = None) -> str:
    """Makes a new folder YYYYMMDD-HHMMSS for the logs of this run; a number makes it unique.

    Raises:
      ConfigError: it cannot be made.
    """
    files.make_dir(logs_dir, 'ds_logs_dir')
    base = os.path.join(logs_dir, time.strftime(RUN_DIR_FORMAT, now or time.localtime()))
    path, number = base, 1
    while True:
        try:
            os.mkdir(path)
            return path
        except FileExistsError:
            number += 1
            path = '%s-%d' % (base, number)


def git_revision() -> tuple[str | None, str | None]:
    """Returns (hash, branch) of the project's own repository; (None, None) outside of one."""
    return _git_revision(settings.PROJECT_DIR)


@functools.cache  # a run describes its model several times, and git may be slow
def _git_revision(folder):
    """Returns (hash, branch) of the repository in a folder, as `git_revision`."""
    # with --git-dir, as git would otherwise find a repository in a folder above this one
    place = ('--git-dir', os.path.join(folder, '.git'))
    try:
        done = subprocess.run(
            ['git', *place, 'rev-parse', 'HEAD', '--abbrev-ref', 'HEAD'],
            check=True,
            capture_output=True,
            encoding='utf-8',
            errors='replace',
            timeout=GIT_LIMIT_S,
        )
        revision, branch = done.stdout.split()
    except (OSError, subprocess.SubprocessError, ValueError):  # the last: an unknown answer
        return None, None
    return revision, branch


def ended_by(error: BaseException) -> str:
    """Returns how a run ended that an exception ended: 'interrupted', or the error in a line."""
    if isinstance(error, (errors.Interrupted, KeyboardInterrupt)):
        return INTERRUPTED
    return errors.first_line(error)


class RunRecord:
    """hyper.json of a run, in the notebook's structure, and the folder in which it lies.

    Args:
      config: Config.
      alphabet: text.Alphabet.
      data_sets: data_sets.DataSets.
      started: datetime with a time zone.
    Attributes:
      run_dir: path of the folder.
      epochs_done: number of epochs that are done, those of earlier processes included.
      ended: how the run ended: 'complete', or what `ended_by` returns.
    Raises:
      ConfigError: the folder cannot be made.
    """

    def __init__(self, config, alphabet, data_sets, started: datetime.datetime):
        self.run_dir = make_run_dir(config.logs_dir)
        self._started, self._logs_dir = started, config.logs_dir
        self._data_sets = data_sets
        git_hash, git_branch = git_revision()
        self._context = {
            'time_started': started.isoformat(),
            'git_hash': git_hash,
            'git_branch': git_branch,
            'version': util.__version__,
        }
        self._parameters = {
            **dataclasses.asdict(config),
            'epochs': config.training_iters,
            'n_hidden_3': config.n_hidden_3,
            'n_hidden_6': alphabet.n_character,
            'n_character': alphabet.n_character,
            'total_batches_train': data_sets.stages[-1].total_batches,
            'total_batches_validation': data_sets.dev.total_batches,
            'total_batches_test': data_sets.test.total_batches,
            'data_set': {'name': config.importer},
        }
        self._results: dict[str, float | None] = dict.fromkeys(RESULTS)  # None: no result
        self.epochs_done, self.ended = 0, INTERRUPTED

    def add(self, name: str, outcome, epochs_done: int | None = None) -> None:
        """Adds the figures of a reports.Outcome; None adds nothing.

        Args:
          name: 'last_train', 'last_validation' or 'test'.
          epochs_done: number of epochs that are done now; None: as before.
        """
        if epochs_done is not None:
            self.epochs_done = epochs_done
        if outcome is None:
            return
        rates, second = outcome.rates, outcome.language_rates
        figures = {
            'loss': outcome.loss,
            'wer': rates and rates.wer,
            'cer': rates and rates.cer,
            'wer_lm': second and second.wer,
            'cer_lm': second and second.cer,
        }
        self._results.update(
            {
                '%s_%s' % (name, key): value
                for key, value in figures.items()
                if '%s_%s' % (name, key) in RESULTS
            }
        )

    def write(self) -> None:
        """Writes hyper.json, and hyper.js of all runs, and publishes them; a failure is only
        logged, as it must not hide what ended the run."""
        finished = datetime.datetime.now(datetime.timezone.utc)
        content = {
            'context': {
                **self._context,
                'time_finished': finished.isoformat(),
                'ended': self.ended,
                'epochs_done': self.epochs_done,
            },
            'parameters': self._parameters,
            'results': {
                'duration': (finished - self._started).total_seconds(),
                'excluded_while_reading': sum(self._data_sets.n_unreadable().values()),
                **self._results,
            },
        }
        try:
            os.makedirs(self.run_dir, exist_ok=True)  # someone may have removed it
            files.write_file(os.path.join(self.run_dir, 'hyper.json'), run_log.strict_json(content))
            run_log.merge_logs(self._logs_dir)
        except OSError as error:
            log.warning('hyper.json cannot be written to %s: %s', self.run_dir, error.strerror)
        try:
            website.maybe_publish(self._logs_dir)
        except Exception as error:  # whatever goes wrong with another machine
            log.warning('the logs cannot be published: %s', errors.first_line(error))
