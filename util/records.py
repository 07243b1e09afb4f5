"""What an importer lists and what is read of it. Nothing here loads TensorFlow."""

from typing import Any, NamedTuple

SET_NAMES = ('train', 'dev', 'test')


class Utterance(NamedTuple):
    """An utterance as an importer lists it: a whole audio file, or a part of one."""

    wav_filename: str  # path of the audio file, of whatever format
    name: str  # in messages: the path as the manifest spells it
    transcript: str | None = None  # as it was found
    exclusion_reason: str | None = None  # why it cannot be used, where the importer knows that
    start_s: float | None = None  # s, begin of the part; None: the file's begin
    stop_s: float | None = None  # s, end of the part; None: the file's end
    channel: int | None = None  # counted from 0; None: the mean of all channels
    corpus: str | None = None  # name of its importer, where there are several


class Listing(NamedTuple):
    """The utterances of a corpus, set by set, as its importer lists them."""

    train: list[Utterance]
    dev: list[Utterance]
    test: list[Utterance]


class Example(NamedTuple):
    """An utterance that can be used."""

    utterance: Utterance
    transcript: str  # cleaned: characters of the alphabet only
    n_steps: int  # time steps
    seconds: float  # s, length of the audio


class Step(NamedTuple):
    """One step of an epoch: a batch for all towers that is ready in a queue."""

    index: int  # type: ignore[assignment]  # of the step in its epoch, from 0
    examples: list[Example]  # without those that turned out unreadable
    queue_index: int = 0  # of the queue that holds them
    weight: float = 1.0  # of their corpus
    ends_update: bool = True  # whether an update of the weights ends with this step

    @property
    def seconds(self) -> float:
        """Length of its audio in seconds."""
        return sum(example.seconds for example in self.examples)


class Batch(NamedTuple):
    """Tensors of B utterances, padded to the longest of them.

    T = n_steps, F = n_features, U = the longest transcript's labels. Between queue and towers
    `features` are frames with margins instead, [B, n_context + T + n_context, n_input].
    """

    features: Any  # float32 [B, T, F], windows of normalised MFCC, 0 past seq_len
    seq_len: Any  # int32 [B], time steps
    labels: Any  # int32 [B, U], padded with 0
    label_len: Any  # int32 [B]
