"""What the doctor finds in a state, and that a healthy one has nothing."""

import msgspec
import pytest

from allotment.core.explain.doctor import ERROR, findings
from allotment.core.explain.history.pod_story import PodStory
from allotment.core.explain.pod import explain
from allotment.core.explain.queue import explain_queue
from allotment.core.explain.rows.pod_views import pod_status
from allotment.core.explain.rows.views import node_views
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_cli.show.explain_text import explanation_lines
from allotment_proto.events import (
    DEVICE_CONFIG,
    ConfigurationChecked,
    Envelope,
    Event,
    NodeObserved,
    PodGone,
)
from allotment_proto.facts import (
    Company,
    Constraints,
    PodRequest,
    PodTerm,
    Problem,
    Selection,
)
from tests import build
from tests.build import node, pod, state_of
from tests.unit.batch_parts import gone
from tests.unit.lone_pods import GATED, lone, queue
from tests.unit.rounds_world import World

NOW_MS = 1_060_000


def test_a_healthy_cluster_has_nothing() -> None:
    assert findings(state_of(node("n1", 2), pod("a")), NOW_MS) == []


def test_what_a_node_and_its_configuration_disagree_about() -> None:
    mismatch = Problem("DeviceConfigMismatch", "deviceSplitCount", "is 10 here, 5 there")
    (found,) = findings(state_of(node("n1", 1, problems=(mismatch,))), NOW_MS)
    assert (found.code, found.subject) == ("DeviceConfigMismatch", "node n1")
    assert "is 10 here, 5 there" in found.message


def test_quarantine_names_the_pod_and_comes_first() -> None:
    broken = Problem("BrokenAssignment", "volcano.sh/vgpu-ids-new", "'x' is no card")
    held = pod("a", node="n1", phase="Running", broken=broken)
    ill = build.card(0, healthy=False)
    inventories = node("n1", 1).inventories
    cards = (ill, *inventories[0].cards[1:])
    sick = node("n1", 1, inventories=(type(inventories[0])("vgpu", "hami-core", cards),))
    first, second = findings(state_of(sick, held), NOW_MS)
    assert (first.severity, first.code) == (ERROR, "CardsQuarantined")
    assert "default/pod-a" in first.message
    assert second.code == "CardUnhealthy"


def test_a_claim_that_nobody_can_read_is_named_with_the_cards_that_it_costs_a_share_of() -> None:
    broken = Problem("BrokenAssignment", "annotation volcano.sh/vgpu-ids-new", "is 'x'")
    asks = build.wants(1_000, 5)
    held = pod(
        "a", build.request(asks), node="n1", phase="Running", broken=broken, unplaced=(asks,)
    )
    story, state = PodStory("default", "pod-a"), ClusterState()
    events: tuple[Event, ...] = (node("n1", 2), held)
    for seq, event in enumerate(events, 1):
        apply(state, event, seq)
        story.follow(
            seq, 900_000, Envelope(v=1, at_ms=900_000, by="x", events=(event,)), lambda: state
        )
    (found,) = findings(state, NOW_MS)
    assert (found.code, found.subject) == ("ClaimUnreadable", "pod default/pod-a")
    assert "may be on any of these cards of node n1" in found.message
    (problem,) = node_views(state)[0].problems
    assert (problem.code, problem.place) == ("ClaimUnreadable", "pod default/pod-a")
    (line,) = [x for x in explanation_lines(explain(state, story, NOW_MS)) if "May hold" in x]
    assert "n1/GPU-0" in line
    life = story.latest
    assert life is not None
    assert any(moment.text.startswith("ClaimUnreadable: ") for moment in life.moments)


def test_a_node_that_offers_less_than_its_pods_hold_is_named_with_the_holders() -> None:
    """Two of eight cards fail under a running pod; the kubelet then lists six. CPU likewise."""
    request = PodRequest(cpu_milli=3000, extended=(("nvidia.com/gpu", 8),))
    holds = pod("a", node="n1", phase="Running", request=request)
    eight = node("n1", 0, cpu_milli=4000, extended=(("nvidia.com/gpu", 8),), inventories=())
    assert findings(state_of(eight, holds), NOW_MS) == []
    six = msgspec.structs.replace(eight, rv=2, cpu_milli=2500, extended=(("nvidia.com/gpu", 6),))
    cpu, cards = findings(state_of(eight, holds, six), NOW_MS)
    assert {cpu.code, cards.code} == {"NodeOversold"}
    assert cpu.subject == cards.subject == "node n1"
    assert "cpu: 3 in use, 2500m allocatable; in use by default/pod-a (3)" in cpu.message
    assert "nvidia.com/gpu: 8 in use, 6 allocatable; in use by default/pod-a (8)" in cards.message


def test_a_card_that_its_node_does_not_list() -> None:
    held = pod("a", node="n1", phase="Running", holdings=(build.holding("GPU-gone"),))
    (found,) = findings(state_of(node("n1", 1), held), NOW_MS)
    assert (found.code, found.subject) == ("CardNotListed", "node n1, card GPU-gone")


