"""The log outranks annotations: what a pod's owner writes on it moves nothing in the books."""

import msgspec
import pytest

from allotment.core.explain.doctor import findings
from allotment.core.explain.history.pod_story import PodStory
from allotment.core.explain.history.story import Claims, line
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check, oversold
from allotment.core.ledger.claims import agrees, difference, mismatch
from allotment.core.ledger.model import BOUND, RESERVED, ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.reasons import CLAIM_MISMATCH
from allotment_proto.codec import encode
from allotment_proto.events import Bound, Corrected, Envelope, Event, PodObserved
from allotment_proto.facts import Holding, Inventory, Problem
from tests import build
from tests.model import Model
from tests.picture import picture_of
from tests.unit.kube_json import Json, container, pod_json, seen

GARBLED = Problem("BrokenAssignment", "annotation volcano.sh/vgpu-ids-new", "is 'x'")
CARD_0 = build.holding()
CARD_1 = build.holding("GPU-1")
IDS = "volcano.sh/vgpu-ids-new"
ALL_CARDS = "".join(f"GPU-{n},NVIDIA,16000,100:" for n in range(4))


class Log:
    """Events in order, their state, and what a dumb list of shares makes of them."""

    def __init__(self, *events: Event) -> None:
        self.state = ClusterState()
        self.payloads: list[bytes] = []
        self.model = Model()
        self.tell(*events)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.payloads.append(encode(Envelope(v=1, at_ms=0, by="test", events=(event,))))
            apply(self.state, event, len(self.payloads))
            self.model.observe(event, len(self.payloads))
            assert check(self.state) == []
            assert self.model.picture() == picture_of(self.state)

    def held(self, uid: str = "a") -> tuple[Holding, ...]:
        allocation = self.state.pods[uid].allocation
        assert allocation is not None
        return allocation.holdings

    def said(self, uid: str = "a") -> str:
        problem = mismatch(self.state.pods[uid])
        return "" if problem is None else f"{problem.code}: {problem.place} {problem.message}"


def running(*held: Holding, rv: int = 2, **changes: object) -> PodObserved:
    wanted = build.request(build.wants(4_000, 25))
    return build.pod("a", wanted, rv=rv, node="n1", phase="Running", holdings=held, **changes)


def bound_to_n1(decision: int = 3) -> Bound:
    return Bound(uid="a", namespace="team-a", name="a", node="n1", decision=decision)


def a_decided_pod() -> Log:
    waits = build.pod("a", build.request(build.wants(4_000, 25)))
    return Log(build.node(), waits, build.decided(build.placement("a")), bound_to_n1())


EDITS = {
    "to less": running(build.holding(memory_mib=1)),
    "to another card": running(CARD_1),
    "to all cards": running(CARD_0, CARD_1),
    "away": running(),
    "to garbage": running(broken=GARBLED),
    "to another family": running(Holding("gpushare", 0, "0", 4_000, 0)),
    "to another instance": running(Holding("vgpu", 0, "GPU-0", 4_000, 25, "g1-1")),
}


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS)
def test_an_edited_annotation_moves_nothing_of_what_was_decided(edited: PodObserved) -> None:
    log = a_decided_pod()
    log.tell(running(CARD_0), msgspec.structs.replace(edited, rv=3))
    assert log.held() == (CARD_0,)
    assert log.state.nodes["n1"].blocked is None
    assert CLAIM_MISMATCH in log.said()
    assert "the log books GPU-0 (4000 MiB, compute 25) for the pod (decision 3)" in log.said()
    log.tell(running(CARD_0, rv=4))
    assert log.said() == ""


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS)
def test_an_edit_that_is_seen_before_the_binding_is_known_moves_nothing(
    edited: PodObserved,
) -> None:
    log = a_decided_pod()
    del log.payloads[-1]
    before = [event for payload in log.payloads for event in events_of(payload)]
    log.state, log.model = build.state_of(*before), Model()
    for seq, event in enumerate(before, 1):
        log.model.observe(event, seq)
    log.tell(edited)
    allocation = log.state.pods["a"].allocation
    assert allocation is not None
    assert (allocation.phase, allocation.holdings) == (RESERVED, (CARD_0,))
    log.tell(bound_to_n1())
    assert (allocation.phase, allocation.holdings) == (BOUND, (CARD_0,))
    assert list(log.state.reserved) == []


def events_of(payload: bytes) -> tuple[Event, ...]:
    return msgspec.json.decode(payload, type=Envelope).events


def test_nobody_gets_the_card_of_a_pod_that_edited_its_annotation() -> None:
    log = a_decided_pod()
    log.tell(running(build.holding(memory_mib=1), rv=3))
    log.tell(build.node(rv=2, cards=1), build.pod("b", build.request(build.wants(15_000, 0))))
    assert run_cycle(log.state, ("b",), Evaluator(log.state)).placements == ()
    assert oversold(log.state) == []


