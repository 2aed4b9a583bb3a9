"""One question about Ascend chips at a time."""

from collections.abc import Mapping
from typing import Any

from allotment.core.explain.rows.acknowledgement import standing
from allotment.core.ledger.model import Pod
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.ascend import slice_mode
from allotment.core.placement.devices.choosing import Chosen, Pick, Rules, choose_cards
from allotment.core.placement.devices.free import in_order
from allotment.core.placement.rules.predicates import Fit
from allotment.core.placement.rules.scores import score
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import (
    DeviceRequest,
    Holding,
    Inventory,
    PodRequest,
    Problem,
    Selection,
)
from allotment_proto.volcano import ascend as wire
from allotment_proto.volcano import keys
from allotment_watcher.normalise import pod_fact
from tests.compat.file import Vector
from tests.compat.runners.ascend import (
    CORES_WHOLE,
    FAMILY,
    LARGE_MIB,
    WORD,
    any_chip,
    chip_fact,
    chip_of,
    code,
    config_for,
    config_with,
    pod_mode,
    use_chip,
)
from tests.compat.runners.base import Fields, compared
from tests.compat.runners.refusals import error_pair, message_pair
from tests.compat.runners.world import (
    MICRO,
    POINTS_DIGITS,
    World,
    inventory_of,
    node_source,
    pod_object,
    pod_source,
    policy_of,
    written_keys,
)


def trim_memory(vector: Vector) -> Fields:
    """What a request for so much memory gets."""
    found = wire.trim_memory(chip_of(vector.input["config"]), vector.input["memory"])
    got = found.message if isinstance(found, Problem) else found[0]
    return compared(vector.expected, {"memory": got})


def verify_request(vector: Vector) -> Fields:
    """Whether so many chips can be had with so much memory each."""
    given = vector.input
    config = config_with(chip_of(given["config"]))
    chip = config.ascend[0]
    limits = {chip.resource_name: str(given["nums"]), chip.resource_memory_name: str(given["mem"])}
    pod = {"containers": [{"limits": limits}], "annotations": pod_mode(given)}
    _, problem = FAMILIES[FAMILY].requests(pod_source(pod, config))
    error = vector.expected.get("error")
    said = {"ok": problem is None, "error": (error or problem.message) if problem else None}
    return compared(vector.expected, said)


def filter_pod(vector: Vector) -> Fields:
    """One pod on one node, whose chips are listed with what is used of them."""
    given, expected = vector.input, dict(vector.expected)
    config = config_with(chip_of(given["config"]))
    word = config.ascend[0].common_word
    soft = bool(given.get("node_hami_core"))
    facts = [
        chip_fact(i, n, d, word, soft=soft) for n, (i, d) in enumerate(given["devices"].items())
    ]
    mode = keys.MODE_HAMI_CORE if soft else ""
    inventory = Inventory(FAMILY, mode, tuple(facts))
    world = World(FAMILY, inventory, policy_of(given.get("policy")), config)
    for name, device in given["devices"].items():
        use_chip(world, word, name, device.get("used", 0), device)
    fact = world.fact(
        {
            "name": "p",
            "annotations": pod_mode(given),
            "containers": given.get("containers") or [{"limits": given.get("limits") or {}}],
        }
    )
    found = world.fit(fact)
    refusal = found if isinstance(found, str) else None
    out: Fields = {}
    for name, pair in (("error", error_pair), ("message", message_pair)):
        if name in expected:
            out[name] = pair(expected.pop(name), refusal)
    said = {
        "code": code(found) if isinstance(found, str) else 0,
        "score": world.points(fact, found) if isinstance(found, Fit) else None,
        "fit": isinstance(found, Fit),
    }
    return {**out, **compared(expected, said)}


def device_fits(vector: Vector) -> Fields:
    """Whether one chip takes one share; the memory is what a request was trimmed to."""
    given = vector.input
    word, wanted = given["type"], given["request"]
    soft = bool(given.get("node_hami_core"))
    fact = chip_fact("d", 0, given["device"], word, soft=soft)
    mode = keys.MODE_HAMI_CORE if soft else ""
    world = World(FAMILY, Inventory(FAMILY, mode, (fact,)), policy_of(None), config_for(word))
    usage = given.get("usage") or {}
    use_chip(world, word, "d", usage.get("used", 0), usage)
    slices = pod_mode(given)
    asked = DeviceRequest(
        family=FAMILY,
        container=0,
        container_name="c0",
        count=wanted.get("nums", 1),
        memory_mib=wanted.get("mem", 0),
        memory_pct=0,
        cores_pct=wanted.get("core", 0),
        chip=word,
        templates=(wire.SOFT,) if slices else (),
    )
    found = choose_cards(
        world.state.nodes[world.name].ledgers[FAMILY],
        [asked],
        Rules(Selection(mode=slice_mode(slices))),
        FAMILIES[FAMILY],
        lambda cards, _: in_order(cards, "first"),
    )
    return compared(vector.expected, {"fits": not isinstance(found, str)})


