"""Ascend 310P through MindCluster on the wire: templates, and the annotations of pods.

A pod asks for AI cores and gets whole chips, or a piece of one that is cut by a named template.

Source: volcano `ascend/mindcluster/ascend310p/vnpu` (deviceshare 2.7, 4.10, 6.9, 7.4).
"""

from collections.abc import Mapping, Sequence

import msgspec

from allotment_proto.facts import Holding, Problem
from allotment_proto.volcano import keys
from allotment_proto.volcano.reading import shown

FAMILY = "mindcluster"
BROKEN_ASSIGNMENT = "BrokenAssignment"
INVALID_REQUEST = "InvalidRequest"
CHIP_DIGITS_MAX = 4


class Template(msgspec.Struct, frozen=True, array_like=True):
    """What a piece needs of a chip. `dvpp` is its media engine: ``yes``, ``no`` or ``null``."""

    name: str
    cores: int
    cpu: int
    dvpp: str


TEMPLATES: dict[str, Template] = {
    template.name: template
    for template in (
        Template("vir01", 1, 1, "null"),
        Template("vir02", 2, 2, "null"),
        Template("vir02_1c", 2, 1, "null"),
        Template("vir04", 4, 4, "null"),
        Template("vir04_3c", 4, 3, "null"),
        Template("vir04_4c_dvpp", 4, 4, "yes"),
        Template("vir04_3c_ndvpp", 4, 3, "no"),
    )
}
_LOW = {(1, "null"): "vir01", (2, "null"): "vir02_1c", (4, "null"): "vir04_3c"}
_HIGH = {(2, "null"): "vir02", (4, "null"): "vir04"}
_ENGINE = {(4, "yes"): "vir04_4c_dvpp", (4, "no"): "vir04_3c_ndvpp"}


class Assignment(msgspec.Struct, frozen=True, array_like=True):
    """What ``huawei.com/npu-core`` says: whole chips, or one chip and a template."""

    chips: tuple[str, ...]
    template: str = ""


def templates_for(
    cores: int, labels: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """The templates for so many cores, the wanted one in front and then what it may become.

    None for other core counts, which are whole chips or cannot be had (`whole_chips`). A level
    that is not known counts as low, and is reported; a `vnpu-dvpp` that is not known is a problem
    of code ``InvalidRequest``, and there are no templates.
    """
    warnings: list[Problem] = []
    level = labels.get(keys.LABEL_VNPU_LEVEL, "low")
    if level not in ("low", "high"):
        place = f"label {keys.LABEL_VNPU_LEVEL}"
        warnings.append(
            Problem("UnknownLevel", place, f"is {shown(level)}; wanted: low or high; read as low")
        )
    dvpp = labels.get(keys.LABEL_VNPU_DVPP, "null")
    if dvpp not in ("yes", "no", "null"):
        place = f"label {keys.LABEL_VNPU_DVPP}"
        message = f"is {shown(dvpp)}; wanted: yes, no or null"
        return (), (*warnings, Problem(INVALID_REQUEST, place, message))
    if cores < 4:  # only pieces of four cores have a media engine to choose
        dvpp = "null"
    names = [_HIGH.get((cores, dvpp), "")] if level == "high" else []
    names += [_LOW.get((cores, dvpp), ""), _ENGINE.get((cores, dvpp), "")]
    return tuple(name for name in names if name), tuple(warnings)


def whole_chips(cores: int, cores_per_chip: int) -> int:
    """How many whole chips so many cores are; 0 if they are not."""
    return cores // cores_per_chip if cores > 0 and cores % cores_per_chip == 0 else 0


def encode_npu_core(holdings: Sequence[Holding]) -> str:
    """``0,1`` for whole chips, ``0-vir02`` for a piece."""
    chips = sorted({int(h.card) for h in holdings})
    template = next((h.instance for h in holdings if h.instance), "")
    text = ",".join(str(chip) for chip in chips)
    return f"{text}-{template}" if template else text


def decode_npu_core(text: str) -> Assignment | Problem:
    """What a pod holds according to its annotation."""
    chips, dash, template = text.partition("-")
    numbers = chips.split(",")
    whole = not dash and len(set(numbers)) == len(numbers)
    if all(is_chip(number) for number in numbers) and (
        whole or (len(numbers) == 1 and template in TEMPLATES)
    ):
        return Assignment(tuple(numbers), template)
    return Problem(
        BROKEN_ASSIGNMENT,
        f"annotation {keys.NPU_CORE}",
        f"is {shown(text)}; wanted: chips like 0,1 or a piece like 0-vir02 (templates: "
        f"{', '.join(TEMPLATES)})",
    )


def binding_annotations(holdings: Sequence[Holding], stamp_s: int) -> dict[str, str]:
    """The annotations that travel in the Binding of a pod with MindCluster chips."""
    return {
        keys.NPU_CORE: encode_npu_core(holdings),
        keys.NPU_PREDICATE_TIME: str(stamp_s * 1_000_000_000),
    }


def is_chip(text: str) -> bool:
    """Whether this is the number of a chip, as Huawei writes it."""
    if not (len(text) <= CHIP_DIGITS_MAX and text.isascii() and text.isdigit()):
        return False
    return str(int(text)) == text
