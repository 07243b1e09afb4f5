"""The benchmark: its arithmetic and its report, and each of its measurements in a small size."""
import json
import os
import subprocess
import sys

import pytest

from helpers import PROJECT
from util.tools import benchmark

FIGURES = {
    'cores': 2, 'peak_gflops': 300.0,
    'steps': [{'implementation': name, **size._asdict(), 'seconds': seconds, 'memory_mb': memory,
               'process_mb': memory + 300}
              for name, size, seconds, memory in (
                  ('own', benchmark.MAIN, 1.0, 500), ('torch', benchmark.MAIN, 1.25, 625),
                  ('block', benchmark.MAIN, 2.5, 700), ('own', benchmark.SIZES[1], 4.0, 900),
                  ('own', benchmark.SMALL, 0.5, 300), ('own', benchmark.SHORT, 0.3, 300),
                  ('own', benchmark.LONG, 2.4, 900), ('vanilla', benchmark.MAIN, 0.3, 250),
                  ('torch vanilla', benchmark.MAIN, 0.6, 300))],
    'decoding': {'seconds': {'ours': 1.0, 'one_operation': 2.0}, 'identical': True,
                 'audio_seconds': 48.0},
    'feeding': {'seconds': {'computed': 2.0, 'cached': 0.5}, 'audio_seconds': 100.0},
    'start': {'seconds': 5.0}, 'export': {'seconds': {'1': 0.05, '5': 0.25}}}


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.setattr(benchmark, 'SIZES', benchmark.SIZES[:2])
    return dict(FIGURES, ratios=benchmark._ratios(FIGURES))


def test_operations_of_a_step_by_hand():
    # layers 494 x 2, 2 x 2, 2 x 4, two directions of (4 + 2) x 8, 4 x 2, 2 x 29; batch 3, 5 steps
    weights = 988 + 4 + 8 + 2 * 48 + 8 + 58
    assert benchmark.step_flop(benchmark.Size(2, 3, 5)) == 2 * 15 * (3 * weights - 988)
    assert benchmark.step_flop(benchmark.MAIN) == pytest.approx(209e9, rel=0.01)
    # the paper's network: layers 494 x 2, 2 x 2, 2 x 2, 2 x 2 and twice 2 x 2, 2 x 2, 2 x 29
    weights = 988 + 4 + 4 + 3 * 4 + 4 + 58
    assert benchmark.step_flop(benchmark.Size(2, 3, 5), True) == 2 * 15 * (3 * weights - 988)


def test_ratios(figures):
    assert list(figures['ratios'].values()) == pytest.approx(
        [0.8, 0.5, 0.8, 0.4, 1 / 8.1, 8, 8, 0.5])


def test_table_and_picture(figures, tmp_path):
    lines = benchmark.table(figures).splitlines()
    assert lines[0].split() == 'measurement ms audio s/s GFLOP/s of peak memory'.split()
    own = [line for line in lines if line.startswith('step, own, 494 wide, 16 x 300')][0].split()
    assert own[-7:] == ['1000.0', '48', '209', '70', '%', '500', 'MB']
    assert ' 0.80  ratio: step, PyTorch, 494 wide, 16 x 300' in lines
    benchmark.draw(figures, str(tmp_path / 'steps.png'))
    with open(tmp_path / 'steps.png', 'rb') as picture:
        assert picture.read(4) == b'\x89PNG'


@pytest.mark.parametrize('option', ['--json', '--picture'])
def test_a_file_that_cannot_be_written_is_found_before_measuring(tmp_path, capsys, option):
    with pytest.raises(SystemExit):
        benchmark.main([option, str(tmp_path / 'nowhere' / 'x')])
    assert 'nowhere/x cannot be written' in capsys.readouterr().err


@pytest.mark.parametrize('implementation', ['own', 'block', 'vanilla'])
def test_a_step_is_measured_in_a_process_of_its_own(implementation):
    command = [sys.executable, '-m', 'util.tools.benchmark', '--measure',
               json.dumps(['step', [implementation, 8, 3, 11]])]
    done = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, check=True,
                          env=dict(os.environ, PYTHONPATH=PROJECT))
    step = json.loads(done.stdout.splitlines()[-1])
    assert (step['implementation'], step['n_hidden'], step['batch_size'], step['n_steps']) == (
        implementation, 8, 3, 11)
    assert 0 < step['seconds'] < 60 and step['process_mb'] > step['memory_mb'] > 0


def test_feeding_and_start_are_measured():
    feeding = benchmark._measure('feeding')
    assert feeding['audio_seconds'] == pytest.approx(967.2, abs=0.1)
    assert feeding['seconds']['computed'] > feeding['seconds']['cached'] > 0
    assert 0 < benchmark._measure('start')['seconds'] < 300
