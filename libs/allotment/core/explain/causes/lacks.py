"""The details behind the counted reasons: which taint, label, model, holder or amount, in words.

A reason code names the kind of obstacle. Its reader needs the obstacle itself, and the alternatives
that exist. All details come from the nodes that reject the pod for it, by the functions that
reject.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from allotment.core import reasons
from allotment.core.explain.causes.counterfactual import (
    expression_text,
    mode_keys,
    models_on,
    plain_resources,
    refusing_taints,
    taint_text,
    term_text,
    toleration_text,
    wrong_labels,
)
from allotment.core.explain.causes.obstacles import FITS, Emptied, Gap, gaps, present
from allotment.core.explain.rows.schema import Lack
from allotment.core.explain.rows.views import card_name, card_word, model_text
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.ledger.partitions.mig import profile_name
from allotment.core.placement.devices import FAMILIES, by_family
from allotment.core.placement.devices.base import CORES_WHOLE_PCT
from allotment.core.placement.devices.choosing import card_refusal, model_wanted, rules_of
from allotment.core.placement.devices.free import Free, need_memory_mib
from allotment.core.placement.rules.attachments import attaching
from allotment.core.placement.rules.bounds import texts_of
from allotment.core.placement.rules.interpod import Meets, claims_note, count_on
from allotment.core.placement.rules.predicates import extended_lack, family_lack
from allotment.core.placement.rules.selectors import affinity_matches
from allotment.core.units import bytes_text, cpu_text, mib_text, resource_text
from allotment_proto.facts import DeviceRequest, PodRequest, PodTerm

_SHOWN = 4
"""How many things of one kind are named; the others are counted."""
_HOLDERS_SHOWN = 3


class About(NamedTuple):
    """Nodes that refuse a request for one reason."""

    state: ClusterState
    request: PodRequest
    nodes: Sequence[Node]
    is_all: bool = False
    """Whether it is all that keeps these nodes from taking the request."""
    is_lasting: bool = False
    """Whether it would keep them from it if no pod ran in the cluster."""


def lacks(state: ClusterState, request: PodRequest, answers: Sequence[str]) -> tuple[Lack, ...]:
    """What is in the way, that of the nearest nodes first: the first sentence is the cause.

    `answers` are those of `nodes.codes`. Nothing if a node takes the request: then the nodes are
    not why the pod waits.
    """
    if FITS in answers:
        return ()
    found: list[Lack] = []
    for gap in gaps(state, request, answers):
        known = {lack.code for lack in found}
        is_cause = not found
        for code in gap.codes if is_cause else gap.codes[:1]:
            if code not in known:
                found += _of(state, request, code, gap, is_cause=is_cause)
    return tuple(found)


def _of(
    state: ClusterState, request: PodRequest, code: str, gap: Gap, *, is_cause: bool
) -> Iterator[Lack]:
    about = About(
        state,
        request,
        gap.nodes,
        is_all=len(gap.codes) == 1 and not gap.is_final,
        is_lasting=code in gap.lasting,
    )
    words = _WORDS.get(code)
    texts = tuple(words(about)) if words is not None else ()
    for text in texts or (_general(code, about) if is_cause else ()):
        yield Lack(code=code, nodes=len(gap.nodes), text=text)


def _general(code: str, about: About) -> tuple[str, ...]:
    """The table's text for a code without words of its own."""
    kept = texts_of(about.request, [(code, 1)])
    if kept:
        return kept
    reason = reasons.REASONS.get(code)
    text = code if reason is None else reason.text
    return (f"{_named(node.name for node in about.nodes)}: {text}",)


def _largest_node(state: ClusterState) -> tuple[int, int]:
    """The most CPU (milli) and the most memory (bytes) that a node has."""
    facts = [node.fact for node in present(state) if node.fact is not None]
    return (
        max((fact.cpu_milli for fact in facts), default=0),
        max((fact.memory_bytes for fact in facts), default=0),
    )


# The node


def _cordoned(about: About) -> Iterator[str]:
    yield _but(about, "cordoned")


def _not_ready(about: About) -> Iterator[str]:
    yield _but(about, "not ready")


