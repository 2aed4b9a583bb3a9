"""Random queues, groups, pods and nodes, through filter, rounds, binder's check and fold.

Held at every step: what is kept in memory answers as what is made afresh; a snapshot changes
nothing; no gang gets a part of its minimum; no queue gets more than its quota. And in the end, with
room for all, everything that may be placed is.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core import snapshot
from allotment.core.batch.rounds import Rounds
from allotment.core.batch.views import Views
from allotment.core.board import Board
from allotment.core.bulk import picture_of
from allotment.core.check import check
from allotment.core.cycle import Evaluator, Outcome, recheck_all
from allotment.core.queues import nodegroup
from allotment.core.queues.gang import is_ready
from allotment.core.queues.proportion import Proportion
from allotment.core.queues.session import Session
from allotment.core.state import ClusterState, apply
from allotment_binder.deciding import is_overtaken
from allotment_filter.groups import Groups
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
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
)
from allotment_proto.facts import PluginUse, PodRequest, Policy
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.journaling import Journaled

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
Op = tuple[int, int, int, int]


class World:
    """One log, and all who read it."""

    def __init__(self) -> None:
        self.state, self.seq = ClusterState(), 0
        self.board, self.rounds = Board(self.state), Rounds(self.state)
        self.views, self.groups = Views(self.state), Groups(self.state)
        self.journaled = Journaled(self.state, every=10)
        self.made = 0
        self.tell(PolicyLoaded(policy=POLICIES[0], source="", text_sha256=""))
        self.queue(0, 0, 0)

    def tell(self, event: Event) -> None:
        self.seq += 1
        apply(self.state, event, self.seq)
        self.journaled.took(self.seq, (event,))

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
            )
        )

    def pods(self, a: int, b: int, c: int) -> None:
        """Some pods of a group, or of none."""
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
                )
            )

    def pod(self, a: int, b: int, c: int) -> None:
        """Something happens to one of the pods."""
        uids = list(self.state.pods)
        if not uids:
            return
        pod = self.state.pods[uids[(7 * a + b) % len(uids)]]
        fact, held = pod.fact, pod.allocation
        if c == 0 or (c == 1 and fact.deleting):
            self.tell(PodGone(uid=fact.uid, namespace="default", name=fact.name, rv=self.seq))
        elif c == 1:
            self.see(pod.fact.uid, deleting=True)
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

    def cycle(self, a: int, b: int, c: int) -> None:
        """A cycle, sometimes with a fact between its stages."""
        found = self.groups.next_batch((), 4 + b)
        if found is None:
            return
        meanwhile = c if c < 2 else 0
        uids = found.batch.uids
        basis, made = self.seq, self.round(uids)
        if meanwhile:
            self.stranger(a, b, c)
        session = Rounds(self.state).session()
        decided = self.decide(basis, uids, made)
        if decided is not None:
            if not meanwhile:
                self.check_quotas(session, decided)
            self.check_gangs(decided)
        self.groups.tried(found)

    def round(self, uids: Iterable[str]) -> Outcome:
        """The same by all who could be asked."""
        batch = list(uids)
        found = self.rounds.run(batch, self.board)
        afresh = Rounds(self.state).run(batch, Evaluator(self.state))
        assert msgspec.json.encode(found) == msgspec.json.encode(afresh)
        restored = snapshot.decode(snapshot.encode(self.state))
        again = Rounds(restored).run(batch, Board(restored))
        assert msgspec.json.encode(found) == msgspec.json.encode(again)
        return found

    def decide(self, basis: int, batch: tuple[str, ...], found: Outcome) -> Decided | None:
        proposal = Proposal(
            v=MESSAGE_VERSION,
            cycle="c",
            basis=basis,
            policy=0,
            batch=batch,
            placements=found.placements,
            refusals=found.refusals,
            stages=(),
        )
        assert not is_overtaken(self.state, proposal)
        kept, dropped, wholes = recheck_all(self.state, found.placements, found.wholes)
        decided = build.decided(
            *kept,
            basis=basis,
            batch=batch,
            dropped=dropped,
            refusals=found.refusals,
            wholes=wholes,
            shorts=found.shorts,
            admissions=found.admissions,
            holds=found.holds,
            evictions=found.evictions,
            nominations=found.nominations,
        )
        self.tell(decided)
        assert check(self.state) == []
        return decided

    def check_gangs(self, decided: Decided) -> None:
        """Wholes are whole in the state, and who got something has its minimum."""
        state = self.state
        placed = {uid for uid, pod in state.pods.items() if pod.allocation is not None}
        for whole in decided.wholes:
            assert len(placed.intersection(whole)) in (0, len(whole))
        session = Rounds(state).session()
        for key in {state.pods[p.uid].fact.group for p in decided.placements if p.uid in placed}:
            if key:
                assert is_ready(session.jobs[key]), key

    def check_quotas(self, before: Session, decided: Decided) -> None:
        """What was placed is within the queues' limits as they were."""
        taken: dict[str, Counter[str]] = {}
        for pod in self.state.pods.values():
            fact, held = pod.fact, pod.allocation
            ours = bool(fact.group) or fact.scheduler in self.state.policy.scheduler_names
            if held is None or fact.deleting or fact.uid in before_evicting(decided, self.state):
                continue
            if ours and fact.request != PodRequest():  # what asks for nothing needs no quota
                sums = taken.setdefault(self.queue_of(fact.group), Counter())
                sums.update({"cpu": fact.request.cpu_milli, "pods": 1})
        for placement in decided.placements:
            fact = self.state.pods[placement.uid].fact
            asked = {"pods": 1, "cpu": fact.request.cpu_milli}
            name = self.queue_of(fact.group)
            if fact.request == PodRequest():
                continue
            assert before.queue(name).state == "Open" or before.plugin("capacity") is None
            for limits in limits_of(before, name):
                for word, amount in asked.items():
                    if amount and word in limits:
                        assert taken[name][word] <= limits[word], (name, word)

    def queue_of(self, group: str) -> str:
        return self.state.groups[group].queue if group else "default"

    def drain(self) -> None:
        """Room and quota for all, nobody leaving: everything is placed, in a few cycles."""
        for name in QUEUES:
            self.tell(QueueObserved(uid=name, name=name, rv=self.seq))
        self.tell(PolicyLoaded(policy=POLICIES[0], source="", text_sha256=""))
        for number in range(4):
            cards = [build.card(index, id=f"big{number}-{index}") for index in range(100)]
            many = {"cpu_milli": 1_000_000, "memory_bytes": 1 << 44, "pods": 500}
            self.tell(build.node(f"big{number}", cards, **many))
        for uid, pod in list(self.state.pods.items()):
            if pod.fact.deleting or uid in self.state.evicting:
                self.tell(PodGone(uid=uid, namespace="default", name=uid, rv=self.seq))
            elif pod.fact.gated:
                self.see(uid, gated=False)
        cycles = 0
        while (found := self.groups.next_batch((), 16)) is not None:
            cycles += 1
            assert cycles < 60 + len(self.state.pods), "it never ends"
            self.decide(self.seq, found.batch.uids, self.round(found.batch.uids))
            self.groups.tried(found)
        session = Rounds(self.state).session()
        for uid in self.state.pending:
            key = self.state.pods[uid].fact.group
            group = self.state.groups.get(key)
            assert group is not None, uid
            if group.fact is not None:
                assert session.job_valid(session.jobs[key]) is not None, uid
            else:
                refusal = self.state.pods[uid].refusal
                assert refusal is not None, uid
                assert refusal.problem is not None, uid
                assert refusal.problem.code == "GroupMissing"


