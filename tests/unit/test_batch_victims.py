"""Preemption and reclaim: who goes, for whom, and that nobody goes in vain."""

import msgspec
import pytest

from allotment.core.ledger import snapshot
from allotment.core.queues.eligible import is_never
from allotment.core.queues.round.rounds import Rounds
from allotment_board.board import Board
from allotment_proto.events import (
    PolicyLoaded,
    QueueObserved,
)
from allotment_proto.facts import Policy
from tests import build
from tests.hunting import every_pod_asked
from tests.unit.batch_parts import CAPACITY, bound
from tests.unit.contest import TIERS, Contest
from tests.unit.rounds_world import group


def test_where_nobody_is_evicted_there_is_nothing_to_say() -> None:
    world = Contest(build.node("n1", 1))
    world.tell(PolicyLoaded(policy=Policy(tiers=TIERS), source="", text_sha256=""))
    never = build.pod("a", preempts=False)
    assert not is_never(world.state, never)


class TestCorners:
    def test_nobody_goes_where_the_group_may_not_be_placed(self) -> None:
        """The node is held for another group, which the preemptor does not outrank."""
        world = Contest(build.node("n1", 2))
        low = world.job("low", 2)
        world.decide()
        bound(world, *low)
        world.job("big", 2, priority="high", members=2)
        world.tell(group("low", 2, priority_class="low", rv=2))  # its pods may not go now
        world.decide()
        assert world.state.evicting == {}
        world.state.groups["default/big"].passed = 70
        world.decide()
        world.job("late", 1, priority="high")
        world.tell(group("low", 1, priority_class="low", rv=3))
        found = world.decide(["late-w-0"])
        assert [h.group for h in world.state.holds] == ["default/big"]
        assert found.evictions == ()


def test_a_round_may_be_abandoned_in_the_middle_and_leaves_nothing() -> None:
    """Each step that asks node by node, or pod by pod, says that it goes on."""
    nodes = [build.node(f"n{number:02}", 1) for number in range(20)]
    world = Contest(*nodes)
    low = world.job("low", 20)
    world.decide()
    world.run(low)
    world.job("top", 1, priority="high")
    before, batch = snapshot.encode(world.state), list(world.state.pending)
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    expected = Rounds(world.state, checkpoint=count).run(batch, Board(world.state))
    assert expected.evictions
    assert calls > len(nodes)
    for last in range(1, calls, 7):
        left = last

        def abandon() -> None:
            nonlocal left
            left -= 1
            if not left:
                raise InterruptedError

        board = Board(world.state)
        with pytest.raises(InterruptedError):
            Rounds(world.state, checkpoint=abandon).run(batch, board)
        assert snapshot.encode(world.state) == before
        assert Rounds(world.state).run(batch, board) == expected


@pytest.mark.parametrize("queue", ["default", "team-b"])
@pytest.mark.parametrize("runs", [4, 40])
def test_who_fits_nowhere_and_may_evict_nobody_asks_no_pod_that_runs(runs: int, queue: str) -> None:
    """Neither pods as high in its queue, nor those of others if its queue deserves nothing."""
    world = Contest(*(build.node(f"n{number}", 4) for number in range(runs // 4)))
    actions = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
    policy = msgspec.structs.replace(CAPACITY, actions=actions)
    world.tell(PolicyLoaded(policy=policy, source="", text_sha256=""))
    world.tell(QueueObserved(uid="team-b", name="team-b", rv=1))
    for number in range(runs):
        one = build.request(build.wants(16_000, 0))
        world.tell(build.pod(f"p{number:02}", one, queue="default"))
    world.decide()
    world.run(sorted(world.placed()))
    assert len(world.placed()) == runs
    rounds, made = Rounds(world.state), list[int]()
    for number in range(3):
        huge = build.request(build.wants(1_000_000, 0))
        world.tell(build.pod(f"huge{number}", huge, queue=queue))
        found = rounds.run([f"huge{number}"], Board(world.state))
        assert found.refusals
        with every_pod_asked():
            assert found == Rounds(world.state).run([f"huge{number}"], Board(world.state))
        assert rounds._world is not None
        made.append(rounds._world.opened)
    assert made[-1] < 8
