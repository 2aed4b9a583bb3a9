"""One gang: how many of its pods can start together now, and what each of them lacks."""

from collections.abc import Iterator, Mapping

import msgspec

from allotment.core.explain.gang import explain_gang
from allotment.core.explain.rows.schema import GangExplanation
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
from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.found import NotFound, not_found
from allotment_inspector.said import (
    Bit,
    Fact,
    decision_link,
    group_link,
    node_link,
    pod_link,
    queue_link,
    said,
    typed,
)

_MEMBERS_SHOWN = 200
_WAITS = frozenset(("NoQueue", "AtGate", "Incomplete", "Waiting", "Growing", "Unseen"))
_ADVISED = frozenset(("AtGate", "Waiting"))
"""Where it stands if changes may let it start; of one with too few pods none would."""
_NEVER = frozenset(("NoQueue", "Incomplete", "Unseen"))


class MemberRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod of the gang. `same_as` names an earlier member that lacks the same."""

    pod: Bit
    role: str
    state: str
    node: Bit | None
    why: str
    same_as: str


class GangPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that the page shows; `explanation` is that of the command line, without its advice.
    `wants_advice`: changes that would let it start may be asked for, at the address of
    `gang_advice`.
    """

    key: str
    status: str
    look: str
    sentence: tuple[Bit, ...]
    facts: tuple[Fact, ...]
    because: tuple[str, ...]
    wants_advice: bool
    members: tuple[MemberRow, ...]
    more: int
    leaving: tuple[tuple[Bit, Bit, str], ...]
    explanation: GangExplanation


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> GangPage | NotFound:
    """The gang at the moment."""
    key = key_of(match)
    if key not in moment.state.groups:
        return no_gang(moment, key)
    found = explain_gang(moment.state, key, moment.now_ms, advised=False)
    phase = found.status.phase
    return GangPage(
        key=key,
        status=phase,
        look="fail" if phase in _NEVER else "wait" if phase in _WAITS else "",
        sentence=said(f"{gang_status_text(found).removesuffix('.')}."),
        facts=tuple(_facts(found)),
        because=tuple(_because(found)),
        wants_advice=phase in _ADVISED or found.status.fits_empty_cluster is False,
        members=tuple(_members(found)),
        more=max(len(found.members) - _MEMBERS_SHOWN, 0),
        leaving=tuple(
            (pod_link(pod.namespace, pod.name), node_link(pod.node), pod.action)
            for pod in found.leaving
        ),
        explanation=found,
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    return typed("allot", "explain", "gang", key_of(match), at=moment.at)


def key_of(match: Mapping[str, str]) -> str:
    """The gang that an address names, as ``<namespace>/<name>``."""
    return f"{match['namespace']}/{match['name']}"


def no_gang(moment: Moment, key: str) -> NotFound:
    """That there is no such gang, and which others have like names."""
    return not_found("gang", key, moment.state.groups, lambda each: group_link(each).path)


def _because(found: GangExplanation) -> Iterator[str]:
    """What keeps it from starting, the most telling first."""
    status = found.status
    if found.problem is not None:
        yield reason_text(found.problem, ": ")
    yield from (quota.text for quota in status.quota)
    if status.cause is not None:
        yield reason_text(status.cause, ": ")
    if found.said is not None and (status.cause is None or found.said.code != status.cause.code):
        yield f"{found.said.code}: {found.said.message}"
    for kept in (*found.kept, *found.in_the_way):
        yield f"kept: {kept_text(kept)}"


def _facts(found: GangExplanation) -> Iterator[Fact]:
    def fact(label: str, *pieces: str | Bit) -> Fact:
        return Fact(label=label, bits=said(*pieces))

    roles = ", ".join(f"{least} {role}" for role, least in found.min_task_member.items())
    counts = ", ".join(f"{count} {state}" for state, count in found.counts.items())
    pods = f"{found.min_member} pod{'s' * (found.min_member != 1)}"
    yield fact("Minimum", f"{pods}{f' ({roles})' * bool(roles)}")
    yield fact("Has", counts or "no pods")
    for wanted in found.wants:
        each = wants_text(wanted.request) or "no device"
        yield fact("Request", f"{wanted.pods} pod{'s' * (wanted.pods != 1)}, each {each}")
    if found.min_resources:
        least = found.min_resources.items()
        asked = (f"{name} {amount_text(name, n, found.units)}" for name, n in least)
        yield fact("Admission needs", ", ".join(asked))
    if found.queue:
        state = found.queue_state or "does not exist"
        yield fact("Queue", queue_link(found.queue), f" ({state})")
    klass = f" (class {found.priority_class})" if found.priority_class else ""
    yield fact("Priority", f"{found.priority}{klass}")
    if found.gate is not None:
        decided = decision_link(found.gate.decision) if found.gate.decision else Bit()
        text = gate_text(found).removesuffix(f" by {decided.text}") if decided.text else ""
        pieces = (f"{text} by ", decided) if decided.text else (gate_text(found),)
        yield fact("Gate", *pieces)
    if found.in_queue is not None:
        yield fact("Order", place_text(found.in_queue, "in its queue"))
    if found.queues is not None and found.queues.length > 1:
        yield fact("Queue order", place_text(found.queues, "of the waiting queues"))
    if found.never_preempts:
        yield fact("Evicts", "none: preemptionPolicy is Never")
    if found.said is not None and found.said.since:
        yield fact("Short since", decision_link(found.said.since))
    if found.subject.uid:
        yield Fact(label="UID", bits=said(found.subject.uid), is_id=True)


def _members(found: GangExplanation) -> Iterator[MemberRow]:
    first: dict[str, str] = {}
    for member in found.members[:_MEMBERS_SHOWN]:
        why = member_text(member)
        shown = first.setdefault(why, member.name) if why else member.name
        yield MemberRow(
            pod=pod_link(found.subject.namespace, member.name),
            role=member.role,
            state=member.state,
            node=node_link(member.node) if member.node else None,
            why=why if shown == member.name else "",
            same_as="" if shown == member.name else shown,
        )
