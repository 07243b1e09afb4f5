"""The errors that end a run with a message of one line, and such a line for other errors."""

import re


class DeepSpeechError(Exception):
    """The run cannot go on; the message names the file or setting, the value, and what was
    expected. The command lines print it as "error: ..." and exit with status 1."""


class ConfigError(DeepSpeechError, ValueError):
    """A setting cannot be used."""


class AlphabetError(DeepSpeechError, ValueError):
    """An alphabet file cannot be used."""


class DataError(DeepSpeechError, ValueError):
    """A corpus or a data set cannot be used."""


class CheckpointError(DeepSpeechError, ValueError):
    """A checkpoint cannot be used."""


class WeightsError(DeepSpeechError, ValueError):
    """A file of weights cannot be used."""


class LanguageError(DeepSpeechError, ValueError):
    """A language model, a lexicon or a grammar cannot be used."""


class TrainingError(DeepSpeechError, RuntimeError):
    """Training, test or export cannot go on."""


class LogError(TrainingError):
    """The logs cannot be written."""


class MemoryShortage(TrainingError):
    """Memory ran out."""


class FeedingError(TrainingError):
    """The utterances of a step cannot be read, and nothing says that only one file is damaged."""


class Interrupted(Exception):
    """The user asked the run to stop (Ctrl-C or SIGTERM); the message says what was saved."""


class StopWanted(Interrupted):
    """The same as Interrupted, raised between two batches, where a checkpoint can be saved."""


def first_line(error: BaseException) -> str:
    """Returns the message of an exception as one line, without TensorFlow's description of the
    node of the graph that raised it."""
    message = str(getattr(error, 'message', error))
    behind_the_account = re.search(r'^Node: .*\n(.+)', message, re.M)
    lines = [behind_the_account.group(1)] if behind_the_account else message.splitlines()
    return (lines or [type(error).__name__])[0]
