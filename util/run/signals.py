"""Handles Ctrl-C and SIGTERM."""

import contextlib
import logging
import signal

from util import errors

log = logging.getLogger(__name__)


class StopRequest:
    """Handles Ctrl-C and SIGTERM: they end a run at once, but training only after the current
    step, so that a checkpoint can be saved.

    Attributes:
      wanted: whether the user asked the run to stop.
      outcome: what to tell the user if a run ends at once.
    """

    def __init__(self):
        self.wanted = False
        self.outcome = 'nothing was saved'
        self._deferred = False

    @contextlib.contextmanager
    def installed(self):
        """Handles both signals while the block runs."""
        before = {
            number: signal.signal(number, self._receive)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def deferred(self):
        """Lets the first signal only set `wanted` while the block runs."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _receive(self, number, frame):
        """Handles a signal: ends the run, or sets `wanted` if that is deferred."""
        del frame
        if self.wanted or not self._deferred:
            raise errors.Interrupted(self.outcome)
        self.wanted = True
        log.warning(
            '%s: stopping after this step; a second signal stops at once',
            signal.Signals(number).name,
        )

    def check(self):
        """Raises StopWanted if the user asked the run to stop."""
        if self.wanted:
            raise errors.StopWanted(self.outcome)
