"""What pods say of their part in groups and queues."""

from typing import Any

import msgspec
import pytest

from allotment.core.jobs import groups, keys, model
from allotment_proto.events import PodObserved
from allotment_proto.facts import Policy
from allotment_watcher.normalise import Lens, pod_through
from allotment_watcher.objects import Meta, PodObject, PodSpec
from tests.unit.kube_json import Json, container, pod_json, seen


def pod(annotations: Json | None = None, labels: Json | None = None, **spec: object) -> PodObserved:
    document = pod_json(container(), annotations=annotations, **spec)
    document["metadata"]["labels"] = labels
    return seen(document)


def test_a_pod_that_says_nothing() -> None:
    fact = pod()
    assert (fact.group, fact.role, fact.priority, fact.priority_class) == ("", "", 0, "")
    assert (fact.preemptable, fact.card_names, fact.nominated_node) == (True, (), "")


def test_either_annotation_of_volcano_links_a_pod_to_a_group() -> None:
    assert pod({"scheduling.k8s.io/group-name": "gang"}).group == "team-a/gang"
    assert pod({"scheduling.volcano.sh/group-name": "gang"}).group == "team-a/gang"
    assert pod(labels={"scheduling.k8s.io/group-name": "gang"}).group == ""


def test_the_role_is_an_annotation_or_a_label() -> None:
    role = "volcano.sh/task-spec"
    assert pod({role: "worker"}).role == "worker"
    assert pod(labels={role: "ps"}).role == "ps"
    assert pod({role: "worker"}, {role: "ps"}).role == "worker"


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("7", 7),
        ("-3", -3),
        ("4294967296", 2**31 - 1),
        *((text, 1000) for text in ("99999999999", "high", "", "1.5", "٣", "-", "--1")),
    ],
)
def test_the_annotation_wins_over_the_spec_if_it_is_a_whole_number(
    text: str, priority: int
) -> None:
    fact = pod({"volcano.sh/task-priority": text}, priority=1000)
    assert fact.priority == priority
    assert fact.class_priority == (None if priority == 1000 else 1000)


@pytest.mark.parametrize(
    ("text", "is_preemptable"), [("true", True), ("1", True), ("false", False), ("no", False)]
)
def test_who_may_be_preempted(text: str, is_preemptable: bool) -> None:
    key = "volcano.sh/preemptable"
    assert pod({key: text}).preemptable is is_preemptable
    assert pod(labels={key: text}).preemptable is is_preemptable
    assert pod({key: "true"}, {key: text}).preemptable is True


@pytest.mark.parametrize(
    ("policy", "preempts"), [(None, True), ("PreemptLowerPriority", True), ("Never", False)]
)
def test_who_may_preempt(policy: str | None, *, preempts: bool) -> None:
    assert pod(preemptionPolicy=policy).preempts is preempts


def test_names_of_cards_class_and_nomination() -> None:
    document = pod_json(container(), priorityClassName="high")
    document["metadata"]["annotations"] = {"volcano.sh/card.name": "NVIDIA-H200| NVIDIA-A100 |"}
    document["status"]["nominatedNodeName"] = "n1"
    fact = seen(document)
    assert fact.card_names == ("NVIDIA-H200", "NVIDIA-A100")
    assert (fact.priority_class, fact.nominated_node) == ("high", "n1")


def test_pods_of_one_kind_keep_what_is_their_own() -> None:
    first = pod({"volcano.sh/task-spec": "a", "volcano.sh/task-priority": "1"}, priority=5)
    second = pod({"volcano.sh/task-spec": "b", "volcano.sh/task-priority": "2"}, priority=5)
    assert (first.role, first.priority, second.role, second.priority) == ("a", 1, "b", 2)


OTHER_GROUP = "scheduling.volcano.sh/group-name"
"""What Volcano's own API calls the annotation with a pod's PodGroup."""
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-r"}


def standing(
    made: bool = True, scheduler: str = "allotment", of_namespace: str = "", **metadata: Any
) -> tuple[str, str]:
    """Group and queue of a pod with this metadata, in a namespace that names a queue or none."""
    meta = msgspec.convert({"name": "p", "namespace": "team", "uid": "u-p", **metadata}, Meta)
    spec = PodSpec(scheduler_name=scheduler)
    lens = Lens(Policy(), has_groups_made=made)
    fact = pod_through(lens, PodObject(meta, spec), of_namespace=of_namespace)
    return fact.group, fact.queue


