"""Halves of characters, which JSON may spell and UTF-8 cannot write, never reach the log."""

import json

import msgspec
import pytest

from allotment.core.placement.devices import FAMILIES
from allotment_proto.codec import encode
from allotment_proto.events import Envelope
from allotment_proto.volcano import device_config, keys
from tests import build, chips


@pytest.mark.parametrize("text", ["\\ud800", "a\\udfffb"])
def test_half_characters_never_reach_the_log(text: str) -> None:
    register = json.dumps([chips.entry("C-0")]).replace("C-0", text)
    source = chips.ascend_source(chips.entry("C-0"))
    annotations = {**source.annotations, keys.hami_register("Ascend310P"): register}
    inventory, problems = FAMILIES["ascend"].inventory(source._replace(annotations=annotations))
    assert inventory is None
    assert problems
    event = build.node(problems=problems)
    encode(Envelope(v=1, at_ms=0, by="test", events=(event,)))


@pytest.mark.parametrize(
    "document",
    [
        '{"nvidia": {"knownMigGeometries": [{"models": ["\\ud800"], "allowedGeometries": '
        '[{"group": "g", "geometries": [{"name": "1g", "memory": 1, "count": 1}]}]}]}}',
        '{"nvidia": {"\\ud800": 1}}',
        '{"vnpus": [{"commonWord": "A", "chipName": "\\ud800", "memoryAllocatable": 1}]}',
    ],
)
def test_half_characters_in_the_configuration(document: str) -> None:
    parsed = device_config.parse(document, "cm")
    msgspec.json.encode([parsed.config, parsed.problems, parsed.warnings])


def test_half_characters_in_the_nodes_configuration() -> None:
    text = '{"nodeconfig": [{"name": "\\ud800", "filterdevices": {"uuid": ["\\udc00"]}}]}'
    parsed = device_config.parse_nodes(text, "cm")
    msgspec.json.encode([parsed.nodes, parsed.problems, parsed.warnings])
