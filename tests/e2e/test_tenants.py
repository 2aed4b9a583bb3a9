"""Two tenants: pods of one that fit nowhere, with many rules about everybody, or that are simply
many, and what another tenant's pod notices of them.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allotment_proto.events import Decided, GroupObserved, PodObserved
from allotment_watcher.throttle import CHANGES_AT_ONCE
from tests.e2e.audit import events
from tests.e2e.stack import ROLES, Json, Stack, vgpu
from tests.replaying import verify

NODES = """
- prefix: v
  count: 6
  gpus: {model: Tesla T4, count: 8, memory_mib: 16000, slots: 10}
  cpu: 64
  memory: 256Gi
"""
HOSTILE, PROBES = 150, 8
CROWD = 1_000
TERMS_EACH = {"required": 12, "preferred": 12}
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
PODS = "/api/v1/namespaces/{}/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"


@pytest.fixture(params=["one by one", "by queues"])
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stack]:
    with empty_stack(request.param, tmp_path) as running:
        for role in ROLES:
            running.start(role)
        yield running


@contextlib.contextmanager
def empty_stack(mode: str, tmp_path: Path) -> Iterator[Stack]:
    """A cluster with or without queues, and no service yet."""
    with Stack(tmp_path, NODES, services=()) as running:
        if mode == "by queues":
            running.define()
            running.call("POST", QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 1}})
        yield running


def hostile(number: int, terms: dict[str, int]) -> Json:
    def about_everybody(term: int) -> Json:
        told_apart = {"key": "app", "operator": "NotIn", "values": [f"{number}-{term}"]}
        return {
            "topologyKey": "kubernetes.io/hostname",
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [told_apart]},
        }

    rules = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            about_everybody(term) for term in range(terms["required"])
        ],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": about_everybody(1000 + term)}
            for term in range(terms["preferred"])
        ],
    }
    container = {"name": "c", "image": "i:1", "resources": {"limits": vgpu(10_000_000)}}
    spec = {
        "schedulerName": "allotment",
        "containers": [container],
        "affinity": {"podAntiAffinity": rules},
    }
    return {"metadata": {"name": f"hostile-{number}"}, "spec": spec}


def bound_after_s(stack: Stack, name: str) -> float:
    begin = time.monotonic()
    stack.create_pod(name, vgpu(100, 1))
    stack.until(lambda: bool(stack.node_of(name)), f"{name} is bound")
    return time.monotonic() - begin


def test_another_tenants_pod_is_decided_in_its_first_cycles(stack: Stack) -> None:
    stack.call("POST", "/api/v1/namespaces", {"metadata": {"name": "hostile"}})
    before = statistics.median(bound_after_s(stack, f"before-{n}") for n in range(PROBES))
    for number in range(HOSTILE):
        stack.call("POST", PODS.format("hostile"), hostile(number, TERMS_EACH))
    meanwhile = statistics.median(bound_after_s(stack, f"meanwhile-{n}") for n in range(PROBES))
    for number in range(PROBES):
        stack.delete_pod(f"before-{number}")  # room appears, and all that waits is due again
    after = statistics.median(bound_after_s(stack, f"after-{n}") for n in range(PROBES))
    print(f"\ncreated to bound, median: {before:.3f} s, {meanwhile:.3f} s, {after:.3f} s")
    for name in [f"{when}-{n}" for when in ("meanwhile", "after") for n in range(PROBES)]:
        assert cycles_until_decided(stack, name) <= 3, name
    too_many = hostile(HOSTILE, {"required": 60, "preferred": 40})
    stack.call("POST", PODS.format("hostile"), too_many)
    stack.until(
        lambda: "100 rules about other pods; at most 32 are supported" in refusal(stack, HOSTILE),
        "a pod with more rules hears how many it may have",
    )


@pytest.mark.parametrize("mode", ["one by one", "by queues"])
def test_a_crowd_of_another_namespace_costs_a_pod_a_turn(mode: str, tmp_path: Path) -> None:
    """The crowd is there first, and larger than the room that there is."""
    with empty_stack(mode, tmp_path) as stack:
        stack.call("POST", "/api/v1/namespaces", {"metadata": {"name": "crowd"}})
        for number in range(CROWD):
            stack.call("POST", PODS.format("crowd"), plain(f"crowd-{number}"))
        stack.call("POST", PODS.format("default"), plain("later"))
        stack.start("watcher")
        stack.until(lambda: is_known(stack, "later", CROWD + 1), "the log knows all pods")
        for role in ("filter", "scorer", "binder"):
            stack.start(role)
        stack.until(lambda: bool(outcomes(stack, "later")), "the later pod is decided about")
        before = outcomes(stack, "later")
        assert before[-1] == "default/later placed"
        assert len(before) <= 2, "one of the crowd has its turn before it"
        report = verify(stack.records())
        assert report.identical == report.decisions > 0


def plain(name: str) -> Json:
    resources = {"requests": {"cpu": "1m"}}
    containers = [{"name": "c", "image": "i:1", "resources": resources}]
    spec = {"schedulerName": "allotment", "containers": containers}
    return {"metadata": {"name": name}, "spec": spec}


def is_known(stack: Stack, name: str, pods: int) -> bool:
    names = {event.name for event in events(stack) if isinstance(event, PodObserved)}
    return name in names and len(names) == pods


def outcomes(stack: Stack, name: str) -> list[str]:
    """What was decided of pods, in order, up to the pod of this name; empty before that."""
    found: list[str] = []
    for event in events(stack):
        if isinstance(event, Decided):
            found += [f"{p.namespace}/{p.name} placed" for p in event.placements]
            found += [f"{r.namespace}/{r.name} refused" for r in event.refusals]
    ends = [at for at, outcome in enumerate(found, start=1) if f"/{name} " in outcome]
    return found[: ends[0]] if ends else []


def cycles_until_decided(stack: Stack, name: str) -> int:
    """How many decisions there were from when the log knew the pod to the one that placed it."""
    uid = stack.pod(name)["metadata"]["uid"]
    known, decisions = False, 0
    for event in events(stack):
        if isinstance(event, PodObserved) and event.uid == uid:
            known = True
        elif isinstance(event, Decided) and known:
            decisions += 1
            if any(placement.uid == uid for placement in event.placements):
                return decisions
    raise AssertionError(f"{name} was not placed")


def refusal(stack: Stack, number: int) -> str:
    pod = stack.call("GET", f"{PODS.format('hostile')}/hostile-{number}")
    conditions = pod["status"].get("conditions") or []
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), "")


RESOURCES, RULES = 1_000, 31
PATCHES, PATCH_BYTES = 60, 90_000
PAGE_BYTES_MAX = 500_000
LOG_BYTES_MAX = 500_000


def made_up_resources(number: int) -> Json:
    """A pod that asks for resources that nobody has, and nobody else asks for."""
    pod = plain(f"hostile-{number}")
    asked = {f"made-up-{number}-{n}.io/y": "1" for n in range(RESOURCES)}
    pod["spec"]["containers"][0]["resources"] = {"requests": asked, "limits": asked}
    return pod


def made_up_rules(number: int) -> Json:
    """A pod that is apart from nobody in places that no node is in."""
    pod = plain(f"hostile-{number}")
    rules = [{"topologyKey": f"made-up-{number}-{n}.io/z"} for n in range(RULES)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": rules}
    pod["spec"]["affinity"] = {"podAntiAffinity": required}
    return pod


@pytest.mark.parametrize(
    ("hostile_pod", "pods", "said"),
    [
        (made_up_resources, 30, "1000 different resources; at most 32 are accepted"),
        (made_up_rules, 120, "its pods ask for 1024 different rules about other pods"),
    ],
)
def test_what_others_make_up_costs_a_pod_nothing(
    hostile_pod: Callable[[int], Json], pods: int, said: str, tmp_path: Path
) -> None:
    with empty_stack("by queues", tmp_path) as stack:
        for role in ROLES:
            stack.start(role)
        stack.call("POST", "/api/v1/namespaces", {"metadata": {"name": "hostile"}})
        for number in range(pods):
            stack.call("POST", PODS.format("hostile"), hostile_pod(number))
        for number in range(3):
            bound_after_s(stack, name := f"meanwhile-{number}")
            assert cycles_until_decided(stack, name) <= 3
        stack.until(lambda: said in refusal(stack, pods - 1), "the last one is told why")
        binder = (tmp_path / "binder.log").read_text(errors="replace")
        assert "lease lost" not in binder, "no decision outlasted it"
        for role in ROLES:
            assert len(stack.metrics_page(role)) < PAGE_BYTES_MAX
        report = verify(stack.records())
        assert report.identical == report.decisions > 0


def test_a_pod_group_that_is_patched_all_the_time_does_not_fill_the_log(tmp_path: Path) -> None:
    with empty_stack("by queues", tmp_path) as stack:
        stack.start("watcher")
        group = {"metadata": {"name": "g"}, "spec": {"minMember": 1}}
        groups = GROUPS.format("default")
        stack.call("POST", groups, group)
        for number in range(PATCHES):
            roles = {f"role-{number}-{n}": 1 for n in range(PATCH_BYTES // 30)}
            body = {"spec": {"minMember": number + 1, "minTaskMember": roles}}
            stack.call("PATCH", f"{groups}/g", body, "application/merge-patch+json")
        stack.create_pod("afterwards", vgpu(100, 1))
        stack.until(lambda: is_known(stack, "afterwards", 1), "what comes later is recorded")
        assert sum(len(record.payload) for record in stack.records()) < LOG_BYTES_MAX
        told = [event for event in events(stack) if isinstance(event, GroupObserved)]
        assert 2 <= len(told) <= CHANGES_AT_ONCE + 10
        assert told[-1].problem is not None
        assert "at most 16384 are accepted" in told[-1].problem.message
