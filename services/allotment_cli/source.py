"""Where the log comes from: an exported file, a NATS server, or the local mode that is running.

--file LOG.jsonl  >  --nats URL or ALLOT_NATS_URL  >  what runs at --home or ALLOT_HOME
"""

import hashlib
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import click

from allotment.adapters.log.segments import SegmentDirectory
from allotment.adapters.log.snapshots import SnapshotDirectory, SnapshotStore
from allotment.core.logport import Log, LogDamaged, LogUnavailable, Record
from allotment_cli import export
from allotment_cli.errors import CliError
from allotment_proto.subjects import STREAM

if TYPE_CHECKING:
    from allotment.adapters.log.jetstream import JetStream

BATCH_RECORDS = 1024
CONNECT_WITHIN_S = 5.0
DEFAULT_HOME = "~/.allotment"

F = TypeVar("F", bound=Callable[..., Any])


class Origin(NamedTuple):
    """What the options say about where the log is."""

    home: Path
    nats: str | None = None
    file: Path | None = None


class JournalCache(NamedTuple):
    """Where the log's journal may be kept, and the state at its end, from which it goes on."""

    segments: SegmentDirectory
    snapshots: SnapshotStore

    @classmethod
    def at(cls, directory: Path, log_identity: str) -> "JournalCache":
        return cls(
            SegmentDirectory(directory, log_identity=log_identity),
            SnapshotDirectory(directory, log_identity=log_identity),
        )


class Source(Protocol):
    """A log that can be read, more than once. `snapshots` is where folds of it may be kept."""

    snapshots: SnapshotStore | None
    journal: JournalCache | None

    def now_ms(self) -> int:
        """What "now" means: the clock for a live log, the last record's time for a file."""
        ...

    async def last_seq(self) -> int: ...

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]: ...

    def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]: ...

    async def stream_info(self) -> dict[str, Any] | None:
        """What NATS says of the stream; None of a file."""
        ...


def source_options(command: F) -> F:
    """The options of every command that reads the log: `home`, `nats` and `file`."""
    for decorate in (
        click.option(
            "--file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Read an exported log (allot log -o jsonl) instead of a live one.",
        ),
        click.option(
            "--nats", envvar="ALLOT_NATS_URL", metavar="URL", help="NATS server. [ALLOT_NATS_URL]"
        ),
        home_option,
    ):
        command = decorate(command)
    return command


def home_option(command: F) -> F:
    """Where local mode keeps its state."""
    return click.option(
        "--home",
        envvar="ALLOT_HOME",
        default=DEFAULT_HOME,
        show_default=True,
        type=click.Path(path_type=Path, file_okay=False),
        callback=lambda ctx, parameter, value: value.expanduser(),
        help="State of local mode. [ALLOT_HOME]",
    )(command)


class FileSource:
    """An exported log, held in memory."""

    def __init__(self, path: Path) -> None:
        self.records = list(export.read_file(path))
        self.snapshots: SnapshotStore | None = None
        self.journal: JournalCache | None = None

    def now_ms(self) -> int:
        return self.records[-1].time_ns // 1_000_000 if self.records else 0

    async def last_seq(self) -> int:
        return len(self.records)

    async def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        first = max(first_seq, 1) - 1
        last = min(last_seq, len(self.records))
        for start in range(first, last, BATCH_RECORDS):
            yield self.records[start : min(start + BATCH_RECORDS, last)]

    async def stream_info(self) -> dict[str, Any] | None:
        return None

    def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        raise CliError(
            "--follow needs a live log, and --file names an exported one", "leave out --file"
        )


@asynccontextmanager
async def open_source(origin: Origin) -> AsyncIterator[Source]:
    """The log of these options. Raises `CliError` saying what is not there and what to do."""
    if origin.file is not None:
        yield FileSource(origin.file)
        return
    url = origin.nats or await _running(origin.home)
    async with _live(url, origin.home) as source:
        yield source


async def _running(home: Path) -> str:
    from allotment_cli import local

    found = await local.status(home)
    url = found.get("nats")
    if not isinstance(url, str) or not url:
        raise CliError(
            f"local mode is not running at {home}",
            "run: allot up, or name another log with --nats URL or --file LOG.jsonl",
        )
    return url


@asynccontextmanager
async def _live(url: str, home: Path) -> AsyncIterator[Source]:
    from allotment.adapters.log.connection import NatsUnavailable, connect
    from allotment.adapters.log.jetstream import JetStream
    from allotment.adapters.log.log import JetStreamLog
    from allotment.adapters.log.nats_client import Credentials
    from allotment.adapters.log.nats_users import READER, inbox_of

    logging.getLogger("allotment.nats").setLevel(logging.CRITICAL)  # we say it ourselves
    credentials = Credentials(
        creds_file=os.environ.get("ALLOT_NATS_CREDS") or None,
        nkey_seed_file=_seed_file(home),
        tls_ca_file=os.environ.get("ALLOT_NATS_CA") or None,
    )
    name = f"allot-{os.getpid()}"
    try:
        async with connect(
            url.split(","),
            name,
            credentials=credentials,
            inbox_prefix=inbox_of(READER) if credentials.nkey_seed_file else "_INBOX",
            connect_within_s=CONNECT_WITHIN_S,
        ) as connection:
            jetstream = JetStream(connection, budget_s=CONNECT_WITHIN_S)
            info = await jetstream.stream_info(STREAM)
            if info is None:
                raise CliError(
                    f"NATS at {url} has no stream {STREAM}",
                    "is this the right server? the first service that starts makes the stream",
                )
            log = JetStreamLog(jetstream, STREAM, identity=f"{STREAM}@{info['created']}")
            cache = _cache_of(log.identity)
            snapshots = SnapshotDirectory(cache, log_identity=log.identity)
            journal = JournalCache.at(cache / "journal", log.identity)
            yield LiveSource(log, snapshots, journal, jetstream)
    except NatsUnavailable as error:
        raise CliError(
            f"NATS cannot be reached: {error}", "check --nats, or start local mode: allot up"
        ) from error
    except TimeoutError as error:
        raise CliError(
            f"NATS at {url} does not answer", "check --nats, or start local mode: allot up"
        ) from error
    except (LogUnavailable, LogDamaged) as error:
        raise CliError(f"the log at {url} cannot be read: {error}") from error


def _seed_file(home: Path) -> str | None:
    """The reader's key: the one that is named, else that of local mode. A server that asks for none
    is not shown any.
    """
    from allotment.adapters.log.nats_users import READER, seed_file
    from allotment_local.home import KEYS

    named = os.environ.get("ALLOT_NATS_NKEY")
    if named or os.environ.get("ALLOT_NATS_CREDS"):
        return named or None
    local = seed_file(home / KEYS, READER)
    return str(local) if local.is_file() else None


def _cache_of(identity: str) -> Path:
    """The user's cache of one log: $XDG_CACHE_HOME/allotment, or ~/.cache/allotment."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "allotment"
    return cache / hashlib.sha256(identity.encode()).hexdigest()[:16]


class LiveSource:
    """A log that grows; what is read is read from the server each time."""

    def __init__(
        self,
        log: Log,
        snapshots: SnapshotStore | None,
        journal: JournalCache | None,
        jetstream: "JetStream",
    ) -> None:
        self.snapshots = snapshots
        self.journal = journal
        self.last_seq = log.last_seq
        self.read = log.read
        self.follow = log.follow
        self._jetstream = jetstream

    async def stream_info(self) -> dict[str, Any] | None:
        return await self._jetstream.stream_info(STREAM)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
