"""Copies of nodes' books on which victims are tried.

They show the cluster as it will be: with the placements of the round, without the pods that are
ending, and with the nominated preemptors for which those end. On each node the lowest in rank are
released first, one by one, until the pod fits there; then each one that need not be evicted after
all is spared, the highest first.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from allotment.core.ledger.evictions import ending
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.ledger.state import allocation_of
from allotment.core.placement.rules.interpod import Around, look_around
from allotment.core.placement.rules.predicates import Fit, fits
from allotment.core.queues.model import Task
from allotment.core.queues.round.candidates import Cost, Rank
from allotment.core.queues.round.kept import on_trial, put_promised
from allotment.core.queues.round.overlay import Overlay
from allotment.core.queues.statement import Statement
from allotment.core.queues.timings import Checkpoint, unending
from allotment_proto.events import Placement
from allotment_proto.facts import ALONE, PodRequest


class Choice(NamedTuple):
    """A node, the books on which the pod fits there, and its victims."""

    cost: Cost
    node: Node
    victims: tuple[Task, ...]


class Books:
    """The nodes' books once all pods that are ending are gone."""

    def __init__(
        self,
        state: ClusterState,
        assumed: Iterable[Placement],
        statement: Statement,
        checkpoint: Checkpoint = unending,
    ) -> None:
        self._state = state
        self._checkpoint = checkpoint
        self._statement = statement
        self._nodes = Overlay(state, statement)
        self._freed: set[str] = set()
        """Nodes on which a pod is ending or becomes a victim."""
        self._evicted_on: set[str] = set()
        """Those of them on which a pod was evicted."""
        given: set[str] = set()
        for placement in assumed:
            self._nodes.change(placement.node).charge(allocation_of(placement, 0))
            given.add(placement.uid)
        for uid in ending(state):
            held = state.pods[uid].allocation
            assert held is not None
            self._nodes.change(held.node).release(held)
            self._freed.add(held.node)
            if uid in state.evicting:
                self._evicted_on.add(held.node)
        self._promised = {
            uid: (name, nominated.holdings.get(uid, ()))
            for _, nominated in sorted(state.nominated.items())
            for uid, name in sorted(nominated.nodes.items())
            if uid in state.pending and uid not in given and name in state.nodes
        }
        self._kept: set[str] = set()
        """The nominated pods that are charged."""
        self.keep(self._promised)

    def keep(self, uids: Iterable[str]) -> None:
        """Charge nominated pods on their nodes, where these have room for them."""
        for uid in uids:
            name, holdings = self._promised[uid]
            if put_promised(self._state, self._nodes.change(name), uid, holdings):
                self._kept.add(uid)
                self._statement.did(partial(self._kept.discard, uid))

    def lift_but(self, uids: Collection[str]) -> list[str]:
        """Release what is reserved for nominated pods, except for these; returns the uids of the
        others.
        """
        lifted = [uid for uid in self._promised if uid in self._kept and uid not in uids]
        for uid in lifted:
            node = self._nodes.change(self._promised[uid][0])
            node.release(node.allocations[uid])
        self._kept.difference_update(lifted)
        self._statement.did(partial(self._kept.update, lifted))
        return lifted

    def is_evicted_on(self, name: str) -> bool:
        return name in self._evicted_on

    def is_freed(self, name: str) -> bool:
        return name in self._freed

    def freed(self) -> frozenset[str]:
        """The nodes on which a pod is ending or becomes a victim."""
        return frozenset(self._freed)

    def put_on_freed(self, task: Task, requests: Sequence[PodRequest]) -> Placement | None:
        """Place the task where room will be without further victims; None if there is none."""
        for request in requests:
            around = self._surroundings(request)
            for name in sorted(self._freed):
                node = self._peek(name)
                found = fits(node, request, self._state.policy, around=around(node))
                if isinstance(found, Fit):
                    placement = placement_of(task.uid, name, request, found)
                    self.put(placement)
                    return placement
        return None

    def put(self, placement: Placement) -> None:
        """Charge a task that has a place now."""
        self._nodes.change(placement.node).charge(allocation_of(placement, 0))

    def changed(self) -> Iterator[Node]:
        """The copies of the nodes whose books differ from those of the state."""
        return self._nodes.changed()

    def trial(
        self, request: PodRequest, covered: Callable[[Sequence[Task]], bool]
    ) -> Callable[[str, Sequence[tuple[Rank, Task]], int], Choice | None]:
        """Returns a function that tries one node: which of these candidates, given by rank, must be
        evicted for the request; None if evicting all of them is not enough. At least `least` of
        them must. `covered` returns whether quota allows the pod once some of them are gone.
        """
        around = self._surroundings(request)

        def tried(name: str, victims: Sequence[tuple[Rank, Task]], least: int) -> Choice | None:
            return self._try(self._peek(name), request, victims, least, around, covered)

        return tried

    def take(self, task: Task, request: PodRequest, choice: Choice) -> Placement:
        """Release the victims and charge the task."""
        node = choice.node
        found = fits(node, request, self._state.policy, around=self._surroundings(request)(node))
        assert isinstance(found, Fit), "victims were chosen so that it fits"
        placement = placement_of(task.uid, node.name, request, found)
        node.charge(allocation_of(placement, 0))
        self._nodes.put(node)
        for names in (self._freed, self._evicted_on):
            if node.name not in names:
                names.add(node.name)
                self._statement.did(partial(names.discard, node.name))
        return placement

    def _try(
        self,
        node: Node,
        request: PodRequest,
        victims: Sequence[tuple[Rank, Task]],
        least: int,
        around: "Look",
        covered: Callable[[Sequence[Task]], bool],
    ) -> Choice | None:
        policy = self._state.policy
        fork = node.fork()
        gone: list[tuple[Rank, Task]] = []

        def is_enough() -> bool:
            if len(gone) < least:
                return False
            found = fits(fork, request, policy, around=around(fork))
            return isinstance(found, Fit) and covered([task for _, task in gone])

        for rank, victim in victims:
            allocation = fork.allocations.get(victim.uid)
            if allocation is None:
                continue
            fork.release(allocation)
            gone.append((rank, victim))
            if is_enough():
                break
        else:
            return None
        for pair in list(reversed(gone)):
            allocation = node.allocations[pair[1].uid]
            fork.charge(allocation)
            gone.remove(pair)
            if not is_enough():
                fork.release(allocation)
                gone.append(pair)
        gone.sort(key=lambda pair: (pair[0], pair[1].uid))
        ranks = tuple(rank for rank, _ in gone)
        return Choice((len(gone), ranks, node.name), fork, tuple(task for _, task in gone))

    def _surroundings(self, request: PodRequest) -> "Look":
        """Returns, for a version of one node, what the request's rules about other pods find around
        it.
        """
        if request.company == ALONE:
            return lambda node: None
        everywhere = look_around(self._nodes.nodes(), request)

        def look(node: Node) -> Around:
            was = look_around((self._peek(node.name),), request)
            return _corrected(everywhere, was, look_around((node,), request))

        return look

    def _peek(self, name: str) -> Node:
        return self._nodes.node(name) or self._state.nodes[name]


Look = Callable[[Node], Around | None]


def _corrected(everywhere: Around, was: Around, now: Around) -> Around:
    """What is found once one node has changed from `was` to `now`."""

    def corrected(
        counts: Mapping[str, int], less: Mapping[str, int], more: Mapping[str, int]
    ) -> Mapping[str, int]:
        return {
            domain: count - less.get(domain, 0) + more.get(domain, 0)
            for domain, count in counts.items()
        }

    return Around(
        *(tuple(map(corrected, *terms)) for terms in zip(everywhere, was, now, strict=True))
    )


def placement_of(uid: str, node: str, request: PodRequest, found: Fit) -> Placement:
    """A placement for trials, without a score."""
    holdings = tuple(held for chosen in found.chosen for held in chosen.holdings)
    return on_trial(uid, node, request, holdings)
