"""Which replica is active: a lease on NATS. It decides how fast things go, never whether they are
right.

The lease is the newest record on one subject of a small stream, written only by compare-and-append
and forgotten by the server after `ttl_s`. Three clocks keep it honest without being compared: the
server forgets the record a full TTL after it stored it; the holder stops by its own monotonic
clock a full TTL after it *sent* its last renewal, which is earlier; a candidate only ever asks the
server.

What is no claim counts as vacant: the holder overwrites it, and a candidate takes a lease without
a renewal for twice the TTL, whatever the newest record says. So a record without a TTL,
which the server never forgets, cannot block a lease for good.

A holder that is frozen and wakes up late finds `is_held` false before it does anything. Between
asking `is_held` and acting there is always a moment, so decisions are fenced by the log's own
compare-and-append, never by the lease.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.lowlevel
import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import BadSubscriptionError, ConnectionClosedError

from allotment.adapters.log.connection import Connection
from allotment.adapters.log.jetstream import (
    APPEND_IN_FLIGHT,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    ApiError,
    JetStream,
    ask,
    decode_ack,
)
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core.logport import LogMisconfigured, LogUnavailable, Record, Setting
from allotment_proto.codec import UNREADABLE
from allotment_proto.subjects import escape

STREAM = "ALLOTMENT_LEASES"
PREFIX = "allot.lease."
TTL_S = 2
RENEW_S = 0.5
LOOK_S = 0.5
HURRY_S = 0.02
HURRY_LOOKS = 10
RELEASE_WITHIN_S = 1.0
RESEND_S = 0.1
STALE_TTLS = 2
"""A lease that was not renewed for so many TTLs is free: its holder stopped by its own clock."""
JUNK_TRIES = 3
DOOR = "lease"

log = logging.getLogger("allotment.lease")


class Claim(msgspec.Struct, frozen=True):
    """What a lease record says. `token` tells two lives of one holder apart, as a restart in a
    container keeps host and process id. `released`: the holder left on purpose, take it at once.
    """

    holder: str
    token: str
    released: bool = False


class Lease:
    """Competes for one lease from entering the block to leaving it, again and again when it is
    lost.

    `holder` is for people to read. `ttl_s` is whole seconds, at least 1. Entering raises
    LogUnavailable without JetStream and LogMisconfigured on a server that does not forget records.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        name: str,
        holder: str,
        ttl_s: int = TTL_S,
        renew_s: float = RENEW_S,
        stream: str = STREAM,
        prefix: str = PREFIX,
        replicas: int = 1,
        refusals: Refusals | None = None,
    ) -> None:
        if ttl_s < 1 or renew_s * 2 > ttl_s:
            raise ValueError(f"ttl_s {ttl_s} must be at least 1 and twice renew_s {renew_s}")
        self.name = name
        self.holder = holder
        self.epoch = 0
        self.lost_because = ""
        """Why it was last lost: whether another holds it now, only another can tell."""
        self._connection = connection
        self._jetstream = JetStream(connection, budget_s=float(ttl_s))
        self._stream = stream
        self._prefix = prefix
        self._subject = prefix + escape(name)
        self._ttl_s = ttl_s
        self._renew_s = renew_s
        self._replicas = replicas
        self._refusals = refusals
        self._junk_seq = 0
        self._token = secrets.token_hex(8)
        self._hurry = 0
        self._seq = 0
        self._held_until = 0.0
        self._acquired = anyio.Event()
        self._lost = anyio.Event()
        self._lost.set()
        self._stirred = anyio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_held(self) -> bool:
        """Whether this replica may act now, by its own clock."""
        return time.monotonic() < self._held_until

    async def acquired(self) -> int:
        """Wait until the lease is held. Returns the epoch, which grows with every change of
        holder. Raises what ended the loop that competes for it, if anything did.
        """
        while not self.is_held:
            await self._acquired.wait()
            await anyio.lowlevel.checkpoint()
            if self._task is not None and self._task.done():
                self._task.result()
        return self.epoch

    async def lost(self) -> None:
        """Wait until the lease is no longer held; returns at once when it is not."""
        await self._lost.wait()

    async def __aenter__(self) -> Self:
        info = await self._jetstream.ensure_stream(self._config())
        wrong = tuple(
            Setting(name, str(info["config"].get(name)), str(wanted))
            for name, wanted in (("allow_msg_ttl", True), ("max_msgs_per_subject", 1))
            if info["config"].get(name) != wanted
        )
        if wrong:
            raise LogMisconfigured(f"stream {self._stream}", wrong)
        self._task = asyncio.create_task(self._compete(), name=f"lease {self.name}")
        self._task.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._task is not None
        with anyio.CancelScope(shield=True):
            self._task.cancel()
            await asyncio.wait([self._task])
            if self.is_held:
                await self._release()
            self._drop("released")
        if not self._task.cancelled():
            self._task.result()  # a defect in the loop above must not stay silent

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The loop ends only by a defect: then an unrenewed lease counts as lost, and waiters in
        `acquired` or `lost` get the error.
        """
        if not task.cancelled():
            self._drop(f"the loop ended: {task.exception()!r}")
        self._acquired.set()

    async def _compete(self) -> None:
        subscription: Subscription = await self._connection.client.subscribe(
            self._subject, cb=self._on_stir
        )
        try:
            while True:
                try:
                    await self._jetstream.ensure_stream(self._config())  # it may have been lost
                    while True:
                        await self._await_turn()
                        await self._hold()
                except (ApiError, LogUnavailable) as error:
                    self._drop(str(error))
                    log.warning("lease %s: %s", self.name, error)
                    await anyio.sleep(LOOK_S)
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await subscription.unsubscribe()
                except (BadSubscriptionError, ConnectionClosedError):
                    log.debug("lease %s: the connection was gone first", self.name)

    async def _await_turn(self) -> None:
        """Watch the holder until the lease is free and ours."""
        renewed_seq, renewed_at, told = 0, time.monotonic(), ""
        while True:
            self._stirred = anyio.Event()
            record = await self._jetstream.last_on_subject(self._stream, self._subject)
            claim = self._claim_in(record)
            if claim is not None and not claim.released and claim.token not in (told, self._token):
                told = claim.token
                log.info("lease %s: %s holds it", self.name, claim.holder)
            if record is not None and claim is not None and record.seq != renewed_seq:
                if renewed_seq:
                    self._connection.unanswered.answered("write")  # its renewer gets answers
                renewed_seq, renewed_at = record.seq, time.monotonic()
            is_free = record is None or not record.payload or (claim is not None and claim.released)
            if is_free or time.monotonic() - renewed_at >= self._ttl_s * STALE_TTLS:
                sent_at = time.monotonic()
                if await self._write(0 if record is None else record.seq, self._ttl_s):
                    self._take(sent_at)
                    log.info("lease %s: held by %s, epoch %d", self.name, self.holder, self.epoch)
                    return
            if self._hurry:
                self._hurry -= 1
                await anyio.sleep(HURRY_S)
                continue
            with anyio.move_on_after(LOOK_S):
                await self._stirred.wait()

    async def _hold(self) -> None:
        """Renew until that fails for a whole TTL or another instance holds the lease."""
        while self.is_held:
            await anyio.sleep(self._renew_s)
            sent_at = time.monotonic()
            if sent_at >= self._held_until:
                break
            try:
                renewed = await self._write(self._seq, self._held_until - sent_at)
            except LogUnavailable as error:
                self._drop(str(error))
                return
            if not renewed:
                self._drop("another took it, or the server forgot it")
                return
            if self.is_held:
                self._held_until = sent_at + self._ttl_s
                continue
            # It had expired, and whatever relied on it has stopped: that has to start again.
            self._drop("renewed too late")
            self._take(sent_at)
        self._drop("not renewed in time")

    def _take(self, sent_at: float) -> None:
        """The lease is ours from now on, by the record that was sent at this monotonic time."""
        self.epoch = self._seq
        self._held_until = sent_at + self._ttl_s
        self._lost = anyio.Event()
        self._acquired.set()

    async def _write(self, expected_seq: int, budget_s: float, *, released: bool = False) -> bool:
        """Whether our claim is now the newest record; notes its sequence. The holder writes over
        junk.
        """
        for _ in range(JUNK_TRIES):
            headers = {
                "Nats-Expected-Last-Subject-Sequence": str(expected_seq),
                "Nats-Expected-Stream": self._stream,
                "Nats-TTL": f"{self._ttl_s}s",
            }
            answer = await ask(
                self._connection,
                self._subject,
                msgspec.json.encode(Claim(self.holder, self._token, released)),
                headers=headers,
                budget_s=budget_s,
                resend_s_max=RESEND_S,
                is_final=_is_final,
                kind="write",
            )
            ack = decode_ack(answer.data)
            if ack.error is None:
                self._seq = ack.seq
                return True
            if ack.error.err_code != WRONG_LAST_SEQUENCE:
                raise ApiError(self._subject, ack.error)
            newest = await self._jetstream.last_on_subject(self._stream, self._subject)
            if newest is None or not newest.payload:
                return False
            claim = self._claim_in(newest)
            if claim is not None and claim.token == self._token:
                self._seq = newest.seq  # an earlier send of ours landed, its answer was lost
                return True
            if claim is not None or not self.is_held:  # junk may lie on the claim of a holder
                return False
            expected_seq = newest.seq
        return False

    def _claim_in(self, record: Record | None) -> Claim | None:
        """The claim that a record holds; None for none, and for what is no claim."""
        if record is None or not record.payload:
            return None
        try:
            return _claim(record.payload)
        except UNREADABLE as error:
            if record.seq != self._junk_seq and self._refusals is not None:
                text = f"is no claim and is written over: {error}"
                self._refusals.refuse(DOOR, "Claim", text, name=self._subject)
            self._junk_seq = record.seq
            return None

    async def _release(self) -> None:
        """Hand the lease back, so that a standby need not wait for the server to forget it."""
        try:
            await self._write(self._seq, RELEASE_WITHIN_S, released=True)
        except (ApiError, LogUnavailable) as error:
            log.warning("lease %s: not released, it will run out: %s", self.name, error)

    def _drop(self, why: str) -> None:
        if self._lost.is_set():
            return
        self.lost_because = why
        self._held_until = 0.0
        self._acquired = anyio.Event()
        self._lost.set()
        log.info("lease %s: lost by %s: %s", self.name, self.holder, why)

    async def _on_stir(self, message: Msg) -> None:
        """A claim on its way into the stream; a release is worth looking for it at once."""
        try:
            is_released = _claim(message.data).released
        except UNREADABLE:  # counted when it is read from the stream
            return
        if is_released:
            self._hurry = HURRY_LOOKS
            self._stirred.set()

    def _config(self) -> dict[str, Any]:
        return {
            "name": self._stream,
            "subjects": [f"{self._prefix}>"],
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "max_msgs_per_subject": 1,
            "allow_msg_ttl": True,
            "num_replicas": self._replicas,
        }


async def active_holders(jetstream: JetStream, names: Sequence[str]) -> dict[str, str]:
    """The holder of each lease; empty for a lease without one.

    A server that accepts no writes expires no records either. A record that seems old is therefore
    read again after more than a lease's lifetime; the clocks of two machines may differ. Raises
    LogUnavailable without an answer, also for a missing right to read the leases.
    """
    now_ns = time.time_ns()
    seen = await newest_claims(jetstream, names)
    old = [
        name
        for name, (record, _) in seen.items()
        if record is None or abs(now_ns - record.time_ns) > TTL_S * 1_000_000_000
    ]
    if old:
        await anyio.sleep(TTL_S + RENEW_S)
        again = await newest_claims(jetstream, old)
        for name, (record, holder) in again.items():
            first, _ = seen[name]
            is_renewed = record is not None and (first is None or first.seq != record.seq)
            seen[name] = record, holder if is_renewed else ""
    return {name: holder for name, (_, holder) in seen.items()}


async def newest_claims(
    jetstream: JetStream, names: Sequence[str]
) -> dict[str, tuple[Record | None, str]]:
    """By name the newest record and the holder that it names; None and "" of an
    unclaimed lease. Raises ApiError and LogUnavailable.
    """
    found: dict[str, tuple[Record | None, str]] = dict.fromkeys(names, (None, ""))
    for name in names:
        try:
            record = await jetstream.last_on_subject(STREAM, PREFIX + escape(name))
            claim = None if record is None else _claim(record.payload)
        except ApiError as error:
            if error.failure.err_code != STREAM_NOT_FOUND:
                raise
        except UNREADABLE:  # vacant
            continue
        else:
            if claim is not None and not claim.released:
                found[name] = record, claim.holder
    return found


def _claim(payload: bytes) -> Claim:
    return msgspec.json.decode(payload, type=Claim)


def _is_final(data: bytes) -> bool:
    error = decode_ack(data).error
    return error is None or (error.err_code != APPEND_IN_FLIGHT and error.code != 503)
