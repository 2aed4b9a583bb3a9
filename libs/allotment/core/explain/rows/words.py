"""The words of an explanation: sentences and amounts, made from its structs alone.

Screens and pages are two renderings of one explanation, so both take their words from here. Times
of day are worded elsewhere, where the reader's time zone is known.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allotment.core.explain.rows.amounts import compute_text, part_text
from allotment.core.explain.rows.life import Displaced, PodExplanation, Relative
from allotment.core.explain.rows.schema import (
    AHEAD_SHOWN,
    MEMORY,
    Change,
    Closest,
    Counterfactual,
    DecidedBy,
    DeviceAsk,
    Fragmentation,
    GangExplanation,
    Held,
    Holder,
    Kept,
    Member,
    Place,
    Reason,
    Request,
    Status,
    Step,
    WaitingFor,
)
from allotment.core.explain.rows.views import asked_whole, card_word, model_text
from allotment.core.reasons import (
    NO_FITTING_INSTANCE,
    QUEUED,
    VOLUME_NOT_READY,
)
from allotment.core.units import (
    age_text,
    bytes_text,
    cpu_text,
    duration_text,
    points_text,
    resource_text,
)

_PLUGINS = {
    "capacity": "plugin capacity: up to its capability, and never what is guaranteed to others",
    "capacity-card": "plugin capacity-card: CPU, memory and cards by model",
    "proportion": "plugin proportion: its part of the cluster by weight",
    "": "no plugin of the policy limits queues; a capability has no effect",
}
_NOW = "What would make it fit now (each recomputed, one change at a time)"
_CLOSEST = "No single change is enough; with these more of it would fit (each recomputed)"
_EVER = "What would fit these nodes if they were empty (each recomputed, one change at a time)"


def advice_title(found: Sequence[Counterfactual], *, never: bool = False) -> str:
    """What a list of changes is: enough now, the nearest, or enough on empty nodes."""
    return _EVER if never else _NOW if _is_enough(found[0]) else _CLOSEST


def gang_advice_title(found: Sequence[Counterfactual]) -> str:
    """The same of a group: a change that is about one of its pods alone, because not even empty
    nodes take that one, says how many nodes fit and not how many pods.
    """
    return advice_title(found, never=found[0].members_fit is None)


def _is_enough(found: Counterfactual) -> bool:
    """Whether all that is asked for fits then. The first of several is the best."""
    return found.members_fit is None or found.members_fit == found.members


def fit_text(found: Counterfactual) -> str:
    """How many nodes, or pods of a group, fit with a change."""
    if found.members_fit is not None:
        return f"{found.members_fit} of {found.members} pods fit"
    nodes = f"{found.nodes_fit} node{'s' * (found.nodes_fit != 1)}"
    return nodes if found.nodes_fit_now is None else f"{nodes}, {found.nodes_fit_now} of them now"


_OF_A_MANIFEST = frozenset(("metadata", "spec"))
"""Where a pointer begins that is one into a manifest; others are about this explanation."""


def line_text(change: Change) -> str:
    """The line to write in the manifest, or where the change is made; empty where that is spread
    over several lines."""
    if change.line:
        return change.line
    steps = [step.replace("~1", "/").replace("~0", "~") for step in change.path.split("/")[1:]]
    if not steps or steps[0] not in _OF_A_MANIFEST:
        return ""
    is_key = len(steps) > 2 and steps[-2] in ("annotations", "labels", "nodeSelector")
    path = steps[-1] if is_key else ".".join(steps)
    of = f"{change.target}, " if change.target else ""
    if change.op == "remove":
        return f"{of}− {path}"
    value = change.value
    if isinstance(value, dict):
        shown = ", ".join(f"{key}={each}" for key, each in value.items())
    elif isinstance(value, tuple):
        shown = ",".join(value)
    else:
        shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{of}{path}: {shown}"


def wants_text(request: Request) -> str:
    """A request in words: ``2 GPUs, each 2.9 GiB memory, 50% compute; model A100 or V100``.

    Empty for one without devices.
    """
    parts = []
    for ask in request.devices:
        whole = _whole(ask, request)
        part = (
            f"{ask.memory_percent}% of the memory, "
            + (f"{ask.compute_percent}% compute" if ask.compute_percent else "no compute limit")
            if ask.memory_percent and whole == 100
            else part_text(ask.memory_bytes, ask.compute_percent, whole)
        )
        each = "each " if ask.count > 1 else ""
        container = f" (container {ask.container})" if len(request.devices) > 1 else ""
        parts.append(
            f"{ask.count} {card_noun(request)}{'s' * (ask.count > 1)}: {each}{part}{container}"
        )
    parts += [f"{name}: {count}" for name, count in request.extended.items()]
    for words, join in (
        (request.models, "model {}"),
        (request.not_models, "not model {}"),
        (request.ids, "card {}"),
        (request.not_ids, "not card {}"),
        (tuple(map(str, request.indexes)), "card index {}"),
    ):
        if words:
            parts.append(join.format(" or ".join(words)))
    if request.mode:
        parts.append(f"mode {request.mode}")
    if request.unrecorded:
        parts.append(f"{', '.join(request.unrecorded)}: how much is left to its own scheduler")
    return "; ".join(parts)


def card_noun(request: Request) -> str:
    """What the cards are called that a request is about."""
    return next((card_word(ask.family) for ask in request.devices), card_word(""))


def _whole(ask: DeviceAsk, request: Request) -> int:
    """100 if compute is asked for in percent: of GPUs, and of NPUs that are sliced softly."""
    return 100 if request.mode else asked_whole(ask.family)


def status_text(found: PodExplanation) -> str:
    """Where a pod is in its life, since when, and the problems of its node, cards and device
    plugin.
    """
    codes = dict.fromkeys(one.code for one in found.problems)
    return _status_text(found) + (f"; open problems: {', '.join(codes)}" if codes else "")


def _status_text(found: PodExplanation) -> str:
    status, placement = found.status, found.placement
    if status.phase == "Pending" and placement is None:
        text = f"Pending {age_text(status.since_seconds or 0)}"
        if status.problem:
            what = "waits for a volume" if status.cause == VOLUME_NOT_READY else "request invalid"
            return f"{text}: {what}, see below"
        if status.scheduler:
            return f"{text}: handled by the scheduler {status.scheduler}"
        return f"{text}: {status.why}" if status.why else text
    if placement is None or placement.others:
        return status.phase + (f" on {status.node}, placed by another scheduler" * bool(placement))
    text = f"{status.phase} on {status.node}"
    if status.latency_ms is not None:
        text += f", reserved {duration_text(status.latency_ms)}"
        if status.bound_ms is not None:
            text += f" and bound {duration_text(status.bound_ms)}"
        text += " after it was first seen"
    return text + (f" (attempt {status.attempts})" if status.attempts else "")


def because_texts(found: PodExplanation) -> list[str]:
    """The details behind the cause of a waiting pod, without its first sentence."""
    status = found.status
    texts = [quota.text for quota in status.quota]
    if status.refused is not None and not status.quota and not status.notes:
        texts.append(status.refused.message)
    texts += [lack.text for lack in found.lacks]
    texts += status.notes
    return [text for text in dict.fromkeys(texts) if text != status.why]


def cause_text(status: Status) -> str:
    """The code of what keeps a pod waiting, how many nodes fit, and how often it was tried."""
    notes = []
    if status.nodes:
        notes.append(f"{status.fits_now} of {status.nodes} nodes fit")
    if status.fits_empty_cluster is not None:
        notes.append(f"fits an empty cluster: {'yes' if status.fits_empty_cluster else 'no'}")
    if status.phase == "Pending" and not status.scheduler and not status.node:
        if status.attempts or status.cause == QUEUED:
            tries = f"{status.attempts} attempt{'s' * (status.attempts != 1)}"
            notes.append(tries if status.attempts else "not tried yet")
        if status.unchanged_seconds is not None:
            notes.append(f"unchanged for {age_text(status.unchanged_seconds)}")
    return f"{status.cause}   ({'; '.join(notes)})" if notes else status.cause


def fragmentation_text(piece: Fragmentation) -> str:
    """What is free in pieces that are each too small, without a full stop."""
    if piece.dimension == MEMORY:
        return (
            f"{bytes_text(piece.free_bytes)} of suitable card memory is free, at most "
            f"{bytes_text(piece.largest_bytes)} of it on one card; "
            f"{bytes_text(piece.needed_bytes)} requested"
        )
    return (
        f"{piece.free_compute_percent}% compute is free on suitable cards, at most "
        f"{piece.most_compute_percent}% of it on one card with "
        f"{bytes_text(piece.needed_bytes)} free; {piece.needed_compute_percent}% requested"
    )


def waiting_text(waiting: WaitingFor) -> str:
    """What has to happen for a pod to fit."""
    nodes = f"one of {waiting.nodes} nodes" if waiting.nodes > 1 else "one node"
    if waiting.kind == "Release":
        return f"for pods to end on {nodes} (retried each time one ends)"
    if waiting.kind == "HoldEnd":
        return f"until {nodes} that would fit is no longer reserved for others"
    why = "not ready, cordoned, quarantined or held back"
    return f"until {nodes} that has room can be used (now {why})"


def displaced_text(displaced: Displaced) -> str:
    """A pod that was evicted for another one."""
    ending = f", which stays: {displaced.reason}" if displaced.ending == "stays" else ""
    return (
        f"{displaced.namespace}/{displaced.name} on {displaced.node} "
        f"({displaced.action}, decision {displaced.decision}){ending}"
    )


def relative_text(relative: Relative) -> str:
    """A pod that came before or after another one, and how it ended."""
    owner = " of the same owner" if relative.is_of_owner else ""
    said = f"pod {relative.namespace}/{relative.name}{owner}, uid {relative.uid}"
    if relative.end is not None:
        return f"{said}: {relative.end.text}"
    where = f" on {relative.node}" if relative.node else ""
    return f"{said}: {relative.status}{where}"


def held_text(device: Held) -> str:
    """What is held of a card. A MIG instance is its profile, whatever amounts were requested; chips
    whose compute is AI cores are cut by templates."""
    if device.profile:
        return f"MIG {device.profile}, instance {device.instance}"
    part = part_text(device.memory_bytes, device.compute_percent, device.compute_whole)
    word = "instance" if device.compute_whole == 100 else "template"
    return f"{part}, {word} {device.instance}" if device.instance else part


def card_text(device: Held) -> str:
    """Which card it is; a card that its node no longer lists is known by its id alone."""
    if not device.model:
        return "not listed by the node now"
    return f"{model_text(device.model)}, {device.id}"


def decided_by_text(by: DecidedBy) -> str:
    """What made the winner win over the second."""
    match by.term:
        case "only":
            return "Nothing else fitted."
        case "leftover":
            return f"Equal scores with {by.second}; it leaves less memory unused on its cards."
        case "name":
            return f"Equal scores and equal leftovers with {by.second}; the name comes first."
        case _:
            winner, second = by.winner_without_micro or 0, by.second_without_micro or 0
            won = f"Won by {points_text(by.lead_micro)}."
            with_ = f"{points_text(max(winner, second))} to {points_text(min(winner, second))}"
            if second > winner:
                said = f"Deciding term: {by.term} (without it, {by.second} wins {with_})."
            elif second == winner:
                said = f"Deciding term: {by.term} (without it, a tie at {points_text(winner)})."
            else:
                said = f"Most of it: {by.term} (without it, still ahead {with_})."
            if by.term == "fit":
                said += f" {by.second} would give away more of its cards than is asked for."
            return f"{won} {said}"


def step_text(step: Step, request: Request) -> str:
    """The step in the words of this very request, where it has some."""
    if step.step == "gpuModel" and request.models:
        return f"has a card of model {' or '.join(request.models)}"
    if step.step == "gpuMemory" and set(step.reasons) == {NO_FITTING_INSTANCE}:
        return "a card with a free piece that is large enough"
    if step.step == "gpuMemory" and request.memory_bytes:
        return f"enough cards with {bytes_text(request.memory_bytes)} unreserved"
    if step.step == "gpuCompute":
        in_cores = not request.mode and not all(asked_whole(a.family) for a in request.devices)
        compute = compute_text(max(request.compute_percent, 1), 0 if in_cores else 100)
        return f"those cards also have {compute}" + " compute" * (not in_cores)
    return step.text


class NearWords(NamedTuple):
    """What is free of a card or a counted resource, its compute separately, and what it lacks."""

    free: str
    free_compute: str
    short: str


def near_words(entry: Closest) -> NearWords:
    """A card that nearly takes a pod, in words."""
    counted, compute = entry.free_count is not None, entry.free_compute_percent
    return NearWords(
        _free_count(entry) if counted else _free_memory(entry),
        "" if counted or compute is None else compute_text(compute, entry.compute_whole),
        ", ".join(_lack_text(name, n, entry.compute_whole) for name, n in entry.short.items()),
    )


def _free_count(entry: Closest) -> str:
    count = entry.free_count or 0
    return cpu_text(count) if "cpuMilli" in entry.short else str(count)


def _free_memory(entry: Closest) -> str:
    """Empty for chips whose memory is not given out by amount."""
    if (
        entry.compute_whole != 100
        and not entry.free_memory_bytes
        and "memoryBytes" not in entry.short
    ):
        return ""
    return bytes_text(entry.free_memory_bytes or 0)


def _lack_text(name: str, amount: int, whole: int) -> str:
    match name:
        case "memoryBytes":
            return f"{bytes_text(amount)} memory"
        case "computePercent":
            return compute_text(amount, whole) + " compute" * (whole == 100)
        case "anyCompute":
            return "compute (none is free)"
        case "cpuMilli":
            return f"{cpu_text(amount)} CPU"
        case "cards":
            return f"{amount} card{'s' * (amount > 1)}"
        case "instances":
            return "no free piece that is large enough"
        case "slots":
            return f"{amount} share{'s' * (amount > 1)}"
        case "otherHolders":
            return f"{amount} other holder{'s' * (amount > 1)}"
        case _:
            return str(amount)


def holder_text(holder: Holder, whole: int = 100) -> str:
    """The holder of a part of a card, and how much it holds."""
    piece = f" [{holder.instance}]" if holder.instance else ""
    if not holder.memory_bytes:
        return f"{holder.namespace}/{holder.name}{piece}"
    words = [bytes_text(holder.memory_bytes)]
    if holder.compute_percent:
        words.append(compute_text(holder.compute_percent, whole))
    return f"{holder.namespace}/{holder.name} {', '.join(words)}{piece}"


def plugin_text(name: str) -> str:
    """What the plugin that limits queues does; "" is none."""
    return _PLUGINS.get(name, f"plugin {name}")


def amount_text(resource: str, amount: int | None, units: Mapping[str, int]) -> str:
    """An amount of Volcano's as people write it; what is not limited is empty. `units` are those of
    the explanation.
    """
    return "" if amount is None else resource_text(resource, amount, units.get(resource, 0))


def place_text(place: Place, among: str) -> str:
    """A position, and the groups and pods ahead."""
    text = f"position {place.position} of {place.length} {among}"
    if place.never:
        text += f"; {place.never} of those ahead can never start as they are"
    if place.ahead:
        more = place.position - 1 - place.never - len(place.ahead)
        also = f" and {more} more" if more > 0 else ""
        text += f"; ahead: {', '.join(place.ahead[:AHEAD_SHOWN])}{also}"
    return text


def reason_text(reason: Reason, between: str = "   ") -> str:
    """Code and words, and whose quota it is about if they do not say so."""
    text = between.join(part for part in (reason.code, reason.message) if part)
    is_said = not reason.queue or f"queue {reason.queue}" in reason.message
    return text if is_said else f"{text} (queue {reason.queue})"


def kept_text(kept: Kept) -> str:
    """What is kept for a group."""
    what = f"the quota of queue {kept.queue}" if kept.queue else ", ".join(kept.nodes)
    since = f"since decision {kept.since}" if kept.since else "while pods are evicted for it"
    return f"{what} for {kept.group}, {since}"


def gang_status_text(found: GangExplanation) -> str:
    """The status of a group, and since when it has it."""
    status = found.status
    age = age_text(status.since_seconds)
    match status.phase:
        case "Unseen":
            return "Unseen: its pods name a PodGroup that does not exist"
        case "NotInUse":
            return "NotInUse: no queue is known, so its pods are placed one by one"
        case "Waiting" if status.together is not None:
            missing = status.wanted - status.together
            fits = f"{status.together} of {status.wanted} can be placed together now"
            never = ", can never fit on these nodes" * (status.fits_empty_cluster is False)
            if status.at_most_empty:
                most = f"at most {status.at_most_empty} of {found.min_member} even on empty nodes"
                never = f", can never start ({most})"
            return f"Waiting {age}{never}: {fits}" + f", {missing} short" * (missing > 0)
        case "Growing":
            return "Growing: it has its minimum, and more of its pods wait"
        case "AtGate":
            return f"Waiting {age} to be admitted by its queue{_gate_never(found)}"
        case "Placed" | "Completed":
            return status.phase
        case phase:
            return f"{phase} {age}"


def _gate_never(found: GangExplanation) -> str:
    """That it can never start as it is, and why: its queue may never have as much, or no nodes hold
    its minimum.
    """
    beyond = [quota for quota in found.status.quota if quota.queue and quota.wants > quota.most]
    if beyond:
        most, wants = (
            amount_text(beyond[0].resource, amount, found.units)
            for amount in (beyond[0].most, beyond[0].wants)
        )
        return (
            f", can never start: it wants {wants} {beyond[0].resource}, and queue "
            f"{beyond[0].queue} may have {most} at most"
        )
    if found.status.at_most_empty is not None:
        most = f"at most {found.status.at_most_empty} of {found.min_member} even on empty nodes"
        return f", can never start ({most})"
    return ", can never fit on these nodes" * (found.status.fits_empty_cluster is False)


def gate_text(found: GangExplanation) -> str:
    """Whether its queue admits a group."""
    gate = found.gate
    assert gate is not None
    if gate.let_in:
        return "admitted" + (f" by decision {gate.decision}" if gate.decision else "")
    if gate.now is not None:
        return f"closed: {gate.now.message}"
    return "would be admitted now" + (f"; last reason: {gate.said.message}" if gate.said else "")


def member_text(member: Member) -> str:
    """Why a member has no place."""
    if member.reason is None:
        return ""
    if member.reasons:
        return ", ".join(f"{code} {count}" for code, count in member.reasons.items())
    return reason_text(member.reason, ": ")
