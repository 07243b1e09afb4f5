"""Puts the stand-in for a model server under load: does every request get its answer?

    python tests/serving_load.py --seconds 60 [--clients 8] [--batching]

Clients send speech of mixed lengths and some rubbish over gRPC and REST, on the loopback address
and bounded in time and number. It fails if an answer is wrong, lost or an error that does not fit,
or if the server's memory grows. With --batching a request may share the error of one it was joined
with.
"""

import argparse
import collections
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time
from typing import NamedTuple

if __name__ == '__main__':  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import served_model
import serving_helpers
from helpers import RATE, speech
from util.serving import audio_messages, retrying
from util.serving.server import Model, ServerError
from util.tools import client

LENGTHS_S = (0.3, 0.7, 1.5, 3.0, 6.0, 15.0)
RUBBISH_SHARE = 0.2
LONGEST_WAIT_S = 60  # of a request
MESSAGE_LIMIT = 1 << 26  # bytes
MOST_REQUESTS = 50_000
SAMPLE_S = 0.25  # s between two looks at the memory
WARM_UP_REQUESTS = 5  # of the longest speech, for each client: the most memory that is needed
GROWTH = 0.05  # share by which the memory may grow afterwards
MODEL = Model('deepspeech', None, 'audio')


class Sent(NamedTuple):
    """A request and what it must be answered with."""

    content: bytes
    seconds: float  # 0 for rubbish
    text: str | None  # None if it must be refused
    words: str  # of the refusal


class Outcome(NamedTuple):
    """What became of a request."""

    sent: Sent
    protocol: str
    latency_s: float
    text: str | None
    error: str | None


def main(arguments: list[str]) -> int:
    """Runs the command line; returns 0 if all went as it must."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seconds', type=float, default=60.0)
    parser.add_argument('--clients', type=int, default=8)
    parser.add_argument('--batching', action='store_true', help='let the server join requests')
    parser.add_argument('--work-dir', help='folder for model and log; by default a temporary one')
    options = parser.parse_args(arguments)
    served_model.quiet_tensorflow()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.work_dir or temporary)
        serving_helpers.export_small(folder / 'export')
        batching = served_model.Batching(batch_timeout_micros=5000) if options.batching else None
        with serving_helpers.serving(
            folder / 'export', folder / 'log', batching=batching
        ) as server:
            load = Load(server, requests_to_send(str(folder / 'export' / '1')))
            load.run(options.clients, options.seconds)
    faults = load.faults(options.batching)
    print('\n'.join(load.report()))
    for fault in faults[:10]:
        print('FAULT: ' + fault)
    print('%d faults' % len(faults))
    return 1 if faults else 0


def requests_to_send(version: str) -> list[Sent]:
    """The speech, with the texts that TensorFlow's loader makes of it, and the rubbish."""
    contents = [
        audio_messages.encode_wav(speech(seconds, seed), RATE)
        for seed, seconds in enumerate(LENGTHS_S)
    ]
    model = served_model.ServedModel(version)
    texts = serving_helpers.transcripts(model, contents)
    model.close()
    good = [Sent(*each, '') for each in zip(contents, LENGTHS_S, texts)]
    return good + [Sent(content, 0.0, None, words) for content, words in serving_helpers.rubbish()]


