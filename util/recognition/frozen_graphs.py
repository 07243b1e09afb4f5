"""Opens frozen graphs of Mozilla's DeepSpeech: those of 0.1 and 0.9, which its releases hold.

A graph of 0.1 is like the network of this project: it takes a batch of windows of MFCC, and a beam
search is part of it. One of 0.9 takes the speech as it comes, 16 time steps a call, and hands the
state of its LSTM, which runs forward only, from call to call; it also computes its own features.
"""

import concurrent.futures
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from util import audio, errors, files, text
from util.recognition.network import (
    Features,
    ModelError,
    Network,
    Recognised,
    WindowNetwork,
    check_fit,
)
from util.tf1 import tf

N_INPUT = 26  # coefficients of a frame in 0.1
STRIDE = 2  # 0.1 keeps every second frame
NODES_01 = {'input_node', 'input_lengths', 'CTCBeamSearchDecoder', 'b6'}
NODES_09 = {'input_node', 'input_samples', 'mfccs', 'previous_state_c', 'metadata_alphabet'}


def open_graph(
    path: str,
    decode: Callable[..., Any],
    load_alphabet: Callable[[], text.Alphabet],
    beam_width: int | None = None,
) -> Network:
    """Opens a frozen graph.

    Args:
      path: file of a GraphDef.
      decode: DeepSpeech.decode.
      load_alphabet: function that loads the alphabet for a graph of 0.1, which does not hold one.
      beam_width: paths of the beam search; None: as many as the graph says.
    Raises:
      ModelError: the file cannot be read, or the graph is of another kind.
      ConfigError, AlphabetError: as `load_alphabet`.
    """
    nodes, definition = _read(path)
    try:
        if nodes.keys() >= NODES_01:
            return _open_01(path, nodes, definition, decode, load_alphabet(), beam_width)
        if nodes.keys() >= NODES_09:
            return StreamingNetwork(nodes, definition, decode, beam_width)
    except (ValueError, struct.error) as error:  # of a graph that is damaged or changed
        if isinstance(error, errors.DeepSpeechError):
            raise
        raise ModelError('%s cannot be used: %s' % (path, errors.first_line(error))) from None
    raise ModelError(
        '%s is another kind of graph: it has the nodes neither of DeepSpeech 0.1 nor of 0.9' % path
    )


def _read(path):
    """Returns ({name: node}, tf.GraphDef) of a file.

    Raises:
      ModelError: it cannot be read, or is not a graph.
    """
    definition = tf.GraphDef()
    try:
        with files.open_regular(path, mode='rb') as file:
            definition.ParseFromString(file.read())
    except OSError as error:
        raise ModelError('%s cannot be read: %s' % (path, error.strerror)) from None
    except Exception:  # protocol buffers raise an exception of their own
        definition.Clear()
    if not definition.node:
        raise ModelError(
            '%s is not a model: a file must be a frozen graph (.pb) or the saved_model.pb of an '
            'exported model' % path
        )
    return {node.name: node for node in definition.node}, definition


def _imported(definition, decode, logits_name, lengths_name, beam_width):
    """Imports a graph, adds a beam search to it and opens a session.

    Args:
      definition: tf.GraphDef.
      decode: DeepSpeech.decode.
      logits_name: of the tensor to search, float32 [T, B, n_character]; None: a placeholder.
      lengths_name: of its lengths, int32 [B]; None: a placeholder.
      beam_width: paths of the beam search.
    Returns:
      (tf.Session, logits, lengths, labels int64 [B, n], padded with -1).
    """
    graph = tf.Graph()
    with graph.as_default(), tf.device('/cpu:0'):
        tf.import_graph_def(definition, name='')
        if logits_name:
            logits, lengths = map(graph.get_tensor_by_name, (logits_name, lengths_name))
        else:
            logits = tf.placeholder(tf.float32, [None, None, None])
            lengths = tf.placeholder(tf.int32, [None])
        best = decode(logits, lengths, beam_width)
        labels = tf.sparse_tensor_to_dense(best, default_value=-1)
    return tf.Session(graph=graph), logits, lengths, labels


