"""What a chosen card gives a pod, named: the holding, and which piece of a card that is cut.

Ranks and charges depend on a card's kind alone. Which of several equal pieces a pod gets is looked
up only for the place that is chosen.
"""

from allotment.core.placement.board.column_kinds import CardKind
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.rows import Row
from allotment.core.placement.board.shapes import Ask
from allotment.core.placement.devices.free import need_memory_mib, share_name
from allotment_proto.facts import Holding, Policy


def holdings_at(columns: Columns, policy: Policy, row: Row, position: int) -> tuple[Holding, ...]:
    """What a node would give for a row's request."""
    cards, first, keys = columns.card_ids[position], position * columns.depth, columns.keys_view
    chosen, mask = row.chosen_at(position), columns.layout.kind_mask
    if columns.cut:
        pieces = _Pieces(columns, policy)
        return tuple([pieces.holding(ask, first + slot, cards[slot]) for ask, slot in chosen])
    return tuple([_share(ask, keys[first + slot] & mask, cards[slot]) for ask, slot in chosen])


def _share(ask: Ask, kind: int, card: str) -> Holding:
    """A share of a card that is not cut."""
    wanted = ask.request
    memory_mib = ask.memory_by_kind[kind]
    name = share_name(wanted) if wanted.chip else ""
    return Holding(wanted.family, wanted.container, card, memory_mib, wanted.cores_pct, name)


class _Pieces:
    """Names the pieces of one pod's cards, in the order in which they are taken."""

    def __init__(self, columns: Columns, policy: Policy) -> None:
        self._columns = columns
        self._policy = policy
        self._taken: dict[int, tuple[CardKind, list[str]]] = {}
        """By place: the kind of a cut card after what the pod took, and its pieces in use."""

    def holding(self, ask: Ask, at: int, card: str) -> Holding:
        columns = self._columns
        kind = columns.keys_view[at] & columns.layout.kind_mask
        if at not in columns.cut:
            return _share(ask, kind, card)
        wanted, taken = ask.request, (columns.kinds[kind], columns.cut[at])
        card_kind, held = self._taken.get(at, taken)
        partitioner, fact = card_kind.partitioner, card_kind.fact()
        assert partitioner is not None
        table, order = card_kind.table, self._policy.mig_order
        piece = partitioner.piece(fact, table, card_kind.state, wanted, order)
        assert piece is not None, "a card is chosen only if it has a piece that will do"
        name = partitioner.name(table, piece, held)
        self._taken[at] = card_kind._replace(state=piece.after), [*held, name]
        need_mib = need_memory_mib(wanted, card_kind.memory_mib, card_kind.table)
        return Holding(wanted.family, wanted.container, card, need_mib, piece.cores_pct, name)
