"""A cluster with queues, groups and pods; what happens to them is chosen by three small numbers."""

from typing import Any

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.queues.plugins import nodegroup
from allotment_proto.events import (
    BindFailed,
    Bound,
    Event,
    Evicted,
    GroupGone,
    GroupObserved,
    NodeGone,
    PodGone,
    PolicyLoaded,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    TimePassed,
)
from allotment_proto.facts import PluginUse, PodRequest, Policy
from tests import build
from tests.metering import Metered
from tests.model import Model
from tests.property.following import Followers

FIRST = (PluginUse("priority"), PluginUse("gang"), PluginUse("conformance"))
ACTIONS = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
POLICIES = (
    Policy(tiers=(FIRST, (PluginUse("capacity"),)), actions=ACTIONS),
    Policy(tiers=(FIRST, (PluginUse("drf"), PluginUse("proportion"))), actions=ACTIONS),
    Policy(tiers=(FIRST, (PluginUse("drf"),)), actions=("allocate", "backfill")),
    Policy(
        tiers=(FIRST, (PluginUse("nodegroup", arguments=(("strict", False),)),)), actions=ACTIONS
    ),
)
QUEUES = ("default", "one", "two")
CLASSES = ("", "high", "low")
REQUESTS = (
    PodRequest(),
    PodRequest(cpu_milli=1_000),
    PodRequest(cpu_milli=3_000, memory_bytes=build.GIB),
    build.request(build.wants(8_000, 0)),
    build.request(build.wants(16_000, 0)),
)
IN_GROUP = ((), ((nodegroup.LABEL, "a"),), ((nodegroup.LABEL, "b"),))


