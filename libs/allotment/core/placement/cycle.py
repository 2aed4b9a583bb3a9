"""One cycle: a batch of pods in order → placements and rejections, on one state, changing nothing.

The filter, the scorer, the replayer and the simulator all call the code here, so a decision can be
recomputed from the log and compared bit for bit. A pod goes to the node with the highest score; of
equals to the one whose chosen cards keep the least free memory (best fit); of these to the first by
name. Later pods of a batch see what earlier ones took.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from allotment.core import reasons
from allotment.core.ledger.groups import wholes_among
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import covers
from allotment.core.ledger.volumes import Pairs, taken
from allotment.core.placement.evaluator import (
    Ranker,
    Ranking,
    Trial,
)
from allotment.core.placement.instances import smallest
from allotment.core.placement.least_busy import least_busy
from allotment.core.placement.rules.bounds import texts_of
from allotment.core.placement.rules.counted_cards import models_note
from allotment.core.placement.rules.failing import has_volunteer, is_concerned, without_tried
from allotment.core.placement.rules.interpod import claims_note, look_around, situated
from allotment.core.placement.rules.local_volumes import choice, stands, within
from allotment.core.placement.rules.predicates import fits
from allotment_proto.events import (
    Admission,
    Decided,
    Dropped,
    Eviction,
    Held,
    Nomination,
    Placement,
    PodObserved,
    Refusal,
    Short,
)
from allotment_proto.facts import ALONE, Holding, PodRequest

BATCH_MAX = 256


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What a cycle would decide. `suppressed` pods were rejected for the same reasons as before.

    The other fields are about groups and stay empty without them; see `Decided`.
    """

    placements: tuple[Placement, ...]
    refusals: tuple[Refusal, ...]
    suppressed: tuple[str, ...]
    wholes: tuple[tuple[str, ...], ...] = ()
    shorts: tuple[Short, ...] = ()
    admissions: tuple[Admission, ...] = ()
    holds: tuple[Held, ...] | None = None
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()

    @property
    def says_anything(self) -> bool:
        """Whether it has anything for the log."""
        made = self.placements, self.refusals, self.shorts, self.admissions
        return any((*made, self.evictions, self.nominations)) or self.holds is not None


def run_cycle(state: ClusterState, batch: Sequence[str], ranker: Ranker) -> Outcome:
    """Place the pods of a batch in order. It skips pods that are no longer pending."""
    placements: list[Placement] = []
    refusals: list[Refusal] = []
    suppressed: list[str] = []
    ranker.begin()
    try:
        for uid in batch if len(batch) == 1 else dict.fromkeys(batch):
            pod = state.pods.get(uid)
            if pod is None or uid not in state.pending:
                continue
            answer = place(pod.fact, ranker)
            if isinstance(answer, Placement):
                ranker.assume(answer)
                placements.append(answer)
            elif same_refusal(pod.refusal, answer):
                suppressed.append(uid)
            else:
                refusals.append(answer)
    finally:
        ranker.end()
    return Outcome(tuple(placements), tuple(refusals), tuple(suppressed))


def place(pod: PodObserved, ranker: Ranker) -> Placement | Refusal:
    """The best place for one pod, or its rejection with counted reasons."""
    if pod.problem is not None:
        return Refusal(pod.uid, pod.namespace, pod.name, 0, (), pod.problem)
    state = ranker.state
    given = taken(state, ranker.assumed) if pod.local_claims else {}

    def narrowed(asked: PodRequest) -> PodRequest:
        return within(without_tried(asked, pod, state, ranker.assumed), pod, state, given)

    def find(asked: PodRequest) -> tuple[PodRequest, Ranking] | None:
        request = narrowed(asked)
        ranking = ranker.rank(request)
        return None if ranking.best is None else (request, ranking)

    found = least_busy(pod, state, find, _node_of)
    if found is None:
        request = narrowed(situated(pod, state))
        nodes = ranker.rank(request).nodes
        return refuse(state, pod, request, nodes, ranker.reasons(request))
    request, ranking = found
    feasible = ranking.feasible
    ranking = smallest(state, request, ranking, lambda found: found.best, ranker.rank)
    best = ranking.best
    assert best is not None
    volumes: Pairs = ()
    if pod.local_claims:
        node = state.nodes[best.rank[2]]
        chosen = choice(pod, node.labels, node.name, given)
        assert chosen is not None
        volumes = chosen
    return Placement(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=best.rank[2],
        holdings=best.holdings,
        cpu_milli=pod.request.cpu_milli,
        memory_bytes=pod.request.memory_bytes,
        extended=pod.request.extended,
        score_micro=best.score.total_micro,
        terms=best.score.terms,
        runners_up=ranking.runners_up,
        feasible=feasible,
        nodes=ranking.nodes,
        volumes=volumes,
    )


