"""Presents the figures of the benchmark: ratios, a table, a picture."""

from util.tools import pictures
from util.tools.benchmark_measurements import (
    FRAMES_A_SECOND,
    LONG,
    MAIN,
    SHORT,
    SIZES,
    SMALL,
    VANILLA_SIZES,
    Size,
    step_flop,
)

NOTEBOOK_STEP_S = 8.1  # MAIN under TensorFlow 0.12.1, on the two cores of the first figures
COLUMNS = ('measurement', 'ms', 'audio s/s', 'GFLOP/s', 'of peak', 'memory')


def _step(figures, size, implementation='own'):
    """Returns the figures of a step, or None if it was not measured."""
    for step in figures['steps']:
        if step['implementation'] == implementation and all(
            step[name] == value for name, value in size._asdict().items()
        ):
            return step
    return None


def ratios(figures: dict) -> dict[str, float]:
    """Returns {comparison: ratio}; below 1, this project is faster or needs less memory."""
    main, found = _step(figures, MAIN), {}
    for size in SIZES:
        ours, other = _step(figures, size), _step(figures, size, 'torch')
        if other:
            found['step, PyTorch, %s' % _words(size)] = ours['seconds'] / other['seconds']
    for size in VANILLA_SIZES:
        ours, other = (_step(figures, size, name) for name in ('vanilla', 'torch vanilla'))
        if ours and other:
            found["step of the paper's network, torch.nn.RNN, %s" % _words(size)] = (
                ours['seconds'] / other['seconds']
            )
    if _step(figures, MAIN, 'torch'):
        found['memory of the step, PyTorch, %s' % _words(MAIN)] = (
            main['memory_mb'] / _step(figures, MAIN, 'torch')['memory_mb']
        )
    found['step, BlockLSTM, %s' % _words(MAIN)] = (
        main['seconds'] / _step(figures, MAIN, 'block')['seconds']
    )
    found['step, notebook (%.1f s), %s' % (NOTEBOOK_STEP_S, _words(MAIN))] = (
        main['seconds'] / NOTEBOOK_STEP_S
    )
    found['8 times the steps'] = _step(figures, LONG)['seconds'] / _step(figures, SHORT)['seconds']
    found['8 times the batch'] = (
        _step(figures, SIZES[1])['seconds'] / _step(figures, SMALL)['seconds']
    )
    seconds = figures['decoding']['seconds']
    found['beam search, one operation'] = seconds['ours'] / seconds['one_operation']
    return found


def _words(size):
    """Returns a Size in words."""
    return '%d wide, %d x %d' % size


def table(figures: dict) -> str:
    """Returns the figures as lines of text: a table, then the ratios."""
    peak = figures['peak_gflops']
    rows = [COLUMNS, ('matrix product', '', '', '%.0f' % peak, '100 %', '')]
    for step in figures['steps']:
        size = Size(*[step[name] for name in Size._fields])
        gflops = step_flop(size, 'vanilla' in step['implementation']) / step['seconds'] / 1e9
        rows.append(
            (
                'step, %s, %s' % (step['implementation'], _words(size)),
                '%.1f' % (1e3 * step['seconds']),
                '%.0f' % (size.batch_size * size.n_steps / FRAMES_A_SECOND / step['seconds']),
                '%.0f' % gflops,
                '%.0f %%' % (100 * gflops / peak),
                '%.0f MB' % step['memory_mb'],
            )
        )
    for name in ('decoding', 'feeding'):
        for kind, seconds in figures[name]['seconds'].items():
            rows.append(
                (
                    '%s, %s' % (name, kind.replace('_', ' ')),
                    '%.1f' % (1e3 * seconds),
                    '%.0f' % (figures[name]['audio_seconds'] / seconds),
                    '',
                    '',
                    '',
                )
            )
    rows.append(
        ('start to the first step', '%.0f' % (1e3 * figures['start']['seconds']), '', '', '', '')
    )
    for length, seconds in figures['export']['seconds'].items():
        rows.append(
            (
                'exported model, %s s of audio' % length,
                '%.1f' % (1e3 * seconds),
                '%.0f' % (int(length) / seconds),
                '',
                '',
                '',
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        '  '.join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        )
        for row in rows
    ]
    return '\n'.join(
        lines
        + ['']
        + ['%5.2f  ratio: %s' % (ratio, what) for what, ratio in figures['ratios'].items()]
    )


def draw(figures: dict, path: str) -> None:
    """Draws the steps of all sizes as bars into a picture file.

    The height is the time relative to PyTorch's step of the same size, or to this project's if
    PyTorch was not measured.

    Raises:
      DeepSpeechError: the file cannot be written, or its ending names no format of pictures.
    """
    figure, axes = pictures.pyplot().subplots(figsize=(9, 4))
    bars = [
        (
            name,
            index,
            _step(figures, size, name)['seconds']
            / (_step(figures, size, 'torch') or _step(figures, size))['seconds'],
        )
        for index, size in enumerate(SIZES)
        for name in ('own', 'torch', 'block')
        if _step(figures, size, name)
    ]
    styles = {
        'own': ('this project', '#2a6fbb', -0.27),
        'torch': ('PyTorch', '#999999', 0),
        'block': ('TensorFlow, BlockLSTM', '#e0a030', 0.27),
    }
    for name, (label, color, offset) in styles.items():
        mine = [(index + offset, ratio) for which, index, ratio in bars if which == name]
        if mine:
            positions, heights = zip(*mine)
            drawn = axes.bar(positions, heights, width=0.26, color=color, label=label)
            axes.bar_label(drawn, fmt='%.2f', fontsize=8)
    axes.set_xticks(range(len(SIZES)), ['%d wide\n%d x %d' % size for size in SIZES])
    axes.set_ylabel('time of a training step, relative')
    axes.set_title('Training step on %d cores: width, batch x time steps' % figures['cores'])
    axes.spines[['top', 'right']].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    pictures.save(figure, path, dpi=120)
