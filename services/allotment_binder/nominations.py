"""Pods for whom others are evicted: they say which node they wait for, as long as it is kept.

Which pod waits for which node is in the log. A Binding takes the nomination away (the API server
does that); it is taken back when an eviction is refused, or when the place was not to be had after
all. A preemptor that was refused a victim is not nominated again while it waits: a nomination that
comes and goes would be news each time, and be decided about.
"""

from allotment.core.ledger.model import ClusterState
from allotment.core.reasons import OTHER_VICTIM_STAYS, refusal_text
from allotment_binder.causes import Causes
from allotment_binder.gang_notices import waits_because
from allotment_binder.notices import Notices, Refused
from allotment_proto.events import Decided, Evicted, Eviction, PodObserved

Places = dict[str, str]
"""Nodes by uid of a pod that waits."""


class Nominations:
    """Remembers whom this life nominated, by preemptor."""

    def __init__(self, notices: Notices | Causes) -> None:
        self._notices = notices
        self._told: dict[str, Places] = {}
        self._refused: dict[str, str] = {}
        """Preemptors whose victims may stay → the notice on their pods."""

    def begin(self, state: ClusterState) -> None:
        """Make sure that pods' conditions match the log; Events were written when it was news."""
        self._told.clear()
        self._refused.clear()
        for preemptor in state.nominated:
            self._tell(state, preemptor, is_news=False)

    def landed(self, state: ClusterState, decided: Decided) -> None:
        """Nominate the pods for whom a decision evicts others; take back what it ended."""
        self._refused = {p: text for p, text in self._refused.items() if p in state.nominated}
        for preemptor in self._told.keys() - state.nominated.keys():
            for uid, node in self._told.pop(preemptor).items():
                if uid in state.pending:
                    fact = state.pods[uid].fact
                    self._put(fact, waits_now(state, uid, node), "", is_news=False)
        for preemptor in dict.fromkeys(nomination.preemptor for nomination in decided.nominations):
            if preemptor not in self._refused:
                self._tell(state, preemptor, is_news=True)

    def _tell(self, state: ClusterState, preemptor: str, *, is_news: bool) -> None:
        places = waiting_for(state, preemptor)
        self._told[preemptor] = places
        for uid, node in places.items():
            fact = state.pods[uid].fact
            self._put(fact, promise(state, fact, preemptor, node), node, is_news=is_news)

    def ended(self, state: ClusterState, eviction: Eviction, ending: Evicted) -> None:
        """Take the nomination back if the eviction was refused; of those that go with it the one
        that was refused says why.
        """
        if ending.code in ("", OTHER_VICTIM_STAYS):
            return
        preemptor = eviction.preemptor
        text = f"{ending.code}: pod {eviction.namespace}/{eviction.name} does not make room"
        told = self._told.pop(preemptor, {})
        if self._refused.get(preemptor) == text:
            return
        self._refused[preemptor] = text
        for uid in waiting_for(state, preemptor):
            fact = state.pods[uid].fact
            # The server's words name the victim's budget, which is its namespace's business.
            is_own = eviction.namespace == fact.namespace
            said = f"{text}: {ending.message}" if is_own else text
            self._put(fact, said, "" if uid in told else None, is_news=True)

    def _put(self, fact: PodObserved, text: str, node: str | None, *, is_news: bool) -> None:
        self._notices.put(
            Refused(fact.uid, fact.namespace, fact.name, text, is_news=is_news, nominated=node)
        )


def waiting_for(state: ClusterState, preemptor: str) -> Places:
    """The pods of a preemptor that wait for room that is made for them, and where."""
    nominated = state.nominated.get(preemptor)
    if nominated is None:
        return {}
    return {uid: node for uid, node in nominated.nodes.items() if uid in state.pending}


def waits_now(state: ClusterState, uid: str, node: str) -> str:
    """The notice of a pod that is no longer nominated for a node: why it waits."""
    pod = state.pods[uid]
    if pod.refusal is not None:
        return refusal_text(pod.refusal)
    group = state.groups.get(pod.fact.group)
    because = "" if group is None else waits_because(group)
    return because or f"the room that was made on {node} is no longer reserved"


def promise(state: ClusterState, fact: PodObserved, preemptor: str, node: str) -> str:
    """The notice of a pod that waits for room on a node. Its preemptor's own victims may be of a
    namespace that its readers may not see, so they are counted and not named.
    """
    going = sum(
        eviction.node == node and eviction.preemptor == preemptor
        for eviction in state.evicting.values()
    )
    pods = "1 pod is" if going == 1 else f"{going} pods are"
    made = f"{pods} evicted there to make room" if going else "room is being made there"
    return f"nominated for {node}: {made}. Ask: allot explain pod {fact.namespace}/{fact.name}"
