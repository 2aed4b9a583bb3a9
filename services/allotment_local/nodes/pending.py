"""Which pods wait for a device plugin, by node: kept up to date by pod events, never searched for.

The real plugins list all pods of the cluster in every Allocate and pick by annotation. This is the
same choice with the list already narrowed: a record enters when its annotations say that it waits,
and leaves when they no longer do, so what is looked through is only what waits on one node.
"""

from typing import Any, NamedTuple

from allotment_local.nodes.amounts import amounts, limits
from allotment_proto.volcano import keys

TIME_NEVER = (1 << 64) - 1
"""What a missing or unreadable time counts as: served last."""


class Waiting(NamedTuple):
    """A pod that waits for a plugin. Sorted as the API server lists pods."""

    namespace: str
    name: str
    uid: str
    amounts: tuple[int, ...]
    """How many devices it is served for: the pod's entries, or each container's limit."""
    time: int

    @property
    def label(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


ASCEND = "ascend"
"""In place of a resource: HAMi's plugins ask for no particular one."""
_Place = tuple[str, str]
"""(node, resource)"""


class Pending:
    """Waiting pods by node and resource."""

    def __init__(self) -> None:
        self._waiting: dict[_Place, dict[str, Waiting]] = {}
        self._places: dict[str, tuple[_Place, ...]] = {}

    def observe(self, pod: dict[str, Any]) -> None:
        """A pod was created or changed."""
        metadata = pod["metadata"]
        uid = metadata["uid"]
        found = dict((*_vgpu(pod), *_gpushare(pod), *_ascend(pod), *_mindcluster(pod)))
        for place in self._places.get(uid, ()):
            if place not in found:
                self._drop(place, uid)
        for place, waiting in found.items():
            self._waiting.setdefault(place, {})[uid] = waiting
        if found:
            self._places[uid] = tuple(found)
        else:
            self._places.pop(uid, None)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        for place in self._places.pop(uid, ()):
            self._drop(place, uid)

    def pick_vgpu(self, node: str, amount: int) -> Waiting | None:
        """The pod whose entries number exactly `amount`, with the smallest time.

        Among equal times the last listed wins if it has the smallest, else the first listed.
        """
        candidates = sorted(
            waiting
            for waiting in self._waiting.get((node, keys.VGPU_NUMBER), {}).values()
            if waiting.amounts == (amount,)
        )
        if not candidates:
            return None
        smallest = min(candidate.time for candidate in candidates)
        if candidates[-1].time == smallest:
            return candidates[-1]
        return next(candidate for candidate in candidates if candidate.time == smallest)

    def pick_share(self, node: str, resource: str, amount: int) -> Waiting | None:
        """The earliest unserved pod of which any container asks for exactly `amount`."""
        candidates = [
            waiting
            for waiting in self._waiting.get((node, resource), {}).values()
            if amount in waiting.amounts
        ]
        return min(candidates, key=lambda waiting: (waiting.time, waiting), default=None)

    def pick_ascend(self, node: str, named: str | None = None) -> Waiting | None:
        """The pod that the node's lock names (``namespace/name``), else the first listed."""
        candidates = sorted(self._waiting.get((node, ASCEND), {}).values())
        if named is not None:
            return next((w for w in candidates if w.label == named), None)
        return candidates[0] if candidates else None

    def _drop(self, place: _Place, uid: str) -> None:
        there = self._waiting[place]
        del there[uid]
        if not there:
            del self._waiting[place]


def _vgpu(pod: dict[str, Any]) -> tuple[tuple[_Place, Waiting], ...]:
    """Neither the pod's phase nor its nodeName is looked at, as in the plugin."""
    annotations = pod["metadata"].get("annotations") or {}
    node, text = annotations.get(keys.VGPU_NODE), annotations.get(keys.DEVICES_TO_ALLOCATE)
    if not node or not text:
        return ()
    entries = sum("," in piece for group in text.split(";") for piece in group.split(":"))
    if not entries:
        return ()
    waiting = _waiting(pod, (entries,), annotations.get(keys.VGPU_TIME))
    return (((node, keys.VGPU_NUMBER), waiting),)


def _gpushare(pod: dict[str, Any]) -> tuple[tuple[_Place, Waiting], ...]:
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get(keys.GPU_ASSIGNED, "false") != "false":
        return ()
    time = annotations.get(keys.PREDICATE_TIME)
    return _asking(pod, (keys.GPU_MEMORY, keys.GPU_NUMBER), time)


def _ascend(pod: dict[str, Any]) -> tuple[tuple[_Place, Waiting], ...]:
    """A pod that was served still waits for HAMi's plugin as long as it is pending."""
    annotations = pod["metadata"].get("annotations") or {}
    node = pod["spec"].get("nodeName")
    if (
        not node
        or not _is_pending(pod)
        or annotations.get(keys.HAMI_NODE) != node
        or keys.HAMI_BIND_TIME not in annotations
        or annotations.get(keys.HAMI_BIND_PHASE) not in (keys.PHASE_ALLOCATING, keys.PHASE_SUCCESS)
    ):
        return ()
    return (((node, ASCEND), _waiting(pod, (), annotations.get(keys.HAMI_TIME))),)


def _mindcluster(pod: dict[str, Any]) -> tuple[tuple[_Place, Waiting], ...]:
    annotations = pod["metadata"].get("annotations") or {}
    if keys.NPU_CORE not in annotations or keys.ASCEND_REAL in annotations:
        return ()
    return _asking(pod, (keys.NPU_CORE,), annotations.get(keys.NPU_PREDICATE_TIME))


def _asking(
    pod: dict[str, Any], resources: tuple[str, ...], time: str | None
) -> tuple[tuple[_Place, Waiting], ...]:
    """Where a pod waits whose containers ask for some of these resources."""
    spec = pod["spec"]
    node = spec.get("nodeName")
    if not node or "deletionTimestamp" in pod["metadata"] or not _is_pending(pod):
        return ()
    asked: dict[str, list[int]] = {}
    for container in spec["containers"]:
        given = limits(container)
        for resource in resources:
            if resource in given:
                amount = amounts({resource: given[resource]})[resource]
                asked.setdefault(resource, []).append(amount)
    return tuple(
        ((node, resource), _waiting(pod, tuple(wanted), time)) for resource, wanted in asked.items()
    )


def _is_pending(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Pending"


def _waiting(pod: dict[str, Any], wanted: tuple[int, ...], time: str | None) -> Waiting:
    metadata = pod["metadata"]
    return Waiting(metadata["namespace"], metadata["name"], metadata["uid"], wanted, _time(time))


def _time(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        return TIME_NEVER
    return min(int(text), TIME_NEVER)
