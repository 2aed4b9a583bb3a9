"""What a rejected pod could change so that nodes take it: each change is carried out and checked.

Changes come from what refuses the pod, one at a time: a node is charged to the first check that it
fails, so a change can only help on nodes whose check it is about, and only those are asked. Each
is asked with `predicates.fits`, so that nothing is offered that would not fit. Amounts are the
largest with which some node takes the pod; they are tried from the largest free amount downwards.

The work is bounded (`asked_most`): changes are few for each kind, and a search stops after
`_SEARCH_MAX` nodes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple, TypeVar

import msgspec

from allotment.core import reasons
from allotment.core.explain.causes.obstacles import Emptied, reopened
from allotment.core.explain.rows.schema import Change
from allotment.core.explain.rows.views import model_text
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import Allocation, ClusterState, Node
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import Sense, in_other_unit
from allotment.core.placement.devices.choosing import model_wanted
from allotment.core.placement.devices.foreign import (
    corrected,
    lines_text,
    names_text,
)
from allotment.core.placement.rules.counted_cards import models_of
from allotment.core.placement.rules.interpod import Around, look_around
from allotment.core.placement.rules.predicates import fits
from allotment.core.placement.rules.selectors import NO_SCHEDULE, tolerates
from allotment.core.placement.unserved import meant
from allotment.core.units import bytes_text, cpu_text, mib_text
from allotment_proto.facts import (
    ALONE,
    Amounts,
    DeviceRequest,
    Expression,
    NodeTerm,
    PodRequest,
    Taint,
    Toleration,
)
from allotment_proto.volcano import keys

_EACH_MAX = 3
"""How many changes of one kind are tried, those of most nodes first."""
_SEARCH_MAX = 64
"""How many nodes are asked at most to find the largest amount that fits."""
_ENDS_NODES_MAX = 32
_ENDS_PODS_MAX = 24
"""How many nodes, and how many pods on each, are checked for whether the end of pods makes room."""
_KINDS = 24
"""The most kinds of change for one pod: see `asked_most`."""
WHOLE = 1000
"""The size of a change that drops a whole amount. Sizes are permille of the request."""
_MEANT, ADDED, _REPLACED, DROPPED = 50, 100, 150, 200
"""The sizes of changes that reduce no amount: a typo is corrected, a taint accepted, a value
replaced, a requirement dropped.
"""
_HOSTNAME = "kubernetes.io/hostname"
"""A pod that selects an existing node by its name needs that node: offers of other nodes come after
the changes that help on it.
"""
_REMOVED = "− "
"""In front of a line that is to be removed from the manifest."""
OTHERS = 2000
"""Changes outside the pod come after all changes of the pod."""
_MIB = 1 << 20

Edit = Callable[[PodRequest], PodRequest]
"""Turns a request into the changed one."""


class Asks(NamedTuple):
    """The pod asks for something else."""

    edit: Edit


class Uncordoned(NamedTuple):
    """A node is ready and takes pods again."""

    node: str


class Ended(NamedTuple):
    """Pods are gone."""

    uids: tuple[str, ...]


class Elsewhere(NamedTuple):
    """The pod's group, or the pod without one, is in another queue."""

    queue: str


class Fewer(NamedTuple):
    """The group starts with so many pods."""

    least: int


class Ranked(NamedTuple):
    """The pods, and their group if they are in one, are of another PriorityClass."""

    name: str
    value: int


Deed = Asks | Uncordoned | Ended | Elsewhere | Fewer | Ranked
"""How a change is carried out."""


class Found(NamedTuple):
    """A change with which nodes take the pod."""

    text: str
    change: Change
    deed: Deed
    size: int
    """The smaller, the better: permille of the request that are given up."""
    nodes_fit: int


class Offer(NamedTuple):
    """A change before it was asked for."""

    text: str
    change: Change
    edit: Edit
    size: int


class Bench:
    """The nodes to ask, and how often they were asked. With `empty` they answer as if no pod ran in
    the cluster.
    """

    def __init__(
        self, state: ClusterState, nodes: Sequence[Node], empty: Emptied | None = None
    ) -> None:
        self.state = state
        self.nodes = nodes
        self._empty = empty
        self.asked = 0
        self._around: tuple[PodRequest, Around] | None = None

    def fits(self, node: Node, request: PodRequest) -> str | None:
        """The reason code with which a node refuses; None if it takes the request."""
        self.asked += 1
        if self._empty is not None:
            return self._empty.refuses(node, request)
        answer = fits(node, request, self.state.policy, around=self._look(request))
        return answer if isinstance(answer, str) else None

    def fits_instead(self, twin: Node, request: PodRequest) -> bool:
        """Whether the request fits on a node as it would be, next to all others as they are."""
        self.asked += 1
        around = None
        if request.company != ALONE:
            nodes = [twin if node.name == twin.name else node for node in self.nodes]
            around = look_around(nodes, request)
        return not isinstance(fits(twin, request, self.state.policy, around=around), str)

    def _look(self, request: PodRequest) -> Around | None:
        if request.company == ALONE:
            return None
        if self._around is None or self._around[0] is not request:
            self._around = request, look_around(self.nodes, request)
        return self._around[1]


