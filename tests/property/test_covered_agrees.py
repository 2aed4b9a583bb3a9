"""Lone pods that their queue's quota covers: placing them at once is asking job by job.

Random histories of queues, nodes and pods without PodGroups, now and then a group among them. Each
round is run both ways, and both must say the same to the last byte; so must the binder's check, of
the round's own placements and of others.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.placement.board.board import Board
from allotment.core.placement.cycle import Outcome
from allotment.core.queues.round.objections import objection
from allotment.core.queues.round.rounds import Rounds
from allotment_proto.events import (
    Placement,
    PolicyLoaded,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.property.batch_cluster import ACTIONS, CLASSES, FIRST, POLICIES, QUEUES, REQUESTS
from tests.property.batch_world import World

USUAL = (
    *POLICIES,
    Policy(tiers=(FIRST, (PluginUse("overcommit"), PluginUse("proportion")))),
    Policy(
        tiers=((PluginUse("overcommit"), *FIRST), (PluginUse("drf"), PluginUse("proportion"))),
        actions=ACTIONS,
        namespace_turns=True,
    ),
    Policy(tiers=((PluginUse("sla"), *FIRST), (PluginUse("capacity"),)), namespace_turns=True),
    Policy(tiers=(FIRST, (PluginUse("capacity-card"),))),
    Policy(tiers=((PluginUse("overcommit"),),), actions=("enqueue", "allocate", "backfill")),
)
UNGATED = tuple(
    Policy(tiers=(FIRST, (PluginUse(name),)), actions=("allocate", "backfill", "preempt"))
    for name in ("capacity", "proportion")
)
"""Only what is placed counts, and not what was let in."""
EVICTING = Policy(tiers=((PluginUse("priority"),), (PluginUse("capacity"),)), actions=ACTIONS)
"""Where lone pods go for others of a higher priority."""


def moved(placement: Placement, **changes: str) -> Placement:
    return msgspec.structs.replace(placement, **changes)


class Lones(World):
    """A world in which each round is held against one that asks job by job."""

    def __init__(self) -> None:
        super().__init__()
        self.pods_made = 0
        for number in range(2):
            self.node(number, 2 + number, number)

    def round(self, uids: Iterable[str]) -> Outcome:
        batch = list(uids)
        state = self.state
        found = self.rounds.run(batch, self.board)
        plain = Rounds(state, one_by_one=True).run(batch, Board(state))
        assert msgspec.json.encode(found) == msgspec.json.encode(plain)
        few = self.rounds.run(batch, self.board, 2)
        plain = Rounds(state, one_by_one=True).run(batch, Board(state), 2)
        assert msgspec.json.encode(few) == msgspec.json.encode(plain)
        self.check_objections(batch, found)
        return found

    def check_objections(self, batch: list[str], found: Outcome) -> None:
        state, placements = self.state, found.placements
        others = [uid for uid in state.pending if uid not in batch][:1]
        tried = (
            placements,
            *(tuple(moved(p, node=name) for p in placements) for name in state.nodes),
            *((*placements, *(moved(p, uid=uid) for p in placements)) for uid in others),
        )
        for kept in tried:
            proposal = self.proposal(batch, found, kept)
            says = objection(Rounds(state), proposal, kept)
            assert says == objection(Rounds(state, one_by_one=True), proposal, kept)

    def proposal(self, batch: list[str], found: Outcome, kept: tuple[Placement, ...]) -> Proposal:
        return Proposal(
            v=MESSAGE_VERSION,
            cycle="c",
            basis=self.state.seq,
            policy=self.state.policy_seq,
            batch=tuple(batch),
            placements=kept,
            refusals=found.refusals,
            stages=(),
            shorts=found.shorts,
            admissions=found.admissions,
            holds=found.holds,
            rules=found.rules,
        )

    def lone(self, a: int, b: int, c: int) -> None:
        """Some pods of a namespace, most of them in one queue."""
        for _ in range(1 + b):
            self.pods_made += 1
            name = f"l-{self.pods_made}"
            self.tell(
                build.pod(
                    name,
                    REQUESTS[(c + self.pods_made) % len(REQUESTS)] if b else REQUESTS[c % 5],
                    namespace=f"ns{a % 3}",
                    name=name,
                    rv=self.seq,
                    created_ms=self.seq - a,
                    queue=QUEUES[1] if a == 5 and b > 3 else QUEUES[0],
                    priority_class=CLASSES[(a + c) % 3],
                    gated=b == 5 and c == 5,
                )
            )

    def some_node(self, a: int, b: int, c: int) -> None:
        self.node(a, b, min(c, 4))

    def some_policy(self, a: int, b: int, c: int) -> None:
        policy = USUAL[(a + 3 * b) % len(USUAL)]
        self.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))

    def open_queue(self, a: int, b: int, c: int) -> None:
        """The queue of most of them without limits, or with some that they come near."""
        limits = (("cpu", 2_000 * (1 + b)), ("memory", 1 << 50), ("pods", 2 * (1 + b)))
        self.tell(
            QueueObserved(
                uid=QUEUES[0],
                name=QUEUES[0],
                rv=self.seq,
                capability=limits if c > 3 else (),
                node_groups=(("a",), (), (), ()) if a == 5 else None,
            )
        )

    def done(self, a: int, b: int, c: int) -> None:
        """Something becomes of a pod: it ends, as a rule."""
        self.pod(a, b, c if b else 0)


OPS = (
    World.cycle,
    Lones.lone,
    World.cycle,
    Lones.done,
    World.cycle,
    Lones.lone,
    Lones.some_node,
    Lones.some_policy,
    Lones.open_queue,
    World.victims,
    World.stranger,
    World.priority_class,
    World.pods,
    World.group,
)
NUMBERS = st.integers(0, 5)
STEPS = st.lists(
    st.tuples(st.integers(0, len(OPS) - 1), NUMBERS, NUMBERS, NUMBERS), min_size=15, max_size=40
)


@settings(max_examples=80)
@given(STEPS)
def test_placing_at_once_is_asking_each(steps: list[tuple[int, int, int, int]]) -> None:
    world = Lones()
    for op, a, b, c in steps:
        OPS[op](world, a, b, c)


FEW = st.integers(1, 6)


@settings(max_examples=250)
@given(
    st.data(),
    st.sampled_from((*USUAL, *UNGATED, EVICTING, EVICTING)),
    st.lists(FEW, min_size=4, max_size=4),
)
def test_where_quota_and_room_are_nearly_enough(
    data: st.DataObject, policy: Policy, sizes: list[int]
) -> None:
    """One batch for a queue, and what it and another one have."""
    cpus, limit, others, pods = sizes
    world = Lones()
    world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
    for number in range(2):
        world.tell(build.node(f"n{number}", 0, rv=9, cpu_milli=1_000 * cpus, pods=pods + 2))
    for name in QUEUES[:2]:
        capability = (("cpu", 1_000 * limit), ("memory", 1 << 50), ("pods", pods + 1))
        limits = capability if data.draw(st.booleans()) else ()
        guarantee = (("cpu", 1_000),) if data.draw(st.booleans()) else ()
        world.tell(QueueObserved(uid=name, name=name, rv=9, capability=limits, guarantee=guarantee))
    for value, name in enumerate(CLASSES[1:]):
        world.tell(PriorityClassObserved(uid=name, name=name, rv=9, value=value))

    def lone(name: str, **more: Any) -> None:
        request = data.draw(st.sampled_from(REQUESTS[1:3]))
        classes = data.draw(st.sampled_from(CLASSES))
        world.tell(build.pod(name, request, name=name, rv=9, priority_class=classes, **more))

    for number in range(others):
        placed = {"node": f"n{number % 2}", "phase": "Running"} if number % 3 else {}
        lone(f"other-{number}", queue=QUEUES[data.draw(st.integers(0, 1))], **placed)
    for number in range(pods):
        lone(f"p-{number}", queue=QUEUES[0], namespace=f"ns{number % 2}")
    waiting = [uid for uid in world.state.pending if world.state.pods[uid].fact.queue == QUEUES[0]]
    world.round(waiting[: data.draw(FEW)])
    world.round(waiting)


def test_a_usual_round_asks_nobody_job_by_job() -> None:
    """Under each policy whose plugins can tell, also where nobody else waits."""
    for policy in USUAL:
        world = Lones()
        names = {use.name for tier in policy.tiers for use in tier}
        world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
        world.open_queue(0, 0, 0)
        world.node(0, 3, 4)
        for number in range(3):
            name = f"l-{number}"
            world.tell(build.pod(name, REQUESTS[1], name=name, rv=1, queue=QUEUES[0]))
        batch = list(world.state.pending)
        before = world.rounds.at_once
        world.rounds.run(batch, world.board)
        can_tell = names.isdisjoint({"sla", "capacity-card"})
        assert world.rounds.at_once - before == can_tell, names


def test_where_quota_is_short_each_is_asked() -> None:
    world = Lones()
    world.open_queue(0, 0, 4)  # two CPUs
    for number in range(3):
        name = f"l-{number}"
        world.tell(build.pod(name, REQUESTS[1], name=name, rv=1, queue=QUEUES[0]))
    before = world.rounds.at_once
    found = world.round(list(world.state.pending))
    assert (len(found.placements), len(found.refusals)) == (2, 1)
    assert world.rounds.at_once == before
