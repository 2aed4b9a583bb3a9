"""Why a pod waits: the one answer that lists, Events, explanations, pages and the doctor give.

A decision counts nodes by the first check that each fails; the count alone cannot say which of them
came nearest. So the nodes are asked again on the state of the reader, with every obstacle of theirs
(`obstacles`), and the nearest ones name the cause. The answers of queues and gangs come from the
log unchanged.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from allotment.core import reasons
from allotment.core.explain.causes.lacks import lacks
from allotment.core.explain.causes.nodes import codes
from allotment.core.explain.causes.obstacles import FITS, Emptied, present
from allotment.core.explain.rows.pod_views import asks_text, group_cause, pod_status
from allotment.core.explain.rows.schema import Lack
from allotment.core.ledger.model import ClusterState, Pod
from allotment.core.placement.rules.interpod import situated
from allotment.core.placement.unserved import nearest, unserved
from allotment.core.queues.round.guaranteed import Guaranteed, guaranteed, kept_from
from allotment.core.queues.round.verdict import PodVerdict, ShutOut, Verdicts
from allotment_proto.events import PodObserved, QuotaShort
from allotment_proto.facts import PodRequest, Problem

_ASKED_MOST = 50_000
"""How many nodes are asked for all requests together, before further requests get the counted
cause: about a second.
"""
ASKED_OFTEN = 5_000
"""The same for callers that ask again at each record, or at each scrape."""


_BARRED = frozenset((reasons.Cure.QUEUE, reasons.Cure.GROUP, reasons.Cure.TEXT))
"""What ends rejections that no node would change."""


class Why(NamedTuple):
    """The main cause: a reason code, and one sentence without a full stop that names the obstacle.

    Both are empty for a pod that waits for nothing.
    """

    code: str
    text: str


class NodesSay(NamedTuple):
    """What the nodes answer to one request."""

    answers: Sequence[str]
    """The first obstacle of each present node in their order, or `FITS`."""
    lacks: tuple[Lack, ...]
    """What is in the way in words, the nearest nodes first; nothing if a node takes the request."""
    ever: bool | None
    """Whether a node would take it if no pod ran in the cluster; None without nodes."""


class Whys:
    """Answers for many pods of one state, which stays as it is: equal requests are asked once."""

    def __init__(
        self,
        state: ClusterState,
        asked_most: int = _ASKED_MOST,
        verdicts: Verdicts | None = None,
    ) -> None:
        """`verdicts` of this state, if the caller makes them with rounds that it keeps."""
        self._state = state
        self._asked_most = asked_most
        self._verdicts = verdicts or Verdicts(state)
        self._shut = ShutOut(state)
        self._empty = Emptied(state)
        self._said: dict[PodRequest, NodesSay] = {}
        self._asked: dict[object, PodRequest] = {}
        self._nodes_asked = 0
        self._guaranteed: list[Guaranteed] | None = None
        self._has_nodes = any(node.fact is not None for node in state.nodes.values())

    def ruled(self, fact: PodObserved) -> PodVerdict:
        """What a round that began now would ask for a pod."""
        return self._verdicts.of(fact)

    def asked(self, fact: PodObserved) -> PodRequest:
        """The request of a pod as its round would put it to nodes."""
        return situated(self.ruled(fact).tries[-1], self._state)

    def nodes(self, request: PodRequest) -> NodesSay:
        """What the nodes answer to a request."""
        if request not in self._said:
            answers = codes(self._state, request)
            self._nodes_asked += len(answers)
            self._said[request] = NodesSay(
                answers, lacks(self._state, request, answers), self._empty.takes(request)
            )
        return self._said[request]

    def of(self, pod: Pod) -> Why:
        """Why a pod waits. The pod may be one that does not."""
        status, code = pod_status(self._state, pod)
        if status != "Pending" or pod.allocation is not None:
            return Why(code, _text(code) if code else "")
        fact, refusal = pod.fact, pod.refusal
        if fact.problem is not None:
            return Why(code, _without_code(fact.problem))
        if code == reasons.NOT_OURS:
            return Why(code, self._not_ours(fact))
        if fact.gated:
            return Why(code, _text(code))
        known = reasons.REASONS.get(code)
        if not self._has_nodes and (known is None or known.cured_by not in _BARRED):
            return Why(reasons.NO_NODES, _text(reasons.NO_NODES))
        if refusal is None and code == reasons.QUEUED:
            return Why(code, _text(code))
        if refusal is not None and refusal.problem is None:
            return self._of_nodes(fact, code)
        said = self._of_queue(pod, code)
        if code in reasons.OF_CLUSTER:
            found = self.nodes_of(fact)
            if found is not None and found.ever is False:
                return self._of_nodes(fact, code)
        return said

    def _of_queue(self, pod: Pod, code: str) -> Why:
        """What a queue or the pod's group answered."""
        refusal, shut = pod.refusal, self._shut.why(pod.fact)
        if shut is not None and shut.code == code:
            return Why(code, shut.message)
        problem = None if refusal is None else refusal.problem
        said = "" if refusal is None else self._quota_text(refusal.quota)
        said = said or self._minimum(pod, code)
        if said:
            return Why(code, said)
        sibling = self._sibling(pod, code) if problem is None or _is_general(problem) else None
        if sibling is not None:
            why = self.of(sibling)
            return Why(why.code, f"waits like {sibling.fact.name}: {why.text}")
        if problem is not None:
            said = _without_code(problem)
            asks = asks_text(pod.fact.request.devices, pod.fact.request.extended)
            if code == reasons.NOT_ENOUGH_RESOURCES and asks:
                said += f"; this one asks {asks}"
            return Why(code, said)
        _, message = group_cause(self._state, pod)
        return Why(code, message or _text(code))

    def _quota_text(self, short: Sequence[QuotaShort]) -> str:
        """The limits that reject a pod, each with its use, and with the guarantees of others where
        these are the limit; empty if none rejects it.
        """
        amounts = "; ".join(reasons.quota_text(each, names_queue=False) for each in short)
        queue = next((each.queue for each in short), "")
        if queue:
            if self._guaranteed is None:
                self._guaranteed = guaranteed(self._state)
            texts = (kept_from(self._state, self._guaranteed, each) for each in short)
            kept = dict.fromkeys(text for text in texts if text)
            return "; ".join([f"queue {queue} is at its limit: {amounts}", *kept])
        return (
            f"not enough room in the cluster: {amounts}; no queue quota applies" if amounts else ""
        )

    def _minimum(self, pod: Pod, code: str) -> str:
        """How many pods the group needs. It leaves out how many exist or fit, because the text must
        not change with these numbers.
        """
        group = self._state.groups.get(pod.fact.group)
        if group is None or group.fact is None:
            return ""
        key, fact = pod.fact.group, group.fact
        if code == reasons.NOT_ENOUGH_TASKS:
            return f"PodGroup {key} needs {fact.min_member} pods to start (minMember) and has fewer"
        problem = None if pod.refusal is None else pod.refusal.problem
        if code == reasons.NOT_ENOUGH_RESOURCES and problem and _is_general(problem):
            return (
                f"PodGroup {key} needs {fact.min_member} pods to start together (minMember), and "
                "they do not all fit now"
            )
        if code != reasons.NOT_ENOUGH_PODS_OF_TASK:
            return ""
        there = Counter(self._state.pods[uid].fact.role for uid in group.members)
        short = [
            f"{least} pods of role {role}"
            for role, least in fact.min_task_member
            if there[role] < least
        ]
        needs = " and ".join(short)
        return (
            f"PodGroup {key} needs {needs} to start (minTaskMember) and has fewer" if short else ""
        )

    def _sibling(self, pod: Pod, code: str) -> Pod | None:
        """The pod of the same group that was refused for all of them: by the nodes, or for what the
        whole group waits for, in words that say more than the code."""
        group = self._state.groups.get(pod.fact.group)
        if group is None:
            return None
        by_nodes = code in (reasons.SAME_ROLE_FAILED, reasons.GANG_INCOMPLETE)
        is_role = code == reasons.SAME_ROLE_FAILED

        def speaks(other: Pod) -> bool:
            if other.refusal is None:
                return False
            problem = other.refusal.problem
            if by_nodes or problem is None:
                same = not is_role or other.fact.role == pod.fact.role
                return by_nodes and problem is None and same
            return problem.code == code and not _is_general(problem)

        found = (self._state.pods[uid] for uid in group.members if uid in self._state.pending)
        return min(filter(speaks, found), key=lambda other: other.fact.name, default=None)

    def _of_nodes(self, fact: PodObserved, counted: str) -> Why:
        """What the nearest nodes lack; `counted` is what the decision made of its counts."""
        found = self.nodes_of(fact)
        if found is None:
            return Why(counted, _text(counted))
        absent = unserved(self._state, fact.request)
        if absent:
            code = found.lacks[0].code if found.lacks else counted
            return Why(code, absent[0])
        if found.lacks:
            return Why(found.lacks[0].code, found.lacks[0].text)
        number = sum(answer == FITS for answer in found.answers)
        fits = "1 node fits" if number == 1 else f"{number} nodes fit"
        return Why(counted, f"{fits} now; the scheduler retries the pod")

    def nodes_of(self, fact: PodObserved) -> NodesSay | None:
        """What the nodes answer to a pod; None once other requests have used up the limit of nodes
        asked.
        """
        key = (
            *(fact.request, fact.group, fact.queue, fact.namespace, fact.local_claims),
            *(fact.labels if self._state.keep_away else (), fact.owner),
        )
        if key not in self._asked:
            if self._nodes_asked > self._asked_most:
                return None
            self._asked[key] = self.asked(fact)
        return self.nodes(self._asked[key])

    def unhelped(self, fact: PodObserved) -> int:
        """How many nodes would reject a pod whichever pods were evicted for it; 0 once too many
        were asked.
        """
        found = self.nodes_of(fact)
        if found is None:
            return 0
        asked = self.asked(fact)
        return sum(
            answer not in (FITS, *reasons.CURED_BY_ROOM)
            or (answer != FITS and self._empty.refuses(node, asked) is not None)
            for node, answer in zip(present(self._state), found.answers, strict=True)
        )

    def is_never(self, pod: Pod, *, or_invalid: bool = False) -> bool:
        """Whether no node would take a pod even if no other ran. With `or_invalid` a request that
        cannot be read counts too.
        """
        problem = pod.fact.problem
        if problem is not None:
            known = reasons.REASONS.get(problem.code)
            return or_invalid and known is not None and known.cured_by == reasons.Cure.TEXT
        found = self.nodes_of(pod.fact)
        return found is not None and found.ever is False

    def _not_ours(self, fact: PodObserved) -> str:
        ours = self._state.policy.scheduler_names
        near = nearest(fact.scheduler, set(ours))
        said = f"its schedulerName is {fact.scheduler}; {reasons.answers_to(ours)}"
        return said + (f"; did you mean {near}?" if near else "")


def _is_general(problem: Problem) -> bool:
    """Whether it adds nothing to its code: the text for members that were not tried."""
    return problem.message.startswith(_text(problem.code))


def _without_code(problem: Problem) -> str:
    return reasons.problem_text(problem).removeprefix(f"{problem.code}: ")


def _text(code: str) -> str:
    reason = reasons.REASONS.get(code)
    return code if reason is None else reason.text
