"""`allot bench growth`: how the cost of a decision, of a fold, and memory grow with what there is.

Every point is a process of its own, so that its memory is the point's alone: `allot bench core` for
nodes, shapes and cards a node, `growth_log` for the length of the log. One point after another.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from allotment_cli.bench.core import CoreReport
from allotment_cli.bench.growth_log import LogReport, filled_by
from allotment_cli.bench.growth_plot import svg
from allotment_cli.bench.report import REFERENCE_NS, Report, holds_up, keep, last_with, reporting
from allotment_cli.errors import CliError
from allotment_cli.output import emit, note, table
from allotment_cli.params import Finite

AXES = ("nodes", "shapes", "cards", "events")
SHAPES = 16
CARDS = 8
POLICY = "binpack"
POINT_WITHIN_S = 3600
"""A point that takes longer is stopped."""


class Sizes(NamedTuple):
    """What is measured, axis by axis, and what the other axes are held at."""

    nodes: tuple[int, ...]
    shapes: tuple[int, ...]
    cards: tuple[int, ...]
    events: tuple[int, ...]
    held_nodes: int
    log_nodes: int
    log_live: int
    seconds: float


FULL = Sizes(
    nodes=(1_000, 3_000, 10_000, 30_000, 100_000),
    shapes=(1, 4, 16, 64, 256, 0),
    cards=(1, 2, 4, 8, 16),
    events=(10_000, 100_000, 1_000_000),
    held_nodes=10_000,
    log_nodes=1_000,
    log_live=1_500,
    seconds=5.0,
)
QUICK = Sizes(
    nodes=(100, 300, 1_000),
    shapes=(1, 16, 0),
    cards=(1, 8),
    events=(10_000, 30_000),
    held_nodes=300,
    log_nodes=1_000,
    log_live=1_500,
    seconds=0.3,
)


class Point(NamedTuple):
    """One process to run: the axes that it is a point of, what it is, and its command.

    `facts` are what its report says that no other point's does.
    """

    axes: tuple[str, ...]
    title: str
    facts: dict[str, object]
    words: tuple[str, ...]
    kind: type[Report]


class Measured(NamedTuple):
    """A point and what it said."""

    axes: tuple[str, ...]
    report: Report

    def line(self) -> str:
        return msgspec.json.encode({"axes": self.axes, **msgspec.to_builtins(self.report)}).decode()

    def at(self, axis: str) -> int:
        """Where on an axis it lies."""
        name = {"cards": "cards_per_node", "events": "size"}.get(axis, axis)
        return int(getattr(self.report, name))

    @property
    def cost_us(self) -> float:
        """CPU µs of one decision with all that follows from it, or of one event folded."""
        return 1e6 / self.report.rate_per_cpu_second

    @property
    def cost_at_reference_us(self) -> float:
        """The same where an empty loop's turn takes `REFERENCE_NS`."""
        return self.cost_us * REFERENCE_NS / self.report.calibration_ns

    @property
    def memory_mib(self) -> int:
        return max(self.report.rss_mib.values())


class _Numbers(click.ParamType[tuple[int, ...]]):
    """`1000,3000`: whole numbers with commas between them."""

    name = "n,n,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(int(word) for word in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r}: whole numbers with commas between them, as 1000,3000", param)
        if min(found) < 0:
            self.fail(f"{value!r}: {min(found)} is below 0", param)
        return found


@click.command()
@click.option("--axis", "axes", multiple=True, type=click.Choice(AXES), help="Only this; repeat.")
@click.option("--quick", is_flag=True, help="Small sizes: less than a minute in all.")
@click.option("--nodes", type=_Numbers(), help="At 16 shapes, 8 cards a node.")
@click.option("--shapes", type=_Numbers(), help="At --held-nodes; 0: no two pods alike.")
@click.option("--cards", type=_Numbers(), help="A node, at --held-nodes and 16 shapes.")
@click.option("--events", type=_Numbers(), help="Log lengths, with as many pods alive in each.")
@click.option("--held-nodes", type=click.IntRange(1), help="For shapes and cards.  [10000]")
@click.option("--log-nodes", type=click.IntRange(10), help="For events.  [1000]")
@click.option("--log-live", type=click.IntRange(1), help="Pods alive, for events.  [1500]")
@click.option("--seconds", type=Finite(0.1), help="Measured a point.  [5]")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Points that were kept in FILE (--save) are not measured again.",
)
@click.option(
    "--svg",
    "picture",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Draw the points, one panel an axis.",
)
@reporting
def growth(
    axes: tuple[str, ...],
    quick: bool,
    seed: int,
    source: Path | None,
    picture: Path | None,
    as_json: bool,
    save: Path | None,
    compare: Path | None,
    **chosen: Any,
) -> None:
    """Cost and memory against nodes, shapes, cards a node and log length, a process a point.

    By default 1k to 100k nodes, 1 to 256 shapes, 1 to 16 cards and 10^4 to 10^6 events, which
    takes a quarter of an hour. --json prints one object a line, as each point is done; --save
    keeps the same as plain reports.
    """
    given = {name: value for name, value in chosen.items() if value is not None}
    points = _points((QUICK if quick else FULL)._replace(**given), axes or AXES, seed)
    done: list[Measured] = []
    is_held_up = True
    for number, point in enumerate(points, start=1):
        known = None if source is None else last_with(point.facts, source)
        note(f"{number} of {len(points)}: {point.title}{' …' if known is None else ', as kept'}")
        report = _run(point) if known is None else msgspec.convert(known, point.kind)
        found = Measured(point.axes, report)
        done.append(found)
        if as_json:
            click.echo(found.line())
        if save is not None and known is None:
            keep(found.report, save)
        if compare is not None:
            is_held_up &= holds_up(found.report, compare)
    if not as_json:
        emit(_table(done, axes or AXES))
    if picture is not None:
        drawn = {
            axis: [(at.at(axis), at.cost_at_reference_us, at.memory_mib) for at in along]
            for axis in AXES
            if (along := _along(done, axis))
        }
        picture.write_text(svg(drawn), encoding="utf-8")
    if not is_held_up:
        raise SystemExit(1)


