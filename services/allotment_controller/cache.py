"""What the controller knows of one kind of object: from watches, and from answers to its writes.

A watch lags behind one's own writes, and a plan made on it would create a pod twice. So an
answer's object is known at once; whichever of two versions is newer counts, and what was deleted
does not come back by a late answer.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from allotment.core.jobs.model import Meta
from allotment.core.units import natural

TOMBSTONES_MAX = 10_000

Key = tuple[str, str]
"""Namespace and name."""


class HasMeta(Protocol):
    """Any object."""

    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=HasMeta)


class Cache(Generic[T]):
    """The newest known version of each object, by namespace and name."""

    def __init__(self) -> None:
        self._known: dict[Key, T] = {}
        self._gone: dict[str, None] = {}

    def observe(self, found: T) -> bool:
        """Take in a version; whether it is news."""
        metadata = found.metadata
        if metadata.uid in self._gone:
            return False
        key = (metadata.namespace, metadata.name)
        known = self._known.get(key)
        if known is not None and not _is_newer(metadata, known.metadata):
            return False
        self._known[key] = found
        return True

    def forget(self, namespace: str, name: str, uid: str) -> T | None:
        """The object is gone; returns what was known of it."""
        self._gone[uid] = None
        if len(self._gone) > TOMBSTONES_MAX:
            del self._gone[next(iter(self._gone))]
        known = self._known.get((namespace, name))
        if known is None or known.metadata.uid != uid:
            return None
        return self._known.pop((namespace, name))

    def get(self, namespace: str, name: str) -> T | None:
        return self._known.get((namespace, name))

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)


def _is_newer(new: Meta, old: Meta) -> bool:
    """Versions of one object grow; other objects of the name are newer than it."""
    if new.uid != old.uid:
        return True
    version, known = natural(new.resource_version), natural(old.resource_version)
    return version is None or known is None or version > known
