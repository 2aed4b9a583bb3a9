"""What goes wrong with device plugins, reported once on each of the pods concerned.

* A pod that its plugin or kubelet would not start: which cards it was meant to get.
* A pod that holds a part of a card that became unhealthy.
* A pod that waits to be bound, because the plugin of its node has not served another one yet.
* A pod that waits for a node lock.
* A pod whose annotations claim other cards than those that are booked for it.
* A pod whose annotations would have others served with what they were not given.
* A pod that others bound, with an unreadable claim on its node's cards.
* A pod with annotations or labels that have no effect, although something was meant by them.
* A PodGroup or Queue of which something cannot be read or does not exist, and a Queue that is
  guaranteed more than the cluster has.
"""

from collections import Counter
from collections.abc import Iterator

from allotment.core.explain.rows.acknowledgement import LATE_AFTER_S, forged, wait_text
from allotment.core.explain.rows.views import (
    card_name,
    device_name,
    unhealthy_text,
    unhealthy_under,
)
from allotment.core.ledger.claims import mismatch, unreadable
from allotment.core.ledger.model import ENDED, ClusterState, Node
from allotment.core.ledger.pods import was_turned_away
from allotment.core.placement.unserved import misread
from allotment.core.queues.round.guaranteed import guaranteed, guaranteed_text
from allotment.core.reasons import (
    ANNOTATION_NOT_READ,
    CARD_UNHEALTHY,
    GUARANTEE_TOO_LARGE,
    WAITING_FOR_PLUGIN,
    cut,
)
from allotment_binder.bindings import Target
from allotment_binder.notices import Notices, Warned
from allotment_binder.pacer import Pacer, Wait
from allotment_proto.events import GroupObserved, PodObserved, QueueObserved
from allotment_proto.facts import Problem
from allotment_proto.volcano import keys


def would_not_start(fact: PodObserved) -> bool:
    """Whether a bound pod was turned away by its node's device plugin, or by kubelet over it."""
    return bool(fact.node) and bool(fact.holdings) and was_turned_away(fact)


