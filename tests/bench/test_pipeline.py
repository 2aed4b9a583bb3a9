"""The pipeline bench runs the real processes, and what it reports holds together."""

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from allotment.adapters.service.http import Readiness, serve_http
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.core.errors import AllotError
from allotment_board import machine_code
from allotment_cli.main import main
from allotment_lab.bench import pipeline
from allotment_lab.processes import scores_compiled
from tests.sim.replay import verify

pytestmark = pytest.mark.slow
SMALL = ["--nodes", "50", "--pods", "200", "--singles", "5", "--rate", "50", "--seconds", "0.5"]


def test_pipeline_reports_one_line_of_json() -> None:
    result = CliRunner().invoke(main, ["bench", "pipeline", *SMALL, "--json"])
    assert result.exit_code == 0, result.output
    facts = msgspec.json.decode(result.stdout)
    assert facts["bench"] == "pipeline"
    assert (facts["parameters"]["nodes"], facts["parameters"]["pods"]) == (50, 200)
    assert facts["ratio_to_bare_client"] > 0
    assert 97 <= facts["placed_percent"] <= 100
    assert facts["pods_per_second_wall"] > 0
    assert 0 < facts["p50_us"] <= facts["p99_us"]
    assert 0 < facts["idle_p50_us"] <= facts["idle_p99_us"]
    assert facts["idle_batch_max"] == 1, "a pod alone is decided alone"
    assert facts["batch_max"] > 20, "a backlog is decided in large batches"
    assert facts["cycles"] < 20
    assert set(facts["blocked_cpu_ms_max"]) == {"filter", "scorer", "binder"}
    assert set(facts["cpu_us"]) == {"filter", "scorer", "binder", "nats", "bench"}
    assert facts["versions"]["numba"] == "none", "so few nodes are scored in NumPy"


def test_what_the_services_decide_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a backlog, by the real services; then by replay, from their log alone."""
    found: list[int] = []
    measure = pipeline._run

    async def run(plan: Any, load: Any, running: Any, pids: Any) -> Any:
        report = await measure(plan, load, running, pids)
        records = [r async for rs in load._log.read(1, await load._log.last_seq()) for r in rs]
        verify(records)
        found.append(len(records))
        return report

    monkeypatch.setattr(pipeline, "_run", run)
    arguments = ["bench", "pipeline", *SMALL, "--batch-max", "16", "--live", "150", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert len(found) == 1


@pytest.mark.anyio
async def test_the_scorer_is_asked_whether_its_loops_are_compiled() -> None:
    metrics = ServiceMetrics("allotment-scorer", "")
    async with serve_http("127.0.0.1", 0, "allotment-scorer", Readiness(), metrics) as address:
        with pytest.raises(AllotError, match="no allot_compiled_loops"):
            await scores_compiled(address)
        compiled = False
        metrics.expose("allot_compiled_loops", "compiled loops", lambda: compiled)
        assert not await scores_compiled(address)
        compiled = True
        assert await scores_compiled(address)


def test_pipeline_refuses_to_measure_refusals() -> None:
    arguments = ["--nodes", "1", "--pods", "100", "--live", "100", "--singles", "1"]
    result = CliRunner().invoke(main, ["bench", "pipeline", *arguments, "--seconds", "0.1"])
    assert result.exit_code == 2
    assert "would measure refusals" in result.stderr


@pytest.mark.parametrize(
    ("bench", "more"), [("pipeline", ["--singles", "1"]), ("e2e.command", ["--seconds", "1"])]
)
@pytest.mark.parametrize(("nodes", "compiles"), [("511", False), ("512", True)])
def test_nobody_compiles_while_services_are_measured(
    bench: str, more: list[str], nodes: str, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(machine_code, "compile_elsewhere", lambda: done.append("compiled"))

    def measure(*_: object, **__: object) -> None:
        done.append("measured")
        raise AllotError("that will do")

    monkeypatch.setattr(f"allotment_lab.bench.{bench}.run", measure)
    words = ["bench", bench.partition(".")[0], "--nodes", nodes, "--pods", "9", *more]
    result = CliRunner().invoke(main, words)
    assert "that will do" in result.stderr
    assert done == [*["compiled"] * compiles, "measured"]
