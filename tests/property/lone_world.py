"""A world of lone pods, in which each round is held against one that is opened afresh."""

from collections.abc import Iterable

import msgspec

from allotment.core.placement.cycle import Outcome
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.round.objections import objection
from allotment.core.queues.round.rounds import Rounds
from allotment_proto.events import Placement, PolicyLoaded, QueueObserved
from allotment_proto.facts import PluginUse, Policy
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.hunting import every_pod_asked
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
    """A world in which each round is held against one that is opened afresh."""

    def __init__(self) -> None:
        super().__init__()
        self.pods_made = 0
        for number in range(2):
            self.node(number, 2 + number, number)

    def round(self, uids: Iterable[str]) -> Outcome:
        batch = list(uids)
        state = self.state
        found = self.rounds.run(batch, self.board)
        few = self.rounds.run(batch, self.board, 2)
        with every_pod_asked():
            plain = Rounds(state).run(batch, Evaluator(state))
            assert msgspec.json.encode(found) == msgspec.json.encode(plain)
            plain = Rounds(state).run(batch, Evaluator(state), 2)
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
            says = objection(self.rounds, proposal, kept)
            assert says == objection(Rounds(state), proposal, kept)

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
