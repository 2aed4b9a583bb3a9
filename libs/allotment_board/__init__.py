"""The board: nodes ranked on columns, for large clusters. It needs NumPy and numba, which the extra
`allotment[fast]` installs.

`NodeRanker` is what services and commands rank nodes with. It decides between the plain ranker of
the core (`core/placement/evaluator.py`) and the board; both give the same decisions.

The board has one position a node, in name order, and one slot a card: `N` nodes, `D` cards on the
node that has the most.

* `packed[N, D]` (`packing.py`): what a card has free: memory, room for holders and compute, three
  fields in one int64, a guard bit above each
* `keys[N, D]` (`arrays.py`): in which order cards are tried: what the order prefers, the card's
  place among equals, its kind, in one integer
* kinds (`cards.py`): what cards have in common that a request can ask about: family, mode, model,
  slots, sizes, health, and the state of partitioned cards
* `host` (`arrays.py`): per node: free pods, CPU and memory; what the host's points are made from;
  the free amount of every extended resource
* needs `[K]` (`shapes.py`): a request's threshold on every kind, packed like what is free; `NEVER`
  for a kind that cannot do
* row: rank, fit, slots `[N]` (`rows.py`): per request: every node's rank (−1: does not fit) and the
  cards it would give
* top (`top.py`): per request: the best entries in order

One subtraction asks three questions. With all guards set in what is free and none in what is
needed, `free - need` leaves every guard standing exactly if there is enough of all three. Wrong
family, mode, model or health need more than there can be; a percentage is resolved per kind; a
whole card needs the room of a card without holders. So one comparison decides for all cards of all
nodes that are looked at.

One maximum chooses. The highest key among the good cards names the card, its kind (and so its size
and what to charge) and, where the order goes by use, how much of it is in use. A node's rank is an
integer as well: points, then leftover.

Rows remember. A row is scored in full when a request is first asked for, and afterwards, by the
same code (`score.py`), only at positions that were touched since; the last 512 requests have one.
An allocation is a subtraction on its cards and its host; what a cycle assumes is booked on the same
arrays and given back exactly. `top.py` keeps the best entries of a row, at most 256, complete above
a floor, so the cost of a decision hardly grows with the nodes. Reasons are made when asked for
(`reasons.py`), and kept up to date like ranks.

Each rule of `fits` and of the scores is said once more as a loop over the columns (`loops.py`,
`choice.py` for cards, `values.py` for `fill-ahead`, `term_loops.py` for the plugins' terms). A
request reaches them as one table of numbers (`encode.py`; `plan.py` gives the layout): passing an
array costs about as much as scoring a position. NumPy fills the columns
and compares nodes with each other.

The loops run compiled or as they are, with the same integers, so it does not matter to any
decision, nor to its replay, when or whether machine code is there (`machine_code.py`). Uncompiled
they take memory views in place of arrays. The code is kept in the user's cache under a fingerprint
of all that went into it. If it cannot be loaded or made, the cache's directory is thrown away and
it is made once more without the cache; failing that, the loops go on uncompiled, the service logs
one warning with the reason, and `allot_compiled_loops` stays 0. An image carries the code for any
processor of its kind, and a start copies it into its cache.

Property tests hold the board equal to the plain rules for every policy that it serves, under random
events: nodes that join, change and leave, pods that come and go, policies that change.

How device families ride on it

* Several device requests in one pod: each is scored in turn, and what it took is charged on the
  copies of keys and amounts that the next one sees (`choice._take`). Why nodes refuse such a pod is
  asked of the plain rules.
* `D` is whatever the widest node has. Chosen slots are stored as uint16.
* Nodes that join, leave, change: a join makes all positions again, in name order; joins that come
  together share one rebuild. A node that left keeps its position, emptied. A change writes one
  position again, unless it brings more cards than `D`, a resource that no node listed before, or a
  kind for which keys have no bit left.
* Partitioned cards (MIG, 310P): every state of such a card is a kind of its own, all of them known
  from the start: a request has a threshold, a charge and the kind that comes after for each. Which
  of several equal instances a pod gets is looked up only for the place that wins (`board.py`).
* Ascend: AI cores are counted where the card's compute is. Chips of one network come together: an
  order on top of the policy's (`choice._group`).
* Pods that keep apart take a mask of single cards, made from the holders' tags for requests that
  ask for it only.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.evaluator import Evaluator, Ranking
from allotment.core.placement.policies.learning import LEARNERS
from allotment.core.placement.policies.typical import Fragmentation, cluster_fragmentation
from allotment_proto.events import Placement
from allotment_proto.facts import PodRequest, Policy

if TYPE_CHECKING:
    from allotment_board.board import Board

NODES_MIN = 64
"""From so many nodes on the board ranks them. Below, a plain decision costs less than half a
millisecond, of about seven that a pod costs all services."""
COMPILED_NODES_MIN = 512
"""From so many nodes on its loops are compiled: that costs each process 100 MiB."""


def is_for_board(state: ClusterState) -> bool:
    """Whether the board ranks these nodes under this policy: it is installed and knows the policy,
    and there are enough nodes.
    """
    if not _is_large(len(state.nodes), state.policy, NODES_MIN) or find_spec("numpy") is None:
        return False
    from allotment_board.encode import serves

    return serves(state.policy)


def is_for_compiled_loops(nodes: int, policy: Policy) -> bool:
    """Whether so many nodes under this policy are ranked by compiled loops, if they can be made."""
    return _is_large(nodes, policy, COMPILED_NODES_MIN)


def _is_large(nodes: int, policy: Policy, most_policies: int) -> bool:
    # A policy that looks ahead asks forty times as much of a node: any number is large then.
    return nodes >= most_policies or policy.device_policy in LEARNERS


def prepare(state: ClusterState, on_broken: Callable[[str], None]) -> None:
    """Start to load the board's compiled loops, in a thread, if they are to rank these nodes. If
    they cannot be made, `on_broken` is called with the reason, in that thread.
    """
    if is_for_compiled_loops(len(state.nodes), state.policy) and is_for_board(state):
        from allotment_board import machine_code

        machine_code.load_in_thread(on_broken)


def is_loading() -> bool:
    """Whether they are being loaded: who can wait for them should."""
    loops = _machine_code()
    return loops is not None and bool(loops.is_loading())


def is_compiled() -> bool:
    """Whether nodes are ranked by compiled loops."""
    loops = _machine_code()
    return loops is not None and bool(loops.is_in_use())


def _machine_code() -> Any:
    """The module, if this process ever used the board."""
    return sys.modules.get("allotment_board.machine_code")


class NodeRanker:
    """Ranks nodes by the board or by the plain rules. Every `begin` decides which.

    With `on_broken` the board's loops are compiled (see `prepare`), else they run as they are
    unless this process has compiled them.
    """

    def __init__(self, state: ClusterState, on_broken: Callable[[str], None] | None = None) -> None:
        self.state = state
        self._on_broken = on_broken
        self._in_use: Evaluator | Board = Evaluator(state)
        self._board: Board | None = None
        """The ranker in use, if it is the board."""

    @property
    def assumed(self) -> Sequence[Placement]:
        return self._in_use.assumed

    def begin(self) -> None:
        self._choose()
        self._in_use.begin()

    def rank(self, request: PodRequest) -> Ranking:
        return self._in_use.rank(request)

    def reasons(self, request: PodRequest) -> tuple[tuple[str, int], ...]:
        return self._in_use.reasons(request)

    def holds_at_most(self, request: PodRequest, wanted: int) -> int:
        return self._in_use.holds_at_most(request, wanted)

    def assume(self, placement: Placement) -> None:
        self._in_use.assume(placement)

    def take_back(self) -> None:
        self._in_use.take_back()

    def end(self) -> None:
        self._in_use.end()

    def open_ahead(self) -> None:
        """Do the board's work for the next pod while no pod waits."""
        self._choose()
        if self._board is not None:
            self._board.open_ahead()

    def fragmentation(self) -> Fragmentation | None:
        """How much of what is idle the policy's mix cannot use; None while there is no mix."""
        self._choose()
        if self._board is not None:
            return self._board.fragmentation()
        policy = self.state.policy
        if not policy.mix:
            return None
        return cluster_fragmentation(self.state.nodes.values(), policy.mix, policy)

    def _choose(self) -> None:
        if not is_for_board(self.state):
            if self._board is not None:
                self._board, self._in_use = None, Evaluator(self.state)
            return
        if self._on_broken is not None:
            prepare(self.state, self._on_broken)
        if self._board is None:
            from allotment_board.board import Board

            self._board = self._in_use = Board(self.state)
