"""Prints how a long run grows: memory, threads, files and memory maps after each epoch.

python tests/faults/growth.py --epochs 300
"""

import argparse
import glob
import os
import pathlib
import sys
import tempfile
from typing import NamedTuple

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import helpers  # noqa: E402
import runs  # noqa: E402
from util import config  # noqa: E402

CURVE = 'growth.txt'  # file in the working folder of the run


class Size(NamedTuple):
    """The size of a process that trains, after an epoch."""

    epoch: int
    memory: int  # bytes, resident
    threads: int
    files: int  # open ones
    maps: int  # memory maps
    events: int  # bytes of the event files


def note(point, state):
    """Adds the Size to CURVE after each epoch; a hook of DeepSpeech.main."""
    if point != 'step' or state.epoch_step or not state.epoch:
        return
    size = Size(
        state.epoch,
        int(pathlib.Path('/proc/self/statm').read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE'),
        *(len(os.listdir('/proc/self/' + name)) for name in ('task', 'fd')),
        len(pathlib.Path('/proc/self/maps').read_text().splitlines()),
        sum(os.path.getsize(path) for path in glob.glob('logs/*/*/events*')),
    )
    with open(CURVE, 'a', encoding='utf-8') as file:
        file.write('%s\n' % ' '.join(map(str, size)))


def main_noting():
    """Runs DeepSpeech.py with `note` as its hook."""
    import DeepSpeech

    return DeepSpeech.main([], note)


def measure(folder: pathlib.Path, epochs: int, **values) -> list[Size]:
    """Returns the Size after each epoch but the last of a tiny run in a new folder."""
    helpers.make_corpus(folder)
    environment = config.environment_with(
        **{
            'importer': 'csv',
            'train_files': 'train.csv',
            'dev_files': 'dev.csv',
            'n_hidden': 16,
            'train_batch_size': 2,
            'epochs': epochs + 1,
            'checkpoint_step': 1,
            'report_count': 0,
            'checkpoint_dir': 'ckpt',
            'cache_dir': 'cache',
            **values,
        }
    )
    run = runs.run_forked(main_noting, folder=folder, environment=environment)
    assert run.returncode == 0, run.stdout
    lines = (folder / CURVE).read_text().splitlines()
    return [Size(*map(int, line.split())) for line in lines]


def main():
    """Measures and prints the curve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--epochs', type=int, default=300)
    epochs = parser.parse_args().epochs
    runs.RUN_LIMIT_S = 100 + 10 * epochs
    with tempfile.TemporaryDirectory() as folder:
        sizes = measure(pathlib.Path(folder), epochs)
    print('epoch  memory (MB)  threads  files  maps  event files (kB)')
    for size in sizes:
        if size.epoch <= 10 or size.epoch % 10 == 0:
            print(
                '%5d  %11.1f  %7d  %5d  %4d  %16.1f'
                % (size.epoch, size.memory / 1e6, *size[2:5], size.events / 1e3)
            )
    growth = sizes[-1].memory / sizes[min(9, len(sizes) - 1)].memory - 1
    print('memory after epoch %d against epoch 10: %+.2f %%' % (sizes[-1].epoch, 100 * growth))


if __name__ == '__main__':
    main()
