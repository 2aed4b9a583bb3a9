"""The API server's state and its rules: every write to the cluster goes through here.

A write makes a new object that shares the untouched parts with the old one. Methods that return an
`Entry` are for the HTTP side: an entry also carries the encoded bytes.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from allotment_local.apiserver import budgets, meta
from allotment_local.apiserver.admission import (
    annotations_of,
    check_assignments,
    check_scheduled,
)
from allotment_local.apiserver.cascade import Cascade
from allotment_local.apiserver.collection import Entry, Event
from allotment_local.apiserver.errors import (
    JsonObject,
    already_exists,
    bad_request,
    forbidden,
    not_found,
)
from allotment_local.apiserver.objects import Objects
from allotment_local.apiserver.patches import merge
from allotment_local.apiserver.pods import deletion_grace_s
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
from allotment_local.apiserver.shapes import shaped_object

Propagation = Literal["Background", "Foreground", "Orphan"]
PERMANENT_NAMESPACES = (
    *("default", "kube-system", "kube-public", "kube-node-lease"),
    "allotment-system",  # the services keep the identity of their log there
)
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
# Controllers expire Events after an hour; here the oldest go when there are this many.
EVENTS_MAX = 20_000


class Store(Objects):
    """The cluster. A watch may be `history_limit` writes behind before it gets 410."""

    def __init__(
        self,
        *,
        clock: Callable[[], datetime],
        ids: Callable[[], str],
        first_resource_version: int = 1,
        history_limit: int = 10_000,
    ) -> None:
        super().__init__(
            clock=clock,
            first_resource_version=first_resource_version,
            history_limit=history_limit,
        )
        self._ids = ids
        self._cascade = Cascade(self)
        for name in PERMANENT_NAMESPACES:
            self.create(NAMESPACES, "", {"metadata": {"name": name}})
        for name, value in _SYSTEM_CLASSES.items():
            self.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})

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
        """Delete; None when it is gone, the object when its grace or finalizers let it live on.

        A Pod on a Node stays until its kubelet deletes it with `grace_seconds=0`.
        """
        entry, removed = self.remove(
            resource, namespace, name, grace_seconds=grace_seconds, preconditions={"uid": uid}
        )
        return None if removed else entry.obj

    def create_entry(
        self,
        resource: ResourceKey,
        namespace: str,
        obj: JsonObject,
        *,
        strict: bool = False,
        dry_run: bool = False,
        is_writer: bool = True,
    ) -> Entry:
        """Store a new object. `is_writer` as in `change`."""
        kind = self.registry.stored(resource)
        collection = self.collection(resource)
        metadata = meta.metadata_for_create(kind, namespace, obj, now=self.now(), new_id=self._ids)
        name = metadata["name"]
        if kind.namespaced:
            self.check_namespace_open(kind, namespace, name)
        new = {**obj, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        if kind.custom and kind.keeps_status:
            new.pop("status", None)
        if kind.schema is not None:
            new = conform(kind, new, strict=strict)
        else:
            new = shaped_object(resource, new, None)
        if rules := RULES.get(resource):
            new = rules.create(self, new)
        if collection.get(namespace, name) is not None:
            raise already_exists(kind.plural, kind.group, name)
        if resource == PODS and not is_writer:
            self._check_assignments(new, {})
            check_scheduled(self, new)
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
        strict: bool = False,
        dry_run: bool = False,
        is_writer: bool = True,
    ) -> Entry:
        """Replace an object by what `make` returns for it; a write that changes nothing is none.

        `is_writer`: whether it may write what is reserved to schedulers and device plugins.
        """
        kind = self.registry.stored(resource)
        old = self.entry(resource, namespace, name)
        made = make(old.obj)
        metadata = meta.metadata_for_update(kind, old.obj, made)
        new = _within(kind, subresource, old.obj, made, metadata)
        if kind.schema is not None:
            new = conform(kind, new, strict=strict)
        else:
            new = shaped_object(resource, new, old.obj)
        if rules := RULES.get(resource):
            new = rules.update(self, new, old.obj, subresource)
        if new.get("spec") != old.obj.get("spec") and "generation" in metadata:
            metadata["generation"] += 1
        if new == old.obj:
            return old
        if resource == PODS and not is_writer:
            self._check_assignments(new, old.obj)
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
            with self.together():
                if resource == PODS:  # two writes, as of any kind whose end may take a while
                    old = self.mark_deleted(resource, old, 0)
                return self.erase(resource, old), True
        if "deletionTimestamp" in before and grace_s >= before.get("deletionGracePeriodSeconds", 0):
            return old, False
        return self.mark_deleted(resource, old, grace_s), False

    def mark_deleted(
        self, resource: ResourceKey, old: Entry, grace_s: int, **changes: Any
    ) -> Entry:
        """Set the deletion timestamp: the object's end has begun, which counts as a new generation.
        A shorter grace period is counted from the beginning, too.
        """
        before, begun = old.obj["metadata"], self._clock().timestamp()
        if "deletionTimestamp" in before:
            last = datetime.fromisoformat(before["deletionTimestamp"])
            begun = last.timestamp() - before["deletionGracePeriodSeconds"]
        elif "generation" in before:
            before = {**before, "generation": before["generation"] + 1}
        deadline = datetime.fromtimestamp(int(begun) + grace_s, UTC)
        metadata = {
            **before,
            "deletionTimestamp": deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "deletionGracePeriodSeconds": grace_s,
        }
        new = {**old.obj, **changes, "metadata": metadata}
        return self._commit("MODIFIED", resource, old.namespace, old.name, new, old)

    def _follow_up(self, resource: ResourceKey, event: Event) -> None:
        self._cascade.observe(resource, event)
        budgets.follow(self, resource, event)

    def _check_assignments(self, new: JsonObject, old: JsonObject) -> None:
        check_assignments(
            self,
            new["metadata"]["name"],
            annotations_of(old),
            annotations_of(new),
            is_bound=bool(new["spec"].get("nodeName")),
        )

    def check_namespace_open(self, kind: Resource, namespace: str, name: str) -> None:
        """Refuse what makes something in a namespace that ends, a Binding or an Eviction as well.
        ApiError 403, or 404 without the namespace."""
        found = self.collection(NAMESPACES).get("", namespace)
        if found is None:
            raise not_found("namespaces", "", namespace)
        if "deletionTimestamp" in found.obj["metadata"]:
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            error = forbidden(kind.plural, kind.group, name, why)
            about = {"field": "metadata.namespace", "message": f"namespace {namespace} is ending"}
            error.details["causes"] = [{"reason": "NamespaceTerminating", **about}]
            raise error


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
