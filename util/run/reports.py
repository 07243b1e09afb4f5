"""The results of a pass over a data set: its figures, the WER report, the lines of the log."""

import logging
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from util import config as settings, text
from util.run import schedule

log = logging.getLogger('DeepSpeech')


class Results(NamedTuple):
    """The decoded utterances of a pass, in their order."""

    sources: list[str]  # transcripts
    texts: list[str]  # decoded texts
    distances: list[float]  # edit distance over the number of labels
    losses: list[float]  # CTC losses


class CorpusOutcome(NamedTuple):
    """Figures of one corpus of a joined data set."""

    name: str
    loss: float  # mean CTC loss of an utterance
    rates: text.ErrorRates
    n_utterances: int


class Outcome(NamedTuple):
    """Figures of one pass over a data set."""

    loss: float  # mean CTC loss of an utterance; NaN if there is no utterance
    label_error_rate: float | None  # mean of the utterances' distances; None without decoding
    rates: text.ErrorRates | None  # None without decoding
    results: Results
    seconds: float  # s, duration of the pass
    audio_seconds: float  # s, length of the audio
    waited: float  # s of the pass in which steps waited for the feeder
    corpora: list[CorpusOutcome]  # one for each corpus; empty if there is only one
    language_rates: text.ErrorRates | None = None  # of the second search; None without one
    language_texts: Sequence[str] = ()  # of the second search


# The notebook's report


def print_wer_report(caption, wer, items):
    """Logs the notebook's report: the WER, then items of (source, result, WER, loss)."""
    log.info('%s WER: %f', caption, wer)
    for source, result, item_wer, loss in items:
        log.info('-' * 80)
        log.info('    WER:    %f', item_wer)
        log.info('    loss:   %f', loss)
        log.info('    source: "%s"', source)
        log.info('    result: "%s"', result)


def calculate_and_print_wer_report(caption, results_tuple, report_count=10):
    """Logs the WER of results, and those utterances with errors that have the lowest loss.

    Args:
      caption: text before the figures.
      results_tuple: Results.
      report_count: number of utterances to log, which are ordered by their WER.
    Returns:
      The WER over all words.
    Source: the notebook's function of that name.
    """
    results = Results(*results_tuple)
    rates, wer = text.wers(results.sources, results.texts)
    items = [
        item for item in zip(results.sources, results.texts, rates, results.losses) if item[2] > 0
    ]
    items = sorted(items, key=lambda item: item[3])[:report_count]
    print_wer_report(caption, wer, sorted(items, key=lambda item: item[2]))
    return wer


def collect_results(returns, alphabet) -> Results:
    """Converts the decoded labels of one step to texts.

    Args:
      returns: decoding.Decoded of each tower, as values; a tower without utterances adds nothing.
      alphabet: text.Alphabet.
    Source: the notebook's function of that name, which filled lists that were passed to it.
    """
    return join_results(
        [
            Results(
                text.sparse_tensor_value_to_texts(tower.labels, alphabet),
                text.sparse_tensor_value_to_texts(tower.decoded, alphabet),
                tower.distance.tolist(),
                tower.total_loss.tolist(),
            )
            for tower in returns
            if tower.count
        ]
    )


def join_results(parts: list[Results]) -> Results:
    """Returns the results of all parts, in their order, as one."""
    return Results(
        [source for part in parts for source in part.sources],
        [decoded for part in parts for decoded in part.texts],
        [distance for part in parts for distance in part.distances],
        [loss for part in parts for loss in part.losses],
    )


# Figures of a pass


def earlier_outcome(state: schedule.State) -> Outcome | None:
    """Returns the Outcome of a training epoch that an earlier process has done, of which only the
    loss is known; the seconds are 0. None if that was a version which did not keep the loss."""
    if not state.epoch_done:
        return None
    nothing = Results([], [], [], [])
    return Outcome(schedule.epoch_mean(state), None, None, nothing, 0.0, 0.0, 0.0, [])


