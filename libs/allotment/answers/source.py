"""Where the log comes from: an exported file, a NATS server, or the local mode that is running.

--file LOG.jsonl  >  --nats URL or ALLOT_NATS_URL  >  the cluster of --context or --kubeconfig
>  what runs at --home or ALLOT_HOME  >  the cluster that kubectl would take
"""

import hashlib
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from allotment.adapters.log import exported
from allotment.adapters.log.checkpoints import Checkpoint
from allotment.adapters.log.kept import KeptLog
from allotment.adapters.log.snapshots import SnapshotDirectory, SnapshotMemory, SnapshotStore
from allotment.answers import kubeconfig
from allotment.answers.kubeconfig import Choice
from allotment.answers.screen import UNSEEN, Screen
from allotment.core.errors import AllotError
from allotment.core.logport import LogDamaged, LogUnavailable, Record
from allotment_proto.subjects import LIST_AGAIN, STREAM

if TYPE_CHECKING:
    from allotment.adapters.archive.whole import WholeLog
    from allotment.adapters.log.connection import Connection
    from allotment.adapters.log.jetstream import JetStream

STATES_BYTES_MAX = 1 << 30
CONNECT_WITHIN_S = 5.0
ALLOWED_WITHIN_S = 2.0
DEFAULT_HOME = "~/.allotment"


class Origin(NamedTuple):
    """Where the log is: in a file, at a URL, in a cluster, or in local mode at this home."""

    home: Path
    nats: str | None = None
    file: Path | None = None
    cluster: Choice | None = None
    archive: str | None = None
    """The URL of the archive, if not the one that the log names."""


class Key(NamedTuple):
    """How to prove to NATS who we are: a file with a seed, or the seed itself; or not at all."""

    file: str | None = None
    seed: str | None = None
    is_named: bool = False
    """Whether the file was named explicitly, so that it may be any user's."""
    is_forwarded: bool = False
    """Whether the API server carries the connection."""


