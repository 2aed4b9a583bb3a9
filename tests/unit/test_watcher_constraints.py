"""What pods say of nodes and of other pods, as it is written, becomes rules without open ends."""

from typing import Any

from allotment.core import reasons
from allotment_proto.facts import (
    ALONE,
    Company,
    Expression,
    HostPort,
    NodeTerm,
    PodPreference,
    PodTerm,
    Preference,
    Spread,
)
from allotment_watcher.normalise.constraints import RULES_MAX
from tests.unit.kube_json import container, pod_json, seen

IS_WEB = (Expression("app", "In", ("web",)),)
WEB = {"matchLabels": {"app": "web"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def company(labels: dict[str, str] | None = None, **spec: Any) -> Company:
    pod = pod_json(container(), **spec)
    pod["metadata"]["labels"] = labels
    fact = seen(pod)
    assert fact.problem is None
    return fact.request.company


def term(**changes: Any) -> dict[str, Any]:
    return {"topologyKey": "zone", "labelSelector": WEB, **changes}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: list(terms)}}


def test_most_pods_say_nothing_of_others() -> None:
    assert company() == ALONE


def test_labels_are_told_sorted() -> None:
    pod = pod_json(container())
    pod["metadata"]["labels"] = {"b": "2", "a": "1"}
    assert seen(pod).labels == (("a", "1"), ("b", "2"))


def test_preferred_nodes() -> None:
    given = {"weight": 7, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}
    fact = seen(pod_json(container(), affinity={"nodeAffinity": {PREFERRED: [given]}}))
    wanted = Preference(7, NodeTerm((Expression("k", "Exists", ()),)))
    assert fact.request.constraints.preferred == (wanted,)


def test_affinity_is_about_the_pods_own_namespace_unless_it_says_so() -> None:
    found = company(affinity=near(term(), term(namespaces=["y", "x"]), term(namespaceSelector={})))
    assert found.near == (
        PodTerm("zone", ("team-a",), IS_WEB),
        PodTerm("zone", ("x", "y"), IS_WEB),
        PodTerm("zone", (), IS_WEB),
    )
    assert not found.near_self


def test_a_pod_that_its_own_terms_are_about() -> None:
    assert company({"app": "web"}, affinity=near(term())).near_self
    assert not company({"app": "web"}, affinity=near(term(), term(namespaces=["x"]))).near_self


def test_selectors() -> None:
    both = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["3"]}],
    }
    found = company(affinity=near(term(labelSelector=both), {"topologyKey": "zone"}))
    assert found.near[0].selector == (
        Expression("a", "In", ("1",)),
        Expression("b", "In", ("2",)),
        Expression("c", "NotIn", ("3",)),
    )
    nothing = (Expression("", "In", ()),)
    assert found.near[1].selector == nothing, "a selector that is not there selects no pod"
    assert company(affinity=near(term(labelSelector={}))).near[0].selector == ()


def test_preferences_for_and_against() -> None:
    affinity = {
        "podAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": term()}]},
        "podAntiAffinity": {
            PREFERRED: [{"weight": 9, "podAffinityTerm": term()}],
            REQUIRED: [term(topologyKey="host")],
        },
    }
    found = company(affinity=affinity)
    about = PodTerm("zone", ("team-a",), IS_WEB)
    assert found.preferred == (PodPreference(5, about), PodPreference(-9, about))
    assert found.away == (PodTerm("host", ("team-a",), IS_WEB),)


def test_namespaces_are_selected_by_name_only() -> None:
    by_name = {"matchLabels": {"kubernetes.io/metadata.name": "x"}}
    found = company(affinity=near(term(namespaceSelector=by_name, namespaces=["a"])))
    assert found.near[0].namespaces == ("a", "x")
    by_label = near(term(namespaceSelector={"matchLabels": {"team": "x"}}))
    fact = seen(pod_json(container(), affinity=by_label))
    assert fact.problem is not None
    assert fact.problem.code == reasons.INVALID_REQUEST
    assert "namespaceSelector" in fact.problem.place
    assert "kubernetes.io/metadata.name" in fact.problem.message
    bound = seen(pod_json(container(), affinity=by_label, nodeName="n1"))
    assert bound.problem is None
    assert bound.request.company.near[0].namespaces == ()


