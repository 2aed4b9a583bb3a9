"""PodGroups of Jobs and of other pods; queues and their states."""

from typing import Any

import msgspec
import pytest

from allotment.core.jobs import groups, keys, queue_states
from allotment.core.jobs.groups import for_pod, is_wanting, may_enqueue, name_for_pod, spec_changes
from allotment.core.jobs.model import Meta, PodGroup, Queue
from allotment.core.jobs.queue_states import Change, Denied, operate, settle
from tests.unit.jobs_parts import at, group, job, task, template

RS = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "rs",
    "uid": "rs-1",
    "controller": True,
}


def meta(**fields: Any) -> Meta:
    return msgspec.convert({"name": "p", "namespace": "n", "uid": "p-1", **fields}, Meta)


@pytest.mark.parametrize(
    ("annotations", "labels", "is_owned", "of_namespace", "lone"),
    [
        ({}, {}, False, "", True),
        ({}, {"app": "x"}, False, "default", True),
        ({}, {}, True, "", False),
        ({keys.POD_QUEUE: "q"}, {}, False, "", False),
        ({keys.PREEMPTABLE: "true"}, {}, False, "", False),
        ({}, {keys.PREEMPTABLE: "true"}, False, "", False),
        ({}, {}, False, "q", False),
    ],
)
def test_a_pod_is_lone_if_its_podgroup_would_say_nothing_that_it_does_not(
    annotations: dict[str, str],
    labels: dict[str, str],
    is_owned: bool,
    of_namespace: str,
    lone: bool,
) -> None:
    found = groups.is_lone(annotations, labels, is_owned=is_owned, of_namespace=of_namespace)
    assert found is lone


def test_the_podgroup_of_a_job() -> None:
    of = job(
        task("ps", 2, minAvailable=1),
        task("worker", 2, template=template({"cpu": "1"})),
        queue="training",
        priorityClassName="high",
        status=at("Pending", version=3),
        meta={
            "labels": {"team": "a"},
            "annotations": {
                "note": "x",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
            },
        },
    )
    made = groups.of_job(of, {})
    assert made["metadata"]["name"] == "j-u"
    assert made["metadata"]["labels"] == {"team": "a", "volcano.sh/job-name": "j"}
    assert made["metadata"]["annotations"] == {"note": "x", "volcano.sh/job-version": "3"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert made["spec"]["minMember"] == 3
    assert made["spec"]["minTaskMember"] == {"ps": 1, "worker": 2}
    assert (made["spec"]["queue"], made["spec"]["priorityClassName"]) == ("training", "high")
    assert made["spec"]["minResources"]["cpu"] == "2"


def test_a_podgroup_follows_its_job() -> None:
    of = job(task(replicas=2, template=template({"cpu": "1"})))
    has = msgspec.convert(groups.of_job(of, {}), PodGroup)
    assert spec_changes(has, of, {}) == {}
    scaled = job(task(replicas=4), priorityClassName="high")
    assert spec_changes(has, scaled, {}) == {
        "minMember": 4,
        "minTaskMember": {"worker": 4},
        "minResources": {"cpu": None, "requests.cpu": None, "count/pods": "4", "pods": "4"},
        "priorityClassName": "high",
    }


def test_partitions_are_sub_groups() -> None:
    topology = {"mode": "hard", "highestTierAllowed": 1}
    policy = {"totalPartitions": 3, "partitionSize": 2, "minPartitions": 2}
    of = job(
        task("a", 6, partitionPolicy={**policy, "networkTopology": topology}),
        task("b", 2, partitionPolicy={"totalPartitions": 2, "partitionSize": 1}),
        task("c", 1),
    )
    spec = groups.of_job(of, {})["spec"]
    assert spec["minTaskMember"] == {"a": 4, "b": 2, "c": 1}, "2 partitions of 2 pods"
    assert spec["minMember"] == 7
    assert spec["subGroupPolicy"] == [
        {
            "name": "a",
            "subGroupSize": 2,
            "minSubGroups": 2,
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "a"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "networkTopology": topology,
        },
        {
            "name": "b",
            "subGroupSize": 1,
            "minSubGroups": 0,
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "b"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
        },
    ]
    has = msgspec.convert(groups.of_job(of, {}), PodGroup)
    assert spec_changes(has, of, {}) == {}
    without = msgspec.structs.replace(
        has, spec=msgspec.structs.replace(has.spec, sub_group_policy=None)
    )
    assert spec_changes(without, of, {}) == {"subGroupPolicy": spec["subGroupPolicy"]}


def test_what_has_no_effect_is_named() -> None:
    def said(**spec: Any) -> str:
        return groups.without_effect(msgspec.convert({"metadata": {}, "spec": spec}, PodGroup))

    assert said(minMember=2) == said(subGroupPolicy=[]) == ""
    assert said(subGroupPolicy=[{"name": "a", "subGroupSize": 2}]) == ""
    near = {"networkTopology": {"mode": "hard"}}
    assert said(subGroupPolicy=[{"name": "a"}, {"name": "b", **near}], **near) == (
        "spec.networkTopology and spec.subGroupPolicy[1].networkTopology: no effect here; the"
        " network is not looked at"
    )


def test_pods_of_one_owner_share_a_podgroup() -> None:
    assert name_for_pod(meta()) == "podgroup-p-1"
    assert name_for_pod(meta(ownerReferences=[RS])) == "podgroup-rs-1"


def test_the_podgroup_of_a_bare_pod() -> None:
    pod = meta(
        annotations={"scheduling.volcano.sh/queue-name": "q", "volcano.sh/preemptable": "false"}
    )
    made = for_pod(pod, {**template({"cpu": "1"})["spec"], "priorityClassName": "high"}, None)
    assert made["metadata"]["annotations"] == {"volcano.sh/preemptable": "false"}
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": "p-1",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert made["spec"] == {
        "minMember": 1,
        "queue": "q",
        "minResources": {"count/pods": "1", "cpu": "1", "requests.cpu": "1", "pods": "1"},
        "priorityClassName": "high",
    }


