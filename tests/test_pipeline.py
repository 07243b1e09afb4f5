"""util.recognition.pipeline: order, batches, failures and joints, with a network that tells the
level of each second as a word."""

import threading
import time

import numpy as np
import pytest

from helpers import RATE, write_wav
from util import audio, records, text
from util.recognition import pipeline
from util.recognition.inputs import Task
from util.recognition.network import Network, Recognised
from util.recognition.pipeline import Failure

FRAME = RATE // 100  # samples
QUIETEST = 4  # in thousands


class Levels(Network):
    """Recognises the letter n where the samples of 10 ms have the level 1000*(n + QUIETEST); a
    letter for as long as the level stays, with a space between two. Less than 0.5 s of a level is
    heard as z, and gaps of less than 50 ms are not heard.

    Attributes:
      batches: list of the lengths in each batch, in frames.
    """

    alphabet, sample_rate, step_s, gives_logits = text.Alphabet(), RATE, 0.01, True

    def __init__(self):
        self.batches = []

    def features(self, samples):
        audio.check_length(len(samples), RATE)
        frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
        return np.abs(frames).max(axis=1, keepdims=True).astype(np.float32)

    def recognise(self, features):
        self.batches.append([len(each) for each in features])
        return [self._recognise(np.round(each[:, 0] / 1000).astype(int)) for each in features]

    def _recognise(self, levels):
        levels = levels.copy()
        for i in range(1, len(levels)):
            if not levels[i] and levels[i : i + 5].any():
                levels[i] = levels[i - 1]
        changes = np.flatnonzero(np.diff(levels)) + 1
        labels, path = [], []
        for level in np.split(levels, changes):
            label = level[0] - QUIETEST if len(level) >= 50 else 26
            if not level[0]:
                path += [28] * len(level)
                continue
            if labels:
                labels.append(0)
                path[-1] = 0
            labels.append(label)
            path += [label] * 5 + [28] * (len(level) - 5)
        logits = np.full((len(path), 29), -20, np.float32)
        logits[np.arange(len(path)), path] = 0
        return Recognised([int(label) for label in labels], logits)


