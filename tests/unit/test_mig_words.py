"""Why a pod that wants a MIG instance waits: with the profile that it would get."""

from allotment.core.explain.causes.why import Whys
from allotment.core.ledger.state import apply
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.round.rounds import Rounds
from allotment_proto.events import PodObserved
from allotment_proto.facts import Selection
from tests import build
from tests.unit.device_books import mig_node


def asking(uid: str, memory_mib: int) -> PodObserved:
    request = build.request(build.wants(memory_mib, 0), selection=Selection(mode="mig"))
    return build.pod(uid, request)


def test_the_cause_names_the_profile_that_a_pod_would_get() -> None:
    state = build.state_of(mig_node(), asking("a", 15_000), asking("b", 3_000))
    for uid in "ab":
        made = Rounds(state).run([uid], Evaluator(state))
        decided = build.decided(*made.placements, batch=(uid,), refusals=made.refusals)
        apply(state, decided, state.seq + 1)
    why = Whys(state).of(state.pods["b"])
    assert "GPU memory: 2.9 GiB (MIG 2g) requested, only 0 MiB free on n1/GPU-0" in why.text
