"""What every bench reports, how it is printed, and how it is compared with an earlier run.

A report is one flat JSON object on one line. Times are CPU time unless a field says `wall`, since a
busy machine stretches the wall clock. Two reports of one machine are compared by the ratio to the
yardstick of their own run, so that a busy machine does not look like a slow release; reports of
different machines are not compared.
"""

import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import msgspec

from allotment.adapters.service import heap
from allotment.adapters.telemetry.log import file_trouble
from allotment.testing.churn import DEVICES
from allotment_board import is_for_compiled_loops, machine_code
from allotment_cli.errors import CliError
from allotment_cli.output import emit, note, table
from allotment_cli.params import can_be_written
from allotment_lab.bench.machine import this_machine, words
from allotment_lab.bench.yardstick import CHANGE_PERCENT_MAX, Yardstick
from allotment_proto.codec import UNREADABLE
from allotment_proto.facts import Policy

NO_NUMBA = "none"
FASTER_PERCENT_MAX = 20
"""An earlier run may have been so much faster: differences below that are noise."""
SAME: dict[str, object] = {
    "bench": None,
    "nodes": None,
    "shapes": None,
    "policy": None,
    "cards_per_node": None,
    "devices": DEVICES[0],
    "size": None,
    "live_pods": None,
    "cards_per_pod": 1,
    "pods": None,
    "groups": None,
    "pending": None,
    "queues": None,
    "queue": "",
    "ask": None,
    "allocate_ms": None,
    "scrape_s": 0.0,
    "waiting": None,
}
"""Reports are of the same thing when these fields agree: what a field is where a line lacks it."""


def versions(*, is_compiled: bool | None = None) -> dict[str, str]:
    """What was measured, and on what. Compiled loops are those of this process, or, where services
    are measured, what their scorer says (`is_compiled`).
    """
    if is_compiled is None:
        is_compiled = machine_code.is_in_use()
    return {
        "allotment": version("allotment"),
        "numba": (machine_code.numba_version() if is_compiled else None) or NO_NUMBA,
        "numpy": version("numpy"),
        "python": sys.version.split()[0],
    }


def settle() -> None:
    """Be as a service is once it has started: its compiled loops, its heap, its collector."""
    bring_in_machine_code()
    heap.collect_seldom()
    heap.freeze_heap()


def have_compiled(nodes: int, policy: Policy) -> None:
    """Have the loops compiled that services want under a policy, unless that was done before: who
    is measured while another process compiles is measured beside that, and without the loops.
    """
    if is_for_compiled_loops(nodes, policy):
        note("compiling the loops that score nodes, unless they are kept from before …")
        machine_code.compile_elsewhere()


def bring_in_machine_code() -> None:
    """Have nodes scored by compiled loops, or say on stderr that this bench is without them."""
    try:
        reason = "" if machine_code.load() else "numba is not installed, or switched off"
    except machine_code.BrokenCompilerError as error:
        reason = str(error)
    if reason:
        note(f"measuring without compiled loops: {reason}")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What every bench says. A field that a bench has no meaning for is None."""

    bench: str
    nodes: int
    shapes: int
    rate_per_cpu_second: float
    ratio_to_oracle: float | None = None
    p50_us: float
    p99_us: float
    cpu_us: dict[str, float] = {}
    """CPU time per unit of work by stage or process, µs."""
    rss_mib: dict[str, int] = {}
    """Peak resident memory by process, MiB."""
    yardstick: Yardstick
    """Plain work of the same kind in the same run."""
    ratio_to_yardstick: float
    machine: dict[str, str] = msgspec.field(default_factory=this_machine)
    versions: dict[str, str] = msgspec.field(default_factory=versions)


def peak_rss_mib() -> int:
    """Peak resident memory of this process.

    Not getrusage's on Linux: that one starts at what the parent had when it forked.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20  # macOS counts bytes
    facts = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    return int(facts["VmHWM"].split()[0]) // 1024


