"""Search: pods, nodes, cards, gangs, queues and records by a part of their name or id."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from allotment.core.explain.pod_views import pod_status
from allotment.core.explain.views import card_name, model_text, node_status
from allotment_inspector.history import Moment
from allotment_inspector.pages.asked import natural
from allotment_inspector.pages.found import Near, not_found
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
_CHARS_MIN = 4
"""Of an id so many characters are wanted; of a name one is enough."""


class Hit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that was found, and a word about it."""

    link: Bit
    about: str
    exact: bool


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


def _kind(name: str, hits: Iterable[Hit]) -> Kind:
    """Exact names first, else in their order."""
    found = list(islice(hits, _SHOWN * 25))
    found.sort(key=lambda hit: not hit.exact)
    return Kind(name=name, hits=tuple(found[:_SHOWN]), more=len(found) > _SHOWN)


def _is_id(q: str, uid: str) -> bool:
    """Whether it is the beginning of an id, with or without dashes: a trace's id is a uid's."""
    if len(q) < _CHARS_MIN:
        return False
    return uid.startswith(q) or uid.replace("-", "").startswith(q.lower().replace("-", ""))


def _pods(moment: Moment, q: str) -> Iterator[Hit]:
    state, seen = moment.state, set()
    for pod in state.pods.values():
        fact = pod.fact
        name = f"{fact.namespace}/{fact.name}"
        seen.add(name)
        if q in name or _is_id(q, fact.uid):
            status, cause = pod_status(state, pod)
            about = f"{status}: {cause}" if cause else status
            link = pod_link(fact.namespace, fact.name, fact.uid)
            exact = q in (name, fact.name, fact.uid)
            yield Hit(link=_named(link, name), about=about, exact=exact)
    for name in moment.pod_names():
        if name in seen:
            continue
        namespace, _, bare = name.partition("/")
        if q in name or any(_is_id(q, uid) for uid in moment.pods_named(namespace, bare)):
            link = _named(pod_link(namespace, bare), name)
            yield Hit(link=link, about="not there at this moment", exact=q in (name, bare))


def _nodes(moment: Moment, q: str) -> Iterator[Hit]:
    for name, node in sorted(moment.state.nodes.items()):
        if q in name:
            yield Hit(link=node_link(name), about=node_status(node), exact=q == name)


def _cards(moment: Moment, q: str) -> Iterator[Hit]:
    """Cards by id, or as ``<node>/GPU-3``."""
    node_part, _, card_part = q.rpartition("/")
    for name, node in sorted(moment.state.nodes.items()):
        for ledger in node.ledgers.values():
            for card in ledger.cards:
                shown = card_name(card)
                by_name = bool(node_part) and node_part in name and card_part in shown
                if by_name or _is_id(q, card.fact.id) or _is_id(q, card.fact.id.partition("-")[2]):
                    place = f"{name}/{shown}"
                    link = card_link(name, shown)
                    about = f"{model_text(card.fact.model)}, {card.fact.id}"
                    yield Hit(link=link, about=about, exact=q in (place, card.fact.id))


def _gangs(moment: Moment, q: str) -> Iterator[Hit]:
    for key, group in sorted(moment.state.groups.items()):
        uid = "" if group.fact is None else group.fact.uid
        if q in key or _is_id(q, uid):
            about = "no PodGroup" if group.fact is None else group.fact.phase
            exact = q in (key, key.partition("/")[2])
            yield Hit(link=group_link(key), about=about, exact=exact)


def _queues(moment: Moment, q: str) -> Iterator[Hit]:
    for name, fact in sorted(moment.state.queues.items()):
        if q in name:
            yield Hit(link=queue_link(name), about=fact.state, exact=q == name)


def _records(moment: Moment, q: str) -> Iterator[Hit]:
    digits = q.removeprefix("seq ").removeprefix("record ").removeprefix("decision ")
    seq = natural(digits)
    entry = None if seq is None else moment.entry(seq)
    if entry is None:
        return
    is_decision = any(isinstance(event, Decided) for event in entry.events)
    word = "decision" if is_decision else "record"
    steps = ("decisions" if is_decision else "log", str(entry.seq))
    yield Hit(link=Bit(text=f"{word} {entry.seq}", path=path(*steps)), about="", exact=True)


def _named(link: Bit, name: str) -> Bit:
    return msgspec.structs.replace(link, text=name)
