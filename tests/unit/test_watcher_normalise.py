"""Kubernetes JSON → facts, decoded as in production: what people and controllers really write."""

import json
from typing import Any

import msgspec
import pytest

from allotment.core import reasons
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import (
    DeviceRequest,
    Expression,
    Holding,
    NodeTerm,
    PodRequest,
    Policy,
    Selection,
    Taint,
    Toleration,
)
from allotment_watcher import objects
from allotment_watcher.normalise import (
    REQUEST_BYTES_MAX,
    node_fact,
    pod_fact,
    unreadable_pod_fact,
)

Json = dict[str, Any]
POLICY = Policy()
GIB = 1 << 30


def container(name: str = "main", limits: Any = None, requests: Any = None, **more: Any) -> Json:
    return {"name": name, "resources": {"limits": limits, "requests": requests}, **more}


def pod_json(*containers: Json, annotations: Any = None, **spec: Any) -> Json:
    return {
        "metadata": {
            "name": "p",
            "namespace": "team-a",
            "uid": "uid-p",
            "resourceVersion": "77",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": annotations,
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"containers": list(containers), "schedulerName": "allotment", **spec},
        "status": {"phase": "Pending"},
    }


def seen(document: Json, policy: Policy = POLICY) -> PodObserved:
    return pod_fact(msgspec.json.decode(json.dumps(document), type=objects.PodObject), policy)


def asks(limits: Any = None, requests: Any = None, **annotations: str) -> PodObserved:
    return seen(pod_json(container(limits=limits, requests=requests), annotations=annotations))


def annotated(annotations: dict[str, str], limits: Any = None) -> PodObserved:
    limits = {"volcano.sh/vgpu-number": 1} if limits is None else limits
    return seen(pod_json(container(limits=limits), annotations=annotations))


def refused(fact: PodObserved, *words: str) -> None:
    assert fact.problem is not None
    said = f"{fact.problem.code}: {fact.problem.place} {fact.problem.message}"
    assert all(word in said for word in words), said


def node_json(annotations: Any = None, allocatable: Any = None, **changes: Any) -> Json:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **(allocatable or {})}
    return {
        "metadata": {
            "name": "n.example",
            "uid": "uid-n",
            "resourceVersion": "5",
            "annotations": annotations,
            "labels": {"zone": "a", "arch": "amd64"},
        },
        "spec": changes.get("spec", {}),
        "status": {
            "capacity": changes.get("capacity", amounts),
            "allocatable": amounts,
            "conditions": changes.get("conditions"),
        },
    }


def node(document: Json) -> NodeObserved:
    return node_fact(msgspec.json.decode(json.dumps(document), type=objects.NodeObject))


VGPU_AMOUNTS = {
    "volcano.sh/vgpu-number": "20",
    "volcano.sh/vgpu-memory": "32000",
    "volcano.sh/vgpu-cores": "200",
}
REGISTER = "volcano.sh/node-vgpu-register"
TWO_CARDS = (
    "GPU-a,10,16000,NVIDIA-Tesla T4,true,hami-core:GPU-b,10,16000,NVIDIA-Tesla T4,false,hami-core:"
)


# Pods: who they are


def test_a_plain_pod_says_who_it_is() -> None:
    fact = seen(pod_json(container()))
    assert (fact.uid, fact.namespace, fact.name, fact.rv) == ("uid-p", "team-a", "p", 77)
    assert fact.created_ms == 1_767_323_045_000
    assert (fact.scheduler, fact.phase, fact.node) == ("allotment", "Pending", "")
    assert fact.request == PodRequest()
    assert fact.problem is None


def test_null_and_missing_fields_are_as_good_as_empty() -> None:
    fact = seen(
        {
            "metadata": {"uid": "u", "annotations": None, "labels": None},
            "spec": {
                "containers": None,
                "initContainers": None,
                "tolerations": None,
                "affinity": None,
                "nodeSelector": None,
                "schedulerName": None,
                "schedulingGates": None,
                "priority": None,
                "overhead": None,
            },
            "status": None,
        }
    )
    assert (fact.scheduler, fact.phase, fact.priority) == ("default-scheduler", "Pending", 0)
    assert (fact.rv, fact.created_ms, fact.gated, fact.problem) == (0, 0, False, None)


