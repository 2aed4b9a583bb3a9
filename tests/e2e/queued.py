"""All services with queues, and pods that ask for CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.stack import Json, Stack

NODES = """
- prefix: n
  count: 3
  cpu: 8
  memory: 32Gi
"""


POLICY = """
actions: "enqueue, allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: capacity
"""


SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"


QUEUES = f"{SCHEDULING}/queues"


NAMESPACES = "/api/v1/namespaces"


@contextmanager
def starting(tmp_path: Path, policy: str) -> Iterator[Stack]:
    """All services under a policy, and the first queues."""
    config = tmp_path / "volcano-scheduler.conf"
    config.write_text(policy)
    kube = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--scheduler-names", "allotment,volcano"]
    options = {"watcher": ["--policy-file", str(config)], "controller": kube}
    services = ("watcher", "filter", "scorer", "binder", "controller")
    with Stack(tmp_path, NODES, services=(), options=options) as running:
        running.define()
        for name in services:
            running.start(name, wait=False)
        for name in services:
            running.processes[name].announce()
            running.until(lambda name=name: running.is_ready(name), f"{name} is ready")  # type: ignore[misc]
        running.until(lambda: len(running.call("GET", QUEUES)["items"]) == 2, "queues are there")
        yield running


def pod(
    stack: Stack,
    name: str,
    cpu: int,
    annotations: dict[str, str] | None = None,
    owner: Json | None = None,
    namespace: str = "default",
    **spec: object,
) -> None:
    container = {"name": "main", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
    metadata: Json = {"name": name, "annotations": annotations or {}}
    if owner is not None:
        about = {key: owner["metadata"][key] for key in ("name", "uid")}
        kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
        metadata["ownerReferences"] = [{**kind, **about}]
    stack.call(
        "POST",
        f"{NAMESPACES}/{namespace}/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"schedulerName": "allotment", "containers": [container], **spec},
        },
    )