class Tally:
    """Adds up the figures of the steps of a pass.

    Args:
      feed: the Feeder of the pass; its `waited` is read.
    """

    def __init__(self, feed):
        self._feed, self._waited = feed, feed.waited
        self._started = time.monotonic()
        self._audio_seconds, self._loss, self._corpora = 0.0, 0.0, []

    def add(self, step, loss: float = 0.0) -> None:
        """Adds a records.Step and the sum of the CTC losses of its utterances."""
        self._audio_seconds += step.seconds
        self._loss += loss
        self._corpora += [example.utterance.corpus for example in step.examples]

    @property
    def loss(self) -> float:
        """Returns the mean CTC loss of an utterance so far; NaN if there was no utterance."""
        return self._loss / len(self._corpora) if self._corpora else float('nan')

    def outcome(
        self,
        results: Results,
        loss: float | None = None,
        by_corpus: bool = True,
        language_texts: Sequence[str] = (),
    ) -> Outcome:
        """Returns the Outcome of the pass.

        Args:
          results: the decoded utterances; empty if nothing was decoded.
          loss: mean CTC loss of an utterance; None: that of the Tally.
          by_corpus: whether to add the figures of each corpus, if there are several.
          language_texts: of the second search; empty if there was none.
        """
        label_error_rate = rates = language_rates = None
        if language_texts:
            language_rates = text.error_rates(results.sources, language_texts)
        if results.sources:
            label_error_rate = sum(results.distances) / len(results.distances)
            rates = text.error_rates(results.sources, results.texts)
        return Outcome(
            self.loss if loss is None else loss,
            label_error_rate,
            rates,
            results,
            time.monotonic() - self._started,
            self._audio_seconds,
            self._feed.waited - self._waited,
            _by_corpus(results, self._corpora) if by_corpus else [],
            language_rates,
            language_texts,
        )


def _by_corpus(results, corpora):
    """Returns a CorpusOutcome for each corpus, if there are several.

    Args:
      corpora: the name of the corpus of each utterance.
    """
    found, names = [], list(dict.fromkeys(corpora))
    for name in names if len(names) > 1 else ():
        chosen = [i for i, corpus in enumerate(corpora) if corpus == name]
        sources, texts, losses = [
            [part[i] for i in chosen] for part in (results.sources, results.texts, results.losses)
        ]
        found.append(
            CorpusOutcome(
                name, sum(losses) / len(losses), text.error_rates(sources, texts), len(chosen)
            )
        )
    return found


# Lines of the log


def dropout_words(config) -> str:
    """Returns the words that tell in the report on the training batches how it was made."""
    with_dropout = config.report_dropout and any(map(config.dropout_of_layer, range(1, 6)))
    return 'with dropout' if with_dropout else ''


def report(caption: str, outcome: Outcome, report_count: int, how: str = '') -> None:
    """Logs the WER report of a pass, if it was decoded; `how` are words on how it was made."""
    if outcome.rates and outcome.label_error_rate is not None:
        title = '%s loss=%.9f label_error_rate=%.9f CER: %f%s' % (
            caption,
            outcome.loss,
            outcome.label_error_rate,
            outcome.rates.cer,
            how and ' (%s)' % how,
        )
        calculate_and_print_wer_report(title, outcome.results, report_count)
    if outcome.language_rates:
        title = '%s, second search, CER: %f' % (caption, outcome.language_rates.cer)
        results = outcome.results._replace(texts=list(outcome.language_texts))
        calculate_and_print_wer_report(title, results, report_count)


def figures(outcome: Outcome) -> str:
    """Returns the figures as text: 'loss 1.234500, WER 8.42% [77/914: 5 ins, 12 del, 60 sub]'."""
    words = 'loss %.6f' % outcome.loss
    if outcome.rates:
        words += ', ' + word_errors(outcome.rates)
    return words


def word_errors(rates: text.ErrorRates) -> str:
    """Returns the figures of words as text: 'WER 8.42% [77/914: 5 ins, 12 del, 60 sub]'."""
    n_errors = rates.insertions + rates.deletions + rates.substitutions
    return 'WER %.2f%% [%d/%d: %d ins, %d del, %d sub]' % (
        100 * rates.wer,
        n_errors,
        rates.words,
        rates.insertions,
        rates.deletions,
        rates.substitutions,
    )


def second_figures(config, rates: text.ErrorRates) -> str:
    """Returns the figures of the second search as text: 'with the language model: WER 3.10% [...],
    CER 0.80%'."""
    kind = 'language model' if config.lm else 'grammar' if config.lm_grammar else 'lexicon'
    return 'with the %s: %s, CER %.2f%%' % (kind, word_errors(rates), 100 * rates.cer)


