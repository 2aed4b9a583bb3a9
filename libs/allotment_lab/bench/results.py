"""The results of a bench: one JSON object, printed as a table, kept in a file and compared.

Times are CPU time unless a field says `wall`: a busy machine stretches the wall clock.
"""

import os
import platform
import resource
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import msgspec

from allotment.adapters.service import heap
from allotment.adapters.telemetry.log import file_trouble
from allotment.core.errors import AllotError
from allotment_board import is_for_compiled_loops, machine_code
from allotment_cli.options.params import can_be_written
from allotment_cli.show.output import emit, note, table
from allotment_proto.facts import Policy

FASTER_PERCENT_MAX = 20
"""A smaller difference between two runs is noise."""
RATES = ("ratio_to_bare_client", "ratio_to_plain", "rate_per_cpu_second")
"""What two runs are compared by: the first of these that they have. A ratio is to a baseline of the
same run, so that a busy machine does not look like a slow release.
"""

Result = dict[str, Any]


def result(
    bench: str, parameters: Mapping[str, Any], *, is_compiled: bool | None = None, **figures: Any
) -> Result:
    """What a bench found. `is_compiled` is what the scorer says where services are measured;
    otherwise it is whether this process has the compiled loops.
    """
    compiled = machine_code.is_in_use() if is_compiled is None else is_compiled
    return {
        "bench": bench,
        "parameters": dict(parameters),
        **figures,
        "machine": f"{platform.node()}, {os.cpu_count()} × {platform.processor() or 'CPU'}",
        "versions": {
            "allotment": version("allotment"),
            "numba": (machine_code.numba_version() if compiled else None) or "none",
            "numpy": version("numpy"),
            "python": sys.version.split()[0],
        },
    }


def settle() -> None:
    """Prepare this process as a service is once it has started: compiled loops, heap, collector."""
    try:
        reason = "" if machine_code.load() else "numba is not installed, or switched off"
    except machine_code.BrokenCompilerError as error:
        reason = str(error)
    if reason:
        note(f"measuring without compiled loops: {reason}")
    heap.collect_seldom()
    heap.freeze_heap()


def have_compiled(nodes: int, policy: Policy) -> None:
    """Compile the loops that services need under a policy, unless they are in the cache: a compiler
    that runs during the measurement would compete for the CPU.
    """
    if is_for_compiled_loops(nodes, policy):
        note("compiling the loops that score nodes, unless they are kept from before …")
        machine_code.compile_elsewhere()


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
            callback=lambda ctx, param, path: path and read(path),
            help="Compare with the same bench in FILE, measured on this machine; exit 1 if it was"
            f" over {FASTER_PERCENT_MAX} % faster there.",
        ),
        click.option(
            "--save",
            type=click.Path(dir_okay=False, path_type=Path),
            callback=can_be_written,
            help="Append the result to FILE.",
        ),
        click.option("--json", "as_json", is_flag=True, help="One JSON object on one line."),
    ):
        command = option(command)
    return command


def publish(
    found: Result, *, as_json: bool, save: Path | None, compare: list[Result] | None
) -> None:
    """Print a result, keep it, and compare it with the last of the same thing.

    Exits with 1 if the earlier one was more than `FASTER_PERCENT_MAX` faster. Raises AllotError if
    there is none.
    """
    line = msgspec.json.encode(found)
    if as_json:
        click.echo(line.decode())
    else:
        shown = [[name, _shown(value)] for name, value in found.items()]
        emit(table(["FIELD", "VALUE"], shown))
    if save is not None:
        with save.open("ab") as file:
            file.write(line + b"\n")
    if compare is not None and not is_as_fast(found, compare):
        raise SystemExit(1)


def is_as_fast(found: Result, earlier: list[Result]) -> bool:
    """Whether the last result of the same bench, parameters and machine was not much faster; says
    the difference.

    Raises AllotError if there is no such result.
    """
    same = ("bench", "parameters", "machine")
    matching = [each for each in earlier if all(each.get(key) == found[key] for key in same)]
    if not matching:
        wanted = _shown({"bench": found["bench"], **found["parameters"]})
        raise AllotError(f"no result with {wanted} on {found['machine']}; --save keeps one")
    then = matching[-1]
    if found["versions"] != then["versions"]:
        note(f"versions differ: {_shown(found['versions'])} now, {_shown(then['versions'])} then")
    by = next(name for name in RATES if name in found)
    change = 100 * (found[by] / then[by] - 1)
    note(f"{by}: {found[by]:,} now, {then[by]:,} then: {change:+.0f} %")
    return bool(then[by] <= found[by] * (1 + FASTER_PERCENT_MAX / 100))


def read(path: Path) -> list[Result]:
    """The results in a file, one on a line. Raises AllotError naming the line that is none."""
    found: list[Result] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AllotError(f"{path} cannot be read: {file_trouble(error)}") from None
    for number, line in enumerate(lines, start=1):
        try:
            msgspec.json.decode(line, type=_Kept)
        except (msgspec.DecodeError, RecursionError) as error:
            raise AllotError(f"{path}:{number}: not a result of a bench ({error})") from None
        found.append(msgspec.json.decode(line))
    return found


class _Kept(msgspec.Struct):
    """What a comparison needs of a kept result."""

    bench: str
    parameters: dict[str, Any]
    machine: str
    versions: dict[str, str]
    rate_per_cpu_second: float


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    return f"{round(value, 3):,}" if isinstance(value, int | float) else str(value)
