"""What `allot doctor` lists of the problems, and with which exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from allotment_cli.main import main
from allotment_proto.facts import Problem
from tests.recording import Recorder, vgpu

WRONG = Problem("InvalidRequest", "volcano.sh/vgpu-cores", "is 120; 0 to 100")
WHOLE = vgpu(memory_mib=40_000)
BEYOND = vgpu(memory_mib=99_000)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A node with an unreadable register, and a wrong pod in each of two namespaces."""
    recorder = Recorder()
    recorder.node("gpu-01", cards=2)
    recorder.node("broken", problems=(Problem("BrokenRegister", "annotation", "no card"),))
    recorder.pod("wrong", problem=WRONG)
    recorder.pod("wrong-too", namespace="team", problem=WRONG)
    return recorder.write(tmp_path / "log.jsonl")


@pytest.fixture
def tenants_only(tmp_path: Path) -> Path:
    recorder = Recorder()
    recorder.node("gpu-01", cards=2)
    recorder.pod("wrong", problem=WRONG)
    return recorder.write(tmp_path / "log.jsonl")


def allot(log: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--file", str(log), *options])


def listed(log: Path, *options: str) -> list[tuple[str, str, list[str]]]:
    report: dict[str, Any] = json.loads(allot(log, "-o", "json", *options).stdout)
    return [(one["kind"], one["code"], one["namespaces"]) for one in report["findings"]]


BROKEN = ("platform", "BrokenRegister", list[str]())
HERE, THERE = (("tenant", "InvalidRequest", [name]) for name in ("default", "team"))


@pytest.mark.parametrize(
    ("options", "expected", "code"),
    [
        ("", [BROKEN, HERE, THERE], 1),
        ("-n team", [THERE], 0),
        ("-n team --strict", [THERE], 1),
        ("--kind platform", [BROKEN], 1),
        ("--kind tenant", [HERE, THERE], 0),
        ("--kind InvalidRequest -n default", [HERE], 0),
        ("--kind BrokenRegister --kind tenant", [BROKEN, HERE, THERE], 1),
        ("--severity error", [BROKEN], 1),
        ("--severity warning", [HERE, THERE], 0),
        ("-n elsewhere --strict", [], 0),
    ],
)
def test_what_is_listed_and_the_exit_code(
    log: Path, options: str, expected: list[object], code: int
) -> None:
    assert listed(log, *options.split()) == expected
    assert allot(log, *options.split()).exit_code == code


def test_a_typo_of_a_tenant_is_no_fault_of_the_platform(tenants_only: Path) -> None:
    """Each mistyped pod in a cluster made the doctor exit with 1."""
    assert allot(tenants_only).exit_code == 0
    assert allot(tenants_only, "--strict").exit_code == 1


def test_a_kind_that_there_is_not(log: Path) -> None:
    answer = allot(log, "--kind", "tenants")
    assert answer.exit_code == 2
    assert "'tenants' is not platform, tenant or a code like NodeGone" in answer.stderr


def test_pods_that_wait_are_counted_first_and_what_ends_their_wait(tmp_path: Path) -> None:
    """With 108 of 200 pods waiting it said "no problems found" and nothing else."""
    recorder = Recorder()
    recorder.node("gpu-01", cards=1)
    recorder.decide(recorder.pod("first", WHOLE))
    for number in range(3):
        recorder.decide(recorder.pod(f"next-{number}", WHOLE if number else BEYOND))
    log = recorder.write(tmp_path / "log.jsonl")
    summary = json.loads(allot(log, "-o", "json").stdout)["summary"]
    assert summary["nodes"] == {"ready": 1, "notReady": 0, "gone": 0, "cordoned": 0}
    (row,) = summary["waiting"]
    assert (row["pods"], row["never"], row["code"]) == (3, 1, "InsufficientGPUMemory")
    lines = allot(log).stdout.splitlines()
    assert lines[3].startswith("Waiting  3 pods, the oldest for ")
    assert "a pod on the node ends (for 1: the request or the nodes change)" in lines[5]
    assert lines[-1] == "tenants: 1 warning"
