"""Differences between the log and the API server, and which of the two is wrong.

The watcher appends what it sees within a second. So where a difference lasts, the log is behind,
and only the watcher may correct it, with a fact of its own. Edited annotations and misdelivered
devices are found in the log itself (`ClaimMismatch`, `Misdelivered`); here they are found while the
log does not have them yet.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from allotment.core.explain.doctor.finding import ANNOTATION, ERROR, LOG, WARNING, Finding
from allotment.core.ledger.claims import difference
from allotment.core.ledger.model import ENDED, ClusterState, Pod
from allotment_proto.events import PodObserved

_LISTS_AGAIN = (
    "run allot doctor --fix: the watcher lists all objects again and corrects the log. Or restart "
    "the watcher (in a cluster: kubectl -n allotment-system rollout restart "
    "deployment/allotment-watcher)"
)


def of_drift(
    state: ClusterState,
    pods: Iterable[PodObserved],
    nodes: Mapping[str, str],
    unread: Collection[str] = (),
) -> list[Finding]:
    """`pods` as the API server has them, each read as the watcher reads it; `nodes` by name with
    their uids; `unread` the uids of pods that are there and cannot be read.
    """
    seen = {fact.uid: fact for fact in pods}
    found = [*_of_pods(state, seen, unread), *_of_nodes(state, nodes)]
    return sorted(found, key=lambda one: (one.code, one.subject))


def _of_pods(
    state: ClusterState, seen: Mapping[str, PodObserved], unread: Collection[str]
) -> Iterator[Finding]:
    for uid, pod in state.pods.items():
        if uid not in seen and uid not in unread:
            held = pod.allocation
            has = f"; it still holds its place on {held.node}" if held is not None else ""
            text = f"is in the log, but the API server has no pod with uid {uid}{has}"
            yield _finding(ERROR, "PodNotInCluster", pod.fact, text)
    for uid, fact in seen.items():
        known = state.pods.get(uid)
        if known is None:
            is_ours = fact.scheduler in state.policy.scheduler_names
            if fact.phase not in ENDED and (is_ours or fact.holdings):
                text = "is in the API server but not in the log"
                text += ": its cards count as free" if fact.holdings else ": it is not scheduled"
                yield _finding(ERROR, "PodNotInLog", fact, text)
        else:
            yield from _of_pod(known, fact)


def _of_pod(known: Pod, fact: PodObserved) -> Iterator[Finding]:
    """The first difference of a pod that both know."""
    was, held = known.fact, known.allocation
    if fact.node != was.node:
        here = f"bound to {fact.node}" if fact.node else "not bound"
        there = f"bound to {was.node}" if was.node else "not bound"
        text = f"is {here} in the API server, but {there} in the log"
        if held is not None and fact.node and held.node != fact.node:
            text += f", where it holds a place on {held.node}: another client bound it"
        yield _finding(ERROR, "NodeDiffers", fact, text)
    elif fact.phase in ENDED and was.phase not in ENDED:
        text = f"has ended in the API server ({fact.phase}), but is {was.phase} in the log"
        yield _finding(ERROR, "EndNotInLog", fact, text)
    elif fact.bind_phase != was.bind_phase and fact.node:
        text = f"is {fact.bind_phase or 'not marked'} by its device plugin in the API server, but "
        text += f"{was.bind_phase or 'not marked'} in the log"
        yield _finding(WARNING, "AnswerNotInLog", fact, text)
    elif held is not None and held.seq and fact.node and fact.phase not in ENDED:
        new, recorded = (difference(held.seq, held.holdings, one) for one in (fact, was))
        if new is not None and recorded is None:
            text = f"{new.place} {new.message}; the log does not have this yet"
            yield _finding(WARNING, "AnnotationDiffers", fact, text, ANNOTATION)


def _of_nodes(state: ClusterState, nodes: Mapping[str, str]) -> Iterator[Finding]:
    for name, node in state.nodes.items():
        if node.fact is not None and nodes.get(name) != node.fact.uid:
            text = "is in the log, but the API server has no such node"
            yield _finding(ERROR, "NodeNotInCluster", name, text)
    for name in nodes:
        known = state.nodes.get(name)
        if known is None or known.fact is None:
            text = "is in the API server but not in the log: no pod is placed there"
            yield _finding(WARNING, "NodeNotInLog", name, text)


def _finding(
    severity: str, code: str, of: PodObserved | str, text: str, blame: str = LOG
) -> Finding:
    """`of` is a pod, or a node by its name."""
    return Finding(
        severity=severity,
        code=code,
        subject=f"node {of}" if isinstance(of, str) else f"pod {of.namespace}/{of.name}",
        message=text,
        remedy=_LISTS_AGAIN,
        blame=blame,
        namespaces=() if isinstance(of, str) else (of.namespace,),
    )