@pytest.mark.parametrize(
    ("api_version", "kind", "blocks"),
    [
        ("apps/v1", "ReplicaSet", True),
        ("apps/v1", "StatefulSet", True),
        ("batch/v1", "Job", True),
        ("kubeflow.org/v1", "PyTorchJob", False),
        ("other.io/v1", "ReplicaSet", False),
    ],
)
def test_only_owners_whose_finalizers_the_controller_may_update_are_blocked(
    api_version: str, kind: str, blocks: bool
) -> None:
    """An API server that enforces rights on owners would refuse the PodGroup else."""
    owner = {**RS, "apiVersion": api_version, "kind": kind}
    (made,) = for_pod(meta(ownerReferences=[owner]), {}, None)["metadata"]["ownerReferences"]
    assert made == {**owner, **({"blockOwnerDeletion": True} if blocks else {})}


def test_an_owner_says_how_many_belong_together() -> None:
    owner = meta(
        annotations={
            "scheduling.volcano.sh/group-min-member": "3",
            "volcano.sh/cooldown-time": "600s",
            "other": "no",
        }
    )
    made = for_pod(meta(ownerReferences=[RS]), template({"cpu": "1"})["spec"], owner)
    assert made["spec"]["minMember"] == 3
    assert made["spec"]["minResources"]["cpu"] == "3"
    assert made["spec"]["queue"] == "default"
    assert made["metadata"]["annotations"] == {"volcano.sh/cooldown-time": "600s"}
    assert made["metadata"]["ownerReferences"][0]["name"] == "rs"


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_a_minimum_that_is_none_is_one(text: str) -> None:
    owner = meta(annotations={"scheduling.volcano.sh/group-min-member": text})
    assert for_pod(meta(ownerReferences=[RS]), {}, owner)["spec"]["minMember"] == 1


