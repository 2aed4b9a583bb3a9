"""A watcher's observer of which a test sees what it would append."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import anyio
import msgspec

from allotment.adapters.kube.watch_events import Added, Identity, Modified
from allotment.adapters.log.recorder import Recorder
from allotment.core.ledger.model import ClusterState
from allotment_proto.facts import Policy
from allotment_watcher import objects
from allotment_watcher.__main__ import Context
from allotment_watcher.observer import Observer
from allotment_watcher.reported import Reported
from allotment_watcher.settings import WatcherSettings
from allotment_watcher.throttle import Throttle


class Told:
    """An observer, and what it put into the log's queue."""

    def __init__(self) -> None:
        self.put: list[Any] = []
        context = SimpleNamespace(
            log=MagicMock(), ready=lambda *_: None, settings=WatcherSettings()
        )
        recorder = SimpleNamespace(put=lambda events, *, awaited=True: self.put.extend(events))
        self.now_s = 0.0
        throttle = Throttle(lambda: self.now_s)
        self.observer = Observer(
            cast(Context, context),
            Policy(),
            Reported(ClusterState()),
            cast(Recorder, recorder),
            throttle=throttle,
        )

    def nodes(self, *texts: str) -> None:
        for text in texts:
            node = msgspec.json.decode(text, type=objects.NodeObject)
            identity = Identity("", node.metadata.name, node.metadata.uid)
            anyio.run(self.observer.on_node, Modified(identity, node))

    def pods(self, *texts: str) -> None:
        for text in texts:
            pod = msgspec.json.decode(text, type=objects.PodObject)
            identity = Identity("", pod.metadata.name, pod.metadata.uid)
            anyio.run(self.observer.on_pod, Added(identity, pod))
