"""What was reported to the log, so that only news is reported: the watcher's pure part.

An observation whose content equals the one reported last is no news. What the log shows
and the cluster no longer does is gone, and is reported as gone.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from allotment.core.ledger.model import ENDED, ClusterState
from allotment.core.logport import Record
from allotment_proto.events import (
    Envelope,
    GroupGone,
    GroupObserved,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
)
from allotment_proto.facts import Problem

UNREADABLE = "UnreadableObject"
ERROR_CHARS_MAX = 300
UNREAD_OF_ENDED = ("labels", "request", "tags", "holdings")
"""Fields of a pod that are not read once it has ended."""

Observed = PodObserved | NodeObserved | GroupObserved | QueueObserved | PriorityClassObserved
Gone = PodGone | NodeGone | GroupGone | QueueGone | PriorityClassGone
Fact = Observed | Gone
T = TypeVar("T", bound=Observed)


class ReportedCache(Generic[T]):
    """Of the objects of one kind, by `key_of`, the observation that was reported last.

    It begins with what the folded log shows.
    """

    def __init__(self, believed: Mapping[str, T]) -> None:
        self._reported = dict(believed)

    def get(self, key: str) -> T | None:
        return self._reported.get(key)

    def facts(self) -> Iterable[T]:
        """What was reported of each."""
        return self._reported.values()

    def seen(self, fact: T) -> list[Fact]:
        """The facts to append for an object as it is now: none if nothing changed."""
        key = key_of(fact)
        last = self._reported.get(key)
        if last is not None and last.uid == fact.uid:
            is_older = last.rv > fact.rv > 0
            if is_older or _says_nothing_new(last, fact):
                return []
        self._reported[key] = fact
        if isinstance(last, NodeObserved) and last.uid != fact.uid:
            return [end_of(last), fact]  # of other kinds the fold sees by the uid that it is new
        return [fact]

    def unreadable(self, key: str, uid: str, error: str) -> T | None:
        """The object exists and cannot be read: what was reported of it, with that problem.
        None for one that was never read: its members wait until it can be.
        """
        last = self._reported.get(key)
        if last is None or last.uid != uid or not isinstance(last, GroupObserved | QueueObserved):
            return None  # the others have no such problem
        text = f"cannot be read, what it said before stays: {error[:ERROR_CHARS_MAX]}"
        problem = Problem(UNREADABLE, "the object", text)
        return msgspec.structs.replace(last, problem=problem)

    def gone(self, key: str, uid: str) -> list[Fact]:
        """The end of the object with that uid; none if another one has its name by now."""
        last = self._reported.get(key)
        if last is None or last.uid != uid:
            return []
        del self._reported[key]
        return [end_of(last)]

    def only(self, keys: Iterable[str]) -> list[Fact]:
        """After a full list: every other object is gone."""
        others = sorted(set(self._reported) - set(keys))
        return [end_of(self._reported.pop(key)) for key in others]

    def took_effect(self, fact: T) -> None:
        """A fact that came back from the log is kept as the object that the state holds: of a
        hundred thousand there need not be two copies.
        """
        key = key_of(fact)
        if self._reported.get(key) == fact:
            self._reported[key] = fact

    def corrections(self, believed: Mapping[str, T]) -> list[Fact]:
        """Where the log shows something else than was reported here.

        A watcher that lost its lease may have had a fact on its way. Landing after an object's end
        it would stand for ever, because nothing about that object ever comes again; and an end that
        lands late would hide an object until that changes.
        """
        out: list[Fact] = [
            last
            for key, last in self._reported.items()
            if key not in believed or believed[key].uid != last.uid
        ]
        out += [end_of(fact) for key, fact in believed.items() if key not in self._reported]
        return out


class Reported:
    """What was reported of pods and of nodes. It begins with what the folded log shows."""

    def __init__(self, state: ClusterState) -> None:
        self.pods = ReportedCache(pods_of(state))
        self.nodes = ReportedCache(nodes_of(state))

    def took_effect(self, record: Record, envelope: Envelope) -> None:
        """Hears of every record of the log."""
        for event in envelope.events:
            if isinstance(event, PodObserved):
                self.pods.took_effect(event)

    def corrections(self, state: ClusterState) -> list[Fact]:
        """See `ReportedCache.corrections`."""
        pods, nodes = pods_of(state), nodes_of(state)
        return self.pods.corrections(pods) + self.nodes.corrections(nodes)


def key_of(fact: Observed) -> str:
    """Under what the fold keeps an object: a pod under its uid, all else under its name."""
    match fact:
        case PodObserved():
            return fact.uid
        case GroupObserved():
            return f"{fact.namespace}/{fact.name}"
        case _:
            return fact.name


def end_of(fact: Observed) -> Gone:
    """That an object is gone which was there as `fact` says."""
    match fact:
        case PodObserved():
            return PodGone(uid=fact.uid, namespace=fact.namespace, name=fact.name, rv=fact.rv)
        case NodeObserved():
            return NodeGone(uid=fact.uid, name=fact.name, rv=fact.rv)
        case GroupObserved():
            return GroupGone(uid=fact.uid, namespace=fact.namespace, name=fact.name, rv=fact.rv)
        case QueueObserved():
            return QueueGone(uid=fact.uid, name=fact.name, rv=fact.rv)
        case PriorityClassObserved():
            return PriorityClassGone(uid=fact.uid, name=fact.name, rv=fact.rv)


def _says_nothing_new(last: Observed, seen: Observed) -> bool:
    """Whether nothing changed that anybody reads."""
    match last, seen:
        case PodObserved(), PodObserved() if last.phase in ENDED and seen.phase in ENDED:
            unread = {name: getattr(last, name) for name in UNREAD_OF_ENDED}
            seen = msgspec.structs.replace(seen, **unread)
    return same_content(last, seen)


def same_content(last: Observed, seen: Observed) -> bool:
    """Whether two observations differ in nothing but their resourceVersion and, of pods, what is
    said about their end: the observation in which it ends, or is to be deleted, has that already;
    and how it failed again as it started.
    """
    if isinstance(last, PodObserved) and isinstance(seen, PodObserved):
        died = seen.died and (last.died or seen.died)
        return last == msgspec.structs.replace(seen, rv=last.rv, ending=last.ending, died=died)
    return last == msgspec.structs.replace(seen, rv=last.rv)


def pods_of(state: ClusterState) -> dict[str, PodObserved]:
    """The pods that exist according to the log."""
    return {uid: pod.fact for uid, pod in state.pods.items()}


def nodes_of(state: ClusterState) -> dict[str, NodeObserved]:
    """The nodes that exist according to the log; those that only pods name are none."""
    return {name: node.fact for name, node in state.nodes.items() if node.fact is not None}


def groups_of(state: ClusterState) -> dict[str, GroupObserved]:
    """The groups that exist according to the log; those that only pods name are none."""
    return {key: group.fact for key, group in state.groups.items() if group.fact is not None}


def queues_of(state: ClusterState) -> dict[str, QueueObserved]:
    """The queues that exist according to the log."""
    return dict(state.queues)


def classes_of(state: ClusterState) -> dict[str, PriorityClassObserved]:
    """The PriorityClasses that exist according to the log."""
    return dict(state.classes)
