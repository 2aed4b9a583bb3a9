"""Volcano's own controllers are noticed, by their Lease or by their Deployment."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.controller_scene import Scene, cluster

from allotment_controller.volcano import Presence
from allotment_local.apiserver.resources import LEASES, NAMESPACES, ResourceKey

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with cluster(tmp_path) as made:
        yield made


async def test_volcanos_own_controllers_are_noticed_by_lease_or_deployment(scene: Scene) -> None:
    presence = Presence(scene.client, "volcano-system")
    await presence.look()
    assert presence.why == ""
    scene.store.create(NAMESPACES, "", {"metadata": {"name": "volcano-system"}})
    spec = {"holderIdentity": "vc-0", "renewTime": "2026-11-20T14:00:00.000000Z"}
    lease = {"metadata": {"name": "vc-controller-manager"}, "spec": spec}
    scene.store.create(LEASES, "volcano-system", lease)
    await presence.look()
    assert presence.why == "the Lease volcano-system/vc-controller-manager is held by vc-0"
    left = {"spec": {"holderIdentity": ""}}
    scene.store.merge_patch(LEASES, "volcano-system", "vc-controller-manager", left)
    await presence.look()
    assert presence.why == ""
    deployments = ResourceKey("apps", "deployments")
    body = {"metadata": {"name": "volcano-controllers"}, "spec": {}}
    scene.store.create(deployments, "volcano-system", body)
    await presence.look()
    assert presence.why == ""
    scene.store.merge_patch(
        *(deployments, "volcano-system", "volcano-controllers"),
        {"status": {"availableReplicas": 1}},
        subresource="status",
    )
    await presence.look()
    assert presence.why == "the Deployment volcano-system/volcano-controllers is available"
