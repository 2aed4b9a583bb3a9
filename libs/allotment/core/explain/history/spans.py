"""A pod's story as the spans of one trace: for tracing backends and for drawings.

The trace is the pod: its id is the pod's uid. One span covers the pod's life; below it is one for
each phase, below these one for each attempt, and one for each service's stage of an attempt. Every
id follows from the uid and from what the span is about, so that the same story always gives the
same spans.

Times are those of the story: phases by the log's clock, stages by their service's. A parent
encloses its children: a stage that its service's clock puts outside its attempt is moved inside,
and `allot.clock.moved_us` says how far. Being refused, or waiting, is no error; ending badly is.

Names are those of OpenTelemetry's semantic conventions 1.44 where it has one (`k8s.…`,
`error.type`, `messaging.…`, which are in development there), others begin with ``allot.``. Span
names hold no names of pods, nodes or devices. A stage that a message brought about is its consumer;
its parent is the attempt, and not the stage that sent the message, which had ended by then. An
attempt links to the trace of its cycle, which the services make if they trace their batches.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from allotment.core.explain.rows.life import (
    FAILED,
    REFUSED_BY_NODE,
    WAITING,
    Life,
    Phase,
    Relative,
    Try,
)
from allotment.core.trace_ids import cycle_ids, root_id, span_id, trace_id
from allotment_proto import subjects

Attribute = str | int | bool
_ROOT = "pod"
_BAD_ENDS = frozenset((FAILED, REFUSED_BY_NODE))
_US_PER_MS = 1_000


class Link(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A related trace, of a pod or of a cycle: `why` names the relation."""

    trace_id: str
    span_id: str
    why: str


