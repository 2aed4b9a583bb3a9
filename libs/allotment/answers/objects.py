"""A node's, a gang's and a queue's answers: what each has, and why some wait."""

from difflib import get_close_matches

from allotment.adapters.service.moments import AtSequence, moment_text
from allotment.answers.folding import Folded, fold
from allotment.answers.names import near, no_such_node
from allotment.answers.source import Source
from allotment.core.errors import AllotError
from allotment.core.explain.gang import explain_gang
from allotment.core.explain.history.concerned import LOST
from allotment.core.explain.node import NodeExplanation, explain_node
from allotment.core.explain.queue import explain_queue
from allotment.core.explain.rows.schema import GangExplanation, QueueExplanation
from allotment.core.ledger.model import ClusterState

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


async def node_is_missing(source: Source, folded: Folded, name: str) -> AllotError:
    """What to raise for a node that a state does not know: gone, or never there."""
    lost = (await source.kept.about([(LOST, name)], folded.seq))[LOST, name]
    for seq in reversed(lost):
        before = (await fold(source, AtSequence(seq - 1))).state
        if name in before.nodes:
            break
    else:
        return no_such_node(name, folded.state.nodes, folded.seq)
    [record] = await source.kept.records([seq])
    held = before.nodes[name].allocations
    facts = [before.pods[uid].fact for uid in held if uid in before.pods]
    pods = sorted(f"{fact.namespace}/{fact.name}" for fact in facts)
    named = ", ".join(pods[:_PODS_NAMED])
    more = f" and {len(pods) - _PODS_NAMED} more" if len(pods) > _PODS_NAMED else ""
    on_it = f"it had {named}{more}" if pods else "it had no pods"
    return AllotError(
        f"node {name} went at {moment_text(record.time_ns // 1_000_000)}, by record {seq}; {on_it}",
        f"to see it as it was, ask --at {seq}~1; the record: allot log show {seq}",
    )
