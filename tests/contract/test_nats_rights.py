"""Who may do what on NATS: the shipped configuration, run by a real server, attacked by each user.

What is forbidden is refused by the server itself: nothing is appended, deleted or overheard, even
if one of the services, or a reader of the log, is somebody else's.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest
from nats.aio.msg import Msg
from tests.contract.manifests import ROOT
from tests.contract.nats_shipped import RIGHTS, SINGLE, admit, credentials_of, on_loopback, running
from tests.waiting import patience, until

from allotment.adapters.log.connection import Connection, NatsUnavailable, connect
from allotment.adapters.log.jetstream import JetStream
from allotment.adapters.log.lease import STREAM as LEASES
from allotment.adapters.log.lease import Lease, active_holders
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_client import Credentials
from allotment.adapters.log.nats_users import (
    ADMIN,
    ARCHIVER,
    CONNECTIONS_MAX,
    QUESTION_BYTES_MAX,
    READER,
    SCHEDULER,
    SERVICES,
    USERS,
    authorization_conf,
    inbox_of,
    seed_file,
    write_keys,
)
from allotment.adapters.log.questions import RECORDS_MAX
from allotment.core.logport import Landed, Record
from allotment_local.child import NatsChild
from allotment_local.state import ServiceState
from allotment_proto import subjects

pytestmark = pytest.mark.anyio
LOG = subjects.STREAM
FACT = subjects.node("n1")
HARMFUL = (
    "STREAM.DELETE",
    "STREAM.PURGE",
    "STREAM.UPDATE",
    "STREAM.MSG.DELETE",
    "STREAM.SNAPSHOT",
    "STREAM.RESTORE",
    "STREAM.LEADER.STEPDOWN",
    "STREAM.PEER.REMOVE",
    "CONSUMER.LIST",
    "CONSUMER.NAMES",
)

ADMINISTERS = (
    "STREAM.PURGE",
    "STREAM.UPDATE",
    "STREAM.SNAPSHOT",
    "STREAM.RESTORE",
    "CONSUMER.LIST",
    "CONSUMER.NAMES",
)
"""Of these what an administrator may do to the log."""
FOLLOWERS = ("watcher", "filter", "scorer", "binder", ARCHIVER, SCHEDULER)
"""Who may have consumers on the log: the services that read all of it."""
OF_CONSUMERS = (
    f"CONSUMER.CREATE.{LOG}",
    f"CONSUMER.CREATE.{LOG}.x",
    f"CONSUMER.CREATE.{LOG}.x.allot.log.>",
    f"CONSUMER.DURABLE.CREATE.{LOG}.x",
    f"CONSUMER.DELETE.{LOG}.x",
    f"CONSUMER.INFO.{LOG}.x",
    f"CONSUMER.MSG.NEXT.{LOG}.x",
    f"CONSUMER.PAUSE.{LOG}.x",
    f"CONSUMER.RESET.{LOG}.x",
    f"CONSUMER.UNPIN.{LOG}.x",
    f"CONSUMER.LEADER.STEPDOWN.{LOG}.x",
    f"DIRECT.GET.{LOG}",
)
"""What JetStream is asked about one consumer, or instead of one."""


class Scene:
    """A server as shipped, the log with one fact, and where the users' keys are."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder

    @contextlib.asynccontextmanager
    async def by(self, user: str, within_s: float = 30.0) -> AsyncIterator[Connection]:
        async with connect(
            self.url,
            user,
            credentials=credentials_of(self.folder, user),
            inbox_prefix=inbox_of(user),
            connect_within_s=within_s,
        ) as connection:
            yield connection

    async def last_seq(self) -> int:
        async with self.by(READER) as connection:
            info = await JetStream(connection).stream_info(LOG)
            assert info is not None
            return int(info["state"]["last_seq"])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Scene]:
    admit(tmp_path)
    text = on_loopback(SINGLE.read_text(), tmp_path / "store")
    with running([text], tmp_path) as ((url, _),):
        yield Scene(url, tmp_path)


@pytest.fixture
async def scene(served: Scene) -> Scene:
    async with served.by("watcher") as connection:
        log = await JetStreamLog.open(connection, allow_unsynced=True)
        assert isinstance(await log.append(FACT, b"{}", msg_id="1"), Landed)
        async with Lease(connection, name="watcher", holder="test"):
            pass
    return served


