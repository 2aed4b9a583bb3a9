"""What a pod asks and holds of cards, and from whom it keeps apart on them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from allotment.core import units
from allotment.core.ledger import claims
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import ContainerSource, Family, PodSource
from allotment.core.placement.rules import card_names
from allotment_proto.facts import DeviceRequest, Holding, PodRequest, Problem, Selection
from allotment_proto.observed import Standing
from allotment_proto.volcano import exclusive, keys, selection
from allotment_watcher.normalise.amounts import Invalid, invalid
from allotment_watcher.normalise.lens import Lens

ASKED = frozenset[str]().union(*(family.asked_annotations for family in FAMILIES.values()))
"""Annotations that tell what a pod asks for. Others differ from pod to pod of a kind."""
ASKED_LABELS = frozenset[str]().union(*(family.asked_labels for family in FAMILIES.values()))
"""Likewise labels."""
KEEP_APART = frozenset(name for name, family in FAMILIES.items() if family.keeps_apart)
"""Families on whose cards exclusivity rules hold."""
PHASE_KEYS = tuple(family.phase_key for family in FAMILIES.values() if family.phase_key)
RECORDS = tuple(family.record for family in FAMILIES.values() if family.record is not None)
BROKEN_ASSIGNMENT = "BrokenAssignment"
UNPLACED_MOST = 64
"""So many requests of a pod that may be on any card are recorded: each is booked on all."""
ANNOTATED_MOST = 128
"""So many cards of a claim beyond a pod's limits are recorded: it is shown, and never booked."""


class Held(NamedTuple):
    """The cards that a bound pod claims within its limits, why there may be other, unknown ones,
    all that it claims if that is something else, and what it asks for of those others. `standing`
    is what a device plugin would serve by its annotations, if that is something else than it holds
    on its own node; `phase` how far the plugin is with it."""

    holdings: tuple[Holding, ...] = ()
    broken: Problem | None = None
    annotated: tuple[Holding, ...] = ()
    unplaced: tuple[DeviceRequest, ...] = ()
    standing: Standing | None = None
    phase: str = ""


def asked(
    source: PodSource, lens: Lens, *, is_bound: bool
) -> tuple[tuple[DeviceRequest, ...], Selection]:
    """What a pod asks for, and which cards it accepts. Raises `Invalid`."""
    wanted: list[DeviceRequest] = []
    for family in FAMILIES.values():
        requests, problem = family.requests(source)
        if problem is not None:
            raise Invalid(problem)
        wanted.extend(requests)
    if not wanted:
        return (), Selection()
    _check_kinds(wanted, lens)
    family = FAMILIES[wanted[0].family]
    _check_containers(source, family, lens)
    chosen, problems = family.selection(source, is_bound=is_bound)
    if problems and not is_bound:
        raise Invalid(problems[0])
    return tuple(wanted), chosen


def named(source: PodSource, lens: Lens) -> tuple[str, ...]:
    """The resources of device families that the pod's containers name in their limits, sorted."""
    listed = {name for container in source.containers for name in container.limits if "/" in name}
    return tuple(sorted(listed & lens.resources))


def of_counted(
    source: PodSource, chosen: Selection, extended: Mapping[str, int], lens: Lens, *, is_bound: bool
) -> Selection:
    """With which models a pod is content of cards that are only counted. Raises `Invalid` where it
    names single ones of them: kubelet chooses those, and reads no annotation.
    """
    counted = tuple(sorted(n for n in extended if "/" in n and n not in lens.resources))
    cards = [name for name in counted if card_names.is_card(name)]
    has_devices = not lens.resources.isdisjoint(extended)
    if cards and not has_devices and not is_bound:
        for key in selection.CARD_KEYS:
            if key in source.annotations:
                raise invalid(
                    f"annotation {key}",
                    f"does not work for {cards[0]}: kubelet chooses the cards of a resource "
                    f"that is only counted; ask for {_instead(lens)} in its place, or remove "
                    "the annotation",
                )
    if not counted or selection.TYPE_KEYS.isdisjoint(source.annotations):
        return chosen
    types = chosen
    if not has_devices:
        types, problems = selection.decode_types(source.annotations)
        if problems and cards and not is_bound:
            raise Invalid(problems[0])
    if types.use_types is None and types.nouse_types is None:
        return chosen
    return msgspec.structs.replace(types, counted=counted)


def _instead(lens: Lens) -> str:
    """What to ask for in place of a card that is only counted."""
    names = (family.count_resource(lens.config) for family in reversed(FAMILIES.values()))
    return " or ".join(name for name in names if name)


