"""Collects pods' lives from the log: the records of one pod into phases, attempts and its end.

A `PodLife` is one pod (one uid); a `PodStory` follows the pods that carry one name, and finds the
pods before and after each. What they collected becomes a `life.Life` in `told`.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from allotment.core import reasons
from allotment.core.explain.causes.why import Why, Whys
from allotment.core.explain.history.attempts import PLACED, REFUSED, judged, said_in
from allotment.core.explain.history.concerned import (
    GROUP,
    LOST,
    NODE,
    POD,
    Thing,
    family_of,
    gaining,
    preemptor,
)
from allotment.core.explain.history.story import corrected_text
from allotment.core.explain.rows import life
from allotment.core.explain.rows.acknowledgement import is_acknowledged
from allotment.core.explain.rows.pod_views import group_cause, pod_status, preemptor_name
from allotment.core.ledger.claims import claimed, mismatch, unreadable
from allotment.core.ledger.model import BOUND, ENDED, ClusterState, Pod
from allotment.core.reasons import problem_text, refusal_text
from allotment_proto.events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Envelope,
    Evicted,
    Eviction,
    GroupGone,
    GroupObserved,
    NodeGone,
    NodeObserved,
    Placement,
    PodGone,
    PodObserved,
    Refusal,
)
from allotment_proto.volcano import keys

StateThen = Callable[[], ClusterState]
"""The state right after the record that is followed; asked for only where the story needs it."""

_ATTEMPTS_KEPT = 64
_PHASES_KEPT = 64
_MOMENTS_KEPT = 256
LIVES_KEPT = 4
"""Pods of one name that are remembered, the newest."""
_WAITING_AS_OWNER_KEPT = 1024

_SCHEDULER, _BINDER, _PLUGIN, _KUBELET = "scheduler", "binder", "device plugin", "kubelet"
"""Who works on a phase, or what it waits for."""

_RUNNING = "Running"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One decision about the pod, and what it says of it, as in `Judged`."""

    seq: int
    time_ms: int
    by: str
    decided: Decided
    outcome: str
    placement: Placement | None
    refusal: Refusal | None
    code: str
    message: str


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to the pod, in one line."""

    seq: int
    time_ms: int
    by: str
    text: str = ""


class Span:
    """A phase while it is being collected."""

    __slots__ = (
        "attempts",
        "code",
        "decision",
        "end",
        "key",
        "last_attempt",
        "name",
        "node",
        "service",
        "start",
        "text",
        "varies",
    )

    def __init__(self, name: str, service: str, start: Moment) -> None:
        self.name, self.service, self.start = name, service, start
        self.end: Moment | None = None
        self.key: object = None
        self.code = self.text = self.node = ""
        self.decision: int | None = None
        self.attempts = 0
        self.last_attempt: Moment | None = None
        self.varies = False
        """Whether `text` was another one before, for the same cause."""


class EvictionHere(msgspec.Struct, kw_only=True):
    """The decision that evicted the pod, and the pods that gain by it."""

    moment: Moment
    eviction: Eviction
    preemptor: str
    gains: dict[str, life.Gain]


class PodLife:
    """One pod's life. `follow` every record after its fold.

    Only the last attempts are kept; `attempts_total` counts all. With `asks_nodes` the text of a
    wait is its main cause (`why`), computed again when nodes reject the pod for different reasons;
    without it, the text is what the decision counted.
    """

    def __init__(self, fact: PodObserved, moment: Moment, *, asks_nodes: bool = False) -> None:
        self.uid = fact.uid
        self._asks_nodes = asks_nodes
        self._counted: frozenset[str] = frozenset()
        self._cause = Why("", "")
        """The main cause for which nodes refused it for the counted reasons."""
        self.fact = self.asked = fact
        """As it was seen last; as it was seen last while it waited."""
        self.first = _say(moment, "pod seen")
        self.moments: deque[Moment] = deque([self.first], maxlen=_MOMENTS_KEPT)
        self.spans: list[Span] = []
        self.spans_left_out = 0
        self.attempts: deque[Attempt] = deque(maxlen=_ATTEMPTS_KEPT)
        self.attempts_total = 0
        self.refused: Attempt | None = None
        """The attempt since which the reasons are what they are now."""
        self.placed: Attempt | None = None
        """The attempt that put the pod where it is or was; None while it waits."""
        self.bound: Moment | None = None
        """When it was first known to be bound: by the binder's word, or seen with its node."""
        self.ran: Moment | None = None
        self.deleting: Moment | None = None
        self.ended: Moment | None = None
        self.gone: Moment | None = None
        self.node_gone: Moment | None = None
        self.eviction: EvictionHere | None = None
        self.displaced: dict[str, life.Displaced] = {}
        self.waited_for = ""
        self.queue = fact.queue
        self._claim = ""
        self._agreed: object = None
        """What it claimed when the books agreed, until something may have changed them."""
        self._acknowledged = False

    @property
    def span(self) -> Span | None:
        """The phase that lasts."""
        return self.spans[-1] if self.spans and self.spans[-1].end is None else None

    @property
    def node(self) -> str:
        """Where it is or was; empty while it waits."""
        if self.placed is not None and self.placed.placement is not None:
            return self.placed.placement.node
        return self.fact.node

    @property
    def things(self) -> set[Thing]:
        """Whom later events concern that may belong to it."""
        pods = {self.uid, *self.displaced, *(self.eviction.gains if self.eviction else ())}
        node = LOST if self.node_gone is None else NODE, self.node
        return {*((POD, uid) for uid in pods), (GROUP, self.fact.group), node}

    def begin(self, at: StateThen) -> None:
        """After the first observation took effect."""
        fact, moment = self.fact, self.first
        if fact.node:
            self.moments.append(
                _say(moment, f"seen on {fact.node}, where another scheduler put it")
            )
            self._enter(life.BOUND, _PLUGIN, moment).node = fact.node
        if fact.gated:
            self.moments.append(_say(moment, "scheduling gates keep it from being tried"))
        self._acknowledged_now(moment)
        self._came_on("Pending", moment)
        if fact.deleting:
            self._is_deleted(moment)
        self._look_why(moment, at)
        self._look_at_claim(moment, at)

    def observed(self, event: PodObserved, moment: Moment, at: StateThen) -> None:
        """The pod as it is now, after the observation took effect."""
        earlier = self.fact
        if 0 < event.rv < earlier.rv:
            return
        self.fact = event
        if not event.node:
            self.asked = event
        if event.node and not earlier.node:
            self._is_seen_bound(moment)
        self._acknowledged_now(moment)
        if event.deleting and not earlier.deleting:
            self._is_deleted(moment)
        if event.phase != earlier.phase:
            self._came_on(earlier.phase, moment)
        if event.gated != earlier.gated:
            gates = "scheduling gates keep it from being tried"
            self.moments.append(_say(moment, gates if event.gated else "no longer gated"))
        self._look_why(moment, at)
        self._look_at_claim(moment, at)

    def follow(self, event: object, moment: Moment, at: StateThen) -> None:
        """Any other event, after its record took effect."""
        match event:
            case Decided():
                self._decided(event, moment, at)
            case Bound() if event.uid == self.uid:
                if self.bound is None:
                    self._is_bound(_say(moment, f"bound to {event.node}"))
            case BindFailed() if event.uid == self.uid:
                said = f"not bound to {event.node}: {event.code}: {event.message}"
                self.moments.append(_say(moment, said))
                self.placed = self.bound = self._agreed = None
                self._look_why(moment, at)
            case Corrected() if event.uid == self.uid:
                self._agreed = None
                self.moments.append(_say(moment, corrected_text(event)))
            case Evicted():
                self._evicted(event, moment)
            case PodGone():
                self._is_gone(event, moment)
            case NodeGone() if event.name == self.node and self.node and not self._is_over():
                self._agreed = None
                self.node_gone = _say(moment, f"its node {event.name} is gone")
                self.moments.append(self.node_gone)
            case NodeObserved() if self.node_gone is not None and event.name == self.node:
                if not self._is_over():
                    self.node_gone = None
                    self.moments.append(_say(moment, f"its node {event.name} is back"))
            case GroupObserved() | GroupGone() if _key(event) == self.fact.group:
                self._look_why(moment, at)
            case _:
                pass

    def forget_past(self) -> None:
        """Drop the decisions about it, and all lines; where it is and how it was placed is kept.
        For callers that follow thousands of pods for weeks.
        """
        self.attempts.clear()
        self.forget_others()

    def forget_others(self) -> None:
        """Drop all lines, and what the decisions about it say of other pods."""
        self.moments.clear()
        self.refused = None
        kept = [_without_others(attempt) for attempt in self.attempts]
        self.attempts.clear()
        self.attempts.extend(kept)
        if self.placed is not None:
            self.placed = _without_others(self.placed)

    def _why(self, state: ClusterState, pod: Pod) -> Why | None:
        """The main cause of a pod that nodes refuse; None for what else a pod waits for."""
        refusal = pod.refusal
        is_by_nodes = refusal is not None and refusal.problem is None and pod.fact.problem is None
        if not self._asks_nodes or not is_by_nodes or refusal is None:
            return None
        counted = frozenset(code for code, _ in refusal.reasons)
        if counted != self._counted:
            self._counted, self._cause = counted, Whys(state).of(pod)
        return self._cause

    def _is_over(self) -> bool:
        return self.ended is not None or self.gone is not None

    def _enter(self, name: str, service: str, moment: Moment) -> Span:
        """The next phase begins, and the last one ends with it."""
        self._close(moment)
        span = Span(name, service, moment)
        self.spans.append(span)
        if len(self.spans) > _PHASES_KEPT:
            del self.spans[1]  # how it began stays
            self.spans_left_out += 1
        return span

    def _close(self, moment: Moment) -> None:
        span = self.span
        if span is not None:
            span.end = moment

    def _is_seen_bound(self, moment: Moment) -> None:
        node, placement = self.fact.node, self.placed and self.placed.placement
        if placement and placement.node == node:
            if self.bound is None:
                self._is_bound(_say(moment, f"bound to {node}"))
        elif self.placed is None:
            self.moments.append(_say(moment, f"seen on {node}, where another scheduler put it"))
            self._enter(life.BOUND, _PLUGIN, moment).node = node

    def _is_bound(self, moment: Moment) -> None:
        self.bound = moment
        self.moments.append(moment)
        span = self.span
        if span is not None and span.name == life.RESERVED:
            bound = self._enter(life.BOUND, _PLUGIN, moment)
            bound.node, bound.decision = span.node, span.decision

    def _acknowledged_now(self, moment: Moment) -> None:
        fact = self.fact
        if self._acknowledged or not fact.node or fact.bind_phase != keys.PHASE_SUCCESS:
            return
        if fact.phase == "Pending" and not is_acknowledged(Pod(fact, moment.seq)):
            return
        self._acknowledged = True
        self.moments.append(_say(moment, "its device plugin has served it"))
        span = self.span
        if span is not None and span.name == life.BOUND:
            self._enter(life.STARTING, _KUBELET, moment).node = span.node

    def _came_on(self, before: str, moment: Moment) -> None:
        """Record that its phase in Kubernetes has changed."""
        phase = self.fact.phase
        if phase == before:
            return
        if phase == _RUNNING:
            self.ran = moment
            self.moments.append(_say(moment, "Running"))
            if self.deleting is None:
                self._enter(life.RUNNING, "", moment).node = self.fact.node
        elif phase in ENDED:
            self.ended = moment
            self._close(moment)
        else:
            self.moments.append(_say(moment, phase))

    def _is_deleted(self, moment: Moment) -> None:
        if self._is_over():
            return
        self.deleting = moment
        span = self.span
        if span is not None and span.name == life.WAITING:
            self.waited_for = _waited(span)
        self._enter(life.TERMINATING, _KUBELET if self.fact.node else "", moment).node = self.node

    def _is_gone(self, event: PodGone, moment: Moment) -> None:
        if event.uid == self.uid:
            span = self.span
            if span is not None and span.name == life.WAITING:
                self.waited_for = _waited(span)
            self._close(moment)
            self.gone = moment
        elif event.uid in self.displaced:
            self._displaced_is(event.uid, "gone")

    def _displaced_is(self, uid: str, ending: str, reason: str = "") -> None:
        found = self.displaced[uid]
        self.displaced[uid] = msgspec.structs.replace(found, ending=ending, reason=reason)

    def _evicted(self, event: Evicted, moment: Moment) -> None:
        if not event.code:
            return
        reason = f"{event.code}: {event.message}"
        if event.uid == self.uid and self.eviction is not None:
            preemptor, self.eviction = self.eviction.preemptor, None
            if self._is_over():
                return
            said = f"it stays: it could not be evicted for {preemptor}: {reason}"
            self.moments.append(_say(moment, said))
        elif event.uid in self.displaced and event.code != reasons.POD_ENDED:
            self._displaced_is(event.uid, "stays", reason)

    def _decided(self, event: Decided, moment: Moment, at: StateThen) -> None:
        is_tried = self.uid in event.batch and not self._is_over()
        if is_tried:
            self._attempted(event, moment, at)
        if event.evictions:
            self._take_evictions(event, moment, at)
        if self.eviction is not None and self.eviction.gains:
            self._take_gains(self.eviction.gains, event, moment.seq, at)
        group = self.fact.group
        if is_tried or (group and any(a.group == group for a in event.admissions)):
            self._look_why(moment, at, is_tried=is_tried)

    def _take_evictions(self, event: Decided, moment: Moment, at: StateThen) -> None:
        """Whom this decision evicts for the pod or its group, or for whom it evicts the pod."""
        mine = {(POD, self.uid), (GROUP, self.fact.group)}
        for eviction in event.evictions:
            if eviction.uid == self.uid and self.deleting is None and not self._is_over():
                whom = preemptor_name(at(), eviction.preemptor)
                self.eviction = EvictionHere(
                    moment=moment,
                    eviction=eviction,
                    preemptor=whom,
                    gains={
                        n.uid: life.Gain(namespace=n.namespace, name=n.name, uid=n.uid, node=n.node)
                        for n in gaining(event, eviction)
                    },
                )
                verb = f"is to make room for {whom}"
                self.moments.append(_say(moment, f"{verb} (decision {moment.seq})"))
            elif preemptor(eviction) in mine and self.placed is None and not self._is_over():
                self.displaced[eviction.uid] = life.Displaced(
                    namespace=eviction.namespace,
                    name=eviction.name,
                    uid=eviction.uid,
                    node=eviction.node,
                    action=eviction.action,
                    decision=moment.seq,
                    time_ms=moment.time_ms,
                    ending="leaving",
                )

    def _take_gains(
        self, gains: dict[str, life.Gain], event: Decided, seq: int, at: StateThen
    ) -> None:
        for placement in event.placements:
            gain = gains.get(placement.uid)
            if gain is None or gain.decision is not None or at().voided.get(placement.uid) == seq:
                continue
            gains[placement.uid] = msgspec.structs.replace(gain, node=placement.node, decision=seq)

    def _look_why(self, moment: Moment, at: StateThen, *, is_tried: bool = False) -> None:
        """Record what the pod waits for from now on."""
        if self.deleting is not None or self._is_over() or self.fact.node:
            return
        state = at()
        pod = state.pods.get(self.uid)
        if pod is None:
            return
        if pod.allocation is not None or pod.fact.node:
            return
        code, text, key = _why_waiting(state, pod, self._why(state, pod))
        group = state.groups.get(pod.fact.group)
        if group is not None and group.fact is not None:
            self.queue = group.fact.queue
        span = self.span
        if span is None or span.name != life.WAITING or span.key != key:
            span = self._enter(life.WAITING, _SCHEDULER, moment)
            span.key = key
        span.varies |= bool(span.text) and span.text != text
        span.code, span.text = code, text
        if is_tried:
            span.attempts += 1
            span.last_attempt = moment

    def _look_at_claim(self, moment: Moment, at: StateThen) -> None:
        """Record once when the pod's annotations differ from its booking, or are unreadable."""
        fact = self.fact
        if fact.phase in ENDED:
            self._claim = ""
            return
        claim = fact.node, claimed(fact), fact.holdings, fact.shares_pct, fact.standing
        if fact.broken is None and claim == self._agreed:
            return
        pod = at().pods.get(self.uid)
        problem = None if pod is None else mismatch(pod) or unreadable(pod)
        said = "" if problem is None else problem_text(problem)
        if said and said != self._claim:
            self.moments.append(_say(moment, said))
        self._claim = said
        held = None if pod is None else pod.allocation
        is_sure = problem is None and held is not None and held.phase == BOUND and not held.broken
        self._agreed = claim if is_sure and fact.broken is None else None

    def _attempted(self, event: Decided, moment: Moment, at: StateThen) -> None:
        found = judged(said_in(event), self.uid, moment.seq, at)
        attempt = Attempt(
            seq=moment.seq,
            time_ms=moment.time_ms,
            by=moment.by,
            decided=event,
            **found._asdict(),
        )
        self.attempts.append(attempt)
        self.attempts_total += 1
        if found.outcome == PLACED and found.placement is not None:
            self.placed, self.refused, self.bound, self._agreed = attempt, None, None, None
            span = self.span
            if span is not None and span.name == life.WAITING:
                self.waited_for = _waited(span)
            reserved = self._enter(life.RESERVED, _BINDER, moment)
            reserved.node, reserved.decision = found.placement.node, moment.seq
        elif found.outcome == REFUSED:
            self.refused = attempt


