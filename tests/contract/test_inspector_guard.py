"""Who may ask the inspector, and what comes of names that an enemy made up."""

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import quote

import aiohttp
import anyio
import msgspec
import pytest
from tests.build import card, decided, holding, node, placement, pod
from tests.inspecting import append, following, served
from tests.memory_log import MemoryLog
from yarl import URL

from allotment.adapters.service.settings import SettingsError
from allotment_inspector.__main__ import token_of
from allotment_inspector.guard import COOKIE_S, cookie_name
from allotment_inspector.rendering import static_version
from allotment_inspector.settings import is_loopback

pytestmark = pytest.mark.anyio

TOKEN = "a-token-that-is-long-enough"
COOKIE = cookie_name(TOKEN.encode())
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
                {"Cookie": f"{COOKIE}=9999999999.{TOKEN}"},
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
            assert int(cookie["max-age"]) == COOKIE_S
            assert not cookie["secure"]
            assert TOKEN not in answer.headers["Set-Cookie"]
        shown = {"Cookie": f"{cookie.key}={cookie.value}"}
        async with session.get(closed, headers=shown) as answer:
            assert answer.status == 200
            assert TOKEN not in await answer.text()
        async with session.get(f"{closed}/token", headers={"Authorization": "Bearer no"}) as answer:
            assert answer.status == 401
            assert "Set-Cookie" not in answer.headers


async def greeted(session: aiohttp.ClientSession, address: str, token: str, **headers: str) -> str:
    """The cookie that is given for a token."""
    headers["Authorization"] = f"Bearer {token}"
    async with session.get(f"{address}/token", headers=headers) as answer:
        return answer.headers["Set-Cookie"]


async def test_two_inspectors_on_one_host_leave_each_others_cookies_alone(log: MemoryLog) -> None:
    """A browser sends a host's cookies to all of its ports."""
    other = TOKEN + "-of-another"
    async with (
        following(log) as history,
        served(history, token=TOKEN) as first,
        served(history, token=other) as second,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        await greeted(session, first, TOKEN)
        await greeted(session, second, other)
        for address in (first, second):
            async with session.get(address) as answer:
                assert answer.status == 200


async def test_a_cookie_ends_for_who_keeps_it_longer_too(log: MemoryLog) -> None:
    now_s = 1_000_000.0
    async with (
        following(log) as history,
        served(history, token=TOKEN, clock_s=lambda: now_s) as address,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        cookie = (await greeted(session, address, TOKEN)).partition(";")[0]
        until, dot, mac = cookie.partition("=")[2].partition(".")
        longer = f"{COOKIE}={int(until) + 9}{dot}{mac}"
        for at_s, shown, status in (
            (now_s, cookie, 200),
            (now_s, longer, 401),
            (now_s + COOKIE_S - 1, cookie, 200),
            (now_s + COOKIE_S, cookie, 401),
        ):
            now_s = at_s
            async with session.get(address, headers={"Cookie": shown}) as answer:
                assert answer.status == status, (at_s, shown)


async def test_behind_https_the_cookie_goes_back_over_https_only(closed: str) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        for forwarded, is_secure in (("https", True), ("HTTPS, http", True), ("http", False)):
            cookie = await greeted(session, closed, TOKEN, **{"X-Forwarded-Proto": forwarded})
            assert ("Secure" in cookie) == is_secure


async def test_bytes_that_are_no_text_are_no_token(closed: str) -> None:
    host, _, port = closed.removeprefix("http://").partition(":")
    for line in (
        b"Authorization: Bearer \xff\xfe",
        b"Cookie: " + COOKIE.encode() + b"=\xff\xfe",
        b"Cookie: " + COOKIE.encode() + b"=99.\xff\xfe",
    ):
        for path in (b"/", b"/token"):
            stream = await anyio.connect_tcp(host, int(port))
            async with stream:
                head = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                await stream.send(head + line + b"\r\n\r\n")
                answer = await stream.receive()
            assert answer.startswith(b"HTTP/1.1 401 "), (line, path, answer[:200])


async def test_another_site_may_lead_here_and_no_more(log: MemoryLog) -> None:
    link = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    frame = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    script = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    image = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    async with (
        following(log) as history,
        served(history) as address,
        aiohttp.ClientSession() as session,
    ):
        for site, how, status in (
            ("same-origin", script, 200),
            ("none", link, 200),
            ("cross-site", link, 200),
            ("same-site", link, 200),
            ("cross-site", frame, 403),
            ("cross-site", script, 403),
            ("cross-site", image, 403),
            ("cross-site", {}, 403),
            ("same-site", script, 403),  # another port of this host
        ):
            for path in ("/", "/?format=json", "/static/app.js"):
                headers = {"Sec-Fetch-Site": site, **how}
                async with session.get(address + path, headers=headers) as answer:
                    assert answer.status == status, (site, how, path)
                    if status == 403:
                        assert "n1" not in await answer.text()


async def test_only_a_static_file_under_its_own_address_is_kept(log: MemoryLog) -> None:
    version = static_version("app.js")
    async with (
        following(log) as history,
        served(history) as address,
        aiohttp.ClientSession() as session,
    ):
        for path, kept in (
            (f"/static/app.js?v={version}", "max-age=31536000, immutable"),
            ("/static/app.js?v=another", "no-cache"),
            ("/static/app.js", "no-cache"),
            (f"/static/none.js?v={version}", "no-store"),
            ("/", "no-store"),
        ):
            async with session.get(address + path) as answer:
                assert answer.headers["Cache-Control"] == kept, path


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
            ("/?at=0001-01-01", 400),
            ("/?at=9999-12-31T23:59:59Z", 400),
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
    for odd in ("ein-schlüssel-der-lang-genug-ist", "a token with spaces in it"):
        path.write_text(odd)
        with pytest.raises(SettingsError, match="that no browser can show"):
            token_of(path)


def test_loopback_is_told_from_the_rest() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org")))
