"""What queues are guaranteed and deserve is kept, whatever their neighbours take or other plugins
say.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment_proto.events import PolicyLoaded, QueueObserved
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.contest import Contest
from tests.unit.rounds_world import group

GPU = "nvidia.com/gpu"
CARDS = 8


def quota_policy(plugin: str, *, reclaims: bool = False) -> Policy:
    """The quota plugin is behind others that vote on victims as well."""
    tiers = (
        (PluginUse("priority"), PluginUse("gang"), PluginUse("conformance")),
        (PluginUse("predicates"), PluginUse(plugin)),
    )
    actions = ("enqueue", "allocate", "backfill", *(("reclaim",) if reclaims else ()))
    return Policy(tiers=tiers, actions=actions)


def world_of(policy: Policy, cards: int = CARDS) -> Contest:
    world = Contest(build.node("n1", 0, extended=((GPU, cards),)))
    world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
    return world


def queue(name: str, **quota: int) -> QueueObserved:
    """Cards are counted in thousandths there."""
    amounts: dict[str, Any] = {key: ((GPU, cards * 1000),) for key, cards in quota.items()}
    return QueueObserved(uid=name, name=name, rv=1, **amounts)


def job(world: Contest, name: str, pods: int, members: int = 1, **about: Any) -> list[str]:
    world.tell(group(name, members, priority_class="low", **about))
    request = build.request(extended=((GPU, 1),))
    member = {"group": f"default/{name}", "role": "w", "priority_class": "low"}
    uids = [f"{name}-{number}" for number in range(pods)]
    for uid in uids:
        world.tell(build.pod(uid, request, name=uid, **member))
    return uids


def held(world: Contest) -> Mapping[str, int]:
    """Cards by queue."""
    found: dict[str, int] = {}
    for uid in world.placed():
        name = world.state.groups[world.state.pods[uid].fact.group].queue
        found[name] = found.get(name, 0) + 1
    return found


@pytest.mark.parametrize("plugin", ["capacity", "proportion"])
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=6),
)
def test_what_is_held_beyond_guarantees_never_exceeds_what_is_not_guaranteed(
    plugin: str, guarantees: list[int], jobs: list[tuple[int, int]]
) -> None:
    world = world_of(quota_policy(plugin))
    names = [f"q{number}" for number in range(len(guarantees))]
    for name, cards in zip(names, guarantees, strict=True):
        world.tell(queue(name, guarantee=cards))
    for number, (at, pods) in enumerate(jobs):
        job(world, f"j{number}", pods, queue=names[at % len(names)])
        world.decide()
        found = held(world)
        beyond = [
            max(found.get(name, 0) - cards, 0)
            for name, cards in zip(names, guarantees, strict=True)
        ]
        assert sum(beyond) <= max(CARDS - sum(guarantees), 0)
