"""An exported model in the stand-in for a model server: every signature, odd and bad requests,
joined requests, warm-up; and saved_model_cli."""

import concurrent.futures
import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

import serving_helpers
from helpers import RATE, PROJECT, speech, write_wav
from runs import run_forked
from util import audio
from util.serving import audio_messages

serving_helpers.needs_api()

import grpc  # noqa: E402
import requests  # noqa: E402
import serving_load  # noqa: E402
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc  # noqa: E402
from util.tf1 import tf  # noqa: E402

N_FEATURES = 26 * 5  # of serving_helpers.export_small
LIMIT_S = 30  # of a request
JOIN_S = 20.0  # that a request waits for another to be joined with, if the batch is not full
ROW_OUTPUTS = {  # of which every one has a row for each utterance
    'features': {'transcripts', 'log_probabilities', 'labels'},
    'logits': {'logits', 'output_length'},
    'audio': {'transcripts', 'log_probabilities', 'seconds'},
    'waveform': {'transcripts', 'log_probabilities', 'seconds'},
}
NOT_ROWS = {'serving_default': {'outputs'}, 'with_length': {'outputs'}}  # the notebook's


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    """Folder with version 1 of a small model."""
    folder = tmp_path_factory.mktemp('served') / 'export'
    serving_helpers.export_small(folder)
    return folder


@pytest.fixture(scope='module')
def running(exported):
    """The stand-in that serves it, each request by itself."""
    with serving_helpers.serving(exported, exported.parent / 'log') as found:
        yield found


@pytest.fixture(scope='module')
def joining(exported):
    """The stand-in that joins two requests; it has no warm-up, whose requests come one by one."""
    folder = exported.parent / 'without_warm_up'
    shutil.copytree(exported, folder)
    (folder / '1' / 'assets.extra' / 'tf_serving_warmup_requests').unlink()
    import served_model

    batching = served_model.Batching(max_batch_size=2, batch_timeout_micros=round(JOIN_S * 1e6))
    with serving_helpers.serving(folder, exported.parent / 'log2', batching=batching) as found:
        yield found


def predict(server, signature, **inputs):
    """{name: array} of the outputs; grpc.RpcError for an error."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = 'deepspeech'
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    with grpc.insecure_channel(server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        outputs = stub.Predict(request, LIMIT_S).outputs
    return {name: tf.make_ndarray(value) for name, value in outputs.items()}


def refusal(server, signature, **inputs):
    """(name of the status, message) of a request that must fail; the server must go on."""
    with pytest.raises(grpc.RpcError) as error:
        predict(server, signature, **inputs)
    assert 'transcripts' in predict(server, 'audio', audio_bytes=[wav(0.3)])
    return error.value.code().name, error.value.details()


def together(*calls):
    """The outcomes of calls that begin at the same time: results or exceptions."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    return [each.exception() or each.result() for each in futures]


def wav(seconds, seed=0, rate=RATE):
    return audio_messages.encode_wav(speech(seconds, seed, rate), rate)


def windows(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int32)


def features(n_utterances, n_steps, seed=1):
    values = np.random.default_rng(seed).normal(size=(n_utterances, n_steps, N_FEATURES))
    return {
        'input': values.astype(np.float32),
        'input_length': np.full(n_utterances, n_steps, np.int32),
    }


def waveform(*samples):
    """Inputs of the signature of int16 samples [n], padded as the model server pads what it joins:
    with the first value of each."""
    longest = max(map(len, samples))
    padded = [np.pad(each, (0, longest - len(each)), constant_values=each[0]) for each in samples]
    return {'samples': np.float32(padded) / 32768, 'sample_length': ints(*map(len, samples))}


# Good requests


@pytest.mark.parametrize('count', [1, 2, 3])
def test_every_output_has_a_row_for_each_utterance(running, count):
    both = features(count, 40)
    answers = {
        'features': predict(running, 'features', **both),
        'logits': predict(running, 'logits', **both),
        'audio': predict(running, 'audio', audio_bytes=[wav(0.3 + i / 5) for i in range(count)]),
        'waveform': predict(running, 'waveform', **waveform(*[speech(0.4)] * count)),
        'serving_default': predict(running, 'serving_default', input=both['input']),
        'with_length': predict(running, 'with_length', **both),
    }
    for signature, outputs in ROW_OUTPUTS.items():
        assert set(answers[signature]) == outputs
        assert {len(value) for value in answers[signature].values()} == {count}
    for signature in NOT_ROWS:
        assert answers[signature]['outputs'].shape[:2] == (1, count)