def asked_most(nodes: int) -> int:
    """The most checks that `found_on` makes for so many nodes: a few on each node for each kind
    of change.
    """
    kinds = _KINDS * (2 * _EACH_MAX * nodes + _SEARCH_MAX)
    return kinds + _ENDS_NODES_MAX * (2 * _ENDS_PODS_MAX + 1)


def found_on(bench: Bench, request: PodRequest, *, is_empty: bool = False) -> list[Found]:
    """The changes each of which makes some of the nodes take a request that none takes now.

    `is_empty`: the nodes are asked as if they were empty, so that only what exists counts.
    """
    refusing: dict[str, list[Node]] = {}
    for node in bench.nodes:
        refusing.setdefault(bench.fits(node, request) or "", []).append(node)
    refusing.pop("", None)
    found: list[Found] = []
    for codes, offers in _SOURCES:
        nodes = [node for code in codes for node in refusing.get(code, ())]
        if not nodes:
            continue
        for offer in offers(bench, nodes, request):
            changed = offer.edit(request)
            if any(bench.fits(node, changed) is None for node in nodes):
                count = sum(bench.fits(node, changed) is None for node in bench.nodes)
                found.append(Found(offer.text, offer.change, Asks(offer.edit), offer.size, count))
    if not is_empty:
        found += _reopened(bench, refusing, request)
        busy = [node for code in reasons.CURED_BY_ROOM for node in refusing.get(code, ())]
        found += _ended(bench, busy, request)
    return sorted(found, key=rank)


def rank(found: Found) -> tuple[int, int, str]:
    """The smallest change first, then that with most nodes."""
    return found.size, -found.nodes_fit, found.text


# What the pod accepts


