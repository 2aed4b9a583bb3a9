"""Cost and memory against size as an SVG: one panel an axis, both scales logarithmic.

Each panel has one scale for both lines, in µs and in MiB. Colours are classes that a dark colour
scheme gives other values; the lines also differ in their dashes, and are named.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape

PANEL_WIDTH, PANEL_HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 40, 46
HEAD = 62
LOWEST_DECADES = 2
OWN = "own"
"""How the place of 0 shapes is named: each pod has its own."""

TITLES = {
    "nodes": ("A decision, against nodes", "nodes of 8 cards, 16 shapes"),
    "shapes": ("A decision, against shapes", "different requests (own: no two alike)"),
    "cards": ("A decision, against cards a node", "cards a node, 16 shapes"),
    "events": ("An event folded, against log length", "events in the log, as many pods alive"),
}
_STYLE = """<style>
text{font:12px system-ui,sans-serif}
.title{font-size:15px;font-weight:600}.panel{font-size:13px;font-weight:600}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}.mib{stroke-dasharray:6 4}
.ground{fill:#ffffff}text{fill:#5b6675}.title,.panel{fill:#1c2430}.grid{stroke:#dde3ea}
.us{stroke:#1f5fbf}.of-us{fill:#1f5fbf}.mib{stroke:#c2410c}.of-mib{fill:#c2410c}
@media (prefers-color-scheme: dark){
.ground{fill:#12161c}text{fill:#a3afbd}.title,.panel{fill:#e8edf3}.grid{stroke:#2c3540}
.us{stroke:#7db4ff}.of-us{fill:#7db4ff}.mib{stroke:#ff9d5c}.of-mib{fill:#ff9d5c}
}
</style>"""

Series = Sequence[tuple[int, float, float]]
"""Place on the axis, CPU µs, MiB; places rise, but for a last one of 0."""


def svg(panels: Mapping[str, Series]) -> str:
    """The picture, two panels a row. Raises ValueError for a panel without points."""
    if empty := [axis for axis, series in panels.items() if not series]:
        raise ValueError(f"no points against {', '.join(empty)}")
    columns = min(len(panels), 2)
    width = PANEL_WIDTH * columns
    height = HEAD + PANEL_HEIGHT * math.ceil(len(panels) / 2)
    title = "How cost grows"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{title}">',
        _STYLE,
        f'<rect width="{width}" height="{height}" class="ground"/>',
        f'<text class="title" x="{LEFT}" y="26">{title}</text>',
        f'<path class="line us" d="M{LEFT},44h28"/><text class="of-us" x="{LEFT + 34}" y="48">'
        "CPU µs where a turn of an empty loop takes 30 ns</text>",
        f'<path class="line mib" d="M{LEFT + 350},44h28"/>'
        f'<text class="of-mib" x="{LEFT + 384}" y="48">MiB</text>',
    ]
    for number, (axis, series) in enumerate(panels.items()):
        x, y = PANEL_WIDTH * (number % 2), HEAD + PANEL_HEIGHT * (number // 2)
        out += [f'<g transform="translate({x} {y})">', *_panel(axis, series), "</g>"]
    return "\n".join((*out, "</svg>", ""))


class _Scale:
    """Values above 0 → pixels, logarithmic, whole decades."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + LOWEST_DECADES)
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self._start + (self._end - self._start) * part


def _panel(axis: str, series: Series) -> list[str]:
    title, label = TITLES[axis]
    places = [at for at, _, _ in series if at]
    right, bottom = PANEL_WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM
    y = _Scale([value for _, *values in series for value in values], bottom, TOP)
    xs = _xs(series, LEFT + 14, right - 14)
    middle = (LEFT + right) / 2
    out = [
        f'<text class="panel" x="{LEFT}" y="24">{escape(title)}</text>',
        f'<text x="{middle:.0f}" y="{PANEL_HEIGHT - 8}" text-anchor="middle">{label}</text>',
    ]
    for power in range(y.low, y.high + 1):
        at = y(10**power)
        out += [
            f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>',
            f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{_short(10**power)}</text>',
        ]
    for x, (place, _, _) in zip(xs, series, strict=True):
        named = _short(place) if place or not places else OWN
        out += [
            f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>',
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{named}</text>',
        ]
    return [
        *out,
        *_line("us", xs, [y(us) for _, us, _ in series]),
        *_line("mib", xs, [y(mib) for _, _, mib in series]),
    ]


def _xs(series: Series, start: float, end: float) -> list[float]:
    """Where the places lie; 0, which has none, lies as far behind the last as that from its own."""
    places = [at for at, _, _ in series]
    if places[-1] == 0 and len(places) > 1:
        before = places[-3] if len(places) > 2 else places[-2] / 4
        places[-1] = round(places[-2] * places[-2] / before)
    low, high = math.log10(max(places[0], 1)), math.log10(max(places[-1], 1))
    span = (high - low) or 1
    return [start + (end - start) * (math.log10(max(at, 1)) - low) / span for at in places]


def _line(name: str, xs: Sequence[float], ys: Sequence[float]) -> list[str]:
    path = "L".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    marks = [
        f'<circle class="of-{name}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'
        for x, y in zip(xs, ys, strict=True)
    ]
    return [f'<path class="line {name}" d="M{path}"/>', *marks]


def _short(value: float) -> str:
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
