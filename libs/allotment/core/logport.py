"""The allotment log as the core sees it: records, endings of an append, and the port itself.

Kept free of I/O so that the simulator, the in-memory log and the JetStream log share one vocabulary
and one judgement. The judgement matters most: an append has three endings (landed, refused,
unknown), unknown is settled by resending the same bytes, and a refused compare-and-append
counts only after looking at the record that took the place, because that record may be our own.
"""

import hashlib
from collections.abc import AsyncGenerator
from typing import Literal, Protocol

import msgspec

RefusalReason = Literal["wrong_last_sequence", "full", "too_large", "id_taken"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One entry of the log. `seq` starts at 1, without holes; `time_ns` is the log's clock, UTC."""

    seq: int
    subject: str
    payload: bytes
    time_ns: int
    msg_id: str


class Landed(msgspec.Struct, frozen=True):
    """The record is in the log at `seq`; `duplicate` says it was there before this call."""

    seq: int
    duplicate: bool = False


class Refused(msgspec.Struct, frozen=True):
    """The record is not in the log and will not be: decide again (or stop, if the log is full).

    `last_subject_seq` is the last sequence on the subject as the log saw it, where it said so.
    """

    reason: RefusalReason
    last_subject_seq: int | None
    message: str


AppendResult = Landed | Refused


class Setting(msgspec.Struct, frozen=True):
    """One setting that is not as it must be."""

    name: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.name} is {self.found}, must be {self.wanted}"


class LogUnavailable(Exception):
    """No answer within the budget: whether the record landed is unknown. Step down."""


class LogMisconfigured(Exception):
    """The server or the stream would lose or alter history. `settings` names each reason."""

    def __init__(self, where: str, settings: tuple[Setting, ...]) -> None:
        super().__init__(f"{where}: " + "; ".join(str(setting) for setting in settings))
        self.settings = settings


class LogDamaged(Exception):
    """The log lacks records that were there: it was cut short, replaced, or has a hole."""


class Log(Protocol):
    """An append-only total order of byte records.

    The host must give every record a `msg_id` that names its content: a repeat of the id within the
    log's duplicate window is taken for the same record.
    """

    async def append(self, subject: str, payload: bytes, *, msg_id: str) -> AppendResult:
        """Append unconditionally (facts, outcomes). Raises LogUnavailable, budget spent."""
        ...

    async def compare_and_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int
    ) -> AppendResult:
        """Append if `expected_seq` is still the last sequence on `subject` (0: none yet).

        Unknown outcomes are settled inside. Raises LogUnavailable when the budget is spent. A
        caller that cancels this call must treat the outcome as unknown.
        """
        ...

    async def last_seq(self) -> int:
        """The sequence of the newest record, 0 when the log is empty."""
        ...

    async def last_on(self, subject: str) -> int:
        """The same of the newest record on a subject, 0 when there is none."""
        ...

    def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        """Every record after `after_seq`, in order, exactly once, in non-empty batches; never ends.

        Raises LogDamaged when the log ends before `after_seq` or has a hole.
        """
        ...

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        """The records `first_seq` to `last_seq`, both included, in batches; ends at the tail."""
        ...


def settle(refused: Refused, took_place: Record, *, payload: bytes, msg_id: str) -> AppendResult:
    """Judge a refused compare-and-append by the first record on the subject after the expectation.

    At most one record can follow a given sequence. If that record is ours, an earlier send of ours
    landed and only its answer was lost.
    """
    if took_place.msg_id == msg_id and took_place.payload == payload:
        return Landed(took_place.seq, duplicate=True)
    return refused


def digest_of(record: Record) -> str:
    """What tells a record from another that came to stand at its sequence."""
    return hashlib.sha256(record.payload).hexdigest()


def is_same(record: Record, *, payload: bytes, msg_id: str) -> bool:
    """Whether `record` is the one we meant, bytes and id."""
    return record.msg_id == msg_id and record.payload == payload
