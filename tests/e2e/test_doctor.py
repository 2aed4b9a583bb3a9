"""What `allot doctor` says of a cluster in which something is wrong, asked as an operator asks it.

Every case is one in which scheduling stands still or a pod can never start, while the log by itself
looks healthy.
"""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from allotment.adapters.log.connection import connect
from allotment.adapters.log.jetstream import JetStream
from allotment.core.explain.doctor import standstill
from allotment_cli.main import main
from allotment_cli.read import doctor as asked
from allotment_local.apiserver.admission import read_policy
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import Envelope
from allotment_proto.subjects import STREAM
from allotment_proto.volcano.reserved import POLICY
from tests import build
from tests.e2e.stack import ROLES, Json, Stack, vgpu

NODES = """
- prefix: g
  count: 2
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
IDLE_AFTER_S = 2
"""How long nothing may be decided before the doctor says so; in truth it waits for half a minute.
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, NODES) as running:
        yield running


POLICY_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


class Doctor:
    """Asks the log of a stack, and its services where that is wanted."""

    def __init__(self, stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.stack = stack
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("ALLOT_HOME", str(tmp_path / "home"))

    def report(self, *arguments: str, services: bool = False) -> Json:
        command = ["doctor", "--nats", self.stack.nats.url, "-o", "json", *arguments]
        if services:
            http = [self.stack.processes[role].announced["http"] for role in ROLES]
            command += ["--services", ",".join(http)]
        result = CliRunner().invoke(main, command)
        assert result.exit_code in (0, 1), result.output
        report = dict(json.loads(result.stdout))
        of_platform = [one for one in report["findings"] if one["kind"] == "platform"]
        assert result.exit_code == (1 if of_platform else 0)
        return report

    def found(self, code: str, *arguments: str, services: bool = False) -> list[dict[str, Any]]:
        findings = self.report(*arguments, services=services)["findings"]
        return [one for one in findings if one["code"] == code]

    def until(self, code: str, *, services: bool = False) -> dict[str, Any]:
        """Wait until there is such a finding."""
        last: list[dict[str, Any]] = []

        def holds() -> bool:
            last[:] = self.found(code, services=services)
            return bool(last)

        self.stack.until(holds, f"the doctor finds {code}")
        return last[0]

    def is_content(self) -> bool:
        return not self.report(services=True)["findings"]


@pytest.fixture
def doctor(stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Doctor:
    return Doctor(stack, monkeypatch, tmp_path)


@contextmanager
def frozen(stack: Stack, service: str) -> Iterator[None]:
    process = stack.processes[service]
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


@pytest.mark.parametrize("service", ["filter", "scorer", "binder"])
def test_a_frozen_service_is_found_from_the_log_alone(
    stack: Stack, doctor: Doctor, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.create_pod("before", vgpu(1000))
    stack.until(lambda: "before" in stack.bound(), "a pod is bound")
    stack.until(doctor.is_content, "nothing is wrong")
    for module in (standstill, asked):
        monkeypatch.setattr(module, "IDLE_AFTER_S", IDLE_AFTER_S)
    with frozen(stack, service):
        stack.create_pod("during", vgpu(1000))
        stack.create_pod("hopeless", vgpu(999_000))
        (silent,) = doctor.found("ServiceNotReady", services=True)
        assert silent["subject"] == f"service {stack.processes[service].announced['http']}"
        assert "no answer" in silent["message"]
        found = doctor.until("NothingDecided")
        assert found["severity"] == "error"
        assert "default/during fits on 2 of 2 nodes" in found["message"]
        assert "the last decision was" in found["message"]
        assert "default/during" in found["pods"]
        explain = ["explain", "pod", "during", "--nats", stack.nats.url, "-o", "json"]
        said = json.loads(CliRunner().invoke(main, explain).stdout)
        (problem,) = said["problems"]
        assert (problem["code"], problem["subject"]) == ("NobodyActive", f"service {service}")
        assert said["status"]["cause"] == "Queued"
        assert "advice" not in said
    stack.until(lambda: "during" in stack.bound(), "it goes on")
    stack.until(lambda: not doctor.found("NothingDecided"), "the doctor is content")


def test_a_node_that_vanished_with_a_pod_on_it(stack: Stack, doctor: Doctor) -> None:
    stack.create_pod("runs", vgpu(1000))
    stack.until(lambda: "runs" in stack.bound(), "it is bound")
    node = stack.node_of("runs")
    stack.call("DELETE", f"/api/v1/nodes/{node}")
    found = doctor.until("NodeGone")
    assert (found["severity"], found["subject"]) == ("error", f"node {node}")
    assert "1 pod on it: default/runs; they hold shares of 1 card" in found["message"]
    assert found["seq"] > 0
    assert found["since"].startswith("20")


def test_where_the_log_and_the_api_server_differ_and_how_that_ends(
    stack: Stack, doctor: Doctor
) -> None:
    config = ["--kubeconfig", str(stack.directory / "kubeconfig")]
    stack.create_pod("runs", vgpu(1000))
    stack.until(lambda: "runs" in stack.bound(), "it is bound")
    (unguarded,) = doctor.found("AssignmentsUnguarded", *config)
    assert "kubectl apply -f deploy/base/annotation-policy.yaml" in unguarded["remedy"]
    for guard in read_policy():
        kind = guard["kind"].lower().removesuffix("y")
        plural = f"{kind}ies" if guard["kind"].endswith("y") else f"{kind}s"
        stack.call("POST", f"/apis/{guard['apiVersion']}/{plural}", guard)
    stack.until(lambda: not doctor.report(*config)["findings"], "nothing differs")
    stack.call("DELETE", f"{POLICY_BINDINGS}/{POLICY}")  # this stack's binder has no token
    node = stack.node_of("runs")
    with frozen(stack, "watcher"):
        stack.call("DELETE", "/api/v1/namespaces/default/pods/runs?gracePeriodSeconds=0")
        stack.create_pod("unseen", vgpu(1000))
        (gone,) = doctor.found("PodNotInCluster", *config)
        assert (gone["subject"], gone["blame"]) == ("pod default/runs", "log")
        assert f"it still holds its place on {node}" in gone["message"]
        (unseen,) = doctor.found("PodNotInLog", *config)
        assert unseen["subject"] == "pod default/unseen"
        assert "it is not scheduled" in unseen["message"]
    stack.until(lambda: "unseen" in stack.bound(), "the watcher goes on")
    ghost = build.pod("ghost", node=node, phase="Running", holdings=(build.holding(),))
    envelope = Envelope(v=1, at_ms=1, by="e2e", events=(ghost,))
    stack.append(subjects.pod("ghost"), encode(envelope), "ghost")
    report = doctor.report("--fix", *config)
    log = stack.processes["watcher"].log_path.read_text()
    assert "asked to list again" in log
    assert [one["subject"] for one in report["corrected"]] == ["pod default/pod-ghost"]
    assert [one["code"] for one in report["findings"]] == ["AssignmentsUnguarded"]


def edit_stream(url: str, max_bytes: Callable[[int], int]) -> None:
    """What an administrator does with `nats stream edit --max-bytes`."""

    async def edit() -> None:
        async with connect(url, "e2e-admin") as connection:
            jetstream = JetStream(connection)
            info = await jetstream.stream_info(STREAM)
            assert info is not None
            config = {**info["config"], "max_bytes": max_bytes(info["state"]["bytes"])}
            await jetstream.request(f"STREAM.UPDATE.{STREAM}", config)

    anyio.run(edit)


def test_a_log_that_fills_up_and_is_full(stack: Stack, doctor: Doctor) -> None:
    stack.until(doctor.is_content, "nothing is wrong")
    edit_stream(stack.nats.url, lambda used: used * 100 // 85)
    nearly = doctor.until("LogNearlyFull")
    assert nearly["severity"] == "warning"
    assert "of max_bytes is used" in nearly["message"]
    edit_stream(stack.nats.url, lambda used: used + 64)
    stack.create_pod("late", vgpu(1000))
    (full,) = [doctor.until("LogFull")]
    assert full["severity"] == "error"
    assert "no record is appended" in full["message"]
    watcher = f"service {stack.processes['watcher'].announced['http']}"
    stack.until(
        lambda: any(
            one["subject"] == watcher and "log space" in one["message"]
            for one in doctor.found("ServiceNotReady", services=True)
        ),
        "the watcher says so too",
    )
    edit_stream(stack.nats.url, lambda _: -1)
    stack.until(lambda: "late" in stack.bound(), "room ends it")
    stack.until(doctor.is_content, "nothing is wrong any more")


def test_pods_that_can_never_start_by_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"watcher": ["--no-group-pods"]}
    with Stack(tmp_path, NODES, services=(), options=options) as stack:
        stack.define()
        for name, state in (("default", "Open"), ("training", "Open")):
            body = {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": {"weight": 1},
                "status": {"state": state},
            }
            stack.call("POST", f"{SCHEDULING}/queues", body)
        for role in ROLES:
            stack.start(role)
        doctor = Doctor(stack, monkeypatch, tmp_path)
        for number in range(5):
            stack.create_pod(f"typo-{number}", {"volcano.sh/vgpu-numbre": "1"})
        stack.create_pod("no-number", {"volcano.sh/vgpu-memory": "1000"})
        stack.create_pod("too-big", vgpu(99_000))
        stack.create_pod("misspelt", vgpu(1000), scheduler="alotment")
        queue = {"scheduling.volcano.sh/queue-name": "trainings"}
        stack.create_pod("no-queue", vgpu(1000), annotations=queue)
        group = {"scheduling.k8s.io/group-name": "lost"}
        stack.create_pod("no-group", vgpu(1000), annotations=group)
        stack.create_pod("forgotten", vgpu(1000), scheduler="default-scheduler")
        stack.create_pod("nginx", {}, scheduler="default-scheduler")
        foreign = {"nvidia.com/use-gpuuuid": "GPU-1"}
        stack.create_pod("hami", vgpu(1000), annotations=foreign)

        def messages() -> dict[str, list[str]]:
            findings = doctor.report()["findings"]
            found: dict[str, list[str]] = {}
            for one in findings:
                found.setdefault(one["code"], []).append(one["message"])
            return found

        wanted = {
            "NotOffered",
            "InvalidRequest",
            "NeverFits",
            "NotOurs",
            "QueueUnknown",
            "GroupMissing",
            "AnnotationNotRead",
        }
        stack.until(lambda: messages().keys() == wanted, "every cause is named, and no other")
        found = messages()
        assert found["NotOffered"] == [
            "no node offers volcano.sh/vgpu-numbre; did you mean volcano.sh/vgpu-number?"
        ]
        (invalid,) = found["InvalidRequest"]
        assert "volcano.sh/vgpu-number: 1" in invalid
        (never,) = found["NeverFits"]
        assert "no node would fit the pod even if no other pod ran" in never
        forgotten, misspelt = found["NotOurs"]
        assert "schedulerName is alotment" in misspelt
        assert "did you mean allotment?" in misspelt
        assert "no card for volcano.sh/vgpu-memory, volcano.sh/vgpu-number" in forgotten
        assert found["QueueUnknown"] == ["queue trainings does not exist; did you mean training?"]
        assert found["GroupMissing"] == ["PodGroup default/lost does not exist"]
        assert found["AnnotationNotRead"] == [
            "annotation nvidia.com/use-gpuuuid (HAMi) is ignored here; write the annotation "
            "volcano.sh/vgpu-use-gpuuuid instead"
        ]
        report = doctor.report()
        (typos,) = (one for one in report["findings"] if one["code"] == "NotOffered")
        assert typos["subject"] == "pods default/typo-0, default/typo-1, default/typo-2 and 2 more"
        assert report["neverStart"] == 11
        explained = CliRunner().invoke(main, ["explain", "pod", "hami", "--nats", stack.nats.url])
        assert "nvidia.com/use-gpuuuid (HAMi) is ignored here" in explained.stdout
