"""Search: pods, nodes, cards, gangs, queues and records by a part of their name or id."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.pod_views import pod_status
from allotment.core.explain.rows.views import card_name, model_text, node_status
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState, Node, Pod
from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.asked import natural
from allotment_inspector.pages.parts.found import Near, not_found
from allotment_inspector.said import (
    Bit,
    card_link,
    group_link,
    node_link,
    path,
    pod_link,
    queue_link,
)
from allotment_proto.events import Decided

_SHOWN = 40
"""Of each kind."""
_Found = Iterator[tuple[bool, Callable[[], "Hit"]]]
"""Whether the name or id is exactly what was asked for, and how to word it: of many thousands that
are found only those that are shown are worded.
"""
_CHARS_MIN = 4
"""Of an id so many characters are wanted; of a name one is enough."""


class Hit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that was found, and a word about it."""

    link: Bit
    about: str
    exact: bool = False


class Kind(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that was found of one kind; `more`: there is more than is shown."""

    name: str
    hits: tuple[Hit, ...]
    more: bool


class SearchPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found for `q`, and if that is nothing, pods of nearly that name."""

    q: str
    kinds: tuple[Kind, ...]
    total: int
    nearest: tuple[Near, ...]


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> SearchPage:
    """What has `q` in its name or begins with it in its id, at the moment."""
    q = query.get("q", "").strip()
    looks = {
        "pods": _pods,
        "nodes": _nodes,
        "cards": _cards,
        "gangs": _gangs,
        "queues": _queues,
        "records": _records,
    }
    kinds = [_kind(name, look(moment, q)) for name, look in looks.items()] if q else []
    found = tuple(kind for kind in kinds if kind.hits)
    nearest: tuple[Near, ...] = ()
    if q and not found:
        names = moment.pod_names()
        nearest = not_found("pod", q, names, lambda key: pod_link(*key.split("/", 1)).path).nearest
    return SearchPage(
        q=q,
        kinds=found,
        total=sum(len(kind.hits) for kind in found),
        nearest=nearest,
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """No command looks for names and ids of all kinds."""
    return ""


def _kind(name: str, found: _Found) -> Kind:
    """Exact names first, however late they come, else in their order."""
    exact: list[Callable[[], Hit]] = []
    others: list[Callable[[], Hit]] = []
    count = 0
    for is_exact, worded in found:
        count += 1
        kept = exact if is_exact else others
        if len(kept) < _SHOWN:
            kept.append(worded)
    hits = [msgspec.structs.replace(worded(), exact=True) for worded in exact]
    hits += [worded() for worded in others[: _SHOWN - len(hits)]]
    return Kind(name=name, hits=tuple(hits), more=count > _SHOWN)


def _is_id(q: str, uid: str) -> bool:
    """Whether it is the beginning of an id, with or without dashes: a trace's id is a uid's."""
    if len(q) < _CHARS_MIN:
        return False
    return uid.startswith(q) or uid.replace("-", "").startswith(q.lower().replace("-", ""))


def _pods(moment: Moment, q: str) -> _Found:
    state, seen = moment.state, set()
    for pod in state.pods.values():
        fact = pod.fact
        name = f"{fact.namespace}/{fact.name}"
        seen.add(name)
        if q in name or _is_id(q, fact.uid):
            yield q in (name, fact.name, fact.uid), partial(_pod, state, pod, name)
    for name, uids in moment.pods_seen():
        if name in seen:
            continue
        namespace, _, bare = name.partition("/")
        if q in name or any(_is_id(q, uid) for uid in uids):
            seen.add(name)
            link = _named(pod_link(namespace, bare), name)
            yield (
                q in (name, bare, *uids),
                partial(Hit, link=link, about="does not exist at this moment"),
            )


def _pod(state: ClusterState, pod: Pod, name: str) -> Hit:
    status, cause = pod_status(state, pod)[0], Whys(state).of(pod).code
    link = pod_link(pod.fact.namespace, pod.fact.name, pod.fact.uid)
    return Hit(link=_named(link, name), about=f"{status}: {cause}" if cause else status)


def _nodes(moment: Moment, q: str) -> _Found:
    for name, node in sorted(moment.state.nodes.items()):
        if q in name:
            yield q == name, partial(_node, node)


def _node(node: Node) -> Hit:
    return Hit(link=node_link(node.name), about=node_status(node))


def _cards(moment: Moment, q: str) -> _Found:
    """Cards by id, or as ``<node>/GPU-3``."""
    node_part, _, card_part = q.rpartition("/")
    for name, node in sorted(moment.state.nodes.items()):
        for ledger in node.ledgers.values():
            for card in ledger.cards:
                shown = card_name(card)
                by_name = bool(node_part) and node_part in name and card_part in shown
                if by_name or _is_id(q, card.fact.id) or _is_id(q, card.fact.id.partition("-")[2]):
                    is_exact = q in (f"{name}/{shown}", card.fact.id)
                    yield is_exact, partial(_card, name, shown, card)


def _card(node: str, shown: str, card: Card) -> Hit:
    about = f"{model_text(card.fact.model)}, {card.fact.id}"
    return Hit(link=card_link(node, shown), about=about)


def _gangs(moment: Moment, q: str) -> _Found:
    for key, group in sorted(moment.state.groups.items()):
        uid = "" if group.fact is None else group.fact.uid
        if q in key or _is_id(q, uid):
            about = "no PodGroup" if group.fact is None else group.fact.phase
            yield (
                q in (key, key.partition("/")[2]),
                partial(Hit, link=group_link(key), about=about),
            )


def _queues(moment: Moment, q: str) -> _Found:
    for name, fact in sorted(moment.state.queues.items()):
        if q in name:
            yield q == name, partial(Hit, link=queue_link(name), about=fact.state)


def _records(moment: Moment, q: str) -> _Found:
    digits = q.removeprefix("seq ").removeprefix("record ").removeprefix("decision ")
    seq = natural(digits)
    entry = None if seq is None else moment.entry(seq)
    if entry is None:
        return
    is_decision = any(isinstance(event, Decided) for event in entry.events)
    word = "decision" if is_decision else "record"
    to = path("decisions" if is_decision else "log", str(entry.seq))
    yield True, partial(Hit, link=Bit(text=f"{word} {entry.seq}", path=to), about="")


def _named(link: Bit, name: str) -> Bit:
    return msgspec.structs.replace(link, text=name)
