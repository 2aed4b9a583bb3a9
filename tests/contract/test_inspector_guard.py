"""Who may ask the inspector, and what comes of names that an enemy made up."""

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from tests.build import card, decided, holding, node, placement, pod
from tests.inspecting import append, following, served
from yarl import URL

from allotment.adapters.service.settings import SettingsError
from allotment.testing.memory_log import MemoryLog
from allotment_inspector.__main__ import token_of
from allotment_inspector.guard import COOKIE
from allotment_inspector.settings import is_loopback

pytestmark = pytest.mark.anyio

TOKEN = "a-token-that-is-long-enough"
EVIL = "<img src=x onerror=alert(1)>\"'&{{7*7}}"


@pytest.fixture
async def log() -> MemoryLog:
    log = MemoryLog()
    await append(log, node())
    await append(log, pod("a"))
    await append(log, decided(placement("a")))
    return log


@pytest.fixture
async def closed(log: MemoryLog) -> AsyncIterator[str]:
    """An inspector that asks for a token."""
    async with following(log) as history, served(history, token=TOKEN) as address:
        yield address


async def test_without_the_token_nothing_is_told(closed: str) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        for path in ("/", "/?format=json", "/?parts=1", "/nodes/n1", "/events", "/nowhere"):
            for headers in (
                {},
                {"Authorization": f"Bearer {TOKEN}x"},
                {"Authorization": f"Bearer {TOKEN[:-1]}"},
                {"Authorization": "Bearer ä"},
                {"Authorization": f"Basic {TOKEN}"},
                {"Cookie": f"{COOKIE}={TOKEN}"},
                {"Cookie": f"{COOKIE}="},
            ):
                async with session.get(closed + path, headers=headers) as answer:
                    text = await answer.text()
                    assert answer.status == 401, (path, headers)
                    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
                    assert "n1" not in text
                    assert "pod-a" not in text
        async with session.get(f"{closed}/?token={TOKEN}") as answer:
            assert answer.status == 401, "an address is no place for a token"
        async with session.get(f"{closed}/static/token.js") as answer:
            assert answer.status == 200


async def test_the_token_is_shown_once_and_never_told(closed: str) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with session.get(f"{closed}/?format=json", headers=headers) as answer:
            assert answer.status == 200
        async with session.get(f"{closed}/token", headers=headers) as answer:
            assert answer.status == 200
            (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
            assert cookie["httponly"]
            assert cookie["samesite"] == "Lax"
            assert TOKEN not in answer.headers["Set-Cookie"]
        async with session.get(closed, headers={"Cookie": f"{COOKIE}={cookie.value}"}) as answer:
            assert answer.status == 200
            assert TOKEN not in await answer.text()
        async with session.get(f"{closed}/token", headers={"Authorization": "Bearer no"}) as answer:
            assert answer.status == 401
            assert "Set-Cookie" not in answer.headers


async def test_a_name_that_leads_here_is_not_ours_unless_it_is_listed(log: MemoryLog) -> None:
    async with (
        following(log) as history,
        served(history, names=("inspector.example",)) as address,
        aiohttp.ClientSession() as session,
    ):
        for host, status in (
            ("inspector.example", 200),
            ("INSPECTOR.example.:80", 200),
            ("x.inspector.example", 421),
            ("evil.example", 421),
            ("localhost.evil.example", 421),
            ("", 421),
            ("[::1]:9", 200),
            ("[evil.example]", 421),
        ):
            async with session.get(address, headers={"Host": host}) as answer:
                assert answer.status == status, host


async def test_hostile_names_are_text() -> None:
    """Names of every kind, on every page that shows them: no markup of theirs reaches a browser."""
    log = MemoryLog()
    await append(log, node(EVIL, cards=[card(0, model=EVIL), card(1, healthy=False)]))
    asked = pod("a", namespace=EVIL, name=EVIL)
    await append(log, asked, pod("b", namespace=EVIL, name=f"{EVIL}2"))
    held = placement("a", EVIL, holding("GPU-0"), namespace=EVIL, name=EVIL)
    await append(log, decided(held))
    await append(log, msgspec.structs.replace(asked, deleting=True, rv=2))
    async with (
        following(log) as history,
        served(history) as address,
        aiohttp.ClientSession() as session,
    ):
        pages = ["/", "/?at=3", "/?q=" + quote(EVIL), "/pods", "/log"]
        pages += [
            "/nodes/" + quote(EVIL, safe=""),
            f"/pods/{quote(EVIL, safe='')}/{quote(EVIL, safe='')}",
        ]
        for path in pages:
            async with session.get(URL(address + path, encoded=True)) as answer:
                text = await answer.text()
                assert answer.status == 200, (path, text[-500:])
                assert "<img" not in text
                assert "{{7*7}}" in text, "braces of a template are text as well"
                assert "&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&amp;" in text
        async with session.get(f"{address}/?parts=1") as answer:
            for _, html in (await answer.json())["parts"].values():
                assert "<img" not in html
                assert "alert(1)>" not in html


async def test_what_is_asked_badly_is_an_answer_and_no_defect(log: MemoryLog) -> None:
    async with (
        following(log) as history,
        served(history) as address,
        aiohttp.ClientSession() as session,
    ):
        for path, status in (
            ("/?at=nonsense", 400),
            ("/?go=sideways", 400),
            ("/?at=999999999999999999", 200),
            ("/?at=-1d", 200),
            ("/?to=x&caller=y&key=z&at=2", 200),
            ("/?frame=1&page=2&_parts=3", 200),
            ("/nodes/%00", 404),
            ("/nodes/%ff", 404),
            ("/static/../settings.py", 404),
            ("/static/%2e%2e/settings.py", 404),
            (f"/?q={'x' * 3000}", 414),
        ):
            async with session.get(address + path) as answer:
                assert answer.status == status, path


def test_a_token_is_long_enough_to_be_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"  {TOKEN}\n")
    assert token_of(path) == TOKEN
    assert token_of(None) is None
    path.write_text("short\n")
    with pytest.raises(SettingsError, match="at least 16"):
        token_of(path)


def test_loopback_is_told_from_the_rest() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org")))
