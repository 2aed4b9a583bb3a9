"""Follows one ConfigMap."""

from collections.abc import Callable, Mapping
from urllib.parse import urlencode

from allotment.adapters.kube import client as kube
from allotment.adapters.kube.kind_watch import KindWatch
from allotment.adapters.kube.watch_events import (
    Added,
    Deleted,
    Modified,
    Synced,
    Undecodable,
    WatchEvent,
)
from allotment.adapters.service.service import ServiceContext
from allotment_watcher.device_source import Place
from allotment_watcher.objects import ConfigMapObject
from allotment_watcher.settings import WatcherSettings


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

    async def on_event(event: WatchEvent[ConfigMapObject]) -> None:
        match event:
            case Added() | Modified():
                found(event.object.data or {})
            case Undecodable():
                broken(event.error)
            case Deleted():
                found(None)
            case Synced():
                if event.objects == 0:
                    found(None)
        stir()

    def on_problem(text: str) -> None:
        failed(text)
        stir()

    watch = KindWatch(
        config_map_path(place.namespace, place.name),
        ConfigMapObject,
        on_event,
        ctx.refusals,
        on_problem=on_problem,
        warn=lambda text: ctx.log.warning("watch interrupted", place=place.text, reason=text),
        absent_ok=True,
    )
    await watch.run(client)


def config_map_path(namespace: str, name: str) -> str:
    """What lists and watches one ConfigMap; a right to that one alone is enough."""
    query = urlencode({"fieldSelector": f"metadata.name={name}"})
    return f"/api/v1/namespaces/{namespace}/configmaps?{query}"