def _points(sizes: Sizes, axes: Sequence[str], seed: int) -> list[Point]:
    """The processes to run: one that lies on several axes runs once.

    Raises CliError if a log is too short, before anything has run.
    """
    wanted: dict[tuple[int, int, int], list[str]] = {}
    held = sizes.held_nodes
    places = {
        "nodes": [(nodes, SHAPES, CARDS) for nodes in sizes.nodes],
        "shapes": [(held, shapes, CARDS) for shapes in sizes.shapes],
        "cards": [(held, SHAPES, cards) for cards in sizes.cards],
    }
    for axis in AXES[:-1]:
        for place in places[axis] if axis in axes else ():
            wanted.setdefault(place, []).append(axis)
    points = [
        Point(
            tuple(of),
            f"{nodes:,} nodes × {cards} cards, {shapes or 'all different'} shapes",
            {
                "bench": "core",
                "policy": POLICY,
                "nodes": nodes,
                "shapes": shapes,
                "cards_per_node": cards,
            },
            (
                *("allotment_cli.main", "bench", "core", "--json"),
                *(f"--nodes={nodes}", f"--shapes={shapes}", f"--cards={cards}"),
                *(f"--policy={POLICY}", f"--seconds={sizes.seconds}", f"--seed={seed}"),
            ),
            CoreReport,
        )
        for (nodes, shapes, cards), of in wanted.items()
    ]
    module, nodes, live = "allotment_cli.bench.growth_log", sizes.log_nodes, sizes.log_live
    for events in sizes.events if "events" in axes else ():
        if events <= (least := filled_by(nodes, live)):
            raise CliError(
                f"--events {events}: {nodes:,} nodes and {live:,} pods alone take {least:,} events",
                "take longer logs, fewer --log-nodes or a smaller --log-live",
            )
        words = (module, *map(str, (events, nodes, live, seed)))
        facts: dict[str, object] = {"bench": "log", "nodes": nodes, "size": events}
        points.append(Point(("events",), f"a log of {events:,} events", facts, words, LogReport))
    return points


def _run(point: Point) -> Report:
    command = [sys.executable, "-m", *point.words]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=POINT_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CliError(f"{point.title}: not done after {POINT_WITHIN_S} s") from None
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise CliError(f"{point.title}: {said[-1].removeprefix('allot: ')}")
    return msgspec.json.decode(ended.stdout, type=point.kind)


def _along(done: Sequence[Measured], axis: str) -> list[Measured]:
    """The points of an axis in order; 0 shapes (no two pods alike) come last."""
    of = (measured for measured in done if axis in measured.axes)
    return sorted(of, key=lambda found: (found.at(axis) == 0, found.at(axis)))


def _table(done: Sequence[Measured], axes: Sequence[str]) -> list[str]:
    headers = [
        "AXIS",
        "AT",
        "COST µs",
        "LOOP ns",
        f"COST AT {REFERENCE_NS:.0f} ns",
        "P50 µs",
        "P99 µs",
        "MiB",
    ]
    rows = [
        [
            axis,
            f"{found.at(axis):,}" if found.at(axis) else "each its own",
            f"{found.cost_us:,.1f}",
            f"{found.report.calibration_ns}",
            f"{found.cost_at_reference_us:,.1f}",
            f"{found.report.p50_us:,.0f}",
            f"{found.report.p99_us:,.0f}",
            f"{found.memory_mib:,}",
        ]
        for axis in AXES
        if axis in axes
        for found in _along(done, axis)
    ]
    return table(headers, rows, right=headers[1:])
