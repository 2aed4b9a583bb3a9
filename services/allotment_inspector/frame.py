"""What surrounds every page: the moment in words, and the slider with its marks and density."""

import math
from collections.abc import Sequence

import msgspec

from allotment.adapters.service.moments import local_text, offset_minutes, silence_text, zone_text
from allotment.core.explain.doctor import Finding
from allotment.core.explain.history import story
from allotment_inspector.history import Entry, Moment
from allotment_inspector.index import BINS, EVICTED, GONE, ILL, REFUSED, Density

HEIGHT = 28
"""Of the density, in its own units."""
SENTENCE_CHARS_MAX = 400
SIGNS = {REFUSED: "▽", EVICTED: "✕", ILL: "!", GONE: "◇"}
WORDS = {REFUSED: "rejected", EVICTED: "evicted", ILL: "card unhealthy", GONE: "node gone"}


WINDOWS = {"5m": 300_000, "1h": 3_600_000, "1d": 86_400_000}
"""How much of the log the slider may show, by name; without one all of it."""


class MarkShown(msgspec.Struct, frozen=True):
    """A mark on the slider, `x` percent from its left end."""

    x: str
    seq: int
    kind: str
    sign: str
    title: str


class Frame(msgspec.Struct, frozen=True):
    """The moment, and where it is on the slider."""

    seq: int
    head_seq: int
    ms: int
    now_ms: int
    is_now: bool
    is_silent: bool
    """NATS brings no news: what is shown is of the past."""
    headline: str
    """What heads the page while it is silent, or pods are not scheduled; else ""."""
    clock: str
    zone: str
    zone_minutes: int
    kind: str
    text: str
    unread: str
    """Which older records the page lacks, and why; else ""."""
    first_ms: int
    last_ms: int
    x: str
    """Where the moment is, in percent."""
    marks: tuple[MarkShown, ...]
    unread_x: str
    """Up to where the slider knows neither marks nor records, in percent."""
    window: str
    density: str
    """The path of an SVG that is `BINS` wide and `HEIGHT` high."""


def frame_of(moment: Moment, window: str = "") -> Frame:
    """Everything around a page of that moment; `window` is one of `WINDOWS`."""
    index = moment.index
    first_ms, last_ms = _stretch(moment, WINDOWS.get(window))
    entry = moment.entry(moment.seq)
    unread_ms = index.times_ms[0] if moment.unlisted_seq and index.times_ms else first_ms
    return Frame(
        seq=moment.seq,
        head_seq=moment.head_seq,
        ms=moment.time_ms,
        now_ms=moment.now_ms,
        is_now=moment.is_now,
        is_silent=moment.silent_since_ms is not None,
        headline=headline(moment.silent_since_ms, moment.idle),
        clock=local_text(moment.time_ms, millis=True),
        zone=zone_text(moment.time_ms),
        zone_minutes=offset_minutes(moment.time_ms),
        kind=index.kind_of(moment.seq),
        text=sentence(entry) if entry is not None else moment.gone or "the log is empty",
        unread=unread_text(moment),
        first_ms=first_ms,
        last_ms=last_ms,
        x=_place(moment.time_ms, first_ms, last_ms),
        marks=tuple(
            MarkShown(
                _place(mark.ms, first_ms, last_ms),
                mark.seq,
                mark.kind,
                SIGNS[mark.kind],
                f"{WORDS[mark.kind]}, {local_text(mark.ms)}, record {mark.seq}",
            )
            for mark in index.marks_shown(first_ms, last_ms)
        ),
        unread_x=_place(unread_ms, first_ms, last_ms),
        window=window if window in WINDOWS else "",
        density=density_path(index.density(first_ms, last_ms)),
    )


def unread_text(moment: Moment) -> str:
    """What a page says that lacks older records, "" if it lacks none."""
    if not moment.missed_seq:
        return ""
    if moment.unread:
        return f"Records 1 to {moment.missed_seq:,} are not shown here: {moment.unread}."
    return f"Records 1 to {moment.missed_seq:,} are still being read and are not shown here yet."


def headline(silent_since_ms: int | None, idle: Sequence[Finding]) -> str:
    """What heads every page while NATS brings no news or services do not work; else ""."""
    if silent_since_ms is not None:
        return silence_text(silent_since_ms)
    text = "; ".join(f"{one.subject}: {one.message}" for one in idle)
    return text[:1].upper() + text[1:]


def _stretch(moment: Moment, length_ms: int | None) -> tuple[int, int]:
    """From when to when the slider goes: all the log, or so much of it with the moment inside."""
    times, first_ms = moment.index.times_ms, moment.first_ms
    last_ms = max(times[-1] if times else 0, first_ms + 1)
    if length_ms is None or last_ms - first_ms <= length_ms:
        return first_ms, last_ms
    if moment.time_ms < last_ms - length_ms:
        last_ms = max(moment.time_ms + length_ms // 2, first_ms + length_ms)
    return last_ms - length_ms, last_ms


def sentence(entry: Entry) -> str:
    """What a record says, in one line."""
    if entry.reason:
        return f"a record that cannot be read: {entry.reason}"
    if not entry.events:
        return story.of_no_event(entry.subject, entry.by)[1]
    more = f" (and {len(entry.events) - 1} more)" if len(entry.events) > 1 else ""
    line = story.line(entry.events[0])
    if len(line) > SENTENCE_CHARS_MAX:
        line = line[: SENTENCE_CHARS_MAX - 1] + "…"
    return line + more


def density_path(density: Density) -> str:
    """A bar for each part that has records; its height is a square root, so that one busy moment
    does not hide all others.
    """
    most = math.sqrt(max(density.counts, default=0) or 1)
    bars = []
    for place, count in enumerate(density.counts):
        if count:
            height = max(math.sqrt(count) / most * HEIGHT, 1.5)
            bars.append(f"M{place} {HEIGHT}v-{height:.1f}h.8V{HEIGHT}z")
    return "".join(bars)


def _place(ms: int, first_ms: int, last_ms: int) -> str:
    share = (ms - first_ms) / max(last_ms - first_ms, 1)
    return f"{min(max(share, 0.0), 1.0) * 100:.2f}"


__all__ = ["BINS", "HEIGHT", "SIGNS", "WORDS", "Frame", "MarkShown", "frame_of", "sentence"]
