"""The nodes' answers to a pod: at which step they drop out, every step on one node, and what nearly
takes the pod.

The checks that decide (`predicates`, `choosing`) ask nodes and cards; this module only words the
answers. For the closest cards those count alone that the pod accepts (selected, of a wanted model,
healthy), on nodes that accept the pod: on others no release would help.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from allotment.core import reasons
from allotment.core.explain.causes.counterfactual import (
    refusing_taints,
    taint_text,
    term_text,
    wrong_labels,
)
from allotment.core.explain.causes.obstacles import FITS, emptied, present
from allotment.core.explain.rows.schema import (
    COMPUTE,
    MEMORY,
    CardStep,
    Closest,
    Fragmentation,
    Holder,
    HostStep,
    NodeSteps,
    Step,
)
from allotment.core.explain.rows.views import (
    MIB,
    card_name,
    card_word,
    holders_of,
    usable_cores,
    whole_of,
)
from allotment.core.ledger.ledger import Card, Ledger
from allotment.core.ledger.model import ENDED, ClusterState, Group, Node
from allotment.core.placement.devices import FAMILIES, by_family, memory_units
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import card_refusal, mode_fits, rules_of
from allotment.core.placement.devices.free import Free, need_cores_pct, need_memory_mib
from allotment.core.placement.evaluator import node_holds_at_most
from allotment.core.placement.least_busy import patience
from allotment.core.placement.rules.attachments import attaching
from allotment.core.placement.rules.bounds import bounds_of, by_itself, kept_back, texts_of
from allotment.core.placement.rules.card_book import spare_of
from allotment.core.placement.rules.counted_cards import models_text
from allotment.core.placement.rules.interpod import Around, look_around
from allotment.core.placement.rules.predicates import (
    HOST_CHECKS,
    Question,
    accepts,
    extended_lack,
    family_lack,
    fits,
)
from allotment.core.placement.rules.switches import switches_of
from allotment.core.placement.unserved import switched_off
from allotment.core.reasons import CODES_AT, STEP_NUMBER, STEPS
from allotment.core.units import cpu_text, mib_text, resource_text
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import ALONE, DeviceRequest, PodRequest

_OTHER = reasons.Step("other", "everything else")
_CLOSEST_SHOWN = 3
_HOLDERS_SHOWN = 3
_REQUESTS_MAX = 64
"""How many different requests of one group are tried on empty nodes."""


def group_short_even_empty(state: ClusterState, group: Group) -> int | None:
    """How many members of a group can run together at most on empty nodes, if that is less than its
    minimum; None if it is not, if the group has its minimum, or if there is no node.

    A bound, request by request and without trying: fewer may find a place, never more.
    """
    least = 0 if group.fact is None else group.fact.min_member
    members = [state.pods[uid] for uid in group.members if uid in state.pods]
    has_place = sum(pod.allocation is not None or pod.fact.phase in ENDED for pod in members)
    if least < 2 or len(members) < least or has_place >= least:
        return None
    wanted = Counter(by_itself(pod.fact.request) for pod in members if pod.fact.phase not in ENDED)
    if len(wanted) > _REQUESTS_MAX:
        return None
    twins = [emptied(node) for node in present(state)]
    if not twins:
        return None
    most = len(members) - wanted.total()
    for request, number in wanted.items():
        room = sum(
            node_holds_at_most(twin, request, state.policy)
            for twin in twins
            if not isinstance(fits(twin, request, state.policy), str)
        )
        most += min(room, number)
    return most if most < least else None


def codes(state: ClusterState, request: PodRequest) -> list[str]:
    """Every present node's first obstacle, or `FITS`."""
    nodes = present(state)
    around = look_around(nodes, request)
    answers = (fits(node, request, state.policy, around=around) for node in nodes)
    return [answer if isinstance(answer, str) else FITS for answer in answers]


