"""What the doctor finds in a state, and that a healthy one has nothing."""

from allotment.core.doctor import ERROR, findings
from allotment_proto.facts import Problem
from tests import build
from tests.build import node, pod, state_of


def test_a_healthy_cluster_has_nothing() -> None:
    assert findings(state_of(node("n1", 2), pod("a"))) == []


def test_what_a_node_and_its_configuration_disagree_about() -> None:
    mismatch = Problem("DeviceConfigMismatch", "deviceSplitCount", "is 10 here, 5 there")
    (found,) = findings(state_of(node("n1", 1, problems=(mismatch,))))
    assert (found.code, found.subject) == ("DeviceConfigMismatch", "node n1")
    assert "is 10 here, 5 there" in found.message


def test_quarantine_names_the_pod_and_comes_first() -> None:
    broken = Problem("BrokenAssignment", "volcano.sh/vgpu-ids-new", "'x' is no card")
    held = pod("a", node="n1", phase="Running", broken=broken)
    ill = build.card(0, healthy=False)
    inventories = node("n1", 1).inventories
    cards = (ill, *inventories[0].cards[1:])
    sick = node("n1", 1, inventories=(type(inventories[0])("vgpu", "hami-core", cards),))
    first, second = findings(state_of(sick, held))
    assert (first.severity, first.code) == (ERROR, "CardsQuarantined")
    assert "default/pod-a" in first.message
    assert second.code == "CardUnhealthy"


def test_a_card_that_its_node_does_not_list() -> None:
    held = pod("a", node="n1", phase="Running", holdings=(build.holding("GPU-gone"),))
    (found,) = findings(state_of(node("n1", 1), held))
    assert (found.code, found.subject) == ("CardNotListed", "node n1, card GPU-gone")


def test_pods_that_a_plugin_does_not_serve() -> None:
    waits = pod("a", node="n1", holdings=(build.holding("GPU-0"),), bind_phase="allocating")
    refused = pod("b", node="n1", holdings=(build.holding("GPU-0"),), bind_phase="failed")
    found = findings(state_of(node("n1", 1), waits, refused))
    assert [f.code for f in found] == ["DevicesNotAssigned", "NotAcknowledged"]
