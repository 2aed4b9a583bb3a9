"""One node, and Jobs for it."""

from tests.e2e.stack import Stack

NODES = """
- name: v
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
  cpu: 32
  memory: 128Gi
"""
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


def create(stack: Stack, name: str, replicas: int = 3, **fields: object) -> None:
    resources = {"limits": {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 2000}}
    container = {"name": "main", "image": "i:1", "resources": resources}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "schedulerName": "volcano",
        "minAvailable": replicas,
        "plugins": {"env": []},
        "tasks": [{"name": "worker", "replicas": replicas, "template": template}],
        **fields,
    }
    body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    stack.call("POST", JOBS, {**body, "metadata": {"name": name}, "spec": spec})
