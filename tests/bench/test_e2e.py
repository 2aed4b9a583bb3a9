"""`allot bench e2e` on a small cluster: it measures successes, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest

from allotment_local.specs import DEFAULT_POLICY
from tests.contract.local_apiserver import process
from tests.e2e.jobs import NODES
from tests.e2e.stack import Stack

SMALL = ("--nodes", "4", "--pods", "30", "--rate", "20", "--seconds", "1", "--json")
POLICY = "SchedulePolicy: spread"
ALLOCATE_MS = 40
SERVICES = {"nats", "watcher", "filter", "scorer", "binder"}
PERCENTILES = [f"{what}_p{n}" for what in ("decided", "bound", "running") for n in (50, 99)]


def measured(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """The report of a small run that must succeed and leave nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "allotment_cli.main", "bench", "e2e", *SMALL, *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = msgspec.json.decode(line)
    for times in (found["burst_us"], found["steady_us"]):
        assert list(times) == PERCENTILES
        assert 0 < times["decided_p50"] <= times["bound_p50"] <= times["running_p50"]
    assert (found["bench"], found["parameters"]["nodes"]) == ("e2e", 4)
    assert found["steady_pods"] == 20
    assert (found["oversold"], found["misdelivered"]) == (0, 0)
    assert found["rate_per_cpu_second"] > 0
    assert found["pods_per_second_wall"] >= found["running_per_second_wall"] > 0
    assert found["bare_per_second_wall"] > 0
    assert found["ratio_to_bare_client"] > 0
    assert found["requests"]["POST pods/binding"] == 1
    assert found["requests_per_pod"] >= 1
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pods_are_measured_until_they_run_behind_plugins_that_take_their_time(
    tmp_path: Path,
) -> None:
    policy = tmp_path.parent / f"{tmp_path.name}.conf"
    policy.write_text(DEFAULT_POLICY.read_text().replace("SchedulePolicy: binpack", POLICY))
    try:
        found = measured(tmp_path, "--allocate-ms", str(ALLOCATE_MS), "--policy", str(policy))
    finally:
        policy.unlink()
    parameters = found["parameters"]
    assert (parameters["policy"], parameters["queues"]) == (str(policy), 10)
    assert found["burst_us"]["running_p50"] >= 1000 * ALLOCATE_MS
    assert set(found["cpu_us"]) == set(found["rss_mib"])
    assert set(found["cpu_us"]) == {*SERVICES, "controller", "archiver", "apiserver", "load"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_beside_a_cluster_the_bench_plays_the_kubelets_of_its_nodes(tmp_path: Path) -> None:
    with process() as url:
        arguments = ("--server", url, "--allocate-ms", str(ALLOCATE_MS))
        found = measured(tmp_path, *arguments)
        asks = ("--server", url, "--ask", "cards", "--pods", "12", "--one-process")
        counted = measured(tmp_path, *asks)
        with urlopen(f"{url}/api/v1/nodes") as answer:
            assert msgspec.json.decode(answer.read())["items"] == []
    assert (found["parameters"]["server"], found["parameters"]["queues"]) == (url, 0)
    assert found["burst_us"]["running_p50"] >= 1000 * ALLOCATE_MS
    assert set(found["cpu_us"]) == {*SERVICES, "load"}
    assert counted["parameters"]["ask"] == "cards"
    assert set(counted["blocked_cpu_ms_max"]) == {"scheduler"}
    assert set(counted["cpu_us"]) == {"nats", "scheduler", "load"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_another_scheduler_of_the_cluster_gets_the_same_load(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The peer is Allotment too, by a name that the bench's own services do not answer to."""
    with Stack(tmp_path_factory.mktemp("cluster"), NODES) as stack:
        arguments = ("--server", stack.url, "--ask", "nothing", "--peer", "allotment")
        found = measured(tmp_path, *arguments)
    peer = found["peer"]
    assert peer["scheduler"] == "allotment"
    assert list(peer["steady_us"]) == [name for name in PERCENTILES if "decided" not in name]
    assert 0 < peer["steady_us"]["bound_p50"] <= peer["steady_us"]["running_p50"]
    assert peer["pods_per_second_wall"] >= peer["running_per_second_wall"] > 0
    assert peer["requests_per_pod"] >= 1


def test_local_mode_has_no_other_scheduler() -> None:
    said = refused("--peer", "default-scheduler")
    assert "local mode has no scheduler default-scheduler" in said
    assert "--kubeconfig" in said


def refused(*arguments: str) -> str:
    """What a run says that cannot be done."""
    done = subprocess.run(
        [sys.executable, "-m", "allotment_cli.main", "bench", "e2e", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_more_pods_than_the_nodes_hold_are_refused_before_anything_starts() -> None:
    assert "1 nodes hold 100 pods, not 2250" in refused("--nodes", "1")


@pytest.mark.timeout(120)
def test_a_server_that_is_not_there_is_said_in_one_line() -> None:
    said = refused("--nodes", "30", "--server", "http://127.0.0.1:1")
    assert "allot: " in said
    assert "127.0.0.1:1" in said
    assert "Traceback" not in said