def test_the_signatures_agree(running, tmp_path):
    path = write_wav(tmp_path / 'one.wav', speech(1.0))
    one = audio.audiofile_to_input_vector(path, 26, 2)[None]
    by_features = predict(running, 'features', input=one, input_length=ints(one.shape[1]))
    by_file = predict(running, 'audio', audio_bytes=[open(path, 'rb').read()])
    by_samples = predict(running, 'waveform', **waveform(speech(1.0)))
    default = predict(running, 'serving_default', input=one)
    np.testing.assert_array_equal(default['outputs'][0], by_features['labels'])
    assert by_features['transcripts'] == by_file['transcripts'] == by_samples['transcripts']
    assert len(by_file['transcripts'][0]) > 3
    assert by_file['seconds'] == by_samples['seconds'] == [1.0]


@pytest.mark.parametrize('signature', ['features', 'waveform', 'audio'])
def test_an_utterance_among_longer_ones_is_as_it_would_be_alone(running, signature):
    lengths = (0.3, 1.2, 0.7)
    spoken = [speech(seconds, seed) for seed, seconds in enumerate(lengths)]
    if signature == 'audio':
        files = [audio_messages.encode_wav(each, RATE) for each in spoken]
        inputs = {'audio_bytes': files}
        single = [{'audio_bytes': [each]} for each in files]
    elif signature == 'waveform':
        inputs, single = waveform(*spoken), [waveform(each) for each in spoken]
    else:
        single = [features(1, n_steps, seed) for seed, n_steps in enumerate((12, 50, 33))]
        padded = [
            np.pad(
                each['input'][0],
                [(0, 50 - each['input'].shape[1]), (0, 0)],
                constant_values=each['input'][0, 0, 0],
            )
            for each in single
        ]
        inputs = {'input': np.stack(padded), 'input_length': ints(12, 50, 33)}
    joint = predict(running, signature, **inputs)
    for row, alone in enumerate(single):
        expected = predict(running, signature, **alone)
        for name in ('transcripts', 'log_probabilities'):
            if name == 'transcripts':
                assert joint[name][row] == expected[name][0]
            else:
                np.testing.assert_allclose(joint[name][row], expected[name][0], rtol=1e-5)


