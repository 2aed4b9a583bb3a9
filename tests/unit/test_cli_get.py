"""`allot get` as kubectl's users type it: namespaces, names, kinds, order."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from allotment_cli.main import main
from tests import build
from tests.recording import busy_cluster
from tests.recording_batch import BatchRecorder, busy_queues

OWNER = "11111111-1111-4111-8111-111111111111"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy_cluster().write(tmp_path_factory.mktemp("log") / "busy.jsonl")


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy_queues().write(tmp_path_factory.mktemp("log") / "queues.jsonl")


def get(log: Path, *words: str) -> Result:
    env = {"ALLOT_HOME": "/nonexistent/home", "ALLOT_NATS_URL": "", "KUBECONFIG": ""}
    return CliRunner(env=env).invoke(main, ["get", *words, "--file", str(log)])


def names(log: Path, *words: str) -> list[str]:
    result = get(log, *words, "-o", "name")
    assert result.exit_code == 0, result.output
    return result.stdout.split()


def test_pods_are_those_of_one_namespace_unless_all_are_asked_for(log: Path) -> None:
    here, everywhere = names(log, "pods"), names(log, "pods", "-A")
    research = names(log, "pods", "-n", "research")
    assert here
    assert "pod/llama" in research
    assert not {"pod/llama", "pod/research/llama"} & set(here)
    assert len(everywhere) == len(here) + len(research)
    assert "pod/research/llama" in everywhere
    assert names(log, "pods", "-A", "-n", "research") == everywhere, "-A wins, as with kubectl"
    assert "NAMESPACE" in get(log, "pods", "-A").stdout
    assert "NAMESPACE" not in get(log, "pods").stdout


def test_the_namespace_is_that_of_the_kubeconfigs_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Path
) -> None:
    from allotment_cli.read import get as module

    monkeypatch.setattr(module, "usual_namespace", lambda: "research")
    assert "pod/llama" in names(log, "pods")


@pytest.mark.parametrize("words", [("pods",), ("gangs",), ("jobs",)])
def test_an_empty_list_names_its_namespace_on_stderr(words: tuple[str, ...], log: Path) -> None:
    for output in ("text", "wide", "name"):
        result = get(log, *words, "-n", "nobody", "-o", output)
        assert result.exit_code == 0
        assert result.stdout == "", "not even headers"
        assert f"No {words[0]} found in nobody namespace.\n" in result.stderr
    assert f"No {words[0]} found in default namespace.\n" in get(log, *words, "--at", "1").stderr
    assert f"\nNo {words[0]} found.\n" in get(log, *words, "-A", "--at", "1").stderr
    empty = get(log, *words, "-n", "nobody", "-o", "json")
    assert json.loads(empty.stdout)["items"] == []
    assert empty.stderr == ""


def test_an_empty_list_offers_all_namespaces_where_they_have_pods(log: Path) -> None:
    assert "allot get pods -A" in get(log, "pods", "-n", "nobody").stderr
    assert "allot get pods -A" not in get(log, "pods", "-n", "nobody", "--at", "1").stderr


def test_names_may_have_their_kind_before_them(log: Path) -> None:
    assert names(log, "po/big") == ["pod/big"]
    assert names(log, "pod/big", "pod/wrong") == ["pod/big", "pod/wrong"]
    assert names(log, "pods", "pod/big") == ["pod/big"]
    assert names(log, "no/gpu-01") == ["node/gpu-01"]
    assert names(log, "card/gpu-01/GPU-0") == ["card/gpu-01/GPU-0"]
    assert names(log, "po/llama", "-n", "research") == ["pod/llama"]
    assert names(log, "po/research/llama", "big") == ["pod/default/big", "pod/research/llama"]
    assert names(log, "po", "llama", "-A") == ["pod/research/llama"]
    wrong = get(log, "po/big", "no/gpu-01")
    assert wrong.exit_code == 2
    assert "no/gpu-01 is no pod" in wrong.stderr


def test_unknown_names_do_not_hide_the_known_ones(log: Path) -> None:
    result = get(log, "pod", "big", "nobody", "bigg", "research/lama")
    assert result.exit_code == 1
    assert "big" in result.stdout
    assert "pod default/nobody is not in the log at seq" in result.stderr
    assert "did you mean default/big?" in result.stderr
    assert "did you mean research/llama?" in result.stderr
    alone = get(log, "po/nobody")
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert "No pods found" not in alone.stderr
    document = get(log, "node", "gpu-01", "gpu-99", "-o", "json")
    assert document.exit_code == 1
    assert [item["name"] for item in json.loads(document.stdout)["items"]] == ["gpu-01"]
    assert "node gpu-99 is not in the log" in document.stderr
    elsewhere = get(log, "pod", "llama")
    assert elsewhere.exit_code == 1
    assert "did you mean research/llama?" in elsewhere.stderr


def test_a_known_pod_that_another_option_leaves_out_is_not_called_unknown(log: Path) -> None:
    result = get(log, "pod", "big", "--pending")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "is not in the log" not in result.stderr


@pytest.mark.parametrize("word", ["queue", "queues", "q"])
def test_queues_are_listed_as_the_log_has_them(word: str, queues: Path) -> None:
    assert "queue/training" in names(queues, word)
    assert names(queues, f"{word}/training") == ["queue/training"]
    listed = json.loads(get(queues, word, "-o", "json").stdout)
    past = CliRunner().invoke(main, ["queue", "list", "-o", "json", "--file", str(queues)])
    assert listed["schema"] == "allotment.dev/queues/v1"
    assert listed["items"] == json.loads(past.stdout)["items"]


@pytest.mark.parametrize("word", ["gang", "gangs", "podgroups", "pg"])
def test_gangs_say_what_they_wait_for(word: str, queues: Path) -> None:
    items = {i["name"]: i for i in json.loads(get(queues, word, "-o", "json").stdout)["items"]}
    assert items["llama"]["phase"] == "Inqueue"
    assert items["llama"]["cause"] == ""
    assert items["quota"]["cause"] == "QueueQuotaInsufficient"
    assert items["lost"]["queue"]
    for name in items:
        shown = CliRunner().invoke(main, ["explain", f"gang/{name}", "--file", str(queues)])
        assert shown.exit_code == 0, name


def test_a_group_that_only_pods_name_is_listed(tmp_path: Path) -> None:
    log = BatchRecorder()
    log.queue("default")
    log.group("made", 2, 2, 1000)
    log.append("allot.log.pod.x", "watcher", build.pod("x", group="default/missing"))
    [missing] = [
        item
        for item in json.loads(get(log.write(tmp_path / "l.jsonl"), "gangs", "-o", "json").stdout)[
            "items"
        ]
        if item["name"] == "missing"
    ]
    assert (missing["phase"], missing["pods"]) == ("Unseen", 1)


@pytest.mark.parametrize("word", ["job", "jobs", "vcjob"])
def test_jobs_are_listed_by_their_groups(word: str, tmp_path: Path) -> None:
    log = BatchRecorder()
    log.group(f"train-{OWNER}", 2, 3, 1000, owner=OWNER)
    path = log.write(tmp_path / "jobs.jsonl")
    assert names(path, word) == ["job/train"]
    [row] = json.loads(get(path, word, "-o", "json").stdout)["items"]
    assert (row["min"], row["replicas"], row["pending"]) == (2, 3, 3)
    assert get(path, f"{word}/train").exit_code == 0


def test_rows_are_sorted_by_a_column(log: Path) -> None:
    free = [
        item["freeMemoryBytes"]
        for item in json.loads(get(log, "cards", "--sort-by", "free", "-o", "json").stdout)["items"]
    ]
    assert free == sorted(free)
    assert len(set(free)) > 3
    pods = json.loads(get(log, "pods", "-A", "--sort-by", "memory", "-o", "json").stdout)["items"]
    assert [p["memoryBytes"] for p in pods] == sorted(p["memoryBytes"] for p in pods)
    by_node = json.loads(get(log, "pods", "--sort-by", "node", "-o", "json").stdout)["items"]
    assert [p["node"] for p in by_node] == sorted(p["node"] for p in by_node)


def test_kubectls_paths_name_columns(log: Path) -> None:
    def order(word: str, key: str) -> list[object]:
        result = get(log, "pods", "-A", f"--sort-by={word}", "-o", "json")
        assert result.exit_code == 0, result.output
        return [item[key] for item in json.loads(result.stdout)["items"]]

    for word in (".metadata.creationTimestamp", "{.metadata.creationTimestamp}", "created"):
        assert order(word, "createdMs") == sorted(order("name", "createdMs"))  # type: ignore[type-var]
    assert order(".metadata.name", "name") == sorted(order("created", "name"))  # type: ignore[type-var]
    assert order(".spec.nodeName", "node") == sorted(order("name", "node"))  # type: ignore[type-var]
    wrong = get(log, "pods", "--sort-by", ".status.phases")
    assert wrong.exit_code == 2
    assert "'memory'" in wrong.stderr
