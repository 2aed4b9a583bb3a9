"""What all device plugins of a node work with: their orders, and the annotations they leave."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from allotment_local.apiserver.resources import NODES, PODS
from allotment_local.apiserver.store import Store
from allotment_local.nodes.annotations import ALLOCATE_FAILS, FAULT
from allotment_local.nodes.books import Books, CardKey, Grant
from allotment_local.nodes.pending import Pending, Waiting
from allotment_proto.device_config import DeviceConfig
from allotment_proto.volcano import device_config

ASKED_FOR = f"annotation {FAULT} asks for it"
_NOTHING: Mapping[str, str] = {}
_NAMES = uuid.UUID("b9c2b0a1-8d0e-5f43-8f0b-3a5f7c5c9d21")
"""What plugins draw at random is derived from this: the same in every run."""


class Record(NamedTuple):
    """By which annotation of which pod a plugin served a container."""

    pod: str
    """Namespace and name of the pod whose annotation it is."""
    key: str
    text: str


class Served(NamedTuple):
    """Devices for one container."""

    grants: tuple[Grant, ...] = ()
    record: Record | None = None
    """That on which they were handed out; None where a plugin goes by none."""
    env: Mapping[str, str] = _NOTHING
    """What the container's environment gets."""


class PluginContext:
    """What the plugins of one node share: the store, the pending pods and the books of cards."""

    def __init__(
        self,
        node: str,
        store: Store,
        pending: Pending,
        books: Books,
        config: Callable[[], DeviceConfig] = device_config.default,
    ) -> None:
        self.node = node
        self.pending = pending
        self.books = books
        self.config = config
        self.unhealthy: frozenset[str] = frozenset()
        self.failing: frozenset[str] = frozenset()
        """Cards that cannot be handed out."""
        self.gone: frozenset[str] = frozenset()
        self._store = store
        self._drawn = 0

    def pod(self, waiting: Waiting) -> dict[str, Any]:
        return self._store.get(PODS, waiting.namespace, waiting.name)

    def annotations(self, waiting: Waiting) -> dict[str, str]:
        return self.pod(waiting)["metadata"].get("annotations") or {}

    def annotate(self, waiting: Waiting, annotations: Mapping[str, str]) -> None:
        patch = {"metadata": {"annotations": dict(annotations)}}
        self._store.merge_patch(PODS, waiting.namespace, waiting.name, patch)

    def lock(self, name: str) -> str | None:
        """The value of the node's lock of this name."""
        node = self._store.get(NODES, "", self.node)
        found: str | None = (node["metadata"].get("annotations") or {}).get(name)
        return found

    def unlock(self, name: str) -> None:
        """Delete a lock of the node, regardless of its holder, as the plugins do."""
        if self.lock(name) is not None:
            patch = {"metadata": {"annotations": {name: None}}}
            self._store.merge_patch(NODES, "", self.node, patch)

    def trouble_with(self, annotations: Mapping[str, str], key: CardKey) -> str | None:
        """Why this card cannot be handed out to a pod with these annotations."""
        if annotations.get(FAULT) == ALLOCATE_FAILS:
            return ASKED_FOR
        if key.card in self.failing:
            return f"annotation {FAULT} of the node asks for it: {ALLOCATE_FAILS}={key.card}"
        if self.books.account(key) is None or key.card in self.gone:
            return f"there is no card {key.card!r} on node {self.node}"
        return None

    def draw_id(self) -> str:
        """An id that was never used."""
        self._drawn += 1
        return derived_id(f"{self.node}/{self._drawn}")


def derived_id(text: str) -> str:
    return str(uuid.uuid5(_NAMES, text))
