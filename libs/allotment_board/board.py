"""Every request's best nodes, kept up to date on columns: what the hot path asks.

Per request one row: for every position the rank of the node as one integer (higher is better, −1
where it does not fit) and the cards it would give. A row is scored once in full, and afterwards
only where positions changed since it was last asked; the same code scores many positions or few.
The winner is an argmax, because positions are in name order and the rank holds score and best fit.

The answers are those of `cycle.Evaluator`, which asks node by node and stays the reference: same
places, same scores, same counted reasons.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices.free import need_memory_mib, share_name
from allotment.core.placement.evaluator import REQUESTS_MAX, RUNNERS_UP, Evaluator, Place, Ranking
from allotment.core.placement.policies import device_policy
from allotment.core.placement.policies.typical import Fragmentation
from allotment.core.placement.rules.bounds import Bonus, Bound, bonus_micro, bounds_of
from allotment.core.placement.rules.points import KIB_BITS, LEFTOVER_BITS, LEFTOVER_MOST, host_micro
from allotment.core.placement.rules.predicates import accepts, fits
from allotment.core.placement.rules.relative import affinity_raw, soft_taints
from allotment.core.placement.rules.scores import Score
from allotment.core.placement.rules.switches import switches_of
from allotment.core.reasons import CODES, NUMBER
from allotment_board.cards import CardKind
from allotment_board.columns import Columns
from allotment_board.packing import Ints
from allotment_board.reasons import reason_numbers
from allotment_board.rows import Row, Static, fragmentation_on, holds_at_most
from allotment_board.score import Scorer
from allotment_board.shapes import Ask, Shape, allowed_cards, compile_shape
from allotment_board.top import Entry
from allotment_proto.events import Placement, RunnerUp
from allotment_proto.facts import (
    ALONE,
    Constraints,
    Holding,
    PodRequest,
    Policy,
    Selection,
    Toleration,
)

CONSTRAINTS_MAX = 512
FEW = 4
"""Why so few nodes refuse is asked of the plain rules: columns pay off with more."""

_USUAL = PodRequest(
    constraints=Constraints(
        tolerations=tuple(
            Toleration(f"node.kubernetes.io/{state}", "Exists", "", "NoExecute")
            for state in ("not-ready", "unreachable")
        )
    )
)
"""What an API server makes of a pod without wishes."""

_Lasting = tuple[Constraints, tuple[Bound, ...], tuple[Bonus, ...], Selection | None]
"""What depends on a node's fact alone, of a request."""


