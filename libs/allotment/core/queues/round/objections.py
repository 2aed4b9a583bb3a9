"""Checks a proposal against a state: its quotas, groups and evictions.

`cycle.recheck_all` checks whether the placements fit. That alone would allow any client that can
send a proposal to place pods beyond their queue's quota, admit groups, hold nodes and evict. This
module checks the rest with the plugins of a round, opened on the same state.

No check searches for places, so every proposal can be checked. Victims cannot be checked without a
search, so a proposal that evicts is always rejected, as is one that a fact has overtaken. Nothing
is lost: the caller runs the round on its own state.
"""

from collections.abc import Iterator, Sequence

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.rules.bounds import OPEN, bounded, kept_back, outside
from allotment.core.queues.actions.allocate import sub_group_name
from allotment.core.queues.limits import Limits
from allotment.core.queues.model import WAITING, Status, Task
from allotment.core.queues.reservations import HoldsInForce, holds_in_force
from allotment.core.queues.round.bounding import Bounding
from allotment.core.queues.round.kept import KeptRoom
from allotment.core.queues.round.rounds import Opening, Rounds
from allotment.core.queues.work import Job
from allotment.core.reasons import REASONS
from allotment_proto.decided import RULES
from allotment_proto.events import Placement
from allotment_proto.messages import Proposal


def objection(rounds: Rounds, proposal: Proposal, kept: Sequence[Placement]) -> str:
    """Why a proposal is rejected on this state; empty if it is accepted. `kept` are its placements
    that still fit, in order.
    """
    state = rounds.state
    found = _misnamed(state, proposal)
    if found:
        return found
    if proposal.evictions or proposal.nominations:
        return "it evicts or nominates pods"
    if not state.is_batched:
        speaks = proposal.shorts or proposal.admissions or proposal.wholes
        is_of_groups = bool(speaks) or proposal.holds is not None
        return "it speaks of groups, and there are no queues" if is_of_groups else ""
    opening = rounds.open(proposal.batch)
    found = next(_of_groups(state, opening, proposal), "") or _of_places(
        state, opening, proposal, kept
    )
    opening.session.close()
    return found


def _misnamed(state: ClusterState, proposal: Proposal) -> str:
    """What makes a proposal invalid whatever it places."""
    if proposal.policy != state.policy_seq:
        return f"it was made under policy {proposal.policy}, the current one is {state.policy_seq}"
    if proposal.rules != RULES:
        return f"it was made by rules {proposal.rules}, this release decides by rules {RULES}"
    if len({refusal.uid for refusal in proposal.refusals}) < len(proposal.refusals):
        return "it refuses a pod twice"
    for refusal in proposal.refusals:
        pod = state.pods.get(refusal.uid)
        if pod is not None and (pod.fact.namespace, pod.fact.name) != (
            refusal.namespace,
            refusal.name,
        ):
            return f"it calls pod {pod.fact.namespace}/{pod.fact.name} by another name"
        codes = [code for code, _ in refusal.reasons]
        codes += [refusal.problem.code] if refusal.problem is not None else []
        unknown = next((code for code in codes if code not in REASONS), None)
        if unknown is not None:
            return f"it refuses a pod for {unknown[:80]!r}, which is no reason"
    return ""


def _of_groups(state: ClusterState, opening: Opening, proposal: Proposal) -> Iterator[str]:
    """What the proposal states about groups and the state contradicts."""
    if proposal.holds is not None and proposal.holds != opening.held:
        yield "it holds what is not to be held"
    due = {(admission.group, admission.code) for admission in opening.admissions}
    for admission in proposal.admissions:
        if (admission.group, admission.code) not in due:
            yield f"the gate of its queue says otherwise of group {admission.group}"
    for name, groups in (
        ("short", [short.group for short in proposal.shorts]),
        ("admitted or rejected", [admission.group for admission in proposal.admissions]),
    ):
        if len(set(groups)) < len(groups):
            yield f"it says more than once that a group is {name}"
    for short in proposal.shorts:
        group = state.groups.get(short.group)
        if group is None or state.pending.keys().isdisjoint(group.members):
            yield f"no pod of group {short.group} waits"


