"""What users are told: the newest word, one after the other, and nothing that is no longer true."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from tests.contract.kube_server import Script, client_of, refuse, reply, scripted

from allotment_binder import notices as notices_module
from allotment_binder.notices import Notices, Refused, Scheduled, Warned
from allotment_binder.readers import Readers

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]
WHY = "0/1 nodes are available: 1 NoGPU."
SERVER_ERROR = refuse(500, "InternalError")


def refused(uid: str = "u1", message: str = WHY, *, is_news: bool = True) -> Refused:
    return Refused(uid, "default", f"pod-{uid}", message, is_news)


@contextlib.asynccontextmanager
async def working(tmp_path: Path) -> AsyncIterator[tuple[Notices, Script]]:
    async with (
        scripted() as script,
        client_of(script, tmp_path) as client,
        anyio.create_task_group() as group,
    ):
        script.otherwise = reply({}, 201)
        notices = Notices(client, "binder-0", Readers())
        group.start_soon(notices.run)
        yield notices, script
        group.cancel_scope.cancel()


async def until(holds: Callable[[], object]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


async def settled(notices: Notices, number: int) -> None:
    await until(lambda: notices.sent + notices.lost >= number)


def patches(script: Script) -> list[Any]:
    return [
        body["status"]["conditions"][0]["message"]
        for request, body in zip(script.requests, script.bodies, strict=True)
        if request.method == "PATCH"
    ]


def events(script: Script) -> list[tuple[str, str, str]]:
    return [
        (body["type"], body["reason"], body["note"])
        for request, body in zip(script.requests, script.bodies, strict=True)
        if request.method == "POST"
    ]


async def test_a_refusal_is_a_condition_and_an_event(tmp_path: Path) -> None:
    async with working(tmp_path) as (notices, script):
        notices.put(refused())
        await settled(notices, 1)
        assert (notices.sent, notices.lost) == (1, 0)
    assert [request.path for request in script.requests] == [
        "/api/v1/namespaces/default/pods/pod-u1/status",
        "/apis/events.k8s.io/v1/namespaces/default/events",
    ]
    condition = script.bodies[0]["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert (condition["reason"], condition["message"]) == ("Unschedulable", WHY)
    assert script.bodies[0]["metadata"] == {"uid": "u1"}
    assert events(script) == [("Warning", "FailedScheduling", WHY)]


async def test_old_news_is_repeated_without_an_event(tmp_path: Path) -> None:
    """A new binder makes sure of the condition; the event was told when it was news."""
    async with working(tmp_path) as (notices, script):
        notices.put(refused(is_news=False))
        await settled(notices, 1)
    assert patches(script) == [WHY]
    assert "lastTransitionTime" not in script.bodies[0]["status"]["conditions"][0]
    assert events(script) == []


async def test_a_bound_pod_gets_the_classic_event(tmp_path: Path) -> None:
    async with working(tmp_path) as (notices, script):
        notices.put(Scheduled("u1", "default", "pod-u1", "node.1"))
        await settled(notices, 1)
    said = "Successfully assigned default/pod-u1 to node.1"
    assert events(script) == [("Normal", "Scheduled", said)]


async def test_the_newest_word_about_a_pod_replaces_one_that_waits(tmp_path: Path) -> None:
    async with working(tmp_path) as (notices, script):
        for number in range(5):
            notices.put(refused(message=f"{number}"))
        await settled(notices, 1)
    assert patches(script) == ["4"]


async def test_one_pods_notices_are_sent_one_after_the_other(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def held_back(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.json_response({})

    async with working(tmp_path) as (notices, script):
        script.then(held_back)
        notices.put(refused(message="old"))
        await until(lambda: script.requests)
        notices.put(refused(message="new"))
        notices.put(refused("u2", message="of another pod"))
        await settled(notices, 1)
        assert patches(script) == ["old", "of another pod"]
        release.set()
        await settled(notices, 3)
    assert patches(script) == ["old", "of another pod", "new"]


async def test_a_server_error_is_tried_again_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices_module, "RETRY_S", 0.01)
    async with working(tmp_path) as (notices, script):
        script.then(SERVER_ERROR, SERVER_ERROR)
        notices.put(refused())
        await settled(notices, 1)
        assert patches(script) == [WHY] * 3
        script.then(*[SERVER_ERROR] * notices_module.TRIES)
        notices.put(refused(message="again"))
        await settled(notices, 2)
        assert (notices.sent, notices.lost) == (1, 1)
    assert len(events(script)) == 1


async def test_a_withdrawn_refusal_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod was placed meanwhile: a late PodScheduled=False would stay on it for ever."""
    monkeypatch.setattr(notices_module, "RETRY_S", 0.2)
    async with working(tmp_path) as (notices, script):
        script.then(SERVER_ERROR)
        notices.put(refused())
        await until(lambda: script.requests)
        notices.withdraw("u1")
        await settled(notices, 1)
        notices.put(refused("u2"))
        notices.withdraw("u2")
        notices.put(Scheduled("u3", "default", "pod-u3", "n"))
        notices.withdraw("u3")  # only refusals can stop being true
        await settled(notices, 2)
    assert patches(script) == [WHY]
    assert [reason for _, reason, _ in events(script)] == ["Scheduled"]


