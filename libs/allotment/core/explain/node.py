"""One node: what it has, which pods are on it, and its verdict on the waiting pods.

The checks that decide give the verdicts (`nodes.node_steps`).
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from allotment.core.explain.causes.nodes import node_steps
from allotment.core.explain.causes.obstacles import FITS
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.pod_views import PodView, asks_text, pod_status, pod_view
from allotment.core.explain.rows.schema import AsOf, NodeSteps, Subject
from allotment.core.explain.rows.views import (
    CardView,
    CountedView,
    NodeView,
    cards_of,
    counted_of,
    node_view,
)
from allotment.core.ledger.model import ClusterState, Node, Pod
from allotment.core.placement.rules.interpod import situated
from allotment.core.queues.round.verdict import Verdicts
from allotment.core.reasons import INSUFFICIENT_GPU_MEMORY
from allotment.core.units import bytes_text, cpu_text, mib_text, rfc3339
from allotment_proto.facts import PodRequest

_NODE_SCHEMA = "allotment.dev/explain-node/v1"
_MIB = 1 << 20


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the node says to pods that ask for the same. `verdict` is ``fits`` or a reason code at
    `step`; `waits_for` is why the first of them has no place although it fits here.
    """

    asks: str
    pods: int
    first: str
    """One of them, as ``<namespace>/<name>``."""
    verdict: str
    step: str = ""
    detail: str = ""
    waits_for: str = ""

    @property
    def fits(self) -> bool:
        """Whether the node would take the pods, apart from queues and groups."""
        return self.verdict == FITS


class NodeExplanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema: str
    subject: Subject
    as_of: AsOf
    node: NodeView
    taints: tuple[str, ...]
    cards: tuple[CardView, ...]
    counted: tuple[CountedView, ...]
    pods: tuple[PodView, ...]
    waiting: int
    """How many pods of ours wait, on whatever node."""
    answers: tuple[Answer, ...]


def explain_node(state: ClusterState, name: str, as_of_ms: int) -> NodeExplanation:
    """Explain the node. Raises KeyError for one that the state does not know."""
    node = state.nodes[name]
    fact = node.fact
    on_it = [state.pods[uid] for uid in node.allocations]
    whys = Whys(state)
    views = sorted(
        (pod_view(state, pod, whys.of) for pod in on_it), key=lambda v: (v.namespace, v.name)
    )
    return NodeExplanation(
        schema=_NODE_SCHEMA,
        subject=Subject(kind="Node", namespace="", name=name, uid=fact.uid if fact else ""),
        as_of=AsOf(seq=state.seq, time=rfc3339(as_of_ms), time_ms=as_of_ms),
        node=node_view(state, node),
        taints=tuple(
            f"{t.key}{f'={t.value}' * bool(t.value)}:{t.effect}"
            for t in (fact.taints if fact else ())
        ),
        cards=tuple(cards_of(state, node)),
        counted=tuple(counted_of(state, node)),
        pods=tuple(views),
        waiting=len(state.pending),
        answers=tuple(_answers(state, node)),
    )


def _answers(state: ClusterState, node: Node) -> Iterator[Answer]:
    """For each request that waits, those that fit here first, then by how many ask for it."""
    alike: dict[PodRequest, list[Pod]] = {}
    for uid in state.pending:
        pod = state.pods[uid]
        if pod.fact.problem is None:
            alike.setdefault(pod.fact.request, []).append(pod)
    verdicts = Verdicts(state)
    found = [_answer(state, node, verdicts, pods) for pods in alike.values()]
    found.sort(key=lambda each: (not each.fits, -each.pods, each.first))
    yield from found


def _answer(state: ClusterState, node: Node, verdicts: Verdicts, pods: list[Pod]) -> Answer:
    fact = pods[0].fact
    request = situated(verdicts.of(fact).tries[-1], state)
    steps = node_steps(state, node, request, fact)
    at = next((step for step in steps.host if step.verdict != FITS), None)
    detail = at.detail if at is not None else _cards_text(steps)
    return Answer(
        asks=_wants_text(fact.request),
        pods=len(pods),
        first=f"{fact.namespace}/{fact.name}",
        verdict=steps.verdict,
        step=at.step if at is not None else "" if steps.verdict == FITS else "cards",
        detail="" if steps.verdict == FITS else detail,
        waits_for=pod_status(state, pods[0])[1] if steps.verdict == FITS else "",
    )


def _cards_text(steps: NodeSteps) -> str:
    """How many cards refuse for which reason, and the most that one of the full ones has free."""
    counts = Counter(card.verdict for card in steps.cards if card.verdict != FITS)
    said = []
    for code, count in counts.most_common():
        text = f"all {count} cards" if count == len(steps.cards) else f"{code} {count}"
        if code == INSUFFICIENT_GPU_MEMORY:
            most = max(c.free_memory_bytes for c in steps.cards if c.verdict == code)
            text += f" (most free {bytes_text(most)})"
        said.append(text)
    return ", ".join(said)


def _wants_text(request: PodRequest) -> str:
    """What a pod asks for in one line: devices, or its part of the host if it asks for none."""
    devices = asks_text(request.devices, request.extended)
    return devices or f"{cpu_text(request.cpu_milli)} CPU, {mib_text(request.memory_bytes // _MIB)}"