def _but(about: About, what: str) -> str:
    """``gpu-a100 fits but is cordoned``."""
    one = len(about.nodes) == 1
    fits = ("fits but " if one else "fit but ") if about.is_all else ""
    return f"{_named(node.name for node in about.nodes)} {fits}{'is' if one else 'are'} {what}"


def _taints(about: About) -> Iterator[str]:
    request = about.request
    counts = Counter(taint for node in about.nodes for taint in set(refusing_taints(node, request)))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], taint_text(item[0])))
    for taint, number in ordered[:_SHOWN]:
        having = [node for node in about.nodes if taint in refusing_taints(node, request)]
        verb = "has" if number == 1 else "have"
        fits = f"fit{'s' * (number == 1)} but {verb}" if about.is_all else verb
        yield (
            f"{_named(node.name for node in having)} {fits} the taint {taint_text(taint)}, which "
            f"the pod does not tolerate; the toleration to add: {toleration_text(taint)}"
        )


# What the pod says about nodes


def _labels(about: About) -> Iterator[str]:
    """Which labels of the selector are missing, and what those nodes have instead."""
    nodes = about.nodes
    counts = Counter(label for node in nodes for label in wrong_labels(node, about.request))
    for (key, value), number in counts.most_common(_SHOWN):
        there = Counter(node.labels[key] for node in nodes if key in node.labels)
        there.pop(value, None)
        instead = f"they have {key} {_counted(there)}" if there else f"none of them has {key}"
        yield f"nodeSelector {key}={value} excludes {_those(about, number)}; {instead}"


def _affinity(about: About) -> Iterator[str]:
    terms = about.request.constraints.affinity
    if terms:
        wanted = " or ".join(term_text(term) for term in terms[:_SHOWN])
        yield f"required node affinity ({wanted}) excludes {_those(about, len(about.nodes))}"


def _reach(about: About) -> Iterator[str]:
    """From where the volumes of the pod can be reached that these nodes cannot reach."""
    for terms in about.request.constraints.volumes[:_SHOWN]:
        out = [n for n in about.nodes if not affinity_matches(terms, n.labels, n.name)]
        if out:
            where = " or ".join(term_text(term) for term in terms[:_SHOWN])
            yield (
                f"a volume of the pod can be reached only from nodes with {where}, which excludes "
                f"{_those(about, len(out))}"
            )


def _those(about: About, number: int) -> str:
    """Nodes that a rule excludes, by name if it is one."""
    fits = " that would fit" if about.is_all else ""
    if number == 1 and len(about.nodes) == 1:
        return f"node {about.nodes[0].name}{',' * bool(fits)}{' which would fit' * bool(fits)}"
    each = f"all {number} nodes" if number == len(present(about.state)) else _number(number, "node")
    return f"{each}{fits}"


# Which cards


def _models(about: About) -> Iterator[str]:
    request, chosen = about.request, about.request.selection
    if chosen.counted:
        return  # a note of the decision says it
    there = Counter(
        model for node in present(about.state) for model in set(models_on(node, request))
    )
    other = Counter({model: n for model, n in there.items() if not model_wanted(model, chosen)})
    if not other:
        return
    if chosen.use_types is not None:
        asked = f"model {' or '.join(chosen.use_types)} requested"
    elif chosen.nouse_types is not None:
        asked = f"model {' or '.join(chosen.nouse_types)} excluded"
    else:
        asked = (
            f"model {' or '.join(sorted({d.chip for d in request.devices if d.chip}))} requested"
        )
    same = there.keys() - other.keys()
    if same:
        yield f"{_these(about)} {_counted(_here(about), model_text)}; {asked}"
    else:
        yield f"{asked}; the cluster has {_counted(other, model_text)}"


def _here(about: About) -> Counter[str]:
    """The models on these nodes, by how many have them."""
    return Counter(m for node in about.nodes for m in set(models_on(node, about.request)))


