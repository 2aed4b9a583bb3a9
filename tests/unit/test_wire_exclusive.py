"""Exclusivity rules and pod groups."""

import pytest

from allotment_proto.volcano import exclusive, keys

TRAINING = (("app", "training"), ("team", "ml"))
INFERENCE = (("workload", "inference"),)
RULES = (TRAINING, INFERENCE)


def test_the_text_of_a_rule() -> None:
    assert exclusive.rule_text(TRAINING) == "app=training,team=ml"


@pytest.mark.parametrize(
    ("labels", "matching"),
    [
        ({"app": "training", "team": "ml", "x": "y"}, (0,)),
        ({"app": "training", "team": "data"}, ()),
        ({"workload": "inference"}, (1,)),
        ({"app": "training", "team": "ml", "workload": "inference"}, (0, 1)),
        ({}, ()),
    ],
)
def test_which_rules_a_pod_matches(labels: dict[str, str], matching: tuple[int, ...]) -> None:
    assert exclusive.matching_rules(RULES, labels) == matching
    assert exclusive.rule_tags(RULES, labels) == tuple(
        ("exclusive:app=training,team=ml", "exclusive:workload=inference")[number]
        for number in matching
    )


def test_groups() -> None:
    first = {keys.GROUP_NAME: "a", keys.GROUP_NAME_VOLCANO: "b"}
    assert exclusive.group_key("ns", first) == "ns/a"
    assert exclusive.group_key("ns", {keys.GROUP_NAME: "", keys.GROUP_NAME_VOLCANO: "b"}) == "ns/b"
    assert exclusive.group_key("ns", {}) == ""
    assert exclusive.group_tag("ns/a") == ("group:ns/a",)
    assert exclusive.group_tag("") == ()


def test_the_policy_of_a_group() -> None:
    assert exclusive.spreads({keys.PODGROUP_POLICY: "spread"}) == (True, ())
    assert exclusive.spreads({keys.PODGROUP_POLICY: ""}) == (False, ())
    assert exclusive.spreads({}) == (False, ())
    spreads, (problem,) = exclusive.spreads({keys.PODGROUP_POLICY: "binpack"})
    assert not spreads
    assert problem.message == "is 'binpack'; wanted: spread"
