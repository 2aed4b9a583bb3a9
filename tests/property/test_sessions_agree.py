"""What is kept from cycle to cycle is what looking at everything would give.

Random histories of queues, groups, pods, nodes and policies; after each step a session that was
brought up to date is held against one that is opened afresh, what it lets in against asking for
every group, and the filter's next batch against one that is chosen by sorting all groups. Sessions
are left as they are, in the middle of their work, and the next one must not notice.
"""

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.ledger import snapshot
from allotment.core.ledger.changes import NAMES_MAX
from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.metrics.queues import job_gauges, queue_gauges
from allotment.core.placement.cycle import BATCH_MAX
from allotment.core.queues.actions.enqueue import enqueue
from allotment.core.queues.answers import No, Vote
from allotment.core.queues.model import WAITING, Status
from allotment.core.queues.plugins.base import Order, Plugin
from allotment.core.queues.plugins.drf import dominant_share
from allotment.core.queues.resources import CPU, Resources, total_of
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.totals import Totals
from allotment.core.queues.session import Session, best_effort, why_unplaced
from allotment.core.queues.shares import open_books
from allotment.core.queues.votes import poll
from allotment.core.queues.work import Job
from allotment_filter.groups import TURN_PART
from allotment_filter.orphans import orphans
from tests.property.batch_world import OPS, STEP, STEPS, Op, World
from tests.property.following import picture
from tests.property.identity import IDENTITY, cycle, other_policy


def left_in_the_middle(world: World, a: int, b: int, c: int) -> None:
    """A session lets groups in and places pods, takes some back, and is not closed."""
    session = world.rounds.session()
    enqueue(session)
    for number, uid in enumerate(sorted(session.jobs)):
        job, checkpoint = session.jobs[uid], session.statement.checkpoint()
        for task in session.due_tasks(job)[: 1 + b]:
            card = next(iter(session.cards(job, task) or ()), "")
            session.assume(job, task, Status.ALLOCATED, card)
        if number % 3 == c % 3:
            session.statement.rollback(checkpoint)


ALL_OPS: tuple[Any, ...] = (
    *(cycle if op is World.cycle else op for op in OPS),
    other_policy,
    left_in_the_middle,
)


class PlainGroups:
    """The filter's choice, by looking at all groups and sorting those that are due."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.tried: dict[str, int] = {}
        self.had_a_turn: set[str] = set()

    def next_batch(self, batch_max: int = BATCH_MAX) -> tuple[list[str], list[str]]:
        """The jobs and orphans that come next, and the pods."""
        session = Rounds(self.state).session()
        due = self._in_turns(session)
        if all(job.uid in self.had_a_turn for job in due):
            self.had_a_turn.clear()
        jobs: list[str] = []
        uids: list[str] = []
        for orphan in orphans(self.state, session, self.tried):
            if len(uids) < max(batch_max // TURN_PART, 1):
                jobs.append(orphan.key)
                uids += orphan.pods
        again, again_most = 0, batch_max - batch_max // TURN_PART
        for job in due:
            tasks = [task.uid for task in (*session.due_tasks(job), *best_effort(job))]
            had_a_turn = job.uid in self.had_a_turn
            if had_a_turn and uids and again + len(tasks) > again_most:
                continue
            if uids and len(uids) + len(tasks) > batch_max:
                if had_a_turn:
                    continue
                break
            again += len(tasks) if had_a_turn else 0
            jobs.append(job.uid)
            uids += tasks
        return jobs, uids

    def _in_turns(self, session: Session) -> list[Job]:
        queues: dict[str, list[Job]] = {}
        for job in sorted(filter(self._is_due, session.jobs.values()), key=session.job_key):
            queues.setdefault(job.queue, []).append(job)
        rows = [queues[name] for name in sorted(queues, key=session.queue_key)]
        turns = range(max(map(len, rows), default=0))
        return [row[turn] for turn in turns for row in rows if turn < len(row)]

    def _is_due(self, job: Job) -> bool:
        state = self.state
        if job.phase not in WAITING and not any(
            uid in state.pending and job.status[uid] is Status.PENDING for uid in job.tasks
        ):
            return False
        if job.uid.startswith(SINGLE):
            pod = state.pods[job.uid.removeprefix(SINGLE)]
            changed_seq = max(pod.changed_seq, state.voided.get(pod.fact.uid, 0))
            known_seq = pod.refused_basis
        else:
            group = state.groups[job.uid]
            changed_seq, known_seq = group.changed_seq, group.short_basis
        tried_seq = max(self.tried.get(job.uid, 0), known_seq)
        return tried_seq == 0 or tried_seq < max(state.room_seq, state.order_seq, changed_seq)


class Followed(World):
    """A world in which the filter's choice is held against the plain one."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = PlainGroups(self.state)

    def cycle(self, a: int, b: int, c: int) -> None:
        jobs, uids = self.plain.next_batch(4 + b)
        found = self.groups.next_batch((), 4 + b)
        if found is None:
            assert jobs == []
            return
        assert (list(found.jobs), list(found.batch.uids)) == (jobs, uids)
        outcome = self.round(found.batch.uids)
        self.decide(found.batch.basis, found.batch.uids, outcome)
        self.groups.tried(found)
        self.plain.had_a_turn.update(found.jobs)
        self.plain.tried.update(dict.fromkeys(found.jobs, found.batch.basis))


