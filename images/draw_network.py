"""Draws network.png: the path of an utterance through the six layers.

    python images/draw_network.py

writes it beside this file.
"""

import numpy as np
from matplotlib.axes import Axes

import drawing as d

HEIGHT = 1400  # pixels

# The geometry of the network, as in DeepSpeech.py.
N_INPUT = 26  # MFCC per frame
N_CONTEXT = 9  # frames on each side
N_WINDOW = 2 * N_CONTEXT + 1  # 19 frames
N_FEATURES = N_INPUT + 2 * N_INPUT * N_CONTEXT  # 494 values a time step
N_HIDDEN = N_FEATURES  # units of layers 1, 2 and 5
N_CELL_DIM = N_FEATURES  # units of an LSTM cell
N_HIDDEN_3 = 2 * N_CELL_DIM  # 988
N_CHARACTER = 29  # space, a-z, apostrophe, blank
BEAM_WIDTH = 100
RELU_CLIP = 20

# Columns: names on the left, three time steps, remarks on the right.
LEFT = 30
STEPS = (('t-1', 470), ('t', 715), ('t+1', 960))
MIDDLE = STEPS[1][1]
STEP_WIDTH = 196
EDGES = (342, 1090)  # where the chains leave the picture
RIGHT = 1138

# Rows, by their middle.
WAVE_Y, MFCC_Y, SPAN_Y = 98, 208, 273
INPUT_Y = 375
LAYER_Y = {1: 457, 2: 539, 3: 621, 5: 1041, 6: 1123}
FORWARD_Y, BACKWARD_Y, CONCAT_Y = 740, 840, 942
LOGITS_Y, RESULT_Y = 1215, 1315
ROW_HEIGHT = 44
BAND = (680, 902)  # the background of layer 4

FRAME_WIDTH = 22  # pixels, 10 ms
MS = FRAME_WIDTH / 10.0  # pixels of a millisecond
N_FRAMES = 33  # drawn
CELL_OFFSET = 50  # of the LSTM cells from the middle of their column


def sound(x: np.ndarray) -> np.ndarray:
    """Returns a made-up waveform between -1 and 1, float64 [n], at the pixels x [n]."""
    envelope = 0.15 + np.abs(np.sin(x / 93.0) * np.sin(x / 241.0 + 0.4))
    return envelope * np.sin(x / 3.1) * np.cos(x / 11.0 + 1.0)


def coefficients() -> np.ndarray:
    """Returns made-up coefficients, float64 [N_INPUT, N_FRAMES]."""
    row, frame = np.mgrid[0:N_INPUT, 0:N_FRAMES]
    return (
        np.sin(frame / 2.3 + row / 4.0)
        + np.cos(row / 1.7 - frame / 5.0)
        + np.sin(row * frame / 37.0)
    )


def frame_span(frame: float, n_frames: int = 1) -> tuple[float, float]:
    """Returns both edges, in pixels, of `n_frames` frames around `frame`; frame 0 is at t."""
    middle = MIDDLE + frame * FRAME_WIDTH
    return (middle - n_frames * FRAME_WIDTH / 2, middle + n_frames * FRAME_WIDTH / 2)


def describe(axes: Axes, y: float, name: str, *lines: str) -> None:
    """Writes a row's name and the lines below it in the left column."""
    top = y + 11 * len(lines)
    d.write(axes, LEFT, top, name, align='left', weight='bold')
    for number, line in enumerate(lines, 1):
        d.write(axes, LEFT, top - 22 * number, line, align='left', size=d.SMALL)


def remark(axes: Axes, y: float, text: str, color: str = d.INK) -> None:
    """Writes a remark in the right column."""
    d.write(axes, RIGHT, y, text, align='left', size=d.SMALL, color=color, linespacing=1.4)


def draw_audio(axes: Axes) -> None:
    """Draws the samples and the windows of frames t and t+1 over them."""
    x = np.arange(*frame_span(0, N_FRAMES), 0.5)
    axes.plot(x, WAVE_Y + 34 * sound(x), color=d.GREY, linewidth=d.points(1.2), zorder=d.WIRE_LEVEL)
    left, right = frame_span(0)
    axes.fill_between(
        [left, left + 25 * MS],
        WAVE_Y - 40,
        WAVE_Y + 40,
        color=d.BLUE,
        alpha=0.25,
        linewidth=0,
        zorder=d.WIRE_LEVEL,
    )
    d.measure(axes, left, left + 25 * MS, WAVE_Y - 52, color=d.BLUE)
    d.write(
        axes,
        left - 12,
        WAVE_Y - 52,
        'a frame sees 25 ms',
        align='right',
        size=d.SMALL,
        color=d.BLUE,
    )
    d.measure(axes, left, right, WAVE_Y - 74, color=d.BLUE)
    d.write(
        axes,
        left - 12,
        WAVE_Y - 74,
        'the next begins 10 ms later',
        align='right',
        size=d.SMALL,
        color=d.BLUE,
    )
    describe(axes, WAVE_Y, 'audio', '16 kHz')


