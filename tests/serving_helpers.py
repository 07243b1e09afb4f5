"""What tests of serving share: small exported models, the stand-in in a process of its own."""

import contextlib
import io
import multiprocessing.forkserver
import os
import pathlib
import struct
import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
import soundfile

import runs
from helpers import RATE, load_config, speech
from util import text
from util.serving import audio_messages
from util.tf1 import tf

START_LIMIT_S = 120  # s for a server to load its first version
STOP_LIMIT_S = 30
NEEDED = 'tensorflow-serving-api is not installed (requirements-serving.txt)'


class Server(NamedTuple):
    """A stand-in that runs."""

    pid: int
    port: int  # of gRPC
    rest_port: int
    log: pathlib.Path

    @property
    def grpc(self) -> str:
        """Its address for gRPC."""
        return '127.0.0.1:%d' % self.port

    @property
    def rest(self) -> str:
        """Its address for REST."""
        return 'http://127.0.0.1:%d' % self.rest_port

    def resident_mb(self) -> float:
        """Megabytes of memory that it has now."""
        status = pathlib.Path('/proc/%d/status' % self.pid).read_text()
        [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith('VmRSS')]
        return int(kilobytes) / 1024


def needs_api() -> None:
    """Skips a module of tests without the messages of the protocol."""
    pytest.importorskip('tensorflow_serving', reason=NEEDED)


def export_small(folder: str | os.PathLike, seed: int = 3, **values) -> str:
    """Exports a small model with random weights; returns the path of the version."""
    import DeepSpeech

    small = {'n_hidden': 8, 'n_context': 2, 'default_stddev': 0.5, 'beam_width': 10, **values}
    config = load_config(export_dir=folder, **small)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(seed)
        inputs = tf.zeros([1, 1, config.n_features])
        DeepSpeech.BiRNN(inputs, [1], config=config, n_character=text.Alphabet().n_character)
        session.run(tf.global_variables_initializer())
        weights = session.run({v.op.name: v for v in tf.trainable_variables()})
    return DeepSpeech.export(config, text.Alphabet(), weights)


@contextlib.contextmanager
def serving(base_path: str | os.PathLike, log: pathlib.Path, **options) -> Iterator[Server]:
    """Starts the stand-in in a process of its own, which ends with the block, or with this process.

    Args:
      base_path: folder of the versions.
      log: file for what it says.
      options: of model_server.Options, by name.
    """
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        multiprocessing.forkserver.ensure_running()  # it must find what it is to preload
    ours, its = runs.FORKS.Pipe()
    process = runs.FORKS.Process(
        target=_serve, args=(dict(options, base_path=str(base_path)), its, str(log)), daemon=True
    )
    process.start()
    its.close()
    try:
        if not ours.poll(START_LIMIT_S):
            raise TimeoutError('the stand-in did not start: ' + log.read_text())
        try:
            ports = ours.recv()
        except EOFError:
            raise RuntimeError('the stand-in ended: ' + log.read_text()) from None
        yield Server(process.pid, *ports, log)
    finally:
        ours.close()  # which tells it to stop
        process.join(STOP_LIMIT_S)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(options, connection, log):
    """Serves in a forked process until the other end of the connection is closed."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = sys.stderr = os.fdopen(2, 'w', buffering=1, encoding='utf-8', closefd=False)
    import logging

    import model_server

    logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stderr, force=True)
    model_server.served_model.quiet_tensorflow()
    stop = threading.Event()

    def watch():
        with contextlib.suppress(EOFError, OSError):
            connection.recv()  # nothing is ever sent
        stop.set()

    def ready(*ports):
        connection.send(ports)
        threading.Thread(target=watch, daemon=True).start()

    model_server.serve(model_server.Options(**options), ready, stop)


def transcripts(model, contents: list[bytes]) -> list[str]:
    """What a served_model.ServedModel makes of WAV files, each by itself."""
    from tensorflow_serving.apis import predict_pb2

    found = []
    for content in contents:
        request = predict_pb2.PredictRequest()
        request.model_spec.signature_name = 'audio'
        request.inputs['audio_bytes'].CopyFrom(
            tf.make_tensor_proto(np.array([content], dtype=object))
        )
        outputs = model.predict(request).outputs
        found.append(tf.make_ndarray(outputs['transcripts'])[0].decode())
    return found


def rubbish() -> list[tuple[bytes, str]]:
    """(what is not the content of a WAV file of 16-bit PCM with speech, words of the error)."""
    plain = audio_messages.encode_wav(speech(0.5), RATE)

    def encoded(subtype):
        file = io.BytesIO()
        soundfile.write(file, speech(0.5), RATE, format='WAV', subtype=subtype)
        return file.getvalue()

    def promising(n_bytes):
        """A header that promises so many bytes of audio."""
        return plain[:40] + struct.pack('<I', n_bytes) + plain[44:]

    return [
        (b'', 'Data too short'),
        (b'RIFF', 'Data too short'),
        (b'<html>Not found</html>' * 100, 'Expected RIFF'),
        (bytes(range(256)) * 100, 'Expected RIFF'),
        (encoded('PCM_24'), 'received 24'),
        (encoded('FLOAT'), 'Expected 1 (PCM)'),
        (encoded('ULAW'), 'Expected 1 (PCM)'),
        (promising(0xFFFFFFFE), 'too large'),
        (promising(0x7FFFFFFE), 'Data too short'),
        (audio_messages.encode_wav(np.zeros(0), RATE), '400 samples'),
        (audio_messages.encode_wav(speech(0.02), RATE), '400 samples'),
    ]
