"""Follow one kind of Kubernetes object: list, watch, and relist without missing or inventing anything.

The theory, in four sentences. A list is a state at a resourceVersion, a watch is what happened
since. The server forgets old versions, and then says 410: only a new list helps, and whatever was
deleted in between is missing in it, so the difference by UID is told as deletions (a pod deleted and
made anew under its name is two pods). The first list may come from the server's cache
(resourceVersion=0, cheap, perhaps old); a relist must not, or an old state would look like deletions
of what is new, so it is a consistent one, page by page. A stream may break anywhere: it is taken up
again after the last event that was told.

One odd object must not hide all others: it is told as `Undecodable`, and lists and watches go on.
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Generic, Never, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from allotment.adapters.kube import ByteStream, KubeClient, Ok, Refused, StreamBroken, Unknown

T = TypeVar("T")

WATCH_S = 290
IDLE_EXTRA_S = 30.0
"""A stream this much longer silent than its own time limit is dead, not quiet."""
PAGE_OBJECTS = 500
FAILURES_UNTIL_RELIST = 3
ABSENT_RETRY_S = 30.0


class Identity(msgspec.Struct, frozen=True):
    """Which object it is."""

    namespace: str
    name: str
    uid: str


class Added(msgspec.Struct, Generic[T], frozen=True):
    """An object that was not there before, as far as we were told."""

    identity: Identity
    object: T


class Modified(msgspec.Struct, Generic[T], frozen=True):
    """An object we were told of, in a new version."""

    identity: Identity
    object: T


class Deleted(msgspec.Struct, frozen=True):
    """An object is gone; seen on the stream, or missing in a relist."""

    identity: Identity


class Undecodable(msgspec.Struct, frozen=True):
    """An object exists that does not fit the type it was to be read as."""

    namespace: str
    name: str
    uid: str
    raw: bytes
    error: str


class Synced(msgspec.Struct, frozen=True):
    """Everything of a list has been told: what we know is the state at `resource_version`."""

    resource_version: str
    objects: int


WatchEvent = Added[T] | Modified[T] | Deleted | Undecodable | Synced


class Stats(msgspec.Struct):
    """Plain counts, for metrics."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    expired: int = 0
    failures: int = 0
    undecodable: int = 0


class Backoff(msgspec.Struct, frozen=True):
    """How long to wait after the n-th failure in a row: doubling, bounded, half of it by dice."""

    first_s: float = 0.5
    max_s: float = 30.0

    def delay_s(self, failures: int, random: Random) -> float:
        whole_s = min(self.max_s, self.first_s * 2.0 ** min(failures - 1, 20))
        return whole_s * (0.5 + random.random() / 2)


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""


class _Head(msgspec.Struct):
    metadata: _Meta


