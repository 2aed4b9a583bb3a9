"""The order of waiting jobs by queue, kept from batch to batch; only changed jobs are sorted again.

A job's place in its queue follows from the job and from what the cluster has. Where the queues
stand among each other changes with every allocation, and is asked each time.

Among those that nothing else orders the namespaces take turns, if the policy lets them: a namespace
with a job in a batch goes behind those without one. So each is offered to a
round once before any is offered twice. Whom the round gives a place first does not follow from
here but from the log (`allotment.core.queues.turns`).
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from allotment.core.queues.plugins.base import Key, Order
from allotment.core.queues.resources import Resources
from allotment.core.queues.session import Session
from allotment.core.queues.turns import take_turns
from allotment.core.queues.work import World

T = TypeVar("T", bound=object)


class Entry(NamedTuple):
    """When a job arrived, and its uid. Total: arrivals differ in the uid at least."""

    arrival: Key
    uid: str


class Position(NamedTuple):
    """A place in a line: what orders it, the namespace (empty if they take no turns), the entry."""

    level: Order
    namespace: str
    entry: Entry


class _Row:
    """The entries of one namespace in order. Most that leave are in front: those before `_start`
    are gone, and cleared away when they are the half, so that leaving in front moves no others.
    """

    __slots__ = ("_entries", "_start")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = list(entries)
        self._start = 0

    def __iter__(self) -> Iterator[Entry]:
        for at in range(self._start, len(self._entries)):
            yield self._entries[at]

    def __len__(self) -> int:
        return len(self._entries) - self._start

    def __contains__(self, entry: Entry) -> bool:
        return self._find(entry) is not None

    def add(self, entry: Entry) -> None:
        insort(self._entries, entry, self._start)

    def discard(self, entry: Entry) -> None:
        """Remove an entry, if it is there."""
        at = self._find(entry)
        if at is None:
            return
        if at > self._start:
            del self._entries[at]
            return
        self._start += 1
        if 2 * self._start > len(self._entries):
            del self._entries[: self._start]
            self._start = 0

    def copy(self) -> "_Row":
        return _Row(self._entries[self._start :])

    def _find(self, entry: Entry) -> int | None:
        entries, at = self._entries, self._start
        if at < len(entries) and entries[at] is entry:
            return at
        at = bisect_left(entries, entry, at)
        return at if at < len(entries) and entries[at] == entry else None


class Line:
    """Positions of one queue, level by level; in one the namespaces take turns, each by arrival."""

    def __init__(self) -> None:
        self._rows: dict[Order, OrderedDict[str, _Row]] = {}
        """By level, the namespaces that have jobs there, the next one in turn first."""
        self._levels: list[Order] = []
        """The keys of `_rows` in order."""

    def add(self, position: Position) -> None:
        rows = self._rows.get(position.level)
        if rows is None:
            rows = self._rows[position.level] = OrderedDict()
            insort(self._levels, position.level)
        row = rows.get(position.namespace)
        if row is None:
            row = rows[position.namespace] = _Row()
        row.add(position.entry)

    def replace(self, old: Position | None, new: Position | None) -> None:
        """Take a position out, if it is there, and add another. A namespace that still has
        a job in its level keeps its turn.
        """
        was_there = old is not None and (new is None or old in self)
        if new is not None:
            self.add(new)
        if old is not None and was_there:
            self._take_out(old)

    def __contains__(self, position: Position) -> bool:
        row = self._row(position)
        return row is not None and position.entry in row

    def take_out_all(self, positions: Iterable[Position]) -> None:
        """Take many positions out: each row that has any is rewritten once."""
        gone: dict[tuple[Order, str], set[str]] = {}
        some: dict[tuple[Order, str], Position] = {}
        for position in positions:
            place = position.level, position.namespace
            gone.setdefault(place, set()).add(position.entry.uid)
            some[place] = position
        for (level, namespace), uids in gone.items():
            rows = self._rows[level]
            row = rows[namespace] = _Row(e for e in rows[namespace] if e.uid not in uids)
            self._drop_if_empty(some[level, namespace], row)

    def had_its_turn(self, position: Position) -> None:
        """The position's namespace goes behind the others of its level."""
        rows = self._rows.get(position.level)
        if rows is not None and position.namespace in rows:
            rows.move_to_end(position.namespace)

    def in_turns(self, found: Callable[[str], T | None]) -> Iterator[T]:
        """What is found for the uids, in order; those without a result are skipped and use
        up no turn. Do not read on after the line changes.
        """
        for level in self._levels:
            rows = self._rows[level].values()
            yield from take_turns(_found(row, found) for row in rows)

    def firsts(self, most: int | None) -> list[str]:
        """The first of each namespace in each level, so many of each; None: all."""
        rows = chain.from_iterable(rows.values() for rows in self._rows.values())
        return [entry.uid for row in rows for entry in islice(row, most)]

    def copy(self) -> "Line":
        made = Line()
        made._levels = self._levels.copy()
        made._rows = {
            level: OrderedDict((namespace, row.copy()) for namespace, row in rows.items())
            for level, rows in self._rows.items()
        }
        return made

    def __bool__(self) -> bool:
        return bool(self._levels)

    def _row(self, position: Position) -> _Row | None:
        rows = self._rows.get(position.level)
        return None if rows is None else rows.get(position.namespace)

    def _take_out(self, position: Position) -> None:
        row = self._row(position)
        if row is not None:
            row.discard(position.entry)
            self._drop_if_empty(position, row)

    def _drop_if_empty(self, position: Position, row: _Row) -> None:
        if row:
            return
        rows = self._rows[position.level]
        del rows[position.namespace]
        if not rows:
            del self._rows[position.level]
            del self._levels[bisect_left(self._levels, position.level)]


