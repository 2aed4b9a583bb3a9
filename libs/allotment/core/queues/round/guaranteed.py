"""What queues are guaranteed of the cluster, and what that leaves to others.

A guarantee keeps resources from all other queues, whether or not they are in use. A guarantee
larger than the cluster leaves nothing to the others, and their own books do not show why.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.devices import memory_units
from allotment.core.queues.model import ROOT
from allotment.core.units import resource_text
from allotment_proto.events import QuotaShort

_SHOWN = 4
_HEEDING = frozenset(("capacity", "proportion"))
"""Plugins that apply guarantees."""


class Guaranteed(NamedTuple):
    """One resource in Volcano's amounts: the cluster's total, and the guarantees by queue, the
    largest first.
    """

    resource: str
    total: int
    queues: Mapping[str, int]

    @property
    def is_too_much(self) -> bool:
        """Whether the guarantees exceed the total."""
        return sum(self.queues.values()) > self.total


def guaranteed(state: ClusterState) -> list[Guaranteed]:
    """The guaranteed resources; empty if the policy applies no guarantees or there are no nodes."""
    heeding = any(use.name in _HEEDING for tier in state.policy.tiers for use in tier)
    if not heeding:
        return []
    found: dict[str, Counter[str]] = {}
    for queue in state.queues.values():
        if queue.parent not in ("", ROOT):
            continue  # part of the guarantee of the queue above it
        for resource, amount in queue.guarantee:
            if amount:
                found.setdefault(resource, Counter())[queue.name] = amount
    facts = [node.fact for node in state.nodes.values() if node.fact is not None]
    if not facts or not found:
        return []
    total = Counter[str]()
    for fact in facts:
        total["cpu"] += fact.cpu_milli
        total["memory"] += fact.memory_bytes
        total["pods"] += fact.pods
        for name, amount in fact.extended:
            total[name] += amount * 1000
    return [
        Guaranteed(name, total[name], dict(queues.most_common()))
        for name, queues in sorted(found.items())
    ]


def guaranteed_text(state: ClusterState, found: Guaranteed) -> str:
    """``queue greedy is guaranteed 10000 cpu, and the cluster has 8``."""
    unit = memory_units(state.devices).get(found.resource, 0)

    def text(amount: int) -> str:
        return resource_text(found.resource, amount, unit)

    has = f"and the cluster has {text(found.total)}"
    if len(found.queues) == 1:
        (name,) = found.queues
        return f"queue {name} is guaranteed {text(found.queues[name])} {found.resource}, {has}"
    named = [f"{name} {text(amount)}" for name, amount in found.queues.items()]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    each = f"{', '.join(named[:_SHOWN])}{more}"
    together = text(sum(found.queues.values()))
    return f"queues are guaranteed {together} {found.resource} together ({each}), {has}"


def kept_from(state: ClusterState, all_: Sequence[Guaranteed], short: QuotaShort) -> str:
    """The text about what others are guaranteed, if that is what limits a queue; empty
    otherwise.
    """
    queue = state.queues.get(short.queue)
    if queue is None:
        return ""
    own = dict(queue.capability).get(short.resource)
    for found in all_:
        others = {n: amount for n, amount in found.queues.items() if n != short.queue}
        if found.resource == short.resource and others and (own is None or own > short.most):
            return guaranteed_text(state, found._replace(queues=others))
    return ""
