"""The inspector on a real log of which the oldest part has left NATS: pages are as they were, and
an archive that is away, damaged or another log's is named.
"""

import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.contract.archiving import archiver, filled
from tests.inspecting import FedFold, following, names_of, paths_of, served
from tests.recorded import read_log
from tests.segmenting import Segmented, header_of, put, rewritten, segmented
from tests.waiting import until

from allotment.adapters.archive.file import Writer
from allotment.adapters.archive.store import Store
from allotment.adapters.log.kept import KeptIndex
from allotment.adapters.log.log import JetStreamLog
from allotment.adapters.log.nats_server import NatsServer
from allotment.core import chain
from allotment.core.logport import Record
from allotment_archiver.settings import Keeps
from allotment_inspector import history as history_module
from allotment_inspector.history import History
from allotment_proto import subjects

pytestmark = pytest.mark.anyio
CLOSED_AFTER = (40, 80, 120, 160, 240)


@pytest.fixture(scope="module")
def grown() -> Segmented:
    return segmented(read_log("big-gang-is-not-starved"), CLOSED_AFTER)


@asynccontextmanager
async def browsing(log: JetStreamLog, directory: Path, **options: Any) -> AsyncIterator["Browser"]:
    """The pages of an inspector that is new to the log."""
    async with (
        following(log, directory=directory, **options) as history,
        served(history) as address,
        aiohttp.ClientSession() as session,
    ):
        yield Browser(history, address, session)


class Browser:
    """Asks an inspector for pages."""

    def __init__(self, history: History, address: str, session: aiohttp.ClientSession) -> None:
        self.history = history
        self._address = address
        self._session = session

    async def text(self, path: str, status: int = 200) -> str:
        async with self._session.get(self._address + path) as answer:
            text = await answer.text()
            assert answer.status == status, text
            return text

    async def page(self, path: str) -> tuple[int, Any]:
        """Its status and its content as JSON."""
        asked = self._address + path + ("&" if "?" in path else "?") + "format=json"
        async with self._session.get(asked) as answer:
            return answer.status, await answer.json()


def questions(grown: Segmented) -> list[str]:
    """Pages about everything, at moments in each segment and at its ends."""
    fold = FedFold()
    for record in grown.records:
        fold.feed(record)
    pages = paths_of(grown.records, names_of(grown.records), fold)
    decisions = [record.seq for record in grown.records if record.subject == subjects.DECISION]
    pages += [f"/decisions/{seq}" for seq in decisions[:3]]
    pages += ["/log/12", "/compare?from=20", "/usage?span=1h"]
    third = grown.closed[2].last_seq
    at = [30, 90, third, third + 1, len(grown.records)]
    found = [f"{page}{'&' if '?' in page else '?'}at={seq}" for page in pages for seq in at]
    when = grown.records[69].time_ns // 1_000_000 / 1000
    return [*found, f"/pods?at=@{when}"]


def content(page: tuple[int, Any]) -> tuple[int, Any]:
    """A page without what says that older records may tell more."""
    status, body = page
    return status, {key: value for key, value in body.items() if key != "unreadSeq"}


async def whole(browser: Browser) -> None:
    """Have everything indexed."""
    while browser.history.unlisted_seq:
        await browser.history.asked_back(10)


def without_indexes(archive: Path) -> None:
    """As an earlier release archived segments."""
    for path in archive.glob("*.index"):
        path.unlink()


@pytest.mark.parametrize("index", ["sound", "missing", "damaged"])
async def test_pages_are_the_same_after_their_records_left_nats(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path, index: str
) -> None:
    asked = questions(grown)
    searches = [path for path in asked if path.startswith("/search")]
    async with filled(own_nats_server, grown) as log:
        async with browsing(log, tmp_path / "a") as browser:
            await whole(browser)
            before = {path: content(await browser.page(path)) for path in asked}
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        assert await log.first_seq() == grown.closed[3].last_seq + 1
        if index == "missing":
            without_indexes(tmp_path / "archive")
        for file in (tmp_path / "archive").glob("*.index") if index == "damaged" else ():
            file.write_bytes(file.read_bytes()[:2000])
        async with browsing(log, tmp_path / "b") as browser:
            assert browser.history.kept.base == grown.closed[4].last_seq, "where the fold began"
            for path in asked:
                found = await browser.page(path)
                if path in searches and found[1]["unreadSeq"]:
                    continue  # a search shows what is indexed, and says so
                assert content(found) == before[path], path
            await whole(browser)
            assert browser.history.index.first_seq == 1
            for path in searches:
                assert content(await browser.page(path)) == before[path], path
        async with browsing(log, tmp_path / "b") as browser:
            assert not browser.history.unlisted_seq, "what was read is kept"


@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexed", "without index"])
async def test_one_pod_has_no_more_read_than_its_life(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path, is_indexed: bool
) -> None:
    """A page about the present reads nothing older; one about a pod goes back to where it began,
    unless the archive says where its records are.
    """
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        if not is_indexed:
            without_indexes(tmp_path / "archive")
        async with browsing(log, tmp_path / "b") as browser:
            begun = grown.closed[4].last_seq
            for path in ("/", "/pods", "/queues", "/log", "/usage", "/pods?at=90"):
                await browser.text(path)
            assert browser.history.kept.base == begun
            seen = names_of(grown.records[grown.closed[1].last_seq : grown.closed[2].last_seq])
            late = [name for name in seen if name not in names_of(grown.records[:90])]
            assert "small-" in late[-1]
            text = await browser.text(f"/pods/{late[-1]}?at={grown.closed[2].last_seq}")
            assert late[-1] in text
            assert "still being read" not in text
            base = browser.history.kept.base
            assert base == begun if is_indexed else grown.closed[0].last_seq < base < begun


