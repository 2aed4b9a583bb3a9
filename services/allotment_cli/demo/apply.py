"""Apply the example manifests through the API server, as any client would."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import yaml

from allotment.adapters.kube.client import connect
from allotment.adapters.kube.result import Ok
from allotment.answers.cluster import GROUPS, JOBS, QUEUES, path_of
from allotment.core.errors import AllotError

PATHS: dict[str, Callable[[str], str]] = {
    "Pod": lambda namespace: f"/api/v1/namespaces/{namespace}/pods",
    "PodGroup": partial(path_of, GROUPS),
    "Job": partial(path_of, JOBS),
    "Queue": lambda _: path_of(QUEUES, ""),
    "PriorityClass": lambda _: "/apis/scheduling.k8s.io/v1/priorityclasses",
}
"""What examples hold, and where it is created."""


class Applied(msgspec.Struct, frozen=True):
    """A pod that the API server took."""

    namespace: str
    name: str
    uid: str


def manifests_in(directory: Path) -> list[Path]:
    """The manifests of a directory, in order of their names. Raises `AllotError` without any."""
    files = sorted(directory.glob("*.yaml"))
    if not files:
        raise AllotError(f"there is no *.yaml file in {directory}")
    return files


async def apply_examples(kubeconfig: Path, files: Sequence[Path]) -> list[Applied]:
    """Create everything in the manifests, in order; returns the pods.

    Raises `AllotError` naming the file for what examples do not hold, or what is refused.
    """
    manifests = await anyio.to_thread.run_sync(_read, files)
    applied = []
    async with connect(kubeconfig) as client:
        for place, body in manifests:
            namespace = body["metadata"].get("namespace", "default")
            answer = await client.create(PATHS[body["kind"]](namespace), body)
            if not isinstance(answer, Ok):
                raise AllotError(f"{place}: the API server says: {answer.message}")
            if body["kind"] == "Pod":
                made = msgspec.json.decode(answer.body)["metadata"]
                applied.append(Applied(made["namespace"], made["name"], made["uid"]))
    return applied


def _read(files: Sequence[Path]) -> list[tuple[str, dict[str, Any]]]:
    manifests = []
    for file in files:
        try:
            documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise AllotError(f"{file} cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise AllotError(f"{file} is not YAML: {error}") from error
        for number, body in enumerate(documents, 1):
            if not isinstance(body, dict) or body.get("kind") not in PATHS:
                wanted = "examples may contain Pods, PodGroups, Jobs, Queues and PriorityClasses"
                raise AllotError(f"{file}, document {number} is of another kind", wanted)
            manifests.append((f"{file}, document {number}", body))
    return manifests