def _modes(about: About) -> Iterator[str]:
    request = about.request
    asked = request.selection.mode
    said = f"the pod requests {asked}" if asked else "the pod names no mode"
    for key, family in mode_keys(request).items():
        having = [node for node in about.nodes if family in node.ledgers]
        there = Counter(node.ledgers[family].mode for node in having)
        empty = Emptied(about.state)
        for mode, number in there.most_common(_SHOWN):
            named = msgspec.structs.replace(
                request, selection=msgspec.structs.replace(request.selection, mode=mode)
            )
            of_mode = [node for node in having if node.ledgers[family].mode == mode]
            would_fit = any(empty.refuses(node, named) is None for node in of_mode)
            more = f"; to use {'it' if number == 1 else 'them'}, set {key}: {mode}"
            yield (
                f"{_named(node.name for node in of_mode)} share{'s' * (number == 1)} cards in mode "
                f"{mode}, and {said}{more * would_fit}"
            )


def _selected(about: About) -> Iterator[str]:
    chosen = about.request.selection
    where = _named(node.name for node in about.nodes)
    if chosen.use_ids is not None:
        yield f"no card on {where} has a requested id: {', '.join(chosen.use_ids[:_SHOWN])}"
    if chosen.nouse_ids is not None:
        yield f"the pod excludes cards of {where} by id: {', '.join(chosen.nouse_ids[:_SHOWN])}"
    if chosen.indexes is not None:
        families = by_family(about.request)
        there = sorted(
            {
                card.fact.index
                for node in about.nodes
                for family, ledger in node.ledgers.items()
                if family in families
                for card in ledger.cards
            }
        )
        indexes = ", ".join(map(str, chosen.indexes[:_SHOWN]))
        have = "has" if len(about.nodes) == 1 else "have"
        here = f"{there[0]} to {there[-1]}" if len(there) > 1 else "".join(map(str, there))
        few = len(chosen.indexes) < max(
            (wanted.count for wanted in about.request.devices), default=0
        )
        why = " (fewer than the cards it requests)" if few else ""
        yield f"the pod accepts only card index {indexes}{why}; {where} {have} index {here}"
    if chosen.avoided:
        yield "pods of the same owner could not start on some of these cards"


# Room


def _cpu(about: About) -> Iterator[str]:
    largest, _ = _largest_node(about.state)
    wants = about.request.cpu_milli
    if wants > largest:
        yield f"{cpu_text(wants)} CPUs requested; the largest node has {cpu_text(largest)}"
        return
    freest = max(about.nodes, key=lambda node: node.cpu_milli_free)
    free = cpu_text(max(freest.cpu_milli_free, 0))
    held = Counter[str]()
    for allocation in freest.allocations.values():
        held[_who(about.state, allocation.uid)] += allocation.cpu_milli
    yield (
        f"not enough CPU: {cpu_text(wants)} requested, {_most(about)} {free} free on "
        f"{freest.name}{_in_use(_holders(held, cpu_text))}"
    )


def _memory(about: About) -> Iterator[str]:
    _, largest = _largest_node(about.state)
    wants = about.request.memory_bytes
    if wants > largest:
        yield (
            f"{bytes_text(wants)} of host memory requested; the largest node has "
            f"{bytes_text(largest)}"
        )
        return
    freest = max(about.nodes, key=lambda node: node.memory_bytes_free)
    free = bytes_text(max(freest.memory_bytes_free, 0))
    held = Counter[str]()
    for allocation in freest.allocations.values():
        held[_who(about.state, allocation.uid)] += allocation.memory_bytes
    yield (
        f"not enough host memory: {bytes_text(wants)} requested, {_most(about)} {free} free on "
        f"{freest.name}{_in_use(_holders(held, bytes_text))}"
    )


def _pods(about: About) -> Iterator[str]:
    run = "runs" if len(about.nodes) == 1 else "run"
    yield f"{_named(node.name for node in about.nodes)} already {run} the maximum number of pods"


def _attached(about: About) -> Iterator[str]:
    """For each driver whose volume limit the nodes exceed, the node with the most room."""
    over = {
        driver.driver: max(
            (each.limit - each.attached, node.name, each)
            for node in about.nodes
            for each in attaching(node, about.request)
            if each.driver == driver.driver
        )
        for node in about.nodes
        for driver in attaching(node, about.request)
        if driver.is_too_much
    }
    for name, (_, node_name, driver) in sorted(over.items())[:_SHOWN]:
        yield (
            f"{node_name} has {driver.attached} of at most {driver.limit} volumes of {name} "
            f"attached, and the pod needs {driver.new} more"
        )


