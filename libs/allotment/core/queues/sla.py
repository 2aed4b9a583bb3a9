"""Plugin `sla`: a job that has waited too long comes first.

How long is too long is said by the job's annotation `sla-waiting-time`, or by the argument of that
name for all jobs. Of two such jobs the one whose time is up earlier comes first; a job without one
comes after. When its time is up, the job is let in and keeps what was promised to it, whatever
plugins of later tiers say. The moment "now" is part of the view (the newest that the log tells of;
`batch.deadlines` sees to it that it is told), so the decision can be repeated.
"""

import re
from collections.abc import Hashable
from typing import ClassVar

import msgspec

from allotment.core.queues.answers import ABSTAIN, PERMIT, No, Vote
from allotment.core.queues.plugin import Key, Plugin
from allotment.core.queues.work import Job, World

_PART = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?(ns|us|µs|ms|s|m|h)", re.ASCII)
_NANOS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_NANOS_A_MILLI = 10**6


class DurationError(ValueError):
    """Raised for text that is not a time span."""


class Arguments(msgspec.Struct, frozen=True):
    """`waiting_most_ms` (`sla-waiting-time`): None means that only annotated jobs have one."""

    waiting_most_ms: int | None = None


def duration_ms(text: str) -> int:
    """``1h30m``, ``90s``, ``1.5h`` → milliseconds, rounded up. Raises `DurationError`."""
    at = total = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            break
        whole, fraction, unit = part.groups()
        decimals = fraction or ""
        total += -(-int(whole + decimals) * _NANOS[unit] // 10 ** len(decimals))
        at = part.end()
    if at == 0 or at < len(text) or total <= 0:
        raise DurationError(f"{text[:80]!r} is not a time span above 0 (like 90s or 1h30m)")
    return -(-total // _NANOS_A_MILLI)


class Sla(Plugin):
    name: ClassVar[str] = "sla"
    points: ClassVar[frozenset[str]] = frozenset(("job_order", "job_enqueueable", "job_pipelined"))

    def __init__(self, arguments: Arguments, world: World) -> None:
        self._usual = arguments.waiting_most_ms
        self._now_ms = world.now_ms

    def deadline_ms(self, job: Job) -> int | None:
        """The moment at which the job has waited long enough; None if it may wait for ever."""
        waiting = job.view.waiting_most_ms
        waiting = self._usual if waiting is None else waiting
        return None if waiting is None else job.view.created_ms + waiting

    def job_key(self, job: Job) -> Key:
        deadline = self.deadline_ms(job)
        return (1, 0) if deadline is None else (0, deadline)

    def job_enqueueable(self, job: Job) -> Vote | No:
        return self._vote(job)

    def enqueue_key(self, job: Job) -> Hashable:
        return self._vote(job)

    def job_pipelined(self, job: Job) -> Vote | No:
        return self._vote(job)

    def _vote(self, job: Job) -> Vote:
        deadline = self.deadline_ms(job)
        return ABSTAIN if deadline is None or self._now_ms < deadline else PERMIT
