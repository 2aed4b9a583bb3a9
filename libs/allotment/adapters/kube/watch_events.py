"""What a reflector tells: the events of one kind of object, its counts and its patience."""

from random import Random
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Identity(msgspec.Struct, frozen=True, gc=False):
    """Which object it is."""

    namespace: str
    name: str
    uid: str


class Added(msgspec.Struct, Generic[T], frozen=True):
    """An object that did not exist before, as far as events say."""

    identity: Identity
    object: T


class Modified(msgspec.Struct, Generic[T], frozen=True):
    """A known object in a new version."""

    identity: Identity
    object: T


class Deleted(msgspec.Struct, frozen=True):
    """An object is gone; seen on the stream, or missing in a relist."""

    identity: Identity


class Undecodable(msgspec.Struct, frozen=True):
    """An object exists that does not fit the type it was to be read as, or cannot be dealt with."""

    namespace: str
    name: str
    uid: str
    raw: bytes
    error: str


class Synced(msgspec.Struct, frozen=True):
    """A whole list has been reported: what we know is the state at `resource_version`."""

    resource_version: str
    objects: int


WatchEvent = Added[T] | Modified[T] | Deleted | Undecodable | Synced


class Stats(msgspec.Struct):
    """Plain counts, for metrics."""

    lists: int = 0
    watches: int = 0
    probes: int = 0
    events: int = 0
    expired: int = 0
    failures: int = 0
    undecodable: int = 0


class Backoff(msgspec.Struct, frozen=True):
    """How long to wait after the n-th failure in a row: doubling, bounded, half of it by dice."""

    first_s: float = 0.5
    max_s: float = 30.0

    def delay_s(self, failures: int, random: Random) -> float:
        whole_s = min(self.max_s, self.first_s * 2.0 ** min(failures - 1, 20))
        return whole_s * (0.5 + random.random() / 2)
