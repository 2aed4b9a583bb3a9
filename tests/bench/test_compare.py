"""Two results are compared if they are of the same thing, on the same machine."""

from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from allotment.core.errors import AllotError
from allotment_lab.bench.results import is_as_fast, publish, read, result
from allotment_lab.percentiles import percentile

PARAMETERS = {"nodes": 10_000, "shapes": 16, "policy": "binpack", "queue": "default"}
CORE = result("core", PARAMETERS, rate_per_cpu_second=1000.0, ratio_to_plain=5.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept.jsonl"


@pytest.mark.parametrize(
    "other",
    [
        {"bench": "batch"},
        {"machine": "another, 1 × Z80"},
        {"parameters": PARAMETERS | {"queue": ""}},
        {"parameters": PARAMETERS | {"policy": "spread"}},
    ],
)
def test_another_bench_parameter_or_machine_is_not_compared(other: dict[str, Any]) -> None:
    with pytest.raises(AllotError, match="no result with bench core, nodes 10,000"):
        is_as_fast(CORE, [CORE | other])


@pytest.mark.parametrize(("faster", "is_fine"), [(1.19, True), (1.21, False)])
def test_a_release_is_slower_by_its_ratio_to_the_baseline_of_its_own_run(
    faster: float, is_fine: bool
) -> None:
    assert is_as_fast(CORE, [CORE | {"ratio_to_plain": 5.0 * faster}]) == is_fine
    busy = CORE | {"rate_per_cpu_second": 500.0}
    assert is_as_fast(busy, [CORE]), "the baseline was as much slower as the work"
    assert is_as_fast(CORE, [CORE | {"ratio_to_plain": 99.0}, CORE]), "the last one counts"


def test_other_versions_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert is_as_fast(CORE, [CORE])
    assert "versions" not in capsys.readouterr().err
    assert is_as_fast(CORE | {"versions": {"numba": "none"}}, [CORE])
    assert "versions differ: numba none now, allotment " in capsys.readouterr().err


def test_a_result_is_not_compared_with_itself(file: Path) -> None:
    file.write_bytes(msgspec.json.encode(CORE | {"ratio_to_plain": 50.0}) + b"\n")
    with pytest.raises(SystemExit) as raised:
        publish(CORE, as_json=True, save=file, compare=read(file))
    assert raised.value.code == 1
    assert [each["ratio_to_plain"] for each in read(file)] == [50.0, 5.0]


@pytest.mark.parametrize("line", ["{", '{"bench": "core"}', "[]"])
def test_a_line_that_is_no_result_is_named(line: str, file: Path) -> None:
    file.write_bytes(msgspec.json.encode(CORE) + b"\n" + line.encode() + b"\n")
    with pytest.raises(AllotError, match=r"kept.jsonl:2: not a result of a bench"):
        read(file)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 99, 100, 101])
def test_a_percentile_is_the_nearest_rank(count: int) -> None:
    ordered = list(range(count))
    for percent in (1, 50, 99, 100):
        least = next(x for x in ordered if 100 * (x + 1) >= percent * count)
        assert percentile(ordered, percent) == least
    if count % 2:
        assert percentile(ordered, 50) == median(ordered)
