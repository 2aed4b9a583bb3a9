"""Sentences with links and ages in them, and facts of a page: what templates draw as text."""

import shlex
from collections.abc import Iterable, Iterator
from urllib.parse import quote

import msgspec


class Bit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A piece of a sentence. With `path` it links there, asking for `query`; with `since_ms` it is
    the time that passed since, redrawn as it passes.
    """

    text: str = ""
    path: str = ""
    query: dict[str, str] = {}
    since_ms: int | None = None


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of what is known: a label, and what it is."""

    label: str
    bits: tuple[Bit, ...]
    is_id: bool = False


def said(*pieces: str | Bit) -> tuple[Bit, ...]:
    """A sentence out of texts and links; empty texts are left out."""
    return tuple(each if isinstance(each, Bit) else Bit(text=each) for each in pieces if each != "")


def joined(found: Iterable[Bit], between: str = ", ") -> Iterator[Bit]:
    """Links, one after the other."""
    for number, bit in enumerate(found):
        if number:
            yield Bit(text=between)
        yield bit


def path(*steps: str) -> str:
    """An address of these steps, each escaped: ``path("a b", "c")`` is ``/a%20b/c``."""
    return "/" + "/".join(quote(step, safe="") for step in steps)


def pod_link(namespace: str, name: str, uid: str = "") -> Bit:
    """A pod by its name, or by its uid where another pod has that name now."""
    return Bit(text=name, path=path("pods", namespace, name), query={"uid": uid} if uid else {})


def card_link(node: str, device: str) -> Bit:
    """A card, where it is on the map."""
    card = f"{node}/{device}"
    return Bit(text=card, path="/", query={"card": card})


def node_link(node: str, text: str = "") -> Bit:
    """A node, perhaps called by one of its cards."""
    return Bit(text=text or node, path=path("nodes", node))


def group_link(key: str) -> Bit:
    """A group ``<namespace>/<name>``."""
    namespace, _, name = key.partition("/")
    return Bit(text=key, path=path("gangs", namespace, name))


def queue_link(name: str) -> Bit:
    """A queue."""
    return Bit(text=name, path=path("queues", name))


def decision_link(seq: int, text: str = "") -> Bit:
    """A decision, by its record."""
    return Bit(text=text or f"decision {seq}", path=path("decisions", str(seq)))


def typed(*words: str, at: int | None = None) -> str:
    """A command line of these words, each quoted for a shell where it needs that; with `at` as of
    that record.
    """
    moment = () if at is None else ("--at", str(at))
    return " ".join(map(shlex.quote, (*words, *moment)))
