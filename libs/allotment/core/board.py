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
from allotment.core.columns import (
    CORES,
    CPU,
    EXTENDED,
    HOST_MEMORY,
    MEMORY,
    MISSING,
    PODS,
    SLOTS,
    Bools,
    Columns,
    Ints,
)
from allotment.core.cycle import REQUESTS_MAX, RUNNERS_UP, Place, Ranking
from allotment.core.devices.base import REFUSAL_ORDER
from allotment.core.predicates import accepts
from allotment.core.scores import (
    COUNTED_BITS,
    FULL_MICRO,
    HOST_USED_MAX,
    KIB_BITS,
    Score,
    host_micro,
)
from allotment.core.shapes import Ask, Shape, allowed_cards, compile_shape
from allotment.core.state import ClusterState
from allotment_proto.events import Placement, RunnerUp
from allotment_proto.facts import Constraints, Holding, PodRequest

LEFTOVER_BITS = 23
LEFTOVER_MAX = (1 << LEFTOVER_BITS) - 1
CHANGED_MAX = 1 << 16
CONSTRAINTS_MAX = 512
NO_FIT = -1

CODES = ("", *reasons.EXPLANATIONS)
"""Reason codes by number, so that they fit a column; number 0 is "none"."""
_NUMBER = {code: number for number, code in enumerate(CODES)}
_CARD_NUMBERS = np.array([_NUMBER[code] for code in REFUSAL_ORDER])


_all = np.logical_and.reduce
_NOT_ASKED = object()
"""Not a fact, and not the absence of one."""


class _Chosen(NamedTuple):
    """Cards chosen at many positions: whether there are enough, their score, what they keep."""

    enough: Bools | bool
    score: Ints | int
    leftover: Ints | int


class _Static:
    """Per position the reason why the constraints refuse the node (0: they do not)."""

    def __init__(self, positions: int) -> None:
        self.codes = np.zeros(positions, np.int64)
        self.facts: list[object] = [_NOT_ASKED] * positions
        self.refused = 0
        """How many positions have a reason."""
        self.cursor = 0


