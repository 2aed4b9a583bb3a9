"""Which bound pods a device plugin still has to serve, and which pods wait for that: pure.

A node's device plugin receives only *how much* a container requests (a number of devices, or of
MiB), and picks the oldest pod of the node that requests as much; what it receives depends on the
family (`Family.question`). So the binder binds pods of one node with the same question one at a
time (`pacing`), and a pod that its plugin never serves keeps all the others waiting, although their
places are reserved.
"""

from collections.abc import Iterator

from allotment.core.ledger import model
from allotment.core.ledger.model import ACTIVE, ENDED, Allocation, ClusterState, Node, Pod
from allotment.core.placement.devices import FAMILIES
from allotment.core.reasons import RECORD_FORGED
from allotment_proto.events import PodObserved
from allotment_proto.facts import Holding, Problem
from allotment_proto.volcano import keys

LATE_AFTER_S = 150
"""A plugin serves a pod within a second or two of its Binding. But a kubelet that has to list its
pods again, as after every restart of the API server, may reach a pod only a minute and a half
later: until then silence proves nothing.
"""

Question = tuple[str, str, int]
"""Device family, unit and amount."""
Place = tuple[str, Question]
"""A node, and the question to its plugin."""
Age = tuple[int, int, str]

RECORDS = {name: family.record for name, family in FAMILIES.items() if family.record is not None}
"""The records of the device plugins that rely on annotations alone, by family."""


def is_acknowledged(pod: Pod) -> bool:
    """Whether the device plugin has served a pod that is or was bound: the plugin marked it, where
    that mark is final, or the pod started.
    """
    held = pod.allocation
    return held.acknowledged if held else model.is_acknowledged(pod.fact, pod.fact.holdings)


def is_awaited(pod: Pod, node: Node) -> bool:
    """Whether the plugin of the pod's node may still serve it: other pods then have to wait."""
    return pod.allocation is not None and node.awaits(pod.allocation)


def plugin_question(holdings: tuple[Holding, ...]) -> Question | None:
    """The question to the device plugin; None if no plugin of ours is involved."""
    if not holdings:
        return None
    name = holdings[0].family
    family = FAMILIES.get(name)
    unit, amount = ("devices", len(holdings)) if family is None else family.question(holdings)
    return name, unit, amount


def standing(pod: Pod) -> Place | None:
    """Where the plugin would still serve the record of a pod that no longer needs it.

    Some plugins rely on annotations alone (`RECORDS`). There are three cases. A pod that ended
    before its plugin was asked leaves a record, and the plugin serves the next pod that requests as
    many devices with it. A pod that runs although its record is still there was served with another
    pod's record. A pod that was served already has its record back because its owner wrote it
    again. A record that no scheduler wrote (`PodObserved.standing`) blocks others, whatever its pod
    is and requests.
    """
    fact = pod.fact
    if fact.standing is not None:
        return fact.standing.node, (fact.standing.family, "devices", fact.standing.devices)
    if fact.bind_phase != keys.PHASE_ALLOCATING or not is_acknowledged(pod):
        return None
    claimed = fact.holdings or _asked(fact)  # its owner may have taken away what it claimed
    question = plugin_question(recorded(claimed))
    return None if question is None else (fact.node, question)


def _asked(fact: PodObserved) -> tuple[Holding, ...]:
    """As many holdings as a pod's limits request; their cards are unknown."""
    return tuple(
        Holding(request.family, request.container, "", request.memory_mib, request.cores_pct)
        for request in fact.request.devices
        for _ in range(request.count)
    )


def recorded(holdings: tuple[Holding, ...]) -> tuple[Holding, ...]:
    """Those that the plugin knows from a record alone."""
    return tuple(held for held in holdings if held.family in RECORDS)


def standing_record(pod: Pod) -> str | None:
    """The annotation with the record of a pod that is `standing`; None if it is not."""
    place = standing(pod)
    return None if place is None else RECORDS[place[1][0]].work_list