async def is_refused(connection: Connection, subject: str, payload: bytes = b"{}") -> bool:
    """Whether the server says that the user may not publish there."""
    with connection.inbox() as inbox, patience():
        assert await connection.send(subject, payload, reply=inbox.subject)
        await connection.client.flush()
        while not connection.forbids(subject):
            answer = await inbox.next(0.05)
            if answer is not None:
                return False
    return True


def test_the_shipped_file_is_what_the_code_says() -> None:
    shipped = (ROOT / "deploy/nats/authorization.conf").read_text()
    assert shipped == authorization_conf(), "run: python -m allotment.adapters.log.nats_users"


async def test_nobody_is_let_in_without_a_key(served: Scene, tmp_path: Path) -> None:
    write_keys(tmp_path / "others")
    stranger = str(seed_file(tmp_path / "others", "binder"))
    ca = credentials_of(tmp_path, "binder").tls_ca_file
    for credentials in (
        Credentials(tls_ca_file=ca),
        Credentials(tls_ca_file=ca, nkey_seed_file=stranger),
    ):
        with pytest.raises(NatsUnavailable, match=r"(?i)authorization"):
            async with connect(served.url, "nobody", credentials=credentials):
                pass


async def test_a_reader_sees_who_is_active_and_how_full_it_is(scene: Scene) -> None:
    async with (
        scene.by("binder") as binder,
        scene.by(READER) as reader,
        Lease(binder, name="binder", holder="binder-7") as lease,
    ):
        with patience():
            await lease.acquired()
            found = await active_holders(JetStream(reader), ("watcher", "binder"))
            account = await JetStream(reader).request("INFO")
    assert found == {"watcher": "", "binder": "binder-7"}
    assert account["storage"] > 0  # of the log: the reader's own account has none


@pytest.mark.parametrize("user", USERS)
async def test_nobody_deletes_or_changes_the_log(scene: Scene, user: str) -> None:
    async with scene.by(user) as connection:
        for verb in HARMFUL:
            for stream in (LOG, LEASES):
                if user == ADMIN and stream == LOG and verb in ADMINISTERS:
                    continue
                if (user, stream, verb) == (ARCHIVER, LOG, "STREAM.PURGE"):
                    continue
                body = b'{"seq":1}' if "MSG" in verb else b"{}"
                assert await is_refused(connection, f"$JS.API.{verb}.{stream}", body), verb
        for subject in ("$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.NAMES", "$JS.API.INFO"):
            if user == READER and subject == "$JS.API.INFO":  # which only tells
                continue
            assert await is_refused(connection, subject)
        assert await is_refused(connection, f"$JS.API.CONSUMER.CREATE.{LEASES}.x")
    assert await scene.last_seq() == 1


@pytest.mark.parametrize("user", USERS)
async def test_only_services_that_fold_the_log_have_consumers(scene: Scene, user: str) -> None:
    """By the name of the API or by the one it has within an account."""
    may: tuple[str, ...] = (f"CONSUMER.CREATE.{LOG}.x",) if user in FOLLOWERS else ()
    if user == ADMIN:
        may = (f"CONSUMER.DELETE.{LOG}.x", f"CONSUMER.INFO.{LOG}.x")
    async with scene.by(user) as connection:
        for verb in OF_CONSUMERS:
            if verb not in may:
                assert await is_refused(connection, f"$JS.API.{verb}"), verb
                assert await is_refused(connection, f"allot.api.{verb}"), verb
        if user not in FOLLOWERS:
            assert await is_refused(connection, f"$JS.FC.{LOG}.x.y")


@pytest.mark.parametrize("user", sorted({*USERS} - {*FOLLOWERS, ADMIN}))
async def test_who_only_reads_cannot_keep_a_service_from_following(scene: Scene, user: str) -> None:
    """More consumers than a stream may have, each with as much to keep as there is."""
    async with scene.by(user) as connection:
        with patience():
            for number in range(1200):
                config = {
                    "name": f"c{number}",
                    "deliver_subject": connection.new_inbox_subject(),
                    "ack_policy": "explicit",
                    "max_ack_pending": -1,
                    "inactive_threshold": int(3600e9),
                }
                payload = msgspec.json.encode({"stream_name": LOG, "config": config})
                create = f"CONSUMER.CREATE.{LOG}.c{number}"
                for subject in (f"$JS.API.{create}", f"allot.api.{create}"):
                    while not await connection.send(subject, payload):
                        await connection.client.flush()
            await connection.client.flush()
    async with scene.by(ADMIN) as admin:
        made = await JetStream(admin).request(f"CONSUMER.NAMES.{LOG}")
        assert made["consumers"] == []
    for service in FOLLOWERS:
        async with scene.by(service) as connection:
            log = await JetStreamLog.open(connection, allow_unsynced=True)
            assert [record.subject for record in await first(log)] == [FACT]


