"""What a manifest says, holds: played through the API server, on every family of devices."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack

Json = dict[str, Any]
NODES = """
- {name: c1, kind: cpu, cpu: 8, memory: 32Gi}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory: Path = tmp_path_factory.mktemp("manifests")
    with Stack(directory, NODES) as running:
        yield running


def create(
    stack: Stack, name: str, *limits: Json, annotations: Json | None = None, **spec: Any
) -> None:
    """A pod with one container for each of `limits`."""
    containers = [
        {"name": f"c{number}", "image": "i:1", "resources": {"limits": dict(amounts)}}
        for number, amounts in enumerate(limits)
    ]
    metadata = {"name": name, "annotations": annotations or {}}
    body = {"schedulerName": "allotment", "containers": containers, **spec}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}
    stack.call("POST", "/api/v1/namespaces/default/pods", pod)


def is_running(stack: Stack, name: str) -> bool:
    return bool(stack.pod(name)["status"]["phase"] == "Running")


def refused(stack: Stack, name: str) -> str:
    """Wait until a pod is refused; gives what is said about it. It must not be bound."""
    stack.until(lambda: bool(stack.refusal(name)), f"{name} is refused")
    assert not stack.node_of(name)
    return stack.refusal(name)


def test_what_a_pod_asks_itself_beside_its_containers_has_to_fit(stack: Stack) -> None:
    """Kubernetes counts spec.resources in place of the containers' sum."""
    create(stack, "too-much", {}, resources={"requests": {"cpu": "12"}})
    assert "1 InsufficientCPU" in refused(stack, "too-much")
    create(stack, "most", {}, resources={"limits": {"cpu": "6"}})
    stack.until(lambda: is_running(stack, "most"), "a pod that fits runs")
    create(stack, "no-more", {"cpu": "500m"}, resources={"requests": {"cpu": "3"}})
    assert "1 InsufficientCPU" in refused(stack, "no-more")
