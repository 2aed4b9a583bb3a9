"""The loops bench runs real replicas, evicts, and fails where a loop computed for too long."""

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from allotment.adapters.service.loop_watch import CPU
from allotment_cli.main import main
from allotment_lab.bench.loops import _longest_ms
from allotment_lab.bench.results import Result
from allotment_lab.processes import run

pytestmark = pytest.mark.slow
SMALL = ["--nodes", "20", "--preemptors", "3", "--small", "3"]


def test_loops_reports_one_line_of_json() -> None:
    result = CliRunner().invoke(main, ["bench", "loops", *SMALL, "--bound-ms", "1000", "--json"])
    assert result.exit_code == 0, result.output
    facts = msgspec.json.decode(result.stdout)
    assert (facts["bench"], facts["parameters"]["nodes"]) == ("loops", 20)
    assert facts["live_pods"] == 160
    assert facts["evictions"] >= 3
    assert facts["lease_changes"] == 0
    replicas = {f"{name}-{n}" for name in ("filter", "scorer", "binder") for n in (0, 1)}
    assert set(facts["blocked_cpu_ms_max"]) == set(facts["blocked_wall_ms_max"]) == replicas
    assert 0 < facts["p50_us"] <= facts["p99_us"]


def test_a_loop_that_computed_for_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = run

    def late(*given: Any) -> Result:
        made: Result = measure(*given)
        return made | {"blocked_cpu_ms_max": {"scorer-1": 75.0}}

    monkeypatch.setattr("allotment_lab.bench.loops.run", late)
    result = CliRunner().invoke(main, ["bench", "loops", *SMALL])
    assert result.exit_code == 2
    assert "event loops computed for longer than 50 ms: {'scorer-1': 75.0}" in result.stderr


def test_the_longest_time_is_the_least_bound_that_all_stayed_within() -> None:
    before = {"scorer-0": {CPU: {0.005: 7.0, 0.05: 8.0, float("inf"): 9.0}}}
    after = {"scorer-0": {CPU: {0.005: 8.0, 0.05: 10.0, float("inf"): 11.0}}}
    assert _longest_ms(before, after, CPU) == {"scorer-0": 50.0}
