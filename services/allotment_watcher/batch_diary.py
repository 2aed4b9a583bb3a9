"""What the log was told of PodGroups, Queues and PriorityClasses; `diary` does it for the rest."""

from collections.abc import Iterable, Mapping

import msgspec

from allotment.core.ledger.state import ClusterState
from allotment_proto.events import (
    GroupGone,
    GroupObserved,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
)
from allotment_proto.facts import Problem
from allotment_watcher.diary import same_content

UNREADABLE = "UnreadableObject"
ERROR_CHARS_MAX = 300

Observed = GroupObserved | QueueObserved | PriorityClassObserved
BatchFact = Observed | GroupGone | QueueGone | PriorityClassGone


class Told:
    """Of the objects of one kind, by `key_of`, the content last told."""

    def __init__(self, believed: Mapping[str, Observed]) -> None:
        self._told = dict(believed)

    def seen(self, fact: Observed) -> list[BatchFact]:
        """The facts to append for an object as it is now: one, or none if nothing changed. One that
        was made anew under its name needs no end of the old one: the fold sees it by the uid.
        """
        key = key_of(fact)
        told = self._told.get(key)
        if told is not None and told.uid == fact.uid:
            is_older = told.rv > fact.rv > 0
            if is_older or same_content(told, fact):
                return []
        self._told[key] = fact
        return [fact]

    def unreadable(self, key: str, uid: str, error: str) -> list[BatchFact]:
        """The object is there and cannot be read: what was told of it stays, with that problem. One
        that was never read is not told: whoever belongs to it waits until it can be.
        """
        told = self._told.get(key)
        if told is None or told.uid != uid or isinstance(told, PriorityClassObserved):
            return []
        text = f"cannot be read, what it said before stays: {error[:ERROR_CHARS_MAX]}"
        problem = Problem(UNREADABLE, "the object", text)
        return self.seen(msgspec.structs.replace(told, problem=problem))

    def gone(self, key: str, uid: str) -> list[BatchFact]:
        told = self._told.get(key)
        if told is None or told.uid != uid:
            return []
        del self._told[key]
        return [end_of(told)]

    def only(self, keys: Iterable[str]) -> list[BatchFact]:
        """After a full list: every other object is gone."""
        others = sorted(set(self._told) - set(keys))
        return [fact for key in others for fact in self.gone(key, self._told[key].uid)]

    def corrections(self, believed: Mapping[str, Observed]) -> list[BatchFact]:
        """Where the log believes something else than it was told here; see `Diary.corrections`."""
        out: list[BatchFact] = [
            told
            for key, told in self._told.items()
            if key not in believed or believed[key].uid != told.uid
        ]
        out += [end_of(fact) for key, fact in believed.items() if key not in self._told]
        return out


def key_of(fact: Observed) -> str:
    """The name under which the fold keeps an object."""
    return f"{fact.namespace}/{fact.name}" if isinstance(fact, GroupObserved) else fact.name


def end_of(fact: Observed) -> BatchFact:
    match fact:
        case GroupObserved():
            return GroupGone(uid=fact.uid, namespace=fact.namespace, name=fact.name, rv=fact.rv)
        case QueueObserved():
            return QueueGone(uid=fact.uid, name=fact.name, rv=fact.rv)
        case PriorityClassObserved():
            return PriorityClassGone(uid=fact.uid, name=fact.name, rv=fact.rv)


def groups_of(state: ClusterState) -> dict[str, Observed]:
    """The groups that the log believes in; those that only pods name are none."""
    return {key: group.fact for key, group in state.groups.items() if group.fact is not None}


def queues_of(state: ClusterState) -> dict[str, Observed]:
    return dict(state.queues)


def classes_of(state: ClusterState) -> dict[str, Observed]:
    return dict(state.classes)
