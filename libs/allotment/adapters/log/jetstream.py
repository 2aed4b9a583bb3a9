"""Questions to JetStream, asked until they are answered.

Every request here may be repeated safely: either it changes nothing, or its second copy is
recognised (same id, same expectation, same configuration). So a lost answer costs time and never
correctness, and "no answer" surfaces in one way only, as LogUnavailable after the budget.
"""

import base64
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import anyio
import msgspec
from nats.aio.msg import Msg

from allotment.adapters.log.connection import Connection, Kind, is_no_responders
from allotment.core.logport import LogUnavailable, Record
from allotment_proto.codec import UNREADABLE

FIRST_WAIT_S = 0.25
RESEND_S_MAX = 1.0
PAUSE_S = 0.02
BUDGET_S = 15.0
ANSWER_BYTES_SHOWN = 500

STREAM_NOT_FOUND = 10059
NO_MESSAGE = 10037
OUT_OF_SERVICE = 503
"""The code of a server that cannot do it now, as in a cluster that has no leader."""
NAME_IN_USE = 10058
WRONG_LAST_SEQUENCE = 10071
APPEND_IN_FLIGHT = 10164  # on that subject, at R3: says nothing about ours
ID_IN_FLIGHT = 10158  # at R3: an earlier send of ours, or one that never will be stored


class Failure(msgspec.Struct, frozen=True):
    """The server's own words about what it would not do."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """The answer to an append."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: Failure | None = None


class ApiError(Exception):
    """JetStream refused a management request."""

    def __init__(self, subject: str, failure: Failure) -> None:
        super().__init__(f"{subject}: {failure.description} ({failure.code}/{failure.err_code})")
        self.failure = failure


class _Stored(msgspec.Struct):
    subject: str
    seq: int
    time: str
    hdrs: str = ""
    data: str = ""


class _Got(msgspec.Struct):
    message: _Stored | None = None
    error: Failure | None = None


class Answer(msgspec.Struct, frozen=True):
    """An answer and how many sends it took; more than one means an earlier one may have landed."""

    data: bytes
    sends: int


_decode_got = msgspec.json.Decoder(_Got).decode
decode_ack = msgspec.json.Decoder(Ack).decode


def is_object(data: bytes) -> bool:
    """Whether an answer is a JSON object, as all of JetStream's are."""
    return isinstance(msgspec.json.decode(data), dict)


async def ask(
    connection: Connection,
    subject: str,
    payload: bytes,
    *,
    headers: dict[str, str] | None = None,
    budget_s: float = BUDGET_S,
    resend_s_max: float = RESEND_S_MAX,
    resends: bool = True,
    is_final: Callable[[bytes], bool] = is_object,
    kind: Kind = "read",
) -> Answer:
    """Send the same bytes until there is a final answer. `kind`: what counts as unanswered.

    Repeats are spaced 0.25 s, then doubling up to `resend_s_max` (without `resends` there are
    none); a reconnect repeats at once. An answer that is not final, or that `is_final` cannot
    read, is followed by a short pause and a repeat. Raises LogUnavailable after `budget_s`,
    TooLarge at once.
    """
    deadline = time.monotonic() + budget_s
    wait_s = min(FIRST_WAIT_S, resend_s_max) if resends else budget_s
    sends, last = 0, "no answer"
    with connection.inbox() as inbox:
        while (left_s := deadline - time.monotonic()) > 0:
            if not await connection.wait_connected(left_s):
                last = f"not connected: {connection.last_error}"
                continue
            if await connection.send(subject, payload, reply=inbox.subject, headers=headers):
                sends += 1
                if not connection.forbids(subject):  # no other server would take it either
                    connection.unanswered.asked(kind)
            answer = await inbox.next(min(wait_s, left_s))
            if answer is None:
                wait_s = min(wait_s * 2, resend_s_max)
            elif not is_no_responders(answer) and _settles(answer.data, is_final):
                if kind == "write" or not _is_out_of_service(answer.data):
                    connection.unanswered.answered(kind)
                return Answer(answer.data, sends)
            else:
                last = _text(answer)
                await anyio.sleep(min(PAUSE_S, left_s))
    raise LogUnavailable(f"{subject}: {last} within {budget_s:g} s after {sends} sends")


def _settles(data: bytes, is_final: Callable[[bytes], bool]) -> bool:
    try:
        return is_final(data)
    except UNREADABLE:  # anybody may write to an inbox
        return False


class _Outcome(msgspec.Struct):
    error: Failure | None = None


_decode_outcome = msgspec.json.Decoder(_Outcome).decode


def _is_out_of_service(data: bytes) -> bool:
    """Whether a management answer says that the server cannot answer, as one cut off does."""
    try:
        error = _decode_outcome(data).error
    except UNREADABLE:
        return False
    return error is not None and error.code == OUT_OF_SERVICE


def _text(answer: Msg) -> str:
    if is_no_responders(answer):
        return "no JetStream answered"
    return answer.data[:ANSWER_BYTES_SHOWN].decode(errors="replace")


