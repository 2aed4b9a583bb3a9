"""A broken policy file: refused at the start, reported and left aside later."""

import contextlib
import time
from pathlib import Path
from urllib.error import HTTPError

from allotment.core.explain.doctor import Source, findings, sources
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
        told(stack, "watcher", "policy not loaded; the old one stays active")
        stack.until(lambda: len(stack.records()) == seq + 1, "the refusal is in the log")
        (found,) = findings(fold(stack.records()), 0)
        assert (found.severity, found.code) == ("error", "InvalidSchedulerConfig")
        assert found.subject == f"scheduler configuration {config}"
        assert found.message.startswith(f"{config}:1:")  # where in the file
        assert "that of seq 1 (allot log show 1) stays active" in found.remedy
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


MAPS = "/api/v1/namespaces/volcano-system/configmaps"
NAME = "volcano-scheduler-configmap"
SOURCE = f"ConfigMap volcano-system/{NAME}"


def apply_map(stack: Stack, text: str, key: str = "volcano-scheduler.conf") -> None:
    """What `kubectl apply` of the ConfigMap does."""
    metadata = {"name": NAME, "namespace": "volcano-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: text}}
    try:
        stack.call("PUT", f"{MAPS}/{NAME}", body)
    except HTTPError as error:
        if error.code != 404:
            raise
        with contextlib.suppress(HTTPError):
            namespace = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "volcano-system"},
            }
            stack.call("POST", "/api/v1/namespaces", namespace)
        stack.call("POST", MAPS, body)


def said_of_policy(stack: Stack) -> str:
    return str(stack.readiness("watcher")[1]["holds"]["policy"])


def test_volcanos_config_map_is_in_force_while_it_exists(tmp_path: Path) -> None:
    config = tmp_path / "volcano-scheduler.conf"
    config.write_text(configuration("binpack"))
    options = {"watcher": ["--policy-file", str(config)]}
    with Stack(tmp_path, NODES, services=("watcher",), options=options) as stack:
        stack.until(lambda: policy_of(stack).device_policy == "binpack", "the file's policy")
        assert said_of_policy(stack) == f"active as written: {config}"

        apply_map(stack, configuration("spread"))
        stack.until(lambda: policy_of(stack).device_policy == "spread", "the ConfigMap's policy")
        stack.until(lambda: SOURCE in said_of_policy(stack), "/readyz says where it is from")
        state = fold(stack.records())
        assert sources(state)[0] == Source("scheduler", SOURCE, state.policy_seq)

        apply_map(stack, configuration("none"))
        stack.until(lambda: policy_of(stack).device_policy == "none", "a change takes effect")
        config.write_text(configuration("binpack").replace("allocate", "backfill"))
        apply_map(stack, configuration("sideways"))
        stack.until(lambda: bool(findings(fold(stack.records()), 0)), "the refusal is in the log")
        (found,) = findings(fold(stack.records()), 0)
        assert (found.severity, found.subject) == ("error", f"scheduler configuration {SOURCE}")
        assert "'sideways'; wanted: one of binpack, spread, none" in found.message
        assert policy_of(stack).device_policy == "none"

        stack.kill("watcher")
        stack.start("watcher")  # broken still: what the log says stays in force
        assert policy_of(stack).device_policy == "none"
        assert stack.metric("watcher", "allot_policy_problems") == 1

        apply_map(stack, "", key="scheduler.conf")
        told(stack, "watcher", "has no key volcano-scheduler.conf (it has: scheduler.conf)")
        stack.call("DELETE", f"{MAPS}/{NAME}")
        stack.until(lambda: policy_of(stack).actions == ("backfill",), "the file's policy again")
        stack.until(lambda: not findings(fold(stack.records()), 0), "nothing is wrong any more")
        assert said_of_policy(stack) == f"active as written: {config}"


def test_the_file_goes_first_if_that_is_set_and_the_map_is_warned_of(tmp_path: Path) -> None:
    config = tmp_path / "volcano-scheduler.conf"
    config.write_text(configuration("binpack"))
    options = {"watcher": ["--policy-file", str(config), "--policy-file-first=true"]}
    with Stack(tmp_path, NODES, services=("watcher",), options=options) as stack:
        apply_map(stack, configuration("spread"))
        stack.until(lambda: bool(findings(fold(stack.records()), 0)), "the warning is in the log")
        (found,) = findings(fold(stack.records()), 0)
        assert (found.severity, found.code) == ("warning", "ConfigNotRead")
        assert f"{SOURCE}: is not active: the policy file {config} goes first" in found.message
        assert "warning: " + SOURCE in said_of_policy(stack)
        assert policy_of(stack).device_policy == "binpack"


