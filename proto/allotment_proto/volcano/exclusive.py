"""GPU exclusivity rules and the pod group policy: whose pods keep apart on a card.

A rule is a map of labels; pods that carry them all share no card. A pod's tags say what it is to
others, ``exclusive:<rule>`` for each rule it matches and ``group:<namespace>/<name>``.

Source: volcano `plugins/deviceshare/gpuexclusive.go`, `vgpu/utils.go` (deviceshare 3.4, 4.8).
"""

from collections.abc import Mapping, Sequence

from allotment_proto.facts import Problem
from allotment_proto.volcano import keys
from allotment_proto.volcano.reading import shown

Rule = tuple[tuple[str, str], ...]
"""Labels, sorted by key."""


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
