"""Node locks on the local API server: taken once, waited for, taken over, given back."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.build import decided, holding, placement, pod, policy, state_of
from tests.build import node as node_fact
from tests.contract.kube_server import (
    client_of,
    hang_up,
    kubeconfig,
    refuse,
    reply,
    scripted,
)
from tests.contract.local_apiserver import Api, node, running
from tests.waiting import patience

from allotment.adapters.kube.client import connect
from allotment.core import reasons
from allotment.core.ledger.model import RESERVED, Allocation
from allotment.core.ledger.state import apply
from allotment_binder import locks as locks_module
from allotment_binder.bindings import Obstacle, Target
from allotment_binder.locks import Held, NodeLocks, holder_key, lock_keys
from allotment_proto.events import Event, PodGone
from allotment_proto.facts import Holding

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking", "quick")]
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NODE = "/api/v1/nodes/n1"
KEY = "hamivgpu"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "POLL_FIRST_S", 0.01)
    monkeypatch.setattr(locks_module, "POLL_MAX_S", 0.02)


def target(uid: str = "a", *holdings: Holding, seq: int = 7) -> Target:
    held = holdings or (holding(),)
    allocation = Allocation(uid, "n1", held, 0, 0, (), phase=RESERVED, seq=seq)
    return Target("default", f"pod-{uid}", allocation)


def always() -> bool:
    return True


class Scene:
    """Binders with a lock manager each, on one API server with node n1."""

    def __init__(self, api: Api, binders: list[NodeLocks], problems: list[str]) -> None:
        self.api, self.binders, self.problems = api, binders, problems

    async def annotations(self) -> dict[str, str]:
        found: dict[str, str] = (await self.api.get(NODE))["metadata"].get("annotations", {})
        return found

    async def write(self, **annotations: str | None) -> None:
        await self.api.patch(NODE, {"metadata": {"annotations": annotations}})


@contextlib.asynccontextmanager
async def scene(tmp_path: Path, binders: int = 1) -> AsyncIterator[Scene]:
    async with running() as api, contextlib.AsyncExitStack() as stack:
        await api.post("/api/v1/nodes", node("n1"))
        problems: list[str] = []
        config = kubeconfig(tmp_path / "kubeconfig", api.url)
        found = [
            NodeLocks(
                await stack.enter_async_context(connect(config)), problems.append, NOW.timestamp
            )
            for _ in range(binders)
        ]
        yield Scene(api, found, problems)


def since(minutes: float) -> str:
    return f"{NOW - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"


def test_which_lock_a_pod_is_bound_under() -> None:
    assert lock_keys((holding(),)) == ("hamivgpu",)
    assert lock_keys((Holding("gpushare", 0, "0", 4_000, 0),)) == ("gpu",)
    assert lock_keys((Holding("gpushare", 0, "0", 16_000, 100),)) == ()  # by number: no lock
    assert lock_keys((Holding("ascend", 0, "npu", 1, 1, "Ascend310P/vir01"),)) == (
        "hami.io/mutex.lock",
    )
    assert lock_keys((Holding("mindcluster", 0, "0", 0, 1, "vir01"),)) == ()
    assert lock_keys(()) == ()


async def test_taken_and_given_back_and_nothing_else_is_touched(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.write(theirs="stays")
        (binder,) = at.binders
        assert await binder.take(target(), always) is None
        assert await at.annotations() == {
            "theirs": "stays",
            KEY: since(0),
            "allotment.dev/lock-hamivgpu": f"{since(0)} a/7",
        }
        assert await binder.take(target(), always) is None  # it has it already
        await binder.release(Held.of(target().allocation))
        assert await at.annotations() == {"theirs": "stays"}
        assert binder.held == {}


async def test_a_pod_without_devices_takes_none(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        plain = Allocation("a", "n1", (), 0, 0, (), phase=RESERVED, seq=7)
        assert await at.binders[0].take(Target("default", "a", plain), always) is None
        assert await at.annotations() == {}


async def test_of_two_binders_that_race_one_has_it_at_a_time(tmp_path: Path) -> None:
    """Each writes only on the version that it read, so nobody overwrites anybody."""
    inside: list[str] = []
    order: list[str] = []

    async def bind(binder: NodeLocks, uid: str) -> None:
        assert await binder.take(target(uid), always) is None
        inside.append(uid)
        assert inside == [uid]
        await anyio.sleep(0.02)
        inside.remove(uid)
        order.append(uid)
        await binder.release(Held.of(target(uid).allocation))

    async with scene(tmp_path, binders=2) as at:
        with patience():
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(bind, at.binders[number % 2], str(number))
        assert sorted(order) == [str(number) for number in range(8)]
        assert await at.annotations() == {}
        assert at.problems == []


async def test_a_young_lock_of_somebody_else_is_waited_for_other_nodes_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks_module, "TOLD_AFTER_S", 0.05)
    async with scene(tmp_path) as at:
        await at.api.post("/api/v1/nodes", node("n2"))
        await at.write(**{KEY: since(4.9)})
        (binder,) = at.binders
        ends: list[Obstacle | None] = []
        told: list[str] = []

        async def take() -> None:
            ends.append(await binder.take(target(), always, told.append))

        async with anyio.create_task_group() as group:
            group.start_soon(take)
            elsewhere = Allocation("b", "n2", (holding(),), 0, 0, (), phase=RESERVED, seq=8)
            assert await binder.take(Target("default", "b", elsewhere), always) is None
            await anyio.sleep(0.2)
            assert ends == []
            assert told == [f"waits for lock {KEY} of node n1, which is held since {since(4.9)}"]
            await at.write(**{KEY: None})  # as the plugin does
        assert ends == [None]
        assert (await at.annotations())[holder_key(KEY)] == f"{since(0)} a/7"


async def test_an_old_lock_is_taken_over_and_one_of_the_future_is_not(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.write(**{KEY: since(5.1)})
        (binder,) = at.binders
        assert await binder.take(target(), always) is None
        assert (await at.annotations())[KEY] == since(0)
        await at.write(**{KEY: since(-20)})
        asked = iter([True, True, False])
        found = await binder.take(target("b"), lambda: next(asked))
        assert found is not None
        assert found[0] == reasons.STALE_LEDGER
        assert (await at.annotations())[KEY] == since(-20)


async def test_what_is_not_bound_any_more_never_takes_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        found = await at.binders[0].take(target(), lambda: False)
        assert found is not None
        assert found[0] == reasons.STALE_LEDGER
        assert await at.annotations() == {}


async def test_a_lock_that_cannot_be_read_is_an_obstacle_that_says_what_to_do(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        await at.write(**{KEY: "yesterday"})
        found = await at.binders[0].take(target(), always)
        assert found is not None
        assert found[0] == reasons.API_ERROR
        assert "node n1, annotation hamivgpu" in found[1]
        assert "yesterday" in found[1]
        assert (await at.annotations())[KEY] == "yesterday"


async def test_nobody_elses_lock_is_given_back(tmp_path: Path) -> None:
    """Somebody took ours over, or took it after the plugin had deleted it."""
    async with scene(tmp_path) as at:
        (binder,) = at.binders
        assert await binder.take(target(), always) is None
        await at.write(**{KEY: since(-0.1)})
        await binder.release(Held.of(target().allocation))
        assert await at.annotations() == {KEY: since(-0.1)}, "what said that it was ours is gone"


async def test_nothing_stays_on_a_node_whose_plugin_deleted_the_lock(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        (binder,) = at.binders
        assert await binder.take(target(), always) is None
        await at.write(**{KEY: None})
        await binder.release(Held.of(target().allocation))
        assert await at.annotations() == {}


async def test_what_a_dead_binder_left_goes_and_what_another_holds_stays(tmp_path: Path) -> None:
    async with scene(tmp_path, binders=2) as at:
        first, second = at.binders
        await at.write(**{holder_key(KEY): f"{since(60)} x/3"})
        await first.release(Held.of(target().allocation))
        assert await at.annotations() == {}
        assert await second.take(target("b", seq=8), always) is None
        await first.release(Held.of(target().allocation))
        assert await at.annotations() == {KEY: since(0), holder_key(KEY): f"{since(0)} b/8"}


async def test_a_node_that_is_gone_is_no_place_for_a_lock(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.api.call("DELETE", NODE)
        assert await at.binders[0].take(target(), always) == (
            reasons.NODE_NOT_READY,
            "node n1 is gone",
        )
        await at.binders[0].release(Held.of(target().allocation))


async def test_lost_answers_and_missing_rights(tmp_path: Path) -> None:
    problems: list[str] = []
    bare: dict[str, Any] = {"metadata": {"resourceVersion": "5"}}
    taken = {
        "metadata": {
            "resourceVersion": "6",
            "annotations": {KEY: since(0), holder_key(KEY): f"{since(0)} a/7"},
        }
    }
    async with scripted() as script, client_of(script, tmp_path) as client:
        binder = NodeLocks(client, problems.append, NOW.timestamp)
        script.then(reply(bare), hang_up, reply(taken))  # it was written all the same
        assert await binder.take(target(), always) is None
        assert script.bodies[1]["metadata"]["resourceVersion"] == "5"
        assert len(problems) == 1
        script.then(reply(bare), refuse(403, "Forbidden", "may not patch nodes"))
        found = await binder.take(target("b"), always)
        assert found is not None
        assert found[0] == reasons.API_ERROR
        assert "may not patch nodes" in found[1]
        script.then(reply(taken), refuse(409, "Conflict"), reply(taken), hang_up, reply(bare))
        await binder.release(Held.of(target().allocation))
        assert not script.answers


async def test_a_new_binder_finds_the_locks_of_the_one_before(tmp_path: Path) -> None:
    state = state_of(policy(node_lock=True), node_fact(), pod("a"))
    apply(state, decided(placement("a")), 7)
    async with scene(tmp_path, binders=2) as at:
        first, second = at.binders
        assert await first.take(target(), always) is None
        second.begin(state)
        assert await second.take(target(), always) is None  # known as its own
        bound = pod("a", rv=2, node="n1", holdings=(holding(),), bind_phase="allocating")
        apply(state, bound, 8)
        second.look(state, "a")
        assert second.due() == []
        apply(state, pod("a", rv=3, node="n1", holdings=(holding(),), bind_phase="success"), 9)
        second.look(state, "a")
        ((held, wait_s),) = second.due()
        assert wait_s == locks_module.PLUGIN_DELETES_WITHIN_S
        third = at.binders[0]
        third.begin(state)
        assert not third.held, "the plugin of a pod that it is through with deletes the lock"
        assert second.due() == []
        await second.release(held)
        assert await at.annotations() == {}


@pytest.mark.parametrize("ending", ["failed", "ended", "gone"])
async def test_a_pod_that_comes_to_nothing_gives_it_back_at_once(
    tmp_path: Path, ending: str
) -> None:
    state = state_of(policy(node_lock=True), node_fact(), pod("a"))
    apply(state, decided(placement("a")), 7)
    async with scene(tmp_path) as at:
        (binder,) = at.binders
        assert await binder.take(target(), always) is None
        bound: dict[str, Any] = {"rv": 3, "node": "n1", "holdings": (holding(),)}
        events: dict[str, Event] = {
            "failed": pod("a", **bound, bind_phase="failed"),
            "ended": pod("a", **bound, phase="Failed"),
            "gone": PodGone(uid="a", namespace="default", name="pod-a", rv=3),
        }
        apply(state, events[ending], 8)
        binder.look(state, "a")
        ((held, wait_s),) = binder.due()
        assert wait_s == 0
        await binder.release(held)
        assert await at.annotations() == {}


async def test_with_the_switch_off_nothing_is_looked_for(tmp_path: Path) -> None:
    state = state_of(policy(), node_fact(), pod("a"))
    apply(state, decided(placement("a")), 7)
    async with scene(tmp_path) as at:
        at.binders[0].begin(state)
        assert at.binders[0].held == {}
