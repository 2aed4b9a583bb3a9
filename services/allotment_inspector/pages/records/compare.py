"""What differs between two moments: pods, nodes, cards and settings."""

from collections.abc import Mapping

import msgspec

from allotment.core.explain.difference import Differing, differences, field_amount, field_words
from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.asked import natural
from allotment_inspector.said import Bit, card_link, node_link, pod_link, typed

_SHOWN = 200
"""Of each kind."""
_BACK = 50
"""So many records back is compared with if nothing is said."""


class Field(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A field that differs, in words."""

    name: str
    before: str
    after: str


class Thing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that differs: ``added``, ``removed`` or ``changed``."""

    link: Bit
    how: str
    mark: str
    fields: tuple[Field, ...]


class Kind(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that differs of one kind."""

    name: str
    things: tuple[Thing, ...]
    total: int


class ComparePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The moment `before_seq` and that of the page."""

    before_seq: int
    before_ms: int | None
    after_seq: int
    after_ms: int
    kinds: tuple[Kind, ...]
    total: int


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> ComparePage:
    """From the record `from` to the moment; without `from`, from some records before it."""
    seq = _before(moment, query)
    before = next((state for _, state in moment.states((seq,))), moment.state)
    found = differences(before, moment.state)
    return ComparePage(
        before_seq=seq,
        before_ms=moment.ms_of(seq),
        after_seq=moment.seq,
        after_ms=moment.time_ms,
        kinds=tuple(
            _kind(name, [each for each in found if each.kind == name])
            for name in dict.fromkeys(each.kind for each in found)
        ),
        total=len(found),
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    return typed("allot", "diff", str(_before(moment, query)), str(moment.seq))


def _before(moment: Moment, query: Mapping[str, str]) -> int:
    """The record that the moment is compared with."""
    given = natural(query.get("from", ""))
    seq = max(moment.seq - _BACK, 1) if given is None else given
    return max(min(seq, moment.seq), min(1, moment.seq))


def _kind(name: str, found: list[Differing]) -> Kind:
    return Kind(name=name, things=tuple(map(_thing, found[:_SHOWN])), total=len(found))


def _thing(found: Differing) -> Thing:
    return Thing(
        link=_link(found),
        how=found.how,
        mark=found.mark,
        fields=tuple(
            Field(
                name=field_words(change.field),
                before=field_amount(change.field, change.before),
                after=field_amount(change.field, change.after),
            )
            for change in found.changes
        ),
    )


def _link(found: Differing) -> Bit:
    first, _, second = found.name.partition("/")
    match found.kind:
        case "pod":
            link = pod_link(first, second)
            which = f" (uid {found.uid})" if found.has_namesake else ""
            return msgspec.structs.replace(link, text=found.name + which)
        case "node":
            return node_link(found.name)
        case "card":
            return card_link(first, second)
        case _:
            return Bit(text=found.name)
