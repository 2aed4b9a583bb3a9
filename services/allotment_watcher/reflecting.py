"""Follows kinds of Kubernetes objects, as this service does it."""

import secrets
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.watch import ABSENT_RETRY_S, Reflector, WatchEvent
from allotment.adapters.telemetry.refusals import Refusals

T = TypeVar("T")


async def reflect(
    client: kube.KubeClient,
    path: str,
    kind: type[T],
    on_event: Callable[[WatchEvent[T]], Awaitable[None]],
    on_problem: Callable[[str], None],
    refusals: Refusals,
    *,
    absent_ok: bool = False,
    absent_retry_s: float = ABSENT_RETRY_S,
) -> None:
    """Never from the server's cache: the log may know more than it, and what an old list lacks
    would be told as gone while it runs.
    """
    await Reflector(
        client,
        path,
        msgspec.json.Decoder(kind),
        on_event,
        random=Random(secrets.randbits(64)),
        first_list_from_cache=False,
        on_problem=on_problem,
        absent_ok=absent_ok,
        absent_retry_s=absent_retry_s,
        refusals=refusals,
    ).run()


def config_map_path(namespace: str, name: str) -> str:
    """What lists and watches one ConfigMap; a right to that one alone is enough."""
    query = urlencode({"fieldSelector": f"metadata.name={name}"})
    return f"/api/v1/namespaces/{namespace}/configmaps?{query}"