async def test_an_administrator_sees_and_deletes_consumers(scene: Scene) -> None:
    async with scene.by("filter") as connection:
        durable = {"durable_name": "left", "ack_policy": "none"}
        await JetStream(connection).request(
            f"CONSUMER.CREATE.{LOG}.left", {"stream_name": LOG, "config": durable}
        )
    async with scene.by(ADMIN) as admin:
        jetstream = JetStream(admin)
        assert (await jetstream.request(f"CONSUMER.NAMES.{LOG}"))["consumers"] == ["left"]
        await jetstream.request(f"CONSUMER.DELETE.{LOG}.left")
        assert (await jetstream.request(f"CONSUMER.LIST.{LOG}"))["consumers"] == []
        assert not admin.permission_errors


async def test_a_key_opens_a_limited_number_of_connections(tmp_path: Path) -> None:
    """So the server's number, and its memory, is not one user's to use up. Here it is 3."""
    admit(tmp_path)
    rights = tmp_path / RIGHTS.name
    text, limit = rights.read_text(), f"max_connections: {CONNECTIONS_MAX}"
    assert text.count(limit) == len(USERS) - 1, "all but the administrator"
    rights.write_text(text.replace(limit, "max_connections: 3"))
    with running([on_loopback(SINGLE.read_text(), tmp_path / "store")], tmp_path) as ((url, _),):
        scene = Scene(url, tmp_path)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(scene.by(READER))
            with patience(), pytest.raises(NatsUnavailable, match="maximum account active conn"):
                async with scene.by(READER, within_s=2):
                    pass
            for user in {*USERS} - {READER}:
                async with scene.by(user) as connection:
                    assert connection.connected


def test_as_many_commands_as_may_read_at_once_do_not_fill_a_servers_queue() -> None:
    """Of questions that wait; a full one is dropped, with those of the services."""
    assert CONNECTIONS_MAX * (RECORDS_MAX + 1) < 10_000


@pytest.mark.parametrize("user", sorted({*USERS} - {*SERVICES, ADMIN}))
async def test_who_only_reads_sends_small_messages_only(scene: Scene, user: str) -> None:
    """A server keeps in memory what it has not looked at yet."""
    subject = f"$JS.API.STREAM.MSG.GET.{LOG}"
    async with scene.by(user) as connection:
        payload = b'{"seq":1}'.ljust(QUESTION_BYTES_MAX)
        assert await connection.request(subject, payload, timeout_s=30) is not None
        await connection.send(subject, payload + b" ")
        with patience():
            await until(lambda: "maximum payload" in connection.last_error.lower())


async def first(log: JetStreamLog) -> list[Record]:
    """The first records of the log, followed."""
    with patience():
        async with contextlib.aclosing(log.follow(0)) as batches:
            return await anext(batches)


WRITERS = {
    subjects.DECISION: "binder",
    subjects.OUTCOME: "binder",
    subjects.SETTLED: "binder",
    subjects.PROPOSAL: "scorer",
    subjects.FEASIBLE: "filter",
    subjects.LIST_AGAIN: READER,
    subjects.FACTS: "watcher",
    subjects.CONFIG: "watcher",
    subjects.TIME: "watcher",
    subjects.pod("u"): "watcher",
    subjects.group("ns", "g"): "watcher",
    FACT: "watcher",
    **{f"allot.lease.{service}": service for service in SERVICES},
    "allot.log.anything": "",
    "allot.anything": "",
}


def writes(user: str, subject: str) -> bool:
    """Whether a user is the subject's writer. The scheduler is watcher and binder of the log, and
    an administrator may write all of it, to restore it.
    """
    if user == ADMIN and subject.startswith("allot.log."):
        return True
    writer = WRITERS.get(subject)
    is_both = user == SCHEDULER and subject.startswith("allot.log.")
    return writer == user or (is_both and writer in ("watcher", "binder"))


@pytest.mark.parametrize("user", USERS)
async def test_each_subject_has_one_writer(scene: Scene, user: str) -> None:
    """The scorer appends no decision, the watcher proposes nothing, nobody takes another's lease,
    and nobody answers in another's name.
    """
    before = await scene.last_seq()
    async with scene.by(user) as connection:
        for subject in WRITERS:
            if not writes(user, subject):
                assert await is_refused(connection, subject), subject
        for other in USERS:
            assert await is_refused(connection, f"{inbox_of(other)}.x"), other
    assert await scene.last_seq() == before


