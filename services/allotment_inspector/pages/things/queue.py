"""One queue: what it may have, what it has, and whom it keeps waiting, in their order."""

from collections.abc import Iterator, Mapping

import msgspec

from allotment.core.explain.queue import explain_queue
from allotment.core.explain.rows.schema import QueueExplanation, QueueGroup, Reason
from allotment.core.explain.rows.words import (
    amount_text,
    kept_text,
    place_text,
    plugin_text,
    reason_text,
)
from allotment.core.queues.round.quota import QueueHolder, QueueLimit
from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.found import NotFound, not_found
from allotment_inspector.said import (
    Bit,
    Fact,
    group_link,
    joined,
    pod_link,
    queue_link,
    said,
    typed,
)

_GROUPS_SHOWN = 200
_WHOLE = 10_000


class LimitRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource of the queue in words, and as a meter: `held`, `wanted` and `most` in
    ten-thousandths of its scale; `most` is None where nothing limits it. `is_short`: what is wanted
    goes beyond.
    """

    resource: str
    has: str
    promised: str
    wants: str
    at_most: str
    deserves: str
    guaranteed: str
    held: int
    wanted: int
    most: int | None
    is_short: bool


class WaitingRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group, or a pod without one, that waits; `since_ms` is when it was made."""

    position: int
    who: Bit
    phase: str
    needs: int
    waiting: int
    priority: int
    since_ms: int | None
    why: str


class HolderRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One that has a part of the quota."""

    who: Bit
    queue: str
    pods: int
    has: str
    promised: str


class QueuePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that the page shows; `explanation` is that of the command line."""

    name: str
    state: str
    look: str
    sentence: tuple[Bit, ...]
    facts: tuple[Fact, ...]
    plugin: str
    limits: tuple[LimitRow, ...]
    waiting: tuple[WaitingRow, ...]
    more: int
    holders: tuple[HolderRow, ...]
    explanation: QueueExplanation


def view(
    moment: Moment, match: Mapping[str, str], query: Mapping[str, str]
) -> QueuePage | NotFound:
    """The queue at the moment."""
    name = match["name"]
    if name not in moment.state.queues:
        return not_found("queue", name, moment.state.queues, lambda each: queue_link(each).path)
    found = explain_queue(moment.state, name, moment.now_ms)
    waits = bool(found.waiting)
    return QueuePage(
        name=name,
        state=found.state,
        look="fail" if found.refuses is not None else "wait" if waits else "",
        sentence=tuple(_sentence(found)),
        facts=tuple(_facts(found)),
        plugin=plugin_text(found.plugin),
        limits=tuple(limit_row(limit, found.units) for limit in found.limits),
        waiting=tuple(_waiting(each, moment.now_ms) for each in found.waiting[:_GROUPS_SHOWN]),
        more=max(len(found.waiting) - _GROUPS_SHOWN, 0),
        holders=tuple(_holder(each, found.units) for each in found.holders[:_GROUPS_SHOWN]),
        explanation=found,
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    return typed("allot", "explain", "queue", match["name"], at=moment.at)


def _sentence(found: QueueExplanation) -> Iterator[Bit]:
    count = len(found.waiting)
    gap = ""
    if found.refuses is not None:
        yield Bit(text=f"Admits no pods now: {_reason(found.refuses)}.")
        gap = " "
    if not count:
        yield Bit(text=f"{gap}Nothing is waiting.")
        return
    first = found.waiting[0]
    who = _who(first)
    if count > 1:
        yield from said(f"{gap}{count:,} groups and pods are waiting. First is ", who)
    else:
        yield from said(gap, who, " is waiting")
    if first.reason is not None and first.reason != found.refuses:
        yield Bit(text=f": {_reason(first.reason)}")
    yield Bit(text=".")


def _reason(reason: Reason) -> str:
    return reason_text(reason, ": ").removesuffix(".")


def _facts(found: QueueExplanation) -> Iterator[Fact]:
    def fact(label: str, *pieces: str | Bit) -> Fact:
        return Fact(label=label, bits=said(*pieces))

    yield fact("State", found.state)
    if found.parent:
        yield fact("Parent", queue_link(found.parent))
    if found.children:
        yield fact("Children", *joined(map(queue_link, found.children)))
    lends = "reclaimable" if found.reclaimable else "not reclaimable"
    yield fact("Rank", f"priority {found.priority}, weight {found.weight}, {lends}")
    if found.queues is not None and found.queues.length > 1:
        yield fact("Order", place_text(found.queues, "of the waiting queues"))
    counts = ", ".join(f"{count} {phase}" for phase, count in found.groups.items())
    yield fact("Groups", counts or "none")
    if found.problem is not None:
        yield fact("Problem", reason_text(found.problem, ": "))
    for kept in found.kept:
        yield fact("Reserved", kept_text(kept))
    yield Fact(label="UID", bits=said(found.subject.uid), is_id=True)


def limit_row(limit: QueueLimit, units: Mapping[str, int]) -> LimitRow:
    """A limit of a queue, with amounts as text and lengths of a bar in ten-thousandths."""

    def text(amount: int | None) -> str:
        return amount_text(limit.resource, amount, units)

    held, wanted = limit.allocated + limit.promised, max(limit.request - limit.allocated, 0)
    scale = max(held + wanted, limit.most or 0, 1)
    return LimitRow(
        resource=limit.resource,
        has=text(limit.allocated),
        promised=text(limit.promised) if limit.promised else "",
        wants=text(wanted),
        at_most=text(limit.most),
        deserves=text(limit.deserved),
        guaranteed=text(limit.guarantee),
        held=held * _WHOLE // scale,
        wanted=wanted * _WHOLE // scale,
        most=None if limit.most is None else limit.most * _WHOLE // scale,
        is_short=limit.most is not None and held + wanted > limit.most,
    )


def _waiting(group: QueueGroup, now_ms: int) -> WaitingRow:
    return WaitingRow(
        position=group.position,
        who=_who(group),
        phase=group.phase,
        needs=group.min_member,
        waiting=group.waiting,
        priority=group.priority,
        since_ms=now_ms - group.since_seconds * 1000 if group.since_seconds else None,
        why="" if group.reason is None else reason_text(group.reason, ": "),
    )


def _holder(holder: QueueHolder, units: Mapping[str, int]) -> HolderRow:
    return HolderRow(
        who=_who(holder),
        queue=holder.queue,
        pods=holder.pods,
        has=_amounts(holder.allocated, units),
        promised=_amounts(holder.promised, units),
    )


def _amounts(amounts: Mapping[str, int], units: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {amount_text(name, n, units)}" for name, n in amounts.items())


def _who(each: QueueGroup | QueueHolder) -> Bit:
    if each.is_pod:
        return pod_link(each.namespace, each.name)
    link = group_link(f"{each.namespace}/{each.name}")
    return msgspec.structs.replace(link, text=f"{each.namespace}/{each.owner or each.name}")
