"""Requests with which a model server warms up: one for each signature, of real speech.

TensorFlow Serving replays assets.extra/tf_serving_warmup_requests when it loads a model, so that
the first user does not wait for it. The file is a TFRecord of PredictionLog messages, whose few
fields are encoded here, as their generated classes are in no package that a run needs.

Source: tensorflow_serving/apis/{prediction_log,predict,model}.proto for the numbers of the fields.
"""

import io
from typing import Any

import numpy as np
import soundfile

from util import audio
from util.tf1 import tf

LONGEST_S = 5.0  # s of an utterance that a request holds
TRIED = 10  # utterances of a data set, until one can be read


def example(data_sets, config) -> np.ndarray | None:
    """Returns the samples of an utterance, of the test set if possible: float64 [n], in the range
    of 16-bit integers; None if there is none that can be read.

    Args:
      data_sets: DataSets.
      config: Config; its sample_rate.
    """
    for data_set in (data_sets.test, data_sets.dev, data_sets.train):
        for chosen in data_set.examples[:TRIED]:
            utterance = chosen.utterance
            start = utterance.start_s or 0.0
            stop = start + LONGEST_S if utterance.stop_s is None else utterance.stop_s
            try:
                part = utterance._replace(start_s=start, stop_s=min(stop, start + LONGEST_S))
                return audio.read_utterance(part, config.sample_rate)
            except audio.AudioError:
                continue
    return None


def requests(config, samples: np.ndarray | None) -> list[bytes]:
    """Encodes a PredictionLog for each signature.

    Args:
      config: Config.
      samples: float [n], at `config.sample_rate` in the range of 16-bit integers; None: a second
        of silence.
    """
    if samples is None:
        samples = np.zeros(config.sample_rate)
    samples = np.clip(samples / audio.INT16_SCALE, -1, 1)
    file = io.BytesIO()
    soundfile.write(file, samples, config.sample_rate, format='WAV', subtype='PCM_16')
    file.seek(0)
    frames = audio.mfcc(
        samples * audio.INT16_SCALE,
        config.sample_rate,
        config.n_input,
        config.feature_stride,
        config.dynamic_range,
    )
    normal = audio.normalise(frames, config.n_context, config.feature_norm)
    windows = audio.context_windows(normal, config.n_context)
    features = {'input': windows[None]}
    with_length = {**features, 'input_length': np.array([len(windows)], np.int32)}
    inputs: dict[str, dict[str, Any]] = {
        'serving_default': features,
        'with_length': with_length,
        'features': with_length,
        'logits': with_length,
        'audio': {'audio_bytes': np.array([file.getvalue()], object)},
        'waveform': {
            'samples': samples[None].astype(np.float32),
            'sample_length': np.array([len(samples)], np.int32),
        },
    }
    return [_prediction_log(name, tensors) for name, tensors in inputs.items()]


def _prediction_log(signature, tensors):
    """Encodes PredictionLog.predict_log.request of {name of an input: array}."""
    request = _field(1, _field(3, signature.encode()))  # model_spec.signature_name
    for name, value in tensors.items():
        proto = tf.make_tensor_proto(value).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, proto))  # inputs: key, value
    return _field(6, _field(1, request))


def _field(number, content):
    """Encodes a field of a protocol buffer that holds bytes: its number, the length, the bytes."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value):
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
