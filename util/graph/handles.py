"""What the functions of DeepSpeech.py hand to each other: tensors and operations of the graph, and
what a step gives of them.

B = batch_size, T = n_steps, F = n_features, U = labels of the longest transcript in comments on
shapes. "To feed" is a placeholder.
"""

from typing import Any, NamedTuple


class TowerResult(NamedTuple):
    """What a tower computes of its batch of B utterances."""

    total_loss: Any  # float32 [B], CTC losses: -ln of the transcripts' probabilities
    avg_loss: Any  # float32 scalar, their mean
    distance: Any  # float32 [B], edit distance of best path and labels over n labels
    label_error_rate: Any  # float32 scalar, the mean of these
    decoded: Any  # int64 sparse [B, .], best paths of the beam search
    labels: Any  # int32 sparse [B, U]
    logits: Any  # float32 [T, B, n_character]
    seq_len: Any  # int32 [B], time steps
    count: Any  # int32 scalar, utterances that count; 0 in a tower that had none left


class TowerResults(NamedTuple):
    """What all towers computed of a step's batch."""

    towers: list[TowerResult]
    gradients: list[list[tuple]]  # (gradient, variable) pairs of each tower; empty: not asked for
    label_error_rate: Any  # float32 scalar, mean over all utterances
    avg_loss: Any  # float32 scalar, mean over all utterances


class Update(NamedTuple):
    """Handles of an update of the variables."""

    number: Any  # int64 scalar: running it trains, and gives the number of the update, from 1
    loss: Any  # scalar, the loss that the update was made of
    summaries: Any  # string scalar, or None


class Accumulation(NamedTuple):
    """Handles of the sums that an update of several batches is made of."""

    add: Any  # operation that adds the step's batch to the sums
    weight: Any  # float32 scalar to feed, the weight of the batch's corpus
    n_batches: Any  # int64 scalar, batches in the sums
    reset: Any  # operation that forgets them


class Shapes(NamedTuple):
    """What `print_batch_shapes` shows of a step: tensors or values."""

    features: Any  # int32 [3], shape of the frames with margins
    seq_len: Any  # int32 [B]
    labels: Any  # int32 [2], shape
    label_len: Any  # int32 [B]
    logits: list[Any]  # int32 [3], shape in each tower


class Savers(NamedTuple):
    """The savers of a training graph."""

    newest: Any  # tf.train.Saver of everything, for the checkpoint folder
    best: Any  # the same, for the best weights by dev loss, in best/
    weights: Any  # of the weights and the optimizer's slots, for going back; None: never


class StateVariables(NamedTuple):
    """A schedule.State in the graph, so that it is part of a checkpoint."""

    variables: Any  # State of variables, int64 or float64 scalars
    values: Any  # State of placeholders for new values
    assign: Any  # operation that sets the variables


class Model(NamedTuple):
    """Handles of the graph that trains and evaluates."""

    graph: Any
    queues: list[Any]
    selector: Any  # int32 scalar to feed, the index of a queue
    n_utterances: Any  # int32 scalar to feed, utterances to take from it
    is_training: Any  # bool scalar to feed, False by default: switches dropout
    learning_rate: Any  # float32 scalar to feed
    shapes: Shapes
    towers: list[TowerResult]
    avg_loss: Any  # float32 scalar, mean CTC loss of the step's utterances
    update: Update
    accumulation: Accumulation | None  # None where an update is made of one batch
    global_step: Any  # int64 scalar, updates that were made
    state: StateVariables
    savers: Savers


class InferenceModel(NamedTuple):
    """Handles of the graph that only runs the network, for an export."""

    graph: Any
    input: Any  # float32 [B, T, F] to feed
    input_length: Any  # int32 [B] to feed, T by default
    outputs: Any  # int64 [1, B, .], labels of the best paths, padded with -1


# What Session.run gives


class BatchResult(NamedTuple):
    """What a step gives of its batch."""

    loss: Any  # float32 scalar, mean CTC loss of its utterances
    towers: Any  # a decoding.Undecoded a tower; () where no report was asked for
    shapes: Any  # Shapes; () where these are not to be printed


class UpdateResult(NamedTuple):
    """What an update gives."""

    number: Any  # int64 scalar, counted from 1
    loss: Any  # scalar, the loss that it was made of
    summaries: Any  # bytes; () where none are due


class StepResult(NamedTuple):
    """What a training step gives."""

    batch: BatchResult | None  # None where no utterance of the step could be read
    update: UpdateResult | None  # None where the update is made of more batches
    trace: Any  # tf.RunMetadata, or None