def _node_of(found: tuple[PodRequest, Ranking]) -> str:
    best = found[1].best
    assert best is not None
    return best.rank[2]


def refuse(
    state: ClusterState,
    pod: PodObserved,
    asked: PodRequest,
    nodes: int,
    counts: tuple[tuple[str, int], ...],
) -> Refusal:
    """A rejection that counts every node once."""
    notes = notes_of(state, asked, counts)
    return Refusal(pod.uid, pod.namespace, pod.name, nodes, counts, notes=notes)


def notes_of(
    state: ClusterState, asked: PodRequest, counts: Iterable[tuple[str, int]]
) -> tuple[str, ...]:
    """Details of the counted reasons, a sentence each."""
    found = tuple(counts)
    models, claims = models_note(state, asked, found), claims_note(state, asked, found)
    return texts_of(asked, found) + models + claims


def same_refusal(earlier: Refusal | None, now: Refusal) -> bool:
    """Whether a pod was rejected before for the same counted reasons."""
    return (
        earlier is not None
        and earlier.nodes == now.nodes
        and earlier.reasons == now.reasons
        and earlier.problem == now.problem
        and earlier.notes == now.notes
    )


def recheck(state: ClusterState, trial: Trial, placement: Placement) -> str | None:
    """Check a proposed placement on the newest state. Returns why it no longer holds; None if it
    does.

    The node must still take the request, and its books must cover the cards proposed. An accepted
    placement is assumed, so the next one of the batch is checked on top of it.
    """
    pod = state.pods.get(placement.uid)
    if pod is None:
        return reasons.POD_GONE
    node = trial.node(placement.node)
    if placement.uid not in state.pending or placement.uid in trial.placed or node is None:
        return reasons.STALE_LEDGER
    if pod.fact.problem is not None:
        return reasons.INVALID_REQUEST
    request = pod.fact.request
    wanted = (request.cpu_milli, request.memory_bytes, request.extended)
    if (placement.cpu_milli, placement.memory_bytes, placement.extended) != wanted:
        return reasons.STALE_LEDGER
    if (placement.namespace, placement.name) != (pod.fact.namespace, pod.fact.name):
        return reasons.STALE_LEDGER
    if placement.volumes or pod.fact.local_claims:
        given = taken(state, trial.local)
        if not stands(pod.fact, placement, node.labels, given):
            return reasons.STALE_LEDGER
    cards: dict[tuple[str, int], set[str]] = {}
    for held in placement.holdings:
        cards.setdefault((held.family, held.container), set()).add(held.card)
    if has_volunteer(state, node, pod.fact.namespace) and is_concerned(request):
        return reasons.NODE_FAILING
    asked = situated(pod.fact, state)
    around = None
    if asked.company != ALONE:
        around = look_around(trial.nodes(), asked, only=node)
    verdict = fits(node, asked, state.policy, only=cards, around=around)
    if isinstance(verdict, str):
        return verdict
    offered = [h for chosen in verdict.chosen for h in chosen.holdings]
    if sorted(offered, key=_by_place) != sorted(placement.holdings, key=_by_place):
        return reasons.STALE_LEDGER
    if not covers(node, placement):
        return reasons.STALE_LEDGER
    trial.assume(placement)
    return None


