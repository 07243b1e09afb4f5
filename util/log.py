"""The output of a run: log messages, progress bars, and hyper.js with the results of all runs."""

import glob
import json
import logging
import math
import os
import re
import shutil
import sys
from typing import TextIO

import tqdm

from util import errors, files

log = logging.getLogger(__name__)

LINE_WIDTH = 79  # characters of a progress bar with its caption; fewer on a narrower terminal
LARGEST_LOG = 10**7  # bytes of a hyper.json; a run's has some thousands
MERGES = 10  # times that hyper.js is written while other runs end


class _Plain(logging.Formatter):
    """Formats messages as plain lines. What is in them from data, such as file names, reaches no
    terminal as a command; reports have several lines, warnings one."""

    def format(self, record):
        return errors.printable(
            record.getMessage(), '\t' if record.levelno >= logging.WARNING else '\n\t'
        )


def set_up_logging() -> None:
    """Sends the log messages of this project to the standard output as plain lines."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Plain())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger('tensorflow').setLevel(logging.ERROR)


class Bar(tqdm.tqdm):
    """A progress bar, on the standard output; it writes nothing if that is not a terminal.

    When it is closed, it clears its line for the next message.

    Args:
      caption: the words before the bar.
      total: number of items, or None if it is not known.
      already: number of items that were done before; they do not count for the speed.
      unit: what follows the numbers, such as B.
      unit_scale: whether large numbers are shortened, as in 2.50M.
      stream: where the bar goes in place of the standard output.
    """

    monitor_interval = 0  # no thread of tqdm's own: with miniters=1 it has nothing to do

    def __init__(
        self,
        caption: str,
        total: int | None,
        already: int = 0,
        unit: str = '',
        unit_scale: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        form = '{desc} {n_fmt}{unit}'
        if total:
            form = '{desc} |{bar}| {n_fmt}{unit}/{total_fmt}{unit}{postfix}, {remaining} to go'
        size = shutil.get_terminal_size()  # without it tqdm draws nothing on some terminals
        super().__init__(
            desc=caption,
            total=total,
            initial=already,
            unit=unit,
            unit_scale=unit_scale,
            bar_format=form,
            ascii='-#',
            ncols=min(LINE_WIDTH, size.columns - 1),
            nrows=size.lines,
            file=stream or sys.stdout,
            disable=None,
            leave=False,
            position=0,
            miniters=1,
            smoothing=0,
        )


class Progress:
    """A bar for one pass over a data set, with the mean loss and the time left.

    Args:
      caption: the words before the bar.
      total: number of steps of the pass.
      already: number of these steps that an earlier run has done.
    """

    def __init__(self, caption: str, total: int, already: int = 0) -> None:
        self._bar = Bar(caption, total, already)

    def update(self, done: int, loss: float) -> None:
        """Draws the bar for `done` of the steps and the mean loss so far."""
        self._bar.n = done
        self._bar.set_postfix_str('loss %.4f' % loss)  # draws all of it

    def close(self) -> None:
        """Clears the line, so that the next message starts on it; a further update draws again."""
        self._bar.clear()


def strict_json(value: object) -> str:
    """Returns a value as strict JSON, in which NaN and infinite numbers become null."""
    return json.dumps(_finite(value), sort_keys=True, indent=4, allow_nan=False)


def _finite(value):
    """Returns a value in which NaN and infinite numbers are replaced by None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if hasattr(value, 'item'):  # a NumPy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def merge_logs(logs_dir: str) -> None:
    """Collects hyper.json of all runs in `logs_dir`/hyper.js, for a web page to load.

    Runs whose file is broken are left out and named in a warning. Other runs may end at the same
    time: the file is written until it holds what is there, so that whoever writes last has seen
    the files of all.

    Raises:
      OSError: hyper.js cannot be written.
    Source: the notebook's util.log.merge_logs.
    """
    for folder in glob.glob(os.path.join(glob.escape(logs_dir), '*', '')):
        files.remove_abandoned(os.path.join(folder, 'hyper.json.'), '.tmp')
    paths = _run_logs(logs_dir)
    for _ in range(MERGES):
        runs = [run for path in paths if (run := _read_run(path)) is not None]
        files.write_file(
            os.path.join(logs_dir, 'hyper.js'), 'var hyper = %s;\n' % strict_json(runs)
        )
        merged, paths = paths, _run_logs(logs_dir)
        if paths == merged:
            return


def _run_logs(logs_dir):
    """Returns the paths of hyper.json of all runs in the order in which the runs started; of those
    that started in the same second, -10 comes after -2."""

    def order(path):
        parts = re.split('([0-9]+)', os.path.basename(os.path.dirname(path)))
        return [int(part) if i % 2 else part for i, part in enumerate(parts)], path

    return sorted(glob.glob(os.path.join(glob.escape(logs_dir), '*', 'hyper.json')), key=order)


def _read_run(path):
    """Returns the content of a hyper.json; None, with a warning, if it cannot be used."""
    try:
        with files.open_regular(path, encoding='utf-8') as file:
            text = file.read(LARGEST_LOG + 1)
        if len(text) > LARGEST_LOG:
            raise ValueError('it is larger than %d bytes' % LARGEST_LOG)
        run = json.loads(text)
        if not isinstance(run, dict):
            raise ValueError('it holds no JSON object')
        strict_json([run])  # which fails here rather than for all of them, if it is nested deeply
    except (OSError, ValueError, RecursionError) as error:
        log.warning('%s is left out of hyper.js: %s', path, error)
        return None
    return run
