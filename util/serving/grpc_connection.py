"""Speaks gRPC to a model server: TensorFlow Serving's PredictionService.

The messages are in tensorflow-serving-api, which only this module needs, see
requirements-serving.txt.
"""

import re
from typing import Any

from util.serving import server
from util.serving.server import Model, ServerError, Signature

CHANNEL_OPTIONS = (  # ms; gRPC by itself waits up to two minutes before it connects again
    ('grpc.initial_reconnect_backoff_ms', 100),
    ('grpc.min_reconnect_backoff_ms', 100),
    ('grpc.max_reconnect_backoff_ms', 2000),
)
SIZES = re.compile(r'message larger than max \((\d+) vs\. (\d+)\)')  # what gRPC says of a message


class GrpcConnection:
    """A connection to the gRPC port of a model server; see server.Connection.

    Args:
      address: 'HOST:PORT'.
      message_limit: bytes of a message that are sent or received at most.
    Raises:
      ServerError: tensorflow-serving-api is not installed.
    """

    def __init__(self, address: str, message_limit: int) -> None:
        self._api = _api()
        self._address = address
        self._limit = message_limit
        limits = tuple(
            ('grpc.max_%s_message_length' % way, message_limit) for way in ('send', 'receive')
        )
        self._channel = self._api.grpc.insecure_channel(address, CHANNEL_OPTIONS + limits)
        self._stub = self._api.service.PredictionServiceStub(self._channel)

    def signatures(self, model: Model, timeout_s: float) -> dict[str, Signature]:
        request = self._api.metadata.GetModelMetadataRequest(metadata_field=['signature_def'])
        _fill_spec(request.model_spec, model)
        answer = self._call(self._stub.GetModelMetadata, request, model, timeout_s)
        found = self._api.metadata.SignatureDefMap()
        answer.metadata['signature_def'].Unpack(found)
        return {
            name: Signature(frozenset(signature.inputs), frozenset(signature.outputs))
            for name, signature in found.signature_def.items()
        }

    def predict(self, model: Model, inputs: dict[str, Any], timeout_s: float) -> dict[str, list]:
        request = self._api.predict.PredictRequest()
        _fill_spec(request.model_spec, model)
        request.model_spec.signature_name = model.signature
        for name, values in inputs.items():
            request.inputs[name].CopyFrom(self._api.tf.make_tensor_proto(values))
        answer = self._call(self._stub.Predict, request, model, timeout_s)
        return {
            name: _to_list(self._api.tf.make_ndarray(value))
            for name, value in answer.outputs.items()
        }

    def close(self) -> None:
        self._channel.close()

    def _call(self, method, request, model, timeout_s):
        """Calls a method of the service and returns its answer; raises ServerError."""
        try:
            return method(request, timeout=max(server.SMALLEST_TIMEOUT_S, timeout_s))
        except self._api.grpc.RpcError as error:
            raise self._in_words(error, model, timeout_s) from None

    def _in_words(self, error, model, timeout_s):
        """Returns the ServerError for an error of gRPC."""
        code, said = error.code().name, error.details() or ''
        sizes = SIZES.search(said)
        if code == 'RESOURCE_EXHAUSTED' and sizes:
            size, limit = map(int, sizes.groups())
            if limit == self._limit:
                return server.too_large(size, limit)
            return server.too_large_for_server(size, limit)
        reason = server.first_line(said)
        if code == 'UNAVAILABLE':
            return server.no_server(self._address, reason.rpartition(': ')[2])
        if code == 'RESOURCE_EXHAUSTED':
            return server.busy(reason)
        if code == 'DEADLINE_EXCEEDED':
            return server.no_answer_in_time(timeout_s)
        if code == 'NOT_FOUND' and reason.startswith('Servable not found'):
            return server.no_model(self._address, model)
        if code == 'FAILED_PRECONDITION' and reason.startswith('Serving signature key'):
            return server.no_signature(model)
        if code == 'UNIMPLEMENTED':
            return ServerError(
                'what answers at %s is not the gRPC port of a model server' % self._address
            )
        return server.refused(reason)


class _Api:
    """The modules of gRPC, of TensorFlow and of tensorflow-serving-api."""

    def __init__(self) -> None:
        from util.tf1 import tf  # first, as tensorflow_serving loads TensorFlow less quietly

        import grpc
        from tensorflow_serving.apis import get_model_metadata_pb2 as metadata
        from tensorflow_serving.apis import predict_pb2 as predict
        from tensorflow_serving.apis import prediction_service_pb2_grpc as service

        self.grpc, self.tf = grpc, tf
        self.metadata, self.predict, self.service = metadata, predict, service


def _api():
    """Returns the _Api; raises ServerError if tensorflow-serving-api is not installed."""
    try:
        return _Api()
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] not in ('grpc', 'tensorflow_serving'):
            raise
        raise ServerError(
            'gRPC needs tensorflow-serving-api, which is not installed: pip install -r '
            'requirements-serving.txt, or use REST, as in --server http://localhost:8501'
        ) from None


def _fill_spec(spec, model):
    """Fills in a ModelSpec of the model."""
    spec.name = model.name
    if model.version is not None:
        spec.version.value = model.version


def _to_list(array):
    """Returns an array as a list, in which bytes become text."""
    if array.dtype == object:
        return [value.decode('utf-8', 'replace') for value in array.reshape(-1)]
    return array.tolist()
