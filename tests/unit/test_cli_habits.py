"""What fingers used to kubectl type: flags, singulars, short names, and words that are misspelt."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from allotment_cli.main import main
from tests.recording import busy_cluster


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy_cluster().write(tmp_path_factory.mktemp("log") / "busy.jsonl")


def allot(log: Path, *words: str) -> Result:
    env = {"ALLOT_HOME": "/nonexistent/home", "ALLOT_NATS_URL": "", "KUBECONFIG": ""}
    return CliRunner(env=env).invoke(main, [*words, "--file", str(log)])


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "research/llama"),
        ("explain", "pod/research/llama"),
        ("explain", "po", "research/llama"),
        ("explain", "pods", "llama", "-n", "research"),
        ("explain", "llama", "--namespace", "research"),
        ("describe", "pod/llama", "-n", "research"),
    ],
)
def test_every_spelling_of_a_pod_explains_it(words: tuple[str, ...], log: Path) -> None:
    wanted = allot(log, "explain", "pod", "research/llama")
    result = allot(log, *words)
    assert result.exit_code == 0, result.output
    assert (result.stdout, result.stderr) == (wanted.stdout, wanted.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("explian", "pod", "big"), "No such command 'explian'. Did you mean 'explain'?"),
        (("explain", "pdo", "big"), "No such command 'pdo'. Did you mean 'pod'?"),
        (("gte", "pods"), "No such command 'gte'. Did you mean 'get'?"),
        (("zzz",), "No such command 'zzz'. One of: "),
        (("explain", "big", "-n", "other"), "did you mean default/big?"),
        (("explain", "research/llama", "-n", "default"), "is not in namespace default"),
        (("log", "-n", "research"), "-n is the namespace of --pod"),
    ],
)
def test_a_word_that_is_not_known_is_answered_with_one_that_is(
    words: tuple[str, ...], said: str, log: Path
) -> None:
    result = allot(log, *words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "pod", "research/llama"),
        ("doctor",),
        ("log", "--pod", "big"),
        ("log", "--pod", "llama", "-n", "research"),
    ],
)
def test_yaml_says_what_json_says(words: tuple[str, ...], log: Path) -> None:
    as_json = allot(log, *words, "-o", "json")
    as_yaml = allot(log, *words, "-o", "yaml")
    assert as_yaml.exit_code == as_json.exit_code
    assert yaml.safe_load(as_yaml.stdout) == json.loads(as_json.stdout)


def test_yaml_cannot_follow_either(log: Path) -> None:
    result = CliRunner().invoke(main, ["log", "-w", "-o", "yaml"])
    assert result.exit_code == 2
    assert "-o yaml is one document and cannot follow" in result.stderr


def test_version_flag() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("allot ")
