"""The commands on the pages can be typed, and answer what the page does."""

import html
import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest
from click.testing import CliRunner, Result

from allotment.adapters.log import exported
from allotment.core.logport import Record
from allotment_cli.main import main
from allotment_proto import subjects
from tests.hostile import MARKUP, poisoned
from tests.inspecting import history_of, names_of, paths_of, served
from tests.recording import Recorder, busy_cluster, uid_of
from tests.recording_batch import busy_queues, preempted

CODE = re.compile(r"<code>(allot .*?)</code>", re.DOTALL)
OF_CLUSTER = ("queue", "list")
"""Asks the cluster, which no test of a log has."""
TIMELESS = {
    ("log", "show"),
    ("replay", "--verify"),
    ("diff", "1"),
    ("log", "-o"),
    ("simulate", "--file"),
}
"""Name their records themselves, or are about the whole log."""
OK = {"doctor": (0, 1), "diff": (0, 1)}
"""Exit codes of a command that found something."""


def commands_of(
    records: Sequence[Record], at: int | None, addresses: Sequence[str] = (), *, every: bool = False
) -> dict[str, str]:
    """The commands of these pages, or of every one, and one page that shows each."""
    history, fold = history_of(records)
    known = paths_of(records, names_of(records), fold) if every else []
    found: dict[str, str] = {}

    async def ask() -> None:
        async with served(history) as server, aiohttp.ClientSession() as session:
            for path in (*known, *addresses):
                moment = "" if at is None else f"{'&' if '?' in path else '?'}at={at}"
                async with session.get(f"{server}{path}{moment}") as answer:
                    for code in CODE.findall(await answer.text()):
                        line = html.unescape(re.sub(r"</?span\b[^>]*>", "", code))
                        found.setdefault(line, path)

    anyio.run(ask)
    return found


def simple(line: str) -> Iterator[list[str]]:
    """The commands of allot that a line is made of, in words."""
    for part in re.split(r" && | \| | > ", line):
        words = shlex.split(part)
        if words[0] == "allot":
            yield words[1:]


def run(words: Sequence[str], file: Path) -> Result:
    """A command, asked of a file."""
    if "--file" in words:
        return CliRunner().invoke(main, [str(file) if w == "log.jsonl" else w for w in words])
    at = words.index("show") if "show" in words else len(words)
    return CliRunner().invoke(main, [*words[:at], "--file", str(file), *words[at:]])


def written(tmp_path: Path, records: Sequence[Record]) -> Path:
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{exported.encode(record)}\n" for record in records))
    return file


@pytest.mark.parametrize("is_past", [False, True])
@pytest.mark.parametrize("make", [busy_cluster, busy_queues, preempted])
def test_every_command_can_be_typed(
    make: Callable[[], Recorder], is_past: bool, tmp_path: Path
) -> None:
    """In the past each says of which moment, unless it names its records itself."""
    records = make().records
    file, at = written(tmp_path, records), len(records) * 2 // 3 if is_past else None
    filtered = ("/pods?namespace=default", "/usage?by=node&span=1h", "/log?q=a b", "/log?to=9")
    commands = commands_of(records, at, filtered, every=True)
    assert len(commands) > 20
    for line, path in commands.items():
        for words in simple(line):
            if tuple(words[:2]) == OF_CLUSTER:
                assert at is None
                continue
            if at is not None and tuple(words[:2]) not in TIMELESS:
                assert words[-2] == "--at", (line, path)
                assert 1 <= int(words[-1]) <= at or "/decisions/" in path, (line, path)
            result = run(words, file)
            assert result.exit_code in OK.get(words[0], (0,)), (line, path, result.output)


def test_names_are_quoted_as_they_are(tmp_path: Path) -> None:
    records, swaps = poisoned(busy_cluster(), MARKUP)
    file = written(tmp_path, records)
    named = set()
    for line, path in commands_of(records, None, every=True).items():
        for words in simple(line):
            if tuple(words[:2]) != OF_CLUSTER:
                named.update(words)
                result = run(words, file)
                assert result.exit_code in OK.get(words[0], (0,)), (line, path, result.output)
    assert f"{swaps['default']}/{swaps['big']}" in named


@pytest.mark.parametrize("at", [None, 20])
def test_what_explains_a_pod_explains_that_one_at_that_moment(
    at: int | None, tmp_path: Path
) -> None:
    """Also where another pod has its name by now."""
    log = busy_cluster()
    uid = uid_of("default/big")
    fact = log.state.pods[uid].fact
    gone = log.gone(uid)
    another = msgspec.structs.replace(fact, uid="another", node="", phase="Pending", holdings=())
    log.append(subjects.pod("another"), "watcher/0", another)
    file = written(tmp_path, log.records)
    for wanted, last in ((uid, gone), ("another", log.seq)):
        if wanted == "another" and at is not None:
            continue
        lines = commands_of(log.records, at, (f"/pods/default/big?uid={wanted}",))
        explained = [words for line in lines for words in simple(line) if words[0] == "explain"]
        assert explained
        for words in explained:
            document = json.loads(run([*words, "-o", "json"], file).stdout)
            assert document["subject"]["uid"] == wanted
            assert document["asOf"]["seq"] == (at or last)
