"""Reservations for groups that others overtook too often, read from the state and recorded in it.

The rule is in `queues.reservations`; this module applies it to nodes emptied of what runs there. A
group that could not start even with room gets no hold: one that is not admitted, has too few pods,
or whose queue accepts nothing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from allotment.core.ledger.model import ClusterState, Group, Node
from allotment.core.ledger.state import allocation_of
from allotment.core.placement.devices import cards_asked
from allotment.core.placement.evaluator import node_holds_at_most
from allotment.core.placement.rules.attachments import merged
from allotment.core.placement.rules.bounds import bounded
from allotment.core.placement.rules.predicates import fits
from allotment.core.queues.limits import Limits
from allotment.core.queues.model import WAITING
from allotment.core.queues.reservations import Candidate, Hold, Rule, Wait, renew
from allotment.core.queues.round.books import placement_of
from allotment.core.queues.round.bounding import Bounding
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from allotment.core.reasons import QUOTA_CODES
from allotment_proto.events import Held, NodeObserved
from allotment_proto.facts import ALONE, PodRequest, Policy

_RULE = Rule()
_REQUESTS_MAX = 64


def holds_now(
    state: ClusterState, session: Session, emptied: "Emptied | None" = None
) -> tuple[Hold, ...]:
    """The holds of a round that begins on this state."""
    nodes = emptied or Emptied(state)
    waits = {
        key: Wait(group.short_since, group.passed, group.short.queue)
        for key, group in _passed_by(state)
        if group.short is not None
        and key in session.jobs
        and not nodes.is_known_too_small(session, session.jobs[key], group)
    }
    if not waits:
        return ()
    before = [Hold(held.group, held.since, held.nodes, held.queue) for held in state.holds]
    return renew(
        session,
        before,
        waits,
        _RULE,
        partial(nodes.candidates, session),
        partial(nodes.fits, session),
        lambda job: (
            _pieces(state, session, job) >= _RULE.pieces_least and _could_start(state, session, job)
        ),
    )


def _passed_by(state: ClusterState) -> Iterator[tuple[str, Group]]:
    """The groups that have waited long enough for a hold."""
    for key in state.short:
        group = state.groups[key]
        if group.passed >= _RULE.patience:
            yield key, group


def recorded(holds: Sequence[Hold]) -> tuple[Held, ...]:
    """The holds as the log records them."""
    return tuple(Held(hold.job, hold.since, hold.nodes, hold.queue) for hold in holds)


def _could_start(state: ClusterState, session: Session, job: Job) -> bool:
    """Whether a job lacks nothing but room or quota."""
    is_let_in = job.phase not in WAITING or "enqueue" not in state.policy.actions
    if not is_let_in or session.job_valid(job) is not None:
        return False
    due = session.due_tasks(job)
    if len(due) < _needed(job):
        return False
    refused = session.allocatable(job, due[0])
    return refused is None or refused.code in QUOTA_CODES


def _pieces(state: ClusterState, session: Session, job: Job) -> int:
    """What a job needs at once: its pods, each as often as it asks for cards."""
    pods = (state.pods[task.uid].fact for task in session.due_tasks(job)[: _needed(job)])
    return sum(max(cards_asked(pod.request), 1) for pod in pods)


def _needed(job: Job) -> int:
    return max(job.view.min_member - job.ready_count - job.best_effort_pending, 1)


class _Room(NamedTuple):
    """How many pods of one request the empty node would hold at most."""

    fact: NodeObserved
    pods: int


class _Rooms(NamedTuple):
    """The rooms for one request, with nodes as observed up to a sequence."""

    nodes_seq: int
    by_node: dict[str, _Room]
    pods: int
    """On all nodes together."""


class Emptied:
    """The nodes of a state without the pods on them. Results for a node are kept until it
    changes.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._bounding = Bounding(state)
        self._policy: Policy | None = None
        self._nodes: dict[str, Node] = {}
        self._rooms: dict[PodRequest, _Rooms] = {}
        self._too_small: dict[str, tuple[object, ...]] = {}
        """Groups that all nodes together could not hold, each with the group, nodes, policy and
        queue limits for which that was found.
        """
        self._asked: object = None
        self._answer = False

    def is_known_too_small(self, session: Session, job: Job, group: Group) -> bool:
        """Whether an earlier search, under the same conditions, found no nodes for a group."""
        known = self._too_small.get(job.uid)
        return known is not None and known == self._as_is(session, job, group)

    def candidates(self, session: Session, job: Job) -> list[Candidate]:
        """The nodes that could hold members; empty if all together are not enough."""
        names: set[str] = set()
        for request, count in Counter(self._requests(session, job)).items():
            rooms = self._rooms_for(request)
            if request.company == ALONE and rooms.pods < count:
                self._note_too_small(session, job)
                return []
            names.update(name for name, room in rooms.by_node.items() if room.pods)
        nodes = self._state.nodes
        return [Candidate(name, len(nodes[name].allocations)) for name in names]

    def fits(self, session: Session, job: Job, names: Sequence[str]) -> bool:
        """Whether the group's minimum fits on these nodes, one member after the other."""
        there = [name for name in names if self._is_there(name)]
        requests = tuple(self._requests(session, job))
        facts = tuple(self._state.nodes[name].fact for name in there)
        asked = self._state.policy, requests, facts
        if asked != self._asked:  # every round asks this again for each hold
            self._asked, self._answer = asked, self._fit_together(there, requests)
        return self._answer

    def _fit_together(self, there: Sequence[str], requests: Sequence[PodRequest]) -> bool:
        forks: dict[str, Node] = {}
        starts: Counter[PodRequest] = Counter()
        for number, request in enumerate(requests):
            for at in range(starts[request], len(there)):
                if there[at] not in forks:
                    forks[there[at]] = self._node(there[at]).fork()
                if self._put(forks[there[at]], request, str(number)):
                    # a node without room for a request gets none; rules about others may change
                    starts[request] = at if request.company == ALONE else 0
                    break
            else:
                return False
        return True

    def _requests(self, session: Session, job: Job) -> list[PodRequest]:
        tasks = session.due_tasks(job)[: _needed(job)]
        bounds = self._bounding.bounds(Limits(rules=session.node_rules(job)))
        facts = [self._state.pods[task.uid].fact for task in tasks]
        return [bounded(merged(fact.request, self._state), bounds) for fact in facts]

    def _note_too_small(self, session: Session, job: Job) -> None:
        key, groups = job.uid, self._state.groups
        if len(self._too_small) > 2 * len(groups) + _REQUESTS_MAX:
            self._too_small = {k: v for k, v in self._too_small.items() if k in groups}
        if key in groups:
            self._too_small[key] = self._as_is(session, job, groups[key])

    def _as_is(self, session: Session, job: Job, group: Group) -> tuple[object, ...]:
        state = self._state
        rules = session.node_rules(job)
        return group.changed_seq, state.nodes_seq, state.policy_seq, rules

    def _rooms_for(self, request: PodRequest) -> "_Rooms":
        policy = self._state.policy
        if self._policy is not policy:
            self._policy = policy
            self._rooms.clear()
        nodes_seq = self._state.nodes_seq
        known = self._rooms.pop(request, _Rooms(-1, {}, 0))
        if known.nodes_seq == nodes_seq:
            self._rooms[request] = known
            return known
        if len(self._rooms) >= _REQUESTS_MAX:
            del self._rooms[next(iter(self._rooms))]
        found: dict[str, _Room] = {}
        for name, node in self._state.nodes.items():
            if node.fact is None:
                continue
            room = known.by_node.get(name)
            if room is None or room.fact is not node.fact:
                empty = self._node(name)
                takes = not isinstance(fits(empty, request, policy), str)
                most = node_holds_at_most(empty, request, policy) if takes else 0
                room = _Room(node.fact, most)
            found[name] = room
        pods = sum(room.pods for room in found.values())
        self._rooms[request] = _Rooms(nodes_seq, found, pods)
        return self._rooms[request]

    def _is_there(self, name: str) -> bool:
        node = self._state.nodes.get(name)
        return node is not None and node.fact is not None

    def _node(self, name: str) -> Node:
        fact = self._state.nodes[name].fact
        node = self._nodes.get(name)
        if node is None or node.fact is not fact:
            if len(self._nodes) > 2 * len(self._state.nodes) + _REQUESTS_MAX:
                self._nodes.clear()  # drop nodes that are gone
            node = self._nodes[name] = Node(name, 0)
            node.rebuild(fact)
        return node

    def _put(self, node: Node, request: PodRequest, uid: str) -> bool:
        found = fits(node, request, self._state.policy)
        if isinstance(found, str):
            return False
        node.charge(allocation_of(placement_of(uid, node.name, request, found), 0))
        return True
