"""Binding one pod and finding out how it ended, whatever the API server answers.

    Ok                        bound
    409, or no usable answer  look at the pod: it says what happened
    404, or another uid       the pod is gone
    any other refusal         failed, with the server's words

Unknown is never an ending: the pod is read until it tells, and while it is not bound the very same
Binding is sent again, because at most one of them can take effect. A read that is refused, or
answered with something that is no pod, tells nothing either: cards must not count as free because
we may not look.

While an unanswered Binding may be under way (*in doubt*: sent by this life, or perhaps by an
earlier one) only a pod that is bound, or gone, is an ending. The refusal of another Binding is
none, and an obstacle is none either: a card that falls ill and recovers would be given to the next
pod, and then the Binding that was under way would land on it as well. So an obstacle is waited out,
and after a while the Binding is sent anyway: that settles it, and what becomes of the pod is
what would have become of it if the obstacle had come a moment later.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio
import msgspec

from allotment.adapters.kube.client import KubeClient, pod_path
from allotment.adapters.kube.objects import PlacedPod
from allotment.adapters.kube.result import KubeResult, Ok, Refused, Unknown
from allotment.core import reasons
from allotment.core.ledger.health import is_left
from allotment.core.ledger.model import Allocation, ClusterState
from allotment.core.placement.devices import FAMILIES
from allotment.core.trace_ids import traceparent
from allotment_proto.codec import UNREADABLE
from allotment_proto.events import BindFailed, Bound
from allotment_proto.volcano import keys

NOT_SENT = ("unreachable", "credentials", "throttled")
"""Causes of an unknown ending after which the server has certainly done nothing."""
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0
OBSTACLE_WAITED_OUT_S = 300.0
"""Long enough for a device plugin to restart. It decides how fast, never whether right."""
OF_THE_PLACE = frozenset(
    (
        reasons.NODE_NOT_READY,
        reasons.NO_GPU,
        reasons.GPU_UNHEALTHY,
        reasons.GPU_MODE_MISMATCH,
    )
)
"""Obstacles with which nothing that would have to be prepared (a lock, a claim) matters.
"""


class Target(NamedTuple):
    """The pod to bind and what was reserved for it."""

    namespace: str
    name: str
    allocation: Allocation


Obstacle = tuple[str, str]
"""Why a pod is not bound after all: a reason code and a sentence."""


_decode_pod = msgspec.json.Decoder(PlacedPod).decode


def annotations(
    allocation: Allocation, bind_time_s: int, *, is_traced: bool = True
) -> dict[str, str]:
    """Everything that travels in the Binding's metadata, with the pod's trace if `is_traced`."""
    out = {keys.LOG_SEQ: str(allocation.seq)}
    if is_traced:
        out[keys.TRACEPARENT] = traceparent(allocation.uid)
    for name in sorted({h.family for h in allocation.holdings}):
        held = tuple(h for h in allocation.holdings if h.family == name)
        out.update(
            FAMILIES[name].annotations(allocation.node, held, allocation.stamp_s, bind_time_s)
        )
    return out


def obstacle_to(state: ClusterState, allocation: Allocation) -> Obstacle | None:
    """What happened to a node since it was chosen that makes a Binding to it pointless.

    (The API server would not mind, and the pod would be lost on the node.)
    """
    node = state.nodes.get(allocation.node)
    if node is None or node.fact is None:
        return reasons.NODE_NOT_READY, f"node {allocation.node} is gone"
    if node.forgers and node.blocked and allocation.holdings:
        return node.blocked, reasons.REASONS[node.blocked].text
    if allocation.holdings and is_left(state, node.name, allocation.seq):
        return reasons.NODE_FAILING, f"the device plugin of node {node.name} does not allocate"
    for held in allocation.holdings:
        ledger = node.ledgers.get(held.family)
        if ledger is None:
            return (
                reasons.NO_GPU,
                f"node {node.name} no longer lists {held.family} devices: is its device plugin "
                "running?",
            )
        card = ledger.by_id.get(held.card)
        if card is None or not card.fact.healthy:
            is_what = "not registered" if card is None else "unhealthy"
            return reasons.GPU_UNHEALTHY, f"card {held.card} of node {node.name} is {is_what} now"
        if not card.knows(held):
            what = f"has no instance {held.instance}" if held.instance else "is cut into instances"
            return reasons.GPU_MODE_MISMATCH, f"card {held.card} of node {node.name} {what} now"
    return None


async def nothing_more() -> Obstacle | None:
    """Nothing stands in the way of a Binding, and nothing has to be prepared."""
    return None


async def bind(
    client: KubeClient,
    target: Target,
    bind_time_s: int,
    *,
    look_first: bool,
    is_traced: bool = True,
    prepare: Callable[[], Awaitable[Obstacle | None]] = nothing_more,
    is_reserved: Callable[[], bool] = lambda: True,
    on_problem: Callable[[str], None] = lambda _: None,
    on_wait: Callable[[], None] = lambda: None,
    on_gone: Callable[[], None] = lambda: None,
) -> Bound | BindFailed:
    """Bind until there is an ending. `look_first`: an earlier life may have bound it already.

    `prepare` is asked right before the first Binding: it may take its time, and an obstacle that it
    names is the ending. In doubt it is none, and `prepare` is asked again, for as long as
    `is_reserved`: what the log has released already needs no ending. `on_problem` hears why the pod
    could not be read, each time it could not. `on_wait` is called before anything else than a first
    Binding is waited for, `on_gone` if the pod is gone that an unanswered Binding may have put on
    its node before.
    """
    allocation = target.allocation
    body = annotations(allocation, bind_time_s, is_traced=is_traced)
    wait_s = RETRY_FIRST_S
    in_doubt = look_first
    is_prepared = False
    waits_until = anyio.current_time() + OBSTACLE_WAITED_OUT_S
    while True:
        if look_first:
            on_wait()
            ending = await _look(client, target, on_problem, in_doubt=in_doubt)
            if ending is not None:
                if in_doubt and _is_gone(ending):
                    on_gone()
                return ending
        if not is_prepared:
            obstacle = await prepare()
            if obstacle is not None and (not in_doubt or not is_reserved()):
                return failed(target, *obstacle)
            is_late = anyio.current_time() >= waits_until
            if obstacle is not None and not (is_late and obstacle[0] in OF_THE_PLACE):
                on_problem(f"{obstacle[1]}, but a Binding before may still take effect")
                await anyio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
                continue
            is_prepared = True
        answer = await client.bind(
            target.namespace, target.name, allocation.uid, allocation.node, body
        )
        ending = _ending(target, answer, in_doubt=in_doubt)
        if ending is not None:
            if in_doubt and _is_gone(ending):
                on_gone()
            return ending
        look_first = True
        on_wait()
        if isinstance(answer, Refused) and not in_doubt:
            ending = await _look(client, target, on_problem, in_doubt=False)
            if ending is not None:
                return ending
            return failed(target, reasons.BIND_CONFLICT, answer.message)
        if isinstance(answer, Refused):
            on_problem(f"a Binding before went unanswered, this one was refused: {answer.message}")
        elif isinstance(answer, Unknown):
            in_doubt = in_doubt or answer.cause not in NOT_SENT
        await anyio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_MAX_S)


def _ending(target: Target, answer: KubeResult, *, in_doubt: bool) -> Bound | BindFailed | None:
    """What an answer to a Binding settles; None when the pod itself has to be asked.

    In doubt (an earlier one went unanswered and may still take effect) a refusal settles nothing
    but that the pod is gone.
    """
    if isinstance(answer, Ok):
        return _bound(target)
    if isinstance(answer, Unknown) or answer.status == 409:
        return None
    if answer.status == 404:
        return failed(target, reasons.POD_GONE, answer.message)
    if in_doubt:
        return None
    return failed(target, reasons.API_ERROR, f"{answer.status} {answer.message}")


async def _look(
    client: KubeClient, target: Target, on_problem: Callable[[str], None], *, in_doubt: bool
) -> Bound | BindFailed | None:
    """What the pod itself says; None while it is not bound. Asks until the server tells.

    In doubt a pod on its node counts as bound by us, whatever its annotations say: its owner can
    have edited them since.
    """
    allocation = target.allocation
    wait_s = RETRY_FIRST_S
    while True:
        answer = await client.get(pod_path(target.namespace, target.name))
        if isinstance(answer, Refused) and answer.status == 404:
            return failed(target, reasons.POD_GONE, answer.message)
        if isinstance(answer, Ok):
            try:
                pod = _decode_pod(answer.body)
                break
            except UNREADABLE as error:
                on_problem(f"the answer is not a pod: {error}")
        else:
            on_problem(answer.message)
        await anyio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_MAX_S)
    if pod.metadata.uid != allocation.uid:
        return failed(target, reasons.POD_GONE, "another pod has this name now")
    if not pod.spec.node_name:
        return None
    seq = (pod.metadata.annotations or {}).get(keys.LOG_SEQ)
    if pod.spec.node_name == allocation.node and (in_doubt or seq == str(allocation.seq)):
        return _bound(target)
    return failed(target, reasons.BIND_CONFLICT, f"another client bound it to {pod.spec.node_name}")


def _is_gone(ending: Bound | BindFailed) -> bool:
    return isinstance(ending, BindFailed) and ending.code == reasons.POD_GONE


def failed(target: Target, code: str, message: str) -> BindFailed:
    allocation = target.allocation
    return BindFailed(
        uid=allocation.uid,
        namespace=target.namespace,
        name=target.name,
        node=allocation.node,
        decision=allocation.seq,
        code=code,
        message=message[:500],
        holdings=allocation.holdings,
        cpu_milli=allocation.cpu_milli,
        memory_bytes=allocation.memory_bytes,
        extended=allocation.extended,
    )


def _bound(target: Target) -> Bound:
    allocation = target.allocation
    return Bound(
        uid=allocation.uid,
        namespace=target.namespace,
        name=target.name,
        node=allocation.node,
        decision=allocation.seq,
    )
