"""What whoever looks for a task's place must heed, besides what fits: quota, node rules, holds."""

from collections.abc import Mapping
from typing import NamedTuple

from allotment.core.placement.rules.bounds import Barred


class NodeRule(NamedTuple):
    """Which nodes a queue's pods may use, by the value of a label: one of `values`, or with
    `unlabelled` none at all. `code` and, in words, `text` are told of the others.
    """

    code: str
    label: str
    values: tuple[str, ...]
    unlabelled: bool
    text: str

    def allows(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.label)
        return self.unlabelled if value is None else value in self.values


class NodePoints(NamedTuple):
    """What a plugin adds to a node's score by the value of a label, in millionths of a point;
    0 for values that are not named. `plugin` is its name.
    """

    plugin: str
    label: str
    by_value: tuple[tuple[str, int], ...]


class Limits(NamedTuple):
    """What the oracle must heed for a task, besides what fits."""

    cards: tuple[str, ...] | None = None
    """Only nodes with one of these cards, and on that card; None: any."""
    rules: tuple[NodeRule, ...] = ()
    points: NodePoints | None = None
    barred: tuple[Barred, ...] = ()
    node: str = ""
    """Only this node; empty: any."""

    @property
    def nodes_barred(self) -> frozenset[str]:
        return frozenset(node for barred in self.barred for node in barred.nodes)
