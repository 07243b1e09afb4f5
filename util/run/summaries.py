"""Event files for TensorBoard, for the training, dev and test sets."""

import contextlib
import os
import threading

from tensorflow.python.client import timeline

from util import errors, files
from util.tf1 import tf


WRITER_THREAD = 'EventLoggerThread'  # name of the threads of TensorFlow that write event files


@contextlib.contextmanager
def quiet_writers():
    """Keeps tracebacks of the threads that write event files off the terminal while the block runs;
    EventFiles raises the errors of these threads as LogErrors."""
    before = threading.excepthook

    def report(failure):
        if failure.thread is None or failure.thread.name != WRITER_THREAD:
            before(failure)

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = before


class EventFiles:
    """The event files of a run, in a folder for each data set that has utterances.

    Args:
      run_dir: folder of the run.
      graph: tf.Graph that TensorBoard shows.
      data_sets: data_sets.DataSets.
      every: ds_summary_steps.
    Raises:
      LogError: the files cannot be written. The methods raise it, too.
    """

    def __init__(self, run_dir, graph, data_sets, every: int):
        self._every, self._folder, self._writers = every, run_dir, {}
        with graph.as_default(), self._writing():
            for data_set in data_sets:
                if len(data_set):
                    self._writers[data_set.name] = tf.summary.FileWriter(
                        os.path.join(run_dir, data_set.name),
                        graph if data_set.name == 'train' else None,
                    )

    @contextlib.contextmanager
    def _writing(self, folder=None):
        """Turns an error of the block into a LogError of one line."""
        try:
            yield
        # TensorFlow makes an IndexError of a file that is too large.
        except (RuntimeError, OSError, IndexError, ValueError, tf.errors.OpError) as error:
            raise errors.LogError(
                'the logs cannot be written to %s: %s'
                % (folder or self._folder, errors.first_line(error))
            ) from None

    def write_update(self, update, epoch: int, trace=None) -> None:
        """Writes the results of an update that are due.

        Args:
          update: handles.UpdateResult.
          epoch: epoch of the update, from 1.
          trace: tf.RunMetadata of the step, or None.
        """
        writer, number = self._writers['train'], int(update.number)
        if self._every and number % self._every == 0:
            self._write_scalars('train', number, step_loss=update.loss)
        with self._writing(writer.get_logdir()):
            if update.summaries:
                writer.add_summary(update.summaries, number)
            if trace is not None:
                writer.add_run_metadata(trace, 'epoch%d_step%d' % (epoch, number), number)
                files.write_file(
                    os.path.join(writer.get_logdir(), 'trace.json'),
                    timeline.Timeline(trace.step_stats).generate_chrome_trace_format(),
                )

    def write_outcome(self, set_name: str, step: int, outcome, **scalars) -> None:
        """Writes the figures of a pass over a set.

        Args:
          set_name: 'train', 'dev' or 'test'.
          step: number of updates made so far.
          outcome: reports.Outcome.
          scalars: more values to write.
        """
        scalars['loss'] = outcome.loss
        if outcome.seconds:  # 0 if an earlier process made the pass
            scalars.update(
                feeding_wait_share=outcome.waited / outcome.seconds,
                audio_seconds_per_second=outcome.audio_seconds / outcome.seconds,
            )
        if outcome.rates:
            scalars.update(
                label_error_rate=outcome.label_error_rate,
                wer=outcome.rates.wer,
                cer=outcome.rates.cer,
            )
        if outcome.language_rates:
            scalars.update(wer_lm=outcome.language_rates.wer, cer_lm=outcome.language_rates.cer)
        for corpus in outcome.corpora:
            scalars.update(
                {'loss_' + corpus.name: corpus.loss, 'wer_' + corpus.name: corpus.rates.wer}
            )
        self._write_scalars(set_name, step, **scalars)
        with self._writing(self._writers[set_name].get_logdir()):
            self._writers[set_name].flush()

    def _write_scalars(self, set_name, step, **scalars):
        """Writes scalars, {tag: number}, to the event file of a data set."""
        writer = self._writers[set_name]
        with self._writing(writer.get_logdir()):
            writer.add_summary(
                tf.Summary(
                    value=[
                        tf.Summary.Value(tag=tag, simple_value=value)
                        for tag, value in scalars.items()
                    ]
                ),
                step,
            )

    def close(self) -> None:
        """Writes the remaining events and closes the files."""
        for writer in self._writers.values():
            with self._writing(writer.get_logdir()):
                writer.close()
