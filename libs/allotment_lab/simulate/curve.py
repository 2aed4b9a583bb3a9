"""Allocation against arrived load as an SVG, one curve a policy, hand-made and self-contained.

Colours are classes that a dark colour scheme gives other values, so that the picture can be read on
either ground; curves also differ in their dashes, and each is named at its end.
"""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import numpy as np

from allotment_lab.simulate.report import Curve

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 64, 214, 44, 52
GRID_POINTS = 240
NAME_GAP = 17
NAME_CHARS = 22
"""Of a longer name the end is shown."""
LIGHT = (
    "#1f5fbf",
    "#c2410c",
    "#15803d",
    "#7e22ce",
    "#b91c5c",
    "#0f766e",
    "#92610a",
    "#475569",
    "#4d7c0f",
    "#7f1d1d",
    "#312e81",
    "#057a8f",
)
DARK = (
    "#7db4ff",
    "#ff9d5c",
    "#6ee29a",
    "#cf9bff",
    "#ff86b6",
    "#5fe0d3",
    "#f2c14e",
    "#b6c2d2",
    "#b5d64a",
    "#d9a38f",
    "#a5a8ff",
    "#9fe8ff",
)
DASHES = (
    "",
    "7 4",
    "2 3",
    "10 3 2 3",
    "4 2",
    "1 4",
    "12 4",
    "6 2 1 2",
    "3 6",
    "14 3 2 3 2 3",
    "1 2 5 2",
    "8 3 3 3",
)


def svg(curves: Mapping[str, Sequence[Curve]], title: str, *, over_time: bool = False) -> str:
    """The picture of each policy's mean curve: over the arrived load, or over time. Raises
    ValueError if there is nothing to draw.
    """
    if not any(points for runs in curves.values() for points in runs):
        raise ValueError("no curves")
    means = {name: mean(runs, in_steps=over_time) for name, runs in curves.items()}
    most_x = max(x for points in means.values() for x, _ in points)
    most_y = max(y for points in means.values() for _, y in points)
    unit = ""
    if over_time:
        unit, seconds = _time_unit(most_x)
        means = {name: [(x / seconds, y) for x, y in found] for name, found in means.items()}
        most_x /= seconds
    axes = _Axes(_top(most_x), _top(most_y))
    legend = _over_time(means) if over_time else _at_ends(means, axes)
    body = [*_grid(axes, unit), *_lines(means, axes, in_steps=over_time), *_names(legend)]
    return "\n".join((*_head(title), *body, "</svg>", ""))


def _time_unit(span_s: float) -> tuple[str, int]:
    """The unit in which a time axis has a handful of lines, and its seconds."""
    for name, seconds in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if span_s >= 3 * seconds:
            return name, seconds
    return "seconds", 1


def mean(runs: Sequence[Curve], *, in_steps: bool = False) -> Curve:
    """The mean of several runs' curves, as far as all of them go. `in_steps`: each point holds
    until the next.
    """
    if len(runs) == 1:
        return list(runs[0])
    end = min(points[-1][0] for points in runs)
    grid = np.linspace(0, end, GRID_POINTS)
    columns = [np.array(points, np.float64).T for points in runs]
    ys = np.mean(
        [
            y[np.searchsorted(x, grid, side="right") - 1] if in_steps else np.interp(grid, x, y)
            for x, y in columns
        ],
        axis=0,
    )
    return list(zip(grid.tolist(), ys.tolist(), strict=True))


