"""Why a pod is where it is, at one sequence: recomputed from the state and the pod's story.

The filter is a pure function of state and pod, so nothing here is a guess: the funnel of a waiting
pod asks the very predicate that the scheduler asks; the table of a placed one is made on the state
its decision was made on.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from allotment.core import reasons
from allotment.core.closest import closest, fragmentation, holders
from allotment.core.cycle import Evaluator, Place, Trial
from allotment.core.devices import FAMILIES
from allotment.core.devices.base import Free, card_refusal
from allotment.core.explanation import (
    SCHEMA,
    AsOf,
    Candidate,
    CardStep,
    DecidedBy,
    DecisionRef,
    DeviceAsk,
    Explanation,
    Held,
    HostStep,
    NodeSteps,
    Placed,
    Request,
    Status,
    Step,
    Subject,
    TraceRef,
)
from allotment.core.figures import cpu_text, mib_text, rfc3339
from allotment.core.pod_story import Attempt, PodStory
from allotment.core.predicates import STEPS, accepts, by_family, fits
from allotment.core.replay import proposed
from allotment.core.state import BOUND, ClusterState, Node, Pod
from allotment.core.texts import problem_text
from allotment.core.timeline import timeline
from allotment.core.views import MIB, card_name, device_name, pod_status
from allotment_proto.events import PodObserved
from allotment_proto.facts import Holding, PodRequest, Policy

CANDIDATES_SHOWN = 8
FITS = "fits"

STEP_KEYS = (
    "nodeReady",
    "nodeConstraints",
    "hostRoom",
    "devices",
    "gpuModel",
    "sharing",
    "gpuMemory",
    "gpuCompute",
    "otherResources",
)
"""The stable names of `predicates.STEPS`, in the same order."""


def explain(
    state: ClusterState,
    story: PodStory,
    as_of_ms: int,
    *,
    before: ClusterState | None = None,
    node: str | None = None,
) -> Explanation:
    """Explain the pod of a story that was followed to the sequence of `state`.

    `before` is the state at the basis of `story.placed`; without it a placed pod is explained
    without its competitors. `node` adds every step on that node. Raises KeyError for a node that
    the state does not know, ValueError for a story without a pod.
    """
    fact = story.fact
    if fact is None:
        raise ValueError(f"pod {story.namespace}/{story.name} does not occur in the story")
    pod = state.pods.get(story.uid)
    waits = pod is not None and pod.allocation is None and fact.uid in state.pending
    placed = story.placed
    steps = tuple(_funnel(_codes(state, fact.request)))
    candidates: tuple[Candidate, ...] = ()
    total = 0
    if placed is not None and before is not None:
        steps, candidates, total = _competition(before, placed, fact)
    elif not waits or fact.problem is not None:
        steps = ()
    short_of_room = waits and fact.problem is None and steps[-1].left == 0
    return Explanation(
        schema=SCHEMA,
        subject=Subject(kind="Pod", namespace=fact.namespace, name=fact.name, uid=fact.uid),
        as_of=AsOf(seq=state.seq, time=rfc3339(as_of_ms), time_ms=as_of_ms),
        status=_status(state, story, fact, pod, as_of_ms),
        request=request_of(fact.request),
        funnel=steps,
        closest=tuple(closest(state, fact.request)) if short_of_room else (),
        fragmentation=fragmentation(state, fact.request) if short_of_room else None,
        placement=_placed(state, story, pod),
        candidates=candidates[:CANDIDATES_SHOWN],
        candidates_total=total,
        decided_by=decided_by(candidates),
        decision=_decision(state, placed, before),
        node_steps=None if node is None else node_steps(state, state.nodes[node], fact.request),
        timeline=tuple(timeline(story)),
        trace=TraceRef(trace_id=trace_id(fact.uid)),
    )


def trace_id(uid: str) -> str:
    """A pod's trace: its uid without dashes; for a uid that is no UUID, a hash of it."""
    bare = uid.replace("-", "").lower()
    if re.fullmatch(r"[0-9a-f]{32}", bare) and int(bare, 16):
        return bare
    return hashlib.blake2b(uid.encode(), digest_size=16).hexdigest()