def _check_kinds(wanted: list[DeviceRequest], lens: Lens) -> None:
    families = sorted({request.family for request in wanted})
    if len(families) > 1:
        raise invalid(
            "resources.limits",
            f"asks for devices of several kinds at once ({', '.join(families)}); "
            "a pod can have one kind",
        )
    problem = FAMILIES[families[0]].unserved(wanted, lens.policy)
    if problem is not None:
        raise Invalid(problem)


def _check_containers(source: PodSource, family: Family, lens: Lens) -> None:
    """Refuse what no device plugin serves, before kubelet does (`UnexpectedAdmissionError`).

    A plugin finds what it hands out in the pod's annotations, which say so of containers only: an
    init container or sidecar would be served what is meant for a container. Most NVIDIA plugins are
    done with a pod when they served one container: `Policy.multi_container` says otherwise.
    """
    asking_first = _asking(source.init_containers, family, lens)
    if asking_first:
        raise invalid(
            f"init containers {', '.join(asking_first)}",
            "ask for parts of a GPU or NPU, which the device plugin cannot serve to init "
            "containers and sidecars: ask in a container",
        )
    asking = _asking(source.containers, family, lens)
    if len(asking) > 1 and family.one_container and not lens.policy.multi_container:
        remedy = f"; {family.several_served}" if family.several_served else ""
        raise invalid(
            f"containers {', '.join(asking)}",
            "ask for parts of a GPU, but the device plugin can serve only one such container "
            f"in a pod: put them into one container or into several pods{remedy}",
        )


def _asking(containers: Sequence[ContainerSource], family: Family, lens: Lens) -> list[str]:
    """The names of those that ask a family for something."""
    names = family.resources(lens.config)
    return [
        container.name
        for container in containers
        if any(_is_more_than_none(container.limits[name]) for name in names & {*container.limits})
    ]


def _is_more_than_none(text: str) -> bool:
    try:
        return units.count(text) > 0
    except units.QuantityError:
        return True


def readable(source: PodSource) -> tuple[DeviceRequest, ...]:
    """What a pod asks for as far as it can be read, whether or not it could be granted."""
    return tuple(request for family in FAMILIES.values() for request in family.requests(source)[0])


def held(source: PodSource, wanted: tuple[DeviceRequest, ...], node: str, lens: Lens) -> Held:
    """What a pod holds on its node (empty: it has none, and holds nothing) according to its
    annotations, within its limits; anyone may have written them.

    It is broken when a container asks for cards, and the annotation is there but tells none of
    them, or cannot be read where it would tell the rest.
    """
    if not node:
        return Held(standing=_standing(source, node, ()))
    holdings: list[Holding] = []
    annotated: list[Holding] = []
    unplaced: list[DeviceRequest] = []
    broken: Problem | None = None
    for name in lens.families_assigned(source.annotations):
        family = FAMILIES[name]
        claimed, problems = family.holdings(source)
        mine = tuple(request for request in wanted if request.family == name)
        unknown = [(r, p) for r in mine if (p := _unknown(source, r, claimed, problems))]
        if mine or family.requests(source)[1] is None:
            counted = claims.within_limits(claimed, mine)
        else:
            most = _most(family, source, lens)
            counted = _as_many(claimed, most)
            if problems:
                whole = (_whole(name, n, source.containers[n].name, most[n]) for n in sorted(most))
                unknown = [(request, problems[0]) for request in whole]
        unplaced.extend(request for request, _ in unknown)
        if broken is None and unknown:
            broken = unknown[0][1]
        holdings.extend(counted)
        annotated.extend(claimed)
    given = tuple(holdings)
    if claims.agrees(given, tuple(annotated)):
        annotated.clear()
    return Held(
        given,
        broken,
        tuple(annotated[:ANNOTATED_MOST]),
        _bounded(unplaced),
        _standing(source, node, given),
        _phase(source.annotations),
    )


def _standing(source: PodSource, node: str, holdings: tuple[Holding, ...]) -> Standing | None:
    for record in RECORDS:
        found = record.standing(source)
        if found is not None:
            is_read = len(found.holdings) == found.devices and found.node == node
            if not (is_read and {*found.holdings} <= {*holdings}):  # else left of its own to serve
                return found
    return None


