"""No more pods are evicted than need be, and nobody is evicted twice for one place.

Pods of high priority come to a cluster that pods of low priority fill: at once or one by one, while
victims take their time and leave in any order, others come, and preemptors go away. Each of them
has others evicted once at most, and for as many cards as it asks for. In the end all that can have
a place have one, and where all came before anybody left the number is the smallest, which is found
by trying every way to place them.
"""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment_proto.events import (
    Decided,
    GroupObserved,
    PodGone,
    PolicyLoaded,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.property.batch_world import World

CYCLES_MAX = 200
GANG = PluginUse("gang", off=("enablePreemptable", "enableReclaimable"))
"""Else nobody takes from a pod without a group, which is its own minimum."""
FULL_MIB, HALF_MIB = 16_000, 8_000


class Contested(World):
    """A cluster of unit cards; the cycles of each step are played until nothing is due."""

    def __init__(self, cards: list[int], *, device_policy: str, quota: str) -> None:
        super().__init__()
        policy = Policy(
            tiers=((PluginUse("priority"), GANG), (PluginUse(quota),)),
            actions=("enqueue", "allocate", "backfill", "preempt", "reclaim"),
            device_policy=device_policy,
        )
        self.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
        self.tell(QueueObserved(uid="q", name="default", rv=1))
        for name, value in (("low", 1), ("high", 100)):
            self.tell(PriorityClassObserved(uid=name, name=name, rv=1, value=value))
        for number, count in enumerate(cards):
            facts = [build.card(index, id=f"n{number}-{index}") for index in range(count)]
            self.tell(build.node(f"n{number}", facts))
        self.decisions: list[Decided] = []

    def comes(self, priority: str, memory_mib: int = FULL_MIB, count: int = 1) -> str:
        """A pod without a group."""
        self.made += 1
        uid = f"{priority}-{self.made}"
        request = build.request(build.wants(memory_mib, 0, count))
        more = {"priority_class": priority, "queue": "default", "created_ms": self.seq}
        self.tell(build.pod(uid, request, name=uid, **more))
        return uid

    def gang(self, sizes: list[int]) -> str:
        """A group that starts with all its pods or not at all."""
        self.made += 1
        name = f"gang-{self.made}"
        self.tell(
            GroupObserved(
                uid=name,
                namespace="default",
                name=name,
                rv=1,
                created_ms=self.seq,
                min_member=len(sizes),
                queue="default",
                priority_class="high",
                phase="Inqueue",
            )
        )
        for number, size in enumerate(sizes):
            uid = f"{name}-{number}"
            request = build.request(build.wants(FULL_MIB, 0, size))
            self.tell(build.pod(uid, request, name=uid, group=f"default/{name}"))
        return f"default/{name}"

    def play(self) -> None:
        """Decide until nothing is due; whoever is placed runs."""
        for _ in range(CYCLES_MAX):
            found = self.groups.next_batch(())
            if found is None:
                return
            decided = self.decide(self.seq, found.batch.uids, self.round(found.batch.uids))
            if decided is not None:
                self.decisions.append(decided)
            self.groups.tried(found)
            for uid, pod in list(self.state.pods.items()):
                if pod.allocation is not None and not pod.fact.node:
                    held = pod.allocation
                    self.see(uid, node=held.node, holdings=held.holdings, phase="Running")
        raise AssertionError("it never ends")

    def leaves(self, uid: str) -> None:
        self.tell(PodGone(uid=uid, namespace="default", name=uid, rv=self.seq))

    def victim_leaves(self, number: int) -> None:
        """One of those that are evicted is gone."""
        going = sorted(self.state.evicting)
        if going:
            self.leaves(going[number % len(going)])
            self.play()

    def all_leave(self, number: int) -> None:
        while self.state.evicting:
            self.victim_leaves(number)

    @property
    def evictions(self) -> dict[str, list[list[str]]]:
        """By preemptor, who was evicted for it by each decision that evicted for it."""
        found: dict[str, list[list[str]]] = {}
        for decided in self.decisions:
            by: dict[str, list[str]] = {}
            for eviction in decided.evictions:
                by.setdefault(eviction.preemptor, []).append(eviction.uid)
            for preemptor, uids in by.items():
                found.setdefault(preemptor, []).append(uids)
        return found

    def is_placed(self, uid: str) -> bool:
        return self.state.pods[uid].allocation is not None

    def check_done(self) -> None:
        assert self.state.evicting == {}
        assert self.state.nominated == {}, "what is kept for nobody is nobody's"

    def check_once(self) -> None:
        for preemptor, decisions in self.evictions.items():
            assert len(decisions) == 1, f"evicted again for {preemptor}: {decisions}"


CARDS = st.lists(st.integers(1, 4), min_size=1, max_size=3)
POLICIES = st.sampled_from(("binpack", "spread"))
QUOTAS = st.sampled_from(("proportion", "capacity"))


def fewest(cards: list[int], free: list[int], sizes: list[int]) -> int | None:
    """The fewest unit pods that have to go so that all sizes have a place; None if they cannot."""
    best: int | None = None
    for places in product(range(len(cards)), repeat=len(sizes)):
        wanted = [0] * len(cards)
        for place, size in zip(places, sizes, strict=True):
            wanted[place] += size
        if all(want <= count for want, count in zip(wanted, cards, strict=True)):
            number = sum(max(w - f, 0) for w, f in zip(wanted, free, strict=True))
            best = number if best is None else min(best, number)
    return best


@settings(max_examples=120)
@given(
    cards=CARDS,
    empty=st.integers(0, 3),
    number=st.integers(1, 6),
    at_once=st.booleans(),
    order=st.integers(0, 7),
    device_policy=POLICIES,
    quota=QUOTAS,
)
def test_as_many_go_as_need_be(
    cards: list[int],
    empty: int,
    number: int,
    at_once: bool,
    order: int,
    device_policy: str,
    quota: str,
) -> None:
    world = Contested(cards, device_policy=device_policy, quota=quota)
    for _ in range(max(sum(cards) - empty, 0)):
        world.comes("low")
    world.play()
    free = [count - len(world.state.nodes[f"n{at}"].allocations) for at, count in enumerate(cards)]
    number = min(number, sum(cards))
    high = []
    for _ in range(number):
        high.append(world.comes("high"))
        if not at_once:
            world.play()
    world.play()
    world.all_leave(order)
    assert all(map(world.is_placed, high))
    evicted = sum(len(each) for decisions in world.evictions.values() for each in decisions)
    assert evicted == fewest(cards, free, [1] * number)
    world.check_once()
    world.check_done()


STEP = st.tuples(
    st.sampled_from(
        ("high", "high 2", "high half", "gang", "low", "low half", "victim", "victim", "goes")
    ),
    st.integers(0, 7),
    st.booleans(),
)


@settings(max_examples=250)
@given(
    cards=CARDS,
    halves=st.integers(0, 3),
    steps=st.lists(STEP, max_size=14),
    device_policy=POLICIES,
    quota=QUOTAS,
)
def test_nobody_is_evicted_twice_for_one_place(
    cards: list[int],
    halves: int,
    steps: list[tuple[str, int, bool]],
    device_policy: str,
    quota: str,
) -> None:
    """Whatever happens between, as long as it takes nobody's place."""
    world = Contested(cards, device_policy=device_policy, quota=quota)
    for number in range(sum(cards) + halves):
        world.comes("low", HALF_MIB if number < 2 * halves else FULL_MIB)
    world.play()
    sizes: dict[str, int] = {}
    for what, number, is_played in steps:
        match what.split():
            case ["victim"]:
                world.victim_leaves(number)
            case ["gang"]:
                size = [1 + number % 2] * (2 + number % 2)
                sizes[world.gang(size)] = sum(size)
            case ["goes"]:
                waiting = sorted(uid for uid in world.state.pending if uid.startswith("high"))
                if waiting:
                    world.leaves(waiting[number % len(waiting)])
            case ["low", *half]:
                world.comes("low", HALF_MIB if half else FULL_MIB)
            case ["high", "half"]:
                sizes["pod:" + world.comes("high", HALF_MIB)] = 1
            case _:
                count = 2 if what == "high 2" else 1
                sizes["pod:" + world.comes("high", count=count)] = count
        if is_played:
            world.play()
    world.play()
    world.all_leave(0)
    world.check_once()
    world.check_done()
    for preemptor, ((*victims,),) in world.evictions.items():
        assert len(victims) <= 2 * sizes[preemptor], "no more than two hold a card"
