"""Kills small training runs at moments drawn from a seed: does the resumed run end as one that was
never killed?

    python tests/faults/kills.py --kills 200 --seed 1 [--workers 2] [--designs plain,linked]
                                 [--signal SIGTERM]

Each case is a design of a run (`DESIGNS`), which is killed by SIGKILL (or gets another signal) one
to three times in a row, in a part of the run (while a checkpoint is written, in the export, ...),
just before a change of its files, or at any time at all. The same command then goes on until the
run ends. It fails if a tensor of any checkpoint or of the export, a loss of an epoch or the line of
the test differs from those of a run that was not killed, if other checkpoints are kept, or if
temporary files are left.
"""

import argparse
import collections
import concurrent.futures
import functools
import itertools
import json
import multiprocessing.forkserver
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from typing import Any, NamedTuple

if __name__ in ('__main__', '__mp_main__'):  # run as a file, which leaves these out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np

import helpers
import runs
from util.run import signals

COMMON: dict[str, Any] = {
    'restore_checkpoint': 1,
    'epochs': 3,
    'n_hidden': 16,
    'n_context': 2,
    'checkpoint_steps': 2,
    'export_dir': 'export',
    'beam_width': 4,
    'dropout_rate': 0.0,
}
LINKED = {'importer': 'csv,csv', 'dataset_path': '.,second', 'importer_weights': '1,0.5'}
DESIGNS: dict[str, dict[str, Any]] = {
    'plain': {},
    'accumulation': {
        'train_batch_size': 1,
        'numbatches_to_aggregate': 2,
        'normalize_gradients': 1,
        'dropout_rate': 0.1,
    },
    'linked': {**LINKED, 'train_batch_size': 1, 'batch_order': 'shuffled'},
    'augmentation': {
        'augment': 'speed[p=0.7,factor=1~0.2] overlay[source=pink,snr=30:5~5] time_mask',
        'train_batch_size': 1,
    },
    'dropout': {'dropout_rate': 0.3, 'batch_order': 'bucketed', 'numbuckets': 2},
    'towers': {'towers': 2, 'train_batch_size': 1},
    'average': {'average_checkpoints': 3, 'epochs': 4},
    'cosine': {
        'learning_rate_schedule': 'cosine',
        'learning_rate_decay': 0.1,
        'warmup_steps': 4,
        'best_by': 'cer',
    },
    'plateau': {
        'learning_rate': 0.03,
        'valid_adapt': 0.5,
        'num_tries': 2,
        'reset_tries': 1,
        'go_back': 1,
        'epochs': 5,
    },
    'stages': {'segment_lengths': '125,full', 'epochs': 2, 'num_tries': 1, 'learning_rate': 0.03},
}
MOST_KILLS = 3  # of a case, one after the other
FILES, WHOLE = 'a change of files', 'any time'
OF_THE_START = {'run_state/run', 'model/description'}  # tensors that hold when the run started
LITTER = re.compile(r'\.tmp|tempstate|unfinished')
CHANGES = {'os.rename', 'os.remove', 'os.mkdir', 'os.rmdir', 'os.link', 'os.truncate'}


class Moment(NamedTuple):
    """When a run is to be killed."""

    part: str  # a key of `parts`, or FILES
    index: int  # which of its calls or changes, from 0
    share: float  # of the time that the call takes
    signal: int = signal.SIGKILL

    def __str__(self):
        if self.part == FILES:
            return 'before change %d of its files' % self.index
        return '%s: call %d, at %.0f %%' % (self.part, self.index, 100 * self.share)


# In the process of the run


