"""Two runs are compared if they are of the same thing, and if the machine kept its speed."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from allotment_cli.errors import CliError
from allotment_lab.bench.core import CoreReport
from allotment_lab.bench.gang import GangReport
from allotment_lab.bench.report import UnsteadyError, find, holds_up, keep, publish, read
from allotment_lab.bench.yardstick import LOOK_S, Looks, Yardstick, placements, records
from allotment_lab.percentiles import percentile

YARDSTICK = Yardstick("bare work", 2000.0)
CORE = CoreReport(
    bench="core",
    nodes=10_000,
    shapes=16,
    cards_per_node=8,
    policy="binpack",
    queue="default",
    seed=1,
    decisions=1,
    placed_percent=100,
    oracle_rate_per_cpu_second=1,
    rate_per_cpu_second=1000,
    p50_us=1,
    p99_us=1,
    yardstick=YARDSTICK,
    ratio_to_yardstick=0.5,
    versions={"numba": "none"},
)
GANG = GangReport(
    bench="gang",
    nodes=10,
    shapes=1,
    policy="binpack",
    seed=1,
    size=2,
    gangs=1,
    undo_us=1,
    failed_us=1,
    hopeless_us=1,
    rate_per_cpu_second=1000,
    p50_us=1,
    p99_us=1,
    yardstick=YARDSTICK,
    ratio_to_yardstick=0.5,
)


def kept(path: Path, report: CoreReport | GangReport, *without: str) -> Path:
    facts: dict[str, Any] = msgspec.to_builtins(report)
    for name in without:
        del facts[name]
    path.write_bytes(msgspec.json.encode(facts) + b"\n")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept.jsonl"


@pytest.mark.parametrize(
    ("report", "other"),
    [
        (CORE, msgspec.structs.replace(CORE, devices="mig")),
        (GANG, msgspec.structs.replace(GANG, cards_per_pod=8)),
    ],
)
def test_other_devices_and_cards_are_another_bench(
    report: CoreReport | GangReport, other: CoreReport | GangReport, file: Path
) -> None:
    with pytest.raises(CliError, match="no report with"):
        find(report, kept(file, other))
    assert find(report, kept(file, report))
    assert find(report, kept(file, report, "devices" if report is CORE else "cards_per_pod"))
    with pytest.raises(CliError, match="no report with"):
        find(other, file)


def test_that_one_run_had_compiled_loops_is_said(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = msgspec.structs.replace(CORE, versions={"numba": "0.61.0"})
    assert holds_up(compiled, kept(file, CORE, "versions"))
    assert "compiled loops differ: numba 0.61.0 now, none then" in capsys.readouterr().err
    assert holds_up(CORE, file)
    assert "compiled loops" not in capsys.readouterr().err


def test_no_verdict_where_the_machine_changed_its_speed(file: Path) -> None:
    unsteady = msgspec.structs.replace(CORE, yardstick=YARDSTICK._replace(change_percent=200))
    with pytest.raises(UnsteadyError, match=r"speed changed during the run: .* 200 %"):
        holds_up(unsteady, kept(file, CORE))
    with pytest.raises(UnsteadyError, match="during the run kept in"):
        holds_up(CORE, kept(file, unsteady))


def test_a_release_is_slower_by_its_ratio_to_the_yardstick_of_its_own_run(file: Path) -> None:
    slow = msgspec.structs.replace(CORE, ratio_to_yardstick=0.25)
    assert not holds_up(slow, kept(file, CORE))
    ratio = CORE.ratio_to_yardstick
    for faster, is_fine in ((1.19, True), (1.21, False)):
        then = msgspec.structs.replace(CORE, ratio_to_yardstick=ratio * faster)
        assert holds_up(CORE, kept(file, then)) == is_fine
    kept(file, CORE)
    busy = msgspec.structs.replace(CORE, rate_per_cpu_second=500)
    assert holds_up(busy, file), "the yardstick was as much slower as the work"


def test_reports_of_different_machines_are_not_compared(file: Path) -> None:
    other = msgspec.structs.replace(CORE, machine={"cpu": "Z80", "cores": "1", "id": "abc"})
    with pytest.raises(CliError, match=r"was measured on 1 × Z80 \(abc\), this run on "):
        holds_up(CORE, kept(file, other))
    with pytest.raises(CliError, match="a machine that the report does not name"):
        holds_up(CORE, kept(file, CORE, "machine"))


def test_what_was_measured_under_another_queue_or_policy_is_another_thing(file: Path) -> None:
    for other in ({"queue": ""}, {"policy": "spread"}):
        with pytest.raises(CliError, match="no report with"):
            find(CORE, kept(file, msgspec.structs.replace(CORE, **other)))


def test_other_versions_are_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    older = msgspec.structs.replace(CORE, versions={"allotment": "0.0.9", "python": "3.11.2"})
    newer = msgspec.structs.replace(CORE, versions={"allotment": "0.1.0", "python": "3.11.2"})
    assert holds_up(newer, kept(file, older))
    said = capsys.readouterr().err
    assert "Allotment 0.1.0, Python 3.11.2 now, Allotment 0.0.9, Python 3.11.2 then" in said


def test_a_report_is_kept_on_a_line_of_its_own(file: Path) -> None:
    file.write_text('{"bench":"co')
    keep(CORE, file)
    keep(CORE, file)
    broken, *lines = file.read_text().splitlines()
    assert broken == '{"bench":"co'
    assert [msgspec.json.decode(line)["bench"] for line in lines] == ["core", "core"]


def test_a_run_is_not_compared_with_itself(file: Path) -> None:
    fast = msgspec.structs.replace(CORE, ratio_to_yardstick=2.0)
    out: dict[str, Any] = {"as_json": True, "save": file, "compare": kept(file, fast)}
    with pytest.raises(SystemExit) as raised:
        publish(CORE, "core", [], **out)
    assert raised.value.code == 1
    assert len(read(file)) == 2


def test_a_report_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="cannot be written"):
        keep(CORE, tmp_path)


def test_looks_are_held_against_each_other() -> None:
    amounts = iter([10**9, 10**9, 10**10, 10**9])

    def work() -> int:
        spend_s = time.thread_time() + LOOK_S
        while time.thread_time() < spend_s:
            pass
        return next(amounts)

    looks = Looks("work", work)
    looks.look()
    taken = looks.taken()
    assert taken.what == "work"
    assert taken.change_percent > 500
    assert taken.rate < 2 * 10**9 / LOOK_S, "the median, not the quickest"


@pytest.mark.parametrize("looks", [lambda: placements(20, 8, 4), records])
def test_plain_work_has_a_rate(looks: Callable[[], Looks]) -> None:
    assert looks().taken().rate > 0


@pytest.mark.parametrize("count", [1, 2, 3, 4, 99, 100, 101])
def test_a_percentile_is_the_nearest_rank(count: int) -> None:
    ordered = list(range(count))
    for percent in (1, 50, 99, 100):
        least = next(x for x in ordered if 100 * (x + 1) >= percent * count)
        assert percentile(ordered, percent) == least
    if count % 2:
        assert percentile(ordered, 50) == median(ordered)
