"""Handles the signals that ask a process to end: Ctrl-C, SIGTERM, and SIGHUP, which a dropped
connection sends."""

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time

from util import errors

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STATUS = 130  # exit status after one of them
REPEAT_S = 2.0  # s after which a signal that had no effect is repeated
END_S = 5.0  # s from the second signal to a hard end
TOGETHER_S = 1.0  # s in which several are one request: a shell and the kernel both send SIGHUP
_REPEATED = signal.SIGALRM  # stands for a signal that the watching thread repeats


class StopRequest:
    """Remembers that a signal asked the process to end.

    The first signal raises errors.Interrupted at once; within `deferred` it is only noted, so that
    a run ends between two steps and can save a checkpoint. As an exception can be lost, in a
    destructor for instance, a run also calls `check` after each stage, and a thread repeats the
    signal while it has no effect; an exception that it has become ends as errors.Interrupted, too.
    A second signal always raises; if the main thread is in a long call outside of Python and can't
    see it, the thread ends the process.

    Attributes:
      wanted: whether the user asked the process to end.
      outcome: what to tell the user if it ends at once.
    """

    def __init__(self):
        self.wanted = False
        self.outcome = 'nothing was saved'
        self._deferred = self._noted = self._finished = False
        self._first = 0.0  # time of the first signal

    @contextlib.contextmanager
    def installed(self):
        """Handles the signals while the block runs; afterwards they are ignored, as there is
        nothing left to do but to say how it ended."""
        pipe, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        watching = threading.Thread(target=self._watch, args=(pipe,), daemon=True)
        handled = _not_ignored()
        for number in handled:
            signal.signal(number, self._receive)
        signal.signal(_REPEATED, self._repeat)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        watching.start()
        try:
            yield
        except errors.DeepSpeechError:
            raise
        except Exception as error:
            if not self.wanted:
                raise
            # a library has made another exception of it, or its cleaning up has failed
            raise errors.Interrupted(self.outcome) from error
        finally:
            for number in handled:
                signal.signal(number, signal.SIG_IGN)
            signal.set_wakeup_fd(-1)
            os.close(wakeup)  # which ends the thread
            watching.join(REPEAT_S)

    @contextlib.contextmanager
    def deferred(self):
        """Lets the first signal only set `wanted` while the block runs."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def check(self):
        """Raises StopWanted if the user asked the process to end."""
        if self.wanted:
            raise errors.StopWanted(self.outcome)

    def finish(self):
        """Ignores a signal from now on, as the results are there and only the end is left."""
        self.check()
        self._finished = True

    def _receive(self, number, frame):
        """Handles a signal. Nothing is printed here, where the output may be in use already."""
        del number, frame
        again, now = self.wanted, time.monotonic()
        if again and now - self._first <= TOGETHER_S:
            return
        if not again:
            self.wanted, self._first, self._noted = True, now, self._deferred
        if not self._finished and (again or not self._deferred):
            raise errors.Interrupted(self.outcome)

    def _repeat(self, number, frame):
        """Raises the exception of a signal again, unless the process is ending because of it."""
        del number, frame
        if self.wanted and not (self._finished or self._deferred or _is_ending()):
            raise errors.Interrupted(self.outcome)

    def _watch(self, pipe):
        """Watches the numbers of the signals that arrive, in a thread."""
        received, first = 0, 0.0
        while True:
            patience = (None, REPEAT_S, END_S)[min(received, 2)]
            if select.select([pipe], [], [], patience)[0]:
                numbers = os.read(pipe, 64)
                if not numbers:
                    os.close(pipe)
                    return
                asked = [number for number in numbers if number in SIGNALS]
                if asked and not received and (self._deferred or self._noted):
                    log.warning(
                        '%s: stopping after this step; a second signal stops at once',
                        signal.Signals(asked[0]).name,
                    )
                if asked and (not received or time.monotonic() - first > TOGETHER_S):
                    received += 1
                    first = first or time.monotonic()
            elif received > 1:
                end_process(self.outcome)
            elif not (self._deferred or self._finished):
                signal.pthread_kill(threading.main_thread().ident, _REPEATED)


def ignore() -> None:
    """Ignores the signals in a child process, which its parent ends."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _not_ignored():
    """Returns the signals to handle: not SIGHUP if it is ignored, as under nohup."""
    return [n for n in SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]


def _is_ending():
    """Tells whether the code that runs cleans up after errors.Interrupted."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, errors.Interrupted):
        error = error.__context__
    return error is not None


def end_process(outcome: str, stream: int = 2) -> None:
    """Ends the process as an interrupted one, without any cleaning up.

    Args:
      outcome: what to tell the user; empty for a tool, which has nothing to save.
      stream: file descriptor for this line.
    """
    line = 'interrupted' + (': ' + outcome if outcome else '') + '\n'
    with contextlib.suppress(OSError):
        os.write(stream, line.encode())
    os._exit(STATUS)


def end_at_once() -> None:
    """Lets the signals end the process with one line, while it imports what it needs."""
    # TensorFlow's import has the descriptor 2 point elsewhere
    stream = os.dup(2)
    for number in _not_ignored():
        signal.signal(number, lambda *_: end_process('nothing was saved', stream))
