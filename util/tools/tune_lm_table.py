"""The table of `tune_lm`: the WER for each pair of weights, as text and as a picture."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from util import text
from util.tools import pictures

SMALLEST, LARGEST = (6, 3), (14, 10)  # inches, width and height of the picture
SHOWN_TICKS = 20  # weights that are named on an axis; of more, every second, third ...
SHOWN_CELLS = 150  # cells of the picture up to which the numbers stand in them


class Table(NamedTuple):
    """The error rates of all pairs of weights."""

    alphas: list[float]
    betas: list[float]
    rates: list[list[text.ErrorRates]]  # a row for each alpha, a column for each beta
    without: text.ErrorRates  # those of the beam search without a language model
    n_utterances: int


class Best(NamedTuple):
    """The best pair of weights."""

    alpha: float
    beta: float
    rates: text.ErrorRates


def best(table: Table) -> Best:
    """Returns the pair with the fewest word errors; of equal ones it is that with the smallest
    weights: the smallest sum of their absolute values, then the smallest alpha."""
    pairs = [
        Best(alpha, beta, rates)
        for alpha, row in zip(table.alphas, table.rates)
        for beta, rates in zip(table.betas, row)
    ]
    return min(
        pairs,
        key=lambda each: (errors_of(each.rates), abs(each.alpha) + abs(each.beta), each.alpha),
    )


def errors_of(rates: text.ErrorRates) -> int:
    """Returns the number of word errors."""
    return rates.insertions + rates.deletions + rates.substitutions


def report(table: Table, command: str) -> Iterator[str]:
    """Yields the lines of the report.

    Args:
      table: Table.
      command: the settings of the language model but for the weights, ds_lm=... and so on.
    """
    found = best(table)
    yield '%d utterances; WER in %%:' % table.n_utterances
    yield ''
    yield '%8s' % 'alpha' + ''.join('%9s' % ('beta %g' % beta) for beta in table.betas)
    for alpha, row in zip(table.alphas, table.rates):
        cells = [
            '%8.2f%s' % (100 * rates.wer, '*' if (alpha, beta) == found[:2] else ' ')
            for beta, rates in zip(table.betas, row)
        ]
        yield ('%8g' % alpha + ''.join(cells)).rstrip()
    yield ''
    yield 'without: %s' % figures(table.without)
    yield 'best:    %s, alpha %g, beta %g' % (figures(found.rates), found.alpha, found.beta)
    yield from _edges(table, found)
    yield 'settings: %s ds_lm_alpha=%g ds_lm_beta=%g' % (command, found.alpha, found.beta)
    yield 'options:  --lm-alpha %g --lm-beta %g' % (found.alpha, found.beta)


def figures(rates: text.ErrorRates) -> str:
    """Returns 'WER 4.17% [10/240: 0 ins, 0 del, 10 sub], CER 1.16%'."""
    return 'WER %.2f%% [%d/%d: %d ins, %d del, %d sub], CER %.2f%%' % (
        100 * rates.wer,
        errors_of(rates),
        rates.words,
        rates.insertions,
        rates.deletions,
        rates.substitutions,
        100 * rates.cer,
    )


def _edges(table, found):
    """Yields a line if the best pair is at the edge of the table, beyond which a better one may
    lie."""
    if len({errors_of(rates) for row in table.rates for rates in row}) == 1:
        return
    for name, value, tried in (
        ('alpha', found.alpha, table.alphas),
        ('beta', found.beta, table.betas),
    ):
        beyond = 'larger' if value == tried[-1] else 'smaller' if value == tried[0] else None
        if len(tried) > 1 and beyond and (value or name == 'beta'):  # no alpha is below 0
            yield '         %s %g is at the edge of the table; try %s %ss' % (
                name,
                value,
                beyond,
                name,
            )


# The picture


def draw(table: Table, path: str) -> None:
    """Draws the table as a heat map into a picture file.

    Raises:
      DeepSpeechError: matplotlib is not installed, the file cannot be written, or its ending names
        no format of pictures.
    """
    pyplot = pictures.pyplot()
    size = np.clip([2.6 + 0.75 * len(table.betas), 2 + 0.45 * len(table.alphas)], SMALLEST, LARGEST)
    figure, axes = pyplot.subplots(figsize=size, layout='constrained')
    _draw_cells(figure, axes, table)
    pictures.save(figure, path, dpi=150)


def _draw_cells(figure, axes, table):
    """Draws the cells, a mark around the best one, and the scale of colours."""
    found, wer = best(table), 100 * np.array([[each.wer for each in row] for row in table.rates])
    image = axes.imshow(wer, cmap='viridis_r', aspect='auto')
    axes.set(xlabel='beta', ylabel='alpha')
    axes.set_xticks(*_ticks(table.betas))
    axes.set_yticks(*_ticks(table.alphas))
    if wer.size <= SHOWN_CELLS:
        middle = (wer.min() + wer.max()) / 2
        for (row, column), value in np.ndenumerate(wer):
            color = 'white' if value > middle else 'black'
            axes.text(column, row, '%.2f' % value, ha='center', va='center', color=color)
    row, column = table.alphas.index(found.alpha), table.betas.index(found.beta)
    axes.add_patch(_frame(row, column))
    figure.suptitle(
        'best: WER %.2f %% at alpha %g, beta %g; without: %.2f %%'
        % (100 * found.rates.wer, found.alpha, found.beta, 100 * table.without.wer)
    )
    figure.colorbar(image, label='WER in %')


def _ticks(weights):
    """Returns (places, names) of the weights on an axis."""
    every = -(-len(weights) // SHOWN_TICKS)
    return range(0, len(weights), every), ['%g' % weight for weight in weights[::every]]


def _frame(row, column):
    """Returns the frame of a cell."""
    from matplotlib import patches

    return patches.Rectangle(
        (column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor='red', linewidth=2.5, clip_on=False
    )