def _taints(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    for taint in _common(_only_taint(node, request) for node in nodes):
        toleration = Toleration(taint.key, "Equal", taint.value, taint.effect)
        yield Offer(
            f"tolerate {taint_text(taint)}",
            Change(
                op="add",
                path="/spec/tolerations/-",
                value=_toleration_json(taint),
                line=f"- {toleration_text(taint)}",
            ),
            _tolerating(toleration),
            ADDED,
        )


def _only_taint(node: Node, request: PodRequest) -> Taint | None:
    """The taint that keeps the pod off a node, if it is one alone."""
    against = refusing_taints(node, request)
    return against[0] if len(against) == 1 else None


def refusing_taints(node: Node, request: PodRequest) -> list[Taint]:
    """The taints of a node that the pod does not tolerate."""
    tolerations = request.constraints.tolerations
    taints = node.fact.taints if node.fact is not None else ()
    return [t for t in taints if t.effect in NO_SCHEDULE and not tolerates(t, tolerations)]


def taint_text(taint: Taint) -> str:
    """``dedicated=serving:NoSchedule``, as kubectl writes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def toleration_text(taint: Taint) -> str:
    """The toleration of a taint in YAML, on one line."""
    return f"{{{', '.join(f'{key}: {text}' for key, text in _toleration_json(taint).items())}}}"


def _toleration_json(taint: Taint) -> dict[str, str]:
    """The toleration of a taint, as in a manifest."""
    equal = {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
    exists = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    return equal if taint.value else exists


def _selectors(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    selector = request.constraints.node_selector
    known = {node.labels.get(_HOSTNAME) for node in bench.nodes}
    for key, value in selector:
        path = f"/spec/nodeSelector/{_escaped(key)}"
        others = [node for node in nodes if wrong_labels(node, request) == [(key, value)]]
        near = get_close_matches(value, [n.labels[key] for n in others if key in n.labels], 1)
        is_one_node = key == _HOSTNAME and value in known
        for there in _values(key, value, others):
            yield Offer(
                f"select {key}={there} in place of {key}={value}",
                Change(op="replace", path=path, value=there, line=f"{key}: {there}"),
                _selecting_nodes(key, there),
                OTHERS + 1 if is_one_node and there not in near else _REPLACED,
            )
        if others:
            yield Offer(
                f"drop the nodeSelector {key}={value}",
                Change(op="remove", path=path, line=f"{_REMOVED}{key}: {value}"),
                _selecting_nodes(key, None),
                DROPPED,
            )


def wrong_labels(node: Node, request: PodRequest) -> list[tuple[str, str]]:
    """The labels of the pod's nodeSelector that a node does not have."""
    selector = request.constraints.node_selector
    return [(key, value) for key, value in selector if node.labels.get(key) != value]


def _values(key: str, value: str, nodes: Sequence[Node]) -> list[str]:
    """The label's values on nodes: first the one that may be meant, then the most frequent."""
    there = _common(node.labels.get(key) for node in nodes)
    near = get_close_matches(value, there, 1)
    return list(dict.fromkeys([*near, *there]))[:_EACH_MAX]


def _affinity(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    terms = request.constraints.affinity
    required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
    if not terms:
        return
    if len(terms) == 1 and len(terms[0].labels) > 1:
        for number, expression in enumerate(terms[0].labels[:_EACH_MAX]):
            rest = (*terms[0].labels[:number], *terms[0].labels[number + 1 :])
            term = msgspec.structs.replace(terms[0], labels=rest)
            yield Offer(
                f"drop the node affinity {expression_text(expression)}",
                Change(
                    op="remove",
                    path=f"{required}/nodeSelectorTerms/0/matchExpressions/{number}",
                ),
                _affine((term,)),
                DROPPED,
            )
    yield Offer(
        "drop the required node affinity",
        Change(op="remove", path=required),
        _affine(()),
        DROPPED + 1,
    )


def expression_text(expression: Expression) -> str:
    """``zone in (a, b)``, ``gpu exists``, ``gpu does not exist``."""
    key, values = expression.key, ", ".join(expression.values)
    match expression.operator:
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} not in ({values})"
        case "Exists":
            return f"{key} exists"
        case "DoesNotExist":
            return f"{key} does not exist"
        case "Gt":
            return f"{key} > {values}"
        case "Lt":
            return f"{key} < {values}"
        case other:
            return f"{key} {other} {values}"


def term_text(term: NodeTerm) -> str:
    """A node selector term: ``zone in (a) and gpu exists``."""
    return " and ".join(expression_text(e) for e in (*term.labels, *term.fields)) or "nothing"


def _company(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    """What the pod says about other pods, each rule dropped by itself."""
    company = request.company
    affinity = "/spec/affinity/{}/requiredDuringSchedulingIgnoredDuringExecution"

    def without(text: str, path: str, **fields: object) -> Offer:
        return Offer(
            text,
            Change(op="remove", path=path),
            lambda asked: msgspec.structs.replace(
                asked, company=msgspec.structs.replace(asked.company, **fields)
            ),
            DROPPED,
        )

    if company.ports:
        ports = ", ".join(str(port.port) for port in company.ports)
        yield without(f"drop the host port {ports}", "/spec/containers/-/ports/hostPort", ports=())
    if company.near:
        yield without(
            "drop the required pod affinity",
            affinity.format("podAffinity"),
            near=(),
            near_self=False,
        )
    if company.away:
        yield without(
            "drop the required pod anti-affinity", affinity.format("podAntiAffinity"), away=()
        )
    required = [rule for rule in company.spread if rule.is_required]
    for rule in required[:_EACH_MAX]:
        left = tuple(other for other in company.spread if other is not rule)
        yield without(
            f"drop the topology spread constraint on {rule.term.topology_key}",
            "/spec/topologySpreadConstraints",
            spread=left,
        )


def _modes(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    for key, family in mode_keys(request).items():
        ledgers = (node.ledgers.get(family) for node in nodes)
        there = (ledger.mode for ledger in ledgers if ledger is not None)
        for mode in _common(mode for mode in there if mode != request.selection.mode):
            yield Offer(
                f"name the mode {mode} (annotation {key}: {mode})",
                Change(
                    op="replace" if request.selection.mode else "add",
                    path=f"/metadata/annotations/{_escaped(key)}",
                    value=mode,
                    line=f"{key}: {mode}",
                ),
                _selecting(mode=mode),
                ADDED,
            )


def mode_keys(request: PodRequest) -> dict[str, str]:
    """The annotations with which the pod can name a mode of its cards, each with their family."""
    families = dict.fromkeys(wanted.family for wanted in request.devices)
    known = [FAMILIES[name] for name in families if name in FAMILIES]
    return {family.mode_key: family.name for family in known if family.mode_key}


def _models(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    chosen = request.selection
    there = (
        model
        for node in nodes
        for model in sorted(set(models_on(node, request)))
        if model and not model_wanted(model, chosen)
    )
    for model in _common(there):
        if chosen.use_types is not None:
            shown = model_text(model)
            accepted = (*chosen.use_types, shown)
            yield Offer(
                f"also accept the model {shown}",
                Change(
                    op="add",
                    path="/request/models/-",
                    value=shown,
                    line=f"{keys.USE_GPUTYPE}: {','.join(accepted)}",
                ),
                _selecting(use_types=accepted),
                ADDED,
            )
        else:
            refused = chosen.nouse_types or ()
            kept = tuple(word for word in refused if word.lower() not in model.lower())
            yield Offer(
                f"no longer refuse the model {model_text(model)}",
                Change(
                    op="replace",
                    path="/request/notModels",
                    value=kept,
                    line=_list_line(keys.NOUSE_GPUTYPE, kept),
                ),
                _selecting(nouse_types=kept or None),
                ADDED,
            )


def _list_line(key: str, words: Sequence[str]) -> str:
    return f"{key}: {','.join(words)}" if words else f"{_REMOVED}{key}"


def models_on(node: Node, request: PodRequest) -> Iterator[str]:
    """The models of a node's cards of the kinds that the pod asks for."""
    for family in {wanted.family for wanted in request.devices}:
        ledger = node.ledgers.get(family)
        if ledger is not None:
            yield from (card.fact.model for card in ledger.cards)
    if node.fact is not None:
        yield from models_of(node.fact, node.labels, request.selection)


def _cards_named(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    chosen = request.selection
    for name, path, key, text in (
        ("use_ids", "/request/ids", keys.USE_GPUUUID, "accept cards of any id"),
        ("nouse_ids", "/request/notIds", keys.NOUSE_GPUUUID, "refuse no card by its id"),
        ("indexes", "/request/indexes", keys.GPU_INDEX, "accept cards of any index"),
    ):
        if getattr(chosen, name) is not None:
            yield Offer(
                text,
                Change(op="remove", path=path, line=f"{_REMOVED}{key}"),
                _selecting(**{name: None}),
                DROPPED,
            )


# How much the pod asks for


class Amount(NamedTuple):
    """One amount of a request that can be lowered."""

    resource: str
    """The name under which nodes and quotas count it; empty if they do not."""
    asked: int
    edit: Callable[[int], Edit]
    free: Callable[[Node], Sequence[int]]
    """What is worth a try on a node, the largest first."""
    text: Callable[[int], str]
    path: str
    unit: int = 1
    """How much one of it is in this explanation."""
    least: int = 1
    line: Callable[[int], str] | None = None
    """How a container's limits say it, where they do not as `resource: amount`."""

    def offer(self, amount: int) -> Offer:
        plain = f"{self.resource}: {amount}" if self.resource else ""
        line = plain if self.line is None else self.line(amount)
        change = Change(op="replace", path=self.path, value=amount * self.unit, line=line)
        size = (self.asked - amount) * WHOLE // max(self.asked, 1)
        return Offer(self.text(amount), change, self.edit(amount), size)


Named = Callable[[ClusterState, PodRequest], Iterator[Amount]]


def amount_offers(
    state: ClusterState,
    request: PodRequest,
    nodes: Sequence[Node],
    pieces_max: int,
    left: Mapping[str, int] | None = None,
) -> Iterator[list[Offer]]:
    """By amount of the request, what of it could be asked for instead, the largest first: what
    nodes have free, in up to so many equal pieces; with `left` what is left of its resource.
    """
    for amounts in (_cpu, _host_memory, _cards, _card_memory, _share, _compute, _counted):
        for amount in amounts(state, request):
            tries = {
                free // pieces
                for node in nodes
                for free in amount.free(node)
                for pieces in range(1, pieces_max + 1)
            }
            if left is not None and amount.resource in left:
                beside = dict(request.extended).get(amount.resource, amount.asked) - amount.asked
                tries.add(left[amount.resource] - beside)
            usable = [each for each in tries if amount.least <= each < amount.asked]
            yield [amount.offer(each) for each in sorted(usable, reverse=True)]


def _lower(amounts: Named) -> "Source":
    """The largest of amounts with which some node takes the request."""

    def offers(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
        for amount in amounts(bench.state, request):
            most = _largest(bench, nodes, request, amount)
            if most:
                yield amount.offer(most)

    return offers


def _largest(bench: Bench, nodes: Sequence[Node], request: PodRequest, amount: Amount) -> int:
    """The largest amount below the one asked for with which some node takes the request, 0 if there
    is none. Nodes that reject even the least amount are not asked again.
    """
    if amount.asked <= amount.least:
        return 0
    smallest = amount.edit(amount.least)(request)
    heap: list[tuple[int, str, int, Node, list[int]]] = []
    for node in nodes:
        free = dict.fromkeys(amount.free(node))
        tries = [each for each in free if amount.least <= each < amount.asked]
        if tries and bench.fits(node, smallest) is None:
            heap.append((-tries[0], node.name, 0, node, tries))
    heapify(heap)
    for _ in range(_SEARCH_MAX):
        if not heap:
            return 0
        negated, name, at, node, tries = heap[0]
        if bench.fits(node, amount.edit(-negated)(request)) is None:
            return -negated
        if at + 1 < len(tries):
            heapreplace(heap, (-tries[at + 1], name, at + 1, node, tries))
        else:
            heappop(heap)
    return 0


def _cpu(state: ClusterState, request: PodRequest) -> Iterator[Amount]:
    asked = request.cpu_milli
    yield Amount(
        "cpu",
        asked,
        lambda amount: lambda r: msgspec.structs.replace(r, cpu_milli=min(r.cpu_milli, amount)),
        lambda node: [node.cpu_milli_free],
        lambda amount: f"ask for {cpu_text(amount)} CPU, {cpu_text(asked - amount)} less",
        "/request/cpuMilli",
        line=lambda amount: f"cpu: {cpu_text(amount)}",
    )


def _host_memory(state: ClusterState, request: PodRequest) -> Iterator[Amount]:
    asked = request.memory_bytes

    def text(amount: int) -> str:
        return f"ask for {bytes_text(amount)} of host memory, {bytes_text(asked - amount)} less"

    yield Amount(
        "memory",
        asked,
        lambda amount: (
            lambda r: msgspec.structs.replace(r, memory_bytes=min(r.memory_bytes, amount))
        ),
        lambda node: [node.memory_bytes_free // _MIB * _MIB],
        text,
        "/request/hostMemoryBytes",
        least=_MIB,
        line=lambda amount: f"memory: {amount // _MIB}Mi",
    )


def _counted(state: ClusterState, request: PodRequest) -> Iterator[Amount]:
    """Resources that are only counted."""
    for name, asked in plain_resources(state, request)[:_EACH_MAX]:
        yield _count_of(name, asked)


def _count_of(name: str, asked: int) -> Amount:
    return Amount(
        name,
        asked,
        _counting(name),
        lambda node: [node.extended_free.get(name, 0)],
        lambda amount: f"ask for {name}: {amount} in place of {asked}",
        f"/request/extended/{_escaped(name)}",
    )


def _without_counted(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    """For a pod that requests several resources: each of its counted resources left out."""
    plain = plain_resources(bench.state, request)
    if not request.devices and len(plain) < 2:
        return
    for name, _ in plain[:_EACH_MAX]:
        yield Offer(
            f"ask for no {name}",
            Change(
                op="remove",
                path=f"/request/extended/{_escaped(name)}",
                line=f"{_REMOVED}{name}",
            ),
            _counting(name)(0),
            WHOLE,
        )


def _without_devices(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    """For a pod that requests cards in two ways: those that are only counted."""
    mine = _of_devices(bench.state, request)
    if not request.devices or not plain_resources(bench.state, request):
        return
    yield Offer(
        f"ask for no {request.devices[0].family} devices",
        Change(op="remove", path="/request/devices"),
        lambda r: msgspec.structs.replace(
            r, devices=(), extended=tuple((n, a) for n, a in r.extended if n not in mine)
        ),
        WHOLE,
    )


def plain_resources(state: ClusterState, request: PodRequest) -> list[tuple[str, int]]:
    """What is counted and does not belong to the devices that the pod asks for."""
    mine = _of_devices(state, request)
    return [(name, amount) for name, amount in request.extended if name not in mine]


def _of_devices(state: ClusterState, request: PodRequest) -> frozenset[str]:
    """The resources with which the pod asks for its devices."""
    families = {wanted.family for wanted in request.devices} & FAMILIES.keys()
    return frozenset[str]().union(*(FAMILIES[f].resources(state.devices) for f in families))


def _set(extended: Amounts, changed: Mapping[str, int]) -> Amounts:
    """At most these amounts of some resources; a resource with amount 0 is left out."""
    amounts = ((name, min(amount, changed.get(name, amount))) for name, amount in extended)
    return tuple((name, amount) for name, amount in amounts if amount > 0)


def _cards(state: ClusterState, request: PodRequest) -> Iterator[Amount]:
    def free(node: Node, wanted: DeviceRequest) -> list[int]:
        ledger = node.ledgers.get(wanted.family)
        there = 0 if ledger is None else len(ledger.cards)
        return list(range(min(there, wanted.count), 0, -1))

    def text(amount: int, wanted: DeviceRequest) -> str:
        return f"ask for {amount} card{'s' * (amount != 1)} in place of {wanted.count}"

    return _of_cards(state, request, "count", free, text)


def _corrected(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Offer]:
    """What was probably meant: another name instead of a misspelt one, or an amount in another
    unit.
    """
    found = meant(bench.state, request)
    if not found or corrected(bench.state, request, found) is None:
        return
    lines = {name: amount for each in found for name, amount in each.lines.items()}
    removed = [name for each in found for name in each.removed]
    instead = f" in place of {names_text(removed)}" if removed else ""
    written = ", ".join(f"{name}: {amount}" for name, amount in lines.items())
    yield Offer(
        f"write {lines_text(lines)}{instead}",
        Change(
            op="replace",
            path="/spec/containers/-/resources/limits",
            value={name: str(amount) for name, amount in lines.items()},
            line=written if len(lines) == 1 else f"limits: {{{written}}}",
        ),
        lambda asked: corrected(bench.state, asked, found) or asked,
        _MEANT,
    )


def _card_memory(state: ClusterState, request: PodRequest) -> Iterator[Amount]:
    def text(amount: int, wanted: DeviceRequest) -> str:
        less = mib_text(wanted.memory_mib - amount)
        return f"ask for {mib_text(amount)} of card memory, {less} less"

    for amount in _of_cards(state, request, "memory_mib", _free_memory, text):
        if not in_other_unit(amount.asked):  # "4,194,225 GiB less" is no help
            yield amount


def _share(state: ClusterState, request: PodRequest) -> Iterator[Amount]:
    def free(node: Node, wanted: DeviceRequest) -> list[int]:
        return _free_memory(node, wanted, is_share=True)

    def text(amount: int, wanted: DeviceRequest) -> str:
        return f"ask for {amount}% of a card's memory in place of {wanted.memory_pct}%"

    return _of_cards(state, request, "memory_pct", free, text)


def _compute(state: ClusterState, request: PodRequest) -> Iterator[Amount]:
    def free(node: Node, wanted: DeviceRequest) -> list[int]:
        ledger = node.ledgers.get(wanted.family)
        cards = () if ledger is None else ledger.cards
        found = sorted((card.free_cores_pct for card in cards), reverse=True)
        return found[wanted.count - 1 :]

    def text(amount: int, wanted: DeviceRequest) -> str:
        return f"ask for {amount}% compute in place of {wanted.cores_pct}%"

    return _of_cards(state, request, "cores_pct", free, text)


_IN_JSON = {
    "count": ("count", 1),
    "memory_mib": ("memoryBytes", _MIB),
    "memory_pct": ("memoryPercent", 1),
    "cores_pct": ("computePercent", 1),
}
"""How this explanation calls the fields of a device request, and in which unit."""


def _of_cards(
    state: ClusterState,
    request: PodRequest,
    field: str,
    free: Callable[[Node, DeviceRequest], Sequence[int]],
    text: Callable[[int, DeviceRequest], str],
) -> Iterator[Amount]:
    """One field of each device request, where its family lets users write less of it."""
    for number, wanted in enumerate(request.devices[:_EACH_MAX]):
        if wanted.family in FAMILIES and field in FAMILIES[wanted.family].smaller:
            yield _of_device(state, request, number, field, free, text)


def _of_device(
    state: ClusterState,
    request: PodRequest,
    number: int,
    field: str,
    free: Callable[[Node, DeviceRequest], Sequence[int]],
    text: Callable[[int, DeviceRequest], str],
) -> Amount:
    wanted = request.devices[number]
    asked, family = getattr(wanted, field), FAMILIES[wanted.family]
    zero = family.amounts(msgspec.structs.replace(wanted, **{field: 0}), state.devices)
    named = family.amounts(wanted, state.devices)
    resource = next((n for n, amount in named.items() if amount != zero.get(n)), "")
    written = family.senses(state.devices).get(Sense.MEMORY_PCT, "")
    beside = dict(request.extended).get(resource, 0) - asked
    part = f" (container {wanted.container_name})" if len(request.devices) > 1 else ""
    name, unit = _IN_JSON[field]

    def tries(node: Node) -> list[int]:
        """What its cards have free, and what it lists as free."""
        listed = node.extended_free.get(resource)
        of_node = () if listed is None or beside < 0 else (listed - beside,)
        return sorted({*of_node, *free(node, wanted)}, reverse=True)

    return Amount(
        resource,
        asked,
        _device(state, number, field),
        tries,
        lambda amount: text(amount, wanted) + part,
        f"/request/devices/{number}/{name}",
        unit,
        line=(lambda amount: f"{written}: {amount}") if field == "memory_pct" and written else None,
    )


def _free_memory(node: Node, wanted: DeviceRequest, *, is_share: bool = False) -> list[int]:
    """What its cards could give each, the most first; so many cards have to."""
    ledger = node.ledgers.get(wanted.family)
    amounts: list[int] = []
    for card in () if ledger is None else ledger.cards:
        for amount in _pieces(card):
            capacity = max(card.fact.memory_mib, 1)
            amounts.append(amount * 100 // capacity if is_share else amount)
    amounts.sort(reverse=True)
    return amounts[wanted.count - 1 :]


def _pieces(card: Card) -> Iterable[int]:
    """How much memory a card may give: what is free, or the instances into which it can be cut."""
    if not card.table:
        return (card.free_memory_mib,)
    return {profile.memory_mib for geometry in card.table for profile in geometry.profiles}


def _device(state: ClusterState, number: int, field: str) -> Callable[[int], Edit]:
    """At most so much of one of the request's devices, and of the resource that says it."""

    def of(amount: int) -> Edit:
        def edit(asked: PodRequest) -> PodRequest:
            if number >= len(asked.devices) or getattr(asked.devices[number], field) <= amount:
                return asked  # a member of a group that asks for less, or for something else
            before = asked.devices[number]
            now = msgspec.structs.replace(before, **{field: amount})
            family, extended = FAMILIES[before.family], dict(asked.extended)
            was, will = (family.amounts(one, state.devices) for one in (before, now))
            changed = {
                name: extended[name] + will.get(name, 0) - taken
                for name, taken in was.items()
                if name in extended
            }
            devices = (*asked.devices[:number], now, *asked.devices[number + 1 :])
            return msgspec.structs.replace(
                asked, devices=devices, extended=_set(asked.extended, changed)
            )

        return edit

    return of


# What happens to nodes and to other pods


def _reopened(
    bench: Bench, refusing: dict[str, list[Node]], request: PodRequest
) -> Iterator[Found]:
    for code, text, path, value, line in (
        (
            *(reasons.NODE_CORDONED, "uncordon node {}", "/spec/unschedulable", False),
            "kubectl uncordon {}",
        ),
        (reasons.NODE_NOT_READY, "when node {} is ready again", "/status/ready", True, ""),
    ):
        found = 0
        for node in refusing.get(code, ()):
            twin = reopened(node)
            if twin is not None and found < _EACH_MAX and bench.fits_instead(twin, request):
                found += 1
                yield Found(
                    text.format(node.name),
                    Change(
                        op="replace",
                        path=path,
                        value=value,
                        target=f"node {node.name}",
                        line=line.format(node.name),
                    ),
                    Uncordoned(node.name),
                    OTHERS,
                    1,
                )


def _ended(bench: Bench, nodes: Sequence[Node], request: PodRequest) -> Iterator[Found]:
    """The single pods whose end makes room; if there are none, the fewest on one node."""
    singles: list[tuple[bool, str, Found]] = []
    several: list[tuple[int, str, tuple[str, ...]]] = []
    for node in sorted(nodes, key=lambda n: (len(n.allocations), n.name))[:_ENDS_NODES_MAX]:
        held = _by_size(bench.state, node)[:_ENDS_PODS_MAX]
        if not held or not bench.fits_instead(_without(node, held), request):
            continue
        alone = [each for each in held if bench.fits_instead(_without(node, [each]), request)]
        for each in alone:
            name = _pod_name(bench.state, each.uid)
            leaves = bench.state.pods[each.uid].fact.deleting
            singles.append((not leaves, name, _end(node, (each.uid,), (name,))))
        if not alone and not singles:
            fewest = _fewest(bench, node, held, request)
            names = ", ".join(_pod_name(bench.state, uid) for uid in fewest)
            several.append((len(fewest), names, fewest))
            several.sort()
    if singles:
        singles.sort(key=lambda item: item[:2])
        yield from (found for _, _, found in singles[:_EACH_MAX])
    elif several:
        uids = several[0][2]
        node = bench.state.nodes[_node_of(bench.state, uids[0])]
        yield _end(node, uids, tuple(_pod_name(bench.state, uid) for uid in uids))


def _end(node: Node, uids: tuple[str, ...], names: tuple[str, ...]) -> Found:
    ends = f"when {names[0]} ends" if len(names) == 1 else f"when {', '.join(names)} end"
    return Found(
        f"{ends} on {node.name}",
        Change(op="remove", path="/pods", value=names, target=f"node {node.name}"),
        Ended(uids),
        OTHERS + WHOLE * len(names),
        1,
    )


def _by_size(state: ClusterState, node: Node) -> list[Allocation]:
    """The pods that hold something on a node, the largest part first: existing pods only, without
    members of a group that were only tried on it.
    """

    def size(held: Allocation) -> tuple[int, int, int, str]:
        cards, name = sum(h.memory_mib for h in held.holdings), _pod_name(state, held.uid)
        return (-cards, -len(held.extended), -held.memory_bytes, name)

    known = ((held, state.pods.get(held.uid)) for held in node.allocations.values())
    there = (held for held, pod in known if pod is not None and pod.allocation is not None)
    return sorted(there, key=size)


def _fewest(
    bench: Bench, node: Node, held: Sequence[Allocation], request: PodRequest
) -> tuple[str, ...]:
    """Pods of one node whose end makes room, none of which may stay: all, and those that may stay
    put back, the smallest first."""
    leaving = list(held)
    for each in reversed(held):
        rest = [other for other in leaving if other is not each]
        if rest and bench.fits_instead(_without(node, rest), request):
            leaving = rest
    return tuple(sorted((each.uid for each in leaving), key=lambda u: _pod_name(bench.state, u)))


def _without(node: Node, gone: Sequence[Allocation]) -> Node:
    twin = node.fork()
    for each in gone:
        twin.release(each)
    return twin


def _pod_name(state: ClusterState, uid: str) -> str:
    fact = state.pods[uid].fact
    return f"{fact.namespace}/{fact.name}"


def _node_of(state: ClusterState, uid: str) -> str:
    held = state.pods[uid].allocation
    assert held is not None
    return held.node


# Words and tools


_T = TypeVar("_T", bound=Hashable)


def _common(found: Iterable[_T | None]) -> list[_T]:
    """The distinct values, the most frequent first, without None."""
    counts = Counter(one for one in found if one is not None)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return [one for one, _ in ordered[:_EACH_MAX]]


def _constrained(asked: PodRequest, **fields: object) -> PodRequest:
    constraints = msgspec.structs.replace(asked.constraints, **fields)
    return msgspec.structs.replace(asked, constraints=constraints)


def _tolerating(toleration: Toleration) -> Edit:
    return lambda asked: _constrained(
        asked, tolerations=(*asked.constraints.tolerations, toleration)
    )


def _selecting_nodes(key: str, value: str | None) -> Edit:
    """With another value of a label; None: without the label."""

    def edit(asked: PodRequest) -> PodRequest:
        selector = dict(asked.constraints.node_selector)
        if value is None:
            selector.pop(key, None)
        else:
            selector[key] = value
        return _constrained(asked, node_selector=tuple(selector.items()))

    return edit


def _affine(terms: tuple[NodeTerm, ...]) -> Edit:
    return lambda asked: _constrained(asked, affinity=terms)


def _selecting(**fields: object) -> Edit:
    def edit(asked: PodRequest) -> PodRequest:
        selection = msgspec.structs.replace(asked.selection, **fields)
        return msgspec.structs.replace(asked, selection=selection)

    return edit


def _counting(name: str) -> Callable[[int], Edit]:
    """At most so much of a resource that is only counted; 0: none of it."""

    def of(amount: int) -> Edit:
        return lambda asked: msgspec.structs.replace(
            asked, extended=_set(asked.extended, {name: amount})
        )

    return of


def _escaped(name: str) -> str:
    """A name as one part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _from(code: str) -> tuple[str, ...]:
    """A card's code and all that come after it: a node is charged to the card that got furthest, so
    another of its cards may lack this.
    """
    return reasons.REFUSAL_ORDER[reasons.REFUSAL_ORDER.index(code) :]


_LISTED = reasons.INSUFFICIENT_RESOURCE
"""Devices are counted among the resources that nodes list, too."""
Source = Callable[[Bench, Sequence[Node], PodRequest], Iterator[Offer]]

_SOURCES: tuple[tuple[Sequence[str], Source], ...] = (
    ((reasons.TAINT_NOT_TOLERATED,), _taints),
    ((reasons.SELECTOR_MISMATCH,), _selectors),
    ((reasons.AFFINITY_MISMATCH,), _affinity),
    (
        (
            reasons.HOST_PORT_TAKEN,
            reasons.POD_AFFINITY_MISMATCH,
            reasons.POD_ANTI_AFFINITY,
            reasons.SPREAD_MISMATCH,
        ),
        _company,
    ),
    ((reasons.GPU_MODE_MISMATCH,), _modes),
    (_from(reasons.GPU_NOT_SELECTED), _cards_named),
    (_from(reasons.GPU_MODEL_MISMATCH), _models),
    ((reasons.INSUFFICIENT_CPU,), _lower(_cpu)),
    ((reasons.INSUFFICIENT_MEMORY,), _lower(_host_memory)),
    ((reasons.NOT_ENOUGH_GPUS_ON_NODE, *_from(reasons.CARD_KEPT_APART), _LISTED), _lower(_cards)),
    ((*_from(reasons.INSUFFICIENT_GPU_MEMORY), _LISTED), _lower(_card_memory)),
    (_from(reasons.INSUFFICIENT_GPU_MEMORY), _lower(_share)),
    (
        (reasons.EXCLUSIVE_CONFLICT, *_from(reasons.INSUFFICIENT_GPU_MEMORY), _LISTED),
        _lower(_compute),
    ),
    ((reasons.NOT_ENOUGH_GPUS_ON_NODE, _LISTED), _lower(_counted)),
    ((reasons.NO_GPU, reasons.NOT_ENOUGH_GPUS_ON_NODE, _LISTED), _without_counted),
    ((reasons.NO_GPU, reasons.GPU_MODE_MISMATCH, _LISTED), _without_devices),
    (
        (
            *(reasons.NO_GPU, reasons.GPU_MODE_MISMATCH, reasons.NOT_ENOUGH_GPUS_ON_NODE),
            *(*_from(reasons.INSUFFICIENT_GPU_MEMORY), _LISTED),
        ),
        _corrected,
    ),
)
"""By the codes of nodes, the changes that may help there."""
