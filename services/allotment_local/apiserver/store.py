"""The API server's state and its rules: every write to the cluster goes through here.

Objects handed out are shared by everyone and never change: a write makes a new object that shares
the untouched parts with the old one. One counter numbers all writes; subscribers see each write
synchronously and in that order. Not thread-safe: one event loop owns a Store.
"""

import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from allotment_local.apiserver import meta
from allotment_local.apiserver.cascade import Cascade
from allotment_local.apiserver.collection import Collection, Entry, Event, EventType
from allotment_local.apiserver.crds import custom_resources
from allotment_local.apiserver.errors import (
    ApiError,
    JsonObject,
    already_exists,
    bad_request,
    forbidden,
    not_found,
)
from allotment_local.apiserver.patches import merge
from allotment_local.apiserver.pods import deletion_grace_s
from allotment_local.apiserver.registry import Registry
from allotment_local.apiserver.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    Resource,
    ResourceKey,
)
from allotment_local.apiserver.rules import RULES
from allotment_local.apiserver.schema import conform

__all__ = ["ApiError", "JsonObject", "Store"]

Callback = Callable[[EventType, JsonObject], None]
Propagation = Literal["Background", "Foreground", "Orphan"]
PERMANENT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
# Controllers expire Events after an hour; here the oldest go when there are this many.
EVENTS_MAX = 20_000
_logger = logging.getLogger(__name__)


