"""A new watcher takes neither an API server's old memory nor its predecessor's word for true."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

import anyio
import pytest

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.kind_watch import KindWatch
from allotment.adapters.kube.result import Unknown
from allotment.adapters.kube.watch_events import Synced, Undecodable
from allotment.adapters.log.recorder import Recorder
from allotment.adapters.telemetry.refusals import Refusals
from allotment.core.ledger.state import apply
from allotment_proto.events import NodeGone, NodeObserved, PodGone, PodObserved
from allotment_proto.facts import Policy
from allotment_watcher import objects
from allotment_watcher.__main__ import Context
from allotment_watcher.observer import PODS, Observer
from allotment_watcher.reported import Reported
from allotment_watcher.settings import WatcherSettings
from tests.build import node, pod, state_of
from tests.waiting import patience


class _Asked(Exception):
    """Leaves the reflector once it asked for its first list."""

    def __init__(self, params: Mapping[str, str]) -> None:
        super().__init__(str(params))
        self.params = params


class _Client:
    def __init__(self) -> None:
        self.silent: dict[str, str] = {}

    async def list(self, path: str, params: Mapping[str, str]) -> Unknown:
        raise _Asked(params)


async def _ignore(event: object) -> None: ...


@pytest.mark.anyio
async def test_the_first_list_is_a_consistent_one() -> None:
    """The log already knows pods. A list from the server's cache may be older than that, and a
    pod that is missing in it would be told as gone: its cards would be handed out again while it
    runs.
    """
    client = cast(KubeClient, _Client())
    watch = KindWatch(PODS, objects.PodObject, _ignore, Refusals(MagicMock()))
    with patience(), pytest.raises(_Asked) as asked:
        await watch.run(client)
    assert "resourceVersion" not in asked.value.params


def test_an_end_that_lands_late_does_not_hide_what_is_there() -> None:
    """An old watcher's last words took away what its successor had found unchanged."""
    state = state_of(node("n1"), node("n2"), pod("a"), pod("b"))
    reported = Reported(state)
    apply(state, PodGone(uid="a", namespace="default", name="pod-a", rv=1), 5)
    apply(state, NodeGone(name="n1", uid="uid-n1", rv=1), 6)
    found = reported.corrections(state)
    assert found == [pod("a"), node("n1")]
    for fact in found:
        assert isinstance(fact, PodObserved | NodeObserved)
        apply(state, fact, 7)
    assert reported.corrections(state) == []


def test_a_node_that_cannot_be_read_any_more_is_not_gone() -> None:
    state = state_of(node("n1"))
    reported = Reported(state)
    put: list[object] = []
    recorder = SimpleNamespace(put=lambda events, *, awaited=True: put.extend(events))
    context = SimpleNamespace(log=MagicMock(), ready=lambda *_: None, settings=WatcherSettings())
    observer = Observer(cast(Context, context), Policy(), reported, cast(Recorder, recorder))

    async def relist() -> None:
        await observer.on_node(Undecodable("", "n1", "uid-n1", b"{}", "spec is a number"))
        await observer.on_node(Synced("9", 1))

    anyio.run(relist)
    assert put == []
