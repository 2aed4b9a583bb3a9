"""Lists of the reflector: by pages, after a version expired, of kinds that the server lacks."""

from pathlib import Path
from random import Random

import anyio
import msgspec
import pytest
from aiohttp import web
from tests.contract.kube_server import (
    client_of,
    gone,
    listing,
    pod,
    queries,
    refuse,
    scripted,
    stream,
)
from tests.contract.kube_watched import PODS, Pod, Watched, watching

from allotment.adapters.kube.watch import Reflector

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]


@pytest.mark.parametrize("over_http", [False, True])
async def test_expired_means_a_consistent_relist_and_the_difference_by_uid(
    tmp_path: Path, over_http: bool
) -> None:
    async with scripted() as script:
        script.then(
            listing(pod("a", 1), pod("b", 2), pod("same", 3), version="5"),
            refuse(410, "Expired") if over_http else stream(gone()),
            listing(
                pod("a", 9, uid="uid-a2"), pod("same", 3), pod("b", 8, nodeName="n"), version="9"
            ),
        )
        async with watching(script, tmp_path) as watched:
            relisted = ["-a uid-a", "+a", "~b n", "=9/3"]
            await watched.until("+a", "+b", "+same", "=5/3", *relisted)
        assert queries(script)[2] == {"limit": "500"}
        assert watched.reflector.stats.expired == 1


async def test_relists_are_paged_and_a_page_that_expires_starts_over(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            listing(pod("a", 1), version="5"),
            stream(gone()),
            listing(pod("a", 1), version="6", more="t1"),
            refuse(410, "Expired", "continue token too old"),
            listing(pod("a", 1), version="7", more="t2"),
            listing(pod("b", 2), version="7"),
        )
        async with watching(script, tmp_path, page_objects=1) as watched:
            await watched.until("+a", "=5/1", "+b", "=7/2")
        assert queries(script)[3] == {"limit": "1", "continue": "t1"}
        assert queries(script)[5] == {"limit": "1", "continue": "t2"}


async def test_the_first_list_is_told_page_by_page(tmp_path: Path) -> None:
    """So that a large cluster's list is never in memory as a whole."""
    asked: list[list[str]] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        watched = Watched()
        script.then(listing(pod("a", 1), version="5", more="t1"))

        async def second_page(request: web.Request) -> web.StreamResponse:
            asked.append(list(watched.told))
            return await listing(pod("b", 2), version="5")(request)

        script.then(second_page)
        script.otherwise = stream(hold=True)
        reflector = Reflector(
            client,
            PODS,
            msgspec.json.Decoder(Pod),
            watched.on_event,
            random=Random(1),
            first_list_from_cache=False,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(reflector.run)
            await watched.until("+a", "+b", "=5/2")
            group.cancel_scope.cancel()
    assert asked == [["+a"]]


async def test_a_first_list_that_breaks_off_is_set_right_by_the_next(tmp_path: Path) -> None:
    async with scripted() as script:
        script.then(
            listing(pod("gone", 1), pod("a", 1), version="5", more="t1"),
            refuse(410, "Expired", "continue token too old"),
            listing(pod("a", 1), pod("b", 2), version="7"),
        )
        async with watching(script, tmp_path) as watched:
            await watched.until("+gone", "+a", "-gone uid-gone", "+b", "=7/2")


async def test_a_kind_the_server_does_not_know_is_empty_until_it_appears(tmp_path: Path) -> None:
    absent = refuse(404, "NotFound", "the server could not find the requested resource")
    async with scripted() as script:
        script.then(
            absent,
            listing(pod("a", 1), version="5"),
            absent,
            absent,
            listing(pod("a", 9, uid="new"), version="9"),
        )
        async with watching(script, tmp_path, absent_ok=True) as watched:
            gone_again = ["-a uid-a", "=/0", "=/0", "+a", "=9/1"]
            await watched.until("=/0", "+a", "=5/1", *gone_again)
        assert watched.problems == []
