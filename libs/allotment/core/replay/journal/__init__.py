"""The journal: every booking and release in log order, as packed rows beside the log.

    writer = Writer(state)                        # beside a fold
    writer.take(seq, at_ms, payload, events)      # after each record took effect
    segment = writer.cut()                        # all since the last cut; encode(segment) to keep

    journal = Journal()
    journal.add(segment)                          # one after the other, from the first
    journal.books(seq).picture()                  # who held what, what was free, at any sequence
    usage(journal, from_ms, to_ms)                # who used how much, and for how long

The log is the truth, the journal is derived from it and says so: a segment names the records that
it was made from by range and by a hash chain. Whatever about it is in doubt raises `JournalError`,
and the log is folded instead. It has no more than amounts: no labels, no refusals, no queues.
"""

from allotment.core.replay.journal.books import Balance
from allotment.core.replay.journal.reader import Journal
from allotment.core.replay.journal.segment import JournalError, Segment, decode, encode
from allotment.core.replay.journal.usage import Usage, usage
from allotment.core.replay.journal.writer import Writer

__all__ = [
    "Balance",
    "Journal",
    "JournalError",
    "Segment",
    "Usage",
    "Writer",
    "decode",
    "encode",
    "usage",
]