class Kin(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that came before or after another one of the same owner."""

    uid: str
    namespace: str
    name: str
    seen: Moment


class PodStory:
    """Collects the lives of the pods of one name. `follow` every record after its fold.
    `asks_nodes` as in `PodLife`.
    """

    def __init__(self, namespace: str, name: str, *, asks_nodes: bool = True) -> None:
        self.namespace = namespace
        self.name = name
        self._asks_nodes = asks_nodes
        self.lives: dict[str, PodLife] = {}
        """By uid, the newest last."""
        self.before: dict[str, Kin] = {}
        self.after: dict[str, Kin] = {}
        """By uid of a pod of this name, the pod of the same owner that came before, and after."""
        self._owners = _Owners()

    @property
    def latest(self) -> PodLife | None:
        """The newest pod of the name."""
        return next(reversed(self.lives.values()), None)

    @property
    def fact(self) -> PodObserved | None:
        """What is known of it; None before any pod of the name was seen."""
        return None if self.latest is None else self.latest.fact

    @property
    def placed(self) -> Attempt | None:
        """The decision that put it where it is or was."""
        return None if self.latest is None else self.latest.placed

    def follow(self, seq: int, time_ms: int, envelope: Envelope, at: StateThen) -> None:
        """One record, after it took effect."""
        moment = Moment(seq=seq, time_ms=time_ms, by=envelope.by)
        for event in envelope.events:
            if isinstance(event, PodObserved):
                self._observed(event, moment, at)
            elif self.lives:
                for told in self.lives.values():
                    told.follow(event, moment, at)
            if isinstance(event, PodGone):
                self._owners.gone(event)

    def _observed(self, event: PodObserved, moment: Moment, at: StateThen) -> None:
        if (event.namespace, event.name) == (self.namespace, self.name):
            known = self.lives.get(event.uid)
            if known is not None:
                known.observed(event, moment, at)
            else:
                self.lives[event.uid] = new = PodLife(event, moment, asks_nodes=self._asks_nodes)
                while len(self.lives) > LIVES_KEPT:
                    del self.lives[next(iter(self.lives))]
                new.begin(at)
        follows = self._owners.observed(event, moment)
        if follows is not None:
            if event.uid in self.lives:
                self.before[event.uid] = follows
            if follows.uid in self.lives:
                new_kin = Kin(
                    uid=event.uid, namespace=event.namespace, name=event.name, seen=moment
                )
                self.after[follows.uid] = new_kin


class _Owners:
    """Which pod replaces which, where an owner creates pods under new names.

    The first pod of an owner that is seen after another one failed, or was deleted before it
    succeeded, takes that one's place. Only pods with generated names are asked for: others have
    their place in the name.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Kin]] = {}
        """By uid: the owner with the beginning of the name, and the pod."""
        self._vacant: dict[str, deque[Kin]] = {}

    def observed(self, event: PodObserved, moment: Moment) -> Kin | None:
        """The pod whose place this one takes, if it is new and takes one."""
        key = family_of(event)
        if not key:
            return None
        is_leaving = event.phase == "Failed" or (event.deleting and event.phase != "Succeeded")
        if event.uid in self._known:
            if is_leaving:
                self._leaves(event.uid)
            elif event.phase == "Succeeded":
                del self._known[event.uid]
            return None
        if event.phase in ENDED or event.deleting:
            return None
        kin = Kin(uid=event.uid, namespace=event.namespace, name=event.name, seen=moment)
        self._known[event.uid] = key, kin
        vacant = self._vacant.get(key)
        return vacant.popleft() if vacant else None

    def gone(self, event: PodGone) -> None:
        self._leaves(event.uid)

    def _leaves(self, uid: str) -> None:
        found = self._known.pop(uid, None)
        if found is not None:
            key, kin = found
            self._vacant.setdefault(key, deque(maxlen=_WAITING_AS_OWNER_KEPT)).append(kin)


