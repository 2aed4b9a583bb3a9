"""Follows the ConfigMaps of MindCluster, from when a node is seen that has such chips."""

from collections.abc import Callable, Iterable

import anyio

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.watch import Added, Deleted, Modified, Synced, Undecodable, WatchEvent
from allotment.adapters.service.service import ServiceContext
from allotment_proto.facts import Policy
from allotment_proto.volcano import keys
from allotment_watcher import objects
from allotment_watcher.npu_info import BrokenInfo, NpuInfo, path_of
from allotment_watcher.reflecting import reflect
from allotment_watcher.settings import WatcherSettings

REMEDY = "apply deploy/base/watcher-mindcluster.yaml if the watcher has no right to it"


class NpuWatch:
    """Follows them until it is cancelled, and keeps them in `info`.

    `changed` hears of which nodes something else is said now; of None when all may have changed.
    """

    def __init__(
        self,
        ctx: ServiceContext[WatcherSettings],
        client: kube.KubeClient,
        policy: Policy,
        changed: Callable[[Iterable[str] | None], None],
    ) -> None:
        self.info = NpuInfo()
        self._ctx = ctx
        self._client = client
        self._changed = changed
        self._path = path_of(policy)
        self._answered = False
        self._wanted = anyio.Event()
        self._broken: set[tuple[str, str]] = set()
        self._said = ""
        self._scope: anyio.CancelScope | None = None

    def has_answered(self) -> bool:
        """Whether `info` is what the cluster says; if not yet, `changed` will be called."""
        self._wanted.set()
        return self._answered or self._path is None

    def use(self, policy: Policy) -> None:
        """Follow others, or none, if this policy says so."""
        path = path_of(policy)
        if path == self._path:
            return
        self._path, self._answered = path, False
        self.info = NpuInfo()
        self._broken.clear()
        self._again()
        if path is None:
            self._changed(None)

    def _again(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        await self._wanted.wait()
        while True:
            with anyio.CancelScope() as self._scope:
                if self._path is None:
                    await anyio.sleep_forever()
                else:
                    kind = objects.ConfigMapObject
                    hear = (self._on_event, self._on_problem, self._ctx.refusals)
                    await reflect(self._client, self._path, kind, *hear)

    async def _on_event(self, event: WatchEvent[objects.ConfigMapObject]) -> None:
        nodes: set[str] = set()
        match event:
            case Added() | Modified():
                identity = event.identity
                nodes = self._seen(identity.namespace, identity.name, event.object.data or {})
            case Deleted():
                nodes = self.info.gone(event.identity.namespace, event.identity.name)
            case Undecodable():
                self._say(event.namespace, event.name, event.error)
            case Synced():
                self._said = ""
                self._answer()
        if nodes and self._answered:
            self._changed(nodes)

    def _seen(self, namespace: str, name: str, data: dict[str, str]) -> set[str]:
        try:
            nodes = self.info.seen(namespace, name, data)
        except BrokenInfo as error:
            self._say(namespace, name, str(error))
            return set()
        self._broken.discard((namespace, name))
        return nodes

    def _say(self, namespace: str, name: str, reason: str) -> None:
        """Once: such ConfigMaps are written anew every few seconds."""
        if (namespace, name) not in self._broken:
            self._broken.add((namespace, name))
            self._ctx.log.error(
                "device information cannot be read, what it said before stays",
                config_map=f"{namespace}/{name}",
                reason=reason,
            )

    def _on_problem(self, text: str) -> None:
        if text != self._said:
            self._ctx.log.warning("no news of Ascend nodes' devices", reason=text, remedy=REMEDY)
        self._said = text
        self._answer()

    def _answer(self) -> None:
        if not self._answered:
            self._answered = True
            self._changed(None)


def has_chips(node: objects.NodeObject) -> bool:
    """Whether a node lists chips in the way of MindCluster."""
    return keys.NPU_CORE in ((node.status.capacity if node.status else None) or {})
