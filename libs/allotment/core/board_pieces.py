"""What a chosen card gives a pod, named: the holding, and which piece of a card that is cut.

Ranks and charges depend on a card's kind alone. Which of several equal pieces a pod gets is looked
up only for the place that is chosen.
"""

from allotment.core.column_kinds import CardKind
from allotment.core.columns import Columns
from allotment.core.devices.base import need_memory_mib, share_name
from allotment.core.shapes import Ask
from allotment_proto.facts import Holding, Policy


class PieceNames:
    """Names the pieces of one pod's cards, in the order in which they are taken."""

    def __init__(self, columns: Columns, policy: Policy) -> None:
        self._columns = columns
        self._policy = policy
        self._taken: dict[int, tuple[CardKind, list[str]]] = {}
        """By place: the kind of a cut card after what the pod took, and its pieces in use."""

    def holding(self, ask: Ask, position: int, slot: int, card: str) -> Holding:
        columns, wanted = self._columns, ask.request
        at = position * columns.depth + slot
        if at in columns.cut:
            return self._cut(ask, at, columns.kinds[columns.kind_at(position, slot)], card)
        kind = columns.kind_at(position, slot)
        return Holding(
            wanted.family,
            wanted.container,
            card,
            ask.memory_by_kind[kind],
            wanted.cores_pct,
            share_name(wanted),
        )

    def _cut(self, ask: Ask, at: int, kind: CardKind, card: str) -> Holding:
        wanted = ask.request
        kind, held = self._taken.get(at, (kind, self._columns.cut[at]))
        cutter, fact = kind.cutter, kind.fact()
        assert cutter is not None
        piece = cutter.piece(fact, kind.table, kind.state, wanted, self._policy.mig_order)
        assert piece is not None, "a card is chosen only if it has a piece that will do"
        name = cutter.name(kind.table, piece, held)
        self._taken[at] = kind._replace(state=piece.after), [*held, name]
        need_mib = need_memory_mib(wanted, kind.memory_mib, kind.table)
        return Holding(wanted.family, wanted.container, card, need_mib, piece.cores_pct, name)
