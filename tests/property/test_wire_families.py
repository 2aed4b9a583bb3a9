"""The new families' annotations decode to what was encoded; garbage is read or reported."""

import datetime
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allotment_proto.facts import CardFact, Holding, Problem
from allotment_proto.volcano import (
    ascend,
    device_config,
    exclusive,
    keys,
    mig,
    mig_tables,
    mindcluster,
    mindcluster_node,
    node_lock,
)
from allotment_proto.volcano.reading import SHOWN_MAX

ids = st.from_regex(r"[A-Za-z0-9-]{1,12}", fullmatch=True)
groups = st.from_regex(r"[A-Za-z0-9_.]{1,8}", fullmatch=True)
u32 = st.integers(0, (1 << 32) - 1)
WORD = "Ascend310P"


@given(ids, groups, st.integers(0, 999))
def test_mig_ids(card: str, group: str, position: int) -> None:
    text = mig.encode_id(card, mig.instance_name(group, position))
    assert mig.parse_id(text, "here") == mig.MigId(card, group, position)


@given(st.text() | st.from_regex(r"[a-b\[\]0-2-]*", fullmatch=True))
def test_any_mig_id_is_read_as_written_or_refused(text: str) -> None:
    found = mig.parse_id(text, "here")
    assert isinstance(found, Problem) or mig.encode_id(found.card, found.instance) == text


@given(st.sampled_from(mig_tables.DEFAULT), st.data())
def test_every_position_has_one_profile(model: Any, data: st.DataObject) -> None:
    geometry = data.draw(st.sampled_from(model.geometries))
    counted = [profile for _, profile in mig.positions(geometry)]
    assert counted == [p for p in geometry.profiles for _ in range(p.count)]
    for position in range(mig.instances(geometry) + 1):
        instance = mig.instance_name(geometry.name, position)
        expected = counted[position] if position < len(counted) else None
        assert mig.profile_of(model.geometries, instance) == expected


holdings = st.lists(
    st.builds(
        lambda container, card, memory, cores, template: Holding(
            "ascend", container, card, memory, cores, ascend.instance_name(WORD, template)
        ),
        st.integers(0, 3),
        ids,
        st.integers(1, (1 << 32) - 1),
        u32,
        st.sampled_from(("", "vir01", "vir02", ascend.SOFT)),
    ),
    min_size=1,
)


@given(holdings)
def test_ascend_annotations(held: list[Holding]) -> None:
    annotations = ascend.binding_annotations("n", held, 2, 1)
    asking = sorted({h.container for h in held})
    found, problems = ascend.decode_holdings(annotations, WORD, asking)
    assert problems == ()
    assert found == tuple(sorted(held, key=lambda h: h.container))
    work = annotations[keys.hami_to_allocate(WORD)]
    assert ascend.decode_assignment(work, WORD) == ascend.decode_assignment(
        annotations[keys.hami_allocated(WORD)], WORD
    )


@given(
    st.lists(
        st.builds(
            lambda card, slots, memory, cores, healthy, network: CardFact(
                card, 0, WORD, slots, memory, cores, healthy, "", network=network
            ),
            ids, st.integers(0, 99), st.integers(0, 99_999), st.integers(0, 100), st.booleans(),
            st.integers(-1, 3),
        ),
        min_size=1,
        unique_by=lambda card: card.id,
    )
)  # fmt: skip
def test_ascend_registers(cards: list[CardFact]) -> None:
    register = ascend.decode_register(ascend.encode_register(cards), WORD)
    assert register.problems == ()
    assert [card.index for card in register.cards] == list(range(len(cards)))
    for found, card in zip(register.cards, cards, strict=True):
        assert (found.id, found.slots, found.memory_mib, found.cores_pct) == (
            card.id, card.slots, card.memory_mib, card.cores_pct,
        )  # fmt: skip
        assert (found.healthy, found.network, found.model) == (card.healthy, card.network, WORD)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
REGISTER_KEYS = ("id", "count", "devmem", "devcore", "health", "custominfo", "NetworkID")
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(REGISTER_KEYS) | st.text(max_size=4), inner, max_size=4)
    ),
)


