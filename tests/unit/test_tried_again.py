"""Who waits behind a placement that did not stand is tried again, whatever it was told before."""

import pytest

from allotment.core.ledger.model import SINGLE
from allotment.core.queues.order import due
from allotment_binder.deciding import Deciding
from allotment_filter.groups import Groups
from allotment_proto.decided import RULES
from allotment_proto.events import Decided, Event, PodObserved, QueueGone, StageTime
from allotment_proto.facts import PluginUse, PodRequest, Policy
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.unit.batch_parts import gone
from tests.unit.rounds_world import World, group

WHOLE = build.request(build.wants(16_000, 100))
"""Nobody else fits on the card."""
HALF = build.request(build.wants(8_000, 50))
ON_HOST = build.request()
GATED = Policy(
    tiers=((PluginUse("gang"),), (PluginUse("capacity"),)), actions=("enqueue", "allocate")
)
CHECK, APPEND = "before the check", "before the append"


class Pipeline:
    """The filter's memory, the scorer's round and the binder's check, on one world."""

    def __init__(self, *events: Event, queues: bool, policy: Policy | None = None) -> None:
        self.world = World(*events, policy=policy)
        if not queues:
            self.world.tell(QueueGone(uid="q", name="default", rv=2))
        self._groups = Groups(self.world.state)
        self._tried: dict[str, int] = {}

    def pod(self, uid: str, wanted: PodRequest, **changes: object) -> None:
        queue = "default" if self.world.state.is_batched else ""
        self.world.tell(build.pod(uid, wanted, queue=queue, **changes))

    def due(self) -> set[str]:
        """Pods and groups for which the filter would open a cycle now."""
        state = self.world.state
        if not state.is_batched:
            return {pod.fact.uid for pod in due(state, self._tried)}
        found = self._groups.next_batch(())
        return set() if found is None else {uid.removeprefix(SINGLE) for uid in found.jobs}

    def cycle(self, *meanwhile: Event, lands: str = CHECK) -> Decided:
        """One cycle over all that is due; the events land between its stages."""
        world, state = self.world, self.world.state
        found = self._groups.next_batch(()) if state.is_batched else None
        batch = tuple(p.fact.uid for p in due(state, self._tried))
        if found is not None:
            batch = found.batch.uids
        basis = world.seq
        outcome = world.round(list(batch))
        proposal = Proposal(
            v=MESSAGE_VERSION,
            cycle=f"c{basis}",
            basis=basis,
            policy=state.policy_seq,
            batch=batch,
            placements=outcome.placements,
            refusals=outcome.refusals,
            stages=(),
            wholes=outcome.wholes,
            shorts=outcome.shorts,
            admissions=outcome.admissions,
            holds=outcome.holds,
        )
        for event in meanwhile if lands == CHECK else ():
            world.tell(event)
        answer = Deciding(state).decide(proposal, 1, StageTime("binder", "b", 1, 2))
        assert isinstance(answer.decided, Decided), answer
        assert not answer.objection
        for event in meanwhile if lands == APPEND else ():
            world.tell(event)
        world.tell(answer.decided)
        if found is not None:
            self._groups.tried(found)
        self._tried.update(dict.fromkeys(batch, basis))
        return answer.decided


def stranger() -> PodObserved:
    """Another scheduler's pod, which takes half of the card."""
    held = (build.holding(memory_mib=8_000, cores_pct=50),)
    return build.pod("x", HALF, scheduler="other", node="n1", holdings=held, phase="Running")


@pytest.mark.parametrize("lands", [CHECK, APPEND])
@pytest.mark.parametrize("queues", [False, True], ids=["no queues", "queues"])
def test_a_pod_that_is_refused_for_the_first_time(queues: bool, lands: str) -> None:
    pipeline = Pipeline(build.node("n1", 1), queues=queues)
    pipeline.pod("first", WHOLE)
    pipeline.pod("second", HALF, created_ms=2_000)
    decided = pipeline.cycle(stranger(), lands=lands)
    assert decided.rules == RULES
    assert [refusal.uid for refusal in decided.refusals] == ["second"]
    assert pipeline.due() == {"first", "second"}
    pipeline.cycle()
    assert pipeline.world.placed() == {"x", "second"}
    assert pipeline.due() == set(), "it was tried again, and nothing happened since"


@pytest.mark.parametrize("lands", [CHECK, APPEND])
@pytest.mark.parametrize("queues", [False, True], ids=["no queues", "queues"])
def test_a_pod_that_is_refused_as_the_time_before(queues: bool, lands: str) -> None:
    """Its refusal is not said again: the decision names the pod in its batch alone."""
    pipeline = Pipeline(build.node("n1", 1), queues=queues)
    pipeline.pod("before", WHOLE)
    pipeline.pod("last", HALF, created_ms=3_000)
    pipeline.cycle()
    pipeline.world.tell(gone("before"))
    pipeline.pod("first", WHOLE, created_ms=2_000)
    pipeline.pod("elsewhere", ON_HOST, created_ms=2_000)
    decided = pipeline.cycle(stranger(), lands=lands)
    assert "last" in decided.batch
    assert decided.refusals == ()
    assert pipeline.due() == {"first", "last"}
    pipeline.cycle()
    assert pipeline.world.placed() == {"x", "elsewhere", "last"}


@pytest.mark.parametrize("lands", [CHECK, APPEND])
def test_a_gang_that_got_nothing(lands: str) -> None:
    pipeline = Pipeline(build.node("n1", 1), queues=True)
    pipeline.pod("first", WHOLE, created_ms=0)
    pipeline.world.tell(group("gang", 2, created_ms=9_000))
    pipeline.world.pods("gang", 2, memory_mib=4_000)
    pipeline.cycle(stranger(), lands=lands)
    assert pipeline.due() == {"first", "default/gang"}
    pipeline.cycle()
    assert pipeline.world.placed() == {"x", "gang-w-0", "gang-w-1"}