def request_of(request: PodRequest) -> Request:
    chosen = request.selection
    first = request.devices[0] if request.devices else None
    return Request(
        gpus=sum(d.count for d in request.devices)
        + sum(amount for name, amount in request.extended if name.endswith("/gpu")),
        memory_bytes=first.memory_mib * MIB if first else 0,
        memory_percent=first.memory_pct if first else 0,
        compute_percent=first.cores_pct if first else 0,
        models=chosen.use_types or (),
        not_models=chosen.nouse_types or (),
        ids=chosen.use_ids or (),
        not_ids=chosen.nouse_ids or (),
        indexes=chosen.indexes or (),
        mode=chosen.mode or "",
        extended=dict(request.extended),
        cpu_milli=request.cpu_milli,
        host_memory_bytes=request.memory_bytes,
        devices=tuple(
            DeviceAsk(
                family=d.family,
                container=d.container_name,
                count=d.count,
                memory_bytes=d.memory_mib * MIB,
                memory_percent=d.memory_pct,
                compute_percent=d.cores_pct,
            )
            for d in request.devices
        ),
    )


def fits_empty_cluster(state: ClusterState, request: PodRequest) -> bool:
    """Whether a node would take it if nobody held anything; cordons and outages do not count."""
    return any(
        not isinstance(fits(_emptied(node), request, state.policy), str)
        for node in state.nodes.values()
        if node.fact is not None
    )


def _emptied(node: Node) -> Node:
    fact = node.fact
    assert fact is not None
    twin = Node(node.name, node.row)
    twin.rebuild(msgspec.structs.replace(fact, ready=True, unschedulable=False))
    return twin


def _status(
    state: ClusterState, story: PodStory, fact: PodObserved, pod: Pod | None, as_of_ms: int
) -> Status:
    phase, cause = ("Gone", "") if pod is None else pod_status(state, pod)
    first_ms = story.first.time_ms if story.first is not None else as_of_ms
    waits = phase == "Pending" and pod is not None
    codes = _codes(state, fact.request) if waits and fact.problem is None else []
    refused = story.refused
    return Status(
        phase=phase,
        cause=cause,
        problem="" if fact.problem is None else problem_text(fact.problem),
        node=_where(story, pod),
        since_seconds=max(as_of_ms - first_ms, 0) // 1000,
        attempts=story.attempts_total,
        unchanged_seconds=(
            max(as_of_ms - refused.time_ms, 0) // 1000 if waits and refused is not None else None
        ),
        latency_ms=None if story.placed is None else max(story.placed.time_ms - first_ms, 0),
        bound_ms=None if story.bound is None else max(story.bound.time_ms - first_ms, 0),
        nodes=len(codes),
        fits_now=sum(code == FITS for code in codes),
        fits_empty_cluster=(
            fits_empty_cluster(state, fact.request) if waits and fact.problem is None else None
        ),
    )


def _where(story: PodStory, pod: Pod | None) -> str:
    if pod is not None and pod.allocation is not None:
        return pod.allocation.node
    if story.placed is not None and story.placed.placement is not None:
        return story.placed.placement.node
    return story.fact.node if story.fact is not None else ""


def _codes(state: ClusterState, request: PodRequest) -> list[str]:
    """Every present node's first obstacle, or `FITS`."""
    codes = []
    for node in state.nodes.values():
        if node.fact is not None:
            answer = fits(node, request, state.policy)
            codes.append(answer if isinstance(answer, str) else FITS)
    return codes