def test_pods_that_a_plugin_does_not_serve() -> None:
    waits = pod("a", node="n1", holdings=(build.holding("GPU-0"),), bind_phase="allocating")
    refused = pod("b", node="n1", holdings=(build.holding("GPU-0"),), bind_phase="failed")
    found = findings(state_of(node("n1", 1), waits, refused), NOW_MS)
    assert [f.code for f in found] == ["DevicesNotAssigned", "NotAcknowledged"]


def bound_and_waiting(others: int, story: PodStory | None = None) -> ClusterState:
    """A pod is bound since second 900, and so many equal ones are reserved on its node."""
    uids = ["a", *(f"b{number}" for number in range(others))]
    places = [
        build.placement(uid, "n1", build.holding(f"GPU-{number % 2}"), stamp_s=900 + number)
        for number, uid in enumerate(uids)
    ]
    held = (build.holding("GPU-0"),)
    events: list[Event] = [node("n1", 2), *(pod(uid) for uid in uids)]
    events.append(build.decided(*places, batch=tuple(uids)))
    events.append(pod("a", rv=2, node="n1", holdings=held, bind_phase="allocating"))
    state = ClusterState()
    for seq, event in enumerate(events, 1):
        apply(state, event, seq)
        if story is not None:
            story.follow(
                seq, 900_000, Envelope(v=1, at_ms=900_000, by="x", events=(event,)), lambda: state
            )
    return state


def test_a_pod_that_is_not_acknowledged_and_who_waits_for_that() -> None:
    state = bound_and_waiting(5)
    (found,) = findings(state, NOW_MS)
    assert (found.code, found.subject) == ("NotAcknowledged", "pod default/pod-a")
    assert found.message == (
        "is bound to n1, whose device plugin has not handled it for 2m40s; "
        "default/pod-b0, default/pod-b1, default/pod-b2, 2 more wait for that"
    )
    assert "delete it" in found.remedy
    assert findings(state, 1_000_000) == []  # its kubelet may list its pods afresh
    served = pod("a", rv=3, node="n1", holdings=(build.holding("GPU-0"),), bind_phase="success")
    apply(state, served, state.seq + 1)
    assert findings(state, NOW_MS) == []


def test_a_pod_that_waits_for_it_says_for_whom() -> None:
    story = PodStory("default", "pod-b0")
    state = bound_and_waiting(1, story)
    assert pod_status(state, state.pods["a"]) == ("Bound", "NotAcknowledged")
    found = explain(state, story, NOW_MS)
    assert (found.status.phase, found.status.cause) == ("Reserved", "WaitingForDevicePlugin")
    (line,) = [line for line in explanation_lines(found) if line.startswith("Waits ")]
    assert "to be bound to node n1" in line
    assert "has not acknowledged pod default/pod-a yet" in line
    assert "asks it for 1 device (vgpu) too" in line
    apply(state, PodGone(uid="a", namespace="default", name="pod-a", rv=3), state.seq + 1)
    assert pod_status(state, state.pods["b0"]) == ("Reserved", "")
    assert explain(state, story, NOW_MS).status.waits == ""


def test_a_pod_with_another_question_waits_for_nobody() -> None:
    state = bound_and_waiting(0)
    two = build.request(build.wants(count=2))
    cards = build.holding("GPU-0"), build.holding("GPU-1")
    apply(state, pod("two", two), state.seq + 1)
    apply(state, build.decided(build.placement("two", "n1", *cards)), state.seq + 1)
    assert pod_status(state, state.pods["two"]) == ("Reserved", "")
    (found,) = findings(state, NOW_MS)
    assert "wait" not in found.message


@pytest.mark.parametrize(
    ("phase", "how"),
    [("Failed", "pod-a ended although"), ("Running", "pod-a runs although")],
)
def test_a_record_that_is_in_the_way(phase: str, how: str) -> None:
    story = PodStory("default", "pod-b0")
    state = bound_and_waiting(1, story)
    held = (build.holding("GPU-0"),)
    left = pod("a", rv=3, node="n1", holdings=held, bind_phase="allocating", phase=phase)
    apply(state, left, state.seq + 1)
    (found,) = findings(state, NOW_MS)
    assert (found.code, found.subject) == ("RecordNotErased", "pod default/pod-a")
    assert how in found.message
    assert "annotate --overwrite pod pod-a volcano.sh/devices-to-allocate=" in found.remedy
    explained = explain(state, story, NOW_MS)
    (line,) = [line for line in explanation_lines(explained) if line.startswith("Waits ")]
    assert "to be bound to node n1" in line


def test_who_asks_for_more_than_a_whole_quota_is_told_to_ask_for_less() -> None:
    world = World(build.node("n1", 0), policy=GATED)
    world.tell(queue("default", capability=(("cpu", 500),)))
    world.tell(lone("a"))
    world.decide()
    (found,) = findings(world.state, 0)
    assert found.message == (
        "pod default/pod-a waits for its quota; no pod uses any of it, so the request "
        "exceeds the whole quota"
    )
    assert found.remedy == "raise the queue's quota, or request less: allot explain queue default"


