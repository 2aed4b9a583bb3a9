"""What the counted reasons are about: which taint, label, resource, model or amount, in words.

A reason code says what kind of thing is in the way. Its reader needs the thing itself, and what
there is instead. Everything is read off the nodes that refused with the code, by the functions with
which they refuse.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from allotment.core import reasons
from allotment.core.explain.counterfactual import (
    expression_text,
    mode_keys,
    models_on,
    plain_resources,
    refusing_taints,
    taint_text,
    term_text,
    wrong_labels,
)
from allotment.core.explain.nodes import FITS, fits_emptied, present
from allotment.core.explain.schema import Lack
from allotment.core.explain.views import card_word, model_text
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.devices.choosing import model_wanted
from allotment.core.placement.devices.free import need_memory_mib
from allotment.core.placement.rules.interpod import claims_note
from allotment.core.placement.rules.predicates import extended_lack, family_lack
from allotment.core.reasons import shown_cause
from allotment.core.units import bytes_text, cpu_text, mib_text
from allotment_proto.facts import PodRequest, Taint

_SHOWN = 4
"""How many things of one kind are named; the others are counted."""


def lacks(state: ClusterState, request: PodRequest, answers: Sequence[str]) -> tuple[Lack, ...]:
    """What stands behind each counted reason, that of the cause first. `answers` are those of
    `nodes.codes`. Nothing if a node takes it: then the nodes are not why the pod waits.
    """
    if FITS in answers:
        return ()
    refusing: dict[str, list[Node]] = {}
    for node, code in zip(present(state), answers, strict=True):
        if code != FITS:
            refusing.setdefault(code, []).append(node)
    counts = tuple((code, len(nodes)) for code, nodes in refusing.items())
    cause = shown_cause(counts) if counts else ""
    ordered = sorted(counts, key=lambda item: (item[0] != cause, -item[1], item[0]))
    return tuple(
        Lack(code=code, nodes=number, text=text)
        for code, number in ordered
        for text in _texts(state, request, code, refusing[code])
    )


def _texts(
    state: ClusterState, request: PodRequest, code: str, nodes: Sequence[Node]
) -> Iterator[str]:
    words = _WORDS.get(code)
    return iter(()) if words is None else words(state, request, nodes)


def beyond_any_node(state: ClusterState, request: PodRequest) -> str:
    """Which of its host's CPU and memory is more than the largest node has; empty if none is."""
    facts = [node.fact for node in present(state) if node.fact is not None]
    cpu = max((fact.cpu_milli for fact in facts), default=0)
    memory = max((fact.memory_bytes for fact in facts), default=0)
    found = []
    if request.cpu_milli > cpu:
        found.append(
            f"wants {cpu_text(request.cpu_milli)} CPUs; the largest node has {cpu_text(cpu)}"
        )
    if request.memory_bytes > memory:
        found.append(
            f"wants {bytes_text(request.memory_bytes)} of host memory; the largest node has "
            f"{bytes_text(memory)}"
        )
    return "; ".join(found)


