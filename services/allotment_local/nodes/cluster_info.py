"""What MindCluster's ClusterD tells schedulers of Ascend chips: two ConfigMaps for all nodes.

Source: volcano `ascend310p/vnpu/init_policy.go` (deviceshare 2.7), the layout with
`useClusterInfoManager`.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from allotment_local.apiserver.resources import CONFIG_MAPS, NAMESPACES
from allotment_local.apiserver.store import Store
from allotment_local.nodes.annotations import NodeFaults
from allotment_proto.facts import CardFact
from allotment_proto.volcano import keys

DEVICES = f"{keys.CLUSTER_INFO_DEVICE_PREFIX}0"
_LABELS = dict((keys.LABEL_CLUSTER_INFO,))


class ClusterInfo:
    """Tells of the nodes that have chips through MindCluster. Without any there is nothing."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._devices: dict[str, dict[str, Any]] = {}

    def show(self, node: str, chips: Sequence[CardFact], faults: NodeFaults) -> None:
        """Report a node's chips. A report that says the same as before is not written again."""
        if not chips:
            return
        listed = _device_list(chips, faults)
        before = self._devices.get(node)
        if before is not None and before["DeviceList"] == listed:
            return
        now_s = int(self._clock().timestamp())
        self._devices[node] = {"DeviceList": listed, "UpdateTime": now_s, "SuperPodID": -1}
        self._write()

    def forget(self, node: str) -> None:
        if self._devices.pop(node, None) is not None:
            self._write()

    def _write(self) -> None:
        devices = {f"{keys.DEVICE_INFO_PREFIX}{n}": each for n, each in self._devices.items()}
        nodes = {
            f"{keys.NODE_INFO_PREFIX}{node}": {"FaultDevList": [], "NodeStatus": "Healthy"}
            for node in self._devices
        }
        for name, document in ((DEVICES, devices), (keys.CLUSTER_INFO_NODE, nodes)):
            self._put(name, {name: json.dumps(document)})

    def _put(self, name: str, data: dict[str, str]) -> None:
        namespace = keys.MINDX_NAMESPACE
        if self._store.find(NAMESPACES, "", namespace) is None:
            self._store.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        if self._store.find(CONFIG_MAPS, namespace, name) is None:
            body = {"metadata": {"name": name, "labels": _LABELS}, "data": data}
            self._store.create(CONFIG_MAPS, namespace, body)
        else:
            self._store.merge_patch(CONFIG_MAPS, namespace, name, {"data": data})


def _device_list(chips: Sequence[CardFact], faults: NodeFaults) -> dict[str, str]:
    """Names of the chips that are well and of those that are not; one that is gone has none."""
    kind = chips[0].model
    there = [chip for chip in chips if chip.id not in faults.gone]
    ill = [chip for chip in there if chip.id in faults.unhealthy]
    well = [chip for chip in there if chip.id not in faults.unhealthy]
    return {
        keys.npu_healthy(kind): ",".join(f"{kind}-{chip.id}" for chip in well),
        keys.npu_unhealthy(kind): ",".join(f"{kind}-{chip.id}" for chip in ill),
        keys.npu_recovering(kind): "",
    }
