"""That a queue's quota covers lone pods is known from an older answer only while it still does.

Random histories of lone pods that come, are placed, run, are resized and end, among them pods of
another queue and of another scheduler, in queues whose limits they come near, and now and then of
nodes that go although they have pods. Rounds that go on from one to the
next, as the scorer's do, must say the same as ones that ask job by job, to the last byte, and so
must the binder's check.
"""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.queues.round import known_covered
from allotment_proto.events import PolicyLoaded, QueueObserved
from allotment_proto.facts import Policy
from tests import build
from tests.property.batch_cluster import QUEUES, REQUESTS
from tests.property.lone_world import EVICTING, UNGATED, USUAL, Lones

POLICIES = tuple(
    policy
    for policy in (*USUAL, *UNGATED, EVICTING)
    if {use.name for tier in policy.tiers for use in tier}.isdisjoint({"sla", "capacity-card"})
)
"""Those whose plugins can tell for how long an answer is known."""
COUNTED = build.request(cpu_milli=0, memory_bytes=0, extended=(("foo", 2),))
"""Of what not every node lists."""
KINDS = (REQUESTS[1], REQUESTS[1], REQUESTS[2], REQUESTS[3], COUNTED)


class Churn(Lones):
    """Pods come and go in a world in which nothing else changes, as a rule."""

    def arrive(self, a: int, b: int, c: int) -> None:
        for _ in range(1 + b // 2):
            self.pods_made += 1
            name = f"l-{self.pods_made}"
            self.tell(
                build.pod(
                    name,
                    KINDS[(a + self.pods_made) % len(KINDS)],
                    name=name,
                    rv=self.seq,
                    created_ms=self.seq,
                    queue=QUEUES[1] if c == 5 else QUEUES[0],
                )
            )

    def end(self, a: int, b: int, c: int) -> None:
        self.pod(a, b, 0)

    def go_on(self, a: int, b: int, c: int) -> None:
        """A Binding is heard of, or the pod runs."""
        self.pod(a, b, 2 + c % 2)

    def resize(self, a: int, b: int, c: int) -> None:
        """A pod asks for something else, perhaps before it is seen on its node."""
        uids = list(self.state.pods)
        if uids and c < 3:
            self.see(uids[(7 * a + b) % len(uids)], request=KINDS[(a + c) % len(KINDS)])

    def follow(self, a: int, b: int, c: int) -> None:
        self.rounds.follow_ahead()

    def other_room(self, a: int, b: int, c: int) -> None:
        """Rarely: a node goes, comes or has other room."""
        if b == 5:
            self.node(a, b, 5 if c > 3 else c)


OPS = (
    Churn.cycle,
    Churn.arrive,
    Churn.cycle,
    Churn.end,
    Churn.cycle,
    Churn.go_on,
    Churn.arrive,
    Churn.stranger,
    Churn.resize,
    Churn.follow,
    Churn.other_room,
)
NUMBERS = st.integers(0, 5)
STEPS = st.lists(
    st.tuples(st.integers(0, len(OPS) - 1), NUMBERS, NUMBERS, NUMBERS), min_size=20, max_size=60
)
LIMITS = st.sampled_from(((), (("cpu", 9_000),), (("cpu", 14_000), ("pods", 7))))


@settings(max_examples=120)
@given(
    STEPS, st.sampled_from(POLICIES), st.lists(LIMITS, min_size=2, max_size=2), st.integers(4, 12)
)
def test_what_is_known_is_what_asking_each_says(
    steps: list[tuple[int, int, int, int]],
    policy: Policy,
    limits: list[tuple[tuple[str, int], ...]],
    cpus: int,
) -> None:
    world = Churn()
    world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
    for name, capability in zip(QUEUES, limits, strict=False):
        world.tell(QueueObserved(uid=name, name=name, rv=9, capability=capability))
    for number in range(2):
        card = build.card(0, id=f"n{number}-0")
        foo = (("foo", cpus),) if number else ()
        name, cpu_milli = f"n{number}", 1_000 * cpus
        world.tell(build.node(name, [card], rv=9, cpu_milli=cpu_milli, pods=cpus, extended=foo))
    with patch.object(known_covered, "_SKIPPED_MAX", 0):
        for op, a, b, c in steps:
            OPS[op](world, a, b, c)
