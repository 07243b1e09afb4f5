"""The second search at its four places: the test of a run, transcribe, the client, and the network
that they share."""

import json
import logging
import re

import numpy as np
import pytest

import serving_helpers
from helpers import speech, write_wav
from runs import newest_hyper, run_deepspeech
from util import text
from util.language import decoder as decoders
from util.language.decoder import Hypothesis, LanguageSettings
from util.recognition import models, second_search
from util.recognition.network import Network, Recognised
from util.tools import client, transcribe

pytest.importorskip('flashlight.lib.text', reason='flashlight-text is not installed')

ALPHABET = text.Alphabet()
WORDS = ('oh', 'yes', 'no')


@pytest.fixture(scope='module')
def export(tmp_path_factory):
    """Folder with version 1 of a small model with random weights."""
    folder = tmp_path_factory.mktemp('second') / 'export'
    serving_helpers.export_small(folder)
    return folder


@pytest.fixture(scope='module')
def words(tmp_path_factory):
    """Path of a file with WORDS."""
    path = tmp_path_factory.mktemp('words') / 'words'
    path.write_text('\n'.join(WORDS))
    return path


@pytest.fixture(scope='module')
def recording(tmp_path_factory):
    return write_wav(tmp_path_factory.mktemp('recording') / 'a.wav', speech(1.3, seed=1))


@pytest.fixture(scope='module')
def expected(export, words, recording):
    """The Hypothesis of the recording, by the parts of which the tools are made."""
    network = models.open_model(str(export), models.Tools(None, None, None))
    (recognised,) = network.recognise([network.features(speech(1.3, seed=1).astype(float))])
    wanted = LanguageSettings(lexicon=str(words))
    found = decoders.make_decoder(wanted, ALPHABET).search(recognised.logits)
    assert found.text and set(found.text.split()) <= set(WORDS)
    return found


class StandIn(Network):
    """A network whose features are its logits."""

    alphabet, sample_rate, step_s, gives_logits = ALPHABET, 8000, 0.02, True

    def features(self, samples):
        return samples

    def recognise(self, features):
        return [Recognised([1], logits) for logits in features]


class NoDecoder:
    """A decoder that finds the number of time steps."""

    def search(self, logits):
        return Hypothesis('abc'[: len(logits)], 0.0)


def test_the_labels_of_a_network_become_those_of_the_decoder():
    network = second_search.SearchedNetwork(StandIn(), NoDecoder())
    assert (network.sample_rate, network.step_s, network.alphabet) == (8000, 0.02, ALPHABET)
    batch = [np.zeros([n, 29], np.float32) for n in (2, 3)]
    found = network.recognise([network.features(each) for each in batch])
    assert [each.labels for each in found] == [[1, 2], [1, 2, 3]]
    assert [len(each.logits) for each in found] == [2, 3]


@pytest.fixture(autouse=True)
def loggers():
    """Leaves the loggers as they were; transcribe sets them up for its messages."""
    both = [logging.getLogger(name) for name in (None, 'tensorflow')]
    kept = [(logger, logger.level, logger.handlers[:]) for logger in both]
    yield
    for logger, level, handlers in kept:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def transcribed(capsys, *arguments):
    """(exit status, standard output, standard error) of transcribe."""
    status = transcribe.main([str(each) for each in arguments])
    return status, *capsys.readouterr()


@pytest.mark.run
def test_transcribe_writes_the_text_and_the_times_of_its_words(
    export, words, recording, expected, capsys
):
    status, out, _ = transcribed(capsys, export, recording, '--lexicon', words, '--json')
    found = json.loads(out)
    assert status == 0 and found['text'] == expected.text
    assert [word['word'] for word in found['words']] == expected.text.split()
    times = [time for word in found['words'] for time in (word['start'], word['end'])]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= 1.3