async def test_a_stuck_server_makes_mere_events_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices_module, "EVENTS_WAITING_MAX", 2)
    async with scripted() as script, client_of(script, tmp_path) as client:
        notices = Notices(client, "binder-0", Readers())
        for number in range(4):
            notices.put(Scheduled(f"s{number}", "default", f"s{number}", "n"))
        assert notices.lost == 2
        notices.put(refused())
        assert notices.lost == 2


async def test_events_of_bound_pods_give_way_to_bindings_and_refusals_do_not(
    tmp_path: Path,
) -> None:
    """One at a time while Bindings are under way; afterwards all workers catch up."""
    async with working(tmp_path) as (notices, script):
        gate = asyncio.Event()

        async def slow(_: web.Request) -> web.StreamResponse:
            await gate.wait()
            return web.json_response({}, status=201)

        with notices.binding():
            with notices.binding():
                script.otherwise = slow
                for number in range(8):
                    notices.put(Scheduled(f"s{number}", "default", f"s{number}", "n"))
                await until(lambda: script.in_flight)
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
            assert script.in_flight_max == 1
            notices.put(refused())
            await until(lambda: script.in_flight == 2)
        await until(lambda: script.in_flight == notices_module.WORKERS)
        gate.set()
        await settled(notices, 9)
        assert (notices.sent, notices.lost) == (9, 0)


async def test_between_two_bindings_events_still_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices_module, "LULL_S", 3600.0)
    async with working(tmp_path) as (notices, script):
        gate = asyncio.Event()

        async def slow(_: web.Request) -> web.StreamResponse:
            await gate.wait()
            return web.json_response({}, status=201)

        script.otherwise = slow
        with notices.binding():
            assert notices.is_binding()
        assert notices.is_binding()
        for number in range(4):
            notices.put(Scheduled(f"s{number}", "default", f"s{number}", "n"))
        await until(lambda: script.in_flight)
        await asyncio.sleep(0.05)
        assert script.in_flight_max == 1
        monkeypatch.setattr(notices_module, "LULL_S", 0.0)
        assert not notices.is_binding()
        gate.set()
        await settled(notices, 4)
        assert (notices.sent, notices.lost) == (4, 0)


async def test_a_pod_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    async with working(tmp_path) as (notices, script):
        script.then(refuse(404, "NotFound"), refuse(404, "NotFound"))
        notices.put(refused())
        await settled(notices, 1)
        assert notices.lost == 0
    assert len(script.requests) == 2


async def test_a_warning_is_an_event_of_its_own_and_displaces_nothing(tmp_path: Path) -> None:
    async with working(tmp_path) as (notices, script):
        warned = Warned("u1", "default", "pod-u1", "WaitingForNodeLock", "Binding", "waits")
        notices.put(refused())
        notices.put(warned)
        await settled(notices, 2)
    assert sorted(events(script)) == [
        ("Warning", "FailedScheduling", WHY),
        ("Warning", "WaitingForNodeLock", "waits"),
    ]


@pytest.mark.parametrize(("kind", "namespace"), [("PodGroup", "team"), ("Queue", "")])
async def test_a_warning_about_a_group_or_a_queue_regards_that(
    tmp_path: Path, kind: str, namespace: str
) -> None:
    """A Queue is in no namespace; Events about such objects are in `default`."""
    async with working(tmp_path) as (notices, script):
        notices.put(Warned("u", namespace, "x", "UnknownField", "Scheduling", "why", kind))
        await settled(notices, 1)
    (request,), (event,) = script.requests, script.bodies
    where = namespace or "default"
    assert request.path == f"/apis/events.k8s.io/v1/namespaces/{where}/events"
    assert event["metadata"]["namespace"] == where
    assert event["regarding"] == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": kind,
        "name": "x",
        "uid": "u",
        **({"namespace": namespace} if namespace else {}),
    }


async def test_bound_pods_are_told_of_while_a_binding_waits_for_something(tmp_path: Path) -> None:
    async with working(tmp_path) as (notices, script):
        with notices.binding(), notices.not_binding():
            for uid in ("u1", "u2", "u3"):
                notices.put(Scheduled(uid, "default", f"pod-{uid}", "n1"))
            await settled(notices, 3)
    assert len(events(script)) == 3