@pytest.mark.parametrize(
    ("metadata", "made", "judged"),
    [
        ({}, True, ("", "default")),
        ({"annotations": {keys.GROUP_NAME: "g"}}, True, ("team/g", "")),
        ({"annotations": {keys.POD_QUEUE: "q"}}, True, ("team/podgroup-u-p", "q")),
        ({"annotations": {OTHER_GROUP: "g"}}, True, ("team/g", "")),
        ({"annotations": {OTHER_GROUP: "h", keys.GROUP_NAME: "g"}}, True, ("team/g", "")),
        ({"annotations": {keys.QUEUE_NAME: "q"}}, True, ("team/podgroup-u-p", "q")),
        ({"annotations": {keys.QUEUE_NAME: "r", keys.POD_QUEUE: "q"}}, False, ("", "q")),
        ({"labels": {keys.PREEMPTABLE: "true"}}, True, ("team/podgroup-u-p", "default")),
        ({"annotations": {keys.PREEMPTABLE: "true"}}, True, ("team/podgroup-u-p", "default")),
        (
            {"ownerReferences": [{**OWNER, "controller": True}]},
            True,
            ("team/podgroup-u-r", "default"),
        ),
        ({"ownerReferences": [OWNER]}, True, ("", "default")),
        ({"annotations": {keys.POD_QUEUE: "q"}}, False, ("", "q")),
        ({"ownerReferences": [{**OWNER, "controller": True}]}, False, ("", "default")),
    ],
)
def test_where_a_pod_is_judged(
    metadata: dict[str, Any], made: bool, judged: tuple[str, str]
) -> None:
    assert standing(made, **metadata) == judged
    meta = msgspec.convert({"name": "p", "uid": "u-p", **metadata}, model.Meta)
    if made and judged[1]:
        assert groups.for_pod(meta, {}, None)["spec"]["queue"] == judged[1]
    assert groups.is_wanting(meta, "Pending") == (judged[0] != "team/g")


@pytest.mark.parametrize(
    ("metadata", "made", "judged"),
    [
        ({}, True, ("team/podgroup-u-p", "ns")),
        ({"annotations": {keys.POD_QUEUE: "default"}}, True, ("team/podgroup-u-p", "ns")),
        ({"annotations": {keys.POD_QUEUE: "q"}}, True, ("team/podgroup-u-p", "q")),
        ({"annotations": {keys.GROUP_NAME: "g"}}, True, ("team/g", "")),
        ({}, False, ("", "ns")),
        ({"annotations": {keys.POD_QUEUE: "q"}}, False, ("", "q")),
    ],
)
def test_where_a_pod_is_judged_in_a_namespace_that_names_a_queue(
    metadata: dict[str, Any], made: bool, judged: tuple[str, str]
) -> None:
    assert standing(made, of_namespace="ns", **metadata) == judged
    meta = msgspec.convert({"name": "p", "uid": "u-p", **metadata}, model.Meta)
    if made and judged[1]:
        assert groups.for_pod(meta, {}, None, "ns")["spec"]["queue"] == judged[1]


def test_a_namespace_that_names_the_queue_default_changes_nothing() -> None:
    assert standing(of_namespace="default") == standing() == ("", "default")


def test_others_pods_are_judged_nowhere() -> None:
    assert standing(scheduler="default-scheduler", annotations={keys.POD_QUEUE: "q"}) == ("", "")


@pytest.mark.parametrize(("minimum", "is_refused"), [("4", True), ("1", False), ("²", False)])
def test_a_gang_without_a_podgroup_is_refused_where_none_are_made(
    minimum: str, is_refused: bool
) -> None:
    meta = Meta("p", "team", "u-p", annotations={keys.GROUP_MIN_MEMBER: minimum})
    spec = PodSpec(scheduler_name="allotment")
    fact = pod_through(Lens(Policy(), has_groups_made=False), PodObject(meta, spec))
    assert (fact.problem is not None) == is_refused
    if fact.problem is not None:
        assert keys.GROUP_NAME in fact.problem.message
    assert pod_through(Lens(Policy()), PodObject(meta, spec)).problem is None
