"""How much pods held up to the moment, over time: by namespace, queue, node or card model."""

import csv
import io
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from allotment.core.explain.rows.views import plain
from allotment.core.replay.usage import MICRO, NAMES, NAMESPACE, Meter, Usage, name_of
from allotment.core.units import hours_column, rfc3339
from allotment_inspector.history import Moment
from allotment_inspector.said import Bit, node_link, path, queue_link, typed

_HOUR_MS = 3_600_000
SPANS = {"1h": 1, "24h": 24, "7d": 168}
"""Words for how far back is counted, in hours; anything else counts from the log's beginning."""
EVENTS_MAX = 60_000
"""So many events are folded for one question, which takes about a second; the last ones."""

PARTS = 48
"""Into so many equal parts the time is divided for curves and CSV."""
HEIGHT = 20
"""Of a curve, in its own units; it is as many units wide as it has parts."""


class Curve(msgspec.Struct, frozen=True, rename="camel"):
    """Cards held on average in each part of the time, in millionths; `path` draws them in an SVG
    of `HEIGHT`, scaled to the largest, `peak`.
    """

    card_micro: tuple[int, ...]
    peak: str
    path: str


class UsedRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One namespace, queue, node or model. The texts are hours; `share` is its part of all
    GPU-hours, in ten-thousandths.
    """

    who: Bit
    pods: int
    gpu_hours: str
    device_hours: str
    memory_gib_hours: str
    cpu_hours: str
    counted: dict[str, str]
    share: int
    usage: Usage
    curve: Curve


class UsagePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Reservations between `from_ms` and `to_ms`. `asked_ms` is what was asked for, where that is
    longer ago: so many events as there are since then are not folded for a page.
    """

    by: str
    span: str
    from_ms: int
    to_ms: int
    asked_ms: int
    edges: tuple[int, ...]
    """When the parts of the curves begin, and when the last one ends."""
    rows: tuple[UsedRow, ...]
    curve: Curve
    """Of all rows together."""


class _Metered(NamedTuple):
    """What pods held from `edges[0]` to `edges[-1]`, in all and in each part between."""

    by: str
    span: str
    asked_ms: int
    edges: tuple[int, ...]
    whole: Sequence[Usage]
    parts: Sequence[Sequence[Usage]]


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> UsagePage:
    """What was held up to the moment."""
    found = _metered(moment, query)
    everything = [sum(used.card_micro_ms for used in part) for part in found.parts]
    return UsagePage(
        by=found.by,
        span=found.span,
        from_ms=found.edges[0],
        to_ms=found.edges[-1],
        asked_ms=found.asked_ms,
        edges=found.edges,
        rows=_rows(found),
        curve=_curve(everything, found.edges),
    )


