"""Writes to the API server and what their endings mean for the plan."""

from typing import Any, TypeVar

import msgspec

from allotment.adapters.kube.client import KubeClient, pod_path
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.core.jobs import keys
from allotment.core.jobs.model import JsonObject, Meta, PodView
from allotment_controller.objects import collection, path_of
from allotment_controller.work import Again, Denied

T = TypeVar("T")
EXISTS = "AlreadyExists"


async def patch_status(
    client: KubeClient, api_version: str, kind: str, about: Meta, status: JsonObject, read: type[T]
) -> T | None:
    """Change the status of the very version that was looked at (of whichever is there, if `about`
    names none); None when the object is gone.

    Raises Again when the object changed meanwhile, or the outcome is unknown.
    """
    named = {"uid": about.uid, "resourceVersion": about.resource_version}
    metadata = {field: value for field, value in named.items() if value}
    body = {"metadata": metadata, "status": status}
    path = path_of(api_version, kind, about.namespace, about.name)
    answer = await client.patch(f"{path}/status", body)
    return _read(answer, f"status of {kind} {about.name}", read)


async def patch_object(
    client: KubeClient, api_version: str, kind: str, about: Meta, body: JsonObject, read: type[T]
) -> T | None:
    """Merge into an object; None when it is gone or is another one by now. Raises Again."""
    whole = {**body, "metadata": {**body.get("metadata", {}), "uid": about.uid}}
    path = path_of(api_version, kind, about.namespace, about.name)
    return _read(await client.patch(path, whole), f"{kind} {about.name}", read)


async def create(client: KubeClient, body: JsonObject) -> KubeResult:
    """POST an object to its collection."""
    namespace = body["metadata"].get("namespace", "")
    return await client.create(collection(body["apiVersion"], body["kind"], namespace), body)


async def delete(client: KubeClient, api_version: str, kind: str, about: Meta) -> None:
    """Delete the very object; that it is gone already is fine. Raises Again."""
    path = path_of(api_version, kind, about.namespace, about.name)
    _read(await client.delete(path, about.uid), f"{kind} {about.name}", dict[str, Any])


async def delete_with_dependents(
    client: KubeClient, api_version: str, kind: str, about: Meta
) -> None:
    """Delete an object after everything that it owns. Raises Again."""
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": about.uid},
        "propagationPolicy": "Foreground",
    }
    path = path_of(api_version, kind, about.namespace, about.name)
    answer = await client.request("DELETE", path, body=options)
    _read(answer, f"{kind} {about.name}", dict[str, Any])


async def end_pod(client: KubeClient, namespace: str, pod: PodView) -> KubeResult:
    """Mark a pod as ended by us, then delete it; one that is gone counts as done."""
    path = pod_path(namespace, pod.name)
    if not pod.is_marked:
        mark = {"metadata": {"uid": pod.uid, "annotations": {keys.OUT_OF_SYNC: "true"}}}
        answer = await client.patch(path, mark)
        if isinstance(answer, Refused) and answer.status in (404, 409):
            return Ok(200, b"{}")
        if not isinstance(answer, Ok):
            return answer
    answer = await client.delete(path, pod.uid)
    if isinstance(answer, Refused) and answer.status in (404, 409):
        return Ok(200, b"{}")
    return answer


def _read(answer: KubeResult, what: str, read: type[T]) -> T | None:
    if isinstance(answer, Ok):
        return msgspec.json.decode(answer.body, type=read)
    if isinstance(answer, Refused) and answer.status == 404:
        return None
    if isinstance(answer, Refused) and answer.status == 409:
        raise Again(f"{what} was changed meanwhile")
    if isinstance(answer, Refused):
        raise Denied(f"{what}: {answer.message}")
    raise Again(f"{what}: {answer.message}")
