"""All services with queues, and pods that ask for CPU."""

from typing import Any

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
NAMESPACES = "/api/v1/namespaces"


def pod(
    stack: Stack,
    name: str,
    cpu: int,
    annotations: dict[str, str] | None = None,
    owner: Json | None = None,
    **more: Any,
) -> None:
    stack.create_pod(name, {}, requests={"cpu": cpu}, annotations=annotations, owner=owner, **more)
