"""`allot explain queue`: what a queue may have, what it has, and who waits in it."""

from collections.abc import Iterator, Mapping, Sequence

import click

from allotment.adapters.service.moments import moment_text
from allotment.answers import objects
from allotment.answers.folding import Folded
from allotment.answers.source import Source
from allotment.core.explain.rows.schema import QueueExplanation, QueueGroup, Reason
from allotment.core.explain.rows.words import (
    amount_text,
    kept_text,
    place_text,
    plugin_text,
    reason_text,
)
from allotment.core.queues.round.quota import QueueHolder
from allotment.core.units import age_text
from allotment_cli.options import completion
from allotment_cli.read.explaining import Asked, answer, explanation_options
from allotment_cli.show.alike import many, runs
from allotment_cli.show.explain_text import field
from allotment_cli.show.output import Prose, heading, table

BELOW = "       "
"""Before what is said of a row below it."""
GROUPS_SHOWN = 12


@click.command()
@click.argument("name", shell_complete=completion.queues)
@explanation_options("Show every group that waits.")
def queue(name: str, asked: Asked) -> None:
    """What a queue may have, what it has, and who waits in it."""

    async def explain(source: Source, folded: Folded, *, advised: bool) -> QueueExplanation:
        return objects.queue(folded, name)

    answer(asked, explain, queue_lines, _next)


def _next(found: QueueExplanation) -> str:
    first = next((group for group in found.waiting if not group.is_pod), None)
    return f"allot explain gang {first.namespace}/{first.name}" if first else ""


def queue_lines(found: QueueExplanation, *, everything: bool = False) -> list[str]:
    """The whole screen."""
    lines: list[str] = [field(label, text) for label, text in _head(found)]
    if found.limits:
        lines += [
            "",
            heading(Prose(f"Limits ({plugin_text(found.plugin)})", 2)),
            *_limit_lines(found),
        ]
    waiting = [[g] for g in found.waiting] if everything else runs(found.waiting, _wait_of)
    shown = waiting if everything else waiting[:GROUPS_SHOWN]
    if shown:
        lines += ["", heading("Waiting, in order"), *_group_lines(shown, found.refuses)]
        if len(shown) < len(waiting):
            lines.append(f"  {sum(map(len, waiting[len(shown) :])):,} more: --all")
    using = [[h] for h in found.holders] if everything else runs(found.holders, _use_of)
    holders = using if everything else using[:GROUPS_SHOWN]
    if holders:
        lines += [
            "",
            heading("Groups that use the quota, largest first"),
            *_holder_lines(holders, found.units),
        ]
        if len(holders) < len(using):
            lines.append(f"  {sum(map(len, using[len(holders) :])):,} more: --all")
    return lines


def _head(found: QueueExplanation) -> Iterator[tuple[str, str]]:
    yield "Queue", f"{found.subject.name}   uid {found.subject.uid}"
    below = f", below it {', '.join(found.children)}" if found.children else ""
    above = f", part of {found.parent}" if found.parent else ""
    yield "Status", f"{found.state}{above}{below}"
    lends = "reclaimable" if found.reclaimable else "not reclaimable"
    yield "Rank", f"priority {found.priority}, weight {found.weight}, {lends}"
    if found.queues is not None and found.queues.length > 1:
        yield "Order", place_text(found.queues, "of the queues that wait")
    if found.refuses is not None:
        yield "Refuses", reason_text(found.refuses)
    if found.problem is not None:
        yield "Problem", reason_text(found.problem)
    yield (
        "Groups",
        ", ".join(f"{count} {phase}" for phase, count in found.groups.items()) or "none",
    )
    for kept in found.kept:
        yield "Reserved", kept_text(kept)
    yield "As of", f"seq {found.as_of.seq}, {moment_text(found.as_of.time_ms)}"


def _limit_lines(found: QueueExplanation) -> list[str]:
    limits = found.limits
    columns: dict[str, list[int | None]] = {
        "HAS": [limit.allocated for limit in limits],
        "PROMISED": [limit.promised for limit in limits],
        "WANTS MORE": [max(limit.request - limit.allocated, 0) for limit in limits],
        "DESERVES": [limit.deserved for limit in limits],
        "AT MOST": [limit.most for limit in limits],
        "CAPABILITY": [limit.capability for limit in limits],
        "GUARANTEED": [limit.guarantee for limit in limits],
        "CARD QUOTA": [limit.card_quota for limit in limits],
    }
    shown = {
        header: amounts
        for header, amounts in columns.items()
        if any(amount is not None for amount in amounts)
    }
    rows = [
        [
            limit.resource,
            *(amount_text(limit.resource, amounts[at], found.units) for amounts in shown.values()),
        ]
        for at, limit in enumerate(limits)
    ]
    return table(["RESOURCE", *shown], rows, right=list(shown), indent="  ")


def _who(each: QueueGroup | QueueHolder) -> str:
    return f"{'pod ' * each.is_pod}{each.namespace}/{each.owner or each.name}"


def _wait_of(group: QueueGroup) -> tuple[object, ...]:
    """What the row of a group that waits says, but for its name, position and age."""
    shape = group.is_pod, group.phase, group.min_member, group.waiting, group.priority
    return *shape, group.namespace, group.reason


def _use_of(holder: QueueHolder) -> tuple[object, ...]:
    """What the row of a group that uses the quota says, but for its name."""
    shape = holder.is_pod, holder.namespace, holder.queue, holder.phase, holder.pods
    return *shape, holder.allocated, holder.promised


def _group_lines(groups: Sequence[Sequence[QueueGroup]], refuses: Reason | None) -> list[str]:
    """A row for groups that are alike, and below it why they wait, unless the queue said that. The
    age is that of the oldest.
    """
    rows = [
        [
            str(alike[0].position) + f"-{alike[-1].position}" * (len(alike) > 1),
            many([_who(group) for group in alike]),
            alike[0].phase,
            str(alike[0].min_member),
            str(alike[0].waiting),
            str(alike[0].priority),
            age_text(max(group.since_seconds for group in alike)),
        ]
        for alike in groups
    ]
    headers = ["#", "GROUP", "PHASE", "MIN", "WAITING", "PRIORITY", "AGE"]
    first, *shown = table(headers, rows, right=("#", "MIN", "WAITING", "PRIORITY"), indent="  ")
    lines = [first]
    for line, (group, *_) in zip(shown, groups, strict=True):
        lines.append(line)
        if group.reason is not None and group.reason != refuses:
            lines.append(Prose(f"{BELOW}{reason_text(group.reason, ': ')}", len(BELOW)))
    return lines


def _holder_lines(holders: Sequence[Sequence[QueueHolder]], units: Mapping[str, int]) -> list[str]:
    """A row for groups that are alike, and below it what each of them has."""
    rows = [
        [
            many([_who(holder) for holder in alike]),
            alike[0].queue,
            alike[0].phase,
            str(alike[0].pods),
        ]
        for alike in holders
    ]
    first, *shown = table(["GROUP", "QUEUE", "PHASE", "PODS"], rows, right=("PODS",), indent="  ")
    lines = [first]
    for line, (holder, *_) in zip(shown, holders, strict=True):
        lines.append(line)
        for word, amounts in (("has", holder.allocated), ("promised", holder.promised)):
            if amounts:
                lines.append(Prose(f"{BELOW}{word} {_amounts_text(amounts, units)}", len(BELOW)))
    return lines


def _amounts_text(amounts: Mapping[str, int], units: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} {amount_text(name, amount, units)}" for name, amount in amounts.items()
    )
