"""The allotment log on JetStream: one stream, one total order, never edited.

An append ends in one of three ways. Landed and refused come as values. Unknown never leaves this
module as a guess: the same bytes with the same expectation and id are sent until there is an
answer, and a refusal counts only after reading the record that took the place (a server may
refuse the resend of what it stored a moment ago). What cannot be settled in time is raised as
LogUnavailable, and the writer must then step down rather than assume either way.
"""

import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Self

import anyio

from allotment.adapters.log.checkpoints import Checkpoint, newest_checkpoint
from allotment.adapters.log.connection import Connection, TooLarge
from allotment.adapters.log.follow import Follower, LogEnd
from allotment.adapters.log.jetstream import (
    APPEND_IN_FLIGHT,
    BUDGET_S,
    ID_IN_FLIGHT,
    PAUSE_S,
    WRONG_LAST_SEQUENCE,
    Ack,
    ApiError,
    Failure,
    JetStream,
    ask,
    decode_ack,
)
from allotment.adapters.log.monitor import check_synced
from allotment.adapters.log.stream_rules import check_stream, wanted_config
from allotment.adapters.log.versions import check_server_version
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core.logport import (
    AppendResult,
    Landed,
    LogMisconfigured,
    LogUnavailable,
    Record,
    Refused,
    Setting,
    is_same,
    settle,
)
from allotment_proto.subjects import LOG_ALL, STREAM

IN_FLIGHT_MAX = 256
DECISION_RESEND_S = 0.1

TOO_LARGE = 10054
STORE_FAILED = 10077
NO_SPACE = (10047, 10023)  # the account's or the server's storage is used up

_LAST_SEQ = re.compile(r"wrong last sequence: (\d+)")


class LogMissing(LogUnavailable):
    """There is no stream, and the caller does not make one."""


