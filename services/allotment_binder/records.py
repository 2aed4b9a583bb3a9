"""What stands in the way of the next Binding of a node and question: other pods' records.

A kubelet may reject a bound pod before it asks the device plugin for anything. The pod fails, its
annotations stay, and the plugin looks at annotations alone: it would serve the next pod of the node
that asks for as many devices with the dead pod's cards, that pod's record would serve the one after
it, and so on. So such a record is erased first, and so is that of a pod that runs although its
record still stands: it was served with another one's.

A pod that is deleted by force while it waits for its turn has lost its record, but its node's
kubelet still admits it: the plugin would serve it with the next pod's record. So no pod takes its
place before the kubelet has come past it.

Everyone who may edit a pod can write a record on it, too: it is erased like that of a dead one. A
user who does so again and again would win the race now and then: no pod is placed on that node
(`Pod.forged_on`), what waits to be bound there goes elsewhere, and a running pod's notice names the
record.

The record of a pod that the plugin gave up itself comes last in its choice, so no pod waits for
it; it is erased as well, once.

A pod of ours that runs before it was acknowledged, with its own record standing, was served with
another one's. Its correction says whose, and the books follow (`Unserved.corrections`).
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import anyio
import msgspec

from allotment.adapters.kube.client import MERGE_PATCH, KubeClient, pod_path
from allotment.adapters.kube.objects import AnnotatedMeta, AnnotatedObject
from allotment.adapters.kube.result import KubeResult, Ok, Refused, Unknown
from allotment.core.explain.rows.acknowledgement import (
    LATE_AFTER_S,
    RECORDS,
    Age,
    Place,
    age,
    plugin_question,
    recorded,
    standing,
)
from allotment.core.ledger.model import ACTIVE, ENDED, Allocation, ClusterState
from allotment.core.placement.devices.base import Record
from allotment.core.reasons import DEVICES_UNKNOWN, MISDELIVERED
from allotment_proto.codec import UNREADABLE
from allotment_proto.events import Corrected, PodObserved
from allotment_proto.facts import Holding
from allotment_proto.volcano import keys

RETRY_FIRST_S = 0.2
RETRY_MAX_S = 10.0
GONE, CONFLICT = 404, 409
MEND_TRIES = 5
TAKEN_KEPT = 1_000
OTHERS_BIND_WITHIN_S = 5.0
"""Another scheduler writes a pod's record before it binds it: for so long it is not erased."""
PASSED_AFTER_S = 5.0
"""When all that a kubelet admits before a deleted pod are through, so long after it is past it."""


_decode_pod = msgspec.json.Decoder(AnnotatedObject).decode


def given_up(state: ClusterState, fact: PodObserved) -> bool:
    """Whether the plugin of one of our nodes failed to serve a pod and left its record."""
    node = state.nodes.get(fact.node)
    return (
        node is not None
        and node.fact is not None
        and fact.bind_phase == keys.PHASE_FAILED
        and recorded(fact.holdings) != ()
    )


class Stray(NamedTuple):
    """A record that stands although its pod waits for nothing."""

    uid: str
    pod: str
    """Namespace and name."""
    places: frozenset[Place]
    holdings: tuple[Holding, ...]
    is_unserved: bool
    """Its pod was never acknowledged. Of another one only its owner can have written it again."""
    age: Age
    since_s: float


class Sign(NamedTuple):
    """A pod of ours that runs although its own record stands: it got another one's devices."""

    held: Allocation
    place: Place