class _Row:
    """One request's answers by position, up to date to `cursor` in the list of changes."""

    def __init__(self, shape: Shape, static: _Static, allowed: Bools | None, columns: Columns):
        self.shape = shape
        self.static = static
        self.allowed = allowed
        self.kinds = len(columns.kinds)
        self.cursor = 0
        self.feasible = 0
        self.rank = np.full(len(columns), NO_FIT, np.int64)
        self.slots: list[Ints] = [
            np.zeros((len(columns), ask.number), np.int64)
            for ask in shape.asks
            if ask.number <= columns.depth
        ]
        self.reasons: Ints | None = None
        """Numbers of the reasons where it does not fit; made when first asked for."""
        self.reasons_cursor = 0
        self.is_impossible = (
            shape.unlisted or shape.unknown_family or len(self.slots) < len(shape.asks)
        )
        """No node can have what is asked for, whatever is free."""


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
        self._rows: dict[PodRequest, _Row] = {}
        self._statics: dict[Constraints, _Static] = {}
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
            row.reasons[at] = self._reason_numbers(row, at)
        row.reasons_cursor = len(changed)
        refused = row.reasons[self._columns.present & (row.rank == NO_FIT)]
        counts = np.bincount(refused, minlength=len(CODES)).tolist()
        found = [(code, count) for code, count in zip(CODES, counts, strict=True) if count]
        return tuple(sorted(found, key=lambda item: (-item[1], item[0])))

    # ---- rows

    def _fresh(self, request: PodRequest) -> _Row:
        columns = self._columns
        row = self._rows.pop(request, None)
        if row is None or row.kinds != len(columns.kinds):
            if len(self._rows) >= REQUESTS_MAX:
                del self._rows[next(iter(self._rows))]
            shape = compile_shape(columns, request, self.state.policy)
            static = self._static(request.constraints)
            row = _Row(shape, static, allowed_cards(columns, request.selection), columns)
            self._update_static(static)
            self._score(row, np.arange(len(columns)))
        elif row.cursor < len(columns.changed):
            at = np.array(list(set(columns.changed[row.cursor :])))
            self._update_static(row.static)
            self._score(row, at)
        row.cursor = len(columns.changed)
        self._rows[request] = row
        return row

    def _static(self, constraints: Constraints) -> _Static:
        static = self._statics.get(constraints)
        if static is None:
            if len(self._statics) >= CONSTRAINTS_MAX:
                del self._statics[next(iter(self._statics))]
            static = self._statics[constraints] = _Static(len(self._columns))
            self._ask_constraints(static, constraints, range(len(self._columns)))
            static.cursor = len(self._columns.changed)
        return static

    def _update_static(self, static: _Static) -> None:
        changed = self._columns.changed
        if static.cursor < len(changed):
            constraints = next(c for c, s in self._statics.items() if s is static)
            self._ask_constraints(static, constraints, set(changed[static.cursor :]))
            static.cursor = len(changed)

    def _ask_constraints(
        self, static: _Static, constraints: Constraints, at: "range | set[int]"
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
            number = 0 if code is None else _NUMBER[code]
            static.refused += (number > 0) - (int(static.codes[position]) > 0)
            static.codes[position] = number

    # ---- scoring

    def _score(self, row: _Row, at: Ints) -> None:
        """Score the positions `at` and store their ranks and the slots they would give."""
        self.scored += len(at)
        if row.is_impossible:
            return
        columns, shape, policy = self._columns, row.shape, self.state.policy
        host = columns.host.take(at, axis=1)
        fit: Bools = _all(host >= shape.host_need, axis=0)
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

    def _choose(self, row: _Row, at: Ints) -> _Chosen:
        """Choose cards at the positions `at` for every device request, one after the other."""
        columns, policy = self._columns, self.state.policy.device_policy
        kind = columns.kind.take(at, axis=0)
        free = columns.free.take(at, axis=1)
        first = self._first_slot[: len(at)]
        out = _Chosen(True, 0, 0)
        keys: dict[str, Ints] = {}
        for ask, slots in zip(row.shape.asks, row.slots, strict=True):
            good = _good(row, ask, at, kind, free)
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
                enough = _all(good.ravel().take(flat), axis=1)
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
                self._take(free, keys, flat, charge, ask.cores_pct)
        return out

    def _take(
        self, free: Ints, keys: dict[str, Ints], flat: Ints, charge: Ints, cores_pct: int
    ) -> None:
        """Charge chosen cards on copies, for the pod's next device request."""
        depth = self._columns.depth
        free[SLOTS].reshape(-1)[flat] -= 1
        free[MEMORY].reshape(-1)[flat] -= charge
        free[CORES].reshape(-1)[flat] -= cores_pct
        if "fullest" in keys:
            keys["fullest"].reshape(-1)[flat] += charge * depth
        if "emptiest" in keys:
            keys["emptiest"].reshape(-1)[flat] -= depth

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

    def _runner_up(self, row: _Row, position: int, rank: int) -> RunnerUp:
        cards = self._columns.card_ids[position]
        chosen = tuple(cards[slot] for slots in row.slots for slot in slots[position].tolist())
        return RunnerUp(self._columns.names[position], rank >> LEFTOVER_BITS, chosen)

    def _place(self, row: _Row, position: int, rank: int) -> Place:
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

    # ---- reasons

    def _reason_numbers(self, row: _Row, at: Ints) -> Ints:
        """For positions that do not fit, the number of the first check that each one fails."""
        columns, shape = self._columns, row.shape
        host = columns.host.take(at, axis=1)
        numbers: Ints = row.static.codes.take(at)
        for column, code in (
            (PODS, reasons.POD_LIMIT_REACHED),
            (CPU, reasons.INSUFFICIENT_CPU),
            (HOST_MEMORY, reasons.INSUFFICIENT_MEMORY),
        ):
            short = host[column] < shape.host_need[column, 0]
            numbers = np.where((numbers == 0) & short, _NUMBER[code], numbers)
        if shape.unknown_family:
            return np.where(numbers == 0, _NUMBER[reasons.NO_GPU], numbers)
        if shape.asks:
            kind = columns.kind.take(at, axis=0)
            free = columns.free.take(at, axis=1)
            keys: dict[str, Ints] = {}
            for ask in shape.asks:
                found = self._ask_numbers(row, ask, at, kind, free)
                numbers = np.where(numbers == 0, found, numbers)
                if len(shape.asks) > 1 and ask.number <= columns.depth:
                    self._pretend(row, ask, at, kind, free, keys)
        for name, amount in shape.request.extended:
            resource = columns.resource(name)
            free_amount = np.full(len(at), MISSING) if resource is None else host[resource]
            gpu = name.endswith("/gpu")
            code = reasons.NOT_ENOUGH_GPUS_ON_NODE if gpu else reasons.INSUFFICIENT_RESOURCE
            unlisted = reasons.NO_GPU if gpu else code
            if not amount:
                continue
            short = np.where(free_amount == MISSING, _NUMBER[unlisted], _NUMBER[code])
            numbers = np.where((numbers == 0) & (free_amount < amount), short, numbers)
        return numbers

    def _pretend(
        self, row: _Row, ask: Ask, at: Ints, kind: Ints, free: Ints, keys: dict[str, Ints]
    ) -> None:
        """Take what one device request would get, so that the next is asked on top of it."""
        good = _good(row, ask, at, kind, free)
        key = keys.setdefault(ask.order, self._columns.keys[ask.order].take(at, axis=0))
        chosen = np.where(good, key, -1).argsort(axis=1)[:, : -ask.number - 1 : -1]
        flat = self._first_slot[: len(at), None] + chosen
        charge = ask.memory_mib.take(kind.ravel().take(flat))
        self._take(free, keys, flat, charge, ask.cores_pct)

    def _ask_numbers(self, row: _Row, ask: Ask, at: Ints, kind: Ints, free: Ints) -> Ints:
        """Reason numbers of one device request; 0 where it is granted."""
        mine = ask.is_family.take(kind)
        cards = mine.sum(axis=1)
        wrong_mode = (mine & ~ask.mode_fits.take(kind)).any(axis=1)
        selected = mine if row.allowed is None else mine & row.allowed.take(at, axis=0)
        memory = ask.memory_mib.take(kind)
        slots = self._columns.kind_slots.take(kind)
        is_whole = ask.cores_pct == 100
        steps = np.full(kind.shape, len(REFUSAL_ORDER) - 1)
        checks = (
            ~selected,
            ~ask.accepted.take(kind),
            ~ask.healthy.take(kind),
            free[SLOTS] < 1,
            (free[SLOTS] != slots) if is_whole else np.zeros(kind.shape, np.bool_),
            free[MEMORY] < memory,
        )
        for step in range(len(checks) - 1, -1, -1):
            steps = np.where(checks[step], step, steps)
        good = _good(row, ask, at, kind, free)
        furthest = np.where(mine & ~good, steps, -1).max(axis=1)
        out = np.where(good.sum(axis=1) >= ask.number, 0, _CARD_NUMBERS[np.maximum(furthest, 0)])
        out = np.where(cards < ask.number, _NUMBER[reasons.NOT_ENOUGH_GPUS_ON_NODE], out)
        out = np.where(wrong_mode, _NUMBER[reasons.GPU_MODE_MISMATCH], out)
        numbers: Ints = np.where(cards == 0, _NUMBER[reasons.NO_GPU], out)
        return numbers


def _good(row: _Row, ask: Ask, at: Ints, kind: Ints, free: Ints) -> Bools:
    """Which cards (M, D) take one unit of the request."""
    good: Bools = _all(free >= ask.need.take(kind, axis=1), axis=0)
    return good if row.allowed is None else good & row.allowed.take(at, axis=0)


def _count(mask: Bools) -> int:
    return int(np.count_nonzero(mask))


def _share(used: Ints, size: Ints) -> Ints:
    """100 points × used ÷ size, floored; 0 where there is nothing."""
    share: Ints = FULL_MICRO * used // np.maximum(size, 1)
    share[size <= 0] = 0
    return share