@pytest.mark.run
def test_transcribe_searches_each_part_of_a_long_recording(export, words, tmp_path, capsys):
    path = write_wav(tmp_path / 'long.wav', speech(27, seed=2))
    status, out, _ = transcribed(capsys, export, path, '--lexicon', words, '--lm-beta', -1)
    assert status == 0 and set(out.split('\t')[1].split()) <= set(WORDS)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (['--lm', 'none'], 'ds_lm: cannot read none'),
        (['--lm-alpha', 1], '--lm-alpha has no use without --lm, --lexicon or --grammar'),
    ],
)
def test_transcribe_with_options_that_cannot_be_used(export, recording, capsys, options, message):
    status, out, err = transcribed(capsys, export, recording, *options)
    assert (status, out) == (1, '') and err.count('\n') == 1 and message in err


@pytest.fixture(scope='module')
def running(export):
    """The stand-in for a model server."""
    serving_helpers.needs_api()
    with serving_helpers.serving(export, export.parent / 'log') as found:
        yield found


@pytest.mark.run
@pytest.mark.parametrize('protocol', ('grpc', 'rest'))
def test_the_client_finds_the_text_of_the_logits(
    running, export, words, recording, expected, capsys, protocol
):
    description = export / '1' / 'assets.extra' / 'model.json'
    server = ['--server', getattr(running, protocol)]
    options = ['--lexicon', words, '--description', description, '--json']
    status = client.main([str(each) for each in (*server, *options, recording)])
    found = json.loads(capsys.readouterr().out)
    assert status == 0 and found['text'] == expected.text
    assert found['score'] == pytest.approx(expected.score, abs=0.01)


@pytest.mark.run
@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (['--lexicon', 'WORDS'], '--lm, --lexicon and --grammar need --description FILE'),
        (['--description', 'DESCRIPTION'], '--description has no use without --lm'),
        (['--lexicon', 'WORDS', '--description', 'none'], 'none cannot be read: No such file'),
        (['--lexicon', 'WORDS', '--description', 'WORDS'], 'is not the assets.extra/model.json'),
        (
            ['--lexicon', 'WORDS', '--description', 'DESCRIPTION', '--signature', 'audio'],
            "signature 'audio' gives no logits",
        ),
    ],
)
def test_the_client_with_options_that_cannot_be_used(
    running, export, words, recording, capsys, options, message
):
    paths = {'WORDS': words, 'DESCRIPTION': export / '1' / 'assets.extra' / 'model.json'}
    options = [str(paths.get(each, each)) for each in options]
    assert client.main(['--server', running.rest, *options, recording]) == 1
    err = capsys.readouterr().err
    assert err.startswith('error: ') and message in err and err.count('\n') == 1


@pytest.mark.run
def test_a_run_reports_both_searches_of_the_test(corpus):
    (corpus / 'words').write_text('fine\nweather\nlast\none\n')
    run = run_deepspeech(corpus, epochs=1, lm_lexicon='words', lm_beta=2)
    assert run.returncode == 0, run.stdout
    lines = run.stdout.splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith('Test: loss ')]
    pattern = r' {6}with the lexicon: WER ([\d.]+)% \[.*\], CER ([\d.]+)%'
    figures = re.fullmatch(pattern, lines[at + 1])
    results = newest_hyper(corpus)['results']
    for name, shown in zip(('test_wer_lm', 'test_cer_lm'), figures.groups()):
        assert 100 * results[name] == pytest.approx(float(shown), abs=0.006)
    assert results['test_wer'] is not None
    (report,) = [line for line in lines if line.startswith('Test, second search, CER: ')]
    assert float(report.rpartition(' ')[2]) == pytest.approx(results['test_wer_lm'], abs=1e-6)
    assert run.stdout.count('second search') == 1  # neither the training nor the validation


@pytest.mark.run
def test_a_file_that_cannot_be_used_stops_a_run_before_training(corpus):
    (corpus / 'words').write_text('1\n2\n')
    run = run_deepspeech(corpus, lm_lexicon='words')
    assert run.returncode == 1 and 'Epoch' not in run.stdout and 'Traceback' not in run.stdout
    assert 'error: ds_lm_lexicon: words has no word of the alphabet' in run.stdout
