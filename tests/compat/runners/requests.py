"""What pods ask for and what is written on them: texts in, texts out."""

from collections.abc import Mapping
from typing import Any

from allotment.core.explain.rows.acknowledgement import standing
from allotment.core.ledger.model import Pod
from allotment.core.placement.devices import FAMILIES
from allotment_proto.facts import CardFact
from allotment_proto.volcano import exclusive, keys, mig
from allotment_proto.volcano import vgpu as wire
from allotment_watcher.normalise import pod_fact
from tests.compat.file import Vector
from tests.compat.runners import gpushare, vgpu
from tests.compat.runners.base import Fields, compared
from tests.compat.runners.world import (
    NODE,
    World,
    inventory_of,
    pod_object,
    pod_source,
    policy_of,
    written_keys,
)

PERCENT_UNSET = 101
"""What Volcano calls a percentage that was not given."""
SHARED_NODE = {"capacity": {keys.GPU_MEMORY: "1000", keys.GPU_NUMBER: "4"}}


def container_requests(vector: Vector) -> Fields:
    """What each asking container wants, in the fields that the vector names."""
    requests, _ = FAMILIES[vgpu.FAMILY].requests(pod_source(vector.input))
    said = [
        {
            "nums": r.count,
            "mem": r.memory_mib,
            "memPercentage": r.memory_pct or PERCENT_UNSET,
            "core": r.cores_pct,
            "cores": r.cores_pct,
            "type": wire.ENTRY_TYPE,
        }
        for r in requests
    ]
    named = {name for wanted in vector.expected.get("requests") or () for name in wanted}
    got = [{name: r[name] for name in named if name in r} for r in said]
    return compared(vector.expected, {"requests": got})


def decode_container_devices(vector: Vector) -> Fields:
    groups, _ = wire.decode_assignment(vector.input["text"])
    got = [
        {
            "uuid": mig.encode_id(e.card, e.instance),
            "type": e.type,
            "mem": e.memory_mib,
            "core": e.cores_pct,
        }
        for group in groups
        for e in group
    ]
    return compared(vector.expected, {"devices": got})


def encode_node_devices(vector: Vector) -> Fields:
    facts = tuple(
        CardFact(d["id"], i, d["type"], d["count"], d["devmem"], 100, d["health"], d["mode"])
        for i, d in enumerate(vector.input["devices"])
    )
    return compared(vector.expected, {"text": wire.encode_register(facts)})


def pod_group_key(vector: Vector) -> Fields:
    pod = vector.input.get("pod")
    key = ""
    if pod is not None:
        key = exclusive.group_key(pod.get("namespace") or "", pod.get("annotations") or {})
    return compared(vector.expected, {"key": key})


def binding(vector: Vector) -> Fields:
    """A Binding of ours next to what Volcano merges into a Binding, or into its task."""
    world = _world({}, vgpu.FAMILY, vector.input.get("node") or NODE)
    limits = {keys.VGPU_NUMBER: "1", keys.VGPU_MEMORY: "1000"}
    written = world.allocate({"uid": "p", "containers": [{"limits": limits}]})
    allocation = world.state.pods["p"].allocation
    target = allocation.node if allocation is not None else None
    said = {"target": target, "binding_annotations": written, "result": written}
    return compared(vector.expected, said)


def vgpu_release(vector: Vector) -> Fields:
    """What becomes of a pod's annotations when it is not to stay."""
    return _release(vector, vgpu.FAMILY)


def gpushare_release(vector: Vector) -> Fields:
    return _release(vector, gpushare.FAMILY)


def _release(vector: Vector, family: str) -> Fields:
    """A committed pod keeps its place whatever an outcome says; a reservation that fails never had
    our annotations on the API server, and what it had in mind to write is all there is to undo."""
    given, expected = vector.input, vector.expected
    annotations = given["pod_annotations"]
    written = written_keys(family)
    committed = annotations.get(keys.BIND_PHASE) == keys.PHASE_SUCCESS
    on_server = annotations if committed else {}
    pending = pod_fact(pod_object({"annotations": on_server}, "", 1), policy_of(None))
    said: dict[str, Any] = {
        "keys_to_remove": None if committed else sorted(written),
        "keys_to_remove_include": [
            key for key in expected.get("keys_to_remove_include") or () if key in written
        ],
        "other_annotations_kept": [
            key for key in expected.get("other_annotations_kept") or () if key not in written
        ],
        "apiserver_annotations_untouched": standing(Pod(pending, 0)) is None,
        "annotations_kept": committed and not _place_is_lost(annotations, family),
        "pod_on_device": _card_after(annotations, family),
    }
    return compared(expected, said)


def _world(annotations: Mapping[str, str], family: str, node: str = NODE) -> World:
    """A node with the cards that the annotations name."""
    if family == gpushare.FAMILY:
        inventory = inventory_of(family, SHARED_NODE)
    else:
        groups, _ = wire.decode_assignment(annotations.get(keys.VGPU_IDS, ""))
        names = {entry.card for group in groups for entry in group} or {"GPU-0"}
        inventory = vgpu.inventory({"devices": [{"uuid": n, "memory": 10**5} for n in names]})
    assert inventory is not None
    return World(family, inventory, policy_of(None), node=node)


def _place_is_lost(annotations: Mapping[str, str], family: str) -> bool:
    """Whether a bound pod loses its cards when a late outcome says that it was not bound."""
    world = _world(annotations, family)
    world.add({"uid": "p", "annotations": annotations})
    return world.bind_fails("p")


def _card_after(annotations: Mapping[str, str], family: str) -> int | None:
    """The card on which the pod still is once it is gone."""
    world = _world(annotations, family)
    world.add({"uid": "p", "annotations": annotations})
    world.remove("p")
    return next((card.fact.index for card in world.cards if card.holders), None)
