"""GPU exclusivity rules and the pod group policy: whose pods keep apart on a card.

A rule is a map of labels; pods that carry them all share no card. A pod's tags say what it is to
others, ``exclusive:<rule>`` for each rule it matches and ``group:<namespace>/<name>``.

Source: volcano `plugins/deviceshare/gpuexclusive.go`, `vgpu/utils.go` (deviceshare 3.4, 4.8).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from allotment_proto.facts import Problem
from allotment_proto.volcano import keys
from allotment_proto.volcano.reading import is_text, shown

Rule = tuple[tuple[str, str], ...]
"""Labels, sorted by key."""
INVALID = "InvalidExclusiveRule"


def parse_rules(value: Any, place: str) -> tuple[tuple[Rule, ...], tuple[Problem, ...]]:
    """The rules of `deviceshare.GPUExclusiveRules`, each once, and what in it cannot be meant.

    As in Volcano a label whose value is no text is left out, and a rule without labels is none;
    but both are said, because the rule then is not what was written.
    """
    if value is None:
        return (), ()
    if not isinstance(value, list):
        problem = Problem(INVALID, place, f"is {shown(value)}; wanted: a list of label maps")
        return (), (problem,)
    rules: list[Rule] = []
    problems: list[Problem] = []
    for number, item in enumerate(value):
        where = f"{place}[{number}]"
        if not isinstance(item, dict):
            problems.append(Problem(INVALID, where, f"is {shown(item)}; wanted: a map of labels"))
            continue
        labels: dict[str, str] = {}
        for key, label in item.items():
            if is_text(key) and is_text(label):
                labels[key] = label
            else:
                problems.append(
                    Problem(
                        INVALID,
                        where,
                        f"{shown(key)}: {shown(label)} is left out; wanted: a text (in quotes)",
                    )
                )
        if labels:
            rules.append(tuple(sorted(labels.items())))
        elif not item:
            problems.append(Problem(INVALID, where, "has no labels, so it is no rule"))
    return tuple(dict.fromkeys(rules)), tuple(problems)


def rule_text(rule: Rule) -> str:
    """The canonical text of a rule: ``app=training,team=ml``."""
    return ",".join(f"{key}={value}" for key, value in rule)


def matches(rule: Rule, labels: Mapping[str, str]) -> bool:
    """Whether a pod with these labels is one of the rule's."""
    return all(labels.get(key) == value for key, value in rule)


def matching_rules(rules: Sequence[Rule], labels: Mapping[str, str]) -> tuple[int, ...]:
    """The positions of all rules that a pod matches."""
    return tuple(number for number, rule in enumerate(rules) if matches(rule, labels))


def rule_tags(rules: Sequence[Rule], labels: Mapping[str, str]) -> tuple[str, ...]:
    """A pod's tags for the rules it matches. It keeps apart from pods that have one of them."""
    return tuple(
        f"exclusive:{rule_text(rules[number])}" for number in matching_rules(rules, labels)
    )


def group_name(annotations: Mapping[str, str]) -> str:
    """The name of the pod's PodGroup, under either of Volcano's keys; empty if it has none."""
    named = annotations.get(keys.GROUP_NAME) or annotations.get(keys.GROUP_NAME_VOLCANO)
    return named or ""


def group_key(namespace: str, annotations: Mapping[str, str]) -> str:
    """``<namespace>/<name>`` of the pod's PodGroup, empty if it has none."""
    name = group_name(annotations)
    return f"{namespace}/{name}" if name else ""


def group_tag(group: str) -> tuple[str, ...]:
    """The tag of a pod for its group (`group_key`), if it has one."""
    return (f"group:{group}",) if group else ()


def spreads(annotations: Mapping[str, str]) -> tuple[bool, tuple[Problem, ...]]:
    """Whether a pod wants no card that holds another of its group, and whether it said so well."""
    policy = annotations.get(keys.PODGROUP_POLICY)
    if policy in (None, "", keys.PODGROUP_SPREAD):
        return policy == keys.PODGROUP_SPREAD, ()
    return False, (
        Problem(
            "InvalidSelection",
            f"annotation {keys.PODGROUP_POLICY}",
            f"is {shown(policy)}; wanted: {keys.PODGROUP_SPREAD}",
        ),
    )
