"""Threads that read utterances."""

import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

CLOSE_LIMIT_S = 2.0  # s, how long `close` waits for the threads


class Readers:
    """Threads that call a function for each of the items that are handed to them.

    The threads are daemons: one that hangs in a call of the system, as reading from a file server
    that is gone does, doesn't keep the program from ending, as one of a ThreadPoolExecutor would.

    Args:
      read: function of an item.
      n_threads: number of threads.
    """

    def __init__(self, read: Callable[[Any], Any], n_threads: int):
        self._read, self._closed = read, False
        self._parts: queue.SimpleQueue = queue.SimpleQueue()
        self._current: dict[int, Any] = {}  # {number of the thread: the item that it reads}
        self._threads = [
            threading.Thread(target=self._work, args=[i], daemon=True, name='reader-%d' % i)
            for i in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, items: Sequence[Any]) -> concurrent.futures.Future:
        """Hands items to one of the threads.

        Returns:
          Future of the list of what `read` returns for them, or of the error that it raises.
        """
        future: concurrent.futures.Future = concurrent.futures.Future()
        self._parts.put((future, items))
        return future

    def reading(self) -> list[Any]:
        """Returns the items that are being read."""
        return list(self._current.values())

    def end(self) -> None:
        """Lets the threads end after the items that they are reading; others are left unread."""
        self._closed = True
        for _ in self._threads:
            self._parts.put(None)

    def close(self) -> bool:
        """Ends the threads as `end` does, and waits for them.

        Returns:
          Whether all threads have ended; if one hangs, it is left behind.
        """
        self.end()
        deadline = time.monotonic() + CLOSE_LIMIT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, number):
        """Reads part after part; this is what each thread does."""
        while (part := self._parts.get()) is not None:
            future, items = part
            try:
                future.set_result([self._read_item(number, item) for item in items])
            except BaseException as error:  # whatever it is, it must reach who waits
                future.set_exception(error)

    def _read_item(self, number, item):
        """Reads an item, which `reading` returns meanwhile."""
        if self._closed:
            raise concurrent.futures.CancelledError
        self._current[number] = item
        try:
            return self._read(item)
        finally:
            del self._current[number]
