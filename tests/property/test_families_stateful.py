"""Ascend chips through HAMi and through MindCluster, with an auditor who knows nothing of ledgers.

Pods come, are placed, bound and go; chips fall ill and come back; he counts who holds what.

Nothing is ever oversold or given twice, what is released is free again, what the annotations say is
what the books say, and books made anew from annotations alone are the same.
"""

from collections import defaultdict
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from allotment.core.ledger.check import check
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import NodeSource, PodSource
from allotment.core.placement.evaluator import Evaluator
from allotment_board.board import Board
from allotment_proto.events import BindFailed, Event, PodGone, PodObserved, PolicyLoaded
from allotment_proto.facts import Holding, Inventory, Policy
from allotment_proto.volcano import keys
from allotment_proto.volcano.mindcluster import TEMPLATES
from tests import chips
from tests.build import decided
from tests.metering import Metered

NODES = ("n1", "n2")
PODS = tuple("abcdef")
policies = st.builds(Policy, device_policy=st.sampled_from(("binpack", "spread", "none")))


class Chips(RuleBasedStateMachine):
    """One family's chips on two nodes."""

    family = ""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.metered = Metered(self.state)
        self.seq = 0
        self.inventories: dict[str, Inventory] = {}
        self.sources: dict[str, PodSource] = {}
        self.bound: set[str] = set()
        self.policy = Policy()

    # ---- what a family says

    def node_source(self, data: st.DataObject, name: str) -> NodeSource:
        raise AssertionError

    def pod_source(self, data: st.DataObject) -> PodSource:
        raise AssertionError

    def audit(self, card: Card, held: list[tuple[str, Holding]]) -> None:
        raise AssertionError

    # ---- what happens

    def append(self, event: Event) -> None:
        self.seq += 1
        apply(self.state, event, self.seq)
        self.metered.took(self.seq)

    @initialize(policy=policies, data=st.data())
    def begin(self, policy: Policy, data: st.DataObject) -> None:
        self.policy = policy
        self.append(PolicyLoaded(policy=policy, source="", text_sha256=""))
        for name in NODES:
            source = self.node_source(data, name)
            self.inventories[name] = chips.inventory(self.family, source)
            self.append(chips.node(name, self.inventories[name]))
        self.board = Board(self.state)

    @rule(data=st.data(), uids=st.lists(st.sampled_from(PODS), unique=True, min_size=2))
    def pods_come(self, data: st.DataObject, uids: list[str]) -> None:
        for uid in uids:
            if uid not in self.sources:
                self.sources[uid] = self.pod_source(data)
                self.append(chips.pod(uid, self.family, self.sources[uid], rv=self.seq))

    @rule(uids=st.permutations(PODS))
    def a_cycle_is_decided(self, uids: list[str]) -> None:
        outcome = run_cycle(self.state, uids, self.board)
        assert outcome == run_cycle(self.state, uids, Evaluator(self.state))
        self.append(decided(*outcome.placements))
        for placement in outcome.placements:
            assert self.state.pods[placement.uid].allocation is not None

    @rule(uid=st.sampled_from(PODS))
    def a_pod_is_seen_bound(self, uid: str) -> None:
        pod = self.state.pods.get(uid)
        if pod is None or pod.allocation is None:
            return
        before = pod.allocation.holdings
        self.append(self.seen(uid))
        assert pod.allocation.holdings == before
        self.bound.add(uid)

    def seen(self, uid: str) -> PodObserved:
        """The pod as it is observed once it is bound to what it was given."""
        held = self.state.pods[uid].allocation
        assert held is not None
        family, stamp_s = FAMILIES[self.family], self.seq
        written = family.annotations(held.node, held.holdings, stamp_s, stamp_s)
        source = self.sources[uid]
        annotations = {**source.annotations, **written, keys.LOG_SEQ: str(held.seq)}
        holdings, problems = family.holdings(source._replace(annotations=annotations))
        assert problems == ()
        assert {*holdings} == {*held.holdings}
        fact = chips.pod(uid, self.family, source, rv=self.seq)
        return msgspec.structs.replace(fact, node=held.node, holdings=holdings, phase="Running")

    @rule(uid=st.sampled_from(PODS))
    def a_binding_fails(self, uid: str) -> None:
        pod = self.state.pods.get(uid)
        if pod is not None and pod.allocation is not None and uid not in self.bound:
            held = pod.allocation
            self.append(
                BindFailed(
                    uid=uid,
                    namespace="",
                    name="",
                    node=held.node,
                    decision=held.seq,
                    code="",
                    message="",
                )
            )
            assert pod.allocation is None

    @rule(uid=st.sampled_from(PODS))
    def a_pod_goes(self, uid: str) -> None:
        if self.sources.pop(uid, None) is not None:
            self.bound.discard(uid)
            self.append(PodGone(uid=uid, namespace="", name="", rv=self.seq))

    @rule(name=st.sampled_from(NODES), ill=st.sets(st.integers(0, 3)), kept=st.integers(0, 4))
    def chips_fall_ill_or_are_not_listed(self, name: str, ill: set[int], kept: int) -> None:
        listed = self.inventories[name].cards[: kept or None]
        cards = tuple(
            msgspec.structs.replace(card, healthy=card.healthy and card.index not in ill)
            for card in listed
        )
        changed = msgspec.structs.replace(self.inventories[name], cards=cards)
        self.append(chips.node(name, changed, rv=self.seq))

    # ---- what must hold

    @invariant()
    def the_books_balance(self) -> None:
        assert check(self.state) == []

    @invariant()
    def nothing_is_given_twice(self) -> None:
        held: dict[tuple[str, str], list[tuple[str, Holding]]] = defaultdict(list)
        for uid, pod in self.state.pods.items():
            allocation = pod.allocation
            if allocation is not None:
                for holding in allocation.holdings:
                    held[allocation.node, holding.card].append((uid, holding))
        for name, node in self.state.nodes.items():
            for ledger in node.ledgers.values():
                for card in ledger.cards:
                    self.audit(card, held[name, card.fact.id])

    def teardown(self) -> None:
        if not self.inventories:
            return
        for name in NODES:
            self.append(chips.node(name, self.inventories[name], rv=self.seq))
        self.rebuilt_from_annotations()
        for uid in list(self.sources):
            self.a_pod_goes(uid)
        self.metered.check()
        for node in self.state.nodes.values():
            for ledger in node.ledgers.values():
                for card in ledger.cards:
                    assert card.state == ()
                    assert (card.free_slots, card.free_memory_mib, card.free_cores_pct) == (
                        card.fact.slots,
                        card.fact.memory_mib,
                        card.fact.cores_pct,
                    )

    def rebuilt_from_annotations(self) -> None:
        fresh, number = ClusterState(), 1
        for name in NODES:
            apply(fresh, chips.node(name, self.inventories[name]), number)
        for uid, pod in self.state.pods.items():
            if pod.allocation is not None:
                number += 1
                apply(fresh, self.seen(uid), number)
        assert books(fresh) == books(self.state)