def test_the_end_of_the_pod_is_an_ending_whatever_it_claims() -> None:
    log = a_decided_pod()
    log.tell(running(CARD_1, rv=3), msgspec.structs.replace(running(rv=4), phase="Failed"))
    assert log.state.pods["a"].allocation is None


@pytest.mark.parametrize(
    "ending",
    [
        build.bind_failed("a", 3),
        build.pod(rv=5, node="n2", holdings=(CARD_1,)),
        build.pod(rv=5, node="n1", holdings=(CARD_0,), phase="Failed"),
    ],
)
def test_a_correction_is_of_what_was_decided_and_ends_with_it(ending: Event) -> None:
    """Nobody is to delete a pod for devices that it does not hold any more."""
    waits = build.pod("a", build.request(build.wants(4_000, 25)))
    log = Log(build.node(), waits, build.decided(build.placement("a")))
    corrected = Corrected(
        uid="a",
        namespace="default",
        name="pod-a",
        node="n1",
        decision=3,
        holdings=(CARD_1,),
        was=(CARD_0,),
        code="Misdelivered",
        message="its device plugin served it with the record of pod default/b",
        served="default/b",
    )
    log.tell(corrected)
    assert "Misdelivered" in [found.code for found in findings(log.state, 0)]
    log.tell(ending)
    assert log.state.corrected == {}


def test_a_resize_in_place_changes_the_host_and_no_card() -> None:
    log = a_decided_pod()
    more = build.request(build.wants(4_000, 25), cpu_milli=500)
    log.tell(msgspec.structs.replace(running(CARD_1, rv=3), request=more))
    assert log.held() == (CARD_0,)
    allocation = log.state.pods["a"].allocation
    assert allocation is not None
    assert (allocation.cpu_milli, allocation.seq, allocation.phase) == (500, 3, BOUND)


def test_a_pod_that_others_bound_holds_what_it_first_claimed() -> None:
    log = Log(build.node(), running(CARD_0))
    for number, edited in enumerate(EDITS.values(), start=3):
        log.tell(msgspec.structs.replace(edited, rv=number))
        assert log.held() == (CARD_0,)
        assert log.state.nodes["n1"].blocked is None
        assert "but when they were first read GPU-0 (4000 MiB, compute 25) was booked" in log.said()


def test_a_pod_that_others_bound_may_be_told_its_cards_later() -> None:
    log = Log(build.node(), running(), running(CARD_1, rv=3), running(CARD_0, rv=4))
    assert log.held() == (CARD_1,)


def test_what_a_device_plugin_confirms_is_confirmed_and_stays_so() -> None:
    piece = Holding("mindcluster", 0, "0", 0, 2, "vir02?")
    known = msgspec.structs.replace(piece, instance="vir02")
    log = Log(build.node(), running(piece), running(known, rv=3))
    assert log.held() == (known,)
    log.tell(running(piece, rv=4))
    assert log.held() == (known,)
    assert log.said() == ""


def test_what_annotations_leave_out_is_no_difference() -> None:
    whole = Holding("gpushare", 0, "3", 8_000, 100)
    assert agrees((whole,), (msgspec.structs.replace(whole, memory_mib=0),))
    assert not agrees((whole,), (msgspec.structs.replace(whole, memory_mib=7_999),))
    assert not agrees((whole,), (msgspec.structs.replace(whole, card="2"),))
    two = CARD_0, CARD_1
    assert agrees(two, two[::-1])
    instance = Holding("vgpu", 0, "GPU-0", 1_000, 0, "g1-0")
    assert not agrees((instance,), (msgspec.structs.replace(instance, instance="g1-1"),))


def test_every_way_to_ask_says_that_a_claim_differs_and_from_what() -> None:
    log = a_decided_pod()
    log.tell(running(CARD_0), running(CARD_1, rv=3), running(CARD_1, rv=4, reason="x"))
    said = log.said()
    assert said.startswith("ClaimMismatch: annotations claim GPU-1 (4000 MiB, compute 25), but")
    (finding,) = [f for f in findings(log.state, 0) if f.code == CLAIM_MISMATCH]
    assert (finding.subject, finding.seq) == ("pod default/pod-a", 3)
    assert f"{finding.code}: {finding.message}" == said
    told, book, state = PodStory("default", "pod-a"), Claims(), ClusterState()
    lines = []
    for seq, payload in enumerate(log.payloads, 1):
        (event,) = events_of(payload)
        apply(state, event, seq)
        told.follow(seq, 0, Envelope(v=1, at_ms=0, by="test", events=(event,)), lambda: state)
        lines.append(line(event) + book.note(event, seq))
    assert [said in text for text in lines] == [False] * 5 + [True] * 2
    assert told.latest is not None
    assert [m.seq for m in told.latest.moments if m.text == said] == [6]


