"""Reads every record the moment it lands and checks all that must hold at every sequence."""

from allotment.adapters.log.checkpoints import digest_of_image
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.logport import Record
from allotment_proto import subjects
from allotment_proto.events import BindFailed, Decided, Placement, PodObserved
from tests.model import Model
from tests.sim.follower import Follower, envelope_of


class Broken(AssertionError):
    """Raised when a world did what no world may do."""


class TrustingModel(Model):
    """The twin of a fold that takes every placement: then only the sums can tell."""

    def _covers(self, placement: Placement) -> bool:
        return placement.node in self.nodes


class Auditor:
    """A fold and its dumb twin. `audit` raises `Broken` at the first record that is wrong."""

    def __init__(self, *, trusting: bool = False, heedless: bool = False) -> None:
        """`trusting`: of a fold that takes every placement; `heedless`: of a log that takes every
        append.
        """
        self._is_heedless = heedless
        self._life = ""
        """The life of a binder that began last to write outcomes; empty before any did."""
        self.follower = Follower()
        self.model = TrustingModel() if trusting else Model()
        self.images: list[bytes] = [snapshot.encode(self.follower.state)]
        self._at_seam = b""
        """The state where a segment was closing last."""
        self.nodes_of_pods: dict[str, str] = {}
        self.failed: set[tuple[str, int]] = set()
        """Pods and the decisions by which, as the log says, they cannot be bound."""

    def audit(self, records: list[Record]) -> None:
        for record in records[self.follower.state.seq :]:
            self._one(records, record)

    def _one(self, records: list[Record], record: Record) -> None:
        events = envelope_of(record).events
        if record.subject == subjects.OUTCOME and not events:
            self._life = record.msg_id.removesuffix(f"/{subjects.OUTCOME}")
        elif record.subject == subjects.OUTCOME and self._life and not self._is_heedless:
            is_of_it = record.msg_id.startswith(f"{self._life}/")
            require(is_of_it, f"outcome @{record.seq} is of a life before {self._life}")
        before = self.model.excess()
        for event in events:
            self.model.observe(event, record.seq)
            if isinstance(event, BindFailed):
                self.failed.add((event.uid, event.decision))
            if isinstance(event, PodObserved) and event.node:
                known = self.nodes_of_pods.setdefault(event.uid, event.node)
                require(known == event.node, f"pod {event.uid} moved: {known} → {event.node}")
        self.follower.follow(records, record.seq)
        state = self.follower.state
        problems = check(state)
        require(not problems, f"books at @{record.seq}: {problems}")
        self._agree(record.seq)
        self._look_at_seam(record.seq)
        if any(isinstance(event, Decided) for event in events):
            after = self.model.excess()
            worse = [key for key, over in after.items() if over != before.get(key)]
            require(not worse, f"decision @{record.seq} oversold {worse}")
        if record.seq % 16 == 0:
            self.images.append(snapshot.encode(state))

    def _look_at_seam(self, seq: int) -> None:
        """A checkpoint is the state where its segment ended, and can be started from."""
        segments = self.follower.state.segments
        if segments.open.closing == seq:
            self._at_seam = snapshot.encode(self.follower.state)
            self.images.append(self._at_seam)
        elif segments.live and segments.live[-1].closed_seq == seq:
            closed = segments.live[-1].closed
            is_it = digest_of_image(self._at_seam) == closed.digest
            require(is_it, f"the checkpoint @{seq} is not the state at {closed.last_seq}")

    def _agree(self, seq: int) -> None:
        """The fold and the list of shares tell the same story."""
        state, model = self.follower.state, self.model
        held = {uid: pod.allocation for uid, pod in state.pods.items() if pod.allocation}
        shares = {share.uid: share for share in model.shares}
        require(held.keys() == shares.keys(), f"@{seq}: who holds something")
        for uid, allocation in held.items():
            share = shares[uid]
            same = (allocation.node, allocation.holdings, allocation.seq) == (
                share.node,
                share.holdings,
                share.decision,
            )
            require(same, f"@{seq}: what {uid} holds")
            require(
                (allocation.phase == "bound") == share.is_bound, f"@{seq}: whether {uid} is bound"
            )
        require(set(state.pending) == model.pending(), f"@{seq}: who is pending")
        for key in model.cards():
            node, family, card = key
            books = state.nodes[node].ledgers[family].by_id[card]
            require(
                (books.used_slots, books.used_memory_mib, books.used_cores_pct) == model.used(key),
                f"@{seq}: what is used of {node}/{card}",
            )


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)
