"""The cluster in a few numbers: nodes, cards, and the pods that wait by cause."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.history.attempts import waiting
from allotment.core.explain.rows.views import summaries
from allotment.core.ledger.model import ClusterState
from allotment.core.units import rfc3339


class Nodes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Each node counts once, except that a node of any status may be cordoned as well.

    Gone nodes are those on which pods still hold something.
    """

    ready: int
    not_ready: int
    gone: int
    cordoned: int


class Cards(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Each card counts once. A full card has no slot, memory or compute left."""

    idle: int
    partly: int
    full: int
    unhealthy: int


class Backlog(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods that wait for one cause: `cured_by` names what ends the wait, except for the `never`
    of them that no node would fit even if no other pod ran. `since` is when the oldest of them was
    created (RFC 3339).
    """

    code: str
    cured_by: str
    pods: int
    never: int
    since: str
    since_ms: int


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster at one moment; the backlog begins with the cause of the most pods."""

    nodes: Nodes
    cards: Cards
    waiting: Sequence[Backlog]


def summary_of(state: ClusterState, whys: Whys) -> Summary:
    """The numbers of a state; `whys` are those of the state."""
    nodes = state.nodes.values()
    facts = [node.fact for node in nodes if node.fact is not None]
    cards = summaries(state, nodes, by_zone=False)
    never = _never(state, whys)
    backlog = [
        Backlog(
            code=code,
            cured_by=cure,
            pods=found.pods,
            never=never[code],
            since=rfc3339(found.oldest_ms),
            since_ms=found.oldest_ms,
        )
        for (code, cure), found in waiting(state, whys).items()
    ]
    return Summary(
        nodes=Nodes(
            ready=sum(fact.ready for fact in facts),
            not_ready=sum(not fact.ready for fact in facts),
            gone=len(nodes) - len(facts),
            cordoned=sum(fact.unschedulable for fact in facts),
        ),
        cards=Cards(
            idle=sum(row.idle for row in cards),
            partly=sum(row.partly for row in cards),
            full=sum(row.full for row in cards),
            unhealthy=sum(row.unhealthy for row in cards),
        ),
        waiting=sorted(backlog, key=lambda row: (-row.pods, row.since_ms, row.code)),
    )


def _never(state: ClusterState, whys: Whys) -> Counter[str]:
    """The pods that no node would fit even if no other pod ran, by cause."""
    pods = (state.pods[uid] for uid in state.pending)
    return Counter(whys.of(pod).code for pod in pods if whys.is_never(pod))