def corpus_figures(corpus: CorpusOutcome) -> str:
    """Returns the figures of a corpus as text: 'fsdd loss 1.234500, WER 8.42%'."""
    return '%s loss %.6f, WER %.2f%%' % (corpus.name, corpus.loss, 100 * corpus.rates.wer)


def epoch_line(
    epoch: int, n_epochs: int, train: Outcome, dev: Outcome | None, learning_rate: float | None
) -> str:
    """Returns the log's line on a finished epoch.

    Args:
      epoch, n_epochs: the epoch's number, from 1, and the number of epochs.
      train, dev: the outcomes; dev is None if no validation was due.
      learning_rate: learning rate of its last step; None if it never changes.
    """
    parts = ['train ' + figures(train)]
    if dev:
        parts.append('dev ' + figures(dev))
        parts += [corpus_figures(corpus) for corpus in dev.corpora]
    if learning_rate is not None:
        parts.append('learning rate %.3g' % learning_rate)
    if train.seconds:  # 0 if an earlier process trained
        speed = train.audio_seconds / train.seconds
        parts.append('%.1f s, %.0f s of audio a second' % (train.seconds, speed))
    return 'Epoch %d of %d finished: %s' % (epoch, n_epochs, '; '.join(parts))


def log_shapes(set_name: str, step, shapes) -> None:
    """Logs the shapes of a batch.

    Args:
      step: records.Step.
      shapes: values of handles.Shapes.
    """

    def extent(values):
        return len(values), values.min(), values.max()

    log.info(
        '%s batch %d: features %s, seq_len [%d] of %d to %d, labels %s, label_len [%d] of '
        '%d to %d, logits %s',
        set_name,
        step.index + 1,
        shapes.features.tolist(),
        *extent(shapes.seq_len),
        shapes.labels.tolist(),
        *extent(shapes.label_len),
        ' and '.join(str(shape.tolist()) for shape in shapes.logits),
    )


def log_stage(config, state: schedule.State, n_utterances: int, n_all: int) -> None:
    """Logs which utterances a stage trains on, if there are several stages."""
    length, n_stages = config.stages[state.stage], len(config.stages)
    if n_stages > 1:
        log.info(
            'Stage %d of %d: %s, %d of %d',
            state.stage + 1,
            n_stages,
            'all utterances' if length is None else 'utterances of up to %d time steps' % length,
            n_utterances,
            n_all,
        )


def dev_figure(best_by: str, loss: float, rate: float) -> str:
    """Returns the figure that the best weights are chosen by, as text.

    Args:
      best_by: one of config.BEST_BY.
      loss: dev loss.
      rate: WER or CER of the dev set.
    Returns:
      'loss (0.650068)', 'WER (18.70 %)' or 'CER (5.20 %)'.
    """
    if best_by == 'loss':
        return 'loss (%.6f)' % loss
    return '%s (%.2f %%)' % (best_by.upper(), 100 * rate)


def best_weights(state: schedule.State) -> str:
    """Returns what the best weights are, as text: 'best by dev WER (18.70 %)'."""
    return 'best by dev ' + best_figure(state)


def best_figure(state: schedule.State) -> str:
    """Returns the figure of the best weights, as `dev_figure` does."""
    best_by = settings.BEST_BY[state.best_by]
    return dev_figure(best_by, state.best_dev_loss, state.best_rate)


def average_weights(state: schedule.State) -> str:
    """Returns what the mean of checkpoints is, as text, from a State with its figures."""
    return 'mean of the newest checkpoints, dev ' + best_figure(state)


def log_average(
    config, state: schedule.State, n_checkpoints: int, loss: float, rate: float, kept: bool
) -> None:
    """Logs the figures of the mean of the newest checkpoints and of the best weights.

    Args:
      n_checkpoints: number of checkpoints in the mean.
      loss, rate: of the mean, as in schedule.after_validation.
      kept: whether the mean is tested and exported.
    """
    log.info(
        'mean of the %d newest checkpoints: dev %s; %s: the %s tested',
        n_checkpoints,
        dev_figure(config.best_by, loss, rate),
        best_weights(state),
        'mean is' if kept else 'best weights are',
    )


