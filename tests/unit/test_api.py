"""The door for programmers: its examples, its page, and that it answers as the commands do."""

import asyncio
import doctest
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from allotment import api
from allotment.adapters.log import exported
from allotment.api import AllotError, Log, open_log
from allotment_cli.main import main
from tests.recorded import read_log

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
METHODS = [name for name in vars(Log) if not name.startswith("_")]
NAMES_MAX = 10


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded logs of the examples, where they look for them."""
    for name in ("busy", "queues"):
        lines = "".join(exported.encode(record) + "\n" for record in read_log(name))
        (tmp_path / f"{name}.jsonl").write_text(lines)
    monkeypatch.chdir(tmp_path)


def examples_in(obj: Any, name: str) -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=False)
    return [test for test in finder.find(obj, name, globs=dict(vars(api))) if test.examples]


@pytest.mark.parametrize("name", [*api.__all__, *(f"Log.{method}" for method in METHODS)])
def test_every_name_has_an_example_that_is_so(name: str) -> None:
    owner, _, method = name.partition(".")
    found = getattr(api, owner)
    (example,) = examples_in(getattr(found, method) if method else found, name)
    assert doctest.DocTestRunner().run(example).failed == 0


def test_there_are_few_names() -> None:
    assert len([*api.__all__, *METHODS]) <= NAMES_MAX


def test_the_page_shows_what_python_prints() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("```", "")
    example = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
    assert {method for method in METHODS if f".{method}(" not in text} == set()


def printed(words: str) -> Any:
    return msgspec.json.decode(CliRunner().invoke(main, [*words.split(), "-o", "json"]).stdout)


def as_json(answer: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(answer))


@pytest.mark.parametrize("kind", ["pods", "nodes", "cards", "queues", "gangs", "jobs"])
@pytest.mark.parametrize("name", ["busy", "queues"])
def test_lists_are_those_of_the_command(kind: str, name: str) -> None:
    everywhere = " -A" if kind in ("pods", "gangs", "jobs") else ""
    document = printed(f"get {kind}{everywhere} --file {name}.jsonl")
    assert as_json(open_log(f"{name}.jsonl").get(kind)) == document["items"]


@pytest.mark.parametrize(
    ("words", "ask"),
    [
        ("explain pod research/llama", lambda log: log.explain("research/llama")),
        ("explain pod big --at 12", lambda log: log.at(12).explain("big")),
        (
            "explain pod never -n research --node gpu-01",
            lambda log: log.explain("research/never", node="gpu-01"),
        ),
        ("explain node gpu-01 --at -2s", lambda log: log.at("-2s").explain("gpu-01", "node")),
        ("usage --by node --from 20", lambda log: log.usage(20, by="node")),
        ("usage --to 25", lambda log: log.at(25).usage()),
    ],
)
def test_answers_are_those_of_the_command(words: str, ask: Callable[[Log], object]) -> None:
    assert as_json(ask(open_log("busy.jsonl"))) == printed(f"{words} --file busy.jsonl")


def test_a_running_event_loop_is_no_obstacle() -> None:
    async def cell() -> int:
        return len(open_log("busy.jsonl").get("pods"))

    assert asyncio.run(cell()) == 8


def test_a_moment_outlives_the_log_that_it_is_of() -> None:
    then = open_log("busy.jsonl").at(12)
    assert len(then.get("pods")) == 3


def test_a_log_that_is_left_open_does_not_keep_python_from_ending() -> None:
    program = "from allotment.api import open_log; log = open_log('busy.jsonl'); log.get('pods')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("where", ["none.jsonl", "nats://127.0.0.1:1", "."])
def test_what_is_not_there_is_named_with_what_to_do(where: str) -> None:
    with pytest.raises(AllotError) as raised:
        open_log(where)
    assert raised.value.message
    if where != "none.jsonl":
        assert "allot up" in raised.value.remedy or "allot status" in raised.value.remedy


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.at("soon"),
        lambda log: log.at(999).get("pods"),
        lambda log: log.get("claims"),
        lambda log: log.explain("research/lama"),
        lambda log: log.explain("big", "claim"),
        lambda log: log.usage(by="team"),
        lambda log: log.usage(999),
        lambda log: log.fit(),
        lambda log: log.fit({"metadata": {}}),
        lambda log: log.replay(999),
        lambda log: log.simulate("nope"),
    ],
)
def test_what_cannot_be_answered_says_what_would_be_right(ask: Callable[[Log], object]) -> None:
    with open_log("busy.jsonl") as log, pytest.raises(AllotError) as raised:
        ask(log)
    assert raised.value.remedy


def test_a_directory_does_not_stand_for_the_cluster_of_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("current-context: other\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(AllotError, match="local mode is not running"):
        open_log(tmp_path)


def test_importing_it_loads_neither_numpy_nor_the_command() -> None:
    program = "import sys, allotment.api; sys.exit(bool({'numpy', 'click'} & {*sys.modules}))"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
