"""What one object, and one namespace, may bring into the log and into decisions."""

import json
from typing import Any

import anyio
import msgspec
import pytest

from allotment.adapters.kube.watch_events import Added, Deleted, Identity
from allotment.core import reasons
from allotment_proto.events import GroupObserved, PodGone, PodObserved
from allotment_watcher import objects
from allotment_watcher.batch_objects import GroupObject, QueueObject
from allotment_watcher.normalise.batch import group_fact, queue_fact
from allotment_watcher.normalise.bounds import (
    BATCH_BYTES_MAX,
    FACT_BYTES_MAX,
    NAME_CHARS_MAX,
    RESOURCE_NAMES_MAX,
    queue_excess,
)
from allotment_watcher.throttle import (
    BYTES_AT_ONCE,
    BYTES_PER_S,
    CHANGE_EVERY_S,
    CHANGES_AT_ONCE,
    Spending,
    Throttle,
)
from allotment_watcher.variety import FAR_RULES_MAX, NAMES_MAX, RULES_MAX
from tests import build
from tests.unit.kube_json import container, pod_json
from tests.unit.watcher_told import Told


def names(number: int, start: int = 0) -> dict[str, str]:
    return {f"made-up-{n}.io/y": "1" for n in range(start, start + number)}


def pod(name: str, limits: dict[str, str] | None = None, **changes: Any) -> objects.PodObject:
    found = pod_json(container(limits=limits or {"cpu": "1"}))
    found["metadata"] |= {"name": name, "uid": f"uid-{name}", "namespace": "ta"}
    found["metadata"] |= changes.pop("metadata", {})
    found["spec"] |= changes
    return msgspec.json.decode(json.dumps(found), type=objects.PodObject)


def fact_of(found: objects.PodObject) -> PodObserved:
    told = Told()
    see(told, found)
    fact = told.put[-1]
    assert isinstance(fact, PodObserved)
    return fact


def see(told: Told, *pods: objects.PodObject) -> None:
    for each in pods:
        meta = each.metadata
        identity = Identity(meta.namespace, meta.name, meta.uid)
        anyio.run(told.observer.on_pod, Added(identity, each))


def drop(told: Told, each: objects.PodObject) -> None:
    meta = each.metadata
    anyio.run(told.observer.on_pod, Deleted(Identity(meta.namespace, meta.name, meta.uid)))


def rules(number: int, start: int = 0, **changes: Any) -> dict[str, Any]:
    terms = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": f"a{n}"}},
            **changes,
        }
        for n in range(start, start + number)
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_a_pod_that_names_too_many_resources_is_rejected_by_name() -> None:
    fact = fact_of(pod("p", names(1000)))
    assert fact.problem is not None
    assert fact.problem.message == (
        f"1000 different resources; at most {RESOURCE_NAMES_MAX} are accepted"
    )
    assert (fact.request.extended, fact.asks) == ((), None)
    assert len(msgspec.json.encode(fact)) < 1000
    assert fact_of(pod("p", names(RESOURCE_NAMES_MAX))).problem is None


def test_of_too_many_resources_a_running_pod_takes_those_that_its_node_has() -> None:
    told = Told()
    node = build.node("n1", 0, extended=(("example.com/fpga", 4),))
    told.observer.reported.nodes.seen(node)
    limits = {**names(1000), "cpu": "2", "example.com/fpga": "1"}
    see(told, pod("p", limits, nodeName="n1"))
    fact = told.put[-1]
    assert (fact.request.cpu_milli, fact.request.extended) == (2000, (("example.com/fpga", 1),))


@pytest.mark.parametrize("node", ["", "n1"])
@pytest.mark.parametrize(
    "grown",
    [
        {"labels": {f"label-{n}": "x" * 63 for n in range(2000)}},
        {"annotations": {"scheduling.k8s.io/group-name": "g" * 200_000}},
        {"annotations": {"scheduling.volcano.sh/queue-name": "q" * 200_000}},
        {"annotations": {"volcano.sh/task-spec": "t" * 200_000}},
        {"annotations": {"volcano.sh/card.name": "|".join(f"card-{n}" for n in range(20_000))}},
    ],
)
def test_no_part_of_a_pod_fills_the_log(grown: dict[str, Any], node: str) -> None:
    fact = fact_of(pod("p", metadata=grown, nodeName=node or None))
    assert len(msgspec.json.encode(fact)) <= 4096
    assert fact.problem is not None
    assert f"at most {FACT_BYTES_MAX} are accepted" in fact.problem.message
    assert fact.request.cpu_milli == (1000 if node else 0), "what it takes of its node stays"


def group(**spec: Any) -> GroupObject:
    meta = {"name": "g", "namespace": "ta", "uid": "u", "resourceVersion": "1"}
    text = json.dumps({"metadata": meta, "spec": spec})
    return msgspec.json.decode(text, type=GroupObject)


