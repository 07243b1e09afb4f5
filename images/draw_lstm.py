"""Draws lstm.png: the chain of LSTM cells, the middle one opened.

    python images/draw_lstm.py

writes it beside this file.
"""

from matplotlib.axes import Axes

import drawing as d

HEIGHT = 985  # pixels

# Each cell: its step, its left edge and its right edge.
BEFORE, OPENED, AFTER = ('t-1', 78, 208), ('t', 298, 1102), ('t+1', 1192, 1322)
CELL_BOTTOM, CELL_TOP = 330, 855
STATE_Y = 790  # the upper line, the cell state
OUTPUT_Y = 390  # the lower line, the output
X_LABEL_Y, H_LABEL_Y = 268, 935

# Inside the opened cell.
JOIN_X, JOIN_WIDTH = 430, 130  # [x_t, h_{t-1}]
KERNEL_Y, KERNEL_HEIGHT = 480, 68
GATE_Y, GATE_HEIGHT, GATE_WIDTH = 592, 46, 148
# The gates in the order of the kernel's columns.
GATES = (
    ('i', 'input', 'sigmoid(i)', 430),
    ('j', 'cell input', 'tanh(j)', 590),
    ('f', 'forget', 'sigmoid(f + 1)', 750),
    ('o', 'output', 'sigmoid(o)', 910),
)
GATE_X = {name: x for name, _, _, x in GATES}
KERNEL_LEFT, KERNEL_RIGHT = 356, 984
PRODUCT_X, PRODUCT_Y, PRODUCT_BEND_Y = 510, 676, 726  # sigmoid(i) * tanh(j)
SUM_X = 834
TANH_X, TANH_Y = 1000, 732
EXIT_X, EXIT_Y = 1058, 660  # sigmoid(o) * tanh(c_t)
RADIUS = 17

STATE_COLOR, OUTPUT_COLOR = d.ORANGE, d.BLUE
THICK = 3  # pixels, of the two lines that run through the cells


def draw_frames(axes: Axes) -> None:
    """Draws the frames of the three cells; only the middle one is opened."""
    for _, left, right in (BEFORE, OPENED, AFTER):
        d.panel(axes, left, CELL_BOTTOM, right - left, CELL_TOP - CELL_BOTTOM, edge=d.GREY)
    draw_closed(axes, BEFORE)
    draw_closed(axes, AFTER)


def draw_closed(axes: Axes, cell: tuple[str, float, float]) -> None:
    """Draws the input and output of a cell that is not opened."""
    step, left, right = cell
    middle = (left + right) / 2
    d.write(
        axes,
        middle,
        (STATE_Y + OUTPUT_Y) / 2,
        'LSTM cell,\nthe same\nkernel\nand bias',
        size=d.SMALL,
        linespacing=1.4,
    )
    d.write(axes, middle, X_LABEL_Y, '$x_{%s}$' % step, size=d.LARGE)
    d.write(axes, middle, H_LABEL_Y, '$h_{%s}$' % step, size=d.LARGE, color=OUTPUT_COLOR)
    d.wire(axes, [(middle, X_LABEL_Y + 18), (middle, CELL_BOTTOM)])
    d.wire(axes, [(middle, CELL_TOP), (middle, H_LABEL_Y - 18)], color=OUTPUT_COLOR, width=THICK)


def draw_links(axes: Axes) -> None:
    """Draws the lines between the cells and names what they carry."""
    stops = (12, BEFORE[1], BEFORE[2], OPENED[1], OPENED[2], AFTER[1], AFTER[2], d.WIDTH - 12)
    steps = ('t-2', 't-1', 't', 't+1')
    for name, y, color in (('c', STATE_Y, STATE_COLOR), ('h', OUTPUT_Y, OUTPUT_COLOR)):
        for step, left, right in zip(steps, stops[::2], stops[1::2]):
            d.wire(axes, [(left, y), (right, y)], color=color, width=THICK, head=right != OPENED[1])
            d.write(
                axes,
                (left + right) / 2 - 2,
                y + 22,
                '$%s_{%s}$' % (name, step),
                size=d.LARGE,
                color=color,
            )


