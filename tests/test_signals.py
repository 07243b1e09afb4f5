"""util.run.signals: Ctrl-C, SIGTERM and SIGHUP, also where an exception is lost."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from helpers import PROJECT
from util import errors
from util.run import signals


@pytest.fixture
def stop():
    """A StopRequest; the handlers of the test run itself come back afterwards."""
    numbers = (*signals.SIGNALS, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores
    yield signals.StopRequest()
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


class Lossy:
    """Sends a signal in its destructor, where exceptions are lost."""

    def __del__(self):
        send()


def lose_a_signal():
    Lossy()


quiet = pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')


@pytest.mark.parametrize('number', signals.SIGNALS)
def test_a_signal_passes_the_handlers_of_other_errors(stop, number):
    stop.outcome = 'the outcome'
    with pytest.raises(errors.Interrupted, match='^the outcome$'), stop.installed():
        try:
            send(number)
        except Exception:
            pytest.fail('it was taken for another error')
    assert stop.wanted


def test_in_training_the_first_signal_is_only_noted(stop, caplog):
    with stop.installed(), pytest.raises(errors.StopWanted), stop.deferred():
        assert not stop.wanted
        send(signal.SIGHUP)
        assert stop.wanted
        stop.check()
    assert caplog.messages == ['SIGHUP: stopping after this step; a second signal stops at once']


def test_signals_that_come_together_are_one(stop):
    """A shell that ends sends SIGHUP to its jobs, and the kernel sends it to them as well."""
    with stop.installed(), stop.deferred():
        for _ in range(3):
            send(signal.SIGHUP)
        assert stop.wanted


def test_a_second_signal_ends_training_at_once(stop, monkeypatch):
    monkeypatch.setattr(signals, 'TOGETHER_S', 0.0)
    with stop.installed(), stop.deferred():
        send()
        with pytest.raises(errors.Interrupted):
            send(signal.SIGINT)


@quiet
def test_a_signal_whose_exception_was_lost_is_remembered(stop):
    with stop.installed():
        lose_a_signal()
        with pytest.raises(errors.StopWanted):
            stop.check()


@quiet
def test_a_signal_whose_exception_was_lost_is_repeated(stop, monkeypatch):
    monkeypatch.setattr(signals, 'REPEAT_S', 0.05)
    with stop.installed():
        lose_a_signal()
        with pytest.raises(errors.Interrupted):
            time.sleep(5)


def test_an_exception_that_becomes_another_one_is_still_a_signals(stop):
    with pytest.raises(errors.Interrupted), stop.installed():
        try:
            send()
        finally:
            raise RuntimeError('as TensorFlow does, while it builds a graph')


def test_errors_of_a_run_that_was_not_signalled_stay_what_they_are(stop):
    with pytest.raises(RuntimeError), stop.installed():
        raise RuntimeError
    with pytest.raises(errors.TrainingError), stop.installed(), stop.deferred():
        send()
        raise errors.TrainingError('the checkpoint cannot be written')


def test_cleaning_up_after_a_signal_is_not_disturbed(stop, monkeypatch):
    monkeypatch.setattr(signals, 'REPEAT_S', 0.02)
    with pytest.raises(errors.Interrupted), stop.installed():
        try:
            send()
        finally:
            for _ in range(10):
                time.sleep(0.01)
            done = True
    assert done


def test_a_signal_after_the_results_changes_nothing(stop, monkeypatch):
    monkeypatch.setattr(signals, 'REPEAT_S', 0.02)
    with stop.installed():
        stop.finish()
        send()
        for _ in range(10):
            time.sleep(0.01)
    send(signal.SIGINT)


@pytest.mark.parametrize('ignored', (False, True))
def test_a_dropped_connection_does_not_end_a_run_under_nohup(stop, ignored):
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    with stop.installed():
        if ignored:
            send(signal.SIGHUP)
        else:
            pytest.raises(errors.Interrupted, send, signal.SIGHUP)
    assert stop.wanted != ignored


def test_no_thread_and_no_file_is_left(stop):
    def counts():
        return threading.active_count(), len(os.listdir('/proc/self/fd'))

    before = counts()
    with stop.installed():
        assert counts() != before
    assert counts() == before


def test_a_second_signal_ends_a_process_that_is_in_a_long_call():
    """The main thread waits in C, where it can't see a signal; here by a mask."""
    code = (
        'import signal, sys, threading\n'
        'from util.run import signals\n'
        'signals.END_S, signals.TOGETHER_S = 0.1, 0.0\n'
        'stop = signals.StopRequest()\n'
        'with stop.installed(), stop.deferred():\n'
        '    threading.Thread(target=signal.pause, daemon=True).start()\n'
        '    signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)\n'
        '    threading.Timer(0.5, print, ["ready"], {"flush": True}).start()\n'
        '    threading.Event().wait()\n'
    )
    process = subprocess.Popen(
        [sys.executable, '-c', code],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == 'ready\n'
    process.send_signal(signal.SIGTERM)
    assert (
        process.stderr.readline()
        == 'SIGTERM: stopping after this step; a second signal stops at once\n'
    )
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=100)[1].endswith('interrupted: nothing was saved\n')
    assert process.returncode == signals.STATUS