def device_score(vector: Vector) -> Fields:
    """The points of one chosen chip, in the state before it is charged."""
    given = vector.input
    word = given.get("type", WORD)
    fact = chip_fact("d", 0, {"count": 100, **given}, word)
    policy = policy_of(given.get("policy"))
    world = World(FAMILY, Inventory(FAMILY, "", (fact,)), policy, config_for(word))
    used_mib = given.get("usedmem", 0)
    pick = Pick(world.cards[0], given.get("used", 0) == 0, used_mib, fact.memory_mib - used_mib)
    held = Holding(FAMILY, 0, "d", 0, 0, wire.instance_name(word, ""))
    asked = DeviceRequest(FAMILY, 0, "c0", 1, 0, 0, 0, chip=word)
    found = Fit((Chosen((held,), (pick,)),))
    request = PodRequest(devices=(asked,))
    terms = score(world.state.nodes[world.name], request, found, policy).terms
    expected = {name: round(float(value), POINTS_DIGITS) for name, value in vector.expected.items()}
    return compared(expected, {"score": round(dict(terms)["device"] / MICRO, POINTS_DIGITS)})


def node_devices(vector: Vector) -> Fields:
    """The chips that a node registers, and whether they are sliced softly."""
    given = vector.input
    config = config_with(any_chip(WORD), soft=bool(given.get("global_hamiVnpuCore")))
    annotations = {
        keys.hami_register(WORD): given.get("register"),
        keys.HAMI_SOFT_SLICING: given.get("annotation_hami-vnpu-core"),
    }
    node = {
        "annotations": {key: text for key, text in annotations.items() if text is not None},
        "allocatable": {config.ascend[0].resource_name: "1"},
    }
    inventory = inventory_of(FAMILY, node, config)
    cards = inventory.cards if inventory is not None else ()
    said = {
        "devices": len(cards),
        "ids": [card.id for card in cards],
        "hami_core_supported": wire.slices_softly(
            node_source(node).annotations, config.ascend_soft_slicing
        ),
    }
    return compared(vector.expected, said)


def add_pod_usage(vector: Vector) -> Fields:
    """A bound pod's annotation, charged `times` times."""
    given = vector.input
    word = given["type"]
    config = config_for(word)
    free = {"count": 100, "devmem": LARGE_MIB, "devcore": CORES_WHOLE}
    facts = tuple(chip_fact(name, n, free, word) for n, name in enumerate(given["devices"]))
    world = World(FAMILY, Inventory(FAMILY, "", facts), policy_of(None), config)
    for name, used in (given.get("existing") or {}).items():
        use_chip(world, word, name, used.get("used", 0), used)
    text = given.get("annotation_devices-allocated")
    annotations = {keys.hami_allocated(word): text} if text is not None else {}
    for _ in range(given.get("times", 1)):
        world.add({"uid": "p", "annotations": annotations})
    usage = {
        card.fact.id: {
            "used": card.used_slots,
            "mem": card.used_memory_mib,
            "core": card.used_cores_pct,
        }
        for card in world.cards
    }
    return compared(vector.expected, {"usage": usage})


def release(vector: Vector) -> Fields:
    """What becomes of a pod's annotations when it is not to stay."""
    expected, annotations = vector.expected, vector.input["pod_annotations"]
    word = next(
        (
            key.removeprefix("hami.io/").removesuffix("-devices-allocated")
            for key in annotations
            if key.endswith("-devices-allocated")
        ),
        WORD,
    )
    written = written_keys(FAMILY, word)
    committed = annotations.get(keys.HAMI_BIND_PHASE) == keys.PHASE_SUCCESS
    config = config_for(word)
    on_server = annotations if committed else {}
    pending = pod_fact(pod_object({"annotations": on_server}, "", 1), policy_of(None), config)
    said: dict[str, Any] = {
        "keys_to_remove": None if committed else sorted(written),
        "keys_to_remove_include": [
            key for key in expected.get("keys_to_remove_include") or () if key in written
        ],
        "other_annotations_kept": [
            key for key in expected.get("other_annotations_kept") or () if key not in written
        ],
        "apiserver_annotations_untouched": standing(Pod(pending, 0)) is None,
        "annotations_kept": committed and not _place_is_lost(annotations, word, config),
    }
    return compared(expected, said)


def _place_is_lost(annotations: Mapping[str, str], word: str, config: DeviceConfig) -> bool:
    """Whether a bound pod loses its chips when a late outcome says that it was not bound."""
    groups, _ = wire.decode_assignment(annotations.get(keys.hami_allocated(word), ""), word)
    free = {"count": 100, "devmem": LARGE_MIB, "devcore": CORES_WHOLE}
    facts = tuple(
        chip_fact(name, n, free, word)
        for n, name in enumerate(sorted({entry.card for group in groups for entry in group}))
    )
    world = World(FAMILY, Inventory(FAMILY, "", facts), policy_of(None), config)
    world.add({"uid": "p", "annotations": annotations})
    return world.bind_fails("p")