def funnel(answers: Iterable[str]) -> list[Step]:
    counts = Counter(answers)
    left = counts.total()
    counts.pop(FITS, None)
    steps = [Step(step="all", text="all nodes", left=left, lost=0, reasons={})]
    named = [(step, CODES_AT[step.key]) for step in STEPS]
    if unnamed := tuple(counts.keys() - STEP_NUMBER.keys()):
        named.append((_OTHER, unnamed))
    for step, found in named:
        here = sorted(((c, counts[c]) for c in found if counts[c]), key=lambda i: (-i[1], i[0]))
        lost = sum(count for _, count in here)
        if not lost and step.is_rare:
            continue
        left -= lost
        steps.append(Step(step=step.key, text=step.text, left=left, lost=lost, reasons=dict(here)))
    return steps


def node_steps(state: ClusterState, node: Node, request: PodRequest, pod: PodObserved) -> NodeSteps:
    """Every step on one node, and for each of its cards the first thing that it lacks. `request`
    is how `pod` asks for them.
    """
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
                    free_compute_percent=usable_cores(card),
                    verdict=reasons.NO_GPU
                    if family not in state.policy.families
                    else refused[0]
                    if len(refused) == len(codes)
                    else FITS,
                    holders=_holders(state, card),
                )
            )
    return NodeSteps(
        node=node.name,
        verdict=answer if isinstance(answer, str) else FITS,
        host=(*_host_steps(state, node, request, around), *_backlog_steps(state, node, pod)),
        cards=tuple(cards),
    )


def _host_steps(
    state: ClusterState, node: Node, request: PodRequest, around: Around
) -> Iterator[HostStep]:
    """Every check that `fits` makes on the node itself, in the same order: only the words are added
    here.
    """
    fact, policy = node.fact, state.policy
    if fact is None:
        yield HostStep(step="nodeReady", verdict=reasons.NODE_NOT_READY, detail="node is gone")
        return
    question = Question(node, request, switches_of(policy), around)
    for name, check in HOST_CHECKS.items():
        if name == "volumeLimits":
            yield from _volume_steps(question)
        elif name == "cardBook" and not fact.listed_twice:
            continue
        elif name != "otherPods" or request.company != ALONE:
            code = check(question)
            yield _step(name, code, _detail(name, node, fact, request, code))
    for family, asks in by_family(request).items():
        switch = switched_off(policy, asks[0])
        ledger = node.ledgers.get(family)
        found = f"has no {family} devices" if ledger is None else f"{len(ledger.cards)} cards"
        detail = f"{switch.argument} is not set: {family} is not served" if switch else found
        yield _step(f"{family} devices", family_lack(node, family, policy), detail)
        if ledger is not None:
            yield from _family_steps(ledger, request, asks)
    units = memory_units(state.devices)
    for name, amount in request.extended:
        asked, free = (
            resource_text(name, 1000 * each, units.get(name, 0))
            for each in (amount, node.extended_free.get(name, 0))
        )
        detail = f"{asked} wanted, {free} free"
        yield _step(name, extended_lack(node, name, amount), detail)
    back = kept_back(request, node.name)
    if back is not None:
        step = STEPS[STEP_NUMBER[back]].key
        yield _step(step, back, "; ".join(texts_of(request, [(back, 1)])))


def _backlog_steps(state: ClusterState, node: Node, pod: PodObserved) -> Iterator[HostStep]:
    """How many pods wait for a node's device plugins, and whether another node is preferred for
    that.
    """
    if node.fact is None or not pod.request.devices or not node.backlog:
        return
    waits, count, more = patience(pod, state), node.backlog, ""
    wait = "1 pod waits" if count == 1 else f"{count} pods wait"
    if 0 < waits.below <= count:
        more = ", so another node is preferred while one fits"
    elif waits.idle_first:
        more = ", so a node in use whose device plugin is idle comes first"
    yield _step("pluginBacklog", None, f"{wait} for its device plugin{more}")


