"""A log of many segments, made quickly: `python -m tests.bench.long_log DIR --records 1400000`.

    DIR/archive    the closed segments as files, by the writer of the archiver
    DIR/nats       a server's store that begins with the newest `--live` of them, and ends with the
                   segment that is still open

Pods come and go as in `allot bench replay`; the records are folded, chained and closed with the
state's checkpoint as a binder does it, and the archiver's own records stand among them. What is in
NATS has the time at which it was stored there. At the end the server runs until its input ends, and
one line of JSON says where it is and what to ask about.
"""

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import anyio
import msgspec

from allotment.adapters.archive.file import Header, Writer
from allotment.adapters.archive.index import write_index
from allotment.adapters.log.checkpoints import count_of, digest_of_image, parts_of
from allotment.adapters.log.connection import connect
from allotment.adapters.log.jetstream import JetStream
from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.log.stream_rules import wanted_config
from allotment.core import chain
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_record
from allotment.core.logport import Record
from allotment.core.units import rfc3339
from allotment_lab.bench.worlds.long_log import START_MS, LongLog
from allotment_proto import registry, subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import (
    Envelope,
    Event,
    PodObserved,
    SegmentArchived,
    SegmentClosed,
    SegmentClosing,
    SegmentsDropped,
)
from allotment_proto.subjects import LOG_ALL, STREAM

IN_FLIGHT = 2_000
LOG = f"{STREAM}@made"


class Closed(NamedTuple):
    """A segment with its records."""

    header: Header
    records: list[Record]


