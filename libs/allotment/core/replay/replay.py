"""Recompute every decision of a log and compare it, bit for bit, with the record.

A `Decided` says on which sequence its batch was placed (`basis`) and on which the binder checked
again (`checked`, not before `basis`); both lie before the record itself. One fold is enough, if it
knows beforehand where to stop:

1. `Index` is fed the decisions once and remembers a few numbers of each.
2. `Replayer` is fed every record from the first. It reads ahead of its fold just far enough to
   know the decisions that are due at the next stop, so what it holds is bounded by how far
   decisions look back, not by the length of the log.

What is compared is in `again.py`. The caller chooses the ranker that places the pods again.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.logport import Record
from allotment.core.placement.cycle import Outcome
from allotment.core.placement.evaluator import Evaluator, Ranker
from allotment.core.queues.round.rounds import Rounds
from allotment.core.replay.again import (
    RAISED,
    Difference,
    Finding,
    Skipped,
    check_again,
    looks_back,
    place_again,
)
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Decided, Envelope

Key = tuple[int, int]
"""A decision: the sequence of its record, and its position among the record's events."""


class Stop(NamedTuple):
    """Where a decision looks back to; `previous` is the sequence of the decision before it."""

    key: Key
    basis: int
    checked: int
    previous: int


class _Met(NamedTuple):
    """A decision that was read, and its time."""

    event: Decided
    at_ms: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found. `state_sha256` is of the canonical snapshot at `seq`, the last record.

    `different` and `skipped` count decisions; the first of each is the one with the lowest
    sequence. `undecodable` records change nothing, here as in the services.
    """

    decisions: int
    identical: int
    different: int
    skipped: int
    undecodable: int
    seq: int
    state_sha256: str
    first_difference: Difference | None = None
    first_skipped: Skipped | None = None


class Index:
    """The stops of the decisions from `first_seq` to `last_seq` (None: to the end).

    Feed it at least every record on the decision subject, from the log's beginning or from a state
    on; decisions that look back beyond that are left out.
    """

    def __init__(
        self, first_seq: int = 1, last_seq: int | None = None, begins: ClusterState | None = None
    ) -> None:
        self.stops: list[Stop] = []
        self._first_seq = first_seq
        self._last_seq = last_seq
        self._begins_seq = 0 if begins is None else begins.seq
        self._previous = 0 if begins is None else begins.decision_seq

    def feed(self, record: Record) -> None:
        if record.subject != subjects.DECISION:
            return
        envelope = _decoded(record)
        wanted = record.seq >= self._first_seq and (
            self._last_seq is None or record.seq <= self._last_seq
        )
        for position, event in enumerate(() if envelope is None else envelope.events):
            if isinstance(event, Decided) and wanted and event.basis >= self._begins_seq:
                key = (record.seq, position)
                self.stops.append(Stop(key, event.basis, event.checked, self._previous))
        self._previous = record.seq


def _decoded(record: Record) -> Envelope | None:
    try:
        return decode_envelope(record.payload, record.subject)
    except UndecodableError:
        return None


class Replayer:
    """Feed it every record in order, from sequence 1 or from the one after the state `begins`, then
    ask for the `report`. It changes that very state.
    """

    def __init__(
        self,
        stops: Sequence[Stop],
        make_ranker: Callable[[ClusterState], Ranker] = Evaluator,
        begins: ClusterState | None = None,
    ) -> None:
        self.state = ClusterState() if begins is None else begins
        self._make_ranker = make_ranker
        self._ranker = make_ranker(self.state)
        self._rounds = Rounds(self.state)
        self._stops = {stop.key: stop for stop in stops}
        self._unsettled = set(self._stops)
        sound = [stop for stop in stops if stop.basis <= stop.checked < stop.key[0]]
        self._to_place = deque(sorted(sound, key=lambda s: (s.basis, s.key)))
        self._to_check = deque(sorted(sound, key=lambda s: (s.checked, s.key)))
        self._ahead: deque[tuple[Record, Envelope | None]] = deque()
        self._decided: dict[Key, _Met] = {}
        self._placed: dict[Key, tuple[Finding, Outcome | None]] = {}
        self._counts: Counter[str] = Counter()
        self._first: dict[str, Difference | Skipped] = {}
        self._undecodable = 0
        self._head = 0

    @property
    def buffered(self) -> int:
        """How many records are held at the moment."""
        return len(self._ahead)

    def feed(self, record: Record) -> None:
        """The next record. One that cannot be decoded is counted and changes nothing."""
        self._head = record.seq
        envelope = _decoded(record)
        self._ahead.append((record, envelope))
        if envelope is None:
            self._undecodable += 1
        else:
            for position, event in enumerate(envelope.events):
                if isinstance(event, Decided):
                    self._meet((record.seq, position), event, envelope.at_ms)
        self._advance()

    def report(self) -> Report:
        """The findings over everything fed. Raises ValueError if an indexed decision was not."""
        if self._unsettled:
            seq, _ = min(self._unsettled)
            raise ValueError(f"decision {seq} is in the index, the records end at {self._head}")
        difference, skipped = self._first.get("different"), self._first.get("skipped")
        return Report(
            decisions=self._counts.total(),
            identical=self._counts["identical"],
            different=self._counts["different"],
            skipped=self._counts["skipped"],
            undecodable=self._undecodable,
            seq=self.state.seq,
            state_sha256=hashlib.sha256(snapshot.encode(self.state)).hexdigest(),
            first_difference=difference if isinstance(difference, Difference) else None,
            first_skipped=skipped if isinstance(skipped, Skipped) else None,
        )

    def _meet(self, key: Key, event: Decided, at_ms: int) -> None:
        """Take note of a decision as it is read, ahead of the fold."""
        if key not in self._stops:
            return
        self._decided[key] = _Met(event, at_ms)
        finding = looks_back(key[0], event)
        if finding is not None:
            self._settle(key, finding)

    def _advance(self) -> None:
        """Fold as far as every decision due on the way has been read."""
        while True:
            here = self.state.seq
            while self._to_place and self._to_place[0].basis <= here:
                if self._to_place[0].key[0] > self._head:
                    return
                stop = self._to_place.popleft()
                self._placed[stop.key] = self._place_again(stop)
            while self._to_check and self._to_check[0].checked <= here:
                if self._to_check[0].key[0] > self._head:
                    return
                stop = self._to_check.popleft()
                finding, made = self._placed.pop(stop.key)
                if finding is None and made is not None:
                    finding = self._check_again(stop, made)
                self._settle(stop.key, finding)
            if not self._ahead:
                return
            record, envelope = self._ahead.popleft()
            is_decision = record.subject == subjects.DECISION
            if envelope is None:
                pass_over(self.state, record.seq, is_decision=is_decision)
            else:
                apply_record(self.state, envelope.events, record.seq, is_decision=is_decision)

    def _settle(self, key: Key, finding: Finding) -> None:
        del self._decided[key]
        self._unsettled.discard(key)
        if finding is None:
            self._counts["identical"] += 1
            return
        kind = "different" if isinstance(finding, Difference) else "skipped"
        self._counts[kind] += 1
        if kind not in self._first or finding.seq < self._first[kind].seq:
            self._first[kind] = finding

    def _place_again(self, stop: Stop) -> tuple[Finding, Outcome | None]:
        met = self._decided[stop.key]
        finding, made = place_again(stop.key[0], met.event, self.state, self._ranker, self._rounds)
        if isinstance(finding, Difference) and finding.field == RAISED:
            # They may be updated only in part; the next decision must not suffer from that.
            self._ranker, self._rounds = self._make_ranker(self.state), Rounds(self.state)
        return finding, made

    def _check_again(self, stop: Stop, made: Outcome) -> Finding:
        met = self._decided[stop.key]
        return check_again(stop.key[0], met.event, met.at_ms, stop.previous, self.state, made)
