"""The environment that device plugins set in the example pods: one pod of each kind."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from allotment.adapters.kube.client import connect
from allotment.adapters.kube.result import Ok
from allotment.core.errors import AllotError
from allotment_cli.demo.apply import Applied

ENV = "allotment.dev/env"
"""Written by the fake kubelets, as JSON: container → variable → value."""
Environment = tuple[str, Mapping[str, str]]
"""A pod's name, and the environment of its first container."""


async def environments(kubeconfig: Path, applied: list[Applied]) -> list[Environment]:
    """For every kind of environment (set of variables), the first pod that has it.

    Raises `AllotError` when the API server does not list the pods.
    """
    uids = {each.uid for each in applied}
    async with connect(kubeconfig) as client:
        answer = await client.get("/api/v1/pods")
    if not isinstance(answer, Ok):
        raise AllotError(f"the pods cannot be listed: {answer.message}")
    kinds: dict[frozenset[str], Environment] = {}
    pods: list[dict[str, Any]] = msgspec.json.decode(answer.body)["items"]
    for metadata in (pod["metadata"] for pod in pods):
        text = (metadata.get("annotations") or {}).get(ENV)
        if text is not None and metadata["uid"] in uids:
            env = next(iter(json.loads(text).values()))
            kinds.setdefault(_kind(env), (metadata["name"], env))
    return sorted(kinds.values(), key=lambda found: found[0])


def _kind(env: Mapping[str, str]) -> frozenset[str]:
    """The names of the variables; MIG devices are a kind of their own, and counts are none."""
    names = {name.rstrip("0123456789") for name in env}
    return frozenset((*names, *(["MIG"] if any("MIG-" in value for value in env.values()) else [])))


def lines_of(found: list[Environment]) -> list[list[str]]:
    """Rows of pod, variable and value."""
    return [[pod, name, value] for pod, env in found for name, value in sorted(env.items())]
