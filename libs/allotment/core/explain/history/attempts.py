"""Attempts and waits counted by their reason: for metrics, in the words of stories and traces.

Only reasons of the reasons' table count, so that a record with another reason, or an attacker who
can write one, adds no new row.
"""

from collections import Counter
from typing import NamedTuple

from allotment.core import reasons
from allotment.core.explain.causes.why import ASKED_OFTEN, Whys
from allotment.core.explain.history.pod_story import (
    DROPPED,
    PASSED_OVER,
    PLACED,
    REFUSED,
    SHORT,
    UNCHANGED,
    VOID,
)
from allotment.core.explain.rows.pod_views import group_cause
from allotment.core.ledger.model import ClusterState
from allotment_proto.events import Decided, Envelope, Refusal

OTHER = "Other"
"""For a code that is not in the table."""


class Waiting(NamedTuple):
    """Pods that wait for one reason: how many, and since when the oldest exists (Unix ms)."""

    pods: int
    oldest_ms: int


def waiting(state: ClusterState, whys: Whys | None = None) -> dict[tuple[str, str], Waiting]:
    """The pods that wait for a place, by reason and by what ends it (a name of `Cure`); `whys` are
    those of the state.
    """
    pods: Counter[str] = Counter()
    oldest_ms: dict[str, int] = {}
    whys = Whys(state, ASKED_OFTEN) if whys is None else whys
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
        key = (OTHER, "") if row is None else (code, row.cured_by.name.lower())
        known = found.get(key, Waiting(0, oldest_ms[code]))
        found[key] = Waiting(known.pods + number, min(known.oldest_ms, oldest_ms[code]))
    return found


class Attempts:
    """Counts what decisions say about each pod that they tried, from when counting began."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter(
            dict.fromkeys((PLACED, REFUSED, UNCHANGED, SHORT, DROPPED, VOID, PASSED_OVER), 0)
        )
        """One a pod and decision, in the words that its story has for it."""
        self.rejections: Counter[str] = Counter()
        """The same without pods that were placed or skipped, by the main reason."""

    def take(self, seq: int, envelope: Envelope, state: ClusterState) -> None:
        """Count a record that has just taken effect."""
        for event in envelope.events:
            if isinstance(event, Decided):
                self._decided(event, seq, state)

    def _decided(self, event: Decided, seq: int, state: ClusterState) -> None:
        placed = {placement.uid for placement in event.placements}
        dropped = {each.placement.uid: each.code for each in event.dropped}
        refused = {refusal.uid: refusal for refusal in event.refusals}
        for uid in dict.fromkeys(event.batch):
            pod = state.pods.get(uid)
            if uid in placed:
                void = state.voided.get(uid) == seq
                self._count(VOID if void else PLACED, reasons.STALE_LEDGER if void else "")
            elif uid in dropped:
                self._count(DROPPED, dropped[uid])
            elif uid in refused:
                self._count(REFUSED, _main(refused[uid]))
            elif pod is None:
                self._count(PASSED_OVER)
            elif pod.refusal is not None:
                self._count(UNCHANGED, _main(pod.refusal))
            else:
                code = group_cause(state, pod)[0]
                self._count(SHORT if code else PASSED_OVER, code)

    def _count(self, outcome: str, code: str = "") -> None:
        self.outcomes[outcome] += 1
        if code:
            self.rejections[_known(code)] += 1


def _main(refusal: Refusal) -> str:
    problem = refusal.problem
    return reasons.shown_cause(refusal.reasons) if problem is None else problem.code


def _known(code: str) -> str:
    return code if code in reasons.REASONS else OTHER