class Cluster:
    """A state, and what may happen to it: whatever the numbers are, the log may tell of it."""

    def __init__(self) -> None:
        self.state, self.model, self.seq = ClusterState(), Model(), 0
        self.metered = Metered(self.state)
        self.followers = Followers(self.state)
        self.made = 0

    def tell(self, event: Event) -> None:
        self.seq += 1
        apply(self.state, event, self.seq)
        self.model.observe(event, self.seq)
        self.metered.took(self.seq)
        self.followers.look()

    def node(self, a: int, b: int, c: int) -> None:
        if c == 5 and f"n{a % 3}" in self.state.nodes:
            self.tell(NodeGone(name=f"n{a % 3}", uid=f"uid-n{a % 3}", rv=self.seq))
            return
        cards = [build.card(index, id=f"n{a % 3}-{index}") for index in range(b % 4)]
        self.tell(
            build.node(
                f"n{a % 3}",
                cards,
                rv=self.seq,
                cpu_milli=2_000 * (c + 1),
                pods=2 + b,
                labels=IN_GROUP[c % 3],
            )
        )

    def queue(self, a: int, b: int, c: int) -> None:
        name = QUEUES[a % 3]
        if c == 5:
            self.tell(QueueGone(uid=name, name=name, rv=self.seq))
            return
        few = (("cpu", 1_000 * (1 + b)), ("memory", 1 << 50), ("pods", 1 + b))
        self.tell(
            QueueObserved(
                uid=name,
                name=name,
                rv=self.seq,
                weight=1 + c,
                capability=few if c % 2 else (),
                deserved=(("cpu", 1_000 * b),) if c == 4 else (),
                state="Closed" if c == 3 else "Open",
                node_groups=(("a",), ("b",), (), ()) if b == 3 else None,
            )
        )

    def priority_class(self, a: int, b: int, c: int) -> None:
        name = CLASSES[1 + a % 2]
        self.tell(PriorityClassObserved(uid=name, name=name, rv=self.seq, value=b * (a % 2 + 1)))

    def group(self, a: int, b: int, c: int) -> None:
        """A PodGroup, or an edit of one, or its end."""
        name = f"g{a}"
        if c == 5:
            known = self.state.groups.get(f"default/{name}")
            if known is not None and known.fact is not None:
                gone = known.fact
                self.tell(GroupGone(uid=gone.uid, namespace="default", name=name, rv=self.seq))
            return
        self.tell(
            GroupObserved(
                uid=f"uid-{name}",
                namespace="default",
                name=name,
                rv=self.seq,
                created_ms=self.seq,
                min_member=b % 5,
                queue=QUEUES[(a + c) % 3],
                priority_class=CLASSES[b % 3],
                phase="Pending" if c == 1 else "Inqueue",
                min_resources=(("cpu", 1_000 * b),) if c == 1 else None,
                min_task_member=(("r0", 1), ("r1", 1)) if c == 2 else (),
                owner=("", "somebody")[(a + b) % 2],
            )
        )

    def made_for(self, uid: str, queue: str) -> None:
        """The PodGroup that a controller makes for a pod that has none."""
        name = f"podgroup-{uid}"
        self.tell(
            GroupObserved(
                uid=f"uid-{name}",
                namespace="default",
                name=name,
                rv=self.seq,
                created_ms=self.seq,
                queue=queue,
                min_resources=(("cpu", 1_000), ("pods", 1)),
                owner=uid,
            )
        )

    def pods(self, a: int, b: int, c: int) -> None:
        """Some pods of a group, or of none: told as of old, or with the queue that they name."""
        for _ in range(1 + b % 4):
            self.made += 1
            name = f"p-{self.made}"
            self.tell(
                build.pod(
                    name,
                    REQUESTS[c % len(REQUESTS)],
                    name=name,
                    rv=self.seq,
                    created_ms=self.seq,
                    group=f"default/g{a}" if a < 5 else "",
                    role=f"r{self.made % 2}",
                    gated=b == 5 and c == 5,
                    owner=f"o{a}",
                    queue=QUEUES[b % 3] if a == 5 and b > 1 else "",
                    class_priority=b if c == 4 else None,
                    priority_class=self._class_of(a) if c else "",
                )
            )

    def _class_of(self, a: int) -> str:
        """The PriorityClass of a group, as a Job hands it down."""
        known = self.state.groups.get(f"default/g{a}")
        return "" if known is None or known.fact is None else known.fact.priority_class

    def pod(self, a: int, b: int, c: int) -> None:
        """Something happens to one of the pods."""
        uids = list(self.state.pods)
        if not uids:
            return
        pod = self.state.pods[uids[(7 * a + b) % len(uids)]]
        fact, held = pod.fact, pod.allocation
        if c == 1 and fact.deleting and b % 2:
            self.tell(TimePassed(at_ms=fact.deadline_ms + (b - 3) * 30_000))
        elif c == 0 or (c == 1 and fact.deleting):
            self.tell(PodGone(uid=fact.uid, namespace="default", name=fact.name, rv=self.seq))
        elif c == 1:
            grace_s = (0, 100, 3600)[b % 3]
            deadline_ms = (self.seq + grace_s) * 1000 if b else 0
            self.see(fact.uid, deleting=True, grace_s=grace_s, deadline_ms=deadline_ms)
        elif c == 2 and held is not None and held.phase == "reserved":
            name = {"uid": fact.uid, "namespace": "default", "name": fact.name}
            failed = {"code": "x", "message": ""}
            end: Any = BindFailed if b == 5 else Bound
            more = failed if b == 5 else {}
            self.tell(end(**name, node=held.node, decision=held.seq, **more))
        elif c == 3 and held is not None:
            self.see(fact.uid, node=held.node, holdings=held.holdings, phase="Running")
        elif c == 4 and held is not None:
            node = held.node
            self.see(
                fact.uid, node=node, holdings=held.holdings, phase=("Succeeded", "Failed")[b % 2]
            )
        elif c == 5 and fact.gated:
            self.see(fact.uid, gated=False)
        elif c == 5 and fact.queue and f"default/podgroup-{fact.uid}" not in self.state.groups:
            self.made_for(fact.uid, fact.queue)
        elif c == 5 and fact.queue:
            self.see(fact.uid, group=f"default/podgroup-{fact.uid}", queue="")
        elif c == 5 and b == 4:
            self.see(fact.uid, group="default/g0")

    def see(self, uid: str, **changes: Any) -> None:
        fact = self.state.pods[uid].fact
        self.tell(msgspec.structs.replace(fact, rv=self.seq + 1, **changes))

    def stranger(self, a: int, b: int, c: int) -> None:
        """Another scheduler's pod takes room."""
        self.made += 1
        uid, node = f"x-{self.made}", f"n{a % 3}"
        self.tell(build.pod(uid, REQUESTS[2], name=uid, node=node, scheduler="other"))

    def victims(self, a: int, b: int, c: int) -> None:
        """The API server answers what was asked for."""
        for uid, eviction in sorted(self.state.evicting.items())[: 1 + a]:
            if b % 3:
                self.tell(PodGone(uid=uid, namespace="default", name=uid, rv=self.seq))
            else:
                name = {"uid": uid, "namespace": "default", "name": eviction.name}
                self.tell(Evicted(**name, node=eviction.node, decision=0, code="Budget"))

    def policy(self, a: int, b: int, c: int) -> None:
        policy = POLICIES[(a + b) % len(POLICIES)]
        self.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
