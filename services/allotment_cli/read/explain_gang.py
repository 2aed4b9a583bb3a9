"""`allot explain gang`: why a group of pods runs, or what it waits for."""

from collections.abc import Iterator, Sequence

import click

from allotment.answers import objects
from allotment.answers.folding import Folded
from allotment.answers.source import Source
from allotment.core.explain.rows.schema import (
    GangExplanation,
    Member,
)
from allotment.core.explain.rows.words import (
    amount_text,
    gang_status_text,
    gate_text,
    kept_text,
    member_text,
    place_text,
    reason_text,
    wants_text,
)
from allotment.core.queues.round.verdict import BLOCKED
from allotment_cli.options import completion
from allotment_cli.options.names import pod_name
from allotment_cli.options.params import namespace_option
from allotment_cli.read.explaining import Asked, answer, explanation_options
from allotment_cli.show.advice_text import gang_advice_lines
from allotment_cli.show.alike import grouped, many
from allotment_cli.show.output import (
    Prose,
    heading,
    table,
)

PENDING_EXIT = 3
MEMBERS_SHOWN = 16
LABEL = 11
WAITS = frozenset(("NoQueue", "AtGate", "Incomplete", "Waiting"))


@click.command()
@click.argument("name", metavar="[NAMESPACE/]NAME", shell_complete=completion.groups)
@namespace_option
@explanation_options("Show every member.")
@click.option(
    "--exit-code", is_flag=True, help="Exit 0 if the group has its minimum, 3 if it waits."
)
@click.pass_context
def gang(
    ctx: click.Context, /, name: str, namespace: str | None, asked: Asked, exit_code: bool
) -> None:
    """Explain why a group runs or waits. NAME is its PodGroup's or its Job's."""
    space, bare = pod_name(name, "group", namespace)

    async def explain(source: Source, folded: Folded, *, advised: bool) -> GangExplanation:
        return objects.gang(source, folded, space, bare, advised=advised)

    found = answer(asked, explain, gang_lines, _next)
    if exit_code and found.status.phase in WAITS:
        ctx.exit(PENDING_EXIT)


def _next(found: GangExplanation) -> str:
    blocked = next((member for member in found.members if member.state == BLOCKED), None)
    if blocked is not None and blocked.reasons:
        return f"allot explain pod {found.subject.namespace}/{blocked.name}"
    if found.queue_state:
        return f"allot explain queue {found.queue}"
    return "allot queue list"


def gang_lines(found: GangExplanation, *, everything: bool = False) -> list[str]:
    """The whole screen."""
    lines: list[str] = [_prose(label, text) for label, text in _head(found)]
    if found.members:
        alike = [[m] for m in found.members] if everything else grouped(found.members, _shape)
        shown = alike if everything else alike[:MEMBERS_SHOWN]
        lines += ["", heading(f"Members{'':<24}as of seq {found.as_of.seq}")]
        lines += _member_lines(shown)
        if len(shown) < len(alike):
            lines.append(f"  {sum(map(len, alike[len(shown) :])):,} more: --all")
    lines += gang_advice_lines(found.counterfactuals)
    lines += [_prose(label, text) for label, text in _tail(found, everything)]
    return lines


def _prose(label: str, text: str) -> str:
    return Prose(f"{label:<{LABEL}}{text}".rstrip(), LABEL)


def _head(found: GangExplanation) -> Iterator[tuple[str, str]]:
    who = found.subject
    yield "Gang", f"{who.namespace}/{who.name}" + (f"   uid {who.uid}" if who.uid else "")
    yield "Status", gang_status_text(found)
    if found.status.cause is not None:
        yield "Cause", reason_text(found.status.cause)
    for quota in found.status.quota:
        yield "Because", quota.text
    if found.problem is not None:
        yield "Problem", reason_text(found.problem)
    if found.status.phase == "Unseen":
        return
    roles = ", ".join(f"{least} {role}" for role, least in found.min_task_member.items())
    counts = ", ".join(f"{count} {state}" for state, count in found.counts.items())
    pods = f"{found.min_member} pod{'s' * (found.min_member != 1)}"
    yield "Minimum", f"{pods}{f' ({roles})' * bool(roles)}; has {counts or 'none'}"
    for wanted in found.wants:
        each = wants_text(wanted.request) or "no device"
        yield "Wants", f"{wanted.pods} pod{'s' * (wanted.pods != 1)}, each {each}"
    if found.min_resources:
        asked = (
            f"{name} {amount_text(name, n, found.units)}" for name, n in found.min_resources.items()
        )
        yield "Gate needs", ", ".join(asked)
    klass = f" (class {found.priority_class})" if found.priority_class else ""
    state = found.queue_state or "does not exist"
    yield "Queue", f"{found.queue} ({state}), priority {found.priority}{klass}"
    if found.gate is not None:
        yield "Gate", gate_text(found)
    if found.never_preempts:
        yield "Evicts", "no pods: a preemptionPolicy of its class or pods is Never"


def _shape(member: Member) -> tuple[str, ...]:
    return member.role, member.state, member.node, member_text(member)


def _member_lines(groups: Sequence[Sequence[Member]]) -> list[str]:
    """A row for members that are alike; a reason that was given is not repeated."""
    rows = []
    first: dict[str, str] = {}
    for members in groups:
        member, why = members[0], member_text(members[0])
        shown = first.setdefault(why, member.name) if why else member.name
        blocked = why if shown == member.name else f"same as {shown}"
        names = many([each.name for each in members])
        rows.append([names, member.role, member.state, member.node, blocked])
    headers = ["MEMBER", "ROLE", "STATE", "NODE", "BLOCKED BY"]
    return table(headers, rows, indent="  ")


def _tail(found: GangExplanation, everything: bool) -> Iterator[tuple[str, str]]:
    said = found.said
    places = found.in_queue or found.kept or found.in_the_way or found.leaving
    if said is not None or places:
        yield "", ""
    if said is not None:
        fit = f"{said.together} of {said.wanted} together"
        tried = f"tried: {fit}" if said.tried else "not tried"
        if said.together and not said.tried:
            tried += f": at most {fit}"
        yield "Reported", f"{said.code}: {said.message}"
        if everything:
            yield (
                "",
                f"at seq {said.basis} ({tried}); short since decision {said.since}; "
                f"pods of others placed since: {said.passed}",
            )
    if found.in_queue is not None:
        yield "Order", place_text(found.in_queue, f"in queue {found.queue}")
    if found.queues is not None and found.queues.length > 1:
        yield "", place_text(found.queues, "of the queues that wait")
    for kept in found.kept:
        yield "Reserved", kept_text(kept)
    for kept in found.in_the_way:
        yield "Reserved", kept_text(kept)
    for pod in found.leaving:
        yield "Leaving", f"{pod.namespace}/{pod.name} on {pod.node} ({pod.action})"