def test_gates_deletion_priority_and_group() -> None:
    document = pod_json(
        container(),
        annotations={"scheduling.k8s.io/group-name": "gang"},
        schedulingGates=[{"name": "example.com/wait"}],
        priority=1000,
    )
    document["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:06Z"
    fact = seen(document)
    assert (fact.gated, fact.deleting, fact.priority, fact.group) == (
        True,
        True,
        1000,
        "team-a/gang",
    )
    assert not seen(pod_json(container(), schedulingGates=[])).gated


@pytest.mark.parametrize("text", ["not a time", "", "2026-13-01T00:00:00Z"])
def test_an_unreadable_creation_time_counts_as_none(text: str) -> None:
    document = pod_json(container())
    document["metadata"]["creationTimestamp"] = text
    assert seen(document).created_ms == 0


def test_noise_does_not_change_the_fact() -> None:
    quiet = pod_json(container())
    noisy = pod_json(container(), hostNetwork=True, priorityClassName="x")
    noisy["metadata"]["managedFields"] = []
    noisy["metadata"]["labels"] = {"a": "b"}
    noisy["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled"}], "qos": "x"}
    assert seen(quiet) == seen(noisy)


# Pods: amounts on the host


def test_requests_win_over_limits_and_missing_ones_are_the_limits() -> None:
    fact = asks({"cpu": "2", "memory": "1Gi", "x.io/y": "3"}, {"cpu": "500m"})
    assert fact.request.cpu_milli == 500
    assert fact.request.memory_bytes == GIB
    assert fact.request.extended == (("x.io/y", 3),)


def test_numbers_are_amounts_too() -> None:
    fact = asks({"cpu": 1.5, "memory": 1073741824, "x.io/y": 2})
    assert (fact.request.cpu_milli, fact.request.memory_bytes) == (1500, GIB)
    assert fact.request.extended == (("x.io/y", 2),)


def test_init_containers_count_by_their_peak_and_sidecars_stay() -> None:
    fact = seen(
        pod_json(
            container(requests={"cpu": "1"}),
            container("b", requests={"cpu": "1"}),
            initContainers=[
                container("first", requests={"cpu": "3"}),
                container("sidecar", requests={"cpu": "2"}, restartPolicy="Always"),
                container("last", requests={"cpu": "4"}),
            ],
        )
    )
    assert fact.request.cpu_milli == 6000  # the sidecar and `last`; running are only 2 + 2
    without_last = seen(
        pod_json(
            container(requests={"cpu": "1"}),
            initContainers=[
                container("first", requests={"cpu": "2"}),
                container("sidecar", requests={"cpu": "2"}, restartPolicy="Always"),
            ],
        )
    )
    assert without_last.request.cpu_milli == 3000


def test_overhead_is_added() -> None:
    fact = seen(
        pod_json(
            container(requests={"cpu": "1"}), overhead={"cpu": "250m", "memory": "120Mi"}
        )
    )
    assert fact.request.cpu_milli == 1250
    assert fact.request.memory_bytes == 120 << 20