class Troubles:
    """De-duplicates the warnings."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._failed: set[str] = set()
        self._claims: dict[str, str] = {}
        """Uids of pods whose annotations claim something else than what is booked → their node."""
        self._unreadable: set[str] = set()
        """Pods whose cards are unknown because their claims are unreadable."""
        self._misread: dict[str, tuple[str, ...]] = {}
        """The warnings on pods about annotations without effect."""
        self._objects: dict[str, Problem] = {}
        """The warnings on PodGroups and Queues, by uid."""
        self._ill: dict[str, frozenset[str]] = {}
        """The unhealthy cards of pods that were warned about them."""
        self._forged: dict[str, Problem] = {}
        """The warnings on pods that carry forged records."""
        self._waits: dict[Wait, float] = {}
        """Since when each pod waits for another (infinite: it has its warning)."""

    def begin(self, state: ClusterState) -> None:
        """What happened before this life was reported by another one."""
        self._waits.clear()
        self._failed = {uid for uid, pod in state.pods.items() if would_not_start(pod.fact)}
        self._forged = {u: said for u, p in state.pods.items() if (said := forged(p))}
        groups = [group.fact for group in state.groups.values() if group.fact is not None]
        self._objects = {g.uid: g.problem for g in groups if g.problem is not None}
        queues = ((queue.uid, _wrong_with(state, queue)) for queue in state.queues.values())
        self._objects |= {uid: problem for uid, problem in queues if problem is not None}
        self._misread = {u: texts for u, p in state.pods.items() if (texts := misread(p.fact))}
        self._unreadable = {u for u, p in state.pods.items() if unreadable(p) is not None}
        self._claims = {u: p.fact.node for u, p in state.pods.items() if mismatch(p) is not None}
        for node in state.nodes.values():
            self._ill |= {uid: frozenset(cards) for uid, cards in _unhealthy(node)}

    def look_at_record(self, state: ClusterState, uid: str) -> None:
        """Warn the owner of forged records: at the first one, and when the nodes are left
        alone."""
        pod = state.pods.get(uid)
        found = None if pod is None else forged(pod)
        if pod is None or found is None:
            self._forged.pop(uid, None)
        elif self._forged.get(uid) != found:
            self._forged[uid] = found
            self._put(pod.fact, found.code, "Allocating", cut(f"{found.place} {found.message}"))

    def look_at_annotations(self, state: ClusterState, uid: str) -> None:
        """Report, once, which annotations of a pod have no effect, and what to write instead."""
        pod = state.pods.get(uid)
        found = () if pod is None else misread(pod.fact)
        if pod is None or not found:
            self._misread.pop(uid, None)
        elif self._misread.get(uid) != found:
            self._misread[uid] = found
            self._put(pod.fact, ANNOTATION_NOT_READ, "Scheduling", cut("; ".join(found)))

    def look_at_cards(self, state: ClusterState, name: str) -> None:
        """Report, once, on the pods of a node that they hold parts of unhealthy cards, also if a
        card is well and ill in turn.
        """
        node = state.nodes.get(name)
        for uid, cards in () if node is None else _unhealthy(node):
            known = self._ill.get(uid, frozenset())
            if uid in state.pods and not known.issuperset(cards):
                self._ill[uid] = known.union(cards)
                said = "; ".join(f"card {name}/{card} is {text}" for card, text in cards.items())
                text = f"{said}. Delete the pod to have it placed on other cards"
                self._put(state.pods[uid].fact, CARD_UNHEALTHY, "Running", cut(text))

    def look_at_object(self, state: ClusterState, fact: GroupObserved | QueueObserved) -> None:
        """Report, once, what is wrong with a PodGroup or a Queue as it was written."""
        is_queue = isinstance(fact, QueueObserved)
        problem = _wrong_with(state, fact) if isinstance(fact, QueueObserved) else fact.problem
        if problem is None:
            self._objects.pop(fact.uid, None)
        elif self._objects.get(fact.uid) != problem:
            self._objects[fact.uid] = problem
            namespace = fact.namespace if isinstance(fact, GroupObserved) else ""
            text = cut(f"{problem.place} {problem.message}".strip())
            kind = "Queue" if is_queue else "PodGroup"
            warned = Warned(fact.uid, namespace, fact.name, problem.code, "Scheduling", text, kind)
            self._notices.put(warned)

    def forget_object(self, uid: str) -> None:
        """A PodGroup or Queue is gone."""
        self._objects.pop(uid, None)

    def look_at_quarantine(self, state: ClusterState, uid: str) -> None:
        """Report, once, that a pod's claim on cards is unreadable, and what that costs others."""
        pod = state.pods.get(uid)
        found = None if pod is None else unreadable(pod)
        if pod is None or found is None:
            self._unreadable.discard(uid)
        elif uid not in self._unreadable:
            self._unreadable.add(uid)
            text = f"{found.place} {found.message}. Correct the annotation or delete the pod"
            self._put(pod.fact, found.code, "Booking", cut(text))

    def mismatches(self) -> Counter[str]:
        """By node, the running pods that claim something else than what is booked for them."""
        return Counter(self._claims.values())

    def look(self, state: ClusterState, uid: str, *, is_erased: bool) -> None:
        """Take note of a pod as the log shows it now. `is_erased`: we marked it as failed."""
        pod = state.pods.get(uid)
        self.look_at_claim(state, uid)
        self.look_at_quarantine(state, uid)
        self.look_at_record(state, uid)
        self.look_at_annotations(state, uid)
        if pod is None:
            self._failed.discard(uid)
            self._ill.pop(uid, None)
            return
        fact = pod.fact
        if uid in self._failed or not would_not_start(fact):
            return
        if fact.scheduler in state.policy.scheduler_names and not is_erased:
            self._failed.add(uid)
            self._put(fact, "DevicesNotAssigned", "Allocating", _failed_text(state, fact))

    def look_at_claim(self, state: ClusterState, uid: str) -> None:
        """Tell, once, that a pod's annotations claim something else than what is booked."""
        pod = state.pods.get(uid)
        claim = None if pod is None else mismatch(pod)
        if pod is None or claim is None:
            self._claims.pop(uid, None)
        elif uid not in self._claims:
            self._claims[uid] = pod.fact.node
            self._put(pod.fact, claim.code, "Booking", f"{claim.place} {claim.message}")

    def look_at_waits(self, state: ClusterState, pacer: Pacer, now_s: float) -> None:
        """Tell of the pods that have been waiting for long."""
        waits = dict.fromkeys(pacer.waits())
        self._waits = {wait: self._waits.get(wait, now_s) for wait in waits}
        for wait, since_s in self._waits.items():
            if now_s - since_s < LATE_AFTER_S:
                continue
            self._waits[wait] = float("inf")
            waiting, ahead = state.pods.get(wait.uid), state.pods.get(wait.ahead)
            if waiting is not None and ahead is not None:
                text = f"waits since {round(now_s - since_s)} s {wait_text(*wait.place, ahead)}"
                self._put(waiting.fact, WAITING_FOR_PLUGIN, "Binding", text)

    def lock_wait(self, target: Target, text: str) -> None:
        """A pod has been waiting for a node lock for long."""
        warned = Warned(
            target.allocation.uid,
            target.namespace,
            target.name,
            "WaitingForNodeLock",
            "Binding",
            f"{text}; a lock that its holder forgot is taken over after 5 minutes",
        )
        self._notices.put(warned)

    def _put(self, fact: PodObserved, reason: str, action: str, text: str) -> None:
        self._notices.put(Warned(fact.uid, fact.namespace, fact.name, reason, action, text))


def _unhealthy(node: Node) -> Iterator[tuple[str, dict[str, str]]]:
    """The pods on a node with unhealthy cards, which these are, and who declares them so."""
    for uid, held in node.allocations.items():
        if cards := unhealthy_under(node, held):
            yield uid, {card_name(card): unhealthy_text(card) for card in cards}


def _wrong_with(state: ClusterState, queue: QueueObserved) -> Problem | None:
    """What is wrong with a Queue, or with what it is guaranteed; None if nothing is."""
    if queue.problem is not None:
        return queue.problem
    for found in guaranteed(state) if queue.guarantee else ():
        if found.is_too_much and queue.name in found.queues:
            text = f"{guaranteed_text(state, found)}: other queues get no {found.resource}"
            return Problem(GUARANTEE_TOO_LARGE, "", text)
    return None


def _failed_text(state: ClusterState, fact: PodObserved) -> str:
    node = state.nodes.get(fact.node)
    cards = ", ".join(
        held.card if (name := device_name(node, held)) == held.card else f"{held.card} ({name})"
        for held in fact.holdings
    )
    who = "kubelet" if fact.bind_phase != keys.PHASE_FAILED else "the device plugin"
    said = [f"{who} of node {fact.node} did not start this pod on {cards}"]
    if fact.phase in ENDED:
        said.append("what was reserved for it is free again")
    if fact.owner and fact.holdings:
        said.append(
            "the next pod of its owner goes elsewhere if it can, until a pod starts there again"
        )
    return "; ".join(said)
