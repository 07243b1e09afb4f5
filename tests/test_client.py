"""util.tools.client and util.serving against the stand-in for a model server: texts over gRPC and
REST, what is sent, what is repeated, and the errors."""

import concurrent.futures
import contextlib
import http.server
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import soundfile

import serving_helpers
from helpers import PROJECT, RATE, speech, write_wav
from util import audio
from util.serving import audio_messages, retrying, server
from util.serving.server import ServerError
from util.tools import client

serving_helpers.needs_api()

import grpc  # noqa: E402
import served_model  # noqa: E402
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2  # noqa: E402
from tensorflow_serving.apis import prediction_service_pb2_grpc  # noqa: E402
from util.tf1 import tf  # noqa: E402

LENGTHS = (0.5, 1.3, 0.8, 0.4)  # s
SMALL_LIMIT = 60_000  # bytes of a message, less than two seconds of audio
LIMIT_S = 30  # of a process


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    """Folder with version 1 of a small model."""
    folder = tmp_path_factory.mktemp('client') / 'export'
    serving_helpers.export_small(folder)
    return folder


@pytest.fixture(scope='module')
def running(exported):
    """The stand-in that serves it."""
    with serving_helpers.serving(exported, exported.parent / 'log') as found:
        yield found


@pytest.fixture(scope='module')
def strict(exported):
    """A slow one that takes small messages only."""
    with serving_helpers.serving(
        exported, exported.parent / 'log2', max_message_bytes=SMALL_LIMIT, delay_s=1.5
    ) as found:
        yield found


PROTOCOLS = pytest.mark.parametrize('protocol', ['grpc', 'rest'])


@pytest.fixture(params=['grpc', 'rest'])
def address(request, running):
    """Its address for each of the protocols."""
    return getattr(running, request.param)


@pytest.fixture(scope='module')
def spoken(exported):
    """{path of a WAV file: what TensorFlow's loader makes of it}, in an order of their own."""
    paths = [
        write_wav(exported.parent / ('clip%d.wav' % i), speech(seconds, seed=i))
        for i, seconds in enumerate(LENGTHS)
    ]
    model = served_model.ServedModel(str(exported / '1'))
    contents = [open(path, 'rb').read() for path in paths]
    found = dict(zip(paths, serving_helpers.transcripts(model, contents)))
    model.close()
    assert len(set(found.values())) == len(LENGTHS)
    return found


def run(capsys, *arguments):
    """(exit status, lines of the standard output, lines of the standard error)."""
    status = client.main([str(each) for each in arguments])
    out, err = capsys.readouterr()
    return status, out.splitlines(), err.splitlines()


def lines(spoken):
    return ['%s\t%s' % item for item in spoken.items()]


# Answers


@pytest.mark.parametrize('signature', ['audio', 'waveform'])
@pytest.mark.parametrize('jobs', [1, 3])
def test_texts_are_those_of_the_model_in_the_order_of_the_files(
    capsys, address, spoken, signature, jobs
):
    arguments = ['--server', address, '--signature', signature, '--jobs', jobs]
    assert run(capsys, *arguments, *spoken) == (0, lines(spoken), [])


def test_json_has_the_outputs_under_their_names(capsys, address, spoken):
    status, out, err = run(capsys, '--server', address, '--json', *spoken)
    assert (status, err) == (0, [])
    for line, (path, text), seconds in zip(out, spoken.items(), LENGTHS, strict=True):
        answer = json.loads(line)
        assert set(answer) == {'file', 'text', 'log_probability', 'seconds'}
        assert answer['file'] == path and answer['text'] == text
        assert answer['seconds'] == seconds
        assert answer['log_probability'] < 0


def test_a_file_that_fails_is_named_and_the_rest_is_done(capsys, address, spoken, tmp_path):
    (tmp_path / 'text.wav').write_text('no audio')
    paths = list(spoken)
    files = [paths[0], tmp_path / 'text.wav', paths[1], tmp_path / 'gone.wav', paths[2]]
    files += [write_wav(tmp_path / 'short.wav', speech(0.01)), tmp_path]
    status, out, err = run(capsys, '--server', address, *files)
    assert status == 1
    assert out == lines(spoken)[:3]
    for line, name, words in zip(
        err, ['text.wav', 'gone.wav', 'short.wav', ''], ['not an audio', 'No such', '400', 'direc']
    ):
        assert line.startswith('error: %s: ' % (tmp_path / name))
        assert words in line
    assert err[4:] == ['4 of 7 files failed']


