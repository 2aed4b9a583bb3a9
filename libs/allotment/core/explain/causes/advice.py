"""What would make it fit: advice for a pod or a group that waits, best first.

Changes depend on what rejects the pod: the nodes (`counterfactual`) or the queue. `predicates.fits`
answers for nodes. Where the queue refuses, or pods start together, each change is carried out on a
twin of the state and a round is run there: only what it places is offered.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

import msgspec

from allotment.core import reasons
from allotment.core.explain.causes.carried import carried_out
from allotment.core.explain.causes.counterfactual import (
    ADDED,
    DROPPED,
    OTHERS,
    WHOLE,
    Asks,
    Bench,
    Elsewhere,
    Ended,
    Fewer,
    Found,
    Offer,
    Ranked,
    amount_offers,
    found_on,
    rank,
)
from allotment.core.explain.causes.obstacles import Emptied, present
from allotment.core.explain.rows.schema import Change, Counterfactual
from allotment.core.jobs.keys import POD_QUEUE
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.cycle import place
from allotment.core.placement.evaluator import Evaluator, Trial
from allotment.core.placement.rules.interpod import situated
from allotment.core.queues.answers import No
from allotment.core.queues.round.verdict import (
    GroupVerdict,
    Outside,
    PodVerdict,
    group_verdict,
    priority_of,
    queue_room,
    round_outcome,
)
from allotment_proto.events import Eviction, Placement, PodObserved
from allotment_proto.facts import PodRequest

_SYSTEM = "system-"
"""How the names of PriorityClasses begin that are not for users' pods."""
_SHOWN_MAX = 8
"""How many changes are offered at most."""
ROUNDS_MAX = 12
"""How many rounds may try changes at most, where queues limit pods, or pods start together. Each is
opened on the whole state.
"""
_KEPT_MAX = 3
"""How many changes are enough that help a pod which its queue rejects."""
_MOVES_MAX = 2
"""How many of these may be other queues, so that a change within its own queue is offered too."""
_QUEUES_MAX = 4
"""How many other queues are tried, and how many holders whose end might help."""
_CLASSES_MAX = 64
"""How many PriorityClasses are searched for the lowest that helps; a halving takes two rounds."""
_NAMED_MAX = 4
"""How many of the pods that would be evicted are named."""
_THRESHOLDS_MAX = 256
_PER_CARD_MAX = 8
"""How many members of a group on one card are thought of when amounts are lowered."""


class Advice(msgspec.Struct, frozen=True):
    """A change that makes the pod or the group fit, and how it is carried out."""

    found: Found
    members_fit: int | None = None
    members: int | None = None
    nodes_fit_now: int | None = None

    def shown(self) -> Counterfactual:
        return Counterfactual(
            text=self.found.text,
            change=self.found.change,
            nodes_fit=self.found.nodes_fit,
            nodes_fit_now=self.nodes_fit_now,
            members_fit=self.members_fit,
            members=self.members,
        )


def advice(
    state: ClusterState, fact: PodObserved, ruled: PodVerdict, asked: PodRequest, *, never: bool
) -> tuple[Counterfactual, ...]:
    """What would make a pod of ours that waits fit: alone, or with its whole group if its pods
    start together. `asked` is its request as nodes are asked; `never`: not even an empty cluster
    takes it, so waiting is no option.
    """
    if never:
        found = empty_advice(state, asked)
    elif state.is_gang(fact.group):
        group = group_verdict(state, fact.group)
        found = [] if isinstance(group, Outside) else gang_advice(state, fact.group, group)
    else:
        found = pod_advice(state, fact, ruled)
    return tuple(each.shown() for each in found)


def pod_advice(state: ClusterState, fact: PodObserved, ruled: PodVerdict) -> list[Advice]:
    """What would make a single waiting pod fit now: `ruled` is the request that a round makes for
    it.
    """
    if ruled.no is None:  # the queue allows this much, so it allows less
        request = situated(ruled.tries[-1], state)
        found = found_on(Bench(state, present(state)), request)
        outranking = [] if ruled.never_preempts else list(_outranking(state, [fact.uid], 1))
        return [Advice(each) for each in (*found[: _SHOWN_MAX - len(outranking)], *outranking)]
    kept: list[Advice] = []
    moves = rounds = 0
    for each in sorted(_from_queue(state, [fact.uid], ruled.no, ruled.queue), key=rank):
        is_move = isinstance(each.deed, Elsewhere)
        if len(kept) == _KEPT_MAX or rounds == ROUNDS_MAX:
            break
        if is_move and moves == _MOVES_MAX:
            continue
        rounds += 1
        outcome = round_outcome(carried_out(state, [fact.uid], each.deed), [fact.uid])
        taken = next((one for one in outcome.placements if one.uid == fact.uid), None)
        if taken is not None:
            kept.append(Advice(each._replace(nodes_fit=taken.feasible)))
            moves += is_move
    if ruled.no.code in reasons.QUOTA_CODES and not ruled.never_preempts:
        kept += [Advice(each) for each in _outranking(state, [fact.uid], 1)]
    return kept


