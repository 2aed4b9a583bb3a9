"""A log, decided again."""

from allotment.core.logport import Record
from allotment.core.replay.replay import Index, Replayer, Report


def verify(records: list[Record], first: int = 1, last: int | None = None) -> Report:
    index = Index(first, last)
    for record in records:
        index.feed(record)
    replayer = Replayer(index.stops)
    for record in records if last is None else records[:last]:
        replayer.feed(record)
    return replayer.report()