def test_a_failure_is_a_json_line_too(capsys, address, spoken):
    status, out, err = run(capsys, '--server', address, '--json', 'gone.wav', next(iter(spoken)))
    assert status == 1 and len(err) == 2
    assert json.loads(out[0]) == {
        'file': 'gone.wav',
        'error': 'cannot be read: No such file or directory',
    }
    assert 'text' in json.loads(out[1])


def test_a_version_can_be_asked_for(capsys, address, spoken):
    found = run(capsys, '--server', address, '--version', 1, *spoken)
    assert found == (0, lines(spoken), [])


def in_a_process(address, files, **options):
    """The client as started from a shell."""
    command = [sys.executable, '-m', 'util.tools.client', '--server', address, *files]
    return subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True, **options)


def test_it_ends_quietly_when_nobody_reads_its_output(running, spoken):
    process = in_a_process(running.rest, list(spoken) * 20, stdout=subprocess.PIPE)
    assert process.stdout.readline() == lines(spoken)[0] + '\n'
    process.stdout.close()
    assert process.stderr.read() == ''
    assert process.wait(LIMIT_S) == 0


def test_output_that_cannot_be_written_is_one_line(running, spoken):
    with open('/dev/full', 'w') as full:
        process = in_a_process(running.rest, list(spoken), stdout=full)
        said = process.stderr.read()
    assert process.wait(LIMIT_S) == 1
    assert said == 'error: the standard output cannot be written: No space left on device\n'


@PROTOCOLS
def test_ctrl_c_ends_it(strict, spoken, protocol):
    address = getattr(strict, protocol)
    process = in_a_process(address, list(spoken) * 5, stdout=subprocess.PIPE)
    process.stdout.readline()  # the first answer has come
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=LIMIT_S)[1] == 'interrupted\n'
    assert process.returncode == 130


# What is sent


@pytest.mark.parametrize(
    'name, channels, options',
    [
        ('same.flac', 1, {}),
        ('deep.flac', 1, {'subtype': 'PCM_24'}),
        ('float.wav', 1, {'subtype': 'FLOAT'}),
        ('extensible.wav', 1, {'format': 'WAVEX'}),
        ('wide.w64', 1, {}),
        ('both.flac', 2, {}),
    ],
)
def test_other_formats_are_sent_as_16_bit_wav(
    capsys, address, spoken, tmp_path, name, channels, options
):
    original, text = next(iter(spoken.items()))
    samples, _ = soundfile.read(original)
    path = tmp_path / name
    soundfile.write(path, np.stack([samples] * channels, axis=1), RATE, **options)
    assert run(capsys, '--server', address, path) == (0, ['%s\t%s' % (path, text)], [])


def test_a_plain_wav_file_is_sent_as_it_is(tmp_path):
    samples = np.stack([speech(0.3), speech(0.3, seed=1)], axis=1)
    path = write_wav(tmp_path / 'stereo.wav', samples, 44100)
    assert audio_messages.wav_content(path) == open(path, 'rb').read()


@pytest.mark.parametrize('change', ['chunk', 'longer', 'streamed'])
def test_a_wav_file_whose_header_is_not_plain_is_written_anew(tmp_path, change):
    samples = speech(0.3)
    content = open(write_wav(tmp_path / 'plain.wav', samples), 'rb').read()
    if change == 'chunk':  # behind the format, as many programs have it
        content = content[:36] + b'LIST\x04\x00\x00\x00INFO' + content[36:]
    elif change == 'longer':  # than the header says
        content += b'LIST\x04\x00\x00\x00INFO'
    else:  # a program that could not go back to write the length
        content = content[:40] + b'\xff\xff\xff\xff' + content[44:]
    (tmp_path / 'odd.wav').write_bytes(content)
    sent, rate = soundfile.read(
        io.BytesIO(audio_messages.wav_content(str(tmp_path / 'odd.wav'))), dtype='int16'
    )
    assert rate == RATE
    np.testing.assert_array_equal(sent, samples)


def test_a_wav_file_that_was_cut_off_is_refused(tmp_path):
    path = write_wav(tmp_path / 'cut.wav', speech(0.3))
    os.truncate(path, 44 + 2 * 4000)
    with pytest.raises(audio.AudioError, match='damaged WAV: 4000 samples, its header says 4800'):
        audio_messages.wav_content(path)


