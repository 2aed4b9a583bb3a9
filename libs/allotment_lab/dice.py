"""Random placement: any node that fits, any cards that fit, each as likely as the others.

The baseline of experiments. It cannot be decided again from the log, so no service offers it.
"""

from collections.abc import Sequence
from random import Random

from allotment.core.ledger.model import ClusterState, Node
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.choosing import card_refusal, rules_of
from allotment.core.placement.devices.free import Free, need_memory_mib
from allotment.core.placement.evaluator import Place, Ranker, Ranking, Trial
from allotment.core.placement.rules.predicates import fits
from allotment.core.placement.rules.scores import Score
from allotment_proto.events import Placement
from allotment_proto.facts import Holding, PodRequest

_NO_SCORE = Score(0, (("device", 0), ("host", 0)), 0)


class Dice:
    """A ranker that asks nodes in random order and takes the first that fits.

    `ranker` knows beforehand whether any does, and why not. Cards are drawn for pods with one
    device request; of several the node's own choice is taken. There are no runners-up.
    """

    def __init__(self, state: ClusterState, ranker: Ranker, random: Random) -> None:
        self.state = state
        self._ranker = ranker
        self._random = random
        self._trial = Trial(state)

    @property
    def assumed(self) -> Sequence[Placement]:
        return self._ranker.assumed

    def begin(self) -> None:
        self._trial = Trial(self.state)
        self._ranker.begin()

    def assume(self, placement: Placement) -> None:
        self._trial.assume(placement)
        self._ranker.assume(placement)

    def take_back(self) -> None:
        self._trial.take_back(self._ranker.assumed[-1])
        self._ranker.take_back()

    def holds_at_most(self, request: PodRequest, wanted: int) -> int:
        return self._ranker.holds_at_most(request, wanted)

    def end(self) -> None:
        self._ranker.end()

    def reasons(self, request: PodRequest) -> tuple[tuple[str, int], ...]:
        return self._ranker.reasons(request)

    def rank(self, request: PodRequest) -> Ranking:
        known = self._ranker.rank(request)
        if not known.feasible:
            return known
        rows = self.state.rows
        while True:
            row = rows[self._random.randrange(len(rows))]
            node = None if row is None else self._trial.node(row.name)
            if node is None:
                continue
            fit = fits(node, request, self.state.policy)
            if isinstance(fit, str):
                continue
            holdings = tuple(h for chosen in fit.chosen for h in chosen.holdings)
            if len(request.devices) == 1:
                holdings = self._any_cards(node, request)
            best = Place((0, 0, node.name), _NO_SCORE, holdings)
            return Ranking(best, (), known.feasible, known.nodes)

    def _any_cards(self, node: Node, request: PodRequest) -> tuple[Holding, ...]:
        (ask,) = request.devices
        family = FAMILIES[ask.family]
        rules = rules_of(request, self.state.policy, node.name)
        good = [
            card.fact
            for card in node.ledgers[ask.family].cards
            if card.partitioner is None and card_refusal(Free(card), ask, rules, family) is None
        ]
        return tuple(
            Holding(
                ask.family,
                ask.container,
                fact.id,
                need_memory_mib(ask, fact.memory_mib),
                ask.cores_pct,
            )
            for fact in self._random.sample(good, ask.count)
        )
