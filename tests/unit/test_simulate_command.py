"""`allot simulate` on small files: what it prints, draws, keeps, and how it says no."""

import csv
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from allotment_cli.main import main
from allotment_cli.plan import simulate as command
from allotment_lab import measures
from allotment_lab.policies import COMPARED
from allotment_lab.simulate.policies import NAMES
from allotment_lab.simulate.run import simulate as run_once
from tests import build
from tests.recording import Recorder, busy_cluster
from tests.simulating import CONFIGURATION, NODES, TEXT, simulate

WANTED = (
    "policy",
    "seed",
    "arrived_percent",
    "allocation_percent",
    "unallocated_cards",
    "fragmentation_percent",
    "placed",
    "refused",
)


def test_a_run_is_one_object_on_one_line(trace: list[str]) -> None:
    arguments = [*trace, "--policy", "binpack", "--inflate", "1.3", "--seed", "42", "--json"]
    result = simulate(*arguments)
    (line,) = result.stdout.splitlines()
    facts = msgspec.json.decode(line)
    assert set(WANTED) <= set(facts)
    assert facts["arrived_percent"] >= 130
    assert facts["placed"] + facts["refused"] == facts["arrived"]
    assert facts["unallocated_cards"] == pytest.approx(
        16 * (1 - facts["allocation_percent"] / 100), abs=0.01
    )
    again = msgspec.json.decode(simulate(*arguments).stdout)
    assert again["trace_sha256"] == facts["trace_sha256"]


def test_policies_and_seeds_are_runs_of_their_own_with_their_mean(trace: list[str]) -> None:
    result = simulate(
        *trace, "--policy", "spread", "--policy", "random", "--inflate", "1.3", "--repeat", "3"
    )
    assert len(re.findall(r"^spread +4[234] ", result.stdout, re.MULTILINE)) >= 3
    assert "mean of the runs:" in result.stdout
    as_json = simulate(*trace, "--policy", "spread", "--repeat", "3", "--json")
    runs = [msgspec.json.decode(line) for line in as_json.stdout.splitlines()]
    assert [run["seed"] for run in runs] == [42, 43, 44]
    assert "mean of the runs:" in as_json.stderr


@pytest.mark.parametrize("policy", NAMES)
def test_every_named_policy_places_pods(trace: list[str], policy: str) -> None:
    result = simulate(*trace, "--policy", policy, "--inflate", "1.3", "--json")
    assert msgspec.json.decode(result.stdout)["allocation_percent"] > 50


def test_a_configuration_file_is_a_policy(trace: list[str], tmp_path: Path) -> None:
    path = tmp_path / "scheduler.conf"
    path.write_text(CONFIGURATION)
    run = msgspec.json.decode(simulate(*trace, "--policy", str(path), "--json").stdout)
    assert run["policy"] == str(path)
    path.write_text(CONFIGURATION.replace("10", "101"))
    result = simulate(*trace, "--policy", str(path), code=2)
    assert ":6:81: deviceshare.ScheduleWeight of plugin deviceshare is 101" in result.stderr


def test_churn_reports_waits(trace: list[str]) -> None:
    result = simulate(*trace, "--churn", "--inflate", "4", "--json")
    run = msgspec.json.decode(result.stdout)
    assert run["mode"] == "churn"
    assert run["wait_p99_s"] > run["wait_p50_s"] >= 0
    assert run["peak_allocation_percent"] > run["allocation_percent"] > 0
    assert "WAIT P99" in simulate(*trace, "--churn").stdout


def test_a_kept_run_can_be_verified_and_is_a_workload(trace: list[str], tmp_path: Path) -> None:
    kept = str(tmp_path / "run.jsonl")
    first = simulate(*trace, "--inflate", "1.3", "--record", kept, "--json")
    assert f"next: allot replay --verify --file {kept}" in first.stderr
    verified = CliRunner().invoke(main, ["replay", "--verify", "--file", kept, "-o", "json"])
    report = msgspec.json.decode(verified.stdout)
    assert report["identical"] == report["decisions"] > 0
    again = msgspec.json.decode(simulate("--file", kept, "--no-churn", "--json").stdout)
    then = msgspec.json.decode(first.stdout)
    assert again["policy"] == "recorded"
    assert again["arrived"] == then["arrived"]


def test_an_exported_log_and_a_recipe_are_workloads(tmp_path: Path) -> None:
    log = busy_cluster().write(tmp_path / "log.jsonl")
    run = msgspec.json.decode(simulate("--file", str(log), "--json").stdout)
    assert (run["mode"], run["policy"]) == ("churn", "recorded")
    assert run["placed"] > 0
    recipe = tmp_path / "w.yaml"
    recipe.write_text(TEXT.replace("100h", "10h"))
    assert msgspec.json.decode(simulate("--workload", str(recipe), "--json").stdout)["placed"] > 0


