"""A version of an exported model as TensorFlow's model server serves it: loaded by TensorFlow's
loader, warmed up, with requests joined by TensorFlow's own kernel if asked.

Sources of the rules and of the messages, all of TensorFlow Serving: servables/tensorflow/
predict_util.cc and saved_model_warmup_util.cc, batching/batching_session.cc.
"""

import logging
import os
from typing import Any, NamedTuple

import grpc
import numpy as np

from util.tf1 import tf  # before tensorflow_serving, which loads TensorFlow less quietly

from tensorflow.core.protobuf import config_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

DEFAULT_SIGNATURE = 'serving_default'
METHOD = 'tensorflow/serving/predict'
WARMUP_REQUESTS = 'assets.extra/tf_serving_warmup_requests'
MOST_WARMUP_RECORDS = 1000
CODES = {code.value[0]: code for code in grpc.StatusCode}


class Batching(NamedTuple):
    """How requests are joined, as in a batching_parameters_file of the model server."""

    max_batch_size: int = 8
    batch_timeout_micros: int = 100_000
    max_enqueued_batches: int = 100
    num_batch_threads: int = 2


class StatusError(Exception):
    """A request fails with a status of gRPC."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def quiet_tensorflow() -> None:
    """Leaves out TensorFlow's warnings that functions of the 1.x interface are old."""
    logging.getLogger('tensorflow').setLevel(logging.ERROR)


def invalid(message: str) -> StatusError:
    """Returns the error of a request that is wrong whatever the state of the server."""
    return StatusError(grpc.StatusCode.INVALID_ARGUMENT, message)


