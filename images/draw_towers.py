"""Draws towers.png: one training step on several GPUs.

    python images/draw_towers.py

writes it beside this file.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

import drawing as d

HEIGHT = 1060  # pixels

# The CPU surrounds the towers: a band above, a column at the right, a band below.
CPU = {
    'left': 20,
    'right': 1380,
    'bottom': 20,
    'top': 1040,
    'inner_bottom': 272,
    'inner_top': 738,
    'inner_right': 1205,
}

TOWERS = (('0', 205), ('1', 565), ('n\u22121', 1010))  # name and middle
DOTS_X = (TOWERS[1][1] + TOWERS[2][1]) / 2
TOWER_WIDTH = 320
TOWER_BOTTOM, TOWER_TOP = 312, 700
PORT = 85  # of batch and variables, from a tower's middle

# Rows of a tower, by their middle.
FORWARD_Y, LOSS_Y, BACKWARD_Y = 592, 488, 384
STAGE_WIDTH, STAGE_HEIGHT = 270, 56

# On the CPU.
QUEUE_X, QUEUE_Y, QUEUE_WIDTH, QUEUE_HEIGHT = 290, 920, 490, 116
QUEUE_EXIT_X = 205  # left of the variables' wires
N_QUEUED = 5  # utterances drawn
VARIABLES_X, VARIABLES_WIDTH = 890, 560
BATCH_BUS_Y, VARIABLE_BUS_Y = 775, 808
MEAN_Y, ADAM_Y, RESULT_WIDTH = 200, 82, 1125
UPDATE_X = 1290

BATCH_COLOR, BATCH_FILL = d.GREEN, d.PALE_GREEN
VARIABLE_COLOR, VARIABLE_FILL = d.BLUE, d.PALE_BLUE
GRADIENT_COLOR, GRADIENT_FILL = d.ORANGE, d.PALE_ORANGE
THICK = 3  # pixels


def draw_cpu(axes: Axes) -> None:
    """Draws the background that stands for the CPU."""
    left, right = CPU['left'], CPU['right']
    corners = [
        (left, CPU['bottom']),
        (right, CPU['bottom']),
        (right, CPU['top']),
        (left, CPU['top']),
        (left, CPU['inner_top']),
        (CPU['inner_right'], CPU['inner_top']),
        (CPU['inner_right'], CPU['inner_bottom']),
        (left, CPU['inner_bottom']),
        (left, CPU['bottom']),
    ]
    axes.add_patch(
        PathPatch(
            Path(corners, closed=True),
            facecolor=d.PALE_GREY,
            edgecolor=d.GREY,
            linewidth=d.points(1.5),
            joinstyle='round',
            zorder=d.PANEL_LEVEL,
        )
    )
    d.write(axes, 42, CPU['top'] - 28, 'CPU', align='left', weight='bold', size=d.LARGE)


def draw_queue(axes: Axes) -> None:
    """Draws the queue and the utterances waiting in it."""
    d.box(axes, QUEUE_X, QUEUE_Y, QUEUE_WIDTH, QUEUE_HEIGHT, fill=d.WHITE, edge=BATCH_COLOR)
    d.write(
        axes, QUEUE_X, QUEUE_Y + 35, 'queue of utterances: MFCC, labels, lengths', weight='bold'
    )
    for number in range(N_QUEUED):
        d.box(
            axes,
            QUEUE_X + 88 * (number - (N_QUEUED - 1) / 2),
            QUEUE_Y - 17,
            76,
            44,
            'utt.',
            fill=BATCH_FILL,
            edge=BATCH_COLOR,
            size=d.SMALL,
        )


def draw_variables(axes: Axes) -> None:
    """Draws the one copy of the variables."""
    d.box(
        axes,
        VARIABLES_X,
        QUEUE_Y,
        VARIABLES_WIDTH,
        QUEUE_HEIGHT,
        fill=VARIABLE_FILL,
        edge=VARIABLE_COLOR,
    )
    d.write(axes, VARIABLES_X, QUEUE_Y + 35, 'variables, one copy for all towers', weight='bold')
    d.write(
        axes,
        VARIABLES_X,
        QUEUE_Y - 17,
        'h1, b1, h2, b2, h3, b3, h5, b5, h6, b6;\n'
        'kernel and bias of the forward and the backward LSTM',
        linespacing=1.5,
    )


def draw_tower(axes: Axes, name: str, x: float) -> None:
    """Draws a tower and the three stages of its step."""
    d.panel(
        axes,
        x - TOWER_WIDTH / 2,
        TOWER_BOTTOM,
        TOWER_WIDTH,
        TOWER_TOP - TOWER_BOTTOM,
        fill=d.WHITE,
        edge=d.INK,
    )
    d.write(axes, x, TOWER_TOP - 26, 'tower ' + name, weight='bold')
    d.write(axes, x, TOWER_TOP - 50, 'GPU ' + name, size=d.SMALL)
    half = STAGE_HEIGHT / 2
    d.wire(axes, [(x, FORWARD_Y - half), (x, LOSS_Y + half)])
    d.wire(axes, [(x, LOSS_Y - half), (x, BACKWARD_Y + half)])
    for y, text in (
        (FORWARD_Y, 'forward\nlogits of its batch'),
        (LOSS_Y, 'CTC loss\nmean over its utterances'),
        (BACKWARD_Y, 'backward\ngradient of each variable'),
    ):
        d.box(axes, x, y, STAGE_WIDTH, STAGE_HEIGHT, text, linespacing=1.3)


def draw_towers(axes: Axes) -> None:
    """Draws the first two towers, the last one, and dots for those between."""
    for name, x in TOWERS:
        draw_tower(axes, name, x)
    d.write(axes, DOTS_X, LOSS_Y, '\u2026', size=2 * d.LARGE)


def draw_bus(axes: Axes, start: float, y: float, ends: Sequence[float], color: str) -> None:
    """Draws wires from `start` down to the line at `y` and on to the towers."""
    top = FORWARD_Y + STAGE_HEIGHT / 2
    d.wire(
        axes,
        [(start, QUEUE_Y - QUEUE_HEIGHT / 2), (start, y)],
        color=color,
        width=THICK,
        head=False,
    )
    d.wire(
        axes,
        [(min((start, *ends)), y), (max((start, *ends)), y)],
        color=color,
        width=THICK,
        head=False,
    )
    for x in ends:
        if y > BATCH_BUS_Y and x < TOWERS[-1][1]:
            d.interrupt(axes, x, BATCH_BUS_Y, background=d.PALE_GREY)
        d.wire(axes, [(x, y), (x, top)], color=color, width=THICK)


def draw_inputs(axes: Axes) -> None:
    """Draws the batch and the variables that go to each tower."""
    middles = [x for _, x in TOWERS]
    draw_bus(axes, QUEUE_EXIT_X, BATCH_BUS_Y, [x - PORT for x in middles], BATCH_COLOR)
    draw_bus(axes, VARIABLES_X, VARIABLE_BUS_Y, [x + PORT for x in middles], VARIABLE_COLOR)
    for x in middles:
        d.write(
            axes,
            x - PORT - 10,
            CPU['inner_top'] - 19,
            'batch',
            align='right',
            size=d.SMALL,
            color=BATCH_COLOR,
        )
        d.write(
            axes,
            x + PORT - 10,
            CPU['inner_top'] - 19,
            'variables',
            align='right',
            size=d.SMALL,
            color=VARIABLE_COLOR,
        )


def draw_gradients(axes: Axes) -> None:
    """Draws the gradients coming in, their mean and the one update."""
    left = TOWERS[0][1] - TOWER_WIDTH / 2
    middle = left + RESULT_WIDTH / 2
    for name, x in TOWERS:
        d.wire(
            axes,
            [(x, BACKWARD_Y - STAGE_HEIGHT / 2), (x, MEAN_Y + 36)],
            color=GRADIENT_COLOR,
            width=THICK,
        )
        d.write(
            axes,
            x + 12,
            CPU['inner_bottom'] + 18,
            'gradients $g_{%s}$' % name,
            align='left',
            size=d.SMALL,
            color=GRADIENT_COLOR,
        )
    d.box(axes, middle, MEAN_Y, RESULT_WIDTH, 72, fill=GRADIENT_FILL, edge=GRADIENT_COLOR)
    d.write(
        axes,
        middle,
        MEAN_Y + 16,
        'mean of the gradients of each variable, weighted by the number of utterances',
        weight='bold',
    )
    d.write(
        axes,
        middle,
        MEAN_Y - 15,
        r'$g = \Sigma_k\, m_k\, g_k \;/\; '
        r'\Sigma_k\, m_k$     ($m_k$: utterances in the batch of tower $k$)',
    )
    d.wire(axes, [(middle, MEAN_Y - 36), (middle, ADAM_Y + 28)], color=GRADIENT_COLOR, width=THICK)


def draw_update(axes: Axes) -> None:
    """Draws Adam and the way back to the variables."""
    left = TOWERS[0][1] - TOWER_WIDTH / 2
    d.box(
        axes,
        left + RESULT_WIDTH / 2,
        ADAM_Y,
        RESULT_WIDTH,
        56,
        'Adam: one update of the variables a step, once every tower is done',
        weight='bold',
        fill=VARIABLE_FILL,
        edge=VARIABLE_COLOR,
    )
    d.wire(
        axes,
        [
            (left + RESULT_WIDTH, ADAM_Y),
            (UPDATE_X, ADAM_Y),
            (UPDATE_X, QUEUE_Y),
            (VARIABLES_X + VARIABLES_WIDTH / 2, QUEUE_Y),
        ],
        color=VARIABLE_COLOR,
        width=THICK,
    )
    d.write(
        axes,
        UPDATE_X + 22,
        (CPU['inner_bottom'] + CPU['inner_top']) / 2,
        'updated variables',
        rotation=270,
        color=VARIABLE_COLOR,
    )


def main() -> None:
    """Draws the picture beside this file."""
    d.render(
        d.picture_path(__file__, 'towers.png'),
        HEIGHT,
        draw_cpu,
        draw_queue,
        draw_variables,
        draw_towers,
        draw_inputs,
        draw_gradients,
        draw_update,
    )


if __name__ == '__main__':
    main()