def parts() -> dict[str, tuple[Any, str]]:
    """Returns {name: (object, name of its attribute)} of the functions that runs are killed in."""
    import DeepSpeech  # not above, as the processes that start runs do without TensorFlow's graph
    from util.feeding import cache
    from util.run import checkpoints, run_folder

    return {
        WHOLE: (DeepSpeech, 'main'),
        'restoring': (checkpoints.Checkpoints, 'restore'),
        'step': (DeepSpeech, 'train_step'),
        'validation': (DeepSpeech, 'validate'),
        'checkpoint': (checkpoints.Checkpoints, 'save'),
        'best checkpoint': (checkpoints.Checkpoints, 'save_best'),
        'average': (DeepSpeech, 'average'),
        'test': (DeepSpeech, 'test'),
        'export': (DeepSpeech, 'export'),
        'cache of features': (cache.FeatureCache, 'flush'),
        'cache of headers': (cache.HeaderCache, 'close'),
        'hyper.json': (run_folder.RunRecord, 'write'),
    }


class Watch:
    """Counts a run's changes of its files, times its parts, and kills it at a Moment.

    Args:
      moment: Moment; None: the run is only measured.
      measured: what `figures` of an earlier run returned, for the time that a part takes.
    """

    def __init__(self, moment: Moment | None, measured: dict | None):
        self._moment, self._measured = moment, measured
        self._changes, self._folder = itertools.count(), os.getcwd()
        self._seconds: dict[str, list[float]] = {}

    def install(self) -> None:
        """Watches this process from now on."""
        for part, (owner, name) in parts().items():
            self._seconds[part] = []
            setattr(owner, name, self._timed(part, getattr(owner, name)))
        sys.addaudithook(self._audit)

    def figures(self) -> dict:
        """Returns {part: seconds of each of its calls; FILES: a list as long as the number of
        changes}."""
        return {**self._seconds, FILES: [0.0] * next(self._changes)}

    def _timed(self, part, function):
        """Wraps a function of the run, which then is a part of it."""
        calls = itertools.count()

        @functools.wraps(function)
        def call(*arguments, **options):
            self._begin(part, next(calls))
            started = time.monotonic()
            try:
                return function(*arguments, **options)
            finally:
                self._seconds[part].append(time.monotonic() - started)

        return call

    def _begin(self, part, index):
        """Starts the clock of the kill if it is due in this call of a part."""
        if self._moment and self._moment[:2] == (part, index):
            delay = self._measured[part][index] * self._moment.share
            arguments = (delay, self._moment.signal)
            threading.Thread(target=self._kill_after, args=arguments, daemon=True).start()

    @staticmethod
    def _kill_after(seconds, number):
        time.sleep(seconds)
        os.kill(os.getpid(), number)

    def _audit(self, event, arguments):
        """Kills the run before a change of its files, if it is the one."""
        if event == 'open':
            path, _, flags = arguments
            if not flags & (os.O_WRONLY | os.O_RDWR):
                return
        elif event in CHANGES:
            path = arguments[0]
        else:
            return
        if isinstance(path, int) or not self._is_own(os.fsdecode(path)):
            return
        index = next(self._changes)
        if self._moment and self._moment[:2] == (FILES, index):
            os.kill(os.getpid(), self._moment.signal)

    def _is_own(self, path):
        """Tells whether a path lies in the folder of the run."""
        return os.path.abspath(path).startswith(self._folder + os.sep)


def watched_run(moment: Moment | None, measured: dict | None, figures: str) -> int:
    """Runs DeepSpeech.py without arguments; returns its exit status.

    Args:
      moment, measured: as in `Watch`.
      figures: path of the file to write with the figures of the Watch.
    """
    import DeepSpeech  # as in `parts`

    watch = Watch(moment, measured)
    watch.install()
    status = DeepSpeech.main([])
    pathlib.Path(figures).write_text(json.dumps(watch.figures()))
    return status


def start(
    folder: pathlib.Path, design: str, moment: Moment | None = None, measured: dict | None = None
):
    """Runs a design in a folder, as `watched_run` does; returns the CompletedProcess."""
    environment = runs.small_environment(**{**COMMON, **DESIGNS[design]})
    path = str(folder.with_suffix('.figures'))
    return runs.run_forked(
        watched_run, moment, measured, path, folder=folder, environment=environment
    )


# What a run leaves


