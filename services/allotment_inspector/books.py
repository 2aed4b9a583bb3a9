"""Who held how much and for how long, kept up while somebody asks: the log's journal.

The journal wants every record from the first, so it is made when it is first asked for, a bounded
number of events at a time, and goes on from there.
"""

import threading

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record, pass_over
from allotment.core.replay.journal import Journal, JournalError, Usage, Writer, usage
from allotment_inspector.history import Moment
from allotment_proto import subjects

EVENTS_AT_ONCE = 60_000
"""So many events are counted for one question, which takes about a second."""
_CHUNK = 500


class Books:
    """The journal of a log as far as it was asked for; `books_of` keeps one with the history. A log
    that no journal can hold is counted up to the question before it was found out.
    """

    def __init__(self) -> None:
        self.journal = Journal()
        self._problem = ""
        """Why the journal does not go on, once it does not."""
        self._state = ClusterState()
        self._writer = Writer(self._state)
        self._lock = threading.Lock()

    def used(
        self, moment: Moment, from_ms: int, to_ms: int, *, by_node: bool
    ) -> tuple[list[Usage], int]:
        """What was held between two times, and up to which record that is counted: the moment's,
        unless there is more to count than one question may cost. Raises JournalError for a moment
        that no journal reaches.
        """
        with self._lock:
            if not self._problem:
                self._try(moment)
            if self._problem and moment.seq > self.journal.last_seq:
                raise JournalError(self._problem)
            return usage(self.journal, from_ms, to_ms, by_node=by_node), self.journal.last_seq

    def _try(self, moment: Moment) -> None:
        try:
            self._go_on(moment)
        except JournalError as error:
            self._problem = f"{error} (record {self._state.seq})"
            moment.refuse("Usage", self._problem)

    def _go_on(self, moment: Moment) -> None:
        counted = 0
        state = self._state
        while state.seq < moment.seq and counted < EVENTS_AT_ONCE:
            last = min(state.seq + _CHUNK, moment.seq)
            for entry in moment.records(range(state.seq + 1, last + 1)):
                is_decision = entry.subject == subjects.DECISION
                if entry.reason:
                    pass_over(state, entry.seq, is_decision=is_decision)
                else:
                    apply_record(state, entry.events, entry.seq, is_decision=is_decision)
                self._writer.take(entry.seq, entry.time_ms, entry.payload, entry.events)
                counted += max(len(entry.events), 1)
        if self._writer.last_seq > self.journal.last_seq:
            self.journal.add(self._writer.cut())


def books_of(moment: Moment) -> Books:
    """The books of the log that a moment is of."""
    return moment.memo.lasting("books", Books)