def test_what_has_no_effect_is_said_where_people_look(tmp_path: Path) -> None:
    text = (
        configuration("binpack") + "  - name: usage\n  - name: gang\n    arguments: {gang.x: 1}\n"
    )
    with Stack(tmp_path, NODES, services=("watcher",)) as stack:
        apply_map(stack, text)
        stack.until(lambda: len(findings(fold(stack.records()), 0)) == 2, "both are in the log")
        one, two = findings(fold(stack.records()), 0)
        assert (one.severity, one.code, one.subject) == (
            "warning",
            "ConfigWithoutEffect",
            f"scheduler configuration {SOURCE}",
        )
        assert one.message == f"{SOURCE}:7:11: plugin usage: read, has no effect"
        unknown = "unknown argument gang.x of plugin gang, ignored; it takes none"
        assert two.message == f"{SOURCE}:9:17: {unknown}"
        ready, body = stack.readiness("watcher")
        assert ready == 200
        assert f"warning: {one.message}" in body["holds"]["policy"]
        apply_map(stack, configuration("binpack"))
        stack.until(lambda: not findings(fold(stack.records()), 0), "it is over")


def test_a_device_configuration_that_is_elsewhere_is_said_with_the_line(tmp_path: Path) -> None:
    line = "      deviceshare.KnownGeometriesCMNamespace: volcano-system\n"
    with Stack(tmp_path, NODES, services=("watcher",), configured=True) as stack:
        apply_map(stack, configuration("binpack") + line)
        stack.until(lambda: bool(findings(fold(stack.records()), 0)), "the warning is in the log")
        (found,) = findings(fold(stack.records()), 0)
        name = "volcano-vgpu-device-config"
        assert (found.severity, found.code) == ("warning", "ConfigNotFound")
        assert found.message == (
            f"ConfigMap volcano-system/{name}: does not exist, so devices are read as built in; "
            f"ConfigMap kube-system/{name} exists: write deviceshare.KnownGeometriesCMNamespace: "
            "kube-system in the scheduler configuration, or move the ConfigMap"
        )
        assert stack.readiness("watcher")[1]["holds"]["devices"].endswith(found.message)
        apply_map(stack, configuration("binpack"))
        stack.until(lambda: not findings(fold(stack.records()), 0), "it is over")


def test_a_pod_says_which_line_or_name_it_lacks(tmp_path: Path) -> None:
    config = tmp_path / "volcano-scheduler.conf"
    config.write_text(configuration("binpack") + "      deviceshare.VGPUEnable: true\n")
    nodes = "- {name: s, kind: gpushare, gpus: {model: Tesla T4, count: 2, memory_mib: 16000}}\n"
    nodes += "- {name: w, kind: whole, gpus: {model: Tesla T4, count: 2, memory_mib: 16000}}\n"
    options = {"watcher": ["--policy-file", str(config)]}
    with Stack(tmp_path, nodes, options=options) as stack:
        stack.create_pod("number", {"volcano.sh/gpu-number": "1"})
        stack.create_pod("case", {"nvidia.com/GPU": "1"})
        line = (
            f"deviceshare.GPUNumberEnable is not set in the scheduler configuration ({config}), so "
            "volcano.sh/gpu-number is not served: write deviceshare.GPUNumberEnable: true under "
            "the arguments of plugin deviceshare in place of deviceshare.VGPUEnable: true"
        )
        name = "no node offers nvidia.com/GPU; did you mean nvidia.com/gpu?"
        stack.until(lambda: line in stack.refusal("number"), "the condition has the line")
        stack.until(lambda: name[1:] in stack.refusal("case"), "the condition has the name")
        stack.until(lambda: bool(stack.events("number", "FailedScheduling")), "an Event, too")
        assert line in stack.events("number", "FailedScheduling")[-1]
        said = {one.subject: one.message for one in findings(fold(stack.records()), 0)}
        assert line in said["pod default/number"]
        assert said["pod default/case"] == name
        config.write_text(configuration("binpack") + "      deviceshare.GPUNumberEnable: true\n")
        stack.until(lambda: bool(stack.node_of("number")), "with that line the pod is bound")
