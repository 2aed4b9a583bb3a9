"""One node, pods that share its cards or hold their instances, and books that must agree."""

from typing import Any

from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_proto.events import Event, NodeObserved, PodObserved
from allotment_proto.facts import Geometry, Holding, Inventory, Profile
from tests import build
from tests.model import Model
from tests.picture import picture_of

TABLE = (
    Geometry("g1", (Profile("1g", 2_000, 7),)),
    Geometry("g2", (Profile("2g", 4_000, 3), Profile("1g", 2_000, 1))),
    Geometry("g3", (Profile("3g", 8_000, 2),)),
    Geometry("g4", (Profile("7g", 16_000, 1),)),
)


def mig_node(table: tuple[Geometry, ...] = TABLE, *, rv: int = 1, **card: Any) -> NodeObserved:
    facts = (build.card(0, mode="mig", table=0, **card),)
    return build.node(rv=rv, inventories=(Inventory("vgpu", "mig", facts, (table,)),))


def share_node(rv: int = 1) -> NodeObserved:
    return build.node(rv=rv, cards=1)


def instance(name: str, memory_mib: int = 1_000) -> Holding:
    return Holding("vgpu", 0, "GPU-0", memory_mib, 0, name)


def adopted(uid: str, *held: Holding, rv: int = 1, **changes: Any) -> PodObserved:
    wanted = build.request(build.wants(1_000, 0))
    return build.pod(uid, wanted, rv=rv, node="n1", phase="Running", holdings=held, **changes)


def wanting(uid: str, memory_mib: int = 0, memory_pct: int = 0, cores_pct: int = 0) -> PodObserved:
    return build.pod(uid, build.request(build.wants(memory_mib, cores_pct, memory_pct=memory_pct)))


class World:
    """A state, and everything that was told to it."""

    def __init__(self, *events: Event) -> None:
        self.state = ClusterState()
        self.model = Model()
        self.board = Board(self.state)
        self.tell(*events)

    def tell(self, *events: Event) -> None:
        for event in events:
            seq = self.state.seq + 1
            self.model.observe(event, seq)
            apply(self.state, event, seq)

    def place(self, *uids: str) -> list[str]:
        """Decides on these pods; gives the instances they got. Nothing of it may be void."""
        wanted = run_cycle(self.state, uids, Evaluator(self.state))
        assert run_cycle(self.state, uids, self.board) == wanted
        self.tell(build.decided(*wanted.placements))
        assert self.state.voided == {}, "what was offered is not covered by the books"
        self.audit()
        return [h.instance for p in wanted.placements for h in p.holdings]

    def audit(self) -> None:
        assert check(self.state) == []
        assert self.model.picture() == picture_of(self.state)

    def blocked(self) -> str | None:
        node = self.state.nodes["n1"]
        assert all(ledger.blocked == node.blocked for ledger in node.ledgers.values())
        return node.blocked
