"""An explanation on a screen: its head, and the sections that apply.

Everything is read from the JSON structs, so nothing is known to the text alone.
"""

from collections.abc import Iterator, Sequence

from allotment.adapters.service.moments import moment_text, since_text
from allotment.core.explain.rows.life import Life, PodExplanation
from allotment.core.explain.rows.views import PERHAPS
from allotment.core.explain.rows.words import (
    because_texts,
    card_noun,
    card_text,
    cause_text,
    displaced_text,
    fragmentation_text,
    held_text,
    place_text,
    relative_text,
    status_text,
    waiting_text,
    wants_text,
)
from allotment.core.ledger.model import ENDED
from allotment.core.reasons import VOLUME_NOT_READY
from allotment.core.units import bytes_text, cpu_text
from allotment_cli.show import explain_sections as sections
from allotment_cli.show.advice_text import advice_lines
from allotment_cli.show.output import Prose, heading

LABEL = 11
OVER = ENDED | {"Gone"}
"""Statuses of pods that are over: the reason for their placement is shown on request."""


def explanation_lines(found: PodExplanation, *, everything: bool = False) -> list[str]:
    """The whole screen; `everything` leaves nothing out of the long sections."""
    lines = list(_head(found, everything))
    waits = found.status.phase == "Pending" and found.placement is None
    is_over = found.status.phase in OVER and not everything
    if found.candidates and not is_over:
        title = (
            f"Why this {card_noun(found.request)}"
            if found.candidates[0].devices
            else "Why this node"
        )
        lines += _section(title, sections.competition(found, everything))
    if found.funnel and not is_over and found.funnel[-1].left < found.funnel[0].left:
        body = (
            sections.funnel(found.funnel, found.request)
            if waits
            else sections.rejected(found.funnel)
        )
        lines += _section("Rejected nodes", body)
    if found.fragmentation is not None:
        lines += _section(
            f"Fragmented: enough {found.fragmentation.dimension} is free, but not on one card",
            [Prose(f"  {fragmentation_text(found.fragmentation)}.", 2)],
        )
    if found.closest:
        lines += _section("Closest cards", sections.closest(found.closest))
    never = found.status.fits_empty_cluster is False
    lines += advice_lines(found.counterfactuals, never=never)
    if never and found.funnel and not found.counterfactuals:
        lines += ["", field("Advice", "no single change makes it fit these nodes, even empty ones")]
    ends = found.life is not None and found.life.end is not None
    if found.advice and not found.counterfactuals and not ends:
        lines += ["", field("Advice", found.advice)]
    if found.waiting_for is not None:
        lines += ["", field("Waiting", waiting_text(found.waiting_for))]
    if found.in_queue is not None:
        lines += ["", field("Queue", place_text(found.in_queue, f"in {found.queue}"))]
    if found.node_steps is not None:
        steps = found.node_steps
        then = f" at its decision (seq {steps.decision})" if steps.decision else ""
        lines += _section(f"On node {steps.node}{then}", sections.node(steps))
    if found.timeline:
        lines += _section("Timeline", sections.timeline(found.timeline, everything))
    return lines


def _section(title: str, body: Sequence[str]) -> list[str]:
    return ["", heading(title), *body]


def field(label: str, text: str) -> str:
    """A line of the head, with its label."""
    return Prose(f"{label:<{LABEL}}{text}", LABEL)


def _head(found: PodExplanation, everything: bool) -> Iterator[str]:
    who, status, decision = found.subject, found.status, found.decision
    yield field("Pod", f"{who.namespace}/{who.name}   uid {who.uid}")
    yield field("Status", status_text(found))
    wants, asked = wants_text(found.request), found.request
    is_read = wants or asked.cpu_milli or asked.host_memory_bytes
    unknown = "unknown: its request cannot be read"
    if status.cause == VOLUME_NOT_READY:
        unknown = "not known before its volumes are there"
    yield field("Wants", unknown if status.problem and not is_read else wants or "no device")
    if found.life is not None:
        yield from ask_fields(found.life)
    for one in found.problems:
        since = f", since {since_text(one.since, found.as_of.time_ms)}" if one.since else ""
        yield field("Problem", f"{one.code}: {one.subject}: {one.message}{since}")
        yield field("", one.remedy)
    if status.problem:
        yield field("Problem", status.problem)
    elif status.cause:
        yield field("Cause", cause_text(status))
    for text in because_texts(found):
        yield field("Because", text)
    if status.waits:
        yield field("Waits", status.waits)
    if status.group and not status.problem:
        yield field("Group", status.group)
    if status.nominated:
        yield field(
            "Reserved",
            f"{status.nominated}, until it is tried there: other pods are evicted for it",
        )
    ends = found.life is not None and found.life.end is not None
    if status.evicted_for and not ends:
        yield field("Evicted", f"to make room for {status.evicted_for}")
    if status.never_preempts:
        yield field("Evicts", "no pods: its preemptionPolicy is Never")
    if found.life is not None:
        yield from story_fields(found.life)
    if found.advice and ends:
        yield field("Advice", found.advice)
    if found.placement is not None:
        held = found.placement
        verb = {"released": "Held", PERHAPS: "May hold"}.get(held.phase, "Holds")
        parts = [f"{held.node}/{d.device} ({card_text(d)}): {held_text(d)}" for d in held.devices]
        parts += [f"{held.node}: {name} {count}" for name, count in held.extended.items()]
        for text in parts or [f"{held.node}, no device"]:
            yield field(verb, text)
            verb = ""
    if decision is not None:
        text = f"{decision.id}   policy {decision.policy}@{decision.policy_version}"
        if everything:
            text += f"   placed on state {decision.basis}, checked on state {decision.checked}"
        yield field("Decision", text)
    if found.trace is not None:
        yield field("Trace", found.trace.trace_id)
    yield field("As of", f"seq {found.as_of.seq}, {moment_text(found.as_of.time_ms)}")


def ask_fields(told: Life) -> Iterator[str]:
    """What else the pod asks for: of its host, of the node, and for whom."""
    ask = told.ask
    host = []
    if ask.request.cpu_milli:
        host.append(f"{cpu_text(ask.request.cpu_milli)} CPU")
    if ask.request.host_memory_bytes:
        host.append(f"{bytes_text(ask.request.host_memory_bytes)} memory")
    if host:
        yield field("Host", ", ".join(host))
    where = [f"{key}={value}" for key, value in ask.node_selector.items()]
    if ask.affinity:
        where.append("affinity " + " or ".join(ask.affinity))
    if ask.others:
        where.append("rules about other pods")
    if where:
        yield field("Nodes", "; ".join(where))
    if ask.tolerations:
        yield field("Tolerates", ", ".join(ask.tolerations))
    asks_as = [ask.scheduler]
    if ask.queue:
        asks_as.append(f"queue {ask.queue}")
    if ask.group:
        asks_as.append(f"group {ask.group}" + (f" as {ask.role}" if ask.role else ""))
    if ask.priority or ask.priority_class:
        named = f" ({ask.priority_class})" if ask.priority_class else ""
        asks_as.append(f"priority {ask.priority}{named}")
    yield field("Scheduler", ", ".join(asks_as))


def story_fields(told: Life) -> Iterator[str]:
    """How it ended, which pods were evicted for it, and which came before and after it."""
    if told.end is not None:
        yield field("End", told.end.text)
    if told.displaced:
        yield field("Displaced", "; ".join(map(displaced_text, told.displaced)))
    if told.predecessor is not None:
        yield field("Before it", relative_text(told.predecessor))
    if told.successor is not None:
        yield field("After it", relative_text(told.successor))
