"""One suite for every log: what the core relies on, whoever keeps the records."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import anyio
import pytest
from tests.memory_log import Append, Fault, MemoryLog, MemoryLogCore

from allotment.adapters.log.connection import connect
from allotment.adapters.log.jetstream import JetStream
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.core.logport import Landed, Log, LogDamaged, Record, Refused, settle

pytestmark = pytest.mark.anyio

FACT = "t.node.n1"
DECISION = "t.decision"


@pytest.fixture(params=["memory", "jetstream", "jetstream to read"])
async def log(request: pytest.FixtureRequest, nats_server: NatsServer) -> AsyncIterator[Log]:
    if request.param == "memory":
        yield MemoryLog()
        return
    async with connect(nats_server.url, "contract") as connection:
        prefix = uuid.uuid4().hex
        opened = await JetStreamLog.open(
            connection, stream=f"LOG_{prefix}", subjects=(f"{prefix}.>",)
        )
        to_read = await JetStreamLog.to_read(JetStream(connection), opened.stream)
        assert to_read is not None
        yield Prefixed(opened, prefix, opened if request.param == "jetstream" else to_read)


class Prefixed:
    """The tests share one server, so each log's subjects get a first token of their own."""

    def __init__(self, log: JetStreamLog, prefix: str, reads: JetStreamLog) -> None:
        self._log, self._reads = log, reads
        self._prefix = prefix

    async def append(self, subject: str, payload: bytes, *, msg_id: str) -> Landed | Refused:
        return await self._log.append(f"{self._prefix}.{subject}", payload, msg_id=msg_id)

    async def compare_and_append(
        self, subject: str, payload: bytes, *, msg_id: str, expected_seq: int
    ) -> Landed | Refused:
        return await self._log.compare_and_append(
            f"{self._prefix}.{subject}", payload, msg_id=msg_id, expected_seq=expected_seq
        )

    async def last_seq(self) -> int:
        return await self._log.last_seq()

    async def last_on(self, subject: str) -> int:
        return await self._log.last_on(f"{self._prefix}.{subject}")

    async def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        async with aclosing(self._reads.follow(after_seq)) as batches:
            async for batch in batches:
                yield [self._strip(record) for record in batch]

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        async with aclosing(self._reads.read(first_seq, last_seq)) as batches:
            async for batch in batches:
                yield [self._strip(record) for record in batch]

    def _strip(self, record: Record) -> Record:
        subject = record.subject.removeprefix(f"{self._prefix}.")
        return Record(record.seq, subject, record.payload, record.time_ns, record.msg_id)


async def fill(log: Log, count: int, start: int = 1) -> None:
    for n in range(start, start + count):
        assert await log.append(FACT, b"%d" % n, msg_id=f"fact/{n}") == Landed(n)


async def take(batches: AsyncGenerator[list[Record]], count: int) -> list[Record]:
    records: list[Record] = []
    async with aclosing(batches):
        async for batch in batches:
            assert batch, "a batch is never empty"
            records += batch
            if len(records) >= count:
                break
    return records


async def test_records_come_back_as_they_were_appended(log: Log) -> None:
    assert await log.last_seq() == 0
    assert await log.last_on(FACT) == 0
    assert await log.append(FACT, b"\x00\xff one", msg_id="node/n1/7") == Landed(1)
    assert await log.append("t.pod.p1", b"", msg_id="pod/p1/8") == Landed(2)
    assert await log.last_seq() == 2
    assert (await log.last_on(FACT), await log.last_on("elsewhere")) == (1, 0)
    first, second = await take(log.follow(0), 2)
    assert (first.seq, first.subject, first.payload) == (1, FACT, b"\x00\xff one")
    assert (second.seq, second.subject, second.payload) == (2, "t.pod.p1", b"")
    assert (first.msg_id, second.msg_id) == ("node/n1/7", "pod/p1/8")
    assert 0 < first.time_ns <= second.time_ns


async def test_a_repeated_id_lands_once(log: Log) -> None:
    assert await log.append(FACT, b"a", msg_id="node/n1/1") == Landed(1)
    assert await log.append(FACT, b"a", msg_id="node/n1/1") == Landed(1, duplicate=True)
    assert await log.last_seq() == 1


@pytest.mark.parametrize("after", [0, 1, 7, 20])
async def test_follow_from_any_sequence_to_the_tail_and_beyond(log: Log, after: int) -> None:
    await fill(log, 20)
    seen: list[int] = []
    async with anyio.create_task_group() as tasks:

        async def follow() -> None:
            seen.extend(r.seq for r in await take(log.follow(after), 40 - after))

        tasks.start_soon(follow)
        await anyio.sleep(0.05)
        await fill(log, 20, start=21)
    assert seen == list(range(after + 1, 41))


async def test_following_beyond_the_tail_is_damage_not_patience(log: Log) -> None:
    await fill(log, 3)
    with pytest.raises(LogDamaged, match="3"):
        await take(log.follow(4), 1)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(1, 10, range(1, 11)), (4, 6, range(4, 7)), (8, 99, range(8, 11)), (5, 4, ()), (11, 12, ())],
)
async def test_read_is_bounded(log: Log, first: int, last: int, expected: range) -> None:
    await fill(log, 10)
    async with aclosing(log.read(first, last)) as batches:
        assert [record.seq async for batch in batches for record in batch] == list(expected)