class Rechecked(NamedTuple):
    """What remains of a proposal. A whole holds with all its placements or not at all."""

    kept: tuple[Placement, ...]
    dropped: tuple[Dropped, ...]
    wholes: tuple[tuple[str, ...], ...]


def recheck_all(
    state: ClusterState, placements: Sequence[Placement], wholes: Sequence[tuple[str, ...]]
) -> Rechecked:
    """Check every proposed placement, each on top of those that still hold.

    First in the order in which they were made: all hold unless the state has changed. If some do
    not, the remaining ones are checked whole by whole, and pods beyond a group's minimum only hold
    with it.
    """
    trial = Trial(state)
    if all(recheck(state, trial, placement) is None for placement in placements):
        number_of = {uid: number for number, whole in enumerate(wholes) for uid in whole}
        numbers = dict.fromkeys(number_of[p.uid] for p in placements if p.uid in number_of)
        return Rechecked(tuple(placements), (), tuple(wholes[number] for number in numbers))
    return _what_stands(state, placements, wholes)


def _what_stands(
    state: ClusterState, placements: Sequence[Placement], wholes: Sequence[tuple[str, ...]]
) -> Rechecked:
    """What remains of placements of which some no longer hold."""
    trial = Trial(state)
    kept: list[Placement] = []
    dropped: list[Dropped] = []
    pods = state.pods
    groups = {p.uid: pods[p.uid].fact.group for p in placements if p.uid in pods}
    minimum, surplus = wholes_among(wholes, groups)
    parts: dict[int, list[Placement]] = {}
    for placement in placements:
        if placement.uid in minimum:
            parts.setdefault(minimum[placement.uid], []).append(placement)
    standing: dict[int, tuple[str, ...]] = {}
    for placement in placements:
        uid = placement.uid
        number = minimum.get(uid, surplus.get(uid))
        if number is not None and (together := parts.pop(number, [])):
            codes = [recheck(state, trial, p) for p in together]
            if not any(codes):
                kept += together
                standing[number] = wholes[number]
            else:
                for p, code in reversed([*zip(together, codes, strict=True)]):
                    if code is None:
                        trial.take_back(p)
                dropped += [
                    Dropped(p, code or reasons.GANG_INCOMPLETE)
                    for p, code in zip(together, codes, strict=True)
                ]
        if uid in minimum:
            continue  # dropped with its whole
        is_alone = number is None or number in standing
        code = recheck(state, trial, placement) if is_alone else reasons.GANG_INCOMPLETE
        if code is None:
            kept.append(placement)
        else:
            dropped.append(Dropped(placement, code))
    return Rechecked(tuple(kept), tuple(dropped), tuple(standing.values()))


def _by_place(holding: Holding) -> tuple[str, int, str]:
    return holding.family, holding.container, holding.card


def stamped(state: ClusterState, placements: Sequence[Placement], now_s: int) -> list[Placement]:
    """Placements with time stamps (seconds): per node strictly increasing, and never before
    `now_s`.
    """
    last: dict[str, int] = {}
    out: list[Placement] = []
    for placement in placements:
        node = state.nodes[placement.node]
        stamp_s = max(now_s, last.get(node.name, node.last_stamp_s) + 1)
        last[node.name] = stamp_s
        out.append(msgspec.structs.replace(placement, stamp_s=stamp_s))
    return out


def proposed(event: Decided) -> tuple[Placement, ...]:
    """What the scorer proposed, in batch order: what was kept, without stamps, and what was
    dropped.
    """
    kept = [msgspec.structs.replace(p, stamp_s=0) for p in event.placements]
    dropped = [d.placement for d in event.dropped]
    return in_order(event.batch, kept + dropped)


def in_order(batch: Sequence[str], placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """Placements in the order of a batch's pods, then by uid."""
    order = {uid: number for number, uid in enumerate(batch)}
    return tuple(sorted(placements, key=lambda p: (order.get(p.uid, len(order)), p.uid)))
