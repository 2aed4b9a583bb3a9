"""Fake nodes in a Store: every Node object gets a kubelet, device plugins, a lease and faults."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from random import Random
from typing import Any

from allotment_local.apiserver.resources import LEASES, NODES, PODS
from allotment_local.apiserver.store import Store
from allotment_local.nodes.amounts import amounts
from allotment_local.nodes.annotations import (
    ALLOCATE_TIME,
    FAULT,
    Mistake,
    NodeFaults,
    duration_s,
    node_faults,
)
from allotment_local.nodes.books import Books
from allotment_local.nodes.cluster_info import ClusterInfo
from allotment_local.nodes.device_map import DeviceMap
from allotment_local.nodes.inventory import read_hardware
from allotment_local.nodes.kubelet import Kubelet
from allotment_local.nodes.lifecycles import Delays, PodLifecycles
from allotment_local.nodes.pending import Pending
from allotment_local.nodes.reports import Reports
from allotment_local.nodes.showing import is_plain, shown
from allotment_local.nodes.timers import Timers
from allotment_local.nodes.volume_binding import VolumeBinding

JsonObject = dict[str, Any]
LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_S = 40


class _Agent:
    """What stands behind one Node object."""

    def __init__(self, uid: str, kubelet: Kubelet) -> None:
        self.uid = uid
        self.kubelet = kubelet
        self.allocatable: Any = None
        """The object last read, to see by identity whether there is anything new."""
        self.fault: str | None = None
        self.allocate_time: str | None = None
        self.faults = NodeFaults()
        self.listed: frozenset[str] = frozenset()
        """The names of resources by which the node's plugins offered something."""
        self.status_due_s = 0.0


