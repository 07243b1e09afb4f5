"""What a run says and leaves behind: messages, progress bar, run folder, hyper.json."""
import contextlib
import glob
import json
import logging
import math
import os
import subprocess
import sys
import time

from util import config as settings, errors

log = logging.getLogger(__name__)

RUN_DIR_FORMAT = '%Y%m%d-%H%M%S'
BAR_WIDTH = 24  # characters


def set_up_logging():
    """Sends messages of this project to the standard output as plain lines."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter('%(message)s'))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger('tensorflow').setLevel(logging.ERROR)


class Progress:
    """A bar with loss and time to go, on a terminal only."""

    def __init__(self, caption, total, stream=None, already=0):
        self._caption, self._total, self._already = caption, total, already
        self._stream = stream or sys.stdout
        self._shown = self._stream.isatty()
        self._started = time.monotonic()

    def update(self, done, loss):
        """Draws the bar for `done` of the steps and the mean loss so far."""
        if not self._shown:
            return
        full = BAR_WIDTH * done // self._total
        to_go = (time.monotonic() - self._started) * (self._total - done) / (
            done - self._already)
        self._stream.write('\r\x1b[K%s |%s%s| %d/%d  loss %.4f  %s to go' % (
            self._caption, '#' * full, '-' * (BAR_WIDTH - full), done, self._total, loss,
            format_duration(to_go)))
        self._stream.flush()

    def close(self):
        """Clears the line, so that the next message starts on it."""
        if self._shown:
            self._stream.write('\r\x1b[K')
            self._stream.flush()


def format_duration(seconds):
    """Seconds as h:mm:ss."""
    minutes, seconds = divmod(int(seconds), 60)
    return '%d:%02d:%02d' % (minutes // 60, minutes % 60, seconds)


def make_dir(path, setting):
    """Makes a folder and checks that files can be written there.

    Raises:
      ConfigError: naming the setting, the path and the reason.
    """
    probe = os.path.join(path, '.write-test-%d' % os.getpid())
    try:
        os.makedirs(path, exist_ok=True)
        with open(probe, 'wb'):
            pass
        os.remove(probe)
    except OSError as error:
        raise errors.ConfigError('%s: cannot write to %s: %s' % (setting, path, error.strerror)
                                   ) from None


def make_run_dir(logs_dir, now=None):
    """A new folder YYYYMMDD-HHMMSS for the logs of this run, its name made unique."""
    make_dir(logs_dir, 'ds_logs_dir')
    base = os.path.join(logs_dir, time.strftime(RUN_DIR_FORMAT, now or time.localtime()))
    path, number = base, 1
    while True:
        try:
            os.mkdir(path)
            return path
        except FileExistsError:
            number += 1
            path = '%s-%d' % (base, number)


def write_file(path, content):
    """Writes text beside its place and renames it, so that no reader sees a part of it."""
    temporary = '%s.%d.tmp' % (path, os.getpid())  # other runs write hyper.js as well
    try:
        with open(temporary, 'w', encoding='utf-8') as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


def strict_json(value):
    """JSON that every reader takes: numbers that don't exist become null."""
    return json.dumps(_finite(value), sort_keys=True, indent=4, allow_nan=False)


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if hasattr(value, 'item'):  # a NumPy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def git_revision():
    """(hash, branch) of the project's own repository; (None, None) outside of one."""
    return tuple(_git('rev-parse', *what) for what in (['HEAD'], ['--abbrev-ref', 'HEAD']))


def _git(*arguments):
    try:
        # with --git-dir, as git would else go up and find somebody else's repository
        done = subprocess.run(['git', '--git-dir', os.path.join(settings.PROJECT_DIR, '.git'),
                               *arguments], check=True, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def merge_logs(logs_dir):
    """Collects hyper.json of all runs in `logs_dir`/hyper.js, for a web page to load.

    Runs whose file is broken are left out and named.

    Source: the notebook's util.log.merge_logs.
    """
    runs = []
    for path in sorted(glob.glob(os.path.join(glob.escape(logs_dir), '*', 'hyper.json'))):
        try:
            with open(path, encoding='utf-8') as file:
                runs.append(json.load(file))
        except (OSError, ValueError) as error:
            log.warning('%s is left out of hyper.js: %s', path, error)
    write_file(os.path.join(logs_dir, 'hyper.js'), 'var hyper = %s;\n' % strict_json(runs))
