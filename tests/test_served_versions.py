"""The stand-in for a model server: it serves the newest complete version, and takes over a new one
while requests run."""

import os
import shutil
import threading
import time

import pytest

import serving_helpers
from helpers import speech, write_wav
from util.serving.server import Model, ServerError
from util.tools import client

serving_helpers.needs_api()

import grpc  # noqa: E402
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc  # noqa: E402
from util.tf1 import tf  # noqa: E402

LIMIT_S = 30  # of a request


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    """Folder with version 1 of a small model."""
    folder = tmp_path_factory.mktemp('served') / 'export'
    serving_helpers.export_small(folder)
    return folder


@pytest.fixture(scope='module')
def other(tmp_path_factory):
    """A version of other weights, to be put beside the first."""
    return serving_helpers.export_small(tmp_path_factory.mktemp('other'), seed=4)


def wait_until(condition, limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.run
def test_a_new_version_takes_over_while_requests_run(exported, other, tmp_path):
    folder = tmp_path / 'export'
    shutil.copytree(exported, folder)
    (folder / '9').mkdir()  # not complete
    (folder / '10').write_text('not a folder')
    (folder / 'notes').mkdir()
    path = write_wav(tmp_path / 'one.wav', speech(0.8))
    stop, seen, errors = threading.Event(), [], []

    def ask(address):
        connection = client.connect(address, 1 << 20)
        while not stop.is_set():
            try:
                message = {'audio_bytes': [open(path, 'rb').read()]}
                answer = connection.predict(Model('deepspeech', None, 'audio'), message, LIMIT_S)
                seen.append((address, answer['transcripts'][0]))
            except ServerError as error:
                errors.append(str(error))
        connection.close()

    with serving_helpers.serving(folder, tmp_path / 'log', poll_s=0.1) as server:
        threads = [
            threading.Thread(target=ask, args=(each,)) for each in (server.grpc, server.rest) * 2
        ]
        for each in threads:
            each.start()
        try:
            wait_until(lambda: len(seen) > 20)
            before = {text for _, text in seen}
            shutil.copytree(other, folder / '.unfinished')
            os.rename(folder / '.unfinished', folder / '11')
            wait_until(lambda: 'version 1 is freed' in server.log.read_text())
            known = len(seen)
            wait_until(lambda: len(seen) > known + 20)
        finally:
            stop.set()
            for each in threads:
                each.join()
        assert not errors
        last = {text for _, text in seen[-10:]}
        assert len(before) == len(last) == 1 and before != last
        assert {text for _, text in seen} == before | last
        connection = client.connect(server.grpc, 1 << 20)
        for version, works in ((11, True), (1, False), (9, False)):
            model = Model('deepspeech', version, 'audio')
            if works:
                assert 'audio' in connection.signatures(model, LIMIT_S)
            else:
                with pytest.raises(ServerError, match='has no model .* in version %d' % version):
                    connection.signatures(model, LIMIT_S)
        connection.close()


@pytest.mark.run
def test_a_version_that_cannot_be_served_leaves_the_one_before(exported, tmp_path):
    folder = tmp_path / 'export'
    shutil.copytree(exported, folder)
    shutil.copytree(exported / '1', folder / '2')
    (folder / '2' / 'saved_model.pb').write_bytes(b'damaged')
    shutil.copytree(exported / '1', folder / '3')
    warm_up = folder / '3' / 'assets.extra' / 'tf_serving_warmup_requests'
    with tf.io.TFRecordWriter(str(warm_up)) as writer:
        from tensorflow_serving.apis import prediction_log_pb2

        record = prediction_log_pb2.PredictionLog()
        record.predict_log.request.model_spec.signature_name = 'audio'
        record.predict_log.request.inputs['audio_bytes'].CopyFrom(tf.make_tensor_proto([b'no']))
        writer.write(record.SerializeToString())
    with serving_helpers.serving(folder, tmp_path / 'log', poll_s=0.1) as server:
        wait_until(lambda: 'serving version' in server.log.read_text())
        with grpc.insecure_channel(server.grpc) as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            request = get_model_status_pb2.GetModelStatusRequest()
            request.model_spec.name = 'deepspeech'
            [status] = stub.GetModelStatus(request, LIMIT_S).model_version_status
        assert status.version == 1 and status.state == status.AVAILABLE
        said = server.log.read_text()
        assert 'version 3 cannot be served' in said and 'version 2 cannot be served' in said
