"""Every request's best nodes, kept up to date on columns: what the hot path asks.

Per request one row: for every position the rank of the node as one integer (higher is better, −1
where it does not fit) and the cards it would give. A row is scored once in full, and afterwards
only where positions changed since it was last asked; the same code scores many positions or few.
The winner is an argmax, because positions are in name order and the rank holds score and best fit.

The answers are those of `cycle.Evaluator`, which asks node by node and stays the reference: same
places, same scores, same counted reasons.
"""

from typing import NamedTuple

import numpy as np

from allotment.core import reasons
from allotment.core.board_reasons import reason_numbers
from allotment.core.board_rows import (
    CODES,
    NO_FIT,
    NUMBER,
    Row,
    Static,
    every,
    good_cards,
    take,
)
from allotment.core.columns import CPU, EXTENDED, MEMORY, SLOTS, Bools, Columns, Ints
from allotment.core.cycle import REQUESTS_MAX, RUNNERS_UP, Place, Ranking
from allotment.core.predicates import accepts
from allotment.core.scores import (
    COUNTED_BITS,
    FULL_MICRO,
    HOST_USED_MAX,
    KIB_BITS,
    Score,
    host_micro,
)
from allotment.core.shapes import Shape, allowed_cards, compile_shape
from allotment.core.state import ClusterState
from allotment_proto.events import Placement, RunnerUp
from allotment_proto.facts import Constraints, Holding, PodRequest

LEFTOVER_BITS = 23
LEFTOVER_MAX = (1 << LEFTOVER_BITS) - 1
CHANGED_MAX = 1 << 16
CONSTRAINTS_MAX = 512


