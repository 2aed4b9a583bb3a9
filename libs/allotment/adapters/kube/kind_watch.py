"""One kind of object as a service follows it: list, watch, whether it was listed, or why not."""

import secrets
from collections.abc import Awaitable, Callable
from random import Random
from typing import Generic, Never, TypeVar

import msgspec

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.watch import ABSENT_RETRY_S, Reflector
from allotment.adapters.kube.watch_events import Synced, WatchEvent
from allotment.adapters.telemetry.refusals import Refusals

T = TypeVar("T")


class KindWatch(Generic[T]):
    """Follows the objects of one path, read as `kind`. `on_event` hears of each event, in order.

    `on_problem` hears of each failed attempt. `warn` hears of the same failure once, until a list
    succeeds: a server that is away for an hour is worth one log line. Both are optional.
    """

    def __init__(
        self,
        path: str,
        kind: type[T],
        on_event: Callable[[WatchEvent[T]], Awaitable[None]],
        refusals: Refusals,
        *,
        on_problem: Callable[[str], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
        absent_ok: bool = False,
        absent_retry_s: float = ABSENT_RETRY_S,
    ) -> None:
        self.path = path
        self.is_listed = False
        """Whether it was listed once, or the server turned out not to serve it (`absent_ok`)."""
        self.failure = ""
        """Why it was never listed; empty once it was, and before the first attempt ended."""
        self._kind = kind
        self._on_event = on_event
        self._on_problem = on_problem
        self._refusals = refusals
        self._warn = warn
        self._warned = ""
        self._absent_ok = absent_ok
        self._absent_retry_s = absent_retry_s

    async def run(self, client: KubeClient) -> Never:
        """Follow for ever; leave by cancellation.

        The first list never comes from the server's cache: who follows may know more than it does,
        from the log or from its own writes, and would take what an old list lacks for deleted.
        """
        await Reflector(
            client,
            self.path,
            msgspec.json.Decoder(self._kind),
            self._hear,
            random=Random(secrets.randbits(64)),
            first_list_from_cache=False,
            on_problem=self._fail,
            absent_ok=self._absent_ok,
            absent_retry_s=self._absent_retry_s,
            refusals=self._refusals,
        ).run()

    async def _hear(self, event: WatchEvent[T]) -> None:
        if isinstance(event, Synced):
            self.is_listed = True
            self.failure = self._warned = ""
        await self._on_event(event)

    def _fail(self, text: str) -> None:
        if text != self._warned:
            self._warned = text
            self._warn(text)
        if not self.is_listed:
            self.failure = text
        self._on_problem(text)
