"""What the two ways of talking to a model server share: the model that is asked for, the answers,
and errors in words that say what to do.

A connection is an object with the methods of `Connection`: rest_connection.RestConnection speaks
REST, grpc_connection.GrpcConnection speaks gRPC.
"""

import re
from typing import Any, NamedTuple, Protocol

from util import errors

MEGABYTE = 1 << 20  # bytes
NODE_NAMES = re.compile(r'\{\{[^{}]*\}\}')  # as in '{{function_node f}} Header mismatch'
SMALLEST_TIMEOUT_S = 0.001  # s; a deadline that has passed is given to a server as this


class Model(NamedTuple):
    """The model that a request is for, as TensorFlow Serving names it."""

    name: str
    version: int | None  # None: the newest one that is served
    signature: str

    def __str__(self) -> str:
        return 'model %r%s' % (
            self.name,
            '' if self.version is None else ' in version %d' % self.version,
        )


class Signature(NamedTuple):
    """A signature of a model."""

    inputs: frozenset[str]  # names
    outputs: frozenset[str]


class ServerError(errors.DeepSpeechError):
    """A request was not answered; the message says why.

    Attributes:
      retry: whether the same request may be answered if it is made again.
    """

    def __init__(self, message: str, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry


class NoAnswerInTime(ServerError):
    """The time that a request was given is over."""


class Connection(Protocol):
    """A connection to a model server; several threads may use it at the same time."""

    def signatures(self, model: Model, timeout_s: float) -> dict[str, Signature]:
        """Returns the signatures of the model.

        Raises:
          ServerError: the server does not answer, or has no such model.
        """
        ...

    def predict(self, model: Model, inputs: dict[str, Any], timeout_s: float) -> dict[str, list]:
        """Runs a signature of the model on a batch.

        Args:
          model: Model.
          inputs: {name: values of the batch}: a list of bytes, or an array float32 or int32.
          timeout_s: seconds after which to give up.
        Returns:
          {name: list of the values of the batch, with text instead of bytes}.
        Raises:
          ServerError: there is no answer; the message does not name the input.
        """
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


def no_server(address: str, reason: str) -> ServerError:
    """Returns the error of a server that cannot be reached."""
    return ServerError('no server answers at %s: %s' % (address, reason), retry=True)


def no_model(address: str, model: Model) -> ServerError:
    """Returns the error of a server that does not serve the model."""
    return ServerError('the server at %s has no %s' % (address, model))


def no_signature(model: Model, known: set[str] | None = None) -> ServerError:
    """Returns the error of a model without the signature; `known` are those that it has."""
    having = '; it has %s' % ', '.join(sorted(known)) if known else ''
    return ServerError('%s has no signature %r%s' % (model, model.signature, having))


def no_answer_in_time(timeout_s: float) -> NoAnswerInTime:
    """Returns the error of an answer that took too long."""
    return NoAnswerInTime('no answer within %.3g s (--timeout)' % timeout_s)


def busy(reason: str) -> ServerError:
    """Returns the error of a server that cannot take the request now."""
    return ServerError('the server is busy: %s' % reason, retry=True)


def refused(reason: str) -> ServerError:
    """Returns the error of a request that the server refuses."""
    return ServerError('the server refused it: %s' % reason)


def too_large(size: int, limit: int) -> ServerError:
    """Returns the error of a message above the client's own limit, both in bytes."""
    return ServerError(
        'a message of %s is larger than the limit of %s (--max-message-mb)'
        % (megabytes(size), megabytes(limit))
    )


def too_large_for_server(size: int, limit: int | None) -> ServerError:
    """Returns the error of a message above the server's limit, both in bytes; None: the server
    does not say which limit it has."""
    known = '' if limit is None else ', which takes at most %s' % megabytes(limit)
    return ServerError(
        'a message of %s is too large for the server%s; send shorter recordings, or raise the '
        "server's limit" % (megabytes(size), known)
    )


def megabytes(n_bytes: int) -> str:
    """Returns a number of bytes in words: as MB with two digits behind the point."""
    return '%.2f MB' % (n_bytes / MEGABYTE)


def first_line(message: str) -> str:
    """Returns the first line of what a model server says, without the names of the nodes of the
    graph that TensorFlow puts before it."""
    lines = [NODE_NAMES.sub('', line).strip() for line in message.splitlines()]
    return next((line for line in lines if line), 'it gives no reason')