def _taints(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    counts = Counter(taint for node in nodes for taint in set(refusing_taints(node, request)))
    for taint, number in sorted(counts.items(), key=lambda item: (-item[1], taint_text(item[0])))[
        :_SHOWN
    ]:
        yield (
            f"{_nodes(number)} the taint {taint_text(taint)}; the toleration to add: "
            f"{_toleration_text(taint)}"
        )


def _toleration_text(taint: Taint) -> str:
    """The toleration of a taint as it is written in YAML, on one line."""
    if taint.value:
        return (
            f"{{key: {taint.key}, operator: Equal, value: {taint.value}, effect: {taint.effect}}}"
        )
    return f"{{key: {taint.key}, operator: Exists, effect: {taint.effect}}}"


def _labels(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    """Which labels of the selector are not there, and what those nodes have instead."""
    counts = Counter(label for node in nodes for label in wrong_labels(node, request))
    for (key, value), number in counts.most_common(_SHOWN):
        there = Counter(node.labels[key] for node in nodes if key in node.labels)
        there.pop(value, None)
        instead = f"; {key} is there {_counted(there)}" if there else f"; none of them has {key}"
        yield f"nodeSelector {key}={value} is not on {_of(number, nodes)}{instead}"


def _affinity(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    terms = request.constraints.affinity
    if terms:
        wanted = " or ".join(term_text(term) for term in terms[:_SHOWN])
        yield f"the required node affinity ({wanted}) does not match {_of(len(nodes), nodes)}"


def _models(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    chosen = request.selection
    if chosen.counted:
        return  # a note of the decision says it
    there = Counter(model for node in nodes for model in set(models_on(node, request)))
    if chosen.use_types is not None:
        asked = f"wanted: {', '.join(chosen.use_types)}"
    elif chosen.nouse_types is not None:
        asked = f"not wanted: {', '.join(chosen.nouse_types)}"
    else:
        asked = f"wanted: {', '.join(sorted({d.chip for d in request.devices if d.chip}))}"
    other = Counter({model: n for model, n in there.items() if not model_wanted(model, chosen)})
    if other:
        yield f"the models there are {_counted(other, model_text)}; {asked}"


def _modes(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    asked = request.selection.mode
    said = f"the pod demands {asked}" if asked else "the pod names no mode"
    for key, family in mode_keys(request).items():
        having = [node for node in nodes if family in node.ledgers]
        there = Counter(node.ledgers[family].mode for node in having)
        for mode, number in there.most_common(_SHOWN):
            named = msgspec.structs.replace(
                request, selection=msgspec.structs.replace(request.selection, mode=mode)
            )
            would_fit = any(
                node.ledgers[family].mode == mode and fits_emptied(state, node, named)
                for node in having
            )
            more = f"; to use them name {key}: {mode}" if would_fit else ""
            yield f"{_nodes(number)} the mode {mode}, and {said}{more}"


def _selected(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    chosen = request.selection
    if chosen.use_ids is not None:
        named = ", ".join(chosen.use_ids[:_SHOWN])
        yield f"no card of theirs has an id that the pod names: {named}"
    if chosen.nouse_ids is not None:
        yield f"the pod refuses cards by id: {', '.join(chosen.nouse_ids[:_SHOWN])}"
    if chosen.indexes is not None:
        indexes = ", ".join(map(str, chosen.indexes[:_SHOWN]))
        yield f"the pod accepts no card but those of index {indexes}"
    if chosen.avoided:
        yield "pods of the same owner could not start on some of these cards"


def _cpu(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    facts = [node.fact for node in present(state) if node.fact is not None]
    largest = max((fact.cpu_milli for fact in facts), default=0)
    free = max(node.cpu_milli_free for node in nodes)
    yield (
        f"wants {cpu_text(request.cpu_milli)} CPUs; the largest node has {cpu_text(largest)}, and "
        f"the most that is free on these nodes is {cpu_text(max(free, 0))}"
    )


def _memory(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    facts = [node.fact for node in present(state) if node.fact is not None]
    largest = max((fact.memory_bytes for fact in facts), default=0)
    free = max(node.memory_bytes_free for node in nodes)
    yield (
        f"wants {bytes_text(request.memory_bytes)} of host memory; the largest node has "
        f"{bytes_text(largest)}, and the most that is free on these nodes is "
        f"{bytes_text(max(free, 0))}"
    )


def _cards(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    for wanted in request.devices:
        ledgers = (node.ledgers.get(wanted.family) for node in present(state))
        most = max((len(ledger.cards) for ledger in ledgers if ledger is not None), default=0)
        if most < wanted.count:
            yield f"wants {wanted.count} cards on one node; the largest node has {most}"
    yield from _resources(state, request, nodes)


def _no_devices(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    """Which of the things that the pod asks for are nowhere together."""
    families = list(dict.fromkeys(wanted.family for wanted in request.devices))
    plain = [name for name, _ in plain_resources(state, request) if name.endswith("/gpu")]
    if not families or not plain:
        return
    there = [
        node
        for node in present(state)
        if all(family_lack(node, family, state.policy) is None for family in families)
        and all(name in node.extended_free for name in plain)
    ]
    if not there:
        yield f"no node has both {' and '.join([*(f'{f} devices' for f in families), *plain])}"


def _resources(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    for name, amount in request.extended:
        short = [node for node in nodes if extended_lack(node, name, amount) is not None]
        listing = [node for node in present(state) if name in node.extended_free]
        if not short or not listing:
            continue  # what no node lists is said of the whole cluster
        facts = (dict(node.fact.extended) for node in listing if node.fact is not None)
        largest = max(fact.get(name, 0) for fact in facts)
        free = max(max(node.extended_free.get(name, 0) for node in short), 0)
        yield (
            f"wants {name}: {amount}; the largest node has {largest}, and the most that is free on "
            f"these nodes is {free}"
        )


def _card_memory(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    """Only of what is more than any card has: else the closest cards say it."""
    for wanted in request.devices:
        cards = [
            card
            for node in present(state)
            if wanted.family in node.ledgers
            for card in node.ledgers[wanted.family].cards
            if model_wanted(card.fact.model, request.selection)
        ]
        needs = [need_memory_mib(wanted, c.fact.memory_mib, c.table) for c in cards]
        largest = max((card.fact.memory_mib for card in cards), default=0)
        if needs and min(needs) > largest:
            word = card_word(wanted.family)
            yield (
                f"wants {mib_text(min(needs))} of one {word}; the largest {word} that the pod "
                f"accepts has {mib_text(largest)}"
            )


def _ports(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    ports = ", ".join(f"{port.port}/{port.protocol}" for port in request.company.ports)
    yield f"wants the host port {ports}"


def _sole(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    yield from claims_note(state, request, ((reasons.CLAIM_IN_USE, 1),))


def _near(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    for term in request.company.near[:_SHOWN]:
        wanted = " and ".join(expression_text(e) for e in term.selector) or "any labels"
        yield f"must be near a pod with {wanted} in the same {term.topology_key}"


def _away(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    for term in request.company.away[:_SHOWN]:
        wanted = " and ".join(expression_text(e) for e in term.selector) or "any labels"
        yield f"must not be near a pod with {wanted} in the same {term.topology_key}"


def _spread(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    for rule in [rule for rule in request.company.spread if rule.is_required][:_SHOWN]:
        yield f"spreads over {rule.term.topology_key} with maxSkew {rule.max_skew}"


def _cordoned(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    yield f"cordoned: {_named(node.name for node in nodes)}"


def _not_ready(state: ClusterState, request: PodRequest, nodes: Sequence[Node]) -> Iterator[str]:
    yield f"not ready: {_named(node.name for node in nodes)}"


def _named(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{', '.join(found[:_SHOWN])}{more}"


def _counted(there: Counter[str], shown: Callable[[str], str] = str) -> str:
    """``A100 (3 nodes), T4 (1 node)``, the most frequent first."""
    found = sorted(there.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{shown(text)} ({n} node{'s' * (n != 1)})" for text, n in found]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"{', '.join(named[:_SHOWN])}{more}"


def _nodes(number: int) -> str:
    return f"{number} nodes have" if number != 1 else "1 node has"


def _of(number: int, nodes: Sequence[Node]) -> str:
    return f"{number} of these {len(nodes)} nodes" if len(nodes) > 1 else f"node {nodes[0].name}"


Words = Callable[[ClusterState, PodRequest, Sequence[Node]], Iterator[str]]
_WORDS: dict[str, Words] = {
    reasons.NODE_NOT_READY: _not_ready,
    reasons.NODE_CORDONED: _cordoned,
    reasons.TAINT_NOT_TOLERATED: _taints,
    reasons.SELECTOR_MISMATCH: _labels,
    reasons.AFFINITY_MISMATCH: _affinity,
    reasons.HOST_PORT_TAKEN: _ports,
    reasons.CLAIM_IN_USE: _sole,
    reasons.POD_AFFINITY_MISMATCH: _near,
    reasons.POD_ANTI_AFFINITY: _away,
    reasons.SPREAD_MISMATCH: _spread,
    reasons.INSUFFICIENT_CPU: _cpu,
    reasons.INSUFFICIENT_MEMORY: _memory,
    reasons.NO_GPU: _no_devices,
    reasons.GPU_MODE_MISMATCH: _modes,
    reasons.NOT_ENOUGH_GPUS_ON_NODE: _cards,
    reasons.GPU_NOT_SELECTED: _selected,
    reasons.GPU_MODEL_MISMATCH: _models,
    reasons.INSUFFICIENT_GPU_MEMORY: _card_memory,
    reasons.INSUFFICIENT_RESOURCE: _resources,
}
"""By code, what its refusals are about. Codes that are missing say it all."""
