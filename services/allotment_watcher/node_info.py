"""What ConfigMaps say of each node's devices, for families whose nodes do not say all themselves.

Watched from when a node is seen that has such devices. Which ConfigMaps, and which part of them
concerns which node, the family says (`Family.info`).
"""

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlencode

import anyio

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.kind_watch import KindWatch
from allotment.adapters.kube.watch_events import (
    Added,
    Deleted,
    Modified,
    Synced,
    Undecodable,
    WatchEvent,
)
from allotment.adapters.service.service import ServiceContext
from allotment.core.placement.devices.base import BrokenInfo, DeviceInfo
from allotment_proto.facts import Policy
from allotment_watcher import objects
from allotment_watcher.settings import WatcherSettings

Parts = dict[str, tuple[str, str]]
"""Node → key and text of its part."""


def path_of(info: DeviceInfo, policy: Policy) -> str | None:
    """What to list and watch; None if the policy does not use the family."""
    place = info.place(policy)
    if place is None:
        return None
    query = urlencode({"labelSelector": "=".join(place.label)})
    return f"/api/v1/namespaces/{place.namespace}/configmaps?{query}"


class NodeInfo:
    """The parts of all ConfigMaps of one family, by node."""

    def __init__(self, info: DeviceInfo) -> None:
        self._info = info
        self._parts: dict[tuple[str, str], Parts] = {}

    def seen(self, namespace: str, name: str, data: Mapping[str, str]) -> set[str]:
        """The nodes of which something else is said now. Raises BrokenInfo, and nothing changes."""
        return self._replace(namespace, name, self._info.parts(namespace, name, data))

    def gone(self, namespace: str, name: str) -> set[str]:
        """The nodes about which there is nothing left to report."""
        return self._replace(namespace, name, {})

    def of(self, node: str) -> dict[str, str]:
        """``<namespace>/<name>/<key>`` → text, of one node."""
        found = (parts[node] for _, parts in sorted(self._parts.items()) if node in parts)
        return dict(found)

    def _replace(self, namespace: str, name: str, parts: Parts) -> set[str]:
        old = self._parts.pop((namespace, name), {})
        if parts:
            self._parts[namespace, name] = parts
        return {node for node in old.keys() | parts.keys() if old.get(node) != parts.get(node)}


class NodeInfoWatch:
    """Follows the ConfigMaps of one family until it is cancelled, and keeps them in `info`.

    `changed` hears of which nodes something else is said now; of None when all may have changed.
    """

    def __init__(
        self,
        ctx: ServiceContext[WatcherSettings],
        client: kube.KubeClient,
        family: str,
        source: DeviceInfo,
        policy: Policy,
        changed: Callable[[Iterable[str] | None], None],
    ) -> None:
        self.info = NodeInfo(source)
        self._family = family
        self._source = source
        self._ctx = ctx
        self._client = client
        self._changed = changed
        self._path = path_of(source, policy)
        self._answered = False
        self._wanted = anyio.Event()
        self._broken: set[tuple[str, str]] = set()
        self._scope: anyio.CancelScope | None = None

    def concerns(self, node: objects.NodeObject) -> bool:
        """Whether a node has devices of which the ConfigMaps tell."""
        return self._source.concerns((node.status.capacity if node.status else None) or {})

    def has_answered(self) -> bool:
        """Whether `info` is what the cluster says; if not yet, `changed` will be called."""
        self._wanted.set()
        return self._answered or self._path is None

    def use(self, policy: Policy) -> None:
        """Follow others, or none, if this policy says so."""
        path = path_of(self._source, policy)
        if path == self._path:
            return
        self._path, self._answered = path, False
        self.info = NodeInfo(self._source)
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
                    await self._watch(self._path).run(self._client)

    def _watch(self, path: str) -> KindWatch[objects.ConfigMapObject]:
        return KindWatch(
            path,
            objects.ConfigMapObject,
            self._on_event,
            self._ctx.refusals,
            on_problem=lambda _: self._answer(),
            warn=self._warn,
        )

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
        """Once: such ConfigMaps are rewritten every few seconds."""
        if (namespace, name) not in self._broken:
            self._broken.add((namespace, name))
            self._ctx.log.error(
                "device information cannot be read, what it said before stays",
                config_map=f"{namespace}/{name}",
                reason=reason,
            )

    def _warn(self, text: str) -> None:
        self._ctx.log.warning(
            "no news of nodes' devices",
            family=self._family,
            reason=text,
            remedy=self._source.remedy,
        )

    def _answer(self) -> None:
        if not self._answered:
            self._answered = True
            self._changed(None)