class _Chosen(NamedTuple):
    """Cards chosen at many positions: whether there are enough, their score, what they keep."""

    enough: Bools | bool
    score: Ints | int
    leftover: Ints | int


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
        self._rows: dict[PodRequest, Row] = {}
        self._statics: dict[Constraints, Static] = {}
        self._policy_seq = state.policy_seq
        self._assumed: list[Placement] = []
        self._first_slot = np.zeros(0, np.int64)

    def begin(self) -> None:
        columns = self._columns
        if self._policy_seq != self.state.policy_seq:
            self._policy_seq = self.state.policy_seq
            self._rows.clear()
        epoch = columns.epoch
        columns.refresh()
        if len(columns.changed) > CHANGED_MAX:
            columns.changed.clear()
            epoch = -1
        if columns.epoch != epoch:
            self._rows.clear()
            self._statics.clear()
            self._first_slot = np.arange(len(columns)) * columns.depth

    def assume(self, placement: Placement) -> None:
        """Charge a placement until `end`."""
        self._book(placement, 1)
        self._assumed.append(placement)

    def end(self) -> None:
        """Give back what was assumed."""
        while self._assumed:
            self._book(self._assumed.pop(), -1)

    def _book(self, placement: Placement, sign: int) -> None:
        position = self._columns.position(placement.node)
        host = (1, placement.cpu_milli, placement.memory_bytes)
        self._columns.book(position, placement.holdings, host, placement.extended, sign)

    def rank(self, request: PodRequest) -> Ranking:
        """The best places for a request now, and on how many nodes it fits."""
        row = self._fresh(request)
        nodes = self._columns.nodes
        if not row.feasible:
            return Ranking(None, (), 0, nodes)
        rank = row.rank
        best: list[tuple[int, int]] = []
        for _ in range(min(row.feasible, RUNNERS_UP + 1)):
            position = int(rank.argmax())
            best.append((position, int(rank[position])))
            rank[position] = NO_FIT
        for position, value in best:
            rank[position] = value
        return Ranking(
            self._place(row, *best[0]),
            tuple(self._runner_up(row, position, value) for position, value in best[1:]),
            row.feasible,
            nodes,
        )

    def reasons(self, request: PodRequest) -> tuple[tuple[str, int], ...]:
        """Why the nodes on which the request does not fit refuse it, most frequent first."""
        row = self._fresh(request)
        changed = self._columns.changed
        if row.reasons is None:
            row.reasons = np.zeros(len(self._columns), np.int64)
            at = np.arange(len(self._columns))
        else:
            at = np.array(list(set(changed[row.reasons_cursor :])), np.int64)
        if len(at):
            row.reasons[at] = reason_numbers(self._columns, row, at)
        row.reasons_cursor = len(changed)
        refused = row.reasons[self._columns.present & (row.rank == NO_FIT)]
        counts = np.bincount(refused, minlength=len(CODES)).tolist()
        found = [(code, count) for code, count in zip(CODES, counts, strict=True) if count]
        return tuple(sorted(found, key=lambda item: (-item[1], item[0])))

    # ---- rows

    def _fresh(self, request: PodRequest) -> Row:
        columns = self._columns
        row = self._rows.pop(request, None)
        if row is None or row.kinds != len(columns.kinds):
            if len(self._rows) >= REQUESTS_MAX:
                del self._rows[next(iter(self._rows))]
            shape = compile_shape(columns, request, self.state.policy)
            static = self._static(request.constraints)
            row = Row(shape, static, allowed_cards(columns, request.selection), columns)
            self._update_static(static)
            self._score(row, np.arange(len(columns)))
        elif row.cursor < len(columns.changed):
            at = np.array(list(set(columns.changed[row.cursor :])))
            self._update_static(row.static)
            self._score(row, at)
        row.cursor = len(columns.changed)
        self._rows[request] = row
        return row

    def _static(self, constraints: Constraints) -> Static:
        static = self._statics.get(constraints)
        if static is None:
            if len(self._statics) >= CONSTRAINTS_MAX:
                del self._statics[next(iter(self._statics))]
            static = self._statics[constraints] = Static(len(self._columns))
            self._ask_constraints(static, constraints, range(len(self._columns)))
            static.cursor = len(self._columns.changed)
        return static

    def _update_static(self, static: Static) -> None:
        changed = self._columns.changed
        if static.cursor < len(changed):
            constraints = next(c for c, s in self._statics.items() if s is static)
            self._ask_constraints(static, constraints, set(changed[static.cursor :]))
            static.cursor = len(changed)

    def _ask_constraints(
        self, static: Static, constraints: Constraints, at: "range | set[int]"
    ) -> None:
        """Ask the constraints again where a node's fact is another one than before."""
        columns = self._columns
        for position in at:
            fact = columns.facts[position]
            if fact is static.facts[position]:
                continue
            static.facts[position] = fact
            if fact is None or not fact.ready:
                code: str | None = reasons.NODE_NOT_READY
            else:
                code = accepts(columns.node(position), constraints)
            number = 0 if code is None else NUMBER[code]
            static.refused += (number > 0) - (int(static.codes[position]) > 0)
            static.codes[position] = number

    # ---- scoring

    def _score(self, row: Row, at: Ints) -> None:
        """Score the positions `at` and store their ranks and the slots they would give."""
        self.scored += len(at)
        if row.is_impossible:
            return
        columns, shape, policy = self._columns, row.shape, self.state.policy
        host = columns.host.take(at, axis=1)
        fit: Bools = every(host >= shape.host_need, axis=0)
        if row.static.refused:
            fit &= row.static.codes.take(at) == 0
        total = (policy.host_weight << LEFTOVER_BITS) * self._host(shape, at)
        leftover: Ints | int = 0
        device: Ints | int = 0
        if shape.asks:
            enough, device, leftover = self._choose(row, at)
            fit &= enough
        elif shape.request.extended:
            device = self._counted_score(shape, at, host)
        total += (policy.device_weight << LEFTOVER_BITS) * device + LEFTOVER_MAX
        total -= np.minimum(leftover, LEFTOVER_MAX)
        row.feasible += _count(fit) - _count(row.rank.take(at) >= 0)
        row.rank[at] = np.where(fit, total, NO_FIT)

    def _choose(self, row: Row, at: Ints) -> _Chosen:
        """Choose cards at the positions `at` for every device request, one after the other."""
        columns, policy = self._columns, self.state.policy.device_policy
        kind = columns.kind.take(at, axis=0)
        free = columns.free.take(at, axis=1)
        first = self._first_slot[: len(at)]
        out = _Chosen(True, 0, 0)
        keys: dict[str, Ints] = {}
        for ask, slots in zip(row.shape.asks, row.slots, strict=True):
            good = good_cards(row, ask, at, kind, free)
            key = keys.get(ask.order)
            if key is None:
                key = keys[ask.order] = columns.keys[ask.order].take(at, axis=0)
            wanted = np.where(good, key, -1)
            if ask.number == 1:
                chosen = wanted.argmax(axis=1)
                flat = first + chosen
                enough = good.ravel().take(flat)
                slots[at, 0] = chosen
            else:
                chosen = wanted.argsort(axis=1)[:, : -ask.number - 1 : -1]
                flat = first[:, None] + chosen
                enough = every(good.ravel().take(flat), axis=1)
                slots[at] = chosen
            kinds = kind.ravel().take(flat)
            charge = ask.memory_mib.take(kinds)
            left = free[MEMORY].ravel().take(flat) - charge
            if policy == "binpack":
                used = columns.kind_sizes.take(kinds) - left
                score = FULL_MICRO * used // columns.kind_divisors.take(kinds)
            elif policy == "spread":
                idle = free[SLOTS].ravel().take(flat) == columns.kind_slots.take(kinds)
                score = FULL_MICRO * idle
            else:
                score = np.zeros(flat.shape, np.int64)
            if ask.number > 1:
                left, score = left.sum(axis=1), score.sum(axis=1)
            out = _Chosen(out.enough & enough, out.score + score, out.leftover + left)
            if len(row.shape.asks) > 1:
                take(free, keys, flat, charge, ask.cores_pct, columns.depth)
        return out

    def _host(self, shape: Shape, at: Ints) -> Ints:
        policy, columns = self.state.policy.host_policy, self._columns
        if policy not in ("binpack", "spread"):
            return np.zeros(len(at), np.int64)
        used = columns.host_used.take(at, axis=1) + shape.host_charge
        used[1] >>= KIB_BITS
        np.minimum(used, HOST_USED_MAX, out=used)
        share = FULL_MICRO * used // columns.host_divisor.take(at, axis=1)
        np.minimum(share, FULL_MICRO, out=share)
        mean: Ints = (share[0] + share[1]) // 2
        return mean if policy == "binpack" else FULL_MICRO - mean

    def _counted_score(self, shape: Shape, at: Ints, host: Ints) -> Ints:
        """Score by counted resources, as `scores` does where no family is asked."""
        total = np.zeros(len(at), np.int64)
        policy, facts = self.state.policy.device_policy, self._columns.facts
        for name, amount in shape.request.extended:
            column = self._columns.resource(name)
            if column is None or not amount:
                continue
            listed = np.array(
                [dict(f.extended).get(name, 0) if (f := facts[p]) else 0 for p in at.tolist()],
                np.int64,
            )
            unit = 1 + (listed >> COUNTED_BITS)
            share = _share((listed - host[column] + amount) // unit, listed // unit)
            if policy == "binpack":
                total += share
            elif policy == "spread":
                total += FULL_MICRO - share
        return total

    def _runner_up(self, row: Row, position: int, rank: int) -> RunnerUp:
        cards = self._columns.card_ids[position]
        chosen = tuple(cards[slot] for slots in row.slots for slot in slots[position].tolist())
        return RunnerUp(self._columns.names[position], rank >> LEFTOVER_BITS, chosen)

    def _place(self, row: Row, position: int, rank: int) -> Place:
        columns, name = self._columns, self._columns.names[position]
        cards = columns.card_ids[position]
        kinds = columns.kind[position].tolist()
        holdings = tuple(
            Holding(
                ask.request.family,
                ask.request.container,
                cards[slot],
                ask.memory_by_kind[kinds[slot]],
                ask.cores_pct,
            )
            for ask, slots in zip(row.shape.asks, row.slots, strict=True)
            for slot in slots[position].tolist()
        )
        total, leftover = rank >> LEFTOVER_BITS, LEFTOVER_MAX - (rank & LEFTOVER_MAX)
        policy = self.state.policy
        cpu, memory = columns.host_size[:, position].tolist()
        cpu_free, memory_free = columns.host[CPU:EXTENDED, position].tolist()
        request = row.shape.request
        host = policy.host_weight * host_micro(
            (cpu - cpu_free + request.cpu_milli, cpu),
            (memory - memory_free + request.memory_bytes, memory),
            policy.host_policy,
        )
        return Place(
            (-total, leftover, name),
            Score(total, (("device", total - host), ("host", host)), leftover),
            holdings,
        )


def _count(mask: Bools) -> int:
    return int(np.count_nonzero(mask))


def _share(used: Ints, size: Ints) -> Ints:
    """100 points × used ÷ size, floored; 0 where there is nothing."""
    share: Ints = FULL_MICRO * used // np.maximum(size, 1)
    share[size <= 0] = 0
    return share
