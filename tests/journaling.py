"""A journal kept beside a fold, and held against it, usually at every sequence."""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from allotment.core.ledger.model import ClusterState
from allotment.core.replay.journal import Journal, Usage, Writer, decode, encode, usage
from allotment.core.replay.journal.usage import MICRO
from allotment.core.replay.picture import Picture, picture_of
from allotment_proto.events import Event
from allotment_proto.facts import Holding

CUT_EVERY = 4


class Journaled:
    """Call `took` after each record took effect on the state, and `check` in the end.

    A record's time is its sequence, in milliseconds. In long lives only every so many records are
    compared, and what was used is not.
    """

    def __init__(self, state: ClusterState, every: int = 1) -> None:
        self.every = every
        self.segments: list[bytes] = []
        self.pictures: dict[int, Picture] = {}
        self._counted: dict[int, dict[str, tuple[Holding, ...]]] = {}
        """What of each pod counts, at each sequence."""
        self._state = state
        self._writer = Writer(state)

    def took(self, seq: int, events: Iterable[Event], payload: bytes = b"") -> None:
        self._writer.take(seq, seq, payload, events)
        if seq % self.every == 0:
            self.pictures[seq] = picture_of(self._state)
            if self.every == 1:
                self._counted[seq] = {
                    uid: pod.allocation.quota_holdings
                    for uid, pod in self._state.pods.items()
                    if pod.allocation is not None
                }
        if seq % (CUT_EVERY * self.every) == 0:
            self.cut()

    def cut(self) -> None:
        """Cut a segment; every second time another writer goes on, as after a restart."""
        self.segments.append(encode(self._writer.cut()))
        if len(self.segments) % 2 == 0:
            journal = self.journal()
            self._writer = Writer(self._state, journal.names, journal.chain)

    def journal(self) -> Journal:
        """The journal of all segments so far."""
        journal = Journal()
        for segment in self.segments:
            journal.add(decode(segment))
        return journal

    def check(self) -> None:
        """At every sequence the journal's books are those that the fold had there."""
        self.cut()
        journal = self.journal()
        for seq, picture in self.pictures.items():
            assert journal.books(seq).picture() == picture, f"at {seq}"
        last = max(self.pictures, default=0) if self.every == 1 else 0
        for from_ms, to_ms in ((0, last + 1), (last // 3, 2 * last // 3)):
            found = usage(journal, from_ms, to_ms, by_node=True)
            for used in found:
                whole = sum(ms for name, ms in used.counted_ms.items() if name.endswith("/gpu"))
                assert 0 <= used.card_micro_ms <= (used.device_ms + whole) * MICRO
            plain = [replace(used, card_micro_ms=0) for used in found]
            assert plain == self.used(from_ms, to_ms), f"from {from_ms} to {to_ms}"

    def used(self, from_ms: int, to_ms: int) -> list[Usage]:
        """What was held on each node, added up one millisecond after the other."""
        pods: dict[str, set[str]] = {}
        sums: dict[str, list[int]] = {}
        counted: dict[str, Counter[str]] = {}
        for seq in range(from_ms, to_ms):
            holders = self.pictures[seq].holders if seq in self.pictures else {}
            for uid, (node, _, cpu_milli, _, extended) in holders.items():
                holdings = self._counted[seq][uid]
                pods.setdefault(node, set()).add(uid)
                added = sums.setdefault(node, [0, 0, 0])
                added[0] += len(holdings)
                added[1] += sum(held.memory_mib for held in holdings)
                added[2] += cpu_milli
                counted.setdefault(node, Counter()).update(dict(extended))
        return [
            Usage(node, len(pods[node]), devices, memory_mib, cpu_milli, dict(counted[node]))
            for node, (devices, memory_mib, cpu_milli) in sorted(sums.items())
        ]
