"""A pod's trace as rows to draw: the spans of `explain/spans` on a scale of true time.

Lengths are shares of the scale in ten-thousandths, so that the drawing needs no arithmetic. What is
too short to be seen on the whole life is drawn once more, on a scale of its own, never broken.
"""

from collections.abc import Iterator, Sequence

import msgspec

from allotment.core.explain.history.spans import SpanView, spans_of
from allotment.core.explain.rows.life import (
    BOUND,
    RESERVED,
    RUNNING,
    STARTING,
    TERMINATING,
    WAITING,
    Life,
)
from allotment.core.reasons import QUEUED
from allotment.core.units import duration_text
from allotment_inspector.said import path

_WHOLE = 10_000
_AXIS = 4
_NARROW = 1_200
"""What comes before it runs is drawn once more if it takes less of the life than this."""
_TICKS_MAX = 200
_US_PER_MS = 1_000
_TOLD = frozenset(("placed", "void", "dropped"))
"""Outcomes of attempts that are drawn with their stages; refusals are ticks on their wait."""

_LABELS = {
    WAITING: "waiting",
    RESERVED: "binding",
    BOUND: "device plugin",
    STARTING: "starting",
    RUNNING: "runs",
    TERMINATING: "ends",
}
_KINDS = {WAITING: "wait", RUNNING: "run"}
STAGES = {"filter": "filter nodes", "scorer": "score", "binder": "check and commit"}
"""What each service does for a decision."""