def test_what_is_louder_than_16_bits_is_clipped(tmp_path):
    soundfile.write(tmp_path / 'loud.wav', np.linspace(-2, 2, 4001), RATE, subtype='FLOAT')
    sent, _ = soundfile.read(
        io.BytesIO(audio_messages.wav_content(str(tmp_path / 'loud.wav'))), dtype='int16'
    )
    assert sent[0] == -32768 and sent[-1] == 32767 and sent[2000] == 0 and sent[2500] == 16384


def test_samples_are_sent_at_the_rate_of_the_model(tmp_path):
    path = write_wav(tmp_path / 'one.wav', speech(0.5, rate=44100), 44100)
    signature = server.Signature(audio_messages.SAMPLES, frozenset(['transcripts']))
    message = audio_messages.message(path, signature, 8000)
    assert message['samples'].dtype == np.float32 and message['samples'].shape == (1, 4000)
    assert message['sample_length'].dtype == np.int32 and message['sample_length'] == [4000]
    np.testing.assert_allclose(
        message['samples'][0] * 32768, audio.read_audio(path, 8000), atol=0.01
    )


# Errors


@pytest.mark.parametrize(
    'options, words',
    [
        (['--model', 'other'], "has no model 'other'"),
        (['--version', '7'], "has no model 'deepspeech' in version 7"),
        (
            ['--signature', 'video'],
            "no signature 'video'; it has audio, features, logits, serving_",
        ),
        (['--signature', 'features'], 'takes input and input_length, which are not audio'),
        (['--model', 'a/b c%'], "has no model 'a/b c%'"),
    ],
)
def test_what_the_server_does_not_have_is_one_line(capsys, address, spoken, options, words):
    status, out, [line] = run(capsys, '--server', address, *options, *spoken)
    assert (status, out) == (1, [])
    assert line.startswith('error: ') and words in line


@pytest.mark.parametrize('form', ['127.0.0.1:%d', 'http://127.0.0.1:%d'])
def test_a_server_that_is_down_is_one_line(capsys, spoken, form):
    address = form % 1  # no server listens on so low a port here
    status, out, [line] = run(capsys, '--server', address, '--retries', 1, *spoken)
    assert (status, out) == (1, [])
    assert line == 'error: no server answers at %s: Connection refused (2 attempts)' % address


def test_the_wrong_port_is_one_line(capsys, running, spoken):
    for address in ('http://' + running.grpc, running.rest.removeprefix('http://')):
        status, out, [line] = run(capsys, '--server', address, '--retries', 0, *spoken)
        assert (status, out) == (1, [])
        assert line.startswith('error: no server answers at %s: ' % address)


def test_a_message_too_large_for_the_client_is_named_with_the_option(capsys, address, spoken):
    status, out, err = run(capsys, '--server', address, '--max-message-mb', 0.03, *spoken)
    assert status == 1
    large = [path for path in spoken if os.path.getsize(path) > 0.03 * 2**20]
    assert large and len(err) > len(large) and len(out) == len(spoken) - len(err) + 1
    for line in err[:-1]:
        assert 'is larger than the limit of 0.03 MB (--max-message-mb)' in line


@PROTOCOLS
def test_a_message_too_large_for_the_server_is_named_with_its_size(
    capsys, strict, protocol, tmp_path
):
    path = write_wav(tmp_path / 'long.wav', speech(4))
    status, out, [line] = run(capsys, '--server', getattr(strict, protocol), path)
    assert (status, out) == (1, [])
    size, known = {'rest': ('0.16', ';'), 'grpc': ('0.12', ', which takes at most 0.06 MB;')}[
        protocol
    ]
    words = 'error: %s: a message of %s MB is too large for the server%s' % (path, size, known)
    assert line.startswith(words)


@PROTOCOLS
def test_a_server_that_is_too_slow_is_given_up(capsys, strict, spoken, protocol):
    arguments = ['--server', getattr(strict, protocol), '--timeout', 0.4]
    status, out, [line] = run(capsys, *arguments, next(iter(spoken)))
    assert (status, out) == (1, [])
    assert line.endswith(': no answer within 0.4 s (--timeout)')


def test_without_the_optional_package_grpc_says_how_to_install_it(capsys, monkeypatch, running):
    for name in [each for each in sys.modules if each.startswith('tensorflow_serving')]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, 'tensorflow_serving', None)
    status, out, [line] = run(capsys, '--server', running.grpc, 'a.wav')
    assert (status, out) == (1, [])
    assert 'pip install -r requirements-serving.txt' in line and 'use REST' in line