@pytest.mark.parametrize(
    "spec",
    [
        {"minTaskMember": {f"role-{n}": 1 for n in range(20_000)}},
        {"minResources": names(20_000) | {"cpu": "3"}},
        {"queue": "q" * 500_000},
        {"subGroupPolicy": [{"name": "x" * 1000} for _ in range(64)]},
    ],
)
def test_no_part_of_a_pod_group_fills_the_log(spec: dict[str, Any]) -> None:
    fact = group_fact(group(minMember=3, **spec))
    assert len(msgspec.json.encode(fact)) < 1024
    assert fact.problem is not None
    assert "at most" in fact.problem.message
    assert fact.min_member == 3
    assert len(fact.queue) <= NAME_CHARS_MAX


def test_a_minimum_of_too_many_resources_keeps_cpu_and_memory() -> None:
    fact = group_fact(group(minResources=names(40) | {"cpu": "3", "memory": "1Gi"}))
    assert fact.min_resources == (("cpu", 3000), ("memory", 1 << 30))
    assert fact.problem is not None


def test_a_queue_that_is_too_large_loses_no_quota() -> None:
    text = {
        "metadata": {"name": "q", "uid": "u"},
        "spec": {"capability": names(2000) | {"cpu": "8"}},
    }
    fact = queue_fact(msgspec.json.decode(json.dumps(text), type=QueueObject))
    assert f"at most {BATCH_BYTES_MAX}" in queue_excess(fact)
    assert dict(fact.capability)["cpu"] == 8000