class Tick(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A moment on a row: an attempt with the same answer, an eviction."""

    x: int
    title: str
    seq: int
    is_eviction: bool = False


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of the waterfall. `kind` is ``wait``, ``step`` (a start, an end), ``work`` (a
    service's own time), ``run``, or ``tick`` for a row of moments alone. `what` links to `path`.
    """

    label: str
    what: str = ""
    path: str = ""
    depth: int = 0
    kind: str
    x: int = 0
    w: int = 0
    took: str = ""
    start_ms: int
    is_open: bool = False
    seq: int = 0
    ticks: tuple[Tick, ...] = ()


class Mark(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A place on the axis: a moment, or on a short scale the time since its beginning."""

    x: int
    ms: int
    offset: str = ""


class Waterfall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Rows on one scale, from `start_ms` to `end_ms`."""

    title: str
    start_ms: int
    end_ms: int
    axis: tuple[Mark, ...]
    rows: tuple[Row, ...]


def waterfalls(found: Life) -> tuple[Waterfall, ...]:
    """The whole life, and where that hides how it began, its beginning alone."""
    spans = spans_of(found)
    root = spans[0]
    start_us, end_us = root.start_us, max(root.end_us, root.start_us + _US_PER_MS)
    runs_us = [s.start_us for s in spans if s.name in (RUNNING, TERMINATING)]
    began_us = min(runs_us, default=end_us)
    is_hidden = (began_us - start_us) * _WHOLE < _NARROW * (end_us - start_us)
    is_over = not root.is_open
    so_far = "" if is_over else " so far"
    took = duration_text((end_us - start_us) // _US_PER_MS)
    title = f"Lifetime {took}{so_far}"
    whole = _drawn(found, spans, title, start_us, end_us, is_short=is_hidden)
    if not is_hidden or began_us <= start_us:
        return (whole,)
    until_us = start_us + max((began_us - start_us) * 9 // 8, _US_PER_MS)
    began = f"Start: the first {duration_text((until_us - start_us) // _US_PER_MS)}"
    return whole, _drawn(found, spans, began, start_us, until_us, is_short=False)


def _drawn(
    found: Life,
    spans: Sequence[SpanView],
    title: str,
    start_us: int,
    end_us: int,
    *,
    is_short: bool,
) -> Waterfall:
    scale = _Scale(start_us, end_us)
    in_ms = end_us - start_us < 10_000 * _US_PER_MS
    axis = tuple(
        Mark(
            x=_WHOLE * part // _AXIS,
            ms=(start_us + (end_us - start_us) * part // _AXIS) // _US_PER_MS,
            offset=_short_text((end_us - start_us) * part // _AXIS) if in_ms else "",
        )
        for part in range(_AXIS + 1)
    )
    rows = [row for row in _rows(found, spans, scale, is_short=is_short) if row.x <= _WHOLE]
    return Waterfall(
        title=title,
        start_ms=start_us // _US_PER_MS,
        end_ms=end_us // _US_PER_MS,
        axis=axis,
        rows=tuple(rows),
    )


class _Scale:
    """From where to where, in Unix microseconds, and places on it."""

    def __init__(self, start_us: int, end_us: int) -> None:
        self.start_us, self.end_us = start_us, end_us

    def place(self, us: int) -> int:
        """Where a moment is, unbounded: beyond the scale it is more than the whole."""
        return max(us - self.start_us, 0) * _WHOLE // (self.end_us - self.start_us)

    def bar(self, span: SpanView) -> tuple[int, int]:
        """Where a span begins and how long it is, cut at the end of the scale."""
        x = self.place(span.start_us)
        return x, max(min(self.place(span.end_us), _WHOLE) - x, 0)


def _rows(
    found: Life, spans: Sequence[SpanView], scale: _Scale, *, is_short: bool
) -> Iterator[Row]:
    root = spans[0]
    below: dict[str, list[SpanView]] = {}
    for span in spans[1:]:
        below.setdefault(span.parent_id, []).append(span)
    evicted_us = None
    if found.end is not None and found.end.evicted is not None:
        evicted_us = found.end.evicted.time_ms * _US_PER_MS
    for phase in below.get(root.span_id, ()):
        if phase.name == "attempt":
            yield from _attempt(phase, below, scale, 0)
            continue
        if phase.name == TERMINATING and evicted_us is not None:
            yield _eviction(found, scale)
            evicted_us = None
        tries = below.get(phase.span_id, [])
        same = [span for span in tries if span.attributes.get("allot.attempt.outcome") not in _TOLD]
        yield _phase(phase, same, scale)
        if is_short:
            continue
        for span in tries:
            if span not in same:
                yield from _attempt(span, below, scale, 1)
    if evicted_us is not None:
        yield _eviction(found, scale)
    yield from _made_room(found, scale)


def _phase(span: SpanView, same: Sequence[SpanView], scale: _Scale) -> Row:
    x, w = scale.bar(span)
    node = str(span.attributes.get("k8s.node.name", ""))
    reason = str(span.attributes.get("allot.reason", ""))
    ticks = tuple(
        Tick(
            x=min(scale.place(each.end_us), _WHOLE),
            title=f"attempt {each.attributes.get('allot.attempt.number')}: "
            f"{each.attributes.get('allot.message', '')}",
            seq=_int(each, "allot.log.seq"),
        )
        for each in same[-_TICKS_MAX:]
    )
    return Row(
        label="queued" if reason == QUEUED else _LABELS.get(span.name, span.name),
        what=_what(span, reason, node),
        path=path("nodes", node) if span.name == RUNNING and node else "",
        kind=_KINDS.get(span.name, "step"),
        x=x,
        w=w,
        took=_took(span),
        start_ms=span.start_us // _US_PER_MS,
        is_open=span.is_open,
        seq=_int(span, "allot.log.seq"),
        ticks=ticks,
    )


def _what(span: SpanView, reason: str, node: str) -> str:
    if span.name == WAITING:
        return "" if reason == QUEUED else reason
    return f"on {node}" if span.name == RUNNING and node else ""


def _attempt(
    span: SpanView, below: dict[str, list[SpanView]], scale: _Scale, depth: int
) -> Iterator[Row]:
    x, w = scale.bar(span)
    fit = ""
    if _int(span, "allot.nodes.evaluated"):
        feasible, nodes = _int(span, "allot.nodes.feasible"), _int(span, "allot.nodes.evaluated")
        fit = f"{feasible} of {nodes} nodes fit"
    seq = _int(span, "allot.log.seq")
    yield Row(
        label=f"attempt {span.attributes.get('allot.attempt.number', '')}",
        what=fit or str(span.attributes.get("allot.reason", "")),
        path=f"/decisions/{seq}",
        depth=depth,
        kind="step",
        x=x,
        w=w,
        took=_took(span),
        start_ms=span.start_us // _US_PER_MS,
        seq=seq,
    )
    for stage in below.get(span.span_id, ()):
        x, w = scale.bar(stage)
        yield Row(
            label=STAGES.get(stage.service, stage.name),
            what=stage.service,
            depth=depth + 1,
            kind="work",
            x=x,
            w=w,
            took=_took(stage),
            start_ms=stage.start_us // _US_PER_MS,
            seq=seq,
        )


def _eviction(found: Life, scale: _Scale) -> Row:
    assert found.end is not None
    assert found.end.evicted is not None
    evicted = found.end.evicted
    place = scale.place(evicted.time_ms * _US_PER_MS)
    title = f"decision {evicted.decision} evicts it for {evicted.preemptor}"
    return Row(
        label="evicted",
        what=f"by decision {evicted.decision}",
        path=f"/decisions/{evicted.decision}",
        kind="tick",
        x=place,
        start_ms=evicted.time_ms,
        seq=evicted.decision,
        ticks=(Tick(x=min(place, _WHOLE), title=title, seq=evicted.decision, is_eviction=True),),
    )


def _made_room(found: Life, scale: _Scale) -> Iterator[Row]:
    """A row for each decision that evicts others for the pod."""
    by_decision: dict[int, list[str]] = {}
    times: dict[int, int] = {}
    for displaced in found.displaced:
        by_decision.setdefault(displaced.decision, []).append(displaced.name)
        times[displaced.decision] = displaced.time_ms
    for seq, names in by_decision.items():
        place = scale.place(times[seq] * _US_PER_MS)
        pods = f"{len(names)} pod{'s' * (len(names) != 1)}"
        verb = "are" if len(names) != 1 else "is"
        yield Row(
            label="evicts pods",
            what=pods,
            path=f"/decisions/{seq}",
            kind="tick",
            x=place,
            start_ms=times[seq],
            seq=seq,
            ticks=(
                Tick(
                    x=min(place, _WHOLE), title=f"{', '.join(names)} {verb} evicted for it", seq=seq
                ),
            ),
        )


def _int(span: SpanView, name: str) -> int:
    found = span.attributes.get(name, 0)
    return found if isinstance(found, int) else 0


def _took(span: SpanView) -> str:
    return _short_text(span.end_us - span.start_us)


def _short_text(us: int) -> str:
    """A duration; below 10 ms to a tenth of one."""
    if 0 < us < 10 * _US_PER_MS and us % _US_PER_MS:
        return f"{us // _US_PER_MS}.{us % _US_PER_MS // 100} ms"
    return duration_text(us // _US_PER_MS)