async def test_compare_and_append_lets_the_expectation_decide(log: Log) -> None:
    first = await log.compare_and_append(DECISION, b"d1", msg_id="c/1", expected_seq=0)
    assert first == Landed(1)
    await log.append(FACT, b"f", msg_id="f/1")  # another subject: the expectation does not see it
    stale = await log.compare_and_append(DECISION, b"d2", msg_id="c/2", expected_seq=0)
    assert isinstance(stale, Refused)
    assert (stale.reason, stale.last_subject_seq) == ("wrong_last_sequence", 1)
    assert await log.compare_and_append(DECISION, b"d2", msg_id="c/2", expected_seq=1) == Landed(3)
    future = await log.compare_and_append(DECISION, b"d3", msg_id="c/3", expected_seq=9)
    assert isinstance(future, Refused)
    assert await log.last_seq() == 3


async def test_a_resent_decision_is_recognised_as_landed(log: Log) -> None:
    assert await log.compare_and_append(DECISION, b"d", msg_id="c/1", expected_seq=0) == Landed(1)
    again = await log.compare_and_append(DECISION, b"d", msg_id="c/1", expected_seq=0)
    assert again == Landed(1, duplicate=True)
    # also when others built upon it since: the record that took the place counts, not the newest
    assert await log.compare_and_append(DECISION, b"e", msg_id="c/2", expected_seq=1) == Landed(2)
    again = await log.compare_and_append(DECISION, b"d", msg_id="c/1", expected_seq=0)
    assert again == Landed(1, duplicate=True)
    assert await log.last_seq() == 2


async def test_another_record_under_our_id_is_not_ours(log: Log) -> None:
    assert await log.compare_and_append(DECISION, b"d", msg_id="c/1", expected_seq=0) == Landed(1)
    theirs = await log.compare_and_append(DECISION, b"other", msg_id="c/1", expected_seq=0)
    assert isinstance(theirs, Refused)
    on_top = await log.compare_and_append(DECISION, b"other", msg_id="c/1", expected_seq=1)
    assert isinstance(on_top, Refused)
    assert on_top.reason == "id_taken"
    assert await log.last_seq() == 1


async def test_a_race_never_has_two_winners(log: Log) -> None:
    """Four writers, each building on the newest decision it knows: one chain, no fork."""
    wins: list[int] = []

    async def write(writer: int) -> None:
        last, landed, attempt = 0, 0, 0
        while landed < 10:
            attempt += 1
            result = await log.compare_and_append(
                DECISION, b"w%d" % writer, msg_id=f"{writer}/{attempt}", expected_seq=last
            )
            if isinstance(result, Landed):
                wins.append(result.seq)
                last, landed = result.seq, landed + 1
            else:
                assert result.last_subject_seq is not None
                last = result.last_subject_seq

    async with anyio.create_task_group() as tasks:
        for writer in range(4):
            tasks.start_soon(write, writer)
    assert sorted(wins) == list(range(1, 41))
    assert await log.last_seq() == 40


async def test_memory_log_settles_lost_late_and_unanswered_sends() -> None:
    faults = iter([Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
    log = MemoryLog(faults=lambda append: next(faults, Fault.NONE), resend_s=0.001)
    # lost, then stored without an answer, then late, then refused: and yet it is in the log, once
    result = await log.compare_and_append(DECISION, b"d", msg_id="c/1", expected_seq=0)
    assert result == Landed(1, duplicate=True)
    assert log.core.deliver_late() == 1
    assert [record.payload for record in log.core.records] == [b"d"]


async def test_memory_log_refuses_when_full() -> None:
    log = MemoryLog(MemoryLogCore(max_bytes=10))
    assert await log.append(FACT, b"12345678", msg_id="1") == Landed(1)
    refused = await log.append(FACT, b"123", msg_id="2")
    assert isinstance(refused, Refused)
    assert refused.reason == "full"


def test_the_simulator_can_drive_the_core_without_an_event_loop() -> None:
    core = MemoryLogCore()
    append = Append(DECISION, b"d", "c/1", 0)
    assert core.send(append, Fault.LATE) is None
    rival = core.send(Append(DECISION, b"r", "c/r", 0))
    assert rival == Landed(1)
    assert core.deliver_late() == 1
    answer = core.send(append)
    assert isinstance(answer, Refused)
    assert core.settle(append, answer) == answer


def test_only_the_record_in_our_place_with_our_bytes_is_ours() -> None:
    refused = Refused("wrong_last_sequence", 5, "")
    ours = Record(5, DECISION, b"d", 0, "c/1")
    assert settle(refused, ours, payload=b"d", msg_id="c/1") == Landed(5, duplicate=True)
    assert settle(refused, ours, payload=b"d2", msg_id="c/1") is refused
    assert settle(refused, ours, payload=b"d", msg_id="c/2") is refused
