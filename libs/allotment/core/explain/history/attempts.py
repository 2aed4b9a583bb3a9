"""What a decision says of each pod of its batch, and what pods wait for: for stories and metrics.

Only reasons of the reasons' table are counted, so that a record with another reason, or an attacker
who can write one, adds no new row.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from allotment.core import reasons
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.pod_views import group_cause
from allotment.core.ledger.model import ClusterState
from allotment_proto.events import Decided, Dropped, Placement, Refusal

PLACED = "placed"
VOID = "void"
DROPPED = "dropped"
REFUSED = "refused"
UNCHANGED = "unchanged"
_PASSED_OVER = "skipped"
SHORT = "short"
"""Its group lacks its minimum, or is not admitted: `Judged.code` and `.message` say why."""
OUTCOMES = (PLACED, REFUSED, UNCHANGED, SHORT, DROPPED, VOID, _PASSED_OVER)

_OTHER = "Other"
"""For a code that is not in the table."""


class Judged(NamedTuple):
    """What a decision says of a pod that it tried. `code` says why a proposed placement was dropped
    or a group waits.
    """

    outcome: str
    placement: Placement | None = None
    refusal: Refusal | None = None
    code: str = ""
    message: str = ""

    @property
    def reason(self) -> str:
        """The main reason for which the pod got no place, as a code of the reasons' table or
        `Other`; empty if it was placed or skipped.
        """
        code = reasons.STALE_LEDGER if self.outcome == VOID else self.code
        if self.refusal is not None:
            problem = self.refusal.problem
            code = reasons.shown_cause(self.refusal.reasons) if problem is None else problem.code
        return code if code in reasons.REASONS else code and _OTHER


def said_in(event: Decided) -> dict[str, Placement | Dropped | Refusal]:
    """What a decision says of single pods, by uid."""
    said: dict[str, Placement | Dropped | Refusal] = {each.uid: each for each in event.refusals}
    said.update((each.placement.uid, each) for each in event.dropped)
    said.update((each.uid, each) for each in event.placements)
    return said


def judged(
    said: Mapping[str, Placement | Dropped | Refusal],
    uid: str,
    seq: int,
    at: Callable[[], ClusterState],
) -> Judged:
    """What the decision of a sequence comes to for a pod of its batch; `said` is what `said_in`
    finds in it, `at` gives the state right after it.
    """
    match said.get(uid):
        case Placement() as placement:
            return Judged(VOID if at().voided.get(uid) == seq else PLACED, placement)
        case Dropped() as dropped:
            return Judged(DROPPED, dropped.placement, code=dropped.code)
        case Refusal() as refusal:
            return Judged(REFUSED, refusal=refusal)
        case None:
            pass
    pod = at().pods.get(uid)
    if pod is None:
        return Judged(_PASSED_OVER)
    if pod.refusal is not None:
        return Judged(UNCHANGED, refusal=pod.refusal)
    code, message = group_cause(at(), pod)
    return Judged(SHORT, code=code, message=message) if code else Judged(_PASSED_OVER)


class Waiting(NamedTuple):
    """Pods that wait for one reason: how many, and since when the oldest exists (Unix ms)."""

    pods: int
    oldest_ms: int


def waiting(state: ClusterState, whys: Whys) -> dict[tuple[str, str], Waiting]:
    """The pods that wait for a place, by reason and by what ends it (a name of `Cure`); `whys` are
    those of the state.
    """
    pods: Counter[str] = Counter()
    oldest_ms: dict[str, int] = {}
    for uid in state.pending:
        pod = state.pods[uid]
        code = whys.of(pod).code
        pods[code] += 1
        created_ms = pod.fact.created_ms
        if created_ms < oldest_ms.get(code, created_ms + 1):
            oldest_ms[code] = created_ms
    found: dict[tuple[str, str], Waiting] = {}
    for code, number in pods.items():
        row = reasons.REASONS.get(code)
        key = (_OTHER, "") if row is None else (code, row.cured_by.name.lower())
        known = found.get(key, Waiting(0, oldest_ms[code]))
        found[key] = Waiting(known.pods + number, min(known.oldest_ms, oldest_ms[code]))
    return found
