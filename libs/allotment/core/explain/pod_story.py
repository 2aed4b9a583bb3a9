"""One pod's life as its explanation needs it: attempts, binding, phases, each with its record."""

from collections import deque

import msgspec

from allotment.core.explain.story import corrected_text
from allotment.core.ledger.claims import mismatch
from allotment.core.ledger.model import ClusterState
from allotment.core.reasons import problem_text
from allotment_proto.events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Envelope,
    Placement,
    PodGone,
    PodObserved,
    Refusal,
)

ATTEMPTS_KEPT = 64

PLACED = "placed"
VOID = "void"
DROPPED = "dropped"
REFUSED = "refused"
UNCHANGED = "unchanged"
PASSED_OVER = "passed over"
SHORT = "short"
"""Its group did not get its minimum: `Attempt.code` and `Attempt.message` say why."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One decision about the pod. `code` says why a proposed placement was dropped or void."""

    seq: int
    time_ms: int
    by: str
    decided: Decided
    outcome: str
    placement: Placement | None = None
    refusal: Refusal | None = None
    code: str = ""
    message: str = ""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Anything else that happened to the pod."""

    seq: int
    time_ms: int
    by: str
    text: str


class PodStory:
    """Collects the story of the latest pod of one name. `follow` every record after its fold.

    Only the last attempts are kept; `attempts_total` counts all.
    """

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self._begin("")

    def _begin(self, uid: str) -> None:
        self.uid = uid
        self.fact: PodObserved | None = None
        self.first: Moment | None = None
        self.attempts: deque[Attempt] = deque(maxlen=ATTEMPTS_KEPT)
        self.attempts_total = 0
        self.refused: Attempt | None = None
        """The attempt since which the reasons are what they are now."""
        self.placed: Attempt | None = None
        """The attempt that put the pod where it is or was; None while it waits."""
        self.bound: Moment | None = None
        self.moments: list[Moment] = []
        self.gone = False
        self._claim = ""

    def follow(self, seq: int, time_ms: int, envelope: Envelope, state: ClusterState) -> None:
        """One record, after `apply_all` let it take effect on `state`."""
        for event in envelope.events:
            moment = Moment(seq=seq, time_ms=time_ms, by=envelope.by, text="")
            match event:
                case PodObserved():
                    if (event.namespace, event.name) == (self.namespace, self.name):
                        self._observed(event, moment)
                        self._claimed(moment, state)
                case Decided():
                    if self.uid in event.batch:
                        self._attempted(event, moment, state)
                case Bound():
                    if event.uid == self.uid:
                        self.bound = _say(moment, f"bound to {event.node}")
                        self.moments.append(self.bound)
                case BindFailed():
                    if event.uid == self.uid:
                        said = f"not bound to {event.node}: {event.code}: {event.message}"
                        self.moments.append(_say(moment, said))
                        self.placed = self.bound = None
                case Corrected():
                    if event.uid == self.uid:
                        self.moments.append(_say(moment, corrected_text(event)))
                case PodGone():
                    if event.uid == self.uid:
                        self.gone = True
                        self.moments.append(_say(moment, "pod is gone"))
                case _:
                    pass

    def _observed(self, event: PodObserved, moment: Moment) -> None:
        if event.uid != self.uid:
            self._begin(event.uid)
            self.first = _say(moment, "pod seen")
            self.moments.append(self.first)
        earlier, self.fact = self.fact, event
        if earlier is None:
            before = ("Pending", "", False, False)
        else:
            before = (earlier.phase, earlier.node, earlier.deleting, earlier.gated)
        said = []
        if event.phase != before[0]:
            said.append(f"{event.phase}: {event.reason}" if event.reason else event.phase)
        if event.node != before[1] and self.placed is None:
            said.append(f"seen on {event.node}")
        if event.deleting and not before[2]:
            said.append("deletion asked for")
        if event.gated != before[3]:
            said.append("gated" if event.gated else "no longer gated")
        if said:
            self.moments.append(_say(moment, ", ".join(said)))

    def _claimed(self, moment: Moment, state: ClusterState) -> None:
        """Say once when the pod's annotations claim something else than what is booked."""
        pod = state.pods.get(self.uid)
        problem = None if pod is None else mismatch(pod)
        said = "" if problem is None else problem_text(problem)
        if said and said != self._claim:
            self.moments.append(_say(moment, said))
        self._claim = said

    def _attempted(self, event: Decided, moment: Moment, state: ClusterState) -> None:
        attempt = self._judge(event, moment, state)
        self.attempts.append(attempt)
        self.attempts_total += 1
        if attempt.outcome == PLACED:
            self.placed, self.refused, self.bound = attempt, None, None
        elif attempt.outcome == REFUSED:
            self.refused = attempt

    def _judge(self, event: Decided, moment: Moment, state: ClusterState) -> Attempt:
        def attempt(
            outcome: str,
            placement: Placement | None = None,
            refusal: Refusal | None = None,
            code: str = "",
            message: str = "",
        ) -> Attempt:
            return Attempt(
                seq=moment.seq,
                time_ms=moment.time_ms,
                by=moment.by,
                decided=event,
                outcome=outcome,
                placement=placement,
                refusal=refusal,
                code=code,
                message=message,
            )

        for placement in event.placements:
            if placement.uid == self.uid:
                void = state.voided.get(self.uid) == moment.seq
                return attempt(VOID if void else PLACED, placement)
        for dropped in event.dropped:
            if dropped.placement.uid == self.uid:
                return attempt(DROPPED, dropped.placement, code=dropped.code)
        for refusal in event.refusals:
            if refusal.uid == self.uid:
                return attempt(REFUSED, refusal=refusal)
        group = state.pods[self.uid].fact.group if self.uid in state.pods else ""
        if group:
            for short in event.shorts:
                if short.group == group:
                    return attempt(SHORT, code=short.code, message=short.message)
            known = state.groups.get(group)
            if known is not None and known.short is not None:
                return attempt(SHORT, code=known.short.code, message=known.short.message)
        if self.refused is not None:
            return attempt(UNCHANGED, refusal=self.refused.refusal)
        return attempt(PASSED_OVER)


def _say(moment: Moment, text: str) -> Moment:
    return msgspec.structs.replace(moment, text=text)
