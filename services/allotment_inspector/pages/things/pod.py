"""One pod: what became of it in a sentence, as a waterfall, in tables and in its records."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from allotment.adapters.service.moments import local_text
from allotment.core.explain.history.concerned import POD
from allotment.core.explain.rows.amounts import part_text
from allotment.core.explain.rows.life import (
    EVICTED,
    FAILED,
    NODE_GONE,
    REFUSED_BY_NODE,
    RUNNING,
    End,
    Life,
    PodExplanation,
    Relative,
)
from allotment.core.explain.rows.schema import Held, Step
from allotment.core.explain.rows.views import PERHAPS, cards_of, model_text
from allotment.core.explain.rows.words import (
    because_texts,
    decided_by_text,
    fragmentation_text,
    held_text,
    near_words,
    place_text,
    step_text,
    waiting_text,
    wants_text,
)
from allotment.core.ledger.model import ENDED
from allotment.core.units import bytes_text, cpu_text, duration_text
from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.found import NotFound, not_found
from allotment_inspector.said import (
    Bit,
    Fact,
    decision_link,
    group_link,
    node_link,
    pod_link,
    queue_link,
    said,
    typed,
)
from allotment_inspector.stories import tell
from allotment_inspector.waterfall import Waterfall, waterfalls

_OVER = ENDED | {"Gone"}
_BAD = frozenset((EVICTED, FAILED, REFUSED_BY_NODE, NODE_GONE))
_HOLDERS_SHOWN = 24
_CARDS_NAMED = 4
_GAINS_SHOWN = 4
_VERBS = {
    "Reserved": "Has a reservation on ",
    "Bound": "Is bound to ",
    "Pending": "Starts on ",
    "Terminating": "Terminating on ",
}


class PartOf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A holder of a part of a card, and how much it holds, in words."""

    namespace: str
    name: str
    uid: str = ""
    text: str


