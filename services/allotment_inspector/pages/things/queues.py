"""All queues: whose turn it is, and how many groups and pods each keeps waiting."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from allotment.core.explain.queue import explain_queue
from allotment.core.jobs.keys import DEFAULT_QUEUE
from allotment_inspector.history import Moment
from allotment_inspector.pages.things.queue import LimitRow, limit_row
from allotment_inspector.said import Bit, queue_link, typed

_BARS_OF = 50
"""Each queue's quota takes a while to add up."""


class QueueRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue; `groups` are counted by phase, `waiting` and `placed` count pods."""

    queue: Bit
    state: str
    parent: str
    weight: int
    priority: int
    groups: dict[str, int]
    waiting: int
    placed: int
    problem: str
    limits: tuple[LimitRow, ...]
    """Resources with a quota; of the first `_BARS_OF` queues."""


class QueuesPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All queues by name. `unknown` are names that pods give and no queue has, with their pods."""

    queues: tuple[QueueRow, ...]
    unknown: dict[str, int]
    policy: str


def view(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> QueuesPage:
    """The queues at the moment."""
    state = moment.state
    groups: dict[str, Counter[str]] = {}
    of_group: dict[str, str] = {}
    for key, group in state.groups.items():
        if group.fact is not None:
            queue = group.fact.queue or DEFAULT_QUEUE
            of_group[key] = queue
            groups.setdefault(queue, Counter())[group.fact.phase or "new"] += 1
    waiting: Counter[str] = Counter()
    placed: Counter[str] = Counter()
    names = state.policy.scheduler_names
    for uid, pod in state.pods.items():
        if pod.fact.scheduler not in names:
            continue
        queue = of_group.get(pod.fact.group) or pod.fact.queue or DEFAULT_QUEUE
        if pod.allocation is not None:
            placed[queue] += 1
        elif uid in state.pending:
            waiting[queue] += 1
    rows = [
        QueueRow(
            queue=queue_link(name),
            state=fact.state,
            parent=fact.parent if fact.parent != name else "",
            weight=fact.weight,
            priority=fact.priority,
            groups=dict(sorted(groups.get(name, Counter()).items())),
            waiting=waiting[name],
            placed=placed[name],
            problem="" if fact.problem is None else f"{fact.problem.code}: {fact.problem.message}",
            limits=_limits(moment, name) if number < _BARS_OF else (),
        )
        for number, (name, fact) in enumerate(sorted(state.queues.items()))
    ]
    unknown = {
        name: waiting[name] + placed[name]
        for name in sorted({*waiting, *placed})
        if name not in state.queues and state.queues
    }
    return QueuesPage(queues=tuple(rows), unknown=unknown, policy=", ".join(state.policy.actions))


def _limits(moment: Moment, name: str) -> tuple[LimitRow, ...]:
    found = explain_queue(moment.state, name, moment.now_ms)
    return tuple(limit_row(each, found.units) for each in found.limits if each.most is not None)


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for much the same answer; the cluster is asked, which knows of no past."""
    return typed("allot", "queue", "list") if moment.is_now else ""