def _open_01(path, nodes, definition, decode, alphabet, beam_width):
    """Opens a graph of 0.1.

    Its own output pads with 0, which is the label of the space, so that the beam search is done
    anew, with the same width.
    """
    search = nodes['CTCBeamSearchDecoder']
    n_character = nodes['b6'].attr['value'].tensor.tensor_shape.dim[-1].size
    n_features = nodes['input_node'].attr['shape'].shape.dim[-1].size
    features = Features(audio.SAMPLE_RATE, N_INPUT, (n_features // N_INPUT - 1) // 2, STRIDE)
    check_fit(path, n_features, n_character, features, alphabet)
    session, logits, lengths, labels = _imported(
        definition,
        decode,
        search.input[0] + ':0',
        'input_lengths:0',
        beam_width or search.attr['beam_width'].i,
    )
    inputs = session.graph.get_tensor_by_name('input_node:0')
    return WindowNetwork(session, inputs, lengths, labels, logits, features, alphabet)


class StreamingNetwork(Network):
    """A graph of 0.9, which is run as its native client runs it: utterances one by one, a few time
    steps a call.

    Args:
      nodes, definition: as `_read` returns them.
      decode: DeepSpeech.decode.
      beam_width: paths of the beam search; None: as many as the graph says.
    """

    def __init__(
        self,
        nodes: dict[str, Any],
        definition: Any,
        decode: Callable[..., Any],
        beam_width: int | None,
    ) -> None:
        def metadata(name):
            return tf.make_ndarray(nodes['metadata_' + name].attr['value'].tensor).item()

        _, self._chunk, width, _ = [d.size for d in nodes['input_node'].attr['shape'].shape.dim]
        self._n_context = (width - 1) // 2
        self._state_shape = [d.size for d in nodes['previous_state_c'].attr['shape'].shape.dim]
        self.alphabet = _alphabet_of(metadata('alphabet'))
        self.sample_rate = metadata('sample_rate')
        self.step_s = metadata('feature_win_step') / 1000  # of ms
        self.gives_logits = True
        self._window = metadata('feature_win_len') * self.sample_rate // 1000  # samples
        self._step = metadata('feature_win_step') * self.sample_rate // 1000  # samples
        # so that the spectrogram takes all windows of an utterance in one call
        del nodes['input_samples'].attr['shape'].shape.dim[:]
        nodes['input_samples'].attr['shape'].shape.dim.add().size = -1
        self._session, self._logits, self._lengths, self._labels = _imported(
            definition, decode, None, None, beam_width or metadata('beam_width')
        )
        self._unscaled = nodes['logits'].input[0] + ':0'  # what its softmax takes

    def features(self, samples: np.ndarray) -> np.ndarray:
        """Computes MFCC as the native client does: the last window is filled up with zeros, as are
        the contexts at both ends.

        Returns:
          float32 [n_context + n_steps + n_context, n_input].
        """
        audio.check_length(len(samples), self.sample_rate)
        n_steps = max(0, (len(samples) - self._window) // self._step + 1) + 1
        padded = np.zeros((n_steps - 1) * self._step + self._window, np.float32)
        padded[: len(samples)] = samples / audio.INT16_SCALE
        frames = self._session.run('mfccs:0', {'input_samples:0': padded})
        return np.pad(frames, ((self._n_context, self._n_context), (0, 0)))

    def recognise(self, features: Sequence[np.ndarray]) -> list[Recognised]:
        """Runs the network on utterances beside each other, and decodes them as one batch."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            found = list(pool.map(self._run, features))
        lengths = [len(each) for each in found]
        batch = np.zeros((max(lengths), len(found), found[0].shape[1]), np.float32)
        for b, each in enumerate(found):
            batch[: len(each), b] = each
        labels = self._session.run(self._labels, {self._logits: batch, self._lengths: lengths})
        return [
            Recognised([label for label in row if label >= 0], logits)
            for row, logits in zip(labels.tolist(), found)
        ]

    def _run(self, frames):
        """Returns the logits of an utterance, float32 [n_steps, n_character]."""
        n_steps = len(frames) - 2 * self._n_context
        windows = np.lib.stride_tricks.sliding_window_view(frames, 2 * self._n_context + 1, axis=0)
        windows = windows.transpose(0, 2, 1)  # [n_steps, 2*n_context + 1, n_input]
        state_c = state_h = np.zeros(self._state_shape, np.float32)
        found = []
        for start in range(0, n_steps, self._chunk):
            part = windows[start : start + self._chunk]
            chunk = np.zeros((1, self._chunk, *windows.shape[1:]), np.float32)
            chunk[0, : len(part)] = part
            logits, state_c, state_h = self._session.run(
                [self._unscaled, 'new_state_c:0', 'new_state_h:0'],
                {
                    'input_node:0': chunk,
                    'input_lengths:0': [len(part)],
                    'previous_state_c:0': state_c,
                    'previous_state_h:0': state_h,
                },
            )
            found.append(logits[: len(part), 0])
        return np.concatenate(found)


def _alphabet_of(content):
    """Returns the alphabet in the metadata of a graph of 0.9.

    Args:
      content: bytes; the number of labels, then for each its number, the length of its text in
        bytes, and the text in UTF-8; numbers are 16 bits, little-endian.
    Raises:
      ModelError, ValueError, struct.error: it is damaged, or its labels are not characters.
    """
    (count,), position, characters = struct.unpack_from('<H', content), 2, {}
    for _ in range(count):
        label, length = struct.unpack_from('<HH', content, position)
        position += 4 + length
        characters[label] = content[position - length : position].decode()
    if sorted(characters) != list(range(count)):
        raise ModelError('the alphabet of this graph lacks labels, it has %s' % sorted(characters))
    return text.Alphabet(characters[label] for label in range(count))