def _of_places(
    state: ClusterState, opening: Opening, proposal: Proposal, kept: Sequence[Placement]
) -> str:
    """Why some placement is invalid; each is checked on top of those before it. Empty if all are
    valid.
    """
    session = opening.session
    trial = _Places(state, opening)
    in_wholes = {uid for whole in proposal.wholes for uid in whole}
    placed: dict[str, Job] = {}
    for placement in kept:
        job = session.world.job_of.get(placement.uid)
        if job is None:
            return f"pod {placement.uid} is in no queue's turn"
        found = trial.take(job, job.tasks[placement.uid], placement, in_wholes)
        if found:
            return f"pod {placement.namespace}/{placement.name}: {found}"
        placed[placement.uid] = job
    for uid, job in placed.items():
        if not session.job_ready(job):
            return f"group {job.uid} is placed without its minimum"
        if session.missing_beside(job, job.tasks[uid]):
            return f"group {job.uid}: {sub_group_name(job.tasks[uid])} is not placed as a whole"
    return ""


class _Places:
    """Places that are assigned one after the other, as at the turns of a round."""

    def __init__(self, state: ClusterState, opening: Opening) -> None:
        self._state = state
        self._session = opening.session
        self._in_force: HoldsInForce = holds_in_force(opening.session, opening.holds)
        self._bounding = Bounding(state)
        self._kept = KeptRoom(state)
        self._job: Job | None = None
        self._limits = Limits()
        self._needs_let_in = "enqueue" in state.policy.actions

    def take(self, job: Job, task: Task, placement: Placement, in_wholes: set[str]) -> str:
        """Give a task its place, or return why it may not have it."""
        if job is not self._job:
            found = self._turn(job, task)
            if found:
                return found
            self._job, self._limits = job, self._in_force.limits(job)
        is_of_minimum = job.view.min_member > 1 and not self._session.job_ready(job)
        if is_of_minimum and task.uid not in in_wholes:
            return "is part of its group's minimum, which has to be placed as a whole"
        if self._session.missing_beside(job, task) and task.uid not in in_wholes:
            return "is part of a sub group, which has to be placed as a whole"
        limits = self._limits
        if not task.is_best_effort:
            no = self._in_force.allocatable(job, task)
            if no is not None:
                return no.message
            limits = self._in_force.limits_of(job, task, limits)
            limits = limits._replace(bucket=None)  # which node is best is not checked here
        node = placement.node
        if not self._kept.takes(placement, limits.kept):
            return f"node {node} has no room for it after what is reserved for others"
        for cards in limits.choices:
            if self._is_within(task.uid, node, limits, cards):
                card = self._bounding.card_at(node, cards)
                self._session.assume(job, task, Status.ALLOCATED, card)
                self._kept.add(placement)
                return ""
        return f"node {node} is not for it"

    def _turn(self, job: Job, task: Task) -> str:
        """Why it cannot be a job's turn."""
        session = self._session
        if job.phase in WAITING and self._needs_let_in:
            return "its group is not admitted"
        no = session.job_valid(job)
        if no is None and not task.is_best_effort:
            no = session.overused(job.queue) or self._in_force.closed(job)
        return "" if no is None else no.message

    def _is_within(self, uid: str, name: str, limits: Limits, cards: tuple[str, ...]) -> bool:
        """Whether the round's own bounds allow a pod on a node."""
        bounds = self._bounding.bounds(limits, cards)
        if bounds == OPEN:
            return True
        asked = bounded(self._state.pods[uid].fact.request, bounds)
        labels = self._state.nodes[name].labels
        return outside(asked, labels, name) is None and kept_back(asked, name) is None