class Source(Protocol):
    """A log that can be read, more than once. `snapshots` is where folds of it may be kept, `kept`
    what was read of it before.
    """

    snapshots: SnapshotStore | None
    kept: KeptLog
    screen: Screen

    def now_ms(self) -> int:
        """What "now" means: the clock for a live log, the last record's time for a file."""
        ...

    async def first_seq(self) -> int:
        """The first record that can be read, here or in the archive."""
        ...

    async def near_seq(self) -> int:
        """The first record that is not in the archive alone."""
        ...

    async def last_seq(self) -> int: ...

    async def checkpoint(self, before_seq: int, before_ns: int | None = None) -> Checkpoint | None:
        """The newest checkpoint before a sequence, and before a time; None where there is none."""
        ...

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]: ...

    def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]: ...

    def read_live(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        """The records that are not in the archive alone, as they are there: from no cache."""
        ...

    async def archive_url(self) -> str | None:
        """Where the archive is, as the caller or the log says."""
        ...

    async def stream_info(self) -> dict[str, Any] | None:
        """What NATS says of the stream; None of a file."""
        ...

    async def storage(self) -> dict[str, Any] | None:
        """What NATS says of the storage of the log's account; None of a file, and where that is not
        told.
        """
        ...

    @property
    def certificate_ends_s(self) -> int:
        """When the certificate of NATS expires, in Unix time; 0 of a file, and without TLS."""
        ...

    async def active(self, services: Sequence[str]) -> dict[str, str] | None:
        """The active replica of each of these services, "" for none; None of a file, and where that
        is not told. Where they run as one process, that one stands for the services that have none.
        """
        ...

    async def ask_to_list(self) -> None:
        """Ask the watcher that writes this log to list pods and nodes again."""
        ...


class FileSource:
    """An exported log, held in memory."""

    def __init__(self, path: Path, screen: Screen = UNSEEN) -> None:
        self.screen = screen
        self.records = list(exported.read_file(path))
        self.snapshots: SnapshotStore | None = SnapshotMemory()
        self.kept = KeptLog(exported.ExportedLog(self.records))

    def now_ms(self) -> int:
        return self.records[-1].time_ns // 1_000_000 if self.records else 0

    async def first_seq(self) -> int:
        return 1

    async def near_seq(self) -> int:
        return 1

    async def last_seq(self) -> int:
        return len(self.records)

    async def checkpoint(self, before_seq: int, before_ns: int | None = None) -> Checkpoint | None:
        from allotment.adapters.archive.whole import WholeLog

        whole = WholeLog(exported.ExportedLog(self.records))
        return await whole.checkpoint(before_seq, before_ns)

    def read(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        return self.kept.read(first_seq, last_seq)

    def read_live(self, first_seq: int, last_seq: int) -> AsyncGenerator[list[Record]]:
        return exported.ExportedLog(self.records).read(first_seq, last_seq)

    async def archive_url(self) -> str | None:
        return None

    async def stream_info(self) -> dict[str, Any] | None:
        return None

    async def storage(self) -> dict[str, Any] | None:
        return None

    @property
    def certificate_ends_s(self) -> int:
        return 0

    async def active(self, services: Sequence[str]) -> dict[str, str] | None:
        return None

    async def ask_to_list(self) -> None:
        raise AllotError("an exported log cannot be corrected", "leave out --file")

    def follow(self, after_seq: int) -> AsyncGenerator[list[Record]]:
        raise AllotError(
            "--follow needs a live log, and --file names an exported one", "leave out --file"
        )


@asynccontextmanager
async def open_source(origin: Origin, screen: Screen = UNSEEN) -> AsyncIterator[Source]:
    """Open the log. Raises `AllotError` saying what is not there and what to do."""
    if origin.file is not None:
        yield FileSource(origin.file, screen)
        return
    cluster = origin.cluster
    url = origin.nats or (_running(origin.home) if cluster is None else "")
    if url:
        key = _named_key() or _local_key(origin.home)
        async with _live(url, key, screen, origin.archive) as source:
            yield source
        return
    from allotment.answers import in_cluster

    if cluster is None and not _is_a_cluster_known():
        raise AllotError(
            f"local mode is not running at {origin.home}",
            "run: allot up, or name a log with --context NAME, --nats URL or --file LOG.jsonl",
        )
    async with in_cluster.reached(cluster or Choice(), screen) as found:
        try:
            key = _named_key() or Key(seed=found.seed)
            key = key._replace(is_forwarded=True)
            async with _live(found.url, key, screen, origin.archive) as source:
                yield source
        except AllotError as error:
            if found.forward.problem:  # the reason, where there is one
                raise AllotError(error.message, found.forward.problem) from error
            raise


def cluster_of(origin: Origin) -> Choice | None:
    """The cluster whose log this is; None for a log of no cluster."""
    if origin.file is not None or origin.nats or origin.cluster is not None:
        return origin.cluster
    return None if _running(origin.home) or not _is_a_cluster_known() else Choice()


def _running(home: Path) -> str:
    """Where the NATS of local mode is; empty if it does not run."""
    from allotment.answers import local

    return local.addresses(home).nats


def _is_a_cluster_known() -> bool:
    """Whether there is anything that could say where a cluster is."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) or any(
        path.is_file() for path in kubeconfig.files_of(None)
    )


@asynccontextmanager
async def open_as_admin(origin: Origin, screen: Screen = UNSEEN) -> AsyncIterator["Connection"]:
    """NATS as an administrator of the log, which need not be there. Raises `AllotError`."""
    from allotment.adapters.log.connection import NatsUnavailable
    from allotment.adapters.log.nats_users import ADMIN

    if origin.file is not None:
        raise AllotError("an exported log has no server", "leave out --file")
    cluster = origin.cluster
    url = origin.nats or (_running(origin.home) if cluster is None else "")
    logging.getLogger("allotment.nats").setLevel(logging.CRITICAL)  # we say it ourselves
    try:
        async with AsyncExitStack() as stack:
            key = _named_key() or _local_key(origin.home, ADMIN)
            if not url:
                from allotment.answers import in_cluster

                found = await stack.enter_async_context(
                    in_cluster.reached(cluster or Choice(), screen, ADMIN)
                )
                key = _named_key() or Key(seed=found.seed)
                url, key = found.url, key._replace(is_forwarded=True)
            yield await stack.enter_async_context(_connected(url, key, ADMIN))
    except (NatsUnavailable, TimeoutError) as error:
        raise AllotError(f"NATS cannot be reached: {error}", "check --nats or --context") from error
    except LogUnavailable as error:
        raise AllotError(f"NATS failed: {error}", "is the key an administrator's?") from error


@asynccontextmanager
async def _live(
    url: str, key: Key, screen: Screen, archive: str | None = None
) -> AsyncIterator[Source]:
    from allotment.adapters.archive.whole import WholeLog
    from allotment.adapters.log.connection import NatsUnavailable
    from allotment.adapters.log.jetstream import JetStream
    from allotment.adapters.log.log import JetStreamLog

    logging.getLogger("allotment.nats").setLevel(logging.CRITICAL)  # we say it ourselves
    try:
        async with _connected(url, key) as connection:
            jetstream = JetStream(connection, budget_s=CONNECT_WITHIN_S)
            log = await JetStreamLog.to_read(jetstream)
            if log is None:
                raise AllotError(
                    f"NATS at {url} has no stream {STREAM}",
                    "is this the right server? the watcher makes the stream, unless one was lost"
                    " (see its /readyz)",
                )
            cache = _cache_of(log.identity)
            whole = WholeLog(log, archive, cache)
            kept = KeptLog(whole, cache, log.identity)
            snapshots = SnapshotDirectory(
                cache, log_identity=log.identity, bytes_max=STATES_BYTES_MAX
            )
            try:
                yield LiveSource(whole, kept, snapshots, jetstream, screen)
            finally:
                await kept.close()
                for wrong in whole.damaged.values():
                    screen.note(f"a checkpoint is damaged and was not used: {wrong}")
                if kept.lacks:
                    screen.note(f"what is older is left out: {kept.lacks}")
                if kept.trouble:
                    screen.note(f"what was read of the log cannot be kept: {kept.trouble}")
    except NatsUnavailable as error:
        raise AllotError(
            f"NATS cannot be reached: {error}", "check --nats; for local mode ask allot status"
        ) from error
    except TimeoutError as error:
        raise AllotError(
            f"NATS at {url} does not answer", "check --nats; for local mode ask allot status"
        ) from error
    except (LogUnavailable, LogDamaged) as error:
        raise AllotError(f"the log at {url} cannot be read: {error}") from error


@asynccontextmanager
async def _connected(url: str, key: Key, user: str = "reader") -> AsyncIterator["Connection"]:
    """A connection as the user whose key it is.

    Answers may come to that user's own inbox only, and a key does not tell whose it is. One that
    is named may be a service's, as in the service's own pod, or an administrator's; others are the
    reader's.
    """
    from allotment.adapters.log.connection import connect
    from allotment.adapters.log.nats_client import Credentials
    from allotment.adapters.log.nats_users import READER, USERS, inbox_of

    credentials = Credentials(
        creds_file=os.environ.get("ALLOT_NATS_CREDS") or None,
        nkey_seed_file=key.file,
        nkey_seed=key.seed,
        tls_ca_file=os.environ.get("ALLOT_NATS_CA") or None,
        is_forwarded=key.is_forwarded,
    )
    prefixes = [inbox_of(user)] if key.file or key.seed else ["_INBOX"]
    if key.is_named and user == READER:
        prefixes += (inbox_of(each) for each in USERS if each != user)
    async with AsyncExitStack() as stack:
        for prefix in prefixes:
            connection = await stack.enter_async_context(
                connect(
                    url.split(","),
                    f"allot-{os.getpid()}",
                    credentials=credentials,
                    inbox_prefix=prefix,
                    connect_within_s=CONNECT_WITHIN_S,
                )
            )
            if len(prefixes) > 1:
                # A ping may overtake the subscription that waits to be written, a second one not:
                # after its answer a forbidden inbox is known as such.
                await connection.client.flush()
                await connection.client.flush()
            if not connection.permission_errors:
                break
        yield connection


def _named_key() -> Key | None:
    """The key that the environment names, None if it names none."""
    named = os.environ.get("ALLOT_NATS_NKEY")
    if named or os.environ.get("ALLOT_NATS_CREDS"):
        return Key(file=named or None, is_named=bool(named))
    return None


def _local_key(home: Path, user: str = "reader") -> Key:
    """The user's key of local mode, if there is one; a server that asks for none ignores it."""
    from allotment.adapters.log.nats_users import seed_file
    from allotment_local.home import KEYS

    local = seed_file(home / KEYS, user)
    return Key(file=str(local) if local.is_file() else None)


def _cache_of(identity: str) -> Path:
    """The user's cache of one log: $XDG_CACHE_HOME/allotment, or ~/.cache/allotment."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "allotment"
    return cache / hashlib.sha256(identity.encode()).hexdigest()[:16]


class LiveSource:
    """A log that grows; each record is read from the server once."""

    def __init__(
        self,
        log: "WholeLog",
        kept: KeptLog,
        snapshots: SnapshotStore | None,
        jetstream: "JetStream",
        screen: Screen,
    ) -> None:
        self.screen = screen
        self.snapshots = snapshots
        self.kept = kept
        self.first_seq = log.first_seq
        self.near_seq = log.near_seq
        self.last_seq = log.last_seq
        self.checkpoint = log.checkpoint
        self.read_live = log.read_live
        self.archive_url = log.archive_url
        self.read = kept.read
        self.follow = log.follow
        self._jetstream = jetstream

    async def stream_info(self) -> dict[str, Any] | None:
        return await self._jetstream.stream_info(STREAM)

    async def storage(self) -> dict[str, Any] | None:
        from allotment.adapters.log.jetstream import ApiError

        try:
            return await self._soon().request("INFO")
        except (ApiError, LogUnavailable):
            return None

    @property
    def certificate_ends_s(self) -> int:
        return self._jetstream.connection.certificate_ends_s

    async def active(self, services: Sequence[str]) -> dict[str, str] | None:
        from allotment.adapters.log.jetstream import ApiError
        from allotment.adapters.log.lease import active_holders
        from allotment.core.explain.doctor import SCHEDULER, as_run

        try:
            return as_run(await active_holders(self._soon(), (*services, SCHEDULER)))
        except (ApiError, LogUnavailable):
            return None

    def _soon(self) -> "JetStream":
        """For questions that not every key may ask: a server does not answer what it forbids."""
        from allotment.adapters.log.jetstream import JetStream

        return JetStream(self._jetstream.connection, budget_s=ALLOWED_WITHIN_S)

    async def ask_to_list(self) -> None:
        await self._jetstream.connection.send(LIST_AGAIN, b"")

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
