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

The journal. Records are JSON, about 2 KB for a pod's life, and most of what a fold does with
them is done in Python, pod by pod. `core/replay/journal/` says the same of the books in packed
rows, 32 bytes for a booking or a release and 8 for a holding, with every name written once. A
writer beside a fold takes them from the one door's list of changes (`state.changes`), so it
asks nothing a second time: not what a decision meant, nor who bound a pod. Who holds what at
any sequence is each pod's last row up to there; what is free is what nodes list less what is
held, three subtractions over all holdings at once. A segment names the records that it was made
from by range and hash chain, and refers only to what it or an earlier one names; in a file it
has a checksum and the log's identity. Whatever is in doubt is left aside and made again from
the log: the journal is derived, and has no more than amounts. Property tests hold it equal to
the fold at every sequence, for every device family. `allot usage` keeps one in the user's
cache, with a snapshot at its end from which the next writer goes on. Services write none: it
would add a quarter to each fold.
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
