"""What a pod requests and no node offers, and what would change that.

A rejection counts what each node lacks. If all nodes lack the same thing for one reason (a family
of devices that the scheduler configuration switched off, a device plugin that registered nothing, a
resource name that no node lists), the counts do not name it. This module finds it from the state
alone, for conditions, Events, explanations and the doctor. It decides nothing.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices import EXCLUSIVE_SWITCHES, FAMILIES
from allotment.core.placement.devices.base import Switch
from allotment.core.placement.devices.choosing import model_wanted
from allotment.core.placement.devices.foreign import (
    ANNOTATIONS,
    Meant,
    meant_by_others,
    meant_in_units,
)
from allotment.core.placement.rules import card_names
from allotment.core.placement.rules.counted_cards import models_of
from allotment.core.placement.rules.models import card_models
from allotment.core.reasons import problem_text
from allotment_proto.events import SCHEDULER_CONFIG, PodObserved
from allotment_proto.facts import DeviceRequest, PodRequest, Policy, Selection

_BROKEN_PLUGIN = frozenset[str]().union(*(f.absent_problems for f in FAMILIES.values()))
"""Problems of a node that leave it without devices of a family."""
_SIMILAR = 0.75
"""The similarity (difflib) from which one resource name may have been meant for another."""
_COUNTED_MAX = 4
"""The most resources of one pod that are looked up; comparing names is slow."""


def unserved(state: ClusterState, request: PodRequest) -> tuple[str, ...]:
    """One text, without a full stop, for each thing that no node offers; each ends with a remedy.

    The state keeps the last answer: members of a gang have the same request, and a name that no
    node lists costs a search of all nodes.
    """
    asked = (
        *(state.nodes_seq, state.policy_seq, state.devices_seq),
        *(request.devices, request.extended, request.selection),
    )
    if state.memo.unserved is not None and state.memo.unserved[0] == asked:
        return state.memo.unserved[1]
    found = [one.text for wanted in request.devices if (one := meant_in_units(state, wanted))]
    whole = _meant_whole(state, request)
    if whole is not None:
        found.append(whole.text)
    absent = _absent(state, request)
    others = meant_by_others(state, request, absent)
    if others is not None:
        found.append(others.text)
        absent = [name for name in absent if name not in others.removed]
    found += [text for wanted in request.devices for text in _devices(state, wanted)]
    found += [text for name in absent[:_COUNTED_MAX] for text in _counted(state, name)]
    if len(absent) > _COUNTED_MAX:
        found.append(f"no node offers {len(absent) - _COUNTED_MAX} more of its resources")
    texts = tuple(dict.fromkeys(found))
    state.memo.unserved = asked, texts
    return texts


def meant(state: ClusterState, request: PodRequest) -> tuple[Meant, ...]:
    """What names that no node offers, and amounts that no card has, probably meant."""
    whole = _meant_whole(state, request)
    if whole is not None:
        return (whole,)
    found = [one for wanted in request.devices if (one := meant_in_units(state, wanted))]
    absent = _absent(state, request)
    others = meant_by_others(state, request, absent)
    if others is not None:
        found.append(others)
        absent = [name for name in absent if name not in others.removed]
    amounts = dict(request.extended)
    for name in absent[:_COUNTED_MAX]:
        near = nearest(name, _offered(state))
        if near:
            found.append(Meant((name,), {near: amounts[name]}, ""))
    return tuple(found)


def _meant_whole(state: ClusterState, request: PodRequest) -> Meant | None:
    """For a pod whose card model exists but is not shared: what to request instead."""
    chosen = request.selection
    families = {wanted.family for wanted in request.devices}
    if chosen.use_types is None or len(families) != 1 or families & _absent_families(state):
        return None
    family = FAMILIES.get(next(iter(families)))
    if family is None or not family.counted_again or not request.extended:
        return None
    counted = family.counted_again[0]
    whole = card_names.spelled(Selection(use_types=chosen.use_types, counted=(counted,)))
    known = card_models(state)
    if any(model_wanted(model, chosen) for model in known.registered):
        return None
    if not any(model_wanted(model, whole) for model in known.counted):
        return None
    having: dict[str, str] = {}
    for node in state.nodes.values():
        for model in () if node.fact is None else models_of(node.fact, node.labels, whole):
            if model and model_wanted(model, whole):
                having[node.name] = model
    if not having:
        return None
    name, count = min(having), sum(wanted.count for wanted in request.devices)
    own = family.resources(state.devices)
    return Meant(
        tuple(name for name, _ in request.extended if name in own),
        {counted: count},
        f"node {name} gives {having[name]} as whole cards only: write {counted}: {count} in place "
        f"of {family.count_resource(state.devices)}",
    )


def _absent_families(state: ClusterState) -> set[str]:
    """Families that the policy does not serve: their requests have another remedy."""
    return FAMILIES.keys() - {*state.policy.families}


def _absent(state: ClusterState, request: PodRequest) -> list[str]:
    """The resources of a request that no node lists; none if there are no nodes."""
    if all(node.fact is None for node in state.nodes.values()):
        return []
    return [name for name, _ in request.extended if not _is_offered(state, name)]


def _offered(state: ClusterState) -> set[str]:
    """The resources that nodes list, and those of the devices that they register."""
    present = [node for node in state.nodes.values() if node.fact is not None]
    offered = {listed for node in present for listed in node.extended_free}
    for family in FAMILIES.keys() & {family for node in present for family in node.ledgers}:
        offered |= FAMILIES[family].resources(state.devices)
    return offered


def misread(fact: PodObserved) -> tuple[str, ...]:
    """One text, without a full stop, for each annotation or label of a pod that has no effect here,
    with what was meant.
    """
    return tuple(_misread(key, instead) for key, instead in fact.misnamed)


def _misread(key: str, instead: str) -> str:
    known = ANNOTATIONS.get(key)
    kind = "label" if known is not None and known.is_label else "annotation"
    if known is None:
        return f"{kind} {key} is not recognised and is ignored; did you mean {instead}?"
    what = instead if instead.startswith("limits ") else f"annotation {instead}"
    return f"{kind} {key} ({known.whose}) is ignored here; write the {what} instead"


def switched_off(policy: Policy, wanted: DeviceRequest) -> Switch | None:
    """The switch that would serve the request; None if none is missing."""
    if wanted.family in policy.families or wanted.family not in FAMILIES:
        return None
    return FAMILIES[wanted.family].switch_for(wanted)


def _devices(state: ClusterState, wanted: DeviceRequest) -> Iterator[str]:
    switch = switched_off(state.policy, wanted)
    if switch is not None:
        yield _switch_text(state, wanted, switch)
        return
    if any(wanted.family in node.ledgers for node in state.nodes.values()):
        return
    for node in state.nodes.values():
        for problem in node.fact.problems if node.fact is not None else ():
            if problem.code in _BROKEN_PLUGIN:
                yield f"no node has {wanted.family} devices; node {node.name}: " + problem_text(
                    problem
                )
                return


def _switch_text(state: ClusterState, wanted: DeviceRequest, switch: Switch) -> str:
    argument, asked = switch.argument, switch.resource or wanted.family
    source = state.config_sources.get(SCHEDULER_CONFIG, "built in")
    pairs = [{*pair} for pair in EXCLUSIVE_SWITCHES]
    on = (one.argument for f in FAMILIES.values() for one in f.switches_on(state.policy))
    others = [other for other in on if {argument, other} in pairs]
    instead = f" in place of {others[0]}: true (both cannot be on)" if others else ""
    return (
        f"{argument} is not set in the scheduler configuration ({source}), so {asked} is not "
        f"served: write {argument}: true under the arguments of plugin deviceshare{instead}"
    )


def _is_offered(state: ClusterState, name: str) -> bool:
    return any(name in node.extended_free for node in state.nodes.values())


def _counted(state: ClusterState, name: str) -> Iterator[str]:
    """For a resource that no node lists: the most similar one."""
    present = [node for node in state.nodes.values() if node.fact is not None]
    offered = _offered(state)
    if name in offered:
        yield f"no node lists {name}, though nodes register such devices: does kubelet list them?"
        return
    labelled = sorted(
        n.name for n in present if any(key.startswith(f"{name}.") for key in n.labels)
    )
    if labelled:
        yield (
            f"no node lists {name}, though by its labels node {labelled[0]} has some: a DRA driver "
            "that hands them out is not supported yet; run the device plugin there instead"
        )
        return
    near = nearest(name, offered)
    if near:
        yield f"no node offers {name}; did you mean {near}?"
        return
    configured = {n for family in FAMILIES.values() for n in family.resources(state.devices)}
    near = nearest(name, configured)
    also = f"; the device configuration has {near}, which no node offers either" if near else ""
    yield f"no node offers {name}{also}"


def nearest(name: str, names: set[str]) -> str:
    """The known name that this one probably meant; empty if none is similar. Names differ in case
    more often than in letters.
    """
    by_lower = {known.lower(): known for known in sorted(names)}
    near = get_close_matches(name.lower(), by_lower, 1, _SIMILAR)
    return by_lower[near[0]] if near else ""