def _found(row: Iterable[Entry], found: Callable[[str], T | None]) -> Iterator[T]:
    for entry in row:
        item = found(entry.uid)
        if item is not None:
            yield item


class Lines:
    """The jobs of one world that wait at a gate or for places. A job that is
    not due is skipped until something changes about it, or all are woken.

    `is_due` says whether a job is worth a try. `sorted_in` and `visited` count the jobs that were
    given a place, and those that were looked at.
    """

    def __init__(self, is_due: Callable[[str], bool]) -> None:
        self.sorted_in = 0
        self.visited = 0
        self._is_due = is_due
        self._world: World | None = None
        self._total: Resources | None = None
        self._takes_turns = False
        self._followed = 0
        self._woken_seq = -1
        self._positions: dict[str, tuple[str, Position]] = {}
        """All who wait: their queue, and their position there."""
        self._all: dict[str, Line] = {}
        self._open: dict[str, Line] = {}
        """The same without those who were found not to be due."""
        self._parked: dict[Hashable, dict[str, Line]] = {}
        """The jobs that are in neither until they are put back, by what they are parked under."""
        self._parked_under: dict[str, Hashable] = {}
        self._idle: dict[str, set[str]] = {}
        """By queue, who was found not to be due and is still in `_open`."""

    def follow(self, session: Session, woken_seq: int) -> None:
        """Take over what changed. All are woken when `woken_seq` is another one than before."""
        world, takes_turns = session.world, session.served is not None
        is_known = world is self._world and takes_turns == self._takes_turns
        names = world.trail.since(self._followed) if is_known else None
        self._followed = world.trail.end
        self._pass_over()
        if names is None or self._total != world.cluster.total:
            self._world, self._total = world, world.cluster.total
            self._takes_turns = takes_turns
            self._sort_all(session)
        else:
            changed = dict.fromkeys(names)
            for name, position in self._positions_of(session, changed):
                self._put(position.entry.uid, name, position)
                del changed[position.entry.uid]
                self.sorted_in += 1
            for uid in changed:
                self._put(uid, "", None)
        if self._woken_seq != woken_seq:
            self._woken_seq = woken_seq
            self._open = {name: line.copy() for name, line in self._all.items() if line}

    def park(self, uids: Iterable[str], under: Hashable) -> None:
        """Pass these over, who wait, even if all are woken: until they are put back, or something
        changes about them.
        """
        places: dict[str, list[Position]] = {}
        parked = self._parked.setdefault(under, {})
        for uid in uids:
            name, position = self._positions[uid]
            self._parked_under[uid] = under
            parked.setdefault(name, Line()).add(position)
            places.setdefault(name, []).append(position)
            self._idle.get(name, set()).discard(uid)
        for name, positions in places.items():
            for lines in (self._all, self._open):
                if name in lines:
                    lines[name].take_out_all(positions)

    @property
    def parked(self) -> Collection[str]:
        """All who are parked."""
        return self._parked_under.keys()

    def has(self, uid: str) -> bool:
        """Whether a job waits and is not parked."""
        return uid in self._positions and uid not in self._parked_under

    def first_parked(self, under: Hashable) -> str | None:
        """One of the jobs that are parked there; None if there is none."""
        lines = self._parked.get(under, {}).values()
        return next((uid for line in lines for uid in line.in_turns(str)), None)

    def firsts_parked(self, under: Hashable) -> list[str]:
        """The first of each namespace among the jobs that are parked there."""
        lines = self._parked.get(under, {}).values()
        return [uid for line in lines for uid in line.firsts(1)]

    def put_one_back(self, uid: str) -> None:
        """Give a parked job its place again."""
        name, position = self._positions[uid]
        self._unpark(uid, name, position)
        for lines in (self._all, self._open):
            lines.setdefault(name, Line()).add(position)

    def put_back(self, under: Hashable, most: int | None = None) -> None:
        """Give the first who are parked there their places again, or all: so many of each queue,
        and of each namespace if these take turns, since any may be the next to have its turn.
        """
        for line in self._parked.get(under, {}).values():
            for uid in line.firsts(most):
                self.put_one_back(uid)
        if most is None:
            self._parked.pop(under, None)

    def _unpark(self, uid: str, name: str, position: Position) -> None:
        under = self._parked_under.pop(uid, None)
        if under is not None:
            self._parked[under][name].replace(position, None)

    def offered(self, uids: Iterable[str]) -> None:
        """A batch had these jobs, in this order: their namespaces had their turn."""
        for uid in uids:
            name, position = self._positions.get(uid, ("", None))
            if position is not None:
                for lines in (self._all, self._open):
                    if name in lines:
                        lines[name].had_its_turn(position)

    def in_turns(self, session: Session) -> Iterator[str]:
        """The uids of due jobs, in job order within a queue; queues take turns in queue order."""
        names = [name for name, line in self._open.items() if line]
        if len(names) > 1:  # where one alone stands is not worth counting what it deserves
            names.sort(key=session.queue_key)
        return take_turns(self._due(name) for name in names)

    def is_any_due(self, but: Container[str]) -> bool:
        """Whether anybody else than these is due."""
        return any(next(self._due(name, but), None) is not None for name in self._open)

    def _due(self, name: str, but: Container[str] = ()) -> Iterator[str]:
        idle = self._idle.setdefault(name, set())

        def due(uid: str) -> str | None:
            if uid in but or uid in idle:
                return None
            self.visited += 1
            if self._is_due(uid):
                return uid
            idle.add(uid)
            return None

        return self._open[name].in_turns(due)

    def _pass_over(self) -> None:
        for name, idle in self._idle.items():
            if idle:
                self._open[name].take_out_all(self._positions[uid][1] for uid in idle)
        self._idle.clear()

    def _sort_all(self, session: Session) -> None:
        self._positions.clear()
        self._parked.clear()
        self._parked_under.clear()
        self._all.clear()
        for name, position in self._positions_of(session, session.jobs):
            self._positions[position.entry.uid] = name, position
            self._all.setdefault(name, Line()).add(position)
        self._open = {name: line.copy() for name, line in self._all.items()}
        self.sorted_in += len(self._positions)

    def _positions_of(self, session: Session, uids: Iterable[str]) -> list[tuple[str, Position]]:
        """The positions of those who wait of these jobs, and their queues, in order of arrival: so
        namespaces without a waiting job before come in that order, too.
        """
        found = []
        for uid in uids:
            place = session.place_in_line(uid)
            if place is not None:
                name, (*level, arrival), namespace = place
                entry = Entry(arrival, uid)
                position = Position(tuple(level), namespace if self._takes_turns else "", entry)
                found.append((name, position))
        found.sort(key=_by_arrival)
        return found

    def _put(self, uid: str, name: str, position: Position | None) -> None:
        """Give a job its position in a queue's line, or none, instead of the one that it had."""
        before, old = self._positions.pop(uid, ("", None))
        if old is not None:
            self._unpark(uid, before, old)
        if position is not None:
            self._positions[uid] = name, position
        for lines in (self._all, self._open):
            if old is not None and before != name and before in lines:
                lines[before].replace(old, None)
            if position is not None:
                lines.setdefault(name, Line()).replace(old if before == name else None, position)


def _by_arrival(found: tuple[str, Position]) -> Entry:
    return found[1].entry
