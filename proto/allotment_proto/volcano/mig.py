"""MIG on the wire: which instance of a card a pod holds, and what a configured table must be.

    device-id = card "[" group "-" position "]"

A group is one geometry of the card's model; a position counts its instances through, over the
profiles in the configuration's order. Device plugin and scheduler must have the same table, and its
order must be the one in which the driver numbers instances.

Source: volcano `vgpu/mig.go`, and the device plugin's `mig.go` (deviceshare 4.4, 6.5.1).
"""

import re
from collections.abc import Iterator
from math import prod

import msgspec

from allotment_proto.facts import Geometry, Problem, Profile

INSTANCES_MAX = 64
"""More than any card can be cut into (a driver numbers at most 7 today)."""
STATES_MAX = 1024
"""In how many ways the instances of a table may be in use: each is a kind of card of its own. The
largest shipped table has 63."""
MEMORY_MIB_MAX = 10_000_000
"""More than any card has."""
POSITION_DIGITS_MAX = 3
GROUP = re.compile(r"[A-Za-z0-9_.]+", re.ASCII)
"""What group names are made of. The plugin splits at ``-``, so that is not among it."""
_ID = re.compile(r"([^\[\],:;]+)\[([^\[\],:;]*)\]", re.ASCII)
BROKEN_ID = "BrokenMigId"
BROKEN_TABLE = "InvalidMigTable"


class MigId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One instance of one card. `instance` is how `Holding.instance` says it."""

    card: str
    group: str
    position: int

    @property
    def instance(self) -> str:
        return instance_name(self.group, self.position)


def instance_name(group: str, position: int) -> str:
    """``group2-1``: the second instance of geometry `group2`."""
    return f"{group}-{position}"


def encode_id(card: str, instance: str) -> str:
    """A device id: the card alone, or with the instance in brackets."""
    return f"{card}[{instance}]" if instance else card


def is_id(text: str) -> bool:
    """Whether a device id means to name an instance, rightly or wrongly."""
    return "[" in text or "]" in text


def parse_id(text: str, place: str) -> MigId | Problem:
    """Card, group and position of a device id."""
    match = _ID.fullmatch(text)
    found = None if match is None else parse_instance(match[2])
    if match is None or found is None:
        return Problem(
            BROKEN_ID,
            place,
            f"{_shown(text)} is not <card>[<group>-<position>], with a group of letters, digits, "
            "'_' and '.' (no '-')",
        )
    return MigId(match[1], *found)


def parse_instance(text: str) -> tuple[str, int] | None:
    """Group and position of ``group2-1``; None if it is not of that form."""
    group, dash, position = text.rpartition("-")
    if not (dash and GROUP.fullmatch(group) and position.isascii() and position.isdigit()):
        return None
    if len(position) > POSITION_DIGITS_MAX or str(int(position)) != position:
        return None
    return group, int(position)


def positions(geometry: Geometry) -> Iterator[tuple[int, Profile]]:
    """All instances of a geometry with their positions."""
    position = 0
    for profile in geometry.profiles:
        for _ in range(profile.count):
            yield position, profile
            position += 1


def instances(geometry: Geometry) -> int:
    """How many instances a geometry has."""
    return sum(profile.count for profile in geometry.profiles)


def first_position(geometry: Geometry, profile_index: int) -> int:
    """The position of the first instance of one of its profiles."""
    return sum(profile.count for profile in geometry.profiles[:profile_index])


def profile_at(geometry: Geometry, position: int) -> Profile | None:
    """The profile that has this position; None if it lies outside the geometry."""
    return next((profile for at, profile in positions(geometry) if at == position), None)


def geometry_named(table: tuple[Geometry, ...], group: str) -> Geometry | None:
    return next((geometry for geometry in table if geometry.name == group), None)


def profile_of(table: tuple[Geometry, ...], instance: str) -> Profile | None:
    """The profile of an instance like ``group2-1``; None if the table has no such instance."""
    found = parse_instance(instance)
    geometry = None if found is None else geometry_named(table, found[0])
    return None if found is None or geometry is None else profile_at(geometry, found[1])


def check_table(table: tuple[Geometry, ...], place: str) -> tuple[Problem, ...]:
    """Everything that makes a configured table unusable; `place` names it in the messages."""
    return tuple(_faults(table, place))


def _faults(table: tuple[Geometry, ...], place: str) -> Iterator[Problem]:
    seen: set[str] = set()
    if not table:
        yield _fault(place, "has no geometries; wanted: at least one group")
    for number, geometry in enumerate(table):
        where = f"{place}[{number}]"
        if not GROUP.fullmatch(geometry.name):
            yield _fault(
                f"{where}.group",
                f"is {_shown(geometry.name)}; wanted: letters, digits, '_' and '.' (no '-': the "
                "device plugin takes what follows it for the position)",
            )
        elif geometry.name in seen:
            yield _fault(f"{where}.group", f"{geometry.name!r} occurs twice for these models")
        seen.add(geometry.name)
        if not geometry.profiles:
            yield _fault(f"{where}.geometries", "has no profiles; wanted: at least one")
        for index, profile in enumerate(geometry.profiles):
            spot = f"{where}.geometries[{index}]"
            if not profile.name:
                yield _fault(f"{spot}.name", "is missing; wanted: a profile like 1g.10gb")
            if not 1 <= profile.memory_mib <= MEMORY_MIB_MAX:
                wanted = f"wanted: MiB above 0, at most {MEMORY_MIB_MAX}"
                yield _fault(f"{spot}.memory", f"is {profile.memory_mib}; {wanted}")
            if profile.count < 1:
                yield _fault(f"{spot}.count", f"is {profile.count}; wanted: 1 or more")
        if instances(geometry) > INSTANCES_MAX:
            yield _fault(
                f"{where}.geometries",
                f"has {instances(geometry)} instances; wanted: at most {INSTANCES_MAX}",
            )
    states = sum(prod(p.count + 1 for p in g.profiles if p.count > 0) for g in table)
    if states > STATES_MAX:
        ways = f"more than {STATES_MAX}" if states > 1 << 60 else str(states)
        yield _fault(
            place,
            f"has {ways} states, counting which instances of a group are in use; wanted: at most "
            f"{STATES_MAX}, so fewer profiles in a group or smaller counts",
        )


def _fault(place: str, message: str) -> Problem:
    return Problem(BROKEN_TABLE, place, message)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
