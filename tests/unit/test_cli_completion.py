"""The Tab key: every argument that names something is completed, and nothing is ever raised."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem, ShellComplete
from click.testing import CliRunner

from allotment.answers.kubeconfig import Choice
from allotment.answers.source import FileSource, Origin
from allotment_cli.main import main
from allotment_cli.options import completion
from allotment_cli.options.source import chosen_cluster
from allotment_lab.bench.policies import PolicyWord
from tests.recording import Recorder, busy_cluster
from tests.recording_batch import BatchRecorder, busy_queues

FREE = frozenset(
    (
        *("URL", "MOMENT", "AMOUNT", "AMOUNTS", "DURATION", "SIZE", "HOST:PORT,...", "SELECTOR"),
        *("TEXT", "IMAGE", "SCHEDULER", "NEW", "[NEW]", "NAMESPACE"),
    )
)
"""Metavars of what only the user can know."""


def commands(
    command: click.Command = main, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands with the words that reach them."""
    yield words, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from commands(inner, (*words, name))


def names_something(param: click.Parameter) -> bool:
    """Whether it is a word whose possible values somebody knows."""
    return (
        isinstance(param.type, click.types.StringParamType)
        and not getattr(param, "is_flag", False)
        and param.metavar not in FREE
    )


NAMING = [
    pytest.param(words, param, id=f"{' '.join(words)} {param.opts[-1]}")
    for words, command in commands()
    for param in command.params
    if names_something(param)
]


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    return busy_cluster()


@pytest.fixture(scope="module")
def log(recorded: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded.write(tmp_path_factory.mktemp("log") / "busy.jsonl")


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy_queues().write(tmp_path_factory.mktemp("log") / "queues.jsonl")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOT_HOME", "/nonexistent/home")
    monkeypatch.setenv("HOME", "/nonexistent")
    for name in ("ALLOT_NATS_URL", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def tab(*words: str) -> list[CompletionItem]:
    """What the Tab key offers for the last word."""
    *before, incomplete = words
    return ShellComplete(main, {}, "allot", "_ALLOT_COMPLETE").get_completions(before, incomplete)


def offered(line: str, log: Path) -> set[str]:
    return {item.value for item in tab(*line.replace("LOG", str(log)).split(" "))}


@pytest.mark.parametrize(("words", "param"), NAMING)
def test_whatever_names_something_is_completed(
    words: tuple[str, ...], param: click.Parameter
) -> None:
    assert param._custom_shell_complete is not None


def test_whatever_answers_in_json_answers_in_yaml() -> None:
    for words, command in commands():
        for param in command.params:
            if "--output" in param.opts and isinstance(param.type, click.Choice):
                choices = {str(choice) for choice in param.type.choices}
                assert {"json", "yaml"} <= choices, words


def test_a_policy_of_a_bench_is_completed() -> None:
    for words, command in commands():
        for param in command.params:
            if isinstance(param.type, PolicyWord):
                assert "binpack" in {item.value for item in tab(*words, param.opts[-1], "bin")}


@pytest.mark.parametrize("words", [" ".join(words) for words, _ in commands()])
def test_a_tab_never_raises(words: str, log: Path) -> None:
    """For each command: after it, after an unknown word, in each option, after nonsense."""
    before = words.split()
    command = next(c for w, c in commands() if " ".join(w) == words)
    for rest in ((), ("nonsense",), ("--nonsense",), ("a", "b", "c", "d"), ("--", "-"), ("",)):
        for last in ("", "x", "-", "--", "a/b/c", "pod/", "/", "=", "--node=", "--file="):
            tab(*before, *rest, last)
    for param in command.params:
        if isinstance(param, click.Option):
            tab(*before, param.opts[-1], "")
            tab(*before, "--file", str(log), param.opts[-1], "")


@pytest.mark.parametrize("line", ["explian pod ", "get podz ", "polcy check "])
def test_nothing_completes_an_unknown_command(line: str) -> None:
    assert tab(*line.split(" ")) == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("story --file LOG -n research ll", {"llama"}),
        ("story --file LOG research/ll", {"research/llama"}),
        ("wait --file LOG pod/research/ll", {"pod/research/llama"}),
        ("wait --file LOG -n research pod/ll", {"pod/llama"}),
        ("explain pod --file LOG research/llama --node gpu-04", {"gpu-04"}),
        ("explain node --file LOG gpu-04", {"gpu-04"}),
        ("explain pod --file LOG -n res", {"research"}),
        ("get pods --file LOG -n res", {"research"}),
        ("get pods --file LOG --node gpu-04", {"gpu-04"}),
        ("get pods --file LOG -A research/ll", {"research/llama"}),
        ("get cards --file LOG gpu-04/", {"gpu-04/GPU-0", "gpu-04/GPU-1"}),
        ("blame --file LOG gpu-04/", {"gpu-04/GPU-0", "gpu-04/GPU-1"}),
        ("log --file LOG --card gpu-04/", {"gpu-04/0", "gpu-04/1"}),
        ("log --file LOG --node gpu-04", {"gpu-04"}),
        ("log --file LOG --pod research/ll", {"research/llama"}),
        ("log --file LOG --type boun", {"Bound"}),
        ("ledger --file LOG --held-by research/a1", {"research/a100-only"}),
        ("ledger --file LOG --held-by=rese", {"research", "research/a100-only"}),
        ("usage --by n", {"namespace", "node"}),
        ("simulate --policy rec", {"recorded", ""}),
    ],
)
def test_a_tab_offers_what_the_log_knows(line: str, wanted: set[str], log: Path) -> None:
    assert offered(line, log) == wanted