def check_gauges(state: ClusterState, session: Session) -> None:
    """What metrics say of queues, groups and namespaces is the sum of what each job has."""
    jobs = list(session.jobs.values())
    found = {
        gauge.name: gauge.rows for gauge in (*queue_gauges(session), *job_gauges(state, session))
    }
    total = session.world.cluster.total
    spaces: dict[str, list[Resources]] = {}
    for job in jobs:
        spaces.setdefault(job.view.namespace, []).append(job.allocated)
    assert found["volcano_namespace_share"] == {
        (name,): int(dominant_share(total_of(parts), total) * 1_000_000)
        for name, parts in spaces.items()
    }
    assert found["volcano_job_share"] == {
        (job.view.namespace, job.uid): int(dominant_share(job.allocated, total) * 1_000_000)
        for job in jobs
        if job.uid in state.groups
    }
    for name in session.world.queues:
        mine = [job for job in jobs if job.queue == name]
        asked = [task.request for job in mine for task in job.with_status(Status.PENDING)]
        book = open_books(session.world)[name]
        held, pending = book.allocated, book.pending
        assert_same(held, total_of([job.allocated for job in mine]))
        assert_same(pending, total_of(asked))
        asked_of_cpu = found["volcano_queue_request_milli_cpu"].get((name,), 0)
        held_of_cpu = found["volcano_queue_allocated_milli_cpu"].get((name,), 0)
        assert asked_of_cpu == held_of_cpu + pending.amount(CPU)


def assert_same(found: Resources, wanted: Resources) -> None:
    """What one of them does not name is 0."""
    assert {k: v for k, v in found.items() if v} == {k: v for k, v in wanted.items() if v}


def plain_enqueue(session: Session) -> tuple[list[str], list[tuple[str, No]]]:
    """Who is let in and who is not, every group asked anew and every queue looked at each time."""
    waiting: dict[str, list[Job]] = {}
    for job in session.jobs.values():
        if job.phase in WAITING:
            waiting.setdefault(job.queue, []).append(job)
    let_in: list[str] = []
    refused = [
        (uid, why_unplaced(view))
        for uid, view in sorted(session.unplaced.items())
        if view.phase in WAITING
    ]
    turns = dict.fromkeys(waiting, 0)

    def place(name: str) -> tuple[Order, int, Order]:
        key = session.queue_key(name)
        return key[:-1], turns[name], key[-1:]

    while waiting:
        name = min(waiting, key=place)
        turns[name] += 1
        job = min(waiting[name], key=session.job_key)
        waiting[name].remove(job)
        if not waiting[name]:
            del waiting[name]
        no = None
        if job.view.min_resources is not None:
            no = poll(session._at("job_enqueueable"), partial(_ask, job))
        if no is None:
            session.let_in(job)
            let_in.append(job.uid)
        else:
            refused.append((job.uid, no))
    return let_in, refused


def _ask(job: Job, plugin: Plugin) -> Vote | No:
    return plugin.job_enqueueable(job)


def check(world: World) -> None:
    session = world.rounds.session()
    found = enqueue(session, session.jobs.keys() | session.unplaced.keys())
    assert (list(found.let_in), list(found.refused)) == plain_enqueue(Rounds(world.state).session())
    kept = picture(world.rounds.session())
    check_gauges(world.state, world.rounds.session())
    assert kept == picture(Rounds(world.state).session())
    if world.state.seq % 8 == 0:
        restored = snapshot.decode(snapshot.encode(world.state))
        assert kept == picture(Rounds(restored).session())
    totals, anew = world.views.totals, Totals(world.state)
    totals.follow(), anew.follow()
    assert (totals.offered, totals.cards) == (anew.offered, anew.cards)
    assert totals.used() == anew.used()


@settings(max_examples=60)
@given(STEPS)
def test_a_session_that_is_kept_up_to_date(steps: list[Op]) -> None:
    world = Followed()
    for number in range(3):
        world.node(number, 2 + number, number)
        world.group(number, 2 + number, 0)
        world.pods(number, 3, 3)
    for number, (op, a, b, c) in enumerate(steps):
        ALL_OPS[(op + number) % len(ALL_OPS)](world, a, b, c)
        check(world)


@settings(max_examples=100)
@given(st.lists(st.lists(STEP, min_size=1, max_size=4), max_size=10))
def test_a_session_kept_up_to_date_while_pods_and_groups_change_what_they_are(
    windows: list[list[Op]],
) -> None:
    """Several changes between two looks, in any order: a group may be seen before the pod that
    joins it, and a pod may join, leave and join again.
    """
    world = Followed()
    for number in range(3):
        world.node(number, 2 + number, number)
        world.group(number, 2 + number, 0)
        world.pods(number, 1, 3)
    world.pods(5, 3, 1)
    check(world)
    for number, window in enumerate(windows):
        for op, a, b, c in window:
            IDENTITY[(op + number) % len(IDENTITY)](world, a, b, c)
        check(world)


def test_who_was_away_for_too_long_looks_at_everything() -> None:
    world = Followed()
    world.node(0, 3, 4)
    for number in range(3):
        world.group(number, 2, 0)
        world.pods(number, 1, 3)
    world.cycle(0, 5, 0)
    check(world)
    uid = next(iter(world.state.pods))
    for _ in range(NAMES_MAX + 1):
        world.state.trails.jobs.add(uid)
    world.group(1, 3, 2)
    world.pods(4, 2, 3)
    check(world)
    world.cycle(0, 5, 0)
    check(world)
