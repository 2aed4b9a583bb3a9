"""The device plugins' side of Allocate, with their ways of finding out whom they are serving.

A plugin is told only a number of devices. Which pod that is for it guesses from annotations, and
can guess wrong when two pods wait; the caller compares. Amounts of a kind of which nothing is said
here (memory and cores of vGPU) are answered with an empty grant, as the plugin does.

Source: `volcano-vgpu-device-plugin` `plugin/vgpu/plugin.go`, `util.go`; `volcano-sh/devices`
`pkg/plugin/nvidia/server.go`.
"""

from typing import Any, NamedTuple

from allotment_local.apiserver.resources import PODS
from allotment_local.apiserver.store import Store
from allotment_local.nodes.amounts import amounts, limits
from allotment_local.nodes.annotations import FAULT, pod_fault
from allotment_local.nodes.books import CORES_WHOLE_PCT, Books, CardKey, Grant
from allotment_local.nodes.inventory import GPUSHARE, VGPU, Hardware
from allotment_local.nodes.pending import Pending, Waiting
from allotment_proto.volcano import gpushare, keys, vgpu

NO_VALID_POD = "cannot get valid pod"
_ASKED_FOR = f"annotation {FAULT} asks for it"


class Served(NamedTuple):
    """Devices for one container."""

    grants: tuple[Grant, ...] = ()
    record: tuple[str, str] | None = None
    """The annotation, with its value, of the pod on whose record they were handed out."""


class Plugins:
    """All device plugins of one node."""

    def __init__(
        self, node: str, hardware: Hardware, store: Store, pending: Pending, books: Books
    ) -> None:
        self._node = node
        self._store = store
        self._pending = pending
        self._books = books
        self._whole = dict(hardware.whole)
        self._share_memory_mib = {card.id: card.memory_mib for card in hardware.gpushare}
        self.unhealthy: frozenset[str] = frozenset()
        for family, cards in ((VGPU, hardware.vgpu), (GPUSHARE, hardware.gpushare)):
            for card in cards:
                key = CardKey(node, family, card.id)
                books.add_card(key, card.index, card.slots, card.memory_mib)
        for name, count in hardware.whole:
            for index in range(count):
                books.add_card(CardKey(node, name, str(index)), index, slots=1, memory_mib=0)

    def allocate(self, resource: str, amount: int, *, fails: bool = False) -> Served | str:
        """Serve one container's request of one resource; a text says why not.

        `fails`: the pod being admitted asks for a failure. Plugins that choose a pod themselves
        look at the pod that they chose instead.
        """
        if resource == keys.VGPU_NUMBER:
            return self._vgpu(amount)
        if resource in (keys.GPU_MEMORY, keys.GPU_NUMBER):
            return self._gpushare(resource, amount)
        if resource in self._whole:
            return _ASKED_FOR if fails else self._whole_cards(resource, amount)
        return Served()

    # vGPU

    def _vgpu(self, amount: int) -> Served | str:
        waiting = self._pending.pick_vgpu(self._node, amount)
        if waiting is None:
            return NO_VALID_POD
        annotations = self._annotations(waiting)
        if pod_fault(annotations.get(FAULT, "")) is True:
            return self._failed(waiting, _ASKED_FOR)
        text = annotations[keys.DEVICES_TO_ALLOCATE]
        record = (keys.VGPU_IDS, annotations.get(keys.VGPU_IDS, ""))
        groups = text.split(";")
        position = next((i for i, group in enumerate(groups) if _is_served(group)), None)
        if position is None:
            return self._failed(waiting, "device request not found")
        (entries,), unreadable = vgpu.decode_assignment(groups[position])
        if len(entries) + len(unreadable) != amount:
            return self._failed(waiting, "device number not matched")
        if unreadable:
            return f"cannot read the devices: {unreadable[0].message}"
        grants = []
        for entry in entries:
            key = CardKey(self._node, VGPU, entry.card)
            if self._books.account(key) is None:
                return f"there is no card {entry.card!r} on node {self._node}"
            grants.append(Grant(key, entry.memory_mib, entry.cores_pct))
        groups[position] = ""
        erased = ";".join(groups)
        changes = {keys.DEVICES_TO_ALLOCATE: erased}
        if "GPU" not in erased:  # the plugin patches twice, the second time within milliseconds
            changes |= _finished(keys.PHASE_SUCCESS)
        self._annotate(waiting, changes)
        return Served(tuple(grants), record)

    def _failed(self, waiting: Waiting, why: str) -> str:
        self._annotate(waiting, _finished(keys.PHASE_FAILED))
        return why

    # GPU memory and GPU number

    def _gpushare(self, resource: str, amount: int) -> Served | str:
        waiting = self._pending.pick_share(self._node, resource, amount)
        if waiting is None:
            return "failed to find candidate pod"
        pod = self._store.get(PODS, waiting.namespace, waiting.name)
        annotations = pod["metadata"].get("annotations") or {}
        if pod_fault(annotations.get(FAULT, "")) is True:
            return _ASKED_FOR
        place = f"annotation {keys.GPU_INDEX}"
        indexes, problems = gpushare.decode_indexes(annotations.get(keys.GPU_INDEX, ""), place)
        unknown = [index for index in indexes if str(index) not in self._share_memory_mib]
        if problems or unknown or not indexes:
            text = annotations.get(keys.GPU_INDEX)
            return f"{place} of pod {waiting.name} is {text!r}, which names no card of this node"
        whole = resource == keys.GPU_NUMBER
        # Each container is one Allocate, but the pod is assigned at the first: all of it is booked.
        asked_mib = sum(
            amounts({resource: limits(container).get(resource, 0)})[resource]
            for container in pod["spec"]["containers"]
        )
        self._annotate(waiting, {keys.GPU_ASSIGNED: "true"})
        return Served(
            tuple(
                Grant(
                    CardKey(self._node, GPUSHARE, str(index)),
                    self._share_memory_mib[str(index)] if whole else asked_mib,
                    CORES_WHOLE_PCT if whole else 0,
                )
                for index in indexes
            ),
            (keys.GPU_INDEX, annotations[keys.GPU_INDEX]),
        )

    # Whole cards: the kubelet itself chooses among those that are free

    def _whole_cards(self, resource: str, amount: int) -> Served | str:
        free: list[CardKey] = []
        for index in range(self._whole[resource]):
            key = CardKey(self._node, resource, str(index))
            account = self._books.account(key)
            if account is not None and not account.held and key.card not in self.unhealthy:
                free.append(key)
        if len(free) < amount:
            return (
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {amount}, Available: {len(free)}"
            )
        return Served(tuple(Grant(key, 0, CORES_WHOLE_PCT) for key in free[:amount]))

    def _annotations(self, waiting: Waiting) -> dict[str, str]:
        pod = self._store.get(PODS, waiting.namespace, waiting.name)
        found: dict[str, str] = pod["metadata"].get("annotations") or {}
        return found

    def _annotate(self, waiting: Waiting, annotations: dict[str, str]) -> None:
        patch: dict[str, Any] = {"metadata": {"annotations": annotations}}
        self._store.merge_patch(PODS, waiting.namespace, waiting.name, patch)


def _finished(phase: str) -> dict[str, str]:
    """What marks a pod as served, or as failed."""
    return {keys.BIND_PHASE: phase, keys.VGPU_TIME: keys.VGPU_TIME_DONE}


def _is_served(group: str) -> bool:
    """The group holds a device of this plugin; one already handed out is empty."""
    return any(
        len(fields) > 1 and fields[1] == vgpu.ENTRY_TYPE
        for fields in (piece.split(",") for piece in group.split(":"))
    )
