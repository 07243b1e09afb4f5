"""Sends audio files to a model server and prints what it recognises.

    python -m util.tools.client --server localhost:8500 a.wav b.flac         # gRPC
    python -m util.tools.client --server http://localhost:8501 a.wav b.flac  # REST

The server is TensorFlow Serving with an exported model, see util/README.md. Each file is a request
of its own; several are made at a time, and the answers are printed in the order of the files, as
`file<TAB>text` or with --json as a JSON object a line. A request that the server cannot take just
now is repeated. A file that fails is named on the standard error; the exit status is then 1.
"""

import argparse
import concurrent.futures
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if not __package__:  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from util import errors
from util.run import command
from util.serving import server
from util.tools import language_options

if TYPE_CHECKING:
    from util.tools import client_search

GRPC_PORT = 8500  # TensorFlow Serving's default
SAMPLE_RATE = 16000  # Hz, the trainer's default
LARGEST_MESSAGE_MB = 2047  # of gRPC
DIGITS = 4  # behind the point of a number in JSON


class Answer(NamedTuple):
    """What became of a file."""

    filename: str
    outputs: dict[str, Any]  # {name: value}, empty after an error
    error: str | None


def main(arguments: list[str]) -> int:
    """Runs the command line and returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        search = _search(options)
        connection = connect(options.server, round(options.max_message_mb * server.MEGABYTE))
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    try:
        return _run(options, connection, search)
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    finally:
        connection.close()


def connect(address: str, message_limit: int) -> server.Connection:
    """Returns a connection to a model server: for REST if the address is an http address.

    Raises:
      ServerError: gRPC is not installed.
    """
    if address.startswith(('http://', 'https://')):
        from util.serving import rest_connection

        return rest_connection.RestConnection(address, message_limit)
    from util.serving import grpc_connection

    return grpc_connection.GrpcConnection(address, message_limit)


def recognise(
    connection: server.Connection,
    model: server.Model,
    filenames: list[str],
    *,
    jobs: int,
    timeout_s: float,
    retries: int,
    sample_rate: int = SAMPLE_RATE,
    search: 'client_search.Search | None' = None,
) -> Iterator[Answer]:
    """Yields the answer for each file, in their order.

    Args:
      connection: to the server.
      model: the model; its signature takes whole files, or samples at `sample_rate`.
      filenames: audio files.
      jobs: requests that are made at a time.
      timeout_s: seconds for each file, repeated requests included.
      retries: how often a failed request may be repeated.
      sample_rate: Hz.
      search: client_search.Search that finds the texts here; None: the server does.
    Raises:
      ServerError: before the first file: there is no server, no such model or no such signature.
    """
    from util import audio
    from util.serving import audio_messages, retrying

    def ask(request):
        return retrying.call(request, timeout_s, retries)

    known = ask(lambda left_s: connection.signatures(model, left_s))
    if model.signature not in known:
        raise server.no_signature(model, set(known))
    signature = known[model.signature]
    (search or audio_messages).check_signature(model.signature, signature)

    def answer(filename):
        try:
            if search:
                message = search.message(filename)
            else:
                message = audio_messages.message(filename, signature, sample_rate)
            outputs = ask(lambda left_s: connection.predict(model, message, left_s))
            if search:
                return Answer(filename, search.outputs(outputs), None)
            return Answer(filename, {name: value[0] for name, value in outputs.items()}, None)
        except (audio.AudioError, errors.DeepSpeechError) as error:
            return Answer(filename, {}, str(error))
        except OSError as error:
            return Answer(filename, {}, 'cannot be read: %s' % (error.strerror or error))

    yield from _in_order(answer, filenames, jobs)


def _in_order(function: Callable, items: list, jobs: int) -> Iterator:
    """Yields function(item) of each item, in their order, from `jobs` threads."""
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(function, items)
    finally:  # after Ctrl-C, what has not begun does not begin
        pool.shutdown(wait=False, cancel_futures=True)


def _search(options):
    """Returns the client_search.Search of the command line; None if it asks for none."""
    if not language_options.given(options) and not options.description:
        return None
    from util.tools import client_search  # here, as the client can do without TensorFlow

    return client_search.of_options(options)


def _run(options, connection, search):
    """Sends the files and prints the answers; returns the exit status."""
    signature = options.signature or ('logits' if search else 'audio')
    model = server.Model(options.model, options.version, signature)
    answers = recognise(
        connection,
        model,
        options.files,
        jobs=options.jobs,
        timeout_s=options.timeout,
        retries=options.retries,
        sample_rate=options.sample_rate,
        search=search,
    )
    failed = 0
    for answer in answers:
        if answer.error is not None:
            failed += 1
            print('error: %s: %s' % (answer.filename, answer.error), file=sys.stderr)
        if options.json:
            print(_json_line(answer), flush=True)
        elif answer.error is None:
            print('%s\t%s' % (answer.filename, answer.outputs['transcripts']), flush=True)
    if failed and len(options.files) > 1:
        print('%d of %d files failed' % (failed, len(options.files)), file=sys.stderr)
    return int(failed > 0)


def _json_line(answer):
    """Returns an Answer as a JSON object in one line."""
    if answer.error is not None:
        return json.dumps({'file': answer.filename, 'error': answer.error})
    named = {'transcripts': 'text', 'log_probabilities': 'log_probability', 'scores': 'score'}
    outputs = {
        named.get(name, name): round(value, DIGITS) if isinstance(value, float) else value
        for name, value in sorted(answer.outputs.items())
    }
    return json.dumps({'file': answer.filename, **outputs}, ensure_ascii=False)


def _parser():
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog='python -m util.tools.client',
        description='Sends audio files to a model server and prints what it recognises, as '
        'file<TAB>text in the order of the files. The exit status is 1 if a file failed.',
    )
    parser.add_argument(
        'files', metavar='FILE', nargs='+', help='audio file in any format that the trainer reads'
    )
    parser.add_argument(
        '--server',
        metavar='ADDRESS',
        type=_address,
        default='localhost:%d' % GRPC_PORT,
        help='HOST:PORT for gRPC, which needs requirements-serving.txt, or http://HOST:PORT for '
        'REST (default: %(default)s)',
    )
    parser.add_argument(
        '--model',
        metavar='NAME',
        default='deepspeech',
        help='name of the model (default: %(default)s)',
    )
    parser.add_argument(
        '--version',
        metavar='N',
        type=_positive(int),
        help='version of the model (default: the newest)',
    )
    parser.add_argument(
        '--signature',
        metavar='NAME',
        help='signature of the model: audio, which takes whole files, or waveform, which takes '
        'samples (default: audio; logits with --lm, --lexicon or --grammar)',
    )
    parser.add_argument(
        '--sample-rate',
        metavar='HZ',
        type=_positive(int),
        default=SAMPLE_RATE,
        help='ds_sample_rate of the model, for the signature waveform (default: %(default)s)',
    )
    parser.add_argument(
        '--jobs',
        metavar='N',
        type=_positive(int),
        default=4,
        help='requests at a time (default: %(default)s)',
    )
    parser.add_argument(
        '--timeout',
        metavar='SECONDS',
        type=_positive(float),
        default=60.0,
        help='time for each file, repeated requests included (default: %(default)g)',
    )
    parser.add_argument(
        '--retries',
        metavar='N',
        type=_count,
        default=5,
        help='how often a request is repeated that the server cannot take just now '
        '(default: %(default)s)',
    )
    parser.add_argument(
        '--max-message-mb',
        metavar='MB',
        type=_message_size,
        default=256.0,
        help='size of a message that is sent or received at most (default: %(default)g)',
    )
    parser.add_argument('--json', action='store_true', help='print a JSON object for each file')
    language_options.add_to(parser)
    parser.add_argument(
        '--description',
        metavar='FILE',
        help='assets.extra/model.json of the served model, for --lm, --lexicon and --grammar: the '
        'server gives the logits, and the text is found here',
    )
    return parser


def _address(value):
    """Returns an address of the command line, with the default port if it has none."""
    scheme, _, rest = value.rpartition('://')
    if scheme not in ('', 'http', 'https') or not rest:
        raise argparse.ArgumentTypeError('%r is neither HOST:PORT nor http://HOST:PORT' % value)
    if scheme or ':' in rest:
        return value
    return '%s:%d' % (rest, GRPC_PORT)


def _positive(kind):
    """Returns a function that reads a positive number of this type."""

    def read(value):
        number = kind(value)
        if not 0 < number < float('inf'):
            raise argparse.ArgumentTypeError('%s is not positive' % value)
        return number

    read.__name__ = 'number' if kind is float else 'whole number'
    return read


def _count(value):
    """Returns a whole number from 0."""
    number = int(value)
    if number < 0:
        raise argparse.ArgumentTypeError('%s is negative' % value)
    return number


_count.__name__ = 'whole number'


def _message_size(value):
    """Returns a size in MB that a message can have."""
    size = _positive(float)(value)
    if size > LARGEST_MESSAGE_MB:
        raise argparse.ArgumentTypeError(
            '%s is more than %d, which gRPC can take' % (value, LARGEST_MESSAGE_MB)
        )
    return size


if __name__ == '__main__':
    command.run(main)