class JetStream:
    """The management requests the adapters need, on one connection."""

    def __init__(
        self, connection: Connection, *, prefix: str = "$JS.API", budget_s: float = BUDGET_S
    ) -> None:
        self.connection = connection
        self.budget_s = budget_s
        self._prefix = prefix

    async def request(
        self,
        verb: str,
        body: dict[str, Any] | None = None,
        *,
        is_final: Callable[[bytes], bool] = is_object,
        budget_s: float | None = None,
        resends: bool = True,
    ) -> dict[str, Any]:
        """One management request, within its own budget if it has one; sent once if a repeat would
        be refused. Raises ApiError when refused, LogUnavailable when unanswered or when the server
        cannot answer now.
        """
        subject = f"{self._prefix}.{verb}"
        payload = b"" if body is None else msgspec.json.encode(body)
        answer = await ask(
            self.connection,
            subject,
            payload,
            budget_s=budget_s or self.budget_s,
            resends=resends,
            is_final=is_final,
        )
        decoded: dict[str, Any] = msgspec.json.decode(answer.data)
        if "error" in decoded:
            raise _refused(subject, msgspec.convert(decoded["error"], Failure))
        return decoded

    async def stream_info(self, stream: str) -> dict[str, Any] | None:
        """The stream's configuration and state, None when there is no such stream.

        Of a stream without a leader a server tells what its own copy has, which may be old: that is
        no answer.
        """
        try:
            return await self.request(f"STREAM.INFO.{stream}", is_final=_is_from_leader)
        except ApiError as error:
            if error.failure.err_code == STREAM_NOT_FOUND:
                return None
            raise

    async def ensure_stream(self, config: dict[str, Any]) -> dict[str, Any]:
        """Create the stream unless there is one; either way, what the server says it now has."""
        stream = config["name"]
        info = await self.stream_info(stream)
        if info is None:
            try:
                return await self.request(f"STREAM.CREATE.{stream}", config)
            except ApiError as error:
                if error.failure.err_code != NAME_IN_USE:
                    raise
            info = await self.stream_info(stream)  # another process made it in between
            if info is None:
                raise LogUnavailable(f"stream {stream} was made and removed while we looked")
        return info

    async def record_at(self, stream: str, seq: int) -> Record | None:
        """The record at `seq`, from the stream's leader."""
        return await self._get(stream, {"seq": seq})

    async def records(self, stream: str, first: int, last: int) -> list[Record]:
        """Those of the records `first` to `last` that the stream's leader has, asked for together.

        Raises ApiError when refused, LogUnavailable when a question stays unanswered.
        """
        subject = f"{self._prefix}.STREAM.MSG.GET.{stream}"
        connection, found = self.connection, dict[int, Record]()
        answered_s = time.monotonic()
        with connection.inbox() as inbox:
            left = {f"{inbox.subject}.{seq}": seq for seq in range(first, last + 1)}
            while left:
                if time.monotonic() - answered_s > self.budget_s:
                    raise LogUnavailable(f"{subject}: no answer within {self.budget_s:g} s")
                if not await connection.wait_connected(RESEND_S_MAX):
                    continue
                connection.unanswered.asked("read")
                for reply, seq in left.items():
                    await connection.send(subject, b'{"seq":%d}' % seq, reply=reply)
                while left and (answer := await inbox.next(RESEND_S_MAX)) is not None:
                    got = None if is_no_responders(answer) else _useful(answer.data)
                    if got is not None and answer.subject in left:
                        connection.unanswered.answered("read")
                        answered_s = time.monotonic()
                        seq = left.pop(answer.subject)
                        if (record := _record_in(subject, got)) is not None:
                            found[seq] = record
        return [found[seq] for seq in sorted(found)]

    async def first_on_subject(self, stream: str, subject: str, from_seq: int) -> Record | None:
        """The first record on `subject` at or after `from_seq`, from the stream's leader."""
        return await self._get(stream, {"seq": from_seq, "next_by_subj": subject})

    async def last_on_subject(self, stream: str, subject: str) -> Record | None:
        """The newest record on `subject`, from the stream's leader."""
        return await self._get(stream, {"last_by_subj": subject})

    async def _get(self, stream: str, body: dict[str, Any]) -> Record | None:
        subject = f"{self._prefix}.STREAM.MSG.GET.{stream}"
        payload = msgspec.json.encode(body)
        answer = await ask(self.connection, subject, payload, budget_s=self.budget_s)
        return _record_in(subject, _decode_got(answer.data))


def _useful(data: bytes) -> _Got | None:
    """An answer about a record; None for what is none, and of a server that cannot answer now."""
    try:
        got = _decode_got(data)
    except UNREADABLE:
        return None
    return None if got.error is not None and got.error.code == OUT_OF_SERVICE else got


def _record_in(subject: str, got: _Got) -> Record | None:
    """The record in an answer, None where there is none. Raises ApiError when it is refused."""
    if got.error is not None and got.error.err_code != NO_MESSAGE:
        raise _refused(subject, got.error)
    if got.message is None:
        return None
    headers = parse_headers(base64.b64decode(got.message.hdrs))
    return Record(
        seq=got.message.seq,
        subject=got.message.subject,
        payload=base64.b64decode(got.message.data),
        time_ns=parse_time_ns(got.message.time),
        msg_id=headers.get("Nats-Msg-Id", ""),
    )


def _refused(subject: str, failure: Failure) -> ApiError | LogUnavailable:
    error = ApiError(subject, failure)
    return LogUnavailable(str(error)) if failure.code == OUT_OF_SERVICE else error


class _Cluster(msgspec.Struct):
    leader: str = ""


class _Info(msgspec.Struct):
    cluster: _Cluster | None = None


_decode_info = msgspec.json.Decoder(_Info).decode


def _is_from_leader(data: bytes) -> bool:
    """Whether what a server says of a stream is what the stream's leader says."""
    cluster = _decode_info(data).cluster
    return cluster is None or cluster.leader != ""


def parse_headers(raw: bytes) -> dict[str, str]:
    """The headers of a stored message, as the server stored them."""
    lines = raw.decode(errors="replace").split("\r\n")[1:]
    return {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
        if name
    }


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


def parse_time_ns(text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time in UTC, all nine digits kept."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time like 2026-01-02T03:04:05.123456789Z")
    seconds = int(datetime.fromisoformat(match[1] + "+00:00").timestamp())
    return seconds * 1_000_000_000 + int((match[2] or "0").ljust(9, "0"))