def test_what_no_node_counts_is_not_counted() -> None:
    fact = asks(
        {
            "ephemeral-storage": "1Gi",
            "hugepages-2Mi": "4Mi",
            "volcano.sh/vgpu-number": "1",
            "volcano.sh/vgpu-memory-percentage": "50",
            "zero.io/zero": "0",
        }
    )
    assert fact.request.extended == (("volcano.sh/vgpu-number", 1),)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"cpu": "-1"}, ("'-1' is negative", "cpu")),
        ({"memory": "lots"}, ("'lots' is not a quantity", "memory")),
        ({"x.io/y": "1.5"}, ("'1.5' is not a whole number", "x.io/y")),
        ({"x.io/y": "9e30"}, ("absurdly large",)),
        ({"volcano.sh/vgpu-number": "-1"}, ("negative", "volcano.sh/vgpu-number")),
        ({"volcano.sh/vgpu-number": 0.5}, ("'0.5' is not a whole number",)),
        ({"volcano.sh/vgpu-number": "65"}, ("is 65; at most 64",)),
        ({"volcano.sh/vgpu-memory": "3000"}, ("without volcano.sh/vgpu-number", "add")),
        ({"volcano.sh/vgpu-cores": "50"}, ("without volcano.sh/vgpu-number",)),
        ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-cores": 101}, ("is 101", "0 to 100")),
        (
            {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory-percentage": 0},
            ("is 0; wanted: 1 to 100",),
        ),
        (
            {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory-percentage": 101},
            ("is 101; wanted: 1 to 100",),
        ),
        (
            {"volcano.sh/gpu-memory": 10, "volcano.sh/gpu-number": 1},
            ("either for memory of a shared card or for whole cards",),
        ),
        (
            {"volcano.sh/gpu-memory": 10, "volcano.sh/vgpu-number": 1},
            ("devices of several kinds", "gpushare, vgpu"),
        ),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused_by_name(
    limits: Json, words: tuple[str, ...]
) -> None:
    fact = asks(limits)
    refused(fact, reasons.INVALID_REQUEST, *words)
    assert fact.request == PodRequest()


def test_a_device_asked_for_by_request_only_is_refused() -> None:
    refused(asks(None, {"volcano.sh/vgpu-number": "1"}), "must be a limit")
    refused(asks(None, {"volcano.sh/gpu-memory": "1"}), "must be a limit")


# Pods: devices


def test_vgpu_shares_by_amount_by_percentage_and_whole() -> None:
    number = {"volcano.sh/vgpu-number": 2}
    shares = {
        "amount": {**number, "volcano.sh/vgpu-memory": "3k", "volcano.sh/vgpu-cores": 50},
        "percentage": {**number, "volcano.sh/vgpu-memory-percentage": 30},
        "nothing said": number,
    }
    found = {name: asks(limits).request.devices for name, limits in shares.items()}
    assert found == {
        "amount": (DeviceRequest("vgpu", 0, "main", 2, 3000, 0, 50),),
        "percentage": (DeviceRequest("vgpu", 0, "main", 2, 0, 30, 0),),
        "nothing said": (DeviceRequest("vgpu", 0, "main", 2, 0, 100, 0),),
    }


def test_a_count_of_zero_asks_for_nothing() -> None:
    fact = asks({"volcano.sh/vgpu-number": 0, "volcano.sh/vgpu-memory": 3000})
    assert (fact.request.devices, fact.problem) == ((), None)


def test_two_gpu_containers_are_refused_unless_the_policy_allows_them() -> None:
    gpu = {"volcano.sh/vgpu-number": 1}
    document = pod_json(container("a", gpu), container("web"), container("b", gpu))
    refused(seen(document), "containers a, b", "only one GPU container")
    fact = seen(document, Policy(multi_container=True))
    assert [d.container for d in fact.request.devices] == [0, 2]
    assert fact.problem is None


def test_two_containers_that_share_gpu_memory_are_one_request() -> None:
    share = {"volcano.sh/gpu-memory": 1000}
    fact = seen(pod_json(container("a", share), container("b", share)))
    assert fact.problem is None
    assert fact.request.devices == (DeviceRequest("gpushare", 0, "", 1, 2000, 0, 0),)


def test_selections_are_read() -> None:
    fact = annotated(
        {
            "nvidia.com/use-gputype": " A100, ,V100 ",
            "nvidia.com/nouse-gputype": "ignored beside use",
            "volcano.sh/vgpu-use-gpuuuid": "GPU-1",
            "volcano.sh/vgpu-nouse-gpuuuid": "GPU-2,GPU-3",
            "volcano.sh/vgpu-mode": "hami-core",
            "volcano.sh/gpu-index": "2,0, 2",
        }
    )
    assert fact.request.selection == Selection(
        mode="hami-core",
        use_types=("A100", "V100"),
        use_ids=("GPU-1",),
        nouse_ids=("GPU-2", "GPU-3"),
        indexes=(0, 2),
    )


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("volcano.sh/vgpu-mode", "mps", "'mps'; wanted: hami-core or mig"),
        ("volcano.sh/vgpu-mode", "", "''; wanted: hami-core or mig"),
        ("nvidia.com/use-gputype", " , ", "a comma list of card types"),
        ("nvidia.com/nouse-gputype", "", "a comma list of card types"),
        ("volcano.sh/gpu-index", "0,two", "'two' is not a card index"),
        ("volcano.sh/gpu-index", "-1", "'-1' is not a card index"),
        ("volcano.sh/gpu-index", "", "card indexes like 0,2"),
    ],
)
def test_an_annotation_value_that_says_nothing_is_refused(key: str, value: str, words: str) -> None:
    refused(annotated({key: value}), key, words)


def test_card_annotations_of_a_pod_without_cards_mean_nothing() -> None:
    fact = annotated({"volcano.sh/vgpu-mode": "nonsense"}, limits={"cpu": "1"})
    assert fact.problem is None