def _why_waiting(state: ClusterState, pod: Pod, why: Why | None) -> tuple[str, str, object]:
    """The reason code of a pod that waits, its words, and what two equal ones have in common."""
    fact = pod.fact
    code = pod_status(state, pod)[1] if why is None else why.code
    nominated = next(
        (n.nodes[fact.uid] for n in state.nominated.values() if fact.uid in n.nodes), ""
    )
    text = _why_text(state, pod, code) if why is None else why.text
    key: object = (code, text, nominated)
    if pod.refusal is not None and pod.refusal.problem is None and fact.problem is None:
        key = (code, nominated)  # nodes come and go: different counts are not another cause
    if nominated:
        text += f"; nominated for {nominated}, where pods are evicted for it"
    return code, text, key


def _why_text(state: ClusterState, pod: Pod, code: str) -> str:
    fact = pod.fact
    if fact.problem is not None:
        return problem_text(fact.problem).removeprefix(f"{code}: ")
    if code == reasons.NOT_OURS:
        answers = reasons.answers_to(state.policy.scheduler_names)
        return f"its schedulerName is {fact.scheduler}; {answers}"
    known = reasons.REASONS.get(code)
    otherwise = "" if known is None else known.text
    if fact.gated or code == reasons.QUEUED:
        return otherwise
    if pod.refusal is not None:
        said = refusal_text(pod.refusal).removesuffix(".")
        return said.removeprefix(f"{code}: ")
    _, message = group_cause(state, pod)
    group = state.groups.get(fact.group)
    if group is not None and group.short is not None and group.short.message == message:
        return otherwise  # Volcano's sentence about the group is for those who ask for the group
    return message or otherwise


def _without_others(attempt: Attempt) -> Attempt:
    whole = attempt.decided
    slim = Decided(
        cycle=whole.cycle,
        basis=whole.basis,
        checked=whole.checked,
        policy=0,
        batch=(),
        stages=whole.stages,
    )
    return msgspec.structs.replace(attempt, decided=slim)


def _waited(span: Span) -> str:
    return f"{span.code}: {span.text}" if span.code else span.text


def _key(event: GroupObserved | GroupGone) -> str:
    return f"{event.namespace}/{event.name}"


def _say(moment: Moment, text: str) -> Moment:
    return msgspec.structs.replace(moment, text=text)