@pytest.mark.parametrize(
    'options',
    [
        [],
        ['--jobs', '0', 'a.wav'],
        ['--timeout', '-1', 'a.wav'],
        ['--timeout', 'nan', 'a.wav'],
        ['--retries', '-1', 'a.wav'],
        ['--version', 'x', 'a.wav'],
        ['--max-message-mb', '4000', 'a.wav'],
        ['--server', 'ftp://host', 'a.wav'],
    ],
)
def test_bad_options_are_refused(capsys, options):
    with pytest.raises(SystemExit) as ended:
        client.main(options)
    assert ended.value.code == 2
    assert 'error: ' in capsys.readouterr().err


# What is repeated


class Clock:
    """Time that passes only while the code sleeps."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


def failing(times, retry=True):
    """A request that fails so many times, and notes how much time it was given."""
    left = itertools.count(times, -1)
    given = []

    def request(left_s):
        given.append(left_s)
        if next(left) > 0:
            raise ServerError('not now', retry)
        return 'text'

    return request, given


def test_pauses_grow_and_are_partly_random():
    clock = Clock()
    request, given = failing(8)
    assert retrying.call(request, 100.0, 8, clock.sleep, clock) == 'text'
    longest = [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    for pause, limit in zip(clock.pauses, longest, strict=True):
        assert limit / 2 <= pause <= limit
    assert len({pause / limit for pause, limit in zip(clock.pauses, longest)}) > 1
    assert given[0] == 100 and given[-1] == pytest.approx(100 - sum(clock.pauses))


@pytest.mark.parametrize(
    'retry, retries, timeout_s, attempts, message',
    [
        (True, 2, 100.0, 3, 'not now (3 attempts)'),
        (True, 0, 100.0, 1, 'not now'),
        (False, 5, 100.0, 1, 'not now'),
        (True, 50, 2.0, None, 'not now ('),
    ],
)
def test_what_may_not_be_repeated_is_not(retry, retries, timeout_s, attempts, message):
    clock = Clock()
    request, given = failing(1000, retry)
    with pytest.raises(ServerError) as error:
        retrying.call(request, timeout_s, retries, clock.sleep, clock)
    assert str(error.value).startswith(message)
    assert attempts is None or len(given) == attempts
    assert clock.now < timeout_s


def test_an_answer_that_comes_too_late_is_told_with_the_whole_time():
    clock = Clock()
    errors = iter([server.busy('not now'), server.no_answer_in_time(59.9)])

    def request(left_s):
        raise next(errors)

    with pytest.raises(ServerError, match=r'^no answer within 60 s \(--timeout\) \(2 attempts\)$'):
        retrying.call(request, 60.0, 5, clock.sleep, clock)


@contextlib.contextmanager
def http_server(answers):
    """The address of a server that gives each request the next (status, body)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers['Content-Length']))
            self.do_GET()

        def do_GET(self):
            status, body = next(answers)
            self.send_response(status)
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    listening = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield 'http://127.0.0.1:%d' % listening.server_address[1]
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


METADATA = json.dumps(
    {
        'metadata': {
            'signature_def': {
                'signature_def': {
                    'audio': {'inputs': {'audio_bytes': {}}, 'outputs': {'transcripts': {}}}
                }
            }
        }
    }
).encode()
GOOD = json.dumps({'outputs': {'transcripts': ['two'], 'seconds': [0.5]}}).encode()


@pytest.fixture
def quickly(monkeypatch):
    """Lets requests be repeated at once."""
    monkeypatch.setattr(retrying, 'FIRST_PAUSE_S', 0.001)


@pytest.mark.parametrize('status', [429, 502, 503, 504])
def test_what_http_says_may_be_repeated_is(capsys, quickly, spoken, status):
    [path, *_] = spoken
    answers = iter([(status, b'<html>'), (200, METADATA), *[(status, b'{}')] * 3, (200, GOOD)])
    with http_server(answers) as address:
        assert run(capsys, '--server', address, path) == (0, ['%s\ttwo' % path], [])