def standing_text(pod: Pod) -> str:
    """What is wrong with a pod whose record is `standing`."""
    fact = pod.fact
    if fact.standing is not None:
        return (
            f"no scheduler gave pod {fact.namespace}/{fact.name} what its annotation "
            f"{standing_record(pod)} names, with which the device plugin of node "
            f"{fact.standing.node} would serve the next pod that asks for as many devices"
        )
    how = "ended although its device plugin has not served it"
    if fact.phase == ACTIVE:
        how = "was served by its device plugin before"
    elif fact.phase not in ENDED:
        how = "runs although its device plugin has not served it"
    return (
        f"pod {fact.namespace}/{fact.name} {how}, and its annotation {standing_record(pod)} would "
        f"serve the next pod of node {fact.node} that asks for as many devices"
    )


def forged(pod: Pod) -> Problem | None:
    """What is wrong with a pod that wrote records no scheduler gave it; None if it did not."""
    if not pod.forged:
        return None
    nodes, held = ", ".join(sorted(pod.forged)), pod.forged_on
    said = (
        f"were written so that the device plugin of node {nodes} hands out devices that "
        "were never allocated, to this pod or to others"
    )
    meaning = f": nothing is placed on {held} until this pod is deleted" if held else ""
    return Problem(RECORD_FORGED, "annotations", f"{said}{meaning}")


def age(allocation: Allocation) -> Age:
    """Sorts reservations, the oldest decision in front."""
    return allocation.seq, allocation.stamp_s, allocation.uid


def _unacknowledged(state: ClusterState, node: Node) -> Iterator[tuple[Question, Pod]]:
    """The node's bound pods that its plugin still has to serve, each with its question."""
    for uid, allocation in node.allocations.items():
        question = plugin_question(allocation.holdings)
        if question is not None and uid not in state.reserved:
            pod = state.pods[uid]
            if is_awaited(pod, node):
                yield question, pod


def ahead_of(state: ClusterState, pod: Pod) -> Pod | None:
    """The bound pod that the node's plugin has to serve before a reserved pod is bound."""
    held = pod.allocation
    if held is None or held.uid not in state.reserved:
        return None
    wanted = plugin_question(held.holdings)
    if wanted is None:
        return None
    before = [
        (age(other.allocation), other)
        for question, other in _unacknowledged(state, state.nodes[held.node])
        if question == wanted and other.allocation is not None
    ]
    return min(before, key=lambda found: found[0])[1] if before else None


def in_the_way(state: ClusterState, held: Allocation) -> Pod | None:
    """A pod whose record must be erased before a reserved pod can be bound. Looks at all pods."""
    question = plugin_question(held.holdings)
    if held.uid not in state.reserved or question is None:
        return None
    place = held.node, question
    return next((pod for pod in state.pods.values() if standing(pod) == place), None)


def waiting_for(state: ClusterState, pod: Pod) -> list[Pod]:
    """The reserved pods that wait until a bound one is acknowledged, the oldest decision first."""
    held = pod.allocation
    if held is None or not is_awaited(pod, state.nodes[held.node]):
        return []
    wanted = plugin_question(held.holdings)
    others = [
        allocation
        for uid, allocation in state.nodes[held.node].allocations.items()
        if uid in state.reserved and plugin_question(allocation.holdings) == wanted
    ]
    return [state.pods[allocation.uid] for allocation in sorted(others, key=age)]


def wait_text(node: str, question: Question, ahead: Pod) -> str:
    """Why a pod with a reserved place still waits."""
    family, unit, amount = question
    counted = unit.removesuffix("s") if amount == 1 else unit
    asked = f"for {family} devices" if unit == "pods" else f"for {amount} {counted} ({family})"
    return (
        f"to be bound to node {node}: its device plugin has not acknowledged pod "
        f"{ahead.fact.namespace}/{ahead.fact.name} yet, which asks it {asked} too, and it cannot "
        "tell the two apart. If that pod will not start, delete it"
    )
