"""Learns what pods typically ask for, for device policies that look ahead, and tells the log.

What is learned is an event, so later decisions and replays know the same mix. It is
learned from the pods that the log shows now, and told again only when it has moved.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import anyio
import anyio.lowlevel

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.policies.learning import LEARNERS, has_moved, learn
from allotment.core.placement.policies.typical import Mix
from allotment_proto.events import MixLearned, NodeObserved
from allotment_proto.facts import PodRequest

LEARN_S = 30.0
PODS_LEAST = 20
"""Fewer pods say little: until then best fit decides."""
AT_ONCE = 2_000
"""Pods that are counted before others get a turn."""


async def keep_learning(
    state: ClusterState, tell: Callable[[Iterable[MixLearned]], None], period_s: float = LEARN_S
) -> None:
    """Look at the pods for ever and again; tell what is new."""
    while True:
        event = await look(state)
        if event is not None:
            tell([event])
        await anyio.sleep(period_s)


async def look(state: ClusterState) -> MixLearned | None:
    """The mix to report now, if the active policy wants one and it has moved."""
    policy = state.policy.device_policy
    if policy not in LEARNERS:
        return None
    counts: Counter[PodRequest] = Counter()
    for number, pod in enumerate(list(state.pods.values()), start=1):
        if pod.fact.problem is None and pod.fact.scheduler in state.policy.scheduler_names:
            counts[pod.fact.request] += 1
        if number % AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
    if counts.total() < PODS_LEAST:
        return None
    facts = [node.fact for node in state.nodes.values() if node.fact is not None]
    mix = await anyio.to_thread.run_sync(_learned, policy, counts, facts)
    if not mix or not has_moved(state.policy.mix, mix):
        return None
    return MixLearned(policy=policy, mix=mix, pods=counts.total())


def _learned(policy: str, counts: Counter[PodRequest], nodes: Sequence[NodeObserved]) -> Mix:
    """The mix; empty while no card is known, against which amounts could be held."""
    card_mib = usual_card_mib(nodes)
    return learn(policy, counts, card_mib) if card_mib else ()


def usual_card_mib(nodes: Sequence[NodeObserved]) -> int:
    """The memory that most cards have; of equals the least. 0 without cards."""
    sizes = Counter(
        card.memory_mib
        for node in nodes
        for inventory in node.inventories
        for card in inventory.cards
    )
    return min(sizes, key=lambda size: (-sizes[size], size), default=0)
