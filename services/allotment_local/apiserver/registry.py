"""Which resources are served just now: the built-in ones and those custom definitions add."""

from collections.abc import Iterable

from allotment_local.apiserver.errors import no_such_path
from allotment_local.apiserver.events import events_group_face
from allotment_local.apiserver.resources import BUILTINS, EVENTS, Resource, ResourceKey


class Registry:
    """Lookups by path and by key."""

    def __init__(self) -> None:
        self._stored: dict[ResourceKey, Resource] = {}
        self._served: dict[tuple[str, str, str], Resource] = {}
        for resource in BUILTINS:
            self.add([resource], stored=resource)
        self.add([events_group_face(self._stored[EVENTS])], stored=self._stored[EVENTS])

    def add(self, faces: Iterable[Resource], *, stored: Resource) -> None:
        """Serve `faces`; objects are kept in the form of `stored`."""
        self._stored[stored.key] = stored
        for face in faces:
            self._served[(face.group, face.version, face.plural)] = face

    def remove(self, key: ResourceKey) -> None:
        del self._stored[key]
        for path in [path for path, face in self._served.items() if face.key == key]:
            del self._served[path]

    def stored(self, key: ResourceKey) -> Resource:
        """The form in which objects under `key` are kept. ApiError 404 when not served."""
        try:
            return self._stored[key]
        except KeyError:
            raise no_such_path() from None

    def served(self, group: str, version: str, plural: str) -> Resource:
        """The face at a path. ApiError 404 when there is none."""
        try:
            return self._served[(group, version, plural)]
        except KeyError:
            raise no_such_path() from None

    def find(self, key: ResourceKey) -> Resource | None:
        return self._stored.get(key)

    def groups(self) -> dict[str, dict[str, list[Resource]]]:
        """group -> version -> faces, in the order they were added."""
        found: dict[str, dict[str, list[Resource]]] = {}
        for (group, version, _), face in self._served.items():
            found.setdefault(group, {}).setdefault(version, []).append(face)
        return found

    @property
    def keys(self) -> tuple[ResourceKey, ...]:
        return tuple(self._stored)