# Pods: where they may run


def test_constraints_are_read_in_all_their_forms() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {"matchExpressions": [{"key": "gpu", "operator": "Exists", "values": None}]},
        {},
    ]
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    constraints = seen(
        pod_json(
            container(),
            nodeSelector={"b": "2", "a": "1"},
            affinity={"nodeAffinity": {key: {"nodeSelectorTerms": terms}}, "podAffinity": {}},
            tolerations=[{"operator": "Exists"}, {"key": "gpu", "effect": "NoSchedule"}],
        )
    ).request.constraints
    assert constraints.node_selector == (("a", "1"), ("b", "2"))
    assert constraints.affinity == (
        NodeTerm((Expression("zone", "In", ("a", "b")),)),
        NodeTerm((), (Expression("metadata.name", "In", ("n1",)),)),
        NodeTerm((Expression("gpu", "Exists", ()),)),
        NodeTerm(()),
    )
    assert constraints.tolerations == (
        Toleration("", "Exists", "", ""),
        Toleration("gpu", "Equal", "", "NoSchedule"),
    )


def test_an_affinity_too_large_for_the_log_is_the_pods_own_problem() -> None:
    values = [f"value-{number}" for number in range(20_000)]
    term = {"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {key: {"nodeSelectorTerms": [term]}}}
    fact = seen(pod_json(container(), affinity=affinity))
    refused(fact, "constraints", f"at most {REQUEST_BYTES_MAX}")
    assert fact.request == PodRequest()


# Pods that are bound


def bound(limits: Any, annotations: Json, *more: Json) -> PodObserved:
    main = container(limits=limits, requests={"cpu": "1"})
    return seen(pod_json(main, *more, annotations=annotations, nodeName="n1"))


def test_a_bound_pod_holds_what_its_annotations_say() -> None:
    fact = bound(
        {"volcano.sh/vgpu-number": 2},
        {
            "volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,3000,50:GPU-b,NVIDIA,3000,50:",
            "volcano.sh/bind-phase": "allocating",
        },
    )
    assert (fact.node, fact.bind_phase) == ("n1", "allocating")
    assert fact.holdings == (
        Holding("vgpu", 0, "GPU-a", 3000, 50),
        Holding("vgpu", 0, "GPU-b", 3000, 50),
    )


def test_annotations_of_an_unbound_pod_hold_nothing() -> None:
    fact = annotated(
        {
            "volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,3000,50:",
            "volcano.sh/bind-phase": "success",
        }
    )
    assert (fact.holdings, fact.bind_phase) == ((), "")


def test_a_shared_card_is_held_by_index() -> None:
    fact = bound({"volcano.sh/gpu-memory": 4096}, {"volcano.sh/gpu-index": "3"})
    assert fact.holdings == (Holding("gpushare", 0, "3", 4096, 0),)
    assert fact.problem is None


def test_broken_annotations_of_a_bound_pod_are_no_reason_to_refuse_it() -> None:
    fact = bound(
        {"volcano.sh/vgpu-number": 1},
        {"volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA:GPU-b,NVIDIA,1,2:", "volcano.sh/vgpu-mode": "?"},
    )
    assert fact.holdings == (Holding("vgpu", 0, "GPU-b", 1, 2),)
    assert fact.problem is None


def test_a_running_pod_that_we_would_refuse_still_takes_its_part_of_the_host() -> None:
    """Volcano binds pods with two GPU containers; their CPU must not be given away again."""
    gpu = {"volcano.sh/vgpu-number": 1}
    fact = bound(
        gpu,
        {"volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,100,1:;GPU-b,NVIDIA,200,2:"},
        container("side", gpu, {"cpu": "2"}),
    )
    assert fact.request.cpu_milli == 3000
    assert fact.request.extended == (("volcano.sh/vgpu-number", 2),)
    assert [h.card for h in fact.holdings] == ["GPU-a", "GPU-b"]
    broken = bound({"cpu": "x"}, {}, container("side", {"memory": "y"}))
    assert broken.request == PodRequest()


def test_an_unreadable_pod_is_refused_and_never_displaces_what_was_read() -> None:
    fact = unreadable_pod_fact("ns", "p", "u", "allotment", "", "Expected `str`, got `int`")
    refused(fact, "cannot be read: Expected `str`")
    assert fact.rv == 0


@pytest.mark.parametrize("amount", [True, [], {"a": 1}])
def test_an_amount_of_a_foreign_type_makes_the_object_undecodable(amount: Any) -> None:
    document = json.dumps(pod_json(container(limits={"cpu": amount})))
    with pytest.raises(msgspec.ValidationError, match="limits"):
        msgspec.json.decode(document, type=objects.PodObject)


# Nodes


def test_a_node_with_cards() -> None:
    fact = node(node_json({REGISTER: TWO_CARDS}, VGPU_AMOUNTS))
    assert (fact.name, fact.uid, fact.rv, fact.ready) == ("n.example", "uid-n", 5, True)
    assert fact.labels == (("arch", "amd64"), ("zone", "a"))
    assert (fact.cpu_milli, fact.memory_bytes, fact.pods) == (8000, 32 * GIB, 110)
    assert fact.extended == (
        ("volcano.sh/vgpu-cores", 200),
        ("volcano.sh/vgpu-memory", 32000),
        ("volcano.sh/vgpu-number", 20),
    )
    (inventory,) = fact.inventories
    assert [(c.id, c.healthy) for c in inventory.cards] == [("GPU-a", True), ("GPU-b", False)]
    assert fact.problems == ()


@pytest.mark.parametrize(
    ("register", "words"),
    [
        ("", "holds no card"),
        ("garbage", "holds no card"),
        ("GPU-a,10,16000:", "has 3 fields"),
        (TWO_CARDS + TWO_CARDS, "card id GPU-a occurs twice"),
        (",10,16000,NVIDIA,true,hami-core:", "has no card id"),
    ],
)
def test_a_broken_register_string_is_the_nodes_problem(register: str, words: str) -> None:
    fact = node(node_json({REGISTER: register}, VGPU_AMOUNTS))
    assert fact.inventories == ()
    assert [problem.code for problem in fact.problems] == ["BrokenRegister"]
    assert words in fact.problems[0].message


def test_a_dead_device_plugin_takes_the_cards_away() -> None:
    dead = {**VGPU_AMOUNTS, "volcano.sh/vgpu-number": "0"}
    fact = node(node_json({REGISTER: TWO_CARDS}, dead))
    assert fact.inventories == ()
    assert "is the device plugin running?" in fact.problems[0].message


def test_shared_cards_come_from_capacity_and_unhealthy_ones_are_marked() -> None:
    amounts = {"volcano.sh/gpu-memory": "32000", "volcano.sh/gpu-number": "2"}
    fact = node(node_json({"volcano.sh/gpu-unhealthy-ids": "1, x"}, amounts))
    (inventory,) = fact.inventories
    assert [(c.memory_mib, c.healthy) for c in inventory.cards] == [(16000, True), (16000, False)]
    assert [problem.code for problem in fact.problems] == ["BrokenIndexList"]


def test_broken_amounts_of_a_node_count_as_nothing_and_are_named() -> None:
    fact = node(node_json(None, {"cpu": "many", "x.io/y": "-3", "memory": 1024.5}))
    assert (fact.cpu_milli, fact.memory_bytes) == (0, 1025)
    assert fact.extended == (("x.io/y", 0),)
    assert [problem.place for problem in fact.problems] == [
        "status.allocatable cpu",
        "status.allocatable x.io/y",
    ]


def test_taints_cordon_and_readiness() -> None:
    spec = {
        "unschedulable": True,
        "taints": [
            {"key": "z", "effect": "NoExecute", "value": None},
            {"key": "a", "effect": "NoSchedule", "value": "1", "timeAdded": "x"},
        ],
    }
    unready = [{"type": "Ready", "status": "Unknown"}, {"type": "MemoryPressure", "status": "True"}]
    fact = node(node_json(spec=spec, conditions=unready))
    assert fact.unschedulable
    assert not fact.ready
    assert fact.taints == (Taint("a", "1", "NoSchedule"), Taint("z", "", "NoExecute"))


def test_a_heartbeat_is_not_news() -> None:
    first = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]
    later = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}]
    assert node(node_json(conditions=first)) == node(node_json(conditions=later))


def test_a_bare_node_is_a_node() -> None:
    fact = node({"metadata": {"name": "n", "uid": "u"}, "spec": None, "status": None})
    assert (fact.cpu_milli, fact.pods, fact.inventories, fact.problems) == (0, 0, (), ())
