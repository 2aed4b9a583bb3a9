"""Section `vnpus` of the device configuration: Ascend chips and the templates that cut them."""

import re
from collections.abc import Mapping
from typing import Any

from allotment_proto.device_config import AscendChip, AscendTemplate
from allotment_proto.volcano import keys
from allotment_proto.volcano.nvidia_config import check_resource_name
from allotment_proto.volcano.reading import Reading, shown

PLACE = "vnpus"
_WORD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)
_WORD_LENGTH_MAX = 40
"""Annotation names have 63 characters, and the longest of ours adds 20."""
_CHIP_KEYS = (
    "commonWord",
    "chipName",
    "resourceName",
    "resourceMemoryName",
    "resourceCoreName",
    "memoryAllocatable",
    "memoryCapacity",
    "aiCore",
    "aiCPU",
    "templates",
)


def read_vnpus(reading: Reading, value: Any) -> tuple[tuple[AscendChip, ...], bool]:
    """The chips, and whether they take soft slices. Both spellings of the section."""
    place, soft = PLACE, False
    if isinstance(value, dict):
        section = reading.mapping(value, PLACE)
        reading.known(section, PLACE, ("hamiVnpuCore", "configs"))
        soft = reading.boolean(section, PLACE, "hamiVnpuCore")
        place, value = f"{PLACE}.configs", section.get("configs")
    chips: list[AscendChip] = []
    for number, item in enumerate(reading.items(value, place)):
        where = f"{place}[{number}]"
        chip = _chip(reading, reading.mapping(item, where), where)
        for other in chips:
            if chip.common_word and chip.common_word == other.common_word:
                reading.say(f"{where}.commonWord", f"{shown(chip.common_word)} occurs twice")
            elif chip.resource_name == other.resource_name:
                reading.say(f"{where}.resourceName", f"{shown(chip.resource_name)} occurs twice")
        chips.append(chip)
    return tuple(chips), soft


def _chip(reading: Reading, entry: Mapping[str, Any], place: str) -> AscendChip:
    reading.known(entry, place, _CHIP_KEYS)
    word = reading.text(entry, place, "commonWord")
    if len(word) > _WORD_LENGTH_MAX or not _WORD.fullmatch(word):
        reading.fail(f"{place}.commonWord", entry.get("commonWord"), "a word like Ascend310P")
    name = reading.text(entry, place, "resourceName") or f"huawei.com/{word}"
    memory_name = reading.text(entry, place, "resourceMemoryName") or f"{name}-memory"
    if word:
        check_resource_name(reading, f"{place}.resourceName", name)
        check_resource_name(reading, f"{place}.resourceMemoryName", memory_name)
    if name == memory_name:
        reading.say(f"{place}.resourceMemoryName", "is the resourceName already")
    allocatable = reading.whole(entry, place, "memoryAllocatable")
    if allocatable < 1:
        reading.fail(f"{place}.memoryAllocatable", allocatable, "the usable memory in MiB, above 0")
    chip = AscendChip(
        common_word=word,
        chip_name=reading.text(entry, place, "chipName"),
        resource_name=name,
        resource_memory_name=memory_name,
        memory_allocatable_mib=allocatable,
        memory_capacity_mib=reading.whole(entry, place, "memoryCapacity") or allocatable,
        ai_core=reading.whole(entry, place, "aiCore"),
        ai_cpu=reading.whole(entry, place, "aiCPU"),
        templates=_templates(reading, entry.get("templates"), f"{place}.templates"),
    )
    if chip.memory_capacity_mib < allocatable:
        reading.fail(
            f"{place}.memoryCapacity",
            chip.memory_capacity_mib,
            f"at least memoryAllocatable ({allocatable})",
        )
    core_name = reading.text(entry, place, "resourceCoreName", chip.resource_core_name)
    if core_name != chip.resource_core_name:
        reading.warn(
            "NoEffect",
            f"{place}.resourceCoreName",
            f"is {shown(core_name)}; the name is always {chip.resource_core_name}",
        )
    return chip


def _templates(reading: Reading, value: Any, place: str) -> tuple[AscendTemplate, ...]:
    out: list[AscendTemplate] = []
    for number, item in enumerate(reading.items(value, place)):
        where = f"{place}[{number}]"
        entry = reading.mapping(item, where)
        reading.known(entry, where, ("name", "memory", "aiCore", "aiCPU"))
        template = AscendTemplate(
            reading.text(entry, where, "name"),
            reading.whole(entry, where, "memory"),
            reading.whole(entry, where, "aiCore"),
            reading.whole(entry, where, "aiCPU"),
        )
        if not _WORD.fullmatch(template.name) or template.name == keys.MODE_HAMI_CORE:
            reading.fail(f"{where}.name", template.name, "the name of a template, like vir02")
        elif any(template.name == other.name for other in out):
            reading.say(f"{where}.name", f"{shown(template.name)} occurs twice")
        if template.memory_mib < 1:
            reading.fail(f"{where}.memory", entry.get("memory"), "MiB above 0")
        out.append(template)
    return tuple(sorted(out, key=lambda template: template.memory_mib))
