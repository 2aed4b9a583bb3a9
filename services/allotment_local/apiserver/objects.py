"""Versions of objects: numbered, filed, and sent to everyone in order. No rules about content here.

`store.Store` adds the rules. Objects handed out are shared by everyone and never change; a
writer hands in a new object whose metadata is its own.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from allotment_local.apiserver.collection import Collection, Entry, Event, EventType
from allotment_local.apiserver.crds import custom_resources
from allotment_local.apiserver.errors import JsonObject, not_found
from allotment_local.apiserver.registry import Registry
from allotment_local.apiserver.resources import CUSTOM_RESOURCE_DEFINITIONS, ResourceKey

Callback = Callable[[EventType, JsonObject], None]
Items = list[JsonObject]
_logger = logging.getLogger(__name__)


class Objects:
    """All collections under one version counter. One event loop owns it: it is not thread-safe."""

    def __init__(
        self, *, clock: Callable[[], datetime], first_resource_version: int, history_limit: int
    ) -> None:
        self.resource_version = first_resource_version
        self.registry = Registry()
        self._first_resource_version = first_resource_version
        self._clock = clock
        self._second: datetime | None = None
        self._second_text = ""
        self._history_limit = history_limit
        self._collections: dict[ResourceKey, Collection] = {}
        self._subscribers: dict[ResourceKey, list[Callback]] = {}
        self._unpublished: deque[tuple[ResourceKey, Event]] = deque()
        self._publishing = False

    def now(self) -> str:
        """The clock's time as Kubernetes writes it, in whole seconds."""
        second = self._clock().replace(microsecond=0)
        if second != self._second:
            self._second = second
            self._second_text = second.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._second_text

    def collection(self, resource: ResourceKey) -> Collection:
        """The objects and history of a resource. ApiError 404 when it is not served."""
        found = self._collections.get(resource)
        if found is None:
            self.registry.stored(resource)
            found = self._collections[resource] = Collection(
                oldest_version=self._first_resource_version, history_limit=self._history_limit
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

    def list(self, resource: ResourceKey, namespace: str | None = None) -> tuple[Items, int]:
        """The objects of a namespace (None: of all), and the version of the world they are from."""
        entries = self.collection(resource).entries(namespace)
        return [entry.obj for entry in entries], self.resource_version

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

    def replace(self, resource: ResourceKey, old: Entry, new: JsonObject) -> Entry:
        """Commit a new version made by the server itself, which has checked it already."""
        new = {**new, "metadata": dict(new["metadata"])}
        return self._commit("MODIFIED", resource, old.namespace, old.name, new, old)

    def erase(self, resource: ResourceKey, old: Entry) -> Entry:
        """Commit the end of an object, whatever its finalizers say."""
        gone = {**old.obj, "metadata": dict(old.obj["metadata"])}
        return self._commit("DELETED", resource, old.namespace, old.name, gone, old)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Subscribers hear of the writes of this block after the last of them."""
        before, self._publishing = self._publishing, True
        try:
            yield
        finally:
            self._publishing = before
            if not before:
                self._publish()

    def wake_watchers(self) -> None:
        for collection in self._collections.values():
            collection.wake()

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
                self._follow_up(resource, event)
                for callback in tuple(self._subscribers.get(resource, ())):
                    try:
                        callback(event.type, event.entry.obj)
                    except Exception:
                        # The writer is not to blame, and the write has happened.
                        _logger.exception("a subscriber of %s failed on %s", resource, event.type)
        finally:
            self._publishing = False

    def _follow_up(self, resource: ResourceKey, event: Event) -> None:
        """What the server itself does after a write, before any subscriber hears of it."""

    def _serve(self, event: Event) -> None:
        """Serve, or stop serving, what a custom resource definition defines."""
        faces, stored = custom_resources(event.entry.obj)
        if self.registry.find(stored.key) is not None:
            self.registry.remove(stored.key)
        if event.type != "DELETED":
            self.registry.add(faces, stored=stored)