def test_which_pods_want_a_podgroup() -> None:
    assert is_wanting(meta(), "Pending")
    assert not is_wanting(meta(), "Succeeded")
    assert not is_wanting(meta(annotations={"scheduling.k8s.io/group-name": "g"}), "Pending")
    assert not is_wanting(meta(deletionTimestamp="2026-11-20T14:00:00Z"), "Pending")


# Queues


def queue(name: str, state: str = "Open", parent: str = "", mark: str = "") -> Queue:
    marks = {"volcano.sh/closed-by-parent": mark} if mark else {}
    body = {
        "metadata": {"name": name, "annotations": marks},
        "spec": {"parent": parent},
        "status": {"state": state},
    }
    return msgspec.convert(body, Queue)


def tree(*queues: Queue) -> dict[str, Queue]:
    return {found.metadata.name: found for found in (queue("root"), *queues)}


@pytest.mark.parametrize(
    ("phase", "state", "may"),
    [("", "Open", True), ("Pending", "Open", True), ("Pending", "", True)]
    + [("Pending", state, False) for state in ("Closed", "Closing", "Unknown")]
    + [(phase, "Open", False) for phase in ("Inqueue", "Running", "Completed", "Unknown")],
)
def test_without_a_quota_an_open_queue_takes_everybody(phase: str, state: str, may: bool) -> None:
    assert may_enqueue(phase, queue("q", state)) is may
    assert may_enqueue(phase, None) is False


@pytest.mark.parametrize(
    ("state", "members", "following"),
    [
        ("", 0, "Open"),
        ("Open", 0, "Open"),
        ("Closing", 1, "Closing"),
        ("Closing", 0, "Closed"),
        ("Closed", 3, "Closed"),
        ("Unknown", 0, "Unknown"),
    ],
)
def test_states_of_a_queue(state: str, members: int, following: str) -> None:
    assert settle(state, members) == following


def test_a_queue_closes_when_it_is_empty() -> None:
    queues = tree(queue("a"))
    assert operate("a", "CloseQueue", queues, {}) == [Change("a", "Closed")]
    assert operate("a", "CloseQueue", queues, {"a": 2}) == [Change("a", "Closing")]
    assert operate("a", "OpenQueue", tree(queue("a", "Closed")), {}) == [Change("a", "Open", False)]


def test_a_parent_takes_its_children_with_it_and_brings_those_back() -> None:
    queues = tree(
        queue("a"), queue("b", parent="a"), queue("c", parent="b"), queue("d", "Closed", "a")
    )
    assert operate("a", "CloseQueue", queues, {"c": 1}) == [
        Change("a", "Closed"),
        Change("b", "Closed", True),
        Change("c", "Closing", True),
    ]
    closed = tree(
        queue("a", "Closed"),
        queue("b", "Closed", "a", mark="true"),
        queue("c", "Closing", "b", mark="true"),
        queue("d", "Closed", "a"),
    )
    assert operate("a", "OpenQueue", closed, {}) == [
        Change("a", "Open", False),
        Change("b", "Open", False),
        Change("c", "Open", False),
    ]


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("root", "CloseQueue"),
        ("default", "CloseQueue"),
        ("nowhere", "OpenQueue"),
        ("a", "Dance"),
        ("b", "OpenQueue"),
    ],
)
def test_what_is_not_done_to_queues(name: str, action: str) -> None:
    queues = tree(queue("default"), queue("a", "Closed"), queue("b", "Closed", "a"))
    assert isinstance(operate(name, action, queues, {}), Denied)


def test_every_cluster_has_two_queues() -> None:
    assert [body["metadata"]["name"] for body in queue_states.first_queues()] == ["root", "default"]


def test_groups_are_counted_by_queue() -> None:
    of = job(task())
    assert groups.counted([group(of, "Running"), group(of, "")]) == {
        "default": {"Running": 1, "Pending": 1}
    }
