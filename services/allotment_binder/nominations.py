"""Pods for whom others are evicted: they say which node they wait for, as far as that is certain.

The log names the victims of a group and their nodes, not which member is meant for which. So
members are nominated only when all victims are on one node and all members that wait are needed;
the others hear of their group. A Binding takes the nomination away (the API server does that), and
so does an eviction that is refused. A preemptor that was refused a victim is not nominated again
while it waits: a nomination that comes and goes would be news each time, and be decided about.
"""

from collections.abc import Sequence

from allotment.core.batch.views import SINGLE
from allotment.core.model import ClusterState
from allotment.core.queues.model import JobView, Task
from allotment.core.queues.texts import Attempt, pod_message
from allotment.core.queues.work import Job
from allotment_binder.notices import Notices, Refused
from allotment_proto.events import Decided, Evicted, Eviction, PodObserved


class Nominations:
    """Remembers whom this life nominated, by preemptor."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._nominated: dict[str, tuple[str, ...]] = {}
        self._refused: dict[str, str] = {}
        """Preemptors whose victims may stay → what their pods were told of it."""

    def landed(self, state: ClusterState, decided: Decided) -> None:
        """Nominate the pods for whom a decision evicts others."""
        nodes: dict[str, set[str]] = {}
        for eviction in decided.evictions:
            nodes.setdefault(eviction.preemptor, set()).add(eviction.node)
        for preemptor, found in nodes.items():
            uids = waiting_for(state, preemptor)
            if len(found) == 1 and uids and preemptor not in self._refused:
                (node,) = found
                self._nominated[preemptor] = tuple(uids)
                for uid in uids:
                    self._put(state.pods[uid].fact, promise(state.pods[uid].fact, node), node)
        self._nominated = {p: uids for p, uids in self._nominated.items() if _waits(state, uids)}
        self._refused = {p: text for p, text in self._refused.items() if waiting_for(state, p)}

    def ended(self, state: ClusterState, eviction: Eviction, ending: Evicted) -> None:
        """Take the nomination back if the eviction was refused."""
        if not ending.code:
            return
        preemptor = eviction.preemptor
        who = f"pod {eviction.namespace}/{eviction.name}"
        text = f"{ending.code}: {who} does not make room: {ending.message}"
        nominated = self._nominated.pop(preemptor, ())
        if self._refused.get(preemptor) == text:
            return
        self._refused[preemptor] = text
        for uid in waiting_for(state, preemptor):
            self._put(state.pods[uid].fact, text, "" if uid in nominated else None)

    def _put(self, fact: PodObserved, text: str, node: str | None) -> None:
        self._notices.put(
            Refused(fact.uid, fact.namespace, fact.name, text, is_news=True, nominated=node)
        )


def waiting_for(state: ClusterState, preemptor: str) -> Sequence[str]:
    """The pods of a preemptor that wait; empty when its minimum needs only some of them."""
    if preemptor.startswith(SINGLE):
        uid = preemptor.removeprefix(SINGLE)
        return [uid] if uid in state.pending else []
    group = state.groups.get(preemptor)
    if group is None or group.fact is None:
        return []
    waiting = [uid for uid in group.members if uid in state.pending]
    placed = sum(
        uid in state.pods and state.pods[uid].allocation is not None for uid in group.members
    )
    lacking = max(group.fact.min_member - placed, 1)
    return waiting if len(waiting) == lacking else []


def promise(fact: PodObserved, node: str) -> str:
    """What a pod is told that waits for room on a node."""
    task = Task(uid=fact.uid, namespace=fact.namespace, name=fact.name)
    said = pod_message(Job(JobView(uid=fact.group)), task, Attempt(promised={fact.uid: node}))
    assert said is not None, "it is not gated"
    return said.message


def _waits(state: ClusterState, uids: Sequence[str]) -> bool:
    return any(uid in state.pending for uid in uids)
