"""The log itself: records in one line an event, newest first, whole or about one thing."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

import msgspec

from allotment.core.explain.history import concerned, story
from allotment.core.explain.history.concerned import GROUP, NODE, POD
from allotment.core.explain.history.records import LogLine, Wanted
from allotment_inspector.history import Entry, Moment
from allotment_inspector.pages.parts.asked import natural
from allotment_inspector.said import typed
from allotment_inspector.stories import records_of
from allotment_proto.events import Decided, Envelope
from allotment_proto.registry import KINDS

_PAGE = 150
"""So many rows are on a page, more only to end with a whole record."""
_OF_RECORD = 6
"""So many events of one record are shown: one with many facts has hundreds."""
_CHUNK = 30
"""So many records are read at once."""
_LOOKED_AT_MAX = 20_000
"""So many events are read to find those of a type or with a text."""
TYPES = tuple(sorted(kind.struct.__name__ for kind in KINDS))


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One event of a record. `is_decision`: there is a page about it. `more`: so many events of the
    record that were asked for are not shown.
    """

    seq: int
    time_ms: int
    by: str
    type: str
    text: str
    is_first: bool
    is_decision: bool
    more: int = 0


class LogPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Events of records from `last_seq` back to `first_seq`. `earlier` and `later` are where the
    pages before and after begin, 0 if there is none. `pod`, `gang`, `node`, `type` and `q` are what
    was asked for.
    """

    rows: tuple[Row, ...]
    first_seq: int
    last_seq: int
    earlier: int
    later: int
    types: tuple[str, ...]
    pod: str
    gang: str
    node: str
    type: str
    q: str


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> LogPage:
    """The records up to the moment, or up to `to`."""
    last = _last(moment, query)
    types = tuple(name for name in TYPES if name == query.get("type"))
    q = query.get("q", "")
    subject, seqs = _subject(moment, query)
    if isinstance(subject, concerned.Everything):
        wanted = Wanted(subject, types, story.Claims())
        rows, reached = _read_back(moment, wanted, q, last)
    else:
        wanted = Wanted(subject, types, story.Claims())  # remembers: it has to see all in order
        known = _rows(moment.records(seqs), wanted, q)
        rows = [row for row in known if row.seq <= last][:_PAGE]
        reached = rows[-1].seq - 1 if rows else 0
        reached = reached if any(row.seq <= reached for row in known) else 0
    return LogPage(
        rows=tuple(rows),
        first_seq=rows[-1].seq if rows else last,
        last_seq=last,
        earlier=reached,
        later=_later(seqs, last, moment.seq),
        types=TYPES,
        pod=query.get("pod", ""),
        gang=query.get("gang", ""),
        node=query.get("node", ""),
        type=types[0] if types else "",
        q=q,
    )


def _last(moment: Moment, query: Mapping[str, str]) -> int:
    return min(natural(query.get("to", "")) or moment.seq, moment.seq)


def _read_back(moment: Moment, wanted: Wanted, q: str, last: int) -> tuple[list[Row], int]:
    """The newest rows up to a record, and the record before what was read for them."""
    rows: list[Row] = []
    looked_at = 0
    while last > 0 and len(rows) < _PAGE and looked_at < _LOOKED_AT_MAX:
        first = max(last - _CHUNK + 1, 1)
        for entry in reversed(moment.records(range(first, last + 1))):
            rows += _rows((entry,), wanted, q)
            looked_at += len(entry.events)
            last = entry.seq - 1
            if len(rows) >= _PAGE or looked_at >= _LOOKED_AT_MAX:
                break
        else:
            last = first - 1
    return rows, last


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    words = ["allot", "log"]
    subject = next((name for name in ("pod", "gang", "node") if query.get(name)), "")
    for name in (subject, "type"):
        if query.get(name):
            words += [f"--{name}", query[name]]
    last = _last(moment, query)
    line = typed(*words, at=last if last < moment.seq else moment.at)
    return f"{line} | {typed('grep', '-F', '--', query['q'])}" if query.get("q") else line


def _subject(
    moment: Moment, query: Mapping[str, str]
) -> tuple[concerned.Subject, range | list[int]]:
    """What the records are to be about, and in which they may be, in order."""
    namespace, _, name = (query.get("pod") or query.get("gang") or "").partition("/")
    if query.get("pod"):
        uids = moment.pods_named(namespace, name)
        seqs = records_of(moment, namespace, name, uids)
        return concerned.PodSubject(namespace, name), sorted(seqs)
    if query.get("gang"):
        key = f"{namespace}/{name}"
        group = moment.state.groups.get(key)
        found = set(moment.seqs(GROUP, key))
        found.update(
            seq for uid in (group.members if group else ()) for seq in moment.seqs(POD, uid)
        )
        return concerned.GroupSubject(namespace, name), sorted(found)
    if query.get("node"):
        return concerned.NodeSubject(query["node"]), list(moment.seqs(NODE, query["node"]))
    return concerned.Everything(), range(1, moment.seq + 1)


def _rows(entries: Iterable[Entry], wanted: Wanted, q: str) -> list[Row]:
    """The rows of some records, the newest first; within a record in its order."""
    blocks: list[list[Row]] = []
    for entry in entries:
        lines = _lines(entry, wanted)
        decisions = any(isinstance(event, Decided) for event in entry.events)
        shown = [each for each in lines if not q or q in each.text]
        block = [
            Row(
                seq=entry.seq,
                time_ms=entry.time_ms,
                by=line.by,
                type=line.type,
                text=line.text,
                is_first=number == 0,
                is_decision=decisions and line.type == Decided.__name__,
                more=max(len(shown) - _OF_RECORD, 0) if number == _OF_RECORD - 1 else 0,
            )
            for number, line in enumerate(shown[:_OF_RECORD])
        ]
        blocks.append(block)
    return [row for block in reversed(blocks) for row in block]


def _lines(entry: Entry, wanted: Wanted) -> list[LogLine]:
    if entry.reason:
        return wanted.unreadable(entry.seq, entry.time_ms, entry.reason)
    envelope = Envelope(v=0, at_ms=entry.time_ms, by=entry.by, events=entry.events)
    return wanted.lines(entry.seq, entry.time_ms, entry.subject, envelope, shown=True)


def _later(seqs: range | list[int], last: int, end: int) -> int:
    """Where the page after this one ends, 0 if this one is the last."""
    if last >= end:
        return 0
    following = seqs[bisect_right(seqs, last) :][:_PAGE]
    return following[-1] if following else 0
