"""Every scenario of this folder, played; and what is said of files and worlds that are wrong."""

from pathlib import Path

import pytest

from tests.scenarios.scene import play
from tests.scenarios.schema import Scenario, ScenarioError, read

FOLDER = Path(__file__).parent
SCENARIOS = [
    pytest.param(scenario, id=f"{path.stem}: {scenario.name}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for scenario in read(path)
]
SMALL = """about: One pod.
scenarios:
- name: it is placed
  nodes: {n1: 1}
  pods: {a: {}}
  steps:
  - round
  - expect: {placed: {a: n1}}
"""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: Scenario, tmp_path: Path) -> None:
    play(scenario, tmp_path)


def changed(tmp_path: Path, old: str, new: str) -> list[Scenario]:
    """The small file with a part of it replaced."""
    path = tmp_path / "small.yaml"
    assert old in SMALL
    path.write_text(SMALL.replace(old, new))
    return read(path)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("nodes:", "node:", "small.yaml:4: scenarios[0].node is not known; did you mean nodes?"),
        ("about: One pod.\n", "", "small.yaml:1: about is missing; wanted: a sentence"),
        ("a: {}", "a: {card: 1}", "scenarios[0].pods.a.card is not known; did you mean cards?"),
        ("a: {}", "a: {cards: two}", "pods.a.cards: 'two'; wanted: a whole number"),
        ("a: {}", "a: {cards: }", "pods.a.cards: ''; wanted: a whole number"),
        ("n1: 1", "n1: [1]", "nodes.n1: [1]; wanted: a mapping of names to values"),
        ("- round", "- rond", "small.yaml:7: scenarios[0].steps[0].rond is not known; did you"),
        ("- round", "- advance: soon", "steps[0].advance: 'soon'; wanted: a whole number"),
        ("placed: {a", "place: {a", "expect.place is not known; did you mean placed?"),
        ("{a: n1}", "[a]", "expect.placed: ['a']; wanted: names, how many there are, or a text"),
        ("a: {}", "a: {}, a: {}", "pods.a: 'a' is repeated; wanted: each name once"),
        ("  nodes", "  configuration: {actions: fly}\n  nodes", "scenarios[0].configuration: '…'"),
        ("- name", "  name", "scenarios: {"),
        ("{n1: 1}", "{n1: 1", "not valid YAML"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_place(
    old: str, new: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError) as refused:
        changed(tmp_path, old, new)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "failure"),
    [
        ("a: n1", "a: n2", "small.yaml:8: placed: expected {'a': 'n2'}, found {'a': 'n1'}"),
        ("{a: n1}", "a b", "small.yaml:8: placed: expected a b, found a"),
        ("{a: n1}", "2", "small.yaml:8: placed: expected 2, found 1 (a)"),
        ("placed: {a: n1}", "waiting: {a: X}", "waiting a: expected ('Pending', 'X'), found"),
        ("placed: {a: n1}", "waiting: {b: X}", "small.yaml:8: there is no pod b"),
        ("placed: {a: n1}", "shows: {explain pod a: zzz}", "explain pod a does not say 'zzz'"),
        ("placed: {a: n1}", "hides: {explain pod a: n1}", "explain pod a shows 'n1'"),
        ("placed: {a: n1}", "shows: {explain pod b: z}", "allot explain pod b fails"),
        ("- expect: {placed: {a: n1}}", "- gone: a\n  - run: a", "small.yaml:9: there is no pod a"),
    ],
)
def test_what_comes_out_otherwise_is_named_with_its_place(
    old: str, new: str, failure: str, tmp_path: Path
) -> None:
    (scenario,) = changed(tmp_path, old, new)
    with pytest.raises(AssertionError) as failed:
        play(scenario, tmp_path)
    assert failure in str(failed.value)
