"""A stand-in for TensorFlow's model server: its protocols and its rules, for tests.

    python tests/model_server.py EXPORT_DIR [--port 8500] [--rest-port 8501] [--batching]

It speaks the generated PredictionService and ModelService over gRPC, and REST, on 127.0.0.1 only.
It serves the newest complete version in the folder, looks for a newer one again and again, loads
and warms it up beside the one that is served, and then switches, while requests run. It is not the
model server: what it does not imitate are several models, classification and regression, padding
of joined requests, and the server's speed. (Calls are answered by Python threads.)

Sources of the rules and messages, all of TensorFlow Serving: model_servers/http_server.cc and
http_rest_api_handler.cc, util/json_tensor.cc, servables/tensorflow/get_model_metadata_impl.cc.
"""

import argparse
import base64
import binascii
import concurrent.futures
import contextlib
import http.server
import json
import logging
import os
import pathlib
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

if __name__ == '__main__':  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import grpc
import numpy as np
from google.protobuf import json_format

import served_model
from served_model import DEFAULT_SIGNATURE, Batching, ServedModel, StatusError, invalid
from util.tf1 import tf

from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2  # isort: skip
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

log = logging.getLogger('model_server')

LOOPBACK = '127.0.0.1'
UNLIMITED = 2**31 - 1  # bytes of a message, the model server's own limit
HTTP_STATUS = {  # of the codes of gRPC; any other is 500
    'INVALID_ARGUMENT': 400,
    'FAILED_PRECONDITION': 400,
    'OUT_OF_RANGE': 400,
    'NOT_FOUND': 404,
    'RESOURCE_EXHAUSTED': 429,
    'CANCELLED': 499,
    'UNIMPLEMENTED': 501,
    'UNAVAILABLE': 503,
    'DEADLINE_EXCEEDED': 504,
}


class Options(NamedTuple):
    """How to serve."""

    base_path: str  # folder of the versions
    name: str = 'deepspeech'
    port: int = 0  # of gRPC; 0: any that is free
    rest_port: int = 0
    threads: int = 16  # requests that run at the same time over gRPC
    poll_s: float = 1.0  # s between two looks for a new version
    max_message_bytes: int = UNLIMITED  # of a request
    delay_s: float = 0.0  # s to wait before each prediction, for tests of deadlines
    batching: Batching | None = None  # None: each request runs by itself


