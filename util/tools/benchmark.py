"""Measures the trainer on this machine and compares it with its alternatives.

    python -m util.tools.benchmark [--json FILE] [--picture FILE]

measures training steps (forward, CTC, backward, Adam) of the notebook's network in several sizes:
with this project's LSTM, with BlockLSTM and, if PyTorch is installed, of the same network in
PyTorch. The paper's network (`ds_rnn=vanilla`) is measured against torch.nn.RNN. The beam search,
feeding, the start of a run and the latency of an exported model follow.

Each measurement runs in a process of its own, one after the other, and reports its fastest
repetition. All of it takes some ten minutes on two cores, which should have nothing else to do.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

if not __package__:  # run as a file, which leaves the project's folder out of sys.path
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from util import errors, files, log as run_log
from util.run import command
from util.tools import benchmark_measurements as measurements, benchmark_report as report
from util.tools.benchmark_measurements import LONG, MAIN, SHORT, SIZES, SMALL, VANILLA_SIZES

ROUNDS = {MAIN: 3}  # times that a size is measured, others once; the fastest counts


def main(arguments: list[str]) -> int:
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog='python -m util.tools.benchmark', description='Measures the trainer on this machine.'
    )
    parser.add_argument('--json', metavar='FILE', help='where to write the figures')
    parser.add_argument('--picture', metavar='FILE', help='where to draw the steps')
    parser.add_argument('--measure', metavar='SPEC', help=argparse.SUPPRESS)  # in its own process
    options = parser.parse_args(arguments)
    for path in filter(None, (options.json, options.picture)):  # before minutes of measuring
        if not os.access(os.path.dirname(path) or '.', os.W_OK):
            parser.error('%s cannot be written: its folder must exist and be writable' % path)
    try:
        if options.measure:
            name, values = json.loads(options.measure)
            print(json.dumps(measurements.MEASUREMENTS[name](*values)))
        else:
            _report(measure_all(), options)
    except errors.DeepSpeechError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    return 0


def _report(figures, options):
    """Prints the figures, and writes and draws them if the options say so."""
    print(report.table(figures))
    if options.json:
        try:
            files.write_file(options.json, run_log.strict_json(figures))
        except OSError as error:
            raise errors.DeepSpeechError(
                '%s cannot be written: %s' % (options.json, error.strerror)
            ) from None
    if options.picture:
        report.draw(figures, options.picture)


def measure_all() -> dict:
    """Makes all measurements and returns the figures that the JSON file holds."""
    figures: dict = {'cores': os.cpu_count(), 'peak_gflops': measure('peak'), 'steps': []}
    torch = ['torch'] * _has_torch()
    for size in (*SIZES, SMALL, SHORT, LONG):
        chosen = ['own'] + ['block'] * (size == MAIN) + torch * (size in SIZES)
        if size in VANILLA_SIZES:
            chosen += ['vanilla'] + ['torch vanilla'] * len(torch)
        rounds = [
            [measure('step', name, *size) for name in chosen]  # in turn, so that all fare alike
            for _ in range(ROUNDS.get(size, 1))
        ]
        for results in zip(*rounds):
            figures['steps'].append(min(results, key=lambda result: result['seconds']))
    for name in ('decoding', 'feeding', 'start', 'export'):
        figures[name] = measure(name)
    figures['ratios'] = report.ratios(figures)
    return figures


def _has_torch():
    """Tells whether PyTorch can be imported."""
    return (
        subprocess.run(
            [sys.executable, '-c', 'import torch'], check=False, stderr=subprocess.DEVNULL
        ).returncode
        == 0
    )


def measure(name: str, *values):
    """Makes a measurement in a process of its own and returns its result.

    Args:
      name: one of MEASUREMENTS.
      values: arguments of its function.
    Raises:
      DeepSpeechError: the measurement failed; the process has printed why.
    """
    spoken = ' '.join(map(str, (name, *values)))
    print('measuring %s' % spoken, file=sys.stderr)
    done = subprocess.run(
        [sys.executable, __file__, '--measure', json.dumps([name, values])],
        check=False,
        stdout=subprocess.PIPE,
    )
    if done.returncode:
        raise errors.DeepSpeechError(
            'the measurement of %s failed with exit status %d' % (spoken, done.returncode)
        )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == '__main__':
    command.run(main)
