"""The log line of a decision: whom it names, with which trace, and how many it does not name."""

from allotment.core import reasons
from allotment.core.trace_ids import trace_id
from allotment_binder.decision_line import NAMED_A_SECOND_MAX, NAMED_IN_A_LINE_MAX, DecisionLines
from allotment_proto.events import Eviction, Refusal
from tests import build

UID = "0af76519-16cd-43dd-8448-eb211c80319c"


def refusal(uid: str) -> Refusal:
    return Refusal(uid, "research", uid, 1, ((reasons.INSUFFICIENT_GPU_MEMORY, 1),))


def test_pods_are_named_with_their_traces_and_reasons() -> None:
    evicted = Eviction(
        uid="v", namespace="default", name="victim", node="n1", preemptor="default/job", action="p"
    )
    placed = build.placement(UID), build.placement("void")
    decided = build.decided(*placed, refusals=(refusal("r"),), evictions=(evicted,))
    fields = DecisionLines(lambda: 0.0).fields(build.state_of(), decided, placed[:1], 7)
    assert fields == {
        "log_seq": 7,
        "cycle": "c",
        "placed": 1,
        "void": 1,
        "dropped": 0,
        "refused": 1,
        "evicted": 1,
        "evicted_pods": [
            {
                "pod": "default/victim",
                "trace_id": trace_id("v"),
                "node": "n1",
                "for": "default/job",
            }
        ],
        "placed_pods": [
            {"pod": f"default/pod-{UID}", "trace_id": UID.replace("-", ""), "node": "n1"}
        ],
        "refused_pods": [
            {
                "pod": "research/r",
                "trace_id": trace_id("r"),
                "reason": reasons.INSUFFICIENT_GPU_MEMORY,
            }
        ],
    }


def test_so_many_pods_are_named_in_a_line_and_in_a_second() -> None:
    clock = [0.2]
    lines = DecisionLines(lambda: clock[0])
    many = build.decided(refusals=tuple(refusal(f"r{n}") for n in range(256)), batch=())

    def named() -> tuple[int, object]:
        fields = lines.fields(build.state_of(), many, (), 7)
        pods = fields.get("refused_pods", [])
        assert isinstance(pods, list)
        return len(pods), fields["not_named"]

    for _ in range(NAMED_A_SECOND_MAX // NAMED_IN_A_LINE_MAX):
        assert named() == (NAMED_IN_A_LINE_MAX, 256 - NAMED_IN_A_LINE_MAX)
    assert named() == (0, 256)
    clock[0] = 1.0
    assert named()[0] == NAMED_IN_A_LINE_MAX
