"""Lists, pages and watches: versions, selectors, bookmarks, and the ways a watch ends."""

import asyncio
import json

import aiohttp
import pytest
from tests.contract.local_apiserver import new_store, pod, process, running

from allotment_local.apiserver.resources import CONFIG_MAPS as CONFIG_MAP_KEY

pytestmark = pytest.mark.anyio

PODS = "/api/v1/namespaces/default/pods"
ENDING = [("MODIFIED", "b"), ("DELETED", "b")]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


async def test_a_list_can_be_read_in_pages() -> None:
    async with running() as api:
        for name in "dacb":
            await api.post(PODS, pod(name))
        first = await api.get(PODS, limit=3)
        assert [p["metadata"]["name"] for p in first["items"]] == ["a", "b", "c"]
        assert first["metadata"]["remainingItemCount"] == 1
        more = first["metadata"]["continue"]
        second = await api.get(PODS, **{"limit": 3, "continue": more})
        assert [p["metadata"]["name"] for p in second["items"]] == ["d"]
        assert "continue" not in second["metadata"]
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        for token in ("nonsense", "bm9uc2Vuc2U=", "é"):
            refusal = await api.get(PODS, **{"limit": 3, "continue": token}, status=400)
            assert "continue key is not valid" in refusal["message"]
        await api.get(PODS, limit="many", status=400)


async def test_a_page_from_a_forgotten_version_has_expired() -> None:
    async with running(new_store(history_limit=2)) as api:
        for name in "ab":
            await api.post(CONFIG_MAPS, {"metadata": {"name": name}})
        more = (await api.get(CONFIG_MAPS, limit=1))["metadata"]["continue"]
        for number in range(6):
            await api.patch(f"{CONFIG_MAPS}/a", {"data": {"n": str(number)}})
        refusal = await api.get(CONFIG_MAPS, **{"limit": 1, "continue": more}, status=410)
        assert refusal["reason"] == "Expired"


async def test_lists_know_their_version() -> None:
    async with running() as api:
        listed = await api.get(PODS, resourceVersion=0)
        assert listed["kind"] == "PodList"
        version = int(listed["metadata"]["resourceVersion"])
        assert version == api.store.resource_version
        refusal = await api.get(PODS, resourceVersion=version + 1, status=504)
        assert refusal["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        exact = {"resourceVersion": 1, "resourceVersionMatch": "Exact"}
        await api.get(PODS, **exact, status=410)
        await api.get(PODS, resourceVersion="new", status=400)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ("app=x", "ab"),
        ("app==x,tier", "a"),
        ("app!=x", "cd"),
        ("app in (x, y)", "abc"),
        ("app notin (x,y)", "d"),
        ("!app", "d"),
        ("size>2", "b"),
        ("size<3,app", "a"),
    ],
)
async def test_label_selectors(labels: str, names: str) -> None:
    maps = {
        "a": {"app": "x", "tier": "t", "size": "2"},
        "b": {"app": "x", "size": "10"},
        "c": {"app": "y"},
        "d": {},
    }
    async with running() as api:
        for name, given in maps.items():
            await api.post(CONFIG_MAPS, {"metadata": {"name": name, "labels": given}})
        listed = await api.get(CONFIG_MAPS, labelSelector=labels)
        assert "".join(item["metadata"]["name"] for item in listed["items"]) == names


async def test_selectors_that_make_no_sense() -> None:
    async with running() as api:
        for labels in ("=x", "a in x", "a,,b", "a=b,", "a>x", "a=b c"):
            await api.get(PODS, labelSelector=labels, status=400)
        for fields in ("status.colour=red", "metadata.name", "=x"):
            await api.get(PODS, fieldSelector=fields, status=400)


async def test_a_watch_from_nowhere_begins_with_what_is_there() -> None:
    async with running() as api:
        await api.post(PODS, pod("a"))
        async with api.watch(PODS) as events:
            assert await events.names(1) == [("ADDED", "a")]
            await api.post(PODS, pod("b"))
            await api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
            await api.call("DELETE", f"{PODS}/b")
            assert await events.names(4) == [("ADDED", "b"), ("MODIFIED", "a"), *ENDING]