def before_evicting(decided: Decided, state: ClusterState) -> set[str]:
    """Pods that were told to go before this decision."""
    return state.evicting.keys() - {eviction.uid for eviction in decided.evictions}


def limits_of(session: Session, name: str) -> list[dict[str, int]]:
    """What the plugins of a session let a queue have, of CPU and pods."""
    found = []
    capacity, proportion = session.plugin("capacity"), session.plugin("proportion")
    if capacity is not None:
        found.append(dict(session.queue(name).capability.items()))
    if isinstance(proportion, Proportion):
        found.append(dict(proportion.deserved[name].items()))
    return [{k: int(v) for k, v in limits.items() if k in ("cpu", "pods")} for limits in found]


def _ops() -> tuple[Callable[[World, int, int, int], None], ...]:
    common = (World.cycle, World.pods, World.cycle, World.pod, World.cycle, World.group)
    return (
        *common,
        World.node,
        World.victims,
        World.queue,
        World.stranger,
        World.policy,
        World.priority_class,
    )


OPS = _ops()
NUMBERS = st.integers(0, 5)
STEPS = st.lists(
    st.tuples(st.integers(0, len(OPS) - 1), NUMBERS, NUMBERS, NUMBERS), min_size=20, max_size=60
)


@settings(max_examples=60)
@given(STEPS)
def test_groups_through_a_life(steps: list[Op]) -> None:
    world = World()
    for number in range(3):
        world.node(number, 2 + number, number)
        world.group(number, 2 + number, 0)
        world.pods(number, 3, 3)
    for op, a, b, c in steps:
        OPS[op](world, a, b, c)
        assert world.views.view() == Views(world.state).view()
    image = snapshot.encode(world.state)
    restored = snapshot.decode(image)
    assert snapshot.encode(restored) == image
    assert picture_of(restored) == picture_of(world.state)
    world.journaled.check()
    world.drain()
