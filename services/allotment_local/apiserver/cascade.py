"""What follows a deletion: dependents by owner, a namespace's contents, custom objects.

An object whose owners are all absent is deleted as well, as Kubernetes' garbage collector does with
what was made just after its owner went.
"""

from itertools import repeat
from typing import Any, Protocol

from allotment_local.apiserver.collection import Collection, Entry, Event
from allotment_local.apiserver.errors import JsonObject
from allotment_local.apiserver.registry import Registry
from allotment_local.apiserver.resources import NAMESPACES, ResourceKey

_Place = tuple[ResourceKey, str, str]


class Writes(Protocol):
    """What a cascade needs of the store that it belongs to (`store.Store`)."""

    registry: Registry

    def collection(self, resource: ResourceKey) -> Collection: ...

    def erase(self, resource: ResourceKey, old: Entry) -> Entry: ...

    def mark_deleted(
        self, resource: ResourceKey, old: Entry, grace_s: int, **changes: Any
    ) -> Entry: ...

    def remove(self, resource: ResourceKey, namespace: str, name: str) -> tuple[Entry, bool]: ...

    def replace(self, resource: ResourceKey, old: Entry, new: JsonObject) -> Entry: ...


class Cascade:
    """Keeps an index from owner UID to dependents, fed by every write."""

    def __init__(self, store: Writes) -> None:
        self._store = store
        self._dependents: dict[str, set[_Place]] = {}
        self._ending_namespaces: set[str] = set()

    def observe(self, resource: ResourceKey, event: Event) -> None:
        """Called after each write, in order."""
        metadata = event.entry.obj["metadata"]
        place = (resource, event.entry.namespace, event.entry.name)
        before = event.previous.obj["metadata"].get("ownerReferences") if event.previous else None
        after = metadata.get("ownerReferences") if event.type != "DELETED" else None
        if before is not after:
            for owner in before or ():
                self._dependents.get(owner.get("uid"), set()).discard(place)
            for owner in after or ():
                self._dependents.setdefault(owner.get("uid"), set()).add(place)
        if event.type == "DELETED":
            self._delete_dependents(metadata["uid"])
            if event.entry.namespace in self._ending_namespaces:
                self._finish_namespace(event.entry.namespace)
        elif after and before is not after and all(map(self._is_absent, after, repeat(place[1]))):
            self._store.remove(*place)

    def _is_absent(self, owner: JsonObject, namespace: str) -> bool:
        """Whether an owner is of a kind that is kept here and does not exist, under this uid."""
        group = str(owner.get("apiVersion") or "").rpartition("/")[0]
        for key in self._store.registry.keys:
            kind = self._store.registry.stored(key)
            if (kind.group, kind.kind) == (group, owner.get("kind")):
                place = namespace if kind.namespaced else ""
                found = self._store.collection(key).get(place, str(owner.get("name")))
                return found is None or found.obj["metadata"]["uid"] != owner.get("uid")
        return False

    def orphan(self, uid: str) -> None:
        """Cut the dependents loose before their owner goes."""
        for resource, namespace, name in sorted(self._dependents.pop(uid, ())):
            entry = self._store.collection(resource).get(namespace, name)
            if entry is not None:
                metadata = entry.obj["metadata"]
                owners = [o for o in metadata.get("ownerReferences") or () if o.get("uid") != uid]
                self._store.replace(
                    resource,
                    entry,
                    {**entry.obj, "metadata": {**metadata, "ownerReferences": owners}},
                )

    def _delete_dependents(self, uid: str) -> None:
        for resource, namespace, name in sorted(self._dependents.pop(uid, ())):
            entry = self._store.collection(resource).get(namespace, name)
            if entry is None:
                continue
            owners = entry.obj["metadata"].get("ownerReferences") or ()
            if all(owner.get("uid") == uid for owner in owners):
                self._store.remove(resource, namespace, name)

    def end_namespace(self, entry: Entry) -> tuple[Entry, bool]:
        """Close a namespace and delete what is in it; it goes when the last object has gone."""
        if "deletionTimestamp" in entry.obj["metadata"]:
            return entry, False
        status = {**(entry.obj.get("status") or {}), "phase": "Terminating"}
        closed = self._store.mark_deleted(NAMESPACES, entry, 0, status=status)
        self._ending_namespaces.add(entry.name)
        for resource in self._store.registry.keys:
            for content in self._store.collection(resource).entries(entry.name):
                if (
                    self._store.collection(resource).get(content.namespace, content.name)
                    is not None
                ):
                    self._store.remove(resource, content.namespace, content.name)
        self._finish_namespace(entry.name)
        return closed, entry.name not in self._ending_namespaces

    def _finish_namespace(self, name: str) -> None:
        if name not in self._ending_namespaces:
            return
        for resource in self._store.registry.keys:
            if self._store.collection(resource).entries(name):
                return
        self._ending_namespaces.discard(name)
        entry = self._store.collection(NAMESPACES).get("", name)
        assert entry is not None
        self._store.erase(NAMESPACES, entry)

    def end_custom_resources(self, definition: JsonObject) -> None:
        """Delete every object of a definition that goes, whatever finalizers they carry."""
        spec = definition["spec"]
        resource = ResourceKey(spec["group"], spec["names"]["plural"])
        for entry in self._store.collection(resource).entries():
            self._store.erase(resource, entry)