def test_who_has_a_queues_quota_is_named_when_pods_wait_for_it() -> None:
    world = World(build.node("n1", 0), policy=GATED)
    world.tell(queue("default", capability=(("cpu", 6_000),)))
    for uid in ("a", "b", "c", "d", "e"):
        world.tell(lone(uid))
    world.decide()
    assert world.placed() == {"a", "b", "c"}
    (found,) = findings(world.state, 0)
    assert (found.code, found.subject) == ("QueueQuotaInsufficient", "queue default")
    assert found.message == (
        "pod default/pod-d and 1 more wait for its quota, which is in use by pod default/pod-a "
        "(1 pod), pod default/pod-b (1 pod), pod default/pod-c (1 pod)"
    )
    explained = explain_queue(world.state, "default", 0)
    assert [(h.name, h.pods, h.promised.get("cpu", 0)) for h in explained.holders] == [
        ("pod-a", 1, 0),
        ("pod-b", 1, 0),
        ("pod-c", 1, 0),
    ]
    for uid in ("d", "e"):
        world.tell(gone(uid))
    assert findings(world.state, 0) == []
    assert explain_queue(world.state, "default", 0).holders == ()


def test_a_configuration_that_is_not_there_comes_before_what_follows_from_it() -> None:
    claims = build.pod(
        "a",
        build.request(build.wants(4_000, 25)),
        node="n1",
        phase="Running",
        holdings=(build.holding(),),
        annotated=(build.holding("GPU-1"),),
    )
    missing = Problem("ConfigNotFound", "ConfigMap a/b:", "does not exist")
    check = ConfigurationChecked(kind=DEVICE_CONFIG, source="built in", warnings=(missing,))
    (claim,) = findings(build.state_of(build.node(), claims), 0)
    assert "find out who changed the pod's annotations" in claim.remedy
    found = findings(build.state_of(build.node(), claims, check), 0)
    assert [one.code for one in found] == ["ConfigNotFound", "ClaimMismatch"]
    assert found[1].remedy.startswith("fix ConfigNotFound first")


NEVER: dict[str, tuple[PodRequest, str]] = {
    "a label": (
        msgspec.structs.replace(
            build.request(build.wants()),
            constraints=Constraints(node_selector=(("zone", "mars"),)),
        ),
        "nodeSelector zone=mars excludes node n1, which would fit; none of them has zone",
    ),
    "a model": (
        msgspec.structs.replace(
            build.request(build.wants()), selection=Selection(use_types=("H200",))
        ),
        "model H200 requested; the cluster has",
    ),
    "too many cards": (
        build.request(build.wants(count=9)),
        "9 GPUs requested on one node; the largest node has 2",
    ),
    "too much memory": (
        build.request(build.wants(64_000)),
        "62.5 GiB of one GPU requested; the largest GPU that the pod accepts has 15.6 GiB",
    ),
}


@pytest.mark.parametrize("row", NEVER)
def test_pods_that_never_fit_are_told_what_is_in_the_way_by_name(row: str) -> None:
    asked, expected = NEVER[row]
    (found,) = findings(state_of(node("n1", 2), pod("a", asked), pod("b", asked)), NOW_MS)
    assert found.code == "NeverFits"
    assert found.never_start == 2
    assert f": {expected}" in found.message
    assert found.remedy.startswith("change the request, or add such a node")


def keeping_off(key: str, *namespaces: str) -> PodRequest:
    return build.request(company=Company(away=(PodTerm(key, namespaces, ()),)))


def on_os(name: str) -> NodeObserved:
    labels = (("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux"))
    return node(name, 0, labels=labels)


def test_who_keeps_everybody_else_off_the_cluster_is_named() -> None:
    """One small pod without a selector, apart from all others in the one domain that there is."""
    request = keeping_off("kubernetes.io/os")
    thief = pod("thief", request, namespace="ta", node="n1", phase="Running")
    others = [pod(f"p{n}", PodRequest(10), namespace="tb") for n in range(5)]
    state = state_of(on_os("n1"), on_os("n2"), thief, *others)
    (found,) = findings(state, NOW_MS)
    assert (found.severity, found.code) == (ERROR, "KeepsOthersOff")
    assert found.subject == "pod ta/pod-thief"
    assert found.message == (
        "required anti-affinity with topologyKey kubernetes.io/os keeps other namespaces off 2 of "
        "2 nodes; 5 pods of others wait: tb/pod-p0, tb/pod-p1, tb/pod-p2 and 2 more"
    )
    assert found.pods_total == 5


@pytest.mark.parametrize(
    ("key", "namespaces"),
    [("kubernetes.io/os", ("ta",)), ("kubernetes.io/hostname", ()), ("nowhere", ())],
)
def test_who_keeps_few_or_only_its_own_off_is_not(key: str, namespaces: tuple[str, ...]) -> None:
    """A node of its own, or apart from its own kind, is what anti-affinity is for."""
    request = keeping_off(key, *namespaces)
    own = pod("own", request, namespace="ta", node="n1", phase="Running")
    waiting = pod("w", PodRequest(10_000_000), namespace="tb")
    state = state_of(*map(on_os, ("n1", "n2", "n3")), own, waiting)
    assert [found.code for found in findings(state, NOW_MS)] == ["NeverFits"]
