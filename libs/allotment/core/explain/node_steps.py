"""Every step on one node, for a pod: each check of the host, and each card's first lack."""

from collections.abc import Iterator

from allotment.core import reasons
from allotment.core.explain.closest import holders
from allotment.core.explain.funnel import FITS
from allotment.core.explain.schema import CardStep, HostStep, NodeSteps
from allotment.core.explain.views import MIB, card_name, whole_of
from allotment.core.ledger.state import ClusterState, Node
from allotment.core.placement.devices import FAMILIES, by_family
from allotment.core.placement.devices.choosing import card_refusal, rules_of
from allotment.core.placement.devices.free import Free
from allotment.core.placement.rules.attachments import attaching
from allotment.core.placement.rules.bounds import bounds_of, kept_back, texts_of
from allotment.core.placement.rules.counted_cards import models_text
from allotment.core.placement.rules.interpod import Around, look_around
from allotment.core.placement.rules.predicates import (
    HOST_CHECKS,
    Question,
    extended_lack,
    family_lack,
    fits,
)
from allotment.core.placement.rules.switches import switches_of
from allotment.core.placement.unserved import switched_off
from allotment.core.units import cpu_text, mib_text
from allotment_proto.events import NodeObserved
from allotment_proto.facts import ALONE, PodRequest, Policy


def node_steps(state: ClusterState, node: Node, request: PodRequest) -> NodeSteps:
    """Every step on one node, and for each of its cards the first thing that it lacks."""
    around = look_around(list(state.nodes.values()), request)
    answer = fits(node, request, state.policy, around=around)
    rules = rules_of(request, state.policy, node.name)
    cards = []
    for family, wanted in by_family(request).items():
        ledger = node.ledgers.get(family)
        for card in ledger.cards if ledger is not None else ():
            codes = [card_refusal(Free(card), ask, rules, FAMILIES[family]) for ask in wanted]
            refused = [code for code in codes if code is not None]
            cards.append(
                CardStep(
                    device=card_name(card),
                    id=card.fact.id,
                    model=card.fact.model,
                    family=family,
                    free_slots=card.free_slots,
                    memory_bytes=card.fact.memory_mib * MIB,
                    free_memory_bytes=card.free_memory_mib * MIB,
                    compute_whole=whole_of(card),
                    free_compute_percent=card.free_cores_pct,
                    verdict=reasons.NO_GPU
                    if family not in state.policy.families
                    else refused[0]
                    if len(refused) == len(codes)
                    else FITS,
                    holders=holders(state, card),
                )
            )
    return NodeSteps(
        node=node.name,
        verdict=answer if isinstance(answer, str) else FITS,
        host=tuple(_host_steps(node, request, state.policy, around)),
        cards=tuple(cards),
    )


def _host_steps(
    node: Node, request: PodRequest, policy: Policy, around: Around
) -> Iterator[HostStep]:
    """Every check that `fits` asks of the node itself, in the same order: the checks are its own,
    only the words are made here.
    """
    fact = node.fact
    if fact is None:
        yield HostStep(step="nodeReady", verdict=reasons.NODE_NOT_READY, detail="node is gone")
        return
    question = Question(node, request, switches_of(policy), around)
    for name, check in HOST_CHECKS.items():
        if name == "volumeLimits":
            yield from _volume_steps(question)
        elif name != "otherPods" or request.company != ALONE:
            code = check(question)
            yield _step(name, code, _detail(name, node, fact, request, code))
    for family, asks in by_family(request).items():
        switch = switched_off(policy, asks[0])
        ledger = node.ledgers.get(family)
        found = f"has no {family} devices" if ledger is None else f"{len(ledger.cards)} cards"
        detail = f"{switch.argument} is not set: {family} is not served" if switch else found
        yield _step(f"{family} devices", family_lack(node, family, policy), detail)
    for name, amount in request.extended:
        detail = f"{amount} wanted, {node.extended_free.get(name, 0)} free"
        yield _step(name, extended_lack(node, name, amount), detail)
    back = kept_back(request, node.name)
    if back is not None:
        yield _step("keptForOthers", back, "; ".join(texts_of(request, [(back, 1)])))


def _step(name: str, code: str | None, detail: str) -> HostStep:
    return HostStep(step=name, verdict=FITS if code is None else code, detail=detail)


def _volume_steps(question: Question) -> Iterator[HostStep]:
    """One for each driver for which the node names a limit."""
    for driver in sorted(attaching(question.node, question.request)):
        is_over = question.switches.limits and driver.is_too_much
        detail = f"{driver.new} to attach, {driver.attached} of {driver.limit} attached"
        code = reasons.VOLUME_LIMIT_REACHED if is_over else None
        yield _step(f"volumes of {driver.driver}", code, detail)


def _detail(
    name: str, node: Node, fact: NodeObserved, request: PodRequest, refused: str | None
) -> str:
    """What a check looked at; of one without words of its own, what is the case if it refuses."""
    match name:
        case "nodeReady":
            return "Ready condition"
        case "nodeConstraints":
            if refused == reasons.GPU_MODEL_MISMATCH:
                return f"model of its cards: {models_text(fact, node.labels, request)}"
            queue = ", queue" if bounds_of(request).always else ""
            return f"cordon, taints, selector, affinity{queue}"
        case "otherPods":
            return "host ports, affinity, anti-affinity, spread"
        case "pods":
            return f"{node.pods_free} of {fact.pods} pods free"
        case "cpu":
            return f"{cpu_text(request.cpu_milli)} wanted, {cpu_text(node.cpu_milli_free)} free"
        case "memory":
            wanted, free = request.memory_bytes // MIB, node.memory_bytes_free // MIB
            return f"{mib_text(wanted)} wanted, {mib_text(free)} free"
        case _:
            return reasons.REASONS[refused].text if refused is not None else ""
