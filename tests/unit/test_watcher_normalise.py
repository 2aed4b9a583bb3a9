"""Kubernetes JSON → facts: who a pod is and what it takes of its host, as people write it."""

from typing import Any

import msgspec
import pytest

from allotment.core import reasons
from allotment.core.placement.rules.selectors import term_matches
from allotment_proto.events import Ending
from allotment_proto.facts import PodRequest, Policy, Problem
from allotment_watcher.normalise import Lens, pod_through
from allotment_watcher.objects import PodObject
from tests.unit.kube_json import (
    GIB,
    Json,
    asks,
    container,
    node,
    node_json,
    pod_json,
    refused,
    seen,
)

DELETED, DELETED_MS = "2026-01-02T03:04:05Z", 1_767_323_045_000


def test_a_plain_pod_says_who_it_is() -> None:
    fact = seen(pod_json(container()))
    assert (fact.uid, fact.namespace, fact.name, fact.rv) == ("uid-p", "team-a", "p", 77)
    assert fact.created_ms == 1_767_323_045_000
    assert (fact.scheduler, fact.phase, fact.node) == ("allotment", "Pending", "")
    assert fact.request == PodRequest(unrequested=(100, 200 << 20))
    assert fact.problem is None


SMALL = {"cpu": "2", "memory": "1Gi", "example.com/fpga": "1"}
LARGE = {"cpu": "6000m", "memory": "5Gi", "example.com/fpga": 3}


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        (SMALL, {"allocatedResources": LARGE, "resources": {"requests": SMALL, "limits": SMALL}}),
        (SMALL, {"allocatedResources": SMALL, "resources": {"requests": LARGE, "limits": LARGE}}),
        (LARGE, {"allocatedResources": SMALL, "resources": {"requests": SMALL, "limits": SMALL}}),
        (LARGE, {"allocatedResources": {"cpu": "?"}, "resources": {"requests": None}}),
        (LARGE, {"allocatedResources": None, "resources": None}),
    ],
)
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_a_pod_that_is_resized_counts_with_the_most_that_its_node_may_hold(
    spec: Json, held: Json, where: str
) -> None:
    """It shrinks, and the kubelet holds the old amount still; or it grows."""
    sidecar = container("init", SMALL, restartPolicy="Always")
    document = pod_json(
        container("main", SMALL), container("other", SMALL), initContainers=[sidecar]
    )
    document["spec"]["nodeName"] = "n1"
    resized = document["spec"][where][0]
    resized["resources"] = {"limits": spec, "requests": {"cpu": spec["cpu"]}}
    statuses = {"containers": "containerStatuses", "initContainers": "initContainerStatuses"}
    document["status"] = {"phase": "Running", statuses[where]: [{"name": resized["name"], **held}]}
    request = seen(document).request
    assert (request.cpu_milli, request.memory_bytes) == (10_000, 7 * GIB)
    assert request.extended == (("example.com/fpga", 5),)
    del document["spec"]["nodeName"]
    assert seen(document).request.cpu_milli == (10_000 if spec is LARGE else 6_000)


@pytest.mark.parametrize(("reason", "cpu_milli"), [("Infeasible", 2_000), ("Deferred", 900_000)])
def test_what_the_kubelet_never_grants_does_not_count(reason: str, cpu_milli: int) -> None:
    """Whoever may resize a pod of his asked for 900 CPUs, and its node counted as full."""
    document = pod_json(container("main", {"cpu": "900", "memory": "900Gi"}), nodeName="n1")
    small = {"cpu": "2", "memory": "1Gi"}
    held = {"allocatedResources": small, "resources": {"requests": small, "limits": small}}
    document["status"] |= {
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        "containerStatuses": [{"name": "main", **held}],
    }
    assert seen(document).request.cpu_milli == cpu_milli


def test_shares_of_cards_count_with_the_most() -> None:
    wanted = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}
    held = {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "3000"}
    document = pod_json(container("main", wanted), nodeName="n1")
    document["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": held}]
    (asked,) = seen(document).request.devices
    assert (asked.count, asked.memory_mib) == (2, 3_000)


def test_a_pod_that_is_resized_as_a_whole_counts_with_the_most() -> None:
    own = {"requests": {"cpu": "2", "memory": "4Gi"}}
    document = pod_json(container(), resources=own, nodeName="n1")
    document["status"] |= {
        "allocatedResources": {"cpu": "3", "memory": "2Gi"},
        "resources": {"requests": {"cpu": "2500m", "memory": "8Gi"}},
    }
    request = seen(document).request
    assert (request.cpu_milli, request.memory_bytes) == (3_000, 8 * GIB)


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


