"""`allot bench e2e` on a small cluster: it measures successes, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ARGUMENTS = ("--nodes", "4", "--pods", "30", "--rate", "20", "--seconds", "1", "--json")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_small_run_reports_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "allotment_cli.main", "bench", "e2e", *ARGUMENTS],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    facts = msgspec.json.decode(line)
    assert (facts["bench"], facts["nodes"], facts["pods"]) == ("e2e", 4, 30)
    assert facts["steady_pods"] == 20
    assert facts["pods_per_second_wall"] > 0
    assert facts["rate_per_cpu_second"] > 0
    assert 0 < facts["p50_us"] <= facts["p99_us"]
    assert 0 < facts["burst_p50_us"] <= facts["burst_p99_us"]
    wanted = {"apiserver", "nats", "watcher", "filter", "scorer", "binder", "controller", "load"}
    assert set(facts["cpu_us"]) == set(facts["rss_mib"]) == wanted
    assert list(tmp_path.iterdir()) == []
    assert "nothing is left running" in done.stderr


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
