"""Follow one kind of Kubernetes object: list, watch, relist; miss nothing, invent nothing.

The theory, in four sentences. A list is a state at a resourceVersion, a watch is what happened
since. The server forgets old versions, and then says 410: only a new list helps, and whatever was
deleted in between is missing in it, so the difference by UID is reported as deletions (a pod
deleted and recreated under its name is two pods). The first list may come from the server's cache
(resourceVersion=0, cheap, perhaps old); a relist must not, or an old state would look like
deletions of what is new, so it is a consistent one, page by page. A stream may break anywhere: it
is resumed after the last event that was reported. Of several versions of one object that arrived
together only the last is decoded and reported: a late reader sees states, not steps.

One odd object must not hide all others: what cannot be read, or makes the consumer's handler fail,
is refused by itself. It is reported as `Undecodable`, and lists and watches continue.
"""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from random import Random
from typing import Generic, Never, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.objects import ObjectMeta
from allotment.adapters.kube.result import (
    ByteStream,
    Ok,
    Refused,
    StreamBroken,
    Unknown,
)
from allotment.adapters.kube.watch_events import (
    Added,
    Backoff,
    Deleted,
    Identity,
    Modified,
    Stats,
    Synced,
    Undecodable,
    WatchEvent,
)
from allotment.adapters.kube.wire import (
    ListPage,
    StreamError,
    Unreadable,
    WatchLine,
    key_of,
    read_leniently,
    read_line,
    read_meta,
    read_page,
)
from allotment.adapters.telemetry.log import error_text
from allotment.adapters.telemetry.refusals import Refusals

T = TypeVar("T")

KUBERNETES = "kubernetes"
"""The door that objects come in by, in what is said of refused ones."""
WATCH_S = 290
IDLE_EXTRA_S = 30.0
"""A stream this much longer silent than its own time limit is dead, not quiet."""
SILENT_S = 15.0
"""After so long without a word a stream is held against a second one."""
PROBE_S = 1
PROBE_ANSWER_S = 5.0
OUTLIVED = "nothing, and it did not end after the second it was asked for"
GRACE_S = 2.0
"""What the second stream received must have come on the first by then."""
BOOKMARK_LATE_S = 90.0
"""Servers send a bookmark each minute: later, an old version means that none arrives."""
SILENCE_LOOK_S = 1.0
PAGE_OBJECTS = 500
TURN_OBJECTS = 16
"""After so many the event loop's other tasks have a turn: a lease must be renewed meanwhile."""
SUSPICIONS_UNTIL_RELIST = 3
HEALTHY_S = 10.0
"""A stream that lived this long was a good one: patience is reset."""
ABSENT_RETRY_S = 30.0


class _Expired(Exception):
    """The version to go on from is no longer known to the server."""