async def test_a_watch_from_a_version_sees_what_came_after_and_only_that() -> None:
    async with running() as api:
        await api.post(PODS, pod("a"))
        listed = await api.get(PODS)
        version = listed["metadata"]["resourceVersion"]
        await api.post(PODS, pod("b"))
        await api.post("/api/v1/namespaces/kube-system/pods", pod("elsewhere"))
        await api.call("DELETE", f"{PODS}/b")
        async with api.watch(PODS, resourceVersion=version) as events:
            assert await events.names(3) == [("ADDED", "b"), *ENDING]
        async with api.watch("/api/v1/pods", resourceVersion=version) as events:
            names = [name for _, name in await events.names(4)]
            assert names == ["b", "elsewhere", "b", "b"]


async def test_a_selector_turns_changes_into_comings_and_goings() -> None:
    async with running() as api:
        await api.post(PODS, pod("a"))
        selector = {"fieldSelector": "spec.nodeName=", "resourceVersion": "1"}
        async with api.watch(PODS, **selector) as events:
            assert await events.names(1) == [("ADDED", "a")]
            await api.post(f"{PODS}/a/binding", {"target": {"name": "n"}})
            type_, last = await events.next()
            assert type_ == "DELETED"
            assert "nodeName" not in last["spec"]
            assert int(last["metadata"]["resourceVersion"]) == api.store.resource_version
            await api.call("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
            await api.post(PODS, pod("b"))
            assert await events.names(1) == [("ADDED", "b")]
        async with api.watch(PODS, labelSelector="on=yes") as events:
            await api.patch(f"{PODS}/b", {"metadata": {"labels": {"on": "yes"}}})
            await api.patch(f"{PODS}/b", {"metadata": {"labels": {"more": "1"}}})
            await api.patch(f"{PODS}/b", {"metadata": {"labels": {"on": "no"}}})
            await api.call("DELETE", f"{PODS}/b")
            await api.post(PODS, {**pod("c"), "metadata": {"name": "c", "labels": {"on": "yes"}}})
            assert await events.names(4) == [
                ("ADDED", "b"),
                ("MODIFIED", "b"),
                ("DELETED", "b"),
                ("ADDED", "c"),
            ]


async def test_a_version_that_is_forgotten_or_from_the_future_has_expired() -> None:
    async with running(new_store(history_limit=2)) as api:
        first = await api.post(CONFIG_MAPS, {"metadata": {"name": "c"}})
        for number in range(6):
            await api.patch(f"{CONFIG_MAPS}/c", {"data": {"n": str(number)}})
        old = first["metadata"]["resourceVersion"]
        for version in (old, str(api.store.resource_version + 1)):
            async with api.watch(CONFIG_MAPS, resourceVersion=version) as events:
                ((type_, status),) = await events.rest()
                assert type_ == "ERROR"
                assert (status["code"], status["reason"]) == (410, "Expired")


async def test_a_watcher_that_falls_behind_is_told_in_the_stream() -> None:
    store = new_store(history_limit=5)
    store.create(CONFIG_MAP_KEY, "default", {"metadata": {"name": "c"}})
    version = store.resource_version
    async with running(store) as api, api.watch(CONFIG_MAPS, resourceVersion=version) as events:
        for number in range(20):  # in one breath: the stream has no turn in between
            store.merge_patch(CONFIG_MAP_KEY, "default", "c", {"data": {"n": str(number)}})
        *_, (type_, status) = await events.rest()
        assert (type_, status["code"]) == ("ERROR", 410)


async def test_bookmarks_come_in_between_and_at_the_end() -> None:
    async with running(bookmark_interval_s=0.05) as api:
        options = {"allowWatchBookmarks": "true", "timeoutSeconds": 1, "resourceVersion": "1"}
        async with api.watch(PODS, **options) as events:
            await api.post(CONFIG_MAPS, {"metadata": {"name": "unseen"}})
            marks = await events.rest()
        assert {type_ for type_, _ in marks} == {"BOOKMARK"}
        assert len(marks) > 2
        last = marks[-1][1]
        assert last["kind"] == "Pod"
        assert int(last["metadata"]["resourceVersion"]) == api.store.resource_version


async def test_initial_events_end_with_a_marked_bookmark() -> None:
    async with running() as api:
        await api.post(PODS, pod("a"))
        options = {
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
        }
        async with api.watch(PODS, **options) as events:
            assert await events.names(1) == [("ADDED", "a")]
            type_, mark = await events.next()
            assert type_ == "BOOKMARK"
            assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            await api.post(PODS, pod("b"))
            assert await events.names(1) == [("ADDED", "b")]
        await api.get(PODS, watch="1", sendInitialEvents="true", status=422)
        await api.get(PODS, watch="1", resourceVersionMatch="NotOlderThan", status=422)
        await api.get(PODS, watch="perhaps", status=400)
        await api.get(PODS, watch="1", timeoutSeconds="long", status=400)


async def test_a_watch_ends_when_its_time_is_up() -> None:
    async with running() as api, api.watch(PODS, timeoutSeconds=1) as events:
        assert await events.rest() == []


async def test_a_server_that_is_told_to_stop_ends_its_watches_in_order() -> None:
    async with aiohttp.ClientSession() as session:
        with process() as url:
            watching = await session.get(url + PODS, params={"watch": "1"})
        assert await watching.read() == b""


async def test_tables_for_lists_objects_and_watches() -> None:
    async with running() as api:
        await api.post(PODS, pod("a"))
        table = await api.get(PODS, headers=TABLE)
        assert table["kind"] == "Table"
        assert [c["name"] for c in table["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
        (row,) = table["rows"]
        assert row["cells"][:3] == ["a", "0/1", "Pending"]
        assert row["object"]["kind"] == "PartialObjectMetadata"
        one = await api.get(f"{PODS}/a", headers=TABLE, includeObject="Object")
        assert one["rows"][0]["object"]["spec"]
        none = await api.get(PODS, headers=TABLE, includeObject="None")
        assert "object" not in none["rows"][0]
        await api.get(PODS, headers=TABLE, includeObject="Some", status=400)
        async with api.watch(PODS, headers=TABLE) as events:
            _, first = await events.next()
            await api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
            type_, second = await events.next()
        assert first["columnDefinitions"]
        assert (type_, second["columnDefinitions"]) == ("MODIFIED", None)


async def test_many_watchers_share_a_burst() -> None:
    async with running() as api:

        async def count() -> int:
            async with api.watch(CONFIG_MAPS, timeoutSeconds=1) as events:
                return len({obj["metadata"]["name"] for _, obj in await events.rest()})

        async with asyncio.TaskGroup() as group:
            counts = [group.create_task(count()) for _ in range(5)]
            for number in range(300):
                api.store.create(CONFIG_MAP_KEY, "default", {"metadata": {"name": f"c{number}"}})
                if number % 50 == 0:
                    await asyncio.sleep(0)
        assert [task.result() for task in counts] == [300] * 5


async def test_the_documents_of_discovery() -> None:
    async with running() as api:
        assert (await api.get("/api"))["versions"] == ["v1"]
        groups = await api.get("/apis")
        core = await api.get("/api/v1")
        assert {"bindings", "pods/binding"} <= {each["name"] for each in core["resources"]}
        for group in groups["groups"]:
            for version in group["versions"]:
                assert (await api.get(f"/apis/{version['groupVersion']}"))["resources"]
            assert (await api.get(f"/apis/{group['name']}"))["kind"] == "APIGroup"
        index = await api.get("/openapi/v3")
        for entry in index["paths"].values():
            assert (await api.get(entry["serverRelativeURL"]))["paths"]
        for path in ("/apis/none", "/apis/none/v1", "/api/v2", "/openapi/v3/api/v9", "/elsewhere"):
            assert (await api.get(path, status=404))["kind"] == "Status"
        assert (await api.get("/version"))["minor"] == "32"
        for path in ("/healthz", "/livez", "/readyz", "/readyz/ping"):
            assert await api.get(path) == "ok"
        assert json.dumps(core)