class Store:
    """The cluster. `history_limit`: writes of one resource a watch may be behind before it gets 410."""

    def __init__(
        self,
        *,
        clock: Callable[[], datetime],
        ids: Callable[[], str],
        first_resource_version: int = 1,
        history_limit: int = 10_000,
    ) -> None:
        self.clock = clock
        self.resource_version = first_resource_version
        self.first_resource_version = first_resource_version
        self.registry = Registry()
        self._ids = ids
        self._history_limit = history_limit
        self._collections: dict[ResourceKey, Collection] = {}
        self._subscribers: dict[ResourceKey, list[Callback]] = {}
        self._unpublished: deque[tuple[ResourceKey, Event]] = deque()
        self._publishing = False
        self._cascade = Cascade(self)
        for name in PERMANENT_NAMESPACES:
            self.create(NAMESPACES, "", {"metadata": {"name": name}})
        for name, value in _SYSTEM_CLASSES.items():
            self.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})

    # Reading

    def now(self) -> str:
        """The clock's time as Kubernetes writes it, in whole seconds."""
        return self.clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def collection(self, resource: ResourceKey) -> Collection:
        """The objects and history of a resource. ApiError 404 when it is not served."""
        found = self._collections.get(resource)
        if found is None:
            self.registry.stored(resource)
            found = self._collections[resource] = Collection(
                oldest_version=self.first_resource_version, history_limit=self._history_limit
            )
        return found

    def entry(self, resource: ResourceKey, namespace: str, name: str) -> Entry:
        found = self.collection(resource).get(namespace, name)
        if found is None:
            raise not_found(resource.plural, resource.group, name)
        return found

    def find(self, resource: ResourceKey, namespace: str, name: str) -> JsonObject | None:
        found = self.collection(resource).get(namespace, name)
        return found.obj if found else None

    def get(self, resource: ResourceKey, namespace: str, name: str) -> JsonObject:
        """One object; ApiError 404 when there is none. Cluster-wide objects have namespace ""."""
        return self.entry(resource, namespace, name).obj

    def list(
        self, resource: ResourceKey, namespace: str | None = None
    ) -> tuple[list[JsonObject], int]:
        """The objects of a namespace (None: of all), and the version of the world they are from."""
        entries = self.collection(resource).entries(namespace)
        return [entry.obj for entry in entries], self.resource_version

    # Writing

    def create(self, resource: ResourceKey, namespace: str, obj: JsonObject) -> JsonObject:
        """Store a new object. ApiError 404 (namespace), 403, 409 (exists), 422."""
        return self.create_entry(resource, namespace, obj).obj

    def update(
        self, resource: ResourceKey, obj: JsonObject, *, subresource: str = ""
    ) -> JsonObject:
        """Replace an object, named by its metadata. ApiError 409 on a stale resourceVersion."""
        metadata = obj.get("metadata") or {}
        namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
        changed = self.change(resource, namespace, name, lambda _old: obj, subresource=subresource)
        return changed.obj

    def merge_patch(
        self,
        resource: ResourceKey,
        namespace: str,
        name: str,
        patch: JsonObject,
        *,
        subresource: str = "",
    ) -> JsonObject:
        """Apply an RFC 7386 patch: null removes a key, lists are replaced."""
        return self.change(
            resource, namespace, name, lambda old: merge(old, patch), subresource=subresource
        ).obj

    def delete(
        self,
        resource: ResourceKey,
        namespace: str,
        name: str,
        *,
        grace_seconds: int | None = None,
        uid: str | None = None,
    ) -> JsonObject | None:
        """Delete; None when it is gone, the object when it lives on until its grace or finalizers end.

        A Pod on a Node stays until its kubelet deletes it with `grace_seconds=0`.
        """
        entry, removed = self.remove(
            resource, namespace, name, grace_seconds=grace_seconds, preconditions={"uid": uid}
        )
        return None if removed else entry.obj

    def subscribe(self, resource: ResourceKey, callback: Callback) -> Callable[[], None]:
        """Call back after each write to a resource; returns the function that ends it.

        A callback may write; subscribers then see those writes after this one.
        """
        callbacks = self._subscribers.setdefault(resource, [])
        callbacks.append(callback)

        def unsubscribe() -> None:
            if callback in callbacks:
                callbacks.remove(callback)

        return unsubscribe

    # The same, for the HTTP side: entries carry the encoded bytes

    def create_entry(
        self, resource: ResourceKey, namespace: str, obj: JsonObject, *, dry_run: bool = False
    ) -> Entry:
        kind = self.registry.stored(resource)
        collection = self.collection(resource)
        metadata = meta.metadata_for_create(
            kind, namespace, obj, now=self.now(), new_id=self._ids
        )
        name = metadata["name"]
        if kind.namespaced:
            self._check_namespace_open(kind, namespace, name)
        new = {**obj, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        if kind.custom and kind.keeps_status:
            new.pop("status", None)
        if kind.schema is not None:
            new = conform(kind, new)
        if rules := RULES.get(resource):
            new = rules.create(self, new)
        if collection.get(namespace, name) is not None:
            raise already_exists(kind.plural, kind.group, name)
        if dry_run:
            return Entry(namespace, name, new, self.resource_version)
        entry = self._commit("ADDED", resource, namespace, name, new, None)
        if resource == EVENTS and len(collection) > EVENTS_MAX:
            oldest = collection.oldest()
            assert oldest is not None
            self.remove(EVENTS, oldest.namespace, oldest.name)
        return entry

    def change(
        self,
        resource: ResourceKey,
        namespace: str,
        name: str,
        make: Callable[[JsonObject], JsonObject],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Entry:
        """Replace an object by what `make` returns for it; a write that changes nothing is none."""
        kind = self.registry.stored(resource)
        old = self.entry(resource, namespace, name)
        made = make(old.obj)
        metadata = meta.metadata_for_update(kind, old.obj, made)
        new = _within(kind, subresource, old.obj, made, metadata)
        if kind.schema is not None:
            new = conform(kind, new)
        if rules := RULES.get(resource):
            new = rules.update(self, new, old.obj, subresource)
        if new.get("spec") != old.obj.get("spec") and "generation" in metadata:
            metadata["generation"] += 1
        if new == old.obj:
            return old
        if dry_run:
            return Entry(namespace, name, new, old.version)
        if _is_ended(metadata):
            return self._commit("DELETED", resource, namespace, name, new, old)
        return self._commit("MODIFIED", resource, namespace, name, new, old)

    def remove(
        self,
        resource: ResourceKey,
        namespace: str,
        name: str,
        *,
        grace_seconds: int | None = None,
        preconditions: JsonObject | None = None,
        propagation: Propagation = "Background",
        dry_run: bool = False,
    ) -> tuple[Entry, bool]:
        """`(last version, whether it is gone)`. ApiError 409 when a precondition fails."""
        kind = self.registry.stored(resource)
        old = self.entry(resource, namespace, name)
        expected = preconditions or {}
        before = old.obj["metadata"]
        meta.check_preconditions(kind, before, expected.get("uid"), expected.get("resourceVersion"))
        if grace_seconds is not None and grace_seconds < 0:
            raise bad_request(f"gracePeriodSeconds: {grace_seconds} is negative")
        if resource == NAMESPACES and name in PERMANENT_NAMESPACES:
            raise forbidden(kind.plural, "", name, "this namespace may not be deleted")
        grace_s = deletion_grace_s(old.obj, grace_seconds) if resource == PODS else 0
        lingers = bool(grace_s or before.get("finalizers"))
        if dry_run:
            return old, not lingers
        if propagation == "Orphan":
            self._cascade.orphan(before["uid"])
        if resource == NAMESPACES:
            return self._cascade.end_namespace(old)
        if not lingers:
            if resource == CUSTOM_RESOURCE_DEFINITIONS:
                self._cascade.end_custom_resources(old.obj)
            gone = {**old.obj, "metadata": dict(before)}
            return self._commit("DELETED", resource, namespace, name, gone, old), True
        if "deletionTimestamp" in before and grace_s >= before.get("deletionGracePeriodSeconds", 0):
            return old, False
        return self.mark_deleted(resource, old, grace_s), False

    def mark_deleted(self, resource: ResourceKey, old: Entry, grace_s: int, **changes: Any) -> Entry:
        """Set the deletion timestamp: the object's end has begun."""
        deadline = datetime.fromtimestamp(int(self.clock().timestamp()) + grace_s, UTC)
        metadata = {
            **old.obj["metadata"],
            "deletionTimestamp": deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "deletionGracePeriodSeconds": grace_s,
        }
        new = {**old.obj, **changes, "metadata": metadata}
        return self._commit("MODIFIED", resource, old.namespace, old.name, new, old)

    def replace(self, resource: ResourceKey, old: Entry, new: JsonObject) -> Entry:
        """Commit a new version made by the server itself, which has checked it already."""
        new = {**new, "metadata": dict(new["metadata"])}
        return self._commit("MODIFIED", resource, old.namespace, old.name, new, old)

    def erase(self, resource: ResourceKey, old: Entry) -> Entry:
        """Commit the end of an object, whatever its finalizers say."""
        gone = {**old.obj, "metadata": dict(old.obj["metadata"])}
        return self._commit("DELETED", resource, old.namespace, old.name, gone, old)

    def wake_watchers(self) -> None:
        for collection in self._collections.values():
            collection.wake()

    def _check_namespace_open(self, kind: Resource, namespace: str, name: str) -> None:
        found = self.collection(NAMESPACES).get("", namespace)
        if found is None:
            raise not_found("namespaces", "", namespace)
        if "deletionTimestamp" in found.obj["metadata"]:
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            raise forbidden(kind.plural, kind.group, name, why)

    def _commit(
        self,
        type_: EventType,
        resource: ResourceKey,
        namespace: str,
        name: str,
        obj: JsonObject,
        previous: Entry | None,
    ) -> Entry:
        """The one door: number the write, file it, tell everyone. `obj["metadata"]` is ours."""
        self.resource_version += 1
        obj["metadata"]["resourceVersion"] = str(self.resource_version)
        entry = Entry(namespace, name, obj, self.resource_version)
        event = Event(type_, entry, previous)
        self.collection(resource).record(event)
        if resource == CUSTOM_RESOURCE_DEFINITIONS:
            self._serve(event)
        self._unpublished.append((resource, event))
        if not self._publishing:
            self._publish()
        return entry

    def _publish(self) -> None:
        """Deliver writes in order, also those that callbacks make while this runs."""
        self._publishing = True
        try:
            while self._unpublished:
                resource, event = self._unpublished.popleft()
                self._cascade.observe(resource, event)
                for callback in tuple(self._subscribers.get(resource, ())):
                    try:
                        callback(event.type, event.entry.obj)
                    except Exception:
                        # The writer is not to blame, and the write has happened.
                        _logger.exception("a subscriber of %s failed on %s", resource, event.type)
        finally:
            self._publishing = False

    def _serve(self, event: Event) -> None:
        """Serve, or stop serving, what a custom resource definition defines."""
        faces, stored = custom_resources(event.entry.obj)
        if self.registry.find(stored.key) is not None:
            self.registry.remove(stored.key)
        if event.type != "DELETED":
            self.registry.add(faces, stored=stored)


def _within(
    kind: Resource, subresource: str, old: JsonObject, made: JsonObject, metadata: JsonObject
) -> JsonObject:
    """The next version, with only what a write to this endpoint may change."""
    identity = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    if subresource == "status":
        if kind.custom:
            identity["metadata"] = dict(old["metadata"])
        new = {**old, **identity}
        part = "status"
    elif subresource == "finalize":
        new = {**old, **identity}
        part = "spec"
    else:
        new = {**made, **identity}
        if not kind.keeps_status:
            return new
        made, part = old, "status"
    if part in made:
        new[part] = made[part]
    else:
        new.pop(part, None)
    return new


def _is_ended(metadata: JsonObject) -> bool:
    """Its deletion has begun, no finalizer holds it, and there is no grace to wait for."""
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )
