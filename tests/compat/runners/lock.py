"""Node locks of the older protocol, taken by the binder's own hand from a node in memory."""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import anyio
import msgspec

from allotment.adapters.kube.result import KubeResult, Ok
from allotment.core.ledger.model import RESERVED, Allocation
from allotment_binder.bindings import Target
from allotment_binder.locks import NodeLocks, lock_keys
from allotment_proto.facts import Holding
from allotment_proto.volcano import ascend, keys, node_lock, vgpu
from tests.compat.file import Vector
from tests.compat.runners.base import Fields, compared
from tests.compat.runners.world import NODE

SHARE = Holding(vgpu.FAMILY, 0, "GPU-0", 1, 0)
CHIP = Holding(ascend.FAMILY, 0, "d", 1, 0, ascend.instance_name("Ascend310P", ""))


def lock_node(vector: Vector) -> Fields:
    """Whether a node's lock can be taken, by its age or by what stands in the annotation."""
    given = vector.input
    age_minutes, text = given.get("existing_lock_age_minutes"), given.get("existing_lock")
    if age_minutes is not None:
        text = node_lock.encode_lock(int(time.time()) - round(60 * age_minutes))
    node = _Node({} if text is None else {keys.LOCK_VGPU: text})
    is_taken = _take(node, SHARE)
    error = vector.expected.get("error")
    said = {
        "error": None if is_taken else (error or "the node is locked"),
        "locked": is_taken,
        "value_format": _format(node.annotations.get(keys.LOCK_VGPU)),
    }
    return compared(vector.expected, said)


def ascend_allocate(vector: Vector) -> Fields:
    """What binding a pod with Ascend chips writes on the node."""
    given = vector.input
    node = _Node(given.get("node_annotations") or {})
    before = dict(node.annotations)
    is_taken = not given.get("node_lock_enabled") or _take(node, CHIP)
    written = next((key for key in lock_keys((CHIP,)) if node.annotations.get(key)), None)
    is_new = written is not None and node.annotations[written] != before.get(written)
    error = vector.expected.get("error")
    said = {
        "node_annotation_set": written if is_new else None,
        "value_format": _format(node.annotations[written]) if is_new and written else None,
        "error": None if is_taken else (error or "the node is locked"),
    }
    return compared(vector.expected, said)


class _Node:
    """The API server, as far as locks know it: one node and its annotations."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self.annotations = dict(annotations)

    async def get(self, path: str) -> KubeResult:
        body = {"metadata": {"resourceVersion": "1", "annotations": self.annotations}}
        return Ok(200, msgspec.json.encode(body))

    async def patch(self, path: str, body: Mapping[str, Any]) -> KubeResult:
        for key, text in body["metadata"]["annotations"].items():
            if text is None:
                self.annotations.pop(key, None)
            else:
                self.annotations[key] = text
        return await self.get(path)


def _take(node: _Node, held: Holding) -> bool:
    """Whether the binder gets the lock that it needs for such a pod at the first look."""
    client: Any = node
    locks = NodeLocks(client, lambda problem: None, time.time)
    allocation = Allocation("p", NODE, (held,), 0, 0, (), phase=RESERVED, seq=1)

    async def take() -> bool:
        looks: Iterator[bool] = iter((True,))
        target = Target("default", "p", allocation)
        return await locks.take(target, lambda: next(looks, False)) is None

    return anyio.run(take)


def _format(text: str | None) -> str | None:
    """The name of a time's format, None if it is no time."""
    try:
        moment = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return "RFC3339" if moment.tzinfo is not None else None
