"""The benchmark: its arithmetic and its report, and each of its measurements in a small size."""

import pytest

from util import errors
from util.tools import benchmark, benchmark_measurements as measurements, benchmark_report as report

FIGURES = {
    'cores': 2,
    'peak_gflops': 300.0,
    'steps': [
        {
            'implementation': name,
            **size._asdict(),
            'seconds': seconds,
            'memory_mb': memory,
            'process_mb': memory + 300,
        }
        for name, size, seconds, memory in (
            ('own', measurements.MAIN, 1.0, 500),
            ('torch', measurements.MAIN, 1.25, 625),
            ('block', measurements.MAIN, 2.5, 700),
            ('own', measurements.SIZES[1], 4.0, 900),
            ('own', measurements.SMALL, 0.5, 300),
            ('own', measurements.SHORT, 0.3, 300),
            ('own', measurements.LONG, 2.4, 900),
            ('vanilla', measurements.MAIN, 0.3, 250),
            ('torch vanilla', measurements.MAIN, 0.6, 300),
        )
    ],
    'decoding': {
        'seconds': {'ours': 1.0, 'one_operation': 2.0},
        'identical': True,
        'audio_seconds': 48.0,
    },
    'feeding': {'seconds': {'computed': 2.0, 'cached': 0.5}, 'audio_seconds': 100.0},
    'start': {'seconds': 5.0},
    'export': {'seconds': {'1': 0.05, '5': 0.25}},
}


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.setattr(report, 'SIZES', measurements.SIZES[:2])
    return dict(FIGURES, ratios=report.ratios(FIGURES))


def test_operations_of_a_step_by_hand():
    # layers 494 x 2, 2 x 2, 2 x 4, two directions of (4 + 2) x 8, 4 x 2, 2 x 29; batch 3, 5 steps
    weights = 988 + 4 + 8 + 2 * 48 + 8 + 58
    assert measurements.step_flop(measurements.Size(2, 3, 5)) == 2 * 15 * (3 * weights - 988)
    assert measurements.step_flop(measurements.MAIN) == pytest.approx(209e9, rel=0.01)
    # the paper's network: layers 494 x 2, 2 x 2, 2 x 2, 2 x 2 and twice 2 x 2, 2 x 2, 2 x 29
    weights = 988 + 4 + 4 + 3 * 4 + 4 + 58
    assert measurements.step_flop(measurements.Size(2, 3, 5), True) == 2 * 15 * (3 * weights - 988)


def test_ratios(figures):
    assert list(figures['ratios'].values()) == pytest.approx(
        [0.8, 0.5, 0.8, 0.4, 1 / 8.1, 8, 8, 0.5]
    )


def test_table_and_picture(figures, tmp_path):
    lines = report.table(figures).splitlines()
    assert lines[0].split() == [
        'measurement',
        'ms',
        'audio',
        's/s',
        'GFLOP/s',
        'of',
        'peak',
        'memory',
    ]
    own = [line for line in lines if line.startswith('step, own, 494 wide, 16 x 300')][0].split()
    assert own[-7:] == ['1000.0', '48', '209', '70', '%', '500', 'MB']
    assert ' 0.80  ratio: step, PyTorch, 494 wide, 16 x 300' in lines
    report.draw(figures, str(tmp_path / 'steps.png'))
    with open(tmp_path / 'steps.png', 'rb') as picture:
        assert picture.read(4) == b'\x89PNG'


@pytest.mark.parametrize('option', ['--json', '--picture'])
def test_a_file_that_cannot_be_written_is_found_before_measuring(tmp_path, capsys, option):
    with pytest.raises(SystemExit):
        benchmark.main([option, str(tmp_path / 'nowhere' / 'x')])
    assert 'nowhere/x cannot be written' in capsys.readouterr().err


def assert_measured(step, implementation):
    """Asserts what must hold of the figures of a step 8 wide, 3 x 11."""
    assert (step['implementation'], step['n_hidden'], step['batch_size'], step['n_steps']) == (
        implementation,
        8,
        3,
        11,
    )
    assert 0 < step['seconds'] < 60 and step['process_mb'] > step['memory_mb'] > 0


@pytest.mark.run
def test_a_step_is_measured_in_a_process_of_its_own():
    assert_measured(benchmark.measure('step', 'own', 8, 3, 11), 'own')


@pytest.mark.parametrize('implementation', ['block', 'vanilla'])
def test_a_step_of_another_implementation_is_measured(implementation):
    assert_measured(measurements.measure_step(implementation, 8, 3, 11), implementation)


@pytest.fixture
def small(monkeypatch):
    """Measures less, and but once."""
    monkeypatch.setattr(measurements, 'MAIN', measurements.Size(8, 3, 11))
    monkeypatch.setattr(measurements, 'PEAK_SIZE', 16)
    monkeypatch.setattr(measurements, 'EXPORT_SECONDS', (1,))
    monkeypatch.setattr(measurements, 'MIN_TIMES', 1)
    monkeypatch.setattr(measurements, 'MAX_TIMES', 1)


def test_the_peak_is_measured(small):
    assert measurements.measure_peak() > 0


def test_decoding_is_measured(small):
    decoding = measurements.measure_decoding()
    assert list(decoding['seconds']) == ['ours', 'one_operation']
    assert min(decoding['seconds'].values()) > 0
    assert decoding['identical'] is True
    assert decoding['audio_seconds'] == pytest.approx(0.33)


def test_an_exported_model_is_measured(small):
    [(length, seconds)] = measurements.measure_export()['seconds'].items()
    assert length == '1' and 0 < seconds < 60


def test_a_measurement_that_fails_is_an_error():
    with pytest.raises(errors.DeepSpeechError) as error:
        benchmark.measure('nothing', 8)
    assert str(error.value) == 'the measurement of nothing 8 failed with exit status 1'


def test_a_picture_that_cannot_be_drawn_is_an_error(figures, tmp_path):
    with pytest.raises(errors.DeepSpeechError, match='steps.nonsense cannot be written: '):
        report.draw(figures, str(tmp_path / 'steps.nonsense'))


def test_feeding_is_measured():
    feeding = measurements.measure_feeding()
    assert feeding['audio_seconds'] == pytest.approx(967.2, abs=0.1)
    assert feeding['seconds']['computed'] > feeding['seconds']['cached'] > 0


@pytest.mark.run
def test_the_start_is_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it must not matter
    assert 0 < benchmark.measure('start')['seconds'] < 300