def reporting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json`, `--save` and `--compare` to a bench, which then passes them to `publish`."""
    for option in (
        click.option(
            "--compare",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            callback=_can_be_compared,
            help="Compare with the same bench in FILE, measured on this machine; exit 1 if it was"
            f" over {FASTER_PERCENT_MAX} % faster there.",
        ),
        click.option(
            "--save",
            type=click.Path(dir_okay=False, path_type=Path),
            callback=can_be_written,
            help="Append the report to FILE.",
        ),
        click.option("--json", "as_json", is_flag=True, help="One JSON object on one line."),
    ):
        command = option(command)
    return command


def publish(
    report: Report,
    title: str,
    rows: Sequence[tuple[str, str]],
    *,
    as_json: bool,
    save: Path | None,
    compare: Path | None,
) -> None:
    """Print a report as JSON or as a table, keep it, and hold it against an earlier one.

    Exits with 1 if the earlier one was more than `FASTER_PERCENT_MAX` faster. Raises CliError if
    that cannot be told.
    """
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    else:
        said = msgspec.to_builtins(report)
        yardstick = report.yardstick
        shown = [
            *rows,
            (f"yardstick: {yardstick.what}", f"{yardstick.rate:,} a second"),
            ("ratio to the yardstick", f"{report.ratio_to_yardstick:,}"),
            ("compiled loops", compiler(said)),
            ("versions", made_of(said)),
            ("machine", words(report.machine)),
        ]
        emit([title, *table(["FIGURE", "VALUE"], [list(row) for row in shown], right=["VALUE"])])
    try:
        is_held_up = compare is None or holds_up(report, compare)
    finally:  # only now: it may be the file that it is compared with
        if save is not None:
            keep(report, save)
    if not is_held_up:
        raise SystemExit(1)


def keep(report: Report, path: Path) -> None:
    """Append a report to a file of reports, on a line of its own even where the last line broke
    off. Raises CliError if that cannot be done.
    """
    try:
        with path.open("ab") as file:
            is_broken_off = path.is_file() and path.read_bytes()[-1:] not in (b"", b"\n")
            file.write(b"\n" * is_broken_off + msgspec.json.encode(report) + b"\n")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {file_trouble(error)}") from None


class UnsteadyError(CliError):
    """Raised when the machine's speed changed during a run, so that no verdict is due."""


def holds_up(report: Report, path: Path) -> bool:
    """Whether a report is not much slower than the last of the same thing in a file; says so.

    Raises UnsteadyError if it cannot be told, and CliError if there is nothing to compare with.
    """
    earlier = find(report, path)
    mine = msgspec.to_builtins(report)
    if (theirs := earlier.get("machine", {})) != report.machine:
        raise CliError(
            f"{path} was measured on {words(theirs)}, this run on {words(report.machine)}",
            "compare with a run of this machine: --save FILE makes one",
        )
    then_yardstick = msgspec.convert(earlier["yardstick"], Yardstick)
    for yardstick, run in (
        (report.yardstick, "the run"),
        (then_yardstick, f"the run kept in {path}"),
    ):
        if yardstick.change_percent > CHANGE_PERCENT_MAX:
            raise UnsteadyError(
                f"the machine's speed changed during {run}: its yardstick was "
                f"{yardstick.change_percent:.0f} % faster at one time than at another",
                "measure again, when the machine is steady",
            )
    if compiler(mine) != compiler(earlier):
        note(f"compiled loops differ: {compiler(mine)} now, {compiler(earlier)} then")
    if made_of(mine) != made_of(earlier):
        note(f"versions differ: {made_of(mine)} now, {made_of(earlier)} then")
    then: float = earlier["ratio_to_yardstick"]
    now = report.ratio_to_yardstick
    change = 100 * (now / then - 1)
    note(
        f"against {path}: {now:,} of the yardstick now ({report.yardstick.rate:,} a second), "
        f"{then:,} then ({then_yardstick.rate:,}): {change:+.0f} %"
    )
    return then <= now * (1 + FASTER_PERCENT_MAX / 100)


def compiler(report: Mapping[str, Any]) -> str:
    """What compiled the loops that scored: `numba 0.61.0`, or `none`."""
    found = report.get("versions", {}).get("numba", NO_NUMBA)
    return found if found == NO_NUMBA else f"numba {found}"


def made_of(report: Mapping[str, Any]) -> str:
    """What was measured, and under which Python and NumPy."""
    found = report.get("versions", {})
    names = {"allotment": "Allotment", "python": "Python", "numpy": "NumPy"}
    return ", ".join(f"{name} {found[key]}" for key, name in names.items() if key in found)


def find(report: Report, path: Path) -> dict[str, Any]:
    """The last report of the same thing in a file of reports, one JSON object a line. A line that
    lacks a field of `SAME` says what the field was before it existed.

    Raises CliError if there is none.
    """
    same = {key: getattr(report, key) for key in SAME if hasattr(report, key)}
    found = None
    for candidate in read(path):
        if all(candidate.get(key, SAME[key]) == value for key, value in same.items()):
            found = candidate
    if found is None:
        wanted = ", ".join(f"{key} {value}" for key, value in same.items())
        raise CliError(f"{path}: no report with {wanted}; --save makes one")
    return found


def read(path: Path) -> list[dict[str, Any]]:
    """The reports in a file. Raises CliError naming the line that is none."""
    reports = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {file_trouble(error)}") from None
    for number, line in enumerate(lines, start=1):
        try:
            kept = msgspec.json.decode(line, type=_Kept)
            reports.append(msgspec.json.decode(line, type=dict[str, Any]))
        except UNREADABLE as error:
            raise CliError(f"{path}:{number}: not a report ({error})") from None
        if kept.rate_per_cpu_second <= 0 or kept.ratio_to_yardstick <= 0:
            raise CliError(f"{path}:{number}: not a report (rates must be above 0)")
    return reports


class _Kept(msgspec.Struct):
    """What a comparison needs of a kept report."""

    bench: str
    rate_per_cpu_second: float
    yardstick: Yardstick
    ratio_to_yardstick: float


def _can_be_compared(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Read the file before anything is measured."""
    if value is not None:
        read(value)
    return value
