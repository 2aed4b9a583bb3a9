"""Commands on a log whose old records left NATS answer as before."""

from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner
from tests.contract.archiving import archiver, filled
from tests.recorded import read_log
from tests.segmenting import Segmented, segmented

from allotment.adapters.archive.whole import WholeLog
from allotment.adapters.log import exported
from allotment.adapters.log.nats_server import NatsServer
from allotment.answers.source import FileSource
from allotment_archiver.settings import Keeps
from allotment_cli.main import main
from allotment_proto.codec import decode_envelope
from allotment_proto.events import PodObserved

pytestmark = pytest.mark.anyio
CLOSED_AFTER = (40, 80, 120, 160, 240)


@pytest.fixture(scope="module")
def grown() -> Segmented:
    return segmented(read_log("big-gang-is-not-starved"), CLOSED_AFTER)


async def answer(url: str, cache: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of a command that is new to this log."""
    environ = {"XDG_CACHE_HOME": str(cache), "ALLOT_NATS_URL": url}
    runner = CliRunner(env=environ)
    done = await anyio.to_thread.run_sync(lambda: runner.invoke(main, list(words)))
    return done.exit_code, done.output


def pod_of(grown: Segmented) -> str:
    """The first pod by name of the log's first half."""
    names = set()
    for record in grown.records[: len(grown.records) // 2]:
        for event in decode_envelope(record.payload, record.subject).events:
            if isinstance(event, PodObserved):
                names.add(f"{event.namespace}/{event.name}")
    return min(names)


def questions(grown: Segmented) -> list[list[str]]:
    end = str(len(grown.records))
    pod = pod_of(grown)
    places = ["30", "90", str(grown.closed[2].last_seq), str(grown.closed[2].last_seq + 1), end]
    found = [["ledger", "--at", at, "-o", "json"] for at in places]
    found += [["get", "pods", "-A", "--at", at] for at in places]
    found += [
        ["log", "-o", "jsonl", "--at", end],
        ["log", "show", "12"],
        ["log", "--pod", pod, "--at", end],
        ["explain", "pod", pod, "--at", end],
        ["story", pod, "--at", end],
        ["usage", "--from", "5", "--to", end, "-o", "json"],
        ["usage", "--from", "150", "--to", end, "-o", "json"],
        ["replay", "--verify", "--to", end, "-o", "json"],
        ["replay", "--verify", "--from", "60", "--to", "220", "-o", "json"],
        ["diff", "50", "250", "-o", "json"],
        ["log", "--since", "150", "--at", end, "-o", "json"],
        ["log", "--since", str(grown.closed[2].last_seq + 1), "--at", end, "-o", "json"],
    ]
    return found


async def test_every_command_answers_as_before(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        asked = questions(grown)
        before = [await answer(own_nats_server.url, tmp_path / "a", *words) for words in asked]
        for (code, output), words in zip(before, asked, strict=True):
            assert code == (words[0] == "diff"), output
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        assert await log.first_seq() == grown.closed[3].last_seq + 1
        for words, wanted in zip(asked, before, strict=True):
            found = await answer(own_nats_server.url, tmp_path / "new" / words[0], *words)
            assert found == wanted, words
            warm = await answer(own_nats_server.url, tmp_path / "new" / words[0], *words)
            assert warm == wanted, words


@pytest.mark.parametrize("name", ["big-gang-is-not-starved", "churn-spread"])
async def test_answers_are_those_of_a_fold_of_every_record(
    own_nats_server: NatsServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed at many places, against a file of the same log that is folded from record 1."""
    recorded = read_log(name)
    grown = segmented(recorded, range(30, len(recorded) - 10, 37))
    exported_to = tmp_path / "log.jsonl"
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        async with aclosing(WholeLog(log).read(1, await log.last_seq())) as batches:
            records = [record async for batch in batches for record in batch]
        exported_to.write_text("".join(f"{exported.encode(record)}\n" for record in records))
        for words in questions(grown):
            if words[0] == "replay" or "show" in words:  # nothing is folded
                continue
            words += [] if "-o" in words else ["-o", "json"]
            found = await answer(own_nats_server.url, tmp_path / "new" / words[0], *words)
            with monkeypatch.context() as patched:
                patched.setattr(FileSource, "checkpoint", nowhere)
                wanted = await answer("", tmp_path / "none", *words, "--file", str(exported_to))
            assert found == wanted, words


async def nowhere(source: FileSource, before_seq: int, before_ns: int | None = None) -> None:
    return None


async def test_a_damaged_index_is_named(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    words = ["log", "--pod", pod_of(grown), "--at", str(len(grown.records))]
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        wanted = await answer(own_nats_server.url, tmp_path / "a", *words)
        one, other, *_ = sorted((tmp_path / "archive").glob("*.index"))
        whole = one.read_bytes()
        for wrong in (whole[:100], whole[:2000] + b"torn" + whole[2004:], other.read_bytes()):
            one.write_bytes(wrong)
            code, output = await answer(own_nats_server.url, tmp_path / "b", *words)
            assert (code, output) == wanted or (code == 2 and one.name in output)
        assert code == 2, "another segment's"
        one.write_bytes(whole)
        assert await answer(own_nats_server.url, tmp_path / "b", *words) == wanted, "copied back"
        one.unlink()
        assert await answer(own_nats_server.url, tmp_path / "b", *words) == wanted


async def test_an_archive_that_is_away_is_named_and_only_where_it_is_needed(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        end = str(await log.last_seq())
        (tmp_path / "archive").rename(tmp_path / "away")
        url, pod = own_nats_server.url, next(iter(grown.state.pods.values())).fact
        code, output = await answer(url, tmp_path / "b", "ledger", "--at", "30")
        assert code == 2
        assert "records 1 to 30 have left NATS" in output
        assert f"file://{tmp_path}/archive" in output
        assert "--archive" in output
        code, with_copy = await answer(
            url, tmp_path / "c", "ledger", "--at", "30", "--archive", str(tmp_path / "away")
        )
        assert code == 0, with_copy
        code, output = await answer(url, tmp_path / "d", "ledger", "--at", end)
        assert code == 0, output
        code, output = await answer(url, tmp_path / "d", "ledger")
        assert code == 0, output
        code, output = await answer(
            url, tmp_path / "e", "explain", "pod", f"{pod.namespace}/{pod.name}", "--at", end
        )
        assert code == 2, output
        assert "not in the records that can be read" in output
        assert "--archive" in output


async def test_a_log_whose_archive_begins_later_is_read_from_there(
    own_nats_server: NatsServer, grown: Segmented, tmp_path: Path
) -> None:
    async with filled(own_nats_server, grown) as log:
        end = str(len(grown.records))
        url = own_nats_server.url
        whole = await answer(url, tmp_path / "a", "replay", "--verify", "--to", end)
        await archiver(log, tmp_path / "archive", Keeps(live_segments=1)).run()
        for path in sorted((tmp_path / "archive").glob("*.allotment"))[:2]:
            path.unlink()
        code, output = await answer(url, tmp_path / "b", "replay", "--verify", "--to", end)
        assert code == 0, output
        assert output.splitlines()[-1] == whole[1].splitlines()[-1], "the same state"
        assert "different          0" in output
        for words in (["usage"], ["log", "-o", "jsonl"], ["ledger", "--at", "180"]):
            code, output = await answer(url, tmp_path / "b", *words)
            assert code == 0, output
        code, output = await answer(url, tmp_path / "b", "ledger", "--at", "30")
        assert code == 2
        assert f"begins with record {grown.closed[1].last_seq + 1}" in output