def spoken(word, second=1.0):
    """Samples that `Levels` hears as the letters of a word, each for this time, without a pause but
    with gaps of 30 ms, like those within spoken words."""
    times = np.arange(round(second * RATE))
    wave = np.sign(np.sin(times + 0.5)) * (times // FRAME % 8 < 5)
    return np.concatenate([1000 * (ord(char) - 96 + QUIETEST) * wave for char in word])


def tasks_of(folder, **contents):
    """A Task for each name and its samples."""
    return [
        Task(records.Utterance(write_wav(folder / (name + '.wav'), samples), name))
        for name, samples in contents.items()
    ]


def outcomes(network, tasks, batch_size=4, jobs=2, **options):
    """[(name, Transcript or Failure), ...] of all tasks."""
    found = pipeline.transcribe(network, tasks, batch_size=batch_size, jobs=jobs, **options)
    return [(task.utterance.name, outcome) for task, outcome in found]


def test_order_is_kept_and_batches_hold_parts_of_similar_length(tmp_path):
    lengths = np.random.default_rng(0).permutation(40) + 1
    words = {'n%d' % i: 'abc'[: 1 + i % 3] for i in range(40)}
    tasks = tasks_of(
        tmp_path, **{name: spoken(words[name], 0.5 + n / 50) for name, n in zip(words, lengths)}
    )
    network = Levels()
    found = outcomes(network, tasks)
    assert [(name, outcome.text) for name, outcome in found] == [
        (name, ' '.join(word)) for name, word in words.items()
    ]
    assert sorted(map(len, network.batches)) == [4] * 10
    for batch in network.batches:  # of windows of 16
        assert batch == sorted(batch, reverse=True)


def test_each_failure_is_named_and_the_rest_is_done(tmp_path):
    tasks = tasks_of(tmp_path, a=spoken('a'), short=np.ones(100), b=spoken('b'))
    (tmp_path / 'page.wav').write_text('<html>')
    absent, page = [str(tmp_path / name) for name in ('absent.wav', 'page.wav')]
    tasks[1:1] = [
        Task(records.Utterance(absent, 'absent')),
        Task(records.Utterance(page, 'page')),
        Task(records.Utterance('', 'excluded', exclusion_reason='a reason')),
    ]
    found = dict(outcomes(Levels(), tasks))
    assert list(found) == ['a', 'absent', 'page', 'excluded', 'short', 'b']
    assert found['a'].text == 'a' and found['b'].text == 'b'
    assert found['absent'] == Failure('cannot be read: No such file or directory')
    assert found['page'].reason.startswith('not an audio file')
    assert found['excluded'] == Failure('a reason')
    assert found['short'].reason.startswith('too short: 100 samples')


def test_nothing_to_do():
    assert outcomes(Levels(), []) == []


def test_a_recording_that_is_cut_has_its_words_with_their_times(tmp_path):
    pieces = [piece for char in 'abcdefghijkl' for piece in (spoken(char), np.zeros(RATE))]
    tasks = tasks_of(tmp_path, short=spoken('xy'), long=np.concatenate(pieces))
    (_, short), (_, long) = outcomes(Levels(), tasks, with_times=True)
    assert short.text == 'x y' and short.seconds == 2
    assert long.text == 'a b c d e f g h i j k l' and long.seconds == 24
    starts = [word.start_s for word in long.words]
    np.testing.assert_allclose(starts, np.arange(0, 24, 2), atol=0.02)
    assert all(word.confidence > 0.99 for word in long.words)


@pytest.mark.parametrize('with_times', (False, True))
@pytest.mark.parametrize('gives_logits', (False, True))
def test_overlapping_parts_have_no_word_twice_and_none_cut_in_two(
    tmp_path, with_times, gives_logits
):
    word = 'abcdefghijklmnopqrstuvwxy' * 2
    if not gives_logits:  # the text alone cannot tell repetitions from doubled words
        word = 'abcdefghijklmnopqrstuvwxy'
    [task] = tasks_of(tmp_path, x=np.concatenate([spoken(word[:9], 0.93), spoken(word[9:], 1.17)]))
    network = Levels()
    network.gives_logits = gives_logits
    if not gives_logits:
        heard = network.recognise

        def without_logits(features):
            return [each._replace(logits=None) for each in heard(features)]

        network.recognise = without_logits
    [(_, outcome)] = outcomes(network, [task], with_times=with_times)
    assert len(network.batches[0]) > 1
    assert outcome.text == ' '.join(word)
    has_times = with_times and gives_logits
    assert all((each.start_s is not None) >= has_times for each in outcome.words)


def test_silence_has_no_text(tmp_path):
    [(_, outcome)] = outcomes(Levels(), tasks_of(tmp_path, x=np.zeros(30 * RATE)))
    assert (outcome.text, outcome.words, outcome.seconds) == ('', [], 30)


def test_the_loss_of_the_reference(tmp_path):
    [task] = tasks_of(tmp_path, x=spoken('ab'))
    right, wrong, long = [task._replace(reference=each) for each in ('a b', 'q', 'a' * 300)]
    losses = [outcome.loss for _, outcome in outcomes(Levels(), [task, right, wrong, long])]
    assert losses[0] is None and losses[1] < 0.01 < 100 < losses[2] and losses[3] == np.inf


def test_progress_adds_up_to_what_was_recognised(tmp_path):
    done = []
    tasks = tasks_of(tmp_path, a=spoken('abc'), b=spoken('ab'))
    outcomes(Levels(), tasks, progress=done.append)
    assert sum(done) == 5


def test_an_error_of_the_network_or_of_a_reader_reaches_the_caller(tmp_path):
    tasks = tasks_of(tmp_path, a=spoken('a'))
    for name in ('features', 'recognise'):
        network = Levels()

        def fail(_):
            raise ZeroDivisionError

        setattr(network, name, fail)
        with pytest.raises(ZeroDivisionError):
            outcomes(network, tasks)


def test_what_is_read_ahead_is_limited_and_closing_ends_the_threads(tmp_path):
    pieces = [piece for i in range(300) for piece in (spoken('a'), np.zeros(RATE // 2))]
    tasks = tasks_of(tmp_path, long=np.concatenate(pieces)) * 50
    network, read = Levels(), []
    compute = network.features

    def features(samples):
        read.append(len(samples))
        return compute(samples)

    network.features = features
    results = pipeline.transcribe(network, tasks, batch_size=2, jobs=2)
    _, first = next(results)
    assert len(first.text.split()) == 300
    time.sleep(0.2)
    # two windows of 8 parts, the queues of the readers, and what they hold in their hands
    assert len(read) <= 300 + 2 * 8 + 2 * (pipeline.READ_AHEAD_PARTS + 2)
    results.close()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(('reader', 'runner'))]