@pytest.mark.parametrize(
    'status, body, words',
    [
        (
            400,
            b'{"error": "assertion failed: [no audio]\\n\\t [[node]]"}',
            'refused it: assertion failed: [no audio]',
        ),
        (413, b'<html>', 'a message of 0.02 MB is too large for the server'),
        (404, b'{"error": "Servable not found for request: Latest(deepspeech)"}', 'has no model'),
        (404, b'<html>', 'is not the REST port of a model server: HTTP status 404'),
        (302, b'', 'is not the REST port of a model server: HTTP status 302'),
        (200, b'<html>', 'is not the REST port of a model server: HTTP status 200'),
        (200, b'{"predictions": []}', 'is not the REST port of a model server'),
    ],
)
def test_other_answers_of_http_are_not_repeated(capsys, quickly, spoken, status, body, words):
    answers = iter([(200, METADATA), (status, body)])
    with http_server(answers) as address:
        status, out, [line] = run(capsys, '--server', address, next(iter(spoken)))
    assert (status, out) == (1, [])
    assert words in line and 'attempts' not in line


def test_an_answer_that_stops_half_way_is_given_up(capsys, quickly, spoken):
    with contextlib.closing(socket.create_server(('127.0.0.1', 0))) as listening:

        def answer():
            connection, _ = listening.accept()
            connection.recv(1 << 16)
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{')
            connection.recv(1)  # until the client closes it
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        address = 'http://127.0.0.1:%d' % listening.getsockname()[1]
        status, out, [line] = run(capsys, '--server', address, '--timeout', 0.5, next(iter(spoken)))
        thread.join()
    assert (status, out) == (1, [])
    assert line == 'error: no answer within 0.5 s (--timeout)'


class Flaky(prediction_service_pb2_grpc.PredictionServiceServicer):
    """A PredictionService whose predictions fail with the next of the statuses."""

    def __init__(self, statuses):
        self._statuses = iter(statuses)

    def GetModelMetadata(self, request, context):
        found = get_model_metadata_pb2.SignatureDefMap()
        found.signature_def['audio'].inputs['audio_bytes'].dtype = tf.string.as_datatype_enum
        found.signature_def['audio'].outputs['transcripts'].dtype = tf.string.as_datatype_enum
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata['signature_def'].Pack(found)
        return response

    def Predict(self, request, context):
        status = next(self._statuses)
        if status:
            context.abort(*status)
        response = predict_pb2.PredictResponse()
        response.outputs['transcripts'].CopyFrom(tf.make_tensor_proto([b'two']))
        return response


@contextlib.contextmanager
def grpc_server(statuses):
    """The address of a server whose predictions fail with these statuses, then succeed."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        listening = grpc.server(pool)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            Flaky([*statuses, None]), listening
        )
        port = listening.add_insecure_port('127.0.0.1:0')
        listening.start()
        try:
            yield '127.0.0.1:%d' % port
        finally:
            listening.stop(None).wait()


FULL = 'The batch scheduling queue to which this task was submitted is full'
Code = grpc.StatusCode


def test_what_grpc_says_may_be_repeated_is(capsys, quickly, spoken):
    statuses = [(Code.UNAVAILABLE, 'starting'), *[(Code.RESOURCE_EXHAUSTED, FULL)] * 3]
    [path, *_] = spoken
    with grpc_server(statuses) as address:
        assert run(capsys, '--server', address, path) == (0, ['%s\ttwo' % path], [])


@pytest.mark.parametrize(
    'status, words',
    [
        (
            (Code.INVALID_ARGUMENT, '{{function_node f}} Header mismatch\n\t [[{{node d}}]]'),
            'the server refused it: Header mismatch',
        ),
        ((Code.NOT_FOUND, 'Servable not found for request: Latest(deepspeech)'), 'has no model'),
        ((Code.FAILED_PRECONDITION, 'Serving signature key "audio" not found.'), 'no signature'),
        ((Code.UNIMPLEMENTED, ''), 'is not the gRPC port of a model server'),
        ((Code.RESOURCE_EXHAUSTED, 'Received message larger than max (90 vs. 80)'), 'too large'),
        ((Code.INTERNAL, ''), 'the server refused it: it gives no reason'),
    ],
)
def test_other_statuses_of_grpc_are_not_repeated(capsys, quickly, spoken, status, words):
    with grpc_server([status]) as address:
        status, out, [line] = run(capsys, '--server', address, next(iter(spoken)))
    assert (status, out) == (1, [])
    assert words in line and 'attempts' not in line


def test_a_server_that_stays_full_is_given_up(capsys, quickly, spoken):
    with grpc_server([(Code.RESOURCE_EXHAUSTED, FULL)] * 9) as address:
        status, _, [line] = run(capsys, '--server', address, '--retries', 3, next(iter(spoken)))
    assert status == 1
    assert line.endswith('the server is busy: %s (4 attempts)' % FULL)