class _ListMeta(msgspec.Struct, rename={"more": "continue"}):
    resourceVersion: str = ""
    more: str = ""


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Error(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Expired(Exception):
    """The version to go on from is no longer known to the server."""


class _Failed(Exception):
    """An attempt failed; `absent` when the server does not know the resource at all."""

    def __init__(self, message: str, absent: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.absent = absent
        self.retry_after_s = retry_after_s


class _Known(msgspec.Struct):
    identity: Identity
    version: str
    told: bool
    """False while the consumer has only heard that it is undecodable."""


class Reflector(Generic[T]):
    """Follows one resource path and tells `on_event` everything, in order, one at a time.

    `absent_ok`: a resource the server does not know (404, a CRD not installed) counts as an empty
    list and is looked for again every `ABSENT_RETRY_S`. `on_problem` hears of each failed attempt.
    An error of `on_event` ends the reflector: it is the consumer's.
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
    ) -> None:
        self.stats = Stats()
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
        self._page = msgspec.json.Decoder(_Page)
        self._line = msgspec.json.Decoder(_Line)
        self._head = msgspec.json.Decoder(_Head)

    async def run(self) -> Never:
        """Follow for ever; leave by cancellation."""
        failures = 0
        while True:
            events = self.stats.events
            started_s = anyio.current_time()
            try:
                if not self._version:
                    await self._list()
                    failures = 0
                await self._watch()
                # A server that closes every stream at once must not make us spin.
                quick = anyio.current_time() - started_s < 1 and self.stats.events == events
                failures = failures + 1 if quick else 0
                wait_s = 0.0
            except _Expired:
                self.stats.expired += 1
                self._version = ""
                failures += 1
                wait_s = 0.0
            except _Failed as error:
                failures = 1 if self.stats.events != events else failures + 1
                wait_s = error.retry_after_s
                if error.absent and self._absent_ok:
                    await self._tell_absent()
                    wait_s = self._absent_retry_s
                else:
                    self.stats.failures += 1
                    self._on_problem(f"{self._path}: {error}")
                if failures >= FAILURES_UNTIL_RELIST:
                    self._version = ""
            if failures:
                delay_s = self._backoff.delay_s(failures, self._random)
                await anyio.sleep(max(wait_s, delay_s))

    async def _list(self) -> None:
        """Fetch everything, then tell the difference to what was told before."""
        items, version = await self._fetch()
        self.stats.lists += 1
        self._from_cache = False  # from now on older states would look like deletions
        found: dict[str, tuple[_Meta, bytes]] = {}
        for number, raw in enumerate(items):
            meta = self._meta(bytes(raw))
            found[_key(meta)] = (meta, bytes(raw))
            if number % 256 == 255:
                await anyio.lowlevel.checkpoint()
        for key in [key for key in self._known if key not in found]:
            await self._forget(key)
        for number, (meta, data) in enumerate(found.values()):
            await self._tell(meta, data)
            if number % 256 == 255:
                await anyio.lowlevel.checkpoint()
        self._version = version
        await self._on_event(Synced(version, len(found)))

    async def _fetch(self) -> tuple[list[msgspec.Raw], str]:
        items: list[msgspec.Raw] = []
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
                        page = self._page.decode(body)
                    except msgspec.MsgspecError as error:
                        raise _Failed(f"list: not a list object: {error}") from error
                case Refused(status=410):  # the token of a page expired: begin again
                    raise _Expired
                case Refused(status=404):
                    raise _Failed(f"list: {answer.message}", absent=True)
                case Refused() | Unknown():
                    raise _failed("list", answer)
            items += page.items or []
            more = page.metadata.more
            if not more:
                return items, page.metadata.resourceVersion

    async def _watch(self) -> None:
        """Follow one stream until the server ends it in order."""
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
                    try:
                        async for lines in stream.lines():
                            for line in lines:
                                await self._take(line)
                    except StreamBroken as error:
                        raise _Failed(f"watch: {error}") from error

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            event = self._line.decode(line)
        except msgspec.MsgspecError as error:
            raise _Failed(f"watch: not a watch event: {error}") from error
        data = bytes(event.object)
        if event.type == "ERROR":
            error = _lenient(data, _Error) or _Error(message=data[:200].decode(errors="replace"))
            if error.code == 410 or error.reason in ("Expired", "Gone"):
                raise _Expired
            raise _Failed(f"watch: server error {error.code} {error.reason}: {error.message}")
        self.stats.events += 1
        meta = self._meta(data)
        if event.type == "DELETED":
            await self._forget(_key(meta))
        elif event.type != "BOOKMARK":
            await self._tell(meta, data)
        if meta.resourceVersion:
            self._version = meta.resourceVersion

    async def _tell(self, meta: _Meta, data: bytes) -> None:
        """Tell of an object in its present version, unless that was told already."""
        key = _key(meta)
        known = self._known.get(key)
        if known is not None and meta.resourceVersion and known.version == meta.resourceVersion:
            return
        identity = Identity(meta.namespace, meta.name, meta.uid)
        told = known is not None and known.told
        event: WatchEvent[T]
        try:
            decoded = self._decoder.decode(data)
        except msgspec.MsgspecError as error:
            self.stats.undecodable += 1
            event = Undecodable(meta.namespace, meta.name, meta.uid, data, str(error))
        else:
            event = Modified(identity, decoded) if told else Added(identity, decoded)
            told = True
        self._known[key] = _Known(identity, meta.resourceVersion, told)
        await self._on_event(event)

    async def _forget(self, key: str) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            await self._on_event(Deleted(known.identity))

    async def _tell_absent(self) -> None:
        for key in list(self._known):
            await self._forget(key)
        self._version = ""
        await self._on_event(Synced("", 0))

    def _meta(self, data: bytes) -> _Meta:
        """Who an object is, as far as that can be read."""
        try:
            return self._head.decode(data).metadata
        except msgspec.MsgspecError:
            untyped = _lenient(data, dict[str, Any]) or {}
            metadata = untyped.get("metadata")
            if not isinstance(metadata, dict):
                return _Meta()
            return _Meta(
                **{
                    name: value
                    for name in _Meta.__struct_fields__
                    if isinstance(value := metadata.get(name), str)
                }
            )


async def list_and_watch(
    client: KubeClient,
    path: str,
    decoder: msgspec.json.Decoder[T],
    on_event: Callable[[WatchEvent[T]], Awaitable[None]],
    *,
    random: Random,
    on_problem: Callable[[str], None] = lambda _: None,
) -> Never:
    """Follow `path` for ever with the usual settings; see Reflector."""
    await Reflector(client, path, decoder, on_event, random=random, on_problem=on_problem).run()


def _key(meta: _Meta) -> str:
    return meta.uid or f"{meta.namespace}/{meta.name}"


def _failed(what: str, answer: Refused | Unknown) -> _Failed:
    if isinstance(answer, Refused):
        return _Failed(f"{what}: {answer.status} {answer.reason}: {answer.message}")
    return _Failed(
        f"{what}: {answer.cause}: {answer.message}", retry_after_s=answer.retry_after_s or 0.0
    )


def _lenient(data: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError:
        return None
