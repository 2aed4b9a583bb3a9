"""vGPU wire formats: the node's register string, and the assignment string on pods.

    register = 1*( uuid "," slots "," memory "," model "," health "," mode ":" )
    pod      = container *( ";" container )
    container = *( card "," type "," memory "," cores ":" )

Source: volcano `pkg/scheduler/api/devices/nvidia/vgpu/utils.go` and the device plugin's
`util.go`. The memory unit is 1 MiB (plugin setting ``gpuMemoryFactor: 1``).
"""

import msgspec

from allotment_proto.facts import CardFact, Holding, Problem
from allotment_proto.volcano import keys, mig

FAMILY = "vgpu"
ENTRY_TYPE = "NVIDIA"
CORES_PCT = 100
REGISTER_FIELDS = 6
REGISTER_DIGITS_MAX = 9
"""Longer numbers are garbage: no card has a PiB, and readers reckon in 64 bits."""
U32_DIGITS_MAX = 10
MODES = frozenset((keys.MODE_HAMI_CORE, keys.MODE_MIG, keys.MODE_MPS))
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))


class Register(msgspec.Struct, frozen=True):
    """A decoded register string. With a problem of code ``BrokenRegister`` there are no cards."""

    cards: tuple[CardFact, ...]
    mode: str
    problems: tuple[Problem, ...] = ()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One device of an assignment string. `instance` is its MIG instance, empty for a share."""

    card: str
    type: str
    memory_mib: int
    cores_pct: int
    instance: str = ""


def decode_register(text: str) -> Register:
    """Cards in register order. A card's index is its position between the colons.

    One entry with too few fields rejects the whole node, and so does a card id that occurs twice:
    guessing which of the two is meant could hand out one card as two. Numbers that are not
    numbers, and a mode that is not known, keep upstream's reading (0, and ``hami-core``), but are
    reported. Mode ``mps`` is a mode of its own (upstream reads it as ``hami-core``).
    """
    if ":" not in text:
        return _broken(text, "holds no card: every entry must end in ':'")
    cards: list[CardFact] = []
    problems: list[Problem] = []
    seen: set[str] = set()
    for index, piece in enumerate(text.split(":")):
        if "," not in piece:
            continue
        fields = piece.split(",")
        if len(fields) < REGISTER_FIELDS:
            return _broken(
                piece,
                f"entry {index} has {len(fields)} fields; wanted are {REGISTER_FIELDS}: "
                "uuid,count,memory,type,health,mode",
            )
        uuid, count, memory, model, health, mode = fields[:REGISTER_FIELDS]
        if not uuid:
            return _broken(piece, f"entry {index} has no card id")
        if uuid in seen:
            return _broken(piece, f"card id {uuid} occurs twice")
        seen.add(uuid)
        for name, value in (("count", count), ("memory", memory)):
            if not _is_whole(value, REGISTER_DIGITS_MAX):
                problems.append(
                    _problem(
                        f"entry {index}: {name} is {_shown(value)}, not a whole number of at most "
                        f"{REGISTER_DIGITS_MAX} digits; read as 0"
                    )
                )
        cards.append(
            CardFact(
                id=uuid,
                index=index,
                model=model,
                slots=_whole(count),
                memory_mib=_whole(memory),
                cores_pct=CORES_PCT,
                healthy=health in _TRUE,
                mode=mode,
            )
        )
    if not cards:
        return _broken(text, "holds no card")
    last = cards[-1].mode
    mode = last if last in MODES else keys.MODE_HAMI_CORE
    modes = {card.mode for card in cards}
    if len(modes) > 1:
        problems.append(
            _problem(f"cards register different modes {sorted(modes)}; the node counts as {mode}")
        )
    elif not modes <= MODES:
        problems.append(_problem(f"mode {cards[-1].mode!r} is not known; read as {mode}"))
    return Register(tuple(cards), mode, tuple(problems))


def encode_register(cards: tuple[CardFact, ...]) -> str:
    """What the device plugin writes for these cards (used by the fake plugin and in tests)."""
    return "".join(
        f"{c.id},{c.slots},{c.memory_mib},{c.model},{'true' if c.healthy else 'false'},{c.mode}:"
        for c in cards
    )


def encode_assignment(holdings: tuple[Holding, ...]) -> str:
    """The assignment string. Only requesting containers get a group, in container order."""
    groups: dict[int, list[str]] = {}
    for h in holdings:
        groups.setdefault(h.container, []).append(
            f"{mig.encode_id(h.card, h.instance)},{ENTRY_TYPE},{h.memory_mib},{h.cores_pct}:"
        )
    return ";".join("".join(groups[container]) for container in sorted(groups))


def decode_assignment(text: str) -> tuple[tuple[tuple[Entry, ...], ...], tuple[Problem, ...]]:
    """Entries by requesting container, and what could not be read.

    A piece without a comma is an empty remainder and is ignored; one with too few fields, or with
    memory or cores that are not unsigned 32-bit decimals, is skipped and reported.
    """
    groups: list[tuple[Entry, ...]] = []
    problems: list[Problem] = []
    for number, group in enumerate(text.split(";")):
        entries: list[Entry] = []
        for piece in group.split(":"):
            if "," not in piece:
                continue
            fields = piece.split(",")
            if len(fields) < 4 or not (_is_u32(fields[2]) and _is_u32(fields[3])):
                problems.append(
                    Problem(
                        "BrokenAssignment",
                        keys.VGPU_IDS,
                        f"group {number}: {_shown(piece)} is not card,type,memory,cores",
                    )
                )
                continue
            card, instance = fields[0], ""
            if mig.is_id(card):
                found = mig.parse_id(card, keys.VGPU_IDS)
                if isinstance(found, Problem):
                    problems.append(found)
                    continue
                card, instance = found.card, found.instance
            entries.append(Entry(card, fields[1], int(fields[2]), int(fields[3]), instance))
        groups.append(tuple(entries))
    return tuple(groups), tuple(problems)


def binding_annotations(
    node: str, holdings: tuple[Holding, ...], stamp_s: int, bind_time_s: int
) -> dict[str, str]:
    """The six annotations that travel in the Binding of a vGPU pod."""
    assignment = encode_assignment(holdings)
    return {
        keys.VGPU_NODE: node,
        keys.VGPU_TIME: str(stamp_s),
        keys.VGPU_IDS: assignment,
        keys.DEVICES_TO_ALLOCATE: assignment,
        keys.BIND_PHASE: keys.PHASE_ALLOCATING,
        keys.BIND_TIME: str(bind_time_s),
    }


def _whole(text: str) -> int:
    return int(text) if _is_whole(text, REGISTER_DIGITS_MAX) else 0


def _is_whole(text: str, digits_max: int) -> bool:
    return len(text) <= digits_max and text.isascii() and text.isdigit()


def _is_u32(text: str) -> bool:
    return _is_whole(text, U32_DIGITS_MAX) and int(text) < 1 << 32


def _broken(piece: str, message: str) -> Register:
    return Register((), "", (_problem(f"{message} (in {_shown(piece)})"),))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _problem(message: str) -> Problem:
    return Problem("BrokenRegister", f"annotation {keys.NODE_VGPU_REGISTER}", message)
