"""Rounds that look for victims by brute force: on every node, among every pod."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from allotment.core.ledger.model import Node
from allotment.core.queues.model import Kind
from allotment.core.queues.round import victims
from allotment.core.queues.round.candidates import Bounds, Cost
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job


@contextmanager
def every_pod_asked() -> Iterator[None]:
    """What a round finds while this is open is what the short way round has to agree with: no
    bound, no order of nodes, and no kind of pods that is left out beforehand.
    """
    in_order = victims._in_order

    def everywhere(bounds: Bounds | None, changed: Mapping[str, Node], job: Job) -> Iterable[Cost]:
        if bounds is None:
            return in_order(bounds, changed, job)
        return [(0, (), name) for name in sorted(bounds._state.nodes)]

    def may_go(session: Session, source: victims._Source, job: Job, kind: Kind) -> bool:
        if source is victims._Source.OTHER_GROUPS:
            return kind.queue == job.queue
        return kind.queue != job.queue and session.queue(kind.queue).reclaimable

    with (
        patch.object(victims, "might_evict", lambda *_: True),
        patch.object(victims, "_may_go", may_go),
        patch.object(Session, "gives_back", lambda *_: True),
        patch.object(victims, "_in_order", everywhere),
    ):
        yield