def books(state: ClusterState) -> dict[str, Any]:
    return {
        f"{name}/{card.fact.id}": (
            card.free_slots,
            card.free_memory_mib,
            card.free_cores_pct,
            card.state,
            dict(card.holders),
        )
        for name, node in sorted(state.nodes.items())
        for ledger in node.ledgers.values()
        for card in ledger.cards
    }


SAME, OTHER = ("Ascend310P",) * 3, ("Ascend910B3",)


class Ascend(Chips):
    family = "ascend"

    def node_source(self, data: st.DataObject, name: str) -> NodeSource:
        words = data.draw(st.sampled_from((SAME, SAME[:2], SAME + OTHER, OTHER * 2)))
        entries = [
            chips.entry(f"{name}-{number}", word, data.draw(st.sampled_from((0, 1, -1))), count=3)
            for number, word in enumerate(words)
        ]
        soft = {keys.HAMI_SOFT_SLICING: data.draw(st.sampled_from(("true", "false")))}
        return chips.ascend_source(*entries, annotations=soft)

    def pod_source(self, data: st.DataObject) -> PodSource:
        small = st.sampled_from((chips.asks(memory=3_000), chips.asks(memory=7_000, core=4)))
        limits = st.one_of(
            small,
            small,
            st.sampled_from(
                (
                    {},
                    chips.asks(),
                    chips.asks(number=2),
                    chips.asks("Ascend910B3", memory=10_000),
                    chips.asks("Ascend910B3", core=20),
                    chips.asks("Ascend910B3", number=2),
                )
            ),
        )
        containers = data.draw(st.lists(limits, min_size=1, max_size=3).filter(any))
        annotations = data.draw(st.sampled_from(({}, {}, chips.SOFT)))
        return chips.pod_source(*containers, annotations=annotations)

    def audit(self, card: Card, held: list[tuple[str, Holding]]) -> None:
        assert len(held) <= card.fact.slots
        assert sum(holding.memory_mib for _, holding in held) <= card.fact.memory_mib
        assert sum(holding.cores_pct for _, holding in held) <= card.fact.cores_pct
        assert len({uid for uid, _ in held}) == len(held), "a pod's containers share a chip"
        if any(holding.cores_pct == 100 for _, holding in held):
            assert len(held) == 1
        assert all(holding.instance.startswith(f"{card.fact.model}/") for _, holding in held)


class Mindcluster(Chips):
    family = "mindcluster"

    def node_source(self, data: st.DataObject, name: str) -> NodeSource:
        number, cores = data.draw(st.integers(2, 4)), data.draw(st.sampled_from((8, 8, 10)))
        return chips.npu_source(number, cores)

    def pod_source(self, data: st.DataObject) -> PodSource:
        cores = data.draw(st.sampled_from((1, 2, 2, 4, 4, 4, 8, 10, 16)))
        level = data.draw(st.sampled_from(("low", "high")))
        engine = data.draw(st.sampled_from(("null", "null", "yes", "no")))
        labels = {keys.LABEL_VNPU_LEVEL: level, keys.LABEL_VNPU_DVPP: engine}
        return chips.pod_source({}, chips.npu(cores), labels=labels)

    def audit(self, card: Card, held: list[tuple[str, Holding]]) -> None:
        whole = [holding for _, holding in held if not holding.instance]
        assert not whole or (len(held) == 1 and whole[0].cores_pct == card.fact.cores_pct)
        pieces = [TEMPLATES[holding.instance] for _, holding in held if holding.instance]
        assert sum(piece.cores for piece in pieces) <= card.fact.cores_pct
        assert sum(piece.cpu for piece in pieces) <= card.fact.slots
        engines = [piece.dvpp for piece in pieces]
        assert engines.count("yes") <= 1
        assert not {"yes", "null"} <= set(engines)


FEWER = settings(max_examples=max(40, settings().max_examples // 5), stateful_step_count=30)
TestAscend = Ascend.TestCase
TestAscend.settings = FEWER
TestMindcluster = Mindcluster.TestCase
TestMindcluster.settings = FEWER
