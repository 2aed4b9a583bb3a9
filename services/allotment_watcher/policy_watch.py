"""Keeps the policy active: follows the policy file and Volcano's ConfigMap, and reports changes."""

from collections.abc import Callable

import anyio
import anyio.to_thread
import msgspec

from allotment.adapters.kube import client as kube
from allotment.adapters.service.service import ServiceContext
from allotment.core.config.policy import PolicyError
from allotment.core.ledger.model import ClusterState
from allotment_proto.events import SCHEDULER_CONFIG, PolicyLoaded
from allotment_watcher.config_map_watch import follow_config_map
from allotment_watcher.device_source import Place
from allotment_watcher.policy_source import (
    BUILT_IN,
    POLL_S,
    Checked,
    Fingerprint,
    Loaded,
    PolicyTexts,
    fingerprint,
    load_policy,
    place_of,
)
from allotment_watcher.settings import WatcherSettings


class PolicyWatch:
    """Follows both places until it is cancelled. `settled` is set once the active policy is
    known; then `listen` sets what is called on changes.
    """

    def __init__(
        self,
        ctx: ServiceContext[WatcherSettings],
        client: kube.KubeClient,
        state: ClusterState,
        first: Loaded,
    ) -> None:
        """`first` is the file as it was at the start of the process."""
        settings = ctx.settings
        self.settled = anyio.Event()
        self._ctx = ctx
        self._client = client
        self.in_force = _in_log(state) or first.event
        """At first what the log says, if it says anything."""
        self._texts = PolicyTexts(
            place_of(settings.policy_config_map),
            settings.scheduler_names,
            first,
            str(settings.policy_file or BUILT_IN),
            file_first=settings.policy_file_first,
        )
        self._seen: Fingerprint | None = None
        self._last: Checked | None = None
        self._use: Callable[[PolicyLoaded], None] = lambda _: None
        self._checked: Callable[[Checked], None] = lambda _: None
        self._stirred = anyio.Event()

    def listen(
        self, use: Callable[[PolicyLoaded], None], checked: Callable[[Checked], None]
    ) -> None:
        """`use` hears of every policy that takes effect from now on, `checked` of every check: of
        the last one at once.
        """
        self._use, self._checked = use, checked
        if self._last is not None:
            checked(self._last)

    async def run(self) -> None:
        await self._read()  # `first` may be old: another watcher was the active one
        async with anyio.create_task_group() as group:
            group.start_soon(self._decide)
            group.start_soon(self._poll)
            if self._texts.place is not None:
                group.start_soon(self._follow, self._texts.place)

    async def _decide(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred = anyio.Event()
            if self._texts.is_complete:
                source = self.in_force.source
                self._take(await anyio.to_thread.run_sync(self._texts.check, source))

    def _take(self, found: Checked) -> None:
        if self._last is None or found.problems != self._last.problems:
            for problem in found.problems:
                self._ctx.log.error(
                    "policy not loaded; the old one stays active",
                    reason=f"{problem.place} {problem.message}",
                )
        if self._last is None or found.warnings != self._last.warnings:
            for warning in found.warnings:
                self._ctx.log.warning(f"{warning.place} {warning.message}")
        self._last = found
        event = None if found.loaded is None else found.loaded.event
        if event is not None and _differs(event, self.in_force):
            self.in_force = event
            self._ctx.log.info("policy loaded", source=event.source)
            self._use(event)
        self._checked(found)
        self.settled.set()

    async def _poll(self) -> None:
        """Pick up changes of the file; while it cannot be looked at, what it said counts."""
        path = self._ctx.settings.policy_file
        while path is not None:
            await anyio.sleep(POLL_S)
            now = await fingerprint(path)
            if now is not None and now != self._seen:
                await self._read()

    async def _read(self) -> None:
        path, names = self._ctx.settings.policy_file, self._ctx.settings.scheduler_names
        self._seen = None if path is None else await fingerprint(path)
        try:
            self._texts.file = await load_policy(path, names)
        except PolicyError as error:
            self._texts.file = error
        self._stirred.set()

    async def _follow(self, place: Place) -> None:
        texts = self._texts
        await follow_config_map(
            *(self._ctx, self._client, place),
            found=texts.found,
            broken=texts.broken,
            failed=texts.failed,
            stir=lambda: self._stirred.set(),
        )


def is_news(event: PolicyLoaded, state: ClusterState) -> bool:
    """Whether the log does not yet have this policy, from there, as the active one."""
    in_log = _in_log(state)
    return in_log is None or _differs(event, in_log)


def _in_log(state: ClusterState) -> PolicyLoaded | None:
    if not state.policy_seq:
        return None
    policy = msgspec.structs.replace(state.policy, mix=())  # no file says what was learned
    source = state.config_sources.get(SCHEDULER_CONFIG, "")
    return PolicyLoaded(policy=policy, source=source, text_sha256="")


def _differs(new: PolicyLoaded, old: PolicyLoaded) -> bool:
    return new.policy != old.policy or new.source != old.source
