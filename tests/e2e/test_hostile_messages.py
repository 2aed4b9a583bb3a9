"""Hostile bytes on every subject that services listen to: nobody dies, and pods are placed.

The messages are the files of `tests/corpus`; what leases and pipeline messages do in detail is
tested elsewhere.
"""

import json
from pathlib import Path
from urllib.request import urlopen

import anyio

from allotment.adapters.log.connection import connect
from tests.e2e.stack import ROLES, Stack, vgpu
from tests.waiting import PATIENCE_S

NODES = """
- name: v
  gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 10}
"""
CORPUS = Path(__file__).parents[1] / "corpus"
MESSAGES = [
    (f"allot.pipe.{file.parent.name}", file.read_bytes())
    for file in sorted((CORPUS / "bus").glob("*/*"))
] + [
    (f"allot.lease.{role}", file.read_bytes())
    for role in ROLES
    for file in sorted((CORPUS / "lease").iterdir())
]
UNKNOWN_FAMILY = {
    "v": 1,
    "at_ms": 1,
    "by": "anybody",
    "events": [
        {
            "type": "NodeObserved",
            "name": "strange",
            "uid": "u",
            "rv": 1,
            "cpu_milli": 8000,
            "memory_bytes": 1 << 34,
            "pods": 10,
            "inventories": [["fpga", "", [["F-0", 0, "fpga", 10, 16000, 100, True, ""]]]],
        }
    ],
}


def test_nobody_dies_of_a_message(tmp_path: Path) -> None:
    with Stack(tmp_path, nodes=NODES) as stack:
        pids = {role: stack.processes[role].pid for role in ROLES}
        stack.create_pod("before", vgpu(memory=1000))
        stack.until(lambda: "before" in stack.bound(), "a pod is bound")
        anyio.run(_send, stack.nats.url)
        stack.append("allot.log.facts", json.dumps(UNKNOWN_FAMILY).encode(), "strange")
        stack.create_pod("after", vgpu(memory=1000))
        stack.until(lambda: "after" in stack.bound(), "a pod is bound")
        for role in ROLES:
            stack.until(lambda role=role: stack.is_ready(role), f"{role} is ready")  # type: ignore[misc]
            assert stack.processes[role].is_running, stack.processes[role].tail()
            assert stack.processes[role].pid == pids[role]
        for said in ('door="bus",kind="Proposal"', 'door="lease",kind="Claim"'):
            stack.until(lambda said=said: said in _metrics(stack, "binder"), said)  # type: ignore[misc]


def _metrics(stack: Stack, name: str) -> str:
    address = stack.processes[name].announced["http"]
    with urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


async def _send(url: str) -> None:
    async with connect(url, "anybody") as connection:
        for subject, payload in MESSAGES:
            assert await connection.send(subject, payload)
            await anyio.sleep(0.01)
        await connection.client.flush()
