"""Which device configuration is in force: that of the first place that has one, if it is whole."""

from pathlib import Path

import pytest

from allotment_proto.device_config import NodeConfig
from allotment_proto.facts import Policy
from allotment_proto.volcano import device_config
from allotment_watcher.device_source import (
    TEXT_CHARS_MAX,
    DeviceTexts,
    Place,
    places_of,
    places_of_files,
)

DEFAULT = device_config.default()
KUBE, VOLCANO = places_of(Policy()).devices
NODES = places_of(Policy()).nodes[0]
SCALED = {"device-config.yaml": "nvidia: {deviceMemoryScaling: 2}"}


def asked(**found: dict[str, str]) -> DeviceTexts:
    """Texts of `kube`, `volcano` and `nodes`; all other places have none."""
    places = places_of(Policy())
    texts = DeviceTexts(places)
    for place in places.all:
        texts.found(place, None)
    named = {"kube": KUBE, "volcano": VOLCANO, "nodes": NODES}
    for name, data in found.items():
        texts.found(named[name], data)
    return texts


def test_it_is_looked_for_where_the_device_plugin_looks_or_the_policy_says() -> None:
    name, of_nodes = "volcano-vgpu-device-config", "volcano-vgpu-node-config"
    places = places_of(Policy())
    assert [(p.namespace, p.name) for p in places.devices] == [
        ("kube-system", name),
        ("volcano-system", name),
    ]
    assert [(p.namespace, p.name) for p in places.nodes] == [
        ("kube-system", of_nodes),
        ("volcano-system", of_nodes),
    ]
    other = places_of(Policy(device_config=("gpus", "cards")))
    assert [(p.namespace, p.name) for p in other.devices] == [("gpus", "cards")]
    assert [p.namespace for p in other.nodes] == ["gpus", "kube-system", "volcano-system"]


def test_it_is_complete_when_all_places_were_asked() -> None:
    texts = DeviceTexts(places_of(Policy()))
    for place in texts.places.all:
        assert not texts.is_complete
        texts.found(place, None)
    assert texts.is_complete


def test_without_a_text_what_is_built_in_is_in_force() -> None:
    event = asked().read(None).event
    assert event is not None
    assert (event.config, event.source) == (DEFAULT, "built in")
    assert asked().read(DEFAULT).event is None


def test_the_first_place_that_has_one_counts_and_a_change_is_told_once() -> None:
    texts = asked(volcano=SCALED)
    event = texts.read(DEFAULT).event
    assert event is not None
    assert event.config.nvidia.memory_scaling_milli == 2000
    assert event.source == "ConfigMap volcano-system/volcano-vgpu-device-config"
    assert texts.read(event.config).event is None
    texts.found(KUBE, {"device-config.yaml": "nvidia: {deviceMemoryScaling: 3}"})
    nearer = texts.read(event.config).event
    assert nearer is not None
    assert nearer.config.nvidia.memory_scaling_milli == 3000
    assert nearer.text_sha256 != event.text_sha256
    texts.found(KUBE, {"device-config.yaml": "# again\nnvidia: {deviceMemoryScaling: 3.0}"})
    assert texts.read(nearer.config).event is None


def test_both_config_maps_make_one_configuration() -> None:
    json = '{"nodeconfig": [{"name": "n", "operatingmode": "mig"}]}'
    event = asked(kube=SCALED, nodes={"config.json": json}).read(DEFAULT).event
    assert event is not None
    assert event.config.nvidia.memory_scaling_milli == 2000
    assert event.config.nodes == (NodeConfig("n", mode="mig"),)
    assert event.source.count("ConfigMap kube-system/") == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"device-config.yaml": "nvidia: [x"}, "is not YAML"),
        ({"device-config.yaml": "nvidia: {deviceSplitCount: -1}"}, "wanted: a whole number"),
        ({"other.yaml": ""}, "has no key device-config.yaml (it has: other.yaml)"),
        ({}, "has no key device-config.yaml (it has: none)"),
        ({"device-config.yaml": "#" * (TEXT_CHARS_MAX + 1)}, f"at most {TEXT_CHARS_MAX}"),
    ],
)
def test_a_broken_one_leaves_in_force_what_was(data: dict[str, str], said: str) -> None:
    texts = asked(kube=data)
    read = texts.read(DEFAULT)
    assert read.event is None
    (problem,) = read.problems
    assert "ConfigMap kube-system/volcano-vgpu-device-config" in problem.place
    assert said in problem.message
    first = texts.read(None)
    assert first.event is not None
    assert (first.event.config, first.event.source) == (DEFAULT, "built in")
    assert first.problems == read.problems


def test_a_broken_part_holds_back_the_whole() -> None:
    read = asked(kube=SCALED, nodes={"config.json": "{"}).read(DEFAULT)
    assert read.event is None
    assert "ConfigMap kube-system/volcano-vgpu-node-config" in read.problems[0].place


def test_a_place_that_cannot_be_asked_is_said_and_hides_those_behind_it() -> None:
    texts = DeviceTexts(places_of(Policy()))
    texts.failed(KUBE, "list: 403 Forbidden: no")
    texts.found(VOLCANO, SCALED)
    for place in texts.places.nodes:
        texts.found(place, None)
    read = texts.read(DEFAULT)
    assert read.event is None
    assert "403 Forbidden" in read.problems[0].message
    assert "right to list and watch" in read.problems[0].message
    texts.found(KUBE, None)
    assert texts.read(DEFAULT).event is not None


def test_a_watch_that_breaks_later_forgets_nothing() -> None:
    texts = asked(kube=SCALED)
    texts.failed(KUBE, "watch: connection lost")
    assert texts.read(DEFAULT).problems == ()


def test_an_object_that_is_no_config_map_is_a_problem() -> None:
    texts = asked()
    texts.broken(NODES, "Expected `str`, got `int` - at `$.data[...]`")
    assert "cannot be read: Expected `str`" in texts.read(DEFAULT).problems[0].message


def test_what_is_only_odd_is_a_warning() -> None:
    read = asked(kube={"device-config.yaml": "nvidia: {colour: red}"}).read(DEFAULT)
    assert read.event is not None
    assert "colour" in read.warnings[0].place


@pytest.mark.anyio
async def test_files_are_read_and_named(tmp_path: Path) -> None:
    devices, nodes = tmp_path / "device-config.yaml", tmp_path / "config.json"
    devices.write_text(SCALED["device-config.yaml"])
    texts = DeviceTexts(places_of_files(devices, nodes))
    for place in texts.places.all:
        await texts.read_file(place)
    (missing,) = texts.read(DEFAULT).problems
    assert (missing.place, "cannot be read" in missing.message) == (str(nodes), True)
    nodes.write_text("{}")
    await texts.read_file(Place(str(nodes)))
    event = texts.read(DEFAULT).event
    assert event is not None
    assert event.source == f"{devices}, {nodes}"
    assert event.config.nvidia.memory_scaling_milli == 2000
    devices.write_bytes(b"\xff\xfe\x00")
    await texts.read_file(Place(str(devices)))
    assert str(devices) == texts.read(DEFAULT).problems[0].place
    assert places_of_files(None, None).all == ()