def _family_steps(
    ledger: Ledger, request: PodRequest, asks: Sequence[DeviceRequest]
) -> Iterator[HostStep]:
    """The checks of a node's cards as a whole, where the answer is not the usual one."""
    family = ledger.family
    if ledger.blocked is not None:
        yield _step(f"{family} books", ledger.blocked, reasons.REASONS[ledger.blocked].text)
    if not mode_fits(request.selection, ledger.mode):
        asked = request.selection.mode
        key = FAMILIES[family].mode_key
        said = f"{asked} wanted" if asked else f"the pod names none (annotation {key})"
        yield _step(f"{family} mode", reasons.GPU_MODE_MISMATCH, f"{ledger.mode} here, {said}")
    most = max(wanted.count for wanted in asks)
    if most > len(ledger.cards):
        detail = f"{most} wanted, {len(ledger.cards)} here"
        yield _step(f"{family} cards", reasons.NOT_ENOUGH_GPUS_ON_NODE, detail)


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
    """What a check looked at; for a check without words of its own, the reason for which it
    rejects.
    """
    match name:
        case "nodeReady":
            return "Ready condition"
        case "nodeConstraints":
            return _constraint_detail(node, fact, request, refused)
        case "otherPods":
            return "host ports, affinity, anti-affinity, spread"
        case "pods":
            return f"{node.pods_free} of {fact.pods} pods free"
        case "cpu":
            return f"{cpu_text(request.cpu_milli)} wanted, {cpu_text(node.cpu_milli_free)} free"
        case "cardBook":
            has = spare_of(node)
            return f"{-has.for_shares} cards held whole, {-has.for_whole} shares held"
        case "memory":
            wanted, free = request.memory_bytes // MIB, node.memory_bytes_free // MIB
            return f"{mib_text(wanted)} wanted, {mib_text(free)} free"
        case _:
            return reasons.REASONS[refused].text if refused is not None else ""


def _constraint_detail(
    node: Node, fact: NodeObserved, request: PodRequest, refused: str | None
) -> str:
    """Which taint, label or term is in the way; without a refusal what was looked at."""
    match refused:
        case reasons.NODE_CORDONED:
            return "the node is cordoned"
        case reasons.TAINT_NOT_TOLERATED:
            taints = ", ".join(taint_text(taint) for taint in refusing_taints(node, request))
            return f"not tolerated: {taints}"
        case reasons.SELECTOR_MISMATCH:
            return ", ".join(
                f"{key}={value} wanted, {_label(node, key)} here"
                for key, value in wrong_labels(node, request)
            )
        case reasons.AFFINITY_MISMATCH if request.constraints.affinity:
            terms = request.constraints.affinity
            keys = dict.fromkeys(e.key for term in terms for e in term.labels)
            here = ", ".join(_label(node, key) for key in keys) or "nothing of it"
            return f"{' or '.join(map(term_text, terms))} wanted, {here} here"
        case reasons.GPU_MODEL_MISMATCH:
            return f"model of its cards: {models_text(fact, node.labels, request)}"
        case _:
            queue = ", queue" if bounds_of(request).always else ""
            return f"cordon, taints, selector, affinity{queue}"


def _label(node: Node, key: str) -> str:
    return f"{key}={node.labels[key]}" if key in node.labels else f"no {key}"


def closest(
    state: ClusterState, request: PodRequest, cause: str = "", *, never: bool = False
) -> list[Closest]:
    """What is closest to fitting, by the resource that the cause names: cards, by the permille of
    the request that they lack; nodes for CPU, memory, numbers of cards and counted resources.
    `never`: not even an empty cluster takes the request, so the largest cards are named.
    """
    if cause in (reasons.INSUFFICIENT_CPU, reasons.INSUFFICIENT_MEMORY):
        hosts = sorted(_hosts(state, request, cause), key=lambda entry: entry[:2])
        return [entry for *_, entry in hosts[:_CLOSEST_SHOWN]]
    if cause == reasons.NOT_ENOUGH_GPUS_ON_NODE and request.devices:
        numbers = sorted(_card_numbers(state, request), key=lambda entry: entry[:2])
        return [entry for *_, entry in numbers[:_CLOSEST_SHOWN]]
    ranked: list[tuple[int, str, int, Closest]] = []
    for node, card, wanted, code in _cards(state, request):
        if code in reasons.BUSY:
            distance, entry = _lack(state, node, card, wanted, code)
            if never:
                distance = -card.fact.memory_mib
            ranked.append((distance, node.name, card.fact.index, entry))
    if not request.devices:
        ranked += [(lack, node, 0, entry) for lack, node, entry in _counted(state, request)]
    ranked.sort(key=lambda item: item[:3])
    return [entry for *_, entry in ranked[:_CLOSEST_SHOWN]]


