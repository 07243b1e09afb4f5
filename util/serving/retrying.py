"""Repeats requests that a model server may answer the next time, with growing pauses."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from util.serving import server
from util.serving.server import ServerError

FIRST_PAUSE_S = 0.2  # s; each pause is twice as long as the one before
LONGEST_PAUSE_S = 5.0  # s
JITTER = 0.5  # share of a pause that is random, so that clients do not return all at once

Result = TypeVar('Result')


def pause_s(attempts: int) -> float:
    """Returns the seconds to wait after so many attempts, which are partly random."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempts - 1))
    return longest * random.uniform(1 - JITTER, 1)


def call(
    request: Callable[[float], Result],
    timeout_s: float,
    retries: int,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Makes a request until it is answered, cannot be answered, or the time is over.

    Args:
      request: function of the seconds that are left.
      timeout_s: seconds for all attempts together.
      retries: how often a failed request may be repeated.
      sleep, clock: functions as in the module time.
    Returns:
      The result of `request`.
    Raises:
      ServerError: that of the last attempt; the message says how many attempts there were.
    """
    deadline, attempts = clock() + timeout_s, 0
    while True:
        attempts += 1
        try:
            return request(deadline - clock())
        except ServerError as error:
            pause = pause_s(attempts)
            if error.retry and attempts <= retries and clock() + pause < deadline:
                sleep(pause)
                continue
            if isinstance(error, server.NoAnswerInTime):
                error = server.no_answer_in_time(timeout_s)  # of which it had only the rest
            raise ServerError(
                str(error) if attempts == 1 else '%s (%d attempts)' % (error, attempts)
            ) from None