class _Failed(Exception):
    """An attempt failed; `absent` when the server does not know the resource at all."""

    def __init__(
        self,
        message: str,
        *,
        absent: bool = False,
        suspect: bool = True,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.absent = absent
        self.suspect = suspect
        """The server answered, but badly: perhaps it is our version that it cannot go on from."""
        self.retry_after_s = retry_after_s


class _Known(msgspec.Struct, gc=False):
    identity: Identity
    version: str
    told: bool
    """False while the consumer has only heard that it is undecodable."""


class Reflector(Generic[T]):
    """Follows one resource path and tells `on_event` everything, in order, one at a time.

    `absent_ok`: a resource the server does not know (404, a CRD not installed) counts as an empty
    list and is looked for again every `ABSENT_RETRY_S`. `on_problem` hears of each failed attempt,
    `refusals` of each object that cannot be read, or that `on_event` raises an error for. An error
    of `on_event` about the whole (`Synced`) ends the reflector: it is the consumer's.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        decoder: msgspec.json.Decoder[T],
        on_event: Callable[[WatchEvent[T]], Awaitable[None]],
        *,
        random: Random,
        on_problem: Callable[[str], None] = lambda _: None,
        absent_ok: bool = False,
        first_list_from_cache: bool = True,
        watch_s: int = WATCH_S,
        page_objects: int = PAGE_OBJECTS,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        absent_retry_s: float = ABSENT_RETRY_S,
        refusals: Refusals | None = None,
        silent_s: float = SILENT_S,
    ) -> None:
        self.stats = Stats()
        self._silent_s = silent_s
        self._client = client
        self._path = path
        self._decoder = decoder
        self._on_event = on_event
        self._random = random
        self._on_problem = on_problem
        self._absent_ok = absent_ok
        self._from_cache = first_list_from_cache
        self._watch_s = watch_s
        self._page_objects = page_objects
        self._backoff = backoff
        self._absent_retry_s = absent_retry_s
        self._known: dict[str, _Known] = {}
        self._version = ""
        """Where to go on from; empty: list first."""
        self._refusals = refusals
        self._kind = path.partition("?")[0].rpartition("/")[2]

    async def run(self) -> Never:
        """Follow for ever; leave by cancellation."""
        try:
            await self._run()
        finally:
            self._client.silent.pop(self._path, None)

    async def _run(self) -> Never:
        failures = suspicions = 0
        while True:
            wait_s = 0.0
            failed = False
            events, started_s = self.stats.events, anyio.current_time()
            try:
                if not self._version:
                    await self._list()
                    started_s = anyio.current_time()
                await self._watch()
            except _Expired:
                self.stats.expired += 1
                self._version = ""
                failed = True
            except _Failed as error:
                failed = True
                wait_s = error.retry_after_s
                suspicions += error.suspect
                if error.absent and self._absent_ok:
                    await self._tell_absent()
                    wait_s = self._absent_retry_s
                else:
                    self.stats.failures += 1
                    self._on_problem(f"{self._path}: {error}")
            went_on = self.stats.events != events
            if went_on or anyio.current_time() - started_s >= HEALTHY_S:
                failures = suspicions = 0
            elif not failed:  # a server that closes every stream at once must not make us spin
                failed = True
            if suspicions >= SUSPICIONS_UNTIL_RELIST:
                self._version = ""
                suspicions = 0
            if failed:
                failures += 1
                await anyio.sleep(max(wait_s, self._backoff.delay_s(failures, self._random)))

    async def _list(self) -> None:
        """Read everything page by page, and report the difference to what was reported before.

        The first list is reported as it comes, so that no more than one page of it is in memory.
        A relist keeps its news until its end: deletions are reported first.
        """
        is_first = not self._known
        found: set[str] = set()
        news: list[tuple[ObjectMeta, bytes]] = []
        version = ""
        async with contextlib.aclosing(self._pages()) as pages:
            async for page in pages:
                version = page.metadata.resourceVersion
                for number, raw in enumerate(page.items or (), start=1):
                    meta = read_meta(raw)
                    found.add(key_of(meta))
                    if is_first:
                        await self._tell(meta, raw)
                    elif self._is_news(meta):
                        news.append((meta, bytes(raw)))
                    if number % TURN_OBJECTS == 0:
                        await anyio.lowlevel.checkpoint()
        self.stats.lists += 1
        self._from_cache = False  # from now on older states would look like deletions
        for key in [key for key in self._known if key not in found]:
            await self._forget(key)
        for meta, data in news:
            await self._tell(meta, data)
        self._version = version
        await self._on_event(Synced(version, len(found)))

    async def _pages(self) -> AsyncGenerator[ListPage]:
        more = ""
        while True:
            if self._from_cache:
                params = {"resourceVersion": "0"}
            else:
                params = {"limit": str(self._page_objects)}
                if more:
                    params["continue"] = more
            answer = await self._client.list(self._path, params)
            match answer:
                case Ok(body=body):
                    try:
                        page = read_page(body)
                    except Unreadable as error:
                        raise _Failed(f"list: {error}") from error
                case Refused(status=410):  # the token of a page expired: begin again
                    raise _Expired
                case Refused(status=404):
                    raise _Failed(f"list: {answer.message}", absent=True)
                case Refused() | Unknown():
                    raise _failed("list", answer)
            yield page
            more = page.metadata.more
            if not more:
                return

    async def _watch(self) -> None:
        """Follow one stream until the server ends it in order.

        A connection may be dead without either end knowing (half open), and a quiet stream looks
        the same. So a silent one is held against a second, short watch from the same version.
        """
        silent_s = self._silent_s * (0.8 + self._random.random() * 0.4)  # not all at once
        limit_s = int(self._watch_s * (0.9 + self._random.random() / 5)) or 1
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(limit_s),
        }
        async with self._client.watch(self._path, params, limit_s + IDLE_EXTRA_S) as stream:
            match stream:
                case Refused(status=410):
                    raise _Expired
                case Refused(status=404):
                    self._version = ""
                    raise _Failed(f"watch: {stream.message}", absent=True)
                case Refused() | Unknown():
                    raise _failed("watch", stream)
                case ByteStream():
                    self.stats.watches += 1
                    heard_s = anyio.current_time()
                    try:
                        async with contextlib.aclosing(stream.lines(silent_s)) as batches:
                            async for lines in batches:
                                if lines:
                                    self._client.silent.pop(self._path, None)
                                    await self._take(lines)
                                    heard_s = anyio.current_time()
                                else:
                                    await self._probe(stream, anyio.current_time() - heard_s)
                    except StreamBroken as error:
                        raise _Failed(f"watch: {error}") from error

    async def _probe(self, stream: ByteStream, silent_s: float) -> None:
        """Compare a silent stream with a second one. Raises `_Failed` if only that one has news.

        A probe that fails proves nothing about the stream, which is kept, and the service is not
        ready. Where the probe before failed, too, and streams open but deliver nothing, not even
        their end, watching is useless: list again, each time, until a stream delivers something.
        """
        self.stats.probes += 1
        trouble, has_news = "no answer", False
        with anyio.move_on_after(PROBE_ANSWER_S):
            trouble, has_news = await self._ask_beside(silent_s)
        if not trouble and not has_news:
            self._client.silent.pop(self._path, None)
            return
        silent_s += GRACE_S * has_news
        text = f"silent for {silent_s:.0f} s, and a second watch found: {trouble or 'news'}"
        if trouble:
            before = self._client.silent.get(self._path)
            self._client.silent[self._path] = text
            if before is None:
                self._on_problem(f"{self._path}: watch: {text}")
            elif trouble == OUTLIVED:
                self._version = ""
                raise _Failed(f"watch: {text}", suspect=False)
            return
        await anyio.sleep(GRACE_S)
        if not stream.has_unread:
            self._client.silent[self._path] = text
            raise _Failed(f"watch: {text}", suspect=False)

    async def _ask_beside(self, silent_s: float) -> tuple[str, bool]:
        """Open a short watch: what went wrong with it ("": nothing), and whether it had news."""
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(PROBE_S),
        }
        async with self._client.watch(self._path, params, PROBE_ANSWER_S) as beside:
            match beside:
                case Refused(status=410):
                    self._expire(silent_s)
                case Refused():
                    return f"{beside.status} {beside.reason}: {beside.message}", False
                case Unknown():
                    return f"{beside.cause}: {beside.message}", False
                case ByteStream():
                    try:
                        async with contextlib.aclosing(beside.lines(PROBE_S + GRACE_S)) as batches:
                            async for lines in batches:
                                events = [self._read(line) for line in lines if line.strip()]
                                if any(event.type != "BOOKMARK" for event in events):
                                    return "", True
                                if not lines:
                                    return OUTLIVED, False
                    except _Expired:
                        self._expire(silent_s)
                    except (StreamBroken, _Failed) as error:
                        return str(error), False
        return "", False

    def _expire(self, silent_s: float) -> None:
        """Raises `_Expired` where our version is old because no bookmark arrives."""
        if silent_s > BOOKMARK_LATE_S:
            raise _Expired

    async def _take(self, lines: list[bytes]) -> None:
        """Tell what arrived together, up to the first line that ends the stream."""
        read: list[tuple[WatchLine, ObjectMeta]] = []
        newest: dict[str, int] = {}
        failure: _Expired | _Failed | None = None
        for line in lines:
            if not line.strip():
                continue
            try:
                event = self._read(line)
            except (_Expired, _Failed) as error:
                failure = error
                break
            meta = read_meta(event.object)
            if event.type not in ("DELETED", "BOOKMARK"):
                newest[key_of(meta)] = len(read)
            read.append((event, meta))
        for number, (event, meta) in enumerate(read):
            self.stats.events += 1
            key = key_of(meta)
            if event.type == "DELETED":
                await self._forget(key)
            elif event.type != "BOOKMARK" and newest[key] == number:
                await self._tell(meta, event.object)
            if meta.resource_version:
                self._version = meta.resource_version
            if number % TURN_OBJECTS == TURN_OBJECTS - 1:
                await anyio.lowlevel.checkpoint()
        if failure is not None:
            raise failure

    def _read(self, line: bytes) -> WatchLine:
        try:
            event = read_line(line)
        except Unreadable as error:
            raise _Failed(f"watch: {error}") from error
        if event.type != "ERROR":
            return event
        said = read_leniently(event.object, StreamError) or StreamError(
            message=bytes(event.object)[:200].decode(errors="replace")
        )
        if said.code == 410 or said.reason in ("Expired", "Gone"):
            raise _Expired
        raise _Failed(f"watch: server error {said.code} {said.reason}: {said.message}")

    async def _tell(self, meta: ObjectMeta, data: bytes) -> None:
        """Report an object in its present version, unless that was reported already."""
        if not self._is_news(meta):
            return
        key = key_of(meta)
        known = self._known.get(key)
        identity = Identity(meta.namespace, meta.name, meta.uid)
        told = known is not None and known.told
        self._known[key] = _Known(identity, meta.resource_version, told)
        try:
            decoded = self._decoder.decode(data)
            self._known[key].told = True
            await self._on_event(Modified(identity, decoded) if told else Added(identity, decoded))
        except Exception as error:  # whatever it is: of this object, and not of the others
            await self._refuse(identity, bytes(data), error)
        else:
            self._accept(identity)

    def _is_news(self, meta: ObjectMeta) -> bool:
        known = self._known.get(key_of(meta))
        return known is None or not meta.resource_version or known.version != meta.resource_version

    async def _forget(self, key: str) -> None:
        known = self._known.pop(key, None)
        if known is None:
            return
        self._accept(known.identity)
        try:
            await self._on_event(Deleted(known.identity))
        except Exception as error:  # as in `_tell`
            self._count(known.identity, error)

    async def _refuse(self, identity: Identity, data: bytes, error: Exception) -> None:
        """An object cannot be read, or not be dealt with. The consumer hears that it is there."""
        self.stats.undecodable += 1
        self._count(identity, error, stands=True)
        who = (identity.namespace, identity.name, identity.uid)
        try:
            await self._on_event(Undecodable(*who, data, error_text(error)))
        except Exception as again:  # even that was too much
            self._count(identity, again, stands=True)

    def _count(self, who: Identity, error: Exception, *, stands: bool = False) -> None:
        if self._refusals is not None:
            self._refusals.refuse(
                *(KUBERNETES, self._kind, error),
                namespace=who.namespace,
                name=who.name,
                uid=who.uid,
                stands=stands,
            )

    def _accept(self, who: Identity) -> None:
        if self._refusals is not None:
            self._refusals.accept(KUBERNETES, self._kind, who.namespace, who.name)

    async def _tell_absent(self) -> None:
        for key in list(self._known):
            await self._forget(key)
        self._version = ""
        await self._on_event(Synced("", 0))


async def tell_silence(client: KubeClient, say: Callable[[bool, str], None]) -> Never:
    """Say now and then, for a readiness, whether all watches of a client receive news."""
    while True:
        said = "; ".join(f"{path}: {text}" for path, text in sorted(client.silent.items()))
        say(not said, said or client.address.url)
        await anyio.sleep(SILENCE_LOOK_S)


def _failed(what: str, answer: Refused | Unknown) -> _Failed:
    if isinstance(answer, Refused):
        return _Failed(f"{what}: {answer.status} {answer.reason}: {answer.message}")
    return _Failed(
        f"{what}: {answer.cause}: {answer.message}",
        suspect=False,
        retry_after_s=answer.retry_after_s or 0.0,
    )
