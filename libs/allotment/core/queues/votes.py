"""How the answers of several plugins become one: the rules of tiers.

* Orders: the first plugin that tells two things apart decides, because keys are compared in order.
* "All must agree" (ready, allocatable, preemptive) and "any is enough" (overused) ignore tiers.
* Votes: any "no" ends the vote; a tier with a permission ends it with a yes; without any vote: yes.
* Victims: in a tier, those that all plugins without abstention agree on; the first tier with any
  ends it.
* Starving: the first tier with such plugins decides, and all of them must agree.

The rule of votes has a trap: behind a tier whose plugin always permits or rejects, later tiers are
never asked.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec

from allotment.core.queues.answers import PERMIT, No, Vote
from allotment.core.queues.model import Task
from allotment.core.queues.plugins.base import Plugin

Tiers = Sequence[Sequence[Plugin]]
_P = ParamSpec("_P")


def poll(tiers: Tiers, ask: Callable[[Plugin], Vote | No]) -> No | None:
    """The votes' outcome: None for yes, otherwise the first "no"."""
    for tier in tiers:
        permitted = False
        for plugin in tier:
            answer = ask(plugin)
            if isinstance(answer, No):
                return answer
            permitted |= answer is PERMIT
        if permitted:
            return None
    return None


def first_no(
    asked: Iterable[Callable[_P, No | None]], *about: _P.args, **named: _P.kwargs
) -> No | None:
    """The first rejection in tier order; None if all agree."""
    for ask in asked:
        no = ask(*about, **named)
        if no is not None:
            return no
    return None


def all_agree(asked: Iterable[Callable[_P, bool]], *about: _P.args, **named: _P.kwargs) -> bool:
    return all(ask(*about, **named) for ask in asked)


def starving(tiers: Tiers, ask: Callable[[Plugin], bool]) -> bool:
    return next((all(ask(plugin) for plugin in tier) for tier in tiers if tier), False)


def victims(tiers: Tiers, ask: Callable[[Plugin], list[Task] | None]) -> list[Task]:
    """The tasks that may be evicted, in the order in which the first plugin named them."""
    for tier in tiers:
        agreed: list[Task] | None = None
        for plugin in tier:
            named = ask(plugin)
            if named is None:
                continue
            if agreed is None:
                agreed = named
            else:
                uids = {task.uid for task in named}
                agreed = [task for task in agreed if task.uid in uids]
        if agreed:
            return agreed
    return []