class Left(NamedTuple):
    """What the runs of a case leave."""

    checkpoints: dict[str, dict]  # {path: {name: tensor}}
    exported: dict[str, np.ndarray]  # {name: tensor} of the newest version
    losses: dict[str, tuple[str, str]]  # {number of an epoch: (loss, loss of the dev set)}
    test: str  # the line
    litter: list[str]  # paths
    files: list[str]  # names of all files in the folder of checkpoints

    def differences(self, other: 'Left') -> list[str]:
        """Describes where this differs from what another case left."""
        found = ['left %s' % path for path in self.litter]
        if self.files != other.files:
            found.append('files %s instead of %s' % (self.files, other.files))
        for path in self.checkpoints.keys() & other.checkpoints.keys():
            found += _unequal(path, self.checkpoints[path], other.checkpoints[path])
        found += _unequal('export', self.exported, other.exported)
        for epoch, losses in self.losses.items():
            if other.losses.get(epoch) != losses:
                found.append('epoch %s: %s, not %s' % (epoch, losses, other.losses.get(epoch)))
        if self.test != other.test:
            found.append('%r instead of %r' % (self.test, other.test))
        return found


def _unequal(path, ours, theirs):
    """Lists the tensors that differ in a single bit."""
    names = sorted((ours.keys() | theirs.keys()) - OF_THE_START)
    return [
        '%s: %s' % (path, name)
        for name in names
        if name not in ours or name not in theirs or ours[name].tobytes() != theirs[name].tobytes()
    ]


def left_in(folder: pathlib.Path, output: str) -> Left:
    """Reads what runs left in a folder, given all that they printed.

    Raises:
      ValueError: a hyper.json is not valid, or there is none.
    """
    for path in (folder / 'logs').glob('*/hyper.json'):
        runs.read_strict(path.read_text())
    newest = max((folder / 'export').glob('[0-9]*'), key=lambda path: int(path.name))
    below = [str(path.relative_to(folder)) for path in sorted(folder.rglob('*'))]
    return Left(
        checkpoints={
            path.removesuffix('.index'): runs.weights_of(folder / path.removesuffix('.index'))
            for path in below
            if path.startswith('ckpt') and path.endswith('.index')
        },
        exported=runs.weights_of(newest / 'variables' / 'variables'),
        losses={
            epoch: (train, dev)
            for epoch, train, dev in re.findall(
                r'Epoch (\d+) of \d+ finished: train loss ([\d.]+).*?; dev loss ([\d.]+)', output
            )
        },
        test=runs.final_line(output),
        litter=[path for path in below if LITTER.search(path)],
        files=[path for path in below if path.startswith('ckpt')],
    )


# Cases


class Reference:
    """A run of a design that is not killed.

    Attributes:
      figures: as Watch.figures returns them.
      left: Left.
    """

    def __init__(self, folder: pathlib.Path, design: str):
        make_corpus(folder)
        done = start(folder, design)
        assert done.returncode == 0, done.stdout
        self.figures = json.loads(folder.with_suffix('.figures').read_text())
        self.left = left_in(folder, done.stdout)


class Outcome(NamedTuple):
    """What became of a case."""

    design: str
    kills: list[Moment]
    missed: int  # moments that a run did not reach, as it ended before
    differences: list[str]
    folder: pathlib.Path


def make_corpus(folder: pathlib.Path) -> None:
    """Makes the corpus of a run, with a second training set for linked corpora."""
    folder.mkdir()
    helpers.make_corpus(folder)
    (folder / 'second').mkdir()
    words = (folder / 'train.csv').read_text().replace('wav/', '../wav/').splitlines()
    (folder / 'second' / 'train.csv').write_text('\n'.join(words[:3]) + '\n')
    for name in ('dev.csv', 'test.csv'):
        (folder / 'second' / name).write_text(words[0] + '\n')


def draw_moment(rng: random.Random, figures: dict, number: int = signal.SIGKILL) -> Moment:
    """Draws when to kill a run: at any time, before a change of files, or in one of its parts."""
    usual = [part for part in figures if figures[part]]
    part = rng.choice([*usual, *[WHOLE, FILES] * 3])
    return Moment(part, rng.randrange(len(figures[part])), rng.random(), number)


