"""PodGroups as users see them: let in, short, scheduled, running; said once, and after a crash."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from tests import build
from tests.build import decided, node, placement, policy
from tests.contract.binder_scene import (
    GROUPS,
    Cluster,
    at_work,
    changed,
    cluster,
    comes_to,
)
from tests.contract.kube_server import client_of, refuse, reply, scripted
from tests.memory_log import MemoryLog
from tests.waiting import until

from allotment.core.ledger.state import apply
from allotment_binder import groups as groups_module
from allotment_binder.groups import GroupStatuses
from allotment_binder.readers import Readers
from allotment_proto.events import (
    Admission,
    Decided,
    Event,
    GroupGone,
    GroupObserved,
    Placement,
    PodObserved,
    QueueObserved,
    Short,
)

pytestmark = pytest.mark.anyio
QUEUE = QueueObserved(uid="q", name="default", rv=1)
NAMES = policy(scheduler_names=("allotment", "volcano"))
TAIL = "pod group is not ready, 2 Pending, 2 minAvailable; Pending: 1 Unschedulable, 1 Schedulable"
FULL = "queue resource quota insufficient: insufficient nvidia.com/gpu"


def short(group: str, waiting: int, lacking: int) -> Short:
    message = f"{lacking}/{waiting} tasks in gang unschedulable: {TAIL}"
    return Short(f"default/{group}", "NotEnoughResources", message, waiting, waiting, 1, True)


def admitting(group: str, code: str = "", message: str = "") -> Decided:
    return decided(admissions=(Admission(f"default/{group}", code, message),))


async def reaches(there: Cluster, group: str, phase: str) -> None:
    async def holds() -> bool:
        return bool((await there.status(group)).get("phase") == phase)

    await comes_to(holds)


async def rests(there: Cluster, group: str) -> Any:
    """The group once nothing is written to it any more."""
    found = [await there.api.get(f"{GROUPS}/{group}")]

    async def is_as_it_was() -> bool:
        await anyio.sleep(3 * groups_module.SWEEP_EVERY_S)
        before = found.pop()
        found.append(await there.api.get(f"{GROUPS}/{group}"))
        versions = {each["metadata"]["resourceVersion"] for each in (before, *found)}
        return len(versions) == 1

    await comes_to(is_as_it_was)
    return found.pop()


def on_node(fact: PodObserved) -> Placement:
    return placement(fact.uid, "n1", name=fact.name)


async def test_a_group_that_was_let_in_becomes_inqueue_before_it_has_pods(tmp_path: Path) -> None:
    async with cluster() as there:
        first = await there.group("a", 2)
        second = await there.group("b", 2, "Pending")
        other = await there.group("c", 2)
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), first, second, other) as scene:
            await scene.add(admitting("a"), admitting("b"))
            await reaches(there, "a", "Inqueue")
            await reaches(there, "b", "Inqueue")
            await scene.add(await there.seen("a", 2))
            await rests(there, "a")
            assert await there.status("c") == {}, "nobody decided about it"


async def test_an_admission_that_a_crash_left_unwritten_is_written(tmp_path: Path) -> None:
    async with cluster() as there:
        group = await there.group("a", 2, "Pending")
        history = (NAMES, QUEUE, node(), group, admitting("a"))
        async with at_work(tmp_path, there, *history):
            await reaches(there, "a", "Inqueue")


async def test_a_group_that_went_on_meanwhile_is_not_set_back(tmp_path: Path) -> None:
    """The log shows the state before; the API server says that it runs."""
    async with cluster() as there:
        group = await there.group("a", 2, "Pending")
        status = {"status": {"phase": "Running"}}
        await there.api.patch(f"{GROUPS}/a/status", status)
        log = MemoryLog()
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), group, admitting("a"), log=log):
            await anyio.sleep(3 * groups_module.SWEEP_EVERY_S)
            assert (await there.status("a"))["phase"] != "Inqueue"


async def test_a_refusal_at_the_gate_is_said_once_with_its_reason(tmp_path: Path) -> None:
    async with cluster() as there:
        group = await there.group("a", 2, "Pending")
        pod = await there.pod("bare", "a")
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), group, pod) as scene:
            await scene.add(admitting("a", "QueueQuotaInsufficient", FULL))

            async def is_told() -> bool:
                return bool((await there.status("a")).get("conditions"))

            await comes_to(is_told)
            await scene.add(admitting("a", "QueueQuotaInsufficient", FULL))
            seen = await rests(there, "a")
            (condition,) = seen["status"]["conditions"]
            assert (condition["type"], condition["reason"], condition["message"]) == (
                "Unschedulable",
                "QueueQuotaInsufficient",
                FULL,
            )
            assert seen["status"]["phase"] == "Pending"
            assert await there.events("a") == [("Normal", "Unschedulable", FULL)]

            async def the_pod_is_told() -> bool:
                said = (await there.conditions("bare")).get("PodScheduled") or {}
                ask = "Ask: allot explain pod default/bare"
                return bool(said.get("message") == f"QueueQuotaInsufficient: {FULL}. {ask}")

            await comes_to(the_pod_is_told)


async def test_a_short_group_and_its_members_hear_why(tmp_path: Path) -> None:
    async with cluster() as there:
        group = await there.group("a", 2, "Inqueue")
        pods = [await there.pod(f"a-w-{n}", "a") for n in range(2)]
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), group, *pods) as scene:
            await scene.add(decided(shorts=(short("a", 2, 1),)))

            async def is_told() -> bool:
                return bool((await there.status("a")).get("conditions"))

            await comes_to(is_told)
            (condition,) = (await rests(there, "a"))["status"]["conditions"]
            assert condition["type"] == "Unschedulable"
            assert condition["reason"] == "NotEnoughResources"
            assert condition["message"] == f"1/2 tasks in gang unschedulable: {TAIL}"
            event = ("Warning", "Unschedulable", f"2/2 tasks in gang unschedulable: {TAIL}")
            assert await there.events("a") == [event]

            async def members_are_told() -> bool:
                said = [(await there.conditions(p.name)).get("PodScheduled") for p in pods]
                return all(
                    s and s["reason"] == "Unschedulable" and TAIL in s["message"] for s in said
                )

            await comes_to(members_are_told)


async def test_a_gang_from_inqueue_to_completed(tmp_path: Path) -> None:
    async with cluster() as there:
        group = await there.group("a", 2, "Inqueue")
        pods = [await there.pod(f"a-w-{n}", "a") for n in range(2)]
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), group, *pods) as scene:
            await scene.add(decided(shorts=(short("a", 2, 1),)))

            async def is_told() -> bool:
                return bool((await there.status("a")).get("conditions"))

            await comes_to(is_told)
            uids = tuple(pod.uid for pod in pods)
            await scene.add(decided(*map(on_node, pods), wholes=(uids,)))
            await until(lambda: scene.kinds().count("Bound") == 1)
            bound = [
                changed(p, node="n1", phase="Running", bind_phase="success", holdings=held)
                for p in pods
                for held in [scene.fold.state.pods[p.uid].allocation.holdings]  # type: ignore[union-attr]
            ]
            await scene.add(bound[0])
            await until(lambda: scene.kinds().count("Bound") == 2)
            await scene.add(bound[1])
            await reaches(there, "a", "Running")
            await scene.add(await there.seen("a", 2))
            status = (await rests(there, "a"))["status"]
            assert status["running"] == 2
            assert [c["type"] for c in status["conditions"]] == ["Unschedulable", "Scheduled"]
            assert status["conditions"][1]["reason"] == "tasks in gang are ready to be scheduled"
            assert ("Normal", "Scheduled", "pod group is ready") in await there.events("a")
            await scene.add(*(changed(b, phase="Succeeded", rv=b.rv + 1) for b in bound))
            await reaches(there, "a", "Completed")
            assert (await there.status("a"))["succeeded"] == 2


async def test_groups_of_other_schedulers_are_left_alone(tmp_path: Path) -> None:
    async with cluster() as there:
        group = await there.group("a", 1, "Inqueue")
        pod = await there.pod("theirs", "a", scheduler="somebody-else")
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), group, pod) as scene:
            await scene.add(decided(shorts=(short("a", 1, 1),)))
            await anyio.sleep(3 * groups_module.SWEEP_EVERY_S)
            assert await there.status("a") == {"phase": "Inqueue"}
            assert await there.events("a") == []


def seen(version: int, phase: str = "Pending", uid: str = "uid-a") -> Any:
    metadata = {"uid": uid, "name": "a", "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {"phase": phase}}


class Bench:
    """The writer alone, with one group, against a scripted server."""

    def __init__(self, statuses: GroupStatuses, *events: Event) -> None:
        self.statuses = statuses
        self.state = build.state_of(NAMES, QUEUE, *events)

    async def bring(self) -> None:
        await self.statuses._bring_all(self.state, self.statuses._due(self.state))


GROUP = GroupObserved(
    uid="uid-a", namespace="default", name="a", rv=4, min_member=2, phase="Pending"
)


async def test_a_write_goes_only_over_what_was_looked_at_and_trouble_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_module, "RETRY_FIRST_S", 0.0)
    said: list[str] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        statuses = GroupStatuses(
            client, "b", lambda: True, lambda _, text: said.append(text), Readers()
        )
        bench = Bench(statuses, GROUP, admitting("a"))
        conflict = refuse(409, "Conflict", "it was modified")
        script.then(reply(seen(4)), conflict, reply(seen(5)), refuse(500, "InternalError", "etcd"))
        await bench.bring()
        assert said == ["etcd"]
        assert [request.method for request in script.requests] == ["GET", "PATCH"] * 2
        assert script.requests[1].path == f"{GROUPS}/a/status"
        assert script.bodies[3] == {
            "metadata": {"uid": "uid-a", "resourceVersion": "5"},
            "status": {"phase": "Inqueue"},
        }
        script.then(reply(seen(5)), reply(seen(6, "Inqueue")))
        await bench.bring()
        assert (statuses.written, len(said)) == (1, 1)
        await bench.bring()
        assert len(script.requests) == 6, "it is said"


async def test_a_group_that_is_gone_or_another_one_is_left(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        for answer in (refuse(404, "NotFound"), reply(seen(4, uid="another"))):
            statuses = GroupStatuses(client, "b", lambda: False, lambda *_: None, Readers())
            script.then(answer)
            await Bench(statuses, GROUP, admitting("a")).bring()
            assert statuses.written == 0
    assert len(script.requests) == 2


async def test_while_bindings_are_under_way_groups_go_one_by_one_but_those_let_in(
    tmp_path: Path,
) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        statuses = GroupStatuses(client, "b", lambda: True, lambda *_: None, Readers())
        gate = anyio.Event()

        async def held_back(_: web.Request) -> web.StreamResponse:
            await gate.wait()
            return web.json_response({}, status=404)

        script.otherwise = held_back
        events: list[Event] = []
        for number in range(6):
            name = f"g{number}"
            events.append(
                GroupObserved(uid=name, namespace="default", name=name, rv=1, phase="Inqueue")
            )
            events.append(build.pod(f"p{number}", group=f"default/{name}"))
        bench = Bench(statuses, *events)
        async with anyio.create_task_group() as group:
            group.start_soon(bench.bring)
            await until(lambda: script.in_flight == 1)
            await anyio.sleep(0.05)
            assert script.in_flight_max == 1
            gate.set()
        assert len(script.requests) == 6
        for number in range(6):
            apply(bench.state, sent_back(f"g{number}"), 100 + number)
            apply(bench.state, admitting(f"g{number}"), 200 + number)
        await bench.bring()
        assert script.in_flight_max > 1


def sent_back(name: str) -> GroupObserved:
    return GroupObserved(uid=name, namespace="default", name=name, rv=2, phase="Pending")


async def test_only_groups_with_news_are_looked_at(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        statuses = GroupStatuses(client, "b", lambda: False, lambda *_: None, Readers())
        names = [f"g{number}" for number in range(9)]
        state = build.state_of(NAMES, QUEUE, *map(sent_back, names), *map(admitting, names))
        seq = state.seq

        def after(*events: Event) -> tuple[list[str], int]:
            """Whose status may have to be written, and how many groups were looked at."""
            nonlocal seq
            for event in events:
                seq += 1
                apply(state, event, seq)
            before = statuses.visited
            return statuses._due(state), statuses.visited - before

        assert after() == ([f"default/{name}" for name in names], 9)
        assert after() == ([], 0)
        assert after(decided(shorts=(short("g3", 2, 1),))) == (["default/g3"], 1)
        gone = GroupGone(uid="g4", namespace="default", name="g4", rv=3)
        assert after(admitting("g5"), gone) == (["default/g5"], 2)
        assert after(NAMES) == ([], 8), "others may be ours under another policy"
