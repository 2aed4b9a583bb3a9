"""Scenarios: a node with its cards, pods that are there, then steps in order on one world."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from allotment.core.placement.rules.predicates import Fit
from allotment_proto.volcano import keys
from tests.compat.file import Vector
from tests.compat.runners import ascend, gpushare, vgpu
from tests.compat.runners.base import CannotRun, Fields, compared
from tests.compat.runners.metrics import gauges
from tests.compat.runners.refusals import error_pair, message_pair
from tests.compat.runners.world import (
    World,
    config_of,
    inventory_of,
    policy_of,
    written_keys,
)

STAMPS = frozenset(
    (
        keys.VGPU_TIME,
        keys.BIND_TIME,
        keys.PREDICATE_TIME,
        keys.HAMI_TIME,
        keys.HAMI_BIND_TIME,
        keys.HAMI_PREDICATE_TIME,
    )
)
SCORE_DIGITS = 4


class Words(NamedTuple):
    """How the vectors of one family write what is on a node."""

    family: str
    registered: Callable[[World | None, Mapping[str, Any]], dict[str, Any]]
    """What a registered node shows, by the names of the expectation."""
    books: Callable[[World], list[dict[str, Any]]]
    code: Callable[[str], int]
    """Volcano's code for one of our reasons."""


def scenario(vector: Vector) -> Fields:
    """Build the node, add the existing pods, run the steps."""
    given, expected = vector.input, vector.expected
    words = _words(given)
    config = config_of(given)
    inventory = inventory_of(words.family, given["node"], config)
    world = None
    if inventory is not None:
        policy = policy_of(given.get("policy"), given.get("strategy"))
        world = World(words.family, inventory, policy, config, chip=given.get("type"))
    rest = dict(expected)
    steps = rest.pop("steps", None)
    books = rest.pop("stateAfterExisting", None)
    metrics = rest.pop("metricsAfterExisting", None)
    out = compared(rest, {"panic": None, **words.registered(world, given)})
    if world is None:
        if books is not None or steps:
            out["steps"] = (steps, None)
        return out
    for pod in given.get("existing") or ():
        world.add(pod)
    if books is not None:
        out["stateAfterExisting"] = (books, words.books(world))
    if metrics is not None:
        out["metricsAfterExisting"] = (metrics, gauges(world))
    said = [_step(world, words, step) for step in given.get("steps") or ()]
    if steps is not None:
        out["steps"] = (len(steps), len(said))
        for number, (wanted, got) in enumerate(zip(steps, said, strict=False)):
            out.update(_compared_step(wanted, got, f"steps[{number}]."))
    return out


def _words(given: Mapping[str, Any]) -> Words:
    if "strategy" in given:
        return Words(gpushare.FAMILY, gpushare.registered, gpushare.books, lambda code: 2)
    if "type" in given:
        return Words(ascend.FAMILY, ascend.registered, ascend.books, ascend.code)
    return Words(vgpu.FAMILY, vgpu.registered, vgpu.books, lambda code: 2)


class Said(NamedTuple):
    """What came of a step. `refusal` is our reason code, None where nothing was refused."""

    fields: dict[str, Any]
    refusal: str | None = None


def _step(world: World, words: Words, step: Mapping[str, Any]) -> Said:
    operation, pod = step["op"], step["pod"]
    fields: dict[str, Any] = {}
    refusal = None
    match operation:
        case "filter":
            return _filter(world, words, pod)
        case "allocate":
            answer = world.allocate(pod)
            refusal = answer if isinstance(answer, str) else None
            fields["annotations"] = answer if isinstance(answer, dict) and answer else None
        case "add":
            world.add(pod)
        case "sub":
            world.remove(_uid(pod))
        case "queue":
            fields["queue"] = world.queued(pod)
        case "release":
            fields |= _release(world, words, pod)
        case _:
            known = "filter, allocate, add, sub, release, queue"
            raise CannotRun(f"step {operation!r} is none of {known}")
    fields["code"] = 0 if refusal is None else words.code(refusal)
    return Said({**_shown(world, words), "op": operation, **fields}, refusal)


def _shown(world: World, words: Words) -> dict[str, Any]:
    """What can be seen after a step."""
    return {"state": words.books(world), "metrics": gauges(world), "panic": None}


def _filter(world: World, words: Words, pod: Mapping[str, Any]) -> Said:
    fact = world.fact(pod)
    found = world.fit(fact)
    fields: dict[str, Any] = {
        **_shown(world, words),
        "op": "filter",
        "hasRequest": bool(fact.request.devices) or fact.problem is not None,
    }
    if isinstance(found, Fit):
        fields |= {
            "code": 0,
            "score": world.points(fact, found),
            "wouldAllocate": vgpu.assignment(found),
        }
        return Said(fields)
    return Said({**fields, "code": words.code(found), "score": None, "wouldAllocate": None}, found)


def _release(world: World, words: Words, pod: Mapping[str, Any]) -> dict[str, Any]:
    """What was reserved is given back; what is bound goes with its pod."""
    annotations = pod.get("annotations") or {}
    phase = annotations.get(keys.BIND_PHASE, annotations.get(keys.HAMI_BIND_PHASE))
    committed = phase == keys.PHASE_SUCCESS
    chip = next((card.fact.model for card in world.cards), "")
    if not world.bind_fails(_uid(pod)):
        world.remove(_uid(pod))
    if committed:
        return {"reservation": None, "removeKeys": None}
    written = sorted(written_keys(words.family, chip))
    return {"reservation": written, "removeKeys": written}


def _compared_step(expected: Mapping[str, Any], said: Said, place: str) -> Fields:
    rest = dict(expected)
    pairs: Fields = {}
    if "queue" in said.fields:
        for name in [name for name, value in rest.items() if isinstance(value, dict)]:
            pairs[f"{place}{name}"] = (rest.pop(name), said.fields["queue"])
    if "error" in rest:
        pairs[f"{place}error"] = error_pair(rest.pop("error"), said.refusal)
    if "message" in rest:
        pairs[f"{place}message"] = message_pair(rest.pop("message"), said.refusal)
    if rest.get("annotations") is not None:
        got = said.fields.get("annotations")
        wanted = rest.pop("annotations")
        pairs[f"{place}annotations"] = (without_times(wanted), got and without_times(got))
    if isinstance(rest.get("score"), int | float):
        rest["score"] = round(rest["score"], SCORE_DIGITS)
    return {**pairs, **compared(rest, said.fields, place)}


def without_times(annotations: Mapping[str, str]) -> dict[str, str]:
    """Times are times, whichever they are."""
    return {key: "<time>" if key in STAMPS else text for key, text in annotations.items()}


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod.get("uid") or pod.get("name") or "p")