def test_a_claim_beyond_the_limits_is_said_as_well() -> None:
    log = Log(build.node(), running(CARD_0, annotated=(CARD_0, CARD_1)))
    assert log.held() == (CARD_0,)
    assert log.said() == (
        "ClaimMismatch: annotations claim GPU-0 (4000 MiB, compute 25), GPU-1 (4000 MiB, compute "
        "25), but the pod's limits ask for GPU-0 (4000 MiB, compute 25): the books go by that, "
        "whatever annotations say"
    )
    assert [f.code for f in findings(log.state, 0)] == [CLAIM_MISMATCH]


def test_limits_that_are_read_otherwise_than_when_it_was_decided_are_no_mismatch() -> None:
    """A default of the device configuration changed: the annotations say what was decided."""
    log = a_decided_pod()
    log.tell(running(build.holding(cores_pct=40), annotated=(CARD_0,)))
    assert log.held() == (CARD_0,)
    assert log.said() == ""


# what the watcher lets a pod claim


def claims(limits: Json, annotations: Json, *more: Json) -> PodObserved:
    document = pod_json(container(limits=limits), *more, annotations=annotations, nodeName="n1")
    document["status"] = {"phase": "Running"}
    return seen(document)


def overclaim(fact: PodObserved) -> str:
    problem = difference(0, fact.holdings, fact)
    assert problem is not None
    assert problem.code == CLAIM_MISMATCH
    return problem.message


def test_a_pod_without_limits_holds_nothing_whatever_it_claims() -> None:
    for limits in ({"cpu": "10m"}, {"volcano.sh/vgpu-number": 0}):
        fact = claims(limits, {IDS: ALL_CARDS})
        assert (fact.holdings, fact.broken) == ((), None)
        assert "GPU-0 (16000 MiB, compute 100)" in overclaim(fact)
        assert "the pod's limits ask for no card" in overclaim(fact)
    init = pod_json(container(), annotations={IDS: ALL_CARDS}, nodeName="n1")
    init["spec"]["initContainers"] = [container("i", {"volcano.sh/vgpu-number": 1})]
    assert seen(init).holdings == ()


def test_a_pod_holds_no_more_cards_and_no_more_of_them_than_its_limits_ask_for() -> None:
    limits = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000}
    fact = claims(limits, {IDS: ALL_CARDS})
    assert fact.holdings == (Holding("vgpu", 0, "GPU-0", 3000, 0),)
    assert "the pod's limits ask for GPU-0 (3000 MiB)" in overclaim(fact)


def test_a_pod_holds_no_less_of_its_cards_than_its_limits_ask_for() -> None:
    limits = {
        "volcano.sh/vgpu-number": 1,
        "volcano.sh/vgpu-memory": 3000,
        "volcano.sh/vgpu-cores": 50,
    }
    fact = claims(limits, {IDS: "GPU-0,NVIDIA,1,0:"})
    assert fact.holdings == (Holding("vgpu", 0, "GPU-0", 3000, 50),)
    overclaim(fact)


@pytest.mark.parametrize("asks", ["volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores"])
def test_limits_that_cannot_be_read_as_a_whole_still_say_how_many(asks: str) -> None:
    fact = claims({"volcano.sh/vgpu-number": 2, asks: 400}, {IDS: ALL_CARDS})
    assert [held.card for held in fact.holdings] == ["GPU-0", "GPU-1"]
    alone = claims({"volcano.sh/vgpu-memory": 100}, {IDS: ALL_CARDS})
    assert [held.card for held in alone.holdings] == ["GPU-0"]


def test_an_index_annotation_names_no_more_cards_than_are_asked_for() -> None:
    fact = claims({"volcano.sh/gpu-memory": 4096}, {"volcano.sh/gpu-index": "0,1,2"})
    assert fact.holdings == (Holding("gpushare", 0, "0", 4096, 0),)
    overclaim(fact)
    whole = claims({"volcano.sh/gpu-number": 2}, {"volcano.sh/gpu-index": "0,1,2"})
    assert [held.card for held in whole.holdings] == ["0", "1"]


@pytest.mark.parametrize(
    ("claimed", "held"),
    [
        ("0-vir02", "vir02?"),
        ("0-vir02_1c", "vir02_1c?"),
        ("0-vir04", "vir02_1c"),
        ("0-vir01", "vir02_1c"),
        ("0", "vir02_1c"),
    ],
)
def test_a_piece_of_a_chip_is_one_that_was_asked_for(claimed: str, held: str) -> None:
    fact = claims({"huawei.com/npu-core": 2}, {"huawei.com/npu-core": claimed})
    assert [h.instance for h in fact.holdings] == [held]
    assert [h.cores_pct for h in fact.holdings] == [2]


