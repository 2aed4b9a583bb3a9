"""Plugin `sla`: a job that has waited too long comes first.

The job's annotation `sla-waiting-time` sets how long it may wait, or the argument of that name for
all jobs. Of two such jobs the one with the earlier deadline comes first; a job without a deadline
comes after. After its deadline a job is admitted and keeps what was promised to it, whatever
plugins of later tiers answer. The moment "now" is part of the view: it is the newest in the log
(`round.deadlines` names the moments that the log must record), so a decision can be repeated.
"""

from collections.abc import Hashable
from typing import ClassVar

import msgspec

from allotment.core.plugin_arguments import Argument, Arguments, Kind
from allotment.core.queues.answers import ABSTAIN, PERMIT, No, Vote
from allotment.core.queues.plugins.base import Key, Plugin
from allotment.core.queues.work import Job, World
from allotment.core.units import duration_ms

_DAY_MS = 24 * 3_600_000


class DurationError(ValueError):
    """Raised for text that is not a time span."""


class Settings(msgspec.Struct, frozen=True):
    """`waiting_most_ms` (`sla-waiting-time`): None: only annotated jobs have a deadline."""

    waiting_most_ms: int | None


def waiting_ms(text: str) -> int:
    """A time above 0, in milliseconds. Raises `DurationError`."""
    waiting = duration_ms(text)
    if waiting is None or waiting <= 0:
        raise DurationError(f"{text[:80]!r} is not a time span above 0 (like 90s or 1h30m)")
    return waiting


class Sla(Plugin):
    name: ClassVar[str] = "sla"
    points: ClassVar[frozenset[str]] = frozenset(("job_order", "job_enqueueable", "job_pipelined"))
    declared: ClassVar[Arguments] = {
        "sla-waiting-time": Argument(
            Kind.DURATION, 0, least=1, most=3_650 * _DAY_MS, field="waiting_most_ms"
        ),
    }
    settings: ClassVar[type[msgspec.Struct]] = Settings

    def __init__(self, arguments: Settings, world: World) -> None:
        self._usual = arguments.waiting_most_ms
        self._now_ms = world.now_ms

    def deadline_ms(self, job: Job) -> int | None:
        """The job's deadline in Unix milliseconds; None if it may wait for ever."""
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
