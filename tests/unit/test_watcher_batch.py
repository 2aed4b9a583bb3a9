"""PodGroups, Queues and PriorityClasses as facts."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from allotment_proto.facts import Expression, SubGroups, TaskTopology
from allotment_watcher.batch_objects import (
    GroupObject,
    GroupSpec,
    PriorityClassObject,
    QueueObject,
    QueueSpec,
    unknown_fields,
)
from allotment_watcher.normalise.batch import class_fact, group_fact, queue_fact

META = {
    "name": "train",
    "namespace": "team-a",
    "uid": "u-1",
    "resourceVersion": "7",
    "creationTimestamp": "2026-11-21T10:00:00Z",
}


def read(kind: Any, **fields: Any) -> Any:
    annotations = fields.pop("annotations", None)
    meta = {**META, **({"annotations": annotations} if annotations else {})}
    return msgspec.convert({"metadata": meta, **fields}, kind)


def test_a_group() -> None:
    fact = group_fact(
        read(
            GroupObject,
            spec={
                "minMember": 3,
                "minTaskMember": {"worker": 2, "ps": 1},
                "queue": "training",
                "priorityClassName": "high",
                "minResources": {
                    "cpu": "1500m",
                    "memory": "2Gi",
                    "volcano.sh/vgpu-number": "3",
                    "count/pods": "3",
                    "requests.cpu": "1500m",
                    "requests.volcano.sh/vgpu-number": "3",
                    "limits.memory": "2Gi",
                },
            },
            status={"phase": "Inqueue"},
            annotations={
                "volcano.sh/card.request": '{"NVIDIA-H200": 8}',
                "sla-waiting-time": "1h30m",
                "volcano.sh/preemptable": "true",
            },
        )
    )
    assert (fact.namespace, fact.name, fact.queue, fact.phase) == (
        "team-a",
        "train",
        "training",
        "Inqueue",
    )
    assert (fact.min_member, fact.min_task_member) == (3, (("ps", 1), ("worker", 2)))
    assert fact.min_resources == (
        ("cpu", 1500),
        ("memory", 2 << 30),
        ("volcano.sh/vgpu-number", 3000),
    )
    assert fact.card_request == (("NVIDIA-H200", 8000),)
    assert (fact.waiting_most_ms, fact.preemptable, fact.problem) == (5_400_000, True, None)


def test_an_empty_group() -> None:
    fact = group_fact(read(GroupObject))
    assert (fact.queue, fact.min_member, fact.min_resources, fact.phase) == ("default", 1, None, "")
    assert (fact.preemptable, fact.waiting_most_ms, fact.card_request) == (False, -1, ())


@pytest.mark.parametrize(
    ("annotations", "place"),
    [
        ({"volcano.sh/card.request": "eight"}, "annotation volcano.sh/card.request"),
        ({"volcano.sh/card.request": '{"A": true}'}, "annotation volcano.sh/card.request"),
        ({"sla-waiting-time": "soon"}, "annotation sla-waiting-time"),
    ],
)
def test_what_cannot_be_read_is_named(annotations: dict[str, str], place: str) -> None:
    fact = group_fact(read(GroupObject, annotations=annotations))
    assert fact.problem is not None
    assert fact.problem.place == place


def test_a_queue() -> None:
    fact = queue_fact(
        read(
            QueueObject,
            spec={
                "weight": 4,
                "capability": {"cpu": 8, "nvidia.com/gpu": "2"},
                "deserved": {"cpu": "4"},
                "guarantee": {"resource": {"cpu": "1"}},
                "reclaimable": False,
                "priority": 9,
                "parent": "org",
                "affinity": {
                    "nodeGroupAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": ["b", "a"]
                    }
                },
            },
            status={"state": "Closing"},
            annotations={"volcano.sh/card.quota": '{"NVIDIA-H200": 2}'},
        )
    )
    assert (fact.weight, fact.priority, fact.parent, fact.state) == (4, 9, "org", "Closing")
    assert fact.capability == (("cpu", 8000), ("nvidia.com/gpu", 2000))
    assert (fact.deserved, fact.guarantee) == ((("cpu", 4000),), (("cpu", 1000),))
    assert (fact.reclaimable, fact.card_quota) == (False, (("NVIDIA-H200", 2000),))
    assert fact.node_groups == (("a", "b"), (), (), ())


def test_a_bare_queue_and_a_broken_one() -> None:
    fact = queue_fact(read(QueueObject))
    assert (fact.weight, fact.state, fact.parent, fact.card_quota) == (1, "Open", "root", None)
    broken = queue_fact(read(QueueObject, spec={"capability": {"cpu": "many", "memory": "1Gi"}}))
    assert broken.capability == (("memory", 1 << 30),)
    assert broken.problem is not None
    assert broken.problem.place == "spec.capability.cpu"


def test_a_priority_class() -> None:
    fact = class_fact(read(PriorityClassObject, value=1000, globalDefault=True))
    assert (fact.name, fact.value, fact.is_default, fact.preempts) == ("train", 1000, True, True)
    fact = class_fact(read(PriorityClassObject, value=1000, preemptionPolicy="Never"))
    assert (fact.is_default, fact.preempts) == (False, False)


def test_which_tasks_belong_together_is_read_from_annotations() -> None:
    annotations = {
        "volcano.sh/task-topology-affinity": "ps,worker",
        "volcano.sh/task-topology-anti-affinity": "ps",
        "volcano.sh/task-topology-task-order": "ps,worker",
    }
    fact = group_fact(read(GroupObject, annotations=annotations))
    assert fact.problem is None
    assert fact.task_topology == TaskTopology((("ps", "worker"),), (("ps",),), ("ps", "worker"))
    broken = {**annotations, "volcano.sh/task-topology-anti-affinity": "ps,ps"}
    fact = group_fact(read(GroupObject, spec={"minMember": 2}, annotations=broken))
    assert fact.task_topology is None
    assert fact.min_member == 2
    assert fact.problem is not None
    assert fact.problem.code == "InvalidTaskTopology"
    assert fact.problem.place == "annotation volcano.sh/task-topology-anti-affinity"
    assert fact.problem.message.startswith("names 'ps' twice in 'ps,ps'; wanted: names of tasks")
    assert group_fact(read(GroupObject)).task_topology is None


def test_sub_groups_are_read_as_they_are_written() -> None:
    policy = {
        "name": "worker",
        "subGroupSize": 2,
        "minSubGroups": 1,
        "labelSelector": {
            "matchLabels": {"volcano.sh/task-spec": "worker"},
            "matchExpressions": [{"key": "zone", "operator": "Exists"}],
        },
        "matchLabelKeys": ["volcano.sh/partition-id"],
        "networkTopology": {"mode": "hard"},
    }
    fact = group_fact(read(GroupObject, spec={"subGroupPolicy": [policy, {"name": "rest"}]}))
    selector = (
        Expression("volcano.sh/task-spec", "In", ("worker",)),
        Expression("zone", "Exists", ()),
    )
    assert fact.sub_groups == (
        SubGroups("worker", 2, 1, selector, ("volcano.sh/partition-id",)),
        SubGroups("rest"),
    )
    assert fact.problem is None
    many = [{"name": str(n)} for n in range(100)]
    fact = group_fact(read(GroupObject, spec={"subGroupPolicy": many}))
    assert len(fact.sub_groups) == 64
    assert fact.problem is not None
    assert fact.problem.message == "has 100 entries, of which the first 64 count"


@pytest.mark.parametrize(
    ("spec", "place", "says"),
    [
        ({"capabilty": {"cpu": 1}}, "spec.capabilty", "did you mean spec.capability?"),
        (
            {"guarantee": {"cpu": 1}},
            "spec.guarantee.cpu",
            "is not a field of a Queue and is ignored; did you mean spec.guarantee.resource.cpu?",
        ),
        ({"Weight": 3}, "spec.Weight", "did you mean spec.weight?"),
        ({"colour": "red"}, "spec.colour", "is not a field of a Queue and is ignored"),
        (
            {"affinity": {"nodeGroupAfinity": {}}},
            "spec.affinity.nodeGroupAfinity",
            "did you mean spec.affinity.nodeGroupAffinity?",
        ),
    ],
)
def test_a_field_that_a_queue_does_not_have_is_its_problem(
    spec: dict[str, Any], place: str, says: str
) -> None:
    problem = queue_fact(read(QueueObject, spec=spec)).problem
    assert problem is not None
    assert (problem.code, problem.place) == ("UnknownField", place)
    assert problem.message.endswith(says)


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"minMembers": 3}, "spec.minMembers"),
        ({"minmember": 3}, "spec.minmember"),
        ({"subGroupPolicy": [{"name": "a"}, {"size": 2}]}, "spec.subGroupPolicy[1].size"),
    ],
)
def test_a_field_that_a_group_does_not_have_is_its_problem(
    spec: dict[str, Any], place: str
) -> None:
    problem = group_fact(read(GroupObject, spec=spec)).problem
    assert problem is not None
    assert (problem.code, problem.place) == ("UnknownField", place)


def test_several_such_fields_are_said_together() -> None:
    spec = {"capabilty": {"cpu": 1}, "guarantee": {"cpu": 1}}
    problem = queue_fact(read(QueueObject, spec=spec)).problem
    assert problem is not None
    assert problem.message == (
        "is not a field of a Queue and is ignored; did you mean spec.capability? "
        "spec.guarantee.cpu is ignored, too; did you mean spec.guarantee.resource.cpu?"
    )


CRDS = Path(__file__).parents[2] / "deploy" / "base" / "crds"


@pytest.mark.parametrize(("kind", "file"), [(QueueSpec, "queues"), (GroupSpec, "podgroups")])
def test_no_field_of_the_definitions_is_unknown(kind: Any, file: str) -> None:
    definition = yaml.safe_load((CRDS / f"{file}.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert list(unknown_fields(made_of(schema), kind, "spec")) == []


def made_of(schema: dict[str, Any]) -> Any:
    """A value with all fields of a schema."""
    if schema.get("type") == "array":
        return [made_of(schema.get("items", {}))]
    if "properties" in schema:
        return {name: made_of(inner) for name, inner in schema["properties"].items()}
    return {}
