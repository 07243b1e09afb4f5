"""The records of tensors and operations that the functions of DeepSpeech.py pass to each other, and
of the values that a step returns.

In comments on shapes, B = batch_size, T = n_steps, F = n_features and U = number of labels of the
longest transcript. "To feed" marks a placeholder.
"""

from typing import Any, NamedTuple


class TowerResult(NamedTuple):
    """The tensors that a tower computes for its batch of B utterances."""

    total_loss: Any  # float32 [B], CTC losses: -ln of the transcripts' probabilities
    avg_loss: Any  # float32 scalar, mean of `total_loss`
    distance: Any  # float32 [B], edit distance of best path and labels / number of labels
    label_error_rate: Any  # float32 scalar, mean of `distance`
    decoded: Any  # int64 sparse [B, .], best paths of the beam search
    labels: Any  # int32 sparse [B, U]
    logits: Any  # float32 [T, B, n_character]
    seq_len: Any  # int32 [B], time steps
    count: Any  # int32 scalar, utterances that count; 0 in a tower that got none


class TowerResults(NamedTuple):
    """The tensors that all towers compute for a step's batch."""

    towers: list[TowerResult]
    gradients: list[list[tuple]]  # (gradient, variable) pairs of each tower; empty if not needed
    label_error_rate: Any  # float32 scalar, mean over all utterances
    avg_loss: Any  # float32 scalar, mean over all utterances


class Update(NamedTuple):
    """Handles of an update of the variables."""

    number: Any  # int64 scalar; running it makes the update if `finite`, and returns its number
    loss: Any  # float32 or float64 scalar, loss of the update's batches
    summaries: Any  # string scalar, or None
    finite: Any  # bool scalar, whether loss and gradients are; if not, the update is left out


class Accumulation(NamedTuple):
    """Handles of the sums behind an update from several batches."""

    add: Any  # operation that adds the step's batch to the sums if `finite`
    weight: Any  # float32 scalar to feed, the weight of the batch's corpus
    n_batches: Any  # int64 scalar, batches in the sums
    reset: Any  # operation that sets the sums to 0
    finite: Any  # bool scalar, whether the batch's loss and gradients are; if not, it is left out


class Shapes(NamedTuple):
    """The shapes that `print_batch_shapes` prints for a step, as tensors or as values."""

    features: Any  # int32 [3], shape of the frames with margins
    seq_len: Any  # int32 [B]
    labels: Any  # int32 [2], shape
    label_len: Any  # int32 [B]
    logits: list[Any]  # int32 [3], shape in each tower


class Savers(NamedTuple):
    """The savers of a training graph."""

    newest: Any  # tf.train.Saver of all variables, for the checkpoint folder
    best: Any  # tf.train.Saver of all variables, for the best ones by ds_best_by, in best/
    weights: Any  # tf.train.Saver of the weights and Adam's slots, for going back; None: not needed
    averaged: Any  # tf.train.Saver of all variables, for averaged/; None: not needed


class StateVariables(NamedTuple):
    """A schedule.State in the graph, so that it is part of a checkpoint."""

    variables: Any  # State of variables, int64 or float64 scalars
    values: Any  # State of placeholders for new values
    assign: Any  # operation that sets the variables


class Model(NamedTuple):
    """Handles of the graph that trains and evaluates."""

    graph: Any
    queues: list[Any]
    batch: Any  # records.Batch of frames with margins, for all towers; it may be fed
    selector: Any  # int32 scalar to feed, the index of a queue
    n_utterances: Any  # int32 scalar to feed, utterances to take from it
    is_training: Any  # bool scalar to feed, False by default: switches dropout
    learning_rate: Any  # float32 scalar to feed
    shapes: Shapes
    towers: list[TowerResult]
    weights: list[Any]  # variables, float32
    avg_loss: Any  # float32 scalar, mean CTC loss of the step's utterances
    finite_weights: Any  # bool scalar, whether the weights and the optimizer's slots are finite
    update: Update
    accumulation: Accumulation | None  # None if an update is made from one batch
    global_step: Any  # int64 scalar, number of updates made so far
    state: StateVariables
    initializer: Any  # operation that initialises all variables
    savers: Savers


class Recognised(NamedTuple):
    """What an inference graph makes of B utterances."""

    logits: Any  # float32 [T, B, n_character]
    labels: Any  # int64 [B, .], labels of the best paths, padded with -1
    log_probabilities: Any  # float32 [B], natural logarithms of the paths' probabilities


class InferenceModel(NamedTuple):
    """Handles of the graph that only runs the network, for an export."""

    graph: Any
    input: Any  # float32 [B, T, F] to feed
    input_length: Any  # int32 [B] to feed, T by default
    recognised: Recognised  # of `input`
    signatures: dict[str, tuple[dict, dict]]  # {name: ({name: input}, {name: output})}


# Values that Session.run returns


class BatchResult(NamedTuple):
    """The results of a step for its batch."""

    loss: Any  # float32 scalar, mean CTC loss of its utterances
    towers: Any  # a decoding.Undecoded for each tower; () if no report is due
    shapes: Any  # Shapes; () if these are not printed


class UpdateResult(NamedTuple):
    """The results of an update."""

    number: Any  # int64 scalar, counted from 1
    loss: Any  # float32 or float64 scalar, loss of the update's batches
    summaries: Any  # bytes; () if none are due
    finite: Any  # bool; False: the update was left out, and `number` is the last one made


class StepResult(NamedTuple):
    """The results of a training step."""

    batch: BatchResult | None  # None if no utterance of the step could be read
    update: UpdateResult | None  # None if the step does not end an update
    trace: Any  # tf.RunMetadata, or None
    fault: str | None  # what is not finite, in words, so that the batch or the update was left out
