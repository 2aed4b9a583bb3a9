"""The PodGroups that the controller makes for pods, and who lets them in."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from tests.contract.controller_scene import (
    GROUPS,
    JOB,
    JOBS,
    QUEUE,
    REPLICASETS,
    Json,
    Scene,
    cluster,
    phase_of,
)

from allotment_local.apiserver.cascade import Cascade
from allotment_local.apiserver.collection import Entry
from allotment_local.apiserver.resources import NAMESPACES, PODS, ResourceKey

pytestmark = pytest.mark.anyio
CLASSES = ResourceKey("scheduling.k8s.io", "priorityclasses")
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with cluster(tmp_path) as made:
        yield made


async def test_a_lone_pod_gets_no_podgroup_unless_its_namespace_names_a_queue(
    scene: Scene,
) -> None:
    spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i"}]}
    scene.apply(QUEUE)
    scene.store.create(NAMESPACES, "", {"metadata": {"name": "team"}})
    scene.store.create(NAMESPACES, "", {"metadata": {"name": "other"}})
    async with scene.controller() as controller:
        for namespace in ("team", "other"):
            pod = {"metadata": {"name": "bare"}, "spec": spec}
            scene.store.create(PODS, namespace, pod)
        in_queue = {"metadata": {"name": "own", "annotations": {QUEUE_NAME: "q"}}, "spec": spec}
        scene.store.create(PODS, "other", in_queue)
        await scene.until(lambda: len(scene.groups()) == 1, "the pod that names a queue has one")
        assert controller.groups.made == 1
        named = {"metadata": {"annotations": {QUEUE_NAME: "q"}}}
        scene.store.merge_patch(NAMESPACES, "", "team", named)
        await scene.until(lambda: len(scene.groups()) == 2, "its namespace names one now")
    made = {
        (group["metadata"]["namespace"], group["metadata"]["ownerReferences"][0]["name"])
        for group in scene.groups()
    }
    assert made == {("other", "own"), ("team", "bare")}


async def test_bare_pods_and_pods_of_an_owner_get_podgroups(scene: Scene) -> None:
    async with scene.controller(group_lone_pods=True):
        owner = scene.store.create(
            REPLICASETS,
            "default",
            {
                "metadata": {
                    "name": "rs",
                    "annotations": {"scheduling.volcano.sh/group-min-member": "2"},
                },
                "spec": {"replicas": 3},
            },
        )
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "rs",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        for name, owners, scheduler in [
            ("rs-1", [reference], "volcano"),
            ("rs-2", [reference], "volcano"),
            ("bare", [], "allotment"),
            ("foreign", [], "default-scheduler"),
        ]:
            metadata = {"name": name, "ownerReferences": owners}
            spec = {"schedulerName": scheduler, "containers": [container]}
            scene.store.create(PODS, "default", {"metadata": metadata, "spec": spec})

        def tied() -> dict[str, str | None]:
            return {
                name: (pod["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name")
                for name, pod in scene.pods().items()
            }

        await scene.until(lambda: sum(bool(group) for group in tied().values()) == 3, "tied")
        shared, own = f"podgroup-{reference['uid']}", tied()["bare"]
        assert tied() == {"rs-1": shared, "rs-2": shared, "bare": own, "foreign": None}
        by_name = {group["metadata"]["name"]: group for group in scene.groups()}
        assert set(by_name) == {shared, own}
        assert by_name[shared]["spec"]["minMember"] == 2
        resources = {"count/pods": "2", "cpu": "2", "pods": "2", "requests.cpu": "2"}
        assert by_name[shared]["spec"]["minResources"] == resources
        blocking = {**reference, "blockOwnerDeletion": True}
        assert by_name[shared]["metadata"]["ownerReferences"] == [blocking]
        await scene.until(
            lambda: [phase_of(group) for group in scene.groups()] == ["Inqueue"] * 2, "admitted"
        )
        scene.run_pods("Running", "rs-1", "rs-2")
        await scene.until(
            lambda: phase_of(scene.store.get(GROUPS, "default", shared)) == "Running", "it runs"
        )


async def test_a_podgroup_that_was_made_for_pods_follows_their_template(scene: Scene) -> None:
    """The same owner makes a pod that asks for less, elsewhere, with another priority."""
    async with scene.controller():
        metadata = {"name": "rs", "annotations": {MIN_MEMBER: "2"}}
        owner = scene.store.create(REPLICASETS, "default", {"metadata": metadata})
        reference: Json = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs"}
        reference |= {"uid": owner["metadata"]["uid"], "controller": True}

        def make(name: str, cpu: str, queue: str, priority: str) -> None:
            about: Json = {"name": name, "ownerReferences": [reference]}
            about["annotations"] = {QUEUE_NAME: queue} if queue else {}
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
            spec: Json = {"schedulerName": "volcano", "containers": [container]}
            if priority:
                scene.store.create(CLASSES, "", {"metadata": {"name": priority}, "value": 5})
                spec["priorityClassName"] = priority
            scene.store.create(PODS, "default", {"metadata": about, "spec": spec})

        def says() -> Any:
            (group,) = scene.groups()
            spec = group["spec"]
            return (
                spec["minMember"],
                spec["minResources"]["cpu"],
                spec.get("queue"),
                spec.get("priorityClassName") or "",
            )

        make("one", "4", "", "")
        await scene.until(lambda: len(scene.groups()) == 1, "made")
        assert says() == (2, "8", "default", "")
        changed = {"metadata": {"annotations": {MIN_MEMBER: "3"}}}
        scene.store.merge_patch(REPLICASETS, "default", "rs", changed)
        make("two", "1", "q", "high")
        await scene.until(lambda: says() == (3, "3", "q", "high"), "it follows")


async def test_a_podgroup_says_which_of_its_fields_have_no_effect(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(
            "{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: own},"
            " spec: {minMember: 4, networkTopology: {mode: hard},"
            " subGroupPolicy: [{name: a, subGroupSize: 2}]}}"
        )
        await scene.until(lambda: scene.events("NoEffect"), "it is told")
        assert scene.events("NoEffect")[0].startswith("spec.networkTopology: no effect here;")
        policy = scene.store.get(GROUPS, "default", "own")["spec"]["subGroupPolicy"]
        assert policy == [{"name": "a", "subGroupSize": 2}], "carried as it is"
        await scene.until(lambda: phase_of(scene.groups()[0]) == "Inqueue", "and it goes on")


async def test_a_podgroup_says_which_topology_cannot_be_followed(scene: Scene) -> None:
    async with scene.controller():
        scene.apply(
            "{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: own,"
            " annotations: {volcano.sh/task-topology-affinity: 'ps, worker'}},"
            " spec: {minMember: 4}}"
        )
        await scene.until(lambda: scene.events("NoEffect"), "it is told")
        assert scene.events("NoEffect")[0].startswith(
            "annotation volcano.sh/task-topology-affinity has blanks around 'worker'; wanted:"
        )
        await scene.until(lambda: phase_of(scene.groups()[0]) == "Inqueue", "and it goes on")


async def test_podgroups_are_made_in_the_queue_that_their_namespace_names(scene: Scene) -> None:
    async with scene.controller(group_lone_pods=True):
        scene.apply(QUEUE)
        scene.store.create(
            NAMESPACES, "", {"metadata": {"name": "team", "annotations": {QUEUE_NAME: "q"}}}
        )
        scene.store.create(NAMESPACES, "", {"metadata": {"name": "other"}})
        spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i"}]}
        for namespace, name, annotations in [
            ("team", "bare", {}),
            ("team", "same", {QUEUE_NAME: "default"}),
            ("team", "own", {QUEUE_NAME: "own"}),
            ("other", "bare", {}),
        ]:
            metadata = {"name": name, "annotations": annotations}
            scene.store.create(PODS, namespace, {"metadata": metadata, "spec": spec})
        scene.store.create(JOBS, "team", yaml.safe_load(JOB))
        await scene.until(lambda: len(scene.groups()) == 5, "all have PodGroups")
    made = {
        (group["metadata"]["namespace"], group["metadata"]["ownerReferences"][0]["name"]): group[
            "spec"
        ]["queue"]
        for group in scene.groups()
    }
    assert made == {
        ("team", "bare"): "q",
        ("team", "same"): "q",
        ("team", "own"): "own",
        ("team", "j"): "q",
        ("other", "bare"): "default",
    }


async def test_without_admission_podgroups_wait_for_the_scheduler(scene: Scene) -> None:
    async with scene.controller(admit=False):
        scene.apply(JOB)
        await scene.until(scene.groups, "the PodGroup")
        await anyio.sleep(0.2)
        (group,) = scene.groups()
        assert phase_of(group) == ""
        assert scene.pods() == {}
        conditions = [{"type": "Unschedulable", "status": "True", "message": "quota is used up"}]
        status: Json = {"status": {"phase": "Pending", "conditions": conditions}}
        name = group["metadata"]["name"]
        scene.store.merge_patch(GROUPS, "default", name, status, subresource="status")
        await scene.until(lambda: scene.events("PodGroupPending"), "it is told")
        assert scene.job()["status"]["state"]["message"] == "quota is used up"
        status = {"status": {"phase": "Inqueue", "conditions": None}}
        scene.store.merge_patch(GROUPS, "default", name, status, subresource="status")
        await scene.until(lambda: len(scene.pods()) == 3, "pods")


@pytest.mark.parametrize("collects", [False, True])
async def test_no_podgroup_stays_of_a_pod_that_went_before_it_was_tied(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, collects: bool
) -> None:
    """Pods go just before their PodGroup is made, with and without a garbage collector that looks
    for absent owners; others of the same name follow.
    """
    body: Json = {
        "metadata": {"name": "brief"},
        "spec": {"schedulerName": "allotment", "containers": [{"name": "c", "image": "i"}]},
    }
    create_entry, left = scene.store.create_entry, [3]

    def without_its_pod(resource: ResourceKey, namespace: str, made: Json, **more: Any) -> Entry:
        if resource == GROUPS and left[0]:
            left[0] -= 1
            scene.store.delete(PODS, "default", "brief")
            create_entry(PODS, "default", body)
        return create_entry(resource, namespace, made, **more)

    monkeypatch.setattr(scene.store, "create_entry", without_its_pod)
    if not collects:
        monkeypatch.setattr(Cascade, "_is_absent", lambda *_: False)
    async with scene.controller(group_lone_pods=True):
        create_entry(PODS, "default", body)
        await scene.until(lambda: not left[0], "three went")
        uid = scene.store.get(PODS, "default", "brief")["metadata"]["uid"]
        await scene.until(
            lambda: [g["metadata"]["name"] for g in scene.groups()] == [f"podgroup-{uid}"],
            "only the one of the last is there",
        )
