"""Ascend through HAMi on the wire: the node's register JSON, and three annotations on pods.

    allocated = *( container ";" )          container = *( entry ":" )
    entry     = id "," common-word "," memory "," cores

Every container that asks has a group, and every group ends in ``;``. A second annotation has a
JSON list of the same entries with the template of each, or with memory and cores of a soft slice.

Source: volcano `pkg/scheduler/api/devices/ascend/hami`, HAMi's ascend-device-plugin (deviceshare
2.6, 4.9, 6.8).
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from allotment_proto.device_config import AscendChip
from allotment_proto.facts import CardFact, Holding, Problem
from allotment_proto.volcano import keys
from allotment_proto.volcano.reading import Reading, shown
from allotment_proto.volcano.vgpu import Entry

FAMILY = "ascend"
SOFT = keys.MODE_HAMI_CORE
"""What stands for the template in a holding's `instance` when it is a soft slice."""
BROKEN_REGISTER = "BrokenRegister"
BROKEN_ASSIGNMENT = "BrokenAssignment"
OVER_CAPACITY = "OverCapacity"
NUMBER_MAX = 999_999_999
"""Larger numbers are garbage: no chip has a PiB, and readers reckon in 64 bits."""
U32_DIGITS_MAX = 10


class Register(msgspec.Struct, frozen=True):
    """A decoded register. With a problem of code ``BrokenRegister`` there are no cards."""

    cards: tuple[CardFact, ...]
    problems: tuple[Problem, ...] = ()


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the JSON annotation. Without template, memory and cores: a whole chip."""

    card: str = msgspec.field(name="UUID")
    template: str = msgspec.field(name="temp", default="")
    memory_mib: int = msgspec.field(name="memory", default=0)
    cores: int = msgspec.field(name="core", default=0)

    @property
    def is_soft(self) -> bool:
        return bool(self.memory_mib or self.cores)


def instance_name(common_word: str, template: str) -> str:
    """How `Holding.instance` says it: ``Ascend310P/vir01``, ``Ascend310P/`` for a whole chip,
    ``Ascend310P/hami-core`` for a soft slice."""
    return f"{common_word}/{template}"


def parse_instance(instance: str) -> tuple[str, str]:
    """Common word and template of a holding's `instance`."""
    word, _, template = instance.partition("/")
    return word, template


def slices_softly(annotations: Mapping[str, str], configured: bool) -> bool:
    """Whether a node takes soft slices: its annotation if it has one, else the configuration."""
    text = annotations.get(keys.HAMI_SOFT_SLICING)
    return configured if text is None else text == "true"


def decode_register(text: str, common_word: str, soft: bool = False) -> Register:
    """The chips in the order of the JSON list; a card's index is its place in it.

    `cores_pct` are AI cores, or 100 on a node that slices softly (whose mode is then
    ``hami-core``, else empty). An entry that cannot be meant rejects the node, as an id does that
    occurs twice. A chip of which nothing is said counts as healthy.
    """
    reading = Reading(f"annotation {keys.hami_register(common_word)}", BROKEN_REGISTER)
    document = _document(reading, text)
    if document is not None and not document:
        reading.say("", "holds no card")
    cards: list[CardFact] = []
    seen: set[str] = set()
    for index, item in enumerate(document or ()):
        card = _card(reading, item, index, common_word, keys.MODE_HAMI_CORE if soft else "")
        if card.id in seen:
            reading.say(f"entry {index}", f"card id {shown(card.id)} occurs twice")
        seen.add(card.id)
        cards.append(card)
    if reading.problems:
        return Register((), tuple(reading.problems))
    return Register(tuple(cards))


def encode_register(cards: Sequence[CardFact]) -> str:
    """What the device plugin writes for these cards (used by the fake plugin and in tests)."""
    return json.dumps(
        [
            {
                "id": card.id,
                "index": card.index,
                "count": card.slots,
                "devmem": card.memory_mib,
                "devcore": card.cores_pct,
                "type": card.model,
                "health": card.healthy,
                **({"custominfo": {"NetworkID": card.network}} if card.network >= 0 else {}),
            }
            for card in cards
        ]
    )


