"""A broken policy file: refused at the start, reported and left aside later."""

import time
from pathlib import Path

from allotment.core.doctor import findings
from allotment_proto.facts import Policy
from tests.e2e.audit import fold
from tests.e2e.stack import Stack
from tests.waiting import PATIENCE_S

NODES = "- {name: g, gpus: {model: Tesla T4, count: 1, memory_mib: 16000}}\n"


def configuration(policy: str) -> str:
    return f"""actions: allocate
tiers:
- plugins:
  - name: deviceshare
    arguments:
      deviceshare.SchedulePolicy: {policy}
"""


def policy_of(stack: Stack) -> Policy:
    return fold(stack.records()).policy


def told(stack: Stack, watcher: str, words: str) -> None:
    log = stack.processes[watcher].log_path
    stack.until(lambda: words in log.read_text(), f"{watcher} says {words!r}")


def test_broken_at_the_start_is_an_error_of_start_up(tmp_path: Path) -> None:
    config = tmp_path / "volcano-scheduler.conf"
    config.write_text(configuration("sideways"))
    options = {"watcher": ["--policy-file", str(config)]}
    with Stack(tmp_path, NODES, services=(), options=options) as stack:
        watcher = stack.start("watcher", wait=False)
        assert watcher.wait(PATIENCE_S) == 2
        said = watcher.log_path.read_text()
        assert str(config) in said
        assert "'sideways'; wanted: one of binpack, spread, none" in said
        assert "Traceback" not in said


def test_broken_later_the_old_policy_stays_and_a_good_one_takes_effect(tmp_path: Path) -> None:
    config = tmp_path / "volcano-scheduler.conf"
    config.write_text(configuration("binpack"))
    options = {"watcher": ["--policy-file", str(config)]}
    with Stack(tmp_path, NODES, services=("watcher",), options=options) as stack:
        stack.until(lambda: policy_of(stack).device_policy == "binpack", "the first policy")
        seq = len(stack.records())
        config.write_text("tiers: [: not yaml")
        told(stack, "watcher", "policy not loaded, the old one stays in force")
        stack.until(lambda: len(stack.records()) == seq + 1, "the refusal is in the log")
        (found,) = findings(fold(stack.records()), 0)
        assert (found.severity, found.code) == ("error", "InvalidSchedulerConfig")
        assert found.subject == f"scheduler configuration {config}"
        assert found.message.startswith(f"{config}:1:")  # where in the file
        assert "that of seq 1 (allot log show 1) stays in force" in found.remedy
        assert policy_of(stack).device_policy == "binpack"
        assert stack.is_ready("watcher")
        assert stack.metric("watcher", "allot_policy_problems") == 1
        stack.kill("watcher")
        assert stack.start("watcher", wait=False).wait(PATIENCE_S) == 2
        config.write_text(configuration("binpack"))  # as it was: no other policy, and no problem
        stack.start("watcher")
        stack.until(lambda: not findings(fold(stack.records()), 0), "the refusal is over")
        assert stack.metric("watcher", "allot_policy_problems") == 0
        config.write_text(configuration("spread"))
        stack.until(lambda: policy_of(stack).device_policy == "spread", "the new policy")


def test_a_standby_that_takes_over_does_not_bring_back_an_old_policy(tmp_path: Path) -> None:
    config = tmp_path / "volcano-scheduler.conf"
    config.write_text(configuration("binpack"))
    options = {"watcher": ["--policy-file", str(config)]}
    with Stack(tmp_path, NODES, services=("watcher",), options=options) as stack:
        stack.until(lambda: policy_of(stack).device_policy == "binpack", "the first policy")
        stack.start("watcher-2")
        config.write_text(configuration("spread"))
        stack.until(lambda: policy_of(stack).device_policy == "spread", "the new policy")
        stack.kill("watcher")
        stack.call("DELETE", "/api/v1/nodes/g")
        stack.until(lambda: not fold(stack.records()).nodes, "the standby works")
        time.sleep(0.2)
        assert policy_of(stack).device_policy == "spread"
