"""The plugin `sla` in a log where nothing happens: the moment is told, and groups are due again."""

from collections.abc import Iterable
from typing import Any

import anyio
import pytest

from allotment.core.ledger import snapshot
from allotment.core.queues.round.deadlines import has_passed
from allotment_filter.groups import Groups
from allotment_proto.events import PolicyLoaded, TimePassed
from allotment_proto.facts import PluginUse, Policy
from allotment_watcher.timekeeper import keep_time
from tests import build
from tests.unit.rounds_world import World, group

USUAL = PluginUse("sla", arguments=(("sla-waiting-time", 60_000),))


def policy(*sla: PluginUse) -> Policy:
    return Policy(tiers=(sla, (PluginUse("gang"), PluginUse("proportion"))))


def world(*sla: PluginUse, **changes: Any) -> World:
    """A group that is not let in, because it asks for more than there is."""
    found = World(build.node("n1", 1), policy=policy(*sla))
    much = {"phase": "Pending", "min_resources": (("cpu", 99_000),), "created_ms": 1_000}
    found.tell(group("a", 1, **{**much, **changes}))
    return found


def test_the_end_of_a_wait_is_news_once() -> None:
    there = world(PluginUse("sla"), waiting_most_ms=5_000)
    assert not has_passed(there.state, 5_999)
    assert has_passed(there.state, 6_000)
    there.tell(TimePassed(at_ms=6_500))
    assert not has_passed(there.state, 99_000)


def test_the_argument_holds_for_all_that_say_nothing_and_for_pods_without_a_group() -> None:
    there = world(USUAL)
    assert not has_passed(there.state, 60_999)
    assert has_passed(there.state, 61_000)
    there = world(USUAL, waiting_most_ms=5_000)
    assert has_passed(there.state, 6_000), "its own word goes first"
    there = World(build.node("n1", 1), policy=policy(USUAL))
    assert not has_passed(there.state, 1 << 60), "nobody waits"
    there.tell(build.pod("single", created_ms=2_000))
    assert has_passed(there.state, 62_000)
    assert not has_passed(there.state, 61_999)


def test_where_nobody_goes_by_it_no_time_passes() -> None:
    assert not has_passed(world(waiting_most_ms=5_000).state, 1 << 60)
    assert not has_passed(world(PluginUse("sla")).state, 1 << 60)
    there = world(PluginUse("sla"), waiting_most_ms=5_000, phase="Running")
    assert not has_passed(there.state, 1 << 60), "it has what it needs"


def test_a_group_is_let_in_when_its_time_is_up_though_nothing_else_happens() -> None:
    there = world(PluginUse("sla"), waiting_most_ms=5_000)
    groups = Groups(there.state)
    first = groups.next_batch(())
    assert first is not None
    refused = there.decide([])
    assert [bool(a.code) for a in refused.admissions] == [True]
    groups.tried(first)
    groups.tried(first._replace(batch=first.batch._replace(basis=there.seq)))
    assert groups.next_batch(()) is None, "nothing happened"
    there.tell(TimePassed(at_ms=7_000))
    assert groups.next_batch(()) is not None
    assert [a.code for a in there.decide([]).admissions] == [""]


def test_time_is_part_of_the_state_and_never_goes_back() -> None:
    there = world(PluginUse("sla"), waiting_most_ms=5_000)
    there.tell(TimePassed(at_ms=7_000))
    there.tell(TimePassed(at_ms=6_000))
    there.tell(PolicyLoaded(policy=policy(), source="", text_sha256=""))
    restored = snapshot.decode(snapshot.encode(there.state))
    assert restored.time_ms == there.state.time_ms == 7_000


@pytest.mark.anyio
async def test_the_watcher_tells_it() -> None:
    there = world(PluginUse("sla"), waiting_most_ms=5_000)
    told: list[TimePassed] = []
    heard = anyio.Event()

    def tell(events: Iterable[TimePassed]) -> None:
        for event in events:
            told.append(event)
            there.tell(event)
        heard.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_time, there.state, tell, 0.001)
        await heard.wait()
        await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert len(told) == 1
    assert there.state.time_ms == told[0].at_ms > 6_000
