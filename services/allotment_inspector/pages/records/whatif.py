"""One decision under other policies: its batch once more, on the state that it used."""

from collections.abc import Mapping

import msgspec

from allotment.core.explain.rows.views import device_name
from allotment.core.ledger.model import ClusterState
from allotment.core.placement.policies import POLICIES
from allotment.core.placement.policies.learning import LEARNERS
from allotment.core.replay.again import Remade, remade
from allotment.core.replay.otherwise import Alternative, otherwise
from allotment_board import NodeRanker
from allotment_inspector.history import Entry, Moment
from allotment_inspector.pages.parts.found import NotFound
from allotment_inspector.pages.records.decision import decided_at, no_decision
from allotment_inspector.said import Bit, node_link, pod_link, typed
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Decided, Placement

_ROWS_SHOWN = 100
_WORK_MAX = 60_000
"""Pods times nodes: a larger decision is made again under few policies, others on demand."""
_FEW = ("binpack", "spread")


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one policy comes to. `opened`: cards among `cards` that were idle before."""

    policy: str
    is_recorded: bool
    placed: int
    not_placed: int
    evicted: int
    same: int
    nodes: int
    cards: int
    opened: int


class Place(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a pod goes under one policy; without `where` nowhere."""

    where: Bit | None
    is_same: bool


class PodRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod under each of the policies, in their order."""

    pod: Bit
    places: tuple[Place, ...]


class WhatIfPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision under several policies. `again` says how it comes out when it is made again as it
    was, compared as `allot replay --verify` does; if it cannot be, nor under other policies.
    `offered` are policies that were not asked and may be.
    """

    seq: int
    basis: int
    recorded: str
    again: Remade
    is_identical: bool
    pods: int
    policies: tuple[Summary, ...]
    rows: tuple[PodRow, ...]
    more: int
    offered: tuple[str, ...]


def view(
    moment: Moment, match: Mapping[str, str], query: Mapping[str, str]
) -> WhatIfPage | NotFound:
    """The decision of a record under its own policy and others; `policy` adds one."""
    found = decided_at(moment, match["seq"])
    if found is None:
        return no_decision(moment, match["seq"])
    entry, event = found
    asked = query.get("policy", "")
    return moment.memo.get(
        ("whatif", entry.seq, asked if asked in POLICIES else ""),
        lambda: _made_again(moment, entry, event, asked),
    )


def _made_again(moment: Moment, entry: Entry, event: Decided, asked: str) -> WhatIfPage | NotFound:
    again = _again(moment, entry, event)
    before = next((state for _, state in moment.states((event.basis,))), None)
    if before is None:
        return no_decision(moment, str(entry.seq))
    recorded = before.policy.device_policy
    names = _names(event, before, recorded, asked)
    policies = [] if again.why_not else list(otherwise(before, event, names, NodeRanker))
    placed = (placement.uid for each in policies for placement in each.placements)
    uids = list(dict.fromkeys((*placed, *event.batch)))
    return WhatIfPage(
        seq=entry.seq,
        basis=event.basis,
        recorded=recorded,
        again=again,
        is_identical=again.is_identical,
        pods=len(event.batch),
        policies=tuple(_summary(each, recorded) for each in policies),
        rows=tuple(_row(before, uid, event, policies) for uid in uids[:_ROWS_SHOWN]),
        more=max(len(uids) - _ROWS_SHOWN, 0),
        offered=tuple(n for n in POLICIES if n not in names and n not in LEARNERS),
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type to have the decision made again under its own policy, and compared."""
    return typed("allot", "replay", "--verify", "--from", match["seq"], "--to", match["seq"])


def _names(event: Decided, before: ClusterState, recorded: str, asked: str) -> list[str]:
    """The policies to ask: its own first."""
    is_small = len(event.batch) * len(before.nodes) <= _WORK_MAX
    others = [n for n in POLICIES if n not in LEARNERS] if is_small else list(_FEW)
    names = [recorded, *others, *((asked,) if asked in POLICIES else ())]
    return list(dict.fromkeys(names))


def _again(moment: Moment, entry: Entry, event: Decided) -> Remade:
    at_ms = decode_envelope(entry.payload, entry.subject).at_ms
    stops = sorted({event.basis, event.checked, entry.seq - 1})
    states = (state for _, state in moment.states([seq for seq in stops if seq < entry.seq]))
    return remade(entry.seq, event, at_ms, states, NodeRanker)


def _summary(found: Alternative, recorded: str) -> Summary:
    return Summary(
        policy=found.policy,
        is_recorded=found.policy == recorded,
        placed=len(found.placements),
        not_placed=found.not_placed,
        evicted=found.evicted,
        same=found.same,
        nodes=found.nodes,
        cards=found.cards,
        opened=found.opened,
    )


def _row(state: ClusterState, uid: str, event: Decided, policies: list[Alternative]) -> PodRow:
    pod = state.pods.get(uid)
    link = Bit(text=uid) if pod is None else pod_link(pod.fact.namespace, pod.fact.name, uid)
    was = next((p for p in event.placements if p.uid == uid), None)
    return PodRow(pod=link, places=tuple(_place(state, uid, each, was) for each in policies))


def _place(state: ClusterState, uid: str, found: Alternative, was: Placement | None) -> Place:
    placement = next((p for p in found.placements if p.uid == uid), None)
    if placement is None:
        return Place(where=None, is_same=was is None)
    node = state.nodes.get(placement.node)
    names = ", ".join(device_name(node, holding) for holding in placement.holdings)
    is_same = was is not None and (was.node, was.holdings) == (placement.node, placement.holdings)
    text = f"{placement.node}/{names}" if names else placement.node
    return Place(where=node_link(placement.node, text), is_same=is_same)