def fragmentation(state: ClusterState, request: PodRequest) -> Fragmentation | None:
    """The resource that the pod's accepted cards have in total, but no single card has: memory, or
    the compute that goes with it. None where it is neither.
    """
    free, largest, largest_usable, needed = 0, 0, 0, 0
    compute_free, compute_most, compute_needed = 0, 0, 0
    for _, card, wanted, code in _cards(state, request):
        if wanted is not request.devices[0] or not (code is None or code in reasons.BUSY):
            continue
        memory_mib = max(card.free_memory_mib, 0)
        free += memory_mib
        if card.free_slots < 1:
            continue
        largest = max(largest, memory_mib)
        need = need_memory_mib(wanted, card.fact.memory_mib)
        needed = min(needed, need) if needed else need
        cores_pct = max(card.free_cores_pct, 0)
        compute_free += cores_pct
        compute_needed = max(wanted.cores_pct, 1)
        if memory_mib >= need:
            compute_most = max(compute_most, cores_pct)
        if cores_pct >= compute_needed:
            largest_usable = max(largest_usable, memory_mib)
    if not needed or free < needed or largest_usable >= needed:
        return None
    is_memory = largest < needed
    if not is_memory and compute_free < compute_needed:
        return None  # there is too little of it, in whatever pieces
    return Fragmentation(
        dimension=MEMORY if is_memory else COMPUTE,
        free_bytes=free * MIB,
        largest_bytes=largest * MIB,
        largest_usable_bytes=largest_usable * MIB,
        needed_bytes=needed * MIB,
        free_compute_percent=compute_free,
        most_compute_percent=compute_most,
        needed_compute_percent=request.devices[0].cores_pct,
    )


def _holders(state: ClusterState, card: Card) -> tuple[Holder, ...]:
    return tuple(
        Holder(
            namespace=h.namespace,
            name=h.name,
            memory_bytes=h.memory_bytes,
            compute_percent=h.compute_percent,
            instance=h.instance,
        )
        for h in holders_of(state, card)
    )


def _cards(
    state: ClusterState, request: PodRequest
) -> Iterator[tuple[Node, Card, DeviceRequest, str | None]]:
    """Every card of every node that accepts the pod, with what it answers to each container."""
    switches = switches_of(state.policy)
    for node in state.nodes.values():
        fact = node.fact
        if fact is None or not fact.ready or accepts(node, request, switches):
            continue
        rules = rules_of(request, state.policy, node.name)
        for family, asks in by_family(request).items():
            ledger = node.ledgers.get(family)
            if ledger is None or ledger.blocked or not mode_fits(request.selection, ledger.mode):
                continue
            for card in ledger.cards:
                for wanted in asks:
                    code = card_refusal(Free(card), wanted, rules, FAMILIES[family])
                    yield node, card, wanted, code


def _lack(
    state: ClusterState, node: Node, card: Card, wanted: DeviceRequest, code: str
) -> tuple[int, Closest]:
    fact = card.fact
    memory_mib = need_memory_mib(wanted, fact.memory_mib, card.table) - card.free_memory_mib
    cores_pct = need_cores_pct(wanted, fact.cores_pct) - card.free_cores_pct
    short: dict[str, int] = {}
    if memory_mib > 0:
        short["memoryBytes"] = memory_mib * MIB
    if cores_pct > 0:  # without a share requested, a card still needs some compute left
        short["computePercent" if wanted.cores_pct else "anyCompute"] = cores_pct
    if card.free_slots < 1:
        short["slots"] = 1 - card.free_slots
    if code == reasons.NO_FITTING_INSTANCE and not short:
        short["instances"] = 1
    if wanted.cores_pct == CORES_WHOLE_PCT and card.holders:
        short["otherHolders"] = len(card.holders)
    distance = (
        max(memory_mib, 0) * 1000 // max(memory_mib + card.free_memory_mib, 1)
        + max(cores_pct, 0) * 10
        + (1000 if card.free_slots < 1 else 0)
    )
    return distance, Closest(
        node=node.name,
        device=card_name(card),
        reason=code,
        free_memory_bytes=card.free_memory_mib * MIB,
        free_compute_percent=usable_cores(card),
        compute_whole=whole_of(card),
        free_slots=card.free_slots,
        short=short,
        holders=_holders(state, card),
    )


