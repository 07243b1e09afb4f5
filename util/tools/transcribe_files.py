"""The work of `transcribe`: opens the model, goes through the files, writes what was said."""

import argparse
import contextlib
import io
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import DeepSpeech
from util import audio, config as settings, errors, files, log as run_log
from util.corpora import manifests
from util.language import decoder as decoders
from util.recognition import inputs, models, pipeline, scoring, second_search, subtitles
from util.recognition.alignment import SPACE
from util.recognition.inputs import STANDARD_INPUT, Task
from util.recognition.network import ModelError, Network
from util.recognition.pipeline import Failure, Transcript
from util.tf1 import tf
from util.tools import language_options

MAX_JOBS = 4  # reader threads
MS_DIGITS, CONFIDENCE_DIGITS = 3, 4  # decimals of times in seconds and of confidences


def run(options: argparse.Namespace) -> int:
    """Transcribes the files that the command line names.

    Returns:
      The exit status: 1 if a file could not be transcribed, otherwise 0.
    Raises:
      DeepSpeechError: the options do not go together, the model cannot be used or run, or the
        standard output cannot be written.
    """
    logging.basicConfig(level=logging.WARNING, format='%(message)s', stream=sys.stderr, force=True)
    logging.getLogger('tensorflow').setLevel(logging.ERROR)
    _check(options)
    network = _open(options)
    with contextlib.ExitStack() as stack:
        standard_input = None
        if STANDARD_INPUT in options.files:
            standard_input = stack.enter_context(_standard_input_as_file())
        tasks = inputs.list_tasks(options.files, network.alphabet, standard_input)
        output = Output(options, network)
        tasks = [output.checked(task) for task in tasks]
        try:
            return _transcribe(network, tasks, output, options)
        except tf.errors.OpError as error:
            raise errors.DeepSpeechError(
                'the model cannot be run: %s; a smaller --batch-size needs less memory'
                % errors.first_line(error)
            ) from None


def _check(options):
    """Raises ConfigError if the options do not go together."""
    if options.files.count(STANDARD_INPUT) > 1:
        raise errors.ConfigError('- can be given only once, as there is one standard input')
    if not options.subtitles:
        return
    for path in options.files:
        if path.lower().endswith(manifests.ENDINGS) and not os.path.isdir(path):
            raise errors.ConfigError(
                '--%s takes audio files and folders, not the manifest %s'
                % (options.subtitles, path)
            )
    if STANDARD_INPUT in options.files and len(options.files) > 1:
        raise errors.ConfigError(
            '--%s: - must be the only FILE, as subtitles of several files are written beside them'
            % options.subtitles
        )


def _open(options):
    """Returns the Network of the model that the command line names."""

    def load_settings():
        if options.config is None:
            return settings.load()[0]
        return settings.load({'ds_config': options.config})[0]

    tools = models.Tools(DeepSpeech.build_model, DeepSpeech.decode, load_settings)
    wanted = language_options.settings_of(options)
    # the texts of the plain search are not used if there is another one
    beam_width = options.beam_width if wanted is None else 1
    network = models.open_model(options.model, tools, beam_width)
    if options.subtitles and not network.gives_logits:
        raise ModelError(
            '--%s: %s gives no logits, without which words have no times; models exported by '
            'version 0.1 are of this kind' % (options.subtitles, options.model)
        )
    if wanted is None:
        return network
    decoder = decoders.make_decoder(wanted, network.alphabet)
    return second_search.SearchedNetwork(network, decoder)


@contextlib.contextmanager
def _standard_input_as_file() -> Iterator[str]:
    """Copies the standard input to a temporary file, as an audio file is not read from front to
    back; yields its path."""
    with tempfile.NamedTemporaryFile() as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield file.name


def _transcribe(network, tasks, output, options):
    """Transcribes the tasks and writes the results; returns the exit status."""
    progress, failed = Progress(tasks), False
    scores: dict[str, scoring.Score] = {}
    results = pipeline.transcribe(
        network,
        tasks,
        batch_size=options.batch_size,
        jobs=options.jobs or min(MAX_JOBS, os.cpu_count() or 1),
        with_times=bool(options.json or options.subtitles),
        progress=progress.add,
    )
    with contextlib.closing(progress), contextlib.closing(results):
        for task, outcome in results:
            progress.clear()
            if isinstance(outcome, Failure):
                reason = outcome.reason
            else:
                reason = output.write(task, outcome)
                _score(scores, task, outcome)
            if reason:
                failed = True
                _say('error: %s: %s' % (task.utterance.name, reason))
    for manifest, score in scores.items():
        _say('%s: %s' % (manifest, score.figures()))
    return int(failed)