class ServedModel:
    """A version of a model, loaded and warmed up.

    Attributes:
      number: number of the version.
      signatures: {name: SignatureDef}.
      users: requests that run now; kept by the caller.

    Args:
      folder: folder of the version.
      batching: Batching, or None if each request runs by itself.
    Raises:
      tf.errors.OpError, OSError: it cannot be loaded.
      StatusError: a request of the warm-up fails.
    """

    def __init__(self, folder: str, batching: Batching | None = None) -> None:
        self.number = int(os.path.basename(folder))
        self.users = 0
        graph = tf.Graph()
        self._session = tf.Session(graph=graph)
        meta_graph = tf.saved_model.load(self._session, [tf.saved_model.SERVING], folder)
        self.signatures = dict(meta_graph.signature_def)
        if batching:
            self._run = self._joined(graph, batching)
        else:
            self._run = {
                name: _callable(self._session, _names(each.inputs), _names(each.outputs))
                for name, each in self._predicting().items()
            }
        self._warm_up(folder)

    def close(self) -> None:
        """Frees the model; no request may run."""
        self._session.close()

    def predict(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        """Answers a request.

        Raises:
          StatusError: with the server's code and message.
        """
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        if name not in self.signatures:
            raise StatusError(
                grpc.StatusCode.FAILED_PRECONDITION, 'Serving signature key "%s" not found.' % name
            )
        signature = self.signatures[name]
        if name not in self._run:
            raise StatusError(
                grpc.StatusCode.INTERNAL,
                'Expected prediction signature method_name to be one of {%s}. Was: %s'
                % (METHOD, signature.method_name),
            )
        inputs = _checked_inputs(signature, request)
        wanted = _checked_filter(signature, request)
        try:
            values = dict(zip(sorted(signature.outputs), self._run[name](*inputs)))
        except tf.errors.OpError as error:
            raise StatusError(CODES[error.error_code], error.message) from None
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.signature_name = name
        response.model_spec.version.value = self.number
        for output in wanted:
            dtype = signature.outputs[output].dtype
            response.outputs[output].CopyFrom(tf.make_tensor_proto(values[output], dtype))
        return response

    def _predicting(self):
        """{name: SignatureDef} of the signatures that answer predictions."""
        return {name: each for name, each in self.signatures.items() if each.method_name == METHOD}

    def _joined(self, graph, batching):
        """{name of a signature: function of its inputs} that joins requests in a batch.

        The kernel runs a function, which cannot hold variables, so that these are made constants.
        """
        signatures = self._predicting()
        nodes = {name: _nodes(each.outputs) for name, each in signatures.items()}
        frozen = tf.graph_util.convert_variables_to_constants(
            self._session, graph.as_graph_def(), sorted(set().union(*nodes.values()))
        )
        self._session.close()
        calls = {}
        with tf.Graph().as_default() as joining:
            for name, signature in signatures.items():
                join = tf.nondifferentiable_batch_function(
                    batching.num_batch_threads,
                    batching.max_batch_size,
                    batching.batch_timeout_micros,
                    max_enqueued_batches=batching.max_enqueued_batches,
                    autograph=False,
                    enable_large_batch_splitting=False,
                )
                fed = [
                    tf.placeholder(signature.inputs[alias].dtype)
                    for alias in sorted(signature.inputs)
                ]
                with tf.name_scope(name):  # the kernel joins by the name of the operation
                    part = tf.graph_util.extract_sub_graph(frozen, sorted(nodes[name]))
                    joined = join(_imported(part, signature))(*fed)
                calls[name] = [each.name for each in fed], [each.name for each in joined]
        self._session = tf.Session(graph=joining)
        return {name: _callable(self._session, *each) for name, each in calls.items()}

    def _warm_up(self, folder):
        """Replays the requests that come with the model."""
        path = os.path.join(folder, WARMUP_REQUESTS)
        if not os.path.exists(path):
            return
        for count, record in enumerate(tf.io.tf_record_iterator(path)):
            if count >= MOST_WARMUP_RECORDS:
                raise invalid(
                    'Number of warmup records exceeds the maximum (%d) at %s'
                    % (MOST_WARMUP_RECORDS, path)
                )
            self.predict(prediction_log_pb2.PredictionLog.FromString(record).predict_log.request)


def _names(infos):
    """Names of the tensors of a signature's inputs or outputs, in the order of their aliases."""
    return [infos[alias].name for alias in sorted(infos)]


def _nodes(infos):
    """Names of the nodes of a signature's inputs or outputs."""
    return {name.split(':')[0] for name in _names(infos)}


def _imported(graph_def, signature):
    """A function of a signature's inputs that builds its outputs in the current graph."""

    def build(*values):
        return tf.import_graph_def(
            graph_def,
            dict(zip(_names(signature.inputs), values)),
            return_elements=_names(signature.outputs),
            name='',
        )

    return build


def _callable(session, feeds, fetches):
    """A function of arrays for `feeds` that returns those of `fetches`, names of tensors.

    Unlike Session.run, it neither converts what is fed nor compares its shape with that of the
    placeholder, as the model server doesn't either.
    """
    return session._make_callable_from_options(
        config_pb2.CallableOptions(feed=feeds, fetch=fetches)
    )


def _checked_inputs(signature, request) -> list[np.ndarray]:
    """Arrays of a request's inputs, in the order of their aliases; raises StatusError."""
    sent, wanted = set(request.inputs), set(signature.inputs)
    if len(sent) != len(wanted):
        raise invalid(
            'input size does not match signature: %d!=%d len({%s}) != len({%s}). Sent extra: {%s}. '
            'Missing but required: {%s}.'
            % (
                len(sent),
                len(wanted),
                *map(_joined_names, (sent, wanted, sent - wanted, wanted - sent)),
            )
        )
    for alias in sorted(sent - wanted):
        raise invalid(
            'input tensor alias not found in signature: %s. Inputs expected to be in the set {%s}.'
            % (alias, _joined_names(wanted))
        )
    arrays: list[Any] = []
    for alias in sorted(sent):
        try:
            arrays.append(tf.make_ndarray(request.inputs[alias]))
        except (TypeError, ValueError):
            raise invalid('tensor parsing error: ' + alias) from None
    return arrays


def _checked_filter(signature, request) -> list[str]:
    """Aliases of the outputs that a request wants; raises StatusError."""
    for alias in request.output_filter:
        if alias not in signature.outputs:
            raise invalid(
                'output tensor alias not found in signature: %s Outputs expected to be in the set '
                '{%s}.' % (alias, _joined_names(signature.outputs))
            )
    return list(request.output_filter) or sorted(signature.outputs)


def _joined_names(names):
    return ','.join(sorted(names))