class NearCard(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A card that nearly takes the pod; `free` and `short` are words."""

    node: str
    device: str
    free: str
    short: str
    holders: tuple[PartOf, ...] = ()


class PodPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that the page shows. `life` is the history of any pod; `explanation` is that of the
    newest one of its name. `look` is how the status looks: ``wait``, ``end``, ``fail`` or nothing.
    `others` hold parts of `card`, the first one that the pod is on. `wants_advice`: changes that
    would make it fit may be asked for, at the address of `pod_advice`. `at` is when commands find
    this pod by its name.
    """

    namespace: str
    name: str
    uid: str
    status: str
    look: str
    sentence: tuple[Bit, ...]
    facts: tuple[Fact, ...]
    because: tuple[str, ...]
    wants_advice: bool
    falls: tuple[Waterfall, ...]
    why: str
    nodes: int
    fit: int
    funnel: tuple[Step, ...]
    closest: tuple[NearCard, ...]
    card: Bit | None
    others: tuple[PartOf, ...]
    earlier: tuple[Bit, ...]
    later: tuple[Bit, ...]
    at: int | None
    life: Life
    explanation: PodExplanation | None


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> PodPage | NotFound:
    """The newest pod of a name up to the moment, or the one of `uid`."""
    namespace, name = match["namespace"], match["name"]
    told = tell(moment, namespace, name, query.get("uid", ""))
    if told is None:
        return no_pod(moment, namespace, name)
    life, found = told.life, told.explanation
    status = Status.of(life)
    waits = found is not None and found.status.phase == "Pending" and found.placement is None
    card, others = _others(moment, found)
    return PodPage(
        namespace=namespace,
        name=name,
        uid=told.uid,
        status=status.word,
        look=status.look,
        sentence=tuple(_sentence(life, found)),
        facts=tuple(_facts(life, found)),
        because=tuple(_because(found)) if found is not None and waits else (),
        wants_advice=found is not None and waits and not found.status.problem,
        falls=waterfalls(life),
        why="" if found is None or found.decided_by is None else decided_by_text(found.decided_by),
        nodes=found.funnel[0].left if found is not None and found.funnel else 0,
        fit=0 if found is None else found.candidates_total,
        funnel=tuple(_funnel(found)) if found is not None else (),
        closest=tuple(_closest(found)) if found is not None else (),
        card=card,
        others=others,
        earlier=() if life.predecessor is None else tuple(_relative(life.predecessor)),
        later=() if life.successor is None else tuple(_relative(life.successor)),
        at=_at(moment, told.uids, told.uid),
        life=life,
        explanation=found,
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    namespace, name = match["namespace"], match["name"]
    at = _at(moment, moment.pods_named(namespace, name), query.get("uid", ""))
    return typed("allot", "explain", "pod", f"{namespace}/{name}", at=at)


def _at(moment: Moment, uids: Sequence[str], uid: str) -> int | None:
    """When commands have to look to find the pod of this uid by its name: before another one had
    the name.
    """
    later = uids[uids.index(uid) + 1 :] if uid in uids else ()
    return min((moment.seqs(POD, each)[0] for each in later), default=0) - 1 if later else moment.at


def no_pod(moment: Moment, namespace: str, name: str) -> NotFound:
    """That there was no such pod, and which others have like names."""
    return not_found(
        "pod",
        f"{namespace}/{name}",
        moment.pod_names(),
        lambda key: pod_link(*key.split("/", 1)).path,
    )


class Status(NamedTuple):
    """A word for where a pod is in its life, and how it looks."""

    word: str
    look: str

    @classmethod
    def of(cls, life: Life) -> "Status":
        """The pod's own end says more than that it is gone."""
        end = life.end
        if end is not None and (life.status in _OVER or end.kind == EVICTED):
            words = {"RefusedByNode": "Rejected by its node", "NodeGone": "Ended with its node"}
            word = words.get(end.kind, "Deleted" if end.kind.startswith("Deleted") else end.kind)
            return cls(word, "fail" if end.kind in _BAD else "end")
        if life.status == "Pending":
            return cls("Waiting", "wait")
        if life.status in _OVER:
            return cls(life.status, "end")
        return cls(life.status, "" if life.status == "Running" else "wait")


def _sentence(life: Life, found: PodExplanation | None) -> Iterator[Bit]:
    """What became of it, in plain words."""
    if life.end is not None:
        yield from _ended(life, life.end)
    elif found is not None and found.placement is not None:
        yield from _placed(life, found)
    elif found is not None:
        yield from _waits(life, found)
    if found is not None and life.end is not None and found.advice:
        yield Bit(text=f" {found.advice[:1].upper()}{found.advice[1:]}.")
    if found is not None and life.end is None:
        for one in found.problems:
            yield Bit(text=f" Problem: {one.subject}: {one.message}.")
    if life.successor is not None and life.end is not None:
        yield Bit(text=" Its successor is ")
        yield from _relative(life.successor)
        yield Bit(text=".")


def _ended(life: Life, end: End) -> Iterator[Bit]:
    at = f" at {local_text(end.time_ms)}"
    if end.evicted is None:
        text = end.text[:1].upper() + end.text[1:]
        yield from said(f"{text},{at}.")
        return
    evicted = end.evicted
    ran = "" if end.run_ms is None else f" It had run for {duration_text(end.run_ms)} on "
    yield from said(
        f"Evicted at {local_text(evicted.time_ms)} by ",
        decision_link(evicted.decision),
        ", to make room for ",
        preemptor_link(evicted.preemptor),
        ".",
        ran,
    )
    if ran:
        yield from said(node_link(evicted.node), ".")
    gained = [gain for gain in evicted.gained if gain.decision]
    for number, gain in enumerate(gained[:_GAINS_SHOWN]):
        yield from said(
            " " if number == 0 else "; ",
            pod_link(gain.namespace, gain.name, gain.uid),
            " got ",
            node_link(gain.node),
            " by ",
            decision_link(gain.decision or 0),
        )
    if gained:
        more = len(gained) - _GAINS_SHOWN
        yield Bit(text=f"; and {more} more." if more > 0 else ".")


def preemptor_link(name: str) -> Bit:
    """Whom others make room for, as `preemptor_name` calls it."""
    word, _, pod = name.partition(" ")
    if word == "pod" and "/" in pod:
        namespace, _, bare = pod.partition("/")
        return pod_link(namespace, bare)
    return group_link(name) if "/" in name and not pod else Bit(text=name)


def _placed(life: Life, found: PodExplanation) -> Iterator[Bit]:
    placement, status = found.placement, found.status
    assert placement is not None
    runs = next((p for p in reversed(life.phases) if p.name == RUNNING and not p.end), None)
    verb = "Runs on " if runs is not None else _VERBS.get(status.phase, "Is on ")
    since = runs or (life.phases[-1] if life.phases else None)
    yield from said(verb, node_link(placement.node, _where(placement.node, placement.devices)))
    yield Bit(text="" if since is None else f" since {local_text(since.start_ms)}")
    if placement.devices:
        memory = sum(device.memory_bytes for device in placement.devices)
        compute = sum(device.compute_percent for device in placement.devices)
        part = part_text(memory, compute, placement.devices[0].compute_whole)
        yield Bit(text=f" and {'may hold' if placement.phase == PERHAPS else 'holds'} {part}")
    yield Bit(text=".")
    if placement.others:
        yield Bit(text=" Another scheduler placed it.")
    elif status.latency_ms is not None:
        tries = status.attempts - 1
        refused = (
            "was placed at the first attempt"
            if tries < 1
            else f"was placed at attempt {status.attempts}"
        )
        yield Bit(text=f" It waited {duration_text(status.latency_ms)} and {refused}.")
    if status.waits:
        yield Bit(text=f" It waits {status.waits}.")
    if life.displaced:
        pods = f"{len(life.displaced)} pod{'s' * (len(life.displaced) != 1)}"
        yield from said(f" It evicted {pods} in ", decision_link(life.displaced[0].decision), ".")


def _waits(life: Life, found: PodExplanation) -> Iterator[Bit]:
    status = found.status
    yield from said(
        f"Waits since {local_text(life.seen_ms)}, for ", Bit(since_ms=life.seen_ms), ": "
    )
    yield from said(f"{_cause(found)}.")
    if status.fits_empty_cluster is False:
        yield Bit(text=" It can never fit on these nodes: waiting does not help.")
    elif found.waiting_for is not None:
        yield Bit(text=f" It waits {waiting_text(found.waiting_for)}.")
    if status.nominated:
        yield from said(
            " ", node_link(status.nominated), " is reserved for it: pods are being evicted there."
        )


def _cause(found: PodExplanation) -> str:
    """The one thing that keeps a pod waiting."""
    return found.status.problem or found.status.why or "not tried yet"


def _because(found: PodExplanation) -> Iterator[str]:
    """What keeps a pod waiting, the most telling first."""
    status = found.status
    if status.problem:
        yield status.problem
    yield from because_texts(found)
    if status.group and not status.problem:
        yield status.group
    if found.fragmentation is not None:
        yield fragmentation_text(found.fragmentation)


def _where(node: str, devices: Sequence[Held]) -> str:
    names = [device.device for device in devices]
    shown = ", ".join(names[:_CARDS_NAMED])
    more = f" and {len(names) - _CARDS_NAMED} more" if len(names) > _CARDS_NAMED else ""
    return f"{node}/{shown}{more}" if names else node


def _facts(life: Life, found: PodExplanation | None) -> Iterator[Fact]:
    """What is known of it, in the order in which people ask."""
    ask = life.ask

    def fact(label: str, *pieces: str | Bit, is_id: bool = False) -> Fact:
        return Fact(label=label, bits=said(*pieces), is_id=is_id)

    yield fact("Request", wants_text(ask.request) or "no device")
    placement = None if found is None else found.placement
    if placement is not None:
        verb = {"released": "Held", PERHAPS: "May hold"}.get(placement.phase, "Holds")
        for device in placement.devices:
            model = f" {model_text(device.model)}" if device.model else ""
            name = f"{placement.node}/{device.device}"
            link = node_link(placement.node, name)
            yield fact(verb, link, f"{model}: {held_text(device)}")
        for resource, count in placement.extended.items():
            yield fact(verb, node_link(placement.node), f": {resource} {count}")
    request = ask.request
    host = [f"{cpu_text(request.cpu_milli)} CPU"] if request.cpu_milli else []
    host += [bytes_text(request.host_memory_bytes)] if request.host_memory_bytes else []
    if host:
        yield fact("Host", ", ".join(host))
    where = [f"{key}={value}" for key, value in ask.node_selector.items()]
    where += ["affinity " + " or ".join(ask.affinity)] if ask.affinity else []
    where += ["rules about other pods"] if ask.others else []
    if where:
        yield fact("Nodes", "; ".join(where))
    if ask.tolerations:
        yield fact("Tolerates", ", ".join(ask.tolerations))
    if found is not None and found.status.cause:
        yield fact("Cause", found.status.cause)
    if ask.queue:
        place = ""
        if found is not None and found.in_queue is not None:
            place = f": {place_text(found.in_queue, 'of the waiting pods')}"
        yield fact("Queue", queue_link(ask.queue), place)
    if ask.group:
        yield fact("Group", group_link(ask.group), f" as {ask.role}" if ask.role else "")
    if ask.priority or ask.priority_class:
        klass = f" ({ask.priority_class})" if ask.priority_class else ""
        never = ", never preempts" if ask.never_preempts else ""
        yield fact("Priority", f"{ask.priority}{klass}{never}")
    yield fact("Scheduler", ask.scheduler)
    if life.owner:
        yield fact("Owner", life.owner)
    if found is not None and found.decision is not None:
        decision = found.decision
        policy = f", policy {decision.policy} of record {decision.policy_version}"
        yield fact("Decision", decision_link(decision.seq, f"record {decision.seq}"), policy)
        yield fact("Based on", f"record {decision.basis}, checked on {decision.checked}")
    yield fact("UID", life.subject.uid, is_id=True)
    yield fact("Trace", life.trace_id, is_id=True)


def _funnel(found: PodExplanation) -> Iterator[Step]:
    for step in found.funnel:
        if step.lost or step.step == "all":
            text = step_text(step, found.request)
            yield msgspec.structs.replace(step, text=text)


def _closest(found: PodExplanation) -> Iterator[NearCard]:
    for entry in found.closest:
        near = near_words(entry)
        yield NearCard(
            node=entry.node,
            device=entry.device,
            free=", ".join(filter(None, (near.free, near.free_compute))),
            short=near.short,
            holders=tuple(
                PartOf(
                    namespace=holder.namespace,
                    name=holder.name,
                    text=part_text(
                        holder.memory_bytes, holder.compute_percent, entry.compute_whole
                    ),
                )
                for holder in entry.holders
            ),
        )


def _others(moment: Moment, found: PodExplanation | None) -> tuple[Bit | None, tuple[PartOf, ...]]:
    """Who else holds parts of the first card that the pod is on now."""
    placement = None if found is None else found.placement
    if found is None or placement is None or placement.phase == "released" or not placement.devices:
        return None, ()
    node = moment.state.nodes.get(placement.node)
    first = placement.devices[0]
    if node is None:
        return None, ()
    card = next((card for card in cards_of(moment.state, node) if card.id == first.id), None)
    if card is None:
        return None, ()
    others = [holder for holder in card.holders if holder.uid != found.subject.uid]
    return node_link(node.name, f"{node.name}/{card.device}"), tuple(
        PartOf(
            namespace=holder.namespace,
            name=holder.name,
            uid=holder.uid,
            text=part_text(holder.memory_bytes, holder.compute_percent, first.compute_whole),
        )
        for holder in others[:_HOLDERS_SHOWN]
    )


def _relative(relative: Relative) -> Iterator[Bit]:
    yield pod_link(relative.namespace, relative.name, relative.uid)
    owner = " of the same owner" if relative.is_of_owner else ""
    seen = f", seen at {local_text(relative.seen_ms)}"
    if relative.end is not None:
        yield Bit(text=f"{owner}{seen}, {relative.end.text}")
    else:
        yield Bit(text=f"{owner}{seen}, {relative.status}" + " on " * bool(relative.node))
        if relative.node:
            yield node_link(relative.node)
