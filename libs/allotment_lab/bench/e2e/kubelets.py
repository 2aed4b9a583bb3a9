"""Kubelets and vGPU plugins for nodes that have none: `allot bench e2e --kubeconfig`.

A kube-apiserver alone starts no pod. Here each node of the bench has a line of pods, in the order
in which their Bindings were committed. One at a time they are given to the device plugin, which
takes its time and then serves the record with the smallest stamp and the right number of devices,
whosever it is, as the real one does. Containers start side by side.

The choice of the record and the books are those of local mode's plugins. The books know nothing of
the log, so they can testify against it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import anyio
import anyio.abc
import msgspec

from allotment_lab.bench.e2e.load import ACKNOWLEDGEMENT, BareClient
from allotment_local.nodes.amounts import amounts, limits
from allotment_local.nodes.books import MISDELIVERED, OVERSOLD, Books, CardKey, Grant, Holder
from allotment_local.nodes.inventory import VGPU, read_hardware
from allotment_local.nodes.pending import Pending
from allotment_proto.volcano import keys, vgpu

JsonObject = dict[str, Any]
NO_VALID_POD = "Pod was rejected: Allocate failed due to cannot get valid pod, which is unexpected"
_RUNNING = msgspec.json.encode({"status": {"phase": "Running"}})
_REJECTED = msgspec.json.encode(
    {
        "status": {
            "phase": "Failed",
            "reason": "UnexpectedAdmissionError",
            "message": NO_VALID_POD,
        }
    }
)


class Kubelets:
    """Those of one run's nodes; its pods come from the watch through `observe`."""

    def __init__(
        self,
        bare: BareClient,
        pods: str,
        tasks: anyio.abc.TaskGroup,
        nodes: Iterable[JsonObject],
        allocate_s: float,
    ) -> None:
        """`pods` is the path of the namespace's pods; `nodes` are the Node objects."""
        self.books = Books()
        self._bare = bare
        self._pods = pods
        self._tasks = tasks
        self._allocate_s = allocate_s
        self._pending = Pending()
        self._known: dict[str, JsonObject] = {}
        self._served: set[str] = set()
        """Pods whose record is used up, whatever an older event of the watch still says."""
        self._lines: dict[str, deque[JsonObject]] = {}
        self._heard: set[str] = set()
        for node in nodes:
            for card in read_hardware(node).vgpu:
                key = CardKey(node["metadata"]["name"], VGPU, card.id)
                self.books.add_card(key, card.index, card.slots, card.memory_mib, card.cores_pct)

    def observe(self, kind: str, pod: JsonObject) -> None:
        """A pod as the watch shows it, in the order of the API server's versions."""
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._pending.forget(uid)
            self._known.pop(uid, None)
            self.books.take_back(uid)
            return
        self._known[uid] = pod
        if uid not in self._served:
            self._pending.observe(pod)
        node = pod["spec"].get("nodeName")
        if not node or uid in self._heard:
            return
        self._heard.add(uid)
        line = self._lines.setdefault(node, deque())
        line.append(pod)
        if len(line) == 1:
            self._tasks.start_soon(self._serve, node, line)

    async def _serve(self, node: str, line: deque[JsonObject]) -> None:
        while line:
            await self._admit(node, line[0])
            line.popleft()

    async def _admit(self, node: str, pod: JsonObject) -> None:
        for container in pod["spec"]["containers"]:
            asked = amounts(limits(container))
            count = asked.get(keys.VGPU_NUMBER, 0)
            if count or any("/" in name for name in asked):
                await anyio.sleep(self._allocate_s)
            if count and not await self._allocate(node, pod, container["name"], count):
                await self._patch(pod["metadata"]["name"], "/status", _REJECTED)
                return
        self._tasks.start_soon(self._patch, pod["metadata"]["name"], "/status", _RUNNING)

    async def _allocate(self, node: str, pod: JsonObject, container: str, count: int) -> bool:
        """Serve a container with the first record that fits; whether there was one."""
        waiting = self._pending.pick_vgpu(node, count)
        if waiting is None:
            return False
        uid, label = pod["metadata"]["uid"], _label(pod)
        annotations = self._known[waiting.uid]["metadata"]["annotations"]
        self._served.add(waiting.uid)
        self._pending.forget(waiting.uid)
        holdings, _ = vgpu.decode_assignment(annotations[keys.DEVICES_TO_ALLOCATE])
        for entry in (entry for group in holdings for entry in group):
            grant = Grant(CardKey(node, VGPU, entry.card), entry.memory_mib, entry.cores_pct)
            self.books.hand_out(Holder(uid, label, container), grant)
        if waiting.uid != uid:
            own = (pod["metadata"].get("annotations") or {}).get(keys.VGPU_IDS)
            if own != annotations.get(keys.VGPU_IDS):
                self.books.incident(MISDELIVERED, node, "", label, f"record of {waiting.label}")
        await self._patch(waiting.name, "", ACKNOWLEDGEMENT)
        return True

    async def _patch(self, name: str, part: str, body: bytes) -> None:
        await self._bare.merge(f"{self._pods}/{name}{part}", body)

    def counts(self) -> dict[str, int]:
        return {code: self.books.counts[code] for code in (OVERSOLD, MISDELIVERED)}


def _label(pod: JsonObject) -> str:
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