class FakeNodes:
    """Call `start` once, then have `timers.run()` running as long as the store is served."""

    def __init__(
        self,
        store: Store,
        timers: Timers,
        clock: Callable[[], datetime],
        delays: Delays | None = None,
        seed: int = 0,
    ) -> None:
        """`seed` is that of the dice by which kubelets order what they may order as they like."""
        self.books = Books()
        self._store = store
        self._clock = clock
        self._timers = timers
        self._delays = delays or Delays()
        self._agents: dict[str, _Agent] = {}
        self._kubelets: dict[str, Kubelet] = {}
        self._pending = Pending()
        self._reports = Reports(store)
        self._volumes = VolumeBinding(store, timers)
        self._devices = DeviceMap(store, self._reports, self._reconfigured)
        self._cluster_info = ClusterInfo(store, clock)
        self._lifecycles = PodLifecycles(
            store,
            timers,
            self._pending,
            self._kubelets,
            self.books,
            self._reports,
            self._delays,
            Random(seed),
        )

    def start(self, nodes: Iterable[JsonObject], *, configured: bool = False) -> None:
        """Create these Node objects, and run all nodes and pods from now on.

        `configured`: the device configuration's ConfigMap is installed before, and the device
        plugins do as it says from then on. Without, they do as is built in.
        """
        if configured:
            self._devices.start()
        for node in self._store.list(NODES)[0]:
            self._node_changed("ADDED", node)
        for pod in self._store.list(PODS)[0]:
            self._lifecycles.observe("ADDED", pod)
        self._volumes.start()
        self._store.subscribe(NODES, self._node_changed)
        self._store.subscribe(PODS, self._lifecycles.observe)
        for node in nodes:
            self._store.create(NODES, "", node)

    def report(self) -> JsonObject:
        """What every card was handed out to, and every incident; see `books`."""
        geometries = {
            f"{name}/{card}": group
            for name, kubelet in self._kubelets.items()
            for card, group in kubelet.plugins.geometries.items()
        }
        return {**self.books.report(), "geometries": geometries}

    def _node_changed(self, type_: str, node: JsonObject) -> None:
        name = node["metadata"]["name"]
        if type_ == "DELETED":
            self._gone(name, node)
            return
        agent = self._agents.get(name)
        if agent is None:
            self._adopt(name, node)
            return
        self._read_allocatable(agent, node)
        self._read_allocate_time(agent, node)
        fault = (node["metadata"].get("annotations") or {}).get(FAULT)
        if fault != agent.fault:
            agent.fault = fault
            self._apply_faults(agent, node)

    def _adopt(self, name: str, node: JsonObject) -> None:
        config = self._devices.config
        hardware = read_hardware(node, config)
        addresses = (node.get("status") or {}).get("addresses") or ()
        host_ip = next((a["address"] for a in addresses if a.get("type") == "InternalIP"), "")
        kubelet = Kubelet(
            name,
            host_ip,
            hardware,
            self._store,
            self._pending,
            self.books,
            lambda: self._devices.config,
        )
        agent = _Agent(node["metadata"]["uid"], kubelet)
        agent.status_due_s = self._timers.now() + self._delays.status_s
        self._agents[name] = agent
        self._kubelets[name] = kubelet
        self._read_allocatable(agent, node)
        kubelet.allocate_s = self._delays.allocate_s
        self._read_allocate_time(agent, node)
        self._create_lease(name, node)
        self._timers.after(self._delays.lease_s, lambda: self._beat(name, agent))
        self._lifecycles.node_added(name)
        agent.fault = (node["metadata"].get("annotations") or {}).get(FAULT)
        self._cluster_info.show(name, hardware.chips, agent.faults)
        if agent.fault is not None:
            self._apply_faults(agent, node)
        elif hardware.vgpu and not is_plain(config, name):
            self._show(agent)

    def _gone(self, name: str, node: JsonObject) -> None:
        if self._agents.pop(name, None) is not None:
            del self._kubelets[name]
            self._reports.forget(node["metadata"]["uid"])
            self._cluster_info.forget(name)
            self._lifecycles.node_gone(name)

    def _read_allocatable(self, agent: _Agent, node: JsonObject) -> None:
        allocatable = (node.get("status") or {}).get("allocatable")
        if allocatable is not agent.allocatable:
            agent.allocatable = allocatable
            agent.kubelet.allocatable = amounts(allocatable)

    def _read_allocate_time(self, agent: _Agent, node: JsonObject) -> None:
        text = (node["metadata"].get("annotations") or {}).get(ALLOCATE_TIME)
        if text == agent.allocate_time:
            return
        agent.allocate_time = text
        time_s = self._delays.allocate_s if text is None else duration_s(ALLOCATE_TIME, text)
        if isinstance(time_s, Mistake):
            self._reports.mistake(node, agent.kubelet.node, time_s)
        else:
            agent.kubelet.allocate_s = time_s

    def _apply_faults(self, agent: _Agent, node: JsonObject) -> None:
        name, hardware = agent.kubelet.node, agent.kubelet.hardware
        faults = NodeFaults()
        if agent.fault is not None:
            faults, mistakes = node_faults(agent.fault, hardware.card_ids())
            for mistake in mistakes:
                self._reports.mistake(node, name, mistake)
        if faults.node_gone:
            self._store.delete(NODES, "", name)
            return
        agent.faults = faults
        kubelet = agent.kubelet
        kubelet.plugins.break_down(faults)
        kubelet.exits = faults.exits
        kubelet.plugins_away = faults.plugin_dead or faults.plugin_restarts
        was_deaf, kubelet.is_deaf = kubelet.is_deaf, faults.watch_lost
        self._show(agent)
        if was_deaf and not kubelet.is_deaf:
            self._lifecycles.listed(name)

    def _reconfigured(self) -> None:
        """The device configuration is another one: as if every device plugin was restarted."""
        for agent in list(self._agents.values()):
            agent.kubelet.plugins.configured()
            if agent.kubelet.hardware.vgpu:
                self._show(agent)

    def _show(self, agent: _Agent) -> None:
        """Let the Node show its cards as they are now; a write only if that is something new."""
        name, hardware = agent.kubelet.node, agent.kubelet.hardware
        found = shown(hardware, agent.faults, self._devices.config, name)
        self._cluster_info.show(name, hardware.chips, agent.faults)
        if found.annotations:
            patch = {"metadata": {"annotations": found.annotations}}
            self._store.merge_patch(NODES, "", name, patch)
        offered = frozenset(resource for resource, _ in hardware.offered)
        dropped = dict.fromkeys((offered | agent.listed) - {*found.allocatable})
        agent.listed = frozenset(found.allocatable)
        status = {
            part: {**dropped, **{resource: str(n) for resource, n in amounts.items()}}
            for part, amounts in (("capacity", found.capacity), ("allocatable", found.allocatable))
        }
        if agent.listed or dropped:
            self._store.merge_patch(NODES, "", name, {"status": status}, subresource="status")

    # Heartbeats

    def _create_lease(self, name: str, node: JsonObject) -> None:
        if self._store.find(LEASES, LEASE_NAMESPACE, name) is not None:
            self._store.delete(LEASES, LEASE_NAMESPACE, name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_DURATION_S,
            "renewTime": self._micro_time(),
        }
        lease = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
        self._store.create(LEASES, LEASE_NAMESPACE, lease)

    def _beat(self, name: str, agent: _Agent) -> None:
        if self._agents.get(name) is not agent:
            return
        if self._store.find(LEASES, LEASE_NAMESPACE, name) is not None:
            renewed = {"spec": {"renewTime": self._micro_time()}}
            self._store.merge_patch(LEASES, LEASE_NAMESPACE, name, renewed)
        if self._timers.now() >= agent.status_due_s:
            agent.status_due_s = self._timers.now() + self._delays.status_s
            self._beat_status(name)
        self._timers.after(self._delays.lease_s, lambda: self._beat(name, agent))

    def _beat_status(self, name: str) -> None:
        """Like a kubelet with nothing to say: only the time of the conditions changes."""
        node = self._store.get(NODES, "", name)
        conditions = [
            {**condition, "lastHeartbeatTime": self._store.now()}
            for condition in (node.get("status") or {}).get("conditions") or ()
        ]
        if conditions:
            patch = {"status": {"conditions": conditions}}
            self._store.merge_patch(NODES, "", name, patch, subresource="status")

    def _micro_time(self) -> str:
        return self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
