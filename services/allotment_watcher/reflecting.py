"""Follows kinds of Kubernetes objects, as this service does it."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.watch import (
    ABSENT_RETRY_S,
    Added,
    Deleted,
    Modified,
    Reflector,
    Synced,
    Undecodable,
    WatchEvent,
)
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.telemetry.refusals import Refusals
from allotment_watcher.device_source import Place
from allotment_watcher.objects import ConfigMapObject
from allotment_watcher.settings import WatcherSettings

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


async def follow_config_map(
    ctx: ServiceContext[WatcherSettings],
    client: kube.KubeClient,
    place: Place,
    *,
    found: Callable[[Mapping[str, str] | None], None],
    broken: Callable[[str], None],
    failed: Callable[[str], None],
    stir: Callable[[], None],
) -> None:
    """Follow one ConfigMap for ever. `found` hears of its data (None: there is none), `broken` why
    what is there is no ConfigMap, `failed` why asking failed; after each of them `stir` is called.
    """
    said = ""

    async def on_event(event: WatchEvent[ConfigMapObject]) -> None:
        nonlocal said
        match event:
            case Added() | Modified():
                found(event.object.data or {})
            case Undecodable():
                broken(event.error)
            case Deleted():
                found(None)
            case Synced():
                said = ""
                if event.objects == 0:
                    found(None)
        stir()

    def on_problem(text: str) -> None:
        nonlocal said
        if text != said:
            ctx.log.warning("watch interrupted", place=place.text, reason=text)
        said = text
        failed(text)
        stir()

    path = config_map_path(place.namespace, place.name)
    hear = (on_event, on_problem, ctx.refusals)
    await reflect(client, path, ConfigMapObject, *hear, absent_ok=True)


def config_map_path(namespace: str, name: str) -> str:
    """What lists and watches one ConfigMap; a right to that one alone is enough."""
    query = urlencode({"fieldSelector": f"metadata.name={name}"})
    return f"/api/v1/namespaces/{namespace}/configmaps?{query}"