def _funnel(codes: Iterable[str]) -> list[Step]:
    counts = Counter(codes)
    left = counts.total()
    counts.pop(FITS, None)
    steps = [Step(step="all", text="all nodes", left=left, lost=0, reasons={})]
    known: set[str] = set()
    named = [(key, text, found) for key, (text, found) in zip(STEP_KEYS, STEPS, strict=True)]
    for _, _, found in named:
        known |= found
    if unnamed := frozenset(counts.keys() - known):
        named.append(("other", "everything else", unnamed))
    for key, text, found in named:
        here = sorted(((c, counts[c]) for c in found if counts[c]), key=lambda i: (-i[1], i[0]))
        lost = sum(count for _, count in here)
        left -= lost
        steps.append(Step(step=key, text=text, left=left, lost=lost, reasons=dict(here)))
    return steps


def _competition(
    before: ClusterState, placed: Attempt, fact: PodObserved
) -> tuple[tuple[Step, ...], tuple[Candidate, ...], int]:
    """Funnel and ranking as the decision saw them, with earlier pods of its batch assumed."""
    evaluator, trial = Evaluator(before), Trial(before)
    order = {uid: number for number, uid in enumerate(placed.decided.batch)}
    mine = order[fact.uid]
    for placement in proposed(placed.decided):
        if order.get(placement.uid, mine) < mine and placement.node in before.nodes:
            trial.assume(placement)
    verdicts = evaluator.verdicts(fact.request, trial)
    places = sorted(v for v in verdicts.values() if isinstance(v, Place))
    codes = [FITS if isinstance(v, Place) else v for v in verdicts.values()]
    node = placed.placement.node if placed.placement is not None else ""
    candidates = tuple(
        _candidate(rank, place, trial.node(place.rank[2]), node)
        for rank, place in enumerate(places[:CANDIDATES_SHOWN], 1)
    )
    return tuple(_funnel(codes)), candidates, len(places)


def _candidate(rank: int, place: Place, node: Node | None, chosen: str) -> Candidate:
    assert node is not None
    before = 0
    for holding in place.holdings:
        before += node.ledgers[holding.family].by_id[holding.card].free_memory_mib
    taken = sum(holding.memory_mib for holding in place.holdings)
    return Candidate(
        rank=rank,
        node=node.name,
        devices=tuple(device_name(node, holding) for holding in place.holdings),
        free_before_bytes=before * MIB,
        free_after_bytes=(before - taken) * MIB,
        terms=dict(place.score.terms),
        total_micro=place.score.total_micro,
        chosen=node.name == chosen,
    )


def decided_by(candidates: tuple[Candidate, ...]) -> DecidedBy | None:
    """The term without which the second would have won; else the one that gave most of the lead."""
    if not candidates:
        return None
    first = candidates[0]
    if len(candidates) == 1:
        return DecidedBy(term="only")
    second = candidates[1]
    lead = first.total_micro - second.total_micro
    if lead == 0:
        equal = first.free_after_bytes == second.free_after_bytes
        return DecidedBy(term="name" if equal else "leftover", second=second.node)
    gains = {name: value - second.terms.get(name, 0) for name, value in first.terms.items()}
    term = max(gains, key=lambda name: (gains[name], name))
    return DecidedBy(
        term=term,
        lead_micro=lead,
        second=second.node,
        winner_without_micro=first.total_micro - first.terms[term],
        second_without_micro=second.total_micro - second.terms.get(term, 0),
    )


def _placed(state: ClusterState, story: PodStory, pod: Pod | None) -> Placed | None:
    held = pod.allocation if pod is not None else None
    placement = story.placed.placement if story.placed is not None else None
    source = held or placement
    if source is None:
        return None
    node = state.nodes.get(source.node)
    return Placed(
        node=source.node,
        phase=held.phase if held is not None else "released",
        devices=tuple(_held(node, holding) for holding in source.holdings),
        extended=dict(source.extended),
        cpu_milli=source.cpu_milli,
        host_memory_bytes=source.memory_bytes,
        others=held is not None and held.phase == BOUND and held.seq == 0,
    )


def _held(node: Node | None, holding: Holding) -> Held:
    ledger = node.ledgers.get(holding.family) if node is not None else None
    card = ledger.by_id.get(holding.card) if ledger is not None else None
    return Held(
        device=device_name(node, holding),
        id=holding.card,
        model="" if card is None else card.fact.model,
        container=holding.container,
        memory_bytes=holding.memory_mib * MIB,
        compute_percent=holding.cores_pct,
    )


