"""What a pod and its PodGroup say while they wait holds at least the facts that kube-scheduler and
Volcano state in the same situation: how many nodes for which cause, and the names and numbers.

Each row is one situation: how it comes about, and the facts, each a regular expression that the
text of the pod's Event and condition must contain.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from allotment.core.explain.why import Whys
from allotment.core.queues.model import Phase
from allotment.core.queues.phases import UNSCHEDULABLE
from allotment.core.queues.round.members import job_of
from allotment.core.reasons import refusal_text
from allotment_binder.causes import told
from allotment_binder.gang_notices import waits_because
from allotment_binder.group_status import closing_of, quota_of
from allotment_binder.notices import Refused
from allotment_binder.readers import Readers
from allotment_proto import subjects
from allotment_proto.facts import (
    Attachment,
    Company,
    Constraints,
    Expression,
    HostPort,
    NodeTerm,
    PodRequest,
    PodTerm,
    Problem,
    Selection,
    Spread,
    Taint,
)
from tests import build
from tests.recording import GIB, uid_of
from tests.recording_batch import POLICY, BatchRecorder

SERVING = Taint("dedicated", "serving", "NoSchedule")
DB = (Expression("app", "In", ("db",)),)
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"
TWO = "gpu-01 and gpu-02"


class Cluster(BatchRecorder):
    """Two nodes with two cards each, one of them in zone a, and a node without cards."""

    def __init__(self, *, actions: tuple[str, ...] = POLICY.actions) -> None:
        super().__init__()
        names = ("volcano", "allotment")
        self.policy(msgspec.structs.replace(POLICY, scheduler_names=names, actions=actions))
        self.queue("default")
        self.add("gpu-01", labels=((ZONE, "a"),))
        self.add("gpu-02")
        self.add("cpu-01", cards=0)

    def add(self, name: str, cards: int = 2, **changes: Any) -> None:
        """Tell of a node, or tell of it anew."""
        labels = (*changes.pop("labels", ()), (HOST, name))
        fact = build.node(name, cards, labels=labels, uid=uid_of(name), rv=self.seq, **changes)
        self.append(subjects.node(name), "watcher/0", fact)

    def all(self, **changes: Any) -> None:
        """Change something about all nodes."""
        for node in list(self.state.nodes.values()):
            assert node.fact is not None
            fact = msgspec.structs.replace(node.fact, rv=self.seq, **changes)
            self.append(subjects.node(node.name), "watcher/0", fact)

    def told_of(self, name: str) -> str:
        """What the binder writes into the pod's Event and condition."""
        pod = self.state.pods[uid_of(f"default/{name}")]
        fact = pod.fact
        if pod.refusal is not None:
            said = refusal_text(pod.refusal)
        else:
            said = waits_because(self.state.groups[fact.group])
        notice = Refused(fact.uid, fact.namespace, fact.name, said, is_news=True)
        return told(self.state, Whys(self.state), notice, Readers())


def ask(**changes: Any) -> PodRequest:
    return build.request(build.wants(4_000, 25), **changes)


def company(**fields: Any) -> PodRequest:
    return ask(company=Company(**fields))


class Row(NamedTuple):
    make: Callable[[Cluster], Any]
    facts: tuple[str, ...]
    name: str = "p"


def pod(
    request: PodRequest, *before: Callable[[Cluster], Any], **fields: Any
) -> Callable[[Cluster], None]:
    def make(log: Cluster) -> None:
        for each in before:
            each(log)
        log.pod("p", request, **fields)
        log.round()

    return make


def running(name: str, request: PodRequest, **fields: Any) -> Callable[[Cluster], None]:
    def make(log: Cluster) -> None:
        uid = log.pod(name, request)
        log.round()
        log.bind(uid)
        log.observe(uid, phase="Running", **fields)

    return make


def evicting(log: Cluster) -> None:
    policy = msgspec.structs.replace(log.state.policy, actions=(*POLICY.actions, "preempt"))
    log.policy(policy)


def group(
    name: str, members: int, pods: int, memory_mib: int, **fields: Any
) -> Callable[[Cluster], None]:
    def make(log: Cluster) -> None:
        log.group(name, members, pods, memory_mib, **fields)
        log.round()

    return make


def of_queue(
    name: str, then: Callable[[Cluster], None], **fields: Any
) -> Callable[[Cluster], None]:
    def make(log: Cluster) -> None:
        log.queue(name, **fields)
        then(log)

    return make


def full(log: Cluster) -> None:
    """All four cards are in use, each by a pod of its own."""
    for number in range(4):
        running(f"hog-{number}", build.request(build.wants(1_000, 100)))(log)


NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
AFFINITY = Constraints(affinity=(NodeTerm((Expression("disk", "In", ("ssd",)),)),))
IN_B = ((NodeTerm((Expression(ZONE, "In", ("b",)),)),),)
NEAR_DB = PodTerm(HOST, ("default",), DB)
SPREAD = Spread(PodTerm("rack", ("default",), DB), 1, True, False)
WHOLE = build.request(extended=((GPU, 2),))
SITUATIONS: dict[str, Row] = {
    # kube-scheduler: the node
    "0/3 nodes are available: 3 Insufficient cpu": Row(
        pod(ask(cpu_milli=100_000)), (r"CPU", r"100 ", r"\b3\b|all nodes|largest node has 8")
    ),
    "3 Insufficient cpu, in use": Row(
        pod(
            ask(cpu_milli=5_000),
            running("a", ask(cpu_milli=7_500)),
            running("b", ask(cpu_milli=7_500)),
        ),
        (r"2 InsufficientCPU", r"not enough CPU: 5 requested", "default/a|default/b"),
    ),
    "3 Insufficient memory": Row(
        pod(ask(memory_bytes=64 * GIB)),
        ("64.0 GiB of host memory", "32.0 GiB", "3 InsufficientMemory"),
    ),
    "3 Too many pods": Row(
        pod(ask(), lambda log: log.all(pods=0)), ("maximum number of pods", TWO, "PodLimitReached")
    ),
    "2 Insufficient nvidia.com/gpu": Row(
        pod(
            WHOLE,
            lambda log: log.add("whole", 0, extended=((GPU, 2),)),
            running("x", build.request(extended=((GPU, 1),))),
        ),
        (f"1 of 2 {GPU} in use, 2 requested", "not enough room in the cluster", "no queue quota"),
    ),
    "Insufficient nvidia.com/gpu, on no node": Row(pod(WHOLE), (GPU, "no node")),
    "3 node(s) had untolerated taint {dedicated: serving}": Row(
        pod(ask(), lambda log: log.all(taints=(SERVING,))),
        ("dedicated=serving:NoSchedule", "does not tolerate", "3 TaintNotTolerated", TWO),
    ),
    "untolerated taint {node.kubernetes.io/not-ready: }": Row(
        pod(ask(), lambda log: log.all(ready=False, taints=(NOT_READY,))),
        ("not ready", TWO, "3 NodeNotReady"),
    ),
    "3 node(s) were unschedulable": Row(
        pod(ask(), lambda log: log.all(unschedulable=True)), ("cordoned", TWO, "3 NodeCordoned")
    ),
    # kube-scheduler: what the pod says about nodes
    "3 node(s) didn't match Pod's node selector": Row(
        pod(ask(), constraints=Constraints(node_selector=(("disk", "ssd"),))),
        ("nodeSelector disk=ssd", "3 SelectorMismatch"),
    ),
    "3 node(s) didn't match Pod's node affinity": Row(
        pod(ask(), constraints=AFFINITY), ("node affinity", "disk", "ssd", "3 AffinityMismatch")
    ),
    "3 node(s) had volume node affinity conflict": Row(
        pod(ask(), constraints=Constraints(volumes=IN_B)),
        ("volume", ZONE, r"\bb\b", "3 VolumeOutOfReach"),
    ),
    "3 node(s) exceed max volume count": Row(
        pod(
            ask(attachments=(Attachment("ebs.csi.aws.com", "default/data"),)),
            lambda log: log.all(volume_limits=(("ebs.csi.aws.com", 0),)),
        ),
        ("ebs.csi.aws.com", "VolumeLimitReached"),
    ),
    'persistentvolumeclaim "data" not found': Row(
        pod(
            ask(),
            problem=Problem(
                "VolumeNotReady", "PersistentVolumeClaim default/data", "does not exist; create it"
            ),
        ),
        ("PersistentVolumeClaim default/data", "does not exist"),
    ),
    # kube-scheduler: other pods
    "node(s) didn't have free ports for the requested pod ports": Row(
        pod(
            company(ports=(HostPort("TCP", "0.0.0.0", 8080),)),
            *(running(n, company(ports=(HostPort("TCP", "0.0.0.0", 8080),))) for n in "ab"),
        ),
        ("8080/TCP", TWO, "2 HostPortTaken"),
    ),
    "3 node(s) didn't match pod affinity rules": Row(
        pod(company(near=(NEAR_DB,))), ("pod affinity", "app", "db", "3 PodAffinityMismatch")
    ),
    "node(s) didn't match pod anti-affinity rules": Row(
        pod(
            company(away=(PodTerm(HOST, ("default",), ()),)),
            *(running(n, ask(cpu_milli=5_000)) for n in "ab"),
        ),
        ("anti-affinity", HOST, "2 PodAntiAffinity"),
    ),
    "node(s) didn't match pod topology spread constraints (missing required label)": Row(
        pod(company(spread=(SPREAD,))), ("topology spread", "rack", "label", "3 SpreadMismatch")
    ),
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod": Row(
        pod(company(sole=("default/data",)), running("owner", company(sole=("default/data",)))),
        ("default/data", "pod owner", "3 ClaimInUse"),
    ),
    "preemption: 0/3 nodes are available: 1 Preemption is not helpful": Row(
        pod(build.request(build.wants(1_000, 100)), evicting, full),
        ("2 ExclusiveConflict", "1 NoGPU", "Evictions would not help on 1 of 3 nodes"),
    ),
    # Volcano's device plugin
    "node gpu-01: not enough gpu fitted on this node": Row(
        pod(
            build.request(build.wants(15_000, 10)),
            *(running(n, build.request(build.wants(9_000, 10))) for n in "abcd"),
        ),
        ("14.6 GiB requested", "6.8 GiB free", "2 InsufficientGPUMemory", "1 NoGPU"),
    ),
    "CardTypeMismatch": Row(
        pod(ask(selection=Selection(use_types=("A100",)))),
        ("model A100", "T4", "2 GPUModelMismatch"),
    ),
    "all cards in use": Row(
        pod(build.request(build.wants(1_000, 100)), full),
        ("all 4 suitable", "default/hog-0", "2 ExclusiveConflict"),
    ),
    # Volcano: groups and queues
    "pod group is not ready, 5 Pending, 5 minAvailable; Pending: 1 Unschedulable": Row(
        group("big", 5, 5, 15_000),
        ("4", "5 pods that must start together|5 minAvailable", "4 fit now"),
        "big-worker-0",
    ),
    "Task has already predicated failed, skip": Row(
        group("big", 5, 5, 15_000),
        ("default/big needs 5 pods", "minMember"),
        "big-worker-1",
    ),
    "2 Pending, 2 minAvailable, of a member that was not tried": Row(
        group("huge", 2, 2, 99_000),
        ("waits like huge-worker-0", "96.7 GiB of one GPU requested", "has 15.6 GiB"),
        "huge-worker-1",
    ),
    "Not enough valid tasks for gang-scheduling, valid: 2, min: 3": Row(
        group("few", 3, 2, 1_000), ("needs 3 pods", "minMember", "few"), "few-worker-0"
    ),
    "Not enough valid pods of task worker for gang-scheduling, valid: 1, min: 2": Row(
        group("roles", 2, 1, 1_000, min_task_member=(("worker", 2),)),
        ("2 pods of role worker", "minTaskMember"),
        "roles-worker-0",
    ),
    "queue resource quota insufficient: insufficient cpu": Row(
        of_queue("small", group("quota", 2, 2, 1_000, queue="small"), capability=(("cpu", 800),)),
        (
            "queue small",
            "500m of 800m cpu in use|0 of 800m cpu in use",
            "500m requested|100m requested",
        ),
        "quota-worker-0",
    ),
    "queue closed": Row(
        of_queue(
            "shut",
            group(
                "late", 1, 1, 1_000, queue="shut", phase="Pending", min_resources=(("cpu", 500),)
            ),
            state="Closed",
        ),
        ("queue shut", "Closed"),
        "late-worker-0",
    ),
    "failed to get queue": Row(
        group("lost", 1, 1, 1_000, queue="nowhere"),
        ("queue nowhere", "does not exist"),
        "lost-worker-0",
    ),
    "resource in cluster is overused": Row(
        group("huge", 2, 2, 1_000, phase="Pending", min_resources=(("cpu", 500_000),)),
        ("cpu", "500 requested", "of .* cpu"),
        "huge-worker-0",
    ),
    "queue resource quota insufficient, before it has pods": Row(
        of_queue(
            "small",
            group(
                "gate", 3, 3, 1_000, queue="small", phase="Pending", min_resources=(("cpu", 3_000),)
            ),
            capability=(("cpu", 2_000),),
        ),
        ("queue small", "0 of 2 cpu in use", "3 requested"),
        "gate-worker-0",
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_a_pod_says_holds_the_facts_of_others(situation: str) -> None:
    row, log = SITUATIONS[situation], Cluster()
    row.make(log)
    text = log.told_of(row.name)
    for fact in row.facts:
        assert re.search(fact, text), f"{fact!r} is not in: {text}"
    assert text.endswith(f"Ask: allot explain pod default/{row.name}")
    assert "\n" not in text


GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "big": (
        "pod group is not ready, 5 Pending, 5 minAvailable; Pending: 1 Unschedulable",
        ("5/5 tasks in gang unschedulable", "5 Pending, 5 minAvailable", "big-worker-0", "4 fit"),
    ),
    "few": (
        "Not enough valid tasks for gang-scheduling, valid: 2, min: 3",
        ("valid: 2, min: 3",),
    ),
    "quota": (
        "queue resource quota insufficient: insufficient cpu",
        ("queue small: 500m of 800m cpu in use|queue small: 0 of 800m cpu in use", "requested"),
    ),
    "gate": (
        "queue resource quota insufficient, before it has pods",
        ("insufficient cpu", "queue small: 0 of 2 cpu in use, 3 requested"),
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_what_a_pod_group_says_holds_the_facts_of_volcano(name: str) -> None:
    situation, facts = GROUPS[name]
    log = Cluster()
    SITUATIONS[situation].make(log)
    key = f"default/{name}"
    found = log.state.groups[key]
    assert found.fact is not None
    view = job_of(log.state, key, found, found.fact)
    before = Phase.PENDING if found.fact.phase == "Pending" else Phase.INQUEUE
    condition = closing_of(found, view, before, quota_of(log.state, found)).condition
    assert condition is not None
    assert condition.type == UNSCHEDULABLE
    for fact in facts:
        assert re.search(fact, condition.message), condition.message


def test_there_are_thirty_situations() -> None:
    assert len(SITUATIONS) >= 30