async def test_an_archive_that_is_away_is_named_and_found_again(
    own_nats_server: NatsServer,
    grown: Segmented,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_module, "LOOK_AGAIN_S", 0.0)
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        (tmp_path / "archive").rename(tmp_path / "away")
        begins = await log.first_seq()
        async with browsing(log, tmp_path / "b") as browser:
            status, page = await browser.page("/pods?at=30")
            assert (status, page["seq"]) == (200, begins - 1), "the first moment that is there"
            for path in ("/?at=30", "/pods/default/none"):
                text = await browser.text(path, 200 if path.startswith("/?") else 404)
                assert "have left NATS" in text
                assert f"{tmp_path}/archive cannot be listed" in text
                assert "ALLOT_ARCHIVE" in text
            (tmp_path / "away").rename(tmp_path / "archive")
            status, page = await browser.page("/pods?at=30")
            assert (status, page["seq"]) == (200, 30)
        (tmp_path / "archive").rename(tmp_path / "away")
        async with browsing(log, tmp_path / "c", archive=str(tmp_path / "away")) as browser:
            assert (await browser.page("/pods?at=30"))[1]["seq"] == 30


async def refused(browser: Browser, path: str) -> str:
    """Why a page is not shown."""
    status, page = await browser.page(path)
    assert status == 503, page
    return str(page["message"])


async def test_damaged_and_altered_files_are_named_and_what_is_in_them_is_not_shown(
    own_nats_server: NatsServer,
    grown: Segmented,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(History, "_far_events", lambda self: 30)  # as if segments were long
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        without_indexes(tmp_path / "archive")
        files = sorted((tmp_path / "archive").iterdir())
        kept = [path.read_bytes() for path in files]
        second, third = grown.closed[1], grown.closed[2]
        flipped = bytearray(kept[1])
        flipped[len(flipped) // 2] ^= 4
        victim = second.first_seq + 20

        def wider(record: Record) -> Record:
            payload = record.payload.replace(b"default", b"defunct")
            is_victim = record.seq == victim
            return Record(
                record.seq,
                record.subject,
                payload if is_victim else record.payload,
                record.time_ns,
                record.msg_id,
            )

        for number, (data, wrong) in enumerate(
            (
                (bytes(flipped), "damaged"),
                (kept[1][: len(kept[1]) // 2], "torn"),
                (kept[2], f"it holds {files[2].name}"),
                (rewritten(grown, wider, 2)[0], f"record {victim} is altered"),
                (forged(grown, wider, 2), f"{files[2].name} continues from"),
                (b"", "torn"),
            )
        ):
            files[1].write_bytes(data)
            async with browsing(log, tmp_path / f"seen-{number}") as browser:
                why = await refused(browser, f"/pods?at={second.first_seq + 25}")
                assert files[1].name in why, wrong
                assert wrong in why
                assert "ALLOT_ARCHIVE" in why
                assert "defunct" not in await browser.text(f"/log/{victim}", 503)
                for seq in (20, third.first_seq + 20, len(grown.records)):
                    assert (await browser.page(f"/pods?at={seq}"))[1]["seq"] == seq, "others are"
                text = await browser.text("/pods/default/none", 404)
                assert files[1].name in text, "searched until there"


def forged(grown: Segmented, change: Callable[[Record], Record], number: int) -> bytes:
    """A segment's file with other records, and with all heads computed anew."""
    one, buffer = grown.closed[number - 1], io.BytesIO()
    records = [change(record) for record in grown.records[one.first_seq - 1 : one.last_seq]]
    header = header_of(grown, one)
    head = bytes.fromhex(header.chain_before)
    for record in records:
        head = chain.linked(head, record)
    writer = Writer(buffer, msgspec.structs.replace(header, chain=head.hex()))
    for record in records:
        writer.add(record)
    writer.close()
    return buffer.getvalue()


async def test_a_full_disk_is_named_and_ends_nothing(
    own_nats_server: NatsServer,
    grown: Segmented,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        without_indexes(tmp_path / "archive")
        async with browsing(log, tmp_path / "b") as browser:
            await browser.history.kept.write()
            monkeypatch.setattr(KeptIndex, "_seal", full)
            assert "no space left" in await browser.text("/pods/default/none", 404)
            await browser.text("/pods?at=90")


async def test_another_logs_archive_is_not_read(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    other = segmented(read_log("churn-best-fit"), CLOSED_AFTER)
    store = Store(str(tmp_path / "archive"), makes=True)
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        begins = await log.first_seq()
        for path in (tmp_path / "archive").iterdir():
            path.unlink()
        for number in (1, 2, 3, 4):
            put(other, number, store, tmp_path)
        async with browsing(log, tmp_path / "b") as browser:
            assert (await browser.page("/pods?at=30"))[1]["seq"] == begins - 1
            assert "have left NATS" in await browser.text("/pods?at=30")


async def test_records_may_leave_while_they_are_looked_at(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log, browsing(log, tmp_path / "b") as browser:
        before = await browser.page("/pods?at=90")
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        last = await log.last_seq()
        await until(lambda: browser.history.head_seq == last)
        assert await browser.page("/pods?at=90") == before
        assert (await browser.page("/log/50"))[0] == 200
        assert browser.history.base_seq == 0
