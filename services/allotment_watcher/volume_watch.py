"""Follows claims, volumes, storage classes and CSINodes, from when a pod is seen whose place
depends on them.

Clusters without such pods are not asked. Where one kind cannot be read, pods with claims are
refused and say why: bound without a look, they could end where their volumes are not. Only without
CSINodes they are placed, as if nodes had no limits: a log line says so.
"""

from collections.abc import Callable
from typing import Any, TypeVar

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
from allotment.core import reasons
from allotment_proto.facts import Amounts, Attachment, Problem
from allotment_watcher import objects
from allotment_watcher.normalise.volumes import NotReady, Volumes, Wanted
from allotment_watcher.settings import WatcherSettings

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
T = TypeVar("T")
REMEDY = "apply deploy/base/rbac.yaml if the watcher has no right to list and watch them"


class VolumeWatch:
    """Follows all four until it is cancelled. `changed` hears when claims may have other answers,
    `limits_changed` which nodes may have other limits: None if all may, and other volumes count.

    What is learned stays while a watch is interrupted: it is news that is missing then.
    """

    def __init__(
        self,
        ctx: ServiceContext[WatcherSettings],
        client: kube.KubeClient,
        changed: Callable[[], None],
        limits_changed: Callable[[str | None], None],
    ) -> None:
        self._ctx = ctx
        self._client = client
        self._changed = changed
        self._limits_changed = limits_changed
        self._limited: frozenset[str] = frozenset()
        """The drivers that some node has a limit for, once that is known."""
        self._has_sole = False
        """Whether claims were seen that serve one pod at a time: pods that have a node are read
        again then, since they may have them."""
        self._wanted = anyio.Event()
        self._volumes = Volumes()
        self._csi_nodes = self._watch(CSI_NODES, objects.CsiNodeObject, self._volumes.nodes)
        self._kinds = (
            self._watch(CLAIMS, objects.ClaimObject, self._volumes.claims),
            self._watch(VOLUMES, objects.VolumeObject, self._volumes.volumes),
            self._watch(CLASSES, objects.ClassObject, self._volumes.classes),
            self._csi_nodes,
        )

    def has_answered(self) -> bool:
        """Whether it is known what there is, or that this cannot be known; if not yet, `changed`
        will be called.
        """
        self._wanted.set()
        return all(kind.is_listed or kind.failure for kind in self._kinds)

    def wanted(self, namespace: str, claims: tuple[str, ...]) -> Wanted | Problem:
        """What a pod's claims want of its node, or why it cannot be placed now."""
        for kind in self._kinds:
            if kind.failure and kind is not self._csi_nodes:
                return Problem(
                    reasons.VOLUME_NOT_READY,
                    "spec.volumes",
                    f"cannot be looked up, {kind.path} cannot be read: {kind.failure}; {REMEDY}",
                )
        try:
            wanted = self._volumes.wanted(namespace, claims)
            return wanted._replace(
                attachments=self.attached(namespace, claims)[0],
                sole=self._volumes.sole(namespace, claims),
            )
        except NotReady as error:
            return error.problem

    def sole(self, namespace: str, claims: tuple[str, ...]) -> tuple[str, ...]:
        """Those of a pod's claims that serve one pod at a time, as far as is known."""
        return self._volumes.sole(namespace, claims)

    def attached(
        self, namespace: str, claims: tuple[str, ...]
    ) -> tuple[tuple[Attachment, ...], bool]:
        """The volumes of a pod that nodes have limits for, and whether that is all known."""
        found, is_complete = self._volumes.attached(namespace, claims, self._limited)
        return found, is_complete and self.knows_limits()

    def knows_limits(self) -> bool:
        """Whether all kinds are listed, so that it is known what is attached where."""
        return all(kind.is_listed for kind in self._kinds)

    def limits_of(self, node: str) -> Amounts | None:
        """By driver how many volumes a node can have attached; None while unknown."""
        return self._volumes.limits_of(node) if self._csi_nodes.is_listed else None

    async def run(self) -> None:
        await self._wanted.wait()
        async with anyio.create_task_group() as group:
            for kind in self._kinds:
                group.start_soon(kind.run, self._client)

    def _watch(self, path: str, kind: type[T], known: dict[str, T]) -> KindWatch[T]:
        """Keeps the objects of one kind in `known`."""
        there: set[str] = set()

        async def on_event(event: WatchEvent[T]) -> None:
            match event:
                case Added(identity=identity) | Modified(identity=identity):
                    key = _key(identity.namespace, identity.name)
                    there.add(key)
                    known[key] = event.object
                case Deleted(identity=identity):
                    key = _key(identity.namespace, identity.name)
                    there.discard(key)
                    known.pop(key, None)
                case Undecodable():  # it is there, as it was last read
                    there.add(_key(event.namespace, event.name))
                case Synced():
                    for key in known.keys() - there:
                        del known[key]
            if self.knows_limits() and (path == CSI_NODES or isinstance(event, Synced)):
                self._look_at_limits(event)
            self._tell()

        def on_problem(_: str) -> None:
            if not watch.is_listed:
                self._tell()

        watch = KindWatch(
            path,
            kind,
            on_event,
            self._ctx.refusals,
            on_problem=on_problem,
            warn=lambda text: self._ctx.log.warning(
                "no news of volumes", path=path, reason=text, remedy=REMEDY
            ),
        )
        return watch

    def _look_at_limits(self, event: WatchEvent[Any]) -> None:
        limited = self._volumes.limited()
        has_sole = self._has_sole or self._volumes.has_sole()
        if limited != self._limited or has_sole != self._has_sole:
            self._limited, self._has_sole = limited, has_sole
            self._limits_changed(None)
        elif isinstance(event, Added | Modified | Deleted):
            self._limits_changed(event.identity.name)

    def _tell(self) -> None:
        if self.has_answered():
            self._changed()


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