def test_only_the_outputs_that_are_asked_for_come(running):
    request = predict_pb2.PredictRequest(output_filter=['transcripts'])
    request.model_spec.name, request.model_spec.signature_name = 'deepspeech', 'audio'
    request.inputs['audio_bytes'].CopyFrom(tf.make_tensor_proto([wav(0.3)]))
    with grpc.insecure_channel(running.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(request, LIMIT_S)
        assert list(response.outputs) == ['transcripts']
        assert response.model_spec.version.value == 1
        request.output_filter.append('words')
        with pytest.raises(grpc.RpcError, match='output tensor alias not found in signature: word'):
            stub.Predict(request, LIMIT_S)


# Odd requests (each is an error for itself: the server goes on)


@pytest.mark.parametrize(
    'signature, inputs, words',
    [
        ('features', {'input': windows(1, 9, N_FEATURES)}, 'Missing but required: {input_length}'),
        ('audio', {'content': [b'']}, 'input tensor alias not found in signature: content'),
        (
            'serving_default',
            {'input': windows(1, 9, N_FEATURES), 'more': ints(1)},
            'Sent extra: {more}',
        ),
        (
            'serving_default',
            {'input': np.zeros([1, 9, N_FEATURES])},
            'actual double vs. expect float',
        ),
        (
            'features',
            {'input': windows(1, 9, N_FEATURES), 'input_length': np.array([9])},
            'actual int64 vs. expect int32',
        ),
        ('audio', {'audio_bytes': windows(1)}, 'actual float vs. expect string'),
        ('waveform', {'samples': ints([1, 2]), 'sample_length': ints(2)}, 'actual int32 vs. exp'),
    ],
)
def test_inputs_of_another_kind_are_refused(running, signature, inputs, words):
    code, message = refusal(running, signature, **inputs)
    assert code == 'INVALID_ARGUMENT'
    assert words in message


@pytest.mark.parametrize(
    'signature, inputs',
    [
        ('features', {'input': windows(1, 9, 129), 'input_length': ints(9)}),
        # as many values as 129 steps of the right width
        ('features', {'input': windows(1, 130, 129), 'input_length': ints(5)}),
        ('serving_default', {'input': windows(1, 130, 129)}),
        ('serving_default', {'input': windows(9, N_FEATURES)}),
        ('features', {'input': windows(9, N_FEATURES), 'input_length': ints(*[1] * 9)}),
        ('features', {'input': windows(1, 9, N_FEATURES, 1), 'input_length': ints(9)}),
        ('features', {'input': windows(1, 9, N_FEATURES), 'input_length': ints([9])}),
        ('features', {'input': windows(1, 9, N_FEATURES), 'input_length': np.int32(9)}),
        ('waveform', {'samples': windows(5000), 'sample_length': ints(5000)}),
        ('waveform', {'samples': windows(1, 5000, 1), 'sample_length': ints(5000)}),
        ('waveform', {'samples': windows(1, 5000), 'sample_length': np.int32(5000)}),
        ('audio', {'audio_bytes': wav(0.3)}),
        ('audio', {'audio_bytes': [[wav(0.3)]]}),
    ],
)
def test_inputs_of_another_shape_are_refused(running, signature, inputs):
    # a model server does not compare shapes, so that the graph has to
    code, _ = refusal(running, signature, **inputs)
    assert code == 'INVALID_ARGUMENT'


INFINITE = windows(2, 9, N_FEATURES)
INFINITE[1, 8, 3] = np.inf


@pytest.mark.parametrize('signature', ['features', 'with_length', 'logits'])
@pytest.mark.parametrize(
    'values, lengths, words',
    [
        (windows(2, 9, N_FEATURES), ints(10, 9), 'from 1 to the steps'),
        (windows(2, 9, N_FEATURES), ints(9, 0), 'from 1 to the steps'),
        (windows(2, 9, N_FEATURES), ints(-4, 9), 'from 1 to the steps'),
        (windows(2, 9, N_FEATURES), ints(9), 'a length for each utterance'),
        (windows(2, 9, N_FEATURES), ints(9, 9, 9), 'a length for each utterance'),
        (windows(0, 9, N_FEATURES), ints(), 'at least one step'),
        # both are wrong, and the graph checks them side by side
        (windows(2, 0, N_FEATURES), ints(0, 0), 'at least one step|from 1 to the steps'),
        (INFINITE, ints(9, 9), 'finite'),
    ],
)
def test_features_that_cannot_be_are_refused(running, signature, values, lengths, words):
    code, message = refusal(running, signature, input=values, input_length=lengths)
    assert code == 'INVALID_ARGUMENT'
    assert re.search(words, message)


@pytest.mark.parametrize('shape', [(0, 9, N_FEATURES), (2, 0, N_FEATURES)])
def test_an_empty_batch_is_refused_without_lengths_too(running, shape):
    assert refusal(running, 'serving_default', input=windows(*shape))[0] == 'INVALID_ARGUMENT'


SILENCE = np.zeros([2, 5000], np.float32)
NAN = SILENCE.copy()
NAN[1, 17] = np.nan


@pytest.mark.parametrize(
    'values, lengths, words',
    [
        (NAN, ints(5000, 5000), 'finite'),
        (SILENCE, ints(5000, 0), '400 samples'),
        (SILENCE, ints(-1, 5000), '400 samples'),
        (SILENCE, ints(5000), 'a length for each'),
        (SILENCE[:0], ints(), 'one utterance or more'),
        (SILENCE[:, :0], ints(0, 0), '400 samples'),
        (SILENCE, ints(5000, 5001), 'larger than samples has'),
    ],
)
def test_samples_that_cannot_be_are_refused(running, values, lengths, words):
    code, message = refusal(running, 'waveform', samples=values, sample_length=lengths)
    assert code == 'INVALID_ARGUMENT'
    assert words in message


RUBBISH = serving_helpers.rubbish()


@pytest.mark.parametrize('content, words', RUBBISH, ids=[words for _, words in RUBBISH])
def test_what_is_not_audio_is_refused_and_never_text(running, content, words):
    code, message = refusal(running, 'audio', audio_bytes=[content])
    assert code == 'INVALID_ARGUMENT' and words in message
    with pytest.raises(grpc.RpcError, match=re.escape(words)):
        predict(running, 'audio', audio_bytes=[wav(0.5), content])


# REST


def post(server, body, path=':predict', data=None):
    """(HTTP status, JSON value) of a request to the model."""
    response = requests.post(
        server.rest + '/v1/models/deepspeech' + path,
        data=data if data is not None else json.dumps(body),
        timeout=LIMIT_S,
    )
    return response.status_code, response.json()


def b64(content):
    return {'b64': base64.b64encode(content).decode()}


def test_rest_answers_by_row_and_by_column(running):
    files = [wav(0.5), wav(0.8, seed=1)]
    expected = predict(running, 'audio', audio_bytes=files)
    texts = [each.decode() for each in expected['transcripts']]
    rows = [{'audio_bytes': b64(each)} for each in files]
    status, answer = post(running, {'signature_name': 'audio', 'instances': rows})
    assert status == 200
    assert [row['transcripts'] for row in answer['predictions']] == texts
    short = {'signature_name': 'audio', 'instances': [b64(each) for each in files]}
    assert post(running, short) == (200, answer)
    status, answer = post(
        running, {'signature_name': 'audio', 'inputs': {'audio_bytes': [b64(e) for e in files]}}
    )
    assert status == 200 and answer['outputs']['transcripts'] == texts
    assert answer['outputs']['seconds'] == pytest.approx(expected['seconds'])
    one = features(1, 20)
    listed = {name: value.tolist() for name, value in one.items()}
    status, answer = post(running, {'signature_name': 'features', 'inputs': listed})
    assert answer['outputs']['labels'] == predict(running, 'features', **one)['labels'].tolist()
    status, answer = post(running, {'instances': listed['input']})
    assert status == 200 and len(answer['predictions']) == 1


@pytest.mark.parametrize(
    'body, words',
    [
        ({}, "Missing 'inputs' or 'instances' key"),
        ([], 'Is not object'),
        ({'instances': []}, "No values in 'instances'"),
        ({'signature_name': 'foo', 'instances': [1]}, 'Serving signature name: "foo" not found'),
        ({'signature_name': 'audio', 'instances': [{'b64': '?'}]}, 'JSON Value'),
        ({'signature_name': 'audio', 'instances': [7]}, 'base64'),
        ({'signature_name': 'audio', 'inputs': {}}, 'Missing named input: audio_bytes'),
        ({'signature_name': 'audio', 'instances': ['text']}, 'Expected RIFF'),
        ({'signature_name': 'features', 'instances': [1]}, 'expecting list of objects'),
        ({'signature_name': 'features', 'instances': [{'input': 1}]}, 'keys must be equal to'),
        ({'instances': [[1.0, 2.0], [3.0]]}, 'JSON Value'),
        ({'instances': [['a']]}, 'is not of expected type: float32'),
    ],
)
def test_bad_json_is_refused(running, body, words):
    status, answer = post(running, body)
    assert status == 400
    assert words in answer['error']


def test_other_http_requests_are_refused(running):
    assert post(running, None, data=b'{')[0] == 400
    assert post(running, None, path=':classify')[1]['error'].startswith('Malformed request: POST')
    assert requests.get(running.rest + '/v1/models/other', timeout=LIMIT_S).status_code == 404
    status = requests.get(running.rest + '/v1/models/deepspeech', timeout=LIMIT_S).json()
    assert status['model_version_status'][0]['state'] == 'AVAILABLE'


# Joined requests


def inputs_of(signature, seed):
    """Inputs that can be joined with those of another seed without padding."""
    if signature == 'audio':
        return {'audio_bytes': [wav(0.3 + 0.4 * seed, seed)]}
    if signature == 'waveform':
        return waveform(speech(0.6, seed))
    both = features(1, 30, seed)
    return both if signature != 'serving_default' else {'input': both['input']}


@pytest.mark.parametrize('signature', sorted(ROW_OUTPUTS))
def test_joined_requests_are_both_answered(running, joining, signature):
    inputs = [inputs_of(signature, seed) for seed in (1, 2)]
    expected = [predict(running, signature, **each) for each in inputs]
    start = time.monotonic()
    got = together(*[lambda each=each: predict(joining, signature, **each) for each in inputs])
    assert time.monotonic() - start < JOIN_S  # alone, each would have waited so long
    for answer, alone in zip(got, expected):
        assert set(answer) == ROW_OUTPUTS[signature]
        for name, value in alone.items():
            if name == 'labels':  # padded to the longest of all that were joined
                np.testing.assert_array_equal(answer[name][0, : value.shape[1]], value[0])
                assert (answer[name][0, value.shape[1] :] == -1).all()
            elif value.dtype == object:
                assert answer[name].tolist() == value.tolist()
            else:
                np.testing.assert_allclose(answer[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('signature', sorted(NOT_ROWS))
def test_the_notebooks_outputs_cannot_be_joined(joining, signature):
    calls = [lambda: predict(joining, signature, **inputs_of(signature, 1))] * 2
    for error in together(*calls):
        assert error.code().name == 'FAILED_PRECONDITION'
        assert "Batched output tensor's 0th dimension does not equal the sum" in error.details()


def test_features_of_unequal_lengths_are_not_joined_without_padding(joining):
    calls = [lambda n=n: predict(joining, 'features', **features(1, n)) for n in (20, 21)]
    for error in together(*calls):
        assert error.code().name == 'INVALID_ARGUMENT'
        assert 'Dimensions of inputs should match' in error.details()


def test_requests_that_are_joined_with_rubbish_share_its_error(joining):
    good = lambda: predict(joining, 'audio', audio_bytes=[wav(0.4)])  # noqa: E731
    bad = lambda: predict(joining, 'audio', audio_bytes=[b'<html>' * 9])  # noqa: E731
    for error in together(good, bad):
        assert error.code().name == 'INVALID_ARGUMENT'
        assert 'Expected RIFF' in error.details()
    assert not any(isinstance(each, Exception) for each in together(good, good))


# saved_model_cli


def saved_model_cli(arguments):
    """Runs TensorFlow's command line."""
    from tensorflow.python.tools import saved_model_cli

    sys.argv = ['saved_model_cli', *arguments]
    saved_model_cli.main()
    return 0


def cli(folder, *arguments):
    """What `saved_model_cli` prints in a process of its own."""
    done = run_forked(saved_model_cli, list(arguments), folder=folder, environment=dict(os.environ))
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.run
def test_saved_model_cli_shows_every_signature(exported, tmp_path):
    shown = cli(tmp_path, 'show', '--dir', str(exported / '1'), '--all')
    for signature, outputs in {**ROW_OUTPUTS, **NOT_ROWS}.items():
        part = shown.split("signature_def['%s']" % signature)[1].split('signature_def[')[0]
        assert set(re.findall(r"outputs\['(\w+)'\]", part)) == outputs
        assert 'Method name is: tensorflow/serving/predict' in part


@pytest.mark.parametrize('signature', sorted({**ROW_OUTPUTS, **NOT_ROWS}))
def test_saved_model_cli_runs_every_signature(running, exported, tmp_path, signature):
    inputs = inputs_of(signature, 1)
    for name, value in inputs.items():
        value = np.array(value, object) if name == 'audio_bytes' else value
        np.save(tmp_path / (name + '.npy'), value, allow_pickle=True)
    given = ';'.join('%s=%s' % (name, tmp_path / (name + '.npy')) for name in inputs)
    arguments = ['run', '--dir', str(exported / '1'), '--tag_set', 'serve']
    arguments += ['--signature_def', signature, '--inputs', given, '--outdir', str(tmp_path)]
    cli(tmp_path, *arguments)
    for name, value in predict(running, signature, **inputs).items():
        got = np.load(tmp_path / (name + '.npy'), allow_pickle=True)
        if value.dtype == object:
            assert got.tolist() == value.tolist()
        else:
            np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)


# The README's commands


def readme_block(start):
    """The commands of the README's section on serving that begin so."""
    text = pathlib.Path(PROJECT, 'util', 'README.md').read_text(encoding='utf-8')
    section = text.split('\n## Serving\n')[1].split('\n## ')[0]
    blocks = re.findall(r'```\w+\n(.*?)```', section, re.S)
    [block] = [each for each in blocks if each.startswith(start)]
    return block


def test_the_readmes_requests_are_answered(running, tmp_path, capsys, monkeypatch):
    path = write_wav(tmp_path / 'one.wav', speech(1.0))
    text = predict(running, 'audio', audio_bytes=[open(path, 'rb').read()])['transcripts'][0]
    monkeypatch.chdir(tmp_path)
    code = readme_block('import grpc').replace('localhost:8500', running.grpc)
    exec(compile(code, 'README.md', 'exec'), {})
    assert capsys.readouterr().out == text.decode() + '\n'
    if not shutil.which('curl'):
        pytest.skip('there is no curl')
    commands = readme_block('.venv/bin/python -m util.tools.client')
    command = 'printf' + commands.partition('printf')[2]
    command = command.replace('http://localhost:8501', running.rest)
    done = subprocess.run(['sh', '-c', command], capture_output=True, text=True, timeout=LIMIT_S)
    assert json.loads(done.stdout)['predictions'][0]['transcripts'] == text.decode()


@pytest.mark.parametrize('joined', [[], ['--batching']], ids=['alone', 'joined'])
@pytest.mark.run
def test_under_load_every_answer_is_right_or_a_clear_error(tmp_path, joined):
    arguments = ['--seconds', '5', '--work-dir', str(tmp_path), *joined]
    assert serving_load.main(arguments) == 0
