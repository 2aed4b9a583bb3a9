"""`allot bench growth`: how the cost of a decision, of a fold, and memory grow with what there is.

Every point is a process of its own, so that its memory is the point's alone: `allot bench core` for
nodes, shapes and cards a node, `growth_log` for the length of the log. One point after another.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from allotment_cli.bench.growth_plot import svg
from allotment_cli.bench.growth_points import (
    AXES,
    FULL,
    QUICK,
    points_of,
    read_kept,
    run,
)
from allotment_cli.bench.report import (
    REFERENCE_NS,
    Report,
    UnsteadyError,
    compiler,
    holds_up,
    keep,
    last_with,
    reporting,
)
from allotment_cli.errors import CliError
from allotment_cli.output import emit, note, table
from allotment_cli.params import Finite, can_be_written


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
        return max(self.report.rss_mib.values(), default=0)


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
    callback=can_be_written,
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
    points = points_of((QUICK if quick else FULL)._replace(**given), axes or AXES, seed)
    done: list[Measured] = []
    is_held_up, unsteady = True, None
    for number, point in enumerate(points, start=1):
        known = None if source is None else last_with(point.facts, source)
        note(f"{number} of {len(points)}: {point.title}{' …' if known is None else ', as kept'}")
        report = run(point) if known is None else read_kept(known, point, source)
        found = Measured(point.axes, report)
        done.append(found)
        if as_json:
            click.echo(found.line())
        try:
            is_held_up &= compare is None or holds_up(found.report, compare)
        except UnsteadyError as error:
            note(error.message)
            unsteady = error
        finally:  # only now: it may be the file that it is compared with
            if save is not None and known is None:
                keep(found.report, save)
    if not as_json:
        emit(_table(done, axes or AXES))
    if picture is not None:
        drawn = {
            axis: [(at.at(axis), at.cost_at_reference_us, at.memory_mib) for at in along]
            for axis in AXES
            if (along := _along(done, axis))
        }
        try:
            picture.write_text(svg(drawn), encoding="utf-8")
        except OSError as error:
            raise CliError(f"{picture} cannot be written: {error}") from None
    if not is_held_up:
        raise SystemExit(1)
    if unsteady is not None:
        raise unsteady


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
    compilers = {compiler(msgspec.to_builtins(found.report)) for found in done}
    told = f"compiled loops: {', '.join(sorted(compilers))}"
    return [*table(headers, rows, right=headers[1:]), told]
