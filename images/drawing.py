"""Boxes, wires and text shared by the figures of the README.

A figure is drawn in pixels, the origin at the lower left. The reader's
matplotlibrc plays no part, so that a second run writes the same bytes.
"""

import os
from collections.abc import Callable, Sequence

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path

Point = tuple[float, float]  # x and y in pixels

DPI = 100  # pixels per inch
WIDTH = 1400  # pixels, of every figure
FONT = 'DejaVu Sans'
MATH_FONT = 'dejavusans'

# Text sizes in points.
LARGE, NORMAL, SMALL = 15, 13, 12

# Okabe and Ito's colours, which the colour-blind tell apart, and pale tints.
INK, GREY, PALE_GREY, WHITE = '#222222', '#767676', '#f3f3f3', '#ffffff'
BLUE, PALE_BLUE = '#0072b2', '#dcecf6'
ORANGE, PALE_ORANGE = '#d55e00', '#fbe6d6'
GREEN, PALE_GREEN = '#00805e', '#d8efe7'

# Drawing order: panels lie under wires, wires under boxes, text on top.
PANEL_LEVEL, WIRE_LEVEL, BOX_LEVEL, TEXT_LEVEL = 1, 2, 3, 4
GAP = 7  # pixels, half of the gap left where two wires cross


def points(pixels: float) -> float:
    """Converts a length in pixels to points, matplotlib's unit of line width."""
    return pixels * 72.0 / DPI


def new_canvas(height: int) -> tuple[Figure, Axes]:
    """Returns a figure of WIDTH x `height` pixels and its axes, in pixels."""
    figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor=WHITE)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, height))
    axes.axis('off')
    return figure, axes


def picture_path(script: str, name: str) -> str:
    """Returns the path of picture `name` beside the file `script`."""
    return os.path.join(os.path.dirname(os.path.abspath(script)), name)


def save(figure: Figure, path: str) -> None:
    """Writes the figure as PNG; an interrupted run leaves no half picture."""
    partial = path + '.tmp'
    figure.savefig(partial, format='png', dpi=DPI, facecolor=WHITE, metadata={'Software': None})
    os.replace(partial, path)


def render(path: str, height: int, *steps: Callable[[Axes], None]) -> None:
    """Draws a figure of `height` pixels by calling each step with its axes."""
    with matplotlib.style.context('default'):
        figure, axes = new_canvas(height)
        for step in steps:
            step(axes)
        save(figure, path)


def write(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    *,
    size: float = NORMAL,
    color: str = INK,
    align: str = 'center',
    **style,
) -> None:
    """Puts text at (x, y), centred in height; `align` is its side at x."""
    axes.text(
        x,
        y,
        text,
        fontsize=size,
        color=color,
        ha=align,
        va=style.pop('va', 'center'),
        zorder=TEXT_LEVEL,
        fontfamily=style.pop('fontfamily', FONT),
        math_fontfamily=MATH_FONT,
        **style,
    )


def panel(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str = PALE_GREY,
    edge: str = 'none',
) -> None:
    """Draws a background from its lower left corner, under the wires."""
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle='round,pad=0,rounding_size=12',
            facecolor=fill,
            edgecolor=edge,
            linewidth=points(1.5),
            zorder=PANEL_LEVEL,
        )
    )


def box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str = '',
    *,
    fill: str = WHITE,
    edge: str = INK,
    size: float = NORMAL,
    **style,
) -> None:
    """Draws a box centred on (x, y) with its text inside."""
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle='round,pad=0,rounding_size=7',
            facecolor=fill,
            edgecolor=edge,
            linewidth=points(2),
            zorder=BOX_LEVEL,
        )
    )
    write(axes, x, y, text, size=size, **style)


def operator(
    axes: Axes, x: float, y: float, sign: str, *, edge: str = INK, radius: float = 17
) -> None:
    """Draws an element-wise operation, such as a product, as a circle with its sign."""
    axes.add_patch(
        Circle(
            (x, y), radius, facecolor=WHITE, edgecolor=edge, linewidth=points(2), zorder=BOX_LEVEL
        )
    )
    write(axes, x, y, sign, size=LARGE)


def interrupt(axes: Axes, x: float, y: float, *, background: str = WHITE) -> None:
    """Cuts the wire at (x, y), so that the next one crosses without touching."""
    axes.add_patch(
        Rectangle(
            (x - GAP, y - GAP),
            2 * GAP,
            2 * GAP,
            facecolor=background,
            edgecolor='none',
            zorder=WIRE_LEVEL,
        )
    )


def wire(
    axes: Axes, corners: Sequence[Point], *, color: str = INK, width: float = 2.2, head: bool = True
) -> None:
    """Draws a line through `corners`, by default an arrow to the last."""
    axes.add_patch(
        FancyArrowPatch(
            path=Path(corners),
            arrowstyle='-|>' if head else '-',
            color=color,
            linewidth=points(width),
            mutation_scale=15,
            joinstyle='miter',
            capstyle='butt',
            zorder=WIRE_LEVEL,
        )
    )


def branch(axes: Axes, x: float, y: float, *, color: str = INK, radius: float = 5) -> None:
    """Marks a point where one wire becomes two."""
    axes.add_patch(Circle((x, y), radius, facecolor=color, edgecolor='none', zorder=WIRE_LEVEL))


def measure(
    axes: Axes, left: float, right: float, y: float, *, color: str = GREY, tick: float = 6
) -> None:
    """Draws a span from `left` to `right` with a tick at either end."""
    axes.plot([left, right], [y, y], color=color, linewidth=points(2), zorder=WIRE_LEVEL)
    for x in (left, right):
        axes.plot([x, x], [y - tick, y + tick], color=color, linewidth=points(2), zorder=WIRE_LEVEL)


def outline(
    axes: Axes, x: float, y: float, width: float, height: float, *, edge: str = INK
) -> None:
    """Draws an empty rectangle from its lower left corner."""
    axes.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor='none',
            edgecolor=edge,
            linewidth=points(2),
            zorder=BOX_LEVEL,
        )
    )


def brace(
    axes: Axes, x: float, bottom: float, top: float, *, color: str = GREY, width: float = 10
) -> None:
    """Draws a square bracket at the right of what it joins."""
    axes.plot(
        [x, x + width, x + width, x],
        [bottom, bottom, top, top],
        color=color,
        linewidth=points(2),
        zorder=WIRE_LEVEL,
    )
