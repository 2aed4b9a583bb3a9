"""A node that is no longer in the log: when it went, by which record, and its pods then."""

from typing import NamedTuple

from allotment.adapters.service.moments import AtSequence, moment_text
from allotment.answers.folding import Folded, fold
from allotment.answers.source import Source
from allotment.core.errors import AllotError
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment_cli.options.names import no_such_node
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import NodeGone

_PODS_NAMED = 6


class _Departure(NamedTuple):
    """The record of a node's end, when it was, and the pods that held something on the node."""

    seq: int
    time_ms: int
    pods: tuple[str, ...]


async def node_is_missing(source: Source, folded: Folded, name: str) -> AllotError:
    """What to raise for a node that a state does not know: gone, or never there. Reads the log
    again, up to the same moment.
    """
    found: list[_Departure] = []

    def foresee(record: Record, state: ClusterState) -> None:
        if record.subject == subjects.node(name) and name in state.nodes and _ends(record, name):
            held = state.nodes[name].allocations
            facts = [state.pods[uid].fact for uid in held if uid in state.pods]
            pods = tuple(sorted(f"{fact.namespace}/{fact.name}" for fact in facts))
            found.append(_Departure(record.seq, record.time_ns // 1_000_000, pods))

    await fold(source, AtSequence(folded.seq), foreseer=foresee)
    if not found:
        return no_such_node(name, folded.state.nodes, folded.seq)
    last = found[-1]
    named = ", ".join(last.pods[:_PODS_NAMED])
    more = f" and {len(last.pods) - _PODS_NAMED} more" if len(last.pods) > _PODS_NAMED else ""
    on_it = f"it had {named}{more}" if last.pods else "it had no pods"
    return AllotError(
        f"node {name} went at {moment_text(last.time_ms)}, by record {last.seq}; {on_it}",
        f"to see it as it was, ask --at {last.seq}~1; the record: allot log show {last.seq}",
    )


def _ends(record: Record, name: str) -> bool:
    try:
        events = decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return False  # it changed nothing
    return any(isinstance(event, NodeGone) and event.name == name for event in events)
