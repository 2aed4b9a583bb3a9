"""Every step on one node, for a pod: each check of the host, and each card's first lack."""

from allotment.core import reasons
from allotment.core.explain.closest import holders
from allotment.core.explain.funnel import FITS
from allotment.core.explain.schema import CardStep, HostStep, NodeSteps
from allotment.core.explain.views import MIB, card_name, whole_of
from allotment.core.ledger.state import ClusterState, Node
from allotment.core.placement.devices import FAMILIES, by_family
from allotment.core.placement.devices.choosing import card_refusal, rules_of
from allotment.core.placement.devices.free import Free
from allotment.core.placement.rules.attachments import attached, new_volumes
from allotment.core.placement.rules.bounds import bounds_of, kept_back, texts_of
from allotment.core.placement.rules.counted_cards import models_text
from allotment.core.placement.rules.interpod import Around, company_refusal, look_around
from allotment.core.placement.rules.predicates import accepts, fits
from allotment.core.placement.rules.switches import switches_of
from allotment.core.placement.unserved import switched_off
from allotment.core.units import cpu_text, mib_text
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


def _constraints_text(node: Node, request: PodRequest, refused: str | None) -> str:
    if refused == reasons.GPU_MODEL_MISMATCH and node.fact is not None:
        return f"model of its cards: {models_text(node.fact, node.labels, request)}"
    return "cordon, taints, selector, affinity" + (", queue" if bounds_of(request).always else "")


def _host_steps(node: Node, request: PodRequest, policy: Policy, around: Around) -> list[HostStep]:
    fact, switches = node.fact, switches_of(policy)
    if fact is None:
        return [HostStep(step="nodeReady", verdict=reasons.NODE_NOT_READY, detail="node is gone")]
    refused = accepts(node, request, switches)
    crowded = company_refusal(node, request, around, switches)
    back = kept_back(request, node.name)
    rows = [
        ("nodeReady", not fact.ready, reasons.NODE_NOT_READY, "Ready condition"),
        (
            "nodeConstraints",
            refused is not None,
            refused or "",
            _constraints_text(node, request, refused),
        ),
        (
            "pods",
            node.pods_free < 1,
            reasons.POD_LIMIT_REACHED,
            f"{node.pods_free} of {fact.pods} pods free",
        ),
        (
            "cpu",
            bool(request.cpu_milli) and node.cpu_milli_free < request.cpu_milli,
            reasons.INSUFFICIENT_CPU,
            f"{cpu_text(request.cpu_milli)} wanted, {cpu_text(node.cpu_milli_free)} free",
        ),
        (
            "memory",
            bool(request.memory_bytes) and node.memory_bytes_free < request.memory_bytes,
            reasons.INSUFFICIENT_MEMORY,
            f"{mib_text(request.memory_bytes // MIB)} wanted, "
            f"{mib_text(node.memory_bytes_free // MIB)} free",
        ),
    ]
    if request.company != ALONE:
        rules = "host ports, affinity, anti-affinity, spread"
        rows.insert(2, ("otherPods", crowded is not None, crowded or "", rules))
    limits = dict(fact.volume_limits)
    for driver, number in sorted(new_volumes(node, request).items()):
        if driver in limits:
            has = attached(node, driver)
            bad = switches.limits and 0 < number > limits[driver] - has
            detail = f"{number} to attach, {has} of {limits[driver]} attached"
            rows.append((f"volumes of {driver}", bad, reasons.VOLUME_LIMIT_REACHED, detail))
    for name, amount in request.extended:
        free = node.extended_free.get(name, 0)
        short = reasons.NOT_ENOUGH_GPUS_ON_NODE if name.endswith("/gpu") else ""
        code = short or reasons.INSUFFICIENT_RESOURCE
        if name.endswith("/gpu") and name not in node.extended_free:
            code = reasons.NO_GPU
        rows.append((name, free < amount, code, f"{amount} wanted, {free} free"))
    for family, asks in by_family(request).items():
        switch = switched_off(policy, asks[0])
        ledger = node.ledgers.get(family)
        found = f"has no {family} devices" if ledger is None else f"{len(ledger.cards)} cards"
        detail = f"{switch.argument} is not set: {family} is not served" if switch else found
        lacks = switch is not None or ledger is None
        rows.append((f"{family} devices", lacks, reasons.NO_GPU, detail))
    if back is not None:
        rows.append(("keptForOthers", True, back, "; ".join(texts_of(request, [(back, 1)]))))
    return [
        HostStep(step=step, verdict=code if bad else FITS, detail=detail)
        for step, bad, code, detail in rows
    ]
