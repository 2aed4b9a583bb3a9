"""Lists, pages, watches and versions, as the watcher and the controller read them."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from random import Random

import anyio
import msgspec
import pytest
from tests.apiserver.servers import Api, Json, done, refused
from tests.waiting import PATIENCE_S, patience, until

from allotment.adapters.kube.objects import AnnotatedObject
from allotment.adapters.kube.result import ByteStream, Unknown
from allotment.adapters.kube.watch import Reflector
from allotment.adapters.kube.watch_events import Added, Deleted, Modified, Synced, WatchEvent

pytestmark = pytest.mark.anyio
NAMES = [f"p{number}" for number in range(5)]


class Lines:
    """A watch, an event at a time."""

    def __init__(self, stream: ByteStream) -> None:
        self._batches = stream.lines()
        self._read: list[bytes] = []

    async def next(self) -> tuple[str, Json]:
        with patience():
            while not self._read:
                self._read += await anext(self._batches)
        event = json.loads(self._read.pop(0))
        return event["type"], event["object"]


@contextlib.asynccontextmanager
async def watching(api: Api, path: str, params: Mapping[str, str]) -> AsyncIterator[Lines]:
    async with api.client.watch(path, {"watch": "true", **params}, PATIENCE_S) as stream:
        assert isinstance(stream, ByteStream), stream
        yield Lines(stream)


def version_of(obj: Json) -> str:
    return str(obj["metadata"]["resourceVersion"])


async def test_an_object_is_made_read_listed_and_deleted(api: Api) -> None:
    made = await api.pod("a")
    assert made["status"]["phase"] == "Pending"
    assert await api.read(api.at("pods", "a")) == made
    listed = await api.read(api.at("pods"))
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert [item["metadata"]["uid"] for item in listed["items"]] == [made["metadata"]["uid"]]
    assert int(version_of(listed)) >= int(version_of(made))
    again = {**made, "metadata": {"name": "a"}}
    refused(await api.client.create(api.at("pods"), again), 409, "AlreadyExists")
    refused(await api.client.delete(api.at("pods", "a"), uid="another"), 409, "Conflict")
    done(await api.client.delete(api.at("pods", "a"), uid=made["metadata"]["uid"]))
    refused(await api.client.get(api.at("pods", "a")), 404, "NotFound")
    refused(await api.client.delete(api.at("pods", "a")), 404, "NotFound")


async def test_a_write_of_an_older_version_is_refused(api: Api) -> None:
    made = await api.create("configmaps", {"metadata": {"name": "c"}, "data": {"k": "1"}})
    changed = done(
        await api.client.replace(api.at("configmaps", "c"), {**made, "data": {"k": "2"}})
    )
    assert version_of(changed) != version_of(made)
    refused(await api.client.replace(api.at("configmaps", "c"), made), 409, "Conflict")
    old = {"metadata": {"resourceVersion": version_of(made)}, "data": {"k": "3"}}
    refused(await api.client.patch(api.at("configmaps", "c"), old), 409, "Conflict")
    same = done(await api.client.patch(api.at("configmaps", "c"), {"data": {"k": "2"}}))
    assert version_of(same) == version_of(changed)  # what changes nothing writes nothing


async def test_a_watch_goes_on_from_a_list(api: Api) -> None:
    await api.pod("before")
    version = version_of(await api.read(api.at("pods")))
    async with watching(api, api.at("pods"), {"resourceVersion": version}) as lines:
        made = await api.pod("a")
        assert await lines.next() == ("ADDED", made)
        patch = {"metadata": {"labels": {"new": "1"}}}
        changed = done(await api.client.patch(api.at("pods", "a"), patch))
        assert await lines.next() == ("MODIFIED", changed)
        done(await api.client.delete(api.at("pods", "a")))
        kind, ending = await lines.next()
        assert (kind, ending["metadata"]["deletionGracePeriodSeconds"]) == ("MODIFIED", 0)
        kind, last = await lines.next()
        assert (kind, last["metadata"]["uid"]) == ("DELETED", made["metadata"]["uid"])
        assert last["metadata"]["generation"] == made["metadata"]["generation"] + 1
        versions = [int(version_of(each)) for each in (made, changed, ending, last)]
        assert versions == sorted(set(versions))


async def test_leaving_a_selector_is_a_deletion(api: Api) -> None:
    await api.pod("a")
    version = version_of(await api.read(api.at("pods")))
    params = {"resourceVersion": version, "labelSelector": "app=a"}
    async with watching(api, api.at("pods"), params) as lines:
        patch = {"metadata": {"labels": {"app": "b"}}}
        changed = done(await api.client.patch(api.at("pods", "a"), patch))
        kind, last = await lines.next()
        assert (kind, last["metadata"]["labels"]) == ("DELETED", {"app": "a"})
        assert version_of(last) == version_of(changed)


async def test_a_watch_may_begin_with_what_there_is_and_a_bookmark(api: Api) -> None:
    await api.pod("a")
    params = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with watching(api, api.at("pods"), params) as lines:
        kind, first = await lines.next()
        assert (kind, first["metadata"]["name"]) == ("ADDED", "a")
        kind, mark = await lines.next()
        assert (kind, mark["kind"]) == ("BOOKMARK", "Pod")
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(version_of(mark)) >= int(version_of(first))


async def test_a_watch_that_ends_in_time_says_how_far_it_came(api: Api) -> None:
    version = version_of(await api.read(api.at("pods")))
    params = {"resourceVersion": version, "timeoutSeconds": "4", "allowWatchBookmarks": "true"}
    async with watching(api, api.at("pods"), params) as lines:
        elsewhere = await api.create("configmaps", {"metadata": {"name": "c"}})
        made = await api.pod("a")
        assert (await lines.next())[0] == "ADDED"
        kind, mark = await lines.next()
        assert (kind, set(mark["metadata"])) == ("BOOKMARK", {"resourceVersion"})
        assert int(version_of(mark)) >= int(version_of(made)) > int(version_of(elsewhere))


async def test_a_version_that_is_forgotten_is_410(api: Api) -> None:
    if api.real and api.real.audit is None:
        pytest.skip("a cluster of your own may be too young to have forgotten anything")
    async with watching(api, api.at("pods"), {"resourceVersion": "1"}) as lines:
        kind, status = await lines.next()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")


async def test_a_version_that_is_not_there_yet_is_waited_for(api: Api) -> None:
    version = str(int(version_of(await api.read(api.at("pods")))) + 1_000_000)
    params = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
    answer = await api.client.list(api.at("pods"), params)
    assert isinstance(answer, Unknown), answer
    assert answer.status == 504
    assert "Too large resource version" in answer.message


async def test_a_list_comes_in_pages(api: Api) -> None:
    for name in NAMES:
        await api.pod(name)
    seen: list[str] = []
    params = {"limit": "2"}
    versions, left = set(), []
    while True:
        page = done(await api.client.list(api.at("pods"), params))
        seen += [item["metadata"]["name"] for item in page["items"]]
        versions.add(version_of(page))
        left.append(page["metadata"].get("remainingItemCount"))
        if not (more := page["metadata"].get("continue")):
            break
        params = {"limit": "2", "continue": more}
        await api.pod(f"after-{len(seen)}")
    assert seen[:4] == NAMES[:4]
    assert left[0] == 3
    assert len(versions) == 1


async def test_a_page_that_makes_no_sense_is_400(api: Api) -> None:
    params = {"limit": "1", "continue": "nonsense"}
    refused(await api.client.list(api.at("pods"), params), 400, "BadRequest")


async def test_the_reflector_follows(api: Api) -> None:
    """What the watcher and the controller run on, with pages of two."""
    for name in NAMES:
        await api.pod(name)
    heard: list[WatchEvent[AnnotatedObject]] = []

    async def hear(event: WatchEvent[AnnotatedObject]) -> None:
        heard.append(event)

    decoder = msgspec.json.Decoder(AnnotatedObject)
    reflector = Reflector(
        api.client, api.at("pods"), decoder, hear, random=Random(1), page_objects=2
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reflector.run)
        await until(lambda: any(isinstance(event, Synced) for event in heard))
        assert sum(isinstance(event, Added) for event in heard) == len(NAMES)
        done(
            await api.client.patch(api.at("pods", "p1"), {"metadata": {"annotations": {"a": "b"}}})
        )
        done(await api.client.delete(api.at("pods", "p2")))
        await until(lambda: any(isinstance(event, Deleted) for event in heard))
        assert any(isinstance(event, Modified) for event in heard)
        tasks.cancel_scope.cancel()
