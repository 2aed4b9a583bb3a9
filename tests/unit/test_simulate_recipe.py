"""The YAML of shapes and rates: what is drawn from it, and that every mistake is named."""

from pathlib import Path
from random import Random

import pytest

from allotment_lab.simulate.recipe import HOUR_S, parse_recipe
from allotment_lab.workload import WorkloadError
from tests.simulating import TEXT

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples" / "simulate"


def test_pods_and_nodes_are_those_of_a_cluster() -> None:
    recipe = parse_recipe(TEXT, "w.yaml")
    train, serve, stay = recipe.pods
    (ask,) = train.fact.request.devices
    assert (ask.family, ask.count, ask.memory_mib) == ("vgpu", 2, 8000)
    assert train.fact.request.selection.use_types == ("A100",)
    assert (train.fact.priority, train.runs_for_s, train.is_mean) == (5, 2 * HOUR_S, False)
    assert (serve.fact.request.cpu_milli, serve.runs_for_s, serve.is_mean) == (500, 1800, True)
    assert stay.runs_for_s is None
    assert [node.name for node in recipe.nodes] == ["a-0", "a-1"]
    assert [len(node.inventories[0].cards) for node in recipe.nodes] == [8, 8]


def test_arrivals_come_at_their_rate_and_the_seed_decides_when() -> None:
    recipe = parse_recipe(TEXT, "w.yaml")
    drawn = recipe.draw(Random(1))
    names = [arrival.fact.name for arrival in drawn.arrivals]
    assert 900 < sum(name.startswith("train") for name in names) < 1100
    assert 30 < sum(name.startswith("serve") for name in names) < 75
    assert len(set(names)) == len(names)
    times = [arrival.created_s for arrival in drawn.arrivals]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 100 * HOUR_S
    assert drawn == recipe.draw(Random(1))
    assert drawn != recipe.draw(Random(2))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), (".5h", 1800), ("2d", 172_800)]
)
def test_a_time_is_read_as_everywhere(text: str, seconds: int) -> None:
    recipe = parse_recipe(TEXT.replace("runs_for: 2h", f"runs_for: {text}", 1), "w.yaml")
    assert recipe.pods[0].runs_for_s == seconds


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_can_be_read(file: Path) -> None:
    assert file.read_text().startswith("# "), "a comment says what it shows"
    assert parse_recipe(file.read_text(), file.name).draw(Random(1)).ours


@pytest.mark.parametrize(
    ("find", "put", "problem"),
    [
        ("lasts: 100h", "lasts: 100", "w.yaml:2: lasts is 100; wanted: a time like 90s"),
        ("lasts: 100h", "lasts: 99999999d", "'99999999d'; wanted: a time like 90s, 15m, 6h or 2d,"),
        (
            "lasts: 100h",
            "lasts: 0h",
            "lasts is '0h'; wanted: a time like 90s, 15m, 6h or 2d, from ",
        ),
        ("lasts: 100h", "lasts: 1500ms", "lasts is '1500ms'; wanted: a time like 90s, 15m, 6h or"),
        ("runs_for: 2h", "runs_for: -4h", "a time like 90s, 15m, 6h or 2d, from 1s to 100000d"),
        ("per_hour: 10", "per_hours: 10", "pods[0].per_hours is not known; did you mean per_hour?"),
        ("count: 2\n", "cuont: 2\n", "w.yaml:5: nodes[0].cuont is not known; did you mean count?"),
        ("nodes:", "nods:", "w.yaml:2: nodes is missing; wanted: a list of nodes"),
        ("lasts: 100h", "lasts: 10000d", "pods'; wanted: at most 2000000 pods in all"),
        (
            "count: 2\n",
            "count: 0\n",
            "w.yaml:5: nodes[0].count is 0; wanted: a whole number from 1",
        ),
        (
            "count: 2\n",
            "count: 2\n    cpu: 80000000000000\n",
            "w.yaml:6: nodes[0].cpu is 80000000000000; wanted: one that can be used: ",
        ),
        ("count: 2\n", "count: 2\n    memory: 9999Ei\n", "w.yaml:6: nodes[0].memory is '9999Ei'"),
        ("name: train", "name: Train", "w.yaml:8: pods[0].name is 'Train'; wanted: lower case"),
        ("name: serve", "name: train", "w.yaml:14: pods[1].name is 'train'; wanted: a name of its"),
        ("per_hour: 10", "per_hour: 0", "w.yaml:9: pods[0].per_hour is 0; wanted: a number above"),
        ("per_hour: 10", "per_hour: .nan", "pods[0].per_hour is nan; wanted: a number above 0"),
        ("runs_for: 2h", "runs_for: soon", "w.yaml:10: pods[0].runs_for is 'soon'; wanted: a time"),
        ("priority: 5", "priority: high", "w.yaml:11: pods[0].priority is 'high'; wanted: a whole"),
        ("vgpu-number: 2", "vgpu-number: -2", "volcano.sh/vgpu-number"),
        ("limits: {cpu: 1}", "limits: [1]", "w.yaml:20: pods[2].limits is [1]; wanted: a mapping"),
        (
            "limits: {cpu: 1}",
            "limit: {cpu: 1}",
            "w.yaml:20: pods[2].limit is not known; did you mean limits?",
        ),
        ("runs_for_mean: 30m", "runs_for: 1h\n    runs_for_mean: 30m", "wanted: runs_for or"),
        ("lasts", ": :", "w.yaml:2: not valid YAML"),
    ],
)
def test_a_mistake_is_named(find: str, put: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        parse_recipe(TEXT.replace(find, put, 1), "w.yaml")
    assert problem in "\n".join(raised.value.problems)


@pytest.mark.parametrize("text", ["", "[]", "lasts: 1h", "nodes: []\npods: []\nlasts: 1h"])
def test_what_is_missing_is_named(text: str) -> None:
    with pytest.raises(WorkloadError, match="wanted: "):
        parse_recipe(text, "w.yaml")


def test_what_is_wrong_with_a_shape_is_said_once() -> None:
    with pytest.raises(WorkloadError) as raised:
        parse_recipe(TEXT.replace("count: 2\n", "count: 2\n    cpu: 80000000000000\n"), "w.yaml")
    assert len(raised.value.problems) == 1