class Growing:
    """Makes the records, segment after segment; `pods` are one of each segment."""

    def __init__(self, nodes: int, pods_alive: int) -> None:
        self.state = ClusterState()
        self.pods: list[str] = []
        self._made = LongLog(nodes, pods_alive, Random(1))
        self._head, self._head_before = chain.START, chain.START
        self._records: list[Record] = []
        self._seq = 0
        self._checkpoint_seq = 0

    def segment(self, records: int, *, archive: str, live: int) -> Closed:
        """The next closed segment, of so many records besides its checkpoint."""
        self.open(records)
        now = self.state.segments.open
        self._append(SegmentClosing(number=now.number, cause="size"))
        closing, image, head = self._seq, snapshot.encode(self.state), self._head
        header = Header(
            log=LOG,
            number=now.number,
            first_seq=now.first_seq,
            last_seq=closing,
            first_time=rfc3339(self._records[0].time_ns // 1_000_000),
            last_time=rfc3339(self._records[-1].time_ns // 1_000_000),
            chain_before=self._head_before.hex(),
            chain=head.hex(),
            digest=digest_of_image(image),
            checkpoint_seq=self._checkpoint_seq,
            written_by="tests.bench.long_log",
        )
        closed, self._records, self._head_before = Closed(header, self._records), [], head
        for part in parts_of(image, closing):
            self._append(part)
        self._append(
            SegmentClosed(
                number=now.number,
                at_ms=START_MS + self._seq,
                first_seq=now.first_seq,
                last_seq=closing,
                parts=count_of(image),
                image_bytes=len(image),
                digest=header.digest,
                chain=head.hex(),
            )
        )
        self._checkpoint_seq = self._seq
        if archive:
            uri = f"{archive}/{header.name}"
            self._append(SegmentArchived(number=now.number, uri=uri, sha256="", size_bytes=1))
        if (gone := self.state.segments.live[:-live]) and gone[-1].archived is not None:
            self._append(SegmentsDropped(last_seq=gone[-1].closed.last_seq))
        assert self.state.segments.open.number == now.number + 1, "the fold took it"
        return closed

    def open(self, records: int) -> list[Record]:
        """So many more records; all of the open segment."""
        for entry in self._made.entries(max(records - len(self._records), 1)):
            (event,) = decode_envelope(entry.payload).events
            self._put(registry.subject_of(event), entry.payload, event)
        named = next(e for e in self._events() if isinstance(e, PodObserved))
        self.pods.append(f"{named.namespace}/{named.name}")
        return self._records

    def _events(self) -> Iterator[Event]:
        for record in self._records[len(self._records) // 2 :]:
            yield from decode_envelope(record.payload, record.subject).events

    def _append(self, event: Event) -> None:
        self._made.skip(1)
        envelope = Envelope(at_ms=START_MS + self._seq + 1, by="binder/made", events=(event,))
        self._put(registry.subject_of(event), encode(envelope), event)

    def _put(self, subject: str, payload: bytes, event: Event) -> None:
        self._seq += 1
        time_ns = (START_MS + self._seq) * 1_000_000
        record = Record(self._seq, subject, payload, time_ns, f"made/{self._seq}")
        self._records.append(record)
        self._head = chain.linked(self._head, record)
        is_decision = subject == subjects.DECISION
        assert not apply_record(self.state, (event,), self._seq, is_decision=is_decision)


class _Unsynced(NatsServer):
    """A server that writes without waiting for its disk."""

    def _config(self) -> str:
        return super()._config().replace("sync_interval: always", "sync_interval: 1m")


def write(closed: Closed, directory: Path) -> None:
    """The file of a segment and its index, as the archiver writes them."""
    path = directory / closed.header.name
    with path.open("wb") as file:
        writer = Writer(file, closed.header)
        for record in closed.records:
            writer.add(record)
        writer.close()
    write_index(path)


async def fill(url: str, records: list[Record]) -> None:
    """A stream that begins with the first of these records."""
    async with connect(url, "made") as connection:
        first_seq = records[0].seq
        jetstream = JetStream(connection)
        config = wanted_config(STREAM, (LOG_ALL,), replicas=1, max_bytes=-1, first_seq=first_seq)
        await jetstream.request(f"STREAM.CREATE.{STREAM}", config)
        for number, record in enumerate(records, 1):
            headers = {"Nats-Msg-Id": record.msg_id}
            await connection.client.publish(record.subject, record.payload, headers=headers)
            if number % IN_FLIGHT and number < len(records):
                continue
            while True:
                info = await jetstream.stream_info(STREAM)
                assert info is not None
                if int(info["state"]["last_seq"]) == record.seq:
                    break
                await anyio.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int, default=1_400_000)
    parser.add_argument("--segments", type=int, default=12)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods-alive", type=int, default=8_000)
    parser.add_argument("--live", type=int, default=2, help="closed segments that are in NATS")
    parser.add_argument("--open", type=float, default=0.5, help="how full the open segment is")
    parser.add_argument("--unarchived", action="store_true", help="leave that to an archiver")
    plan = parser.parse_args()
    archive = plan.directory / "archive"
    archive.mkdir(parents=True)
    url = "" if plan.unarchived else f"file://{archive.resolve()}"
    made, size = Growing(plan.nodes, plan.pods_alive), plan.records // plan.segments
    live: deque[list[Record]] = deque(maxlen=plan.live)
    ends = []
    for _ in range(plan.segments):
        closed = made.segment(size, archive=url, live=plan.live)
        if url:
            write(closed, archive)
        live.append(closed.records)
        ends.append(closed.header.last_seq)
        print(f"segment {closed.header.number} ends with {ends[-1]}", file=sys.stderr)
    records = [record for each in live for record in each]
    records += made.open(max(int(size * plan.open), 1))
    with _Unsynced(plan.directory / "nats") as server:
        anyio.run(fill, server.url, records)
        found = {
            "url": server.url,
            "archive": str(archive),
            "ends": ends,
            "last_seq": records[-1].seq,
            "pods": made.pods,
            "pods_alive": len(made.state.pods),
            "digest": digest_of_image(snapshot.encode(made.state)),
        }
        (plan.directory / "made.json").write_bytes(msgspec.json.encode(found))
        print(msgspec.json.encode(found).decode(), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