def draw_kernel(axes: Axes) -> None:
    """Draws the joined input, the product with the kernel and its four parts."""
    d.wire(
        axes,
        [(OPENED[1], OUTPUT_Y), (JOIN_X - JOIN_WIDTH / 2, OUTPUT_Y)],
        color=OUTPUT_COLOR,
        width=THICK,
    )
    d.wire(axes, [(JOIN_X, X_LABEL_Y + 18), (JOIN_X, OUTPUT_Y - 20)])
    d.write(axes, JOIN_X, X_LABEL_Y, '$x_t$', size=d.LARGE)
    d.box(axes, JOIN_X, OUTPUT_Y, JOIN_WIDTH, 40, '$[x_t, h_{t-1}]$', size=d.LARGE)
    bottom, top = KERNEL_Y - KERNEL_HEIGHT / 2, KERNEL_Y + KERNEL_HEIGHT / 2
    d.wire(axes, [(JOIN_X, OUTPUT_Y + 20), (JOIN_X, bottom)])
    d.box(
        axes, (KERNEL_LEFT + KERNEL_RIGHT) / 2, KERNEL_Y, KERNEL_RIGHT - KERNEL_LEFT, KERNEL_HEIGHT
    )
    d.write(
        axes,
        (KERNEL_LEFT + KERNEL_RIGHT) / 2,
        KERNEL_Y - 14,
        r'$[x_t, h_{t-1}]$ · kernel [input + cell, 4·cell] + bias [4·cell]',
    )
    for name, _, _, x in GATES:
        d.write(axes, x, KERNEL_Y + 15, name, weight='bold')
        d.wire(axes, [(x, top), (x, GATE_Y - GATE_HEIGHT / 2)])


def draw_gates(axes: Axes) -> None:
    """Draws the four activations and their names."""
    for _, meaning, text, x in GATES:
        d.box(axes, x, GATE_Y, GATE_WIDTH, GATE_HEIGHT, text)
        d.write(axes, x + 9, GATE_Y - 42, meaning, align='left', size=d.SMALL)


def draw_state(axes: Axes) -> None:
    """Draws the upper line: forget, then add what the input gate lets in."""
    top = GATE_Y + GATE_HEIGHT / 2
    for name, side in (('i', -RADIUS), ('j', RADIUS)):
        d.wire(
            axes, [(GATE_X[name], top), (GATE_X[name], PRODUCT_Y), (PRODUCT_X + side, PRODUCT_Y)]
        )
    d.wire(
        axes,
        [
            (PRODUCT_X, PRODUCT_Y + RADIUS),
            (PRODUCT_X, PRODUCT_BEND_Y),
            (SUM_X, PRODUCT_BEND_Y),
            (SUM_X, STATE_Y - RADIUS),
        ],
    )
    d.interrupt(axes, GATE_X['f'], PRODUCT_BEND_Y, background=d.PALE_GREY)
    d.wire(axes, [(GATE_X['f'], top), (GATE_X['f'], STATE_Y - RADIUS)])
    for left, right in ((OPENED[1], GATE_X['f'] - RADIUS), (GATE_X['f'] + RADIUS, SUM_X - RADIUS)):
        d.wire(axes, [(left, STATE_Y), (right, STATE_Y)], color=STATE_COLOR, width=THICK)
    d.wire(
        axes,
        [(SUM_X + RADIUS, STATE_Y), (OPENED[2], STATE_Y)],
        color=STATE_COLOR,
        width=THICK,
        head=False,
    )
    d.operator(axes, PRODUCT_X, PRODUCT_Y, '×', radius=RADIUS)
    d.operator(axes, GATE_X['f'], STATE_Y, '×', radius=RADIUS)
    d.operator(axes, SUM_X, STATE_Y, '+', radius=RADIUS)
    d.write(
        axes,
        (OPENED[1] + GATE_X['f']) / 2,
        STATE_Y + 24,
        'cell state',
        color=STATE_COLOR,
        size=d.SMALL,
    )


