"""The points of `allot bench growth`: what is measured at which sizes, each by a process."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from allotment.testing.churn import DEVICES
from allotment_cli.bench.core import CoreReport
from allotment_cli.bench.growth_log import LogReport, filled_by
from allotment_cli.bench.report import Report
from allotment_cli.errors import CliError

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


def points_of(sizes: Sizes, axes: Sequence[str], seed: int) -> list[Point]:
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
                "devices": DEVICES[0],
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
        facts: dict[str, object] = {
            "bench": "log",
            "nodes": nodes,
            "size": events,
            "live_pods": live,
        }
        points.append(Point(("events",), f"a log of {events:,} events", facts, words, LogReport))
    return points


def run(point: Point) -> Report:
    """Measure it, in a process of its own. Raises CliError with what that said last."""
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


def read_kept(known: dict[str, Any], point: Point, source: Path | None) -> Report:
    """A kept report as that of a point. Raises CliError if fields are missing."""
    try:
        return msgspec.convert(known, point.kind)
    except msgspec.ValidationError as error:
        raise CliError(f"{source}: no report of {point.title} ({error})") from None