class SpanView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One span. Ids are lower-case hexadecimal, times Unix microseconds.

    `service` did the work, or the pod waits for it. A span without an end is still in progress:
    `end_us` is then the moment of the story, and `is_open` is set. `error` is OpenTelemetry's
    `error.type`.
    """

    name: str
    service: str
    instance: str = ""
    trace_id: str
    span_id: str
    parent_id: str = ""
    start_us: int
    end_us: int
    is_open: bool = False
    attributes: dict[str, Attribute] = {}
    links: tuple[Link, ...] = ()
    error: str = ""
    message: str = ""
    kind: Literal["internal", "consumer"] = "internal"


def spans_of(found: Life) -> list[SpanView]:
    """The spans of a story, parents before their children, else by start."""
    phases = [(phase, _phase(found, phase)) for phase in found.phases]
    root = _root(found, [span for _, span in phases])
    below: dict[str, list[SpanView]] = {}
    for tried in found.attempts:
        parent = _parent(tried, phases) or root
        below.setdefault(parent.span_id, []).extend(_attempt(found, tried, parent))
    out = [root, *below.get(root.span_id, ())]
    for _, span in phases:
        out += [span, *below.get(span.span_id, ())]
    return out


def final_spans(found: Life, since_seq: int) -> list[SpanView]:
    """The spans of a story that became final after the record `since_seq`: phases and attempts that
    ended, and the whole of a life that is over.
    """
    ended = {
        span_id(found.subject.uid, "phase", phase.name, phase.start_seq)
        for phase in found.phases
        if phase.end_seq is not None and phase.end_seq > since_seq
    }
    made = {
        span_id(found.subject.uid, "attempt", tried.number)
        for tried in found.attempts
        if tried.seq > since_seq
    }
    return [
        span
        for span in spans_of(found)
        if not span.is_open
        and (not span.parent_id or span.span_id in ended or {span.span_id, span.parent_id} & made)
    ]


def _root(found: Life, phases: list[SpanView]) -> SpanView:
    who, end, ask = found.subject, found.end, found.ask
    start_us = found.seen_ms * _US_PER_MS
    now_us = max(found.as_of.time_ms * _US_PER_MS, start_us)
    is_open = end is None or (end.gone_ms is None and any(span.is_open for span in phases))
    if end is None or is_open:
        end_us = now_us
    else:  # the object may stay long after its last phase
        end_us = start_us if phases else max(end.time_ms * _US_PER_MS, start_us)
    attributes: dict[str, Attribute] = {
        "k8s.namespace.name": who.namespace,
        "k8s.pod.name": who.name,
        "k8s.pod.uid": who.uid,
        "allot.outcome": found.status if end is None else end.kind,
        "allot.attempts": found.attempts_total,
        "allot.queue.name": ask.queue,
        "allot.group.name": ask.group,
        "allot.request.gpus": ask.request.gpus,
        "allot.request.memory_bytes": ask.request.memory_bytes,
        "allot.request.compute_percent": ask.request.compute_percent,
        "allot.log.seq": found.seen_seq,
        "k8s.node.name": next((p.node for p in reversed(found.phases) if p.node), ""),
        "allot.cause": found.cause if end is None else end.code,
    }
    is_bad = end is not None and end.kind in _BAD_ENDS
    return SpanView(
        name=_ROOT,
        service="allotment",
        trace_id=found.trace_id,
        span_id=root_id(who.uid),
        start_us=start_us,
        end_us=max([end_us, *(span.end_us for span in phases)]),
        is_open=is_open,
        attributes=_said(attributes),
        links=tuple(_links(found)),
        error="" if end is None or not is_bad else end.code or end.kind,
        message="" if end is None or not is_bad else end.message or end.text,
    )


def _links(found: Life) -> Iterator[Link]:
    """The traces of pods that this one made room for, displaced, or came before or after."""
    evicted = None if found.end is None else found.end.evicted
    for gain in () if evicted is None else evicted.gained:
        yield _link(gain.uid, "evicted-for")
    for victim in found.displaced:
        yield _link(victim.uid, "displaced")
    relatives: tuple[tuple[Relative | None, str], ...] = (
        (found.predecessor, "predecessor"),
        (found.successor, "successor"),
    )
    for relative, why in relatives:
        if relative is not None:
            yield _link(relative.uid, why)


def _link(uid: str, why: str) -> Link:
    return Link(trace_id=trace_id(uid), span_id=root_id(uid), why=why)


def _phase(found: Life, phase: Phase) -> SpanView:
    now_ms = max(found.as_of.time_ms, phase.start_ms)
    end_ms = now_ms if phase.end_ms is None else max(phase.end_ms, phase.start_ms)
    attributes: dict[str, Attribute] = {
        "allot.reason": phase.code,
        "allot.message": phase.text,
        "allot.attempts": phase.attempts,
        "k8s.node.name": phase.node,
        "allot.decision.seq": phase.decision or 0,
        "allot.log.seq": phase.start_seq,
    }
    return SpanView(
        name=phase.name,
        service=phase.service,
        trace_id=found.trace_id,
        span_id=span_id(found.subject.uid, "phase", phase.name, phase.start_seq),
        parent_id=root_id(found.subject.uid),
        start_us=phase.start_ms * _US_PER_MS,
        end_us=end_ms * _US_PER_MS,
        is_open=phase.end_ms is None,
        attributes=_said(attributes),
    )


def _parent(tried: Try, phases: list[tuple[Phase, SpanView]]) -> SpanView | None:
    """The wait in which an attempt began; of the first the one that it ended."""
    waits = [span for phase, span in phases if phase.name == WAITING]
    begun_us = min([stage.received_us for stage in tried.stages] or [tried.time_ms * _US_PER_MS])
    inside = [s for s in waits if s.start_us <= begun_us and tried.time_ms * _US_PER_MS <= s.end_us]
    if inside:
        return inside[-1]
    at_its_end = [span for span in waits if span.end_us == tried.time_ms * _US_PER_MS]
    return at_its_end[-1] if at_its_end else None


def _attempt(found: Life, tried: Try, parent: SpanView) -> Iterator[SpanView]:
    uid = found.subject.uid
    end_us = tried.time_ms * _US_PER_MS
    begun_us = min([stage.received_us for stage in tried.stages] or [end_us])
    start_us = min(max(begun_us, parent.start_us), end_us)
    own = span_id(uid, "attempt", tried.number)
    cycle_trace, cycle_span = cycle_ids(tried.cycle)
    attributes: dict[str, Attribute] = {
        "allot.attempt.number": tried.number,
        "allot.attempt.outcome": tried.outcome,
        "allot.reason": tried.code,
        "allot.message": tried.text,
        "allot.cycle": tried.cycle,
        "allot.log.seq": tried.seq,
        "allot.ledger.seq": tried.basis,
        "allot.nodes.evaluated": tried.nodes or 0,
        "allot.nodes.feasible": tried.feasible or 0,
        "k8s.node.name": tried.node,
        "allot.clock.moved_us": start_us - begun_us if start_us != begun_us else 0,
    }
    attempt = SpanView(
        name="attempt",
        service="binder",
        trace_id=found.trace_id,
        span_id=own,
        parent_id=parent.span_id,
        start_us=start_us,
        end_us=end_us,
        attributes=_said(attributes),
        links=(Link(trace_id=cycle_trace, span_id=cycle_span, why="cycle"),),
    )
    yield attempt
    for stage in tried.stages:
        from_us = min(max(stage.received_us, attempt.start_us), attempt.end_us)
        to_us = min(max(stage.finished_us, from_us), attempt.end_us)
        moved_us = max(abs(from_us - stage.received_us), abs(to_us - stage.finished_us))
        yield SpanView(
            name=_STAGES.get(stage.service, stage.service),
            service=stage.service,
            instance=stage.instance,
            trace_id=found.trace_id,
            span_id=span_id(uid, "attempt", tried.number, stage.service, stage.instance),
            parent_id=own,
            start_us=from_us,
            end_us=to_us,
            attributes=_said({**_message(stage.service, tried), "allot.clock.moved_us": moved_us}),
            kind="consumer" if stage.service in _BROUGHT_ON else "internal",
        )


def _message(service: str, tried: Try) -> dict[str, Attribute]:
    """What the message was that brought a stage about; nothing where none did."""
    subject = _BROUGHT_ON.get(service)
    if subject is None:
        return {}
    return {
        "messaging.system": "nats",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": subject,
        "messaging.message.conversation_id": tried.cycle,
    }


_BROUGHT_ON = {"scorer": subjects.FEASIBLE, "binder": subjects.PROPOSAL}
_STAGES = {"filter": "filter", "scorer": "score", "binder": "check"}


def _said(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    """Those that say something: no empty text, no 0."""
    return {name: value for name, value in attributes.items() if value not in ("", 0)}
