"""The role of the controller: it holds what the code asks for, and nothing else."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from tests.contract import test_controller_groups as groups
from tests.contract import test_controller_jobs as jobs
from tests.contract.controller_scene import (
    JOBS,
    QUEUE,
    REPLICASETS,
    Right,
    Scene,
    cluster,
    state_of,
)

from allotment.core.jobs.owners import BLOCKED_OWNERS
from allotment_controller.objects import NAMES
from allotment_controller.volcano import Presence
from allotment_local.apiserver.resources import PODS

pytestmark = pytest.mark.anyio
ROLES = Path(__file__).parents[2] / "deploy/base/rbac.yaml"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with cluster(tmp_path) as made:
        yield made


def granted() -> set[Right]:
    documents = yaml.safe_load_all(ROLES.read_text())
    (role,) = (
        body
        for body in documents
        if body["kind"] == "ClusterRole" and body["metadata"]["name"] == "allotment-controller"
    )
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


ASKED_ELSEWHERE: set[Right] = {
    *(  # asked by admission of whoever blocks the deletion of an owner
        (api_version.rpartition("/")[0], f"{NAMES[api_version, kind]}/finalizers", "update")
        for api_version, kind in BLOCKED_OWNERS
    ),
    ("", "persistentvolumeclaims", "create"),
    ("apps", "statefulsets", "get"),
    ("apps", "daemonsets", "get"),
    ("batch", "jobs", "get"),
}
"""Rights of the same kind as those that are used here, for other kinds of objects."""


async def test_the_role_holds_what_the_code_asks_for(scene: Scene) -> None:
    await groups.test_bare_pods_and_pods_of_an_owner_get_podgroups(scene)
    for name in list(scene.pods()):
        scene.store.delete(PODS, "default", name, grace_seconds=0)
    scene.store.delete(REPLICASETS, "default", "rs")
    await jobs.test_scaling_and_the_lists_of_hosts(scene)
    scene.store.delete(JOBS, "default", "j")
    await scene.until(lambda: not scene.pods(), "room")
    await jobs.test_a_finished_job_is_deleted_after_its_time(scene)
    await jobs.test_suspend_and_resume(scene)
    async with scene.controller():
        scene.command("CloseQueue", "default", "Queue")
        parent = QUEUE.replace("name: q", "name: p")
        scene.apply(parent + "\n---\n" + QUEUE.replace("spec: {}", "spec: {parent: p}"))
        await scene.until(lambda: state_of(scene, "q") == "Open", "it opens")
        scene.command("CloseQueue", "p", "Queue")
        await scene.until(lambda: state_of(scene, "q") == "Closed", "the child closes")
    await Presence(scene.client, "volcano-system").look()
    assert scene.asked - granted() == set()
    assert granted() - scene.asked == ASKED_ELSEWHERE
