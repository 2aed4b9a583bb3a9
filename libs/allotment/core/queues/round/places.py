"""Places for tasks, found by the board, for `queues.actions.allocate`.

What a queue may use, the cards for which there is quota, and what is reserved for others become
bounds of the pod's request (`core.placement.rules.bounds`).
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.cycle import place
from allotment.core.placement.evaluator import Ranker
from allotment.core.placement.least_busy import careful
from allotment.core.placement.rules.attachments import merged
from allotment.core.placement.rules.bounds import OPEN, Bounds, bounded
from allotment.core.placement.rules.interpod import situated
from allotment.core.queues.actions.allocate import Hopeless, Placed
from allotment.core.queues.answers import No
from allotment.core.queues.limits import Limits
from allotment.core.queues.model import Task
from allotment.core.queues.round.bounding import Bounding
from allotment.core.queues.round.kept import KeptRoom
from allotment.core.queues.statement import Statement
from allotment.core.reasons import NOT_ENOUGH_RESOURCES, main_cause, refusal_text
from allotment_proto.events import Placement, PodObserved, Refusal
from allotment_proto.facts import PodRequest


class Places:
    """Asks a ranker, between its `begin` and `end`, and remembers its answers."""

    def __init__(self, state: ClusterState, ranker: Ranker, statement: Statement) -> None:
        self.placements: dict[str, Placement] = {}
        """By uid: what is assumed now."""
        self.refusals: dict[str, Refusal] = {}
        """By uid: the last rejection of a pod that found no place."""
        self._state = state
        self._ranker = ranker
        self._statement = statement
        self._bounding = Bounding(state, self.placements)
        self._kept = KeptRoom(state)
        self._most: dict[tuple[PodRequest, int], int] = {}
        self._refused: dict[tuple[PodRequest, str], Refusal] = {}
        """Rejections of requests since anything was assumed or given back, because waiting groups
        are often alike. By namespace where nodes are held back for some.
        """

    @property
    def made(self) -> list[Placement]:
        """The placements of this round in order."""
        return list(self.placements.values())

    def hopeless(self, tasks: Sequence[Task], needed: int, limits: Limits) -> Hopeless | None:
        """By an upper bound for each request, counted on the nodes as they are now."""
        bounds = self._bounding.bounds(limits)
        pods = [self._within(self._state.pods[task.uid].fact, bounds) for task in tasks]
        asked = {pod.uid: merged(pod.request, self._state) for pod in pods}
        wanted = Counter(asked[pod.uid] for pod in pods if pod.problem is None)
        most = {
            request: min(self._holds_at_most(request, count), count)
            for request, count in wanted.items()
        }
        together = sum(most.values())
        if together >= needed:
            return None
        short = next(
            pod
            for pod in pods
            if pod.problem is not None or most[asked[pod.uid]] < wanted[asked[pod.uid]]
        )
        answer = self._look(short, limits)
        if isinstance(answer, Placement):
            message = f"of {needed} pods that must start together at most {together} fit now"
            return Hopeless(together, No(NOT_ENOUGH_RESOURCES, message))
        return Hopeless(together, self._no(answer))

    def try_place(self, task: Task, limits: Limits) -> Placed | No:
        refusals: list[Refusal] = []
        for cards in limits.choices:
            answer = self._look(self._pod(task.uid, limits, cards), limits)
            if isinstance(answer, Placement):
                self._assume(answer)
                return Placed(answer.node, self._bounding.card_at(answer.node, cards))
            refusals.append(answer)
        return self._no(refusals[-1])

    def find(self, task: Task, limits: Limits) -> Placement | None:
        """A place for the task, which is then assumed; None without one."""
        for cards in limits.choices:
            answer = self._look(self._pod(task.uid, limits, cards), limits)
            if isinstance(answer, Placement):
                self._assume(answer)
                return answer
        return None

    def requests(self, task: Task, limits: Limits) -> list[PodRequest]:
        """The task's requests: one for each choice of cards that it may use."""
        pods = [self._pod(task.uid, limits, cards) for cards in limits.choices]
        return [situated(pod, self._state) for pod in pods]

    def _holds_at_most(self, request: PodRequest, count: int) -> int:
        most = self._most.get((request, count))
        if most is None:
            most = self._most[request, count] = self._ranker.holds_at_most(request, count)
        return most

    def _look(self, pod: PodObserved, limits: Limits) -> Placement | Refusal:
        """A place for the pod that leaves preemptors their reservations; or its rejection."""
        kept = limits.kept
        if not kept:
            return self._place(pod)
        asked = self._kept.within(pod, kept, limits.node)
        answer = self._place(asked)
        while isinstance(answer, Placement) and not self._kept.takes(answer, kept):
            asked = self._kept.without(asked, answer)
            answer = self._place(asked)
        return answer

    def _place(self, pod: PodObserved) -> Placement | Refusal:
        """A place for the pod; or its rejection, reused if an identical request was rejected
        before.
        """
        request = pod.request
        is_usual = pod.problem is None and not pod.local_claims
        if not is_usual or careful(pod, self._state) is not request:
            return place(pod, self._ranker)
        key = request, self._state.scope_of(pod)
        known = self._refused.get(key)
        if known is not None:
            return msgspec.structs.replace(
                known, uid=pod.uid, namespace=pod.namespace, name=pod.name
            )
        answer = place(pod, self._ranker)
        if isinstance(answer, Refusal):
            self._refused[key] = answer
        return answer

    def _forget(self) -> None:
        self._most.clear()
        self._refused.clear()

    def _assume(self, placement: Placement) -> None:
        self._forget()
        self._ranker.assume(placement)
        self.placements[placement.uid] = placement
        self._kept.add(placement)
        self._statement.did(partial(self._take_back, placement))

    def _take_back(self, placement: Placement) -> None:
        self._forget()
        self._kept.take_back(placement)
        del self.placements[placement.uid]
        self._ranker.take_back()

    def _no(self, refusal: Refusal) -> No:
        self.refusals[refusal.uid] = refusal
        problem = refusal.problem
        if problem is not None:
            return No(problem.code, f"{problem.place} {problem.message}")
        code = main_cause(refusal.reasons)
        return No(code, refusal_text(refusal))

    def _pod(self, uid: str, limits: Limits, cards: tuple[str, ...]) -> PodObserved:
        pod = self._state.pods[uid].fact
        return self._within(pod, self._bounding.bounds(limits, cards))

    def _within(self, pod: PodObserved, bounds: Bounds) -> PodObserved:
        if bounds == OPEN:
            return pod
        return msgspec.structs.replace(pod, request=bounded(pod.request, bounds))
