"""Fake nodes on a clock of the test's own: time stands still but for `World.pass_time`."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from allotment_local.apiserver.binding import bind
from allotment_local.apiserver.resources import CONFIG_MAPS, EVENTS, NODES, PODS
from allotment_local.apiserver.store import Store
from allotment_local.nodes.annotations import ENV, FAULT
from allotment_local.nodes.fake import FakeNodes
from allotment_local.nodes.objects import card_id, node_objects
from allotment_local.nodes.shape_reader import parse_shapes
from allotment_local.nodes.timers import Timers
from allotment_proto.facts import Holding
from allotment_proto.volcano import gpushare, keys, vgpu

Json = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
NODES_YAML = """
- {name: v, gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 2}, cpu: 8, memory: 32Gi}
- {name: w, kind: whole, gpus: {model: Tesla T4, count: 2, memory_mib: 16000}}
- {name: s, kind: gpushare, gpus: {model: Tesla T4, count: 2, memory_mib: 16000}}
- {name: c, kind: cpu, cpu: 2}
"""


class World:
    """A store with fake nodes, and a clock."""

    def __init__(
        self, nodes_yaml: str = NODES_YAML, *, configured: bool = False, seed: int = 0
    ) -> None:
        self.now_s = 0.0
        ids = (f"{number:08x}-0000-4000-8000-000000000000" for number in itertools.count(1))
        self.store = Store(clock=self.clock, ids=lambda: next(ids))
        self.timers = Timers(lambda: self.now_s)
        self.fake = FakeNodes(self.store, self.timers, self.clock, seed=seed)
        self.stamps = itertools.count(1)
        shapes = parse_shapes(nodes_yaml, "test")
        self.fake.start(node_objects(shapes, self.store.now()), configured=configured)

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.now_s)

    def pass_time(self, seconds: float = 0.0) -> None:
        """Move the clock in small steps, running what becomes due."""
        end_s = self.now_s + seconds
        while True:
            while self.timers.run_due():
                pass
            if self.now_s >= end_s:
                return
            self.now_s = min(end_s, self.now_s + 0.1)

    def pod(self, name: str, limits: Json, annotations: Json | None = None) -> Json:
        container = {"name": "main", "image": "i:1", "resources": {"limits": limits}}
        metadata = {"name": name, "annotations": annotations or {}}
        made = {"metadata": metadata, "spec": {"containers": [container]}}
        return self.store.create(PODS, "default", made)

    def bind(self, name: str, node: str, annotations: Json | None = None) -> None:
        metadata = {"name": name, "annotations": annotations or {}}
        bind(self.store, "default", name, {"metadata": metadata, "target": {"name": node}})

    def bind_vgpu(self, name: str, *cards: tuple[int, int, int], node: str = "v") -> None:
        """Cards are (index, MiB, cores)."""
        self.bind_holdings(
            name,
            node,
            *(
                Holding(vgpu.FAMILY, 0, card_id(node, index), memory_mib, cores_pct)
                for index, memory_mib, cores_pct in cards
            ),
        )

    def bind_holdings(self, name: str, node: str, *holdings: Holding) -> None:
        """Bind with vGPU holdings."""
        self.bind(name, node, vgpu.binding_annotations(node, holdings, next(self.stamps), 1))

    def bind_share(self, name: str, *cards: int) -> None:
        holdings = tuple(Holding(gpushare.FAMILY, 0, str(card), 0, 0) for card in cards)
        self.bind(name, "s", gpushare.binding_annotations(holdings, next(self.stamps)))

    def end(self, name: str) -> None:
        """Delete a pod, and wait until it is gone."""
        self.store.delete(PODS, "default", name)
        self.pass_time(1)

    def get(self, name: str) -> Json:
        return self.store.get(PODS, "default", name)

    def phase(self, name: str) -> str:
        return str(self.get(name)["status"]["phase"])

    def annotation(self, name: str, key: str) -> str | None:
        found: str | None = self.get(name)["metadata"]["annotations"].get(key)
        return found

    def node(self, name: str) -> Json:
        return self.store.get(NODES, "", name)

    def env(self, name: str) -> dict[str, str]:
        """What the device plugin put into the environment of container `main`."""
        found: dict[str, str] = json.loads(self.annotation(name, ENV) or "{}").get("main", {})
        return found

    def annotate_node(self, name: str, value: str | None) -> None:
        self.store.merge_patch(NODES, "", name, {"metadata": {"annotations": {FAULT: value}}})

    def lock(self, node: str, name: str, value: str) -> None:
        self.store.merge_patch(NODES, "", node, {"metadata": {"annotations": {name: value}}})

    def edit_config(self, text: str, name: str = keys.DEVICE_CONFIG_MAP) -> None:
        """Replace the text in one of the two ConfigMaps of the device configuration."""
        is_cluster = name == keys.DEVICE_CONFIG_MAP
        key = keys.DEVICE_CONFIG_KEY if is_cluster else keys.NODE_CONFIG_KEY
        if self.store.find(CONFIG_MAPS, "kube-system", name) is None:
            body = {"metadata": {"name": name}, "data": {key: text}}
            self.store.create(CONFIG_MAPS, "kube-system", body)
        else:
            self.store.merge_patch(CONFIG_MAPS, "kube-system", name, {"data": {key: text}})

    def config_map(self, namespace: str, name: str) -> dict[str, str]:
        found: dict[str, str] = self.store.get(CONFIG_MAPS, namespace, name)["data"]
        return found

    def allocatable(self, node: str, resource: str) -> str:
        return str(self.node(node)["status"]["allocatable"][resource])

    def shown(self, node: str, key: str) -> str | None:
        """An annotation of a node."""
        found: str | None = self.node(node)["metadata"]["annotations"].get(key)
        return found

    def used(self, node: str) -> dict[int, tuple[int, int, int]]:
        """Holders, MiB and cores handed out, by card index."""
        return {
            card["index"]: (
                len(card["holders"]),
                card["used_memory_mib"],
                card["used_cores_pct"],
            )
            for card in self.fake.report()["cards"]
            if card["node"] == node
        }

    def incidents(self) -> list[str]:
        return [incident.code for incident in self.fake.books.incidents]

    def events(self) -> list[tuple[str, str, str]]:
        found, _ = self.store.list(EVENTS)
        return [(e["involvedObject"]["name"], e["reason"], e["message"]) for e in found]


def ask(number: int = 1, memory_mib: int = 4000, cores_pct: int = 25) -> Json:
    return {
        keys.VGPU_NUMBER: number,
        keys.VGPU_MEMORY: memory_mib,
        keys.VGPU_CORES: cores_pct,
    }