class Unserved:
    """The pods whose records are to be erased, the places that wait for it, and who was served
    with such a record before it was.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.strays: dict[str, Stray] = {}
        self.given_up: dict[str, None] = {}
        """Pods whose records are still to be erased although no pod waits for that."""
        self.signs: dict[str, Sign] = {}
        self._taken: list[Stray] = []
        self._marked: set[str] = set()
        self._version: dict[str, int] = {}
        """The version of each pod whose record was erased: what is older tells nothing new."""

    def begin(self, state: ClusterState) -> None:
        self.strays.clear()
        self.given_up.clear()
        self.signs.clear()
        self._taken.clear()
        for uid, pod in state.pods.items():
            self.look(state, uid)
            if uid in self.strays and pod.allocation is not None:
                self._note_sign(pod.fact, pod.allocation)

    def look(self, state: ClusterState, uid: str, held: Allocation | None = None) -> None:
        """Take note of a pod as the log shows it now.

        `held` is for what its plugin had to serve it until now, if it had: what the annotations
        say now may be their owner's.
        """
        pod = state.pods.get(uid)
        if pod is None:
            self._forget(uid)
            return
        fact, place = pod.fact, standing(pod)
        if place is None or fact.rv <= self._version.get(uid, -1):
            left = self.strays.pop(uid, None)
            is_ended = fact.bind_phase == keys.PHASE_SUCCESS or not fact.node
            if left is not None and is_ended and fact.rv > self._version.get(uid, -1):
                self._note_taken(left)
        elif uid not in self.strays or place not in self.strays[uid].places:
            decided = None if held is None else _place_of(held)
            places = frozenset((place,) if decided is None else (place, decided))
            if uid in self.strays:  # of his records that were served none may be forgotten
                places |= self.strays[uid].places
            holdings = fact.holdings if held is None else held.holdings
            if fact.standing is not None:
                holdings = fact.standing.holdings
            name = f"{fact.namespace}/{fact.name}"
            old = (0, 0, uid) if held is None else age(held)
            is_unserved, now_s = held is not None, self._clock()
            self.strays[uid] = Stray(uid, name, places, holdings, is_unserved, old, now_s)
            if held is not None and fact.phase != ACTIVE:
                self._note_sign(fact, held)
        if uid not in self._marked and given_up(state, fact):
            self.given_up[uid] = None

    def _note_sign(self, fact: PodObserved, held: Allocation) -> None:
        place = _place_of(held)
        if place is not None and held.seq and fact.phase not in ENDED:
            self.signs[fact.uid] = Sign(held, place)

    def _forget(self, uid: str) -> None:
        self.strays.pop(uid, None)
        self.given_up.pop(uid, None)
        self.signs.pop(uid, None)
        self._marked.discard(uid)
        self._version.pop(uid, None)

    def _note_taken(self, stray: Stray) -> None:
        self._taken.append(stray)
        del self._taken[:-TAKEN_KEPT]

    def erased(self, state: ClusterState, uid: str, erased: "Erased") -> None:
        """The record of a pod is gone: what its annotations say at that version is known."""
        stray = self.strays.pop(uid, None)
        if stray is not None and erased.was_taken:
            self._note_taken(stray)
        self.given_up.pop(uid, None)
        pod = state.pods.get(uid)
        if pod is not None:
            self._version[uid] = erased.version
            if _mark_of(pod.fact) == keys.PHASE_FAILED:
                self._marked.add(uid)

    def is_marked(self, uid: str) -> bool:
        """Whether we said that a pod has failed."""
        return uid in self._marked

    def places(self, state: ClusterState) -> frozenset[Place]:
        """Where no pod is bound before a record is erased, without nodes on which no pod is to be
        bound."""
        held = (place for stray in self.strays.values() for place in stray.places)
        return frozenset(place for place in held if not _is_left_alone(state, place))

    def due(self, state: ClusterState, *, swap_equal: bool) -> list[PodObserved]:
        """The pods whose records are to be erased now.

        Where equal pods may be swapped, one that runs before its turn has left its record to the
        one whose record it got, and that one may still be asked for.
        """
        now_s = self._clock()
        late_s, bound_s = now_s - LATE_AFTER_S, now_s - OTHERS_BIND_WITHIN_S
        return [
            state.pods[uid].fact
            for uid, stray in self.strays.items()
            if (not swap_equal or stray.since_s <= late_s or not _has_swapped(state, uid))
            and (stray.since_s <= bound_s or not _is_others_to_bind(state.pods[uid].fact))
        ]

    def corrections(self, state: ClusterState) -> list[Corrected]:
        """What those with the sign hold, as far as that is known by now. Each is reported once.

        The plugin takes the smallest stamp with the right count. So it was the oldest record of
        that count that stood and was taken by another pod than its own.
        """
        out = []
        for uid, sign in sorted(self.signs.items(), key=lambda item: age(item[1].held)):
            if _oldest(self.strays.values(), sign) is not None:
                continue  # whether that one was taken is found out when it is erased
            del self.signs[uid]
            pod = state.pods.get(uid)
            if pod is None or pod.allocation is None or pod.allocation.seq != sign.held.seq:
                continue
            if uid in state.corrected:
                continue
            taken = _oldest(self._taken, sign)
            if taken is not None:
                self._taken.remove(taken)
            out.append(_corrected(pod.fact, pod.allocation, taken))
        return out


def _is_left_alone(state: ClusterState, place: Place) -> bool:
    node = state.nodes.get(place[0])
    return node is not None and bool(node.forgers)


def _is_others_to_bind(fact: PodObserved) -> bool:
    """Whether another scheduler may be about to bind a pod."""
    return not fact.node and fact.phase == ACTIVE and bool(fact.card_resources)


def _oldest(strays: Iterable[Stray], sign: Sign) -> Stray | None:
    """The record that a pod with the sign was served with, if it was one of these."""
    mine = age(sign.held)
    before = [
        stray
        for stray in strays
        if stray.uid != sign.held.uid and stray.age < mine and sign.place in stray.places
    ]
    return min(before, key=lambda stray: stray.age, default=None)


def _corrected(fact: PodObserved, held: Allocation, taken: Stray | None) -> Corrected:
    """Which devices a pod with the sign is booked for from now on.

    Where the record was written by an owner, after his pod had been served, nothing of what was
    decided is given free: both pods may be his, and their records a story.
    """
    cause = "its device plugin served it with the record of "
    if taken is None:
        code, holdings, cause = DEVICES_UNKNOWN, held.holdings, f"{cause}a pod that is not known"
    else:
        code, cause = MISDELIVERED, f"{cause}pod {taken.pod}"
        kept = () if taken.is_unserved else held.holdings
        got = (
            msgspec.structs.replace(theirs, container=ours.container)
            for theirs, ours in zip(taken.holdings, held.holdings, strict=False)
        )
        holdings = (*kept, *(h for h in got if h not in kept))
    return Corrected(
        uid=fact.uid,
        namespace=fact.namespace,
        name=fact.name,
        node=held.node,
        decision=held.seq,
        holdings=holdings,
        was=held.holdings,
        code=code,
        message=cause,
        served="" if taken is None else taken.pod,
    )


def _has_swapped(state: ClusterState, uid: str) -> bool:
    """Whether a pod may still be served with the record of one that runs."""
    pod = state.pods[uid]
    node = None if pod.fact.phase in ENDED else state.nodes.get(pod.fact.node)
    return node is not None and any(
        (other := state.pods[beside].fact).phase == ACTIVE
        and other.bind_phase == keys.PHASE_SUCCESS
        and _place_of(held) == standing(pod)
        for beside, held in node.allocations.items()
    )


def _place_of(held: Allocation) -> Place | None:
    """Where a plugin serves what was allocated by its record."""
    question = plugin_question(recorded(held.holdings))
    return None if question is None else (held.node, question)


def _asked_at(held: Allocation) -> Place | None:
    """Where a plugin is asked for what was allocated."""
    question = plugin_question(held.holdings)
    return None if question is None else (held.node, question)


class _Hold(msgspec.Struct):
    place: Place
    ahead: frozenset[str]
    until_s: float
    is_next: bool = False


class Deleted:
    """Places of pods that were deleted before their turn, until their kubelets are past them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._holds: list[_Hold] = []
        self._changes_seen = 0

    def hold(self, place: Place, ahead: frozenset[str], ago_s: float = 0.0) -> None:
        """A pod is gone that a plugin had still to serve, after those `ahead` of it."""
        self._holds.append(_Hold(place, ahead, self._clock() + LATE_AFTER_S - ago_s))

    def follow(self, state: ClusterState, gone: Collection[str], ago_s: float) -> None:
        """Take note of a record that was just folded, written `ago_s` ago, in which the pods `gone`
        are gone: while another binder is active, or the log is read again.

        This process does not know which Bindings were sent. So each of these pods may have been
        bound that its plugin has not served, and so may those decided before it.
        """
        trail = state.trails.nodes
        changes = trail.since(max(self._changes_seen, trail.start))
        self._changes_seen = trail.end
        if not gone or ago_s >= LATE_AFTER_S:
            return
        for _, released, sign in changes or ():
            if sign >= 0 or released is None or released.uid not in gone:
                continue
            place, node = _asked_at(released), state.nodes.get(released.node)
            if place is None or not released.waits_for_plugin:
                continue
            others = node.allocations.values() if node is not None else ()
            # Of those that ask the same only one at a time is bound: an older one that was not
            # served yet waits for this place itself.
            ahead = {
                other.uid
                for other in others
                if other.waits_for_plugin
                and age(other) < age(released)
                and _asked_at(other) not in (None, place)
            }
            self.hold(place, frozenset(ahead), ago_s)

    def places(self, is_served: Callable[[str], bool]) -> frozenset[Place]:
        """`is_served` tells of a pod whether its plugin still has to serve it, or may have to."""
        now_s = self._clock()
        for hold in self._holds:
            if not hold.is_next and not any(map(is_served, hold.ahead)):
                hold.is_next, hold.until_s = True, min(hold.until_s, now_s + PASSED_AFTER_S)
        self._holds = [hold for hold in self._holds if hold.until_s > now_s]
        return frozenset(hold.place for hold in self._holds)

    def left_s(self) -> float:
        """How long until a place is free, if nothing happens before."""
        ends = (hold.until_s for hold in self._holds)
        return max(min(ends, default=float("inf")) - self._clock(), 0.0)