def draw_mfcc(axes: Axes) -> None:
    """Draws the frames and the funnel from the samples to frame t."""
    left, right = frame_span(0, N_FRAMES)
    half = 1.5 * N_INPUT  # 3 pixels a coefficient
    axes.imshow(
        coefficients(),
        extent=(left, right, MFCC_Y - half, MFCC_Y + half),
        cmap='Blues',
        vmin=-4,
        vmax=6,
        aspect='auto',
        origin='lower',
        interpolation='nearest',
        zorder=d.PANEL_LEVEL,
    )
    axes.set(xlim=(0, d.WIDTH), ylim=(0, HEIGHT))
    axes.vlines(
        np.arange(left, right, FRAME_WIDTH)[1:],
        MFCC_Y - half,
        MFCC_Y + half,
        color=d.WHITE,
        linewidth=d.points(2),
        zorder=d.PANEL_LEVEL,
    )
    start, end = frame_span(0)
    axes.fill(
        [start, start + 25 * MS, end, start],
        [WAVE_Y + 40, WAVE_Y + 40, MFCC_Y - half, MFCC_Y - half],
        color=d.BLUE,
        alpha=0.25,
        linewidth=0,
        zorder=d.WIRE_LEVEL,
    )
    d.outline(axes, start, MFCC_Y - half, FRAME_WIDTH, 2 * half, edge=d.BLUE)
    describe(axes, MFCC_Y, 'MFCC', '%d values a frame,' % N_INPUT, 'a frame every 10 ms')
    remark(axes, MFCC_Y, 'outlined: frame t', d.BLUE)


def draw_windows(axes: Axes) -> None:
    """Draws the frames that each of the three time steps sees, and its input."""
    # The middle span lies on top and the outer ones are left outside it, so
    # that no arrow crosses a span.
    for (name, x), shift, rise, start in zip(STEPS, (-1, 0, 1), (0, 36, 18), (-10, 0, 10)):
        left, right = frame_span(shift, N_WINDOW)
        y = SPAN_Y + rise
        color = d.BLUE if shift == 0 else d.GREY
        start = MIDDLE + start * FRAME_WIDTH
        d.measure(axes, left, right, y, color=color)
        d.branch(axes, start, y, color=color, radius=4)
        bend = INPUT_Y - ROW_HEIGHT / 2 - 22
        d.wire(
            axes, [(start, y), (start, bend), (x, bend), (x, INPUT_Y - ROW_HEIGHT / 2)], color=color
        )
        d.box(
            axes,
            x,
            INPUT_Y,
            STEP_WIDTH,
            ROW_HEIGHT,
            r'$x_{%s}$   %d' % (name, N_FEATURES),
            size=d.LARGE,
        )
    describe(
        axes,
        SPAN_Y + 18,
        'window of %d frames' % N_WINDOW,
        'n_context = %d on each side' % N_CONTEXT,
    )
    describe(
        axes,
        INPUT_Y,
        'input of a time step',
        '%d + 2·%d·%d = %d values' % (N_INPUT, N_INPUT, N_CONTEXT, N_FEATURES),
    )
    remark(axes, SPAN_Y + 18, 'zeros before the first frame\nand after the last')


def draw_dense(axes: Axes, index: int, n_in: int, n_out: int, below: float) -> None:
    """Draws layer `index` at each time step, with arrows up from the height `below`."""
    y = LAYER_Y[index]
    for _, x in STEPS:
        d.wire(axes, [(x, below), (x, y - ROW_HEIGHT / 2)])
        d.box(
            axes,
            x,
            y,
            STEP_WIDTH,
            ROW_HEIGHT,
            'layer %d   %d' % (index, n_out),
            fill=d.PALE_BLUE,
            edge=d.BLUE,
        )
    describe(
        axes, y, 'layer %d' % index, 'h%d [%d, %d]   b%d [%d]' % (index, n_in, n_out, index, n_out)
    )


def draw_dense_below(axes: Axes) -> None:
    """Draws layers 1 to 3."""
    top = ROW_HEIGHT / 2
    draw_dense(axes, 1, N_FEATURES, N_HIDDEN, INPUT_Y + top)
    draw_dense(axes, 2, N_HIDDEN, N_HIDDEN, LAYER_Y[1] + top)
    draw_dense(axes, 3, N_HIDDEN, N_HIDDEN_3, LAYER_Y[2] + top)
    d.brace(axes, 1098, LAYER_Y[1] - top, LAYER_Y[3] + top)
    remark(
        axes,
        LAYER_Y[2],
        'min(relu(x h + b), %d),\nthen dropout;\n'
        'each time step by itself,\nwith the same h and b' % RELU_CLIP,
    )