class Board:
    """Ranks nodes for requests on a state and on what is assumed on top of it.

    `begin`, any number of `rank` and `assume`, `end`: the state must not change in between. `end`
    gives back exactly what was assumed.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.scored = 0
        """How many positions were scored: the work done, for tests and benches."""
        self._columns = Columns(state)
        self._plain = Evaluator(state)
        self._rows: dict[PodRequest, Row] = {}
        self._statics: dict[_Lasting, Static] = {}
        self._compiled: tuple[PodRequest, int, Shape] | None = None
        """The last shape: whatever `_alike` says of its request, how many kinds of cards were
        known, and itself."""
        self._policy: Policy | None = None
        self._epoch = -1
        self._assumed: list[Placement] = []
        self._booked = 0
        """How many of these the columns have. They get the others with the next ranking; after the
        last pod of a batch there is none."""

    @property
    def assumed(self) -> Sequence[Placement]:
        """What is assumed, in order."""
        return self._assumed

    def begin(self) -> None:
        """Take over what changed in the state."""
        columns, state = self._columns, self.state
        if self._policy is not state.policy:
            self._policy, self._epoch = state.policy, -1
            self._device = device_policy(state.policy)
        columns.refresh(self._device.order)
        if columns.epoch != self._epoch:
            self._epoch = columns.epoch
            self._rows.clear()
            self._statics.clear()
            self._compiled = None
            self._scorer = Scorer(columns, state.policy, self._device)

    def open_ahead(self) -> None:
        """Take over what changed in the state while no pod waits. If there are other nodes, rank
        them for the last request, so that the next pod, which mostly asks the same, need not wait.
        """
        last = next(reversed(self._rows), _USUAL)
        self.begin()
        if not self._rows:
            self.rank(last)
        self.end()

    def assume(self, placement: Placement) -> None:
        """Charge a placement until `end`."""
        self._assumed.append(placement)

    def take_back(self) -> None:
        """Give back the placement that was assumed last."""
        placement = self._assumed.pop()
        if self._booked > len(self._assumed):
            self._booked -= 1
            self._columns.book(placement, -1)

    def end(self) -> None:
        """Give back everything that was assumed."""
        while self._assumed:
            self.take_back()

    def holds_at_most(self, request: PodRequest, wanted: int) -> int:
        """An upper bound of how many pods with this request fit; `wanted` if that is reached."""
        if request.company != ALONE:
            return wanted  # each that is placed may make room
        row = self._fresh(request)
        if row.feasible >= wanted:
            return wanted  # one on each node
        return min(holds_at_most(self._columns, row), wanted)

    def rank(self, request: PodRequest) -> Ranking:
        """The best places for a request now, and on how many nodes it fits."""
        row = self._fresh(request)
        nodes = self._columns.nodes
        if not row.feasible:
            return Ranking(None, (), 0, nodes)
        best = row.top.best(row.rank, row.feasible, RUNNERS_UP + 1)
        return Ranking(
            self._place(row, best[0]),
            tuple([self._runner_up(row, entry) for entry in best[1:]]),
            row.feasible,
            nodes,
        )

    def reasons(self, request: PodRequest) -> tuple[tuple[str, int], ...]:
        """Why the nodes on which the request does not fit refuse it, most frequent first."""
        if len(request.devices) > 1:
            return self._plain_reasons(request)
        row, columns = self._fresh(request), self._columns
        if row.reasons is None or row.rules is not None:
            row.reasons = np.zeros(len(columns), np.int64)
            at: Ints = np.arange(len(columns))
        else:
            at = columns.since(row.reasons_cursor)
        if len(at) > FEW or self._assumed or row.rules is not None:
            refuses = columns.present[at] & ~row.fit[at]
            row.reasons[at] = np.where(refuses, reason_numbers(columns, row, at), 0)
            row.counted = None
        else:
            for position in at.tolist():
                number = self._number_at(row, position)
                if row.reasons[position] != number:
                    row.reasons[position] = number
                    row.counted = None
        row.reasons_cursor = columns.touched
        if row.counted is None:
            counts = np.bincount(row.reasons, minlength=len(CODES)).tolist()[1:]
            found = [(code, n) for code, n in zip(CODES[1:], counts, strict=True) if n]
            row.counted = tuple(sorted(found, key=lambda item: (-item[1], item[0])))
        return row.counted

    def _number_at(self, row: Row, position: int) -> int:
        """The number of the reason of one node, by the plain rules; 0 if it does not refuse."""
        if row.fit[position] or not self._columns.present[position]:
            return 0
        found = fits(self._columns.node(position), row.shape.request, self.state.policy)
        return NUMBER[found] if isinstance(found, str) else 0

    def _plain_reasons(self, request: PodRequest) -> tuple[tuple[str, int], ...]:
        """Which card an earlier device request of the pod took decides what is left for the next:
        that is rare, and asked of the plain rules.
        """
        plain = self._plain
        plain.begin()
        for placement in self._assumed:
            plain.assume(placement)
        found = plain.reasons(request)
        plain.end()
        return found

    def fragmentation(self) -> Fragmentation | None:
        """How much of what is idle the policy's mix cannot use; None while there is no mix."""
        mix = self.state.policy.mix
        if not mix:
            return None
        self.begin()
        return fragmentation_on(self._columns, mix)

    # ---- rows

    def _fresh(self, request: PodRequest) -> Row:
        columns = self._columns
        while self._booked < len(self._assumed):
            columns.book(self._assumed[self._booked], 1)
            self._booked += 1
        row = self._rows.pop(request, None)
        if row is None or row.kinds != len(columns.kinds):
            if len(self._rows) >= REQUESTS_MAX:
                del self._rows[next(iter(self._rows))]
            shape = self._shape(request)
            static = self._static(request)
            row = Row(shape, static, allowed_cards(columns, request.selection), columns)
            self._scorer.prepare(row)
            self._score(row, np.arange(len(columns)))
        elif row.cursor < columns.touched:
            self._score(row, self._changed(row))
        row.cursor = columns.touched
        self._rows[request] = row
        return row

    def _shape(self, request: PodRequest) -> Shape:
        """The request compiled. One pod asks several times, only of other nodes each time: what it
        asks of their cards is compiled once.
        """
        alike, kinds = _alike(request), self._columns.kinds
        if self._compiled is None or self._compiled[:2] != (alike, len(kinds)):
            shape = compile_shape(self._columns, alike, self.state.policy)
            self._compiled = alike, len(kinds), shape  # compiling may have met more kinds
        return self._compiled[2]._replace(request=request)

    def _changed(self, row: Row) -> Ints:
        """The positions that may answer otherwise than when the row was last asked."""
        # A touched position may give other cards at the same rank, so it is scored whatever became
        # of it. The others can only have changed through other nodes: pods of their domain, or how
        # many nodes have an image.
        at = self._columns.since(row.cursor)
        if row.rules is not None:
            before, row.rules.numbers = row.rules.numbers, row.rules.refusals()
            differs = before != row.rules.numbers
            differs[at] = True
            at = differs.nonzero()[0]
        if row.images is not None:
            differs = row.images.changed()
            differs[at] = True
            at = differs.nonzero()[0]
        return at

    def _score(self, row: Row, at: Ints) -> None:
        if row.facts_cursor < len(self._columns.refacted) or row.static.cursor < row.facts_cursor:
            self._update_facts(row)
        if not row.is_impossible:
            self.scored += len(at)
            self._scorer.score(row, at)

    def _static(self, request: PodRequest) -> Static:
        bounds = bounds_of(request)
        chosen = request.selection if request.selection.counted else None
        lasting = request.constraints, bounds.always, bounds.bonuses, chosen
        static = self._statics.get(lasting)
        if static is None:
            if len(self._statics) >= CONSTRAINTS_MAX:
                del self._statics[next(iter(self._statics))]
            static = self._statics[lasting] = Static(len(self._columns), len(bounds.bonuses))
            self._ask_constraints(static, request, range(len(self._columns)))
            static.cursor = len(self._columns.refacted)
        return static

    def _update_facts(self, row: Row) -> None:
        """Take over nodes whose fact is another one: labels, taints, which card is where."""
        static, refacted = row.static, self._columns.refacted
        if static.cursor < len(refacted):
            self._ask_constraints(static, row.shape.request, refacted[static.cursor :])
            static.cursor = len(refacted)
        if row.facts_cursor < len(refacted):
            row.facts_cursor = len(refacted)
            if row.allowed is not None:
                row.allowed = allowed_cards(self._columns, row.shape.request.selection)
                row.call = None

    def _ask_constraints(self, static: Static, request: PodRequest, at: Iterable[int]) -> None:
        """Ask constraints and lasting bounds again where a node's fact is another than before."""
        columns, constraints, bonuses = (
            self._columns,
            request.constraints,
            bounds_of(request).bonuses,
        )
        for position in at:
            fact = columns.facts[position]
            if fact is static.facts[position]:
                continue
            static.facts[position] = fact
            if fact is None or not fact.ready:
                code: str | None = reasons.NODE_NOT_READY
            else:
                node = columns.node(position)
                code = accepts(node, request, switches_of(self.state.policy))
                for bonus, column in zip(bonuses, static.bonuses, strict=True):
                    column[position] = bonus_micro(bonus, node.labels, node.name)
                if constraints.preferred:
                    static.earned[position] = affinity_raw(node, constraints)
                soft = soft_taints(fact.taints, constraints.tolerations) if fact.taints else 0
                static.softs += (soft > 0) - (int(static.soft[position]) > 0)
                static.soft[position] = soft
            number = 0 if code is None else NUMBER[code]
            static.refused += (number > 0) - (int(static.codes[position]) > 0)
            static.codes[position] = number

    # ---- answers

    def _runner_up(self, row: Row, entry: Entry) -> RunnerUp:
        columns, (rank, position) = self._columns, entry
        card_at = columns.card_ids[position].__getitem__
        cards = tuple(map(card_at, row.slots_at(position)))
        return RunnerUp(columns.names[position], rank >> LEFTOVER_BITS, cards)

    def _place(self, row: Row, entry: Entry) -> Place:
        rank, position = entry
        columns, policy, request = self._columns, self.state.policy, row.shape.request
        total, leftover = rank >> LEFTOVER_BITS, LEFTOVER_MOST - (rank & LEFTOVER_MOST)
        in_use = columns.host_sum_with(
            position, request.cpu_milli, request.memory_bytes >> KIB_BITS
        )
        terms = [("host", policy.host_weight * host_micro(in_use, policy.host_policy))]
        if policy.fit_weight and row.shape.asks:
            terms.insert(0, ("fit", policy.fit_weight * row.fit_at(position)))
        device = total
        if row.more is not None:
            device = row.more.sum_at(position, total)
            terms += row.more.terms_at(position)
        for _, micro in terms:
            device -= micro
        score = Score(total, (("device", device), *terms), leftover)
        holdings = _holdings_at(columns, policy, row, position)
        return Place((-total, leftover, columns.names[position]), score, holdings)


