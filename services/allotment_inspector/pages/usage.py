"""Who held how much, and for how long, up to the moment: by namespace or by node."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

import msgspec

from allotment.core.explain.views import plain
from allotment.core.replay.usage import MICRO, Meter, Usage, namespace_of, node_of
from allotment.core.units import hours_column, rfc3339
from allotment_inspector.history import Moment
from allotment_inspector.said import Bit, node_link, path, typed

_HOUR_MS = 3_600_000
SPANS = {"1h": 1, "24h": 24, "7d": 168}
"""Words for how far back is counted, in hours; anything else counts from the log's beginning."""
EVENTS_MAX = 60_000
"""So many events are folded for one question, which takes about a second; the last ones."""


class UsedRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One namespace or node. The texts are hours; `share` is its part of all GPU-hours, in
    ten-thousandths.
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


class UsagePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Reservations between `from_ms` and `to_ms`. `asked_ms` is what was asked for, where that is
    longer ago: so many events as there are since then are not folded for a page.
    """

    by: str
    span: str
    from_ms: int
    to_ms: int
    asked_ms: int
    rows: tuple[UsedRow, ...]


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> UsagePage:
    """What was held up to the moment."""
    by = "node" if query.get("by") == "node" else "namespace"
    span = query.get("span", "") if query.get("span", "") in SPANS else ""
    asked_ms = _from_ms(moment, span)
    first_seq = min(max(moment.index.seq_at(asked_ms), 1), moment.seq)
    within = bisect_left(
        range(first_seq, moment.seq),
        True,
        key=lambda seq: moment.index.events_between(seq, moment.seq) <= EVENTS_MAX,
    )
    folded = moment.folded(first_seq + within)
    begin_ms, state = next(folded)
    from_ms = max(asked_ms, begin_ms) if within else asked_ms
    meter = Meter(state, (from_ms, moment.now_ms), node_of if by == "node" else namespace_of)
    for at_ms, _ in folded:
        meter.take(at_ms)
    return UsagePage(
        by=by,
        span=span,
        from_ms=from_ms,
        to_ms=moment.now_ms,
        asked_ms=asked_ms,
        rows=_rows(meter.found()[0], by),
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    words = ["allot", "usage"]
    if query.get("by") == "node":
        words += ["--by", "node"]
    span = query.get("span", "")
    if span in SPANS:
        from_ms = _from_ms(moment, span)
        words += ["--from", f"-{span}" if moment.is_now else rfc3339(from_ms)]
    return typed(*words, at=moment.at)


def _from_ms(moment: Moment, span: str) -> int:
    """From when on is counted."""
    first_ms = moment.ms_of(1) or 0
    return max(moment.now_ms - SPANS[span] * _HOUR_MS, first_ms) if span else first_ms


def _rows(found: Iterable[Usage], by: str) -> tuple[UsedRow, ...]:
    """The largest first."""
    used = sorted(found, key=lambda each: (-each.card_micro_ms, each.name))
    whole = sum(each.card_micro_ms for each in used)
    columns = (
        hours_column((each.card_micro_ms for each in used), MICRO),
        hours_column(each.device_ms + _whole_cards_ms(each) for each in used),
        hours_column((each.memory_mib_ms for each in used), 1024),
        hours_column((each.cpu_milli_ms for each in used), 1000),
    )
    return tuple(
        UsedRow(
            who=node_link(each.name) if by == "node" else _namespace_link(each.name),
            pods=each.pods,
            gpu_hours=gpu,
            device_hours=device,
            memory_gib_hours=memory,
            cpu_hours=cpu,
            counted=_counted(each),
            share=each.card_micro_ms * 10_000 // whole if whole else 0,
            usage=each,
        )
        for each, gpu, device, memory, cpu in zip(used, *columns, strict=True)
    )


def _namespace_link(name: str) -> Bit:
    return Bit(text=name, path=path("pods"), query={"namespace": name})


def _whole_cards_ms(used: Usage) -> int:
    return sum(ms for resource, ms in used.counted_ms.items() if resource.endswith("/gpu"))


def _counted(used: Usage) -> dict[str, str]:
    """Counted resources that are no cards: those of device families are the devices."""
    amounts = plain(tuple(used.counted_ms.items()))
    return {
        name: hours_column([ms])[0] for name, ms in amounts.items() if not name.endswith("/gpu")
    }
