"""Small jobs, queues and a toy cluster for tests of order and quota."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from allotment.core.placement.rules.card_names import Card
from allotment.core.queues.actions import allocate as allocating
from allotment.core.queues.actions import backfill as backfilling
from allotment.core.queues.actions.allocate import Hopeless, Placed, Promised, Turn
from allotment.core.queues.answers import No
from allotment.core.queues.limits import Limits
from allotment.core.queues.model import (
    Cluster,
    JobView,
    Phase,
    QueueView,
    Status,
    Task,
    View,
)
from allotment.core.queues.plugins.registry import PLUGINS, Configured, configure
from allotment.core.queues.resources import Resources
from allotment.core.queues.session import Session
from allotment.core.queues.statement import Statement
from allotment.core.queues.work import World
from allotment_proto.facts import PluginUse

GPU = "nvidia.com/gpu"
GIB = 1 << 30

Tier = Sequence[str | Configured]


def amounts(gpus: int = 0, *, cpu: int = 0, memory_gib: int = 0, **named: int) -> Resources:
    """Whole cards, whole CPUs, GiB and whole others; zeros are left out."""
    found = {GPU: gpus * 1000, "cpu": cpu * 1000, "memory": memory_gib * GIB}
    found |= {name: amount * 1000 for name, amount in named.items()}
    return Resources({name: amount for name, amount in found.items() if amount})


def task(uid: str, gpus: int = 1, /, **changes: Any) -> Task:
    values: dict[str, Any] = {"uid": uid, "name": uid, "request": amounts(gpus)}
    return Task(**{**values, **changes})


def tasks(job: str, count: int, gpus: int = 1, /, **changes: Any) -> tuple[Task, ...]:
    return tuple(task(f"{job}-w-{index}", gpus, **changes) for index in range(count))


def statuses(job: str, /, **counts: int) -> tuple[Task, ...]:
    """``statuses("j", Running=2, Pending=1)``: tasks numbered through, on a node unless pending."""
    wanted = [Status(name) for name, count in counts.items() for _ in range(count)]
    return tuple(
        task(f"{job}-w-{index}", status=status, node="" if status is Status.PENDING else "n1")
        for index, status in enumerate(wanted)
    )


def job(uid: str, members: Sequence[Task] | int = 1, /, **changes: Any) -> JobView:
    """A group that was let in; its minimum is all of its tasks."""
    found = tasks(uid, members) if isinstance(members, int) else tuple(members)
    values: dict[str, Any] = {
        "uid": uid,
        "name": uid,
        "queue": "q",
        "phase": Phase.INQUEUE,
        "min_member": len(found),
        "tasks": found,
    }
    return JobView(**{**values, **changes})


def queue(name: str = "q", **changes: Any) -> QueueView:
    return QueueView(name=name, **changes)


def plugin(
    name: str, switches: Mapping[str, bool] | None = None, **arguments: int | bool | str
) -> Configured:
    """A plugin with arguments in the units of a policy (thousandths, milliseconds)."""
    off = tuple(word for word, is_on in (switches or {}).items() if not is_on)
    on = tuple(word for word, is_on in (switches or {}).items() if is_on)
    told = tuple((key.replace("__", "."), value) for key, value in arguments.items())
    assert {key for key, _ in told} <= PLUGINS[name].declared.keys()
    return configure(PluginUse(name, off, on, told))


def in_values(view: View) -> tuple[View, Cluster, Resources]:
    """A view as what can be compared: who counts what is in use, and what is."""
    cluster = msgspec.structs.replace(view.cluster, used=Resources)
    return msgspec.structs.replace(view, cluster=cluster), cluster, view.cluster.used()


def session(
    *jobs: JobView,
    queues: Sequence[QueueView] | None = None,
    tiers: Sequence[Tier] = (("priority", "gang"),),
    total: Resources | None = None,
    used: Resources | None = None,
    cards: Sequence[Card] = (),
    share_resources: Sequence[str] = (),
    now_ms: int = 0,
) -> Session:
    view = View(
        cluster=Cluster(
            total=amounts(1000) if total is None else total,
            used=lambda: Resources() if used is None else used,
            cards=tuple(cards),
            share_resources=frozenset(share_resources),
        ),
        queues=(queue(),) if queues is None else tuple(queues),
        jobs=jobs,
        now_ms=now_ms,
    )
    opened = [[plugin(one) if isinstance(one, str) else one for one in tier] for tier in tiers]
    return Session(World(view), opened)


class Toy:
    """Nodes with whole cards. A task goes to the first node in name order with room for it.

    `soon` are cards that are being released; `model` is the one card that a node has. `calls` are
    the tasks that were tried, `limits` what had to be heeded.
    """

    def __init__(
        self,
        free: Mapping[str, int],
        *,
        soon: Mapping[str, int] | None = None,
        model: Mapping[str, str] | None = None,
        never: Sequence[str] = (),
        bound: bool = False,
    ) -> None:
        self.free = dict(free)
        self.soon = dict(soon or {})
        self.model = dict(model or {})
        self.never = frozenset(never)
        self.bound = bound
        self.calls: list[str] = []
        self.limits: list[Limits] = []
        self.statement = Statement()
        """That of the session that asks; see `allocate` and `backfill`."""

    def hopeless(self, tasks: Sequence[Task], needed: int, limits: Limits) -> Hopeless | None:
        if not self.bound:
            return None
        least = min(int(one.request.amount(GPU)) // 1000 for one in tasks) or 1
        together = sum((self.free[n] + self.soon.get(n, 0)) // least for n in self.free)
        return Hopeless(together, short(len(self.free))) if together < needed else None

    def try_place(self, task: Task, limits: Limits) -> Placed | Promised | No:
        self.calls.append(task.uid)
        self.limits.append(limits)
        need = int(task.request.amount(GPU)) // 1000
        open_ = [
            node
            for node in sorted(self.free)
            if not any(node in excluded.nodes for excluded in limits.excluded)
            and (limits.cards is None or self.model.get(node) in limits.cards)
        ]
        if task.uid in self.never or not open_:
            return short(len(self.free))
        for books, answer in ((self.free, Placed), (self.soon, Promised)):
            for node in open_:
                if books.get(node, 0) >= need:
                    left = books[node]
                    books[node] -= need
                    self.statement.did(partial(books.__setitem__, node, left))
                    return answer(node, self.model.get(node, "") if limits.cards else "")
        return short(len(self.free))


def allocate(found: Session, toy: Toy, **asked: Any) -> Iterator[Turn]:
    """The action on these nodes."""
    toy.statement = found.statement
    return allocating.allocate(found, toy, **asked)


def backfill(found: Session, toy: Toy, **asked: Any) -> Iterator[Turn]:
    """The action on these nodes."""
    toy.statement = found.statement
    return backfilling.backfill(found, toy, **asked)


def short(nodes: int) -> No:
    return No(
        "InsufficientResource", f"0/{nodes} nodes are unavailable: {nodes} Insufficient {GPU}."
    )