class Load:
    """Clients that send requests at the same time.

    Args:
      server: serving_helpers.Server.
      requests: what they send, chosen at random.
    """

    def __init__(self, server: serving_helpers.Server, requests: list[Sent]) -> None:
        self._server = server
        self._good = [each for each in requests if each.text is not None]
        self._bad = [each for each in requests if each.text is None]
        self._outcomes: list[Outcome] = []
        self._memory_mb: list[float] = []
        self._sent = 0
        self._lock = threading.Lock()
        self._seconds = 0.0

    def run(self, n_clients: int, seconds: float) -> None:
        """Sends requests for so many seconds, and waits for the last answers."""
        self._together(n_clients, self._warm_up)
        start = time.monotonic()
        self._together(n_clients, self._send_until, start + seconds)
        self._seconds = time.monotonic() - start

    def _together(self, n_clients, function, *arguments):
        """Calls function(number of the client, *arguments) in a thread for each client, and looks
        at the server's memory meanwhile."""
        self._memory_mb.clear()
        threads = [
            threading.Thread(target=function, args=(client_number, *arguments))
            for client_number in range(n_clients)
        ]
        for each in threads:
            each.start()
        while any(each.is_alive() for each in threads):
            self._memory_mb.append(self._server.resident_mb())
            time.sleep(SAMPLE_S)

    def _connections(self):
        """{name of a protocol: connection}."""
        return {
            'gRPC': client.connect(self._server.grpc, MESSAGE_LIMIT),
            'REST': client.connect(self._server.rest, MESSAGE_LIMIT),
        }

    def _warm_up(self, _):
        """Sends the longest speech a few times."""
        longest = max(self._good, key=lambda each: each.seconds)
        for protocol, connection in self._connections().items():
            for _ in range(WARM_UP_REQUESTS):
                _send(connection, protocol, longest)
            connection.close()

    def _send_until(self, seed, end):
        """Sends one request after another until the time is over."""
        choice = random.Random(seed)
        connections = self._connections()
        while time.monotonic() < end:
            with self._lock:
                if self._sent == MOST_REQUESTS:
                    break
                self._sent += 1
            sent = choice.choice(self._bad if choice.random() < RUBBISH_SHARE else self._good)
            protocol = choice.choice(sorted(connections))
            outcome = _send(connections[protocol], protocol, sent)
            with self._lock:
                self._outcomes.append(outcome)
        for each in connections.values():
            each.close()

    def faults(self, batching: bool) -> list[str]:
        """Lists what went wrong.

        Args:
          batching: whether a request may share the error of another.
        """
        found = []
        if len(self._outcomes) != self._sent:
            found.append(
                '%d of %d requests are lost' % (self._sent - len(self._outcomes), self._sent)
            )
        refusals = {each.words for each in self._bad}
        for sent, protocol, _, text, error in self._outcomes:
            name = '%s, %s' % (protocol, '%g s' % sent.seconds if sent.seconds else sent.words)
            words = refusals if batching else {sent.words} if sent.text is None else set()
            if error is None and text != sent.text:
                found.append('%s: the answer is %r' % (name, text))
            if error is not None and not any(each in error for each in words):
                found.append('%s: the error is %r' % (name, error))
        before, after = self._plateaus()
        if after > before * (1 + GROWTH):
            found.append('memory grows from %.0f to %.0f MB' % (before, after))
        return found

    def report(self) -> list[str]:
        """Lists the lines that say what was sent, how long it took, and the server's memory."""
        counts = collections.Counter(
            'answered' if each.error is None else 'refused' for each in self._outcomes
        )
        lines = [
            '%d requests in %.1f s, %.1f a second: %d answered, %d refused'
            % (
                self._sent,
                self._seconds,
                self._sent / self._seconds,
                counts['answered'],
                counts['refused'],
            )
        ]
        for seconds in LENGTHS_S:
            latencies = [each.latency_s for each in self._outcomes if each.sent.seconds == seconds]
            if len(latencies) > 1:
                cuts = statistics.quantiles(latencies, n=100, method='inclusive')
                lines.append(
                    '%5.1f s of audio: p50 %.3f s, p99 %.3f s, longest %.3f s'
                    % (seconds, cuts[49], cuts[98], max(latencies))
                )
        return [
            *lines,
            'memory of the server: %.0f MB after the warm-up, %.0f MB at the end'
            % self._plateaus(),
        ]

    def _plateaus(self):
        """Megabytes of memory at the start and at the end, medians of a fifth of the time."""
        part = max(1, len(self._memory_mb) // 5)
        return statistics.median(self._memory_mb[:part]), statistics.median(self._memory_mb[-part:])


def _send(connection, protocol, sent):
    """Sends a request as the client does; returns its Outcome."""
    start = time.monotonic()
    text = error = None
    try:
        answer = retrying.call(
            lambda left_s: connection.predict(MODEL, {'audio_bytes': [sent.content]}, left_s),
            LONGEST_WAIT_S,
            retries=5,
        )
        [text] = answer['transcripts']
    except ServerError as failure:
        error = str(failure)
    return Outcome(sent, protocol, time.monotonic() - start, text, error)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