def _document(reading: Reading, text: str) -> list[Any] | None:
    try:
        document = json.loads(text, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as error:
        reading.say("", f"is not JSON: {error}")
        return None
    if not isinstance(document, list):
        reading.fail("", document, "a JSON list")
        return None
    return document


def _card(reading: Reading, item: Any, index: int, common_word: str, mode: str) -> CardFact:
    place = f"entry {index}"
    entry = reading.mapping(item, place)
    card_id = reading.text(entry, place, "id")
    if not card_id or set(card_id) & set(",:;"):
        reading.fail(f"{place}.id", entry.get("id"), "a card id without ',', ':' and ';'")
    info = reading.mapping(entry.get("custominfo"), f"{place}.custominfo")
    return CardFact(
        id=card_id,
        index=index,
        model=common_word,
        slots=reading.whole(entry, place, "count", most=NUMBER_MAX),
        memory_mib=reading.whole(entry, place, "devmem", most=NUMBER_MAX),
        cores_pct=reading.whole(entry, place, "devcore", most=NUMBER_MAX),
        healthy=entry.get("health") is None or reading.boolean(entry, place, "health"),
        mode=mode,
        network=reading.whole(info, f"{place}.custominfo", "NetworkID", -1, most=NUMBER_MAX),
    )


def trim_memory(chip: AscendChip, memory_mib: int) -> tuple[int, str] | Problem:
    """What a request of this much gets: memory and template (empty: the whole chip).

    The smallest template that is large enough, else the chip. More than a chip has is refused;
    Volcano grants it as nothing.
    """
    for template in chip.templates:
        if template.memory_mib >= memory_mib:
            return template.memory_mib, template.name
    if memory_mib <= chip.memory_capacity_mib:
        return chip.memory_allocatable_mib, ""
    return Problem(
        OVER_CAPACITY,
        chip.resource_memory_name,
        f"is {memory_mib}; a {chip.common_word} has {chip.memory_capacity_mib} MiB",
    )


def encode_assignment(holdings: Sequence[Holding], common_word: str) -> str:
    """The holdings by container, each container followed by ``;``."""
    groups: dict[int, list[str]] = {}
    for h in holdings:
        groups.setdefault(h.container, []).append(
            f"{h.card},{common_word},{h.memory_mib},{h.cores_pct}:"
        )
    return "".join("".join(groups[container]) + ";" for container in sorted(groups))


def decode_assignment(
    text: str, common_word: str
) -> tuple[tuple[tuple[Entry, ...], ...], tuple[Problem, ...]]:
    """Entries by requesting container, and what could not be read.

    Other writers leave the last ``;`` out, or all of them when there is one container.
    """
    groups: list[tuple[Entry, ...]] = []
    problems: list[Problem] = []
    pieces = text.split(";")
    if len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    for number, group in enumerate(pieces):
        entries: list[Entry] = []
        for piece in group.split(":"):
            fields = piece.split(",")
            if len(fields) >= 4 and fields[0] and _is_u32(fields[2]) and _is_u32(fields[3]):
                entries.append(Entry(fields[0], fields[1], int(fields[2]), int(fields[3])))
            elif piece:
                problems.append(
                    Problem(
                        BROKEN_ASSIGNMENT,
                        f"annotation {keys.hami_allocated(common_word)}",
                        f"group {number}: {shown(piece)} is not card,type,memory,cores",
                    )
                )
        groups.append(tuple(entries))
    return tuple(groups), tuple(problems)


def encode_detail(holdings: Sequence[Holding]) -> str:
    """The JSON annotation for holdings of one common word, in container order."""
    details = []
    for h in sorted(holdings, key=lambda h: h.container):
        _, template = parse_instance(h.instance)
        if template == SOFT:
            details.append(Detail(h.card, memory_mib=h.memory_mib, cores=h.cores_pct))
        else:
            details.append(Detail(h.card, template=template))
    return msgspec.json.encode(details).decode()


def decode_detail(text: str, common_word: str) -> tuple[Detail, ...] | Problem:
    try:
        return msgspec.json.decode(text, type=tuple[Detail, ...])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Problem(
            BROKEN_ASSIGNMENT,
            f"annotation {keys.ascend_detail(common_word)}",
            f"{error} (in {shown(text)})",
        )


def decode_holdings(
    annotations: Mapping[str, str], common_word: str, asking: Sequence[int]
) -> tuple[tuple[Holding, ...], tuple[Problem, ...]]:
    """What a pod holds of one kind of chip, every container of it.

    `asking` are the containers that ask for such chips: group k belongs to the k-th of them, and
    groups beyond them to containers behind the last. Templates stand in the JSON annotation; when
    that is absent or tells of other cards, they are unknown and the amounts alone are charged.
    """
    text = annotations.get(keys.hami_allocated(common_word))
    if text is None:
        return (), ()
    groups, problems = decode_assignment(text, common_word)
    containers = list(asking)
    spare = max(containers, default=-1) + 1
    containers.extend(range(spare, spare + len(groups)))
    entries = [(containers[k], entry) for k, group in enumerate(groups) for entry in group]
    templates: list[str] = [""] * len(entries)
    detail = annotations.get(keys.ascend_detail(common_word))
    if detail is not None:
        details = decode_detail(detail, common_word)
        if isinstance(details, Problem):
            problems = (*problems, details)
        elif [d.card for d in details] == [entry.card for _, entry in entries]:
            templates = [SOFT if d.is_soft else d.template for d in details]
    holdings = tuple(
        Holding(
            FAMILY,
            container,
            entry.card,
            entry.memory_mib,
            entry.cores_pct,
            instance_name(common_word, template),
        )
        for (container, entry), template in zip(entries, templates, strict=True)
    )
    return holdings, problems


def binding_annotations(
    node: str, holdings: Sequence[Holding], stamp_s: int, bind_time_s: int
) -> dict[str, str]:
    """The annotations that travel in the Binding of a pod with Ascend chips, of all its kinds."""
    out: dict[str, str] = {}
    for word in sorted({parse_instance(h.instance)[0] for h in holdings}):
        mine = [h for h in holdings if parse_instance(h.instance)[0] == word]
        out[keys.hami_to_allocate(word)] = encode_assignment(mine, word)
        out[keys.hami_allocated(word)] = encode_assignment(mine, word)
        out[keys.ascend_detail(word)] = encode_detail(mine)
    out[keys.HAMI_PREDICATE_TIME] = str(stamp_s)
    out[keys.HAMI_TIME] = str(stamp_s)
    out[keys.HAMI_BIND_TIME] = str(bind_time_s)
    out[keys.HAMI_NODE] = node
    out[keys.HAMI_BIND_PHASE] = keys.PHASE_ALLOCATING
    return out


def _is_u32(text: str) -> bool:
    if not (len(text) <= U32_DIGITS_MAX and text.isascii() and text.isdigit()):
        return False
    return int(text) < 1 << 32
