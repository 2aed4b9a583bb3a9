"""The map: every card of the cluster and who holds it; of a large cluster one cell a card."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.doctor import ERROR, Finding, findings
from allotment.core.explain.rows.pod_views import ELSEWHERE, GATED, asks_text, stage_of
from allotment.core.explain.rows.views import (
    card_name,
    card_word,
    counted_of,
    model_text,
    node_status,
)
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.ledger.partitions.mig import largest_left_mib
from allotment.core.units import mib_text
from allotment_inspector.history import GoneNode, Moment
from allotment_inspector.pages.parts.card import CardCell, card_cell, is_full, queue_of
from allotment_inspector.said import path, typed

NODES_DRAWN_MAX = 100
"""Of a larger cluster the map has one cell a card."""
COUNTED = "whole cards, counted"
"""Stands for the model where only the number of cards is known."""
GONE_SHOWN_MS = 3_600_000
WAITING_SHOWN = 12
ZONE_LABEL = "topology.kubernetes.io/zone"
LOOK_SHOWN = 20
_FOUND_MS = 10_000
"""Findings depend on the time, too: they are looked for again after so long."""
EMPTY, ILL, GONE = "0", "x", "-"
MODEL, ZONE, NAMESPACE = "model", "zone", "namespace"
GROUPS = (MODEL, ZONE, NAMESPACE)
"""What nodes are grouped by; a node belongs to the namespace that holds most of its cards."""


class Totals(msgspec.Struct, frozen=True, rename="camel"):
    """The cluster in numbers. Memory is what is reserved, not what is measured."""

    cards: int
    cards_in_use: int
    nodes: int
    memory_bytes: int
    reserved_bytes: int
    largest_bytes: int
    largest_on: str
    cards_empty: int
    nodes_empty: int
    waiting: int


class Counted(msgspec.Struct, frozen=True, rename="camel"):
    """Cards of which only the number is known, and who has how many."""

    key: str
    resource: str
    total: int
    free: int
    shares: tuple[tuple[str, str, int], ...]
    """Name, address and count."""
    lit: frozenset[str] = frozenset()
    """Names of the highlighted ones."""


class NodeRow(msgspec.Struct, frozen=True, rename="camel"):
    """One node with its cards. `words` say what is unusual about it; `group` is "" where nodes are
    not grouped.
    """

    name: str
    path: str
    group: str
    about: str
    zone: str
    free: str
    words: tuple[str, ...]
    is_gone: bool
    gone_ms: int | None
    cards: tuple[CardCell, ...]
    counted: tuple[Counted, ...] = ()


class Pool(msgspec.Struct, frozen=True, rename="camel"):
    """The nodes of one group. `levels` has one digit a card, node after node: 0 empty to 5 full, x
    unhealthy, - gone; `cards_per_node` of them belong to each, spaces fill up. `lit` has a 1 for
    each highlighted card and is empty where nothing is highlighted.
    """

    key: str
    title: str
    nodes: int
    cards: int
    full_percent: int
    empty: int
    nodes_empty: int
    free_bytes: int
    ill: int
    gone: int
    cards_per_node: int
    levels: str
    lit: str
    names: str
    """The names of the nodes, parted by spaces, each without what it has in common with the one
    before: ``12:03`` are the first 12 characters of that one, and ``03``.
    """


class _Member(NamedTuple):
    """A node of a pool: its cards, each with the pods on it."""

    name: str
    is_gone: bool
    cards: int
    held: tuple[tuple[frozenset[str], Card], ...]


class Waits(msgspec.Struct, frozen=True, rename="camel"):
    """Pods that wait alike: they ask for the same and lack the same."""

    namespace: str
    name: str
    path: str
    count: int
    asks: str
    cause: str
    since_ms: int


class Look(msgspec.Struct, frozen=True, rename="camel"):
    """A problem, as `allot doctor` lists it. `path` leads to its first object, `card` names the
    card on the map that it is about; `since` is RFC 3339, empty if unknown.
    """

    where: str
    path: str
    card: str
    code: str
    is_error: bool
    why: str
    remedy: str
    seq: int
    since: str


class Sifted(msgspec.Struct, frozen=True, rename="camel"):
    """What was asked of the map, and how much of the cluster answers to it."""

    find: str
    light: str
    group: str
    nodes: int
    pods_lit: int
    cards_lit: int


class CardsPage(msgspec.Struct, frozen=True, rename="camel"):
    """What the map shows. Of `nodes` and `pools` one is empty."""

    said: str
    sifted: Sifted
    totals: Totals
    nodes: tuple[NodeRow, ...]
    pools: tuple[Pool, ...]
    waiting: tuple[Waits, ...]
    apart: dict[str, int]
    """Pending pods that do not wait for this scheduler, by why."""
    nodes_all: int
    """Nodes with cards, those gone lately too, before any filter."""
    nodes_without_cards: int
    waiting_shapes: int
    look: tuple[Look, ...]
    look_total: int


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    return typed("allot", "ledger", at=moment.at)


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> CardsPage:
    """The whole cluster at a moment."""
    state = moment.state
    there = [node for _, node in sorted(state.nodes.items()) if node.fact is not None]
    nodes = [node for node in there if has_cards(node)]
    gone = [
        one
        for one in moment.gone_since(moment.now_ms - GONE_SHOWN_MS)
        if not _is_there(state, one.node.name)
    ]
    totals = totals_of(state, nodes)
    look = _look(moment)
    stages = Counter(stage_of(state, pod) for pod in state.pods.values())
    waiting = _waiting(state, moment.whys)
    nodes_all = len(nodes) + len(gone)
    words = query.get("find", "").lower().split()
    shown = [node for node in nodes if _has_words(words, node.name, *_told_of(node))]
    gone = [one for one in gone if _has_words(words, one.node.name, *_told_of_gone(one))]
    group = query.get("group", "") if query.get("group", "") in GROUPS else ""
    lit = _lit(state, query.get("light", "").strip())
    is_large = len(shown) + len(gone) > NODES_DRAWN_MAX
    return CardsPage(
        sifted=_sifted(state, shown, len(shown) + len(gone), group, lit, query),
        said=_said(totals, None if moment.silent_since_ms else len(look)),
        apart={word: stages[word] for word in (GATED, ELSEWHERE) if stages[word]},
        totals=totals,
        nodes=() if is_large else _rows(moment, shown, gone, group, lit),
        pools=_pools(state, shown, gone, group or MODEL, lit) if is_large else (),
        waiting=tuple(waiting[:WAITING_SHOWN]),
        nodes_all=nodes_all,
        nodes_without_cards=len(there) - len(nodes),
        waiting_shapes=len(waiting),
        look=tuple(look[:LOOK_SHOWN]),
        look_total=len(look),
    )


def has_cards(node: Node) -> bool:
    """Whether a node has cards, known or only counted."""
    counted = node.fact is not None and any(name.endswith("/gpu") for name, _ in node.fact.extended)
    return counted or any(ledger.cards for ledger in node.ledgers.values())


def _is_there(state: ClusterState, name: str) -> bool:
    node = state.nodes.get(name)
    return node is not None and node.fact is not None


def totals_of(state: ClusterState, nodes: Iterable[Node]) -> Totals:
    """Sums over all cards that are there."""
    cards = used = there = memory = reserved = empty = nodes_empty = largest = 0
    largest_on = ""
    for node in nodes:
        there += 1
        idle = True
        for ledger in node.ledgers.values():
            for card in ledger.cards:
                cards += 1
                memory += card.fact.memory_mib
                reserved += min(card.used_memory_mib, card.fact.memory_mib)
                used += bool(card.holders)
                empty += not card.holders
                idle = idle and not card.holders
                if (found := _largest_mib(node, card)) > largest:
                    largest, largest_on = found, f"{node.name}/{card_name(card)}"
        for counted in counted_of(state, node) if node.extended_free else ():
            if counted.resource.endswith("/gpu"):
                taken = counted.total - max(counted.free, 0)
                cards, used, empty = cards + counted.total, used + taken, empty + counted.free
                idle = idle and not taken
        nodes_empty += idle
    return Totals(
        cards=cards,
        cards_in_use=used,
        nodes=there,
        memory_bytes=memory << 20,
        reserved_bytes=reserved << 20,
        largest_bytes=largest << 20,
        largest_on=largest_on,
        cards_empty=empty,
        nodes_empty=nodes_empty,
        waiting=len(state.pending),
    )


def _largest_mib(node: Node, card: Card) -> int:
    """The largest share, or instance, that a new pod could get of a card."""
    fact = card.fact
    if node.blocked is not None or not fact.healthy or card.free_slots < 1:
        return 0
    if fact.cores_pct and card.free_cores_pct < 1:
        return 0
    return largest_left_mib(card.table, card.state) if card.table else max(card.free_memory_mib, 0)


def _said(totals: Totals, problems: int | None) -> str:
    """The cluster in one sentence; how many problems it has is not known (None) without news."""
    if not totals.nodes:
        return "No nodes in the log."
    waits = f"{totals.waiting:,} pods wait" if totals.waiting else "no pod waits"
    waits = "1 pod waits" if totals.waiting == 1 else waits
    found = f"; {problems:,} problems" if problems else "; no problems"
    found = "; 1 problem" if problems == 1 else found
    found = "" if problems is None else found
    return f"{totals.cards_in_use:,} of {totals.cards:,} cards in use; {waits}{found}."


# What is asked of the map


def _has_words(words: Iterable[str], *texts: str) -> bool:
    text = " ".join(texts).lower()
    return all(word in text for word in words)


def _told_of(node: Node) -> list[str]:
    """What a node is found by, besides its name: its model, zone, mode and state."""
    modes = [ledger.mode for ledger in node.ledgers.values()]
    return [about_text(node), node.labels.get(ZONE_LABEL, ""), *modes, *_unusual(node)]


def _told_of_gone(gone: GoneNode) -> list[str]:
    models = [card.model for each in gone.node.inventories for card in each.cards]
    return [*models, dict(gone.node.labels).get(ZONE_LABEL, ""), "gone"]


def _lit(state: ClusterState, light: str) -> frozenset[str]:
    """The pods of this name, namespace or queue that hold something, as namespace/name."""
    facts = [pod.fact for pod in state.pods.values() if pod.allocation is not None] if light else []
    return frozenset(
        f"{fact.namespace}/{fact.name}"
        for fact in facts
        if light
        in (fact.name, fact.namespace, f"{fact.namespace}/{fact.name}", queue_of(state, fact))
    )


def _sifted(
    state: ClusterState,
    shown: Iterable[Node],
    nodes: int,
    group: str,
    lit: frozenset[str],
    query: Mapping[str, str],
) -> Sifted:
    held = [names & lit for node in shown if lit for names, _ in _holders(state, node)]
    return Sifted(
        find=query.get("find", ""),
        light=query.get("light", "").strip(),
        group=group,
        nodes=nodes,
        pods_lit=len(frozenset().union(*held)),
        cards_lit=sum(map(bool, held)),
    )


def _holders(state: ClusterState, node: Node) -> Iterator[tuple[frozenset[str], Card]]:
    """The pods on each known card of a node, as namespace/name."""
    for family in sorted(node.ledgers):
        for card in node.ledgers[family].cards:
            facts = [state.pods[uid].fact for uid, *_ in card.holders]
            yield frozenset(f"{fact.namespace}/{fact.name}" for fact in facts), card


def _group_of(state: ClusterState, node: Node, group: str) -> str:
    """Where a node belongs; "" where nodes are not grouped."""
    if group == MODEL:
        return short_model(next((card.fact.model for _, card in _holders(state, node)), COUNTED))
    if group == ZONE:
        return node.labels.get(ZONE_LABEL, "") or "no zone"
    if group == NAMESPACE:
        held = Counter(
            name.partition("/")[0] for names, _ in _holders(state, node) for name in names
        )
        held.update(
            {s.namespace: s.count for each in counted_of(state, node) for s in each.holders}
        )
        return min(held, key=lambda name: (-held[name], name), default="no pods")
    return ""


def _group_of_gone(gone: GoneNode, group: str) -> str:
    if group == MODEL:
        models = [card.model for each in gone.node.inventories for card in each.cards]
        return short_model(models[0] if models else COUNTED)
    if group == ZONE:
        return dict(gone.node.labels).get(ZONE_LABEL, "") or "no zone"
    return "gone" if group else ""


# Rows of nodes


def _rows(
    moment: Moment, nodes: Iterable[Node], gone: Iterable[GoneNode], group: str, lit: frozenset[str]
) -> tuple[NodeRow, ...]:
    rows = [node_row(moment, node, _group_of(moment.state, node, group), lit) for node in nodes]
    rows += [_gone_row(one, _group_of_gone(one, group)) for one in gone]
    return tuple(sorted(rows, key=lambda row: (row.group, row.name)))


def node_row(
    moment: Moment, node: Node, group: str = "", lit: frozenset[str] = frozenset()
) -> NodeRow:
    """A node with its cards; pods of `lit` are highlighted."""
    state = moment.state
    cards = tuple(
        card_cell(state, node, card, lit)
        for family in sorted(node.ledgers)
        for card in node.ledgers[family].cards
    )
    counted = tuple(
        Counted(
            f"{node.name}/{found.resource}",
            found.resource,
            found.total,
            found.free,
            tuple((s.name, path("pods", s.namespace, s.name), s.count) for s in found.holders),
            frozenset(s.name for s in found.holders if f"{s.namespace}/{s.name}" in lit),
        )
        for found in counted_of(state, node)
        if found.resource.endswith("/gpu")
    )
    return NodeRow(
        name=node.name,
        path=path("nodes", node.name),
        group=group,
        about=about_text(node),
        zone=node.labels.get(ZONE_LABEL, ""),
        free=_free_text(node, counted),
        words=tuple(_unusual(node)),
        is_gone=False,
        gone_ms=None,
        cards=cards,
        counted=counted,
    )


def _unusual(node: Node) -> list[str]:
    """What keeps pods away from a node."""
    status = node_status(node).split(",")
    words = ["not ready"] * (status[0] == "NotReady") + ["cordoned"] * ("Cordoned" in status)
    return words if node.blocked is None else [*words, "accepts no pods"]


def about_text(node: Node) -> str:
    """``8 × A100-PCIE-40GB, 40.0 GiB``, for each model of a node."""
    cards = [card for family in sorted(node.ledgers) for card in node.ledgers[family].cards]
    return _kinds_text((card.fact.model, card.fact.memory_mib) for card in cards) or "whole cards"


def _kinds_text(kinds: Iterable[tuple[str, int]]) -> str:
    counts: dict[tuple[str, int], int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return "; ".join(
        f"{count} × {short_model(model)}" + (f", {mib_text(mib)}" if mib else "")
        for (model, mib), count in counts.items()
    )


def short_model(model: str) -> str:
    """A model without its vendor, which every card of a row would repeat."""
    text = model_text(model)
    return text.removeprefix("NVIDIA").lstrip(" -") or text


def _free_text(node: Node, counted: tuple[Counted, ...]) -> str:
    modes = sorted({ledger.mode for ledger in node.ledgers.values() if ledger.mode})
    words = [", ".join(modes)] if modes else []
    cards = [card for ledger in node.ledgers.values() for card in ledger.cards]
    if any(card.fact.memory_mib for card in cards):
        free = sum(max(card.free_memory_mib, 0) for card in cards if card.fact.healthy)
        words.append(f"{mib_text(free)} free")
    words += [f"{found.free} of {found.total} free" for found in counted if not cards]
    return " · ".join(words)


def _gone_row(gone: GoneNode, group: str) -> NodeRow:
    """A node that went: its cards as they were."""
    fact = gone.node
    cards = [(each.family, card) for each in fact.inventories for card in each.cards]
    return NodeRow(
        name=fact.name,
        path=path("nodes", fact.name),
        group=group,
        about=_kinds_text((card.model, card.memory_mib) for _, card in cards) or "whole cards",
        zone=dict(fact.labels).get(ZONE_LABEL, ""),
        free="",
        words=("gone",),
        is_gone=True,
        gone_ms=gone.ms,
        cards=tuple(
            CardCell(
                key=f"{fact.name}/{card_word(family)}-{card.index}",
                name=f"{card_word(family)}-{card.index}",
                id=card.id,
                model=model_text(card.model),
                mode=card.mode,
                state="",
                free="gone",
                about="",
                ticks=0,
                segments=(),
            )
            for family, card in cards
        ),
    )


# One cell a card


def _pools(
    state: ClusterState,
    nodes: Iterable[Node],
    gone: Iterable[GoneNode],
    group: str,
    lit: frozenset[str],
) -> tuple[Pool, ...]:
    pools: dict[str, list[_Member]] = {}
    for node in nodes:
        held = tuple(_holders(state, node))
        member = _Member(node.name, False, len(held), held)
        pools.setdefault(_group_of(state, node, group), []).append(member)
    for one in gone:
        count = sum(len(inventory.cards) for inventory in one.node.inventories)
        pools.setdefault(_group_of_gone(one, group), []).append(
            _Member(one.node.name, True, count, ())
        )
    found = [
        _pool(title, sorted(members, key=lambda each: each.name), lit)
        for title, members in pools.items()
    ]
    return tuple(sorted(found, key=lambda pool: (-pool.cards, pool.title)))


def _pool(title: str, members: list[_Member], lit: frozenset[str]) -> Pool:
    per_node = max(max(member.cards for member in members), 1)
    levels, names, lights = [], [], []
    cards = empty = nodes_empty = free_mib = memory_mib = ill = 0
    before = ""
    for name, is_gone, count, held in members:
        digits = GONE * count if is_gone else "".join(level_of(card) for _, card in held)
        levels.append(digits.ljust(per_node))
        lights.append("".join("1" if pods & lit else " " for pods, _ in held).ljust(per_node))
        common = _common(before, name)
        names.append(f"{common}:{name[common:]}")
        before = name
        cards += len(held)
        idle = sum(not card.holders for _, card in held)
        empty += idle
        nodes_empty += not is_gone and idle == len(held)
        memory_mib += sum(card.fact.memory_mib for _, card in held)
        free_mib += sum(max(card.free_memory_mib, 0) for _, card in held if card.fact.healthy)
        ill += sum(not card.fact.healthy for _, card in held)
    return Pool(
        key=f"pool:{title}",
        title=title,
        nodes=len(members),
        cards=cards,
        full_percent=100 * (memory_mib - free_mib) // memory_mib if memory_mib else 0,
        empty=empty,
        nodes_empty=nodes_empty,
        free_bytes=free_mib << 20,
        ill=ill,
        gone=sum(member.is_gone for member in members),
        cards_per_node=per_node,
        levels="".join(levels),
        lit="".join(lights) if lit else "",
        names=" ".join(names),
    )


def level_of(card: Card) -> str:
    """How full a card is, as one digit: of memory, slots and compute the one that is scarcest."""
    fact = card.fact
    if not fact.healthy:
        return ILL
    if not card.holders:
        return EMPTY
    if is_full(card):
        return "5"
    shares = [
        100 * used // whole
        for used, whole in (
            (card.used_memory_mib, fact.memory_mib),
            (card.used_cores_pct, fact.cores_pct),
        )
        if whole > 0
    ]
    return str(min(1 + max(shares, default=0) // 25, 4))


def _common(before: str, name: str) -> int:
    count = 0
    for one, other in zip(before, name, strict=False):
        if one != other:
            break
        count += 1
    return count


# Waiting pods, and problems


def _waiting(state: ClusterState, whys: Whys) -> list[Waits]:
    """The pods that wait, those alike together; the longest wait comes first."""
    found: dict[tuple[str, str, str], Waits] = {}
    for uid in state.pending:
        pod = state.pods[uid]
        fact = pod.fact
        cause = whys.of(pod).code
        asks = asks_text(fact.request.devices, fact.request.extended) or "no device"
        key = fact.namespace, asks, cause
        before = found.get(key)
        order = fact.created_ms, fact.name
        if before is None or order < (before.since_ms, before.name):
            found[key] = Waits(
                namespace=fact.namespace,
                name=fact.name,
                path=path("pods", fact.namespace, fact.name),
                count=1 if before is None else before.count + 1,
                asks=asks,
                cause=cause,
                since_ms=fact.created_ms,
            )
        else:
            found[key] = msgspec.structs.replace(before, count=before.count + 1)
    return sorted(found.values(), key=lambda w: (w.since_ms, w.namespace, w.name))


def _look(moment: Moment) -> list[Look]:
    """Services that do not work, and the doctor's findings in the log, in its order."""
    key = "findings", moment.seq, moment.now_ms // _FOUND_MS
    found = moment.memo.get(key, lambda: findings(moment.state, moment.now_ms, moment.whys))
    return [_look_of(each) for each in (*moment.idle, *found)]


def _look_of(found: Finding) -> Look:
    """A finding; its first object is linked."""
    kind, _, name = found.subject.partition(" ")
    name, _, card = name.partition(", card ")
    name = name.partition(",")[0].partition(" and ")[0]
    place = found.message.partition(":")[0]
    if kind == "node" and place.startswith(("GPU-", "NPU-")):
        card = f"{name}/{place}"
    paths = {
        "node": lambda: path("nodes", name),
        "nodes": lambda: path("nodes", name),
        "queue": lambda: path("queues", name),
        "group": lambda: path("gangs", *name.split("/", 1)),
    }
    to = paths[kind]() if kind in paths else ""
    if found.pods and not to:
        to = path("pods", *found.pods[0].split("/", 1))
    elif kind == "pod" and "/" in name:
        to = path("pods", *name.split("/", 1))
    return Look(
        where=found.subject,
        path=to,
        card=card if "/" in card else "",
        code=found.code,
        is_error=found.severity == ERROR,
        why=found.message,
        remedy=found.remedy,
        seq=found.seq,
        since=found.since,
    )