def test_the_allocation_of_every_run_is_written(trace: list[str], tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    words = ["--policy", "binpack", "--policy", "spread", "--repeat", "2", "--csv", str(path)]
    printed = simulate(*trace, *words, "--json").stdout
    rows = rows_of(path)
    assert list(rows[0]) == ["policy", "seed", "arrived_percent", "allocated_percent"]
    for report in map(msgspec.json.decode, printed.splitlines()):
        of_run = report["policy"], str(report["seed"])
        *_, last = (row for row in rows if (row["policy"], row["seed"]) == of_run)
        for column, figure in (("arrived", "arrived"), ("allocated", "allocation")):
            shown = report[f"{figure}_percent"]
            assert float(last[f"{column}_percent"]) == pytest.approx(shown, abs=0.1)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "it is not clear what to simulate"),
        (["--nodes", "x"], "--pods is missing"),
        (["--pods", "x"], "--nodes is missing"),
        (["--file", "x", "--workload", "y"], "it is not clear what to simulate"),
        (["--file", "absent.jsonl"], "absent.jsonl cannot be read"),
        (["--workload", "absent.yaml"], "absent.yaml cannot be read"),
    ],
)
def test_what_is_asked_for_must_be_clear(arguments: list[str], said: str) -> None:
    assert said in simulate(*arguments, code=2).stderr


def test_other_nos_say_what_would_be_right(trace: list[str], tmp_path: Path) -> None:
    said = simulate(*trace, "--policy", "best", code=2).stderr
    assert "--policy 'best' is neither a policy nor a file" in said
    assert ", ".join(NAMES) in said
    kept = ["--record", str(tmp_path / "x.jsonl")]
    for more in (
        ["--repeat", "2"],
        ["--policy", "random"],
        ["--policy", "none", "--policy", "spread"],
    ):
        assert "--record keeps one run" in simulate(*trace, *kept, *more, code=2).stderr
    assert "does not exist" in simulate(*trace, "--csv", "/absent/x.csv", code=2).stderr
    assert "does not exist" in simulate(*trace, "--record", "/absent/x", code=2).stderr
    assert "real time" in simulate(*trace, "--through", "services", "--churn", code=2).stderr
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,0,0\n")
    assert "does not say when pods come" in simulate(*trace, "--churn", code=2).stderr
    assert "none of the pods asks for a card" in simulate(*trace, "--inflate", "2", code=2).stderr
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n")
    assert "the nodes have no cards" in simulate(*trace, "--inflate", "2", code=2).stderr


def test_fgd_learns_all_shapes_as_published() -> None:
    pods = [build.request(build.wants(8_000, 0), cpu_milli=1_000 + n % 30) for n in range(60)]
    [learned] = measures.learned("fgd", pods, [build.node()])
    assert len(learned.mix) == 29
    [learned] = measures.learned("fill-ahead", pods, [build.node()])
    assert len(learned.mix) == 1, "they want the same of cards"


@pytest.mark.parametrize("name", ["random", *COMPARED])
def test_a_policy_that_is_there_for_comparison_is_not_of_services(
    name: str, trace: list[str], tmp_path: Path
) -> None:
    arguments = [*trace, "--inflate", "0.7", "--policy", name]
    kept = str(tmp_path / "run.jsonl")
    said = simulate(*arguments, "--record", kept, code=2).stderr
    assert "give one --policy of binpack, spread, none, best-fit, fill-ahead or a file" in said
    said = simulate(*arguments, "--through", "services", code=2).stderr
    assert f"no service places by {name}" in said
    (tmp_path / "own.conf").write_text(CONFIGURATION.replace("spread", name))
    said = simulate(*trace, "--policy", str(tmp_path / "own.conf"), code=2).stderr
    assert "wanted: one of binpack, spread, none, best-fit, fill-ahead" in said


def test_a_recorded_run_knows_the_mix_that_it_was_decided_with(
    trace: list[str], tmp_path: Path
) -> None:
    kept = str(tmp_path / "run.jsonl")
    drawn = ["--inflate", "0.7", "--policy", "fill-ahead", "--record", kept, "--json"]
    first = msgspec.json.decode(simulate(*trace, *drawn).stdout)
    again = simulate("--file", kept, "--policy", "recorded", "--no-churn", "--json")
    assert msgspec.json.decode(again.stdout)["trace_sha256"] == first["trace_sha256"]


def test_seeds_that_make_no_difference_are_not_repeated(trace: list[str], tmp_path: Path) -> None:
    log = str(busy_cluster().write(tmp_path / "log.jsonl"))
    twice = ["--repeat", "2"]
    for same in (["--file", log], ["--file", log, "--no-churn"], [*trace, "--churn"]):
        said = simulate(*same, *twice, code=2).stderr
        assert "every seed gives the same run here" in said
        assert "STD DEV" in simulate(*same, *twice, "--policy", "random").stdout
        assert "STD DEV" in simulate(*same, *twice, "--inflate", "1.1").stdout
    mixed = ["--policy", "random", "--policy", "spread"]
    assert "every seed" in simulate("--file", log, *mixed, *twice, code=2).stderr