def test_spread() -> None:
    constraint = {
        "maxSkew": 2,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": WEB,
        "minDomains": 3,
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["rev", "absent"],
    }
    labels = {"app": "web", "rev": "7"}
    found = company(labels, topologySpreadConstraints=[constraint])
    about = PodTerm("zone", ("team-a",), (*IS_WEB, Expression("rev", "In", ("7",))))
    assert found.spread == (Spread(about, 2, True, True, 3, True, True),)
    wish = {**constraint, "whenUnsatisfiable": "ScheduleAnyway", "nodeAffinityPolicy": "Ignore"}
    (wished,) = company(topologySpreadConstraints=[wish]).spread
    assert wished == Spread(PodTerm("zone", ("team-a",), IS_WEB), 2, False, False, 3, False, True)


def test_host_ports() -> None:
    ports = [
        {"containerPort": 1},
        {"containerPort": 2, "hostPort": 80},
        {"containerPort": 3, "hostPort": 81, "protocol": "UDP", "hostIP": "10.0.0.1"},
    ]
    with_ports = {**container(), "ports": ports}
    mapped = (HostPort("TCP", "0.0.0.0", 80), HostPort("UDP", "10.0.0.1", 81))
    assert seen(pod_json(with_ports)).request.company.ports == mapped
    on_host = seen(pod_json(with_ports, hostNetwork=True)).request.company.ports
    assert on_host == (HostPort("TCP", "0.0.0.0", 1), *mapped)


def test_sidecars_keep_their_ports_and_other_init_containers_do_not() -> None:
    init = {**container(), "name": "i", "ports": [{"containerPort": 1, "hostPort": 80}]}
    assert company(initContainers=[init]) == ALONE
    sidecar = {**init, "restartPolicy": "Always"}
    assert company(initContainers=[sidecar]).ports == (HostPort("TCP", "0.0.0.0", 80),)


def test_what_containers_leave_unsaid() -> None:
    cpu_only = container(limits={"cpu": "2"})
    assert seen(pod_json(cpu_only)).request.unrequested == (0, 200 << 20)
    assert seen(pod_json(cpu_only, container())).request.unrequested == (100, 400 << 20)
    assert seen(pod_json(container(limits={"cpu": "0", "memory": "0"}))).request.unrequested == (
        0,
        0,
    )


def test_rules_that_take_too_much_room_are_refused() -> None:
    values = [f"{n:060}" for n in range(600)]
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    fact = seen(pod_json(container(), affinity=near(term(labelSelector=selector))))
    assert fact.problem is not None
    assert "bytes" in fact.problem.message


def test_what_one_pods_rules_may_cost_is_bounded() -> None:
    """Each rule is asked about all pods, and each term of node affinity about all nodes."""
    terms = [term(labelSelector={"matchLabels": {"app": str(n)}}) for n in range(RULES_MAX + 1)]
    assert seen(pod_json(container(), affinity=near(*terms[1:]))).problem is None
    fact = seen(pod_json(container(), affinity=near(*terms)))
    assert fact.problem is not None
    assert (fact.problem.code, fact.problem.place) == (reasons.INVALID_REQUEST, "spec.affinity")
    assert fact.problem.message.startswith("33 rules about other pods; at most 32 are supported")
    some = [{"matchExpressions": [{"key": str(n), "operator": "Exists"}]} for n in range(129)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": some}}
    fact = seen(pod_json(container(), affinity={"nodeAffinity": required}))
    assert fact.problem is not None
    assert fact.problem.message.startswith("129 terms; at most 128 are supported")
