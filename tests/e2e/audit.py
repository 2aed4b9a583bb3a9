"""What must hold after any amount of killing: the log, the API and the device plugins agree.

Cards are recomputed from the pods' annotations as text, without any code of the product's core, and
compared with what the log folds to and with what the fake plugins handed out.
"""

from collections import Counter, defaultdict
from typing import Any

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check, oversold
from allotment.core.ledger.model import BOUND, ClusterState
from allotment.core.ledger.state import apply_all, pass_over
from allotment.core.logport import Record
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Event
from tests.e2e.stack import Json, Stack
from tests.replaying import verify

ENDED = ("Succeeded", "Failed")
Share = tuple[str, int, int]
"""(card, MiB, percent of cores)"""


def fold(records: list[Record]) -> ClusterState:
    """The state that the log means, folded here and now from nothing."""
    state = ClusterState()
    for record in records:
        is_decision = record.subject == subjects.DECISION
        try:
            envelope = decode_envelope(record.payload)
        except UndecodableError:
            pass_over(state, record.seq, is_decision=is_decision)
        else:
            apply_all(state, envelope.events, record.seq, is_decision=is_decision)
    return state


def events(stack: Stack) -> list[Event]:
    """All events of the log."""
    return [e for record in stack.records() for e in decode_envelope(record.payload).events]


def held(pod: Json) -> list[Share]:
    """The vGPU shares in a pod's annotation, read as text."""
    text = (pod["metadata"].get("annotations") or {}).get("volcano.sh/vgpu-ids-new", "")
    out = []
    for group in text.split(";"):
        for piece in group.split(":"):
            if piece:
                card, _, memory_mib, cores_pct = piece.split(",")
                out.append((card, int(memory_mib), int(cores_pct)))
    return out


def registered(node: Json) -> dict[str, tuple[int, int]]:
    """Slots and MiB of each card of a node's register string."""
    text = (node["metadata"].get("annotations") or {}).get("volcano.sh/node-vgpu-register", "")
    pieces = [piece.split(",") for piece in text.split(":") if piece.count(",") >= 5]
    return {fields[0]: (int(fields[1]), int(fields[2])) for fields in pieces}


def assert_not_oversold(pods: list[Json], nodes: list[Json]) -> None:
    """No card holds more pods, memory or compute than it has, going by the pods' annotations."""
    shares: dict[str, list[Share]] = defaultdict(list)
    for pod in pods:
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ENDED:
            for share in held(pod):
                shares[share[0]].append(share)
    cards = {card: limits for node in nodes for card, limits in registered(node).items()}
    for card, found in shares.items():
        slots, memory_mib = cards[card]
        assert len(found) <= slots, f"{card}: {len(found)} holders of {slots}"
        assert sum(s[1] for s in found) <= memory_mib, f"{card}: memory oversold: {found}"
        assert sum(s[2] for s in found) <= 100, f"{card}: compute oversold: {found}"
        assert len(found) == 1 or all(s[2] < 100 for s in found), f"{card} was to be one's alone"


def assert_delivered(pods: list[Json], books: Json, rejected: frozenset[str]) -> None:
    """What the device plugins handed out is what was decided; the kubelet rejected only these."""
    shares = {pod["metadata"]["uid"]: held(pod) for pod in pods}
    incidents = [(i["code"], i["pod"].rpartition("/")[2]) for i in books["incidents"]]
    assert incidents == [("Refused", name) for name in sorted(rejected)], books["incidents"]
    for card in books["cards"]:
        given = [(card["card"], h["memory_mib"], h["cores_pct"]) for h in card["holders"]]
        decided = [
            share for h in card["holders"] for share in shares[h["uid"]] if share[0] == card["card"]
        ]
        assert card["family"] != "vgpu" or sorted(given) == sorted(decided), card


def assert_sound(stack: Stack, rejected: frozenset[str] = frozenset()) -> ClusterState:
    """The whole audit, once the log has come to know what the API server shows."""
    stack.until(lambda: _is_told(stack), "the log knows what the API server shows")
    pods = stack.pods()
    assert_not_oversold(pods, stack.call("GET", "/api/v1/nodes")["items"])
    assert_delivered(pods, stack.books(), rejected)
    records = stack.records()
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    state = fold(records)
    assert check(state) == []
    assert oversold(state) == []
    assert snapshot.encode(fold(records)) == snapshot.encode(state)
    assert snapshot.encode(snapshot.decode(snapshot.encode(state))) == snapshot.encode(state)
    report = verify(records)
    assert report.identical == report.decisions > 0, (report.first_difference, report.first_skipped)
    assert not state.reserved, sorted(state.reserved)
    for pod in pods:
        _assert_told(state, pod)
    assert set(state.pods) == {pod["metadata"]["uid"] for pod in pods}
    _assert_bound_once(records)
    return state


def _is_told(stack: Stack) -> bool:
    """Whether nothing is on its way from the API server into the log any more."""
    pods, records = stack.pods(), stack.records()
    state = fold(records)
    if state.reserved or set(state.pods) != {pod["metadata"]["uid"] for pod in pods}:
        return False
    # a pod may be seen on its node before the binder's own word of it, which gathers with others
    if not _kinds(records)["Bound"]:
        return False
    return all(_seems_told(state, pod) for pod in pods)


def _seems_told(state: ClusterState, pod: Json) -> bool:
    """The node, and how far the pod is; what it holds there is for `_assert_told` to judge."""
    fact = state.pods[pod["metadata"]["uid"]].fact
    phase = pod["status"].get("phase")
    return fact.node == (pod["spec"].get("nodeName") or "") and fact.phase == phase


def _assert_told(state: ClusterState, pod: Json) -> None:
    """The API's pod and the log's are one."""
    known = state.pods[pod["metadata"]["uid"]]
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName") or ""
    assert known.fact.node == node, name
    if not node or pod["status"].get("phase") in ENDED:
        assert known.allocation is None, name
        return
    allocation = known.allocation
    assert allocation is not None, name
    assert (allocation.node, allocation.phase) == (node, BOUND), name
    ours = [(h.card, h.memory_mib, h.cores_pct) for h in allocation.holdings if h.family == "vgpu"]
    assert sorted(ours) == sorted(held(pod)), name
    annotations: dict[str, Any] = pod["metadata"].get("annotations") or {}
    if allocation.seq:
        assert annotations["allotment.dev/log-seq"] == str(allocation.seq), name


def _assert_bound_once(records: list[Record]) -> None:
    """No decision of the log was bound twice over under different decisions."""
    bound: dict[str, set[int]] = defaultdict(set)
    for record in records:
        for event in decode_envelope(record.payload).events:
            if type(event).__name__ == "Bound":
                bound[event.uid].add(event.decision)  # type: ignore[union-attr]
    twice = {uid: seqs for uid, seqs in bound.items() if len(seqs) > 1}
    assert not twice, twice


def _kinds(records: list[Record]) -> Counter[str]:
    """How many events of each kind the log has."""
    return Counter(
        type(event).__name__
        for record in records
        for event in decode_envelope(record.payload).events
    )