def test_seeds_are_repeated_exactly_where_they_make_a_difference(trace: list[str]) -> None:
    """What is refused really is the same run, and what is not is not."""
    runs = {
        (is_churn, seed): msgspec.json.decode(
            simulate(*trace, is_churn, "--seed", seed, "--json").stdout
        )["trace_sha256"]
        for is_churn in ("--churn", "--no-churn")
        for seed in ("1", "2")
    }
    assert runs["--churn", "1"] == runs["--churn", "2"]
    assert runs["--no-churn", "1"] != runs["--no-churn", "2"]


def test_what_cannot_be_measured_is_refused_and_what_is_left_out_is_said(
    trace: list[str], tmp_path: Path
) -> None:
    assert "waits are those of placed pods" in simulate(*trace, "--churn").stdout
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,9000,9000,1,A\n")
    assert simulate(*trace).stdout.startswith("1 node, 1 card;")
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,9000,9000,0,\n")
    assert "the nodes have no cards" in simulate(*trace, code=2).stderr


def test_a_log_is_compared_with_itself_before_policies_are(tmp_path: Path) -> None:
    """A comparison whose zero is wrong misleads: so its zero is shown, and refused if it is."""
    log = Recorder()
    log.node("n1", cards=2)
    for number in range(4):
        log.decide(log.pod(f"p{number}"))
    path = str(log.write(tmp_path / "log.jsonl"))
    for policy in ("recorded", "spread"):
        assert "the log placed 4 pods" in simulate("--file", path, "--policy", policy).stderr
    log.node("n1", cards=2, cpu_milli=0)  # nodes are those at the end of the log
    path = str(log.write(tmp_path / "shrunk.jsonl"))
    assert "(-100.0%)" in simulate("--file", path).stderr
    refused = simulate("--file", path, "--policy", "spread", code=2)
    assert "cannot compare policies" in refused.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_runs_that_were_finished_before_ctrl_c_are_kept(
    as_json: bool, trace: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []

    def stopped(*given: Any) -> Any:
        if len(runs) == 3:
            raise KeyboardInterrupt
        runs.append(given)
        return run_once(*given)

    monkeypatch.setattr(command, "run_once", stopped)
    written = tmp_path / "x.csv"
    words = [*trace, "--policy", "binpack", "--policy", "spread", "--repeat", "100"]
    words += ["--json"] if as_json else []
    result = simulate(*words, "--csv", str(written), code=130)
    assert "stopped: 3 of 200 runs are finished" in result.stderr
    assert "allot: stopped by SIGINT" in result.stderr
    assert {row["policy"] for row in rows_of(written)} == {"binpack", "spread"}
    if as_json:
        found = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
        assert [(run["policy"], run["seed"]) for run in found] == [
            ("binpack", 42),
            ("spread", 42),
            ("binpack", 43),
        ]
    else:
        assert len(re.findall("^(?:binpack|spread) +4[23] ", result.stdout, re.MULTILINE)) == 3
        assert "mean of the runs:" in result.stdout


def test_ctrl_c_before_the_first_run_ends_says_only_that(
    trace: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_once", stopped)
    result = simulate(*trace, code=130)
    assert result.stdout == ""
    assert "stopped: 0 of 1 runs are finished" in result.stderr


def test_all_runs_have_one_bar(trace: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[tuple[str, int]] = []
    done: list[int] = []

    @contextmanager
    def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
        bars.append((title, total))
        yield done.append

    monkeypatch.setattr(command, "progress", bar)
    simulate(*trace, "--policy", "binpack", "--policy", "spread", "--repeat", "3")
    [(title, total)] = bars
    assert title == "6 runs"
    assert sum(done) == total
    assert len(done) > 6 * 10, "it moves within runs"
    assert min(done) >= 0


def test_pods_that_start_later_under_another_policy_are_named(trace: list[str]) -> None:
    words = [*trace, "--churn", "--inflate", "4", "--policy", "binpack", "--policy", "spread"]
    said = simulate(*words).stdout
    title = "pods that start at another time than under binpack, or never (seed 42):"
    below = said.partition(title)[2]
    assert re.search(r"^spread +(later|never) +\d+  p\d+", below, re.MULTILINE)
    assert title in simulate(*words, "--json").stderr
    assert title not in simulate(*trace, "--churn").stdout


def test_what_is_allocated_holds_until_something_happens(tmp_path: Path) -> None:
    """A long job that ends last: a step, and no slope from its start to its end."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES)
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"
    short = "".join(f"s{n},1,1,1,1000,{n},{n + 5}\n" for n in range(3000))
    pods.write_text(f"{head}long,1,1,1,1000,0,200000\n{short}")
    written = tmp_path / "x.csv"
    simulate("--nodes", str(nodes), "--pods", str(pods), "--churn", "--csv", str(written))
    points = [(float(r["seconds"]), float(r["allocated_percent"])) for r in rows_of(written)]
    (before, alone), (last, end) = points[-2:]
    assert last - before > 150_000, "the long job runs alone for most of the time"
    assert 0 < alone < max(percent for _, percent in points) / 4, "one card of at least five"
    assert end == 0, "nothing is allocated in the end"
