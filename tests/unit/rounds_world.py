"""A small cluster with queues, and rounds on it, played on both roads."""

from typing import Any

from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import Outcome, recheck_all
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.round.rounds import Rounds
from allotment_board.board import Board
from allotment_proto.events import (
    Bound,
    Decided,
    Event,
    GroupObserved,
    PolicyLoaded,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build

TIERS = (
    (PluginUse("priority"), PluginUse("gang"), PluginUse("conformance")),
    (PluginUse("drf"), PluginUse("predicates"), PluginUse("proportion")),
)


def group(name: str, members: int, **changes: Any) -> GroupObserved:
    values: dict[str, Any] = {
        "uid": f"uid-{name}",
        "namespace": "default",
        "name": name,
        "rv": 1,
        "min_member": members,
        "phase": "Inqueue",
        "owner": "job",
    }
    return GroupObserved(**{**values, **changes})


class World:
    """A state with queues, and rounds on it, played on both roads."""

    def __init__(self, *events: Event, policy: Policy | None = None) -> None:
        self.state, self.seq = ClusterState(), 0
        self.board, self.rounds = Board(self.state), Rounds(self.state)
        loaded = policy or Policy(tiers=TIERS)
        self.tell(PolicyLoaded(policy=loaded, source="test", text_sha256=""))
        self.tell(QueueObserved(uid="q", name="default", rv=1))
        for event in events:
            self.tell(event)

    def tell(self, event: Event) -> None:
        self.seq += 1
        apply(self.state, event, self.seq)

    def gang(self, name: str, pods: int, members: int | None = None, **wanted: Any) -> list[str]:
        self.tell(group(name, pods if members is None else members))
        return self.pods(name, pods, **wanted)

    def pods(self, name: str, count: int, memory_mib: int = 16_000, start: int = 0) -> list[str]:
        uids = [f"{name}-w-{n}" for n in range(start, start + count)]
        request = build.request(build.wants(memory_mib, 0))
        known = self.state.groups.get(f"default/{name}")
        of_group = "" if known is None or known.fact is None else known.fact.priority_class
        member = {"group": f"default/{name}", "role": "w", "priority_class": of_group}
        for uid in uids:
            self.tell(build.pod(uid, request, name=uid, **member))
        return uids

    def round(self, batch: list[str]) -> Outcome:
        found = self.rounds.run(batch, self.board)
        assert Rounds(self.state).run(batch, Evaluator(self.state)) == found
        return found

    def decide(self, batch: list[str] | None = None) -> Decided:
        """A round, checked again, and in the log."""
        batch = list(self.state.pending) if batch is None else batch
        basis = self.seq
        found = self.round(batch)
        kept, dropped, wholes = recheck_all(self.state, found.placements, found.wholes)
        decided = build.decided(
            *kept,
            basis=basis,
            batch=tuple(batch),
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

    def bind(self) -> None:
        """All that have a place are bound: from now on they may be evicted."""
        for uid in list(self.state.reserved):
            pod = self.state.pods[uid]
            assert pod.allocation is not None
            fact = pod.fact
            self.tell(
                Bound(
                    uid=uid,
                    namespace=fact.namespace,
                    name=fact.name,
                    node=pod.allocation.node,
                    decision=pod.allocation.seq,
                )
            )

    def placed(self) -> set[str]:
        return {uid for uid, pod in self.state.pods.items() if pod.allocation is not None}
