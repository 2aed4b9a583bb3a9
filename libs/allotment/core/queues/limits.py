"""The limits of a task's place in addition to what fits: quota, node rules, holds."""

from collections.abc import Mapping
from typing import NamedTuple

from allotment.core.placement.rules.bounds import Excluded


class NodeRule(NamedTuple):
    """Which nodes a queue's pods may use, by the value of a label: one of `values`, or none at all
    with `unlabelled`. `code` and `text` are the reason at other nodes.
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
    """What a plugin adds to a node's score by the value of a label, in millionths of a point; 0 for
    values that are not named. `plugin` is its name.
    """

    plugin: str
    label: str
    by_value: tuple[tuple[str, int], ...]


class CardPoints(NamedTuple):
    """What a plugin adds to the score of a node that has one of several cards, in millionths of a
    point by card name. If a node has two of them, the greater counts.
    """

    plugin: str
    by_card: tuple[tuple[str, int], ...]


class BucketPoints(NamedTuple):
    """What a plugin adds to a node's score for a task of a bucket: a point for each of the bucket's
    tasks that the node can take, and those of `by_node`. A point is `point_micro` divided by
    `most`, in millionths. `tasks` are uids of waiting tasks, the one to place first.
    """

    plugin: str
    tasks: tuple[str, ...]
    by_node: tuple[tuple[str, int], ...]
    point_micro: int
    most: int


class Kept(NamedTuple):
    """Pods that have room reserved on the nodes that they are nominated for; `text` names them."""

    pods: tuple[tuple[str, str], ...]
    """Uid and node."""
    text: str


class Limits(NamedTuple):
    """The limits that the port applies to a task, in addition to what fits."""

    cards: tuple[str, ...] | None = None
    """Only nodes with one of these cards, and on that card; None: any."""
    rules: tuple[NodeRule, ...] = ()
    points: tuple[NodePoints, ...] = ()
    card_points: CardPoints | None = None
    """What `cards` add to a node's score. None: the first card with room wins, whatever the nodes
    score.
    """
    bucket: BucketPoints | None = None
    excluded: tuple[Excluded, ...] = ()
    kept: tuple[Kept, ...] = ()
    """Only the room that these reservations leave."""
    node: str = ""
    """Only this node; empty: any."""

    @property
    def choices(self) -> tuple[tuple[str, ...], ...]:
        """The cards of each request to try in turn: one card each, or all together where points
        rank them. One empty choice where any card will do.
        """
        if not self.cards:
            return ((),)
        return (self.cards,) if self.card_points else tuple((card,) for card in self.cards)
