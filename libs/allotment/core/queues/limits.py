"""What whoever looks for a task's place must heed, besides what fits: quota, node rules, holds."""

from collections.abc import Mapping
from typing import NamedTuple

from allotment.core.placement.rules.bounds import Excluded


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


class CardPoints(NamedTuple):
    """What a plugin adds to the score of a node that has one of several cards, in millionths of a
    point by the card's name: of two that a node has the greater counts.
    """

    plugin: str
    by_card: tuple[tuple[str, int], ...]


class BucketPoints(NamedTuple):
    """What a plugin adds to a node's score for a task of a bucket: a point for each of the bucket's
    tasks that the node can take, and those of `by_node`. A point is `point_micro` divided by `most`
    millionths. `tasks` are uids of tasks that wait, the one that is placed now in front.
    """

    plugin: str
    tasks: tuple[str, ...]
    by_node: tuple[tuple[str, int], ...]
    point_micro: int
    most: int


class Kept(NamedTuple):
    """Pods for whom room is kept on the nodes that they are nominated for, and in words for whom
    that is."""

    pods: tuple[tuple[str, str], ...]
    """Uid and node."""
    text: str


class Limits(NamedTuple):
    """What the port must heed for a task, besides what fits."""

    cards: tuple[str, ...] | None = None
    """Only nodes with one of these cards, and on that card; None: any."""
    rules: tuple[NodeRule, ...] = ()
    points: tuple[NodePoints, ...] = ()
    card_points: CardPoints | None = None
    """What `cards` add to a node's score; None: the first that has room is taken, whatever the
    nodes score."""
    bucket: BucketPoints | None = None
    excluded: tuple[Excluded, ...] = ()
    kept: tuple[Kept, ...] = ()
    """Only what these leave."""
    node: str = ""
    """Only this node; empty: any."""

    @property
    def choices(self) -> tuple[tuple[str, ...], ...]:
        """The cards as they are asked for, one request after the other: each by itself, or all in
        one where points say which is better. One without any where all cards will do.
        """
        if not self.cards:
            return ((),)
        return (self.cards,) if self.card_points else tuple((card,) for card in self.cards)

    @property
    def nodes_excluded(self) -> frozenset[str]:
        return frozenset(node for excluded in self.excluded for node in excluded.nodes)