class Erased(NamedTuple):
    """How a record ended. `version` is the pod's from then on, 0 if the pod is gone as well."""

    version: int
    was_taken: bool = False
    """Another pod was served with it before."""


async def erase(client: KubeClient, fact: PodObserved, on_problem: Callable[[str], None]) -> Erased:
    """Make the plugin skip a pod's record; tries until that is done or the pod is gone.

    The pod is read first and written only as it was read: so it is certain whether the plugin was
    quicker and served a pod with the record.
    """
    wait_s = RETRY_FIRST_S
    while True:
        found = await _read(client, fact)
        if isinstance(found, AnnotatedMeta):
            annotations = found.annotations or {}
            if found.uid != fact.uid:
                return Erased(0)
            left = [r for r in RECORDS.values() if "," in annotations.get(r.work_list, "")]
            if not left:
                return Erased(found.version, was_taken=_was_taken(annotations))
            found = await _mark(client, fact, found.resource_version, left)
            if isinstance(found, AnnotatedMeta):
                return Erased(found.version)
        if isinstance(found, Refused) and found.status == GONE:
            return Erased(0)
        if not (isinstance(found, Refused) and found.status == CONFLICT):
            on_problem(found.message)
        await anyio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_MAX_S)


async def _read(client: KubeClient, fact: PodObserved) -> AnnotatedMeta | Refused | Unknown:
    return _meta_in(await client.get(pod_path(fact.namespace, fact.name)))


