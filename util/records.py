"""The records of utterances, steps and batches. This module does not load TensorFlow."""

from typing import Any, NamedTuple

SET_NAMES = ('train', 'dev', 'test')


class Utterance(NamedTuple):
    """An utterance as an importer lists it: a whole audio file, or a part of one."""

    wav_filename: str  # path of the audio file, in any format
    name: str  # for messages: the path as the manifest spells it
    transcript: str | None = None  # as the corpus has it
    exclusion_reason: str | None = None  # why the importer excludes it; None: it does not
    start_s: float | None = None  # s, start of the part; None: the file's start
    stop_s: float | None = None  # s, end of the part; None: the file's end
    channel: int | None = None  # counted from 0; None: the mean of all channels
    corpus: str | None = None  # name of its corpus, if there are several


class Listing(NamedTuple):
    """The utterances of a corpus, set by set, as its importer lists them."""

    train: list[Utterance]
    dev: list[Utterance]
    test: list[Utterance]


class Example(NamedTuple):
    """An utterance that was checked and can be used."""

    utterance: Utterance
    transcript: str  # cleaned: characters of the alphabet only
    n_steps: int  # time steps
    seconds: float  # s, length of the audio


class Step(NamedTuple):
    """One step of an epoch: a batch for all towers that is ready in a queue."""

    index: int  # type: ignore[assignment]  # number of the step in its epoch, from 0
    examples: list[Example]  # without those that turned out unreadable
    queue_index: int = 0  # index of the queue that holds them
    weight: float = 1.0  # weight of their corpus
    ends_update: bool = True  # whether an update of the weights ends with this step

    @property
    def seconds(self) -> float:
        """Returns the length of the step's audio in seconds."""
        return sum(example.seconds for example in self.examples)


class Batch(NamedTuple):
    """Tensors of B utterances, padded to the longest of them.

    T = n_steps, F = n_features, U = number of labels of the longest transcript. Until the towers
    cut the windows, `features` are frames with margins instead, float32
    [B, n_context + T + n_context, n_input].
    """

    features: Any  # float32 [B, T, F], windows of normalised MFCC, 0 past seq_len
    seq_len: Any  # int32 [B], time steps
    labels: Any  # int32 [B, U], padded with 0
    label_len: Any  # int32 [B], number of labels