def _cards(about: About) -> Iterator[str]:
    for wanted in about.request.devices:
        ledgers = (node.ledgers.get(wanted.family) for node in present(about.state))
        most = max((len(ledger.cards) for ledger in ledgers if ledger is not None), default=0)
        if most < wanted.count:
            cards = _number(wanted.count, card_word(wanted.family))
            yield f"{cards} requested on one node; the largest node has {most}"
    yield from _resources(about)


def _no_devices(about: About) -> Iterator[str]:
    """Which of the requested resources no node has together."""
    state, request = about.state, about.request
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


def _resources(about: About) -> Iterator[str]:
    for name, amount in about.request.extended:
        short = [node for node in about.nodes if extended_lack(node, name, amount) is not None]
        listing = [node for node in present(about.state) if name in node.extended_free]
        if not short:
            continue
        if not listing:
            yield f"{name}: no node lists it; a node does once its device plugin runs there"
            continue
        facts = (dict(node.fact.extended) for node in listing if node.fact is not None)
        largest = max(fact.get(name, 0) for fact in facts)
        if amount > largest:
            asked, most = (resource_text(name, n * 1000) for n in (amount, largest))
            yield f"{name}: {asked} requested; the largest node has {most}"
            continue
        freest = max(short, key=lambda node: node.extended_free.get(name, 0))
        free = max(freest.extended_free.get(name, 0), 0)
        held = Counter[str]()
        for allocation in freest.allocations.values():
            held[_who(about.state, allocation.uid)] += dict(allocation.extended).get(name, 0)
        yield (
            f"{name}: {amount} requested, {_most(about)} {free} free on "
            f"{freest.name}{_in_use(_holders(held, str))}"
        )


class _Suitable(NamedTuple):
    """A card that the pod accepts, what it lacks, and what the pod asks of it."""

    node: Node
    card: Card
    wanted: DeviceRequest
    code: str | None


def _suitable(about: About) -> Iterator[_Suitable]:
    """The cards of the nodes that the pod accepts, for the first device request that lacks one."""
    families = by_family(about.request)
    for node in about.nodes:
        rules = rules_of(about.request, about.state.policy, node.name)
        for family, asks in families.items():
            ledger = node.ledgers.get(family)
            for card in ledger.cards if ledger is not None and family in FAMILIES else ():
                codes = [
                    card_refusal(Free(card), wanted, rules, FAMILIES[family]) for wanted in asks
                ]
                at = next((n for n, code in enumerate(codes) if code is not None), 0)
                if codes[at] is None or codes[at] in reasons.BUSY:
                    yield _Suitable(node, card, asks[at], codes[at])


def _card_room(about: About) -> Iterator[str]:
    """That suitable cards are in use, and by which pods; or that a card is too small even when
    idle.
    """
    found = list(_suitable(about))
    if about.is_lasting or not found:
        yield from _too_small(about)
        return
    wanted = max((each.wanted for each in found), key=lambda w: w.count)
    noun = _noun(found)
    fitting = Counter(each.node.name for each in found if each.code is None)
    held = _in_use(_card_holders(about, found))
    if wanted.cores_pct == CORES_WHOLE_PCT and not fitting:
        one, by = len(found) == 1, _by(_card_holders(about, found))
        cards = f"the only suitable {noun} is" if one else f"all {len(found)} suitable {noun}s are"
        yield f"{cards} in use{by}; {_number(wanted.count, f'idle {noun}')} requested"
        return
    if fitting:
        name, most = max(fitting.items(), key=lambda item: (item[1], item[0]))
        need = _number(wanted.count, noun)
        free = f" with {_amount(wanted)} free" if _amount(wanted) else ""
        yield f"{need}{free} requested on one node; {name} has {most}{held}"
        return
    best = max(found, key=lambda each: (each.card.free_slots > 0, each.card.free_memory_mib))
    where = f"on {best.node.name}/{card_name(best.card)}{_in_use(_card_holders(about, [best]))}"
    if best.code == reasons.INSUFFICIENT_GPU_MEMORY:
        profile = _as_instance(best.card, wanted, about.state.policy.mig_order)
        yield (
            f"not enough {noun} memory: {_memory_asked(wanted)}{profile} requested, {_most(about)} "
            f"{mib_text(max(best.card.free_memory_mib, 0))} free {where}"
        )
    elif best.code == reasons.INSUFFICIENT_GPU_COMPUTE:
        best = max(found, key=lambda each: each.card.free_cores_pct)
        where = f"on {best.node.name}/{card_name(best.card)}{_in_use(_card_holders(about, [best]))}"
        yield (
            f"not enough {noun} compute: {wanted.cores_pct}% requested, {_most(about)} "
            f"{best.card.free_cores_pct}% free {where}"
        )
    elif best.code == reasons.SHARE_LIMIT_REACHED:
        yield f"every suitable {noun} already has its maximum number of pods{held}"


