"""Places for tasks, asked of the board: what `queues.allocate` drives.

What is held for others, and the cards for which there is quota, become requirements on nodes, so
they are heeded by the same rules as a pod's own; they are not part of the pod and not asked again
when the decision is checked.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from allotment.core.attachments import merged
from allotment.core.company import situated
from allotment.core.cycle import careful, place, refuse
from allotment.core.gang import WholeRanker
from allotment.core.model import ClusterState
from allotment.core.pod_views import main_cause
from allotment.core.queues.allocate import Hopeless, Limits, Placed
from allotment.core.queues.answers import HELD_FOR_GANG, NOT_ENOUGH_RESOURCES, No
from allotment.core.queues.model import Task
from allotment.core.texts import refusal_text
from allotment_proto.events import Placement, PodObserved, Refusal
from allotment_proto.facts import Constraints, Expression, NodeTerm, PodRequest

PRODUCT = ".product"
"""How labels end that name a node's card: ``nvidia.com/gpu.product``."""
_NOT_THERE = No(
    HELD_FOR_GANG,
    "the best place is held for others or has a card without quota, and predicate."
    "NodeAffinityEnable is off, so that no other place can be asked for",
)


class Places:
    """Asks a ranker, between its `begin` and `end`, and remembers what it said."""

    def __init__(self, state: ClusterState, ranker: WholeRanker) -> None:
        self.placements: dict[str, Placement] = {}
        """By uid: what is assumed now."""
        self.refusals: dict[str, Refusal] = {}
        """By uid: what was last said to a pod that found no place."""
        self._state = state
        self._ranker = ranker
        self._order: list[str] = []
        self._products: tuple[str, ...] | None = None
        self._most: dict[tuple[PodRequest, int], int] = {}
        self._refused: dict[PodRequest, Refusal] = {}
        """What was said of requests since anything was assumed or given back: groups that wait in
        vain are often alike."""

    def mark(self) -> int:
        return len(self._order)

    def undo(self, mark: int) -> None:
        if mark < len(self._order):
            self._forget()
        self._ranker.undo(mark)
        for uid in self._order[mark:]:
            del self.placements[uid]
        del self._order[mark:]

    def hopeless(self, tasks: Sequence[Task], needed: int) -> Hopeless | None:
        """By an upper bound for each request, counted on the nodes as they are now."""
        pods = [self._state.pods[task.uid].fact for task in tasks]
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
        answer = self._place(short)
        if isinstance(answer, Placement):
            message = f"of {needed} pods that must start together at most {together} fit now"
            return Hopeless(together, No(NOT_ENOUGH_RESOURCES, message))
        return Hopeless(together, self._no(answer))

    def try_place(self, task: Task, limits: Limits) -> Placed | No:
        pod = self._state.pods[task.uid].fact
        refusals: list[Refusal] = []
        for card in limits.cards or ("",):
            answer = place(self._limited(pod, limits, card), self._ranker)
            if isinstance(answer, Placement):
                if not self._is_within(answer.node, limits, card):
                    return _NOT_THERE
                self._assume(answer)
                return Placed(answer.node, card)
            refusals.append(answer)
        return self._no(refusals[-1])

    def find(self, task: Task, limits: Limits) -> Placement | None:
        """The same without a word about why not."""
        pod = self._state.pods[task.uid].fact
        for card in limits.cards or ("",):
            answer = place(self._limited(pod, limits, card), self._ranker)
            if isinstance(answer, Placement) and self._is_within(answer.node, limits, card):
                self._assume(answer)
                return answer
        return None

    def requests(self, task: Task, limits: Limits) -> list[PodRequest]:
        """What is asked for the task: one request for each card that it may have."""
        pod = self._state.pods[task.uid].fact
        limited = [self._limited(pod, limits, card) for card in limits.cards or ("",)]
        return [situated(pod, self._state) for pod in limited]

    def _holds_at_most(self, request: PodRequest, count: int) -> int:
        most = self._most.get((request, count))
        if most is None:
            most = self._most[request, count] = self._ranker.holds_at_most(request, count)
        return most

    def _place(self, pod: PodObserved) -> Placement | Refusal:
        """A place for the pod; or its refusal, if the very same was refused to another before."""
        request = pod.request
        if pod.problem is not None or careful(pod, self._state) is not request:
            return place(pod, self._ranker)
        known = self._refused.get(request)
        if known is not None:
            return refuse(pod, known.nodes, known.reasons)
        answer = place(pod, self._ranker)
        if isinstance(answer, Refusal):
            self._refused[request] = answer
        return answer

    def _forget(self) -> None:
        self._most.clear()
        self._refused.clear()

    def _assume(self, placement: Placement) -> None:
        self._forget()
        self._ranker.assume(placement)
        self._order.append(placement.uid)
        self.placements[placement.uid] = placement

    def _is_within(self, name: str, limits: Limits, card: str) -> bool:
        """Whether a node is one of those asked for: policies may turn node affinity off."""
        if name in limits.nodes_held or (limits.node and name != limits.node):
            return False
        labels, product = self._state.nodes[name].labels, card.partition("/")[0]
        return not card or any(labels.get(x) == product for x in self._product_labels())

    def _no(self, refusal: Refusal) -> No:
        self.refusals[refusal.uid] = refusal
        if refusal.problem is not None:
            return No(refusal.problem.code, refusal.problem.message)
        code = main_cause(refusal.reasons)
        return No(code, refusal_text(refusal))

    def _limited(self, pod: PodObserved, limits: Limits, card: str) -> PodObserved:
        if not limits.nodes_held and not limits.node and not card:
            return pod
        constraints = pod.request.constraints
        if limits.nodes_held:
            held = tuple(sorted(limits.nodes_held))
            not_there = Expression("metadata.name", "NotIn", held)
            constraints = _also(constraints, [NodeTerm((), (not_there,))])
        if limits.node:
            there = Expression("metadata.name", "In", (limits.node,))
            constraints = _also(constraints, [NodeTerm((), (there,))])
        if card:
            product = card.partition("/")[0]
            terms = [
                NodeTerm((Expression(label, "In", (product,)),)) for label in self._product_labels()
            ]
            constraints = _also(constraints, terms or [NodeTerm(())])
        request: PodRequest = msgspec.structs.replace(pod.request, constraints=constraints)
        return msgspec.structs.replace(pod, request=request)

    def _product_labels(self) -> tuple[str, ...]:
        if self._products is None:
            found = {
                label
                for node in self._state.nodes.values()
                for label in node.labels
                if label.endswith(PRODUCT)
            }
            self._products = tuple(sorted(found))
        return self._products


def _also(constraints: Constraints, terms: Iterable[NodeTerm]) -> Constraints:
    """Both the constraints and one of the terms."""
    own = constraints.affinity
    both = tuple(
        NodeTerm(a.labels + b.labels, a.fields + b.fields)
        for b in terms
        for a in own or (NodeTerm(()),)
        if not own or a.labels or a.fields
    )
    return msgspec.structs.replace(constraints, affinity=both or (NodeTerm(()),))
