"""What a pod's annotations may say about the cards it holds, and how much of that counts.

Annotations belong to the pod's owner, who may edit or delete them at any time. So they are a
*claim*:

* What a decision booked stays booked until an ending in the log: whatever the pod claims later
  changes nothing (`fold_pods`).
* A pod that others bound, or that was bound before the log began, holds what it first claimed
  readably, and at most what its own limits ask kubelet for (`within_limits`): the annotation says
  which cards, the limits say how many and how much of each. A pod without limits holds nothing.

Where a claim differs from what is booked it is said (`mismatch`), by an Event, by `allot doctor`,
in the log's text and as a metric. It differs where `agrees` says so, and nowhere else: what a
device plugin may write and what an annotation leaves out is listed there.
"""

from collections.abc import Iterator

import msgspec

from allotment.core.ledger.model import ACTIVE, BOUND, Pod
from allotment.core.ledger.partitions import UNCONFIRMED, holding_rules
from allotment.core.reasons import CARDS_QUARANTINED, CLAIM_MISMATCH, CLAIM_UNREADABLE
from allotment_proto.events import PodObserved
from allotment_proto.facts import DeviceRequest, Holding, Problem

_SHOWN_MAX = 4
_NO_CARD = "no card"


def agrees(booked: tuple[Holding, ...], claimed: tuple[Holding, ...]) -> bool:
    """Whether a claim is what is booked, in any order.

    Two things may differ. An index annotation (`volcano.sh/gpu-index`) carries no amounts, so a
    claim without memory agrees with any. And Huawei's device plugin confirms a piece that it gave
    (`huawei.com/AscendReal`), so the same piece agrees whether it is confirmed or not.

    The device plugins rewrite nothing else of what a claim is read from: they take entries out of
    `…devices-to-allocate` and mark the phase, and a MIG instance stays the one that was decided.
    """
    if booked == claimed:
        return True
    if len(booked) != len(claimed):
        return False
    return all(
        _piece(ours) == _piece(seen)
        and ours.cores_pct == seen.cores_pct
        and seen.memory_mib in (0, ours.memory_mib)
        for ours, seen in zip(sorted(booked, key=_piece), sorted(claimed, key=_piece), strict=True)
    )


def _piece(holding: Holding) -> tuple[str, int, str, str]:
    instance = holding.instance.removesuffix(UNCONFIRMED)
    return holding.family, holding.container, holding.card, instance


def confirmed(booked: tuple[Holding, ...], claimed: tuple[Holding, ...]) -> tuple[Holding, ...]:
    """What is booked, with the pieces in it that a claim names as confirmed."""
    named = {_piece(held) for held in claimed if not held.instance.endswith(UNCONFIRMED)}
    return tuple(
        msgspec.structs.replace(held, instance=held.instance.removesuffix(UNCONFIRMED))
        if held.instance.endswith(UNCONFIRMED) and _piece(held) in named
        else held
        for held in booked
    )


def is_of(holding: Holding, request: DeviceRequest) -> bool:
    """Whether a request asks for a holding: its container does, for devices of that kind."""
    if (holding.family, holding.container) != (request.family, request.container):
        return False
    return holding_rules(request.family).answers(holding.instance, request)


def within_limits(
    claimed: tuple[Holding, ...], requests: tuple[DeviceRequest, ...]
) -> tuple[Holding, ...]:
    """The part of a claim that counts: of each request the first cards that it asks for, each with
    the amounts that it asks for.

    A request in percent of a card keeps the memory that is claimed until the books, which know the
    card, put in what that comes to (`shares_pct`).
    """
    counted: list[Holding] = []
    for request in requests:
        named = dict.fromkeys(_granted(held, request) for held in claimed if is_of(held, request))
        counted += list(named)[: request.count]
    return tuple(counted)


def shares_pct(
    holdings: tuple[Holding, ...], requests: tuple[DeviceRequest, ...]
) -> tuple[tuple[int, int], ...]:
    """Of each container that asks for a percentage of its cards' memory, and claims some: that."""
    held = {(holding.family, holding.container) for holding in holdings}
    found: dict[int, int] = {}
    for request in requests:
        if request.memory_pct and (request.family, request.container) in held:
            before = found.get(request.container, 0)
            found[request.container] = max(before, request.memory_pct)
    return tuple(sorted(found.items()))


