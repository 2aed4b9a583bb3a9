"""What follows the log's changes from session to session is what is made from scratch.

Every world of queues has such followers. They look after every third event, so that a pod may join
and leave a group, or a group be deleted and made again, between two looks.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.queues.model import Kind
from allotment.core.queues.plugins.base import Plugin
from allotment.core.queues.plugins.overcommit import Overcommit
from allotment.core.queues.resources import Resources
from allotment.core.queues.round.candidates import Candidates, Question
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.totals import Totals
from allotment.core.queues.session import Session
from allotment.core.queues.timings import unending
from allotment.core.queues.work import Job
from allotment_proto.facts import DeviceRequest, PodRequest

EVERY = 3
QUESTIONS = tuple(
    Question(request, "", "", 0)
    for request in (
        PodRequest(cpu_milli=3000),
        PodRequest(devices=(DeviceRequest("vgpu", 0, "main", 1, 9_000, 50, 0),)),
        PodRequest(devices=(DeviceRequest("vgpu", 0, "main", 2, 1_000, 100, 0),)),
    )
)


def is_low(kind: Kind) -> bool:
    return kind.priority < 50


class Followers:
    def __init__(self, state: ClusterState) -> None:
        self.state, self.events = state, 0
        self.rounds, self.totals = Rounds(state), Totals(state)
        self.candidates = Candidates(state)

    def look(self) -> None:
        """After an event."""
        self.events += 1
        if self.events % EVERY == 0:
            assert picture(self.rounds.session()) == picture(Rounds(self.state).session())
            assert totals_of(self.totals) == totals_of(Totals(self.state))
            world = self.rounds.session().world
            self.candidates.follow(world)
            fresh = Candidates(self.state)
            fresh.follow(world)
            for name in self.state.nodes:
                assert self.candidates.rows(name) == fresh.rows(name), name
            for question in QUESTIONS:
                kept = self.candidates.bounds(question, is_low, unending)
                assert [*kept.in_order()] == [*fresh.bounds(question, is_low, unending).in_order()]


def totals_of(totals: Totals) -> object:
    totals.follow()
    return totals.offered, totals.cards, totals.used()


def picture(session: Session) -> dict[str, object]:
    """All that a session starts from and answers by."""
    world = session.world
    return {
        "jobs": {uid: (job.view, picture_of_job(job)) for uid, job in world.jobs.items()},
        "queues": {name: sorted(jobs) for name, jobs in world.by_queue.items()},
        "at gate": sorted(job.uid for job in world.at_gate(world.jobs)),
        "unplaced": sorted(session.unplaced),
        "job of": {uid: job.uid for uid, job in world.job_of.items()},
        "cluster": msgspec.structs.replace(world.cluster, used=Resources),
        "in use": world.cluster.used(),
        "now": world.now_ms,
        "queue keys": {name: session.queue_key(name) for name in world.queues},
        "job keys": {uid: session.job_key(job) for uid, job in world.jobs.items()},
        "books": {
            plugin.name: books_of(plugin, world.queues)
            for name in ("proportion", "capacity", "capacity-card", "overcommit")
            if (plugin := session.plugin(name)) is not None
        },
    }


def picture_of_job(job: Job) -> object:
    counts = {status: count for status, count in job.counts.items() if count}
    asked = {name: amount for name, amount in job.allocated.items() if amount}
    return job.phase, job.status, counts, asked, job.ready_count, job.best_effort_pending


def books_of(plugin: Plugin, queues: Iterable[str]) -> object:
    if isinstance(plugin, Overcommit):
        return plugin.book.inqueue_of
    books: Any = plugin
    found = ((name, books.books[name]) for name in queues)
    return {
        name: (book.allocated, book.request, book.inqueue_of, book.elastic) for name, book in found
    }