def draw_chain(axes: Axes, y: float, offset: float, color: str, fill: str, reverse: bool) -> None:
    """Draws one direction of layer 4: its cells and the arrows over time."""
    half = 43  # of a cell's width
    xs = [x + offset for _, x in STEPS]
    stops = [EDGES[0] - half] + xs + [EDGES[1] + half]
    for left, right in zip(stops, stops[1:]):
        ends = [(left + half, y), (right - half, y)]
        d.wire(axes, ends[::-1] if reverse else ends, color=color, width=3)
    for x in xs:
        d.box(
            axes, x, y, 2 * half, 52, 'LSTM\n%d' % N_CELL_DIM, fill=fill, edge=color, size=d.SMALL
        )
    for x in (EDGES[0] - 16, EDGES[1] + 14):
        d.write(axes, x, y, '\u2026', size=d.LARGE, color=color)


def draw_recurrent(axes: Axes) -> None:
    """Draws layer 4: both chains, what feeds them and their outputs joined."""
    d.panel(axes, 312, BAND[0], 808, BAND[1] - BAND[0])
    draw_chain(axes, FORWARD_Y, -CELL_OFFSET, d.ORANGE, d.PALE_ORANGE, False)
    draw_chain(axes, BACKWARD_Y, CELL_OFFSET, d.GREEN, d.PALE_GREEN, True)
    below, above = LAYER_Y[3] + ROW_HEIGHT / 2, CONCAT_Y - ROW_HEIGHT / 2
    for _, x in STEPS:
        forward, backward = x - CELL_OFFSET, x + CELL_OFFSET
        d.wire(axes, [(forward, below), (forward, FORWARD_Y - 26)])
        d.interrupt(axes, backward, FORWARD_Y, background=d.PALE_GREY)
        d.wire(axes, [(backward, below), (backward, BACKWARD_Y - 26)])
        d.interrupt(axes, forward, BACKWARD_Y, background=d.PALE_GREY)
        d.wire(axes, [(forward, FORWARD_Y + 26), (forward, above)])
        d.wire(axes, [(backward, BACKWARD_Y + 26), (backward, above)])
        d.box(axes, x, CONCAT_Y, STEP_WIDTH, ROW_HEIGHT, 'concatenate   %d' % (2 * N_CELL_DIM))
    describe(
        axes,
        (FORWARD_Y + BACKWARD_Y) / 2,
        'layer 4: bidirectional LSTM',
        'n_cell_dim = %d' % N_CELL_DIM,
        'a kernel [%d, %d]' % (N_HIDDEN_3 + N_CELL_DIM, 4 * N_CELL_DIM),
        'and a bias [%d]' % (4 * N_CELL_DIM),
        'for each direction',
    )
    remark(axes, BACKWARD_Y, 'backward chain:\nfrom the last frame\nto the first', d.GREEN)
    remark(axes, FORWARD_Y, 'forward chain:\nfrom the first frame\nto the last', d.ORANGE)
    describe(axes, CONCAT_Y, 'both outputs', 'forward, backward: 2·%d' % N_CELL_DIM)


def draw_dense_above(axes: Axes) -> None:
    """Draws layers 5 and 6."""
    top = ROW_HEIGHT / 2
    draw_dense(axes, 5, 2 * N_CELL_DIM, N_HIDDEN, CONCAT_Y + top)
    draw_dense(axes, 6, N_HIDDEN, N_CHARACTER, LAYER_Y[5] + top)
    remark(axes, LAYER_Y[5], 'min(relu(x h + b), %d),\nthen dropout' % RELU_CLIP)
    remark(axes, LAYER_Y[6], 'x h + b, no clipping,\nno dropout')


def draw_results(axes: Axes) -> None:
    """Draws the logits and the two uses made of them."""
    left, right = STEPS[0][1] - STEP_WIDTH / 2, STEPS[-1][1] + STEP_WIDTH / 2
    for _, x in STEPS:
        d.wire(axes, [(x, LAYER_Y[6] + 22), (x, LOGITS_Y - 22)])
    d.box(
        axes,
        MIDDLE,
        LOGITS_Y,
        right - left,
        ROW_HEIGHT,
        'logits  [n_steps, batch_size, %d]' % N_CHARACTER,
        size=d.LARGE,
    )
    for x, text in ((545, 'CTC loss'), (885, 'beam search, width %d' % BEAM_WIDTH)):
        d.wire(axes, [(x, LOGITS_Y + 22), (x, RESULT_Y - 26)])
        d.box(axes, x, RESULT_Y, 290, 52, text, size=d.LARGE)
    describe(axes, LOGITS_Y, 'output, time first', 'space, a-z, apostrophe, blank')
    d.write(axes, LEFT, RESULT_Y, 'labels of the transcript', align='left', size=d.SMALL)
    d.wire(axes, [(255, RESULT_Y), (545 - 145, RESULT_Y)])
    d.wire(axes, [(885 + 145, RESULT_Y), (RIGHT - 10, RESULT_Y)])
    remark(axes, RESULT_Y, 'decoded text')


def main() -> None:
    """Draws the picture beside this file."""
    d.render(
        d.picture_path(__file__, 'network.png'),
        HEIGHT,
        draw_audio,
        draw_mfcc,
        draw_windows,
        draw_dense_below,
        draw_recurrent,
        draw_dense_above,
        draw_results,
    )


if __name__ == '__main__':
    main()