def _card_holders(about: About, found: Sequence[_Suitable]) -> str:
    """The pods that hold parts of these cards, and the number of cards if several."""
    held = Counter[str]()
    for each in found:
        for uid in {key[0] for key in each.card.holders}:
            held[_who(about.state, uid)] += 1
    return _holders(held, lambda number: f"{number} cards" if number > 1 else "")


def _too_small(about: About) -> Iterator[str]:
    """The pod requests more memory per card than any card that it accepts has."""
    for wanted in about.request.devices:
        cards = [
            card
            for node in present(about.state)
            if wanted.family in node.ledgers
            for card in node.ledgers[wanted.family].cards
            if model_wanted(card.fact.model, about.request.selection)
        ]
        needs = [need_memory_mib(wanted, c.fact.memory_mib, c.table) for c in cards]
        largest = max((card.fact.memory_mib for card in cards), default=0)
        if needs and min(needs) > largest:
            word = card_word(wanted.family)
            yield (
                f"{mib_text(min(needs))} of one {word} requested; the largest {word} that the pod "
                f"accepts has {mib_text(largest)}"
            )


def _noun(found: Sequence[_Suitable]) -> str:
    """``A100 GPU`` where all suitable cards are of one model, else ``GPU``."""
    models = {each.card.fact.model for each in found}
    word = card_word(found[0].wanted.family)
    return f"{model_text(models.pop())} {word}" if len(models) == 1 else word


def _as_instance(card: Card, wanted: DeviceRequest, order: str) -> str:
    """The MIG profile that an unpartitioned card would give: `` (MIG 2g.10gb)``; empty without."""
    if card.partitioner is None:
        return ""
    empty = card.partitioner.state(card.fact, card.table, ())
    piece = card.partitioner.piece(card.fact, card.table, empty, wanted, order)
    if piece is None:
        return ""
    profile = profile_name(card.table, card.partitioner.name(card.table, piece, ()))
    return f" (MIG {profile})" if profile else ""


def _memory_asked(wanted: DeviceRequest) -> str:
    return f"{wanted.memory_pct}%" if wanted.memory_pct else mib_text(wanted.memory_mib)


def _amount(wanted: DeviceRequest) -> str:
    """``8.0 GiB and 50% compute``; empty for a share of any size."""
    parts = [_memory_asked(wanted)] if wanted.memory_pct or wanted.memory_mib else []
    parts += [f"{wanted.cores_pct}% compute"] if wanted.cores_pct else []
    return " and ".join(parts)


# Other pods


def _ports(about: About) -> Iterator[str]:
    ports = ", ".join(f"{port.port}/{port.protocol}" for port in about.request.company.ports)
    yield f"host port {ports} is in use on {_named(node.name for node in about.nodes)}"


def _sole(about: About) -> Iterator[str]:
    yield from claims_note(about.state, about.request, ((reasons.CLAIM_IN_USE, 1),))


def _near(about: About) -> Iterator[str]:
    for term in about.request.company.near[:_SHOWN]:
        wanted = _selector_text(term)
        if not any(count_on(node, Meets((term,))) for node in present(about.state)):
            where = "in the cluster"
        else:
            where = f"in the same {term.topology_key}"
        yield f"required pod affinity: no pod with {wanted} runs {where}"