def table(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """The same numbers as CSV: a line for each name and part of the time in which it held any."""
    found = _metered(moment, query)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    hours = ("gpu_hours", "device_hours", "memory_gib_hours", "cpu_hours")
    lines.writerow((found.by, "from", "to", "pods", *hours))
    for (from_ms, to_ms), part in zip(pairwise(found.edges), found.parts, strict=True):
        for used in part:
            amounts = (
                used.card_micro_ms / MICRO,
                used.device_ms + _whole_cards_ms(used),
                used.memory_mib_ms / 1024,
                used.cpu_milli_ms / 1000,
            )
            cells = [f"{amount / _HOUR_MS:.9f}" for amount in amounts]
            lines.writerow((used.name, rfc3339(from_ms), rfc3339(to_ms), used.pods, *cells))
    return text.getvalue()


def _metered(moment: Moment, query: Mapping[str, str]) -> _Metered:
    """Add up by one fold of the records in question, of the last `EVENTS_MAX` events at most."""
    by = _by(query)
    span = query.get("span", "") if query.get("span", "") in SPANS else ""
    asked_ms = _from_ms(moment, span)
    first_seq = min(max(moment.seq_at(asked_ms), moment.gone_seq + 1), moment.seq)
    within = bisect_left(
        range(first_seq, moment.seq),
        True,
        key=lambda seq: moment.index.events_between(seq, moment.seq) <= EVENTS_MAX,
    )
    folded = moment.folded(first_seq + within)
    begin_ms, state = next(folded)
    from_ms = max(asked_ms, begin_ms) if within or moment.gone_seq else asked_ms
    length_ms = moment.now_ms - from_ms
    parts = max(min(PARTS, length_ms), 1)
    edges = tuple(from_ms + length_ms * part // parts for part in range(parts + 1))
    names = name_of(by, state)
    whole, in_parts = (Meter(state, each, names) for each in ((edges[0], edges[-1]), edges))
    for at_ms, _ in folded:
        whole.take(at_ms)
        in_parts.take(at_ms)
    return _Metered(by, span, asked_ms, edges, whole.found()[0], in_parts.found())


def _curve(card_micro_ms: Sequence[int], edges: Sequence[int]) -> Curve:
    lengths = [max(end - begin, 1) for begin, end in pairwise(edges)]
    means = tuple(ms // length for ms, length in zip(card_micro_ms, lengths, strict=True))
    most = max(means)
    return Curve(
        means, f"{most / MICRO:,.{0 if most >= 100 * MICRO else 2}f}", steps_path(means, most)
    )


def steps_path(values: Sequence[int], most: int) -> str:
    """An SVG path of steps, one unit wide each, filled down to the ground at `HEIGHT`."""
    words = [f"M0 {HEIGHT}"]
    before = 0
    for place, value in enumerate([*values, 0]):
        if value != before:
            words.append(f"H{place}V{HEIGHT * (1 - value / most):.4g}")
        before = value
    return "".join(words)


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    words = ["allot", "usage"]
    if _by(query) != NAMESPACE:
        words += ["--by", _by(query)]
    span = query.get("span", "")
    if span in SPANS:
        from_ms = _from_ms(moment, span)
        words += ["--from", f"-{span}" if moment.is_now else rfc3339(from_ms)]
    return typed(*words, at=moment.at)


def _from_ms(moment: Moment, span: str) -> int:
    """From when on is counted."""
    first_ms = moment.first_ms
    return max(moment.now_ms - SPANS[span] * _HOUR_MS, first_ms) if span else first_ms


def _rows(found: _Metered) -> tuple[UsedRow, ...]:
    """The largest first."""
    by = found.by
    used = sorted(found.whole, key=lambda each: (-each.card_micro_ms, each.name))
    held = [{each.name: each.card_micro_ms for each in part} for part in found.parts]
    whole = sum(each.card_micro_ms for each in used)
    columns = (
        hours_column((each.card_micro_ms for each in used), MICRO),
        hours_column(each.device_ms + _whole_cards_ms(each) for each in used),
        hours_column((each.memory_mib_ms for each in used), 1024),
        hours_column((each.cpu_milli_ms for each in used), 1000),
    )
    return tuple(
        UsedRow(
            who=_link(by, each.name),
            pods=each.pods,
            gpu_hours=gpu,
            device_hours=device,
            memory_gib_hours=memory,
            cpu_hours=cpu,
            counted=_counted(each),
            share=each.card_micro_ms * 10_000 // whole if whole else 0,
            usage=each,
            curve=_curve([part.get(each.name, 0) for part in held], found.edges),
        )
        for each, gpu, device, memory, cpu in zip(used, *columns, strict=True)
    )


def _by(query: Mapping[str, str]) -> str:
    by = query.get("by", "")
    return by if by in NAMES else NAMESPACE


def _link(by: str, name: str) -> Bit:
    match by:
        case "namespace":
            return Bit(text=name, path=path("pods"), query={"namespace": name})
        case "queue":
            return queue_link(name)
        case "node":
            return node_link(name)
        case _:
            return Bit(text=name)


def _whole_cards_ms(used: Usage) -> int:
    return sum(ms for resource, ms in used.counted_ms.items() if resource.endswith("/gpu"))


def _counted(used: Usage) -> dict[str, str]:
    """Counted resources that are no cards: those of device families are the devices."""
    amounts = plain(tuple(used.counted_ms.items()))
    return {
        name: hours_column([ms])[0] for name, ms in amounts.items() if not name.endswith("/gpu")
    }
