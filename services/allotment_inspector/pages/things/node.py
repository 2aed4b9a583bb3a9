"""One node: its cards with their holders, the rest of it, and what happened to it."""

from collections.abc import Mapping

import msgspec

from allotment.core.explain.history.concerned import NODE
from allotment.core.explain.node import NodeExplanation, explain_node
from allotment_inspector.frame import sentence
from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.found import NotFound, not_found
from allotment_inspector.pages.things.cards import NodeRow, node_row
from allotment_inspector.said import path, typed

RECORDS_SHOWN = 50


class Told(msgspec.Struct, frozen=True, rename="camel"):
    """A record about the node."""

    seq: int
    ms: int
    text: str


class NodePage(msgspec.Struct, frozen=True, rename="camel"):
    """What the page of a node shows."""

    name: str
    row: NodeRow
    explanation: NodeExplanation
    labels: dict[str, str]
    records: tuple[Told, ...]
    records_total: int


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    return typed("allot", "explain", "node", match["name"], at=moment.at)


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> NodePage | NotFound:
    """A node at a moment."""
    state = moment.state
    node = state.nodes.get(match["name"])
    if node is None:
        return not_found("node", match["name"], state.nodes, lambda name: path("nodes", name))
    seqs = moment.seqs(NODE, node.name, RECORDS_SHOWN)
    shown = moment.records(seqs[-RECORDS_SHOWN:])
    fact = node.fact
    return NodePage(
        name=node.name,
        row=node_row(moment, node),
        explanation=explain_node(state, node.name, moment.time_ms),
        labels=dict(fact.labels) if fact else {},
        records=tuple(Told(e.seq, e.time_ms, sentence(e)) for e in reversed(shown)),
        records_total=len(seqs),
    )
