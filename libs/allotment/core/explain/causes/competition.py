"""Which other nodes would have taken a pod when it was placed, and why the winner won."""

from collections.abc import Callable, Mapping

from allotment.core.explain.causes.nodes import funnel
from allotment.core.explain.causes.obstacles import FITS
from allotment.core.explain.rows.schema import Candidate, DecidedBy, Step
from allotment.core.explain.rows.views import MIB, device_name
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.cycle import proposed
from allotment.core.placement.evaluator import Evaluator, Place, Trial
from allotment.core.placement.instances import smallest
from allotment.core.placement.least_busy import least_busy
from allotment.core.placement.rules.interpod import situated
from allotment.core.queues.round.verdict import verdict
from allotment.core.reasons import NOT_NOMINATED
from allotment_proto.events import Decided, PodObserved
from allotment_proto.facts import PodRequest

_CANDIDATES_SHOWN = 8


def competition(
    before: ClusterState, decided: Decided, fact: PodObserved, node: str
) -> tuple[tuple[Step, ...], tuple[Candidate, ...], int]:
    """Funnel and ranking as the decision saw them that gave the pod this node, with earlier pods of
    its batch assumed.
    """
    evaluator, trial = Evaluator(before), _trial(before, decided, fact.uid)

    def find(request: PodRequest) -> tuple[PodRequest, Mapping[int, Place | str]] | None:
        verdicts = dict(evaluator.verdicts(request, trial))
        is_taken = any(isinstance(v, Place) for v in verdicts.values())
        return (request, verdicts) if is_taken else None

    def node_of(found: tuple[PodRequest, Mapping[int, Place | str]]) -> str:
        return min(v for v in found[1].values() if isinstance(v, Place)).rank[2]

    ways = (least_busy(asked, before, find, node_of) for asked in verdict(before, fact).tries)
    found = next((way for way in ways if way is not None), None)
    request = _anywhere(before, fact)
    verdicts: Mapping[int, Place | str] = evaluator.verdicts(request, trial)
    if found is not None:
        request, verdicts = found
    winning = smallest(
        before,
        request,
        verdicts,
        lambda found: min((v for v in found.values() if isinstance(v, Place)), default=None),
        lambda smaller: evaluator.verdicts(smaller, trial),
    )
    places = sorted(v for v in winning.values() if isinstance(v, Place))
    codes = _codes(verdicts, lambda: evaluator.verdicts(_anywhere(before, fact), trial))
    candidates = tuple(
        _candidate(rank, place, trial.node(place.rank[2]), node)
        for rank, place in enumerate(places[:_CANDIDATES_SHOWN], 1)
    )
    return tuple(funnel(codes)), candidates, len(places)


def node_at_decision(
    before: ClusterState, decided: Decided, fact: PodObserved, node: str
) -> tuple[Node | None, PodRequest]:
    """A node as the decision saw it when it tried the pod, and the request to it; None if the
    decision did not have the node.
    """
    return _trial(before, decided, fact.uid).node(node), _anywhere(before, fact)


def _trial(before: ClusterState, decided: Decided, uid: str) -> Trial:
    """The nodes with what was assumed before a pod's turn."""
    trial, earlier = Trial(before), _earlier(decided, uid)
    for placement in proposed(decided):
        if placement.uid in earlier and placement.node in before.nodes:
            trial.assume(placement)
    return trial


def _anywhere(before: ClusterState, fact: PodObserved) -> PodRequest:
    """What a pod requests of nodes if it is not limited to the one that it is nominated for."""
    return situated(verdict(before, fact).tries[-1], before)


def _codes(
    verdicts: Mapping[int, Place | str], anywhere: Callable[[], Mapping[int, Place | str]]
) -> list[str]:
    """The nodes' answers. A node that was not asked because the pod is nominated for another one
    differs from a node that would have rejected it anyway.
    """
    codes = {name: FITS if isinstance(v, Place) else v for name, v in verdicts.items()}
    if NOT_NOMINATED in codes.values():
        for name, answer in anywhere().items():
            if codes.get(name) == NOT_NOMINATED and isinstance(answer, str):
                codes[name] = answer
    return list(codes.values())


def _earlier(decided: Decided, uid: str) -> set[str]:
    """The pods that had their places when this one was tried. Placements are in the order in which
    they were made, unless some of them were dropped: then those of a whole are together. For pods
    that were dropped, or found no place, only the batch gives an order.
    """
    order = {uid: number for number, uid in enumerate(decided.batch)}
    mine = order[uid]
    kept = [placement.uid for placement in decided.placements]
    dropped = [given_up.placement.uid for given_up in decided.dropped]
    in_batch = kept + dropped
    if uid in kept:
        in_batch = dropped
    earlier = {other for other in in_batch if order.get(other, mine) < mine}
    return earlier.union(kept[: kept.index(uid)]) if uid in kept else earlier


def _candidate(rank: int, place: Place, node: Node | None, chosen: str) -> Candidate:
    assert node is not None
    before = taken = 0
    for holding in place.holdings:
        card = node.ledgers[holding.family].by_id[holding.card]
        before += card.free_memory_mib
        taken += card.charged_mib(holding)
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
    """The term without which the second would have won; else the one that contributed most to the
    lead.
    """
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