@pytest.mark.parametrize("user", USERS)
async def test_nobody_overhears_another(scene: Scene, user: str) -> None:
    heard = [f"{inbox_of(other)}.>" for other in USERS if other != user]
    heard += [">", "_INBOX.>", "$JS.>", "allot.>", subjects.LOG_ALL, "allot.pipe.*"]
    async with scene.by(user) as connection:
        for subject in heard:
            await connection.client.subscribe(subject)
            with patience():
                while not connection.forbids(subject):  # noqa: ASYNC110 - the client tells nobody
                    await anyio.sleep(0.01)


@pytest.mark.parametrize("user", USERS)
async def test_each_can_do_its_own_work(scene: Scene, user: str) -> None:
    """Follow and read the log, hold its own lease, and nothing is refused on the way."""
    async with scene.by(user) as connection:
        found = await JetStreamLog.to_read(JetStream(connection))
        assert found is not None
        log = found
        if user in FOLLOWERS:
            log = await JetStreamLog.open(connection, allow_unsynced=True)
        if user in SERVICES:
            async with Lease(connection, name=user, holder="test") as lease:
                with patience():
                    await lease.acquired()
                assert lease.is_held
        with patience():
            async for batch in log.read(1, 1):
                assert [record.subject for record in batch] == [FACT]
        assert not connection.permission_errors


async def test_a_decision_is_the_binders_to_append(scene: Scene) -> None:
    async with scene.by("binder") as connection:
        log = await JetStreamLog.open(connection, allow_unsynced=True)
        landed = await log.compare_and_append(subjects.DECISION, b"{}", msg_id="d", expected_seq=0)
        assert landed == Landed(2)


