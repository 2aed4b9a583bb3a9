"""A node's, a gang's and a queue's answers: what each has, and why some wait."""

from difflib import get_close_matches
from typing import NamedTuple

from allotment.adapters.service.moments import AtSequence, moment_text
from allotment.answers.folding import Folded, fold
from allotment.answers.names import near, no_such_node
from allotment.answers.source import Source
from allotment.core.errors import AllotError
from allotment.core.explain.gang import explain_gang
from allotment.core.explain.node import NodeExplanation, explain_node
from allotment.core.explain.queue import explain_queue
from allotment.core.explain.schema import GangExplanation, QueueExplanation
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import NodeGone

_PODS_NAMED = 6
_UID_CHARS = 36


def gang(
    source: Source, folded: Folded, namespace: str, name: str, *, advised: bool = True
) -> GangExplanation:
    """Explain a group by its PodGroup's name, or its Job's; without `advised` nothing is said of
    changes that would help. Raises `AllotError` if the log knows neither.
    """
    key = group_key(folded.state, namespace, name)
    with source.screen.waiting("trying what would make it fit"):
        return explain_gang(folded.state, key, folded.time_ms, advised=advised)


def group_key(state: ClusterState, namespace: str, name: str) -> str:
    """The group of this name, or the one that the controller made for a Job of this name.

    Raises `AllotError` if the log knows neither.
    """
    key = f"{namespace}/{name}"
    if key in state.groups:
        return key
    of_job = [k for k in state.groups if k[:-_UID_CHARS] == f"{key}-"]
    if len(of_job) == 1:
        return of_job[0]
    close = near(namespace, name, state.groups)
    raise AllotError(
        f"group {key} is not in the log up to seq {state.seq}",
        f"did you mean {close}?" if close else "see: allot job list, kubectl get podgroups",
    )


def queue(folded: Folded, name: str) -> QueueExplanation:
    """Explain a queue. Raises `AllotError` for one that is not in the log."""
    queues = folded.state.queues
    if name not in queues:
        close = get_close_matches(name, list(queues), n=1)
        raise AllotError(
            f"queue {name} is not known at seq {folded.seq}",
            f"did you mean {close[0]}?" if close else "see: allot queue list",
        )
    return explain_queue(folded.state, name, folded.time_ms)


async def node(source: Source, folded: Folded, name: str) -> NodeExplanation:
    """Explain a node. Raises `AllotError` for one that went, or never was."""
    if name not in folded.state.nodes:
        raise await node_is_missing(source, folded, name)
    return explain_node(folded.state, name, folded.time_ms)


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
