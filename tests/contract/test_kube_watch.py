"""What a reflector tells: changes in their order, odd objects too, of a burst only the last."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.contract.kube_server import gone, listing, pod, queries, scripted, stream
from tests.contract.kube_watched import Meta, Pod, Spec, watching

from allotment.adapters.kube.watch_events import Added, Identity, Undecodable

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]


async def test_list_then_watch_then_the_next_stream_from_the_last_version(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            listing(pod("a", 3), pod("b", 4), version="7"),
            stream(
                ("ADDED", pod("c", 8)),
                ("MODIFIED", pod("a", 9, nodeName="n1")),
                ("DELETED", pod("b", 10)),
                ("BOOKMARK", {"metadata": {"resourceVersion": "20"}}),
            ),
            stream(("MODIFIED", pod("c", 21)), hold=True),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("+a", "+b", "=7/2", "+c", "~a n1", "-b uid-b", "~c")
        first, second, third = queries(script)[:3]
    assert first == {"resourceVersion": "0"}
    assert second["resourceVersion"] == "7"
    assert (second["watch"], second["allowWatchBookmarks"]) == ("1", "true")
    assert 261 <= int(second["timeoutSeconds"]) <= 319
    assert third["resourceVersion"] == "20"
    assert watched.problems == []
    assert watched.events[0] == Added(
        Identity("default", "a", "uid-a"), Pod(metadata=Meta("a"), spec=Spec())
    )


async def test_of_versions_that_arrived_together_the_last_is_told(tmp_path: Path) -> None:
    def at_once(*events: tuple[str, dict[str, Any]]) -> bytes:
        lines = (json.dumps({"type": event[0], "object": event[1]}) for event in events)
        return "".join(f"{line}\n" for line in lines).encode()

    crowd = at_once(
        ("ADDED", pod("a", 6)),
        ("MODIFIED", pod("a", 7, nodeName="n1")),
        ("ADDED", pod("b", 8)),
        ("MODIFIED", pod("a", 9, nodeName=3)),
        ("MODIFIED", pod("a", 10, nodeName="n2")),
        ("MODIFIED", pod("b", 11, nodeName="n3")),
        ("DELETED", pod("b", 12, nodeName="n3")),
        ("ADDED", pod("b", 13, uid="another")),
        ("BOOKMARK", {"metadata": {"resourceVersion": "14"}}),
    )
    ending = at_once(("ADDED", pod("c", 15)), ("MODIFIED", pod("c", 16)), gone())
    async with scripted() as script:
        script.then(listing(version="5"), stream(crowd), stream(ending), listing(version="20"))
        async with watching(script, tmp_path) as watched:
            await watched.until(
                *("=5/0", "+a n2", "+b n3", "-b uid-b", "+b", "+c"),
                *("-a uid-a", "-b another", "-c uid-c", "=20/0"),
            )
        assert queries(script)[2]["resourceVersion"] == "14"
        assert watched.reflector.stats.events == 11
        assert watched.reflector.stats.undecodable == 0


async def test_odd_objects_are_told_and_do_not_hide_the_others(tmp_path: Path) -> None:
    odd = pod("odd", 2)
    odd["spec"] = None
    nameless = {"metadata": {"name": 7, "uid": "u7"}, "spec": {}}
    async with scripted() as script:
        script.then(
            listing(pod("a", 1), odd, nameless, version="5"),
            stream(
                ("MODIFIED", pod("a", 6, nodeName=3)),
                ("MODIFIED", pod("odd", 7)),
                ("DELETED", {**odd, "spec": 5}),
                ("ADDED", pod("b", 8)),
            ),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("+a", "?odd", "?", "=5/3", "?a", "+odd", "-odd uid-odd", "+b")
        undecodable = watched.events[1]
        assert isinstance(undecodable, Undecodable)
        assert (undecodable.uid, undecodable.namespace) == ("uid-odd", "default")
        assert "$.spec" in undecodable.error
        assert json.loads(undecodable.raw)["metadata"]["name"] == "odd"
        assert watched.reflector.stats.undecodable == 3


async def test_objects_larger_than_any_buffer(tmp_path: Path) -> None:
    huge = pod("huge", 6)
    huge["metadata"]["annotations"] = {"x": "y" * 5_000_000}
    async with scripted() as script:
        script.then(listing(version="5"), stream(("ADDED", huge), ("ADDED", pod("b", 7))))
        async with watching(script, tmp_path) as watched:
            await watched.until("=5/0", "+huge", "+b")