def _comparison(best_by, loss, rate, state):
    """Returns the words for figures of the dev set that are not better than the best."""
    if best_by == 'loss':
        return 'dev loss %.6f is not below %.6f' % (loss, state.best_dev_loss)
    return 'dev %s %.2f %% (loss %.6f) is not better than %.2f %% (loss %.6f)' % (
        best_by.upper(),
        100 * rate,
        loss,
        100 * state.best_rate,
        state.best_dev_loss,
    )


def log_worse(config, state: schedule.State, dev_loss: float, rate: float = 0.0) -> None:
    """Logs the consequences of a validation that is not better than the best, if there are any.

    Args:
      dev_loss, rate: as in schedule.after_validation.
    """
    consequences = []
    if config.num_tries:
        consequences.append('patience %d of %d used up' % (state.bad_validations, config.num_tries))
    if config.valid_adapt < 1:
        consequences.append('learning rate times %g' % config.valid_adapt)
    if consequences or config.go_back:
        log.info(
            '%s%s',
            _comparison(config.best_by, dev_loss, rate, state),
            ': ' + ', '.join(consequences) if consequences else '',
        )


def log_stopped(config, state: schedule.State) -> None:
    """Logs that a stage ended before its last epoch, if its patience was used up."""
    if schedule.stopped(config, state) and state.epoch < schedule.last_epoch(config, state):
        log.info(
            '%s after epoch %d: the patience of %d validations is used up',
            'training stops' if schedule.next_stage(config, state) is None else 'the stage ends',
            state.epoch,
            config.num_tries,
        )


class Fault(NamedTuple):
    """What is not finite of a batch or an update."""

    words: str
    finite_loss: bool  # whether the loss is, and only the gradients are not


def fault(finite: bool, loss: float) -> Fault | None:
    """Returns the Fault of a batch or an update; None if all is finite.

    Args:
      finite: whether loss and gradients are.
      loss: its loss.
    """
    if finite:
        return None
    if math.isfinite(loss):
        return Fault('the gradients are not finite (the loss is %f)' % loss, True)
    return Fault('the loss is %f' % loss, False)


def not_finite(what: str, state: schedule.State, step) -> str:
    """Returns the message for a batch whose loss or gradients are not finite.

    Args:
      what: as `fault` returns it.
      step: records.Step that had it.
    """
    return '%s in epoch %d, step %d; utterances of this step: %s' % (
        what,
        state.epoch + 1,
        step.index + 1,
        ', '.join(example.utterance.name for example in step.examples) or 'none',
    )


def place(state: schedule.State) -> str:
    """Returns how far a run is, as text: 'after 2 epochs and 3 steps'."""
    steps = ' and %d steps' % state.epoch_step if state.epoch_step else ''
    return 'after %d epochs%s' % (state.epoch, steps)


def log_other_dev_set(before: schedule.State, after: schedule.State, path: str | None) -> None:
    """Logs what became of the best weights on another dev set.

    Args:
      before, after: the State with the figures of the earlier dev set and of this one.
      path: checkpoint of the best weights; None: they are gone.
    """
    log.info(
        'the dev set is another one than before, when %s was %s: %s',
        path or 'what is no longer there',
        best_weights(before),
        'on this one it has dev %s' % best_figure(after)
        if math.isfinite(after.best_dev_loss)
        else 'it is not compared with what follows',
    )


def log_summary(
    config, data_sets, run_dir: str, weights: str, test: Outcome | None, exported: str | None
) -> None:
    """Logs the last lines of a run: the result, what was lost, and the places of its files.

    Args:
      data_sets: data_sets.DataSets.
      run_dir: folder of the logs.
      weights: description of the weights that were tested.
      exported: path of the exported model, or None.
    """
    if test and test.rates:
        log.info('Test: %s, CER %.2f%%', figures(test), 100 * test.rates.cer)
        if test.language_rates:
            log.info('      %s', second_figures(config, test.language_rates))
        for corpus in test.corpora:
            log.info('      %s, %d utterances', corpus_figures(corpus), corpus.n_utterances)
    lost = ['%d %s' % (number, name) for name, number in data_sets.n_unreadable().items() if number]
    if lost:
        log.warning('Excluded while reading: %s utterances, named above', ', '.join(lost))
    log.info('Model:  %s (tested: %s)', config.checkpoint_dir, weights)
    log.info('Logs:   %s (tensorboard --logdir %s)', run_dir, config.logs_dir)
    log.info('Export: %s', exported or 'none, as ds_export_dir is not set')