@given(st.text() | anything.map(json.dumps))
def test_any_ascend_text_is_read_or_reported(text: str) -> None:
    register = ascend.decode_register(text, WORD)
    assert bool(register.cards) != bool(register.problems)
    annotations = {keys.hami_allocated(WORD): text, keys.ascend_detail(WORD): text}
    found, problems = ascend.decode_holdings(annotations, WORD, ())
    assert found or problems or not set(text) - set(":;")


@given(st.integers(0, 1 << 31))
def test_templates_are_never_too_small(memory: int) -> None:
    chip = device_config.default().ascend[0]
    got = ascend.trim_memory(chip, memory)
    if isinstance(got, Problem):
        assert memory > chip.memory_capacity_mib
    else:
        assert got[0] >= min(memory, chip.memory_allocatable_mib)


@given(st.sets(st.integers(0, 64), min_size=1), st.sampled_from(("", *mindcluster.TEMPLATES)))
def test_npu_cores(chips: set[int], template: str) -> None:
    wanted = sorted(chips)[:1] if template else sorted(chips)
    held = tuple(Holding("mindcluster", 0, str(chip), 0, 1, template) for chip in wanted)
    text = mindcluster.binding_annotations(held, 1)[keys.NPU_CORE]
    names = tuple(str(chip) for chip in wanted)
    assert mindcluster.decode_npu_core(text) == mindcluster.Assignment(names, template)


@given(st.text())
def test_any_npu_core_is_read_or_refused(text: str) -> None:
    found = mindcluster.decode_npu_core(text)
    assert isinstance(found, Problem) or found.chips


@given(st.text() | anything.map(json.dumps))
def test_any_device_information_is_read_or_reported(text: str) -> None:
    for name, key in (("cluster-info-device-0",) * 2, ("mindx-dl-deviceinfo-n", "DeviceInfoCfg")):
        _, problems = mindcluster_node.decode_device_infos(name, {key: text}, WORD)
        assert all(len(p.message) < SHOWN_MAX + 100 for p in problems)
    labels = {keys.LABEL_SERVER_TYPE: text, keys.LABEL_ACCELERATOR: text}
    assert mindcluster_node.decode_node(labels, {keys.NPU_BASE_DEVICES: text}, 8, None).problems


@given(st.integers(0, 253_402_300_799))
def test_lock_times(now_s: int) -> None:
    text = node_lock.encode_lock(now_s)
    assert node_lock.parse_lock(text, "here") == node_lock.Lock(now_s)
    assert datetime.datetime.fromisoformat(text).timestamp() == now_s


@given(st.text() | st.text("0123456789-:TZ+,."))
def test_any_lock_is_read_or_refused(text: str) -> None:
    assert isinstance(node_lock.parse_lock(text, "here"), (node_lock.Lock, Problem))


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)


@given(st.lists(labels.filter(bool)), labels)
def test_tags_are_those_of_the_matching_rules(raw: list[dict[str, str]], pod: Any) -> None:
    rules = [tuple(sorted(rule.items())) for rule in raw]
    tags = exclusive.rule_tags(rules, pod)
    wanted = {
        ",".join(f"{k}={v}" for k, v in sorted(r.items())) for r in raw if r.items() <= pod.items()
    }
    assert set(tags) == {f"exclusive:{text}" for text in wanted}


CONFIG_KEYS = (
    "nvidia", "vnpus", "configs", "knownMigGeometries", "allowedGeometries", "geometries", "group",
    "models", "name", "memory", "count", "gpuMemoryFactor", "deviceCoreScaling", "commonWord",
    "templates", "memoryAllocatable", "nodeconfig", "filterdevices", "uuid", "index",
)  # fmt: skip
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(CONFIG_KEYS), inner, max_size=6)
    ),
)


@given(st.text() | documents.map(json.dumps))
def test_any_configuration_is_read_or_refused(text: str) -> None:
    parsed = device_config.parse(text, "f")
    assert (parsed.config is None) == bool(parsed.problems)
    if parsed.config is not None:
        assert parsed.config.nvidia.memory_factor > 0
        for model in parsed.config.nvidia.mig:
            assert mig.check_table(model.geometries, "t") == ()
            for name in model.models:
                table = device_config.geometries_for(parsed.config, name)
                assert all(p.memory_mib > 0 for g in table for p in g.profiles)
    nodes = device_config.parse_nodes(text, "n")
    assert (nodes.nodes is None) == bool(nodes.problems)
