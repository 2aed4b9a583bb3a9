"""A world of rounds in which high priorities take from low ones."""

from typing import Any

from allotment_proto.events import (
    PodObserved,
    PriorityClassObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests.unit.rounds_world import World, group

TIERS = (
    (PluginUse("priority"), PluginUse("gang"), PluginUse("conformance")),
    (PluginUse("predicates"), PluginUse("proportion")),
)
POLICY = Policy(tiers=TIERS, actions=("enqueue", "allocate", "backfill", "preempt", "reclaim"))


class Contest(World):
    """A world with a high and a low priority class."""

    def __init__(self, *nodes: Any) -> None:
        super().__init__(*nodes, policy=POLICY)
        for name, value in (("high", 100), ("low", 1)):
            self.tell(PriorityClassObserved(uid=name, name=name, rv=1, value=value))

    def job(
        self,
        name: str,
        pods: int,
        *,
        priority: str = "low",
        queue: str = "default",
        members: int = 1,
    ) -> list[str]:
        self.tell(group(name, members, priority_class=priority, queue=queue))
        return self.pods(name, pods)

    def run(self, uids: list[str]) -> None:
        """Their pods are seen running where they were put."""
        for uid in uids:
            pod = self.state.pods[uid]
            assert pod.allocation is not None
            held = pod.allocation
            fact = PodObserved(
                **{
                    **{f: getattr(pod.fact, f) for f in pod.fact.__struct_fields__},
                    "node": held.node,
                    "holdings": held.holdings,
                    "phase": "Running",
                    "rv": pod.fact.rv + 1,
                }
            )
            self.tell(fact)