@pytest.mark.parametrize(
    ("own_s", "deletion", "grace_s", "deadline_ms"),
    [
        (None, {}, 0, 0),
        (30, {}, 0, 0),
        (60, {}, 0, 0),
        (61, {}, 61, 0),
        (86_400, {"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 5}, 0, DELETED_MS),
        (30, {"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 900}, 900, DELETED_MS),
        (30, {"deletionTimestamp": DELETED}, 0, DELETED_MS),
        ((1 << 63) - 1, {}, 1 << 33, 0),
        (
            30,
            {"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": (1 << 63) - 1},
            1 << 33,
            (1 << 33) * 1000,
        ),
    ],
)
def test_how_long_a_pod_may_take_to_end(
    own_s: int | None, deletion: dict[str, Any], grace_s: int, deadline_ms: int
) -> None:
    document = pod_json(container(), terminationGracePeriodSeconds=own_s)
    document["metadata"].update(deletion)
    fact = seen(document)
    assert (fact.grace_s, fact.deadline_ms) == (grace_s, deadline_ms)


@pytest.mark.parametrize("text", ["not a time", "", "2026-13-01T00:00:00Z"])
def test_an_unreadable_creation_time_counts_as_none(text: str) -> None:
    document = pod_json(container())
    document["metadata"]["creationTimestamp"] = text
    assert seen(document).created_ms == 0


def test_noise_does_not_change_the_fact() -> None:
    quiet = pod_json(container())
    noisy = pod_json(container(), hostNetwork=True, preemptionPolicy="x")
    noisy["metadata"]["managedFields"] = []
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


@pytest.mark.parametrize(
    ("containers", "init", "milli"), [(("1", "1"), "3", 3_000), (("2", "2"), "3", 4_000)]
)
def test_ex_pod(containers: tuple[str, str], init: str, milli: int) -> None:
    parts = [container(name, requests={"cpu": n}) for name, n in zip("ab", containers, strict=True)]
    first = container("first", requests={"cpu": init})
    assert seen(pod_json(*parts, initContainers=[first])).request.cpu_milli == milli


def test_overhead_is_added() -> None:
    fact = seen(
        pod_json(container(requests={"cpu": "1"}), overhead={"cpu": "250m", "memory": "120Mi"})
    )
    assert fact.request.cpu_milli == 1250
    assert fact.request.memory_bytes == 120 << 20


@pytest.mark.parametrize(
    ("own", "cpu_milli", "memory_gib"),
    [
        ({"requests": {"cpu": "12", "memory": "9Gi"}}, 12_250, 9),
        ({"requests": {"cpu": "12"}}, 12_250, 2),
        ({"limits": {"cpu": "12", "memory": "9Gi"}}, 1_250, 2),  # the containers' are filled in
        ({"requests": {"ephemeral-storage": "1Gi", "cpu": 3}}, 3_250, 2),
        ({}, 1_250, 2),
    ],
)
def test_what_a_pod_asks_itself_goes_before_what_its_containers_ask(
    own: Json, cpu_milli: int, memory_gib: int
) -> None:
    parts = [container(n, requests={"cpu": "500m", "memory": "1Gi"}) for n in "ab"]
    request = seen(pod_json(*parts, resources=own, overhead={"cpu": "250m"})).request
    assert (request.cpu_milli, request.memory_bytes) == (cpu_milli, memory_gib * GIB)


def test_a_pods_own_limit_is_its_request_where_no_container_says_any() -> None:
    own = {"limits": {"cpu": "4", "hugepages-2Mi": "64Mi"}, "requests": {"memory": "1Gi"}}
    request = seen(pod_json(container(limits={"hugepages-2Mi": "2Mi"}), resources=own)).request
    assert (request.cpu_milli, request.memory_bytes) == (4000, GIB)
    assert request.extended == (("hugepages-2Mi", 64 << 20),)


def test_scores_guess_nothing_of_what_a_pod_asks_itself() -> None:
    own = {"requests": {"cpu": "50m"}}
    assert seen(pod_json(container(), container("b"), resources=own)).request.unrequested == (
        0,
        400 << 20,
    )
    limits = {"limits": {"cpu": "50m", "memory": "1Mi"}}
    assert seen(pod_json(container(), resources=limits)).request.unrequested == (0, 0)


def test_a_broken_amount_of_the_pod_itself_is_refused_by_name() -> None:
    fact = seen(pod_json(container(), resources={"requests": {"cpu": "-1"}}))
    refused(fact, reasons.INVALID_REQUEST, "spec.resources.requests, cpu", "negative")


def test_scratch_space_is_counted_in_bytes() -> None:
    """Of containers and of init containers, rounded up like memory; and what a node lists."""
    parts = [container(n, limits={"ephemeral-storage": "1.5Gi"}) for n in "ab"]
    first = container("i", requests={"ephemeral-storage": "8Gi"})
    fact = seen(pod_json(*parts, initContainers=[first]))
    assert fact.problem is None
    assert fact.request.extended == (("ephemeral-storage", 8 * GIB),)
    assert asks({"ephemeral-storage": "100m"}).request.extended == (("ephemeral-storage", 1),)
    listed = node(node_json(allocatable={"ephemeral-storage": "100Gi"}))
    assert dict(listed.extended)["ephemeral-storage"] == 100 * GIB


def test_what_no_node_counts_is_not_counted() -> None:
    fact = asks(
        {
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
        ({"volcano.sh/vgpu-memory": "3000"}, ("without volcano.sh/vgpu-number", "write")),
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


def test_a_pod_with_resource_claims_is_left_to_others() -> None:
    pod = pod_json(container("a", {}))
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    pod["spec"]["containers"] = [container("a", {"volcano.sh/vgpu-number": "1"})]
    found = seen(pod)
    assert found.problem is not None
    assert "resourceClaims" in found.problem.place
    assert found.request == PodRequest()
    assert found.asks is not None, "what it asks for beside the claims"
    assert [wanted.count for wanted in found.asks.devices] == [1]


def test_a_pod_of_a_kubernetes_gang_is_refused_and_not_placed_alone() -> None:
    pod = pod_json(container("a", {"volcano.sh/vgpu-number": "1"}))
    pod["spec"]["schedulingGroup"] = {"podGroupName": "pg1"}
    found = seen(pod)
    assert found.problem is not None
    assert found.problem.place == "spec.schedulingGroup"
    assert "not supported" in found.problem.message
    assert found.asks is not None
    pod["spec"]["schedulingGroup"] = None
    assert seen(pod).problem is None
    pod["spec"] |= {"schedulingGroup": {"podGroupName": "pg1"}, "nodeName": "n1"}
    assert seen(pod).problem is None, "it runs"


def test_a_pod_whose_claim_is_missing_says_what_it_asks_for() -> None:
    """Its request stays empty: what decides is that it has a problem."""
    pod = msgspec.convert(pod_json(container("a", {"volcano.sh/vgpu-number": "2"})), PodObject)
    missing = Problem(reasons.VOLUME_NOT_READY, "PersistentVolumeClaim ns/data", "does not exist")
    lens = Lens(Policy())
    found, free = pod_through(lens, pod, missing), pod_through(lens, pod)
    assert (found.request, found.problem) == (PodRequest(), missing)
    assert found.asks == free.request
    assert [wanted.count for wanted in free.request.devices] == [2]
    assert free.asks is None


def test_a_pod_whose_request_is_wrong_asks_for_nothing_that_is_known() -> None:
    found = seen(pod_json(container("a", {"volcano.sh/vgpu-number": "many"})))
    assert found.problem is not None
    assert found.asks is None


def test_required_affinity_without_terms_matches_nothing() -> None:
    pod = pod_json(container("a", {}))
    required: dict[str, list[object]] = {"nodeSelectorTerms": []}
    pod["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    (term,) = seen(pod).request.constraints.affinity
    assert not term_matches(term, {"any": "label"}, "n1")


def test_what_kubernetes_says_of_a_pods_end_is_told_once_there_is_one() -> None:
    document = pod_json(container(), nodeName="n1")
    status = document["status"]
    status["message"] = "m" * 9_000
    status["reason"] = "UnexpectedAdmissionError"
    status["conditions"] = [
        {"type": "Ready", "status": "False", "reason": "x"},
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"},
    ]
    status["containerStatuses"] = [
        {"name": "fine", "state": {"terminated": {"exitCode": 0}}},
        {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
        {"name": "later", "state": {"terminated": {"exitCode": 1}}},
        {"name": "waits", "state": {"waiting": {}}},
        {"name": "new"},
    ]
    assert seen(document).ending is None, "it does not end"
    document["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:06Z"
    assert seen(document).ending == Ending(disruption="DeletionByTaintManager")
    status["phase"] = "Failed"
    ending = seen(document).ending
    assert ending is not None
    assert (ending.container, ending.exit_code, ending.exit_reason) == ("main", 137, "OOMKilled")
    assert len(ending.message) == 500
    assert ending.message.endswith("m…")


def test_an_end_about_which_nothing_is_said_has_no_words() -> None:
    document = pod_json(container(), nodeName="n1")
    document["status"] = {
        "phase": "Succeeded",
        "message": None,
        "conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "x"}],
        "initContainerStatuses": None,
        "containerStatuses": [{"name": "a", "state": None}],
    }
    assert seen(document).ending is None
