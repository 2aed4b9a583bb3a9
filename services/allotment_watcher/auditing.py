"""Corrects, again and again, what the log shows and the cluster does not."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import anyio

from allotment.adapters.log.recorder import Recorder
from allotment.adapters.service.service import ServiceContext
from allotment_proto.events import Event
from allotment_watcher.settings import WatcherSettings

AUDIT_S = 5.0
"""How often the log is compared with what was reported; what differs twice is corrected."""
F = TypeVar("F", bound=Event)


async def keep_right(
    ctx: ServiceContext[WatcherSettings], recorder: Recorder, found: Callable[[], Iterable[F]]
) -> None:
    """Append what `found` answers twice in a row, while nothing waits to be appended."""
    before: frozenset[Hashable] = frozenset()
    while True:
        await anyio.sleep(AUDIT_S)
        if recorder.waiting:
            continue
        now = [fact for fact in found() if not recorder.refuses(fact)]
        twice = [fact for fact in now if fact in before]
        for fact in twice:
            ctx.log.warning("the log disagreed with Kubernetes and is corrected", correction=fact)
        recorder.put(twice)
        before = frozenset(now)