def _bounded(unplaced: list[DeviceRequest]) -> tuple[DeviceRequest, ...]:
    """Requests that may be on any card; of too many the first, with a whole card for the rest."""
    rest = {r.family: r for r in unplaced[UNPLACED_MOST:]}
    whole = (_whole(r.family, r.container, "", 1) for r in rest.values())
    return (*unplaced[:UNPLACED_MOST], *whole)


def _whole(family: str, container: int, name: str, count: int) -> DeviceRequest:
    """What a container can have at most: whole cards."""
    return DeviceRequest(family, container, name, count, 0, 100, 100)


def _most(family: Family, source: PodSource, lens: Lens) -> Mapping[int, int]:
    """How many devices kubelet can give each container of a pod whose request cannot be read as a
    whole: what each resource asks for by itself, and one where only amounts are asked for."""
    most: dict[int, int] = {}
    for name in sorted(family.resources(lens.config)):
        alone = source._replace(containers=[_only(c, name) for c in source.containers])
        for index, container in enumerate(alone.containers):
            if container.limits.get(name, "0") != "0":
                most.setdefault(index, 1)
        for request in family.requests(alone)[0]:
            most[request.container] = max(most.get(request.container, 1), request.count)
    return most


def _only(container: ContainerSource, resource: str) -> ContainerSource:
    """A container with nothing but its limit of one resource."""
    limits = {name: text for name, text in container.limits.items() if name == resource}
    return ContainerSource(container.name, limits, limits)


def _as_many(claimed: tuple[Holding, ...], most: Mapping[int, int]) -> tuple[Holding, ...]:
    """Of each container the first cards that it claims, no more than it can get."""
    counted: list[Holding] = []
    for container, count in sorted(most.items()):
        named = dict.fromkeys(held for held in claimed if held.container == container)
        counted += list(named)[:count]
    return tuple(counted)


def _unknown(
    source: PodSource,
    request: DeviceRequest,
    found: tuple[Holding, ...],
    problems: tuple[Problem, ...],
) -> Problem | None:
    """Why it is not known which cards a container got, None if it is."""
    key = FAMILIES[request.family].assignment_of(request)
    if key not in source.annotations:
        return None
    known = sum(claims.is_of(holding, request) for holding in found)
    if known and (known >= request.count or not problems):
        return None
    if problems:
        return problems[0]
    who = f"container {request.container_name!r}" if request.container_name else "the pod"
    return Problem(
        BROKEN_ASSIGNMENT,
        f"annotation {key}",
        f"is {source.annotations[key][:80]!r} and names no card for {who}; wanted: {request.count}",
    )


def tags(
    lens: Lens,
    source: PodSource,
    group: str,
    request: PodRequest,
    holdings: tuple[Holding, ...],
) -> tuple[str, ...]:
    """What a pod is to others that may keep apart from it on a card: its group, its rules."""
    if not request.devices and not holdings:
        return ()
    families = {r.family for r in request.devices} | {h.family for h in holdings}
    of_rules: tuple[str, ...] = ()
    if KEEP_APART & families and not any(holding.instance for holding in holdings):
        of_rules = _rule_tags(lens, source.labels, request.selection)
    return (*exclusive.group_tag(group), *of_rules)


def apart(
    lens: Lens, source: PodSource, group: str, request: PodRequest, *, is_bound: bool
) -> tuple[str, ...]:
    """The tags of those with whom a pod shares no card. Raises `Invalid`."""
    if not request.devices or request.devices[0].family not in KEEP_APART:
        return ()
    is_spread, problems = exclusive.spreads(source.annotations)
    if problems and not is_bound:
        raise Invalid(problems[0])
    of_group = exclusive.group_tag(group) if is_spread else ()
    return (*of_group, *_rule_tags(lens, source.labels, request.selection))


def _rule_tags(lens: Lens, labels: Mapping[str, str], chosen: Selection) -> tuple[str, ...]:
    """Rules hold on cards that are shared by software alone: a pod that wants others has none."""
    if chosen.mode not in (None, keys.MODE_HAMI_CORE):
        return ()
    return exclusive.rule_tags(lens.policy.exclusive_rules, labels)


def _phase(annotations: Mapping[str, str]) -> str:
    """How far the device plugin is with a bound pod; some only say that they are done, and of some
    what is left to do outranks what they say (`Record`)."""
    if any(family.has_served(annotations) for family in FAMILIES.values()):
        return keys.PHASE_SUCCESS
    said = next((annotations[key] for key in PHASE_KEYS if key in annotations), "")
    for record in RECORDS:
        said = record.phase_of(annotations, said)
    return said