def empty_advice(state: ClusterState, request: PodRequest) -> list[Advice]:
    """What would let a request fit at least an empty cluster."""
    empty = Emptied(state)
    bench = Bench(state, [empty.twin(node) for node in present(state)], empty)
    now = Bench(state, present(state))
    advised = []
    for each in found_on(bench, request, is_empty=True)[:_SHOWN_MAX]:
        fit_now = None
        if isinstance(each.deed, Asks):
            changed = each.deed.edit(request)
            fit_now = sum(now.fits(node, changed) is None for node in now.nodes)
        advised.append(Advice(each, nodes_fit_now=fit_now))
    return advised


def gang_advice(state: ClusterState, key: str, ruled: GroupVerdict) -> list[Advice]:
    """What would let a group reach its minimum now; if nothing would, what would let more of it
    fit.
    """
    uids = [uid for uid in state.groups[key].members if uid in state.pending]
    wanted = ruled.wanted
    if len(uids) < wanted or not wanted or ruled.invalid is not None:
        return []
    placed = _placed(state, uids)
    if ruled.no is not None:
        found = list(_from_queue(state, uids, ruled.no, ruled.queue))
    elif len(placed) < wanted:
        found = list(_for_members(state, uids, placed, wanted))
    else:
        return []
    if len(placed) and len(placed) < wanted:
        found.append(_lower_minimum(state, key, len(placed), wanted))
    full: list[Advice] = []
    part: list[Advice] = []
    said: set[tuple[str, str]] = set()
    for each in sorted(found, key=rank)[:ROUNDS_MAX]:
        amount = each.change.path, each.change.target
        if amount in said:
            continue  # a larger one will do as well
        twin = carried_out(state, uids, each.deed)
        needs = len(placed) if isinstance(each.deed, Fewer) else wanted
        if len(round_outcome(twin, uids).placements) >= needs:
            full.append(Advice(each, needs, needs))
            if isinstance(each.deed, Asks) and each.change.op == "replace":
                said.add(amount)
        elif ruled.no is None and len(placed) < (together := len(_placed(twin, uids))) < wanted:
            part.append(Advice(each, together, wanted))
    is_outranked = ruled.no is None or ruled.no.code in reasons.QUOTA_CODES
    if is_outranked and not ruled.never_preempts:
        full += [Advice(each, wanted, wanted) for each in _outranking(state, uids, wanted)]
    return (full or part)[:_SHOWN_MAX]


# Preemption


def _outranking(state: ClusterState, uids: Sequence[str], wanted: int) -> Iterator[Found]:
    """The lowest PriorityClass at which a round evicts enough for `wanted` of the pods to fit.
    Nothing where the policy does not evict by priority.
    """
    first = state.pods[uids[0]].fact
    if "preempt" not in state.policy.actions or not state.is_batched:
        return
    now = priority_of(state, first)
    higher: dict[int, str] = {}
    for each in sorted(state.classes.values(), key=lambda c: (c.value, c.name)):
        if each.value > now and each.preempts and not each.name.startswith(_SYSTEM):
            higher.setdefault(each.value, each.name)
    ranks = [Ranked(name, value) for value, name in sorted(higher.items())][:_CLASSES_MAX]
    found: dict[int, tuple[Eviction, ...]] = {}

    def helps(number: int) -> bool:
        found[number] = _displaced(state, uids, ranks[number], wanted)
        return bool(found[number])

    at = bisect_left(range(len(ranks)), True, key=helps)
    if at == len(ranks):
        return
    rank_, gone = ranks[at], found[at]
    least = 1 + max(priority_of(state, state.pods[each.uid].fact) for each in gone)
    names = tuple(f"{each.namespace}/{each.name}" for each in gone)
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    yield Found(
        f"with priority class {rank_.name} (≥ {least}), displacing {', '.join(names[:_NAMED_MAX])}"
        f"{more}",
        Change(op="add", path="/spec/priorityClassName", value=rank_.name),
        rank_,
        OTHERS + WHOLE * len(gone) + 1,
        len({each.node for each in gone}),
    )


def _displaced(
    state: ClusterState, uids: Sequence[str], rank_: Ranked, wanted: int
) -> tuple[Eviction, ...]:
    """The pods that a round evicts for the pods at this rank, if they then fit."""
    twin = carried_out(state, uids, rank_)
    evictions = round_outcome(twin, uids).evictions
    gone = tuple(dict.fromkeys(each.uid for each in evictions))
    if not gone or not set(gone).isdisjoint(uids):
        return ()
    then = round_outcome(carried_out(twin, uids, Ended(gone)), uids)
    return evictions if len(then.placements) >= wanted else ()