def test_models_and_modes_of_cards_are_offered(log: Path) -> None:
    for option in ("--model", "--mode"):
        found = offered(f"ledger --file LOG {option} ", log)
        assert found
        for each in found:
            told = CliRunner().invoke(main, ["ledger", option, each, "--file", str(log)])
            assert "GPU-0" in told.stdout, each


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("explain gang --file LOG qu", {"quota"}),
        ("explain job --file LOG qu", {"quota"}),
        ("explain pg --file LOG default/qu", {"default/quota"}),
        ("explain queue --file LOG trai", {"training"}),
        ("queue get --file LOG trai", {"training"}),
        ("queue get --file LOG -n trai", {"training"}),
        ("job list --file LOG -q trai", {"training"}),
        ("log --file LOG --gang qu", {"quota"}),
    ],
)
def test_a_tab_offers_groups_and_queues(line: str, wanted: set[str], queues: Path) -> None:
    assert offered(line, queues) == wanted


def test_jobs_are_offered_by_their_own_name(tmp_path: Path) -> None:
    log = BatchRecorder()
    owner = "11111111-1111-4111-8111-111111111111"
    log.group(f"train-{owner}", 1, 0, 0, owner=owner)
    path = log.write(tmp_path / "jobs.jsonl")
    assert offered("job view --file LOG tr", path) == {"train"}
    assert "train" in offered("explain job --file LOG tr", path)


def test_contexts_are_those_of_the_kubeconfig(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("contexts: [{name: prod, context: {namespace: research}}, {name: dev}, 1]")
    assert offered(f"get pods --kubeconfig {config} --context p", config) == {"prod"}
    assert offered(f"job list --kubeconfig {config} --context d", config) == {"dev"}
    config.write_text("}")
    assert offered(f"get pods --kubeconfig {config} --context p", config) == set()


def test_names_are_those_of_the_chosen_clusters_log_in_its_namespace(
    recorded: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options count although the shell completes outside of the command."""
    config = tmp_path / "config"
    config.write_text("contexts: [{name: prod, context: {namespace: research}}]")
    chosen = []

    @asynccontextmanager
    async def opened(origin: Origin) -> AsyncIterator[FileSource]:
        chosen.append(chosen_cluster())
        yield FileSource(recorded.write(tmp_path / "log.jsonl"))

    monkeypatch.setattr(completion, "open_source", opened)
    for command in ("explain pod", "story", "get pods"):
        line = f"{command} --kubeconfig {config} --context prod ll"
        assert offered(line, config) == {"llama"}
    assert chosen == [Choice(config, "prod")] * 3
    assert offered(f"job view --kubeconfig {config} --context prod x", config) == set()
    assert chosen[3] == Choice(config, "prod")


def test_a_log_that_cannot_be_read_offers_nothing_and_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(origin: Origin) -> None:
        print("cluster: somewhere", file=sys.stderr)
        raise RuntimeError("a defect")

    monkeypatch.setattr(completion, "open_source", broken)
    assert tab("explain", "pod", "x") == []
    assert tab("blame", "") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["expl"], ["explain\tExplain why a pod, gang or queue runs or waits.", ":4"]),
        (["story", "--file", "LOG", "-n", "research", "ll"], ["llama", ":4"]),
        (["fit", "-f", ""], [":0"]),
        (["log", "backup", ""], [":0"]),
        (["get", "podz", ""], [":4"]),
        (["nodes", "--nodes", ""], [":4"]),
    ],
)
def test_kubectl_gets_a_line_each_and_a_directive(
    words: list[str], lines: list[str], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [word.replace("LOG", str(log)) for word in words]
    assert list(completion.kubectl_lines(main, given)) == lines


def test_kubectls_completion_is_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [entry] = entry_points(group="console_scripts", name="kubectl_complete-allot")
    monkeypatch.setattr(sys, "argv", [entry.name, "ver"])
    entry.load()()
    assert capsys.readouterr().out.splitlines()[-1] == ":4"