def run_case(
    folder: pathlib.Path, design: str, seed: str, reference: Reference, number: int
) -> Outcome:
    """Kills a run, goes on with it, and compares what it leaves with the reference."""
    rng = random.Random(seed)
    make_corpus(folder)
    kills, missed, output = [], 0, ''
    for _ in range(rng.randint(1, MOST_KILLS)):
        moment = draw_moment(rng, reference.figures, number)
        done = start(folder, design, moment, reference.figures)
        output += done.stdout
        if done.returncode not in (-number, signals.STATUS):
            missed += 1
            break
        kills.append(moment)
    else:
        done = start(folder, design)
        output += done.stdout
    if done.returncode:
        differences = ['ended with %d: %s' % (done.returncode, done.stdout[-2000:])]
    else:
        differences = left_in(folder, output).differences(reference.left)
    (folder / 'output').write_text(output)
    return Outcome(design, kills, missed, differences, folder)


def campaign(
    folder: pathlib.Path,
    n_kills: int,
    seed: int,
    n_workers: int = 2,
    designs: tuple[str, ...] = tuple(DESIGNS),
    say=print,
    signal_number: int = signal.SIGKILL,
) -> list[Outcome]:
    """Runs cases until so many runs have been killed.

    Args:
      folder: an empty folder; those of cases that differ are kept in it.
      seed: which moments are drawn.
      n_workers: runs at a time.
      designs: keys of DESIGNS, which take turns.
      say: function that is called with a line on each case.
      signal_number: the signal that is sent.
    """
    multiprocessing.forkserver.ensure_running()
    outcomes: list[Outcome] = []
    with concurrent.futures.ThreadPoolExecutor(n_workers) as pool:
        made = pool.map(lambda design: Reference(folder / design, design), designs)
        references = dict(zip(designs, made))
        numbers = itertools.count()
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    if sum(len(outcome.kills) for outcome in outcomes) >= n_kills:
                        return
                    number = next(numbers)
                design = designs[number % len(designs)]
                place, drawn_from = folder / ('case%d' % number), '%d-%d' % (seed, number)
                reference = references[design]
                outcome = run_case(place, design, drawn_from, reference, signal_number)
                with lock:
                    outcomes.append(outcome)
                    say(_line(number, outcome))
                if not outcome.differences:
                    shutil.rmtree(place)

        for each in [pool.submit(work) for _ in range(n_workers)]:
            each.result()
    return outcomes


def _line(number, outcome):
    """Returns the line on a case."""
    moments = '; '.join(map(str, outcome.kills)) or 'ended before it was killed'
    verdict = 'equal' if not outcome.differences else 'DIFFERS, see %s' % outcome.folder
    lines = ['case %d, %s: %s: %s' % (number, outcome.design, verdict, moments)]
    return '\n    '.join(lines + outcome.differences)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--kills', type=int, default=200)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--workers', type=int, default=2)
    parser.add_argument('--designs', default=','.join(DESIGNS))
    parser.add_argument('--signal', default='SIGKILL', help='such as SIGTERM')
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix='kills-'))
    print('seed %d, folder %s' % (options.seed, folder), flush=True)
    started = time.monotonic()
    outcomes = campaign(
        folder,
        options.kills,
        options.seed,
        options.workers,
        tuple(options.designs.split(',')),
        functools.partial(print, flush=True),
        signal.Signals[options.signal],
    )
    killed = collections.Counter(kill.part for outcome in outcomes for kill in outcome.kills)
    for part, count in killed.most_common():
        print('%4d kills: %s' % (count, part))
    different = [outcome for outcome in outcomes if outcome.differences]
    n_equal, seconds = len(outcomes) - len(different), time.monotonic() - started
    print('%d kills' % killed.total())
    print('%d of %d cases equal bit for bit, %.0f s' % (n_equal, len(outcomes), seconds))
    if not different:
        shutil.rmtree(folder)
    return 1 if different else 0


if __name__ == '__main__':
    sys.exit(main())