# Groups


def _placed(state: ClusterState, uids: Iterable[str]) -> list[Placement]:
    """Places for the pods, each in addition to those before it, as long as there is room; queues
    aside.
    """
    ranker, found = Evaluator(state), []
    ranker.begin()
    for uid in uids:
        answer = place(state.pods[uid].fact, ranker)
        if isinstance(answer, Placement):
            ranker.assume(answer)
            found.append(answer)
    ranker.end()
    return found


def _for_members(
    state: ClusterState, uids: Sequence[str], placed: Sequence[Placement], wanted: int
) -> Iterator[Found]:
    """Changes with which one more member finds a place in addition to those that have one, each
    made by all members; and the largest amounts with which all wanted members find one.
    """
    trial = Trial(state)
    for placement in placed:
        trial.assume(placement)
    has_place = {placement.uid for placement in placed}
    first = next(uid for uid in uids if uid not in has_place)
    request = situated(state.pods[first].fact, state)
    yield from found_on(Bench(state, trial.nodes()), request)
    nodes = present(state)
    for sort in amount_offers(state, request, nodes, _PER_CARD_MAX):
        offer = _most_for_all(state, uids, sort[:_THRESHOLDS_MAX], wanted)
        if offer is not None:
            yield Found(offer.text, offer.change, Asks(offer.edit), offer.size, 0)


def _most_for_all(
    state: ClusterState, uids: Sequence[str], offers: Sequence[Offer], wanted: int
) -> Offer | None:
    """The first of the offers, sorted by falling amounts, with which enough members fit."""

    def is_enough(offer: Offer) -> bool:
        return len(_placed(carried_out(state, uids, Asks(offer.edit)), uids)) >= wanted

    at = bisect_left(offers, True, key=is_enough)
    return offers[at] if at < len(offers) else None


def _lower_minimum(state: ClusterState, key: str, together: int, wanted: int) -> Found:
    fact = state.groups[key].fact
    assert fact is not None
    least = fact.min_member - (wanted - together)
    return Found(
        f"a minimum of {least} in place of {fact.min_member}",
        Change(op="replace", path="/spec/minMember", value=least, target=f"PodGroup {key}"),
        Fewer(least),
        (fact.min_member - least) * WHOLE // max(fact.min_member, 1),
        0,
    )


# Queues


def _from_queue(state: ClusterState, uids: Sequence[str], no: No, queue: str) -> Iterator[Found]:
    """Changes that may help where the queue rejects the pods: another queue, a smaller request for
    the resource that is short, and the end of pods that hold it.
    """
    if no.code == reasons.GROUP_MISSING:
        return
    room = queue_room(state, no.queue or queue)
    near = get_close_matches(queue or no.queue, room.queues, 1)
    first = state.pods[uids[0]].fact
    for name in list(dict.fromkeys([*near, *room.queues]))[:_QUEUES_MAX]:
        yield Found(
            f"in queue {name}",
            _queue_change(state, first, name),
            Elsewhere(name),
            ADDED if name in near and no.code == reasons.QUEUE_UNKNOWN else DROPPED,
            0,
        )
    if no.code not in reasons.QUOTA_CODES:
        return
    left = {name: amount // len(uids) for name, amount in room.left.items()}
    for offers in amount_offers(state, first.request, (), 1, left=left):
        for offer in offers[:1]:
            yield Found(offer.text, offer.change, Asks(offer.edit), offer.size, 0)
    for pods in room.holders[:_QUEUES_MAX]:
        if pods and not set(pods).intersection(uids):
            yield _end_of(state, pods)


def _queue_change(state: ClusterState, fact: PodObserved, name: str) -> Change:
    group = state.groups.get(fact.group)
    if fact.group and group is not None and group.fact is not None:
        target = f"PodGroup {fact.group}"
        return Change(op="replace", path="/spec/queue", value=name, target=target)
    path = f"/metadata/annotations/{POD_QUEUE.replace('/', '~1')}"
    return Change(op="add", path=path, value=name)


def _end_of(state: ClusterState, uids: tuple[str, ...]) -> Found:
    """The end of all pods of one holder."""
    facts = [state.pods[uid].fact for uid in uids]
    first = facts[0]
    name = first.group if len(facts) > 1 and first.group else f"{first.namespace}/{first.name}"
    more = f" ({len(facts)} pods)" if len(facts) > 1 else ""
    return Found(
        f"when {name} ends{more}",
        Change(op="remove", path="/pods", value=tuple(f"{f.namespace}/{f.name}" for f in facts)),
        Ended(uids),
        OTHERS + WHOLE * len(uids),
        0,
    )
