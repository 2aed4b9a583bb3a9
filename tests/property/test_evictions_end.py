"""Evictions come to an end, though every pod that goes is made anew at once.

Groups of several queues and priorities come, one after the other, to a cluster that is too small.
After each everything is played out: who is placed runs, who is evicted is gone and comes back as a
new pod. However they compete, there comes a moment when nobody has to go any more; and whoever had
others evicted has what they left, unless somebody who outranks it came in between.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.placement.cycle import Outcome
from allotment_proto.events import (
    GroupObserved,
    PodGone,
    PolicyLoaded,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.property.batch_world import World

FIRST = (PluginUse("priority"), PluginUse("gang"), PluginUse("conformance"))
HUNGRY = (PluginUse("priority"), PluginUse("gang", off=("enableJobStarving",)))
"""With it groups that have their minimum may have others evicted. Then quota needs a say in whom:
in a later tier it would not be asked, and groups would take from one another for ever.
"""
QUOTAS = ("proportion", "capacity")
CLASSES = ("low", "middle", "high")
QUEUES = ("one", "two")
MEMORY_MIB = (8_000, 16_000)
CYCLES_MAX = 60


class Wanted(NamedTuple):
    """A group that comes."""

    queue: int
    klass: int
    pods: int
    members: int
    memory: int
    roles: int


wanted = st.builds(
    Wanted,
    st.integers(0, 1),
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 1),
    st.integers(0, 1),
)


class Crowd(World):
    """A full cluster whose pods come back."""

    def __init__(self, cards: list[int], tier: int, quota: int, spread: int) -> None:
        super().__init__()
        due = PluginUse(QUOTAS[quota])
        policy = Policy(
            tiers=((*HUNGRY, due),) if tier else (FIRST, (due,)),
            actions=("enqueue", "allocate", "backfill", "preempt", "reclaim"),
            device_policy="spread" if spread else "binpack",
        )
        self.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
        for name in QUEUES:
            deserved = (("cpu", 100 * max(sum(cards) // 2, 1)),)
            self.tell(QueueObserved(uid=name, name=name, rv=1, deserved=deserved))
        for value, name in enumerate(CLASSES, start=1):
            self.tell(PriorityClassObserved(uid=name, name=name, rv=1, value=value))
        for number, count in enumerate(cards):
            facts = [build.card(index, id=f"n{number}-{index}") for index in range(count)]
            self.tell(build.node(f"n{number}", facts))
        self.evicted = 0

    def round(self, uids: Iterable[str]) -> Outcome:
        """By the board alone: that all roads agree is shown elsewhere."""
        return self.rounds.run(list(uids), self.board)

    def comes(self, number: int, group: Wanted) -> None:
        members = min(group.members, group.pods)
        self.tell(
            GroupObserved(
                uid=f"g{number}",
                namespace="default",
                name=f"g{number}",
                rv=1,
                created_ms=self.seq,
                min_member=members,
                min_task_member=(("r0", 1),) if group.roles and members else (),
                queue=QUEUES[group.queue],
                priority_class=CLASSES[group.klass],
                phase="Inqueue",
            )
        )
        request = build.request(build.wants(MEMORY_MIB[group.memory], 0))
        for _ in range(group.pods):
            self.made += 1
            self.tell(
                build.pod(
                    f"p{self.made}",
                    request,
                    name=f"p{self.made}",
                    rv=self.seq,
                    created_ms=self.seq,
                    group=f"default/g{number}",
                    role=f"r{self.made % 2}",
                    priority_class=CLASSES[group.klass],
                    priority=self.made % 3,
                )
            )

    def play(self) -> None:
        """Decide, and let everything take its course, until nothing is due."""
        cycles = 0
        while (found := self.groups.next_batch(())) is not None:
            cycles += 1
            assert cycles < CYCLES_MAX, f"it never ends: {self.evicted} were evicted"
            self.decide(self.seq, found.batch.uids, self.round(found.batch.uids))
            self.groups.tried(found)
            for uid, pod in list(self.state.pods.items()):
                if pod.allocation is not None and not pod.fact.node:
                    held = pod.allocation
                    self.see(uid, node=held.node, holdings=held.holdings, phase="Running")
            going = sorted(self.state.evicting)
            for uid in going[: 1 + cycles % 2]:  # not all at the same moment
                self.comes_back(uid)
        assert self.state.evicting == {}
        assert self.state.nominated == {}, "what is kept for nobody is nobody's"

    def comes_back(self, uid: str) -> None:
        """An evicted pod is gone, and its controller makes it anew."""
        self.evicted += 1
        self.made += 1
        fact = self.state.pods[uid].fact
        self.tell(PodGone(uid=uid, namespace="default", name=uid, rv=self.seq))
        again = build.pod(
            f"p{self.made}",
            fact.request,
            name=f"p{self.made}",
            created_ms=self.seq,
            group=fact.group,
            role=fact.role,
            priority=fact.priority,
        )
        self.tell(again)


@settings(max_examples=50)
@given(
    cards=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    tier=st.integers(0, 1),
    quota=st.integers(0, 1),
    spread=st.integers(0, 1),
    groups=st.lists(wanted, min_size=2, max_size=6),
)
def test_evictions_end(
    cards: list[int], tier: int, quota: int, spread: int, groups: list[Wanted]
) -> None:
    crowd = Crowd(cards, tier, quota, spread)
    for number, group in enumerate(groups):
        crowd.comes(number, group)
        crowd.play()