def _granted(held: Holding, request: DeviceRequest) -> Holding:
    memory_mib = held.memory_mib if request.memory_pct else request.memory_mib
    return Holding(
        held.family,
        held.container,
        held.card,
        memory_mib,
        request.cores_pct,
        holding_rules(request.family).granted(held.instance, request),
    )


def served_with(fact: PodObserved) -> tuple[Holding, ...]:
    """What its device plugin serves a pod with whose record is another one than it may have, if
    kubelet comes to it before anything is done about it: as many cards as its limits ask for, and
    of each what is written there, whatever they ask for.
    """
    found = fact.standing
    if found is None or not fact.node or found.node != fact.node or fact.phase != ACTIVE:
        return ()
    asked = sum(r.count for r in fact.request.devices if r.family == found.family)
    return found.holdings if asked == found.devices == len(found.holdings) else ()


def mismatch(pod: Pod) -> Problem | None:
    """How what a bound pod's annotations claim differs from what is booked for it; None if it does
    not, or while it is unknown whose Binding took effect."""
    fact, held = pod.fact, pod.allocation
    if held is None or held.node != fact.node or held.phase != BOUND or held.broken:
        return None
    return difference(held.seq, held.holdings, fact)


def difference(decision: int, booked: tuple[Holding, ...], fact: PodObserved) -> Problem | None:
    """The same of what a decision (0: none) booked for a pod. None if it claims just that."""
    if fact.broken is None and agrees(booked, claimed(fact)):
        return None
    claim = claim_text(claimed(fact)) if fact.broken is None else "what cannot be read"
    why = f"the log books {claim_text(booked)} for the pod (decision {decision})"
    is_within = agrees(booked, fact.holdings) or bool(fact.shares_pct)
    if not decision and fact.broken is None and is_within:
        why = f"the pod's limits ask for {claim_text(booked)}"
    elif not decision:
        why = f"when they were first read {claim_text(booked)} was booked"
    return Problem(
        CLAIM_MISMATCH,
        "annotations",
        f"claim {claim}, but {why}: the books go by that, whatever annotations say",
    )


def unreadable(pod: Pod) -> Problem | None:
    """What it means for its node's cards that it is unknown which of them a pod holds; None if
    it is known."""
    held = pod.allocation
    if held is None or not held.broken:
        return None
    why = pod.fact.broken or Problem(CARDS_QUARANTINED, "annotations", "cannot be read")
    if held.closes_node:
        meaning = (
            f"so it is unknown which cards of node {held.node} this pod holds, and they "
            "accept no new pods"
        )
        return Problem(CARDS_QUARANTINED, why.place, f"{why.message}: {meaning}")
    known = held.known_places
    perhaps = tuple(h for h in held.holdings if (h.family, h.container, h.card) not in known)
    if not perhaps:
        return None  # the node lists no card that it could be
    meaning = (
        f"the pod may be on any of these cards of node {held.node}, so its share is reserved on "
        f"each of them: {claim_text(perhaps)}"
    )
    return Problem(CLAIM_UNREADABLE, why.place, f"{why.message}: {meaning}")


def claimed(fact: PodObserved) -> tuple[Holding, ...]:
    """All that a pod's annotations claim, also what its limits do not ask for."""
    return fact.annotated or fact.holdings


def claim_text(holdings: tuple[Holding, ...]) -> str:
    """Cards and amounts, the first few of them."""
    parts = list(_parts(holdings))
    more = f" and {len(parts) - _SHOWN_MAX} more" if len(parts) > _SHOWN_MAX else ""
    return ", ".join(parts[:_SHOWN_MAX]) + more if parts else _NO_CARD


def _parts(holdings: tuple[Holding, ...]) -> Iterator[str]:
    for held in holdings:
        piece = f"[{held.instance}]" if held.instance else ""
        amounts = [f"{held.memory_mib} MiB"] if held.memory_mib else []
        if held.cores_pct:
            amounts.append(f"compute {held.cores_pct}")
        yield f"{held.card[:64]}{piece}" + (f" ({', '.join(amounts)})" if amounts else "")
