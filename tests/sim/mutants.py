"""A test of the test: `python -m tests.sim.mutants --seeds N` plants bugs and wants them caught.

A simulator that finds nothing must first show that it can. Some bugs are planted in pairs, because
the design answers one mistake with a second line of defence: a log that takes any append is
harmless as long as the fold voids what does not fit, and the other way round. Where one line alone
is taken away, survival is what the design promises, and a catch would be news.

After these come bugs planted in the source of the services, which named tests must catch
(`planted`).
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from allotment.core.ledger import books as fold_books
from allotment.core.ledger import claims, model
from allotment.core.ledger import pods as fold_pods
from allotment.core.ledger import state as fold
from allotment_proto.events import BindFailed, NodeObserved
from tests.sim import planted as planted_in_source
from tests.sim.run import failing


def _believe(state: model.ClusterState, pod: model.Pod, seq: int) -> None:
    """A `_hold` that books what a pod's annotations say where that differs from its books."""
    held, fact = pod.allocation, pod.fact
    if held is not None and claims.agrees(held.holdings, claims.claimed(fact)):
        _hold(state, pod, seq)
        return
    fold_books.release(state, pod, seq)
    fold_books.charge(state, pod, fold_pods.adopted(pod.fact))


def _rebuild_open(node: model.Node, fact: NodeObserved | None) -> list[model.Allocation]:
    """A `Node.rebuild` that forgets what the node's cards are closed for."""
    changed = _rebuild(node, fact)
    for ledger in node.ledgers.values():
        ledger.blocked = None
    return changed


_hold, _rebuild = fold_pods._hold, model.Node.rebuild
PATCHES: dict[str, tuple[ModuleType | type, str, Any]] = {
    "fold does not void": (fold, "covers", lambda node, placement: node.fact is not None),
    "fold keeps what ended pods held": (fold_pods, "ENDED", frozenset()),
    "fold believes what annotations say": (fold_pods, "_hold", _believe),
    "fold lets a pod of others claim anew": (fold_pods, "confirmed", lambda booked, said: said),
    "watcher believes claims beyond limits": (claims, "within_limits", lambda said, asked: said),
    "what may be on any card counts nowhere": (model, "on_any_card", lambda known, *_: known),
    "a node's new fact ends its quarantine": (model.Node, "rebuild", _rebuild_open),
}
HANDLERS: dict[str, type] = {"fold releases whatever failed": BindFailed}


class Mutant(NamedTuple):
    """Bugs planted together; `is_harmless` when another line of defence must hold. `seed` is of a
    world that caught them: where one is enough it is looked at first, and if it does so no more,
    the others are looked at as well.
    """

    bugs: frozenset[str]
    is_harmless: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        return " + ".join(sorted(self.bugs))


def _mutant(*bugs: str, is_harmless: bool = False, seed: int = 0) -> Mutant:
    return Mutant(frozenset(bugs), is_harmless, seed)


MUTANTS = (
    _mutant("log takes any append", "fold does not void", seed=14),
    _mutant("log takes any append", "binds void placements", seed=34),
    _mutant("forgets to release"),
    _mutant("second Binding is accepted", seed=35),
    _mutant("takes unknown for refused"),
    _mutant("takes an unanswered Binding for refused", seed=22),
    _mutant("skips the recheck", "fold does not void"),
    _mutant("skips the recheck", "binds void placements"),
    _mutant("fold keeps what ended pods held"),
    _mutant("fold releases whatever failed", seed=23),
    _mutant("fold believes what annotations say"),
    _mutant("fold lets a pod of others claim anew"),
    _mutant("watcher believes claims beyond limits"),
    _mutant("what may be on any card counts nowhere"),
    _mutant("a node's new fact ends its quarantine"),
    _mutant("forgets to erase records"),
    _mutant("binds before records are erased", seed=1106),
    _mutant("binds two of one question at once", seed=28),
    _mutant("forgets the deleted in the line", seed=20),
    _mutant("forgets the deleted of before", seed=356),
    _mutant("takes an obstacle for an ending in doubt", seed=25),
    _mutant("takes a refusal for an ending in doubt", seed=205),
    _mutant("outcomes of a life that is over count", seed=125),
    _mutant("goes on beside another life", seed=209),
    _mutant("log takes any append", is_harmless=True),
    _mutant("skips the recheck", is_harmless=True),
)


@contextmanager
def planted(bugs: frozenset[str]) -> Iterator[None]:
    """The patches that some bugs need; the others are flags that the world asks for."""
    handlers = {HANDLERS[bug]: _release_always for bug in bugs & HANDLERS.keys()}
    with ExitStack() as patches:
        patches.enter_context(mock.patch.dict(fold._HANDLERS, handlers))
        for bug in sorted(bugs & PATCHES.keys()):
            module, name, replacement = PATCHES[bug]
            patches.enter_context(mock.patch.object(module, name, replacement))
        yield


def _release_always(state: model.ClusterState, event: Any, seq: int) -> None:
    """A `_bind_failed` that asks neither for the decision nor for the pod's node."""
    pod = state.pods.get(event.uid)
    if pod is not None and pod.allocation is not None:
        fold_books.release(state, pod, seq)
        fold_books.sort_in(state, pod)


def hunt(mutant: Mutant, seeds: Iterable[int], *, first_only: bool = False) -> dict[int, str]:
    """Seed → how it was caught."""
    return failing(seeds, mutant.bugs, planted(mutant.bugs), first_only=first_only)


def main(say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds per mutant")
    seeds = range(parser.parse_args().seeds)
    say(f"{'planted bug':<76} caught in {len(seeds)}   first seen as")
    wrong = 0
    for mutant in MUTANTS:
        found = hunt(mutant, seeds)
        first = next((f"seed {seed}: {what}" for seed, what in found.items()), "")
        verdict = "must survive" if mutant.is_harmless and not found else first[:90]
        say(f"{mutant.name:<76} {len(found):>9}   {verdict}")
        wrong += bool(found) == mutant.is_harmless
    say(f"{len(MUTANTS)} mutants, {wrong} not as expected")
    wrong += planted_in_source.hunt(say)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
