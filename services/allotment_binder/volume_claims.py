"""What claims that wait for their first consumer need before it is bound.

The provisioner of the volumes waits for an annotation with the node, and makes them where the pod
will be; without it, a pod that is bound already would wait for its volume for ever. An existing
volume gets its claim written on it, and the cluster's volume controller binds the two. Writing
either again does no harm. Source: Kubernetes' `volumebinding`, which does the same.
"""

from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.result import Ok, Refused
from allotment.core import reasons
from allotment_binder.bindings import RETRY_FIRST_S, RETRY_MAX_S, Obstacle, Target

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""On a volume: its claim was chosen for it, and was not written there by hand."""
AS_IT_IS: dict[str, Any] = {}
"""A patch that changes nothing: the answer is the object."""
decoded = msgspec.json.Decoder(dict[str, Any]).decode
BOUND_WITHIN_S = 600.0
"""As long as Kubernetes' scheduler waits."""


async def tell_claims(
    client: KubeClient,
    target: Target,
    claims: tuple[str, ...],
    is_wanted: Callable[[], bool],
    on_problem: Callable[[str], None],
) -> Obstacle | None:
    """Write the target's node on each claim, or say why that cannot be. What the server does not
    answer is sent again for as long as the placement `is_wanted`.
    """
    body = {"metadata": {"annotations": {SELECTED_NODE: target.allocation.node}}}
    for name in claims:
        path = f"/api/v1/namespaces/{target.namespace}/persistentvolumeclaims/{name}"
        what = f"PersistentVolumeClaim {target.namespace}/{name}"
        found = await _patched(client, path, body, what, is_wanted, on_problem)
        if not isinstance(found, dict):
            return found
    return None


async def bind_claims(
    client: KubeClient,
    target: Target,
    is_wanted: Callable[[], bool],
    on_problem: Callable[[str], None],
) -> Obstacle | None:
    """Give the volumes that the target was given to its claims, and wait until they are bound; or
    say why that cannot be. What the server does not answer is sent again for as long as the
    placement `is_wanted`.
    """
    for claim, volume in target.allocation.volumes:
        path = f"/api/v1/namespaces/{target.namespace}/persistentvolumeclaims/{claim}"
        found = await _read(client, path, is_wanted, on_problem)
        if not isinstance(found, dict):
            return found
        if _volume_of(found) == "":
            reference = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": target.namespace,
                "name": claim,
                "uid": found["metadata"]["uid"],
            }
            obstacle = await _give(client, volume, reference, is_wanted, on_problem)
            if obstacle is not None:
                return obstacle
    with anyio.move_on_after(BOUND_WITHIN_S):
        return await _all_bound(client, target, is_wanted, on_problem)
    pairs = ", ".join(f"{claim} to {volume}" for claim, volume in target.allocation.volumes)
    text = f"not bound within {BOUND_WITHIN_S:g} s: {pairs}; does kube-controller-manager run?"
    return reasons.VOLUME_NOT_READY, text


async def _give(
    client: KubeClient,
    volume: str,
    claim: dict[str, str],
    is_wanted: Callable[[], bool],
    on_problem: Callable[[str], None],
) -> Obstacle | None:
    """Write the claim on the volume, unless another client was quicker."""
    path = f"/api/v1/persistentvolumes/{volume}"
    wait_s = RETRY_FIRST_S
    while is_wanted():
        found = await _read(client, path, is_wanted, on_problem)
        if not isinstance(found, dict):
            return found
        named = (found.get("spec") or {}).get("claimRef") or {}
        if named.get("uid") == claim["uid"]:
            return None
        is_free = not named or (
            not named.get("uid")
            and all(named.get(key) == claim[key] for key in ("namespace", "name"))
        )
        if not is_free:
            owner = f"{named.get('namespace')}/{named.get('name')}"
            text = f"PersistentVolume {volume}: was given to claim {owner} meanwhile"
            return reasons.VOLUME_NOT_READY, text
        version = found["metadata"].get("resourceVersion")  # so that no other change is overwritten
        body = {
            "metadata": {
                "resourceVersion": version,
                "annotations": {BOUND_BY_CONTROLLER: "yes"},
            },
            "spec": {"claimRef": claim},
        }
        answer = await client.patch(path, body)
        if isinstance(answer, Refused) and answer.status != 409:
            return reasons.API_ERROR, f"PersistentVolume {volume}: {answer.message}"
        if not isinstance(answer, Ok):
            on_problem(f"{path}: {answer.message}")
            await anyio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)
    return None


async def _all_bound(
    client: KubeClient,
    target: Target,
    is_wanted: Callable[[], bool],
    on_problem: Callable[[str], None],
) -> Obstacle | None:
    """Wait until every claim is bound to the volume that it was given."""
    for claim, volume in target.allocation.volumes:
        path = f"/api/v1/namespaces/{target.namespace}/persistentvolumeclaims/{claim}"
        wait_s = RETRY_FIRST_S
        while is_wanted():
            found = await _read(client, path, is_wanted, on_problem)
            if not isinstance(found, dict):
                return found
            bound = _volume_of(found)
            if bound not in ("", volume):
                text = f"PersistentVolumeClaim {target.namespace}/{claim}: was bound to {bound}"
                return reasons.VOLUME_NOT_READY, f"{text} meanwhile, not to {volume}"
            if bound and (found.get("status") or {}).get("phase") == "Bound":
                break
            await anyio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)
    return None


async def _read(
    client: KubeClient,
    path: str,
    is_wanted: Callable[[], bool],
    on_problem: Callable[[str], None],
) -> dict[str, Any] | Obstacle | None:
    """The object as it is, like `_patched`."""
    return await _patched(client, path, AS_IT_IS, path, is_wanted, on_problem)


async def _patched(
    client: KubeClient,
    path: str,
    body: dict[str, Any],
    what: str,
    is_wanted: Callable[[], bool],
    on_problem: Callable[[str], None],
) -> dict[str, Any] | Obstacle | None:
    """The object that the server answers; an obstacle if it refuses, None if no pod waits for it
    now. What it does not answer is sent again.
    """
    wait_s = RETRY_FIRST_S
    while is_wanted():
        answer = await client.patch(path, body)
        if isinstance(answer, Ok):
            return decoded(answer.body)
        if isinstance(answer, Refused) and answer.status != 409:
            gone = answer.status == 404
            code = reasons.VOLUME_NOT_READY if gone else reasons.API_ERROR
            return code, f"{what}: {answer.message}"
        on_problem(f"{what}: {answer.message}")
        await anyio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_MAX_S)
    return None


def _volume_of(claim: dict[str, Any]) -> str:
    return str((claim.get("spec") or {}).get("volumeName") or "")
