"""Keeps the device configuration active: follows its ConfigMaps or files, and reports changes."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from allotment.adapters.kube import client as kube
from allotment.adapters.service.service import ServiceContext
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import DEVICE_CONFIG, DevicesConfigured
from allotment_proto.facts import Policy, Problem
from allotment_watcher.config_map_watch import follow_config_map
from allotment_watcher.device_source import (
    DeviceTexts,
    Place,
    Read,
    places_of,
    places_of_files,
)
from allotment_watcher.normalise import BUILT_IN
from allotment_watcher.policy_source import POLL_S, fingerprint
from allotment_watcher.settings import WatcherSettings

READY = "devices"
"""The readiness condition: the active configuration is known."""


class DeviceWatch:
    """Follows the places until it is cancelled. `settled` is set once a configuration is active.

    `tell` is called with each one that takes effect and is not in the log yet; `in_force` is the
    log's.
    """

    def __init__(
        self,
        ctx: ServiceContext[WatcherSettings],
        client: kube.KubeClient,
        policy: Policy,
        in_force: DeviceConfig | None,
        tell: Callable[[DevicesConfigured], None],
        checked: Callable[[str, str, Sequence[Problem], Sequence[Problem]], None],
    ) -> None:
        """`checked` hears of each text that was read: its kind, where it is, its problems, its
        warnings.
        """
        self.settled = anyio.Event()
        self.problems: tuple[Problem, ...] = ()
        """Why the newest text is not active; empty if it is."""
        self._warnings: tuple[Problem, ...] = ()
        self._ctx = ctx
        self._client = client
        self._in_force = in_force
        self._tell = tell
        self._checked = checked
        settings = ctx.settings
        files = places_of_files(settings.device_config_file, settings.node_config_file)
        self._from_files = bool(files.all)
        self._texts = DeviceTexts(files if self._from_files else places_of(policy))
        self._stirred = anyio.Event()
        self._scope: anyio.CancelScope | None = None

    @property
    def config(self) -> DeviceConfig:
        return BUILT_IN if self._in_force is None else self._in_force

    def use(self, policy: Policy) -> None:
        """Look at other places if this policy names others."""
        places = places_of(policy)
        if not self._from_files and places != self._texts.places:
            self._texts = DeviceTexts(places)
            self._again()

    def _again(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        while True:
            with anyio.CancelScope() as self._scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._decide)
                    follow = self._poll if self._from_files else self._follow
                    for place in self._texts.places.all:
                        group.start_soon(follow, place)

    async def _decide(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred = anyio.Event()
            texts = self._texts
            if texts.is_complete:
                self._take(await anyio.to_thread.run_sync(texts.read, self._in_force))

    def _take(self, read: Read) -> None:
        if read.problems != self.problems:
            for problem in read.problems:
                self._ctx.log.error(
                    "device configuration not loaded; the old one stays active",
                    place=problem.place,
                    reason=problem.message,
                )
        self.problems = read.problems
        if read.event is not None:
            self._in_force = read.event.config
            self._ctx.log.info("devices configured", source=read.event.source)
            self._tell(read.event)
        if read.warnings != self._warnings:
            for warning in read.warnings:
                self._ctx.log.warning(f"{warning.place} {warning.message}")
        self._warnings = read.warnings
        self._checked(DEVICE_CONFIG, read.source, read.problems, read.warnings)
        self._ctx.ready(READY, True, detail_of(read.source, read.problems, read.warnings))
        self.settled.set()

    async def _follow(self, place: Place) -> None:
        texts = self._texts
        await follow_config_map(
            *(self._ctx, self._client, place),
            found=partial(texts.found, place),
            broken=partial(texts.broken, place),
            failed=partial(texts.failed, place),
            stir=lambda: self._stirred.set(),
        )

    async def _poll(self, place: Place) -> None:
        seen = None
        while True:
            now = await fingerprint(Path(place.name))
            if now != seen or not self.settled.is_set():
                seen = now
                await self._texts.read_file(place)
                self._stirred.set()
            await anyio.sleep(POLL_S)


def detail_of(source: str, problems: Sequence[Problem], warnings: Sequence[Problem]) -> str:
    """What readiness says of a configuration that was read at `source`."""
    said = f"active as written: {source}"
    if problems:
        first, others = problems[0], len(problems) - 1
        more = f" (and {others} more)" if others else ""
        said = f"an older configuration is active: {first.place} {first.message}{more}"
    return "; ".join([said, *(f"warning: {w.place} {w.message}" for w in warnings)])