def _score(scores, task, transcript):
    """Compares the transcript of an utterance of a manifest with its reference.

    Args:
      scores: {path of a manifest: scoring.Score}, to which it is added.
    """
    if task.manifest:
        why_not = scores.setdefault(task.manifest, scoring.Score()).add(task, transcript)
        if why_not:
            _say('not compared: %s: %s' % (task.utterance.name, why_not))


def _say(line):
    """Writes a line to the standard error."""
    print(_one_line(line), file=sys.stderr, flush=True)


def _one_line(words):
    """Returns a text in which line ends and tabs, which a file's name may hold, are visible."""
    return words.replace('\n', '\\n').replace('\r', '\\r').replace('\t', '\\t')


class Progress:
    """A progress bar on the standard error, in seconds of audio. It writes nothing if that is not
    a terminal.

    Args:
      tasks: what is to be transcribed.
    """

    def __init__(self, tasks: list[Task]) -> None:
        self._seconds = 0.0
        self._bar = run_log.Bar('transcribed', None, unit=' s of audio', stream=sys.stderr)
        if not self._bar.disable:  # else the headers need not be read
            self._bar.close()
            total = round(_total_seconds(tasks))
            self._bar = run_log.Bar('transcribed', total, unit=' s', stream=sys.stderr)

    def add(self, seconds: float) -> None:
        """Adds seconds of audio that are done."""
        self._seconds += seconds
        self._bar.update(int(self._seconds) - self._bar.n)

    def clear(self) -> None:
        """Clears the line for other output."""
        self._bar.clear()

    def close(self) -> None:
        """Removes the bar."""
        self._bar.close()


def _total_seconds(tasks):
    """Returns the length of all audio in seconds, as its headers say."""
    total = 0.0
    for utterance in [task.utterance for task in tasks if not task.utterance.exclusion_reason]:
        with contextlib.suppress(audio.AudioError):  # the file will be named when it is read
            info = audio.audio_info(utterance.wav_filename)
            total += audio.segment(info, utterance.start_s, utterance.stop_s)[1] / info.rate
    return total


class Output:
    """Writes transcripts in the form that the command line asks for.

    Args:
      options: those of the command line.
      network: Network.
    """

    def __init__(self, options: argparse.Namespace, network: Network) -> None:
        self._json, self._subtitles = options.json, options.subtitles
        self._beside = bool(options.subtitles) and (
            len(options.files) > 1 or os.path.isdir(options.files[0])
        )
        self._separator = SPACE if SPACE in network.alphabet else ''
        if isinstance(sys.stdout, io.TextIOWrapper):
            # names of files that are not UTF-8 come out as they are
            sys.stdout.reconfigure(encoding='utf-8', errors='surrogateescape')

    def checked(self, task: Task) -> Task:
        """Returns a task with an exclusion reason if its subtitles would overwrite a file."""
        path = self._subtitles_path(task)
        if not self._beside or task.utterance.exclusion_reason or not os.path.lexists(path):
            return task
        return task._replace(utterance=task.utterance._replace(exclusion_reason=_exists(path)))

    def write(self, task: Task, transcript: Transcript) -> str | None:
        """Writes a transcript.

        Returns:
          Why it could not be written to its file; None if it was written.
        """
        name = _one_line(task.utterance.name)
        if self._json:
            _print(
                json.dumps(_json_object(task.utterance.name, transcript), allow_nan=False) + '\n'
            )
        elif self._subtitles:
            content = subtitles.write(transcript.words, self._subtitles, self._separator)
            if self._beside:
                return _write_new(self._subtitles_path(task), content)
            _print(content)
        else:
            _print('%s\t%s\n' % (name, transcript.text))
        return None

    def _subtitles_path(self, task):
        """Returns the path of the file of subtitles beside an audio file."""
        return '%s.%s' % (os.path.splitext(task.utterance.wav_filename)[0], self._subtitles)


def _json_object(name, transcript):
    """Returns the object that JSON holds of a transcript."""

    def rounded(value, digits):
        return None if value is None else round(value, digits)

    return {
        'file': name,
        'text': transcript.text,
        'seconds': round(transcript.seconds, MS_DIGITS),
        'words': [
            {
                'word': word.word,
                'start': rounded(word.start_s, MS_DIGITS),
                'end': rounded(word.end_s, MS_DIGITS),
                'confidence': rounded(word.confidence, CONFIDENCE_DIGITS),
            }
            for word in transcript.words
        ],
    }


def _exists(path):
    """Returns the reason for not writing a file."""
    return '%s exists, and is not overwritten' % path


def _write_new(path, content):
    """Writes a file that does not exist yet; returns the reason if it cannot be written."""
    if os.path.lexists(path):
        return _exists(path)
    try:
        files.write_file(path, content)
    except OSError as error:
        return '%s cannot be written: %s' % (path, error.strerror)
    return None


def _print(content):
    """Writes to the standard output, at once."""
    print(content, end='', flush=True)
