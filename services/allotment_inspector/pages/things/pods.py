"""All pods, or some of them: where they are, what they hold, and why the others wait."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from allotment.core.explain.rows.amounts import part_text
from allotment.core.explain.rows.pod_views import (
    FINISHED,
    RUNNING,
    STAGES,
    WAITING,
    PodView,
    pod_view,
    stage_of,
)
from allotment.core.ledger.model import Pod
from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.asked import natural
from allotment_inspector.said import Bit, node_link, pod_link, typed

_PAGE = 200


class PodRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod in one line. `look` is how its status looks."""

    namespace: str
    pod: Bit
    status: str
    look: str
    cause: str
    node: Bit | None
    cards: tuple[str, ...]
    holds: str
    asks: str
    created_ms: int


class PodsPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of the pods that `q`, `namespace`, `node`, `state` and `cause` leave, waiting ones
    first. `counts` is by state, of all that the other filters leave; `namespaces` are all of them.
    """

    rows: tuple[PodRow, ...]
    total: int
    first: int
    page: int
    states: tuple[str, ...]
    counts: dict[str, int]
    causes: dict[str, int]
    namespaces: tuple[str, ...]
    q: str
    namespace: str
    node: str
    state: str
    cause: str


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> PodsPage:
    """The pods at the moment."""
    state = moment.state
    q, node, cause = query.get("q", ""), query.get("node", ""), query.get("cause", "")
    namespace, wanted = query.get("namespace", ""), query.get("state", "")
    found: list[tuple[tuple[int, str, str, int], Pod, str]] = []
    counts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    whys = moment.whys
    for pod in state.pods.values():
        fact = pod.fact
        if namespace and fact.namespace != namespace:
            continue
        if q and q not in f"{fact.namespace}/{fact.name}":
            continue
        if node and _node_of(pod) != node:
            continue
        word = stage_of(state, pod)
        counts[word] += 1
        why = whys.of(pod).code if word == WAITING else ""
        if why:
            causes[why] += 1
        if (wanted and word != wanted) or (cause and why != cause):
            continue
        order = STAGES.index(word), fact.namespace, fact.name, fact.created_ms
        found.append((order, pod, word))
    found.sort(key=lambda each: each[0])
    first = natural(query.get("first", "")) or 0
    first = min(first, max(len(found) - 1, 0)) // _PAGE * _PAGE
    return PodsPage(
        rows=tuple(
            _row(pod_view(state, pod, whys.of), word)
            for _, pod, word in found[first : first + _PAGE]
        ),
        total=len(found),
        first=first,
        page=_PAGE,
        states=STAGES,
        counts={word: counts[word] for word in STAGES if counts[word]},
        causes=dict(causes.most_common()),
        namespaces=tuple(sorted({pod.fact.namespace for pod in state.pods.values()})),
        q=q,
        namespace=namespace,
        node=node,
        state=wanted if wanted in STAGES else "",
        cause=cause,
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer; no command selects by all that this page does."""
    if query.get("q") or query.get("cause") or query.get("state", "") not in ("", WAITING):
        return ""
    words = ["allot", "get", "pods"]
    words += ["-n", query["namespace"]] if query.get("namespace") else ["-A"]
    if query.get("node"):
        words += ["--node", query["node"]]
    if query.get("state") == WAITING:
        words.append("--pending")
    return typed(*words, at=moment.at)


def _node_of(pod: Pod) -> str:
    return pod.fact.node if pod.allocation is None else pod.allocation.node


def _row(view: PodView, word: str) -> PodRow:
    is_running = word == RUNNING and view.status == "Running"
    look = "" if is_running else "end" if word == FINISHED else "wait"
    counted = ", ".join(f"{name}: {count}" for name, count in view.extended.items())
    holds = part_text(view.memory_bytes, view.compute_percent, view.compute_whole)
    return PodRow(
        namespace=view.namespace,
        pod=pod_link(view.namespace, view.name, view.uid),
        status="Waiting" if view.status == "Pending" and word == WAITING else view.status,
        look="fail" if view.status == "Failed" else look,
        cause=view.cause,
        node=node_link(view.node) if view.node else None,
        cards=view.cards,
        holds=holds if view.cards else counted if view.node else "",
        asks=view.asks,
        created_ms=view.created_ms,
    )