async def test_a_seed_is_nobody_elses_to_read(tmp_path: Path) -> None:
    public = write_keys(tmp_path / "keys")
    text = public.read_text()
    for user in USERS:
        seed = seed_file(tmp_path / "keys", user)
        assert (seed.stat().st_mode & 0o777, seed.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert seed.read_text() not in text
    before = seed.read_text()
    write_keys(tmp_path / "keys")
    assert seed.read_text() != before


async def test_the_log_cannot_be_made_weaker_by_who_may_make_it(scene: Scene) -> None:
    """The watcher may make the stream where there is none; one that is there stays as it is."""
    for user in set(USERS) - {"watcher", SCHEDULER, ADMIN}:
        async with scene.by(user) as connection:
            assert await is_refused(connection, f"$JS.API.STREAM.CREATE.{LOG}"), user
    async with scene.by("watcher") as connection:
        config = {"name": LOG, "subjects": ["allot.log.>"], "deny_delete": False, "max_msgs": 1}
        with connection.inbox() as inbox, patience():
            subject = f"$JS.API.STREAM.CREATE.{LOG}"
            await connection.send(subject, msgspec.json.encode(config), reply=inbox.subject)
            answer = await inbox.next(10)
        assert answer is not None
        assert "already in use" in json.loads(answer.data)["error"]["description"]
    assert await scene.last_seq() == 1


async def test_local_mode_lets_in_its_own_services_only(tmp_path: Path) -> None:
    """Other processes of the machine reach its port, too."""
    child = NatsChild(tmp_path / "nats", ServiceState("nats", ""), lambda: None, lambda _: None)
    await anyio.to_thread.run_sync(child.admit, tmp_path / "keys")
    try:
        await child.start()
        with pytest.raises(NatsUnavailable, match=r"(?i)authorization"):
            async with connect(child.server.url, "nobody"):
                pass
        seed = Credentials(nkey_seed_file=str(seed_file(tmp_path / "keys", "scorer")))
        async with connect(
            child.server.url, "scorer", credentials=seed, inbox_prefix=inbox_of("scorer")
        ) as connection:
            assert await is_refused(connection, subjects.DECISION)
    finally:
        await child.stop()


WHERE = (
    *(subject for subject in WRITERS if not subject.startswith("allot.anything")),
    "allot.log.time.x",
    *(f"$JS.API.{verb}.{stream}" for verb in HARMFUL for stream in (LOG, LEASES)),
    f"$JS.FC.{LOG}.x.y",
    "allot.api.STREAM.DELETE.ALLOTMENT_LOG",
    "$SYS.REQ.SERVER.PING",
)
"""Where somebody would have a server send an answer or a record; inboxes come on top."""
LATE = {"Nats-Expected-Last-Subject-Sequence": "99999"}
"""On an append it makes the server answer that it refuses."""


def consumer(name: str, deliver: str = "") -> bytes:
    config = {"name": name, "ack_policy": "none", "deliver_policy": "all"}
    if deliver:
        config["deliver_subject"] = deliver
    return msgspec.json.encode({"stream_name": LOG, "config": config})


def questions(user: str) -> list[tuple[str, bytes, dict[str, str]]]:
    """Everything that a user may send and a server answers."""
    asked: list[tuple[str, bytes, dict[str, str]]] = [
        (f"$JS.API.STREAM.INFO.{LOG}", b"", {}),
        (f"$JS.API.STREAM.MSG.GET.{LOG}", b'{"seq":1}', {}),
    ]
    if user in FOLLOWERS:
        asked.append((f"$JS.API.CONSUMER.CREATE.{LOG}.mine", consumer("mine"), {}))
    if user in ("watcher", SCHEDULER):
        asked.append((f"$JS.API.STREAM.CREATE.{LOG}", msgspec.json.encode({"name": LOG}), {}))
    if user in SERVICES:
        asked += [
            (f"$JS.API.STREAM.CREATE.{LEASES}", msgspec.json.encode({"name": LEASES}), {}),
            (f"$JS.API.STREAM.INFO.{LEASES}", b"", {}),
            (f"$JS.API.STREAM.MSG.GET.{LEASES}", b'{"seq":1}', {}),
            (f"allot.lease.{user}", b"{}", LATE),
        ]
    if user == READER:
        asked += [
            ("$JS.API.INFO", b"", {}),
            (f"$JS.API.STREAM.MSG.GET.{LEASES}", b'{"seq":1}', {}),
        ]
    asked += [
        (subject, b"{}", LATE)
        for subject in WRITERS
        if writes(user, subject) and subject.startswith("allot.log.")
    ]
    return asked


@pytest.mark.parametrize("user", [user for user in USERS if user != ADMIN])
async def test_no_answer_and_no_record_reaches_what_is_not_the_users(
    scene: Scene, user: str
) -> None:
    """Every question of each user, answered to every subject of others; every deliver subject."""
    arrived: list[tuple[str, str]] = []
    async with contextlib.AsyncExitStack() as stack:

        async def listen(other: str, subjects_: list[str]) -> None:
            connection = await stack.enter_async_context(scene.by(other))

            async def hear(message: Msg) -> None:
                arrived.append((other, message.subject))

            for subject in subjects_:
                await connection.client.subscribe(subject, cb=hear)
            await connection.client.flush()

        for other in SERVICES:
            if other != user:  # what it sends to itself is its own affair
                heard = [s for s, by in HEARD.items() if other in by and not writes(user, s)]
                await listen(other, [f"{inbox_of(other)}.x", *heard])
        async with scene.by("binder") as binder:
            before = await ends(binder)
            async with scene.by(user) as connection:
                where = [
                    *(s for s in WHERE if not writes(user, s)),
                    *(f"{inbox_of(other)}.x" for other in USERS if other != user),
                    *(f"{inbox_of(other)}.>" for other in USERS if other != user),
                ]
                for subject, payload, headers in questions(user):
                    for reply in where:
                        sent = await connection.send(
                            subject, payload, reply=reply, headers=headers or None
                        )
                        assert sent
                    await connection.client.flush()
                for number, deliver in enumerate(where if user in FOLLOWERS else ()):
                    if not deliver.startswith("_INBOX_"):  # of those a name has to be known
                        name = f"d{number}"
                        await connection.request(
                            f"$JS.API.CONSUMER.CREATE.{LOG}.{name}",
                            consumer(name, deliver),
                            timeout_s=5,
                        )
                await anyio.sleep(0.5)
            assert arrived == []
            assert await ends(binder) == before


HEARD: dict[str, tuple[str, ...]] = {
    subjects.PROPOSAL: ("binder",),
    subjects.FEASIBLE: ("scorer",),
    subjects.SETTLED: ("filter",),
    subjects.LIST_AGAIN: ("watcher", SCHEDULER),
    **{f"allot.lease.{service}": (service,) for service in SERVICES},
}
"""Who listens on what."""


async def ends(connection: Connection) -> list[int]:
    """Where the log and the leases end."""
    jetstream, found = JetStream(connection), []
    for stream in (LOG, LEASES):
        info = await jetstream.stream_info(stream)
        assert info is not None
        found.append(int(info["state"]["last_seq"]))
    return found
