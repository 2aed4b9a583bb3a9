"""Apply the example manifests through the API server, as any client would."""

from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import yaml

from allotment.adapters.kube import Ok, connect
from allotment_cli.errors import CliError

PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups",
}
"""What examples hold, and where it is created."""


class Applied(msgspec.Struct, frozen=True):
    """A pod that the API server took."""

    namespace: str
    name: str
    uid: str


async def apply_examples(kubeconfig: Path, directory: Path) -> list[Applied]:
    """Create everything in the manifests in the order of file names; returns the pods.

    Raises `CliError` naming the file for what examples do not hold, or what is refused.
    """
    manifests = await anyio.to_thread.run_sync(_read, directory)
    applied = []
    async with connect(kubeconfig) as client:
        for place, body in manifests:
            namespace = body["metadata"].get("namespace", "default")
            answer = await client.create(PATHS[body["kind"]].format(namespace), body)
            if not isinstance(answer, Ok):
                raise CliError(f"{place}: the API server says: {answer.message}")
            if body["kind"] == "Pod":
                made = msgspec.json.decode(answer.body)["metadata"]
                applied.append(Applied(made["namespace"], made["name"], made["uid"]))
    return applied


def _read(directory: Path) -> list[tuple[str, dict[str, Any]]]:
    files = sorted(directory.glob("*.yaml"))
    if not files:
        raise CliError(f"{directory} holds no *.yaml")
    manifests = []
    for file in files:
        try:
            documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise CliError(f"{file} is not YAML: {error}") from error
        for number, body in enumerate(documents, 1):
            if not isinstance(body, dict) or body.get("kind") not in PATHS:
                wanted = "examples hold pods and their PodGroups"
                raise CliError(f"{file}, document {number} is something else", wanted)
            manifests.append((f"{file}, document {number}", body))
    return manifests
