"""One node, and Jobs for it."""

from typing import Any

from tests.e2e.stack import Stack, task, vgpu

NODES = """
- name: v
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 32
  memory: 128Gi
"""


def create(stack: Stack, name: str, replicas: int = 3, **fields: Any) -> None:
    """A Job whose workers have a part of a card each."""
    workers = fields.pop("tasks", [task("worker", replicas, vgpu(2000))])
    stack.create_job(name, *workers, least=replicas, plugins={"env": []}, **fields)