def _decision(
    state: ClusterState, placed: Attempt | None, before: ClusterState | None
) -> DecisionRef | None:
    if placed is None:
        return None
    decided = placed.decided
    policy = before.policy if before is not None else state.policy
    return DecisionRef(
        id=f"d-{placed.seq}",
        seq=placed.seq,
        cycle=decided.cycle,
        basis=decided.basis,
        checked=decided.checked,
        policy=policy_name(policy),
        policy_version=decided.policy,
        ledger_seq=decided.basis,
    )


def policy_name(policy: Policy) -> str:
    """``binpack``; with another policy for hosts ``spread (hosts binpack)``."""
    if policy.host_policy == policy.device_policy:
        return policy.device_policy
    return f"{policy.device_policy} (hosts {policy.host_policy})"


def node_steps(state: ClusterState, node: Node, request: PodRequest) -> NodeSteps:
    """Every step on one node, and for each of its cards the first thing that it lacks."""
    answer = fits(node, request, state.policy)
    cards = []
    for family, wanted in by_family(request).items():
        ledger = node.ledgers.get(family)
        for card in ledger.cards if ledger is not None else ():
            codes = [
                card_refusal(Free(card), ask, request.selection, FAMILIES[family]) for ask in wanted
            ]
            refused = [code for code in codes if code is not None]
            cards.append(
                CardStep(
                    device=card_name(card),
                    id=card.fact.id,
                    model=card.fact.model,
                    family=family,
                    free_slots=card.free_slots,
                    free_memory_bytes=card.free_memory_mib * MIB,
                    free_compute_percent=card.free_cores_pct,
                    verdict=refused[0] if len(refused) == len(codes) else FITS,
                    holders=holders(state, card),
                )
            )
    return NodeSteps(
        node=node.name,
        verdict=answer if isinstance(answer, str) else FITS,
        host=tuple(_host_steps(node, request)),
        cards=tuple(cards),
    )


def _host_steps(node: Node, request: PodRequest) -> list[HostStep]:
    fact = node.fact
    if fact is None:
        return [HostStep(step="nodeReady", verdict=reasons.NODE_NOT_READY, detail="node is gone")]
    refused = accepts(node, request.constraints)
    rows = [
        ("nodeReady", not fact.ready, reasons.NODE_NOT_READY, "Ready condition"),
        (
            "nodeConstraints",
            refused is not None,
            refused or "",
            "cordon, taints, selector, affinity",
        ),
        (
            "pods",
            node.pods_free < 1,
            reasons.POD_LIMIT_REACHED,
            f"{node.pods_free} of {fact.pods} pods free",
        ),
        (
            "cpu",
            bool(request.cpu_milli) and node.cpu_milli_free < request.cpu_milli,
            reasons.INSUFFICIENT_CPU,
            f"{cpu_text(request.cpu_milli)} wanted, {cpu_text(node.cpu_milli_free)} free",
        ),
        (
            "memory",
            bool(request.memory_bytes) and node.memory_bytes_free < request.memory_bytes,
            reasons.INSUFFICIENT_MEMORY,
            f"{mib_text(request.memory_bytes // MIB)} wanted, "
            f"{mib_text(node.memory_bytes_free // MIB)} free",
        ),
    ]
    for name, amount in request.extended:
        free = node.extended_free.get(name, 0)
        short = reasons.NOT_ENOUGH_GPUS_ON_NODE if name.endswith("/gpu") else ""
        code = short or reasons.INSUFFICIENT_RESOURCE
        if name.endswith("/gpu") and name not in node.extended_free:
            code = reasons.NO_GPU
        rows.append((name, free < amount, code, f"{amount} wanted, {free} free"))
    return [
        HostStep(step=step, verdict=code if bad else FITS, detail=detail)
        for step, bad, code, detail in rows
    ]
