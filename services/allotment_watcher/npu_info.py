"""What Huawei's components say of each node's Ascend chips in ConfigMaps (MindCluster).

One ConfigMap may tell of all nodes. It is taken apart, so that a change touches only the nodes
whose own part changed, and each node is given no more than its part, in the layout of the whole.

Source: volcano `ascend/mindcluster/ascend310p/vnpu/init_policy.go` (deviceshare 2.7).
"""

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from allotment.core.plugin_arguments import INIT_PARAMS, configuration, flag
from allotment_proto.facts import Policy
from allotment_proto.volcano import keys, mindcluster

Parts = dict[str, tuple[str, str]]
"""Node → key and text of its part."""

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class BrokenInfo(Exception):
    """Raised for a ConfigMap that cannot be taken apart; says what is wrong with it."""


def path_of(policy: Policy) -> str | None:
    """What to list and watch; None if the policy does not use MindCluster."""
    if mindcluster.FAMILY not in policy.families:
        return None
    if flag(configuration(policy, INIT_PARAMS), "useClusterInfoManager"):
        namespace, label = keys.MINDX_NAMESPACE, keys.LABEL_CLUSTER_INFO
    else:
        namespace, label = keys.MINDX_NODE_NAMESPACE, keys.LABEL_NODE_INFO
    query = urlencode({"labelSelector": "=".join(label)})
    return f"/api/v1/namespaces/{namespace}/configmaps?{query}"


class NpuInfo:
    """The parts of all ConfigMaps, by node."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], Parts] = {}

    def seen(self, namespace: str, name: str, data: Mapping[str, str]) -> set[str]:
        """The nodes of which something else is said now. Raises BrokenInfo, and nothing changes."""
        return self._replace(namespace, name, parts_of(namespace, name, data))

    def gone(self, namespace: str, name: str) -> set[str]:
        """The nodes of which nothing is said any more."""
        return self._replace(namespace, name, {})

    def of(self, node: str) -> dict[str, str]:
        """``<namespace>/<name>/<key>`` → text, of one node."""
        found = (parts[node] for _, parts in sorted(self._parts.items()) if node in parts)
        return dict(found)

    def _replace(self, namespace: str, name: str, parts: Parts) -> set[str]:
        old = self._parts.pop((namespace, name), {})
        if parts:
            self._parts[namespace, name] = parts
        return {node for node in old.keys() | parts.keys() if old.get(node) != parts.get(node)}


def parts_of(namespace: str, name: str, data: Mapping[str, str]) -> Parts:
    """The parts of one ConfigMap; none of one that does not tell of devices."""
    place = f"{namespace}/{name}"
    if name.startswith(keys.CLUSTER_INFO_DEVICE_PREFIX):
        if name not in data:
            raise BrokenInfo(f"ConfigMap {place} has no key {name}")
        try:
            entries = _decode(data[name])
        except msgspec.MsgspecError as error:
            message = f"ConfigMap {place}, key {name}, is no JSON map of nodes: {error}"
            raise BrokenInfo(message) from error
        return {
            key.removeprefix(keys.DEVICE_INFO_PREFIX): (
                f"{place}/{name}",
                msgspec.json.encode({key: entry}).decode(),
            )
            for key, entry in entries.items()
            if key.startswith(keys.DEVICE_INFO_PREFIX)
        }
    if name.startswith(keys.DEVICE_INFO_PREFIX):
        if keys.DEVICE_INFO_KEY not in data:
            raise BrokenInfo(f"ConfigMap {place} has no key {keys.DEVICE_INFO_KEY}")
        node = name.removeprefix(keys.DEVICE_INFO_PREFIX)
        return {node: (f"{place}/{keys.DEVICE_INFO_KEY}", data[keys.DEVICE_INFO_KEY])}
    return {}