def _away(about: About) -> Iterator[str]:
    for term in about.request.company.away[:_SHOWN]:
        yield (
            f"required pod anti-affinity: a pod with {_selector_text(term)} runs in each "
            f"{term.topology_key} that would fit"
        )


def _selector_text(term: PodTerm) -> str:
    return " and ".join(expression_text(e) for e in term.selector) or "any labels"


def _spread(about: About) -> Iterator[str]:
    for rule in [rule for rule in about.request.company.spread if rule.is_required][:_SHOWN]:
        key = rule.term.topology_key
        without = [node for node in about.nodes if key not in node.labels]
        if len(without) == len(about.nodes):
            yield f"no node that would fit has the label {key} of the topology spread constraint"
        else:
            yield (
                f"topology spread over {key} with maxSkew {rule.max_skew}: each {key} with room "
                "already has too many of these pods"
            )


# Words


def _who(state: ClusterState, uid: str) -> str:
    pod = state.pods.get(uid)
    return uid if pod is None else f"{pod.fact.namespace}/{pod.fact.name}"


def _holders(held: Counter[str], shown: Callable[[int], str]) -> str:
    """``default/hog 6 cards, default/fair 2 cards``; empty if the cards are idle."""
    found = sorted(((n, who) for who, n in held.items() if n), key=lambda item: (-item[0], item[1]))
    named = [f"{who} {shown(number)}".rstrip() for number, who in found[:_HOLDERS_SHOWN]]
    more = len(found) - len(named)
    return ", ".join(named) + (f" and {_number(more, 'more pod')}" if more else "")


def _by(holders: str) -> str:
    return f" by {holders}" if holders else ""


def _in_use(holders: str) -> str:
    return f" (in use{_by(holders)})" if holders else ""


def _most(about: About) -> str:
    return "at most" if len(about.nodes) > 1 else "only"


def _these(about: About) -> str:
    return (
        f"{_named(node.name for node in about.nodes)} {'has' if len(about.nodes) == 1 else 'have'}"
    )


def _named(names: Iterable[str]) -> str:
    """``gpu-a``, ``gpu-a and gpu-b``, ``gpu-a, gpu-b, gpu-c, gpu-d and 3 more``."""
    found = sorted(names)
    if len(found) > _SHOWN:
        return f"{', '.join(found[:_SHOWN])} and {len(found) - _SHOWN} more"
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found)


def _counted(there: Counter[str], shown: Callable[[str], str] = str) -> str:
    """``A100 (3 nodes), T4 (1 node)``, the most frequent first."""
    found = sorted(there.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{shown(text)} ({_number(n, 'node')})" for text, n in found]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"{', '.join(named[:_SHOWN])}{more}"


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


Words = Callable[[About], Iterator[str]]
_WORDS: dict[str, Words] = {
    reasons.NODE_NOT_READY: _not_ready,
    reasons.NODE_CORDONED: _cordoned,
    reasons.TAINT_NOT_TOLERATED: _taints,
    reasons.SELECTOR_MISMATCH: _labels,
    reasons.AFFINITY_MISMATCH: _affinity,
    reasons.VOLUME_OUT_OF_REACH: _reach,
    reasons.VOLUME_LIMIT_REACHED: _attached,
    reasons.HOST_PORT_TAKEN: _ports,
    reasons.CLAIM_IN_USE: _sole,
    reasons.POD_AFFINITY_MISMATCH: _near,
    reasons.POD_ANTI_AFFINITY: _away,
    reasons.SPREAD_MISMATCH: _spread,
    reasons.POD_LIMIT_REACHED: _pods,
    reasons.INSUFFICIENT_CPU: _cpu,
    reasons.INSUFFICIENT_MEMORY: _memory,
    reasons.NO_GPU: _no_devices,
    reasons.GPU_MODE_MISMATCH: _modes,
    reasons.NOT_ENOUGH_GPUS_ON_NODE: _cards,
    reasons.GPU_NOT_SELECTED: _selected,
    reasons.GPU_MODEL_MISMATCH: _models,
    reasons.INSUFFICIENT_RESOURCE: _resources,
    **dict.fromkeys(reasons.BUSY, _card_room),
}
"""By code, what its refusals are about. Codes that are missing say it all."""
