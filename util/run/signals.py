"""Ctrl-C and SIGTERM."""

import contextlib
import logging
import signal

from util import errors

log = logging.getLogger(__name__)


class StopRequest:
    """Takes Ctrl-C and SIGTERM: they end a run at once, but training only at the next step, so
    that what was learned can be saved.

    Attributes:
      wanted: whether an end was asked for.
      outcome: what to tell the user where a run ends at once.
    """

    def __init__(self):
        self.wanted = False
        self.outcome = 'nothing was saved'
        self._deferred = False

    @contextlib.contextmanager
    def installed(self):
        """Takes over both signals while the block runs."""
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
        del frame
        if self.wanted or not self._deferred:
            raise errors.Interrupted(self.outcome)
        self.wanted = True
        log.warning(
            '%s: stopping after this step; once more to stop at once', signal.Signals(number).name
        )

    def check(self):
        """Raises StopWanted where an end was asked for."""
        if self.wanted:
            raise errors.StopWanted(self.outcome)
