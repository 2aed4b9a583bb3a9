"""Telling claims that wait for their first consumer which node it goes to.

Whoever makes the volumes waits for this annotation and makes them where the pod will be; without
it, a pod that is bound already would wait for its volume for ever. Writing it again does no harm.
Source: Kubernetes' `volumebinding`, which does the same.
"""

from collections.abc import Callable

import anyio

from allotment.adapters.kube import KubeClient, Ok, Refused
from allotment.core import reasons
from allotment_binder.bindings import RETRY_FIRST_S, RETRY_MAX_S, Obstacle, Target

SELECTED_NODE = "volume.kubernetes.io/selected-node"


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
        wait_s = RETRY_FIRST_S
        while is_wanted():
            answer = await client.patch(path, body)
            if isinstance(answer, Ok):
                break
            if isinstance(answer, Refused) and answer.status != 409:
                gone = answer.status == 404
                code = reasons.VOLUME_NOT_READY if gone else reasons.API_ERROR
                return code, f"PersistentVolumeClaim {target.namespace}/{name}: {answer.message}"
            on_problem(f"claim {target.namespace}/{name} is not told its node: {answer.message}")
            await anyio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)
    return None
