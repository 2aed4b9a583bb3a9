"""What a decision would have been under another policy: its batch placed again, on the state it
read.

Only the choice of cards and hosts differs; queues, groups, quotas and rules are the same.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import in_order, proposed
from allotment.core.placement.evaluator import Ranker
from allotment.core.placement.policies import POLICIES
from allotment.core.queues.round.rounds import Rounds
from allotment_proto.events import Decided, Placement, PolicyLoaded

_OF_HOSTS = frozenset(("binpack", "spread", "none"))
"""Policies that also apply to hosts. Under any other policy the choice of hosts is unchanged."""


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """What the batch gets under one policy. `same` of the pods get exactly the cards that the log
    gave them. `nodes` and `cards` are those that its pods are on, `opened` the cards among them
    that were idle before.
    """

    policy: str
    placements: tuple[Placement, ...]
    same: int
    not_placed: int
    evicted: int
    nodes: int
    cards: int
    opened: int


def otherwise(
    before: ClusterState,
    event: Decided,
    names: Sequence[str],
    make_ranker: Callable[[ClusterState], Ranker],
) -> Iterator[Alternative]:
    """What each of these policies would have decided. `before` is the state at the decision's
    basis; this function changes it. Names that are not policies are left out.
    """
    recorded = before.policy
    was = {placement.uid: placement for placement in proposed(event)}
    for name in names:
        if name not in POLICIES:
            continue
        hosts = name if name in _OF_HOSTS else recorded.host_policy
        policy = recorded
        if name != recorded.device_policy:
            policy = msgspec.structs.replace(recorded, device_policy=name, host_policy=hosts)
        loaded = PolicyLoaded(policy=policy, source="", text_sha256="")
        apply(before, loaded, before.seq + 1)
        made = Rounds(before).run(event.batch, make_ranker(before))
        placements = tuple(in_order(event.batch, made.placements))
        on = {(p.node, h.family, h.card) for p in placements for h in p.holdings}
        yield Alternative(
            policy=name,
            placements=placements,
            same=sum(_is_same(each, was.get(each.uid)) for each in placements),
            not_placed=len(event.batch) - len(placements),
            evicted=len(made.evictions),
            nodes=len({placement.node for placement in placements}),
            cards=len(on),
            opened=sum(_is_empty(before, *each) for each in on),
        )


def _is_same(one: Placement, other: Placement | None) -> bool:
    return other is not None and (one.node, one.holdings) == (other.node, other.holdings)


def _is_empty(state: ClusterState, node: str, family: str, card: str) -> bool:
    return not state.nodes[node].ledgers[family].by_id[card].holders
