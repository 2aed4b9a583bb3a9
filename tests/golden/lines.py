"""How scripts show placements, refusals, what is said of groups, and the books."""

from collections.abc import Iterator

from allotment.core.ledger.check import oversold
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.cycle import Outcome
from allotment.core.queues.round.victims import keeping
from allotment_proto.events import Placement, Refusal
from allotment_proto.facts import Holding
from allotment_proto.volcano.ascend import FAMILY as ASCEND


def of_cycle(name: str, outcome: Outcome) -> Iterator[str]:
    """What a scorer would propose."""
    for admission in outcome.admissions:
        end = f"not let in, {admission.code}" if admission.code else "let in"
        yield f"{name}: group {admission.group} {end}"
    for hold in outcome.holds or ():
        yield f"{name}: {_held(hold.nodes, hold.queue)} held for {hold.group}"
    if outcome.holds == ():
        yield f"{name}: nothing is held any more"
    yield from (f"{name}: {placed(placement)}" for placement in outcome.placements)
    yield from (f"{name}: whole {' '.join(whole)}" for whole in outcome.wholes)
    for short in outcome.shorts:
        most = "" if short.tried else "at most "
        yield (
            f"{name}: group {short.group} short of {short.wanted}, {most}{short.together} of "
            f"{short.waiting} fit together, {short.code}"
        )
        yield f"{name}:   {short.message}"
    yield from (f"{name}: {refused(refusal)}" for refusal in outcome.refusals)
    yield from (f"{name}: {uid} refused as before" for uid in outcome.suppressed)
    for eviction in outcome.evictions:
        yield (
            f"{name}: {eviction.uid} makes room on {eviction.node} for {eviction.preemptor}, "
            f"{eviction.action}"
        )
    for nomination in outcome.nominations:
        yield f"{name}: {nomination.uid} is to go to {nomination.node}"


def cards_of(holdings: tuple[Holding, ...]) -> str:
    """Cards, and the pieces of those that are cut."""
    return ",".join(h.card + (f"[{h.instance}]" if h.instance else "") for h in holdings)


def placed(placement: Placement) -> str:
    cards = cards_of(placement.holdings)
    others = " ".join(f"{r.node}={r.score_micro / 1_000_000:.1f}" for r in placement.runners_up)
    score = placement.score_micro / 1_000_000
    end = f", then {others}" if others else ""
    return f"{placement.uid} → {placement.node} {cards} score {score:.1f}{end}"


def refused(refusal: Refusal) -> str:
    if refusal.problem is not None:
        problem = refusal.problem
        return f"{refusal.uid} {problem.code}: {problem.place} {problem.message}"
    counted = ", ".join(f"{count} {code}" for code, count in refusal.reasons)
    return f"{refusal.uid} fits on 0/{refusal.nodes} nodes: {counted or 'there is none'}"


def of_ledger(state: ClusterState) -> Iterator[str]:
    """Every card with what is in use of it, and by whom."""
    too_much = set(oversold(state))
    for node in sorted(state.nodes.values(), key=lambda n: n.name):
        if node.fact is None:
            yield f"{node.name}: gone, still held by {', '.join(node.allocations)}"
        if node.blocked is not None:
            yield f"{node.name}: takes nothing new, {node.blocked}"
        for card in (card for books in node.ledgers.values() for card in books.cards):
            flag = " OVERSOLD" if f"{node.name}/{card.fact.id}" in too_much else ""
            yield f"{_card(node, card)} [{_holders(state, card)}]{flag}"


def _card(node: Node, card: Card) -> str:
    fact = card.fact
    is_named = fact.id.startswith(node.name)
    name = fact.id if is_named else f"{node.name}/{fact.id}"
    sick = "" if fact.healthy else " (ill)"
    if not fact.memory_mib:
        return f"{name}{sick}: {card.used_cores_pct}/{fact.cores_pct} cores"
    unit = "cores" if card.family == ASCEND else "%"
    return (
        f"{name}{sick}: {card.used_memory_mib}/{fact.memory_mib} MiB "
        f"{card.used_cores_pct}/{fact.cores_pct} {unit}"
    )


def _holders(state: ClusterState, card: Card) -> str:
    out = []
    for key, holding in sorted(card.holders.items()):
        uid = key[0]
        held = state.pods[uid].allocation
        if held is not None:
            piece = f" {holding.instance}" if holding.instance else ""
            phase = "perhaps" if key in card.perhaps else held.phase
            out.append(f"{uid} {phase}{piece}")
    return ", ".join(out)


def of_holds(state: ClusterState) -> Iterator[str]:
    """Who is kept away from where: what is held for groups, and kept for those who make room."""
    for hold in state.holds:
        yield f"{_held(hold.nodes, hold.queue)} held for {hold.group}"
    for kept in keeping(state):
        going = [e.uid for e in state.evicting.values() if e.preemptor == kept.job]
        end = f"while {', '.join(going)} leave" if going else "to be tried there"
        yield f"{_held(kept.nodes, '')} kept for {kept.job} {end}"
    for key, group in state.groups.items():
        if group.passed:
            yield f"{key} was passed by {group.passed} pods"


def _held(nodes: tuple[str, ...], queue: str) -> str:
    return f"the quota of queue {queue}" if queue else f"nodes {', '.join(nodes)}"
