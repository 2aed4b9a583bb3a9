"""State ⇄ bytes. A snapshot is a cache: a start without one ends in the same state, byte for byte.
A checkpoint of the log is the same bytes in the log itself, so every version of them stays
readable.

Every replica compares its own bytes with those of the binder, and an archive is verified years
later. So the bytes follow from the records alone, whatever the release: what a newer one adds to
the state is left out of them while it has its default, and keeps it until `LevelRaised` in the log
names the level that brings it. The same goes for what `apply` makes of a record.

The encoding is canonical (everything sorted), so two states are equal exactly if their bytes are.

To encode a large state takes long enough to hold up an event loop. So groups, nodes and pods, of
which it has thousands, are encoded a few at a time (`encoding`), and others may have their turns in
between. The state must stay as it is meanwhile.
"""

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from allotment.core.ledger.model import (
    RESERVED,
    CardPlace,
    ClusterState,
    Group,
    Health,
    Node,
    Nominated,
    Pod,
)
from allotment.core.ledger.segments import Segments
from allotment_proto.codec import UNREADABLE
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import (
    ConfigurationChecked,
    Corrected,
    Eviction,
    Held,
    NodeObserved,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import Policy

_SNAPSHOT_VERSION = 1
_STEP = 250
"""So many groups, nodes or pods are encoded in one step."""
_in_order = msgspec.msgpack.Encoder(order="deterministic")


class _Node(msgspec.Struct, frozen=True, array_like=True):
    name: str
    row: int
    last_stamp_s: int
    fact: NodeObserved | None


class _Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    v: int
    seq: int
    decision_seq: int
    room_seq: int
    policy_seq: int
    policy: Policy
    devices_seq: int
    devices: DeviceConfig
    config_checks: tuple[tuple[int, ConfigurationChecked], ...]
    config_sources: tuple[tuple[str, str], ...]
    avoided: tuple[tuple[str, tuple[tuple[CardPlace, int], ...]], ...] = msgspec.field(
        name="shunned"
    )
    order_seq: int
    time_ms: int
    groups: tuple[tuple[str, Group], ...]
    queues: tuple[QueueObserved, ...]
    classes: tuple[PriorityClassObserved, ...]
    holds: tuple[Held, ...]
    evicting: tuple[Eviction, ...]
    nominated: dict[str, Nominated]
    spared: tuple[tuple[str, str], ...]
    nodes_seq: int
    rows: int
    nodes: tuple[_Node, ...]
    pods: tuple[Pod, ...]
    pending: tuple[str, ...]
    voided: tuple[tuple[str, int], ...]
    corrected: tuple[tuple[int, Corrected], ...] = ()
    served: tuple[str, ...] = ()
    health: tuple[tuple[CardPlace, Health], ...] = ()
    forged_at: tuple[tuple[str, int], ...] = ()
    segments: Segments | None = None
    """This and the four fields before are left out if there are none."""


class SnapshotError(Exception):
    """Raised when bytes are not a snapshot of this release; the log is folded instead."""


def encode(state: ClusterState) -> bytes:
    """The canonical bytes of a state."""
    steps = encoding(state)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            image: bytes = done.value
            return image


def encoding(state: ClusterState) -> Generator[None, None, bytes]:
    """The same step by step; the bytes are what it returns in the end."""
    groups = yield from _encoded((key, state.groups[key]) for key in sorted(state.groups))
    nodes = yield from _encoded(
        _Node(n.name, n.row, n.last_stamp_s, n.fact)
        for n in sorted(state.nodes.values(), key=lambda n: n.name)
    )
    pods = yield from _encoded(_pod(state.pods[uid]) for uid in sorted(state.pods))
    nominated: Any = msgspec.Raw(_in_order.encode(state.nominated))
    return msgspec.msgpack.encode(
        _Snapshot(
            v=_SNAPSHOT_VERSION,
            seq=state.seq,
            decision_seq=state.decision_seq,
            room_seq=state.room_seq,
            policy_seq=state.policy_seq,
            policy=state.policy,
            devices_seq=state.devices_seq,
            devices=state.devices,
            config_checks=tuple(found for _, found in sorted(state.config_checks.items())),
            config_sources=tuple(sorted(state.config_sources.items())),
            avoided=tuple((o, tuple(sorted(c.items()))) for o, c in state.avoided.items()),
            order_seq=state.order_seq,
            time_ms=state.time_ms,
            groups=groups,
            queues=tuple(state.queues[name] for name in sorted(state.queues)),
            classes=tuple(state.classes[name] for name in sorted(state.classes)),
            holds=state.holds,
            nodes_seq=state.nodes_seq,
            nominated=nominated,
            evicting=tuple(state.evicting[uid] for uid in sorted(state.evicting)),
            spared=tuple(sorted(state.spared.items())),
            rows=len(state.rows),
            nodes=nodes,
            pods=pods,
            pending=tuple(sorted(state.pending)),
            voided=tuple(sorted(state.voided.items())),
            corrected=tuple(found for _, found in sorted(state.corrected.items())),
            served=tuple(state.served),
            health=tuple(sorted(state.health.items())),
            forged_at=tuple(sorted(state.forged_at.items())),
            segments=None if state.segments == Segments() else state.segments,
        )
    )


def _encoded(items: Iterator[object]) -> Generator[None, None, Any]:
    """An array of these, encoded a step at a time: what it returns is encoded as it stands."""
    parts: list[bytes] = []
    count = 0
    while some := list(islice(items, _STEP)):
        parts.append(msgspec.msgpack.encode(some)[len(_array_head(len(some))) :])
        count += len(some)
        yield
    return msgspec.Raw(_array_head(count) + b"".join(parts))


def _array_head(count: int) -> bytes:
    """How an array of so many items begins in MessagePack: the shortest of three forms."""
    if count < 16:
        return bytes([0x90 | count])
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def decode(payload: bytes) -> ClusterState:
    """The state that `encode` was given. Raises `SnapshotError` for anything else."""
    try:
        image = msgspec.msgpack.decode(payload, type=_Snapshot)
    except UNREADABLE as error:
        raise SnapshotError(f"not a snapshot: {error}") from error
    if image.v != _SNAPSHOT_VERSION:
        raise SnapshotError(f"snapshot version {image.v}, known is {_SNAPSHOT_VERSION}")
    try:
        return _restored(image)
    except (LookupError, ValueError) as error:
        raise SnapshotError(f"snapshot contradicts itself: {error!r}") from error


def _restored(image: _Snapshot) -> ClusterState:
    state = ClusterState()
    state.seq, state.decision_seq, state.room_seq = image.seq, image.decision_seq, image.room_seq
    state.policy, state.policy_seq = image.policy, image.policy_seq
    state.devices, state.devices_seq = image.devices, image.devices_seq
    state.config_checks = {found[1].kind: found for found in image.config_checks}
    state.config_sources = dict(image.config_sources)
    state.avoided = {owner: dict(cards) for owner, cards in image.avoided}
    state.served = {namespace: number for number, namespace in enumerate(image.served, start=1)}
    state.health, state.forged_at = dict(image.health), dict(image.forged_at)
    state.order_seq, state.nodes_seq = image.order_seq, image.nodes_seq
    state.time_ms, state.holds = image.time_ms, image.holds
    state.groups = dict(image.groups)
    state.short = {key: None for key, group in state.groups.items() if group.short is not None}
    state.promised = {key: None for key, group in state.groups.items() if group.promised_for}
    state.unseen = {key: None for key, group in state.groups.items() if group.fact is None}
    state.queues = {queue.name: queue for queue in image.queues}
    state.classes = {found.name: found for found in image.classes}
    state.nominated = image.nominated
    state.evicting = {eviction.uid: eviction for eviction in image.evicting}
    state.spared = dict(image.spared)
    state.rows = [None] * image.rows
    for saved in image.nodes:
        node = state.nodes[saved.name] = Node(saved.name, saved.row)
        state.rows[saved.row] = node
        node.last_stamp_s = saved.last_stamp_s
        node.fact = saved.fact
    state.vacant = [row for row, node in enumerate(state.rows) if node is None]
    known: dict[Any, Any] = {name: name for name in state.nodes}
    for pod in image.pods:
        uid = pod.fact.uid
        state.pods[uid] = pod
        _share(pod, known)
        state.note_company(pod.fact, 1)
        if pod.fact.deleting:
            state.deleting[uid] = None
        if (held := pod.allocation) is not None:
            held.fact = pod.fact
            if held.volumes:
                state.local[uid] = None
            if held.closes_node:
                state.nodes[held.node].broken.add(uid)
            state.nodes[held.node].allocations[uid] = held
            if held.phase == RESERVED:
                state.reserved[uid] = None
            if not pod.fact.group:
                state.singles[uid] = None
    for uid, pod in state.pods.items():
        if pod.forged:
            state.forging[uid] = None
            if pod.forged_on in state.nodes:
                state.nodes[pod.forged_on].forgers.add(uid)
    for node in state.nodes.values():
        node.rebuild(node.fact)
    state.pending = dict.fromkeys(image.pending)
    state.voided = dict(image.voided)
    state.corrected = {found[1].uid: found for found in image.corrected}
    state.segments = image.segments or Segments()
    return state


def _share(pod: Pod, known: dict[Any, Any]) -> None:
    """Make one object of equal parts of pods, as where records are read (`sharing.py`): they take a
    third of a state's memory.
    """
    fact, held = pod.fact, pod.allocation
    for name in ("request", "labels", "namespace", "scheduler", "phase", "bind_phase", "node"):
        part = getattr(fact, name)
        force_setattr(fact, name, known.setdefault(part, part))
    if held is not None:
        held.node = known.setdefault(held.node, held.node)
        if held.holdings == fact.holdings:
            held.holdings = fact.holdings


def _pod(pod: Pod) -> Pod:
    """The same, its fact once: an allocation has it from its pod."""
    if pod.allocation is None:
        return pod
    held = msgspec.structs.replace(pod.allocation, fact=None)
    return msgspec.structs.replace(pod, allocation=held)