class _Axes:
    """Percent, or a unit of time, and percent → pixels."""

    def __init__(self, most_x: int, most_y: int) -> None:
        self.most_x, self.most_y = most_x, most_y

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.most_x

    def y(self, percent: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * percent / self.most_y


def _step(most: int) -> int:
    """The distance of grid lines: 1, 2 or 5 with zeros, for four to ten of them."""
    unit = 1
    while True:
        for digit in (1, 2, 5):
            if most / (digit * unit) <= 8:
                return digit * unit
        unit *= 10


def _top(most: float) -> int:
    step = _step(max(int(most), 1))
    return max(-(-int(np.ceil(most)) // step) * step, step)


def _head(title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">',
        "<style>",
        "text{font:13px system-ui,sans-serif}",
        ".title{font-size:15px;font-weight:600}",
        ".curve{fill:none;stroke-width:2.2;stroke-linejoin:round}",
        ".grid{stroke-width:1}",
        ".ideal{stroke-width:1;stroke-dasharray:1 5;fill:none}",
        ".name{font-weight:600}",
        _colours("#ffffff", "#1c2430", "#5b6675", "#dde3ea", LIGHT),
        "@media (prefers-color-scheme: dark){",
        _colours("#12161c", "#e8edf3", "#a3afbd", "#2c3540", DARK),
        "}",
        "</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" class="ground"/>',
        f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>',
    ]


def _colours(ground: str, ink: str, faint: str, grid: str, curves: Sequence[str]) -> str:
    """The rules that give every class its colour."""
    rules = [f".ground{{fill:{ground}}}text{{fill:{faint}}}.title{{fill:{ink}}}"]
    rules.append(f".grid{{stroke:{grid}}}.ideal{{stroke:{faint}}}")
    rules += [f".c{n}{{stroke:{c}}}.n{n}{{fill:{c}}}" for n, c in enumerate(curves)]
    return "".join(rules)


def _grid(axes: _Axes, time_unit: str) -> list[str]:
    right, bottom = axes.x(axes.most_x), axes.y(0)
    out = []
    for value in range(0, axes.most_x + 1, _step(axes.most_x)):
        x = axes.x(value)
        out.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom:.1f}"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 19:.1f}" text-anchor="middle">{value}</text>')
    for percent in range(0, axes.most_y + 1, _step(axes.most_y)):
        y = axes.y(percent)
        out.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{LEFT - 9}" y="{y + 4.5:.1f}" text-anchor="end">{percent}</text>')
    under = f"{time_unit} since the first pod"
    if not time_unit:
        both = min(axes.most_x, axes.most_y, 100)
        ideal = f"M{axes.x(0):.1f},{axes.y(0):.1f}L{axes.x(both):.1f},{axes.y(both):.1f}"
        if both == 100:
            ideal += f"L{right:.1f},{axes.y(100):.1f}"
        out.append(f'<path class="ideal" d="{ideal}"/>')
        under = "arrived load, % of all cards (dotted: everything placed)"
    middle = (LEFT + right) / 2
    out += [
        f'<text x="{middle:.1f}" y="{HEIGHT - 12}" text-anchor="middle">{under}</text>',
        f'<text transform="translate(18 {(TOP + bottom) / 2:.1f}) rotate(-90)" '
        'text-anchor="middle">allocated, % of all cards</text>',
    ]
    return out


def _lines(means: Mapping[str, Curve], axes: _Axes, *, in_steps: bool) -> list[str]:
    """The curves; over time in steps, because what is allocated holds until something happens."""
    out = []
    for number, points in enumerate(means.values()):
        at = [(axes.x(x), axes.y(y)) for x, y in points]
        path = "L".join(f"{x:.1f},{y:.1f}" for x, y in at)
        if in_steps:
            path = "".join(
                [f"{at[0][0]:.1f},{at[0][1]:.1f}", *(f"H{x:.1f}V{y:.1f}" for x, y in at[1:])]
            )
        colour, dashes = _look(number)
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        out.append(f'<path class="curve c{colour}"{dash} d="M{path}"/>')
    return out


def _look(number: int) -> tuple[int, str]:
    """A curve's colour and dashes: each of its own for all named policies; of more, two that share
    a colour differ in their dashes.
    """
    rounds, colour = divmod(number, len(LIGHT))
    return colour, DASHES[(number + rounds) % len(DASHES)]


_Named = list[tuple[float, int, str]]
"""A legend: each name's height in pixels, the curve's number, the name."""


def _at_ends(means: Mapping[str, Curve], axes: _Axes) -> _Named:
    """Each curve's name beside its end, pushed apart where they meet."""
    ends = sorted(
        (axes.y(points[-1][1]), n, name) for n, (name, points) in enumerate(means.items())
    )
    ys = [y for y, _, _ in ends]
    for at, _ in enumerate(pairwise(ys), start=1):
        ys[at] = max(ys[at], ys[at - 1] + NAME_GAP)
    over = max(ys[-1] - (HEIGHT - BOTTOM), 0)
    return [(y - over, n, name) for y, (_, n, name) in zip(ys, ends, strict=True)]


def _over_time(means: Mapping[str, Curve]) -> _Named:
    """From the one with most allocated on the average down: in the end all are at nothing."""
    ranked = sorted((-_mean_y(points), n, name) for n, (name, points) in enumerate(means.items()))
    return [(TOP + NAME_GAP * at, n, name) for at, (_, n, name) in enumerate(ranked, start=1)]


def _mean_y(points: Curve) -> float:
    """The mean over the curve's length; each point holds until the next."""
    length = points[-1][0] - points[0][0]
    area = sum(y * (after - x) for (x, y), (after, _) in pairwise(points))
    return area / length if length else points[-1][1]


def _names(legend: _Named) -> list[str]:
    left, out = WIDTH - RIGHT + 14, []
    for y, number, name in legend:
        colour, dashes = _look(number)
        shown = name if len(name) <= NAME_CHARS else "…" + name[1 - NAME_CHARS :]
        out.append(
            f'<path class="curve c{colour}" stroke-dasharray="{dashes}" '
            f'd="M{left},{y:.1f}h26"/>'
            f'<text class="name n{colour}" x="{left + 33}" y="{y + 4.5:.1f}">'
            f"{escape(shown)}</text>"
        )
    return out