class Versions:
    """The version that is served: the newest complete one of a folder, which may change."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Condition()
        self._stop = threading.Event()
        self._current: ServedModel | None = None
        self._failed: set[int] = set()
        self._thread = threading.Thread(target=self._watch)

    def start(self) -> None:
        """Loads the newest version, and watches for others from now on."""
        self._update()
        self._thread.start()

    def stop(self) -> None:
        """Ends the watching; the model is not freed, as requests may run."""
        self._stop.set()
        self._thread.join()

    @contextlib.contextmanager
    def use(self, spec) -> Iterator[ServedModel]:
        """The model that a ModelSpec asks for; it is not freed before the block ends.

        Raises:
          StatusError: it is not served.
        """
        version = spec.version.value if spec.HasField('version') else None
        with self._lock:
            model = self._current
            if (
                model is None
                or spec.name != self._options.name
                or version not in (None, model.number)
            ):
                wanted = (
                    'Latest(%s)' % spec.name
                    if version is None
                    else 'Specific(%s, %d)' % (spec.name, version)
                )
                raise StatusError(
                    grpc.StatusCode.NOT_FOUND, 'Servable not found for request: ' + wanted
                )
            model.users += 1
        try:
            yield model
        finally:
            with self._lock:
                model.users -= 1
                self._lock.notify_all()

    def _watch(self):
        while not self._stop.wait(self._options.poll_s):
            self._update()

    def _update(self):
        """Switches to the newest version, if that is another one and can be loaded."""
        complete = _complete_versions(self._options.base_path)
        newest = max(set(complete) - self._failed, default=None)
        before = self._current
        if newest is None or (before and before.number == newest):
            return
        log.info('loading version %d', newest)
        try:
            loaded = ServedModel(complete[newest], self._options.batching)
        except (tf.errors.OpError, OSError, StatusError, ValueError) as error:
            log.error('version %d cannot be served: %s', newest, error)
            self._failed.add(newest)
            return
        with self._lock:
            self._current = loaded
            log.info('serving version %d', newest)
            if before:
                self._lock.wait_for(lambda: not before.users)
        if before:
            before.close()
            log.info('version %d is freed', before.number)


def _complete_versions(base_path):
    """{number: folder} of what is a whole number and has a saved_model.pb."""
    with contextlib.suppress(FileNotFoundError):
        return {
            int(name): os.path.join(base_path, name)
            for name in os.listdir(base_path)
            if re.fullmatch('[0-9]+', name)
            and os.path.exists(os.path.join(base_path, name, 'saved_model.pb'))
        }
    return {}


class Service:
    """What both protocols do."""

    def __init__(self, versions: Versions, options: Options) -> None:
        self._versions = versions
        self._options = options

    def predict(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        """Answers a request; raises StatusError."""
        with self._versions.use(request.model_spec) as model:
            time.sleep(self._options.delay_s)
            return model.predict(request)

    def metadata(self, request) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Describes the signatures; raises StatusError."""
        if not request.metadata_field:
            raise invalid('GetModelMetadataRequest must specify at least one metadata_field')
        for field in request.metadata_field:
            if field != 'signature_def':
                raise invalid('Metadata field %s is not supported' % field)
        with self._versions.use(request.model_spec) as model:
            found = get_model_metadata_pb2.SignatureDefMap()
            for name, signature in model.signatures.items():
                found.signature_def[name].CopyFrom(signature)
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.name = self._options.name
            response.model_spec.version.value = model.number
            response.metadata['signature_def'].Pack(found)
            return response

    def status(self, request) -> get_model_status_pb2.GetModelStatusResponse:
        """Tells which version is served; raises StatusError."""
        with self._versions.use(request.model_spec) as model:
            response = get_model_status_pb2.GetModelStatusResponse()
            response.model_version_status.add(
                version=model.number,
                state=get_model_status_pb2.ModelVersionStatus.AVAILABLE,
                status={'error_code': 0},
            )
            return response

    def input_infos(self, spec):
        """{alias: TensorInfo} of the inputs of the signature that a ModelSpec names; raises
        StatusError."""
        with self._versions.use(spec) as model:
            name = spec.signature_name or DEFAULT_SIGNATURE
            if name not in model.signatures:
                raise invalid('Serving signature name: "%s" not found in signature def' % name)
            return model.signatures[name].inputs


# gRPC


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The calls of PredictionService; those for classification and regression fail."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def Predict(self, request, context):
        return _answer(self._service.predict, request, context)

    def GetModelMetadata(self, request, context):
        return _answer(self._service.metadata, request, context)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """The calls of ModelService; that for another configuration fails."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def GetModelStatus(self, request, context):
        return _answer(self._service.status, request, context)


def _answer(method, request, context):
    """Calls a method of Service and gives an error to gRPC."""
    try:
        return method(request)
    except StatusError as error:
        context.abort(error.code, error.message)


# REST


class RestHandler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of a connection."""

    protocol_version = 'HTTP/1.1'
    timeout = 60  # s for a connection without requests
    disable_nagle_algorithm = True  # which would delay the content behind the header
    service: Service
    max_message_bytes: int

    def do_GET(self):
        self._respond(b'')

    def do_POST(self):
        if not (self.headers.get('Content-Length') or '').isdigit():
            self.close_connection = True
            return self._send(411, {'error': 'Content-Length is missing'})
        size = int(self.headers['Content-Length'])
        if size > self.max_message_bytes:
            self._skip(size)
            return self._send(413, {'error': 'Request body is too large'})
        return self._respond(self.rfile.read(size))

    def log_message(self, format, *arguments):
        log.debug(format, *arguments)

    def _skip(self, size):
        """Reads what is not wanted, as the client reads the answer only when it has sent all."""
        while size > 0:
            block = self.rfile.read(min(size, 1 << 20))
            if not block:
                return
            size -= len(block)

    def _respond(self, body):
        try:
            self._send(200, _rest_answer(self.service, self.command, self.path, body))
        except StatusError as error:
            self._send(HTTP_STATUS.get(error.code.name, 500), {'error': error.message})

    def _send(self, status, answer):
        content = json.dumps(answer).encode('utf-8')
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(content)))
        with contextlib.suppress(ConnectionError):  # the client may have given up
            self.end_headers()
            self.wfile.write(content)