def _was_taken(annotations: Mapping[str, str]) -> bool:
    """Whether a plugin served a pod with the record, of which nothing is left."""
    return any(
        record.work_list in annotations and annotations.get(record.phase) != keys.PHASE_FAILED
        for record in RECORDS.values()
    )


async def _mark(
    client: KubeClient, fact: PodObserved, version: str, left: Iterable[Record]
) -> AnnotatedMeta | Refused | Unknown:
    """Erase the records of a pod that is still at that version."""
    marks: dict[str, str] = {}
    for record in left:
        marks |= {record.work_list: "", record.phase: _mark_of(fact)}
    metadata = {"uid": fact.uid, "resourceVersion": version, "annotations": marks}
    path = pod_path(fact.namespace, fact.name, "status")
    return _meta_in(await client.patch(path, {"metadata": metadata}, MERGE_PATCH))


def _meta_in(answer: KubeResult) -> AnnotatedMeta | Refused | Unknown:
    if not isinstance(answer, Ok):
        return answer
    try:
        return _decode_pod(answer.body).metadata
    except UNREADABLE as error:
        return Unknown("server", f"the answer is not a pod: {error}")


async def mend(client: KubeClient, told: Corrected, on_problem: Callable[[str], None]) -> None:
    """Write on a pod which devices it holds, for those who go by annotations. Tries a few times."""
    record = RECORDS[told.holdings[0].family]
    metadata = {"uid": told.uid, "annotations": record.corrected(told.holdings)}
    path = pod_path(told.namespace, told.name, "status")
    wait_s = RETRY_FIRST_S
    for _ in range(MEND_TRIES):
        answer = await client.patch(path, {"metadata": metadata}, MERGE_PATCH)
        if isinstance(answer, Ok | Refused):
            break
        await anyio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_MAX_S)
    if not isinstance(answer, Ok):
        on_problem(answer.message)


def _mark_of(fact: PodObserved) -> str:
    """What is true of a pod whose record is erased: a pod that runs has not failed."""
    has_failed = fact.phase in ENDED or fact.bind_phase == keys.PHASE_FAILED
    return keys.PHASE_FAILED if has_failed else keys.PHASE_SUCCESS