class JetStreamLog:
    """The log port over one stream. Use `open`, or `to_read`; the connection stays the caller's.

    `warnings` are worth a line at start-up. `identity` tells this log from another of the same name
    (a snapshot belongs to one log). `resends` counts the sends that needed repeating; `followers`
    are the reads going on, each with its own count of fresh starts.
    """

    def __init__(
        self,
        jetstream: JetStream,
        stream: str,
        *,
        identity: str,
        warnings: tuple[str, ...] = (),
        asks: bool = False,
    ) -> None:
        self.stream = stream
        self.identity = identity
        self.warnings = warnings
        self.refusals: Refusals | None = None
        """Where messages that are no records of this log are counted, if anywhere."""
        self.resends = 0
        self.followers: set[Follower] = set()
        self.bytes = 0
        """What the log takes on the disk of a server, as the stream's leader last said."""
        self.bytes_limit = 0
        """The most that the stream may take; 0: the stream has no limit of its own."""
        self.copies_behind = 0
        """How many copies on other servers are offline or not current, as the leader last said."""
        self.end_seq = 0
        """The last sequence, as the stream's leader last said to a follower."""
        self.end_seen_s = time.monotonic()
        """When it said so, by the monotonic clock."""
        self._refollows = 0
        self._asks = asks
        self._jetstream = jetstream
        self._connection = jetstream.connection
        self._budget_s = jetstream.budget_s
        self._in_flight = anyio.Semaphore(IN_FLIGHT_MAX, fast_acquire=True)

    @classmethod
    async def open(
        cls,
        connection: Connection,
        *,
        stream: str = STREAM,
        subjects: tuple[str, ...] = (LOG_ALL,),
        replicas: int = 1,
        max_bytes: int = -1,
        allow_unsynced: bool = False,
        monitor_url: str | None = None,
        budget_s: float = BUDGET_S,
        makes: bool = True,
    ) -> Self:
        """Find or make the stream and check that it, and the server, will keep what they take.

        With `makes` false it is only looked for: raises LogMissing where it is not there.

        The server's sync setting is checked where `monitor_url` is given.
        `budget_s` bounds every append and request. Raises LogMisconfigured naming each dangerous
        setting, LogUnavailable when JetStream does not answer.
        """
        warnings = check_server_version(connection.server_version)
        jetstream = JetStream(connection, budget_s=budget_s)
        wanted = wanted_config(stream, subjects, replicas=replicas, max_bytes=max_bytes)
        try:
            if makes:
                info = await jetstream.ensure_stream(wanted)
            elif (found := await jetstream.stream_info(stream)) is not None:
                info = found
            else:
                raise LogMissing(f"there is no stream {stream}")
        except ApiError as error:
            raise LogMisconfigured(
                "nats-server", (Setting("JetStream", str(error), "willing to keep the stream"),)
            ) from error
        wrong, doubtful = check_stream(info["config"], subjects, replicas=replicas)
        unsynced, unsynced_doubtful = await check_synced(
            monitor_url, replicas=info["config"]["num_replicas"], allow_unsynced=allow_unsynced
        )
        if wrong or unsynced:
            raise LogMisconfigured(f"stream {stream}", wrong + unsynced)
        return cls(
            jetstream,
            stream,
            identity=_identity(stream, info),
            warnings=warnings + doubtful + unsynced_doubtful,
        )

    @classmethod
    async def to_read(cls, jetstream: JetStream, stream: str = STREAM) -> Self | None:
        """The log for those who only read it, and may have no consumer; None where there is none.

        Raises LogUnavailable when JetStream does not answer.
        """
        info = await jetstream.stream_info(stream)
        if info is None:
            return None
        return cls(jetstream, stream, identity=_identity(stream, info), asks=True)

    @property
    def refollows(self) -> int:
        """How often a follower had to restart."""
        return self._refollows + sum(follower.refollows for follower in self.followers)

    async def append(self, subject: str, payload: bytes, *, msg_id: str) -> AppendResult:
        headers = self._headers(msg_id)
        async with self._in_flight:
            ack, _ = await self._send(subject, payload, headers, resend_s_max=1.0)
        return ack if isinstance(ack, Refused) else Landed(ack.seq, ack.duplicate)

    async def compare_and_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int
    ) -> AppendResult:
        headers = self._headers(msg_id)
        headers["Nats-Expected-Last-Subject-Sequence"] = str(expected_seq)
        async with self._in_flight:
            ack, sends = await self._send(subject, payload, headers, resend_s_max=DECISION_RESEND_S)
            if isinstance(ack, Ack):
                return await self._believe(ack, payload, msg_id)
            if ack.reason != "wrong_last_sequence" and sends == 1:
                return ack
            took_place = await self._took_place(subject, expected_seq, ack.last_subject_seq)
        if took_place is None:
            return ack
        return settle(ack, took_place, payload=payload, msg_id=msg_id)

    async def last_seq(self) -> int:
        return (await self._bounds())[1]

    async def first_seq(self) -> int:
        """The oldest record that the stream holds."""
        return (await self._bounds())[0]

    async def _bounds(self) -> tuple[int, int]:
        info = await self._jetstream.stream_info(self.stream)
        if info is None:
            raise LogUnavailable(f"stream {self.stream} no longer exists")
        return max(int(info["state"]["first_seq"]), 1), int(info["state"]["last_seq"])

    async def last_on(self, subject: str) -> int:
        record = await self._jetstream.last_on_subject(self.stream, subject)
        return 0 if record is None else record.seq

    async def record(self, seq: int) -> Record | None:
        """The record at `seq`, None where the stream has none, or has it no longer."""
        return await self._jetstream.record_at(self.stream, seq)

    async def first_on(self, subject: str, from_seq: int) -> Record | None:
        """The first record on a subject at or after `from_seq`."""
        return await self._jetstream.first_on_subject(self.stream, subject, from_seq)

    async def checkpoint(self, before_seq: int = 0) -> Checkpoint | None:
        """See `newest_checkpoint`."""
        return await newest_checkpoint(self, before_seq)

    async def taken_bytes(self) -> int:
        """What the stream takes on the disk of a server."""
        info = await self._jetstream.stream_info(self.stream)
        return 0 if info is None else int(info["state"]["bytes"])

    async def purge(self, last_seq: int) -> None:
        """Remove the records up to one. Raises LogUnavailable, also where that is forbidden."""
        try:
            await self._jetstream.request(f"STREAM.PURGE.{self.stream}", {"seq": last_seq + 1})
        except ApiError as error:
            raise LogUnavailable(str(error)) from error

    async def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        follower = Follower(
            self._jetstream,
            self.stream,
            after_seq,
            asks=self._asks,
            on_end=self._saw_end,
            refusals=self.refusals,
        )
        self.followers.add(follower)
        try:
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self.followers.discard(follower)
            self._refollows += follower.refollows

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        """As of the port; what has left the stream is left out."""
        begins, ends = await self._bounds()
        first_seq, last_seq = max(first_seq, begins), min(last_seq, ends)
        if first_seq > last_seq:
            return
        async with aclosing(self.follow(first_seq - 1)) as batches:
            async for batch in batches:
                if batch[-1].seq >= last_seq:
                    yield batch[: last_seq - batch[0].seq + 1]
                    return
                yield batch

    def _saw_end(self, end: LogEnd) -> None:
        self.end_seq, self.bytes, self.bytes_limit, self.copies_behind = end
        self.end_seen_s = time.monotonic()

    def _headers(self, msg_id: str) -> dict[str, str]:
        if not msg_id or not msg_id.isprintable() or msg_id != msg_id.strip():
            raise ValueError(
                f"msg_id {msg_id!r} must be printable, not empty, without outer spaces"
            )
        return {"Nats-Msg-Id": msg_id}  # each header costs every replay: no more than needed

    async def _send(
        self, subject: str, payload: bytes, headers: dict[str, str], *, resend_s_max: float
    ) -> tuple[Ack | Refused, int]:
        """One append until the server decided, and how many sends that took."""
        try:
            answer = await ask(
                self._connection,
                subject,
                payload,
                headers=headers,
                budget_s=self._budget_s,
                resend_s_max=resend_s_max,
                is_final=_is_final,
                kind="write",
            )
        except TooLarge as error:
            return Refused("too_large", None, str(error)), 0
        except LogUnavailable as error:
            if forbidden := self._connection.forbids(subject):
                raise LogUnavailable(f"{error}; {forbidden}") from error
            raise
        self.resends += answer.sends - 1
        ack = decode_ack(answer.data)
        if ack.error is None and ack.stream == self.stream:
            return ack, answer.sends
        if ack.error is not None and (refused := refusal(ack.error)) is not None:
            return refused, answer.sends
        found = f"answered by stream {ack.stream!r}" if ack.error is None else str(ack.error)
        raise LogMisconfigured(
            f"append to {subject}", (Setting("subject", found, f"kept by {self.stream}"),)
        )

    async def _believe(self, ack: Ack, payload: bytes, msg_id: str) -> AppendResult:
        """A duplicate is ours only if the bytes are: ids are text, and text can collide."""
        if ack.duplicate:
            stored = await self._jetstream.record_at(self.stream, ack.seq)
            if stored is None or not is_same(stored, payload=payload, msg_id=msg_id):
                return Refused("id_taken", None, f"id {msg_id!r} names the record at {ack.seq}")
        return Landed(ack.seq, ack.duplicate)

    async def _took_place(
        self, subject: str, expected_seq: int, last_subject_seq: int | None
    ) -> Record | None:
        """The one record that may follow the expectation; None when nothing does."""
        with anyio.move_on_after(self._budget_s):
            while True:
                record = await self._jetstream.first_on_subject(
                    self.stream, subject, expected_seq + 1
                )
                if record is not None or (last_subject_seq or 0) <= expected_seq:
                    return record
                await anyio.sleep(PAUSE_S)  # a new leader that has not caught up
        raise LogUnavailable(f"{subject}: the record after {expected_seq} cannot be read")


def _identity(stream: str, info: dict[str, Any]) -> str:
    return f"{stream}@{info['created']}"


def refusal(error: Failure) -> Refused | None:
    """The server's refusal in our words; None when it is not about this record."""
    text = error.description
    if error.err_code == WRONG_LAST_SEQUENCE:
        last = _LAST_SEQ.search(text)
        return Refused("wrong_last_sequence", int(last[1]) if last else None, text)
    if error.err_code in NO_SPACE or (
        error.err_code == STORE_FAILED and ("exceeded" in text or "no space" in text)
    ):
        return Refused("full", None, text)
    if error.err_code == TOO_LARGE:
        return Refused("too_large", None, text)
    return None


def _is_final(data: bytes) -> bool:
    """Whether an answer to an append settles it, or says to ask again."""
    error = decode_ack(data).error
    if error is None or refusal(error) is not None:
        return True
    return error.err_code not in (APPEND_IN_FLIGHT, ID_IN_FLIGHT) and error.code != 503
