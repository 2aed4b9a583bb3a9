"""News about pods that fit nowhere never crowds out a pod that fits, and is told to everybody."""

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment_filter.batches import Round, next_round
from allotment_filter.feasibility import FeasibilityCache
from allotment_proto.events import NodeObserved, PodObserved
from tests.build import decided, node, pod, request, wants

HUGE = request(wants(memory_mib=1_000_000))
HOPELESS = 40
BATCH = 8


def hopeless(number: int) -> PodObserved:
    return pod(f"h{number:04d}", HUGE, priority=100)


class Churn:
    """A cluster in which every round one more node joins: each refusal's counts are news."""

    def __init__(self, *pods: PodObserved) -> None:
        self.state = ClusterState()
        self.feasibility = FeasibilityCache(self.state, Evaluator(self.state))
        self.nodes = 0
        apply(self.state, self._node(), 1)
        for fact in pods:
            apply(self.state, fact, self.state.seq + 1)

    def _node(self) -> NodeObserved:
        self.nodes += 1
        return node(f"n{self.nodes:03d}")

    def round(self) -> Round:
        apply(self.state, self._node(), self.state.seq + 1)
        return next_round(self.feasibility, {}, {}, BATCH)


def test_a_pod_that_fits_is_in_the_first_batch_whatever_stands_before_it() -> None:
    churn = Churn(*(hopeless(n) for n in range(HOPELESS)), pod("fits", priority=0))
    batch = churn.round().batch
    assert len(batch.uids) == BATCH
    assert batch.uids[-1] == "fits"  # the order stays: higher priority first
    for found in batch.classes:
        asked = churn.state.pods[batch.uids[found.sample]].fact.request
        assert (found.feasible > 0) == (asked != HUGE)


def test_pods_that_fit_leave_room_to_tell_the_others() -> None:
    fitting = [pod(f"f{n:03d}", priority=0) for n in range(HOPELESS)]
    batch = Churn(*fitting, *(hopeless(n) for n in range(HOPELESS))).round().batch
    told = [uid for uid in batch.uids if uid.startswith("h")]
    assert len(batch.uids) == BATCH
    assert len(told) == BATCH // 4


def test_who_was_never_told_comes_before_who_is_told_again() -> None:
    churn = Churn(*(hopeless(n) for n in range(HOPELESS)))
    told: set[str] = set()
    for _ in range(HOPELESS // BATCH):
        uids = churn.round().batch.uids
        told.update(uids)
        outcome = run_cycle(churn.state, uids, Evaluator(churn.state))
        refused = decided(refusals=outcome.refusals, basis=churn.state.seq)
        apply(churn.state, refused, churn.state.seq + 1)
    assert len(told) == HOPELESS