def _alike(request: PodRequest) -> PodRequest:
    """The request as a shape depends on it: for how many pods a node's plugin may keep waiting is
    asked of the node (`plugin_need`).
    """
    selection = msgspec.structs.replace(request.selection, backlog_below=0)
    return msgspec.structs.replace(request, selection=selection)


# ---- what a chosen card gives a pod, named. Ranks and charges depend on a card's kind alone: which
# of several equal pieces a pod gets is looked up only for the place that is chosen.


def _holdings_at(columns: Columns, policy: Policy, row: Row, position: int) -> tuple[Holding, ...]:
    """What a node would give for a row's request."""
    cards, first, keys = columns.card_ids[position], position * columns.depth, columns.keys_view
    chosen, mask = zip(row.asks, row.slots_at(position), strict=True), columns.layout.kind_mask
    if columns.pieces_held:
        pieces = _Pieces(columns, policy)
        return tuple([pieces.holding(ask, first + slot, cards[slot]) for ask, slot in chosen])
    return tuple([_share(ask, keys[first + slot] & mask, cards[slot]) for ask, slot in chosen])


def _share(ask: Ask, kind: int, card: str) -> Holding:
    """A share of a card that is not partitioned."""
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
        """By place: a partitioned card's kind after what the pod took, and its pieces in use."""

    def holding(self, ask: Ask, at: int, card: str) -> Holding:
        columns = self._columns
        kind = columns.keys_view[at] & columns.layout.kind_mask
        if at not in columns.pieces_held:
            return _share(ask, kind, card)
        wanted, taken = ask.request, (columns.kinds[kind], columns.pieces_held[at])
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
