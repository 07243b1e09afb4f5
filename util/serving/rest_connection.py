"""Speaks REST to a model server: JSON over HTTP, binary values in base64.

Source: TensorFlow Serving's RESTful API, `/v1/models/NAME[/versions/N]:predict`.
"""

import base64
import http.client
import json
import time
from typing import Any

import requests
import requests.adapters

from util.serving import server
from util.serving.server import Model, ServerError, Signature

RETRIED = (429, 502, 503, 504)  # HTTP statuses after which the same request may be answered
BLOCK_BYTES = 1 << 16  # of an answer that are read at once
CONNECTIONS = 64  # that are kept open at most


class RestConnection:
    """A connection to the REST port of a model server; see server.Connection.

    Args:
      address: 'http://HOST:PORT', or https.
      message_limit: bytes of a request that are sent at most.
    """

    def __init__(self, address: str, message_limit: int) -> None:
        self._address = address.rstrip('/')
        self._limit = message_limit
        self._session = requests.Session()
        adapter = requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS)
        for scheme in ('http://', 'https://'):
            self._session.mount(scheme, adapter)

    def signatures(self, model: Model, timeout_s: float) -> dict[str, Signature]:
        answer = self._ask('GET', model, '/metadata', None, timeout_s)
        try:
            found = answer['metadata']['signature_def']['signature_def']
            return {
                name: Signature(
                    frozenset(signature.get('inputs', ())), frozenset(signature.get('outputs', ()))
                )
                for name, signature in found.items()
            }
        except (KeyError, TypeError, AttributeError):
            raise self._not_a_model_server() from None

    def predict(self, model: Model, inputs: dict[str, Any], timeout_s: float) -> dict[str, list]:
        request = {
            'signature_name': model.signature,
            'inputs': {name: _to_json(values) for name, values in inputs.items()},
        }
        body = json.dumps(request).encode('ascii')
        if len(body) > self._limit:
            raise server.too_large(len(body), self._limit)
        answer = self._ask('POST', model, ':predict', body, timeout_s)
        outputs = answer.get('outputs')
        if not isinstance(outputs, dict):
            raise self._not_a_model_server()
        return outputs

    def close(self) -> None:
        self._session.close()

    def _ask(self, method, model, action, body, timeout_s):
        """Makes a request about the model and returns the JSON object of the answer.

        Raises:
          ServerError.
        """
        version = '' if model.version is None else '/versions/%d' % model.version
        url = '%s/v1/models/%s%s%s' % (
            self._address,
            requests.utils.quote(model.name, safe=''),
            version,
            action,
        )
        timeout = max(server.SMALLEST_TIMEOUT_S, timeout_s)
        deadline = time.monotonic() + timeout
        try:
            with self._session.request(
                method,
                url,
                data=body,
                headers={'Content-Type': 'application/json'},
                timeout=timeout,
                stream=True,
                allow_redirects=False,
            ) as response:
                content = bytearray()
                for block in response.iter_content(BLOCK_BYTES):
                    content += block
                    if time.monotonic() > deadline:
                        raise server.no_answer_in_time(timeout_s)
                return self._read(response.status_code, bytes(content), model, body)
        except requests.Timeout:
            raise server.no_answer_in_time(timeout_s) from None
        except requests.ConnectionError as error:
            if time.monotonic() > deadline:  # an answer that stops half-way ends so
                raise server.no_answer_in_time(timeout_s) from None
            raise server.no_server(self._address, _reason(error)) from None
        except (requests.RequestException, ValueError) as error:
            raise ServerError('%s: %s' % (self._address, _reason(error))) from None

    def _read(self, status, content, model, body):
        """Returns the JSON object of an answer; raises ServerError unless it is a good one."""
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if status == 200 and isinstance(answer, dict):
            return answer
        said = answer.get('error') if isinstance(answer, dict) else None
        reason = server.first_line(said) if isinstance(said, str) else 'HTTP status %d' % status
        if status == 413:
            raise server.too_large_for_server(len(body or b''), None)
        if status in RETRIED:
            raise server.busy(reason)
        if status == 200 or said is None:
            raise self._not_a_model_server(': HTTP status %d' % status)
        if status == 404 and 'Servable not found' in reason:
            raise server.no_model(self._address, model)
        if 'not found in signature def' in reason:
            raise server.no_signature(model)
        raise server.refused(reason)

    def _not_a_model_server(self, reason=''):
        """Returns the error of an answer that is not that of TensorFlow Serving."""
        return ServerError(
            'what answers at %s is not the REST port of a model server%s' % (self._address, reason)
        )


def _to_json(values):
    """Returns the values of an input for JSON; bytes become {'b64': text}."""
    if hasattr(values, 'tolist'):
        return values.tolist()
    return [{'b64': base64.b64encode(value).decode('ascii')} for value in values]


def _reason(error):
    """Returns why a request failed, without the names of Python objects."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        inner = [each for each in error.args if isinstance(each, BaseException)]
        reason = getattr(error, 'reason', None)  # urllib3 keeps the error of the socket here
        if isinstance(reason, BaseException):
            inner.append(reason)
        error = inner[0] if inner else error.__cause__ or error.__context__
    if any(isinstance(each, http.client.BadStatusLine) for each in chain):
        # of which a connection that was closed without an answer is a kind
        closed = any(isinstance(each, http.client.RemoteDisconnected) for each in chain)
        return 'it closed the connection' if closed else 'it does not speak HTTP'
    said = [each.strerror for each in chain if isinstance(each, OSError) and each.strerror]
    return said[-1] if said else server.first_line(str(chain[0]))