def test_a_template_of_a_chip_is_the_one_that_was_asked_for() -> None:
    limits = {"huawei.com/Ascend310P": 1, "huawei.com/Ascend310P-memory": 3000}
    allocated = "hami.io/Ascend310P-devices-allocated"
    honest = claims(limits, {allocated: "c,Ascend310P,3072,0:;"})
    (held,) = honest.holdings
    assert held == Holding("ascend", 0, "c", 3072, 0, "Ascend310P/vir01")
    greedy = claims(limits, {allocated: "c,Ascend310P,21527,0:d,Ascend310P,21527,0:;"})
    assert greedy.holdings == (held,)
    overclaim(greedy)


def test_what_limits_allow_is_no_overclaim() -> None:
    limits = {"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory-percentage": 50}
    fact = claims(limits, {IDS: "GPU-0,NVIDIA,8000,0:GPU-1,NVIDIA,8000,0:"})
    assert [held.memory_mib for held in fact.holdings] == [8000, 8000]
    assert fact.annotated == ()


PERCENT = {
    "volcano.sh/vgpu-number": 1,
    "volcano.sh/vgpu-memory-percentage": 25,
    "volcano.sh/vgpu-cores": 10,
}


def of_card(memory_mib: int) -> Event:
    card = build.card(0, memory_mib=memory_mib)
    return build.node(rv=memory_mib, inventories=(Inventory("vgpu", "hami-core", (card,)),))


@pytest.mark.parametrize("claimed_mib", [1, 4000, 16_000, 1_000_000])
@pytest.mark.parametrize("is_node_first", [True, False])
def test_a_pod_holds_the_percentage_of_its_card_that_its_limits_ask_for(
    claimed_mib: int, is_node_first: bool
) -> None:
    """Whatever its owner claims: no memory of the card beyond it, and none less."""
    fact = claims(PERCENT, {IDS: f"GPU-0,NVIDIA,{claimed_mib},10:"})
    log = Log(of_card(16_000), fact) if is_node_first else Log(fact, of_card(16_000))
    pod = log.state.pods[fact.uid]
    assert pod.allocation is not None
    assert pod.allocation.holdings == (Holding("vgpu", 0, "GPU-0", 4000, 10),)
    assert oversold(log.state) == []
    found = mismatch(pod)
    assert (found is None) == (claimed_mib == 4000)
    if found is not None:
        assert "the pod's limits ask for GPU-0 (4000 MiB, compute 10)" in found.message
    again = snapshot.decode(snapshot.encode(log.state))
    assert snapshot.encode(again) == snapshot.encode(log.state)


def test_a_percentage_follows_its_card_and_is_that_of_the_first_readable_claim() -> None:
    fact = claims(PERCENT, {IDS: "GPU-0,NVIDIA,16000,10:"})
    log = Log(of_card(16_000), fact, of_card(20_000))
    later = claims(PERCENT, {IDS: "GPU-1,NVIDIA,16000,10:"})
    for rv, seen_later in enumerate((fact, later), start=fact.rv + 1):
        log.tell(msgspec.structs.replace(seen_later, rv=rv))
        allocation = log.state.pods[fact.uid].allocation
        assert allocation is not None
        assert allocation.holdings == (Holding("vgpu", 0, "GPU-0", 5000, 10),)


def test_claims_of_logs_from_before_stay_as_they_were_booked_until_they_are_read_again() -> None:
    fact = claims(PERCENT, {IDS: "GPU-0,NVIDIA,16000,10:"})
    before = msgspec.structs.replace(fact, shares_pct=())
    log = Log(of_card(16_000), before)
    held = [log.state.pods[fact.uid].allocation]
    log.tell(msgspec.structs.replace(fact, rv=fact.rv + 1))
    held.append(log.state.pods[fact.uid].allocation)
    assert [a.holdings[0].memory_mib for a in held if a is not None] == [16_000, 4000]


def test_a_percentage_says_nothing_about_what_a_decision_booked() -> None:
    fact = claims(PERCENT, {IDS: "GPU-0,NVIDIA,3000,10:"})
    waiting = build.pod(fact.uid, fact.request, rv=0)
    given = build.placement(fact.uid, "n1", Holding("vgpu", 0, "GPU-0", 3000, 10))
    log = Log(of_card(16_000), waiting, build.decided(given), fact, of_card(20_000))
    allocation = log.state.pods[fact.uid].allocation
    assert allocation is not None
    assert allocation.holdings[0].memory_mib == 3000
