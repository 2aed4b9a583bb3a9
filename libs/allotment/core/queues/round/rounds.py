"""One round over groups and queues: admissions, placements, and why others wait.

A round is a function of the state and of the batch, like a plain cycle (`cycle.run_cycle`), so it
can be repeated from the log. Groups without a pod in the batch are not tried; all count for order
and quota. A group's minimum is placed as a whole or not at all, its other pods one by one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.placement.cycle import BATCH_MAX, Outcome, run_cycle
from allotment.core.placement.evaluator import Ranker
from allotment.core.queues.actions.allocate import allocate
from allotment.core.queues.actions.backfill import backfill
from allotment.core.queues.actions.enqueue import Enqueued, enqueue, let_in_unasked
from allotment.core.queues.answers import No, recordable
from allotment.core.queues.model import WAITING, JobView, QueueView, View
from allotment.core.queues.plugins.registry import PLUGINS, Configured, configure
from allotment.core.queues.reservations import Hold, holds_in_force
from allotment.core.queues.round.candidates import Candidates
from allotment.core.queues.round.failing import Culprits, culprits
from allotment.core.queues.round.holds import Emptied, holds_now, recorded
from allotment.core.queues.round.outcome import OutcomeBuilder, waiting_in
from allotment.core.queues.round.places import Places
from allotment.core.queues.round.victims import MAKING_ROOM, Hunt, Victims, keeping, might_evict
from allotment.core.queues.round.views import Views
from allotment.core.queues.session import Session
from allotment.core.queues.timings import (
    ACTION,
    SESSION,
    Checkpoint,
    OnStep,
    unending,
    untimed,
)
from allotment.core.queues.work import World
from allotment_proto.events import Admission, Held
from allotment_proto.facts import Policy

_T = TypeVar("_T")


class Opening(NamedTuple):
    """How a round begins: which groups are admitted, and the `holds` that apply; `held` are those
    of them that must be in the log, as it records them.
    """

    session: Session
    wanted: set[str]
    """The jobs of the batch."""
    admitted: Enqueued
    admissions: tuple[Admission, ...]
    held: tuple[Held, ...]
    holds: tuple[Hold, ...]


class Rounds:
    """Rounds on one state, with the views of unchanged jobs kept in between."""

    def __init__(self, state: ClusterState, *, checkpoint: Checkpoint = unending) -> None:
        self.state = state
        self._checkpoint = checkpoint
        self.views = Views(state)
        self._emptied = Emptied(state)
        self._candidates = Candidates(state)
        self._tiers: list[list[Configured]] = []
        self._policy: Policy | None = None
        self._world: World | None = None
        self._made_from: object = None
        self._session: Session | None = None
        self._nodes_seq = self._decision_seq = -1

    def open_ahead(self) -> None:
        """Read what nodes offer, if that changed, so that the next round need not. It ends the last
        session, so do not call it during a round.
        """
        state = self.state
        if state.is_batched and state.nodes_seq != self._nodes_seq:
            self._nodes_seq = state.nodes_seq
            self._sound(lambda: self._session_on(self._follow()).open_all())

    def follow_ahead(self) -> None:
        """Read what changed, if there was a decision since the last call, because the next round
        follows it. Do not call it during a round, either.
        """
        state = self.state
        if state.is_batched and state.decision_seq != self._decision_seq:
            self._decision_seq = state.decision_seq
            self._sound(self._follow)

    def might_evict(self, session: Session, uid: str) -> bool:
        """Whether a round might evict pods for a job."""
        return self.may_evict and might_evict(session, session.jobs[uid], self.state.policy.actions)

    @property
    def may_evict(self) -> bool:
        """Whether a round may evict pods for those that find no place."""
        return not MAKING_ROOM.isdisjoint(self.state.policy.actions)

    def session(self) -> Session:
        """A session on the state as it is, under the current policy. It ends the last session."""
        return self._sound(lambda: self._session_on(self._follow()))

    def ask(self, question: Callable[[Session], _T]) -> _T:
        """The session's answer on the state as it is; if asking raises, without the jobs that cause
        it.
        """
        return self._sound(lambda: question(self._session_on(self._follow())))

    def leave_out(self) -> Culprits:
        """Leave out the jobs and queues on which a session fails, until something about them
        changes. It ends the last session.
        """
        self._session = self._world = None
        views = self.views
        views.follow()
        jobs = [job for _, job in sorted(views.jobs.items())]
        found = culprits(views.queues(), jobs, self._session_of)
        views.leave_out(found)
        return found

    def _session_of(self, queues: Sequence[QueueView], jobs: Iterable[JobView]) -> Session:
        """A session on some of the queues and jobs."""
        cluster, now_ms = self.views.cluster(), self.views.now_ms
        world = World(View(cluster=cluster, queues=tuple(queues), now_ms=now_ms), None, jobs)
        return Session(world, self._tiers, self.state.turns)

    def _sound(self, opened: Callable[[], _T]) -> _T:
        """The result of opening a session; if that raises, without the jobs that cause it."""
        try:
            return opened()
        except Exception:
            if not self.leave_out():
                raise
            return opened()

    def _session_on(self, world: World) -> Session:
        self._session = Session(world, self._tiers, self.state.turns)
        return self._session

    def open(self, batch: Sequence[str], on_step: OnStep = untimed) -> Opening:
        """Everything before the first pod of the batch is tried. It ends the last session."""
        return self._sound(partial(self._open, batch, on_step))

    def _open(self, batch: Sequence[str], on_step: OnStep) -> Opening:
        state = self.state
        wanted = {_job_of(state, uid) for uid in batch}
        world = self._follow()
        session = self._session_on(world)
        session.open_all(on_step)
        on_step(SESSION, "")
        admitted = Enqueued((), ())
        if "enqueue" in state.policy.actions:
            admitted = enqueue(session, wanted)
            on_step(ACTION, "enqueue")
        else:
            admitted = let_in_unasked(session)
        held = holds_now(state, session, self._emptied)
        kept = (hold for hold in keeping(state) if hold.job in session.jobs)
        return Opening(
            session,
            wanted,
            admitted,
            self._admissions(admitted),
            recorded(held),
            (*held, *kept),
        )

    def _follow(self) -> World:
        """The world of the last session, which ends, brought up to date; or a new one."""
        if self._policy is not self.state.policy:
            self._policy, self._tiers = self.state.policy, tiers_of(self.state.policy)
        self._close()
        views = self.views
        changes = views.follow()
        cluster, queues = views.cluster(), views.queues()
        made_from = self._tiers, cluster.cards, cluster.share_resources, queues
        world = self._world
        if world is None or changes is None or made_from != self._made_from:
            view = View(cluster=cluster, queues=queues, now_ms=views.now_ms)
            world = self._world = World(view, world, views.jobs.values())
            self._made_from = made_from
        else:
            world.follow(changes, cluster, views.now_ms)
        return world

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()

    def run(
        self,
        batch: Sequence[str],
        ranker: Ranker,
        most: int = BATCH_MAX,
        on_step: OnStep = untimed,
    ) -> Outcome:
        """Decide the batch: by groups while there are queues, otherwise pod by pod, until `most`
        pods are placed. Each placement builds on those before it. `on_step` is called after each
        step.
        """
        state = self.state
        if not state.is_batched:
            return run_cycle(state, batch, ranker)
        return self._round(self.open(batch, on_step), batch, ranker, most, on_step)

    def _round(
        self,
        opening: Opening,
        batch: Sequence[str],
        ranker: Ranker,
        most: int,
        on_step: OnStep,
    ) -> Outcome:
        state = self.state
        session, actions = opening.session, state.policy.actions
        ranker.begin()
        try:
            places = Places(state, ranker, session.statement)
            made = OutcomeBuilder(state, session, places)
            let_in_or_refused = (said.group for said in opening.admissions)
            made.take_refused(opening.admitted, opening.wanted.union(let_in_or_refused))
            for key in sorted(opening.wanted):
                self._take_orphan(made, session, key, batch)
            self._place(opening, places, made, most, on_step)
            victims = Victims()
            if self.may_evict:
                in_force = holds_in_force(session, opening.holds)
                hunt = Hunt(
                    state,
                    session,
                    places,
                    in_force,
                    opening.wanted,
                    self._candidates,
                    self._checkpoint,
                )
                victims = hunt.run(actions, on_step)
            held = opening.held if opening.held != state.holds else None
            outcome = made.outcome(opening.admissions, held)
        finally:
            session.close()
            ranker.end()
        return msgspec.structs.replace(
            outcome, evictions=victims.evictions, nominations=victims.nominations
        )

    def _place(
        self, opening: Opening, places: Places, made: OutcomeBuilder, most: int, on_step: OnStep
    ) -> None:
        session, actions = opening.session, self.state.policy.actions
        pending_too = "enqueue" not in actions
        for turn in allocate(
            session, places, holds=opening.holds, wanted=opening.wanted, pending_too=pending_too
        ):
            made.take(turn)
            self._checkpoint()
            if len(places.placements) >= most:
                break
        on_step(ACTION, "allocate")
        if "backfill" in actions:
            for turn in backfill(
                session, places, holds=opening.holds, wanted=opening.wanted, pending_too=pending_too
            ):
                made.take(turn)
                self._checkpoint()
            on_step(ACTION, "backfill")

    def _take_orphan(
        self, made: OutcomeBuilder, session: Session, key: str, batch: Sequence[str]
    ) -> None:
        """Record a group outside the order: its queue or its PodGroup does not exist."""
        state = self.state
        view = session.unplaced.get(key)
        group = state.groups.get(key)
        if group is not None and group.fact is None:  # whatever queue its placed pods count in
            for uid in batch:
                if uid in group.members and uid in state.pending:
                    made.take_without_group(uid)
        elif view is not None:
            is_let_in = view.phase not in WAITING or "enqueue" not in state.policy.actions
            if is_let_in and waiting_in(view):
                made.take_unplaced(view)

    def _admissions(self, found: Enqueued) -> tuple[Admission, ...]:
        """The new admissions, and new reasons for groups that are not admitted."""
        groups = self.state.groups
        let_in = [Admission(uid) for uid in found.let_in if uid in groups]
        return (
            *let_in,
            *(
                Admission(uid, no.code, no.message, recordable(no.short, self.state.devices))
                for uid, no in found.refused
                if uid in groups and not _is_recorded(groups[uid].gate, no)
            ),
        )


def _is_recorded(gate: Admission | None, no: No) -> bool:
    """Whether this is the last recorded answer about a group's admission."""
    return gate is not None and (gate.code, gate.message) == (no.code, no.message)


def tiers_of(policy: Policy) -> list[list[Configured]]:
    """The order and quota plugins of a policy, by tier; other plugins have no part here."""
    return [[configure(use) for use in tier if use.name in PLUGINS] for tier in policy.tiers]


def _job_of(state: ClusterState, uid: str) -> str:
    pod = state.pods.get(uid)
    return pod.fact.group if pod is not None and pod.fact.group else SINGLE + uid