def test_the_pods_of_a_namespace_share_a_number_of_resource_names() -> None:
    told = Told()
    each = RESOURCE_NAMES_MAX
    for n in range(NAMES_MAX // each):
        see(told, pod(f"p{n}", names(each, each * n)))
    assert all(fact.problem is None for fact in told.put)
    see(told, pod("late", names(1, 100_000)), pod("same", names(each)))
    late, same = told.put[-2:]
    assert late.problem is not None
    assert (late.problem.code, late.problem.place) == (reasons.NAMESPACE_LIMIT, "namespace ta")
    assert late.request == msgspec.structs.replace(late.request, extended=())
    assert same.problem is None, "what others of the namespace ask for costs nothing"
    see(told, pod("other", names(1, 100_000), metadata={"namespace": "tb"}))
    assert told.put[-1].problem is None, "it is the namespace's limit"


def test_a_rejected_pod_is_read_again_when_there_is_room() -> None:
    told = Told()
    each = RESOURCE_NAMES_MAX
    pods = [pod(f"p{n}", names(each, each * n)) for n in range(NAMES_MAX // each)]
    see(told, *pods, pod("late", names(1, 100_000)))
    assert told.put[-1].problem is not None
    told.observer.see_freed()
    assert told.put[-1].problem is not None
    before = len(told.put)
    see(told, *pods)  # listed again: nothing new
    told.observer.see_freed()
    assert len(told.put) == before
    drop(told, pods[0])
    told.observer.see_freed()
    assert isinstance(told.put[-2], PodGone)
    assert (told.put[-1].uid, told.put[-1].problem) == ("uid-late", None)


def test_who_was_accepted_stays_so_after_a_restart() -> None:
    told = Told()
    each = RESOURCE_NAMES_MAX
    pods = [pod(f"p{n}", names(each, each * n)) for n in range(NAMES_MAX // each + 1)]
    see(told, *pods)
    rejected = {fact.uid for fact in told.put if fact.problem is not None}
    assert rejected == {pods[-1].metadata.uid}
    again = Told()
    for fact in told.put:
        again.observer.reported.pods.seen(fact)
    again.observer.variety.__init__(again.observer.reported.pods.facts())  # type: ignore[misc]
    see(again, *reversed(pods))
    assert again.put == []


@pytest.mark.parametrize(("far", "most"), [(False, RULES_MAX), (True, FAR_RULES_MAX)])
def test_the_pods_of_a_namespace_share_a_number_of_rules(far: bool, most: int) -> None:
    told = Told()
    where: dict[str, Any] = {"namespaceSelector": {}} if far else {}
    for n in range(most // 32):
        see(told, pod(f"p{n}", affinity=rules(32, 32 * n, **where)))
    assert all(fact.problem is None for fact in told.put)
    see(told, pod("late", affinity=rules(1, 100_000, **where)))
    assert told.put[-1].problem.code == reasons.NAMESPACE_LIMIT
    port = [{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80}]}]
    runs = pod("runs", affinity=rules(1, 100_000, **where), nodeName="n1", containers=port)
    see(told, runs)
    company = told.put[-1].request.company
    assert (company.away, len(company.ports)) == ((), 1), "what it takes of its node is there"
    drop(told, pod("p0"))
    told.observer.see_freed()
    assert {fact.uid: fact.problem for fact in told.put[-2:]} == {
        "uid-late": None,
        "uid-runs": None,
    }


@pytest.mark.parametrize("broken", [{}, {"volcano.sh/vgpu-number": "999"}])
def test_naming_a_node_is_no_way_around_the_limits_of_a_namespace(broken: dict[str, str]) -> None:
    told = Told()
    told.observer.reported.nodes.seen(build.node("n1", 0, extended=(("example.com/fpga", 4),)))
    each = RESOURCE_NAMES_MAX - 3
    for n in range(20):
        limits = {**names(each, each * n), **broken, "cpu": "1", "example.com/fpga": "1"}
        see(told, pod(f"p{n}", limits, nodeName="n1", affinity=rules(32, 32 * n)))
    told_names = {name for fact in told.put for name, _ in fact.request.extended}
    assert "example.com/fpga" in told_names
    assert len(told_names) <= NAMES_MAX + 1
    assert all("example.com/fpga" in dict(fact.request.extended) for fact in told.put)
    assert all(fact.request.cpu_milli == 1000 for fact in told.put)


def test_naming_a_node_is_no_way_around_the_bytes_of_a_namespace() -> None:
    told = Told()
    told.observer.throttle.spending._left["ta"] = (-1.0, told.now_s)
    fat = {"labels": {f"label-{n}": "x" * 63 for n in range(400)}}
    made = pod("p", {"cpu": "1"}, metadata=fat, nodeName="n1", affinity=rules(32))
    see(told, made)
    runs = msgspec.structs.replace(made, status=objects.PodStatus(phase="Running"))
    see(told, runs)
    assert [fact.phase for fact in told.put] == ["Pending", "Running"], "never late"
    assert sum(len(msgspec.json.encode(fact)) for fact in told.put) < 2048
    assert all(fact.request.cpu_milli == 1000 for fact in told.put)
    told.now_s += 1.0
    told.observer.late.look()
    last = told.put[-1]
    assert (len(last.labels), len(last.request.company.away), last.problem) == (400, 32, None)
    assert len(told.observer.late) == 0


def test_a_namespace_that_has_written_its_bytes_waits_alone() -> None:
    told = Told()
    fat = {"labels": {f"label-{n}": "x" * 63 for n in range(400)}}
    sizes = []
    for n in range(10_000):
        see(told, found := pod("fat", metadata={**fat, "uid": f"uid-{n}"}))
        drop(told, found)
        if told.observer.late or not told.put:
            break
        sizes.append(sum(len(msgspec.json.encode(fact)) for fact in told.put))
        told.put.clear()
    assert BYTES_AT_ONCE <= sum(sizes) < BYTES_AT_ONCE + (1 << 20)
    told.put.clear()
    mine, theirs = pod("mine"), pod("theirs", metadata={"namespace": "tb"})
    see(told, mine, theirs)
    assert [fact.uid for fact in told.put] == ["uid-theirs"]
    assert told.observer.late.by_namespace() == {("ta",): 1}
    see(told, pod("runs", nodeName="n1"))
    assert told.put[-1].uid == "uid-runs", "what takes room is known at once"
    told.now_s += 2 * FACT_BYTES_MAX / BYTES_PER_S
    told.observer.late.look()
    assert told.put[-1].uid == "uid-mine"
    assert len(told.observer.late) == 0


def test_changes_of_a_group_are_recorded_as_seldom_as_those_of_a_pod() -> None:
    now_s = 0.0
    throttle = Throttle(lambda: now_s)
    last = GroupObserved(uid="u", namespace="ta", name="g", rv=1)
    recorded = 0
    for version in range(2, 1000):
        fact = msgspec.structs.replace(last, rv=version, min_member=version)
        if throttle.allows(last, fact):
            last, recorded = fact, recorded + 1
    assert recorded == CHANGES_AT_ONCE
    now_s += CHANGE_EVERY_S
    assert throttle.allows(last, msgspec.structs.replace(last, rv=1001, min_member=1001))


def test_the_bytes_of_a_namespace_come_back_and_it_is_forgotten() -> None:
    now_s = 0.0
    spending = Spending(lambda: now_s)
    fact = build.pod("a", labels=tuple((f"l{n}", "x" * 60) for n in range(400)), namespace="ta")
    while not spending.is_spent("ta"):
        spending.spend(fact)
    spending.forget_rested()
    assert spending.is_spent("ta")
    now_s += 2 * BYTES_AT_ONCE / BYTES_PER_S
    assert not spending.is_spent("ta")
    spending.forget_rested()
    assert not spending._left