def _rest_answer(service, method, path, body):
    """The JSON value that answers an HTTP request; raises StatusError."""
    about = re.fullmatch(r'(?i)/v1/models/([^/:]+)(?:/versions/(\d+))?(:predict|/metadata)?', path)
    action = about and (about[3] or '').lower()
    if not about or (method == 'POST') != (action == ':predict'):
        raise invalid('Malformed request: %s %s' % (method, path))
    if action == ':predict':
        request = predict_pb2.PredictRequest()
        _fill_spec(request.model_spec, about)
        return _rest_prediction(service, request, body)
    if action == '/metadata':
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=['signature_def'])
        _fill_spec(request.model_spec, about)
        answer = service.metadata(request)
        found = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata['signature_def'].Unpack(found)
        return {
            'model_spec': _as_json(answer.model_spec),
            'metadata': {'signature_def': _as_json(found)},
        }
    request = get_model_status_pb2.GetModelStatusRequest()
    _fill_spec(request.model_spec, about)
    return _as_json(service.status(request))


def _fill_spec(spec, about):
    spec.name = about[1]
    if about[2]:
        spec.version.value = int(about[2])


def _as_json(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _rest_prediction(service, request, body):
    """The answer to the JSON of a prediction: rows for 'instances', columns for 'inputs'."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise invalid('JSON Parse error: %s' % error) from None
    if not isinstance(document, dict):
        raise invalid('JSON Value: %.40s Is not object' % json.dumps(document))
    request.model_spec.signature_name = document.get('signature_name', '')
    infos = service.input_infos(request.model_spec)
    kinds = [kind for kind in ('instances', 'inputs') if kind in document]
    if len(kinds) != 1:
        raise invalid(
            "Missing 'inputs' or 'instances' key"
            if not kinds
            else "expecting only one of 'inputs' or 'instances' keys to exist"
        )
    by_row = kinds == ['instances']
    columns = _columns(document[kinds[0]], infos, by_row)
    for name, values in columns.items():
        request.inputs[name].CopyFrom(_tensor(values, infos[name].dtype))
    outputs = {
        name: _json_values(name, tf.make_ndarray(value))
        for name, value in service.predict(request).outputs.items()
    }
    if not by_row:
        return {'outputs': outputs if len(outputs) > 1 else next(iter(outputs.values()))}
    if len({len(values) for values in outputs.values()}) > 1:
        raise invalid('a tensor has an inconsistent batch size')
    rows = [dict(zip(outputs, row)) for row in zip(*outputs.values())]
    return {
        'predictions': rows if len(outputs) > 1 else [each for row in rows for each in row.values()]
    }


def _columns(values, infos, by_row):
    """{name of an input: JSON value of the batch}; raises StatusError."""
    only = next(iter(infos)) if len(infos) == 1 else None
    if not by_row:
        if isinstance(values, dict) and set(values) != {'b64'}:
            for name in infos:
                if name not in values:
                    raise invalid("Missing named input: %s in 'inputs' object." % name)
            return {name: values[name] for name in infos}
        if only is None:
            raise invalid(
                'inputs is a plain value/list, but expecting an object as multiple input '
                'tensors required as per tensorinfo_map'
            )
        return {only: values}
    if not isinstance(values, list) or not values:
        raise invalid("No values in 'instances' array")
    if not all(isinstance(row, dict) and set(row) != {'b64'} for row in values):
        if only is None:
            raise invalid(
                'instances is a plain list, but expecting list of objects as multiple '
                'input tensors required as per tensorinfo_map'
            )
        return {only: values}
    for index, row in enumerate(values):
        if set(row) != set(infos):
            raise invalid(
                "Failed to process element: %d of 'instances' list. JSON object keys "
                'must be equal to: %s' % (index, ','.join(sorted(infos)))
            )
    return {name: [row[name] for row in values] for name in infos}


def _tensor(values, dtype):
    """The TensorProto of a JSON value; raises StatusError."""
    kind = tf.as_dtype(dtype)
    try:
        if kind == tf.string:
            return tf.make_tensor_proto(np.array(_decoded(values), object), kind)
        array = np.array(values)
        fitting = 'iuf' if kind.is_floating else 'iu'
        if array.size and array.dtype.kind not in fitting:  # an empty list has no type
            raise ValueError('is not of expected type: %s' % kind.name)
        return tf.make_tensor_proto(array.astype(kind.as_numpy_dtype), kind)
    except (ValueError, TypeError, binascii.Error) as error:
        raise invalid('JSON Value: %.40s %s' % (json.dumps(values), error)) from None


def _decoded(values):
    """A JSON value with bytes in the place of text and of {'b64': text}."""
    if isinstance(values, list):
        return [_decoded(value) for value in values]
    if isinstance(values, dict) and set(values) == {'b64'}:
        return base64.b64decode(values['b64'], validate=True)
    if isinstance(values, str):
        return values.encode('utf-8')
    raise ValueError('not formatted correctly for base64 data')


def _json_values(name, array):
    """An array as JSON; bytes are text, but for names that end in _bytes."""
    if array.dtype != object:
        return array.tolist()
    if name.endswith('_bytes'):
        return [{'b64': base64.b64encode(each).decode('ascii')} for each in array]
    return [each.decode('utf-8') for each in array]


# The process


def serve(options: Options, ready: Callable[[int, int], Any], stop: threading.Event) -> None:
    """Serves until `stop` is set; calls ready(port of gRPC, port of REST) once it does."""
    versions = Versions(options)
    service = Service(versions, options)
    versions.start()
    pool = concurrent.futures.ThreadPoolExecutor(options.threads)
    server = grpc.server(
        pool,
        options=[
            ('grpc.max_receive_message_length', options.max_message_bytes),
            ('grpc.max_send_message_length', UNLIMITED),
            ('grpc.so_reuseport', 0),
        ],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(service), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(service), server)
    port = server.add_insecure_port('%s:%d' % (LOOPBACK, options.port))
    handler = type(
        'Handler',
        (RestHandler,),
        dict(service=service, max_message_bytes=options.max_message_bytes),
    )
    rest = http.server.ThreadingHTTPServer((LOOPBACK, options.rest_port), handler)
    rest.daemon_threads = True
    rest_thread = threading.Thread(target=rest.serve_forever)
    server.start()
    rest_thread.start()
    try:
        ready(port, rest.server_address[1])
        stop.wait()
    finally:
        rest.shutdown()
        rest.server_close()
        server.stop(grace=5).wait()
        versions.stop()


def main(arguments: list[str]) -> int:
    """Runs the command line until SIGTERM or Ctrl-C; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('base_path', metavar='EXPORT_DIR', help='folder of the versions')
    parser.add_argument('--name', default='deepspeech', help='name of the model')
    parser.add_argument('--port', type=int, default=8500, help='of gRPC')
    parser.add_argument('--rest-port', type=int, default=8501)
    parser.add_argument('--batching', action='store_true', help='join requests')
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format='%(message)s')
    served_model.quiet_tensorflow()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    serve(
        Options(
            options.base_path,
            options.name,
            options.port,
            options.rest_port,
            batching=Batching() if options.batching else None,
        ),
        lambda *ports: print('gRPC on port %d, REST on port %d' % ports, flush=True),
        stop,
    )
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