def _hosts(
    state: ClusterState, request: PodRequest, cause: str
) -> Iterator[tuple[int, str, Closest]]:
    """Nodes that accept the pod and have too little CPU, or memory, left."""
    is_cpu = cause == reasons.INSUFFICIENT_CPU
    switches = switches_of(state.policy)
    for node in present(state):
        fact = node.fact
        if fact is None or not fact.ready or accepts(node, request, switches):
            continue
        free = node.cpu_milli_free if is_cpu else node.memory_bytes_free
        lack = (request.cpu_milli if is_cpu else request.memory_bytes) - free
        if lack <= 0:
            continue
        held = sorted(
            (a for a in node.allocations.values() if (a.cpu_milli if is_cpu else a.memory_bytes)),
            key=lambda a: (-(a.cpu_milli if is_cpu else a.memory_bytes), a.uid),
        )
        yield (
            lack,
            node.name,
            Closest(
                node=node.name,
                device="cpu" if is_cpu else "memory",
                reason=cause,
                free_count=free if is_cpu else None,
                free_memory_bytes=None if is_cpu else free,
                short={"cpuMilli" if is_cpu else "memoryBytes": lack},
                holders=tuple(
                    Holder(
                        namespace=state.pods[a.uid].fact.namespace,
                        name=state.pods[a.uid].fact.name,
                        memory_bytes=0 if is_cpu else a.memory_bytes,
                        compute_percent=0,
                        instance="",
                    )
                    for a in held[:_HOLDERS_SHOWN]
                ),
            ),
        )


def _card_numbers(state: ClusterState, request: PodRequest) -> Iterator[tuple[int, str, Closest]]:
    """Nodes that have fewer cards than one container asks for, the most in front."""
    switches = switches_of(state.policy)
    wanted = max(request.devices, key=lambda each: each.count)
    for node in present(state):
        ledger = node.ledgers.get(wanted.family)
        if ledger is None or accepts(node, request, switches):
            continue
        lack = wanted.count - len(ledger.cards)
        if lack > 0:
            entry = Closest(
                node=node.name,
                device=f"{card_word(wanted.family)}s",
                reason=reasons.NOT_ENOUGH_GPUS_ON_NODE,
                free_count=len(ledger.cards),
                short={"cards": lack},
            )
            yield lack, node.name, entry


def _counted(state: ClusterState, request: PodRequest) -> Iterator[tuple[int, str, Closest]]:
    """Nodes that list a counted resource but have too little of it left."""
    switches = switches_of(state.policy)
    for node in state.nodes.values():
        fact = node.fact
        if fact is None or not fact.ready or accepts(node, request, switches):
            continue
        for name, amount in request.extended:
            free = node.extended_free.get(name)
            code = extended_lack(node, name, amount)
            if free is None or code is None:
                continue
            holding = [
                Holder(
                    namespace=state.pods[a.uid].fact.namespace,
                    name=state.pods[a.uid].fact.name,
                    memory_bytes=0,
                    compute_percent=0,
                    instance="",
                )
                for a in node.allocations.values()
                if name in dict(a.extended)
            ]
            holding.sort(key=lambda h: (h.namespace, h.name))
            yield (
                amount - free,
                node.name,
                Closest(
                    node=node.name,
                    device=name,
                    reason=code,
                    free_count=free,
                    short={"count": amount - free},
                    holders=tuple(holding),
                ),
            )
