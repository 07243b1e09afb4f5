"""What all command lines share: their streams, their encoding, and what a signal does to them."""

import errno
import io
import os
import select
import sys
from collections.abc import Callable
from typing import NoReturn

from util import errors
from util.run import signals


class OutputClosed(errors.Interrupted):
    """The standard output cannot be written; the message is empty if its reader just left."""


class _Descriptor(io.RawIOBase):
    """A stream of the process, which nothing that happens to it ends with a traceback.

    Args:
      number: its file descriptor.
      fails: function that is called once with the OSError, when it cannot be written for the first
        time. What is written afterwards, while that is so, is lost.
    """

    def __init__(self, number: int, fails: Callable[[OSError], None]) -> None:
        self._number, self._fails, self._failed = number, fails, False

    def writable(self):
        return True

    def fileno(self):
        return self._number

    def isatty(self):
        return os.isatty(self._number)

    def write(self, data):
        while True:
            try:
                return os.write(self._number, data)
            except BlockingIOError:  # a pipe that does not wait for its reader
                select.select([], [self._number], [])
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    self._fails(error)
                return len(data)


class _Text(io.TextIOWrapper):
    """A text stream that escapes what its encoding cannot hold, and what would reach a terminal
    as a command to it."""

    def write(self, text):
        super().write(errors.printable(text, '\n\r\t') if self.isatty() else text)
        return len(text)


def begin(goes_on: bool = False) -> None:
    """Prepares the process, before anything that takes time is imported.

    Args:
      goes_on: whether the program goes on if its standard output cannot be written; otherwise it
        ends by OutputClosed.
    """
    _use_utf8()
    for number in range(3):  # a closed stream's number would be that of the next opened file
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    signals.end_at_once()
    sys.stdout = _stream(1, sys.stdout, _say if goes_on else _end)
    sys.stderr = _stream(2, sys.stderr, lambda error: None)


def run(main: Callable[[list[str]], int]) -> NoReturn:
    """Runs a tool's command line as a process, which a signal ends with one line and status 130.

    Args:
      main: function of the arguments that returns the exit status.
    """
    begin()
    stop = signals.StopRequest()
    stop.outcome = ''
    try:
        with stop.installed():
            try:
                status: object = main(sys.argv[1:])
            except SystemExit as ended:  # argparse, after its help or an error
                status = ended.code
            sys.stdout.flush()
            stop.finish()
    except OutputClosed as closed:
        status = int(bool(str(closed)))
        if status:
            print('error: %s' % closed, file=sys.stderr)
    except errors.Interrupted:
        status = signals.STATUS
        print('interrupted', file=sys.stderr)
    raise SystemExit(status)


def _use_utf8():
    """Starts Python again in its UTF-8 mode if the encoding of file names is another one.

    TensorFlow takes all paths for UTF-8, and manifests are written in it; under LC_ALL=C, Python
    may be unable to open a file with an accent in its name.
    """
    if sys.getfilesystemencoding() != 'utf-8':
        os.execv(sys.executable, [sys.executable, '-X', 'utf8', *sys.orig_argv[1:]])


def _stream(number, given, fails):
    """Returns the text stream of a descriptor in the place of the given one, or of None."""
    raw = _Descriptor(number, fails)
    encoding = given.encoding if given else 'utf-8'
    options = {'line_buffering': number == 2 or raw.isatty(), 'errors': 'backslashreplace'}
    return _Text(io.BufferedWriter(raw), encoding=encoding, **options)


def _say(error):
    """Says that the program goes on without its standard output."""
    print(
        'the standard output cannot be written (%s); the run goes on' % error.strerror,
        file=sys.stderr,
    )


def _end(error):
    """Ends the program; a reader that has seen enough, as head, is no error."""
    message = 'the standard output cannot be written: %s' % error.strerror
    raise OutputClosed('' if error.errno == errno.EPIPE else message)