def draw_output(axes: Axes) -> None:
    """Draws the output: up out of the cell, and on to the next one."""
    d.branch(axes, TANH_X, STATE_Y, color=STATE_COLOR)
    d.wire(axes, [(TANH_X, STATE_Y), (TANH_X, TANH_Y + 20)], color=STATE_COLOR)
    d.wire(axes, [(TANH_X, TANH_Y - 20), (TANH_X, EXIT_Y + RADIUS)])
    d.wire(
        axes,
        [(GATE_X['o'], GATE_Y + GATE_HEIGHT / 2), (GATE_X['o'], EXIT_Y), (TANH_X - RADIUS, EXIT_Y)],
    )
    d.box(axes, TANH_X, TANH_Y, 76, 40, 'tanh')
    d.wire(
        axes,
        [(TANH_X + RADIUS, EXIT_Y), (EXIT_X, EXIT_Y), (EXIT_X, OUTPUT_Y), (OPENED[2], OUTPUT_Y)],
        color=OUTPUT_COLOR,
        width=THICK,
        head=False,
    )
    d.branch(axes, EXIT_X, EXIT_Y, color=OUTPUT_COLOR)
    d.interrupt(axes, EXIT_X, STATE_Y, background=d.PALE_GREY)
    d.wire(axes, [(EXIT_X, EXIT_Y), (EXIT_X, H_LABEL_Y - 18)], color=OUTPUT_COLOR, width=THICK)
    d.operator(axes, TANH_X, EXIT_Y, '×', radius=RADIUS)
    d.write(axes, EXIT_X, H_LABEL_Y, '$h_t$', size=d.LARGE, color=OUTPUT_COLOR)
    d.write(
        axes, EXIT_X - 12, OUTPUT_Y + 16, 'output', align='right', color=OUTPUT_COLOR, size=d.SMALL
    )


def draw_equations(axes: Axes) -> None:
    """Writes what the cell computes."""
    left, gap = 78, 38
    lines = (
        (r'$c_t$ = sigmoid(f + 1) × $c_{t-1}$ + sigmoid(i) × tanh(j)', STATE_COLOR),
        (r'$h_t$ = sigmoid(o) × tanh($c_t$)', OUTPUT_COLOR),
        ('The 1 is the forget bias; gates i, j, f, o in the order of the kernel.', d.INK),
    )
    for number, (text, color) in enumerate(lines):
        d.write(
            axes,
            left,
            178 - number * gap,
            text,
            align='left',
            color=color,
            size=d.NORMAL if color == d.INK else d.LARGE,
        )
    d.write(
        axes,
        left,
        178 - 3 * gap,
        'The gates, c and h have n_cell_dim values each; × and + act by element.',
        align='left',
    )


def draw_backward(axes: Axes) -> None:
    """Draws the small chain of the backward direction."""
    y, half = 150, 36
    xs = (900, 1040, 1180)
    d.write(axes, 860, 204, 'Backward direction', align='left', weight='bold')
    for x, step in zip(xs, ('t-1', 't', 't+1')):
        d.box(axes, x, y, 2 * half, 40, '$%s$' % step, fill=d.WHITE, size=d.LARGE)
    for left, right in zip(xs, xs[1:]):
        d.wire(axes, [(right - half, y), (left + half, y)])
    d.wire(axes, [(xs[-1] + half + 60, y), (xs[-1] + half, y)])
    d.wire(axes, [(xs[0] - half, y), (xs[0] - half - 56, y)])
    d.write(
        axes,
        860,
        72,
        'the same chain over reversed time (t+1 to t),\n'
        'from the last frame of each utterance to the first,\n'
        'with a kernel and a bias of its own',
        align='left',
        linespacing=1.5,
    )


def main() -> None:
    """Draws the picture beside this file."""
    d.render(
        d.picture_path(__file__, 'lstm.png'),
        HEIGHT,
        draw_frames,
        draw_links,
        draw_kernel,
        draw_gates,
        draw_state,
        draw_output,
        draw_equations,
        draw_backward,
    )


if __name__ == '__main__':
    main()
